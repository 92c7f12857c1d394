//! Whether a VM is stuck, what limits it, and its current activity.
//!
//! Stuck means that a peer does not do its part for long. A denial is an answer: it limits a VM, but does not make it
//! stuck. What is stuck is also recovered: by deadlines, retries and a new connection, not from here.

use std::time::Duration;

use neonvm_types::agent_inspect::FailedRequests;

use crate::agent::{
    counter::RecentCounter, desired::Desired, monitor_peer::Kind, plugin::MOST_BACKOFF,
    settings::FailureRate, state::State, units::Size,
};

/// A time as people read it: `3.8s`.
fn seconds(time: Duration) -> String {
    format!("{:.1}s", time.as_secs_f64())
}

fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

/// The longest time from one failure to the next of a request that is still wanted.
fn longest(wait: Duration, reply: Duration) -> Duration {
    wait.saturating_mul(MOST_BACKOFF).saturating_add(reply)
}

/// How a peer's requests failed.
struct Failures<'a> {
    name: &'static str,
    counter: &'a RecentCounter,
    in_a_row: u32,
    last: Option<Duration>,
    again_within: Duration,
    rate: FailureRate,
    error: &'a str,
}

impl Failures<'_> {
    fn stuck(&self, now: Duration) -> Option<String> {
        let Self { name, rate, .. } = self;
        // A request that succeeded shows that the peer does its part again.
        let recovered = self.in_a_row == 0;
        let count = if recovered { 0 } else { self.counter.count(now) };
        if u32::try_from(count).is_ok_and(|count| count > rate.threshold) {
            let interval = rate.interval.as_secs();
            return Some(format!("{name} failed {count} times within {interval}s{}", because(self.error)));
        }
        // Retries grow rarer, so many in a row may be few within the interval. If the request were still needed, it would have
        // been repeated by then: after that, old failures are irrelevant.
        let lasts = self.again_within.max(rate.interval);
        let current = self.last.is_some_and(|at| now <= at.saturating_add(lasts));
        (current && self.in_a_row > rate.threshold)
            .then(|| format!("{name} failed {} times in a row{}", self.in_a_row, because(self.error)))
    }
}

impl State {
    /// What a peer fails to do for long; `None` if all do their part.
    #[must_use]
    pub fn stuck(&self, now: Duration) -> Option<String> {
        let now = now.max(self.clock);
        if self.vm.paused {
            // Of the guest nothing is expected; of the other peers it is.
            return self.failing(now);
        }
        self.monitor_missing(now)
            .or_else(|| self.failing(now))
            .or_else(|| self.resize_overdue(now))
            .or_else(|| self.migration_missing(now))
            .or_else(|| self.metrics_missing(now))
    }

    /// Requests that failed within the interval of each peer.
    pub(super) fn failed(&self, now: Duration) -> FailedRequests {
        let count = |counter: &RecentCounter| u64::try_from(counter.count(now)).unwrap_or(u64::MAX);
        FailedRequests {
            scheduler: count(&self.plugin_failures),
            monitor: count(&self.monitor_failures),
            patch: count(&self.neonvm_failures),
        }
    }

    fn monitor_missing(&self, now: Duration) -> Option<String> {
        if let Some(connection) = self.monitor.connection {
            let silent = now.saturating_sub(connection.last_contact);
            let late = silent > self.settings.monitor_unhealthy;
            return late.then(|| format!("monitor silent for {}", seconds(silent)));
        }
        let without = now.saturating_sub(self.monitor.since);
        let late = without > self.settings.monitor_startup_grace;
        if late && self.monitor.suspended {
            return Some(format!("suspended by the informant for {}", seconds(without)));
        }
        late.then(|| format!("no monitor for {}{}", seconds(without), because(&self.monitor.reason)))
    }

    fn failing(&self, now: Duration) -> Option<String> {
        let settings = &self.settings;
        let (plugin, monitor, machine) = (&self.plugin, &self.monitor, &self.machine);
        let peers = [
            Failures {
                name: "scheduler",
                counter: &self.plugin_failures,
                in_a_row: plugin.failures,
                last: plugin.failed_at,
                again_within: longest(settings.plugin_retry_wait, settings.plugin_reply_deadline),
                rate: settings.plugin_failures,
                error: &plugin.error,
            },
            Failures {
                name: "monitor",
                counter: &self.monitor_failures,
                in_a_row: monitor.failures,
                last: monitor.asking.map(|asking| asking.since).max(monitor.failed_at()),
                again_within: longest(settings.monitor_retry_wait, settings.monitor_reply_deadline),
                rate: settings.monitor_failures,
                error: &monitor.reason,
            },
            Failures {
                name: "VM patch",
                counter: &self.neonvm_failures,
                in_a_row: machine.failures,
                last: machine.failed_at,
                again_within: longest(settings.neonvm_retry_wait, settings.neonvm_reply_deadline),
                rate: settings.neonvm_failures,
                error: &machine.error,
            },
        ];
        peers.iter().find_map(|peer| peer.stuck(now))
    }

    fn resize_overdue(&self, now: Duration) -> Option<String> {
        let (since, _) = self.machine.differs_since?;
        let elapsed = now.saturating_sub(since);
        let (has, asked) = (self.size(self.machine.now), self.size(self.machine.asked));
        (elapsed >= self.settings.resize_deadline)
            .then(|| format!("VM reports {has} although {asked} was asked {} ago", seconds(elapsed)))
    }

    fn migration_missing(&self, now: Duration) -> Option<String> {
        let elapsed = seconds(self.announced_in_vain(now)?);
        Some(format!("scheduler announces a migration for {elapsed}, and none begins"))
    }

    fn metrics_missing(&self, now: Duration) -> Option<String> {
        let last = self.known.system.as_ref().map_or(self.found_at, |(at, _)| (*at).max(self.found_at));
        let age = now.saturating_sub(last);
        (age >= self.settings.metrics_lost_after)
            .then(|| format!("no metrics for {}{}", seconds(age), because(&self.known.error)))
    }

    /// What keeps the VM at its size although no component fails.
    pub(super) fn limit(&self, now: Duration, desired: &Desired) -> Option<String> {
        if let Some(words) = &self.vm.suspended {
            return Some(format!("the VM is suspended {words}: the size stays"));
        }
        if self.vm.paused {
            return Some("the VM is paused: the size stays until it is resumed".to_owned());
        }
        if let Some(since) = self.announced_since() {
            let elapsed = seconds(now.saturating_sub(since));
            return Some(format!("scheduler announces a migration for {elapsed}: the size stays"));
        }
        if let Some((_, requested)) = self.plugin.denied() {
            let permit = self.size(self.plugin.permit.unwrap_or(requested));
            return Some(format!("scheduler permits {permit} of {}", self.size(requested)));
        }
        if let Some(denied) = self.monitor.denied.filter(|denied| now < denied.until) {
            let size = self.size(denied.requested);
            return Some(format!("monitor denies {size}{}", because(&self.monitor.reason)));
        }
        let (goal, range) = (self.goal(now), self.range());
        if goal.evidence.coupling.size(goal.evidence.grow, &range).any_greater(range.max) {
            return Some(format!("upper bound {}, goal {}", self.size(range.max), goal.units));
        }
        desired.why.words().map(str::to_owned)
    }

    /// The current activity, in words.
    pub(super) fn activity(&self, now: Duration, desired: &Desired) -> String {
        if let Some(words) = &self.vm.suspended {
            return format!("suspended {words}");
        }
        if self.vm.paused {
            return "paused".to_owned();
        }
        if self.announced.is_some() && self.machine.certain {
            return "waiting: migration".to_owned();
        }
        let next = |until: Duration| format!("next try {}", seconds(until.saturating_sub(now)));
        let waiting = |until: Option<Duration>| until.filter(|until| now < *until);
        let more = self.plugin.permit.is_none_or(|permit| desired.size.any_greater(permit));
        let to = |size| self.size(size);
        if self.monitor.suspended {
            return "suspended: the informant has another agent".to_owned();
        }
        if !self.machine.certain {
            return "waiting: VM status older than its spec".to_owned();
        }
        if let Some(asking) = self.plugin.asking.filter(|asking| asking.held != Some(asking.target)) {
            return format!("asking scheduler for {}", to(asking.target));
        }
        if let Some(until) = waiting(self.plugin.failed_until(&self.settings)) {
            return format!("waiting: scheduler failed ({})", next(until));
        }
        if let Some(until) = waiting(self.plugin.denied_until(&self.settings)).filter(|_| more) {
            return format!("waiting: scheduler ({})", next(until));
        }
        if let Some(patching) = self.machine.patching {
            return format!("setting VM to {}", to(patching.target));
        }
        if let Some(until) = waiting(self.machine.failed_until(&self.settings)) {
            return format!("waiting: patch failed ({})", next(until));
        }
        self.activity_of_guest(now, desired)
    }

    fn activity_of_guest(&self, now: Duration, desired: &Desired) -> String {
        let size = |amount| -> Size { self.size(amount) };
        if let Some(asking) = self.monitor.asking {
            let what = if asking.kind == Kind::Upscale { "notifying monitor" } else { "asking monitor for" };
            return format!("{what} {}", size(asking.target));
        }
        if !self.machine.has_arrived() {
            return format!("VM goes from {} to {}", size(self.machine.now), size(self.machine.asked));
        }
        if let Some(denied) = self.monitor.denied.filter(|denied| now < denied.until) {
            let left = seconds(denied.until.saturating_sub(now));
            return format!("waiting: monitor denied {} (next try {left})", size(denied.requested));
        }
        if self.monitor.connection.is_none() {
            return "waiting: monitor connection".to_owned();
        }
        if self.hold(now).is_some() {
            return format!("held at {}", size(desired.size));
        }
        if self.known.system.is_none() {
            return "waiting: metrics".to_owned();
        }
        if desired.size == self.machine.asked { "steady".to_owned() } else { "scaling".to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_success_ends_what_many_failures_showed() {
        let interval = Duration::from_secs(120);
        let mut counter = RecentCounter::new(interval, 100);
        for second in 0..6 {
            counter.increment(Duration::from_secs(second));
        }
        let stuck = |in_a_row: u32, at: u64| {
            let failures = Failures {
                name: "scheduler",
                counter: &counter,
                in_a_row,
                last: Some(Duration::from_secs(5)),
                again_within: Duration::from_secs(10),
                rate: FailureRate { interval, threshold: 3 },
                error: "refused",
            };
            failures.stuck(Duration::from_secs(at))
        };
        assert_eq!(stuck(6, 6).as_deref(), Some("scheduler failed 6 times within 120s: refused"));
        assert_eq!(stuck(0, 7), None, "a request has succeeded");
        assert_eq!(stuck(6, 200), None, "nothing was requested since");
    }
}
