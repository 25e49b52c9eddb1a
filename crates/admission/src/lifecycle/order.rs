//! Changes of priority.

/// Whether a change of priority class or effective priority lets others that are parked be looked at again. Only classes of
/// Kueue's own kind count. Classes are written `group/kind/name`.
pub fn priority_changed(old: (&str, i64), new: (&str, i64)) -> bool {
    new.0.starts_with("kueue.x-k8s.io/WorkloadPriorityClass/") && old != new
}
