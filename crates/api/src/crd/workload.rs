//! The schema of Workloads.

use super::schema::{
    Schema, anything, boolean, conditions, count, dns_label, dns_subdomain, int32, labels, list, map, object, quantity,
    string, time, tolerations,
};
use super::{Version, root};

const RESERVED: &str = "has(X.status) && has(X.status.conditions) && X.status.conditions.exists(c, c.type == 'QuotaReserved' && c.status == 'True')";
const ADMITTED: &str = "has(X.status) && has(X.status.conditions) && X.status.conditions.exists(c, c.type == 'Admitted' && c.status == 'True')";

/// A rule that holds while a condition is true before and after, or only before, a change.
fn while_true(condition: &str, of: &[&str], then: &str) -> String {
    let when: Vec<String> = of.iter().map(|object| format!("({})", condition.replace('X', object))).collect();
    format!("!({}) || ({then})", when.join(" && "))
}

/// Whether an optional field of the spec is what it was.
fn same(field: &str) -> String {
    format!(
        "has(self.spec.{field}) == has(oldSelf.spec.{field}) && (!has(self.spec.{field}) || self.spec.{field} == oldSelf.spec.{field})"
    )
}

/// Whether an optional text of the spec is what it was, where none is the same as an empty one: what is written has the default of
/// the older version, what was converted from the newer one has not.
fn same_text(field: &str) -> String {
    let of = |object: &str| format!("(has({object}.spec.{field}) ? {object}.spec.{field} : '')");
    format!("{} == {}", of("self"), of("oldSelf"))
}

/// The schema of Workloads.
pub(super) fn schema(version: Version) -> Schema {
    let before = &["oldSelf"];
    let throughout = &["oldSelf", "self"];
    let schema = root(Some(spec(version)), Some(status(version)))
        .rule(
            &while_true(
                RESERVED,
                &["self"],
                "!has(self.status.admission) || size(self.spec.podSets) == size(self.status.admission.podSetAssignments)",
            ),
            "there must be an assignment for each pod set",
        )
        .rule_at(
            Some(".spec.queueName"),
            &while_true(RESERVED, throughout, &same("queueName")),
            "the queue cannot change while quota is reserved",
        )
        .rule_at(
            Some(".spec.maximumExecutionTimeSeconds"),
            &while_true(ADMITTED, throughout, &same("maximumExecutionTimeSeconds")),
            "the maximum execution time cannot change while the workload is admitted",
        );
    match version {
        Version::V1Beta1 => schema
            .rule_at(
                Some(".spec.priorityClassSource"),
                &while_true(RESERVED, before, &same_text("priorityClassSource")),
                "where the priority comes from cannot change while quota is reserved",
            )
            .rule_at(
                Some(".spec.priorityClassName"),
                &while_true(
                    RESERVED,
                    before,
                    &format!(
                        "!has(self.spec.priorityClassSource) || self.spec.priorityClassSource != 'scheduling.k8s.io/priorityclass' || ({})",
                        same_text("priorityClassName")
                    ),
                ),
                "the PriorityClass of the pods cannot change while quota is reserved",
            ),
        Version::V1Beta2 => schema
            .rule_at(
                Some(".spec.priorityClassRef"),
                &while_true(
                    RESERVED,
                    before,
                    "has(self.spec.priorityClassRef) == has(oldSelf.spec.priorityClassRef) && (!has(self.spec.priorityClassRef) || self.spec.priorityClassRef.group == oldSelf.spec.priorityClassRef.group && self.spec.priorityClassRef.kind == oldSelf.spec.priorityClassRef.kind)",
                ),
                "where the priority comes from cannot change while quota is reserved",
            )
            .rule_at(
                Some(".spec.priorityClassRef.name"),
                &while_true(
                    RESERVED,
                    before,
                    "!has(self.spec.priorityClassRef) || !has(oldSelf.spec.priorityClassRef) || self.spec.priorityClassRef.kind != 'PriorityClass' || self.spec.priorityClassRef.name == oldSelf.spec.priorityClassRef.name",
                ),
                "the PriorityClass of the pods cannot change while quota is reserved",
            ),
    }
}

fn spec(version: Version) -> Schema {
    let pod_set = object([
        ("count", count().default(1).about("How many pods there are.")),
        ("minCount", int32().minimum(1).about("With how many pods the job can make do (partial admission).")),
        ("name", dns_label().default("main").about("The name of the pod set.")),
        ("template", anything().about("The pods, as a PodTemplateSpec.")),
        ("topologyRequest", topology_request(version).about("Where the pods are to be placed.")),
    ])
    .required(&["template"])
    .rule("!has(self.minCount) || self.minCount <= self.count", "minCount cannot exceed count");
    let spec = object([
        ("active", boolean().default(true).about("Whether the workload may hold quota.")),
        (
            "maximumExecutionTimeSeconds",
            int32().minimum(1).about("How long the workload may run before it is deactivated."),
        ),
        ("podSets", list(pod_set).items(Some(1), 18).by(&["name"]).about("Groups of equal pods.")),
        ("priority", int32().about("The higher, the earlier.")),
        ("queueName", dns_subdomain().about("The LocalQueue in which the workload waits.")),
    ]);
    match version {
        Version::V1Beta1 => spec
            .and([
                ("priorityClassName", dns_subdomain().about("The class that the priority comes from.")),
                (
                    "priorityClassSource",
                    string()
                        .one_of(&["kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass", ""])
                        .default("")
                        .about("The kind of that class."),
                ),
            ])
            .rule(
                "!has(self.priorityClassName) || self.priorityClassName == '' || has(self.priority)",
                "a workload with a priority class has a priority",
            ),
        Version::V1Beta2 => spec
            .and([
                (
                    "preemptionGates",
                    list(object([("name", string().min_length(1).max_length(63))]).required(&["name"]))
                        .items(None, 8)
                        .by(&["name"])
                        .about("What must open before the workload may preempt others."),
                ),
                ("priorityClassRef", class_reference().about("The class that the priority comes from.")),
            ])
            .rule(
                "!has(self.priorityClassRef) || has(self.priority)",
                "a workload with a priority class has a priority",
            ),
    }
}

fn class_reference() -> Schema {
    object([
        ("group", string().one_of(&["kueue.x-k8s.io", "scheduling.k8s.io"])),
        ("kind", string().one_of(&["WorkloadPriorityClass", "PriorityClass"])),
        ("name", dns_subdomain()),
    ])
    .required(&["group", "kind", "name"])
    .rule(
        "(self.group == 'kueue.x-k8s.io') == (self.kind == 'WorkloadPriorityClass')",
        "a WorkloadPriorityClass is of group kueue.x-k8s.io, a PriorityClass of group scheduling.k8s.io",
    )
}

fn topology_request(version: Version) -> Schema {
    let level = || string().max_length(63);
    let request = object([
        ("podIndexLabel", string().max_length(317).about("The label that holds a pod's index.")),
        ("podSetGroupName", string().max_length(256).about("Pod sets of one group are placed together.")),
        ("podSetSliceRequiredTopology", level().about("The level within which each slice of pods must be.")),
        ("podSetSliceSize", int32().minimum(1).about("How many pods a slice has.")),
        ("preferred", level().about("The level within which all pods should be.")),
        ("required", level().about("The level within which all pods must be.")),
        ("subGroupCount", count().about("How many groups of pods, such as Jobs of a JobSet, there are.")),
        ("subGroupIndexLabel", string().max_length(317).about("The label that holds the index of a pod's group.")),
        ("unconstrained", boolean().about("Anywhere will do.")),
    ]);
    match version {
        Version::V1Beta1 => request,
        Version::V1Beta2 => {
            let constraint =
                object([("size", int32().minimum(1)), ("topology", string().min_length(1).max_length(63))]);
            request.and([(
                "podsetSliceRequiredTopologyConstraints",
                list(constraint.required(&["size", "topology"]))
                    .items(None, 3)
                    .atomic()
                    .about("Slices within slices, the largest first."),
            )])
        }
    }
}

fn status(version: Version) -> Schema {
    let past = match version {
        Version::V1Beta1 => "accumulatedPastExexcutionTimeSeconds",
        Version::V1Beta2 => "accumulatedPastExecutionTimeSeconds",
    };
    let resources = || map(quantity());
    let request = object([("name", dns_label().default("main")), ("resources", resources())]).required(&["name"]);
    let reclaimable = object([("count", count()), ("name", dns_label())]).required(&["count", "name"]);
    let eviction = object([
        ("count", count()),
        ("reason", string().max_length(316)),
        ("underlyingCause", string().max_length(316)),
    ])
    .required(&["count", "reason", "underlyingCause"]);
    let evictions = list(eviction).items(None, 256).by(&["reason", "underlyingCause"]);
    let node = object([("name", string().max_length(63))]).required(&["name"]);
    let status = object([
        (past, int32().about("Seconds that it ran in earlier admissions.")),
        ("admission", admission(version).about("The quota that the workload holds.")),
        ("admissionChecks", checks().about("What else must agree before it may run.")),
        ("clusterName", string().max_length(256).about("The cluster that runs it (MultiKueue).")),
        ("conditions", conditions().about("How far the workload is.")),
        (
            "nominatedClusterNames",
            list(string().max_length(256)).items(None, 20).atomic().about("Clusters that may run it (MultiKueue)."),
        ),
        ("reclaimablePods", list(reclaimable).items(None, 18).by(&["name"]).about("Pods that will not run again.")),
        (
            "requeueState",
            object([("count", count()), ("requeueAt", time())]).about("How often it was put back, and until when it waits."),
        ),
        ("resourceRequests", list(request).items(None, 18).by(&["name"]).about("What it asks for while it waits.")),
        ("schedulingStats", object([("evictions", evictions)]).about("How often it lost its quota, and why.")),
        ("unhealthyNodes", list(node).items(None, 8).by(&["name"]).about("Nodes that are to be replaced.")),
    ])
    .rule(
        "!has(oldSelf.clusterName) || !has(self.clusterName) || oldSelf.clusterName == self.clusterName",
        "clusterName cannot change once it is set",
    )
    .rule(
        "!has(self.clusterName) || self.clusterName == '' || !has(self.nominatedClusterNames) || size(self.nominatedClusterNames) == 0",
        "clusterName and nominatedClusterNames exclude each other",
    );
    match version {
        Version::V1Beta1 => status,
        Version::V1Beta2 => {
            let gate = object([
                ("lastTransitionTime", time()),
                ("name", string().min_length(1).max_length(63)),
                ("position", string().one_of(&["Closed", "Open"])),
            ]);
            status.and([(
                "preemptionGates",
                list(gate.required(&["lastTransitionTime", "name", "position"]))
                    .items(None, 8)
                    .by(&["name"])
                    .about("Which preemption gates are open."),
            )])
        }
    }
}

fn admission(version: Version) -> Schema {
    let assignment = object([
        ("count", count().about("How many pods there is quota for.")),
        ("delayedTopologyRequest", string().one_of(&["Pending", "Ready"])),
        ("flavors", map(dns_subdomain()).about("The flavor of each resource.")),
        ("name", dns_label().default("main")),
        ("resourceUsage", map(quantity()).about("What all pods together use.")),
        ("topologyAssignment", topology_assignment(version).about("Where the pods are placed.")),
    ])
    .required(&["name"]);
    object([
        ("clusterQueue", dns_subdomain().about("The ClusterQueue whose quota it is.")),
        ("podSetAssignments", list(assignment).items(None, 18).by(&["name"])),
    ])
    .required(&["clusterQueue", "podSetAssignments"])
}

fn topology_assignment(version: Version) -> Schema {
    let levels = list(string().max_length(317)).items(Some(1), 16).atomic();
    let value = || string().max_length(63);
    match version {
        Version::V1Beta1 => {
            let domain = object([("count", int32().minimum(1)), ("values", list(value()).items(Some(1), 16).atomic())]);
            object([("domains", list(domain.required(&["count", "values"])).atomic()), ("levels", levels)])
                .required(&["domains", "levels"])
        }
        Version::V1Beta2 => {
            let one = "has(self.universal) != has(self.individual)";
            let individual = object([
                ("prefix", value()),
                ("roots", list(value()).items(Some(1), 100_000).atomic()),
                ("suffix", value()),
            ]);
            let values = object([("individual", individual.required(&["roots"])), ("universal", value())])
                .rule(one, "exactly one of universal and individual");
            let counts = object([
                ("individual", list(int32().minimum(1)).items(Some(1), 100_000).atomic()),
                ("universal", int32().minimum(1)),
            ])
            .rule(one, "exactly one of universal and individual");
            let slice = object([
                ("domainCount", int32().minimum(1).with("maximum", 100_000)),
                ("podCounts", counts),
                ("valuesPerLevel", list(values).items(Some(1), 16).atomic()),
            ]);
            let slices = list(slice.required(&["domainCount", "podCounts", "valuesPerLevel"]));
            object([("levels", levels), ("slices", slices.items(None, 1000).atomic())]).required(&["levels"])
        }
    }
}

fn checks() -> Schema {
    let update = object([
        ("annotations", labels()),
        ("labels", labels()),
        ("name", dns_label()),
        ("nodeSelector", labels()),
        ("tolerations", tolerations()),
    ])
    .required(&["name"]);
    let check = object([
        ("lastTransitionTime", time()),
        ("message", string().max_length(32_768)),
        ("name", string().max_length(316)),
        ("podSetUpdates", list(update).items(None, 18).atomic().about("What the pods are to get once it is ready.")),
        ("requeueAfterSeconds", count()),
        ("retryCount", count()),
        ("state", string().one_of(&["Pending", "Ready", "Retry", "Rejected"])),
    ])
    .required(&["lastTransitionTime", "message", "name", "state"]);
    list(check).items(None, 8).by(&["name"])
}
