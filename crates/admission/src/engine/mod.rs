//! The engine.

mod activity;
mod afs;
mod assign;
mod check;
mod cycle;
mod explain;
mod fair;
mod guard;
mod ids;
mod nodes;
mod objects;
mod pending;
mod placing;
mod process;
mod queue;
mod record;
mod report;
mod requeue;
mod shape;
mod slices;
mod state;
mod stored;
mod tally;
mod time;
mod usage;
mod workloads;
mod written;

use std::collections::BTreeMap;

use slicegate_flavor::{Assigner, ClusterQueueView, Features, FlavorTable, ResourceOrder};
use slicegate_placement::Topologies;
use slicegate_preemption::{Guard, Planner};
use slicegate_quota::{Amount, FlavorResourceId, NodeId};
use slicegate_workload::{EquivalenceOptions, RequestOptions, ResourceList, Timestamp, TopologySpec};

use crate::Config;
use ids::WorkloadId;
use nodes::Cluster;
use queue::{PendingQueue, Places};
use shape::Shapes;
use state::State;

/// An admission check as the engine sees it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckSpec {
    /// Its name.
    pub name: Box<str>,
    /// The controller that decides it.
    pub controller: Box<str>,
    /// Whether that controller is at work: the condition `Active` of the check.
    pub active: bool,
}

/// A broken invariant.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Violation(pub String);

/// Parents of Cohorts that form a circle. The edge is stored all the same; nothing in or below the circle is admitted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Cohort {cohort:?} is in a cycle of parents; give one of them another parent")]
pub struct CohortCycle {
    /// The Cohort.
    pub cohort: Box<str>,
}

/// A workload that a cycle is to look at although it holds quota.
#[derive(Clone, Copy, Debug)]
struct SecondPass {
    /// How often it was looked at.
    iteration: u32,
    /// When it is looked at next.
    due: Timestamp,
}

/// What decisions are made with: buffers that are kept.
#[derive(Debug, Default)]
struct Tools {
    assigner: Assigner,
    planner: Planner,
}

impl Clone for Tools {
    /// Buffers hold nothing between decisions.
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// Queues, quota and decisions. See the [crate documentation](crate). A clone goes on from the same state by itself.
#[derive(Clone, Debug)]
pub struct Engine {
    config: Config,
    requests: RequestOptions,
    equivalence: EquivalenceOptions,
    preemption: slicegate_preemption::Config,
    state: State,
    shapes: Shapes,
    flavors: FlavorTable,
    order: ResourceOrder,
    features: Features,
    /// By index of node.
    views: Vec<Option<ClusterQueueView>>,
    pending: Vec<Option<PendingQueue>>,
    places: Places,
    checks: BTreeMap<Box<str>, CheckSpec>,
    topologies: BTreeMap<Box<str>, TopologySpec>,
    /// Whether any flavor asks for whole slices.
    slices_on: bool,
    cluster: Cluster,
    overheads: BTreeMap<Box<str>, ResourceList>,
    /// Trees whose parked workloads come back, by root, and when.
    flushes: BTreeMap<NodeId, Timestamp>,
    /// When parked workloads of all ClusterQueues with topologies come back, since nodes have room again.
    node_flush: Option<Timestamp>,
    second_pass: BTreeMap<WorkloadId, SecondPass>,
    /// Whether admission waits for the pods of what was admitted.
    waits_for_pods: bool,
    /// How many workloads the cycle that is running admitted.
    admitted_in_cycle: usize,
    /// What the cycle that is running keeps free for workloads that do not hold it yet.
    kept_free: Vec<(NodeId, FlavorResourceId, Amount)>,
    kept_places: Vec<slicegate_placement::Usage>,
    kept_slices: slices::Slices,
    /// Places that were given away for good in the cycle that is running.
    given_places: Vec<slicegate_placement::Usage>,
    /// Workloads of elastic jobs that the cycle that is running admitted.
    given_slices: Vec<WorkloadId>,
    /// Workloads that were parked after a scan of flavors that did not see the first of them.
    cut_short: Vec<WorkloadId>,
    cycles: u64,
    /// How many workloads there ever were.
    serials: u64,
    /// How often each tree changed from outside, by root. See [`guard`].
    epochs: BTreeMap<NodeId, u64>,
    tools: Tools,
}

impl Engine {
    /// An engine that knows nothing yet.
    pub fn new(config: Config) -> Self {
        let gates = config.gates;
        let requests = RequestOptions {
            excluded_prefixes: config.excluded_resource_prefixes.clone(),
            transformations: config.transformations.clone(),
            reclaimable_pods: gates.reclaimable_pods,
        };
        let equivalence = EquivalenceOptions {
            priority_boost: gates.priority_boost,
            concurrent_admission: gates.concurrent_admission,
        };
        let fair_sharing = config.fair_sharing.as_ref().map(|fair| {
            let mut planned = slicegate_preemption::FairSharing {
                reclaim_within_nominal: gates.fair_sharing_preempt_within_nominal,
                // Plans are Kueue's; circles are broken by the engine, which sees more than one cycle.
                guard: Guard::Off,
                ..slicegate_preemption::FairSharing::default()
            };
            if !fair.strategies.is_empty() {
                planned.strategies.clone_from(&fair.strategies);
            }
            planned
        });
        let features = Features {
            fungibility: gates.flavor_fungibility,
            topology: gates.topology_aware_scheduling,
            elastic_topology: gates.elastic_jobs_via_workload_slices_with_tas,
        };
        let placing = slicegate_placement::Features {
            mixed_profile: gates.tas_profile_mixed,
            multi_layer: gates.tas_multi_layer_topology,
            overlapping_flavors: gates.tas_handle_overlapping_flavors,
            balanced: gates.tas_balanced_placement,
            preferred_affinity: gates.tas_respect_node_affinity_preferred,
            elastic: gates.elastic_jobs_via_workload_slices_with_tas,
        };
        let state = State {
            topologies: Topologies::new(placing),
            usage_orders_victims: config.admission_fair_sharing.is_some() && gates.admission_fair_sharing,
            ..State::default()
        };
        Self {
            requests,
            equivalence,
            preemption: slicegate_preemption::Config { fair_sharing },
            state,
            shapes: Shapes::default(),
            flavors: FlavorTable::new(),
            order: ResourceOrder::default(),
            features,
            views: Vec::new(),
            pending: Vec::new(),
            places: Places::default(),
            checks: BTreeMap::new(),
            topologies: BTreeMap::new(),
            slices_on: false,
            cluster: Cluster::default(),
            overheads: BTreeMap::new(),
            flushes: BTreeMap::new(),
            node_flush: None,
            second_pass: BTreeMap::new(),
            waits_for_pods: false,
            admitted_in_cycle: 0,
            kept_free: Vec::new(),
            kept_places: Vec::new(),
            kept_slices: Vec::new(),
            given_places: Vec::new(),
            given_slices: Vec::new(),
            cut_short: Vec::new(),
            cycles: 0,
            serials: 0,
            epochs: BTreeMap::new(),
            tools: Tools { assigner: Assigner::new(features), planner: Planner::new() },
            config,
        }
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }
}
