//! What a test begins with whose end is compared with a recording.

use std::path::PathBuf;

use slicegate_control_plane::api::{self, Resource, name, text};
use slicegate_control_plane::cluster::Cluster;
use slicegate_control_plane::gke::{Gke, Pool, Settings};
use slicegate_control_plane::observe::Observer;
use slicegate_control_plane::slicegate::{self, Slicegate};
use slicegate_control_plane::{Context as _, Result, Value, ensure_eq};

use crate::likeness::unlike;
use crate::recordings::Recording;
use crate::suite::Suite;

/// The folder of the tutorials and the recordings.
pub(crate) struct Files(PathBuf);

impl Files {
    /// `None`, and said so, if they are not there.
    pub(crate) fn find(suite: &mut Suite) -> Option<Self> {
        let found = std::env::var_os("SLICEGATE_SHARED").filter(|f| !f.is_empty()).map(|f| Self(f.into()));
        if found.is_none() {
            suite.skip("SLICEGATE_SHARED is not set: it holds the tutorials' own files and the recordings");
        }
        found
    }

    pub(crate) fn tutorial(&self, path: &str) -> Result<String> {
        let path = self.0.join("tutorials").join(path);
        std::fs::read_to_string(&path).doing(path.display())
    }

    pub(crate) fn recording(&self, name: &str) -> Result<Recording> {
        Recording::read(&self.0.join("recordings").join(format!("{name}.jsonl.xz")))
    }
}

/// A cluster with node pools, a controller as in the recordings, an observer.
pub(crate) struct Stage<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) gke: Gke,
    pub(crate) observer: Observer,
    _controller: Slicegate,
}

impl<'a> Stage<'a> {
    pub(crate) async fn set(suite: &'a mut Suite, settings: Settings, pools: Vec<Pool>) -> Result<Self> {
        let folder = suite.test_folder();
        let cluster = suite.shared().await?;
        slicegate::install(cluster).await?;
        let gke = Gke::start(cluster, settings).await?;
        gke.add_pools(pools).await?;
        let observer = Observer::start(cluster).await?;
        let args = vec!["--feature-gates=ElasticJobsViaWorkloadSlices=true".to_owned()];
        let options = slicegate::Options { args, ..slicegate::Options::default() };
        let controller = Slicegate::start(cluster, &folder, &options).await?;
        Ok(Self { cluster, gke, observer, _controller: controller })
    }

    /// Fails unless the conditions of Workloads changed in the order of a recording.
    ///
    /// Two differences are known: since the recordings were made, whoever waits is also told that it is not admitted, and a
    /// Workload whose job is gone is finished before it goes too.
    pub(crate) fn as_recorded(&self, recording: &Recording, workloads: &[&str]) -> Result<()> {
        for prefix in workloads {
            let name = self.observer.name(api::WORKLOADS, prefix)?;
            let mut ours = self.observer.conditions(api::WORKLOADS, "default", &name, false);
            let first = ours
                .iter()
                .position(|c| c.starts_with("Admitted="))
                .filter(|&i| ours.get(i).is_some_and(|c| c.ends_with("False")));
            if let Some(first) = first {
                ours.remove(first);
            }
            let versions = self.observer.versions(api::WORKLOADS, "default", &name);
            let finished = versions.last().and_then(|s| api::condition(&s.object, "Finished"));
            if finished.is_some_and(|c| text(c, "/reason") == "OwnerNotFound") {
                ours.retain(|c| c != "Finished=True");
            }
            ensure_eq!(ours, recording.conditions(prefix), "conditions of {name}");
        }
        Ok(())
    }

    /// In what the last version of an object that a function approves of differs from the recorded one.
    pub(crate) fn unlike(
        &self,
        recording: &Recording,
        kind: Resource,
        prefix: &str,
        good: impl Fn(&Value) -> bool,
    ) -> Result<Vec<String>> {
        let all = self.observer.all();
        let of_kind = all.iter().filter(|s| s.kind == kind.plural).map(|s| &s.object);
        let ours = of_kind.filter(|o| name(o).starts_with(prefix) && good(o)).last();
        let ours = ours.doing(format!("{} {prefix}*", kind.plural))?;
        let theirs = recording.last(kind.plural, prefix, good)?;
        let found = unlike(kind.kind, ours, &theirs);
        Ok(found.into_iter().map(|d| format!("{} {}: {d}", kind.kind, name(ours))).collect())
    }

    /// Ends a test: the rules hold, and if not, or if something failed, all that was seen is kept.
    pub(crate) async fn end(self, folder: PathBuf, result: Result<()>) -> Result<()> {
        let result = match result {
            Ok(()) => self.observer.must_be_clean().await,
            failed => failed,
        };
        if result.is_err() {
            self.observer.write(&folder.join("observed.jsonl"))?;
        }
        result
    }
}
