//! `SG07xx`: admission checks and provisioning.

use std::collections::BTreeSet;

use slicegate_api::{Kind, kueue};
use slicegate_controller::keys;
use slicegate_flavor::Verdict;
use slicegate_manifest::Severity;
use slicegate_tpu::{RESOURCE as TPU, taint};
use slicegate_workload::{Taint, TaintEffect, first_untolerated};

use super::{list, meant, plural, rule};
use crate::model::{Doc, Group, Job, Model, Queue, name};
use crate::rule::{Rule, Sink};

pub(super) const RULES: &[Rule] = &[
    rule! {
        "SG0701", Note, "An admission check that a controller of another project must answer",
        why: "until that controller runs and marks the check as active, queues with it admit nothing",
        source: "Kueue docs, admission checks",
        look: controllers,
    },
    rule! {
        "SG0702", Error, "A provisioning check without the parameters that it needs",
        why: "the check is inactive, and so is every queue that names it",
        source: "Kueue docs, provisioning",
        look: parameters,
    },
    rule! {
        "SG0703", Warning, "A provisioning class that nobody serves",
        why: "no autoscaler looks at the requests, and jobs wait for ever",
        source: "kubernetes/autoscaler, ProvisioningRequest; GKE docs, DWS",
        look: classes,
    },
    rule! {
        "SG0704", Warning, "A ProvisioningRequest of several pod sets",
        why: "GKE serves queued-provisioning requests of one pod set only",
        source: "GKE's webhook: the queued provisioning feature supports a single PodSet per request",
        look: several_pod_sets,
    },
    rule! {
        "SG0705", Warning, "A managed resource that no queue with the check covers",
        why: "the check asks for nothing and lets every job pass, with or without capacity",
        source: "Kueue docs, provisioning",
        look: managed_resources,
    },
    rule! {
        "SG0706", Warning, "Pods for queued nodes without the toleration",
        why: "GKE taints nodes of queued pools with cloud.google.com/gke-queued: the pods stay Pending on capacity that is paid for",
        source: "GKE docs, DWS; Google's DWS tutorial",
        look: toleration,
    },
    rule! {
        "SG0707", Note, "A provisioning check for every flavor of a queue",
        why: "jobs on flavors whose nodes are there already wait for a request as well",
        source: "Kueue docs, admissionChecksStrategy",
        look: every_flavor,
    },
    rule! {
        "SG0708", Warning, "A retry strategy that contradicts itself",
        why: "the first wait is longer than the longest, so that waits never grow",
        source: "Kueue apis/kueue/v1beta2, ProvisioningRequestRetryStrategy",
        look: retries,
    },
    rule! {
        "SG0709", Warning, "Several multi-host slices in one queued request",
        why: "a request is served in one node pool, and a multi-host pool is one slice: the request fails",
        source: "GKE's autoscaler: a queued request fits one zone of one node pool",
        look: several_slices,
    },
    rule! {
        "SG0710", Warning, "A maximum run time that GKE does not take",
        why: "flex-start capacity runs for 7 days at most; the request is refused",
        source: "GKE docs, flex-start",
        look: run_duration,
    },
];

/// GKE's class for DWS.
const QUEUED: &str = "queued-provisioning.gke.io";
const CLASSES: [&str; 4] = [
    QUEUED,
    "check-capacity.autoscaling.x-k8s.io",
    "best-effort-atomic-scale-up.autoscaling.x-k8s.io",
    "best-effort-atomic.autoscaling.x-k8s.io",
];

const MULTIKUEUE: &str = "kueue.x-k8s.io/multikueue";

fn controllers(model: &Model<'_>, out: &mut Sink<'_>) {
    let known = [keys::PROVISIONING_CONTROLLER, MULTIKUEUE, "accelerator.gke.io/slice"];
    for check in &model.checks {
        let controller = check.object.spec.controller_name.as_str();
        if controller.is_empty() || known.contains(&controller) {
            continue;
        }
        let path = "spec.controllerName";
        if let Some(other) = meant(controller, known) {
            let message = format!("no controller is known by the name {controller}");
            out.report_as(Severity::Warning, check.document, path, message, format!("did you mean {other}?"));
        } else {
            let message = format!("{controller} is no controller of Kueue or GKE");
            out.report(
                check.document,
                path,
                message,
                "see that it is installed, and that it reports the check as Active",
            );
        }
    }
}

fn parameters(model: &Model<'_>, out: &mut Sink<'_>) {
    for check in model.checks.iter().filter(|c| c.spec.controller_name == keys::PROVISIONING_CONTROLLER) {
        let kind = Kind::ProvisioningRequestConfig.as_str();
        let help = format!("write apiGroup: {}, kind: {kind} and the name of one", kueue::GROUP);
        match &check.object.spec.parameters {
            None => {
                let message = format!("AdmissionCheck {} has no parameters", name(&check.metadata));
                out.report(check.document, "spec.controllerName", message, help);
            }
            Some(p) if p.kind != kind => {
                out.report(check.document, "spec.parameters.kind", format!("{} is not {kind}", p.kind), help);
            }
            Some(p) if p.api_group != kueue::GROUP => {
                let message = format!("{kind} is of {}, not of {}", kueue::GROUP, p.api_group);
                out.report(check.document, "spec.parameters.apiGroup", message, help);
            }
            Some(_) => {}
        }
    }
}

fn classes(model: &Model<'_>, out: &mut Sink<'_>) {
    for config in &model.configs {
        let class = config.object.spec.provisioning_class_name.as_str();
        if class.is_empty() || CLASSES.contains(&class) {
            continue;
        }
        let message = format!("neither GKE nor the Kubernetes autoscaler serves {class}");
        let help = match meant(class, CLASSES) {
            Some(other) => format!("did you mean {other}?"),
            None => format!("write {QUEUED} for DWS, or see that something serves the class"),
        };
        out.report(config.document, "spec.provisioningClassName", message, help);
    }
}

/// A provisioning check of a queue, with its parameters and the flavors it is for.
struct Provisioned<'m, 'a> {
    queue: &'m Queue<'a>,
    index: usize,
    check: Doc<'a, kueue::AdmissionCheck>,
    config: Doc<'a, kueue::ProvisioningRequestConfig>,
}

impl Provisioned<'_, '_> {
    fn is_queued(&self) -> bool {
        self.config.spec.provisioning_class_name == QUEUED
    }

    fn manages(&self, group: &Group<'_>) -> bool {
        let managed = &self.config.spec.managed_resources;
        group.count > 0 && (managed.is_empty() || managed.iter().any(|r| group.requests.contains_key(r.as_str())))
    }
}

fn provisioned<'m, 'a>(model: &'m Model<'a>) -> impl Iterator<Item = Provisioned<'m, 'a>> {
    model.queues.iter().flat_map(move |queue| {
        queue.spec.admission_checks.iter().enumerate().filter_map(move |(index, rule)| {
            let check = model.check(&rule.name)?;
            let ours = check.spec.controller_name == keys::PROVISIONING_CONTROLLER;
            let config = model.config_of(check.object).filter(|_| ours)?;
            Some(Provisioned { queue, index, check, config })
        })
    })
}

/// Whether a pod set may be given a flavor that the check is for, with the names of those flavors.
fn flavors_for<'m>(
    model: &'m Model<'_>,
    p: &'m Provisioned<'_, '_>,
    group: &Group<'_>,
) -> Vec<&'m crate::model::Flavor<'m>> {
    let Some(rule) = p.queue.spec.admission_checks.get(p.index) else { return Vec::new() };
    let of_queue = p.queue.spec.resource_groups.iter();
    let asked = of_queue.filter(|g| g.covered_resources.iter().any(|r| group.all(r) > 0)).flat_map(|g| &g.flavors);
    let under_check = asked.filter(|f| rule.on_flavors.is_empty() || rule.on_flavors.contains(&f.name));
    let with_quota = under_check.filter(|f| {
        f.resources
            .iter()
            .all(|(r, _)| model.quota.of(p.queue.name(), &f.name, r).is_none_or(|most| most >= group.all(r)))
    });
    with_quota.filter_map(|f| model.flavor(&f.name)).filter(|f| f.suits(&group.pod) == Verdict::Suits).collect()
}

fn several_pod_sets(model: &Model<'_>, out: &mut Sink<'_>) {
    for p in provisioned(model).filter(|p| p.is_queued() && p.config.spec.pod_set_merge_policy.is_none()) {
        for job in model.jobs_of(p.queue) {
            let managed = job.groups.iter().filter(|g| p.manages(g) && !flavors_for(model, &p, g).is_empty());
            let names: Vec<&str> = managed.map(|g| g.name.as_str()).collect();
            if names.len() < 2 {
                continue;
            }
            let message = format!(
                "check {} makes one request of {} {}: pod sets {}",
                name(&p.check.metadata),
                job.kind(),
                job.name(),
                list(names.iter().copied())
            );
            let help = "set managedResources to the resource of one pod set, such as google.com/tpu, or podSetMergePolicy if \
                        they are alike";
            let path = if p.config.document.positions.has("spec.managedResources") {
                "spec.managedResources"
            } else {
                "spec.provisioningClassName"
            };
            out.report(p.config.document, path, message, help);
            break;
        }
    }
}

fn managed_resources(model: &Model<'_>, out: &mut Sink<'_>) {
    for p in provisioned(model).filter(|p| !p.queue.spec.name.is_empty()) {
        for (i, resource) in p.config.object.spec.managed_resources.iter().enumerate() {
            if p.queue.group_of(resource).is_some() {
                continue;
            }
            let covered: Vec<&str> =
                p.queue.spec.resource_groups.iter().flat_map(|g| &g.covered_resources).map(|r| &**r).collect();
            let message = format!(
                "ClusterQueue {} has check {} and does not cover {resource}",
                p.queue.name(),
                name(&p.check.metadata)
            );
            let help = match meant(resource, covered.iter().copied()) {
                Some(other) => format!("did you mean {other}?"),
                None => format!("the queue covers {}", list(covered)),
            };
            out.report(p.config.document, &format!("spec.managedResources[{i}]"), message, help);
        }
    }
}

fn toleration(model: &Model<'_>, out: &mut Sink<'_>) {
    let queued =
        [Taint { key: taint::QUEUED.key.into(), value: taint::QUEUED.value.into(), effect: TaintEffect::NoSchedule }];
    let mut told: BTreeSet<(usize, usize, usize, String)> = BTreeSet::new();
    for p in provisioned(model).filter(Provisioned::is_queued) {
        for job in model.jobs_of(p.queue) {
            for group in job.groups.iter().filter(|g| p.manages(g) && !g.path.is_empty()) {
                for flavor in flavors_for(model, &p, group) {
                    let tolerated = [&*group.pod.tolerations, &*flavor.spec.tolerations];
                    if first_untolerated(&queued, &tolerated).is_none() || !told.insert(key(job, group)) {
                        continue;
                    }
                    let message = format!(
                        "pod set {} may be given flavor {}, which check {} provisions, and does not tolerate {}",
                        group.name,
                        flavor.spec.name,
                        name(&p.check.metadata),
                        taint::QUEUED.key
                    );
                    let help = format!(
                        "add `- {{key: {}, operator: Exists, effect: NoSchedule}}` to the tolerations of the pods or of the \
                         flavor",
                        taint::QUEUED.key
                    );
                    out.report(job.document, &format!("{}.spec.tolerations", group.path), message, help);
                }
            }
        }
    }
}

fn key(job: &Job<'_>, group: &Group<'_>) -> (usize, usize, usize, String) {
    let (source, line, column) = crate::rule::place(job.document);
    (source, line, column, group.path.clone())
}

fn every_flavor(model: &Model<'_>, out: &mut Sink<'_>) {
    for p in provisioned(model) {
        let Some(rule) = p.queue.spec.admission_checks.get(p.index).filter(|r| r.on_flavors.is_empty()) else {
            continue;
        };
        let managed = &p.config.spec.managed_resources;
        let resource = managed.first().map_or(TPU, String::as_str);
        let Some((_, group)) = p.queue.group_of(resource) else { continue };
        let with_quota = group.flavors.iter().filter(|f| model.quota.of(p.queue.name(), &f.name, resource) != Some(0));
        let names: Vec<&str> = with_quota.map(|f| &*f.name).collect();
        if names.len() > 1 {
            let message = format!("check {} is for flavors {} alike", rule.name, list(names.iter().copied()));
            let help = "name the flavors that need it in onFlavors";
            let path = format!("spec.admissionChecksStrategy.admissionChecks[{}]", p.index);
            out.report(p.queue.document, &path, message, help);
        }
    }
}

fn retries(model: &Model<'_>, out: &mut Sink<'_>) {
    for config in &model.configs {
        let Some(retry) = &config.object.spec.retry_strategy else { continue };
        let (base, max) = (retry.backoff_base_seconds.unwrap_or(60), retry.backoff_max_seconds.unwrap_or(1800));
        if base > max {
            let path = "spec.retryStrategy.backoffBaseSeconds";
            let message = format!("backoffBaseSeconds {base} is more than backoffMaxSeconds {max}");
            out.report(config.document, path, message, format!("set it to {max} or less, or raise backoffMaxSeconds"));
        }
    }
}

fn several_slices(model: &Model<'_>, out: &mut Sink<'_>) {
    for p in provisioned(model).filter(Provisioned::is_queued) {
        for job in model.jobs_of(p.queue) {
            for group in job.groups.iter().filter(|g| p.manages(g)) {
                let Some(slice) = group.slice().filter(|s| s.is_multi_host()) else { continue };
                let Some(slices) = group.slices.as_ref().filter(|s| s.count > 1) else { continue };
                // There may be other flavors that take the job.
                if flavors_for(model, &p, group).is_empty() {
                    continue;
                }
                let message = format!(
                    "check {} asks for {} of {} at once",
                    name(&p.check.metadata),
                    plural(slices.count, "slice"),
                    slice.topology()
                );
                let help = "use one job for each slice, or one larger slice";
                let path = if slices.count_path.is_empty() { "metadata.name" } else { slices.count_path.as_str() };
                out.report(job.document, path, message, help);
            }
        }
    }
}

/// The longest run of flex-start capacity: 7 days.
const LONGEST_RUN: u64 = 604_800;

fn run_duration(model: &Model<'_>, out: &mut Sink<'_>) {
    const KEY: &str = "maxRunDurationSeconds";
    let bad = |text: &str| match text.parse::<u64>() {
        Err(_) => Some(format!("{text:?} is no number of seconds")),
        Ok(seconds) if seconds > LONGEST_RUN => Some(format!("{seconds} seconds are more than 7 days")),
        Ok(0) => Some("0 seconds are no time to run".to_owned()),
        Ok(_) => None,
    };
    let help = format!("write a number of seconds up to {LONGEST_RUN}");
    for config in model.configs.iter().filter(|c| c.spec.provisioning_class_name == QUEUED) {
        if let Some(why) = config.object.spec.parameters.get(KEY).and_then(|t| bad(t)) {
            out.report(config.document, &format!("spec.parameters[{KEY}]"), why, help.clone());
        }
    }
    for job in &model.jobs {
        let annotation = format!("{}{KEY}", keys::PROVISIONING_PREFIX);
        if let Some(why) = crate::model::annotation(job.metadata(), &annotation).and_then(bad) {
            out.report(job.document, &format!("metadata.annotations[{annotation}]"), why, help.clone());
        }
    }
}
