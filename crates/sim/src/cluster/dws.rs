//! The Dynamic Workload Scheduler: ProvisioningRequests are met as a whole, from one pool, or not at all.

use std::sync::Arc;

use slicegate_api::provisioning::ProvisioningRequest;
use slicegate_api::{Condition, Kind, Object, ObjectRef};

use super::pool::{Growth, Origin, Pool};
use super::shape::Shape;
use super::{NodeId, PoolId};
use crate::duration::words;
use crate::names;
use crate::plan::{DwsRule, Wait};
use crate::store::{api_time, sim_time};
use crate::timeline::EntryKind;
use crate::world::{Event, World};

/// The class that queues for capacity.
const QUEUED: &str = "queued-provisioning.gke.io";
const CHECK_CAPACITY: &str = "check-capacity.autoscaling.x-k8s.io";
const ATOMIC: &str = "best-effort-atomic-scale-up.autoscaling.x-k8s.io";

/// How long the nodes of a request are kept for its pods, in microseconds.
const BOOKING: i64 = 600_000_000;
/// How long a node has to stop what runs on it, in microseconds.
const SHUTDOWN_GRACE: i64 = 30_000_000;

/// What is next for a ProvisioningRequest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Capacity may have been found.
    Search,
    /// Nobody waits any longer.
    GiveUp,
    /// It fails, since the scenario says so.
    Fail,
    /// The nodes are no longer kept for it.
    Expire,
    /// The nodes may not be kept any longer.
    Revoke,
    /// The nodes go.
    Take,
}

/// Why a request can never be met.
enum Impossible {
    NoQueuedPool,
    NotSchedulable,
    SingleZone,
    NodePoolSize,
}

impl Impossible {
    fn reason(&self) -> &'static str {
        match self {
            Self::NoQueuedPool => "NoQueuedNodepoolAvailable",
            Self::NotSchedulable => "ProvisioningRequestNotSchedulableInNodepool",
            Self::SingleZone => "ProvisioningRequestSingleZoneInfeasible",
            Self::NodePoolSize => "NodepoolSizeReached",
        }
    }

    fn message(&self) -> &'static str {
        match self {
            Self::NoQueuedPool => "No nodepool with QueuedProvisioning enabled is available for scale up.",
            Self::NotSchedulable => {
                "The pods cannot be scheduled on the nodes of any nodepool with QueuedProvisioning enabled."
            }
            Self::SingleZone => "The pods cannot be scheduled in a single zone of a single nodepool.",
            Self::NodePoolSize => "The nodepool is not allowed to grow to the size that the request needs.",
        }
    }
}

/// A pool that can hold a request, and how many nodes it takes.
struct Candidate {
    pool: PoolId,
    nodes: u32,
    free: bool,
}

/// A parameter of a request that is a number of seconds, in microseconds.
fn seconds(request: &ProvisioningRequest, parameter: &str) -> Option<i64> {
    let seconds = request.spec.parameters.get(parameter)?.parse::<i64>().ok()?;
    (seconds >= 0).then(|| seconds.saturating_mul(1_000_000))
}

fn is_true(request: &ProvisioningRequest, kind: &str) -> bool {
    request.status.conditions.iter().any(|c| c.type_ == kind && c.status == "True")
}

impl World {
    fn request(&self, key: &ObjectRef) -> Option<Arc<ProvisioningRequest>> {
        match self.store.get(key) {
            Some(Object::ProvisioningRequest(request)) => Some(request.clone()),
            _ => None,
        }
    }

    fn set_request(&mut self, key: &ObjectRef, kind: &str, reason: &str, message: &str) {
        let Some(mut request) = self.request(key) else { return };
        let time = api_time(self.now);
        let generation = request.metadata.generation;
        let status = &mut Arc::make_mut(&mut request).status;
        status.conditions.retain(|c| c.type_ != kind);
        status.conditions.push(Condition {
            type_: kind.to_owned(),
            status: "True".to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: time,
            observed_generation: generation,
        });
        self.store.put(Object::ProvisioningRequest(request));
    }

    /// Looks at a request that is new or was changed.
    pub(crate) fn sync_request(&mut self, key: &ObjectRef) {
        let Some(request) = self.request(key) else {
            for pool in &mut self.nodes.pools {
                if pool.booked.as_ref() == Some(key) && pool.nodes.is_empty() {
                    pool.booked = None;
                }
            }
            return;
        };
        if !request.status.conditions.is_empty() {
            return;
        }
        match request.spec.provisioning_class_name.as_str() {
            QUEUED => self.accept(key, &request),
            CHECK_CAPACITY | ATOMIC => self.answer_now(key, &request),
            other => {
                self.warn(format!("{key}: no provider serves the class {other}; it waits for ever"));
            }
        }
    }

    fn accept(&mut self, key: &ObjectRef, request: &ProvisioningRequest) {
        if let Err(why) = self.candidates(key, request, true) {
            self.fail(key, why.reason(), why.message());
            return;
        }
        self.set_request(key, "Accepted", "SuccessfullyQueued", "Provisioning Request was successfully queued.");
        let job = self.job_of_request(key);
        let text = format!("ProvisioningRequest {} accepted: queued for DWS capacity", key.name);
        self.say(job, EntryKind::ProvisioningRequest, text);
        let rule = self.dws_rule(key).cloned();
        let rule = rule.as_ref();
        let dws = &self.settings.dws;
        let finds = rule.and_then(|rule| rule.finds_capacity).unwrap_or(dws.finds_capacity);
        let patience = rule.and_then(|rule| rule.gives_up).or_else(|| seconds(request, "ValidUntilSeconds"));
        let patience = patience.unwrap_or(dws.gives_up);
        if let Some(fails) = rule.and_then(|rule| rule.fails) {
            self.schedule_step(key, request, fails, Step::Fail);
        }
        if let Wait::For(wait) = finds {
            self.schedule_step(key, request, wait, Step::Search);
        }
        self.schedule_step(key, request, patience, Step::GiveUp);
    }

    fn schedule_step(&mut self, key: &ObjectRef, request: &ProvisioningRequest, wait: i64, step: Step) {
        let uid: Box<str> = request.metadata.uid.as_deref().unwrap_or_default().into();
        self.queue.schedule(self.now.plus_micros(wait), Event::Request { request: key.clone(), uid, step });
    }

    /// Whether a request is that of an object: of the job or the Workload that it was made for, or the request itself.
    pub(crate) fn is_request_of(&self, key: &ObjectRef, object: &ObjectRef) -> bool {
        if key == object || self.job_of_request(key).as_ref() == Some(object) {
            return true;
        }
        let owner = self.store.get(key).and_then(crate::store::controller_of);
        owner.is_some_and(|o| {
            o.kind == object.kind.as_str() && o.name == *object.name && key.namespace == object.namespace
        })
    }

    /// What the scenario says of a request, if it says something of this one in particular.
    fn dws_rule(&self, key: &ObjectRef) -> Option<&DwsRule> {
        let attempt = key.name.rsplit_once('-').and_then(|(_, n)| n.parse::<i32>().ok());
        let rules = self.settings.dws.requests.iter();
        rules
            .filter(|rule| rule.attempt.is_none() || rule.attempt == attempt)
            .find(|rule| self.is_request_of(key, &rule.object))
    }

    /// The provider looks for capacity at once.
    pub(crate) fn find_capacity(&mut self, key: &ObjectRef) -> Result<(), &'static str> {
        self.is_open(key)?;
        self.searching.insert(key.clone());
        self.told_waiting.remove(key);
        self.try_provision(key);
        Ok(())
    }

    fn is_open(&self, key: &ObjectRef) -> Result<(), &'static str> {
        let request = self.request(key).ok_or("is not there")?;
        if is_true(&request, "Failed") {
            return Err("has failed already");
        }
        if is_true(&request, "Provisioned") { Err("is provisioned already") } else { Ok(()) }
    }

    fn is_provisioned(&self, key: &ObjectRef) -> Result<Arc<ProvisioningRequest>, &'static str> {
        let request = self.request(key).ok_or("is not there")?;
        if is_true(&request, "CapacityRevoked") {
            return Err("has its capacity revoked already");
        }
        if is_true(&request, "Provisioned") { Ok(request) } else { Err("is not provisioned") }
    }

    /// A request fails.
    pub(crate) fn fail_request(
        &mut self,
        key: &ObjectRef,
        reason: Option<String>,
        message: Option<String>,
    ) -> Result<(), &'static str> {
        self.is_open(key)?;
        let reason = reason.unwrap_or_else(|| "OutOfResources".to_owned());
        let message =
            message.unwrap_or_else(|| "There are not enough resources in the zone for the request.".to_owned());
        self.fail(key, &reason, &message);
        Ok(())
    }

    /// The nodes of a request are not kept for it any longer.
    pub(crate) fn expire_booking(
        &mut self,
        key: &ObjectRef,
        reason: Option<String>,
        message: Option<String>,
    ) -> Result<(), &'static str> {
        self.is_provisioned(key)?;
        let reason = reason.unwrap_or_else(|| "BookingExpired".to_owned());
        let message = message.unwrap_or_else(|| "Booking expired.".to_owned());
        let job = self.job_of_request(key);
        self.set_request(key, "BookingExpired", &reason, &message);
        self.say(job, EntryKind::ProvisioningRequest, format!("ProvisioningRequest {}: {message}", key.name));
        Ok(())
    }

    /// The provider takes the nodes of a request back: they take no pods any more and are stopped after a grace period.
    pub(crate) fn revoke(
        &mut self,
        key: &ObjectRef,
        reason: Option<String>,
        message: Option<String>,
    ) -> Result<(), &'static str> {
        let request = self.is_provisioned(key)?;
        let reason = reason.unwrap_or_else(|| "CapacityRevoked".to_owned());
        let message =
            message.unwrap_or_else(|| "The capacity was revoked: its maximum run duration is over.".to_owned());
        let job = self.job_of_request(key);
        self.set_request(key, "CapacityRevoked", &reason, &message);
        self.say(job, EntryKind::ProvisioningRequest, format!("ProvisioningRequest {}: {message}", key.name));
        for (_, node) in self.nodes_of_request(key) {
            self.cordon(node, true);
        }
        self.schedule_step(key, &request, SHUTDOWN_GRACE, Step::Take);
        Ok(())
    }

    /// The nodes that were made for a request.
    fn nodes_of_request(&self, key: &ObjectRef) -> Vec<(PoolId, NodeId)> {
        let resize = resize_request_name(key);
        let label = slicegate_tpu::label::PROVISIONING_REQUEST;
        let nodes =
            self.nodes.pools.iter().enumerate().flat_map(|(i, pool)| pool.nodes.iter().map(move |n| (PoolId(i), *n)));
        nodes
            .filter(|(_, id)| {
                self.nodes.node(*id).is_some_and(|n| n.labels.get(label).is_some_and(|value| **value == *resize))
            })
            .collect()
    }

    /// The nodes of a request go.
    fn take_back(&mut self, key: &ObjectRef) {
        let nodes = self.nodes_of_request(key);
        let Some((pool, _)) = nodes.first().copied() else { return };
        let from = self.nodes.pool(pool).nodes.len();
        let taken: Vec<NodeId> = nodes.iter().filter(|(of, _)| *of == pool).map(|(_, node)| *node).collect();
        self.take_nodes(&taken);
        let pool = &mut self.nodes.pools[pool.0];
        if pool.nodes.is_empty() {
            pool.booked = None;
        }
        let text = format!(
            "node pool {} loses {} node(s), whose capacity was revoked: {from} -> {}",
            pool.name,
            taken.len(),
            pool.nodes.len()
        );
        self.say(None, EntryKind::ScaleDown, text);
        self.retry_requests();
    }

    fn fail(&mut self, key: &ObjectRef, reason: &str, message: &str) {
        let job = self.job_of_request(key);
        self.set_request(key, "Failed", reason, message);
        self.searching.remove(key);
        self.say(job, EntryKind::ProvisioningRequest, format!("ProvisioningRequest {} failed: {message}", key.name));
    }

    /// Something is due for a request.
    pub(crate) fn request_step(&mut self, key: &ObjectRef, uid: &str, step: Step) {
        if step == Step::Take {
            // The request may be gone by now; its nodes are not.
            self.take_back(key);
            return;
        }
        let Some(request) = self.request(key) else { return };
        if request.metadata.uid.as_deref() != Some(uid) {
            return;
        }
        let (provisioned, failed) = (is_true(&request, "Provisioned"), is_true(&request, "Failed"));
        match step {
            Step::Search if !provisioned && !failed => {
                self.searching.insert(key.clone());
                self.try_provision(key);
            }
            Step::GiveUp if !provisioned && !failed => {
                let message = "Provisioning Request could not provision queued instances in the allocated time.";
                self.fail(key, "WaitTimeExceeded", message);
            }
            Step::Fail => {
                let rule = self.dws_rule(key).cloned();
                let (reason, message) = rule.map_or((None, None), |rule| (rule.reason, rule.message));
                // Of one that is over there is nothing more to say.
                let _ = self.fail_request(key, reason, message);
            }
            Step::Expire if provisioned => {
                self.set_request(key, "BookingExpired", "BookingExpired", "Booking expired.");
            }
            Step::Revoke => _ = self.revoke(key, None, None),
            _ => {}
        }
    }

    /// Capacity was freed: requests that have waited long enough look again, oldest first.
    pub(crate) fn retry_requests(&mut self) {
        let mut waiting: Vec<_> = self
            .searching
            .iter()
            .filter_map(|key| {
                let request = self.request(key)?;
                Some((request.metadata.creation_timestamp.as_ref().map(sim_time), key.clone()))
            })
            .collect();
        waiting.sort();
        for (_, key) in waiting {
            self.try_provision(&key);
        }
    }

    fn try_provision(&mut self, key: &ObjectRef) {
        let Some(request) = self.request(key) else { return };
        let found = self.candidates(key, &request, true).ok().and_then(|all| all.into_iter().find(|c| c.free));
        if let Some(candidate) = found {
            self.provision(key, &request, &candidate);
            return;
        }
        let job = self.job_of_request(key);
        let text = format!("ProvisioningRequest {} waits: no queued node pool is free", key.name);
        if self.told_waiting.insert(key.clone()) {
            self.say(job, EntryKind::ProvisioningRequest, text);
        }
    }

    fn provision(&mut self, key: &ObjectRef, request: &ProvisioningRequest, candidate: &Candidate) {
        self.searching.remove(key);
        let job = self.job_of_request(key);
        let id = candidate.pool;
        let resize = resize_request_name(key);
        let pool = &mut self.nodes.pools[id.0];
        pool.booked = Some(key.clone());
        let (name, from) = (pool.name.to_string(), pool.nodes.len());
        let zone = pool.zones.first().cloned().unwrap_or_default();
        let accelerator = pool.labels.get(slicegate_tpu::label::ACCELERATOR).map(ToString::to_string);
        self.make_nodes(id, candidate.nodes, Some(&resize));
        let to = self.nodes.pool(id).nodes.len();
        if let Some(mut changed) = self.request(key) {
            let details = &mut Arc::make_mut(&mut changed).status.provisioning_class_details;
            details.insert("NodePoolName".to_owned(), name.clone());
            details.insert("NodeGroupName".to_owned(), name.clone());
            details.insert("ResizeRequestName".to_owned(), resize);
            details.insert("SelectedZone".to_owned(), zone);
            if let Some(accelerator) = accelerator {
                details.insert("AcceleratorType".to_owned(), accelerator);
            }
            self.store.put(Object::ProvisioningRequest(changed));
        }
        self.set_request(key, "Provisioned", "Provisioned", "Provisioning Request was successfully provisioned.");
        let waited =
            request.metadata.creation_timestamp.as_ref().map_or(0, |time| self.now.micros_since(sim_time(time)));
        let text = format!(
            "ProvisioningRequest {} provisioned after {}: node pool {name} {from} -> {to}",
            key.name,
            words(waited)
        );
        self.say(job, EntryKind::ProvisioningRequest, text);
        self.schedule_step(key, request, BOOKING, Step::Expire);
        if request.spec.provisioning_class_name == QUEUED {
            let told = self.dws_rule(key).and_then(|rule| rule.revoked);
            let kept = told.or_else(|| seconds(request, "maxRunDurationSeconds")).unwrap_or(self.settings.dws.max_run);
            self.schedule_step(key, request, kept, Step::Revoke);
        }
        self.watch_idle(id);
    }

    /// The classes that answer at once.
    fn answer_now(&mut self, key: &ObjectRef, request: &ProvisioningRequest) {
        self.set_request(key, "Accepted", "Accepted", "Provisioning Request was accepted.");
        let grows = request.spec.provisioning_class_name == ATOMIC;
        let found = self.candidates(key, request, false).ok();
        let candidate = found.into_iter().flatten().find(|c| c.free && (grows || c.nodes == 0));
        match candidate {
            Some(candidate) => self.provision(key, request, &candidate),
            None => self.fail(key, "CapacityIsNotFound", "Capacity is not found, CA will try to find it later."),
        }
    }

    /// The pools that can hold all pods of a request, now or later.
    fn candidates(
        &mut self,
        key: &ObjectRef,
        request: &ProvisioningRequest,
        queued: bool,
    ) -> Result<Vec<Candidate>, Impossible> {
        let mut sets = Vec::new();
        for set in &request.spec.pod_sets {
            let template = ObjectRef::new(Kind::PodTemplate, &*key.namespace, set.pod_template_ref.name.as_str());
            let Some(Object::PodTemplate(template)) = self.store.get(&template) else { continue };
            let Some(mut spec) = template.template.as_ref().and_then(|t| t.spec.clone()) else { continue };
            crate::defaults::complete_pod(&mut spec, 0);
            let mut shape = Shape::of(&spec, true);
            if queued {
                // The autoscaler looks past the taint of queued pools for the pods of a request.
                shape.tolerations.push(slicegate_workload::Toleration {
                    key: slicegate_tpu::label::QUEUED.into(),
                    operator: slicegate_workload::TolerationOperator::Exists,
                    ..slicegate_workload::Toleration::default()
                });
            }
            sets.push((shape, u32::try_from(set.count).unwrap_or(0)));
        }
        if queued && let Some((shape, _)) = sets.first() {
            self.make_queued_pool(&shape.clone());
        }
        let mut why = Impossible::NoQueuedPool;
        let mut found = Vec::new();
        for (i, pool) in self.nodes.pools.iter().enumerate() {
            if pool.queued != queued {
                continue;
            }
            if !sets.iter().all(|(shape, _)| pool.matches(shape) && pool.could_hold(shape)) {
                if matches!(why, Impossible::NoQueuedPool) {
                    why = Impossible::NotSchedulable;
                }
                continue;
            }
            let wanted: u32 = sets.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count));
            let most = pool.autoscaling.map_or(pool.target(), |(_, most)| most);
            let unused = pool
                .nodes
                .iter()
                .filter(|id| self.nodes.node(**id).is_some_and(|n| n.pods.is_empty() && !n.cordoned))
                .count();
            let unused = u32::try_from(unused).unwrap_or(u32::MAX);
            let (fits, nodes, free) = match pool.growth {
                Growth::Whole { hosts } => {
                    let new = pool.target() == 0 && hosts <= most;
                    let old = !queued && unused == hosts;
                    (wanted <= hosts && hosts <= most.max(pool.target()), if new { hosts } else { 0 }, new || old)
                }
                // A pod a node; several small pods to a node are not counted on.
                Growth::ByNode => {
                    let reuse = if queued { 0 } else { unused.min(wanted) };
                    let nodes = wanted - reuse;
                    let room = most.saturating_sub(pool.target());
                    (wanted <= most, nodes, nodes <= room)
                }
            };
            if fits {
                found.push(Candidate { pool: PoolId(i), nodes, free: free && pool.booked.is_none() });
            } else {
                why = match pool.growth {
                    Growth::Whole { hosts } if wanted > hosts => Impossible::SingleZone,
                    _ => Impossible::NodePoolSize,
                };
            }
        }
        if found.is_empty() { Err(why) } else { Ok(found) }
    }

    /// Without pools in the documents, makes the queued pool that a request selects.
    fn make_queued_pool(&mut self, shape: &Shape) {
        if self.nodes.pools.iter().any(|pool| pool.origin != Origin::Made) {
            return;
        }
        let served = |pool: &Pool| {
            pool.queued && pool.matches(shape) && pool.could_hold(shape) && pool.target() == 0 && pool.booked.is_none()
        };
        if self.nodes.pools.iter().any(served) {
            return;
        }
        let name = self.made_pool_name(shape);
        if self.nodes.pool_named(&name).is_none()
            && let Some(pool) = Pool::for_shape(&name, shape, true)
        {
            self.nodes.add_pool(pool);
        }
    }
}

/// The name of the resize request behind a ProvisioningRequest.
fn resize_request_name(key: &ObjectRef) -> String {
    let cut = |text: &str| text.chars().take(20).collect::<String>();
    let hash: String = names::uid(&["resize", &key.namespace, &key.name]).replace('-', "").chars().take(16).collect();
    format!("gke-{}-{}-{hash}", cut(&key.namespace), cut(&key.name))
}
