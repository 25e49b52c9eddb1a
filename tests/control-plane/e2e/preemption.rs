//! Who makes room for whom, and what becomes of those who do.

use slicegate_control_plane::api::{self, is_true, text};
use slicegate_control_plane::{Result, Value, ensure, ensure_eq, json};

use crate::scene::{CONFIGURATION, Scene, held, managers, queue, said};
use crate::suite::{Suite, tests};

tests![
    a_higher_priority_preempts_in_its_queue,
    a_queue_reclaims_what_it_lent,
    a_waiting_job_gets_another_priority,
    pods_that_do_not_become_ready_are_requeued_and_given_up,
];

const PRIORITIES: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: low}
value: 10
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: high}
value: 100
";

async fn a_higher_priority_preempts_in_its_queue(suite: &mut Suite) -> Result<()> {
    let scene = Scene::set(suite, CONFIGURATION, Vec::new()).await?;
    scene.apply(PRIORITIES).await?;
    scene.apply(&queue("team", "4", "preemption: {withinClusterQueue: LowerPriority}")).await?;
    let low = scene.hold("low", 2, "2", &[("queue-name", "team"), ("priority-class", "low")]).await?;
    low.runs(2).await?;
    let row = scene.row(&["workloads"], "job-low-").await?;
    ensure_eq!((&*row["QUEUE"], &*row["RESERVED IN"], &*row["ADMITTED"]), ("team", "team", "True"), "the one alone");

    let high = scene.hold("high", 2, "2", &[("queue-name", "team"), ("priority-class", "high")]).await?;
    high.runs(2).await?;
    let evicted = low.pending("WaitingForQuota").await?;
    ensure_eq!(evicted["spec"]["priority"], 10, "the priority of its class");
    ensure_eq!(
        evicted["spec"]["priorityClassRef"],
        json!({"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "low"}),
        "the class"
    );
    let why = said(&evicted, "Preempted");
    let begins = "True(InClusterQueue): Preempted to accommodate a workload (UID: ";
    ensure!(why.starts_with(begins) && why.contains("due to prioritization in the ClusterQueue"), "{why}");
    ensure!(said(&evicted, "Evicted").starts_with("True(Preempted): "), "{}", said(&evicted, "Evicted"));
    let quota = "False(WaitingForQuota): couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor plain, \
                 4 more needed";
    ensure_eq!(said(&evicted, "QuotaReserved"), quota, "what it waits for");
    let row = scene.row(&["workloads"], "job-low-").await?;
    ensure_eq!((&*row["RESERVED IN"], &*row["ADMITTED"]), ("", "False"), "the one that made room");
    // Statuses of queues are written some time after what they count.
    let counted = |q: &Value| q["status"]["pendingWorkloads"] == 1 && q["status"]["admittedWorkloads"] == 1;
    scene.wait(api::CLUSTER_QUEUES, "team", "one waits, one admitted", counted).await?;
    let queue = scene.row(&["clusterqueues", "-o", "wide"], "team").await?;
    ensure_eq!(
        (&*queue["PENDING WORKLOADS"], queue.get("ADMITTED WORKLOADS").map(String::as_str)),
        ("1", Some("1")),
        "the queue"
    );

    let winner = high.admitted().await?;
    high.complete().await?;
    low.runs(2).await?;
    let end = low.complete().await?;
    ensure!(said(&end, "Finished").starts_with("True(Succeeded): "), "{}", said(&end, "Finished"));
    let changes = low.conditions(&end).await?;
    let expected = [
        "Admitted=True(Admitted)",
        "QuotaReserved=True(QuotaReserved)",
        "Evicted=True(Preempted)",
        "Preempted=True(InClusterQueue)",
        "Admitted=False(NoReservation)",
        "QuotaReserved=False(PendingEvaluation)",
        "Requeued=True(Preempted)",
        "QuotaReserved=False(WaitingForQuota)",
        "Admitted=True(Admitted)",
        "Evicted=False(QuotaReserved)",
        "Preempted=False(QuotaReserved)",
        "QuotaReserved=True(QuotaReserved)",
        "Finished=True(Succeeded)",
    ];
    ensure_eq!(changes, expected, "what its conditions told");
    let told = [
        "QuotaReserved",
        "Admitted",
        "EvictedDueToPreempted",
        "Preempted",
        "WaitingForQuota",
        "QuotaReserved",
        "Admitted",
    ];
    scene.events(&end, &told).await?;
    let told = ["WaitingForPreemptedWorkloads", "PreemptedWorkload", "QuotaReserved", "Admitted"];
    scene.events_in_any_order(&winner, &told).await?;
    let told = ["CreatedWorkload", "Started", "Stopped", "Started", "FinishedWorkload"];
    scene.events(&low.now().await?, &told).await?;
    let note = scene.note(&end, "Preempted").await?;
    ensure!(note.contains("; preemptor effective priority: 100 (base: 100, boost: 0)"), "{note}");

    let owners = managers(&end);
    let of = |who: &str, how: &str| owners.contains(&(who.to_owned(), how.to_owned()));
    ensure!(of("kueue-admission", "Apply"), "nobody but who applies under Kueue's names owns the status: {owners:?}");
    scene.end().await
}

async fn a_queue_reclaims_what_it_lent(suite: &mut Suite) -> Result<()> {
    let scene = Scene::set(suite, CONFIGURATION, Vec::new()).await?;
    let preemption = "cohortName: all, preemption: {reclaimWithinCohort: Any}";
    scene.apply(&queue("mine", "4", preemption)).await?;
    scene.apply(&queue("yours", "4", preemption)).await?;
    scene
        .apply("{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: important}, value: 1000}")
        .await?;
    let first = scene.hold("first", 1, "4", &[("queue-name", "yours")]).await?;
    first.runs(1).await?;
    let mut borrows = held("borrows", 1, "4", &[("queue-name", "yours")]);
    borrows["spec"]["template"]["spec"]["priorityClassName"] = "important".into();
    let borrows = scene.submit(&borrows).await?;
    borrows.runs(1).await?;
    let borrowed = borrows.admitted().await?;
    ensure_eq!(
        (&borrowed["spec"]["priorityClassRef"], &borrowed["spec"]["priority"]),
        (&json!({"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "important"}), &json!(1000)),
        "the priority of its pods"
    );
    // Its queue uses 8 of the 4 that it has: whoever has least priority goes when they are wanted back.
    let mine = scene.hold("owner", 1, "4", &[("queue-name", "mine")]).await?;
    mine.runs(1).await?;
    let gone = first.pending("WaitingForQuota").await?;
    let why = said(&gone, "Preempted");
    ensure!(why.contains("(InCohortReclamation): ") && why.contains("due to reclamation within the cohort;"), "{why}");
    ensure!(why.contains("preemptor path: /all/mine; preemptee path: /all/yours"), "{why}");
    borrows.runs(1).await?;
    ensure!(is_true(&borrows.admitted().await?, "Admitted"), "who has more priority stays");
    mine.complete().await?;
    first.runs(1).await?;
    first.complete().await?;
    borrows.complete().await?;
    scene.end().await
}

async fn a_waiting_job_gets_another_priority(suite: &mut Suite) -> Result<()> {
    let scene = Scene::set(suite, CONFIGURATION, Vec::new()).await?;
    scene.apply(PRIORITIES).await?;
    scene.apply(&queue("team", "2", "")).await?;
    let labels = [("queue-name", "team"), ("priority-class", "low")];
    let runs = scene.hold("runs", 1, "2", &labels).await?;
    runs.runs(1).await?;
    let earlier = scene.hold("earlier", 1, "2", &labels).await?;
    earlier.pending("WaitingForQuota").await?;
    let later = scene.hold("later", 1, "2", &labels).await?;
    later.workload("there", |_| true).await?;
    let label = ["label", "job", "later", "kueue.x-k8s.io/priority-class=high", "--overwrite"];
    scene.kubectl(&label).await?;
    let changed = later.workload("of another priority", |w| w["spec"]["priority"] == 100).await?;
    ensure_eq!(text(&changed, "/spec/priorityClassRef/name"), "high", "the class");
    runs.complete().await?;
    later.runs(1).await?;
    ensure!(!is_true(&earlier.workload("there", |_| true).await?, "Admitted"), "who came first is overtaken");
    let told = scene.note(&later.now().await?, "UpdatedWorkload").await?;
    ensure!(told.starts_with("Updated workload priority class: default/job-later-"), "{told}");
    later.complete().await?;
    earlier.runs(1).await?;
    earlier.complete().await?;
    scene.end().await
}

async fn pods_that_do_not_become_ready_are_requeued_and_given_up(suite: &mut Suite) -> Result<()> {
    let configuration = "
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
waitForPodsReady:
  timeout: 2s
  requeuingStrategy: {timestamp: Eviction, backoffBaseSeconds: 1, backoffLimitCount: 1}
";
    let scene = Scene::set(suite, configuration, Vec::new()).await?;
    scene.apply(&queue("team", "4", "")).await?;
    // No node has room for it, though there is quota.
    let mut job = held("stuck", 1, "2", &[("queue-name", "team")]);
    job["spec"]["template"]["spec"]["nodeSelector"] = json!({"no": "such-node"});
    let stuck = scene.submit(&job).await?;
    let ready = scene.hold("fine", 1, "2", &[("queue-name", "team")]).await?;
    let started = ready.workload("ready", |w| is_true(w, "PodsReady")).await?;
    ensure_eq!(
        said(&started, "PodsReady"),
        "True(Started): All pods reached readiness and the workload is running",
        "why"
    );

    let once = stuck.workload("evicted", |w| is_true(w, "Evicted")).await?;
    ensure!(said(&once, "Evicted").starts_with("True(PodsReadyTimeout): Exceeded the PodsReady timeout"), "{once}");
    ensure_eq!(once["status"]["requeueState"]["count"], 1, "how often it was requeued");
    ensure!(!text(&once, "/status/requeueState/requeueAt").is_empty(), "when it is back: {once}");
    stuck.workload("admitted again", |w| is_true(w, "Admitted") && w["status"]["requeueState"]["count"] == 1).await?;
    let given_up = stuck
        .workload("given up", |w| w["spec"]["active"] == false && !is_true(w, "QuotaReserved") && is_true(w, "Evicted"))
        .await?;
    let why = said(&given_up, "Evicted");
    ensure!(why.starts_with("True(DeactivatedDueToRequeuingLimitExceeded): The workload is deactivated"), "{why}");
    ensure!(said(&given_up, "Requeued").starts_with("False("), "{}", said(&given_up, "Requeued"));
    stuck.stopped().await?;
    let changes = stuck.conditions(&given_up).await?;
    ensure!(changes.iter().any(|c| c == "Requeued=True(BackoffFinished)"), "{changes:?}");
    let told = [
        "QuotaReserved",
        "Admitted",
        "EvictedDueToPodsReadyTimeout",
        "QuotaReserved",
        "Admitted",
        "EvictedDueToDeactivatedDueToRequeuingLimitExceeded",
    ];
    scene.events(&given_up, &told).await?;

    // Somebody mends the cluster and lets it try again: it starts from nothing.
    let workload = text(&given_up, "/metadata/name").to_owned();
    scene.kubectl(&["label", "node", "gke-default-pool-0", "no=such-node"]).await?;
    let active = json!({"spec": {"active": true}});
    api::WORKLOADS.patch(&scene.cluster.client, "default", &workload, &active).await?;
    stuck.runs(1).await?;
    let again = stuck.workload("ready", |w| is_true(w, "PodsReady")).await?;
    ensure_eq!(again["status"].get("requeueState"), None, "what was counted before");
    stuck.complete().await?;
    ready.complete().await?;
    scene.end().await
}
