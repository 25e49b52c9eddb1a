//! Runs of odd manifests, with Slicegate's own controller.

use std::fmt::Write as _;

use serde_json::json;
use slicegate_api::{Kind, Object, ObjectRef};
use slicegate_controller::{Change, Configuration, Effects, Operation, Write, WriteId, WriteOutcome, field_manager};
use slicegate_manifest::{Diagnostic, Options as LoadOptions, Source, load};
use slicegate_sim::render::{self, TextOptions};
use slicegate_sim::{Admission, Input, NoFiles, Options, Outcome, Simulation, Verdict, parse_duration, preflight};
use slicegate_workload::Timestamp;

const QUEUES: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: v5e}
spec: {nodeLabels: {cloud.google.com/gke-tpu-accelerator: tpu-v5-lite-podslice}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [google.com/tpu]
    flavors: [{name: v5e, resources: [{name: google.com/tpu, nominalQuota: 1000000000}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: default}
spec: {clusterQueue: cq}
---
";

fn queued_jobset(name: &str, replicas: i64, parallelism: i64, more: &str) -> String {
    let pods = "nodeSelector: {cloud.google.com/gke-tpu-accelerator: tpu-v5-lite-podslice, cloud.google.com/gke-tpu-topology: 2x4}";
    let mut text = String::new();
    let _ = write!(
        text,
        "apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: {name}
  labels: {{kueue.x-k8s.io/queue-name: lq}}
  annotations: {{alpha.jobset.sigs.k8s.io/exclusive-topology: cloud.google.com/gke-nodepool}}
spec:
  replicatedJobs:
  - name: w
    replicas: {replicas}
    template:
      spec:
        parallelism: {parallelism}
        completions: {parallelism}
        template:
          spec:
            {more}
            {pods}
            containers: [{{name: c, image: x, resources: {{limits: {{google.com/tpu: 4}}}}}}]
---
"
    );
    text
}

fn read(text: &str) -> (Vec<slicegate_manifest::Document>, Vec<Diagnostic>) {
    let sources = [Source { name: "m.yaml".to_owned(), text: text.to_owned(), ..Source::default() }];
    let loaded = load(&sources, &LoadOptions::default());
    assert!(!loaded.has_errors(), "{:#?}", loaded.diagnostics);
    let found = preflight(&loaded.documents, &sources);
    (loaded.documents, found)
}

fn run(text: &str, until: Option<&str>) -> Outcome {
    let until = until.map(|text| parse_duration(text).unwrap());
    let input = Input::new(read(text).0, Options { until, ..Options::default() });
    Simulation::new(input, &NoFiles, Configuration::default()).unwrap().run()
}

fn told(outcome: &Outcome) -> String {
    render::timeline(outcome, TextOptions::default()) + &render::summary(outcome)
}

fn scenario(spec: &str) -> String {
    format!("apiVersion: slicegate.dev/v1alpha1\nkind: Scenario\nmetadata: {{name: s}}\nspec: {spec}\n---\n")
}

#[test]
fn what_is_too_large_to_simulate_is_said_and_not_made() {
    for jobset in [queued_jobset("huge", 1_073_741_823, 2, ""), queued_jobset("huge", 1, 200_000, "")] {
        let outcome = run(&(QUEUES.to_owned() + &jobset), None);
        let [huge] = outcome.verdicts.as_slice() else { panic!() };
        assert_ne!(huge.verdict, Verdict::Running);
        assert!(
            outcome.warnings.iter().any(|w| w.contains("no more than 100000 are simulated")),
            "{:?}",
            outcome.warnings
        );
    }
    let outcome = run(&(QUEUES.to_owned() + &queued_jobset("huge", 1, 200_000, "")), None);
    assert!(told(&outcome).contains("asks for 200000 pods at once"), "{}", told(&outcome));
}

#[test]
fn nodes_that_may_not_idle_still_serve() {
    let times = scenario("{runTime: 0s, nodeProvisioning: 0s, scaleDownAfter: 0s}");
    let outcome = run(&(QUEUES.to_owned() + &times + &queued_jobset("a", 2, 2, "")), None);
    assert!(matches!(outcome.verdicts[0].verdict, Verdict::Finished { .. }), "{}", told(&outcome));
}

#[test]
fn a_slice_is_not_shared_by_jobs_of_different_priorities() {
    let class = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 100\n---\n";
    let jobs = queued_jobset("low", 1, 2, "") + &queued_jobset("high", 1, 2, "priorityClassName: high");
    let outcome = run(&(QUEUES.to_owned() + class + &jobs), None);
    let told = told(&outcome);
    let on = |job: &str| {
        let line = told.lines().find(|l| l.contains(&format!("JobSet {job} ")) && l.contains("running:")).unwrap();
        line.rsplit(' ').next().unwrap().to_owned()
    };
    assert_ne!(on("low"), on("high"), "{told}");
    assert!(told.contains("2 of 2 jobs finished"), "{told}");
}

#[test]
fn pods_that_have_ended_do_not_run() {
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {cloud.google.com/gke-tpu-accelerator: \
                tpu-v5-lite-podslice, cloud.google.com/gke-tpu-topology: 2x4}}\nstatus: {allocatable: {google.com/tpu: 4}}\n---\n";
    let alone = queued_jobset("a", 2, 1, "").replace("annotations", "#");
    let told = told(&run(&(QUEUES.to_owned() + node + &alone), None));
    assert!(told.contains("running: 2 Jobs, 1 pods on n1, 1 more have ended already"), "{told}");
}

#[test]
fn a_simulation_that_is_stopped_says_so_and_counts_all_jobs() {
    let late = scenario("{events: [{at: 1h, apply: {object: JobSet/late}}]}");
    let text = QUEUES.to_owned() + &late + &queued_jobset("a", 1, 2, "") + &queued_jobset("late", 1, 2, "");
    let outcome = run(&text, Some("10s"));
    assert!(outcome.stopped);
    let told = told(&outcome);
    assert!(told.contains("JobSet late: not applied before the simulation was stopped"), "{told}");
    assert!(told.contains("0 of 2 jobs finished; the simulation was stopped at 00:00:10"), "{told}");
    assert!(!run(&(QUEUES.to_owned() + &queued_jobset("a", 1, 2, "")), Some("1d")).stopped);
}

#[test]
fn a_job_that_is_deleted_after_its_end_has_finished() {
    let short =
        queued_jobset("a", 1, 2, "").replace("  replicatedJobs:", "  ttlSecondsAfterFinished: 5\n  replicatedJobs:");
    let outcome = run(&(QUEUES.to_owned() + &short), None);
    assert!(told(&outcome).contains("1 of 1 jobs finished"), "{}", told(&outcome));
}

#[test]
fn a_missing_priority_class_is_given_as_the_reason() {
    let outcome = run(&(QUEUES.to_owned() + &queued_jobset("a", 1, 2, "priorityClassName: nope")), None);
    let told = told(&outcome);
    assert!(told.contains("gets no workload: there is no PriorityClass nope"), "{told}");
    assert!(told.contains("no workload was made for it (queue lq): there is no PriorityClass nope"), "{told}");
}

#[test]
fn a_pool_that_cannot_grow_is_given_as_the_reason() {
    let pool = |autoscaling: &str| {
        format!(
            "name: p\nconfig: {{machineType: ct5lp-hightpu-4t}}\nautoscaling: {autoscaling}\nplacementPolicy: \
             {{tpuTopology: 2x4}}\ninitialNodeCount: 0\n---\n"
        )
    };
    for (autoscaling, why) in [
        ("{enabled: false}", "its pods find no node: node pool p has no nodes, and its autoscaling is off"),
        ("{enabled: true, maxNodeCount: 1}", "node pool p has no nodes and needs 2, but may have 1 at most"),
    ] {
        let told = told(&run(&(QUEUES.to_owned() + &pool(autoscaling) + &queued_jobset("a", 1, 2, "")), None));
        assert_eq!(told.matches(why).count(), 2, "in the timeline and at the end: {told}");
    }
}

#[test]
fn what_the_simulation_could_not_do_is_found_before() {
    let timed = queued_jobset("a", 1, 2, "").replace("annotations: {", "annotations: {slicegate.dev/run-time: long, ");
    let pool = "name: p\nconfig: {machineType: n2-standard-8}\ninitialNodeCount: 2147483647\n---\n";
    let (_, found) = read(&(QUEUES.to_owned() + &timed + pool + &scenario("{runTimes: {nobody: 5s, JobSet/a: 5s}}")));
    let paths: Vec<(&str, bool)> = found.iter().map(|d| (d.path.as_str(), d.is_error())).collect();
    assert!(paths.contains(&("metadata.annotations[slicegate.dev/run-time]", true)), "{paths:?}");
    assert!(paths.contains(&("initialNodeCount", true)), "{paths:?}");
    assert!(paths.contains(&("spec.runTimes[nobody]", false)), "{paths:?}");
    assert!(!paths.iter().any(|(path, _)| path.contains("JobSet/a")), "{paths:?}");
}

#[test]
fn a_job_behind_others_in_a_strict_queue_is_told_so() {
    let strict = QUEUES.replace("  namespaceSelector", "  queueingStrategy: StrictFIFO\n  namespaceSelector");
    let little = strict.replace("1000000000", "8");
    let outcome = run(&(little + &queued_jobset("a", 2, 2, "") + &queued_jobset("b", 1, 2, "")), None);
    let told = told(&outcome);
    assert!(told.contains("JobSet b: never admitted: it waits behind others: ClusterQueue cq"), "{told}");
}

#[test]
fn no_run_leaves_the_calendar() {
    let start = |text: &str| {
        let scenario = scenario(&format!("{{start: {text:?}, runTime: 365000d}}"));
        let input =
            Input::new(read(&(QUEUES.to_owned() + &scenario + &queued_jobset("a", 1, 2, ""))).0, Options::default());
        Simulation::new(input, &NoFiles, Configuration::default()).map(|simulation| told(&simulation.run()))
    };
    assert!(start("4999-12-31T00:00:00Z").unwrap().contains("JobSet a: finished at 365000d 00:02:02"));
    assert!(start("5000-01-02T00:00:00Z").is_err() && start("1969-01-01T00:00:00Z").is_err());
    assert!(parse_duration("365001d").is_err());
}

#[test]
fn what_may_not_be_changed_is_refused() {
    let first = queued_jobset("a", 1, 2, "");
    let changed = [
        (first.replace("parallelism: 2", "parallelism: 4"), "spec.replicatedJobs: cannot be changed"),
        (first.replace("queue-name: lq", "queue-name: other"), "cannot be changed while the job is not suspended"),
        (
            "apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: lq}\nspec: {clusterQueue: x}\n"
                .to_owned(),
            "spec.clusterQueue: cannot be changed",
        ),
    ];
    for (change, why) in changed {
        let told = told(&run(&(QUEUES.to_owned() + &first + &change), None));
        assert!(told.contains(why) && told.contains("1 of 1 jobs finished"), "{told}");
    }
    let relabelled = first.replace("labels: {", "labels: {team: x, ");
    let outcome = run(&(QUEUES.to_owned() + &first + &relabelled), None);
    assert!(told(&outcome).contains("applied again, changed"), "{}", told(&outcome));
    // One that waits may change its queue.
    let waits = first.replace("queue-name: lq", "queue-name: none");
    assert!(told(&run(&(QUEUES.to_owned() + &waits + &first), None)).contains("1 of 1 jobs finished"));
}

fn driver_and_workers(order: &str) -> String {
    let workers = queued_jobset("a", 1, 2, "").replace("annotations", "#");
    let driver = "  replicatedJobs:\n  - {name: driver, template: {spec: {template: {spec: {containers: [{name: c, image: x}]}}}}}\n";
    workers.replace("  replicatedJobs:\n", &format!("  startupPolicy: {{startupPolicyOrder: {order}}}\n{driver}"))
}

#[test]
fn a_job_without_counts_has_one_pod() {
    let told = told(&run(&(QUEUES.to_owned() + &driver_and_workers("AnyOrder")), None));
    assert!(told.contains("1 of 1 jobs finished"), "{told}");
}

#[test]
fn replicated_jobs_start_in_order_if_told_to() {
    let outcome = run(&(QUEUES.to_owned() + &driver_and_workers("InOrder")), None);
    let started = |name: &str| {
        let mut jobs = outcome.objects.values().filter_map(|object| match object {
            Object::Job(job) if job.metadata.name.as_deref() == Some(name) => job.status.clone(),
            _ => None,
        });
        jobs.next_back().and_then(|status| status.start_time).unwrap().0
    };
    assert!(started("a-driver-0") < started("a-w-0"));
    assert!(told(&outcome).contains("1 of 1 jobs finished"), "{}", told(&outcome));
}

#[test]
fn an_indexed_job_without_completions_is_refused() {
    let text = queued_jobset("a", 1, 2, "").replace("        completions: 2\n", "");
    let told = told(&run(&(QUEUES.to_owned() + &text), None));
    assert!(told.matches("completions must be set").count() == 2, "{told}");
}

/// Tries for ever what cannot be done.
struct Stubborn {
    tries: u64,
}

impl Admission for Stubborn {
    fn observe(&mut self, _: Timestamp, _: Change) {}

    fn complete(&mut self, now: Timestamp, outcome: WriteOutcome) {
        assert!(outcome.result.is_err(), "{now:?}");
    }

    fn reconcile(&mut self, now: Timestamp) -> Effects {
        self.tries += 1;
        assert!(self.tries < 100_000, "it never ends");
        let wake_at = Some(now.plus_seconds(60));
        if self.tries.is_multiple_of(2) {
            return Effects { wake_at, ..Default::default() };
        }
        let nobody = ObjectRef::new(Kind::Job, "default", "nobody");
        let write = Write {
            id: WriteId(self.tries),
            manager: field_manager::JOB,
            operation: Operation::Delete { object: nobody, uid: "".into() },
        };
        Effects { writes: vec![write], wake_at, ..Default::default() }
    }
}

#[test]
fn a_controller_that_only_ever_fails_does_not_keep_the_simulation_going() {
    let simulation = Simulation::with(Input::default(), &NoFiles, Stubborn { tries: 0 });
    let Ok(simulation) = simulation else { panic!("an empty input is good") };
    let outcome = simulation.run();
    assert!(outcome.verdicts.is_empty());
}

/// Admits the first Job it sees, and starts it in a way that the API server refuses.
#[derive(Default)]
struct Clumsy {
    job: Option<Object>,
    workload: Option<Object>,
    done: u64,
}

impl Admission for Clumsy {
    fn observe(&mut self, _: Timestamp, change: Change) {
        if let Change::Applied(object) = change {
            match object.kind() {
                Kind::Job => self.job = Some(object),
                Kind::Workload => self.workload = Some(object),
                _ => {}
            }
        }
    }

    fn complete(&mut self, _: Timestamp, _: WriteOutcome) {}

    fn reconcile(&mut self, _: Timestamp) -> Effects {
        let Some(job) = self.job.clone() else { return Effects::default() };
        let operation = match (self.done, self.workload.clone()) {
            (0, _) => Operation::Create(
                Kind::Workload
                    .read(json!({"metadata": {"name": "w", "namespace": "default", "ownerReferences": [
                            {"apiVersion": "batch/v1", "kind": "Job", "name": job.name(), "uid": job.uid(), "controller": true}]},
                        "spec": {"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": {"spec": {
                            "restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}}]}}))
                    .unwrap(),
            ),
            (1, Some(workload)) => {
                let mut value = workload.to_json().unwrap();
                value["status"] = json!({"admission": {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 1}]},
                    "conditions": [{"type": "Admitted", "status": "True", "reason": "Admitted", "message": "",
                        "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
                Operation::UpdateStatus(Kind::Workload.read(value).unwrap())
            }
            (2, _) => {
                let mut value = job.to_json().unwrap();
                value["spec"]["suspend"] = false.into();
                value["spec"]["parallelism"] = (-1).into();
                Operation::Update(Kind::Job.read(value).unwrap())
            }
            _ => return Effects::default(),
        };
        self.done += 1;
        let write = Write { id: WriteId(self.done), manager: field_manager::JOB, operation };
        Effects { writes: vec![write], ..Effects::default() }
    }
}

fn job(name: &str, counts: &str) -> String {
    format!(
        "apiVersion: batch/v1
kind: Job
metadata: {{name: {name}, labels: {{kueue.x-k8s.io/queue-name: lq}}}}
spec:
  {counts}
  template: {{spec: {{restartPolicy: Never, containers: [{{name: c, image: x, resources: {{limits: {{google.com/tpu: 4}}}}}}]}}}}
---
"
    )
}

#[test]
fn a_job_that_is_admitted_and_does_nothing_says_why() {
    let text = QUEUES.to_owned() + &job("none", "parallelism: 0") + &queued_jobset("empty", 0, 2, "");
    let said = told(&run(&text, None));
    for line in [
        "Job none: admitted, not running: it asks for no pods: its parallelism is 0\n",
        "JobSet empty: admitted, not running: it asks for no pods: replicas or parallelism of all its replicatedJobs are 0\n",
    ] {
        assert!(said.contains(line), "{said}");
    }
    let input = Input::new(read(&job("refused", "suspend: true")).0, Options::default());
    let Ok(simulation) = Simulation::with(input, &NoFiles, Clumsy::default()) else { panic!("the input is good") };
    let said = told(&simulation.run());
    let line =
        "Job refused: admitted, not running: it cannot be started: Job default/refused was refused: spec.parallelism";
    assert!(said.contains(line), "{said}");
}
