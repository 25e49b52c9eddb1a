//! Leader election: of several controllers one acts, and which one a Lease says.
//!
//! The Lease is written as Kubernetes' own components write theirs, so that Kueue and Slicegate under one name exclude each
//! other. Whoever leads acts only for as long as nobody else can have taken over: until `renew_deadline` after the last renewal
//! began, which is shorter than the time that others wait.

use std::time::Duration;

use http::Method;
use k8s_openapi::jiff;
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::call::{self, Call};
use crate::connect::reason;

/// How a leader is elected.
#[derive(Clone, PartialEq, Debug)]
pub struct LeaseOptions {
    /// The namespace of the Lease.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Who this is; unique among all that run.
    pub identity: String,
    /// How long others wait after the last renewal that they saw.
    pub lease_duration: Duration,
    /// How long the leader acts after its last renewal; less than `lease_duration`.
    pub renew_deadline: Duration,
    /// How often renewal, or taking over, is tried.
    pub retry_period: Duration,
    /// Whether the Lease is given back at the end, so that another need not wait.
    pub release_on_cancel: bool,
}

/// Until when this process leads; `None` if it does not.
pub(crate) type Leads = Option<Instant>;

/// A Lease, as far as it matters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Record {
    holder: String,
    renewed: String,
    acquired: String,
    duration_seconds: u64,
    transitions: i64,
    /// All of it: labels are others' business.
    object: Value,
}

impl Record {
    fn read(value: &Value) -> Self {
        let spec = &value["spec"];
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        Self {
            holder: text(&spec["holderIdentity"]),
            renewed: text(&spec["renewTime"]),
            acquired: text(&spec["acquireTime"]),
            duration_seconds: spec["leaseDurationSeconds"].as_u64().unwrap_or(0),
            transitions: spec["leaseTransitions"].as_i64().unwrap_or(0),
            object: value.clone(),
        }
    }
}

/// What one who wants to lead knows of the Lease.
#[derive(Debug)]
struct Candidate {
    options: LeaseOptions,
    /// The Lease as last seen, and since when it has been like that.
    seen: Option<(Record, Instant)>,
}

/// What there is to do about the Lease.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    /// Nothing: somebody else holds it.
    Wait,
    /// Write it with this acquire time (`None`: now) and this number of transitions.
    Take { acquired: Option<String>, transitions: i64 },
}

impl Candidate {
    fn look(&mut self, record: Record, now: Instant) -> Step {
        let since = match &self.seen {
            Some((known, since)) if known.renewed == record.renewed && known.holder == record.holder => *since,
            _ => now,
        };
        let ours = record.holder == self.options.identity;
        // Whoever gives it back leaves it for a second. One from which a name was merely taken out may still be acted upon.
        let free = record.holder.is_empty() && record.duration_seconds <= 1;
        let expired = now.duration_since(since) >= Duration::from_secs(record.duration_seconds);
        let step = if ours {
            Step::Take { acquired: Some(record.acquired.clone()), transitions: record.transitions }
        } else if free || expired {
            // The API counts as far as this.
            let transitions = record.transitions.saturating_add(1).clamp(0, i64::from(i32::MAX));
            Step::Take { acquired: None, transitions }
        } else {
            Step::Wait
        };
        self.seen = Some((record, since));
        step
    }

    /// Whether a Lease that is not there may be made: somebody deleted it, and the one that held it may still act.
    fn may_make(&self, now: Instant) -> bool {
        self.seen.as_ref().is_none_or(|(record, since)| {
            let theirs = !record.holder.is_empty() && record.holder != self.options.identity;
            !theirs || now.duration_since(*since) >= Duration::from_secs(record.duration_seconds)
        })
    }

    /// Who else holds it.
    fn other(&self) -> Option<&str> {
        let holder = self.seen.as_ref().map(|(record, _)| record.holder.as_str());
        holder.filter(|holder| !holder.is_empty() && *holder != self.options.identity)
    }
}

fn path(options: &LeaseOptions, name: bool) -> String {
    let all = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", options.namespace);
    if name { format!("{all}/{}", options.name) } else { all }
}

fn micro_time() -> String {
    jiff::Timestamp::from_microsecond(now_micros())
        .unwrap_or(jiff::Timestamp::UNIX_EPOCH)
        .strftime("%Y-%m-%dT%H:%M:%S.%6fZ")
        .to_string()
}

/// The wall clock.
#[expect(clippy::disallowed_methods, reason = "this crate is where time comes from")]
pub(crate) fn now_micros() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

async fn request(client: &Client, method: Method, path: String, body: Value) -> Result<Value, kube::Error> {
    let call = Call { method, path, content_type: call::JSON, body, accept: call::JSON };
    let request = call.request().map_err(|e| kube::Error::Service(e.into()))?;
    client.request(request).await
}

fn code(error: &kube::Error) -> u16 {
    if let kube::Error::Api(status) = error { status.code } else { 0 }
}

/// Takes part in the election until the sender's other end is gone. What it sends says until when this process leads.
pub(crate) async fn campaign(client: Client, options: LeaseOptions, leads: watch::Sender<Leads>) {
    let mut candidate = Candidate { options: options.clone(), seen: None };
    let mut until: Leads = None;
    let mut complained = None;
    let mut leader = None;
    while !leads.is_closed() {
        let began = Instant::now();
        let outcome = tokio::select! {
            outcome = tokio::time::timeout(options.renew_deadline, round(&client, &mut candidate, began)) => outcome,
            // At the end an API server that does not answer is not waited for.
            () = after_closing(&leads, options.retry_period) => break,
        };
        match outcome {
            Ok(Ok(true)) => {
                (complained, leader) = (None, None);
                if until.is_none() {
                    tracing::info!(identity = options.identity, "leading");
                }
                until = Some(began + options.renew_deadline);
            }
            Ok(Ok(false)) => {
                complained = None;
                until = lost(until, &options, "somebody else holds the Lease");
                if let Some(other) = candidate.other()
                    && leader.as_deref() != Some(other)
                {
                    tracing::info!(leader = other, "standing by: another leads");
                    leader = Some(other.to_owned());
                }
            }
            Ok(Err(error)) => {
                complain(&mut complained, trouble(&options, &error));
                until = still(until, &options);
            }
            Err(_) => {
                complain(&mut complained, format!("no answer within {} s", options.renew_deadline.as_secs_f64()));
                until = still(until, &options);
            }
        }
        leads.send_if_modified(|old| {
            let changed = *old != until;
            *old = until;
            changed
        });
        tokio::select! {
            () = tokio::time::sleep_until(began + options.retry_period) => {}
            () = leads.closed() => break,
        }
    }
    if until.is_some() && options.release_on_cancel {
        let _ = tokio::time::timeout(options.retry_period, release(&client, &candidate)).await;
    }
}

async fn after_closing(leads: &watch::Sender<Leads>, wait: Duration) {
    leads.closed().await;
    tokio::time::sleep(wait).await;
}

/// Says once what is wrong.
fn complain(said: &mut Option<String>, why: String) {
    if said.as_ref() != Some(&why) {
        tracing::warn!(error = why, "the Lease could not be renewed or taken; trying again");
        *said = Some(why);
    }
}

fn trouble(options: &LeaseOptions, error: &kube::Error) -> String {
    match code(error) {
        404 if reason(error).starts_with("namespaces ") => {
            format!("the namespace {} does not exist; create it", options.namespace)
        }
        403 => format!("{}; the role must have get, create and update", reason(error)),
        _ => reason(error),
    }
}

/// Until when this process leads if nothing was renewed.
fn still(until: Leads, options: &LeaseOptions) -> Leads {
    until.filter(|t| *t > Instant::now()).or_else(|| lost(until, options, "it was not renewed in time"))
}

fn lost(until: Leads, options: &LeaseOptions, why: &str) -> Leads {
    if until.is_some() {
        tracing::warn!(identity = options.identity, why, "not leading any more");
    }
    None
}

/// One attempt. Whether this process holds the Lease now.
async fn round(client: &Client, candidate: &mut Candidate, now: Instant) -> Result<bool, kube::Error> {
    let options = candidate.options.clone();
    let record = match request(client, Method::GET, path(&options, true), Value::Null).await {
        Ok(value) => Record::read(&value),
        Err(error) if code(&error) == 404 => {
            if !candidate.may_make(now) {
                return Ok(false);
            }
            let body = lease(&options, &Value::Null, None, 0);
            return match request(client, Method::POST, path(&options, false), body).await {
                Ok(value) => {
                    candidate.seen = Some((Record::read(&value), now));
                    Ok(true)
                }
                Err(error) if code(&error) == 409 => Ok(false),
                Err(error) => Err(error),
            };
        }
        Err(error) => return Err(error),
    };
    let there = record.object.clone();
    let Step::Take { acquired, transitions } = candidate.look(record, now) else { return Ok(false) };
    let body = lease(&options, &there, acquired, transitions);
    match request(client, Method::PUT, path(&options, true), body).await {
        Ok(value) => {
            candidate.seen = Some((Record::read(&value), now));
            Ok(true)
        }
        Err(error) if code(&error) == 409 => Ok(false),
        Err(error) => Err(error),
    }
}

/// The Lease as it is to be; `there`: as it is.
fn lease(options: &LeaseOptions, there: &Value, acquired: Option<String>, transitions: i64) -> Value {
    let now = micro_time();
    let mut metadata = json!({"name": options.name, "namespace": options.namespace});
    for field in ["resourceVersion", "uid", "labels", "annotations", "ownerReferences", "finalizers"] {
        if let Some(value) = there["metadata"].get(field) {
            metadata[field] = value.clone();
        }
    }
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata,
        "spec": {
            "holderIdentity": options.identity,
            "leaseDurationSeconds": options.lease_duration.as_secs().max(1),
            "acquireTime": acquired.filter(|t| !t.is_empty()).unwrap_or_else(|| now.clone()),
            "renewTime": now,
            "leaseTransitions": transitions,
        },
    })
}

/// Gives the Lease back.
async fn release(client: &Client, candidate: &Candidate) -> Result<(), kube::Error> {
    let options = &candidate.options;
    let Some((record, _)) = &candidate.seen else { return Ok(()) };
    let mut body = lease(options, &record.object, Some(record.acquired.clone()), record.transitions);
    body["spec"]["holderIdentity"] = "".into();
    body["spec"]["leaseDurationSeconds"] = 1.into();
    request(client, Method::PUT, path(options, true), body).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(identity: &str) -> LeaseOptions {
        LeaseOptions {
            namespace: "ns".to_owned(),
            name: "lease".to_owned(),
            identity: identity.to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            release_on_cancel: true,
        }
    }

    fn record(holder: &str, renewed: &str) -> Record {
        Record {
            holder: holder.to_owned(),
            renewed: renewed.to_owned(),
            acquired: "then".to_owned(),
            duration_seconds: 15,
            transitions: 3,
            ..Record::default()
        }
    }

    #[test]
    fn whoever_waits_takes_over_when_nothing_was_renewed_for_the_lease_time() {
        let mut b = Candidate { options: options("b"), seen: None };
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(b.look(record("a", "1"), at(0)), Step::Wait, "others' clocks are not trusted");
        assert_eq!(b.look(record("a", "1"), at(10)), Step::Wait);
        assert_eq!(b.look(record("a", "2"), at(14)), Step::Wait, "renewed in time");
        assert_eq!(b.look(record("a", "2"), at(28)), Step::Wait);
        assert_eq!(b.look(record("a", "2"), at(29)), Step::Take { acquired: None, transitions: 4 });
    }

    #[test]
    fn the_holder_renews_and_a_lease_given_back_is_free() {
        let mut a = Candidate { options: options("a"), seen: None };
        let now = Instant::now();
        let kept = Step::Take { acquired: Some("then".to_owned()), transitions: 3 };
        assert_eq!(a.look(record("a", "1"), now), kept);
        let given_back = Record { duration_seconds: 1, ..record("", "1") };
        assert_eq!(a.look(given_back, now), Step::Take { acquired: None, transitions: 4 });
    }

    #[test]
    fn a_lease_that_somebody_else_changed_or_deleted_is_not_taken_while_its_holder_may_act() {
        let mut b = Candidate { options: options("b"), seen: None };
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(b.may_make(at(0)), "there never was one");
        assert_eq!(b.look(record("a", "1"), at(0)), Step::Wait);
        assert_eq!(b.other(), Some("a"));
        assert!(!b.may_make(at(14)));
        assert!(b.may_make(at(15)));
        assert_eq!(b.look(record("", "1"), at(15)), Step::Wait, "a name was taken out by hand");
        assert_eq!(b.look(record("", "1"), at(30)), Step::Take { acquired: None, transitions: 4 });
    }

    #[test]
    fn a_lease_keeps_what_others_wrote_and_counts_as_far_as_the_api_does() {
        let there = json!({"metadata": {"name": "lease", "resourceVersion": "7", "labels": {"team": "a"},
            "managedFields": [{}]}, "spec": {"holderIdentity": "x", "leaseTransitions": i32::MAX}});
        let mut a = Candidate { options: options("a"), seen: None };
        let Step::Take { acquired, transitions } = a.look(Record::read(&there), Instant::now()) else {
            panic!("it lasts for no time")
        };
        assert_eq!(transitions, i64::from(i32::MAX));
        let body = lease(&a.options, &there, acquired, transitions);
        assert_eq!(
            body["metadata"],
            json!({"name": "lease", "namespace": "ns", "resourceVersion": "7",
            "labels": {"team": "a"}})
        );
    }
}
