//! Random events on the engine: its invariants hold after each, nothing is admitted above the limits, and it comes to rest.
#![cfg_attr(fuzzing, no_main)]

slicegate_fuzz::fuzz!(|data| {
    if let Err(why) = slicegate_fuzz::drive::drive(data) {
        panic!("{why}");
    }
});
