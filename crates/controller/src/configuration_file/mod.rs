//! Kueue's configuration file. [`from_file`] reads how to decide, [`controller_manager`] how the process runs; a controller refuses
//! to start with a file in which either finds something wrong.

mod duration;
mod gates;
mod manager;

use std::collections::{BTreeMap, BTreeSet};

use slicegate_admission::{AdmissionFairSharing, FairSharing, WaitForPodsReady};
use slicegate_api::configuration::{self as file, V1BETA1};
use slicegate_api::{Kind, convert};
use slicegate_workload::{
    FairSharingStrategy, LabelSelector, Operator, RequeuingTimestamp, Requirement, TransformStrategy, Transformation,
};

use crate::Configuration;

pub use duration::go_duration;
pub use gates::{feature_gates, set_feature_gates};
pub use manager::{Address, ControllerManager, LeaderElection, WebhookCertificate, controller_manager};

use gates::{DISABLE_WAIT_FOR_PODS_READY, gate};

/// Where the controller runs if nothing says otherwise.
pub const DEFAULT_NAMESPACE: &str = "kueue-system";

/// Something wrong with a configuration file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{path}: {why}")]
pub struct ConfigurationError {
    /// The field.
    pub path: String,
    /// What is wrong with it, and what to write instead.
    pub why: String,
}

impl ConfigurationError {
    /// The name of the feature gate that it is about, if it is about one.
    pub fn feature_gate(&self) -> Option<&str> {
        self.path.strip_prefix(gates::PATH)
    }
}

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

/// What is found while a file is read.
#[derive(Default)]
struct Reading {
    errors: Vec<ConfigurationError>,
    ignored: Vec<String>,
}

impl Reading {
    fn error(&mut self, path: impl Into<String>, why: impl Into<String>) {
        self.errors.push(ConfigurationError { path: path.into(), why: why.into() });
    }

    fn micros(&mut self, path: &str, text: Option<&String>) -> Option<i64> {
        let text = text?;
        match go_duration(text) {
            Ok(micros) => Some(micros),
            Err(why) => {
                self.error(path, why);
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
            self.error(path, format!("{value} is negative; write 0 or more"));
            return None;
        }
        Some(value)
    }

    fn choose<T: Copy>(&mut self, path: &str, text: Option<&String>, words: &[(&str, T)]) -> Option<T> {
        let text = text?;
        let found = words.iter().find(|(word, _)| word == text).map(|(_, value)| *value);
        if found.is_none() {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.error(path, format!("{text:?} is not known; write one of {}", known.join(", ")));
        }
        found
    }

    fn only_in_v1beta1(&mut self, older: bool, path: &str, there: bool) {
        if there && !older {
            self.error(path, "v1beta2 does not have this field; take it out, or write v1beta1");
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
    let mut reading = Reading::default();
    let mut configuration = Configuration::default();
    let namespace = file.namespace.as_deref().filter(|name| !name.is_empty()).unwrap_or(DEFAULT_NAMESPACE);
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
            reading.error(format!("managedJobsNamespaceSelector.{}", why.path), why.problem.to_string());
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
            reading.error(at, why);
        }
        strategies = lists[2].to_vec();
    } else if strategies.len() == said.len() && !lists.contains(&strategies.as_slice()) {
        let why = "these do not go together; write one of LessThanOrEqualToFinalShare and LessThanInitialShare, or both in \
                   this order";
        reading.error(at, why);
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
            reading.error(format!("{at}.resourceWeights[{resource}]"), why);
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
            reading.error(format!("{at}.input"), "the resource is missing; name the one that is transformed");
            continue;
        };
        let words = [("Retain", TransformStrategy::Retain), ("Replace", TransformStrategy::Replace)];
        let strategy = reading.choose(&format!("{at}.strategy"), rule.strategy.as_ref(), &words).unwrap_or_default();
        let outputs = convert::resource_list(&rule.outputs.clone().unwrap_or_default()).unwrap_or_else(|why| {
            reading.error(format!("{at}.outputs{}", why.path), why.problem.to_string());
            BTreeMap::new()
        });
        let multiply_by = rule.multiply_by.as_deref().filter(|r| !r.is_empty()).map(Into::into);
        let rule = Transformation { strategy, multiply_by, outputs };
        if configuration.engine.transformations.insert(input.into(), rule).is_some() {
            reading.error(format!("{at}.input"), format!("{input} has a transformation already"));
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
            reading.error(at, format!("{name:?} is not known; write one of {}", known.join(", ")));
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
    fn the_namespace_of_the_controller_is_left_alone() {
        for (namespace, values) in [("theirs", ["kube-system", "theirs"]), ("", ["kube-system", DEFAULT_NAMESPACE])] {
            let said = read(V1BETA2, json!({"namespace": namespace})).unwrap().configuration;
            let expressions = said.managed_jobs_namespace_selector.match_expressions;
            assert_eq!(expressions[0].values, values.map(Into::into), "{namespace}");
        }
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
                "resources": {
                    "transformations": [{"outputs": {}}, {"input": "a", "outputs": {"b/c": "many"}}],
                    "quotaCheckStrategy": "Both",
                },
                "managedJobsNamespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]},
            }),
        )
        .unwrap_err();
        let paths: Vec<&str> = errors.iter().map(|e| e.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "managedJobsNamespaceSelector.matchExpressions[0].operator",
                "waitForPodsReady.enable",
                "waitForPodsReady.timeout",
                "fairSharing.preemptionStrategies",
                "resources.quotaCheckStrategy",
                "resources.transformations[0].input",
                "resources.transformations[1].outputs[b/c]",
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
}
