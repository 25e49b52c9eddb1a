//! What one pod asks for, and the defaults that are applied before.

use std::collections::BTreeMap;

use crate::{
    Container, LimitRangeItem, LimitRangeSummary, LimitType, PodSpec, ResourceList, Resources, WorkloadSpec,
    merge_resources,
};

/// Adds every quantity of `list` to `sum`.
pub(crate) fn add_quantities(sum: &mut ResourceList, list: &ResourceList) {
    merge_resources(sum, list, slicegate_quota::Quantity::plus);
}

/// Copies the quantities of resources that `list` lacks.
fn fill(list: &mut ResourceList, from: &ResourceList) {
    merge_resources(list, from, |old, _| old);
}

/// Whether requests for the pod as a whole count for the resource: cpu, memory and huge pages only.
fn is_pod_level_resource(resource: &str) -> bool {
    resource == "cpu" || resource == "memory" || resource.starts_with("hugepages-")
}

impl PodSpec {
    /// What one pod asks for, as Kubernetes counts it.
    ///
    /// All containers and sidecars together, or an init container together with the sidecars before it if that is more;
    /// requests of the pod as a whole instead, for cpu, memory and huge pages where they are given; and the overhead.
    pub fn requests(&self) -> ResourceList {
        let mut running = ResourceList::new();
        for container in &self.containers {
            add_quantities(&mut running, &container.resources.requests);
        }
        let mut sidecars = ResourceList::new();
        let mut peak = ResourceList::new();
        for container in &self.init_containers {
            let requests = &container.resources.requests;
            let mut at_this_time;
            if container.restart_always {
                add_quantities(&mut running, requests);
                add_quantities(&mut sidecars, requests);
                at_this_time = sidecars.clone();
            } else {
                at_this_time = requests.clone();
                add_quantities(&mut at_this_time, &sidecars);
            }
            merge_resources(&mut peak, &at_this_time, Ord::max);
        }
        let mut total = running;
        merge_resources(&mut total, &peak, Ord::max);
        if let Some(resources) = &self.resources {
            let pod_level = resources.requests.iter().filter(|(resource, _)| is_pod_level_resource(resource));
            total.extend(pod_level.map(|(resource, quantity)| (resource.clone(), *quantity)));
        }
        add_quantities(&mut total, &self.overhead);
        total
    }

    /// Asks for the limit of every resource that has one and is not asked for, as the API server fills it in.
    pub fn use_limits_as_requests(&mut self) {
        let apply = |resources: &mut Resources| fill(&mut resources.requests, &resources.limits);
        for container in all_containers(self) {
            apply(&mut container.resources);
        }
        if let Some(resources) = &mut self.resources {
            apply(resources);
        }
    }
}

/// A RuntimeClass that a pod names but that does not exist. The pod is taken to have no overhead.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "spec.podSets[{pod_set}].template.spec.runtimeClassName: there is no RuntimeClass {name:?}, so no overhead is counted; \
     create it or name another"
)]
pub struct MissingRuntimeClass {
    /// The index of the pod set.
    pub pod_set: usize,
    /// The name.
    pub name: Box<str>,
}

/// Applies what the cluster adds to the requests of pods, in this order: the overhead of the RuntimeClass, the defaults of the
/// namespace's limit ranges, and limits as requests where there are none. Returns the RuntimeClasses that are missing.
pub fn adjust_requests(
    spec: &mut WorkloadSpec,
    overhead_of_class: &BTreeMap<Box<str>, ResourceList>,
    limit_ranges: &LimitRangeSummary,
) -> Vec<MissingRuntimeClass> {
    let mut missing = Vec::new();
    for (index, pod_set) in spec.pod_sets.iter_mut().enumerate() {
        let pod = &mut pod_set.pod;
        if let Some(class) = &pod.runtime_class
            && pod.overhead.is_empty()
        {
            match overhead_of_class.get(class) {
                Some(overhead) => pod.overhead.clone_from(overhead),
                None => missing.push(MissingRuntimeClass { pod_set: index, name: class.clone() }),
            }
        }
        apply_defaults(pod, limit_ranges);
        pod.use_limits_as_requests();
    }
    missing
}

fn all_containers(pod: &mut PodSpec) -> impl Iterator<Item = &mut Container> {
    pod.init_containers.iter_mut().chain(&mut pod.containers)
}

fn apply_defaults(pod: &mut PodSpec, limit_ranges: &LimitRangeSummary) {
    let apply = |resources: &mut Resources, item: &LimitRangeItem| {
        fill(&mut resources.limits, &item.default);
        fill(&mut resources.requests, &item.default_request);
    };
    if let Some(item) = limit_ranges.get(&LimitType::Container) {
        for container in all_containers(pod) {
            apply(&mut container.resources, item);
        }
    }
    if let Some(item) = limit_ranges.get(&LimitType::Pod)
        && let Some(resources) = &mut pod.resources
    {
        apply(resources, item);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use slicegate_quota::Quantity;

    use super::*;

    fn list(entries: &[(&str, &str)]) -> ResourceList {
        entries.iter().map(|&(r, q)| (r.into(), q.parse().unwrap())).collect()
    }

    fn container(entries: &[(&str, &str)]) -> Container {
        Container { resources: Resources { requests: list(entries), ..Resources::default() }, ..Container::default() }
    }

    fn sidecar(entries: &[(&str, &str)]) -> Container {
        Container { restart_always: true, ..container(entries) }
    }

    fn cpu(pod: &PodSpec) -> Quantity {
        pod.requests().get("cpu").copied().unwrap_or_default()
    }

    #[test]
    fn containers_add_up_and_init_containers_peak() {
        let mut pod = PodSpec {
            containers: vec![container(&[("cpu", "1")]), container(&[("cpu", "2"), ("memory", "1Gi")])],
            ..PodSpec::default()
        };
        assert_eq!(pod.requests(), list(&[("cpu", "3"), ("memory", "1Gi")]));
        pod.init_containers = vec![container(&[("cpu", "5")]), container(&[("memory", "2Gi")])];
        assert_eq!(pod.requests(), list(&[("cpu", "5"), ("memory", "2Gi")]));
    }

    #[test]
    fn a_sidecar_counts_while_containers_and_later_init_containers_run() {
        let pod = PodSpec {
            init_containers: vec![container(&[("cpu", "4")]), sidecar(&[("cpu", "2")]), container(&[("cpu", "4")])],
            containers: vec![container(&[("cpu", "1")])],
            ..PodSpec::default()
        };
        assert_eq!(cpu(&pod).value(), 6, "the last init container runs beside the sidecar");
        let pod = PodSpec {
            init_containers: vec![container(&[("cpu", "4")]), sidecar(&[("cpu", "2")])],
            containers: vec![container(&[("cpu", "3")])],
            ..PodSpec::default()
        };
        assert_eq!(cpu(&pod).value(), 5, "the first one does not");
    }

    #[test]
    fn requests_of_the_pod_replace_the_sum_for_some_resources() {
        let pod = PodSpec {
            containers: vec![container(&[("cpu", "1"), ("memory", "1Gi"), ("google.com/tpu", "4")])],
            resources: Some(Resources {
                requests: list(&[("cpu", "3"), ("hugepages-2Mi", "4Mi"), ("google.com/tpu", "8")]),
                ..Resources::default()
            }),
            overhead: list(&[("cpu", "100m")]),
            ..PodSpec::default()
        };
        let want = list(&[("cpu", "3100m"), ("memory", "1Gi"), ("google.com/tpu", "4"), ("hugepages-2Mi", "4Mi")]);
        assert_eq!(pod.requests(), want);
    }

    #[test]
    fn overhead_comes_from_the_class_only_if_the_pod_has_none() {
        let classes = BTreeMap::from([("gvisor".into(), list(&[("cpu", "1")]))]);
        let pod = |class: &str, overhead| PodSpec { runtime_class: Some(class.into()), overhead, ..PodSpec::default() };
        let mut spec = WorkloadSpec {
            pod_sets: [pod("gvisor", list(&[])), pod("gvisor", list(&[("cpu", "2")])), pod("gone", list(&[]))]
                .map(|pod| crate::PodSet { pod, ..crate::PodSet::default() })
                .into(),
            ..WorkloadSpec::default()
        };
        let missing = adjust_requests(&mut spec, &classes, &LimitRangeSummary::default());
        assert_eq!(missing, [MissingRuntimeClass { pod_set: 2, name: "gone".into() }]);
        let overheads: Vec<_> = spec.pod_sets.iter().map(|p| cpu(&p.pod).value()).collect();
        assert_eq!(overheads, [1, 2, 0]);
    }

    /// What runs at the same time, moment by moment: each init container with the sidecars that have started, then everything
    /// else with all sidecars. The pod needs the most of each resource that any moment needs.
    fn most_of_all_moments(pod: &PodSpec, resource: &str) -> i64 {
        let of = |c: &Container| c.resources.requests.get(resource).map_or(0, |q| q.value());
        let mut moments = Vec::new();
        for (i, container) in pod.init_containers.iter().enumerate() {
            let started: i64 = pod.init_containers[..i].iter().filter(|c| c.restart_always).map(of).sum();
            moments.push(started + of(container));
        }
        let sidecars: i64 = pod.init_containers.iter().filter(|c| c.restart_always).map(of).sum();
        moments.push(sidecars + pod.containers.iter().map(of).sum::<i64>());
        moments.into_iter().max().unwrap_or(0)
    }

    fn any_container() -> impl Strategy<Value = Container> {
        (proptest::collection::btree_map("[ab]", 0..10_i64, 0..3), any::<bool>()).prop_map(
            |(requests, restart_always)| {
                let requests = requests.into_iter().map(|(r, n)| (r.into(), Quantity::from_units(n))).collect();
                Container {
                    resources: Resources { requests, ..Resources::default() },
                    restart_always,
                    ..Container::default()
                }
            },
        )
    }

    proptest! {
        #[test]
        fn a_pod_needs_what_its_busiest_moment_needs(
            init_containers in proptest::collection::vec(any_container(), 0..5),
            mut containers in proptest::collection::vec(any_container(), 0..4),
            overhead in 0..5_i64,
        ) {
            for container in &mut containers {
                container.restart_always = false;
            }
            let overhead = ResourceList::from([("a".into(), Quantity::from_units(overhead))]);
            let pod = PodSpec { init_containers, containers, overhead: overhead.clone(), ..PodSpec::default() };
            let got = pod.requests();
            for resource in ["a", "b"] {
                let extra = overhead.get(resource).map_or(0, |q| q.value());
                let want = most_of_all_moments(&pod, resource) + extra;
                prop_assert_eq!(got.get(resource).map_or(0, |q| q.value()), want, "{}", resource);
            }
        }
    }
}
