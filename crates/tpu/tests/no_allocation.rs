//! The arithmetic of shapes allocates nothing. A program of its own, without the harness: the count is of the
//! whole process, and the harness has threads that allocate.

use std::alloc::System;
use std::hint::black_box;

use slicegate_tpu::{
    Accelerator, AcceleratorType, Coord, Extent, MachineType, Multislice, SliceShape, SubSlices, SuperSlice, Superpod,
    Wiring, Wrap,
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Everything that can be asked about a shape.
fn walk(accelerator: Accelerator) -> u64 {
    let mut sum = 0u64;
    for topology in accelerator.topologies() {
        sum += u64::from(accelerator.nearest_topology(topology).chips());
        for slice in SliceShape::candidates(accelerator, topology) {
            let (ici, last) = (slice.ici(), slice.hosts() - 1);
            let chips = slice.chips_of_worker(last).map_or(Coord::ORIGIN, |block| block.origin);
            sum += u64::from(ici.links() + ici.diameter() + ici.bisection_links() + ici.degree(chips));
            sum += u64::from(ici.distance(Coord::ORIGIN, chips).unwrap_or_default());
            sum += ici.neighbors(chips).map(|next| u64::from(next.x)).sum::<u64>();
            sum += u64::from(slice.worker_of_chip(chips).unwrap_or_default() + slice.accelerator_type().size());
            sum += u64::from(slice.supports_twist()) + u64::from(slice.wrap().x);
            for part in SubSlices::shapes_of(slice) {
                let Ok(parts) = SubSlices::new(slice, part) else { continue };
                sum += parts.workers_of(parts.count() - 1).map(u64::from).sum::<u64>();
            }
            sum += Multislice::new(slice, 3).map_or(0, Multislice::chips);
        }
        sum += SuperSlice::new(topology).map_or(0, |slice| u64::from(slice.cubes()));
    }
    sum += accelerator.smallest_with(100).map_or(0, |topology| u64::from(topology.chips()));
    sum
}

fn main() -> Result<(), String> {
    let extent = Extent::new(4, 4, 6);
    let pod = extent.map(|e| Superpod::new(Accelerator::V5pSlice, e, Wiring::Contiguous(Wrap::ALL)));
    let (Some(Ok(pod)), Ok(wanted)) = (pod, "4x8x8".parse()) else {
        return Err("no pod to look into".to_owned());
    };
    let region = Region::new(GLOBAL);
    for accelerator in Accelerator::ALL {
        black_box(walk(accelerator));
    }
    // Reading what is right allocates no more than computing with it.
    black_box("4x4x8".parse::<slicegate_tpu::Topology>().is_ok());
    black_box("ct6e-standard-4t".parse::<MachineType>().is_ok());
    black_box("v5p-128".parse::<AcceleratorType>().is_ok());
    black_box(SliceShape::from_selector("tpu-v6e-slice", "4x4", Some(4)).is_ok());
    // Nor does a look into a pod.
    black_box((pod.largest_fit(), pod.fragmentation(), pod.check(wanted).is_ok()));
    let change = region.change();
    if (change.allocations, change.reallocations) == (0, 0) { Ok(()) } else { Err(format!("{change:?}")) }
}
