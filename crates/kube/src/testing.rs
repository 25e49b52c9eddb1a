//! An API server for tests: objects in memory, lists, watches and the writes that are sent here. A test may answer in its place.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt as _};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Collected, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

/// What a test answers instead.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// A refusal with this code and reason.
    Refuse(u16, &'static str),
    /// A refusal of anything new in a namespace that is being deleted.
    NamespaceTerminating,
    /// What is right, but late.
    Late(Duration),
    /// Nothing, ever.
    Never,
}

/// A request that came.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) at: Instant,
    pub(crate) method: Method,
    pub(crate) path: String,
    /// Whether it begins a watch.
    pub(crate) watches: bool,
}

impl Asked {
    /// Whether it changes something other than Events and Leases.
    pub(crate) fn is_write(&self) -> bool {
        self.method != Method::GET && !self.path.contains("/events") && !self.path.contains("/leases")
    }

    /// Whether it lists the objects of a kind.
    pub(crate) fn lists(&self, plural: &str) -> bool {
        self.method == Method::GET && !self.watches && self.path.ends_with(&format!("/{plural}"))
    }
}

type Answering = Box<dyn FnMut(&Asked) -> Option<Reply> + Send>;

struct State {
    version: u64,
    objects: BTreeMap<String, Value>,
    /// What happened: version, collection, type, object.
    log: Vec<(u64, String, &'static str, Value)>,
    asked: Vec<Asked>,
    answering: Answering,
    given_up: Vec<Instant>,
}

/// The API server. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Api {
    state: Arc<Mutex<State>>,
    news: Arc<watch::Sender<u64>>,
}

/// Notes when whoever waits for an answer gives up.
struct Unanswered(Api);

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.0.state().given_up.push(Instant::now());
    }
}

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

impl Api {
    /// One with these objects.
    pub(crate) fn new(objects: impl IntoIterator<Item = (&'static str, Value)>) -> Self {
        let state = State {
            version: 1,
            objects: BTreeMap::new(),
            log: Vec::new(),
            asked: Vec::new(),
            answering: Box::new(|_| None),
            given_up: Vec::new(),
        };
        let api = Self { state: Arc::new(Mutex::new(state)), news: Arc::new(watch::channel(0).0) };
        for (collection, object) in objects {
            api.put(collection, object);
        }
        api
    }

    /// A client of it.
    pub(crate) fn client(&self) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.answer(request).await) }
        });
        Client::new(service, "default")
    }

    /// Answers in its place from now on.
    pub(crate) fn answering(&self, answering: impl FnMut(&Asked) -> Option<Reply> + Send + 'static) {
        self.state().answering = Box::new(answering);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All requests so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.state().asked.clone()
    }

    /// When answers that never came were not waited for any more.
    pub(crate) fn given_up(&self) -> Vec<Instant> {
        self.state().given_up.clone()
    }

    /// The objects whose paths begin so.
    pub(crate) fn objects(&self, collection: &str) -> Vec<Value> {
        let state = self.state();
        let of_it = state.objects.iter().filter(|(path, _)| path.starts_with(&format!("{collection}/")));
        of_it.map(|(_, object)| object.clone()).collect()
    }

    /// Makes an object, or changes it, as somebody else does.
    pub(crate) fn put(&self, collection: &str, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        self.store(&format!("{collection}/{name}"), object);
    }

    /// Waits until something is so.
    pub(crate) async fn until(&self, what: &str, good: impl Fn(&Self) -> bool) {
        let last = Instant::now() + Duration::from_secs(20);
        while !good(self) {
            assert!(Instant::now() < last, "{what}: not so after 20 s; asked: {:#?}", self.asked());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn store(&self, path: &str, mut object: Value) -> Value {
        let mut state = self.state();
        state.version += 1;
        let version = state.version;
        object["metadata"]["resourceVersion"] = version.to_string().into();
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = format!("uid-{version}").into();
            object["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        let known = state.objects.insert(path.to_owned(), object.clone());
        let change = if known.is_some() { "MODIFIED" } else { "ADDED" };
        state.log.push((version, everywhere(path), change, object.clone()));
        drop(state);
        self.news.send_replace(version);
        object
    }

    async fn answer(&self, request: Request<Body>) -> Answer {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
        let query = parts.uri.query().unwrap_or_default();
        let asked = Asked {
            at: Instant::now(),
            method: parts.method,
            path: parts.uri.path().to_owned(),
            watches: query.contains("watch=true"),
        };
        let reply = {
            let mut state = self.state();
            state.asked.push(asked.clone());
            (state.answering)(&asked)
        };
        match reply {
            Some(Reply::Never) => {
                let _asked = Unanswered(self.clone());
                std::future::pending::<()>().await;
            }
            Some(Reply::Refuse(code, reason)) => return refusal(code, reason),
            Some(Reply::NamespaceTerminating) => return whole(StatusCode::FORBIDDEN, &namespace_ends()),
            Some(Reply::Late(by)) => tokio::time::sleep(by).await,
            None => {}
        }
        if asked.watches {
            let from = query.split('&').find_map(|p| p.strip_prefix("resourceVersion=")).and_then(|v| v.parse().ok());
            return self.watch(&asked.path, from.unwrap_or(0));
        }
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        match self.act(&asked, body) {
            Ok(value) => whole(StatusCode::OK, &value),
            Err((code, reason)) => refusal(code, reason),
        }
    }

    fn act(&self, asked: &Asked, body: Value) -> Result<Value, (u16, &'static str)> {
        let (path, is_collection) = (asked.path.as_str(), is_collection(&asked.path));
        if asked.method == Method::GET && is_collection {
            let state = self.state();
            let of_it = |(known, _): &(&String, &Value)| everywhere(known) == *path;
            let items: Vec<Value> = state.objects.iter().filter(of_it).map(|(_, object)| object.clone()).collect();
            let version = state.version.to_string();
            return Ok(
                json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items}),
            );
        }
        if asked.method == Method::POST {
            let path = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap_or_default());
            if self.state().objects.contains_key(&path) {
                return Err((409, "AlreadyExists"));
            }
            return Ok(self.store(&path, body));
        }
        let path = path.trim_end_matches("/status");
        let known = self.state().objects.get(path).cloned().ok_or((404, "NotFound"))?;
        let conflicts = |version: &Value| version.is_string() && *version != known["metadata"]["resourceVersion"];
        match asked.method {
            Method::PUT if conflicts(&body["metadata"]["resourceVersion"]) => Err((409, "Conflict")),
            Method::PUT => Ok(self.store(path, body)),
            Method::PATCH => {
                let mut new = known.clone();
                if let Some(steps) = body.as_array() {
                    if conflicts(&steps[0]["value"]) {
                        return Err((409, "Conflict"));
                    }
                    let patch: json_patch::Patch = serde_json::from_value(body).map_err(|_| (400, "BadRequest"))?;
                    json_patch::patch(&mut new, &patch).map_err(|_| (422, "Invalid"))?;
                } else if conflicts(&body["metadata"]["resourceVersion"]) {
                    return Err((409, "Conflict"));
                } else {
                    merge(&mut new, &body);
                }
                Ok(if new == known { known } else { self.store(path, new) })
            }
            _ => Ok(known),
        }
    }

    /// What happens from a version on.
    fn watch(&self, path: &str, from: u64) -> Answer {
        let (api, news, path) = (self.clone(), self.news.subscribe(), path.to_owned());
        let lines: BoxStream<'static, _> = stream::unfold((api, news, 0_usize), move |(api, mut news, mut at)| {
            let path = path.clone();
            async move {
                loop {
                    news.borrow_and_update();
                    let next = api.state().log.get(at).cloned();
                    match next {
                        Some((version, collection, change, object)) => {
                            at += 1;
                            if version > from && collection == path {
                                let line = format!("{}\n", json!({"type": change, "object": object}));
                                return Some((Ok(Frame::data(Bytes::from(line))), (api, news, at)));
                            }
                        }
                        None if news.changed().await.is_err() => return None,
                        None => {}
                    }
                }
            }
        })
        .boxed();
        Response::new(UnsyncBoxBody::new(StreamBody::new(lines)))
    }
}

/// The segments of a path after its API version, without a namespace that something is in.
fn segments(path: &str) -> (String, Vec<&str>) {
    let skip = if path.starts_with("/api/") { 3 } else { 4 };
    let all: Vec<&str> = path.split('/').collect();
    let (root, rest) = all.split_at(skip.min(all.len()));
    let rest = if rest.len() > 2 && rest[0] == "namespaces" { &rest[2..] } else { rest };
    (root.join("/"), rest.to_vec())
}

fn is_collection(path: &str) -> bool {
    segments(path).1.len() == 1
}

/// The path of all objects of a kind everywhere, from that of one.
fn everywhere(path: &str) -> String {
    let (root, rest) = segments(path);
    format!("{root}/{}", rest[0])
}

/// A merge that knows lists whose items have names.
fn merge(into: &mut Value, from: &Value) {
    let name = |v: &Value| v.get("type").or_else(|| v.get("name")).cloned();
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                if value.is_null() {
                    into.remove(key);
                } else {
                    merge(into.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (Value::Array(into), Value::Array(from)) if from.iter().all(|v| name(v).is_some()) => {
            for item in from {
                match into.iter_mut().find(|known| name(known) == name(item)) {
                    Some(known) => merge(known, item),
                    None => into.push(item.clone()),
                }
            }
        }
        (into, from) => *into = from.clone(),
    }
}

fn whole(code: StatusCode, value: &Value) -> Answer {
    let body = Full::new(Bytes::from(value.to_string()));
    let mut answer = Response::new(UnsyncBoxBody::new(body));
    *answer.status_mut() = code;
    answer
}

/// What an API server says of something new in a namespace that is being deleted.
fn namespace_ends() -> Value {
    let why = "unable to create new content in namespace default because it is being terminated";
    let cause = json!({"reason": "NamespaceTerminating", "message": "namespace default is being terminated",
        "field": "metadata.namespace"});
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": why,
        "reason": "Forbidden", "code": 403, "details": {"causes": [cause]}})
}

fn refusal(code: u16, reason: &str) -> Answer {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("{reason}, says the test"), "reason": reason, "code": code});
    whole(StatusCode::from_u16(code).unwrap(), &status)
}
