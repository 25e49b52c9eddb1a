//! What became of each job.

use slicegate_api::kueue::Workload;
use slicegate_api::{Kind, Object, ObjectRef};
use slicegate_workload::Timestamp;

use crate::input::Item;
use crate::store::sim_time;
use crate::world::World;

/// The kinds that there are verdicts on.
const JOBS: [Kind; 4] = [Kind::Job, Kind::JobSet, Kind::RayCluster, Kind::RayJob];
const PRIORITY_CLASS: &str = "kueue.x-k8s.io/priority-class";

/// How a job ended up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It ended well.
    Finished {
        /// When.
        at: Option<Timestamp>,
    },
    /// It failed.
    Failed,
    /// Its pods run.
    Running,
    /// It was admitted, but not all of its pods run.
    Admitted,
    /// It has quota, but its admission checks are not ready.
    QuotaReserved,
    /// It was admitted before and waits again.
    Evicted,
    /// It was never admitted.
    NeverAdmitted,
    /// It is in no queue: nobody holds it back.
    NotQueued,
    /// A user deleted it before it ended.
    Deleted {
        /// When.
        at: Timestamp,
    },
    /// The simulation was stopped before it was applied.
    NotApplied,
}

/// What became of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobVerdict {
    /// The job.
    pub job: ObjectRef,
    /// What became of it.
    pub verdict: Verdict,
    /// Why, where it did not end well: the condition's words, and what its pods wait for.
    pub why: Option<String>,
}

fn condition<'a>(workload: &'a Workload, kind: &str) -> Option<&'a slicegate_api::Condition> {
    workload.status.conditions.iter().find(|c| c.type_ == kind)
}

/// The verdicts on all jobs that nobody owns, by kind, namespace and name: those that are there, those whose time to live is
/// over, and those of `later` documents that were not applied any more.
pub(crate) fn verdicts<'a>(world: &World, later: impl Iterator<Item = &'a Item>) -> Vec<JobVerdict> {
    let mut all = Vec::new();
    for kind in JOBS {
        for (key, object) in world.store.of_kind(kind) {
            if crate::store::controller_of(object).is_none() {
                all.push(verdict(world, key, object));
            }
        }
    }
    all.extend(world.expired.values().filter(|gone| world.store.get(&gone.job).is_none()).cloned());
    for item in later {
        let Item::Object(object) = item else { continue };
        let mut job = object.reference();
        if job.namespace.is_empty() {
            job.namespace = "default".into();
        }
        if JOBS.contains(&job.kind) && !all.iter().any(|verdict| verdict.job == job) {
            all.push(JobVerdict { job, verdict: Verdict::NotApplied, why: None });
        }
    }
    all.sort_by(|a, b| a.job.cmp(&b.job));
    all
}

/// The verdict on a job that is about to be deleted.
pub(crate) fn verdict_on(world: &World, key: &ObjectRef) -> Option<JobVerdict> {
    let object = world.store.get(key)?;
    if !JOBS.contains(&key.kind) || crate::store::controller_of(object).is_some() {
        return None;
    }
    Some(verdict(world, key, object))
}

/// Why no Workload is made for a job, as far as one can tell from its priority classes.
pub(crate) fn missing_class(world: &World, object: &Object) -> Option<String> {
    let missing = |kind: Kind, name: &str| {
        let there = name.starts_with("system-") || world.store.get(&ObjectRef::new(kind, "", name)).is_some();
        (!there).then(|| format!("there is no {kind} {name}"))
    };
    if let Some(class) = crate::defaults::label(object.metadata(), PRIORITY_CLASS) {
        return missing(Kind::WorkloadPriorityClass, class);
    }
    let mut classes = crate::preflight::priority_classes(object).into_iter();
    classes.find_map(|class| missing(Kind::PriorityClass, &class))
}

fn end_of(object: &Object) -> Option<Result<Timestamp, String>> {
    match object {
        Object::JobSet(jobset) => {
            jobset.status.conditions.iter().filter(|c| c.status == "True").find_map(|c| match c.type_.as_str() {
                "Completed" => Some(Ok(sim_time(&c.last_transition_time))),
                "Failed" => Some(Err(c.message.clone())),
                _ => None,
            })
        }
        Object::Job(job) => {
            let status = job.status.as_ref()?;
            status.conditions.iter().flatten().filter(|c| c.status == "True").find_map(|c| match c.type_.as_str() {
                "Complete" => Some(Ok(c.last_transition_time.as_ref().map_or(Timestamp::MIN, sim_time))),
                "Failed" => Some(Err(c.message.clone().unwrap_or_default())),
                _ => None,
            })
        }
        Object::RayJob(job) => match job.status.job_deployment_status.as_deref() {
            Some("Complete") => Some(Ok(job.status.end_time.as_ref().map_or(Timestamp::MIN, sim_time))),
            Some("Failed") => Some(Err(job.status.message.clone().unwrap_or_default())),
            _ => None,
        },
        _ => None,
    }
}

/// Kueue says nothing of a workload that has never been at the head of its queue.
fn strictly_after(world: &World, job: &ObjectRef, workload: &Workload) -> Option<String> {
    let queue = ObjectRef::new(Kind::LocalQueue, &*job.namespace, workload.spec.queue_name.as_str());
    let Some(Object::LocalQueue(queue)) = world.store.get(&queue) else { return None };
    let name = queue.spec.cluster_queue.as_str();
    let Some(Object::ClusterQueue(queue)) = world.store.get(&ObjectRef::new(Kind::ClusterQueue, "", name)) else {
        return None;
    };
    let strict = queue.spec.queueing_strategy.as_deref() == Some("StrictFIFO");
    strict.then(|| format!("it waits behind others: ClusterQueue {name} takes jobs strictly in order (StrictFIFO)"))
}

/// Places are found on nodes that exist. What there is to say if a node pool could grow, but has none yet.
fn absent_nodes(world: &World, workload: &Workload) -> Option<String> {
    let queue = ObjectRef::new(Kind::LocalQueue, workload.metadata.namespace.as_deref()?, &*workload.spec.queue_name);
    let Some(Object::LocalQueue(queue)) = world.store.get(&queue) else { return None };
    let queue = ObjectRef::new(Kind::ClusterQueue, "", queue.spec.cluster_queue.as_str());
    let Some(Object::ClusterQueue(queue)) = world.store.get(&queue) else { return None };
    let flavors = queue.spec.resource_groups.iter().flat_map(|group| &group.flavors);
    let flavors = flavors.filter_map(|flavor| {
        match world.store.get(&ObjectRef::new(Kind::ResourceFlavor, "", flavor.name.as_str())) {
            Some(Object::ResourceFlavor(flavor)) if flavor.spec.topology_name.is_some() => Some(flavor.clone()),
            _ => None,
        }
    });
    let mut pools: Vec<&str> = Vec::new();
    for flavor in flavors {
        for pool in &world.nodes.pools {
            let empty = pool.nodes.is_empty() && pool.autoscaling.is_some_and(|(_, most)| most > 0);
            let has =
                |(key, value): (&String, &String)| pool.labels.get(key.as_str()).is_some_and(|have| **have == **value);
            let wanted = workload.spec.pod_sets.iter().any(|set| {
                let selector = set.template.spec.as_ref().and_then(|spec| spec.node_selector.as_ref());
                selector.into_iter().flatten().all(has)
            });
            if empty && wanted && flavor.spec.node_labels.iter().all(has) && !pools.contains(&&*pool.name) {
                pools.push(&pool.name);
            }
        }
    }
    (!pools.is_empty()).then(|| {
        format!(
            "node pool(s) {} have no nodes yet, and only nodes that exist count for topologies: keep some (minNodeCount), or \
             have them provisioned by an admission check",
            pools.join(", ")
        )
    })
}

/// Why a job that was admitted does nothing although no pod of it looks for a node.
fn idle(world: &World, key: &ObjectRef, object: &Object, workload: &Workload) -> Option<String> {
    if let Some(why) = world.refused.get(key) {
        return Some(format!("it cannot be started: {why}"));
    }
    let admission = workload.status.admission.as_ref()?;
    let sets = admission.pod_set_assignments.iter();
    let asked = sets.map(|a| {
        let set = workload.spec.pod_sets.iter().find(|s| s.name == a.name);
        i64::from(a.count.or(set.map(|s| s.count)).unwrap_or(0))
    });
    if asked.sum::<i64>() == 0 {
        let what = match object {
            Object::Job(_) => "its parallelism is 0",
            Object::JobSet(_) => "replicas or parallelism of all its replicatedJobs are 0",
            _ => "all its counts are 0",
        };
        return Some(format!("it asks for no pods: {what}"));
    }
    None
}

fn verdict(world: &World, key: &ObjectRef, object: &Object) -> JobVerdict {
    let answer = |verdict, why| JobVerdict { job: key.clone(), verdict, why };
    match end_of(object) {
        Some(Ok(at)) => return answer(Verdict::Finished { at: Some(at) }, None),
        Some(Err(why)) => return answer(Verdict::Failed, Some(why)),
        None => {}
    }
    // An elastic job has several Workloads: what counts is the one it runs as, or else the one that waits.
    let workloads = world.store.owned_by(object.uid()).filter(|key| key.kind == Kind::Workload);
    let workloads = workloads.filter_map(|key| match world.store.get(key) {
        Some(Object::Workload(workload)) => Some(workload.clone()),
        _ => None,
    });
    let holds = |workload: &Workload, kind: &str| condition(workload, kind).is_some_and(|c| c.status == "True");
    let workload = workloads.max_by_key(|w| (!holds(w, "Finished"), holds(w, "Admitted"), holds(w, "QuotaReserved")));
    let pods = || {
        if let Some(why) = world.hopeless.get(key) {
            return Some(why.clone());
        }
        let waiting = world.nodes.pending.keys().find(|pod| world.top_owner(pod).as_ref() == Some(key))?;
        world.why_pending(waiting).map(|why| format!("its pods find no node: {why}"))
    };
    let Some(workload) = workload else {
        let queue = crate::defaults::label(object.metadata(), crate::defaults::QUEUE_NAME);
        return match queue {
            None => {
                let verdict = if world.told_running.contains(key) { Verdict::Running } else { Verdict::NotQueued };
                answer(verdict, pods())
            }
            Some(queue) => {
                let why = missing_class(world, object).map_or(String::new(), |why| format!(": {why}"));
                answer(Verdict::NeverAdmitted, Some(format!("no workload was made for it (queue {queue}){why}")))
            }
        };
    };
    let is_true = |kind: &str| condition(&workload, kind).is_some_and(|c| c.status == "True");
    if is_true("Admitted") {
        if world.told_running.contains(key) {
            return answer(Verdict::Running, pods());
        }
        return answer(Verdict::Admitted, pods().or_else(|| idle(world, key, object, &workload)));
    }
    if is_true("QuotaReserved") {
        let checks = workload.status.admission_checks.iter().filter(|check| check.state != "Ready");
        let checks: Vec<String> = checks
            .map(|check| {
                let message = if check.message.is_empty() { "" } else { ": " };
                format!("check {} is {}{message}{}", check.name, check.state.to_lowercase(), check.message)
            })
            .collect();
        return answer(Verdict::QuotaReserved, Some(checks.join("; ")));
    }
    let why = condition(&workload, "QuotaReserved").map(|c| c.message.clone()).filter(|m| !m.is_empty());
    let why = if workload.spec.active == Some(false) { Some("the workload is deactivated".to_owned()) } else { why };
    let why = why.map(|why| match absent_nodes(world, &workload) {
        Some(absent) if why.contains("topology") => format!("{why}; {absent}"),
        _ => why,
    });
    let why = why.or_else(|| strictly_after(world, key, &workload));
    let was_evicted = condition(&workload, "Evicted").is_some();
    answer(if was_evicted { Verdict::Evicted } else { Verdict::NeverAdmitted }, why)
}
