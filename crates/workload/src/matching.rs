//! Which taints a pod tolerates and which labels it accepts.

use std::collections::BTreeMap;

use crate::{
    LabelSelector, NodeAffinity, Operator, PodSpec, Requirement, SelectorTerm, Taint, TaintEffect, Toleration,
    TolerationOperator,
};

/// Labels of a node, flavor or namespace.
pub type Labels = BTreeMap<Box<str>, Box<str>>;

impl Toleration {
    /// Whether it lets a pod run in spite of the taint.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        if self.effect.is_some_and(|effect| effect != taint.effect) {
            return false;
        }
        if !self.key.is_empty() && self.key != taint.key {
            return false;
        }
        let number = |text: &str| text.parse::<i64>().ok();
        match self.operator {
            TolerationOperator::Exists => true,
            TolerationOperator::Equal => self.value == taint.value,
            TolerationOperator::Lt | TolerationOperator::Gt => match (number(&taint.value), number(&self.value)) {
                (Some(of_taint), Some(bound)) => {
                    if self.operator == TolerationOperator::Lt {
                        of_taint < bound
                    } else {
                        of_taint > bound
                    }
                }
                _ => false,
            },
        }
    }
}

/// The first taint that none of the lists of tolerations lets a pod run in spite of. `PreferNoSchedule` keeps nobody away.
pub fn first_untolerated<'t>(taints: &'t [Taint], tolerations: &[&[Toleration]]) -> Option<&'t Taint> {
    taints
        .iter()
        .filter(|taint| taint.effect != TaintEffect::PreferNoSchedule)
        .find(|taint| !tolerations.iter().copied().flatten().any(|t| t.tolerates(taint)))
}

impl Requirement {
    /// Whether labels meet it. A requirement that makes no sense (`In` without values, `Gt` of no number) is never met.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.matches_value(labels.get(&self.key).map(|value| &**value))
    }

    /// Whether the value of its key meets it, `None` if there is none.
    pub fn matches_value(&self, value: Option<&str>) -> bool {
        let is_listed = |value: &str| self.values.iter().any(|v| **v == *value);
        let numbers = || {
            let [bound] = self.values.as_slice() else { return None };
            Some((value?.parse::<i64>().ok()?, bound.parse::<i64>().ok()?))
        };
        match self.operator {
            Operator::In => value.is_some_and(is_listed),
            Operator::NotIn => !self.values.is_empty() && !value.is_some_and(is_listed),
            Operator::Exists => self.values.is_empty() && value.is_some(),
            Operator::DoesNotExist => self.values.is_empty() && value.is_none(),
            Operator::Gt => numbers().is_some_and(|(value, bound)| value > bound),
            Operator::Lt => numbers().is_some_and(|(value, bound)| value < bound),
        }
    }
}

impl SelectorTerm {
    /// Whether it requires nothing.
    pub fn is_empty(&self) -> bool {
        self.match_expressions.is_empty() && self.match_fields.is_empty()
    }

    /// Whether a node meets it. A term that requires nothing matches nothing.
    pub fn matches(&self, labels: &Labels, node_name: Option<&str>) -> bool {
        !self.is_empty()
            && self.match_expressions.iter().all(|r| r.matches(labels))
            && self.match_fields.iter().all(|r| {
                *r.key == *"metadata.name"
                    && matches!(r.operator, Operator::In | Operator::NotIn)
                    && r.values.len() == 1
                    && r.matches_value(node_name)
            })
    }
}

impl NodeAffinity {
    /// Whether a node meets what is required: one of the terms, if there are any.
    pub fn required_matches(&self, labels: &Labels, node_name: Option<&str>) -> bool {
        self.required.as_ref().is_none_or(|terms| terms.iter().any(|term| term.matches(labels, node_name)))
    }

    /// The sum of the weights of the preferred terms that a node meets.
    pub fn preferred_score(&self, labels: &Labels, node_name: Option<&str>) -> i64 {
        let met = self.preferred.iter().filter(|p| p.term.matches(labels, node_name));
        met.map(|p| i64::from(p.weight)).sum()
    }
}

/// Whether every label of a selector is there with the same value.
pub fn selector_matches(selector: &Labels, labels: &Labels) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

impl PodSpec {
    /// Whether a node meets the pod's node selector and required node affinity.
    pub fn accepts_node(&self, labels: &Labels, node_name: Option<&str>) -> bool {
        selector_matches(&self.node_selector, labels)
            && self.node_affinity.as_ref().is_none_or(|a| a.required_matches(labels, node_name))
    }
}

impl LabelSelector {
    /// Whether labels meet all of it.
    pub fn matches(&self, labels: &Labels) -> bool {
        selector_matches(&self.match_labels, labels) && self.match_expressions.iter().all(|r| r.matches(labels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(entries: &[(&str, &str)]) -> Labels {
        entries.iter().map(|&(k, v)| (k.into(), v.into())).collect()
    }

    fn requirement(key: &str, operator: Operator, values: &[&str]) -> Requirement {
        Requirement { key: key.into(), operator, values: values.iter().map(|&v| v.into()).collect() }
    }

    fn taint(value: &str, effect: TaintEffect) -> Taint {
        Taint { key: "k".into(), value: value.into(), effect }
    }

    fn toleration(key: &str, operator: TolerationOperator, value: &str) -> Toleration {
        Toleration { key: key.into(), operator, value: value.into(), ..Toleration::default() }
    }

    #[test]
    fn tolerations_compare_key_value_and_effect() {
        use TolerationOperator::{Equal, Exists, Gt, Lt};
        let no_schedule = |value| taint(value, TaintEffect::NoSchedule);
        for (toleration, value, want) in [
            (toleration("k", Equal, "v"), "v", true),
            (toleration("k", Equal, "w"), "v", false),
            (toleration("other", Equal, "v"), "v", false),
            (toleration("k", Exists, ""), "v", true),
            (toleration("", Exists, ""), "v", true),
            (toleration("other", Exists, ""), "v", false),
            (toleration("k", Lt, "10"), "9", true),
            (toleration("k", Lt, "10"), "10", false),
            (toleration("k", Gt, "10"), "11", true),
            (toleration("k", Gt, "10"), "10", false),
            (toleration("k", Gt, "ten"), "11", false),
            (toleration("k", Gt, "10"), "eleven", false),
        ] {
            assert_eq!(toleration.tolerates(&no_schedule(value)), want, "{toleration:?} {value}");
        }
        let only = Toleration { effect: Some(TaintEffect::NoExecute), ..toleration("k", Exists, "") };
        assert!(only.tolerates(&taint("v", TaintEffect::NoExecute)));
        assert!(!only.tolerates(&no_schedule("v")));
    }

    #[test]
    fn a_preference_keeps_nobody_away() {
        let taints = [taint("a", TaintEffect::PreferNoSchedule), taint("b", TaintEffect::NoExecute)];
        assert_eq!(first_untolerated(&taints, &[]), Some(&taints[1]));
        let tolerations = [toleration("k", TolerationOperator::Equal, "b")];
        assert_eq!(first_untolerated(&taints, &[&[], &tolerations]), None);
    }

    #[test]
    fn requirements_follow_their_operator() {
        let node = labels(&[("zone", "a"), ("cores", "8")]);
        for (requirement, want) in [
            (requirement("zone", Operator::In, &["a", "b"]), true),
            (requirement("zone", Operator::In, &["b"]), false),
            (requirement("none", Operator::In, &["a"]), false),
            (requirement("zone", Operator::NotIn, &["b"]), true),
            (requirement("zone", Operator::NotIn, &["a"]), false),
            (requirement("none", Operator::NotIn, &["a"]), true),
            (requirement("zone", Operator::Exists, &[]), true),
            (requirement("none", Operator::Exists, &[]), false),
            (requirement("none", Operator::DoesNotExist, &[]), true),
            (requirement("zone", Operator::DoesNotExist, &[]), false),
            (requirement("cores", Operator::Gt, &["7"]), true),
            (requirement("cores", Operator::Gt, &["8"]), false),
            (requirement("cores", Operator::Lt, &["9"]), true),
            (requirement("cores", Operator::Lt, &["8"]), false),
            (requirement("zone", Operator::Gt, &["1"]), false),
            (requirement("none", Operator::Lt, &["1"]), false),
        ] {
            assert_eq!(requirement.matches(&node), want, "{requirement:?}");
        }
    }

    #[test]
    fn one_term_suffices_and_an_empty_one_matches_nothing() {
        let node = labels(&[("zone", "a")]);
        let term = |value: &str| SelectorTerm {
            match_expressions: vec![requirement("zone", Operator::In, &[value])],
            match_fields: Vec::new(),
        };
        let affinity = |terms| NodeAffinity { required: terms, preferred: Vec::new() };
        assert!(affinity(None).required_matches(&node, None));
        assert!(!affinity(Some(vec![])).required_matches(&node, None));
        assert!(!affinity(Some(vec![SelectorTerm::default()])).required_matches(&node, None));
        assert!(affinity(Some(vec![term("b"), term("a")])).required_matches(&node, None));
        assert!(!affinity(Some(vec![term("b")])).required_matches(&node, None));
    }

    #[test]
    fn the_only_field_is_the_name() {
        let term = |key, operator, values: &[&str]| SelectorTerm {
            match_expressions: Vec::new(),
            match_fields: vec![requirement(key, operator, values)],
        };
        let none = Labels::new();
        assert!(term("metadata.name", Operator::In, &["n1"]).matches(&none, Some("n1")));
        assert!(!term("metadata.name", Operator::In, &["n1"]).matches(&none, Some("n2")));
        assert!(term("metadata.name", Operator::NotIn, &["n1"]).matches(&none, Some("n2")));
        assert!(!term("metadata.name", Operator::In, &["n1", "n2"]).matches(&none, Some("n2")));
        assert!(!term("metadata.uid", Operator::In, &["n1"]).matches(&none, Some("n1")));
    }

    #[test]
    fn selectors_need_everything() {
        let namespace = labels(&[("team", "a"), ("dep", "eng")]);
        let mut selector = LabelSelector::default();
        assert!(selector.matches(&namespace) && selector.matches(&Labels::new()));
        selector.match_labels = labels(&[("team", "a")]);
        assert!(selector.matches(&namespace) && !selector.matches(&Labels::new()));
        selector.match_expressions = vec![requirement("dep", Operator::In, &["sales"])];
        assert!(!selector.matches(&namespace));
    }

    #[test]
    fn preferences_add_up() {
        let node = labels(&[("zone", "a")]);
        let preferred = |weight, value: &str| crate::PreferredTerm {
            weight,
            term: SelectorTerm {
                match_expressions: vec![requirement("zone", Operator::In, &[value])],
                match_fields: Vec::new(),
            },
        };
        let affinity =
            NodeAffinity { required: None, preferred: vec![preferred(5, "a"), preferred(7, "b"), preferred(1, "a")] };
        assert_eq!(affinity.preferred_score(&node, None), 6);
    }
}
