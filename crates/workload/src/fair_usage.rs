//! Decayed usage of LocalQueues, by which admission fair sharing orders workloads.

use std::collections::BTreeMap;
use std::time::Duration;

use slicegate_quota::{Quantity, Weight};

use crate::ResourceList;

/// The part of the past that is forgotten after `elapsed`: `1 - 0.5^(elapsed / half_life)`. Without a half-life nothing is.
pub fn decay_fraction(elapsed: Duration, half_life: Duration) -> f64 {
    if half_life.is_zero() { 0.0 } else { 1.0 - 0.5_f64.powf(elapsed.as_secs_f64() / half_life.as_secs_f64()) }
}

/// Every quantity times a factor, rounded down to billionths.
pub fn scale_resources(resources: &ResourceList, factor: f64) -> ResourceList {
    resources.iter().map(|(resource, quantity)| (resource.clone(), quantity.scaled(factor))).collect()
}

/// The decayed usage after `elapsed`, of which `current` was in use: `old * (1 - a) + current * a`.
pub fn decayed_usage(
    consumed: &ResourceList,
    current: &ResourceList,
    elapsed: Duration,
    half_life: Duration,
) -> ResourceList {
    let fraction = decay_fraction(elapsed, half_life);
    let mut sum = scale_resources(consumed, 1.0 - fraction);
    crate::pod_requests::add_quantities(&mut sum, &scale_resources(current, fraction));
    sum
}

/// What a workload is charged when it enters, until the next sample of its usage sees it.
pub fn entry_penalty(requests: &ResourceList, sampling_interval: Duration, half_life: Duration) -> ResourceList {
    scale_resources(requests, decay_fraction(sampling_interval, half_life))
}

/// The usage by which a LocalQueue is ordered: the weighted sum of what it consumed and is charged, in cores and bytes, divided by
/// its weight. A queue without weight comes last. `resource_weights` default to 1.
pub fn weighted_usage(
    consumed: &ResourceList,
    penalty: &ResourceList,
    resource_weights: &BTreeMap<Box<str>, f64>,
    weight: Weight,
) -> f64 {
    if weight.nanos() == 0 {
        return f64::INFINITY;
    }
    let mut sum = consumed.clone();
    crate::pod_requests::add_quantities(&mut sum, penalty);
    let weight_of = |resource: &str| resource_weights.get(resource).copied().unwrap_or(1.0);
    let total: f64 = sum.iter().map(|(resource, quantity)| weight_of(resource) * quantity.to_f64()).sum();
    total / Quantity::from_nanos(weight.nanos().into()).to_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(&str, &str)]) -> ResourceList {
        entries.iter().map(|&(r, q)| (r.into(), q.parse().unwrap())).collect()
    }

    #[test]
    fn half_is_forgotten_after_a_half_life() {
        let (hour, none) = (Duration::from_hours(1), ResourceList::new());
        let consumed = list(&[("cpu", "4")]);
        assert_eq!(decayed_usage(&consumed, &none, hour, hour), list(&[("cpu", "2")]));
        assert_eq!(decayed_usage(&consumed, &none, 2 * hour, hour), list(&[("cpu", "1")]));
        assert_eq!(decayed_usage(&consumed, &none, Duration::ZERO, hour), consumed);
        assert_eq!(decayed_usage(&consumed, &none, hour, Duration::ZERO), consumed);
    }

    #[test]
    fn a_queue_without_weight_comes_last() {
        let (some, none) = (list(&[("cpu", "1")]), ResourceList::new());
        let weights = BTreeMap::new();
        assert!(weighted_usage(&none, &none, &weights, Weight::from_nanos(0)).is_infinite());
        let half = Weight::from_nanos(500_000_000);
        assert!((weighted_usage(&some, &some, &weights, half) - 4.0).abs() < 1e-12);
    }
}
