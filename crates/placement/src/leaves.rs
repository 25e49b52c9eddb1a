//! Which leaves a pod may go to: taints, node selectors and node affinity.
//!
//! Labels are kept by column, so that a requirement compares text once for each value of a label and then looks up numbers.

use std::collections::BTreeMap;

use slicegate_workload::{
    Labels, NodeAffinity, PodSpec, Requirement, SelectorTerm, Taint, Toleration, first_untolerated,
};

use crate::tree::index;
use crate::{Exclusions, Node};

/// No value.
const ABSENT: u32 = 0;

/// The values of one label.
#[derive(Clone, Debug, Default)]
struct Column {
    /// By leaf: the number of its value, from 1; [`ABSENT`] if the leaf has no such label.
    of_leaf: Vec<u32>,
    /// The values by number, less 1.
    values: Vec<Box<str>>,
}

impl Column {
    fn value(&self, number: u32) -> Option<&str> {
        self.values.get((number as usize).checked_sub(1)?).map(|v| &**v)
    }
}

/// Labels and taints of the nodes that stand for leaves.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeafLabels {
    columns: BTreeMap<Box<str>, Column>,
    /// By leaf: which of `taint_lists` it has.
    taints_of_leaf: Vec<u32>,
    taint_lists: Vec<Vec<Taint>>,
    names: Vec<Box<str>>,
}

impl LeafLabels {
    pub(crate) fn new<'a>(representatives: impl ExactSizeIterator<Item = &'a Node>) -> Self {
        let count = representatives.len();
        let mut labels = Self::default();
        let mut by_key: BTreeMap<&str, (Column, BTreeMap<&str, u32>)> = BTreeMap::new();
        let mut lists: BTreeMap<&[Taint], u32> = BTreeMap::new();
        for (leaf, node) in representatives.enumerate() {
            for (key, value) in &node.labels {
                let (column, numbers) = by_key.entry(key).or_default();
                column.of_leaf.resize(count, ABSENT);
                // Neighbours often have the same value.
                let before = leaf.checked_sub(1).and_then(|l| column.of_leaf.get(l)).copied().unwrap_or(ABSENT);
                let number = if column.value(before) == Some(&**value) {
                    before
                } else {
                    *numbers.entry(value).or_insert_with(|| {
                        column.values.push(value.clone());
                        index(column.values.len())
                    })
                };
                if let Some(slot) = column.of_leaf.get_mut(leaf) {
                    *slot = number;
                }
            }
            let list = *lists.entry(&node.taints).or_insert_with(|| {
                labels.taint_lists.push(node.taints.clone());
                index(labels.taint_lists.len().saturating_sub(1))
            });
            labels.taints_of_leaf.push(list);
            labels.names.push(node.name.clone());
        }
        labels.columns = by_key.into_iter().map(|(key, (column, _))| (key.into(), column)).collect();
        labels
    }

    fn requirement<'a>(&'a self, requirement: &Requirement) -> Check<'a> {
        let Some(column) = self.columns.get(&requirement.key) else {
            return Check { of_leaf: &[], met: vec![requirement.matches_value(None)] };
        };
        let values = column.values.iter().map(|v| requirement.matches_value(Some(v)));
        Check {
            of_leaf: &column.of_leaf,
            met: std::iter::once(requirement.matches_value(None)).chain(values).collect(),
        }
    }

    fn term<'a>(&'a self, term: &SelectorTerm) -> Term<'a> {
        let fields = SelectorTerm { match_expressions: Vec::new(), match_fields: term.match_fields.clone() };
        Term {
            empty: term.is_empty(),
            checks: term.match_expressions.iter().map(|r| self.requirement(r)).collect(),
            fields: (!fields.is_empty()).then_some(fields),
            names: &self.names,
        }
    }

    fn pair<'a>(&'a self, key: &str, value: &str) -> Check<'a> {
        let Some(column) = self.columns.get(key) else { return Check { of_leaf: &[], met: vec![false] } };
        let met = std::iter::once(false).chain(column.values.iter().map(|v| **v == *value)).collect();
        Check { of_leaf: &column.of_leaf, met }
    }
}

/// Whether the values of one label will do.
struct Check<'a> {
    of_leaf: &'a [u32],
    /// By number of the value.
    met: Vec<bool>,
}

impl Check<'_> {
    fn is_met(&self, leaf: usize) -> bool {
        let number = self.of_leaf.get(leaf).copied().unwrap_or(ABSENT);
        self.met.get(number as usize).copied().unwrap_or(false)
    }
}

/// A selector term over leaves.
struct Term<'a> {
    empty: bool,
    checks: Vec<Check<'a>>,
    fields: Option<SelectorTerm>,
    names: &'a [Box<str>],
}

impl Term<'_> {
    fn is_met(&self, leaf: usize) -> bool {
        let name = || self.names.get(leaf).map(|n| &**n);
        !self.empty
            && self.checks.iter().all(|check| check.is_met(leaf))
            && self.fields.as_ref().is_none_or(|fields| fields.matches(&Labels::new(), name()))
    }
}

/// Why a leaf takes no pod.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusal {
    /// By the number of the list of taints.
    Taint(u32),
    Selector,
    Affinity,
}

/// What one pod accepts among the leaves of a tree.
pub(crate) struct Filter<'a> {
    taints_of_leaf: &'a [u32],
    /// By list of taints: the first one that is not tolerated.
    untolerated: Vec<Option<&'a Taint>>,
    selector: Vec<Check<'a>>,
    required: Option<Vec<Term<'a>>>,
    preferred: Vec<(i64, Term<'a>)>,
}

impl<'a> Filter<'a> {
    /// The filter of a pod with this node selector and these tolerations besides its own. Preferences are looked at if
    /// `preferences` says so.
    pub(crate) fn new(
        leaves: &'a LeafLabels,
        pod: &PodSpec,
        selector: &Labels,
        tolerations: &[&[Toleration]],
        preferences: bool,
    ) -> Self {
        let required = |affinity: &NodeAffinity| {
            affinity.required.as_ref().map(|terms| terms.iter().map(|t| leaves.term(t)).collect::<Vec<_>>())
        };
        let preferred = pod.node_affinity.iter().filter(|_| preferences).flat_map(|a| &a.preferred);
        Self {
            taints_of_leaf: &leaves.taints_of_leaf,
            untolerated: leaves.taint_lists.iter().map(|list| first_untolerated(list, tolerations)).collect(),
            selector: selector.iter().map(|(key, value)| leaves.pair(key, value)).collect(),
            required: pod.node_affinity.as_ref().and_then(required),
            preferred: preferred.map(|p| (i64::from(p.weight), leaves.term(&p.term))).collect(),
        }
    }

    fn refusal(&self, leaf: usize) -> Option<Refusal> {
        let list = self.taints_of_leaf.get(leaf).copied().unwrap_or_default();
        if self.untolerated.get(list as usize).is_some_and(Option::is_some) {
            return Some(Refusal::Taint(list));
        }
        if !self.selector.iter().all(|check| check.is_met(leaf)) {
            return Some(Refusal::Selector);
        }
        if self.required.as_ref().is_some_and(|terms| !terms.iter().any(|term| term.is_met(leaf))) {
            return Some(Refusal::Affinity);
        }
        None
    }

    /// Whether the leaf may take the pod; if not, why not is counted.
    pub(crate) fn accepts(&self, leaf: usize, excluded: &mut Exclusions) -> bool {
        let count = match self.refusal(leaf) {
            None => return true,
            Some(Refusal::Selector) => &mut excluded.node_selector,
            Some(Refusal::Affinity) => &mut excluded.affinity,
            Some(Refusal::Taint(list)) => {
                let Some(taint) = self.untolerated.get(list as usize).copied().flatten() else { return true };
                let known = excluded.taints.iter().position(|(t, _)| t == taint);
                let Some((_, count)) = known.and_then(|known| excluded.taints.get_mut(known)) else {
                    excluded.taints.push((taint.clone(), 1));
                    return false;
                };
                count
            }
        };
        *count = count.saturating_add(1);
        false
    }

    /// The weights of the preferences that the leaf meets.
    pub(crate) fn score(&self, leaf: usize) -> i64 {
        let met = self.preferred.iter().filter(|(_, term)| term.is_met(leaf));
        met.fold(0, |sum, (weight, _)| sum.saturating_add(*weight))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use slicegate_workload::{Operator, PreferredTerm, TaintEffect, TolerationOperator};

    use super::*;

    fn requirements() -> impl Strategy<Value = Vec<Requirement>> {
        let operator = prop::sample::select(vec![
            Operator::In,
            Operator::NotIn,
            Operator::Exists,
            Operator::DoesNotExist,
            Operator::Gt,
            Operator::Lt,
        ]);
        let values = prop::collection::vec("[0-3]", 0..3);
        prop::collection::vec(("[abc]", operator, values), 0..3).prop_map(|all| {
            let requirement = |(key, operator, values): (String, _, Vec<String>)| Requirement {
                key: key.into(),
                operator,
                values: values.into_iter().map(Into::into).collect(),
            };
            all.into_iter().map(requirement).collect()
        })
    }

    fn terms() -> impl Strategy<Value = Vec<SelectorTerm>> {
        let name = prop::option::of("n[0-3]");
        prop::collection::vec((requirements(), name), 0..3).prop_map(|terms| {
            let term = |(match_expressions, name): (_, Option<String>)| SelectorTerm {
                match_expressions,
                match_fields: name
                    .map(|n| Requirement {
                        key: "metadata.name".into(),
                        operator: Operator::In,
                        values: vec![n.into()],
                    })
                    .into_iter()
                    .collect(),
            };
            terms.into_iter().map(term).collect()
        })
    }

    proptest! {
        #[test]
        fn columns_match_as_labels_do(
            labels in prop::collection::vec(prop::collection::btree_map("[abc]", "[0-3]", 0..3), 1..5),
            selector in prop::collection::btree_map("[ab]", "[0-3]", 0..2),
            required in prop::option::of(terms()),
            preferred in terms(),
        ) {
            let node = |(i, labels): (usize, BTreeMap<String, String>)| Node {
                name: format!("n{i}").into(),
                labels: labels.into_iter().map(|(k, v)| (k.into(), v.into())).collect(),
                ..Node::default()
            };
            let nodes: Vec<Node> = labels.into_iter().enumerate().map(node).collect();
            let preferred = preferred.into_iter().map(|term| PreferredTerm { weight: 7, term }).collect();
            let affinity = NodeAffinity { required, preferred };
            let pod = PodSpec {
                node_selector: selector.into_iter().map(|(k, v)| (k.into(), v.into())).collect(),
                node_affinity: Some(affinity.clone()),
                ..PodSpec::default()
            };
            let leaves = LeafLabels::new(nodes.iter());
            let filter = Filter::new(&leaves, &pod, &pod.node_selector, &[], true);
            for (leaf, node) in nodes.iter().enumerate() {
                let accepts = filter.accepts(leaf, &mut Exclusions::default());
                prop_assert_eq!(accepts, pod.accepts_node(&node.labels, Some(&node.name)));
                prop_assert_eq!(filter.score(leaf), affinity.preferred_score(&node.labels, Some(&node.name)));
            }
        }
    }

    #[test]
    fn the_first_reason_counts() {
        let taint = Taint { key: "k".into(), value: "v".into(), effect: TaintEffect::NoSchedule };
        let tainted = Node { taints: vec![taint.clone()], ..Node::default() };
        let nodes = [tainted.clone(), Node::default(), tainted];
        let leaves = LeafLabels::new(nodes.iter());
        let selector = [("a".into(), "b".into())].into();
        let mut excluded = Exclusions::default();
        let filter = Filter::new(&leaves, &PodSpec::default(), &selector, &[], false);
        assert!((0..3).all(|leaf| !filter.accepts(leaf, &mut excluded)));
        assert_eq!((excluded.taints.as_slice(), excluded.node_selector), ([(taint, 2)].as_slice(), 1));
        let all = [Toleration { operator: TolerationOperator::Exists, ..Toleration::default() }];
        let filter = Filter::new(&leaves, &PodSpec::default(), &Labels::new(), &[&[], &all], false);
        assert!((0..3).all(|leaf| filter.accepts(leaf, &mut excluded)));
    }
}
