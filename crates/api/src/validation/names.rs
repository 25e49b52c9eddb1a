//! What names of different sorts look like.

/// Checks for a DNS subdomain, as the names of most objects are (RFC 1123): labels of small letters, digits and `-`, joined by `.`,
/// 253 characters at most.
///
/// # Errors
/// What is wrong with it, in words.
pub fn dns_subdomain(text: &str) -> Result<(), String> {
    if text.len() > 253 {
        return Err(format!("{} characters are too many; a name has at most 253", text.len()));
    }
    if text.split('.').all(is_label) {
        return Ok(());
    }
    Err(format!("{text:?} is no name; use small letters, digits, `-` and `.`, with a letter or digit at each end"))
}

/// Checks for a DNS label, as the names of namespaces and pod sets are (RFC 1123): small letters, digits and `-`, 63 characters at
/// most.
///
/// # Errors
/// What is wrong with it, in words.
pub fn dns_label(text: &str) -> Result<(), String> {
    if text.len() > 63 {
        return Err(format!("{} characters are too many; a name has at most 63", text.len()));
    }
    if is_label(text) {
        return Ok(());
    }
    Err(format!("{text:?} is no name; use small letters, digits and `-`, with a letter or digit at each end"))
}

fn is_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let edge = |b: Option<&u8>| b.is_some_and(|b| *b != b'-');
    let bytes = text.as_bytes();
    bytes.iter().all(|b| inner(*b)) && edge(bytes.first()) && edge(bytes.last())
}

/// A label's key or a resource's name: a name of at most 63 characters, perhaps after a DNS subdomain and `/`.
pub(super) fn qualified(text: &str) -> Result<(), String> {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    if let Some(prefix) = prefix {
        dns_subdomain(prefix).map_err(|_| format!("{text:?} is no key; what is before the `/` must be a domain"))?;
    }
    if name.len() > 63 {
        return Err(format!("{text:?} is no key; the name has {} characters, at most 63 are allowed", name.len()));
    }
    if name.is_empty() || !is_word(name) {
        return Err(format!(
            "{text:?} is no key; use letters, digits, `-`, `_` and `.` with a letter or digit at each end, \
             perhaps after a domain and `/`"
        ));
    }
    Ok(())
}

/// A label's value: empty, or a name of at most 63 characters.
pub(super) fn value(text: &str) -> Result<(), String> {
    if text.len() > 63 {
        return Err(format!("{} characters are too many; a label's value has at most 63", text.len()));
    }
    if text.is_empty() || is_word(text) {
        return Ok(());
    }
    Err(format!(
        "{text:?} is no label value; use letters, digits, `-`, `_` and `.`, with a letter or digit at each end"
    ))
}

fn is_word(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.iter().all(|b| inner(*b)) && edge(bytes.first()) && edge(bytes.last())
}

/// A domain, `/`, and a path, such as `example.com/gate`.
pub(super) fn domain_prefixed_path(text: &str) -> Result<(), String> {
    let Some((domain, path)) = text.split_once('/') else {
        return Err(format!("{text:?} must be a domain and a path, such as example.com/gate"));
    };
    dns_subdomain(domain)?;
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b);
    if path.is_empty() || !path.bytes().all(fits) {
        return Err(format!("{path:?} is no path; use letters, digits and /-._~%!$&'()*+,;=:"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (good, bad) in [("a", ""), ("a-b.c", "a_b"), ("0", "-a"), ("a.b", "a..b"), ("a", "a-"), ("a", "A")] {
            assert!(dns_subdomain(good).is_ok(), "{good}");
            assert!(dns_subdomain(bad).is_err(), "{bad}");
        }
        assert!(dns_label("a-b").is_ok() && dns_label("a.b").is_err());
        assert!(dns_label(&"a".repeat(63)).is_ok() && dns_label(&"a".repeat(64)).is_err());
        assert!(dns_subdomain(&"a".repeat(253)).is_ok() && dns_subdomain(&"a".repeat(254)).is_err());
    }

    #[test]
    fn keys_and_values() {
        for good in ["cpu", "google.com/tpu", "A_b.c-1"] {
            assert!(qualified(good).is_ok(), "{good}");
        }
        for bad in ["", "@cpu", "a/b/c", "/a", "a/", "A.com/a", "-a", "some value"] {
            assert!(qualified(bad).is_err(), "{bad}");
        }
        assert!(value("").is_ok() && value("A_b").is_ok() && value("a b").is_err() && value(&"a".repeat(64)).is_err());
    }

    #[test]
    fn paths() {
        assert!(domain_prefixed_path("example.com/a/b").is_ok());
        for bad in ["a", "a/", "A/b", "a/b c"] {
            assert!(domain_prefixed_path(bad).is_err(), "{bad}");
        }
    }
}
