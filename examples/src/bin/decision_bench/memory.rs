//! Counting allocations and memory.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, Stats, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Runs something; what it returned and what it allocated.
pub(crate) fn counted<R>(run: impl FnOnce() -> R) -> (R, Stats) {
    let region = Region::new(ALLOCATOR);
    let result = run();
    (result, region.change())
}

/// Bytes that are still in use of what was allocated.
pub(crate) fn kept(stats: &Stats) -> usize {
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated)
}

/// The most memory that this process ever had, in MiB, as the system counts it; `None` where it does not say.
pub(crate) fn peak_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib / 1024)
}
