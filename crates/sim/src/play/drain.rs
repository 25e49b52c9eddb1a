//! Draining nodes, as before maintenance, and taking them away.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, PodCondition};
use slicegate_api::{Kind, Object, ObjectRef, Taint};

use crate::cluster::{NodeId, is_over};
use crate::duration::words;
use crate::plan::{Action, Drained};
use crate::store::api_time;
use crate::timeline::EntryKind;
use crate::world::{Event, World};

/// On a node that is about to be stopped.
const TERMINATION: &str = "cloud.google.com/impending-node-termination";
/// On a node that takes no pods.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// The exit code of a program that SIGTERM ended.
const TERMINATED: i32 = 143;

impl World {
    /// Drains nodes: no pod comes to them any more, those on them end as disrupted.
    pub(super) fn play_drain(&mut self, which: &Drained, count: Option<usize>, lasts: Option<i64>) {
        let mut nodes = match self.drained_nodes(which) {
            Ok(nodes) => nodes,
            Err(why) => {
                self.say(None, EntryKind::Refused, why);
                return;
            }
        };
        nodes.truncate(count.unwrap_or(usize::MAX));
        let mut pods = BTreeSet::new();
        for (id, name) in &nodes {
            self.cordon(*id, true);
            self.mark_node(name, true);
            pods.extend(self.nodes.node(*id).into_iter().flat_map(|node| node.pods.iter().cloned()));
        }
        let names: Vec<String> = nodes.iter().map(|(_, name)| name.to_string()).collect();
        let back = lasts.map_or(String::new(), |time| format!(", back in {}", words(time)));
        let shown = if names.len() > 4 {
            let (first, last) = (names.first().cloned().unwrap_or_default(), names.last().cloned().unwrap_or_default());
            format!("{} nodes ({first} to {last})", names.len())
        } else {
            names.join(", ")
        };
        let text = format!("drained: {shown}; {} pods are stopped{back}", pods.len());
        self.say(None, EntryKind::Drained, text);
        for pod in pods {
            self.disrupt(&pod);
        }
        if let Some(time) = lasts {
            let nodes = nodes.into_iter().map(|(_, name)| name).collect();
            self.queue.schedule(self.now.plus_micros(time), Event::Follow(Box::new(Action::Restore { nodes })));
        }
    }

    /// The nodes that are meant and not drained yet, in order of name.
    fn drained_nodes(&self, which: &Drained) -> Result<Vec<(NodeId, Box<str>)>, String> {
        let named = |id: NodeId| self.nodes.node(id).filter(|n| !n.cordoned).map(|node| (id, node.name.clone()));
        let mut nodes: Vec<(NodeId, Box<str>)> = match which {
            Drained::Node(name) => {
                let id =
                    self.nodes.by_name.get(name).copied().ok_or_else(|| format!("there is no node {name} to drain"))?;
                named(id).into_iter().collect()
            }
            Drained::Pool(name) => {
                let id = self.nodes.pool_named(name).ok_or_else(|| format!("there is no node pool {name} to drain"))?;
                self.nodes.pool(id).nodes.iter().copied().filter_map(named).collect()
            }
            Drained::Job(job) => {
                let pods = self.nodes.placed.iter().filter(|(pod, _)| self.top_owner(pod).as_ref() == Some(job));
                let ids: BTreeSet<NodeId> = pods.map(|(_, placed)| placed.node).collect();
                ids.into_iter().filter_map(named).collect()
            }
        };
        if nodes.is_empty() {
            return Err(match which {
                Drained::Node(name) => format!("node {name} is drained already"),
                Drained::Pool(name) => format!("node pool {name} has no nodes to drain"),
                Drained::Job(job) => format!("{job} has no pods on nodes to drain"),
            });
        }
        nodes.sort_by(|a, b| a.1.cmp(&b.1));
        Ok(nodes)
    }

    /// Keeps pods from a node, or lets them come again.
    pub(crate) fn cordon(&mut self, id: NodeId, cordoned: bool) {
        let Some(node) = self.nodes.slots.get_mut(id.0).and_then(Option::as_mut) else { return };
        node.cordoned = cordoned;
        self.nodes.touched.insert(node.pool);
        let (pool, free) = (node.pool, !cordoned && node.chip_user.is_none());
        let pool = &mut self.nodes.pools[pool.0];
        if free && pool.chips > 0 {
            pool.free.insert(id);
        } else {
            pool.free.remove(&id);
        }
        self.nodes.retry = true;
        self.nodes.grow = true;
    }

    /// Says on a Node object that it takes no pods, or does again.
    fn mark_node(&mut self, name: &str, cordoned: bool) {
        let Some(Object::Node(node)) = self.store.get(&ObjectRef::new(Kind::Node, "", name)) else { return };
        let mut node = node.clone();
        let time = api_time(self.now);
        let spec = Arc::make_mut(&mut node).spec.get_or_insert_default();
        spec.unschedulable = cordoned.then_some(true);
        let taints = spec.taints.get_or_insert_default();
        taints.retain(|taint| taint.key != TERMINATION && taint.key != UNSCHEDULABLE);
        if cordoned {
            taints.extend([TERMINATION, UNSCHEDULABLE].map(|key| Taint {
                key: key.to_owned(),
                effect: "NoSchedule".to_owned(),
                time_added: Some(time.clone()),
                value: None,
            }));
        }
        if taints.is_empty() {
            spec.taints = None;
        }
        self.store.put(Object::Node(node));
    }

    /// Drained nodes that are still there take pods again.
    pub(super) fn play_restore(&mut self, names: &[Box<str>]) {
        let mut back: Vec<&str> = Vec::new();
        for name in names {
            let Some(id) = self.nodes.by_name.get(name).copied() else { continue };
            if self.nodes.node(id).is_some_and(|node| node.cordoned) {
                self.cordon(id, false);
                self.mark_node(name, false);
                back.push(name);
            }
        }
        if !back.is_empty() {
            self.say(None, EntryKind::NodesReady, format!("drained nodes are back: {}", back.join(", ")));
        }
    }

    /// A pod is stopped because its node goes: the kubelet ends it as failed and says that it was disrupted.
    pub(crate) fn disrupt(&mut self, key: &ObjectRef) {
        let Some(Object::Pod(pod)) = self.store.get(key) else { return };
        if is_over(pod) || pod.metadata.deletion_timestamp.is_some() {
            return;
        }
        let mut pod = pod.clone();
        let time = api_time(self.now);
        let changed = Arc::make_mut(&mut pod);
        let containers = changed.spec.iter().flat_map(|spec| &spec.containers);
        let started = changed.status.as_ref().and_then(|status| status.start_time.clone());
        let ended: Vec<ContainerStatus> = containers
            .map(|container| ContainerStatus {
                name: container.name.clone(),
                image: container.image.clone().unwrap_or_default(),
                started: Some(false),
                state: Some(ContainerState {
                    terminated: Some(ContainerStateTerminated {
                        exit_code: TERMINATED,
                        reason: Some("Error".to_owned()),
                        started_at: started.clone(),
                        finished_at: Some(time.clone()),
                        ..ContainerStateTerminated::default()
                    }),
                    ..ContainerState::default()
                }),
                ..ContainerStatus::default()
            })
            .collect();
        let status = changed.status.get_or_insert_default();
        status.phase = Some("Failed".to_owned());
        status.reason = Some("Terminated".to_owned());
        status.message = Some("Pod was terminated in response to imminent node shutdown.".to_owned());
        let conditions = status.conditions.get_or_insert_default();
        let at = Some(time);
        for condition in conditions.iter_mut().filter(|c| c.type_ == "Ready" || c.type_ == "ContainersReady") {
            "False".clone_into(&mut condition.status);
            condition.reason = Some("PodFailed".to_owned());
            condition.last_transition_time.clone_from(&at);
        }
        conditions.push(PodCondition {
            type_: "DisruptionTarget".to_owned(),
            status: "True".to_owned(),
            reason: Some("TerminationByKubelet".to_owned()),
            message: Some("Pod was terminated in response to imminent node shutdown.".to_owned()),
            last_transition_time: at,
            ..PodCondition::default()
        });
        status.container_statuses = Some(ended);
        self.store.put(Object::Pod(pod));
    }

    /// Takes nodes away for good; what runs on them is stopped.
    pub(crate) fn take_nodes(&mut self, nodes: &[NodeId]) {
        for id in nodes {
            let pods: Vec<ObjectRef> = self.nodes.node(*id).into_iter().flat_map(|n| n.pods.iter().cloned()).collect();
            for pod in pods {
                self.disrupt(&pod);
                self.nodes.release(&pod, self.now);
            }
            if let Some(node) = self.nodes.remove_node(*id) {
                self.store.remove(&ObjectRef::new(Kind::Node, "", node.name));
            }
        }
        self.nodes.grow = true;
    }
}
