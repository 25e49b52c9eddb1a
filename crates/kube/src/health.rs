//! Whether the process is well, and what it counted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use http::StatusCode;
use slicegate_api::Kind;
use tokio::sync::{mpsc, oneshot, watch};

use crate::http_server::{Answer, Asked};

/// How many readers of metrics may wait.
const MOST_SCRAPES: usize = 16;

/// Asks for Kueue's metrics as text.
pub(crate) type Scrape = oneshot::Sender<String>;

/// Whether the API server was told where objects are converted. It cuts all watches of a kind that it is told something new about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Announced {
    /// Nothing is served that it must know of.
    Nothing,
    /// Not yet.
    NotYet,
    /// As far as it is the business of one that does not lead.
    Standby,
    /// As far as it is that of the leader.
    Leader,
    /// Whoever leads.
    ForAll,
}

/// What `/healthz`, `/readyz` and `/metrics` tell. Clones share it.
#[derive(Clone, Debug)]
pub struct Health(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The kinds of which not all objects are known; `None` before the first look.
    unlisted: Mutex<Option<Vec<Kind>>>,
    leading: watch::Sender<bool>,
    announced: watch::Sender<Announced>,
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
            unlisted: Mutex::default(),
            leading: watch::channel(false).0,
            announced: watch::channel(Announced::Nothing).0,
            requests: Mutex::default(),
            scraper,
            scrapes: Mutex::new(Some(scrapes)),
            liveness: path(liveness),
            readiness: path(readiness),
        }))
    }

    pub(crate) fn set_unlisted(&self, kinds: Vec<Kind>) {
        *self.0.unlisted.lock().unwrap_or_else(PoisonError::into_inner) = Some(kinds);
    }

    pub(crate) fn set_leading(&self, leading: bool) {
        let changed = self.0.leading.send_if_modified(|known| std::mem::replace(known, leading) != leading);
        if changed && !leading {
            // Another may tell its own.
            self.0.announced.send_if_modified(|known| {
                let is_stale = *known == Announced::Leader;
                if is_stale {
                    *known = Announced::Standby;
                }
                is_stale
            });
        }
    }

    /// Whether this process acts, and when that changes.
    pub(crate) fn leading(&self) -> watch::Receiver<bool> {
        self.0.leading.subscribe()
    }

    /// How far the API server was told where objects are converted.
    pub(crate) fn announce(&self, announced: Announced) {
        self.0.announced.send_if_modified(|known| std::mem::replace(known, announced) != announced);
    }

    /// The same, and when that changes.
    pub(crate) fn announced(&self) -> watch::Receiver<Announced> {
        self.0.announced.subscribe()
    }

    /// Whether a watch that begins now is not cut by what the API server has yet to be told.
    pub(crate) fn may_watch(&self) -> bool {
        match *self.0.announced.borrow() {
            Announced::NotYet => false,
            Announced::Standby => !self.is_leading(),
            Announced::Nothing | Announced::Leader | Announced::ForAll => true,
        }
    }

    /// Counts a request to the API server by its method and the code of its answer; 0: there was none.
    pub(crate) fn count_request(&self, method: &str, code: u16) {
        let mut requests = self.0.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let counter = requests.entry((method.to_owned(), code)).or_insert(0);
        *counter = counter.saturating_add(1);
    }

    /// Whether all objects are known.
    pub fn is_synced(&self) -> bool {
        self.0.unlisted.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(Vec::is_empty)
    }

    /// What is waited for.
    fn waits_for(&self) -> String {
        let unlisted = self.0.unlisted.lock().unwrap_or_else(PoisonError::into_inner);
        let names: Vec<&str> = unlisted.iter().flatten().map(|kind| kind.as_str()).collect();
        if names.is_empty() {
            "nothing is known yet\n".to_owned()
        } else {
            format!("not listed yet: {}\n", names.join(", "))
        }
    }

    /// Whether this process acts.
    pub fn is_leading(&self) -> bool {
        *self.0.leading.borrow()
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
            path if *path == *self.0.readiness => Answer::text(StatusCode::SERVICE_UNAVAILABLE, self.waits_for()),
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
        health.set_unlisted(vec![Kind::Workload, Kind::Node]);
        assert_eq!(ask(&health, "/readyz"), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(health.waits_for(), "not listed yet: Workload, Node\n");
        health.set_unlisted(Vec::new());
        assert_eq!((ask(&health, "/readyz"), ask(&health, "/else")), (StatusCode::OK, StatusCode::NOT_FOUND));
    }

    #[test]
    fn watches_wait_for_what_the_api_server_is_told() {
        let health = Health::default();
        assert!(health.may_watch(), "nothing is served");
        health.announce(Announced::NotYet);
        assert!(!health.may_watch());
        health.announce(Announced::Standby);
        assert!(health.may_watch());
        health.set_leading(true);
        assert!(!health.may_watch(), "the leader tells its own");
        health.announce(Announced::Leader);
        assert!(health.may_watch());
        health.set_leading(false);
        health.set_leading(true);
        assert!(!health.may_watch(), "another may have led meanwhile");
        health.announce(Announced::ForAll);
        health.set_leading(false);
        assert!(health.may_watch());
    }

    #[test]
    fn probes_have_the_names_that_they_are_given() {
        let health = Health::new("live", "/ready");
        assert_eq!((ask(&health, "/live"), ask(&health, "/healthz")), (StatusCode::OK, StatusCode::NOT_FOUND));
        assert_eq!(ask(&health, "/ready"), StatusCode::SERVICE_UNAVAILABLE);
    }
}
