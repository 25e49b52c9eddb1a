//! What the pod sets of a workload use together.

use std::collections::BTreeMap;

use slicegate_quota::{Decimal, Quantity};

use crate::pod_requests::add_quantities;
use crate::{PodSetRequests, ReclaimablePods, Requests, ResourceList, Workload, WorkloadSpec};

/// What becomes of the resource that is turned into others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TransformStrategy {
    /// It stays.
    #[default]
    Retain,
    /// It goes.
    Replace,
}

/// A rule by which one resource counts as others.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Transformation {
    /// What becomes of the input.
    pub strategy: TransformStrategy,
    /// A resource of the same pod whose quantity the input is multiplied by first.
    pub multiply_by: Option<Box<str>>,
    /// What one unit of the input counts as. Negative factors are allowances: they reduce what rules generate, never what is
    /// requested directly.
    pub outputs: ResourceList,
}

/// How requests of pods become requests for quota.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestOptions {
    /// Resources whose names begin with one of these need no quota.
    pub excluded_prefixes: Vec<Box<str>>,
    /// Rules by input resource.
    pub transformations: BTreeMap<Box<str>, Transformation>,
    /// Whether pods that will not run again give their quota back.
    pub reclaimable_pods: bool,
}

impl Default for RequestOptions {
    fn default() -> Self {
        Self { excluded_prefixes: Vec::new(), transformations: BTreeMap::new(), reclaimable_pods: true }
    }
}

/// Devices that a pod set claims, in terms of quota.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeviceRequests {
    /// Resources that the devices replace.
    pub replaced: Vec<Box<str>>,
    /// What they count as, a pod.
    pub added: ResourceList,
}

/// Pods in one topology domain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DomainUsage {
    /// The domain's values, a level each.
    pub values: Vec<Box<str>>,
    /// Pods.
    pub count: i32,
    /// What one of them takes from its node. Rules for quota do not change it.
    pub single_pod: Requests,
}

/// Where the pods of a pod set use capacity.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TopologyUsage {
    /// Node labels, coarsest first.
    pub levels: Vec<Box<str>>,
    /// Domains.
    pub domains: Vec<DomainUsage>,
}

/// What the pods of a pod set ask for, or got, together.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PodSetTotals {
    /// The pod set.
    pub name: Box<str>,
    /// How many pods.
    pub count: i32,
    /// What they use together.
    pub requests: Requests,
    /// The flavor by resource, of a workload that holds quota.
    pub flavors: BTreeMap<Box<str>, Box<str>>,
    /// Where they lie, of a workload with a topology assignment.
    pub topology: Option<TopologyUsage>,
}

impl PodSetTotals {
    /// What one pod uses, fractions cut off.
    pub fn single_pod(&self) -> Requests {
        self.requests.divided_by(i64::from(self.count))
    }

    /// The totals for another number of pods. Pods that have places keep them, so nothing changes then.
    #[must_use]
    pub fn scaled_to(&self, count: i32) -> Self {
        if self.topology.is_some() || self.count == 0 || self.count == count {
            return self.clone();
        }
        Self { count, requests: self.single_pod().times(i64::from(count)), ..self.clone() }
    }
}

/// Usage of a workload by flavor and resource.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WorkloadUsage {
    /// What counts against quota, by flavor and resource.
    pub assigned: BTreeMap<(Box<str>, Box<str>), i64>,
    /// What has no flavor and counts nowhere.
    pub unassigned: BTreeMap<Box<str>, i64>,
}

impl WorkloadUsage {
    /// The sum over pod sets.
    pub fn of(totals: &[PodSetTotals]) -> Self {
        let mut usage = Self::default();
        for pod_set in totals {
            for (resource, amount) in pod_set.requests.iter() {
                let sum = match pod_set.flavors.get(resource) {
                    Some(flavor) => usage.assigned.entry((flavor.clone(), resource.into())).or_default(),
                    None => usage.unassigned.entry(resource.into()).or_default(),
                };
                *sum = sum.saturating_add(amount);
            }
        }
        usage
    }
}

/// The reclaimable pods of a status with no more of a pod set than it has. Those of unknown pod sets are left as they are.
pub fn limit_reclaimable_pods(spec: &WorkloadSpec, reclaimable: &[ReclaimablePods]) -> Vec<ReclaimablePods> {
    let limit = |r: &ReclaimablePods| {
        let count = spec.pod_sets.iter().find(|p| p.name == r.name).map_or(r.count, |p| p.count.min(r.count));
        ReclaimablePods { name: r.name.clone(), count }
    };
    reclaimable.iter().map(limit).collect()
}

/// Sets what a waiting workload shows as its requests; whether that changed anything.
pub fn propagate_requests(workload: &mut Workload, totals: &[PodSetTotals]) -> bool {
    let shown: Vec<PodSetRequests> =
        totals.iter().map(|t| PodSetRequests { name: t.name.clone(), resources: t.requests.to_quantities() }).collect();
    let changed = workload.status.resource_requests != shown;
    if changed {
        workload.status.resource_requests = shown;
    }
    changed
}

impl Workload {
    /// How many pods of each pod set count: all but those that will not run again.
    fn counted_pods(&self, options: &RequestOptions) -> Vec<i32> {
        let reclaimable = |name: &str| {
            let found = self.status.reclaimable_pods.iter().find(|r| *r.name == *name);
            found.filter(|_| options.reclaimable_pods).map_or(0, |r| r.count)
        };
        self.spec.pod_sets.iter().map(|p| p.count.saturating_sub(reclaimable(&p.name).min(p.count))).collect()
    }

    /// What each pod set uses: as admitted if the workload holds quota, as asked for otherwise.
    pub fn totals(&self, options: &RequestOptions) -> Vec<PodSetTotals> {
        if self.status.admission.is_some() { self.admitted_totals(options) } else { self.pending_totals(options) }
    }

    /// What each pod set asks for.
    pub fn pending_totals(&self, options: &RequestOptions) -> Vec<PodSetTotals> {
        self.pending_totals_with_devices(options, &BTreeMap::new())
    }

    /// What each pod set asks for, with claimed devices by pod set.
    pub fn pending_totals_with_devices(
        &self,
        options: &RequestOptions,
        devices: &BTreeMap<Box<str>, DeviceRequests>,
    ) -> Vec<PodSetTotals> {
        let pod_sets = self.spec.pod_sets.iter().zip(self.counted_pods(options));
        pod_sets
            .map(|(pod_set, count)| {
                let mut single = pod_set.pod.requests();
                single.retain(|resource, _| !options.excluded_prefixes.iter().any(|p| resource.starts_with(&**p)));
                let mut single = transform(single, &options.transformations);
                if let Some(devices) = devices.get(&pod_set.name) {
                    single.retain(|resource, _| !devices.replaced.contains(resource));
                    add_quantities(&mut single, &devices.added);
                }
                let requests = Requests::from(&single).or_zero().times(i64::from(count));
                PodSetTotals { name: pod_set.name.clone(), count, requests, ..PodSetTotals::default() }
            })
            .collect()
    }

    /// What each pod set got. Nothing without an admission.
    pub fn admitted_totals(&self, options: &RequestOptions) -> Vec<PodSetTotals> {
        let Some(admission) = &self.status.admission else { return Vec::new() };
        let counted = self.counted_pods(options);
        admission
            .pod_set_assignments
            .iter()
            .map(|assignment| {
                let spec = self.spec.pod_sets.iter().zip(&counted).find(|(p, _)| p.name == assignment.name);
                let spec_count = spec.map_or(0, |(p, _)| p.count);
                let mut totals = PodSetTotals {
                    name: assignment.name.clone(),
                    count: assignment.count.unwrap_or(spec_count),
                    requests: Requests::from(&assignment.resource_usage),
                    flavors: assignment.flavors.clone(),
                    topology: None,
                };
                let single_pod = match spec {
                    Some((pod_set, _)) => Requests::from(&pod_set.pod.requests()),
                    None => totals.single_pod(),
                };
                // Fewer pods than were asked for stay as they were admitted.
                if let Some((_, &count)) = spec
                    && count < totals.count
                {
                    totals = totals.scaled_to(count);
                }
                // The places of pods that are gone are only given back by the next assignment.
                totals.topology = assignment.topology_assignment.as_ref().map(|topology| TopologyUsage {
                    levels: topology.levels.clone(),
                    domains: topology
                        .domains
                        .iter()
                        .map(|d| DomainUsage {
                            values: d.values.clone(),
                            count: d.count,
                            single_pod: single_pod.clone(),
                        })
                        .collect(),
                });
                totals
            })
            .collect()
    }
}

/// Applies the rules to what one pod asks for. What rules generate is summed exactly and floored at zero, then added to what
/// stays.
fn transform(input: ResourceList, rules: &BTreeMap<Box<str>, Transformation>) -> ResourceList {
    if !input.keys().any(|resource| rules.contains_key(resource)) {
        return input;
    }
    let mut retained = ResourceList::new();
    let mut generated: BTreeMap<&str, Decimal> = BTreeMap::new();
    for (resource, &quantity) in &input {
        let Some(rule) = rules.get(resource) else {
            retained.insert(resource.clone(), quantity);
            continue;
        };
        let mut value = Decimal::from(quantity);
        if let Some(&by) = rule.multiply_by.as_ref().and_then(|by| input.get(by)) {
            value = value.times(Decimal::from(by));
        }
        for (output, &factor) in &rule.outputs {
            let sum = generated.entry(output).or_default();
            *sum = sum.plus(value.times(Decimal::from(factor)));
        }
        if rule.strategy == TransformStrategy::Retain {
            retained.insert(resource.clone(), quantity);
        }
    }
    for (resource, sum) in generated {
        // The floor comes first: an allowance never reaches what is requested directly.
        let sum = if sum.is_negative() { Decimal::ZERO } else { sum };
        let total = retained.entry(resource.into()).or_insert(Quantity::ZERO);
        *total = Decimal::from(*total).plus(sum).to_quantity();
    }
    retained
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        Admission, Container, PodSet, PodSetAssignment, PodSpec, Resources, TopologyAssignment, TopologyDomain,
    };

    fn list(entries: &[(&str, &str)]) -> ResourceList {
        entries.iter().map(|&(r, q)| (r.into(), q.parse().unwrap())).collect()
    }

    fn requests(entries: &[(&str, i64)]) -> Requests {
        entries.iter().copied().collect()
    }

    fn workload(count: i32, entries: &[(&str, &str)]) -> Workload {
        let resources = Resources { requests: list(entries), ..Resources::default() };
        let pod = PodSpec { containers: vec![Container { resources, ..Container::default() }], ..PodSpec::default() };
        let mut workload = Workload::default();
        workload.spec.pod_sets = vec![PodSet { name: "main".into(), count, pod, ..PodSet::default() }];
        workload
    }

    fn admitted(mut workload: Workload, count: Option<i32>, usage: &[(&str, &str)]) -> Workload {
        workload.status.admission = Some(Admission {
            cluster_queue: "q".into(),
            pod_set_assignments: vec![PodSetAssignment {
                name: "main".into(),
                flavors: [("cpu".into(), "f".into())].into(),
                resource_usage: list(usage),
                count,
                ..PodSetAssignment::default()
            }],
        });
        workload
    }

    fn reclaim(mut workload: Workload, count: i32) -> Workload {
        workload.status.reclaimable_pods = vec![ReclaimablePods { name: "main".into(), count }];
        workload
    }

    fn rule(strategy: TransformStrategy, by: Option<&str>, outputs: &[(&str, &str)]) -> Transformation {
        Transformation { strategy, multiply_by: by.map(Into::into), outputs: list(outputs) }
    }

    #[test]
    fn pods_that_will_not_run_again_do_not_count() {
        let options = RequestOptions::default();
        let pending = |w: &Workload| w.totals(&options)[0].clone();
        let five = workload(5, &[("cpu", "1")]);
        assert_eq!(pending(&five).requests, requests(&[("cpu", 5000)]));
        let totals = pending(&reclaim(five.clone(), 2));
        assert_eq!((totals.count, totals.requests), (3, requests(&[("cpu", 3000)])));
        assert_eq!(pending(&reclaim(five.clone(), 9)).count, 0, "no more than there are");
        let off = RequestOptions { reclaimable_pods: false, ..RequestOptions::default() };
        assert_eq!(reclaim(five, 2).totals(&off)[0].count, 5);
    }

    #[test]
    fn admitted_pods_count_as_admitted() {
        let options = RequestOptions::default();
        let got = |w: Workload| {
            let totals = w.totals(&options).remove(0);
            (totals.count, totals.requests.get("cpu"))
        };
        let usage = &[("cpu", "10")];
        let five = || workload(5, &[("cpu", "1")]);
        assert_eq!(got(admitted(five(), None, usage)), (5, Some(10_000)), "the usage is what was recorded");
        assert_eq!(got(admitted(five(), Some(3), usage)), (3, Some(10_000)), "fewer pods than asked for");
        assert_eq!(got(reclaim(admitted(five(), Some(3), usage), 1)), (3, Some(10_000)), "4 are left, only 3 run");
        assert_eq!(got(reclaim(admitted(five(), Some(3), usage), 4)), (1, Some(3_333)), "cut off, then multiplied");
        assert_eq!(got(reclaim(admitted(five(), Some(3), usage), 5)), (0, Some(0)));
        let mut gone = admitted(five(), Some(3), usage);
        gone.spec.pod_sets.clear();
        assert_eq!(got(gone), (3, Some(10_000)), "an assignment of a pod set that is gone");
    }

    #[test]
    fn places_take_what_pods_ask_for_whatever_quota_they_count_as() {
        let mut workload = admitted(workload(2, &[("cpu", "1"), ("net", "1")]), Some(2), &[("credits", "6")]);
        let domains = vec![TopologyDomain { values: vec!["n".into()], count: 2 }];
        let topology = TopologyAssignment { levels: vec!["host".into()], domains };
        let assign = |w: &mut Workload, name: &str| {
            if let Some(admission) = &mut w.status.admission {
                let assignment = &mut admission.pod_set_assignments[0];
                assignment.name = name.into();
                assignment.topology_assignment = Some(topology.clone());
            }
        };
        assign(&mut workload, "main");
        let options = RequestOptions::default();
        let usage = |w: &Workload| w.totals(&options)[0].topology.clone().unwrap().domains.remove(0);
        assert_eq!(usage(&workload).single_pod, requests(&[("cpu", 1000), ("net", 1)]));
        let reclaimed = reclaim(workload.clone(), 1);
        let totals = reclaimed.totals(&options).remove(0);
        assert_eq!((totals.count, totals.requests.get("credits")), (1, Some(3)));
        assert_eq!(usage(&reclaimed).count, 2, "places are kept");
        assert_eq!(totals.scaled_to(7), totals, "and the totals with them");
        assign(&mut workload, "unknown");
        assert_eq!(usage(&workload).single_pod, requests(&[("credits", 3)]));
    }

    #[test]
    fn scaling_cuts_off_and_multiplies() {
        let totals = PodSetTotals { count: 3, requests: requests(&[("cpu", 10)]), ..PodSetTotals::default() };
        assert_eq!(totals.scaled_to(2).requests, requests(&[("cpu", 6)]));
        assert_eq!(totals.scaled_to(2).count, 2);
        assert_eq!(totals.scaled_to(3), totals);
        let none = PodSetTotals { count: 0, ..totals };
        assert_eq!(none.scaled_to(2), none, "there is no telling what one of no pods takes");
    }

    #[test]
    fn rules_see_what_exclusion_leaves_and_their_outputs_stay() {
        use TransformStrategy::{Replace, Retain};
        let workload = workload(2, &[("a/x", "3"), ("b/y", "2"), ("c/z", "1")]);
        let options = RequestOptions {
            excluded_prefixes: vec!["b/".into()],
            transformations: [
                ("a/x".into(), rule(Retain, Some("b/y"), &[("b/out", "1500m")])),
                ("b/y".into(), rule(Replace, None, &[("never", "1")])),
                ("c/z".into(), rule(Replace, None, &[])),
            ]
            .into(),
            ..RequestOptions::default()
        };
        // 3 * 1.5 = 4.5, rounded up to 5 a pod; multiplied by nothing, as b/y is not there.
        assert_eq!(workload.totals(&options)[0].requests, requests(&[("a/x", 6), ("b/out", 10)]));
    }

    #[test]
    fn an_allowance_reduces_only_what_rules_generate() {
        use TransformStrategy::{Replace, Retain};
        let workload = workload(1, &[("gpu", "2"), ("mem", "3"), ("out", "7")]);
        let totals = |per_mem: &str| {
            let rules = [
                ("gpu".into(), rule(Retain, None, &[("out", "-5")])),
                ("mem".into(), rule(Replace, None, &[("out", per_mem)])),
            ];
            let options = RequestOptions { transformations: rules.into(), ..RequestOptions::default() };
            workload.totals(&options)[0].requests.clone()
        };
        assert_eq!(totals("1"), requests(&[("gpu", 2), ("out", 7)]), "3 - 10 is nothing, 7 were asked for");
        assert_eq!(totals("5"), requests(&[("gpu", 2), ("out", 12)]), "15 - 10 and 7");
    }

    #[test]
    fn fractions_of_rules_add_up_before_they_are_rounded() {
        let workload = workload(1, &[("a", "1n"), ("b", "1n")]);
        let half = |_: &str| rule(TransformStrategy::Replace, None, &[("out", "500m")]);
        let rules = [("a".into(), half("a")), ("b".into(), half("b"))];
        let options = RequestOptions { transformations: rules.into(), ..RequestOptions::default() };
        let mut single = workload.spec.pod_sets[0].pod.requests();
        single = transform(single, &options.transformations);
        assert_eq!(single, list(&[("out", "1n")]));
    }

    #[test]
    fn devices_replace_and_add() {
        let workload = workload(2, &[("cpu", "1"), ("dev/a", "1")]);
        let devices = DeviceRequests { replaced: vec!["dev/a".into()], added: list(&[("logical", "3")]) };
        let totals =
            workload.pending_totals_with_devices(&RequestOptions::default(), &[("main".into(), devices)].into());
        assert_eq!(totals[0].requests, requests(&[("cpu", 2000), ("logical", 6)]));
    }

    #[test]
    fn shown_requests_change_only_if_they_differ() {
        let mut workload = workload(1, &[("memory", "1024Mi")]);
        let totals = workload.totals(&RequestOptions::default());
        assert!(propagate_requests(&mut workload, &totals));
        assert_eq!(workload.status.resource_requests[0].resources["memory"].to_string(), "1Gi");
        assert!(!propagate_requests(&mut workload, &totals));
    }

    proptest! {
        #[test]
        fn usage_is_the_sum_of_the_pod_sets(
            pod_sets in proptest::collection::vec(
                proptest::collection::btree_map("[a-c]", (0..1000_i64, proptest::option::of("[fg]")), 0..3), 0..5),
        ) {
            let totals: Vec<PodSetTotals> = pod_sets
                .iter()
                .map(|p| PodSetTotals {
                    requests: p.iter().map(|(r, (n, _))| (r.as_str(), *n)).collect(),
                    flavors: p
                        .iter()
                        .filter_map(|(r, (_, f))| Some((r.as_str().into(), f.as_deref()?.into())))
                        .collect(),
                    ..PodSetTotals::default()
                })
                .collect();
            let usage = WorkloadUsage::of(&totals);
            let counted: i64 = usage.assigned.values().sum::<i64>() + usage.unassigned.values().sum::<i64>();
            let asked: i64 = pod_sets.iter().flat_map(|p| p.values()).map(|(n, _)| n).sum();
            prop_assert_eq!(counted, asked);
        }

        #[test]
        fn no_counts_panic(count: i32, admitted_count: Option<i32>, reclaimable: i32, scaled: i32) {
            let workload = admitted(reclaim(workload(count, &[("cpu", "1E")]), reclaimable), admitted_count, &[("cpu", "1E")]);
            for totals in [workload.pending_totals(&RequestOptions::default()), workload.totals(&RequestOptions::default())] {
                let _ = totals[0].scaled_to(scaled);
            }
        }
    }
}
