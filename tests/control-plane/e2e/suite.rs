//! What tests share: the programs, a cluster, folders.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use slicegate_control_plane::Result;
use slicegate_control_plane::build::Programs;
use slicegate_control_plane::cluster::{Cluster, Options};

/// One test.
pub(crate) struct Test {
    pub(crate) name: &'static str,
    pub(crate) run: for<'a> fn(&'a mut Suite) -> Outcome<'a>,
}

/// How a test will end.
pub(crate) type Outcome<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// Lists async functions as tests.
macro_rules! tests {
    ($($name:ident,)*) => {
        pub(crate) const TESTS: &[crate::suite::Test] =
            &[$(crate::suite::Test { name: stringify!($name), run: |suite| Box::pin($name(suite)) }),*];
    };
}

pub(crate) use tests;

/// What a test gets.
pub(crate) struct Suite {
    programs: Arc<Programs>,
    folder: PathBuf,
    /// The test that runs now.
    name: &'static str,
    shared: Option<Cluster>,
    started: usize,
    trusted: bool,
    skipped: Option<&'static str>,
    /// Kueue, if it is there.
    kueue: Option<PathBuf>,
}

impl Suite {
    pub(crate) fn new(programs: Arc<Programs>, kueue: Option<PathBuf>, folder: PathBuf) -> Self {
        Self { programs, folder, name: "", shared: None, started: 0, trusted: true, skipped: None, kueue }
    }

    /// Kueue itself, if it is to be compared with.
    pub(crate) fn kueue(&self) -> Option<PathBuf> {
        self.kueue.clone()
    }

    /// A test begins. Says where to look if it fails.
    pub(crate) fn begin(&mut self, name: &'static str) -> Vec<PathBuf> {
        self.name = name;
        self.skipped = None;
        vec![self.test_folder(), self.folder.clone()]
    }

    /// This test cannot be run here, and why.
    pub(crate) fn skip(&mut self, why: &'static str) {
        self.skipped = Some(why);
    }

    /// Why the test that ran last could not be run.
    pub(crate) fn skipped(&self) -> Option<&'static str> {
        self.skipped
    }

    /// A test has failed: what it leaves is not to harm the next one.
    pub(crate) fn distrust(&mut self) {
        self.trusted = false;
    }

    /// Where this test's own logs go.
    pub(crate) fn test_folder(&self) -> PathBuf {
        self.folder.join(self.name)
    }

    /// A cluster that tests share one after another: everything runs, and it is empty.
    pub(crate) async fn shared(&mut self) -> Result<&Cluster> {
        let name = format!("shared-{}", self.started);
        let found = match self.shared.take() {
            Some(cluster) if self.trusted || cluster.must_run().await.is_ok() => {
                cluster.clean().await.is_ok().then_some(cluster)
            }
            _ => None,
        };
        self.trusted = true;
        let cluster = if let Some(cluster) = found {
            cluster
        } else {
            self.started += 1;
            Cluster::start(self.programs.clone(), &self.folder.join(&name), Options::new(&name)).await?
        };
        Ok(self.shared.insert(cluster))
    }

    /// A cluster of this test's own.
    pub(crate) async fn own(&mut self, options: Options) -> Result<Cluster> {
        if options.load {
            // It is to have the machine for itself.
            self.shared = None;
        }
        let folder = self.test_folder().join(&options.name);
        Cluster::start(self.programs.clone(), &folder, options).await
    }
}
