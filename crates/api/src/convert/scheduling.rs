//! Taints, tolerations, selectors and affinity.

use k8s_openapi::api::core::v1 as core;
use slicegate_workload::{
    LabelSelector, NodeAffinity, Operator, PreferredTerm, Requirement, SelectorTerm, Taint, TaintEffect, Toleration,
    TolerationOperator,
};

use super::{Result, boxed_optional, boxes, choose, pick};
use crate::path::Path;

const EFFECTS: &[(&str, TaintEffect)] = &[
    ("NoSchedule", TaintEffect::NoSchedule),
    ("PreferNoSchedule", TaintEffect::PreferNoSchedule),
    ("NoExecute", TaintEffect::NoExecute),
];

const TOLERATION_OPERATORS: &[(&str, TolerationOperator)] = &[
    ("Equal", TolerationOperator::Equal),
    ("Exists", TolerationOperator::Exists),
    ("Lt", TolerationOperator::Lt),
    ("Gt", TolerationOperator::Gt),
];

const LABEL_OPERATORS: &[(&str, Operator)] = &[
    ("In", Operator::In),
    ("NotIn", Operator::NotIn),
    ("Exists", Operator::Exists),
    ("DoesNotExist", Operator::DoesNotExist),
];

const NODE_OPERATORS: &[(&str, Operator)] = &[
    ("In", Operator::In),
    ("NotIn", Operator::NotIn),
    ("Exists", Operator::Exists),
    ("DoesNotExist", Operator::DoesNotExist),
    ("Gt", Operator::Gt),
    ("Lt", Operator::Lt),
];

/// A taint of a node or flavor.
///
/// # Errors
/// If the effect is unknown.
pub fn taint(taint: &crate::Taint) -> Result<Taint> {
    taint_at(Path::ROOT, taint)
}

pub(super) fn taint_at(path: Path<'_>, taint: &crate::Taint) -> Result<Taint> {
    Ok(Taint {
        key: taint.key.as_str().into(),
        value: taint.value.as_deref().unwrap_or_default().into(),
        effect: pick(path.field("effect"), &taint.effect, EFFECTS)?,
    })
}

/// A taint for the API.
pub fn taint_to_api(taint: &Taint) -> crate::Taint {
    crate::Taint {
        key: taint.key.to_string(),
        value: (!taint.value.is_empty()).then(|| taint.value.to_string()),
        effect: taint.effect.as_str().to_owned(),
        time_added: None,
    }
}

/// A toleration. An absent operator is `Equal`, an absent effect is every effect.
///
/// # Errors
/// If the operator or the effect is unknown.
pub fn toleration(toleration: &crate::Toleration) -> Result<Toleration> {
    toleration_at(Path::ROOT, toleration)
}

pub(super) fn toleration_at(path: Path<'_>, toleration: &crate::Toleration) -> Result<Toleration> {
    let effect = match toleration.effect.as_deref() {
        None | Some("") => None,
        Some(effect) => Some(pick(path.field("effect"), effect, EFFECTS)?),
    };
    Ok(Toleration {
        key: toleration.key.as_deref().unwrap_or_default().into(),
        operator: choose(path.field("operator"), toleration.operator.as_deref(), TOLERATION_OPERATORS)?,
        value: toleration.value.as_deref().unwrap_or_default().into(),
        effect,
        seconds: toleration.toleration_seconds,
    })
}

/// A toleration for the API.
pub fn toleration_to_api(toleration: &Toleration) -> crate::Toleration {
    let text = |s: &str| (!s.is_empty()).then(|| s.to_owned());
    let operator = TOLERATION_OPERATORS.iter().find(|(_, o)| *o == toleration.operator).map(|(w, _)| (*w).to_owned());
    crate::Toleration {
        key: text(&toleration.key),
        operator,
        value: text(&toleration.value),
        effect: toleration.effect.map(|e| e.as_str().to_owned()),
        toleration_seconds: toleration.seconds,
    }
}

pub(super) fn tolerations_at(path: Path<'_>, list: &[crate::Toleration]) -> Result<Vec<Toleration>> {
    list.iter().enumerate().map(|(i, t)| toleration_at(path.index(i), t)).collect()
}

/// A selector over labels.
///
/// # Errors
/// If an operator is unknown.
pub fn label_selector(selector: &crate::LabelSelector) -> Result<LabelSelector> {
    label_selector_at(Path::ROOT, selector)
}

pub(super) fn label_selector_at(path: Path<'_>, selector: &crate::LabelSelector) -> Result<LabelSelector> {
    let path = path.field("matchExpressions");
    let match_expressions =
        selector.match_expressions.as_deref().unwrap_or_default().iter().enumerate().map(|(i, e)| {
            let path = path.index(i);
            Ok(Requirement {
                key: e.key.as_str().into(),
                operator: pick(path.field("operator"), &e.operator, LABEL_OPERATORS)?,
                values: boxes(e.values.as_deref().unwrap_or_default()),
            })
        });
    Ok(LabelSelector {
        match_labels: boxed_optional(selector.match_labels.as_ref()),
        match_expressions: match_expressions.collect::<Result<_>>()?,
    })
}

fn node_requirements(path: Path<'_>, list: Option<&[core::NodeSelectorRequirement]>) -> Result<Vec<Requirement>> {
    let one = |(i, e): (usize, &core::NodeSelectorRequirement)| {
        let path = path.index(i);
        Ok(Requirement {
            key: e.key.as_str().into(),
            operator: pick(path.field("operator"), &e.operator, NODE_OPERATORS)?,
            values: boxes(e.values.as_deref().unwrap_or_default()),
        })
    };
    list.unwrap_or_default().iter().enumerate().map(one).collect()
}

fn term(path: Path<'_>, term: &core::NodeSelectorTerm) -> Result<SelectorTerm> {
    Ok(SelectorTerm {
        match_expressions: node_requirements(path.field("matchExpressions"), term.match_expressions.as_deref())?,
        match_fields: node_requirements(path.field("matchFields"), term.match_fields.as_deref())?,
    })
}

pub(super) fn node_affinity_at(path: Path<'_>, affinity: &core::NodeAffinity) -> Result<NodeAffinity> {
    let required = match &affinity.required_during_scheduling_ignored_during_execution {
        None => None,
        Some(selector) => {
            let path = path.field("requiredDuringSchedulingIgnoredDuringExecution");
            let path = path.field("nodeSelectorTerms");
            let terms = selector.node_selector_terms.iter().enumerate().map(|(i, t)| term(path.index(i), t));
            Some(terms.collect::<Result<_>>()?)
        }
    };
    let path = path.field("preferredDuringSchedulingIgnoredDuringExecution");
    let preferred = affinity.preferred_during_scheduling_ignored_during_execution.as_deref().unwrap_or_default();
    let preferred = preferred.iter().enumerate().map(|(i, p)| {
        let path = path.index(i);
        Ok(PreferredTerm { weight: p.weight, term: term(path.field("preference"), &p.preference)? })
    });
    Ok(NodeAffinity { required, preferred: preferred.collect::<Result<_>>()? })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn an_absent_operator_is_equal_and_an_absent_effect_is_all() {
        let t = toleration(&read(json!({"key": "a", "value": "b"}))).unwrap();
        assert_eq!((t.operator, t.effect), (TolerationOperator::Equal, None));
        assert_eq!(toleration(&toleration_to_api(&t)).unwrap(), t);
    }

    #[test]
    fn an_unknown_effect_is_named_with_its_field() {
        let e = toleration(&read(json!({"key": "a", "effect": "NO_SCHEDULE"}))).unwrap_err();
        assert_eq!(
            e.to_string(),
            "effect: \"NO_SCHEDULE\" is not known; write one of NoSchedule, PreferNoSchedule, NoExecute"
        );
    }

    #[test]
    fn label_selectors_know_no_greater_than() {
        let e = label_selector(&read(json!({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]})));
        assert_eq!(&*e.unwrap_err().path, "matchExpressions[0].operator");
    }

    #[test]
    fn node_affinity_is_read_whole() {
        let a = node_affinity_at(
            Path::ROOT,
            &read(json!({
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]},
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]},
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 7, "preference": {"matchExpressions": [{"key": "b", "operator": "Exists"}]}}]})),
        );
        let a = a.unwrap();
        let required = a.required.unwrap();
        assert_eq!(required[0].match_expressions[0].operator, Operator::Gt);
        assert_eq!(&*required[1].match_fields[0].key, "metadata.name");
        assert_eq!((a.preferred[0].weight, a.preferred[0].term.match_expressions.len()), (7, 1));
    }

    #[test]
    fn taints_survive_a_round_trip() {
        let t = taint(&read(json!({"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"}))).unwrap();
        assert_eq!(taint(&taint_to_api(&t)).unwrap(), t);
        assert_eq!(&*taint(&read(json!({"key": "a"}))).unwrap_err().path, "effect");
    }
}
