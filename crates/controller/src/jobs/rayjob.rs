//! RayJobs.

use k8s_openapi::api::core::v1::{Container, PodSpec};
use slicegate_api::ray::{GROUP, RayJob};
use slicegate_api::{ObjectMeta, PodTemplateSpec, kueue};

use super::{Finished, Integration, JobContext, JobError, expect_infos, ray};
use crate::podset::{self, PodSetInfo};

/// The pod set of the pod that submits the program.
pub(crate) const SUBMITTER: &str = "submitter";
/// Its container.
const SUBMITTER_CONTAINER: &str = "ray-job-submitter";

fn submits_from_a_pod(job: &RayJob) -> bool {
    job.spec.submission_mode.as_deref() == Some("K8sJobMode")
}

fn submits_from_the_head(job: &RayJob) -> bool {
    job.spec.submission_mode.as_deref() == Some("SidecarMode")
}

/// The container that submits, as KubeRay makes it by itself.
fn submitter_container(job: &RayJob) -> Container {
    let head = job.spec.ray_cluster_spec.as_ref().and_then(|c| c.head_group_spec.template.spec.as_ref());
    Container {
        name: SUBMITTER_CONTAINER.to_owned(),
        image: head.and_then(|s| s.containers.first()).and_then(|c| c.image.clone()),
        resources: Some(ray::resources(&[("cpu", "500m"), ("memory", "200Mi")], &[("cpu", "1"), ("memory", "1Gi")])),
        ..Container::default()
    }
}

fn submitter_template(job: &RayJob) -> PodTemplateSpec {
    job.spec.submitter_pod_template.clone().unwrap_or_else(|| PodTemplateSpec {
        metadata: None,
        spec: Some(PodSpec {
            containers: vec![submitter_container(job)],
            restart_policy: Some("Never".to_owned()),
            ..PodSpec::default()
        }),
    })
}

fn split<'a>(job: &RayJob, infos: &'a [PodSetInfo]) -> Result<(&'a [PodSetInfo], Option<&'a PodSetInfo>), JobError> {
    let groups = job.spec.ray_cluster_spec.as_ref().map_or(0, |c| c.worker_group_specs.len());
    let submitter = submits_from_a_pod(job);
    expect_infos(groups.saturating_add(1).saturating_add(usize::from(submitter)), infos)?;
    Ok(match infos.split_last() {
        Some((last, others)) if submitter => (others, Some(last)),
        _ => (infos, None),
    })
}

impl Integration for RayJob {
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
        let cluster = self.spec.ray_cluster_spec.clone().unwrap_or_default();
        let mut all = ray::pod_sets(&cluster, self.metadata.annotations.as_ref(), context.gates)?;
        if submits_from_the_head(self)
            && let Some(head) = all.first_mut()
        {
            head.template.spec.get_or_insert_default().containers.push(submitter_container(self));
        }
        if submits_from_a_pod(self) {
            let template = submitter_template(self);
            all.push(kueue::PodSet {
                name: SUBMITTER.to_owned(),
                topology_request: ray::request_of(&template, context.gates)?,
                template,
                count: 1,
                min_count: None,
            });
        }
        if cluster.enable_in_tree_autoscaling == Some(true) && self.is_elastic(context.gates) {
            let job = self.metadata.name.as_deref().unwrap_or_default();
            let name = self.status.ray_cluster_name.as_deref().unwrap_or_default();
            ray::follow_cluster(&mut all, job, name, context)?;
        }
        Ok(all)
    }

    fn run(&mut self, infos: &[PodSetInfo], context: &JobContext<'_>) -> Result<(), JobError> {
        let (cluster, submitter) = split(self, infos)?;
        if let Some(info) = submitter {
            let mut template = submitter_template(self);
            podset::merge_into(&mut template, info, context.gates.elastic_jobs_via_workload_slices)?;
            self.spec.submitter_pod_template = Some(template);
        }
        ray::run(self.spec.ray_cluster_spec.get_or_insert_default(), cluster, context.gates)?;
        self.spec.suspend = None;
        Ok(())
    }

    fn restore(&mut self, infos: &[PodSetInfo], _: &JobContext<'_>) -> bool {
        let Ok((cluster, submitter)) = split(self, infos) else { return false };
        let mut changed = ray::restore(self.spec.ray_cluster_spec.get_or_insert_default(), cluster);
        if let (Some(info), Some(template)) = (submitter, &mut self.spec.submitter_pod_template) {
            changed |= podset::restore(template, info);
        }
        changed
    }

    fn is_active(&self) -> bool {
        !matches!(self.status.job_deployment_status.as_deref(), None | Some("" | "Suspended"))
    }

    fn pods_ready(&self) -> bool {
        let state = self.status.other.get("rayClusterStatus").and_then(|s| s.get("state")).and_then(|s| s.as_str());
        state == Some("ready")
    }

    fn finished(&self) -> Option<Finished> {
        matches!(self.status.job_deployment_status.as_deref(), Some("Complete" | "Failed")).then(|| Finished {
            success: self.status.job_status.as_deref() == Some("SUCCEEDED"),
            message: self.status.message.clone().unwrap_or_default(),
        })
    }

    fn skip(&self) -> bool {
        !self.spec.cluster_selector.is_empty()
    }

    fn on_hold(&self) -> bool {
        self.status.job_deployment_status.as_deref() == Some("ValidationFailed")
    }
}
