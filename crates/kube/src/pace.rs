//! How many requests are made a second.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// So many requests a second, and so many at once after a pause.
#[derive(Debug)]
pub(crate) struct Pace {
    interval: Duration,
    burst: u32,
    /// When the next request would be due if all came evenly.
    due: Mutex<Instant>,
}

impl Pace {
    /// `None`: as many as come.
    pub(crate) fn new(per_second: f32, burst: u32) -> Option<Self> {
        (per_second > 0.0).then(|| Self {
            interval: Duration::from_secs_f32(1.0 / per_second.max(0.001)),
            burst: burst.max(1),
            due: Mutex::new(Instant::now()),
        })
    }

    /// Waits until a request may be made.
    pub(crate) async fn wait(&self) {
        let until = {
            let mut due = self.due.lock().await;
            let now = Instant::now();
            *due = (*due).max(now) + self.interval;
            (*due).checked_sub(self.interval.saturating_mul(self.burst)).unwrap_or(now)
        };
        tokio::time::sleep_until(until).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_then_an_even_pace() {
        let pace = Pace::new(10.0, 5).unwrap();
        tokio::time::advance(Duration::from_mins(1)).await;
        let start = Instant::now();
        let mut at = Vec::new();
        for _ in 0..8 {
            pace.wait().await;
            at.push(start.elapsed().as_millis());
        }
        assert_eq!(at[4], 0, "{at:?}");
        assert!(at[5] >= 99 && at[7] >= 299 && at[7] < 320, "{at:?}");
        assert!(Pace::new(0.0, 1).is_none());
    }
}
