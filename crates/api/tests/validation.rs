//! The recorded right answers about what may be created.

#[cfg(test)]
mod recorded {
    use std::path::PathBuf;

    use serde_json::{Map, Value, json};
    use slicegate_api::validation::{
        Finding, FindingKind, Rules, job_metadata, ray_cluster_spec, topology_annotations, validate_by_webhook,
    };
    use slicegate_api::{Kind, ray};

    fn suite(name: &str) -> Vec<Value> {
        let Some(folder) = std::env::var_os("SLICEGATE_CONFORMANCE").map(PathBuf::from) else {
            println!("SKIPPED: SLICEGATE_CONFORMANCE does not name the folder with the recorded answers");
            return Vec::new();
        };
        let text = std::fs::read_to_string(folder.join("validation").join(format!("{name}.json"))).unwrap();
        let mut suite: Value = serde_json::from_str(&text).unwrap();
        match suite["cases"].take() {
            Value::Array(cases) => cases,
            other => panic!("{name}: no cases: {other}"),
        }
    }

    fn rules(case: &Value) -> Rules {
        let mut rules = Rules::default();
        let config = &case["config"];
        rules.manage_jobs_without_queue_name = config["manageJobsWithoutQueueName"] == true;
        for (gate, on) in config["featureGates"].as_object().into_iter().flatten() {
            let on = on == true;
            match gate.as_str() {
                "TopologyAwareScheduling" => rules.topology_aware_scheduling = on,
                "TASMultiLayerTopology" => rules.multi_layer_topology = on,
                "TASValidateWorkloadSliceSize" => rules.slice_size = on,
                "ElasticJobsViaWorkloadSlices" => rules.elastic_jobs = on,
                "AdmissionGatedBy" => rules.admission_gated_by = on,
                "WorkloadIdentifierAnnotations" => rules.identifier_annotations = on,
                "PriorityBoost" => rules.priority_boost = on,
                "WorkloadValidationForPodSetMetadata" => rules.pod_set_metadata = on,
                "WorkloadValidateResourcesAreNonNegative" => rules.non_negative_resources = on,
                _ => {}
            }
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

    fn type_name(kind: FindingKind) -> String {
        format!("FieldValue{kind:?}")
    }

    /// Runs a suite and demands that every case gives the recorded fields and types.
    fn run(name: &str, check: impl Fn(&Value) -> Vec<Finding>) {
        let cases = suite(name);
        let mut wrong = Vec::new();
        for case in &cases {
            let sorted = |mut list: Vec<(String, String)>| {
                list.sort();
                list
            };
            let expected = case["expect"]["errors"].as_array().cloned().unwrap_or_default();
            let expected = sorted(
                expected
                    .iter()
                    .map(|e| {
                        (e["field"].as_str().unwrap_or_default().into(), e["type"].as_str().unwrap_or_default().into())
                    })
                    .collect(),
            );
            let found = check(case);
            let got = sorted(found.iter().map(|f| (f.path.clone(), type_name(f.kind))).collect());
            if got != expected {
                wrong.push(format!("{}\n  expected {expected:?}\n  found    {found:?}", case["id"]));
            }
        }
        println!("{name}: {} of {} as recorded", cases.len() - wrong.len(), cases.len());
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    fn object(case: &Value) -> Vec<Finding> {
        let mut value = case["object"].clone();
        complete(&mut value);
        let kind = kind(value["kind"].as_str().unwrap());
        validate_by_webhook(&kind.read(value).unwrap(), &rules(case))
    }

    #[test]
    fn cluster_queues() {
        run("clusterqueue-create", object);
    }

    #[test]
    fn cohorts() {
        run("cohort-create", object);
    }

    #[test]
    fn resource_flavors() {
        run("resourceflavor-create", object);
    }

    #[test]
    fn workloads() {
        run("workload-create", object);
    }

    #[test]
    fn jobs() {
        run("job-create", object);
    }

    #[test]
    fn job_sets() {
        run("jobset-create", object);
    }

    #[test]
    fn ray_jobs() {
        run("rayjob-create", object);
    }

    #[test]
    fn ray_clusters() {
        run("raycluster-create", object);
    }

    #[test]
    fn specs_of_ray_clusters() {
        run("raycluster-spec-create", |case| {
            let spec: ray::RayClusterSpec = serde_json::from_value(case["rayClusterSpec"].clone()).unwrap();
            let elastic = case["object"]["metadata"]["annotations"]["kueue.x-k8s.io/elastic-job"] == "true";
            ray_cluster_spec("spec", &spec, elastic)
        });
    }

    #[test]
    fn jobs_of_any_kind() {
        run("any-job-create", |case| {
            let metadata = serde_json::from_value(case["object"]["metadata"].clone()).unwrap();
            job_metadata(kind(case["gvk"]["kind"].as_str().unwrap()), &metadata, &rules(case))
        });
    }

    #[test]
    fn topology() {
        run("tas-annotations", |case| {
            let annotations = serde_json::from_value(case["annotations"].clone()).unwrap();
            let count = case["podSetCount"].as_i64().map(|c| i32::try_from(c).unwrap());
            topology_annotations(case["path"].as_str().unwrap(), &annotations, count, &rules(case))
        });
    }
}
