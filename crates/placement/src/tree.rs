//! The shape of a topology: domains in flat arrays.

use std::cmp::Ordering;
use std::ops::Range;

use slicegate_workload::{FlavorSpec, TopologyAssignment, TopologyRequest, TopologySpec};

use crate::Node;

/// The label whose value tells one node from another. As the lowest level of a topology it makes every node a leaf.
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// The number of something as an index into flat arrays.
pub(crate) fn index(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

/// A node of a tree.
struct Member<'a> {
    /// Its index into the nodes the tree is made of.
    node: usize,
    name: &'a str,
    /// Its values, a level each.
    values: Vec<&'a str>,
}

impl<'a> Member<'a> {
    fn new(index: usize, node: &'a Node, levels: &[Box<str>]) -> Self {
        let values = levels.iter().map(|level| node.labels.get(level).map_or("", |v| v)).collect();
        Self { node: index, name: &node.name, values }
    }
}

/// The values of a leaf: those of its first node.
fn values_of<'m, 'a>(members: &'m [Member<'a>]) -> &'m [&'a str] {
    members.first().map_or(&[], |m| &m.values)
}

/// The domains of one flavor's topology.
///
/// A topology has levels, coarsest first. A domain is a value of a level within a domain of the level above; the domains of
/// the last level are leaves and hold the capacity of their nodes. Domains are numbered level by level, and within a level in
/// the order of their values from the top, so the children of a domain, and the leaves below it, are neighbours.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    name: Box<str>,
    levels: Vec<Box<str>>,
    /// Where each level begins, and where the last ends.
    offsets: Vec<u32>,
    /// The value of each domain.
    values: Vec<Box<str>>,
    /// The domain above; its own number for the first level.
    parents: Vec<u32>,
    /// Where the children of each domain begin; those of the next domain follow.
    first_child: Vec<u32>,
    /// Leaves in order of their value alone; only if the lowest level is the hostname.
    by_host: Vec<u32>,
    /// Names of nodes, their leaves, and their indices into the nodes the tree was made of, in order of the names.
    by_node: Vec<(Box<str>, u32, usize)>,
    /// The node whose labels and taints stand for the leaf, as an index into the nodes the tree was made of.
    representatives: Vec<usize>,
}

impl Tree {
    /// The tree of the nodes that are of the flavor and available. Other nodes are left out.
    ///
    /// Nodes with the same values share a leaf. If the lowest level is the hostname, leaves are told apart by it alone, and
    /// the node that comes first by name gives the leaf its place in the tree. The order of `nodes` does not matter.
    pub fn new(flavor: &FlavorSpec, topology: &TopologySpec, nodes: &[Node]) -> Self {
        let levels = &topology.levels;
        let by_hostname = levels.last().is_some_and(|level| **level == *HOSTNAME_LABEL);
        let in_tree = |(_, n): &(usize, &Node)| !levels.is_empty() && n.is_available() && n.is_of(flavor, topology);
        let mut members: Vec<Member<'_>> =
            nodes.iter().enumerate().filter(in_tree).map(|(i, n)| Member::new(i, n, levels)).collect();
        // Nodes by what tells leaves apart, those of a leaf in order of their names.
        let from = if by_hostname { levels.len().saturating_sub(1) } else { 0 };
        members.sort_by(|a, b| (a.values.get(from..), a.name).cmp(&(b.values.get(from..), b.name)));
        let same_leaf = |a: &Member<'_>, b: &Member<'_>| a.values.get(from..) == b.values.get(from..);
        let mut leaves: Vec<&[Member<'_>]> = members.chunk_by(same_leaf).collect();
        leaves.sort_by_key(|members| values_of(members));

        let mut tree = Self { name: topology.name.clone(), levels: levels.clone(), ..Self::default() };
        tree.lay_out(&leaves);
        for (leaf, members) in leaves.iter().enumerate() {
            tree.by_node.extend(members.iter().map(|m| (m.name.into(), index(leaf), m.node)));
            tree.representatives.extend(members.first().map(|m| m.node));
        }
        tree.by_node.sort();
        if by_hostname {
            let first = tree.leaf_offset();
            tree.by_host = (0..index(leaves.len())).collect();
            let values = &tree.values;
            tree.by_host.sort_by_key(|&leaf| &values[first.saturating_add(leaf as usize)]);
        }
        tree
    }

    /// Numbers the domains above the leaves, which come in order of their values.
    fn lay_out(&mut self, leaves: &[&[Member<'_>]]) {
        self.offsets.push(0);
        let mut above: Vec<u32> = Vec::new();
        for level in 0..self.levels.len() {
            let begin = index(self.values.len());
            let mut owners = Vec::with_capacity(leaves.len());
            for (position, members) in leaves.iter().enumerate() {
                let values = values_of(members);
                let before = position.checked_sub(1).and_then(|p| leaves.get(p)).map_or(&[][..], |m| values_of(m));
                let same = before.get(..=level).is_some_and(|begin| values.get(..=level) == Some(begin));
                if !same {
                    let parent = above.get(position).copied().unwrap_or(index(self.values.len()));
                    self.values.push(values.get(level).copied().unwrap_or_default().into());
                    self.parents.push(parent);
                }
                owners.push(index(self.values.len().saturating_sub(1)));
            }
            above = owners;
            let end = index(self.values.len());
            if level > 0 {
                let mut child = begin;
                for domain in self.first_child.len()..begin as usize {
                    while child < end && (self.parents[child as usize] as usize) < domain {
                        child = child.saturating_add(1);
                    }
                    self.first_child.push(child);
                }
            }
            self.offsets.push(end);
        }
        self.first_child.resize(self.values.len().saturating_add(1), index(self.values.len()));
    }

    /// The name of the topology.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The node labels, coarsest first.
    pub fn levels(&self) -> &[Box<str>] {
        &self.levels
    }

    /// The position of a level.
    pub fn level(&self, label: &str) -> Option<usize> {
        self.levels.iter().position(|level| **level == *label)
    }

    /// Whether each node is a leaf of its own: the lowest level is the hostname.
    pub fn has_host_leaves(&self) -> bool {
        self.levels.last().is_some_and(|level| **level == *HOSTNAME_LABEL)
    }

    /// Whether the topology has every level that a pod set asks for. Asking for no level and no freedom is not served.
    pub fn supports(&self, request: &TopologyRequest) -> bool {
        let single = [&request.required, &request.preferred, &request.slice_required_topology];
        let named = single.into_iter().flatten().chain(request.slice_constraints.iter().map(|c| &c.topology));
        let mut asks = request.unconstrained == Some(true);
        for level in named {
            if self.level(level).is_none() {
                return false;
            }
            asks = true;
        }
        asks
    }

    /// How many leaves there are.
    pub fn leaf_count(&self) -> usize {
        self.values.len().saturating_sub(self.leaf_offset())
    }

    /// The labels of a leaf's place: a value a level, coarsest first. Empty if there is no such leaf.
    pub fn leaf_values(&self, leaf: u32) -> Vec<&str> {
        let domain = self.leaf_domain(leaf);
        if (domain as usize) < self.values.len() { self.path(domain) } else { Vec::new() }
    }

    /// The leaf that an assignment names: by hostname if the topology ends there, else by all values.
    pub fn find_leaf<V: AsRef<str>>(&self, values: &[V]) -> Option<u32> {
        if self.has_host_leaves() {
            let [host] = values else { return None };
            let first = self.leaf_offset();
            let value = |leaf: &u32| &*self.values[first.saturating_add(*leaf as usize)];
            let found = self.by_host.binary_search_by(|leaf| value(leaf).cmp(host.as_ref())).ok()?;
            return self.by_host.get(found).copied();
        }
        if values.len() != self.levels.len() {
            return None;
        }
        self.find_domain(values).map(|d| self.leaf_of(d))
    }

    /// The domain with these values from the top.
    pub(crate) fn find_domain<V: AsRef<str>>(&self, values: &[V]) -> Option<u32> {
        let mut range = self.level_range(0);
        let mut domain = None;
        for value in values {
            let siblings = self.values.get(range.start as usize..range.end as usize)?;
            let found = siblings.binary_search_by(|v| (**v).cmp(value.as_ref())).ok()?;
            let found = range.start.saturating_add(index(found));
            domain = Some(found);
            range = self.children(found);
        }
        domain
    }

    /// The leaf that a node belongs to.
    pub fn leaf_of_node(&self, node: &str) -> Option<u32> {
        let found = self.by_node.binary_search_by(|(name, ..)| (**name).cmp(node)).ok()?;
        self.by_node.get(found).map(|&(_, leaf, _)| leaf)
    }

    /// The values of the first domain of an assignment that is no longer there; `None` if all are.
    pub fn stale_domain<'a>(&self, assignment: &'a TopologyAssignment) -> Option<&'a [Box<str>]> {
        assignment.domains.iter().map(|d| d.values.as_slice()).find(|values| self.find_leaf(values).is_none())
    }

    // ----- numbers of domains ----------------------------------------------------------------------------------------

    pub(crate) fn domain_count(&self) -> usize {
        self.values.len()
    }

    /// The last level; 0 in a tree without levels.
    pub(crate) fn lowest(&self) -> usize {
        self.levels.len().saturating_sub(1)
    }

    pub(crate) fn level_range(&self, level: usize) -> Range<u32> {
        let at = |i: usize| self.offsets.get(i).copied().unwrap_or_else(|| index(self.values.len()));
        at(level)..at(level.saturating_add(1))
    }

    pub(crate) fn children(&self, domain: u32) -> Range<u32> {
        let at = |i: u32| self.first_child.get(i as usize).copied().unwrap_or_default();
        at(domain)..at(domain.saturating_add(1))
    }

    pub(crate) fn parent(&self, domain: u32) -> u32 {
        self.parents.get(domain as usize).copied().unwrap_or(domain)
    }

    /// The domain above a domain of a level (or itself) at a level not below it.
    pub(crate) fn ancestor(&self, mut domain: u32, from: usize, to: usize) -> u32 {
        for _ in to..from {
            domain = self.parent(domain);
        }
        domain
    }

    /// The first leaf's number as a domain.
    pub(crate) fn leaf_offset(&self) -> usize {
        self.level_range(self.lowest()).start as usize
    }

    pub(crate) fn leaf_of(&self, domain: u32) -> u32 {
        domain.saturating_sub(index(self.leaf_offset()))
    }

    pub(crate) fn leaf_domain(&self, leaf: u32) -> u32 {
        leaf.saturating_add(index(self.leaf_offset()))
    }

    /// The domains of a deeper level below a run of neighbours of one level.
    pub(crate) fn below(&self, mut run: Range<u32>, levels: usize) -> Range<u32> {
        for _ in 0..levels {
            let at = |i: u32| self.first_child.get(i as usize).copied().unwrap_or_default();
            run = at(run.start)..at(run.end);
        }
        run
    }

    /// The nodes that stand for the leaves, by index into the nodes the tree was made of.
    pub(crate) fn representatives(&self) -> &[usize] {
        &self.representatives
    }

    /// The nodes, by index into the nodes the tree was made of, and their leaves.
    pub(crate) fn members(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        self.by_node.iter().map(|&(_, leaf, node)| (node, leaf))
    }

    fn path(&self, domain: u32) -> Vec<&str> {
        let mut values: Vec<&str> = Vec::with_capacity(self.levels.len());
        let mut domain = domain;
        for _ in 0..self.levels.len() {
            values.push(&self.values[domain as usize]);
            domain = self.parent(domain);
        }
        values.reverse();
        values
    }

    /// What an assignment calls a leaf: the hostname if the topology ends there, else all values.
    pub(crate) fn assignment_values(&self, domain: u32) -> Vec<Box<str>> {
        if self.has_host_leaves() {
            return vec![self.values[domain as usize].clone()];
        }
        self.path(domain).into_iter().map(Into::into).collect()
    }

    /// The levels that assignments name.
    pub(crate) fn assignment_levels(&self) -> Vec<Box<str>> {
        let from = if self.has_host_leaves() { self.lowest() } else { 0 };
        self.levels.iter().skip(from).cloned().collect()
    }
}

/// The order of domains: by their values, coarsest level first.
pub fn compare_domains<V: AsRef<str>>(a: &[V], b: &[V]) -> Ordering {
    a.iter().map(AsRef::as_ref).cmp(b.iter().map(AsRef::as_ref))
}

/// Whether a domain is another or lies in it; both are given by their values from the top. Everything lies in the domain
/// without values.
pub fn is_within<V: AsRef<str>>(domain: &[V], outer: &[V]) -> bool {
    outer.len() <= domain.len() && domain.iter().zip(outer).all(|(a, b)| a.as_ref() == b.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: &str = "block";
    const RACK: &str = "rack";

    fn node(name: &str, labels: &[(&str, &str)]) -> Node {
        let labels = labels.iter().map(|&(k, v)| (k.into(), v.into())).collect();
        Node { name: name.into(), labels, ready: true, ..Node::default() }
    }

    fn host(name: &str, block: &str, rack: &str) -> Node {
        node(name, &[(BLOCK, block), (RACK, rack), (HOSTNAME_LABEL, name)])
    }

    fn tree(levels: &[&str], nodes: &[Node]) -> Tree {
        let topology = TopologySpec { name: "t".into(), levels: levels.iter().map(|&l| l.into()).collect() };
        Tree::new(&FlavorSpec::default(), &topology, nodes)
    }

    #[test]
    fn children_are_neighbours_in_order_of_their_values() {
        let nodes = [host("h3", "b2", "r1"), host("h1", "b1", "r2"), host("h2", "b1", "r1"), host("h0", "b1", "r2")];
        let t = tree(&[BLOCK, RACK, HOSTNAME_LABEL], &nodes);
        assert_eq!(t.level_range(0), 0..2);
        assert_eq!(t.level_range(1), 2..5);
        assert_eq!(t.level_range(2), 5..9);
        assert_eq!(t.children(0), 2..4);
        assert_eq!(t.children(1), 4..5);
        assert_eq!(t.children(3), 6..8);
        assert_eq!(t.children(4), 8..9);
        assert_eq!(t.children(8), 9..9);
        assert_eq!(t.below(0..1, 2), 5..8);
        assert_eq!(t.leaf_values(1), ["b1", "r2", "h0"]);
        assert_eq!(t.ancestor(7, 2, 0), 0);
        assert_eq!(t.leaf_of_node("h3"), Some(3));
        assert_eq!(t.find_leaf(&["h1"]), Some(2));
        assert_eq!(t.find_leaf(&["b1", "r2", "h1"]), None);
    }

    #[test]
    fn the_same_rack_name_in_two_blocks_is_two_racks() {
        let nodes = [node("a", &[(BLOCK, "b1"), (RACK, "r")]), node("b", &[(BLOCK, "b2"), (RACK, "r")])];
        let t = tree(&[BLOCK, RACK], &nodes);
        assert_eq!(t.leaf_count(), 2);
        assert_eq!(t.find_leaf(&["b2", "r"]), Some(1));
        assert_eq!(t.find_leaf(&["b2", "x"]), None);
        assert_eq!(t.find_leaf(&["b2"]), None);
    }

    #[test]
    fn nodes_that_cannot_take_pods_are_not_in_the_tree() {
        let mut nodes = vec![host("a", "b", "r"), host("b", "b", "r"), node("c", &[(HOSTNAME_LABEL, "c")])];
        nodes[0].ready = false;
        nodes[1].unschedulable = true;
        assert_eq!(tree(&[BLOCK, HOSTNAME_LABEL], &nodes).leaf_count(), 0);
        assert_eq!(tree(&[HOSTNAME_LABEL], &nodes).leaf_count(), 1);
        assert_eq!(tree(&[], &nodes).leaf_count(), 0);
    }

    #[test]
    fn one_hostname_in_two_racks_is_one_leaf() {
        let mut nodes = vec![host("b", "b", "r2"), host("a", "b", "r1")];
        nodes[0].labels.insert(HOSTNAME_LABEL.into(), "same".into());
        nodes[1].labels.insert(HOSTNAME_LABEL.into(), "same".into());
        let t = tree(&[RACK, HOSTNAME_LABEL], &nodes);
        assert_eq!((t.leaf_count(), t.leaf_values(0)), (1, vec!["r1", "same"]));
        assert_eq!(t.representatives(), [1]);
        assert_eq!(t.leaf_of_node("b"), Some(0));
        assert_eq!(t.level_range(0), 0..1);
    }

    #[test]
    fn levels_asked_for_must_be_there() {
        let t = tree(&[BLOCK, RACK], &[]);
        let request = |required: Option<&str>| TopologyRequest {
            required: required.map(Into::into),
            unconstrained: Some(required.is_none()),
            ..TopologyRequest::default()
        };
        assert!(t.supports(&request(Some(RACK))));
        assert!(t.supports(&request(None)));
        assert!(!t.supports(&request(Some("zone"))));
        assert!(!t.supports(&TopologyRequest::default()));
    }

    #[test]
    fn a_domain_lies_in_those_that_begin_its_path() {
        assert!(is_within(&["b1", "r1"], &["b1"]));
        assert!(is_within(&["b1"], &[]));
        assert!(!is_within(&["b1", "r10"], &["b1", "r1"]));
        assert!(!is_within(&["b1"], &["b1", "r1"]));
        assert_eq!(compare_domains(&["a", "z"], &["ab", "a"]), Ordering::Less);
    }
}
