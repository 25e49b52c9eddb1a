//! Objects of one name: what becomes of one says nothing about the other.

use serde_json::json;
use slicegate_api::Object;
use slicegate_controller::{Configuration, Operation, WriteError, WriteOutcome};
use slicegate_workload::ConditionType;

use crate::api::World;

#[test]
fn a_job_that_cannot_be_written_loses_nothing_of_its_workload() {
    let template = json!({"spec": {"restartPolicy": "Never",
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
    let mut world = World::new(Configuration::default());
    world.put(json!({"kind": "ResourceFlavor", "metadata": {"name": "std"}, "spec": {}}));
    let queue = world.put(json!({"kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {
        "namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": "std", "resources": [{"name": "cpu", "nominalQuota": "0"}]}]}]}}));
    world.put(json!({"kind": "LocalQueue", "metadata": {"name": "lq"}, "spec": {"clusterQueue": "cq"}}));
    world.settle();
    world.put(json!({"kind": "Workload", "metadata": {"name": "same"}, "spec": {
        "queueName": "lq", "active": true, "podSets": [{"name": "main", "count": 1, "template": template}]}}));
    let job = world.put(json!({"kind": "Job", "metadata": {"name": "same", "labels": {
            "kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/prebuilt-workload-name": "same"}},
        "spec": {"parallelism": 1, "completions": 1, "suspend": false, "template": template}}));
    // The job is being suspended, and the Workload told why it waits.
    let (mut of_job, mut of_workload) = (None, None);
    while of_job.is_none() || of_workload.is_none() {
        let writes = world.controller.reconcile(world.now).writes;
        assert!(!writes.is_empty(), "{of_job:?} {of_workload:?}");
        for write in writes {
            match &write.operation {
                Operation::Update(Object::Job(_)) => of_job = Some(write),
                Operation::UpdateStatus(Object::Workload(_)) => of_workload = Some(write),
                _ => {
                    let result = world.api.perform(&write);
                    world.controller.complete(world.now, WriteOutcome { id: write.id, result });
                }
            }
        }
        world.deliver();
    }
    let (of_job, of_workload) = (of_job.unwrap(), of_workload.unwrap());
    // Meanwhile there is room.
    world.edit(&queue, |q| q["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "1".into());
    world.controller.reconcile(world.now);
    let failed = WriteOutcome { id: of_job.id, result: Err(WriteError::Conflict(job.clone())) };
    world.controller.complete(world.now, failed);
    let result = world.api.perform(&of_workload);
    world.controller.complete(world.now, WriteOutcome { id: of_workload.id, result });
    world.deliver();
    world.settle();
    while !world.has(&job, &ConditionType::Admitted) {
        world.sleep();
    }
}
