//! Metrics as text: OpenMetrics 1.0 and the older format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use slicegate_workload::Timestamp;

use super::family::{Definition, LabelValues, MetricKind, Snapshot, Value};

/// Which format is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    OpenMetrics,
    Prometheus,
}

impl Snapshot {
    /// As OpenMetrics text (`application/openmetrics-text; version=1.0.0`), without timestamps. `now` is the time for values
    /// that pass with it.
    pub fn open_metrics(&self, now: Timestamp) -> String {
        let mut text = self.text(now, Format::OpenMetrics);
        text.push_str("# EOF\n");
        text
    }

    /// As Prometheus text (`text/plain; version=0.0.4`), without timestamps.
    pub fn prometheus(&self, now: Timestamp) -> String {
        self.text(now, Format::Prometheus)
    }

    fn text(&self, now: Timestamp, format: Format) -> String {
        let mut text = String::new();
        for family in self.families() {
            if family.series.is_empty() {
                continue;
            }
            let clashes = self.families().any(|other| clash(family.definition, other.definition));
            header(&mut text, family.definition, clashes, format);
            for (labels, value) in &family.series {
                point(&mut text, family.definition, labels, value, now, None, format);
            }
        }
        text
    }
}

/// Metrics over time: snapshots, put together by series.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Recording {
    families: BTreeMap<&'static str, Recorded>,
}

#[derive(Clone, PartialEq, Debug)]
struct Recorded {
    definition: &'static Definition,
    series: BTreeMap<LabelValues, Vec<(Timestamp, Value)>>,
}

impl Recording {
    /// Adds a snapshot. Times must ascend: a snapshot that is not later than the last is left out.
    pub fn add(&mut self, at: Timestamp, snapshot: &Snapshot) {
        for family in snapshot.families() {
            let recorded = self
                .families
                .entry(family.definition.name)
                .or_insert_with(|| Recorded { definition: family.definition, series: BTreeMap::new() });
            for (labels, value) in &family.series {
                let points = match recorded.series.get_mut(labels) {
                    Some(points) => points,
                    None => recorded.series.entry(labels.clone()).or_default(),
                };
                if points.last().is_none_or(|(last, _)| *last < at) {
                    points.push((at, value.clone()));
                }
            }
        }
    }

    /// As OpenMetrics text with timestamps, that `promtool tsdb create-blocks-from openmetrics` takes.
    pub fn open_metrics(&self) -> String {
        let mut text = String::new();
        for recorded in self.families.values().filter(|recorded| !recorded.series.is_empty()) {
            let clashes = self.families.values().any(|other| clash(recorded.definition, other.definition));
            header(&mut text, recorded.definition, clashes, Format::OpenMetrics);
            for (labels, points) in &recorded.series {
                for (at, value) in points {
                    point(&mut text, recorded.definition, labels, value, *at, Some(*at), Format::OpenMetrics);
                }
            }
        }
        text.push_str("# EOF\n");
        text
    }
}

/// The name of a metric family in OpenMetrics: that of a counter goes without `_total`.
fn family_name(definition: &Definition) -> &'static str {
    match definition.kind {
        MetricKind::Counter => definition.name.strip_suffix("_total").unwrap_or(definition.name),
        MetricKind::Gauge | MetricKind::Histogram => definition.name,
    }
}

/// Whether a counter would have the name of another family once `_total` is gone, as Kueue's `finished_workloads` has.
fn clash(counter: &Definition, other: &Definition) -> bool {
    counter.kind == MetricKind::Counter && counter.name != other.name && family_name(counter) == family_name(other)
}

fn header(text: &mut String, definition: &Definition, clashes: bool, format: Format) {
    let kind = match definition.kind {
        // OpenMetrics has no counter that keeps its `_total` in the family's name.
        MetricKind::Counter if clashes && format == Format::OpenMetrics => "unknown",
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
    };
    let name = match format {
        Format::OpenMetrics if !clashes => family_name(definition),
        Format::OpenMetrics | Format::Prometheus => definition.name,
    };
    // Writing to a string cannot fail.
    if format == Format::Prometheus {
        let _ = writeln!(text, "# HELP {name} {}", escaped(definition.help, false));
        let _ = writeln!(text, "# TYPE {name} {kind}");
        return;
    }
    let _ = writeln!(text, "# HELP {name} {}", escaped(definition.help, true));
    let _ = writeln!(text, "# TYPE {name} {kind}");
    if name.ends_with("_seconds") {
        let _ = writeln!(text, "# UNIT {name} seconds");
    }
}

fn point(
    text: &mut String,
    definition: &Definition,
    labels: &[Box<str>],
    value: &Value,
    now: Timestamp,
    stamp: Option<Timestamp>,
    format: Format,
) {
    let name = definition.name;
    match value {
        Value::Number(number) => sample(text, name, "", definition, labels, None, *number, stamp),
        Value::Clock { at, seconds } => {
            let passed = to_seconds(now.micros_since(*at).max(0));
            sample(text, name, "", definition, labels, None, seconds + passed, stamp);
        }
        Value::Histogram(histogram) => {
            for (bound, count) in histogram.cumulative() {
                let bound = bound_text(bound, format);
                sample(text, name, "_bucket", definition, labels, Some(&bound), count_to_f64(count), stamp);
            }
            sample(text, name, "_sum", definition, labels, None, histogram.sum(), stamp);
            sample(text, name, "_count", definition, labels, None, count_to_f64(histogram.count()), stamp);
        }
    }
}

#[expect(clippy::too_many_arguments, reason = "a sample has these parts")]
fn sample(
    text: &mut String,
    name: &str,
    suffix: &str,
    definition: &Definition,
    labels: &[Box<str>],
    bound: Option<&str>,
    value: f64,
    stamp: Option<Timestamp>,
) {
    text.push_str(name);
    text.push_str(suffix);
    let pairs = definition.labels.iter().copied().zip(labels.iter().map(|label| &**label));
    let mut first = true;
    for (label, value) in pairs.chain(bound.map(|bound| ("le", bound))) {
        let _ = write!(text, "{}{label}=\"{}\"", if first { "{" } else { "," }, escaped(value, true));
        first = false;
    }
    if !first {
        text.push('}');
    }
    let _ = write!(text, " {}", number_text(value));
    if let Some(at) = stamp {
        let micros = at.micros();
        let _ = write!(text, " {}.{:03}", micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000) / 1_000);
    }
    text.push('\n');
}

/// With backslashes before what would end the text or the line.
fn escaped(text: &str, quotes: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out
}

fn number_text(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned()
    } else {
        value.to_string()
    }
}

/// OpenMetrics writes bounds as floats, always; Prometheus as short as it can.
fn bound_text(bound: f64, format: Format) -> String {
    let text = number_text(bound);
    let whole = text.chars().all(|c| c.is_ascii_digit());
    if whole && format == Format::OpenMetrics { format!("{text}.0") } else { text }
}

/// A count as a float; those that a float cannot hold are rounded.
#[expect(clippy::cast_precision_loss, reason = "no count gets near 2^53")]
pub(crate) const fn count_to_f64(count: u64) -> f64 {
    count as f64
}

/// Microseconds as seconds.
#[expect(clippy::cast_precision_loss, reason = "no run is so long")]
pub(crate) const fn to_seconds(micros: i64) -> f64 {
    micros as f64 / 1_000_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    static WAIT: Definition = Definition::histogram("wait_seconds", &["queue"], &[0.5, 1.0], "How \"long\".\nOr not.");
    static DONE: Definition = Definition::counter("done_total", &["why"], "Done.");
    static DONE_NOW: Definition = Definition::gauge("done", &[], "Done that are still there.");
    static MADE: Definition = Definition::counter("made_total", &[], "Made.");
    static UP: Definition = Definition::gauge("up_time_seconds", &[], "Up.");

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(seconds)
    }

    fn snapshot() -> Snapshot {
        let mut snapshot = Snapshot::default();
        snapshot.observe(&WAIT, &["a\"b\\c\nd"], 0.75);
        snapshot.add(&DONE, &["x"], 2.0);
        snapshot.set(&DONE_NOW, &[], 1.0);
        snapshot.add(&MADE, &[], 1.0);
        snapshot.put(&UP, Vec::new(), Value::Clock { at: at(10), seconds: 5.0 });
        snapshot
    }

    #[test]
    fn open_metrics_is_written_as_specified() {
        let expected = r#"# HELP done Done that are still there.
# TYPE done gauge
done 1
# HELP done_total Done.
# TYPE done_total unknown
done_total{why="x"} 2
# HELP made Made.
# TYPE made counter
made_total 1
# HELP up_time_seconds Up.
# TYPE up_time_seconds gauge
# UNIT up_time_seconds seconds
up_time_seconds 15
# HELP wait_seconds How \"long\".\nOr not.
# TYPE wait_seconds histogram
# UNIT wait_seconds seconds
wait_seconds_bucket{queue="a\"b\\c\nd",le="0.5"} 0
wait_seconds_bucket{queue="a\"b\\c\nd",le="1.0"} 1
wait_seconds_bucket{queue="a\"b\\c\nd",le="+Inf"} 1
wait_seconds_sum{queue="a\"b\\c\nd"} 0.75
wait_seconds_count{queue="a\"b\\c\nd"} 1
# EOF
"#;
        assert_eq!(snapshot().open_metrics(at(20)), expected);
    }

    #[test]
    fn prometheus_text_names_counters_whole() {
        let text = snapshot().prometheus(at(20));
        assert!(text.contains("# TYPE done_total counter\ndone_total{why=\"x\"} 2\n"), "{text}");
        assert!(text.contains("# HELP wait_seconds How \"long\".\\nOr not.\n"), "{text}");
        assert!(text.contains("le=\"1\""), "{text}");
        assert!(!text.contains("# UNIT") && !text.contains("# EOF"), "{text}");
    }

    #[test]
    fn a_recording_keeps_the_points_of_a_series_together() {
        let mut recording = Recording::default();
        let mut snapshot = Snapshot::default();
        for second in [60, 120, 120, 180] {
            snapshot.add(&DONE, &["x"], 1.0);
            if second == 180 {
                snapshot.add(&DONE, &["a"], 1.0);
            }
            snapshot.put(&UP, Vec::new(), Value::Clock { at: at(60), seconds: 0.0 });
            recording.add(at(second), &snapshot);
        }
        let expected = r#"# HELP done Done.
# TYPE done counter
done_total{why="a"} 1 180.000
done_total{why="x"} 1 60.000
done_total{why="x"} 2 120.000
done_total{why="x"} 4 180.000
# HELP up_time_seconds Up.
# TYPE up_time_seconds gauge
# UNIT up_time_seconds seconds
up_time_seconds 0 60.000
up_time_seconds 60 120.000
up_time_seconds 120 180.000
# EOF
"#;
        assert_eq!(recording.open_metrics(), expected);
    }

    #[test]
    fn numbers_are_what_parsers_read() {
        let texts: Vec<String> =
            [0.0, 1.0, 0.01, 40960.0, 1e21, f64::INFINITY, f64::NEG_INFINITY, f64::NAN].map(number_text).to_vec();
        assert_eq!(texts, ["0", "1", "0.01", "40960", "1000000000000000000000", "+Inf", "-Inf", "NaN"]);
    }
}
