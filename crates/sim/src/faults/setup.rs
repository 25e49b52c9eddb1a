//! The cluster that a run begins with.

use std::fmt;

use serde_json::{Value, json};

use slicegate_admission::{FairSharing, WaitForPodsReady};
use slicegate_api::{Kind, Object};
use slicegate_controller::Configuration;

use super::dice::Dice;

/// What differs between runs, beyond what happens in them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Setup {
    /// Another controller may take over while writes of the one before are still on their way. What is decided then rests on
    /// what nobody knows to be outdated, so quotas are not looked at in such a run.
    pub overlap: bool,
    /// Preemption by fair share instead of by priority.
    pub fair_sharing: bool,
    /// Whether there is preemption.
    pub preemption: bool,
    /// Pods must become ready in time.
    pub pods_ready: bool,
    /// Nothing is admitted until the pods of all that is admitted are ready.
    pub block_admission: bool,
    /// A ClusterQueue has an admission check that somebody else answers.
    pub check: bool,
    /// One flavor must be asked for with ProvisioningRequests.
    pub provisioning: bool,
    /// Jobs may change their size while they run.
    pub elastic: bool,
    /// Finished and deactivated workloads are deleted after a while.
    pub retention: bool,
    /// Workloads wait strictly in order.
    pub strict: bool,
}

/// A flavor, its nominal quota and its borrowing limit.
pub(super) type Quota = (&'static str, i64, Option<i64>);

/// The quotas of each ClusterQueue.
pub(super) const QUOTAS: [(&str, &[Quota]); 3] = [
    ("a", &[("std", 4, None), ("dws", 4, None)]),
    ("b", &[("std", 4, Some(2)), ("dws", 4, Some(2))]),
    ("c", &[("std", 5, None)]),
];
/// The quota of a ClusterQueue while it is cut.
pub(super) const CUT: i64 = 2;
/// What is counted.
pub(super) const RESOURCE: &str = "cpu";
/// The pool label of the nodes of a flavor.
pub(super) const POOL: &str = "example.com/pool";
/// The check that somebody else answers.
pub(super) const CHECK: &str = "approval";
/// The check that asks for capacity.
pub(super) const CAPACITY: &str = "capacity";

impl Setup {
    pub(super) fn draw(dice: &mut Dice) -> Self {
        Self {
            overlap: dice.one_in(3),
            fair_sharing: dice.one_in(4),
            preemption: !dice.one_in(3),
            pods_ready: dice.one_in(3),
            block_admission: dice.one_in(2),
            check: dice.one_in(2),
            provisioning: dice.one_in(2),
            elastic: dice.one_in(4),
            retention: dice.one_in(4),
            strict: dice.one_in(4),
        }
    }

    pub(super) fn configuration(&self) -> Configuration {
        let mut configuration = Configuration::default();
        let engine = &mut configuration.engine;
        if self.fair_sharing {
            engine.fair_sharing = Some(FairSharing::default());
        }
        if self.pods_ready {
            engine.wait_for_pods_ready = Some(WaitForPodsReady {
                block_admission: self.block_admission,
                timeout_seconds: 120,
                recovery_timeout_seconds: Some(60),
                backoff_base_seconds: 10,
                backoff_max_seconds: 100,
                backoff_limit_count: Some(3),
                ..WaitForPodsReady::default()
            });
        }
        engine.gates.elastic_jobs_via_workload_slices = self.elastic;
        if self.retention {
            configuration.retention_after_finished_seconds = Some(300);
        }
        // Half of the time as it is in a cluster.
        if self.retention == self.elastic {
            configuration.keep_finalizer_of_finished = true;
            configuration.queue_status_interval_micros = 1_000_000;
        }
        configuration
    }

    /// The objects that are there before anything happens.
    pub(super) fn objects(&self) -> Vec<Object> {
        let mut all = vec![
            json!({"kind": "Namespace", "metadata": {"name": "default"}}),
            json!({"kind": "AdmissionCheck", "metadata": {"name": CHECK},
                "spec": {"controllerName": "example.com/approval"},
                "status": {"conditions": [{"type": "Active", "status": "True", "reason": "Active", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}),
            json!({"kind": "AdmissionCheck", "metadata": {"name": CAPACITY}, "spec": {
                "controllerName": "kueue.x-k8s.io/provisioning-request",
                "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": CAPACITY}}}),
            json!({"kind": "ProvisioningRequestConfig", "metadata": {"name": CAPACITY}, "spec": {
                "provisioningClassName": "queued-provisioning.gke.io", "managedResources": [],
                "retryStrategy": {"backoffLimitCount": 2, "backoffBaseSeconds": 10, "backoffMaxSeconds": 40}}}),
        ];
        for name in ["std", "dws"] {
            all.push(flavor(name));
        }
        for class in 0..3 {
            let name = format!("p{class}");
            all.push(json!({"kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": class}));
        }
        for (name, _) in QUOTAS {
            all.push(self.cluster_queue(name));
            all.push(local_queue(name));
        }
        all.into_iter().filter_map(read).collect()
    }

    pub(super) fn cluster_queue(&self, name: &str) -> Value {
        let quotas = QUOTAS.iter().find(|(n, _)| *n == name).map_or(&[][..], |(_, q)| q);
        let flavors: Vec<Value> = quotas
            .iter()
            .map(|(flavor, nominal, limit)| {
                let mut resource = json!({"name": RESOURCE, "nominalQuota": nominal.to_string()});
                if let Some(limit) = limit {
                    resource["borrowingLimit"] = limit.to_string().into();
                }
                json!({"name": flavor, "resources": [resource]})
            })
            .collect();
        let mut spec = json!({"namespaceSelector": {},
            "queueingStrategy": if self.strict && name != "b" { "StrictFIFO" } else { "BestEffortFIFO" },
            "resourceGroups": [{"coveredResources": [RESOURCE], "flavors": flavors}]});
        if name != "c" {
            spec["cohortName"] = "all".into();
        }
        if self.preemption {
            spec["preemption"] = json!({"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"});
        }
        let mut checks = Vec::new();
        if self.check && name != "a" {
            checks.push(json!({"name": CHECK}));
        }
        if self.provisioning && name != "c" {
            checks.push(json!({"name": CAPACITY, "onFlavors": ["dws"]}));
        }
        if !checks.is_empty() {
            spec["admissionChecksStrategy"] = json!({"admissionChecks": checks});
        }
        json!({"kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec})
    }
}

pub(super) fn flavor(name: &str) -> Value {
    json!({"kind": "ResourceFlavor", "metadata": {"name": name}, "spec": {"nodeLabels": {POOL: name}}})
}

pub(super) fn local_queue(name: &str) -> Value {
    json!({"kind": "LocalQueue", "metadata": {"name": name, "namespace": "default"}, "spec": {"clusterQueue": name}})
}

/// A batch Job of so many pods.
pub(super) fn job(name: &str, queue: &str, class: u16, pods: i32, elastic: bool) -> Value {
    let mut job = json!({"kind": "Job", "metadata": {"name": name, "namespace": "default", "labels": {
            "kueue.x-k8s.io/queue-name": queue, "kueue.x-k8s.io/priority-class": format!("p{class}")}},
        "spec": {"parallelism": pods, "completions": 8, "suspend": true, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "resources": {"requests": {RESOURCE: "1"}}}]}}}});
    if elastic {
        job["metadata"]["annotations"] = json!({"kueue.x-k8s.io/elastic-job": "true"});
    }
    job
}

/// A JobSet of so many Jobs of two pods each.
pub(super) fn jobset(name: &str, queue: &str, class: u16, replicas: i32) -> Value {
    let pod = json!({"containers": [{"name": "c", "resources": {"requests": {RESOURCE: "1"}}}]});
    json!({"kind": "JobSet", "metadata": {"name": name, "namespace": "default", "labels": {
            "kueue.x-k8s.io/queue-name": queue, "kueue.x-k8s.io/priority-class": format!("p{class}")}},
        "spec": {"suspend": true, "replicatedJobs": [{"name": "slice", "replicas": replicas, "template": {"spec": {
            "parallelism": 2, "completions": 2, "template": {"spec": pod}}}}]}})
}

/// The object that a document describes; nothing if it describes none.
pub(super) fn read(value: Value) -> Option<Object> {
    let name = value.get("kind")?.as_str()?.to_owned();
    let kind = Kind::ALL.iter().find(|k| k.as_str() == name)?;
    kind.read(value).ok()
}

impl Setup {
    /// Reads what [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        words.next().filter(|w| *w == "setup")?;
        let mut setup = Self::default();
        for word in words {
            *setup.switches().into_iter().find(|(name, _)| *name == word)?.1 = true;
        }
        Some(setup)
    }

    fn switches(&mut self) -> [(&'static str, &mut bool); 10] {
        [
            ("overlap", &mut self.overlap),
            ("fair_sharing", &mut self.fair_sharing),
            ("preemption", &mut self.preemption),
            ("pods_ready", &mut self.pods_ready),
            ("block_admission", &mut self.block_admission),
            ("check", &mut self.check),
            ("provisioning", &mut self.provisioning),
            ("elastic", &mut self.elastic),
            ("retention", &mut self.retention),
            ("strict", &mut self.strict),
        ]
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("setup")?;
        let mut setup = *self;
        setup.switches().into_iter().filter(|(_, on)| **on).try_for_each(|(name, _)| write!(f, " {name}"))
    }
}
