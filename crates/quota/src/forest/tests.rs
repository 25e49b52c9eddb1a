//! The forest against its definitions, written down slowly.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::Names;

const QUEUES: [&str; 5] = ["q0", "q1", "q2", "q3", "q4"];
const COHORTS: [&str; 4] = ["c0", "c1", "c2", "c3"];
const PAIRS: usize = 3;

fn pair(i: usize) -> FlavorResourceId {
    FlavorResourceId::from_index(i)
}

fn amount(n: i64) -> Amount {
    Amount::new(n)
}

fn limits(nominal: i64, borrowing: Option<i64>, lending: Option<i64>) -> Limits {
    Limits { nominal: amount(nominal), borrowing: borrowing.map(amount), lending: lending.map(amount) }
}

fn quota(parent: Option<&str>, limits: &[(usize, Limits)]) -> NodeQuota {
    NodeQuota {
        parent: parent.map(Into::into),
        limits: limits.iter().map(|&(p, l)| (pair(p), l)).collect(),
        weight: Weight::default(),
    }
}

// ----- the slow forest -------------------------------------------------------------------------------------------------

type NodeName = (NodeKind, &'static str);

/// Configuration and usage of ClusterQueues; everything else is computed on demand, from the definitions.
#[derive(Clone, Default, Debug)]
struct Slow {
    config: BTreeMap<NodeName, NodeQuota>,
    usage: BTreeMap<(NodeName, usize), Amount>,
}

impl Slow {
    fn raw_parent(&self, node: NodeName) -> Option<NodeName> {
        let parent = self.config.get(&node)?.parent.as_deref()?;
        COHORTS.into_iter().find(|c| *c == parent).map(|c| (NodeKind::Cohort, c))
    }

    fn nodes(&self) -> BTreeSet<NodeName> {
        let named = self.config.keys().filter_map(|&n| self.raw_parent(n));
        self.config.keys().copied().chain(named).collect()
    }

    fn is_cyclic(&self, node: NodeName) -> bool {
        let mut seen = BTreeSet::new();
        let mut at = Some(node);
        while let Some(n) = at {
            if !seen.insert(n) {
                return true;
            }
            at = self.raw_parent(n);
        }
        false
    }

    fn parent(&self, node: NodeName) -> Option<NodeName> {
        self.raw_parent(node).filter(|_| !self.is_cyclic(node))
    }

    fn children(&self, node: NodeName) -> Vec<NodeName> {
        self.nodes().into_iter().filter(|&n| self.parent(n) == Some(node)).collect()
    }

    fn limits(&self, node: NodeName, p: usize) -> Limits {
        self.config.get(&node).and_then(|c| c.limits.get(&pair(p))).copied().unwrap_or_default()
    }

    fn knows(&self, node: NodeName, p: usize) -> bool {
        self.config.get(&node).is_some_and(|c| c.limits.contains_key(&pair(p)))
            || self.children(node).into_iter().any(|c| self.knows(c, p))
    }

    fn subtree(&self, node: NodeName, p: usize) -> Amount {
        let lent = |c| self.subtree(c, p).minus(self.local(c, p));
        self.children(node).into_iter().map(lent).fold(self.limits(node, p).nominal, Amount::plus)
    }

    fn local(&self, node: NodeName, p: usize) -> Amount {
        self.limits(node, p).lending.map_or(Amount::ZERO, |l| self.subtree(node, p).minus(l).or_zero())
    }

    fn usage(&self, node: NodeName, p: usize) -> Amount {
        if node.0 == NodeKind::ClusterQueue {
            return self.usage.get(&(node, p)).copied().unwrap_or_default();
        }
        let over = |c| self.usage(c, p).minus(self.local(c, p)).or_zero();
        self.children(node).into_iter().map(over).fold(Amount::ZERO, Amount::plus)
    }

    fn local_available(&self, node: NodeName, p: usize) -> Amount {
        self.local(node, p).minus(self.usage(node, p)).or_zero()
    }

    fn available(&self, node: NodeName, p: usize) -> Amount {
        let Some(parent) = self.parent(node) else { return self.subtree(node, p).minus(self.usage(node, p)) };
        let mut above = self.available(parent, p);
        if let Some(limit) = self.limits(node, p).borrowing {
            let lent = self.subtree(node, p).minus(self.local(node, p));
            let over = self.usage(node, p).minus(self.local(node, p)).or_zero();
            above = above.min(lent.minus(over).plus(limit));
        }
        self.local_available(node, p).plus(above)
    }

    fn potential(&self, node: NodeName, p: usize) -> Amount {
        let Some(parent) = self.parent(node) else { return self.subtree(node, p) };
        let all = self.local(node, p).plus(self.potential(parent, p));
        match self.limits(node, p).borrowing {
            Some(limit) => all.min(self.subtree(node, p).plus(limit)),
            None => all,
        }
    }

    fn height(&self, node: NodeName) -> u32 {
        self.children(node).into_iter().map(|c| self.height(c) + 1).max().unwrap_or(0)
    }

    fn is_borrowing_with(&self, node: NodeName, p: usize, v: Amount) -> bool {
        let quota = match node.0 {
            NodeKind::ClusterQueue => self.limits(node, p).nominal,
            NodeKind::Cohort => self.subtree(node, p),
        };
        quota < self.usage(node, p).plus(v)
    }

    fn level(&self, queue: NodeName, p: usize, v: Amount) -> (u32, bool) {
        let mut rest = v;
        let mut node = queue;
        loop {
            let parent = self.parent(node);
            if !self.is_borrowing_with(node, p, rest) {
                let height = if node == queue { 0 } else { self.height(node) };
                return (height, parent.is_some());
            }
            let Some(parent) = parent else {
                return (if node == queue { 0 } else { self.height(node) }, false);
            };
            rest = rest.minus(self.local_available(node, p));
            node = parent;
        }
    }

    /// What is used beyond the quota of the subtree, in units, by flavor pair; nothing at a root.
    fn borrowed(&self, node: NodeName) -> BTreeMap<usize, i64> {
        let over = |p| self.usage(node, p).minus(self.subtree(node, p)).value();
        let pairs = (0..PAIRS).filter(|&p| self.parent(node).is_some() && self.knows(node, p));
        pairs.map(|p| (p, over(p))).filter(|&(_, over)| over > 0).collect()
    }
}

fn id_of(forest: &Forest, node: NodeName) -> Option<NodeId> {
    match node.0 {
        NodeKind::ClusterQueue => forest.cluster_queue(node.1),
        NodeKind::Cohort => forest.cohort(node.1),
    }
}

/// Three pairs: two flavors of one resource and one of another.
fn names() -> Names {
    let mut names = Names::new();
    for (flavor, resource) in [("a", "x"), ("b", "x"), ("a", "y")] {
        names.intern(flavor, resource);
    }
    names
}

/// Every answer of the forest is that of the slow one.
fn check(forest: &Forest, slow: &Slow) -> Result<(), TestCaseError> {
    let nodes: BTreeSet<NodeName> = slow.nodes();
    let got: Vec<(NodeKind, String)> = forest.nodes().map(|id| (forest.kind(id), forest.name(id).to_owned())).collect();
    let want: Vec<(NodeKind, String)> = nodes.iter().map(|&(k, n)| (k, n.to_owned())).collect();
    prop_assert_eq!(got, want, "nodes");
    let names = names();
    for &node in &nodes {
        let id = id_of(forest, node).unwrap();
        let named = |id: NodeId| (forest.kind(id), forest.name(id).to_owned());
        let owned = |n: NodeName| (n.0, n.1.to_owned());
        prop_assert_eq!(forest.is_cyclic(id), slow.is_cyclic(node), "{:?} cyclic", node);
        prop_assert_eq!(forest.parent(id).map(named), slow.parent(node).map(owned), "{:?} parent", node);
        let children: Vec<_> = forest.children(id).map(named).collect();
        prop_assert_eq!(
            children,
            slow.children(node).into_iter().map(owned).collect::<Vec<_>>(),
            "{:?} children",
            node
        );
        let mut root = node;
        while let Some(parent) = slow.parent(root) {
            root = parent;
        }
        prop_assert_eq!(named(forest.root(id)), owned(root), "{:?} root", node);
        prop_assert_eq!(forest.height(id), slow.height(node), "{:?} height", node);
        let known: Vec<usize> = forest.pairs(id).map(FlavorResourceId::index).collect();
        prop_assert_eq!(known, (0..PAIRS).filter(|&p| slow.knows(node, p)).collect::<Vec<_>>(), "{:?} pairs", node);
        for p in 0..PAIRS {
            let what = format!("{node:?} {p}");
            prop_assert_eq!(forest.limits(id, pair(p)), slow.limits(node, p), "limits {}", what);
            prop_assert_eq!(forest.nominal(id, pair(p)), slow.limits(node, p).nominal, "nominal {}", what);
            prop_assert_eq!(forest.subtree_quota(id, pair(p)), slow.subtree(node, p), "subtree {}", what);
            prop_assert_eq!(forest.usage(id, pair(p)), slow.usage(node, p), "usage {}", what);
            prop_assert_eq!(forest.local_available(id, pair(p)), slow.local_available(node, p), "local {}", what);
            let mut available = slow.available(node, p);
            prop_assert_eq!(forest.available_limit(id, pair(p)).amount, available, "limit {}", what);
            if node.0 == NodeKind::ClusterQueue {
                available = available.or_zero();
            }
            prop_assert_eq!(forest.available(id, pair(p)), available, "available {}", what);
            prop_assert_eq!(forest.potential(id, pair(p)), slow.potential(node, p), "potential {}", what);
            prop_assert_eq!(forest.potential_limit(id, pair(p)).amount, slow.potential(node, p), "limit {}", what);
            for v in [0, 1, 5, 30] {
                let v = amount(v);
                let got = forest.is_borrowing_with(id, pair(p), v);
                prop_assert_eq!(got, slow.is_borrowing_with(node, p, v), "borrowing {}", what);
                if node.0 == NodeKind::ClusterQueue {
                    prop_assert_eq!(forest.level(id, pair(p), v), slow.level(node, p, v), "level {} {}", what, v);
                }
                let (fits, rest) = forest.fits_in_quota(id, pair(p), v);
                prop_assert_eq!(fits, slow.usage(node, p).plus(v) <= slow.subtree(node, p), "fits {}", what);
                prop_assert_eq!(rest, v.minus(slow.local_available(node, p)).or_zero(), "rest {}", what);
            }
        }
        let over: Vec<usize> = (0..PAIRS).filter(|&p| slow.usage(node, p) > slow.subtree(node, p)).collect();
        for subset in [&[][..], &[0], &[1], &[2], &[0, 1], &[0, 1, 2]] {
            let pairs: Vec<FlavorResourceId> = subset.iter().map(|&p| pair(p)).collect();
            let within = !subset.iter().any(|p| over.contains(p));
            prop_assert_eq!(forest.is_within_nominal(id, &pairs), within, "{:?} within {:?}", node, subset);
        }
        // Shares: pairs 0 and 1 are of resource x, pair 2 of y.
        let borrowed = slow.borrowed(node);
        let share = forest.share(id, &[], &names);
        prop_assert_eq!(share.is_borrowing(), !borrowed.is_empty(), "{:?} borrows", node);
        let mut largest = Share::none(Weight::default());
        if let Some(parent) = slow.parent(node) {
            for pairs in [&[0, 1][..], &[2]] {
                let over: i64 = pairs.iter().filter_map(|p| borrowed.get(p)).sum();
                let lend = |p: &usize| if slow.knows(root, *p) { slow.potential(parent, *p) } else { Amount::ZERO };
                let lendable = pairs.iter().map(lend).fold(Amount::ZERO, Amount::plus).value();
                let units = |n: i64| u64::try_from(n).unwrap_or(0);
                largest = largest.max(Share::of(units(over), units(lendable), Weight::default()));
            }
        }
        prop_assert_eq!(share, largest, "{:?} share", node);
    }
    Ok(())
}

// ----- random histories ------------------------------------------------------------------------------------------------

#[derive(Clone, Debug)]
enum Op {
    Set(NodeName, NodeQuota),
    /// Changes one pair of a queue.
    Change(&'static str, usize, Limits),
    Remove(NodeName),
    Use(&'static str, usize, i64),
    Release(&'static str, usize, i64),
}

fn any_node() -> impl Strategy<Value = NodeName> {
    prop_oneof![
        proptest::sample::select(&QUEUES[..]).prop_map(|q| (NodeKind::ClusterQueue, q)),
        proptest::sample::select(&COHORTS[..]).prop_map(|c| (NodeKind::Cohort, c)),
    ]
}

fn any_amount() -> impl Strategy<Value = i64> {
    prop_oneof![10 => 0..20_i64, 1 => Just(i64::MAX)]
}

fn any_limits() -> impl Strategy<Value = Limits> {
    (any_amount(), proptest::option::of(any_amount()), proptest::option::of(any_amount()))
        .prop_map(|(nominal, borrowing, lending)| limits(nominal, borrowing, lending))
}

/// Mostly trees: the higher a Cohort's number the lower it hangs, with a few edges the other way.
fn any_quota(node: NodeName, cycles: bool) -> impl Strategy<Value = NodeQuota> {
    let number = COHORTS.iter().position(|c| *c == node.1).unwrap_or(COHORTS.len());
    let highest = if cycles { COHORTS.len() } else { number };
    let parent = proptest::option::weighted(0.8, 0..highest.max(1))
        .prop_map(move |i| i.filter(|&i| i < highest).map(|i| COHORTS[i].into()));
    let limits = proptest::collection::btree_map((0..PAIRS).prop_map(pair), any_limits(), 0..=PAIRS);
    (parent, limits).prop_map(|(parent, limits)| NodeQuota { parent, limits, weight: Weight::default() })
}

fn any_set(cycles: bool) -> impl Strategy<Value = Op> {
    any_node().prop_flat_map(move |node| any_quota(node, cycles).prop_map(move |quota| Op::Set(node, quota)))
}

fn any_usage() -> impl Strategy<Value = Op> {
    (proptest::sample::select(&QUEUES[..]), 0..PAIRS, 0..25_i64, any::<bool>())
        .prop_map(|(queue, p, v, add)| if add { Op::Use(queue, p, v) } else { Op::Release(queue, p, v) })
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => any_set(false),
        1 => any_set(true),
        3 => (proptest::sample::select(&QUEUES[..]), 0..PAIRS, any_limits()).prop_map(|(q, p, l)| Op::Change(q, p, l)),
        1 => any_node().prop_map(Op::Remove),
        6 => any_usage(),
    ]
}

fn apply(op: &Op, forest: &mut Forest, slow: &mut Slow) {
    match op {
        Op::Set(node, quota) => {
            match node.0 {
                NodeKind::ClusterQueue => forest.set_cluster_queue(node.1, quota.clone()),
                NodeKind::Cohort => forest.set_cohort(node.1, quota.clone()),
            };
            slow.config.insert(*node, quota.clone());
        }
        Op::Change(queue, p, limits) => {
            let node = (NodeKind::ClusterQueue, *queue);
            let Some(config) = slow.config.get_mut(&node) else { return };
            config.limits.insert(pair(*p), *limits);
            forest.set_cluster_queue(queue, config.clone());
        }
        Op::Remove(node) => {
            if let Some(id) = id_of(forest, *node) {
                forest.remove(id);
            }
            slow.config.remove(node);
            slow.usage.retain(|(n, _), _| n != node);
        }
        Op::Use(queue, p, v) => {
            let Some(id) = forest.cluster_queue(queue) else { return };
            forest.add_usage(id, pair(*p), amount(*v));
            let usage = slow.usage.entry(((NodeKind::ClusterQueue, queue), *p)).or_default();
            *usage = usage.plus(amount(*v));
        }
        Op::Release(queue, p, v) => {
            let Some(id) = forest.cluster_queue(queue) else { return };
            // No more than is there, like workloads that leave.
            let v = amount(*v).min(forest.usage(id, pair(*p)));
            forest.remove_usage(id, pair(*p), v);
            let usage = slow.usage.entry(((NodeKind::ClusterQueue, queue), *p)).or_default();
            *usage = usage.minus(v);
        }
    }
}

fn history(ops: &[Op]) -> (Forest, Slow) {
    let (mut forest, mut slow) = (Forest::new(), Slow::default());
    for op in ops {
        apply(op, &mut forest, &mut slow);
    }
    (forest, slow)
}

/// Fewer cases than usual: the slow forest is slow.
fn few_cases() -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig { cases: usual.cases / 8, max_shrink_iters: 2_000, ..usual }
}

proptest! {
    #![proptest_config(few_cases())]

    #[test]
    fn answers_follow_the_definitions_after_any_history(ops in proptest::collection::vec(any_op(), 0..40)) {
        let (mut forest, mut slow) = (Forest::new(), Slow::default());
        for op in &ops {
            apply(op, &mut forest, &mut slow);
            check(&forest, &slow)?;
        }
    }

    #[test]
    fn a_rollback_restores_everything(
        before in proptest::collection::vec(any_op(), 0..20),
        during in proptest::collection::vec(any_usage(), 0..20),
        inner in proptest::collection::vec(any_usage(), 0..10),
        keep: bool,
    ) {
        let (mut forest, slow) = history(&before);
        let mark = forest.mark();
        let mut changed = slow.clone();
        for op in &during {
            apply(op, &mut forest, &mut changed);
        }
        let inner_mark = forest.mark();
        let mut more = changed.clone();
        for op in &inner {
            apply(op, &mut forest, &mut more);
        }
        if keep {
            forest.keep(inner_mark);
            check(&forest, &more)?;
        } else {
            forest.rollback(inner_mark);
            check(&forest, &changed)?;
        }
        forest.rollback(mark);
        check(&forest, &slow)?;
        prop_assert!(forest.journal.is_empty() && forest.recording == 0);
    }

    #[test]
    fn a_rollback_undoes_usage_even_if_the_configuration_changed(
        before in proptest::collection::vec(any_op(), 0..20),
        during in proptest::collection::vec(prop_oneof![3 => any_usage(), 1 => any_set(false)], 0..20),
    ) {
        let (mut forest, slow) = history(&before);
        let mark = forest.mark();
        let mut changed = slow.clone();
        for op in &during {
            apply(op, &mut forest, &mut changed);
        }
        forest.rollback(mark);
        check(&forest, &Slow { config: changed.config, usage: slow.usage })?;
    }

    #[test]
    fn removing_undoes_adding(
        ops in proptest::collection::vec(any_op(), 0..30),
        queue in 0..QUEUES.len(),
        p in 0..PAIRS,
        v in 0..30_i64,
    ) {
        let (mut forest, slow) = history(&ops);
        if let Some(id) = forest.cluster_queue(QUEUES[queue]) {
            forest.add_usage(id, pair(p), amount(v));
            forest.remove_usage(id, pair(p), amount(v));
        }
        check(&forest, &slow)?;
    }

    #[test]
    fn the_order_of_configuration_does_not_matter(
        nodes in proptest::collection::btree_set(any_node(), 0..9)
            .prop_flat_map(|nodes| {
                nodes.into_iter().map(|n| any_quota(n, true).prop_map(move |q| (n, q))).collect::<Vec<_>>()
            })
            .prop_flat_map(|nodes| (Just(nodes.clone()), Just(nodes).prop_shuffle())),
    ) {
        let (first, second) = nodes;
        let slow = Slow { config: first.iter().cloned().collect(), usage: BTreeMap::new() };
        let set = |forest: &mut Forest, nodes: &[(NodeName, NodeQuota)]| {
            for (node, quota) in nodes {
                apply(&Op::Set(*node, quota.clone()), forest, &mut Slow::default());
            }
        };
        let (mut one_by_one, mut at_once) = (Forest::new(), Forest::new());
        set(&mut one_by_one, &first);
        at_once.configure(|forest| set(forest, &second));
        check(&one_by_one, &slow)?;
        check(&at_once, &slow)?;
    }

    #[test]
    fn what_is_available_fits_and_one_more_does_not(
        sets in proptest::collection::vec(any_set(false), 1..20),
        uses in proptest::collection::vec((0..QUEUES.len(), 0..PAIRS, 0..15_i64), 0..30),
    ) {
        let (mut forest, _) = history(&sets);
        // Only admits what is available, so limits hold all the time.
        for (queue, p, v) in uses {
            if let Some(id) = forest.cluster_queue(QUEUES[queue])
                && forest.available(id, pair(p)) >= amount(v)
            {
                forest.add_usage(id, pair(p), amount(v));
            }
        }
        prop_assert_eq!(broken_limit(&forest), None);
        for id in forest.nodes().collect::<Vec<_>>() {
            for p in (0..PAIRS).map(pair) {
                let available = forest.available(id, p);
                if forest.kind(id) == NodeKind::Cohort || available.is_unlimited() {
                    continue;
                }
                let mark = forest.mark();
                forest.add_usage(id, p, available);
                prop_assert_eq!(broken_limit(&forest), None);
                forest.add_usage(id, p, amount(1));
                prop_assert!(broken_limit(&forest).is_some(), "{} had room for more than {}", forest.name(id), available);
                forest.rollback(mark);
                let limit = forest.available_limit(id, p);
                prop_assert!(limit.node == id || forest.ancestors(id).any(|a| a == limit.node));
            }
        }
    }

    #[test]
    fn generations_tell_which_trees_were_touched(
        ops in proptest::collection::vec(any_op(), 0..20),
        node in any_node(),
        quota in any_quota((NodeKind::ClusterQueue, "q0"), false),
    ) {
        let (mut forest, mut slow) = history(&ops);
        let all: Vec<NodeId> = forest.nodes().collect();
        let before: BTreeMap<NodeId, (u64, NodeId)> =
            all.iter().map(|&id| (id, (forest.generation(id), forest.root(id)))).collect();
        let touched_before = id_of(&forest, node).map(|id| forest.root(id));
        let is_new = slow.config.get(&node) != Some(&quota);
        apply(&Op::Set(node, quota), &mut forest, &mut slow);
        let touched = id_of(&forest, node).map(|id| forest.root(id));
        for id in all.into_iter().filter(|&id| forest.living(id) && !forest.is_cyclic(id)) {
            let (generation, root) = before[&id];
            let in_touched_tree = Some(root) == touched_before || Some(forest.root(id)) == touched;
            let moved = forest.generation(id) > generation;
            if !in_touched_tree {
                prop_assert!(!moved, "{} was not touched", forest.name(id));
            } else if is_new {
                prop_assert!(moved, "{} was touched", forest.name(id));
            }
        }
    }
}

/// A node that holds more than its limits allow.
fn broken_limit(forest: &Forest) -> Option<String> {
    for id in forest.nodes() {
        for p in (0..PAIRS).map(pair) {
            let (usage, subtree) = (forest.usage(id, p), forest.subtree_quota(id, p));
            let limits = forest.limits(id, p);
            let what = || Some(format!("{} {}", forest.name(id), p.index()));
            if forest.parent(id).is_none() {
                if usage > subtree {
                    return what();
                }
                continue;
            }
            if limits.borrowing.is_some_and(|limit| usage > subtree.plus(limit)) {
                return what();
            }
            // What the others take of a node's quota is no more than it lends: its own part is still there.
            if let Some(lending) = limits.lending {
                let own = subtree.minus(lending).or_zero();
                let free = forest.local_available(id, p);
                if !own.is_unlimited() && free.plus(usage) < own {
                    return what();
                }
            }
        }
    }
    None
}

// ----- examples --------------------------------------------------------------------------------------------------------

/// A root, a Cohort below it with two queues, and a queue of the root's own.
fn example() -> (Forest, [NodeId; 5]) {
    let mut forest = Forest::new();
    let a = forest.set_cluster_queue("a", quota(Some("mid"), &[(0, limits(10, None, Some(4)))]));
    let b = forest.set_cluster_queue("b", quota(Some("mid"), &[(0, limits(5, Some(6), None))]));
    let c = forest.set_cluster_queue("c", quota(Some("root"), &[(0, limits(3, None, None))]));
    let mid = forest.set_cohort("mid", quota(Some("root"), &[(0, limits(2, Some(3), Some(1)))]));
    let root = forest.set_cohort("root", quota(None, &[(0, limits(4, None, None))]));
    (forest, [a, b, c, mid, root])
}

#[test]
fn the_worked_example_comes_out() {
    let (mut forest, [a, b, c, mid, root]) = example();
    let p = pair(0);
    assert_eq!([a, mid, root].map(|n| forest.subtree_quota(n, p).value()), [10, 11, 8]);
    assert_eq!([a, b, c, mid].map(|n| forest.potential(n, p).value()), [20, 11, 8, 14]);
    let mut step = |queue: Option<(NodeId, i64)>, want: [i64; 5]| {
        if let Some((id, v)) = queue {
            forest.add_usage(id, p, amount(v));
        }
        let got = [a, b, c].map(|n| forest.available(n, p).value());
        let usage = [mid, root].map(|n| forest.usage(n, p).value());
        assert_eq!([got[0], got[1], got[2], usage[0], usage[1]], want);
    };
    step(None, [20, 11, 8, 0, 0]);
    step(Some((a, 8)), [12, 11, 8, 2, 0]);
    step(Some((b, 7)), [5, 4, 8, 9, 0]);
    step(Some((c, 3)), [5, 4, 5, 9, 3]);
    step(Some((a, -8)), [13, 4, 5, 7, 3]);
}

#[test]
fn the_limiting_node_is_named() {
    let (mut forest, [a, b, c, mid, root]) = example();
    let p = pair(0);
    let limit = forest.available_limit(b, p);
    assert_eq!((limit.amount.value(), limit.node), (11, b));
    assert_eq!(limit.kind, LimitKind::BorrowingLimit { limit: amount(6), borrowed: amount(-5) });
    let limit = forest.available_limit(a, p);
    assert_eq!((limit.amount.value(), limit.node), (20, mid));
    assert_eq!(limit.kind, LimitKind::BorrowingLimit { limit: amount(3), borrowed: amount(-1) });
    forest.add_usage(c, p, amount(8));
    let limit = forest.available_limit(c, p);
    assert_eq!((limit.amount.value(), limit.node), (0, root));
    assert_eq!(limit.kind, LimitKind::Quota { quota: amount(8), usage: amount(8) });
    assert_eq!(forest.potential_limit(c, p).kind, LimitKind::Quota { quota: amount(8), usage: amount(0) });
}

#[test]
fn a_cohort_lives_as_long_as_somebody_names_it() {
    let mut forest = Forest::new();
    let q = forest.set_cluster_queue("q", quota(Some("c"), &[]));
    let c = forest.cohort("c").expect("named by its member");
    assert_eq!(forest.parent(q), Some(c));
    assert_eq!(forest.weight(c), Weight::default());
    forest.remove(c);
    assert_eq!(forest.cohort("c"), Some(c), "one that is only named cannot be removed");
    forest.set_cluster_queue("q", quota(None, &[]));
    assert_eq!(forest.cohort("c"), None);
    forest.set_cohort("c", quota(None, &[]));
    assert_eq!(forest.cohort("c"), Some(c), "a node that comes back keeps its identifier");
    forest.remove(c);
    assert_eq!(forest.cohort("c"), None);
}

#[test]
fn removing_a_cohort_cuts_its_members_off() {
    let (mut forest, [a, _, _, mid, root]) = example();
    let p = pair(0);
    forest.add_usage(a, p, amount(12));
    forest.remove(mid);
    assert_eq!(forest.parent(a), Some(mid));
    assert_eq!(forest.parent(mid), None);
    assert_eq!(forest.subtree_quota(mid, p).value(), 9, "quota of its own and limits are gone");
    assert_eq!(forest.usage(mid, p).value(), 6);
    assert_eq!(forest.usage(root, p).value(), 0);
    assert_eq!(forest.subtree_quota(root, p).value(), 7);
}

#[test]
fn a_rollback_restores_usage_whose_pair_was_dropped_meanwhile() {
    let mut forest = Forest::new();
    let q = forest.set_cluster_queue("q", quota(None, &[]));
    forest.add_usage(q, pair(2), amount(1));
    let mark = forest.mark();
    forest.remove_usage(q, pair(2), amount(1));
    forest.add_usage(q, pair(0), amount(1));
    forest.rollback(mark);
    assert_eq!([0, 2].map(|p| forest.usage(q, pair(p)).value()), [0, 1]);
}

#[test]
fn what_is_kept_is_forgotten_once_no_mark_is_open() {
    let (mut forest, [a, b, ..]) = example();
    let p = pair(0);
    let outer = forest.mark();
    forest.add_usage(a, p, amount(1));
    let inner = forest.mark();
    forest.add_usage(b, p, amount(1));
    forest.keep(inner);
    assert_eq!((forest.recording, forest.journal.len()), (1, 3), "b's usage rises to the Cohort");
    forest.keep(outer);
    assert_eq!((forest.recording, forest.journal.len()), (0, 0));
    forest.add_usage(a, p, amount(1));
    assert!(forest.journal.is_empty());
    assert_eq!([a, b].map(|n| forest.usage(n, p).value()), [2, 1]);
}

#[test]
fn usage_of_a_pair_that_nobody_has_quota_for_is_counted_and_changes_no_generation() {
    let (mut forest, [a, _, _, mid, root]) = example();
    let generation = forest.generation(a);
    forest.add_usage(a, pair(2), amount(3));
    assert_eq!([a, mid, root].map(|n| forest.usage(n, pair(2)).value()), [3, 3, 3]);
    assert_eq!(forest.generation(a), generation);
    assert!(!forest.pairs(a).any(|p| p == pair(2)));
    assert!(!forest.share(a, &[], &names()).is_borrowing(), "only pairs with quota are borrowed");
}

#[test]
fn of_equal_limits_the_uppermost_is_named() {
    let mut forest = Forest::new();
    let q = forest.set_cluster_queue("q", quota(Some("c"), &[(0, limits(2, Some(3), None))]));
    let c = forest.set_cohort("c", quota(None, &[(0, limits(3, None, None))]));
    let limit = forest.available_limit(q, pair(0));
    assert_eq!((limit.amount.value(), limit.node), (5, c));
}

#[test]
fn a_queue_that_comes_back_is_active() {
    let (mut forest, [a, _, _, mid, _]) = example();
    forest.set_active(a, false);
    forest.remove(a);
    forest.set_cluster_queue("a", quota(Some("mid"), &[]));
    assert!(forest.children(mid).any(|n| n == a));
}

#[test]
fn a_removed_queue_takes_its_usage_along() {
    let (mut forest, [a, _, _, mid, _]) = example();
    let p = pair(0);
    forest.add_usage(a, p, amount(8));
    forest.remove(a);
    assert_eq!(forest.usage(mid, p), Amount::ZERO);
    let again = forest.set_cluster_queue("a", quota(Some("mid"), &[(0, limits(10, None, Some(4)))]));
    assert_eq!((again, forest.usage(again, p)), (a, Amount::ZERO));
}

#[test]
fn a_cycle_stops_those_in_it_and_below_it_and_nobody_else() {
    let mut forest = Forest::new();
    let p = pair(0);
    let q = forest.set_cluster_queue("q", quota(Some("low"), &[(0, limits(1, None, None))]));
    let other = forest.set_cluster_queue("other", quota(Some("apart"), &[(0, limits(1, None, None))]));
    forest.set_cohort("low", quota(Some("x"), &[]));
    let x = forest.set_cohort("x", quota(Some("y"), &[(0, limits(5, None, None))]));
    let y = forest.set_cohort("y", quota(Some("x"), &[]));
    assert!([q, x, y].iter().all(|&n| forest.is_cyclic(n)));
    assert_eq!(forest.children(x).count(), 0);
    assert!(!forest.is_cyclic(other));
    forest.add_usage(q, p, amount(3));
    forest.set_cohort("y", quota(None, &[]));
    assert!(![q, x, y].iter().any(|&n| forest.is_cyclic(n)));
    assert_eq!((forest.root(q), forest.subtree_quota(y, p).value(), forest.usage(y, p).value()), (y, 6, 3));
    let own = forest.set_cohort("own", quota(Some("own"), &[]));
    assert!(forest.is_cyclic(own));
    forest.remove(own);
    assert_eq!(forest.cohort("own"), None);
}

#[test]
fn an_inactive_queue_is_no_member_but_its_quota_counts() {
    let mut forest = Forest::new();
    let p = pair(0);
    let low = forest.set_cohort("low", quota(Some("top"), &[]));
    let q = forest.set_cluster_queue("q", quota(Some("low"), &[(0, limits(5, None, None))]));
    let top = forest.cohort("top").unwrap();
    assert_eq!([low, top].map(|n| forest.height(n)), [1, 2]);
    forest.set_active(q, false);
    assert_eq!([low, top].map(|n| forest.height(n)), [0, 1]);
    assert_eq!(forest.children(low).count(), 0);
    assert_eq!(forest.available(top, p).value(), 5);
    forest.set_cohort("low", quota(Some("top"), &[]));
    assert_eq!([low, top].map(|n| forest.height(n)), [0, 1], "a new layout does not forget");
    forest.set_active(q, true);
    assert_eq!([low, top].map(|n| forest.height(n)), [1, 2]);
}

#[test]
fn a_weight_alone_is_no_change_of_what_can_be_drawn_on() {
    let (mut forest, [a, b, ..]) = example();
    let generations = [a, b].map(|n| forest.generation(n));
    let same = || quota(Some("mid"), &[(0, limits(10, None, Some(4)))]);
    forest.set_cluster_queue("a", NodeQuota { weight: Weight::from_nanos(5), ..same() });
    assert_eq!([a, b].map(|n| forest.generation(n)), generations);
    assert_eq!(forest.weight(a), Weight::from_nanos(5));
    forest.set_cohort("mid", quota(Some("root"), &[(0, limits(2, Some(3), Some(1)))]));
    assert_eq!([a, b].map(|n| forest.generation(n)), generations.map(|g| g + 1), "a Cohort always counts");
    forest.bump_generation(a);
    assert_eq!([a, b].map(|n| forest.generation(n)), [generations[0] + 2, generations[1] + 1]);
}

#[test]
fn unlimited_quota_stays_unlimited() {
    let mut forest = Forest::new();
    let p = pair(0);
    let all = i64::MAX;
    let a = forest.set_cluster_queue("a", quota(Some("c"), &[(0, limits(all, None, None))]));
    let b = forest.set_cluster_queue("b", quota(Some("c"), &[(0, limits(0, None, None))]));
    forest.add_usage(b, p, amount(i64::MAX - 1));
    assert!(forest.available(a, p).is_unlimited());
    assert!(forest.available(b, p).is_unlimited());
    forest.add_usage(b, p, amount(all));
    assert_eq!(forest.available(b, p), Amount::ZERO, "a request for everything leaves nothing");
    let share = forest.share(b, &[], &names());
    assert!(share.is_borrowing());
    assert_eq!(share.rounded(), 1000);
}

#[test]
fn a_deep_forest_answers_too() {
    let mut forest = Forest::new();
    let p = pair(0);
    let depth = 3_000;
    let name = |i: usize| format!("c{i}");
    forest.configure(|forest| {
        for i in 0..depth {
            forest.set_cohort(&name(i), quota(Some(&name(i + 1)), &[(0, limits(1, None, None))]));
        }
    });
    let q = forest.set_cluster_queue("q", quota(Some("c0"), &[(0, limits(1, None, None))]));
    assert_eq!(forest.available(q, p).value(), 3_001);
    forest.add_usage(q, p, amount(3_001));
    assert_eq!(forest.available(q, p).value(), 0);
    assert_eq!(forest.level(q, p, amount(1)), (3_001, false));
    assert_eq!(forest.height(forest.root(q)), 3_001);
}

#[test]
fn many_queues_are_loaded_by_few_layouts() {
    let mut forest = Forest::new();
    forest.configure(|forest| {
        for i in 0..1_000 {
            let cohort = format!("c{}", i % 7);
            forest.set_cluster_queue(&format!("q{i}"), quota(Some(&cohort), &[(i % PAIRS, limits(1, None, None))]));
        }
    });
    assert_eq!(forest.epoch, 1);
    assert_eq!(forest.nodes().count(), 1_007);
    let total: i64 = (0..7)
        .map(|i| forest.cohort(&format!("c{i}")).unwrap())
        .map(|c| forest.subtree_quota(c, pair(0)).value())
        .sum();
    assert_eq!(total, 334);
}

#[test]
fn queues_that_come_one_by_one_need_few_layouts() {
    let mut forest = Forest::new();
    for i in 0..1_000 {
        let cohort = format!("c{}", i % 7);
        let lending = (i % 2 == 0).then_some(0);
        forest.set_cluster_queue(&format!("q{i}"), quota(Some(&cohort), &[(i % PAIRS, limits(1, None, lending))]));
    }
    assert_eq!(forest.epoch, 7 * 3, "one for the first queue of each pair in each of seven trees");
    let total = |forest: &Forest, p| -> i64 {
        (0..7).map(|i| forest.cohort(&format!("c{i}")).unwrap()).map(|c| forest.subtree_quota(c, pair(p)).value()).sum()
    };
    assert_eq!(total(&forest, 0), 167);
    let q = forest.set_cluster_queue("q0", quota(Some("c0"), &[(0, limits(10, None, None))]));
    assert_eq!((forest.epoch, total(&forest, 0)), (21, 177));
    assert_eq!(forest.generation(q), 1 + 142 + 1, "itself, 142 others that joined, and the last change");
}

#[test]
fn a_new_lending_limit_moves_usage_between_a_queue_and_its_cohort() {
    let (mut forest, [a, _, _, mid, root]) = example();
    let p = pair(0);
    forest.add_usage(a, p, amount(8));
    let set = |forest: &mut Forest, lending| {
        let layouts = forest.epoch;
        forest.set_cluster_queue("a", quota(Some("mid"), &[(0, limits(10, None, lending))]));
        assert_eq!(forest.epoch, layouts, "no layout was needed");
        [a, mid, root].map(|n| forest.usage(n, p).value())
    };
    assert_eq!(set(&mut forest, None), [8, 8, 0]);
    assert_eq!(set(&mut forest, Some(5)), [8, 3, 0]);
    assert_eq!(set(&mut forest, Some(0)), [8, 0, 0]);
    forest.set_cohort("mid", quota(Some("root"), &[(0, limits(2, Some(3), None))]));
    assert_eq!(set(&mut forest, Some(10)), [8, 8, 8]);
}

#[test]
fn a_queue_changed_in_a_what_if_is_summed_anew_by_the_rollback() {
    let (mut forest, [a, _, _, mid, _]) = example();
    let p = pair(0);
    let mark = forest.mark();
    forest.add_usage(a, p, amount(8));
    forest.set_cluster_queue("a", quota(Some("mid"), &[(0, limits(10, None, None))]));
    forest.add_usage(a, p, amount(1));
    assert_eq!(forest.usage(mid, p).value(), 9);
    forest.rollback(mark);
    assert_eq!([a, mid].map(|n| forest.usage(n, p).value()), [0, 0]);
    let used = forest.mark();
    forest.add_usage(a, p, amount(3));
    forest.keep(used);
    let mark = forest.mark();
    forest.remove_usage(a, p, amount(3));
    forest.set_cluster_queue("a", quota(Some("mid"), &[(0, limits(10, None, Some(9)))]));
    forest.rollback(mark);
    assert_eq!([a, mid].map(|n| forest.usage(n, p).value()), [3, 2], "1 of 10 is kept for itself now");
}

#[test]
fn the_dominant_resource_is_the_alphabetically_first_of_equals() {
    let mut names = Names::new();
    let (zebra, ape) = (names.intern("f", "zebra"), names.intern("f", "ape"));
    let mut forest = Forest::new();
    let limit = |nominal| limits(nominal, None, None);
    let set = |forest: &mut Forest, name, nominal| {
        let limits = [(zebra, limit(nominal)), (ape, limit(nominal))].into();
        forest.set_cluster_queue(name, NodeQuota { parent: Some("c".into()), limits, weight: Weight::default() })
    };
    let q = set(&mut forest, "q", 0);
    set(&mut forest, "r", 10);
    let resource = |forest: &Forest, extra: &[_]| {
        forest.share(q, extra, &names).resource().map(|r| names.resource_name(r).to_owned())
    };
    assert_eq!(resource(&forest, &[]), None);
    forest.add_usage(q, zebra, amount(2));
    assert_eq!(resource(&forest, &[]).as_deref(), Some("zebra"));
    assert_eq!(resource(&forest, &[(ape, amount(2))]).as_deref(), Some("ape"));
    assert!(forest.is_borrowing_on(q, &[(zebra, amount(1))]));
    assert!(!forest.is_borrowing_on(q, &[(zebra, amount(0)), (ape, amount(1))]));
}

// ----- shares ----------------------------------------------------------------------------------------------------------

fn any_share() -> impl Strategy<Value = Share> {
    let number = || prop_oneof![3 => 0..12_u64, 1 => any::<u64>()];
    let weight =
        prop_oneof![2 => Just(0), 3 => 1..5_u64, 3 => (1..5_u64).prop_map(|w| w * 500_000_000), 1 => any::<u64>()];
    (number(), number(), weight).prop_map(|(b, l, w)| Share::of(b, l, Weight::from_nanos(w)))
}

proptest! {
    #[test]
    fn shares_are_totally_ordered(a in any_share(), b in any_share(), c in any_share()) {
        prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
        prop_assert_eq!(a.cmp(&a), std::cmp::Ordering::Equal);
        if a <= b && b <= c {
            prop_assert!(a <= c);
        }
        if a == b && b == c {
            prop_assert!(a == c);
        }
        // What is reported never contradicts the order.
        if a < b {
            prop_assert!(a.rounded() <= b.rounded());
        }
    }

    #[test]
    fn shares_are_borrowed_over_lendable_over_weight(b in 1..1_000_u64, l in 1..1_000_u64, w in 1..1_000_u64) {
        let share = Share::of(b, l, Weight::from_nanos(w * 1_000_000_000));
        // ceil(1000 b / (l w))
        let want = (1000 * b).div_ceil(l * w);
        prop_assert_eq!(u64::try_from(share.rounded()).unwrap(), want);
        let float = 1000.0 * f64::from(u32::try_from(b).unwrap()) / f64::from(u32::try_from(l * w).unwrap());
        prop_assert!((share.weighted() - float).abs() < 1e-9 * float);
        // The same share by other numbers.
        let other = Share::of(b * 3, l * 6, Weight::from_nanos(w * 500_000_000));
        prop_assert_eq!(share, other);
        prop_assert!(Share::of(b * 3 + 1, l * 6, Weight::from_nanos(w * 500_000_000)) > share);
    }
}

#[test]
fn usage_is_set_where_sums_saturated() {
    let mut forest = Forest::new();
    forest.set_cohort("root", quota(None, &[(0, limits(10, None, None))]));
    let queue = forest.set_cluster_queue("q", quota(Some("root"), &[(0, limits(2, None, Some(0)))]));
    let root = forest.cohort("root").unwrap();
    let used = |forest: &Forest| (forest.usage(queue, pair(0)).value(), forest.usage(root, pair(0)).value());

    let half = amount(1 << 62);
    assert!(!forest.may_saturate(queue, pair(0), amount(1 << 61)));
    assert!(forest.may_saturate(queue, pair(0), half));
    forest.add_usage(queue, pair(0), half);
    assert!(forest.may_saturate(queue, pair(0), amount(1)), "what is used is large");
    forest.add_usage(queue, pair(0), half);
    forest.remove_usage(queue, pair(0), half);
    forest.remove_usage(queue, pair(0), half);
    assert_ne!(used(&forest), (0, 0), "adding and removing are no inverses here");
    let before = used(&forest);

    let mark = forest.mark();
    forest.add_usage(queue, pair(0), amount(1));
    forest.set_usage(queue, pair(0), amount(5));
    assert_eq!(used(&forest), (5, 3), "the Cohort has what is beyond the two that are not lent");
    forest.rollback(mark);
    assert_eq!(used(&forest).0, before.0);
    forest.set_usage(queue, pair(0), Amount::ZERO);
    assert_eq!(used(&forest), (0, 0));
    assert!(!forest.may_saturate(queue, pair(0), amount(1)));
}
