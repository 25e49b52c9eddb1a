//! `SG01xx`: fields of ClusterQueues and Cohorts that the API refuses, or silently ignores. The reader finds these; what it
//! finds in these fields has codes of its own so that more can be said about it.

use super::rule;
use crate::rule::Rule;

pub(super) const RULES: &[Rule] = &[
    rule! {
        "SG0101", Error, "A field by the name that it has in another version",
        why: "the field is refused or ignored: a ClusterQueue may silently leave its cohort or lose its checks",
        source: "Kueue's conversion between v1beta1 and v1beta2",
    },
    rule! {
        "SG0102", Error, "A flavorFungibility value of another version",
        why: "v1beta2 calls the values MayStopSearch and TryNextFlavor; v1beta1's Borrow and Preempt are refused",
        source: "Kueue apis/kueue/v1beta2, FlavorFungibility",
    },
    rule! {
        "SG0103", Error, "Text where an object belongs",
        why: "the API server refuses the object",
        source: "Kueue apis/kueue/v1beta2, ClusterQueuePreemption",
    },
    rule! {
        "SG0104", Error, "A flavor whose resources are not those of its group, in their order",
        why: "Kueue's webhook refuses the queue: quotas are matched with coveredResources by position",
        source: "Kueue pkg/webhooks, clusterqueue_webhook.go",
    },
    rule! {
        "SG0105", Error, "A borrowing or lending limit without a cohort",
        why: "there is nobody to borrow from or to lend to, and Kueue refuses the object",
        source: "Kueue apis/kueue/v1beta2, validation of ClusterQueueSpec",
    },
    rule! {
        "SG0106", Error, "A queue that lends more than it has",
        why: "Kueue refuses the queue",
        source: "Kueue pkg/webhooks, clusterqueue_webhook.go",
    },
    rule! {
        "SG0107", Error, "A preference between borrowing and preemption that is never asked",
        why: "the search stops before there is anything to choose between; Kueue refuses the queue",
        source: "Kueue apis/kueue/v1beta2, validation of FlavorFungibility",
    },
    rule! {
        "SG0108", Error, "borrowWithinCohort without reclaimWithinCohort",
        why: "a queue that may not reclaim may not preempt while borrowing either; Kueue refuses the queue",
        source: "Kueue apis/kueue/v1beta2, validation of ClusterQueuePreemption",
    },
    rule! {
        "SG0109", Error, "An admission check for a flavor that the queue does not have",
        why: "Kueue refuses the queue: the check would never be asked",
        source: "Kueue pkg/webhooks, clusterqueue_webhook.go",
    },
];
