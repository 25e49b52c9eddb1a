//! Each rule by itself: an object that breaks only that one.

#[cfg(test)]
mod rules {
    use serde_json::{Value, json};
    use slicegate_api::validation::{FindingKind, Rules, validate};
    use slicegate_api::{Kind, kueue};

    fn findings(kind: Kind, spec: &Value) -> Vec<(String, FindingKind)> {
        let mut object = json!({"metadata": {"name": "x"}, "spec": spec});
        if kind.is_namespaced() {
            object["metadata"]["namespace"] = "n".into();
        }
        let object = kind.read(object).unwrap();
        let found = validate(&object, &Rules::default());
        assert!(found.iter().all(|f| !f.detail.is_empty()), "{found:?}");
        found.into_iter().map(|f| (f.path, f.kind)).collect()
    }

    /// Every case breaks exactly the rule it names; without it the object is good.
    fn breaks(kind: Kind, good: &Value, cases: &[(Value, &str, FindingKind)]) {
        assert_eq!(findings(kind, good), [], "{good}");
        for (change, path, rule) in cases {
            let mut spec = good.clone();
            for (field, value) in change.as_object().unwrap() {
                spec[field] = value.clone();
            }
            assert_eq!(findings(kind, &spec), [((*path).to_owned(), *rule)], "{change}");
        }
    }

    fn many(count: usize, item: impl Fn(usize) -> Value) -> Value {
        (0..count).map(item).collect()
    }

    fn group(flavor: &str, resource: &str) -> Value {
        json!({"coveredResources": [resource],
            "flavors": [{"name": flavor, "resources": [{"name": resource, "nominalQuota": 1}]}]})
    }

    #[test]
    fn cluster_queue() {
        use FindingKind::{Duplicate, Invalid, NotSupported, Required, TooLong, TooMany};
        let good = json!({"resourceGroups": [group("f", "cpu")], "cohortName": "c"});
        let quota = |quota: Value| {
            json!({"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": "f", "resources": [quota]}]}]})
        };
        let at = "spec.resourceGroups[0].flavors[0].resources[0]";
        let checks = |checks: Value| json!({"admissionChecksStrategy": {"admissionChecks": checks}});
        let checks_at = "spec.admissionChecksStrategy.admissionChecks";
        breaks(
            Kind::ClusterQueue,
            &good,
            &[
                (
                    json!({"resourceGroups": many(17, |i| group(&format!("f{i}"), &format!("r{i}")))}),
                    "spec.resourceGroups",
                    TooMany,
                ),
                (
                    json!({"resourceGroups": [{"coveredResources": ["cpu"], "flavors": []}]}),
                    "spec.resourceGroups[0].flavors",
                    Invalid,
                ),
                (
                    json!({"resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": [
                        {"name": "f", "resources": [{"name": "cpu", "nominalQuota": 1}]}]}]}),
                    "spec.resourceGroups[0].flavors[0].resources",
                    Invalid,
                ),
                (json!({"resourceGroups": [group("F", "cpu")]}), "spec.resourceGroups[0].flavors[0].name", Invalid),
                (quota(json!({"name": "cpu", "nominalQuota": "x"})), &format!("{at}.nominalQuota"), Invalid),
                (
                    quota(json!({"name": "cpu", "nominalQuota": 1, "borrowingLimit": "x"})),
                    &format!("{at}.borrowingLimit"),
                    Invalid,
                ),
                (
                    quota(json!({"name": "cpu", "nominalQuota": 1, "lendingLimit": "1.x"})),
                    &format!("{at}.lendingLimit"),
                    Invalid,
                ),
                (json!({"cohortName": "A"}), "spec.cohortName", Invalid),
                (json!({"queueingStrategy": "FIFO"}), "spec.queueingStrategy", NotSupported),
                (json!({"stopPolicy": "Stop"}), "spec.stopPolicy", NotSupported),
                (
                    json!({"flavorFungibility": {"whenCanBorrow": "Borrow"}}),
                    "spec.flavorFungibility.whenCanBorrow",
                    NotSupported,
                ),
                (
                    json!({"flavorFungibility": {"whenCanPreempt": "Preempt"}}),
                    "spec.flavorFungibility.whenCanPreempt",
                    NotSupported,
                ),
                (
                    json!({"flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "preference": "Any"}}),
                    "spec.flavorFungibility.preference",
                    NotSupported,
                ),
                (
                    json!({"preemption": {"reclaimWithinCohort": "All"}}),
                    "spec.preemption.reclaimWithinCohort",
                    NotSupported,
                ),
                (
                    json!({"preemption": {"withinClusterQueue": "Any"}}),
                    "spec.preemption.withinClusterQueue",
                    NotSupported,
                ),
                (
                    json!({"preemption": {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "Any"}}}),
                    "spec.preemption.borrowWithinCohort.policy",
                    NotSupported,
                ),
                (
                    json!({"preemption": {"borrowWithinCohort": {"policy": "LowerPriority"}}}),
                    "spec.preemption",
                    Invalid,
                ),
                (json!({"fairSharing": {"weight": "-1"}}), "spec.fairSharing.weight", Invalid),
                (json!({"fairSharing": {"weight": "1n"}}), "spec.fairSharing.weight", Invalid),
                (json!({"fairSharing": {"weight": "x"}}), "spec.fairSharing.weight", Invalid),
                (json!({"admissionScope": {"admissionMode": "x"}}), "spec.admissionScope.admissionMode", NotSupported),
                (checks(json!([])), checks_at, Invalid),
                (checks(json!([{"name": ""}])), &format!("{checks_at}[0].name"), Required),
                (checks(json!([{"name": "a".repeat(317)}])), &format!("{checks_at}[0].name"), TooLong),
                (checks(json!([{"name": "a"}, {"name": "a"}])), &format!("{checks_at}[1].name"), Duplicate),
                (
                    json!({"concurrentAdmissionPolicy": {"migration": {"mode": "x"}}}),
                    "spec.concurrentAdmissionPolicy.migration.mode",
                    NotSupported,
                ),
                (
                    json!({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}),
                    "spec.namespaceSelector.matchExpressions[0].operator",
                    Invalid,
                ),
                (
                    json!({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}}),
                    "spec.namespaceSelector.matchExpressions[0].values",
                    FindingKind::Forbidden,
                ),
            ],
        );
    }

    #[test]
    fn cohort_and_local_queue() {
        use FindingKind::{Invalid, NotSupported, Required};
        let good = json!({"parentName": "p", "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": "f", "resources": [{"name": "cpu", "nominalQuota": 1, "lendingLimit": 5}]}]}]});
        breaks(
            Kind::Cohort,
            &good,
            &[
                (json!({"parentName": "P"}), "spec.parentName", Invalid),
                (json!({"parentName": ""}), "spec.resourceGroups[0].flavors[0].resources[0].lendingLimit", Invalid),
                (json!({"fairSharing": {"weight": "-1"}}), "spec.fairSharing.weight", Invalid),
            ],
        );
        breaks(
            Kind::LocalQueue,
            &json!({"clusterQueue": "cq"}),
            &[
                (json!({"clusterQueue": ""}), "spec.clusterQueue", Required),
                (json!({"clusterQueue": "a b"}), "spec.clusterQueue", Invalid),
                (json!({"stopPolicy": "x"}), "spec.stopPolicy", NotSupported),
                (json!({"fairSharing": {"weight": "-1"}}), "spec.fairSharing.weight", Invalid),
            ],
        );
    }

    #[test]
    fn resource_flavor() {
        use FindingKind::{Duplicate, Invalid, NotSupported, Required, TooMany};
        let taint = |key: &str, effect: &str| json!({"key": key, "effect": effect});
        let labels: serde_json::Map<String, Value> = (0..9).map(|i| (format!("l{i}"), "v".into())).collect();
        let tolerations = |t: Value| json!({"tolerations": [t]});
        breaks(
            Kind::ResourceFlavor,
            &json!({"nodeLabels": {"a": "b"}, "nodeTaints": [taint("k", "NoSchedule")], "topologyName": "t",
                "tolerations": [{"operator": "Exists"}, {"key": "a", "effect": "NoExecute", "tolerationSeconds": 1}]}),
            &[
                (json!({"nodeLabels": labels}), "spec.nodeLabels", TooMany),
                (json!({"nodeLabels": {}}), "spec", Invalid),
                (json!({"topologyName": "T"}), "spec.topologyName", Invalid),
                (json!({"nodeTaints": many(9, |i| taint(&format!("k{i}"), "NoSchedule"))}), "spec.nodeTaints", TooMany),
                (json!({"nodeTaints": [taint("k", "")]}), "spec.nodeTaints[0].effect", Required),
                (json!({"nodeTaints": [taint("k", "NO_SCHEDULE")]}), "spec.nodeTaints[0].effect", NotSupported),
                (json!({"nodeTaints": [taint("@", "NoExecute")]}), "spec.nodeTaints[0].key", Invalid),
                (
                    json!({"nodeTaints": [{"key": "k", "value": "@", "effect": "NoExecute"}]}),
                    "spec.nodeTaints[0].value",
                    Invalid,
                ),
                (
                    json!({"nodeTaints": [taint("k", "NoExecute"), taint("k", "NoExecute")]}),
                    "spec.nodeTaints[1]",
                    Duplicate,
                ),
                (json!({"tolerations": many(9, |_| json!({"operator": "Exists"}))}), "spec.tolerations", TooMany),
                (tolerations(json!({"operator": "Equal"})), "spec.tolerations[0].operator", Invalid),
                (tolerations(json!({"key": "a", "operator": "Like"})), "spec.tolerations[0].operator", NotSupported),
                (tolerations(json!({"key": "a", "tolerationSeconds": 1})), "spec.tolerations[0].effect", Invalid),
                (tolerations(json!({"key": "a", "effect": "No"})), "spec.tolerations[0].effect", NotSupported),
                (tolerations(json!({"operator": "Exists", "value": "b"})), "spec.tolerations[0].value", Invalid),
            ],
        );
    }

    #[test]
    fn topology() {
        use FindingKind::{Duplicate, Invalid, Required, TooMany};
        let levels =
            |names: &[&str]| json!({"levels": names.iter().map(|n| json!({"nodeLabel": n})).collect::<Value>()});
        breaks(
            Kind::Topology,
            &levels(&["cloud.com/block", "kubernetes.io/hostname"]),
            &[
                (levels(&[]), "spec.levels", Invalid),
                (json!({"levels": many(17, |i| json!({"nodeLabel": format!("l{i}")}))}), "spec.levels", TooMany),
                (levels(&[""]), "spec.levels[0].nodeLabel", Required),
                (levels(&["a b"]), "spec.levels[0].nodeLabel", Invalid),
                (levels(&["a", "a"]), "spec.levels[1].nodeLabel", Duplicate),
                (levels(&["kubernetes.io/hostname", "a"]), "spec.levels[0].nodeLabel", Invalid),
            ],
        );
    }

    #[test]
    fn admission_check_and_provisioning() {
        use FindingKind::{Duplicate, Invalid, NotSupported, Required, TooLong, TooMany};
        let parameters = |group: &str, kind: &str, name: &str| json!({"parameters": {"apiGroup": group, "kind": kind, "name": name}});
        breaks(
            Kind::AdmissionCheck,
            &json!({"controllerName": "kueue.x-k8s.io/provisioning-request",
                "parameters": {"apiGroup": kueue::GROUP, "kind": "ProvisioningRequestConfig", "name": "c"}}),
            &[
                (json!({"controllerName": ""}), "spec.controllerName", Required),
                (json!({"controllerName": "a".repeat(254)}), "spec.controllerName", TooLong),
                (parameters("", "K", "n"), "spec.parameters.apiGroup", Required),
                (parameters("A", "K", "n"), "spec.parameters.apiGroup", Invalid),
                (parameters("a", "", "n"), "spec.parameters.kind", Required),
                (parameters("a", "K", &"n".repeat(64)), "spec.parameters.name", TooLong),
            ],
        );
        let map: serde_json::Map<String, Value> = (0..101).map(|i| (format!("p{i}"), "v".into())).collect();
        let selector = |i: usize| json!({"key": format!("k{i}"), "valueFromProvisioningClassDetail": "d"});
        breaks(
            Kind::ProvisioningRequestConfig,
            &json!({"provisioningClassName": "queued-provisioning.gke.io", "managedResources": ["google.com/tpu"]}),
            &[
                (json!({"provisioningClassName": ""}), "spec.provisioningClassName", Required),
                (json!({"provisioningClassName": "A"}), "spec.provisioningClassName", Invalid),
                (json!({"parameters": map}), "spec.parameters", TooMany),
                (json!({"parameters": {"a": "v".repeat(256)}}), "spec.parameters[a]", TooLong),
                (json!({"managedResources": many(101, |i| format!("r{i}").into())}), "spec.managedResources", TooMany),
                (json!({"managedResources": ["a", "a"]}), "spec.managedResources[1]", Duplicate),
                (json!({"podSetMergePolicy": "x"}), "spec.podSetMergePolicy", NotSupported),
                (
                    json!({"podSetUpdates": {"nodeSelector": many(9, selector)}}),
                    "spec.podSetUpdates.nodeSelector",
                    TooMany,
                ),
                (
                    json!({"podSetUpdates": {"nodeSelector": [{"key": "", "valueFromProvisioningClassDetail": "d"}]}}),
                    "spec.podSetUpdates.nodeSelector[0].key",
                    Required,
                ),
            ],
        );
    }

    #[test]
    fn workload() {
        use FindingKind::{Duplicate, Invalid, NotSupported, Required, TooMany};
        let set = |name: &str| json!({"name": name, "count": 2});
        let class = |group: &str, kind: &str, name: &str| json!({"priorityClassRef": {"group": group, "kind": kind, "name": name}});
        breaks(
            Kind::Workload,
            &json!({"podSets": [{"name": "main", "count": 2, "minCount": 1}], "queueName": "q", "priority": 1}),
            &[
                (json!({"podSets": []}), "spec.podSets", Invalid),
                (json!({"podSets": many(19, |i| set(&format!("p{i}")))}), "spec.podSets", TooMany),
                (json!({"podSets": [set("A")]}), "spec.podSets[0].name", Invalid),
                (json!({"podSets": [set("a"), set("a")]}), "spec.podSets[1].name", Duplicate),
                (json!({"podSets": [{"name": "a", "count": -1}]}), "spec.podSets[0].count", Invalid),
                (json!({"podSets": [{"name": "a", "count": 1, "minCount": 0}]}), "spec.podSets[0].minCount", Invalid),
                (json!({"podSets": [{"name": "a", "count": 1, "minCount": 2}]}), "spec.podSets[0].minCount", Invalid),
                (json!({"queueName": "Q"}), "spec.queueName", Invalid),
                (json!({"maximumExecutionTimeSeconds": 0}), "spec.maximumExecutionTimeSeconds", Invalid),
                (class("x", "PriorityClass", "n"), "spec.priorityClassRef.group", NotSupported),
                (class("kueue.x-k8s.io", "PriorityClass", "n"), "spec.priorityClassRef", Invalid),
                (class("scheduling.k8s.io", "PriorityClass", ""), "spec.priorityClassRef.name", Required),
                (
                    json!({"preemptionGates": many(9, |i| json!({"name": format!("g{i}")}))}),
                    "spec.preemptionGates",
                    TooMany,
                ),
                (
                    json!({"podSets": [{"name": "a", "count": 1, "topologyRequest": {"podSetSliceRequiredTopology": "a"}}]}),
                    "spec.podSets[0].topologyRequest.podSetSliceSize",
                    Required,
                ),
            ],
        );
        let unset = json!({"podSets": [set("a")], "priorityClassRef": {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "n"}});
        assert_eq!(findings(Kind::Workload, &unset), [("spec.priority".to_owned(), Required)]);
    }

    #[test]
    fn jobs() {
        let pod = json!({"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "x"}}}]}});
        let limit = "spec.containers[0].resources.limits[cpu]";
        let replicated =
            |names: &[&str]| json!({"replicatedJobs": names.iter().map(|n| json!({"name": n})).collect::<Value>()});
        breaks(
            Kind::JobSet,
            &replicated(&["a", "b"]),
            &[
                (replicated(&["a", "a"]), "spec.replicatedJobs[1].name", FindingKind::Duplicate),
                (
                    json!({"replicatedJobs": [{"name": "a", "template": {"spec": {"template": pod.clone()}}}]}),
                    &format!("spec.replicatedJobs[0].template.spec.template.{limit}"),
                    FindingKind::Invalid,
                ),
            ],
        );
        breaks(
            Kind::RayJob,
            &json!({}),
            &[
                (
                    json!({"rayClusterSpec": {"headGroupSpec": {"template": pod.clone()}}}),
                    &format!("spec.rayClusterSpec.headGroupSpec.template.{limit}"),
                    FindingKind::Invalid,
                ),
                (
                    json!({"rayClusterSpec": {"workerGroupSpecs": [{"groupName": "a", "template": pod.clone()}]}}),
                    &format!("spec.rayClusterSpec.workerGroupSpecs[0].template.{limit}"),
                    FindingKind::Invalid,
                ),
                (
                    json!({"submitterPodTemplate": pod.clone()}),
                    &format!("spec.submitterPodTemplate.{limit}"),
                    FindingKind::Invalid,
                ),
            ],
        );
        breaks(
            Kind::Job,
            &json!({"template": {"spec": {"containers": []}}}),
            &[(json!({"template": pod}), &format!("spec.template.{limit}"), FindingKind::Invalid)],
        );
    }

    #[test]
    fn metadata() {
        let found = |kind: Kind, metadata: Value| {
            let object = kind.read(json!({"metadata": metadata})).unwrap();
            let found = validate(&object, &Rules::default());
            found.into_iter().map(|f| f.path).collect::<Vec<_>>()
        };
        assert_eq!(found(Kind::Pod, json!({"name": "a.b", "namespace": "n", "labels": {"a/b": "C"}})), [""; 0]);
        assert_eq!(found(Kind::Namespace, json!({"name": "a.b"})), ["metadata.name"]);
        assert_eq!(found(Kind::Pod, json!({"name": "a", "namespace": "a.b"})), ["metadata.namespace"]);
        assert_eq!(found(Kind::Pod, json!({"name": "a", "labels": {"a": "b c"}})), ["metadata.labels"]);
        assert_eq!(found(Kind::Pod, json!({"name": "a", "annotations": {"a b": ""}})), ["metadata.annotations"]);
        assert_eq!(found(Kind::Pod, json!({"name": "a", "annotations": {"A.com/b": "x y"}})), [""; 0]);
    }

    #[test]
    fn other_quantities() {
        let range = json!({"limits": [{"type": "Pod", "max": {"cpu": "x"}, "min": {"cpu": "1"}}]});
        assert_eq!(findings(Kind::LimitRange, &range), [("spec.limits[0].max[cpu]".to_owned(), FindingKind::Invalid)]);
        let node =
            Kind::Node.read(json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "x"}}})).unwrap();
        assert_eq!(validate(&node, &Rules::default())[0].path, "status.allocatable[cpu]");
    }
}
