//! Topology-aware placement in whole runs: why pods wait for a place, and what elastic jobs leave running.

use slicegate_sim::{EntryKind, Outcome, Verdict};

use crate::events::{finished, line, run, scenario, seconds, told, verdict};

/// A topology of node pools and hosts, a flavor with it, and a queue.
const PLACED: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: pools}
spec: {levels: [{nodeLabel: cloud.google.com/gke-nodepool}, {nodeLabel: kubernetes.io/hostname}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: v5e}
spec:
  nodeLabels: {cloud.google.com/gke-tpu-accelerator: tpu-v5-lite-podslice}
  topologyName: pools
  tolerations: [{key: google.com/tpu, operator: Exists, effect: NoSchedule}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [google.com/tpu]
    flavors: [{name: v5e, resources: [{name: google.com/tpu, nominalQuota: 64}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: default}
spec: {clusterQueue: cq}
---
";

/// A node pool of one 4x4 slice of TPU v5e, four hosts; `most` nodes if it scales from none.
fn pool(name: &str, most: Option<u32>) -> String {
    let size = most.map_or("initialNodeCount: 4".to_owned(), |most| {
        format!("initialNodeCount: 0\nautoscaling: {{enabled: true, minNodeCount: 0, maxNodeCount: {most}}}")
    });
    format!(
        "name: {name}\n{size}\nconfig: {{machineType: ct5lp-hightpu-4t}}\nplacementPolicy: {{type: COMPACT, tpuTopology: 4x4}}\n---\n"
    )
}

/// A Job whose pods ask for so many chips each.
fn job(name: &str, pods: u32, chips: u32, topology: &str) -> String {
    format!(
        "apiVersion: batch/v1
kind: Job
metadata: {{name: {name}, labels: {{kueue.x-k8s.io/queue-name: lq}}, annotations: {{slicegate.dev/run-time: 1h}}}}
spec:
  parallelism: {pods}
  completions: {pods}
  completionMode: Indexed
  backoffLimit: 6
  template:
    metadata: {{annotations: {{{topology}}}}}
    spec:
      restartPolicy: Never
      nodeSelector: {{cloud.google.com/gke-tpu-accelerator: tpu-v5-lite-podslice, cloud.google.com/gke-tpu-topology: 4x4}}
      containers: [{{name: c, image: x, resources: {{limits: {{google.com/tpu: {chips}}}}}}}]
---
"
    )
}

const POOL: &str = "kueue.x-k8s.io/podset-required-topology: cloud.google.com/gke-nodepool";
const ANYWHERE: &str = "kueue.x-k8s.io/podset-unconstrained-topology: 'true'";

fn why<'a>(outcome: &'a Outcome, name: &str) -> &'a str {
    let found = outcome.verdicts.iter().find(|v| &*v.job.name == name);
    found.and_then(|v| v.why.as_deref()).unwrap_or_else(|| panic!("no reason for {name}:\n{}", told(outcome)))
}

#[test]
fn who_finds_no_place_is_told_how_many_fit() {
    let text = pool("a", None)
        + &pool("b", None)
        + PLACED
        + &job("five", 5, 4, POOL)
        + &job("six", 6, 4, ANYWHERE)
        + &job("three", 3, 4, POOL);
    let outcome = run(&text);
    let said = line(&outcome, EntryKind::Waiting, "find no place together");
    assert_eq!(
        said,
        "has quota, but its pods find no place together: topology \"pools\" allows to fit only 4 out of 5 pod(s)"
    );
    let said = line(&outcome, EntryKind::Waiting, "others are where");
    assert!(said.contains("allows to fit only 2 out of 3 pod(s)"), "{}", told(&outcome));
    assert!(finished(&outcome, "six") && finished(&outcome, "three"), "{}", told(&outcome));
    assert_eq!(*verdict(&outcome, "five"), Verdict::NeverAdmitted);
}

#[test]
fn a_pool_without_nodes_is_named_where_places_are_asked_for() {
    let text = pool("a", Some(4)) + PLACED + &job("first", 4, 4, POOL);
    let outcome = run(&text);
    let said = why(&outcome, "first");
    assert!(said.contains("no topology domains at level: cloud.google.com/gke-nodepool"), "{said}");
    assert!(said.contains("node pool(s) a have no nodes yet, and only nodes that exist count"), "{said}");
    // Where there are nodes, or quota is what is missing, there is nothing to say of pools.
    let text = pool("a", None) + PLACED + &job("five", 5, 4, POOL) + &job("twenty", 20, 4, ANYWHERE);
    let outcome = run(&text);
    assert!(!told(&outcome).contains("no nodes yet"), "{}", told(&outcome));
}

#[test]
fn a_pod_that_was_sent_to_a_node_says_why_it_does_not_start_there() {
    // GKE gives the chips of a host to one pod.
    let text = pool("a", None) + PLACED + &job("half", 2, 2, ANYWHERE);
    let outcome = run(&text);
    let said = line(&outcome, EntryKind::Unschedulable, "find no node");
    assert!(said.ends_with("node pool a: a pod must ask for all 4 chips of a node, not 2"), "{said}");
    assert!(why(&outcome, "half").ends_with("a pod must ask for all 4 chips of a node, not 2"));
}

#[test]
fn the_node_that_cannot_be_replaced_is_named() {
    let text = pool("a", None)
        + PLACED
        + &job("w", 4, 4, POOL)
        + &scenario("  events:\n  - {at: 10m, evictNode: {job: Job/w, count: 1, for: 10m}}");
    let outcome = run(&text);
    let said = line(&outcome, EntryKind::Evicted, "cannot be replaced");
    assert!(said.contains("cannot be replaced (gke-a-"), "{said}");
    assert!(seconds(&outcome, EntryKind::Finished, "") > 4_000 && finished(&outcome, "w"), "{}", told(&outcome));
}

#[test]
fn pods_that_make_no_whole_slice_run_after_the_others() {
    let in_twos = format!(
        "{ANYWHERE}, kueue.x-k8s.io/podset-slice-required-topology: cloud.google.com/gke-nodepool, \
         kueue.x-k8s.io/podset-slice-size: '2'"
    );
    let text = pool("a", None) + &pool("b", None) + PLACED + &job("five", 5, 4, &in_twos);
    let outcome = run(&text);
    assert!(finished(&outcome, "five"), "{}", told(&outcome));
    let hours = seconds(&outcome, EntryKind::Finished, "") / 3_600;
    assert_eq!(hours, 2, "four at once, the fifth when one of them is done: {}", told(&outcome));
}

#[test]
fn a_pod_larger_than_every_node_says_so() {
    let node = |name: &str| {
        format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\nstatus: {{allocatable: {{example.com/gpu: 4, pods: 64}}, \
             conditions: [{{type: Ready, status: 'True'}}]}}\n---\n"
        )
    };
    let queue = PLACED
        .replace("google.com/tpu", "example.com/gpu")
        .replace("  topologyName: pools\n", "")
        .replace("nodeLabels: {cloud.google.com/gke-tpu-accelerator: tpu-v5-lite-podslice}", "nodeLabels: {}");
    let whole = job("whole", 1, 8, "").replace("google.com/tpu: 8", "example.com/gpu: 8").replace(
        "nodeSelector: {cloud.google.com/gke-tpu-accelerator: tpu-v5-lite-podslice, cloud.google.com/gke-tpu-topology: 4x4}",
        "nodeSelector: {}",
    );
    let outcome = run(&(node("n1") + &node("n2") + &queue + &whole));
    assert!(why(&outcome, "whole").contains("is too small for the pod"), "{}", why(&outcome, "whole"));
}

#[test]
fn a_ray_job_that_asks_for_too_much_ends_all_the_same() {
    let text = pool("a", None)
        + "name: cpus\ninitialNodeCount: 1\nconfig: {machineType: n2-standard-16}\n---\n"
        + &PLACED.replace("[google.com/tpu]", "[google.com/tpu, cpu, memory]").replace(
            "[{name: google.com/tpu, nominalQuota: 64}]",
            "[{name: google.com/tpu, nominalQuota: 16}, {name: cpu, nominalQuota: 90}, {name: memory, nominalQuota: 90Gi}]",
        )
        .replace("  topologyName: pools\n", "")
        .replace("nodeLabels: {cloud.google.com/gke-tpu-accelerator: tpu-v5-lite-podslice}", "nodeLabels: {}")
        + "apiVersion: ray.io/v1
kind: RayJob
metadata:
  name: ray
  labels: {kueue.x-k8s.io/queue-name: lq}
  annotations: {kueue.x-k8s.io/elastic-job: 'true'}
spec:
  shutdownAfterJobFinishes: true
  entrypoint: train
  rayClusterSpec:
    enableInTreeAutoscaling: true
    headGroupSpec:
      rayStartParams: {}
      template:
        spec:
          containers: [{name: h, image: x, resources: {requests: {cpu: 1, memory: 1Gi}}}]
    workerGroupSpecs:
    - groupName: tpu
      replicas: 1
      minReplicas: 1
      maxReplicas: 2
      numOfHosts: 4
      rayStartParams: {}
      template:
        spec:
          nodeSelector: {cloud.google.com/gke-tpu-accelerator: tpu-v5-lite-podslice, cloud.google.com/gke-tpu-topology: 4x4}
          containers: [{name: w, image: x, resources: {limits: {google.com/tpu: 4, cpu: 1, memory: 1Gi}}}]
---
" + &scenario("  runTime: 20m\n  events:\n  - {at: 6m, scale: {object: RayJob/ray, workerGroup: tpu, replicas: 2}}");
    let outcome = run(&text);
    assert!(finished(&outcome, "ray"), "{}", told(&outcome));
    assert!(outcome.timeline.iter().any(|e| e.text.contains("grows only on the flavor")), "{}", told(&outcome));
}
