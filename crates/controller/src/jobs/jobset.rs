//! JobSets.

use slicegate_admission::Gates;
use slicegate_api::jobset::{GROUP, JobSet, ReplicatedJob};
use slicegate_api::{ObjectMeta, kueue};

use super::{Finished, Integration, JobContext, JobError, annotation, expect_infos, may_have_run};
use crate::keys;
use crate::podset::{self, PodSetInfo};
use crate::topology_request::{PodIndex, topology_request};

fn replicas(job: &ReplicatedJob) -> i32 {
    job.replicas.unwrap_or(1)
}

fn pods_per_replica(job: &ReplicatedJob) -> i32 {
    let spec = job.template.spec.as_ref();
    let parallelism = spec.and_then(|s| s.parallelism).unwrap_or(1);
    spec.and_then(|s| s.completions).map_or(parallelism, |c| c.min(parallelism))
}

impl Integration for JobSet {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn group(&self) -> &'static str {
        GROUP
    }

    fn is_suspended(&self) -> bool {
        self.spec.suspend.unwrap_or(false)
    }

    fn suspend(&mut self) {
        self.spec.suspend = Some(true);
    }

    fn pod_sets(&self, context: &JobContext<'_>) -> Result<Vec<kueue::PodSet>, JobError> {
        let gates = context.gates;
        let mut all = Vec::with_capacity(self.spec.replicated_jobs.len());
        for job in &self.spec.replicated_jobs {
            let template = job.template.spec.as_ref().map(|s| s.template.clone()).unwrap_or_default();
            let topology_request = if gates.topology_aware_scheduling {
                let index = PodIndex {
                    label: Some(keys::JOB_COMPLETION_INDEX),
                    sub_group: Some((keys::JOBSET_JOB_INDEX, replicas(job))),
                };
                topology_request(&template, index, gates.tas_multi_layer_topology)?
            } else {
                None
            };
            all.push(kueue::PodSet {
                name: job.name.to_lowercase(),
                template,
                count: replicas(job).saturating_mul(pods_per_replica(job)),
                min_count: None,
                topology_request,
            });
        }
        Ok(all)
    }

    fn run(&mut self, infos: &[PodSetInfo], context: &JobContext<'_>) -> Result<(), JobError> {
        self.spec.suspend = Some(false);
        expect_infos(self.spec.replicated_jobs.len(), infos)?;
        let elastic = context.gates.elastic_jobs_via_workload_slices;
        for (job, info) in self.spec.replicated_jobs.iter_mut().zip(infos) {
            podset::merge_into(&mut job.template.spec.get_or_insert_default().template, info, elastic)?;
        }
        Ok(())
    }

    fn restore(&mut self, infos: &[PodSetInfo], _: &JobContext<'_>) -> bool {
        if infos.len() != self.spec.replicated_jobs.len() {
            return false;
        }
        let mut changed = false;
        for (job, info) in self.spec.replicated_jobs.iter_mut().zip(infos) {
            changed |= podset::restore(&mut job.template.spec.get_or_insert_default().template, info);
        }
        changed
    }

    /// Exclusive topology by node pool gives each Job a pool to itself.
    fn pods_per_pool(&self, pod_set: &str) -> Option<u32> {
        let job = self.spec.replicated_jobs.iter().find(|job| job.name.to_lowercase() == pod_set)?;
        let of_template = job.template.metadata.as_ref().and_then(|meta| annotation(meta, keys::EXCLUSIVE_TOPOLOGY));
        let topology = annotation(&self.metadata, keys::EXCLUSIVE_TOPOLOGY).or(of_template)?;
        (topology == slicegate_tpu::label::NODE_POOL).then(|| u32::try_from(pods_per_replica(job)).unwrap_or(0))
    }

    /// The size of a JobSet is fixed once it runs.
    fn is_elastic(&self, _: &Gates) -> bool {
        false
    }

    fn is_active(&self) -> bool {
        self.status.replicated_jobs_status.iter().any(|s| s.active > 0)
    }

    /// Jobs that were made meanwhile are suspended then, too.
    fn has_settled(&self) -> bool {
        !may_have_run(&self.metadata, self.spec.managed_by.as_deref())
            || self.status.conditions.iter().any(|c| c.type_ == "Suspended" && c.status == "True")
    }

    fn pods_ready(&self) -> bool {
        let wanted = self.spec.replicated_jobs.iter().fold(0_i32, |sum, j| sum.saturating_add(replicas(j)));
        let ready = self
            .status
            .replicated_jobs_status
            .iter()
            .fold(0_i32, |sum, s| sum.saturating_add(s.ready).saturating_add(s.succeeded));
        wanted == ready
    }

    fn finished(&self) -> Option<Finished> {
        self.status.conditions.iter().filter(|c| c.status == "True").find_map(|c| match c.type_.as_str() {
            "Completed" => Some(Finished { success: true, message: c.message.clone() }),
            "Failed" => Some(Finished { success: false, message: c.message.clone() }),
            _ => None,
        })
    }

    fn reclaimable_pods(&self) -> Vec<kueue::ReclaimablePod> {
        let succeeded =
            |name: &str| self.status.replicated_jobs_status.iter().find(|s| s.name == name).map_or(0, |s| s.succeeded);
        self.spec
            .replicated_jobs
            .iter()
            .filter_map(|job| {
                let succeeded = succeeded(&job.name);
                (succeeded > 0 && succeeded <= replicas(job)).then(|| kueue::ReclaimablePod {
                    name: job.name.to_lowercase(),
                    count: succeeded.saturating_mul(pods_per_replica(job)),
                })
            })
            .collect()
    }
}
