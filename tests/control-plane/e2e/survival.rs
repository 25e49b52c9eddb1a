//! What becomes of the controller's work when it, the API server or the way between them fails, when others are in its way, and
//! when there are two.

mod soak;

use std::path::PathBuf;
use std::time::Duration;

use slicegate_control_plane::api::{self, is_true, name, text};
use slicegate_control_plane::audit::Request;
use slicegate_control_plane::cluster::{CONTROLLER, Cluster, SECOND};
use slicegate_control_plane::gke::Gke;
use slicegate_control_plane::observe::Observer;
use slicegate_control_plane::proxy::Proxy;
use slicegate_control_plane::slicegate::{NAMESPACE, Options, Slicegate};
use slicegate_control_plane::wait::{Objects, Wait};
use slicegate_control_plane::{Result, Value, ensure, ensure_eq, json};
use tokio::time::Instant;

use crate::controller::{all_complete, configuration, is_running, job, stage, with_priority};
use crate::suite::{Suite, tests};
use soak::whatever_happens_at_random_every_job_ends_and_nothing_moves_any_more;

tests![
    killed_after_every_write_nothing_is_lost,
    killed_before_every_second_write_nothing_is_lost,
    an_api_server_that_restarts_loses_nothing,
    connections_that_are_cut_lose_nothing,
    others_who_write_the_same_objects_do_no_harm,
    what_cannot_be_written_is_taken_back,
    of_two_controllers_one_acts,
    whatever_happens_at_random_every_job_ends_and_nothing_moves_any_more,
];

/// Jobs that wait, preempt, are preempted, deleted and complete: three are left at the end.
async fn commotion(cluster: &Cluster, gke: &Gke, limit: Duration) -> Result<()> {
    let wait = || Wait::new(&cluster.client, api::JOBS, "default").limit(limit);
    cluster.kubectl.apply(&job("low", "3", "forever").to_string()).await?;
    cluster.kubectl.apply(&job("doomed", "1", "forever").to_string()).await?;
    wait().one("low", "running", is_running).await?;
    wait().one("doomed", "running", is_running).await?;
    // Not suspended, as by whoever does not know queues.
    let mut high = with_priority(job("high", "2", "1s"), "high");
    high["spec"]["suspend"] = false.into();
    cluster.kubectl.apply(&high.to_string()).await?;
    wait().one("low", "suspended", |o| o.pointer("/spec/suspend") == Some(&json!(true))).await?;
    cluster.kubectl.run(&["delete", "job", "doomed", "--wait=false"]).await?;
    cluster.kubectl.apply(&job("late", "4", "500ms").to_string()).await?;
    wait().one("high", "complete", |o| is_true(o, "Complete")).await?;
    wait().one("low", "running again", is_running).await?;
    gke.finish(0, |pod| text(pod, "/metadata/labels/job-name") == "low").await?;
    all_complete(cluster, 3, limit).await
}

/// Lets the controller die at every write, and start again, until all that has to happen has happened.
async fn die_all_the_time(suite: &mut Suite, failpoint: &str) -> Result<()> {
    let folder = suite.test_folder();
    let cluster = suite.shared().await?;
    let (gke, observer) = stage(cluster).await?;
    let options = Options { env: vec![("SLICEGATE_FAILPOINT".to_owned(), failpoint.to_owned())], ..Options::default() };
    let mut controller = Slicegate::launch(cluster, &folder, &options)?;
    let mut deaths = 0;
    {
        let mut work = std::pin::pin!(commotion(cluster, &gke, Duration::from_mins(2)));
        loop {
            tokio::select! {
                result = &mut work => {
                    result?;
                    break;
                }
                ended = controller.process.wait(Duration::from_secs(150)) => {
                    let status = ended?;
                    ensure!(!status.success() && status.code().is_none(), "it ended with {status}, not at the failpoint");
                    deaths += 1;
                    controller.process.start_again()?;
                }
            }
        }
    }
    // Nothing is left to be done for one that lives.
    drop(controller);
    let controller =
        Slicegate::start(cluster, &folder, &Options { name: "last".to_owned(), ..Options::default() }).await?;
    let told = |o: &Value| o.pointer("/status/admittedWorkloads") == Some(&json!(0));
    Wait::new(&cluster.client, api::CLUSTER_QUEUES, "").one("all", "empty again", told).await?;
    ensure!(deaths >= 15, "it died only {deaths} times");
    println!("        it died {deaths} times");
    observer.must_be_clean().await?;
    drop(controller);
    Ok(())
}

async fn killed_after_every_write_nothing_is_lost(suite: &mut Suite) -> Result<()> {
    die_all_the_time(suite, "after-write:1").await
}

async fn killed_before_every_second_write_nothing_is_lost(suite: &mut Suite) -> Result<()> {
    die_all_the_time(suite, "before-write:2").await
}

async fn an_api_server_that_restarts_loses_nothing(suite: &mut Suite) -> Result<()> {
    let folder = suite.test_folder();
    let cluster = suite.shared().await?;
    let (_gke, observer) = stage(cluster).await?;
    let options = Options { leader_elect: true, configuration: Some(configuration(3)), ..Options::default() };
    let mut controller = Slicegate::start(cluster, &folder, &options).await?;
    for i in 0..6 {
        cluster.kubectl.apply(&job(&format!("job-{i}"), "2", "1s").to_string()).await?;
    }
    Wait::new(&cluster.client, api::JOBS, "default").until("one running", |o| o.values().any(is_running)).await?;
    cluster.kill_apiserver().await?;
    // Longer than the lease.
    tokio::time::sleep(Duration::from_secs(4)).await;
    cluster.start_apiserver().await?;
    all_complete(cluster, 6, Duration::from_mins(1)).await?;
    controller.process.must_run()?;
    observer.must_be_clean().await
}

async fn connections_that_are_cut_lose_nothing(suite: &mut Suite) -> Result<()> {
    let folder = suite.test_folder();
    let cluster = suite.shared().await?;
    let (gke, observer) = stage(cluster).await?;
    let proxy = Proxy::start(cluster).await?;
    let kubeconfig = Some(proxy.kubeconfig(cluster, CONTROLLER, &folder)?);
    let mut controller = Slicegate::start(cluster, &folder, &Options { kubeconfig, ..Options::default() }).await?;
    let cuts = async {
        loop {
            tokio::time::sleep(Duration::from_millis(300)).await;
            proxy.cut();
        }
    };
    tokio::select! {
        result = commotion(cluster, &gke, Duration::from_mins(1)) => result?,
        () = cuts => {}
    }
    controller.process.must_run()?;
    observer.must_be_clean().await
}

async fn others_who_write_the_same_objects_do_no_harm(suite: &mut Suite) -> Result<()> {
    let folder = suite.test_folder();
    let cluster = suite.shared().await?;
    let (gke, observer) = stage(cluster).await?;
    let mut controller = Slicegate::start(cluster, &folder, &Options::default()).await?;
    let meddle = async {
        for number in 0_u64.. {
            for kind in [api::WORKLOADS, api::JOBS] {
                for object in kind.list(&cluster.client, "default").await.unwrap_or_default() {
                    let patch = json!({"metadata": {"annotations": {"example.com/seen": number.to_string()}}});
                    let _ = kind.patch(&cluster.client, "default", name(&object), &patch).await;
                }
            }
        }
    };
    tokio::select! {
        result = commotion(cluster, &gke, Duration::from_mins(1)) => result?,
        () = meddle => {}
    }
    let late = cluster.requests()?.iter().filter(|r| r.user == CONTROLLER && r.is_write() && r.code == 409).count();
    ensure!(late > 0, "nobody was ever in the way");
    controller.process.must_run()?;
    observer.must_be_clean().await
}

/// Refuses to write that Workloads whose names begin with `job-refused` have quota, and to make those that begin with
/// `job-unmade`.
const POLICIES: [(&str, &str, &str, &str); 2] = [
    (
        "e2e-refuse",
        "UPDATE",
        "workloads/status",
        "!object.metadata.name.startsWith('job-refused') || !has(object.status.admission)",
    ),
    ("e2e-refuse-made", "CREATE", "workloads", "!object.metadata.name.startsWith('job-unmade')"),
];

async fn refuse(cluster: &Cluster) -> Result<()> {
    for (name, operation, resource, expression) in POLICIES {
        let rule = json!({"apiGroups": ["kueue.x-k8s.io"], "apiVersions": ["*"], "operations": [operation],
            "resources": [resource]});
        let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name}, "spec": {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]},
                "validations": [{"expression": expression, "message": "not this one"}]}});
        let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}});
        cluster.kubectl.apply(&policy.to_string()).await?;
        cluster.kubectl.apply(&binding.to_string()).await?;
    }
    Ok(())
}

async fn what_cannot_be_written_is_taken_back(suite: &mut Suite) -> Result<()> {
    let folder = suite.test_folder();
    let cluster = suite.shared().await?;
    let (_gke, observer) = stage(cluster).await?;
    refuse(cluster).await?;
    let result = refusals(cluster, folder, &observer).await;
    for kind in ["validatingadmissionpolicybinding", "validatingadmissionpolicy"] {
        for (name, ..) in POLICIES {
            cluster.kubectl.run(&["delete", kind, name, "--ignore-not-found"]).await?;
        }
    }
    result
}

async fn refusals(cluster: &Cluster, folder: PathBuf, observer: &Observer) -> Result<()> {
    // Until the policy is in force, as a Workload of nobody's tells.
    let probe = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": "job-refused-probe", "namespace": "default"},
        "spec": {"queueName": "none", "podSets": [{"name": "main", "count": 1, "template": {"spec":
            {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}]}});
    api::WORKLOADS.apply(&cluster.client, &probe).await?;
    let admission = json!({"status": {"admission": {"clusterQueue": "x", "podSetAssignments": [{"name": "main"}]}}});
    let last = Instant::now() + Duration::from_secs(30);
    while api::WORKLOADS.patch_status(&cluster.client, "default", "job-refused-probe", &admission).await.is_ok() {
        ensure!(Instant::now() < last, "the policy is not in force after half a minute");
        tokio::time::sleep(Duration::from_millis(200)).await;
        let none = json!({"status": {"admission": null}});
        api::WORKLOADS.patch_status(&cluster.client, "default", "job-refused-probe", &none).await.ok();
    }
    api::WORKLOADS.delete(&cluster.client, "default", "job-refused-probe").await?;
    let mut controller = Slicegate::start(cluster, &folder, &Options::default()).await?;
    cluster.kubectl.apply(&job("refused", "4", "500ms").to_string()).await?;
    let asked = |requests: &[Request]| {
        requests.iter().any(|r| r.name.starts_with("job-refused") && r.resource == "workloads/status" && r.code == 422)
    };
    let last = Instant::now() + Duration::from_secs(10);
    while !asked(&cluster.requests()?) {
        ensure!(Instant::now() < last, "nothing was refused");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // What it would have held is free for others, although it was the first.
    cluster.kubectl.apply(&job("other", "4", "500ms").to_string()).await?;
    let wait = || Wait::new(&cluster.client, api::JOBS, "default");
    wait().one("other", "complete", |o| is_true(o, "Complete")).await?;
    let tries = cluster.requests()?.iter().filter(|r| r.user == CONTROLLER && r.code == 422).count();
    ensure!(tries < 30, "{tries} tries in a few seconds");
    cluster.kubectl.run(&["delete", "validatingadmissionpolicybinding", "e2e-refuse"]).await?;
    wait().limit(Duration::from_secs(70)).one("refused", "complete", |o| is_true(o, "Complete")).await?;
    // A Workload that may not be made: its job says so, and it is made once it may.
    cluster.kubectl.apply(&job("unmade", "1", "500ms").to_string()).await?;
    let told = |events: &Objects| {
        events
            .values()
            .any(|e| text(e, "/involvedObject/name") == "unmade" && text(e, "/message").contains("not this one"))
    };
    Wait::new(&cluster.client, api::EVENTS, "default").until("an Event that says why", told).await?;
    cluster.kubectl.run(&["delete", "validatingadmissionpolicybinding", "e2e-refuse-made"]).await?;
    all_complete(cluster, 3, Duration::from_secs(70)).await?;
    controller.process.must_run()?;
    observer.must_be_clean().await
}

/// The writes to objects of one of two controllers, by time.
fn acts<'a>(requests: &'a [Request], user: &str) -> Vec<&'a Request> {
    let own = ["leases", "secrets", "customresourcedefinitions", "events"];
    requests
        .iter()
        .filter(|r| r.user == user && r.is_write() && r.code < 300 && !own.contains(&r.resource.as_str()))
        .collect()
}

async fn holder(cluster: &Cluster) -> Result<String> {
    let leases = api::LEASES.list(&cluster.client, NAMESPACE).await?;
    Ok(leases.iter().map(|lease| text(lease, "/spec/holderIdentity")).collect::<Vec<_>>().join(" "))
}

async fn of_two_controllers_one_acts(suite: &mut Suite) -> Result<()> {
    const LEASE: u64 = 3;
    let folder = suite.test_folder();
    let cluster = suite.shared().await?;
    let (_gke, observer) = stage(cluster).await?;
    cluster.bind(SECOND, "cluster-admin").await?;
    let options = |name: &str, user: &str| Options {
        name: name.to_owned(),
        kubeconfig: Some(cluster.kubeconfig(user)),
        leader_elect: true,
        webhook: false,
        configuration: Some(configuration(LEASE)),
        ..Options::default()
    };
    let mut first = Slicegate::start(cluster, &folder, &options("first", CONTROLLER)).await?;
    let second = Slicegate::start(cluster, &folder, &options("second", SECOND)).await?;
    ensure!(holder(cluster).await?.starts_with("first"), "the first one does not lead: {}", holder(cluster).await?);
    ensure!(
        second.metrics().await?.contains("leader_election_master_status{name=\"c1f6bfd2.kueue.x-k8s.io\"} 0"),
        "roles"
    );
    let wait = || Wait::new(&cluster.client, api::JOBS, "default");
    let runs = |name: &'static str| async move { wait().one(name, "running", is_running).await };
    cluster.kubectl.apply(&job("a", "1", "forever").to_string()).await?;
    runs("a").await?;
    ensure!(acts(&cluster.requests()?, SECOND).is_empty(), "both act");

    // Killed: the other takes over within the lease and two seconds, and has missed nothing.
    first.kill().await?;
    let killed = Instant::now();
    cluster.kubectl.apply(&job("b", "1", "forever").to_string()).await?;
    runs("b").await?;
    let took = killed.elapsed();
    ensure!(took < Duration::from_secs(LEASE + 2), "it took {took:?} to take over");

    // Stopped in the middle of whatever it does, for longer than the lease: it does nothing any more when it wakes up.
    first.start_again().await?;
    second.pause()?;
    cluster.kubectl.apply(&job("c", "1", "forever").to_string()).await?;
    runs("c").await?;
    let before = acts(&cluster.requests()?, SECOND).len();
    second.resume()?;
    cluster.kubectl.apply(&job("d", "1", "forever").to_string()).await?;
    runs("d").await?;
    ensure_eq!(acts(&cluster.requests()?, SECOND).len(), before, "writes of one who lost the lead");

    // Asked to end it gives the lead back.
    let status = first.terminate().await?;
    ensure!(status.success(), "it ended with {status}");
    let ended = Instant::now();
    cluster.kubectl.run(&["delete", "job", "a", "--wait=false"]).await?;
    cluster.kubectl.apply(&job("e", "1", "forever").to_string()).await?;
    runs("e").await?;
    let took = ended.elapsed();
    ensure!(took < Duration::from_secs(LEASE), "it took {took:?} although the Lease was given back");
    // In a new cluster garbage is first collected after half a minute.
    let wait = Wait::new(&cluster.client, api::WORKLOADS, "default").limit(Duration::from_secs(40));
    wait.until("that of a gone", |all| !all.keys().any(|(_, name)| name.starts_with("job-a-"))).await?;

    let requests = cluster.requests()?;
    let mut turns: Vec<&str> = Vec::new();
    let mut all: Vec<(&str, &str)> = [CONTROLLER, SECOND]
        .iter()
        .flat_map(|u| acts(&requests, u))
        .map(|r| (r.at.as_str(), r.user.as_str()))
        .collect();
    all.sort_unstable();
    for (_, user) in all {
        if turns.last() != Some(&user) {
            turns.push(user);
        }
    }
    ensure_eq!(turns, [CONTROLLER, SECOND, CONTROLLER, SECOND], "who acted when");
    observer.must_be_clean().await
}
