//! `slicegate controller` where things around it are missing, spoilt, or come and go.

use std::time::Duration;

use slicegate_control_plane::api::{self, is_true, text};
use slicegate_control_plane::audit::Request;
use slicegate_control_plane::cluster::{self, CONTROLLER, Cluster, RESEARCHER};
use slicegate_control_plane::slicegate::{self, NAMESPACE, Options, Slicegate};
use slicegate_control_plane::wait::{Objects, Wait};
use slicegate_control_plane::{Error, Result, Value, ensure, ensure_eq, json};
use tokio::time::Instant;

use crate::controller::{QUEUES, configuration, is_running, job, stage};
use crate::objects;
use crate::suite::{Suite, tests};

tests![
    what_it_may_not_do_is_told,
    what_is_spoilt_around_the_webhook_is_mended,
    a_lease_that_others_change_is_led_again,
    definitions_come_and_go,
    it_ends_when_it_is_told_to,
];

/// Tries until it works, for so long at most.
async fn eventually<T, F>(limit: Duration, what: &str, mut attempt: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let last = Instant::now() + limit;
    loop {
        match attempt().await {
            Ok(done) => return Ok(done),
            Err(error) if Instant::now() > last => return Err(Error::new(format!("{what}: {error}"))),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Waits until the log has a line with all of these.
async fn says(controller: &Slicegate, parts: &[&str]) -> Result<()> {
    let look = || async {
        let log = controller.process.output();
        let found = log.lines().any(|line| parts.iter().all(|part| line.contains(part)));
        ensure!(found, "no line of the log has {parts:?}");
        Ok(())
    };
    eventually(Duration::from_secs(20), "the log", look).await
}

/// Waits until the readiness probe fails and says this.
async fn unready(controller: &Slicegate, why: &str) -> Result<()> {
    let look = || async {
        let answer = controller.probe("/readyz").await;
        ensure!(answer.as_ref().is_err_and(|e| e.to_string().contains(why)), "{answer:?}");
        Ok(())
    };
    eventually(Duration::from_secs(20), "/readyz", look).await
}

/// The role as it is in the repository, for a user and without some of what it gives.
fn role(changes: &[(&str, &str)]) -> Result<String> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/rbac.yaml");
    let mut manifest = std::fs::read_to_string(&path)?;
    let account = "- kind: ServiceAccount\n  name: slicegate-controller\n  namespace: kueue-system";
    ensure!(manifest.matches(account).count() == 2, "two bindings in {}", path.display());
    let user = format!("- kind: User\n  apiGroup: rbac.authorization.k8s.io\n  name: {RESEARCHER}");
    manifest = manifest.replace(account, &user);
    for (from, to) in changes {
        ensure!(manifest.matches(from).count() == 1, "{from:?} once in {}", path.display());
        manifest = manifest.replace(from, to);
    }
    Ok(manifest)
}

fn asked_by(requests: &[Request], user: &str) -> usize {
    let own = ["leases", "secrets", "customresourcedefinitions"];
    requests.iter().filter(|r| r.user == user && !own.contains(&r.resource.as_str())).count()
}

async fn what_it_may_not_do_is_told(suite: &mut Suite) -> Result<()> {
    let folder = suite.test_folder();
    let cluster = suite.shared().await?;
    let (_gke, observer) = stage(cluster).await?;
    let result = without_rights(cluster, &folder).await;
    for kind in ["clusterrolebinding", "clusterrole"] {
        cluster.kubectl.run(&["delete", kind, "slicegate-controller"]).await?;
    }
    result?;
    observer.must_be_clean().await
}

async fn without_rights(cluster: &Cluster, folder: &std::path::Path) -> Result<()> {
    let nodes = ("[configmaps, limitranges, namespaces, nodes]", "[configmaps, limitranges, namespaces]");
    let events = ("resources: [events]", "resources: [none]");
    let status = ("resources: [workloads/status]", "resources: [none]");
    cluster.kubectl.apply(&role(&[nodes, events, status])?).await?;
    let retention = "objectRetentionPolicies: {workloads: {afterFinished: 4s}}\n";
    let options = Options {
        kubeconfig: Some(cluster.kubeconfig(RESEARCHER)),
        leader_elect: true,
        configuration: Some(configuration(3) + retention),
        ..Options::default()
    };
    let mut controller = Slicegate::start(cluster, folder, &options).await?;
    cluster.kubectl.apply(&job("one", "1", "500ms").to_string()).await?;
    says(&controller, &["a write failed", "Workload default/job-one", "workloads/status", "cannot patch"]).await?;
    says(&controller, &["Events are not recorded", "cannot create resource", "events"]).await?;
    let before = cluster.requests()?.len();
    tokio::time::sleep(Duration::from_secs(4)).await;
    let asked = asked_by(&cluster.requests()?.split_off(before), RESEARCHER);
    ensure!(asked < 30, "{asked} requests in 4 s that cannot be of use");
    let told = controller.process.output().matches("Events are not recorded").count();
    ensure_eq!(told, 1, "how often it is said that Events are not recorded");
    // With these rights it goes on by itself.
    cluster.kubectl.apply(&role(&[nodes])?).await?;
    let wait = |limit| Wait::new(&cluster.client, api::JOBS, "default").limit(Duration::from_secs(limit));
    wait(70).one("one", "complete", |o| is_true(o, "Complete")).await?;
    // Nodes matter from here on, and cannot be seen: nothing is decided, and nothing else is done.
    let flavor = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "tas"},
        "spec": {"topologyName": "none", "nodeLabels": {"a": "b"}}});
    cluster.kubectl.apply(&flavor.to_string()).await?;
    says(&controller, &["not allowed to watch", "kind=\"Node\"", "get, list and watch"]).await?;
    unready(&controller, "not listed yet: Node").await?;
    // By now the finished Workload would be deleted.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (before, spent) = (cluster.requests()?.len(), controller.cost()?.0);
    tokio::time::sleep(Duration::from_secs(4)).await;
    let asked = asked_by(&cluster.requests()?.split_off(before), RESEARCHER);
    let spent = controller.cost()?.0 - spent;
    ensure!(asked < 30 && spent < 1.0, "{asked} requests and {spent} s of processor time in 4 s that cannot be of use");
    cluster.kubectl.apply(&role(&[])?).await?;
    eventually(Duration::from_secs(20), "ready again", || controller.probe("/readyz")).await?;
    let workloads = Wait::new(&cluster.client, api::WORKLOADS, "default");
    workloads.until("the finished one deleted", std::collections::BTreeMap::is_empty).await?;
    controller.process.must_run()
}

async fn what_is_spoilt_around_the_webhook_is_mended(suite: &mut Suite) -> Result<()> {
    let folder = suite.test_folder();
    let cluster = suite.shared().await?;
    slicegate::install(cluster).await?;
    let options = Options { configuration: Some(configuration(3)), ..Options::default() };
    let mut controller = Slicegate::start(cluster, &folder, &options).await?;
    let older = QUEUES.replace("v1beta2", "v1beta1");
    cluster.kubectl.apply(&older).await?;
    let bundle = || async {
        let definition = api::CRDS.get(&cluster.client, "", "clusterqueues.kueue.x-k8s.io").await?;
        let path = "/spec/conversion/webhook/clientConfig/caBundle";
        Ok::<_, Error>(definition.map(|d| text(&d, path).to_owned()).unwrap_or_default())
    };
    let names = ["-n", NAMESPACE, "secret", "kueue-webhook-server-cert"];
    let kubectl = |verb: &'static str, rest: Vec<String>| async move {
        let args: Vec<&str> = [verb].into_iter().chain(names).chain(rest.iter().map(String::as_str)).collect();
        cluster.kubectl.run(&args).await.map(drop)
    };
    let first = bundle().await?;
    // Another authority than the one that made the certificate: it verifies nothing.
    let patch = json!({"data": {"ca.crt": cluster.certificates.bundle()}});
    kubectl("patch", vec!["-p".to_owned(), patch.to_string()]).await?;
    let limit = Duration::from_secs(25);
    let other = |old: String| async move {
        let now = bundle().await?;
        ensure!(now != old && !now.is_empty(), "the authority is the old one");
        cluster.kubectl.run(&["get", "clusterqueues.v1beta1.kueue.x-k8s.io", "all"]).await?;
        Ok(now)
    };
    let second = eventually(limit, "a spoilt Secret", || other(first.clone())).await?;
    ensure!(second != cluster.certificates.bundle(), "an authority that vouches for nothing is told");
    kubectl("delete", Vec::new()).await?;
    let third = eventually(limit, "a deleted Secret", || other(second.clone())).await?;
    let none = json!({"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": null}}}}});
    api::CRDS.patch(&cluster.client, "", "clusterqueues.kueue.x-k8s.io", &none).await?;
    let again = eventually(limit, "an authority that somebody took out", || other(String::new())).await?;
    ensure_eq!(again, third, "the authority");
    controller.process.must_run()
}

async fn a_lease_that_others_change_is_led_again(suite: &mut Suite) -> Result<()> {
    const NAME: &str = "c1f6bfd2.kueue.x-k8s.io";
    let folder = suite.test_folder();
    let cluster = suite.shared().await?;
    slicegate::install(cluster).await?;
    let options =
        Options { leader_elect: true, webhook: false, configuration: Some(configuration(3)), ..Options::default() };
    let mut controller = Slicegate::start(cluster, &folder, &options).await?;
    let leases = || Wait::new(&cluster.client, api::LEASES, NAMESPACE);
    let led = |o: &Value| text(o, "/spec/holderIdentity").starts_with("slicegate_");
    leases().one(NAME, "led", led).await?;
    let given = json!({"metadata": {"labels": {"team": "a"}},
        "spec": {"holderIdentity": "nobody", "leaseTransitions": i32::MAX, "leaseDurationSeconds": 2}});
    api::LEASES.patch(&cluster.client, NAMESPACE, NAME, &given).await?;
    says(&controller, &["not leading any more", "somebody else holds the Lease"]).await?;
    says(&controller, &["standing by", "leader=\"nobody\""]).await?;
    let lease = leases().one(NAME, "led again", led).await?;
    ensure_eq!(lease.pointer("/metadata/labels/team"), Some(&json!("a")), "a label of somebody else's");
    // Whoever leads makes it anew.
    api::LEASES.delete(&cluster.client, NAMESPACE, NAME).await?;
    let lease = leases().one(NAME, "there again", led).await?;
    let empty = json!({"spec": {"holderIdentity": null, "leaseDurationSeconds": null, "renewTime": null,
        "acquireTime": null, "leaseTransitions": null}});
    let said = controller.process.output().matches("not leading any more").count();
    ensure!(said == 1 && !lease.is_null(), "it gave up the lead although nobody else had it");
    api::LEASES.patch(&cluster.client, NAMESPACE, NAME, &empty).await?;
    leases().one(NAME, "led after it was emptied", led).await?;
    controller.process.must_run()
}

async fn remove(cluster: &Cluster, definition: &str) -> Result<()> {
    api::CRDS.delete(&cluster.client, "", definition).await?;
    Wait::new(&cluster.client, api::CRDS, "").gone(definition).await
}

/// Makes a definition as it was.
async fn restore(cluster: &Cluster, was: &Value) -> Result<()> {
    let mut definition = was.clone();
    definition["metadata"] = json!({"name": was["metadata"]["name"]});
    if let Some(fields) = definition.as_object_mut() {
        fields.remove("status");
    }
    let path = cluster.folder.join("restored-definition.json");
    std::fs::write(&path, definition.to_string())?;
    cluster::apply_definitions(&cluster.client, &cluster.kubectl, &path.display().to_string()).await
}

async fn definition(cluster: &Cluster, name: &str) -> Result<Value> {
    let found = api::CRDS.get(&cluster.client, "", name).await?;
    found.ok_or_else(|| Error::new(format!("there is no definition {name}")))
}

async fn definitions_come_and_go(suite: &mut Suite) -> Result<()> {
    let folder = suite.test_folder();
    let options = cluster::Options { jobset: false, kuberay: false, ..cluster::Options::new("own") };
    let cluster = &suite.own(options).await?;
    let (_gke, observer) = stage(cluster).await?;
    let (cohorts, workloads) = ("cohorts.kueue.x-k8s.io", "workloads.kueue.x-k8s.io");
    let definitions = [definition(cluster, cohorts).await?, definition(cluster, workloads).await?];
    // One of Kueue's is missing at the start.
    remove(cluster, cohorts).await?;
    let options = Options {
        webhook: false,
        configuration: Some(configuration(3) + "integrations: {frameworks: [batch/job, jobset.x-k8s.io/jobset]}\n"),
        ..Options::default()
    };
    let mut controller = Slicegate::launch(cluster, &folder, &options)?;
    says(&controller, &["not served", "slicegate crds", "kind=\"Cohort\""]).await?;
    says(&controller, &["not served", "now and then", "kind=\"JobSet\""]).await?;
    unready(&controller, "not listed yet: Cohort").await?;
    restore(cluster, &definitions[0]).await?;
    eventually(Duration::from_secs(20), "ready with all definitions", || controller.probe("/readyz")).await?;

    // JobSet comes, goes and comes again.
    let train = {
        let mut set = objects::job_set("train", 1, Some("queue"));
        set["spec"]["suspend"] = true.into();
        let template = &mut set["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"];
        template["containers"][0]["resources"] = json!({"requests": {"cpu": 1}});
        set
    };
    let admitted = async || {
        let wait = Wait::new(&cluster.client, api::JOB_SETS, "default").limit(Duration::from_secs(30));
        wait.one("train", "started", |o| o.pointer("/spec/suspend") == Some(&json!(false))).await.map(drop)
    };
    let crds = cluster.programs.jobset_crds.display().to_string();
    for _ in 0..2 {
        cluster::apply_definitions(&cluster.client, &cluster.kubectl, &crds).await?;
        cluster.kubectl.apply(&train.to_string()).await?;
        admitted().await?;
        remove(cluster, "jobsets.jobset.x-k8s.io").await?;
        // Its Workload is finished, if it is not deleted with it.
        let over = |o: &Objects| o.values().all(|workload| is_true(workload, "Finished"));
        Wait::new(&cluster.client, api::WORKLOADS, "default").until("over", over).await?;
        let free = |o: &Value| o.pointer("/status/reservingWorkloads") == Some(&json!(0));
        Wait::new(&cluster.client, api::CLUSTER_QUEUES, "").one("all", "empty", free).await?;
    }

    // All Workloads go with their definition while a job runs: nothing is tried all the time, and all is as it was in the end.
    cluster.kubectl.apply(&job("one", "1", "forever").to_string()).await?;
    let jobs = || Wait::new(&cluster.client, api::JOBS, "default").limit(Duration::from_secs(90));
    jobs().one("one", "running", is_running).await?;
    remove(cluster, workloads).await?;
    says(&controller, &["not served", "slicegate crds", "kind=\"Workload\""]).await?;
    let (before, spent) = (cluster.requests()?.len(), controller.cost()?.0);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let asked = asked_by(&cluster.requests()?.split_off(before), CONTROLLER);
    let spent = controller.cost()?.0 - spent;
    ensure!(asked < 40 && spent < 1.5, "{asked} requests and {spent} s of processor time in 5 s that cannot be of use");
    restore(cluster, &definitions[1]).await?;
    let quota = |o: &Objects| o.len() == 1 && o.values().all(|w| is_true(w, "Admitted"));
    let all = Wait::new(&cluster.client, api::WORKLOADS, "default").limit(Duration::from_secs(90));
    all.until("admitted again", quota).await?;
    jobs().one("one", "running again", is_running).await?;
    controller.process.must_run()?;
    drop(observer);
    Ok(())
}

async fn it_ends_when_it_is_told_to(suite: &mut Suite) -> Result<()> {
    let folder = suite.test_folder();
    let cluster = suite.shared().await?;
    let (_gke, observer) = stage(cluster).await?;
    let options = Options { leader_elect: true, webhook: false, ..Options::default() };
    let mut controller = Slicegate::start(cluster, &folder, &options).await?;
    // In the middle of its writes.
    for number in 0..20 {
        cluster.kubectl.apply(&job(&format!("job-{number}"), "100m", "forever").to_string()).await?;
    }
    let status = controller.terminate().await?;
    ensure!(status.success(), "it ended with {status}");
    let leases = api::LEASES.list(&cluster.client, NAMESPACE).await?;
    ensure!(leases.iter().all(|lease| text(lease, "/spec/holderIdentity").is_empty()), "the Lease is not given back");
    controller.start_again().await?;
    let all = Wait::new(&cluster.client, api::JOBS, "default").limit(Duration::from_mins(1));
    all.until("all running", |jobs| jobs.len() == 20 && jobs.values().all(is_running)).await?;
    observer.must_be_clean().await?;
    // An API server that does not answer is not waited for longer than a pod has time to end.
    let pause = async |stop: bool| {
        let signal = if stop { rustix::process::Signal::STOP } else { rustix::process::Signal::CONT };
        cluster.apiserver.lock().await.signal(signal)
    };
    pause(true).await?;
    let began = Instant::now();
    let ended = controller.process.terminate(Duration::from_secs(14)).await;
    pause(false).await?;
    ensure!(
        ended.as_ref().is_ok_and(std::process::ExitStatus::success),
        "it ended with {ended:?} after {:?}",
        began.elapsed()
    );
    controller.start_again().await?;
    pause(true).await?;
    let twice = async {
        // Its renewal is on the way then.
        tokio::time::sleep(Duration::from_secs(3)).await;
        controller.process.signal(rustix::process::Signal::INT)?;
        tokio::time::sleep(Duration::from_millis(300)).await;
        controller.process.terminate(Duration::from_secs(1)).await
    };
    let ended = twice.await;
    pause(false).await?;
    ensure!(ended.as_ref().is_ok_and(|status| status.code() == Some(1)), "told twice it ended with {ended:?}");
    says(&controller, &["ending at once", "SIGTERM"]).await
}
