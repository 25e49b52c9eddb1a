//! What went wrong in systems of this kind, as scenarios that must come out right.
//!
//! Each file in `scenarios` beside these tests holds objects, what happens, and who runs, who waits and who was preempted
//! afterwards.

#[cfg(test)]
mod cluster;
#[cfg(test)]
mod expect;
#[cfg(test)]
mod lab;
#[cfg(test)]
mod scenario;
#[cfg(test)]
mod yaml;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::scenario::{Player, Scenario, folder, objects};
    use crate::{cluster, lab};

    #[track_caller]
    fn run(name: &str) {
        let scenario = Scenario::read(name).unwrap_or_else(|why| panic!("{name}: {why}"));
        let play = |objects: &str| match scenario.script.on {
            Player::Engine => {
                lab::play(objects, &scenario.script.steps)?;
                // What the engine decides alone, it decides under a controller.
                if scenario.needs_the_engine_alone() { Ok(()) } else { cluster::play(&scenario, objects) }
            }
            Player::Controller => cluster::play(&scenario, objects),
        };
        play(&scenario.objects).unwrap_or_else(|why| panic!("{name}: {why}"));
        for variant in scenario.script.variants.keys() {
            let objects = scenario.variant(variant).and_then(|objects| play(&objects));
            objects.unwrap_or_else(|why| panic!("{name}, {variant}: {why}"));
        }
    }

    macro_rules! scenarios {
        ($($test:ident: $file:literal,)*) => {
            const ALL: &[&str] = &[$($file),*];

            $(#[test]
            fn $test() {
                run($file);
            })*
        };
    }

    scenarios! {
        a_lending_limit_keeps_a_floor: "V01a",
        a_lender_that_may_reclaim_does: "V01b",
        a_blocked_head_keeps_its_free_quota: "V02a",
        idle_quota_is_lent_by_who_can_always_reclaim: "V02b",
        a_higher_priority_takes_what_a_blocked_head_would_keep: "V02c",
        blocked_jobs_hide_nobody: "V03a",
        a_strict_head_hides_everybody: "V03b",
        ten_thousand_blocked_jobs_hide_nobody: "V03c",
        the_search_goes_on_to_the_flavor_with_a_victim: "V04",
        flavors_in_order_with_taints_and_selectors: "V05",
        reasons_that_are_not_about_quota: "V06a",
        what_no_queue_covers_may_be_passed_over: "V06b",
        a_jobset_counts_as_the_sum_of_its_jobs: "V07",
        the_newest_is_spared_if_it_does_not_help: "V08a",
        freed_quota_is_for_who_freed_it: "V08b",
        a_resource_not_asked_for_forbids_nothing: "V08c",
        nobody_is_evicted_for_a_place_that_does_not_come: "V09",
        capacity_that_does_not_come_twice: "V10",
        pods_that_never_become_ready: "V11",
        flavors_from_nearby_go_first: "V12a",
        the_first_flavor_that_borrows_will_do: "V12b",
    }

    #[test]
    fn every_file_is_played() {
        let files: BTreeSet<String> = std::fs::read_dir(folder())
            .unwrap()
            .map(|f| f.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        let played: BTreeSet<String> = ALL.iter().map(|&n| n.to_owned()).collect();
        assert_eq!(files, played);
    }

    #[test]
    fn a_wrong_expectation_is_noticed() {
        let scenario = Scenario::read("V04").unwrap();
        let text = scenario.objects.replace("- {name: cpu, nominalQuota: 1}", "- {name: cpu, nominalQuota: 2}");
        assert_ne!(text, scenario.objects);
        assert!(lab::play(&text, &scenario.script.steps).unwrap_err().contains("preemptions"));
    }

    #[test]
    fn the_older_name_of_the_cohort_is_not_taken_for_none() {
        let scenario = Scenario::read("V12a").unwrap();
        let text = scenario.objects.replace("cohortName: mid", "cohort: mid");
        assert_ne!(text, scenario.objects);
        let why = objects(&text).unwrap_err();
        assert!(why.contains("there is no field `cohort`") && why.contains("write `cohortName`"), "{why}");
    }
}
