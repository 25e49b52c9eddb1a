//! What may be created and changed.
#![expect(clippy::unwrap_used, reason = "a case that cannot be read fails")]

use std::path::Path;

use serde_json::{Map, Value, json};
use slicegate_api::validation::{
    Finding, JobChange, Rules, immutable_pod_spec, job_metadata, job_metadata_update, ray_cluster_spec,
    topology_annotations, validate_by_webhook, validate_update_by_webhook,
};
use slicegate_api::{Kind, Object, ray};

use crate::report::Report;

fn rules(case: &Value) -> Rules {
    let mut rules = Rules::default();
    rules.manage_jobs_without_queue_name = case["config"]["manageJobsWithoutQueueName"] == true;
    for (gate, on) in case["config"]["featureGates"].as_object().into_iter().flatten() {
        // Others do not matter here.
        let _ = rules.set(gate, *on == true);
    }
    rules
}

/// The recorded objects leave out empty fields that the schema demands.
fn complete(value: &mut Value) {
    let fill = |fields: &mut Map<String, Value>, name: &str, with: Value| {
        fields.entry(name).or_insert(with);
    };
    match value {
        Value::Array(items) => items.iter_mut().for_each(complete),
        Value::Object(fields) => {
            if fields.contains_key("flavors") && fields["flavors"].is_array() {
                fill(fields, "coveredResources", json!([]));
                for flavor in fields["flavors"].as_array_mut().unwrap() {
                    fill(flavor.as_object_mut().unwrap(), "resources", json!([]));
                }
            }
            if let Some(Value::Array(layers)) = fields.get_mut("podsetSliceRequiredTopologyConstraints") {
                for layer in layers {
                    fill(layer.as_object_mut().unwrap(), "size", json!(0));
                }
            }
            if fields.contains_key("message") && !fields.contains_key("status") {
                fill(fields, "name", json!(""));
                fill(fields, "state", json!(""));
            }
            fields.values_mut().for_each(complete);
        }
        _ => {}
    }
}

fn kind(name: &str) -> Kind {
    *Kind::ALL.iter().find(|k| k.as_str() == name).unwrap()
}

fn object(value: &Value) -> Object {
    let mut value = value.clone();
    complete(&mut value);
    kind(value["kind"].as_str().unwrap()).read(value).unwrap()
}

/// Fields and sorts of what is found; the wording is ours.
fn same(found: &[Finding], case: &Value) -> Result<(), String> {
    let mut got: Vec<(String, String)> =
        found.iter().map(|f| (f.path.clone(), format!("FieldValue{:?}", f.kind))).collect();
    let text = |e: &Value, key: &str| e[key].as_str().unwrap_or_default().to_owned();
    let mut want: Vec<(String, String)> = case["expect"]["errors"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|e| (text(e, "field"), text(e, "type")))
        .collect();
    got.sort();
    want.sort();
    if got == want { Ok(()) } else { Err(format!("\n   got {found:?}\n  want {}", case["expect"]["errors"])) }
}

/// Runs the suites of the folder `validation` about what is refused.
pub(crate) fn run(corpus: &Path, kind: &str, report: &mut Report) {
    let kinds = ["job", "jobset", "rayjob", "raycluster", "workload", "clusterqueue", "cohort", "resourceflavor"];
    for of in kinds {
        report.suite(corpus, kind, &format!("{of}-create"), |case| {
            same(&validate_by_webhook(&object(&case["object"]), &rules(case)), case)
        });
        report.suite(corpus, kind, &format!("{of}-update"), |case| {
            let (old, new) = (object(&case["oldObject"]), object(&case["object"]));
            let default_queue = case["config"]["defaultLocalQueueExists"] == true;
            same(&validate_update_by_webhook(&old, &new, &rules(case), default_queue), case)
        });
    }
    report.suite(corpus, kind, "raycluster-spec-create", |case| {
        let spec: ray::RayClusterSpec = serde_json::from_value(case["rayClusterSpec"].clone()).unwrap();
        let elastic = case["object"]["metadata"]["annotations"]["kueue.x-k8s.io/elastic-job"] == "true";
        same(&ray_cluster_spec("spec", &spec, elastic), case)
    });
    report.suite(corpus, kind, "any-job-create", |case| {
        let metadata = serde_json::from_value(case["object"]["metadata"].clone()).unwrap();
        same(&job_metadata(self::kind(case["gvk"]["kind"].as_str().unwrap()), &metadata, &rules(case)), case)
    });
    report.suite(corpus, kind, "any-job-update", |case| {
        let metadata = |key: &str| serde_json::from_value(case[key]["metadata"].clone()).unwrap();
        let (old, new) = (metadata("oldObject"), metadata("object"));
        let change = JobChange {
            old: &old,
            new: &new,
            was_suspended: case["oldObject"]["spec"]["suspend"] == true,
            is_suspended: case["object"]["spec"]["suspend"] == true,
            default_queue: case["config"]["defaultLocalQueueExists"] == true,
        };
        same(&job_metadata_update(&change, &rules(case)), case)
    });
    report.suite(corpus, kind, "tas-annotations", |case| {
        let annotations = serde_json::from_value(case["annotations"].clone()).unwrap();
        let count = case["podSetCount"].as_i64().map(|c| i32::try_from(c).unwrap());
        same(&topology_annotations(case["path"].as_str().unwrap(), &annotations, count, &rules(case)), case)
    });
    report.suite(corpus, kind, "immutable-podspec", |case| {
        let spec = |key: &str| {
            let mut value = case[key].clone();
            if value["containers"].is_null() {
                value["containers"] = json!([]);
            }
            serde_json::from_value(value).unwrap()
        };
        let path = case["path"].as_str().unwrap();
        same(&immutable_pod_spec(path, &spec("oldPodSpec"), &spec("newPodSpec")), case)
    });
}
