//! Durations as Go writes them.

/// Reads a duration as Go writes them, such as `5m0s`, in microseconds.
///
/// # Errors
/// If the text is none, or negative.
///
/// ```
/// assert_eq!(slicegate_controller::go_duration("1h0m1.5s").unwrap(), 3_601_500_000);
/// assert!(slicegate_controller::go_duration("5 minutes").is_err());
/// ```
pub fn go_duration(text: &str) -> Result<i64, String> {
    let fail = || format!("{text:?} is no duration; write numbers with units, such as 5m or 1h30m");
    if text == "0" {
        return Ok(0);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut total: i64 = 0;
    if rest.is_empty() {
        return Err(fail());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(fail)?;
        let (number, tail) = rest.split_at(digits);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let nanos: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return Err(fail()),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || number.len() > 30 {
            return Err(fail());
        }
        let parse =
            |t: &str| -> Result<i128, String> { if t.is_empty() { Ok(0) } else { t.parse().map_err(|_| fail()) } };
        let fraction_digits = u32::try_from(fraction.len()).map_err(|_| fail())?;
        let scale = 10_i128.checked_pow(fraction_digits).ok_or_else(fail)?;
        let part = parse(whole)?
            .checked_mul(nanos)
            .and_then(|n| n.checked_add(parse(fraction).ok()?.checked_mul(nanos)? / scale))
            .ok_or_else(fail)?;
        total = i64::try_from(part / 1_000).ok().and_then(|micros| total.checked_add(micros)).ok_or_else(fail)?;
        rest = tail;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        for (text, micros) in [("0", 0), ("5m0s", 300_000_000), ("1.5h", 5_400_000_000), ("250ms", 250_000), ("1us", 1)]
        {
            assert_eq!(go_duration(text), Ok(micros), "{text}");
        }
        for text in ["", "5", "m", "-5m", "5d", "1.2.3s", "999999999999999999999999h"] {
            assert!(go_duration(text).is_err(), "{text}");
        }
    }
}
