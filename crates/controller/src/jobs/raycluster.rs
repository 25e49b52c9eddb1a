//! RayClusters.

use slicegate_api::ray::{GROUP, RayCluster};
use slicegate_api::{ObjectMeta, kueue};

use super::{Finished, Integration, JobContext, JobError, may_have_run, ray};
use crate::podset::PodSetInfo;

impl Integration for RayCluster {
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
        ray::pod_sets(&self.spec, self.metadata.annotations.as_ref(), context.gates)
    }

    fn run(&mut self, infos: &[PodSetInfo], context: &JobContext<'_>) -> Result<(), JobError> {
        ray::run(&mut self.spec, infos, context.gates)?;
        self.spec.suspend = Some(false);
        Ok(())
    }

    fn restore(&mut self, infos: &[PodSetInfo], _: &JobContext<'_>) -> bool {
        ray::restore(&mut self.spec, infos)
    }

    fn is_active(&self) -> bool {
        ray::cluster_is_active(self)
    }

    /// KubeRay says that it is suspended as soon as it sees no pod of it, and that it no longer suspends it when it knows of none.
    fn has_settled(&self) -> bool {
        let suspends =
            || self.status.conditions.iter().any(|c| c.type_ == "RayClusterSuspending" && c.status == "True");
        !may_have_run(&self.metadata, self.spec.managed_by.as_deref())
            || self.status.state.as_deref() == Some("suspended") && !suspends()
    }

    fn pods_ready(&self) -> bool {
        self.status.state.as_deref() == Some("ready")
    }

    fn finished(&self) -> Option<Finished> {
        None
    }
}
