//! How the nodes of a workload fare.

use slicegate_api::{Node, Toleration, convert};
use slicegate_workload::{Timestamp, first_untolerated};

/// After how many seconds a node that is not ready counts as failed, whatever runs on it, where that is switched on.
const NOT_READY_SECONDS: i64 = 30;

/// What a node means to a workload whose pods are placed on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Health {
    /// All is well.
    Healthy,
    /// Its pods must go elsewhere.
    Failed,
    /// New pods could not start on it, but pods run there, or may run.
    Uncertain,
    /// It counts as failed at this time.
    FailsAt(Timestamp),
}

/// Which failures count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rules {
    /// A node that is not ready has failed once no pod of the workload is left on it (gate
    /// `TASReplaceNodeOnPodTermination`).
    pub(crate) on_pod_termination: bool,
    /// So has one with a taint that the pods do not tolerate (gate `TASReplaceNodeOnNodeTaints`).
    pub(crate) on_taints: bool,
    /// A node that is not ready for 30 seconds has failed (gate `TASReplaceNodeDueToNotReadyOverFixedTime`).
    pub(crate) after_fixed_time: bool,
}

/// How a node fares. `tolerations` are those of all pods that are placed on it; `running` tells whether a pod of the workload
/// runs there and is not about to go.
pub(crate) fn health(
    node: Option<&Node>,
    tolerations: impl Fn() -> Vec<Toleration>,
    running: impl Fn() -> bool,
    rules: Rules,
    now: Timestamp,
) -> Health {
    let Some(node) = node else { return Health::Failed };
    match convert::node_ready(node) {
        None => Health::Failed,
        Some(true) => {
            if !rules.on_taints || !is_repelling(node, tolerations) {
                Health::Healthy
            } else if running() {
                Health::Uncertain
            } else {
                Health::Failed
            }
        }
        Some(false) => {
            if rules.on_pod_termination && !running() {
                return Health::Failed;
            }
            if !rules.after_fixed_time {
                return Health::Uncertain;
            }
            let due = not_ready_since(node).map_or(now, |since| since.plus_seconds(NOT_READY_SECONDS));
            if due <= now { Health::Failed } else { Health::FailsAt(due) }
        }
    }
}

fn not_ready_since(node: &Node) -> Option<Timestamp> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|c| c.type_ == "Ready")?;
    ready.last_transition_time.as_ref().map(convert::timestamp)
}

/// Whether a taint of the node keeps pods with these tolerations away. What cannot be read keeps nobody away.
fn is_repelling(node: &Node, tolerations: impl Fn() -> Vec<Toleration>) -> bool {
    let taints = node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default();
    if taints.is_empty() {
        return false;
    }
    let taints: Vec<_> = taints.iter().filter_map(|t| convert::taint(t).ok()).collect();
    let tolerations: Vec<_> = tolerations().iter().filter_map(|t| convert::toleration(t).ok()).collect();
    first_untolerated(&taints, &[&tolerations]).is_some()
}

/// Whether two states of a node are the same to placement and to the workloads on it.
pub(crate) fn same(a: &Node, b: &Node) -> bool {
    let allocatable = |n: &Node| n.status.as_ref().and_then(|s| s.allocatable.clone());
    let leaving = |n: &Node| n.metadata.deletion_timestamp.is_some();
    convert::node_ready(a) == convert::node_ready(b)
        && a.metadata.labels == b.metadata.labels
        && leaving(a) == leaving(b)
        && a.spec == b.spec
        && allocatable(a) == allocatable(b)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ALL: Rules = Rules { on_pod_termination: true, on_taints: true, after_fixed_time: false };

    fn node(ready: &str, taints: &Value) -> Node {
        serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": {"taints": taints},
            "status": {"conditions": [{"type": "Ready", "status": ready,
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}))
        .unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(1_767_225_600 + seconds)
    }

    fn of(node: Option<&Node>, running: bool, rules: Rules) -> Health {
        health(node, Vec::new, || running, rules, at(10))
    }

    #[test]
    fn a_node_that_is_gone_or_unknown_has_failed_at_once() {
        assert_eq!(of(None, true, ALL), Health::Failed);
        let silent: Node = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
        assert_eq!(of(Some(&silent), true, ALL), Health::Failed);
    }

    #[test]
    fn a_node_that_is_not_ready_has_failed_once_its_pods_are_gone() {
        for status in ["False", "Unknown"] {
            let node = node(status, &json!([]));
            assert_eq!(of(Some(&node), true, ALL), Health::Uncertain);
            assert_eq!(of(Some(&node), false, ALL), Health::Failed);
            assert_eq!(of(Some(&node), false, Rules { on_pod_termination: false, ..ALL }), Health::Uncertain);
        }
        assert_eq!(of(Some(&node("True", &json!([]))), false, ALL), Health::Healthy);
    }

    #[test]
    fn a_fixed_time_may_count_too() {
        let node = node("False", &json!([]));
        let rules = Rules { after_fixed_time: true, ..ALL };
        assert_eq!(of(Some(&node), true, rules), Health::FailsAt(at(30)));
        assert_eq!(health(Some(&node), Vec::new, || true, rules, at(30)), Health::Failed);
    }

    #[test]
    fn a_taint_counts_unless_it_is_tolerated() {
        let taint = json!([{"key": "broken", "effect": "NoExecute"}]);
        let tainted = node("True", &taint);
        assert_eq!(of(Some(&tainted), false, ALL), Health::Failed);
        assert_eq!(of(Some(&tainted), true, ALL), Health::Uncertain);
        assert_eq!(of(Some(&tainted), false, Rules { on_taints: false, ..ALL }), Health::Healthy);
        let tolerated = Toleration { operator: Some("Exists".to_owned()), ..Toleration::default() };
        assert_eq!(health(Some(&tainted), || vec![tolerated.clone()], || false, ALL, at(10)), Health::Healthy);
        let soft = node("True", &json!([{"key": "k", "effect": "PreferNoSchedule"}]));
        assert_eq!(of(Some(&soft), false, ALL), Health::Healthy);
    }

    #[test]
    fn a_sign_of_life_is_no_change() {
        let mut later = node("True", &json!([]));
        let conditions = later.status.as_mut().and_then(|s| s.conditions.as_mut()).unwrap();
        conditions[0].last_heartbeat_time = conditions[0].last_transition_time.clone();
        assert!(same(&node("True", &json!([])), &later));
        assert!(!same(&node("False", &json!([])), &later));
        assert!(!same(&node("True", &json!([{"key": "k", "effect": "NoSchedule"}])), &later));
    }
}
