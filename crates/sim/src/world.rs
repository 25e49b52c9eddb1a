//! Everything but the controller under simulation: store, clock, cluster, and the controllers of others.

use std::collections::{BTreeMap, BTreeSet};

use slicegate_api::scenario::RUN_TIME;
use slicegate_api::{Kind, Object, ObjectRef, Pod};
use slicegate_controller::Change;
use slicegate_workload::Timestamp;

use crate::clock::EventQueue;
use crate::cluster::dws::Step;
use crate::cluster::published::Published;
use crate::cluster::slices::Slices;
use crate::cluster::{ClassId, NodeId, Nodes, PoolId, slice_check};
use crate::defaults::annotation;
use crate::duration::parse_duration;
use crate::narrator::Narrator;
use crate::plan::{Action, Settings};
use crate::report::Gauge;
use crate::store::{Store, controller_of};
use crate::timeline::{Entry, EntryKind};
use crate::verdict::{JobVerdict, verdict_on};
use crate::workloads::pod_failures::PodFailures;

/// Something that is due.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Event {
    /// The scenario's step of this number.
    Scripted(usize),
    /// What follows from an earlier step of the scenario.
    Follow(Box<Action>),
    /// The containers of a pod start.
    PodStart { pod: ObjectRef, uid: Box<str> },
    /// They end.
    PodFinish { pod: ObjectRef, uid: Box<str>, restarts: i32 },
    /// A pod that was told to stop has stopped.
    PodGone { pod: ObjectRef, uid: Box<str> },
    /// The Job controller tries again to make pods.
    JobRetry { job: ObjectRef },
    /// The program of a RayJob without submitter ends.
    RayDone { job: ObjectRef, uid: Box<str>, id: Box<str> },
    /// Nodes come.
    NodesReady { pool: PoolId, number: u64 },
    /// Nodes may have been idle for long enough.
    ScaleDown { pool: PoolId, idle_since: Timestamp },
    /// The nodes of a broken host's slice are given up.
    NodesLost { pool: PoolId, nodes: Vec<NodeId>, repair: Option<i64> },
    /// Nodes come back from their repair.
    NodesBack { pool: PoolId, number: u64 },
    /// A ProvisioningRequest goes on.
    Request { request: ObjectRef, uid: Box<str>, step: Step },
    /// Forming a Slice is done.
    SliceFormed { slice: Box<str>, uid: Box<str> },
    /// A workload has waited long enough for its Slices, the first of which is this one.
    SlicesLate { workload: ObjectRef, slice: Box<str>, uid: Box<str> },
    /// A finished object has lived long enough.
    Expire { object: ObjectRef, uid: Box<str> },
    /// The controller asked to be called.
    Wake,
}

/// Objects that their controllers have to look at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dirty {
    pub(crate) jobsets: BTreeSet<ObjectRef>,
    pub(crate) jobs: BTreeSet<ObjectRef>,
    pub(crate) rayjobs: BTreeSet<ObjectRef>,
    pub(crate) ray_clusters: BTreeSet<ObjectRef>,
    pub(crate) requests: BTreeSet<ObjectRef>,
}

/// The simulated world.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) queue: EventQueue<Event>,
    pub(crate) now: Timestamp,
    pub(crate) settings: Settings,
    pub(crate) nodes: Nodes,
    pub(crate) published: Published,
    pub(crate) dirty: Dirty,
    pub(crate) slices: Slices,
    pub(crate) timeline: Vec<Entry>,
    pub(crate) warnings: Vec<String>,
    warned: BTreeSet<String>,
    pub(crate) narrator: Narrator,
    pub(crate) pods_made: u64,
    pub(crate) scale_ups: u64,
    pub(crate) ips: u32,
    pub(crate) told_running: BTreeSet<ObjectRef>,
    pub(crate) told_waiting: BTreeSet<ObjectRef>,
    pub(crate) retrying: BTreeSet<ObjectRef>,
    pub(crate) terminating: BTreeSet<Box<str>>,
    pub(crate) idle_watch: BTreeSet<(PoolId, Timestamp)>,
    pub(crate) searching: BTreeSet<ObjectRef>,
    pub(crate) stuck: BTreeSet<ClassId>,
    /// The pods of Jobs that failed, by the uid of the Job.
    pub(crate) failures: BTreeMap<Box<str>, PodFailures>,
    /// Pods that their Job has counted or does not want any more, by uid.
    pub(crate) untracked: BTreeSet<Box<str>>,
    /// How well the chips are used.
    pub(crate) gauge: Gauge,
    /// What became of jobs that were deleted because their time to live was over.
    pub(crate) expired: BTreeMap<ObjectRef, JobVerdict>,
    /// Jobs that cannot run for a reason that no workload, pod or node shows.
    pub(crate) hopeless: BTreeMap<ObjectRef, String>,
    /// Objects whose last write by the controller was refused, and why.
    pub(crate) refused: BTreeMap<ObjectRef, String>,
}

/// The most Jobs of a JobSet, pods of a Job or workers of a Ray cluster that are simulated.
const MOST_CHILDREN: i64 = 100_000;

impl World {
    pub(crate) fn new(settings: Settings, keep_history: bool) -> Self {
        let now = settings.start;
        let mut store = Store::new(keep_history);
        store.set_now(now);
        Self { store, now, settings, ..Self::default() }
    }

    pub(crate) fn set_now(&mut self, now: Timestamp) {
        self.now = now;
        self.store.set_now(now);
    }

    /// Adds a line to the timeline.
    pub(crate) fn say(&mut self, object: Option<ObjectRef>, kind: EntryKind, text: String) {
        self.timeline.push(Entry { time: self.now, object, kind, text, details: Vec::new() });
    }

    /// Warns of something, once.
    pub(crate) fn warn(&mut self, text: String) {
        if self.warned.insert(text.clone()) {
            self.warnings.push(text);
        }
    }

    /// Whether a job asks for more objects than are simulated; it then gets none of them, and it is said why.
    pub(crate) fn is_too_large(&mut self, job: &ObjectRef, count: i64, what: &str) -> bool {
        if count <= MOST_CHILDREN {
            return false;
        }
        let top = self.top_owner(job).unwrap_or_else(|| job.clone());
        let text = format!("it asks for {count} {what}, and no more than {MOST_CHILDREN} are simulated: none is made");
        self.warn(format!("{top}: {text}"));
        self.hopeless.insert(top, text);
        true
    }

    /// How long a job runs: by its annotation, by name in the scenario, or as long as all.
    pub(crate) fn run_time_of(&self, object: &Object) -> i64 {
        let named = |key: &str| self.settings.run_times.get(key).copied();
        annotation(object.metadata(), RUN_TIME)
            .and_then(|text| parse_duration(text).ok())
            .or_else(|| named(&format!("{}/{}", object.kind(), object.name())))
            .or_else(|| named(&format!("{}/{}/{}", object.kind(), object.namespace(), object.name())))
            .or_else(|| named(object.name()))
            .unwrap_or(self.settings.run_time)
    }

    /// The object at the top of a chain of owners.
    pub(crate) fn top_owner(&self, key: &ObjectRef) -> Option<ObjectRef> {
        let mut key = key.clone();
        // No chain in use is longer.
        for _ in 0..8 {
            let object = self.store.get(&key)?;
            let Some(owner) = controller_of(object) else { return Some(key) };
            let Some(kind) = Kind::ALL.iter().copied().find(|kind| kind.as_str() == owner.kind) else {
                return Some(key);
            };
            let namespace = if kind.is_namespaced() { key.namespace.clone() } else { "".into() };
            let above = ObjectRef::new(kind, namespace, owner.name.as_str());
            if self.store.get(&above).is_none() {
                return Some(key);
            }
            key = above;
        }
        Some(key)
    }

    pub(crate) fn job_of_pod(&self, pod: &ObjectRef) -> Option<ObjectRef> {
        self.top_owner(pod)
    }

    pub(crate) fn job_of_request(&self, request: &ObjectRef) -> Option<ObjectRef> {
        self.top_owner(request)
    }

    /// Something that was due happens.
    pub(crate) fn happen(&mut self, event: Event) {
        match event {
            Event::PodStart { pod, uid } => self.pod_start(&pod, &uid),
            Event::PodFinish { pod, uid, restarts } => self.pod_finish(&pod, &uid, restarts),
            Event::PodGone { pod, uid } => self.pod_gone(&pod, &uid),
            Event::JobRetry { job } => {
                self.retrying.remove(&job);
                self.dirty.jobs.insert(job);
            }
            Event::RayDone { job, uid, id } => self.ray_done(&job, &uid, &id),
            Event::NodesReady { pool, number } => self.nodes_ready(pool, number),
            Event::NodesLost { pool, nodes, repair } => self.nodes_lost(pool, &nodes, repair),
            Event::NodesBack { pool, number } => self.nodes_back(pool, number),
            Event::ScaleDown { pool, idle_since } => self.scale_down(pool, idle_since),
            Event::Request { request, uid, step } => self.request_step(&request, &uid, step),
            Event::SliceFormed { slice, uid } => self.slice_formed(&slice, &uid),
            Event::SlicesLate { workload, slice, uid } => self.slices_late(&workload, &slice, &uid),
            Event::Expire { object, uid } => {
                if self.store.get(&object).is_some_and(|now| now.uid() == &*uid) {
                    if let Some(verdict) = verdict_on(self, &object) {
                        self.expired.insert(object.clone(), verdict);
                    }
                    self.store.delete(&object);
                }
            }
            Event::Follow(action) => self.play(*action),
            Event::Scripted(_) | Event::Wake => {}
        }
    }

    /// Marks what has to look at a change.
    pub(crate) fn dispatch(&mut self, change: &Change) {
        let (object, gone) = match change {
            Change::Applied(object) => (object, false),
            Change::Deleted(object) => (object, true),
        };
        self.narrate(object, gone);
        let key = object.reference();
        if let Some(owner) = controller_of(object) {
            let above = |kind| ObjectRef::new(kind, &*key.namespace, owner.name.as_str());
            match owner.kind.as_str() {
                "JobSet" => _ = self.dirty.jobsets.insert(above(Kind::JobSet)),
                "Job" => _ = self.dirty.jobs.insert(above(Kind::Job)),
                "RayJob" => _ = self.dirty.rayjobs.insert(above(Kind::RayJob)),
                "RayCluster" => _ = self.dirty.ray_clusters.insert(above(Kind::RayCluster)),
                _ => {}
            }
        }
        match object {
            Object::JobSet(_) => {
                self.gauge.job_changed(&key);
                self.dirty.jobsets.insert(key);
            }
            Object::Job(job) => {
                if gone {
                    self.failures.remove(job.metadata.uid.as_deref().unwrap_or_default());
                }
                self.gauge.job_changed(&key);
                self.dirty.jobs.insert(key);
            }
            Object::RayJob(_) => {
                self.gauge.job_changed(&key);
                self.dirty.rayjobs.insert(key);
            }
            Object::RayCluster(_) => {
                if let Some(top) = self.top_owner(&key) {
                    self.gauge.job_changed(&top);
                }
                self.dirty.ray_clusters.insert(key);
            }
            Object::ProvisioningRequest(_) => _ = self.dirty.requests.insert(key),
            Object::Pod(pod) => {
                if !gone && pod.status.as_ref().is_none_or(|s| s.phase.as_deref() == Some("Pending")) {
                    self.look_for_missing(pod);
                }
                self.observe_pod(&key, pod, gone);
                self.gauge.pod_changed(&key);
                if (gone || crate::cluster::is_over(pod)) && !self.slices.closing.is_empty() {
                    let closing = std::mem::take(&mut self.slices.closing);
                    self.slices.dirty.extend(closing);
                }
            }
            Object::Node(_) => {
                self.observe_node(object, gone);
                self.slices.changed = true;
            }
            Object::AdmissionCheck(_) => self.note_slice_check(object, gone),
            Object::Slice(slice) => {
                self.slices.changed = true;
                self.slices.dirty.extend(slice_check::owner(&slice.metadata));
            }
            Object::Workload(_) if !self.slices.checks.is_empty() => _ = self.slices.dirty.insert(key),
            Object::ResourceFlavor(_) if !gone => self.note_flavor(object),
            _ => {}
        }
    }

    /// ConfigMaps and Secrets that no document describes are taken to be there.
    fn look_for_missing(&mut self, pod: &Pod) {
        let Some(spec) = &pod.spec else { return };
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let mut wanted = Vec::new();
        for volume in spec.volumes.iter().flatten() {
            if let Some(map) = volume.config_map.as_ref().filter(|map| map.optional != Some(true)) {
                wanted.push((Kind::ConfigMap, map.name.clone()));
            }
            if let Some(secret) = volume.secret.as_ref().filter(|secret| secret.optional != Some(true)) {
                wanted.push((Kind::Secret, secret.secret_name.clone().unwrap_or_default()));
            }
        }
        for source in spec.containers.iter().flat_map(|c| c.env_from.iter().flatten()) {
            if let Some(map) = source.config_map_ref.as_ref().filter(|map| map.optional != Some(true)) {
                wanted.push((Kind::ConfigMap, map.name.clone()));
            }
            if let Some(secret) = source.secret_ref.as_ref().filter(|secret| secret.optional != Some(true)) {
                wanted.push((Kind::Secret, secret.name.clone()));
            }
        }
        for (kind, name) in wanted {
            let key = ObjectRef::new(kind, namespace, name);
            if self.store.get(&key).is_none() {
                self.warn(format!("{key} is used by pods, but no document describes it; it is taken to be there"));
            }
        }
    }

    /// Lets the controllers of jobs and the scheduler look at what changed. Answers whether there may be more to do.
    pub(crate) fn work(&mut self) -> bool {
        let mut any = false;
        for key in std::mem::take(&mut self.dirty.jobsets) {
            self.sync_jobset(&key);
            any = true;
        }
        for key in std::mem::take(&mut self.dirty.jobs) {
            self.sync_job(&key);
            any = true;
        }
        for key in std::mem::take(&mut self.dirty.rayjobs) {
            self.sync_rayjob(&key);
            any = true;
        }
        for key in std::mem::take(&mut self.dirty.ray_clusters) {
            self.sync_ray_cluster(&key);
            any = true;
        }
        for key in std::mem::take(&mut self.dirty.requests) {
            self.sync_request(&key);
            any = true;
        }
        if std::mem::take(&mut self.slices.changed) {
            self.sync_slices();
        }
        for key in std::mem::take(&mut self.slices.dirty) {
            self.sync_slice_check(&key);
            any = true;
        }
        any || self.store.has_changes() || self.schedule_pods()
    }
}
