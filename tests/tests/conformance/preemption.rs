//! The kind `preemption`: who is preempted, in which order, and what is said about it.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use slicegate_preemption::{
    Config, FairSharing, Guard, LocalQueueUsage, MemoryWorkload, MemoryWorld, Message, Planner, Policy as _, Preemptor,
    Reason, Request, WorkloadRef, World as _, order_candidates, order_cluster_queues, path,
};
use slicegate_quota::{Amount, FlavorResourceId, Names, NodeId};
use slicegate_tests::objects;
use slicegate_workload::{
    ConditionType, FairSharingStrategy, QueueOrder, ReclaimPolicy, RequestOptions, Status, Timestamp,
    WithinClusterQueuePolicy, Workload,
};

use crate::report::{Report, expect_eq};
use crate::setup::Setup;

type Result<T> = std::result::Result<T, String>;

pub(crate) fn run(corpus: &Path, kind: &str, report: &mut Report) {
    for suite in ["preemption-classical", "preemption-fair", "preemption-fair-skip", "preemption-hierarchical"] {
        report.suite(corpus, kind, suite, |case| [Guard::Off, Guard::On].iter().try_for_each(|&g| plan(case, g)));
    }
    report.suite(corpus, kind, "candidates-ordering", candidates_ordering);
    report.suite(corpus, kind, "fair-queue-ordering", fair_queue_ordering);
    report.suite(corpus, kind, "satisfies-policy", satisfies_policy);
    report.suite(corpus, kind, "priority", priority);
    report.suite(corpus, kind, "priority-info", priority_info);
    report.suite(corpus, kind, "preemption-message", message);
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn gate(case: &Value, name: &str, default: bool) -> bool {
    case["config"]["featureGates"][name].as_bool().unwrap_or(default)
}

fn workload(value: &Value) -> Result<Workload> {
    objects::workload(value).map_err(|e| e.to_string())
}

fn now(case: &Value) -> Result<Timestamp> {
    objects::timestamp(&case["config"]["now"]).map_err(|e| e.to_string())
}

/// A workload that holds quota as the planner sees it.
fn holder(w: &Workload, node: NodeId, now: Timestamp, boost: bool, names: &mut Names) -> MemoryWorkload {
    let mut usage: BTreeMap<FlavorResourceId, Amount> = BTreeMap::new();
    for totals in w.totals(&RequestOptions::default()) {
        for (resource, amount) in totals.requests.iter() {
            if let Some(flavor) = totals.flavors.get(resource) {
                let sum = usage.entry(names.intern(flavor, resource)).or_default();
                *sum = sum.plus(Amount::new(amount));
            }
        }
        for (resource, flavor) in &totals.flavors {
            usage.entry(names.intern(flavor, resource)).or_default();
        }
    }
    let reserved = w.status.conditions.get(&ConditionType::QuotaReserved).filter(|c| c.status == Status::True);
    MemoryWorkload {
        cluster_queue: node,
        priority: w.effective_priority(boost),
        queued_at: w.queue_order_timestamp(QueueOrder::default()),
        reserved_at: reserved.map_or(now, |c| c.last_transition),
        evicted: w.is_evicted(),
        local_queue: None,
        usage: usage.into_iter().collect(),
        uid: w.uid.clone(),
    }
}

fn preemptor(w: &Workload, node: NodeId, boost: bool) -> Preemptor {
    Preemptor {
        cluster_queue: node,
        priority: w.effective_priority(boost),
        queued_at: w.queue_order_timestamp(QueueOrder::default()),
        local_queue: None,
    }
}

/// The world of a case and the names of its workloads.
fn world(case: &Value) -> Result<(MemoryWorld, BTreeMap<WorkloadRef, String>, Setup)> {
    let mut setup = Setup::new(&case["objects"])?;
    let now = now(case)?;
    let boost = gate(case, "PriorityBoost", false);
    let mut holders = Vec::new();
    for object in objects::of_kind(&case["objects"], "Workload") {
        let w = workload(object)?;
        let Some(admission) = &w.status.admission else { continue };
        let node = setup.queue(&admission.cluster_queue)?.0;
        holders.push((w.key.name.to_string(), holder(&w, node, now, boost, &mut setup.names)));
    }
    let mut world = MemoryWorld::new(setup.forest.clone(), setup.names.clone());
    for (node, spec) in setup.queues.values() {
        world.set_policy(*node, spec.preemption);
    }
    let names = holders.into_iter().map(|(name, holder)| (world.add(holder), name)).collect();
    Ok((world, names, setup))
}

fn config(case: &Value, guard: Guard) -> Result<Config> {
    let fair = &case["config"]["fairSharing"];
    if fair.is_null() {
        return Ok(Config::default());
    }
    let mut sharing = FairSharing {
        reclaim_within_nominal: gate(case, "FairSharingPreemptWithinNominal", true),
        guard,
        ..FairSharing::default()
    };
    if let Some(strategies) = fair["preemptionStrategies"].as_array().filter(|s| !s.is_empty()) {
        sharing.strategies = strategies
            .iter()
            .map(|s| match s.as_str() {
                Some("LessThanOrEqualToFinalShare") => Ok(FairSharingStrategy::LessThanOrEqualToFinalShare),
                Some("LessThanInitialShare") => Ok(FairSharingStrategy::LessThanInitialShare),
                _ => Err(format!("unknown strategy {s}")),
            })
            .collect::<Result<_>>()?;
    }
    Ok(Config { fair_sharing: Some(sharing) })
}

fn plan(case: &Value, guard: Guard) -> Result<()> {
    let (mut world, names, mut setup) = world(case)?;
    let incoming = workload(&case["incoming"])?;
    let (node, _) = *setup.queue(text(case, "targetClusterQueue"))?;
    let mut needed: BTreeMap<FlavorResourceId, Amount> = BTreeMap::new();
    let mut preempting = Vec::new();
    let totals = incoming.totals(&RequestOptions::default());
    let assigned = case["assignment"]["podSets"].as_array().cloned().unwrap_or_default();
    for (totals, pod_set) in totals.iter().zip(&assigned) {
        for (resource, choice) in pod_set["flavors"].as_object().into_iter().flatten() {
            let pair = setup.names.intern(text(choice, "flavor"), resource);
            if choice["mode"] == "Preempt" {
                preempting.push(pair);
            }
            let amount = totals.requests.get(resource).unwrap_or(0);
            if amount != 0 {
                let sum = needed.entry(pair).or_default();
                *sum = sum.plus(Amount::new(amount));
            }
        }
    }
    preempting.sort_unstable();
    preempting.dedup();
    let needed: Vec<(FlavorResourceId, Amount)> = needed.into_iter().collect();
    let request = Request {
        preemptor: preemptor(&incoming, node, gate(case, "PriorityBoost", false)),
        needed: &needed,
        preempting: &preempting,
        placed: false,
    };
    let config = config(case, guard)?;
    let mut planner = Planner::new();
    let before = format!("{:?}", world.forest());
    let mut got: Vec<(String, &str)> = planner
        .targets(&mut world, &config, &request)
        .iter()
        .map(|t| (names.get(&t.workload).cloned().unwrap_or_default(), t.reason.as_str()))
        .collect();
    expect_eq("the world is left as it was", &format!("{:?}", world.forest()), &before)?;
    got.sort_unstable();
    let mut want: Vec<(String, &str)> = case["expect"]["targets"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|t| (workload_name(t), text(t, "reason")))
        .collect();
    want.sort_unstable();
    expect_eq("targets", &got, &want)?;
    let targets = planner.targets(&mut world, &config, &request).to_vec();
    let preempted = usize::try_from(case["expect"]["preempted"].as_u64().unwrap_or(0)).map_err(|e| e.to_string())?;
    if !case["expect"]["preempted"].is_null() {
        expect_eq("preempted", &targets.len(), &preempted)?;
    }
    for target in targets {
        let after = case["expect"]["workloadsAfter"].as_array().into_iter().flatten();
        let name = &names[&target.workload];
        let Some(after) = after.into_iter().find(|w| workload_name(w) == *name) else { continue };
        let conditions = after["conditions"].as_array().cloned().unwrap_or_default();
        let Some(condition) = conditions.iter().find(|c| c["type"] == "Preempted" && c["status"] == "True") else {
            continue;
        };
        let meta = &case["incoming"]["metadata"];
        let holder = world.workload(target.workload);
        let message = Message {
            preemptor_uid: text(meta, "uid"),
            preemptor_job_uid: meta["labels"]["kueue.x-k8s.io/job-uid"].as_str().unwrap_or_default(),
            reason: Some(target.reason),
            preemptor_path: &path(world.forest(), node),
            preemptee_path: &path(world.forest(), holder.cluster_queue),
        };
        expect_eq("message", &message.to_string().as_str(), &text(condition, "message"))?;
    }
    Ok(())
}

fn workload_name(target: &Value) -> String {
    let name = text(target, "workload");
    name.rsplit('/').next().unwrap_or(name).to_owned()
}

fn candidates_ordering(case: &Value) -> Result<()> {
    let now = now(case)?;
    let boost = gate(case, "PriorityBoost", false);
    let mut names = Names::new();
    let mut nodes: BTreeMap<String, NodeId> = BTreeMap::new();
    let mut forest = slicegate_quota::Forest::new();
    let own = text(case, "preemptorClusterQueue");
    let candidates = case["candidates"].as_array().cloned().unwrap_or_default();
    for queue in candidates.iter().map(|c| text(c, "clusterQueue")).chain([own]) {
        nodes.insert(queue.to_owned(), forest.set_cluster_queue(queue, slicegate_quota::NodeQuota::default()));
    }
    let mut list = Vec::new();
    let mut labels = Vec::new();
    let mut queues: Vec<String> = Vec::new();
    for c in &candidates {
        let w = workload(&c["workload"])?;
        let mut holder = holder(&w, nodes[text(c, "clusterQueue")], now, boost, &mut names);
        if case["config"]["admissionFairSharing"] == true {
            let queue = format!("{}/{}", w.key.namespace, w.spec.queue_name);
            let position = queues.iter().position(|q| *q == queue).unwrap_or_else(|| {
                queues.push(queue);
                queues.len() - 1
            });
            let usage = c["localQueueFairSharingUsage"].as_f64();
            holder.local_queue =
                Some(LocalQueueUsage { queue: u32::try_from(position).map_err(|e| e.to_string())?, usage });
        }
        labels.push(w.key.name.to_string());
        list.push(holder);
    }
    let mut world = MemoryWorld::new(forest, names);
    let refs: Vec<WorkloadRef> = list.into_iter().map(|h| world.add(h)).collect();
    let got: Vec<&str> =
        order_candidates(&world, nodes[own], &refs).iter().map(|r| labels[r.index()].as_str()).collect();
    let want: Vec<&str> = case["expect"]["order"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    expect_eq("order", &got, &want)
}

fn fair_queue_ordering(case: &Value) -> Result<()> {
    let (world, _, setup) = world(case)?;
    let own = setup.queue(text(case, "preemptorClusterQueue"))?.0;
    let strings = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut queues = Vec::new();
    for name in strings(&case["candidateClusterQueues"]) {
        queues.push(setup.queue(&name)?.0);
    }
    let actions = strings(&case["actions"]);
    let drops = |step: usize| actions.get(step).is_some_and(|a| a == "drop");
    let order = order_cluster_queues(&world, own, &queues, drops);
    let got: Vec<String> = order.into_iter().map(|n| world.forest().name(n).to_owned()).collect();
    expect_eq("order", &got, &strings(&case["expect"]["order"]))
}

fn satisfies_policy(case: &Value) -> Result<()> {
    let boost = gate(case, "PriorityBoost", false);
    let candidate = workload(&case["candidate"])?;
    let mut forest = slicegate_quota::Forest::new();
    let node = forest.set_cluster_queue("cq", slicegate_quota::NodeQuota::default());
    let preemptor = preemptor(&workload(&case["preemptor"])?, node, boost);
    let (priority, at) = (candidate.effective_priority(boost), candidate.queue_order_timestamp(QueueOrder::default()));
    let got = match text(case, "policy") {
        "Any" => ReclaimPolicy::Any.allows(&preemptor, priority, at),
        "LowerPriority" => {
            let within = WithinClusterQueuePolicy::LowerPriority.allows(&preemptor, priority, at);
            expect_eq("both policies", &ReclaimPolicy::LowerPriority.allows(&preemptor, priority, at), &within)?;
            within
        }
        "LowerOrNewerEqualPriority" => {
            WithinClusterQueuePolicy::LowerOrNewerEqualPriority.allows(&preemptor, priority, at)
        }
        "Never" => {
            ReclaimPolicy::Never.allows(&preemptor, priority, at)
                || WithinClusterQueuePolicy::Never.allows(&preemptor, priority, at)
        }
        other => return Err(format!("unknown policy {other}")),
    };
    expect_eq("satisfied", &got, &case["expect"]["satisfied"].as_bool().unwrap_or(false))
}

fn priority(case: &Value) -> Result<()> {
    let w = workload(&case["workload"])?;
    let boost = gate(case, "PriorityBoost", false);
    let effective = w.effective_priority(boost);
    let base = i64::from(w.spec.priority);
    let (key, got) = match text(case, "op") {
        "priority" => ("priority", base),
        "boost" => ("boost", effective - base),
        "effective" => ("effective", effective),
        other => return Err(format!("unknown op {other}")),
    };
    expect_eq(key, &got, &case["expect"][key].as_i64().unwrap_or(0))
}

fn priority_info(case: &Value) -> Result<()> {
    let w = workload(&case["workload"])?;
    let effective = w.effective_priority(gate(case, "PriorityBoost", false));
    let base = i64::from(w.spec.priority);
    let want = |key: &str| case["expect"][key].as_i64().unwrap_or(0);
    expect_eq(
        "(effective, base, boost)",
        &(effective, base, effective - base),
        &(want("effective"), want("base"), want("boost")),
    )
}

fn message(case: &Value) -> Result<()> {
    let reasons = [
        Reason::InClusterQueue,
        Reason::InCohortReclamation,
        Reason::InCohortFairSharing,
        Reason::InCohortReclaimWhileBorrowing,
    ];
    let preemptor = &case["preemptor"]["metadata"];
    let got = Message {
        preemptor_uid: text(preemptor, "uid"),
        preemptor_job_uid: preemptor["labels"]["kueue.x-k8s.io/job-uid"].as_str().unwrap_or_default(),
        reason: reasons.into_iter().find(|r| r.as_str() == text(case, "reason")),
        preemptor_path: text(case, "preemptorPath"),
        preemptee_path: text(case, "preempteePath"),
    };
    expect_eq("message", &got.to_string().as_str(), &text(&case["expect"], "message"))
}
