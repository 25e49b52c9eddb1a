//! What the engine keeps about each workload.

use std::collections::BTreeMap;

use slicegate_flavor::LastTried;
use slicegate_placement::{PodRequest, Usage};
use slicegate_quota::{Amount, FlavorId, FlavorResourceId, NodeId};
use slicegate_workload::{ConditionType, Key, Stage, Timestamp, TopologyAssignment};

use super::ids::{ClassId, LocalQueueId, ShapeId, Slab, WorkloadId};
use super::slices::Slices;
use super::stored::Stored;

/// Places that pods of a pod set hold.
#[derive(Clone, Debug)]
pub(super) struct HeldPlaces {
    pub(super) flavor: FlavorId,
    pub(super) assignment: TopologyAssignment,
    /// What one pod takes.
    pub(super) request: PodRequest,
    /// What they use, in terms of the trees as they are.
    pub(super) usage: Usage,
}

/// Quota that a workload holds.
#[derive(Clone, Debug)]
pub(super) struct Holding {
    /// The ClusterQueue that it is counted in.
    pub(super) node: NodeId,
    /// The LocalQueue that it is counted for.
    pub(super) queue: LocalQueueId,
    /// Its position among those that hold quota there.
    pub(super) position: u32,
    /// What it uses.
    pub(super) usage: Vec<(FlavorResourceId, Amount)>,
    /// Where its pods lie, as far as they were given places.
    pub(super) places: Vec<HeldPlaces>,
    /// How many slices it has of flavors that ask for whole ones.
    pub(super) slices: Slices,
    /// When it was given the quota.
    pub(super) reserved_at: Option<Timestamp>,
    /// Whether it may run.
    pub(super) admitted: bool,
    /// Whether its pods are ready.
    pub(super) pods_ready: bool,
    /// Set from the decision to give it quota until the API shows it: the status as it was before.
    pub(super) assumed: Option<Box<Stored>>,
}

/// Whom a workload preempted since something changed in its tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Preempted {
    /// The tree, by its root.
    pub(super) root: NodeId,
    /// The count of changes in the tree.
    pub(super) epoch: u64,
    /// The victims with their [`Record::serial`], ascending.
    pub(super) victims: Vec<(WorkloadId, u64)>,
}

/// What few workloads have, or what is seldom looked at.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Extras {
    /// The slice that it replaces.
    pub(super) replaces: Option<Key>,
    /// The flavors that an annotation restricts it to, as it is written.
    pub(super) allowed_flavors: Option<Box<str>>,
    /// The workload that it is a variant of, by unique id.
    pub(super) variant_of: Option<Box<str>>,
    /// Its priority class.
    pub(super) priority_class: Box<str>,
    /// The rest of the spec, for telling whether it changed.
    pub(super) maximum_execution_time_seconds: Option<i32>,
    /// Its preemption gates.
    pub(super) preemption_gates: Vec<Box<str>>,
    /// Whether it belongs to an elastic job.
    pub(super) elastic: bool,
}

/// A workload.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) key: Key,
    pub(super) uid: Box<str>,
    pub(super) created: Timestamp,
    pub(super) generation: i64,
    /// The generation that a cycle last looked at; 0 if none did.
    pub(super) evaluated_generation: i64,
    pub(super) queue: LocalQueueId,
    /// Its position among the workloads of the LocalQueue.
    pub(super) queue_position: u32,
    /// Its pod sets.
    pub(super) shape: ShapeId,
    pub(super) class: ClassId,
    pub(super) base_priority: i32,
    pub(super) priority_boost: i32,
    /// From when it waits in line.
    pub(super) queued_at: Timestamp,
    /// How far it is by the API.
    pub(super) phase: Stage,
    pub(super) active: bool,
    /// Whether it may enter a queue.
    pub(super) admissible: bool,
    pub(super) closed_gate: bool,
    /// Whether a single Pod owns it.
    pub(super) owned_by_pod: bool,
    /// Whether a cycle is to look at it although it holds quota.
    pub(super) second_pass: bool,
    /// Whether an eviction for preemption was decided and not seen yet.
    pub(super) eviction_expected: bool,
    /// The workload it was last preempted for.
    pub(super) evictor: Option<WorkloadId>,
    pub(super) status: Stored,
    /// The unique id of its job.
    pub(super) job_uid: Option<Box<str>>,
    pub(super) extras: Option<Box<Extras>>,
    pub(super) holding: Option<Box<Holding>>,
    /// Tells this workload from every other that ever was.
    pub(super) serial: u64,
    /// Whom it preempted; see [`super::guard`].
    pub(super) preempted: Option<Box<Preempted>>,
    /// How far the scan of flavors came.
    pub(super) last: Option<Box<LastTried>>,
}

impl Record {
    /// The priority that counts.
    pub(super) fn priority(&self) -> i64 {
        i64::from(self.base_priority).saturating_add(i64::from(self.priority_boost))
    }

    /// Whether it is being evicted.
    pub(super) fn is_evicted(&self) -> bool {
        self.status.conditions.is_true(&ConditionType::Evicted)
    }
}

/// All workloads.
#[derive(Clone, Debug, Default)]
pub(super) struct Records {
    slab: Slab<Record>,
    /// By hash of the key; the second part tells keys with the same hash apart.
    index: BTreeMap<(u64, u32), WorkloadId>,
}

impl Records {
    /// A workload by key.
    pub(super) fn find(&self, key: &Key) -> Option<WorkloadId> {
        let hash = hash(key);
        self.index
            .range((hash, 0)..=(hash, u32::MAX))
            .map(|(_, &id)| id)
            .find(|&id| self.get(id).is_some_and(|r| r.key == *key))
    }

    /// Adds a workload whose key is not known yet.
    pub(super) fn insert(&mut self, record: Record) -> WorkloadId {
        let hash = hash(&record.key);
        let last = self.index.range((hash, 0)..=(hash, u32::MAX)).next_back().map(|(&(_, n), _)| n);
        let id = WorkloadId::from_index(self.slab.insert(record));
        self.index.insert((hash, last.map_or(0, |n| n.saturating_add(1))), id);
        id
    }

    /// Takes a workload out.
    pub(super) fn remove(&mut self, id: WorkloadId) -> Option<Record> {
        let record = self.slab.remove(id.index())?;
        let hash = hash(&record.key);
        let entry = self.index.range((hash, 0)..=(hash, u32::MAX)).find(|(_, i)| **i == id).map(|(&k, _)| k);
        if let Some(entry) = entry {
            self.index.remove(&entry);
        }
        Some(record)
    }

    pub(super) fn get(&self, id: WorkloadId) -> Option<&Record> {
        self.slab.get(id.index())
    }

    pub(super) fn get_mut(&mut self, id: WorkloadId) -> Option<&mut Record> {
        self.slab.get_mut(id.index())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (WorkloadId, &Record)> + '_ {
        self.slab.iter().map(|(i, r)| (WorkloadId::from_index(i), r))
    }

    /// What is held, in the order of workloads.
    pub(super) fn holdings_mut(&mut self) -> impl Iterator<Item = &mut Holding> + '_ {
        self.slab.iter_mut().filter_map(|(_, r)| r.holding.as_deref_mut())
    }

    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }
}

/// FNV-1a over namespace and name. Decides nothing but where a key is found.
fn hash(key: &Key) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = key.namespace.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    key.name.bytes().fold(step(hash, b'/'), step)
}
