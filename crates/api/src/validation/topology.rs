//! Topology annotations of pod templates.

use std::collections::BTreeMap;

use super::{Findings, Rules, names};
use crate::path::Path;

pub(super) const REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";
pub(super) const PREFERRED: &str = "kueue.x-k8s.io/podset-preferred-topology";
const UNCONSTRAINED: &str = "kueue.x-k8s.io/podset-unconstrained-topology";
const SLICE_TOPOLOGY: &str = "kueue.x-k8s.io/podset-slice-required-topology";
const SLICE_SIZE: &str = "kueue.x-k8s.io/podset-slice-size";
const SLICES: &str = "kueue.x-k8s.io/podset-slice-required-topology-constraints";
const GROUP: &str = "kueue.x-k8s.io/podset-group-name";

type Annotations = BTreeMap<String, String>;

/// The pods of a job that share a template.
pub(super) struct PodGroup<'a> {
    /// Where the template's metadata is.
    pub(super) path: Path<'a>,
    pub(super) annotations: Option<&'a Annotations>,
    /// How many pods.
    pub(super) count: i32,
}

/// Checks the topology annotations of a pod template whose metadata is at `path`; slices must not be larger than
/// `pod_set_count`, if it is known.
pub fn topology_annotations(
    path: &str,
    annotations: &Annotations,
    pod_set_count: Option<i32>,
    rules: &Rules,
) -> Vec<super::Finding> {
    let mut out = Findings::default();
    check(Path::ROOT.field(path), annotations, pod_set_count, rules, &mut out);
    out.0
}

/// Checks all pod templates of a job, and how they go together.
pub(super) fn groups(groups: &[PodGroup<'_>], rules: &Rules, out: &mut Findings) {
    if !rules.topology_aware_scheduling {
        return;
    }
    let before = out.0.len();
    for group in groups {
        if let Some(annotations) = group.annotations {
            check(group.path, annotations, Some(group.count), rules, out);
        }
    }
    // Groups are only looked at once each template is right by itself.
    if out.0.len() == before {
        placed_together(groups, out);
    }
}

fn check(path: Path<'_>, all: &Annotations, count: Option<i32>, rules: &Rules, out: &mut Findings) {
    let path = path.field("annotations");
    if [REQUIRED, PREFERRED, UNCONSTRAINED].iter().filter(|key| all.contains_key(**key)).count() > 1 {
        out.invalid(path, format!("only one of {REQUIRED}, {PREFERRED} and {UNCONSTRAINED} may be there"));
    }
    for key in [REQUIRED, PREFERRED, SLICE_TOPOLOGY] {
        if let Some(level) = all.get(key) {
            out.name(path.key(key), level, names::qualified);
        }
    }
    if let Some(text) = all.get(UNCONSTRAINED).filter(|t| !is_bool(t)) {
        out.invalid(path.key(UNCONSTRAINED), format!("{text:?} is neither true nor false"));
    }
    slice(path, all, count, out);
    if let Some(text) = all.get(SLICES) {
        slices(path, all, text, count, rules, out);
    }
    if let Some(name) = all.get(GROUP) {
        let path = path.key(GROUP);
        if name.parse::<u64>().is_ok() {
            out.invalid(path, "must not be a number");
        }
        if !all.contains_key(REQUIRED) && !all.contains_key(PREFERRED) {
            out.forbidden(path, format!("may only be there with {REQUIRED} or {PREFERRED}"));
        }
        for key in [SLICE_TOPOLOGY, SLICE_SIZE, SLICES] {
            if all.contains_key(key) {
                out.forbidden(path, format!("must not be there together with {key}"));
            }
        }
    }
}

/// What Go's `strconv.ParseBool` takes.
pub(super) fn is_bool(text: &str) -> bool {
    parse_bool(text).is_some()
}

pub(super) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

fn slice(path: Path<'_>, all: &Annotations, count: Option<i32>, out: &mut Findings) {
    let size_path = path.key(SLICE_SIZE);
    // With several layers, the pair is refused as a whole.
    if all.contains_key(SLICES) {
        return;
    }
    match (all.contains_key(SLICE_TOPOLOGY), all.get(SLICE_SIZE)) {
        (true, None) => out.required(size_path, format!("must be there together with {SLICE_TOPOLOGY}")),
        (false, Some(_)) => out.forbidden(size_path, format!("may only be there with {SLICE_TOPOLOGY}")),
        (_, None) => {}
        (true, Some(text)) => match text.parse::<i32>() {
            Err(_) => out.invalid(size_path, format!("{text:?} is no number")),
            Ok(size) if size < 1 => out.invalid(size_path, "must be 1 or more"),
            Ok(size) if count.is_some_and(|count| size > count) => {
                out.invalid(
                    size_path,
                    format!("must not be more than the {} pods there are", count.unwrap_or_default()),
                );
            }
            Ok(_) => {}
        },
    }
}

#[derive(serde::Deserialize)]
struct Layer {
    #[serde(default)]
    topology: String,
    #[serde(default)]
    size: i32,
}

fn slices(path: Path<'_>, all: &Annotations, text: &str, count: Option<i32>, rules: &Rules, out: &mut Findings) {
    let path = path.key(SLICES);
    if !rules.multi_layer_topology {
        out.forbidden(path, "needs the feature gate TASMultiLayerTopology");
        return;
    }
    for key in [SLICE_TOPOLOGY, SLICE_SIZE] {
        if all.contains_key(key) {
            out.forbidden(path, format!("must not be there together with {key}"));
        }
    }
    let layers: Vec<Layer> = match serde_json::from_str(text) {
        Ok(layers) => layers,
        Err(error) => {
            out.invalid(path, format!("must be a JSON list like [{{\"topology\": \"...\", \"size\": 4}}]: {error}"));
            return;
        }
    };
    if !(1..=3).contains(&layers.len()) {
        out.invalid(path, format!("has {} layers; 1 to 3 are allowed", layers.len()));
        return;
    }
    let mut seen = std::collections::BTreeSet::new();
    let mut parent: Option<i32> = None;
    for (i, layer) in layers.iter().enumerate() {
        let path = path.index(i);
        out.name(path.field("topology"), &layer.topology, names::qualified);
        if !seen.insert(&layer.topology) {
            out.duplicate(path.field("topology"), &layer.topology);
        }
        if layer.size < 1 {
            out.invalid(path.field("size"), "must be 1 or more");
        } else if let Some(parent) = parent.filter(|p| p.checked_rem(layer.size) != Some(0)) {
            out.invalid(path.field("size"), format!("must divide {parent}, the size of the layer above"));
        }
        parent = Some(layer.size);
    }
    if let (Some(outermost), Some(count)) = (layers.first(), count)
        && outermost.size > count
    {
        out.invalid(path, format!("must not ask for slices of more than the {count} pods there are"));
    }
}

/// Pod sets placed together: two, one of them a single pod, with the same request.
fn placed_together(groups: &[PodGroup<'_>], out: &mut Findings) {
    let mut by_name = BTreeMap::<&str, Vec<&PodGroup<'_>>>::new();
    for group in groups {
        if let Some(name) = group.annotations.and_then(|a| a.get(GROUP)) {
            by_name.entry(name).or_default().push(group);
        }
    }
    for members in by_name.values() {
        let [first, second] = members.as_slice() else {
            for member in members {
                let path = member.path.field("annotations");
                out.invalid(path.key(GROUP), format!("exactly 2 pod sets are placed together, not {}", members.len()));
            }
            continue;
        };
        let request = |g: &PodGroup<'_>, key: &str| g.annotations.and_then(|a| a.get(key)).cloned();
        let differ = [REQUIRED, PREFERRED].iter().any(|key| request(first, key) != request(second, key));
        for member in members {
            let path = member.path.field("annotations");
            if first.count != 1 && second.count != 1 {
                out.invalid(
                    path.key(GROUP),
                    format!(
                        "one of the two pod sets must be a single pod; they have {} and {}",
                        first.count, second.count
                    ),
                );
            }
            if differ {
                out.invalid(
                    path,
                    format!("{REQUIRED} or {PREFERRED} must be the same in both pod sets placed together"),
                );
            }
        }
    }
}
