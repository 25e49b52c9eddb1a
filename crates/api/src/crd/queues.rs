//! The schemas of ClusterQueues, LocalQueues and Cohorts.

use super::schema::{
    Schema, conditions, dns_subdomain, int32, int64, label_selector, list, map, object, quantity, string, time,
};
use super::{Version, root};

const STOP_POLICIES: [&str; 3] = ["None", "Hold", "HoldAndDrain"];

fn stop_policy() -> Schema {
    string()
        .one_of(&STOP_POLICIES)
        .default("None")
        .about("Whether workloads are let in, and whether those that are in may stay.")
}

fn fair_sharing() -> Schema {
    object([("weight", quantity().default(1).about("The share of unused quota relative to others."))])
        .about("What counts when unused quota is shared.")
}

fn resource_groups() -> Schema {
    let resource = object([
        ("borrowingLimit", quantity().about("The most that may be borrowed from the cohort.")),
        ("lendingLimit", quantity().about("The most of the nominal quota that others may use.")),
        ("name", string()),
        ("nominalQuota", quantity().about("What there is.")),
    ])
    .required(&["name", "nominalQuota"]);
    let flavor = object([
        ("name", dns_subdomain().about("The ResourceFlavor.")),
        (
            "resources",
            list(resource)
                .items(Some(1), 64)
                .by(&["name"])
                .about("Quota by resource, in the order of coveredResources."),
        ),
    ])
    .required(&["name", "resources"]);
    let group = object([
        ("coveredResources", list(string()).items(Some(1), 64).atomic().about("The resources that the flavors have.")),
        (
            "flavors",
            list(flavor).items(Some(1), 64).by(&["name"]).about("Flavors in the order in which they are tried."),
        ),
    ])
    .required(&["coveredResources", "flavors"])
    .rule(
        "self.flavors.all(f, size(f.resources) == size(self.coveredResources))",
        "each flavor must list every covered resource, in the same order",
    );
    list(group).items(None, 16).atomic().about("Quota.")
}

fn usage(borrowed: bool) -> Schema {
    let resource = object([("name", string()), ("total", quantity())]);
    let resource = if borrowed { resource.and([("borrowed", quantity())]) } else { resource };
    let resources = list(resource.required(&["name"])).items(None, 64).by(&["name"]);
    let flavor = object([("name", dns_subdomain()), ("resources", resources)]).required(&["name", "resources"]);
    list(flavor).items(None, 64).by(&["name"])
}

fn share(past_usage: bool) -> Schema {
    let share = object([("weightedShare", int64().about("The dominant share over the weight, in thousandths."))]);
    let share = if past_usage {
        let status = object([("consumedResources", map(quantity())), ("lastUpdate", time())]);
        share.and([("admissionFairSharingStatus", status.about("Usage over time."))])
    } else {
        share
    };
    share.required(&["weightedShare"])
}

/// The schema of ClusterQueues.
pub(super) fn cluster_queue(version: Version) -> Schema {
    let cohort = match version {
        Version::V1Beta1 => "cohort",
        Version::V1Beta2 => "cohortName",
    };
    let spec = object([
        ("admissionChecksStrategy", admission_checks_strategy().about("What else must agree before a workload may run.")),
        (
            "admissionScope",
            object([(
                "admissionMode",
                string().one_of(&["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"]),
            )])
            .required(&["admissionMode"])
            .about("Whether past usage of LocalQueues orders workloads."),
        ),
        (cohort, dns_subdomain().about("The Cohort with which unused quota is shared.")),
        ("fairSharing", fair_sharing()),
        ("flavorFungibility", fungibility(version).default(serde_json::json!({})).about("When the next flavor is tried.")),
        ("namespaceSelector", label_selector().about("The namespaces served: none if absent, all if empty.")),
        ("preemption", preemption().default(serde_json::json!({})).about("Who may be preempted.")),
        (
            "queueingStrategy",
            string()
                .one_of(&["StrictFIFO", "BestEffortFIFO"])
                .default("BestEffortFIFO")
                .about("Whether a workload that does not fit keeps later ones waiting."),
        ),
        ("resourceGroups", resource_groups()),
        ("stopPolicy", stop_policy()),
    ])
    .rule(
        &format!(
            "(has(self.{cohort}) && self.{cohort} != '') || !has(self.resourceGroups) || self.resourceGroups.all(g, g.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit))))"
        ),
        "only a ClusterQueue of a Cohort can have borrowing limits",
    );
    let spec = match version {
        Version::V1Beta1 => spec.and([(
            "admissionChecks",
            list(string().max_length(316))
                .set()
                .about("Checks for all flavors; admissionChecksStrategy says the same."),
        )]),
        Version::V1Beta2 => spec.and([("concurrentAdmissionPolicy", concurrent_admission())]),
    };
    let counter = || int32();
    let status = object([
        ("admittedWorkloads", counter().about("Workloads that may run.")),
        ("conditions", conditions()),
        ("fairSharing", share(version == Version::V1Beta1)),
        ("flavorsReservation", usage(true).about("Quota of workloads that hold some.")),
        ("flavorsUsage", usage(true).about("Quota of workloads that may run.")),
        ("pendingWorkloads", counter().about("Workloads that wait.")),
        ("reservingWorkloads", counter().about("Workloads that hold quota.")),
    ]);
    let status = match version {
        Version::V1Beta1 => {
            let pending = object([("name", string()), ("namespace", string())]).required(&["name", "namespace"]);
            status.and([(
                "pendingWorkloadsStatus",
                object([("clusterQueuePendingWorkload", list(pending).atomic()), ("lastChangeTime", time())])
                    .required(&["lastChangeTime"])
                    .about("Means nothing any more."),
            )])
        }
        Version::V1Beta2 => status,
    };
    root(Some(spec), Some(status))
}

fn admission_checks_strategy() -> Schema {
    let rule = object([
        ("name", string().min_length(1).max_length(316).about("The AdmissionCheck.")),
        ("onFlavors", list(dns_subdomain()).items(None, 64).set().about("The flavors that it is for; all if empty.")),
    ])
    .required(&["name"]);
    object([("admissionChecks", list(rule).items(Some(1), 64).by(&["name"]))])
}

fn fungibility(version: Version) -> Schema {
    let (borrow, preempt): (&[&str], &[&str]) = match version {
        Version::V1Beta1 => {
            (&["Borrow", "MayStopSearch", "TryNextFlavor"], &["Preempt", "MayStopSearch", "TryNextFlavor"])
        }
        Version::V1Beta2 => (&["MayStopSearch", "TryNextFlavor"], &["MayStopSearch", "TryNextFlavor"]),
    };
    object([
        ("preference", string().one_of(&["BorrowingOverPreemption", "PreemptionOverBorrowing"])),
        ("whenCanBorrow", string().one_of(borrow).default("MayStopSearch")),
        ("whenCanPreempt", string().one_of(preempt).default("TryNextFlavor")),
    ])
    .rule(
        "!has(self.preference) || (self.whenCanBorrow == 'TryNextFlavor' && self.whenCanPreempt == 'TryNextFlavor')",
        "preference counts only where whenCanBorrow and whenCanPreempt are TryNextFlavor",
    )
}

fn preemption() -> Schema {
    let borrowing = object([
        ("maxPriorityThreshold", int32()),
        ("policy", string().one_of(&["Never", "LowerPriority"]).default("Never")),
    ]);
    object([
        ("borrowWithinCohort", borrowing.default(serde_json::json!({}))),
        ("reclaimWithinCohort", string().one_of(&["Never", "LowerPriority", "Any"]).default("Never")),
        (
            "withinClusterQueue",
            string().one_of(&["Never", "LowerPriority", "LowerOrNewerEqualPriority"]).default("Never"),
        ),
    ])
    .rule(
        "!(self.reclaimWithinCohort == 'Never' && has(self.borrowWithinCohort) && self.borrowWithinCohort.policy != 'Never')",
        "borrowWithinCohort needs a reclaimWithinCohort other than Never",
    )
}

fn concurrent_admission() -> Schema {
    let migration = object([
        ("constraints", object([("lastAcceptableFlavorName", dns_subdomain())])),
        ("mode", string().one_of(&["TryPreferredFlavors", "RetainFirstAdmission"])),
    ])
    .required(&["mode"]);
    object([("migration", migration)]).required(&["migration"]).about("Whether several flavors are tried at once.")
}

/// The schema of LocalQueues.
pub(super) fn local_queue(version: Version) -> Schema {
    let spec = object([
        (
            "clusterQueue",
            dns_subdomain()
                .rule("self == oldSelf", "the ClusterQueue of a LocalQueue cannot change")
                .about("The ClusterQueue in which workloads wait."),
        ),
        ("fairSharing", fair_sharing()),
        ("stopPolicy", stop_policy()),
    ]);
    let usage_name = match version {
        Version::V1Beta1 => "flavorUsage",
        Version::V1Beta2 => "flavorsUsage",
    };
    let status = object([
        ("admittedWorkloads", int32().about("Workloads that may run.")),
        ("conditions", conditions()),
        ("fairSharing", share(true)),
        ("flavorsReservation", usage(false).about("Quota of workloads that hold some.")),
        (usage_name, usage(false).about("Quota of workloads that may run.")),
        ("pendingWorkloads", int32().about("Workloads that wait.")),
        ("reservingWorkloads", int32().about("Workloads that hold quota.")),
    ]);
    let status = match version {
        Version::V1Beta1 => {
            let flavor = object([
                ("name", dns_subdomain()),
                ("nodeLabels", super::schema::labels()),
                ("nodeTaints", super::schema::taints()),
                ("resources", list(string()).items(None, 64).set()),
                (
                    "topology",
                    object([("levels", list(string()).items(Some(1), 16).atomic()), ("name", dns_subdomain())])
                        .required(&["levels", "name"]),
                ),
            ]);
            status.and([(
                "flavors",
                list(flavor.required(&["name"])).items(None, 64).by(&["name"]).about("Means nothing any more."),
            )])
        }
        Version::V1Beta2 => status,
    };
    root(Some(spec), Some(status))
}

/// The schema of Cohorts.
pub(super) fn cohort(version: Version) -> Schema {
    let spec = object([
        ("fairSharing", fair_sharing()),
        ("parentName", dns_subdomain().about("The Cohort above.")),
        ("resourceGroups", resource_groups()),
    ]);
    root(Some(spec), Some(object([("fairSharing", share(version == Version::V1Beta1))])))
}
