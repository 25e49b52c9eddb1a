//! When workloads that wait are looked at again.

use slicegate_admission::lifecycle::{At, REPLACEMENT_ANNOTATION};
use slicegate_admission::{Config, Outcome, Skip, WaitForPodsReady, Written};
use slicegate_workload::{
    CheckState, CheckStatus, ClusterQueueSpec, ConditionType, FlavorSpec, Key, PreemptionPolicy, ReclaimPolicy, Status,
    WithinClusterQueuePolicy,
};

use crate::cluster::{Cluster, NAMESPACE, group, queue};

const NEVER: PreemptionPolicy = PreemptionPolicy {
    reclaim_within_cohort: ReclaimPolicy::Never,
    within_cluster_queue: WithinClusterQueuePolicy::Never,
    borrow_within_cohort: None,
};

fn key(name: &str) -> Key {
    Key::new(NAMESPACE, name)
}

/// A queue of four chips, and a workload that is parked in it since another one holds them.
fn parked() -> Cluster {
    let mut cluster = Cluster::new(Config::new());
    cluster.queue(queue("q", None, 4, NEVER));
    cluster.submit("runs", "q", 4, 0);
    cluster.cycle();
    cluster.submit("waits", "q", 2, 0);
    cluster.cycle();
    assert!(!cluster.engine.has_heads(cluster.now), "it is parked");
    cluster
}

#[test]
fn who_could_not_be_told_why_it_waits_is_looked_at_again() {
    for (result, again) in [(Written::Ok, false), (Written::NotFound, false), (Written::Failed, true)] {
        let mut cluster = parked();
        cluster.engine.decline_written(cluster.now, &key("waits"), result);
        cluster.check("after a write");
        assert_eq!(cluster.engine.has_heads(cluster.now), again, "{result:?}");
        // Whoever holds quota, or is not known, is none of those that wait.
        cluster.engine.decline_written(cluster.now, &key("runs"), result);
        cluster.engine.decline_written(cluster.now, &key("nobody"), result);
        assert_eq!(cluster.engine.has_heads(cluster.now), again, "{result:?}");
        if again {
            let cycle = cluster.cycle();
            assert_eq!(cycle.entries[0].workload, key("waits"));
            assert!(cycle.entries[0].status.is_some(), "it is told anew");
        }
    }
}

#[test]
fn who_was_kept_back_by_a_check_competes_once_that_is_asked_anew() {
    let mut cluster = parked();
    let state = |cluster: &mut Cluster, state: CheckState| {
        cluster.change("waits", |w| {
            w.status.admission_checks = vec![CheckStatus { name: "check".into(), state, ..CheckStatus::default() }];
        });
    };
    state(&mut cluster, CheckState::Retry);
    cluster.finish("runs");
    cluster.engine.flush(cluster.now);
    cluster.cycle();
    assert!(!cluster.get("waits").has_quota_reservation());
    assert!(!cluster.engine.has_heads(cluster.now), "it is parked");
    state(&mut cluster, CheckState::Pending);
    cluster.cycle();
    assert!(cluster.get("waits").has_quota_reservation());
}

/// A queue with four chips of one flavor and one of another.
fn two_flavors(name: &str) -> ClusterQueueSpec {
    let mut spec = queue(name, None, 0, NEVER);
    let mut first = group("first", 4);
    first.flavors.extend(group("second", 1).flavors);
    spec.resource_groups = vec![first];
    spec
}

#[test]
fn a_flavor_that_was_not_looked_at_is_not_passed_over() {
    let mut config = Config::new();
    config.wait_for_pods_ready = Some(WaitForPodsReady { block_admission: true, ..WaitForPodsReady::default() });
    let mut cluster = Cluster::new(config);
    for name in ["first", "second"] {
        cluster.engine.set_flavor(cluster.now, FlavorSpec { name: name.into(), ..FlavorSpec::default() });
    }
    // One of these is admitted, the next has to wait for its pods, and the last is not looked at any more.
    for name in ["p", "q", "r"] {
        cluster.queue(two_flavors(name));
    }
    for name in ["p", "q", "r"] {
        cluster.submit(&format!("{name}-job"), name, 4, 0);
    }
    let cycle = cluster.cycle();
    let outcomes: Vec<&Outcome> = cycle.entries.iter().map(|e| &e.outcome).collect();
    assert!(
        matches!(outcomes[..], [Outcome::Admitted { .. }, Outcome::WaitingForPodsReady, Outcome::Postponed]),
        "{outcomes:?}"
    );
    for name in ["q-job", "r-job"] {
        assert!(!cluster.engine.has_flavors_left(&key(name)), "{name} begins with its first flavor again");
    }
    for name in ["p-job", "q-job"] {
        ready(&mut cluster, name);
        cluster.cycle();
    }
    assert_eq!(cluster.running(), ["p-job", "q-job", "r-job"]);
}

fn ready(cluster: &mut Cluster, name: &str) {
    let now = cluster.now;
    cluster.change(name, |w| {
        let at = At { now, generation: 1 };
        at.set(&mut w.status, ConditionType::PodsReady, Status::True, "Started", "all pods are ready");
    });
}

#[test]
fn a_scan_that_was_interrupted_goes_on() {
    let mut cluster = Cluster::new(Config::new());
    for name in ["first", "second"] {
        cluster.engine.set_flavor(cluster.now, FlavorSpec { name: name.into(), ..FlavorSpec::default() });
    }
    for name in ["p", "q"] {
        let spec = ClusterQueueSpec { cohort: Some("all".into()), ..two_flavors(name) };
        cluster.queue(spec);
    }
    // Each fits into what both queues have of the first flavor, and not both.
    cluster.submit("a", "p", 6, 0);
    cluster.submit("b", "q", 6, 0);
    let cycle = cluster.cycle();
    assert_eq!(cycle.entries[1].outcome, Outcome::Skipped(Skip::NoLongerFits));
    assert!(!cluster.engine.has_flavors_left(&key("a")) && cluster.engine.has_flavors_left(&key("b")));
    cluster.cycle();
    assert!(!cluster.engine.has_flavors_left(&key("b")), "the second was the last");
    assert!(!cluster.engine.has_flavors_left(&key("nobody")));
}

#[test]
fn who_was_parked_after_half_a_scan_is_looked_at_again() {
    let mut cluster = Cluster::new(Config::new());
    for name in ["first", "second"] {
        cluster.engine.set_flavor(cluster.now, FlavorSpec { name: name.into(), ..FlavorSpec::default() });
    }
    for name in ["p", "q"] {
        let spec = ClusterQueueSpec { cohort: Some("all".into()), ..two_flavors(name) };
        cluster.queue(spec);
    }
    assert!(!cluster.engine.reconsider_cut_short());
    cluster.submit("a", "p", 6, 0);
    cluster.submit("b", "q", 6, 0);
    cluster.submit("like-b", "q", 6, 0);
    cluster.cycle();
    // Before the rest of the flavors is tried the one that came in between is gone.
    cluster.finish("a");
    cluster.cycle();
    assert!(!cluster.get("b").has_quota_reservation() && !cluster.engine.has_heads(cluster.now));
    assert!(cluster.engine.reconsider_cut_short());
    assert!(!cluster.engine.reconsider_cut_short(), "once");
    cluster.check("after that");
    cluster.cycle();
    assert!(cluster.get("b").has_quota_reservation());
}

#[test]
fn a_scan_begins_anew_in_another_queue() {
    let mut cluster = Cluster::new(Config::new());
    for name in ["first", "second"] {
        cluster.engine.set_flavor(cluster.now, FlavorSpec { name: name.into(), ..FlavorSpec::default() });
    }
    for name in ["p", "q", "r"] {
        let spec = ClusterQueueSpec { cohort: Some("all".into()), ..two_flavors(name) };
        cluster.queue(spec);
    }
    cluster.submit("a", "p", 8, 0);
    cluster.submit("b", "q", 8, 0);
    cluster.cycle();
    assert!(cluster.engine.has_flavors_left(&key("b")));
    cluster.change("b", |w| w.spec.queue_name = "r".into());
    assert!(!cluster.engine.has_flavors_left(&key("b")));
}

#[test]
fn a_back_off_that_ended_competes_at_once() {
    let mut cluster = Cluster::new(Config::new());
    cluster.queue(queue("q", None, 4, NEVER));
    let mut w = cluster.workload("w", "q", 1, 0);
    w.status.requeue_state =
        Some(slicegate_workload::RequeueState { count: Some(1), requeue_at: Some(cluster.now.plus_seconds(60)) });
    cluster.put(w);
    ready(&mut cluster, "w");
    assert!(!cluster.engine.has_heads(cluster.now), "whatever it says meanwhile");
    cluster.now = cluster.now.plus_seconds(60);
    ready(&mut cluster, "w");
    assert!(cluster.engine.has_heads(cluster.now), "no batch of parked workloads has to take it along");
}

#[test]
fn what_is_freed_before_all_checks_are_answered_wakes_others() {
    let mut cluster = parked();
    cluster.change("runs", |w| {
        w.status.conditions.remove(&ConditionType::Admitted);
    });
    cluster.engine.flush(cluster.now);
    while cluster.engine.has_heads(cluster.now) {
        cluster.cycle();
    }
    cluster.change("runs", |w| {
        w.status.reclaimable_pods = vec![slicegate_workload::ReclaimablePods { name: "main".into(), count: 1 }];
    });
    cluster.now = cluster.now.plus_seconds(1);
    cluster.cycle();
    assert!(cluster.get("waits").has_quota_reservation());
}

#[test]
fn of_an_elastic_job_one_workload_after_the_other_is_admitted() {
    let mut config = Config::new();
    config.gates.elastic_jobs_via_workload_slices = true;
    let mut cluster = Cluster::new(config);
    for name in ["p", "q"] {
        cluster.queue(queue(name, None, 8, NEVER));
    }
    // Its size and its queue changed while the first was being made; the third replaces the first.
    for (name, queue, replaces) in [("first", "p", None), ("stray", "q", None), ("next", "p", Some("team/first"))] {
        let mut workload = cluster.workload(name, queue, 2, 0);
        workload.annotations.insert("kueue.x-k8s.io/elastic-job".into(), "true".into());
        workload.labels.insert("kueue.x-k8s.io/job-uid".into(), "job".into());
        if let Some(old) = replaces {
            workload.annotations.insert(REPLACEMENT_ANNOTATION.into(), old.into());
        }
        cluster.put(workload);
    }
    let cycle = cluster.cycle();
    assert!(matches!(cycle.entries[0].outcome, Outcome::Admitted { .. }));
    assert_eq!(cycle.entries[1].outcome, Outcome::Skipped(Skip::OtherSliceHoldsQuota));
    cluster.cycle();
    assert!(cluster.get("next").has_quota_reservation() && !cluster.get("stray").has_quota_reservation());
    // Workloads of other jobs are not concerned, and those that are not elastic may be as many as they are.
    let mut other = cluster.workload("other", "q", 2, 0);
    other.labels.insert("kueue.x-k8s.io/job-uid".into(), "job".into());
    cluster.delete("stray");
    cluster.put(other);
    cluster.cycle();
    assert!(cluster.get("other").has_quota_reservation());
}
