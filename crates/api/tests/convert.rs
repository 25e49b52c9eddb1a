//! The recorded objects, converted and back.

#[cfg(test)]
mod recorded {
    use std::path::PathBuf;

    use serde_json::Value;
    use slicegate_api::{Kind, Object, convert, kueue, v1beta1};

    /// Calls `visit` for every object in the recorded answers.
    fn objects(visit: &mut dyn FnMut(&Value)) {
        let Some(folder) = std::env::var_os("SLICEGATE_CONFORMANCE").map(PathBuf::from) else {
            println!("SKIPPED: SLICEGATE_CONFORMANCE does not name the folder with the recorded answers");
            return;
        };
        for folder in ["cycle", "checks", "jobs", "placement", "preemption"].map(|f| folder.join(f)) {
            for file in std::fs::read_dir(folder).unwrap() {
                let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
                walk(&serde_json::from_str(&text).unwrap(), visit);
            }
        }
    }

    fn walk(value: &Value, visit: &mut dyn FnMut(&Value)) {
        if value["kind"].is_string() && value["apiVersion"].is_string() {
            visit(value);
        }
        match value {
            Value::Array(items) => items.iter().for_each(|v| walk(v, visit)),
            Value::Object(fields) => fields.values().for_each(|v| walk(v, visit)),
            _ => {}
        }
    }

    fn read(value: &Value) -> Option<Object> {
        let kind = Kind::ALL.iter().find(|k| value["kind"] == k.as_str() && value["apiVersion"] == k.api_version())?;
        // Some were recorded without the times that the API demands.
        kind.read(value.clone()).ok()
    }

    /// The same with its topology assignments in the form that is written.
    fn rewritten(status: &kueue::WorkloadStatus) -> kueue::WorkloadStatus {
        let mut status = status.clone();
        for assignment in status.admission.iter_mut().flat_map(|a| &mut a.pod_set_assignments) {
            if let Some(topology) = &mut assignment.topology_assignment {
                *topology = convert::topology_assignment_to_api(&convert::topology_assignment(topology).unwrap());
            }
        }
        // A list without entries is the same as none.
        status.scheduling_stats = status.scheduling_stats.filter(|s| !s.evictions.is_empty());
        status
    }

    #[test]
    fn every_status_survives_a_round_trip() {
        let mut count = 0;
        objects(&mut |value| {
            if let Some(Object::Workload(workload)) = read(value) {
                let plain = convert::status_from_api(&workload.status).unwrap();
                assert_eq!(convert::status_to_api(&plain), rewritten(&workload.status), "{value}");
                convert::workload(&workload).unwrap();
                count += 1;
            }
        });
        println!("{count} workloads");
        assert!(count > 100 || std::env::var_os("SLICEGATE_CONFORMANCE").is_none());
    }

    #[test]
    fn every_kind_is_converted() {
        objects(&mut |value| {
            let converted = match read(value) {
                Some(Object::ClusterQueue(o)) => convert::cluster_queue(&o).err(),
                Some(Object::Cohort(o)) => convert::cohort(&o).err(),
                Some(Object::LocalQueue(o)) => convert::local_queue(&o).err(),
                Some(Object::ResourceFlavor(o)) => convert::flavor(&o).err(),
                Some(Object::LimitRange(o)) => convert::limit_range(&o).err(),
                Some(Object::Pod(o)) => o.spec.as_ref().and_then(|s| convert::pod_spec(s).err()),
                _ => None,
            };
            assert_eq!(converted, None, "{value}");
        });
    }

    #[test]
    fn v1beta1_and_back_is_the_same() {
        objects(&mut |value| {
            // What v1beta1 cannot say is lost on the way.
            let lossy = ["preemptionGates", "podsetSliceRequiredTopologyConstraints", "concurrentAdmissionPolicy"];
            let text = value.to_string();
            let Some(object) = read(value).filter(|_| !lossy.iter().any(|l| text.contains(l))) else { return };
            if !object.kind().api_version().starts_with(kueue::GROUP) {
                return;
            }
            let held = object.to_json().unwrap();
            let mut older = held.clone();
            v1beta1::from_held(object.kind(), &mut older);
            assert_eq!(older["apiVersion"], v1beta1::API_VERSION);
            assert_eq!(v1beta1::to_held(object.kind(), &mut older), [], "{older}");
            let back = object.kind().read(older).unwrap();
            match (&back, &object) {
                (Object::Workload(back), Object::Workload(object)) => {
                    assert_eq!((&back.spec, rewritten(&back.status)), (&object.spec, rewritten(&object.status)));
                }
                _ => assert_eq!(back, object),
            }
        });
    }
}
