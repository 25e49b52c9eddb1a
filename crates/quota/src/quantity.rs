//! Exact decimal quantities as Kubernetes writes them.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

const NANOS_PER_UNIT: i128 = 1_000_000_000;
const NANOS_PER_MILLI: i128 = 1_000_000;
/// Binary quantities are capped at this many units, as Kubernetes does.
const BINARY_CAP: u128 = (i64::MAX as u128) * 1_000_000_000;

/// The family of suffixes in which a quantity is written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Format {
    /// `n`, `u`, `m`, none, `k`, `M`, `G`, `T`, `P`, `E`: powers of 1000.
    #[default]
    DecimalSi,
    /// `Ki`, `Mi`, `Gi`, `Ti`, `Pi`, `Ei`: powers of 1024.
    BinarySi,
    /// `e3`, `e-6`: powers of 1000 as exponents of ten.
    DecimalExponent,
}

/// An exact quantity such as `500m`, `16Gi` or `1e3`, kept in billionths together with the family of its suffix.
///
/// Quantities have at most nine digits after the point; finer ones are rounded up (away from zero). Two quantities are
/// equal if their values are: `1024Mi` is `1Gi`, and both print as `1Gi`, the canonical form, which has no fraction and the
/// largest suffix of the family that allows it.
///
/// Arithmetic saturates at about 1.7e29 units, twenty orders of magnitude beyond what a request can hold.
///
/// ```
/// use slicegate_quota::Quantity;
///
/// let q: Quantity = "1.5Gi".parse()?;
/// assert_eq!(q.value(), 1_610_612_736);
/// assert_eq!(q.to_string(), "1536Mi");
/// assert_eq!("0.5".parse::<Quantity>()?.to_string(), "500m");
/// # Ok::<(), slicegate_quota::ParseQuantityError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// What is wrong with a text that is not a quantity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum QuantityFault {
    /// There is no text.
    Empty,
    /// There is no digit before the suffix.
    NoDigits,
    /// What follows the number is not a suffix.
    UnknownSuffix,
    /// The suffix begins like an exponent but has no whole number after it.
    BadExponent,
    /// There is a blank before, within or after.
    Blank,
}

impl fmt::Display for QuantityFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "it is empty",
            Self::NoDigits => "it has no digits",
            Self::UnknownSuffix => "its suffix is none of n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei",
            Self::BadExponent => "its exponent is not a whole number",
            Self::Blank => "it contains a blank",
        })
    }
}

/// Why a text is not a quantity.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text:?} is not a quantity: {fault}; write a number with an optional suffix, such as 500m, 4, 16Gi or 1e3")]
pub struct ParseQuantityError {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub fault: QuantityFault,
}

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self::from_nanos(0);

    /// A whole number.
    pub const fn from_units(units: i64) -> Self {
        Self::from_nanos((units as i128).saturating_mul(NANOS_PER_UNIT))
    }

    /// A number of thousandths.
    pub const fn from_millis(millis: i64) -> Self {
        Self::from_nanos((millis as i128).saturating_mul(NANOS_PER_MILLI))
    }

    /// A number of billionths.
    pub const fn from_nanos(nanos: i128) -> Self {
        Self { nanos, format: Format::DecimalSi }
    }

    /// The number of billionths.
    pub const fn nanos(self) -> i128 {
        self.nanos
    }

    /// The family of suffixes in which it is printed.
    pub const fn format(self) -> Format {
        self.format
    }

    /// The same value, printed with suffixes of another family.
    #[must_use]
    pub const fn with_format(self, format: Format) -> Self {
        Self { format, ..self }
    }

    /// Whether it is nothing.
    pub const fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whole units, rounded away from zero and clamped to the range of `i64`.
    pub fn value(self) -> i64 {
        clamp_to_i64(div_away_from_zero(self.nanos, NANOS_PER_UNIT))
    }

    /// Thousandths, rounded away from zero and clamped to the range of `i64`.
    pub fn milli_value(self) -> i64 {
        clamp_to_i64(div_away_from_zero(self.nanos, NANOS_PER_MILLI))
    }

    /// The nearest floating-point number of units. Only for rules that are defined on floats, and for display.
    pub fn to_f64(self) -> f64 {
        // The standard parser rounds a decimal text to the nearest double, which a division of two rounded doubles does not.
        let magnitude = self.nanos.unsigned_abs();
        let unit = NANOS_PER_UNIT.unsigned_abs();
        let text = format!("{}.{:09}", magnitude / unit, magnitude % unit);
        let value = text.parse::<f64>().unwrap_or(f64::INFINITY);
        if self.nanos < 0 { -value } else { value }
    }

    /// Sum. The result is written like this quantity, or like the other if this is nothing.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        let format = if self.nanos == 0 { other.format } else { self.format };
        Self { nanos: self.nanos.saturating_add(other.nanos), format }
    }

    /// Difference, written as [`Quantity::plus`] does.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        let format = if self.nanos == 0 { other.format } else { self.format };
        Self { nanos: self.nanos.saturating_sub(other.nanos), format }
    }

    /// So many times as much.
    #[must_use]
    pub const fn times(self, factor: i64) -> Self {
        Self { nanos: self.nanos.saturating_mul(factor as i128), ..self }
    }

    /// Product of two quantities, rounded away from zero to billionths. Chains of products that must not round in between use
    /// [`Decimal`](crate::Decimal).
    #[must_use]
    pub fn product(self, other: Self) -> Self {
        crate::Decimal::from(self).times(crate::Decimal::from(other)).to_quantity().with_format(self.format)
    }

    /// Times a floating-point factor, rounded towards zero to billionths. The factor counts as its shortest decimal form, so that
    /// 0.1 is a tenth. Not a number counts as zero.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        let magnitude = crate::decimal::scale_down(self.nanos.unsigned_abs(), factor.abs());
        let magnitude = i128::try_from(magnitude).unwrap_or(i128::MAX);
        let negative = (self.nanos < 0) != (factor < 0.0);
        Self { nanos: if negative { -magnitude } else { magnitude }, ..self }
    }

    /// The larger of this and nothing.
    #[must_use]
    pub const fn or_zero(self) -> Self {
        if self.nanos < 0 { Self { nanos: 0, ..self } } else { self }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

/// Quotient rounded away from zero; the divisor is positive.
pub(crate) fn div_away_from_zero(n: i128, divisor: i128) -> i128 {
    let quotient = n / divisor;
    if n % divisor == 0 { quotient } else { quotient.saturating_add(n.signum()) }
}

fn clamp_to_i64(n: i128) -> i64 {
    i64::try_from(n).unwrap_or(if n < 0 { i64::MIN } else { i64::MAX })
}

/// How a suffix scales the number before it.
enum Scale {
    /// Times this power of ten.
    Ten(i64, Format),
    /// Times this power of two.
    Two(u32),
}

fn scale_of(suffix: &str) -> Result<Scale, QuantityFault> {
    let si = |exponent| Ok(Scale::Ten(exponent, Format::DecimalSi));
    match suffix {
        "n" => si(-9),
        "u" => si(-6),
        "m" => si(-3),
        "" => si(0),
        "k" => si(3),
        "M" => si(6),
        "G" => si(9),
        "T" => si(12),
        "P" => si(15),
        "E" => si(18),
        "Ki" => Ok(Scale::Two(10)),
        "Mi" => Ok(Scale::Two(20)),
        "Gi" => Ok(Scale::Two(30)),
        "Ti" => Ok(Scale::Two(40)),
        "Pi" => Ok(Scale::Two(50)),
        "Ei" => Ok(Scale::Two(60)),
        _ => {
            if suffix.contains(char::is_whitespace) {
                return Err(QuantityFault::Blank);
            }
            let Some(exponent) = suffix.strip_prefix(['e', 'E']) else { return Err(QuantityFault::UnknownSuffix) };
            exponent
                .parse::<i64>()
                .map(|e| Scale::Ten(e, Format::DecimalExponent))
                .map_err(|_| QuantityFault::BadExponent)
        }
    }
}

/// `whole.fraction` times a power of ten, in billionths, rounded up; digits only.
fn scale_by_ten(whole: &[u8], fraction: &[u8], exponent: i64) -> u128 {
    let significant = || whole.iter().chain(fraction).skip_while(|&&d| d == b'0');
    let length = |digits: usize| i64::try_from(digits).unwrap_or(i64::MAX);
    let leading_zeros = whole.len().saturating_add(fraction.len()).saturating_sub(significant().count());
    // How many significant digits lie before the point once the number is in billionths.
    let before_point =
        length(whole.len()).saturating_sub(length(leading_zeros)).saturating_add(exponent).saturating_add(9);
    let mut nanos = 0_u128;
    let mut inexact = false;
    let mut taken = 0_i64;
    for digit in significant() {
        if taken < before_point {
            nanos = nanos.saturating_mul(10).saturating_add(u128::from(digit.saturating_sub(b'0')));
            taken = taken.saturating_add(1);
        } else {
            inexact |= *digit != b'0';
        }
    }
    // Zeros that the exponent appends; the value is out of range long before the loop is.
    while nanos > 0 && nanos < u128::MAX && taken < before_point {
        nanos = nanos.saturating_mul(10);
        taken = taken.saturating_add(1);
    }
    nanos.saturating_add(u128::from(inexact))
}

/// `whole.fraction` times a power of two of at most 2^60, in billionths, rounded up; digits only.
fn scale_by_two(whole: &[u8], fraction: &[u8], exponent: u32) -> u128 {
    let factor = (1_u128 << exponent) * NANOS_PER_UNIT.unsigned_abs();
    let digit = |d: &u8| u128::from(d.saturating_sub(b'0'));
    let units = whole.iter().fold(0_u128, |n, d| n.saturating_mul(10).saturating_add(digit(d)));
    // From the last digit to the first: (rest + digit * factor) / 10, remembering whether anything was cut off.
    let mut rest = 0_u128;
    let mut inexact = false;
    for d in fraction.iter().rev() {
        let sum = rest + digit(d) * factor;
        inexact |= !sum.is_multiple_of(10);
        rest = sum / 10;
    }
    units.saturating_mul(factor).saturating_add(rest).saturating_add(u128::from(inexact))
}

fn parse(text: &str) -> Result<Quantity, QuantityFault> {
    if text.is_empty() {
        return Err(QuantityFault::Empty);
    }
    if text.starts_with(char::is_whitespace) {
        return Err(QuantityFault::Blank);
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits_end = |s: &str| s.find(|c: char| !c.is_ascii_digit()).unwrap_or(s.len());
    let (whole, rest) = unsigned.split_at(digits_end(unsigned));
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits_end(rest)),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err(QuantityFault::NoDigits);
    }
    let (magnitude, format) = match scale_of(suffix)? {
        Scale::Ten(exponent, format) => (scale_by_ten(whole.as_bytes(), fraction.as_bytes(), exponent), format),
        Scale::Two(exponent) => {
            let magnitude = scale_by_two(whole.as_bytes(), fraction.as_bytes(), exponent).min(BINARY_CAP);
            // Less than one byte has no binary form.
            let below_one = magnitude > 0 && magnitude < NANOS_PER_UNIT.unsigned_abs();
            (magnitude, if below_one { Format::DecimalSi } else { Format::BinarySi })
        }
    };
    let magnitude = i128::try_from(magnitude).unwrap_or(i128::MAX);
    Ok(Quantity { nanos: if text.starts_with('-') { -magnitude } else { magnitude }, format })
}

impl FromStr for Quantity {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, ParseQuantityError> {
        parse(text).map_err(|fault| ParseQuantityError { text: text.to_owned(), fault })
    }
}

impl fmt::Display for Quantity {
    /// The canonical form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        let units = self.nanos / NANOS_PER_UNIT;
        let whole = self.nanos % NANOS_PER_UNIT == 0;
        if self.format == Format::BinarySi && whole && units.unsigned_abs() >= 1024 {
            let (number, power) = strip(units, 1024, BINARY.len() - 1);
            return f.pad(&format!("{number}{}", BINARY.get(power).copied().unwrap_or_default()));
        }
        if self.nanos == 0 {
            return f.pad("0");
        }
        if self.format == Format::DecimalExponent {
            // An exponent may be any multiple of three.
            let (number, power) = strip(self.nanos, 1000, usize::MAX);
            if power == 3 {
                return f.pad(&number.to_string());
            }
            let exponent = i64::try_from(power).unwrap_or(0) * 3 - 9;
            return f.pad(&format!("{number}e{exponent}"));
        }
        let (number, power) = strip(self.nanos, 1000, DECIMAL.len() - 1);
        f.pad(&format!("{number}{}", DECIMAL.get(power).copied().unwrap_or_default()))
    }
}

/// Divides by `base` as long as nothing remains, at most `limit` times; how often. The number is not zero.
fn strip(mut number: i128, base: i128, limit: usize) -> (i128, usize) {
    let mut times = 0;
    while times < limit && number != 0 && number % base == 0 {
        number /= base;
        times += 1;
    }
    (number, times)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn q(text: &str) -> Quantity {
        text.parse().unwrap()
    }

    #[test]
    fn every_suffix_scales() {
        for (text, nanos) in [
            ("1n", 1),
            ("1u", 1_000),
            ("1m", 1_000_000),
            ("1", 1_000_000_000),
            ("1k", 1_000_000_000_000),
            ("1M", 1_000_000_000_000_000),
            ("1G", 1_000_000_000_000_000_000),
            ("1T", 1_000_000_000_000_000_000_000),
            ("1P", 1_000_000_000_000_000_000_000_000),
            ("1E", 1_000_000_000_000_000_000_000_000_000),
            ("1Ki", 1_024_000_000_000),
            ("1Mi", 1_048_576_000_000_000),
            ("1Gi", 1_073_741_824_000_000_000),
            ("1Ti", 1_099_511_627_776_000_000_000),
            ("1Pi", 1_125_899_906_842_624_000_000_000),
            ("1Ei", 1_152_921_504_606_846_976_000_000_000),
            ("1e3", 1_000_000_000_000),
            ("1E3", 1_000_000_000_000),
            ("1e+3", 1_000_000_000_000),
            ("1e-3", 1_000_000),
            ("12.5e1", 125_000_000_000),
            ("+1", 1_000_000_000),
            ("-1.5k", -1_500_000_000_000),
            (".5", 500_000_000),
            ("5.", 5_000_000_000),
            ("1.G", 1_000_000_000_000_000_000),
            ("007", 7_000_000_000),
            ("0.5Ki", 512_000_000_000),
            ("0", 0),
            ("-0", 0),
            ("0e99999999999", 0),
        ] {
            assert_eq!(q(text).nanos(), nanos, "{text}");
        }
    }

    #[test]
    fn what_is_finer_than_a_billionth_is_rounded_away_from_zero() {
        for (text, nanos) in [
            ("0.0000000001", 1),
            ("-0.0000000001", -1),
            ("1.0000000001", 1_000_000_001),
            ("0.1n", 1),
            ("1.1n", 2),
            ("1e-100", 1),
            ("-1e-99999999", -1),
            ("0.00000000000000000001Ki", 1),
            ("1.00000000000000000000000000000000000001Ki", 1_024_000_000_001),
            ("1.5Ki", 1_536_000_000_000),
        ] {
            assert_eq!(q(text).nanos(), nanos, "{text}");
        }
    }

    #[test]
    fn what_is_out_of_range_is_the_largest_there_is() {
        for text in ["1e30", "1e9223372036854775807", "999999999999999999999999999999999999999999999"] {
            assert_eq!(q(text).nanos(), i128::MAX, "{text}");
            assert_eq!(q(&format!("-{text}")).nanos(), -i128::MAX, "{text}");
            assert_eq!(q(text).value(), i64::MAX);
            assert_eq!(q(&format!("-{text}")).milli_value(), i64::MIN);
        }
        // A binary quantity is never more than 2^63-1 units.
        for text in ["8Ei", "100Ei", "99999999999999999999999999999999999999999Ei"] {
            assert_eq!(q(text), Quantity::from_units(i64::MAX), "{text}");
        }
        assert_eq!(q("7Ei").value(), 7 << 60);
    }

    #[test]
    fn the_canonical_form_keeps_the_family() {
        for (text, want) in [
            ("1024Mi", "1Gi"),
            ("4608Mi", "4608Mi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("1023Ki", "1023Ki"),
            ("1.1Ki", "1126400m"),
            ("0.0001Ki", "102400u"),
            ("1e3", "1e3"),
            ("1500e0", "1500"),
            ("1e-3", "1e-3"),
            ("15e2", "1500"),
            ("12e4", "120e3"),
            ("1E24", "1e24"),
            ("1000", "1k"),
            ("1500m", "1500m"),
            ("0.5", "500m"),
            ("1000m", "1"),
            ("100000", "100k"),
            ("1000E", "1000E"),
            ("-2000", "-2k"),
            ("-2048Ki", "-2Mi"),
            ("0Gi", "0"),
            ("1n", "1n"),
            ("1.5u", "1500n"),
        ] {
            assert_eq!(q(text).to_string(), want, "{text}");
        }
    }

    #[test]
    fn a_sum_is_written_like_its_first_part_that_is_not_zero() {
        assert_eq!(q("1Gi").plus(q("1G")).format(), Format::BinarySi);
        assert_eq!(q("0").plus(q("1Ki")).to_string(), "1Ki");
        assert_eq!(q("1Ki").minus(q("24")).to_string(), "1k");
        assert_eq!(q("0").minus(q("1Ki")).to_string(), "-1Ki");
        assert_eq!(q("2").times(-3), q("-6"));
        assert_eq!(q("1.5").product(q("1.5")), q("2.25"));
        assert_eq!(q("-3").or_zero(), Quantity::ZERO);
    }

    #[test]
    fn what_is_wrong_is_said() {
        use QuantityFault::{BadExponent, Blank, Empty, NoDigits, UnknownSuffix};
        for (text, fault) in [
            ("", Empty),
            ("+", NoDigits),
            ("-", NoDigits),
            (".", NoDigits),
            ("Gi", NoDigits),
            ("-.k", NoDigits),
            ("--1", NoDigits),
            (" 1", Blank),
            ("1 ", Blank),
            ("1 Gi", Blank),
            ("1i", UnknownSuffix),
            ("1ki", UnknownSuffix),
            ("1mi", UnknownSuffix),
            ("1K", UnknownSuffix),
            ("1.1.1", UnknownSuffix),
            ("1+1", UnknownSuffix),
            ("1Gib", UnknownSuffix),
            ("1١", UnknownSuffix),
            ("1e", BadExponent),
            ("1e1.5", BadExponent),
            ("1eM", BadExponent),
            ("1Eii", BadExponent),
        ] {
            let error = text.parse::<Quantity>().unwrap_err();
            assert_eq!((error.fault, &*error.text), (fault, text), "{text:?}");
            assert!(error.to_string().contains(&format!("{text:?}")));
        }
    }

    #[test]
    fn scaling_rounds_down_and_takes_factors_as_they_are_written() {
        assert_eq!(q("1").scaled(0.1), q("100m"));
        assert_eq!(q("1n").scaled(0.9), q("0"));
        assert_eq!(q("-1").scaled(0.333), q("-333m"));
        assert_eq!(q("3").scaled(-2.5), q("-7500m"));
        assert_eq!(q("3").scaled(1e6), q("3M"));
        assert_eq!(q("3").scaled(f64::NAN), q("0"));
        assert_eq!(q("3").scaled(f64::INFINITY).nanos(), i128::MAX);
        assert_eq!(q("3").scaled(1e300).nanos(), i128::MAX);
        assert_eq!(q("1E").scaled(1e-300), q("0"));
        assert_eq!(q("70368744177664").scaled(0.000_343_763_905_873_872_84), q("24190234349953124739n"));
    }

    #[test]
    fn floats_are_the_nearest() {
        for (text, want) in
            [("0.1", 0.1), ("-2.5", -2.5), ("5m", 0.005), ("8Pi", 9_007_199_254_740_992.0), ("1E", 1e18)]
        {
            assert_eq!(q(text).to_f64().to_bits(), f64::to_bits(want), "{text}");
        }
    }

    fn any_format() -> impl Strategy<Value = Format> {
        proptest::sample::select(vec![Format::DecimalSi, Format::BinarySi, Format::DecimalExponent])
    }

    fn any_quantity() -> impl Strategy<Value = Quantity> {
        let nanos = prop_oneof![
            (-10_000..10_000_i128).prop_map(|n| n * 1_000_000),
            any::<i64>().prop_map(|n| i128::from(n) * 1_000_000_000),
            (0..60_u32, 1..2000_i128).prop_map(|(shift, n)| (n << shift) * 1_000_000_000),
            (0..30_u32, 1..2000_i128).prop_map(|(zeros, n)| n * 10_i128.pow(zeros)),
            any::<i128>(),
        ];
        (nanos, any_format()).prop_map(|(nanos, format)| Quantity::from_nanos(nanos).with_format(format))
    }

    const SUFFIXES: [(&str, u32, u32); 16] = [
        ("n", 0, 0),
        ("u", 3, 0),
        ("m", 6, 0),
        ("", 9, 0),
        ("k", 12, 0),
        ("M", 15, 0),
        ("G", 18, 0),
        ("T", 21, 0),
        ("e0", 9, 0),
        ("E2", 11, 0),
        ("e-4", 5, 0),
        ("Ki", 9, 10),
        ("Mi", 9, 20),
        ("Gi", 9, 30),
        ("Ti", 9, 40),
        ("Pi", 9, 50),
    ];

    proptest! {
        #[test]
        fn printing_and_parsing_is_the_identity(quantity in any_quantity()) {
            // Binary text cannot hold more than 2^63-1 units.
            prop_assume!(quantity.format() != Format::BinarySi || quantity.nanos().unsigned_abs() <= BINARY_CAP);
            let text = quantity.to_string();
            let again: Quantity = text.parse().unwrap();
            prop_assert_eq!(again, quantity, "{}", text);
            // Bytes that are no multiple of 1024 have no suffix, so that their family is lost with the text.
            if quantity.format() != Format::BinarySi || text.ends_with('i') {
                prop_assert_eq!(again.to_string(), text, "the canonical form is a fixed point");
            }
        }

        #[test]
        fn no_text_panics(text in "[-+0-9.eEinumkKMGTP ]{0,12}") {
            if let Ok(quantity) = text.parse::<Quantity>() {
                let canonical = quantity.to_string();
                prop_assert_eq!(canonical.parse::<Quantity>().unwrap(), quantity, "{}", canonical);
            }
        }

        #[test]
        fn the_value_is_the_exact_rational_rounded_up(
            whole in 0..1_000_000_u64,
            fraction in "[0-9]{0,8}",
            suffix in 0..SUFFIXES.len(),
        ) {
            let (suffix, tens, twos) = SUFFIXES[suffix];
            let text = format!("{whole}.{fraction}{suffix}");
            // whole.fraction * 10^tens * 2^twos billionths, over 10^len.
            let digits: u128 = format!("{whole}{fraction}").parse().unwrap();
            let scale = 10_u128.pow(u32::try_from(fraction.len()).unwrap());
            let want = ((digits << twos) * 10_u128.pow(tens)).div_ceil(scale);
            let got = q(&text).nanos().unsigned_abs();
            prop_assert_eq!(got, want.min(if twos > 0 { BINARY_CAP } else { u128::MAX }), "{}", text);
        }

        #[test]
        fn integers_are_rounded_away_from_zero(quantity in any_quantity()) {
            let (nanos, unit) = (quantity.nanos(), NANOS_PER_UNIT);
            let value = i128::from(quantity.value());
            if value > i128::from(i64::MIN) && value < i128::from(i64::MAX) {
                prop_assert!((value * unit).abs() >= nanos.abs());
                prop_assert!((value * unit).abs() - nanos.abs() < unit);
                prop_assert!(value == 0 || value.signum() == nanos.signum());
            }
            prop_assert_eq!(quantity.milli_value(), Quantity::from_nanos(nanos.saturating_mul(1000)).value());
        }

        #[test]
        fn rounding_keeps_the_order(a in any_quantity(), b in any_quantity()) {
            if a <= b {
                prop_assert!(a.value() <= b.value());
                prop_assert!(a.milli_value() <= b.milli_value());
                prop_assert!(a.to_f64() <= b.to_f64());
            }
            prop_assert_eq!(a.minus(b).is_zero(), a == b || a.minus(b).nanos() == 0);
        }

        #[test]
        fn scaling_by_a_short_decimal_is_exact_division(n in 0..1_000_000_000_000_u64, thousandths in 0..10_000_u32) {
            let factor = f64::from(thousandths) / 1000.0;
            let got = Quantity::from_nanos(n.into()).scaled(factor).nanos();
            prop_assert_eq!(got, i128::from(n) * i128::from(thousandths) / 1000);
        }
    }
}
