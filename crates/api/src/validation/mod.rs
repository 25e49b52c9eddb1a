//! The rules that are checked when an object is created or changed: by the schemas of Kueue's own kinds, by Kueue's webhooks for
//! them and for jobs, and, as far as whoever writes a manifest meets them, by JobSet and KubeRay.

mod cluster_queue;
mod counts;
mod foreign;
mod job;
mod labels;
mod names;
mod pod_spec;
mod quantities;
mod schema;
mod slice;
mod topology;
mod update;
mod workload;

use std::fmt;

pub use job::{job_metadata, ray_cluster_spec};
pub use names::{dns_label, dns_subdomain};
pub use pod_spec::immutable_pod_spec;
pub use topology::topology_annotations;
pub use update::{JobChange, job_metadata_update, validate_update, validate_update_by_webhook};

use crate::path::Path;
use crate::{Kind, Object};

/// What sort of rule is broken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FindingKind {
    /// The value is not allowed.
    Invalid,
    /// The field must be there.
    Required,
    /// The field must not be there.
    Forbidden,
    /// The value is there twice.
    Duplicate,
    /// The value is not one of those that are known.
    NotSupported,
    /// The value names something that is not there.
    NotFound,
    /// The list has too many entries.
    TooMany,
    /// The text is too long.
    TooLong,
}

/// A broken rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Finding {
    /// The field, such as `spec.resourceGroups[0].flavors[1].resources[2].nominalQuota`.
    pub path: String,
    /// What sort of rule.
    pub kind: FindingKind,
    /// What is wrong and what to write.
    pub detail: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.detail)
    }
}

/// Which rules hold. The default is that of Kueue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Rules {
    /// Jobs without a queue name are managed too.
    pub manage_jobs_without_queue_name: bool,
    /// `TopologyAwareScheduling`
    pub topology_aware_scheduling: bool,
    /// `TASMultiLayerTopology`
    pub multi_layer_topology: bool,
    /// `TASValidateWorkloadSliceSize`
    pub slice_size: bool,
    /// `ElasticJobsViaWorkloadSlices`
    pub elastic_jobs: bool,
    /// `AdmissionGatedBy`
    pub admission_gated_by: bool,
    /// `WorkloadIdentifierAnnotations`
    pub identifier_annotations: bool,
    /// `PriorityBoost`
    pub priority_boost: bool,
    /// `WorkloadValidationForPodSetMetadata`
    pub pod_set_metadata: bool,
    /// `WorkloadValidateResourcesAreNonNegative`
    pub non_negative_resources: bool,
    /// `ValidateRayAndSparkJobUpdates`: a Ray job that was managed is checked even if it is no longer.
    pub ray_updates: bool,
    /// `RejectUpdatesToCQWithInvalidOnFlavors`: a ClusterQueue that was wrong before may not be changed otherwise.
    pub reject_invalid_on_flavors: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            manage_jobs_without_queue_name: false,
            topology_aware_scheduling: true,
            multi_layer_topology: true,
            slice_size: true,
            elastic_jobs: true,
            admission_gated_by: true,
            identifier_annotations: true,
            priority_boost: false,
            pod_set_metadata: true,
            non_negative_resources: true,
            ray_updates: true,
            reject_invalid_on_flavors: false,
        }
    }
}

impl Rules {
    /// Switches a rule by the name of its feature gate. Answers whether there is one of this name.
    pub fn set(&mut self, gate: &str, on: bool) -> bool {
        let rule = match gate {
            "TopologyAwareScheduling" => &mut self.topology_aware_scheduling,
            "TASMultiLayerTopology" => &mut self.multi_layer_topology,
            "TASValidateWorkloadSliceSize" => &mut self.slice_size,
            "ElasticJobsViaWorkloadSlices" => &mut self.elastic_jobs,
            "AdmissionGatedBy" => &mut self.admission_gated_by,
            "WorkloadIdentifierAnnotations" => &mut self.identifier_annotations,
            "PriorityBoost" => &mut self.priority_boost,
            "WorkloadValidationForPodSetMetadata" => &mut self.pod_set_metadata,
            "WorkloadValidateResourcesAreNonNegative" => &mut self.non_negative_resources,
            "ValidateRayAndSparkJobUpdates" => &mut self.ray_updates,
            "RejectUpdatesToCQWithInvalidOnFlavors" => &mut self.reject_invalid_on_flavors,
            _ => return false,
        };
        *rule = on;
        true
    }
}

/// Checks an object as on creation, by all rules. An object without findings is one that an API server with Kueue takes, as far
/// as Kueue has a say.
pub fn validate(object: &Object, rules: &Rules) -> Vec<Finding> {
    let mut out = Findings::default();
    schema::check(object, &mut out);
    quantities::check(object, &mut out);
    counts::check(object, &mut out);
    foreign::check(object, &mut out);
    check_by_webhook(object, rules, &mut out);
    out.0
}

/// Checks an object as Kueue's webhooks do, without the rules of the schemas.
pub fn validate_by_webhook(object: &Object, rules: &Rules) -> Vec<Finding> {
    let mut out = Findings::default();
    check_by_webhook(object, rules, &mut out);
    out.0
}

fn check_by_webhook(object: &Object, rules: &Rules, out: &mut Findings) {
    match object {
        Object::ClusterQueue(o) => cluster_queue::cluster_queue(o, out),
        Object::Cohort(o) => cluster_queue::cohort(o, out),
        Object::ResourceFlavor(o) => labels::resource_flavor(o, out),
        Object::Workload(o) => workload::workload(o, rules, out),
        Object::Job(o) => job::job(o, rules, out),
        Object::JobSet(o) => job::job_set(o, rules, out),
        Object::RayJob(o) => job::ray_job(o, rules, out),
        Object::RayCluster(o) => job::ray_cluster(o, rules, out),
        Object::Pod(o) => job::metadata(Kind::Pod, &o.metadata, rules, out),
        _ => {}
    }
}

/// Findings so far.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, path: Path<'_>, kind: FindingKind, detail: impl Into<String>) {
        self.0.push(Finding { path: path.to_string(), kind, detail: detail.into() });
    }

    fn invalid(&mut self, path: Path<'_>, detail: impl Into<String>) {
        self.add(path, FindingKind::Invalid, detail);
    }

    fn required(&mut self, path: Path<'_>, detail: impl Into<String>) {
        self.add(path, FindingKind::Required, detail);
    }

    fn forbidden(&mut self, path: Path<'_>, detail: impl Into<String>) {
        self.add(path, FindingKind::Forbidden, detail);
    }

    /// A field was changed that may not be.
    fn immutable(&mut self, path: Path<'_>) {
        self.invalid(path, "cannot be changed");
    }

    fn duplicate(&mut self, path: Path<'_>, value: &str) {
        self.add(path, FindingKind::Duplicate, format!("{value:?} is here twice"));
    }

    /// Checks a text by a rule for names.
    fn name(&mut self, path: Path<'_>, text: &str, rule: fn(&str) -> Result<(), String>) {
        if let Err(detail) = rule(text) {
            self.invalid(path, detail);
        }
    }

    /// Checks that a word, if there is one, is known.
    fn word(&mut self, path: Path<'_>, word: Option<&str>, known: &[&str]) {
        if let Some(word) = word.filter(|w| !w.is_empty() && !known.contains(w)) {
            let detail = format!("{word:?} is not known; write one of {}", known.join(", "));
            self.add(path, FindingKind::NotSupported, detail);
        }
    }

    /// Checks the length of a list.
    fn at_most(&mut self, path: Path<'_>, found: usize, most: usize) {
        if found > most {
            self.add(path, FindingKind::TooMany, format!("has {found} entries; at most {most} are allowed"));
        }
    }
}
