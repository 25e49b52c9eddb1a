//! What is particular to kinds of job, and who is managed at all.

use serde_json::{Value, json};
use slicegate_api::{Kind, ObjectRef};
use slicegate_controller::{Change, Configuration};
use slicegate_workload::{ConditionType, LabelSelector, Operator, Requirement};

use crate::api::{World, jobset, queue};
use crate::batch::{self, job, running};

fn manage_all() -> World {
    let configuration = Configuration {
        manage_jobs_without_queue_name: true,
        managed_jobs_namespace_selector: LabelSelector {
            match_expressions: vec![Requirement {
                key: "kubernetes.io/metadata.name".into(),
                operator: Operator::NotIn,
                values: vec!["excluded".into()],
            }],
            ..LabelSelector::default()
        },
        ..Configuration::default()
    };
    let mut world = World::new(configuration);
    queue(&mut world, &json!({}), 16, &json!({}));
    world.put(json!({"kind": "Namespace", "metadata": {"name": "excluded"}}));
    world.settle();
    world
}

/// A job that runs, without a queue.
fn plain(mut job: Value, namespace: &str) -> Value {
    job["metadata"]["labels"] = Value::Null;
    job["metadata"]["namespace"] = namespace.into();
    job["spec"]["suspend"] = false.into();
    job
}

fn child_of(world: &World, owner: &ObjectRef, uid: Option<&str>, namespace: &str) -> Value {
    let uid = uid.map_or_else(|| world.json(owner)["metadata"]["uid"].clone(), Into::into);
    let mut child = plain(job("child", 1), namespace);
    child["metadata"]["ownerReferences"] = json!([{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "name": owner.name, "uid": uid, "controller": true}]);
    child
}

#[test]
fn jobs_of_an_excluded_namespace_and_their_children_are_left_alone() {
    let mut world = manage_all();
    let owner = world.put(plain(jobset("a", 1, None), "excluded"));
    let child = child_of(&world, &owner, None, "excluded");
    let child = world.put(child);
    world.settle();
    for job in [&owner, &child] {
        assert_eq!(world.json(job)["spec"]["suspend"], false, "{job}");
        assert!(world.controller.workload_of(job).is_none());
    }
}

#[test]
fn the_owner_decides_for_its_children_but_only_a_real_one() {
    let mut world = manage_all();
    let mut owner = jobset("a", 1, None);
    owner["spec"]["suspend"] = true.into();
    let owner = world.put(owner);
    world.settle();
    assert!(world.has(&owner, &ConditionType::Admitted));
    let child = child_of(&world, &owner, None, "default");
    let child = world.put(child);
    world.settle();
    assert_eq!(world.json(&child)["spec"]["suspend"], false, "its owner may run");
    assert!(world.controller.workload_of(&child).is_none());
    let mut stranger = child_of(&world, &owner, Some("of-another"), "default");
    stranger["metadata"]["name"] = "stranger".into();
    let stranger = world.put(stranger);
    world.settle();
    assert_eq!(world.json(&stranger)["spec"]["suspend"], true, "nobody answers for it");
}

#[test]
fn a_jobset_that_does_not_say_how_many_has_one() {
    let mut world = World::new(Configuration::default());
    queue(&mut world, &json!({"pool": "a"}), 16, &json!({}));
    let mut driver = jobset("a", 1, None);
    driver["spec"]["replicatedJobs"][0].as_object_mut().unwrap().remove("replicas");
    driver["spec"]["suspend"] = true.into();
    let a = world.put(driver);
    world.settle();
    assert_eq!(world.workload(&a).spec.pod_sets[0].count, 2);
    assert_eq!(world.json(&a)["spec"]["suspend"], false);
    assert!(world.json(&a)["spec"]["replicatedJobs"][0].get("replicas").is_none(), "it is not written into the JobSet");
}

#[test]
fn indexes_that_failed_give_their_quota_back() {
    let mut world = batch::world("4", &json!({}));
    let mut indexed = job("a", 4);
    indexed["spec"]["completionMode"] = "Indexed".into();
    indexed["spec"]["backoffLimitPerIndex"] = 0.into();
    let a = world.put(indexed);
    world.settle();
    running(&mut world, &a, 4);
    let b = world.put(job("b", 2));
    world.settle();
    assert!(!world.has(&b, &ConditionType::QuotaReserved));
    world.edit(&a, |v| {
        v["status"]["active"] = 2.into();
        v["status"]["failedIndexes"] = "0,3".into();
    });
    world.settle();
    assert!(world.has(&b, &ConditionType::Admitted), "two of four pods are over");
}

#[test]
fn a_job_that_was_admitted_in_part_is_whole_again_when_it_stops() {
    let mut world = batch::world("6", &json!({}));
    let mut flexible = job("a", 10);
    flexible["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "4"});
    flexible["spec"]["completions"] = 20.into();
    let a = world.put(flexible);
    world.settle();
    assert_eq!(world.json(&a)["spec"]["parallelism"], 6);
    running(&mut world, &a, 6);
    let workload = ObjectRef::new(Kind::Workload, "default", world.key(&a).name);
    world.edit(&workload, |v| v["spec"]["active"] = false.into());
    world.settle();
    running(&mut world, &a, 0);
    assert_eq!(world.json(&a)["spec"]["parallelism"], 10);
}

#[test]
fn a_user_cannot_start_a_deactivated_job() {
    let mut world = batch::world("4", &json!({}));
    let a = world.put(job("a", 1));
    world.settle();
    let workload = ObjectRef::new(Kind::Workload, "default", world.key(&a).name);
    world.edit(&workload, |v| v["spec"]["active"] = false.into());
    world.settle();
    running(&mut world, &a, 0);
    world.edit(&a, |v| v["spec"]["suspend"] = false.into());
    world.settle();
    assert_eq!(world.json(&a)["spec"]["suspend"], true);
    assert_eq!(world.reasons(&a).last(), Some(&"Stopped"));
}

#[test]
fn a_workload_whose_job_was_deleted_alone_is_finished_and_frees_its_quota() {
    let mut world = batch::world("4", &json!({}));
    let a = world.put(job("a", 4));
    world.settle();
    let key = world.key(&a);
    // Deletion that orphans: the job goes, what it owned stays and forgets it.
    let gone = world.api.objects.remove(&a).unwrap();
    world.controller.observe(world.now, Change::Deleted(gone));
    let workload = ObjectRef::new(Kind::Workload, "default", key.name.clone());
    world.edit(&workload, |v| {
        v["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    });
    let b = world.put(job("b", 4));
    world.settle();
    let finished = world.controller.workload(&key).unwrap().status.conditions.get(&ConditionType::Finished).cloned();
    assert_eq!(&*finished.unwrap().reason, "OwnerNotFound");
    assert!(world.has(&b, &ConditionType::Admitted));
    world.delete(&workload);
    world.settle();
    assert!(!world.api.objects.contains_key(&workload), "nothing holds it");
}
