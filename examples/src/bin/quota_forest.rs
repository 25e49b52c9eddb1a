//! A scheduler's quota in a few lines: two teams share TPU chips through a Cohort.
//!
//! ```text
//! cargo run -p slicegate-examples --bin quota_forest -- vision=12 speech=8 speech=8 vision=4
//! ```
//!
//! Each argument asks for so many chips in a queue. What fits is taken; what does not is explained, with the queue or Cohort that
//! limits. It uses `slicegate-quota` alone: there are no pods and no workloads here.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use slicegate_quota::{Amount, FlavorResourceId, Forest, LimitKind, Limits, Names, NodeId, NodeKind, NodeQuota};

const DEMO: [&str; 5] = ["vision=12", "speech=8", "speech=8", "vision=4", "audit=2"];

fn main() -> ExitCode {
    let mut asked: Vec<String> = std::env::args().skip(1).collect();
    if asked.is_empty() {
        asked = DEMO.map(str::to_owned).into();
    }
    match run(&asked, &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(asked: &[String], out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let mut names = Names::new();
    let chips = names.intern("v5p", "google.com/tpu");
    let mut forest = teams(chips);

    for text in asked {
        let (queue, amount) = text.split_once('=').ok_or_else(|| format!("{text:?} is not of the form queue=chips"))?;
        let id = forest.cluster_queue(queue).ok_or_else(|| format!("there is no queue {queue:?}"))?;
        let amount = Amount::new(amount.parse()?);
        if forest.available(id, chips) >= amount {
            let (level, _) = forest.level(id, chips, amount);
            forest.add_usage(id, chips, amount);
            let how = if level == 0 { "from its own quota" } else { "borrowing" };
            writeln!(out, "{queue}: {amount} chips taken {how}")?;
        } else {
            writeln!(out, "{queue}: {amount} chips do not fit: {}", why_not(&forest, id, chips, amount))?;
        }
    }

    writeln!(
        out,
        "\n{:<10} {:>7} {:>7} {:>5} {:>10} {:>6}",
        "node", "nominal", "subtree", "used", "available", "share"
    )?;
    for id in forest.nodes() {
        writeln!(
            out,
            "{:<10} {:>7} {:>7} {:>5} {:>10} {:>6}",
            forest.name(id),
            forest.nominal(id, chips).value(),
            forest.subtree_quota(id, chips).value(),
            forest.usage(id, chips).value(),
            forest.available(id, chips).value(),
            forest.share(id, &[], &names).rounded(),
        )?;
    }
    Ok(())
}

/// A department with a reserve of its own, two teams that share, and one that keeps its quota to itself.
fn teams(chips: FlavorResourceId) -> Forest {
    let quota = |parent: Option<&str>, nominal, borrowing: Option<i64>, lending: Option<i64>| NodeQuota {
        parent: parent.map(Into::into),
        limits: [(
            chips,
            Limits {
                nominal: Amount::new(nominal),
                borrowing: borrowing.map(Amount::new),
                lending: lending.map(Amount::new),
            },
        )]
        .into(),
        ..NodeQuota::default()
    };
    let mut forest = Forest::new();
    forest.configure(|forest| {
        forest.set_cohort("research", quota(None, 4, None, None));
        forest.set_cluster_queue("vision", quota(Some("research"), 8, Some(8), None));
        forest.set_cluster_queue("speech", quota(Some("research"), 8, None, None));
        forest.set_cluster_queue("audit", quota(Some("research"), 4, Some(0), Some(0)));
    });
    forest
}

/// Which node is in the way, and whether giving chips back below it would help.
fn why_not(forest: &Forest, id: NodeId, chips: FlavorResourceId, amount: Amount) -> String {
    if forest.potential(id, chips) < amount {
        let limit = forest.potential_limit(id, chips);
        return format!("at most {} are possible, by the limits of {}", limit.amount, forest.name(limit.node));
    }
    let limit = forest.available_limit(id, chips);
    let kind = if forest.kind(limit.node) == NodeKind::Cohort { "Cohort" } else { "queue" };
    let name = forest.name(limit.node);
    match limit.kind {
        LimitKind::Quota { quota, usage } => format!("{kind} {name} has {usage} of its {quota} in use"),
        LimitKind::BorrowingLimit { limit, borrowed } => {
            format!("{kind} {name} may borrow {limit} and has borrowed {}", borrowed.or_zero())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(asked: &[&str]) -> String {
        let asked: Vec<String> = asked.iter().map(|&a| a.to_owned()).collect();
        let mut out = Vec::new();
        run(&asked, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_demo_admits_borrows_and_explains() {
        let text = output(&DEMO);
        let lines: Vec<&str> = text.lines().take(5).collect();
        assert_eq!(
            lines,
            [
                "vision: 12 chips taken borrowing",
                "speech: 8 chips taken from its own quota",
                "speech: 8 chips do not fit: Cohort research has 20 of its 20 in use",
                "vision: 4 chips do not fit: Cohort research has 20 of its 20 in use",
                "audit: 2 chips taken from its own quota",
            ]
        );
    }

    #[test]
    fn what_can_never_fit_is_told_apart() {
        assert!(output(&["vision=17"]).contains("at most 16 are possible, by the limits of vision"));
        assert!(output(&["vision=9", "vision=8"]).contains("queue vision may borrow 8 and has borrowed 1"));
    }
}
