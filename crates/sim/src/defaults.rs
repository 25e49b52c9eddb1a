//! What the API server's webhooks fill in when an object is made.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use slicegate_api::jobset::{JobSet, Network};
use slicegate_api::{JobTemplateSpec, Object, ObjectMeta, PodSpec, PodTemplateSpec, Toleration};

/// The label that puts a job into a LocalQueue.
pub(crate) const QUEUE_NAME: &str = "kueue.x-k8s.io/queue-name";
/// The resource of TPU chips.
pub(crate) const TPU: &str = slicegate_tpu::RESOURCE;

/// Fills in what is absent in a document that makes a new object: the namespace and defaults. What Kueue's webhooks fill in
/// comes when it is made.
pub(crate) fn complete(mut object: Object) -> Object {
    if object.kind().is_namespaced() && object.namespace().is_empty() {
        object.metadata_mut().namespace = Some("default".to_owned());
    }
    match &mut object {
        Object::JobSet(jobset) => default_jobset(Arc::make_mut(jobset)),
        Object::Job(job) => {
            let job = Arc::make_mut(job);
            let spec = job.spec.get_or_insert_default();
            spec.completion_mode.get_or_insert_with(|| "NonIndexed".to_owned());
            spec.backoff_limit.get_or_insert(6);
            spec.parallelism.get_or_insert(1);
            if spec.completions.is_none() && spec.parallelism == Some(1) {
                spec.completions = Some(1);
            }
            spec.suspend.get_or_insert(false);
        }
        Object::RayJob(rayjob) => {
            let spec = &mut Arc::make_mut(rayjob).spec;
            spec.submission_mode.get_or_insert_with(|| "K8sJobMode".to_owned());
            let other = &mut spec.other;
            other.entry("backoffLimit".to_owned()).or_insert_with(|| 0.into());
            other.entry("ttlSecondsAfterFinished".to_owned()).or_insert_with(|| 0.into());
            if let Some(cluster) = &mut spec.ray_cluster_spec {
                default_ray_cluster(cluster);
            }
        }
        Object::RayCluster(cluster) => default_ray_cluster(&mut Arc::make_mut(cluster).spec),
        _ => {}
    }
    object
}

pub(crate) fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}

pub(crate) fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

fn default_ray_cluster(cluster: &mut slicegate_api::ray::RayClusterSpec) {
    let workers = cluster.worker_group_specs.iter_mut().map(|group| &mut group.template);
    for template in workers.chain([&mut cluster.head_group_spec.template]) {
        template.metadata.get_or_insert_default();
        if let Some(pod) = &mut template.spec {
            default_ports(pod);
        }
    }
    for group in &mut cluster.worker_group_specs {
        group.replicas.get_or_insert(0);
        group.min_replicas.get_or_insert(0);
        group.max_replicas.get_or_insert(i32::MAX);
        group.num_of_hosts.get_or_insert(1);
        group.other.entry("scaleStrategy".to_owned()).or_insert_with(|| json!({}));
    }
}

pub(crate) fn default_jobset(jobset: &mut JobSet) {
    let spec = &mut jobset.spec;
    spec.other.entry("successPolicy".to_owned()).or_insert_with(|| json!({"operator": "All"}));
    spec.other.entry("startupPolicy".to_owned()).or_insert_with(|| json!({"startupPolicyOrder": "AnyOrder"}));
    let network = spec.network.get_or_insert_with(Network::default);
    network.enable_dns_hostnames.get_or_insert(true);
    network.publish_not_ready_addresses.get_or_insert(true);
    if let Some(policy) = &mut spec.failure_policy {
        policy.other.entry("restartStrategy".to_owned()).or_insert_with(|| Value::String("Recreate".to_owned()));
    }
    for job in &mut spec.replicated_jobs {
        job.replicas.get_or_insert(1);
        job.other.entry("groupName".to_owned()).or_insert_with(|| Value::String("default".to_owned()));
        default_job_template(&mut job.template);
    }
}

fn default_job_template(template: &mut JobTemplateSpec) {
    template.metadata.get_or_insert_default();
    let spec = template.spec.get_or_insert_default();
    spec.completion_mode.get_or_insert_with(|| "Indexed".to_owned());
    spec.template.metadata.get_or_insert_default();
    let pod = spec.template.spec.get_or_insert_default();
    pod.restart_policy.get_or_insert_with(|| "OnFailure".to_owned());
    default_ports(pod);
}

fn default_ports(pod: &mut PodSpec) {
    for container in pod.containers.iter_mut().chain(pod.init_containers.iter_mut().flatten()) {
        for port in container.ports.iter_mut().flatten() {
            port.protocol.get_or_insert_with(|| "TCP".to_owned());
        }
    }
}

/// What the API server fills in in a pod template.
pub(crate) fn complete_template(template: &mut PodTemplateSpec) {
    let Some(pod) = &mut template.spec else { return };
    default_ports(pod);
    for container in pod.containers.iter_mut().chain(pod.init_containers.iter_mut().flatten()) {
        let image = container.image.as_deref().unwrap_or_default();
        let tag = image.rsplit_once('/').map_or(image, |(_, last)| last).split_once(':').map(|(_, tag)| tag);
        let policy = if matches!(tag, None | Some("latest")) { "Always" } else { "IfNotPresent" };
        container.image_pull_policy.get_or_insert_with(|| policy.to_owned());
        container.termination_message_path.get_or_insert_with(|| "/dev/termination-log".to_owned());
        container.termination_message_policy.get_or_insert_with(|| "File".to_owned());
    }
    pod.dns_policy.get_or_insert_with(|| "ClusterFirst".to_owned());
    pod.restart_policy.get_or_insert_with(|| "Always".to_owned());
    pod.scheduler_name.get_or_insert_with(|| "default-scheduler".to_owned());
    pod.security_context.get_or_insert_default();
    pod.termination_grace_period_seconds.get_or_insert(30);
}

/// What the API server fills in in a pod that is made from a template: requests from limits, priority, tolerations (those of
/// the ExtendedResourceToleration plugin, which GKE runs, included).
pub(crate) fn complete_pod(pod: &mut PodSpec, priority: i32) {
    let mut extended: Vec<String> = Vec::new();
    let host_network = pod.host_network == Some(true);
    for container in pod.containers.iter_mut().chain(pod.init_containers.iter_mut().flatten()) {
        if host_network {
            for port in container.ports.iter_mut().flatten() {
                port.host_port.get_or_insert(port.container_port);
            }
        }
        if let Some(resources) = &mut container.resources {
            if let Some(limits) = resources.limits.clone() {
                let requests = resources.requests.get_or_insert_with(BTreeMap::new);
                for (name, quantity) in limits {
                    requests.entry(name).or_insert(quantity);
                }
            }
            for name in resources.requests.iter().flatten().map(|(name, _)| name) {
                if name.contains('/') && !name.starts_with("kubernetes.io/") && !extended.contains(name) {
                    extended.push(name.clone());
                }
            }
        }
    }
    pod.enable_service_links.get_or_insert(true);
    pod.preemption_policy.get_or_insert_with(|| "PreemptLowerPriority".to_owned());
    pod.priority = Some(priority);
    let tolerations = pod.tolerations.get_or_insert_with(Vec::new);
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        if !tolerations.iter().any(|t| t.key.as_deref() == Some(key)) {
            tolerations.push(Toleration {
                key: Some(key.to_owned()),
                operator: Some("Exists".to_owned()),
                effect: Some("NoExecute".to_owned()),
                toleration_seconds: Some(300),
                ..Toleration::default()
            });
        }
    }
    extended.sort();
    for key in extended {
        let same = |t: &Toleration| {
            t.key.as_ref() == Some(&key)
                && t.operator.as_deref() == Some("Exists")
                && t.effect.as_deref() == Some("NoSchedule")
        };
        if !tolerations.iter().any(same) {
            tolerations.push(Toleration {
                key: Some(key),
                operator: Some("Exists".to_owned()),
                effect: Some("NoSchedule".to_owned()),
                ..Toleration::default()
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slicegate_api::Kind;

    #[test]
    fn a_jobset_is_complete() {
        let object = Kind::JobSet
            .read(json!({
                "metadata": {"name": "a", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
                "spec": {"failurePolicy": {"maxRestarts": 4}, "replicatedJobs": [{"name": "slice", "template": {"spec": {
                    "template": {"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 8471}]}]}}}}}]}
            }))
            .unwrap();
        let json = complete(object).to_json().unwrap();
        assert_eq!(json["metadata"]["namespace"], "default");
        let spec = &json["spec"];
        assert_eq!(spec["failurePolicy"], json!({"maxRestarts": 4, "restartStrategy": "Recreate"}));
        assert_eq!(spec["network"], json!({"enableDNSHostnames": true, "publishNotReadyAddresses": true}));
        assert_eq!(spec["successPolicy"], json!({"operator": "All"}));
        let job = &spec["replicatedJobs"][0];
        assert_eq!((&job["groupName"], &job["replicas"]), (&json!("default"), &json!(1)));
        assert_eq!(job["template"]["spec"]["completionMode"], "Indexed");
        let pod = &job["template"]["spec"]["template"]["spec"];
        assert_eq!(pod["restartPolicy"], "OnFailure");
        assert_eq!(pod["containers"][0]["ports"][0]["protocol"], "TCP");
    }

    #[test]
    fn a_job_without_a_queue_is_not_suspended() {
        let object = Kind::Job.read(json!({"metadata": {"name": "a"}, "spec": {"template": {}}})).unwrap();
        assert_eq!(complete(object).to_json().unwrap()["spec"]["suspend"], false);
    }

    #[test]
    fn pods_tolerate_the_taint_of_the_chips_they_ask_for() {
        let mut pod: PodSpec = serde_json::from_value(json!({
            "containers": [{"name": "c", "resources": {"limits": {"google.com/tpu": "4", "cpu": "1"}}}]
        }))
        .unwrap();
        complete_pod(&mut pod, 7);
        let json = serde_json::to_value(&pod).unwrap();
        assert_eq!(json["containers"][0]["resources"]["requests"], json!({"google.com/tpu": "4", "cpu": "1"}));
        assert_eq!(json["priority"], 7);
        assert_eq!(
            json["tolerations"][2],
            json!({"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"})
        );
        complete_pod(&mut pod, 7);
        assert_eq!(pod.tolerations.unwrap().len(), 3, "once is enough");
    }
}
