//! Kueue's configuration file, as far as it says how to decide.

use std::collections::{BTreeMap, BTreeSet};

use slicegate_admission::{AdmissionFairSharing, FairSharing, WaitForPodsReady};
use slicegate_api::configuration::{self as file, V1BETA1};
use slicegate_api::{Kind, convert};
use slicegate_workload::{
    FairSharingStrategy, LabelSelector, Operator, RequeuingTimestamp, Requirement, TransformStrategy, Transformation,
};

use crate::Configuration;

/// Something wrong with a configuration file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{path}: {why}")]
pub struct ConfigurationError {
    /// The field.
    pub path: String,
    /// What is wrong with it, and what to write instead.
    pub why: String,
}

fn error(path: impl Into<String>, why: impl Into<String>) -> ConfigurationError {
    ConfigurationError { path: path.into(), why: why.into() }
}

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

/// Job kinds by the names that the file has for them.
const FRAMEWORKS: [(&str, Kind); 4] = [
    ("batch/job", Kind::Job),
    ("jobset.x-k8s.io/jobset", Kind::JobSet),
    ("ray.io/rayjob", Kind::RayJob),
    ("ray.io/raycluster", Kind::RayCluster),
];

/// What the file calls a kind of job, such as `ray.io/rayjob`.
pub fn framework(kind: Kind) -> Option<&'static str> {
    FRAMEWORKS.iter().find(|(_, k)| *k == kind).map(|(name, _)| *name)
}

/// Names of kinds that Kueue manages and Slicegate does not.
const LEFT_OUT: [&str; 14] = [
    "deployment",
    "kubeflow.org/jaxjob",
    "kubeflow.org/mpijob",
    "kubeflow.org/paddlejob",
    "kubeflow.org/pytorchjob",
    "kubeflow.org/tfjob",
    "kubeflow.org/xgboostjob",
    "leaderworkerset.x-k8s.io/leaderworkerset",
    "pod",
    "ray.io/rayservice",
    "sparkoperator.k8s.io/sparkapplication",
    "statefulset",
    "trainer.kubeflow.org/trainjob",
    "workload.codeflare.dev/appwrapper",
];

/// What a file says, and what of it has no effect.
#[derive(Clone, PartialEq, Debug)]
pub struct FromFile {
    /// How to decide.
    pub configuration: Configuration,
    /// What is accepted but not followed, in words for whoever wrote the file.
    pub ignored: Vec<String>,
}

/// Reads a duration as Go writes them, such as `5m0s`, in microseconds.
///
/// # Errors
/// If the text is none, or negative.
///
/// ```
/// assert_eq!(slicegate_controller::go_duration("1h0m1.5s").unwrap(), 3_601_500_000);
/// assert!(slicegate_controller::go_duration("5 minutes").is_err());
/// ```
pub fn go_duration(text: &str) -> Result<i64, String> {
    let fail = || format!("{text:?} is no duration; write numbers with units, such as 5m or 1h30m");
    if text == "0" {
        return Ok(0);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut total: i64 = 0;
    if rest.is_empty() {
        return Err(fail());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(fail)?;
        let (number, tail) = rest.split_at(digits);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let nanos: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return Err(fail()),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || number.len() > 30 {
            return Err(fail());
        }
        let parse =
            |t: &str| -> Result<i128, String> { if t.is_empty() { Ok(0) } else { t.parse().map_err(|_| fail()) } };
        let fraction_digits = u32::try_from(fraction.len()).map_err(|_| fail())?;
        let scale = 10_i128.checked_pow(fraction_digits).ok_or_else(fail)?;
        let part = parse(whole)?
            .checked_mul(nanos)
            .and_then(|n| n.checked_add(parse(fraction).ok()?.checked_mul(nanos)? / scale))
            .ok_or_else(fail)?;
        total = i64::try_from(part / 1_000).ok().and_then(|micros| total.checked_add(micros)).ok_or_else(fail)?;
        rest = tail;
    }
    Ok(total)
}

struct Reading {
    errors: Vec<ConfigurationError>,
    ignored: Vec<String>,
}

impl Reading {
    fn micros(&mut self, path: &str, text: Option<&String>) -> Option<i64> {
        let text = text?;
        match go_duration(text) {
            Ok(micros) => Some(micros),
            Err(why) => {
                self.errors.push(error(path, why));
                None
            }
        }
    }

    fn seconds(&mut self, path: &str, text: Option<&String>) -> Option<i64> {
        self.micros(path, text).map(|micros| micros / 1_000_000)
    }

    fn positive(&mut self, path: &str, value: Option<i32>) -> Option<i32> {
        let value = value?;
        if value < 0 {
            self.errors.push(error(path, format!("{value} is negative; write 0 or more")));
            return None;
        }
        Some(value)
    }

    fn choose<T: Copy>(&mut self, path: &str, text: Option<&String>, words: &[(&str, T)]) -> Option<T> {
        let text = text?;
        let found = words.iter().find(|(word, _)| word == text).map(|(_, value)| *value);
        if found.is_none() {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.errors.push(error(path, format!("{text:?} is not known; write one of {}", known.join(", "))));
        }
        found
    }

    fn only_in_v1beta1(&mut self, older: bool, path: &str, there: bool) {
        if there && !older {
            self.errors.push(error(path, "v1beta2 does not have this field; take it out, or write v1beta1"));
        }
    }

    fn ignore(&mut self, path: &str, there: bool, why: &str) {
        if there {
            self.ignored.push(format!("{path}: {why}"));
        }
    }
}

/// What a configuration file says about deciding. What it leaves out has Kueue's defaults of its version.
///
/// # Errors
/// All that is wrong with it.
pub fn from_file(file: &file::Configuration) -> Result<FromFile, Vec<ConfigurationError>> {
    let older = file.api_version.as_deref() == Some(V1BETA1);
    let mut reading = Reading { errors: Vec::new(), ignored: Vec::new() };
    let mut configuration = Configuration::default();
    let namespace = file.namespace.as_deref().unwrap_or("kueue-system");
    configuration.manage_jobs_without_queue_name = file.manage_jobs_without_queue_name.unwrap_or(false);
    configuration.managed_jobs_namespace_selector = match &file.managed_jobs_namespace_selector {
        None => LabelSelector {
            match_expressions: vec![Requirement {
                key: "kubernetes.io/metadata.name".into(),
                operator: Operator::NotIn,
                values: vec!["kube-system".into(), namespace.into()],
            }],
            ..LabelSelector::default()
        },
        Some(selector) => convert::label_selector(selector).unwrap_or_else(|why| {
            reading.errors.push(error("managedJobsNamespaceSelector", why.to_string()));
            LabelSelector::default()
        }),
    };
    configuration.engine.wait_for_pods_ready = wait_for_pods_ready(&mut reading, file, older);
    configuration.engine.fair_sharing = fair_sharing(&mut reading, file, older);
    configuration.engine.admission_fair_sharing = admission_fair_sharing(&mut reading, file);
    resources(&mut reading, file, &mut configuration);
    if let Some(policies) = file.object_retention_policies.as_ref().and_then(|p| p.workloads.as_ref()) {
        let at = "objectRetentionPolicies.workloads";
        configuration.retention_after_finished_seconds =
            reading.seconds(&format!("{at}.afterFinished"), policies.after_finished.as_ref());
        configuration.retention_after_deactivated_seconds =
            reading.seconds(&format!("{at}.afterDeactivatedByKueue"), policies.after_deactivated_by_kueue.as_ref());
    }
    configuration.frameworks = integrations(&mut reading, file, older, &mut configuration);
    configuration.provision_only_added_pods =
        file.slicegate.as_ref().and_then(|s| s.provision_only_added_pods).unwrap_or(false);
    for (name, on) in file.feature_gates.iter().flatten() {
        gate(&mut reading, &mut configuration, name, *on);
    }
    reading.only_in_v1beta1(older, "queueVisibility", file.queue_visibility.is_some());
    reading.ignore("multiKueue", file.multi_kueue.is_some(), "other clusters are not supported");
    reading.ignore("visibilityServer", file.visibility_server.is_some(), "there is no visibility server");
    if reading.errors.is_empty() {
        Ok(FromFile { configuration, ignored: reading.ignored })
    } else {
        Err(reading.errors)
    }
}

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
    let mut reading = Reading { errors: Vec::new(), ignored: Vec::new() };
    for (name, on) in gates {
        gate(&mut reading, configuration, name, *on);
    }
    if gates.get(DISABLE_WAIT_FOR_PODS_READY) == Some(&true) {
        configuration.engine.wait_for_pods_ready = None;
    }
    if reading.errors.is_empty() { Ok(reading.ignored) } else { Err(reading.errors) }
}

/// The gate that switches a whole section off.
const DISABLE_WAIT_FOR_PODS_READY: &str = "DisableWaitForPodsReady";
/// The gate that switches the metrics of LocalQueues off.
const LOCAL_QUEUE_METRICS: &str = "LocalQueueMetrics";

fn gate(reading: &mut Reading, configuration: &mut Configuration, name: &str, on: bool) {
    match name {
        // They are looked at with their sections.
        DISABLE_WAIT_FOR_PODS_READY | LOCAL_QUEUE_METRICS => {}
        "WorkloadPriorityClassDefaulting" => configuration.priority_class_defaulting = on,
        "ShortWorkloadNames" => configuration.short_workload_names = on,
        "AssignQueueLabelsForPods" => configuration.assign_queue_labels_for_pods = on,
        "CleanupProvisioningRequestsOnEviction" => configuration.cleanup_provisioning_requests_on_eviction = on,
        "FinishOrphanedWorkloads" => configuration.finish_orphaned_workloads = on,
        name if WITHOUT_EFFECT.contains(&name) || OF_VALIDATION.contains(&name) => {
            reading.ignored.push(format!("featureGates.{name}: has no effect"));
        }
        name => {
            if let Err(unknown) = configuration.engine.gates.set(name, on) {
                reading.errors.push(error(format!("featureGates.{name}"), unknown.to_string()));
            }
            let why = "nobody makes variants of workloads here; those that others make are followed";
            reading.ignore("featureGates.ConcurrentAdmission", on && name == "ConcurrentAdmission", why);
        }
    }
}

fn wait_for_pods_ready(reading: &mut Reading, file: &file::Configuration, older: bool) -> Option<WaitForPodsReady> {
    let at = "waitForPodsReady";
    let off = file.feature_gates.as_ref().is_some_and(|g| g.get(DISABLE_WAIT_FOR_PODS_READY) == Some(&true));
    let section = file.wait_for_pods_ready.as_ref();
    reading.only_in_v1beta1(older, "waitForPodsReady.enable", section.is_some_and(|s| s.enable.is_some()));
    if off || older && !section.and_then(|s| s.enable).unwrap_or(false) {
        return None;
    }
    let absent = file::WaitForPodsReady::default();
    let section = section.unwrap_or(&absent);
    let timeout = reading.seconds(&format!("{at}.timeout"), section.timeout.as_ref());
    let timeout_seconds = timeout.unwrap_or(if older { 300 } else { 1_800 });
    let recovery = reading.seconds(&format!("{at}.recoveryTimeout"), section.recovery_timeout.as_ref());
    let strategy = section.requeuing_strategy.clone().unwrap_or_default();
    let at = "waitForPodsReady.requeuingStrategy";
    let stamps = [("Eviction", RequeuingTimestamp::Eviction), ("Creation", RequeuingTimestamp::Creation)];
    Some(WaitForPodsReady {
        block_admission: section.block_admission.unwrap_or(older),
        timeout_seconds,
        recovery_timeout_seconds: Some(recovery.unwrap_or(timeout_seconds)),
        requeuing_timestamp: reading
            .choose(&format!("{at}.timestamp"), strategy.timestamp.as_ref(), &stamps)
            .unwrap_or_default(),
        backoff_base_seconds: reading
            .positive(&format!("{at}.backoffBaseSeconds"), strategy.backoff_base_seconds)
            .unwrap_or(60),
        backoff_max_seconds: reading
            .positive(&format!("{at}.backoffMaxSeconds"), strategy.backoff_max_seconds)
            .unwrap_or(3_600),
        backoff_limit_count: reading.positive(&format!("{at}.backoffLimitCount"), strategy.backoff_limit_count),
    })
}

fn fair_sharing(reading: &mut Reading, file: &file::Configuration, older: bool) -> Option<FairSharing> {
    use FairSharingStrategy::{LessThanInitialShare, LessThanOrEqualToFinalShare};
    let section = file.fair_sharing.as_ref()?;
    reading.only_in_v1beta1(older, "fairSharing.enable", section.enable.is_some());
    if older && !section.enable.unwrap_or(false) {
        return None;
    }
    let words =
        [("LessThanOrEqualToFinalShare", LessThanOrEqualToFinalShare), ("LessThanInitialShare", LessThanInitialShare)];
    let at = "fairSharing.preemptionStrategies";
    let said = section.preemption_strategies.clone().unwrap_or_default();
    let mut strategies: Vec<FairSharingStrategy> = Vec::new();
    for (i, word) in said.iter().enumerate() {
        strategies.extend(reading.choose(&format!("{at}[{i}]"), Some(word), &words));
    }
    let lists: [&[FairSharingStrategy]; 3] =
        [&[LessThanOrEqualToFinalShare], &[LessThanInitialShare], &[LessThanOrEqualToFinalShare, LessThanInitialShare]];
    if said.is_empty() {
        if !older {
            let why =
                "it must be there where fairSharing is; write [LessThanOrEqualToFinalShare, LessThanInitialShare]";
            reading.errors.push(error(at, why));
        }
        strategies = lists[2].to_vec();
    } else if strategies.len() == said.len() && !lists.contains(&strategies.as_slice()) {
        let why = "these do not go together; write one of LessThanOrEqualToFinalShare and LessThanInitialShare, or both in \
                   this order";
        reading.errors.push(error(at, why));
    }
    Some(FairSharing { strategies })
}

fn admission_fair_sharing(reading: &mut Reading, file: &file::Configuration) -> Option<AdmissionFairSharing> {
    let section = file.admission_fair_sharing.as_ref()?;
    let at = "admissionFairSharing";
    let half_life = reading.seconds(&format!("{at}.usageHalfLifeTime"), section.usage_half_life_time.as_ref());
    let interval = reading.seconds(&format!("{at}.usageSamplingInterval"), section.usage_sampling_interval.as_ref());
    let mut resource_weights = BTreeMap::new();
    for (resource, weight) in section.resource_weights.iter().flatten() {
        if !weight.is_finite() || *weight < 0.0 {
            let why = format!("{weight} is no weight; write 0 or more");
            reading.errors.push(error(format!("{at}.resourceWeights[{resource}]"), why));
        }
        resource_weights.insert(resource.as_str().into(), *weight);
    }
    Some(AdmissionFairSharing {
        half_life_seconds: half_life.unwrap_or(0),
        sampling_interval_seconds: interval.unwrap_or(300),
        resource_weights,
    })
}

fn resources(reading: &mut Reading, file: &file::Configuration, configuration: &mut Configuration) {
    let Some(section) = &file.resources else { return };
    let strategies = [("BlockUndeclared", false), ("IgnoreUndeclared", true)];
    configuration.engine.ignore_undeclared_resources = reading
        .choose("resources.quotaCheckStrategy", section.quota_check_strategy.as_ref(), &strategies)
        .unwrap_or(false);
    configuration.engine.excluded_resource_prefixes =
        section.exclude_resource_prefixes.iter().flatten().map(|p| p.as_str().into()).collect();
    reading.ignore(
        "resources.deviceClassMappings",
        section.device_class_mappings.as_ref().is_some_and(|m| !m.is_empty()),
        "devices of dynamic resource allocation are not counted",
    );
    for (i, rule) in section.transformations.iter().flatten().enumerate() {
        let at = format!("resources.transformations[{i}]");
        let Some(input) = rule.input.as_deref().filter(|i| !i.is_empty()) else {
            reading
                .errors
                .push(error(format!("{at}.input"), "the resource is missing; name the one that is transformed"));
            continue;
        };
        let words = [("Retain", TransformStrategy::Retain), ("Replace", TransformStrategy::Replace)];
        let strategy = reading.choose(&format!("{at}.strategy"), rule.strategy.as_ref(), &words).unwrap_or_default();
        let outputs = convert::resource_list(&rule.outputs.clone().unwrap_or_default()).unwrap_or_else(|why| {
            reading.errors.push(error(format!("{at}.outputs"), why.to_string()));
            BTreeMap::new()
        });
        let multiply_by = rule.multiply_by.as_deref().filter(|r| !r.is_empty()).map(Into::into);
        let rule = Transformation { strategy, multiply_by, outputs };
        if configuration.engine.transformations.insert(input.into(), rule).is_some() {
            reading.errors.push(error(format!("{at}.input"), format!("{input} has a transformation already")));
        }
    }
}

fn integrations(
    reading: &mut Reading,
    file: &file::Configuration,
    older: bool,
    configuration: &mut Configuration,
) -> BTreeSet<Kind> {
    let section = file.integrations.clone().unwrap_or_default();
    reading.only_in_v1beta1(older, "integrations.podOptions", section.pod_options.is_some());
    configuration.label_keys_to_copy = section.label_keys_to_copy.iter().flatten().map(|k| k.as_str().into()).collect();
    reading.ignore(
        "integrations.externalFrameworks",
        section.external_frameworks.as_ref().is_some_and(|f| !f.is_empty()),
        "jobs of kinds that are not built in are left to others anyway",
    );
    let Some(names) = section.frameworks else { return BTreeSet::from([Kind::Job]) };
    let mut frameworks = BTreeSet::new();
    for (i, name) in names.iter().enumerate() {
        let at = format!("integrations.frameworks[{i}]");
        if let Some((_, kind)) = FRAMEWORKS.iter().find(|(n, _)| n == name) {
            frameworks.insert(*kind);
        } else if LEFT_OUT.contains(&name.as_str()) {
            reading.ignored.push(format!("{at}: {name} is not supported"));
        } else {
            let known: Vec<&str> = FRAMEWORKS.iter().map(|(n, _)| *n).collect();
            reading.errors.push(error(at, format!("{name:?} is not known; write one of {}", known.join(", "))));
        }
    }
    frameworks
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(version: &str, mut value: Value) -> Result<FromFile, Vec<ConfigurationError>> {
        value["apiVersion"] = version.into();
        from_file(&serde_json::from_value(value).unwrap())
    }

    const V1BETA2: &str = slicegate_api::configuration::V1BETA2;

    #[test]
    fn what_is_left_out_has_the_defaults_of_its_version() {
        let newer = read(V1BETA2, json!({})).unwrap().configuration;
        let waits = newer.engine.wait_for_pods_ready.unwrap();
        assert_eq!((waits.timeout_seconds, waits.block_admission), (1_800, false), "on by default");
        let older = read(V1BETA1, json!({})).unwrap().configuration;
        assert_eq!(older.engine.wait_for_pods_ready, None);
        let older = read(V1BETA1, json!({"waitForPodsReady": {"enable": true}})).unwrap().configuration;
        let waits = older.engine.wait_for_pods_ready.unwrap();
        assert_eq!((waits.timeout_seconds, waits.block_admission), (300, true));
        assert_eq!(read(V1BETA2, json!({})).unwrap().configuration.frameworks, BTreeSet::from([Kind::Job]));
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let errors = read(
            V1BETA2,
            json!({
                "waitForPodsReady": {"enable": true, "timeout": "soon"},
                "fairSharing": {"preemptionStrategies": ["LessThanInitialShare", "LessThanOrEqualToFinalShare"]},
                "integrations": {"frameworks": ["batch/jobs", "pod"]},
                "featureGates": {"Nonsense": true},
                "resources": {"transformations": [{"outputs": {}}], "quotaCheckStrategy": "Both"},
            }),
        )
        .unwrap_err();
        let paths: Vec<&str> = errors.iter().map(|e| e.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "waitForPodsReady.enable",
                "waitForPodsReady.timeout",
                "fairSharing.preemptionStrategies",
                "resources.quotaCheckStrategy",
                "resources.transformations[0].input",
                "integrations.frameworks[0]",
                "featureGates.Nonsense",
            ]
        );
    }

    #[test]
    fn what_is_accepted_and_not_followed_is_told() {
        let said = read(
            V1BETA2,
            json!({
                "integrations": {"frameworks": ["pod", "jobset.x-k8s.io/jobset"]},
                "featureGates": {"MultiKueue": false, "ShortWorkloadNames": true},
                "objectRetentionPolicies": {"workloads": {"afterFinished": "1h"}},
            }),
        )
        .unwrap();
        assert_eq!(said.configuration.frameworks, BTreeSet::from([Kind::JobSet]));
        assert!(said.configuration.short_workload_names);
        assert_eq!(said.configuration.retention_after_finished_seconds, Some(3_600));
        assert_eq!(said.ignored.len(), 2, "{:?}", said.ignored);
        for (on, told) in [(true, 1), (false, 0)] {
            let said = read(V1BETA2, json!({"featureGates": {"ConcurrentAdmission": on}})).unwrap();
            assert_eq!(said.ignored.len(), told, "{:?}", said.ignored);
        }
    }

    #[test]
    fn what_goes_beyond_kueue_is_off_unless_it_is_asked_for() {
        for version in [V1BETA1, V1BETA2] {
            let asked = |section: Value| read(version, section).unwrap().configuration.provision_only_added_pods;
            assert!(!asked(json!({})) && !asked(json!({"slicegate": {}})));
            assert!(asked(json!({"slicegate": {"provisionOnlyAddedPods": true}})));
            assert!(!asked(json!({"slicegate": {"provisionOnlyAddedPods": false}})));
        }
    }

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
    fn durations_are_those_of_go() {
        for (text, micros) in [("0", 0), ("5m0s", 300_000_000), ("1.5h", 5_400_000_000), ("250ms", 250_000), ("1us", 1)]
        {
            assert_eq!(go_duration(text), Ok(micros), "{text}");
        }
        for text in ["", "5", "m", "-5m", "5d", "1.2.3s", "999999999999999999999999h"] {
            assert!(go_duration(text).is_err(), "{text}");
        }
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
