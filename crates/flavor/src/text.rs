//! The words in which assignments are told.

use std::fmt::Write as _;

use slicegate_quota::{Amount, AmountText, FlavorId, Names, ResourceId, request_quantity};

use crate::{
    Assignment, Attempt, FlavorTable, Impossible, InvalidRequirement, Mode, PodSetResult, Possibility, Reason,
    RequirementFault,
};

/// Renders reasons in Kueue's words, given the names behind the ids.
#[derive(Clone, Copy, Debug)]
pub struct Catalogue<'a> {
    /// The names.
    pub names: &'a Names,
    /// The flavors, for their taints.
    pub flavors: &'a FlavorTable,
}

impl Catalogue<'_> {
    /// Why a flavor was not taken, or not as it is.
    pub fn reason(&self, reason: &Reason) -> String {
        let mut text = String::new();
        self.write_reason(&mut text, reason);
        text
    }

    fn write_reason(&self, out: &mut String, reason: &Reason) {
        // Writing to a String cannot fail.
        let _ = match reason {
            Reason::Undeclared { resource } => {
                write!(out, "resource {} unavailable in ClusterQueue", self.resource(*resource))
            }
            Reason::FlavorNotFound { flavor } => write!(out, "flavor {} not found", self.flavor(*flavor)),
            Reason::NoTopology { flavor } => {
                write!(out, "Flavor {:?} does not support TopologyAwareScheduling", self.flavor(*flavor))
            }
            Reason::TopologyUnknown { flavor } => {
                write!(out, "Flavor {:?} information missing in TAS cache", self.flavor(*flavor))
            }
            Reason::NoSuchLevel { flavor } => {
                write!(out, "Flavor {:?} does not contain the requested level", self.flavor(*flavor))
            }
            Reason::TopologyOnly { flavor } => {
                write!(out, "Flavor {:?} supports only TopologyAwareScheduling", self.flavor(*flavor))
            }
            Reason::UntoleratedTaint { flavor, taint } => {
                let taint = self.flavors.get(*flavor).zip(usize::try_from(*taint).ok());
                let text = taint
                    .and_then(|(f, at)| f.node_taints.get(at))
                    .map_or_else(String::new, |t| format!("{{{} {} {} <nil>}}", t.key, t.value, t.effect.as_str()));
                write!(out, "untolerated taint {text} in flavor {}", self.flavor(*flavor))
            }
            Reason::AffinityMismatch { flavor } => {
                write!(out, "flavor {} doesn't match node affinity", self.flavor(*flavor))
            }
            Reason::NotNominated { flavor, resource } => write!(
                out,
                "skipping flavor {} as it is not found in the nomination mapping for resource {}",
                self.flavor(*flavor),
                self.resource(*resource)
            ),
            Reason::NotAllowed { flavor } => write!(
                out,
                "skipping flavor {} due to WorkloadAllowedResourceFlavorAnnotation annotation",
                self.flavor(*flavor)
            ),
            Reason::SliceUsesAnother { flavor, replaced } => write!(
                out,
                "could not assign {} flavor since the original workload is assigned: {}",
                self.flavor(*flavor),
                replaced.map_or("", |f| self.flavor(f))
            ),
            Reason::ExceedsPotential { flavor, resource, previous, request, potential } => write!(
                out,
                "insufficient quota for {} in flavor {}, previously considered podsets requests ({}) + current podset \
                 request ({}) > maximum capacity ({})",
                self.resource(*resource),
                self.flavor(*flavor),
                self.amount(*resource, *previous),
                // A request is a number: one that saturated is not unlimited.
                request_quantity(self.resource(*resource), request.value()),
                self.amount(*resource, *potential)
            ),
            Reason::Insufficient { flavor, resource, needed, available, .. } => write!(
                out,
                "insufficient unused quota for {} in flavor {}, {} more needed",
                self.resource(*resource),
                self.flavor(*flavor),
                self.amount(*resource, needed.minus(*available))
            ),
            Reason::Placement { message } => out.write_str(message),
            Reason::Slices { flavor, shortage } => {
                write!(out, "insufficient whole slices in flavor {}, {shortage}", self.flavor(*flavor))
            }
        };
    }

    /// Why a pod set cannot be assigned at all.
    pub fn impossible(&self, error: &Impossible) -> String {
        match error {
            Impossible::InvalidAffinity(invalid) => {
                let InvalidRequirement { term, requirement, fault } = invalid;
                let what = match fault {
                    RequirementFault::NoValues => "In and NotIn need values",
                    RequirementFault::UnwantedValues => "Exists and DoesNotExist take no values",
                    RequirementFault::NotOneValue => "Gt and Lt need exactly one value",
                    RequirementFault::NotAnInteger => "the value for Gt and Lt must be an integer",
                };
                format!("nodeSelectorTerms[{term}].matchExpressions[{requirement}].values: {what}")
            }
            Impossible::NoTopologies => "workload requires Topology, but there is no TAS cache information".to_owned(),
            Impossible::NoTopologyFlavor => "no TAS flavor assigned".to_owned(),
            Impossible::SeveralTopologyFlavors(flavors) => {
                let mut names: Vec<&str> = flavors.iter().map(|&f| self.flavor(f)).collect();
                names.sort_unstable();
                format!("more than one TAS flavor assigned: {}", names.join(", "))
            }
            Impossible::RequiredWithElastic => {
                "required topology is not supported with ElasticJobsViaWorkloadSlices".to_owned()
            }
            Impossible::PreferredWithElastic => {
                "preferred topology is not supported with ElasticJobsViaWorkloadSlices".to_owned()
            }
        }
    }

    /// Why the workload does not fit, or does so only by preemption. Empty if it fits. `pod_set` names pod sets by their
    /// position in the spec.
    pub fn message<'n>(&self, assignment: &Assignment, pod_set: impl Fn(usize) -> &'n str) -> String {
        let mut text = String::new();
        for result in &assignment.pod_sets {
            let name = pod_set(result.pod_set);
            if let Some(error) = &result.error {
                return format!("failed to assign flavors to pod set {name}: {}", self.impossible(error));
            }
            if result.reasons.is_empty() {
                continue;
            }
            text.reserve(160);
            text.push_str(if text.is_empty() { "" } else { "; " });
            let _ = write!(text, "couldn't assign flavors to pod set {name}: ");
            if let [only] = result.reasons.as_slice() {
                self.write_reason(&mut text, only);
            } else {
                let mut reasons: Vec<String> = result.reasons.iter().map(|r| self.reason(r)).collect();
                reasons.sort_unstable();
                text.push_str(&reasons.join(", "));
            }
        }
        text
    }

    /// The flavors that were looked at, for events: `pod set: flavor(mode;...), ... | pod set: ...`. Flavors that simply fit are
    /// left out, and so are pod sets of which nothing remains.
    pub fn attempts<'n>(&self, assignment: &Assignment, pod_set: impl Fn(usize) -> &'n str) -> String {
        if assignment.pod_sets.iter().flat_map(|p| &p.attempts).all(simply_fits) {
            return String::new();
        }
        let parts: Vec<String> = assignment
            .pod_sets
            .iter()
            .filter_map(|result| {
                let flavors = self.attempts_of(result);
                (!flavors.is_empty()).then(|| format!("{}: {}", pod_set(result.pod_set), flavors.join(", ")))
            })
            .collect();
        parts.join(" | ")
    }

    fn attempts_of(&self, result: &PodSetResult) -> Vec<String> {
        let mut attempts: Vec<&Attempt> = result.attempts.iter().filter(|a| !simply_fits(a)).collect();
        attempts.sort_by(|a, b| self.flavor(a.flavor).cmp(self.flavor(b.flavor)));
        attempts
            .iter()
            .map(|a| {
                let mode = match a.possibility {
                    Some(possibility) if a.mode == Mode::Preempt => {
                        format!("preemptionMode={}", Possibility::as_str(possibility))
                    }
                    _ => a.mode.as_str().to_owned(),
                };
                let mut parts = vec![mode];
                if a.borrow > 0 {
                    parts.push(format!("borrow={}", a.borrow));
                }
                let mut reasons: Vec<String> = a.reasons.iter().map(|r| self.reason(r)).collect();
                reasons.sort_unstable();
                reasons.dedup();
                parts.append(&mut reasons);
                format!("{}({})", self.flavor(a.flavor), parts.join(";"))
            })
            .collect()
    }

    fn flavor(&self, id: FlavorId) -> &str {
        self.names.flavor_name(id)
    }

    fn resource(&self, id: ResourceId) -> &str {
        self.names.resource_name(id)
    }

    fn amount(&self, resource: ResourceId, amount: Amount) -> AmountText<'_> {
        amount.display(self.resource(resource))
    }
}

/// Whether a flavor was found to fit without borrowing: nothing to tell.
fn simply_fits(attempt: &Attempt) -> bool {
    attempt.mode == Mode::Fit && attempt.borrow == 0
}

#[cfg(test)]
mod tests {
    use slicegate_workload::{FlavorSpec, Taint, TaintEffect};

    use crate::testing::{Desk, NEXT, pods};
    use crate::{Impossible, InvalidRequirement, Possibility, RequirementFault};

    #[test]
    fn a_message_lists_what_is_wrong_with_each_pod_set() {
        let mut desk = Desk::two().uses("x", "cpu", 2).uses("y", "cpu", 3).on(NEXT, NEXT);
        let mut assignment = desk.assign(&[pods(1, &[("cpu", 3)]), pods(1, &[("gpu", 1)])]);
        let names = ["one", "two"];
        assert_eq!(
            desk.catalogue().message(&assignment, |i| names[i]),
            "couldn't assign flavors to pod set one: insufficient unused quota for cpu in flavor x, 1m more needed, \
             insufficient unused quota for cpu in flavor y, 2m more needed; couldn't assign flavors to pod set two: \
             resource gpu unavailable in ClusterQueue"
        );
        assignment.pod_sets[1].error = Some(Impossible::NoTopologyFlavor);
        assert_eq!(
            desk.catalogue().message(&assignment, |i| names[i]),
            "failed to assign flavors to pod set two: no TAS flavor assigned"
        );
        let fits = desk.assign(&[pods(1, &[("cpu", 1)])]);
        assert_eq!(desk.catalogue().message(&fits, |i| names[i]), "");
    }

    #[test]
    fn attempts_tell_how_each_flavor_would_do() {
        let mut desk = Desk::new()
            .group(&["cpu"], &[("spot", &[4]), ("gone", &[4]), ("big", &[9]), ("extra", &[1])])
            .on(NEXT, NEXT)
            .uses("spot", "cpu", 3)
            .lends("extra", "cpu", 5)
            .oracle("spot", "cpu", Possibility::Reclaim, 1);
        let gone = desk.flavor("gone");
        desk.flavors.remove(gone);
        let assignment = desk.assign(&[pods(1, &[("cpu", 2)]), pods(1, &[("cpu", 9)])]);
        assert_eq!(
            desk.catalogue().attempts(&assignment, |i| ["one", "two"][i]),
            "one: gone(NoFit;flavor gone not found), spot(preemptionMode=Reclaim;borrow=1;insufficient unused quota for \
             cpu in flavor spot, 1m more needed) | two: big(NoFit;insufficient quota for cpu in flavor big, previously \
             considered podsets requests (2m) + current podset request (9m) > maximum capacity (9m)), \
             extra(NoFit;insufficient quota for cpu in flavor extra, previously considered podsets requests (0) + \
             current podset request (9m) > maximum capacity (6m)), gone(NoFit;flavor gone not found), \
             spot(NoFit;insufficient quota for cpu in flavor spot, previously considered podsets requests (0) + \
             current podset request (9m) > maximum capacity (4m))"
        );
    }

    #[test]
    fn a_taint_is_shown_with_its_parts() {
        let mut desk = Desk::two();
        for (name, value) in [("x", "spot"), ("y", "")] {
            let id = desk.flavor(name);
            let taint = Taint { key: "instance".into(), value: value.into(), effect: TaintEffect::NoSchedule };
            desk.flavors.set(id, FlavorSpec { node_taints: vec![taint], ..FlavorSpec::default() });
        }
        let assignment = desk.assign(&[pods(1, &[("cpu", 1)])]);
        assert_eq!(
            desk.reasons(&assignment, 0),
            [
                "untolerated taint {instance spot NoSchedule <nil>} in flavor x",
                "untolerated taint {instance  NoSchedule <nil>} in flavor y"
            ]
        );
    }

    #[test]
    fn an_affinity_that_makes_no_sense_is_located() {
        let invalid = InvalidRequirement { term: 1, requirement: 0, fault: RequirementFault::NoValues };
        assert_eq!(
            Desk::two().catalogue().impossible(&Impossible::InvalidAffinity(invalid)),
            "nodeSelectorTerms[1].matchExpressions[0].values: In and NotIn need values"
        );
    }
}
