//! The rules, held against all that happened in the order in which it happened.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use slicegate_quota::Quantity;

use crate::api::{is_true, items, name, text};
use crate::observe::{Change, Seen};

/// Marks jobs whose Workloads are replaced while they run.
const REPLACES: &str = "/metadata/annotations/kueue.x-k8s.io~1workload-slice-replacement-for";
const QUEUE: &str = "/metadata/labels/kueue.x-k8s.io~1queue-name";

/// Amounts by flavor and resource, in thousandths.
type Amounts = BTreeMap<(String, String), i128>;

/// Which rules were broken at some time:
///
/// - no admission takes a ClusterQueue or Cohort above what it has and may borrow;
/// - at most one Workload of a job holds quota at a time (one that replaces another beside that one);
/// - a Workload that is admitted holds quota.
pub(super) fn violations(all: &[Seen]) -> Vec<String> {
    let mut world = World::default();
    // What was first seen in a list, after a watch was cut, was there before.
    for seen in all.iter().rev().filter(|s| s.change != Change::Deleted) {
        world.node(seen);
    }
    let mut found = Vec::new();
    let mut told = BTreeSet::new();
    for seen in all {
        for violation in world.take(seen) {
            if told.insert(violation.clone()) {
                found.push(format!(
                    "{violation} (seen after {:.2} s, revision {})",
                    seen.at.as_secs_f64(),
                    seen.revision
                ));
            }
        }
    }
    found
}

/// What is left over at the end: Workloads whose job is gone, jobs of a queue that have no Workload.
pub(super) fn leftovers(all: &[Seen]) -> Vec<String> {
    let mut there: BTreeMap<(&str, &str), &Value> = BTreeMap::new();
    for seen in all {
        let key = (seen.kind, text(&seen.object, "/metadata/uid"));
        if seen.change == Change::Deleted {
            there.remove(&key);
        } else {
            there.insert(key, &seen.object);
        }
    }
    let uids: BTreeSet<&str> = there.keys().map(|(_, uid)| *uid).collect();
    let mut found = Vec::new();
    let mut owners: BTreeSet<&str> = BTreeSet::new();
    for ((_, _), workload) in there.iter().filter(|((kind, _), _)| *kind == "workloads") {
        let Some(owner) = job_of(workload) else { continue };
        owners.insert(owner);
        if !uids.contains(owner) {
            found.push(format!("Workload {} is there, and its job is not", path(workload)));
        }
    }
    let jobs = ["jobs", "jobsets", "rayjobs", "rayclusters"];
    for ((kind, uid), job) in there.iter().filter(|((kind, _), _)| jobs.contains(kind)) {
        // What belongs to another job is managed through that.
        let is_owned =
            items(job, "/metadata/ownerReferences").iter().any(|o| o.get("controller") == Some(&true.into()));
        if !text(job, QUEUE).is_empty() && !is_owned && !owners.contains(uid) && !is_finished(job) {
            found.push(format!("{kind} {} waits in a queue, and has no Workload", path(job)));
        }
    }
    found
}

fn path(object: &Value) -> String {
    format!("{}/{}", text(object, "/metadata/namespace"), name(object))
}

fn is_finished(job: &Value) -> bool {
    ["Complete", "Failed", "Completed"].iter().any(|c| is_true(job, c))
        || ["SUCCEEDED", "FAILED", "STOPPED"].contains(&text(job, "/status/jobStatus"))
}

/// The uid of the job that a Workload is for.
fn job_of(workload: &Value) -> Option<&str> {
    let owners = items(workload, "/metadata/ownerReferences");
    let jobs = ["Job", "JobSet", "RayJob", "RayCluster"];
    owners.iter().find(|o| jobs.contains(&text(o, "/kind"))).map(|o| text(o, "/uid"))
}

/// Whether a Workload holds quota.
fn holds(workload: &Value) -> bool {
    is_true(workload, "QuotaReserved") && !is_true(workload, "Finished")
}

#[derive(Default)]
struct World {
    workloads: BTreeMap<String, Value>,
    /// By `c/NAME` for ClusterQueues and `o/NAME` for Cohorts.
    nodes: BTreeMap<String, Value>,
}

impl World {
    fn take(&mut self, seen: &Seen) -> Vec<String> {
        let (gone, object) = (seen.change == Change::Deleted, &seen.object);
        if seen.kind != "workloads" {
            self.node(seen);
            return Vec::new();
        }
        let key = text(object, "/metadata/uid").to_owned();
        let held = self.workloads.get(&key).is_some_and(holds);
        if gone {
            self.workloads.remove(&key);
            return Vec::new();
        }
        self.workloads.insert(key, object.clone());
        let mut found = Vec::new();
        if is_true(object, "Admitted") && !is_true(object, "QuotaReserved") {
            found.push(format!("Workload {} is admitted and holds no quota", path(object)));
        }
        if holds(object) && !held {
            found.extend(self.over_quota(object));
            found.extend(self.twice(object));
        }
        found
    }

    /// A ClusterQueue or Cohort is so now.
    fn node(&mut self, seen: &Seen) {
        let letter = match seen.kind {
            "clusterqueues" => "c",
            "cohorts" => "o",
            _ => return,
        };
        let key = format!("{letter}/{}", name(&seen.object));
        if seen.change == Change::Deleted {
            self.nodes.remove(&key);
        } else {
            self.nodes.insert(key, seen.object.clone());
        }
    }

    /// Other Workloads of the same job that hold quota.
    fn twice(&self, workload: &Value) -> Vec<String> {
        let Some(job) = job_of(workload) else { return Vec::new() };
        let others = self.workloads.values().filter(|w| {
            job_of(w) == Some(job)
                && name(w) != name(workload)
                && holds(w)
                && !replaces(workload, w)
                && !replaces(w, workload)
        });
        others.map(|w| format!("Workloads {} and {} of one job both hold quota", path(w), path(workload))).collect()
    }

    /// What an admission takes above its limits.
    fn over_quota(&self, workload: &Value) -> Vec<String> {
        let queue = format!("c/{}", text(workload, "/status/admission/clusterQueue"));
        let mut found = Vec::new();
        let mut at = Some(queue);
        let mut seen = BTreeSet::new();
        while let Some(key) = at.filter(|k| seen.insert(k.clone())) {
            // A Cohort that ClusterQueues name is there without an object of its own.
            let implicit = Value::Null;
            let node = self.nodes.get(&key).unwrap_or(&implicit);
            let (usage, quota) = (self.usage(&key, 0), self.quota(&key, 0));
            let parent = parent(node);
            for (pair, used) in &usage {
                // What the queue does not take from its own flavors is not this node's matter.
                if !uses(workload).contains_key(pair) {
                    continue;
                }
                let own = quota.get(pair).copied().unwrap_or(0);
                let borrow = limit(node, pair, "borrowingLimit");
                let most = match (&parent, borrow) {
                    (None, _) => Some(own),
                    (Some(_), Some(borrow)) => Some(own.saturating_add(borrow)),
                    (Some(_), None) => None,
                };
                if most.is_some_and(|most| *used > most) {
                    let (flavor, resource) = pair;
                    let (used, most) = (Quantity::from_nanos(used * 1_000_000), most.unwrap_or(0) / 1_000);
                    found.push(format!(
                        "{} {} has {used} of {resource} in flavor {flavor} in use, and may have {most}, when Workload {} is admitted",
                        if key.starts_with("o/") { "Cohort" } else { "ClusterQueue" },
                        key.get(2..).unwrap_or_default(),
                        path(workload)
                    ));
                }
            }
            at = parent.map(|p| format!("o/{p}"));
        }
        found
    }

    /// What a node has for itself and those above it: its own and what its children lend.
    fn quota(&self, key: &str, depth: usize) -> Amounts {
        let mut quota = Amounts::new();
        if let Some(node) = self.nodes.get(key) {
            for (pair, values) in quotas(node) {
                *quota.entry(pair).or_insert(0) += amount(&values["nominalQuota"]);
            }
        }
        for child in self.children(key, depth) {
            let own = self.guaranteed(&child, depth);
            for (pair, has) in self.quota(&child, depth + 1) {
                let kept = own.get(&pair).copied().unwrap_or(0);
                *quota.entry(pair).or_insert(0) += has - kept;
            }
        }
        quota
    }

    /// What a node lends to nobody.
    fn guaranteed(&self, key: &str, depth: usize) -> Amounts {
        let Some(node) = self.nodes.get(key) else { return Amounts::new() };
        let quota = self.quota(key, depth + 1);
        let lends = |pair: &(String, String)| limit(node, pair, "lendingLimit");
        quota.into_iter().filter_map(|(pair, has)| Some((pair.clone(), (has - lends(&pair)?).max(0)))).collect()
    }

    /// What is in use at a node: of its Workloads, or what its children take beyond what is guaranteed to them.
    fn usage(&self, key: &str, depth: usize) -> Amounts {
        let mut usage = Amounts::new();
        if let Some(queue) = key.strip_prefix("c/") {
            for workload in self.workloads.values().filter(|w| holds(w)) {
                if text(workload, "/status/admission/clusterQueue") == queue && !self.is_replaced(workload) {
                    for (pair, used) in uses(workload) {
                        *usage.entry(pair).or_insert(0) += used;
                    }
                }
            }
            return usage;
        }
        for child in self.children(key, depth) {
            let own = self.guaranteed(&child, depth);
            for (pair, used) in self.usage(&child, depth + 1) {
                let kept = own.get(&pair).copied().unwrap_or(0);
                *usage.entry(pair).or_insert(0) += (used - kept).max(0);
            }
        }
        usage
    }

    /// Whether another Workload that holds quota takes this one's place: the two share what they hold.
    fn is_replaced(&self, workload: &Value) -> bool {
        self.workloads.values().any(|w| holds(w) && replaces(w, workload))
    }

    fn children(&self, key: &str, depth: usize) -> Vec<String> {
        // Cohorts that are their own ancestors admit nothing.
        let Some(cohort) = key.strip_prefix("o/").filter(|_| depth < 16) else { return Vec::new() };
        self.nodes.iter().filter(|(_, n)| parent(n).as_deref() == Some(cohort)).map(|(k, _)| k.clone()).collect()
    }
}

fn replaces(newer: &Value, older: &Value) -> bool {
    let named = text(newer, REPLACES);
    !named.is_empty() && (named == path(older) || named == name(older))
}

/// The Cohort above a node.
fn parent(node: &Value) -> Option<String> {
    let names = ["/spec/cohortName", "/spec/parentName", "/spec/cohort", "/spec/parent"];
    names.into_iter().map(|p| text(node, p)).find(|n| !n.is_empty()).map(str::to_owned)
}

/// The quotas that a node states, by flavor and resource.
fn quotas(node: &Value) -> Vec<((String, String), &Value)> {
    let mut found = Vec::new();
    for group in items(node, "/spec/resourceGroups") {
        for flavor in items(group, "/flavors") {
            for resource in items(flavor, "/resources") {
                found.push(((name_of(flavor), name_of(resource)), resource));
            }
        }
    }
    found
}

fn name_of(value: &Value) -> String {
    text(value, "/name").to_owned()
}

fn limit(node: &Value, pair: &(String, String), which: &str) -> Option<i128> {
    let found = quotas(node).into_iter().find(|(p, _)| p == pair)?.1.get(which)?;
    if found.is_null() { None } else { Some(amount(found)) }
}

/// A quantity in thousandths.
fn amount(value: &Value) -> i128 {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    text.parse::<Quantity>().map_or(0, |q| q.nanos() / 1_000_000)
}

/// What a Workload holds, less the share of pods that have ended.
fn uses(workload: &Value) -> Amounts {
    let mut uses = Amounts::new();
    for assignment in items(workload, "/status/admission/podSetAssignments") {
        let set = text(assignment, "/name");
        let count = assignment.get("count").and_then(Value::as_i64).map_or(1, i128::from).max(1);
        let reclaimed = items(workload, "/status/reclaimablePods").iter().find(|r| text(r, "/name") == set);
        let reclaimed = reclaimed.and_then(|r| r.get("count")?.as_i64()).map_or(0, i128::from);
        let flavors = assignment.get("flavors").and_then(Value::as_object);
        for (resource, flavor) in flavors.into_iter().flatten() {
            let total = amount(
                assignment.pointer(&format!("/resourceUsage/{}", resource.replace('/', "~1"))).unwrap_or(&Value::Null),
            );
            let held = total * (count - reclaimed).max(0) / count;
            *uses.entry((flavor.as_str().unwrap_or_default().to_owned(), resource.clone())).or_insert(0) += held;
        }
    }
    uses
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn seen(kind: &'static str, object: Value, revision: u64) -> Seen {
        Seen { at: Duration::ZERO, change: Change::Modified, kind, object, revision }
    }

    fn queue(name: &str, cohort: &str, nominal: u32, more: &Value) -> Value {
        let mut resource = json!({"name": "cpu", "nominalQuota": nominal.to_string()});
        for (key, value) in more.as_object().into_iter().flatten() {
            resource[key] = value.clone();
        }
        json!({"kind": "ClusterQueue", "metadata": {"name": name}, "spec": {"cohortName": cohort,
            "resourceGroups": [{"flavors": [{"name": "f", "resources": [resource]}]}]}})
    }

    fn workload(name: &str, queue: &str, job: &str, cpu: u32) -> Value {
        json!({"metadata": {"namespace": "n", "name": name, "uid": name, "ownerReferences": [{"kind": "Job", "uid": job}]},
            "status": {"conditions": [{"type": "QuotaReserved", "status": "True"}],
                "admission": {"clusterQueue": queue, "podSetAssignments": [{"name": "main", "count": 1,
                    "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": cpu.to_string()}}]}}})
    }

    #[test]
    fn more_than_the_quota_is_seen() {
        let mut all = vec![seen("clusterqueues", queue("q", "", 3, &json!({})), 1)];
        all.push(seen("workloads", workload("a", "q", "1", 2), 2));
        assert_eq!(violations(&all), [] as [String; 0]);
        all.push(seen("workloads", workload("b", "q", "2", 2), 3));
        let found = violations(&all);
        assert!(found.len() == 1 && found[0].contains("has 4 of cpu in flavor f in use, and may have 3"), "{found:?}");
    }

    #[test]
    fn a_quota_that_shrinks_is_nobodys_fault() {
        let all = [
            seen("clusterqueues", queue("q", "", 3, &json!({})), 1),
            seen("workloads", workload("a", "q", "1", 3), 2),
            seen("clusterqueues", queue("q", "", 1, &json!({})), 3),
        ];
        assert_eq!(violations(&all), [] as [String; 0]);
    }

    #[test]
    fn borrowing_and_lending_have_limits() {
        let cohort = |limits: &Value, asked: u32| {
            let all = [
                seen("clusterqueues", queue("a", "c", 2, &json!({})), 1),
                seen("clusterqueues", queue("b", "c", 2, limits), 2),
                seen("workloads", workload("w", "a", "1", asked), 4),
            ];
            violations(&all).len()
        };
        assert_eq!(cohort(&json!({}), 4), 0);
        assert_eq!(cohort(&json!({}), 5), 1);
        assert_eq!(cohort(&json!({"lendingLimit": "1"}), 3), 0);
        assert_eq!(cohort(&json!({"lendingLimit": "1"}), 4), 1);
    }

    #[test]
    fn a_job_holds_quota_once() {
        let mut all = vec![seen("clusterqueues", queue("q", "", 9, &json!({})), 1)];
        all.push(seen("workloads", workload("a", "q", "1", 2), 2));
        let mut second = workload("b", "q", "1", 2);
        all.push(seen("workloads", second.clone(), 3));
        assert_eq!(violations(&all).len(), 1);
        second["metadata"]["annotations"] = json!({"kueue.x-k8s.io/workload-slice-replacement-for": "n/a"});
        all.pop();
        all.push(seen("workloads", second, 3));
        assert_eq!(violations(&all), [] as [String; 0]);
    }

    #[test]
    fn orphans_and_the_forgotten_are_seen() {
        let job = json!({"metadata": {"namespace": "n", "name": "j", "uid": "1", "labels": {"kueue.x-k8s.io/queue-name": "q"}}});
        let fine = [seen("jobs", job.clone(), 1), seen("workloads", workload("w", "q", "1", 1), 2)];
        assert_eq!(leftovers(&fine), [] as [String; 0]);
        assert_eq!(leftovers(&fine[..1]), ["jobs n/j waits in a queue, and has no Workload"]);
        assert_eq!(leftovers(&fine[1..]), ["Workload n/w is there, and its job is not"]);
    }
}
