//! Nodes that fail under admitted Workloads.

use std::sync::Arc;

use slicegate_admission::lifecycle::{At, EvictionReason, EvictionStep, assigned_nodes};
use slicegate_api::{Object, ObjectRef, Pod, Toleration};
use slicegate_placement::{HOSTNAME_LABEL, pod_set_uses_node};
use slicegate_workload::{Timestamp, Workload};

use crate::controller::{Controller, event};
use crate::io::{EventType, Operation, field_manager};
use crate::nodes::{Health, Rules, health};
use crate::pods;
use crate::store::workload_ref;
use crate::writes::Then;

/// The condition of a pod that is given up since it cannot start where it was placed.
const TERMINATED: &str = "TerminatedByKueue";
/// Its reason.
const UNSCHEDULABLE: &str = "UnschedulableOnAssignedNode";

impl Controller {
    /// Looks at the nodes of an admitted Workload: the first that failed is noted in its status, so that it is replaced; with a
    /// second one it is evicted. Returns whether its status is to change.
    pub(super) fn watch_nodes(&mut self, now: Timestamp, workload: &Arc<Workload>) -> bool {
        let gates = self.config.engine.gates;
        if !gates.tas_failed_node_replacement || !self.fed.placement || workload.is_evicted() {
            return false;
        }
        let nodes = assigned_nodes(workload);
        if nodes.is_empty() {
            return false;
        }
        let key = &workload.key;
        let rules = Rules {
            on_pod_termination: gates.tas_replace_node_on_pod_termination,
            on_taints: gates.tas_replace_node_on_node_taints,
            after_fixed_time: gates.tas_replace_node_due_to_not_ready_over_fixed_time,
        };
        let mut unhealthy: Vec<Box<str>> = Vec::new();
        let mut wake: Option<Timestamp> = None;
        for node in nodes {
            let known = workload.status.unhealthy_nodes.iter().any(|n| **n == *node);
            let running =
                || self.pods_of(workload).iter().any(|pod| pods::node_of(pod) == Some(node) && !pods::is_leaving(pod));
            let object = self.store.node(node).map(AsRef::as_ref);
            match health(object, || self.tolerations_on(workload, node), running, rules, now) {
                Health::Failed => unhealthy.push(node.into()),
                Health::Uncertain | Health::FailsAt(_) if known => unhealthy.push(node.into()),
                Health::Healthy | Health::Uncertain => {}
                Health::FailsAt(at) => wake = Some(wake.map_or(at, |w| w.min(at))),
            }
        }
        if let Some(at) = wake {
            self.wake(&workload_ref(key), at);
        }
        // Those that were known come first.
        let old = &workload.status.unhealthy_nodes;
        unhealthy.sort_by_key(|node| (old.iter().position(|n| n == node).unwrap_or(usize::MAX), node.clone()));
        self.give_up_strays(now, workload, &unhealthy);
        if unhealthy.len() > 1 {
            let step = EvictionStep {
                reason: EvictionReason::NodeFailures,
                cause: Box::default(),
                message: format!(
                    "Workload eviction triggered due to multiple TAS assigned node failures, including: {}",
                    unhealthy.join(", ")
                )
                .into(),
            };
            self.evict(workload, &step, At { now, generation: workload.generation });
            return true;
        }
        if unhealthy == *old {
            return false;
        }
        let Some(plan) = self.plan(key) else { return false };
        plan.status.unhealthy_nodes = unhealthy;
        true
    }

    /// What all pods that are placed on a node tolerate: their own tolerations and those of their flavors.
    fn tolerations_on(&self, workload: &Workload, node: &str) -> Vec<Toleration> {
        let mut common: Option<Vec<Toleration>> = None;
        let object = self.store.workload(&workload.key);
        let assignments = workload.status.admission.iter().flat_map(|a| &a.pod_set_assignments);
        for assignment in assignments.filter(|a| pod_set_uses_node(a, node)) {
            let pod_set = object.and_then(|o| o.spec.pod_sets.iter().find(|p| p.name == *assignment.name));
            let own = pod_set.and_then(|p| p.template.spec.as_ref()?.tolerations.clone()).unwrap_or_default();
            let flavors = assignment.flavors.values().filter_map(|f| self.store.flavor(f));
            let mut all: Vec<Toleration> = own;
            all.extend(flavors.flat_map(|f| f.spec.tolerations.iter().cloned()));
            let checks = workload.status.admission_checks.iter().flat_map(|c| &c.pod_set_updates);
            let updates = checks.filter(|u| u.name == assignment.name).flat_map(|u| &u.tolerations);
            all.extend(updates.map(slicegate_api::convert::toleration_to_api));
            match &mut common {
                None => common = Some(all),
                Some(common) => common.retain(|t| all.contains(t)),
            }
        }
        common.unwrap_or_default()
    }

    /// Ends pods that were sent to a node which failed before they started: they would wait for it for ever. The job makes
    /// others, which go where the node's replacement is.
    fn give_up_strays(&mut self, now: Timestamp, workload: &Workload, unhealthy: &[Box<str>]) {
        // Only where the status says already that the node failed: the pods must not be sent there again.
        let failed: Vec<&Box<str>> =
            unhealthy.iter().filter(|node| workload.status.unhealthy_nodes.contains(*node)).collect();
        if failed.is_empty() {
            return;
        }
        let strays: Vec<Arc<Pod>> = self
            .pods_of(workload)
            .into_iter()
            .filter(|pod| {
                let node = pods::selected(pod, HOSTNAME_LABEL);
                let gated = pods::has_gate(pod, crate::keys::TOPOLOGY_GATE);
                let sent = node.is_some_and(|node| failed.iter().any(|f| ***f == *node));
                sent && !gated && pods::node_of(pod).is_none() && !pods::is_leaving(pod)
            })
            .collect();
        for pod in strays {
            self.give_up(now, &pod);
        }
    }

    fn give_up(&mut self, now: Timestamp, pod: &Arc<Pod>) {
        let object = Object::Pod(pod.clone());
        let reference: ObjectRef = object.reference();
        if self.store.is_locked(&reference) {
            return;
        }
        let node = pods::selected(pod, HOSTNAME_LABEL).unwrap_or_default();
        let message = format!("Pod cannot start on node {node}, which it was assigned to and which is not available");
        let mut new = (**pod).clone();
        let status = new.status.get_or_insert_default();
        status.phase = Some("Failed".to_owned());
        let conditions = status.conditions.get_or_insert_default();
        conditions.retain(|c| c.type_ != TERMINATED);
        conditions.push(k8s_openapi::api::core::v1::PodCondition {
            type_: TERMINATED.to_owned(),
            status: "True".to_owned(),
            reason: Some(UNSCHEDULABLE.to_owned()),
            message: Some(message.clone()),
            last_transition_time: Some(slicegate_api::convert::time_to_api(now.truncated())),
            ..k8s_openapi::api::core::v1::PodCondition::default()
        });
        let then = Then::event(event(&reference, EventType::Normal, "PodTerminatedByKueue", message));
        self.write(field_manager::JOB, Operation::UpdateStatus(new.into()), then);
    }
}
