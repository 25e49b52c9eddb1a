//! Metrics of JobSets: those of kube-state-metrics and of JobSet's own controller, and GKE's availability metrics.
//!
//! A JobSet is available while every Job of its accelerator replicated job is ready or has succeeded. GKE measures only JobSets
//! with exactly one replicated job that uses TPUs or GPUs. Being suspended counts as an interruption, whoever suspended it.
//! States that do not outlast their moment do not count.

use std::collections::BTreeMap;
use std::sync::Arc;

use slicegate_api::jobset::JobSet;
use slicegate_api::{Condition, convert};
use slicegate_workload::{Key, Timestamp};

use super::family::{Definition, Histogram, LabelValues, Snapshot, Value};
use super::text::{count_to_f64, to_seconds};

const REPLICATED_JOB: &[&str] = &["namespace", "jobset_name", "replicated_job_name"];
const JOBSET: &[&str] = &["namespace", "jobset_name"];
const ENTITY: &[&str] = &["monitored_resource", "cluster_name", "entity_namespace", "entity_type", "entity_name"];
const ENTITY_BUCKET: &[&str] =
    &["monitored_resource", "cluster_name", "entity_namespace", "entity_type", "entity_name", "le"];

static SPECIFIED: Definition =
    Definition::gauge("kube_jobset_specified_replicas", REPLICATED_JOB, "Jobs that a replicated job is to have.");
static READY: Definition =
    Definition::gauge("kube_jobset_ready_replicas", REPLICATED_JOB, "Jobs whose pods are all ready or have succeeded.");
static SUCCEEDED: Definition =
    Definition::gauge("kube_jobset_succeeded_replicas", REPLICATED_JOB, "Jobs that have succeeded.");
static FAILED: Definition = Definition::gauge("kube_jobset_failed_replicas", REPLICATED_JOB, "Jobs that have failed.");
static ACTIVE: Definition =
    Definition::gauge("kube_jobset_active_replicas", REPLICATED_JOB, "Jobs with a pod that waits or runs.");
static SUSPENDED: Definition =
    Definition::gauge("kube_jobset_suspended_replicas", REPLICATED_JOB, "Jobs that are suspended.");
static CONDITION: Definition = Definition::gauge(
    "kube_jobset_status_condition",
    &["namespace", "jobset_name", "condition", "status"],
    "Conditions of a JobSet: 1 for the status that each has.",
);
static RESTARTS: Definition = Definition::gauge("kube_jobset_restarts", JOBSET, "How often a JobSet started again.");
static COMPLETED_TOTAL: Definition =
    Definition::counter("jobset_completed_total", &["jobset_name", "namespace"], "JobSets that have completed.");
static FAILED_TOTAL: Definition =
    Definition::counter("jobset_failed_total", &["jobset_name", "namespace"], "JobSets that have failed.");

static UPTIME: Definition =
    Definition::gauge("kubernetes_io:jobset_uptime", ENTITY, "Seconds for which a JobSet was available, all together.");
static STARTUP: Definition = Definition::gauge(
    "kubernetes_io:jobset_startup_duration",
    ENTITY,
    "Seconds from the creation of a JobSet until it was available first.",
);

/// The three parts of a distribution of samples since the last gathering.
struct Distribution {
    bucket: Definition,
    sum: Definition,
    count: Definition,
}

static RECOVERIES: Distribution = Distribution {
    bucket: Definition::news(
        "kubernetes_io:jobset_times_to_recover_bucket",
        ENTITY_BUCKET,
        "Recoveries from downtime that ended since the last sample and took at most so many seconds.",
    ),
    sum: Definition::news(
        "kubernetes_io:jobset_times_to_recover_sum",
        ENTITY,
        "Seconds that the recoveries took that ended since the last sample.",
    ),
    count: Definition::news(
        "kubernetes_io:jobset_times_to_recover_count",
        ENTITY,
        "Recoveries from downtime that ended since the last sample.",
    ),
};
static INTERRUPTIONS: Distribution = Distribution {
    bucket: Definition::news(
        "kubernetes_io:jobset_times_between_interruptions_bucket",
        ENTITY_BUCKET,
        "Times between interruptions that ended since the last sample and were at most so many seconds.",
    ),
    sum: Definition::news(
        "kubernetes_io:jobset_times_between_interruptions_sum",
        ENTITY,
        "Seconds of the times between interruptions that ended since the last sample.",
    ),
    count: Definition::news(
        "kubernetes_io:jobset_times_between_interruptions_count",
        ENTITY,
        "Times between interruptions that ended since the last sample.",
    ),
};

/// Bounds of the distributions, in seconds: from the shortest time that counts to the longest.
const BOUNDS: &[f64] = &[
    60.0, 120.0, 300.0, 600.0, 1_200.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0, 28_800.0, 43_200.0, 86_400.0, 172_800.0,
    345_600.0, 604_800.0,
];
/// Times below and above do not count, in microseconds.
const SHORTEST: i64 = 60_000_000;
const LONGEST: i64 = 7 * 86_400_000_000;

const ACCELERATORS: [&str; 2] = ["google.com/tpu", "nvidia.com/gpu"];

/// How a JobSet ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Completed,
    Failed,
}

/// What was last seen of a JobSet.
#[derive(Clone, PartialEq, Debug)]
struct Watched {
    object: Arc<JobSet>,
    created: Timestamp,
    /// Whether GKE measures its availability.
    measured: bool,
    up: bool,
    /// Since when it is up or down.
    since: Timestamp,
    /// All that it was up before.
    uptime: i64,
    first_up: Option<Timestamp>,
    /// How long it took until then, if that is known.
    startup: Option<i64>,
    /// Whether it was up already when it was seen first, nobody here knows since when: another controller may.
    began_unseen: bool,
    end: Option<End>,
    /// What was seen last, and when; it counts once the moment is over.
    seen: Option<(Timestamp, bool, Option<End>)>,
}

/// Counts what becomes of JobSets.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct JobSets {
    watched: BTreeMap<Key, Watched>,
    ends: BTreeMap<(Key, bool), u64>,
    recoveries: BTreeMap<Key, Histogram>,
    interruptions: BTreeMap<Key, Histogram>,
}

fn uses_accelerators(template: &slicegate_api::JobTemplateSpec) -> bool {
    let pod = template.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    pod.into_iter().flat_map(|spec| &spec.containers).filter_map(|c| c.resources.as_ref()).any(|resources| {
        let all = resources.limits.iter().chain(&resources.requests).flatten();
        let mut used = all.filter(|(name, _)| ACCELERATORS.contains(&name.as_str()));
        used.any(|(_, quantity)| quantity.0 != "0")
    })
}

/// The replicated job that decides over availability, if there is exactly one.
fn accelerated(jobset: &JobSet) -> Option<&str> {
    let mut all = jobset.spec.replicated_jobs.iter().filter(|job| uses_accelerators(&job.template));
    let first = all.next()?;
    all.next().is_none().then_some(first.name.as_str())
}

fn is_true(conditions: &[Condition], kind: &str) -> bool {
    conditions.iter().any(|c| c.type_ == kind && c.status == "True")
}

fn end_of(jobset: &JobSet) -> Option<End> {
    if is_true(&jobset.status.conditions, "Completed") {
        Some(End::Completed)
    } else if is_true(&jobset.status.conditions, "Failed") {
        Some(End::Failed)
    } else {
        None
    }
}

fn is_up(jobset: &JobSet) -> bool {
    let Some(name) = accelerated(jobset) else { return false };
    let wanted =
        jobset.spec.replicated_jobs.iter().find(|job| job.name == name).map_or(1, |job| job.replicas.unwrap_or(1));
    let status = jobset.status.replicated_jobs_status.iter().find(|status| status.name == name);
    let ready = status.map_or(0, |status| status.ready.saturating_add(status.succeeded));
    wanted > 0 && ready >= wanted && jobset.spec.suspend != Some(true)
}

fn counts(micros: i64) -> bool {
    (SHORTEST..=LONGEST).contains(&micros)
}

impl JobSets {
    /// A JobSet is there or was changed.
    pub(super) fn observe(&mut self, now: Timestamp, jobset: &Arc<JobSet>) {
        let meta = &jobset.metadata;
        let key = Key::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
        self.settle(&key, now);
        let created = meta.creation_timestamp.as_ref().map_or(now, convert::timestamp);
        let same = |w: &Watched| w.object.metadata.uid == meta.uid;
        if !self.watched.get(&key).is_some_and(same) {
            let watched = Watched {
                object: jobset.clone(),
                created,
                measured: false,
                up: false,
                since: created,
                uptime: 0,
                first_up: None,
                startup: None,
                began_unseen: is_up(jobset) && now.micros_since(created) > SHORTEST,
                end: None,
                seen: None,
            };
            self.watched.insert(key.clone(), watched);
        }
        let Some(watched) = self.watched.get_mut(&key) else { return };
        watched.object = jobset.clone();
        watched.measured = accelerated(jobset).is_some();
        watched.seen = Some((now, is_up(jobset), end_of(jobset)));
    }

    /// A JobSet is gone.
    pub(super) fn forget(&mut self, now: Timestamp, jobset: &JobSet) {
        let meta = &jobset.metadata;
        let key = Key::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
        self.settle(&key, now);
        self.watched.remove(&key);
    }

    /// What was seen of a JobSet at a moment that is over counts.
    fn settle(&mut self, key: &Key, now: Timestamp) {
        let Some(watched) = self.watched.get_mut(key) else { return };
        let Some((at, up, end)) = watched.seen.filter(|(at, ..)| *at < now) else { return };
        watched.seen = None;
        if watched.end.is_some() {
            return;
        }
        let lasted = at.micros_since(watched.since);
        let interrupted = watched.up && (end == Some(End::Failed) || (end.is_none() && !up));
        if watched.up && (end.is_some() || !up) {
            watched.uptime = watched.uptime.saturating_add(lasted);
        }
        let is_known = !watched.began_unseen;
        watched.began_unseen &= !interrupted;
        if interrupted && is_known && watched.measured && counts(lasted) {
            let histogram = self.interruptions.entry(key.clone()).or_insert_with(|| Histogram::new(BOUNDS));
            histogram.observe(to_seconds(lasted));
        }
        if end.is_none() && up && !watched.up {
            if watched.first_up.is_none() {
                watched.first_up = Some(at);
                watched.startup = (!watched.began_unseen).then(|| at.micros_since(watched.created));
            } else if watched.measured && counts(lasted) {
                let histogram = self.recoveries.entry(key.clone()).or_insert_with(|| Histogram::new(BOUNDS));
                histogram.observe(to_seconds(lasted));
            }
        }
        let now_up = up && end.is_none();
        if now_up != watched.up {
            watched.since = at;
        }
        watched.up = now_up;
        watched.end = end;
        if let Some(end) = end {
            let count = self.ends.entry((key.clone(), end == End::Completed)).or_insert(0);
            *count = count.saturating_add(1);
        }
    }

    /// Everything at this moment; the distributions hold what came to them since the last time.
    pub(super) fn gather(&mut self, now: Timestamp, cluster: &str, snapshot: &mut Snapshot) {
        // What is seen at this very moment is how things are.
        for key in self.watched.keys().cloned().collect::<Vec<_>>() {
            self.settle(&key, now.plus_micros(1));
        }
        for (key, watched) in &self.watched {
            let jobset = &watched.object;
            let (namespace, name) = (&*key.namespace, &*key.name);
            for job in &jobset.spec.replicated_jobs {
                let labels = [namespace, name, job.name.as_str()];
                snapshot.set(&SPECIFIED, &labels, f64::from(job.replicas.unwrap_or(1)));
            }
            for status in &jobset.status.replicated_jobs_status {
                let labels = [namespace, name, status.name.as_str()];
                for (definition, value) in [
                    (&READY, status.ready),
                    (&SUCCEEDED, status.succeeded),
                    (&FAILED, status.failed),
                    (&ACTIVE, status.active),
                    (&SUSPENDED, status.suspended),
                ] {
                    snapshot.set(definition, &labels, f64::from(value));
                }
            }
            for condition in &jobset.status.conditions {
                for status in ["True", "False", "Unknown"] {
                    let is = f64::from(u8::from(condition.status == status));
                    let labels = [namespace, name, condition.type_.as_str(), &status.to_lowercase()];
                    snapshot.set(&CONDITION, &labels, is);
                }
            }
            snapshot.set(&RESTARTS, &[namespace, name], f64::from(jobset.status.restarts.unwrap_or(0)));
            if watched.first_up.is_none() || !watched.measured {
                continue;
            }
            let labels = entity(cluster, key);
            let before = to_seconds(watched.uptime);
            let value =
                if watched.up { Value::Clock { at: watched.since, seconds: before } } else { Value::Number(before) };
            snapshot.put(&UPTIME, labels.clone(), value);
            if let Some(startup) = watched.startup {
                snapshot.put(&STARTUP, labels, Value::Number(to_seconds(startup)));
            }
        }
        for ((key, well), count) in &self.ends {
            let definition = if *well { &COMPLETED_TOTAL } else { &FAILED_TOTAL };
            snapshot.set(definition, &[&key.name, &key.namespace], count_to_f64(*count));
        }
        for (distribution, samples) in [
            (&RECOVERIES, std::mem::take(&mut self.recoveries)),
            (&INTERRUPTIONS, std::mem::take(&mut self.interruptions)),
        ] {
            for (key, histogram) in samples {
                let labels = entity(cluster, &key);
                snapshot.put(&distribution.sum, labels.clone(), Value::Number(histogram.sum()));
                snapshot.put(&distribution.count, labels.clone(), Value::Number(count_to_f64(histogram.count())));
                for (bound, count) in histogram.cumulative() {
                    let bound = if bound.is_infinite() { "+Inf".to_owned() } else { bound.to_string() };
                    let mut labels = labels.clone();
                    labels.push(bound.into());
                    snapshot.put(&distribution.bucket, labels, Value::Number(count_to_f64(count)));
                }
            }
        }
    }
}

fn entity(cluster: &str, key: &Key) -> LabelValues {
    ["k8s_entity", cluster, &key.namespace, "jobset", &key.name].map(Into::into).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(1_000_000 + seconds)
    }

    /// A JobSet of two slices of which so many are ready.
    fn jobset(ready: i32, condition: Option<&str>) -> Arc<JobSet> {
        let conditions: Vec<_> = condition
            .iter()
            .map(|kind| json!({"type": kind, "status": "True", "reason": "R", "lastTransitionTime": "1970-01-12T13:46:40Z"}))
            .collect();
        let container = json!({"name": "c", "resources": {"limits": {"google.com/tpu": "4"}}});
        let value = json!({
            "metadata": {"name": "train", "namespace": "ml", "uid": "u", "creationTimestamp": "1970-01-12T13:46:40Z"},
            "spec": {"replicatedJobs": [
                {"name": "driver", "replicas": 1, "template": {"spec": {"template": {"spec": {"containers": [{"name": "d"}]}}}}},
                {"name": "slice", "replicas": 2, "template": {"spec": {"template": {"spec": {"containers": [container]}}}}}
            ]},
            "status": {"restarts": 3, "conditions": conditions, "replicatedJobsStatus": [
                {"name": "driver", "ready": 1, "active": 1},
                {"name": "slice", "ready": ready, "active": 2}
            ]}
        });
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn numbers(snapshot: &Snapshot, what: &str) -> Option<(f64, f64)> {
        let labels = ["k8s_entity", "c", "ml", "jobset", "train"];
        let sum = snapshot.number(&format!("kubernetes_io:jobset_{what}_sum"), &labels)?;
        Some((sum, snapshot.number(&format!("kubernetes_io:jobset_{what}_count"), &labels)?))
    }

    fn gather(jobsets: &mut JobSets, seconds: i64) -> Snapshot {
        let mut snapshot = Snapshot::default();
        jobsets.gather(at(seconds), "c", &mut snapshot);
        snapshot
    }

    #[test]
    fn availability_is_measured_as_gke_defines_it() {
        let mut jobsets = JobSets::default();
        // Provisioned for 300 s, up for 1000 s, down for 200 s, up for 400 s, down for 30 s, up for 50 s, down for 90 s, up for
        // 500 s, failed.
        for (seconds, ready) in
            [(0, 0), (100, 1), (300, 2), (1300, 1), (1500, 2), (1900, 0), (1930, 2), (1980, 1), (2070, 2)]
        {
            jobsets.observe(at(seconds), &jobset(ready, None));
        }
        jobsets.observe(at(2570), &jobset(0, Some("Failed")));
        let snapshot = gather(&mut jobsets, 2600);
        assert_eq!(numbers(&snapshot, "times_to_recover"), Some((290.0, 2.0)), "30 s are too short");
        assert_eq!(numbers(&snapshot, "times_between_interruptions"), Some((1900.0, 3.0)), "50 s are too short");
        let labels = ["k8s_entity", "c", "ml", "jobset", "train"];
        assert_eq!(snapshot.number("kubernetes_io:jobset_uptime", &labels), Some(1950.0));
        assert_eq!(snapshot.number("kubernetes_io:jobset_startup_duration", &labels), Some(300.0));
        let bucket = |le| {
            let labels = ["k8s_entity", "c", "ml", "jobset", "train", le];
            snapshot.number("kubernetes_io:jobset_times_to_recover_bucket", &labels)
        };
        assert_eq!([bucket("60"), bucket("120"), bucket("300"), bucket("+Inf")], [0.0, 1.0, 2.0, 2.0].map(Some));
        assert_eq!(snapshot.number("jobset_failed_total", &["train", "ml"]), Some(1.0));
        assert_eq!(numbers(&gather(&mut jobsets, 2700), "times_to_recover"), None, "each sample is told once");
    }

    #[test]
    fn the_last_uptime_of_a_jobset_that_completes_does_not_count() {
        let mut jobsets = JobSets::default();
        jobsets.observe(at(0), &jobset(0, None));
        jobsets.observe(at(100), &jobset(2, None));
        // Its pods end and the JobSet is completed at the same moment.
        jobsets.observe(at(900), &jobset(0, None));
        jobsets.observe(at(900), &jobset(0, Some("Completed")));
        let snapshot = gather(&mut jobsets, 1000);
        assert_eq!(numbers(&snapshot, "times_between_interruptions"), None);
        assert_eq!(numbers(&snapshot, "times_to_recover"), None, "provisioning is no recovery");
        assert_eq!(snapshot.number("jobset_completed_total", &["train", "ml"]), Some(1.0));
    }

    #[test]
    fn a_time_of_more_than_a_week_does_not_count() {
        let mut jobsets = JobSets::default();
        let week = 7 * 86_400;
        jobsets.observe(at(0), &jobset(2, None));
        jobsets.observe(at(week), &jobset(0, None));
        jobsets.observe(at(2 * week + 1), &jobset(2, None));
        let snapshot = gather(&mut jobsets, 2 * week + 60);
        assert_eq!(numbers(&snapshot, "times_between_interruptions").map(|(_, count)| count), Some(1.0));
        assert_eq!(numbers(&snapshot, "times_to_recover"), None);
    }

    #[test]
    fn uptime_grows_while_the_jobset_is_available() {
        let mut jobsets = JobSets::default();
        jobsets.observe(at(0), &jobset(2, None));
        let text = gather(&mut jobsets, 60).open_metrics(at(60));
        let line = text.lines().find(|l| l.starts_with("kubernetes_io:jobset_uptime{")).unwrap();
        assert!(line.ends_with(" 60"), "{line}");
    }

    /// Another controller was there before.
    #[test]
    fn what_began_before_anybody_looked_is_not_made_up() {
        let mut jobsets = JobSets::default();
        for (seconds, ready) in [(5000, 2), (5200, 0), (5400, 2), (5900, 0)] {
            jobsets.observe(at(seconds), &jobset(ready, None));
        }
        let snapshot = gather(&mut jobsets, 6000);
        let labels = ["k8s_entity", "c", "ml", "jobset", "train"];
        assert_eq!(snapshot.number("kubernetes_io:jobset_startup_duration", &labels), None);
        assert_eq!(snapshot.number("kubernetes_io:jobset_uptime", &labels), Some(700.0));
        assert_eq!(numbers(&snapshot, "times_to_recover"), Some((200.0, 1.0)));
        let between = numbers(&snapshot, "times_between_interruptions");
        assert_eq!(between, Some((500.0, 1.0)), "of the first it is not known when it began");
    }

    #[test]
    fn two_accelerated_replicated_jobs_are_not_measured() {
        let mut two = (*jobset(2, None)).clone();
        let slice = two.spec.replicated_jobs[1].clone();
        two.spec.replicated_jobs.push(slicegate_api::jobset::ReplicatedJob { name: "other".to_owned(), ..slice });
        let mut jobsets = JobSets::default();
        jobsets.observe(at(0), &Arc::new(two));
        let text = gather(&mut jobsets, 60).open_metrics(at(60));
        assert!(!text.contains("kubernetes_io:") && text.contains("kube_jobset_specified_replicas"), "{text}");
    }

    #[test]
    fn states_are_told_as_kube_state_metrics_does() {
        let mut jobsets = JobSets::default();
        jobsets.observe(at(0), &jobset(1, Some("Suspended")));
        let snapshot = gather(&mut jobsets, 0);
        assert_eq!(snapshot.number("kube_jobset_ready_replicas", &["ml", "train", "slice"]), Some(1.0));
        assert_eq!(snapshot.number("kube_jobset_specified_replicas", &["ml", "train", "slice"]), Some(2.0));
        assert_eq!(snapshot.number("kube_jobset_restarts", &["ml", "train"]), Some(3.0));
        let condition = |status| snapshot.number("kube_jobset_status_condition", &["ml", "train", "Suspended", status]);
        assert_eq!([condition("true"), condition("false"), condition("unknown")], [1.0, 0.0, 0.0].map(Some));
    }
}
