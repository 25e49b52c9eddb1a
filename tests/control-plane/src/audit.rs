//! What was asked of the API server, from its audit log.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::api::text;
use crate::error::{Context as _, Result};

/// One request.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Request {
    /// When it was answered; texts are in order of time.
    pub at: String,
    /// The name under which the client is known to the API server.
    pub user: String,
    /// The program, as it calls itself.
    pub user_agent: String,
    /// `create`, `update`, `patch`, `delete`, `get`, `list`, `watch`, ...
    pub verb: String,
    /// The plural of the kind, with `/status` or another part of the object.
    pub resource: String,
    /// The object's namespace.
    pub namespace: String,
    /// The object's name, if the request had one.
    pub name: String,
    /// The answer's HTTP status.
    pub code: u64,
}

impl Request {
    /// Whether it changes something.
    pub fn is_write(&self) -> bool {
        ["create", "update", "patch", "delete", "deletecollection"].contains(&self.verb.as_str())
    }
}

/// The API server's audit policy: every request, once, when it is answered.
pub const POLICY: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
"rules": [{"level": "Metadata"}]}"#;

/// All requests so far, oldest first. A watch is there once when it begins and once when it ends.
///
/// # Errors
/// If there is no log.
pub fn requests(log: &Path) -> Result<Vec<Request>> {
    let text = fs::read_to_string(log).doing(log.display())?;
    // A line that is being written is not whole yet.
    Ok(text.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok()).map(|v| request(&v)).collect())
}

fn request(line: &Value) -> Request {
    let own = |pointer: &str| text(line, pointer).to_owned();
    let mut resource = own("/objectRef/resource");
    let part = text(line, "/objectRef/subresource");
    if !part.is_empty() {
        resource.push('/');
        resource.push_str(part);
    }
    Request {
        at: own("/stageTimestamp"),
        user: own("/user/username"),
        user_agent: own("/userAgent"),
        verb: own("/verb"),
        resource,
        namespace: own("/objectRef/namespace"),
        name: own("/objectRef/name"),
        code: line.pointer("/responseStatus/code").and_then(Value::as_u64).unwrap_or(0),
    }
}

/// The successful writes of a user, counted by verb and kind.
pub fn writes_of(requests: &[Request], user: &str) -> BTreeMap<(String, String), usize> {
    let mut counts = BTreeMap::new();
    for request in requests.iter().filter(|r| r.user == user && r.is_write() && r.code < 300) {
        *counts.entry((request.verb.clone(), request.resource.clone())).or_insert(0) += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_log_is_a_request() {
        let line = serde_json::json!({"stageTimestamp": "2026-01-01T00:00:00.000001Z", "verb": "patch", "user": {"username": "slicegate"}, "userAgent": "a/1",
            "objectRef": {"resource": "workloads", "subresource": "status", "namespace": "n", "name": "w"},
            "responseStatus": {"code": 200}});
        let got = request(&line);
        assert_eq!((got.resource.as_str(), got.code, got.is_write()), ("workloads/status", 200, true));
        let counts = writes_of(&[got.clone(), Request { verb: "get".to_owned(), ..got }], "slicegate");
        assert_eq!(counts.into_iter().collect::<Vec<_>>(), [(("patch".to_owned(), "workloads/status".to_owned()), 1)]);
    }
}
