//! Topology-aware placement. The suites about encoding are run by `encoding`.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use slicegate_placement::steps::{Board, Parameters};
use slicegate_placement::{
    Counts, Features, Node, OtherPods, Placement, PlacementUsage, PodRequest, PodSetRequest, Profile, Reach,
    Replacement, Topologies, Tree, admission_uses_node, compare_domains, is_within, merge, pod_set_uses_node, truncate,
};
use slicegate_quota::Names;
use slicegate_tests::objects;
use slicegate_workload::{
    FlavorSpec, Labels, PodSpec, Requests, TopologyAssignment, TopologyDomain, TopologyRequest, TopologySpec, Workload,
};

use crate::report::{Report, expect_eq};

type Result<T = ()> = std::result::Result<T, String>;

/// A suite and what to do with each of its cases.
type Suite = (&'static str, fn(&Value) -> Result);

/// Runs every suite of the kind.
pub(crate) fn run(corpus: &Path, kind: &str, report: &mut Report) {
    let suites: [Suite; 19] = [
        ("assignment-stale", assignment_stale),
        ("assignment-uses-node", assignment_uses_node),
        ("assumed-usage", assumed_usage),
        ("balanced-find-best", balanced_find_best),
        ("balanced-order-capacity-entropy", balanced_order),
        ("balanced-place-slices", balanced_place_slices),
        ("balanced-prune", balanced_prune),
        ("balanced-select-domain-set", balanced_select),
        ("compare-domain-level-values", compare_level_values),
        ("domain-belongs-to", domain_belongs_to),
        ("has-level", has_level),
        ("merge-assignments", merge_assignments),
        ("multi-layer-replacement", topology_assignments),
        ("nodes-of-flavor", nodes_of_flavor),
        ("non-tas-pod-usage", other_pod_usage),
        ("sorted-domains", sorted_domains),
        ("sorted-domains-with-leader", sorted_domains_with_leader),
        ("topology-assignments", topology_assignments),
        ("truncate-assignment", truncate_assignment),
    ];
    for (suite, case) in suites {
        report.suite(corpus, kind, suite, case);
    }
}

// ----- reading cases ---------------------------------------------------------------------------------------------------

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

fn int(value: &Value, key: &str) -> i32 {
    value[key].as_i64().and_then(|n| i32::try_from(n).ok()).unwrap_or_default()
}

fn size(value: &Value, key: &str) -> usize {
    value[key].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or_default()
}

fn gate(case: &Value, name: &str, default: bool) -> bool {
    case["config"]["featureGates"][name].as_bool().unwrap_or(default)
}

fn strings(value: &Value, key: &str) -> Vec<Box<str>> {
    list(value, key).map(|v| v.as_str().unwrap_or_default().into()).collect()
}

fn labels(value: &Value) -> Labels {
    let pairs = value.as_object().into_iter().flatten();
    pairs.map(|(k, v)| (k.as_str().into(), v.as_str().unwrap_or_default().into())).collect()
}

fn requests(value: &Value) -> Requests {
    let amounts = value.as_object().into_iter().flatten();
    amounts.map(|(r, n)| (r.as_str(), n.as_i64().unwrap_or_default())).collect()
}

/// An assignment with plain domains.
fn plain(value: &Value) -> TopologyAssignment {
    let domains = list(value, "domains");
    TopologyAssignment {
        levels: strings(value, "levels"),
        domains: domains.map(|d| TopologyDomain { values: strings(d, "values"), count: int(d, "count") }).collect(),
    }
}

fn topology_request(value: &Value) -> Result<Option<TopologyRequest>> {
    if value.is_null() {
        return Ok(None);
    }
    let pod_set = serde_json::json!({ "spec": { "podSets": [{ "name": "m", "count": 1, "topologyRequest": value }] } });
    let workload = objects::workload(&pod_set).map_err(|e| e.to_string())?;
    Ok(workload.spec.pod_sets.into_iter().next().and_then(|p| p.topology_request))
}

/// A Node.
pub(crate) fn node(object: &Value) -> Result<Node> {
    objects::node(object).map_err(|e| e.to_string())
}

fn nodes(case: &Value) -> Result<Vec<Node>> {
    objects::of_kind(&case["objects"], "Node").map(node).collect()
}

/// The annotations of pods that are placed by topology.
const PLACED_BY_TOPOLOGY: [&str; 5] = [
    "kueue.x-k8s.io/podset-required-topology",
    "kueue.x-k8s.io/podset-preferred-topology",
    "kueue.x-k8s.io/podset-unconstrained-topology",
    "kueue.x-k8s.io/podset-slice-required-topology",
    "kueue.x-k8s.io/podset-slice-required-topology-constraints",
];

/// The pods that are on nodes, have not ended and have no place by topology: key, node and requests.
pub(crate) fn other_pods(objects: &Value) -> Result<Vec<(String, String, Requests)>> {
    let mut pods = Vec::new();
    for object in objects::of_kind(objects, "Pod") {
        let ended = matches!(text(&object["status"], "phase"), "Succeeded" | "Failed");
        let node = text(&object["spec"], "nodeName");
        let annotations = &object["metadata"]["annotations"];
        if ended || node.is_empty() || PLACED_BY_TOPOLOGY.iter().any(|a| !annotations[*a].is_null()) {
            continue;
        }
        let spec = objects::pod_spec(&object["spec"]).map_err(|e| e.to_string())?;
        let key = format!("{}/{}", text(&object["metadata"], "namespace"), objects::name_of(object));
        pods.push((key, node.to_owned(), Requests::from(&spec.requests())));
    }
    Ok(pods)
}

fn pods_of(case: &Value) -> Result<OtherPods> {
    let mut pods = OtherPods::new();
    for (key, node, requests) in other_pods(&case["objects"])? {
        pods.insert(&key, &node, requests);
    }
    Ok(pods)
}

fn by_name(requests: &Requests) -> BTreeMap<String, i64> {
    requests.iter().filter(|(_, n)| *n != 0).map(|(r, n)| (r.to_owned(), n)).collect()
}

// ----- assignments -----------------------------------------------------------------------------------------------------

/// A tree whose leaves have these values.
fn tree_of<'a>(levels: &[Box<str>], leaves: impl Iterator<Item = Vec<&'a str>>) -> Tree {
    let node = |(i, values): (usize, Vec<&str>)| Node {
        name: format!("{i:09}").into(),
        labels: levels.iter().cloned().zip(values.into_iter().map(Into::into)).collect(),
        ready: true,
        ..Node::default()
    };
    let nodes: Vec<Node> = leaves.enumerate().map(node).collect();
    let topology = TopologySpec { name: "default".into(), levels: levels.to_vec() };
    Tree::new(&FlavorSpec::default(), &topology, &nodes)
}

fn assignment_stale(case: &Value) -> Result {
    let levels = strings(case, "levels");
    let leaves = list(case, "leaves").map(|leaf| {
        let mut values: Vec<&str> = leaf.as_str().unwrap_or_default().split(',').collect();
        while values.len() < levels.len() {
            values.insert(0, "");
        }
        values
    });
    let tree = tree_of(&levels, leaves);
    let assignment = plain(&case["assignment"]);
    let stale = tree.stale_domain(&assignment);
    expect_eq("stale", &Some(stale.is_some()), &case["expect"]["stale"].as_bool())?;
    let domain = stale.and_then(|values| values.first()).map_or("", |v| v);
    expect_eq("domain", &domain, &text(&case["expect"], "staleDomain"))
}

fn assignment_uses_node(case: &Value) -> Result {
    let node = text(case, "node");
    let used = if case["podSetAssignment"].is_object() {
        let wrapped = serde_json::json!({ "clusterQueue": "", "podSetAssignments": [case["podSetAssignment"]] });
        let admission = objects::admission(&wrapped).map_err(|e| e.to_string())?;
        admission.pod_set_assignments.first().is_some_and(|p| pod_set_uses_node(p, node))
    } else if case["admission"].is_object() {
        admission_uses_node(&objects::admission(&case["admission"]).map_err(|e| e.to_string())?, node)
    } else {
        false
    };
    expect_eq("used", &Some(used), &case["expect"]["used"].as_bool())
}

fn merge_assignments(case: &Value) -> Result {
    let got = merge(&plain(&case["a"]), &plain(&case["b"]));
    expect_eq("assignment", &got, &plain(&case["expect"]["assignment"]))
}

fn truncate_assignment(case: &Value) -> Result {
    let got = truncate(&plain(&case["assignment"]), int(case, "newCount"));
    expect_eq("assignment", &got, &plain(&case["expect"]["assignment"]))
}

fn compare_level_values(case: &Value) -> Result {
    let sign = compare_domains(&strings(case, "a"), &strings(case, "b")) as i64;
    expect_eq("sign", &Some(sign), &case["expect"]["sign"].as_i64())
}

fn domain_belongs_to(case: &Value) -> Result {
    let values = |key: &str| -> Vec<String> {
        text(case, key).split(',').filter(|v| !v.is_empty()).map(str::to_owned).collect()
    };
    let got = is_within(&values("domain"), &values("target"));
    expect_eq("belongs", &Some(got), &case["expect"]["belongs"].as_bool())
}

fn has_level(case: &Value) -> Result {
    let tree = tree_of(&strings(case, "levels"), std::iter::empty());
    let request = topology_request(&case["topologyRequest"])?;
    let got = request.is_some_and(|r| tree.supports(&r));
    expect_eq("has level", &Some(got), &case["expect"]["hasLevel"].as_bool())
}

// ----- nodes and usage -------------------------------------------------------------------------------------------------

fn nodes_of_flavor(case: &Value) -> Result {
    let flavor = FlavorSpec { node_labels: labels(&case["flavorNodeLabels"]), ..FlavorSpec::default() };
    let topology = TopologySpec { name: "default".into(), levels: strings(case, "levels") };
    let all = nodes(case)?;
    let mut got: Vec<Box<str>> = all.into_iter().filter(|n| n.is_of(&flavor, &topology)).map(|n| n.name).collect();
    got.sort();
    let mut want = strings(&case["expect"], "nodes");
    want.sort();
    expect_eq("nodes", &got, &want)
}

fn other_pod_usage(case: &Value) -> Result {
    let pods = pods_of(case)?;
    let got: BTreeMap<String, _> = pods.iter().map(|(node, usage)| (node.to_owned(), by_name(usage))).collect();
    let want = case["expect"]["nodeUsage"].as_object().into_iter().flatten();
    let want = want.map(|(node, usage)| (node.clone(), by_name(&requests(usage)))).collect();
    expect_eq("usage", &got, &want)
}

/// The usage of domains is what is missing of large nodes of their names.
fn assumed_usage(case: &Value) -> Result {
    const LARGE: i64 = 1 << 40;
    const RESOURCES: [&str; 3] = ["cpu", "memory", "pods"];
    let assignment = plain(&case["assignment"]);
    let level = assignment.levels.first().cloned().unwrap_or_default();
    let before = case["assumedUsage"].as_object().into_iter().flatten();
    let mut usage: BTreeMap<Box<str>, Requests> = before.map(|(d, u)| (d.as_str().into(), requests(u))).collect();
    for domain in &assignment.domains {
        usage.entry(domain.values.join(",").into()).or_default();
    }
    let node = |domain: &str| Node {
        name: domain.into(),
        labels: [(level.clone(), domain.into())].into(),
        ready: true,
        allocatable: RESOURCES.map(|r| (r, LARGE)).into_iter().collect(),
        ..Node::default()
    };
    let nodes: Vec<Node> = usage.keys().map(|d| node(d)).collect();
    let mut names = Names::new();
    let mut topologies = Topologies::new(Features::default());
    let flavor = FlavorSpec { name: "flavor".into(), ..FlavorSpec::default() };
    let topology = TopologySpec { name: "default".into(), levels: vec![level.clone()] };
    topologies.set(&flavor, &topology, &nodes, &OtherPods::new(), &mut names);
    let flavor = names.intern_flavor("flavor");
    let request = PodRequest::new(&requests(&case["podRequests"]), &mut names);
    topologies.add(&topologies.usage(flavor, &assignment, &request), Reach::Node);
    let tree = topologies.tree(flavor).ok_or("the flavor has no topology")?;
    for (domain, usage) in &mut usage {
        let leaf = tree.find_leaf(&[domain]).ok_or("the domain has no leaf")?;
        for resource in RESOURCES {
            let left = names.resource(resource).map_or(0, |r| topologies.left(flavor, leaf, r));
            usage.add(resource, LARGE - left);
        }
    }
    let got: BTreeMap<String, _> = usage.iter().map(|(domain, usage)| (domain.to_string(), by_name(usage))).collect();
    let want = case["expect"]["usage"].as_object().into_iter().flatten();
    let want = want.map(|(domain, usage)| (domain.clone(), by_name(&requests(usage)))).collect();
    expect_eq("usage", &got, &want)
}

// ----- steps -----------------------------------------------------------------------------------------------------------

/// Domains as cases give them: a tree, and their ids by number.
struct Domains {
    tree: Tree,
    ids: Vec<String>,
    counts: Vec<Counts>,
}

impl Domains {
    /// Domains keep the order of their level values or, without those, that in which they are listed.
    fn new(roots: &Value) -> Self {
        let mut paths: Vec<(Vec<String>, &Value)> = Vec::new();
        collect(roots, &[], &mut paths);
        let depth = paths.iter().map(|(path, _)| path.len()).max().unwrap_or(0);
        let levels: Vec<Box<str>> = (0..depth).map(|l| format!("level-{l}").into()).collect();
        let is_leaf = |path: &[String]| !paths.iter().any(|(p, _)| p.len() > path.len() && p.starts_with(path));
        let pad = |path: &'_ [String]| -> Vec<String> {
            let missing = depth.saturating_sub(path.len());
            path.iter().cloned().chain(std::iter::repeat_n(String::new(), missing)).collect()
        };
        let leaves: Vec<Vec<String>> = paths.iter().filter(|(p, _)| is_leaf(p)).map(|(p, _)| pad(p)).collect();
        let tree = tree_of(&levels, leaves.iter().map(|p| p.iter().map(String::as_str).collect()));
        let board = Board::new(&tree, Parameters::default());
        let mut ids = vec![String::new(); board.counts.len()];
        let mut counts = board.counts.clone();
        for (path, domain) in &paths {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            let Some(number) = board.domain(&path) else { continue };
            text(domain, "id").clone_into(&mut ids[number]);
            counts[number] = Counts {
                pods: int(domain, "podCount"),
                pods_with_leader: int(domain, "podCountWithLeader"),
                slices: int(domain, "sliceCount"),
                slices_with_leader: int(domain, "sliceCountWithLeader"),
                leaders: int(domain, "leaderCount"),
                affinity: domain["affinityScore"].as_i64().unwrap_or_default(),
            };
        }
        Self { tree, ids, counts }
    }

    fn board(&self, parameters: Parameters) -> Board<'_> {
        let mut board = Board::new(&self.tree, parameters);
        board.counts.clone_from(&self.counts);
        board
    }

    fn named(&self, numbers: &[usize]) -> Vec<String> {
        numbers.iter().map(|n| self.ids[*n].clone()).collect()
    }

    /// Ids with counts, in order of the ids.
    fn listed(&self, numbers: impl Iterator<Item = usize>, counts: &[Counts]) -> Vec<(String, Counts)> {
        let mut all: Vec<(String, Counts)> = numbers.map(|n| (self.ids[n].clone(), counts[n])).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }
}

fn collect<'a>(domains: &'a Value, above: &[String], paths: &mut Vec<(Vec<String>, &'a Value)>) {
    for (i, domain) in domains.as_array().into_iter().flatten().enumerate() {
        let values = strings(domain, "levelValues");
        let own = if values.is_empty() { format!("{i:06}") } else { values.join("\u{1}") };
        let path: Vec<String> = above.iter().cloned().chain([own]).collect();
        paths.push((path.clone(), domain));
        collect(&domain["children"], &path, paths);
    }
}

fn sorted(case: &Value, with_leader: bool) -> Result {
    let domains = Domains::new(&case["domains"]);
    let least_free = case["unconstrained"].as_bool() == Some(true) && gate(case, "TASProfileMixed", true);
    let parameters = Parameters {
        profile: if least_free { Profile::LeastFreeCapacity } else { Profile::BestFit },
        affinity: gate(case, "TASRespectNodeAffinityPreferred", false),
        ..Parameters::default()
    };
    let got = domains.named(&domains.board(parameters).sorted(0, with_leader));
    expect_eq("order", &got, &strings(&case["expect"], "order").iter().map(ToString::to_string).collect())
}

fn sorted_domains(case: &Value) -> Result {
    sorted(case, false)
}

fn sorted_domains_with_leader(case: &Value) -> Result {
    sorted(case, true)
}

fn balanced_find_best(case: &Value) -> Result {
    let (domains, params) = (Domains::new(&case["domains"]), &case["params"]);
    let parameters = Parameters {
        level: size(params, "requestedLevelIdx"),
        slice_level: size(params, "sliceLevelIdx"),
        slice_size: int(params, "sliceSize"),
        ..Parameters::default()
    };
    let found = domains.board(parameters).find_balance(int(params, "count"), int(params, "leaderCount"));
    let (threshold, siblings, count) = found.unwrap_or_default();
    let mut want: Vec<String> = strings(&case["expect"], "domains").iter().map(ToString::to_string).collect();
    want.sort();
    let mut got = domains.named(&siblings);
    got.sort();
    expect_eq("threshold", &threshold, &int(&case["expect"], "threshold"))?;
    expect_eq("number of domains", &count, &int(&case["expect"], "domainsCount"))?;
    expect_eq("domains", &got, &want)
}

fn balanced_order(case: &Value) -> Result {
    let domains = Domains::new(&case["domains"]);
    let got = domains.named(&domains.board(Parameters::default()).by_evenness(0));
    expect_eq("order", &got, &strings(&case["expect"], "order").iter().map(ToString::to_string).collect())
}

fn balanced_prune(case: &Value) -> Result {
    let domains = Domains::new(&case["domains"]);
    let parameters = Parameters {
        level: size(case, "level"),
        slice_level: size(case, "sliceLevelIdx"),
        slice_size: int(case, "sliceSize"),
        ..Parameters::default()
    };
    let mut board = domains.board(parameters);
    board.prune(int(case, "threshold"), case["leaderRequired"].as_bool() == Some(true));
    let want = Domains::new(&case["expect"]["domains"]);
    let got = domains.listed(0..board.counts.len(), &board.counts);
    expect_eq("domains", &got, &want.listed(0..want.counts.len(), &want.counts))
}

fn balanced_place_slices(case: &Value) -> Result {
    let domains = Domains::new(&case["domains"]);
    let parameters = Parameters { slice_size: int(case, "sliceSize"), ..Parameters::default() };
    let mut board = domains.board(parameters);
    let found = board.distribute(0, int(case, "sliceCount"), int(case, "leaderCount"), int(case, "threshold"));
    let want = Domains::new(&case["expect"]["domains"]);
    let failed = !text(&case["expect"], "failureReason").is_empty();
    expect_eq("failed", &found.is_none(), &failed)?;
    let got = domains.listed(found.unwrap_or_default().into_iter(), &board.counts);
    expect_eq("domains", &got, &want.listed(0..want.counts.len(), &want.counts))
}

fn balanced_select(case: &Value) -> Result {
    let domains = Domains::new(&case["domains"]);
    let parameters = Parameters { slice_size: int(case, "sliceSize"), ..Parameters::default() };
    let by_evenness = case["prioritizeByEntropy"].as_bool() == Some(true);
    let found = domains.board(parameters).select(0, int(case, "sliceCount"), int(case, "leaderCount"), by_evenness);
    let mut got = domains.named(&found.unwrap_or_default());
    got.sort();
    let mut want: Vec<String> = strings(&case["expect"], "domains").iter().map(ToString::to_string).collect();
    want.sort();
    expect_eq("domains", &got, &want)
}

// ----- whole placements ------------------------------------------------------------------------------------------------

struct PodSetCase {
    name: String,
    count: i32,
    pod: PodSpec,
    request: PodRequest,
    topology: Option<TopologyRequest>,
    group: Option<String>,
    previous: Option<TopologyAssignment>,
}

fn pod_set(value: &Value, names: &mut Names) -> Result<PodSetCase> {
    let pod = serde_json::json!({
        "tolerations": value["tolerations"],
        "nodeSelector": value["nodeSelector"],
        "affinity": { "nodeAffinity": value["nodeAffinity"] },
    });
    let previous = &value["previousAssignment"];
    let topology = topology_request(&value["topologyRequest"])?;
    let group = value["podSetGroupName"].as_str().map(str::to_owned);
    Ok(PodSetCase {
        name: text(value, "name").to_owned(),
        count: int(value, "count"),
        pod: objects::pod_spec(&pod).map_err(|e| e.to_string())?,
        request: PodRequest::new(&requests(&value["podRequests"]), names),
        topology: topology.filter(|_| value["implied"].as_bool() != Some(true)),
        group,
        previous: (!previous.is_null())
            .then(|| objects::topology_assignment(previous).map_err(|e| e.to_string()))
            .transpose()?,
    })
}

/// What a failed node means for a pod set, if its workload has one.
fn replacement<'a>(case: &Value, workload: Option<&'a Workload>, pod_set: &str) -> Option<Replacement<'a>> {
    let workload = workload?;
    let node = workload.status.unhealthy_nodes.first()?;
    let admission = workload.status.admission.as_ref()?;
    let of_pod_set = admission.pod_set_assignments.iter().find(|p| *p.name == *pod_set)?;
    let is_group = workload.annotations.get("kueue.x-k8s.io/is-group-workload").is_some_and(|v| **v == *"true");
    let keep = gate(case, "SkipReassignmentForPodOwnedWorkloads", true) && workload.owned_by_pod && !is_group;
    Some(Replacement { node, existing: of_pod_set.topology_assignment.as_ref()?, keep })
}

fn topology_assignments(case: &Value) -> Result {
    let mut names = Names::new();
    let features = Features {
        mixed_profile: gate(case, "TASProfileMixed", true),
        multi_layer: gate(case, "TASMultiLayerTopology", true),
        overlapping_flavors: gate(case, "TASHandleOverlappingFlavors", true),
        balanced: gate(case, "TASBalancedPlacement", false),
        preferred_affinity: gate(case, "TASRespectNodeAffinityPreferred", false),
        elastic: gate(case, "ElasticJobsViaWorkloadSlices", true)
            && gate(case, "ElasticJobsViaWorkloadSlicesWithTAS", false),
    };
    let flavor =
        FlavorSpec { name: "flavor".into(), node_labels: labels(&case["flavorNodeLabels"]), ..FlavorSpec::default() };
    let other = FlavorSpec { name: "other".into(), ..FlavorSpec::default() };
    let topology = TopologySpec { name: "default".into(), levels: strings(case, "levels") };
    let (all, others) = (nodes(case)?, pods_of(case)?);
    let mut topologies = Topologies::new(features);
    topologies.set(&flavor, &topology, &all, &others, &mut names);
    topologies.set(&other, &topology, &all, &others, &mut names);
    let (id, other) = (names.intern_flavor("flavor"), names.intern_flavor("other"));
    for (key, of) in [("priorOwnUsage", id), ("priorOtherFlavorUsage", other)] {
        for usage in list(case, key) {
            let domain = TopologyDomain { values: strings(usage, "domain"), count: int(usage, "count") };
            let assignment = TopologyAssignment { levels: Vec::new(), domains: vec![domain] };
            let request = PodRequest::new(&requests(&usage["podRequests"]), &mut names);
            let usage = topologies.usage(of, &assignment, &request);
            topologies.add(&usage, Reach::Node);
        }
    }
    let workload = &case["workload"];
    let workload = (!workload.is_null()).then(|| objects::workload(workload).map_err(|e| e.to_string())).transpose()?;
    let pod_sets: Vec<PodSetCase> =
        list(case, "podSets").map(|p| pod_set(p, &mut names)).collect::<Result<Vec<_>>>()?;
    let requests: Vec<PodSetRequest<'_>> = pod_sets
        .iter()
        .map(|p| PodSetRequest {
            name: &p.name,
            count: p.count,
            pod_request: &p.request,
            pod: &p.pod,
            updates: &[],
            topology: p.topology.as_ref(),
            group: p.group.as_deref(),
            flavor: id,
            previous: p.previous.as_ref(),
            replacement: replacement(case, workload.as_ref(), &p.name),
        })
        .collect();
    let placements = topologies.place(&requests, PlacementUsage::Current);
    for want in list(&case["expect"], "podSets") {
        let name = text(want, "name");
        let at = pod_sets.iter().position(|p| p.name == name).ok_or("an expectation without a pod set")?;
        if want["assignment"].is_object() {
            let want = Placement::Placed(plain(&want["assignment"]));
            expect_eq(&format!("pod set {name:?}"), &placements[at], &want)?;
        } else {
            let got = match &placements[at] {
                Placement::Failed(failure) => failure.to_string(),
                other => format!("{other:?}"),
            };
            expect_eq(&format!("pod set {name:?}"), &got, &text(want, "failureReason").to_owned())?;
        }
    }
    Ok(())
}
