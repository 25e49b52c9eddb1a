//! What parked workloads cost: memory, and the time of a cycle beside them.

use cpu_time::ThreadTime;

use crate::load::{Cluster, Load, Size, workload};
use crate::memory::{counted, kept, peak_mib};
use crate::{float, median, micros};

const CYCLES: usize = 50;

pub(crate) fn run() {
    println!("\nA cycle of 100 heads that fit, beside workloads that are parked (10 cohorts of 100 ClusterQueues)");
    for parked in [0, 10_000, 1_000_000] {
        beside(parked);
    }
    if let Some(mib) = peak_mib() {
        println!("  peak memory of this process: {mib} MiB");
    }
}

fn beside(parked: usize) {
    let load = Load::wide();
    let mut cluster = Cluster::new(load.engine());
    let queue = |n: usize| format!("queue-{}-{}", n % load.cohorts, n / load.cohorts % load.queues_per_cohort);
    // They ask for more than ever could be, in two sizes.
    let size = |n: usize| Size { count: 1, cpu: 1_000_000 + i64::from(n.is_multiple_of(4)), priority: 10 };
    let ((), stats) = counted(|| {
        for n in 0..parked {
            cluster.engine.set_workload(cluster.now, workload(&format!("parked-{n}"), &queue(n), &size(n), n));
        }
        loop {
            let cycle = cluster.engine.cycle(cluster.now);
            if cycle.entries.is_empty() {
                break;
            }
        }
    });
    let bytes = float(kept(&stats)) / float(parked.max(1));

    let (mut plain, mut flushing) = (Vec::new(), Vec::new());
    for round in 0..CYCLES {
        for finish in [false, true] {
            let heads = (0..100).map(|n| {
                let name = format!("head-{round}-{n}-{finish}");
                workload(&name, &queue(n), &Size { count: 1, cpu: 1, priority: 50 }, parked + round)
            });
            cluster.create(heads);
            let begin = ThreadTime::now();
            if finish {
                // What finished lets all that is parked in its tree be looked at again.
                cluster.engine.flush(cluster.now);
            }
            let cycle = cluster.engine.cycle(cluster.now);
            let seconds = begin.elapsed().as_secs_f64();
            if finish {
                flushing.push(seconds);
            } else {
                plain.push(seconds);
            }
            cluster.write(cycle);
            while finish && !cluster.engine.cycle(cluster.now).entries.is_empty() {}
        }
        cluster.finish_running();
    }
    println!(
        "  {parked:>9} parked: {:>8} us a cycle; with all of them woken: {:>9} us{}",
        micros(median(plain)),
        micros(median(flushing)),
        if parked == 0 { String::new() } else { format!("; {bytes:.0} bytes each") }
    );
}
