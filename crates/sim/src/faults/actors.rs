//! Everybody but the controller: users, admins, the controllers of jobs, and those who decide on checks.

use std::sync::Arc;

use serde_json::Value;

use slicegate_api::jobset::{JobSet, ReplicatedJobStatus};
use slicegate_api::provisioning::ProvisioningRequest;
use slicegate_api::{Condition, Job, Kind, Object, ObjectRef, Quantity, kueue};

use super::dice::place;
use super::rules::{self, JOBS};
use super::server::Server;
use super::setup::{self, CHECK, CUT, QUOTAS, Setup};
use crate::store::api_time;

/// The most jobs of a run that are not finished.
const MOST_JOBS: usize = 14;
const PRIORITY: &str = "kueue.x-k8s.io/priority-class";

pub(super) fn condition(server: &Server, kind: &str, status: &str, reason: &str) -> Condition {
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: String::new(),
        last_transition_time: api_time(server.now),
        observed_generation: None,
    }
}

pub(super) fn is_suspended(object: &Object) -> bool {
    match object {
        Object::Job(j) => j.spec.as_ref().and_then(|s| s.suspend) == Some(true),
        Object::JobSet(j) => j.spec.suspend == Some(true),
        _ => true,
    }
}

pub(super) fn job_is_finished(object: &Object) -> bool {
    match object {
        Object::Job(j) => {
            let conditions = j.status.as_ref().and_then(|s| s.conditions.as_ref());
            conditions.is_some_and(|c| c.iter().any(|c| matches!(c.type_.as_str(), "Complete" | "Failed")))
        }
        Object::JobSet(j) => rules::is_true(&j.status.conditions, "Completed"),
        _ => true,
    }
}

pub(super) fn active(object: &Object) -> i32 {
    match object {
        Object::Job(j) => j.status.as_ref().and_then(|s| s.active).unwrap_or(0),
        Object::JobSet(j) => j.status.replicated_jobs_status.iter().map(|s| s.active).sum(),
        _ => 0,
    }
}

/// Whether its controller says that the job is suspended.
fn is_told_suspended(object: &Object) -> bool {
    match object {
        Object::Job(j) => {
            let conditions = j.status.as_ref().and_then(|s| s.conditions.as_ref());
            conditions.is_some_and(|c| c.iter().any(|c| c.type_ == "Suspended" && c.status == "True"))
        }
        Object::JobSet(j) => rules::is_true(&j.status.conditions, "Suspended"),
        _ => true,
    }
}

/// Whether a job may have run and is suspended, and its controller has not taken notice of that.
pub(super) fn is_unnoticed(object: &Object) -> bool {
    let changed = object.metadata().generation.is_some_and(|g| g > 1);
    is_suspended(object) && changed && !is_told_suspended(object)
}

/// Whether there is something to do for the controller of a job: pods to make or to stop, or to say so.
pub(super) fn is_due(object: &Object) -> bool {
    let (suspended, active) = (is_suspended(object), active(object) > 0);
    suspended == active || is_unnoticed(object) || !suspended && is_told_suspended(object)
}

/// All jobs, finished or not.
pub(super) fn jobs(server: &Server) -> Vec<Object> {
    JOBS.iter().flat_map(|kind| server.all(*kind)).collect()
}

pub(super) fn open_jobs(server: &Server) -> Vec<Object> {
    jobs(server).into_iter().filter(|j| !job_is_finished(j)).collect()
}

pub(super) fn chosen<T: Clone>(all: &[T], which: u16) -> Option<T> {
    all.get(place(which, all.len())).cloned()
}

// ----- the controllers of jobs -----

fn edit_job(server: &mut Server, job: &Arc<Job>, edit: impl FnOnce(&mut Job)) {
    let mut new = (**job).clone();
    edit(&mut new);
    server.put(new.into());
}

fn edit_jobset(server: &mut Server, jobset: &Arc<JobSet>, edit: impl FnOnce(&mut ReplicatedJobStatus, i32)) {
    let mut new = (**jobset).clone();
    let replicas = new.spec.replicated_jobs.first().and_then(|j| j.replicas).unwrap_or(1);
    let mut all = std::mem::take(&mut new.status.replicated_jobs_status);
    let mut status =
        all.pop().unwrap_or_else(|| ReplicatedJobStatus { name: "slice".to_owned(), ..Default::default() });
    edit(&mut status, replicas);
    new.status.replicated_jobs_status = vec![status];
    server.put(new.into());
}

/// Pods come once a job may run, and go once it may not; its controller says so.
pub(super) fn pods(server: &mut Server, object: &Object) {
    let suspended = is_suspended(object);
    let tells = suspended || is_told_suspended(object);
    let told = condition(server, "Suspended", if suspended { "True" } else { "False" }, "Suspended");
    match object {
        Object::Job(job) => {
            let now = api_time(server.now);
            edit_job(server, job, |job| {
                if tells {
                    let all = job.status.get_or_insert_default().conditions.get_or_insert_default();
                    all.retain(|c| c.type_ != "Suspended");
                    all.push(k8s_openapi::api::batch::v1::JobCondition {
                        type_: told.type_,
                        status: told.status,
                        last_transition_time: Some(now.clone()),
                        ..Default::default()
                    });
                }
                let wanted = job.spec.as_ref().and_then(|s| s.parallelism).unwrap_or(1);
                let status = job.status.get_or_insert_default();
                if suspended {
                    status.active = None;
                    status.ready = None;
                } else {
                    status.start_time.get_or_insert(now);
                    let left = 8 - status.succeeded.unwrap_or(0);
                    status.active = Some(wanted.min(left));
                    status.ready = status.ready.map(|r| r.min(wanted));
                }
            });
        }
        Object::JobSet(jobset) => {
            let mut new = (**jobset).clone();
            if tells {
                new.status.conditions.retain(|c| c.type_ != "Suspended");
                new.status.conditions.push(told);
            }
            edit_jobset(server, &Arc::new(new), |status, replicas| {
                if suspended {
                    status.active = 0;
                    status.ready = 0;
                    status.succeeded = 0;
                } else {
                    status.active = (replicas - status.succeeded).max(0);
                }
            });
        }
        _ => {}
    }
}

pub(super) fn ready(server: &mut Server, object: &Object) {
    match object {
        Object::Job(job) => edit_job(server, job, |job| {
            let status = job.status.get_or_insert_default();
            status.ready = status.active;
        }),
        Object::JobSet(jobset) => edit_jobset(server, jobset, |status, _| status.ready = status.active),
        _ => {}
    }
}

fn pod_fails(server: &mut Server, object: &Object) {
    match object {
        Object::Job(job) => edit_job(server, job, |job| {
            let status = job.status.get_or_insert_default();
            status.ready = status.ready.map(|r| (r - 1).max(0));
        }),
        Object::JobSet(jobset) => edit_jobset(server, jobset, |status, _| status.ready = (status.ready - 1).max(0)),
        _ => {}
    }
}

fn pod_done(server: &mut Server, object: &Object) {
    match object {
        Object::Job(job) => edit_job(server, job, |job| {
            let status = job.status.get_or_insert_default();
            if status.active.unwrap_or(0) > 1 {
                status.active = status.active.map(|a| a - 1);
                status.ready = status.ready.map(|r| (r - 1).max(0));
                status.succeeded = Some(status.succeeded.unwrap_or(0) + 1);
            }
        }),
        Object::JobSet(jobset) => edit_jobset(server, jobset, |status, _| {
            if status.active > 1 {
                status.active -= 1;
                status.ready = (status.ready - 1).max(0);
                status.succeeded += 1;
            }
        }),
        _ => {}
    }
}

pub(super) fn finish(server: &mut Server, object: &Object, fails: bool) {
    let done = condition(server, "Completed", "True", "AllJobsCompleted");
    let now = api_time(server.now);
    match object {
        Object::Job(job) => edit_job(server, job, |job| {
            let status = job.status.get_or_insert_default();
            status.active = None;
            status.ready = None;
            status.completion_time = Some(now.clone());
            status.conditions.get_or_insert_default().push(k8s_openapi::api::batch::v1::JobCondition {
                type_: if fails { "Failed" } else { "Complete" }.to_owned(),
                status: "True".to_owned(),
                last_transition_time: Some(now),
                ..Default::default()
            });
        }),
        Object::JobSet(jobset) => {
            let mut new = (**jobset).clone();
            new.status.conditions.push(done);
            if let Some(status) = new.status.replicated_jobs_status.first_mut() {
                status.active = 0;
                status.ready = 0;
            }
            server.put(new.into());
        }
        _ => {}
    }
}

pub(super) fn job_step(server: &mut Server, what: super::step::Action, which: u16, how: u16) -> Option<String> {
    use super::step::Action;
    let open = open_jobs(server);
    let fits = |job: &&Object| match what {
        Action::Pods => is_due(job) || (how.is_multiple_of(8) && !is_suspended(job)),
        _ => !is_suspended(job) && active(job) > 0,
    };
    let fitting: Vec<Object> = open.iter().filter(fits).cloned().collect();
    let job = chosen(&fitting, which)?;
    match what {
        Action::Pods => pods(server, &job),
        Action::Ready => ready(server, &job),
        Action::PodFails => pod_fails(server, &job),
        Action::PodDone => pod_done(server, &job),
        _ => finish(server, &job, how.is_multiple_of(4)),
    }
    Some(job.reference().to_string())
}

// ----- users -----

pub(super) fn submit(server: &mut Server, setup: &Setup, number: usize, which: u16, how: u16) -> Option<String> {
    if open_jobs(server).len() >= MOST_JOBS {
        return None;
    }
    let queue = ["a", "b", "c"].get(place(which, 3)).copied()?;
    let elastic = setup.elastic && (which >> 4).is_multiple_of(2);
    let pods = i32::from(how % 4) + 1;
    let class = (how >> 4) % 3;
    let document = setup::job(&format!("j{number}"), queue, class, pods, elastic);
    server.create(setup::read(document)?);
    Some(format!(
        "Job j{number} of {pods} pods in {queue} with class p{class}{}",
        if elastic { ", elastic" } else { "" }
    ))
}

pub(super) fn submit_jobset(server: &mut Server, number: usize, which: u16, how: u16) -> Option<String> {
    if open_jobs(server).len() >= MOST_JOBS {
        return None;
    }
    let queue = ["a", "b", "c"].get(place(which, 3)).copied()?;
    let replicas = i32::from(how % 2) + 1;
    let class = (how >> 4) % 3;
    server.create(setup::read(setup::jobset(&format!("s{number}"), queue, class, replicas))?);
    Some(format!("JobSet s{number} of {replicas} Jobs in {queue} with class p{class}"))
}

pub(super) fn withdraw(server: &mut Server, which: u16) -> Option<String> {
    let job = chosen(&jobs(server), which)?;
    server.delete(&job.reference());
    Some(job.reference().to_string())
}

pub(super) fn resize(server: &mut Server, setup: &Setup, which: u16, how: u16) -> Option<String> {
    let open: Vec<Object> = open_jobs(server).into_iter().filter(|j| matches!(j, Object::Job(_))).collect();
    let Object::Job(job) = chosen(&open, which)? else { return None };
    let elastic = setup.elastic
        && job.metadata.annotations.as_ref().is_some_and(|a| a.contains_key("kueue.x-k8s.io/elastic-job"));
    // A size that is not elastic changes mostly before the job runs.
    if !elastic && job.spec.as_ref().and_then(|s| s.suspend) != Some(true) && !how.is_multiple_of(3) {
        return None;
    }
    let pods = i32::from(how % 4) + 1;
    edit_job(server, &job, |job| job.spec.get_or_insert_default().parallelism = Some(pods));
    Some(format!("{} to {pods} pods", Object::Job(job).reference()))
}

pub(super) fn relabel(server: &mut Server, key: &str, value: &str, which: u16) -> Option<String> {
    let open: Vec<Object> = open_jobs(server).into_iter().filter(|j| key == PRIORITY || is_suspended(j)).collect();
    let mut job = chosen(&open, which)?;
    job.metadata_mut().labels.get_or_insert_default().insert(key.to_owned(), value.to_owned());
    let text = format!("{} to {value}", job.reference());
    server.put(job);
    Some(text)
}

/// The annotation by which a job that left its queue knows where it was.
const LEFT: &str = "slicegate.dev/left-queue";

/// Takes a job out of its queue, or puts it back where it was.
pub(super) fn leave_queue(server: &mut Server, key: &str, mut job: Object) -> String {
    let reference = job.reference();
    let metadata = job.metadata_mut();
    let labels = metadata.labels.get_or_insert_default();
    let text = if let Some(queue) = metadata.annotations.as_mut().and_then(|all| all.remove(LEFT)) {
        let text = format!("{reference} is back in {queue}");
        labels.insert(key.to_owned(), queue);
        text
    } else {
        let queue = labels.remove(key).unwrap_or_default();
        metadata.annotations.get_or_insert_default().insert(LEFT.to_owned(), queue);
        format!("{reference} leaves its queue")
    };
    server.put(job);
    text
}

pub(super) fn reprioritize(server: &mut Server, which: u16, how: u16) -> Option<String> {
    relabel(server, PRIORITY, &format!("p{}", how % 3), which)
}

pub(super) fn change_class(server: &mut Server, which: u16, how: u16) -> Option<String> {
    let Object::WorkloadPriorityClass(class) = chosen(&server.all(Kind::WorkloadPriorityClass), which)? else {
        return None;
    };
    let mut new = (*class).clone();
    new.value = i32::from(how % 4);
    let text = format!("{:?} to {}", new.metadata.name, new.value);
    server.put(new.into());
    Some(text)
}

/// Starts or suspends a job by hand. Returns it and whether it is suspended now.
pub(super) fn toggle(server: &mut Server, which: u16) -> Option<(ObjectRef, bool)> {
    let mut job = chosen(&open_jobs(server), which)?;
    let suspended = !is_suspended(&job);
    match &mut job {
        Object::Job(j) => Arc::make_mut(j).spec.get_or_insert_default().suspend = Some(suspended),
        Object::JobSet(j) => Arc::make_mut(j).spec.suspend = Some(suspended),
        _ => {}
    }
    let reference = job.reference();
    server.put(job);
    Some((reference, suspended))
}

fn edit_workload(
    server: &mut Server,
    workload: &Arc<kueue::Workload>,
    edit: impl FnOnce(&mut kueue::Workload),
) -> String {
    let mut new = (**workload).clone();
    edit(&mut new);
    let object = Object::from(new);
    let text = object.reference().to_string();
    server.put(object);
    text
}

pub(super) fn open_workloads(server: &Server) -> Vec<Arc<kueue::Workload>> {
    server.workloads().filter(|w| !rules::is_finished(w) && w.metadata.deletion_timestamp.is_none()).cloned().collect()
}

pub(super) fn deactivate(server: &mut Server, which: u16) -> Option<String> {
    let workload = chosen(&open_workloads(server), which)?;
    Some(edit_workload(server, &workload, |w| w.spec.active = Some(false)))
}

/// Whether a workload was deactivated and gave its quota back: while it holds quota that does not count any more it is not
/// taken up again, for others may have that by then.
pub(super) fn may_return(workload: &Arc<kueue::Workload>) -> bool {
    workload.spec.active == Some(false) && workload.status.admission.is_none()
}

/// Takes a workload up again.
pub(super) fn set_active(server: &mut Server, workload: &Arc<kueue::Workload>) -> String {
    edit_workload(server, workload, |w| w.spec.active = Some(true))
}

pub(super) fn reactivate(server: &mut Server, which: u16) -> Option<String> {
    let all: Vec<_> = open_workloads(server).into_iter().filter(may_return).collect();
    let workload = chosen(&all, which)?;
    Some(set_active(server, &workload))
}

pub(super) fn delete_workload(server: &mut Server, which: u16) -> Option<String> {
    let workload = chosen(&open_workloads(server), which)?;
    let reference = Object::Workload(workload).reference();
    server.delete(&reference);
    Some(reference.to_string())
}

// ----- admins -----

fn policy(how: u16) -> Option<String> {
    match how % 4 {
        0 => Some("Hold".to_owned()),
        1 => Some("HoldAndDrain".to_owned()),
        _ => None,
    }
}

pub(super) fn stop_cluster_queue(server: &mut Server, which: u16, how: u16) -> Option<String> {
    let Object::ClusterQueue(queue) = chosen(&server.all(Kind::ClusterQueue), which)? else { return None };
    let mut new = (*queue).clone();
    new.spec.stop_policy = policy(how);
    let text = format!("{:?} {:?}", new.metadata.name, new.spec.stop_policy);
    server.put(new.into());
    Some(text)
}

pub(super) fn stop_local_queue(server: &mut Server, which: u16, how: u16) -> Option<String> {
    let Object::LocalQueue(queue) = chosen(&server.all(Kind::LocalQueue), which)? else { return None };
    let mut new = (*queue).clone();
    new.spec.stop_policy = policy(how);
    let text = format!("{:?} {:?}", new.metadata.name, new.spec.stop_policy);
    server.put(new.into());
    Some(text)
}

pub(super) fn change_quota(server: &mut Server, which: u16, how: u16) -> Option<String> {
    let Object::ClusterQueue(queue) = chosen(&server.all(Kind::ClusterQueue), which)? else { return None };
    let mut new = (*queue).clone();
    let name = new.metadata.name.clone().unwrap_or_default();
    let flavors = new.spec.resource_groups.first_mut()?;
    let many = flavors.flavors.len();
    let quotas = flavors.flavors.get_mut(place(how, many))?;
    let full = QUOTAS.iter().find(|(n, _)| *n == name)?.1.iter().find(|(f, ..)| *f == quotas.name)?.1;
    let resource = quotas.resources.first_mut()?;
    let quota = if resource.nominal_quota.0 == full.to_string() { CUT } else { full };
    resource.nominal_quota = Quantity(quota.to_string());
    let text = format!("{name} {} to {quota}", quotas.name);
    server.put(new.into());
    Some(text)
}

/// Makes an object if it is not there, and deletes it if it is.
fn drop_or_make(server: &mut Server, kind: Kind, namespace: &str, document: Value) -> Option<String> {
    let object = setup::read(document)?;
    let reference = ObjectRef::new(kind, namespace, object.name());
    if server.store.get(&reference).is_some() {
        server.delete(&reference);
        Some(format!("{reference} is deleted"))
    } else {
        server.create(object);
        Some(format!("{reference} is made"))
    }
}

pub(super) fn drop_queue(server: &mut Server, setup: &Setup, local: bool, which: u16) -> Option<String> {
    let name = ["a", "b", "c"].get(place(which, 3)).copied()?;
    if local {
        drop_or_make(server, Kind::LocalQueue, "default", setup::local_queue(name))
    } else {
        drop_or_make(server, Kind::ClusterQueue, "", setup.cluster_queue(name))
    }
}

pub(super) fn drop_flavor(server: &mut Server, which: u16) -> Option<String> {
    let name = ["std", "dws"].get(place(which, 2)).copied()?;
    drop_or_make(server, Kind::ResourceFlavor, "", setup::flavor(name))
}

pub(super) fn switch_check(server: &mut Server, on: Option<bool>) -> Option<String> {
    let Some(Object::AdmissionCheck(check)) = server.store.get(&ObjectRef::new(Kind::AdmissionCheck, "", CHECK)) else {
        return None;
    };
    let mut new = (**check).clone();
    let on = on.unwrap_or(!rules::is_true(&new.status.conditions, "Active"));
    if on == rules::is_true(&new.status.conditions, "Active") {
        return None;
    }
    new.status.conditions = vec![condition(server, "Active", if on { "True" } else { "False" }, "Active")];
    server.put(new.into());
    Some(format!("{CHECK} active={on}"))
}

// ----- those who decide on checks -----

/// Answers the check of a workload.
pub(super) fn set_check(
    server: &mut Server,
    workload: &Arc<kueue::Workload>,
    state: &str,
    delay: Option<i32>,
) -> String {
    let now = api_time(server.now);
    edit_workload(server, workload, |w| {
        for check in w.status.admission_checks.iter_mut().filter(|c| c.name == CHECK) {
            state.clone_into(&mut check.state);
            check.requeue_after_seconds = delay;
            check.last_transition_time = Some(now.clone());
            "so it is".clone_into(&mut check.message);
        }
    })
}

pub(super) fn answer_check(server: &mut Server, which: u16, how: u16) -> Option<String> {
    let all: Vec<_> = open_workloads(server)
        .into_iter()
        .filter(|w| {
            w.status.admission.is_some()
                && w.status
                    .admission_checks
                    .iter()
                    .any(|c| c.name == CHECK && (c.state == "Pending" || how.is_multiple_of(16)))
        })
        .collect();
    let workload = chosen(&all, which)?;
    let (state, delay) = match how % 10 {
        0 => ("Rejected", None),
        1 => ("Retry", None),
        2 => ("Retry", Some(i32::from(how >> 8))),
        _ => ("Ready", None),
    };
    let text = set_check(server, &workload, state, delay);
    Some(format!("{text} {state} {delay:?}"))
}

fn requests(server: &Server) -> Vec<Arc<ProvisioningRequest>> {
    let all = server.all(Kind::ProvisioningRequest);
    all.into_iter().filter_map(|o| if let Object::ProvisioningRequest(r) = o { Some(r) } else { None }).collect()
}

fn has(request: &ProvisioningRequest, kind: &str) -> bool {
    request.status.conditions.iter().any(|c| c.type_ == kind)
}

pub(super) fn answer_request(server: &mut Server, which: u16, how: u16, only_well: bool) -> Option<String> {
    let over = |r: &ProvisioningRequest| has(r, "Failed") || has(r, "BookingExpired") || has(r, "CapacityRevoked");
    let all: Vec<_> =
        requests(server).into_iter().filter(|r| !(over(r) || only_well && has(r, "Provisioned"))).collect();
    let request = chosen(&all, which)?;
    let kind = if !has(&request, "Accepted") {
        "Accepted"
    } else if !has(&request, "Provisioned") {
        if !only_well && how.is_multiple_of(4) { "Failed" } else { "Provisioned" }
    } else if how.is_multiple_of(6) {
        "CapacityRevoked"
    } else if how % 6 == 1 {
        "BookingExpired"
    } else {
        return None;
    };
    let mut new = (*request).clone();
    new.status.conditions.push(condition(server, kind, "True", kind));
    let object = Object::from(new);
    let text = format!("{} {kind}", object.reference());
    server.put(object);
    Some(text)
}

pub(super) fn drop_request(server: &mut Server, which: u16) -> Option<String> {
    let request = chosen(&requests(server), which)?;
    let reference = Object::ProvisioningRequest(request).reference();
    server.delete(&reference);
    Some(reference.to_string())
}

/// Somebody writes into the status of a workload what no run would leave there.
pub(super) fn meddle(server: &mut Server, which: u16, how: u16) -> Option<String> {
    let workload = chosen(&open_workloads(server), which)?;
    let later = api_time(server.now.plus_seconds(i64::from(how >> 8)));
    let word = |kind: &str, status: &str, reason: &str| condition(server, kind, status, reason);
    let said = match how % 6 {
        0 => Some(word("Evicted", "True", "Preempted")),
        1 => Some(word("PodsReady", "True", "Started")),
        2 => Some(word("Requeued", "False", "PodsReadyTimeout")),
        3 => Some(word("DeactivationTarget", "True", "RequeuingLimitExceeded")),
        4 => Some(word("Preempted", "True", "InClusterQueue")),
        _ => None,
    };
    let text = edit_workload(server, &workload, |w| match &said {
        Some(said) => {
            w.status.conditions.retain(|c| c.type_ != said.type_);
            w.status.conditions.push(said.clone());
        }
        None => w.status.requeue_state = Some(kueue::RequeueState { count: Some(1), requeue_at: Some(later) }),
    });
    Some(format!("{text} {:?}", said.map(|s| s.type_)))
}

/// Somebody changes an object in a way that does not matter.
pub(super) fn touch(server: &mut Server, reference: &ObjectRef, how: u16) {
    let Some(mut object) = server.store.get(reference).cloned() else { return };
    let annotations = object.metadata_mut().annotations.get_or_insert_default();
    let count = annotations.get("example.com/touched").map_or(0, String::len) + usize::from(how % 3) + 1;
    annotations.insert("example.com/touched".to_owned(), "x".repeat(count % 40));
    server.put(object);
}

/// Everything is as it was in the beginning, and nobody stands in the way of anything.
pub(super) fn restore(server: &mut Server, objects: &[Object]) -> bool {
    let before = server.log.len();
    for object in objects {
        let reference = object.reference();
        let Some(there) = server.store.get(&reference).cloned() else {
            server.create(object.clone());
            continue;
        };
        match (there, object) {
            (Object::ClusterQueue(there), Object::ClusterQueue(wanted)) if there.spec != wanted.spec => {
                let mut new = (*there).clone();
                new.spec = wanted.spec.clone();
                server.put(new.into());
            }
            (Object::LocalQueue(there), Object::LocalQueue(wanted)) if there.spec != wanted.spec => {
                let mut new = (*there).clone();
                new.spec = wanted.spec.clone();
                server.put(new.into());
            }
            _ => {}
        }
    }
    let _ = switch_check(server, Some(true));
    server.log.len() != before
}

/// The next step of everybody who wishes the jobs well; nothing if all is done.
pub(super) fn wish_well(server: &mut Server) -> Option<String> {
    for job in open_jobs(server) {
        if job.metadata().annotations.as_ref().is_some_and(|all| all.contains_key(LEFT)) {
            return Some(leave_queue(server, crate::defaults::QUEUE_NAME, job));
        }
        let suspended = is_suspended(&job);
        if is_due(&job) {
            pods(server, &job);
            return Some(format!("pods of {}", job.reference()));
        }
        let is_ready = match &job {
            Object::Job(j) => j.status.as_ref().is_some_and(|s| s.ready == s.active),
            Object::JobSet(j) => j.status.replicated_jobs_status.iter().all(|s| s.ready == s.active),
            _ => true,
        };
        if !suspended && !is_ready {
            ready(server, &job);
            return Some(format!("{} is ready", job.reference()));
        }
    }
    let now = api_time(server.now);
    for workload in open_workloads(server) {
        if may_return(&workload) {
            return Some(set_active(server, &workload));
        }
        let pending = |c: &kueue::AdmissionCheckState| c.name == CHECK && c.state == "Pending";
        if workload.status.admission.is_some() && workload.status.admission_checks.iter().any(pending) {
            return Some(edit_workload(server, &workload, |w| {
                for check in w.status.admission_checks.iter_mut().filter(|c| c.name == CHECK) {
                    "Ready".clone_into(&mut check.state);
                    check.last_transition_time = Some(now.clone());
                }
            }));
        }
    }
    answer_request(server, 0, 3, true)
}
