//! Scheduling cycles: `cargo bench -p slicegate-admission`.

mod load;
mod topology;

use std::cell::{Cell, RefCell};

use divan::Bencher;
use divan::counter::ItemsCount;
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
        .counter(ItemsCount::new(load.cohorts * load.queues_per_cohort))
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
        .counter(ItemsCount::new(load.cohorts * load.queues_per_cohort))
        .with_inputs(|| {
            let mut cluster = Cluster::new(load.engine());
            cluster.create(load.workloads());
            let first = cluster.engine.cycle(cluster.now);
            cluster.write(first);
            cluster
        })
        .bench_local_refs(|cluster| cluster.engine.cycle(cluster.now));
}

/// The same cycle again and again; times and allocations once everything has been seen.
fn again(bencher: Bencher<'_, '_>, load: &Load, between: impl Fn(&mut Cluster)) {
    let mut cluster = Cluster::new(load.engine());
    cluster.create(load.workloads());
    let first = cluster.engine.cycle(cluster.now);
    cluster.write(first);
    let cluster = RefCell::new(cluster);
    let last = Cell::new(None);
    bencher
        .counter(ItemsCount::new(load.cohorts * load.queues_per_cohort))
        .with_inputs(|| {
            let mut cluster = cluster.borrow_mut();
            if let Some(cycle) = last.take() {
                cluster.write(cycle);
            }
            cluster.now = cluster.now.plus_seconds(1);
            between(&mut cluster);
        })
        .bench_local_values(|()| {
            let mut cluster = cluster.borrow_mut();
            let now = cluster.now;
            last.set(Some(cluster.engine.cycle(now)));
        });
}

#[divan::bench(sample_count = 30, sample_size = 1)]
fn steady_all_heads_fit(bencher: Bencher<'_, '_>) {
    let wide = Load::wide();
    let small = Load { sizes: wide.sizes[..1].to_vec(), ..wide };
    again(bencher, &small, Cluster::finish_all);
}

#[divan::bench(sample_count = 30, sample_size = 1)]
fn steady_no_head_finds_victims(bencher: Bencher<'_, '_>) {
    let wide = Load::wide();
    let large = Load { sizes: wide.sizes[2..].to_vec(), ..wide };
    again(bencher, &large, |cluster| cluster.wake_all(&large));
}

/// 2,000 nodes, all in use by 700 workloads, and quota to spare: which of them have to go for so many whole hosts?
#[divan::bench(args = [(250, true), (2_000, false)], sample_count = 5, sample_size = 1)]
fn victims_for_places(bencher: Bencher<'_, '_>, (hosts, one_block): (i32, bool)) {
    let mut full = topology::Full::new(hosts, one_block);
    assert!(full.decide() > 80);
    bencher.bench_local(|| full.decide());
}
