//! Dying at a chosen write, for tests of what is left behind then.
//!
//! Nothing happens unless the environment says `SLICEGATE_FAILPOINT=before-write:N` or `after-write:N`: the process ends at the
//! N-th write that changes an object (Events and the Lease do not count), without any cleaning up, as if it had been killed: before
//! it is sent, when those that began earlier have been answered and no other has been sent, or after it was answered, while
//! others may be on their way.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How often, and for how long at most, it is looked whether earlier writes have been answered.
const LOOK: Duration = Duration::from_millis(2);
const LOOKS: u32 = 1_000;

/// The variable.
pub(crate) const VARIABLE: &str = "SLICEGATE_FAILPOINT";

/// Where to die.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Before(u64),
    After(u64),
}

/// Counts writes, and dies at one of them if it was told to.
#[derive(Debug)]
pub(crate) struct Failpoint {
    place: Option<Place>,
    begun: AtomicU64,
    answered: AtomicU64,
}

impl Failpoint {
    /// What the environment says.
    ///
    /// # Errors
    /// If it says something that is not understood.
    pub(crate) fn from_environment() -> Result<Self, String> {
        Self::parse(std::env::var(VARIABLE).unwrap_or_default().trim())
    }

    fn parse(text: &str) -> Result<Self, String> {
        let place = match text.split_once(':').map(|(place, number)| (place, number.parse::<u64>())) {
            None if text.is_empty() => None,
            Some(("before-write", Ok(number))) => Some(Place::Before(number)),
            Some(("after-write", Ok(number))) => Some(Place::After(number)),
            _ => return Err(format!("{VARIABLE}={text}: write before-write:N or after-write:N")),
        };
        Ok(Self { place, begun: AtomicU64::new(0), answered: AtomicU64::new(0) })
    }

    /// A write begins. Returns its number.
    pub(crate) async fn begin(&self) -> u64 {
        let number = self.begun.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if let Some(Place::Before(last)) = self.place
            && number >= last
        {
            // Else those that begin at one time would all be lost, in each life anew.
            for _ in 0..LOOKS {
                if self.answered.load(Ordering::Relaxed) >= last.saturating_sub(1) {
                    break;
                }
                tokio::time::sleep(LOOK).await;
            }
            self.die_at(Place::Before(last));
        }
        number
    }

    /// A write was answered.
    pub(crate) fn end(&self, number: u64) {
        self.answered.fetch_add(1, Ordering::Relaxed);
        self.die_at(Place::After(number));
    }

    fn die_at(&self, place: Place) {
        if self.is_at(place) {
            tracing::error!(?place, "ending at a failpoint");
            std::process::abort();
        }
    }

    fn is_at(&self, place: Place) -> bool {
        self.place == Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_dies_only_when_what_began_earlier_is_answered() {
        let at = Failpoint::parse("before-write:3").unwrap();
        assert_eq!((at.begin().await, at.begin().await), (1, 2));
        at.end(2);
        let third = tokio::time::timeout(Duration::from_millis(50), at.begin()).await;
        let fourth = tokio::time::timeout(Duration::from_millis(50), at.begin()).await;
        assert!(third.is_err() && fourth.is_err(), "the first is on its way still: {third:?} {fourth:?}");
    }

    #[tokio::test]
    async fn a_place_is_a_write_and_a_side_of_it() {
        let at = Failpoint::parse("after-write:2").unwrap();
        assert_eq!((at.begin().await, at.begin().await), (1, 2));
        assert!(at.is_at(Place::After(2)) && !at.is_at(Place::Before(2)) && !at.is_at(Place::After(1)));
        assert!(Failpoint::parse("before-write:1").unwrap().is_at(Place::Before(1)));
        assert!(Failpoint::parse("").unwrap().place.is_none());
        for wrong in ["before-write", "before-write:", "write:1", "1"] {
            assert!(Failpoint::parse(wrong).unwrap_err().contains("before-write:N"), "{wrong}");
        }
    }
}
