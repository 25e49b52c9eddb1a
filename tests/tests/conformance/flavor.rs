//! The kind `flavor`: which flavors pod sets are assigned, and why not better ones.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Map, Value, json};
use slicegate_flavor::{
    Assigner, Assignment, Catalogue, ClusterQueueView, DelayedTopology, Eligibility, Features, FlavorChoice,
    FlavorTable, GranularMode, GroupFlavor, GroupView, Mode, PodSetRequest, PodSetResult, Possibility,
    PreemptionOracle, Quality, ReplacedPodSet, Requests, ResourceOrder, Simulated, TopologyDemand, UndeclaredResources,
    WorkloadRequest, additional_domains, placement_requests, search_counts,
};
use slicegate_quota::{Amount, FlavorId, FlavorResourceId, Forest, Names, NodeId, ResourceId, request_value};
use slicegate_tests::objects;
use slicegate_workload::{
    ALLOWED_FLAVORS, FlavorFungibility, FlavorSpec, FungibilityPolicy, FungibilityPreference, RequestOptions,
    TopologyAssignment, TopologyDomain, Workload,
};

use crate::nodes::Nodes;
use crate::report::{Outcome, Report, expect_eq};
use crate::setup::Setup;

type Result<T> = std::result::Result<T, String>;

pub(crate) fn run(corpus: &Path, kind: &str, report: &mut Report) {
    for suite in [
        "allowed-flavors",
        "assign-flavors",
        "deleted-flavors",
        "hierarchical",
        "last-tried-flavor",
        "last-tried-flavor-recompute",
        "no-fit-reason",
        "podset-group-tas-flavor",
        "reclaim-before-priority",
    ] {
        report.suite(corpus, kind, suite, assign);
    }
    report.suite(corpus, kind, "is-preferred", is_preferred);
    report.suite(corpus, kind, "podset-reducer", podset_reducer);
    report.suite(corpus, kind, "total-requests", total_requests);
    report.suite(corpus, kind, "topology-requests-errors", topology_requests_errors);
    report.suite(corpus, kind, "tas-net-usage", net_usage);
    report.suite(corpus, kind, "topology-requests-zero-count", topology_requests);
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn gate(case: &Value, name: &str, default: bool) -> bool {
    case["config"]["featureGates"][name].as_bool().unwrap_or(default)
}

fn features(case: &Value) -> Features {
    Features {
        fungibility: gate(case, "FlavorFungibility", true),
        topology: gate(case, "TopologyAwareScheduling", true),
        elastic_topology: gate(case, "ElasticJobsViaWorkloadSlicesWithTAS", false),
    }
}

/// `flavor/resource`, where the resource may contain a slash.
fn pair_of(text: &str, names: &mut Names) -> Result<FlavorResourceId> {
    let (flavor, resource) = text.split_once('/').ok_or_else(|| format!("{text} is no flavor/resource"))?;
    Ok(names.intern(flavor, resource))
}

/// Answers as the case says.
struct Oracle {
    forest: Forest,
    answers: BTreeMap<FlavorResourceId, Simulated>,
}

impl PreemptionOracle for Oracle {
    fn forest(&self) -> &Forest {
        &self.forest
    }

    fn simulate(&mut self, pair: FlavorResourceId, _amount: Amount) -> Simulated {
        self.answers.get(&pair).copied().unwrap_or(Simulated { possibility: Possibility::Preempt, level: 0 })
    }
}

/// A pod set of a replaced slice: pods, requests, flavors.
type OwnedSlice = (i32, Requests, Vec<(ResourceId, FlavorId)>);

/// A pod set in the assigner's terms, to be borrowed from.
struct OwnedPodSet {
    name: String,
    count: i32,
    requests: Requests,
    group: Option<u32>,
    eligibility: Eligibility,
    topology: TopologyDemand,
    pod_resources: Vec<ResourceId>,
    nominated: Vec<(ResourceId, FlavorId)>,
    replaces: Option<OwnedSlice>,
}

impl OwnedPodSet {
    fn borrowed(&self) -> PodSetRequest<'_> {
        PodSetRequest {
            count: self.count,
            min_count: None,
            requests: &self.requests,
            group: self.group,
            eligibility: &self.eligibility,
            topology: self.topology,
            pod_resources: &self.pod_resources,
            seed: None,
            replaces: self.replaces.as_ref().map(|(count, requests, flavors)| ReplacedPodSet {
                count: *count,
                requests,
                flavors,
            }),
            nominated: &self.nominated,
        }
    }
}

fn pod_sets(case: &Value, w: &Workload, flavors: &FlavorTable, names: &mut Names) -> Result<Vec<OwnedPodSet>> {
    let mut groups: Vec<Box<str>> = Vec::new();
    let options = RequestOptions { reclaimable_pods: gate(case, "ReclaimablePods", true), ..RequestOptions::default() };
    let mut result = Vec::new();
    for (pod_set, totals) in w.spec.pod_sets.iter().zip(w.totals(&options)) {
        let request = pod_set.topology_request.as_ref();
        let group = request.and_then(|r| r.pod_set_group_name.clone()).map(|name| {
            groups.iter().position(|g| *g == name).unwrap_or_else(|| {
                groups.push(name);
                groups.len() - 1
            })
        });
        let replaces = items(&case["replacedSlice"]["podSets"]).find(|p| text(p, "name") == &*pod_set.name);
        let replaces = replaces.map(|old| -> Result<_> {
            let count = i32::try_from(old["count"].as_i64().unwrap_or(0)).map_err(|e| e.to_string())?;
            let requests =
                entries(&old["requests"]).map(|(r, q)| (names.intern_resource(r), q.as_i64().unwrap_or(0))).collect();
            let flavors = entries(&old["flavors"])
                .map(|(r, f)| (names.intern_resource(r), names.intern_flavor(f.as_str().unwrap_or_default())))
                .collect();
            Ok((count, requests, flavors))
        });
        let nominated = entries(&case["nominationMapping"][&*pod_set.name])
            .map(|(r, f)| (names.intern_resource(r), names.intern_flavor(f.as_str().unwrap_or_default())))
            .collect();
        result.push(OwnedPodSet {
            name: pod_set.name.to_string(),
            count: totals.count,
            requests: totals.requests.iter().map(|(r, q)| (names.intern_resource(r), q)).collect(),
            group: group.map(u32::try_from).transpose().map_err(|e| e.to_string())?,
            eligibility: Eligibility::new(&pod_set.pod, flavors),
            topology: TopologyDemand::of(request),
            pod_resources: pod_set.pod.requests().keys().map(|r| names.intern_resource(r)).collect(),
            nominated,
            replaces: replaces.transpose()?,
        });
    }
    Ok(result)
}

fn assign(case: &Value) -> Result<()> {
    let mut setup = Setup::new(&case["objects"])?;
    for flavor in items(&case["deletedFlavors"]).filter_map(Value::as_str) {
        let id = setup.names.intern_flavor(flavor);
        setup.flavors.remove(id);
    }
    let w = objects::workload(&case["workload"]).map_err(|e| e.to_string())?;
    let mut answers = BTreeMap::new();
    for (pair, answer) in entries(&case["oracle"]) {
        let possibility = match text(answer, "possibility") {
            "NoCandidates" => Possibility::NoCandidates,
            "Preempt" => Possibility::Preempt,
            "Reclaim" => Possibility::Reclaim,
            other => return Err(format!("unknown possibility {other}")),
        };
        let level = u32::try_from(answer["borrow"].as_u64().unwrap_or(0)).map_err(|e| e.to_string())?;
        answers.insert(pair_of(pair, &mut setup.names)?, Simulated { possibility, level });
    }
    for (queue, usages) in entries(&case["usage"]) {
        let node = setup.queue(queue)?.0;
        for (pair, amount) in entries(usages) {
            let pair = pair_of(pair, &mut setup.names)?;
            setup.forest.add_usage(node, pair, Amount::new(amount.as_i64().unwrap_or(0)));
        }
    }
    let (node, spec) = setup.queue(text(case, "targetClusterQueue"))?.clone();
    let undeclared = match text(&case["config"], "quotaCheckStrategy") {
        "IgnoreUndeclared" => UndeclaredResources::Ignore,
        _ => UndeclaredResources::Block,
    };
    let fair = !case["config"]["fairSharing"].is_null();
    let view = ClusterQueueView::new(node, &spec, undeclared, fair, &mut setup.names);
    let owned = pod_sets(case, &w, &setup.flavors, &mut setup.names)?;
    let allowed: Option<Vec<FlavorId>> = w
        .annotations
        .get(ALLOWED_FLAVORS)
        .filter(|_| gate(case, "ConcurrentAdmission", false))
        .map(|list| list.split(',').map(|name| setup.names.intern_flavor(name.trim())).collect());
    let borrowed: Vec<PodSetRequest<'_>> = owned.iter().map(OwnedPodSet::borrowed).collect();
    let request = WorkloadRequest {
        pod_sets: &borrowed,
        last: None,
        pinned: !case["nominationMapping"].is_null(),
        allowed_flavors: allowed.as_deref(),
        replaces_slice: !case["replacedSlice"].is_null(),
        elastic: false,
        has_unhealthy_nodes: false,
    };
    let mut placer = Nodes::new(case, &w, &mut setup)?;
    let mut oracle = Oracle { forest: setup.forest.clone(), answers };
    let order = ResourceOrder::new(&setup.names);
    let mut assigner = Assigner::new(features(case));
    let got = assigner.assign(&order, &view, &request, None, &mut oracle, &mut placer);
    compare(case, &got, &owned, &setup)
}

/// The assignment in the form of `expect`, part by part.
fn compare(case: &Value, got: &Assignment, owned: &[OwnedPodSet], setup: &Setup) -> Result<()> {
    let expect = &case["expect"];
    let catalogue = Catalogue { names: &setup.names, flavors: &setup.flavors };
    let names: Vec<&str> = got.pod_sets.iter().map(|p| owned[p.pod_set].name.as_str()).collect();
    let want: Vec<&str> = items(&expect["podSets"]).map(|p| text(p, "name")).collect();
    expect_eq("pod sets", &names, &want)?;
    for (result, want) in got.pod_sets.iter().zip(items(&expect["podSets"])) {
        compare_pod_set(result, want, catalogue, setup)?;
    }
    expect_eq("mode", &got.mode.as_str(), &text(expect, "mode"))?;
    expect_eq("borrowing", &u64::from(got.borrowing), &expect["borrowing"].as_u64().unwrap_or(0))?;
    let no_fit = got.no_fit.map_or("", |r| r.as_str());
    expect_eq("noFitReason", &no_fit, &text(expect, "noFitReason"))?;
    let pair_text = |pair| {
        let (flavor, resource) = setup.names.flavor_resource(pair);
        format!("{}/{}", setup.names.flavor_name(flavor), setup.names.resource_name(resource))
    };
    let usage: BTreeMap<String, i64> = got.usage.iter().map(|&(p, a)| (pair_text(p), a.value())).collect();
    let want: BTreeMap<String, i64> =
        entries(&expect["usage"]).map(|(p, a)| (p.clone(), a.as_i64().unwrap_or(0))).collect();
    expect_eq("usage", &usage, &want)?;
    let tried: Vec<BTreeMap<String, i64>> = got
        .last_tried()
        .iter()
        .map(|p| p.iter().map(|&(r, at)| (setup.names.resource_name(r).to_owned(), index(at))).collect())
        .collect();
    let want: Vec<BTreeMap<String, i64>> = items(&expect["lastTriedFlavorIdx"])
        .map(|p| entries(p).map(|(r, at)| (r.clone(), at.as_i64().unwrap_or(0))).collect())
        .collect();
    expect_eq("lastTriedFlavorIdx", &tried, &want)
}

fn index(tried: Option<u32>) -> i64 {
    tried.map_or(-1, i64::from)
}

fn compare_pod_set(result: &PodSetResult, want: &Value, catalogue: Catalogue<'_>, setup: &Setup) -> Result<()> {
    let name = text(want, "name");
    let names = &setup.names;
    expect_eq(&format!("{name}: count"), &i64::from(result.count), &want["count"].as_i64().unwrap_or(0))?;
    let requests: BTreeMap<String, i64> =
        result.requests.iter().map(|&(r, q)| (names.resource_name(r).to_owned(), q)).collect();
    let mut wanted = BTreeMap::new();
    for (resource, quantity) in entries(&want["requests"]) {
        let quantity = quantity.as_str().unwrap_or_default().parse().map_err(|_| format!("{quantity}"))?;
        wanted.insert(resource.clone(), request_value(resource, quantity));
    }
    expect_eq(&format!("{name}: requests"), &requests, &wanted)?;
    let flavors: Map<String, Value> = result
        .flavors
        .iter()
        .map(|c| {
            let value = json!({
                "borrow": c.borrow,
                "flavor": names.flavor_name(c.flavor),
                "mode": c.mode.as_str(),
                "triedFlavorIdx": index(c.tried),
            });
            (names.resource_name(c.resource).to_owned(), value)
        })
        .collect();
    let wanted = want["flavors"].as_object().cloned().unwrap_or_default();
    expect_eq(&format!("{name}: flavors"), &flavors, &wanted)?;
    let error = result.error.as_ref().map(|e| catalogue.impossible(e)).unwrap_or_default();
    expect_eq(&format!("{name}: error"), &error.as_str(), &text(want, "error"))?;
    let sorted = |list: Vec<String>| -> Vec<String> { list.into_iter().collect::<BTreeSet<_>>().into_iter().collect() };
    let reasons = sorted(result.reasons.iter().map(|r| catalogue.reason(r)).collect());
    let strings = |value: &Value| sorted(items(value).filter_map(Value::as_str).map(str::to_owned).collect());
    expect_eq(&format!("{name}: reasons"), &reasons, &strings(&want["reasons"]))?;
    let attempts: BTreeMap<String, String> = result
        .attempts
        .iter()
        .map(|a| {
            let reasons = sorted(a.reasons.iter().map(|r| catalogue.reason(r)).collect());
            let text = format!(
                "{} borrow {} {} {} {reasons:?}",
                a.mode.as_str(),
                a.borrow,
                a.possibility.map_or("", Possibility::as_str),
                a.no_fit.map_or("", |r| r.as_str()),
            );
            (names.flavor_name(a.flavor).to_owned(), text)
        })
        .collect();
    let wanted: BTreeMap<String, String> = items(&want["attempts"])
        .map(|a| {
            let details = format!(
                "{} borrow {} {} {} {:?}",
                text(a, "mode"),
                a["borrow"].as_u64().unwrap_or(0),
                text(a, "preemptionPossibility"),
                text(a, "noFitReason"),
                strings(&a["reasons"]),
            );
            (text(a, "flavor").to_owned(), details)
        })
        .collect();
    expect_eq(&format!("{name}: attempts"), &attempts, &wanted)?;
    let place = result.topology.as_ref().map(|t| {
        let domains: Vec<Value> =
            t.domains.iter().map(|d| json!({"count": d.count, "values": d.values.clone()})).collect();
        json!({"domains": domains, "levels": t.levels.clone()})
    });
    expect_eq(&format!("{name}: topology"), &place.unwrap_or_default(), &want["topologyAssignment"])
}

fn fungibility(value: &Value) -> Result<FlavorFungibility> {
    let mut result = FlavorFungibility::default();
    let policy = |key: &str, default| match text(value, key) {
        "" => Ok(default),
        "MayStopSearch" | "Borrow" | "Preempt" => Ok(FungibilityPolicy::MayStopSearch),
        "TryNextFlavor" => Ok(FungibilityPolicy::TryNextFlavor),
        other => Err(format!("unknown policy {other}")),
    };
    result.when_can_borrow = policy("whenCanBorrow", result.when_can_borrow)?;
    result.when_can_preempt = policy("whenCanPreempt", result.when_can_preempt)?;
    if text(value, "preference") == "PreemptionOverBorrowing" {
        result.preference = FungibilityPreference::PreemptionOverBorrowing;
    }
    Ok(result)
}

fn is_preferred(case: &Value) -> Result<()> {
    let quality = |value: &Value| -> Result<Quality> {
        let mode = match text(value, "mode") {
            "NoFit" => GranularMode::NoFit,
            "NoPreemptionCandidates" => GranularMode::NoPreemptionCandidates,
            "Preempt" => GranularMode::Preempt,
            "Reclaim" => GranularMode::Reclaim,
            "Fit" => GranularMode::Fit,
            other => return Err(format!("unknown mode {other}")),
        };
        let borrow = u32::try_from(value["borrowingLevel"].as_u64().unwrap_or(0)).map_err(|e| e.to_string())?;
        Ok(Quality { mode, borrow })
    };
    let preference = fungibility(&case["flavorFungibility"])?.preference;
    let got = quality(&case["a"])?.is_preferred_over(quality(&case["b"])?, preference);
    expect_eq("preferred", &got, &case["expect"]["preferred"].as_bool().unwrap_or(false))
}

fn podset_reducer(case: &Value) -> Result<()> {
    let number = |value: &Value| value.as_i64().and_then(|n| i32::try_from(n).ok());
    let pod_sets: Vec<(i32, i32)> = items(&case["podSets"])
        .map(|p| {
            let count = number(&p["count"]).unwrap_or(0);
            (count, number(&p["minCount"]).unwrap_or(count))
        })
        .collect();
    let limit = case["countLimit"].as_i64().unwrap_or(0);
    let sum = |counts: &[i32]| counts.iter().map(|&c| i64::from(c)).sum::<i64>();
    let got = search_counts(&pod_sets, |counts| (sum(counts) <= limit).then(|| sum(counts)));
    let want = case["expect"]["count"].as_i64().unwrap_or(0);
    let want = case["expect"]["found"].as_bool().unwrap_or(false).then_some(want);
    expect_eq("count", &got, &want)
}

/// An assignment as a case gives it, with a ClusterQueue that has the flavors named.
struct Given {
    names: Names,
    flavors: FlavorTable,
    view: ClusterQueueView,
    assignment: Assignment,
}

fn given(case: &Value) -> Result<Given> {
    let mut names = Names::new();
    let mut flavors = FlavorTable::new();
    for name in items(&case["tasFlavors"]).filter_map(Value::as_str) {
        let id = names.intern_flavor(name);
        flavors.set(id, FlavorSpec { name: name.into(), topology: Some("topology".into()), ..FlavorSpec::default() });
    }
    let mut pod_sets = Vec::new();
    for (i, pod_set) in items(&case["assignment"]["podSets"]).enumerate() {
        let mut choices = Vec::new();
        for (resource, choice) in entries(&pod_set["flavors"]) {
            let mode = match text(choice, "mode") {
                "NoFit" => Mode::NoFit,
                "Preempt" => Mode::Preempt,
                "Fit" => Mode::Fit,
                other => return Err(format!("unknown mode {other}")),
            };
            let pair = names.intern(text(choice, "flavor"), resource);
            let (flavor, resource) = names.flavor_resource(pair);
            choices.push(FlavorChoice { resource, flavor, pair, mode, borrow: 0, tried: None });
            if flavors.get(flavor).is_none() {
                flavors.set(flavor, FlavorSpec::default());
            }
        }
        pod_sets.push(PodSetResult {
            pod_set: i,
            count: pod_set["count"].as_i64().and_then(|n| i32::try_from(n).ok()).unwrap_or(0),
            requests: Vec::new(),
            flavors: choices,
            reasons: Vec::new(),
            error: None,
            attempts: Vec::new(),
            topology: None,
            delayed: None::<DelayedTopology>,
        });
    }
    let group = GroupView {
        resources: Vec::new(),
        flavors: flavors.iter().map(|(flavor, _)| GroupFlavor { flavor, pairs: Vec::new() }).collect(),
    };
    let view = ClusterQueueView::from_groups(
        NodeId::from_index(0),
        vec![group],
        FlavorFungibility::default(),
        false,
        UndeclaredResources::Block,
        &names,
    );
    let mode = pod_sets.iter().map(PodSetResult::mode).min().unwrap_or(Mode::NoFit);
    let assignment = Assignment { pod_sets, mode, borrowing: 0, usage: Vec::new(), no_fit: None };
    Ok(Given { names, flavors, view, assignment })
}

fn total_requests(case: &Value) -> Result<()> {
    let mut given = given(case)?;
    let mut owned = Vec::new();
    for pod_set in items(&case["workloadRequests"]["podSets"]) {
        let read = |value: &Value, names: &mut Names| -> (i32, Requests) {
            let count = value["count"].as_i64().and_then(|n| i32::try_from(n).ok()).unwrap_or(0);
            let requests = entries(&value["requests"]);
            (count, requests.map(|(r, q)| (names.intern_resource(r), q.as_i64().unwrap_or(0))).collect())
        };
        let (count, requests) = read(pod_set, &mut given.names);
        let replaced = items(&case["replacedSlice"]["podSets"]).find(|p| p["name"] == pod_set["name"]);
        let replaces = replaced.map(|old| read(old, &mut given.names)).map(|(count, r)| (count, r, Vec::new()));
        owned.push(OwnedPodSet {
            name: text(pod_set, "name").to_owned(),
            count,
            requests,
            group: None,
            eligibility: Eligibility::default(),
            topology: TopologyDemand::None,
            pod_resources: Vec::new(),
            nominated: Vec::new(),
            replaces,
        });
    }
    let borrowed: Vec<PodSetRequest<'_>> = owned.iter().map(OwnedPodSet::borrowed).collect();
    let request = WorkloadRequest {
        pod_sets: &borrowed,
        last: None,
        pinned: false,
        allowed_flavors: None,
        replaces_slice: !case["replacedSlice"].is_null(),
        elastic: false,
        has_unhealthy_nodes: false,
    };
    let got: BTreeMap<String, i64> = given
        .assignment
        .needed(&request)
        .iter()
        .map(|&(pair, amount)| {
            let (flavor, resource) = given.names.flavor_resource(pair);
            let name = format!("{}/{}", given.names.flavor_name(flavor), given.names.resource_name(resource));
            (name, amount.value())
        })
        .collect();
    let want: BTreeMap<String, i64> =
        entries(&case["expect"]["usage"]).map(|(p, a)| (p.clone(), a.as_i64().unwrap_or(0))).collect();
    expect_eq("usage", &got, &want)
}

fn topology_requests_errors(case: &Value) -> Outcome {
    // The recorded input names the flavor as one with a topology; in the original its topology is missing all the same.
    let lost = "topology-requests-errors/workload-requires-topology-but-there-is-no-tas-flavor-assigned";
    match topology_requests(case) {
        Err(_) if text(case, "id") == lost => Outcome::Differs("the recorded input lacks what makes it fail".into()),
        result => result.into(),
    }
}

fn net_usage(case: &Value) -> Result<()> {
    let w = objects::workload(&case["workload"]).map_err(|e| e.to_string())?;
    let mut got = Vec::new();
    for pod_set in items(&case["assignment"]["podSets"]) {
        let new = plain_topology(&pod_set["topologyAssignment"]);
        let held = items(&case["previousAdmission"]["podSetAssignments"]).find(|p| p["name"] == pod_set["name"]);
        let held = held.map(|p| objects::topology_assignment(&p["topologyAssignment"]));
        let held = held.transpose().map_err(|e| e.to_string())?;
        let spec = w.spec.pod_sets.iter().find(|p| &*p.name == text(pod_set, "name"));
        let single: BTreeMap<String, i64> = spec
            .map(|p| p.pod.requests().iter().map(|(r, &q)| (r.to_string(), request_value(r, q))).collect())
            .unwrap_or_default();
        let flavor = entries(&pod_set["flavors"])
            .map(|(_, choice)| text(choice, "flavor"))
            .find(|f| items(&case["tasFlavors"]).any(|t| t == f));
        for domain in additional_domains(&new, held.as_ref()) {
            got.push(json!({"count": domain.count, "domain": domain.values, "flavor": flavor, "podRequests": single}));
        }
    }
    let want: Vec<Value> = items(&case["expect"]["tasUsage"]).cloned().collect();
    expect_eq("usage of topologies", &got, &want)
}

/// A topology assignment that is not encoded.
fn plain_topology(value: &Value) -> TopologyAssignment {
    let texts = |value: &Value| items(value).filter_map(Value::as_str).map(Into::into).collect();
    let domain = |d: &Value| TopologyDomain {
        values: texts(&d["values"]),
        count: d["count"].as_i64().and_then(|n| i32::try_from(n).ok()).unwrap_or(0),
    };
    TopologyAssignment { levels: texts(&value["levels"]), domains: items(&value["domains"]).map(domain).collect() }
}

fn topology_requests(case: &Value) -> Result<()> {
    let mut given = given(case)?;
    let w = objects::workload(&case["workload"]).map_err(|e| e.to_string())?;
    let owned = pod_sets(case, &w, &given.flavors, &mut given.names)?;
    let borrowed: Vec<PodSetRequest<'_>> = owned.iter().map(OwnedPodSet::borrowed).collect();
    let elastic = w.annotations.get("kueue.x-k8s.io/elastic-job").is_some_and(|v| **v == *"true");
    let request = WorkloadRequest {
        pod_sets: &borrowed,
        last: None,
        pinned: false,
        allowed_flavors: None,
        replaces_slice: !case["replacedSlice"].is_null(),
        elastic,
        has_unhealthy_nodes: false,
    };
    let placer = Nodes::of_flavors(&given.flavors);
    let requests = placement_requests(&given.view, &request, features(case), &placer, &mut given.assignment);
    let expect = &case["expect"];
    if let Some(count) = expect["tasRequests"].as_u64() {
        let flavors: BTreeSet<FlavorId> = requests.iter().map(|r| r.flavor).collect();
        expect_eq("tasRequests", &u64::try_from(flavors.len()).unwrap_or(0), &count)?;
    }
    if let Some(names) = expect["podSetsWithRequests"].as_array() {
        let got: Vec<&str> = requests.iter().map(|r| owned[r.pod_set].name.as_str()).collect();
        let want: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
        expect_eq("podSetsWithRequests", &got, &want)?;
    }
    if let Some(mode) = expect["mode"].as_str() {
        expect_eq("mode", &given.assignment.mode.as_str(), &mode)?;
    }
    let catalogue = Catalogue { names: &given.names, flavors: &given.flavors };
    for (result, want) in given.assignment.pod_sets.iter().zip(items(&expect["podSets"])) {
        let error = result.error.as_ref().map(|e| catalogue.impossible(e)).unwrap_or_default();
        expect_eq("error", &error.as_str(), &text(want, "error"))?;
    }
    Ok(())
}
