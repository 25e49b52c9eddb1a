//! `/metrics`: Kueue's, and what the process counts itself.

use std::fmt::Write as _;
use std::time::Duration;

use http::StatusCode;

use crate::health::Health;
use crate::http_server::{Answer, Asked};
use crate::lease::now_micros;

/// How long the controller may take to answer; it may be in the middle of a decision.
const PATIENCE: Duration = Duration::from_secs(8);

/// What is said of the process beside what it counted.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    started: f64,
    lease: Option<Box<str>>,
}

impl Process {
    /// `lease`: the name under which a leader is elected, if one is.
    pub(crate) fn new(lease: Option<&str>) -> Self {
        Self { started: seconds(now_micros()), lease: lease.map(Into::into) }
    }

    fn write(&self, health: &Health, body: &mut String) {
        let mut gauge = |name: &str, kind: &str, help: &str, value: Option<f64>| {
            if let Some(value) = value {
                let _ = write!(body, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
            }
        };
        let cpu = cpu_time::ProcessTime::try_now().ok().map(|t| t.as_duration().as_secs_f64());
        gauge("process_cpu_seconds_total", "counter", "Processor time in seconds.", cpu);
        gauge("process_resident_memory_bytes", "gauge", "Memory in use.", status_bytes("VmRSS:"));
        gauge("process_virtual_memory_bytes", "gauge", "Address space in use.", status_bytes("VmSize:"));
        gauge("process_open_fds", "gauge", "Open files.", open_files());
        gauge("process_start_time_seconds", "gauge", "When it started, since 1970.", Some(self.started));
        let name = "rest_client_requests_total";
        let _ = write!(body, "# HELP {name} Requests to the API server.\n# TYPE {name} counter\n");
        for ((method, code), count) in health.requests() {
            let code = if code == 0 { "<error>".to_owned() } else { code.to_string() };
            let _ = writeln!(body, "{name}{{code=\"{code}\",method=\"{method}\"}} {count}");
        }
        if let Some(lease) = &self.lease {
            let name = "leader_election_master_status";
            let leads = u8::from(health.is_leading());
            let _ = write!(body, "# HELP {name} Whether this process leads.\n# TYPE {name} gauge\n");
            let _ = writeln!(body, "{name}{{name=\"{lease}\"}} {leads}");
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "microseconds since 1970 are far from 2^53")]
fn seconds(micros: i64) -> f64 {
    micros as f64 / 1e6
}

/// A line of the kernel's about this process, in bytes; `None` where there is no such kernel.
fn status_bytes(line: &str) -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let rest = text.lines().find_map(|l| l.strip_prefix(line))?;
    let kibibytes: f64 = rest.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024.0)
}

fn open_files() -> Option<f64> {
    let count = u32::try_from(std::fs::read_dir("/proc/self/fd").ok()?.count()).ok()?;
    Some(f64::from(count))
}

/// Answers requests for metrics.
pub(crate) async fn answer(health: Health, process: Process, asked: Asked) -> Answer {
    if asked.path != "/metrics" {
        return Answer::text(StatusCode::NOT_FOUND, format!("nothing is served at {}\n", asked.path));
    }
    let Ok(Some(mut body)) = tokio::time::timeout(PATIENCE, health.scrape()).await else {
        return Answer::text(StatusCode::SERVICE_UNAVAILABLE, "the controller does not answer\n");
    };
    process.write(&health, &mut body);
    Answer { status: StatusCode::OK, content_type: "text/plain; version=0.0.4; charset=utf-8", body }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(path: &str) -> Asked {
        Asked { method: http::Method::GET, path: path.to_owned(), body: "".into() }
    }

    #[tokio::test]
    async fn what_the_controller_and_the_process_counted_is_one_text() {
        let health = Health::default();
        health.count_request("PATCH", 200);
        health.count_request("PATCH", 200);
        health.count_request("POST", 0);
        let mut scrapes = health.scrapes().unwrap();
        assert!(health.scrapes().is_none());
        tokio::spawn(async move {
            while let Some(tell) = scrapes.recv().await {
                tell.send("kueue_build_info 1\n".to_owned()).unwrap();
            }
        });
        let process = Process::new(Some("lease"));
        let text = answer(health.clone(), process.clone(), asked("/metrics")).await.body;
        for line in [
            "kueue_build_info 1",
            "rest_client_requests_total{code=\"200\",method=\"PATCH\"} 2",
            "rest_client_requests_total{code=\"<error>\",method=\"POST\"} 1",
            "leader_election_master_status{name=\"lease\"} 0",
            "# TYPE process_start_time_seconds gauge",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        assert_eq!(answer(health, process, asked("/")).await.status, StatusCode::NOT_FOUND);
    }
}
