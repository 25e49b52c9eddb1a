//! Which pod of a pod set goes into which domain of its topology assignment.

use std::collections::BTreeMap;

use slicegate_api::Pod;
use slicegate_workload::TopologyAssignment;

use crate::jobs::{annotation, label};
use crate::keys;
use crate::pods::{has_gate, selected};

/// How the pods of a pod set are ranked: the pod of rank `r` gets the `r`-th place of the assignment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ranks<'a> {
    /// The label with the index of a pod.
    pub(crate) index: &'a str,
    /// The label with the index of the sub-group of a pod, and how many sub-groups there are: each has as many pods.
    pub(crate) sub_groups: Option<(&'a str, i32)>,
    /// What the index of the first pod is.
    pub(crate) offset: i32,
}

/// Pods that wait at the gate, with the domains they are to go to, both by position. A domain never gets more pods than the
/// assignment says, those that are there included.
///
/// Pods go by rank if each has one of its own and those that passed the gate are where their ranks say; else domains are
/// filled one after another.
pub(crate) fn places(assignment: &TopologyAssignment, pods: &[&Pod], ranks: Option<Ranks<'_>>) -> Vec<(usize, usize)> {
    let domains: BTreeMap<Vec<&str>, usize> =
        assignment.domains.iter().enumerate().map(|(i, d)| (d.values.iter().map(|v| &**v).collect(), i)).collect();
    // The domain that the selectors of a pod name; a pod that is elsewhere takes no place of any.
    let domain_of = |pod: &Pod| {
        let values: Option<Vec<&str>> = assignment.levels.iter().map(|level| selected(pod, level)).collect();
        values.and_then(|values| domains.get(&values).copied()).unwrap_or(usize::MAX)
    };
    let there: Vec<Option<usize>> =
        pods.iter().map(|pod| (!has_gate(pod, keys::TOPOLOGY_GATE)).then(|| domain_of(pod))).collect();
    ranks.and_then(|ranks| by_rank(assignment, pods, &there, ranks)).unwrap_or_else(|| greedy(assignment, &there))
}

fn by_rank(
    assignment: &TopologyAssignment,
    pods: &[&Pod],
    there: &[Option<usize>],
    ranks: Ranks<'_>,
) -> Option<Vec<(usize, usize)>> {
    let total = total(assignment);
    let mut taken: BTreeMap<i32, usize> = BTreeMap::new();
    for (i, pod) in pods.iter().enumerate() {
        let rank = ranks.of(pod, total)?;
        if taken.insert(rank, i).is_some() {
            return None;
        }
    }
    let mut result = Vec::new();
    let mut begin = 0_i32;
    for (number, domain) in assignment.domains.iter().enumerate() {
        let end = begin.saturating_add(domain.count.max(0));
        for (_, &pod) in taken.range(begin..end) {
            match there.get(pod).copied().flatten() {
                None => result.push((pod, number)),
                Some(at) if at != number => return None,
                Some(_) => {}
            }
        }
        begin = end;
    }
    Some(result)
}

fn total(assignment: &TopologyAssignment) -> i32 {
    assignment.domains.iter().fold(0_i32, |sum, d| sum.saturating_add(d.count.max(0)))
}

fn greedy(assignment: &TopologyAssignment, there: &[Option<usize>]) -> Vec<(usize, usize)> {
    let mut held = vec![0_i32; assignment.domains.len()];
    for &domain in there.iter().flatten() {
        if let Some(count) = held.get_mut(domain) {
            *count = count.saturating_add(1);
        }
    }
    let mut waiting = there.iter().enumerate().filter(|(_, domain)| domain.is_none()).map(|(pod, _)| pod);
    let mut result = Vec::new();
    for (number, (domain, held)) in assignment.domains.iter().zip(held).enumerate() {
        for _ in held..domain.count {
            let Some(pod) = waiting.next() else { return result };
            result.push((pod, number));
        }
    }
    result
}

impl Ranks<'_> {
    /// The rank of a pod among `total`; `None` if it has none.
    fn of(self, pod: &Pod, total: i32) -> Option<i32> {
        let number = |key: &str| label(&pod.metadata, key)?.parse::<i32>().ok().filter(|n| *n >= 0);
        let index = number(self.index)?;
        let own = annotation(&pod.metadata, keys::POD_INDEX_OFFSET).and_then(|v| v.parse::<i32>().ok()).unwrap_or(0);
        let index = index.checked_sub(self.offset)?.checked_sub(own)?;
        let rank = match self.sub_groups {
            None => index,
            Some((key, groups)) => {
                let size = total.checked_div(groups)?;
                let group = number(key)?;
                if index >= size || group >= groups {
                    return None;
                }
                group.checked_mul(size)?.checked_add(index)?
            }
        };
        (0..total).contains(&rank).then_some(rank)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use slicegate_workload::TopologyDomain;

    use super::*;

    const INDEX: &str = "batch.kubernetes.io/job-completion-index";
    const GROUP: &str = "jobset.sigs.k8s.io/job-index";

    fn assignment(domains: &[(&str, i32)]) -> TopologyAssignment {
        TopologyAssignment {
            levels: vec!["rack".into()],
            domains: domains
                .iter()
                .map(|(r, count)| TopologyDomain { values: vec![(*r).into()], count: *count })
                .collect(),
        }
    }

    /// A pod of an index and a sub-group, either in a rack or at the gate.
    fn pod(index: &str, group: &str, rack: Option<&str>) -> Pod {
        let gates = if rack.is_none() { json!([{"name": "kueue.x-k8s.io/topology"}]) } else { json!([]) };
        let mut selector = json!({});
        if let Some(rack) = rack {
            selector["rack"] = rack.into();
        }
        serde_json::from_value(json!({"metadata": {"labels": {INDEX: index, GROUP: group}},
            "spec": {"containers": [], "schedulingGates": gates, "nodeSelector": selector}}))
        .unwrap()
    }

    fn placed(domains: &[(&str, i32)], pods: &[Pod], ranks: Option<Ranks<'_>>) -> Vec<(usize, usize)> {
        places(&assignment(domains), &pods.iter().collect::<Vec<_>>(), ranks)
    }

    const BY_INDEX: Option<Ranks<'static>> = Some(Ranks { index: INDEX, sub_groups: None, offset: 0 });

    #[test]
    fn pods_go_by_rank() {
        let pods = [pod("2", "", None), pod("0", "", None), pod("1", "", None)];
        assert_eq!(placed(&[("a", 1), ("b", 2)], &pods, BY_INDEX), [(1, 0), (2, 1), (0, 1)]);
        assert_eq!(placed(&[("a", 1), ("b", 2)], &pods, None), [(0, 0), (1, 1), (2, 1)]);
    }

    #[test]
    fn a_late_pod_gets_the_place_of_its_rank() {
        let pods = [pod("0", "", Some("a")), pod("3", "", None)];
        assert_eq!(placed(&[("a", 2), ("b", 2)], &pods, BY_INDEX), [(1, 1)]);
    }

    #[test]
    fn sub_groups_lie_one_behind_the_other() {
        let ranks = Some(Ranks { index: INDEX, sub_groups: Some((GROUP, 2)), offset: 0 });
        let pods = [pod("0", "1", None), pod("1", "0", None), pod("1", "1", None), pod("0", "0", None)];
        assert_eq!(placed(&[("a", 3), ("b", 1)], &pods, ranks), [(3, 0), (1, 0), (0, 0), (2, 1)]);
    }

    #[test]
    fn offsets_are_taken_away() {
        let ranks = Some(Ranks { index: INDEX, sub_groups: None, offset: 1 });
        assert_eq!(placed(&[("a", 1), ("b", 1)], &[pod("2", "", None), pod("1", "", None)], ranks), [(1, 0), (0, 1)]);
        let mut own = [pod("5", "", None), pod("4", "", None)];
        for pod in &mut own {
            let annotations = pod.metadata.annotations.get_or_insert_default();
            annotations.insert(keys::POD_INDEX_OFFSET.to_owned(), "4".to_owned());
        }
        assert_eq!(placed(&[("a", 1), ("b", 1)], &own, BY_INDEX), [(1, 0), (0, 1)]);
    }

    #[test]
    fn without_good_ranks_domains_are_filled_in_order() {
        let domains = [("a", 1), ("b", 2)];
        // Twice the same, out of range, no number, negative.
        for second in ["0", "3", "x", "-1"] {
            let pods = [pod("0", "", None), pod(second, "", None)];
            assert_eq!(placed(&domains, &pods, BY_INDEX), [(0, 0), (1, 1)], "0 and {second}");
        }
        // A pod that runs is not where its rank says.
        let pods = [pod("0", "", Some("b")), pod("1", "", None), pod("2", "", None)];
        assert_eq!(placed(&domains, &pods, BY_INDEX), [(1, 0), (2, 1)]);
    }

    #[test]
    fn no_domain_gets_more_pods_than_it_has_places() {
        let pods = [pod("", "", Some("a")), pod("", "", Some("a")), pod("", "", Some("elsewhere")), pod("", "", None)];
        assert_eq!(placed(&[("a", 1)], &pods, None), []);
        assert_eq!(placed(&[], &pods, BY_INDEX), []);
        assert_eq!(placed(&[("a", -3), ("b", 1)], &pods, None), [(3, 1)]);
        let ranks = Some(Ranks { index: INDEX, sub_groups: Some((GROUP, 0)), offset: i32::MIN });
        assert_eq!(placed(&[("b", 2)], &[pod("1", "0", None)], ranks), [(0, 0)]);
    }
}
