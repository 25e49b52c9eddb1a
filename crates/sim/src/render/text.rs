//! The timeline and the verdicts as text.

use std::fmt::Write as _;

use slicegate_api::ObjectRef;

use crate::duration::Elapsed;
use crate::simulation::Outcome;
use crate::timeline::{Entry, EntryKind};
use crate::verdict::{JobVerdict, Verdict};

/// How to print text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TextOptions {
    /// Whether to colour it for terminals.
    pub colour: bool,
    /// Whether to print the further lines that explain a line.
    pub details: bool,
}

const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const RED: &str = "\x1b[31m";
const CYAN: &str = "\x1b[36m";
const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";

const fn colour(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Admitted | EntryKind::Running | EntryKind::Finished | EntryKind::Submitter => GREEN,
        EntryKind::Waiting | EntryKind::QuotaReserved | EntryKind::Requeued | EntryKind::Scheduling => YELLOW,
        EntryKind::Preempted
        | EntryKind::Evicted
        | EntryKind::Deactivated
        | EntryKind::Unschedulable
        | EntryKind::HostFailed
        | EntryKind::NodesLost
        | EntryKind::Restarted
        | EntryKind::Failed
        | EntryKind::Drained
        | EntryKind::Refused => RED,
        EntryKind::ScaleUp
        | EntryKind::NodesReady
        | EntryKind::ScaleDown
        | EntryKind::ProvisioningRequest
        | EntryKind::Slice
        | EntryKind::Check => CYAN,
        EntryKind::Applied
        | EntryKind::Patched
        | EntryKind::Scaled
        | EntryKind::Deleted
        | EntryKind::WorkloadCreated
        | EntryKind::Note => DIM,
    }
}

/// An object in few characters: its kind and name, with its namespace if that is not `default`.
fn short(object: &ObjectRef) -> String {
    if object.namespace.is_empty() || *object.namespace == *"default" {
        format!("{} {}", object.kind, object.name)
    } else {
        format!("{} {}/{}", object.kind, object.namespace, object.name)
    }
}

fn subject(entry: &Entry) -> String {
    entry.object.as_ref().map_or_else(|| "cluster".to_owned(), short)
}

/// What happened, one line an event: simulated time, whom it concerns, what. Documents that were applied one after another at
/// the same time share a line, jobs excepted.
pub fn timeline(outcome: &Outcome, options: TextOptions) -> String {
    let entries = grouped(&outcome.timeline);
    let width = entries.iter().map(|(subject, _, _)| subject.chars().count()).max().unwrap_or(0).min(44);
    let clock = |entry: &Entry| Elapsed(entry.time.micros_since(outcome.start)).to_string();
    let time_width = entries.iter().map(|(_, _, entry)| clock(entry).len()).max().unwrap_or(0);
    let mut text = String::new();
    for (subject, line, entry) in entries {
        let time = clock(entry);
        if options.colour {
            let colour = colour(entry.kind);
            let _ = writeln!(text, "{DIM}{time:>time_width$}{RESET}  {subject:width$}  {colour}{line}{RESET}");
        } else {
            let _ = writeln!(text, "{time:>time_width$}  {subject:width$}  {line}");
        }
        if options.details {
            for detail in &entry.details {
                let _ = writeln!(text, "{:time_width$}  {:width$}    {detail}", "", "");
            }
        }
    }
    text
}

fn grouped(entries: &[Entry]) -> Vec<(String, String, &Entry)> {
    use slicegate_api::Kind;
    let is_setup = |entry: &Entry| {
        let job = entry.object.as_ref().is_some_and(|object| {
            matches!(
                object.kind,
                Kind::JobSet | Kind::Job | Kind::RayJob | Kind::RayCluster | Kind::Pod | Kind::Workload
            )
        });
        entry.kind == EntryKind::Applied && !job
    };
    let mut lines: Vec<(String, String, &Entry)> = Vec::new();
    let mut group: Option<(&Entry, Vec<String>)> = None;
    for entry in entries {
        if is_setup(entry) {
            let name = match &entry.object {
                Some(object) if entry.text == "applied" => short(object),
                Some(object) => format!("{} ({})", short(object), entry.text),
                None => entry.text.clone(),
            };
            match &mut group {
                Some((first, names)) if first.time == entry.time => names.push(name),
                _ => {
                    if let Some((first, names)) = group.take() {
                        lines.push(("cluster".to_owned(), format!("applied: {}", names.join(", ")), first));
                    }
                    group = Some((entry, vec![name]));
                }
            }
            continue;
        }
        if let Some((first, names)) = group.take() {
            lines.push(("cluster".to_owned(), format!("applied: {}", names.join(", ")), first));
        }
        lines.push((subject(entry), entry.text.clone(), entry));
    }
    if let Some((first, names)) = group.take() {
        lines.push(("cluster".to_owned(), format!("applied: {}", names.join(", ")), first));
    }
    lines
}

/// What became of each job, a line each, and a line that counts them.
pub fn summary(outcome: &Outcome) -> String {
    let mut text = String::new();
    let line = |verdict: &JobVerdict| {
        let what = match &verdict.verdict {
            Verdict::Finished { at } => {
                let at = at.map(|at| Elapsed(at.micros_since(outcome.start)).to_string());
                format!("finished at {}", at.unwrap_or_default())
            }
            Verdict::Failed => "failed".to_owned(),
            Verdict::Running => "still running".to_owned(),
            Verdict::Admitted => "admitted, not running".to_owned(),
            Verdict::QuotaReserved => "has quota, waits for its admission checks".to_owned(),
            Verdict::Evicted => "evicted, waits again".to_owned(),
            Verdict::NeverAdmitted => "never admitted".to_owned(),
            Verdict::NotQueued => "in no queue".to_owned(),
            Verdict::Deleted { at } => format!("deleted at {}", Elapsed(at.micros_since(outcome.start))),
            Verdict::NotApplied => "not applied before the simulation was stopped".to_owned(),
        };
        let why = verdict.why.as_ref().map_or(String::new(), |why| format!(": {why}"));
        format!("{}: {what}{why}", short(&verdict.job))
    };
    for verdict in &outcome.verdicts {
        let _ = writeln!(text, "{}", line(verdict));
    }
    let total = outcome.verdicts.len();
    let finished = outcome.verdicts.iter().filter(|v| matches!(v.verdict, Verdict::Finished { .. })).count();
    let deleted = outcome.verdicts.iter().filter(|v| matches!(v.verdict, Verdict::Deleted { .. })).count();
    let deleted = if deleted == 0 { String::new() } else { format!(", {deleted} deleted") };
    let end = Elapsed(outcome.end.micros_since(outcome.start));
    let how = if outcome.stopped { "was stopped" } else { "ended" };
    let _ = writeln!(text, "{finished} of {total} jobs finished{deleted}; the simulation {how} at {end}");
    text
}
