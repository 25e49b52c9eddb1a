//! The assigner against a slow, obvious version of itself, and the laws that assignments obey.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use slicegate_flavor::{
    Assigner, Assignment, Catalogue, ClusterQueueView, Eligibility, Features, FlavorTable, GranularMode, LastTried,
    Mode, NoTopology, PodSetRequest, Possibility, PreemptionOracle, Quality, Requests, ResourceOrder, Simulated,
    TopologyDemand, UndeclaredResources, WorkloadRequest,
};
use slicegate_quota::{Amount, FlavorResourceId, Forest, Limits, Names, NodeId, NodeQuota, Quantity};
use slicegate_workload::{
    ClusterQueueSpec, FlavorFungibility, FlavorQuotas, FlavorSpec, FungibilityPolicy, FungibilityPreference, PodSpec,
    ReclaimPolicy, ResourceGroup, ResourceQuota, Taint, TaintEffect, Toleration, TolerationOperator, vector_order,
};

const RESOURCES: [&str; 3] = ["cpu", "memory", "google.com/tpu"];

#[derive(Clone, Debug)]
struct Flavor {
    /// By position in the group's resources.
    nominal: Vec<i64>,
    lent: Vec<i64>,
    used: Vec<i64>,
    answers: Vec<Simulated>,
}

#[derive(Clone, Debug)]
struct Group {
    resources: Vec<usize>,
    flavors: Vec<Flavor>,
}

#[derive(Clone, Debug)]
struct PodSet {
    requests: Vec<Option<i64>>,
    group: Option<u32>,
    /// Flavors, counted through all groups, whose taint it does not tolerate.
    repelled: Vec<usize>,
}

#[derive(Clone, Debug)]
struct Case {
    groups: Vec<Group>,
    pod_sets: Vec<PodSet>,
    fungibility: FlavorFungibility,
    ignore_undeclared: bool,
    fair_sharing: bool,
}

prop_compose! {
    fn flavor(width: usize)(
        nominal in proptest::collection::vec(0_i64..7, width),
        lent in proptest::collection::vec(0_i64..5, width),
        used in proptest::collection::vec(0_i64..5, width),
        answers in proptest::collection::vec((0_usize..3, 0_u32..2), width),
    ) -> Flavor {
        let possibilities = [Possibility::NoCandidates, Possibility::Preempt, Possibility::Reclaim];
        let answers = answers.into_iter().map(|(p, level)| Simulated { possibility: possibilities[p], level }).collect();
        Flavor { nominal, lent, used, answers }
    }
}

fn group(resources: Vec<usize>) -> impl Strategy<Value = Group> {
    proptest::collection::vec(flavor(resources.len()), 1..4)
        .prop_map(move |flavors| Group { resources: resources.clone(), flavors })
}

fn groups() -> impl Strategy<Value = Vec<Group>> {
    prop_oneof![
        group(vec![0]).prop_map(|g| vec![g]),
        group(vec![0, 2]).prop_map(|g| vec![g]),
        (group(vec![0, 1]), group(vec![2])).prop_map(|(a, b)| vec![a, b]),
        (group(vec![2]), group(vec![1])).prop_map(|(a, b)| vec![a, b]),
    ]
}

fn pod_set() -> impl Strategy<Value = PodSet> {
    let requests = proptest::collection::vec(proptest::option::weighted(0.6, 0_i64..5), RESOURCES.len());
    let repelled = proptest::collection::vec(0_usize..6, 0..2);
    (requests, proptest::option::of(0_u32..2), repelled).prop_map(|(requests, group, repelled)| PodSet {
        requests,
        group,
        repelled,
    })
}

fn fungibility() -> impl Strategy<Value = FlavorFungibility> {
    (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(borrow, preempt, preference)| {
        let policy = |next| if next { FungibilityPolicy::TryNextFlavor } else { FungibilityPolicy::MayStopSearch };
        let preference = if preference {
            FungibilityPreference::PreemptionOverBorrowing
        } else {
            FungibilityPreference::BorrowingOverPreemption
        };
        FlavorFungibility { when_can_borrow: policy(borrow), when_can_preempt: policy(preempt), preference }
    })
}

fn case() -> impl Strategy<Value = Case> {
    (groups(), proptest::collection::vec(pod_set(), 1..4), fungibility(), any::<bool>(), any::<bool>()).prop_map(
        |(groups, pod_sets, fungibility, ignore_undeclared, fair_sharing)| Case {
            groups,
            pod_sets,
            fungibility,
            ignore_undeclared,
            fair_sharing,
        },
    )
}

struct Oracle<'a> {
    forest: &'a Forest,
    answers: &'a BTreeMap<FlavorResourceId, Simulated>,
}

impl PreemptionOracle for Oracle<'_> {
    fn forest(&self) -> &Forest {
        self.forest
    }

    fn simulate(&mut self, pair: FlavorResourceId, _amount: Amount) -> Simulated {
        self.answers[&pair]
    }
}

struct Setup {
    names: Names,
    forest: Forest,
    node: NodeId,
    flavors: FlavorTable,
    spec: ClusterQueueSpec,
    answers: BTreeMap<FlavorResourceId, Simulated>,
}

impl Setup {
    fn new(case: &Case) -> Self {
        let mut names = Names::new();
        for resource in RESOURCES {
            names.intern_resource(resource);
        }
        let mut flavors = FlavorTable::new();
        let mut answers = BTreeMap::new();
        let (mut lent, mut used) = (BTreeMap::new(), Vec::new());
        let mut spec = ClusterQueueSpec {
            name: "cq".into(),
            cohort: Some("all".into()),
            flavor_fungibility: case.fungibility,
            ..ClusterQueueSpec::default()
        };
        spec.preemption.reclaim_within_cohort = ReclaimPolicy::Any;
        let mut number = 0;
        for group in &case.groups {
            let mut quotas = Vec::new();
            for flavor in &group.flavors {
                let name = format!("f{number}");
                let key: Box<str> = format!("t{number}").into();
                number += 1;
                let taint = Taint { key, value: "".into(), effect: TaintEffect::NoSchedule };
                let id = names.intern_flavor(&name);
                let node_taints = vec![taint];
                flavors.set(id, FlavorSpec { name: name.as_str().into(), node_taints, ..FlavorSpec::default() });
                let mut resources = Vec::new();
                for (i, &r) in group.resources.iter().enumerate() {
                    let pair = names.intern(&name, RESOURCES[r]);
                    let units = |n: i64| if r == 0 { Quantity::from_millis(n) } else { Quantity::from_units(n) };
                    let nominal = units(flavor.nominal[i]);
                    resources.push((RESOURCES[r].into(), ResourceQuota { nominal, ..ResourceQuota::default() }));
                    let limits = Limits { nominal: Amount::new(flavor.lent[i]), ..Limits::default() };
                    lent.insert(pair, limits);
                    used.push((pair, flavor.used[i]));
                    answers.insert(pair, flavor.answers[i]);
                }
                quotas.push(FlavorQuotas { name: name.into(), resources });
            }
            let covered_resources = group.resources.iter().map(|&r| RESOURCES[r].into()).collect();
            spec.resource_groups.push(ResourceGroup { covered_resources, flavors: quotas });
        }
        let mut forest = Forest::new();
        let quota = spec.node_quota(&mut names);
        let node = forest.set_cluster_queue("cq", quota);
        let sibling = NodeQuota { parent: Some("all".into()), limits: lent, ..NodeQuota::default() };
        forest.set_cluster_queue("sibling", sibling);
        for (pair, amount) in used {
            forest.add_usage(node, pair, Amount::new(amount));
        }
        Self { names, forest, node, flavors, spec, answers }
    }

    fn view(&mut self, case: &Case) -> ClusterQueueView {
        let undeclared = if case.ignore_undeclared { UndeclaredResources::Ignore } else { UndeclaredResources::Block };
        ClusterQueueView::new(self.node, &self.spec, undeclared, case.fair_sharing, &mut self.names)
    }

    /// The assignment; `assigner` may have been used before.
    fn assign(&mut self, case: &Case, assigner: &mut Assigner, last: Option<&LastTried>) -> Assignment {
        let view = self.view(case);
        let order = ResourceOrder::new(&self.names);
        let owned: Vec<(Requests, Eligibility)> = case
            .pod_sets
            .iter()
            .map(|p| {
                let mut requests: Requests = Vec::new();
                for (r, quantity) in p.requests.iter().enumerate() {
                    requests.extend(quantity.map(|q| (self.names.resource(RESOURCES[r]).unwrap(), q)));
                }
                order.sort(&mut requests);
                let tolerate = |n: usize| Toleration {
                    key: format!("t{n}").into(),
                    operator: TolerationOperator::Exists,
                    ..Toleration::default()
                };
                let tolerations = (0..6).filter(|n| !p.repelled.contains(n)).map(tolerate).collect();
                let pod = PodSpec { tolerations, ..PodSpec::default() };
                (requests, Eligibility::new(&pod, &self.flavors))
            })
            .collect();
        let pod_sets: Vec<PodSetRequest<'_>> = case
            .pod_sets
            .iter()
            .zip(&owned)
            .map(|(p, (requests, eligibility))| PodSetRequest {
                count: 1,
                min_count: None,
                requests,
                group: p.group,
                eligibility,
                topology: TopologyDemand::None,
                pod_resources: &[],
                seed: None,
                replaces: None,
                nominated: &[],
            })
            .collect();
        let request = WorkloadRequest { last, ..WorkloadRequest::new(&pod_sets) };
        let mut oracle = Oracle { forest: &self.forest, answers: &self.answers };
        assigner.assign(&order, &view, &request, None, &mut oracle, &mut NoTopology)
    }
}

/// A choice by resource: flavor, mode, last position tried, borrowing level.
type Choices = BTreeMap<String, (String, Mode, i64, u32)>;

#[derive(Clone, PartialEq, Debug)]
struct Plain {
    pod_sets: Vec<(usize, Choices, BTreeSet<String>)>,
    mode: Mode,
    usage: BTreeMap<String, i64>,
}

fn plain(setup: &Setup, assignment: &Assignment) -> Plain {
    let catalogue = Catalogue { names: &setup.names, flavors: &setup.flavors };
    let pod_sets = assignment
        .pod_sets
        .iter()
        .map(|p| {
            let choices = p.flavors.iter().map(|c| {
                let flavor = setup.names.flavor_name(c.flavor).to_owned();
                let resource = setup.names.resource_name(c.resource).to_owned();
                (resource, (flavor, c.mode, c.tried.map_or(-1, i64::from), c.borrow))
            });
            (p.pod_set, choices.collect(), p.reasons.iter().map(|r| catalogue.reason(r)).collect())
        })
        .collect();
    let usage = assignment
        .usage
        .iter()
        .map(|&(pair, amount)| {
            let (flavor, resource) = setup.names.flavor_resource(pair);
            let name = format!("{}/{}", setup.names.flavor_name(flavor), setup.names.resource_name(resource));
            (name, amount.value())
        })
        .collect();
    Plain { pod_sets, mode: assignment.mode, usage }
}

fn fresh(setup: &mut Setup, case: &Case) -> Plain {
    let assignment = setup.assign(case, &mut Assigner::default(), None);
    plain(setup, &assignment)
}

/// The rules once more, by names and whole lists.
fn reference(setup: &Setup, case: &Case, last: Option<&[Choices]>) -> Plain {
    let mut result = Plain { pod_sets: Vec::new(), mode: Mode::NoFit, usage: BTreeMap::new() };
    let mut done: BTreeSet<usize> = BTreeSet::new();
    let mut worst: Option<Mode> = None;
    for first in 0..case.pod_sets.len() {
        if done.contains(&first) {
            continue;
        }
        let group = case.pod_sets[first].group;
        let members: Vec<usize> = (first..case.pod_sets.len())
            .filter(|&m| m == first || (group.is_some() && case.pod_sets[m].group == group))
            .collect();
        done.extend(&members);
        let mut total: BTreeMap<usize, i64> = BTreeMap::new();
        for &m in &members {
            for (r, q) in case.pod_sets[m].requests.iter().enumerate() {
                if let Some(q) = q {
                    *total.entry(r).or_default() += q;
                }
            }
        }
        let mut asked: Vec<usize> = total.keys().copied().collect();
        asked.sort_by(|&a, &b| vector_order(RESOURCES[a], RESOURCES[b]));
        let mut chosen: Choices = BTreeMap::new();
        let mut reasons: BTreeSet<String> = BTreeSet::new();
        let mut failed = false;
        for &r in &asked {
            let Some(at) = case.groups.iter().position(|g| g.resources.contains(&r)) else {
                if total[&r] == 0 || case.ignore_undeclared {
                    continue;
                }
                chosen.clear();
                reasons = BTreeSet::from([format!("resource {} unavailable in ClusterQueue", RESOURCES[r])]);
                failed = true;
                break;
            };
            if chosen.contains_key(RESOURCES[r]) {
                continue;
            }
            let start =
                last.and_then(|l| l.get(first)?.get(RESOURCES[r])).map_or(0, |c| usize::try_from(c.2 + 1).unwrap());
            let (best, why) = scan(setup, case, at, &members, &total, start, &result.usage);
            if best.is_empty() {
                chosen.clear();
                reasons = why;
                failed = true;
                break;
            }
            chosen.extend(best);
            reasons.extend(why);
        }
        let mut stop = false;
        for &m in &members {
            let mine: Choices = (0..RESOURCES.len())
                .filter(|&r| case.pod_sets[m].requests[r].is_some())
                .filter_map(|r| Some((RESOURCES[r].to_owned(), chosen.get(RESOURCES[r])?.clone())))
                .collect();
            for (resource, choice) in &mine {
                let r = RESOURCES.iter().position(|x| x == resource).unwrap();
                let quantity = case.pod_sets[m].requests[r].unwrap();
                *result.usage.entry(format!("{}/{resource}", choice.0)).or_default() += quantity;
            }
            let mode =
                if reasons.is_empty() { Mode::Fit } else { mine.values().map(|c| c.1).min().unwrap_or(Mode::NoFit) };
            worst = Some(worst.map_or(mode, |w| w.min(mode)));
            stop |= mine.is_empty() && case.pod_sets[m].requests.iter().any(Option::is_some);
            result.pod_sets.push((m, mine, reasons.clone()));
        }
        if failed || stop {
            // Only members that ask for something stop the assignment.
            if stop {
                break;
            }
        }
    }
    result.mode = worst.unwrap_or(Mode::NoFit);
    result
}

fn scan(
    setup: &Setup,
    case: &Case,
    at: usize,
    members: &[usize],
    total: &BTreeMap<usize, i64>,
    start: usize,
    used: &BTreeMap<String, i64>,
) -> (Choices, BTreeSet<String>) {
    let before: usize = case.groups[..at].iter().map(|g| g.flavors.len()).sum();
    let group = &case.groups[at];
    let mut reasons = BTreeSet::new();
    let mut best = (Quality::WORST, Choices::new());
    let mut tried = None;
    for f in start..group.flavors.len() {
        tried = Some(f);
        let flavor = format!("f{}", before + f);
        if members.iter().any(|&m| case.pod_sets[m].repelled.contains(&(before + f))) {
            reasons.insert(format!("untolerated taint {{t{}  NoSchedule <nil>}} in flavor {flavor}", before + f));
            continue;
        }
        let mut quality = Quality::BEST;
        let mut choices = Choices::new();
        let mut order: Vec<usize> = group.resources.iter().copied().filter(|r| total.contains_key(r)).collect();
        order.sort_by(|&a, &b| vector_order(RESOURCES[a], RESOURCES[b]));
        for r in order {
            let name = RESOURCES[r];
            let already = used.get(&format!("{flavor}/{name}")).copied().unwrap_or(0);
            let (one, why) = weigh(setup, case, &flavor, name, already, total[&r]);
            reasons.extend(why);
            if quality.is_preferred_over(one, case.fungibility.preference) {
                quality = one;
            }
            choices.insert(name.to_owned(), (flavor.clone(), one.mode.mode(), 0, one.borrow));
        }
        let stops = !quality.is_worth_trying_next(&case.fungibility);
        if stops || quality.is_preferred_over(best.0, case.fungibility.preference) {
            best = (quality, choices);
        }
        if stops {
            break;
        }
    }
    let position = match tried {
        Some(f) if f + 1 < group.flavors.len() => i64::try_from(f).unwrap(),
        _ => -1,
    };
    for choice in best.1.values_mut() {
        choice.2 = position;
    }
    if best.0.mode == GranularMode::Fit {
        reasons.clear();
    }
    (best.1, reasons)
}

fn weigh(
    setup: &Setup,
    case: &Case,
    flavor: &str,
    resource: &str,
    already: i64,
    request: i64,
) -> (Quality, Option<String>) {
    let names = &setup.names;
    let pair = names.pair(names.flavor(flavor).unwrap(), names.resource(resource).unwrap()).unwrap();
    let (forest, node) = (&setup.forest, setup.node);
    let show = |n: i64| Amount::new(n).display(resource).to_string();
    let value = already + request;
    let potential = forest.potential(node, pair).value();
    if value > potential {
        let text = format!(
            "insufficient quota for {resource} in flavor {flavor}, previously considered podsets requests ({}) + current \
             podset request ({}) > maximum capacity ({})",
            show(already),
            show(request),
            show(potential)
        );
        return (Quality { mode: GranularMode::NoFit, borrow: 0 }, Some(text));
    }
    let (level, may_reclaim) = forest.level(node, pair, Amount::new(value));
    let available = forest.available(node, pair).value();
    if value <= available {
        return (Quality { mode: GranularMode::Fit, borrow: level }, None);
    }
    let text =
        format!("insufficient unused quota for {resource} in flavor {flavor}, {} more needed", show(value - available));
    if forest.nominal(node, pair).value() >= value || may_reclaim || case.fair_sharing {
        let answer = setup.answers[&pair];
        let mode = match answer.possibility {
            Possibility::NoCandidates => GranularMode::NoPreemptionCandidates,
            Possibility::Preempt => GranularMode::Preempt,
            Possibility::Reclaim => GranularMode::Reclaim,
        };
        return (Quality { mode, borrow: answer.level }, Some(text));
    }
    (Quality { mode: GranularMode::NoFit, borrow: level }, Some(text))
}

fn tried(assignment: &Assignment) -> LastTried {
    LastTried { flavors: assignment.last_tried(), ..LastTried::default() }
}

proptest! {
    #[test]
    fn assignments_are_those_of_the_reference(case in case()) {
        let mut setup = Setup::new(&case);
        let mut assigner = Assigner::new(Features::default());
        let first = setup.assign(&case, &mut assigner, None);
        let got = plain(&setup, &first);
        prop_assert_eq!(&got, &reference(&setup, &case, None));
        // The next cycle goes on where this one stopped, with buffers that were used before.
        let second = setup.assign(&case, &mut assigner, Some(&tried(&first)));
        let last: Vec<Choices> = got.pod_sets.iter().map(|p| p.1.clone()).collect();
        prop_assert_eq!(plain(&setup, &second), reference(&setup, &case, Some(&last)));
    }

    #[test]
    fn nothing_is_assigned_beyond_what_could_be_had(case in case()) {
        let mut setup = Setup::new(&case);
        let assignment = setup.assign(&case, &mut Assigner::default(), None);
        if assignment.mode != Mode::NoFit {
            for (pair, amount) in &assignment.usage {
                prop_assert!(*amount <= setup.forest.potential(setup.node, *pair));
            }
        }
    }

    #[test]
    fn what_fits_is_free(case in case()) {
        let mut setup = Setup::new(&case);
        let assignment = setup.assign(&case, &mut Assigner::default(), None);
        let all_fit = assignment.pod_sets.iter().flat_map(|p| &p.flavors).all(|c| c.mode == Mode::Fit);
        if assignment.mode == Mode::Fit && all_fit {
            for (pair, amount) in &assignment.usage {
                prop_assert!(*amount <= setup.forest.available(setup.node, *pair));
            }
        }
    }

    #[test]
    fn resources_of_one_group_and_pod_sets_of_one_group_share_flavors(case in case()) {
        let mut setup = Setup::new(&case);
        let got = fresh(&mut setup, &case);
        for (m, choices, _) in &got.pod_sets {
            for group in &case.groups {
                let flavors: BTreeSet<&String> =
                    group.resources.iter().filter_map(|&r| Some(&choices.get(RESOURCES[r])?.0)).collect();
                prop_assert!(flavors.len() <= 1);
            }
            for (other, theirs, _) in &got.pod_sets {
                if case.pod_sets[*m].group.is_some() && case.pod_sets[*m].group == case.pod_sets[*other].group {
                    for (resource, choice) in choices {
                        prop_assert!(theirs.get(resource).is_none_or(|c| c.0 == choice.0));
                    }
                }
            }
        }
    }

    #[test]
    fn a_flavor_that_cannot_be_had_might_as_well_not_be_there(case in case()) {
        let mut one = case;
        one.pod_sets.truncate(1);
        one.groups.truncate(1);
        let mut setup = Setup::new(&one);
        let with = fresh(&mut setup, &one);
        let assignment = setup.assign(&one, &mut Assigner::default(), None);
        let Some(useless) = assignment.pod_sets[0].attempts.iter().find(|a| a.mode == Mode::NoFit) else { return Ok(()) };
        let name = setup.names.flavor_name(useless.flavor).to_owned();
        let at: usize = name[1..].parse().unwrap();
        if one.groups[0].flavors.len() == 1 {
            return Ok(());
        }
        // Emptied rather than removed, so that names stay: no quota at all.
        let mut without = one.clone();
        let flavor = &mut without.groups[0].flavors[at];
        flavor.nominal.fill(0);
        flavor.lent.fill(0);
        let needs_something = one.groups[0].resources.iter().any(|&r| one.pod_sets[0].requests[r].is_some_and(|q| q > 0));
        if !needs_something {
            return Ok(());
        }
        let mut setup = Setup::new(&without);
        let got = fresh(&mut setup, &without);
        prop_assert_eq!(got.mode, with.mode);
        prop_assert_eq!(&got.pod_sets[0].1, &with.pod_sets[0].1);
    }

    #[test]
    fn repeated_scans_come_round(case in case()) {
        let mut case = case;
        case.pod_sets.truncate(1);
        case.groups.truncate(1);
        let mut setup = Setup::new(&case);
        let mut last: Option<LastTried> = None;
        let mut rounds = 0;
        for _ in 0..case.groups[0].flavors.len() {
            let assignment = setup.assign(&case, &mut Assigner::default(), last.as_ref());
            let now = tried(&assignment);
            rounds += usize::from(!now.has_pending());
            last = Some(now);
        }
        prop_assert!(rounds > 0, "some scan reaches the last flavor");
    }
}
