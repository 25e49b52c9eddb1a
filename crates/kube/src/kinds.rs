//! Which kinds are watched.

use std::collections::BTreeSet;

use slicegate_api::Kind;
use slicegate_controller::jobs;

/// Kinds that always matter.
const ALWAYS: [Kind; 12] = [
    Kind::AdmissionCheck,
    Kind::ClusterQueue,
    Kind::Cohort,
    Kind::LimitRange,
    Kind::LocalQueue,
    Kind::Namespace,
    Kind::PriorityClass,
    Kind::ResourceFlavor,
    Kind::RuntimeClass,
    Kind::Topology,
    Kind::Workload,
    Kind::WorkloadPriorityClass,
];

/// The kinds that matter: those that always do, the jobs that are managed, and what became of interest by what was seen.
pub(crate) fn needed(frameworks: &BTreeSet<Kind>, wanted: &BTreeSet<Kind>) -> BTreeSet<Kind> {
    let jobs = frameworks.iter().filter(|kind| jobs::KINDS.contains(kind));
    // The workers of a RayJob are counted in its cluster.
    let clusters = frameworks.contains(&Kind::RayJob).then_some(&Kind::RayCluster);
    // A JobSet that was stopped starts again when its Jobs have stopped.
    let parts = frameworks.contains(&Kind::JobSet).then_some(&Kind::Job);
    ALWAYS.iter().chain(jobs).chain(clusters).chain(parts).chain(wanted).copied().collect()
}

/// Whether a kind is listed only when another has been: jobs after Workloads, so that no Workload is known before its job.
pub(crate) fn waits_for(kind: Kind) -> Option<Kind> {
    jobs::KINDS.contains(&kind).then_some(Kind::Workload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_watched_if_they_are_managed() {
        let kinds = |kind| needed(&BTreeSet::from([kind]), &BTreeSet::new());
        assert!(kinds(Kind::Job).contains(&Kind::Job) && !kinds(Kind::Job).contains(&Kind::JobSet));
        assert!(kinds(Kind::JobSet).contains(&Kind::JobSet) && !kinds(Kind::JobSet).contains(&Kind::Pod));
        assert!(kinds(Kind::JobSet).contains(&Kind::Job), "the Jobs of a JobSet");
        assert!(kinds(Kind::RayJob).contains(&Kind::RayCluster), "the cluster of a RayJob");
        let frameworks = BTreeSet::from([Kind::JobSet]);
        assert!(needed(&frameworks, &BTreeSet::from([Kind::Pod])).contains(&Kind::Pod));
        assert_eq!(waits_for(Kind::JobSet), Some(Kind::Workload));
        assert_eq!(waits_for(Kind::Workload), None);
    }
}
