//! What a node of a machine type offers to pods.

use slicegate_quota::Quantity;
use slicegate_tpu::MachineType;
use slicegate_workload::ResourceList;

/// Cores, memory and chips of a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Machine {
    /// Virtual CPUs.
    pub(crate) cpus: u32,
    /// Memory in MiB.
    pub(crate) memory_mib: u64,
    /// TPU chips.
    pub(crate) chips: u32,
}

/// A machine type whose size is not known.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("machine type {0:?} is not known; its nodes are taken to have 16 cpus and 64 GiB")]
pub(crate) struct UnknownMachine(pub(crate) String);

/// The machine of a type: TPU machines from their table, others from their names (`n2-standard-16`, `e2-highmem-8`).
pub(crate) fn machine(name: &str) -> Result<Machine, UnknownMachine> {
    if let Ok(tpu) = name.parse::<MachineType>() {
        return Ok(Machine { cpus: tpu.vcpus(), memory_mib: u64::from(tpu.memory_gb()) * 1024, chips: tpu.chips() });
    }
    let unknown = || UnknownMachine(name.to_owned());
    match name {
        "e2-micro" => return Ok(Machine { cpus: 2, memory_mib: 1024, chips: 0 }),
        "e2-small" => return Ok(Machine { cpus: 2, memory_mib: 2048, chips: 0 }),
        "e2-medium" => return Ok(Machine { cpus: 2, memory_mib: 4096, chips: 0 }),
        _ => {}
    }
    let parts: Vec<&str> = name.split('-').collect();
    if let [_, "custom", cpus, memory, ..] = parts.as_slice() {
        let (cpus, memory_mib) = (cpus.parse().map_err(|_| unknown())?, memory.parse().map_err(|_| unknown())?);
        return Ok(Machine { cpus, memory_mib, chips: 0 });
    }
    let [family, class, cpus, ..] = parts.as_slice() else { return Err(unknown()) };
    let cpus: u32 = cpus.trim_end_matches('g').parse().map_err(|_| unknown())?;
    // MiB for each vCPU.
    let per_cpu: u64 = match (*family, *class) {
        ("n1", "standard") => 3_840,
        ("n1", "highmem") => 6_656,
        ("n1", "highcpu") => 922,
        (_, "standard") => 4_096,
        (_, "highmem") => 8_192,
        ("e2" | "n2" | "n2d", "highcpu") => 1_024,
        (_, "highcpu") => 2_048,
        _ => return Err(unknown()),
    };
    Ok(Machine { cpus, memory_mib: per_cpu.saturating_mul(u64::from(cpus)), chips: 0 })
}

impl Machine {
    /// The machine taken for one that is not known.
    pub(crate) const FALLBACK: Self = Self { cpus: 16, memory_mib: 64 * 1024, chips: 0 };

    /// What is left for pods after what GKE keeps for the node itself.
    ///
    /// cpu: 6% of the first core, 1% of the second, 0.5% of the next two, 0.25% of the rest. Memory: 25% of the first 4 GiB,
    /// 20% of the next 4, 10% of the next 8, 6% of the next 112, 2% of the rest, and 100 MiB for eviction.
    pub(crate) fn allocatable(self) -> ResourceList {
        let cpus = i64::from(self.cpus);
        // In units of 1/100 of a millicpu.
        let steps = [(1, 6_000), (1, 1_000), (2, 500), (i64::MAX, 250)];
        let mut left = cpus;
        let mut kept = 0_i64;
        for (cores, share) in steps {
            let here = left.min(cores);
            kept = kept.saturating_add(here.saturating_mul(share));
            left -= here;
        }
        let millis = cpus.saturating_mul(1_000).saturating_sub(kept / 100);
        let memory = i64::try_from(self.memory_mib).unwrap_or(i64::MAX);
        let mut left = memory;
        let mut kept = 100_i64;
        for (mib, percent) in [(4_096, 25), (4_096, 20), (8_192, 10), (114_688, 6), (i64::MAX, 2)] {
            let here = left.min(mib);
            kept = kept.saturating_add(here.saturating_mul(percent) / 100);
            left -= here;
        }
        let memory = memory.saturating_sub(kept).max(0).saturating_mul(1 << 20);
        let mut list = ResourceList::new();
        list.insert("cpu".into(), Quantity::from_nanos(i128::from(millis) * 1_000_000));
        list.insert("memory".into(), Quantity::from_units(memory));
        list.insert("pods".into(), Quantity::from_units(110));
        if self.chips > 0 {
            list.insert(slicegate_tpu::RESOURCE.into(), Quantity::from_units(i64::from(self.chips)));
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_read_from_their_names() {
        assert_eq!(machine("n2-standard-16"), Ok(Machine { cpus: 16, memory_mib: 65_536, chips: 0 }));
        assert_eq!(machine("ct6e-standard-4t").unwrap().chips, 4);
        assert_eq!(machine("e2-custom-4-8192"), Ok(Machine { cpus: 4, memory_mib: 8_192, chips: 0 }));
        assert!(machine("big").is_err());
        assert!(machine("n2-standard-many").is_err());
    }

    #[test]
    fn gke_keeps_some_for_itself() {
        let list = machine("n2-standard-4").unwrap().allocatable();
        assert_eq!(list["cpu"].milli_value(), 3_920);
        // 16 GiB: 100 + 1024 + 819 + 819 MiB are kept.
        assert_eq!(list["memory"].value(), (16_384 - 100 - 1_024 - 819 - 819) * (1 << 20));
        assert!(!list.contains_key("google.com/tpu"));
    }
}
