//! Texts to read, and finding them in files and folders.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// A text with manifests.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Source {
    /// What diagnostics call it; a file's path.
    pub name: String,
    /// YAML or JSON.
    pub text: String,
    /// Values for `${NAME}`.
    pub env: BTreeMap<String, String>,
}

/// Where to find manifests.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PathSpec {
    /// A file, or a folder whose `.yaml`, `.yml` and `.json` files are read in the order of their names.
    pub path: PathBuf,
    /// Values for `${NAME}` in them.
    pub env: BTreeMap<String, String>,
}

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The system says no.
    #[error("{path}: {error}")]
    Io {
        /// The file or folder.
        path: String,
        /// What the system says.
        error: io::Error,
    },
    /// The file is not text.
    #[error("{path}:{line}: not UTF-8 text; save the file as UTF-8")]
    NotUtf8 {
        /// The file.
        path: String,
        /// The line with the first byte that is not UTF-8, counted from 1.
        line: usize,
    },
    /// There is nothing to read in a folder.
    #[error("{path}: no .yaml, .yml or .json file in this folder; folders in it are not entered")]
    EmptyFolder {
        /// The folder.
        path: String,
    },
}

/// Reads the files and folders named, in the order given. Folders are not entered further down.
///
/// # Errors
/// Every file that cannot be read.
pub fn sources_from_paths(paths: &[PathSpec]) -> Result<Vec<Source>, Vec<SourceError>> {
    let mut sources = Vec::new();
    let mut errors = Vec::new();
    for spec in paths {
        match files(&spec.path) {
            Ok(files) => {
                for file in files {
                    match read(&file) {
                        Ok(text) => {
                            sources.push(Source { name: file.display().to_string(), text, env: spec.env.clone() });
                        }
                        Err(error) => errors.push(error),
                    }
                }
            }
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(sources) } else { Err(errors) }
}

fn io_error(path: &Path, error: io::Error) -> SourceError {
    SourceError::Io { path: path.display().to_string(), error }
}

fn files(path: &Path) -> Result<Vec<PathBuf>, SourceError> {
    if !fs::metadata(path).map_err(|e| io_error(path, e))?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(|e| io_error(path, e))? {
        let file = entry.map_err(|e| io_error(path, e))?.path();
        let known = file.extension().is_some_and(|e| e == "yaml" || e == "yml" || e == "json");
        if known && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() { Err(SourceError::EmptyFolder { path: path.display().to_string() }) } else { Ok(files) }
}

fn read(path: &Path) -> Result<String, SourceError> {
    let bytes = fs::read(path).map_err(|e| io_error(path, e))?;
    String::from_utf8(bytes).map_err(|e| {
        let valid = e.utf8_error().valid_up_to();
        let line = e.as_bytes().iter().take(valid).filter(|b| **b == b'\n').count().saturating_add(1);
        SourceError::NotUtf8 { path: path.display().to_string(), line }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("slicegate-manifest-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn a_folder_is_read_in_the_order_of_names() {
        let path = folder("order");
        for (name, text) in [("b.yml", "2"), ("a.yaml", "1"), ("c.json", "3"), ("d.txt", "4")] {
            fs::write(path.join(name), text).unwrap();
        }
        let sources = sources_from_paths(&[PathSpec { path: path.clone(), env: BTreeMap::new() }]).unwrap();
        assert_eq!(sources.iter().map(|s| s.text.as_str()).collect::<Vec<_>>(), ["1", "2", "3"]);
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn every_problem_is_reported() {
        let path = folder("problems");
        fs::write(path.join("a.yaml"), b"a\nb\n\xff").unwrap();
        fs::create_dir_all(path.join("empty")).unwrap();
        let specs =
            ["a.yaml", "empty", "missing.yaml"].map(|name| PathSpec { path: path.join(name), env: BTreeMap::new() });
        let errors = sources_from_paths(&specs).unwrap_err();
        assert!(matches!(
            errors.as_slice(),
            [SourceError::NotUtf8 { line: 3, .. }, SourceError::EmptyFolder { .. }, SourceError::Io { .. }]
        ));
        fs::remove_dir_all(path).unwrap();
    }
}
