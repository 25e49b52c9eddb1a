//! Cycles until nothing changes, and what a head costs in the cycles where all heads fare alike.

use cpu_time::ThreadTime;
use slicegate_admission::{Cycle, Outcome};

use crate::load::{Cluster, Load, START};
use crate::memory::counted;
use crate::{float, median, micros};

/// How every head of a cycle fared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Fits,
    NoVictims,
    Preempts,
    NoFit,
    Mixed,
}

impl Fate {
    const ALL: [Self; 5] = [Self::Fits, Self::NoVictims, Self::Preempts, Self::NoFit, Self::Mixed];

    fn of(cycle: &Cycle) -> Self {
        let one = |outcome: &Outcome| match outcome {
            Outcome::Admitted { .. } => Self::Fits,
            Outcome::NoCandidates => Self::NoVictims,
            Outcome::Preempting { .. } => Self::Preempts,
            Outcome::NoFit => Self::NoFit,
            _ => Self::Mixed,
        };
        let mut fates = cycle.entries.iter().map(|e| one(&e.outcome));
        let first = fates.next().unwrap_or(Self::Mixed);
        if fates.all(|f| f == first) { first } else { Self::Mixed }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Fits => "every head fits",
            Self::NoVictims => "every head looks for victims, finds none",
            Self::Preempts => "every head preempts",
            Self::NoFit => "no head fits, none may preempt",
            Self::Mixed => "mixed",
        }
    }
}

/// Times of cycles, by how their heads fared.
#[derive(Default)]
struct Times {
    /// Fate, heads, seconds.
    cycles: Vec<(Fate, usize, f64)>,
}

impl Times {
    fn cycle(&mut self, cluster: &mut Cluster) -> Cycle {
        let begin = ThreadTime::now();
        let cycle = cluster.engine.cycle(cluster.now);
        let seconds = begin.elapsed().as_secs_f64();
        if !cycle.entries.is_empty() {
            self.cycles.push((Fate::of(&cycle), cycle.entries.len(), seconds));
        }
        cycle
    }

    fn print(&self) {
        let heads: usize = self.cycles.iter().map(|c| c.1).sum();
        let seconds: f64 = self.cycles.iter().map(|c| c.2).sum();
        println!(
            "  {} cycles, {heads} decisions in {:.1} ms: {:.0} decisions a second, {} us each",
            self.cycles.len(),
            seconds * 1e3,
            float(heads) / seconds,
            micros(seconds / float(heads))
        );
        for fate in Fate::ALL {
            let these: Vec<_> = self.cycles.iter().filter(|c| c.0 == fate).collect();
            let heads: usize = these.iter().map(|c| c.1).sum();
            if heads > 0 {
                let per_head = these.iter().map(|c| c.2 / float(c.1)).collect();
                println!(
                    "    {:<42} {:>5} cycles {heads:>7} heads {:>8} us a head (median of cycles)",
                    fate.text(),
                    these.len(),
                    micros(median(per_head))
                );
            }
        }
    }
}

/// Both loads, until nothing changes; then again with everything that runs finishing after every cycle.
pub(crate) fn run() {
    for (name, load) in [("10 cohorts of 100, 50 each", Load::wide()), ("5 cohorts of 6, 500 each", Load::deep())] {
        let waves = load.workloads().chunk_by(|a, b| a.spec.priority == b.spec.priority).map(<[_]>::to_vec).collect();
        taking_in(name, &load);
        cycles(
            &format!("{name}: all there at once, cycles until nothing changes"),
            &load,
            vec![load.workloads()],
            false,
        );
        cycles(&format!("{name}: small ones first, then medium, then large"), &load, waves, false);
        cycles(
            &format!("{name}: what runs finishes after each cycle, until all have run"),
            &load,
            vec![load.workloads()],
            true,
        );
    }
}

fn cycles(title: &str, load: &Load, waves: Vec<Vec<slicegate_workload::Workload>>, finishing: bool) {
    let mut times = Times::default();
    let mut cluster = Cluster::new(load.engine());
    for wave in waves {
        cluster.create(wave);
        loop {
            let cycle = times.cycle(&mut cluster);
            if cycle.entries.is_empty() {
                break;
            }
            cluster.write(cycle);
            if finishing {
                cluster.finish_all();
            }
            cluster.now = cluster.now.plus_seconds(1);
        }
    }
    println!("\n{title}");
    times.print();
}

fn taking_in(name: &str, load: &Load) {
    let mut engine = load.engine();
    let workloads = load.workloads();
    let count = workloads.len();
    let begin = ThreadTime::now();
    for workload in workloads {
        engine.set_workload(START, workload);
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!("\n{name}: taking in {count} new workloads, {} us each", micros(seconds / float(count)));
}

/// The same cycle again and again: times and allocations once everything has been seen.
pub(crate) fn steady() {
    println!(
        "\nSteady state, 10 cohorts of 100: allocations a head (of which what the cycle returned, until it was dropped)"
    );
    let load = Load::wide();
    let large = Load { sizes: load.sizes[2..].to_vec(), ..load.clone() };
    let mut cluster = Cluster::new(large.engine());
    cluster.create(large.workloads());
    let first = cluster.engine.cycle(cluster.now);
    cluster.write(first);
    repeat("looks for victims, finds none", 50, &mut cluster, |cluster| cluster.wake_all(&load));

    let small = Load { sizes: load.sizes[..1].to_vec(), ..load.clone() };
    let mut cluster = Cluster::new(small.engine());
    cluster.create(small.workloads());
    repeat("fits", 30, &mut cluster, Cluster::finish_all);
}

fn repeat(name: &str, times: usize, cluster: &mut Cluster, between: impl Fn(&mut Cluster)) {
    let (mut seconds, mut allocations, mut returned, mut bytes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..times {
        between(cluster);
        let begin = ThreadTime::now();
        let (cycle, during) = counted(|| cluster.engine.cycle(cluster.now));
        let heads = float(cycle.entries.len());
        seconds.push(begin.elapsed().as_secs_f64() / heads);
        allocations.push(float(during.allocations) / heads);
        bytes.push(float(during.bytes_allocated) / heads);
        let copy = cycle.clone();
        let ((), dropped) = counted(|| drop(copy));
        returned.push(float(dropped.deallocations) / heads);
        cluster.write(cycle);
        cluster.now = cluster.now.plus_seconds(1);
    }
    println!(
        "  {name:<30} {:>8} us a head, {:>5.1} allocations ({:.1} returned), {:.0} bytes",
        micros(median(seconds)),
        median(allocations),
        median(returned),
        median(bytes)
    );
}
