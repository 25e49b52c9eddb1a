//! How many pods a job may ask for: what the API server and JobSet's webhook say.

use super::Findings;
use crate::path::Path;
use crate::{JobSpec, Object, jobset};

pub(super) fn check(object: &Object, out: &mut Findings) {
    let spec = Path::ROOT.field("spec");
    match object {
        Object::Job(o) => {
            if let Some(job) = &o.spec {
                job_spec(spec, job, out);
            }
        }
        Object::JobSet(o) => {
            let path = spec.field("replicatedJobs");
            for (i, replicated) in o.spec.replicated_jobs.iter().enumerate() {
                replicated_job(path.index(i), replicated, out);
            }
        }
        _ => {}
    }
}

fn not_negative(path: Path<'_>, number: Option<i32>, out: &mut Findings) {
    if number.is_some_and(|n| n < 0) {
        out.invalid(path, "must be 0 or more");
    }
}

fn job_spec(path: Path<'_>, job: &JobSpec, out: &mut Findings) {
    not_negative(path.field("parallelism"), job.parallelism, out);
    not_negative(path.field("completions"), job.completions, out);
    not_negative(path.field("backoffLimit"), job.backoff_limit, out);
}

fn replicated_job(path: Path<'_>, replicated: &jobset::ReplicatedJob, out: &mut Findings) {
    not_negative(path.field("replicas"), replicated.replicas, out);
    let Some(job) = &replicated.template.spec else { return };
    job_spec(path.field("template").field("spec"), job, out);
    let (jobs, pods) = (replicated.replicas.unwrap_or(1), job.parallelism.unwrap_or(1));
    if i64::from(jobs) * i64::from(pods) > i64::from(i32::MAX) {
        out.invalid(path.field("replicas"), format!("{jobs} Jobs of {pods} pods are more than {} pods", i32::MAX));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::Kind;
    use crate::validation::{Rules, validate};

    fn paths(kind: Kind, spec: &Value) -> Vec<String> {
        let object = kind.read(json!({"metadata": {"name": "a"}, "spec": spec})).unwrap();
        validate(&object, &Rules::default()).into_iter().map(|finding| finding.path).collect()
    }

    fn replicated(replicas: i64, parallelism: i64) -> Value {
        let pod = json!({"spec": {"containers": []}});
        let job = json!({"spec": {"parallelism": parallelism, "template": pod}});
        json!({"replicatedJobs": [{"name": "w", "replicas": replicas, "template": job}]})
    }

    #[test]
    fn counts_are_not_negative() {
        assert_eq!(paths(Kind::JobSet, &replicated(-1, 2)), ["spec.replicatedJobs[0].replicas"]);
        let pods = "spec.replicatedJobs[0].template.spec.parallelism";
        assert_eq!(paths(Kind::JobSet, &replicated(2, -1)), [pods]);
        assert!(paths(Kind::JobSet, &replicated(0, 0)).is_empty());
        let job =
            json!({"parallelism": -1, "completions": -2, "backoffLimit": -3, "template": {"spec": {"containers": []}}});
        assert_eq!(paths(Kind::Job, &job), ["spec.parallelism", "spec.completions", "spec.backoffLimit"]);
    }

    #[test]
    fn a_replicated_job_has_no_more_pods_than_can_be_counted() {
        assert!(paths(Kind::JobSet, &replicated(1_073_741_823, 2)).is_empty());
        assert_eq!(paths(Kind::JobSet, &replicated(1_073_741_824, 2)), ["spec.replicatedJobs[0].replicas"]);
    }
}
