//! News that comes late, out of step, or not at all.

use serde_json::json;
use slicegate_api::{Kind, Object, ObjectRef};
use slicegate_controller::{Change, Configuration, Operation, WriteError, WriteOutcome};
use slicegate_workload::{ConditionType, Key, Workload};

use crate::api::World;
use crate::batch::{job, reason, running, world};

fn workload_of(world: &World, job: &ObjectRef) -> ObjectRef {
    ObjectRef::new(Kind::Workload, "default", world.key(job).name)
}

#[test]
fn whoever_waits_for_an_answer_looks_again_when_the_object_was_seen_before_it() {
    let mut world = world("0", &json!({}));
    world.put(json!({"kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 9}));
    world.put(json!({"kind": "LocalQueue", "metadata": {"name": "other"}, "spec": {"clusterQueue": "cq"}}));
    let a = world.put(job("a", 1));
    world.settle();
    let workload = workload_of(&world, &a);
    // Two writes of the Workload follow from this, one after the other.
    world.edit(&a, |v| {
        v["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high".into();
        v["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "other".into();
    });
    let effects = world.controller.reconcile(world.now);
    let [write] = effects.writes.as_slice() else { panic!("{:?}", effects.writes) };
    assert!(matches!(&write.operation, Operation::Update(o) if o.reference() == workload));
    world.api.perform(write).unwrap();
    // A webhook adds something to it on the way, so that what is seen is not what was written.
    world.api.changes.clear();
    let mut object = world.api.objects[&workload].clone();
    object.metadata_mut().annotations.get_or_insert_default().insert("example.com/seen".to_owned(), "yes".to_owned());
    let object = world.api.store(object);
    world.api.changes.clear();
    world.controller.observe(world.now, Change::Applied(object.clone()));
    let meanwhile = world.controller.reconcile(world.now).writes;
    assert!(meanwhile.iter().all(|w| w.operation.object() != workload), "its answer is still to come");
    world.controller.complete(world.now, WriteOutcome { id: write.id, result: Ok(Some(object)) });
    world.settle();
    assert_eq!(world.json(&workload)["spec"]["queueName"], "other");
    assert_eq!(world.json(&workload)["spec"]["priority"], 9);
}

/// The end of a Workload is seen before the answer to the write that let it go, which is in the API server's hand.
fn gone_before_the_answer(answer: impl FnOnce(Object) -> Result<Option<Object>, WriteError>) -> World {
    let mut world = world("4", &json!({}));
    let a = world.put(job("a", 1));
    world.settle();
    let workload = workload_of(&world, &a);
    let last = world.api.objects[&workload].clone();
    world.delete(&workload);
    let lets_go = |w: &slicegate_controller::Write| match &w.operation {
        Operation::Update(o) => o.reference() == workload && o.metadata().finalizers.is_none(),
        _ => false,
    };
    for _ in 0..10 {
        let effects = world.controller.reconcile(world.now);
        for write in effects.writes {
            let result = world.api.perform(&write);
            if !lets_go(&write) {
                world.controller.complete(world.now, WriteOutcome { id: write.id, result });
                continue;
            }
            world.deliver();
            let meanwhile = world.controller.reconcile(world.now).writes;
            assert!(meanwhile.iter().all(|w| w.operation.object() != workload), "its answer is still to come");
            let result = answer(last);
            world.controller.complete(world.now, WriteOutcome { id: write.id, result });
            world.settle();
            return world;
        }
        world.deliver();
    }
    panic!("the Workload is not let go");
}

#[test]
fn a_job_whose_workload_was_seen_to_go_before_the_answer_gets_another() {
    let job = ObjectRef::new(Kind::Job, "default", "a");
    // As the API server answers, as it might, and when the answer is lost.
    assert!(gone_before_the_answer(|last| Ok(Some(last))).has(&job, &ConditionType::Admitted));
    assert!(gone_before_the_answer(|_| Ok(None)).has(&job, &ConditionType::Admitted));
    let mut late = gone_before_the_answer(|last| Err(WriteError::NotFound(last.reference())));
    late.advance(60);
    late.settle();
    assert!(late.has(&job, &ConditionType::Admitted));
}

#[test]
fn a_workload_that_goes_without_an_answer_is_made_again_once_it_may_be_written() {
    let mut world = world("4", &json!({}));
    let a = world.put(job("a", 1));
    world.settle();
    let workload = workload_of(&world, &a);
    // Writes of it fail, the last one only for want of an answer: each has it wait longer.
    let reference = workload.clone();
    let mut writes = 0;
    world.fault = Box::new(move |write| {
        let object = write.operation.object();
        let whole = object == reference && matches!(write.operation, Operation::Update(_));
        writes += u32::from(whole);
        (whole && writes < 3).then(|| WriteError::Unavailable { object, why: "connection refused".to_owned() })
    });
    world.delete(&workload);
    for _ in 0..60 {
        if world.api.objects.get(&workload).is_none_or(|o| o.metadata().finalizers.is_none()) {
            break;
        }
        for write in world.controller.reconcile(world.now).writes {
            let error = (world.fault)(&write);
            let result = error.map_or_else(|| world.api.perform(&write), Err);
            let gone = write.operation.object() == workload && !world.api.objects.contains_key(&workload);
            let lost = WriteError::Unavailable { object: workload.clone(), why: "connection closed".to_owned() };
            let result = if gone { Err(lost) } else { result };
            world.controller.complete(world.now, WriteOutcome { id: write.id, result });
        }
        world.deliver();
        world.advance(1);
    }
    assert!(!world.api.objects.contains_key(&workload), "it is gone");
    for _ in 0..20 {
        world.settle();
        if world.api.objects.contains_key(&workload) {
            return;
        }
        world.sleep();
    }
    panic!("its job needs another one");
}

#[test]
fn an_object_that_was_made_anew_outlives_the_answer_to_a_write_of_the_old_one() {
    // The status of a LocalQueue is to be written while it goes, and the finalizer of a flavor was the last that kept it.
    for (kind, name, namespace) in [(Kind::LocalQueue, "lq", "default"), (Kind::ResourceFlavor, "std", "")] {
        let mut world = world("4", &json!({}));
        let object = ObjectRef::new(kind, namespace, name);
        let spec = world.json(&object)["spec"].clone();
        let mut answers = Vec::new();
        if kind == Kind::LocalQueue {
            world.put(job("a", 1));
            world.step();
            world.deliver();
        } else {
            world.edit(&ObjectRef::new(Kind::ClusterQueue, "", "cq"), |v| v["spec"]["resourceGroups"] = json!([]));
            world.settle();
            world.delete(&object);
        }
        let writes = world.controller.reconcile(world.now).writes;
        let write = writes.into_iter().find(|w| w.operation.object() == object).unwrap();
        if kind == Kind::LocalQueue {
            world.delete(&object);
        }
        answers.push(WriteOutcome { id: write.id, result: world.api.perform(&write) });
        world.put(json!({"kind": kind.as_str(), "metadata": {"name": name}, "spec": spec}));
        for answer in answers {
            assert!(matches!(answer.result, Ok(None) | Err(WriteError::NotFound(_))), "{kind:?}: {:?}", answer.result);
            world.controller.complete(world.now, answer);
        }
        assert!(world.controller.object(&object).is_some(), "{kind:?} {name} is there");
    }
}

/// A Workload whose job nobody has seen.
fn stray(world: &mut World) -> ObjectRef {
    world.put(json!({"kind": "Workload", "metadata": {"name": "stray", "namespace": "default",
            "finalizers": ["kueue.x-k8s.io/resource-in-use"],
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "nobody",
                "controller": true}]},
        "spec": {"queueName": "lq", "active": true, "podSets": [{"name": "main", "count": 1, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}}]}}))
}

#[test]
fn a_workload_whose_job_is_not_seen_yet_is_given_ten_seconds() {
    let mut world = world("4", &json!({}));
    let stray = stray(&mut world);
    let key = Key::new("default", "stray");
    let finished = |world: &World| world.controller.workload(&key).is_none_or(Workload::is_finished);
    world.settle();
    world.advance(9);
    world.settle();
    assert!(!finished(&world), "watches of different kinds are not in step");
    world.advance(1);
    world.settle();
    assert!(finished(&world));
    let conditions = world.json(&stray)["status"]["conditions"].clone();
    let end = conditions.as_array().unwrap().iter().find(|c| c["type"] == "Finished").unwrap().clone();
    assert_eq!(end["reason"], "OwnerNotFound");
}

#[test]
fn workloads_of_kinds_that_are_not_managed_have_not_lost_their_jobs() {
    let mut world = world("4", &json!({}));
    let stray = stray(&mut world);
    let frameworks = [Kind::JobSet].into();
    world.restart(Configuration { frameworks, ..Configuration::default() });
    world.settle();
    world.advance(60);
    world.settle();
    let workload = world.controller.workload(&Key::new("default", "stray")).unwrap();
    assert!(workload.has_quota_reservation() && !workload.is_finished(), "its job may run");
    world.delete(&stray);
    world.settle();
    world.advance(10);
    world.settle();
    assert!(!world.api.objects.contains_key(&stray), "nobody else lets it go");
}

#[test]
fn a_controller_that_starts_knows_all_jobs_there_are() {
    let mut world = world("4", &json!({}));
    stray(&mut world);
    world.restart(Configuration::default());
    world.settle();
    assert!(world.controller.workload(&Key::new("default", "stray")).is_none_or(Workload::is_finished));
}

#[test]
fn a_job_is_not_started_while_pods_of_an_earlier_start_still_run() {
    let mut world = world("4", &json!({}));
    let mut by_hand = job("a", 2);
    by_hand["spec"]["suspend"] = false.into();
    let a = world.put(by_hand);
    // Its pods are there before anybody looks at it.
    running(&mut world, &a, 2);
    assert_eq!(world.json(&a)["spec"]["suspend"], true, "nobody admitted it");
    for _ in 0..3 {
        world.advance(60);
        world.settle();
        assert_eq!(world.json(&a)["spec"]["suspend"], true);
    }
    running(&mut world, &a, 0);
    assert!(world.has(&a, &ConditionType::Admitted));
    assert_eq!(world.json(&a)["spec"]["suspend"], false);
    assert_eq!(world.json(&a)["spec"]["template"]["spec"]["nodeSelector"]["pool"], "std");
    assert_eq!(reason(&world, &a, &ConditionType::Admitted), "Admitted");
}

#[test]
fn a_workload_is_kept_until_the_job_that_runs_as_it_says_is_as_it_was() {
    let mut world = world("4", &json!({}));
    let a = world.put(job("a", 2));
    world.settle();
    running(&mut world, &a, 2);
    assert_eq!(world.json(&a)["spec"]["template"]["spec"]["nodeSelector"]["pool"], "std");
    // Nobody may change the size of a job that runs. It is stopped, but the first writes of it do not arrive.
    let mut failures = 3;
    let reference = a.clone();
    world.fault = Box::new(move |write| {
        let object = write.operation.object();
        if object != reference || failures == 0 {
            return None;
        }
        failures -= 1;
        Some(WriteError::Conflict(object))
    });
    world.edit(&a, |v| {
        v["spec"]["parallelism"] = 3.into();
        v["spec"]["completions"] = 3.into();
    });
    for _ in 0..20 {
        world.settle();
        world.advance(1);
    }
    running(&mut world, &a, 0);
    world.edit(&ObjectRef::new(Kind::ClusterQueue, "", "cq"), |v| v["spec"]["stopPolicy"] = "Hold".into());
    world.settle();
    running(&mut world, &a, 0);
    let selector = world.json(&a)["spec"]["template"]["spec"]["nodeSelector"]["pool"].clone();
    assert_eq!(selector.is_null(), world.json(&a)["spec"]["suspend"] == true, "{selector}");
}

#[test]
fn a_write_that_came_too_late_is_made_again_as_soon_as_the_object_is_seen() {
    let mut world = world("4", &json!({}));
    let a = world.put(job("a", 2));
    let reference = a.clone();
    let mut late = 1;
    world.fault = Box::new(move |write| {
        let object = write.operation.object();
        (object == reference && std::mem::take(&mut late) == 1).then_some(WriteError::Conflict(object))
    });
    let before = world.now;
    world.step();
    assert_eq!(world.json(&a)["spec"]["suspend"], true, "as it was made");
    world.settle();
    assert_eq!(world.json(&a)["spec"]["suspend"], true, "nothing was seen that would change anything");
    world.edit(&a, |v| v["metadata"]["annotations"] = json!({"some": "body"}));
    world.settle();
    assert_eq!(world.json(&a)["spec"]["suspend"], false, "it is not waited for");
    assert_eq!(world.now, before);
}

#[test]
fn who_cannot_be_admitted_does_not_keep_others_from_it() {
    let mut world = world("4", &json!({}));
    let a = world.put(job("a", 4));
    world.fault = Box::new(move |write| {
        let object = write.operation.object();
        let refused = matches!(write.operation, Operation::UpdateStatus(_)) && object.name.starts_with("job-a-");
        refused.then(|| WriteError::Invalid { object, why: "a policy".to_owned() })
    });
    world.settle();
    let b = world.put(job("b", 4));
    world.settle();
    assert!(world.has(&b, &ConditionType::Admitted), "it came second, and is the first that can have it");
    let mut tries = 0;
    for _ in 0..60 {
        world.writes.clear();
        world.advance(1);
        world.settle();
        tries += world.writes.iter().filter(|w| w.operation.object().name.starts_with("job-a-")).count();
    }
    assert!(tries < 12, "{tries} tries in a minute");
    running(&mut world, &b, 4);
    world.edit(&b, |v| v["status"]["conditions"] = json!([{"type": "Complete", "status": "True"}]));
    world.fault = Box::new(|_| None);
    world.settle();
    world.advance(61);
    world.settle();
    assert!(world.has(&a, &ConditionType::Admitted));
}

#[test]
fn a_job_says_once_why_its_workload_cannot_be_made() {
    let mut world = world("4", &json!({}));
    let a = world.put(job("a", 4));
    world.fault = Box::new(move |write| {
        let object = write.operation.object();
        let refused = matches!(write.operation, Operation::Create(_));
        refused.then(|| WriteError::Invalid { object, why: "a policy".to_owned() })
    });
    for _ in 0..30 {
        world.settle();
        world.advance(1);
    }
    let told: Vec<&str> = world.events.iter().filter(|e| &*e.reason == "FailedCreate").map(|e| &*e.note).collect();
    let [told] = told.as_slice() else { panic!("{told:?}") };
    assert!(told.starts_with("Error creating Workload default/job-a-") && told.ends_with(": a policy"), "{told}");
    world.fault = Box::new(|_| None);
    world.advance(61);
    world.settle();
    assert!(world.has(&a, &ConditionType::Admitted));
}

#[test]
fn who_cannot_be_started_or_stopped_is_told_so_once() {
    let mut world = world("4", &json!({}));
    let a = world.put(job("a", 4));
    let jobs_are_refused = |write: &slicegate_controller::Write| {
        let object = write.operation.object();
        (object.kind == Kind::Job).then(|| WriteError::Invalid { object, why: "a policy".to_owned() })
    };
    let told = |world: &World| {
        let of_it = world.events.iter().filter(|e| &*e.reason == "FailedUpdate");
        of_it.map(|e| (e.object.name.to_string(), e.note.to_string())).collect::<Vec<_>>()
    };
    let once = ("a".to_owned(), "Error updating Job default/a: a policy".to_owned());
    world.fault = Box::new(jobs_are_refused);
    for _ in 0..30 {
        world.settle();
        world.advance(1);
    }
    assert!(world.has(&a, &ConditionType::Admitted));
    assert_eq!(told(&world), std::slice::from_ref(&once), "it is not started");
    world.fault = Box::new(|_| None);
    world.advance(61);
    world.settle();
    running(&mut world, &a, 4);
    // It is told again once it is refused again.
    world.fault = Box::new(jobs_are_refused);
    let reference = workload_of(&world, &a);
    world.edit(&reference, |v| v["spec"]["active"] = false.into());
    for _ in 0..30 {
        world.settle();
        world.advance(1);
    }
    assert_eq!(told(&world), [once.clone(), once], "it is not stopped");
}

#[test]
fn who_cannot_be_admitted_is_told_so_once() {
    let mut world = world("4", &json!({}));
    world.put(job("a", 4));
    world.fault = Box::new(move |write| {
        let object = write.operation.object();
        let refused = matches!(write.operation, Operation::UpdateStatus(_)) && object.kind == Kind::Workload;
        refused.then(|| WriteError::Invalid { object, why: "a policy".to_owned() })
    });
    for _ in 0..30 {
        world.settle();
        world.advance(1);
    }
    let told = world.events.iter().filter(|e| &*e.reason == "FailedStatusUpdate");
    let told: Vec<&str> = told.map(|e| &*e.note).collect();
    let [told] = told.as_slice() else { panic!("{told:?}") };
    assert!(
        told.starts_with("Error updating the status of Workload default/job-a-") && told.ends_with(": a policy"),
        "{told}"
    );
}

#[test]
fn nothing_is_said_of_what_a_namespace_that_ends_does_not_take() {
    let mut world = world("4", &json!({}));
    let mut tries = 0;
    world.put(job("a", 4));
    world.fault = Box::new(move |write| {
        let object = write.operation.object();
        let refused = matches!(write.operation, Operation::Create(_));
        refused.then_some(WriteError::NamespaceTerminating(object))
    });
    for _ in 0..60 {
        world.writes.clear();
        world.settle();
        tries += world.writes.iter().filter(|w| matches!(w.operation, Operation::Create(_))).count();
        world.advance(1);
    }
    assert!((2..12).contains(&tries), "{tries} tries in a minute");
    assert!(world.events.iter().all(|e| &*e.reason != "FailedCreate"), "{:?}", world.events);
}

#[test]
fn figures_of_queues_are_written_once_in_a_while() {
    let configuration = Configuration { queue_status_interval_micros: 2_000_000, ..Configuration::default() };
    let mut world = World::new(configuration);
    crate::api::queue(&mut world, &json!({}), 24, &json!({}));
    world.settle();
    world.advance(5);
    world.writes.clear();
    let of_queues = |world: &World| {
        let kinds = [Kind::ClusterQueue, Kind::LocalQueue];
        world.writes.iter().filter(|w| kinds.contains(&w.operation.object().kind)).count()
    };
    let admitted = |world: &World| {
        world.json(&ObjectRef::new(Kind::ClusterQueue, "", "cq"))["status"]["admittedWorkloads"].clone()
    };
    for name in ["a", "b", "c"] {
        world.put(crate::api::jobset(name, 1, None));
        world.settle();
    }
    assert_eq!((of_queues(&world), admitted(&world)), (2, json!(1)), "one write each");
    assert!(world.wake_at.is_some());
    world.sleep();
    world.settle();
    assert_eq!((of_queues(&world), admitted(&world)), (4, json!(3)));
    world.edit(&ObjectRef::new(Kind::ClusterQueue, "", "cq"), |v| v["spec"]["stopPolicy"] = "Hold".into());
    world.settle();
    let queue = world.json(&ObjectRef::new(Kind::ClusterQueue, "", "cq"));
    assert_eq!(queue["status"]["conditions"][0]["status"], "False", "that is told at once");
}

#[test]
fn workloads_that_are_set_aside_later_still_say_what_for() {
    let mut configuration = Configuration::default();
    configuration.engine.wait_for_pods_ready = Some(slicegate_admission::WaitForPodsReady {
        timeout_seconds: 600,
        block_admission: true,
        ..slicegate_admission::WaitForPodsReady::default()
    });
    let mut world = World::new(configuration);
    world.put(json!({"kind": "ResourceFlavor", "metadata": {"name": "std"}, "spec": {}}));
    world.put(json!({"kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {
        "namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": "std", "resources": [{"name": "cpu", "nominalQuota": "4"}]}]}]}}));
    world.put(json!({"kind": "LocalQueue", "metadata": {"name": "lq"}, "spec": {"clusterQueue": "cq"}}));
    let first = world.put(job("a", 1));
    world.settle();
    running(&mut world, &first, 0);
    // While admission waits for the pods of the first nobody is looked at.
    let waiting = ["b", "c", "d"].map(|name| world.put(job(name, 4)));
    world.settle();
    running(&mut world, &first, 1);
    for job in &waiting {
        assert_eq!(reason(&world, job, &ConditionType::QuotaReserved), "WaitingForQuota", "{job}");
    }
}
