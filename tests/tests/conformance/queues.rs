//! What queues report: whether they are active, and what is used.

use std::path::Path;

use serde_json::Value;
use slicegate_admission::{AdmissionFairSharing, CheckSpec, Config, Engine, FlavorUsage};
use slicegate_quota::{Amount, Quantity};
use slicegate_tests::objects;
use slicegate_workload::{ClusterQueueSpec, Key, ResourceList, Timestamp};

use crate::cycle::check;
use crate::report::{Outcome, Report, expect_eq};

type Result<T = ()> = std::result::Result<T, String>;

/// Runs the suites of the folder `quota` that need the engine.
pub(crate) fn run(corpus: &Path, kind: &str, report: &mut Report) {
    report.suite(corpus, kind, "clusterqueue-readiness", readiness);
    report.suite(corpus, kind, "clusterqueue-status-checks", status_checks);
    report.suite(corpus, kind, "clusterqueue-status-flavors", status_flavors);
    report.suite(corpus, kind, "clusterqueue-usage", cluster_queue_usage);
    report.suite(corpus, kind, "localqueue-usage", local_queue_usage);
    report.suite(corpus, kind, "localqueue-reconcile", |case| {
        if case["ledger"]["statusAccounted"] == false {
            // Usage that was settled before the status was read cannot be handed in from outside.
            return Outcome::NotRun;
        }
        local_queue_reconcile(case).into()
    });
}

const NOW: Timestamp = Timestamp::from_seconds(1_767_268_800);

fn load(engine: &mut Engine, all: &Value) -> Result {
    for object in objects::of_kind(all, "ResourceFlavor") {
        engine.set_flavor(NOW, objects::flavor(object).map_err(|e| e.to_string())?);
    }
    for object in objects::of_kind(all, "Topology") {
        engine.set_topology(NOW, objects::topology(object).map_err(|e| e.to_string())?);
    }
    for object in objects::of_kind(all, "AdmissionCheck") {
        engine.set_admission_check(NOW, check(object)?);
    }
    for object in objects::of_kind(all, "ClusterQueue") {
        engine.set_cluster_queue(NOW, objects::cluster_queue(object).map_err(|e| e.to_string())?);
    }
    for object in objects::of_kind(all, "LocalQueue") {
        engine.set_local_queue(NOW, objects::local_queue(object).map_err(|e| e.to_string())?);
    }
    for object in objects::of_kind(all, "Workload") {
        engine.set_workload(NOW, objects::workload(object).map_err(|e| e.to_string())?);
    }
    engine.check().map_err(|e| e.to_string())
}

fn compare_active(engine: &Engine, name: &str, want: &Value) -> Result {
    let Some(report) = engine.cluster_queue(name) else {
        return expect_eq("reason", &Some("NotFound"), &want["reason"].as_str());
    };
    let got =
        (if report.activity.active { "True" } else { "False" }, report.activity.reason, &*report.activity.message);
    let field = |f: &str| want[f].as_str().unwrap_or_default();
    expect_eq("Active", &got, &(field("status"), field("reason"), field("message")))
}

fn readiness(case: &Value) -> Result {
    let mut engine = Engine::new(Config::new());
    load(&mut engine, &case["objects"])?;
    let name = case["clusterQueue"].as_str().unwrap_or_default();
    if case["terminate"] == true {
        let last = objects::of_kind(&case["objects"], "ClusterQueue").filter(|o| objects::name_of(o) == name).last();
        let spec = objects::cluster_queue(last.ok_or("no such ClusterQueue")?).map_err(|e| e.to_string())?;
        engine.set_cluster_queue(NOW, ClusterQueueSpec { deleting: true, ..spec });
    }
    compare_active(&engine, name, &case["expect"])
}

fn status_of(engine: &Engine, spec: &ClusterQueueSpec) -> Result<&'static str> {
    let report = engine.cluster_queue(&spec.name).ok_or("no such ClusterQueue")?;
    Ok(match (report.activity.active, spec.deleting) {
        (_, true) => "terminating",
        (true, false) => "active",
        (false, false) => "pending",
    })
}

fn given(case: &Value) -> Result<ClusterQueueSpec> {
    let spec = objects::cluster_queue(&case["clusterQueue"]).map_err(|e| e.to_string())?;
    Ok(ClusterQueueSpec { deleting: case["status"] == "terminating", ..spec })
}

fn status_checks(case: &Value) -> Result {
    let mut engine = Engine::new(Config::new());
    let spec = given(case)?;
    engine.set_cluster_queue(NOW, spec.clone());
    for object in case["admissionChecks"].as_array().into_iter().flatten() {
        let field = |f: &str| object[f].as_str().unwrap_or_default().into();
        let active = object["active"] == true;
        engine.set_admission_check(NOW, CheckSpec { name: field("name"), controller: field("controller"), active });
    }
    let expect = &case["expect"];
    expect_eq("status", &Some(status_of(&engine, &spec)?), &expect["status"].as_str())?;
    let report = engine.cluster_queue(&spec.name).ok_or("no such ClusterQueue")?;
    expect_eq("reason", &Some(report.activity.reason), &expect["reason"].as_str())?;
    expect_eq("message", &Some(&*report.activity.message), &expect["message"].as_str())
}

fn status_flavors(case: &Value) -> Result {
    let mut engine = Engine::new(Config::new());
    let spec = given(case)?;
    engine.set_cluster_queue(NOW, spec.clone());
    for name in case["flavors"].as_array().into_iter().flatten() {
        let flavor = slicegate_workload::FlavorSpec {
            name: name.as_str().unwrap_or_default().into(),
            ..slicegate_workload::FlavorSpec::default()
        };
        engine.set_flavor(NOW, flavor);
    }
    expect_eq("status", &Some(status_of(&engine, &spec)?), &case["expect"]["status"].as_str())
}

/// Usage as a status lists it: flavor, resource, total, borrowed.
fn listed(value: &Value) -> Result<Vec<(String, String, Amount, Amount)>> {
    let mut all = Vec::new();
    for flavor in value.as_array().into_iter().flatten() {
        for resource in flavor["resources"].as_array().into_iter().flatten() {
            let name = resource["name"].as_str().unwrap_or_default();
            let amount = |f: &str| -> Result<Amount> {
                let text = resource[f].as_str().unwrap_or("0");
                let quantity = text.parse::<Quantity>().map_err(|e| e.to_string())?;
                Ok(Amount::from_quantity(name, quantity))
            };
            let flavor = flavor["name"].as_str().unwrap_or_default().to_owned();
            all.push((flavor, name.to_owned(), amount("total")?, amount("borrowed")?));
        }
    }
    all.sort();
    Ok(all)
}

fn shown(usage: &[FlavorUsage]) -> Vec<(String, String, Amount, Amount)> {
    let mut all: Vec<_> =
        usage.iter().map(|u| (u.flavor.to_string(), u.resource.to_string(), u.total, u.borrowed)).collect();
    all.sort();
    all
}

fn number(value: &Value) -> usize {
    value.as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0)
}

fn cluster_queue_usage(case: &Value) -> Result {
    let mut engine = Engine::new(Config::new());
    load(&mut engine, &case["objects"])?;
    let object = objects::of_kind(&case["objects"], "ClusterQueue").next().ok_or("no ClusterQueue")?;
    let report = engine.cluster_queue(objects::name_of(object)).ok_or("no ClusterQueue")?;
    let expect = &case["expect"];
    expect_eq("reservation", &shown(&report.reservation), &listed(&expect["flavorsReservation"])?)?;
    expect_eq("usage", &shown(&report.usage), &listed(&expect["flavorsUsage"])?)?;
    expect_eq("reserving", &report.reserving, &number(&expect["reservingWorkloads"]))?;
    expect_eq("admitted", &report.admitted, &number(&expect["admittedWorkloads"]))
}

fn parse_key(text: &str) -> Key {
    let (namespace, name) = text.split_once('/').unwrap_or(("", text));
    Key::new(namespace, name)
}

fn local_queue_usage(case: &Value) -> Result {
    let mut engine = Engine::new(Config::new());
    load(&mut engine, &case["objects"])?;
    let key = parse_key(case["localQueue"].as_str().unwrap_or_default());
    let report = engine.local_queue(&key).ok_or("no LocalQueue")?;
    let expect = &case["expect"];
    expect_eq("reservation", &shown(&report.reservation), &listed(&expect["flavorsReservation"])?)?;
    expect_eq("usage", &shown(&report.usage), &listed(&expect["flavorsUsage"])?)?;
    expect_eq("reserving", &report.reserving, &number(&expect["reservingWorkloads"]))?;
    expect_eq("admitted", &report.admitted, &number(&expect["admittedWorkloads"]))
}

fn local_queue_reconcile(case: &Value) -> Result {
    let now = objects::timestamp(&case["config"]["now"]).map_err(|e| e.to_string())?;
    let mut config = Config::new();
    let usage = &case["config"]["admissionFairSharing"];
    if usage.is_object() {
        let mut fair = AdmissionFairSharing {
            half_life_seconds: usage["usageHalfLifeSeconds"].as_i64().unwrap_or(0),
            sampling_interval_seconds: usage["usageSamplingIntervalSeconds"].as_i64().unwrap_or(0),
            ..AdmissionFairSharing::default()
        };
        for (resource, weight) in usage["resourceWeights"].as_object().into_iter().flatten() {
            fair.resource_weights.insert(resource.as_str().into(), weight.as_f64().unwrap_or(1.0));
        }
        config.admission_fair_sharing = Some(fair);
    }
    let mut engine = Engine::new(config);
    let all = &case["objects"];
    // Flavors are not among the objects, nor do they matter: a ClusterQueue is active if its condition says so.
    for object in objects::of_kind(all, "ClusterQueue") {
        let mut spec = objects::cluster_queue(object).map_err(|e| e.to_string())?;
        let conditions = objects::conditions(&object["status"]["conditions"]).map_err(|e| e.to_string())?;
        if !conditions.is_true(&slicegate_workload::ConditionType::Other("Active".into())) {
            spec.stop_policy = slicegate_workload::StopPolicy::Hold;
        }
        for flavor in spec.resource_groups.iter().flat_map(|g| &g.flavors) {
            let name = flavor.name.clone();
            engine
                .set_flavor(now, slicegate_workload::FlavorSpec { name, ..slicegate_workload::FlavorSpec::default() });
        }
        if case["clusterQueueDeleted"] != true {
            engine.set_cluster_queue(now, spec);
        }
    }
    let object = objects::of_kind(all, "LocalQueue").next().ok_or("no LocalQueue")?;
    let key = objects::key_of(object);
    engine.set_local_queue(now, objects::local_queue(object).map_err(|e| e.to_string())?);
    for object in objects::of_kind(all, "Workload") {
        engine.set_workload(now, objects::workload(object).map_err(|e| e.to_string())?);
    }
    let persisted = &object["status"]["fairSharing"]["admissionFairSharingStatus"];
    if case["ledger"].is_object() {
        let consumed: ResourceList = objects::resource_list(&case["ledger"]["consumed"]).map_err(|e| e.to_string())?;
        let at = objects::timestamp(&case["ledger"]["lastUpdate"]).map_err(|e| e.to_string())?;
        engine.restore_consumed(now, at, &key, &consumed);
    }
    if persisted.is_object() {
        let consumed: ResourceList =
            objects::resource_list(&persisted["consumedResources"]).map_err(|e| e.to_string())?;
        engine.restore_consumed(now, now, &key, &consumed);
    }
    engine.flush(now);
    engine.has_heads(now);
    engine.check().map_err(|e| e.to_string())?;

    let report = engine.local_queue(&key).ok_or("no LocalQueue")?;
    let expect = &case["expect"];
    let want = &expect["localQueue"]["status"];
    let conditions = objects::conditions(&want["conditions"]).map_err(|e| e.to_string())?;
    if let Some(active) = conditions.get(&slicegate_workload::ConditionType::Other("Active".into())) {
        let is_active = active.status == slicegate_workload::Status::True;
        let got = (report.activity.active, report.activity.reason, &*report.activity.message);
        expect_eq("Active", &got, &(is_active, &*active.reason, &*active.message))?;
    }
    expect_eq("reserving", &report.reserving, &number(&want["reservingWorkloads"]))?;
    expect_eq("admitted", &report.admitted, &number(&want["admittedWorkloads"]))?;
    let shared = &want["fairSharing"]["admissionFairSharingStatus"];
    if shared.is_object() {
        let consumed: ResourceList = objects::resource_list(&shared["consumedResources"]).map_err(|e| e.to_string())?;
        let at = objects::timestamp(&shared["lastUpdate"]).map_err(|e| e.to_string())?;
        expect_eq("consumed", &report.consumed, &Some((consumed, at)))?;
    }
    if let Some(seconds) = expect["requeueAfterSeconds"].as_i64() {
        expect_eq("next look", &engine.next_wake(), &Some(now.plus_seconds(seconds)))?;
    }
    Ok(())
}
