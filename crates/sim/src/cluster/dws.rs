//! The Dynamic Workload Scheduler: ProvisioningRequests are met as a whole, from one pool, or not at all.

use std::sync::Arc;

use slicegate_api::provisioning::ProvisioningRequest;
use slicegate_api::{Condition, Kind, Object, ObjectRef};

use super::PoolId;
use super::pool::{Growth, Origin, Pool};
use super::shape::Shape;
use crate::duration::words;
use crate::names;
use crate::store::{api_time, sim_time};
use crate::timeline::EntryKind;
use crate::world::{Event, World};

/// The class that queues for capacity.
const QUEUED: &str = "queued-provisioning.gke.io";
const CHECK_CAPACITY: &str = "check-capacity.autoscaling.x-k8s.io";
const ATOMIC: &str = "best-effort-atomic-scale-up.autoscaling.x-k8s.io";

/// What is next for a ProvisioningRequest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Capacity may have been found.
    Search,
    /// Nobody waits any longer.
    GiveUp,
    /// The nodes are no longer kept for it.
    Expire,
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
        let wait = self.settings.dws_finds_capacity;
        let text = format!("ProvisioningRequest {} accepted: queued for DWS capacity", key.name);
        self.say(job, EntryKind::ProvisioningRequest, text);
        let uid: Box<str> = request.metadata.uid.as_deref().unwrap_or_default().into();
        let event = |step| Event::Request { request: key.clone(), uid: uid.clone(), step };
        let valid_for = request.spec.parameters.get("ValidUntilSeconds").and_then(|s| s.parse::<i64>().ok());
        let patience = valid_for.map_or(self.settings.dws_gives_up, |s| s.saturating_mul(1_000_000));
        self.queue.schedule(self.now.plus_micros(wait), event(Step::Search));
        self.queue.schedule(self.now.plus_micros(patience), event(Step::GiveUp));
    }

    fn fail(&mut self, key: &ObjectRef, reason: &str, message: &str) {
        let job = self.job_of_request(key);
        self.set_request(key, "Failed", reason, message);
        self.searching.remove(key);
        self.say(job, EntryKind::ProvisioningRequest, format!("ProvisioningRequest {} failed: {message}", key.name));
    }

    /// Something is due for a request.
    pub(crate) fn request_step(&mut self, key: &ObjectRef, uid: &str, step: Step) {
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
            Step::Expire if provisioned => {
                self.set_request(key, "BookingExpired", "BookingExpired", "Booking expired.");
            }
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
        let uid: Box<str> = request.metadata.uid.as_deref().unwrap_or_default().into();
        let event = Event::Request { request: key.clone(), uid, step: Step::Expire };
        self.queue.schedule(self.now.plus_seconds(600), event);
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
            let unused =
                pool.nodes.iter().filter(|id| self.nodes.node(**id).is_some_and(|n| n.pods.is_empty())).count();
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
