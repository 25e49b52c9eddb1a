//! Keys and gates.

use slicegate_workload::{GatePosition, PreemptionGate, Timestamp, WorkloadSpec, WorkloadStatus};

/// The label that holds the unique id of the job.
pub const JOB_UID_LABEL: &str = "kueue.x-k8s.io/job-uid";

/// Gives every gate of the spec a state, closed at first, and drops those that the spec no longer names. Returns whether
/// anything changed.
pub fn sync_preemption_gates(spec: &WorkloadSpec, status: &mut WorkloadStatus, now: Timestamp) -> bool {
    let before = status.preemption_gates.len();
    status.preemption_gates.retain(|g| spec.preemption_gates.contains(&g.name));
    let mut changed = status.preemption_gates.len() != before;
    for name in &spec.preemption_gates {
        if !status.preemption_gates.iter().any(|g| g.name == *name) {
            status.preemption_gates.push(PreemptionGate {
                name: name.clone(),
                position: GatePosition::Closed,
                last_transition: now.truncated(),
            });
            changed = true;
        }
    }
    changed
}
