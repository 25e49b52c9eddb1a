//! What happened on a control plane with Kueue, version by version: files that lie beside the checkout.

use std::collections::BTreeMap;
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

    /// The manifest that an object was made of with `kubectl apply`.
    pub(crate) fn manifest(&self, kind: &str, named: &str) -> Result<String> {
        let first = self.versions(kind, named).find(|o| name(o) == named);
        let pointer = "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration";
        let manifest = first.map(|o| text(o, pointer)).filter(|m| !m.is_empty());
        manifest.map(str::to_owned).doing(format!("what {kind} {named} was made of, in the recording"))
    }

    /// All that happened until a time, in seconds.
    pub(crate) fn until(&self, seconds: f64) -> impl Iterator<Item = Version<'_>> {
        let lines =
            self.lines.iter().take_while(move |l| l.get("t").and_then(Value::as_f64).is_some_and(|t| t <= seconds));
        lines.filter_map(|l| {
            Some(Version { kind: text(l, "/kind"), gone: text(l, "/type") == "DELETED", object: l.get("object")? })
        })
    }
}

/// A version of an object.
#[derive(Clone, Copy)]
pub(crate) struct Version<'a> {
    /// The kind's plural.
    pub(crate) kind: &'a str,
    /// Whether it is gone.
    pub(crate) gone: bool,
    pub(crate) object: &'a Value,
}

/// What is there after all these versions: by kind, name without its generated end, and number, in the order in which it came.
pub(crate) fn there<'a>(versions: impl Iterator<Item = Version<'a>>) -> BTreeMap<(&'a str, String, usize), &'a Value> {
    let mut now: Vec<Version<'a>> = Vec::new();
    for version in versions {
        let uid = |v: &Version<'_>| (v.kind.to_owned(), text(v.object, "/metadata/uid").to_owned());
        let known = now.iter().position(|v| uid(v) == uid(&version));
        match known {
            Some(at) if version.gone => drop(now.remove(at)),
            Some(at) => now.splice(at..=at, [version]).for_each(drop),
            None if version.gone => {}
            None => now.push(version),
        }
    }
    let mut named = BTreeMap::new();
    for version in now {
        let stable = match version.kind {
            // How far a pod has come is compared, and not which of several has.
            "pods" => {
                format!("{} {}", text(version.object, "/metadata/generateName"), text(version.object, "/status/phase"))
            }
            "workloads" => name(version.object).rsplit_once('-').map_or("", |(stable, _)| stable).to_owned(),
            _ => name(version.object).to_owned(),
        };
        let mut number = 0;
        while named.contains_key(&(version.kind, stable.clone(), number)) {
            number += 1;
        }
        named.insert((version.kind, stable, number), version.object);
    }
    named
}
