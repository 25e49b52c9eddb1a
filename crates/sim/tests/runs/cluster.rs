//! Whole runs on simulated clusters, with a controller that hands out chips first come, first served.

use std::collections::BTreeMap;

use crate::common::{Fifo, item, jobset, lines, pool, rayjob, run, scaling_pool, simulation};
use serde_json::{Value, json};
use slicegate_api::{Kind, Object, ObjectRef};
use slicegate_sim::render::{self, Resource, TableOptions, TextOptions};
use slicegate_sim::{Item, Outcome, Verdict};

fn three_pools() -> Vec<Item> {
    ["nodepool1", "nodepool2", "nodepool3"].map(|name| pool(name, "ct5lp-hightpu-4t", "2x4", 2)).into()
}

fn default_pool() -> Item {
    item(json!({
        "kind": "NodePool", "name": "default-pool", "initialNodeCount": 1, "config": {"machineType": "n2-standard-16"}
    }))
}

fn scenario(spec: &Value) -> Item {
    item(json!({"kind": "Scenario", "metadata": {"name": "s"}, "spec": spec}))
}

#[track_caller]
fn has(outcome: &Outcome, line: &str) {
    let lines = lines(outcome);
    assert!(lines.iter().any(|l| l == line), "no {line:?} in {lines:#?}");
}

fn json_of(outcome: &Outcome, kind: Kind, name: &str) -> Value {
    let namespace = if kind.is_namespaced() { "default" } else { "" };
    outcome.objects[&ObjectRef::new(kind, namespace, name)].to_json().unwrap()
}

fn verdict(outcome: &Outcome, name: &str) -> (Verdict, String) {
    let found = outcome.verdicts.iter().find(|v| *v.job.name == *name).unwrap();
    (found.verdict.clone(), found.why.clone().unwrap_or_default())
}

fn is_finished(outcome: &Outcome, name: &str) -> bool {
    matches!(verdict(outcome, name).0, Verdict::Finished { .. })
}

fn names(outcome: &Outcome, kind: Kind) -> Vec<String> {
    outcome.objects.keys().filter(|key| key.kind == kind).map(|key| key.name.to_string()).collect()
}

#[test]
fn three_jobsets_share_three_slices() {
    let mut items = three_pools();
    items.extend([jobset("multislice-3slice", 3), jobset("multislice-1slice", 1), jobset("multislice-2slice", 2)]);
    let outcome = run(items, Fifo::with_chips(24));
    has(&outcome, "00:00:01 JobSet/multislice-3slice admitted by cq: slice on f (24 google.com/tpu)");
    has(&outcome, "00:00:02 JobSet/multislice-1slice waits: 8 more needed");
    has(&outcome, "00:00:03 JobSet/multislice-3slice running: 3 Jobs, 6 pods on nodepool1, nodepool2 and nodepool3");
    has(&outcome, "00:01:03 JobSet/multislice-3slice finished: jobset completed successfully");
    has(&outcome, "00:01:05 JobSet/multislice-1slice running: 1 Job, 2 pods on nodepool1");
    has(&outcome, "00:01:05 JobSet/multislice-2slice running: 2 Jobs, 4 pods on nodepool2 and nodepool3");
    assert!(["multislice-1slice", "multislice-2slice", "multislice-3slice"].iter().all(|n| is_finished(&outcome, n)));
    let pods = names(&outcome, Kind::Pod);
    assert_eq!(pods.len(), 12, "pods of finished jobs stay");
    assert!(
        pods[0].starts_with("multislice-1slice-slice-0-0-")
            && pods[0].len() == "multislice-1slice-slice-0-0-".len() + 5
    );
}

#[test]
fn the_pods_of_a_slice_look_as_jobset_makes_them() {
    let mut items = three_pools();
    items.push(jobset("a", 1));
    let outcome = run(items, Fifo::with_chips(24));
    let pods: Vec<Value> = names(&outcome, Kind::Pod).iter().map(|name| json_of(&outcome, Kind::Pod, name)).collect();
    let [leader, follower] = pods.as_slice() else { panic!() };
    let job = json_of(&outcome, Kind::Job, "a-slice-0");
    let owner = &leader["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["name"], &owner["uid"]),
        (&json!("Job"), &json!("a-slice-0"), &job["metadata"]["uid"])
    );
    for list in ["labels", "annotations"] {
        assert_eq!(leader["metadata"][list]["batch.kubernetes.io/job-completion-index"], "0");
    }
    assert_eq!(leader["metadata"]["labels"]["jobset.sigs.k8s.io/priority"], "0");
    assert_eq!(leader["metadata"]["generateName"], "a-slice-0-0-");
    assert_eq!((&leader["spec"]["hostname"], &leader["spec"]["subdomain"]), (&json!("a-slice-0-0"), &json!("a")));
    let topology = &leader["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0];
    assert_eq!(topology["topologyKey"], "cloud.google.com/gke-nodepool");
    assert_eq!(follower["spec"]["nodeSelector"]["cloud.google.com/gke-nodepool"], "nodepool1");
    assert_eq!(follower["spec"]["affinity"], Value::Null);
    let created = |pod: &Value| pod["metadata"]["creationTimestamp"].as_str().unwrap().to_owned();
    assert_eq!((created(leader), created(follower)), ("2026-01-01T00:00:01Z".into(), "2026-01-01T00:00:02Z".into()));
    assert_eq!(job["status"]["completedIndexes"], "0,1");
    let kinds: Vec<&str> =
        job["status"]["conditions"].as_array().unwrap().iter().map(|c| c["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["Suspended", "SuccessCriteriaMet", "Complete"]);
}

#[test]
fn the_status_of_a_jobset_goes_through_the_recorded_steps() {
    let mut items = three_pools();
    items.push(jobset("a", 1));
    let outcome = run(items, Fifo::with_chips(24));
    let mut steps: Vec<String> = Vec::new();
    for revision in outcome.history.revisions() {
        let slicegate_controller::Change::Applied(Object::JobSet(j)) = &revision.change else { continue };
        let Some(s) = j.status.replicated_jobs_status.first() else { continue };
        let conditions: Vec<String> = j.status.conditions.iter().map(|c| format!("{}={}", c.type_, c.status)).collect();
        let step = format!(
            "active {} ready {} succeeded {} suspended {} {}",
            s.active,
            s.ready,
            s.succeeded,
            s.suspended,
            conditions.join(" ")
        );
        if steps.last() != Some(&step) {
            steps.push(step);
        }
    }
    assert_eq!(
        steps,
        [
            "active 0 ready 0 succeeded 0 suspended 0 Suspended=True",
            "active 0 ready 0 succeeded 0 suspended 1 Suspended=True",
            "active 0 ready 0 succeeded 0 suspended 1 Suspended=False",
            "active 0 ready 0 succeeded 0 suspended 0 Suspended=False",
            "active 1 ready 0 succeeded 0 suspended 0 Suspended=False",
            "active 1 ready 1 succeeded 0 suspended 0 Suspended=False",
            "active 0 ready 1 succeeded 0 suspended 0 Suspended=False",
            "active 0 ready 0 succeeded 1 suspended 0 Suspended=False Completed=True",
        ]
    );
}

#[test]
fn a_pool_grows_from_nothing_and_goes_as_a_whole() {
    let items = vec![
        scaling_pool("p", "ct5lp-hightpu-4t", "2x4", 2, false),
        jobset("a", 1),
        scenario(&json!({"nodeProvisioning": "3m", "scaleDownAfter": "5m"})),
    ];
    let outcome = run(items, Fifo::with_chips(8));
    has(&outcome, "00:00:01 node pool p scales up 0 -> 2 (nodes in 3 min)");
    has(&outcome, "00:03:01 node pool p: 2 node(s) ready");
    has(&outcome, "00:03:02 JobSet/a running: 1 Job, 2 pods on p");
    has(&outcome, "00:04:02 JobSet/a finished: jobset completed successfully");
    has(&outcome, "00:09:02 node pool p scales down 2 -> 0 (idle for 5 min)");
    assert_eq!(names(&outcome, Kind::Node), Vec::<String>::new());
}

#[test]
fn a_pool_keeps_its_least_nodes_and_never_exceeds_its_most() {
    let job = |name: &str| {
        item(json!({
            "kind": "Job", "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "q"}},
            "spec": {"parallelism": 5, "completions": 5, "template": {"spec": {"restartPolicy": "Never", "containers": [
                {"name": "c", "image": "x", "resources": {"limits": {"google.com/tpu": "8"}}}]}}}
        }))
    };
    let single = item(json!({
        "kind": "NodePool", "name": "p", "initialNodeCount": 1, "config": {"machineType": "ct5lp-hightpu-8t"},
        "autoscaling": {"enabled": true, "minNodeCount": 1, "maxNodeCount": 3}
    }));
    let outcome = run(vec![single, job("a")], Fifo::with_chips(64));
    has(&outcome, "00:00:01 node pool p scales up 1 -> 3 (nodes in 2 min)");
    assert!(is_finished(&outcome, "a"), "pods take turns");
    assert_eq!(names(&outcome, Kind::Node).len(), 1);
    assert!(lines(&outcome).iter().all(|line| !line.contains("-> 4")));
}

#[test]
fn an_evicted_job_gives_everything_back_and_runs_again() {
    let mut items = three_pools();
    items.extend([jobset("first", 3), jobset("second", 2)]);
    let first = ObjectRef::new(Kind::JobSet, "default", "first");
    let fifo = Fifo { chips: 24, evict: Some((20, first)), ..Fifo::default() };
    let outcome = run(items, fifo);
    has(&outcome, "00:00:20 JobSet/first preempted (Preempted): Preempted to accommodate another workload");
    has(&outcome, "00:00:20 JobSet/first back in its queue");
    has(&outcome, "00:00:20 JobSet/second admitted by cq: slice on f (16 google.com/tpu)");
    // The pods that had to stop were gone a second later; then those of `second` found nodes.
    has(&outcome, "00:00:22 JobSet/second running: 2 Jobs, 4 pods on nodepool1 and nodepool2");
    assert!(is_finished(&outcome, "first") && is_finished(&outcome, "second"));
    let attempts = lines(&outcome).iter().filter(|l| l.contains("JobSet/first running")).count();
    assert_eq!(attempts, 2);
    assert_eq!(names(&outcome, Kind::Pod).len(), 6 + 4, "evicted pods are gone");
}

#[test]
fn exclusive_jobs_do_not_share_a_slice() {
    // Quota for two, nodes for one: the second waits for the whole slice although the books say it may run.
    let items = vec![pool("only", "ct5lp-hightpu-4t", "2x4", 2), jobset("a", 1), jobset("b", 1)];
    let outcome = run(items, Fifo::with_chips(16));
    has(&outcome, "00:00:03 JobSet/a running: 1 Job, 2 pods on only");
    has(&outcome, "00:01:04 JobSet/b running: 1 Job, 2 pods on only");
}

#[test]
fn pods_that_fit_nowhere_are_told_why() {
    let taller = |topology: &str, chips: &str| {
        item(json!({
            "kind": "JobSet", "metadata": {"name": "a", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
            "spec": {"replicatedJobs": [{"name": "slice", "template": {"spec": {"parallelism": 1, "completions": 1,
                "template": {"spec": {"nodeSelector": {"cloud.google.com/gke-tpu-topology": topology},
                    "containers": [{"name": "c", "image": "x", "resources": {"limits": {"google.com/tpu": chips}}}]}}}}}]}
        }))
    };
    let base = || pool("p", "ct5lp-hightpu-4t", "2x4", 2);
    let why = |items: Vec<Item>| {
        let outcome = run(items, Fifo::with_chips(64));
        let (verdict, why) = verdict(&outcome, "a");
        assert_eq!(verdict, Verdict::Admitted);
        assert!(lines(&outcome).iter().any(|line| line.ends_with(&why)), "{why}");
        why
    };
    assert_eq!(
        why(vec![base(), taller("4x4", "4")]),
        "its pods find no node: no node has the labels cloud.google.com/gke-tpu-topology=4x4"
    );
    assert_eq!(
        why(vec![base(), taller("2x4", "2")]),
        "its pods find no node: node pool p: a pod must ask for all 4 chips of a node, not 2"
    );
    let queued = scaling_pool("p", "ct5lp-hightpu-4t", "2x4", 2, true);
    assert_eq!(
        why(vec![queued, taller("2x4", "4")]),
        "its pods find no node: node pool p: taint cloud.google.com/gke-queued=true:NoSchedule is not tolerated"
    );
}

#[test]
fn a_ray_job_runs_on_a_slice_of_its_own() {
    let items = vec![default_pool(), pool("slice", "ct6e-standard-4t", "4x4", 4), rayjob("r")];
    let outcome = run(items, Fifo::with_chips(16));
    let job = json_of(&outcome, Kind::RayJob, "r");
    let id = job["status"]["jobId"].as_str().unwrap().to_owned();
    let cluster = job["status"]["rayClusterName"].as_str().unwrap().to_owned();
    assert!(id.starts_with("r-") && id.len() == 7 && cluster.starts_with("r-") && cluster != id);
    has(
        &outcome,
        &format!(
            "00:00:02 RayJob/r running: Ray cluster {cluster} is ready, head on default-pool and 4 workers on slice"
        ),
    );
    has(&outcome, &format!("00:01:03 RayJob/r Job '{id}' succeeded"));
    assert_eq!(job["status"]["jobDeploymentStatus"], "Complete");
    assert_eq!(job["status"]["jobStatus"], "SUCCEEDED");
    let statuses: Vec<String> = outcome
        .history
        .revisions()
        .iter()
        .filter_map(|r| match &r.change {
            slicegate_controller::Change::Applied(Object::RayJob(j)) => {
                Some(j.status.job_deployment_status.clone().unwrap_or_default())
            }
            _ => None,
        })
        .fold(Vec::new(), |mut all, status| {
            if all.last() != Some(&status) {
                all.push(status);
            }
            all
        });
    assert_eq!(statuses, ["", "Initializing", "Suspending", "Suspended", "", "Initializing", "Running", "Complete"]);
    assert_eq!(names(&outcome, Kind::RayCluster), Vec::<String>::new(), "the cluster is shut down");
    assert_eq!(names(&outcome, Kind::Pod).len(), 1, "the submitter stays");
    let workers: Vec<Value> = outcome
        .history
        .at(slicegate_workload::Timestamp::from_seconds(outcome.start.seconds() + 10))
        .values()
        .filter(|o| o.kind() == Kind::Pod && o.name().contains("-tpu-group-worker-"))
        .map(|o| o.to_json().unwrap())
        .collect();
    let indexes: Vec<&str> =
        workers.iter().map(|w| w["metadata"]["labels"]["ray.io/replica-host-index"].as_str().unwrap()).collect();
    assert_eq!(indexes.len(), 4);
    assert!(["0", "1", "2", "3"].iter().all(|i| indexes.contains(i)));
    assert_eq!(workers[0]["metadata"]["labels"]["ray.io/node-type"], "worker");
}

#[test]
fn two_ray_jobs_never_mix_on_a_slice() {
    let items = vec![
        default_pool(),
        pool("one", "ct6e-standard-4t", "4x4", 4),
        pool("two", "ct6e-standard-4t", "4x4", 4),
        rayjob("a"),
        rayjob("b"),
    ];
    let outcome = run(items, Fifo::with_chips(32));
    let on: Vec<String> = lines(&outcome).into_iter().filter(|l| l.contains("4 workers on")).collect();
    assert_eq!(on.len(), 2);
    assert!(on[0].ends_with("on one") && on[1].ends_with("on two"), "{on:?}");
}

fn consuming(items: Vec<Item>) -> Outcome {
    let selector = BTreeMap::from([("cloud.google.com/gke-nodepool".to_owned(), "dws".to_owned())]);
    run(items, Fifo { chips: 1_000, provision: true, selector, ..Fifo::default() })
}

#[test]
fn a_provisioning_request_brings_a_whole_slice() {
    let items = vec![default_pool(), scaling_pool("dws", "ct6e-standard-4t", "4x4", 4, true), rayjob("a"), rayjob("b")];
    let outcome = consuming(items);
    has(&outcome, "00:00:01 RayJob/a ProvisioningRequest a-pr accepted: queued for DWS capacity");
    has(&outcome, "00:05:01 RayJob/a ProvisioningRequest a-pr provisioned after 5 min: node pool dws 0 -> 4");
    has(&outcome, "00:05:02 RayJob/b ProvisioningRequest b-pr waits: no queued node pool is free");
    has(&outcome, "00:16:04 node pool dws scales down 4 -> 0 (idle for 10 min)");
    has(&outcome, "00:16:04 RayJob/b ProvisioningRequest b-pr provisioned after 16 min 2 s: node pool dws 0 -> 4");
    assert!(is_finished(&outcome, "a") && is_finished(&outcome, "b"));
    let request = json_of(&outcome, Kind::ProvisioningRequest, "a-pr");
    let of = |kind: &str| {
        let all = request["status"]["conditions"].as_array().unwrap();
        all.iter().find(|c| c["type"] == kind).map(|c| c["reason"].as_str().unwrap().to_owned())
    };
    assert_eq!(of("Accepted").as_deref(), Some("SuccessfullyQueued"));
    assert_eq!(of("Provisioned").as_deref(), Some("Provisioned"));
    assert_eq!(of("BookingExpired").as_deref(), Some("BookingExpired"));
    assert_eq!(request["status"]["provisioningClassDetails"]["NodePoolName"], "dws");
}

#[test]
fn a_request_that_is_never_met_fails_after_seven_days() {
    let items = vec![
        default_pool(),
        scaling_pool("dws", "ct6e-standard-4t", "4x4", 4, true),
        rayjob("a"),
        rayjob("b"),
        scenario(&json!({"runTimes": {"RayJob/a": "8d"}})),
    ];
    let outcome = consuming(items);
    has(
        &outcome,
        "7d 00:00:02 RayJob/b ProvisioningRequest b-pr failed: Provisioning Request could not provision queued instances in \
         the allocated time.",
    );
    assert!(!is_finished(&outcome, "b"));
}

#[test]
fn an_impossible_request_fails_at_once() {
    let reason = |pools: Vec<Item>| {
        let mut items = vec![default_pool(), rayjob("a")];
        items.extend(pools);
        let outcome = consuming(items);
        let request = json_of(&outcome, Kind::ProvisioningRequest, "a-pr");
        let failed = request["status"]["conditions"][0].clone();
        assert_eq!(failed["type"], "Failed");
        failed["reason"].as_str().unwrap().to_owned()
    };
    assert_eq!(reason(vec![]), "NoQueuedNodepoolAvailable");
    assert_eq!(
        reason(vec![scaling_pool("dws", "ct5lp-hightpu-4t", "4x4", 4, true)]),
        "ProvisioningRequestNotSchedulableInNodepool"
    );
    assert_eq!(reason(vec![scaling_pool("dws", "ct6e-standard-4t", "4x4", 3, true)]), "NodepoolSizeReached");
}

#[test]
fn a_batch_job_works_off_its_completions() {
    let job = item(json!({
        "kind": "Job", "metadata": {"name": "p", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
        "spec": {"parallelism": 3, "completions": 5, "template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}}}
    }));
    let outcome = run(vec![default_pool(), job], Fifo::with_chips(0));
    // Three pods for a minute each, then two more.
    has(&outcome, "00:00:02 Job/p running: 3 pods on default-pool");
    has(&outcome, "00:02:03 Job/p finished: reached expected number of succeeded pods");
    assert_eq!(names(&outcome, Kind::Pod).len(), 5);
    let pod = json_of(&outcome, Kind::Pod, &names(&outcome, Kind::Pod)[0]);
    assert_eq!(pod["metadata"]["finalizers"], Value::Null);
    assert_eq!(json_of(&outcome, Kind::Job, "p")["status"]["succeeded"], 5);
}

#[test]
fn run_times_come_from_the_job_the_scenario_or_the_default() {
    let mut annotated = jobset("annotated", 1);
    if let Item::Object(object) = &mut annotated {
        let annotations = object.metadata_mut().annotations.get_or_insert_default();
        annotations.insert("slicegate.dev/run-time".to_owned(), "10s".to_owned());
    }
    let mut items = three_pools();
    items.extend([
        annotated,
        jobset("named", 1),
        jobset("other", 1),
        scenario(&json!({"runTime": "30s", "runTimes": {"JobSet/named": "20s", "annotated": "99s"}})),
    ]);
    let outcome = run(items, Fifo::with_chips(24));
    has(&outcome, "00:00:13 JobSet/annotated finished: jobset completed successfully");
    has(&outcome, "00:00:24 JobSet/named finished: jobset completed successfully");
    has(&outcome, "00:00:35 JobSet/other finished: jobset completed successfully");
}

#[test]
fn without_pools_they_are_made_as_autopilot_does() {
    let outcome = run(vec![jobset("a", 2), rayjob("r")], Fifo::with_chips(64));
    assert!(is_finished(&outcome, "a") && is_finished(&outcome, "r"));
    assert_eq!(outcome.warnings.len(), 1, "{:?}", outcome.warnings);
    assert!(outcome.warnings[0].contains("as Autopilot does"));
    has(&outcome, "00:00:01 node pool tpu-v5-lite-podslice-2x4-1 scales up 0 -> 2 (nodes in 2 min)");
    has(&outcome, "00:00:01 node pool tpu-v5-lite-podslice-2x4-2 scales up 0 -> 2 (nodes in 2 min)");
    has(&outcome, "00:00:02 node pool default-pool scales up 0 -> 1 (nodes in 2 min)");
}

#[test]
fn a_scenario_can_end_early() {
    let mut items = three_pools();
    items.extend([jobset("a", 3), jobset("b", 3), scenario(&json!({"until": "30s"}))]);
    let outcome = run(items, Fifo::with_chips(24));
    assert_eq!(verdict(&outcome, "a"), (Verdict::Running, String::new()));
    assert_eq!(verdict(&outcome, "b"), (Verdict::NeverAdmitted, "24 more needed".to_owned()));
    let summary = render::summary(&outcome);
    assert!(summary.contains("JobSet b: never admitted: 24 more needed\n0 of 2 jobs finished"), "{summary}");
}

#[test]
fn config_maps_that_nobody_described_are_taken_to_be_there() {
    let job = item(json!({
        "kind": "Job", "metadata": {"name": "p"},
        "spec": {"parallelism": 2, "completions": 2, "template": {"spec": {"restartPolicy": "Never",
            "volumes": [{"name": "v", "configMap": {"name": "script"}}, {"name": "o", "secret": {"secretName": "s", "optional": true}}],
            "containers": [{"name": "c", "image": "x"}]}}}
    }));
    let outcome = run(vec![default_pool(), job], Fifo::default());
    assert_eq!(
        outcome.warnings,
        ["ConfigMap default/script is used by pods, but no document describes it; it is taken to be there"]
    );
    assert!(is_finished(&outcome, "p"), "a job without a queue just runs");
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let play = || {
        let mut items = three_pools();
        items.extend([jobset("a", 2), jobset("b", 3), default_pool(), rayjob("r")]);
        items.push(scaling_pool("v6e", "ct6e-standard-4t", "4x4", 4, false));
        let outcome = run(items, Fifo::with_chips(32));
        (
            render::recording(&outcome),
            render::json(&outcome).to_string(),
            render::timeline(&outcome, TextOptions::default()),
        )
    };
    assert_eq!(play(), play());
}

#[test]
fn tables_show_any_moment() {
    let mut items = three_pools();
    items.extend([jobset("multislice-3slice", 3), jobset("multislice-1slice", 1)]);
    let outcome = run(items, Fifo::with_chips(24));
    let print = |resource, second: i64, wide| {
        let at = slicegate_workload::Timestamp::from_seconds(outcome.start.seconds() + second);
        let options = TableOptions { wide, ..TableOptions::default() };
        render::table(resource, &outcome.objects_at(at), at, &options).to_string()
    };
    assert_eq!(
        print(Resource::Workloads, 5, false),
        "\
NAME                       QUEUE   RESERVED IN   ADMITTED   FINISHED   AGE
jobset-multislice-1slice   q                     False                 3s
jobset-multislice-3slice   q       cq            True                  4s
"
        .replace("False", "     ")
    );
    let pods = print(Resource::Pods, 1, true);
    assert!(pods.lines().nth(1).is_some_and(|line| line.contains("Pending") && line.contains("<none>")), "{pods}");
    let pods = print(Resource::Pods, 30, false);
    assert_eq!(pods.lines().filter(|line| line.contains("1/1     Running")).count(), 6, "{pods}");
    assert_eq!(
        print(Resource::Jobs, 30, false),
        "\
NAME                        STATUS      COMPLETIONS   DURATION   AGE
multislice-1slice-slice-0   Suspended   0/2                      28s
multislice-3slice-slice-0   Running     0/2           29s        29s
multislice-3slice-slice-1   Running     0/2           29s        29s
multislice-3slice-slice-2   Running     0/2           29s        29s
"
    );
}

#[test]
fn the_timeline_is_one_line_an_event() {
    let mut items = three_pools();
    items.push(jobset("a", 1));
    let outcome = run(items, Fifo::with_chips(24));
    assert_eq!(
        render::timeline(&outcome, TextOptions::default()),
        "\
00:00:00  cluster   applied: NodePool nodepool1, NodePool nodepool2, NodePool nodepool3
00:00:01  JobSet a  applied
00:00:01  JobSet a  workload jobset-a created in queue q: slice x 2
00:00:01  JobSet a  admitted by cq: slice on f (8 google.com/tpu)
00:00:03  JobSet a  running: 1 Job, 2 pods on nodepool1
00:01:03  JobSet a  finished: jobset completed successfully
"
    );
    let coloured = render::timeline(&outcome, TextOptions { colour: true, ..TextOptions::default() });
    assert!(coloured.contains("\x1b[32mrunning"));
}

#[test]
fn json_holds_everything() {
    let mut items = three_pools();
    items.push(jobset("a", 1));
    let outcome = run(items, Fifo::with_chips(24));
    let json = render::json(&outcome);
    assert_eq!(json["start"], "2026-01-01T00:00:00Z");
    assert_eq!(json["verdicts"][0]["verdict"], "finished");
    assert_eq!(json["timeline"][3]["kind"], "applied");
    assert_eq!(json["objects"].as_array().unwrap().len(), outcome.objects.len());
    let first: Value = serde_json::from_str(render::recording(&outcome).lines().next().unwrap()).unwrap();
    assert_eq!((&first["t"], &first["type"], &first["kind"]), (&json!(0.0), &json!("ADDED"), &json!("namespaces")));
}

#[test]
fn a_finished_job_goes_when_its_time_to_live_is_over() {
    let job = item(json!({
        "kind": "Job", "metadata": {"name": "p"},
        "spec": {"ttlSecondsAfterFinished": 30, "template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "c", "image": "x"}]}}}
    }));
    let outcome = run(vec![default_pool(), job], Fifo::default());
    assert_eq!(names(&outcome, Kind::Job), Vec::<String>::new());
    assert_eq!(names(&outcome, Kind::Pod), Vec::<String>::new(), "its pods go with it");
    assert_eq!(outcome.end.seconds() - outcome.start.seconds(), 92);
}

#[test]
fn steps_can_be_watched() {
    let mut items = three_pools();
    items.push(jobset("a", 1));
    let mut simulation = simulation(items, Fifo::with_chips(24));
    assert!(simulation.step());
    assert_eq!(simulation.store().of_kind(Kind::Node).count(), 6);
    assert!(simulation.step());
    assert_eq!(simulation.now().seconds(), 1_767_225_601);
    assert!(simulation.timeline().iter().any(|entry| entry.text.starts_with("admitted")));
}
