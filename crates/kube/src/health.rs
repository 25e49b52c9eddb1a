//! Whether the process is well, and what it counted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http::StatusCode;
use tokio::sync::{mpsc, oneshot};

use crate::http_server::{Answer, Asked};

/// How many readers of metrics may wait.
const MOST_SCRAPES: usize = 16;

/// Asks for Kueue's metrics as text.
pub(crate) type Scrape = oneshot::Sender<String>;

/// What `/healthz`, `/readyz` and `/metrics` tell. Clones share it.
#[derive(Clone, Debug)]
pub struct Health(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    synced: AtomicBool,
    leading: AtomicBool,
    requests: Mutex<BTreeMap<(String, u16), u64>>,
    scraper: mpsc::Sender<Scrape>,
    scrapes: Mutex<Option<mpsc::Receiver<Scrape>>>,
    liveness: Box<str>,
    readiness: Box<str>,
}

impl Default for Health {
    fn default() -> Self {
        Self::new("healthz", "readyz")
    }
}

impl Health {
    /// The names of the two probes.
    pub fn new(liveness: &str, readiness: &str) -> Self {
        let (scraper, scrapes) = mpsc::channel(MOST_SCRAPES);
        let path = |name: &str| format!("/{}", name.trim_start_matches('/')).into();
        Self(Arc::new(Inner {
            synced: AtomicBool::new(false),
            leading: AtomicBool::new(false),
            requests: Mutex::default(),
            scraper,
            scrapes: Mutex::new(Some(scrapes)),
            liveness: path(liveness),
            readiness: path(readiness),
        }))
    }

    pub(crate) fn set_synced(&self, synced: bool) {
        self.0.synced.store(synced, Ordering::Relaxed);
    }

    pub(crate) fn set_leading(&self, leading: bool) {
        self.0.leading.store(leading, Ordering::Relaxed);
    }

    /// Counts a request to the API server by its method and the code of its answer; 0: there was none.
    pub(crate) fn count_request(&self, method: &str, code: u16) {
        let mut requests = self.0.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let counter = requests.entry((method.to_owned(), code)).or_insert(0);
        *counter = counter.saturating_add(1);
    }

    /// Whether all objects are known.
    pub fn is_synced(&self) -> bool {
        self.0.synced.load(Ordering::Relaxed)
    }

    /// Whether this process acts.
    pub fn is_leading(&self) -> bool {
        self.0.leading.load(Ordering::Relaxed)
    }

    /// Requests to the API server so far, by method and code.
    pub(crate) fn requests(&self) -> BTreeMap<(String, u16), u64> {
        self.0.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Kueue's metrics, from whoever counts them; `None` if nobody answers.
    pub(crate) async fn scrape(&self) -> Option<String> {
        let (tell, told) = oneshot::channel();
        self.0.scraper.send(tell).await.ok()?;
        told.await.ok()
    }

    /// The requests for metrics, for whoever answers them; only the first gets them.
    pub(crate) fn scrapes(&self) -> Option<mpsc::Receiver<Scrape>> {
        self.0.scrapes.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Answers probes.
    pub(crate) fn probe(&self, asked: &Asked) -> Answer {
        match asked.path.as_str() {
            path if *path == *self.0.liveness => Answer::text(StatusCode::OK, "ok\n"),
            path if *path == *self.0.readiness && self.is_synced() => Answer::text(StatusCode::OK, "ok\n"),
            path if *path == *self.0.readiness => {
                Answer::text(StatusCode::SERVICE_UNAVAILABLE, "not all objects are known yet\n")
            }
            other => Answer::text(StatusCode::NOT_FOUND, format!("nothing is served at {other}\n")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(health: &Health, path: &str) -> StatusCode {
        let asked = Asked { method: http::Method::GET, path: path.to_owned(), body: "".into() };
        health.probe(&asked).status
    }

    #[test]
    fn ready_only_when_synced() {
        let health = Health::default();
        assert_eq!(ask(&health, "/healthz"), StatusCode::OK);
        assert_eq!(ask(&health, "/readyz"), StatusCode::SERVICE_UNAVAILABLE);
        health.set_synced(true);
        assert_eq!((ask(&health, "/readyz"), ask(&health, "/else")), (StatusCode::OK, StatusCode::NOT_FOUND));
    }

    #[test]
    fn probes_have_the_names_that_they_are_given() {
        let health = Health::new("live", "/ready");
        assert_eq!((ask(&health, "/live"), ask(&health, "/healthz")), (StatusCode::OK, StatusCode::NOT_FOUND));
        assert_eq!(ask(&health, "/ready"), StatusCode::SERVICE_UNAVAILABLE);
    }
}
