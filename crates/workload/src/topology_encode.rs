//! Writing topology assignments in their compact form.

use std::collections::BTreeMap;

use crate::{EncodedAssignment, EncodedCounts, EncodedSlice, EncodedValues, TopologyAssignment, TopologyDomain};

/// The label whose value tells one node from another. As the lowest level of a topology it makes every node a domain.
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// The most slices an assignment may have.
const MAX_SLICES: usize = 1000;

/// The most domains a slice may have.
const MAX_DOMAINS: usize = 100_000;

impl EncodedAssignment {
    /// The compact form of an assignment.
    ///
    /// All domains go into one slice: what the values of a level have in common at their beginning and end is written once.
    /// With `by_host_prefix` (Kueue's `TASAssignmentsEncodingByHostnamePrefix`) and hostnames as the lowest level, neighbours
    /// whose hostnames begin with the same words get a slice of their own, unless one slice for all is shorter as JSON.
    ///
    /// ```
    /// use slicegate_workload::{EncodedAssignment, TopologyAssignment, TopologyDomain};
    ///
    /// let domain = |host: &str| TopologyDomain { values: vec![host.into()], count: 4 };
    /// let assignment = TopologyAssignment {
    ///     levels: vec!["kubernetes.io/hostname".into()],
    ///     domains: vec![domain("tpu-0"), domain("tpu-1")],
    /// };
    /// let encoded = EncodedAssignment::encode(&assignment, true);
    /// assert_eq!(encoded.slices.len(), 1);
    /// assert_eq!(encoded.decode().unwrap(), assignment);
    /// ```
    #[must_use]
    pub fn encode(assignment: &TopologyAssignment, by_host_prefix: bool) -> Self {
        let domains = assignment.domains.as_slice();
        let one = || domains.chunks(MAX_DOMAINS).map(|chunk| slice(assignment.levels.len(), chunk)).collect();
        let by_host = by_host_prefix
            && domains.len() > 1
            && assignment.levels.last().is_some_and(|level| **level == *HOSTNAME_LABEL);
        let slices: Vec<EncodedSlice> = if by_host {
            let several: Vec<EncodedSlice> =
                runs(domains).into_iter().map(|run| slice(assignment.levels.len(), run)).collect();
            if several.len() > 1 && domains.len() <= MAX_DOMAINS {
                let single: Vec<EncodedSlice> = one();
                if json_length(&single) < json_length(&several) { single } else { several }
            } else {
                several
            }
        } else {
            one()
        };
        Self { levels: assignment.levels.clone(), slices }
    }
}

/// One slice for all of the domains.
fn slice(levels: usize, domains: &[TopologyDomain]) -> EncodedSlice {
    let value = |domain: &'_ TopologyDomain, level: usize| domain.values.get(level).cloned().unwrap_or_default();
    let values_per_level = (0..levels)
        .map(|level| {
            let all: Vec<Box<str>> = domains.iter().map(|d| value(d, level)).collect();
            encode_values(&all)
        })
        .collect();
    let first = domains.first().map_or(0, |d| d.count);
    let pod_counts = if domains.iter().all(|d| d.count == first) {
        EncodedCounts::Universal(first)
    } else {
        EncodedCounts::Individual(domains.iter().map(|d| d.count).collect())
    };
    let domain_count = i32::try_from(domains.len()).unwrap_or(i32::MAX);
    EncodedSlice { domain_count, values_per_level, pod_counts }
}

fn encode_values(values: &[Box<str>]) -> EncodedValues {
    let Some(first) = values.first() else { return EncodedValues::Universal(Box::default()) };
    if values.iter().all(|v| v == first) {
        return EncodedValues::Universal(first.clone());
    }
    let common = |length: fn(&str, &str) -> usize| {
        values.iter().skip(1).fold(first.len(), |common, value| common.min(length(first, value)))
    };
    let suffix = common(common_suffix);
    let shortest = values.iter().map(|v| v.len()).min().unwrap_or(0);
    let mut prefix = common(common_prefix).min(shortest.saturating_sub(suffix));
    while !first.is_char_boundary(prefix) {
        prefix = prefix.saturating_sub(1);
    }
    let root = |v: &str| v.get(prefix..v.len().saturating_sub(suffix)).unwrap_or_default().into();
    EncodedValues::Individual {
        prefix: first.get(..prefix).unwrap_or_default().into(),
        suffix: first.get(first.len().saturating_sub(suffix)..).unwrap_or_default().into(),
        roots: values.iter().map(|v| root(v)).collect(),
    }
}

/// How many bytes of whole characters two texts have in common at the beginning.
fn common_prefix(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).take_while(|(a, b)| a == b).map(|(c, _)| c.len_utf8()).sum()
}

/// The same at the end.
fn common_suffix(a: &str, b: &str) -> usize {
    a.chars().rev().zip(b.chars().rev()).take_while(|(a, b)| a == b).map(|(c, _)| c.len_utf8()).sum()
}

/// Cuts domains into runs whose hostnames begin with the same words.
///
/// A beginning counts if it ends at a dash, is not the whole name, and at least two hostnames have it. Every hostname takes the
/// longest that counts; if that makes too many runs, beginnings of fewer words are tried.
fn runs(domains: &[TopologyDomain]) -> Vec<&[TopologyDomain]> {
    let host = |domain: &'_ TopologyDomain| domain.values.last().cloned().unwrap_or_default();
    let hosts: Vec<Box<str>> = domains.iter().map(host).collect();
    let mut occurrences: BTreeMap<&str, usize> = BTreeMap::new();
    let mut deepest = 0;
    for host in &hosts {
        for (depth, key) in beginnings(host).enumerate() {
            let count = occurrences.entry(key).or_default();
            *count = count.saturating_add(1);
            deepest = deepest.max(depth.saturating_add(1));
        }
    }
    for depth in (1..=deepest).rev() {
        let key = |host: &'_ str| {
            let counts = |key: &&str| occurrences.get(key).is_some_and(|&n| n > 1);
            beginnings(host).take(depth).filter(counts).last().map(str::len)
        };
        let keys: Vec<&str> =
            hosts.iter().map(|h| key(h).and_then(|length| h.get(..length)).unwrap_or_default()).collect();
        let found = cut(domains, &keys);
        if found.len() <= MAX_SLICES {
            return found;
        }
    }
    domains.chunks(MAX_DOMAINS).collect()
}

/// The beginnings of a hostname that end at a dash, shortest first, without the whole name.
fn beginnings(host: &str) -> impl Iterator<Item = &str> {
    host.match_indices('-').map(|(at, _)| at.saturating_add(1)).filter(|&end| end < host.len()).map(|end| &host[..end])
}

/// Runs of equal keys, no longer than a slice may be.
fn cut<'d>(mut domains: &'d [TopologyDomain], mut keys: &[&str]) -> Vec<&'d [TopologyDomain]> {
    let mut found = Vec::new();
    while let Some(key) = keys.first() {
        let length = keys.iter().take(MAX_DOMAINS).take_while(|k| *k == key).count();
        let (run, rest) = domains.split_at(length.min(domains.len()));
        found.push(run);
        domains = rest;
        keys = keys.get(length..).unwrap_or_default();
    }
    found
}

/// How long slices are as JSON, as the Kubernetes API machinery writes them.
fn json_length(slices: &[EncodedSlice]) -> usize {
    let list = |lengths: &mut dyn Iterator<Item = usize>| {
        let (sum, count) = lengths.fold((0_usize, 0_usize), |(s, n), l| (s.saturating_add(l), n.saturating_add(1)));
        sum.saturating_add(count.saturating_sub(1)).saturating_add("[]".len())
    };
    let number = |n: i32| n.to_string().len();
    let values = |values: &EncodedValues| match values {
        EncodedValues::Universal(value) => r#"{"universal":}"#.len().saturating_add(json_text_length(value)),
        EncodedValues::Individual { prefix, suffix, roots } => {
            let part = |name: &str, text: &str| {
                if text.is_empty() { 0 } else { name.len().saturating_add(json_text_length(text)) }
            };
            r#"{"individual":{"roots":}}"#
                .len()
                .saturating_add(part(r#""prefix":,"#, prefix))
                .saturating_add(part(r#""suffix":,"#, suffix))
                .saturating_add(list(&mut roots.iter().map(|r| json_text_length(r))))
        }
    };
    let counts = |counts: &EncodedCounts| match counts {
        EncodedCounts::Universal(n) => r#"{"universal":}"#.len().saturating_add(number(*n)),
        EncodedCounts::Individual(all) => {
            r#"{"individual":}"#.len().saturating_add(list(&mut all.iter().map(|&n| number(n))))
        }
    };
    let one = |slice: &EncodedSlice| {
        r#"{"domainCount":,"valuesPerLevel":,"podCounts":}"#
            .len()
            .saturating_add(number(slice.domain_count))
            .saturating_add(list(&mut slice.values_per_level.iter().map(values)))
            .saturating_add(counts(&slice.pod_counts))
    };
    list(&mut slices.iter().map(one))
}

fn json_text_length(text: &str) -> usize {
    let length = |c: char| match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => 6,
        other => other.len_utf8(),
    };
    text.chars().map(length).sum::<usize>().saturating_add(2)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hosts(names: &[&str]) -> TopologyAssignment {
        let domain = |name: &&str| TopologyDomain { values: vec![(*name).into()], count: 1 };
        TopologyAssignment { levels: vec![HOSTNAME_LABEL.into()], domains: names.iter().map(domain).collect() }
    }

    fn roots(slice: &EncodedSlice) -> (String, Vec<String>, String) {
        match &slice.values_per_level[0] {
            EncodedValues::Universal(value) => (value.to_string(), Vec::new(), String::new()),
            EncodedValues::Individual { prefix, suffix, roots } => {
                (prefix.to_string(), roots.iter().map(ToString::to_string).collect(), suffix.to_string())
            }
        }
    }

    #[test]
    fn what_is_common_is_written_once() {
        let encoded = EncodedAssignment::encode(&hosts(&["abacacada", "abacada"]), true);
        assert_eq!(roots(&encoded.slices[0]), ("ab".into(), vec!["ac".into(), String::new()], "acada".into()));
        let multi_byte = EncodedAssignment::encode(&hosts(&["é1é", "é2é", "éé"]), false);
        assert_eq!(multi_byte.decode().unwrap(), hosts(&["é1é", "é2é", "éé"]));
    }

    #[test]
    fn hostnames_with_the_same_words_share_a_slice_if_that_is_shorter() {
        let pool = |name: &str| (0..9).map(|i| format!("cluster-with-a-long-name-{name}-{i}")).collect::<Vec<_>>();
        let all: Vec<String> = [pool("first-pool-aaaaaaaa"), pool("second-pool-bbbbbbbb")].concat();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let encoded = EncodedAssignment::encode(&hosts(&all), true);
        assert_eq!(encoded.slices.len(), 2);
        assert_eq!(roots(&encoded.slices[1]).0, "cluster-with-a-long-name-second-pool-bbbbbbbb-");
        assert_eq!(EncodedAssignment::encode(&hosts(&all), false).slices.len(), 1);
        // Two short hostnames a pool: a slice each costs more than it saves.
        assert_eq!(EncodedAssignment::encode(&hosts(&["a-1", "a-2", "b-1", "b-2"]), true).slices.len(), 1);
    }

    #[test]
    fn too_many_runs_fall_back_to_fewer_words() {
        let names: Vec<String> = (0..2500).map(|i| format!("node-{:04}-{}-x", i / 2, "y".repeat(60))).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let encoded = EncodedAssignment::encode(&hosts(&names), true);
        assert!(encoded.slices.len() <= MAX_SLICES);
        assert_eq!(encoded.decode().unwrap(), hosts(&names));
    }

    #[test]
    fn the_length_of_json_is_exact() {
        let mut assignment = hosts(&["p-1-s", "p-2-s"]);
        assignment.domains[1].count = 20;
        let one = EncodedAssignment::encode(&assignment, false);
        let text = concat!(
            r#"[{"domainCount":2,"valuesPerLevel":[{"individual":{"prefix":"p-","suffix":"-s","roots":["1","2"]}}],"#,
            r#""podCounts":{"individual":[1,20]}}]"#
        );
        assert_eq!(json_length(&one.slices), text.len());
        assert_eq!(json_text_length("a<\"\n"), r#""a\u003c\"\n""#.len());
    }

    proptest! {
        #[test]
        fn decoding_gives_back_what_was_encoded(
            domains in prop::collection::vec(("[ab]-?[ab]{0,2}", "[a-c]{1,2}-[ab]{0,3}-?é?[0-9]", 0..5_i32), 0..40),
            by_host_prefix: bool,
        ) {
            let domain = |(block, host, count): (String, String, i32)| TopologyDomain {
                values: vec![block.into(), host.into()],
                count,
            };
            let assignment = TopologyAssignment {
                levels: vec!["block".into(), HOSTNAME_LABEL.into()],
                domains: domains.into_iter().map(domain).collect(),
            };
            let encoded = EncodedAssignment::encode(&assignment, by_host_prefix);
            prop_assert_eq!(encoded.decode().unwrap(), assignment);
        }
    }
}
