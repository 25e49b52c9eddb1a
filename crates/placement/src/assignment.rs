//! Assignments as sets of domains: merging, cutting down, comparing.

use std::collections::BTreeMap;

use slicegate_workload::{Admission, PodSetAssignment, TopologyAssignment, TopologyDomain};

use crate::HOSTNAME_LABEL;

type Values = Vec<Box<str>>;

/// The pods of two assignments over the same levels together, domains in order of their values.
#[must_use]
pub fn merge(a: &TopologyAssignment, b: &TopologyAssignment) -> TopologyAssignment {
    let mut counts: BTreeMap<&Values, i32> = BTreeMap::new();
    for domain in a.domains.iter().chain(&b.domains) {
        let count = counts.entry(&domain.values).or_default();
        *count = count.saturating_add(domain.count);
    }
    let domain = |(values, count): (&Values, i32)| TopologyDomain { values: values.clone(), count };
    TopologyAssignment { levels: a.levels.clone(), domains: counts.into_iter().map(domain).collect() }
}

/// The first `count` pods of an assignment, in the order of its domains.
#[must_use]
pub fn truncate(assignment: &TopologyAssignment, count: i32) -> TopologyAssignment {
    let mut left = count.max(0);
    let mut domains = Vec::new();
    for domain in &assignment.domains {
        let taken = domain.count.min(left);
        if taken <= 0 {
            continue;
        }
        domains.push(TopologyDomain { values: domain.values.clone(), count: taken });
        left = left.saturating_sub(taken);
    }
    TopologyAssignment { levels: assignment.levels.clone(), domains }
}

/// The pods of an assignment beyond those that an older one has in the same domains.
#[must_use]
pub fn additional(new: &TopologyAssignment, old: &TopologyAssignment) -> TopologyAssignment {
    let held: BTreeMap<&Values, i32> = old.domains.iter().map(|d| (&d.values, d.count)).collect();
    let more = |domain: &TopologyDomain| {
        let count = domain.count.saturating_sub(held.get(&domain.values).copied().unwrap_or(0));
        (count > 0).then(|| TopologyDomain { values: domain.values.clone(), count })
    };
    TopologyAssignment { levels: new.levels.clone(), domains: new.domains.iter().filter_map(more).collect() }
}

/// How many pods an assignment places.
pub fn pod_count(assignment: &TopologyAssignment) -> i32 {
    assignment.domains.iter().fold(0_i32, |sum, d| sum.saturating_add(d.count))
}

/// Whether pods of the assignment run on the node. Known only if the lowest level is the hostname.
pub fn assignment_uses_node(assignment: &TopologyAssignment, node: &str) -> bool {
    assignment.levels.last().is_some_and(|level| **level == *HOSTNAME_LABEL)
        && assignment.domains.iter().any(|d| d.count > 0 && d.values.last().is_some_and(|host| **host == *node))
}

/// Whether pods of the pod set run on the node, as far as its topology assignment tells.
pub fn pod_set_uses_node(pod_set: &PodSetAssignment, node: &str) -> bool {
    pod_set.topology_assignment.as_ref().is_some_and(|a| assignment_uses_node(a, node))
}

/// Whether pods of the workload run on the node, as far as its topology assignments tell.
pub fn admission_uses_node(admission: &Admission, node: &str) -> bool {
    admission.pod_set_assignments.iter().any(|p| pod_set_uses_node(p, node))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assignment(domains: &[(&str, i32)]) -> TopologyAssignment {
        let domain = |&(host, count): &(&str, i32)| TopologyDomain { values: vec![host.into()], count };
        TopologyAssignment { levels: vec![HOSTNAME_LABEL.into()], domains: domains.iter().map(domain).collect() }
    }

    #[test]
    fn merging_adds_pods_of_the_same_domain_and_orders() {
        let (a, b) = (assignment(&[("x3", 1), ("x1", 2)]), assignment(&[("x2", 1), ("x3", 4)]));
        assert_eq!(merge(&a, &b), assignment(&[("x1", 2), ("x2", 1), ("x3", 5)]));
    }

    #[test]
    fn truncating_takes_from_the_end() {
        let all = assignment(&[("z", 3), ("a", 0), ("b", 2)]);
        assert_eq!(truncate(&all, 2), assignment(&[("z", 2)]));
        assert_eq!(truncate(&all, 4), assignment(&[("z", 3), ("b", 1)]));
        assert_eq!(truncate(&all, -1), assignment(&[]));
        assert_eq!(pod_count(&all), 5);
    }

    #[test]
    fn additional_pods_are_those_that_are_not_held() {
        let (new, old) = (assignment(&[("a", 3), ("b", 1), ("c", 2)]), assignment(&[("a", 1), ("b", 5)]));
        assert_eq!(additional(&new, &old), assignment(&[("a", 2), ("c", 2)]));
    }

    #[test]
    fn a_node_is_used_if_pods_are_on_it_by_hostname() {
        let mut a = assignment(&[("n1", 1), ("n2", 0)]);
        assert!(assignment_uses_node(&a, "n1"));
        assert!(!assignment_uses_node(&a, "n2"));
        a.levels = vec!["rack".into()];
        assert!(!assignment_uses_node(&a, "n1"));
    }
}
