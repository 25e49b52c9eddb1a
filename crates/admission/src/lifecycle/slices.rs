//! Elastic jobs: a job whose size changes is a chain of workload slices, each of which replaces the one before.

use std::collections::BTreeMap;

use slicegate_workload::{ConditionType, Key, Workload};

use super::FinishReason;

/// The annotation that names the slice which a slice replaces.
pub const REPLACEMENT_ANNOTATION: &str = "kueue.x-k8s.io/workload-slice-replacement-for";

/// The key of the slice that the workload replaces. A slice of another namespace belongs to somebody else: naming it means
/// nothing.
pub fn replaced_slice(workload: &Workload) -> Option<Key> {
    let text = workload.annotations.get(REPLACEMENT_ANNOTATION)?;
    let (namespace, name) = text.split_once('/')?;
    (*namespace == *workload.key.namespace && !name.is_empty()).then(|| Key::new(namespace, name))
}

/// A slice to finish.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SliceFinish {
    /// The slice.
    pub workload: Key,
    /// How it ends.
    pub reason: FinishReason,
    /// The message.
    pub message: &'static str,
}

/// Which slices of a job stay.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SliceNormalization {
    /// The slice that the job is compared with.
    pub selected: Option<Key>,
    /// The slice that runs, if it is another one.
    pub running: Option<Key>,
    /// Slices to finish.
    pub finish: Vec<SliceFinish>,
}

/// Chooses among the unfinished slices of one job: the newest that holds quota runs, its replacement without quota is
/// selected, everything else is finished.
pub fn normalize_slices(slices: &[&Workload]) -> SliceNormalization {
    let mut ordered: Vec<&Workload> =
        slices.iter().copied().filter(|w| !w.status.conditions.is_true(&ConditionType::Finished)).collect();
    ordered.sort_by(|a, b| (a.created, &a.uid).cmp(&(b.created, &b.uid)));
    if ordered.len() < 2 {
        return SliceNormalization {
            selected: ordered.first().map(|w| w.key.clone()),
            ..SliceNormalization::default()
        };
    }
    let reserved = |w: &Workload| w.status.conditions.is_true(&ConditionType::QuotaReserved);
    let mut replacement_of: BTreeMap<Key, &Workload> = BTreeMap::new();
    for &w in ordered.iter().filter(|w| !w.is_evicted()) {
        let Some(old) = replaced_slice(w) else { continue };
        match replacement_of.get(&old) {
            Some(known) if reserved(known) && !reserved(w) => {}
            _ => {
                replacement_of.insert(old, w);
            }
        }
    }
    let live = |w: &&&Workload| !w.is_evicted();
    let running = ordered
        .iter()
        .rev()
        .filter(live)
        .find(|w| reserved(w) && !replacement_of.get(&w.key).is_some_and(|r| reserved(r)))
        .copied();
    let proposed = running.and_then(|r| replacement_of.get(&r.key)).copied().filter(|p| !reserved(p));
    let selected = proposed.or(running).or_else(|| ordered.iter().rev().find(live).copied());
    let keep = |w: &Workload| [selected, running].into_iter().flatten().any(|k| k.key == w.key);
    let finish = ordered
        .iter()
        .filter(|w| !keep(w))
        .map(|w| {
            let (reason, message) = if replacement_of.contains_key(&w.key) {
                (FinishReason::WorkloadSliceReplaced, "Replaced to accommodate a new workload slice")
            } else {
                (FinishReason::OutOfSync, "The workload slice is out of sync with its parent job")
            };
            SliceFinish { workload: w.key.clone(), reason, message }
        })
        .collect();
    SliceNormalization {
        selected: selected.map(|w| w.key.clone()),
        running: running.filter(|r| selected.is_none_or(|s| s.key != r.key)).map(|w| w.key.clone()),
        finish,
    }
}

#[cfg(test)]
mod tests {
    use slicegate_workload::{Status, Timestamp};

    use super::*;
    use crate::lifecycle::At;

    fn slice(name: &str, second: i64, replaces: Option<&str>, reserved: bool, evicted: bool) -> Workload {
        let mut workload =
            Workload { key: Key::new("ns", name), created: Timestamp::from_seconds(second), ..Workload::default() };
        if let Some(old) = replaces {
            workload.annotations.insert(REPLACEMENT_ANNOTATION.into(), format!("ns/{old}").into());
        }
        let at = At { now: Timestamp::from_seconds(0), generation: 1 };
        for (kind, on) in [(ConditionType::QuotaReserved, reserved), (ConditionType::Evicted, evicted)] {
            if on {
                at.set(&mut workload.status, kind, Status::True, "ByTest", "");
            }
        }
        workload
    }

    #[test]
    fn nobody_replaces_what_belongs_to_another_namespace() {
        let mut new = slice("new", 2, Some("old"), false, false);
        assert_eq!(replaced_slice(&new), Some(Key::new("ns", "old")));
        for other in ["other/old", "ns/", "/old", "old", ""] {
            new.annotations.insert(REPLACEMENT_ANNOTATION.into(), other.into());
            assert_eq!(replaced_slice(&new), None, "{other}");
        }
    }

    fn names(slices: &[Workload]) -> (String, String, Vec<(String, FinishReason)>) {
        let result = normalize_slices(&slices.iter().collect::<Vec<_>>());
        let name = |key: Option<Key>| key.map(|k| k.name.to_string()).unwrap_or_default();
        let finish = result.finish.iter().map(|f| (f.workload.name.to_string(), f.reason)).collect();
        (name(result.selected), name(result.running), finish)
    }

    #[test]
    fn one_runs_and_its_replacement_waits() {
        let old = slice("old", 1, None, true, false);
        let new = slice("new", 2, Some("old"), false, false);
        assert_eq!(names(&[old, new]), ("new".into(), "old".into(), vec![]));
    }

    #[test]
    fn what_is_neither_is_finished() {
        let first = slice("first", 1, None, true, false);
        let second = slice("second", 2, Some("first"), true, false);
        let stray = slice("stray", 3, None, false, false);
        let (selected, running, finish) = names(&[stray, second, first]);
        assert_eq!((selected.as_str(), running.as_str()), ("second", ""));
        assert_eq!(
            finish,
            [("first".into(), FinishReason::WorkloadSliceReplaced), ("stray".into(), FinishReason::OutOfSync)]
        );
    }

    #[test]
    fn an_evicted_slice_does_not_stay() {
        let evicted = slice("evicted", 1, None, true, true);
        let new = slice("new", 2, None, false, false);
        let (selected, running, finish) = names(&[evicted, new]);
        assert_eq!((selected.as_str(), running.as_str()), ("new", ""));
        assert_eq!(finish, [("evicted".into(), FinishReason::OutOfSync)]);
    }
}
