//! Jobs for tests.

use slicegate_control_plane::{Value, json};

/// A JobSet of so many v5e slices of two hosts, one slice a node pool.
pub(crate) fn job_set(name: &str, slices: u32, queue: Option<&str>) -> Value {
    let pod = json!({
        "nodeSelector": {"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
            "cloud.google.com/gke-tpu-topology": "2x4"},
        "containers": [{"name": "train", "image": "python:3.13", "command": ["python", "-c", "pass"],
            "resources": {"limits": {"google.com/tpu": 4}}}]});
    let job = json!({"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": {"spec": pod}});
    let mut job_set = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": name, "namespace": "default",
            "annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"}},
        "spec": {"replicatedJobs": [{"name": "slice", "replicas": slices, "template": {"spec": job}}]}});
    in_queue(&mut job_set, queue);
    job_set
}

/// A Job of so many pods, each of which asks for so much cpu.
pub(crate) fn job(name: &str, pods: u32, cpu: &str, queue: Option<&str>) -> Value {
    let container = json!({"name": "work", "image": "busybox", "resources": {"requests": {"cpu": cpu}}});
    let pod = json!({"restartPolicy": "Never", "containers": [container]});
    let mut job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "default"},
        "spec": {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": {"spec": pod}}});
    in_queue(&mut job, queue);
    job
}

/// A RayJob with a head on ordinary machines and one group of four v6e hosts.
pub(crate) fn ray_job(name: &str, queue: Option<&str>) -> Value {
    let head = json!({"nodeSelector": {"cloud.google.com/gke-nodepool": "default-pool"},
        "containers": [{"name": "head", "image": "rayproject/ray:2.53.0",
            "resources": {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"cpu": "2", "memory": "4Gi"}}}]});
    let worker = json!({
        "nodeSelector": {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice", "cloud.google.com/gke-tpu-topology": "4x4"},
        "tolerations": [{"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [{"name": "worker", "image": "rayproject/ray:2.53.0", "resources": {
            "requests": {"cpu": "8", "memory": "16Gi", "google.com/tpu": "4"},
            "limits": {"cpu": "8", "memory": "16Gi", "google.com/tpu": "4"}}}]});
    let workers = json!({"groupName": "tpu", "replicas": 1, "minReplicas": 1, "maxReplicas": 1, "numOfHosts": 4,
        "rayStartParams": {}, "template": {"spec": worker}});
    let cluster =
        json!({"headGroupSpec": {"rayStartParams": {}, "template": {"spec": head}}, "workerGroupSpecs": [workers]});
    let mut job = json!({"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": name, "namespace": "default"},
        "spec": {"entrypoint": "python train.py", "shutdownAfterJobFinishes": true, "rayClusterSpec": cluster}});
    in_queue(&mut job, queue);
    job
}

fn in_queue(job: &mut Value, queue: Option<&str>) {
    if let Some(queue) = queue {
        job["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": queue});
    }
}
