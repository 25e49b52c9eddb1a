//! Waiting for something to be seen, by watches.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use kube::Client;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::Value;

use crate::api::{Resource, is_not_found, items, name, text, value};
use crate::error::{Error, Result};

/// After how long a watch that broke is begun anew.
pub(crate) const AGAIN: Duration = Duration::from_millis(100);

/// What is waited for, and how long.
#[derive(Clone)]
pub struct Wait<'a> {
    client: &'a Client,
    resource: Resource,
    namespace: String,
    name: Option<String>,
    labels: Option<String>,
    limit: Duration,
}

/// Objects as they are seen, by namespace and name.
pub type Objects = BTreeMap<(String, String), Value>;

impl<'a> Wait<'a> {
    /// For objects of a kind in a namespace, or anywhere if the namespace is empty; at most 30 s.
    pub fn new(client: &'a Client, resource: Resource, namespace: &str) -> Self {
        let limit = Duration::from_secs(30);
        Self { client, resource, namespace: namespace.to_owned(), name: None, labels: None, limit }
    }

    /// Only those that this label selector selects.
    #[must_use]
    pub fn labels(mut self, labels: &str) -> Self {
        self.labels = Some(labels.to_owned());
        self
    }

    /// How long at most.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Until one object is as it should be.
    ///
    /// # Errors
    /// If that takes too long, with the state last seen.
    pub async fn one(mut self, object: &str, what: &str, mut good: impl FnMut(&Value) -> bool) -> Result<Value> {
        self.name = Some(object.to_owned());
        let found = self.until(what, |objects| objects.values().any(&mut good)).await?;
        found.into_values().next().ok_or_else(|| Error::new(format!("{what}: {object} is gone")))
    }

    /// Until an object is gone.
    ///
    /// # Errors
    /// If that takes too long, with the state last seen.
    pub async fn gone(mut self, object: &str) -> Result<()> {
        self.name = Some(object.to_owned());
        self.until("it to be gone", BTreeMap::is_empty).await.map(drop)
    }

    /// Until all objects together are as they should be; returns them.
    ///
    /// # Errors
    /// If that takes too long, with the states last seen.
    pub async fn until(self, what: &str, mut good: impl FnMut(&Objects) -> bool) -> Result<Objects> {
        let mut objects = Objects::new();
        let mut error = None;
        if tokio::time::timeout(self.limit, self.watch(&mut objects, &mut error, &mut good)).await.is_ok() {
            return Ok(objects);
        }
        let which = match (&self.name, &self.labels) {
            (Some(name), _) => format!("{} {name}", self.resource.plural),
            (None, Some(labels)) => format!("{} with {labels}", self.resource.plural),
            (None, None) => self.resource.plural.to_owned(),
        };
        let seen: Vec<String> = objects.values().map(|o| format!("\n  {}", brief(o))).collect();
        let seen = if seen.is_empty() { "\n  (none)".to_owned() } else { seen.concat() };
        let error = error.map(|e| format!("\n  last error: {e}")).unwrap_or_default();
        let (namespace, limit) = (&self.namespace, self.limit);
        Err(Error::new(format!("waited {limit:?} for {which} in {namespace:?}: {what}; seen:{seen}{error}")))
    }

    async fn watch(&self, objects: &mut Objects, error: &mut Option<String>, good: &mut impl FnMut(&Objects) -> bool) {
        let mut config = watcher::Config::default();
        if let Some(name) = &self.name {
            config = config.fields(&format!("metadata.name={name}"));
        }
        if let Some(labels) = &self.labels {
            config = config.labels(labels);
        }
        let mut stream = pin!(watcher(self.resource.within(self.client, &self.namespace), config));
        let mut listed = Objects::new();
        let mut complete = false;
        while let Some(event) = stream.next().await {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(object)) => {
                    if let Ok(object) = value(object) {
                        listed.insert(key(&object), object);
                    }
                }
                Ok(Event::InitDone) => {
                    *objects = std::mem::take(&mut listed);
                    complete = true;
                }
                Ok(Event::Apply(object)) => {
                    if let Ok(object) = value(object) {
                        objects.insert(key(&object), object);
                    }
                }
                Ok(Event::Delete(object)) => {
                    if let Ok(object) = value(object) {
                        objects.remove(&key(&object));
                    }
                }
                Err(watcher::Error::InitialListFailed(why)) if is_not_found(&why) => {
                    *error = Some(format!("{} are not served", self.resource.plural));
                    tokio::time::sleep(AGAIN).await;
                }
                Err(why) => {
                    *error = Some(why.to_string());
                    tokio::time::sleep(AGAIN).await;
                }
            }
            if complete && good(objects) {
                return;
            }
        }
    }
}

fn key(object: &Value) -> (String, String) {
    (text(object, "/metadata/namespace").to_owned(), name(object).to_owned())
}

/// An object in one line, as far as it helps to see why a wait did not end.
pub fn brief(object: &Value) -> String {
    let mut line = format!("{} {}", text(object, "/kind"), name(object));
    for pointer in ["/status/phase", "/status/jobDeploymentStatus", "/status/jobStatus", "/spec/nodeName"] {
        let text = text(object, pointer);
        if !text.is_empty() {
            let _ = write!(line, " {text}");
        }
    }
    for flag in ["/spec/suspend", "/spec/active"] {
        if let Some(flag_is) = object.pointer(flag).and_then(Value::as_bool) {
            let _ = write!(line, " {}={flag_is}", flag.trim_start_matches("/spec/"));
        }
    }
    for condition in items(object, "/status/conditions") {
        let part = |p: &str| text(condition, p).to_owned();
        let _ = write!(line, " {}={}({}: {})", part("/type"), part("/status"), part("/reason"), part("/message"));
    }
    line.chars().take(600).collect()
}
