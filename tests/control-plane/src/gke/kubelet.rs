//! Kubelets: they run the pods that are bound to their nodes, for a given time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::api::{PODS, items, text};
use crate::error::Result;
use crate::gke::{Change, EXIT_CODE, RUN_TIME, Shared, duration, follow, now, persist, place};

const JOB_SET: &str = "/metadata/labels/jobset.sigs.k8s.io~1jobset-name";

/// How a pod runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Run {
    For(Duration),
    UntilTold,
}

/// Plays the kubelets of all nodes.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut running: BTreeMap<String, JoinHandle<()>> = BTreeMap::new();
    let mut going: BTreeMap<String, JoinHandle<()>> = BTreeMap::new();
    let mut listed = BTreeMap::new();
    let client = shared.client.clone();
    follow(&client, PODS, |change| {
        let pod = match change {
            Change::Begin => {
                listed.clear();
                return;
            }
            Change::Listed => {
                // Those that are gone meanwhile are not in the list; those that were seen after it are not there yet.
                shared.state().pods = std::mem::take(&mut listed);
                return;
            }
            Change::Gone(pod) => {
                let uid = text(&pod, "/metadata/uid");
                for task in [running.remove(uid), going.remove(uid)].into_iter().flatten() {
                    task.abort();
                }
                shared.state().pods.remove(uid);
                return;
            }
            Change::Is(pod) => pod,
        };
        let uid = text(&pod, "/metadata/uid").to_owned();
        listed.insert(uid.clone(), pod.clone());
        shared.state().pods.insert(uid.clone(), pod.clone());
        if text(&pod, "/spec/nodeName").is_empty() {
            return;
        }
        if pod.pointer("/metadata/deletionTimestamp").is_some() {
            if let Some(task) = running.remove(&uid) {
                task.abort();
            }
            going.entry(uid).or_insert_with(|| tokio::spawn(remove(shared.clone(), pod)));
        } else if ["Pending", "Running"].contains(&text(&pod, "/status/phase")) {
            running.entry(uid).or_insert_with(|| tokio::spawn(life(shared.clone(), pod)));
        }
    })
    .await;
}

/// Lets all nodes say again and again that they are alive.
pub(super) async fn heartbeats(shared: Arc<Shared>) {
    loop {
        let (pause, nodes) = {
            let state = shared.state();
            let all = state.pools.values().flat_map(|p| p.nodes.iter());
            let alive: Vec<String> = all.filter(|n| !state.dead.contains(*n)).cloned().collect();
            (state.settings.heartbeat, alive)
        };
        tokio::time::sleep(pause).await;
        // One that fails is made up for by the next.
        join_all(nodes.iter().map(|node| shared.beat(node))).await;
    }
}

/// What becomes of a pod that is bound to a node.
async fn life(shared: Arc<Shared>, pod: Value) {
    let node = text(&pod, "/spec/nodeName").to_owned();
    let start = shared.state().settings.start_time;
    if text(&pod, "/status/phase") != "Running" {
        tokio::time::sleep(start).await;
        alive(&shared, &node).await;
        if persist(|| patch(&shared.client, &pod, started(&pod))).await.is_none() {
            return;
        }
    }
    let run = how_long(&pod, shared.state().settings.run_time);
    match run {
        Run::For(time) => tokio::time::sleep(time).await,
        Run::UntilTold => released(&shared, text(&pod, JOB_SET)).await,
    }
    alive(&shared, &node).await;
    let code = text(&pod, &format!("/metadata/annotations/{}", EXIT_CODE.replace('/', "~1"))).parse().unwrap_or(0);
    persist(|| patch(&shared.client, &pod, ended(&pod, code))).await;
}

/// Waits until the pods of a JobSet may end.
async fn released(shared: &Shared, job_set: &str) {
    let mut news = shared.news.subscribe();
    while !shared.state().released.contains(job_set) {
        if news.changed().await.is_err() {
            return;
        }
    }
}

/// Waits until a node is not dead.
async fn alive(shared: &Shared, node: &str) {
    while shared.state().dead.contains(node) {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Deletes a pod for good, as a kubelet does when its containers have ended.
async fn remove(shared: Arc<Shared>, pod: Value) {
    alive(&shared, text(&pod, "/spec/nodeName")).await;
    let (namespace, name) = place(&pod);
    let uid = text(&pod, "/metadata/uid").to_owned();
    let preconditions = Preconditions { uid: Some(uid), resource_version: None };
    let params =
        DeleteParams { grace_period_seconds: Some(0), preconditions: Some(preconditions), ..DeleteParams::default() };
    let api = PODS.within(&shared.client, &namespace);
    persist(|| async { api.delete(&name, &params).await.map(drop) }).await;
}

/// Ends a pod now.
pub(super) async fn end(client: &Client, pod: &Value, exit_code: i32) -> Result<()> {
    Ok(patch(client, pod, ended(pod, exit_code)).await?)
}

async fn patch(client: &Client, pod: &Value, status: Value) -> Result<(), kube::Error> {
    let (namespace, name) = place(pod);
    // With its uid, so that a namesake is left alone.
    let body = json!({"metadata": {"uid": text(pod, "/metadata/uid")}, "status": status});
    let api = PODS.within(client, &namespace);
    api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&body)).await.map(drop)
}

fn how_long(pod: &Value, usual: Option<Duration>) -> Run {
    let said = text(pod, &format!("/metadata/annotations/{}", RUN_TIME.replace('/', "~1")));
    if said == "forever" {
        return Run::UntilTold;
    }
    // Heads and workers of Ray run as long as their cluster.
    let is_ray_node = pod.pointer("/metadata/labels/ray.io~1node-type").is_some();
    match duration(said).or(usual.filter(|_| !is_ray_node)) {
        Some(time) => Run::For(time),
        None => Run::UntilTold,
    }
}

fn condition(kind: &str, good: bool, reason: &str) -> Value {
    let mut condition = json!({"type": kind, "status": if good { "True" } else { "False" },
        "lastProbeTime": null, "lastTransitionTime": now()});
    if !reason.is_empty() {
        condition["reason"] = reason.into();
    }
    condition
}

fn containers(pod: &Value, of: &str, ready: bool, state: &Value) -> Vec<Value> {
    items(pod, of)
        .iter()
        .map(|c| {
            json!({"name": text(c, "/name"), "image": text(c, "/image"), "imageID": "", "restartCount": 0,
                "ready": ready, "started": ready, "state": state})
        })
        .collect()
}

fn started(pod: &Value) -> Value {
    let conditions: Vec<Value> =
        ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
            .map(|kind| condition(kind, true, ""))
            .to_vec();
    let terminated =
        json!({"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now(), "finishedAt": now()}});
    // An address of the documentation's: nobody calls it.
    let number: u32 =
        text(pod, "/metadata/uid").bytes().fold(7, |n, b| (n.wrapping_mul(31).wrapping_add(b.into())) % 253);
    let address = format!("192.0.2.{}", number.saturating_add(1));
    json!({"phase": "Running", "startTime": now(), "conditions": conditions,
        "podIP": address, "podIPs": [{"ip": address}],
        "initContainerStatuses": containers(pod, "/spec/initContainers", true, &terminated),
        "containerStatuses": containers(pod, "/spec/containers", true, &json!({"running": {"startedAt": now()}}))})
}

fn ended(pod: &Value, exit_code: i32) -> Value {
    let reason = if exit_code == 0 { "PodCompleted" } else { "PodFailed" };
    let mut conditions = vec![
        condition("PodReadyToStartContainers", false, ""),
        condition("Initialized", true, if exit_code == 0 { "PodCompleted" } else { "" }),
        condition("Ready", false, reason),
        condition("ContainersReady", false, reason),
    ];
    conditions.push(condition("PodScheduled", true, ""));
    let why = if exit_code == 0 { "Completed" } else { "Error" };
    let state = json!({"terminated": {"exitCode": exit_code, "reason": why, "startedAt": now(), "finishedAt": now()}});
    json!({"phase": if exit_code == 0 { "Succeeded" } else { "Failed" }, "conditions": conditions,
        "containerStatuses": containers(pod, "/spec/containers", false, &state)})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_pods_run() {
        let usual = Some(Duration::from_secs(2));
        let pod =
            |annotations: Value, labels: Value| json!({"metadata": {"annotations": annotations, "labels": labels}});
        assert_eq!(how_long(&pod(json!({}), json!({})), usual), Run::For(Duration::from_secs(2)));
        assert_eq!(how_long(&pod(json!({}), json!({})), None), Run::UntilTold);
        let said = pod(json!({RUN_TIME: "7s"}), json!({}));
        assert_eq!(how_long(&said, usual), Run::For(Duration::from_secs(7)));
        assert_eq!(how_long(&pod(json!({RUN_TIME: "forever"}), json!({})), usual), Run::UntilTold);
        assert_eq!(how_long(&pod(json!({}), json!({"ray.io/node-type": "head"})), usual), Run::UntilTold);
    }

    #[test]
    fn a_container_that_fails_fails_its_pod() {
        let pod = json!({"spec": {"containers": [{"name": "a", "image": "i"}]}});
        let status = ended(&pod, 3);
        assert_eq!(
            (text(&status, "/phase"), &status["containerStatuses"][0]["state"]["terminated"]["exitCode"]),
            ("Failed", &json!(3))
        );
        assert_eq!(text(&ended(&pod, 0), "/phase"), "Succeeded");
    }
}
