//! Kubernetes Events, sent beside everything else: what is told never holds up what is done.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Method;
use k8s_openapi::jiff;
use kube::Client;
use serde_json::{Value, json};
use slicegate_api::Kind;
use slicegate_controller::{EventRecord, EventType};
use tokio::sync::Notify;

use crate::call::{self, Call};
use crate::connect::reason;
use crate::lease::now_micros;
use crate::perform::namespace_ends;

/// The most Events that wait to be sent, some 20 MiB; of more the oldest are lost. Six are told in the life of a job: 2,000 jobs at
/// once lose none, however slow the API server.
const MOST_WAITING: usize = 20_000;
/// How often an Event is tried to be recorded.
const ATTEMPTS: u32 = 5;
/// How many are sent side by side.
const SIDE_BY_SIDE: usize = 8;
/// The longest note that the API takes.
const LONGEST_NOTE: usize = 1_024;

/// Events on their way.
#[derive(Clone, Debug)]
pub(crate) struct Sink(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    waiting: Mutex<Waiting>,
    more: Notify,
    instance: String,
}

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<Value>,
    lost: u64,
    count: u64,
    /// Of those that are on their way.
    sending: usize,
    /// Why none can be recorded, as it was told last.
    complained: Option<String>,
}

impl Waiting {
    /// Says once why Events may not be recorded.
    fn complain(&mut self, refused: Option<&str>) {
        // Others have other names in the text.
        let kind = refused.map(|why| why.split('"').step_by(2).collect());
        if let Some(why) = refused
            && self.complained != kind
        {
            tracing::warn!(
                error = why,
                "Events are not recorded; the role must have create on events of events.k8s.io"
            );
        }
        if refused.is_some() {
            self.complained = kind;
        }
    }
}

/// Whether an Event was refused because whoever sends it may not, rather than because there is no place for it.
fn is_not_allowed(status: &kube::core::Status) -> bool {
    matches!(status.code, 401 | 403) && !namespace_ends(status)
}

impl Inner {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Option<Value> {
        let mut waiting = self.waiting();
        let next = waiting.events.pop_front()?;
        waiting.sending += 1;
        Some(next)
    }
}

impl Sink {
    /// Sends Events in the background.
    pub(crate) fn start(client: &Client, instance: String, timeout: Duration) -> Self {
        let sink = Self(Arc::new(Inner { waiting: Mutex::new(Waiting::default()), more: Notify::new(), instance }));
        for _ in 0..SIDE_BY_SIDE {
            let (inner, client) = (sink.0.clone(), client.clone());
            tokio::spawn(async move {
                loop {
                    match inner.next() {
                        Some(event) => {
                            let refused = send(&client, event, timeout).await;
                            let mut waiting = inner.waiting();
                            waiting.sending -= 1;
                            waiting.complain(refused.as_deref());
                        }
                        None => inner.more.notified().await,
                    }
                }
            });
        }
        sink
    }

    /// Queues an Event about an object, of which uid and version as last seen are given.
    pub(crate) fn put(&self, record: &EventRecord, about: Option<(&str, Option<String>)>) {
        let mut waiting = self.0.waiting();
        waiting.count += 1;
        let number = waiting.count;
        waiting.events.push_back(event(record, about, &self.0.instance, now_micros(), number));
        if waiting.events.len() > MOST_WAITING {
            waiting.events.pop_front();
            waiting.lost += 1;
            if waiting.lost.is_power_of_two() {
                tracing::warn!(lost = waiting.lost, "Events come faster than they can be sent; the oldest are lost");
            }
        }
        drop(waiting);
        self.0.more.notify_one();
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        let waiting = self.0.waiting();
        waiting.events.len() + waiting.sending
    }
}

/// Sends an Event. Why it is not allowed, if that is so.
async fn send(client: &Client, event: Value, timeout: Duration) -> Option<String> {
    let namespace = event["metadata"]["namespace"].as_str().unwrap_or("default");
    let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    let call = Call { method: Method::POST, path, content_type: call::JSON, body: event, accept: call::JSON };
    for attempt in 0..ATTEMPTS {
        let request = call.request().ok()?;
        let why = match tokio::time::timeout(timeout, client.request::<Value>(request)).await {
            Ok(Ok(_)) => return None,
            // A namespace that is being deleted takes no Events, and there is nobody left to read them.
            Ok(Err(kube::Error::Api(status))) if status.code != 429 && status.code < 500 => {
                tracing::debug!(error = status.message, "an Event was not taken");
                return is_not_allowed(&status).then_some(status.message);
            }
            Ok(Err(error)) => reason(&error),
            Err(_) => "no answer in time".to_owned(),
        };
        tracing::debug!(error = why, "an Event could not be recorded");
        tokio::time::sleep(Duration::from_millis(500) * 2_u32.saturating_pow(attempt)).await;
    }
    None
}

/// Who says it: the integration for jobs, the admission for everything else.
fn reporter(kind: Kind) -> &'static str {
    match kind {
        Kind::Job => "batch/job-kueue-controller",
        Kind::JobSet => "jobset.x-k8s.io/jobset-kueue-controller",
        Kind::RayJob => "ray.io/rayjob-kueue-controller",
        Kind::RayCluster => "ray.io/raycluster-kueue-controller",
        _ => "kueue-admission",
    }
}

fn event(
    record: &EventRecord,
    about: Option<(&str, Option<String>)>,
    instance: &str,
    micros: i64,
    number: u64,
) -> Value {
    let object = &record.object;
    let namespace = if object.namespace.is_empty() { "default" } else { &object.namespace };
    let time = jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    let mut regarding = json!({
        "apiVersion": object.kind.api_version(),
        "kind": object.kind.as_str(),
        "name": object.name,
    });
    if !object.namespace.is_empty() {
        regarding["namespace"] = object.namespace.as_ref().into();
    }
    if let Some((uid, version)) = about {
        regarding["uid"] = uid.into();
        regarding["resourceVersion"] = version.into();
    }
    // A part of a name ends with a letter or digit.
    let base: String = object.name.chars().take(220).collect();
    let base = base.trim_end_matches(['-', '.']);
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": format!("{base}.{micros:x}.{number:x}"), "namespace": namespace},
        "eventTime": time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
        "type": match record.kind { EventType::Normal => "Normal", EventType::Warning => "Warning" },
        "reason": record.reason,
        "action": record.reason,
        "note": shortened(&record.note),
        "regarding": regarding,
        "reportingController": reporter(object.kind),
        "reportingInstance": instance.chars().take(128).collect::<String>(),
    })
}

fn shortened(note: &str) -> String {
    if note.len() <= LONGEST_NOTE {
        return note.to_owned();
    }
    let mut end = LONGEST_NOTE - 4;
    while !note.is_char_boundary(end) {
        end -= 1;
    }
    format!("{} ...", &note.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use slicegate_api::ObjectRef;

    use super::*;

    #[test]
    fn a_long_name_is_cut_where_a_name_may_end() {
        let name = format!("{}-.-{}", "a".repeat(217), "b".repeat(30));
        let record = EventRecord {
            object: ObjectRef::new(Kind::ClusterQueue, "", name.as_str()),
            kind: EventType::Normal,
            reason: "r".into(),
            note: "n".into(),
        };
        let event = event(&record, None, "x", 1, 1);
        assert_eq!(event["metadata"]["name"], format!("{}.1.1", "a".repeat(217)));
        assert_eq!(event["regarding"]["name"], name);
    }

    #[test]
    fn a_namespace_that_ends_is_no_missing_right() {
        let status = |code: u16, causes: Value| -> kube::core::Status {
            serde_json::from_value(json!({"code": code, "details": {"causes": causes}})).unwrap()
        };
        assert!(is_not_allowed(&status(403, json!([]))));
        assert!(is_not_allowed(&status(401, json!([]))));
        assert!(!is_not_allowed(&status(404, json!([]))));
        assert!(!is_not_allowed(&status(403, json!([{"reason": "NamespaceTerminating", "message": "", "field": ""}]))));
        let mut waiting = Waiting::default();
        for (why, told) in [(Some("User \"a\" cannot"), Some("User  cannot")), (None, Some("User  cannot"))] {
            waiting.complain(why);
            assert_eq!(waiting.complained.as_deref(), told);
        }
    }

    #[test]
    fn an_event_has_what_the_api_demands() {
        let record = EventRecord {
            object: ObjectRef::new(Kind::Job, "team", "train"),
            kind: EventType::Warning,
            reason: "Stopped".into(),
            note: "x".repeat(2_000).into(),
        };
        let value = event(&record, None, "slicegate-0", 1_767_225_600_000_001, 7);
        assert_eq!(value["metadata"]["namespace"], "team");
        assert_eq!(value["eventTime"], "2026-01-01T00:00:00.000001Z");
        assert_eq!(value["reportingController"], "batch/job-kueue-controller");
        assert_eq!(value["regarding"]["kind"], "Job");
        assert_eq!(value["note"].as_str().unwrap().len(), 1_024);
        let queue = EventRecord { object: ObjectRef::new(Kind::ClusterQueue, "", "cq"), ..record };
        let value = event(&queue, None, "slicegate-0", 0, 8);
        assert_eq!(value["metadata"]["namespace"], "default", "Events about cluster-wide objects are kept there");
        assert_eq!(value["regarding"].get("namespace"), None);
    }
}
