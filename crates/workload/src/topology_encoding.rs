//! The compact form in which the API keeps topology assignments.

use std::collections::BTreeMap;

use crate::{TopologyAssignment, TopologyDomain};

/// The most slices of an assignment.
const MAX_SLICES: usize = 1_000;
/// The most domains of a slice.
const MAX_DOMAINS: usize = 100_000;
/// The level of single nodes.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Values of one level for the domains of a slice.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EncodedValues {
    /// The same value for all.
    Universal(Box<str>),
    /// One value each: prefix, root, suffix.
    Individual {
        /// What every value begins with; may be empty.
        prefix: Box<str>,
        /// What every value ends with; may be empty.
        suffix: Box<str>,
        /// What stands between, a domain.
        roots: Vec<Box<str>>,
    },
}

impl EncodedValues {
    fn get(&self, domain: usize) -> Option<Box<str>> {
        match self {
            Self::Universal(value) => Some(value.clone()),
            Self::Individual { prefix, suffix, roots } => {
                roots.get(domain).map(|root| format!("{prefix}{root}{suffix}").into())
            }
        }
    }
}

impl EncodedValues {
    /// The shortest form: universal if all are equal, else without the beginning and the end that all share. Where these overlap
    /// in the shortest value, the end stays whole.
    fn of(values: &[&str]) -> Self {
        let first = values.first().copied().unwrap_or_default();
        if values.iter().all(|value| *value == first) {
            return Self::Universal(first.into());
        }
        let prefix = values.iter().map(|value| shared(first.chars(), value.chars())).min().unwrap_or(0);
        let suffix = values.iter().map(|value| shared(first.chars().rev(), value.chars().rev())).min().unwrap_or(0);
        let shortest = values.iter().map(|value| value.len()).min().unwrap_or(0);
        let mut prefix = prefix.min(shortest.saturating_sub(suffix));
        while !first.is_char_boundary(prefix) {
            prefix = prefix.saturating_sub(1);
        }
        let part = |value: &str, from: usize, to: usize| value.get(from..to).unwrap_or_default().into();
        Self::Individual {
            prefix: part(first, 0, prefix),
            suffix: part(first, first.len().saturating_sub(suffix), first.len()),
            roots: values.iter().map(|value| part(value, prefix, value.len().saturating_sub(suffix))).collect(),
        }
    }

    /// Bytes of its JSON.
    fn json_len(&self) -> usize {
        match self {
            // {"universal":"..."}
            Self::Universal(value) => 14 + json_string_len(value),
            // {"individual":{"prefix":"...","suffix":"...","roots":[...]}}
            Self::Individual { prefix, suffix, roots } => {
                let part = |key: usize, text: &str| if text.is_empty() { 0 } else { key + json_string_len(text) };
                let roots = roots.iter().map(|root| json_string_len(root) + 1).sum::<usize>();
                26 + part(10, prefix) + part(10, suffix) + roots
            }
        }
    }
}

/// Bytes that two texts have in common from their beginning.
fn shared(a: impl Iterator<Item = char>, b: impl Iterator<Item = char>) -> usize {
    a.zip(b).take_while(|(x, y)| x == y).map(|(x, _)| x.len_utf8()).sum()
}

/// Bytes of a text as JSON; names of nodes need no escapes.
fn json_string_len(text: &str) -> usize {
    text.len() + 2
}

/// Pods of the domains of a slice.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EncodedCounts {
    /// The same number in all.
    Universal(i32),
    /// One number each.
    Individual(Vec<i32>),
}

/// A run of domains that are written together.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EncodedSlice {
    /// How many domains.
    pub domain_count: i32,
    /// Their values, a level each.
    pub values_per_level: Vec<EncodedValues>,
    /// Their pods.
    pub pod_counts: EncodedCounts,
}

/// A topology assignment as the API keeps it (`v1beta2`). Two encodings that decode to the same are the same assignment.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct EncodedAssignment {
    /// Node labels, coarsest first.
    pub levels: Vec<Box<str>>,
    /// Runs of domains.
    pub slices: Vec<EncodedSlice>,
}

/// A list of an encoded assignment that is shorter than its slice has domains.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "slices[{slice}] has {domains} domains, but a list of values or pod counts that is shorter; give each domain one"
)]
pub struct DecodeError {
    /// The index of the slice.
    pub slice: usize,
    /// Its number of domains.
    pub domains: i32,
}

impl EncodedAssignment {
    /// The domains, in the order of the slices. Any encoding is accepted.
    ///
    /// # Errors
    /// If a slice has more domains than values or counts.
    pub fn decode(&self) -> Result<TopologyAssignment, DecodeError> {
        let mut domains = Vec::new();
        for (index, slice) in self.slices.iter().enumerate() {
            let error = DecodeError { slice: index, domains: slice.domain_count };
            for i in 0..usize::try_from(slice.domain_count).unwrap_or(0) {
                let values = slice.values_per_level.iter().map(|v| v.get(i)).collect::<Option<_>>().ok_or(error)?;
                let count = match &slice.pod_counts {
                    EncodedCounts::Universal(count) => *count,
                    EncodedCounts::Individual(counts) => *counts.get(i).ok_or(error)?,
                };
                domains.push(TopologyDomain { values, count });
            }
        }
        Ok(TopologyAssignment { levels: self.levels.clone(), domains })
    }
}

impl EncodedSlice {
    fn of(levels: usize, domains: &[TopologyDomain]) -> Self {
        let value = |domain: &'_ TopologyDomain, level: usize| -> Box<str> {
            domain.values.get(level).cloned().unwrap_or_default()
        };
        let values_per_level = (0..levels)
            .map(|level| {
                let values: Vec<Box<str>> = domains.iter().map(|d| value(d, level)).collect();
                EncodedValues::of(&values.iter().map(|v| &**v).collect::<Vec<_>>())
            })
            .collect();
        let counts: Vec<i32> = domains.iter().map(|d| d.count).collect();
        let pod_counts = match counts.split_first() {
            Some((&first, rest)) if rest.iter().all(|count| *count == first) => EncodedCounts::Universal(first),
            _ => EncodedCounts::Individual(counts),
        };
        Self { domain_count: i32::try_from(domains.len()).unwrap_or(i32::MAX), values_per_level, pod_counts }
    }

    /// Bytes of its JSON with the comma that separates it from the next.
    fn json_len(&self) -> usize {
        let values = self.values_per_level.iter().map(|values| values.json_len() + 1).sum::<usize>();
        let counts = match &self.pod_counts {
            EncodedCounts::Universal(count) => count.to_string().len(),
            // `individual` is a letter longer than `universal`.
            EncodedCounts::Individual(counts) => 2 + counts.iter().map(|c| c.to_string().len() + 1).sum::<usize>(),
        };
        // {"domainCount":n,"valuesPerLevel":[...],"podCounts":{"universal":n}},
        63 + self.domain_count.to_string().len() + values + counts
    }
}

impl TopologyAssignment {
    /// The compact form that Kueue writes.
    ///
    /// One slice, in which each level leaves out what its values share. If the lowest level is that of single nodes, nodes in a row
    /// whose names share a prefix up to a `-` form a slice each, unless one slice for all is shorter.
    pub fn encode(&self) -> EncodedAssignment {
        let by_host = self.levels.last().is_some_and(|level| **level == *HOSTNAME) && self.domains.len() > 1;
        let whole = || self.in_slices(self.domains.chunks(MAX_DOMAINS));
        if !by_host {
            return whole();
        }
        let keys = host_keys(&self.domains);
        let mut rest = self.domains.as_slice();
        let runs = runs(&keys).map(|length| {
            let (run, after) = rest.split_at(length.min(rest.len()));
            rest = after;
            run
        });
        let split = self.in_slices(runs);
        if split.slices.len() < 2 || self.domains.len() > MAX_DOMAINS {
            return split;
        }
        let whole = whole();
        let size = |encoded: &EncodedAssignment| encoded.slices.iter().map(EncodedSlice::json_len).sum::<usize>();
        if size(&whole) < size(&split) { whole } else { split }
    }

    fn in_slices<'a>(&self, runs: impl Iterator<Item = &'a [TopologyDomain]>) -> EncodedAssignment {
        let slices = runs.map(|run| EncodedSlice::of(self.levels.len(), run)).collect();
        EncodedAssignment { levels: self.levels.clone(), slices }
    }
}

/// The part of its name by which each node is grouped: the longest beginning up to a `-` that another node has too, of at most as
/// many parts as leave few enough slices; nothing if none does.
fn host_keys(domains: &[TopologyDomain]) -> Vec<&str> {
    let hosts: Vec<&str> = domains.iter().map(|d| d.values.last().map_or("", |value| value)).collect();
    let beginnings = |host: &str| -> Vec<usize> {
        host.match_indices('-').map(|(at, _)| at + 1).filter(|end| *end < host.len()).collect()
    };
    let mut uses = BTreeMap::<&str, usize>::new();
    for host in &hosts {
        for end in beginnings(host) {
            *uses.entry(&host[..end]).or_default() += 1;
        }
    }
    // Of each node, the beginnings that can be reused, with how many parts they have.
    let reusable: Vec<Vec<(usize, usize)>> = hosts
        .iter()
        .map(|host| {
            let ends = beginnings(host).into_iter().zip(1_usize..);
            ends.filter(|(end, _)| uses.get(&host[..*end]).is_some_and(|n| *n > 1)).collect()
        })
        .collect();
    let deepest = reusable.iter().flatten().map(|(_, parts)| *parts).max().unwrap_or(0);
    for depth in (1..=deepest).rev() {
        let key = |(host, ends): (&&'_ str, &Vec<(usize, usize)>)| {
            ends.iter().rev().find(|(_, parts)| *parts <= depth).map_or(0, |(end, _)| *end).min(host.len())
        };
        let ends: Vec<usize> = hosts.iter().zip(&reusable).map(key).collect();
        let keys: Vec<&str> = hosts.iter().zip(ends).map(|(host, end)| &host[..end]).collect();
        if runs(&keys).count() <= MAX_SLICES {
            return keys;
        }
    }
    vec![""; hosts.len()]
}

/// Lengths of the runs of equal keys, none longer than a slice may be.
fn runs<'a>(keys: &'a [&'a str]) -> impl Iterator<Item = usize> + 'a {
    keys.chunk_by(|a, b| a == b).flat_map(|run| run.chunks(MAX_DOMAINS).map(<[&str]>::len))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hosts(names: &[&str]) -> TopologyAssignment {
        let domains = names.iter().map(|n| TopologyDomain { values: vec![(*n).into()], count: 1 }).collect();
        TopologyAssignment { levels: vec![HOSTNAME.into()], domains }
    }

    fn sizes(assignment: &TopologyAssignment) -> Vec<i32> {
        assignment.encode().slices.iter().map(|s| s.domain_count).collect()
    }

    #[test]
    fn nodes_of_a_pool_form_a_slice_if_that_is_shorter() {
        let long = |pool: &str, n: usize| (0..n).map(|i| format!("gke-cluster-{pool}-{i:05}")).collect::<Vec<_>>();
        let mut names = long("a-rather-long-name-of-a-pool", 20);
        names.extend(long("quite-another-name-of-a-pool", 30));
        let assignment = hosts(&names.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(sizes(&assignment), [20, 30]);
        assert_eq!(assignment.encode().decode(), Ok(assignment));
        assert_eq!(sizes(&hosts(&["a-1", "a-2", "b-1", "b-2"])), [4], "one slice is shorter");
        let mut elsewhere = hosts(&names.iter().map(String::as_str).collect::<Vec<_>>());
        elsewhere.levels = vec!["rack".into()];
        assert_eq!(sizes(&elsewhere), [50], "only nodes are grouped");
        assert_eq!(sizes(&hosts(&[])), [] as [i32; 0]);
    }

    fn json(slice: &EncodedSlice) -> String {
        let text = |t: &str| format!("\"{t}\"");
        let values = slice.values_per_level.iter().map(|values| match values {
            EncodedValues::Universal(value) => format!("{{\"universal\":{}}}", text(value)),
            EncodedValues::Individual { prefix, suffix, roots } => {
                let part = |key, part: &str| {
                    if part.is_empty() { String::new() } else { format!("\"{key}\":{},", text(part)) }
                };
                let roots: Vec<String> = roots.iter().map(|root| text(root)).collect();
                let (prefix, suffix) = (part("prefix", prefix), part("suffix", suffix));
                format!("{{\"individual\":{{{prefix}{suffix}\"roots\":[{}]}}}}", roots.join(","))
            }
        });
        let counts = match &slice.pod_counts {
            EncodedCounts::Universal(count) => format!("\"universal\":{count}"),
            EncodedCounts::Individual(counts) => {
                let counts: Vec<String> = counts.iter().map(ToString::to_string).collect();
                format!("\"individual\":[{}]", counts.join(","))
            }
        };
        let values = values.collect::<Vec<_>>().join(",");
        let domains = slice.domain_count;
        format!("{{\"domainCount\":{domains},\"valuesPerLevel\":[{values}],\"podCounts\":{{{counts}}}}},")
    }

    #[test]
    fn too_many_groups_are_made_coarser() {
        let names: Vec<String> = (0..2_400).map(|i| format!("p{}-x{}-{}", i / 400, i / 2, i % 2)).collect();
        let assignment = hosts(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let keys = host_keys(&assignment.domains);
        assert_eq!(runs(&keys).count(), 6, "1200 pairs are too many, 6 pools are not");
        assert_eq!(keys[0], "p0-");
        let names: Vec<String> = (0..2_400).map(|i| format!("x{}-{}", i / 2, i % 2)).collect();
        let assignment = hosts(&names.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(sizes(&assignment), [2_400]);
    }

    #[test]
    fn lists_that_are_too_short_are_refused() {
        let slice = |domain_count, counts: Vec<i32>, roots: Vec<Box<str>>| EncodedSlice {
            domain_count,
            values_per_level: vec![EncodedValues::Individual { prefix: "p".into(), suffix: "".into(), roots }],
            pod_counts: EncodedCounts::Individual(counts),
        };
        let decode = |slice| EncodedAssignment { levels: vec!["l".into()], slices: vec![slice] }.decode();
        assert!(decode(slice(2, vec![1, 1], vec!["a".into(), "b".into()])).is_ok());
        let error = DecodeError { slice: 0, domains: 2 };
        assert_eq!(decode(slice(2, vec![1], vec!["a".into(), "b".into()])), Err(error));
        assert_eq!(decode(slice(2, vec![1, 1], vec!["a".into()])), Err(error));
        assert!(decode(slice(-1, vec![], vec![])).is_ok_and(|a| a.domains.is_empty()));
    }

    proptest! {
        #[test]
        fn decoding_undoes_encoding(
            domains in proptest::collection::vec(("[ab]{0,3}", "[a-b]{1,2}(-[a-cé]{1,3}){0,3}", 0..3), 0..12),
            by_host: bool,
        ) {
            let levels = vec!["rack".into(), if by_host { HOSTNAME } else { "slot" }.into()];
            let domain = |(rack, host, count): (String, String, i32)| TopologyDomain {
                values: vec![rack.into(), host.into()],
                count,
            };
            let assignment = TopologyAssignment { levels, domains: domains.into_iter().map(domain).collect() };
            let encoded = assignment.encode();
            for slice in &encoded.slices {
                prop_assert_eq!(slice.json_len(), json(slice).len());
            }
            prop_assert_eq!(encoded.decode(), Ok(assignment));
        }
    }
}
