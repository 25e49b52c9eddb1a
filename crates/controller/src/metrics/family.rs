//! Metrics as values: definitions, what was counted, and what is true at one moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use slicegate_workload::Timestamp;

/// How the values of a metric behave.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts how many values fell under each of several bounds.
    Histogram,
}

/// A metric: what it is called, what it tells, and by which labels.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Definition {
    /// Its name; that of a counter ends in `_total`.
    pub name: &'static str,
    /// How its values behave.
    pub kind: MetricKind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// Upper bounds of the buckets of a histogram, ascending, without infinity.
    pub buckets: &'static [f64],
    /// What it tells, in a sentence.
    pub help: &'static str,
    /// Whether each sample tells only what came since the last one.
    pub news: bool,
}

impl Definition {
    pub(crate) const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Self {
        Self { name, kind: MetricKind::Counter, labels, buckets: &[], help, news: false }
    }

    pub(crate) const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Self {
        Self { name, kind: MetricKind::Gauge, labels, buckets: &[], help, news: false }
    }

    /// A gauge each of whose samples tells only what came since the last one.
    pub(crate) const fn news(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Self {
        Self { news: true, ..Self::gauge(name, labels, help) }
    }

    pub(crate) const fn histogram(
        name: &'static str,
        labels: &'static [&'static str],
        buckets: &'static [f64],
        help: &'static str,
    ) -> Self {
        Self { name, kind: MetricKind::Histogram, labels, buckets, help, news: false }
    }
}

/// How many values fell under each bound.
#[derive(Clone, PartialEq, Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// By bucket; the last has no bound.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    /// Without a value so far.
    pub fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len().saturating_add(1)], sum: 0.0 }
    }

    /// Takes a value in.
    pub fn observe(&mut self, value: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count = count.saturating_add(1);
        }
        self.sum += value;
    }

    /// How many values there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum: u64, n| sum.saturating_add(*n))
    }

    /// Their sum.
    pub const fn sum(&self) -> f64 {
        self.sum
    }

    /// Each bound, infinity last, with how many values are not above it.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        bounds.zip(&self.counts).scan(0_u64, |sum, (bound, count)| {
            *sum = sum.saturating_add(*count);
            Some((bound, *sum))
        })
    }
}

/// The value of one series.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// A number.
    Number(f64),
    /// Seconds that pass: so many at a time, and one more each second after it.
    Clock {
        /// When.
        at: Timestamp,
        /// How many by then.
        seconds: f64,
    },
    /// A histogram.
    Histogram(Arc<Histogram>),
}

/// The value of each label, in the order of the definition.
pub type LabelValues = Vec<Box<str>>;

/// A metric with its series.
#[derive(Clone, PartialEq, Debug)]
pub struct Family {
    /// What it is.
    pub definition: &'static Definition,
    /// By label values.
    pub series: BTreeMap<LabelValues, Value>,
}

/// Metrics at one moment, by name.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Snapshot {
    families: BTreeMap<&'static str, Family>,
}

impl Snapshot {
    /// All metrics, by name.
    pub fn families(&self) -> impl Iterator<Item = &Family> {
        self.families.values()
    }

    /// A series.
    pub fn get(&self, name: &str, labels: &[&str]) -> Option<&Value> {
        let labels: LabelValues = labels.iter().map(|label| (*label).into()).collect();
        self.families.get(name)?.series.get(&labels)
    }

    /// A number of a series.
    pub fn number(&self, name: &str, labels: &[&str]) -> Option<f64> {
        match self.get(name, labels)? {
            Value::Number(number) => Some(*number),
            Value::Clock { seconds, .. } => Some(*seconds),
            Value::Histogram(_) => None,
        }
    }

    /// The same without what only came to distributions since the last sample: what a sample shows in which nothing is new.
    #[must_use]
    pub fn without_news(&self) -> Self {
        let families = self.families.iter().filter(|(_, family)| !family.definition.news);
        Self { families: families.map(|(name, family)| (*name, family.clone())).collect() }
    }

    pub(crate) fn put(&mut self, definition: &'static Definition, labels: LabelValues, value: Value) {
        self.family(definition).series.insert(labels, value);
    }

    pub(crate) fn set(&mut self, definition: &'static Definition, labels: &[&str], value: f64) {
        self.put(definition, labels.iter().map(|label| (*label).into()).collect(), Value::Number(value));
    }

    pub(crate) fn add(&mut self, definition: &'static Definition, labels: &[&str], by: f64) {
        let labels = labels.iter().map(|label| (*label).into()).collect();
        let value = self.family(definition).series.entry(labels).or_insert(Value::Number(0.0));
        if let Value::Number(number) = value {
            *number += by;
        }
    }

    pub(crate) fn observe(&mut self, definition: &'static Definition, labels: &[&str], value: f64) {
        let labels = labels.iter().map(|label| (*label).into()).collect();
        let series = &mut self.family(definition).series;
        let entry =
            series.entry(labels).or_insert_with(|| Value::Histogram(Arc::new(Histogram::new(definition.buckets))));
        if let Value::Histogram(histogram) = entry {
            Arc::make_mut(histogram).observe(value);
        }
    }

    fn family(&mut self, definition: &'static Definition) -> &mut Family {
        self.families.entry(definition.name).or_insert_with(|| Family { definition, series: BTreeMap::new() })
    }

    /// Forgets the series in which all of these labels have these values, of the metrics that have all of these labels.
    pub(crate) fn forget(&mut self, labels: &[(&str, &str)]) {
        for family in self.families.values_mut() {
            let places: Option<Vec<(usize, &str)>> = labels
                .iter()
                .map(|(name, value)| Some((family.definition.labels.iter().position(|label| label == name)?, *value)))
                .collect();
            let Some(places) = places else { continue };
            family.series.retain(|values, _| {
                !places.iter().all(|(i, value)| values.get(*i).is_some_and(|found| **found == **value))
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static WAIT: Definition = Definition::histogram("wait_seconds", &["queue"], &[1.0, 2.5, 5.0], "Wait.");
    static DONE: Definition = Definition::counter("done_total", &["queue", "why"], "Done.");

    #[test]
    fn a_value_on_a_bound_is_under_it() {
        let mut histogram = Histogram::new(WAIT.buckets);
        for value in [0.0, 1.0, 1.5, 5.0, 7.0] {
            histogram.observe(value);
        }
        let all: Vec<(f64, u64)> = histogram.cumulative().collect();
        assert_eq!(all, [(1.0, 2), (2.5, 3), (5.0, 4), (f64::INFINITY, 5)]);
        assert_eq!((histogram.count(), histogram.sum()), (5, 14.5));
    }

    #[test]
    fn series_are_forgotten_by_label() {
        let mut snapshot = Snapshot::default();
        snapshot.add(&DONE, &["a", "x"], 1.0);
        snapshot.add(&DONE, &["a", "x"], 1.0);
        snapshot.add(&DONE, &["b", "x"], 1.0);
        snapshot.observe(&WAIT, &["a"], 3.0);
        assert_eq!(snapshot.number("done_total", &["a", "x"]), Some(2.0));
        snapshot.forget(&[("queue", "a")]);
        assert_eq!(snapshot.number("done_total", &["a", "x"]), None);
        assert_eq!(snapshot.number("done_total", &["b", "x"]), Some(1.0));
        assert_eq!(snapshot.get("wait_seconds", &["a"]), None);
    }
}
