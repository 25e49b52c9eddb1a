//! What GKE's webhook for dynamic slicing adds to jobs that queue: on which level their slices lie together, and that broken
//! partitions are no place for them.
//!
//! It looks at JobSets and Jobs whose pods ask for the shape of a slice (`cloud.google.com/gke-tpu-slice-topology`), in a
//! cluster that has cubes. What the author wrote about topology stays.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm};
use slicegate_api::{JobSpec, Object, PodSpec};
use slicegate_tpu::{MachineType, SuperSlice, Topology, label};

use super::slice_check::asked_topology;
use super::slices::health::{DEGRADED, HEALTHY};
use crate::defaults::{self, QUEUE_NAME, TPU};
use crate::world::World;

const REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";
const PREFERRED: &str = "kueue.x-k8s.io/podset-preferred-topology";
const UNCONSTRAINED: &str = "kueue.x-k8s.io/podset-unconstrained-topology";
const SLICE_REQUIRED: &str = "kueue.x-k8s.io/podset-slice-required-topology";
const SLICE_SIZE: &str = "kueue.x-k8s.io/podset-slice-size";

impl World {
    /// Completes a job that is about to be made.
    pub(crate) fn complete_for_slices(&self, object: &mut Object) {
        let queued = defaults::label(object.metadata(), QUEUE_NAME).is_some_and(|queue| !queue.is_empty());
        if !queued || !self.nodes.pools.iter().any(super::pool::Pool::is_cube) {
            return;
        }
        match object {
            Object::JobSet(jobset) => {
                for group in &mut Arc::make_mut(jobset).spec.replicated_jobs {
                    if let Some(spec) = &mut group.template.spec {
                        complete_job(spec);
                    }
                }
            }
            Object::Job(job) => {
                if let Some(spec) = &mut Arc::make_mut(job).spec {
                    complete_job(spec);
                }
            }
            _ => {}
        }
    }
}

/// Whether the pods use whole hosts of cubes.
fn uses_whole_hosts(pod: &PodSpec) -> bool {
    let accelerator = pod.node_selector.as_ref().and_then(|selector| selector.get(label::ACCELERATOR));
    let machine = MachineType::Tpu7xStandard4t;
    let chips = super::shape::pod_spec(pod).requests().get(TPU).map_or(0, |chips| chips.value());
    accelerator.is_some_and(|own| own == machine.accelerator().label()) && chips == i64::from(machine.chips())
}

fn complete_job(job: &mut JobSpec) {
    let asked = asked_topology(job.template.metadata.as_ref()).and_then(|text| text.parse::<Topology>().ok());
    let Some((shape, count)) = asked.and_then(|topology| SuperSlice::partitions_of(topology).ok()) else { return };
    let (Some(id), Some(state)) = (label::partition_id(shape), label::partition_state(shape)) else { return };
    let pods = u32::try_from(job.parallelism.unwrap_or(1)).unwrap_or(0);
    let size = pods / count;
    if size == 0 || !job.template.spec.as_ref().is_some_and(uses_whole_hosts) {
        return;
    }
    let annotations = job.template.metadata.get_or_insert_default().annotations.get_or_insert_default();
    if ![REQUIRED, PREFERRED, UNCONSTRAINED].iter().any(|key| annotations.contains_key(*key)) {
        annotations.insert(REQUIRED.to_owned(), label::TOPOLOGY_BLOCK.to_owned());
    }
    if !annotations.contains_key(SLICE_REQUIRED) {
        annotations.insert(SLICE_REQUIRED.to_owned(), id.to_owned());
        annotations.insert(SLICE_SIZE.to_owned(), size.to_string());
    }
    if let Some(pod) = &mut job.template.spec {
        avoid_broken(pod, state);
    }
}

/// Keeps pods off nodes whose partition is not healthy.
fn avoid_broken(pod: &mut PodSpec, state: &str) {
    let affinity = pod.affinity.get_or_insert_default().node_affinity.get_or_insert_default();
    let terms =
        &mut affinity.required_during_scheduling_ignored_during_execution.get_or_insert_default().node_selector_terms;
    if terms.is_empty() {
        terms.push(NodeSelectorTerm::default());
    }
    for term in terms {
        let all = term.match_expressions.get_or_insert_default();
        if !all.iter().any(|expression| expression.key == state) {
            all.push(NodeSelectorRequirement {
                key: state.to_owned(),
                operator: "In".to_owned(),
                values: Some(vec![HEALTHY.to_owned(), DEGRADED.to_owned()]),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn completed(parallelism: i32, asked: Option<&str>, more: &Value, chips: &str) -> Value {
        let mut annotations = more.clone();
        if let Some(asked) = asked {
            annotations["cloud.google.com/gke-tpu-slice-topology"] = asked.into();
        }
        let mut job: JobSpec = serde_json::from_value(json!({
            "parallelism": parallelism,
            "template": {"metadata": {"annotations": annotations}, "spec": {
                "nodeSelector": {"cloud.google.com/gke-tpu-accelerator": "tpu7x"},
                "containers": [{"name": "c", "resources": {"limits": {"google.com/tpu": chips}}}]
            }}
        }))
        .unwrap();
        complete_job(&mut job);
        serde_json::to_value(&job.template).unwrap()
    }

    #[test]
    fn slices_lie_together_where_their_partitions_are() {
        for (topology, pods, level, size) in [
            ("4x4x8", 32, "4x4x4", "16"),
            ("4x4x4", 16, "4x4x4", "16"),
            ("2x4x4", 8, "2x4x4", "8"),
            ("2x2x1", 1, "2x2x1", "1"),
        ] {
            let template = completed(pods, Some(topology), &json!({}), "4");
            let annotations = &template["metadata"]["annotations"];
            assert_eq!(annotations[REQUIRED], "cloud.google.com/gce-topology-block", "{topology}");
            assert_eq!(annotations[SLICE_REQUIRED], format!("cloud.google.com/gke-tpu-partition-{level}-id"));
            assert_eq!(annotations[SLICE_SIZE], size, "{topology}");
            let terms = &template["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
            assert_eq!(
                terms["nodeSelectorTerms"][0]["matchExpressions"][0],
                json!({"key": format!("cloud.google.com/gke-tpu-partition-{level}-state"), "operator": "In",
                       "values": ["HEALTHY", "DEGRADED"]})
            );
        }
    }

    #[test]
    fn what_the_author_wrote_stays_and_others_are_left_alone() {
        let own = json!({REQUIRED: "rack", SLICE_REQUIRED: "host", SLICE_SIZE: "2"});
        let template = completed(16, Some("4x4x4"), &own, "4");
        let annotations = &template["metadata"]["annotations"];
        assert_eq!((&annotations[REQUIRED], &annotations[SLICE_SIZE]), (&json!("rack"), &json!("2")));
        for (asked, chips) in [(None, "4"), (Some("8x4x4"), "4"), (Some("4x4x4"), "1")] {
            let template = completed(16, asked, &json!({}), chips);
            assert!(template["metadata"]["annotations"].get(REQUIRED).is_none(), "{asked:?} {chips}");
            assert!(template["spec"].get("affinity").is_none());
        }
    }
}
