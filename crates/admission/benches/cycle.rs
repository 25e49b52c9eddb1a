//! Scheduling cycles: `cargo bench -p slicegate-admission`.
#![expect(missing_docs, reason = "a program, whose modules are shared with another one")]

mod load;

use divan::Bencher;
use load::{Cluster, Load};

#[global_allocator]
static ALLOCATOR: divan::AllocProfiler = divan::AllocProfiler::system();

fn main() {
    divan::main();
}

fn loads() -> [(&'static str, Load); 2] {
    [("10 x 100 x 50", Load::wide()), ("5 x 6 x 500", Load::deep())]
}

#[divan::bench(args = [0, 1], sample_count = 5)]
fn first_cycle_all_heads_fit(bencher: Bencher<'_, '_>, which: usize) {
    let (_, load) = &loads()[which];
    bencher
        .counter(divan::counter::ItemsCount::new(load.cohorts * load.queues_per_cohort))
        .with_inputs(|| {
            let mut cluster = Cluster::new(load.engine());
            cluster.create(load.workloads());
            cluster
        })
        .bench_local_refs(|cluster| cluster.engine.cycle(cluster.now));
}

#[divan::bench(args = [0, 1], sample_count = 5)]
fn second_cycle_no_head_finds_victims(bencher: Bencher<'_, '_>, which: usize) {
    let (_, load) = &loads()[which];
    bencher
        .counter(divan::counter::ItemsCount::new(load.cohorts * load.queues_per_cohort))
        .with_inputs(|| {
            let mut cluster = Cluster::new(load.engine());
            cluster.create(load.workloads());
            let first = cluster.engine.cycle(cluster.now);
            cluster.write(first);
            cluster
        })
        .bench_local_refs(|cluster| cluster.engine.cycle(cluster.now));
}
