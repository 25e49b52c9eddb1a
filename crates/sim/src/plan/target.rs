//! How scenarios name objects.

use slicegate_api::{Kind, ObjectRef};

/// What an event is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Target {
    /// An object of the API.
    Object(ObjectRef),
    /// A GKE node pool.
    NodePool(Box<str>),
    /// The Workload of a job.
    WorkloadOf(ObjectRef),
}

/// Reads `kind/name` or `kind/namespace/name`. Kinds may be written as in manifests or as on kubectl's command line, in any case.
pub(crate) fn target(text: &str) -> Result<Target, String> {
    let parts: Vec<&str> = text.split('/').collect();
    let (kind, namespace, name) = match parts.as_slice() {
        [kind, name] => (*kind, None, *name),
        [kind, namespace, name] => (*kind, Some(*namespace), *name),
        _ => return Err(format!("{text:?} names no object; write kind/name or kind/namespace/name")),
    };
    if name.is_empty() || namespace.is_some_and(str::is_empty) {
        return Err(format!("{text:?} names no object; write kind/name or kind/namespace/name"));
    }
    if kind.eq_ignore_ascii_case("NodePool") || kind.eq_ignore_ascii_case("nodepools") {
        return match namespace {
            None => Ok(Target::NodePool(name.into())),
            Some(_) => Err(format!("{text:?}: a NodePool is in no namespace; write NodePool/{name}")),
        };
    }
    let known = |k: &&Kind| kind.eq_ignore_ascii_case(k.as_str()) || kind.eq_ignore_ascii_case(k.plural());
    let Some(kind) = Kind::ALL.iter().find(known).copied() else {
        return Err(format!("{text:?}: {kind} is no kind that is simulated"));
    };
    match (kind.is_namespaced(), namespace) {
        (true, namespace) => Ok(Target::Object(ObjectRef::new(kind, namespace.unwrap_or("default"), name))),
        (false, None) => Ok(Target::Object(ObjectRef::new(kind, "", name))),
        (false, Some(_)) => Err(format!("{text:?}: a {kind} is in no namespace; write {kind}/{name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_as_on_the_command_line() {
        let object = |kind, namespace: &str, name: &str| Ok(Target::Object(ObjectRef::new(kind, namespace, name)));
        assert_eq!(target("JobSet/a"), object(Kind::JobSet, "default", "a"));
        assert_eq!(target("jobsets/team/a"), object(Kind::JobSet, "team", "a"));
        assert_eq!(target("clusterqueue/q"), object(Kind::ClusterQueue, "", "q"));
        assert_eq!(target("nodepool/p"), Ok(Target::NodePool("p".into())));
        for wrong in ["a", "JobSet/", "JobSet//a", "Thing/a", "ClusterQueue/team/q", "NodePool/x/p", "a/b/c/d", ""] {
            assert!(target(wrong).is_err(), "{wrong}");
        }
    }
}
