//! Quantities, requests of pods and workloads, and the quota forest.

#[path = "quota_forest.rs"]
mod forest;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use slicegate_quota::{
    Amount, ParseQuantityError, Quantity, Weight, byte_quantity, is_extended_resource, request_quantity, request_value,
};
use slicegate_tests::objects;
use slicegate_workload::{
    DeviceRequests, EquivalenceOptions, FieldError, LimitRange, LimitRangeItem, LimitRangeSummary, LimitType,
    PodSetTotals, QueueOrder, RequestOptions, Requests, RequeuingTimestamp, ResourceList, SchedulingKey,
    TransformStrategy, Transformation, Workload, WorkloadUsage, adjust_requests, decayed_usage, entry_penalty,
    limit_reclaimable_pods, merge_resources, propagate_requests, scale_resources, validate_limit_range,
    validate_resources, weighted_usage,
};

use crate::report::{Report, expect_close, expect_eq};

type Result<T = ()> = std::result::Result<T, String>;

/// A suite and what to do with each of its cases.
type Suite = (&'static str, fn(&Value) -> Result);

/// Runs every suite of the kind.
pub(crate) fn run(corpus: &Path, kind: &str, report: &mut Report) {
    let suites: [Suite; 23] = [
        ("quantity-to-amount", quantity_to_amount),
        ("quantity-to-request", quantity_to_request),
        ("quantity-to-float", quantity_to_float),
        ("request-to-quantity", request_to_quantity),
        ("is-extended-resource", extended_resource),
        ("requests-count-in", requests_count_in),
        ("requests-floor", requests_floor),
        ("requests-greater-keys", requests_greater_keys),
        ("resource-list-merge", resource_list_merge),
        ("resource-list-scale", resource_list_scale),
        ("afs-decay", afs_decay),
        ("afs-usage", afs_usage),
        ("adjust-resources", adjust_resources),
        ("limitrange-summarize", limitrange_summarize),
        ("limitrange-validate", limitrange_validate),
        ("validate-limitrange", validate_limitrange),
        ("validate-resources", validate_requests),
        ("workload-requests", workload_requests),
        ("workload-usage", workload_usage),
        ("limit-reclaimable-pods", reclaimable_pods),
        ("propagate-resource-requests", propagate_resource_requests),
        ("queue-order-timestamp", queue_order_timestamp),
        ("scheduling-equivalence", scheduling_equivalence),
    ];
    for (suite, case) in suites {
        report.suite(corpus, kind, suite, case);
    }
    forest::run(corpus, kind, report);
}

// ----- reading cases ---------------------------------------------------------------------------------------------------

fn text<'a>(case: &'a Value, key: &str) -> &'a str {
    case[key].as_str().unwrap_or_default()
}

fn quantity(text: &str) -> Result<Quantity> {
    text.parse().map_err(|e: ParseQuantityError| e.to_string())
}

fn list(value: &Value) -> Result<ResourceList> {
    objects::resource_list(value).map_err(|e| e.to_string())
}

fn workload(value: &Value) -> Result<Workload> {
    objects::workload(value).map_err(|e| e.to_string())
}

/// An object of integers.
fn integers(value: &Value) -> BTreeMap<Box<str>, i64> {
    let fields = value.as_object().into_iter().flatten();
    fields.map(|(key, n)| (key.as_str().into(), n.as_i64().unwrap_or_default())).collect()
}

fn requests(value: &Value) -> Requests {
    integers(value).iter().map(|(r, &n)| (&**r, n)).collect()
}

fn by_name(requests: &Requests) -> BTreeMap<Box<str>, i64> {
    requests.iter().map(|(r, n)| (r.into(), n)).collect()
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(|v| v.as_str().unwrap_or_default().to_owned()).collect()
}

fn gate(case: &Value, name: &str, default: bool) -> bool {
    case["config"]["featureGates"][name].as_bool().unwrap_or(default)
}

fn seconds(value: &Value) -> Duration {
    Duration::from_secs(value.as_u64().unwrap_or_default())
}

fn limit_ranges(case: &Value) -> Result<LimitRangeSummary> {
    let ranges: Vec<LimitRange> = objects::of_kind(&case["objects"], "LimitRange")
        .map(objects::limit_range)
        .collect::<std::result::Result<_, _>>()
        .map_err(|e| e.to_string())?;
    Ok(ranges.iter().collect())
}

fn limit_range_summary(value: &Value) -> Result<LimitRangeSummary> {
    let items = value.as_object().into_iter().flatten();
    items
        .map(|(kind, item)| {
            let kind = match kind.as_str() {
                "Container" => LimitType::Container,
                "Pod" => LimitType::Pod,
                other => LimitType::Other(other.into()),
            };
            Ok((kind, objects::limit_range_item(item).map_err(|e| e.to_string())?))
        })
        .collect()
}

fn expect_field_errors(errors: &[FieldError], case: &Value) -> Result {
    let got: Vec<[String; 2]> = errors.iter().map(|e| [e.field.to_string(), e.problem.detail().to_owned()]).collect();
    let wanted = case["expect"]["errors"].as_array().into_iter().flatten();
    let want = wanted.map(|e| [text(e, "field").to_owned(), text(e, "detail").to_owned()]).collect();
    expect_eq("errors", &got, &want)
}

// ----- quantities ------------------------------------------------------------------------------------------------------

fn quantity_to_amount(case: &Value) -> Result {
    let amount = Amount::from_quantity(text(case, "resource"), quantity(text(case, "quantity"))?);
    expect_eq("amount", &Some(amount.value()), &case["expect"]["amount"].as_i64())?;
    expect_eq("unlimited", &Some(amount.is_unlimited()), &case["expect"]["unlimited"].as_bool())
}

fn quantity_to_request(case: &Value) -> Result {
    let value = request_value(text(case, "resource"), quantity(text(case, "quantity"))?);
    expect_eq("value", &Some(value), &case["expect"]["value"].as_i64())
}

fn quantity_to_float(case: &Value) -> Result {
    let got = quantity(text(case, "quantity"))?.to_f64();
    expect_close("value", got, case["expect"]["value"].as_f64().unwrap_or(f64::NAN))
}

fn request_to_quantity(case: &Value) -> Result {
    let value = case["value"].as_i64().unwrap_or_default();
    let quantity = if case["binaryFormat"] == true {
        byte_quantity(value)
    } else {
        request_quantity(text(case, "resource"), value)
    };
    expect_eq("quantity", &quantity.to_string().as_str(), &text(&case["expect"], "quantity"))
}

fn extended_resource(case: &Value) -> Result {
    let got = is_extended_resource(text(case, "resource"));
    expect_eq("extended", &Some(got), &case["expect"]["extended"].as_bool())
}

fn resource_list_merge(case: &Value) -> Result {
    let both: fn(Quantity, Quantity) -> Quantity = match text(case, "op") {
        "merge" => |old, _| old,
        "min" => Ord::min,
        "max" => Ord::max,
        "sum" => Quantity::plus,
        other => return Err(format!("the operation {other:?} is not known")),
    };
    let mut result = list(&case["a"])?;
    merge_resources(&mut result, &list(&case["b"])?, both);
    expect_eq("result", &result, &list(&case["expect"]["result"])?)
}

fn resource_list_scale(case: &Value) -> Result {
    let got = scale_resources(&list(&case["resources"])?, case["factor"].as_f64().unwrap_or(f64::NAN));
    expect_eq("resources", &got, &list(&case["expect"]["resources"])?)
}

// ----- requests --------------------------------------------------------------------------------------------------------

fn requests_count_in(case: &Value) -> Result {
    let (requests, capacity) = (requests(&case["requests"]), requests(&case["capacity"]));
    let fit = requests.count_in(&capacity);
    expect_eq("count", &Some(i64::from(fit.count)), &case["expect"]["count"].as_i64())?;
    match case["expect"]["limitingResource"].as_str() {
        None => Ok(()),
        want => expect_eq("limiting resource", &fit.limiting, &want),
    }
}

fn requests_floor(case: &Value) -> Result {
    let got = by_name(&requests(&case["requests"]).or_zero());
    expect_eq("requests", &got, &integers(&case["expect"]["requests"]))
}

fn requests_greater_keys(case: &Value) -> Result {
    let (a, b) = (requests(&case["a"]), requests(&case["b"]));
    let want = strings(&case["expect"]["keys"]);
    expect_eq("keys", &a.greater_keys(&b), &want.iter().map(String::as_str).collect())
}

fn adjust_resources(case: &Value) -> Result {
    let mut got = workload(&case["workload"])?;
    let overheads = objects::runtime_class_overheads(&case["objects"]).map_err(|e| e.to_string())?;
    adjust_requests(&mut got.spec, &overheads, &limit_ranges(case)?);
    expect_eq("pod sets", &got.spec.pod_sets, &workload(&case["expect"]["workload"])?.spec.pod_sets)
}

fn limitrange_summarize(case: &Value) -> Result {
    let items = |summary: &LimitRangeSummary| -> Vec<(LimitType, LimitRangeItem)> {
        summary.iter().map(|(kind, item)| (kind.clone(), item.clone())).collect()
    };
    let want = limit_range_summary(&case["expect"]["summary"])?;
    expect_eq("summary", &items(&limit_ranges(case)?), &items(&want))
}

fn limitrange_validate(case: &Value) -> Result {
    let pod = objects::pod_spec(&case["podSpec"]).map_err(|e| e.to_string())?;
    expect_field_errors(&limit_range_summary(&case["summary"])?.validate(&pod, text(case, "path")), case)
}

fn validate_limitrange(case: &Value) -> Result {
    expect_field_errors(&validate_limit_range(&workload(&case["workload"])?.spec, &limit_ranges(case)?), case)
}

fn validate_requests(case: &Value) -> Result {
    expect_field_errors(&validate_resources(&workload(&case["workload"])?.spec), case)
}

// ----- workloads -------------------------------------------------------------------------------------------------------

fn request_options(case: &Value) -> Result<RequestOptions> {
    let config = &case["config"]["resources"];
    let rules = config["transformations"].as_array().into_iter().flatten();
    let transformations = rules
        .map(|rule| {
            let strategy =
                if rule["strategy"] == "Replace" { TransformStrategy::Replace } else { TransformStrategy::Retain };
            let multiply_by = rule["multiplyBy"].as_str().filter(|by| !by.is_empty()).map(Into::into);
            let transformation = Transformation { strategy, multiply_by, outputs: list(&rule["outputs"])? };
            Ok((text(rule, "input").into(), transformation))
        })
        .collect::<Result<_>>()?;
    Ok(RequestOptions {
        excluded_prefixes: strings(&config["excludeResourcePrefixes"]).into_iter().map(Into::into).collect(),
        transformations,
        reclaimable_pods: gate(case, "ReclaimablePods", true),
    })
}

fn devices(case: &Value) -> Result<BTreeMap<Box<str>, DeviceRequests>> {
    let mut devices: BTreeMap<Box<str>, DeviceRequests> = BTreeMap::new();
    for (pod_set, added) in case["config"]["draResources"].as_object().into_iter().flatten() {
        devices.entry(pod_set.as_str().into()).or_default().added = list(added)?;
    }
    for (pod_set, replaced) in case["config"]["draReplacedResources"].as_object().into_iter().flatten() {
        let names = strings(replaced).into_iter().map(Into::into).collect();
        devices.entry(pod_set.as_str().into()).or_default().replaced = names;
    }
    Ok(devices)
}

fn workload_requests(case: &Value) -> Result {
    let workload = workload(&case["workload"])?;
    let options = request_options(case)?;
    let totals = match &workload.status.admission {
        Some(_) => workload.admitted_totals(&options),
        None => workload.pending_totals_with_devices(&options, &devices(case)?),
    };
    let cluster_queue = workload.status.admission.as_ref().map_or("", |a| &a.cluster_queue);
    expect_eq("clusterQueue", &cluster_queue, &text(&case["expect"], "clusterQueue"))?;
    let wanted: Vec<&Value> = case["expect"]["podSets"].as_array().into_iter().flatten().collect();
    expect_eq("number of pod sets", &totals.len(), &wanted.len())?;
    for (got, want) in totals.iter().zip(wanted) {
        // A pod set without a name is called main by the API server, which the case did without.
        expect_eq("name", &&*got.name, &want["name"].as_str().filter(|n| !n.is_empty()).unwrap_or("main"))?;
        expect_eq("count", &i64::from(got.count), &want["count"].as_i64().unwrap_or(0))?;
        expect_eq("requests", &by_name(&got.requests), &integers(&want["requests"]))?;
        let flavors = want["flavors"].as_object().into_iter().flatten();
        let flavors = flavors.map(|(r, f)| (r.as_str().into(), f.as_str().unwrap_or_default().into())).collect();
        expect_eq("flavors", &got.flavors, &flavors)?;
        let topology = &want["topologyRequest"];
        expect_eq("has a topology request", &got.topology.is_some(), &!topology.is_null())?;
        let Some(usage) = &got.topology else { continue };
        expect_eq("levels", &usage.levels.iter().map(ToString::to_string).collect(), &strings(&topology["levels"]))?;
        let domains: Vec<_> = usage
            .domains
            .iter()
            .map(|d| (d.values.iter().map(ToString::to_string).collect(), i64::from(d.count), by_name(&d.single_pod)))
            .collect();
        let wanted = topology["domainRequests"].as_array().into_iter().flatten();
        let wanted = wanted
            .map(|d| (strings(&d["domain"]), d["count"].as_i64().unwrap_or(0), integers(&d["podRequests"])))
            .collect();
        expect_eq("domains", &domains, &wanted)?;
    }
    Ok(())
}

fn case_totals(case: &Value) -> Vec<PodSetTotals> {
    let pod_sets = case["podSets"].as_array().into_iter().flatten();
    pod_sets
        .map(|p| {
            let flavors = p["flavors"].as_object().into_iter().flatten();
            PodSetTotals {
                name: text(p, "name").into(),
                requests: requests(&p["requests"]),
                flavors: flavors.map(|(r, f)| (r.as_str().into(), f.as_str().unwrap_or_default().into())).collect(),
                ..PodSetTotals::default()
            }
        })
        .collect()
}

fn workload_usage(case: &Value) -> Result {
    let usage = WorkloadUsage::of(&case_totals(case));
    let assigned = usage.assigned.iter().map(|((f, r), &n)| (format!("{f}/{r}").into(), n)).collect();
    expect_eq("assigned", &assigned, &integers(&case["expect"]["assigned"]))?;
    expect_eq("unassigned", &usage.unassigned, &integers(&case["expect"]["unassigned"]))
}

fn reclaimable_pods(case: &Value) -> Result {
    let workload = workload(&case["workload"])?;
    let reclaimable = objects::reclaimable_pods(&case["reclaimablePods"]).map_err(|e| e.to_string())?;
    let want = objects::reclaimable_pods(&case["expect"]["reclaimablePods"]).map_err(|e| e.to_string())?;
    expect_eq("reclaimable pods", &limit_reclaimable_pods(&workload.spec, &reclaimable), &want)
}

fn propagate_resource_requests(case: &Value) -> Result {
    let mut workload = workload(&case["workload"])?;
    let changed = propagate_requests(&mut workload, &case_totals(case));
    expect_eq("changed", &Some(changed), &case["expect"]["changed"].as_bool())?;
    let shown = workload.status.resource_requests.iter().map(|r| {
        let resources = r.resources.iter().map(|(name, q)| (name.to_string(), Value::from(q.to_string())));
        serde_json::json!({"name": &*r.name, "resources": resources.collect::<serde_json::Map<_, _>>()})
    });
    let want = case["expect"]["resourceRequests"].as_array().cloned().unwrap_or_default();
    expect_eq("resource requests", &shown.collect::<Vec<_>>(), &want)
}

fn queue_order_timestamp(case: &Value) -> Result {
    let requeuing_timestamp = match text(case, "requeuingTimestamp") {
        "Creation" => RequeuingTimestamp::Creation,
        _ => RequeuingTimestamp::Eviction,
    };
    let order = QueueOrder {
        requeuing_timestamp,
        priority_sorting_within_cohort: gate(case, "PrioritySortingWithinCohort", true),
    };
    let want = objects::timestamp(&case["expect"]["timestamp"]).map_err(|e| e.to_string())?;
    expect_eq("timestamp", &workload(&case["workload"])?.queue_order_timestamp(order), &want)
}

fn scheduling_equivalence(case: &Value) -> Result {
    let key = |object: &Value| -> Result<SchedulingKey> {
        let workload = workload(object)?;
        let options = EquivalenceOptions {
            priority_boost: gate(case, "PriorityBoost", false),
            concurrent_admission: gate(case, "ConcurrentAdmission", false),
        };
        Ok(SchedulingKey::new(&workload, &workload.totals(&request_options(case)?), options))
    };
    // Without the gate no workload has a known equivalent.
    let same = gate(case, "SchedulingEquivalenceHashing", true) && key(&case["workload1"])? == key(&case["workload2"])?;
    expect_eq("same", &Some(same), &case["expect"]["same"].as_bool())
}

// ----- admission fair sharing ------------------------------------------------------------------------------------------

fn without_zeros(mut list: ResourceList) -> ResourceList {
    list.retain(|_, quantity| !quantity.is_zero());
    list
}

fn afs_decay(case: &Value) -> Result {
    let half_life = seconds(&case["halfLifeSeconds"]);
    let (what, got) = match text(case, "op") {
        "decay" => {
            let elapsed = seconds(&case["elapsedSeconds"]);
            ("consumed", decayed_usage(&list(&case["consumed"])?, &list(&case["usage"])?, elapsed, half_life))
        }
        "penalty" => {
            ("penalty", entry_penalty(&list(&case["requests"])?, seconds(&case["samplingIntervalSeconds"]), half_life))
        }
        other => return Err(format!("the operation {other:?} is not known")),
    };
    expect_eq(what, &without_zeros(got), &without_zeros(list(&case["expect"][what])?))
}

fn weight(value: &Value) -> Weight {
    let text = if value.is_null() { "1".to_owned() } else { value.to_string() };
    let nanos = text.parse::<Quantity>().map_or(0, Quantity::nanos);
    Weight::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

fn afs_usage(case: &Value) -> Result {
    let weights = case["resourceWeights"].as_object().into_iter().flatten();
    let weights = weights.map(|(r, w)| (r.as_str().into(), w.as_f64().unwrap_or(f64::NAN))).collect();
    let (consumed, penalty) = (list(&case["consumed"])?, list(&case["penalty"])?);
    let got = weighted_usage(&consumed, &penalty, &weights, weight(&case["localQueueWeight"]));
    expect_close("usage", got, case["expect"]["usage"].as_f64().unwrap_or(f64::NAN))
}
