//! Manifests as texts: their `${NAME}` filled in.

use crate::error::{Error, Result};

/// Fills every `${NAME}`.
///
/// # Errors
/// If a name has no value.
pub fn fill(text: &str, values: &[(&str, &str)]) -> Result<String> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, after)) = after.split_once('}') else {
            return Err(Error::new("a ${ without }"));
        };
        let value = values.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        filled.push_str(before);
        filled.push_str(value.ok_or_else(|| Error::new(format!("no value for ${{{name}}}")))?);
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

/// The documents of a YAML text, which `---` separates.
pub fn documents(text: &str) -> Vec<&str> {
    text.split("\n---").map(|d| d.trim_start_matches('\n')).filter(|d| !d.trim().is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled() {
        assert_eq!(fill("a-${X}-${Y}$Z", &[("X", "1"), ("Y", "2")]).unwrap(), "a-1-2$Z");
        assert!(fill("${X}", &[]).unwrap_err().to_string().contains("${X}"));
        assert!(fill("${X", &[("X", "1")]).is_err());
    }

    #[test]
    fn documents_are_told_apart() {
        assert_eq!(documents("a: 1\n---\nb: 2\n\n---\n"), ["a: 1", "b: 2\n"]);
    }
}
