//! Random events on the engine.

use proptest::prelude::*;
use slicegate_tests::drive::drive;

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_invariants_hold_and_it_comes_to_rest(
        bytes in proptest::collection::vec(any::<u8>(), 0..600)
    ) {
        let outcome = drive(&bytes);
        prop_assert!(outcome.is_ok(), "{}", outcome.unwrap_err());
    }
}
