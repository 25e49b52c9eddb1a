//! Turns what serde says about a wrong type into plain English.

/// A message and what to write instead.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Wording {
    pub(crate) message: String,
    pub(crate) help: String,
}

impl Wording {
    /// `written` is the value as it stands in the text.
    pub(crate) fn new(error: &str, written: &str) -> Self {
        let described = ["invalid type: ", "invalid value: "].iter().find_map(|p| error.strip_prefix(p));
        let Some((found, expected)) = described.and_then(|e| e.rsplit_once(", expected ")) else {
            return Self { message: error.to_owned(), help: String::new() };
        };
        let range = if found.starts_with("integer") { range(expected) } else { None };
        let expected = range.unwrap_or_else(|| plain_expected(expected));
        let message = format!("expected {expected}, found {}", plain_found(found));
        let one_line = !written.is_empty() && !written.contains('\n');
        let scalar = ["integer", "floating point", "boolean"].iter().any(|p| found.starts_with(p));
        let help = if one_line && scalar && expected == "text" {
            format!("put it in quotes: \"{written}\"")
        } else if let Some(number) = unquoted(written).filter(|_| expected == "a whole number") {
            format!("write it without quotes: {number}")
        } else {
            String::new()
        };
        Self { message, help }
    }
}

/// A whole number in quotes.
fn unquoted(written: &str) -> Option<&str> {
    let inner = written.strip_prefix(['"', '\''])?.strip_suffix(['"', '\''])?;
    inner.parse::<i64>().ok().map(|_| inner)
}

/// The whole numbers that a type holds, where a number is not among them.
fn range(expected: &str) -> Option<&'static str> {
    Some(match expected {
        "i8" => "a whole number from -128 to 127",
        "i16" => "a whole number from -32768 to 32767",
        "i32" => "a whole number from -2147483648 to 2147483647",
        "i64" => "a whole number from -9223372036854775808 to 9223372036854775807",
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number from 0 to 18446744073709551615",
        _ => return None,
    })
}

fn plain_expected(expected: &str) -> &str {
    match expected {
        "a string" | "a borrowed string" => "text",
        "a boolean" => "true or false",
        "a map" => "a mapping",
        "a sequence" => "a list",
        "i8" | "i16" | "i32" | "i64" | "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number",
        "f32" | "f64" => "a number",
        "Quantity" => "a quantity, such as 500m or 16Gi",
        "IntOrString" => "a whole number or text",
        "Time" | "MicroTime" => "a time, such as 2026-01-01T00:00:00Z",
        "ByteString" => "base64 text",
        _ if expected.starts_with("struct ") => "a mapping",
        // Types of Kubernetes are described by their names.
        _ if expected.starts_with(|c: char| c.is_ascii_uppercase()) && !expected.contains(' ') => "a mapping",
        _ => expected,
    }
}

fn plain_found(found: &str) -> String {
    match found {
        "map" => "a mapping".to_owned(),
        "sequence" => "a list".to_owned(),
        "null" | "unit value" => "nothing".to_owned(),
        _ => {
            for (prefix, word) in
                [("integer ", "the number"), ("floating point ", "the number"), ("boolean ", "the truth value")]
            {
                if let Some(value) = found.strip_prefix(prefix) {
                    return format!("{word} {}", value.trim_matches('`'));
                }
            }
            found.strip_prefix("string ").map_or_else(|| found.to_owned(), |text| format!("the text {text}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(error: &str, written: &str) -> (String, String) {
        let w = Wording::new(error, written);
        (w.message, w.help)
    }

    #[test]
    fn scalars_that_should_be_text() {
        assert_eq!(
            words("invalid type: boolean `true`, expected a string", "yes"),
            ("expected text, found the truth value true".into(), "put it in quotes: \"yes\"".into())
        );
        assert_eq!(words("invalid type: integer `511`, expected a string", "0777").1, "put it in quotes: \"0777\"");
        assert_eq!(words("invalid type: map, expected a string", "{}").1, "");
    }

    #[test]
    fn text_that_should_be_a_number() {
        assert_eq!(
            words("invalid type: string \"4\", expected i32", "\"4\""),
            ("expected a whole number, found the text \"4\"".into(), "write it without quotes: 4".into())
        );
        assert_eq!(words("invalid type: string \"x\", expected i32", "x").1, "");
    }

    #[test]
    fn a_number_that_is_too_large_is_told_what_would_do() {
        assert_eq!(
            words("invalid value: integer `70000`, expected u16", "70000").0,
            "expected a whole number from 0 to 65535, found the number 70000"
        );
        assert_eq!(
            words("invalid type: floating point `1.5`, expected u32", "1.5").0,
            "expected a whole number, found the number 1.5"
        );
    }

    #[test]
    fn types_are_described() {
        assert_eq!(
            words("invalid type: null, expected struct ResourceGroup", "").0,
            "expected a mapping, found nothing"
        );
        assert_eq!(words("invalid type: sequence, expected PodSpec", "").0, "expected a mapping, found a list");
        assert_eq!(words("something else", "x").0, "something else");
    }
}
