//! The words in which assignments are told.

use slicegate_quota::{Amount, FlavorId, Names, ResourceId, request_quantity};

use crate::{Assignment, Attempt, FlavorTable, Impossible, Mode, PodSetResult, Possibility, Reason};

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
        match reason {
            Reason::Undeclared { resource } => {
                format!("resource {} unavailable in ClusterQueue", self.resource(*resource))
            }
            Reason::FlavorNotFound { flavor } => format!("flavor {} not found", self.flavor(*flavor)),
            Reason::NoTopology { flavor } => {
                format!("Flavor {:?} does not support TopologyAwareScheduling", self.flavor(*flavor))
            }
            Reason::TopologyUnknown { flavor } => {
                format!("Flavor {:?} information missing in TAS cache", self.flavor(*flavor))
            }
            Reason::NoSuchLevel { flavor } => {
                format!("Flavor {:?} does not contain the requested level", self.flavor(*flavor))
            }
            Reason::TopologyOnly { flavor } => {
                format!("Flavor {:?} supports only TopologyAwareScheduling", self.flavor(*flavor))
            }
            Reason::UntoleratedTaint { flavor, taint } => {
                let taint = self.flavors.get(*flavor).zip(usize::try_from(*taint).ok());
                let text = taint
                    .and_then(|(f, at)| f.node_taints.get(at))
                    .map_or_else(String::new, |t| format!("{{{} {} {} <nil>}}", t.key, t.value, t.effect.as_str()));
                format!("untolerated taint {text} in flavor {}", self.flavor(*flavor))
            }
            Reason::AffinityMismatch { flavor } => {
                format!("flavor {} doesn't match node affinity", self.flavor(*flavor))
            }
            Reason::NotNominated { flavor, resource } => format!(
                "skipping flavor {} as it is not found in the nomination mapping for resource {}",
                self.flavor(*flavor),
                self.resource(*resource)
            ),
            Reason::NotAllowed { flavor } => format!(
                "skipping flavor {} due to WorkloadAllowedResourceFlavorAnnotation annotation",
                self.flavor(*flavor)
            ),
            Reason::SliceUsesAnother { flavor, replaced } => format!(
                "could not assign {} flavor since the original workload is assigned: {}",
                self.flavor(*flavor),
                replaced.map_or("", |f| self.flavor(f))
            ),
            Reason::ExceedsPotential { flavor, resource, previous, request, potential } => format!(
                "insufficient quota for {} in flavor {}, previously considered podsets requests ({}) + current podset \
                 request ({}) > maximum capacity ({})",
                self.resource(*resource),
                self.flavor(*flavor),
                self.amount(*resource, *previous),
                // A request is a number: one that saturated is not unlimited.
                request_quantity(self.resource(*resource), request.value()),
                self.amount(*resource, *potential)
            ),
            Reason::Insufficient { flavor, resource, needed, available, .. } => format!(
                "insufficient unused quota for {} in flavor {}, {} more needed",
                self.resource(*resource),
                self.flavor(*flavor),
                self.amount(*resource, needed.minus(*available))
            ),
            Reason::Placement { message } => message.to_string(),
        }
    }

    /// Why a pod set cannot be assigned at all.
    pub fn impossible(&self, error: &Impossible) -> String {
        match error {
            Impossible::InvalidAffinity(error) => error.to_string(),
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
        let mut parts = Vec::new();
        for result in &assignment.pod_sets {
            let name = pod_set(result.pod_set);
            if let Some(error) = &result.error {
                return format!("failed to assign flavors to pod set {name}: {}", self.impossible(error));
            }
            if !result.reasons.is_empty() {
                let mut reasons: Vec<String> = result.reasons.iter().map(|r| self.reason(r)).collect();
                reasons.sort_unstable();
                parts.push(format!("couldn't assign flavors to pod set {name}: {}", reasons.join(", ")));
            }
        }
        parts.join("; ")
    }

    /// The flavors that were looked at, for events: `pod set: flavor(mode;...), ... | pod set: ...`. Flavors that simply fit are
    /// left out, and so are pod sets of which nothing remains.
    pub fn attempts<'n>(&self, assignment: &Assignment, pod_set: impl Fn(usize) -> &'n str) -> String {
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
        let mut attempts: Vec<&Attempt> =
            result.attempts.iter().filter(|a| a.mode != Mode::Fit || a.borrow > 0).collect();
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

    fn amount(&self, resource: ResourceId, amount: Amount) -> String {
        amount.display(self.resource(resource)).to_string()
    }
}
