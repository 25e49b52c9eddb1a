//! Whole scheduling cycles: objects before, cycles with controllers between them, everything after.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;
use slicegate_admission::lifecycle::{At, FinishReason, finish, needs_second_pass, release};
use slicegate_admission::{
    AdmissionFairSharing, CheckSpec, Config, Engine, Event, FairSharing, Outcome as Decided, WaitForPodsReady, Written,
};
use slicegate_tests::objects;
use slicegate_workload::{
    Admission, BorrowWithinCohort, ConditionType, FairSharingStrategy, Key, LimitRange, ResourceList, Status,
    Timestamp, TransformStrategy, Transformation, Workload, WorkloadStatus,
};

use crate::placement::{node, other_pods};
use crate::report::{Outcome, Report, expect_eq, suites};

/// Runs every suite of a folder: `cycle` or `random`.
pub(crate) fn run(corpus: &Path, kind: &str, report: &mut Report) {
    for suite in &suites(corpus, kind) {
        report.suite(corpus, kind, suite, |case| run_case(case, kind == "random"));
    }
}

type Result<T> = std::result::Result<T, String>;

fn run_case(case: &Value, has_defaults: bool) -> Outcome {
    let flag = |name: &str| case["flags"].as_array().is_some_and(|f| f.iter().any(|x| x == name));
    let run = |case: &Value, how: Loading| Runner::new(case, has_defaults, how).and_then(|mut runner| runner.run());
    let Err(difference) = run(case, Loading::Heeding) else { return Outcome::Pass };
    // What differs on purpose must be all that differs: the same case with Kueue's way of it has to come out as recorded.
    if run(case, Loading::Overfilling).is_ok() {
        return Outcome::Differs("nodes are not given more pods than they take within a cycle".into());
    }
    let placed = name_empty_reasons(case, "TopologyPlacementFailed");
    if placed != *case && run(&placed, Loading::Heeding).is_ok() {
        return Outcome::Differs(
            "a workload that finds no place is told TopologyPlacementFailed, not an empty reason".into(),
        );
    }
    let named = name_empty_reasons(case, "NoMatchingFlavor");
    if named != *case && run(&named, Loading::Heeding).is_ok() {
        return Outcome::Differs(
            "a workload that no flavor suits is told NoMatchingFlavor, not an empty reason".into(),
        );
    }
    if flag("kueue-oddity-load-ignores-backoff") && run(&named, Loading::Ignoring).is_ok() {
        return Outcome::Differs("a back-off that is not over is heeded after a restart too".into());
    }
    if run(&named, Loading::AnyPodSet).is_ok() {
        return Outcome::Differs("where several pod sets find no place, Kueue names any of them".into());
    }
    if flag("kueue-oddity-transient-overadmission") {
        return Outcome::Differs("nothing is admitted on quota that victims still hold".into());
    }
    if flag("kueue-oddity-repeated-preemption") {
        return Outcome::Differs("a workload preempts another once, not again and again".into());
    }
    Outcome::Fail(difference)
}

/// What is done as Kueue does it, or not looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loading {
    Heeding,
    /// Workloads whose back-off is not over compete when they are loaded.
    Ignoring,
    /// Within a cycle nodes are given more pods than they take.
    Overfilling,
    /// Of messages about several pod sets that find no place it does not matter which of them is named.
    AnyPodSet,
}

/// The case with the reason that stands where Kueue leaves it empty.
fn name_empty_reasons(case: &Value, reason: &str) -> Value {
    fn name(value: &mut Value, reason: &str) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    if key == "reason" && value == "" {
                        *value = reason.into();
                    } else {
                        name(value, reason);
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| name(item, reason)),
            _ => {}
        }
    }
    let mut case = case.clone();
    name(&mut case["expect"], reason);
    case
}

/// What is compared of a list of queues: workloads by ClusterQueue.
type Queues = BTreeMap<String, Vec<String>>;

struct Runner<'a> {
    case: &'a Value,
    engine: Engine,
    now: Timestamp,
    /// The API server.
    store: BTreeMap<Key, Workload>,
    before: BTreeMap<Key, Workload>,
    changed: BTreeSet<Key>,
    cluster_queues: Vec<Box<str>>,
    events: Vec<(String, String, String)>,
    admitted: Vec<(String, Admission, u64)>,
    preempted: Vec<(String, String, u64)>,
    setup_errors: Vec<String>,
    trace: Vec<(Queues, Queues)>,
    /// Whether it does not matter which of several pod sets that find no place is named.
    any_pod_set: bool,
    /// How every write ends, if not well.
    fails_writes: Option<Written>,
}

impl<'a> Runner<'a> {
    fn new(case: &'a Value, has_defaults: bool, loading: Loading) -> Result<Self> {
        let text = |e: objects::ObjectError| e.to_string();
        let all = &case["objects"];
        let now = objects::timestamp(&case["now"]).map_err(text)?;
        let mut config = config(&case["config"])?;
        config.node_guard = loading != Loading::Overfilling;
        let mut engine = Engine::new(config);
        let mut setup_errors = Vec::new();
        for object in objects::of_kind(all, "Namespace") {
            let labels = object["metadata"]["labels"].as_object();
            let labels =
                labels.into_iter().flatten().map(|(k, v)| (k.as_str().into(), v.as_str().unwrap_or("").into()));
            engine.set_namespace(now, objects::name_of(object), labels.collect());
        }
        // The harness that recorded the folder `cycle` knows limit ranges only where it validates.
        let mut ranges: BTreeMap<Box<str>, Vec<LimitRange>> = BTreeMap::new();
        for object in objects::of_kind(all, "LimitRange") {
            let namespace = objects::key_of(object).namespace;
            let mut range = objects::limit_range(object).map_err(text)?;
            if !has_defaults {
                for (_, item) in &mut range.limits {
                    item.default.clear();
                    item.default_request.clear();
                }
            }
            ranges.entry(namespace).or_default().push(range);
        }
        for (namespace, ranges) in &ranges {
            engine.set_limit_ranges(now, namespace, ranges);
        }
        for (name, overhead) in objects::runtime_class_overheads(all).map_err(text)? {
            engine.set_runtime_class(now, &name, Some(overhead));
        }
        for object in objects::of_kind(all, "Topology") {
            engine.set_topology(now, objects::topology(object).map_err(text)?);
        }
        for object in objects::of_kind(all, "ResourceFlavor") {
            engine.set_flavor(now, objects::flavor(object).map_err(text)?);
        }
        for object in objects::of_kind(all, "Node") {
            engine.set_node(now, node(object)?);
        }
        for (key, node, requests) in other_pods(all)? {
            engine.set_other_pod(now, &parse_key(&key), &node, requests);
        }
        for object in objects::of_kind(all, "AdmissionCheck") {
            engine.set_admission_check(now, check(object)?);
        }
        let mut cluster_queues = Vec::new();
        for object in objects::of_kind(all, "ClusterQueue") {
            let mut spec = objects::cluster_queue(object).map_err(text)?;
            let preemption = &object["spec"]["preemption"];
            if case["config"]["fairSharing"] == true
                && preemption.is_object()
                && preemption["reclaimWithinCohort"].is_null()
                && spec.preemption.borrow_within_cohort.is_none()
            {
                // The recorded objects did not pass through an API server, which sets the policy to `Never`. Left out, it is
                // not `Never`, so that Kueue looks for victims even where it would borrow; under fair sharing this policy
                // does the same and nothing else.
                spec.preemption.borrow_within_cohort =
                    Some(BorrowWithinCohort { lower_priority: true, max_priority_threshold: None });
            }
            cluster_queues.push(spec.name.clone());
            engine.set_cluster_queue(now, spec);
        }
        for object in objects::of_kind(all, "Cohort") {
            let spec = objects::cohort(object).map_err(text)?;
            let name = spec.name.clone();
            if engine.set_cohort(now, spec).is_err() {
                setup_errors.push(format!("cohort {name}: cohort has a cycle"));
            }
        }
        for object in objects::of_kind(all, "LocalQueue") {
            engine.set_local_queue(now, objects::local_queue(object).map_err(text)?);
        }
        if let Some(usage) = case["config"]["admissionFairSharing"]["initialUsage"].as_object() {
            for (key, consumed) in usage {
                let consumed: ResourceList = objects::resource_list(consumed).map_err(text)?;
                engine.restore_consumed(now, now, &parse_key(key), &consumed);
            }
        }
        let mut store = BTreeMap::new();
        let mut start = now;
        for object in objects::of_kind(all, "Workload") {
            let workload = objects::workload(object).map_err(text)?;
            if loading == Loading::Ignoring {
                let mut ready = workload.clone();
                ready.status.requeue_state = None;
                ready.status.conditions.remove(&ConditionType::Requeued);
                engine.set_workload(now, ready);
            }
            engine.set_workload(now, workload.clone());
            if needs_second_pass(&workload) {
                start = start.plus_seconds(1);
            }
            store.insert(workload.key.clone(), workload);
        }
        engine.check().map_err(|e| format!("after loading: {e}"))?;
        let requires = case["requires"].as_array();
        let fails_writes = requires.into_iter().flatten().find_map(|x| match x.as_str() {
            Some("workloadStatusPatchError:NotFound") => Some(Written::NotFound),
            Some(t) if t.starts_with("workloadStatusPatch") => Some(Written::Failed),
            _ => None,
        });
        Ok(Self {
            case,
            engine,
            now: start,
            before: store.clone(),
            store,
            changed: BTreeSet::new(),
            cluster_queues,
            events: Vec::new(),
            admitted: Vec::new(),
            preempted: Vec::new(),
            setup_errors,
            trace: Vec::new(),
            any_pod_set: loading == Loading::AnyPodSet,
            fails_writes,
        })
    }

    fn run(&mut self) -> Result<()> {
        let cycles = self.case["cycles"].as_u64().unwrap_or(1);
        for n in 1..=cycles {
            self.cycle(n);
            self.engine.check().map_err(|e| format!("after cycle {n}: {e}"))?;
            self.trace.push(self.queues());
            let index = usize::try_from(n - 1).unwrap_or(0);
            for op in self.case["betweenCycles"][index].as_array().into_iter().flatten() {
                self.apply(op)?;
                self.engine.check().map_err(|e| format!("after {op} behind cycle {n}: {e}"))?;
            }
        }
        self.compare()
    }

    fn cycle(&mut self, n: u64) {
        let decisions = self.engine.cycle(self.now);
        for eviction in decisions.evictions {
            if let Some(failure) = self.fails_writes {
                self.engine.eviction_written(self.now, &eviction.workload, failure);
                let told = eviction.failed.as_slice().iter().filter(|_| failure == Written::Failed);
                self.tell(&told.cloned().collect::<Vec<_>>());
                continue;
            }
            let reason =
                eviction.preemptor.as_ref().map_or(eviction.reason.to_string(), |(_, r)| r.as_str().to_owned());
            self.preempted.push((eviction.workload.to_string(), reason, n));
            self.tell(&eviction.events);
            self.write(&eviction.workload, eviction.status);
            self.engine.eviction_written(self.now, &eviction.workload, Written::Ok);
        }
        for entry in decisions.entries {
            let is_admission = matches!(entry.outcome, Decided::Admitted { .. });
            if let Some(failure) = self.fails_writes {
                if is_admission {
                    self.engine.admission_written(self.now, &entry.workload, failure);
                }
                continue;
            }
            if let Decided::Admitted { admission, .. } = entry.outcome {
                let old = self.store.get(&entry.workload).is_some_and(Workload::has_quota_reservation);
                if !old {
                    self.admitted.push((entry.workload.to_string(), admission, n));
                }
            }
            self.tell(&entry.events);
            if let Some(status) = entry.status {
                self.write(&entry.workload, status);
            }
            if is_admission {
                self.engine.admission_written(self.now, &entry.workload, Written::Ok);
            }
            if let Some(then) = entry.then {
                self.tell(&then.events);
                self.write(&then.workload, then.status);
            }
        }
    }

    fn tell(&mut self, events: &[Event]) {
        for e in events {
            self.events.push((e.object.to_string(), e.kind.as_str().to_owned(), e.reason.to_string()));
        }
    }

    fn write(&mut self, key: &Key, status: WorkloadStatus) {
        let Some(workload) = self.store.get_mut(key) else { return };
        if workload.status != status {
            workload.status = status;
            self.changed.insert(key.clone());
        }
    }

    fn apply(&mut self, op: &Value) -> Result<()> {
        match op["op"].as_str().unwrap_or_default() {
            "controllers" => self.controllers(),
            "finishWorkload" => {
                let key = parse_key(op["workload"].as_str().unwrap_or_default());
                let Some(workload) = self.store.get_mut(&key) else { return Ok(()) };
                if !workload.is_admitted() || workload.is_evicted() {
                    return Ok(());
                }
                let at = At { now: self.now, generation: workload.generation };
                finish(&mut workload.status, FinishReason::Succeeded, "Job finished successfully", at);
                self.engine.set_workload(self.now, workload.clone());
            }
            "requeueInadmissible" => self.engine.flush(self.now),
            "advanceClock" => {
                let seconds = op["seconds"].as_i64().ok_or("advanceClock without seconds")?;
                self.now = self.now.plus_seconds(seconds);
            }
            "updateClusterQueue" => {
                let spec = objects::cluster_queue(&op["object"]).map_err(|e| e.to_string())?;
                self.engine.set_cluster_queue(self.now, spec);
            }
            other => return Err(format!("unknown operation {other}")),
        }
        Ok(())
    }

    fn controllers(&mut self) {
        for key in std::mem::take(&mut self.changed) {
            if let Some(workload) = self.store.get(&key) {
                self.engine.set_workload(self.now, workload.clone());
            }
        }
        let gates = self.engine.config().gates;
        for workload in self.store.values_mut() {
            if workload.is_evicted() && workload.has_quota_reservation() {
                let mut status = workload.status.clone();
                release(workload, &mut status, At { now: self.now, generation: workload.generation }, &gates);
                workload.status = status;
                self.engine.set_workload(self.now, workload.clone());
            }
        }
    }

    fn queues(&self) -> (Queues, Queues) {
        let (mut active, mut parked) = (Queues::new(), Queues::new());
        for name in &self.cluster_queues {
            for waiting in self.engine.pending(name) {
                let list = if waiting.parked { &mut parked } else { &mut active };
                list.entry(name.to_string()).or_default().push(waiting.workload.to_string());
            }
        }
        for list in active.values_mut().chain(parked.values_mut()) {
            list.sort();
        }
        (active, parked)
    }

    fn compare(&self) -> Result<()> {
        let expect = &self.case["expect"];
        if !expect["trace"].is_null() {
            let trace: Vec<(Queues, Queues)> =
                expect["trace"].as_array().into_iter().flatten().map(read_queues).collect();
            for (i, (got, want)) in self.trace.iter().zip(&trace).enumerate() {
                expect_eq(&format!("queues after cycle {}: (pending, inadmissible)", i + 1), got, want)?;
            }
        }
        let mut admitted: Vec<(String, u64)> = self.admitted.iter().map(|(w, _, n)| (w.clone(), *n)).collect();
        let mut want_admitted = Vec::new();
        for item in expect["admitted"].as_array().into_iter().flatten() {
            let name = item["workload"].as_str().unwrap_or_default().to_owned();
            let cycle = item["cycle"].as_u64();
            want_admitted.push((name.clone(), cycle.unwrap_or(1)));
            let want = objects::admission(&item["admission"]).map_err(|e| e.to_string())?;
            if let Some((_, got, _)) =
                self.admitted.iter().find(|(w, _, n)| *w == name && cycle.is_none_or(|c| c == *n))
            {
                expect_eq(&format!("admission of {name}"), got, &want)?;
            }
        }
        admitted.sort();
        if expect["admitted"].as_array().is_some_and(|a| a.iter().any(|x| x["cycle"].is_null())) {
            for (_, n) in &mut admitted {
                *n = 1;
            }
        }
        admitted.sort();
        want_admitted.sort();
        expect_eq("admitted", &admitted, &want_admitted)?;

        let mut preempted = self.preempted.clone();
        let mut want: Vec<(String, String, u64)> = Vec::new();
        for item in expect["preempted"].as_array().into_iter().flatten() {
            let field = |f: &str| item[f].as_str().unwrap_or_default().to_owned();
            want.push((field("workload"), field("reason"), item["cycle"].as_u64().unwrap_or(1)));
        }
        preempted.sort();
        want.sort();
        expect_eq("preempted", &preempted, &want)?;

        let queues = self.queues();
        expect_eq("queues at the end: (pending, inadmissible)", &queues, &read_queues(expect))?;

        let mut events = self.events.clone();
        let mut want: Vec<(String, String, String)> = Vec::new();
        for item in expect["events"].as_array().into_iter().flatten() {
            let field = |f: &str| item[f].as_str().unwrap_or_default().to_owned();
            want.push((field("object"), field("type"), field("reason")));
        }
        events.sort();
        want.sort();
        expect_eq("events", &events, &want)?;

        let errors: Vec<String> = expect["setupErrors"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|e| e.as_str().map(str::to_owned))
            .collect();
        expect_eq("setup errors", &self.setup_errors, &errors)?;
        expect["workloads"].as_array().into_iter().flatten().try_for_each(|item| self.compare_workload(item))
    }

    fn compare_workload(&self, item: &Value) -> Result<()> {
        let name = item["workload"].as_str().unwrap_or_default();
        let key = parse_key(name);
        let got = self.store.get(&key).ok_or_else(|| format!("no workload {name}"))?;
        if item["unchanged"] == true {
            let before = self.before.get(&key).map(|w| &w.status);
            return expect_eq(
                &format!("{name}, unchanged"),
                &self.shown(got, &got.status),
                &self.shown(got, before.unwrap_or(&got.status)),
            );
        }
        let object = serde_json::json!({ "kind": "Workload", "status": item });
        let want = objects::workload(&object).map_err(|e| e.to_string())?;
        let (got, want) = (self.shown(got, &got.status), self.shown(got, &want.status));
        expect_eq(&format!("conditions of {name}"), &got.0, &want.0)?;
        expect_eq(&format!("status of {name}"), &got.1, &want.1)
    }
}

impl Runner<'_> {
    fn shown(&self, workload: &Workload, status: &WorkloadStatus) -> Shown {
        let mut shown = shown(status);
        for (_, _, reason, message) in &mut shown.0 {
            if self.any_pod_set && workload.spec.pod_sets.len() > 1 && reason == "TopologyPlacementFailed" {
                message.clear();
            }
        }
        shown
    }
}

/// What is compared of a status: conditions without times, by type; and the rest.
type Shown = (Vec<(String, Status, String, String)>, WorkloadStatus);

fn shown(status: &WorkloadStatus) -> Shown {
    let mut conditions: Vec<(String, Status, String, String)> = status
        .conditions
        .iter()
        .map(|c| (c.kind.as_str().to_owned(), c.status, c.reason.to_string(), c.message.to_string()))
        .collect();
    conditions.sort();
    let mut rest = status.clone();
    rest.conditions = slicegate_workload::Conditions::default();
    rest.nominated_cluster_names.clear();
    rest.reclaimable_pods.clear();
    rest.evictions.sort_by(|a, b| (&a.reason, &a.underlying_cause).cmp(&(&b.reason, &b.underlying_cause)));
    for check in &mut rest.admission_checks {
        check.last_transition = Timestamp::MIN;
    }
    (conditions, rest)
}

fn read_queues(value: &Value) -> (Queues, Queues) {
    let read = |field: &str| -> Queues {
        let lists = value[field].as_object().into_iter().flatten();
        lists
            .map(|(queue, list)| {
                let names = list.as_array().into_iter().flatten().filter_map(|n| n.as_str().map(str::to_owned));
                (queue.clone(), names.collect())
            })
            .collect()
    };
    (read("pending"), read("inadmissible"))
}

fn parse_key(text: &str) -> Key {
    let (namespace, name) = text.split_once('/').unwrap_or(("", text));
    Key::new(namespace, name)
}

pub(crate) fn check(object: &Value) -> Result<CheckSpec> {
    let conditions = objects::conditions(&object["status"]["conditions"]).map_err(|e| e.to_string())?;
    Ok(CheckSpec {
        name: objects::name_of(object).into(),
        controller: object["spec"]["controllerName"].as_str().unwrap_or_default().into(),
        active: conditions.is_true(&ConditionType::Other("Active".into())),
    })
}

fn seconds(value: &Value) -> Result<i64> {
    let text = value.as_str().unwrap_or_default();
    let number = |suffix: &str, scale: i64| {
        text.strip_suffix(suffix).and_then(|n| n.parse::<i64>().ok()).map(|n| n.saturating_mul(scale))
    };
    number("s", 1)
        .or_else(|| number("m", 60))
        .or_else(|| number("h", 3600))
        .ok_or_else(|| format!("{text:?} is not a duration"))
}

fn config(value: &Value) -> Result<Config> {
    let mut config = Config::new();
    if value["fairSharing"] == true {
        let mut strategies = Vec::new();
        for word in value["fairSharingPreemptionStrategies"].as_array().into_iter().flatten() {
            strategies.push(match word.as_str().unwrap_or_default() {
                "LessThanOrEqualToFinalShare" => FairSharingStrategy::LessThanOrEqualToFinalShare,
                "LessThanInitialShare" => FairSharingStrategy::LessThanInitialShare,
                other => return Err(format!("unknown strategy {other}")),
            });
        }
        config.fair_sharing = Some(FairSharing { strategies });
    }
    let usage = &value["admissionFairSharing"];
    if usage.is_object() {
        config.admission_fair_sharing = Some(AdmissionFairSharing {
            half_life_seconds: seconds(&usage["usageHalfLifeTime"])?,
            sampling_interval_seconds: seconds(&usage["usageSamplingInterval"])?,
            ..AdmissionFairSharing::default()
        });
    }
    if value["waitForPodsReady"]["blockAdmission"] == true {
        config.wait_for_pods_ready = Some(WaitForPodsReady { block_admission: true, ..WaitForPodsReady::default() });
    }
    for rule in value["resourceTransformations"].as_array().into_iter().flatten() {
        let strategy = match rule["strategy"].as_str() {
            Some("Replace") => TransformStrategy::Replace,
            _ => TransformStrategy::Retain,
        };
        let outputs = objects::resource_list(&rule["outputs"]).map_err(|e| e.to_string())?;
        let multiply_by = rule["multiplyBy"].as_str().map(Into::into);
        let input = rule["input"].as_str().unwrap_or_default().into();
        config.transformations.insert(input, Transformation { strategy, multiply_by, outputs });
    }
    for (gate, on) in value["featureGates"].as_object().into_iter().flatten() {
        // Gates that change nothing here but how fast things are.
        if matches!(gate.as_str(), "VectorizedResourceRequests" | "SchedulerLibraryIntegration") {
            continue;
        }
        config.gates.set(gate, on == true).map_err(|e| e.to_string())?;
    }
    Ok(config)
}
