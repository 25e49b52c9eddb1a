//! Partial admission: the search for the largest numbers of pods that can be had.

/// Searches for the largest numbers of pods, between `min` and `count` of every pod set, for which `probe` succeeds, and
/// returns what it gave.
///
/// `pod_sets` are pairs of (count, fewest). All pod sets shrink together: with a total slack of T pods, step k of 0..=T
/// takes `slack * k / T` pods off each. A binary search finds the smallest step that succeeds, on the assumption that
/// every larger one does too. Nothing is probed if there is no slack.
pub fn search_counts<R>(pod_sets: &[(i32, i32)], mut probe: impl FnMut(&[i32]) -> Option<R>) -> Option<R> {
    let slack = |&(count, min): &(i32, i32)| i64::from(count).saturating_sub(i64::from(min)).max(0);
    let total: i64 = pod_sets.iter().map(slack).fold(0, i64::saturating_add);
    if total == 0 {
        return None;
    }
    let mut counts: Vec<i32> = pod_sets.iter().map(|p| p.0).collect();
    let mut found: Option<(i64, R)> = None;
    let (mut low, mut high) = (0_i64, total.saturating_add(1));
    while low < high {
        let middle = low.midpoint(high);
        for (slot, pod_set) in counts.iter_mut().zip(pod_sets) {
            let less = i128::from(slack(pod_set)) * i128::from(middle) / i128::from(total);
            *slot = i32::try_from(i128::from(pod_set.0) - less).unwrap_or(pod_set.1);
        }
        if let Some(result) = probe(&counts) {
            found = Some((middle, result));
            high = middle;
        } else {
            low = middle.saturating_add(1);
        }
    }
    // The last success is the answer: the search ends at the smallest step that succeeded.
    found.filter(|(step, _)| *step == low).map(|(_, result)| result)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn probes(pod_sets: &[(i32, i32)], limit: i32) -> (Vec<Vec<i32>>, Option<Vec<i32>>) {
        let mut seen = Vec::new();
        let found = search_counts(pod_sets, |counts| {
            seen.push(counts.to_vec());
            (counts.iter().sum::<i32>() <= limit).then(|| counts.to_vec())
        });
        (seen, found)
    }

    #[test]
    fn the_search_halves_the_slack() {
        let (seen, found) = probes(&[(50, 20)], 33);
        assert_eq!(seen, [vec![35], vec![27], vec![31], vec![33], vec![34]]);
        assert_eq!(found, Some(vec![33]));
        let (seen, found) = probes(&[(20, 10), (20, 10), (10, 2)], 33);
        assert_eq!(seen.len(), 5);
        assert_eq!(found, Some(vec![14, 14, 5]));
    }

    #[test]
    fn without_slack_nothing_is_tried() {
        assert_eq!(probes(&[(5, 5)], 9), (vec![], None));
        assert_eq!(probes(&[], 9), (vec![], None));
    }

    #[test]
    fn nothing_is_found_where_the_fewest_are_too_many() {
        assert_eq!(probes(&[(5, 3)], 2).1, None);
        assert_eq!(probes(&[(i32::MAX, 0)], 0).1, Some(vec![0]));
    }

    proptest! {
        #[test]
        fn it_finds_what_a_look_at_every_step_finds(
            pod_sets in proptest::collection::vec((0_i32..30, 0_i32..30), 0..4), limit in 0_i32..90,
        ) {
            let pod_sets: Vec<(i32, i32)> = pod_sets.into_iter().map(|(a, b)| (a.max(b), a.min(b))).collect();
            let total: i32 = pod_sets.iter().map(|(count, min)| count - min).sum();
            let at = |step: i32| -> Vec<i32> {
                pod_sets.iter().map(|(count, min)| count - (count - min) * step / total).collect()
            };
            let want = (0..=total).filter(|_| total > 0).map(at).find(|c| c.iter().sum::<i32>() <= limit);
            prop_assert_eq!(probes(&pod_sets, limit).1, want);
        }
    }
}
