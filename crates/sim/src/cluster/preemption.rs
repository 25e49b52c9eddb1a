//! The scheduler's own preemption: pods of lower priority make room for one of a higher.
//!
//! Kueue preempts workloads; this is what kube-scheduler does with pods whose PriorityClass differs, whoever admitted them.

use std::sync::Arc;

use slicegate_api::{Object, ObjectRef};
use slicegate_quota::Quantity;

use super::pool::{Growth, Pool};
use super::scheduler::accepts_exactly;
use super::{Class, ClassId, NodeId, NodeState, Nodes, Pending, failure};
use crate::store::api_time;
use crate::timeline::EntryKind;
use crate::world::World;

/// Pods to send away from a node. Fewer and less important ones are better.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Victims {
    /// How many are not on their way out anyway.
    staying: usize,
    /// The priority of the most important one.
    highest: i64,
    /// Their number.
    count: usize,
    node: NodeId,
    pods: Vec<ObjectRef>,
}

impl Nodes {
    /// The pods that would have to leave a node for one of this class and rank: as few as possible, the least important first.
    fn victims_on(&self, node: &NodeState, pool: &Pool, class: &Class, rank: i64) -> Option<Vec<(i64, ObjectRef)>> {
        let mut lower: Vec<(i64, ObjectRef)> = node
            .pods
            .iter()
            .filter_map(|pod| Some((self.placed.get(pod)?.rank, pod.clone())))
            .filter(|(of, _)| *of > rank)
            .collect();
        // The least important have the highest rank.
        lower.sort_by(|a, b| b.cmp(a));
        let missing = |gone: &[(i64, ObjectRef)]| {
            class.shape.requests.iter().any(|(name, nanos)| {
                let freed: i128 = gone.iter().map(|(_, pod)| self.request_of(pod, name)).sum();
                let used = node.used.get(name).copied().unwrap_or_default().nanos().saturating_sub(freed);
                let sum = Quantity::from_nanos(used.saturating_add(*nanos));
                *nanos > 0 && pool.allocatable.get(name).is_none_or(|have| sum > *have)
            })
        };
        if lower.is_empty() || missing(&lower) {
            return None;
        }
        // Those that need not go stay, the most important first.
        let mut gone = lower;
        let mut i = gone.len();
        while i > 0 {
            i -= 1;
            let spared = gone.remove(i);
            if missing(&gone) {
                gone.insert(i, spared);
            }
        }
        Some(gone).filter(|gone| !gone.is_empty())
    }

    fn request_of(&self, pod: &ObjectRef, resource: &str) -> i128 {
        let class = self.placed.get(pod).map(|placed| &self.classes[placed.class.0]);
        class.map_or(0, |class| class.shape.request(resource).nanos())
    }

    /// The best set of victims for a pod.
    fn find_victims(
        &self,
        class: ClassId,
        pending: &Pending,
        is_going: &dyn Fn(&ObjectRef) -> bool,
    ) -> Option<Victims> {
        let class = &self.classes[class.0];
        let rank = pending.place.rank;
        let seeking = pending.gang.as_ref().filter(|gang| gang.seeks);
        let mut best: Option<Victims> = None;
        for id in &class.pools {
            let pool = self.pool(*id);
            for node_id in &pool.nodes {
                let Some(node) = self.node(*node_id) else { continue };
                if node.nominated.is_some() || !accepts_exactly(class, node) {
                    continue;
                }
                if let Some(gang) = seeking {
                    let Some(domain) = node.labels.get(&gang.topology) else { continue };
                    // One that has a home stays there; another Job's domain is free for it if that Job matters less, as a whole.
                    if self.home(gang).is_some_and(|home| !home.contains_key(domain)) {
                        continue;
                    }
                    if matches!(pool.growth, Growth::Whole { .. })
                        && pool.nodes.iter().filter_map(|id| self.node(*id)).any(|other| {
                            other.pods.iter().any(|pod| {
                                self.placed
                                    .get(pod)
                                    .is_some_and(|p| p.rank <= rank && self.classes[p.class.0].chips > 0)
                            })
                        })
                    {
                        continue;
                    }
                    if self.occupants(gang, domain).is_some_and(|keys| keys.keys().any(|key| *key != gang.key)) {
                        continue;
                    }
                }
                let Some(victims) = self.victims_on(node, pool, class, rank) else { continue };
                let highest = victims.iter().map(|(rank, _)| rank.saturating_neg()).max().unwrap_or(i64::MIN);
                let pods: Vec<ObjectRef> = victims.into_iter().map(|(_, pod)| pod).collect();
                let staying = pods.iter().filter(|pod| !is_going(pod)).count();
                let found = Victims { staying, highest, count: pods.len(), node: *node_id, pods };
                if best.as_ref().is_none_or(|best| found < *best) {
                    best = Some(found);
                }
            }
        }
        best
    }
}

impl World {
    /// Sends away pods of lower priority, if that makes room for one that found none. Answers whether it did.
    pub(crate) fn preempt_for(&mut self, class: ClassId, pending: &Pending) -> bool {
        let key = &pending.place.pod;
        // Without priorities below its own there is nothing to look for.
        if !self.nodes.ranks.range(pending.place.rank.saturating_add(1)..).any(|(_, count)| *count > 0) {
            return false;
        }
        let Some(Object::Pod(pod)) = self.store.get(key) else { return false };
        let never = pod.spec.as_ref().and_then(|spec| spec.preemption_policy.as_deref()) == Some("Never");
        // It waits for the room that was made for it.
        let waits = self.nodes.nominations.get(key).is_some_and(|id| self.nodes.node(*id).is_some());
        if never || waits {
            return false;
        }
        let is_going =
            |pod: &ObjectRef| self.store.get(pod).is_none_or(|pod| pod.metadata().deletion_timestamp.is_some());
        let Some(victims) = self.nodes.find_victims(class, pending, &is_going) else { return false };
        let mut pod = pod.clone();
        let node = self.nodes.node(victims.node).map(|node| node.name.to_string());
        let time = api_time(self.now);
        if let Some(state) = self.nodes.slots.get_mut(victims.node.0).and_then(Option::as_mut) {
            state.nominated = Some((pending.place.rank, key.clone()));
        }
        self.nodes.nominations.insert(key.clone(), victims.node);
        if victims.staying == 0 {
            // There is room soon without anybody's being sent away.
            return false;
        }
        Arc::make_mut(&mut pod).status.get_or_insert_default().nominated_node_name.clone_from(&node);
        self.store.put(Object::Pod(pod));
        let job = self.job_of_pod(key);
        let names: Vec<&str> = victims.pods.iter().map(|pod| &*pod.name).collect();
        let text = format!(
            "its pod {} preempts {} on node {}",
            key.name,
            names.join(", "),
            node.as_deref().unwrap_or_default()
        );
        self.say(job, EntryKind::Scheduling, text);
        for victim in &victims.pods {
            let Some(Object::Pod(pod)) = self.store.get(victim) else { continue };
            if pod.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let mut pod = pod.clone();
            let message = "default-scheduler: preempting to accommodate a higher priority pod";
            failure::disrupt(Arc::make_mut(&mut pod), "PreemptionByScheduler", message, &time);
            self.store.put(Object::Pod(pod));
            self.store.delete(victim);
        }
        true
    }
}
