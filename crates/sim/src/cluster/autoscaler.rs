//! The cluster autoscaler: pools grow for pods that found no node and shrink when nodes idle.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeCondition, NodeSpec, NodeStatus};
use slicegate_api::nodepool::NodePool;
use slicegate_api::{Kind, Node, Object, ObjectMeta, ObjectRef, Quantity, Taint};
use slicegate_quota::Quantity as Exact;
use slicegate_workload::{Labels, ResourceList};

use super::pool::{Growth, Origin, Pool};
use super::{ClassId, NodeId, PoolId, shape};
use crate::store::api_time;
use crate::timeline::EntryKind;
use crate::world::{Event, World};

/// Nodes idle at least this long before they go, in microseconds.
const SHORTEST_IDLE: i64 = 1_000_000;
/// A pool that came and went this often without a single pod does not grow again.
const FRUITLESS_SCALE_UPS: u32 = 5;

/// Room on nodes that are on their way.
struct Coming {
    /// What is left on each.
    rooms: Vec<ResourceList>,
    /// The gang that has the pool.
    gang: Option<Box<str>>,
}

impl World {
    /// Takes up a NodePool document.
    pub(crate) fn add_node_pool(&mut self, document: &NodePool) {
        self.note_node_pool(document);
        if let Some(id) = self.nodes.pool_named(&document.name) {
            let mut remarks = Vec::new();
            let new = Pool::from_document(document, &mut remarks);
            self.nodes.pools[id.0].autoscaling = new.autoscaling;
            self.warn(format!(
                "NodePool {} is described again: only its autoscaling limits are changed",
                document.name
            ));
            self.nodes.grow = true;
            return;
        }
        let mut remarks = Vec::new();
        let pool = Pool::from_document(document, &mut remarks);
        for remark in remarks {
            self.warn(remark);
        }
        let initial = pool.initial;
        let id = self.nodes.add_pool(pool);
        self.make_nodes(id, initial, None);
        self.watch_idle(id);
    }

    /// Takes up a Node document.
    pub(crate) fn add_plain_node(&mut self, node: &Node) {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        if self.nodes.by_name.contains_key(name) {
            return;
        }
        let pool = self.nodes.add_pool(Pool::from_node_object(node));
        let id = self.nodes.add_node(pool, name.into(), self.now);
        self.take_node(id, node);
    }

    /// Takes over from a Node object what may change: labels, taints, whether it is ready and takes pods.
    pub(crate) fn take_node(&mut self, id: NodeId, node: &Node) {
        let Some(state) = self.nodes.slots.get_mut(id.0).and_then(Option::as_mut) else { return };
        let spec = node.spec.as_ref();
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let ready = conditions.filter(|c| c.type_ == "Ready").all(|c| c.status == "True");
        let unschedulable = spec.is_some_and(|spec| spec.unschedulable == Some(true));
        let taints = shape::taints(node);
        let pool = &mut self.nodes.pools[state.pool.0];
        let mut labels: Labels = if pool.origin == Origin::Node { Labels::new() } else { pool.labels.clone() };
        labels.extend(node.metadata.labels.iter().flatten().map(|(k, v)| (k.as_str().into(), v.as_str().into())));
        labels.entry("kubernetes.io/hostname".into()).or_insert_with(|| state.name.clone());
        if pool.origin == Origin::Node {
            let new = Pool::from_node_object(node);
            (pool.labels, pool.taints, pool.allocatable) = (new.labels, new.taints, new.allocatable);
            self.nodes.epoch += 1;
        }
        let taints = (taints != pool.taints).then_some(taints);
        let same = state.ready == ready && state.unschedulable == unschedulable;
        if !same || state.taints != taints || state.labels != labels {
            (state.ready, state.unschedulable, state.taints, state.labels) = (ready, unschedulable, taints, labels);
            self.nodes.touched.insert(state.pool);
            self.nodes.retry = true;
        }
    }

    /// Adds nodes to a pool now.
    pub(crate) fn make_nodes(&mut self, id: PoolId, count: u32, request: Option<&str>) {
        for _ in 0..count {
            let pool = &mut self.nodes.pools[id.0];
            let serial = pool.made;
            pool.made += 1;
            let hash = crate::names::suffix(&["node", &pool.name]);
            let name = format!("gke-{}-{hash}-{serial}", pool.name);
            let zone = usize::try_from(serial).unwrap_or(0) % pool.zones.len().max(1);
            let zone = pool.zones.get(zone).cloned().unwrap_or_default();
            let node = self.nodes.add_node(id, name.as_str().into(), self.now);
            let pool = &self.nodes.pools[id.0];
            let taints = pool.taints.iter().map(|taint| Taint {
                key: taint.key.to_string(),
                value: Some(taint.value.to_string()),
                effect: taint.effect.as_str().to_owned(),
                time_added: None,
            });
            let mut labels: BTreeMap<String, String> =
                pool.labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
            labels.insert("kubernetes.io/hostname".to_owned(), name.clone());
            if let Some((region, _)) = zone.rsplit_once('-') {
                labels.insert("topology.kubernetes.io/region".to_owned(), region.to_owned());
            }
            labels.insert("topology.kubernetes.io/zone".to_owned(), zone);
            if let Growth::Whole { hosts } = pool.growth {
                let worker = serial % u64::from(hosts.max(1));
                labels.extend(pool.labels_of_worker(u32::try_from(worker).unwrap_or(0)));
            }
            if let Some(request) = request {
                labels.insert(slicegate_tpu::label::PROVISIONING_REQUEST.to_owned(), request.to_owned());
            }
            let offers: BTreeMap<String, Quantity> =
                pool.allocatable.iter().map(|(key, value)| (key.to_string(), Quantity(value.to_string()))).collect();
            if let Some(state) = self.nodes.slots.get_mut(node.0).and_then(Option::as_mut) {
                state.labels = labels.iter().map(|(k, v)| (k.as_str().into(), v.as_str().into())).collect();
            }
            let time = api_time(self.now);
            let taints: Vec<Taint> = taints.collect();
            let object = Node {
                metadata: ObjectMeta { name: Some(name), labels: Some(labels), ..ObjectMeta::default() },
                spec: Some(NodeSpec { taints: Some(taints).filter(|t| !t.is_empty()), ..NodeSpec::default() }),
                status: Some(NodeStatus {
                    allocatable: Some(offers.clone()),
                    capacity: Some(offers),
                    conditions: Some(vec![NodeCondition {
                        type_: "Ready".to_owned(),
                        status: "True".to_owned(),
                        reason: Some("KubeletReady".to_owned()),
                        last_transition_time: Some(time),
                        ..NodeCondition::default()
                    }]),
                    ..NodeStatus::default()
                }),
            };
            let _ = self.store.create(object.into());
        }
    }

    /// Lets pools grow for pods that found no node.
    pub(crate) fn autoscale(&mut self) {
        if !std::mem::take(&mut self.nodes.grow) {
            return;
        }
        let mut coming: BTreeMap<PoolId, Coming> = BTreeMap::new();
        for (i, pool) in self.nodes.pools.iter().enumerate() {
            let count: u32 = pool.upcoming.values().sum();
            if count > 0 {
                let rooms = vec![pool.allocatable.clone(); usize::try_from(count).unwrap_or(0)];
                coming.insert(PoolId(i), Coming { rooms, gang: None });
            }
        }
        let mut grown: BTreeMap<PoolId, u32> = BTreeMap::new();
        let classes: Vec<ClassId> = self.nodes.waiting.keys().copied().collect();
        for class_id in classes {
            self.nodes.refresh(class_id);
            if self.nodes.classes[class_id.0].pools.is_empty() && !self.make_pool_for(class_id) {
                self.report_unschedulable(class_id);
                continue;
            }
            let class = &self.nodes.classes[class_id.0];
            let scalable = |id: &&PoolId| {
                let pool = self.nodes.pool(**id);
                !pool.queued && pool.autoscaling.is_some()
            };
            let mut pools: Vec<PoolId> = class.pools.iter().filter(scalable).copied().collect();
            // A node of a given name never comes from a scale-up.
            let one_node = class.shape.selector.contains_key("kubernetes.io/hostname");
            if pools.is_empty() || one_node {
                self.report_unschedulable(class_id);
                continue;
            }
            let requests = class.shape.requests.clone();
            let places: Vec<ObjectRef> =
                self.nodes.waiting.get(&class_id).into_iter().flatten().map(|place| place.pod.clone()).collect();
            let mut full = false;
            for pod in &places {
                let Some(pending) = self.nodes.pending.get(pod) else { continue };
                let gang = pending.gang.as_ref().filter(|gang| gang.seeks).map(|gang| gang.key.clone());
                if Self::fits_in_coming(&pools, &mut coming, &requests, gang.as_deref()) {
                    continue;
                }
                let mut found = self.growable(&pools, &grown);
                if found.is_none() && self.make_pool_for(class_id) {
                    pools.push(PoolId(self.nodes.pools.len() - 1));
                    found = self.growable(&pools, &grown);
                }
                let Some((id, count)) = found else {
                    full = true;
                    break;
                };
                *grown.entry(id).or_default() += count;
                let room = self.nodes.pool(id).allocatable.clone();
                let entry = coming.entry(id).or_insert_with(|| Coming { rooms: Vec::new(), gang: None });
                entry.rooms.extend(std::iter::repeat_n(room, usize::try_from(count).unwrap_or(0)));
                Self::fits_in_coming(&[id], &mut coming, &requests, gang.as_deref());
            }
            if full {
                self.report_unschedulable(class_id);
            }
        }
        for (id, count) in grown {
            self.scale_up(id, count);
        }
    }

    /// The first of the pools that can grow further, and by how much.
    fn growable(&self, pools: &[PoolId], grown: &BTreeMap<PoolId, u32>) -> Option<(PoolId, u32)> {
        pools.iter().find_map(|id| {
            let pool = self.nodes.pool(*id);
            if pool.fruitless >= FRUITLESS_SCALE_UPS {
                return None;
            }
            let growing = grown.get(id).copied().unwrap_or(0);
            let most = pool.autoscaling.map_or(0, |(_, most)| most);
            let next = match pool.growth {
                Growth::Whole { .. } if growing > 0 => 0,
                Growth::ByNode if pool.target().saturating_add(growing) >= most => 0,
                _ => pool.next_growth(),
            };
            (next > 0).then_some((*id, next))
        })
    }

    fn fits_in_coming(
        pools: &[PoolId],
        coming: &mut BTreeMap<PoolId, Coming>,
        requests: &[(Box<str>, i128)],
        gang: Option<&str>,
    ) -> bool {
        for id in pools {
            let Some(entry) = coming.get_mut(id) else { continue };
            if gang.is_some() && entry.gang.is_some() && entry.gang.as_deref() != gang {
                continue;
            }
            let room = entry.rooms.iter_mut().find(|room| {
                requests
                    .iter()
                    .all(|(name, nanos)| *nanos <= 0 || room.get(name).is_some_and(|have| *nanos <= have.nanos()))
            });
            let Some(room) = room else { continue };
            for (name, nanos) in requests {
                if let Some(have) = room.get_mut(name) {
                    *have = have.minus(Exact::from_nanos(*nanos));
                }
            }
            if let Some(gang) = gang {
                entry.gang = Some(gang.into());
            }
            return true;
        }
        false
    }

    /// Starts a scale-up.
    fn scale_up(&mut self, id: PoolId, count: u32) {
        self.scale_ups += 1;
        let number = self.scale_ups;
        let pool = &mut self.nodes.pools[id.0];
        let from = pool.target();
        pool.upcoming.insert(number, count);
        pool.used = false;
        let text = format!(
            "node pool {} scales up {from} -> {} (nodes in {})",
            pool.name,
            pool.target(),
            crate::duration::words(self.settings.node_provisioning)
        );
        self.say(None, EntryKind::ScaleUp, text);
        self.queue
            .schedule(self.now.plus_micros(self.settings.node_provisioning), Event::NodesReady { pool: id, number });
    }

    /// The nodes of a scale-up are there.
    pub(crate) fn nodes_ready(&mut self, id: PoolId, number: u64) {
        let Some(count) = self.nodes.pools[id.0].upcoming.remove(&number) else { return };
        self.make_nodes(id, count, None);
        let pool = self.nodes.pool(id);
        let text = format!("node pool {}: {} node(s) ready", pool.name, pool.nodes.len());
        self.say(None, EntryKind::NodesReady, text);
        self.watch_idle(id);
    }

    /// Looks again at a pool's idle nodes when the time is up.
    pub(crate) fn watch_idle(&mut self, id: PoolId) {
        let Some((low, _)) = self.nodes.pool(id).autoscaling else { return };
        if self.nodes.pool(id).target() > low && self.idle_watch.insert((id, self.now)) {
            // Not at this very moment: the pods that the nodes came for have yet to be placed.
            let at = self.now.plus_micros(self.settings.scale_down_after.max(SHORTEST_IDLE));
            self.queue.schedule(at, Event::ScaleDown { pool: id, idle_since: self.now });
        }
    }

    /// Removes nodes that have been idle for long enough.
    pub(crate) fn scale_down(&mut self, id: PoolId, idle_since: slicegate_workload::Timestamp) {
        self.idle_watch.remove(&(id, idle_since));
        let pool = self.nodes.pool(id);
        let Some((low, _)) = pool.autoscaling else { return };
        let idle = |node: &NodeId| {
            self.nodes.node(*node).is_some_and(|node| node.idle_since.is_some_and(|since| since <= idle_since))
        };
        let from = u32::try_from(pool.nodes.len()).unwrap_or(u32::MAX);
        let going: Vec<NodeId> = match pool.growth {
            Growth::Whole { .. } if low == 0 && pool.in_repair.is_empty() && pool.nodes.iter().all(idle) => {
                pool.nodes.iter().copied().collect()
            }
            Growth::Whole { .. } => Vec::new(),
            Growth::ByNode => {
                let most = usize::try_from(from.saturating_sub(low)).unwrap_or(0);
                pool.nodes.iter().rev().filter(|node| idle(node)).take(most).copied().collect()
            }
        };
        if going.is_empty() {
            return;
        }
        let to = from.saturating_sub(u32::try_from(going.len()).unwrap_or(u32::MAX));
        let text = format!(
            "node pool {} scales down {from} -> {to} (idle for {})",
            pool.name,
            crate::duration::words(self.settings.scale_down_after)
        );
        self.say(None, EntryKind::ScaleDown, text);
        let pool = &mut self.nodes.pools[id.0];
        pool.fruitless = if pool.used { 0 } else { pool.fruitless.saturating_add(1) };
        if pool.fruitless == FRUITLESS_SCALE_UPS {
            let text = format!(
                "node pool {} came and went {FRUITLESS_SCALE_UPS} times without a single pod: it does not grow again",
                pool.name
            );
            self.warn(text);
        }
        for node in going {
            if let Some(node) = self.nodes.remove_node(node) {
                self.store.remove(&ObjectRef::new(Kind::Node, "", node.name));
            }
        }
        if to == 0 {
            self.nodes.pools[id.0].booked = None;
            self.retry_requests();
        }
        self.nodes.grow = true;
        self.watch_idle(id);
    }

    /// Without pools in the documents, makes one that serves a class of pods, as Autopilot does.
    pub(crate) fn make_pool_for(&mut self, class: ClassId) -> bool {
        if self.nodes.pools.iter().any(|pool| pool.origin != Origin::Made) || self.nodes.classes[class.0].shape.consumes
        {
            return false;
        }
        let shape = self.nodes.classes[class.0].shape.clone();
        let name = self.made_pool_name(&shape);
        let made = self.nodes.pool_named(&name).is_none()
            && Pool::for_shape(&name, &shape, false).is_some_and(|pool| {
                self.nodes.add_pool(pool);
                true
            });
        if made {
            self.warn(
                "the documents describe no node pools and no nodes: pools are made from what the pods select, as Autopilot does"
                    .to_owned(),
            );
            self.nodes.refresh(class);
        }
        made
    }

    pub(crate) fn made_pool_name(&self, shape: &shape::Shape) -> String {
        use slicegate_tpu::label;
        if let Some(name) = shape.selector.get(label::NODE_POOL) {
            return name.to_string();
        }
        let stem = match (shape.selector.get(label::ACCELERATOR), shape.selector.get(label::TOPOLOGY)) {
            (Some(accelerator), Some(topology)) => format!("{accelerator}-{topology}"),
            _ => "general".to_owned(),
        };
        let taken = self.nodes.pools.iter().filter(|pool| pool.name.starts_with(&stem)).count();
        format!("{stem}-{}", taken + 1)
    }

    fn report_unschedulable(&mut self, class: ClassId) {
        let Some(place) = self.nodes.waiting.get(&class).and_then(|places| places.first()) else { return };
        let pod = place.pod.clone();
        let Some(why) = self.why_pending(&pod) else { return };
        let of = &self.nodes.classes[class.0];
        if (of.pools.is_empty() || self.nodes.never_grows(of).is_some()) && self.stuck.insert(class) {
            let job = self.job_of_pod(&pod);
            self.say(job, EntryKind::Unschedulable, format!("its pods find no node: {why}"));
        }
    }
}

impl World {
    /// Whether an object is a Node that no pool made.
    pub(crate) fn observe_node(&mut self, object: &Object, gone: bool) {
        let Object::Node(node) = object else { return };
        let name = node.metadata.name.as_deref().unwrap_or_default();
        // A node may be back under its name before its end is told of.
        if self.store.get(&object.reference()).is_some() == gone {
            return;
        }
        let known = self.nodes.by_name.get(name).copied();
        match (gone, known) {
            (true, Some(id)) => self.forget_node(id),
            (true, None) => {}
            (false, Some(id)) => self.take_node(id, node),
            (false, None) => self.add_plain_node(node),
        }
    }
}
