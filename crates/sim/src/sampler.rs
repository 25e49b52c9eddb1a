//! Metrics over simulated time.

use slicegate_controller::metrics::{Metrics, MetricsOptions, Recording, Snapshot};
use slicegate_controller::{Change, Configuration, Controller};
use slicegate_workload::Timestamp;

/// Takes samples at even intervals since the start, and one at the end.
///
/// While nothing happens nothing is asked: the samples of such a time are added when it is known that the simulation goes on
/// after it.
#[derive(Clone, Debug)]
pub(crate) struct Sampler {
    metrics: Metrics,
    recording: Recording,
    every: i64,
    /// When the next sample is due.
    next: Timestamp,
    /// What holds since the last change, and from which sample on.
    held: Option<(Timestamp, Snapshot)>,
}

impl Sampler {
    pub(crate) fn new(start: Timestamp, every: i64, configuration: Option<&Configuration>) -> Self {
        let options = MetricsOptions {
            local_queues: true,
            cluster_queue_resources: true,
            wait_for_pods_ready: configuration.is_some_and(|c| c.engine.wait_for_pods_ready.is_some()),
            cluster_name: "simulated".into(),
            ..MetricsOptions::default()
        };
        Self {
            metrics: Metrics::new(options),
            recording: Recording::default(),
            every: every.max(1),
            next: start,
            held: None,
        }
    }

    /// Something changed.
    pub(crate) fn observe(&mut self, now: Timestamp, change: &Change) {
        self.release(now);
        self.metrics.observe(now, change);
    }

    /// Time moves on to `to`: what is true now is true until then.
    pub(crate) fn hold(&mut self, to: Timestamp, controller: Option<&Controller>) {
        if self.held.is_none() && self.next < to {
            self.held = Some((self.next, self.metrics.gather(self.next, controller)));
        }
    }

    /// Adds the samples that were held back, those before `end`.
    fn release(&mut self, end: Timestamp) {
        let Some((from, snapshot)) = self.held.take() else { return };
        let mut at = from;
        let mut first = Some(&snapshot);
        let mut later = None;
        while at < end {
            match first.take() {
                Some(snapshot) => self.recording.add(at, snapshot),
                None => self.recording.add(at, later.get_or_insert_with(|| snapshot.without_news())),
            }
            at = at.plus_micros(self.every);
        }
        self.next = at;
    }

    /// The last samples, the very end included.
    pub(crate) fn finish(mut self, end: Timestamp, controller: Option<&Controller>) -> Recording {
        self.hold(end, controller);
        self.release(end);
        let last = self.metrics.gather(end, controller);
        self.recording.add(end, &last);
        self.recording
    }
}
