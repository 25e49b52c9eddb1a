//! The schemas of flavors, topologies, checks, priority classes and of what only MultiKueue uses.

use super::schema::{
    Schema, conditions, dns_subdomain, int32, int64, label_key, list, map, object, string, taints, tolerations,
};
use super::{Version, root};

/// The schema of ResourceFlavors.
pub(super) fn resource_flavor() -> Schema {
    let labels = map(string()).with("maxProperties", 8).atomic_map();
    let spec = object([
        ("nodeLabels", labels.about("The labels that nodes of the flavor have.")),
        (
            "nodeTaints",
            taints().about("The taints that nodes of the flavor have: only workloads that tolerate them get it."),
        ),
        ("tolerations", tolerations().about("Tolerations that pods of the flavor get.")),
        ("topologyName", dns_subdomain().about("The Topology of the nodes.")),
    ])
    .rule(
        "!has(self.topologyName) || (has(self.nodeLabels) && size(self.nodeLabels) > 0)",
        "a flavor with a topology needs at least one node label",
    )
    .rule(
        "!has(oldSelf.topologyName) || (has(self.topologyName) && self.topologyName == oldSelf.topologyName)",
        "the topology of a flavor cannot change",
    );
    root(Some(spec), None)
}

/// The schema of Topologies.
pub(super) fn topology(version: Version) -> Schema {
    let level = object([("nodeLabel", label_key(316).min_length(1).about("The label that tells the domain."))]);
    let levels = list(level.required(&["nodeLabel"]))
        .items(Some(1), 16)
        .atomic()
        .about("From the widest domain to the narrowest.")
        .rule("self.all(a, self.filter(b, b.nodeLabel == a.nodeLabel).size() == 1)", "no level can be there twice")
        .rule(
            "self.all(l, l.nodeLabel != 'kubernetes.io/hostname' || l.nodeLabel == self[size(self) - 1].nodeLabel)",
            "kubernetes.io/hostname can only be the last level",
        );
    let levels = match version {
        Version::V1Beta1 => levels.rule("self == oldSelf", "the levels of a topology cannot change"),
        Version::V1Beta2 => levels.rule(
            "self == oldSelf || (self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname' && oldSelf[size(oldSelf) - 1].nodeLabel == 'kubernetes.io/hostname')",
            "the levels of a topology can only change if kubernetes.io/hostname is and stays the last",
        ),
    };
    root(Some(object([("levels", levels)]).required(&["levels"])), None)
}

/// The schema of AdmissionChecks.
pub(super) fn admission_check(version: Version) -> Schema {
    let parameters = object([
        ("apiGroup", dns_subdomain()),
        ("kind", string().min_length(1).max_length(63).with("pattern", "^(?i)[a-z]([-a-z0-9]*[a-z0-9])?$")),
        ("name", string().min_length(1).max_length(63).with("pattern", "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")),
    ])
    .required(&["apiGroup", "kind", "name"]);
    let controller = string()
        .min_length(1)
        .max_length(253)
        .rule("self == oldSelf", "the controller of a check cannot change")
        .about("Who answers.");
    let spec =
        object([("controllerName", controller), ("parameters", parameters.about("What that one needs to know."))]);
    let spec = match version {
        Version::V1Beta1 => spec.and([("retryDelayMinutes", int64().default(15).about("Means nothing any more."))]),
        Version::V1Beta2 => spec,
    };
    root(Some(spec.required(&["controllerName"])), Some(object([("conditions", conditions())])))
}

/// The schema of ProvisioningRequestConfigs.
pub(super) fn provisioning_request_config() -> Schema {
    let update = object([("key", label_key(317)), ("valueFromProvisioningClassDetail", string().max_length(32_768))])
        .required(&["key", "valueFromProvisioningClassDetail"]);
    let updates = object([("nodeSelector", list(update).items(None, 8).by(&["key"]))]);
    let retry = object([
        ("backoffBaseSeconds", int32().default(60)),
        ("backoffLimitCount", int32().default(3)),
        ("backoffMaxSeconds", int32().default(1800)),
    ]);
    let spec = object([
        (
            "managedResources",
            list(string())
                .items(None, 100)
                .set()
                .about("Pod sets that ask for one of these are asked for; all if empty."),
        ),
        ("parameters", map(string().max_length(255)).with("maxProperties", 100).about("Parameters of the class.")),
        (
            "podSetMergePolicy",
            string()
                .one_of(&["IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"])
                .about("Which pod sets are asked for as one."),
        ),
        ("podSetUpdates", updates.about("What pods get from the answer.")),
        ("provisioningClassName", dns_subdomain().about("The class of the requests.")),
        (
            "retryStrategy",
            retry
                .default(
                    serde_json::json!({"backoffBaseSeconds": 60, "backoffLimitCount": 3, "backoffMaxSeconds": 1800}),
                )
                .about("How often and when a request that failed is made again."),
        ),
    ])
    .required(&["provisioningClassName"]);
    root(Some(spec), None)
}

/// The schema of WorkloadPriorityClasses.
pub(super) fn workload_priority_class(version: Version) -> Schema {
    let description = match version {
        Version::V1Beta1 => string(),
        Version::V1Beta2 => string().max_length(2048),
    };
    root(None, None)
        .and([
            ("description", description.about("When to use it.")),
            ("value", int32().about("The priority of workloads of this class.")),
        ])
        .required(&["value"])
}

/// The schema of MultiKueueClusters.
pub(super) fn multi_kueue_cluster(version: Version) -> Schema {
    let config = object([
        ("location", string().min_length(1).max_length(256)),
        ("locationType", string().one_of(&["Secret", "Path"]).default("Secret")),
    ])
    .required(&["location"]);
    let profile = object([("name", string().min_length(1).max_length(256))]).required(&["name"]);
    let spec = match version {
        Version::V1Beta1 => object([("clusterProfileRef", profile), ("kubeConfig", config)]),
        Version::V1Beta2 => {
            let source = object([("clusterProfileRef", profile), ("kubeConfig", config)]).rule(
                "has(self.kubeConfig) != has(self.clusterProfileRef)",
                "exactly one of kubeConfig and clusterProfileRef",
            );
            object([("clusterSource", source)]).required(&["clusterSource"])
        }
    };
    root(Some(spec), Some(object([("conditions", conditions())])))
}

/// The schema of MultiKueueConfigs.
pub(super) fn multi_kueue_config(version: Version) -> Schema {
    let clusters = list(string().max_length(256)).items(Some(1), 20).set();
    let spec = object([("clusters", clusters.about("The names of MultiKueueClusters."))]).required(&["clusters"]);
    let spec = match version {
        Version::V1Beta1 => spec,
        Version::V1Beta2 => spec.and([("quotaManagement", string().one_of(&["Manual", "Automated"]))]),
    };
    root(Some(spec), None)
}
