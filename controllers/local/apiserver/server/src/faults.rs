//! Fault switches for tests: what a cluster does to its clients on a bad day, on request.
//!
//! Off unless the server is started with them; then each is set by a `PUT` to `/chaos/<name>?value=…` by a cluster
//! administrator.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};

/// The switches. Counters give how many of the next events are hit.
#[derive(Debug, Default)]
pub struct Faults {
    enabled: AtomicBool,
    /// Milliseconds that watch events are held back.
    delay_watch: AtomicU64,
    /// Watch chunks sent twice.
    duplicate_watch: AtomicU64,
    /// Watch streams cut instead of sending a chunk.
    drop_watch: AtomicU64,
    /// Requests answered with `status`.
    fail: AtomicU64,
    /// 409, 429 or 500.
    status: AtomicU64,
    /// Writes that are done and then not answered: the connection is closed.
    lose_response: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injection {
    Normal,
    Refused(u16),
    /// Done, but the answer is lost.
    Lost,
}

fn take(counter: &AtomicU64) -> bool {
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
}

impl Faults {
    pub fn enabled() -> Self {
        Self { enabled: AtomicBool::new(true), ..Self::default() }
    }

    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// Sets a switch; false if there is none of that name.
    pub fn set(&self, name: &str, value: u64) -> bool {
        let switch = match name {
            "delay-watch" => &self.delay_watch,
            "duplicate-watch" => &self.duplicate_watch,
            "drop-watch" => &self.drop_watch,
            "fail" => &self.fail,
            "status" => &self.status,
            "lose-response" => &self.lose_response,
            _ => return false,
        };
        switch.store(value, Ordering::Relaxed);
        true
    }

    /// The fault to inject into the next request.
    pub fn next(&self, write: bool) -> Injection {
        if !self.is_enabled() {
            return Injection::Normal;
        }
        if take(&self.fail) {
            let status = u16::try_from(self.status.load(Ordering::Relaxed)).unwrap_or(500);
            return Injection::Refused(if matches!(status, 409 | 429) { status } else { 500 });
        }
        if write && take(&self.lose_response) { Injection::Lost } else { Injection::Normal }
    }

    /// What becomes of a chunk of watch events; `None` cuts the stream.
    pub async fn watch_lines(&self, lines: Bytes) -> Option<Bytes> {
        if !self.is_enabled() {
            return Some(lines);
        }
        let delay = self.delay_watch.load(Ordering::Relaxed);
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        if take(&self.drop_watch) {
            return None;
        }
        if take(&self.duplicate_watch) {
            let mut twice = BytesMut::from(lines.as_ref());
            twice.extend_from_slice(&lines);
            return Some(twice.freeze());
        }
        Some(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_do_nothing_unless_enabled() {
        let off = Faults::default();
        assert!(off.set("fail", 5));
        assert_eq!(off.next(true), Injection::Normal);
        assert!(!off.set("no-such-switch", 1));
    }

    #[test]
    fn counters_run_out() {
        let on = Faults::enabled();
        on.set("status", 409);
        on.set("fail", 1);
        on.set("lose-response", 1);
        assert_eq!(on.next(true), Injection::Refused(409));
        assert_eq!(on.next(false), Injection::Normal);
        assert_eq!(on.next(true), Injection::Lost);
        assert_eq!(on.next(true), Injection::Normal);
    }
}
