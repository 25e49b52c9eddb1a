//! Which workloads the scheduler cannot tell apart.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::{Container, PodSetTotals, PodSpec, ResourceList, Workload};

/// What scheduling sees of a workload. Two workloads with equal keys get the same answer from the same ClusterQueue, so when one
/// does not fit there is no need to try the other.
///
/// A key holds priority, pod counts, totals, topology requests and the shape of the pods; not the queue, the names of containers,
/// labels or limits. It is exact: different workloads never share a key by accident.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SchedulingKey(Arc<str>);

/// What else counts for equivalence.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EquivalenceOptions {
    /// Whether the boost of the priority counts.
    pub priority_boost: bool,
    /// Whether the flavors that a workload is restricted to count.
    pub concurrent_admission: bool,
}

/// Text in which every field has a length, so that no two sequences of fields look the same.
#[derive(Default)]
struct Fields(String);

impl Fields {
    fn text(&mut self, text: &str) {
        let _ = write!(self.0, "{}:{text},", text.len());
    }

    fn debug(&mut self, value: &impl std::fmt::Debug) {
        self.text(&format!("{value:?}"));
    }

    fn list(&mut self, list: &ResourceList) {
        let _ = write!(self.0, "{}{{", list.len());
        for (resource, quantity) in list {
            self.text(resource);
            let _ = write!(self.0, "{},", quantity.nanos());
        }
        self.0.push('}');
    }

    fn containers(&mut self, containers: &[Container]) {
        let _ = write!(self.0, "{}[", containers.len());
        for container in containers {
            self.list(&container.resources.requests);
            self.text(&container.ports);
        }
        self.0.push(']');
    }

    fn pod(&mut self, pod: &PodSpec) {
        self.containers(&pod.init_containers);
        self.containers(&pod.containers);
        self.debug(&pod.node_selector);
        self.debug(&pod.node_affinity);
        self.text(&pod.opaque.affinity);
        self.debug(&pod.tolerations);
        self.debug(&pod.runtime_class);
        self.debug(&pod.priority);
        self.text(&pod.opaque.topology_spread_constraints);
        self.list(&pod.overhead);
        self.text(&pod.opaque.resource_claims);
        match &pod.resources {
            Some(resources) => self.list(&resources.requests),
            None => self.0.push('-'),
        }
    }
}

impl SchedulingKey {
    /// The key of a workload with these totals, one a pod set.
    pub fn new(workload: &Workload, totals: &[PodSetTotals], options: EquivalenceOptions) -> Self {
        let mut fields = Fields::default();
        fields.debug(&workload.effective_priority(options.priority_boost));
        for totals in totals {
            fields.text(&totals.name);
            fields.debug(&totals.count);
            for (resource, amount) in totals.requests.iter() {
                fields.text(resource);
                fields.debug(&amount);
            }
            fields.0.push(';');
        }
        for pod_set in &workload.spec.pod_sets {
            fields.debug(&pod_set.min_count);
            fields.debug(&pod_set.topology_request);
            fields.debug(&pod_set.pods_per_pool);
            fields.pod(&pod_set.pod);
        }
        if options.concurrent_admission {
            fields.debug(&workload.annotations.get(crate::ALLOWED_FLAVORS));
        }
        Self(fields.0.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PodSet, RequestOptions, Resources};

    fn key(change: impl FnOnce(&mut Workload)) -> SchedulingKey {
        let mut workload = Workload::default();
        let requests = [("cpu".into(), "1".parse().unwrap())].into();
        let container = Container { resources: Resources { requests, ..Resources::default() }, ..Container::default() };
        let pod = PodSpec { containers: vec![container], ..PodSpec::default() };
        workload.spec.pod_sets = vec![PodSet { name: "main".into(), count: 2, pod, ..PodSet::default() }];
        change(&mut workload);
        let totals = workload.pending_totals(&RequestOptions::default());
        SchedulingKey::new(&workload, &totals, EquivalenceOptions::default())
    }

    fn pod(workload: &mut Workload) -> &mut PodSpec {
        &mut workload.spec.pod_sets[0].pod
    }

    #[test]
    fn what_scheduling_does_not_see_makes_no_difference() {
        let same = key(|_| ());
        assert_eq!(key(|w| w.key.name = "other".into()), same);
        assert_eq!(key(|w| w.spec.queue_name = "other".into()), same);
        assert_eq!(key(|w| drop(w.labels.insert("a".into(), "b".into()))), same);
        assert_eq!(key(|w| pod(w).containers[0].name = "other".into()), same);
        let limit = || ("cpu".into(), "9".parse().unwrap());
        assert_eq!(key(|w| pod(w).containers[0].resources.limits.extend([limit()])), same);
    }

    #[test]
    fn what_it_sees_does() {
        type Change = fn(&mut Workload);
        let changes: &[Change] = &[
            |w| w.spec.priority = 1,
            |w| w.spec.pod_sets[0].count = 3,
            |w| w.spec.pod_sets[0].min_count = Some(1),
            |w| w.spec.pod_sets[0].name = "x".into(),
            |w| w.spec.pod_sets[0].pods_per_pool = Some(2),
            |w| w.spec.pod_sets[0].topology_request = Some(crate::TopologyRequest::default()),
            |w| pod(w).containers[0].ports = "80".into(),
            |w| pod(w).containers.push(Container::default()),
            |w| pod(w).init_containers.push(Container::default()),
            |w| drop(pod(w).node_selector.insert("a".into(), "b".into())),
            |w| pod(w).node_affinity = Some(crate::NodeAffinity::default()),
            |w| pod(w).tolerations.push(crate::Toleration::default()),
            |w| pod(w).runtime_class = Some("r".into()),
            |w| pod(w).priority = Some(0),
            |w| pod(w).opaque.affinity = "a".into(),
            |w| pod(w).opaque.topology_spread_constraints = "a".into(),
            |w| pod(w).opaque.resource_claims = "a".into(),
            |w| pod(w).resources = Some(Resources::default()),
            |w| w.status.reclaimable_pods = vec![crate::ReclaimablePods { name: "main".into(), count: 1 }],
        ];
        let mut keys: Vec<SchedulingKey> = changes.iter().map(key).collect();
        keys.push(key(|_| ()));
        let n = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), n, "all differ from one another");
    }
}
