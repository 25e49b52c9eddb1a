//! Topology requests and assignments.

use slicegate_workload::{TopologyAssignment, TopologyConstraint, TopologyDomain, TopologyRequest};

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
    let mut domains = Vec::new();
    for (i, slice) in assignment.slices.iter().enumerate() {
        unfold(path.index(i), slice, assignment.levels.len(), &mut domains)?;
    }
    Ok(TopologyAssignment { levels: super::boxes(&assignment.levels), domains })
}

fn unfold(
    path: Path<'_>,
    slice: &TopologyAssignmentSlice,
    levels: usize,
    domains: &mut Vec<TopologyDomain>,
) -> Result<()> {
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
    for (i, values) in slice.values_per_level.iter().enumerate() {
        match (&values.universal, &values.individual) {
            (Some(_), None) => {}
            (None, Some(v)) => {
                let path = by_level.index(i);
                length(path.field("individual").field("roots"), v.roots.len(), count)?;
            }
            _ => return Err(ConvertError::new(by_level.index(i), Problem::OneOfUniversalIndividual)),
        }
    }
    let counts = path.field("podCounts");
    match (slice.pod_counts.universal, &slice.pod_counts.individual) {
        (Some(_), None) => {}
        (None, Some(v)) => length(counts.field("individual"), v.len(), count)?,
        _ => return Err(ConvertError::new(counts, Problem::OneOfUniversalIndividual)),
    }
    for i in 0..count {
        let values = slice.values_per_level.iter().map(|v| value(v, i)).collect();
        let pods = slice.pod_counts.individual.as_deref().and_then(|v| v.get(i).copied());
        let pods = pods.or(slice.pod_counts.universal).unwrap_or_default();
        domains.push(TopologyDomain { values, count: pods });
    }
    Ok(())
}

fn value(values: &LevelValues, index: usize) -> Box<str> {
    match (&values.universal, &values.individual) {
        (Some(v), _) => v.as_str().into(),
        (None, Some(v)) => {
            let part = |p: &Option<String>| p.as_deref().unwrap_or_default().to_owned();
            let root = v.roots.get(index).map_or("", String::as_str);
            (part(&v.prefix) + root + &part(&v.suffix)).into()
        }
        (None, None) => Box::default(),
    }
}

/// Folds an assignment into slices: values that all domains share are written once, others without the beginning and end
/// that they share.
///
/// Hostnames are grouped by the prefixes that repeat among them if that is shorter, as Kueue does by default.
pub fn topology_assignment_to_api(assignment: &TopologyAssignment) -> kueue::TopologyAssignment {
    let one = encode(assignment, &[assignment.domains.len()]);
    let host_lowest = assignment.levels.last().is_some_and(|l| &**l == "kubernetes.io/hostname");
    if !host_lowest || assignment.domains.len() < 2 {
        return one;
    }
    let runs = hostname_runs(&assignment.domains);
    if runs.len() < 2 {
        return encode(assignment, &runs);
    }
    let many = encode(assignment, &runs);
    if assignment.domains.len() > MAX_DOMAINS {
        return many;
    }
    let size = |a: &kueue::TopologyAssignment| serde_json::to_string(a).map_or(usize::MAX, |t| t.len());
    if size(&one) < size(&many) { one } else { many }
}

/// One slice for each run of so many domains.
fn encode(assignment: &TopologyAssignment, runs: &[usize]) -> kueue::TopologyAssignment {
    let mut rest = assignment.domains.as_slice();
    let mut slices = Vec::new();
    for &run in runs {
        let (domains, after) = rest.split_at_checked(run).unwrap_or((rest, &[]));
        rest = after;
        if !domains.is_empty() {
            slices.push(slice(assignment.levels.len(), domains));
        }
    }
    kueue::TopologyAssignment { levels: strings(&assignment.levels), slices }
}

fn slice(levels: usize, domains: &[TopologyDomain]) -> TopologyAssignmentSlice {
    let counts = || domains.iter().map(|d| d.count);
    let first = counts().next().unwrap_or_default();
    TopologyAssignmentSlice {
        domain_count: i32::try_from(domains.len()).unwrap_or(i32::MAX),
        values_per_level: (0..levels)
            .map(|level| {
                level_values(&domains.iter().map(|d| d.values.get(level).map_or("", |v| v)).collect::<Vec<_>>())
            })
            .collect(),
        pod_counts: if counts().all(|c| c == first) {
            PodCounts { universal: Some(first), individual: None }
        } else {
            PodCounts { universal: None, individual: Some(counts().collect()) }
        },
    }
}

fn level_values(values: &[&str]) -> LevelValues {
    let first = values.first().copied().unwrap_or_default();
    if values.iter().all(|v| *v == first) {
        return LevelValues { universal: Some(first.to_owned()), individual: None };
    }
    let shortest = values.iter().map(|v| v.len()).min().unwrap_or_default();
    let suffix = values.iter().fold(first, |shared, v| &shared[shared.len() - shared_suffix(shared, v)..]);
    let mut prefix = values.iter().fold(first, |shared, v| &shared[..shared_prefix(shared, v)]);
    // The two may overlap in the shortest value; the suffix stays whole.
    let mut room = shortest.saturating_sub(suffix.len()).min(prefix.len());
    while !prefix.is_char_boundary(room) {
        room -= 1;
    }
    prefix = &prefix[..room];
    let part = |p: &str| (!p.is_empty()).then(|| p.to_owned());
    let roots = values.iter().map(|v| v[prefix.len()..v.len() - suffix.len()].to_owned()).collect();
    LevelValues {
        universal: None,
        individual: Some(IndividualValues { prefix: part(prefix), suffix: part(suffix), roots }),
    }
}

fn shared_prefix(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).take_while(|(x, y)| x == y).map(|(x, _)| x.len_utf8()).sum()
}

fn shared_suffix(a: &str, b: &str) -> usize {
    a.chars().rev().zip(b.chars().rev()).take_while(|(x, y)| x == y).map(|(x, _)| x.len_utf8()).sum()
}

/// Lengths of runs of domains whose hostnames share their longest reusable prefix.
///
/// A prefix ends at a `-` that is not the last character and is reusable if two hostnames have it. Ever shorter prefixes are
/// tried until at most 1000 runs are left; if that never happens, all hostnames are one run (cut at the most a slice may hold).
fn hostname_runs(domains: &[TopologyDomain]) -> Vec<usize> {
    const MAX_SLICES: usize = 1_000;
    let hosts: Vec<&str> = domains.iter().map(|d| d.values.last().map_or("", |v| v)).collect();
    let ends = |host: &str| -> Vec<usize> {
        host.match_indices('-').map(|(i, _)| i + 1).filter(|&end| end < host.len()).collect()
    };
    let mut uses = std::collections::BTreeMap::<&str, usize>::new();
    for host in &hosts {
        for end in ends(host) {
            *uses.entry(&host[..end]).or_default() += 1;
        }
    }
    let keys_at = |depth: usize| -> Vec<&str> {
        hosts
            .iter()
            .map(|host| {
                let ends = ends(host);
                let within = ends.iter().take(depth).rev();
                let longest = within.map(|&end| &host[..end]).find(|key| uses.get(key).is_some_and(|n| *n >= 2));
                longest.unwrap_or("")
            })
            .collect()
    };
    let deepest = hosts.iter().map(|h| ends(h).len()).max().unwrap_or_default();
    for depth in (1..=deepest).rev() {
        let runs = runs(&keys_at(depth));
        if runs.len() <= MAX_SLICES {
            return runs;
        }
    }
    runs(&vec![""; hosts.len()])
}

/// Lengths of the runs of equal keys, none longer than a slice may be.
fn runs(keys: &[&str]) -> Vec<usize> {
    keys.chunk_by(|a, b| a == b).flat_map(|run| run.chunks(MAX_DOMAINS).map(<[&str]>::len)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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
    fn prefix_gives_way_where_the_two_overlap() {
        let a = domains(&["rack"], &[(&["aa"], 1), (&["aaa"], 2)]);
        let api = topology_assignment_to_api(&a);
        let values = api.slices[0].values_per_level[0].individual.clone().unwrap();
        assert_eq!(
            (values.prefix, values.suffix.as_deref(), values.roots),
            (None, Some("aa"), vec![String::new(), "a".into()])
        );
        assert_eq!(topology_assignment(&api).unwrap(), a);
    }

    #[test]
    fn values_beyond_ascii_are_not_cut_in_two() {
        let a = domains(&["rack"], &[(&["é1é"], 1), (&["éé"], 2), (&["é"], 2), (&["à"], 2)]);
        assert_eq!(topology_assignment(&topology_assignment_to_api(&a)).unwrap(), a);
    }

    #[test]
    fn hostnames_are_grouped_by_prefix() {
        let hosts: Vec<String> = ["pool-a", "pool-b"]
            .iter()
            .flat_map(|p| (0..40).map(move |i| format!("gke-cluster-with-a-long-name-{p}-0a1b2c3d-{i:04}")))
            .collect();
        let list: Vec<(&[&str], i32)> = Vec::new();
        let mut a = domains(&["kubernetes.io/hostname"], &list);
        a.domains = hosts.iter().map(|h| TopologyDomain { values: vec![h.as_str().into()], count: 4 }).collect();
        let api = topology_assignment_to_api(&a);
        assert_eq!(api.slices.iter().map(|s| s.domain_count).collect::<Vec<_>>(), [40, 40]);
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
