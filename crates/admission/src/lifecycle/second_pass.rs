//! Workloads that the scheduler must look at again although they hold quota.

use slicegate_workload::{CheckState, ConditionType, Workload};

/// Whether the workload waits for a place after its checks passed, or lost a node that must be replaced.
pub fn needs_second_pass(workload: &Workload) -> bool {
    let status = &workload.status;
    if !workload.has_active_quota_reservation()
        || status.conditions.is_true(&ConditionType::Evicted)
        || workload.is_on_hold()
    {
        return false;
    }
    let Some(admission) = &status.admission else { return false };
    let admitted = status.conditions.is_true(&ConditionType::Admitted);
    let waits_for_place = !admitted
        && !status.admission_checks.is_empty()
        && status.admission_checks.iter().all(|c| c.state == CheckState::Ready)
        && admission
            .pod_set_assignments
            .iter()
            .any(|p| p.topology_assignment.is_none() && p.delayed_topology_pending == Some(true));
    let lost_node = admitted
        && admission
            .pod_set_assignments
            .iter()
            .filter_map(|p| p.topology_assignment.as_ref())
            .any(|t| t.domains.iter().any(|d| d.values.last().is_some_and(|v| status.unhealthy_nodes.contains(v))));
    waits_for_place || lost_node
}
