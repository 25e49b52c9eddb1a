//! `SG09xx`: pods.

use slicegate_api::Object;
use slicegate_tpu::{RESOURCE as TPU, label, taint};

use super::rule;
use crate::model::{Model, Pool};
use crate::rule::{Rule, Sink};

pub(super) const RULES: &[Rule] = &[
    rule! {
        "SG0901", Warning, "Pods on TPU nodes that do not tolerate their taint",
        why: "GKE adds the toleration only to pods that ask for google.com/tpu, and other clusters to none: the pods stay Pending",
        source: "GKE docs, TPUs in GKE; Kubernetes docs, ExtendedResourceToleration",
        look: toleration,
    },
    rule! {
        "SG0902", Warning, "The host's network without the cluster's names",
        why: "pods of the host's network ask the host's name server, which does not know the other workers",
        source: "Kubernetes docs, pod's DNS policy; Google's multislice tutorial",
        look: dns,
    },
    rule! {
        "SG0903", Error, "A Job whose pods restart always",
        why: "the API server refuses Jobs unless restartPolicy is Never or OnFailure, and Always is the default of a Job",
        source: "Kubernetes docs, Job",
        look: restart_policy,
    },
];

fn toleration(model: &Model<'_>, out: &mut Sink<'_>) {
    // Nodes of a cluster that is not GKE: nobody adds anything there.
    let foreign: Vec<&Pool<'_>> =
        model.pools.iter().filter(|p| p.object.is_none() && !p.labels.contains_key(label::NODE_POOL)).collect();
    for job in &model.jobs {
        for group in job.groups.iter().filter(|g| !g.path.is_empty()) {
            let path = format!("{}.spec.tolerations", group.path);
            let help =
                format!("add `- {{key: {TPU}, operator: Exists, effect: NoSchedule}}` to the tolerations of the pods");
            let tolerates = |key: &str| group.pod.tolerations.iter().any(|t| t.key.is_empty() || *t.key == *key);
            if tolerates(taint::TPU.key) {
                continue;
            }
            if group.chips() == 0 {
                if group.selects(label::ACCELERATOR).is_some() {
                    let message = "these pods select TPU nodes without asking for chips".to_owned();
                    out.report(job.document, &path, message, help);
                }
                continue;
            }
            let fits: Vec<&&Pool<'_>> = foreign.iter().filter(|p| p.fits_labels(&group.pod) && p.chips > 0).collect();
            let tainted =
                |p: &&&Pool<'_>| p.first_untolerated(&group.pod, 0).is_some_and(|t| *t.key == *taint::TPU.key);
            if let Some(first) = fits.first().filter(|_| fits.iter().all(tainted)) {
                let message = format!("node {} has the taint {}, and no GKE adds a toleration", first.name, taint::TPU);
                out.report(job.document, &path, message, help);
            }
        }
    }
}

fn dns(model: &Model<'_>, out: &mut Sink<'_>) {
    for job in &model.jobs {
        for group in &job.groups {
            let Some(spec) = group.template.and_then(|t| t.spec.as_ref()) else { continue };
            let policy = spec.dns_policy.as_deref().unwrap_or("ClusterFirst");
            if spec.host_network == Some(true) && group.chips() > 0 && policy == "ClusterFirst" {
                let message = "hostNetwork is true, and dnsPolicy is ClusterFirst".to_owned();
                let help = "set dnsPolicy: ClusterFirstWithHostNet";
                out.report(job.document, &format!("{}.spec.hostNetwork", group.path), message, help);
            }
        }
    }
}

fn restart_policy(model: &Model<'_>, out: &mut Sink<'_>) {
    for job in &model.jobs {
        let is_job = matches!(job.object, Object::Job(_));
        if !is_job && !matches!(job.object, Object::JobSet(_)) {
            continue;
        }
        for group in &job.groups {
            let policy = group.template.and_then(|t| t.spec.as_ref()).map(|s| s.restart_policy.as_deref());
            let message = match policy {
                Some(Some("Always")) => "restartPolicy is Always".to_owned(),
                // JobSet fills in OnFailure.
                Some(None) if is_job => "restartPolicy is missing, and Always is the default".to_owned(),
                _ => continue,
            };
            let path = format!("{}.spec.restartPolicy", group.path);
            out.report(job.document, &path, message, "set restartPolicy to Never or OnFailure");
        }
    }
}
