//! The dashboards of Ray's heads, behind a proxy: KubeRay asks them how a job fares.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::error::Result;

/// How a job of Ray's fares.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RayStatus {
    /// It runs for this time after it was first asked for, and succeeds.
    SucceedsAfter(Duration),
    /// It runs for this time after it was first asked for, and fails with this message.
    FailsAfter(Duration, String),
    /// It runs until the test says more.
    Runs,
}

#[derive(Debug)]
struct State {
    usual: RayStatus,
    /// By the beginning of the job's id, which is the RayJob's name.
    single: BTreeMap<String, RayStatus>,
    /// When a job was first asked for, and the time of day then, in ms.
    first: BTreeMap<String, (Instant, i64)>,
}

/// The dashboards of a cluster. Dropping it stops them.
#[derive(Debug)]
pub struct Dashboard {
    port: u16,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl Dashboard {
    /// Begins to answer.
    ///
    /// # Errors
    /// If no port can be had.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let usual = RayStatus::SucceedsAfter(Duration::from_secs(2));
        let state = Arc::new(Mutex::new(State { usual, single: BTreeMap::new(), first: BTreeMap::new() }));
        let task = tokio::spawn(serve(listener, state.clone()));
        Ok(Self { port, state, task })
    }

    /// The proxy's port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How jobs fare that nothing else is said of.
    pub fn set_usual(&self, status: RayStatus) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).usual = status;
    }

    /// How the job of a RayJob fares.
    pub fn set(&self, ray_job: &str, status: RayStatus) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).single.insert(ray_job.to_owned(), status);
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, state: Arc<Mutex<State>>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let state = state.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let answer = answer(&state, request.uri().path());
                async move { Ok::<_, Infallible>(answer) }
            });
            // A connection that breaks is KubeRay's to make again.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn answer(state: &Mutex<State>, path: &str) -> Response<Full<Bytes>> {
    let (status, body) = match path.strip_prefix("/api/jobs/").filter(|id| !id.is_empty()) {
        Some(id) => (StatusCode::OK, state.lock().unwrap_or_else(PoisonError::into_inner).job(id)),
        None if path.trim_end_matches('/') == "/api/jobs" => (StatusCode::OK, json!([])),
        None => (StatusCode::NOT_FOUND, json!({"error": format!("nothing is played at {path}")})),
    };
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}

impl State {
    fn job(&mut self, id: &str) -> Value {
        let clock = jiff::Timestamp::now().as_millisecond();
        let (since, started) = *self.first.entry(id.to_owned()).or_insert((Instant::now(), clock));
        let single = self.single.iter().find(|(name, _)| id.starts_with(name.as_str())).map(|(_, status)| status);
        let (status, message, ended) = match single.unwrap_or(&self.usual) {
            RayStatus::SucceedsAfter(time) if since.elapsed() >= *time => {
                ("SUCCEEDED", "Job finished successfully.", true)
            }
            RayStatus::FailsAfter(time, why) if since.elapsed() >= *time => ("FAILED", why.as_str(), true),
            _ => ("RUNNING", "Job is currently running.", false),
        };
        let mut job = json!({"submission_id": id, "job_id": "01000000", "type": "SUBMISSION", "status": status,
            "message": message, "entrypoint": "", "start_time": started});
        if ended {
            job["end_time"] = clock.into();
        }
        job
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_runs_and_ends() {
        let usual = RayStatus::SucceedsAfter(Duration::ZERO);
        let mut state = State { usual, single: BTreeMap::new(), first: BTreeMap::new() };
        assert_eq!(state.job("a-x7")["status"], "SUCCEEDED");
        state.single.insert("b".to_owned(), RayStatus::Runs);
        assert_eq!(state.job("b-x7")["status"], "RUNNING");
        state.single.insert("b".to_owned(), RayStatus::FailsAfter(Duration::ZERO, "no".to_owned()));
        assert_eq!((&state.job("b-x7")["status"], &state.job("b-x7")["message"]), (&json!("FAILED"), &json!("no")));
    }

    #[test]
    fn what_is_not_played_is_not_found() {
        let state = State { usual: RayStatus::Runs, single: BTreeMap::new(), first: BTreeMap::new() };
        let state = Mutex::new(state);
        assert_eq!(answer(&state, "/api/jobs/x").status(), StatusCode::OK);
        assert_eq!(answer(&state, "/api/serve").status(), StatusCode::NOT_FOUND);
    }
}
