//! Which TPU slices have so many chips, and what do they look like inside?
//!
//! ```text
//! cargo run -p slicegate-examples --bin tpu_shapes -- v5p 256
//! cargo run -p slicegate-examples --bin tpu_shapes -- tpu-v5-lite-podslice 24
//! ```
//!
//! It uses `slicegate-tpu` alone, as a scheduler would that has its own idea of queues and quotas.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use slicegate_tpu::{Accelerator, Axis, Coord, Multislice, SliceShape, Topology};

/// Workers listed one by one; larger slices are cut off here.
const MAX_WORKERS_SHOWN: u32 = 8;
/// Ways shown of splitting the chips over several slices.
const MAX_SPLITS_SHOWN: usize = 4;
/// Columns of chips that fit on a terminal.
const MAX_COLUMNS_SHOWN: u16 = 24;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut out = io::stdout().lock();
    match parse(&args).and_then(|(accelerator, chips)| Ok(report(&mut out, accelerator, chips)?)) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads has read enough.
        Err(error) if error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe) => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error}\n\nusage: tpu_shapes [ACCELERATOR [CHIPS]]");
            ExitCode::from(2)
        }
    }
}

/// The accelerator and the number of chips on the command line; 16 chips of v6e if there is nothing.
fn parse(args: &[String]) -> Result<(Accelerator, u32), Box<dyn Error>> {
    let accelerator = match args.first() {
        Some(name) => Accelerator::from_common_name(name).map_or_else(|| name.parse(), Ok)?,
        None => Accelerator::V6eSlice,
    };
    let chips = match args.get(1) {
        Some(chips) => chips.parse().map_err(|error| format!("{chips:?} is not a number of chips: {error}"))?,
        None => 16,
    };
    match args.get(2) {
        Some(extra) => Err(format!("unexpected argument {extra:?}").into()),
        None => Ok((accelerator, chips)),
    }
}

fn report(out: &mut impl Write, accelerator: Accelerator, chips: u32) -> io::Result<()> {
    let generation = accelerator.generation();
    writeln!(
        out,
        "{accelerator}: TPU {}, {} core{} and {} GB of HBM a chip, slices up to {}",
        generation.name().trim_start_matches("TPU"),
        generation.cores_per_chip(),
        if generation.cores_per_chip() == 1 { "" } else { "s" },
        generation.hbm_gb_per_chip(),
        accelerator.largest(),
    )?;

    let best = show_slices(out, accelerator, chips)?;
    show_splits(out, accelerator, chips)?;
    if let Some(slice) = best {
        show_inside(out, slice)?;
    }
    Ok(())
}

/// The slices with this many chips, or with the next larger number that exists; returns the one to look into.
fn show_slices(out: &mut impl Write, accelerator: Accelerator, wanted: u32) -> io::Result<Option<SliceShape>> {
    let Some(default) = accelerator.smallest_with(wanted) else {
        writeln!(out, "\nNo slice has {wanted} chips: the largest has {}.", accelerator.largest().chips())?;
        return Ok(None);
    };
    let chips = default.chips();
    if chips == wanted {
        writeln!(out, "\nSlices of {chips} chips")?;
    } else {
        writeln!(out, "\nNo slice has {wanted} chips. Slices of {chips}")?;
    }
    writeln!(out, "    TOPOLOGY     HOSTS  MACHINE TYPE       TYPE            NETWORK   DIAMETER  BISECTION")?;
    let best = SliceShape::pick(accelerator, default, None).ok();
    for topology in accelerator.topologies().filter(|topology| topology.chips() == chips) {
        for slice in SliceShape::candidates(accelerator, topology) {
            writeln!(
                out,
                "  {} {topology:<11} {:>6}  {:<17}  {:<14}  {:<8} {:>9}  {:>9}",
                if Some(slice) == best { '*' } else { ' ' },
                slice.hosts(),
                slice.machine_type(),
                slice.accelerator_type().to_string(),
                slice.wrap().describe(topology.rank()),
                slice.ici().diameter(),
                slice.ici().bisection_links(),
            )?;
        }
    }
    Ok(best)
}

/// Ways to make up the chips from several equal slices.
fn show_splits(out: &mut impl Write, accelerator: Accelerator, chips: u32) -> io::Result<()> {
    let mut splits: Vec<Multislice> = accelerator
        .topologies()
        .filter(|&topology| accelerator.default_topology(topology.chips()) == Some(topology))
        .filter(|topology| topology.chips() < chips && chips.is_multiple_of(topology.chips()))
        .flat_map(|topology| SliceShape::candidates(accelerator, topology))
        .filter(|slice| !slice.machine_type().is_explicit_only())
        .filter_map(|slice| Multislice::new(slice, chips / slice.chips()).ok())
        .collect();
    splits.sort_by_key(|split| split.slices());
    if splits.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{chips} chips as several slices over the data-center network")?;
    for split in splits.iter().take(MAX_SPLITS_SHOWN) {
        let slice = split.slice();
        writeln!(
            out,
            "    {:>4} x {:<11} {:>4} hosts each, {:>5} in all  ({})",
            split.slices(),
            slice.topology(),
            slice.hosts(),
            split.hosts(),
            slice.machine_type(),
        )?;
    }
    Ok(())
}

/// Where the workers of a slice are, and what its runtime is told.
fn show_inside(out: &mut impl Write, slice: SliceShape) -> io::Result<()> {
    writeln!(out, "\nInside {slice}")?;
    writeln!(out, "    TPU_HOST_BOUNDS={}", slice.host_bounds())?;
    writeln!(out, "    TPU_CHIPS_PER_HOST_BOUNDS={}", slice.chip_bounds())?;
    writeln!(out, "    TPU_TOPOLOGY_WRAP={}", slice.wrap())?;
    writeln!(out, "    each host: {} vCPUs, {} GB", slice.machine_type().vcpus(), slice.machine_type().memory_gb())?;

    writeln!(out, "\n    WORKER  HOST        CHIPS")?;
    for worker in 0..slice.hosts().min(MAX_WORKERS_SHOWN) {
        if let (Some(host), Some(block)) = (slice.host_of_worker(worker), slice.chips_of_worker(worker)) {
            let last = block.coords().last().unwrap_or(block.origin);
            writeln!(out, "    {worker:>6}  {:<10}  {} to {last}", host.to_string(), block.origin)?;
        }
    }
    if slice.hosts() > MAX_WORKERS_SHOWN {
        writeln!(out, "    and {} more", slice.hosts() - MAX_WORKERS_SHOWN)?;
    }
    show_map(out, slice)
}

/// A map of the first layer: the worker of each chip, and arrows on the axes that wrap.
fn show_map(out: &mut impl Write, slice: SliceShape) -> io::Result<()> {
    let extent = slice.topology().extent();
    let (columns, rows) = (extent.get(Axis::X), extent.get(Axis::Y));
    if columns > MAX_COLUMNS_SHOWN {
        return Ok(());
    }
    let layers = extent.get(Axis::Z);
    let layer = if layers > 1 { format!(", layer z=0 of {layers}") } else { String::new() };
    writeln!(out, "\n    Worker of each chip{layer} (x to the right, y down)")?;
    let (west, east) = if slice.wrap().x { ("<-", " ->") } else { ("  ", "") };
    for y in 0..rows {
        write!(out, "    {west}")?;
        for x in 0..columns {
            match slice.worker_of_chip(Coord::new(x, y, 0)) {
                Some(worker) => write!(out, "{worker:>4}")?,
                None => write!(out, "   .")?,
            }
        }
        writeln!(out, "{east}")?;
    }
    let wrapped = |topology: Topology| {
        let ring = |axis: &Axis| slice.ici().is_ring(*axis);
        let axes: Vec<_> = Axis::ALL.iter().filter(|axis| ring(axis)).map(ToString::to_string).collect();
        match axes.as_slice() {
            [] => format!("{topology} has no wraparound links"),
            axes => format!("{topology} wraps around on {}", axes.join(", ")),
        }
    };
    writeln!(out, "    {}", wrapped(slice.topology()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(args: &[&str]) -> Result<String, String> {
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        let (accelerator, chips) = parse(&args).map_err(|error| error.to_string())?;
        let mut out = Vec::new();
        report(&mut out, accelerator, chips).map_err(|error| error.to_string())?;
        String::from_utf8(out).map_err(|error| error.to_string())
    }

    #[test]
    fn sixteen_chips_of_v6e_by_default() {
        let text = run(&[]).unwrap();
        assert!(text.contains("* 4x4              4  ct6e-standard-4t   v6e-16"), "{text}");
        assert!(text.contains("     0   0   1   1\n"), "{text}");
        assert!(text.contains("   2 x 2x4            2 hosts each,     4 in all  (ct6e-standard-4t)"), "{text}");
    }

    #[test]
    fn shapes_that_share_a_chip_count_are_all_listed() {
        let text = run(&["v5p", "256"]).unwrap();
        assert!(text.contains("  4x4x16") && text.contains("* 4x8x8"), "{text}");
    }

    #[test]
    fn impossible_counts_lead_somewhere() {
        assert!(run(&["v5e", "24"]).unwrap().contains("No slice has 24 chips. Slices of 32"));
        assert!(run(&["v5e", "24"]).unwrap().contains("   3 x 2x4"));
        assert!(run(&["v5e", "512"]).unwrap().contains("No slice has 512 chips: the largest has 256."));
    }

    #[test]
    fn wrong_arguments_are_refused() {
        assert!(run(&["tpu-v6e-slise"]).unwrap_err().contains("did you mean tpu-v6e-slice?"));
        assert!(run(&["v6e", "many"]).unwrap_err().contains("not a number of chips"));
        assert!(run(&["v6e", "16", "17"]).unwrap_err().contains("unexpected"));
    }

    #[test]
    fn every_accelerator_and_size_can_be_shown() {
        for accelerator in Accelerator::ALL {
            for chips in [0, 1, 7, 64, 300, 5000, u32::MAX] {
                assert!(run(&[accelerator.label(), &chips.to_string()]).is_ok());
            }
        }
    }
}
