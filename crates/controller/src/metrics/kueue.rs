//! Kueue's metrics: what is counted as objects change. What is true at one moment is in `gauges`.

use std::collections::BTreeMap;

use slicegate_api::kueue::Workload;
use slicegate_api::{Condition, ObjectMeta, convert};
use slicegate_workload::{Key, Timestamp};

use super::family::{Definition, Snapshot};
use super::text::to_seconds;

/// Kueue's bounds: 1, then 2.5 doubled again and again.
const BUCKETS: &[f64] = &[1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0, 2560.0, 5120.0, 10240.0];
/// The same with two more.
const LONG_BUCKETS: &[f64] =
    &[1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0, 2560.0, 5120.0, 10240.0, 20480.0, 40960.0];
/// Hundredths of a second, doubled ten times.
const LATENCY_BUCKETS: &[f64] = &[0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24];

const CLASS: &[&str] = &["cluster_queue", "priority_class", "replica_role"];
const LOCAL_CLASS: &[&str] = &["name", "namespace", "priority_class", "replica_role"];

/// A metric of ClusterQueues and its like for LocalQueues.
struct Pair {
    cluster: Definition,
    local: Definition,
}

static RESERVED: Pair = Pair {
    cluster: Definition::counter("kueue_quota_reserved_workloads_total", CLASS, "Quota reservations of workloads."),
    local: Definition::counter(
        "kueue_local_queue_quota_reserved_workloads_total",
        LOCAL_CLASS,
        "Quota reservations of workloads of a LocalQueue.",
    ),
};
static ADMITTED: Pair = Pair {
    cluster: Definition::counter("kueue_admitted_workloads_total", CLASS, "Admissions of workloads."),
    local: Definition::counter(
        "kueue_local_queue_admitted_workloads_total",
        LOCAL_CLASS,
        "Admissions of workloads of a LocalQueue.",
    ),
};
static FINISHED: Pair = Pair {
    cluster: Definition::counter("kueue_finished_workloads_total", CLASS, "Workloads that have finished."),
    local: Definition::counter(
        "kueue_local_queue_finished_workloads_total",
        LOCAL_CLASS,
        "Workloads of a LocalQueue that have finished.",
    ),
};
static RESERVED_WAIT: Pair = Pair {
    cluster: Definition::histogram(
        "kueue_quota_reserved_wait_time_seconds",
        CLASS,
        BUCKETS,
        "From when a workload was made or requeued until quota was reserved.",
    ),
    local: Definition::histogram(
        "kueue_local_queue_quota_reserved_wait_time_seconds",
        LOCAL_CLASS,
        BUCKETS,
        "From when a workload of a LocalQueue was made or requeued until quota was reserved.",
    ),
};
static ADMISSION_WAIT: Pair = Pair {
    cluster: Definition::histogram(
        "kueue_admission_wait_time_seconds",
        CLASS,
        LONG_BUCKETS,
        "From when a workload was made or requeued until it was admitted.",
    ),
    local: Definition::histogram(
        "kueue_local_queue_admission_wait_time_seconds",
        LOCAL_CLASS,
        LONG_BUCKETS,
        "From when a workload of a LocalQueue was made or requeued until it was admitted.",
    ),
};
static CHECKS_WAIT: Pair = Pair {
    cluster: Definition::histogram(
        "kueue_admission_checks_wait_time_seconds",
        CLASS,
        BUCKETS,
        "From the quota reservation of a workload with admission checks until it was admitted.",
    ),
    local: Definition::histogram(
        "kueue_local_queue_admission_checks_wait_time_seconds",
        LOCAL_CLASS,
        BUCKETS,
        "From the quota reservation of a workload of a LocalQueue with admission checks until it was admitted.",
    ),
};
static EXECUTION: Pair = Pair {
    cluster: Definition::histogram(
        "kueue_execution_time_seconds",
        CLASS,
        LONG_BUCKETS,
        "From the last admission of a workload until it finished.",
    ),
    local: Definition::histogram(
        "kueue_local_queue_execution_time_seconds",
        LOCAL_CLASS,
        LONG_BUCKETS,
        "From the last admission of a workload of a LocalQueue until it finished.",
    ),
};
static READY_WAIT: Pair = Pair {
    cluster: Definition::histogram(
        "kueue_ready_wait_time_seconds",
        CLASS,
        BUCKETS,
        "From when a workload was made or requeued until its pods were ready.",
    ),
    local: Definition::histogram(
        "kueue_local_queue_ready_wait_time_seconds",
        LOCAL_CLASS,
        BUCKETS,
        "From when a workload of a LocalQueue was made or requeued until its pods were ready.",
    ),
};
static ADMITTED_READY: Pair = Pair {
    cluster: Definition::histogram(
        "kueue_admitted_until_ready_wait_time_seconds",
        CLASS,
        BUCKETS,
        "From the admission of a workload until its pods were ready.",
    ),
    local: Definition::histogram(
        "kueue_local_queue_admitted_until_ready_wait_time_seconds",
        LOCAL_CLASS,
        BUCKETS,
        "From the admission of a workload of a LocalQueue until its pods were ready.",
    ),
};
const EVICTION: &[&str] = &["cluster_queue", "reason", "underlying_cause", "priority_class", "replica_role"];
static EVICTED: Definition = Definition::counter("kueue_evicted_workloads_total", EVICTION, "Evictions of workloads.");
static EVICTED_ONCE: Definition = Definition::counter(
    "kueue_evicted_workloads_once_total",
    EVICTION,
    "Workloads that were evicted for a reason at least once.",
);
static LOCAL_EVICTED: Definition = Definition::counter(
    "kueue_local_queue_evicted_workloads_total",
    &["name", "namespace", "reason", "underlying_cause", "priority_class", "replica_role"],
    "Evictions of workloads of a LocalQueue.",
);
static READY_EVICTED: Definition = Definition::histogram(
    "kueue_pods_ready_to_evicted_time_seconds",
    &["cluster_queue", "reason", "underlying_cause", "replica_role"],
    BUCKETS,
    "From when the pods of a workload were ready until it was evicted.",
);
static EVICTION_LATENCY: Definition = Definition::histogram(
    "kueue_workload_eviction_latency_seconds",
    &["cluster_queue", "reason", "replica_role"],
    BUCKETS,
    "From the eviction of a workload until its quota was free.",
);
static PREEMPTED: Definition = Definition::counter(
    "kueue_preempted_workloads_total",
    &["preempting_cluster_queue", "reason", "replica_role"],
    "Workloads that were preempted for one of a ClusterQueue.",
);
static SLICES: Definition = Definition::counter(
    "kueue_replaced_workload_slices_total",
    &["cluster_queue", "replica_role"],
    "Workload slices that larger ones replaced.",
);
static SUBTREE_ADMITTED: Definition = Definition::counter(
    "kueue_cohort_subtree_admitted_workloads_total",
    &["cohort", "priority_class", "replica_role"],
    "Admissions of workloads in a Cohort and those below it.",
);
static CREATION: Definition = Definition::histogram(
    "kueue_workload_creation_latency_seconds",
    &["job_kind", "replica_role"],
    LATENCY_BUCKETS,
    "From the creation of a job until its workload was made.",
);

/// What was last seen of a workload.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Seen {
    /// Its LocalQueue.
    pub(super) queue: Key,
    class: Box<str>,
    /// The ClusterQueue that holds quota for it, or did last.
    pub(super) cluster_queue: Box<str>,
    queued: Timestamp,
    reserved: Option<Timestamp>,
    admitted: Option<Timestamp>,
    ready: Option<Timestamp>,
    evicted: Option<Timestamp>,
    preempted: Option<Timestamp>,
    evictions: BTreeMap<(String, String), i32>,
    pub(super) finished: bool,
    /// Why it is not admitted, and why no quota is reserved.
    pub(super) unadmitted: Option<(Box<str>, Box<str>)>,
}

/// What is counted, and what that needs to know.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Kueue {
    pub(super) counted: Snapshot,
    pub(super) workloads: BTreeMap<Key, Seen>,
    /// Workloads by uid, with the ClusterQueue of each.
    uids: BTreeMap<Box<str>, Key>,
    /// The ClusterQueue of each LocalQueue.
    pub(super) local_queues: BTreeMap<Key, Box<str>>,
    /// The Cohort of each ClusterQueue, and of each Cohort.
    pub(super) parents: BTreeMap<Node, Box<str>>,
    /// When jobs were made, by uid.
    jobs: BTreeMap<Box<str>, Timestamp>,
}

/// A node of the tree of Cohorts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Node {
    ClusterQueue(Box<str>),
    Cohort(Box<str>),
}

fn condition<'a>(workload: &'a Workload, kind: &str) -> Option<&'a Condition> {
    workload.status.conditions.iter().find(|c| c.type_ == kind)
}

fn since(workload: &Workload, kind: &str) -> Option<Timestamp> {
    condition(workload, kind).filter(|c| c.status == "True").map(|c| convert::timestamp(&c.last_transition_time))
}

fn key(meta: &ObjectMeta) -> Key {
    Key::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

impl Seen {
    fn of(workload: &Workload, before: Option<&Self>) -> Self {
        let meta = &workload.metadata;
        let created = meta.creation_timestamp.as_ref().map_or(Timestamp::MIN, convert::timestamp);
        let requeued = condition(workload, "Requeued").map(|c| convert::timestamp(&c.last_transition_time));
        let held = workload.status.admission.as_ref().map(|admission| admission.cluster_queue.as_str());
        let reason = |kind: &str| condition(workload, kind).map_or("", |c| c.reason.as_str());
        let admitted = since(workload, "Admitted");
        let finished = since(workload, "Finished").is_some();
        let evictions = workload.status.scheduling_stats.iter().flat_map(|stats| &stats.evictions);
        Self {
            queue: Key::new(meta.namespace.as_deref().unwrap_or_default(), workload.spec.queue_name.as_str()),
            class: workload.spec.priority_class_ref.as_ref().map_or("", |class| class.name.as_str()).into(),
            cluster_queue: held.map_or_else(|| before.map(|b| b.cluster_queue.clone()).unwrap_or_default(), Into::into),
            queued: requeued.or(before.map(|b| b.queued)).unwrap_or(created),
            reserved: since(workload, "QuotaReserved"),
            admitted,
            ready: since(workload, "PodsReady"),
            evicted: since(workload, "Evicted"),
            preempted: since(workload, "Preempted"),
            evictions: evictions.map(|e| ((e.reason.clone(), e.underlying_cause.clone()), e.count)).collect(),
            finished,
            unadmitted: (admitted.is_none() && !finished)
                .then(|| (reason("Admitted").into(), reason("QuotaReserved").into())),
        }
    }
}

/// Where a series goes: under a ClusterQueue and, if asked for, its LocalQueue.
struct Place<'a> {
    seen: &'a Seen,
    role: &'a str,
    local: bool,
}

impl Place<'_> {
    fn add(&self, counted: &mut Snapshot, pair: &'static Pair) {
        let Self { seen, role, local } = self;
        counted.add(&pair.cluster, &[&seen.cluster_queue, &seen.class, role], 1.0);
        if *local {
            counted.add(&pair.local, &[&seen.queue.name, &seen.queue.namespace, &seen.class, role], 1.0);
        }
    }

    fn observe(&self, counted: &mut Snapshot, pair: &'static Pair, from: Timestamp, to: Timestamp) {
        let Self { seen, role, local } = self;
        let wait = to_seconds(to.micros_since(from).max(0));
        counted.observe(&pair.cluster, &[&seen.cluster_queue, &seen.class, role], wait);
        if *local {
            counted.observe(&pair.local, &[&seen.queue.name, &seen.queue.namespace, &seen.class, role], wait);
        }
    }
}

impl Kueue {
    pub(super) fn job(&mut self, meta: &ObjectMeta) {
        if let (Some(uid), Some(time)) = (&meta.uid, &meta.creation_timestamp) {
            self.jobs.insert(uid.as_str().into(), convert::timestamp(time));
        }
    }

    pub(super) fn job_gone(&mut self, meta: &ObjectMeta) {
        self.jobs.remove(meta.uid.as_deref().unwrap_or_default());
    }

    pub(super) fn workload_gone(&mut self, workload: &Workload) {
        self.workloads.remove(&key(&workload.metadata));
        self.uids.remove(workload.metadata.uid.as_deref().unwrap_or_default());
    }

    /// The Cohorts above a ClusterQueue, from the nearest on; each once, if they form a circle.
    pub(super) fn cohorts_above(&self, node: Node) -> Vec<Box<str>> {
        let mut above: Vec<Box<str>> = Vec::new();
        let mut node = node;
        while let Some(parent) = self.parents.get(&node).filter(|parent| !above.contains(parent)) {
            above.push(parent.clone());
            node = Node::Cohort(parent.clone());
        }
        above
    }

    /// A workload is there or was changed: counts what happened to it. Of one that is seen for the first time nothing is
    /// known to have happened since, but that it was made if it is quite new.
    pub(super) fn workload(&mut self, workload: &Workload, role: &str, local: bool, wait_for_pods: bool) {
        let id = key(&workload.metadata);
        let before = self.workloads.get(&id).filter(|_| {
            self.uids.get(workload.metadata.uid.as_deref().unwrap_or_default()).is_some_and(|known| *known == id)
        });
        let seen = Seen::of(workload, before);
        let Some(before) = before.cloned() else {
            if workload.status.conditions.is_empty() {
                self.created(workload, role);
            }
            self.uids.insert(workload.metadata.uid.as_deref().unwrap_or_default().into(), id.clone());
            self.workloads.insert(id, seen);
            return;
        };
        let place = Place { seen: &seen, role, local };
        let counted = &mut self.counted;
        if let Some(at) = seen.reserved.filter(|_| before.reserved.is_none()) {
            place.add(counted, &RESERVED);
            place.observe(counted, &RESERVED_WAIT, before.queued, at);
        }
        let mut newly_admitted = false;
        if let Some(at) = seen.admitted.filter(|_| before.admitted.is_none()) {
            newly_admitted = true;
            place.add(counted, &ADMITTED);
            place.observe(counted, &ADMISSION_WAIT, before.queued, at);
            if !workload.status.admission_checks.is_empty() {
                place.observe(counted, &CHECKS_WAIT, seen.reserved.unwrap_or(at), at);
            }
        }
        // Pods that come back after one failed were ready before: that is no start.
        let started = condition(workload, "PodsReady").is_some_and(|c| c.reason != "Recovered");
        if let Some(at) = seen.ready.filter(|_| before.ready.is_none() && wait_for_pods && started) {
            place.observe(counted, &READY_WAIT, before.queued, at);
            place.observe(counted, &ADMITTED_READY, seen.admitted.unwrap_or(at), at);
        }
        if seen.finished && !before.finished {
            let end = condition(workload, "Finished");
            if end.is_some_and(|c| c.reason == "WorkloadSliceReplaced") {
                counted.add(&SLICES, &[&seen.cluster_queue, role], 1.0);
            }
            if !seen.cluster_queue.is_empty() {
                place.add(counted, &FINISHED);
                let end = end.map(|c| convert::timestamp(&c.last_transition_time));
                if let (Some(from), Some(to)) = (seen.admitted.or(before.admitted), end) {
                    place.observe(counted, &EXECUTION, from, to);
                }
            }
        }
        self.evictions(&before, &seen, role, local);
        self.preemption(workload, &before, &seen, role);
        if newly_admitted {
            for cohort in self.cohorts_above(Node::ClusterQueue(seen.cluster_queue.clone())) {
                self.counted.add(&SUBTREE_ADMITTED, &[&cohort, &seen.class, role], 1.0);
            }
        }
        self.workloads.insert(id, seen);
    }

    fn created(&mut self, workload: &Workload, role: &str) {
        let owner = workload.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
        let Some(owner) = owner else { return };
        let made = workload.metadata.creation_timestamp.as_ref().map(convert::timestamp);
        if let (Some(job), Some(made)) = (self.jobs.get(owner.uid.as_str()), made) {
            let wait = to_seconds(made.micros_since(*job).max(0));
            self.counted.observe(&CREATION, &[&owner.kind, role], wait);
        }
    }

    fn evictions(&mut self, before: &Seen, seen: &Seen, role: &str, local: bool) {
        let counted = &mut self.counted;
        let queue = &*before.cluster_queue;
        for ((reason, cause), count) in &seen.evictions {
            let known = before.evictions.get(&(reason.clone(), cause.clone())).copied().unwrap_or(0);
            let more = count.saturating_sub(known);
            if more <= 0 {
                continue;
            }
            let labels = [queue, reason, cause, &seen.class, role];
            counted.add(&EVICTED, &labels, f64::from(more));
            if known == 0 {
                counted.add(&EVICTED_ONCE, &labels, 1.0);
            }
            if local {
                let labels = [&*seen.queue.name, &*seen.queue.namespace, reason, cause, &seen.class, role];
                counted.add(&LOCAL_EVICTED, &labels, f64::from(more));
            }
            if let (Some(ready), Some(evicted)) = (before.ready, seen.evicted) {
                let wait = to_seconds(evicted.micros_since(ready).max(0));
                counted.observe(&READY_EVICTED, &[queue, reason, cause, role], wait);
            }
        }
    }

    /// Counts a preemption for the ClusterQueue of the preemptor, and the time until the quota of an evicted workload is free.
    fn preemption(&mut self, workload: &Workload, before: &Seen, seen: &Seen, role: &str) {
        if let Some(preempted) = condition(workload, "Preempted").filter(|_| seen.preempted.is_some())
            && before.preempted != seen.preempted
        {
            let path = preempted.message.split("preemptor path: ").nth(1).and_then(|rest| rest.split(';').next());
            let queue = path.and_then(|path| path.trim().rsplit('/').next()).unwrap_or(&before.cluster_queue);
            self.counted.add(&PREEMPTED, &[queue, &preempted.reason, role], 1.0);
        }
        if let (Some(evicted), Some(_), None) = (seen.evicted, before.reserved, seen.reserved) {
            let reason = condition(workload, "Evicted").map_or("", |c| c.reason.as_str());
            let reason = if reason.starts_with("Deactivated") { "Deactivated" } else { reason };
            let free = condition(workload, "QuotaReserved").map(|c| convert::timestamp(&c.last_transition_time));
            let wait = to_seconds(free.unwrap_or(evicted).micros_since(evicted).max(0));
            self.counted.observe(&EVICTION_LATENCY, &[&before.cluster_queue, reason, role], wait);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use slicegate_api::{Kind, convert};
    use slicegate_workload::Timestamp;

    use crate::Change;
    use crate::metrics::{Metrics, MetricsOptions};

    const START: i64 = 1_767_225_600;

    fn time(seconds: i64) -> Value {
        serde_json::to_value(convert::time_to_api(Timestamp::from_seconds(START + seconds))).unwrap()
    }

    /// A workload with conditions: type, status, reason and when it last changed.
    fn workload(conditions: &[(&str, bool, &str, i64)]) -> Change {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(kind, on, reason, at)| {
                json!({"type": kind, "status": if *on { "True" } else { "False" }, "reason": reason, "message": "",
                    "lastTransitionTime": time(*at)})
            })
            .collect();
        let object = Kind::Workload.read(json!({
            "metadata": {"name": "w", "namespace": "n", "uid": "u", "creationTimestamp": time(0)},
            "spec": {"queueName": "lq", "podSets": []},
            "status": {"admission": {"clusterQueue": "cq", "podSetAssignments": []}, "conditions": conditions}
        }));
        Change::Applied(object.unwrap())
    }

    #[test]
    fn pods_that_come_back_have_not_started_again() {
        let mut metrics = Metrics::new(MetricsOptions { wait_for_pods_ready: true, ..MetricsOptions::default() });
        let admitted = [("QuotaReserved", true, "QuotaReserved", 10), ("Admitted", true, "Admitted", 10)];
        let with = |ready: (&'static str, bool, &'static str, i64)| workload(&[admitted[0], admitted[1], ready]);
        for change in [
            workload(&[]),
            workload(&admitted),
            with(("PodsReady", true, "Started", 30)),
            with(("PodsReady", false, "WaitForRecovery", 500)),
            with(("PodsReady", true, "Recovered", 900)),
        ] {
            metrics.observe(Timestamp::from_seconds(START), &change);
        }
        let now = Timestamp::from_seconds(START + 1_000);
        let text = metrics.gather(now, None).prometheus(now);
        let value = |name: &str| {
            let line = text.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("no {name}: {text}"));
            line.split_once("} ").unwrap().1.to_owned()
        };
        assert_eq!(value("kueue_ready_wait_time_seconds_count"), "1");
        assert_eq!(value("kueue_ready_wait_time_seconds_sum"), "30");
        assert_eq!(value("kueue_admitted_until_ready_wait_time_seconds_sum"), "20");
    }
}
