//! Kubernetes objects as JSON to the types of `slicegate-workload`.
//!
//! Kueue's objects are of `kueue.x-k8s.io/v1beta2`. They need not have gone through defaulting: an absent field has the
//! default of its CRD. A field of the wrong type or an unknown word is an error that names the field; unknown fields are
//! ignored.

use std::collections::BTreeMap;

use serde_json::Value;
use slicegate_quota::{Quantity, Weight};
use slicegate_workload::{
    Admission, AdmissionCheckRule, BorrowWithinCohort, CheckState, CheckStatus, ClusterQueueSpec, CohortSpec,
    Condition, Conditions, Container, EncodedAssignment, EncodedCounts, EncodedSlice, EncodedValues, EvictionCount,
    FlavorFungibility, FlavorQuotas, FlavorSpec, FungibilityPolicy, FungibilityPreference, GatePosition, Key,
    LabelSelector, LimitRange, LimitRangeItem, LimitType, LocalQueueSpec, NodeAffinity, Operator, PodSet,
    PodSetAssignment, PodSetRequests, PodSetUpdate, PodSpec, PodSpecOpaque, PreemptionGate, PreemptionPolicy,
    PreferredTerm, QueueingStrategy, ReclaimPolicy, ReclaimablePods, RequeueState, Requirement, ResourceGroup,
    ResourceList, ResourceQuota, Resources, SelectorTerm, Status, StopPolicy, Taint, TaintEffect, Timestamp,
    Toleration, TolerationOperator, TopologyAssignment, TopologyConstraint, TopologyRequest, TopologySpec,
    WithinClusterQueuePolicy, Workload, WorkloadSpec, WorkloadStatus,
};

/// A field that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct ObjectError {
    /// Where.
    pub path: String,
    /// What is wrong.
    pub problem: String,
}

type Result<T> = std::result::Result<T, ObjectError>;

/// A value with its path. Absent is the same as null.
#[derive(Clone)]
struct At<'a> {
    value: &'a Value,
    path: String,
}

impl<'a> At<'a> {
    fn root(value: &'a Value) -> Self {
        Self { value, path: value["kind"].as_str().unwrap_or("object").to_owned() }
    }

    fn get(&self, key: &str) -> Self {
        Self { value: &self.value[key], path: format!("{}.{key}", self.path) }
    }

    fn is_absent(&self) -> bool {
        self.value.is_null()
    }

    fn present(&self) -> Option<&Self> {
        (!self.is_absent()).then_some(self)
    }

    fn error<T>(&self, problem: impl Into<String>) -> Result<T> {
        Err(ObjectError { path: self.path.clone(), problem: problem.into() })
    }

    fn opt_str(&self) -> Result<Option<&'a str>> {
        match self.value {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text)),
            other => self.error(format!("{other} is not a text")),
        }
    }

    fn string(&self) -> Result<Box<str>> {
        Ok(self.opt_str()?.unwrap_or_default().into())
    }

    fn opt_string(&self) -> Result<Option<Box<str>>> {
        Ok(self.opt_str()?.map(Into::into))
    }

    fn opt_i64(&self) -> Result<Option<i64>> {
        match self.value {
            Value::Null => Ok(None),
            value => value.as_i64().map_or_else(|| self.error(format!("{value} is not an integer")), |n| Ok(Some(n))),
        }
    }

    fn opt_i32(&self) -> Result<Option<i32>> {
        self.opt_i64()?.map(i32::try_from).transpose().or_else(|_| self.error("does not fit 32 bits"))
    }

    fn i32(&self) -> Result<i32> {
        Ok(self.opt_i32()?.unwrap_or_default())
    }

    fn opt_bool(&self) -> Result<Option<bool>> {
        match self.value {
            Value::Null => Ok(None),
            Value::Bool(b) => Ok(Some(*b)),
            other => self.error(format!("{other} is neither true nor false")),
        }
    }

    fn list<T>(&self, item: impl Fn(&At<'a>) -> Result<T>) -> Result<Vec<T>> {
        match self.value {
            Value::Null => Ok(Vec::new()),
            Value::Array(items) => items
                .iter()
                .enumerate()
                .map(|(i, value)| item(&At { value, path: format!("{}[{i}]", self.path) }))
                .collect(),
            other => self.error(format!("{other} is not a list")),
        }
    }

    fn map<T>(&self, item: impl Fn(&At<'a>) -> Result<T>) -> Result<BTreeMap<Box<str>, T>> {
        match self.value {
            Value::Null => Ok(BTreeMap::new()),
            Value::Object(fields) => {
                fields.keys().map(|key| Ok((key.as_str().into(), item(&self.get(key))?))).collect()
            }
            other => self.error(format!("{other} is not an object")),
        }
    }

    fn strings(&self) -> Result<Vec<Box<str>>> {
        self.list(Self::string)
    }

    fn string_map(&self) -> Result<BTreeMap<Box<str>, Box<str>>> {
        self.map(Self::string)
    }

    fn names(&self) -> Result<Vec<Box<str>>> {
        self.list(|item| item.get("name").string())
    }

    fn opt_quantity(&self) -> Result<Option<Quantity>> {
        let text = match self.value {
            Value::Null => return Ok(None),
            Value::String(text) => text.trim().to_owned(),
            Value::Number(number) => number.to_string(),
            other => return self.error(format!("{other} is not a quantity")),
        };
        match text.parse() {
            Ok(quantity) => Ok(Some(quantity)),
            Err(e) => self.error(slicegate_quota::ParseQuantityError::to_string(&e)),
        }
    }

    fn quantity(&self) -> Result<Quantity> {
        Ok(self.opt_quantity()?.unwrap_or_default())
    }

    fn resource_list(&self) -> Result<ResourceList> {
        self.map(Self::quantity)
    }

    fn opt_time(&self) -> Result<Option<Timestamp>> {
        let Some(text) = self.opt_str()? else { return Ok(None) };
        match text.parse::<jiff::Timestamp>() {
            Ok(time) => Ok(Some(Timestamp::from_micros(time.as_microsecond()))),
            Err(e) => self.error(format!("{text:?} is not a time: {e}")),
        }
    }

    fn time(&self) -> Result<Timestamp> {
        Ok(self.opt_time()?.unwrap_or(Timestamp::MIN))
    }

    /// One of several words; absent and empty are the first of them.
    fn word<T: Copy>(&self, words: &[(&str, T)]) -> Result<T> {
        let text = self.opt_str()?.unwrap_or_default();
        let found = words.iter().find(|(w, _)| *w == text).or(if text.is_empty() { words.first() } else { None });
        if let Some((_, value)) = found {
            return Ok(*value);
        }
        let known: Vec<&str> = words.iter().map(|(w, _)| *w).collect();
        self.error(format!("{text:?} is none of {}", known.join(", ")))
    }

    fn weight(&self) -> Result<Weight> {
        let Some(quantity) = self.get("weight").opt_quantity()? else { return Ok(Weight::default()) };
        let nanos = u64::try_from(quantity.nanos().max(0)).unwrap_or(u64::MAX);
        Ok(Weight::from_nanos(nanos))
    }

    /// The value as text that is the same for equal values, empty if absent.
    fn canonical(&self) -> Box<str> {
        fn write(value: &Value, out: &mut String) {
            match value {
                Value::Array(items) => {
                    out.push('[');
                    for item in items {
                        write(item, out);
                        out.push(',');
                    }
                    out.push(']');
                }
                Value::Object(fields) => {
                    let sorted: BTreeMap<&String, &Value> = fields.iter().filter(|(_, v)| !v.is_null()).collect();
                    out.push('{');
                    for (key, value) in sorted {
                        out.push_str(&Value::from(key.as_str()).to_string());
                        out.push(':');
                        write(value, out);
                        out.push(',');
                    }
                    out.push('}');
                }
                other => out.push_str(&other.to_string()),
            }
        }
        let mut out = String::new();
        if !self.is_absent() {
            write(self.value, &mut out);
        }
        out.into()
    }
}

/// `metadata.name`.
pub fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// `metadata.namespace` and `metadata.name`.
pub fn key_of(object: &Value) -> Key {
    Key::new(object["metadata"]["namespace"].as_str().unwrap_or_default(), name_of(object))
}

/// The objects of a kind, in order.
pub fn of_kind<'a>(objects: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> + 'a {
    objects.as_array().into_iter().flatten().filter(move |o| o["kind"] == kind)
}

/// A text as a point in time.
///
/// # Errors
/// If it is not an RFC 3339 time.
pub fn timestamp(value: &Value) -> Result<Timestamp> {
    At { value, path: "time".to_owned() }.time()
}

/// A ResourceList.
///
/// # Errors
/// If it is not an object of quantities.
pub fn resource_list(value: &Value) -> Result<ResourceList> {
    At { value, path: "resources".to_owned() }.resource_list()
}

/// A Workload.
///
/// # Errors
/// If a field cannot be read.
pub fn workload(object: &Value) -> Result<Workload> {
    let at = At::root(object);
    let meta = at.get("metadata");
    let owners = meta.get("ownerReferences").list(|o| Ok(o.value["kind"] == "Pod" && o.value["apiVersion"] == "v1"))?;
    let variants = meta.get("ownerReferences").list(|o| {
        let of_workload = o.value["kind"] == "Workload" && o.value["controller"] == true;
        of_workload.then(|| o.get("uid").string()).transpose()
    })?;
    Ok(Workload {
        key: key_of(object),
        uid: meta.get("uid").string()?,
        created: meta.get("creationTimestamp").time()?,
        generation: meta.get("generation").opt_i64()?.unwrap_or_default(),
        labels: meta.get("labels").string_map()?,
        annotations: meta.get("annotations").string_map()?,
        owned_by_pod: owners == [true],
        variant_of: variants.into_iter().flatten().next(),
        deleting: !meta.get("deletionTimestamp").is_absent(),
        spec: workload_spec(&at.get("spec"))?,
        status: workload_status(&at.get("status"))?,
    })
}

fn workload_spec(at: &At<'_>) -> Result<WorkloadSpec> {
    let class = at.get("priorityClassRef");
    let priority_class = match class.present() {
        None => Box::default(),
        Some(class) => {
            format!("{}/{}/{}", class.get("group").string()?, class.get("kind").string()?, class.get("name").string()?)
                .into()
        }
    };
    Ok(WorkloadSpec {
        queue_name: at.get("queueName").string()?,
        pod_sets: at.get("podSets").list(pod_set)?,
        priority: at.get("priority").i32()?,
        priority_class,
        active: at.get("active").opt_bool()?.unwrap_or(true),
        maximum_execution_time_seconds: at.get("maximumExecutionTimeSeconds").opt_i32()?,
        preemption_gates: at.get("preemptionGates").names()?,
    })
}

fn pod_set(at: &At<'_>) -> Result<PodSet> {
    let request = at.get("topologyRequest");
    Ok(PodSet {
        name: at.get("name").string()?,
        count: at.get("count").i32()?,
        min_count: at.get("minCount").opt_i32()?,
        pod: pod_spec_at(&at.get("template").get("spec"))?,
        topology_request: request.present().map(topology_request).transpose()?,
    })
}

fn topology_request(at: &At<'_>) -> Result<TopologyRequest> {
    Ok(TopologyRequest {
        required: at.get("required").opt_string()?,
        preferred: at.get("preferred").opt_string()?,
        unconstrained: at.get("unconstrained").opt_bool()?,
        pod_index_label: at.get("podIndexLabel").opt_string()?,
        sub_group_index_label: at.get("subGroupIndexLabel").opt_string()?,
        sub_group_count: at.get("subGroupCount").opt_i32()?,
        pod_set_group_name: at.get("podSetGroupName").opt_string()?,
        slice_required_topology: at.get("podSetSliceRequiredTopology").opt_string()?,
        slice_size: at.get("podSetSliceSize").opt_i32()?,
        slice_constraints: at
            .get("podsetSliceRequiredTopologyConstraints")
            .list(|c| Ok(TopologyConstraint { topology: c.get("topology").string()?, size: c.get("size").i32()? }))?,
    })
}

/// The `spec` of a pod.
///
/// # Errors
/// If a field cannot be read.
pub fn pod_spec(value: &Value) -> Result<PodSpec> {
    pod_spec_at(&At { value, path: "podSpec".to_owned() })
}

fn pod_spec_at(at: &At<'_>) -> Result<PodSpec> {
    let affinity = at.get("affinity");
    let node_affinity = affinity.get("nodeAffinity");
    let resources = at.get("resources");
    Ok(PodSpec {
        init_containers: at.get("initContainers").list(container)?,
        containers: at.get("containers").list(container)?,
        resources: resources.present().map(resources_at).transpose()?,
        overhead: at.get("overhead").resource_list()?,
        runtime_class: at.get("runtimeClassName").opt_string()?,
        node_selector: at.get("nodeSelector").string_map()?,
        node_affinity: node_affinity.present().map(node_affinity_at).transpose()?,
        tolerations: at.get("tolerations").list(toleration)?,
        priority: at.get("priority").opt_i32()?,
        opaque: PodSpecOpaque {
            affinity: affinity.canonical(),
            topology_spread_constraints: at.get("topologySpreadConstraints").canonical(),
            resource_claims: at.get("resourceClaims").canonical(),
        },
    })
}

fn container(at: &At<'_>) -> Result<Container> {
    Ok(Container {
        name: at.get("name").string()?,
        resources: resources_at(&at.get("resources"))?,
        restart_always: at.get("restartPolicy").opt_str()? == Some("Always"),
        ports: at.get("ports").canonical(),
    })
}

fn resources_at(at: &At<'_>) -> Result<Resources> {
    Ok(Resources { requests: at.get("requests").resource_list()?, limits: at.get("limits").resource_list()? })
}

fn node_affinity_at(at: &At<'_>) -> Result<NodeAffinity> {
    let required = at.get("requiredDuringSchedulingIgnoredDuringExecution");
    Ok(NodeAffinity {
        required: required.present().map(|r| r.get("nodeSelectorTerms").list(selector_term)).transpose()?,
        preferred: at.get("preferredDuringSchedulingIgnoredDuringExecution").list(|p| {
            Ok(PreferredTerm { weight: p.get("weight").i32()?, term: selector_term(&p.get("preference"))? })
        })?,
    })
}

fn selector_term(at: &At<'_>) -> Result<SelectorTerm> {
    Ok(SelectorTerm {
        match_expressions: at.get("matchExpressions").list(requirement)?,
        match_fields: at.get("matchFields").list(requirement)?,
    })
}

fn requirement(at: &At<'_>) -> Result<Requirement> {
    Ok(Requirement {
        key: at.get("key").string()?,
        operator: at.get("operator").word(&[
            ("In", Operator::In),
            ("NotIn", Operator::NotIn),
            ("Exists", Operator::Exists),
            ("DoesNotExist", Operator::DoesNotExist),
            ("Gt", Operator::Gt),
            ("Lt", Operator::Lt),
        ])?,
        values: at.get("values").strings()?,
    })
}

fn taint_effect(at: &At<'_>) -> Result<TaintEffect> {
    at.word(&[
        ("NoSchedule", TaintEffect::NoSchedule),
        ("PreferNoSchedule", TaintEffect::PreferNoSchedule),
        ("NoExecute", TaintEffect::NoExecute),
    ])
}

fn taint(at: &At<'_>) -> Result<Taint> {
    Ok(Taint {
        key: at.get("key").string()?,
        value: at.get("value").string()?,
        effect: taint_effect(&at.get("effect"))?,
    })
}

fn toleration(at: &At<'_>) -> Result<Toleration> {
    let effect = at.get("effect");
    Ok(Toleration {
        key: at.get("key").string()?,
        operator: at.get("operator").word(&[
            ("Equal", TolerationOperator::Equal),
            ("Exists", TolerationOperator::Exists),
            ("Lt", TolerationOperator::Lt),
            ("Gt", TolerationOperator::Gt),
        ])?,
        value: at.get("value").string()?,
        effect: match effect.opt_str()? {
            None | Some("") => None,
            Some(_) => Some(taint_effect(&effect)?),
        },
        seconds: at.get("tolerationSeconds").opt_i64()?,
    })
}

/// A list of conditions, such as `status.conditions`.
///
/// # Errors
/// If a field cannot be read.
pub fn conditions(value: &Value) -> Result<Conditions> {
    conditions_at(&At { value, path: "conditions".to_owned() })
}

fn conditions_at(at: &At<'_>) -> Result<Conditions> {
    Ok(at
        .list(|c| {
            Ok(Condition {
                kind: c.get("type").opt_str()?.unwrap_or_default().into(),
                status: c.get("status").word(&[
                    ("Unknown", Status::Unknown),
                    ("True", Status::True),
                    ("False", Status::False),
                ])?,
                reason: c.get("reason").string()?,
                message: c.get("message").string()?,
                last_transition: c.get("lastTransitionTime").time()?,
                observed_generation: c.get("observedGeneration").opt_i64()?.unwrap_or_default(),
            })
        })?
        .into_iter()
        .collect())
}

fn workload_status(at: &At<'_>) -> Result<WorkloadStatus> {
    let (admission, requeue) = (at.get("admission"), at.get("requeueState"));
    Ok(WorkloadStatus {
        admission: admission.present().map(admission_at).transpose()?,
        conditions: conditions_at(&at.get("conditions"))?,
        admission_checks: at.get("admissionChecks").list(check_status)?,
        requeue_state: requeue
            .present()
            .map(|r| Ok(RequeueState { count: r.get("count").opt_i32()?, requeue_at: r.get("requeueAt").opt_time()? }))
            .transpose()?,
        reclaimable_pods: reclaimable_pods_at(&at.get("reclaimablePods"))?,
        resource_requests: at.get("resourceRequests").list(|r| {
            Ok(PodSetRequests { name: r.get("name").string()?, resources: r.get("resources").resource_list()? })
        })?,
        accumulated_past_execution_time_seconds: at.get("accumulatedPastExecutionTimeSeconds").opt_i32()?,
        evictions: at.get("schedulingStats").get("evictions").list(|e| {
            Ok(EvictionCount {
                reason: e.get("reason").string()?,
                underlying_cause: e.get("underlyingCause").string()?,
                count: e.get("count").i32()?,
            })
        })?,
        unhealthy_nodes: at.get("unhealthyNodes").names()?,
        cluster_name: at.get("clusterName").opt_string()?,
        nominated_cluster_names: at.get("nominatedClusterNames").strings()?,
        preemption_gates: at.get("preemptionGates").list(|g| {
            Ok(PreemptionGate {
                name: g.get("name").string()?,
                position: g.get("position").word(&[("Closed", GatePosition::Closed), ("Open", GatePosition::Open)])?,
                last_transition: g.get("lastTransitionTime").time()?,
            })
        })?,
    })
}

/// A list of reclaimable pods.
///
/// # Errors
/// If a field cannot be read.
pub fn reclaimable_pods(value: &Value) -> Result<Vec<ReclaimablePods>> {
    reclaimable_pods_at(&At { value, path: "reclaimablePods".to_owned() })
}

fn reclaimable_pods_at(at: &At<'_>) -> Result<Vec<ReclaimablePods>> {
    at.list(|r| Ok(ReclaimablePods { name: r.get("name").string()?, count: r.get("count").i32()? }))
}

fn check_status(at: &At<'_>) -> Result<CheckStatus> {
    Ok(CheckStatus {
        name: at.get("name").string()?,
        state: at.get("state").word(&[
            ("Pending", CheckState::Pending),
            ("Ready", CheckState::Ready),
            ("Retry", CheckState::Retry),
            ("Rejected", CheckState::Rejected),
        ])?,
        last_transition: at.get("lastTransitionTime").time()?,
        message: at.get("message").string()?,
        requeue_after_seconds: at.get("requeueAfterSeconds").opt_i32()?,
        retry_count: at.get("retryCount").opt_i32()?,
        pod_set_updates: at.get("podSetUpdates").list(|u| {
            Ok(PodSetUpdate {
                name: u.get("name").string()?,
                labels: u.get("labels").string_map()?,
                annotations: u.get("annotations").string_map()?,
                node_selector: u.get("nodeSelector").string_map()?,
                tolerations: u.get("tolerations").list(toleration)?,
            })
        })?,
    })
}

/// An Admission, such as `status.admission`.
///
/// # Errors
/// If a field cannot be read.
pub fn admission(value: &Value) -> Result<Admission> {
    admission_at(&At { value, path: "admission".to_owned() })
}

fn admission_at(at: &At<'_>) -> Result<Admission> {
    Ok(Admission {
        cluster_queue: at.get("clusterQueue").string()?,
        pod_set_assignments: at.get("podSetAssignments").list(pod_set_assignment)?,
    })
}

fn pod_set_assignment(at: &At<'_>) -> Result<PodSetAssignment> {
    let (topology, delayed) = (at.get("topologyAssignment"), at.get("delayedTopologyRequest"));
    Ok(PodSetAssignment {
        name: at.get("name").string()?,
        flavors: at.get("flavors").string_map()?,
        resource_usage: at.get("resourceUsage").resource_list()?,
        count: at.get("count").opt_i32()?,
        topology_assignment: topology.present().map(topology_assignment_at).transpose()?,
        delayed_topology_pending: match delayed.opt_str()? {
            None => None,
            Some(_) => Some(delayed.word(&[("Pending", true), ("Ready", false)])?),
        },
    })
}

/// A topology assignment in its compact form.
///
/// # Errors
/// If a field cannot be read.
pub fn encoded_assignment(value: &Value) -> Result<EncodedAssignment> {
    encoded_assignment_at(&At { value, path: "topologyAssignment".to_owned() })
}

/// A topology assignment, decoded.
///
/// # Errors
/// If a field cannot be read or a list is too short.
pub fn topology_assignment(value: &Value) -> Result<TopologyAssignment> {
    topology_assignment_at(&At { value, path: "topologyAssignment".to_owned() })
}

fn topology_assignment_at(at: &At<'_>) -> Result<TopologyAssignment> {
    encoded_assignment_at(at)?.decode().or_else(|e| at.error(e.to_string()))
}

fn encoded_assignment_at(at: &At<'_>) -> Result<EncodedAssignment> {
    Ok(EncodedAssignment {
        levels: at.get("levels").strings()?,
        slices: at.get("slices").list(|s| {
            let counts = s.get("podCounts");
            Ok(EncodedSlice {
                domain_count: s.get("domainCount").i32()?,
                values_per_level: s.get("valuesPerLevel").list(|v| {
                    let individual = v.get("individual");
                    if let Some(value) = v.get("universal").opt_string()? {
                        return Ok(EncodedValues::Universal(value));
                    }
                    Ok(EncodedValues::Individual {
                        prefix: individual.get("prefix").string()?,
                        suffix: individual.get("suffix").string()?,
                        roots: individual.get("roots").strings()?,
                    })
                })?,
                pod_counts: match counts.get("universal").opt_i32()? {
                    Some(count) => EncodedCounts::Universal(count),
                    None => EncodedCounts::Individual(counts.get("individual").list(At::i32)?),
                },
            })
        })?,
    })
}

fn label_selector(at: &At<'_>) -> Result<LabelSelector> {
    Ok(LabelSelector {
        match_labels: at.get("matchLabels").string_map()?,
        match_expressions: at.get("matchExpressions").list(requirement)?,
    })
}

fn stop_policy(at: &At<'_>) -> Result<StopPolicy> {
    at.word(&[("None", StopPolicy::None), ("Hold", StopPolicy::Hold), ("HoldAndDrain", StopPolicy::HoldAndDrain)])
}

fn resource_groups(at: &At<'_>) -> Result<Vec<ResourceGroup>> {
    at.list(|g| {
        Ok(ResourceGroup {
            covered_resources: g.get("coveredResources").strings()?,
            flavors: g.get("flavors").list(|f| {
                Ok(FlavorQuotas {
                    name: f.get("name").string()?,
                    resources: f.get("resources").list(|r| {
                        let quota = ResourceQuota {
                            nominal: r.get("nominalQuota").quantity()?,
                            borrowing_limit: r.get("borrowingLimit").opt_quantity()?,
                            lending_limit: r.get("lendingLimit").opt_quantity()?,
                        };
                        Ok((r.get("name").string()?, quota))
                    })?,
                })
            })?,
        })
    })
}

fn preemption(at: &At<'_>) -> Result<PreemptionPolicy> {
    let borrow = at.get("borrowWithinCohort");
    Ok(PreemptionPolicy {
        reclaim_within_cohort: at.get("reclaimWithinCohort").word(&[
            ("Never", ReclaimPolicy::Never),
            ("LowerPriority", ReclaimPolicy::LowerPriority),
            ("Any", ReclaimPolicy::Any),
        ])?,
        within_cluster_queue: at.get("withinClusterQueue").word(&[
            ("Never", WithinClusterQueuePolicy::Never),
            ("LowerPriority", WithinClusterQueuePolicy::LowerPriority),
            ("LowerOrNewerEqualPriority", WithinClusterQueuePolicy::LowerOrNewerEqualPriority),
        ])?,
        borrow_within_cohort: borrow
            .present()
            .map(|b| {
                Ok(BorrowWithinCohort {
                    lower_priority: b.get("policy").word(&[("Never", false), ("LowerPriority", true)])?,
                    max_priority_threshold: b.get("maxPriorityThreshold").opt_i32()?,
                })
            })
            .transpose()?,
    })
}

fn flavor_fungibility(at: &At<'_>) -> Result<FlavorFungibility> {
    // The older words `Borrow` and `Preempt` mean the same as `MayStopSearch`.
    let stop = FungibilityPolicy::MayStopSearch;
    let next = FungibilityPolicy::TryNextFlavor;
    Ok(FlavorFungibility {
        when_can_borrow: at.get("whenCanBorrow").word(&[
            ("MayStopSearch", stop),
            ("TryNextFlavor", next),
            ("Borrow", stop),
        ])?,
        when_can_preempt: at.get("whenCanPreempt").word(&[
            ("TryNextFlavor", next),
            ("MayStopSearch", stop),
            ("Preempt", stop),
        ])?,
        preference: at.get("preference").word(&[
            ("BorrowingOverPreemption", FungibilityPreference::BorrowingOverPreemption),
            ("PreemptionOverBorrowing", FungibilityPreference::PreemptionOverBorrowing),
        ])?,
    })
}

/// A ClusterQueue.
///
/// # Errors
/// If a field cannot be read.
pub fn cluster_queue(object: &Value) -> Result<ClusterQueueSpec> {
    let at = At::root(object);
    let spec = at.get("spec");
    let (selector, concurrent) = (spec.get("namespaceSelector"), spec.get("concurrentAdmissionPolicy"));
    Ok(ClusterQueueSpec {
        name: name_of(object).into(),
        resource_groups: resource_groups(&spec.get("resourceGroups"))?,
        cohort: spec.get("cohortName").opt_string()?.filter(|c| !c.is_empty()),
        queueing_strategy: spec.get("queueingStrategy").word(&[
            ("BestEffortFIFO", QueueingStrategy::BestEffortFifo),
            ("StrictFIFO", QueueingStrategy::StrictFifo),
        ])?,
        namespace_selector: selector.present().map(label_selector).transpose()?,
        flavor_fungibility: flavor_fungibility(&spec.get("flavorFungibility"))?,
        preemption: preemption(&spec.get("preemption"))?,
        admission_checks: spec.get("admissionChecksStrategy").get("admissionChecks").list(|c| {
            Ok(AdmissionCheckRule { name: c.get("name").string()?, on_flavors: c.get("onFlavors").strings()? })
        })?,
        stop_policy: stop_policy(&spec.get("stopPolicy"))?,
        fair_weight: spec.get("fairSharing").weight()?,
        usage_based_fair_sharing: spec
            .get("admissionScope")
            .get("admissionMode")
            .word(&[("NoAdmissionFairSharing", false), ("UsageBasedAdmissionFairSharing", true)])?,
        concurrent_admission: concurrent
            .present()
            .map(|c| c.get("migration").get("constraints").get("lastAcceptableFlavorName").opt_string())
            .transpose()?,
        deleting: !at.get("metadata").get("deletionTimestamp").is_absent(),
        generation: at.get("metadata").get("generation").opt_i64()?.unwrap_or_default(),
    })
}

/// A Cohort.
///
/// # Errors
/// If a field cannot be read.
pub fn cohort(object: &Value) -> Result<CohortSpec> {
    let spec = At::root(object).get("spec");
    Ok(CohortSpec {
        name: name_of(object).into(),
        parent: spec.get("parentName").opt_string()?.filter(|p| !p.is_empty()),
        resource_groups: resource_groups(&spec.get("resourceGroups"))?,
        fair_weight: spec.get("fairSharing").weight()?,
    })
}

/// A LocalQueue.
///
/// # Errors
/// If a field cannot be read.
pub fn local_queue(object: &Value) -> Result<LocalQueueSpec> {
    let at = At::root(object);
    let spec = at.get("spec");
    Ok(LocalQueueSpec {
        key: key_of(object),
        cluster_queue: spec.get("clusterQueue").string()?,
        stop_policy: stop_policy(&spec.get("stopPolicy"))?,
        fair_weight: spec.get("fairSharing").weight()?,
        deleting: !at.get("metadata").get("deletionTimestamp").is_absent(),
    })
}

/// A ResourceFlavor.
///
/// # Errors
/// If a field cannot be read.
pub fn flavor(object: &Value) -> Result<FlavorSpec> {
    let spec = At::root(object).get("spec");
    Ok(FlavorSpec {
        name: name_of(object).into(),
        node_labels: spec.get("nodeLabels").string_map()?,
        node_taints: spec.get("nodeTaints").list(taint)?,
        tolerations: spec.get("tolerations").list(toleration)?,
        topology: spec.get("topologyName").opt_string()?,
    })
}

/// A Topology.
///
/// # Errors
/// If a field cannot be read.
pub fn topology(object: &Value) -> Result<TopologySpec> {
    let levels = At::root(object).get("spec").get("levels").list(|l| l.get("nodeLabel").string())?;
    Ok(TopologySpec { name: name_of(object).into(), levels })
}

/// A LimitRange.
///
/// # Errors
/// If a field cannot be read.
pub fn limit_range(object: &Value) -> Result<LimitRange> {
    let limits = At::root(object).get("spec").get("limits").list(|item| {
        let kind = match item.get("type").opt_str()?.unwrap_or_default() {
            "Container" => LimitType::Container,
            "Pod" => LimitType::Pod,
            other => LimitType::Other(other.into()),
        };
        Ok((kind, limit_range_item_at(item)?))
    })?;
    Ok(LimitRange { limits })
}

/// An item of a LimitRange.
///
/// # Errors
/// If a field cannot be read.
pub fn limit_range_item(value: &Value) -> Result<LimitRangeItem> {
    limit_range_item_at(&At { value, path: "limits".to_owned() })
}

fn limit_range_item_at(at: &At<'_>) -> Result<LimitRangeItem> {
    Ok(LimitRangeItem {
        max: at.get("max").resource_list()?,
        min: at.get("min").resource_list()?,
        default: at.get("default").resource_list()?,
        default_request: at.get("defaultRequest").resource_list()?,
        max_limit_request_ratio: at.get("maxLimitRequestRatio").resource_list()?,
    })
}

/// The overheads by RuntimeClass name, of the RuntimeClass objects that have one.
///
/// # Errors
/// If a field cannot be read.
pub fn runtime_class_overheads(objects: &Value) -> Result<BTreeMap<Box<str>, ResourceList>> {
    of_kind(objects, "RuntimeClass")
        .map(|o| Ok((name_of(o).into(), At::root(o).get("overhead").get("podFixed").resource_list()?)))
        .collect()
}
