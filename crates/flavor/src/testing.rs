//! A ClusterQueue on a desk: for unit tests.

use std::collections::BTreeMap;

use slicegate_quota::{Amount, FlavorId, FlavorResourceId, Forest, Limits, Names, NodeQuota, Quantity, ResourceId};
use slicegate_workload::{
    ClusterQueueSpec, FlavorQuotas, FlavorSpec, FungibilityPolicy, FungibilityPreference, PodSpec, ResourceGroup,
    ResourceQuota, TopologyAssignment, TopologyDomain,
};

use crate::{
    Assigner, Assignment, Catalogue, ClusterQueueView, Eligibility, Features, FlavorTable, LastTried, LevelSupport,
    PlacementFailure, PlacementRequest, PlacementUsage, Placer, PodSetRequest, Possibility, PreemptionOracle, Requests,
    ResourceOrder, Simulated, TopologyDemand, UndeclaredResources, WorkloadRequest,
};

pub(crate) const NEXT: FungibilityPolicy = FungibilityPolicy::TryNextFlavor;
pub(crate) const STOP: FungibilityPolicy = FungibilityPolicy::MayStopSearch;

/// Pods, requests and flavors.
pub(crate) type Slice = (i32, Vec<(&'static str, i64)>, Vec<(&'static str, &'static str)>);
type OwnedSlice = (i32, Requests, Vec<(ResourceId, FlavorId)>);
type Owned = (Requests, Eligibility, Vec<(ResourceId, FlavorId)>, Vec<ResourceId>);

/// A pod set of one test workload.
#[derive(Clone, Default)]
pub(crate) struct Pods {
    pub(crate) count: i32,
    /// For all pods together.
    pub(crate) requests: Vec<(&'static str, i64)>,
    pub(crate) group: Option<u32>,
    pub(crate) topology: TopologyDemand,
    pub(crate) pod: PodSpec,
    pub(crate) nominated: Vec<(&'static str, &'static str)>,
    /// Pods, requests and flavors of the slice that is replaced.
    pub(crate) replaces: Option<Slice>,
}

pub(crate) fn pods(count: i32, requests: &[(&'static str, i64)]) -> Pods {
    Pods { count, requests: requests.to_vec(), ..Pods::default() }
}

impl Pods {
    pub(crate) fn in_group(mut self, group: u32) -> Self {
        self.group = Some(group);
        self
    }

    pub(crate) fn placed(mut self, demand: TopologyDemand) -> Self {
        self.topology = demand;
        self
    }
}

/// A workload as a whole.
#[derive(Clone, Default)]
pub(crate) struct Job {
    pub(crate) last: Option<LastTried>,
    pub(crate) pinned: bool,
    pub(crate) allowed: Option<Vec<&'static str>>,
    pub(crate) has_unhealthy_nodes: bool,
    pub(crate) elastic: bool,
    pub(crate) counts: Option<Vec<i32>>,
}

/// Answers from a list; anything else would preempt without borrowing.
struct Oracle {
    forest: Forest,
    answers: BTreeMap<FlavorResourceId, Simulated>,
}

impl PreemptionOracle for Oracle {
    fn forest(&self) -> &Forest {
        &self.forest
    }

    fn simulate(&mut self, pair: FlavorResourceId, _amount: Amount) -> Simulated {
        self.answers.get(&pair).copied().unwrap_or(Simulated { possibility: Possibility::Preempt, level: 0 })
    }
}

/// Places that were booked: pods that fit in use and when empty, by flavor.
#[derive(Clone, Default)]
pub(crate) struct Rooms {
    pub(crate) free: BTreeMap<FlavorId, (i32, i32)>,
    pub(crate) missing_level: Vec<FlavorId>,
    pub(crate) unknown: Vec<FlavorId>,
    pub(crate) delayed: Vec<FlavorId>,
}

impl Placer for Rooms {
    fn has_topology(&self, flavor: FlavorId) -> bool {
        self.free.contains_key(&flavor)
    }

    fn supports(&self, flavor: FlavorId, _pod_set: usize) -> LevelSupport {
        if self.unknown.contains(&flavor) {
            LevelSupport::Unknown
        } else if self.missing_level.contains(&flavor) {
            LevelSupport::MissingLevel
        } else {
            LevelSupport::Supported
        }
    }

    fn is_delayed(&self, flavor: FlavorId, _pod_set: usize) -> bool {
        self.delayed.contains(&flavor)
    }

    fn place(
        &mut self,
        requests: &[PlacementRequest],
        usage: PlacementUsage,
    ) -> Result<Vec<TopologyAssignment>, PlacementFailure> {
        let mut left = self.free.clone();
        requests
            .iter()
            .map(|r| {
                let rooms = left.entry(r.flavor).or_default();
                let free = if usage == PlacementUsage::Current { &mut rooms.0 } else { &mut rooms.1 };
                if *free < r.count {
                    let message = format!("only {free} of {}", r.count).into();
                    return Err(PlacementFailure { pod_set: r.pod_set, flavor: r.flavor, message });
                }
                *free -= r.count;
                let domains = vec![TopologyDomain { values: vec!["room".into()], count: r.count }];
                Ok(TopologyAssignment { levels: vec!["level".into()], domains })
            })
            .collect()
    }
}

/// The ClusterQueue, its cohort, and what is asked about it.
pub(crate) struct Desk {
    pub(crate) names: Names,
    pub(crate) flavors: FlavorTable,
    pub(crate) spec: ClusterQueueSpec,
    pub(crate) undeclared: UndeclaredResources,
    pub(crate) fair_sharing: bool,
    pub(crate) features: Features,
    pub(crate) rooms: Rooms,
    lent: BTreeMap<FlavorResourceId, i64>,
    used: Vec<(FlavorResourceId, i64)>,
    answers: BTreeMap<FlavorResourceId, Simulated>,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self {
            names: Names::new(),
            flavors: FlavorTable::new(),
            spec: ClusterQueueSpec { name: "cq".into(), cohort: Some("all".into()), ..ClusterQueueSpec::default() },
            undeclared: UndeclaredResources::Block,
            fair_sharing: false,
            features: Features::default(),
            rooms: Rooms::default(),
            lent: BTreeMap::new(),
            used: Vec::new(),
            answers: BTreeMap::new(),
        }
    }

    /// A resource group: the nominal quota by flavor and resource. Quantities of cpu are in thousandths.
    pub(crate) fn group(mut self, resources: &[&str], flavors: &[(&str, &[i64])]) -> Self {
        for (flavor, _) in flavors {
            let id = self.names.intern_flavor(flavor);
            self.flavors.set(id, FlavorSpec { name: (*flavor).into(), ..FlavorSpec::default() });
        }
        let quota = |resource: &str, units: i64| ResourceQuota {
            nominal: if resource == "cpu" { Quantity::from_millis(units) } else { Quantity::from_units(units) },
            ..ResourceQuota::default()
        };
        self.spec.resource_groups.push(ResourceGroup {
            covered_resources: resources.iter().map(|&r| r.into()).collect(),
            flavors: flavors
                .iter()
                .map(|(flavor, nominal)| FlavorQuotas {
                    name: (*flavor).into(),
                    resources: resources.iter().zip(*nominal).map(|(&r, &n)| (r.into(), quota(r, n))).collect(),
                })
                .collect(),
        });
        self
    }

    /// Two flavors of 4 cpu each, as in most examples.
    pub(crate) fn two() -> Self {
        Self::new().group(&["cpu"], &[("x", &[4]), ("y", &[4])])
    }

    /// Quota that a sibling lends.
    pub(crate) fn lends(mut self, flavor: &str, resource: &str, amount: i64) -> Self {
        let pair = self.names.intern(flavor, resource);
        self.lent.insert(pair, amount);
        self
    }

    pub(crate) fn uses(mut self, flavor: &str, resource: &str, amount: i64) -> Self {
        let pair = self.names.intern(flavor, resource);
        self.used.push((pair, amount));
        self
    }

    pub(crate) fn on(mut self, borrow: FungibilityPolicy, preempt: FungibilityPolicy) -> Self {
        self.spec.flavor_fungibility.when_can_borrow = borrow;
        self.spec.flavor_fungibility.when_can_preempt = preempt;
        self
    }

    pub(crate) fn preferring_preemption(mut self) -> Self {
        self.spec.flavor_fungibility.preference = FungibilityPreference::PreemptionOverBorrowing;
        self
    }

    pub(crate) fn oracle(mut self, flavor: &str, resource: &str, possibility: Possibility, level: u32) -> Self {
        let pair = self.names.intern(flavor, resource);
        self.answers.insert(pair, Simulated { possibility, level });
        self
    }

    /// Gives a flavor a topology with places for so many pods, in use and when empty.
    pub(crate) fn places(mut self, flavor: &str, now: i32, empty: i32) -> Self {
        let id = self.names.intern_flavor(flavor);
        self.flavors.set(id, FlavorSpec { topology: Some("t".into()), ..FlavorSpec::default() });
        self.rooms.free.insert(id, (now, empty));
        self
    }

    pub(crate) fn flavor(&mut self, name: &str) -> FlavorId {
        self.names.intern_flavor(name)
    }

    fn forest(&mut self) -> (Forest, slicegate_quota::NodeId) {
        let mut forest = Forest::new();
        let quota = self.spec.node_quota(&mut self.names);
        let node = forest.set_cluster_queue("cq", quota);
        let limits =
            self.lent.iter().map(|(&p, &a)| (p, Limits { nominal: Amount::new(a), ..Limits::default() })).collect();
        forest.set_cluster_queue("sibling", NodeQuota { parent: Some("all".into()), limits, ..NodeQuota::default() });
        for &(pair, amount) in &self.used {
            forest.add_usage(node, pair, Amount::new(amount));
        }
        (forest, node)
    }

    pub(crate) fn assign(&mut self, pod_sets: &[Pods]) -> Assignment {
        self.assign_job(pod_sets, &Job::default())
    }

    pub(crate) fn assign_job(&mut self, pod_sets: &[Pods], job: &Job) -> Assignment {
        let (forest, node) = self.forest();
        let view = ClusterQueueView::new(node, &self.spec, self.undeclared, self.fair_sharing, &mut self.names);
        let ids = |names: &mut Names, list: &[(&str, i64)]| -> Requests {
            list.iter().map(|&(r, q)| (names.intern_resource(r), q)).collect()
        };
        let pairs = |names: &mut Names, list: &[(&str, &str)]| -> Vec<(ResourceId, FlavorId)> {
            list.iter().map(|&(r, f)| (names.intern_resource(r), names.intern_flavor(f))).collect()
        };
        let mut owned: Vec<Owned> = Vec::new();
        let mut slices: Vec<Option<OwnedSlice>> = Vec::new();
        for p in pod_sets {
            let requests = ids(&mut self.names, &p.requests);
            let resources = requests.iter().map(|r| r.0).collect();
            let nominated = pairs(&mut self.names, &p.nominated);
            owned.push((requests, Eligibility::new(&p.pod, &self.flavors), nominated, resources));
            let names = &mut self.names;
            slices.push(p.replaces.as_ref().map(|(count, r, f)| (*count, ids(names, r), pairs(names, f))));
        }
        let allowed: Option<Vec<FlavorId>> =
            job.allowed.as_ref().map(|list| list.iter().map(|f| self.names.intern_flavor(f)).collect());
        let order = ResourceOrder::new(&self.names);
        for (requests, ..) in &mut owned {
            order.sort(requests);
        }
        let requests: Vec<PodSetRequest<'_>> = pod_sets
            .iter()
            .zip(owned.iter().zip(&slices))
            .map(|(p, ((requests, eligibility, nominated, pod_resources), slice))| PodSetRequest {
                count: p.count,
                min_count: None,
                requests,
                group: p.group,
                eligibility,
                topology: p.topology,
                pod_resources,
                seed: None,
                replaces: slice.as_ref().map(|(count, requests, flavors)| crate::ReplacedPodSet {
                    count: *count,
                    requests,
                    flavors,
                }),
                nominated,
            })
            .collect();
        let workload = WorkloadRequest {
            pod_sets: &requests,
            last: job.last.as_ref(),
            pinned: job.pinned,
            allowed_flavors: allowed.as_deref(),
            replaces_slice: slices.iter().any(Option::is_some),
            elastic: job.elastic,
            has_unhealthy_nodes: job.has_unhealthy_nodes,
        };
        let mut oracle = Oracle { forest, answers: self.answers.clone() };
        let mut assigner = Assigner::new(self.features);
        assigner.assign(&order, &view, &workload, job.counts.as_deref(), &mut oracle, &mut self.rooms.clone())
    }

    /// The assignment as `flavor:mode:tried` by resource, pod sets joined by ` | `, and the borrowing level.
    pub(crate) fn shown(&mut self, pod_sets: &[Pods]) -> String {
        let assignment = self.assign(pod_sets);
        self.show(&assignment)
    }

    pub(crate) fn show(&self, assignment: &Assignment) -> String {
        let parts: Vec<String> = assignment
            .pod_sets
            .iter()
            .map(|p| {
                let choices: Vec<String> = p
                    .flavors
                    .iter()
                    .map(|c| {
                        let tried = c.tried.map_or("-1".to_owned(), |t| t.to_string());
                        format!("{}:{}:{tried}", self.names.flavor_name(c.flavor), c.mode.as_str())
                    })
                    .collect();
                if choices.is_empty() { p.mode().as_str().to_owned() } else { choices.join(" ") }
            })
            .collect();
        format!("{}, {}", parts.join(" | "), assignment.borrowing)
    }

    pub(crate) fn reasons(&self, assignment: &Assignment, pod_set: usize) -> Vec<String> {
        let catalogue = Catalogue { names: &self.names, flavors: &self.flavors };
        assignment.pod_sets[pod_set].reasons.iter().map(|r| catalogue.reason(r)).collect()
    }

    pub(crate) fn catalogue(&self) -> Catalogue<'_> {
        Catalogue { names: &self.names, flavors: &self.flavors }
    }
}
