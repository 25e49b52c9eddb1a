//! The pod scheduler: which node a pod runs on.

use std::ops::Bound;

use slicegate_api::{Object, ObjectRef};
use slicegate_quota::Quantity;
use slicegate_workload::first_untolerated;

use super::pool::Growth;
use super::{Class, ClassId, NodeId, NodeState, Nodes, Pending, Place};
use crate::store::api_time;
use crate::world::{Event, World};

impl Nodes {
    /// The waiting pod of a class that comes after another.
    fn next_waiting(&self, class: ClassId, after: Option<&Place>) -> Option<Place> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.waiting.get(&class)?.range((from, Bound::Unbounded)).next().cloned()
    }

    /// Why none of the pools that pods of a class fit has a node or ever will, if so.
    pub(super) fn never_grows(&self, class: &Class) -> Option<String> {
        let reasons: Option<Vec<String>> = class.pools.iter().map(|id| self.pool(*id).never_grows()).collect();
        reasons.filter(|all| !all.is_empty()).map(|all| all.join("; "))
    }

    /// A node that a pod of the class, part of the gang, fits on now.
    fn find_node(&self, class: ClassId, pending: &Pending) -> Option<NodeId> {
        let class = &self.classes[class.0];
        let gang = pending.gang.as_ref();
        let seeking = gang.filter(|gang| gang.seeks);
        let home = seeking.and_then(|gang| self.home(gang));
        for id in &class.pools {
            let pool = self.pool(*id);
            let candidates = if class.chips > 0 { &pool.free } else { &pool.nodes };
            if seeking.is_some_and(|gang| home.is_none() && candidates.len() < gang.nodes) {
                continue;
            }
            'nodes: for node_id in candidates {
                let Some(node) = self.node(*node_id) else { continue };
                if !has_room(node, &pool.allocatable, class) || !accepts_exactly(class, node) {
                    continue;
                }
                // Room that was made for a pod is not for those that matter no more than it does.
                if node
                    .nominated
                    .as_ref()
                    .is_some_and(|(rank, pod)| *pod != pending.place.pod && *rank <= pending.place.rank)
                {
                    continue;
                }
                if let Some(gang) = seeking {
                    let Some(domain) = node.labels.get(&gang.topology) else { continue };
                    let elsewhere = home.is_some_and(|home| !home.contains_key(domain));
                    // Jobs of different priorities may share a domain, so that one can preempt the other's pods. In a slice,
                    // which serves one Job whole or not at all, that ends with the lower one elsewhere: it starts there.
                    let taken = if matches!(pool.growth, Growth::Whole { .. }) {
                        self.is_shared(gang, domain)
                    } else {
                        self.occupants(gang, domain).is_some_and(|keys| keys.keys().any(|key| *key != gang.key))
                    };
                    if elsewhere || taken {
                        if *gang.topology == *slicegate_tpu::label::NODE_POOL {
                            break 'nodes;
                        }
                        continue;
                    }
                }
                return Some(*node_id);
            }
        }
        None
    }
}

fn has_room(node: &NodeState, allocatable: &slicegate_workload::ResourceList, class: &Class) -> bool {
    let pods = i64::try_from(node.pods.len()).unwrap_or(i64::MAX);
    if node.cordoned {
        return false;
    }
    if allocatable.get("pods").is_some_and(|most| pods >= most.value()) {
        return false;
    }
    class.shape.requests.iter().all(|(name, nanos)| {
        let used = node.used.get(name).copied().unwrap_or_default();
        *nanos <= 0 || allocatable.get(name).is_some_and(|have| used.plus(Quantity::from_nanos(*nanos)) <= *have)
    })
}

/// Whether a node takes new pods, and the selector, the affinity and the taints once more, with what differs from node to node.
pub(super) fn accepts_exactly(class: &Class, node: &NodeState) -> bool {
    let tolerated = |taints: &Vec<_>| first_untolerated(taints, &[&class.shape.tolerations]).is_none();
    node.is_open()
        && node.taints.as_ref().is_none_or(tolerated)
        && slicegate_workload::selector_matches(&class.shape.selector, &node.labels)
        && class.shape.affinity.as_ref().is_none_or(|a| a.required_matches(&node.labels, Some(&node.name)))
}

impl World {
    /// Places every pod that can be placed. Answers whether any was.
    pub(crate) fn schedule_pods(&mut self) -> bool {
        let all = std::mem::take(&mut self.nodes.retry);
        let fresh = std::mem::take(&mut self.nodes.fresh);
        let classes: Vec<ClassId> =
            if all { self.nodes.waiting.keys().copied().collect() } else { fresh.into_iter().collect() };
        let mut any = false;
        for class in classes {
            self.nodes.refresh(class);
            let mut homeless_failed = false;
            let mut last: Option<Place> = None;
            while let Some(place) = self.nodes.next_waiting(class, last.as_ref()) {
                let pod = place.pod.clone();
                last = Some(place);
                let Some(pending) = self.nodes.pending.get(&pod).cloned() else { continue };
                let seeking = pending.gang.as_ref().filter(|gang| gang.seeks);
                let homeless = seeking.is_none_or(|gang| self.nodes.home(gang).is_none());
                if homeless && homeless_failed {
                    // Where one found nothing, no other of the class does; parts of a gang that has a home may.
                    if seeking.is_none_or(|gang| gang.nodes == 1) {
                        break;
                    }
                    continue;
                }
                if let Some(node) = self.nodes.find_node(class, &pending) {
                    any = true;
                    self.bind_pod(&pod, node);
                } else if self.preempt_for(class, &pending) {
                    any = true;
                    homeless_failed |= homeless;
                } else {
                    self.nodes.grow = true;
                    homeless_failed |= homeless;
                }
            }
        }
        any
    }

    fn bind_pod(&mut self, key: &ObjectRef, node: NodeId) {
        let Some(pending) = self.nodes.dequeue(key) else { return };
        let Some(Object::Pod(pod)) = self.store.get(key) else { return };
        let mut pod = pod.clone();
        let name = self.nodes.node(node).map(|node| node.name.to_string());
        let time = api_time(self.now);
        let changed = std::sync::Arc::make_mut(&mut pod);
        if let Some(spec) = &mut changed.spec {
            spec.node_name = name;
        }
        let status = changed.status.get_or_insert_default();
        status.nominated_node_name = None;
        status.conditions = Some(vec![super::kubelet::condition("PodScheduled", "True", None, &time)]);
        let uid: Box<str> = changed.metadata.uid.as_deref().unwrap_or_default().into();
        self.store.put(Object::Pod(pod));
        self.nodes.bind(key, pending, node);
        let at = self.now.plus_micros(self.settings.pod_start);
        self.queue.schedule(at, Event::PodStart { pod: key.clone(), uid });
    }

    /// Why a node of which the pool would do takes no pod, in a few words.
    fn why_not_on(&self, name: &str) -> String {
        let Some(node) = self.nodes.by_name.get(name).and_then(|id| self.nodes.node(*id)) else {
            return format!("there is no node {name} (any more)");
        };
        if node.down || !node.ready {
            return format!("node {name} is not ready");
        }
        if node.is_open() && !node.cordoned {
            let more = if let Some(pod) = &node.chip_user {
                format!(": pod {} has its chips", pod.name)
            } else {
                String::new()
            };
            return format!("node {name} has no room{more}");
        }
        format!("node {name} takes no pods now")
    }

    /// Why a pod that waits finds no node, in a few words.
    pub(crate) fn why_pending(&self, key: &ObjectRef) -> Option<String> {
        let pending = self.nodes.pending.get(key)?;
        let class = &self.nodes.classes[pending.class.0];
        if let Some(first) = class.pools.first() {
            let pool = self.nodes.pool(*first);
            return Some(if let Some(why) = self.nodes.never_grows(class) {
                why
            } else if pool.nodes.is_empty() {
                format!("node pool {} has no nodes yet", pool.name)
            } else if let Some(name) = class.shape.selector.get("kubernetes.io/hostname") {
                // It was sent there, or asks for it: no other node is of use.
                self.why_not_on(name)
            } else {
                format!("{} matching node pool(s) have no free node", class.pools.len())
            });
        }
        let shape = &class.shape;
        let labels_fit = |pool: &&super::pool::Pool| pool.has_labels(shape);
        let Some(near) = self.nodes.pools.iter().find(labels_fit) else {
            let wanted: Vec<String> = shape.selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
            return Some(format!("no node has the labels {}", wanted.join(", ")));
        };
        if let Some(taint) = first_untolerated(&near.taints, &[&shape.tolerations]) {
            let effect = taint.effect.as_str();
            return Some(format!(
                "node pool {}: taint {}={}:{effect} is not tolerated",
                near.name, taint.key, taint.value
            ));
        }
        if near.queued && !shape.consumes {
            return Some(format!("node pool {} serves only pods that consume a ProvisioningRequest", near.name));
        }
        if class.chips > 0 && class.chips != i64::from(near.chips) {
            return Some(format!(
                "node pool {}: a pod must ask for all {} chips of a node, not {}",
                near.name, near.chips, class.chips
            ));
        }
        Some(format!("a node of pool {} is too small for the pod", near.name))
    }
}
