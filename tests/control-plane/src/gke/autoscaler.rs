//! The autoscaler: pools grow for pods that fit nowhere, and shrink when nothing runs there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::api::{condition, items, text};
use crate::gke::{PoolState, Shared, State};

/// How often it looks around.
const EVERY: Duration = Duration::from_millis(200);
/// For how long after nodes came the scheduler is given time to use them.
const SETTLE: Duration = Duration::from_secs(2);

pub(super) async fn run(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(EVERY).await;
        let (grow, shrink, wait) = {
            let mut state = shared.state();
            let now = Instant::now();
            (to_grow(&mut state, now), to_shrink(&mut state, now), state.settings.provision_time)
        };
        for (pool, count) in grow {
            let shared = shared.clone();
            tokio::spawn(async move {
                tokio::time::sleep(wait).await;
                // Nodes that could not be made are asked for again: their pods are still waiting.
                let _ = shared.grow(&pool, count, &BTreeMap::new()).await;
                if let Some(found) = shared.state().pools.get_mut(&pool) {
                    found.growing = false;
                }
            });
        }
        for pool in shrink {
            let _ = shared.shrink(&pool).await;
        }
    }
}

/// Whether the scheduler found no node for a pod.
fn is_unschedulable(pod: &Value) -> bool {
    text(pod, "/spec/nodeName").is_empty()
        && pod.pointer("/metadata/deletionTimestamp").is_none()
        && condition(pod, "PodScheduled")
            .is_some_and(|c| text(c, "/status") == "False" && text(c, "/reason") == "Unschedulable")
}

/// The uid of what controls a pod, or its own.
fn owner(pod: &Value) -> &str {
    let owners = items(pod, "/metadata/ownerReferences");
    let controller = owners.iter().find(|o| o.get("controller").and_then(Value::as_bool) == Some(true));
    controller.map_or_else(|| text(pod, "/metadata/uid"), |o| text(o, "/uid"))
}

/// Pools to grow now, and by how much. They are marked as growing.
fn to_grow(state: &mut State, now: Instant) -> Vec<(String, u32)> {
    let mut waiting: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for pod in state.pods.values().filter(|p| is_unschedulable(p)) {
        waiting.entry(owner(pod).to_owned()).or_default().push(pod.clone());
    }
    let mut grown = Vec::new();
    for (whose, pods) in waiting {
        let mut left = u32::try_from(pods.len()).unwrap_or(u32::MAX);
        let Some(spec) = pods.first().and_then(|p| p.get("spec")) else { continue };
        for (name, pool) in &mut state.pools {
            if left == 0 {
                break;
            }
            let Some(most) = pool.pool.autoscaled.filter(|_| !pool.pool.queued && pool.pool.suits(spec)) else {
                continue;
            };
            let is_for_them = pool.for_whom.as_deref() == Some(&whose);
            let is_fresh = !pool.nodes.is_empty() && now < pool.idle_since + SETTLE;
            if is_for_them && (pool.growing || is_fresh) {
                left = left.saturating_sub(pool.pool.step().max(1));
                continue;
            }
            let has = u32::try_from(pool.nodes.len()).unwrap_or(u32::MAX);
            let room = most.saturating_sub(has);
            let step = pool.pool.step();
            if pool.growing || is_fresh || room < step {
                continue;
            }
            let more = if step == 1 { left.min(room) } else { step };
            pool.growing = true;
            pool.for_whom = Some(whose.clone());
            left = left.saturating_sub(more);
            grown.push((name.clone(), more));
        }
    }
    grown
}

/// Pools whose nodes go now.
fn to_shrink(state: &mut State, now: Instant) -> Vec<String> {
    let busy: BTreeSet<String> = state
        .pods
        .values()
        .filter(|p| !["Succeeded", "Failed"].contains(&text(p, "/status/phase")))
        .map(|p| text(p, "/spec/nodeName").to_owned())
        .collect();
    let idle = state.settings.idle_time;
    let mut gone = Vec::new();
    for (name, pool) in &mut state.pools {
        if is_busy(pool, &busy) {
            pool.idle_since = now;
        }
        let may = pool.pool.autoscaled.is_some() && !pool.growing && !pool.nodes.is_empty();
        if may && now >= pool.idle_since + idle {
            gone.push(name.clone());
        }
    }
    gone
}

fn is_busy(pool: &PoolState, busy: &BTreeSet<String>) -> bool {
    pool.nodes.iter().any(|n| busy.contains(n))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::gke::Pool;

    fn pod(uid: &str, job: &str) -> Value {
        json!({"metadata": {"uid": uid, "ownerReferences": [{"controller": true, "uid": job}]},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"google.com/tpu": "4"}}}]},
            "status": {"phase": "Pending",
                "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}})
    }

    fn state(pools: &[&str], pods: &[Value]) -> State {
        let mut state = State::default();
        for name in pools {
            let pool = Pool::tpu(name, "ct5lp-hightpu-4t", "2x4").unwrap().from_zero();
            let idle_since = Instant::now();
            let new = PoolState { pool, nodes: BTreeSet::new(), growing: false, for_whom: None, idle_since };
            state.pools.insert((*name).to_owned(), new);
        }
        state.pods = pods.iter().map(|p| (text(p, "/metadata/uid").to_owned(), p.clone())).collect();
        state
    }

    #[test]
    fn every_job_that_waits_gets_a_slice_once() {
        let mut state = state(&["a", "b", "c"], &[pod("1", "x"), pod("2", "y"), pod("3", "y")]);
        let now = Instant::now();
        assert_eq!(to_grow(&mut state, now), [("a".to_owned(), 2), ("b".to_owned(), 2)]);
        assert_eq!(to_grow(&mut state, now), [], "nodes are on their way");
    }

    #[test]
    fn a_pod_that_is_gated_is_not_waited_for() {
        let mut gated = pod("1", "x");
        gated["status"]["conditions"][0]["reason"] = "SchedulingGated".into();
        assert_eq!(to_grow(&mut state(&["a"], &[gated]), Instant::now()), []);
    }

    #[test]
    fn nodes_go_when_nothing_has_run_on_them_for_a_while() {
        let mut running = pod("1", "x");
        running["spec"]["nodeName"] = "a-0".into();
        running["status"]["phase"] = "Running".into();
        let mut state = state(&["a"], &[running]);
        state.pools.get_mut("a").unwrap().nodes = ["a-0".to_owned(), "a-1".to_owned()].into();
        let later = Instant::now() + Duration::from_mins(1);
        assert_eq!(to_shrink(&mut state, later), [] as [String; 0]);
        state.pods.get_mut("1").unwrap()["status"]["phase"] = "Succeeded".into();
        assert_eq!(to_shrink(&mut state, later + Duration::from_secs(1)), [] as [String; 0]);
        assert_eq!(to_shrink(&mut state, later + Duration::from_mins(1)), ["a"]);
    }
}
