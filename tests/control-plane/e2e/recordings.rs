//! What happened on a control plane with Kueue, version by version: files that lie beside the checkout.

use std::io::BufReader;
use std::path::Path;

use slicegate_control_plane::api::{name, text};
use slicegate_control_plane::observe::condition_changes;
use slicegate_control_plane::{Context as _, Result, Value};

/// A recording.
pub(crate) struct Recording {
    /// Its lines, in order.
    lines: Vec<Value>,
}

impl Recording {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let file = std::fs::File::open(path).doing(path.display())?;
        let mut text = Vec::new();
        lzma_rs::xz_decompress(&mut BufReader::new(file), &mut text).doing(path.display())?;
        let lines = String::from_utf8_lossy(&text).lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        Ok(Self { lines })
    }

    /// The versions of the objects of a kind (plural) whose names begin so.
    fn versions<'a>(&'a self, kind: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a Value> {
        let of_kind = self.lines.iter().filter(move |l| text(l, "/kind") == kind);
        of_kind.filter_map(|l| l.get("object")).filter(move |o| name(o).starts_with(prefix))
    }

    /// The last version of the objects of a kind whose names begin so that a function approves of.
    pub(crate) fn last(&self, kind: &str, prefix: &str, good: impl Fn(&Value) -> bool) -> Result<Value> {
        let found = self.versions(kind, prefix).filter(|o| good(o)).last().cloned();
        found.doing(format!("{kind} {prefix}* in the recording"))
    }

    /// In which order the conditions of a Workload changed.
    pub(crate) fn conditions(&self, workload: &str) -> Vec<String> {
        condition_changes(self.versions("workloads", workload), false)
    }
}
