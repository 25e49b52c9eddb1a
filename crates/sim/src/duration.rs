//! Lengths of time as people write and read them.

use std::fmt;

/// Why a text is not a length of time.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text:?} is not a length of time up to 1000 years; write numbers with units, such as 90s, 10m, 1h30m or 7d")]
pub struct ParseDurationError {
    /// The text.
    pub text: String,
}

/// 1000 years of 365 days, in microseconds.
const LONGEST: i64 = 365_000 * 86_400_000_000;

/// Reads a length of time such as `90s`, `1h30m`, `1.5h`, `500ms` or `7d`, in microseconds. A bare `0` is no time.
///
/// # Errors
/// If the text is anything else, negative, or longer than 1000 years, so that no run leaves the calendar.
///
/// ```
/// assert_eq!(slicegate_sim::parse_duration("1h30m").unwrap(), 5_400_000_000);
/// assert!(slicegate_sim::parse_duration("soon").is_err());
/// ```
pub fn parse_duration(text: &str) -> Result<i64, ParseDurationError> {
    let fail = || ParseDurationError { text: text.chars().take(64).collect() };
    let mut rest = text.trim();
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(fail());
    }
    let mut total: i64 = 0;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(fail)?;
        let (digits, tail) = rest.split_at(number);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let micros: i64 = match unit {
            "us" | "µs" => 1,
            "ms" => 1_000,
            "s" => 1_000_000,
            "m" => 60_000_000,
            "h" => 3_600_000_000,
            "d" => 86_400_000_000,
            "w" => 604_800_000_000,
            _ => return Err(fail()),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(fail());
        }
        let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| fail())? };
        let mut value = whole.checked_mul(micros).ok_or_else(fail)?;
        let mut scale = micros;
        for digit in fraction.bytes() {
            scale /= 10;
            value = value.checked_add(i64::from(digit - b'0').saturating_mul(scale)).ok_or_else(fail)?;
        }
        total = total.checked_add(value).ok_or_else(fail)?;
        rest = tail;
    }
    if total > LONGEST {
        return Err(fail());
    }
    Ok(total)
}

/// Microseconds since the start of a simulation, shown as `00:02:05` (with days in front, `1d 00:02:05`, from the first on).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Elapsed(pub i64);

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.max(0) / 1_000_000;
        let (days, rest) = (seconds / 86_400, seconds % 86_400);
        if days > 0 {
            write!(f, "{days}d ")?;
        }
        write!(f, "{:02}:{:02}:{:02}", rest / 3_600, rest / 60 % 60, rest % 60)
    }
}

/// A length of time in microseconds in few words: `60 s`, `2 min`, `1 h 30 min`, `7 d`.
pub(crate) fn words(micros: i64) -> String {
    let seconds = micros.max(0) / 1_000_000;
    if seconds < 120 && seconds % 60 != 0 || seconds == 60 || seconds == 0 {
        return format!("{seconds} s");
    }
    let parts = [(seconds / 86_400, "d"), (seconds / 3_600 % 24, "h"), (seconds / 60 % 60, "min"), (seconds % 60, "s")];
    let words: Vec<String> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, unit)| format!("{n} {unit}")).collect();
    words.join(" ")
}

/// The age of an object as kubectl prints it, of a number of seconds.
///
/// ```
/// use slicegate_sim::kubectl_age;
/// assert_eq!(kubectl_age(3), "3s");
/// assert_eq!(kubectl_age(151), "2m31s");
/// assert_eq!(kubectl_age(300), "5m");
/// assert_eq!(kubectl_age(7_380), "123m");
/// assert_eq!(kubectl_age(11_000), "3h3m");
/// ```
pub fn kubectl_age(seconds: i64) -> String {
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    let seconds = seconds.max(0);
    let two = |a: i64, a_unit: &str, b: i64, b_unit: &str| {
        if b == 0 { format!("{a}{a_unit}") } else { format!("{a}{a_unit}{b}{b_unit}") }
    };
    let (minutes, hours) = (seconds / 60, seconds / 3_600);
    match seconds {
        ..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 24 * 8 => two(hours / 24, "d", hours % 24, "h"),
        _ if hours < 24 * 365 * 2 => format!("{}d", hours / 24),
        _ if hours < 24 * 365 * 8 => two(hours / 24 / 365, "y", hours / 24 % 365, "d"),
        _ => format!("{}y", hours / 24 / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        for (text, seconds) in
            [("90s", 90), ("10m", 600), ("1h30m", 5_400), ("7d", 604_800), ("0", 0), ("1.5h", 5_400), ("0.5m", 30)]
        {
            assert_eq!(parse_duration(text), Ok(seconds * 1_000_000), "{text}");
        }
        assert_eq!(parse_duration("250ms"), Ok(250_000));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "5", "s", "-5s", "5x", "1.2.3s", "99999999999999999999d", "5 s", ".s", "1e3s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ages_are_those_of_kubectl() {
        for (seconds, text) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (599, "9m59s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (28_799, "7h59m"),
            (28_800, "8h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
            (252_288_000, "8y"),
        ] {
            assert_eq!(kubectl_age(seconds), text);
        }
    }

    #[test]
    fn elapsed_time_counts_days() {
        assert_eq!(Elapsed(125_000_000).to_string(), "00:02:05");
        assert_eq!(Elapsed(90_061_000_000).to_string(), "1d 01:01:01");
    }

    #[test]
    fn words_are_short() {
        assert_eq!(words(60_000_000), "60 s");
        assert_eq!(words(120_000_000), "2 min");
        assert_eq!(words(5_400_000_000), "1 h 30 min");
        assert_eq!(words(604_800_000_000), "7 d");
    }
}
