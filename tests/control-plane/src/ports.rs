//! Free ports on loopback.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::error::{Error, Result};

/// Below the ports from which outgoing connections take theirs, so that a server can have its port again after a restart.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A port that nobody listens on. Each call gives another one; runs side by side begin at different places.
///
/// # Errors
/// If none is free.
pub fn free() -> Result<u16> {
    let start = u16::try_from(std::process::id() % u32::from(COUNT / 16)).unwrap_or(0).saturating_mul(16);
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let offset = (u32::from(start) + u32::from(step)) % u32::from(COUNT);
        let port = FIRST.saturating_add(u16::try_from(offset).unwrap_or(0));
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err(Error::new(format!("no port from {FIRST} to {} is free on 127.0.0.1", FIRST.saturating_add(COUNT))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice() {
        let ports: std::collections::BTreeSet<u16> = (0..50).map(|_| free().unwrap()).collect();
        assert_eq!(ports.len(), 50);
    }
}
