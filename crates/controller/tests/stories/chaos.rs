//! Many small clusters in which everything goes wrong that can.

use serde_json::{Value, json};
use slicegate_api::{Kind, Object, ObjectRef};
use slicegate_controller::{Configuration, WriteError};
use slicegate_workload::Workload;

use crate::api::World;

/// A sequence of numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

const QUOTA: u64 = 6;

fn world() -> World {
    let mut world = World::new(Configuration::default());
    world.put(json!({"kind": "ResourceFlavor", "metadata": {"name": "std"}}));
    for queue in ["a", "b"] {
        world.put(json!({"kind": "ClusterQueue", "metadata": {"name": queue}, "spec": {
            "namespaceSelector": {}, "cohortName": "all",
            "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
                {"name": "std", "resources": [{"name": "cpu", "nominalQuota": QUOTA.to_string()}]}]}]}}));
        world.put(json!({"kind": "LocalQueue", "metadata": {"name": queue}, "spec": {"clusterQueue": queue}}));
    }
    for class in 0..3 {
        world.put(json!({"kind": "WorkloadPriorityClass", "metadata": {"name": format!("p{class}")}, "value": class}));
    }
    world
}

fn job(dice: &mut Dice, number: usize) -> Value {
    let pods = dice.roll(5) + 1;
    json!({"kind": "Job", "metadata": {"name": format!("j{number}"), "labels": {
            "kueue.x-k8s.io/queue-name": if dice.roll(2) == 0 { "a" } else { "b" },
            "kueue.x-k8s.io/priority-class": format!("p{}", dice.roll(3))}},
        "spec": {"parallelism": pods, "completions": pods, "suspend": dice.roll(2) == 0, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}}})
}

fn jobs(world: &World) -> Vec<ObjectRef> {
    world.api.objects.keys().filter(|r| r.kind == Kind::Job).cloned().collect()
}

fn is_finished(object: &Object) -> bool {
    let Object::Job(job) = object else { return true };
    job.status.as_ref().is_some_and(|s| s.conditions.iter().flatten().any(|c| c.type_ == "Complete"))
}

/// What the Job controller does: pods come, pods go, some Jobs end.
fn jobs_go_on(world: &mut World, dice: &mut Dice, ends: u64) {
    for reference in jobs(world) {
        let object = world.api.objects[&reference].clone();
        let Object::Job(job) = &object else { continue };
        let spec = job.spec.clone().unwrap();
        let active = job.status.as_ref().and_then(|s| s.active).unwrap_or(0);
        let suspended = spec.suspend == Some(true);
        if is_finished(&object) {
            continue;
        }
        if suspended && active > 0 && dice.roll(2) == 0 {
            world.edit(&reference, |v| v["status"]["active"] = 0.into());
        } else if !suspended && active == 0 {
            world.edit(&reference, |v| v["status"]["active"] = spec.parallelism.into());
        } else if !suspended && dice.roll(10) < ends {
            world.edit(&reference, |v| {
                v["status"]["active"] = 0.into();
                v["status"]["conditions"] = json!([{"type": "Complete", "status": "True", "message": "done"}]);
            });
        }
    }
}

/// What the API server holds must make sense at every moment.
fn check(world: &World) {
    world.controller.engine().check().unwrap();
    let mut used = 0;
    for workload in world.controller.workloads().filter(|w| w.has_active_quota_reservation()) {
        let assignments = &workload.status.admission.as_ref().unwrap().pod_set_assignments;
        used += assignments.iter().map(|a| u64::try_from(a.count.unwrap()).unwrap()).sum::<u64>();
    }
    assert!(used <= 2 * QUOTA, "{used} cpu are promised, there are {}", 2 * QUOTA);
    for reference in jobs(world) {
        let Object::Job(job) = &world.api.objects[&reference] else { continue };
        let uid = job.metadata.uid.clone().unwrap();
        let of_job = |w: &&Workload| w.labels.get("kueue.x-k8s.io/job-uid").is_some_and(|u| **u == *uid);
        let live = world.controller.workloads().filter(of_job).filter(|w| !w.is_finished() && !w.deleting).count();
        assert!(live <= 1, "{reference} has {live} workloads");
    }
}

#[test]
fn nothing_is_lost_or_given_twice() {
    for seed in 0..12 {
        let mut dice = Dice(seed);
        let mut world = world();
        world.noisy = seed % 3 == 0;
        let mut fate = Dice(seed + 1000);
        world.fault = Box::new(move |write| {
            let object = write.operation.object();
            match fate.roll(20) {
                0 => Some(WriteError::Conflict(object)),
                1 => Some(WriteError::Unavailable { object, why: "timeout".to_owned() }),
                _ => None,
            }
        });
        for number in 0..40 {
            match dice.roll(9) {
                8 => world.crash(usize::try_from(dice.roll(6)).unwrap()),
                0..3 => {
                    let job = job(&mut dice, number);
                    world.put(job);
                }
                3 => {
                    let all = jobs(&world);
                    if let Some(doomed) = all.get(usize::try_from(dice.roll(8)).unwrap()) {
                        world.delete(doomed);
                    }
                }
                4 => {
                    let all: Vec<ObjectRef> =
                        world.api.objects.keys().filter(|r| r.kind == Kind::Workload).cloned().collect();
                    if let Some(chosen) = all.get(usize::try_from(dice.roll(8)).unwrap()) {
                        if dice.roll(2) == 0 {
                            world.delete(chosen);
                        } else {
                            // It is not taken up again while it holds quota: that does not count any more, and others
                            // may have it by then.
                            let name = slicegate_workload::Key::new("default", chosen.name.clone());
                            let holds = world.controller.workload(&name).is_some_and(Workload::has_quota_reservation);
                            let active = !holds && dice.roll(2) == 0;
                            world.edit(chosen, |v| v["spec"]["active"] = active.into());
                        }
                    }
                }
                _ => jobs_go_on(&mut world, &mut dice, 2),
            }
            for _ in 0..dice.roll(4) {
                world.step();
                check(&world);
            }
            world.advance(i64::try_from(dice.roll(3)).unwrap());
        }
        // From here on nothing fails, and everything comes to its end.
        world.fault = Box::new(|_| None);
        for round in 0.. {
            assert!(round < 200, "seed {seed}: it never ends");
            world.advance(60);
            world.settle();
            check(&world);
            jobs_go_on(&mut world, &mut dice, 10);
            let inactive: Vec<ObjectRef> = world
                .controller
                .workloads()
                .filter(|w| !w.spec.active && !w.is_finished() && !w.has_quota_reservation())
                .map(|w| ObjectRef::new(Kind::Workload, w.key.namespace.clone(), w.key.name.clone()))
                .collect();
            for reference in inactive {
                world.edit(&reference, |v| v["spec"]["active"] = true.into());
            }
            if jobs(&world).iter().all(|j| is_finished(&world.api.objects[j])) {
                break;
            }
        }
        world.advance(60);
        world.settle();
        for queue in ["a", "b"] {
            let status = world.json(&ObjectRef::new(Kind::ClusterQueue, "", queue))["status"].clone();
            assert_eq!(status["flavorsReservation"][0]["resources"][0]["total"], "0", "seed {seed}");
            assert_eq!((&status["reservingWorkloads"], &status["pendingWorkloads"]), (&json!(0), &json!(0)));
        }
        for workload in world.controller.workloads() {
            assert!(workload.is_finished(), "seed {seed}: {}", workload.key);
        }
    }
}
