//! Job integrations: how each kind of job is read, started and stopped.

pub mod batch;
pub(crate) mod jobset;
pub mod ray;
pub(crate) mod raycluster;
pub(crate) mod rayjob;

use std::sync::Arc;

use slicegate_admission::Gates;
use slicegate_api::defaulting::OWN_CONTROLLERS;
use slicegate_api::{Object, ObjectMeta, kueue, ray::RayCluster};

use crate::keys;
use crate::podset::{Conflict, FlavorMissing, PodSetInfo};
use crate::topology_request::TopologyRequestError;

pub use slicegate_api::owner::JOB_KINDS as KINDS;

/// What a job needs to know of its surroundings.
pub struct JobContext<'a> {
    /// Switches.
    pub gates: &'a Gates,
    /// A RayCluster by name, in the namespace of the job.
    pub ray_cluster: &'a dyn Fn(&str) -> Option<Arc<RayCluster>>,
}

/// A job cannot be read or started as it is.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JobError {
    /// The number of pod sets changed.
    #[error("invalid podset infos: expecting {expected} podset, got {got}")]
    PodSetCount {
        /// Of the job.
        expected: usize,
        /// Of the Workload.
        got: usize,
    },
    /// What is to be put into the pods contradicts what they say.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// Two admission checks contradict one another.
    #[error("in admission check {check:?}: {conflict}")]
    CheckConflict {
        /// The later of the two.
        check: String,
        /// What they say.
        conflict: Conflict,
    },
    /// A flavor is missing.
    #[error(transparent)]
    Flavor(#[from] FlavorMissing),
    /// An annotation about topology cannot be read.
    #[error(transparent)]
    Topology(#[from] TopologyRequestError),
    /// The head of a Ray cluster has no container.
    #[error("cannot account for Redis cleanup resources: head pod template must include the Ray container")]
    NoHeadContainer,
    /// A Ray cluster has a worker group that its job does not have.
    #[error(
        "PodSet name mismatch: RayCluster {cluster} has worker group {group} which is not found in Ray object {job} spec"
    )]
    UnknownWorkerGroup {
        /// The cluster.
        cluster: String,
        /// The group.
        group: String,
        /// The job.
        job: String,
    },
}

/// How a job ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finished {
    /// Whether it succeeded.
    pub success: bool,
    /// What it says about it.
    pub message: String,
}

/// How far the stopping of a job got with one call of [`Integration::stop`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// It was stopped and as before it was started.
    Done,
    /// Metadata and spec changed, and must be written before it goes on.
    Changed,
    /// The status changed, and must be written before it goes on.
    StatusChanged,
    /// Its own controller is yet to take notice that it is suspended.
    Waiting,
}

/// A kind of job.
pub trait Integration {
    /// Its metadata.
    fn metadata(&self) -> &ObjectMeta;

    /// The API group of the kind.
    fn group(&self) -> &'static str;

    /// Whether none of its pods may run.
    fn is_suspended(&self) -> bool;

    /// Lets none of its pods run.
    fn suspend(&mut self);

    /// Its groups of equal pods, in a fixed order.
    fn pod_sets(&self, context: &JobContext<'_>) -> Result<Vec<kueue::PodSet>, JobError>;

    /// Starts it, with `infos` put into its pods, one for every pod set in order.
    ///
    /// # Errors
    /// If that is impossible; what the job is like then is not defined.
    fn run(&mut self, infos: &[PodSetInfo], context: &JobContext<'_>) -> Result<(), JobError>;

    /// Makes its pods as they were before it was started. Returns whether anything changed.
    fn restore(&mut self, infos: &[PodSetInfo], context: &JobContext<'_>) -> bool;

    /// Takes the next step towards being stopped and as it was before it was started.
    fn stop(&mut self, infos: &[PodSetInfo], context: &JobContext<'_>) -> Stop {
        let was_running = !self.is_suspended();
        if was_running {
            self.suspend();
        }
        if self.restore(infos, context) || was_running { Stop::Changed } else { Stop::Done }
    }

    /// Whether pods of it run or may be running, as far as it says so itself.
    fn is_active(&self) -> bool;

    /// Whether its own controller has taken notice that it is suspended; what it began before, it has ended then.
    fn has_settled(&self) -> bool {
        true
    }

    /// Whether all of its pods are ready or done.
    fn pods_ready(&self) -> bool;

    /// How it ended; `None` if it has not.
    fn finished(&self) -> Option<Finished>;

    /// Pods that will not run again.
    fn reclaimable_pods(&self) -> Vec<kueue::ReclaimablePod> {
        Vec::new()
    }

    /// Whether it runs on capacity of another job and is no business of ours.
    fn skip(&self) -> bool {
        false
    }

    /// Whether it is set aside for now and needs no quota.
    fn on_hold(&self) -> bool {
        false
    }

    /// How many pods of a pod set have a node pool to themselves; `None` if pods of others may share it.
    fn pods_per_pool(&self, _pod_set: &str) -> Option<u32> {
        None
    }

    /// Whether its size may change while it runs.
    fn is_elastic(&self, gates: &Gates) -> bool {
        gates.elastic_jobs_via_workload_slices && annotation(self.metadata(), keys::ELASTIC_JOB) == Some("true")
    }
}

/// The pod sets of the Workload that would be made for a job, in order; `None` if the object is no job or its topology
/// annotations cannot be read. The object is taken as it is: defaults of webhooks are not filled in.
pub fn pod_sets_of(object: &Object, gates: &Gates) -> Option<Vec<kueue::PodSet>> {
    let context = JobContext { gates, ray_cluster: &|_| None };
    as_job(object)?.pod_sets(&context).ok()
}

/// The annotation of an object.
pub(crate) fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The label of an object.
pub(crate) fn label<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// Whether a job that is suspended may have run before, and its kind's own controller says when that is over: what it asks for was
/// changed since it was made.
pub(crate) fn may_have_run(metadata: &ObjectMeta, managed_by: Option<&str>) -> bool {
    metadata.generation.is_some_and(|generation| generation > 1)
        && managed_by.is_none_or(|by| OWN_CONTROLLERS.contains(&by))
}

/// The object as a job; `None` if its kind is none.
pub fn as_job(object: &Object) -> Option<&dyn Integration> {
    match object {
        Object::Job(o) => Some(o.as_ref()),
        Object::JobSet(o) => Some(o.as_ref()),
        Object::RayCluster(o) => Some(o.as_ref()),
        Object::RayJob(o) => Some(o.as_ref()),
        _ => None,
    }
}

/// The object as a job to be changed; it is copied first if it is shared.
pub fn as_job_mut(object: &mut Object) -> Option<&mut dyn Integration> {
    Some(match object {
        Object::Job(o) => own(o),
        Object::JobSet(o) => own(o),
        Object::RayCluster(o) => own(o),
        Object::RayJob(o) => own(o),
        _ => return None,
    })
}

fn own<T: Integration + Clone>(object: &mut Arc<T>) -> &mut dyn Integration {
    Arc::<T>::make_mut(object)
}

/// Checks that there is one info for every pod set.
pub(crate) fn expect_infos(expected: usize, infos: &[PodSetInfo]) -> Result<(), JobError> {
    if infos.len() == expected { Ok(()) } else { Err(JobError::PodSetCount { expected, got: infos.len() }) }
}
