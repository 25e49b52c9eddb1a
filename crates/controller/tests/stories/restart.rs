//! Controllers that start on what no run of theirs would have left behind.

use serde_json::{Value, json};
use slicegate_api::{Kind, ObjectRef, convert};
use slicegate_workload::ConditionType;

use crate::api::World;
use crate::batch::{job, reason, running, world};

/// A controller dies after so many writes before the one that is looked at starts.
const DEATHS: [Option<usize>; 4] = [None, Some(0), Some(1), Some(2)];

fn workload(world: &World, job: &ObjectRef) -> ObjectRef {
    ObjectRef::new(Kind::Workload, "default", world.key(job).name)
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

/// Sets a condition of a workload.
fn say(v: &mut Value, kind: &str, status: &str, reason: &str) {
    let mut all = v["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.retain(|c| c["type"] != kind);
    all.push(condition(kind, status, reason));
    v["status"]["conditions"] = all.into();
}

/// Another controller starts, maybe one that dies before.
fn start(world: &mut World, death: Option<usize>) {
    world.restart(world.controller.configuration().clone());
    if let Some(after) = death {
        world.crash(after);
    }
    world.writes.clear();
    world.settle();
}

fn end(world: &mut World, job: &ObjectRef) {
    world.edit(job, |v| {
        v["status"]["active"] = 0.into();
        v["status"]["conditions"] = json!([{"type": "Complete", "status": "True", "message": "done"}]);
    });
    world.settle();
}

/// The API server's word for what is in use.
fn used(world: &World) -> String {
    let queue = world.json(&ObjectRef::new(Kind::ClusterQueue, "", "cq"));
    queue["status"]["flavorsReservation"][0]["resources"][0]["total"].as_str().unwrap_or_default().to_owned()
}

fn runs(world: &World, job: &ObjectRef) -> bool {
    world.json(job)["spec"]["suspend"] == false
}

fn ended(world: &World, job: &ObjectRef) -> bool {
    world.json(job)["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(|c| c["type"] == "Complete"))
}

/// Every job runs, ends, and leaves nothing behind.
fn all_end(world: &mut World, jobs: &[&ObjectRef]) {
    for _ in jobs {
        for job in jobs {
            if !ended(world, job) && runs(world, job) {
                running(world, job, 1);
                end(world, job);
            }
        }
    }
    for job in jobs {
        assert!(world.workload(job).is_finished(), "{job}");
    }
    assert_eq!(used(world), "0");
    assert!(world.controller.workloads().all(slicegate_workload::Workload::is_finished));
}

#[test]
fn finished_workloads_are_left_alone_and_hold_nothing() {
    for death in DEATHS {
        let mut world = world("4", &json!({}));
        let a = world.put(job("a", 4));
        world.settle();
        running(&mut world, &a, 4);
        end(&mut world, &a);
        // The admission is there for ever.
        let finished = workload(&world, &a);
        assert!(world.json(&finished)["status"]["admission"].is_object());
        world.advance(60);
        start(&mut world, death);
        assert_eq!(world.writes, [], "nothing is left to do");
        let b = world.put(job("b", 4));
        world.settle();
        assert!(runs(&world, &b));
        assert!(world.writes.iter().all(|w| w.operation.object() != finished && w.operation.object() != a));
        all_end(&mut world, &[&a, &b]);
    }
}

#[test]
fn a_flavor_that_nobody_knows_takes_nothing_from_others() {
    for death in DEATHS {
        let mut world = world("4", &json!({}));
        let a = world.put(job("a", 2));
        world.settle();
        running(&mut world, &a, 2);
        let admitted = workload(&world, &a);
        world.edit(&admitted, |v| {
            v["status"]["admission"]["podSetAssignments"][0]["flavors"]["cpu"] = "gone".into();
        });
        start(&mut world, death);
        assert!(runs(&world, &a) && world.has(&a, &ConditionType::Admitted), "what runs runs on");
        let b = world.put(job("b", 4));
        world.settle();
        assert!(runs(&world, &b), "nothing of its flavor is in use");
        all_end(&mut world, &[&a, &b]);
    }
}

#[test]
fn states_of_checks_without_an_admission_do_not_stand_in_the_way() {
    for state in ["Pending", "Ready", "Retry", "Rejected"] {
        for death in DEATHS {
            let mut world = world("4", &json!({}));
            let first = world.put(job("first", 4));
            world.settle();
            let a = world.put(job("a", 1));
            world.settle();
            assert!(!world.has(&a, &ConditionType::QuotaReserved));
            let waiting = workload(&world, &a);
            world.edit(&waiting, |v| {
                v["status"]["admissionChecks"] = json!([{"name": "old", "state": state, "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
            });
            start(&mut world, death);
            assert!(runs(&world, &first) && !runs(&world, &a), "{state}");
            if !world.workload(&a).spec.active {
                assert_eq!(state, "Rejected");
                world.edit(&waiting, |v| v["spec"]["active"] = true.into());
            }
            all_end(&mut world, &[&first, &a]);
        }
    }
}

#[test]
fn an_eviction_that_was_begun_is_brought_to_its_end() {
    for death in DEATHS {
        let mut world = world("4", &json!({}));
        let a = world.put(job("a", 2));
        world.settle();
        running(&mut world, &a, 2);
        let admitted = workload(&world, &a);
        world.edit(&admitted, |v| say(v, "Evicted", "True", "Preempted"));
        start(&mut world, death);
        assert!(!runs(&world, &a) && world.has(&a, &ConditionType::QuotaReserved), "its pods still run");
        assert_eq!(used(&world), "2");
        running(&mut world, &a, 0);
        assert!(runs(&world, &a), "there is room for it");
        assert!(world.has(&a, &ConditionType::Admitted) && !world.has(&a, &ConditionType::Evicted));
        all_end(&mut world, &[&a]);
    }
}

#[test]
fn an_evicted_workload_whose_quota_was_not_given_back_gives_it_back() {
    for death in DEATHS {
        let mut world = world("4", &json!({}));
        let a = world.put(job("a", 2));
        world.settle();
        // Its job has stopped, and still it says that it is admitted.
        let admitted = workload(&world, &a);
        world.edit(&admitted, |v| say(v, "Evicted", "True", "ClusterQueueStopped"));
        world.edit(&a, |v| v["spec"]["suspend"] = true.into());
        start(&mut world, death);
        assert!(runs(&world, &a) && !world.has(&a, &ConditionType::Evicted), "admitted anew");
        assert_eq!(used(&world), "2");
        all_end(&mut world, &[&a]);
    }
}

#[test]
fn nothing_comes_back_before_its_time() {
    for with_word in [true, false] {
        for death in DEATHS {
            let mut world = world("4", &json!({}));
            let first = world.put(job("first", 4));
            world.settle();
            let a = world.put(job("a", 1));
            world.settle();
            let waiting = workload(&world, &a);
            let at = convert::time_to_api(world.now.plus_seconds(300));
            world.edit(&waiting, |v| {
                v["status"]["requeueState"] = json!({"count": 1, "requeueAt": at});
                if with_word {
                    say(v, "Requeued", "False", "PodsReadyTimeout");
                }
            });
            end(&mut world, &first);
            // What the old controller made of it is undone.
            start(&mut world, death);
            assert!(!world.has(&a, &ConditionType::QuotaReserved), "said: {with_word}");
            world.advance(299);
            world.settle();
            assert!(!world.has(&a, &ConditionType::QuotaReserved));
            world.advance(1);
            world.settle();
            assert!(runs(&world, &a));
            all_end(&mut world, &[&first, &a]);
        }
    }
}

#[test]
fn queues_that_are_gone_stop_nothing_and_bring_back_who_waits() {
    let queues = [ObjectRef::new(Kind::LocalQueue, "default", "lq"), ObjectRef::new(Kind::ClusterQueue, "", "cq")];
    for gone in [&queues[..1], &queues[1..], &queues[..]] {
        for death in DEATHS {
            let mut world = world("4", &json!({}));
            let a = world.put(job("a", 3));
            let b = world.put(job("b", 2));
            world.settle();
            running(&mut world, &a, 3);
            // Somebody took their finalizers away.
            let lost: Vec<Value> =
                gone.iter().map(|r| world.api.objects.remove(r).unwrap().to_json().unwrap()).collect();
            start(&mut world, death);
            assert!(runs(&world, &a) && world.has(&a, &ConditionType::Admitted), "what runs runs on");
            assert!(!runs(&world, &b));
            end(&mut world, &a);
            assert!(world.workload(&a).is_finished() && !runs(&world, &b));
            for queue in lost {
                world.put(json!({"kind": queue["kind"], "spec": queue["spec"], "metadata": {
                    "name": queue["metadata"]["name"]}}));
            }
            world.settle();
            assert!(runs(&world, &b));
            all_end(&mut world, &[&a, &b]);
        }
    }
}

#[test]
fn of_two_workloads_of_a_job_one_is_left() {
    for admitted in [false, true] {
        for death in DEATHS {
            let mut world = world("4", &json!({}));
            let first = world.put(job("first", if admitted { 1 } else { 4 }));
            world.settle();
            let a = world.put(job("a", 1));
            world.settle();
            assert_eq!(runs(&world, &a), admitted);
            let mut twin = world.json(&workload(&world, &a));
            twin["metadata"]["name"] = "twin".into();
            for field in ["uid", "resourceVersion", "generation", "creationTimestamp"] {
                twin["metadata"].as_object_mut().unwrap().remove(field);
            }
            twin["kind"] = "Workload".into();
            world.put(twin);
            start(&mut world, death);
            let live = world.controller.workloads().filter(|w| !w.is_finished() && !w.deleting).count();
            assert_eq!(live, 2, "one for each job");
            assert_eq!(used(&world), if admitted { "2" } else { "4" });
            all_end(&mut world, &[&first, &a]);
        }
    }
}

#[test]
fn a_queue_goes_whatever_was_in_it() {
    for death in DEATHS {
        let mut world = world("4", &json!({}));
        let [done, given_up, waits] = [("done", 1), ("given-up", 1), ("waits", 9)].map(|(n, p)| world.put(job(n, p)));
        world.settle();
        end(&mut world, &done);
        let off = workload(&world, &given_up);
        world.edit(&off, |v| v["spec"]["active"] = false.into());
        world.settle();
        assert_eq!(reason(&world, &given_up, &ConditionType::Evicted), "Deactivated");
        let last = world.put(job("last", 2));
        world.settle();
        running(&mut world, &last, 2);
        let queue = ObjectRef::new(Kind::ClusterQueue, "", "cq");
        world.delete(&queue);
        start(&mut world, death);
        assert!(world.api.objects.contains_key(&queue), "it is in use");
        let late = world.put(job("late", 1));
        world.settle();
        assert!(!runs(&world, &late) && !runs(&world, &waits), "nothing new is admitted");
        end(&mut world, &last);
        assert!(!world.api.objects.contains_key(&queue));
        // What was in it is not lost with it.
        for job in [&given_up, &waits, &late] {
            assert!(!world.workload(job).is_finished());
        }
    }
}
