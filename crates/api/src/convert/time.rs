//! Points in time.

use k8s_openapi::jiff;
use slicegate_workload::Timestamp;

use crate::Time;

/// What Kubernetes writes for "no time": 0001-01-01T00:00:00Z.
const ZERO_SECONDS: i64 = -62_135_596_800;

/// A time of the API. Its zero time is [`Timestamp::MIN`].
pub fn timestamp(time: &Time) -> Timestamp {
    if time.0.as_second() <= ZERO_SECONDS {
        return Timestamp::MIN;
    }
    Timestamp::from_micros(time.0.as_microsecond())
}

/// A time for the API, to the microsecond (it is written to the second). Times outside the years 1 to 9999 are moved to the
/// nearest that can be written.
pub fn time_to_api(time: Timestamp) -> Time {
    let zero = ZERO_SECONDS.saturating_mul(1_000_000);
    let last = jiff::Timestamp::MAX;
    Time(jiff::Timestamp::from_microsecond(time.micros().clamp(zero, last.as_microsecond())).unwrap_or(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_a_round_trip() {
        for t in [Timestamp::MIN, Timestamp::from_micros(0), Timestamp::from_micros(1_767_225_600_000_001)] {
            assert_eq!(timestamp(&time_to_api(t)), t);
        }
    }

    #[test]
    fn no_time_is_written_as_kubernetes_does() {
        assert_eq!(serde_json::to_value(time_to_api(Timestamp::MIN)).unwrap(), "0001-01-01T00:00:00Z");
    }

    #[test]
    fn a_time_beyond_the_calendar_is_clamped() {
        assert_eq!(time_to_api(Timestamp::from_micros(i64::MAX)).0.as_second(), jiff::Timestamp::MAX.as_second());
    }
}
