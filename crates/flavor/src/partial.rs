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
