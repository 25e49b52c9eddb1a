//! Laws that every placement keeps, tried on small clusters against slow and obvious answers.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use slicegate_placement::{
    Features, HOSTNAME_LABEL, Node, OtherPods, Placement, PlacementUsage, PodRequest, PodSetRequest, Reach,
    Replacement, Topologies, pod_count,
};
use slicegate_quota::{FlavorId, Names};
use slicegate_workload::{
    FlavorSpec, PodSpec, Requests, TopologyAssignment, TopologyConstraint, TopologyDomain, TopologyRequest,
    TopologySpec,
};

const LEVELS: [&str; 3] = ["block", "rack", HOSTNAME_LABEL];

/// A node as block, rack and what it has: cpu, gpu, pods.
type Spec = (u8, u8, [i64; 3]);

/// What is asked for.
#[derive(Clone, Debug)]
struct Ask {
    count: i32,
    /// cpu and gpu of a worker, and of the leader if there is one.
    worker: [i64; 2],
    leader: Option<[i64; 2]>,
    request: Option<TopologyRequest>,
}

fn specs() -> impl Strategy<Value = Vec<Spec>> {
    prop::collection::vec((0..3_u8, 0..3_u8, [0..7_i64, 0..3_i64, 1..7_i64]), 0..9)
}

/// Slices within slices: sizes that divide each other, at levels that go down.
fn layers() -> impl Strategy<Value = Vec<(usize, i32)>> {
    prop_oneof![
        Just(Vec::new()),
        (0..3_usize, 1..4_i32).prop_map(|layer| vec![layer]),
        (0..2_usize, 1..3_i32, 1..3_i32)
            .prop_map(|(level, inner, times)| { vec![(level, inner * times), (level + 1, inner)] }),
        (1..3_i32, 1..3_i32).prop_map(|(a, b)| vec![(0, a * b * 2), (1, a * b), (2, a)]),
    ]
}

fn request() -> impl Strategy<Value = Option<TopologyRequest>> {
    let main = prop_oneof![
        (0..3_usize).prop_map(|l| TopologyRequest { required: Some(LEVELS[l].into()), ..TopologyRequest::default() }),
        (0..3_usize).prop_map(|l| TopologyRequest { preferred: Some(LEVELS[l].into()), ..TopologyRequest::default() }),
        Just(TopologyRequest { unconstrained: Some(true), ..TopologyRequest::default() }),
    ];
    let with_layers = (main, layers()).prop_map(|(mut request, layers)| {
        let layer = |(level, size): (usize, i32)| TopologyConstraint { topology: LEVELS[level].into(), size };
        request.slice_constraints = layers.into_iter().map(layer).collect();
        Some(request)
    });
    prop_oneof![1 => Just(None), 9 => with_layers]
}

fn ask() -> impl Strategy<Value = Ask> {
    let leader = prop::option::weighted(0.3, [0..3_i64, 0..2_i64]);
    (1..13_i32, [0..3_i64, 0..2_i64], leader, request()).prop_map(|(count, worker, leader, request)| Ask {
        count,
        worker,
        leader,
        request,
    })
}

fn features() -> impl Strategy<Value = Features> {
    (any::<bool>(), any::<bool>()).prop_map(|(mixed_profile, balanced)| Features {
        mixed_profile,
        balanced,
        ..Features::default()
    })
}

fn node(index: usize, &(block, rack, [cpu, gpu, pods]): &Spec) -> Node {
    let labels = [("block", format!("b{block}")), ("rack", format!("r{rack}")), (HOSTNAME_LABEL, format!("n{index}"))];
    Node {
        name: format!("n{index}").into(),
        labels: labels.into_iter().map(|(k, v)| (k.into(), v.into())).collect(),
        ready: true,
        allocatable: [("cpu", cpu), ("gpu", gpu), ("pods", pods)].into_iter().collect(),
        ..Node::default()
    }
}

struct World {
    names: Names,
    topologies: Topologies,
    flavor: FlavorId,
}

impl World {
    fn new(nodes: &[Node], features: Features) -> Self {
        let mut names = Names::new();
        let flavor = FlavorSpec { name: "f".into(), ..FlavorSpec::default() };
        let topology = TopologySpec { name: "t".into(), levels: LEVELS.map(Into::into).to_vec() };
        let mut topologies = Topologies::new(features);
        topologies.set(&flavor, &topology, nodes, &OtherPods::new(), &mut names);
        Self { flavor: names.intern_flavor("f"), names, topologies }
    }

    fn of(specs: &[Spec], features: Features) -> Self {
        let nodes: Vec<Node> = specs.iter().enumerate().map(|(i, s)| node(i, s)).collect();
        Self::new(&nodes, features)
    }

    fn pod(&mut self, [cpu, gpu]: [i64; 2]) -> PodRequest {
        let requests: Requests = [("cpu", cpu), ("gpu", gpu)].into_iter().filter(|(_, n)| *n > 0).collect();
        PodRequest::new(&requests, &mut self.names)
    }

    fn place(&mut self, ask: &Ask) -> Vec<Placement> {
        self.place_with(ask, None, None, PlacementUsage::Current)
    }

    fn place_in(&mut self, ask: &Ask, usage: PlacementUsage) -> Vec<Placement> {
        self.place_with(ask, None, None, usage)
    }

    fn place_with(
        &mut self,
        ask: &Ask,
        previous: Option<&TopologyAssignment>,
        replacement: Option<Replacement<'_>>,
        usage: PlacementUsage,
    ) -> Vec<Placement> {
        let pod = PodSpec::default();
        let (worker, leader) = (self.pod(ask.worker), ask.leader.map(|l| self.pod(l)));
        let workers = PodSetRequest {
            name: "workers",
            count: ask.count,
            pod_request: &worker,
            pod: &pod,
            updates: &[],
            topology: ask.request.as_ref(),
            group: leader.is_some().then_some("g"),
            flavor: self.flavor,
            previous,
            replacement,
        };
        let mut requests = vec![workers];
        if let Some(leader) = &leader {
            requests.push(PodSetRequest { name: "leader", count: 1, pod_request: leader, ..workers });
        }
        self.topologies.place(&requests, usage)
    }
}

/// The level searched, whether it is required, and slices: what a request means.
fn meaning(ask: &Ask) -> (usize, bool, Vec<(usize, i32)>) {
    let level = |key: &str| LEVELS.iter().position(|l| *l == key).unwrap();
    let Some(request) = &ask.request else { return (2, false, Vec::new()) };
    let slices: Vec<(usize, i32)> = request.slice_constraints.iter().map(|c| (level(&c.topology), c.size)).collect();
    match (&request.required, &request.preferred) {
        (Some(key), _) => (level(key), true, slices),
        (None, Some(key)) => (level(key), false, slices),
        (None, None) => (if slices.is_empty() { 2 } else { 0 }, false, slices),
    }
}

/// The domain of a node at a level.
fn domain(index: usize, spec: &Spec, level: usize) -> (u8, Option<u8>, Option<usize>) {
    (spec.0, (level > 0).then_some(spec.1), (level > 1).then_some(index))
}

/// How many pods a node takes.
fn room(&(_, _, [cpu, gpu, pods]): &Spec, worker: [i64; 2]) -> i64 {
    [(cpu, worker[0]), (gpu, worker[1]), (pods, 1)]
        .into_iter()
        .filter(|(_, need)| *need > 0)
        .map(|(have, need)| have / need)
        .min()
        .unwrap_or(0)
}

/// How many whole outer slices fit by domain of the level searched: inner slices first, from the nodes up.
fn slices_by_domain(specs: &[Spec], ask: &Ask) -> BTreeMap<(u8, Option<u8>, Option<usize>), i64> {
    let (level, _, layers) = meaning(ask);
    let (slice_level, size) = layers.first().copied().unwrap_or((2, 1));
    let mut pods: BTreeMap<usize, i64> = (0..specs.len()).map(|i| (i, room(&specs[i], ask.worker))).collect();
    // One node stands for each domain of a level.
    for depth in (0..3).rev() {
        let mut above: BTreeMap<_, (usize, i64)> = BTreeMap::new();
        for (i, n) in &pods {
            above.entry(domain(*i, &specs[*i], depth)).or_insert((*i, 0)).1 += n;
        }
        let inner = layers.iter().skip(1).find(|(l, _)| depth <= *l && depth > slice_level).map_or(1, |(_, s)| *s);
        let inner = if depth == slice_level { i64::from(size) } else { i64::from(inner) };
        pods = above.into_values().map(|(i, n)| (i, n - n % inner)).collect();
        if depth == slice_level {
            break;
        }
    }
    let mut result = BTreeMap::new();
    for (i, n) in pods {
        *result.entry(domain(i, &specs[i], level.min(slice_level))).or_insert(0) += n / i64::from(size);
    }
    result
}

/// Layers of which each is at the level of the one around it or below, and the outermost not above the level searched.
fn makes_sense(ask: &Ask) -> bool {
    let (level, _, layers) = meaning(ask);
    layers.first().is_none_or(|(l, _)| *l >= level)
}

fn host_index(values: &[Box<str>]) -> usize {
    values[0][1..].parse().unwrap()
}

fn is_valid(specs: &[Spec], ask: &Ask, placements: &[Placement]) -> Result<(), TestCaseError> {
    let Some(workers) = placements[0].assignment() else {
        prop_assert!(placements.iter().all(|p| p.failure().is_some()));
        return Ok(());
    };
    let (level, required, layers) = meaning(ask);
    let size = layers.first().map_or(1, |(_, size)| *size);
    prop_assert_eq!(pod_count(workers), ask.count / size * size, "all whole slices are placed");
    let mut used: BTreeMap<usize, [i64; 3]> = BTreeMap::new();
    let mut take = |assignment: &TopologyAssignment, pod: [i64; 2]| {
        for d in &assignment.domains {
            let n = i64::from(d.count);
            let of = used.entry(host_index(&d.values)).or_default();
            *of = [of[0] + n * pod[0], of[1] + n * pod[1], of[2] + n];
        }
    };
    take(workers, ask.worker);
    let mut all: Vec<usize> = workers.domains.iter().map(|d| host_index(&d.values)).collect();
    if let Some(leader) = ask.leader {
        let place = placements[1].assignment().unwrap();
        prop_assert_eq!(pod_count(place), 1);
        take(place, leader);
        all.extend(place.domains.iter().map(|d| host_index(&d.values)));
    }
    for (i, used) in used {
        prop_assert!(used.iter().zip(specs[i].2).all(|(used, have)| *used <= have), "n{} has too much", i);
    }
    if required && let Some(first) = all.first() {
        let home = domain(*first, &specs[*first], level);
        prop_assert!(all.iter().all(|i| domain(*i, &specs[*i], level) == home), "one domain");
    }
    for (level, size) in layers {
        let mut pods: BTreeMap<_, i32> = BTreeMap::new();
        for d in &workers.domains {
            let i = host_index(&d.values);
            *pods.entry(domain(i, &specs[i], level)).or_default() += d.count;
        }
        prop_assert!(pods.values().all(|n| n % size == 0), "slices are whole");
    }
    let path = |d: &TopologyDomain| {
        let i = host_index(&d.values);
        (specs[i].0, specs[i].1, d.values.clone())
    };
    prop_assert!(workers.domains.is_sorted_by(|a, b| path(a) < path(b)), "in order of values from the top");
    prop_assert!(workers.domains.iter().all(|d| d.count > 0));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn a_place_that_is_found_fits(specs in specs(), ask in ask(), features in features()) {
        let placements = World::of(&specs, features).place(&ask);
        is_valid(&specs, &ask, &placements)?;
    }

    #[test]
    fn pods_without_a_leader_are_placed_if_they_can_be(specs in specs(), ask in ask(), features in features()) {
        let ask = Ask { leader: None, ..ask };
        let placements = World::of(&specs, features).place(&ask);
        if !makes_sense(&ask) {
            prop_assert!(placements[0].failure().is_some());
            return Ok(());
        }
        let (_, required, layers) = meaning(&ask);
        let needed = i64::from(ask.count / layers.first().map_or(1, |(_, size)| *size));
        let fit = slices_by_domain(&specs, &ask);
        let fits = if required {
            fit.values().any(|n| *n >= needed)
        } else {
            !fit.is_empty() && fit.values().sum::<i64>() >= needed
        };
        prop_assert_eq!(placements[0].assignment().is_some(), fits, "{:?}", placements);
    }

    #[test]
    fn a_leader_and_its_workers_are_placed_if_they_can_be(
        specs in specs(), ask in ask(), leader in [0..3_i64, 0..2_i64], features in features(),
    ) {
        let request = ask.request.clone().map(|r| TopologyRequest { slice_constraints: Vec::new(), ..r });
        let ask = Ask { leader: Some(leader), count: ask.count.max(2), request, ..ask };
        let placements = World::of(&specs, features).place(&ask);
        let (level, required, _) = meaning(&ask);
        // By domain: room for workers, and the least that a leader takes from it.
        let mut domains: BTreeMap<_, (i64, Option<i64>)> = BTreeMap::new();
        for (i, spec) in specs.iter().enumerate() {
            let home = if required { domain(i, spec, level) } else { (0, None, None) };
            let (sum, least) = domains.entry(home).or_default();
            let (block, rack, [cpu, gpu, pods]) = *spec;
            let beside = (block, rack, [cpu - leader[0], gpu - leader[1], pods - 1]);
            let cost = room(spec, ask.worker) - room(&beside, ask.worker).max(0);
            *sum += room(spec, ask.worker);
            if room(spec, leader) > 0 {
                *least = Some(least.map_or(cost, |l| l.min(cost)));
            }
        }
        let fits = domains.values().any(|(sum, cost)| cost.is_some_and(|c| sum - c >= i64::from(ask.count)));
        prop_assert_eq!(placements[0].assignment().is_some(), fits, "{:?}", placements);
    }

    #[test]
    fn the_order_of_nodes_does_not_matter(
        specs in specs(), ask in ask(), features in features(), seed in prop::collection::vec(any::<u32>(), 9),
    ) {
        let mut nodes: Vec<Node> = specs.iter().enumerate().map(|(i, s)| node(i, s)).collect();
        let one = World::new(&nodes, features).place(&ask);
        nodes.sort_by_key(|n| seed[n.name[1..].parse::<usize>().unwrap()]);
        prop_assert_eq!(one, World::new(&nodes, features).place(&ask));
    }

    #[test]
    fn what_is_placed_counts_and_can_be_undone(specs in specs(), ask in ask(), features in features()) {
        let mut world = World::of(&specs, features);
        let pod = world.pod(ask.worker);
        let rooms = |world: &World| -> Vec<i32> {
            (0..).take(specs.len())
                .map(|leaf| world.topologies.room(world.flavor, leaf, &pod, PlacementUsage::Current))
                .collect()
        };
        let before = rooms(&world);
        let placements = world.place(&ask);
        prop_assert_eq!(&rooms(&world), &before, "a search changes nothing");
        prop_assert_eq!(&world.place(&ask), &placements, "and gives the same again");
        let everywhere = (0..specs.len()).map(|i| format!("n{i}").into()).map(|host| TopologyDomain { values: vec![host], count: 1 });
        let everywhere = TopologyAssignment { levels: vec![HOSTNAME_LABEL.into()], domains: everywhere.collect() };
        let others = world.topologies.usage(world.flavor, &everywhere, &pod);
        world.topologies.add(&others, Reach::Node);
        prop_assert_eq!(&world.place_in(&ask, PlacementUsage::Empty), &placements, "an empty cluster knows no usage");
        world.topologies.take_away(&others, Reach::Node);
        let Some(assignment) = placements[0].assignment() else { return Ok(()) };
        let usage = world.topologies.usage(world.flavor, assignment, &pod);
        if ask.worker != [0, 0] {
            prop_assert_eq!(world.topologies.check(&usage), Ok(()));
        }
        prop_assert!(world.topologies.has_room(std::slice::from_ref(&usage)));
        let leaf = |world: &World, domain: &TopologyDomain| {
            world.topologies.tree(world.flavor).and_then(|t| t.find_leaf(&domain.values)).unwrap() as usize
        };
        let fits_twice = assignment.domains.iter().all(|d| before[leaf(&world, d)] >= 2 * d.count);
        prop_assert_eq!(world.topologies.has_room(&[usage.clone(), usage.clone()]), fits_twice);
        prop_assert_eq!(&rooms(&world), &before, "asking changes nothing");
        let mut twice = world.topologies.clone();
        twice.add(&usage, Reach::Node);
        prop_assert!(twice.overcommitted().is_empty());
        prop_assert_eq!(world.topologies.difference(&twice).is_some(), !assignment.domains.is_empty());
        twice.add(&usage, Reach::Node);
        prop_assert_eq!(twice.overcommitted().is_empty(), fits_twice);
        let mark = world.topologies.mark();
        world.topologies.add(&usage, Reach::Flavor);
        let after = rooms(&world);
        for domain in &assignment.domains {
            let leaf = world.topologies.tree(world.flavor).and_then(|t| t.find_leaf(&domain.values)).unwrap() as usize;
            prop_assert_eq!(after[leaf], before[leaf] - domain.count);
        }
        world.topologies.rollback(mark);
        prop_assert_eq!(&rooms(&world), &before);
        world.topologies.add(&usage, Reach::Node);
        world.topologies.take_away(&usage, Reach::Node);
        prop_assert_eq!(&rooms(&world), &before);
    }

    #[test]
    fn a_replacement_moves_only_the_pods_of_the_failed_node(specs in specs(), ask in ask(), failed in 0..9_usize) {
        // With three layers Kueue's rule looks at the innermost alone and may leave the middle one broken.
        let mut request = ask.request.clone();
        if let Some(request) = &mut request {
            request.slice_constraints.truncate(2);
        }
        let ask = Ask { leader: None, request, ..ask };
        let mut world = World::of(&specs, Features::default());
        let Placement::Placed(old) = world.place(&ask)[0].clone() else { return Ok(()) };
        let pod = world.pod(ask.worker);
        let Some(gone) = old.domains.get(failed % old.domains.len().max(1)).cloned() else { return Ok(()) };
        let mut nodes: Vec<Node> = specs.iter().enumerate().map(|(i, s)| node(i, s)).collect();
        nodes[host_index(&gone.values)].ready = false;
        let mut world = World::new(&nodes, Features::default());
        let usage = world.topologies.usage(world.flavor, &old, &pod);
        world.topologies.add(&usage, Reach::Node);
        let replacement = Replacement { node: &gone.values[0], existing: &old, keep: false };
        let placements = world.place_with(&ask, None, Some(replacement), PlacementUsage::Current);
        let Some(new) = placements[0].assignment() else { return Ok(()) };
        is_valid(&specs, &ask, &placements)?;
        prop_assert!(new.domains.iter().all(|d| d.values != gone.values));
        for domain in old.domains.iter().filter(|d| d.values != gone.values) {
            prop_assert!(new.domains.iter().any(|d| d.values == domain.values && d.count >= domain.count));
        }
    }

    #[test]
    fn an_elastic_workload_keeps_its_places(specs in specs(), ask in ask(), count in 1..20_i32) {
        let features = Features { elastic: true, ..Features::default() };
        let request = ask.request.clone().filter(|r| r.slice_constraints.is_empty());
        let ask = Ask { leader: None, request: request.filter(|r| r.unconstrained == Some(true)), ..ask };
        let mut world = World::of(&specs, features);
        let Placement::Placed(old) = world.place(&ask)[0].clone() else { return Ok(()) };
        let grown = Ask { count, ..ask };
        let placements = world.place_with(&grown, Some(&old), None, PlacementUsage::Current);
        let Some(new) = placements[0].assignment() else { return Ok(()) };
        is_valid(&specs, &grown, &placements)?;
        let of = |a: &TopologyAssignment, values: &[Box<str>]| {
            a.domains.iter().find(|d| *d.values == *values).map_or(0, |d| d.count)
        };
        let (small, large) = if count < pod_count(&old) { (new, &old) } else { (&old, new) };
        prop_assert!(small.domains.iter().all(|d| d.count <= of(large, &d.values)));
    }
}
