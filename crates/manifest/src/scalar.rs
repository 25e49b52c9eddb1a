//! What a plain scalar means, by the rules of the YAML 1.1 reader that kubectl uses.

use serde_json::Number;

use crate::tree::Data;

/// Why a scalar has no value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unsupported {
    /// Infinity or not a number: JSON has no such thing.
    NotFinite,
    /// The text does not fit the tag.
    Mismatch,
}

/// The meaning of a plain scalar.
pub(crate) fn resolve(text: &str) -> Result<Data, Unsupported> {
    let Some(first) = text.bytes().next() else { return Ok(Data::Null) };
    let data = match first {
        b'+' | b'-' | b'0'..=b'9' | b'.' => return number(text),
        _ => word(text),
    };
    Ok(data.unwrap_or_else(|| Data::Text(text.to_owned())))
}

fn word(text: &str) -> Option<Data> {
    Some(match text {
        "~" | "null" | "Null" | "NULL" => Data::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Data::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Data::Bool(false),
        _ => return None,
    })
}

fn number(text: &str) -> Result<Data, Unsupported> {
    if matches!(
        text,
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" | "-.inf" | "-.Inf" | "-.INF" | ".nan" | ".NaN" | ".NAN"
    ) {
        return Err(Unsupported::NotFinite);
    }
    let plain: String = text.chars().filter(|c| *c != '_').collect();
    if let Some(number) = integer(&plain) {
        return Ok(Data::Number(number));
    }
    if is_float(&plain) {
        // A float beyond the range reads as infinity.
        let number = plain.parse().ok().and_then(Number::from_f64).ok_or(Unsupported::NotFinite)?;
        return Ok(Data::Number(number));
    }
    Ok(Data::Text(text.to_owned()))
}

/// Decimal, `0x`, `0b`, `0o` or, with a leading zero, octal; with or without a sign.
fn integer(text: &str) -> Option<Number> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.get(..2).map(str::to_ascii_lowercase);
    let (radix, digits) = match lower.as_deref() {
        Some("0x") => (16, &digits[2..]),
        Some("0b") => (2, &digits[2..]),
        Some("0o") => (8, &digits[2..]),
        Some(_) if digits.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let value = i128::from_str_radix(digits, radix).ok()?;
    let value = if negative { -value } else { value };
    i64::try_from(value).map(Number::from).or_else(|_| u64::try_from(value).map(Number::from)).ok()
}

/// Digits with at most one point, then perhaps an exponent.
fn is_float(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent_fits = exponent.is_none_or(|e| {
        let e = e.strip_prefix(['+', '-']).unwrap_or(e);
        !e.is_empty() && digits(e)
    });
    digits(whole) && digits(fraction) && !(whole.is_empty() && fraction.is_empty()) && exponent_fits
}

/// The meaning of a scalar with a tag of YAML's own, such as `str` for `!!str`; `None` for other tags.
pub(crate) fn resolve_tagged(tag: &str, text: &str) -> Option<Result<Data, Unsupported>> {
    let fits =
        |fit: fn(&Data) -> bool| resolve(text).and_then(|d| if fit(&d) { Ok(d) } else { Err(Unsupported::Mismatch) });
    Some(match tag {
        "str" | "timestamp" => Ok(Data::Text(text.to_owned())),
        "null" => Ok(Data::Null),
        "bool" => fits(|d| matches!(d, Data::Bool(_))),
        "int" => fits(|d| matches!(d, Data::Number(n) if !n.is_f64())),
        "float" => fits(|d| matches!(d, Data::Number(_))),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> String {
        match resolve(text) {
            Ok(Data::Null) => "null".to_owned(),
            Ok(Data::Bool(b)) => b.to_string(),
            Ok(Data::Number(n)) => n.to_string(),
            Ok(Data::Text(t)) => format!("{t:?}"),
            Ok(_) => unreachable!(),
            Err(e) => format!("{e:?}"),
        }
    }

    #[test]
    fn plain_scalars_mean_what_they_mean_to_kubectl() {
        for (text, expected) in [
            ("", "null"),
            ("~", "null"),
            ("Null", "null"),
            ("nUll", "\"nUll\""),
            ("yes", "true"),
            ("Off", "false"),
            ("y", "true"),
            ("0", "0"),
            ("-0", "0"),
            ("007", "7"),
            ("0777", "511"),
            ("-0777", "-511"),
            ("08", "8.0"),
            ("0o777", "511"),
            ("0x1F", "31"),
            ("0b11", "3"),
            ("+12", "12"),
            ("1_000", "1000"),
            ("18446744073709551615", "18446744073709551615"),
            ("18446744073709551616", "1.8446744073709552e+19"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("1.50", "1.5"),
            ("1.", "1.0"),
            (".5", "0.5"),
            ("1e3", "1000.0"),
            ("1E+3", "1000.0"),
            ("1e", "\"1e\""),
            (".", "\".\""),
            ("-", "\"-\""),
            ("+", "\"+\""),
            ("0x", "\"0x\""),
            ("1Gi", "\"1Gi\""),
            ("500m", "\"500m\""),
            ("4x4", "\"4x4\""),
            ("1.2.3", "\"1.2.3\""),
            ("2026-01-01", "\"2026-01-01\""),
            ("2026-01-01T00:00:00Z", "\"2026-01-01T00:00:00Z\""),
            ("1:30", "\"1:30\""),
            (".inf", "NotFinite"),
            (".nan", "NotFinite"),
            ("1e999", "NotFinite"),
            ("0é", "\"0é\""),
            ("é", "\"é\""),
        ] {
            assert_eq!(json(text), expected, "{text}");
        }
    }

    #[test]
    fn tags_choose_the_type() {
        assert!(matches!(resolve_tagged("str", "1"), Some(Ok(Data::Text(t))) if t == "1"));
        assert!(matches!(resolve_tagged("int", "1"), Some(Ok(Data::Number(_)))));
        assert!(matches!(resolve_tagged("int", "x"), Some(Err(Unsupported::Mismatch))));
        assert!(resolve_tagged("binary", "x").is_none());
    }
}
