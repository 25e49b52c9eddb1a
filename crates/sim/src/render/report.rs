//! How well chips were used, as text and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json as value};

use crate::report::{Report, Sample};
use crate::simulation::Outcome;
use crate::store::api_time;

const HOUR: i128 = 3_600_000_000;

/// Chip-time in hours with two digits behind the point.
fn hours(chip_micros: i128) -> String {
    let hundredths = chip_micros.saturating_mul(100).saturating_add(HOUR / 2) / HOUR;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

fn percent(ratio: f64) -> String {
    format!("{:.1}%", ratio * 100.0)
}

/// How well the chips were used, in a line or two; nothing if there were none. The terms are those of
/// [`Report`](crate::Report).
pub fn chips(outcome: &Outcome) -> String {
    let totals = &outcome.report.totals;
    let Some(goodput) = totals.scheduling_goodput() else { return String::new() };
    let mut parts = vec![format!("{} useful", hours(totals.useful))];
    if totals.lost > 0 {
        parts.push(format!("{} lost to restarts", hours(totals.lost)));
    }
    if totals.unfinished > 0 {
        parts.push(format!("{} unfinished", hours(totals.unfinished)));
    }
    let mut text = format!(
        "scheduling goodput {}: {} of {} chip-hours ({})\n",
        percent(goodput),
        hours(totals.productive),
        hours(totals.available),
        parts.join(", ")
    );
    if let Some(fragmentation) =
        totals.fragmentation().filter(|_| totals.stranded.saturating_mul(100) >= totals.available)
    {
        let (stranded, free) = (hours(totals.stranded), hours(totals.free));
        let share = percent(fragmentation);
        let _ = writeln!(text, "fragmentation {share}: {stranded} of {free} free chip-hours were in no whole slice");
    }
    text
}

fn sample(outcome: &Outcome, sample: &Sample) -> Value {
    let largest = sample.largest.map(|slice| {
        value!({
            "accelerator": slice.accelerator.label(),
            "topology": slice.topology.to_string(),
            "chips": slice.chips,
        })
    });
    value!({
        "time": api_time(sample.time),
        "elapsedSeconds": sample.time.micros_since(outcome.start) / 1_000_000,
        "available": sample.available,
        "running": sample.running,
        "productive": sample.productive,
        "free": sample.free,
        "formable": sample.formable,
        "fragmentation": sample.fragmentation(),
        "largestSlice": largest,
    })
}

/// The report as JSON: `schedulingGoodput`, `fragmentation`, chip-seconds in total and by job, and the samples over time.
pub(super) fn json(outcome: &Outcome) -> Value {
    let Report { totals, jobs, samples } = &outcome.report;
    let seconds = |chip_micros: i128| i64::try_from(chip_micros / 1_000_000).unwrap_or(i64::MAX);
    let jobs: Vec<Value> = jobs
        .iter()
        .map(|(job, time)| {
            value!({
                "job": super::json::reference(job),
                "useful": seconds(time.useful),
                "lost": seconds(time.lost),
                "unfinished": seconds(time.unfinished),
            })
        })
        .collect();
    value!({
        "schedulingGoodput": totals.scheduling_goodput(),
        "fragmentation": totals.fragmentation(),
        "chipSeconds": {
            "available": seconds(totals.available),
            "free": seconds(totals.free),
            "stranded": seconds(totals.stranded),
            "running": seconds(totals.running),
            "productive": seconds(totals.productive),
            "useful": seconds(totals.useful),
            "lost": seconds(totals.lost),
            "unfinished": seconds(totals.unfinished),
        },
        "jobs": jobs,
        "samples": samples.iter().map(|one| sample(outcome, one)).collect::<Vec<_>>(),
    })
}
