//! Two RayJobs on TPU v6e: the first on demand, the second through DWS flex-start.

use slicegate_api::provisioning::ProvisioningRequest;
use slicegate_api::{Kind, Object};
use slicegate_sim::{EntryKind, Outcome};

use crate::common::{Run, all_finished, apply_at, at, once, pods_on_pools, shared, told, workload};

const POOLS: &str = r#"[
    {"name": "default-pool", "initialNodeCount": 1, "config": {"machineType": "n2-standard-16"}},
    {"name": "on-demand-pool", "initialNodeCount": 0, "autoscaling": {"enabled": true, "minNodeCount": 0, "maxNodeCount": 4},
     "config": {"machineType": "ct6e-standard-4t"}, "placementPolicy": {"tpuTopology": "4x4"}},
    {"name": "dws-pool", "initialNodeCount": 0, "autoscaling": {"enabled": true, "minNodeCount": 0, "maxNodeCount": 4},
     "config": {"machineType": "ct6e-standard-4t", "flexStart": true}, "placementPolicy": {"tpuTopology": "4x4"},
     "queuedProvisioning": {"enabled": true}}
]"#;

fn tutorial() -> Outcome {
    Run::default()
        .file_with("dws/dws-tpu-queue.yaml", &[("ONDEMAND_NODEPOOL", "on-demand-pool"), ("DWS_NODEPOOL", "dws-pool")])
        .file_with("dws/rayjob-tpu-v6e-dws.yaml", &[("JOB_ID", "1")])
        .file_with("dws/rayjob-tpu-v6e-dws.yaml", &[("JOB_ID", "2")])
        .text(POOLS)
        .run()
}

const FIRST: &str = "rayjob-tpu-v6e-dws-1";
const SECOND: &str = "rayjob-tpu-v6e-dws-2";

#[test]
fn the_first_runs_on_demand_and_the_second_falls_back_to_dws() {
    if shared().is_none() {
        return;
    }
    let outcome = tutorial();
    all_finished(&outcome);
    for (job, workers) in [(FIRST, "on-demand"), (SECOND, "dws")] {
        let admission = workload(&outcome, job).status.admission.unwrap();
        let flavors: Vec<(&str, &str)> =
            admission.pod_set_assignments.iter().map(|a| (a.name.as_str(), a.flavors["cpu"].as_str())).collect();
        assert_eq!(flavors, [("head", "default-cpu"), ("tpu-group", workers), ("submitter", "default-cpu")]);
        assert_eq!(admission.pod_set_assignments[1].flavors["google.com/tpu"], workers);
        assert_eq!(admission.pod_set_assignments[1].resource_usage["google.com/tpu"].0, "16");
    }
    // The check is for flavor dws only.
    assert!(workload(&outcome, FIRST).status.admission_checks.is_empty());
    let checks = workload(&outcome, SECOND).status.admission_checks;
    assert_eq!((checks.len(), checks[0].name.as_str(), checks[0].state.as_str()), (1, "dws-prov", "Ready"));
}

#[test]
fn the_first_may_not_leave_its_flavor_to_grow() {
    if shared().is_none() {
        return;
    }
    let cluster = |replicas: i32| {
        let scale = format!("{{object: RayJob/{FIRST}, workerGroup: tpu-group, replicas: {replicas}}}");
        let events = format!("  runTime: 20m\n  events:\n  - {{at: 6m, scale: {scale}}}\n");
        Run::default()
            .file_with(
                "dws/dws-tpu-queue.yaml",
                &[("ONDEMAND_NODEPOOL", "on-demand-pool"), ("DWS_NODEPOOL", "dws-pool")],
            )
            .file_with("dws/rayjob-tpu-v6e-dws.yaml", &[("JOB_ID", "1")])
            .text(POOLS)
            .text(&apply_at(&events, &[]))
            .run()
    };
    let outcome = cluster(2);
    let texts: Vec<&str> = told(&outcome, EntryKind::Waiting, FIRST).iter().map(|t| t.1).collect();
    let why = "an elastic job grows only on the flavor that it runs on";
    assert!(texts[0].contains("of flavor on-demand") && texts.iter().all(|t| t.contains(why)), "{texts:#?}");
    assert!(texts.iter().all(|t| !t.contains("must be changed")), "{texts:#?}");
    // It never asked DWS, and went on as it was.
    assert!(outcome.timeline.iter().all(|e| e.kind != EntryKind::ProvisioningRequest), "{:#?}", outcome.timeline);
    assert_eq!(told(&outcome, EntryKind::Admitted, FIRST).len(), 1);
}

#[test]
fn the_second_waits_for_its_provisioning_request() {
    if shared().is_none() {
        return;
    }
    let outcome = tutorial();
    let reserved = once(&outcome, EntryKind::QuotaReserved, SECOND);
    let admitted = once(&outcome, EntryKind::Admitted, SECOND);
    assert_eq!(admitted - reserved, 300, "DWS takes five minutes");
    let requests: Vec<ProvisioningRequest> = at(&outcome, admitted, Kind::ProvisioningRequest)
        .iter()
        .filter_map(|o| match o {
            Object::ProvisioningRequest(request) => Some(request.as_ref().clone()),
            _ => None,
        })
        .collect();
    assert_eq!(requests.len(), 1);
    let request = &requests[0];
    assert_eq!(request.spec.provisioning_class_name, "queued-provisioning.gke.io");
    assert_eq!(request.spec.pod_sets.len(), 1, "only the pod set that asks for google.com/tpu");
    assert_eq!(request.spec.pod_sets[0].count, 4);
    let holds = |kind: &str| request.status.conditions.iter().any(|c| c.type_ == kind && c.status == "True");
    assert!(holds("Accepted") && holds("Provisioned"), "{:?}", request.status.conditions);
    let told: Vec<&str> = told(&outcome, EntryKind::ProvisioningRequest, SECOND).iter().map(|t| t.1).collect();
    assert!(told[0].contains("accepted") && told[1].contains("provisioned"), "{told:?}");

    // Nothing of the job runs before.
    let early = pods_on_pools(&outcome, admitted - 1);
    assert!(early.keys().all(|p| p.starts_with(FIRST)), "{early:?}");
    let on = |job: &str, part: &str| -> Vec<String> {
        let pods = pods_on_pools(&outcome, once(&outcome, EntryKind::Running, job));
        pods.into_iter().filter(|(p, _)| p.starts_with(job) && p.contains(part)).map(|(_, pool)| pool).collect()
    };
    assert_eq!(on(SECOND, "-tpu-group-worker-"), ["dws-pool"; 4]);
    assert_eq!(on(FIRST, "-tpu-group-worker-"), ["on-demand-pool"; 4]);
    assert_eq!(on(SECOND, "-head-"), ["default-pool"]);
}

#[test]
fn both_pools_come_as_a_slice_and_go_again() {
    if shared().is_none() {
        return;
    }
    let outcome = tutorial();
    let mut sizes: Vec<(String, usize)> = Vec::new();
    let end = outcome.end.micros_since(outcome.start) / 1_000_000;
    for second in 0..=end {
        let nodes = at(&outcome, second, Kind::Node);
        for pool in ["on-demand-pool", "dws-pool"] {
            let has = |o: &&Object| o.metadata().labels.as_ref().unwrap()["cloud.google.com/gke-nodepool"] == pool;
            let size = nodes.iter().filter(has).count();
            if sizes.iter().rev().find(|(p, _)| p == pool).map_or(0, |(_, s)| *s) != size {
                sizes.push((pool.to_owned(), size));
            }
        }
    }
    let pool = |name: &str, size| (name.to_owned(), size);
    assert_eq!(sizes, [pool("on-demand-pool", 4), pool("dws-pool", 4), pool("on-demand-pool", 0), pool("dws-pool", 0)]);
}

#[test]
fn both_succeed_in_the_submitters_words() {
    if shared().is_none() {
        return;
    }
    let outcome = tutorial();
    for job in [FIRST, SECOND] {
        let words = told(&outcome, EntryKind::Submitter, job);
        assert_eq!(words.len(), 1, "{words:?}");
        let id = words[0].1.strip_prefix("Job '").and_then(|t| t.strip_suffix("' succeeded")).unwrap();
        assert_eq!(id.strip_prefix(job).unwrap().len(), 6, "{id}");
        let Some(Object::RayJob(ray)) = outcome.objects.values().find(|o| o.kind() == Kind::RayJob && o.name() == job)
        else {
            panic!("{job} is gone");
        };
        assert_eq!(ray.status.job_status.as_deref(), Some("SUCCEEDED"));
        assert_eq!(ray.status.job_deployment_status.as_deref(), Some("Complete"));
        assert_eq!(ray.status.job_id.as_deref(), Some(id));
    }
    // Their clusters are gone.
    assert!(outcome.objects.keys().all(|o| o.kind != Kind::RayCluster));
}
