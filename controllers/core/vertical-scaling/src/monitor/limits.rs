//! Memory limits of the workload's control group: how large they are, when they are raised, and how long the workload stands
//! still while memory is requested.
//!
//! The kernel slows a group down above `memory.high` and kills in it above `memory.max`. A group that reaches `memory.high`
//! is frozen for a moment while more is requested; after that the limit is raised in small steps, so that the group is slow
//! and not stopped. While the agent may still answer, the steps end at half of the buffer: the other half keeps the kernel
//! from killing before the memory is there.

use std::time::Duration;

use neonvm_types::guest::MemoryLimits;

use super::formula::mib;

/// Distance of `memory.high` from what is available, and what must stay free below it after a downscale. Bytes.
pub const LIMIT_BUFFER: u64 = 100 << 20;
/// How long the group stands still at most for one request.
pub const FREEZE_LONGEST: Duration = Duration::from_millis(20);
/// Shortest time between the beginnings of two freezes.
pub const FREEZE_INTERVAL: Duration = Duration::from_secs(1);
/// By how much `memory.high` is raised at a time, in bytes.
pub const RAISE_STEP: u64 = 10 << 20;
/// Shortest time between two steps.
pub const RAISE_INTERVAL: Duration = Duration::from_millis(25);
/// How long an agent may need to answer a request with memory.
pub const ANSWER_LONGEST: Duration = Duration::from_secs(10);
/// Pressure that was not seen for so long is over.
const PRESSED_LONGEST: Duration = Duration::from_secs(1);
/// Limits are multiples of it, so that the kernel keeps them as they are whatever its page size is. Bytes.
const GRAIN: u64 = 64 << 10;

/// Limits of a control group, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitValues {
    /// `memory.high`.
    pub high: u64,
    /// `memory.max`, if it is set.
    pub max: Option<u64>,
}

/// What follows for the control group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitChange {
    pub set: Option<LimitValues>,
    /// Whether the group is to have no limits any more.
    pub lift: bool,
    /// Whether the group is to be frozen. It must be thawed at [`Limits::thaw_at`].
    pub freeze: bool,
    /// Whether the group is to be thawed.
    pub thaw: bool,
}

/// The limits of one control group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    mode: MemoryLimits,
    /// What the group may use, in bytes; none before it is known.
    available: Option<u64>,
    /// What `memory.high` was raised by, in bytes.
    raised: u64,
    thaw_at: Option<Duration>,
    frozen_at: Option<Duration>,
    raised_at: Option<Duration>,
    /// Since when a request has had no answer.
    waits_since: Option<Duration>,
    pressed_at: Option<Duration>,
}

impl Limits {
    /// Without limits until the size is known.
    #[must_use]
    pub fn new(mode: MemoryLimits) -> Self {
        Self { mode, ..Self::default() }
    }

    /// Goes on in another mode; the limits of the new one follow with the next [`resize`](Self::resize).
    pub fn switch(&mut self, mode: MemoryLimits) -> LimitChange {
        if self.mode == mode {
            return LimitChange::default();
        }
        let (thaw, lift) = (self.thaw(), self.available.is_some());
        *self = Self { mode, frozen_at: self.frozen_at, ..Self::default() };
        LimitChange { lift, thaw, ..LimitChange::default() }
    }

    /// When a frozen group must be thawed. `None`: it is not frozen.
    #[must_use]
    pub fn thaw_at(&self) -> Option<Duration> {
        self.thaw_at
    }

    /// Whether the group was at `memory.high` a moment ago.
    #[must_use]
    pub fn is_pressed(&self, now: Duration) -> bool {
        self.pressed_at.is_some_and(|at| now.saturating_sub(at) < PRESSED_LONGEST)
    }

    /// The group may use `available` bytes and uses `current`. It gets less only by consent or because the kernel has less:
    /// `may_shrink`.
    pub fn resize(&mut self, available: u64, current: u64, may_shrink: bool) -> LimitChange {
        let before = self.available;
        if self.mode == MemoryLimits::Off
            || before == Some(available)
            || before.is_some_and(|before| available < before) && !may_shrink
        {
            return LimitChange::default();
        }
        let high = before.map_or(0, |before| high(before).saturating_add(self.raised));
        let grows = before.is_none_or(|before| available > before);
        // A larger size never has a lower limit than the one in force.
        self.raised = if grows { high.saturating_sub(self::high(available)) } else { 0 };
        self.available = Some(available);
        self.waits_since = None;
        let thaw = grows && self.thaw();
        LimitChange { set: self.values(current), thaw, ..LimitChange::default() }
    }

    /// The group, which uses `current` bytes, reached `memory.high`. `connected`: an agent can be sent a request.
    pub fn press(&mut self, now: Duration, current: u64, connected: bool) -> LimitChange {
        if self.mode == MemoryLimits::Off || self.available.is_none() {
            return LimitChange::default();
        }
        if self.pressed_at.is_none_or(|at| now.saturating_sub(at) >= ANSWER_LONGEST) {
            self.waits_since = None;
        }
        self.pressed_at = Some(now);
        if self.thaw_at.is_some() {
            return LimitChange::default();
        }
        let past = |at: Option<Duration>, pause| at.is_none_or(|at| now.saturating_sub(at) >= pause);
        if connected && past(self.frozen_at, FREEZE_INTERVAL) {
            self.frozen_at = Some(now);
            self.thaw_at = Some(now.saturating_add(FREEZE_LONGEST));
            self.waits_since.get_or_insert(now);
            return LimitChange { freeze: true, ..LimitChange::default() };
        }
        if !past(self.raised_at, RAISE_INTERVAL) {
            return LimitChange::default();
        }
        let since = *self.waits_since.get_or_insert(now);
        let awaited = connected && now.saturating_sub(since) < ANSWER_LONGEST;
        let most = if awaited { LIMIT_BUFFER / 2 } else { u64::MAX };
        let raised = self.raised.saturating_add(RAISE_STEP).min(most).max(self.raised);
        if raised == self.raised {
            return LimitChange::default();
        }
        (self.raised, self.raised_at) = (raised, Some(now));
        LimitChange { set: self.values(current), ..LimitChange::default() }
    }

    /// Time has passed; whether the group is to be thawed.
    pub fn elapse(&mut self, now: Duration) -> bool {
        self.thaw_at.is_some_and(|at| at <= now) && self.thaw()
    }

    /// What the group may use, in bytes. `None` before it is known.
    #[must_use]
    pub fn available(&self) -> Option<u64> {
        self.available
    }

    /// The answer came, or none will; whether the group is to be thawed.
    pub fn release(&mut self) -> bool {
        self.waits_since = None;
        self.thaw()
    }

    /// Why the group must not get `available` bytes while it uses `current`; `None` for `current`: it cannot be read.
    ///
    /// # Errors
    /// The reason, for people.
    pub fn consent(&self, available: u64, current: Option<u64>) -> Result<(), String> {
        if self.mode == MemoryLimits::Off {
            return Ok(());
        }
        let Some(current) = current else {
            return Err("memory: the use of the control group cannot be read".to_owned());
        };
        let limit = high(available);
        if limit < current.saturating_add(LIMIT_BUFFER) {
            let (used, buffer, limit) = (mib(current), mib(LIMIT_BUFFER), mib(limit));
            return Err(format!(
                "memory: the control group uses {used}; with {buffer} to spare that exceeds its limit of {limit}"
            ));
        }
        Ok(())
    }

    fn values(&self, current: u64) -> Option<LimitValues> {
        let available = self.available.filter(|_| self.mode != MemoryLimits::Off)?;
        let high = high(available).saturating_add(self.raised);
        // A limit below what is in use would have the kernel kill at once.
        let max = available.max(current.saturating_add(RAISE_STEP)) / GRAIN * GRAIN;
        Some(match self.mode {
            MemoryLimits::HighAndMax => LimitValues { high: high.min(max), max: Some(max) },
            _ => LimitValues { high, max: None },
        })
    }

    fn thaw(&mut self) -> bool {
        self.thaw_at.take().is_some()
    }
}

/// `memory.high` for what is available, both in bytes: the buffer less, but never less than half.
fn high(available: u64) -> u64 {
    available.saturating_sub(LIMIT_BUFFER).max(available / 2) / GRAIN * GRAIN
}
