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
