//! Node pools and Nodes: what pods can find there.

use slicegate_api::nodepool::NodePool;
use slicegate_api::{Node, convert};
use slicegate_manifest::Document;
use slicegate_tpu::{MachineType, SliceShape, label, taint};
use slicegate_workload::{Labels, PodSpec, Requests, Taint, TaintEffect, first_untolerated};

/// A node pool, or a single Node.
pub(crate) struct Pool<'a> {
    pub(crate) document: &'a Document,
    pub(crate) name: &'a str,
    /// The document, if it is one of a pool.
    pub(crate) object: Option<&'a NodePool>,
    pub(crate) labels: Labels,
    pub(crate) taints: Vec<Taint>,
    pub(crate) machine: Option<MachineType>,
    pub(crate) slice: Option<SliceShape>,
    /// Chips on each node.
    pub(crate) chips: u32,
    /// The most nodes it can have; `None`: not known.
    pub(crate) most_nodes: Option<i64>,
    /// Whether it serves ProvisioningRequests only.
    pub(crate) queued: bool,
    /// What a node has for pods, as far as it says so itself.
    pub(crate) room: Requests,
}

/// Labels that are on the nodes of a pool exactly if its document leads to them.
const TOLD: [&str; 8] = [
    label::NODE_POOL,
    label::ACCELERATOR,
    label::ACCELERATOR_COUNT,
    label::TOPOLOGY,
    label::QUEUED,
    label::FLEX_START,
    label::SPOT,
    INSTANCE_TYPE,
];

const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";

/// Whether a label is of Kubernetes or of Google, which put more on nodes than the document of a pool says.
fn is_given(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let of = |owner: &str| domain.strip_suffix(owner).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    ["kubernetes.io", "k8s.io", "cloud.google.com", "gke.io"].iter().any(|owner| of(owner))
}

fn of_tpu(taint: slicegate_tpu::Taint) -> Taint {
    Taint { key: taint.key.into(), value: taint.value.into(), effect: TaintEffect::NoSchedule }
}

impl<'a> Pool<'a> {
    pub(crate) fn of(document: &'a Document, object: &'a NodePool) -> Self {
        let config = &object.config;
        let machine = config.machine_type.parse::<MachineType>().ok();
        let topology = object.placement_policy.as_ref().and_then(|p| p.tpu_topology.as_deref());
        let slice = machine.and_then(|machine| match topology {
            Some(topology) => SliceShape::parse(machine.name(), topology).ok(),
            None => SliceShape::new(machine, machine.single_host_topology()?).ok(),
        });
        let mut labels = Labels::new();
        let mut put = |key: &str, value: &str| {
            labels.insert(key.into(), value.into());
        };
        put(label::NODE_POOL, &object.name);
        if !config.machine_type.is_empty() {
            put(INSTANCE_TYPE, &config.machine_type);
        }
        let mut taints = Vec::new();
        if let Some(machine) = machine {
            put(label::ACCELERATOR, machine.accelerator().label());
            put(label::ACCELERATOR_COUNT, &machine.chips().to_string());
            if let Some(topology) = slice.map(|s| s.topology().to_string()).or(topology.map(ToOwned::to_owned)) {
                put(label::TOPOLOGY, &topology);
            }
            taints.push(of_tpu(taint::TPU));
        }
        let queued = object.queued_provisioning.as_ref().is_some_and(|q| q.enabled);
        if queued {
            put(label::QUEUED, "true");
            taints.push(of_tpu(taint::QUEUED));
        }
        if config.flex_start == Some(true) {
            put(label::FLEX_START, "true");
        }
        if config.spot == Some(true) {
            put(label::SPOT, "true");
            taints.push(of_tpu(taint::SPOT));
        }
        for (key, value) in &config.labels {
            put(key, value);
        }
        taints.extend(config.taints.iter().map(|t| Taint {
            key: t.key.as_str().into(),
            value: t.value.as_str().into(),
            effect: match t.effect.as_str() {
                "PREFER_NO_SCHEDULE" | "PreferNoSchedule" => TaintEffect::PreferNoSchedule,
                "NO_EXECUTE" | "NoExecute" => TaintEffect::NoExecute,
                _ => TaintEffect::NoSchedule,
            },
        }));
        let zones = i64::try_from(object.locations.len()).unwrap_or(i64::MAX).max(1);
        let by_zone = |n: i32| i64::from(n).saturating_mul(zones);
        let most_nodes = match object.autoscaling.as_ref().filter(|a| a.enabled) {
            Some(a) => a.total_max_node_count.map(i64::from).or(a.max_node_count.map(by_zone)),
            None => object.initial_node_count.map(by_zone),
        };
        let chips = machine.map_or(0, MachineType::chips);
        Self {
            document,
            name: &object.name,
            object: Some(object),
            labels,
            taints,
            machine,
            slice,
            chips,
            most_nodes,
            queued,
            room: Requests::default(),
        }
    }

    pub(crate) fn of_node(document: &'a Document, node: &'a Node) -> Self {
        let labels = node.metadata.labels.iter().flatten().map(|(k, v)| (k.as_str().into(), v.as_str().into()));
        let taints = node.spec.iter().flat_map(|s| s.taints.iter().flatten()).filter_map(|t| convert::taint(t).ok());
        let offers = node.status.as_ref().and_then(|s| s.allocatable.as_ref().or(s.capacity.as_ref()));
        let chips = offers.and_then(|o| o.get(slicegate_tpu::RESOURCE)?.0.parse().ok()).unwrap_or(0);
        let name = super::name(&node.metadata);
        let (labels, taints) = (labels.collect(), taints.collect());
        Self {
            document,
            name,
            object: None,
            labels,
            taints,
            machine: None,
            slice: None,
            chips,
            most_nodes: Some(1),
            queued: false,
            room: convert::node(node).map(|n| n.allocatable).unwrap_or_default(),
        }
    }

    /// Whether labels and taints of its nodes let a pod in. GKE adds the toleration of TPUs to pods that ask for any.
    pub(crate) fn admits(&self, pod: &PodSpec, chips: i64) -> bool {
        self.fits_labels(pod) && self.first_untolerated(pod, chips).is_none()
    }

    /// Whether nothing is known of a label of its nodes.
    pub(crate) fn is_open(&self, key: &str) -> bool {
        let of_node = key.starts_with("topology.kubernetes.io/") || key.starts_with("kubernetes.io/");
        of_node || self.object.is_some() && !self.labels.contains_key(key) && is_given(key) && !TOLD.contains(&key)
    }

    /// Whether the pod's selectors and affinity accept its nodes. What asks for labels of which nothing is known is taken to.
    pub(crate) fn fits_labels(&self, pod: &PodSpec) -> bool {
        let well_known = |key: &str| self.is_open(key);
        let selected = pod.node_selector.iter().all(|(k, v)| well_known(k) || self.labels.get(k) == Some(v));
        let affinity = pod.node_affinity.as_ref();
        let of_host = |a: &slicegate_workload::NodeAffinity| {
            a.required
                .iter()
                .flatten()
                .any(|term| !term.match_fields.is_empty() || term.match_expressions.iter().any(|r| well_known(&r.key)))
        };
        selected && affinity.is_none_or(|a| of_host(a) || a.required_matches(&self.labels, None))
    }

    /// The first taint that keeps a pod away.
    pub(crate) fn first_untolerated(&self, pod: &PodSpec, chips: i64) -> Option<&Taint> {
        let added: Vec<_> = (chips > 0).then(tpu_toleration).into_iter().collect();
        first_untolerated(&self.taints, &[&pod.tolerations, &added])
    }

    /// How many whole slices it holds at most.
    pub(crate) fn slices(&self) -> Option<i64> {
        let slice = self.slice?;
        if slice.is_multi_host() { Some(1) } else { self.most_nodes }
    }
}

/// What GKE adds to pods that ask for TPUs.
pub(crate) fn tpu_toleration() -> slicegate_workload::Toleration {
    slicegate_workload::Toleration {
        key: slicegate_tpu::RESOURCE.into(),
        operator: slicegate_workload::TolerationOperator::Exists,
        ..slicegate_workload::Toleration::default()
    }
}
