//! Chip-time, job by job.

use std::collections::{BTreeMap, BTreeSet};

use slicegate_api::{Kind, Object, ObjectRef};
use slicegate_workload::Timestamp;

use super::space::Space;
use super::{ChipTime, JobTime, Report, Sample};
use crate::cluster::is_running;
use crate::world::World;

/// What a pod has done since it started last.
#[derive(Clone, Debug, Default)]
struct PodTime {
    chips: i64,
    running: bool,
    /// Productive chip-time that is neither useful nor lost yet.
    open: i128,
}

#[derive(Clone, Debug, Default)]
struct Job {
    whole: bool,
    since: Timestamp,
    pods: BTreeMap<ObjectRef, PodTime>,
    /// Open chip-time of pods that are gone, or that were done.
    open: i128,
    /// Chips under its running pods.
    running: i64,
    time: JobTime,
}

impl Job {
    /// Counts what was done up to now.
    fn advance(&mut self, now: Timestamp) {
        let micros = i128::from(now.micros_since(self.since).max(0));
        self.since = now;
        if self.whole && micros > 0 {
            for pod in self.pods.values_mut().filter(|pod| pod.running) {
                pod.open = pod.open.saturating_add(i128::from(pod.chips).saturating_mul(micros));
            }
        }
    }

    fn take_open(&mut self) -> i128 {
        let of_pods = self.pods.values_mut().map(|pod| std::mem::take(&mut pod.open));
        of_pods.fold(std::mem::take(&mut self.open), i128::saturating_add)
    }

    fn productive(&self) -> i64 {
        if self.whole { self.running } else { 0 }
    }
}

/// Measures while the simulation runs. Nothing is looked at that did not change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gauge {
    last: Timestamp,
    started: bool,
    totals: ChipTime,
    jobs: BTreeMap<ObjectRef, Job>,
    job_of: BTreeMap<ObjectRef, ObjectRef>,
    pods: BTreeSet<ObjectRef>,
    touched: BTreeSet<ObjectRef>,
    lost_pods: BTreeSet<ObjectRef>,
    lost_jobs: BTreeSet<ObjectRef>,
    done_jobs: BTreeSet<ObjectRef>,
    running: i64,
    productive: i64,
    space: Space,
    samples: Vec<Sample>,
}

impl Gauge {
    /// A pod changed, which has chips of a node or had.
    pub(crate) fn pod_changed(&mut self, pod: &ObjectRef) {
        self.pods.insert(pod.clone());
    }

    /// A job changed.
    pub(crate) fn job_changed(&mut self, job: &ObjectRef) {
        if self.jobs.contains_key(job) {
            self.touched.insert(job.clone());
        }
    }

    /// What a pod has done is lost.
    pub(crate) fn pod_lost(&mut self, pod: &ObjectRef) {
        self.lost_pods.insert(pod.clone());
        self.pods.insert(pod.clone());
    }

    /// What a job has done is lost: it starts from its beginning, or has failed.
    pub(crate) fn job_lost(&mut self, job: &ObjectRef) {
        self.lost_jobs.insert(job.clone());
        self.job_changed(job);
    }

    /// A job ended well.
    pub(crate) fn job_done(&mut self, job: &ObjectRef) {
        self.done_jobs.insert(job.clone());
        self.job_changed(job);
    }

    fn advance(&mut self, now: Timestamp) {
        let micros = i128::from(now.micros_since(self.last).max(0));
        self.last = now;
        if !std::mem::replace(&mut self.started, true) {
            return;
        }
        let add = |sum: &mut i128, chips: i64| *sum = sum.saturating_add(micros.saturating_mul(i128::from(chips)));
        add(&mut self.totals.available, self.space.available);
        add(&mut self.totals.free, self.space.free);
        add(&mut self.totals.stranded, self.space.free.saturating_sub(self.space.formable));
        add(&mut self.totals.running, self.running);
        add(&mut self.totals.productive, self.productive);
    }

    /// What was measured up to now.
    pub(crate) fn finish(mut self, end: Timestamp) -> Report {
        if end > self.last {
            self.advance(end);
        }
        let mut report = Report { totals: self.totals, jobs: BTreeMap::new(), samples: self.samples };
        for (key, mut job) in self.jobs {
            job.advance(end);
            job.time.unfinished = job.take_open();
            let totals = &mut report.totals;
            totals.useful = totals.useful.saturating_add(job.time.useful);
            totals.lost = totals.lost.saturating_add(job.time.lost);
            totals.unfinished = totals.unfinished.saturating_add(job.time.unfinished);
            report.jobs.insert(key, job.time);
        }
        report
    }
}

impl World {
    /// Counts the time that went by, and then takes in what changed.
    pub(crate) fn measure(&mut self) {
        let mut gauge = std::mem::take(&mut self.gauge);
        gauge.advance(self.now);
        for pod in std::mem::take(&mut gauge.pods) {
            self.measure_pod(&mut gauge, &pod);
        }
        gauge.lost_pods.clear();
        for key in std::mem::take(&mut gauge.touched) {
            let Some(job) = gauge.jobs.get_mut(&key) else { continue };
            gauge.productive = gauge.productive.saturating_sub(job.productive());
            job.advance(self.now);
            if gauge.done_jobs.contains(&key) {
                job.time.useful = job.time.useful.saturating_add(job.take_open());
            } else if gauge.lost_jobs.contains(&key) {
                job.time.lost = job.time.lost.saturating_add(job.take_open());
            }
            job.whole = self.runs_whole(&key);
            gauge.productive = gauge.productive.saturating_add(job.productive());
        }
        gauge.lost_jobs.clear();
        gauge.done_jobs.clear();
        for pool in std::mem::take(&mut self.nodes.touched) {
            gauge.space.update(pool, &self.nodes);
        }
        let space = &gauge.space;
        let sample = Sample {
            time: self.now,
            available: space.available,
            running: gauge.running,
            productive: gauge.productive,
            free: space.free,
            formable: space.formable,
            largest: space.largest(),
        };
        match gauge.samples.last_mut() {
            Some(last) if Sample { time: last.time, ..sample } == *last => {}
            Some(last) if last.time == sample.time => *last = sample,
            _ => gauge.samples.push(sample),
        }
        self.gauge = gauge;
    }

    fn measure_pod(&self, gauge: &mut Gauge, key: &ObjectRef) {
        let pod = match self.store.get(key) {
            Some(Object::Pod(pod)) => Some(pod),
            _ => None,
        };
        let chips = self.nodes.placed.get(key).map_or(0, |placed| self.nodes.classes[placed.class.0].chips);
        let owner = match gauge.job_of.get(key) {
            Some(owner) => owner.clone(),
            // Pods without chips are not measured.
            None if chips == 0 => return,
            None => match self.top_owner(key) {
                Some(owner) => {
                    gauge.job_of.insert(key.clone(), owner.clone());
                    owner
                }
                None => return,
            },
        };
        let job = gauge.jobs.entry(owner.clone()).or_default();
        gauge.productive = gauge.productive.saturating_sub(job.productive());
        job.advance(self.now);
        let time = job.pods.entry(key.clone()).or_default();
        if gauge.lost_pods.contains(key) {
            job.time.lost = job.time.lost.saturating_add(std::mem::take(&mut time.open));
        }
        let before = if time.running { time.chips } else { 0 };
        if chips > 0 {
            time.chips = chips;
        }
        time.running = chips > 0 && pod.is_some_and(|pod| is_running(pod));
        let after = if time.running { time.chips } else { 0 };
        job.running = job.running.saturating_sub(before).saturating_add(after);
        gauge.running = gauge.running.saturating_sub(before).saturating_add(after);
        if pod.is_none() {
            let gone = job.pods.remove(key).unwrap_or_default();
            job.open = job.open.saturating_add(gone.open);
            gauge.job_of.remove(key);
        }
        gauge.productive = gauge.productive.saturating_add(job.productive());
        gauge.touched.insert(owner);
    }

    /// Whether a job runs as a whole.
    fn runs_whole(&self, key: &ObjectRef) -> bool {
        match self.store.get(key) {
            Some(Object::JobSet(jobset)) => {
                let wanted = jobset.spec.replicated_jobs.iter().map(|job| i64::from(job.replicas.unwrap_or(1).max(0)));
                let up = jobset.status.replicated_jobs_status.iter();
                let up = up.map(|status| i64::from(status.ready).saturating_add(i64::from(status.succeeded)));
                let over = jobset.status.terminal_state.is_some();
                jobset.spec.suspend != Some(true) && !over && up.fold(0, i64::saturating_add) >= wanted.sum()
            }
            Some(Object::Job(job)) => {
                let (Some(spec), Some(status)) = (&job.spec, &job.status) else { return false };
                let parallelism = spec.parallelism.unwrap_or(1);
                let wanted = spec.completions.map_or(parallelism, |completions| completions.min(parallelism));
                let up = status.ready.unwrap_or(0).saturating_add(status.succeeded.unwrap_or(0));
                spec.suspend != Some(true) && status.completion_time.is_none() && up >= wanted
            }
            Some(Object::RayJob(job)) => {
                let name = job.status.ray_cluster_name.as_deref().unwrap_or_default();
                let over =
                    matches!(job.status.job_deployment_status.as_deref(), Some("Complete" | "Failed" | "Retrying"));
                !over && self.cluster_is_whole(&ObjectRef::new(Kind::RayCluster, &*key.namespace, name))
            }
            Some(Object::RayCluster(_)) => self.cluster_is_whole(key),
            Some(Object::Pod(pod)) => pod.metadata.deletion_timestamp.is_none() && is_running(pod),
            _ => false,
        }
    }

    fn cluster_is_whole(&self, key: &ObjectRef) -> bool {
        let Some(Object::RayCluster(cluster)) = self.store.get(key) else { return false };
        let status = &cluster.status;
        let head = status.conditions.iter().any(|c| c.type_ == "HeadPodReady" && c.status == "True");
        let workers = status.available_worker_replicas.unwrap_or(0) >= status.desired_worker_replicas.unwrap_or(0);
        head && workers && status.state.as_deref() == Some("ready")
    }
}
