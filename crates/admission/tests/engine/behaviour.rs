//! How single rules show from outside.

use std::collections::BTreeMap;

use slicegate_admission::lifecycle::{
    At, EvictionReason, EvictionStep, QueueFact, REPLACEMENT_ANNOTATION, evict, release,
};
use slicegate_admission::{
    AdmissionFairSharing, Blocker, Cause, Config, Inadmissible, Outcome, Recomputation, ResourceLimit, Skip, Verdict,
    WaitForPodsReady, Written,
};
use slicegate_quota::{Amount, Quantity};
use slicegate_workload::{
    ClusterQueueSpec, CohortSpec, ConditionType, FlavorSpec, Key, LabelSelector, LimitRange, LimitRangeItem, LimitType,
    LocalQueueSpec, PreemptionPolicy, QueueingStrategy, ReclaimPolicy, Status, StopPolicy, Taint, TaintEffect,
    WithinClusterQueuePolicy,
};

use crate::cluster::{Cluster, NAMESPACE, TPU, group, queue};

const NEVER: PreemptionPolicy = PreemptionPolicy {
    reclaim_within_cohort: ReclaimPolicy::Never,
    within_cluster_queue: WithinClusterQueuePolicy::Never,
    borrow_within_cohort: None,
};

fn by_priority() -> PreemptionPolicy {
    PreemptionPolicy { within_cluster_queue: WithinClusterQueuePolicy::LowerPriority, ..NEVER }
}

fn cluster(chips: i64) -> Cluster {
    let mut cluster = Cluster::new(Config::new());
    cluster.queue(queue("q", None, chips, by_priority()));
    cluster
}

fn key(name: &str) -> Key {
    Key::new(NAMESPACE, name)
}

#[test]
fn the_oldest_of_the_highest_priority_goes_first() {
    let mut cluster = cluster(2);
    cluster.submit("old", "q", 2, 0);
    cluster.submit("high", "q", 2, 5);
    cluster.submit("high-young", "q", 2, 5);
    let order: Vec<String> = cluster.engine.pending("q").iter().map(|p| p.workload.name.to_string()).collect();
    assert_eq!(order, ["high", "high-young", "old"]);
    cluster.cycle();
    assert_eq!(cluster.running(), ["high"]);
}

#[test]
fn an_admission_is_written_whole() {
    let mut cluster = cluster(4);
    cluster.submit("w", "q", 3, 0);
    let cycle = cluster.cycle();
    let w = cluster.get("w");
    assert!(w.is_admitted());
    let assignment = &w.status.admission.as_ref().unwrap().pod_set_assignments[0];
    assert_eq!(assignment.flavors[TPU], "default".into());
    assert_eq!(assignment.resource_usage[TPU], Quantity::from_units(3));
    let reasons: Vec<&str> = cycle.entries[0].events.iter().map(|e| &*e.reason).collect();
    assert_eq!(reasons, ["QuotaReserved", "Admitted"]);
    let report = cluster.engine.cluster_queue("q").unwrap();
    assert_eq!((report.reserving, report.admitted, report.usage[0].total), (1, 1, Amount::new(3)));
}

#[test]
fn a_failed_write_gives_the_quota_back() {
    let mut cluster = cluster(4);
    cluster.submit("w", "q", 3, 0);
    let cycle = cluster.engine.cycle(cluster.now);
    assert!(matches!(cycle.entries[0].outcome, Outcome::Admitted { .. }));
    cluster.engine.admission_written(cluster.now, &key("w"), Written::Failed);
    cluster.check("after a failed write");
    assert_eq!(cluster.engine.cluster_queue("q").unwrap().reserving, 0);
    // It competes again at once, and nothing is forgotten of what it was.
    cluster.cycle();
    assert_eq!(cluster.running(), ["w"]);
}

#[test]
fn quota_that_was_never_written_wakes_others_when_it_is_given_back() {
    for result in [Written::Failed, Written::NotFound] {
        let mut cluster = cluster(4);
        cluster.submit("w", "q", 3, 0);
        cluster.submit("other", "q", 2, 0);
        for _ in 0..3 {
            cluster.engine.cycle(cluster.now);
        }
        cluster.engine.flush(cluster.now);
        for _ in 0..2 {
            cluster.engine.cycle(cluster.now);
        }
        assert!(!cluster.engine.has_heads(cluster.now), "the other one is parked");
        cluster.engine.admission_written(cluster.now, &key("w"), result);
        cluster.engine.remove_workload(cluster.now, &key("w"));
        assert!(cluster.engine.has_heads(cluster.now.plus_seconds(1)), "{result:?}");
    }
}

#[test]
fn a_write_to_a_workload_that_is_gone_leaves_nothing_behind() {
    let mut cluster = cluster(4);
    cluster.submit("w", "q", 3, 0);
    cluster.engine.cycle(cluster.now);
    cluster.engine.admission_written(cluster.now, &key("w"), Written::NotFound);
    cluster.check("after a lost write");
    assert_eq!(cluster.engine.cluster_queue("q").unwrap().reserving, 0);
    assert!(!cluster.engine.has_heads(cluster.now));
    cluster.delete("w");
    assert_eq!(cluster.engine.sizes(), (0, 0));
}

#[test]
fn an_update_that_does_not_know_of_the_admission_yet_changes_nothing() {
    let mut cluster = cluster(4);
    cluster.submit("w", "q", 3, 0);
    cluster.engine.cycle(cluster.now);
    // A label was set before the admission was written.
    let mut stale = cluster.get("w").clone();
    stale.labels.insert("a".into(), "b".into());
    cluster.engine.set_workload(cluster.now, stale);
    cluster.check("after a stale update");
    assert_eq!(cluster.engine.cluster_queue("q").unwrap().reserving, 1);
    assert!(!cluster.engine.has_heads(cluster.now));
}

#[test]
fn an_eviction_is_decided_once_and_again_if_its_write_fails() {
    let mut cluster = cluster(2);
    cluster.submit("low", "q", 2, 0);
    cluster.cycle();
    cluster.submit("high", "q", 2, 5);
    let first = cluster.engine.cycle(cluster.now);
    assert_eq!(first.evictions.len(), 1);
    assert_eq!(first.evictions[0].reason, "Preempted".into());
    let events: Vec<&str> = first.evictions[0].events.iter().map(|e| &*e.reason).collect();
    assert_eq!(events, ["EvictedDueToPreempted", "Preempted", "PreemptedWorkload"]);
    // Not written yet: the next cycle counts on it.
    let second = cluster.engine.cycle(cluster.now);
    assert!(second.evictions.is_empty());
    assert!(matches!(&second.entries[0].outcome, Outcome::Preempting { victims } if victims.len() == 1));
    cluster.engine.eviction_written(cluster.now, &key("low"), Written::Failed);
    assert_eq!(cluster.engine.cycle(cluster.now).evictions.len(), 1);
}

#[test]
fn a_preemptor_stays_at_the_head_while_its_victims_leave() {
    let mut cluster = cluster(2);
    cluster.stops_at_once = false;
    cluster.submit("low", "q", 2, 0);
    cluster.cycle();
    cluster.submit("middle", "q", 2, 3);
    cluster.cycle();
    // Higher still, but it came after the preemption for the other.
    cluster.submit("high", "q", 1, 9);
    let order: Vec<String> = cluster.engine.pending("q").iter().map(|p| p.workload.name.to_string()).collect();
    assert_eq!(order, ["middle", "high"]);
}

#[test]
fn workloads_like_one_that_failed_are_parked_with_it() {
    let mut cluster = cluster(2);
    cluster.submit("runs", "q", 2, 0);
    cluster.cycle();
    for name in ["a", "b", "c"] {
        cluster.submit(name, "q", 2, 0);
    }
    cluster.cycle();
    let report = cluster.engine.cluster_queue("q").unwrap();
    assert_eq!((report.pending, report.inadmissible), (3, 3));
    // One that comes later is not even tried.
    cluster.submit("d", "q", 2, 0);
    assert!(!cluster.engine.has_heads(cluster.now));
    let facts = cluster.engine.pending_facts(cluster.get("d"));
    assert_eq!(facts.parked_with.as_deref(), Some("WaitingForQuota"));
    // All come back, a second after quota was freed.
    cluster.finish("runs");
    assert!(!cluster.engine.has_heads(cluster.now));
    assert_eq!(cluster.engine.next_wake(), Some(cluster.now.plus_seconds(1)));
    cluster.now = cluster.now.plus_seconds(1);
    assert!(cluster.engine.has_heads(cluster.now));
    cluster.cycle();
    assert_eq!(cluster.running(), ["a"]);
}

#[test]
fn a_strict_queue_does_not_pass_over_its_head() {
    let mut cluster = Cluster::new(Config::new());
    let mut spec = queue("q", None, 2, NEVER);
    spec.queueing_strategy = QueueingStrategy::StrictFifo;
    cluster.queue(spec.clone());
    cluster.submit("large", "q", 3, 0);
    cluster.submit("small", "q", 1, 0);
    for _ in 0..4 {
        cluster.cycle();
    }
    assert!(cluster.running().is_empty());
    spec.queueing_strategy = QueueingStrategy::BestEffortFifo;
    cluster.queue(spec);
    cluster.settle(10).unwrap();
    assert_eq!(cluster.running(), ["small"]);
}

#[test]
fn stopped_and_missing_queues_admit_nothing() {
    let mut cluster = cluster(4);
    let mut spec = queue("q", None, 4, NEVER);
    spec.stop_policy = StopPolicy::Hold;
    cluster.queue(spec.clone());
    cluster.submit("w", "q", 1, 0);
    assert!(!cluster.engine.has_heads(cluster.now));
    let report = cluster.engine.cluster_queue("q").unwrap();
    assert_eq!((report.activity.active, report.activity.reason), (false, "Stopped"));
    spec.stop_policy = StopPolicy::None;
    cluster.queue(spec);
    let local = LocalQueueSpec {
        key: key("q"),
        cluster_queue: "q".into(),
        stop_policy: StopPolicy::Hold,
        ..LocalQueueSpec::default()
    };
    cluster.engine.set_local_queue(cluster.now, local.clone());
    assert!(!cluster.engine.has_heads(cluster.now));
    assert_eq!(cluster.engine.local_queue(&key("q")).unwrap().activity.reason, "Stopped");
    cluster.engine.set_local_queue(cluster.now, LocalQueueSpec { stop_policy: StopPolicy::None, ..local });
    cluster.cycle();
    assert_eq!(cluster.running(), ["w"]);
}

#[test]
fn a_flavor_that_appears_starts_what_waited_for_it() {
    let mut cluster = Cluster::new(Config::new());
    let mut spec = queue("q", None, 4, NEVER);
    spec.resource_groups = vec![group("late", 4)];
    cluster.queue(spec);
    cluster.submit("w", "q", 1, 0);
    assert!(!cluster.engine.has_heads(cluster.now));
    cluster.engine.set_flavor(cluster.now, FlavorSpec { name: "late".into(), ..FlavorSpec::default() });
    cluster.settle(10).unwrap();
    assert_eq!(cluster.running(), ["w"]);
}

#[test]
fn workloads_wait_for_a_queue_that_comes_later() {
    let mut cluster = Cluster::new(Config::new());
    cluster.submit("w", "q", 1, 0);
    assert_eq!(cluster.engine.why(cluster.now, &key("w")).unwrap().verdict, Verdict::Change);
    cluster.queue(queue("q", None, 1, NEVER));
    cluster.cycle();
    assert_eq!(cluster.running(), ["w"]);
}

#[test]
fn quota_that_is_held_counts_after_a_restart() {
    let mut cluster = cluster(2);
    cluster.submit("runs", "q", 2, 0);
    cluster.cycle();
    let mut again = Cluster::new(Config::new());
    // Workloads may come before the queues that they are counted in.
    again.put(cluster.get("runs").clone());
    again.queue(queue("q", None, 2, NEVER));
    assert_eq!(again.engine.cluster_queue("q").unwrap().reserving, 1);
    again.submit("waits", "q", 1, 0);
    again.cycle();
    assert_eq!(again.running(), ["runs"]);
}

#[test]
fn namespaces_must_be_served() {
    let mut cluster = cluster(2);
    let mut spec = queue("q", None, 2, NEVER);
    let mut selector = LabelSelector::default();
    selector.match_labels.insert("team".into(), "a".into());
    spec.namespace_selector = Some(selector);
    cluster.queue(spec);
    cluster.submit("w", "q", 1, 0);
    let cycle = cluster.cycle();
    assert_eq!(cycle.entries[0].outcome, Outcome::Inadmissible(Inadmissible::NamespaceMismatch));
    assert_eq!(cluster.waits("w").unwrap().0, "Misconfigured");
    let labels = BTreeMap::from([("team".into(), "a".into())]);
    cluster.engine.set_namespace(cluster.now, NAMESPACE, labels);
    cluster.settle(10).unwrap();
    assert_eq!(cluster.running(), ["w"]);
}

#[test]
fn a_limit_range_that_changes_lets_a_workload_be_looked_at_again() {
    let mut cluster = cluster(4);
    let most = |chips: i64| LimitRange {
        limits: vec![(
            LimitType::Container,
            LimitRangeItem {
                max: BTreeMap::from([(TPU.into(), Quantity::from_units(chips))]),
                ..LimitRangeItem::default()
            },
        )],
    };
    cluster.engine.set_limit_ranges(cluster.now, NAMESPACE, &[most(1)]);
    cluster.submit("w", "q", 2, 0);
    cluster.cycle();
    let (reason, message) = cluster.waits("w").unwrap();
    assert_eq!(reason, "Misconfigured");
    assert!(message.contains("must not be above the limitRange max"), "{message}");
    cluster.engine.set_limit_ranges(cluster.now, NAMESPACE, &[most(2)]);
    cluster.cycle();
    assert_eq!(cluster.running(), ["w"]);
}

#[test]
fn admission_waits_for_pods_if_it_is_told_to() {
    let mut config = Config::new();
    config.wait_for_pods_ready = Some(WaitForPodsReady { block_admission: true, ..WaitForPodsReady::default() });
    let mut cluster = Cluster::new(config);
    cluster.queue(queue("q", None, 4, NEVER));
    cluster.submit("first", "q", 1, 0);
    cluster.submit("second", "q", 1, 0);
    cluster.cycle();
    let cycle = cluster.cycle();
    assert_eq!(cycle.entries[0].outcome, Outcome::WaitingForPodsReady);
    assert_eq!(cluster.waits("second").unwrap().0, "WaitingForPodsReady");
    assert!(!cluster.engine.has_heads(cluster.now));
    let now = cluster.now;
    cluster.change("first", |w| {
        let at = At { now, generation: 1 };
        at.set(&mut w.status, ConditionType::PodsReady, Status::True, "Started", "all pods are ready");
    });
    cluster.cycle();
    assert_eq!(cluster.running(), ["first", "second"]);
}

#[test]
fn who_waits_for_pods_says_so_in_older_words_if_it_is_told_to() {
    let mut config = Config::new();
    config.gates.unadmitted_workloads_observability = false;
    config.wait_for_pods_ready = Some(WaitForPodsReady { block_admission: true, ..WaitForPodsReady::default() });
    let mut cluster = Cluster::new(config);
    cluster.queue(queue("q", None, 2, NEVER));
    for name in ["first", "second"] {
        cluster.submit(name, "q", 1, 0);
    }
    cluster.cycle();
    cluster.cycle();
    assert_eq!(cluster.waits("second").unwrap().0, "Waiting");
}

#[test]
fn two_that_each_fit_alone_are_not_both_admitted() {
    let mut cluster = Cluster::new(Config::new());
    cluster.queue(queue("a", Some("all"), 1, NEVER));
    cluster.queue(queue("b", Some("all"), 1, NEVER));
    cluster.submit("wa", "a", 2, 0);
    cluster.submit("wb", "b", 2, 0);
    let cycle = cluster.cycle();
    assert_eq!(cycle.entries.len(), 2);
    assert_eq!(cycle.entries[1].outcome, Outcome::Skipped(Skip::NoLongerFits));
    assert_eq!(cluster.waits("wb").unwrap().1, "Workload no longer fits after processing another workload");
    assert_eq!(cluster.running(), ["wa"]);
}

#[test]
fn a_slice_takes_the_place_of_another() {
    let mut cluster = cluster(4);
    let mut old = cluster.workload("old", "q", 1, 0);
    old.spec.pod_sets[0].count = 2;
    cluster.put(old);
    cluster.cycle();
    let mut new = cluster.workload("new", "q", 1, 0);
    new.spec.pod_sets[0].count = 4;
    new.annotations.insert(REPLACEMENT_ANNOTATION.into(), format!("{NAMESPACE}/old").into());
    cluster.put(new);
    let cycle = cluster.cycle();
    let then = cycle.entries[0].then.as_ref().unwrap();
    assert_eq!(then.workload, key("old"));
    // Only the growth had to fit; then the old slice is finished and its quota is free again.
    assert!(cluster.get("old").is_finished());
    assert_eq!(cluster.running(), ["new"]);
    assert_eq!(cluster.engine.cluster_queue("q").unwrap().reservation[0].total, Amount::new(4));
}

// ----- why ---------------------------------------------------------------------------------------------------------

#[test]
fn why_names_numbers_limits_and_who_is_in_the_way() {
    let mut cluster = Cluster::new(Config::new());
    let mut spec = queue("a", Some("all"), 2, NEVER);
    spec.resource_groups[0].flavors[0].resources[0].1.borrowing_limit = Some(Quantity::from_units(1));
    cluster.queue(spec);
    cluster.queue(queue("b", Some("all"), 4, NEVER));
    cluster.submit("runs", "a", 2, 0);
    cluster.cycle();
    cluster.submit("waits", "a", 2, 0);
    let why = cluster.engine.why(cluster.now, &key("waits")).unwrap();
    assert_eq!((why.verdict, &why.cause), (Verdict::Wait, &Cause::WaitingForQuota));
    let numbers = &why.pod_sets[0].flavors[0].resources[0];
    let n = Amount::new;
    assert_eq!((numbers.needed, numbers.available, numbers.maximum), (n(2), n(1), n(3)));
    assert_eq!((numbers.nominal, numbers.used, numbers.borrowed), (n(2), n(2), n(0)));
    assert_eq!(numbers.limit, ResourceLimit::Borrowing { node: "a".into() });
    assert!(why.blockers.contains(&Blocker::Workload(key("runs"))), "{:?}", why.blockers);
    let text = why.to_string();
    assert!(
        text.contains("google.com/tpu: 2 needed, 1 free, 3 at most; own quota 2, 2 used; a is at its borrowing limit"),
        "{text}"
    );
    // Asking changes nothing.
    cluster.check("after a question");
    assert!(cluster.engine.has_heads(cluster.now));
}

#[test]
fn why_tells_who_can_change_it() {
    let mut cluster = Cluster::new(Config::new());
    let mut spec = queue("a", Some("all"), 2, by_priority());
    spec.resource_groups[0].flavors[0].resources[0].1.borrowing_limit = Some(Quantity::from_units(1));
    cluster.queue(spec);
    cluster.queue(queue("b", Some("all"), 4, NEVER));
    let mut ask = |name: &str, queue: &str, chips, priority| {
        cluster.submit(name, queue, chips, priority);
        let why = cluster.engine.why(cluster.now, &key(name)).unwrap();
        (why.verdict, why.cause)
    };
    assert_eq!(ask("fits", "a", 2, 0), (Verdict::Wait, Cause::Queued { ahead: 0 }));
    assert_eq!(ask("behind", "a", 1, 0), (Verdict::Wait, Cause::Queued { ahead: 1 }));
    // Four are idle in the cohort, but `a` may not borrow them.
    assert_eq!(ask("limited", "a", 4, 0), (Verdict::AskAdmin, Cause::ExceedsMaxQuota));
    assert_eq!(ask("huge", "b", 7, 0), (Verdict::Never, Cause::ExceedsMaxQuota));
    assert_eq!(ask("lost", "nowhere", 1, 0).0, Verdict::Change);
    cluster.cycle();
    let running = cluster.engine.why(cluster.now, &key("fits")).unwrap();
    assert_eq!((running.verdict, running.cause), (Verdict::Admitted, Cause::Admitted));
    cluster.submit("high", "a", 2, 5);
    let why = cluster.engine.why(cluster.now, &key("high")).unwrap();
    assert_eq!(why.cause, Cause::Preempting { victims: 1 });
    assert!(why.blockers.contains(&Blocker::Workload(key("fits"))));
}

#[test]
fn why_tells_of_taints() {
    let mut cluster = cluster(2);
    let taint = Taint { key: "spot".into(), value: "true".into(), effect: TaintEffect::NoSchedule };
    let flavor = FlavorSpec { name: "default".into(), node_taints: vec![taint], ..FlavorSpec::default() };
    cluster.engine.set_flavor(cluster.now, flavor);
    cluster.submit("w", "q", 1, 0);
    let why = cluster.engine.why(cluster.now, &key("w")).unwrap();
    assert_eq!((why.verdict, why.cause), (Verdict::Change, Cause::NoMatchingFlavor));
    assert!(why.pod_sets[0].flavors[0].mismatch.as_ref().unwrap().contains("untolerated taint {spot true NoSchedule"));
}

// ----- differences from Kueue on purpose; see docs/differences.md -----------------------------------------------------

#[test]
fn an_uncovered_resource_beside_one_that_fits_has_a_reason() {
    let mut cluster = cluster(2);
    let mut w = cluster.workload("w", "q", 1, 0);
    let requests = &mut w.spec.pod_sets[0].pod.containers[0].resources.requests;
    requests.insert("example.com/odd".into(), Quantity::from_units(1));
    cluster.put(w);
    cluster.cycle();
    let (reason, message) = cluster.waits("w").unwrap();
    assert_eq!(reason, "NoMatchingFlavor");
    assert!(message.contains("resource example.com/odd unavailable in ClusterQueue"), "{message}");
}

#[test]
fn a_backoff_is_heeded_when_a_workload_is_loaded() {
    let mut cluster = cluster(2);
    let mut w = cluster.workload("w", "q", 1, 0);
    w.status.requeue_state =
        Some(slicegate_workload::RequeueState { count: Some(1), requeue_at: Some(cluster.now.plus_seconds(60)) });
    cluster.put(w);
    assert!(!cluster.engine.has_heads(cluster.now));
    assert_eq!(cluster.engine.why(cluster.now, &key("w")).unwrap().cause, Cause::Backoff);
    // Whoever drives the engine ends the back-off; a batch of parked workloads would take it along too.
    cluster.now = cluster.now.plus_seconds(60);
    let spec = queue("q", None, 3, NEVER);
    cluster.queue(spec);
    cluster.settle(10).unwrap();
    assert_eq!(cluster.running(), ["w"]);
}

#[test]
fn a_cycle_of_cohorts_harms_only_itself() {
    let mut cluster = Cluster::new(Config::new());
    cluster.queue(queue("inside", Some("left"), 2, NEVER));
    cluster.queue(queue("outside", Some("other"), 2, NEVER));
    cluster.submit("runs", "inside", 1, 0);
    cluster.cycle();
    let cohort = |name: &str, parent: &str| CohortSpec {
        name: name.into(),
        parent: Some(parent.into()),
        ..CohortSpec::default()
    };
    cluster.engine.set_cohort(cluster.now, cohort("left", "right")).unwrap();
    assert!(cluster.engine.set_cohort(cluster.now, cohort("right", "left")).is_err());
    assert!(cluster.engine.cohort("left").unwrap().cyclic);
    // What holds quota inside can still change and end.
    cluster.change("runs", |w| w.spec.priority = 3);
    cluster.submit("in", "inside", 1, 0);
    cluster.submit("out", "outside", 1, 0);
    cluster.cycle();
    assert_eq!(cluster.waits("in").unwrap(), ("Suspended", "ClusterQueue inside is inactive"));
    assert_eq!(cluster.running(), ["out", "runs"]);
    cluster.finish("runs");
    // Whoever looks at the queues is told.
    let activity = cluster.engine.cluster_queue("inside").unwrap().activity;
    assert_eq!((activity.active, activity.reason), (false, "CohortCycle"));
    assert_eq!(&*activity.message, "Can't admit new workloads: is in or below a cycle of Cohorts.");
    assert!(!cluster.engine.local_queue(&key("inside")).unwrap().activity.active);
    let waits = cluster.get("in").clone();
    assert_eq!(cluster.engine.pending_facts(&waits).cluster_queue, QueueFact::Inactive);
    // It is whole again when the circle is broken up.
    let alone = CohortSpec { name: "right".into(), ..CohortSpec::default() };
    cluster.engine.set_cohort(cluster.now, alone).unwrap();
    cluster.settle(10).unwrap();
    assert_eq!(cluster.running(), ["in", "out"]);
    assert!(cluster.engine.cluster_queue("inside").unwrap().activity.active);
}

#[test]
fn a_cycle_of_cohorts_is_broken_up_by_deleting_one() {
    let mut cluster = Cluster::new(Config::new());
    cluster.queue(queue("inside", Some("left"), 2, NEVER));
    for (name, parent) in [("left", "right"), ("right", "left")] {
        let cohort = CohortSpec { name: name.into(), parent: Some(parent.into()), ..CohortSpec::default() };
        let _ = cluster.engine.set_cohort(cluster.now, cohort);
    }
    cluster.submit("in", "inside", 1, 0);
    cluster.settle(10).unwrap();
    assert!(cluster.running().is_empty());
    cluster.engine.remove_cohort(cluster.now, "right");
    cluster.settle(10).unwrap();
    assert_eq!(cluster.running(), ["in"]);
}

#[test]
fn a_queue_that_breaks_a_rule_admits_nothing_and_says_which() {
    let mut cluster = Cluster::new(Config::new());
    let invalid = Some("spec.resourceGroups: none".into());
    cluster.queue(ClusterQueueSpec { invalid, ..queue("q", None, 2, NEVER) });
    cluster.submit("w", "q", 1, 0);
    cluster.settle(10).unwrap();
    assert!(cluster.running().is_empty());
    let activity = cluster.engine.cluster_queue("q").unwrap().activity;
    assert_eq!(
        (activity.reason, &*activity.message),
        ("Invalid", "Can't admit new workloads: spec.resourceGroups: none.")
    );
    cluster.queue(queue("q", None, 2, NEVER));
    cluster.settle(10).unwrap();
    assert_eq!(cluster.running(), ["w"]);
}

#[test]
fn quota_freed_behind_a_queue_that_is_gone_wakes_others() {
    for deleted in [false, true] {
        let mut cluster = cluster(2);
        let other = LocalQueueSpec { key: key("other"), cluster_queue: "q".into(), ..LocalQueueSpec::default() };
        cluster.engine.set_local_queue(cluster.now, other);
        cluster.submit("runs", "q", 2, 0);
        cluster.cycle();
        cluster.submit("waits", "other", 2, 0);
        cluster.settle(10).unwrap();
        cluster.engine.remove_local_queue(cluster.now, &key("q"));
        if deleted {
            cluster.delete("runs");
        } else {
            cluster.finish("runs");
        }
        cluster.settle(10).unwrap();
        assert_eq!(cluster.running(), ["waits"]);
    }
}

#[test]
fn nothing_is_admitted_on_quota_that_victims_still_hold() {
    let mut cluster = Cluster::new(Config::new());
    cluster.stops_at_once = false;
    cluster.queue(queue("a", Some("all"), 2, by_priority()));
    cluster.queue(queue("b", Some("all"), 1, NEVER));
    cluster.queue(queue("c", Some("all"), 1, NEVER));
    cluster.submit("victim", "a", 3, 0);
    cluster.cycle();
    // One chip is free. The preemptor will leave one of the three that its victim has, once that is gone.
    cluster.submit("preemptor", "a", 2, 5);
    cluster.submit("one", "b", 1, 0);
    cluster.submit("two", "c", 1, 0);
    let cycle = cluster.cycle();
    assert_eq!(cluster.running(), ["one", "victim"]);
    assert_eq!(cycle.entries[2].outcome, Outcome::Deferred);
    assert_eq!(cluster.waits("two").unwrap().0, "WaitingForPreemptedWorkloads");
    cluster.stop_evicted();
    cluster.settle(10).unwrap();
    assert_eq!(cluster.running(), ["one", "preemptor", "two"]);
}

#[test]
fn a_workload_seen_next_after_its_eviction_gives_its_quota_back() {
    let mut cluster = Cluster::new(Config::new());
    cluster.queue(queue("q", None, 4, PreemptionPolicy::default()));
    cluster.submit("w", "q", 4, 0);
    let cycle = cluster.engine.cycle(cluster.now);
    let before = cluster.get("w").clone();
    let mut workload = before.clone();
    workload.status = cycle.entries[0].status.clone().unwrap();
    cluster.engine.admission_written(cluster.now, &workload.key, Written::Ok);
    let reserving = |cluster: &Cluster| cluster.engine.cluster_queue("q").unwrap().reserving;

    // An update from before the write does not take the quota away.
    cluster.put(before);
    assert_eq!(reserving(&cluster), 1);
    // The watch skips the object as it was admitted: next it has been evicted, and its job has stopped.
    let at = At { now: cluster.now, generation: 1 };
    let step = EvictionStep {
        reason: EvictionReason::AdmissionCheck,
        cause: Box::default(),
        message: "a check failed".into(),
    };
    evict(&mut workload.status, &step, at);
    let mut status = workload.status.clone();
    release(&workload, &mut status, at, &cluster.engine.config().gates);
    workload.status = status;
    cluster.put(workload);
    assert_eq!(reserving(&cluster), 0);
}

#[test]
fn quota_of_a_cluster_queue_that_is_gone_is_neither_counted_nor_queued_for() {
    let start = |written| {
        let mut cluster = Cluster::new(Config::new());
        cluster.queue(queue("q", None, 4, PreemptionPolicy::default()));
        cluster.queue(queue("other", None, 4, PreemptionPolicy::default()));
        cluster.submit("w", "q", 4, 0);
        cluster.engine.cycle(cluster.now);
        // The ClusterQueue goes before the engine hears of its write, and the LocalQueue leads elsewhere.
        cluster.engine.remove_cluster_queue(cluster.now, "q");
        let key = Key::new(NAMESPACE, "w");
        cluster.engine.admission_written(cluster.now, &key, written);
        let spec = LocalQueueSpec {
            key: Key::new(NAMESPACE, "q"),
            cluster_queue: "other".into(),
            ..LocalQueueSpec::default()
        };
        cluster.engine.set_local_queue(cluster.now, spec);
        cluster.check("after the LocalQueue");
        cluster
    };
    let mut cluster = start(Written::Ok);
    assert_eq!(cluster.engine.pending("other").len(), 0);
    cluster.engine.set_cluster_queue(cluster.now, queue("q", None, 4, PreemptionPolicy::default()));
    cluster.check("after the ClusterQueue came back");
    assert_eq!(cluster.engine.cluster_queue("q").unwrap().reserving, 1);

    let cluster = start(Written::Failed);
    assert_eq!(cluster.engine.pending("other").len(), 1);
}

#[test]
fn usage_beyond_what_can_be_counted_goes_again() {
    const HALF: i64 = i64::MAX / 2 + 1;
    for sizes in [[HALF, HALF, 1], [i64::MAX, 1, 1], [i64::MAX - 1, 5, HALF]] {
        let mut cluster = Cluster::new(Config::new());
        cluster.queue(queue("unlimited", Some("all"), i64::MAX, NEVER));
        cluster.queue(queue("other", Some("all"), 0, NEVER));
        // Whoever asks for no end of chips gets them only while nothing else is in use, so it goes first.
        for (i, chips) in sizes.into_iter().enumerate() {
            cluster.submit(&format!("w{i}"), "unlimited", chips, 0);
            cluster.settle(10).unwrap();
        }
        let reserved = |cluster: &Cluster| cluster.engine.cluster_queue("unlimited").unwrap().reservation[0].total;
        let held = cluster.running().len();
        assert!(held > 0, "{sizes:?}");
        for i in 0..sizes.len() {
            cluster.delete(&format!("w{i}"));
        }
        assert_eq!(reserved(&cluster), Amount::ZERO, "{sizes:?}");

        cluster.queue(queue("unlimited", Some("all"), 4, NEVER));
        cluster.submit("borrower", "other", 4, 0);
        cluster.cycle();
        assert_eq!(cluster.running(), ["borrower"], "what is free can be lent again: {sizes:?}");
    }
}

#[test]
fn removing_a_local_queue_leaves_the_others_in_order() {
    let (light, middle, heavy) = ("light", "middle", "heavy");
    let mut config = Config::new();
    config.admission_fair_sharing =
        Some(AdmissionFairSharing { half_life_seconds: 1_000, ..AdmissionFairSharing::default() });
    let mut cluster = Cluster::new(config);
    let mut spec = queue("q", None, 0, NEVER);
    spec.usage_based_fair_sharing = true;
    cluster.queue(spec);
    for (name, used) in [(light, 1), (middle, 10), (heavy, 100)] {
        let spec = LocalQueueSpec { key: key(name), cluster_queue: "q".into(), ..LocalQueueSpec::default() };
        cluster.engine.set_local_queue(cluster.now, spec);
        let consumed = BTreeMap::from([(TPU.into(), Quantity::from_units(used))]);
        cluster.engine.restore_consumed(cluster.now, cluster.now, &key(name), &consumed);
    }
    // After a cycle that served it the queue is known to be in order.
    cluster.submit("first", light, 100, 0);
    cluster.cycle();
    cluster.delete("first");
    // Each size is a group of its own. Put in like this, the heap of groups has a middle one above two levels of heavy ones, of
    // which the lower are taken out first.
    let heap =
        [light, middle, light, heavy, heavy, light, light, heavy, heavy, heavy, heavy, light, light, light, light];
    for i in (7..11).chain(0..7).chain(11..15) {
        let mut workload = cluster.workload(&format!("w{i}"), heap[i], i64::try_from(i).unwrap() + 1, i32::from(i < 7));
        workload.spec.active = false;
        cluster.put(workload);
    }
    for i in 0..heap.len() {
        cluster.change(&format!("w{i}"), |w| w.spec.active = true);
    }
    cluster.engine.remove_local_queue(cluster.now, &key(heavy));
    cluster.check("after a LocalQueue is gone");
    assert_eq!(cluster.engine.pending("q").len(), 9);
}

#[test]
fn victims_that_others_preempt_are_replaced_by_others_or_waited_for() {
    let reclaims = PreemptionPolicy { reclaim_within_cohort: ReclaimPolicy::Any, ..PreemptionPolicy::default() };
    for (held, want) in [(&[4, 4][..], Recomputation::NewTargets), (&[8][..], Recomputation::DeferredFit)] {
        let mut cluster = Cluster::new(Config::new());
        for name in ["a", "b"] {
            cluster.queue(queue(name, Some("pool"), 4, reclaims));
        }
        cluster.queue(queue("lent", Some("pool"), 0, PreemptionPolicy::default()));
        for (i, chips) in held.iter().enumerate() {
            cluster.submit(&format!("lent-{i}"), "lent", *chips, 0);
        }
        cluster.settle(20);
        assert_eq!(cluster.running().len(), held.len());
        cluster.submit("first", "a", 3, 0);
        cluster.submit("second", "b", 3, 0);
        let cycle = cluster.cycle();
        assert_eq!(cycle.recomputed, [("b".into(), want)], "{:?}", cycle.entries);
        cluster.settle(40);
        assert!(cluster.running().contains(&"first") && cluster.running().contains(&"second"));
    }
}
