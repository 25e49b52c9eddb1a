//! Random events on the engine.

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use slicegate_tests::drive::{Tally, drive};

fn events() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..1200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(300), max_shrink_iters: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_invariants_hold_and_it_comes_to_rest(bytes in events()) {
        let outcome = drive(&bytes);
        prop_assert!(outcome.is_ok(), "{}", outcome.unwrap_err());
    }
}

#[test]
fn random_events_reach_what_they_are_to_test() {
    let mut runner = TestRunner::deterministic();
    let mut all = Tally::default();
    for _ in 0..100 {
        let bytes = events().new_tree(&mut runner).unwrap().current();
        let tally = drive(&bytes).unwrap();
        all.cycles += tally.cycles;
        all.admissions += tally.admissions;
        all.partial += tally.partial;
        all.placed += tally.placed;
        all.moved += tally.moved;
        all.evictions += tally.evictions;
        all.sliced += tally.sliced;
        all.short += tally.short;
    }
    assert!(all.cycles > 600 && all.admissions > 300 && all.partial > 5 && all.evictions > 10, "{all:?}");
    assert!(all.sliced > 30 && all.short > 10, "{all:?}");
    assert!(all.placed > 50 && all.moved > 0, "{all:?}");
}

#[test]
fn the_inputs_kept_for_the_fuzz_target_pass() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/engine");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let outcome = drive(&std::fs::read(&path).unwrap());
        assert!(outcome.is_ok(), "{}: {}", path.display(), outcome.unwrap_err());
        count += 1;
    }
    assert!(count >= 24, "{count} inputs in {folder}");
}
