//! `SG05xx`: TPU shapes and node pools.

use std::collections::BTreeSet;

use slicegate_api::Kind;
use slicegate_api::nodepool::NodePool;
use slicegate_tpu::{Accelerator, MachineType, RESOURCE as TPU, SliceError, SliceShape, label};

use super::{list, plural, rule};
use crate::model::{Group, Job, Model, Pool, annotation};
use crate::rule::{Rule, Sink};

pub(super) const RULES: &[Rule] = &[
    rule! {
        "SG0501", Error, "A TPU machine type that does not exist",
        why: "GKE refuses to create the node pool",
        source: "GKE docs, TPUs in GKE",
        look: machine_types,
    },
    rule! {
        "SG0502", Error, "A topology that the machine type of a node pool does not make",
        why: "GKE refuses to create the node pool",
        source: "GKE docs, plan TPUs in GKE",
        look: pool_topologies,
    },
    rule! {
        "SG0503", Error, "Pods that select a TPU shape which does not exist",
        why: "no node can ever have these labels, so that the pods wait for ever once the job is admitted",
        source: "GKE docs, plan TPUs in GKE",
        look: selected_shapes,
    },
    rule! {
        "SG0504", Error, "A number of pods that is not the number of hosts of the slice",
        why: "the TPU runtime starts only when every host of the slice has exactly one worker",
        source: "GKE docs, TPUs in GKE; KubeRay's TPU webhook",
        look: hosts,
    },
    rule! {
        "SG0505", Warning, "Completions that are not parallelism on a multi-host slice",
        why: "all workers of a slice run together: fewer completions leave hosts without a worker, more run without the others",
        source: "GKE docs, TPUs in GKE; Kubernetes docs, Indexed Jobs",
        look: completions,
    },
    rule! {
        "SG0506", Error, "Pods that do not ask for all chips of their machine",
        why: "GKE admits only pods that ask for exactly the chips of a node, so that these fit nowhere",
        source: "GKE docs, TPUs in GKE",
        look: chips,
    },
    rule! {
        "SG0507", Error, "TPU requests that are not equal to the limits",
        why: "extended resources cannot be overcommitted: the API server refuses the pods",
        source: "Kubernetes docs, extended resources",
        look: requests_and_limits,
    },
    rule! {
        "SG0508", Warning, "More than one container of a pod that asks for TPUs",
        why: "the chips of a host are opened by one process: the second container fails to initialize them",
        source: "GKE docs, TPUs in GKE",
        look: containers,
    },
    rule! {
        "SG0509", Warning, "Pods that no node pool takes",
        why: "once admitted the pods stay Pending while the job holds its quota",
        source: "Kubernetes docs, assigning pods to nodes",
        look: no_pool,
    },
    rule! {
        "SG0510", Warning, "TPU pods that do not say which TPUs",
        why: "GKE needs both gke-tpu-accelerator and gke-tpu-topology to find or make nodes; without them any slice may be hit",
        source: "GKE docs, TPUs in GKE",
        look: no_selectors,
    },
    rule! {
        "SG0511", Error, "A flavor of a TPU shape that does not exist",
        why: "no node can ever have these labels: jobs are admitted to the flavor and find no node",
        source: "GKE docs, plan TPUs in GKE",
        look: flavors,
    },
    rule! {
        "SG0512", Warning, "Multislice over slices of a single host",
        why: "multislice joins multi-host slices; single hosts are not connected by GKE's multislice",
        source: "GKE docs, TPU multislice",
        look: multislice_of_single_hosts,
    },
    rule! {
        "SG0513", Warning, "Exclusive placement by node pool for slices of a single host",
        why: "each Job takes a whole node pool for itself although every node is a slice of its own; the others wait",
        source: "JobSet docs, exclusive placement; GKE docs, TPUs in GKE",
        look: exclusive_single_hosts,
    },
    rule! {
        "SG0514", Warning, "More slices than the node pools have",
        why: "the job is admitted if its quota allows, and then runs in part and waits for ever for the rest",
        source: "GKE docs, TPUs in GKE: a multi-host node pool is one slice",
        look: too_many_slices,
    },
    rule! {
        "SG0515", Note, "Slices of different shapes in one JobSet",
        why: "multislice joins equal slices only; as one program these will not start",
        source: "GKE docs, TPU multislice",
        look: unequal_slices,
    },
    rule! {
        "SG0516", Warning, "A multi-host node pool of a size that is not one slice",
        why: "the pool has all nodes of its slice or none; any other size is refused or never reached",
        source: "GKE docs, TPUs in GKE",
        look: pool_size,
    },
    rule! {
        "SG0517", Error, "Flex-start on a machine type that does not have it",
        why: "GKE refuses to create the node pool",
        source: "GKE docs, flex-start; the machine tables of GKE's autoscaler",
        look: flex_start,
    },
    rule! {
        "SG0518", Error, "A node pool that is spot and flex-start at once",
        why: "a node is bought in one way only; GKE refuses to create the node pool",
        source: "GKE docs, flex-start",
        look: spot,
    },
    rule! {
        "SG0519", Error, "A multi-host node pool in several zones",
        why: "the hosts of a slice are wired together and stand in one zone",
        source: "GKE docs, TPUs in GKE",
        look: zones,
    },
    rule! {
        "SG0520", Warning, "A pod that is larger than every node",
        why: "quota counts the sum over all nodes: the job is admitted, and its pods stay Pending while it holds its quota",
        source: "Kubernetes docs, assigning pods to nodes",
        look: too_large,
    },
];

fn pools<'m, 'a>(model: &'m Model<'a>) -> impl Iterator<Item = (&'m Pool<'a>, &'a NodePool)> {
    model.pools.iter().filter_map(|p| Some((p, p.object?)))
}

fn machine_types(model: &Model<'_>, out: &mut Sink<'_>) {
    for (pool, object) in pools(model) {
        let name = object.config.machine_type.as_str();
        if !(name.starts_with("ct") || name.starts_with("tpu")) {
            continue;
        }
        if let Err(unknown) = name.parse::<MachineType>() {
            let help = match unknown.suggestion {
                Some(machine) => format!("write {}", machine.name()),
                None => "write a TPU machine type such as ct5lp-hightpu-4t or ct6e-standard-4t".to_owned(),
            };
            out.report(pool.document, "config.machineType", unknown.to_string(), help);
        }
    }
}

fn pool_topologies(model: &Model<'_>, out: &mut Sink<'_>) {
    for (pool, object) in pools(model) {
        let topology = object.placement_policy.as_ref().and_then(|p| p.tpu_topology.as_deref());
        let (Some(machine), Some(topology)) = (pool.machine, topology) else { continue };
        if let Err(why) = SliceShape::parse(machine.name(), topology) {
            let legal: Vec<String> = machine.topologies().take(12).map(|t| t.to_string()).collect();
            let help = format!("{} makes {}", machine.name(), legal.join(", "));
            out.report(pool.document, "placementPolicy.tpuTopology", why.to_string(), help);
        }
    }
}

fn groups<'m, 'a>(model: &'m Model<'a>) -> impl Iterator<Item = (&'m Job<'a>, &'m Group<'a>)> {
    model.jobs.iter().flat_map(|job| job.groups.iter().map(move |group| (job, group)))
}

fn selected_shapes(model: &Model<'_>, out: &mut Sink<'_>) {
    for (job, group) in groups(model) {
        let (accelerator, topology) = (group.selects(label::ACCELERATOR), group.selects(label::TOPOLOGY));
        let Some(accelerator) = accelerator else { continue };
        let parsed = match accelerator.parse::<Accelerator>() {
            Ok(parsed) => parsed,
            Err(unknown) => {
                let help = unknown.suggestion.map_or_else(
                    || "write one such as tpu-v5-lite-podslice or tpu-v6e-slice".to_owned(),
                    |a| format!("write {}", a.label()),
                );
                out.report(job.document, &group.selector_path(label::ACCELERATOR), unknown.to_string(), help);
                continue;
            }
        };
        if let Some(Err(why)) = topology.map(|t| parsed.parse_topology(t)) {
            let help = why
                .suggestion()
                .map_or_else(|| format!("{} has {}", parsed.label(), legal(parsed)), |t| format!("write {t}"));
            out.report(job.document, &group.selector_path(label::TOPOLOGY), why.to_string(), help);
        }
    }
}

fn legal(accelerator: Accelerator) -> String {
    let all: Vec<String> = accelerator.topologies().take(12).map(|t| t.to_string()).collect();
    all.join(", ")
}

fn hosts(model: &Model<'_>, out: &mut Sink<'_>) {
    for (job, group) in groups(model) {
        let (Some(slice), Some(slices)) = (group.slice(), &group.slices) else { continue };
        let hosts = i64::from(slice.hosts());
        if !slice.is_multi_host() || slices.hosts == hosts {
            continue;
        }
        let message = format!(
            "a {} slice of {} has {hosts} hosts, but there {} to each: {}",
            slice.topology(),
            slice.machine_type().name(),
            if slices.hosts == 1 { "is 1 pod".to_owned() } else { format!("are {} pods", slices.hosts) },
            if slices.hosts < hosts { "the other hosts stay idle" } else { "the rest of the pods find no host" }
        );
        let field = slices.hosts_path.rsplit('.').next().unwrap_or_default();
        let also = if job.kind() == Kind::Job || job.kind() == Kind::JobSet { " and completions" } else { "" };
        let shown = if job.document.positions.has(&slices.hosts_path) {
            slices.hosts_path.clone()
        } else {
            group.selector_path(label::TOPOLOGY)
        };
        out.report(job.document, &shown, message, format!("set {field}{also} to {hosts}"));
    }
}

/// Parallelism and completions of a group, and the field of the latter.
fn counts(job: &Job<'_>, index: usize) -> Option<(i32, i32, String)> {
    use slicegate_api::Object;
    let (spec, at) = match job.object {
        Object::Job(o) => (o.spec.as_ref()?, "spec".to_owned()),
        Object::JobSet(o) => {
            let at = format!("spec.replicatedJobs[{index}].template.spec");
            (o.spec.replicated_jobs.get(index)?.template.spec.as_ref()?, at)
        }
        _ => return None,
    };
    Some((spec.parallelism.unwrap_or(1), spec.completions?, format!("{at}.completions")))
}

fn completions(model: &Model<'_>, out: &mut Sink<'_>) {
    for job in &model.jobs {
        for (i, group) in job.groups.iter().enumerate() {
            let Some(slice) = group.slice().filter(|s| s.is_multi_host()) else { continue };
            let Some((parallelism, completions, path)) = counts(job, i) else { continue };
            if parallelism != completions {
                let message = format!(
                    "{parallelism} pods run at once, and {completions} have to succeed; a {} slice has {} workers",
                    slice.topology(),
                    slice.hosts()
                );
                out.report(
                    job.document,
                    &path,
                    message,
                    format!("set parallelism and completions to {}", slice.hosts()),
                );
            }
        }
    }
}

fn chips(model: &Model<'_>, out: &mut Sink<'_>) {
    for (job, group) in groups(model) {
        let asked = group.chips();
        if asked <= 0 {
            continue;
        }
        let path = group.request_path(TPU);
        if let Some(shape) = group.shape() {
            if let Err(SliceError::NoSuchNode(why)) = shape {
                let help = format!("ask for {} google.com/tpu in requests and limits", why.suggestion.chips());
                out.report(job.document, &path, why.to_string(), help);
            }
            continue;
        }
        if let Some(accelerator) = group.selects(label::ACCELERATOR).and_then(|a| a.parse::<Accelerator>().ok()) {
            let sizes: BTreeSet<u32> = accelerator.machine_types().iter().map(|m| m.chips()).collect();
            if !sizes.iter().any(|c| i64::from(*c) == asked) {
                let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
                let message = format!("no machine of {} has {}", accelerator.label(), plural(asked, "chip"));
                out.report(job.document, &path, message, format!("ask for {} google.com/tpu", sizes.join(" or ")));
            }
            continue;
        }
        let named = group.selects(label::NODE_POOL);
        if let Some(pool) = model.pools.iter().find(|p| named == Some(p.name) && p.chips > 0)
            && i64::from(pool.chips) != asked
        {
            let message = format!("nodes of pool {} have {} chips, not {asked}", pool.name, pool.chips);
            out.report(job.document, &path, message, format!("ask for {} google.com/tpu", pool.chips));
        }
    }
}

fn requests_and_limits(model: &Model<'_>, out: &mut Sink<'_>) {
    for (job, group) in groups(model) {
        let Some(spec) = group.template.and_then(|t| t.spec.as_ref()) else { continue };
        let init = spec.init_containers.as_deref().unwrap_or_default();
        for (field, containers) in [("containers", spec.containers.as_slice()), ("initContainers", init)] {
            for (i, container) in containers.iter().enumerate() {
                let Some(resources) = &container.resources else { continue };
                let of = |list: &Option<std::collections::BTreeMap<String, slicegate_api::Quantity>>| {
                    list.as_ref()?.get(TPU)?.0.parse::<slicegate_quota::Quantity>().ok()
                };
                let Some(request) = of(&resources.requests) else { continue };
                let path = format!("{}.spec.{field}[{i}].resources.requests[{TPU}]", group.path);
                match of(&resources.limits) {
                    None => {
                        let message = format!("{request} google.com/tpu are requested, and there is no limit");
                        out.report(
                            job.document,
                            &path,
                            message,
                            "write it in limits; requests are then the same by default",
                        );
                    }
                    Some(limit) if limit != request => {
                        let message = format!("{request} google.com/tpu are requested, and the limit is {limit}");
                        out.report(job.document, &path, message, "write the same number in requests and limits");
                    }
                    Some(_) => {}
                }
            }
        }
    }
}

fn containers(model: &Model<'_>, out: &mut Sink<'_>) {
    for (job, group) in groups(model) {
        // Those of TPU7x have two halves that may be used apart.
        let halves = group.selects(label::ACCELERATOR).is_some_and(|a| a == Accelerator::Tpu7x.label());
        let users: Vec<&str> =
            group.pod.containers.iter().filter(|c| c.resources.requests.contains_key(TPU)).map(|c| &*c.name).collect();
        if users.len() > 1 && !halves && !group.path.is_empty() {
            let message = format!("containers {} all ask for google.com/tpu", users.join(" and "));
            let help = "let one container ask for all chips of the host";
            out.report(job.document, &group.request_path(TPU), message, help);
        }
    }
}

fn no_pool(model: &Model<'_>, out: &mut Sink<'_>) {
    if model.pools.is_empty() {
        return;
    }
    for (job, group) in groups(model) {
        let chips = group.chips();
        let selects_pool = group.selects(label::NODE_POOL).is_some();
        // Nodes for other pods may well be elsewhere. Shapes that do not exist have a finding of their own.
        if group.path.is_empty() || !(chips > 0 || selects_pool) || matches!(group.shape(), Some(Err(_))) {
            continue;
        }
        // Flavors may add tolerations.
        let mut pod = group.pod.clone();
        if let Some(queue) = model.queue_of(job) {
            let flavors = queue.spec.resource_groups.iter().flat_map(|g| &g.flavors);
            let flavors = flavors.filter_map(|f| model.flavor(&f.name));
            pod.tolerations.extend(flavors.flat_map(|f| f.spec.tolerations.iter().cloned()));
        }
        let fitting: Vec<&Pool<'_>> = model.pools.iter().filter(|p| p.fits_labels(&pod)).collect();
        let sized: Vec<&&Pool<'_>> = fitting.iter().filter(|p| chips == 0 || i64::from(p.chips) == chips).collect();
        if sized.iter().any(|p| p.admits(&pod, chips)) {
            continue;
        }
        let names = list(model.pools.iter().map(|p| p.name));
        let wanted = pod.node_selector.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(", ");
        let wanted = if wanted.is_empty() { "no selector".to_owned() } else { wanted };
        let untolerated = sized.first().and_then(|p| Some((p.name, p.first_untolerated(&pod, chips)?)));
        if let Some((name, taint)) = untolerated {
            // Which is a finding of its own where a ProvisioningRequest is meant.
            let message = format!("node pool {name} matches, but pods do not tolerate its taint {}", taint.key);
            let help = format!("add a toleration with key {}, or one to the flavor", taint.key);
            out.report(job.document, &format!("{}.spec.tolerations", group.path), message, help);
        } else if let Some(pool) = fitting.first() {
            // A pool selected by name with another number of chips has a finding of its own.
            if selects_pool {
                continue;
            }
            let message =
                format!("nodes of pool {} have {} chips, and these pods ask for {chips}", pool.name, pool.chips);
            let help = format!("ask for {} google.com/tpu", pool.chips);
            out.report(job.document, &group.request_path(TPU), message, help);
        } else {
            let message = format!("no node pool matches these pods ({wanted})");
            let help = format!("there are node pools {names}; compare their labels");
            let path = format!("{}.spec.nodeSelector", group.path);
            out.report(job.document, &path, message, help);
        }
    }
}

fn no_selectors(model: &Model<'_>, out: &mut Sink<'_>) {
    let which = [label::ACCELERATOR, label::TOPOLOGY];
    for (job, group) in groups(model) {
        let exempt = [label::NODE_POOL, label::COMPUTE_CLASS, label::SLICE, "kubernetes.io/hostname"];
        let asks = annotation_of(group, slicegate_tpu::annotation::SLICE_TOPOLOGY);
        if group.chips() <= 0 || group.path.is_empty() || asks || exempt.iter().any(|k| group.selects(k).is_some()) {
            continue;
        }
        // A queue that is not known may add labels.
        let Some(queue) = model.queue_of(job) else {
            if job.queue.is_none() || which.iter().filter(|k| group.selects(k).is_some()).count() == 1 {
                report_selectors(job, group, &which, out);
            }
            continue;
        };
        let flavors = queue.group_of(TPU).into_iter().flat_map(|(_, g)| &g.flavors);
        let flavors: Vec<_> = flavors.filter_map(|f| model.flavor(&f.name)).collect();
        let given = |key: &str| {
            group.selects(key).is_some()
                || flavors.iter().any(|f| f.label(key).is_some() || exempt.iter().any(|k| f.label(k).is_some()))
                || flavors.iter().any(|f| f.spec.topology.is_some())
        };
        if !flavors.is_empty() && which.iter().any(|k| !given(k)) {
            report_selectors(job, group, &which, out);
        }
    }
}

fn annotation_of(group: &Group<'_>, key: &str) -> bool {
    group.annotation(key).is_some()
}

fn report_selectors(job: &Job<'_>, group: &Group<'_>, which: &[&str], out: &mut Sink<'_>) {
    let missing: Vec<&str> = which.iter().copied().filter(|k| group.selects(k).is_none()).collect();
    if missing.is_empty() {
        return;
    }
    let message =
        format!("these pods ask for {} and do not select {}", plural(group.chips(), "chip"), missing.join(" and "));
    let help = "add them to nodeSelector, or to the nodeLabels of the queue's flavors";
    out.report(job.document, &group.request_path(TPU), message, help);
}

fn flavors(model: &Model<'_>, out: &mut Sink<'_>) {
    for flavor in &model.flavors {
        let Some(accelerator) = flavor.label(label::ACCELERATOR) else { continue };
        match accelerator.parse::<Accelerator>() {
            Err(unknown) => {
                let help = unknown.suggestion.map_or_else(
                    || "write one such as tpu-v5-lite-podslice or tpu-v6e-slice".to_owned(),
                    |a| format!("write {}", a.label()),
                );
                let path = format!("spec.nodeLabels[{}]", label::ACCELERATOR);
                out.report(flavor.document, &path, unknown.to_string(), help);
            }
            Ok(accelerator) => {
                let Some(Err(why)) = flavor.label(label::TOPOLOGY).map(|t| accelerator.parse_topology(t)) else {
                    continue;
                };
                let help = format!("{} has {}", accelerator.label(), legal(accelerator));
                let path = format!("spec.nodeLabels[{}]", label::TOPOLOGY);
                out.report(flavor.document, &path, why.to_string(), help);
            }
        }
    }
}

fn multislice_of_single_hosts(model: &Model<'_>, out: &mut Sink<'_>) {
    for (job, group) in groups(model) {
        let Some(slice) = group.slice().filter(|s| !s.is_multi_host() && !group.is_dynamic()) else { continue };
        let containers =
            group.template.and_then(|t| t.spec.as_ref()).map(|s| s.containers.as_slice()).unwrap_or_default();
        for (i, container) in containers.iter().enumerate() {
            let env = container.env.as_deref().unwrap_or_default();
            let Some(e) = env.iter().position(|e| e.name.starts_with("MEGASCALE_")) else { continue };
            let multi = SliceShape::candidates(slice.accelerator(), slice.topology()).find(|s| s.is_multi_host());
            let help = multi.map_or_else(
                || "select a topology of several hosts".to_owned(),
                |s| {
                    format!(
                        "use {} on {}: {} hosts of {} chips",
                        s.topology(),
                        s.machine_type(),
                        s.hosts(),
                        s.chips_per_host()
                    )
                },
            );
            let message = format!("{} on {} is a single host", slice.topology(), slice.machine_type());
            let path = format!("{}.spec.containers[{i}].env[{e}].name", group.path);
            out.report(job.document, &path, message, help);
            break;
        }
    }
}

/// The annotation that gives each Job of a JobSet a domain of its own.
pub(super) const EXCLUSIVE: &str = "alpha.jobset.sigs.k8s.io/exclusive-topology";

fn exclusive_single_hosts(model: &Model<'_>, out: &mut Sink<'_>) {
    for job in model.jobs.iter().filter(|j| annotation(j.metadata(), EXCLUSIVE) == Some(label::NODE_POOL)) {
        let single = job.groups.iter().find_map(|g| {
            let slice = g.slice().filter(|s| !s.is_multi_host() && !g.is_dynamic())?;
            (g.slices.as_ref()?.count > 1).then_some(slice)
        });
        if let Some(slice) = single {
            let message = format!(
                "every node of a {} pool with {} is a slice of its own, and each Job takes a whole pool",
                slice.machine_type(),
                slice.topology()
            );
            let help = "remove the annotation, or use kubernetes.io/hostname";
            out.report(job.document, &format!("metadata.annotations[{EXCLUSIVE}]"), message, help);
        }
    }
}

fn too_many_slices(model: &Model<'_>, out: &mut Sink<'_>) {
    for (job, group) in groups(model) {
        let (Some(slice), Some(slices)) = (group.slice().filter(|s| s.is_multi_host()), &group.slices) else {
            continue;
        };
        // A pool may hold several parts of its slice.
        if group.is_dynamic() {
            continue;
        }
        let fitting = model.pools.iter().filter(|p| p.slice == Some(slice) && p.fits_labels(&group.pod));
        let mut there: i64 = 0;
        for pool in fitting {
            there = there.saturating_add(pool.slices().unwrap_or(i64::MAX));
        }
        if there > 0 && slices.count > there {
            let message =
                format!("{} of {slice} are asked for, and the node pools have {there}", plural(slices.count, "slice"));
            let help = format!(
                "add {} of this shape, or ask for {there}",
                plural(slices.count.saturating_sub(there), "node pool")
            );
            let path = if slices.count_path.is_empty() {
                group.selector_path(label::TOPOLOGY)
            } else {
                slices.count_path.clone()
            };
            out.report(job.document, &path, message, help);
        }
    }
}

fn unequal_slices(model: &Model<'_>, out: &mut Sink<'_>) {
    for job in model.jobs.iter().filter(|j| j.kind() == Kind::JobSet) {
        let mut first: Option<SliceShape> = None;
        for group in &job.groups {
            let Some(slice) = group.slice().filter(|s| s.is_multi_host()) else { continue };
            match first {
                None => first = Some(slice),
                Some(other) if other != slice => {
                    let message = format!("this replicated job has slices of {slice}, another one of {other}");
                    let help = "use one shape, unless the two are programs of their own";
                    out.report(job.document, &group.selector_path(label::TOPOLOGY), message, help);
                }
                Some(_) => {}
            }
        }
    }
}

/// The nodes of the largest GKE clusters.
const MOST_NODES: i32 = 65_000;

fn pool_size(model: &Model<'_>, out: &mut Sink<'_>) {
    for (pool, object) in pools(model) {
        if let Some(nodes) = object.initial_node_count.filter(|n| *n > MOST_NODES) {
            let message = format!("{nodes} nodes are more than the {MOST_NODES} of the largest GKE clusters");
            out.report(pool.document, "initialNodeCount", message, "correct initialNodeCount");
            continue;
        }
        let Some(slice) = pool.slice.filter(|s| s.is_multi_host()) else { continue };
        let hosts = i64::from(slice.hosts());
        let what = format!("a slice of {} has {hosts} nodes", slice.topology());
        if let Some(nodes) = object.initial_node_count.filter(|n| *n != 0 && i64::from(*n) != hosts) {
            let message = format!("{what}, and the pool starts with {nodes}");
            out.report(pool.document, "initialNodeCount", message, format!("set it to {hosts} or 0"));
        }
        let Some(scaling) = object.autoscaling.as_ref().filter(|a| a.enabled) else { continue };
        let limits = [("maxNodeCount", scaling.max_node_count), ("totalMaxNodeCount", scaling.total_max_node_count)];
        for (field, most) in limits {
            if let Some(most) = most.filter(|m| i64::from(*m) != hosts) {
                let never = if i64::from(most) < hosts { "it can never grow" } else { "more are never made" };
                let message = format!("{what}, and the pool may have {most}: {never}");
                out.report(pool.document, &format!("autoscaling.{field}"), message, format!("set it to {hosts}"));
            }
        }
    }
}

fn flex_start(model: &Model<'_>, out: &mut Sink<'_>) {
    for (pool, object) in pools(model) {
        let Some(machine) = pool.machine.filter(|m| !m.allows_flex_start()) else { continue };
        let path = match (pool.queued, object.config.flex_start) {
            (true, _) => "queuedProvisioning.enabled",
            (_, Some(true)) => "config.flexStart",
            _ => continue,
        };
        let message = format!("{} has neither flex-start nor queued provisioning", machine.name());
        let help = "use a machine type of v5e, v5p, v6e or TPU7x, or remove the field";
        out.report(pool.document, path, message, help);
    }
}

fn spot(model: &Model<'_>, out: &mut Sink<'_>) {
    for (pool, object) in pools(model) {
        let flex = pool.queued || object.config.flex_start == Some(true);
        if flex && object.config.spot == Some(true) {
            let message = format!("node pool {} is both spot and flex-start", pool.name);
            out.report(pool.document, "config.spot", message, "remove one of the two");
        }
    }
}

fn zones(model: &Model<'_>, out: &mut Sink<'_>) {
    for (pool, object) in pools(model) {
        if pool.slice.is_some_and(SliceShape::is_multi_host) && object.locations.len() > 1 {
            let message = format!("one slice cannot lie in {} zones", object.locations.len());
            let help = "name one zone, and make a node pool for each slice";
            out.report(pool.document, "locations", message, help);
        }
    }
}

fn too_large(model: &Model<'_>, out: &mut Sink<'_>) {
    // A node pool may get nodes of which nothing is said here.
    if model.pools.iter().any(|p| p.object.is_some()) {
        return;
    }
    for (job, group) in groups(model).filter(|(_, group)| !group.path.is_empty()) {
        let nodes: Vec<&Pool<'_>> = model.pools.iter().filter(|p| p.fits_labels(&group.pod)).collect();
        // Chips have rules of their own.
        for resource in group.requests.keys().filter(|r| ***r != *TPU) {
            let asked = group.one(resource);
            let most = nodes.iter().filter_map(|p| p.room.get(resource)).max().unwrap_or(0);
            if most > 0 && asked > most {
                let (asked, most) = (super::shown(resource, asked), super::shown(resource, most));
                let message = format!("a pod asks for {asked} {resource}, and no node has more than {most}");
                let help = "let more pods ask for less each, or add larger nodes";
                out.report(job.document, &group.request_path(resource), message, help);
            }
        }
    }
}
