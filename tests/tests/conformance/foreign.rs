//! Suites about what Slicegate leaves out.

use std::path::Path;

use crate::report::{Report, suites};

/// What suites whose names begin so are about.
const LEFT_OUT: [(&str, &str, &str); 14] = [
    ("jobs", "pod-is-active", "pods and pod groups as jobs"),
    ("jobs", "pod-pods-ready", "pods and pod groups as jobs"),
    ("jobs", "pod-podsets", "pods and pod groups as jobs"),
    ("jobs", "pod-reconcile", "pods and pod groups as jobs"),
    ("checks", "workload-reconcile-dra", "dynamic resource allocation"),
    ("validation", "deployment-", "Deployments"),
    ("validation", "leaderworkerset-", "LeaderWorkerSets"),
    ("validation", "mpijob-", "MPIJobs"),
    ("validation", "pod-create", "pods and pod groups as jobs"),
    ("validation", "pod-default", "pods and pod groups as jobs"),
    ("validation", "pod-role-hash", "pods and pod groups as jobs"),
    ("validation", "pod-update", "pods and pod groups as jobs"),
    ("validation", "rayservice-", "RayServices"),
    ("validation", "statefulset-", "StatefulSets"),
];

/// Counts them, so that none is dropped in silence.
pub(crate) fn run(corpus: &Path, kind: &str, report: &mut Report) {
    for suite in suites(corpus, kind) {
        let about = LEFT_OUT.iter().find(|(of, begins, _)| *of == kind && suite.starts_with(begins));
        if let Some((_, _, what)) = about {
            report.leave_out(corpus, kind, &suite, what);
        }
    }
}
