//! The rest of what can happen to a job: switched off and on, smaller by and by, created running, not ours.

use slicegate_control_plane::api::{self, is_true, name, text};
use slicegate_control_plane::gke::Pool;
use slicegate_control_plane::{Result, Value, ensure, ensure_eq, json};

use crate::objects;
use crate::scene::{CONFIGURATION, Scene, held, queue, said};
use crate::suite::{Suite, tests};

tests![
    a_workload_is_switched_off_and_on,
    pods_that_have_ended_give_quota_back,
    a_job_that_starts_by_itself_is_stopped,
    pods_from_before_a_job_was_stopped_do_not_run_on,
    a_ray_cluster_is_a_job,
    a_job_runs_no_longer_than_it_may,
    a_job_starts_with_fewer_pods,
    jobs_of_other_namespaces_are_left_alone,
];

async fn a_workload_is_switched_off_and_on(suite: &mut Suite) -> Result<()> {
    let scene = Scene::set(suite, CONFIGURATION, Vec::new()).await?;
    scene.apply(&queue("team", "2", "")).await?;
    let label = [("queue-name", "team")];
    let run = scene.hold("train", 1, "2", &label).await?;
    run.runs(1).await?;
    let named = name(&run.admitted().await?).to_owned();
    let switch = |on: bool| {
        let (scene, named) = (&scene, named.clone());
        async move {
            let patch = json!({"spec": {"active": on}}).to_string();
            scene.kubectl(&["patch", "workload", &named, "--type=merge", "-p", &patch]).await
        }
    };
    switch(false).await?;
    run.stopped().await?;
    let off = run.pending("Deactivated").await?;
    ensure_eq!(said(&off, "Evicted"), "True(Deactivated): The workload is deactivated", "why it stopped");
    ensure_eq!(said(&off, "Requeued"), "False(Deactivated): The workload is deactivated", "that it is not in line");
    // Others may have its place.
    let other = scene.hold("other", 1, "2", &label).await?;
    other.runs(1).await?;
    switch(true).await?;
    let waits = run.pending("WaitingForQuota").await?;
    ensure!(said(&waits, "Requeued").starts_with("True(Reactivated)"), "{}", said(&waits, "Requeued"));
    other.complete().await?;
    run.runs(1).await?;
    let end = run.complete().await?;
    let expected = [
        "Admitted=True(Admitted)",
        "QuotaReserved=True(QuotaReserved)",
        "Evicted=True(Deactivated)",
        "Admitted=False(NoReservation)",
        "QuotaReserved=False(PendingEvaluation)",
        "Requeued=False(Deactivated)",
        "QuotaReserved=False(Deactivated)",
        "Requeued=True(Reactivated)",
        "QuotaReserved=False(WaitingForQuota)",
        "Admitted=True(Admitted)",
        "Evicted=False(QuotaReserved)",
        "QuotaReserved=True(QuotaReserved)",
        "Finished=True(Succeeded)",
    ];
    ensure_eq!(run.conditions(&end).await?, expected, "what its conditions told");
    scene.end().await
}

async fn pods_that_have_ended_give_quota_back(suite: &mut Suite) -> Result<()> {
    let scene = Scene::set(suite, CONFIGURATION, Vec::new()).await?;
    scene.apply(&queue("team", "3", "")).await?;
    let label = [("queue-name", "team")];
    let wide = scene.hold("wide", 3, "1", &label).await?;
    let pods = wide.runs(3).await?;
    let next = scene.hold("next", 2, "1", &label).await?;
    next.pending("WaitingForQuota").await?;
    let two: Vec<&str> = pods.iter().take(2).map(name).collect();
    scene.end_these(0, &two).await?;
    next.runs(2).await?;
    let smaller = wide.admitted().await?;
    ensure_eq!(smaller["status"]["reclaimablePods"], json!([{"name": "main", "count": 2}]), "what it gave back");
    let managed = crate::scene::managers(&smaller);
    ensure!(
        managed.contains(&("kueue-reclaimable-pods".to_owned(), "Apply".to_owned())),
        "who says how many pods are reclaimable: {managed:?}"
    );
    wide.complete().await?;
    next.complete().await?;
    scene.end().await
}

async fn a_job_that_starts_by_itself_is_stopped(suite: &mut Suite) -> Result<()> {
    let scene = Scene::set(suite, CONFIGURATION, Vec::new()).await?;
    scene.apply(&queue("team", "2", "")).await?;
    let first = scene.hold("first", 1, "2", &[("queue-name", "team")]).await?;
    first.runs(1).await?;
    // As most manifests are: without `suspend`.
    let mut job = held("second", 2, "1", &[("queue-name", "team")]);
    job["spec"]["suspend"] = false.into();
    let second = scene.submit(&job).await?;
    second.job("suspended", |j| j["spec"]["suspend"] == true).await?;
    second.stopped().await?;
    second.pending("WaitingForQuota").await?;
    first.complete().await?;
    second.runs(2).await?;
    second.complete().await?;
    // And a JobSet, whose Jobs must not run either.
    let mut set = objects::job_set("set", 1, Some("missing"));
    set["spec"]["suspend"] = false.into();
    let set = scene.submit(&set).await?;
    set.job("suspended", |j| j["spec"]["suspend"] == true).await?;
    set.stopped().await?;
    set.pending("Misconfigured").await?;
    set.delete().await?;
    scene.end().await
}

async fn pods_from_before_a_job_was_stopped_do_not_run_on(suite: &mut Suite) -> Result<()> {
    let scene = Scene::set(suite, CONFIGURATION, Vec::new()).await?;
    scene.apply(&queue("team", "64", "")).await?;
    // All are made running, and all may: what their controllers make before they are stopped has no mark of the admission.
    let template = |mut pod: Value| {
        pod["metadata"] = json!({"annotations": {"e2e.slicegate.dev/run-time": "forever"}});
        pod
    };
    let mut jobs = Vec::new();
    for number in 0..6 {
        let mut job = objects::job(&format!("job-{number}"), 2, "1", Some("team"));
        job["spec"]["template"] = template(job["spec"]["template"].clone());
        let mut set = objects::job_set(&format!("set-{number}"), 2, Some("team"));
        set["metadata"]["annotations"] = json!({});
        let spec = &mut set["spec"]["replicatedJobs"][0]["template"]["spec"];
        spec["parallelism"] = 1.into();
        spec["completions"] = 1.into();
        spec["template"] = job["spec"]["template"].clone();
        jobs.extend([job, set]);
    }
    scene.apply(&json!({"apiVersion": "v1", "kind": "List", "items": jobs}).to_string()).await?;
    for job in &jobs {
        scene.run_of(job)?.runs_as_admitted(2).await?;
    }
    for job in &jobs {
        scene.run_of(job)?.complete().await?;
    }
    scene.end().await
}

async fn a_ray_cluster_is_a_job(suite: &mut Suite) -> Result<()> {
    let scene = Scene::set(suite, CONFIGURATION, vec![Pool::tpu("v6e", "ct6e-standard-4t", "4x4")?]).await?;
    let queues =
        queue("team", "64", "").replace("coveredResources: [cpu]", "coveredResources: [cpu, memory, google.com/tpu]");
    let queues = queues.replace(
        "nominalQuota: 64}",
        "nominalQuota: 64}, {name: memory, nominalQuota: 500Gi}, {name: google.com/tpu, nominalQuota: 16}",
    );
    scene.apply(&queues).await?;
    let job = objects::ray_job("ray", None);
    let mut spec = job["spec"]["rayClusterSpec"].clone();
    spec["suspend"] = true.into();
    let ray = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "ray", "namespace": "default",
        "labels": {"kueue.x-k8s.io/queue-name": "team"}}, "spec": spec});
    let ray = scene.submit(&ray).await?;
    ray.runs(5).await?;
    let workload = ray.admitted().await?;
    let sets: Vec<(&str, u64)> = api::items(&workload, "/spec/podSets")
        .iter()
        .map(|s| (text(s, "/name"), s["count"].as_u64().unwrap_or(0)))
        .collect();
    ensure_eq!(sets, [("head", 1), ("tpu", 4)], "its pod sets");
    // It never finishes: somebody lets it go.
    scene
        .kubectl(&["patch", "workload", name(&workload), "--type=merge", "-p", "{\"spec\": {\"active\": false}}"])
        .await?;
    ray.stopped().await?;
    ray.pending("Deactivated").await?;
    scene
        .kubectl(&["patch", "workload", name(&workload), "--type=merge", "-p", "{\"spec\": {\"active\": true}}"])
        .await?;
    ray.runs(5).await?;
    ray.delete().await?;
    scene.end().await
}

async fn a_job_runs_no_longer_than_it_may(suite: &mut Suite) -> Result<()> {
    let configuration = format!(
        "{CONFIGURATION}objectRetentionPolicies: {{workloads: {{afterFinished: 1s, afterDeactivatedByKueue: 1s}}}}\n"
    );
    let scene = Scene::set(suite, &configuration, Vec::new()).await?;
    scene.apply(&queue("team", "2", "")).await?;
    let labels = [("queue-name", "team"), ("max-exec-time-seconds", "1")];
    let slow = scene.hold("slow", 1, "1", &labels).await?;
    let workload = slow.admitted().await?;
    ensure_eq!(workload["spec"]["maximumExecutionTimeSeconds"], 1, "how long it may run");
    let over = slow.workload("stopped", |w| is_true(w, "Evicted") && w["spec"]["active"] == false).await?;
    let why = said(&over, "Evicted");
    ensure!(why.starts_with("True(DeactivatedDueToMaximumExecutionTimeExceeded): "), "{why}");
    // Some time later the job is deleted.
    slow.gone().await?;
    ensure_eq!(
        scene.note(&over, "MaximumExecutionTimeExceeded").await?,
        "The maximum execution time (1s) exceeded",
        "told"
    );

    // Of one that ends well only the Workload goes after a while.
    let quick = scene.hold("quick", 1, "1", &[("queue-name", "team")]).await?;
    quick.runs(1).await?;
    let workload = quick.complete().await?;
    let wait = slicegate_control_plane::wait::Wait::new(&scene.cluster.client, api::WORKLOADS, "default");
    wait.gone(name(&workload)).await?;
    ensure!(is_true(&quick.now().await?, "Complete"), "the job stays");
    ensure_eq!(scene.note(&workload, "Deleted").await?, "Deleted finished workload due to elapsed retention", "told");
    scene.end().await
}

async fn a_job_starts_with_fewer_pods(suite: &mut Suite) -> Result<()> {
    let scene = Scene::set(suite, CONFIGURATION, Vec::new()).await?;
    scene.apply(&queue("team", "3", "")).await?;
    let mut job = held("partial", 5, "1", &[("queue-name", "team")]);
    job["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "2"});
    let run = scene.submit(&job).await?;
    run.runs(3).await?;
    let workload = run.admitted().await?;
    ensure_eq!(workload["status"]["admission"]["podSetAssignments"][0]["count"], 3, "how many pods were admitted");
    ensure_eq!(run.now().await?["spec"]["parallelism"], 3, "how many it has at once");
    // Stopped, it wants all again.
    let patch = |active: bool| json!({"spec": {"active": active}});
    api::WORKLOADS.patch(&scene.cluster.client, "default", name(&workload), &patch(false)).await?;
    run.stopped().await?;
    run.job("as it was", |j| j["spec"]["parallelism"] == 5).await?;
    run.pending("Deactivated").await?;
    scene.apply(&queue("team", "5", "")).await?;
    api::WORKLOADS.patch(&scene.cluster.client, "default", name(&workload), &patch(true)).await?;
    run.runs(5).await?;
    run.complete().await?;
    scene.end().await
}

async fn jobs_of_other_namespaces_are_left_alone(suite: &mut Suite) -> Result<()> {
    let configuration = format!(
        "{CONFIGURATION}manageJobsWithoutQueueName: true\nmanagedJobsNamespaceSelector: {{matchLabels: {{managed: 'yes'}}}}\n"
    );
    let scene = Scene::set(suite, &configuration, Vec::new()).await?;
    scene.apply(&queue("team", "1", "")).await?;
    scene.cluster.namespace("managed").await?;
    scene.kubectl(&["label", "namespace", "managed", "managed=yes", "--overwrite"]).await?;
    scene
        .apply(
            "{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: team, namespace: managed},
            spec: {clusterQueue: team}}",
        )
        .await?;
    let of = |namespace: &str, named: &str, labels: &[(&str, &str)]| {
        let mut job = held(named, 1, "1", labels);
        job["spec"]["suspend"] = false.into();
        job["metadata"]["namespace"] = namespace.into();
        job
    };
    // Without a queue it is stopped where jobs are managed, and left alone elsewhere, even with a queue.
    let stopped = scene.submit(&of("managed", "stopped", &[])).await?;
    let left_alone = scene.submit(&of("default", "left-alone", &[("queue-name", "team")])).await?;
    let queued = scene.submit(&of("managed", "queued", &[("queue-name", "team")])).await?;
    queued.runs(1).await?;
    left_alone.runs(1).await?;
    stopped.job("suspended", |j| j["spec"]["suspend"] == true).await?;
    stopped.stopped().await?;
    ensure_eq!(left_alone.workloads().await?, 0, "Workloads of the job that is not managed");
    // It is managed as soon as somebody says which queue it is for.
    let label = ["label", "job", "-n", "managed", "stopped", "kueue.x-k8s.io/queue-name=team"];
    scene.kubectl(&label).await?;
    stopped.pending("WaitingForQuota").await?;
    queued.complete().await?;
    stopped.runs(1).await?;
    stopped.complete().await?;
    left_alone.end_pods(0).await?;
    left_alone.job("complete", |j| is_true(j, "Complete")).await?;
    scene.kubectl(&["delete", "namespace", "managed"]).await?;
    scene.observer.catch_up().await?;
    ensure_eq!(scene.observer.violations(), Vec::<String>::new(), "rules that were broken");
    Ok(())
}
