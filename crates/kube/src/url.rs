//! Where objects are in the API.

use std::fmt::Write as _;

use slicegate_api::{Kind, ObjectRef};

/// The path of all objects of a kind, in one namespace or (if it is empty) in all.
pub(crate) fn collection(kind: Kind, namespace: &str) -> String {
    let version = kind.api_version();
    let root = if version.contains('/') { "apis" } else { "api" };
    let plural = kind.plural();
    if namespace.is_empty() {
        format!("/{root}/{version}/{plural}")
    } else {
        format!("/{root}/{version}/namespaces/{namespace}/{plural}")
    }
}

/// The path of an object.
pub(crate) fn object(reference: &ObjectRef) -> String {
    format!("{}/{}", collection(reference.kind, &reference.namespace), reference.name)
}

/// A value as part of a query.
pub(crate) fn encoded(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_follow_group_and_scope() {
        let path = |kind, namespace: &str, name: &str| object(&ObjectRef::new(kind, namespace, name));
        assert_eq!(path(Kind::Namespace, "", "a"), "/api/v1/namespaces/a");
        assert_eq!(path(Kind::Pod, "ns", "a"), "/api/v1/namespaces/ns/pods/a");
        assert_eq!(path(Kind::Job, "ns", "a"), "/apis/batch/v1/namespaces/ns/jobs/a");
        assert_eq!(path(Kind::ClusterQueue, "", "a"), "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/a");
        assert_eq!(collection(Kind::Workload, ""), "/apis/kueue.x-k8s.io/v1beta2/workloads");
        assert_eq!(encoded("kueue.x-k8s.io/provisioning-request"), "kueue.x-k8s.io%2Fprovisioning-request");
    }
}
