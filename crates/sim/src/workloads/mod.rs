//! The controllers of jobs: JobSet, batch Job, RayJob and RayCluster.

pub(crate) mod failure_policy;
pub(crate) mod job;
pub(crate) mod jobset;
pub(crate) mod pod_failures;
pub(crate) mod ray;

use std::sync::Arc;

use slicegate_api::{Condition, Job, Kind, Object, ObjectRef, Time};

use crate::world::World;

/// A condition that changes its time only with its status.
pub(crate) fn set_condition(conditions: &mut Vec<Condition>, new: Condition) {
    match conditions.iter_mut().find(|c| c.type_ == new.type_) {
        Some(old) => {
            let time = if old.status == new.status {
                old.last_transition_time.clone()
            } else {
                new.last_transition_time.clone()
            };
            *old = Condition { last_transition_time: time, ..new };
        }
        None => conditions.push(new),
    }
}

pub(crate) fn condition(kind: &str, status: bool, reason: &str, message: &str, time: &Time) -> Condition {
    Condition {
        type_: kind.to_owned(),
        status: if status { "True" } else { "False" }.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: time.clone(),
        observed_generation: None,
    }
}

pub(crate) fn is_true(conditions: &[Condition], kind: &str) -> bool {
    conditions.iter().any(|c| c.type_ == kind && c.status == "True")
}

impl World {
    /// The Jobs that an object controls, by name.
    pub(crate) fn jobs_of(&self, uid: &str) -> Vec<Arc<Job>> {
        let jobs = self.store.owned_by(uid).filter(|key| key.kind == Kind::Job);
        jobs.filter_map(|key| match self.store.get(key) {
            Some(Object::Job(job)) => Some(job.clone()),
            _ => None,
        })
        .collect()
    }

    /// The pods that an object controls, by name.
    pub(crate) fn pods_of(&self, uid: &str) -> Vec<(ObjectRef, Arc<slicegate_api::Pod>)> {
        let pods = self.store.owned_by(uid).filter(|key| key.kind == Kind::Pod);
        pods.filter_map(|key| match self.store.get(key) {
            Some(Object::Pod(pod)) => Some((key.clone(), pod.clone())),
            _ => None,
        })
        .collect()
    }

    /// The priority of a pod with this priority class, or with none.
    pub(crate) fn priority_of(&self, class: Option<&str>) -> i32 {
        match class {
            Some("system-cluster-critical") => 2_000_000_000,
            Some("system-node-critical") => 2_000_001_000,
            Some(name) if !name.is_empty() => match self.store.get(&ObjectRef::new(Kind::PriorityClass, "", name)) {
                Some(Object::PriorityClass(class)) => class.value,
                _ => 0,
            },
            _ => {
                let defaults = self.store.of_kind(Kind::PriorityClass).filter_map(|(_, object)| match object {
                    Object::PriorityClass(class) if class.global_default == Some(true) => Some(class.value),
                    _ => None,
                });
                defaults.min().unwrap_or(0)
            }
        }
    }

    /// The pools of the nodes that pods are on, by name, each once.
    pub(crate) fn pools_of<'a>(&self, pods: impl IntoIterator<Item = &'a ObjectRef>) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for pod in pods {
            if let Some(node) = self.nodes.node_of(pod) {
                let pool = self.nodes.pool(node.pool);
                let name = pool.labels.get(slicegate_tpu::label::NODE_POOL).map_or(&*pool.name, |name| name);
                if !names.iter().any(|n| n == name) {
                    names.push(name.to_owned());
                }
            }
        }
        names.sort();
        names
    }

    /// `6 pods on nodepool1 and nodepool2`; those of them that have ended are told apart.
    pub(crate) fn running_pods(&self, pods: &[(ObjectRef, Arc<slicegate_api::Pod>)]) -> String {
        let over = pods.iter().filter(|(_, pod)| crate::cluster::is_over(pod)).count();
        let on = self.on_pools(pods.iter().map(|(key, _)| key));
        if over == pods.len() && over > 0 {
            return format!("{over} pods, all of which have ended already");
        }
        let ended = if over == 0 { String::new() } else { format!(", {over} more have ended already") };
        format!("{} pods{on}{ended}", pods.len().saturating_sub(over))
    }

    /// `on nodepool1 and nodepool2`, or nothing if no pod is on a node.
    pub(crate) fn on_pools<'a>(&self, pods: impl IntoIterator<Item = &'a ObjectRef>) -> String {
        let names = self.pools_of(pods);
        match names.as_slice() {
            [] => String::new(),
            [one] => format!(" on {one}"),
            [many @ .., last] if many.len() < 6 => format!(" on {} and {last}", many.join(", ")),
            all => format!(" on {} node pools", all.len()),
        }
    }
}
