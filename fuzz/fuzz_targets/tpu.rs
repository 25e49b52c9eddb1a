//! Any text read as a topology, a machine type, an accelerator, an accelerator type or a slice: nothing panics, what parses
//! prints as it was written, and what is suggested instead exists.
#![cfg_attr(fuzzing, no_main)]

use slicegate_tpu::{Accelerator, AcceleratorType, MachineType, Multislice, SliceShape, SubSlices, SuperSlice, Topology};

slicegate_fuzz::fuzz!(|data| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match text.parse::<Topology>() {
        Ok(topology) => {
            assert_eq!(topology.to_string(), text);
            for accelerator in Accelerator::ALL {
                let nearest = accelerator.nearest_topology(topology);
                assert!(accelerator.supports(nearest), "{accelerator} {nearest}");
                for slice in SliceShape::candidates(accelerator, topology) {
                    shape(slice);
                }
            }
            if let Err(error) = SuperSlice::new(topology) {
                assert!(SuperSlice::new(error.suggestion).is_ok(), "{error}");
            }
        }
        Err(error) => assert!(error.suggestion.is_none_or(|other| other.to_string().parse() == Ok(other)), "{error}"),
    }
    for accelerator in Accelerator::ALL {
        if let Err(error) = accelerator.parse_topology(text) {
            assert!(error.suggestion().is_none_or(|other| accelerator.supports(other)), "{error}");
        }
    }
    match text.parse::<MachineType>() {
        Ok(machine) => assert_eq!(machine.to_string(), text),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    match text.parse::<Accelerator>() {
        Ok(accelerator) => assert_eq!(accelerator.to_string(), text),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    match text.parse::<AcceleratorType>() {
        Ok(name) => assert_eq!(name.to_string(), text),
        Err(error) => assert!(error.suggestion.is_none_or(|other| other.to_string().parse() == Ok(other)), "{error}"),
    }
    if let Some((left, right)) = text.split_once(' ') {
        if let Ok(slice) = SliceShape::parse(left, right) {
            shape(slice);
        }
        if let Ok(slice) = SliceShape::from_selector(left, right, None) {
            shape(slice);
        }
    }
});

/// The arithmetic of a slice that exists.
fn shape(slice: SliceShape) {
    assert_eq!(slice.chips(), slice.hosts() * slice.chips_per_host());
    let last = slice.hosts() - 1;
    let chips = slice.chips_of_worker(last).expect("the last worker has chips");
    assert_eq!(slice.worker_of_chip(chips.origin), Some(last));
    assert!(slice.ici().diameter() < slice.chips());
    for part in SubSlices::shapes_of(slice) {
        let parts = SubSlices::new(slice, part).expect("a listed part");
        assert_eq!(parts.count() * part.chips(), slice.chips());
    }
    let _ = Multislice::new(slice, slice.hosts());
}
