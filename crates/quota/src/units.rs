//! How resources are counted: cpu in thousandths, everything else in whole units.

use std::fmt;

use crate::{Amount, Format, Quantity};

/// The resource that is counted in thousandths.
pub const CPU: &str = "cpu";

/// Cores from which on a quota of cpu is unlimited.
const UNLIMITED_CORES: Quantity = Quantity::from_units(i64::MAX / 1000);

/// A request as an integer: thousandths for cpu, whole units for everything else, fractions rounded away from zero, clamped to
/// the range of `i64` instead of wrapping.
///
/// ```
/// use slicegate_quota::request_value;
///
/// assert_eq!(request_value("cpu", "0.5m".parse()?), 1);
/// assert_eq!(request_value("memory", "1Ki".parse()?), 1024);
/// # Ok::<(), slicegate_quota::ParseQuantityError>(())
/// ```
pub fn request_value(resource: &str, quantity: Quantity) -> i64 {
    if resource == CPU { quantity.milli_value() } else { quantity.value() }
}

/// The quantity of a request, in the suffixes that messages and statuses use: decimal for cpu and counted devices; binary for
/// bytes if they are a multiple of 1024, decimal otherwise.
///
/// ```
/// use slicegate_quota::request_quantity;
///
/// assert_eq!(request_quantity("cpu", 1500).to_string(), "1500m");
/// assert_eq!(request_quantity("memory", 1 << 30).to_string(), "1Gi");
/// assert_eq!(request_quantity("memory", 1_500_000).to_string(), "1500k");
/// assert_eq!(request_quantity("google.com/tpu", 1000).to_string(), "1k");
/// ```
pub fn request_quantity(resource: &str, value: i64) -> Quantity {
    if resource == CPU {
        Quantity::from_millis(value)
    } else if is_in_bytes(resource) {
        byte_quantity(value)
    } else {
        Quantity::from_units(value)
    }
}

/// A number of bytes in the suffixes that suit it: binary if it is a multiple of 1024, decimal otherwise.
pub fn byte_quantity(value: i64) -> Quantity {
    let format = if value % 1024 == 0 { Format::BinarySi } else { Format::DecimalSi };
    Quantity::from_units(value).with_format(format)
}

/// Whether the resource is counted in bytes: memory, ephemeral storage, huge pages.
pub fn is_in_bytes(resource: &str) -> bool {
    resource == "memory" || resource == "ephemeral-storage" || resource.starts_with("hugepages-")
}

/// Whether the name is that of an extended resource, a device such as `google.com/tpu`: a qualified name outside of
/// `kubernetes.io` and without the prefix `requests.`.
pub fn is_extended_resource(name: &str) -> bool {
    let Some((domain, device)) = name.split_once('/') else { return false };
    if name.contains("kubernetes.io/") || name.starts_with("requests.") {
        return false;
    }
    let is_label = |label: &str| {
        let alphanumeric = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let bytes = label.as_bytes();
        alphanumeric(bytes.first())
            && alphanumeric(bytes.last())
            && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
    };
    let is_device = |device: &str| {
        let bytes = device.as_bytes();
        bytes.len() <= 63
            && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
            && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
            && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
    };
    // In a quota it appears as `requests.<name>`, which must still be a domain.
    domain.len().saturating_add("requests.".len()) <= 253 && domain.split('.').all(is_label) && is_device(device)
}

impl Amount {
    /// The amount of a configured quota. What does not fit is unlimited: 9223372036854775 cores of cpu or more, or 2^63-1 of
    /// anything else.
    pub fn from_quantity(resource: &str, quantity: Quantity) -> Self {
        if resource == CPU {
            if quantity >= UNLIMITED_CORES { Self::UNLIMITED } else { Self::new(quantity.milli_value()) }
        } else {
            // The largest integer is the mark of an unlimited amount itself.
            Self::new(quantity.value())
        }
    }

    /// The text of an amount of a resource, as messages show it.
    ///
    /// ```
    /// use slicegate_quota::Amount;
    ///
    /// assert_eq!(Amount::new(1500).display("cpu").to_string(), "1500m");
    /// assert_eq!(Amount::UNLIMITED.display("cpu").to_string(), "<unlimited>");
    /// ```
    pub const fn display(self, resource: &str) -> AmountText<'_> {
        AmountText { amount: self, resource }
    }
}

/// An amount with its resource, to be printed. See [`Amount::display`].
#[derive(Clone, Copy, Debug)]
pub struct AmountText<'a> {
    amount: Amount,
    resource: &'a str,
}

impl fmt::Display for AmountText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.amount.is_unlimited() {
            self.amount.fmt(f)
        } else {
            request_quantity(self.resource, self.amount.value()).fmt(f)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(resource: &str, text: &str) -> Amount {
        Amount::from_quantity(resource, text.parse().unwrap())
    }

    #[test]
    fn a_quota_beyond_the_range_is_unlimited() {
        for (resource, text, unlimited) in [
            ("cpu", "9223372036854774999m", false),
            ("cpu", "9223372036854774", false),
            ("cpu", "9223372036854775", true),
            ("cpu", "1e300", true),
            ("memory", "9223372036854775806", false),
            ("memory", "9223372036854775807", true),
            ("memory", "8Ei", true),
            ("google.com/tpu", "1e300", true),
        ] {
            assert_eq!(amount(resource, text).is_unlimited(), unlimited, "{resource} {text}");
        }
        assert_eq!(amount("cpu", "-1e300"), Amount::MIN);
    }

    #[test]
    fn texts_suit_the_resource() {
        for (resource, value, text) in [
            ("cpu", 0, "0"),
            ("cpu", 1_000_000, "1k"),
            ("cpu", -500, "-500m"),
            ("memory", 512, "512"),
            ("memory", -2048, "-2Ki"),
            ("ephemeral-storage", 1 << 40, "1Ti"),
            ("hugepages-2Mi", 2 << 20, "2Mi"),
            ("example.com/memory", 1024, "1024"),
            ("pods", 1000, "1k"),
        ] {
            assert_eq!(Amount::new(value).display(resource).to_string(), text, "{resource} {value}");
        }
    }

    #[test]
    fn extended_resources_are_devices_of_some_domain() {
        for (name, want) in [
            ("google.com/tpu", true),
            ("a/b", true),
            ("UPPER.com/x", false),
            ("a-.com/x", false),
            ("example.com/", false),
            ("/x", false),
            ("a.com/b/c", false),
            ("a.com/_x", false),
            ("x.kubernetes.io/foo", false),
        ] {
            assert_eq!(is_extended_resource(name), want, "{name}");
        }
        assert!(!is_extended_resource(&format!("a.com/{}", "x".repeat(64))));
        assert!(!is_extended_resource(&format!("{}/x", "a".repeat(245))));
    }
}
