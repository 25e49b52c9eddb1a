//! Points in time, as values.

/// Microseconds since 1970-01-01T00:00:00Z. The Kubernetes API keeps whole seconds of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Earlier than every other: what an object without a creation time has.
    pub const MIN: Self = Self(i64::MIN);

    /// A time of this many microseconds.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// A time of this many whole seconds.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000_000))
    }

    /// Microseconds since the epoch.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Whole seconds since the epoch, rounded down.
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// The time with its fraction of a second cut off, as it comes back from the API.
    #[must_use]
    pub const fn truncated(self) -> Self {
        if self.0 == i64::MIN { self } else { Self::from_seconds(self.seconds()) }
    }

    /// Later by so many microseconds.
    #[must_use]
    pub const fn plus_micros(self, micros: i64) -> Self {
        Self(self.0.saturating_add(micros))
    }

    /// Later by so many seconds.
    #[must_use]
    pub const fn plus_seconds(self, seconds: i64) -> Self {
        self.plus_micros(seconds.saturating_mul(1_000_000))
    }

    /// The microseconds from `earlier` to this.
    pub const fn micros_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}
