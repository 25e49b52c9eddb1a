//! Whether the process is well, and what it counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use http::StatusCode;

use crate::http_server::{Answer, Asked};

/// What `/healthz`, `/readyz` and `/metrics` tell. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    synced: AtomicBool,
    leading: AtomicBool,
    writes: AtomicU64,
    failed: AtomicU64,
}

impl Health {
    pub(crate) fn set_synced(&self, synced: bool) {
        self.0.synced.store(synced, Ordering::Relaxed);
    }

    pub(crate) fn set_leading(&self, leading: bool) {
        self.0.leading.store(leading, Ordering::Relaxed);
    }

    pub(crate) fn count_write(&self, succeeded: bool) {
        let counter = if succeeded { &self.0.writes } else { &self.0.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether all objects are known.
    pub fn is_synced(&self) -> bool {
        self.0.synced.load(Ordering::Relaxed)
    }

    /// Whether this process acts.
    pub fn is_leading(&self) -> bool {
        self.0.leading.load(Ordering::Relaxed)
    }

    /// Writes that succeeded, and that did not.
    pub fn writes(&self) -> (u64, u64) {
        (self.0.writes.load(Ordering::Relaxed), self.0.failed.load(Ordering::Relaxed))
    }

    /// Answers probes.
    pub(crate) fn probe(&self, asked: &Asked) -> Answer {
        match asked.path.as_str() {
            "/healthz" => Answer::text(StatusCode::OK, "ok\n"),
            "/readyz" if self.is_synced() => Answer::text(StatusCode::OK, "ok\n"),
            "/readyz" => Answer::text(StatusCode::SERVICE_UNAVAILABLE, "not all objects are known yet\n"),
            other => Answer::text(StatusCode::NOT_FOUND, format!("nothing is served at {other}\n")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_only_when_synced() {
        let health = Health::default();
        let ask = |path: &str| {
            let asked = Asked { method: http::Method::GET, path: path.to_owned(), body: "".into() };
            health.probe(&asked).status
        };
        assert_eq!((ask("/healthz"), ask("/readyz")), (StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE));
        health.set_synced(true);
        assert_eq!((ask("/readyz"), ask("/else")), (StatusCode::OK, StatusCode::NOT_FOUND));
    }
}
