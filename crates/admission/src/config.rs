//! What the engine is told once, at the start.

use std::collections::BTreeMap;

use slicegate_workload::{FairSharingStrategy, RequeuingTimestamp, Transformation};

/// The configuration of an engine.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Config {
    /// Preemption by fair share; `None`: by priority.
    pub fair_sharing: Option<FairSharing>,
    /// LocalQueues that used less go first, in the ClusterQueues that ask for it; `None`: off everywhere.
    pub admission_fair_sharing: Option<AdmissionFairSharing>,
    /// What happens to workloads whose pods do not become ready; `None`: nothing.
    pub wait_for_pods_ready: Option<WaitForPodsReady>,
    /// Resources whose names begin so are left out of every request.
    pub excluded_resource_prefixes: Vec<Box<str>>,
    /// How requested resources turn into others before quota is counted, by requested resource.
    pub transformations: BTreeMap<Box<str>, Transformation>,
    /// Whether a requested resource that the ClusterQueue does not cover is passed over instead of refused.
    pub ignore_undeclared_resources: bool,
    /// Switches.
    pub gates: Gates,
    /// Differences from Kueue that keep preemptions from going in a circle.
    pub preemption_guard: bool,
    /// A difference from Kueue that keeps nodes from being given more pods than they take: within a cycle Kueue looks at each
    /// domain of each pod set alone, without the limit on the number of pods, and only at the flavor that is asked for.
    pub node_guard: bool,
}

impl Config {
    /// Kueue's defaults, with the guards against circular preemption and overfull nodes on.
    pub fn new() -> Self {
        Self { preemption_guard: true, node_guard: true, ..Self::default() }
    }

    /// From which moment on a workload that is put back waits in line.
    pub fn requeuing_timestamp(&self) -> RequeuingTimestamp {
        self.wait_for_pods_ready.as_ref().map_or(RequeuingTimestamp::Eviction, |w| w.requeuing_timestamp)
    }
}

/// Preemption by fair share.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FairSharing {
    /// Tried one after the other. Empty: `LessThanOrEqualToFinalShare`, then `LessThanInitialShare`.
    pub strategies: Vec<FairSharingStrategy>,
}

/// How past usage of a LocalQueue is counted.
#[derive(Clone, PartialEq, Debug)]
pub struct AdmissionFairSharing {
    /// After how many seconds half of the usage is forgotten; 0: all of it at once.
    pub half_life_seconds: i64,
    /// How often usage is sampled, in seconds.
    pub sampling_interval_seconds: i64,
    /// Weights by resource; 1 where there is none.
    pub resource_weights: BTreeMap<Box<str>, f64>,
}

impl Default for AdmissionFairSharing {
    fn default() -> Self {
        Self { half_life_seconds: 0, sampling_interval_seconds: 300, resource_weights: BTreeMap::new() }
    }
}

/// What happens to workloads whose pods do not become ready.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaitForPodsReady {
    /// Whether nothing more is admitted until the pods of everything that was admitted are ready.
    pub block_admission: bool,
    /// How many seconds pods have to become ready after admission.
    pub timeout_seconds: i64,
    /// How many seconds they have after one failed; `None` or 0: for ever.
    pub recovery_timeout_seconds: Option<i64>,
    /// From when the workload waits in line again.
    pub requeuing_timestamp: RequeuingTimestamp,
    /// The first wait before another try, in seconds.
    pub backoff_base_seconds: i32,
    /// The longest.
    pub backoff_max_seconds: i32,
    /// After so many tries the workload is deactivated; `None`: never.
    pub backoff_limit_count: Option<i32>,
}

impl Default for WaitForPodsReady {
    fn default() -> Self {
        Self {
            block_admission: false,
            timeout_seconds: 1800,
            recovery_timeout_seconds: Some(1800),
            requeuing_timestamp: RequeuingTimestamp::default(),
            backoff_base_seconds: 60,
            backoff_max_seconds: 3600,
            backoff_limit_count: None,
        }
    }
}

/// Feature switches that change decisions. The names and the defaults are Kueue's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names are Kueue's feature gates, documented there and in docs/differences.md")]
pub struct Gates {
    pub partial_admission: bool,
    pub flavor_fungibility: bool,
    pub flavor_fungibility_preserve_scan_progress: bool,
    pub priority_sorting_within_cohort: bool,
    pub fair_sharing_preempt_within_nominal: bool,
    pub fair_sharing_prioritize_non_borrowing: bool,
    pub topology_aware_scheduling: bool,
    pub tas_failed_node_replacement: bool,
    pub tas_failed_node_replacement_fail_fast: bool,
    pub tas_replace_node_on_pod_termination: bool,
    pub tas_replace_node_on_node_taints: bool,
    pub tas_replace_node_due_to_not_ready_over_fixed_time: bool,
    pub tas_handle_overlapping_flavors: bool,
    pub tas_multi_layer_topology: bool,
    pub tas_profile_mixed: bool,
    pub tas_balanced_placement: bool,
    pub tas_recompute_assignment_within_scheduling_cycle: bool,
    pub tas_respect_node_affinity_preferred: bool,
    pub skip_reassignment_for_pod_owned_workloads: bool,
    pub recompute_assignment_upon_preemption_targets_overlap: bool,
    pub scheduling_equivalence_hashing: bool,
    pub unadmitted_workloads_observability: bool,
    pub unadmitted_workloads_explicit_status: bool,
    pub elastic_jobs_via_workload_slices: bool,
    pub elastic_jobs_via_workload_slices_with_tas: bool,
    pub reclaimable_pods: bool,
    pub admission_gated_by: bool,
    pub admission_fair_sharing: bool,
    pub quota_check_strategy: bool,
    pub priority_boost: bool,
    pub prioritize_preemptor_workloads: bool,
    pub concurrent_admission: bool,
    pub multi_kueue_orchestrated_preemption: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Self {
            partial_admission: true,
            flavor_fungibility: true,
            flavor_fungibility_preserve_scan_progress: true,
            priority_sorting_within_cohort: true,
            fair_sharing_preempt_within_nominal: true,
            fair_sharing_prioritize_non_borrowing: true,
            topology_aware_scheduling: true,
            tas_failed_node_replacement: true,
            tas_failed_node_replacement_fail_fast: true,
            tas_replace_node_on_pod_termination: true,
            tas_replace_node_on_node_taints: true,
            tas_replace_node_due_to_not_ready_over_fixed_time: false,
            tas_handle_overlapping_flavors: true,
            tas_multi_layer_topology: true,
            tas_profile_mixed: true,
            tas_balanced_placement: false,
            tas_recompute_assignment_within_scheduling_cycle: true,
            tas_respect_node_affinity_preferred: false,
            skip_reassignment_for_pod_owned_workloads: true,
            recompute_assignment_upon_preemption_targets_overlap: true,
            scheduling_equivalence_hashing: true,
            unadmitted_workloads_observability: true,
            unadmitted_workloads_explicit_status: false,
            elastic_jobs_via_workload_slices: true,
            elastic_jobs_via_workload_slices_with_tas: false,
            reclaimable_pods: true,
            admission_gated_by: true,
            admission_fair_sharing: true,
            quota_check_strategy: true,
            priority_boost: false,
            prioritize_preemptor_workloads: false,
            concurrent_admission: false,
            multi_kueue_orchestrated_preemption: false,
        }
    }
}

/// A gate that is not known.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("feature gate {name:?} is not known")]
pub struct UnknownGate {
    /// Its name.
    pub name: Box<str>,
}

impl Gates {
    /// The names of all gates.
    pub const NAMES: [&'static str; 33] = [
        "PartialAdmission",
        "FlavorFungibility",
        "FlavorFungibilityPreserveScanProgress",
        "PrioritySortingWithinCohort",
        "FairSharingPreemptWithinNominal",
        "FairSharingPrioritizeNonBorrowing",
        "TopologyAwareScheduling",
        "TASFailedNodeReplacement",
        "TASFailedNodeReplacementFailFast",
        "TASReplaceNodeOnPodTermination",
        "TASReplaceNodeOnNodeTaints",
        "TASReplaceNodeDueToNotReadyOverFixedTime",
        "TASHandleOverlappingFlavors",
        "TASMultiLayerTopology",
        "TASProfileMixed",
        "TASBalancedPlacement",
        "TASRecomputeAssignmentWithinSchedulingCycle",
        "TASRespectNodeAffinityPreferred",
        "SkipReassignmentForPodOwnedWorkloads",
        "RecomputeAssignmentUponPreemptionTargetsOverlap",
        "SchedulingEquivalenceHashing",
        "UnadmittedWorkloadsObservability",
        "UnadmittedWorkloadsExplicitStatus",
        "ElasticJobsViaWorkloadSlices",
        "ElasticJobsViaWorkloadSlicesWithTAS",
        "ReclaimablePods",
        "AdmissionGatedBy",
        "AdmissionFairSharing",
        "QuotaCheckStrategy",
        "PriorityBoost",
        "PrioritizePreemptorWorkloads",
        "ConcurrentAdmission",
        "MultiKueueOrchestratedPreemption",
    ];

    /// Switches a gate by its name. Switching off a gate that others need switches those off too.
    pub fn set(&mut self, name: &str, on: bool) -> Result<(), UnknownGate> {
        let field = match name {
            "PartialAdmission" => &mut self.partial_admission,
            "FlavorFungibility" => &mut self.flavor_fungibility,
            "FlavorFungibilityPreserveScanProgress" => &mut self.flavor_fungibility_preserve_scan_progress,
            "PrioritySortingWithinCohort" => &mut self.priority_sorting_within_cohort,
            "FairSharingPreemptWithinNominal" => &mut self.fair_sharing_preempt_within_nominal,
            "FairSharingPrioritizeNonBorrowing" => &mut self.fair_sharing_prioritize_non_borrowing,
            "TopologyAwareScheduling" => &mut self.topology_aware_scheduling,
            "TASFailedNodeReplacement" => &mut self.tas_failed_node_replacement,
            "TASFailedNodeReplacementFailFast" => &mut self.tas_failed_node_replacement_fail_fast,
            "TASReplaceNodeOnPodTermination" => &mut self.tas_replace_node_on_pod_termination,
            "TASReplaceNodeOnNodeTaints" => &mut self.tas_replace_node_on_node_taints,
            "TASReplaceNodeDueToNotReadyOverFixedTime" => &mut self.tas_replace_node_due_to_not_ready_over_fixed_time,
            "TASHandleOverlappingFlavors" => &mut self.tas_handle_overlapping_flavors,
            "TASMultiLayerTopology" => &mut self.tas_multi_layer_topology,
            "TASProfileMixed" => &mut self.tas_profile_mixed,
            "TASBalancedPlacement" => &mut self.tas_balanced_placement,
            "TASRecomputeAssignmentWithinSchedulingCycle" => &mut self.tas_recompute_assignment_within_scheduling_cycle,
            "TASRespectNodeAffinityPreferred" => &mut self.tas_respect_node_affinity_preferred,
            "SkipReassignmentForPodOwnedWorkloads" => &mut self.skip_reassignment_for_pod_owned_workloads,
            "RecomputeAssignmentUponPreemptionTargetsOverlap" => {
                &mut self.recompute_assignment_upon_preemption_targets_overlap
            }
            "SchedulingEquivalenceHashing" => &mut self.scheduling_equivalence_hashing,
            "UnadmittedWorkloadsObservability" => &mut self.unadmitted_workloads_observability,
            "UnadmittedWorkloadsExplicitStatus" => &mut self.unadmitted_workloads_explicit_status,
            "ElasticJobsViaWorkloadSlices" => &mut self.elastic_jobs_via_workload_slices,
            "ElasticJobsViaWorkloadSlicesWithTAS" => &mut self.elastic_jobs_via_workload_slices_with_tas,
            "ReclaimablePods" => &mut self.reclaimable_pods,
            "AdmissionGatedBy" => &mut self.admission_gated_by,
            "AdmissionFairSharing" => &mut self.admission_fair_sharing,
            "QuotaCheckStrategy" => &mut self.quota_check_strategy,
            "PriorityBoost" => &mut self.priority_boost,
            "PrioritizePreemptorWorkloads" => &mut self.prioritize_preemptor_workloads,
            "ConcurrentAdmission" => &mut self.concurrent_admission,
            "MultiKueueOrchestratedPreemption" => &mut self.multi_kueue_orchestrated_preemption,
            _ => return Err(UnknownGate { name: name.into() }),
        };
        *field = on;
        if !self.topology_aware_scheduling {
            self.tas_failed_node_replacement = false;
            self.tas_failed_node_replacement_fail_fast = false;
            self.tas_replace_node_on_pod_termination = false;
            self.tas_replace_node_on_node_taints = false;
            self.tas_replace_node_due_to_not_ready_over_fixed_time = false;
            self.tas_handle_overlapping_flavors = false;
            self.tas_multi_layer_topology = false;
            self.tas_profile_mixed = false;
            self.tas_balanced_placement = false;
            self.tas_recompute_assignment_within_scheduling_cycle = false;
            self.tas_respect_node_affinity_preferred = false;
            self.skip_reassignment_for_pod_owned_workloads = false;
            self.elastic_jobs_via_workload_slices_with_tas = false;
        }
        if !self.tas_failed_node_replacement {
            self.tas_failed_node_replacement_fail_fast = false;
        }
        if !self.elastic_jobs_via_workload_slices {
            self.elastic_jobs_via_workload_slices_with_tas = false;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_takes_those_that_need_it_along() {
        let mut gates = Gates::default();
        gates.set("TopologyAwareScheduling", false).unwrap();
        assert!(!gates.tas_failed_node_replacement_fail_fast);
        assert!(gates.partial_admission);
        for name in Gates::NAMES {
            Gates::default().set(name, false).unwrap();
        }
        assert_eq!(gates.set("Nonsense", true), Err(UnknownGate { name: "Nonsense".into() }));
    }
}
