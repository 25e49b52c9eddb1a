//! Where the priority of a Workload comes from.

use slicegate_api::{ObjectMeta, PriorityClass, kueue};

use crate::jobs::label;
use crate::keys;

/// The priority of a Workload.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Priority {
    /// The group, kind and name of its class.
    pub class: Option<(&'static str, &'static str, String)>,
    /// Its value.
    pub value: i32,
}

impl Priority {
    /// The class as the API has it.
    pub fn class_ref(&self) -> Option<kueue::PriorityClassRef> {
        self.class.as_ref().map(|(group, kind, name)| kueue::PriorityClassRef {
            group: (*group).to_owned(),
            kind: (*kind).to_owned(),
            name: name.clone(),
        })
    }
}

/// A priority class does not exist.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PriorityError {
    /// One of Kueue's own kind, named by the job's label.
    #[error("workloadpriorityclasses.kueue.x-k8s.io {0:?} not found")]
    WorkloadPriorityClass(String),
    /// One that a pod template names.
    #[error("priorityclasses.scheduling.k8s.io {0:?} not found")]
    PriorityClass(String),
}

/// The priority classes that exist.
pub trait Classes {
    /// The value of a WorkloadPriorityClass.
    fn workload_priority_class(&self, name: &str) -> Option<i32>;
    /// A PriorityClass.
    fn priority_class(&self, name: &str) -> Option<&PriorityClass>;
    /// All of them, by name.
    fn priority_classes(&self) -> Vec<&PriorityClass>;
}

/// The priority of a job: that of the WorkloadPriorityClass in its label, else of the first PriorityClass that a pod template
/// names, else of the global default with the lowest value, else 0.
pub fn resolve(job: &ObjectMeta, pod_sets: &[kueue::PodSet], classes: &dyn Classes) -> Result<Priority, PriorityError> {
    if let Some(name) = label(job, keys::PRIORITY_CLASS).filter(|n| !n.is_empty()) {
        let value = classes
            .workload_priority_class(name)
            .ok_or_else(|| PriorityError::WorkloadPriorityClass(name.to_owned()))?;
        return Ok(Priority { class: Some((kueue::GROUP, "WorkloadPriorityClass", name.to_owned())), value });
    }
    let named = pod_sets
        .iter()
        .find_map(|p| p.template.spec.as_ref()?.priority_class_name.as_deref().filter(|n| !n.is_empty()));
    let class = match named {
        Some(name) => Some(classes.priority_class(name).ok_or_else(|| PriorityError::PriorityClass(name.to_owned()))?),
        None => {
            classes.priority_classes().into_iter().filter(|c| c.global_default == Some(true)).min_by_key(|c| c.value)
        }
    };
    Ok(class.map_or_else(Priority::default, |c| Priority {
        class: Some(("scheduling.k8s.io", "PriorityClass", c.metadata.name.clone().unwrap_or_default())),
        value: c.value,
    }))
}
