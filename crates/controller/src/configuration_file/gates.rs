//! Kueue's feature gates by their names.

use std::collections::BTreeMap;

use super::{ConfigurationError, Reading};
use crate::Configuration;

/// What the path of a gate begins with; its name follows.
pub(super) const PATH: &str = "featureGates.";

/// Feature gates of Kueue's that change nothing here: what they are about is left out, or done in one way whatever they say.
const WITHOUT_EFFECT: [&str; 37] = [
    "CustomMetricLabels",
    "DeferRayServiceFinalizationForRedisCleanup",
    "FailureRecoveryPolicy",
    "FastQuotaReleaseInPodIntegration",
    "KueueDRAIntegration",
    "KueueDRAIntegrationConsumableCapacity",
    "KueueDRAIntegrationExtendedResource",
    "KueueDRAIntegrationPartitionableDevices",
    "KueueDRARejectWorkloadsWhenDRADisabled",
    "LWSImmutableGroupSize",
    "ManagedJobsNamespaceSelectorAlwaysRespected",
    "MetricForWorkloadCreationLatency",
    "MetricsForCohorts",
    "MultiKueue",
    "MultiKueueAdaptersForCustomJobs",
    "MultiKueueClusterProfile",
    "MultiKueueIncrementalDispatcherConfig",
    "MultiKueueIncrementalDispatcherRespectConfigOrder",
    "MultiKueueKubeConfigPathValidation",
    "MultiKueueManagerQuotaAutomation",
    "MultiKueueRemoteSpecSync",
    "PodIntegrationValidateGroupOwner",
    "RejectUpdatesToCQWithInvalidOnFlavors",
    "RemoveFinalizersWithStrictPatch",
    "SchedulerLibraryIntegration",
    "SkipAncestorCheckForDeletedWorkloads",
    "SparkApplicationIntegration",
    "TASAssignmentsEncodingByHostnamePrefix",
    "TASCacheNodeMatchResults",
    "TASCacheTopologyTree",
    "TASCachingRemainingResources",
    "TASValidateWorkloadSliceSize",
    "TLSOptions",
    "ValidateRayAndSparkJobUpdates",
    "VectorizedResourceRequests",
    "VisibilityOnDemand",
    "WorkloadRequestUseMergePatch",
];

/// Gates that are about validation, which is as Kueue's by default.
const OF_VALIDATION: [&str; 3] =
    ["WorkloadIdentifierAnnotations", "WorkloadValidateResourcesAreNonNegative", "WorkloadValidationForPodSetMetadata"];

/// The names of all feature gates that are known, those without an effect included.
pub fn feature_gates() -> impl Iterator<Item = &'static str> {
    let others = ["ShortWorkloadNames", "AssignQueueLabelsForPods", "CleanupProvisioningRequestsOnEviction"];
    let others = others.into_iter().chain(["FinishOrphanedWorkloads", DISABLE_WAIT_FOR_PODS_READY]);
    let others = others
        .chain(["WorkloadPriorityClassDefaulting", LOCAL_QUEUE_METRICS])
        .chain(WITHOUT_EFFECT)
        .chain(OF_VALIDATION);
    others.chain(slicegate_admission::Gates::NAMES)
}

/// Switches feature gates by their names, where there is no file. Returns what is accepted but not followed.
///
/// # Errors
/// All gates that are not known; their path is `featureGates.NAME`.
pub fn set_feature_gates(
    configuration: &mut Configuration,
    gates: &BTreeMap<String, bool>,
) -> Result<Vec<String>, Vec<ConfigurationError>> {
    let mut reading = Reading::default();
    for (name, on) in gates {
        gate(&mut reading, configuration, name, *on);
    }
    if gates.get(DISABLE_WAIT_FOR_PODS_READY) == Some(&true) {
        configuration.engine.wait_for_pods_ready = None;
    }
    if reading.errors.is_empty() { Ok(reading.ignored) } else { Err(reading.errors) }
}

/// The gate that switches a whole section off.
pub(super) const DISABLE_WAIT_FOR_PODS_READY: &str = "DisableWaitForPodsReady";
/// The gate that switches the metrics of LocalQueues off.
const LOCAL_QUEUE_METRICS: &str = "LocalQueueMetrics";

/// Switches one gate, or says what is wrong with it or that it has no effect.
pub(super) fn gate(reading: &mut Reading, configuration: &mut Configuration, name: &str, on: bool) {
    match name {
        // They are looked at with their sections.
        DISABLE_WAIT_FOR_PODS_READY | LOCAL_QUEUE_METRICS => {}
        "WorkloadPriorityClassDefaulting" => configuration.priority_class_defaulting = on,
        "ShortWorkloadNames" => configuration.short_workload_names = on,
        "AssignQueueLabelsForPods" => configuration.assign_queue_labels_for_pods = on,
        "CleanupProvisioningRequestsOnEviction" => configuration.cleanup_provisioning_requests_on_eviction = on,
        "FinishOrphanedWorkloads" => configuration.finish_orphaned_workloads = on,
        name if WITHOUT_EFFECT.contains(&name) || OF_VALIDATION.contains(&name) => {
            reading.ignored.push(format!("{PATH}{name}: has no effect"));
        }
        name => {
            if let Err(unknown) = configuration.engine.gates.set(name, on) {
                reading.error(format!("{PATH}{name}"), unknown.to_string());
            }
            let why = "nobody makes variants of workloads here; those that others make are followed";
            reading.ignore("featureGates.ConcurrentAdmission", on && name == "ConcurrentAdmission", why);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use slicegate_admission::WaitForPodsReady;

    use super::*;

    #[test]
    fn gates_can_be_set_without_a_file() {
        let mut configuration = Configuration::default();
        configuration.engine.wait_for_pods_ready = Some(WaitForPodsReady::default());
        let mut set = |list: &[(&str, bool)]| {
            set_feature_gates(&mut configuration, &list.iter().map(|(n, on)| ((*n).to_owned(), *on)).collect())
        };
        let ignored = set(&[
            ("ElasticJobsViaWorkloadSlices", false),
            ("MultiKueue", true),
            ("WorkloadPriorityClassDefaulting", false),
            ("DisableWaitForPodsReady", true),
        ]);
        assert_eq!(ignored.unwrap(), ["featureGates.MultiKueue: has no effect"]);
        let errors = set(&[("Nonsense", true), ("Nonsense2", false)]).unwrap_err();
        assert_eq!(
            errors.iter().map(|e| e.path.as_str()).collect::<Vec<_>>(),
            ["featureGates.Nonsense", "featureGates.Nonsense2"]
        );
        assert!(!configuration.engine.gates.elastic_jobs_via_workload_slices);
        assert!(!configuration.priority_class_defaulting);
        assert_eq!(configuration.engine.wait_for_pods_ready, None);
    }

    #[test]
    fn every_gate_is_known_once() {
        let mut gates = slicegate_admission::Gates::default();
        for name in WITHOUT_EFFECT.iter().chain(&OF_VALIDATION) {
            assert!(gates.set(name, true).is_err(), "{name} has an effect");
        }
        let all: BTreeSet<&str> = feature_gates().collect();
        assert_eq!(all.len(), feature_gates().count());
        let all = all.into_iter().map(|name| (name.to_owned(), true)).collect();
        set_feature_gates(&mut Configuration::default(), &all).unwrap();
    }
}
