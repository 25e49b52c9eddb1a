//! An observer: it records every version of every object through watches, and says which rules they break.

mod replay;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use kube::Client;
use kube::api::ListParams;
use kube::runtime::watcher::{Config, Event, watcher};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::api::{self, Resource, is_not_found, items, name, text};
use crate::cluster::Cluster;
use crate::error::{Context as _, Error, Result};
use crate::wait::AGAIN;

/// How long the garbage collector may take; it looks for new kinds every 30 s.
const COLLECTED: Duration = Duration::from_secs(40);

/// What is recorded, as far as the API server serves it.
pub const RECORDED: [Resource; 13] = [
    api::PODS,
    api::JOBS,
    api::JOB_SETS,
    api::RAY_JOBS,
    api::RAY_CLUSTERS,
    api::WORKLOADS,
    api::CLUSTER_QUEUES,
    api::LOCAL_QUEUES,
    api::COHORTS,
    api::ADMISSION_CHECKS,
    api::PROVISIONING_REQUESTS,
    api::POD_TEMPLATES,
    api::EVENTS,
];

/// How an object changed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Change {
    /// It is new, at least to the observer.
    Added,
    /// It is another version.
    Modified,
    /// It is gone; this is its last version.
    Deleted,
}

/// One version of one object.
#[derive(Clone, Debug)]
pub struct Seen {
    /// When it was seen, since the observer began.
    pub at: Duration,
    /// What happened.
    pub change: Change,
    /// The kind's plural.
    pub kind: &'static str,
    /// The object.
    pub object: Value,
    /// Its resource version, by which all that happened is ordered.
    pub revision: u64,
}

/// An observer. Dropping it ends it.
pub struct Observer {
    client: Client,
    kinds: Vec<Resource>,
    record: Arc<Mutex<Record>>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Record {
    seen: Vec<Seen>,
    /// The revision of every object that is there, by kind and uid.
    now: BTreeMap<(&'static str, String), Value>,
    /// Kinds that were listed.
    listed: BTreeSet<&'static str>,
}

impl Observer {
    /// Begins to record, and returns when all that is there was seen.
    ///
    /// # Errors
    /// If the API server does not answer.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        Self::of(cluster, &RECORDED).await
    }

    /// The same for these kinds alone.
    ///
    /// # Errors
    /// If the API server does not answer.
    pub async fn of(cluster: &Cluster, of: &[Resource]) -> Result<Self> {
        let client = cluster.client_of("observer", "e2e-observer").await?;
        let mut kinds = Vec::new();
        for kind in of {
            match kind.all(&client).list(&ListParams::default().limit(1)).await {
                Ok(_) => kinds.push(*kind),
                Err(error) if is_not_found(&error) => {}
                Err(error) => return Err(error).doing(format!("list {}", kind.plural)),
            }
        }
        let record = Arc::new(Mutex::new(Record::default()));
        let began = Instant::now();
        let tasks =
            kinds.iter().map(|kind| tokio::spawn(watch(client.clone(), *kind, record.clone(), began))).collect();
        let observer = Self { client, kinds, record, tasks };
        let last = Instant::now() + Duration::from_secs(30);
        while observer.record().listed.len() < observer.kinds.len() {
            if Instant::now() > last {
                let listed = observer.record().listed.clone();
                return Err(Error::new(format!("the observer has seen only {listed:?} after 30 s")));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(observer)
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until what is there now has been recorded.
    ///
    /// # Errors
    /// If that takes over 30 s.
    pub async fn catch_up(&self) -> Result<()> {
        for kind in &self.kinds {
            let there = kind.list(&self.client, "").await?;
            let last = Instant::now() + Duration::from_secs(30);
            loop {
                let missing = {
                    let record = self.record();
                    let known = |o: &Value| {
                        let known = record.now.get(&(kind.plural, text(o, "/metadata/uid").to_owned()));
                        known.is_none_or(|k| revision(k) < revision(o))
                    };
                    // What was deleted since the list was made is not missed.
                    let gone = |o: &Value| {
                        let uid = text(o, "/metadata/uid");
                        record
                            .seen
                            .iter()
                            .rev()
                            .any(|s| s.change == Change::Deleted && text(&s.object, "/metadata/uid") == uid)
                    };
                    there.iter().find(|o| known(o) && !gone(o)).map(|o| name(o).to_owned())
                };
                let Some(missing) = missing else { break };
                if Instant::now() > last {
                    return Err(Error::new(format!("the observer has not seen {} {missing} within 30 s", kind.plural)));
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(())
    }

    /// All that was seen, in the order in which it happened.
    pub fn all(&self) -> Vec<Seen> {
        let mut seen = self.record().seen.clone();
        seen.sort_by_key(|s| s.revision);
        seen
    }

    /// The versions of one object, in order.
    pub fn versions(&self, kind: Resource, namespace: &str, name_of: &str) -> Vec<Seen> {
        let mut seen = self.all();
        seen.retain(|s| {
            s.kind == kind.plural && text(&s.object, "/metadata/namespace") == namespace && name(&s.object) == name_of
        });
        seen
    }

    /// The changes of an object's conditions in order, as `Type=Status` or, with reasons, `Type=Status(Reason)`. Those
    /// that changed in one version are in the order of their names: which came first is not to be told.
    pub fn conditions(&self, kind: Resource, namespace: &str, name_of: &str, reasons: bool) -> Vec<String> {
        condition_changes(self.versions(kind, namespace, name_of).iter().map(|s| &s.object), reasons)
    }

    /// The name of the one object of a kind whose name begins so.
    ///
    /// # Errors
    /// If there was none, or several.
    pub fn name(&self, kind: Resource, prefix: &str) -> Result<String> {
        let all = self.all();
        let of_kind = all.iter().filter(|s| s.kind == kind.plural).map(|s| name(&s.object));
        let names: BTreeSet<&str> = of_kind.filter(|n| n.starts_with(prefix)).collect();
        let mut found = names.iter();
        match (found.next(), found.next()) {
            (Some(name), None) => Ok((*name).to_owned()),
            _ => Err(Error::new(format!("{} whose names begin with {prefix}: {names:?}", kind.plural))),
        }
    }

    /// Which rules were broken at some time: see [`replay::violations`]. Call [`Observer::catch_up`] before.
    pub fn violations(&self) -> Vec<String> {
        replay::violations(&self.all())
    }

    /// What is left over at the end: Workloads without their job, jobs of a queue without Workload.
    pub fn leftovers(&self) -> Vec<String> {
        replay::leftovers(&self.all())
    }

    /// Fails if a rule was broken at some time or something is left over. The garbage collector takes away what a deleted
    /// object owned when it comes to it, and is given time for that.
    ///
    /// # Errors
    /// Then, with all that is wrong.
    pub async fn must_be_clean(&self) -> Result<()> {
        let last = Instant::now() + COLLECTED;
        loop {
            self.catch_up().await?;
            let mut wrong = self.violations();
            let left = self.leftovers();
            if wrong.is_empty() && !left.is_empty() && Instant::now() < last {
                tokio::time::sleep(Duration::from_millis(200)).await;
                continue;
            }
            wrong.extend(left);
            return if wrong.is_empty() { Ok(()) } else { Err(Error::new(wrong.join("\n"))) };
        }
    }

    /// Writes all that was seen to a file, a version a line, as the recordings are written.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut lines = String::new();
        for seen in self.all() {
            let change = format!("{:?}", seen.change).to_uppercase();
            let line = json!({"t": seen.at.as_secs_f64(), "type": change, "kind": seen.kind, "object": seen.object});
            let _ = writeln!(lines, "{line}");
        }
        std::fs::write(path, lines).doing(path.display())
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// The changes of conditions over the versions of an object.
pub fn condition_changes<'a>(versions: impl Iterator<Item = &'a Value>, reasons: bool) -> Vec<String> {
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    let mut changes = Vec::new();
    for version in versions {
        let from = changes.len();
        for condition in items(version, "/status/conditions") {
            let kind = text(condition, "/type");
            let mut now = text(condition, "/status").to_owned();
            if reasons {
                let _ = write!(now, "({})", text(condition, "/reason"));
            }
            if known.get(kind) != Some(&now) {
                changes.push(format!("{kind}={now}"));
                known.insert(kind.to_owned(), now);
            }
        }
        changes.get_mut(from..).unwrap_or_default().sort();
    }
    changes
}

fn revision(object: &Value) -> u64 {
    text(object, "/metadata/resourceVersion").parse().unwrap_or(0)
}

async fn watch(client: Client, kind: Resource, record: Arc<Mutex<Record>>, began: Instant) {
    let mut stream = std::pin::pin!(watcher(kind.all(&client), Config::default()));
    let mut listed: BTreeSet<String> = BTreeSet::new();
    while let Some(event) = stream.next().await {
        if event.is_err() {
            tokio::time::sleep(AGAIN).await;
        }
        let mut record = record.lock().unwrap_or_else(PoisonError::into_inner);
        let at = began.elapsed();
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => {
                if let Ok(object) = serde_json::to_value(object) {
                    listed.insert(text(&object, "/metadata/uid").to_owned());
                    record.put(kind.plural, at, object);
                }
            }
            Ok(Event::InitDone) => {
                record.sweep(kind.plural, at, &listed);
                record.listed.insert(kind.plural);
            }
            Ok(Event::Apply(object)) => {
                if let Ok(object) = serde_json::to_value(object) {
                    record.put(kind.plural, at, object);
                }
            }
            Ok(Event::Delete(object)) => {
                if let Ok(object) = serde_json::to_value(object) {
                    record.remove(kind.plural, at, object);
                }
            }
            Err(_) => {}
        }
    }
}

impl Record {
    fn put(&mut self, kind: &'static str, at: Duration, mut object: Value) {
        strip(&mut object);
        let key = (kind, text(&object, "/metadata/uid").to_owned());
        let revision = revision(&object);
        let change = match self.now.get(&key) {
            None => Change::Added,
            Some(known) if self::revision(known) == revision => return,
            Some(_) => Change::Modified,
        };
        self.now.insert(key, object.clone());
        self.seen.push(Seen { at, change, kind, object, revision });
    }

    fn remove(&mut self, kind: &'static str, at: Duration, mut object: Value) {
        strip(&mut object);
        self.now.remove(&(kind, text(&object, "/metadata/uid").to_owned()));
        let revision = revision(&object);
        self.seen.push(Seen { at, change: Change::Deleted, kind, object, revision });
    }

    /// What is not in a new list was deleted while the watch was cut.
    fn sweep(&mut self, kind: &'static str, at: Duration, listed: &BTreeSet<String>) {
        let gone: Vec<_> = self.now.keys().filter(|(k, uid)| *k == kind && !listed.contains(uid)).cloned().collect();
        for key in gone {
            if let Some(object) = self.now.remove(&key) {
                // When exactly is not known; nothing is blamed on what may have been gone.
                let revision = revision(&object);
                self.seen.push(Seen { at, change: Change::Deleted, kind, object, revision });
            }
        }
    }
}

fn strip(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_conditions_are_told_once() {
        let version = |conditions: Value| json!({"status": {"conditions": conditions}});
        let quota = json!({"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved"});
        let admitted = json!({"type": "Admitted", "status": "True", "reason": "Admitted"});
        let waits = json!({"type": "QuotaReserved", "status": "False", "reason": "Pending"});
        let versions = [version(json!([waits])), version(json!([waits])), version(json!([quota, admitted]))];
        let changes = condition_changes(versions.iter(), true);
        assert_eq!(
            changes,
            ["QuotaReserved=False(Pending)", "Admitted=True(Admitted)", "QuotaReserved=True(QuotaReserved)"]
        );
    }

    #[test]
    fn what_a_new_list_lacks_was_deleted() {
        let mut record = Record::default();
        let pod = |uid: &str, revision: &str| json!({"metadata": {"uid": uid, "resourceVersion": revision}});
        record.put("pods", Duration::ZERO, pod("a", "1"));
        record.put("pods", Duration::ZERO, pod("b", "2"));
        record.put("pods", Duration::ZERO, pod("b", "2"));
        record.sweep("pods", Duration::ZERO, &["b".to_owned()].into());
        let changes: Vec<_> = record.seen.iter().map(|s| (s.change, s.revision)).collect();
        assert_eq!(changes, [(Change::Added, 1), (Change::Added, 2), (Change::Deleted, 1)]);
    }
}
