//! Hosts and programs that fail.

use crate::common::{Fifo, item, jobset, lines, pool, rayjob, run, scaling_pool};
use serde_json::{Value, json};
use slicegate_api::{Kind, ObjectRef};
use slicegate_controller::Change;
use slicegate_sim::{Item, Outcome, Verdict};

fn scenario(spec: &Value) -> Item {
    item(json!({"kind": "Scenario", "metadata": {"name": "s"}, "spec": spec}))
}

fn pools(count: usize) -> Vec<Item> {
    (1..=count).map(|i| pool(&format!("nodepool{i}"), "ct5lp-hightpu-4t", "2x4", 2)).collect()
}

#[track_caller]
fn has(outcome: &Outcome, line: &str) {
    let lines = lines(outcome);
    assert!(lines.iter().any(|l| l == line), "no {line:?} in {lines:#?}");
}

fn verdict(outcome: &Outcome, name: &str) -> Verdict {
    outcome.verdicts.iter().find(|v| *v.job.name == *name).unwrap().verdict.clone()
}

fn json_of(outcome: &Outcome, kind: Kind, name: &str) -> Value {
    let namespace = if kind.is_namespaced() { "default" } else { "" };
    outcome.objects[&ObjectRef::new(kind, namespace, name)].to_json().unwrap()
}

/// The versions of objects of a kind, as JSON, with the seconds at which they came to be.
fn versions(outcome: &Outcome, kind: Kind) -> Vec<(i64, bool, Value)> {
    let revisions = outcome.history.revisions().iter();
    let all = revisions.map(|revision| {
        let (object, gone) = match &revision.change {
            Change::Applied(object) => (object, false),
            Change::Deleted(object) => (object, true),
        };
        (revision.time.micros_since(outcome.start) / 1_000_000, gone, object.clone())
    });
    all.filter(|(.., object)| object.kind() == kind).map(|(at, gone, o)| (at, gone, o.to_json().unwrap())).collect()
}

fn ready(node: &Value) -> String {
    let conditions = node["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|c| c["type"] == "Ready").unwrap()["status"].as_str().unwrap().to_owned()
}

/// The conditions of a failed pod: why it was disrupted.
fn disruptions(outcome: &Outcome) -> Vec<(i64, String, String)> {
    let failed =
        versions(outcome, Kind::Pod).into_iter().filter(|(_, gone, pod)| !gone && pod["status"]["phase"] == "Failed");
    let mut all = Vec::new();
    for (at, _, pod) in failed {
        for condition in pod["status"]["conditions"].as_array().unwrap() {
            if condition["type"] == "DisruptionTarget" {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                all.push((at, text(&pod["metadata"]["name"]), text(&condition["reason"])));
            }
        }
    }
    all
}

#[test]
fn a_broken_host_takes_its_slice_down_and_the_jobset_starts_again() {
    let mut items = pools(2);
    items.push(jobset("train", 2));
    items.push(scenario(&json!({"runTime": "30m", "events": [
        {"at": "10m", "fail": {"pool": "nodepool2", "host": 1, "repairAfter": "15m"}}
    ]})));
    let outcome = run(items, Fifo::with_chips(16));
    let log = lines(&outcome).join("\n");
    assert!(log.contains("00:10:00 node pool nodepool2: host gke-nodepool2-"), "{log}");
    assert!(log.contains("broke; its slice of 2 nodes goes down with it and is back in 15 min"), "{log}");
    has(&outcome, "00:11:00 node pool nodepool2: 2 node(s) gone");
    has(&outcome, "00:11:00 JobSet/train Job train-slice-1 failed: the JobSet starts again (1 of 4 restarts)");
    has(&outcome, "00:25:00 node pool nodepool2: 2 node(s) repaired");
    assert_eq!(verdict(&outcome, "train"), Verdict::Finished { at: Some(outcome.start.plus_seconds(3_301)) }, "{log}");
    let status = &json_of(&outcome, Kind::JobSet, "train")["status"];
    assert_eq!((&status["restarts"], &status["restartsCountTowardsMax"]), (&json!(1), &json!(1)));
    let job = json_of(&outcome, Kind::Job, "train-slice-0");
    assert_eq!(job["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"], "1");
    let workload = json_of(&outcome, Kind::Workload, "jobset-train");
    assert!(
        workload["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .all(|c| c["type"] != "Evicted" || c["status"] != "True")
    );
}

#[test]
fn nodes_are_not_ready_then_gone_then_back_and_pods_fail_with_them() {
    let mut items = pools(1);
    items.push(jobset("train", 1));
    items.push(scenario(&json!({"runTime": "30m", "events": [
        {"at": "10m", "fail": {"job": "JobSet/train", "host": 1, "repairAfter": "5m"}}
    ]})));
    let outcome = run(items, Fifo::with_chips(8));
    let mut story: Vec<(i64, String, String)> = Vec::new();
    for (at, gone, node) in versions(&outcome, Kind::Node) {
        let name = node["metadata"]["name"].as_str().unwrap();
        let number = name.rsplit_once('-').unwrap().1.to_owned();
        story.push((at, number, if gone { "gone".to_owned() } else { ready(&node) }));
    }
    let told: Vec<(i64, &str, &str)> = story.iter().map(|(at, n, what)| (*at, n.as_str(), what.as_str())).collect();
    let expected = [
        (0, "0", "True"),
        (0, "1", "True"),
        (600, "1", "Unknown"),
        (660, "0", "gone"),
        (660, "1", "gone"),
        (900, "0", "True"),
        (900, "1", "True"),
    ];
    assert_eq!(told, expected);
    let broken = versions(&outcome, Kind::Node).into_iter().find(|(at, ..)| *at == 600).unwrap().2;
    let taints = broken["spec"]["taints"].as_array().unwrap();
    assert!(taints.iter().any(|t| t["key"] == "node.kubernetes.io/unreachable" && t["effect"] == "NoExecute"));
    let unready = versions(&outcome, Kind::Pod).into_iter().filter(|(at, ..)| *at == 600).count();
    assert_eq!(unready, 1, "only the pod of the broken host is not ready");
    let lost = disruptions(&outcome);
    assert_eq!(lost.len(), 2, "{lost:?}");
    assert!(
        lost.iter().all(|(at, name, why)| *at == 660 && name.starts_with("train-slice-0-") && why == "DeletionByPodGC")
    );
    assert_eq!(verdict(&outcome, "train"), Verdict::Finished { at: Some(outcome.start.plus_seconds(2_701)) });
}

#[test]
fn a_restart_takes_another_slice_if_one_is_free() {
    let mut items = pools(3);
    items.push(jobset("train", 2));
    items.push(scenario(&json!({"runTime": "30m", "events": [
        {"at": "10m", "fail": {"job": "JobSet/train", "slice": 1, "repairAfter": "never"}}
    ]})));
    let outcome = run(items, Fifo::with_chips(16));
    has(&outcome, "00:11:03 JobSet/train running: 2 Jobs, 4 pods on nodepool1 and nodepool3");
    assert!(matches!(verdict(&outcome, "train"), Verdict::Finished { .. }));
    assert_eq!(outcome.objects.keys().filter(|key| key.kind == Kind::Node).count(), 4, "nodepool2 never comes back");
}

#[test]
fn a_jobset_fails_when_it_may_not_start_again() {
    let mut items = pools(2);
    let mut train = jobset("train", 1);
    if let Item::Object(slicegate_api::Object::JobSet(jobset)) = &mut train {
        std::sync::Arc::make_mut(jobset).spec.failure_policy.as_mut().unwrap().max_restarts = Some(1);
    }
    items.push(train);
    items.push(scenario(&json!({"runTime": "1h", "events": [
        {"at": "10m", "fail": {"job": "JobSet/train"}},
        {"at": "20m", "fail": {"job": "JobSet/train"}},
        {"at": "30m", "fail": {"job": "JobSet/train"}}
    ]})));
    let outcome = run(items, Fifo::with_chips(8));
    has(&outcome, "00:11:00 JobSet/train Job train-slice-0 failed: the JobSet starts again (1 of 1 restarts)");
    has(
        &outcome,
        "00:21:00 JobSet/train jobset failed due to reaching max number of restarts (first failed job: train-slice-0)",
    );
    has(&outcome, "00:30:00 nothing breaks: JobSet default/train has no pod on host 0 of slice 0");
    assert_eq!(verdict(&outcome, "train"), Verdict::Failed);
}

fn batch(name: &str, spec: &Value, pod: &Value) -> Item {
    let mut spec = spec.clone();
    spec["template"] = json!({"spec": pod});
    spec["template"]["spec"]["containers"] =
        json!([{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]);
    item(json!({"kind": "Job", "metadata": {"name": name}, "spec": spec}))
}

fn cpu_pool(nodes: i64) -> Item {
    item(
        json!({"kind": "NodePool", "name": "cpu", "initialNodeCount": nodes, "config": {"machineType": "n2-standard-8"}}),
    )
}

#[test]
fn a_single_host_pool_loses_one_node_and_disruptions_can_be_ignored() {
    let spec = json!({"parallelism": 2, "completions": 2, "completionMode": "Indexed", "backoffLimit": 0,
        "podFailurePolicy": {"rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}});
    let items = vec![
        cpu_pool(2),
        batch("calm", &spec, &json!({"restartPolicy": "Never"})),
        scenario(
            &json!({"runTime": "20m", "events": [{"at": "10m", "fail": {"pool": "cpu", "host": 0, "repairAfter": "1h"}}]}),
        ),
    ];
    let outcome = run(items, Fifo::default());
    let nodes: Vec<_> = outcome.objects.keys().filter(|key| key.kind == Kind::Node).collect();
    assert_eq!(nodes.len(), 2, "the node is back in the end");
    let job = json_of(&outcome, Kind::Job, "calm");
    assert_eq!(job["status"]["failed"], Value::Null, "{job:#}");
    assert!(matches!(verdict(&outcome, "calm"), Verdict::Finished { .. }));
    assert!(!disruptions(&outcome).is_empty());
}

#[test]
fn programs_that_fail_are_started_again_until_the_limit() {
    let exit = |at: &str, code: i32| json!({"at": at, "fail": {"job": "Job/a", "exitCode": code}});
    let play = |spec: &Value, pod: &Value, events: &[Value]| {
        let items = vec![cpu_pool(1), batch("a", spec, pod), scenario(&json!({"runTime": "10m", "events": events}))];
        let outcome = run(items, Fifo::default());
        (verdict(&outcome, "a"), json_of(&outcome, Kind::Job, "a"), outcome)
    };
    let reason = |job: &Value| {
        let conditions = job["status"]["conditions"].as_array().unwrap();
        conditions.iter().find(|c| c["type"] == "Failed").map(|c| c["reason"].as_str().unwrap().to_owned())
    };
    // In place: the program starts from its beginning.
    let (end, job, outcome) =
        play(&json!({"backoffLimit": 2}), &json!({"restartPolicy": "OnFailure"}), &[exit("5m", 1)]);
    assert_eq!(end, Verdict::Finished { at: Some(outcome.start.plus_seconds(900)) });
    assert_eq!(job["status"]["failed"], Value::Null);
    let (end, job, _) = play(&json!({"backoffLimit": 1}), &json!({"restartPolicy": "OnFailure"}), &[exit("5m", 1)]);
    assert_eq!((end, reason(&job).as_deref()), (Verdict::Failed, Some("BackoffLimitExceeded")));
    // By a new pod, after a while.
    let never = json!({"restartPolicy": "Never"});
    let (end, job, outcome) = play(&json!({"backoffLimit": 1}), &never, &[exit("5m", 1)]);
    assert_eq!(end, Verdict::Finished { at: Some(outcome.start.plus_seconds(911)) });
    assert_eq!(job["status"]["failed"], 1);
    let (end, job, _) = play(&json!({"backoffLimit": 1}), &never, &[exit("5m", 1), exit("6m", 1)]);
    assert_eq!((end, reason(&job).as_deref()), (Verdict::Failed, Some("BackoffLimitExceeded")));
    // By the pod failure policy.
    let policy = json!({"backoffLimit": 6, "podFailurePolicy": {"rules": [
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}});
    let (end, job, _) = play(&policy, &never, &[exit("5m", 42)]);
    assert_eq!((end, reason(&job).as_deref()), (Verdict::Failed, Some("PodFailurePolicy")));
    let conditions: Vec<&str> =
        job["status"]["conditions"].as_array().unwrap().iter().map(|c| c["type"].as_str().unwrap()).collect();
    assert_eq!(conditions, ["FailureTarget", "Failed"]);
    // By its deadline.
    let (end, job, outcome) = play(&json!({"activeDeadlineSeconds": 60}), &never, &[]);
    assert_eq!((end, reason(&job).as_deref()), (Verdict::Failed, Some("DeadlineExceeded")));
    has(&outcome, "00:01:02 Job/a Job was active longer than specified deadline");
}

#[test]
fn indexes_fail_one_by_one_where_the_limit_is_theirs() {
    let spec = |most: Value| {
        json!({"parallelism": 3, "completions": 3, "completionMode": "Indexed", "backoffLimitPerIndex": 0,
               "maxFailedIndexes": most})
    };
    let play = |spec: &Value| {
        let events = json!([{"at": "1m", "fail": {"job": "Job/a", "host": 1, "exitCode": 1}},
                            {"at": "2m", "fail": {"job": "Job/a", "host": 1, "exitCode": 1}}]);
        let items = vec![
            cpu_pool(1),
            batch("a", spec, &json!({"restartPolicy": "Never"})),
            scenario(&json!({"runTime": "10m", "events": events})),
        ];
        json_of(&run(items, Fifo::default()), Kind::Job, "a")["status"].clone()
    };
    let reason = |status: &Value| {
        let conditions = status["conditions"].as_array().unwrap();
        conditions.iter().find(|c| c["type"] == "Failed").unwrap()["reason"].as_str().unwrap().to_owned()
    };
    // The second failure hits the worker that is then the second one left.
    let status = play(&spec(Value::Null));
    assert_eq!((reason(&status).as_str(), &status["failedIndexes"]), ("FailedIndexes", &json!("1,2")));
    assert_eq!(status["succeeded"], 1);
    let status = play(&spec(json!(1)));
    assert_eq!(reason(&status), "MaxFailedIndexesExceeded");
    assert_eq!(status["succeeded"], Value::Null);
}

#[test]
fn rules_of_a_failure_policy_are_followed_in_order() {
    let play = |rules: Value| {
        let mut train = jobset("train", 1);
        if let Item::Object(slicegate_api::Object::JobSet(jobset)) = &mut train {
            let policy = std::sync::Arc::make_mut(jobset).spec.failure_policy.as_mut().unwrap();
            policy.max_restarts = Some(0);
            policy.other.insert("rules".to_owned(), rules);
        }
        let mut items = pools(1);
        items.push(train);
        items.push(scenario(&json!({"runTime": "30m", "events": [
            {"at": "10m", "fail": {"job": "JobSet/train", "exitCode": 1}}
        ]})));
        run(items, Fifo::with_chips(8))
    };
    let outcome = play(json!([
        {"name": "other", "action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]},
        {"name": "again", "action": "RestartJobSetAndIgnoreMaxRestarts", "targetReplicatedJobs": ["slice"]}
    ]));
    has(
        &outcome,
        "00:10:01 JobSet/train Job train-slice-0 failed: the JobSet starts again (restart 1, which does not count, by rule again)",
    );
    let status = &json_of(&outcome, Kind::JobSet, "train")["status"];
    assert_eq!((&status["restarts"], &status["restartsCountTowardsMax"]), (&json!(1), &json!(0)));
    assert!(matches!(verdict(&outcome, "train"), Verdict::Finished { .. }));
    let outcome = play(json!([{"name": "stop", "action": "FailJobSet"}]));
    assert_eq!(verdict(&outcome, "train"), Verdict::Failed);
    let status = &json_of(&outcome, Kind::JobSet, "train")["status"];
    let failed = status["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Failed").unwrap();
    assert_eq!(failed["reason"], "FailJobSetFailurePolicyAction");
}

#[test]
fn an_eviction_is_no_failure() {
    let evicted = ObjectRef::new(Kind::JobSet, "default", "train");
    let mut items = pools(1);
    items.push(jobset("train", 1));
    items.push(scenario(&json!({"runTime": "5m"})));
    let outcome = run(items, Fifo { evict: Some((60, evicted)), ..Fifo::with_chips(8) });
    let status = &json_of(&outcome, Kind::JobSet, "train")["status"];
    assert_eq!((&status["restarts"], &status["terminalState"]), (&json!(0), &json!("Completed")));
    assert_eq!(json_of(&outcome, Kind::Job, "train-slice-0")["status"]["failed"], Value::Null);
}

#[test]
fn an_autoscaled_slice_is_repaired_and_does_not_grow_twice() {
    let items = vec![
        scaling_pool("a", "ct5lp-hightpu-4t", "2x4", 2, false),
        jobset("train", 1),
        scenario(&json!({"runTime": "30m", "events": [{"at": "10m", "fail": {"pool": "a"}}]})),
    ];
    let outcome = run(items, Fifo::with_chips(8));
    let log = lines(&outcome);
    assert_eq!(log.iter().filter(|line| line.contains("scales up")).count(), 1, "{log:#?}");
    has(&outcome, "00:25:00 node pool a: 2 node(s) repaired");
    assert!(matches!(verdict(&outcome, "train"), Verdict::Finished { .. }));
    assert_eq!(outcome.objects.keys().filter(|key| key.kind == Kind::Node).count(), 0, "it goes when it idles");
}

#[test]
fn a_rayjob_fails_with_its_workers_unless_it_may_try_again() {
    let play = |retries: i64| {
        let mut ray = rayjob("ray");
        if let Item::Object(slicegate_api::Object::RayJob(job)) = &mut ray {
            std::sync::Arc::make_mut(job).spec.other.insert("backoffLimit".to_owned(), retries.into());
        }
        let items = vec![
            item(json!({"kind": "NodePool", "name": "default-pool", "initialNodeCount": 1,
                        "config": {"machineType": "n2-standard-16"}})),
            pool("v6e", "ct6e-standard-4t", "4x4", 4),
            ray,
            scenario(&json!({"runTime": "20m", "events": [{"at": "10m", "fail": {"job": "RayJob/ray", "host": 2}}]})),
        ];
        run(items, Fifo::with_chips(16))
    };
    let outcome = play(0);
    assert_eq!(verdict(&outcome, "ray"), Verdict::Failed);
    let status = &json_of(&outcome, Kind::RayJob, "ray")["status"];
    assert!(status["message"].as_str().unwrap().starts_with("Job failed: pod ray-"), "{status:#}");
    let outcome = play(1);
    let log = lines(&outcome).join("\n");
    assert!(log.contains("failed: the RayJob starts again (1 of 1 retries)"), "{log}");
    assert!(matches!(verdict(&outcome, "ray"), Verdict::Finished { .. }), "{log}");
    let status = &json_of(&outcome, Kind::RayJob, "ray")["status"];
    assert_eq!((&status["failed"], &status["succeeded"]), (&json!(1), &json!(1)));
}

#[test]
fn a_cube_loses_one_host_and_its_parts_say_so() {
    let cube = item(json!({
        "kind": "NodePool", "name": "cube-a", "initialNodeCount": 16,
        "config": {"machineType": "tpu7x-standard-4t",
                   "labels": {"cloud.google.com/gke-accelerator-topology-mode": "PROVISION_ONLY"}},
        "placementPolicy": {"tpuTopology": "4x4x4"}
    }));
    let fail = json!({"at": "10m", "fail": {"pool": "cube-a", "host": 5, "repairAfter": "15m"}});
    let outcome = run(vec![cube, scenario(&json!({"events": [fail]}))], Fifo::default());
    // The states of the parts at a second, by shape: how many nodes are in parts of that state.
    let at = |second: i64, shape: &str, state: &str| {
        let objects = outcome.objects_at(outcome.start.plus_seconds(second));
        let key = format!("cloud.google.com/gke-tpu-partition-{shape}-state");
        let labels = objects.values().filter(|o| o.kind() == Kind::Node).filter_map(|o| o.metadata().labels.as_ref());
        labels.filter(|labels| labels.get(&key).is_some_and(|have| have == state)).count()
    };
    let parts = |shape: &str| {
        let key = format!("cloud.google.com/gke-tpu-partition-{shape}-id");
        let nodes = outcome.objects.values().filter(|o| o.kind() == Kind::Node);
        nodes.filter_map(|o| o.metadata().labels.as_ref()?.get(&key)).collect::<std::collections::BTreeSet<_>>().len()
    };
    let sizes = [("4x4x4", 16), ("2x4x4", 8), ("2x2x4", 4), ("2x2x2", 2), ("2x2x1", 1)];
    for (shape, hosts) in sizes {
        assert_eq!(parts(shape), 16 / hosts, "{shape}");
        assert_eq!(at(1, shape, "HEALTHY"), 16, "{shape}");
        assert_eq!((at(601, shape, "UNHEALTHY"), at(601, shape, "HEALTHY")), (hosts, 16 - hosts), "{shape}");
        assert_eq!((at(661, shape, "INCOMPLETE"), at(661, shape, "HEALTHY")), (hosts - 1, 16 - hosts), "{shape}");
        assert_eq!(at(1_501, shape, "HEALTHY"), 16, "{shape}");
    }
    has(&outcome, "00:11:00 node pool cube-a: 1 node(s) gone");
}

#[test]
fn pods_of_higher_priority_send_others_away() {
    let class =
        |name: &str, value: i32| item(json!({"kind": "PriorityClass", "metadata": {"name": name}, "value": value}));
    let spec = json!({"parallelism": 1, "completions": 1, "backoffLimit": 6});
    let big = |name: &str, class: &str| {
        let mut job = batch(name, &spec, &json!({"restartPolicy": "Never", "priorityClassName": class}));
        if let Item::Object(slicegate_api::Object::Job(job)) = &mut job {
            let pod = std::sync::Arc::make_mut(job).spec.as_mut().unwrap().template.spec.as_mut().unwrap();
            pod.containers[0].resources = serde_json::from_value(json!({"requests": {"cpu": "4"}})).unwrap();
        }
        job
    };
    let items = vec![
        cpu_pool(1),
        class("low", 1),
        class("high", 100),
        big("first", "low"),
        big("second", "high"),
        big("third", "low"),
        scenario(&json!({"runTime": "5m"})),
    ];
    let outcome = run(items, Fifo::default());
    let log = lines(&outcome).join("\n");
    assert!(log.contains("00:00:02 Job/second its pod second-"), "{log}");
    assert!(log.contains(" preempts first-"), "{log}");
    let finished = |name: &str| match verdict(&outcome, name) {
        Verdict::Finished { at: Some(at) } => at.micros_since(outcome.start) / 1_000_000,
        other => panic!("{name}: {other:?}"),
    };
    assert!(finished("second") < finished("first"), "{log}");
    assert_eq!(json_of(&outcome, Kind::Job, "first")["status"]["failed"], 1, "a preempted pod counts as failed");
    assert!(finished("second") < finished("third"), "the room that was made is not for others: {log}");
}
