//! Node pools and their nodes.

use std::collections::{BTreeMap, BTreeSet};

use kube::api::PostParams;
use serde_json::{Value, json};
use slicegate_tpu::{SliceShape, Taint, label, node_labels, taint};
use tokio::time::Instant;

use crate::api::{LEASES, NODES, items, text};
use crate::error::{Context as _, Result};
use crate::gke::{Shared, now};

/// What the nodes of a pool are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Hosts of a TPU slice. A pool of a multi-host slice has all of its hosts or none.
    Tpu(SliceShape),
    /// Ordinary machines: vCPUs and memory in GiB.
    Cpu(u32, u32),
}

/// A node pool.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// What its nodes are.
    pub shape: Shape,
    /// How many nodes it has at first.
    pub initial: u32,
    /// Up to how many nodes it grows by itself; `None`: it stays as it is.
    pub autoscaled: Option<u32>,
    /// Whether nodes come by ProvisioningRequest only.
    pub queued: bool,
    /// Further labels of its nodes.
    pub labels: BTreeMap<String, String>,
}

impl Pool {
    /// One TPU slice, there from the beginning: `Pool::tpu("pool", "ct5lp-hightpu-4t", "2x4")`.
    ///
    /// # Errors
    /// If there is no such slice.
    pub fn tpu(name: &str, machine_type: &str, topology: &str) -> Result<Self> {
        let slice = SliceShape::parse(machine_type, topology)?;
        Ok(Self::new(name, Shape::Tpu(slice), slice.hosts()))
    }

    /// Ordinary machines, there from the beginning.
    pub fn cpu(name: &str, nodes: u32, vcpus: u32, gib: u32) -> Self {
        Self::new(name, Shape::Cpu(vcpus, gib), nodes)
    }

    fn new(name: &str, shape: Shape, initial: u32) -> Self {
        let labels = BTreeMap::new();
        Self { name: name.to_owned(), shape, initial, autoscaled: None, queued: false, labels }
    }

    /// Without nodes until pods need them, and again when none runs there.
    #[must_use]
    pub fn from_zero(mut self) -> Self {
        self.autoscaled = Some(self.initial);
        self.initial = 0;
        self
    }

    /// Without nodes until a ProvisioningRequest is answered.
    #[must_use]
    pub fn queued(self) -> Self {
        Self { queued: true, ..self.from_zero() }
    }

    /// With one more label on its nodes.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// How many nodes come and go together.
    pub(crate) fn step(&self) -> u32 {
        match self.shape {
            Shape::Tpu(slice) if slice.hosts() > 1 => slice.hosts(),
            _ => 1,
        }
    }

    /// The labels of its nodes.
    pub(crate) fn node_labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.labels.clone();
        match self.shape {
            Shape::Tpu(slice) => labels.extend(node_labels(slice, &self.name).map(|(k, v)| (k.to_owned(), v))),
            Shape::Cpu(..) => drop(labels.insert(label::NODE_POOL.to_owned(), self.name.clone())),
        }
        if self.queued {
            labels.insert(label::QUEUED.to_owned(), "true".to_owned());
        }
        labels
    }

    fn taints(&self) -> Vec<Taint> {
        let tpu = matches!(self.shape, Shape::Tpu(_)).then_some(taint::TPU);
        tpu.into_iter().chain(self.queued.then_some(taint::QUEUED)).collect()
    }

    /// Whether a pod with this spec could run on its nodes, were there any.
    pub(crate) fn suits(&self, spec: &Value) -> bool {
        let labels = self.node_labels();
        let selector = spec.get("nodeSelector").and_then(Value::as_object);
        let selected = selector.into_iter().flatten().all(|(key, value)| {
            // Set when the nodes come.
            key == label::PROVISIONING_REQUEST || labels.get(key).map(String::as_str) == value.as_str()
        });
        let chips = requested_chips(spec);
        let enough = match self.shape {
            Shape::Tpu(slice) => chips == u64::from(slice.chips_per_host()),
            Shape::Cpu(..) => chips == 0,
        };
        selected && enough && self.taints().iter().all(|t| t.key == taint::TPU.key || tolerates(spec, t))
    }

    fn node(&self, name: &str, more: &BTreeMap<String, String>) -> Value {
        let mut labels = self.node_labels();
        labels.insert("kubernetes.io/hostname".to_owned(), name.to_owned());
        labels.extend(more.clone());
        let taints: Vec<Value> =
            self.taints().iter().map(|t| json!({"key": t.key, "value": t.value, "effect": t.effect})).collect();
        let mut capacity = match self.shape {
            Shape::Tpu(slice) => {
                let machine = slice.machine_type();
                let chips = slice.chips_per_host().to_string();
                json!({"cpu": machine.vcpus().to_string(), "memory": format!("{}Gi", machine.memory_gb()),
                    "google.com/tpu": chips})
            }
            Shape::Cpu(vcpus, gib) => json!({"cpu": vcpus.to_string(), "memory": format!("{gib}Gi")}),
        };
        capacity["pods"] = "110".into();
        capacity["ephemeral-storage"] = "100Gi".into();
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "spec": {"taints": taints},
            "status": {"capacity": capacity, "allocatable": capacity, "conditions": [ready()],
                "addresses": [{"type": "Hostname", "address": name}]}})
    }
}

/// The condition of a node that works.
fn ready() -> Value {
    json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "played",
        "lastHeartbeatTime": now(), "lastTransitionTime": now()})
}

/// How many chips the containers of a pod ask for.
fn requested_chips(spec: &Value) -> u64 {
    let of = |container: &Value| {
        let amount = |part: &str| text(container, &format!("/resources/{part}/google.com~1tpu")).parse::<u64>().ok();
        amount("requests")
            .or_else(|| amount("limits"))
            .or_else(|| container.pointer("/resources/limits/google.com~1tpu").and_then(Value::as_u64))
    };
    items(spec, "/containers").iter().filter_map(of).sum()
}

fn tolerates(spec: &Value, taint: &Taint) -> bool {
    items(spec, "/tolerations").iter().any(|t| {
        let (key, value, effect) = (text(t, "/key"), text(t, "/value"), text(t, "/effect"));
        let exists = text(t, "/operator") == "Exists";
        (key == taint.key || (key.is_empty() && exists))
            && (exists || value == taint.value)
            && (effect.is_empty() || effect == taint.effect)
    })
}

impl Shared {
    /// Makes so many more nodes of a pool.
    pub(super) async fn grow(&self, pool: &str, count: u32, labels: &BTreeMap<String, String>) -> Result<()> {
        let (template, names) = {
            let state = self.state();
            let found = state.pools.get(pool).doing(format!("node pool {pool}"))?;
            let free = (0..).map(|i: u32| format!("gke-{pool}-{i}")).filter(|n| !found.nodes.contains(n));
            let names: Vec<String> = free.take(usize::try_from(count).unwrap_or(0)).collect();
            (found.pool.clone(), names)
        };
        for name in &names {
            let node = serde_json::from_value(template.node(name, labels))?;
            match NODES.all(&self.client).create(&PostParams::default(), &node).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                other => drop(other.doing(format!("node {name}"))?),
            }
            self.beat(name).await?;
        }
        let mut state = self.state();
        if let Some(found) = state.pools.get_mut(pool) {
            found.nodes.extend(names);
            found.idle_since = Instant::now();
        }
        Ok(())
    }

    /// Takes all nodes of a pool away.
    pub(super) async fn shrink(&self, pool: &str) -> Result<()> {
        let nodes: BTreeSet<String> = {
            let mut state = self.state();
            let Some(found) = state.pools.get_mut(pool) else { return Ok(()) };
            found.for_whom = None;
            std::mem::take(&mut found.nodes)
        };
        for node in nodes {
            NODES.delete(&self.client, "", &node).await?;
            LEASES.delete(&self.client, "kube-node-lease", &node).await?;
        }
        Ok(())
    }

    /// A node says that it works.
    pub(super) async fn ready(&self, node: &str) -> Result<()> {
        let status = json!({"status": {"conditions": [ready()]}});
        NODES.patch_status(&self.client, "", node, &status).await.map(drop)
    }

    /// A node says that it is alive.
    pub(super) async fn beat(&self, node: &str) -> Result<()> {
        let time = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"namespace": "kube-node-lease", "name": node},
            "spec": {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": time}});
        LEASES.apply(&self.client, &lease).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(selector: &Value, chips: &str, tolerations: &Value) -> Value {
        json!({"nodeSelector": selector, "tolerations": tolerations,
            "containers": [{"name": "c", "resources": {"requests": {"google.com/tpu": chips}}}]})
    }

    #[test]
    fn pods_suit_pools_by_selector_chips_and_taints() {
        let pool = Pool::tpu("pool", "ct5lp-hightpu-4t", "2x4").unwrap();
        let topology = json!({"cloud.google.com/gke-tpu-topology": "2x4"});
        assert!(pool.suits(&spec(&topology, "4", &json!([]))));
        assert!(!pool.suits(&spec(&topology, "8", &json!([]))), "a pod takes all chips of its node");
        assert!(!pool.suits(&spec(&json!({"cloud.google.com/gke-tpu-topology": "4x4"}), "4", &json!([]))));
        let queued = pool.clone().queued();
        assert!(!queued.suits(&spec(&topology, "4", &json!([]))));
        let tolerated = json!([{"key": "cloud.google.com/gke-queued", "operator": "Exists", "effect": "NoSchedule"}]);
        assert!(queued.suits(&spec(&topology, "4", &tolerated)));
        let cpu = Pool::cpu("cpu", 1, 4, 16);
        assert!(cpu.suits(&spec(&json!({}), "0", &json!([]))));
        assert!(!cpu.suits(&spec(&json!({}), "4", &json!([]))));
        assert_eq!((pool.step(), cpu.step()), (2, 1));
    }
}
