//! The admission check that asks for capacity: one ProvisioningRequest for each attempt of a workload.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use slicegate_admission::lifecycle;
use slicegate_api::provisioning::{
    LocalReference, ProvisioningRequest, ProvisioningRequestPodSet, ProvisioningRequestSpec,
};
use slicegate_api::{
    Condition, Kind, Object, ObjectMeta, ObjectRef, PodSpec, PodTemplate, PodTemplateSpec, convert, kueue,
};
use slicegate_workload::{CheckState, CheckStatus, Key, PodSetUpdate, Timestamp, Workload};

use crate::controller::{Controller, event};
use crate::io::{EventType, Operation, field_manager};
use crate::podset::{self, PodSetInfo};
use crate::reconcile::controlled_by;
use crate::store::{owner_ref, workload_ref};
use crate::writes::Then;
use crate::{keys, names};

/// Tries after the first, where the configuration does not say.
const BACKOFF_LIMIT: i32 = 3;
/// Seconds before the second try.
const BACKOFF_BASE: i32 = 60;
/// The longest wait.
const BACKOFF_MAX: i32 = 1800;

/// Why a check for capacity cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum BadParameters {
    #[error("missing parameters reference")]
    None,
    #[error("wrong group {0:?}, expecting {group:?}: bad parameters reference", group = kueue::GROUP)]
    Group(String),
    #[error("wrong kind {0:?}, expecting \"ProvisioningRequestConfig\": bad parameters reference")]
    Kind(String),
    #[error("provisioningrequestconfigs.kueue.x-k8s.io {0:?} not found")]
    Missing(String),
}

/// Pod sets that become one entry of a ProvisioningRequest.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// The first of them, which gives it its name and template.
    pub first: usize,
    /// All of them, by place in the workload.
    pub members: Vec<usize>,
    /// Their pods.
    pub count: i32,
}

/// How a check stands after a look at its request.
#[derive(Clone, PartialEq, Debug)]
struct Verdict {
    state: CheckState,
    message: String,
    requeue_after: Option<i32>,
    updates: Vec<PodSetUpdate>,
}

impl Verdict {
    fn of(state: CheckState, message: impl Into<String>) -> Self {
        Self { state, message: message.into(), requeue_after: None, updates: Vec::new() }
    }
}

fn condition<'a>(request: &'a ProvisioningRequest, kind: &str) -> Option<&'a Condition> {
    request.status.conditions.iter().find(|c| c.type_ == kind)
}

fn holds<'a>(request: &'a ProvisioningRequest, kind: &str) -> Option<&'a Condition> {
    condition(request, kind).filter(|c| c.status == "True")
}

/// The wait before the try that follows attempt number `attempt`, in seconds.
fn backoff(strategy: Option<&kueue::ProvisioningRequestRetryStrategy>, attempt: i32) -> i32 {
    let base = strategy.and_then(|s| s.backoff_base_seconds).unwrap_or(BACKOFF_BASE);
    let max = strategy.and_then(|s| s.backoff_max_seconds).unwrap_or(BACKOFF_MAX);
    let mut wait = base;
    for _ in 1..attempt {
        if wait >= max {
            break;
        }
        wait = wait.saturating_mul(2);
    }
    wait.min(max)
}

/// Which attempt a request is; 0 if it is none of the workload's for this check.
fn attempt_of(request: &str, workload: &str, check: &str) -> i32 {
    let prefix = format!("{workload}-{check}-");
    if let Some(number) = request.strip_prefix(&prefix).and_then(|n| n.parse().ok()) {
        return number;
    }
    // The number of a name that was cut is not in it.
    (1..=99).find(|&n| names::provisioning_request(workload, check, n) == request).unwrap_or(0)
}

/// The last attempt among requests, and its number.
fn last_attempt<'a>(
    requests: &'a [Arc<ProvisioningRequest>],
    workload: &str,
    check: &str,
) -> Option<(i32, &'a Arc<ProvisioningRequest>)> {
    requests
        .iter()
        .map(|r| (attempt_of(r.metadata.name.as_deref().unwrap_or_default(), workload, check), r))
        .filter(|(attempt, _)| *attempt > 0)
        .max_by_key(|(attempt, _)| *attempt)
}

fn names_resource(spec: &PodSpec, resources: &[String]) -> bool {
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    containers.filter_map(|c| c.resources.as_ref()).any(|r| {
        let lists = [r.requests.as_ref(), r.limits.as_ref()];
        lists.into_iter().flatten().any(|list| resources.iter().any(|name| list.contains_key(name)))
    })
}

/// An admission that lacks a pod set of its workload.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("inconsistent podSet assignments: missing assignment for PodSet {0:?}")]
pub struct MissingAssignment(pub String);

fn admitted_count(workload: &kueue::Workload, pod_set: &kueue::PodSet) -> Result<i32, MissingAssignment> {
    let Some(admission) = &workload.status.admission else { return Ok(pod_set.count) };
    let assignment = admission.pod_set_assignments.iter().find(|p| p.name == pod_set.name);
    let assignment = assignment.ok_or_else(|| MissingAssignment(pod_set.name.clone()))?;
    Ok(assignment.count.unwrap_or(pod_set.count))
}

/// The pod sets for which capacity is asked, by place, with their pods: those that have pods and name one of the managed
/// resources.
fn managed<'a>(
    workload: &'a kueue::Workload,
    config: &'a kueue::ProvisioningRequestConfigSpec,
) -> impl Iterator<Item = Result<(usize, i32), MissingAssignment>> + 'a {
    workload.spec.pod_sets.iter().enumerate().filter_map(move |(i, pod_set)| {
        let resources = &config.managed_resources;
        let named =
            resources.is_empty() || pod_set.template.spec.as_ref().is_some_and(|s| names_resource(s, resources));
        if pod_set.count <= 0 || !named {
            return None;
        }
        match admitted_count(workload, pod_set) {
            Ok(count) => (count > 0).then_some(Ok((i, count))),
            Err(error) => Some(Err(error)),
        }
    })
}

/// Whether a workload needs a ProvisioningRequest.
///
/// # Errors
/// If the workload was admitted without a pod set that decides it.
pub fn is_needed(
    workload: &kueue::Workload,
    config: &kueue::ProvisioningRequestConfigSpec,
) -> Result<bool, MissingAssignment> {
    managed(workload, config).next().transpose().map(|first| first.is_some())
}

/// The entries of the ProvisioningRequest for a workload: its pod sets that have pods and name one of the managed resources,
/// equal ones together if the configuration says so.
///
/// # Errors
/// If the workload was admitted without one of its pod sets.
pub fn entries(
    workload: &kueue::Workload,
    config: &kueue::ProvisioningRequestConfigSpec,
) -> Result<Vec<Entry>, MissingAssignment> {
    let mut all: Vec<Entry> = Vec::new();
    let default = PodSpec::default();
    for managed in managed(workload, config) {
        let (i, count) = managed?;
        let Some(pod_set) = workload.spec.pod_sets.get(i) else { continue };
        let spec = pod_set.template.spec.as_ref().unwrap_or(&default);
        let equal = |entry: &&mut Entry| {
            let Some(first) = workload.spec.pod_sets.get(entry.first) else { return false };
            match config.pod_set_merge_policy.as_deref() {
                Some("IdenticalPodTemplates") => first.template == pod_set.template,
                Some("IdenticalWorkloadSchedulingRequirements") => {
                    same_requirements(first.template.spec.as_ref().unwrap_or(&default), spec)
                }
                _ => false,
            }
        };
        match all.iter_mut().find(equal) {
            Some(entry) => {
                entry.members.push(i);
                entry.count = entry.count.saturating_add(count);
            }
            None => all.push(Entry { first: i, members: vec![i], count }),
        }
    }
    Ok(all)
}

/// What entries ask for beyond pods that have their capacity already.
fn beyond(mut entries: Vec<Entry>, workload: &kueue::Workload, at_hand: &BTreeMap<String, i32>) -> Vec<Entry> {
    if at_hand.is_empty() {
        return entries;
    }
    for entry in &mut entries {
        let names = entry.members.iter().filter_map(|&i| workload.spec.pod_sets.get(i)).map(|p| &p.name);
        let there = names.filter_map(|name| at_hand.get(name)).fold(0_i32, |sum, &n| sum.saturating_add(n));
        entry.count = entry.count.saturating_sub(there);
    }
    entries.retain(|entry| entry.count > 0);
    entries
}

/// Whether two pods fit into the same places.
fn same_requirements(a: &PodSpec, b: &PodSpec) -> bool {
    let requests = |containers: &[k8s_openapi::api::core::v1::Container]| -> Vec<_> {
        containers.iter().map(|c| c.resources.as_ref().and_then(|r| r.requests.clone()).unwrap_or_default()).collect()
    };
    let list = |containers: &Option<Vec<k8s_openapi::api::core::v1::Container>>| {
        requests(containers.as_deref().unwrap_or_default())
    };
    requests(&a.containers) == requests(&b.containers)
        && list(&a.init_containers) == list(&b.init_containers)
        && a.resources == b.resources
        && a.node_selector == b.node_selector
        && a.tolerations == b.tolerations
        && a.affinity == b.affinity
        && a.resource_claims == b.resource_claims
}

/// Requests follow limits where they are absent.
fn limits_to_requests(spec: &mut PodSpec) {
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        let Some(resources) = &mut container.resources else { continue };
        let Some(limits) = resources.limits.clone() else { continue };
        let requests = resources.requests.get_or_insert_default();
        for (name, limit) in limits {
            requests.entry(name).or_insert(limit);
        }
    }
}

impl Controller {
    /// The configuration behind an admission check for capacity.
    fn provisioning_config_of(
        &self,
        check: &kueue::AdmissionCheck,
    ) -> Result<Arc<kueue::ProvisioningRequestConfig>, BadParameters> {
        let parameters = check.spec.parameters.as_ref().ok_or(BadParameters::None)?;
        if parameters.api_group != kueue::GROUP {
            return Err(BadParameters::Group(parameters.api_group.clone()));
        }
        if parameters.kind != "ProvisioningRequestConfig" {
            return Err(BadParameters::Kind(parameters.kind.clone()));
        }
        self.store
            .provisioning_config(&parameters.name)
            .cloned()
            .ok_or_else(|| BadParameters::Missing(parameters.name.clone()))
    }

    /// The condition `Active` of an admission check for capacity: whether its parameters name a configuration that exists.
    pub fn provisioning_active(&self, check: &kueue::AdmissionCheck, now: Timestamp) -> Condition {
        let (status, reason, message) = match self.provisioning_config_of(check) {
            Ok(_) => ("True", "Active", "The admission check is active".to_owned()),
            Err(error) => ("False", "BadParametersRef", error.to_string()),
        };
        Condition {
            type_: "Active".to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message,
            last_transition_time: convert::time_to_api(now.truncated()),
            observed_generation: check.metadata.generation,
        }
    }

    /// Brings the ProvisioningRequests of a workload in line with its checks, and its checks with their requests.
    pub(crate) fn reconcile_provisioning(&mut self, now: Timestamp, workload: &Arc<Workload>) {
        let key = &workload.key;
        let Some(object) = self.store.workload(key).cloned() else { return };
        let owned = self.requests_of(&workload.uid);
        let evicted = workload.is_evicted();
        if workload.is_finished() || evicted && self.config.cleanup_provisioning_requests_on_eviction {
            for request in &owned {
                self.delete_request(request);
            }
            return;
        }
        if evicted || !workload.has_quota_reservation() {
            return;
        }
        let checks: Vec<CheckStatus> = workload
            .status
            .admission_checks
            .iter()
            .filter(|c| {
                let spec = self.store.check(&c.name).map(|c| c.spec.controller_name.as_str());
                spec == Some(keys::PROVISIONING_CONTROLLER)
            })
            .cloned()
            .collect();
        if checks.is_empty() && owned.is_empty() {
            return;
        }
        let mut kept: BTreeSet<String> = BTreeSet::new();
        for check in &checks {
            let active = last_attempt(&owned, &key.name, &check.name);
            if let Some((_, request)) = active {
                kept.insert(request.metadata.name.clone().unwrap_or_default());
            }
            let active = active.map(|(attempt, request)| (attempt, request.clone()));
            self.reconcile_capacity(now, workload, &object, check, active);
        }
        for request in &owned {
            if !kept.contains(request.metadata.name.as_deref().unwrap_or_default()) {
                self.delete_request(request);
            }
        }
    }

    /// The name of the ProvisioningRequest that counts for a check of a workload: that of the last attempt.
    pub fn provisioning_request(&self, workload: &Key, check: &str) -> Option<String> {
        let owned = self.requests_of(self.store.workload(workload)?.metadata.uid.as_deref().unwrap_or_default());
        let (_, request) = last_attempt(&owned, &workload.name, check)?;
        request.metadata.name.clone()
    }

    fn requests_of(&self, uid: &str) -> Vec<Arc<ProvisioningRequest>> {
        self.store
            .owned_by(uid, Kind::ProvisioningRequest)
            .iter()
            .filter_map(|r| self.store.provisioning_request(&r.namespace, &r.name).cloned())
            .collect()
    }

    fn delete_request(&mut self, request: &Arc<ProvisioningRequest>) {
        let object = Object::ProvisioningRequest(request.clone());
        let reference = object.reference();
        if request.metadata.deletion_timestamp.is_some() || self.store.is_locked(&reference) {
            return;
        }
        let uid = object.uid().into();
        self.write(field_manager::PROVISIONING, Operation::Delete { object: reference, uid }, Then::default());
    }

    fn reconcile_capacity(
        &mut self,
        now: Timestamp,
        workload: &Arc<Workload>,
        object: &Arc<kueue::Workload>,
        check: &CheckStatus,
        active: Option<(i32, Arc<ProvisioningRequest>)>,
    ) {
        let config = self.store.check(&check.name).cloned().ok_or(BadParameters::None);
        let Ok(config) = config.and_then(|c| self.provisioning_config_of(&c)) else {
            if check.state == CheckState::Pending {
                self.set_check(now, workload, check, Verdict::of(CheckState::Pending, "the check is not active"));
            }
            return;
        };
        // Without an assignment there is nothing to ask for; it will come.
        let Ok(needed) = is_needed(object, &config.spec) else { return };
        let entries = if needed { entries(object, &config.spec) } else { Ok(Vec::new()) };
        let Ok(entries) = entries.map(|all| beyond(all, object, &self.pods_at_hand(workload))) else { return };
        if entries.is_empty() {
            if let Some((_, request)) = &active {
                self.delete_request(request);
            }
            let verdict = Verdict::of(CheckState::Ready, "the provisioning request is not needed");
            if check.state != CheckState::Ready {
                self.set_check(now, workload, check, verdict);
            }
            return;
        }
        let wanted = check.retry_count.unwrap_or(0).saturating_add(1);
        let failed = |r: &ProvisioningRequest| holds(r, "Failed").is_some() || holds(r, "BookingExpired").is_some();
        match active {
            // A request whose failure was already answered is followed by the next.
            Some((attempt, request)) if attempt < wanted && failed(&request) => {
                if check.state != CheckState::Ready {
                    self.make_request(now, workload, object, check, &config, &entries, wanted);
                }
            }
            Some((attempt, request)) => {
                if check.state != CheckState::Ready {
                    if !in_sync(&request, &config, object) && holds(&request, "Provisioned").is_none() {
                        self.delete_request(&request);
                        return;
                    }
                    self.hand_over_templates(&request);
                }
                if let Some(verdict) = verdict(workload, object, check, &config, &entries, attempt, &request) {
                    self.set_check(now, workload, check, verdict);
                }
            }
            None => {
                if check.state == CheckState::Pending {
                    self.make_request(now, workload, object, check, &config, &entries, wanted);
                }
            }
        }
    }

    /// The pods of an elastic job that a slice took over from the one that it replaced, by pod set, if no capacity is to be asked
    /// for them.
    fn pods_at_hand(&self, workload: &Workload) -> BTreeMap<String, i32> {
        let mut counts = BTreeMap::new();
        if !self.config.provision_only_added_pods {
            return counts;
        }
        let Some(old) = lifecycle::replaced_slice(workload).and_then(|key| self.store.workload(&key)) else {
            return counts;
        };
        let Some(admission) = &old.status.admission else { return counts };
        let asked = |name: &str| old.spec.pod_sets.iter().find(|p| p.name == name).map_or(0, |p| p.count);
        for assignment in &admission.pod_set_assignments {
            let asked = asked(&assignment.name);
            counts.insert(assignment.name.clone(), assignment.count.unwrap_or(asked).min(asked));
        }
        counts
    }

    /// Makes the PodTemplates of a request and, once they are there, the request.
    fn make_request(
        &mut self,
        now: Timestamp,
        workload: &Arc<Workload>,
        object: &Arc<kueue::Workload>,
        check: &CheckStatus,
        config: &kueue::ProvisioningRequestConfig,
        entries: &[Entry],
        attempt: i32,
    ) {
        let key = &workload.key;
        let name = names::provisioning_request(&key.name, &check.name, attempt);
        let reference = ObjectRef::new(Kind::ProvisioningRequest, key.namespace.clone(), name.as_str());
        let owner = Object::Workload(object.clone());
        let labels = BTreeMap::from([(keys::MANAGED.to_owned(), "true".to_owned())]);
        let metadata = |name: &str| ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(key.namespace.to_string()),
            labels: Some(labels.clone()),
            owner_references: Some(vec![controlled_by(&owner)]),
            ..ObjectMeta::default()
        };
        if let Some(error) = self.create_errors.get(&reference).cloned() {
            self.set_check(now, workload, check, Verdict::of(CheckState::Pending, error));
        }
        let mut complete = true;
        let mut pod_sets = Vec::with_capacity(entries.len());
        for entry in entries {
            let Some(pod_set) = object.spec.pod_sets.get(entry.first) else { continue };
            let template_name = names::pod_template(&name, &pod_set.name);
            let template_ref = ObjectRef::new(Kind::PodTemplate, key.namespace.clone(), template_name.as_str());
            pod_sets.push(ProvisioningRequestPodSet {
                pod_template_ref: LocalReference { name: template_name.clone() },
                count: entry.count,
            });
            if self.store.get(&template_ref).is_some() {
                continue;
            }
            complete = false;
            if let Some(error) = self.create_errors.get(&template_ref).cloned() {
                self.set_check(now, workload, check, Verdict::of(CheckState::Pending, error));
            }
            if self.store.is_locked(&template_ref) {
                self.wake_when_free(key, &template_ref);
                continue;
            }
            let Some(template) = self.request_template(object, pod_set) else { return };
            let template = PodTemplate { metadata: metadata(&template_name), template: Some(template) };
            let then = Then {
                on_failure: Some((
                    workload_ref(key),
                    "FailedCreate",
                    format!("Error creating PodTemplate {template_name:?}"),
                )),
                ..Then::default()
            };
            self.write(field_manager::PROVISIONING, Operation::Create(template.into()), then);
        }
        if !complete || self.store.is_locked(&reference) {
            self.wake_when_free(key, &reference);
            return;
        }
        if self.store.get(&reference).is_some() {
            // It belongs to somebody else.
            let text = format!(
                "Error creating ProvisioningRequest {name:?}: provisioningrequests.autoscaling.x-k8s.io {name:?} already exists"
            );
            if *check.message != *text {
                self.out.events.push(event(&workload_ref(key), EventType::Warning, "FailedCreate", text.clone()));
            }
            self.set_check(now, workload, check, Verdict::of(CheckState::Pending, text));
            return;
        }
        let request = ProvisioningRequest {
            metadata: metadata(&name),
            spec: ProvisioningRequestSpec {
                pod_sets,
                provisioning_class_name: config.spec.provisioning_class_name.clone(),
                parameters: parameters(config, object),
            },
            ..ProvisioningRequest::default()
        };
        let note = format!("Created ProvisioningRequest: {name:?}");
        let told = event(&workload_ref(key), EventType::Normal, "ProvisioningRequestCreated", note);
        let then = Then {
            events: vec![told],
            on_failure: Some((
                workload_ref(key),
                "FailedCreate",
                format!("Error creating ProvisioningRequest {name:?}"),
            )),
            ..Then::default()
        };
        self.write(field_manager::PROVISIONING, Operation::Create(request.into()), then);
    }

    /// Looks at a workload again when an object that it needs may be made again. It may not exist, or have another owner.
    fn wake_when_free(&mut self, workload: &Key, needed: &ObjectRef) {
        if let Some(until) = self.store.blocked_until(needed) {
            self.wake(&workload_ref(workload), until);
        }
    }

    /// The pods that capacity is asked for: with the selectors and tolerations of their flavors.
    fn request_template(&self, workload: &kueue::Workload, pod_set: &kueue::PodSet) -> Option<PodTemplateSpec> {
        let admission = workload.status.admission.as_ref()?;
        let assignment = admission.pod_set_assignments.iter().find(|a| a.name == pod_set.name)?;
        let info = PodSetInfo::from_assignment(assignment, Some(&pod_set.template), pod_set.count, false, |flavor| {
            self.store.flavor(flavor)
        });
        let mut template = pod_set.template.clone();
        podset::merge_into(&mut template, &info.ok()?, false).ok()?;
        limits_to_requests(template.spec.get_or_insert_default());
        Some(template)
    }

    /// Makes a request the owner of its PodTemplates, so that they go when it goes.
    fn hand_over_templates(&mut self, request: &Arc<ProvisioningRequest>) {
        let owner = Object::ProvisioningRequest(request.clone());
        for entry in &request.spec.pod_sets {
            let reference = ObjectRef::new(Kind::PodTemplate, owner.namespace(), entry.pod_template_ref.name.as_str());
            if self.store.is_locked(&reference) {
                continue;
            }
            let Some(Object::PodTemplate(template)) = self.store.get(&reference).cloned() else { continue };
            if owner_ref(&template.metadata) == Some(owner.reference()) {
                continue;
            }
            let mut new = (*template).clone();
            new.metadata.owner_references = Some(vec![controlled_by(&owner)]);
            self.write(field_manager::PROVISIONING, Operation::Update(new.into()), Then::default());
        }
    }

    fn set_check(&mut self, now: Timestamp, workload: &Arc<Workload>, old: &CheckStatus, verdict: Verdict) {
        let changed = old.state != verdict.state;
        let same = !changed && *old.message == *verdict.message && old.pod_set_updates == verdict.updates;
        if same {
            return;
        }
        let reference = workload_ref(&workload.key);
        let Some(plan) = self.plan(&workload.key) else { return };
        let Some(check) = plan.status.admission_checks.iter_mut().find(|c| c.name == old.name) else { return };
        check.state = verdict.state;
        check.message = verdict.message.as_str().into();
        check.requeue_after_seconds = verdict.requeue_after;
        check.pod_set_updates = verdict.updates;
        plan.manager = field_manager::PROVISIONING;
        if changed {
            check.last_transition = now.truncated();
            let tail =
                if verdict.message.is_empty() { String::new() } else { format!(" with message: {}", verdict.message) };
            let (from, to) = (old.state.as_str(), verdict.state.as_str());
            let note = format!("Admission check {} updated state from {from} to {to}{tail}", old.name);
            plan.then.events.push(event(&reference, EventType::Normal, "AdmissionCheckUpdated", note));
        }
        self.note_check(&workload.key, &old.name, verdict.state.as_str(), &verdict.message);
    }
}

fn parameters(config: &kueue::ProvisioningRequestConfig, workload: &kueue::Workload) -> BTreeMap<String, String> {
    let mut all = config.spec.parameters.clone();
    for (key, value) in workload.metadata.annotations.iter().flatten() {
        if let Some(name) = key.strip_prefix(keys::PROVISIONING_PREFIX) {
            all.insert(name.to_owned(), value.clone());
        }
    }
    all
}

/// Whether a request asks for what the configuration says now.
fn in_sync(
    request: &ProvisioningRequest,
    config: &kueue::ProvisioningRequestConfig,
    workload: &kueue::Workload,
) -> bool {
    request.spec.provisioning_class_name == config.spec.provisioning_class_name
        && parameters(config, workload).iter().all(|(k, v)| request.spec.parameters.get(k) == Some(v))
}

/// What a request means for its check; `None`: nothing.
fn verdict(
    workload: &Workload,
    object: &kueue::Workload,
    check: &CheckStatus,
    config: &kueue::ProvisioningRequestConfig,
    entries: &[Entry],
    attempt: i32,
    request: &ProvisioningRequest,
) -> Option<Verdict> {
    let strategy = config.spec.retry_strategy.as_ref();
    let limit = strategy.and_then(|s| s.backoff_limit_count).unwrap_or(BACKOFF_LIMIT);
    let decided = matches!(check.state, CheckState::Retry | CheckState::Rejected);
    let again = |why: &str, message: &str| {
        if attempt <= limit {
            let mut verdict = Verdict::of(CheckState::Retry, format!("Retrying after {why}: {message}"));
            verdict.requeue_after = Some(backoff(strategy, attempt));
            verdict
        } else {
            Verdict::of(CheckState::Rejected, message)
        }
    };
    if let Some(failed) = holds(request, "Failed") {
        return (!decided).then(|| again("failure", &failed.message));
    }
    if let Some(revoked) = holds(request, "CapacityRevoked") {
        let matters = workload.spec.active && !workload.is_finished() && check.state != CheckState::Rejected;
        return matters.then(|| Verdict::of(CheckState::Rejected, revoked.message.as_str()));
    }
    if let Some(expired) = holds(request, "BookingExpired") {
        // Once the pods run the booking has served.
        return (!workload.is_admitted() && !decided).then(|| again("booking expired", &expired.message));
    }
    if let Some(provisioned) = holds(request, "Provisioned") {
        if check.state == CheckState::Ready {
            return None;
        }
        let mut verdict = Verdict::of(CheckState::Ready, provisioned.message.as_str());
        verdict.updates = updates(object, config, entries, request);
        return Some(verdict);
    }
    if decided || check.state == CheckState::Ready {
        return None;
    }
    // While it is only accepted, what the provider says about the time it will take is passed on.
    let message =
        holds(request, "Accepted").and_then(|_| condition(request, "Provisioned")).map(|c| c.message.as_str());
    Some(Verdict::of(CheckState::Pending, message.unwrap_or_default()))
}

/// What the pods need to use the capacity. Every pod set of a merged entry gets it: all of them run on what was provisioned.
fn updates(
    workload: &kueue::Workload,
    config: &kueue::ProvisioningRequestConfig,
    entries: &[Entry],
    request: &ProvisioningRequest,
) -> Vec<PodSetUpdate> {
    let name: Box<str> = request.metadata.name.as_deref().unwrap_or_default().into();
    let class: Box<str> = request.spec.provisioning_class_name.as_str().into();
    let details = &request.status.provisioning_class_details;
    let selectors = config.spec.pod_set_updates.iter().flat_map(|u| &u.node_selector);
    let node_selector: BTreeMap<Box<str>, Box<str>> = selectors
        .filter_map(|s| {
            let value = details.get(&s.value_from_provisioning_class_detail)?;
            Some((s.key.as_str().into(), value.as_str().into()))
        })
        .collect();
    let mut members: Vec<usize> = entries.iter().flat_map(|e| e.members.iter().copied()).collect();
    members.sort_unstable();
    members
        .into_iter()
        .filter_map(|i| workload.spec.pod_sets.get(i))
        .map(|pod_set| PodSetUpdate {
            name: pod_set.name.as_str().into(),
            annotations: BTreeMap::from([
                (keys::CONSUME_PROVISIONING_REQUEST.into(), name.clone()),
                (keys::PROVISIONING_CLASS_NAME.into(), class.clone()),
            ]),
            node_selector: node_selector.clone(),
            ..PodSetUpdate::default()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_merged_pod_set_is_told_how_to_use_the_capacity() {
        let pod = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"google.com/tpu": "4"}}}]}});
        let workload: kueue::Workload = serde_json::from_value(json!({"spec": {"podSets": [
            {"name": "a", "count": 2, "template": pod},
            {"name": "b", "count": 3, "template": pod}
        ]}}))
        .unwrap();
        let config: kueue::ProvisioningRequestConfig = serde_json::from_value(json!({"spec": {
            "provisioningClassName": "queued-provisioning.gke.io",
            "podSetMergePolicy": "IdenticalPodTemplates"
        }}))
        .unwrap();
        let entries = entries(&workload, &config.spec).unwrap();
        assert_eq!(entries.iter().map(|e| (e.members.clone(), e.count)).collect::<Vec<_>>(), [(vec![0, 1], 5)]);
        let updates = updates(&workload, &config, &entries, &ProvisioningRequest::default());
        assert_eq!(updates.iter().map(|u| &*u.name).collect::<Vec<_>>(), ["a", "b"]);
        assert!(updates.iter().all(|u| u.annotations.contains_key(keys::CONSUME_PROVISIONING_REQUEST)));
    }
}
