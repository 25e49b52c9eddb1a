//! What workloads ask for, kept once for all that ask for the same.

use std::collections::BTreeMap;

use slicegate_flavor::{Eligibility, FlavorTable, ResourceOrder, TopologyDemand};
use slicegate_placement::PodRequest;
use slicegate_quota::{Names, ResourceId};
use slicegate_workload::{
    EquivalenceOptions, FieldErrors, LimitRangeSummary, PodSet, PodSetRequests, PodSetTotals, RequestOptions, Requests,
    ResourceList, SchedulingKey, Workload, adjust_requests, validate_limit_range, validate_resources,
};

use super::ids::{ClassId, ShapeId, Slab};

/// A pod set, resolved.
#[derive(Clone, Debug)]
pub(super) struct ShapePodSet {
    /// How many pods count.
    pub(super) count: i32,
    /// What they ask for together, in request order.
    pub(super) requests: Vec<(ResourceId, i64)>,
    /// The number of its pod set group.
    pub(super) group: Option<u32>,
    pub(super) eligibility: Eligibility,
    pub(super) topology: TopologyDemand,
    /// What the pod's own spec asks for.
    pub(super) pod_resources: Vec<ResourceId>,
    /// What one pod takes of its node.
    pub(super) pod_request: PodRequest,
}

/// A list of pod sets and what it comes to.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    key: SchedulingKey,
    /// As written.
    pub(super) raw: Vec<PodSet>,
    /// With defaults filled in, if that changed anything.
    adjusted: Option<Vec<PodSet>>,
    pub(super) totals: Vec<PodSetTotals>,
    pub(super) pod_sets: Vec<ShapePodSet>,
    /// What is wrong with the requests.
    pub(super) invalid: Option<Box<str>>,
    users: usize,
}

impl Shape {
    /// The pod sets with defaults filled in.
    pub(super) fn pod_sets(&self) -> &[PodSet] {
        self.adjusted.as_ref().unwrap_or(&self.raw)
    }

    /// What a waiting workload shows as its requests.
    pub(super) fn shown_requests(&self) -> Vec<PodSetRequests> {
        let shown = |t: &PodSetTotals| PodSetRequests { name: t.name.clone(), resources: t.requests.to_quantities() };
        self.totals.iter().map(shown).collect()
    }

    /// Brings the verdicts on flavors up to date.
    pub(super) fn refresh(&mut self, flavors: &FlavorTable) {
        let pod_sets = self.adjusted.as_ref().unwrap_or(&self.raw);
        for (resolved, pod_set) in self.pod_sets.iter_mut().zip(pod_sets) {
            if resolved.eligibility.generation() != flavors.generation() {
                resolved.eligibility = Eligibility::new(&pod_set.pod, flavors);
            }
        }
    }
}

/// What shapes depend on beside the workload.
pub(super) struct ShapeContext<'a> {
    pub(super) names: &'a mut Names,
    pub(super) order: &'a mut ResourceOrder,
    pub(super) overheads: &'a BTreeMap<Box<str>, ResourceList>,
    pub(super) limits: &'a LimitRangeSummary,
    pub(super) requests: &'a RequestOptions,
    pub(super) equivalence: EquivalenceOptions,
}

/// All shapes in use.
#[derive(Clone, Debug, Default)]
pub(super) struct Shapes {
    items: Slab<Shape>,
    /// Classes in use. Numbers are never used again.
    classes: BTreeMap<SchedulingKey, (ClassId, Vec<ShapeId>)>,
    next_class: usize,
}

impl Shapes {
    pub(super) fn get(&self, id: ShapeId) -> Option<&Shape> {
        self.items.get(id.index())
    }

    pub(super) fn get_mut(&mut self, id: ShapeId) -> Option<&mut Shape> {
        self.items.get_mut(id.index())
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// The shape of a workload, whose pod sets are filled in on the way. Counts one more user.
    pub(super) fn intern(&mut self, workload: &mut Workload, context: &mut ShapeContext<'_>) -> (ShapeId, ClassId) {
        let raw = workload.spec.pod_sets.clone();
        adjust_requests(&mut workload.spec, context.overheads, context.limits);
        let totals = workload.pending_totals(context.requests);
        let key = SchedulingKey::new(workload, &totals, context.equivalence);
        let invalid = invalid(workload, context.limits);
        let pod_sets = &workload.spec.pod_sets;
        let (class, members) = self.classes.entry(key.clone()).or_insert_with(|| {
            self.next_class = self.next_class.saturating_add(1);
            (ClassId::from_index(self.next_class), Vec::new())
        });
        let class = *class;
        for &id in members.iter() {
            if let Some(shape) = self.items.get_mut(id.index())
                && shape.raw == raw
                && shape.adjusted.as_ref().unwrap_or(&shape.raw) == pod_sets
                && shape.totals == totals
                && shape.invalid == invalid
            {
                shape.users = shape.users.saturating_add(1);
                return (id, class);
            }
        }
        let resolved = resolve(pod_sets, &totals, context.names);
        context.order.extend(context.names);
        let adjusted = (*pod_sets != raw).then(|| pod_sets.clone());
        let shape = Shape { key, raw, adjusted, totals, pod_sets: resolved, invalid, users: 1 };
        let id = ShapeId::from_index(self.items.insert(shape));
        members.push(id);
        (id, class)
    }

    /// Counts one user less, and forgets a shape that nobody uses.
    pub(super) fn release(&mut self, id: ShapeId) {
        let Some(shape) = self.items.get_mut(id.index()) else { return };
        shape.users = shape.users.saturating_sub(1);
        if shape.users > 0 {
            return;
        }
        let Some(shape) = self.items.remove(id.index()) else { return };
        if let Some((_, members)) = self.classes.get_mut(&shape.key) {
            members.retain(|m| *m != id);
            if members.is_empty() {
                self.classes.remove(&shape.key);
            }
        }
    }
}

fn invalid(workload: &Workload, limits: &LimitRangeSummary) -> Option<Box<str>> {
    let errors = validate_resources(&workload.spec);
    if !errors.is_empty() {
        return Some(format!("resources validation failed: {}", FieldErrors(&errors)).into());
    }
    let errors = validate_limit_range(&workload.spec, limits);
    if !errors.is_empty() {
        return Some(format!("resources didn't satisfy LimitRange constraints: {}", FieldErrors(&errors)).into());
    }
    None
}

fn resolve(pod_sets: &[PodSet], totals: &[PodSetTotals], names: &mut Names) -> Vec<ShapePodSet> {
    let mut groups: Vec<&str> = Vec::new();
    pod_sets
        .iter()
        .zip(totals)
        .map(|(pod_set, totals)| {
            let group = pod_set.topology_request.as_ref().and_then(|t| t.pod_set_group_name.as_deref()).map(|name| {
                let index = groups.iter().position(|g| *g == name).unwrap_or_else(|| {
                    groups.push(name);
                    groups.len().saturating_sub(1)
                });
                u32::try_from(index).unwrap_or(u32::MAX)
            });
            let pod = Requests::from(&pod_set.pod.requests());
            ShapePodSet {
                count: totals.count,
                requests: totals.requests.iter().map(|(r, q)| (names.intern_resource(r), q)).collect(),
                group,
                eligibility: Eligibility::default(),
                topology: TopologyDemand::of(pod_set.topology_request.as_ref()),
                pod_resources: pod.iter().map(|(r, _)| names.intern_resource(r)).collect(),
                pod_request: PodRequest::new(&pod, names),
            }
        })
        .collect()
}
