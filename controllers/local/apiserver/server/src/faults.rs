//! Fault switches for tests: what a cluster does to its clients on a bad day, on request.
//!
//! Off unless the server is started with them; then each is set by a `PUT` to `/chaos/<name>?value=…` by a cluster
//! administrator.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use neonvm_apiserver_engine::request::{Query, Target};

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
    /// Revision that lists are served at; 0 for the newest.
    stale_list: AtomicU64,
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
            "stale-list" => &self.stale_list,
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

    /// What the query of a list becomes that is to be stale: one for the exact state of the revision the switch was set
    /// to. Lists that request a certain version, or continue with a page, are left alone; so is all else.
    pub fn stale_query(&self, path: &str, query: &str) -> Option<String> {
        let revision = self.stale_list.load(Ordering::Relaxed);
        if !self.is_enabled() || revision == 0 {
            return None;
        }
        let target = Target::parse(path)?;
        let asked = Query::parse(query);
        let any_version = matches!(asked.text("resourceVersion"), "" | "0");
        let list = target.name.is_empty() && !asked.flag("watch") && asked.text("continue").is_empty();
        if !list || !any_version {
            return None;
        }
        let rest = query.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("resourceVersion"));
        let stale = [format!("resourceVersion={revision}"), "resourceVersionMatch=Exact".to_owned()];
        Some(rest.map(str::to_owned).chain(stale).collect::<Vec<_>>().join("&"))
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

    #[test]
    fn only_lists_of_any_version_become_stale() {
        let on = Faults::enabled();
        let path = "/api/v1/namespaces/default/pods";
        assert_eq!(on.stale_query(path, ""), None);
        on.set("stale-list", 7);
        let stale = |path: &str, query: &str| on.stale_query(path, query);
        assert_eq!(stale(path, "").as_deref(), Some("resourceVersion=7&resourceVersionMatch=Exact"));
        assert_eq!(
            stale(path, "limit=5&resourceVersion=0").as_deref(),
            Some("limit=5&resourceVersion=7&resourceVersionMatch=Exact")
        );
        assert_eq!(stale(path, "resourceVersion=3"), None);
        assert_eq!(stale(path, "watch=1"), None);
        assert_eq!(stale("/api/v1/namespaces/default/pods/a", ""), None);
        assert_eq!(stale("/version", ""), None);
    }
}
