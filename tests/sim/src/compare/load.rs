//! Loads: what work comes at which time.

use std::time::Duration;

use crate::queue::{MILLI, SECOND, Time};
use crate::rng::Rng;

/// CPU time of one transaction of a steady load, in microseconds.
const TRANSACTION: u64 = 5 * MILLI;
/// How much slower an emulated or an old processor does the same work.
const SLOW: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// A database without clients: background writers, autovacuum, checkpoints, a monitoring query every 10 s.
    Idle,
    /// The same on a slow processor: eight times the work.
    IdleSlow,
    /// The same on a slow processor whose computer is busy: other programs take half of the time.
    IdleBusy,
    /// Transactions that come at random times and need 5 % of a CPU together.
    Steady5,
    /// The same with 20 % of a CPU.
    Steady20,
    /// The same with 60 % of a CPU.
    Steady60,
    /// 3 s of 80 % of a CPU every 30 s, 2 % in between.
    Bursts,
    /// A task that never waits, for 30 s of each minute.
    Step,
    /// From nothing to 90 % of a CPU in five minutes, and then for five minutes.
    Ramp,
    /// A day in 24 minutes: from 5 to 85 % of a CPU and back.
    Day,
}

impl Load {
    pub const ALL: [Self; 10] = [
        Self::Idle,
        Self::IdleSlow,
        Self::IdleBusy,
        Self::Steady5,
        Self::Steady20,
        Self::Steady60,
        Self::Bursts,
        Self::Step,
        Self::Ramp,
        Self::Day,
    ];

    /// Its name in reports and as an argument.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::IdleSlow => "idle-slow",
            Self::IdleBusy => "idle-busy",
            Self::Steady5 => "steady-5",
            Self::Steady20 => "steady-20",
            Self::Steady60 => "steady-60",
            Self::Bursts => "bursts",
            Self::Step => "step",
            Self::Ramp => "ramp",
            Self::Day => "day",
        }
    }

    pub const fn description(self) -> &'static str {
        match self {
            Self::Idle => "a database without clients, a monitoring query every 10 s",
            Self::IdleSlow => "the same on a processor that is 8 times slower",
            Self::IdleBusy => "the same on a slow processor that other programs take half of",
            Self::Steady5 => "transactions that need 5 % of a CPU",
            Self::Steady20 => "transactions that need 20 % of a CPU",
            Self::Steady60 => "transactions that need 60 % of a CPU",
            Self::Bursts => "80 % of a CPU for 3 s, every 30 s",
            Self::Step => "a task that never waits, for 30 s of each minute",
            Self::Ramp => "up to 90 % of a CPU within 5 min, then 5 min constant",
            Self::Day => "5 to 85 % of a CPU and back, a day in 24 min",
        }
    }

    /// How long it lasts by default.
    pub const fn length(self) -> Duration {
        let minutes = match self {
            Self::Idle | Self::IdleSlow | Self::IdleBusy => 30,
            Self::Steady5 | Self::Steady20 | Self::Steady60 | Self::Bursts => 15,
            Self::Step => 20,
            Self::Ramp => 10,
            Self::Day => 24,
        };
        Duration::from_secs(minutes * 60)
    }

    /// Share of the processor's time that other programs of the computer take, in percent.
    pub(super) const fn taken(self) -> u64 {
        match self {
            Self::IdleBusy => 50,
            _ => 0,
        }
    }

    /// CPUs that the work needs at `at`, on average.
    pub(super) fn rate(self, at: Time) -> f64 {
        let second = (at / SECOND) as f64;
        match self {
            Self::Idle => 0.005,
            Self::IdleSlow | Self::IdleBusy => 0.04,
            Self::Steady5 => 0.05,
            Self::Steady20 => 0.2,
            Self::Steady60 => 0.6,
            Self::Bursts if in_burst(at) => 0.8,
            Self::Bursts => 0.02,
            Self::Step => f64::from(u8::from(spins(at))),
            Self::Ramp => (second / 300.0).min(1.0) * 0.9,
            Self::Day => 0.05 + 0.8 * (1.0 - (second / 1440.0 * std::f64::consts::TAU).cos()) / 2.0,
        }
    }

    /// Tasks that never wait at `at`.
    pub(super) fn spinning(self, at: Time) -> u32 {
        u32::from(self == Self::Step && spins(at))
    }

    /// Work that comes within the millisecond at `at`, in microseconds of CPU time.
    pub(super) fn arrival(self, at: Time, rng: &mut Rng) -> Option<u64> {
        match self {
            Self::Idle => background(at, 1, rng),
            Self::IdleSlow | Self::IdleBusy => background(at, SLOW, rng),
            Self::Step => None,
            _ => {
                let chance = self.rate(at) * MILLI as f64 / TRANSACTION as f64;
                rng.chance(chance).then(|| rng.between(TRANSACTION / 2, TRANSACTION * 3 / 2))
            }
        }
    }
}

const fn in_burst(at: Time) -> bool {
    at % (30 * SECOND) >= 27 * SECOND
}

const fn spins(at: Time) -> bool {
    at % (60 * SECOND) >= 30 * SECOND
}

/// What a database does without clients. Times and amounts are those of PostgreSQL with its default settings: writers wake five
/// times a second, autovacuum starts a worker for each database in turn every minute, a checkpoint comes every five minutes.
fn background(at: Time, slow: u64, rng: &mut Rng) -> Option<u64> {
    let due = |every: Time, offset: Time| at % every == offset;
    let work = if due(300 * SECOND, 91 * SECOND) {
        rng.between(10 * MILLI, 20 * MILLI)
    } else if due(60 * SECOND, 17 * SECOND) {
        rng.between(5 * MILLI, 12 * MILLI)
    } else if due(10 * SECOND, 3 * SECOND) {
        rng.between(2 * MILLI, 8 * MILLI)
    } else if due(200 * MILLI, 0) {
        rng.between(50, 200)
    } else {
        return None;
    };
    Some(work * slow)
}
