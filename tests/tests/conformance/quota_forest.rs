//! The suites about the quota forest.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;
use slicegate_quota::{Amount, FlavorResourceId, Forest, Names, NodeId, NodeKind, Share, Weight};
use slicegate_tests::objects;
use slicegate_workload::{Key, RequestOptions, Workload, WorkloadUsage};

use super::{Result, Suite, integers, strings, text, weight, workload};
use crate::report::{Report, expect_close, expect_eq};

pub(super) fn run(corpus: &Path, kind: &str, report: &mut Report) {
    let suites: [Suite; 10] = [
        ("available", available),
        ("snapshot", snapshot),
        ("snapshot-add-remove", snapshot_add_remove),
        ("ancestors", ancestors),
        ("cohort-cycles", cohort_cycles),
        ("delete-cohort", delete_cohort),
        ("cohort-lendable", cohort_lendable),
        ("dominant-resource-share", dominant_resource_share),
        ("is-borrowing-on", is_borrowing_on),
        ("precise-weighted-share", precise_weighted_share),
    ];
    for (suite, case) in suites {
        report.suite(corpus, kind, suite, case);
    }
}

/// A forest with the names of its pairs.
#[derive(Default)]
struct Setup {
    names: Names,
    forest: Forest,
}

impl Setup {
    fn of(objects: &Value) -> Result<Self> {
        let mut setup = Self::default();
        for kind in ["Cohort", "ClusterQueue"] {
            for object in objects::of_kind(objects, kind) {
                setup.set(object)?;
            }
        }
        Ok(setup)
    }

    fn set(&mut self, object: &Value) -> Result {
        if object["kind"] == "Cohort" {
            let spec = objects::cohort(object).map_err(|e| e.to_string())?;
            self.forest.set_cohort(&spec.name, spec.node_quota(&mut self.names));
        } else {
            let spec = objects::cluster_queue(object).map_err(|e| e.to_string())?;
            self.forest.set_cluster_queue(&spec.name, spec.node_quota(&mut self.names));
        }
        Ok(())
    }

    fn cluster_queue(&self, name: &str) -> Result<NodeId> {
        self.forest.cluster_queue(name).ok_or_else(|| format!("there is no ClusterQueue {name:?}"))
    }

    fn pair(&mut self, name: &str) -> FlavorResourceId {
        let (flavor, resource) = name.split_once('/').unwrap_or((name, ""));
        self.names.intern(flavor, resource)
    }

    fn pair_name(&self, pair: FlavorResourceId) -> String {
        let (flavor, resource) = self.names.flavor_resource(pair);
        format!("{}/{}", self.names.flavor_name(flavor), self.names.resource_name(resource))
    }

    /// An object of amounts by `flavor/resource`.
    fn amounts(&mut self, value: &Value) -> Vec<(FlavorResourceId, Amount)> {
        integers(value).iter().map(|(name, &n)| (self.pair(name), Amount::new(n))).collect()
    }

    /// Adds `usage`: amounts by ClusterQueue.
    fn use_up(&mut self, usage: &Value) -> Result {
        for (name, amounts) in usage.as_object().into_iter().flatten() {
            let id = self.cluster_queue(name)?;
            for (pair, amount) in self.amounts(amounts) {
                self.forest.add_usage(id, pair, amount);
            }
        }
        Ok(())
    }

    /// Counts a workload that holds quota, or stops counting it.
    fn count(&mut self, workload: &Workload, add: bool) {
        let Some(admission) = &workload.status.admission else { return };
        let Some(id) = self.forest.cluster_queue(&admission.cluster_queue) else { return };
        let usage = WorkloadUsage::of(&workload.admitted_totals(&RequestOptions::default()));
        for ((flavor, resource), &amount) in &usage.assigned {
            let pair = self.names.intern(flavor, resource);
            if add {
                self.forest.add_usage(id, pair, Amount::new(amount));
            } else {
                self.forest.remove_usage(id, pair, Amount::new(amount));
            }
        }
    }

    /// Compares amounts by pair; those that are 0 may be left out.
    fn expect_amounts(
        &mut self,
        what: &str,
        want: &Value,
        get: impl Fn(&Forest, FlavorResourceId) -> Amount,
    ) -> Result {
        let all: Vec<FlavorResourceId> = {
            let count = self.names.pair_count();
            let mut all: BTreeSet<FlavorResourceId> = (0..count).map(FlavorResourceId::from_index).collect();
            all.extend(self.amounts(want).iter().map(|(pair, _)| *pair));
            all.into_iter().collect()
        };
        let wanted: BTreeMap<FlavorResourceId, Amount> = self.amounts(want).into_iter().collect();
        let named = |amounts: Vec<(FlavorResourceId, Amount)>| -> BTreeMap<String, i64> {
            let counted = amounts.into_iter().filter(|(_, amount)| *amount != Amount::ZERO);
            counted.map(|(pair, amount)| (self.pair_name(pair), amount.value())).collect()
        };
        let got = named(all.iter().map(|&pair| (pair, get(&self.forest, pair))).collect());
        expect_eq(what, &got, &named(wanted.into_iter().collect()))
    }

    /// Compares every node that `want` lists with the forest, and the forest's nodes with `want`.
    fn expect_nodes(&mut self, want: &Value) -> Result {
        let inactive = strings(&want["inactiveClusterQueues"]);
        for (section, kind) in [("clusterQueues", NodeKind::ClusterQueue), ("cohorts", NodeKind::Cohort)] {
            let nodes = self.forest.nodes().filter(|&id| self.forest.kind(id) == kind && !self.forest.is_cyclic(id));
            let names: BTreeSet<String> = nodes.map(|id| self.forest.name(id).to_owned()).collect();
            let names: BTreeSet<String> = names.into_iter().filter(|n| !inactive.contains(n)).collect();
            let wanted: BTreeSet<String> =
                want[section].as_object().into_iter().flatten().map(|(n, _)| n.clone()).collect();
            expect_eq(section, &names, &wanted)?;
            for name in names {
                self.expect_node(kind, &name, &want[section][&name])?;
            }
        }
        Ok(())
    }

    fn expect_node(&mut self, kind: NodeKind, name: &str, want: &Value) -> Result {
        let id = match kind {
            NodeKind::ClusterQueue => self.forest.cluster_queue(name),
            NodeKind::Cohort => self.forest.cohort(name),
        };
        let id = id.ok_or_else(|| format!("there is no node {name:?}"))?;
        let parent = self.forest.parent(id).map(|p| self.forest.name(p).to_owned());
        expect_eq(&format!("parent of {name}"), &parent.as_deref(), &want["parent"].as_str())?;
        if !want["fairWeight"].is_null() {
            expect_eq(&format!("weight of {name}"), &self.forest.weight(id), &weight(&want["fairWeight"]))?;
        }
        let quotas = want["quotas"].as_object().cloned().unwrap_or_default();
        for (pair, quota) in &quotas {
            let pair = self.pair(pair);
            let limits = self.forest.limits(id, pair);
            let got = [Some(limits.nominal), limits.borrowing, limits.lending].map(|a| a.map(Amount::value));
            let want = ["nominal", "borrowingLimit", "lendingLimit"].map(|key| quota[key].as_i64());
            let want = [want[0].or(Some(0)), want[1], want[2]];
            expect_eq(&format!("nominal, borrowing and lending of {name}"), &got, &want)?;
        }
        self.expect_amounts(&format!("subtree quota of {name}"), &want["subtreeQuota"], |f, p| f.subtree_quota(id, p))?;
        self.expect_amounts(&format!("usage of {name}"), &want["usage"], |f, p| f.usage(id, p))?;
        if kind == NodeKind::ClusterQueue {
            // A ClusterQueue is only asked about pairs of its own.
            let own: BTreeSet<FlavorResourceId> = self.forest.pairs(id).collect();
            let if_own = |pair, amount| if own.contains(&pair) { amount } else { Amount::ZERO };
            self.expect_amounts(&format!("available to {name}"), &want["available"], |f, p| {
                if_own(p, f.available(id, p))
            })?;
            self.expect_amounts(&format!("potential of {name}"), &want["potentialAvailable"], |f, p| {
                if_own(p, f.potential(id, p))
            })?;
        }
        Ok(())
    }
}

fn workloads(case: &Value) -> Result<BTreeMap<Key, Workload>> {
    objects::of_kind(&case["objects"], "Workload").map(|o| workload(o).map(|w| (w.key.clone(), w))).collect()
}

fn available(case: &Value) -> Result {
    let mut setup = Setup::of(&case["objects"])?;
    setup.expect_nodes(&case["expectBefore"])?;
    setup.use_up(&case["usage"])?;
    setup.expect_nodes(&case["expect"])
}

/// Quota and usage only: what is used of topologies is not the forest's business, nor which ClusterQueues are inactive.
fn snapshot(case: &Value) -> Result {
    let mut setup = Setup::of(&case["objects"])?;
    for workload in workloads(case)?.values().filter(|w| w.has_active_quota_reservation()) {
        setup.count(workload, true);
    }
    setup.expect_nodes(&case["expect"])
}

fn snapshot_add_remove(case: &Value) -> Result {
    let mut setup = Setup::of(&case["objects"])?;
    let workloads = workloads(case)?;
    let find = |name: &String| {
        let (namespace, name) = name.split_once('/').unwrap_or(("", name));
        workloads.get(&Key::new(namespace, name)).ok_or_else(|| format!("there is no workload {name:?}"))
    };
    for workload in workloads.values() {
        setup.count(workload, true);
    }
    let mark = setup.forest.mark();
    for name in &strings(&case["remove"]) {
        setup.count(find(name)?, false);
    }
    for name in &strings(&case["add"]) {
        setup.count(find(name)?, true);
    }
    setup.expect_nodes(&case["expect"])?;
    setup.forest.rollback(mark);
    let mut before = Setup::of(&case["objects"])?;
    for workload in workloads.values() {
        before.count(workload, true);
    }
    for id in before.forest.nodes().collect::<Vec<_>>() {
        for pair in before.forest.tree_pairs(id).to_vec() {
            expect_eq("usage after rollback", &setup.forest.usage(id, pair), &before.forest.usage(id, pair))?;
        }
    }
    Ok(())
}

fn ancestors(case: &Value) -> Result {
    let mut setup = Setup::of(&case["objects"])?;
    let mut start = None;
    if case["clusterQueue"].is_object() {
        setup.set(&case["clusterQueue"])?;
        start = setup.forest.cluster_queue(objects::name_of(&case["clusterQueue"]));
    } else if case["workload"].is_object() {
        let admission = workload(&case["workload"])?.status.admission;
        start = admission.and_then(|a| setup.forest.cluster_queue(&a.cluster_queue));
    } else if let Some(name) = case["cohort"].as_str() {
        start = setup.forest.cohort(name);
    }
    let forest = &setup.forest;
    let mut path: Vec<NodeId> =
        start.into_iter().chain(start.into_iter().flat_map(|id| forest.ancestors(id))).collect();
    if start.is_some_and(|id| forest.kind(id) == NodeKind::ClusterQueue) {
        path.remove(0);
    }
    if case["clusterQueue"].is_object() {
        path.pop();
    }
    let is_cyclic = start.is_some_and(|id| forest.is_cyclic(id));
    expect_eq("cycle", &is_cyclic, &case["expect"]["error"].is_string())?;
    if is_cyclic {
        path.clear();
    }
    let names = path.into_iter().map(|id| forest.name(id).to_owned()).collect();
    expect_eq("ancestors", &names, &strings(&case["expect"]["ancestors"]))
}

fn cohort_cycles(case: &Value) -> Result {
    let mut setup = Setup::default();
    let steps = case["steps"].as_array().into_iter().flatten();
    let wanted = case["expect"]["steps"].as_array().into_iter().flatten();
    for (i, (step, want)) in steps.zip(wanted).enumerate() {
        setup.set(&step["object"])?;
        let name = objects::name_of(&step["object"]);
        if text(step, "op") == "upsertCohort" {
            let is_cyclic = setup.forest.cohort(name).is_some_and(|id| setup.forest.is_cyclic(id));
            expect_eq(&format!("step {i}: cycle"), &Some(is_cyclic), &want["error"].as_bool())?;
        }
        for (name, amounts) in want["subtreeQuota"].as_object().into_iter().flatten() {
            let Some(id) = setup.forest.cohort(name) else {
                return Err(format!("step {i}: there is no Cohort {name:?}"));
            };
            if !setup.forest.is_cyclic(id) {
                let what = format!("step {i}: subtree quota of {name}");
                setup.expect_amounts(&what, amounts, |f, p| f.subtree_quota(id, p))?;
            }
        }
    }
    Ok(())
}

fn delete_cohort(case: &Value) -> Result {
    let mut setup = Setup::of(&case["objects"])?;
    let expect = |setup: &mut Setup, want: &Value| -> Result {
        let cohorts = setup.forest.nodes().filter(|&id| setup.forest.kind(id) == NodeKind::Cohort);
        let names: BTreeSet<String> = cohorts.map(|id| setup.forest.name(id).to_owned()).collect();
        let wanted: BTreeSet<String> =
            want["subtreeQuota"].as_object().into_iter().flatten().map(|(n, _)| n.clone()).collect();
        expect_eq("cohorts", &names, &wanted)?;
        for name in names {
            let Some(id) = setup.forest.cohort(&name) else { continue };
            let what = format!("subtree quota of {name}");
            setup.expect_amounts(&what, &want["subtreeQuota"][&name], |f, p| f.subtree_quota(id, p))?;
        }
        Ok(())
    };
    expect(&mut setup, &case["expectBefore"])?;
    if let Some(id) = setup.forest.cohort(text(case, "delete")) {
        setup.forest.remove(id);
    }
    expect(&mut setup, &case["expect"])
}

fn cohort_lendable(case: &Value) -> Result {
    let setup = Setup::of(&case["objects"])?;
    let Some(cohort) = setup.forest.cohort(text(case, "cohort")) else { return Err("there is no cohort".to_owned()) };
    let lendable = |resource: &str| {
        let id = setup.names.resource(resource)?;
        Some((resource.into(), setup.forest.lendable(cohort, id, &setup.names).value()))
    };
    let want = integers(&case["expect"]["lendable"]);
    expect_eq("lendable", &want.keys().filter_map(|r| lendable(r)).collect(), &want)?;
    let resources: BTreeSet<&str> =
        setup.forest.pairs(cohort).map(|p| setup.names.resource_name(setup.names.flavor_resource(p).1)).collect();
    expect_eq("resources", &resources, &want.keys().map(|r| &**r).collect())
}

fn dominant_resource_share(case: &Value) -> Result {
    let mut setup = Setup::of(&case["objects"])?;
    setup.use_up(&case["usage"])?;
    let extra = setup.amounts(&case["simulatedRequests"]);
    let (forest, names) = (&setup.forest, &setup.names);
    for want in case["expect"]["nodes"].as_array().into_iter().flatten() {
        let name = text(want, "name");
        let is_queue = want["kind"] == "ClusterQueue";
        let id = if is_queue { forest.cluster_queue(name) } else { forest.cohort(name) };
        let Some(id) = id else { return Err(format!("there is no node {name:?}")) };
        let share = forest.share(id, &extra, names);
        expect_eq(&format!("share of {name}"), &Some(share.rounded()), &want["share"].as_i64())?;
        let precise = text(want, "preciseShare").replace("+Inf", "inf").parse::<f64>().unwrap_or(f64::NAN);
        expect_close(&format!("precise share of {name}"), share.weighted(), precise)?;
        let resource = share.resource().map_or("", |r| names.resource_name(r));
        expect_eq(&format!("dominant resource of {name}"), &resource, &text(want, "resource"))?;
        expect_eq(&format!("{name} borrows"), &Some(share.is_borrowing()), &want["borrowing"].as_bool())?;
        let borrowed: BTreeSet<String> = forest.borrowed(id, &extra).map(|(pair, _)| setup.pair_name(pair)).collect();
        expect_eq(&format!("{name} borrows on"), &borrowed, &strings(&want["borrowedOn"]).into_iter().collect())?;
        // A Cohort that is only named has no weight in Kueue; it has no parent either, so the weight never counts.
        if is_queue || objects::of_kind(&case["objects"], "Cohort").any(|o| objects::name_of(o) == name) {
            expect_eq(&format!("weight of {name}"), &forest.weight(id), &weight(&want["fairWeight"]))?;
        }
    }
    Ok(())
}

fn is_borrowing_on(case: &Value) -> Result {
    let mut setup = Setup::of(&case["objects"])?;
    setup.use_up(&case["usage"])?;
    let requested = setup.amounts(&case["requested"]);
    let id = setup.cluster_queue("cq")?;
    let is_borrowing = setup.forest.share(id, &[], &setup.names).is_borrowing();
    expect_eq("borrowing", &Some(is_borrowing), &case["expect"]["borrowing"].as_bool())?;
    let on_requested = setup.forest.is_borrowing_on(id, &requested);
    expect_eq("borrowing on requested", &Some(on_requested), &case["expect"]["borrowingOnRequested"].as_bool())
}

fn precise_weighted_share(case: &Value) -> Result {
    let weight: Weight = weight(&case["fairWeight"]);
    let got = Share::of(case["unweightedRatio"].as_u64().unwrap_or(0), 1000, weight).weighted();
    let text = if got.is_infinite() { "+Inf".to_owned() } else { got.to_string() };
    expect_eq("share", &Some(text.as_str()), &case["expect"]["share"].as_str())
}
