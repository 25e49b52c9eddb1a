//! What no compiler checks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::{cargo, root};

/// Crates that know nothing of Kubernetes clients.
const CORE: &[&str] = &[
    "slicegate-quota",
    "slicegate-tpu",
    "slicegate-workload",
    "slicegate-flavor",
    "slicegate-preemption",
    "slicegate-placement",
    "slicegate-admission",
];

/// What the core never depends on.
const NOT_IN_CORE: &[&str] = &["k8s-openapi", "kube", "kube-core", "kube-client", "tokio", "serde_json", "hyper"];

/// Runs every check that builds nothing.
fn look(findings: &mut Vec<String>) -> Result<(), String> {
    let packages = workspace_packages()?;
    directions(&packages, &read("ARCHITECTURE.md")?, findings)?;
    core_is_pure(findings)?;
    versions_in_one_place(&packages, findings)?;
    texts(findings)?;
    Ok(())
}

/// Runs every check and says all that is wrong.
pub(crate) fn run() -> Result<(), String> {
    let mut findings = Vec::new();
    look(&mut findings)?;
    for name in workspace_packages()?.keys() {
        crate::run(cargo().args(["check", "--quiet", "-p", name]).current_dir(root()))?;
    }
    if findings.is_empty() {
        println!("tidy: nothing to report");
        return Ok(());
    }
    Err(findings.join("\n"))
}

struct Package {
    /// Normal and build dependencies within the workspace.
    uses: BTreeSet<String>,
    manifest: std::path::PathBuf,
}

/// A file of the repository.
fn read(file: &str) -> Result<String, String> {
    fs::read_to_string(root().join(file)).map_err(|why| format!("{file}: {why}"))
}

/// What a command prints, if it succeeds.
fn output(command: &mut Command) -> Result<String, String> {
    let output = command.current_dir(root()).output().map_err(|why| format!("{command:?} cannot be run: {why}"))?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?} ended with {}: {}", output.status, told.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn workspace_packages() -> Result<BTreeMap<String, Package>, String> {
    let text = output(cargo().args(["metadata", "--format-version", "1", "--no-deps"]))?;
    let value: Value = serde_json::from_str(&text).map_err(|why| format!("cargo metadata is unreadable: {why}"))?;
    let list = |v: &Value, key: &str| v[key].as_array().cloned().unwrap_or_default();
    let text = |v: &Value, key: &str| v[key].as_str().unwrap_or_default().to_owned();
    Ok(list(&value, "packages")
        .iter()
        .map(|p| {
            let uses = list(p, "dependencies")
                .iter()
                .filter(|d| d["kind"].as_str() != Some("dev"))
                .map(|d| text(d, "name"))
                .filter(|n| n.starts_with("slicegate"))
                .collect();
            (text(p, "name"), Package { uses, manifest: text(p, "manifest_path").into() })
        })
        .collect())
}

/// Which crates a crate may use, by the table of crates in ARCHITECTURE.md: a row is folder, name, what it holds, and the last words of
/// the names of those that it may use.
fn may_use(architecture: &str) -> BTreeMap<String, BTreeSet<String>> {
    let rows = architecture.lines().filter_map(|line| line.trim().strip_prefix('|')?.strip_suffix('|'));
    let rows = rows.filter_map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let &[folder, name, _, uses] = cells.as_slice() else { return None };
        let name = name.strip_prefix('`')?.strip_suffix('`')?;
        folder.starts_with('`').then(|| {
            let words = uses.split(',').map(str::trim).filter(|word| !matches!(*word, "" | "-"));
            (name.to_owned(), words.map(|word| format!("slicegate-{word}")).collect())
        })
    });
    rows.collect()
}

fn directions(
    packages: &BTreeMap<String, Package>,
    architecture: &str,
    findings: &mut Vec<String>,
) -> Result<(), String> {
    let direct = may_use(architecture);
    if direct.is_empty() {
        return Err("ARCHITECTURE.md has no table of crates".to_owned());
    }
    for (name, uses) in &direct {
        for missing in std::iter::once(name).chain(uses).filter(|name| !packages.contains_key(*name)) {
            findings.push(format!("ARCHITECTURE.md: the row of {name} names {missing}, which does not exist"));
        }
    }
    for (name, package) in packages.iter().filter(|(name, _)| name.starts_with("slicegate")) {
        if !direct.contains_key(name) {
            if !["slicegate-examples", "slicegate-tests"].contains(&name.as_str()) {
                findings.push(format!("{name} is in no row of ARCHITECTURE.md's table"));
            }
            continue;
        }
        let mut allowed = BTreeSet::new();
        let mut todo = vec![name];
        while let Some(n) = todo.pop() {
            todo.extend(direct.get(n).into_iter().flatten().filter(|below| allowed.insert(*below)));
        }
        for used in package.uses.iter().filter(|used| !allowed.contains(used)) {
            findings.push(format!("{name} depends on {used}, which ARCHITECTURE.md does not allow"));
        }
    }
    Ok(())
}

fn core_is_pure(findings: &mut Vec<String>) -> Result<(), String> {
    let known = workspace_packages()?;
    for name in CORE.iter().filter(|n| known.contains_key(**n)) {
        let words = ["tree", "-p", name, "-e", "normal", "--prefix", "none", "--format", "{p}"];
        let tree = output(cargo().args(words))?;
        for line in tree.lines() {
            let package = line.split_whitespace().next().unwrap_or_default();
            if NOT_IN_CORE.contains(&package) {
                findings.push(format!("{name} depends on {package}, which the core must not know"));
            }
        }
    }
    Ok(())
}

fn versions_in_one_place(packages: &BTreeMap<String, Package>, findings: &mut Vec<String>) -> Result<(), String> {
    for (name, package) in packages {
        let text = fs::read_to_string(&package.manifest).map_err(|why| format!("{name}: {why}"))?;
        let mut in_dependencies = false;
        for line in text.lines() {
            if line.starts_with('[') {
                in_dependencies = line.contains("dependencies");
            } else if in_dependencies && line.contains('=') && !line.contains("workspace") {
                findings.push(format!("{name}: `{line}` states a version of its own; use [workspace.dependencies]"));
            }
        }
    }
    Ok(())
}

/// Texts that drift: paths of one machine, the Rust version in the README.
fn texts(findings: &mut Vec<String>) -> Result<(), String> {
    let files = match output(Command::new("git").args(["ls-files", "-z"])) {
        Ok(files) => files,
        Err(why) => {
            println!("tidy: SKIPPED the look at texts: {why}");
            return Ok(());
        }
    };
    let needles = ["/ro".to_owned() + "ot/.c", "/ho".to_owned() + "me/", "/wo".to_owned() + "rk/"];
    for file in files.split('\0').filter(|f| !f.is_empty()) {
        let Ok(text) = fs::read_to_string(root().join(file)) else { continue };
        for (number, line) in text.lines().enumerate() {
            if needles.iter().any(|n| line.contains(n.as_str())) {
                findings.push(format!("{file}:{}: names a path of one machine", number + 1));
            }
        }
    }
    let manifest = read("Cargo.toml")?;
    let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "));
    let version = version.ok_or("Cargo.toml has no rust-version")?.trim_matches('"');
    let readme = read("README.md")?;
    if !readme.contains(&format!("Rust {version}")) {
        findings.push(format!("README.md does not say that Rust {version} is needed (rust-version in Cargo.toml)"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::{Package, directions};

    const TABLE: &str = "| folder | crate | holds | uses |\n|---|---|---|---|\n\
        | `crates/api` | `slicegate-api` | types | quota, tpu |\n| `crates/quota` | `slicegate-quota` | quota | - |\n\
        | `crates/sim` | `slicegate-sim` | cluster | api |\n| `crates/tpu` | `slicegate-tpu` | shapes | - |\n";

    fn found(uses: &[(&str, &[&str])]) -> Vec<String> {
        let package = |uses: &[&str]| Package {
            uses: uses.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>(),
            manifest: "Cargo.toml".into(),
        };
        let packages: BTreeMap<String, Package> =
            uses.iter().map(|(name, uses)| ((*name).to_owned(), package(uses))).collect();
        let mut findings = Vec::new();
        directions(&packages, TABLE, &mut findings).unwrap();
        findings
    }

    #[test]
    fn crates_use_what_the_table_allows() {
        let right: [(&str, &[&str]); 4] = [
            ("slicegate-api", &["slicegate-quota"]),
            ("slicegate-quota", &[]),
            ("slicegate-sim", &["slicegate-api", "slicegate-tpu"]),
            ("slicegate-tpu", &[]),
        ];
        assert_eq!(found(&right), Vec::<String>::new());
        let mut wrong = right.to_vec();
        wrong[3] = ("slicegate-tpu", &["slicegate-quota"]);
        assert_eq!(found(&wrong), ["slicegate-tpu depends on slicegate-quota, which ARCHITECTURE.md does not allow"]);
        wrong[3] = ("slicegate-new", &[]);
        let told = found(&wrong).join("\n");
        assert!(
            told.contains("slicegate-new is in no row") && told.contains("names slicegate-tpu, which does not"),
            "{told}"
        );
    }

    #[test]
    fn the_workspace_is_tidy() {
        let mut findings = Vec::new();
        super::look(&mut findings).unwrap();
        assert!(findings.is_empty(), "{}", findings.join("\n"));
    }
}
