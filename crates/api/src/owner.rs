//! Which job of a chain of owners is the one that is managed.

use std::fmt;

use crate::defaulting::JobPolicy;
use crate::{Kind, Object, ObjectMeta, ObjectRef, OwnerReference};

/// The longest chain of owners that is followed.
const LONGEST_CHAIN: usize = 10;

/// The kinds of job that can be managed.
pub const JOB_KINDS: [Kind; 4] = [Kind::Job, Kind::JobSet, Kind::RayCluster, Kind::RayJob];

/// A chain of owners that cannot be followed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OwnerError {
    /// An owner is not there, or not yet.
    Missing(ObjectRef),
    /// The chain is too long.
    TooLong,
    /// The chain ends where it began.
    Cycle,
}

impl std::error::Error for OwnerError {}

impl fmt::Display for OwnerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(owner) => {
                let group = owner.kind.group();
                let dot = if group.is_empty() { "" } else { "." };
                write!(f, "workload owner not found\n{}{dot}{group} {:?} not found", owner.kind.plural(), owner.name)
            }
            Self::TooLong => f.write_str("managed owner chain limit reached"),
            Self::Cycle => f.write_str("cyclic ownership"),
        }
    }
}

/// The owner that controls an object.
pub fn controller_of(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.as_ref()?.iter().find(|o| o.controller == Some(true))
}

/// The kind that an owner reference names, in any version of its API group; `None` if it is not known here.
pub fn owner_kind(owner: &OwnerReference) -> Option<Kind> {
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    Kind::ALL.iter().copied().find(|k| k.as_str() == owner.kind && k.group() == group)
}

/// The topmost owner of an object that is a managed job itself; `None` if there is none. Owners of kinds that are no jobs end
/// the search, as does an owner whose uid is not the one that is referred to. `get` finds an object.
///
/// # Errors
/// If an owner that is a job of a kind that is managed is missing, or the chain is too long or goes in a circle.
pub fn managed_ancestor(
    object: &Object,
    policy: &JobPolicy,
    get: &dyn Fn(&ObjectRef) -> Option<Object>,
) -> Result<Option<ObjectRef>, OwnerError> {
    let mut seen = vec![object.uid().to_owned()];
    let mut current = object.clone();
    let mut ancestor = None;
    while let Some(owner) = controller_of(current.metadata()) {
        let Some(kind) = owner_kind(owner).filter(|k| JOB_KINDS.contains(k)) else { break };
        if !owner.uid.is_empty() && seen.contains(&owner.uid) {
            return Err(OwnerError::Cycle);
        }
        if seen.len() > LONGEST_CHAIN {
            return Err(OwnerError::TooLong);
        }
        let reference = ObjectRef::new(kind, object.namespace(), owner.name.as_str());
        let enabled = policy.frameworks.contains(&kind);
        let Some(parent) = get(&reference) else {
            if enabled {
                return Err(OwnerError::Missing(reference));
            }
            break;
        };
        if parent.uid() != owner.uid {
            break;
        }
        if enabled && (policy.manage_jobs_without_queue_name || crate::defaulting::has_queue(parent.metadata())) {
            ancestor = Some(reference);
        }
        seen.push(owner.uid.clone());
        current = parent;
    }
    Ok(ancestor)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(name: &str, queue: Option<&str>, owner: Option<&str>) -> Object {
        let labels = queue.map(|q| json!({"kueue.x-k8s.io/queue-name": q}));
        let owners =
            owner.map(|o| json!([{"apiVersion": "batch/v1", "kind": "Job", "name": o, "uid": o, "controller": true}]));
        let meta = json!({"name": name, "namespace": "ns", "uid": name, "labels": labels, "ownerReferences": owners});
        Kind::Job.read(json!({"metadata": meta, "spec": {"template": {}}})).unwrap()
    }

    fn ancestor(all: &[Object], of: &Object) -> Result<Option<String>, OwnerError> {
        let get = |reference: &ObjectRef| all.iter().find(|o| o.reference() == *reference).cloned();
        managed_ancestor(of, &JobPolicy::default(), &get).map(|found| found.map(|r| r.name.to_string()))
    }

    #[test]
    fn the_topmost_managed_owner_counts() {
        let all =
            [job("top", Some("q"), None), job("middle", Some("q"), Some("top")), job("plain", None, Some("middle"))];
        assert_eq!(ancestor(&all, &job("child", None, Some("plain"))), Ok(Some("top".to_owned())));
        assert_eq!(ancestor(&all, &all[0]), Ok(None));
    }

    #[test]
    fn a_chain_that_cannot_be_followed_says_so() {
        let missing = ancestor(&[], &job("child", None, Some("gone"))).unwrap_err();
        assert_eq!(missing.to_string(), "workload owner not found\njobs.batch \"gone\" not found");
        let circle = [job("a", None, Some("b")), job("b", None, Some("a"))];
        assert_eq!(ancestor(&circle, &circle[0]), Err(OwnerError::Cycle));
        let chain: Vec<Object> = (0..20).map(|i| job(&format!("j{i}"), None, Some(&format!("j{}", i + 1)))).collect();
        assert_eq!(ancestor(&chain, &chain[0]), Err(OwnerError::TooLong));
    }

    #[test]
    fn an_owner_of_another_uid_is_another_object() {
        let mut owner = job("owner", Some("q"), None);
        owner.metadata_mut().uid = Some("later".to_owned());
        assert_eq!(ancestor(&[owner], &job("child", None, Some("owner"))), Ok(None));
    }
}
