//! Everything that can go wrong between a controller and its API server.

use slicegate_sim::faults::{Action, Explored, Failure, Figures, Plan, explore};

fn holds(plan: &Plan) {
    if let Err(failure) = plan.run() {
        let Failure { plan, what, .. } = failure.shrink();
        panic!("{what}\n{plan}{}", plan.trace().join("\n"));
    }
}

/// `cargo run --release -p xtask -- faults` runs more and longer ones.
#[test]
fn many_runs_hold() {
    for seed in 0..120 {
        holds(&Plan::new(seed, 150));
    }
}

/// Runs that failed once, as short as they could be made.
#[test]
fn what_failed_once_holds() {
    for plan in include_str!("faults.txt").split("\n\n").filter(|p| !p.trim().is_empty()) {
        holds(&plan.parse().unwrap());
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in [3, 14, 159] {
        let plan = Plan::new(seed, 400);
        let trace = plan.trace();
        assert_eq!(trace, plan.trace());
        assert!(trace.len() > 100);
    }
}

#[test]
fn a_plan_can_be_written_and_read() {
    let plan = Plan::new(7, 50);
    assert_eq!(plan.to_string().parse::<Plan>(), Ok(plan));
    let error = "setup overlap\nDance 1 2".parse::<Plan>().unwrap_err();
    assert!(error.to_string().starts_with("line 2 is no step: \"Dance 1 2\""), "{error}");
}

#[test]
fn faults_happen_in_a_run() {
    let figures = (0..20).filter_map(|seed| Plan::new(seed, 300).run().ok()).reduce(Figures::plus).unwrap();
    assert!(figures.faults > 50 && figures.crashes > 5 && figures.finished > 20, "{figures:?}");
    assert!(Action::FAULTS.iter().all(|kind| kind.is_fault()) && !Action::Deliver.is_fault());
    assert_eq!(figures.by_kind.iter().sum::<u64>(), figures.faults, "{figures}");
    assert!(figures.to_string().contains("LoseAnswer"), "{figures}");
}

/// Two jobs, one check, and a controller that may die between any two writes.
#[test]
fn every_state_of_two_jobs_settles() {
    let explored = explore().unwrap();
    println!("{explored:?}");
    // If these change because the controller does more or less, look at what that is.
    let expected = Explored { states: 6728, moves: 18428, deaths: 6728, ends: 33, depth: 44 };
    assert_eq!(explored, expected);
}
