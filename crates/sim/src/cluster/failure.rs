//! Hosts that break and are repaired.
//!
//! What happens follows GKE. A VM that breaks stops answering: its node is not ready. On managed capacity a multi-host slice is
//! rebuilt as a whole, so that all its nodes are deleted and come back together; of a single-host pool only the one node goes.
//! Pods whose node is gone fail with the condition `DisruptionTarget`, as the pod garbage collector leaves them.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::NodeCondition;
use slicegate_api::scenario::ScenarioFail;
use slicegate_api::{Kind, Node, Object, ObjectRef, Pod, Taint};

use super::pool::Growth;
use super::{NodeId, PoolId, is_over, kubelet};
use crate::defaults::{TPU, annotation, label};
use crate::duration::{ParseDurationError, parse_duration, words};
use crate::plan::{self, target};
use crate::store::api_time;
use crate::timeline::EntryKind;
use crate::world::{Event, World};

/// How long a repair takes that is not said to take another time: 15 minutes.
const REPAIR: i64 = 900_000_000;
/// How long a node that does not answer is waited for until it is given up: a minute.
const GIVEN_UP: i64 = 60_000_000;
/// The taint of a node that does not answer.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// What is wrong with a `fail` event of a scenario.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum FailureError {
    /// It names no host, or several.
    #[error("set exactly one of node, pool and job")]
    WhichHost,
    /// A part of a host's name that does not go with the rest.
    #[error("{field} says which host of a {of}: it goes with {of} only")]
    Misplaced {
        /// The field.
        field: &'static str,
        /// What it goes with.
        of: &'static str,
    },
    /// A job is not named as one.
    #[error(
        "{0:?} is not a job: write kind/name or kind/namespace/name, where the kind is JobSet, Job, RayJob or RayCluster"
    )]
    NotAJob(String),
    /// An exit code of a program that ended well, or none at all.
    #[error("{0} is not the exit code of a program that fails: write a number from 1 to 255")]
    ExitCode(i32),
    /// A length of time cannot be read.
    #[error(transparent)]
    Duration(#[from] ParseDurationError),
}

/// Which host.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Target {
    Node(String),
    Pool { name: String, host: u32 },
    Job { job: ObjectRef, slice: u32, host: u32 },
}

/// A host or a program that breaks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    target: Target,
    /// How long the repair takes, in microseconds; `None` if there is none.
    repair: Option<i64>,
    /// If only the program ends: with this code.
    exit_code: Option<i32>,
}

impl Failure {
    /// Reads a `fail` event.
    ///
    /// # Errors
    /// The field's path within the event, and what is wrong.
    pub(crate) fn read(event: &ScenarioFail) -> Result<Self, (&'static str, FailureError)> {
        let host = event.host.unwrap_or(0);
        let host_of = match (&event.node, &event.pool, &event.job) {
            (Some(node), None, None) => {
                if event.host.is_some() {
                    return Err(("fail.host", FailureError::Misplaced { field: "host", of: "pool or job" }));
                }
                Target::Node(node.clone())
            }
            (None, Some(name), None) => Target::Pool { name: name.clone(), host },
            (None, None, Some(job)) => {
                const JOBS: [Kind; 4] = [Kind::Job, Kind::JobSet, Kind::RayCluster, Kind::RayJob];
                let named = match target(job) {
                    Ok(plan::Target::Object(named)) if JOBS.contains(&named.kind) => named,
                    _ => return Err(("fail.job", FailureError::NotAJob(job.clone()))),
                };
                Target::Job { job: named, slice: event.slice.unwrap_or(0), host }
            }
            _ => return Err(("fail", FailureError::WhichHost)),
        };
        let of_job = matches!(host_of, Target::Job { .. });
        if event.slice.is_some() && !of_job {
            return Err(("fail.slice", FailureError::Misplaced { field: "slice", of: "job" }));
        }
        if let Some(code) = event.exit_code {
            if !of_job {
                return Err(("fail.exitCode", FailureError::Misplaced { field: "exitCode", of: "job" }));
            }
            if !(1..=255).contains(&code) {
                return Err(("fail.exitCode", FailureError::ExitCode(code)));
            }
        }
        let repair = match event.repair_after.as_deref() {
            None => Some(REPAIR),
            Some("never") => None,
            Some(text) => Some(parse_duration(text).map_err(|error| ("fail.repairAfter", error.into()))?),
        };
        Ok(Self { target: host_of, repair, exit_code: event.exit_code })
    }

    /// The field that names an object of the documents, and which.
    pub(crate) fn names(&self) -> Option<(&'static str, plan::Target)> {
        match &self.target {
            Target::Node(_) => None,
            Target::Pool { name, .. } => Some(("fail.pool", plan::Target::NodePool(name.as_str().into()))),
            Target::Job { job, .. } => Some(("fail.job", plan::Target::Object(job.clone()))),
        }
    }
}

/// Makes a node answer or not: its condition and the taint that goes with it.
fn set_ready(node: &mut Node, ready: bool, time: &slicegate_api::Time) {
    let spec = node.spec.get_or_insert_default();
    let taints = spec.taints.get_or_insert_default();
    taints.retain(|taint| taint.key != UNREACHABLE);
    if !ready {
        for effect in ["NoSchedule", "NoExecute"] {
            taints.push(Taint {
                key: UNREACHABLE.to_owned(),
                value: None,
                effect: effect.to_owned(),
                time_added: Some(time.clone()),
            });
        }
    }
    if taints.is_empty() {
        spec.taints = None;
    }
    let conditions = node.status.get_or_insert_default().conditions.get_or_insert_default();
    conditions.retain(|condition| condition.type_ != "Ready");
    let (status, reason, message) = if ready {
        ("True", "KubeletReady", None)
    } else {
        ("Unknown", "NodeStatusUnknown", Some("Kubelet stopped posting node status.".to_owned()))
    };
    conditions.push(NodeCondition {
        type_: "Ready".to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message,
        last_transition_time: Some(time.clone()),
        ..NodeCondition::default()
    });
}

/// Where a pod stands in its job: which slice, which host of it.
fn place_in_job(pod: &Pod) -> (i64, String, i64) {
    let number = |text: Option<&str>| text.and_then(|text| text.parse().ok()).unwrap_or(0);
    let meta = &pod.metadata;
    let slice =
        label(meta, "jobset.sigs.k8s.io/job-global-index").or_else(|| label(meta, "ray.io/worker-group-replica-index"));
    let host = annotation(meta, "batch.kubernetes.io/job-completion-index")
        .or_else(|| label(meta, "ray.io/replica-host-index"));
    (number(slice), label(meta, "ray.io/group").unwrap_or_default().to_owned(), number(host))
}

fn has_chips(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    spec.is_some_and(|spec| super::shape::pod_spec(spec).requests().get(TPU).is_some_and(|chips| !chips.is_zero()))
}

impl World {
    /// The pod of a job that is worker `host` of slice `slice`, if it is on a node.
    fn worker_of(&self, job: &ObjectRef, slice: u32, host: u32) -> Option<ObjectRef> {
        let mut all = Vec::new();
        for key in self.nodes.placed.keys() {
            let Some(Object::Pod(pod)) = self.store.get(key) else { continue };
            if !is_over(pod) && self.top_owner(key).as_ref() == Some(job) {
                let (slice, group, host) = place_in_job(pod);
                all.push((group, slice, host, key.clone(), has_chips(pod)));
            }
        }
        let any_chips = all.iter().any(|(.., chips)| *chips);
        let mut slices: BTreeMap<(String, i64), Vec<(i64, ObjectRef)>> = BTreeMap::new();
        for (group, slice, host, key, chips) in all {
            if chips || !any_chips {
                slices.entry((group, slice)).or_default().push((host, key));
            }
        }
        let mut hosts = slices.into_values().nth(usize::try_from(slice).ok()?)?;
        hosts.sort();
        hosts.into_iter().nth(usize::try_from(host).ok()?).map(|(_, key)| key)
    }

    /// A host or a program breaks.
    pub(crate) fn fail_host(&mut self, failure: &Failure) {
        let node = match &failure.target {
            Target::Node(name) => {
                self.nodes.by_name.get(name.as_str()).copied().ok_or_else(|| format!("there is no node {name}"))
            }
            Target::Pool { name, host } => {
                let nodes = self.nodes.pool_named(name).map(|id| &self.nodes.pool(id).nodes);
                let nth = usize::try_from(*host).unwrap_or(usize::MAX);
                match nodes {
                    None => Err(format!("there is no node pool {name}")),
                    Some(nodes) => nodes.iter().nth(nth).copied().ok_or_else(|| {
                        let (have, verb) = (nodes.len(), if nodes.len() == 1 { "node" } else { "nodes" });
                        format!("node pool {name} has {have} {verb}, and no host {host}")
                    }),
                }
            }
            Target::Job { job, slice, host } => match self.worker_of(job, *slice, *host) {
                None => Err(format!("{job} has no pod on host {host} of slice {slice}")),
                Some(pod) => {
                    if let Some(code) = failure.exit_code {
                        self.fail_program(&pod, code);
                        return;
                    }
                    self.nodes.placed.get(&pod).map(|placed| placed.node).ok_or_else(String::new)
                }
            },
        };
        match node {
            Ok(node) => self.break_node(node, failure.repair),
            Err(why) => self.say(None, EntryKind::HostFailed, format!("nothing breaks: {why}")),
        }
    }

    /// The VM of a node breaks.
    fn break_node(&mut self, id: NodeId, repair: Option<i64>) {
        let Some(node) = self.nodes.node(id) else { return };
        let (name, pool_id) = (node.name.clone(), node.pool);
        if node.down {
            self.say(None, EntryKind::HostFailed, format!("nothing breaks: node {name} is down already"));
            return;
        }
        let pool = self.nodes.pool(pool_id);
        let going: Vec<NodeId> = match pool.growth {
            Growth::Whole { .. } if !pool.is_cube() => pool.nodes.iter().copied().collect(),
            _ => vec![id],
        };
        let back = repair.map_or_else(|| "never comes back".to_owned(), |time| format!("is back in {}", words(time)));
        let text = if going.len() > 1 {
            format!(
                "node pool {}: host {name} broke; its slice of {} nodes goes down with it and {back}",
                pool.name,
                going.len()
            )
        } else {
            format!("node pool {}: host {name} broke and {back}", pool.name)
        };
        self.say(None, EntryKind::HostFailed, text);
        self.nodes.touched.insert(pool_id);
        for id in &going {
            if let Some(state) = self.nodes.slots.get_mut(id.0).and_then(Option::as_mut) {
                state.down = true;
            }
        }
        let time = api_time(self.now);
        let key = ObjectRef::new(Kind::Node, "", name);
        if let Some(Object::Node(node)) = self.store.get(&key) {
            let mut node = node.clone();
            set_ready(Arc::make_mut(&mut node), false, &time);
            self.store.put(Object::Node(node));
        }
        let pods: Vec<ObjectRef> =
            self.nodes.node(id).map(|node| node.pods.iter().cloned().collect()).unwrap_or_default();
        for pod in pods {
            self.pod_not_ready(&pod);
        }
        self.update_partitions(pool_id);
        let given_up = repair.map_or(GIVEN_UP, |repair| repair.min(GIVEN_UP));
        let event = Event::NodesLost { pool: pool_id, nodes: going, repair: repair.map(|repair| repair - given_up) };
        self.queue.schedule(self.now.plus_micros(given_up), event);
    }

    /// Nodes are given up: they and their pods are gone.
    pub(crate) fn nodes_lost(&mut self, pool: PoolId, nodes: &[NodeId], repair: Option<i64>) {
        let time = api_time(self.now);
        let mut kept = Vec::new();
        for id in nodes {
            let Some(name) = self.nodes.node(*id).map(|node| node.name.clone()) else { continue };
            let key = ObjectRef::new(Kind::Node, "", name);
            if let Some(Object::Node(node)) = self.store.get(&key) {
                let mut node = Node::clone(node);
                set_ready(&mut node, true, &time);
                kept.push(node);
            }
            self.forget_node(*id);
            self.store.remove(&key);
        }
        if kept.is_empty() {
            return;
        }
        self.update_partitions(pool);
        let text = format!("node pool {}: {} node(s) gone", self.nodes.pool(pool).name, kept.len());
        self.say(None, EntryKind::NodesLost, text);
        let Some(repair) = repair else {
            let of = &mut self.nodes.pools[pool.0];
            if matches!(of.growth, Growth::Whole { .. }) {
                of.out_of_order = true;
            }
            return;
        };
        self.scale_ups += 1;
        let number = self.scale_ups;
        let of = &mut self.nodes.pools[pool.0];
        of.upcoming.insert(number, u32::try_from(kept.len()).unwrap_or(u32::MAX));
        of.in_repair.insert(number, kept);
        self.queue.schedule(self.now.plus_micros(repair), Event::NodesBack { pool, number });
    }

    /// Nodes come back from their repair, under their old names.
    pub(crate) fn nodes_back(&mut self, id: PoolId, number: u64) {
        let pool = &mut self.nodes.pools[id.0];
        pool.upcoming.remove(&number);
        let Some(nodes) = pool.in_repair.remove(&number) else { return };
        let count = nodes.len();
        for mut node in nodes {
            let name: Box<str> = node.metadata.name.as_deref().unwrap_or_default().into();
            if self.nodes.by_name.contains_key(&name) {
                continue;
            }
            node.metadata.resource_version = None;
            let state = self.nodes.add_node(id, name, self.now);
            self.take_node(state, &node);
            let _ = self.store.create(node.into());
        }
        self.update_partitions(id);
        let text = format!("node pool {}: {count} node(s) repaired", self.nodes.pool(id).name);
        self.say(None, EntryKind::NodesReady, text);
        self.retry_requests();
        self.watch_idle(id);
    }

    /// A node is gone: so are its pods.
    pub(crate) fn forget_node(&mut self, id: NodeId) {
        let pods: Vec<ObjectRef> =
            self.nodes.node(id).map(|node| node.pods.iter().cloned().collect()).unwrap_or_default();
        for pod in pods {
            self.lose_pod(&pod, "DeletionByPodGC", "PodGC: node no longer exists");
        }
        self.nodes.remove_node(id);
    }

    /// The node of a pod does not answer any more.
    fn pod_not_ready(&mut self, key: &ObjectRef) {
        let Some(Object::Pod(pod)) = self.store.get(key) else { return };
        let mut pod = pod.clone();
        let time = api_time(self.now);
        let status = Arc::make_mut(&mut pod).status.get_or_insert_default();
        for condition in status.conditions.iter_mut().flatten().filter(|c| c.type_ == "Ready" && c.status == "True") {
            *condition = kubelet::condition("Ready", "False", Some("NodeNotReady"), &time);
        }
        self.store.put(Object::Pod(pod));
    }

    /// A pod fails because of what happened to its node, and is gone.
    pub(crate) fn lose_pod(&mut self, key: &ObjectRef, reason: &str, message: &str) {
        let Some(Object::Pod(pod)) = self.store.get(key) else { return };
        let mut pod = pod.clone();
        if !is_over(&pod) && pod.metadata.deletion_timestamp.is_none() {
            let time = api_time(self.now);
            let changed = Arc::make_mut(&mut pod);
            let status = changed.status.get_or_insert_default();
            status.phase = Some("Failed".to_owned());
            let conditions = status.conditions.get_or_insert_default();
            for condition in conditions.iter_mut().filter(|c| matches!(c.type_.as_str(), "Ready" | "ContainersReady")) {
                *condition = kubelet::condition(&condition.type_, "False", Some("PodFailed"), &time);
            }
            disrupt(changed, reason, message, &time);
            self.store.put(Object::Pod(pod.clone()));
            self.pod_failed(key, &pod);
        }
        self.nodes.dequeue(key);
        self.nodes.release(key, self.now);
        self.store.remove(key);
    }
}

/// Marks a pod as disrupted from outside.
pub(crate) fn disrupt(pod: &mut Pod, reason: &str, message: &str, time: &slicegate_api::Time) {
    let conditions = pod.status.get_or_insert_default().conditions.get_or_insert_default();
    conditions.retain(|condition| condition.type_ != "DisruptionTarget");
    let mut condition = kubelet::condition("DisruptionTarget", "True", Some(reason), time);
    condition.message = Some(message.to_owned());
    conditions.push(condition);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(value: Value) -> Result<Failure, (&'static str, FailureError)> {
        Failure::read(&serde_json::from_value(value).unwrap())
    }

    #[test]
    fn a_host_is_named_in_one_way() {
        let failure = read(json!({"pool": "p", "host": 1})).unwrap();
        assert_eq!(failure.target, Target::Pool { name: "p".to_owned(), host: 1 });
        assert_eq!(failure.repair, Some(REPAIR));
        let failure = read(json!({"job": "jobset/team/a", "slice": 2, "repairAfter": "never"})).unwrap();
        let job = ObjectRef::new(Kind::JobSet, "team", "a");
        assert_eq!(failure.target, Target::Job { job, slice: 2, host: 0 });
        assert_eq!(failure.repair, None);
        assert_eq!(read(json!({"node": "n", "repairAfter": "1h"})).unwrap().repair, Some(3_600_000_000));
    }

    #[test]
    fn what_does_not_go_together_is_told_with_its_place() {
        let told = |value| {
            let (field, error) = read(value).unwrap_err();
            format!("{field}: {error}")
        };
        assert_eq!(told(json!({})), "fail: set exactly one of node, pool and job");
        assert_eq!(told(json!({"node": "n", "pool": "p"})), "fail: set exactly one of node, pool and job");
        assert!(told(json!({"node": "n", "host": 1})).starts_with("fail.host: "));
        assert!(told(json!({"pool": "p", "slice": 1})).starts_with("fail.slice: "));
        assert!(told(json!({"pool": "p", "exitCode": 1})).starts_with("fail.exitCode: "));
        assert!(told(json!({"job": "JobSet/a", "exitCode": 0})).starts_with("fail.exitCode: 0 is not"));
        assert!(told(json!({"job": "pretrain"})).starts_with("fail.job: \"pretrain\" is not a job"));
        assert!(told(json!({"pool": "p", "repairAfter": "soon"})).starts_with("fail.repairAfter: "));
    }
}
