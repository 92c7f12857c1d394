//! Usage of VMs over time, as events to bill by.
//!
//! Upstream rounds each window to whole seconds and forgets what was not sent at its end. Here what rounding leaves over is
//! carried into the next window, and the last window is closed at shutdown.

mod window;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::{self, Timestamp};
use serde::Serialize;

pub(crate) use window::bill;

/// The account of a usage: UID of the VM, and the endpoint that is billed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Account {
    pub(crate) uid: String,
    pub(crate) endpoint: String,
}

/// What a VM uses now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) account: Account,
    pub(crate) cpu_milli: u32,
}

/// Sums of one account, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    /// CPU-milliseconds, in thousandths of a CPU second times 1000.
    cpu: u128,
    /// Active milliseconds.
    active: u128,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Event {
    pub(crate) idempotency_key: String,
    pub(crate) metric: String,
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    pub(crate) endpoint_id: String,
    pub(crate) start_time: String,
    pub(crate) stop_time: String,
    pub(crate) value: u64,
}

/// Names of the two metrics.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub(crate) cpu: String,
    pub(crate) active: String,
    /// Part of the idempotency key.
    pub(crate) host: String,
}

/// What was used since the last events.
#[derive(Debug)]
pub(crate) struct Ledger {
    names: Names,
    /// What each VM used at the last look, and when that was (monotonic).
    last: BTreeMap<Account, u32>,
    looked: Duration,
    sums: BTreeMap<Account, Sum>,
    since: Timestamp,
}

/// Thousandths of a CPU times milliseconds in one CPU second.
const CPU_SECOND: u128 = 1_000_000;
/// Milliseconds in a second.
const SECOND: u128 = 1_000;

impl Ledger {
    pub(crate) fn new(names: Names, now: Duration, wall: Timestamp) -> Self {
        Self { names, last: BTreeMap::new(), looked: now, sums: BTreeMap::new(), since: wall }
    }

    /// Takes a sample of what is used now. A VM is charged for the time since the last sample with the smaller of both
    /// sizes, and only if it was present both times.
    pub(crate) fn look(&mut self, now: Duration, usages: impl IntoIterator<Item = Usage>) {
        let millis = now.saturating_sub(self.looked).as_millis();
        self.looked = self.looked.max(now);
        let seen: BTreeMap<Account, u32> =
            usages.into_iter().map(|usage| (usage.account, usage.cpu_milli)).collect();
        for (account, cpu) in &seen {
            let Some(before) = self.last.get(account) else { continue };
            let sum = self.sums.entry(account.clone()).or_default();
            sum.cpu = sum.cpu.saturating_add(u128::from(*before.min(cpu)).saturating_mul(millis));
            sum.active = sum.active.saturating_add(millis);
        }
        self.last = seen;
    }

    /// Closes the window: two events for each account that was active.
    pub(crate) fn close(&mut self, wall: Timestamp) -> Vec<Event> {
        let (start, stop) = (self.since.to_string(), wall.to_string());
        let key = key_time(wall);
        let total = self.sums.len().saturating_mul(2);
        let mut events = Vec::with_capacity(total);
        for (account, sum) in &mut self.sums {
            for (name, amount, unit) in
                [(&self.names.cpu, &mut sum.cpu, CPU_SECOND), (&self.names.active, &mut sum.active, SECOND)]
            {
                let whole = *amount / unit;
                *amount -= whole * unit;
                events.push(Event {
                    idempotency_key: format!("{key}-{}-{}/{total}", self.names.host, events.len() + 1),
                    metric: name.clone(),
                    kind: "incremental",
                    endpoint_id: account.endpoint.clone(),
                    start_time: start.clone(),
                    stop_time: stop.clone(),
                    value: u64::try_from(whole).unwrap_or(u64::MAX),
                });
            }
        }
        // Only remainders of accounts that are still there are kept: no account stays for ever.
        let last = &self.last;
        self.sums.retain(|account, _| last.contains_key(account));
        self.since = wall;
        events
    }
}

/// UTC with up to six decimals, without trailing zeros.
fn key_time(wall: Timestamp) -> String {
    let micros = wall.round(jiff::Unit::Microsecond).unwrap_or(wall);
    micros.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        let names = Names { cpu: "cpu".into(), active: "active".into(), host: "h".into() };
        Ledger::new(names, Duration::ZERO, wall("2024-07-01T11:59:36.1Z"))
    }

    fn wall(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn usage(uid: &str, cpu_milli: u32) -> Usage {
        Usage { account: Account { uid: uid.into(), endpoint: format!("ep-{uid}") }, cpu_milli }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn events_are_as_specified() {
        let mut ledger = ledger();
        ledger.look(at(0), [usage("x", 500)]);
        ledger.look(at(24), [usage("x", 500)]);
        let events = ledger.close(wall("2024-07-01T12:00:00.12345Z"));
        assert_eq!(
            serde_json::to_string(&events[0]).unwrap(),
            r#"{"idempotency_key":"2024-07-01T12:00:00.12345Z-h-1/2","metric":"cpu","type":"incremental","endpoint_id":"ep-x","start_time":"2024-07-01T11:59:36.1Z","stop_time":"2024-07-01T12:00:00.12345Z","value":12}"#
        );
        assert_eq!((events[1].metric.as_str(), events[1].value), ("active", 24));
    }

    #[test]
    fn the_smaller_size_counts_and_only_between_two_looks() {
        let mut ledger = ledger();
        ledger.look(at(0), [usage("a", 1000), usage("gone", 1000)]);
        ledger.look(at(4), [usage("a", 250), usage("new", 4000)]);
        ledger.look(at(8), [usage("a", 2000), usage("new", 4000)]);
        let events = ledger.close(wall("2024-07-01T12:00:00Z"));
        let shown: Vec<_> =
            events.iter().map(|e| (e.endpoint_id.as_str(), e.metric.as_str(), e.value)).collect();
        assert_eq!(
            shown,
            [("ep-a", "cpu", 2), ("ep-a", "active", 8), ("ep-new", "cpu", 16), ("ep-new", "active", 4)]
        );
    }

    /// Upstream rounds each window (defect 31): a quarter of a CPU over windows of 5 s is 1.25 s each.
    #[test]
    fn what_rounding_leaves_over_is_not_lost() {
        let mut ledger = ledger();
        let mut billed = 0;
        ledger.look(at(0), [usage("a", 250)]);
        for window in 1..=4 {
            ledger.look(at(window * 5), [usage("a", 250)]);
            billed += ledger.close(wall("2024-07-01T12:00:00Z"))[0].value;
        }
        assert_eq!(billed, 5);
    }

    #[test]
    fn nothing_is_kept_of_accounts_that_are_gone() {
        let mut ledger = ledger();
        ledger.look(at(0), [usage("a", 250)]);
        ledger.look(at(1), [usage("a", 250)]);
        ledger.look(at(2), []);
        assert_eq!(ledger.close(wall("2024-07-01T12:00:00Z")).len(), 2);
        assert!(ledger.close(wall("2024-07-01T12:00:01Z")).is_empty() && ledger.sums.is_empty());
    }
}
