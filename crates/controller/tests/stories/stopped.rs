//! Pods of an earlier start go before others come: they would run on as they were made, without what the admission says.

use serde_json::{Value, json};
use slicegate_api::{Kind, ObjectRef};
use slicegate_controller::Configuration;
use slicegate_workload::ConditionType;

use crate::api::{World, jobset, queue};
use crate::batch::{job, world as cpus};
use crate::ray::cluster;

fn tpus() -> World {
    let mut world = World::new(Configuration::default());
    queue(&mut world, &json!({"pool": "tpu"}), 24, &json!({}));
    world.settle();
    world
}

fn is_suspended(world: &World, job: &ObjectRef) -> bool {
    world.json(job)["spec"]["suspend"] == true
}

fn holds_quota(world: &World, job: &ObjectRef) -> bool {
    world.has(job, &ConditionType::QuotaReserved)
}

/// One of each kind whose own controller says when it has stopped.
fn one_of_each() -> Vec<(World, Value)> {
    vec![
        (cpus("9", &json!({})), job("a", 1)),
        (tpus(), jobset("a", 1, None)),
        (cpus("9", &json!({})), cluster("a", &[])),
    ]
}

/// A Job of a JobSet, as it was made when that ran.
fn part(world: &mut World, owner: &ObjectRef, name: &str) -> ObjectRef {
    let mut part = job(name, 2);
    part["metadata"]["labels"] = json!({});
    part["metadata"]["ownerReferences"] = json!([{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "name": &*owner.name, "uid": world.json(owner)["metadata"]["uid"], "controller": true}]);
    part["spec"]["suspend"] = false.into();
    world.put(part)
}

fn tell(world: &mut World, job: &ObjectRef, status: &str) {
    world.edit(job, |v| {
        v["status"]["conditions"] = json!([{"type": "Suspended", "status": status, "reason": "s", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:01Z"}]);
    });
    world.settle();
}

#[test]
fn a_job_that_may_have_run_starts_when_its_controller_took_notice() {
    for (mut world, mut job) in one_of_each() {
        world.away = true;
        job["spec"]["suspend"] = false.into();
        let job = world.put(job);
        world.settle();
        assert!(world.has(&job, &ConditionType::Admitted), "{job}");
        assert!(is_suspended(&world, &job), "{job}: nobody knows of pods that were made meanwhile");
        world.away = false;
        world.settle();
        assert!(!is_suspended(&world, &job), "{job}");
    }
}

#[test]
fn a_job_that_never_ran_starts_at_once() {
    for (mut world, mut job) in one_of_each() {
        world.away = true;
        job["spec"]["suspend"] = true.into();
        let job = world.put(job);
        world.settle();
        assert!(!is_suspended(&world, &job), "{job}");
    }
}

#[test]
fn nobody_is_asked_to_take_notice_of_what_others_manage() {
    for (mut world, mut job) in one_of_each() {
        world.away = true;
        job["spec"]["suspend"] = false.into();
        job["spec"]["managedBy"] = "example.com/elsewhere".into();
        let job = world.put(job);
        world.settle();
        assert!(!is_suspended(&world, &job), "{job}");
    }
}

#[test]
fn quota_is_given_back_when_the_controller_of_the_job_took_notice() {
    for (mut world, mut job) in one_of_each() {
        world.away = true;
        job["spec"]["suspend"] = true.into();
        let job = world.put(job);
        world.settle();
        world.edit(&ObjectRef::new(Kind::ClusterQueue, "", "cq"), |v| v["spec"]["stopPolicy"] = "HoldAndDrain".into());
        world.settle();
        assert!(is_suspended(&world, &job), "{job}");
        assert!(holds_quota(&world, &job), "{job}: pods may yet be made");
        world.away = false;
        world.settle();
        assert!(!holds_quota(&world, &job), "{job}");
    }
}

#[test]
fn a_jobset_starts_when_its_jobs_have_stopped() {
    let mut world = tpus();
    world.away = true;
    let all = world.put(jobset("a", 2, None));
    // Its controller has made one Job, which has a pod, before anybody looks.
    let (first, second) = (part(&mut world, &all, "a-0"), part(&mut world, &all, "a-1"));
    world.settle();
    assert!(world.has(&all, &ConditionType::Admitted));
    tell(&mut world, &all, "True");
    assert!(is_suspended(&world, &all), "its Jobs have not stopped");
    for part in [&first, &second] {
        world.edit(part, |v| v["spec"]["suspend"] = true.into());
    }
    world.settle();
    assert!(is_suspended(&world, &all), "nobody has taken notice yet");
    tell(&mut world, &first, "True");
    assert!(is_suspended(&world, &all), "one has");
    world.edit(&second, |v| v["status"]["active"] = 2.into());
    tell(&mut world, &second, "True");
    assert!(is_suspended(&world, &all), "pods of the other run");
    world.edit(&second, |v| v["status"]["active"] = 0.into());
    world.settle();
    assert!(!is_suspended(&world, &all));
}

#[test]
fn a_jobset_gives_its_quota_back_when_its_jobs_have_stopped() {
    let mut world = tpus();
    world.away = true;
    let mut suspended = jobset("a", 1, None);
    suspended["spec"]["suspend"] = true.into();
    let all = world.put(suspended);
    world.settle();
    assert!(!is_suspended(&world, &all));
    let child = part(&mut world, &all, "a-0");
    world.settle();
    // Its status does not tell of the Job yet.
    world.edit(&ObjectRef::new(Kind::ClusterQueue, "", "cq"), |v| v["spec"]["stopPolicy"] = "HoldAndDrain".into());
    world.settle();
    tell(&mut world, &all, "True");
    assert!(holds_quota(&world, &all), "its Job runs");
    world.edit(&child, |v| v["spec"]["suspend"] = true.into());
    world.settle();
    assert!(holds_quota(&world, &all), "its Job may run");
    tell(&mut world, &child, "True");
    assert!(!holds_quota(&world, &all));
}

#[test]
fn a_job_of_a_jobset_that_is_done_is_not_waited_for() {
    let mut world = tpus();
    world.away = true;
    let all = world.put(jobset("a", 1, None));
    let child = part(&mut world, &all, "a-0");
    world.edit(&child, |v| {
        v["status"]["conditions"] = json!([{"type": "Complete", "status": "True", "message": "done"}]);
    });
    world.settle();
    tell(&mut world, &all, "True");
    assert!(!is_suspended(&world, &all));
}

#[test]
fn a_ray_cluster_whose_pods_are_being_deleted_is_not_started() {
    let mut world = cpus("9", &json!({}));
    world.away = true;
    let mut ray = cluster("a", &[]);
    ray["spec"]["suspend"] = false.into();
    let ray = world.put(ray);
    world.settle();
    let mut kuberay = |suspending: &str, started: bool| {
        world.edit(&ray, |v| {
            v["status"]["state"] = "suspended".into();
            v["status"]["conditions"] = json!([{"type": "RayClusterSuspending", "status": suspending, "reason": "s",
                "message": "", "lastTransitionTime": "2026-01-01T00:00:01Z"}]);
        });
        world.settle();
        assert_eq!(is_suspended(&world, &ray), !started, "suspending: {suspending}");
    };
    kuberay("True", false);
    kuberay("False", true);
}

#[test]
fn a_job_whose_last_pods_ended_before_anybody_took_notice_may_end() {
    for (decided, end) in [("SuccessCriteriaMet", "Complete"), ("FailureTarget", "Failed")] {
        for quota in ["9", "0"] {
            let mut world = cpus(quota, &json!({}));
            world.away = true;
            let mut running = job("a", 1);
            running["spec"]["suspend"] = false.into();
            let a = world.put(running);
            world.settle();
            assert!(is_suspended(&world, &a));
            // Its pod was quicker than whoever made it: what that says first is how the job ends.
            let say = |world: &mut World, kinds: &[&str]| {
                let condition = |kind: &&str| {
                    json!({"type": kind, "status": "True", "reason": "r", "message": "m",
                        "lastTransitionTime": "2026-01-01T00:00:01Z"})
                };
                let all: Vec<Value> = kinds.iter().map(condition).collect();
                world.edit(&a, |v| v["status"]["conditions"] = all.into());
                world.settle();
            };
            say(&mut world, &[decided]);
            assert!(
                world.json(&a)["status"]["startTime"].is_string(),
                "{decided} with {quota} cpu: the API server lets only a job end that has started"
            );
            say(&mut world, &[decided, end]);
            assert!(world.workload(&a).is_finished());
        }
    }
}
