//! Workloads whose pods do not become ready.

use serde_json::json;
use slicegate_admission::WaitForPodsReady;
use slicegate_api::{Kind, ObjectRef};
use slicegate_controller::Configuration;
use slicegate_workload::ConditionType;

use crate::api::{World, jobset, progress, queue};
use crate::batch::{job, reason, running};

/// A queue with room for four pods, where pods have five minutes to become ready; `limit` tries more are made.
fn world(limit: i32) -> World {
    let mut configuration = Configuration::default();
    configuration.engine.wait_for_pods_ready = Some(WaitForPodsReady {
        timeout_seconds: 300,
        backoff_limit_count: Some(limit),
        ..WaitForPodsReady::default()
    });
    let mut world = World::new(configuration);
    world.put(json!({"kind": "ResourceFlavor", "metadata": {"name": "std"}, "spec": {}}));
    world.put(json!({"kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {
        "namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": "std", "resources": [{"name": "cpu", "nominalQuota": "4"}]}]}]}}));
    world.put(json!({"kind": "LocalQueue", "metadata": {"name": "lq"}, "spec": {"clusterQueue": "cq"}}));
    world.settle();
    world
}

fn requeue_count(world: &World, job: &ObjectRef) -> Option<i32> {
    world.workload(job).status.requeue_state.as_ref().and_then(|s| s.count)
}

/// Lets the pods of a job come, not become ready, and be stopped again.
fn time_out(world: &mut World, job: &ObjectRef) {
    running(world, job, 0);
    world.advance(300);
    world.settle();
    running(world, job, 0);
}

#[test]
fn a_limit_alone_is_enough_and_is_reached_at_the_timeout() {
    let mut world = world(1);
    let a = world.put(job("a", 1));
    world.settle();
    assert!(world.has(&a, &ConditionType::Admitted));
    time_out(&mut world, &a);
    assert_eq!(requeue_count(&world, &a), Some(1));
    let at = world.workload(&a).status.requeue_state.as_ref().and_then(|s| s.requeue_at);
    assert_eq!(at, Some(world.now.plus_seconds(60)), "the first wait is a minute");
    // Not before its time, whatever else happens.
    world.advance(59);
    world.settle();
    assert!(!world.has(&a, &ConditionType::QuotaReserved));
    assert!(!world.has(&a, &ConditionType::Requeued));
    let b = world.put(job("b", 1));
    world.settle();
    assert!(world.has(&b, &ConditionType::Admitted) && !world.has(&a, &ConditionType::QuotaReserved));
    world.advance(1);
    world.settle();
    assert!(world.has(&a, &ConditionType::Admitted) && world.has(&a, &ConditionType::Requeued));
    // The second time is one too many: it is known at once, not after another wait.
    let late = world.now.plus_seconds(300);
    running(&mut world, &b, 1);
    world.advance(300);
    world.settle();
    assert_eq!(world.now, late);
    assert!(!world.workload(&a).spec.active);
    assert_eq!(reason(&world, &a, &ConditionType::Evicted), "DeactivatedDueToRequeuingLimitExceeded");
}

#[test]
fn a_deactivated_workload_stays_out_after_a_restart() {
    let mut world = world(0);
    let a = world.put(job("a", 1));
    world.settle();
    time_out(&mut world, &a);
    assert!(!world.workload(&a).spec.active);
    assert!(world.workload(&a).status.requeue_state.is_none(), "it starts over if it is taken up again");
    world.crash(0);
    world.advance(100_000);
    world.settle();
    assert!(!world.has(&a, &ConditionType::QuotaReserved));
    assert_eq!(world.json(&a)["spec"]["suspend"], true);
}

#[test]
fn one_group_that_never_comes_lets_the_time_run_out() {
    let mut configuration = Configuration::default();
    configuration.engine.wait_for_pods_ready =
        Some(WaitForPodsReady { timeout_seconds: 300, ..WaitForPodsReady::default() });
    let mut world = World::new(configuration);
    queue(&mut world, &json!({}), 16, &json!({}));
    let a = world.put(jobset("a", 2, None));
    world.settle();
    // One of two slices is there.
    progress(&mut world, &a, 1, 0);
    world.settle();
    assert_eq!(reason(&world, &a, &ConditionType::PodsReady), "WaitForStart");
    world.advance(300);
    world.settle();
    assert_eq!(reason(&world, &a, &ConditionType::Evicted), "PodsReadyTimeout");
    let workload = ObjectRef::new(Kind::Workload, "default", world.key(&a).name);
    assert!(world.reasons(&workload).contains(&"EvictedDueToPodsReadyTimeout"));
}
