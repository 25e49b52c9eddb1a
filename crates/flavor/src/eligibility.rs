//! Which flavors suit a pod, quota aside.

use slicegate_quota::FlavorId;
use slicegate_workload::{FlavorSpec, Labels, Operator, PodSpec, Requirement, Taint, TaintEffect};

use crate::FlavorTable;

/// Whether a flavor suits a pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It does.
    Suits,
    /// There is no such flavor.
    NotFound,
    /// The taint at this position of the flavor's `node_taints` is not tolerated.
    UntoleratedTaint(u32),
    /// The pod's node selector or affinity excludes the flavor's labels.
    AffinityMismatch,
    /// The pod's affinity makes no sense, and no alternative of it that does accepts the flavor's labels.
    InvalidAffinity(InvalidRequirement),
}

/// A requirement of a node affinity that makes no sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidRequirement {
    /// The position in `nodeSelectorTerms`.
    pub term: u32,
    /// The position in the term's `matchExpressions`.
    pub requirement: u32,
    /// What is wrong with it.
    pub fault: RequirementFault,
}

/// What is wrong with a requirement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequirementFault {
    /// `In` and `NotIn` need values.
    NoValues,
    /// `Exists` and `DoesNotExist` take none.
    UnwantedValues,
    /// `Gt` and `Lt` need exactly one.
    NotOneValue,
    /// That one has to be an integer.
    NotAnInteger,
}

/// Which flavors suit the pods of a pod set: taints and labels compared once, by index of flavor.
///
/// Depends on nothing but the pod and the flavors, so it is made when a workload appears and again only if
/// [`FlavorTable::generation`] has moved on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Eligibility {
    verdicts: Vec<Verdict>,
    has_topology: Vec<bool>,
    generation: u64,
}

impl Eligibility {
    /// Compares a pod with every flavor.
    pub fn new(pod: &PodSpec, flavors: &FlavorTable) -> Self {
        let verdicts =
            flavors.iter().map(|(_, flavor)| flavor.map_or(Verdict::NotFound, |flavor| verdict(pod, flavor))).collect();
        let has_topology = flavors.iter().map(|(_, flavor)| flavor.is_some_and(|f| f.topology.is_some())).collect();
        Self { verdicts, has_topology, generation: flavors.generation() }
    }

    /// The verdict on one flavor.
    pub fn verdict(&self, flavor: FlavorId) -> &Verdict {
        self.verdicts.get(flavor.index()).unwrap_or(&Verdict::NotFound)
    }

    /// Whether the flavor names a topology.
    pub fn has_topology(&self, flavor: FlavorId) -> bool {
        self.has_topology.get(flavor.index()).copied().unwrap_or(false)
    }

    /// The generation of the flavors it was made for.
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

fn verdict(pod: &PodSpec, flavor: &FlavorSpec) -> Verdict {
    let tolerated = |taint: &Taint| {
        taint.effect == TaintEffect::PreferNoSchedule
            || pod.tolerations.iter().chain(&flavor.tolerations).any(|t| t.tolerates(taint))
    };
    if let Some(at) = flavor.node_taints.iter().position(|t| !tolerated(t)) {
        return Verdict::UntoleratedTaint(u32::try_from(at).unwrap_or(u32::MAX));
    }
    node_verdict(pod, &flavor.node_labels)
}

/// Whether the pod accepts nodes with these labels, as far as one can tell from them: requirements on other labels are left
/// out, for nodes of the flavor may or may not meet them. Alternatives of which nothing is left are met by anything.
fn node_verdict(pod: &PodSpec, labels: &Labels) -> Verdict {
    let known = |key: &str| labels.contains_key(key);
    let selected =
        pod.node_selector.iter().filter(|(key, _)| known(key)).all(|(key, value)| labels.get(key) == Some(value));
    if !selected {
        return Verdict::AffinityMismatch;
    }
    let required = pod.node_affinity.as_ref().and_then(|a| a.required.as_deref()).unwrap_or_default();
    let mut verdict = if required.is_empty() { Verdict::Suits } else { Verdict::AffinityMismatch };
    if required.iter().any(|term| !term.match_expressions.iter().any(|r| known(&r.key))) {
        return Verdict::Suits;
    }
    for (i, term) in required.iter().enumerate() {
        let mut concerning = term.match_expressions.iter().enumerate().filter(|(_, r)| known(&r.key));
        let invalid = concerning.clone().find_map(|(j, r)| Some((j, fault(r)?)));
        if let Some((j, fault)) = invalid {
            if verdict == Verdict::AffinityMismatch {
                let position = |i| u32::try_from(i).unwrap_or(u32::MAX);
                let (term, requirement) = (position(i), position(j));
                verdict = Verdict::InvalidAffinity(InvalidRequirement { term, requirement, fault });
            }
        } else if concerning.all(|(_, r)| r.matches(labels)) {
            return Verdict::Suits;
        }
    }
    verdict
}

fn fault(requirement: &Requirement) -> Option<RequirementFault> {
    let values = &requirement.values;
    match requirement.operator {
        Operator::In | Operator::NotIn => values.is_empty().then_some(RequirementFault::NoValues),
        Operator::Exists | Operator::DoesNotExist => (!values.is_empty()).then_some(RequirementFault::UnwantedValues),
        Operator::Gt | Operator::Lt => match values.as_slice() {
            [one] => one.parse::<i64>().is_err().then_some(RequirementFault::NotAnInteger),
            _ => Some(RequirementFault::NotOneValue),
        },
    }
}

#[cfg(test)]
mod tests {
    use slicegate_quota::Names;
    use slicegate_workload::{NodeAffinity, SelectorTerm, Toleration};

    use super::*;

    fn labels(entries: &[(&str, &str)]) -> Labels {
        entries.iter().map(|&(k, v)| (k.into(), v.into())).collect()
    }

    fn flavor(entries: &[(&str, &str)]) -> FlavorSpec {
        FlavorSpec { node_labels: labels(entries), ..FlavorSpec::default() }
    }

    fn requirement(key: &str, operator: Operator, values: &[&str]) -> Requirement {
        Requirement { key: key.into(), operator, values: values.iter().map(|&v| v.into()).collect() }
    }

    fn affine(terms: &[&[Requirement]]) -> PodSpec {
        let terms =
            terms.iter().map(|t| SelectorTerm { match_expressions: t.to_vec(), ..SelectorTerm::default() }).collect();
        let node_affinity = Some(NodeAffinity { required: Some(terms), ..NodeAffinity::default() });
        PodSpec { node_affinity, ..PodSpec::default() }
    }

    fn selecting(entries: &[(&str, &str)]) -> PodSpec {
        PodSpec { node_selector: labels(entries), ..PodSpec::default() }
    }

    #[test]
    fn only_labels_that_the_flavor_has_are_compared() {
        let zone_a = flavor(&[("zone", "a")]);
        assert_eq!(verdict(&selecting(&[("zone", "a"), ("disk", "ssd")]), &zone_a), Verdict::Suits);
        assert_eq!(verdict(&selecting(&[("zone", "b")]), &zone_a), Verdict::AffinityMismatch);
        assert_eq!(verdict(&selecting(&[("zone", "b")]), &flavor(&[])), Verdict::Suits);
        let not_b = requirement("zone", Operator::NotIn, &["b"]);
        let ssd = requirement("disk", Operator::In, &["ssd"]);
        assert_eq!(verdict(&affine(&[&[not_b.clone(), ssd.clone()]]), &zone_a), Verdict::Suits);
        assert_eq!(verdict(&affine(&[&[not_b, ssd]]), &flavor(&[("zone", "b")])), Verdict::AffinityMismatch);
    }

    #[test]
    fn an_alternative_without_a_known_label_is_open_to_all() {
        let zone_a = flavor(&[("zone", "a")]);
        let in_b = requirement("zone", Operator::In, &["b"]);
        let ssd = requirement("disk", Operator::Exists, &[]);
        assert_eq!(verdict(&affine(&[std::slice::from_ref(&in_b)]), &zone_a), Verdict::AffinityMismatch);
        let either: &[&[Requirement]] = &[std::slice::from_ref(&in_b), std::slice::from_ref(&ssd)];
        assert_eq!(verdict(&affine(either), &zone_a), Verdict::Suits);
        // The node selector counts all the same.
        let mut pod = affine(either);
        pod.node_selector = labels(&[("zone", "b")]);
        assert_eq!(verdict(&pod, &zone_a), Verdict::AffinityMismatch);
    }

    #[test]
    fn what_makes_no_sense_is_an_error_unless_another_alternative_holds() {
        let zone_a = flavor(&[("zone", "a")]);
        for (operator, values, fault) in [
            (Operator::In, &[][..], RequirementFault::NoValues),
            (Operator::Exists, &["a"], RequirementFault::UnwantedValues),
            (Operator::Gt, &["1", "2"], RequirementFault::NotOneValue),
            (Operator::Lt, &["one"], RequirementFault::NotAnInteger),
        ] {
            let invalid = requirement("zone", operator, values);
            let in_b = requirement("zone", Operator::In, &["b"]);
            let in_a = requirement("zone", Operator::In, &["a"]);
            let want = Verdict::InvalidAffinity(InvalidRequirement { term: 1, requirement: 1, fault });
            let terms: &[&[Requirement]] = &[std::slice::from_ref(&in_b), &[in_b.clone(), invalid.clone()]];
            assert_eq!(verdict(&affine(terms), &zone_a), want);
            assert_eq!(verdict(&affine(&[&[invalid], &[in_a]]), &zone_a), Verdict::Suits);
        }
    }

    #[test]
    fn taints_are_tolerated_by_the_pod_or_by_the_flavor() {
        let taint = |key: &str, effect| Taint { key: key.into(), value: "v".into(), effect };
        let toleration = |key: &str| Toleration { key: key.into(), value: "v".into(), ..Toleration::default() };
        let mut tainted = flavor(&[("zone", "a")]);
        tainted.node_taints = vec![
            taint("soft", TaintEffect::PreferNoSchedule),
            taint("one", TaintEffect::NoSchedule),
            taint("two", TaintEffect::NoExecute),
        ];
        let mut pod = selecting(&[("zone", "b")]);
        assert_eq!(verdict(&pod, &tainted), Verdict::UntoleratedTaint(1), "taints come before labels");
        pod.tolerations = vec![toleration("one")];
        assert_eq!(verdict(&pod, &tainted), Verdict::UntoleratedTaint(2));
        tainted.tolerations = vec![toleration("two")];
        assert_eq!(verdict(&pod, &tainted), Verdict::AffinityMismatch);
    }

    #[test]
    fn eligibility_covers_the_flavors_there_are() {
        let mut names = Names::new();
        let (one, gone, two) = (names.intern_flavor("one"), names.intern_flavor("gone"), names.intern_flavor("two"));
        let mut table = FlavorTable::new();
        table.set(one, flavor(&[("zone", "a")]));
        table.set(two, FlavorSpec { topology: Some("rack".into()), ..FlavorSpec::default() });
        let eligibility = Eligibility::new(&selecting(&[("zone", "b")]), &table);
        assert_eq!(*eligibility.verdict(one), Verdict::AffinityMismatch);
        assert_eq!(*eligibility.verdict(gone), Verdict::NotFound);
        assert_eq!(*eligibility.verdict(two), Verdict::Suits);
        assert_eq!(*eligibility.verdict(names.intern_flavor("later")), Verdict::NotFound);
        assert!(eligibility.has_topology(two) && !eligibility.has_topology(one));
        assert_eq!(eligibility.generation(), table.generation());
        table.remove(two);
        assert_ne!(eligibility.generation(), table.generation());
        assert_eq!(*Eligibility::new(&PodSpec::default(), &table).verdict(two), Verdict::NotFound);
    }
}
