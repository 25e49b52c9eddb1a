//! Labels, selectors, taints and tolerations.

use std::collections::{BTreeMap, BTreeSet};

use super::{Findings, names};
use crate::path::Path;
use crate::{LabelSelector, Taint, Toleration, kueue};

pub(super) const TAINT_EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Keys and values of labels; findings are about the whole map.
pub(super) fn labels(path: Path<'_>, labels: &BTreeMap<String, String>, out: &mut Findings) {
    for (key, value) in labels {
        out.name(path, key, names::qualified);
        out.name(path, value, names::value);
    }
}

/// Keys of annotations. Their names may have capitals in the domain, as the API allows.
pub(super) fn annotations(path: Path<'_>, annotations: &BTreeMap<String, String>, out: &mut Findings) {
    for key in annotations.keys() {
        out.name(path, &key.to_ascii_lowercase(), names::qualified);
    }
}

pub(super) fn selector(path: Path<'_>, selector: &LabelSelector, out: &mut Findings) {
    if let Some(map) = &selector.match_labels {
        labels(path.field("matchLabels"), map, out);
    }
    let path = path.field("matchExpressions");
    for (i, expression) in selector.match_expressions.iter().flatten().enumerate() {
        let path = path.index(i);
        let values = expression.values.as_deref().unwrap_or_default();
        match expression.operator.as_str() {
            "In" | "NotIn" if values.is_empty() => {
                out.required(path.field("values"), "must be there when the operator is In or NotIn");
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                out.forbidden(path.field("values"), "must not be there when the operator is Exists or DoesNotExist");
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => out.invalid(
                path.field("operator"),
                format!("{other:?} is not known; write one of In, NotIn, Exists, DoesNotExist"),
            ),
        }
        out.name(path.field("key"), &expression.key, names::qualified);
        for (j, value) in values.iter().enumerate() {
            out.name(path.field("values").index(j), value, names::value);
        }
    }
}

/// A ResourceFlavor, by its webhook.
pub(super) fn resource_flavor(flavor: &kueue::ResourceFlavor, out: &mut Findings) {
    let path = Path::ROOT.field("spec");
    labels(path.field("nodeLabels"), &flavor.spec.node_labels, out);
    taints(path.field("nodeTaints"), &flavor.spec.node_taints, out);
}

fn taints(path: Path<'_>, taints: &[Taint], out: &mut Findings) {
    let mut seen = BTreeSet::new();
    for (i, taint) in taints.iter().enumerate() {
        let path = path.index(i);
        out.name(path.field("key"), &taint.key, names::qualified);
        out.name(path.field("value"), taint.value.as_deref().unwrap_or_default(), names::value);
        if taint.effect.is_empty() {
            out.required(path.field("effect"), format!("write one of {}", TAINT_EFFECTS.join(", ")));
        }
        out.word(path.field("effect"), Some(&taint.effect), TAINT_EFFECTS);
        if !seen.insert((&taint.key, &taint.effect)) {
            out.duplicate(path, &format!("{}:{}", taint.key, taint.effect));
        }
    }
}

/// Tolerations in objects of Kueue, by their schema.
pub(super) fn tolerations(path: Path<'_>, tolerations: &[Toleration], out: &mut Findings) {
    out.at_most(path, tolerations.len(), 8);
    for (i, toleration) in tolerations.iter().enumerate() {
        let path = path.index(i);
        let text = |t: &Option<String>| t.clone().unwrap_or_default();
        let operator = text(&toleration.operator);
        if text(&toleration.key).is_empty() && operator != "Exists" {
            out.invalid(path.field("operator"), "must be Exists when there is no key");
        }
        if toleration.toleration_seconds.is_some() && text(&toleration.effect) != "NoExecute" {
            out.invalid(path.field("effect"), "must be NoExecute when there is tolerationSeconds");
        }
        out.word(path.field("operator"), Some(&operator), &["Equal", "Exists"]);
        if operator == "Exists" && !text(&toleration.value).is_empty() {
            out.invalid(path.field("value"), "must be empty when the operator is Exists");
        }
        out.word(path.field("effect"), toleration.effect.as_deref(), TAINT_EFFECTS);
    }
}
