//! The custom resource definitions: that they are well formed, have a place for everything that is read and written, and that
//! objects come back from the other version as they went.

#[cfg(test)]
mod definitions {
    use std::path::{Path, PathBuf};

    use serde_json::{Map, Value, json};
    use slicegate_api::crd::{ConversionWebhook, Version, definitions, schema_of};
    use slicegate_api::{Kind, kueue, v1beta1};

    const GROUP: &str = "kueue.x-k8s.io";

    /// Kinds of ours that the definitions are for.
    fn kinds() -> Vec<Kind> {
        Kind::ALL.iter().copied().filter(|k| k.api_version() == kueue::API_VERSION).collect()
    }

    fn schema(kind: &str, version: Version) -> Value {
        schema_of(kind, version).unwrap_or_else(|| panic!("no definition of {kind}"))
    }

    /// What an API server would drop from a value, or refuse in it because of its type.
    fn misfits(schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
        if schema["x-kubernetes-int-or-string"] == true {
            if !value.is_string() && !value.is_i64() {
                found.push(format!("{path}: neither number nor string"));
            }
            return;
        }
        match (schema["type"].as_str(), value) {
            (Some("object"), Value::Object(fields)) => {
                for (name, value) in fields {
                    let known = schema["properties"].get(name).or_else(|| schema.get("additionalProperties"));
                    match known {
                        Some(known) => misfits(known, value, &format!("{path}.{name}"), found),
                        None if path == "metadata" || path.is_empty() && name == "metadata" => {}
                        None if schema["x-kubernetes-preserve-unknown-fields"] == true => {}
                        None => found.push(format!("{path}.{name}: no such field")),
                    }
                }
            }
            (Some("array"), Value::Array(items)) => {
                for (i, item) in items.iter().enumerate() {
                    misfits(&schema["items"], item, &format!("{path}[{i}]"), found);
                }
            }
            (Some("string"), Value::String(text)) => {
                let allowed = schema["enum"].as_array();
                if allowed.is_some_and(|a| !a.iter().any(|v| v == text)) {
                    found.push(format!("{path}: {text:?} is not allowed"));
                }
            }
            (Some("integer"), Value::Number(n)) if n.is_i64() => {}
            (Some("boolean"), Value::Bool(_)) => {}
            (kind, value) => found.push(format!("{path}: {value} is no {kind:?}")),
        }
    }

    fn without_metadata(mut value: Value) -> Value {
        if let Some(fields) = value.as_object_mut() {
            fields.remove("metadata");
        }
        value
    }

    /// Every part of a schema, with its path.
    fn parts<'a>(schema: &'a Value, path: &str, visit: &mut dyn FnMut(&str, &'a Value)) {
        visit(path, schema);
        for (name, part) in schema["properties"].as_object().into_iter().flatten() {
            parts(part, &format!("{path}.{name}"), visit);
        }
        for (name, keyword) in [("[]", "items"), ("{}", "additionalProperties")] {
            if let Some(part) = schema.get(keyword) {
                parts(part, &format!("{path}{name}"), visit);
            }
        }
    }

    #[test]
    fn every_kind_is_defined_in_both_versions() {
        for kind in kinds() {
            for version in Version::ALL {
                assert!(schema_of(kind.as_str(), version).is_some(), "{}", kind.as_str());
            }
        }
        let all = definitions(&ConversionWebhook::default());
        assert_eq!(all.len(), 11);
        for definition in &all {
            let name = &definition["spec"]["names"];
            assert_eq!(definition["metadata"]["name"], format!("{}.{GROUP}", name["plural"].as_str().unwrap()));
            let versions = definition["spec"]["versions"].as_array().unwrap();
            let stored: Vec<&Value> = versions.iter().filter(|v| v["storage"] == true).collect();
            assert_eq!(stored.len(), 1);
            assert_eq!(stored[0]["name"], "v1beta2");
            assert!(versions.iter().all(|v| v["served"] == true));
        }
    }

    #[test]
    fn columns_and_short_names_are_those_that_people_know() {
        let all = definitions(&ConversionWebhook::default());
        let find = |kind: &str| all.iter().find(|d| d["spec"]["names"]["kind"] == kind).unwrap();
        let columns = |kind: &str, version: usize| -> Vec<String> {
            let columns = &find(kind)["spec"]["versions"][version]["additionalPrinterColumns"];
            columns.as_array().into_iter().flatten().map(|c| format!("{}={}", c["name"], c["jsonPath"])).collect()
        };
        assert_eq!(
            columns("Workload", 1).join(" ").replace('"', ""),
            "Queue=.spec.queueName Reserved in=.status.admission.clusterQueue \
             Admitted=.status.conditions[?(@.type=='Admitted')].status \
             Finished=.status.conditions[?(@.type=='Finished')].status Age=.metadata.creationTimestamp"
        );
        assert!(columns("ClusterQueue", 0)[0].contains(".spec.cohort\""));
        assert!(columns("ClusterQueue", 1)[0].contains(".spec.cohortName\""));
        assert_eq!(find("LocalQueue")["spec"]["names"]["shortNames"], json!(["queue", "queues", "lq"]));
        let workload = &find("Workload")["spec"];
        assert_eq!(workload["scope"], "Namespaced");
        assert_eq!(workload["versions"][1]["selectableFields"][0]["jsonPath"], ".status.admission.clusterQueue");
        assert_eq!(workload["versions"][0]["deprecated"], true);
        let converted: Vec<&str> = all
            .iter()
            .filter(|d| d["spec"]["conversion"]["strategy"] == "Webhook")
            .map(|d| d["spec"]["names"]["kind"].as_str().unwrap())
            .collect();
        assert_eq!(converted, ["ClusterQueue", "Cohort", "LocalQueue", "MultiKueueCluster", "Workload"]);
    }

    #[test]
    fn schemas_are_structural() {
        for definition in definitions(&ConversionWebhook::default()) {
            for version in definition["spec"]["versions"].as_array().unwrap() {
                let schema = &version["schema"]["openAPIV3Schema"];
                let kind = definition["spec"]["names"]["kind"].as_str().unwrap();
                parts(schema, kind, &mut |path, part| {
                    let typed = part["type"].is_string() || part["x-kubernetes-int-or-string"] == true;
                    assert!(typed, "{path} has no type");
                    let both = part.get("properties").is_some() && part.get("additionalProperties").is_some();
                    assert!(!both, "{path} has fields and is a map");
                    for required in part["required"].as_array().into_iter().flatten() {
                        assert!(part["properties"].get(required.as_str().unwrap()).is_some(), "{path}: {required}");
                    }
                    for key in part["x-kubernetes-list-map-keys"].as_array().into_iter().flatten() {
                        let key = key.as_str().unwrap();
                        let item = &part["items"];
                        let required = item["required"].as_array().is_some_and(|r| r.iter().any(|f| f == key));
                        let default = item["properties"][key].get("default").is_some();
                        assert!(required || default, "{path}: {key} is a key but may be missing");
                    }
                    if part["type"] == "array" && part["items"]["type"] == "object" {
                        assert!(part.get("x-kubernetes-list-type").is_some(), "{path}: who owns what of the list?");
                    }
                    if let Some(default) = part.get("default") {
                        let mut found = Vec::new();
                        misfits(part, default, path, &mut found);
                        assert_eq!(found, [""; 0]);
                    }
                });
            }
        }
    }

    fn corpus() -> Option<PathBuf> {
        let folder = std::env::var_os("SLICEGATE_CONFORMANCE").map(PathBuf::from);
        if folder.is_none() {
            println!("SKIPPED: SLICEGATE_CONFORMANCE does not name the folder with the recorded answers");
        }
        folder
    }

    fn each_object(folder: &Path, visit: &mut dyn FnMut(&Value)) {
        fn walk(value: &Value, visit: &mut dyn FnMut(&Value)) {
            // A reference to an owner has a kind, too.
            if value["kind"].is_string() && value["apiVersion"].is_string() && value.get("uid").is_none() {
                visit(value);
            }
            match value {
                Value::Array(items) => items.iter().for_each(|v| walk(v, visit)),
                Value::Object(fields) => fields.values().for_each(|v| walk(v, visit)),
                _ => {}
            }
        }
        for name in ["cycle", "checks", "jobs", "placement", "preemption", "quota"] {
            for file in std::fs::read_dir(folder.join(name)).unwrap() {
                let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
                walk(&serde_json::from_str(&text).unwrap(), visit);
            }
        }
    }

    #[test]
    fn recorded_objects_lose_nothing() {
        let Some(folder) = corpus() else { return };
        let mut count = 0;
        each_object(&folder, &mut |object| {
            let Some(kind) = kinds().into_iter().find(|k| object["kind"] == k.as_str()) else { return };
            if object["apiVersion"] != kueue::API_VERSION {
                return;
            }
            count += 1;
            let mut found = Vec::new();
            misfits(&schema(kind.as_str(), Version::V1Beta2), &without_metadata(object.clone()), "", &mut found);
            assert_eq!(found, [""; 0], "{object}");
            let mut older = object.clone();
            v1beta1::from_held(kind, &mut older);
            misfits(&schema(kind.as_str(), Version::V1Beta1), &without_metadata(older), "", &mut found);
            assert_eq!(found, [""; 0], "{object}");
        });
        assert!(count > 1000, "only {count} objects");
    }

    /// A sequence of numbers that look random and are the same each time.
    struct Dice(u64);

    impl Dice {
        fn roll(&mut self, sides: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % sides
        }

        fn index(&mut self, len: usize) -> usize {
            usize::try_from(self.roll(u64::try_from(len).unwrap())).unwrap()
        }
    }

    /// Fields that v1beta1 alone has, or that it says in two ways of which only one comes back.
    const ONE_WAY: [&str; 6] = [
        ".spec.admissionChecks",
        ".status.pendingWorkloadsStatus",
        ".status.fairSharing.admissionFairSharingStatus",
        ".status.flavors",
        ".spec.retryDelayMinutes",
        ".spec.priorityClassSource",
    ];

    /// A random value that the schema allows, as far as structure goes.
    fn random(dice: &mut Dice, schema: &Value, kind: &str, path: &str) -> Value {
        if schema["x-kubernetes-int-or-string"] == true {
            return json!((["1", "250m", "4Gi", "0"])[dice.index(4)]);
        }
        if let Some(values) = schema["enum"].as_array() {
            let values: Vec<&Value> = values.iter().filter(|v| *v != "Borrow" && *v != "Preempt" && *v != "").collect();
            return values[dice.index(values.len())].clone();
        }
        match schema["type"].as_str() {
            Some("object") => {
                let mut fields = Map::new();
                let required = schema["required"].as_array().cloned().unwrap_or_default();
                for (name, part) in schema["properties"].as_object().into_iter().flatten() {
                    let below = format!("{path}.{name}");
                    let keeps = kind == "LocalQueue" && below.ends_with("admissionFairSharingStatus");
                    if ["apiVersion", "kind", "metadata"].contains(&name.as_str()) && path.is_empty()
                        || ONE_WAY.contains(&&*below) && !keeps
                    {
                        continue;
                    }
                    if required.iter().any(|r| r == name) || dice.roll(3) > 0 {
                        fields.insert(name.clone(), random(dice, part, kind, &below));
                    }
                }
                if let Some(part) = schema.get("additionalProperties") {
                    for i in 0..dice.roll(3) {
                        fields.insert(format!("key{i}"), random(dice, part, kind, &format!("{path}{{}}")));
                    }
                }
                Value::Object(fields)
            }
            Some("array") => {
                let least = schema["minItems"].as_u64().unwrap_or(0);
                let count = least + dice.roll(3);
                (0..count).map(|_| random(dice, &schema["items"], kind, &format!("{path}[]"))).collect()
            }
            Some("integer") => {
                let least = schema["minimum"].as_i64().unwrap_or(-3);
                json!(least + i64::try_from(dice.roll(9)).unwrap())
            }
            Some("boolean") => json!(dice.roll(2) == 0),
            _ if schema["format"] == "date-time" => json!("2026-01-01T00:00:00Z"),
            _ => json!((["a", "b-1", "host-1", "host-2", "x"])[dice.index(5)]),
        }
    }

    /// A random v1beta1 object made of fields that both versions have.
    fn random_object(dice: &mut Dice, kind: Kind) -> Value {
        let mut object = random(dice, &schema(kind.as_str(), Version::V1Beta1), kind.as_str(), "");
        object["apiVersion"] = v1beta1::API_VERSION.into();
        object["kind"] = kind.as_str().into();
        object["metadata"] = json!({"name": "random"});
        if kind == Kind::Workload {
            // Where the priority comes from only means something together with its name.
            if object["spec"].get("priorityClassName").is_some() {
                let sources = ["kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass"];
                object["spec"]["priorityClassSource"] = sources[dice.index(2)].into();
            }
            let admission = object.get_mut("status").and_then(|s| s.get_mut("admission"));
            let assignments = admission.and_then(|a| a["podSetAssignments"].as_array_mut());
            for assignment in assignments.into_iter().flatten() {
                let Some(topology) = assignment.get_mut("topologyAssignment") else { continue };
                let levels = topology["levels"].as_array().unwrap().len();
                for domain in topology["domains"].as_array_mut().unwrap() {
                    let values: Vec<String> = (0..levels).map(|_| format!("host-{}", dice.roll(4))).collect();
                    domain["values"] = json!(values);
                }
            }
        }
        object
    }

    #[test]
    fn what_both_versions_can_say_comes_back_as_it_went() {
        for kind in kinds() {
            for seed in 0..300 {
                let mut dice = Dice(seed);
                let older = random_object(&mut dice, kind);
                let mut found = Vec::new();
                misfits(&schema(kind.as_str(), Version::V1Beta1), &without_metadata(older.clone()), "", &mut found);
                assert_eq!(found, [""; 0], "{older}");
                let mut held = older.clone();
                let newer = v1beta1::to_held(kind, &mut held);
                assert!(newer.is_empty(), "{older}");
                misfits(&schema(kind.as_str(), Version::V1Beta2), &without_metadata(held.clone()), "", &mut found);
                assert_eq!(found, [""; 0], "{held}");
                let mut back = held.clone();
                v1beta1::from_held(kind, &mut back);
                assert_eq!(back, older, "by way of {held}");
            }
        }
    }
}
