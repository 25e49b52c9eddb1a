//! The life cycle of one workload: conditions, checks, back-off, time limits.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use slicegate_admission::lifecycle::{
    At, assigned_nodes, eviction_pending_latency, execution_seconds, latest_retry, needs_second_pass,
    pods_ready_timeout, priority_changed, requests_topology, required_checks, set_quota_reservation, set_requeue_state,
    sync_admitted, sync_checks,
};
use slicegate_admission::{Gates, WaitForPodsReady};
use slicegate_tests::objects;
use slicegate_workload::{Condition, Timestamp, Workload, WorkloadStatus};

use crate::report::{Outcome, Report, expect_eq};

type Result<T = ()> = std::result::Result<T, String>;
type Suite = (&'static str, fn(&Value) -> Result);

/// Runs the suites of the folder `checks` that are about one workload alone.
pub(crate) fn run(corpus: &Path, kind: &str, report: &mut Report) {
    let suites: [Suite; 15] = [
        ("sync-admitted-condition", admitted_condition),
        ("sync-admission-checks", admission_checks),
        ("set-quota-reservation", quota_reservation),
        ("set-requeue-state", requeue_state),
        ("checks-for-workload", checks_for_workload),
        ("needs-second-pass", second_pass),
        ("max-retry-time", retry_time),
        ("total-execution-time", execution_time),
        ("priority-changed", priority),
        ("pods-ready-timeout", pods_ready),
        ("is-on-hold", on_hold),
        ("sync-check-states", check_states),
        ("eviction-pending-latency", latency),
        ("tas-assigned-nodes", nodes),
        ("explicitly-requests-tas", topology_requested),
    ];
    for (suite, run) in suites {
        report.suite(corpus, kind, suite, |case| {
            if case["expect"]["accumulatedPastExecutionTimeSeconds"] == i32::MIN {
                return Outcome::Differs("a time that is too long counts as very long, not as negative".into());
            }
            run(case).into()
        });
    }
}

fn workload(value: &Value) -> Result<Workload> {
    objects::workload(value).map_err(|e| e.to_string())
}

fn time(value: &Value) -> Result<Timestamp> {
    objects::timestamp(value).map_err(|e| e.to_string())
}

fn sorted(status: &WorkloadStatus) -> Vec<Condition> {
    let mut conditions: Vec<Condition> = status.conditions.iter().cloned().collect();
    conditions.sort_by(|a, b| a.kind.as_str().cmp(b.kind.as_str()));
    conditions
}

fn gates(case: &Value) -> Result<Gates> {
    let mut gates = Gates::default();
    for (gate, on) in case["config"]["featureGates"].as_object().into_iter().flatten() {
        gates.set(gate, on == true).map_err(|e| e.to_string())?;
    }
    Ok(gates)
}

fn admitted_condition(case: &Value) -> Result {
    let mut workload = workload(&case["workload"])?;
    let at = At { now: time(&case["config"]["now"])?, generation: workload.generation };
    let changed = sync_admitted(&mut workload.status, at, &gates(case)?);
    let expect = &case["expect"];
    expect_eq("changed", &changed, &(expect["changed"] == true))?;
    let want = objects::conditions(&expect["conditions"]).map_err(|e| e.to_string())?;
    let want = WorkloadStatus { conditions: want, ..WorkloadStatus::default() };
    expect_eq("conditions", &sorted(&workload.status), &sorted(&want))?;
    let seconds = expect["accumulatedPastExecutionTimeSeconds"].as_i64();
    expect_eq("seconds", &workload.status.accumulated_past_execution_time_seconds.map(i64::from), &seconds)
}

fn nodes(case: &Value) -> Result {
    let workload = workload(&case["workload"])?;
    let got: BTreeSet<Box<str>> = assigned_nodes(&workload).into_iter().map(Into::into).collect();
    expect_eq("nodes", &got, &names(&case["expect"]["nodes"]))
}

fn topology_requested(case: &Value) -> Result {
    let object = serde_json::json!({ "kind": "Workload", "spec": { "podSets": case["podSets"] } });
    let got = requests_topology(&workload(&object)?.spec.pod_sets);
    expect_eq("requested", &got, &(case["expect"]["requested"] == true))
}

fn names(value: &Value) -> BTreeSet<Box<str>> {
    value.as_array().into_iter().flatten().filter_map(|n| n.as_str().map(Into::into)).collect()
}

/// Checks with their states, of a list as it stands in a status.
fn states(value: &Value) -> Result<Vec<slicegate_workload::CheckStatus>> {
    let object = serde_json::json!({ "kind": "Workload", "status": { "admissionChecks": value } });
    Ok(workload(&object)?.status.admission_checks)
}

fn admission_checks(case: &Value) -> Result {
    let workload = workload(&case["workload"])?;
    let queue = objects::cluster_queue(&case["clusterQueue"]).map_err(|e| e.to_string())?;
    let mut got = workload.status.admission_checks.clone();
    let required = required_checks(&queue, workload.status.admission.as_ref());
    sync_checks(&mut got, &required, Timestamp::MIN);
    let mut want = states(&case["expect"]["admissionChecks"])?;
    for state in got.iter_mut().chain(&mut want) {
        state.last_transition = Timestamp::MIN;
    }
    want.sort_by(|a, b| a.name.cmp(&b.name));
    expect_eq("checks", &got, &want)
}

fn quota_reservation(case: &Value) -> Result {
    let mut workload = workload(&case["workload"])?;
    let at = At { now: time(&case["config"]["now"])?, generation: workload.generation };
    let admission = objects::admission(&case["admission"]).map_err(|e| e.to_string())?;
    set_quota_reservation(&mut workload.status, admission, at);
    let object = serde_json::json!({ "kind": "Workload", "status": case["expect"]["status"] });
    let want = self::workload(&object)?.status;
    expect_eq("conditions", &sorted(&workload.status), &sorted(&want))?;
    expect_eq("admission", &workload.status.admission, &want.admission)
}

fn requeue_state(case: &Value) -> Result {
    let mut workload = workload(&case["workload"])?;
    let until = time(&case["waitUntil"])?;
    let updated = set_requeue_state(&mut workload.status, until, case["incrementCount"] == true);
    expect_eq("updated", &updated, &(case["expect"]["updated"] == true))?;
    let object =
        serde_json::json!({ "kind": "Workload", "status": { "requeueState": case["expect"]["requeueState"] } });
    expect_eq("state", &workload.status.requeue_state, &self::workload(&object)?.status.requeue_state)
}

fn checks_for_workload(case: &Value) -> Result {
    let workload = workload(&case["workload"])?;
    let queue = objects::cluster_queue(&case["clusterQueue"]).map_err(|e| e.to_string())?;
    let got = required_checks(&queue, workload.status.admission.as_ref());
    expect_eq("checks", &got, &names(&case["expect"]["admissionChecks"]))
}

fn second_pass(case: &Value) -> Result {
    let needs = needs_second_pass(&workload(&case["workload"])?);
    expect_eq("needs a second pass", &needs, &(case["expect"]["needsSecondPass"] == true))
}

fn retry_time(case: &Value) -> Result {
    let got = latest_retry(&workload(&case["workload"])?.status);
    let want = &case["expect"]["retryTime"];
    expect_eq("time", &got, &if want.is_null() { None } else { Some(time(want)?) })
}

fn execution_time(case: &Value) -> Result {
    let got = execution_seconds(&workload(&case["workload"])?.status);
    expect_eq("seconds", &got, &case["expect"]["seconds"].as_i64())
}

fn priority(case: &Value) -> Result {
    let (old, new) = (workload(&case["oldWorkload"])?, workload(&case["newWorkload"])?);
    let facts = |w: &Workload| (w.spec.priority_class.clone(), w.effective_priority(true));
    let ((old_class, old), (new_class, new)) = (facts(&old), facts(&new));
    let got = priority_changed((&old_class, old), (&new_class, new));
    expect_eq("changed", &got, &(case["expect"]["changed"] == true))
}

fn pods_ready(case: &Value) -> Result {
    let config = &case["config"]["waitForPodsReady"];
    let config = config.is_object().then(|| WaitForPodsReady {
        timeout_seconds: config["timeoutSeconds"].as_i64().unwrap_or(0),
        recovery_timeout_seconds: config["recoveryTimeoutSeconds"].as_i64(),
        ..WaitForPodsReady::default()
    });
    let now = time(&case["config"]["now"])?;
    let got = pods_ready_timeout(&workload(&case["workload"])?, config.as_ref());
    let cause = got.map_or("", |(cause, _)| cause.as_str());
    expect_eq("cause", &cause, &case["expect"]["cause"].as_str().unwrap_or_default())?;
    let seconds = got.map_or(0, |(_, until)| (until.micros_since(now) / 1_000_000).max(0));
    expect_eq("seconds", &Some(seconds), &case["expect"]["recheckAfterSeconds"].as_i64())
}

fn on_hold(case: &Value) -> Result {
    let got = workload(&case["workload"])?.is_on_hold();
    expect_eq("on hold", &got, &(case["expect"]["onHold"] == true))
}

fn check_states(case: &Value) -> Result {
    let mut got = states(&case["states"])?;
    let changed = sync_checks(&mut got, &names(&case["list"]), time(&case["config"]["now"])?);
    expect_eq("changed", &changed, &(case["expect"]["changed"] == true))?;
    expect_eq("states", &got, &states(&case["expect"]["states"])?)
}

fn latency(case: &Value) -> Result {
    let new = workload(&case["newWorkload"])?;
    let got = match &case["oldWorkload"] {
        Value::Null => None,
        old => eviction_pending_latency(&workload(old)?, &new, time(&case["now"])?),
    };
    let expect = &case["expect"];
    let field = |name: &str| -> Box<str> { expect[name].as_str().unwrap_or_default().into() };
    let want = (expect["ok"] == true)
        .then(|| (field("clusterQueue"), field("reason"), expect["latencySeconds"].as_i64().unwrap_or(0)));
    expect_eq("latency", &got, &want)
}
