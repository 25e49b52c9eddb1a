//! What `kubectl get` prints.

use std::collections::BTreeMap;

use sha1::{Digest, Sha1};
use slicegate_api::kueue::Workload;
use slicegate_api::{Condition, Job, Kind, Object, ObjectRef, Pod, Time};
use slicegate_workload::Timestamp;

use super::Table;
use crate::duration::kubectl_age;
use crate::store::{controller_of, sim_time};

/// What to list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Resource {
    /// `kubectl get workloads`
    Workloads,
    /// `kubectl get jobsets`
    JobSets,
    /// `kubectl get rayjobs`
    RayJobs,
    /// `kubectl get jobs`
    Jobs,
    /// `kubectl get pods`
    Pods,
    /// `kubectl get clusterqueues`
    ClusterQueues,
    /// `kubectl get localqueues`
    LocalQueues,
    /// `kubectl get provisioningrequests`
    ProvisioningRequests,
    /// `kubectl get slices`
    Slices,
    /// `kubectl get nodes`
    Nodes,
}

/// How to list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableOptions {
    /// More columns: `-o wide`.
    pub wide: bool,
    /// One namespace only; absent means all, and a column for it if there are several.
    pub namespace: Option<String>,
    /// Workloads as Kueue showed them before 0.7: names without the job's uid, and `ADMITTED BY`.
    pub legacy: bool,
}

impl Resource {
    const fn kind(self) -> Kind {
        match self {
            Self::Workloads => Kind::Workload,
            Self::JobSets => Kind::JobSet,
            Self::RayJobs => Kind::RayJob,
            Self::Jobs => Kind::Job,
            Self::Pods => Kind::Pod,
            Self::ClusterQueues => Kind::ClusterQueue,
            Self::LocalQueues => Kind::LocalQueue,
            Self::ProvisioningRequests => Kind::ProvisioningRequest,
            Self::Slices => Kind::Slice,
            Self::Nodes => Kind::Node,
        }
    }

    const fn header(self, options: &TableOptions) -> &'static [&'static str] {
        match self {
            Self::Workloads if options.legacy => &["NAME", "QUEUE", "ADMITTED BY", "AGE"],
            Self::Workloads => &["NAME", "QUEUE", "RESERVED IN", "ADMITTED", "FINISHED", "AGE"],
            Self::JobSets => &["NAME", "TERMINALSTATE", "RESTARTS", "COMPLETED", "SUSPENDED", "AGE"],
            Self::RayJobs => {
                &["NAME", "JOB STATUS", "DEPLOYMENT STATUS", "RAY CLUSTER NAME", "START TIME", "END TIME", "AGE"]
            }
            Self::Jobs => &["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"],
            Self::Pods if options.wide => {
                &["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "NOMINATED NODE", "READINESS GATES"]
            }
            Self::Pods => &["NAME", "READY", "STATUS", "RESTARTS", "AGE"],
            Self::ClusterQueues if options.wide => {
                &["NAME", "COHORT", "STRATEGY", "PENDING WORKLOADS", "ADMITTED WORKLOADS"]
            }
            Self::ClusterQueues => &["NAME", "COHORT", "PENDING WORKLOADS"],
            Self::LocalQueues => &["NAME", "CLUSTERQUEUE", "PENDING WORKLOADS", "ADMITTED WORKLOADS"],
            Self::ProvisioningRequests => &["NAME", "ACCEPTED", "PROVISIONED", "FAILED", "AGE"],
            Self::Slices => &["NAME", "TYPE", "TOPOLOGY", "STATE", "AGE"],
            Self::Nodes => &["NAME", "STATUS", "ROLES", "AGE", "VERSION"],
        }
    }
}

/// The table that `kubectl get` prints of these objects at this time.
pub fn table(
    resource: Resource,
    objects: &BTreeMap<ObjectRef, Object>,
    now: Timestamp,
    options: &TableOptions,
) -> Table {
    let kind = resource.kind();
    let wanted = |key: &&ObjectRef| options.namespace.as_deref().is_none_or(|namespace| *key.namespace == *namespace);
    let from = ObjectRef::new(kind, "", "");
    let of_kind: Vec<(&ObjectRef, &Object)> =
        objects.range(from..).take_while(|(key, _)| key.kind == kind).filter(|(key, _)| wanted(key)).collect();
    let first = of_kind.first().map(|(key, _)| &key.namespace);
    let several = of_kind.iter().any(|(key, _)| Some(&key.namespace) != first);
    let mut header: Vec<&str> = if several { vec!["NAMESPACE"] } else { Vec::new() };
    header.extend(resource.header(options));
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (key, object) in of_kind {
        let mut row = if several { vec![key.namespace.to_string()] } else { Vec::new() };
        row.extend(cells(resource, object, now, options));
        rows.push(row);
    }
    // Legacy names do not sort as today's do.
    rows.sort_by(|a, b| a[..=usize::from(several)].cmp(&b[..=usize::from(several)]));
    let mut table = Table::new(header);
    for row in rows {
        table.push(row);
    }
    table
}

fn age(object: &Object, now: Timestamp) -> String {
    match &object.metadata().creation_timestamp {
        Some(time) => kubectl_age(now.seconds().saturating_sub(sim_time(time).seconds())),
        None => "<unknown>".to_owned(),
    }
}

fn status_of(conditions: &[Condition], kind: &str) -> String {
    conditions.iter().find(|c| c.type_ == kind).map(|c| c.status.clone()).unwrap_or_default()
}

fn shown(time: Option<&Time>) -> String {
    time.map(|time| time.0.to_string()).unwrap_or_default()
}

/// The name a workload had before uids counted: from kind, group and name of its job.
fn legacy_name(object: &Object, workload: &Workload) -> String {
    let own = workload.metadata.name.clone().unwrap_or_default();
    let Some(owner) = controller_of(object) else { return own };
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    let hash: [u8; 20] = Sha1::digest(format!("{}\n{group}\n{}", owner.kind, owner.name).as_bytes()).into();
    let [a, b, c, ..] = hash;
    format!("{}-{}-{a:02x}{b:02x}{:x}", owner.kind.to_lowercase(), owner.name, c >> 4)
}

fn cells(resource: Resource, object: &Object, now: Timestamp, options: &TableOptions) -> Vec<String> {
    let name = object.name().to_owned();
    let age = age(object, now);
    match object {
        Object::Workload(workload) => {
            let queue = workload.spec.queue_name.clone();
            let reserved = workload.status.admission.as_ref().map(|a| a.cluster_queue.clone()).unwrap_or_default();
            if options.legacy {
                return vec![legacy_name(object, workload), queue, reserved, age];
            }
            let conditions = &workload.status.conditions;
            vec![name, queue, reserved, status_of(conditions, "Admitted"), status_of(conditions, "Finished"), age]
        }
        Object::JobSet(jobset) => {
            let status = &jobset.status;
            vec![
                name,
                status.terminal_state.clone().unwrap_or_default(),
                status.restarts.map(|n| n.to_string()).unwrap_or_default(),
                status_of(&status.conditions, "Completed"),
                jobset.spec.suspend.map(|s| s.to_string()).unwrap_or_default(),
                age,
            ]
        }
        Object::RayJob(job) => {
            let status = &job.status;
            vec![
                name,
                status.job_status.clone().unwrap_or_default(),
                status.job_deployment_status.clone().unwrap_or_default(),
                status.ray_cluster_name.clone().unwrap_or_default(),
                shown(status.start_time.as_ref()),
                shown(status.end_time.as_ref()),
                age,
            ]
        }
        Object::Job(job) => job_cells(name, job, now, age),
        Object::Pod(pod) => pod_cells(name, pod, age, options.wide),
        Object::ClusterQueue(queue) => {
            let cohort = queue.spec.cohort_name.clone().unwrap_or_default();
            let pending = queue.status.pending_workloads.to_string();
            if options.wide {
                let strategy = queue.spec.queueing_strategy.clone().unwrap_or_default();
                return vec![name, cohort, strategy, pending, queue.status.admitted_workloads.to_string()];
            }
            vec![name, cohort, pending]
        }
        Object::LocalQueue(queue) => vec![
            name,
            queue.spec.cluster_queue.clone(),
            queue.status.pending_workloads.to_string(),
            queue.status.admitted_workloads.to_string(),
        ],
        Object::ProvisioningRequest(request) => {
            let of = |kind| status_of(&request.status.conditions, kind);
            vec![name, of("Accepted"), of("Provisioned"), of("Failed"), age]
        }
        Object::Slice(slice) => {
            vec![name, slice.spec.type_.clone(), slice.spec.topology.clone(), slice.state().to_owned(), age]
        }
        Object::Node(_) => vec![name, "Ready".to_owned(), "<none>".to_owned(), age, "v1.34.0-gke".to_owned()],
        _ => {
            let _ = resource;
            vec![name, age]
        }
    }
}

fn job_cells(name: String, job: &Job, now: Timestamp, age: String) -> Vec<String> {
    let status = job.status.clone().unwrap_or_default();
    let is = |kind: &str| status.conditions.iter().flatten().any(|c| c.type_ == kind && c.status == "True");
    let shown = if is("Complete") {
        "Complete"
    } else if is("Failed") {
        "Failed"
    } else if job.metadata.deletion_timestamp.is_some() {
        "Terminating"
    } else if is("Suspended") {
        "Suspended"
    } else if is("FailureTarget") {
        "FailureTarget"
    } else if is("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    };
    let spec = job.spec.clone().unwrap_or_default();
    let succeeded = status.succeeded.unwrap_or(0);
    let completions = match (spec.completions, spec.parallelism.unwrap_or(1)) {
        (Some(n), _) => format!("{succeeded}/{n}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    };
    let start = status.start_time.as_ref().map(sim_time);
    let end = status.completion_time.as_ref().map_or(now, sim_time);
    let duration = start.map(|start| kubectl_age(end.seconds().saturating_sub(start.seconds()))).unwrap_or_default();
    vec![name, shown.to_owned(), completions, duration, age]
}

fn pod_cells(name: String, pod: &Pod, age: String, wide: bool) -> Vec<String> {
    let status = pod.status.clone().unwrap_or_default();
    let containers = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
    let ready = status.container_statuses.iter().flatten().filter(|c| c.ready).count();
    let gated = status.conditions.iter().flatten().any(|c| c.reason.as_deref() == Some("SchedulingGated"));
    let phase = status.phase.as_deref().unwrap_or("Pending");
    let shown = match phase {
        "Succeeded" => "Completed",
        "Failed" => "Error",
        _ if pod.metadata.deletion_timestamp.is_some() => "Terminating",
        "Pending" if gated => "SchedulingGated",
        other => other,
    };
    let mut row = vec![name, format!("{ready}/{containers}"), shown.to_owned(), "0".to_owned(), age];
    if wide {
        let none = || "<none>".to_owned();
        row.push(status.pod_ip.clone().unwrap_or_else(none));
        row.push(pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_else(none));
        row.push(status.nominated_node_name.clone().unwrap_or_else(none));
        row.push(none());
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn objects(list: Vec<(Kind, Value)>) -> BTreeMap<ObjectRef, Object> {
        list.into_iter()
            .map(|(kind, mut value)| {
                value["metadata"]["namespace"] = "default".into();
                let object = kind.read(value).unwrap();
                (object.reference(), object)
            })
            .collect()
    }

    fn print(resource: Resource, objects: &BTreeMap<ObjectRef, Object>, options: &TableOptions) -> String {
        // 2026-01-01T00:02:35Z
        table(resource, objects, Timestamp::from_seconds(1_767_225_755), options).to_string()
    }

    fn workload(name: &str, job: &str, created: &str, admitted: bool) -> (Kind, Value) {
        let status = if admitted {
            json!({
                "admission": {"clusterQueue": "cluster-queue"},
                "conditions": [{"type": "Admitted", "status": "True", "reason": "Admitted", "message": "",
                                "lastTransitionTime": created}]
            })
        } else {
            json!({})
        };
        (
            Kind::Workload,
            json!({
                "metadata": {"name": name, "creationTimestamp": created, "ownerReferences": [{
                    "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": job, "uid": "u", "controller": true}]},
                "spec": {"queueName": "multislice-queue"}, "status": status
            }),
        )
    }

    #[test]
    fn workloads_as_today_and_as_before() {
        let objects = objects(vec![
            workload("jobset-multislice-1slice-5218d", "multislice-1slice", "2026-01-01T00:02:32Z", false),
            workload("jobset-multislice-2slice-193a7", "multislice-2slice", "2026-01-01T00:02:31Z", false),
            workload("jobset-multislice-3slice-6b56e", "multislice-3slice", "2026-01-01T00:02:25Z", true),
        ]);
        let now = "\
NAME                             QUEUE              RESERVED IN     ADMITTED   FINISHED   AGE
jobset-multislice-1slice-5218d   multislice-queue                                         3s
jobset-multislice-2slice-193a7   multislice-queue                                         4s
jobset-multislice-3slice-6b56e   multislice-queue   cluster-queue   True                  10s
";
        assert_eq!(print(Resource::Workloads, &objects, &TableOptions::default()), now);
        let before = "\
NAME                             QUEUE              ADMITTED BY     AGE
jobset-multislice-1slice-2530a   multislice-queue                   3s
jobset-multislice-2slice-ffb02   multislice-queue                   4s
jobset-multislice-3slice-8c695   multislice-queue   cluster-queue   10s
";
        let options = TableOptions { legacy: true, ..TableOptions::default() };
        assert_eq!(print(Resource::Workloads, &objects, &options), before);
    }

    #[test]
    fn pods_with_and_without_a_node() {
        let pod = |name: &str, phase: &str, node: Option<&str>| {
            let ready = phase == "Running";
            (
                Kind::Pod,
                json!({
                    "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:04Z"},
                    "spec": {"containers": [{"name": "c"}], "nodeName": node},
                    "status": {"phase": phase, "podIP": node.map(|_| "10.4.0.1"), "containerStatuses": [
                        {"name": "c", "image": "", "imageID": "", "ready": ready, "restartCount": 0}]}
                }),
            )
        };
        let objects = objects(vec![
            pod("a-0-0-x", "Succeeded", Some("n1")),
            pod("a-0-1-x", "Running", Some("n2")),
            pod("b", "Pending", None),
        ]);
        let wide = TableOptions { wide: true, ..TableOptions::default() };
        let expected = "\
NAME      READY   STATUS      RESTARTS   AGE     IP         NODE     NOMINATED NODE   READINESS GATES
a-0-0-x   0/1     Completed   0          2m31s   10.4.0.1   n1       <none>           <none>
a-0-1-x   1/1     Running     0          2m31s   10.4.0.1   n2       <none>           <none>
b         0/1     Pending     0          2m31s   <none>     <none>   <none>           <none>
";
        assert_eq!(print(Resource::Pods, &objects, &wide), expected);
    }

    #[test]
    fn jobs_and_jobsets() {
        let created = "2026-01-01T00:00:05Z";
        let done = json!([{"type": "Complete", "status": "True"}]);
        let objects = objects(vec![
            (
                Kind::Job,
                json!({"metadata": {"name": "done", "creationTimestamp": created},
                       "spec": {"completions": 2, "parallelism": 2, "template": {}},
                       "status": {"succeeded": 2, "startTime": created, "completionTime": "2026-01-01T00:01:06Z",
                                  "conditions": done}}),
            ),
            (
                Kind::Job,
                json!({"metadata": {"name": "held", "creationTimestamp": created},
                       "spec": {"parallelism": 3, "template": {}},
                       "status": {"conditions": [{"type": "Suspended", "status": "True"}]}}),
            ),
            (
                Kind::JobSet,
                json!({"metadata": {"name": "s", "creationTimestamp": created}, "spec": {"suspend": false},
                       "status": {"terminalState": "Completed", "restarts": 0, "conditions": [
                           {"type": "Completed", "status": "True", "reason": "AllJobsCompleted", "message": "",
                            "lastTransitionTime": created}]}}),
            ),
        ]);
        let jobs = "\
NAME   STATUS      COMPLETIONS   DURATION   AGE
done   Complete    2/2           61s        2m30s
held   Suspended   0/1 of 3                 2m30s
";
        assert_eq!(print(Resource::Jobs, &objects, &TableOptions::default()), jobs);
        let jobsets = "\
NAME   TERMINALSTATE   RESTARTS   COMPLETED   SUSPENDED   AGE
s      Completed       0          True        false       2m30s
";
        assert_eq!(print(Resource::JobSets, &objects, &TableOptions::default()), jobsets);
    }

    #[test]
    fn rayjobs() {
        let objects = objects(vec![(
            Kind::RayJob,
            json!({"metadata": {"name": "r", "creationTimestamp": "2026-01-01T00:00:05Z"}, "spec": {},
                   "status": {"jobStatus": "RUNNING", "jobDeploymentStatus": "Running", "rayClusterName": "r-abcde",
                              "startTime": "2026-01-01T00:00:05Z"}}),
        )]);
        let expected = "\
NAME   JOB STATUS   DEPLOYMENT STATUS   RAY CLUSTER NAME   START TIME             END TIME   AGE
r      RUNNING      Running             r-abcde            2026-01-01T00:00:05Z              2m30s
";
        assert_eq!(print(Resource::RayJobs, &objects, &TableOptions::default()), expected);
    }
}
