//! JobSets from creation to their end.

use crate::api::{World, complete, jobset, progress, queue};
use serde_json::json;
use slicegate_api::{Kind, ObjectRef};
use slicegate_controller::{Configuration, Operation, WriteError};
use slicegate_workload::{ConditionType, Status, Workload};

fn world(quota: i64) -> World {
    let mut world = World::new(Configuration::default());
    queue(&mut world, &json!({"pool": "tpu"}), quota, &json!({}));
    world.settle();
    world
}

#[test]
fn the_life_of_a_job_takes_four_writes() {
    let configuration = Configuration { keep_finalizer_of_finished: true, ..Configuration::default() };
    let mut world = World::new(configuration);
    queue(&mut world, &json!({"pool": "tpu"}), 24, &json!({}));
    world.settle();
    world.writes.clear();
    let mut suspended = jobset("a", 3, None);
    suspended["spec"]["suspend"] = true.into();
    let job = world.put(suspended);
    world.settle();
    progress(&mut world, &job, 3, 0);
    world.settle();
    complete(&mut world, &job, "Completed");
    world.settle();
    let own = |o: &Operation| matches!(o.object().kind, Kind::JobSet | Kind::Workload);
    let writes: Vec<&Operation> = world.writes.iter().map(|w| &w.operation).filter(|o| own(o)).collect();
    assert!(
        matches!(
            writes.as_slice(),
            [Operation::Create(_), Operation::UpdateStatus(_), Operation::Update(_), Operation::UpdateStatus(_)]
        ),
        "{writes:?}"
    );
    // Whoever deletes the Workload may, also where nobody manages its job any more.
    world.edit(&job, |v| v["metadata"]["labels"] = json!({}));
    world.settle();
    let workload = ObjectRef::new(Kind::Workload, "default", world.key(&job).name);
    assert!(world.json(&workload)["metadata"].get("finalizers").is_some());
    world.delete(&workload);
    world.settle();
    assert!(!world.api.objects.contains_key(&workload));
}

#[test]
fn a_jobset_is_admitted_runs_and_finishes() {
    let mut world = world(24);
    let job = world.put(jobset("a", 3, None));
    world.settle();
    assert!(world.has(&job, &ConditionType::Admitted));
    let workload = world.workload(&job).clone();
    let assignment = &workload.status.admission.as_ref().unwrap().pod_set_assignments[0];
    assert_eq!(assignment.count, Some(6));
    assert_eq!(assignment.resource_usage["google.com/tpu"].to_string(), "24");
    let kinds: Vec<&str> = workload.status.conditions.iter().map(|c| c.kind.as_str()).collect();
    assert_eq!(kinds, ["QuotaReserved", "Admitted"]);

    let started = world.json(&job);
    let template = &started["spec"]["replicatedJobs"][0]["template"]["spec"]["template"];
    assert_eq!(started["spec"]["suspend"], false);
    assert_eq!(template["spec"]["nodeSelector"]["pool"], "tpu");
    assert_eq!(template["spec"]["nodeSelector"]["cloud.google.com/gke-tpu-topology"], "2x4");
    assert_eq!(template["metadata"]["labels"]["kueue.x-k8s.io/podset"], "slice");
    assert_eq!(template["metadata"]["labels"]["kueue.x-k8s.io/cluster-queue-name"], "cq");
    assert_eq!(template["metadata"]["labels"]["kueue.x-k8s.io/local-queue-name"], "lq");
    assert_eq!(template["metadata"]["annotations"]["kueue.x-k8s.io/workload"], *workload.key.name);
    assert_eq!(world.reasons(&job), ["Stopped", "CreatedWorkload", "Started"]);
    let reference = ObjectRef::new(Kind::Workload, "default", workload.key.name.clone());
    assert_eq!(world.reasons(&reference), ["QuotaReserved", "Admitted"]);
    let queue = world.json(&ObjectRef::new(Kind::ClusterQueue, "", "cq"));
    assert_eq!(queue["status"]["admittedWorkloads"], 1);
    assert_eq!(queue["status"]["flavorsUsage"][0]["resources"][0]["total"], "24");
    assert_eq!(queue["status"]["conditions"][0]["reason"], "Ready");

    progress(&mut world, &job, 2, 1);
    world.settle();
    assert_eq!(world.workload(&job).status.reclaimable_pods[0].count, 2);
    complete(&mut world, &job, "Completed");
    world.settle();
    let finished = world.workload(&job).status.conditions.get(&ConditionType::Finished).unwrap().clone();
    assert_eq!((&*finished.reason, &*finished.message), ("Succeeded", "jobset completed successfully"));
    assert!(world.json(&reference)["metadata"].get("finalizers").is_none());
    let queue = world.json(&ObjectRef::new(Kind::ClusterQueue, "", "cq"));
    assert_eq!(queue["status"]["flavorsReservation"][0]["resources"][0]["total"], "0");
    assert_eq!(world.reasons(&job).last(), Some(&"FinishedWorkload"));
}

#[test]
fn a_jobset_waits_until_there_is_room() {
    let mut world = world(24);
    let big = world.put(jobset("big", 3, None));
    world.settle();
    progress(&mut world, &big, 3, 0);
    world.advance(1);
    let small = world.put(jobset("small", 1, None));
    world.settle();
    let waits = world.workload(&small).clone();
    let condition = waits.status.conditions.get(&ConditionType::QuotaReserved).unwrap();
    assert_eq!((condition.status, &*condition.reason), (Status::False, "WaitingForQuota"));
    assert_eq!(
        &*condition.message,
        "couldn't assign flavors to pod set slice: insufficient unused quota for google.com/tpu in flavor vlp, 8 more needed"
    );
    assert_eq!(waits.status.resource_requests[0].resources["google.com/tpu"].to_string(), "8");
    assert_eq!(world.json(&small)["spec"]["suspend"], true);
    assert_eq!(world.controller.pending("cq").len(), 1);
    let told = world.told(&waits.key).join("\n");
    assert!(told.contains("waits for quota"), "{told}");
    assert!(told.contains("JobSet big"), "who holds it: {told}");

    complete(&mut world, &big, "Completed");
    world.settle();
    assert!(world.has(&small, &ConditionType::Admitted));
    assert_eq!(world.json(&small)["spec"]["suspend"], false);
    assert!(world.workload(&small).status.resource_requests.is_empty());
}

#[test]
fn a_jobset_is_preempted_waits_and_comes_back() {
    let mut world = World::new(Configuration::default());
    queue(&mut world, &json!({}), 24, &json!({"withinClusterQueue": "LowerPriority"}));
    world.put(json!({"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 100}));
    world.settle();
    let low = world.put(jobset("low", 3, None));
    world.settle();
    progress(&mut world, &low, 3, 0);
    let before = world.json(&low)["spec"].clone();
    world.advance(4);
    let high = world.put(jobset("high", 1, Some("high")));
    world.settle();

    // It stops, but holds its quota until its pods are gone.
    assert_eq!(world.json(&low)["spec"]["suspend"], true);
    assert!(world.has(&low, &ConditionType::Evicted));
    assert!(world.has(&low, &ConditionType::QuotaReserved));
    assert!(!world.has(&high, &ConditionType::Admitted));
    let pending = world.workload(&high).status.conditions.get(&ConditionType::QuotaReserved).unwrap().clone();
    assert_eq!(&*pending.reason, "WaitingForPreemptedWorkloads");
    let told = world.told(&world.key(&low)).join("\n");
    assert!(told.contains("JobSet low is preempted by JobSet high"), "{told}");
    assert!(told.contains("withinClusterQueue") && told.contains("priority 0 is lower than 100"), "{told}");

    progress(&mut world, &low, 0, 0);
    world.settle();
    assert!(world.has(&high, &ConditionType::Admitted));
    let status = world.workload(&low).status.clone();
    assert!(status.admission.is_none());
    assert!(status.conditions.is_true(&ConditionType::Requeued));
    assert_eq!(status.accumulated_past_execution_time_seconds, Some(4));
    let template = world.json(&low)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"].clone();
    assert!(template["metadata"].get("annotations").is_none(), "{template}");
    assert_ne!(world.json(&low)["spec"], before);

    progress(&mut world, &high, 1, 0);
    world.advance(60);
    complete(&mut world, &high, "Completed");
    world.settle();
    assert!(world.has(&low, &ConditionType::Admitted));
    assert!(!world.has(&low, &ConditionType::Evicted));
    assert_eq!(world.json(&low)["spec"], before);
    let evicted = world.workload(&low).status.conditions.get(&ConditionType::Evicted).unwrap().clone();
    assert!(evicted.message.starts_with("Previously: Preempted to accommodate a workload"));
}

#[test]
fn a_job_that_goes_takes_its_quota_along_at_every_stage() {
    // After so many steps of the controller.
    for steps in 0..12 {
        let mut world = world(24);
        let first = world.put(jobset("first", 3, None));
        for _ in 0..steps {
            world.step();
        }
        world.delete(&first);
        world.settle();
        let left: Vec<&ObjectRef> = world.api.objects.keys().filter(|r| r.kind == Kind::Workload).collect();
        assert!(left.is_empty(), "after {steps} steps: {left:?}");
        let second = world.put(jobset("second", 3, None));
        world.settle();
        assert!(world.has(&second, &ConditionType::Admitted), "after {steps} steps");
    }
}

#[test]
fn a_workload_that_is_deleted_stops_its_job_and_is_made_again() {
    let mut world = world(24);
    let job = world.put(jobset("a", 3, None));
    world.settle();
    let old = world.workload(&job).uid.clone();
    world.delete(&ObjectRef::new(Kind::Workload, "default", world.key(&job).name));
    world.settle();
    assert!(world.has(&job, &ConditionType::Admitted));
    assert_ne!(world.workload(&job).uid, old);
}

#[test]
fn every_write_may_fail_once() {
    let errors = |r: ObjectRef| {
        [
            WriteError::Conflict(r.clone()),
            WriteError::Unavailable { object: r.clone(), why: "timeout".to_owned() },
            WriteError::Invalid { object: r, why: "no".to_owned() },
        ]
    };
    for kind in 0..3 {
        for at in 0..24 {
            let mut world = world(24);
            let mut count = 0;
            world.fault = Box::new(move |write| {
                count += 1;
                (count == at + 1).then(|| errors(write.operation.object())[kind].clone())
            });
            let job = world.put(jobset("a", 3, None));
            run(&mut world, |w| w.controller.workload_of(&job).is_some_and(Workload::is_admitted));
            run(&mut world, |w| w.json(&job)["spec"]["suspend"] == false);
            progress(&mut world, &job, 3, 0);
            complete(&mut world, &job, "Completed");
            run(&mut world, |w| w.workload(&job).is_finished());
            let second = world.put(jobset("b", 3, None));
            run(&mut world, |w| w.controller.workload_of(&second).is_some_and(Workload::is_admitted));
            let creates = world
                .writes
                .iter()
                .filter(|w| matches!(&w.operation, Operation::Create(o) if o.kind() == Kind::Workload));
            assert!(creates.count() <= 3, "fault {kind} at write {at}");
        }
    }
}

#[test]
fn a_crash_after_any_write_loses_nothing() {
    for at in 0..8 {
        for after in 0..4 {
            let mut world = world(24);
            let job = world.put(jobset("a", 3, None));
            for _ in 0..at {
                world.step();
            }
            world.crash(after);
            world.settle();
            assert!(world.has(&job, &ConditionType::Admitted), "at {at} after {after}");
            assert_eq!(world.json(&job)["spec"]["suspend"], false);
            let template = &world.json(&job)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"];
            assert_eq!(template["spec"]["nodeSelector"]["pool"], "tpu");
            assert_eq!(world.controller.workloads().count(), 1);
        }
    }
}

/// Lets time pass until something holds.
#[track_caller]
fn run(world: &mut World, done: impl Fn(&World) -> bool) {
    for _ in 0..40 {
        world.settle();
        if done(world) {
            return;
        }
        world.sleep();
    }
    panic!("it never happens");
}

#[test]
fn noise_changes_nothing() {
    let story = |noisy: bool| {
        let mut world = world(24);
        world.noisy = noisy;
        let big = world.put(jobset("big", 3, None));
        world.settle();
        progress(&mut world, &big, 3, 0);
        let small = world.put(jobset("small", 1, None));
        world.settle();
        complete(&mut world, &big, "Completed");
        world.settle();
        assert!(world.has(&small, &ConditionType::Admitted));
        (world.writes, world.events, world.notes)
    };
    let quiet = story(false);
    assert!(quiet == story(false), "the same inputs give the same outputs");
    assert!(quiet == story(true));
}

#[test]
fn somebody_elses_change_is_not_lost() {
    let mut world = world(24);
    let job = world.put(jobset("a", 3, None));
    // The Workload is labelled between the decision to admit it and its write.
    let mut done = false;
    for _ in 0..20 {
        let effects = world.controller.reconcile(world.now);
        for write in effects.writes {
            let reference = write.operation.object();
            if !done && matches!(&write.operation, Operation::UpdateStatus(o) if o.kind() == Kind::Workload) {
                done = true;
                world.edit(&reference, |v| v["metadata"]["labels"]["team"] = json!("x"));
            }
            let result = world.api.perform(&write);
            world.controller.complete(world.now, slicegate_controller::WriteOutcome { id: write.id, result });
        }
        world.edit(&job, |v| v["metadata"]["annotations"] = json!({"touched": "yes"}));
    }
    run(&mut world, |w| w.has(&job, &ConditionType::Admitted));
    assert_eq!(&*world.workload(&job).labels["team"], "x");
}
