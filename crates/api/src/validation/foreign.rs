//! Rules of JobSet, KubeRay and GKE for their own kinds, as far as whoever writes a manifest meets them, and what a Workload can hold
//! of them.

use super::{FindingKind, Findings, names, slice};
use crate::path::Path;
use crate::{Object, jobset, ray};

/// The most pod sets of a Workload.
pub(super) const MAX_POD_SETS: usize = 18;
/// KubeRay puts a suffix behind the name of a RayJob for its cluster, whose services put more behind it.
const LONGEST_RAY_JOB: usize = 47;
/// What KubeRay knows.
const SUBMISSION_MODES: &[&str] = &["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"];
/// The longest DNS label.
const LONGEST_LABEL: usize = 63;

pub(super) fn check(object: &Object, out: &mut Findings) {
    match object {
        Object::JobSet(o) => job_set(o, out),
        Object::RayJob(o) => ray_job(o, out),
        Object::Slice(o) => slice::check(o, out),
        _ => {}
    }
}

fn job_set(job_set: &jobset::JobSet, out: &mut Findings) {
    let path = Path::ROOT.field("spec");
    let path = path.field("replicatedJobs");
    let name = job_set.metadata.name.as_deref().unwrap_or_default();
    let jobs = &job_set.spec.replicated_jobs;
    out.at_most(path, jobs.len(), MAX_POD_SETS);
    for (i, job) in jobs.iter().enumerate() {
        let path = path.index(i);
        let path = path.field("name");
        if let Err(detail) = names::dns_label(&job.name) {
            out.invalid(path, detail);
            continue;
        }
        let last = job.replicas.unwrap_or(1).saturating_sub(1).max(0);
        let child = format!("{name}-{}-{last}", job.name);
        if child.len() > LONGEST_LABEL {
            let detail = format!(
                "makes a Job name of {} characters, {child:?}; at most {LONGEST_LABEL} are allowed: shorten this name or \
                 that of the JobSet",
                child.len()
            );
            out.invalid(path, detail);
            continue;
        }
        let spec = job.template.spec.as_ref();
        let indexed = spec.is_some_and(|s| s.completion_mode.as_deref() != Some("NonIndexed"));
        if let Some(completions) = spec.and_then(|s| s.completions).filter(|_| indexed) {
            // Five random characters follow.
            let pod = format!("{child}-{}-abcde", completions.saturating_sub(1).max(0));
            if pod.len() > LONGEST_LABEL {
                let detail = format!(
                    "makes pod names of {} characters; at most {LONGEST_LABEL} are allowed: shorten this name or that of \
                     the JobSet",
                    pod.len()
                );
                out.invalid(path, detail);
            }
        }
    }
}

fn ray_job(job: &ray::RayJob, out: &mut Findings) {
    let name = job.metadata.name.as_deref().unwrap_or_default();
    if name.len() > LONGEST_RAY_JOB {
        out.add(
            Path::ROOT.field("metadata").field("name"),
            FindingKind::TooLong,
            format!("has {} characters; KubeRay takes at most {LONGEST_RAY_JOB} for a RayJob", name.len()),
        );
    }
    let path = Path::ROOT.field("spec");
    let mode = job.spec.submission_mode.as_deref();
    out.word(path.field("submissionMode"), mode, SUBMISSION_MODES);
    if let Some(cluster) = &job.spec.ray_cluster_spec {
        let submitter = usize::from(matches!(mode, None | Some("" | "K8sJobMode")));
        let groups = cluster.worker_group_specs.len();
        let most = MAX_POD_SETS.saturating_sub(1).saturating_sub(submitter);
        // One more than that is a finding of Kueue's own webhook.
        if groups == MAX_POD_SETS.saturating_sub(1) && groups > most {
            let path = path.field("rayClusterSpec");
            out.at_most(path.field("workerGroupSpecs"), groups, most);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::Kind;
    use crate::validation::{Rules, validate};

    fn paths(kind: Kind, name: &str, spec: &Value) -> Vec<String> {
        let object = kind.read(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
        validate(&object, &Rules::default()).into_iter().map(|finding| finding.path).collect()
    }

    fn replicated(name: &str, replicas: i32, completions: i32) -> Value {
        json!({"name": name, "replicas": replicas, "template": {"spec": {"completionMode": "Indexed",
            "parallelism": completions, "completions": completions, "template": {"spec": {"containers": []}}}}})
    }

    #[test]
    fn a_jobset_has_no_more_groups_than_a_workload_has_pod_sets() {
        let groups =
            |n: usize| -> Value { (0..n).map(|i| replicated(&format!("w{i}"), 1, 1)).collect::<Vec<_>>().into() };
        assert!(paths(Kind::JobSet, "a", &json!({"replicatedJobs": groups(18)})).is_empty());
        assert_eq!(paths(Kind::JobSet, "a", &json!({"replicatedJobs": groups(19)})), ["spec.replicatedJobs"]);
    }

    #[test]
    fn names_of_jobs_and_pods_fit() {
        let spec = |replicas, completions| json!({"replicatedJobs": [replicated("slice", replicas, completions)]});
        let field = ["spec.replicatedJobs[0].name"];
        // 47 + "-slice-0" + "-0-abcde" are 63.
        assert!(paths(Kind::JobSet, &"a".repeat(47), &spec(1, 1)).is_empty());
        assert_eq!(paths(Kind::JobSet, &"a".repeat(47), &spec(1, 11)), field, "the index of a pod has two digits");
        assert_eq!(paths(Kind::JobSet, &"a".repeat(47), &spec(11, 1)), field, "the index of a Job has two digits");
        assert_eq!(paths(Kind::JobSet, &"a".repeat(60), &spec(1, 1)), field);
        assert_eq!(
            paths(Kind::JobSet, "a", &json!({"replicatedJobs": [replicated("Slice.1", 1, 1)]})),
            field,
            "a name of a group is a DNS label"
        );
    }

    #[test]
    fn a_jobset_that_says_next_to_nothing_is_looked_at_in_peace() {
        assert!(paths(Kind::JobSet, "a", &json!({})).is_empty());
        let jobs = json!([{"name": "driver", "template": {"spec": {"completionMode": "Indexed", "template": {}}}},
            {"name": "worker", "dependsOn": [], "template": {}}]);
        assert!(paths(Kind::JobSet, "a", &json!({"replicatedJobs": jobs, "coordinator": {}})).is_empty());
    }

    #[test]
    fn kuberay_takes_short_names_and_known_modes() {
        let spec = |mode: &str| json!({"submissionMode": mode, "shutdownAfterJobFinishes": true});
        assert!(paths(Kind::RayJob, &"a".repeat(47), &spec("HTTPMode")).is_empty());
        assert_eq!(paths(Kind::RayJob, &"a".repeat(48), &spec("HTTPMode")), ["metadata.name"]);
        assert_eq!(paths(Kind::RayJob, "a", &spec("K8sJob")), ["spec.submissionMode"]);
    }

    #[test]
    fn the_submitter_is_a_pod_set_too() {
        let groups = |n: usize| -> Vec<Value> {
            (0..n).map(|i| json!({"groupName": format!("g{i}"), "template": {"spec": {"containers": []}}})).collect()
        };
        let spec = |mode: &str, n| json!({"submissionMode": mode, "rayClusterSpec": {"workerGroupSpecs": groups(n)}});
        let field = ["spec.rayClusterSpec.workerGroupSpecs"];
        assert!(paths(Kind::RayJob, "a", &spec("K8sJobMode", 16)).is_empty());
        assert_eq!(paths(Kind::RayJob, "a", &spec("K8sJobMode", 17)), field);
        assert!(paths(Kind::RayJob, "a", &spec("HTTPMode", 17)).is_empty());
    }
}
