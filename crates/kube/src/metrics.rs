//! What the process counted, as text for Prometheus.

use std::fmt::Write as _;

use http::StatusCode;

use crate::health::Health;
use crate::http_server::{Answer, Asked};

/// Answers requests for metrics.
pub(crate) fn answer(health: &Health, asked: &Asked) -> Answer {
    if asked.path != "/metrics" {
        return Answer::text(StatusCode::NOT_FOUND, format!("nothing is served at {}\n", asked.path));
    }
    let mut body = String::new();
    let (succeeded, failed) = health.writes();
    let family = |body: &mut String, name: &str, kind: &str, help: &str| {
        let _ = write!(body, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    };
    family(&mut body, "slicegate_writes_total", "counter", "Writes to the API server, by how they ended.");
    let _ = writeln!(body, "slicegate_writes_total{{result=\"success\"}} {succeeded}");
    let _ = writeln!(body, "slicegate_writes_total{{result=\"failure\"}} {failed}");
    family(&mut body, "slicegate_leading", "gauge", "Whether this process acts.");
    let _ = writeln!(body, "slicegate_leading {}", u8::from(health.is_leading()));
    Answer { status: StatusCode::OK, content_type: "text/plain; version=0.0.4; charset=utf-8", body }
}
