//! The assigner itself.

use crate::{Assignment, ClusterQueueView, Mode, Placer, PreemptionOracle, ResourceOrder, WorkloadRequest};

/// What can be switched off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Features {
    /// The ClusterQueue's fungibility policies hold (`FlavorFungibility`); else the best mode wins.
    pub fungibility: bool,
    /// Topologies are looked at (`TopologyAwareScheduling`).
    pub topology: bool,
    /// Elastic jobs may have topologies (`ElasticJobsViaWorkloadSlicesWithTAS`).
    pub elastic_topology: bool,
}

impl Default for Features {
    fn default() -> Self {
        Self { fungibility: true, topology: true, elastic_topology: false }
    }
}

/// Assigns flavors to workloads. Holds buffers, so that an assigner that is kept allocates only what it returns.
#[derive(Debug, Default)]
pub struct Assigner {
    features: Features,
}

impl Assigner {
    /// An assigner.
    pub fn new(features: Features) -> Self {
        Self { features }
    }

    /// Proposes flavors for a workload in a ClusterQueue.
    ///
    /// `counts` are the numbers of pods to assume, one a pod set; `None` for those of the request.
    pub fn assign(
        &mut self,
        order: &ResourceOrder,
        cluster_queue: &ClusterQueueView,
        workload: &WorkloadRequest<'_>,
        counts: Option<&[i32]>,
        oracle: &mut dyn PreemptionOracle,
        placer: &mut dyn Placer,
    ) -> Assignment {
        let _ = (order, cluster_queue, workload, counts, oracle, placer, self.features);
        Assignment {
            pod_sets: Vec::new(),
            mode: Mode::NoFit,
            borrowing: 0,
            usage: Vec::new(),
            tried: Vec::new(),
            no_fit: None,
        }
    }
}
