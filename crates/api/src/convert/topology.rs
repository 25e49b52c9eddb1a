//! Topology requests and assignments.

use slicegate_workload::{
    EncodedAssignment, EncodedCounts, EncodedSlice, EncodedValues, TopologyAssignment, TopologyConstraint,
    TopologyRequest,
};

use super::{ConvertError, Problem, Result, name, strings};
use crate::kueue::{self, IndividualValues, LevelValues, PodCounts, TopologyAssignmentSlice};
use crate::path::Path;

/// The most domains of one slice.
const MAX_DOMAINS: usize = 100_000;

/// A topology request.
pub fn topology_request(request: &kueue::PodSetTopologyRequest) -> TopologyRequest {
    TopologyRequest {
        required: name(request.required.as_deref()),
        preferred: name(request.preferred.as_deref()),
        unconstrained: request.unconstrained,
        pod_index_label: name(request.pod_index_label.as_deref()),
        sub_group_index_label: name(request.sub_group_index_label.as_deref()),
        sub_group_count: request.sub_group_count,
        pod_set_group_name: name(request.pod_set_group_name.as_deref()),
        slice_required_topology: name(request.pod_set_slice_required_topology.as_deref()),
        slice_size: request.pod_set_slice_size,
        slice_constraints: request
            .pod_set_slice_required_topology_constraints
            .iter()
            .map(|c| TopologyConstraint { topology: c.topology.as_str().into(), size: c.size })
            .collect(),
    }
}

/// A topology request for the API.
pub fn topology_request_to_api(request: &TopologyRequest) -> kueue::PodSetTopologyRequest {
    let text = |t: Option<&str>| t.map(str::to_owned);
    kueue::PodSetTopologyRequest {
        required: text(request.required.as_deref()),
        preferred: text(request.preferred.as_deref()),
        unconstrained: request.unconstrained,
        pod_index_label: text(request.pod_index_label.as_deref()),
        sub_group_index_label: text(request.sub_group_index_label.as_deref()),
        sub_group_count: request.sub_group_count,
        pod_set_group_name: text(request.pod_set_group_name.as_deref()),
        pod_set_slice_required_topology: text(request.slice_required_topology.as_deref()),
        pod_set_slice_size: request.slice_size,
        pod_set_slice_required_topology_constraints: request
            .slice_constraints
            .iter()
            .map(|c| kueue::SliceTopologyConstraint { topology: c.topology.to_string(), size: c.size })
            .collect(),
    }
}

/// Unfolds an assignment into its domains, in the order in which they are written. Every legal encoding is read.
///
/// # Errors
/// If a slice is not well formed.
pub fn topology_assignment(assignment: &kueue::TopologyAssignment) -> Result<TopologyAssignment> {
    topology_assignment_at(Path::ROOT, assignment)
}

pub(super) fn topology_assignment_at(
    path: Path<'_>,
    assignment: &kueue::TopologyAssignment,
) -> Result<TopologyAssignment> {
    let path = path.field("slices");
    let slices = assignment.slices.iter().enumerate();
    let slices = slices.map(|(i, slice)| slice_at(path.index(i), slice, assignment.levels.len()));
    let encoded =
        EncodedAssignment { levels: super::boxes(&assignment.levels), slices: slices.collect::<Result<_>>()? };
    encoded.decode().map_err(|e| {
        let expected = usize::try_from(e.domains).unwrap_or_default();
        ConvertError::new(path.index(e.slice), Problem::Length { found: 0, expected })
    })
}

fn slice_at(path: Path<'_>, slice: &TopologyAssignmentSlice, levels: usize) -> Result<EncodedSlice> {
    let most = i64::try_from(MAX_DOMAINS).unwrap_or(i64::MAX);
    let found = i64::from(slice.domain_count);
    let count = match usize::try_from(slice.domain_count) {
        Ok(count) if count <= MAX_DOMAINS => count,
        Ok(_) => return Err(ConvertError::new(path.field("domainCount"), Problem::TooMany { found, most })),
        Err(_) => {
            let value = found.to_string().into();
            return Err(ConvertError::new(path.field("domainCount"), Problem::Negative { value }));
        }
    };
    let length = |path: Path<'_>, found: usize, expected: usize| {
        if found == expected { Ok(()) } else { Err(ConvertError::new(path, Problem::Length { found, expected })) }
    };
    let by_level = path.field("valuesPerLevel");
    length(by_level, slice.values_per_level.len(), levels)?;
    let values = slice.values_per_level.iter().enumerate().map(|(i, values)| {
        let path = by_level.index(i);
        match (&values.universal, &values.individual) {
            (Some(value), None) => Ok(EncodedValues::Universal(value.as_str().into())),
            (None, Some(v)) => {
                let part = |p: &Option<String>| p.as_deref().unwrap_or_default().into();
                length(path.field("individual").field("roots"), v.roots.len(), count)?;
                Ok(EncodedValues::Individual {
                    prefix: part(&v.prefix),
                    suffix: part(&v.suffix),
                    roots: super::boxes(&v.roots),
                })
            }
            _ => Err(ConvertError::new(path, Problem::OneOfUniversalIndividual)),
        }
    });
    let values_per_level = values.collect::<Result<_>>()?;
    let counts = path.field("podCounts");
    let pod_counts = match (slice.pod_counts.universal, &slice.pod_counts.individual) {
        (Some(pods), None) => EncodedCounts::Universal(pods),
        (None, Some(v)) => {
            length(counts.field("individual"), v.len(), count)?;
            EncodedCounts::Individual(v.clone())
        }
        _ => return Err(ConvertError::new(counts, Problem::OneOfUniversalIndividual)),
    };
    Ok(EncodedSlice { domain_count: slice.domain_count, values_per_level, pod_counts })
}

/// Folds an assignment into slices, as compactly as Kueue does.
pub fn topology_assignment_to_api(assignment: &TopologyAssignment) -> kueue::TopologyAssignment {
    let encoded = assignment.encode();
    kueue::TopologyAssignment {
        levels: strings(&encoded.levels),
        slices: encoded.slices.into_iter().map(slice_to_api).collect(),
    }
}

fn slice_to_api(slice: EncodedSlice) -> TopologyAssignmentSlice {
    let part = |p: Box<str>| (!p.is_empty()).then(|| p.into_string());
    let values = |v| match v {
        EncodedValues::Universal(value) => LevelValues { universal: Some(value.into_string()), individual: None },
        EncodedValues::Individual { prefix, suffix, roots } => LevelValues {
            universal: None,
            individual: Some(IndividualValues { prefix: part(prefix), suffix: part(suffix), roots: strings(&roots) }),
        },
    };
    TopologyAssignmentSlice {
        domain_count: slice.domain_count,
        values_per_level: slice.values_per_level.into_iter().map(values).collect(),
        pod_counts: match slice.pod_counts {
            EncodedCounts::Universal(pods) => PodCounts { universal: Some(pods), individual: None },
            EncodedCounts::Individual(pods) => PodCounts { universal: None, individual: Some(pods) },
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use slicegate_workload::TopologyDomain;

    use super::*;

    fn domains(levels: &[&str], domains: &[(&[&str], i32)]) -> TopologyAssignment {
        TopologyAssignment {
            levels: levels.iter().map(|&l| l.into()).collect(),
            domains: domains
                .iter()
                .map(|(values, count)| TopologyDomain {
                    values: values.iter().map(|&v| v.into()).collect(),
                    count: *count,
                })
                .collect(),
        }
    }

    fn decode(value: Value) -> Result<TopologyAssignment> {
        topology_assignment(&serde_json::from_value(value).unwrap())
    }

    #[test]
    fn shared_beginnings_and_ends_are_written_once() {
        let a = domains(&["block", "rack"], &[(&["b", "x-1-y"], 2), (&["b", "x-22-y"], 2)]);
        let api = topology_assignment_to_api(&a);
        assert_eq!(
            serde_json::to_value(&api).unwrap(),
            json!({"levels": ["block", "rack"], "slices": [{"domainCount": 2, "valuesPerLevel": [
                {"universal": "b"}, {"individual": {"prefix": "x-", "suffix": "-y", "roots": ["1", "22"]}}],
                "podCounts": {"universal": 2}}]})
        );
        assert_eq!(topology_assignment(&api).unwrap(), a);
    }

    #[test]
    fn nothing_placed_is_no_slice() {
        assert!(topology_assignment_to_api(&domains(&["rack"], &[])).slices.is_empty());
    }

    #[test]
    fn ill_formed_slices_are_refused() {
        let slice = |count: i32, values: Value, pods: Value| {
            decode(
                json!({"levels": ["rack"], "slices": [{"domainCount": count, "valuesPerLevel": values, "podCounts": pods}]}),
            )
        };
        let path = |r: Result<TopologyAssignment>| r.unwrap_err().path;
        let values = json!([{"universal": "r"}]);
        let pods = json!({"universal": 1});
        assert!(slice(1, values.clone(), pods.clone()).is_ok());
        assert_eq!(&*path(slice(-1, values.clone(), pods.clone())), "slices[0].domainCount");
        assert_eq!(&*path(slice(i32::MAX, values.clone(), pods.clone())), "slices[0].domainCount");
        assert_eq!(&*path(slice(1, json!([]), pods.clone())), "slices[0].valuesPerLevel");
        assert_eq!(&*path(slice(1, json!([{}]), pods.clone())), "slices[0].valuesPerLevel[0]");
        let short = json!([{"individual": {"roots": []}}]);
        assert_eq!(&*path(slice(1, short, pods)), "slices[0].valuesPerLevel[0].individual.roots");
        assert_eq!(&*path(slice(1, values.clone(), json!({}))), "slices[0].podCounts");
        assert_eq!(&*path(slice(1, values, json!({"individual": [1, 2]}))), "slices[0].podCounts.individual");
    }

    #[test]
    fn requests_survive_a_round_trip() {
        let r: kueue::PodSetTopologyRequest = serde_json::from_value(json!({
            "required": "a", "podIndexLabel": "b", "subGroupIndexLabel": "c", "subGroupCount": 2, "podSetGroupName": "g",
            "podSetSliceRequiredTopology": "d", "podSetSliceSize": 3, "unconstrained": false,
            "podsetSliceRequiredTopologyConstraints": [{"topology": "e", "size": 4}]}))
        .unwrap();
        assert_eq!(topology_request_to_api(&topology_request(&r)), r);
    }
}
