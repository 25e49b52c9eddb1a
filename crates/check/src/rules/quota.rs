//! `SG04xx`: quota and flavors.

use std::collections::{BTreeMap, BTreeSet};

use slicegate_controller::keys;
use slicegate_flavor::Verdict;
use slicegate_tpu::{RESOURCE as TPU, label};

use super::{list, plural, rule, shown};
use crate::model::{Flavor, Group, Job, Model, Queue, annotation, is_endless};
use crate::rule::{Rule, Sink};

pub(super) const RULES: &[Rule] = &[
    rule! {
        "SG0401", Warning, "A job that asks for a resource which its queue does not cover",
        why: "the job is never admitted: Kueue has no flavor to assign for that resource",
        source: "Kueue docs, ClusterQueue; seen in xpk",
        look: uncovered,
    },
    rule! {
        "SG0402", Warning, "TPU quota that whole slices do not use up",
        why: "hardware comes in whole slices, so that the rest of the quota is never of use",
        source: "GKE docs, TPUs in GKE: a multi-host node pool is one slice",
        look: left_over,
    },
    rule! {
        "SG0403", Warning, "TPU quota for less than one slice",
        why: "no job that uses a whole slice can ever be admitted",
        source: "GKE docs, TPUs in GKE: a multi-host node pool is one slice",
        look: too_small,
    },
    rule! {
        "SG0404", Warning, "Another quota that is used up before the TPUs are",
        why: "the rest of the TPUs stays idle while jobs wait for cpu or memory",
        source: "seen in xpk: fixed ceilings of cpu and memory on larger clusters",
        look: ceilings,
    },
    rule! {
        "SG0405", Note, "A quota without end in front of a provisioning check",
        why: "whatever explains decisions by quota says that the job fits, while the check decides; the queue never says no",
        source: "Kueue docs, provisioning; Google's DWS tutorial",
        look: endless,
    },
    rule! {
        "SG0406", Warning, "A flavor that no job of its queue can use",
        why: "its quota stays unused: taints, selectors or affinity keep every job away",
        source: "Kueue docs, ResourceFlavor",
        look: out_of_reach,
    },
    rule! {
        "SG0407", Warning, "A flavor that no node pool matches",
        why: "jobs are admitted to it and then find no node",
        source: "Kueue docs, ResourceFlavor",
        look: no_pool,
    },
    rule! {
        "SG0408", Warning, "A job that can use no flavor of its queue",
        why: "the job is never admitted: its selectors, affinity or missing tolerations exclude every flavor",
        source: "Kueue docs, ResourceFlavor",
        look: no_flavor,
    },
    rule! {
        "SG0409", Warning, "A job that is larger than its queue can ever be",
        why: "the job is never admitted, even if nothing else runs",
        source: "Kueue docs, ClusterQueue: quota, borrowing and lending limits",
        look: too_large,
    },
    rule! {
        "SG0410", Warning, "Two flavors that nodes cannot tell apart",
        why: "pods of either flavor land on the nodes of both, so that neither quota means what it says",
        source: "Kueue docs, ResourceFlavor",
        look: same_flavors,
    },
    rule! {
        "SG0411", Note, "A borrowing limit with nobody to borrow from",
        why: "no other member of the cohort has quota of this flavor and resource",
        source: "Kueue docs, Cohort",
        look: no_lender,
    },
];

/// The field to show for a resource that a group of pods asks for.
fn request_path(job: &Job<'_>, group: &Group<'_>, resource: &str) -> String {
    let path = group.request_path(resource);
    if !group.path.is_empty() && job.document.positions.has(&path) {
        path
    } else {
        format!("metadata.labels[{}]", keys::QUEUE_NAME)
    }
}

fn uncovered(model: &Model<'_>, out: &mut Sink<'_>) {
    for job in &model.jobs {
        let Some(queue) = model.queue_of(job).filter(|q| !q.redefined && !q.spec.name.is_empty()) else { continue };
        for group in &job.groups {
            let missing: Vec<&str> = group
                .requests
                .keys()
                .map(|r| &**r)
                .filter(|r| group.all(r) > 0 && queue.group_of(r).is_none())
                .collect();
            let Some(first) = missing.first() else { continue };
            let covered = queue.spec.resource_groups.iter().flat_map(|g| &g.covered_resources).map(|r| &**r);
            let message = format!(
                "pod set {} asks for {}, and ClusterQueue {} covers {}",
                group.name,
                missing.join(" and "),
                queue.name(),
                list(covered)
            );
            let help = format!("add {} to coveredResources, with a quota in every flavor", missing.join(" and "));
            out.report(job.document, &request_path(job, group, first), message, help);
        }
    }
}

/// The chips of the slices that a flavor's nodes make up, and the shape as text; `None` if that is not known or not one size.
fn slice_of(flavor: &Flavor<'_>, model: &Model<'_>) -> Option<(i64, String)> {
    let mut shapes = flavor.shapes();
    let by_pool = flavor.label(label::NODE_POOL);
    let pools = model.pools.iter().filter(|p| by_pool == Some(p.name)).filter_map(|p| p.slice);
    shapes.extend(pools);
    let first = shapes.first()?;
    let chips = first.chips();
    let same = shapes.iter().all(|s| s.chips() == chips);
    same.then(|| (i64::from(chips), format!("{} {}", first.generation(), first.topology())))
}

/// Every finite TPU quota of a flavor whose slices are of one size: queue, path of the quota, flavor, amount, chips of a slice.
fn slice_quotas<'m, 'a>(
    model: &'m Model<'a>,
) -> impl Iterator<Item = (&'m Queue<'a>, String, &'m str, i64, (i64, String))> {
    model.queues.iter().flat_map(move |queue| {
        queue.quotas().filter(|(_, _, resource, _)| *resource == TPU).filter_map(move |(path, flavor, _, quota)| {
            let nominal = quota.nominal.value();
            let slice = slice_of(model.flavor(flavor)?, model)?;
            (!is_endless(nominal)).then_some((queue, format!("{path}.nominalQuota"), flavor, nominal, slice))
        })
    })
}

fn left_over(model: &Model<'_>, out: &mut Sink<'_>) {
    for (queue, path, flavor, nominal, (chips, shape)) in slice_quotas(model) {
        let of_tree = model.quota.of_tree(queue.name(), flavor, TPU).unwrap_or(nominal);
        let rest = of_tree.checked_rem(chips).unwrap_or(0);
        // Members of a cohort may make up whole slices together.
        if rest == 0 || of_tree < chips || nominal.checked_rem(chips) == Some(0) {
            continue;
        }
        let whole = nominal.saturating_sub(nominal.checked_rem(chips).unwrap_or(0));
        let together = if of_tree == nominal { String::new() } else { format!(", {of_tree} in the whole cohort") };
        let message = format!(
            "slices of flavor {flavor} ({shape}) have {chips} chips: of {nominal}{together}, {} never used",
            if rest == 1 { "1 is".to_owned() } else { format!("{rest} are") }
        );
        let help = match whole {
            0 => format!("set it to {chips}"),
            _ => format!("set it to {whole} or {}", whole.saturating_add(chips)),
        };
        out.report(queue.document, &path, message, help);
    }
}

fn too_small(model: &Model<'_>, out: &mut Sink<'_>) {
    for (queue, path, flavor, nominal, (chips, shape)) in slice_quotas(model) {
        let most = model.quota.of(queue.name(), flavor, TPU).unwrap_or(i64::MAX);
        if nominal > 0 && most < chips {
            let message =
                format!("a slice of flavor {flavor} ({shape}) has {chips} chips; the queue can have {most} at most");
            out.report(queue.document, &path, message, format!("set it to {chips} or a multiple"));
        }
    }
}

/// Why pods cannot be given a flavor; `None` if they can.
fn obstacle(flavor: &Flavor<'_>, group: &Group<'_>) -> Option<String> {
    match flavor.suits(&group.pod) {
        Verdict::Suits => None,
        Verdict::UntoleratedTaint(at) => {
            let taint = usize::try_from(at).ok().and_then(|at| flavor.spec.node_taints.get(at));
            Some(taint.map_or_else(
                || "a taint is not tolerated".to_owned(),
                |t| {
                    let value = if t.value.is_empty() { String::new() } else { format!("={}", t.value) };
                    format!("the taint {}{value}:{} is not tolerated", t.key, t.effect.as_str())
                },
            ))
        }
        Verdict::AffinityMismatch => {
            let differs = flavor.spec.node_labels.iter().find_map(|(key, value)| {
                let wanted = group.selects(key).filter(|w| *w != &**value)?;
                Some(format!("{key} is {value}, not {wanted}"))
            });
            Some(differs.unwrap_or_else(|| "its labels do not meet the node affinity".to_owned()))
        }
        Verdict::InvalidAffinity(_) => Some("the node affinity makes no sense".to_owned()),
        Verdict::NotFound => Some("it does not exist".to_owned()),
    }
}

/// The flavors of a resource group, as far as they are known: position, name and flavor.
fn flavors_of<'m, 'a>(
    model: &'m Model<'a>,
    group: &'m slicegate_workload::ResourceGroup,
) -> impl Iterator<Item = (usize, &'m str, &'m Flavor<'a>)> {
    let named = group.flavors.iter().enumerate();
    named.filter_map(|(f, quotas)| Some((f, &*quotas.name, model.flavor(&quotas.name)?)))
}

fn ceilings(model: &Model<'_>, out: &mut Sink<'_>) {
    for queue in model.queues.iter().filter(|q| !q.redefined) {
        let Some((g, covered)) = queue.group_of(TPU) else { continue };
        // By field: how many jobs there is room for, of how many, what runs out and the job.
        let mut worst: BTreeMap<String, (i64, i64, String, String)> = BTreeMap::new();
        for (f, name, flavor) in flavors_of(model, covered) {
            let most = |resource: &str| model.quota.of(queue.name(), name, resource);
            let Some(chips) = most(TPU).filter(|c| !is_endless(*c)) else { continue };
            for job in model.jobs_of(queue) {
                for group in job.groups.iter().filter(|g| g.all(TPU) > 0 && obstacle(flavor, g).is_none()) {
                    let jobs = chips.checked_div(group.all(TPU)).unwrap_or(0);
                    for (r, resource) in covered.covered_resources.iter().enumerate() {
                        let asked = group.all(resource);
                        let Some(amount) = most(resource).filter(|_| asked > 0 && **resource != *TPU) else { continue };
                        let room = amount.checked_div(asked).unwrap_or(0);
                        if room >= jobs {
                            continue;
                        }
                        let path = format!("spec.resourceGroups[{g}].flavors[{f}].resources[{r}].nominalQuota");
                        let what = format!(
                            "{resource} of flavor {name} is enough for {}, google.com/tpu for {jobs}",
                            plural(room, "job"),
                        );
                        let job = format!(
                            "{} {} ({} {resource} and {} google.com/tpu)",
                            job.kind(),
                            job.name(),
                            shown(resource, asked),
                            group.all(TPU)
                        );
                        let entry = (room.saturating_sub(jobs), jobs.saturating_mul(asked), what, job);
                        worst
                            .entry(path)
                            .and_modify(|e| {
                                if entry < *e {
                                    e.clone_from(&entry);
                                }
                            })
                            .or_insert(entry);
                    }
                }
            }
        }
        for (path, (_, wanted, what, job)) in worst {
            let resource = what.split(' ').next().unwrap_or_default();
            let help = format!("set it to {} or more", shown(resource, wanted));
            out.report(queue.document, &path, format!("{what} like {job}"), help);
        }
    }
}

fn endless(model: &Model<'_>, out: &mut Sink<'_>) {
    for queue in &model.queues {
        for (path, flavor, resource, quota) in queue.quotas().filter(|(_, _, r, _)| *r == TPU) {
            let asks = queue
                .checks_of(flavor)
                .find(|c| model.check(c).is_some_and(|c| c.spec.controller_name == keys::PROVISIONING_CONTROLLER));
            if let Some(check) = asks.filter(|_| is_endless(quota.nominal.value())) {
                let message =
                    format!("flavor {flavor} has no real limit of {resource}: only the check {check} decides");
                let help = "set it to what you are ready to pay for at once; leave it if the check is to decide";
                out.report(queue.document, &format!("{path}.nominalQuota"), message, help);
            }
        }
    }
}

/// Pod sets of a queue that ask for anything of a resource group.
fn askers<'m, 'a>(
    model: &'m Model<'a>,
    queue: &'m Queue<'a>,
    covered: &'m slicegate_workload::ResourceGroup,
) -> impl Iterator<Item = (&'m Job<'a>, &'m Group<'a>)> {
    let jobs = model.jobs_of(queue);
    jobs.flat_map(|job| job.groups.iter().map(move |group| (job, group)))
        .filter(|(_, group)| covered.covered_resources.iter().any(|r| group.all(r) > 0))
}

fn out_of_reach(model: &Model<'_>, out: &mut Sink<'_>) {
    for queue in model.queues.iter().filter(|q| !q.redefined) {
        for (g, covered) in queue.spec.resource_groups.iter().enumerate() {
            // Pod sets that no flavor suits have a finding of their own.
            let groups: Vec<&Group<'_>> = askers(model, queue, covered)
                .map(|(_, group)| group)
                .filter(|group| flavors_of(model, covered).any(|(_, _, flavor)| obstacle(flavor, group).is_none()))
                .collect();
            for (f, name, flavor) in flavors_of(model, covered) {
                // Those that ask for what the flavor has quota of.
                let has = |r: &str| model.quota.of(queue.name(), name, r) != Some(0);
                let asks = |g: &Group<'_>| covered.covered_resources.iter().any(|r| g.all(r) > 0 && has(r));
                let obstacles: Vec<Option<String>> =
                    groups.iter().filter(|g| asks(g)).map(|g| obstacle(flavor, g)).collect();
                let reasons: BTreeSet<&str> = obstacles.iter().flatten().map(String::as_str).collect();
                let out_of_reach = !obstacles.is_empty() && obstacles.iter().all(Option::is_some);
                if out_of_reach {
                    let reasons = list(reasons);
                    let message = format!("no job of ClusterQueue {} can use flavor {name}: {reasons}", queue.name());
                    let help = "correct the flavor's nodeLabels and nodeTaints or the jobs; give the flavor tolerations if \
                                its pods are to have them";
                    out.report(queue.document, &format!("spec.resourceGroups[{g}].flavors[{f}].name"), message, help);
                }
            }
        }
    }
}

fn no_pool(model: &Model<'_>, out: &mut Sink<'_>) {
    if model.pools.is_empty() {
        return;
    }
    let known: BTreeSet<&str> = model.pools.iter().flat_map(|p| p.labels.keys()).map(|k| &**k).collect();
    for flavor in &model.flavors {
        let labels: Vec<(&str, &str)> =
            flavor.spec.node_labels.iter().map(|(k, v)| (&**k, &**v)).filter(|(k, _)| known.contains(k)).collect();
        let fits = |p: &crate::model::Pool<'_>| {
            labels.iter().all(|(k, v)| p.labels.get(*k).map_or(p.is_open(k), |l| **l == **v))
        };
        if labels.is_empty() || model.pools.iter().any(fits) {
            continue;
        }
        let own = &flavor.spec.name;
        let (key, value) = labels
            .iter()
            .find(|(k, v)| !model.pools.iter().any(|p| p.labels.get(*k).is_some_and(|l| **l == **v)))
            .or(labels.first())
            .copied()
            .unwrap_or_default();
        let there: BTreeSet<&str> = model.pools.iter().filter_map(|p| p.labels.get(key)).map(|v| &**v).collect();
        let message = format!("no node pool has the labels of flavor {own}: {key}={value}");
        let help = format!("the node pools have {key} {}", list(there));
        out.report(flavor.document, &format!("spec.nodeLabels[{key}]"), message, help);
    }
}

fn no_flavor(model: &Model<'_>, out: &mut Sink<'_>) {
    for job in &model.jobs {
        let Some(queue) = model.queue_of(job).filter(|q| !q.redefined) else { continue };
        for group in &job.groups {
            for covered in &queue.spec.resource_groups {
                if !covered.covered_resources.iter().any(|r| group.all(r) > 0) {
                    continue;
                }
                let obstacles: Vec<(&str, &Flavor<'_>, Option<String>)> = flavors_of(model, covered)
                    .map(|(_, name, flavor)| (name, flavor, obstacle(flavor, group)))
                    .collect();
                if obstacles.len() < covered.flavors.len() || obstacles.iter().any(|(.., o)| o.is_none()) {
                    continue;
                }
                let texts: Vec<String> = obstacles
                    .iter()
                    .map(|(name, _, o)| format!("{name} ({})", o.as_deref().unwrap_or_default()))
                    .collect();
                let message = format!(
                    "pod set {} can use no flavor of ClusterQueue {}: {}",
                    group.name,
                    queue.name(),
                    list(texts.iter().map(String::as_str))
                );
                // Of the flavor that comes nearest.
                let differing = obstacles.iter().filter_map(|(_, flavor, _)| {
                    let labels = flavor.spec.node_labels.iter();
                    let mut keys =
                        labels.filter(|(k, v)| group.selects(k).is_some_and(|w| *w != ***v)).map(|(k, _)| &**k);
                    let first = keys.next()?;
                    Some((keys.count(), first))
                });
                let differing = differing.min_by_key(|(more, _)| *more).map(|(_, key)| key);
                let (path, help) = match differing {
                    Some(key) => {
                        let values: BTreeSet<&str> = obstacles.iter().filter_map(|(_, f, _)| f.label(key)).collect();
                        (group.selector_path(key), format!("the queue's flavors have {key} {}", list(values)))
                    }
                    None => (
                        format!("{}.spec.tolerations", group.path),
                        "add the toleration to the pod template or to the flavor: Kueue looks before the cluster adds any"
                            .to_owned(),
                    ),
                };
                let path = if group.path.is_empty() { format!("metadata.labels[{}]", keys::QUEUE_NAME) } else { path };
                out.report(job.document, &path, message, help);
            }
        }
    }
}

fn too_large(model: &Model<'_>, out: &mut Sink<'_>) {
    for job in &model.jobs {
        let Some(queue) = model.queue_of(job).filter(|q| !q.redefined) else { continue };
        // Part of it may do.
        if annotation(job.metadata(), keys::JOB_MIN_PARALLELISM).is_some() {
            continue;
        }
        let mut told = false;
        for group in &job.groups {
            for covered in &queue.spec.resource_groups {
                told |= group_too_large(model, job, queue, group, covered, out);
            }
        }
        if !told {
            sum_too_large(model, job, queue, out);
        }
    }
}

/// Whether no flavor that suits has enough for one pod set; says so.
fn group_too_large(
    model: &Model<'_>,
    job: &Job<'_>,
    queue: &Queue<'_>,
    group: &Group<'_>,
    covered: &slicegate_workload::ResourceGroup,
    out: &mut Sink<'_>,
) -> bool {
    let asked: Vec<&str> = covered.covered_resources.iter().map(|r| &**r).filter(|r| group.all(r) > 0).collect();
    if asked.is_empty() {
        return false;
    }
    // The first resource that each flavor is short of, with the most there can be.
    let mut shortages = Vec::new();
    for (_, name, flavor) in flavors_of(model, covered) {
        if obstacle(flavor, group).is_some() {
            continue;
        }
        let short = asked.iter().find_map(|r| {
            let most = model.quota.of(queue.name(), name, r)?;
            (most < group.all(r)).then_some((name, *r, most))
        });
        match short {
            Some(short) => shortages.push(short),
            None => return false,
        }
    }
    // The flavor that comes nearest.
    let Some((flavor, resource, most)) = shortages.iter().copied().max_by_key(|(_, _, most)| *most) else {
        return false;
    };
    let message = format!(
        "pod set {} asks for {} {resource}; ClusterQueue {} can have {} at most in flavor {flavor}",
        group.name,
        shown(resource, group.all(resource)),
        queue.name(),
        shown(resource, most)
    );
    let others = shortages.len().saturating_sub(1);
    let message = match others {
        0 => message,
        1 => format!("{message}, and too little in 1 other"),
        _ => format!("{message}, and too little in {others} others"),
    };
    let help = "ask for less, raise the quota, or let the queue borrow more";
    out.report(job.document, &request_path(job, group, resource), message, help);
    true
}

/// Says so if the pod sets together ask for more than all flavors together can have.
fn sum_too_large(model: &Model<'_>, job: &Job<'_>, queue: &Queue<'_>, out: &mut Sink<'_>) {
    for covered in &queue.spec.resource_groups {
        for resource in &covered.covered_resources {
            let asked = job.groups.iter().fold(0_i64, |sum, g| sum.saturating_add(g.all(resource)));
            let most = covered
                .flavors
                .iter()
                .try_fold(0_i64, |sum, f| Some(sum.saturating_add(model.quota.of(queue.name(), &f.name, resource)?)));
            let (Some(most), Some(first)) = (most, job.groups.iter().find(|g| g.all(resource) > 0)) else { continue };
            if asked > most {
                let message = format!(
                    "the pod sets ask for {} {resource} together; ClusterQueue {} can have {} at most",
                    shown(resource, asked),
                    queue.name(),
                    shown(resource, most)
                );
                let help = "ask for less, raise the quota, or let the queue borrow more";
                out.report(job.document, &request_path(job, first, resource), message, help);
                return;
            }
        }
    }
}

fn same_flavors(model: &Model<'_>, out: &mut Sink<'_>) {
    for queue in &model.queues {
        for (g, covered) in queue.spec.resource_groups.iter().enumerate() {
            let mut seen: BTreeMap<String, &str> = BTreeMap::new();
            for (f, name, flavor) in flavors_of(model, covered) {
                let spec = &flavor.spec;
                let looks =
                    format!("{:?} {:?} {:?} {:?}", spec.node_labels, spec.node_taints, spec.tolerations, spec.topology);
                // A check can tell them apart, by the selectors that it gives to pods.
                let looks = format!("{looks} {:?}", queue.checks_of(name).collect::<Vec<_>>());
                match seen.get(looks.as_str()) {
                    Some(other) => {
                        let message =
                            format!("flavors {other} and {name} have the same labels, taints and tolerations");
                        let help =
                            "give each flavor the labels of its own nodes, such as cloud.google.com/gke-nodepool";
                        out.report(
                            queue.document,
                            &format!("spec.resourceGroups[{g}].flavors[{f}].name"),
                            message,
                            help,
                        );
                    }
                    None => {
                        seen.insert(looks, name);
                    }
                }
            }
        }
    }
}

fn no_lender(model: &Model<'_>, out: &mut Sink<'_>) {
    for queue in model.queues.iter().filter(|q| q.cohort().is_some()) {
        for (path, flavor, resource, quota) in queue.quotas() {
            let own = slicegate_quota::request_value(resource, quota.nominal);
            let of_tree = model.quota.of_tree(queue.name(), flavor, resource);
            let limit = quota.borrowing_limit.is_some_and(|l| !l.is_zero());
            if limit && of_tree.is_some_and(|all| all <= own) {
                let message = format!("no other member of the cohort lends {resource} of flavor {flavor}");
                let help = "remove borrowingLimit, or give another member quota that it may lend";
                out.report(queue.document, &format!("{path}.borrowingLimit"), message, help);
            }
        }
    }
}
