//! What admins configure.

use slicegate_quota::Weight;
use slicegate_workload::{
    AdmissionCheckRule, BorrowWithinCohort, ClusterQueueSpec, CohortSpec, FlavorFungibility, FlavorQuotas, FlavorSpec,
    FungibilityPolicy, FungibilityPreference, Key, LimitRange, LimitRangeItem, LimitType, LocalQueueSpec,
    PreemptionPolicy, QueueingStrategy, ReclaimPolicy, ResourceGroup, ResourceList, ResourceQuota, StopPolicy,
    TopologySpec, WithinClusterQueuePolicy,
};

use super::pod::{quantity_at, resource_list_at};
use super::scheduling::{label_selector_at, taint_at, tolerations_at};
use super::{ConvertError, Problem, Result, boxed, boxes, choose, name};
use crate::path::Path;
use crate::{ObjectMeta, extension, kueue};

const STOP_POLICIES: &[(&str, StopPolicy)] =
    &[("None", StopPolicy::None), ("Hold", StopPolicy::Hold), ("HoldAndDrain", StopPolicy::HoldAndDrain)];

const STRATEGIES: &[(&str, QueueingStrategy)] =
    &[("BestEffortFIFO", QueueingStrategy::BestEffortFifo), ("StrictFIFO", QueueingStrategy::StrictFifo)];

const RECLAIM: &[(&str, ReclaimPolicy)] =
    &[("Never", ReclaimPolicy::Never), ("LowerPriority", ReclaimPolicy::LowerPriority), ("Any", ReclaimPolicy::Any)];

const WITHIN: &[(&str, WithinClusterQueuePolicy)] = &[
    ("Never", WithinClusterQueuePolicy::Never),
    ("LowerPriority", WithinClusterQueuePolicy::LowerPriority),
    ("LowerOrNewerEqualPriority", WithinClusterQueuePolicy::LowerOrNewerEqualPriority),
];

const BORROW: &[(&str, bool)] = &[("Never", false), ("LowerPriority", true)];

// `Option` because the two fields differ in their default. `Borrow` and `Preempt` are v1beta1's words for `MayStopSearch`.
const WHEN_CAN_BORROW: &[(&str, Option<FungibilityPolicy>)] = &[
    ("MayStopSearch", Some(FungibilityPolicy::MayStopSearch)),
    ("TryNextFlavor", Some(FungibilityPolicy::TryNextFlavor)),
    ("Borrow", Some(FungibilityPolicy::MayStopSearch)),
];

const WHEN_CAN_PREEMPT: &[(&str, Option<FungibilityPolicy>)] = &[
    ("TryNextFlavor", Some(FungibilityPolicy::TryNextFlavor)),
    ("MayStopSearch", Some(FungibilityPolicy::MayStopSearch)),
    ("Preempt", Some(FungibilityPolicy::MayStopSearch)),
];

const PREFERENCES: &[(&str, FungibilityPreference)] = &[
    ("BorrowingOverPreemption", FungibilityPreference::BorrowingOverPreemption),
    ("PreemptionOverBorrowing", FungibilityPreference::PreemptionOverBorrowing),
];

const SCOPES: &[(&str, bool)] = &[("NoAdmissionFairSharing", false), ("UsageBasedAdmissionFairSharing", true)];

fn object_name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

fn weight(path: Path<'_>, sharing: Option<&kueue::FairSharing>) -> Result<Weight> {
    let Some(q) = sharing.and_then(|s| s.weight.as_ref()) else { return Ok(Weight::default()) };
    let path = path.field("weight");
    let nanos = quantity_at(path, q)?.nanos();
    if nanos < 0 {
        return Err(ConvertError::new(path, Problem::Negative { value: q.0.as_str().into() }));
    }
    Ok(Weight::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
}

fn resource_groups(path: Path<'_>, groups: &[kueue::ResourceGroup]) -> Result<Vec<ResourceGroup>> {
    let group = |(i, g): (usize, &kueue::ResourceGroup)| {
        let path = path.index(i);
        let path = path.field("flavors");
        let flavors = g.flavors.iter().enumerate().map(|(i, f)| flavor_quotas(path.index(i), f));
        Ok(ResourceGroup { covered_resources: boxes(&g.covered_resources), flavors: flavors.collect::<Result<_>>()? })
    };
    groups.iter().enumerate().map(group).collect()
}

fn flavor_quotas(path: Path<'_>, flavor: &kueue::FlavorQuotas) -> Result<FlavorQuotas> {
    let path = path.field("resources");
    let quota = |(i, r): (usize, &kueue::ResourceQuota)| {
        let path = path.index(i);
        let limit = |field, q: Option<&crate::Quantity>| q.map(|q| quantity_at(path.field(field), q)).transpose();
        let quota = ResourceQuota {
            nominal: quantity_at(path.field("nominalQuota"), &r.nominal_quota)?,
            borrowing_limit: limit("borrowingLimit", r.borrowing_limit.as_ref())?,
            lending_limit: limit("lendingLimit", r.lending_limit.as_ref())?,
        };
        Ok((r.name.as_str().into(), quota))
    };
    let resources = flavor.resources.iter().enumerate().map(quota).collect::<Result<_>>()?;
    Ok(FlavorQuotas { name: flavor.name.as_str().into(), resources })
}

/// A ClusterQueue, with the API's defaults.
///
/// # Errors
/// If a quantity or a word cannot be read. Quotas are not checked any further.
pub fn cluster_queue(queue: &kueue::ClusterQueue) -> Result<ClusterQueueSpec> {
    let name = object_name(&queue.metadata);
    cluster_queue_spec(queue, name).map_err(|e| e.of("ClusterQueue", name))
}

fn cluster_queue_spec(queue: &kueue::ClusterQueue, object: &str) -> Result<ClusterQueueSpec> {
    let spec = &queue.spec;
    let path = Path::ROOT.field("spec");
    let selector = spec.namespace_selector.as_ref();
    let checks = spec.admission_checks_strategy.iter().flat_map(|s| &s.admission_checks);
    Ok(ClusterQueueSpec {
        name: object.into(),
        resource_groups: resource_groups(path.field("resourceGroups"), &spec.resource_groups)?,
        cohort: name(spec.cohort_name.as_deref()),
        queueing_strategy: choose(path.field("queueingStrategy"), spec.queueing_strategy.as_deref(), STRATEGIES)?,
        namespace_selector: selector.map(|s| label_selector_at(path.field("namespaceSelector"), s)).transpose()?,
        flavor_fungibility: fungibility(path.field("flavorFungibility"), spec.flavor_fungibility.as_ref())?,
        preemption: preemption(path.field("preemption"), spec.preemption.as_ref())?,
        admission_checks: checks
            .map(|c| AdmissionCheckRule { name: c.name.as_str().into(), on_flavors: boxes(&c.on_flavors) })
            .collect(),
        stop_policy: choose(path.field("stopPolicy"), spec.stop_policy.as_deref(), STOP_POLICIES)?,
        fair_weight: weight(path.field("fairSharing"), spec.fair_sharing.as_ref())?,
        usage_based_fair_sharing: choose(
            path.field("admissionScope").field("admissionMode"),
            spec.admission_scope.as_ref().map(|s| s.admission_mode.as_str()),
            SCOPES,
        )?,
        concurrent_admission: spec
            .concurrent_admission_policy
            .as_ref()
            .map(|p| name(p.migration.constraints.as_ref().and_then(|c| c.last_acceptable_flavor_name.as_deref()))),
        deleting: queue.metadata.deletion_timestamp.is_some(),
        invalid: None,
        generation: queue.metadata.generation.unwrap_or_default(),
    })
}

fn fungibility(path: Path<'_>, api: Option<&kueue::FlavorFungibility>) -> Result<FlavorFungibility> {
    let default = FlavorFungibility::default();
    let Some(api) = api else { return Ok(default) };
    let borrow = choose(path.field("whenCanBorrow"), api.when_can_borrow.as_deref(), WHEN_CAN_BORROW)?;
    let preempt = choose(path.field("whenCanPreempt"), api.when_can_preempt.as_deref(), WHEN_CAN_PREEMPT)?;
    Ok(FlavorFungibility {
        when_can_borrow: borrow.unwrap_or(default.when_can_borrow),
        when_can_preempt: preempt.unwrap_or(default.when_can_preempt),
        preference: choose(path.field("preference"), api.preference.as_deref(), PREFERENCES)?,
    })
}

fn preemption(path: Path<'_>, api: Option<&kueue::Preemption>) -> Result<PreemptionPolicy> {
    let Some(api) = api else { return Ok(PreemptionPolicy::default()) };
    let borrow = |b: &kueue::BorrowWithinCohort| {
        let path = path.field("borrowWithinCohort");
        Ok(BorrowWithinCohort {
            lower_priority: choose(path.field("policy"), b.policy.as_deref(), BORROW)?,
            max_priority_threshold: b.max_priority_threshold,
        })
    };
    Ok(PreemptionPolicy {
        reclaim_within_cohort: choose(
            path.field("reclaimWithinCohort"),
            api.reclaim_within_cohort.as_deref(),
            RECLAIM,
        )?,
        within_cluster_queue: choose(path.field("withinClusterQueue"), api.within_cluster_queue.as_deref(), WITHIN)?,
        borrow_within_cohort: api.borrow_within_cohort.as_ref().map(borrow).transpose()?,
    })
}

/// A Cohort, with the API's defaults.
///
/// # Errors
/// If a quantity cannot be read.
pub fn cohort(cohort: &kueue::Cohort) -> Result<CohortSpec> {
    let object = object_name(&cohort.metadata);
    let path = Path::ROOT.field("spec");
    let read = || {
        Ok(CohortSpec {
            name: object.into(),
            parent: name(cohort.spec.parent_name.as_deref()),
            resource_groups: resource_groups(path.field("resourceGroups"), &cohort.spec.resource_groups)?,
            fair_weight: weight(path.field("fairSharing"), cohort.spec.fair_sharing.as_ref())?,
        })
    };
    read().map_err(|e: ConvertError| e.of("Cohort", object))
}

/// A LocalQueue, with the API's defaults.
///
/// # Errors
/// If the stop policy or the weight cannot be read.
pub fn local_queue(queue: &kueue::LocalQueue) -> Result<LocalQueueSpec> {
    let meta = &queue.metadata;
    let key = Key::new(meta.namespace.as_deref().unwrap_or_default(), object_name(meta));
    let path = Path::ROOT.field("spec");
    let read = || {
        Ok(LocalQueueSpec {
            key: key.clone(),
            cluster_queue: queue.spec.cluster_queue.as_str().into(),
            stop_policy: choose(path.field("stopPolicy"), queue.spec.stop_policy.as_deref(), STOP_POLICIES)?,
            fair_weight: weight(path.field("fairSharing"), queue.spec.fair_sharing.as_ref())?,
            deleting: meta.deletion_timestamp.is_some(),
        })
    };
    read().map_err(|e: ConvertError| e.of("LocalQueue", &key.to_string()))
}

/// A ResourceFlavor.
///
/// # Errors
/// If a taint or toleration cannot be read.
pub fn flavor(flavor: &kueue::ResourceFlavor) -> Result<FlavorSpec> {
    let object = object_name(&flavor.metadata);
    let spec = &flavor.spec;
    let path = Path::ROOT.field("spec");
    let read = || {
        let taints = path.field("nodeTaints");
        Ok(FlavorSpec {
            name: object.into(),
            node_labels: boxed(&spec.node_labels),
            node_taints: spec
                .node_taints
                .iter()
                .enumerate()
                .map(|(i, t)| taint_at(taints.index(i), t))
                .collect::<Result<_>>()?,
            tolerations: tolerations_at(path.field("tolerations"), &spec.tolerations)?,
            topology: name(spec.topology_name.as_deref()),
            whole_slices: whole_slices(&flavor.metadata)?,
        })
    };
    read().map_err(|e: ConvertError| e.of("ResourceFlavor", object))
}

/// The annotation [`WHOLE_SLICES`](extension::WHOLE_SLICES): `true` or `false`, and off if it is missing.
fn whole_slices(meta: &ObjectMeta) -> Result<bool> {
    let value = meta.annotations.as_ref().and_then(|a| a.get(extension::WHOLE_SLICES)).map(String::as_str);
    let metadata = Path::ROOT.field("metadata");
    let annotations = metadata.field("annotations");
    choose(annotations.key(extension::WHOLE_SLICES), value, &[("false", false), ("true", true)])
}

/// A Topology.
pub fn topology(topology: &kueue::Topology) -> TopologySpec {
    TopologySpec {
        name: object_name(&topology.metadata).into(),
        levels: topology.spec.levels.iter().map(|l| l.node_label.as_str().into()).collect(),
    }
}

/// A LimitRange.
///
/// # Errors
/// If a quantity cannot be read.
pub fn limit_range(range: &crate::LimitRange) -> Result<LimitRange> {
    let spec = Path::ROOT.field("spec");
    let path = spec.field("limits");
    let list = |path: Path<'_>, l: Option<&std::collections::BTreeMap<String, crate::Quantity>>| {
        l.map_or_else(|| Ok(ResourceList::new()), |l| resource_list_at(path, l))
    };
    let limits = range.spec.iter().flat_map(|s| &s.limits).enumerate().map(|(i, item)| {
        let path = path.index(i);
        let kind = match item.type_.as_str() {
            "Container" => LimitType::Container,
            "Pod" => LimitType::Pod,
            other => LimitType::Other(other.into()),
        };
        let item = LimitRangeItem {
            max: list(path.field("max"), item.max.as_ref())?,
            min: list(path.field("min"), item.min.as_ref())?,
            default: list(path.field("default"), item.default.as_ref())?,
            default_request: list(path.field("defaultRequest"), item.default_request.as_ref())?,
            max_limit_request_ratio: list(path.field("maxLimitRequestRatio"), item.max_limit_request_ratio.as_ref())?,
        };
        Ok((kind, item))
    });
    match limits.collect::<Result<_>>() {
        Ok(limits) => Ok(LimitRange { limits }),
        Err(e) => {
            let key = Key::new(range.metadata.namespace.as_deref().unwrap_or_default(), object_name(&range.metadata));
            Err(e.of("LimitRange", &key.to_string()))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use slicegate_quota::Quantity;

    use super::*;

    fn queue(spec: &Value) -> Result<ClusterQueueSpec> {
        let object = json!({"metadata": {"name": "cq", "generation": 3}, "spec": spec});
        cluster_queue(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn absent_fields_have_the_api_defaults() {
        let q = queue(&json!({"preemption": {}, "flavorFungibility": {}, "queueingStrategy": "", "cohortName": ""}))
            .unwrap();
        assert_eq!(q, ClusterQueueSpec { name: "cq".into(), generation: 3, ..ClusterQueueSpec::default() });
        assert_eq!(q.fair_weight.nanos(), 1_000_000_000);
    }

    #[test]
    fn every_field_is_read() {
        let q = queue(&json!({
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
                {"name": "f", "resources": [{"name": "cpu", "nominalQuota": 8, "borrowingLimit": "2", "lendingLimit": "3"}]}]}],
            "cohortName": "team",
            "queueingStrategy": "StrictFIFO",
            "namespaceSelector": {},
            "flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "MayStopSearch",
                "preference": "PreemptionOverBorrowing"},
            "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerOrNewerEqualPriority",
                "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 7}},
            "admissionChecksStrategy": {"admissionChecks": [{"name": "a", "onFlavors": ["f"]}, {"name": "b"}]},
            "stopPolicy": "HoldAndDrain",
            "fairSharing": {"weight": "3"},
            "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
            "concurrentAdmissionPolicy": {"migration": {"mode": "TryPreferredFlavors",
                "constraints": {"lastAcceptableFlavorName": "f"}}}}))
        .unwrap();
        let quota = q.resource_groups[0].flavors[0].resources[0].1;
        assert_eq!(quota.nominal, Quantity::from_units(8));
        assert_eq!(quota.borrowing_limit, Some(Quantity::from_units(2)));
        assert_eq!(quota.lending_limit, Some(Quantity::from_units(3)));
        assert_eq!(q.cohort.as_deref(), Some("team"));
        assert_eq!(q.queueing_strategy, QueueingStrategy::StrictFifo);
        assert!(q.namespace_selector.is_some());
        assert_eq!(q.flavor_fungibility.when_can_borrow, FungibilityPolicy::TryNextFlavor);
        assert_eq!(q.flavor_fungibility.when_can_preempt, FungibilityPolicy::MayStopSearch);
        assert_eq!(q.flavor_fungibility.preference, FungibilityPreference::PreemptionOverBorrowing);
        assert_eq!(q.preemption.reclaim_within_cohort, ReclaimPolicy::Any);
        assert_eq!(q.preemption.within_cluster_queue, WithinClusterQueuePolicy::LowerOrNewerEqualPriority);
        let borrow = q.preemption.borrow_within_cohort.unwrap();
        assert_eq!((borrow.lower_priority, borrow.max_priority_threshold), (true, Some(7)));
        assert_eq!(q.admission_checks.iter().map(|c| c.on_flavors.len()).collect::<Vec<_>>(), [1, 0]);
        assert_eq!(q.stop_policy, StopPolicy::HoldAndDrain);
        assert_eq!(q.fair_weight.nanos(), 3_000_000_000);
        assert!(q.usage_based_fair_sharing);
        assert_eq!(q.concurrent_admission, Some(Some("f".into())));
    }

    #[test]
    fn an_error_names_object_and_field() {
        let group = |quota: Value| {
            json!({"coveredResources": ["cpu"], "flavors": [{"name": "a", "resources": []},
            {"name": "b", "resources": [{"name": "cpu", "nominalQuota": "1"}, {"name": "m", "nominalQuota": quota}]}]})
        };
        let e = queue(&json!({"resourceGroups": [group(json!("x"))]})).unwrap_err();
        assert_eq!(&*e.object, "ClusterQueue cq");
        assert_eq!(&*e.path, "spec.resourceGroups[0].flavors[1].resources[1].nominalQuota");
        let e = queue(&json!({"preemption": {"borrowWithinCohort": {"policy": "Any"}}})).unwrap_err();
        assert_eq!(&*e.path, "spec.preemption.borrowWithinCohort.policy");
        let e = queue(&json!({"fairSharing": {"weight": "-1"}})).unwrap_err();
        assert_eq!(e.problem, Problem::Negative { value: "-1".into() });
    }

    #[test]
    fn the_other_kinds() {
        let object = json!({"metadata": {"name": "c"}, "spec": {"parentName": "root", "fairSharing": {"weight": 2}}});
        let c = cohort(&serde_json::from_value(object).unwrap()).unwrap();
        assert_eq!((c.parent.as_deref(), c.fair_weight.nanos()), (Some("root"), 2_000_000_000));

        let object =
            json!({"metadata": {"name": "q", "namespace": "n"}, "spec": {"clusterQueue": "cq", "stopPolicy": "Hold"}});
        let q = local_queue(&serde_json::from_value(object).unwrap()).unwrap();
        assert_eq!((q.key.to_string().as_str(), q.stop_policy), ("n/q", StopPolicy::Hold));

        let object = json!({"metadata": {"name": "f"}, "spec": {"nodeLabels": {"a": "b"}, "topologyName": "t",
            "nodeTaints": [{"key": "k", "effect": "NoSchedule"}], "tolerations": [{"operator": "Exists"}]}});
        let f = flavor(&serde_json::from_value(object).unwrap()).unwrap();
        assert_eq!((f.node_labels.len(), f.node_taints.len(), f.tolerations.len()), (1, 1, 1));
        let object = json!({"metadata": {"name": "f"}, "spec": {"nodeTaints": [{"key": "k", "effect": "no"}]}});
        let e = flavor(&serde_json::from_value(object).unwrap()).unwrap_err();
        assert_eq!((&*e.object, &*e.path), ("ResourceFlavor f", "spec.nodeTaints[0].effect"));

        let object = json!({"metadata": {"name": "t"}, "spec": {"levels": [{"nodeLabel": "a"}, {"nodeLabel": "b"}]}});
        assert_eq!(topology(&serde_json::from_value(object).unwrap()).levels, ["a".into(), "b".into()]);
    }

    #[test]
    fn limit_ranges() {
        let r = json!({"metadata": {"name": "r", "namespace": "n"}, "spec": {"limits": [
            {"type": "Container", "max": {"cpu": 4}, "min": {"cpu": 1}, "default": {"cpu": 3}, "defaultRequest": {"cpu": 2}},
            {"type": "Pod"}, {"type": "PersistentVolumeClaim"}]}});
        let r = limit_range(&serde_json::from_value(r).unwrap()).unwrap();
        assert_eq!(r.limits[0].1.default_request["cpu"], Quantity::from_units(2));
        assert_eq!(r.limits[1].0, LimitType::Pod);
        let r = json!({"metadata": {"name": "r", "namespace": "n"}, "spec": {"limits": [{"type": "Pod", "min": {"cpu": "x"}}]}});
        let e = limit_range(&serde_json::from_value(r).unwrap()).unwrap_err();
        assert_eq!((&*e.object, &*e.path), ("LimitRange n/r", "spec.limits[0].min[cpu]"));
    }
}
