//! The workloads that wait in one ClusterQueue.
//!
//! Workloads of one class (equal for scheduling) and one LocalQueue form a group, a heap of its own; groups that compete form
//! a heap of groups. So parking or reviving all workloads that are like one that just failed costs as much as there are
//! groups, not as there are workloads.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use slicegate_workload::Timestamp;

use super::ids::{ClassId, GroupId, LocalQueueId, Slab, WorkloadId};

/// Where a workload is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Place {
    /// In no queue.
    #[default]
    Nowhere,
    /// In a group, at this position of its heap. The group says whether it competes.
    Grouped(GroupId, u32),
    /// Parked by itself until its back-off is over, at this position of the list.
    Waiting(u32),
    /// Taken out by the cycle that is running.
    InFlight,
}

/// Where each workload is, by [`WorkloadId`].
#[derive(Clone, Debug, Default)]
pub(super) struct Places(Vec<Place>);

impl Places {
    pub(super) fn get(&self, id: WorkloadId) -> Place {
        self.0.get(id.index()).copied().unwrap_or_default()
    }

    pub(super) fn set(&mut self, id: WorkloadId, place: Place) {
        if self.0.len() <= id.index() {
            self.0.resize(id.index().saturating_add(1), Place::Nowhere);
        }
        if let Some(slot) = self.0.get_mut(id.index()) {
            *slot = place;
        }
    }
}

/// How workloads of one ClusterQueue are ordered.
pub(super) trait Order {
    /// Compares two workloads, LocalQueue usage aside: the one served first is less.
    fn compare(&self, a: WorkloadId, b: WorkloadId) -> Ordering;

    /// Compares the usage of two LocalQueues: the one served first is less. Equal if usage does not count.
    fn compare_queues(&self, a: LocalQueueId, b: LocalQueueId) -> Ordering;
}

#[derive(Clone, Debug)]
struct Group {
    class: ClassId,
    queue: LocalQueueId,
    members: Vec<WorkloadId>,
    active: bool,
    /// Position in the heap of groups, if active.
    position: u32,
}

/// The workload that preempts for itself, and whether it stays at the head meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PreemptorRecord {
    /// The workload.
    pub(super) workload: WorkloadId,
    /// The generation that was evaluated.
    pub(super) generation: i64,
    /// Whether it is served before others.
    pub(super) sticky: bool,
}

/// The workloads that wait in one ClusterQueue.
#[derive(Clone, Debug)]
pub(super) struct PendingQueue {
    groups: Slab<Group>,
    /// Groups that compete and groups that are parked, by class and LocalQueue.
    active: BTreeMap<(ClassId, LocalQueueId), GroupId>,
    parked: BTreeMap<(ClassId, LocalQueueId), GroupId>,
    top: Vec<GroupId>,
    /// Workloads whose back-off is not over.
    waiting: Vec<WorkloadId>,
    active_count: usize,
    parked_count: usize,
    /// Classes that cannot be admitted until something changes, and the reason that was given.
    pub(super) blocked: BTreeMap<ClassId, Box<str>>,
    pub(super) pop_cycle: i64,
    pub(super) flush_cycle: i64,
    pub(super) preemptor: Option<PreemptorRecord>,
    /// Usage of a LocalQueue changed: the heap of groups is out of order.
    pub(super) stale: bool,
    /// When the parked workloads come back.
    pub(super) flush_due: Option<Timestamp>,
}

impl Default for PendingQueue {
    fn default() -> Self {
        Self {
            groups: Slab::default(),
            active: BTreeMap::new(),
            parked: BTreeMap::new(),
            top: Vec::new(),
            waiting: Vec::new(),
            active_count: 0,
            parked_count: 0,
            blocked: BTreeMap::new(),
            pop_cycle: 0,
            flush_cycle: -1,
            preemptor: None,
            stale: false,
            flush_due: None,
        }
    }
}

impl PendingQueue {
    /// How many compete.
    pub(super) fn active_len(&self) -> usize {
        self.active_count
    }

    /// How many are parked.
    pub(super) fn parked_len(&self) -> usize {
        self.parked_count.saturating_add(self.waiting.len())
    }

    /// How many workloads of a LocalQueue are here; `of_queue` tells for those whose back-off is not over.
    pub(super) fn count_of(&self, queue: LocalQueueId, of_queue: impl Fn(WorkloadId) -> bool) -> usize {
        let groups = self.groups.iter().filter(|(_, g)| g.queue == queue).map(|(_, g)| g.members.len());
        let waiting = self.waiting.iter().filter(|id| of_queue(**id)).count();
        groups.fold(waiting, usize::saturating_add)
    }

    /// Whether the workload is parked here.
    pub(super) fn is_parked(&self, place: Place) -> bool {
        match place {
            Place::Waiting(_) => true,
            Place::Grouped(group, _) => self.groups.get(group.index()).is_some_and(|g| !g.active),
            Place::Nowhere | Place::InFlight => false,
        }
    }

    /// Whether the workload competes here.
    pub(super) fn is_active(&self, place: Place) -> bool {
        matches!(place, Place::Grouped(group, _) if self.groups.get(group.index()).is_some_and(|g| g.active))
    }

    /// Every workload that competes, in no particular order.
    pub(super) fn active(&self) -> impl Iterator<Item = WorkloadId> + '_ {
        self.members(true)
    }

    /// Every workload that is parked, in no particular order.
    pub(super) fn parked(&self) -> impl Iterator<Item = WorkloadId> + '_ {
        self.members(false).chain(self.waiting.iter().copied())
    }

    fn members(&self, active: bool) -> impl Iterator<Item = WorkloadId> + '_ {
        self.groups.iter().filter(move |(_, g)| g.active == active).flat_map(|(_, g)| g.members.iter().copied())
    }

    /// Puts a workload among those that compete (`active`) or those that are parked.
    pub(super) fn insert(
        &mut self,
        id: WorkloadId,
        class: ClassId,
        queue: LocalQueueId,
        active: bool,
        places: &mut Places,
        order: &impl Order,
    ) {
        let map = if active { &mut self.active } else { &mut self.parked };
        let (group, is_new) = if let Some(&group) = map.get(&(class, queue)) {
            (group, false)
        } else {
            let index = self.groups.insert(Group { class, queue, members: Vec::new(), active, position: 0 });
            let group = GroupId::from_index(index);
            map.insert((class, queue), group);
            (group, true)
        };
        if active {
            self.active_count = self.active_count.saturating_add(1);
        } else {
            self.parked_count = self.parked_count.saturating_add(1);
        }
        let Some(g) = self.groups.get_mut(group.index()) else { return };
        g.members.push(id);
        let last = g.members.len().saturating_sub(1);
        place(places, group, &g.members, last);
        let position = sift_up(&mut g.members, last, |a, b| order.compare(a, b), |m, i| place(places, group, m, i));
        if active {
            if is_new {
                self.top.push(group);
                self.enter_top(self.top.len().saturating_sub(1), order);
            } else if position == 0 {
                self.fix_top(group, order);
            }
        }
    }

    /// Parks a workload by itself, until its back-off is over.
    pub(super) fn wait(&mut self, id: WorkloadId, places: &mut Places) {
        places.set(id, Place::Waiting(u32::try_from(self.waiting.len()).unwrap_or(u32::MAX)));
        self.waiting.push(id);
    }

    /// Takes a workload out, wherever it is.
    pub(super) fn remove(&mut self, id: WorkloadId, places: &mut Places, order: &impl Order) {
        match places.get(id) {
            Place::Nowhere => return,
            Place::InFlight => {}
            Place::Waiting(position) => {
                let position = position as usize;
                if self.waiting.get(position) == Some(&id) {
                    self.waiting.swap_remove(position);
                    if let Some(&moved) = self.waiting.get(position) {
                        places.set(moved, Place::Waiting(u32::try_from(position).unwrap_or(u32::MAX)));
                    }
                }
            }
            Place::Grouped(group, position) => self.remove_member(group, position as usize, places, order),
        }
        places.set(id, Place::Nowhere);
    }

    fn remove_member(&mut self, group: GroupId, position: usize, places: &mut Places, order: &impl Order) {
        let Some(g) = self.groups.get_mut(group.index()) else { return };
        if position >= g.members.len() {
            return;
        }
        g.members.swap_remove(position);
        if position < g.members.len() {
            place(places, group, &g.members, position);
            let compare = |a, b| order.compare(a, b);
            let up = sift_up(&mut g.members, position, compare, |m, i| place(places, group, m, i));
            if up == position {
                sift_down(&mut g.members, position, compare, |m, i| place(places, group, m, i));
            }
        }
        let (active, is_empty) = (g.active, g.members.is_empty());
        if active {
            self.active_count = self.active_count.saturating_sub(1);
        } else {
            self.parked_count = self.parked_count.saturating_sub(1);
        }
        if is_empty {
            self.drop_group(group, order);
        } else if active && position == 0 {
            self.fix_top(group, order);
        }
    }

    fn drop_group(&mut self, group: GroupId, order: &impl Order) {
        let Some(g) = self.groups.get(group.index()) else { return };
        let key = (g.class, g.queue);
        if g.active {
            self.active.remove(&key);
            self.leave_top(group, order);
        } else {
            self.parked.remove(&key);
        }
        self.groups.remove(group.index());
    }

    /// Takes out the workload that is served first.
    pub(super) fn pop(&mut self, places: &mut Places, order: &impl Order) -> Option<WorkloadId> {
        self.pop_cycle = self.pop_cycle.saturating_add(1);
        if self.stale {
            self.reorder(order);
        }
        let group = *self.top.first()?;
        let id = *self.groups.get(group.index())?.members.first()?;
        self.remove_member(group, 0, places, order);
        places.set(id, Place::InFlight);
        Some(id)
    }

    /// Sorts the groups anew, after usage of LocalQueues changed.
    pub(super) fn reorder(&mut self, order: &impl Order) {
        self.stale = false;
        for i in (0..self.top.len() / 2).rev() {
            self.sink_top(i, order);
        }
        self.number_top(0);
    }

    /// Parks every competing workload of a class.
    pub(super) fn park_class(&mut self, class: ClassId, places: &mut Places, order: &impl Order) {
        let keys: Vec<(ClassId, LocalQueueId)> = self
            .active
            .range((class, LocalQueueId::from_index(0))..)
            .take_while(|((c, _), _)| *c == class)
            .map(|(&key, _)| key)
            .collect();
        for key in keys {
            self.flip(key, false, places, order);
        }
    }

    /// Lets every parked workload of a class compete again.
    pub(super) fn revive_class(&mut self, class: ClassId, places: &mut Places, order: &impl Order) {
        self.blocked.remove(&class);
        let keys: Vec<(ClassId, LocalQueueId)> = self
            .parked
            .range((class, LocalQueueId::from_index(0))..)
            .take_while(|((c, _), _)| *c == class)
            .map(|(&key, _)| key)
            .collect();
        for key in keys {
            self.flip(key, true, places, order);
        }
    }

    /// Lets every parked workload whose LocalQueue is accepted compete again, and every one whose back-off is over. Returns
    /// whether one did.
    pub(super) fn revive(
        &mut self,
        accepts: impl Fn(LocalQueueId) -> bool,
        is_over: impl Fn(WorkloadId) -> Option<(ClassId, LocalQueueId)>,
        places: &mut Places,
        order: &impl Order,
    ) -> bool {
        self.flush_cycle = self.pop_cycle;
        self.flush_due = None;
        self.blocked.clear();
        let mut moved = false;
        let keys: Vec<(ClassId, LocalQueueId)> = self.parked.keys().copied().filter(|(_, q)| accepts(*q)).collect();
        for key in keys {
            self.flip(key, true, places, order);
            moved = true;
        }
        let over: Vec<(WorkloadId, ClassId, LocalQueueId)> = self
            .waiting
            .iter()
            .filter_map(|&id| is_over(id).map(|(class, queue)| (id, class, queue)))
            .filter(|&(_, _, queue)| accepts(queue))
            .collect();
        for (id, class, queue) in over {
            self.remove(id, places, order);
            self.insert(id, class, queue, true, places, order);
            moved = true;
        }
        moved
    }

    fn flip(&mut self, key: (ClassId, LocalQueueId), to_active: bool, places: &mut Places, order: &impl Order) {
        let (from, to) =
            if to_active { (&mut self.parked, &mut self.active) } else { (&mut self.active, &mut self.parked) };
        let Some(group) = from.remove(&key) else { return };
        let Some(count) = self.groups.get(group.index()).map(|g| g.members.len()) else { return };
        if to_active {
            self.parked_count = self.parked_count.saturating_sub(count);
        } else {
            self.active_count = self.active_count.saturating_sub(count);
        }
        if let Some(&other) = to.get(&key) {
            // Two groups become one: the smaller joins the larger.
            let (small, stays) = match self.groups.get(other.index()) {
                Some(o) if o.members.len() < count => {
                    to.remove(&key);
                    (other, false)
                }
                _ => (group, true),
            };
            if self.groups.get(small.index()).is_some_and(|g| g.active) {
                self.leave_top(small, order);
            }
            let members = self.groups.remove(small.index()).map(|g| g.members).unwrap_or_default();
            if !stays {
                if to_active {
                    self.active_count = self.active_count.saturating_sub(members.len());
                } else {
                    self.parked_count = self.parked_count.saturating_sub(members.len());
                }
                self.turn(key, group, count, to_active, order);
            }
            for id in members {
                self.insert(id, key.0, key.1, to_active, places, order);
            }
            return;
        }
        self.turn(key, group, count, to_active, order);
    }

    /// Lets a group that is in neither map compete, or parks it.
    fn turn(
        &mut self,
        key: (ClassId, LocalQueueId),
        group: GroupId,
        count: usize,
        to_active: bool,
        order: &impl Order,
    ) {
        let to = if to_active { &mut self.active } else { &mut self.parked };
        to.insert(key, group);
        if to_active {
            self.active_count = self.active_count.saturating_add(count);
        } else {
            self.parked_count = self.parked_count.saturating_add(count);
            self.leave_top(group, order);
        }
        if let Some(g) = self.groups.get_mut(group.index()) {
            g.active = to_active;
        }
        if to_active {
            self.top.push(group);
            self.enter_top(self.top.len().saturating_sub(1), order);
        }
    }

    /// Puts a workload that competes into its place anew, after what orders it changed.
    pub(super) fn resift(&mut self, id: WorkloadId, places: &mut Places, order: &impl Order) {
        let Place::Grouped(group, position) = places.get(id) else { return };
        let Some(g) = self.groups.get_mut(group.index()) else { return };
        let compare = |a, b| order.compare(a, b);
        let position = position as usize;
        let up = sift_up(&mut g.members, position, compare, |m, i| place(places, group, m, i));
        if up == position {
            sift_down(&mut g.members, position, compare, |m, i| place(places, group, m, i));
        }
        if g.active {
            self.fix_top(group, order);
        }
    }

    // ----- the heap of groups --------------------------------------------------------------------------------------

    fn head_order(&self, a: GroupId, b: GroupId, order: &impl Order) -> Ordering {
        let (Some(left), Some(right)) = (self.groups.get(a.index()), self.groups.get(b.index())) else {
            return a.cmp(&b);
        };
        match (left.members.first(), right.members.first()) {
            (Some(&first), Some(&second)) => {
                order.compare_queues(left.queue, right.queue).then_with(|| order.compare(first, second))
            }
            _ => a.cmp(&b),
        }
    }

    fn number_top(&mut self, from: usize) {
        for i in from..self.top.len() {
            self.number_one(i);
        }
    }

    fn number_one(&mut self, i: usize) {
        if let Some(&group) = self.top.get(i)
            && let Some(g) = self.groups.get_mut(group.index())
        {
            g.position = u32::try_from(i).unwrap_or(u32::MAX);
        }
    }

    fn enter_top(&mut self, mut i: usize, order: &impl Order) -> usize {
        self.number_one(i);
        while i > 0 {
            let parent = (i - 1) / 2;
            if self.head_order(self.top[i], self.top[parent], order) != Ordering::Less {
                break;
            }
            self.top.swap(i, parent);
            self.number_one(i);
            self.number_one(parent);
            i = parent;
        }
        i
    }

    fn sink_top(&mut self, mut i: usize, order: &impl Order) {
        loop {
            let mut least = i;
            for child in [2 * i + 1, 2 * i + 2] {
                if child < self.top.len() && self.head_order(self.top[child], self.top[least], order) == Ordering::Less
                {
                    least = child;
                }
            }
            if least == i {
                break;
            }
            self.top.swap(i, least);
            self.number_one(i);
            self.number_one(least);
            i = least;
        }
    }

    fn fix_top(&mut self, group: GroupId, order: &impl Order) {
        let Some(i) = self.groups.get(group.index()).map(|g| g.position as usize) else { return };
        if self.enter_top(i, order) == i {
            self.sink_top(i, order);
        }
    }

    fn leave_top(&mut self, group: GroupId, order: &impl Order) {
        let Some(i) = self.groups.get(group.index()).map(|g| g.position as usize) else { return };
        if self.top.get(i) != Some(&group) {
            return;
        }
        self.top.swap_remove(i);
        if i < self.top.len() {
            self.number_one(i);
            if self.enter_top(i, order) == i {
                self.sink_top(i, order);
            }
        }
    }

    /// Whether the structure is as it should be; the first fault if not.
    pub(super) fn check(&self, places: &Places, order: &impl Order) -> Result<(), String> {
        let (mut active, mut parked) = (0, 0);
        for (index, g) in self.groups.iter() {
            let group = GroupId::from_index(index);
            let map = if g.active { &self.active } else { &self.parked };
            if map.get(&(g.class, g.queue)) != Some(&group) {
                return Err(format!("group {index} is not where its state says"));
            }
            if g.members.is_empty() {
                return Err(format!("group {index} is empty"));
            }
            *if g.active { &mut active } else { &mut parked } += g.members.len();
            for (i, &id) in g.members.iter().enumerate() {
                if places.get(id) != Place::Grouped(group, u32::try_from(i).unwrap_or(u32::MAX)) {
                    return Err(format!("workload {} is not where its place says", id.index()));
                }
                if i > 0 && order.compare(id, g.members[(i - 1) / 2]) == Ordering::Less {
                    return Err(format!("group {index} is not a heap"));
                }
            }
            if g.active && self.top.get(g.position as usize) != Some(&group) {
                return Err(format!("group {index} is not where its position says"));
            }
        }
        for (i, &id) in self.waiting.iter().enumerate() {
            if places.get(id) != Place::Waiting(u32::try_from(i).unwrap_or(u32::MAX)) {
                return Err(format!("workload {} does not wait where its place says", id.index()));
            }
        }
        for i in 1..self.top.len() {
            if !self.stale && self.head_order(self.top[i], self.top[(i - 1) / 2], order) == Ordering::Less {
                return Err("the heap of groups is out of order".to_owned());
            }
        }
        if (active, parked, self.top.len()) != (self.active_count, self.parked_count, self.active.len()) {
            return Err("counts do not match".to_owned());
        }
        Ok(())
    }
}

fn place(places: &mut Places, group: GroupId, members: &[WorkloadId], i: usize) {
    if let Some(&id) = members.get(i) {
        places.set(id, Place::Grouped(group, u32::try_from(i).unwrap_or(u32::MAX)));
    }
}

fn sift_up(
    heap: &mut [WorkloadId],
    mut i: usize,
    compare: impl Fn(WorkloadId, WorkloadId) -> Ordering,
    mut moved: impl FnMut(&[WorkloadId], usize),
) -> usize {
    while i > 0 {
        let parent = (i - 1) / 2;
        if compare(heap[i], heap[parent]) != Ordering::Less {
            break;
        }
        heap.swap(i, parent);
        moved(heap, i);
        moved(heap, parent);
        i = parent;
    }
    i
}

fn sift_down(
    heap: &mut [WorkloadId],
    mut i: usize,
    compare: impl Fn(WorkloadId, WorkloadId) -> Ordering,
    mut moved: impl FnMut(&[WorkloadId], usize),
) {
    loop {
        let mut least = i;
        for child in [2 * i + 1, 2 * i + 2] {
            if child < heap.len() && compare(heap[child], heap[least]) == Ordering::Less {
                least = child;
            }
        }
        if least == i {
            break;
        }
        heap.swap(i, least);
        moved(heap, i);
        moved(heap, least);
        i = least;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    /// Workloads in order of their numbers; LocalQueues by the usage given.
    struct ByNumber(Vec<u32>);

    impl Order for ByNumber {
        fn compare(&self, a: WorkloadId, b: WorkloadId) -> Ordering {
            a.cmp(&b)
        }

        fn compare_queues(&self, a: LocalQueueId, b: LocalQueueId) -> Ordering {
            self.0.get(a.index()).cmp(&self.0.get(b.index()))
        }
    }

    fn class(n: usize) -> ClassId {
        ClassId::from_index(n)
    }

    fn queue(n: usize) -> LocalQueueId {
        LocalQueueId::from_index(n)
    }

    #[test]
    fn a_parked_class_comes_back_as_a_whole() {
        let (mut pending, mut places, order) = (PendingQueue::default(), Places::default(), ByNumber(vec![]));
        for n in [4, 2, 5, 1, 3] {
            pending.insert(WorkloadId::from_index(n), class(n % 2), queue(0), true, &mut places, &order);
        }
        assert_eq!(pending.pop(&mut places, &order).map(WorkloadId::index), Some(1));
        pending.park_class(class(1), &mut places, &order);
        assert_eq!((pending.active_len(), pending.parked_len()), (2, 2));
        assert_eq!(pending.pop(&mut places, &order).map(WorkloadId::index), Some(2));
        assert!(pending.revive(|_| true, |_| None, &mut places, &order));
        assert_eq!(pending.pop(&mut places, &order).map(WorkloadId::index), Some(3));
        pending.check(&places, &order).unwrap();
    }

    proptest! {
        /// Whatever is put in, parked, revived and taken out, the queue serves in the order of usage, then of number, and
        /// agrees with a plain list.
        #[test]
        fn serves_in_order(
            operations in proptest::collection::vec((0..6u8, 0..24usize), 1..120),
            usage in proptest::collection::vec(0..3u32, 3),
        ) {
            let order = ByNumber(usage.clone());
            let (mut pending, mut places) = (PendingQueue::default(), Places::default());
            let mut model: BTreeMap<usize, bool> = BTreeMap::new();
            for (operation, n) in operations {
                let id = WorkloadId::from_index(n);
                let (c, q) = (n % 4, n % 3);
                match operation {
                    0 | 1 => {
                        pending.remove(id, &mut places, &order);
                        pending.insert(id, class(c), queue(q), operation == 0, &mut places, &order);
                        model.insert(n, operation == 0);
                    }
                    2 => {
                        pending.remove(id, &mut places, &order);
                        model.remove(&n);
                    }
                    3 => {
                        pending.park_class(class(c), &mut places, &order);
                        for (m, active) in &mut model {
                            if m % 4 == c {
                                *active = false;
                            }
                        }
                    }
                    4 => {
                        pending.revive(|l| l == queue(q), |_| None, &mut places, &order);
                        for (m, active) in &mut model {
                            if m % 3 == q {
                                *active = true;
                            }
                        }
                    }
                    _ => {
                        let best = model.iter().filter(|(_, a)| **a).map(|(m, _)| *m).min_by_key(|m| (usage[m % 3], *m));
                        prop_assert_eq!(pending.pop(&mut places, &order).map(WorkloadId::index), best);
                        if let Some(best) = best {
                            model.remove(&best);
                        }
                    }
                }
                prop_assert_eq!(pending.check(&places, &order), Ok(()));
                prop_assert_eq!(pending.active_len(), model.values().filter(|a| **a).count());
                prop_assert_eq!(pending.parked_len(), model.values().filter(|a| !**a).count());
            }
        }
    }
}
