//! Which part of an object is its spec and which its status.

use std::sync::Arc;

use slicegate_api::{Kind, Object};

macro_rules! parts {
    (status: $($both:ident)*; spec: $($spec:ident)*; fixed: $($fixed:ident)*) => {
        /// Whether objects of the kind have a spec, and so a generation.
        pub(super) fn has_spec(kind: Kind) -> bool {
            matches!(kind, $(Kind::$both)|* $(| Kind::$spec)* $(| Kind::$fixed)*)
        }

        /// Gives `object` the status of `from`.
        pub(super) fn keep_status(object: &mut Object, from: &Object) {
            match (object, from) {
                $((Object::$both(object), Object::$both(from)) if object.status != from.status => {
                    Arc::make_mut(object).status.clone_from(&from.status);
                })*
                $((Object::$fixed(object), Object::$fixed(from)) if object.status != from.status => {
                    Arc::make_mut(object).status.clone_from(&from.status);
                })*
                _ => {}
            }
        }

        /// Whether the specs are the same, as far as the generation is concerned: binding a pod or lifting its gates does not
        /// count.
        pub(super) fn same_spec(a: &Object, b: &Object) -> bool {
            match (a, b) {
                $((Object::$both(a), Object::$both(b)) => a.spec == b.spec,)*
                $((Object::$spec(a), Object::$spec(b)) => a.spec == b.spec,)*
                _ => true,
            }
        }
    };
}

parts! {
    status: AdmissionCheck ClusterQueue Cohort Job JobSet LocalQueue Namespace Node ProvisioningRequest RayCluster RayJob Slice Workload;
    spec: LimitRange ProvisioningRequestConfig ResourceFlavor Topology;
    fixed: Pod
}
