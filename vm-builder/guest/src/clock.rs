//! Keeps the clock of this machine with the clock of its host, through the PTP device that KVM offers.

pub mod servo;

use std::fs::File;
use std::os::fd::AsFd as _;
use std::time::Duration;

use clock_steering::unix::UnixClock;
use clock_steering::{Clock as _, TimeOffset};
use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};
use servo::{Action, Servo};

use crate::log::of_daemon as log;

const DEVICE: &str = "/dev/ptp0";
/// The last wait for it; all of them together take twice as long.
const LONGEST_WAIT: Duration = Duration::from_secs(16);
/// Readings of which the one that took least is used.
const READINGS: usize = 5;
/// Failures in a row after which the clock is left alone.
const PATIENCE: u32 = 10;

/// Follows the host's clock for ever; returns if there is none or it cannot be followed.
pub async fn keep() {
    let device = match open().await {
        Ok(device) => device,
        Err(error) => return log(&format!("the clock runs free: {DEVICE}: {error}")),
    };
    let clock = UnixClock::CLOCK_REALTIME;
    if let Err(error) = clock.disable_kernel_ntp_algorithm() {
        return log(&format!("the clock runs free: {error}"));
    }
    let mut servo = Servo::new(clock.get_frequency().unwrap_or_default());
    let mut failures = 0;
    loop {
        let applied = offset(&device).and_then(|offset| {
            let verdict = servo.observe(offset);
            apply(clock, verdict.action)?;
            Ok(verdict.poll)
        });
        let wait = match applied {
            Ok(wait) => {
                failures = 0;
                wait
            }
            Err(error) => {
                failures += 1;
                if failures >= PATIENCE {
                    return log(&format!("the clock runs free from now on: {error}"));
                }
                servo::LONGEST_POLL
            }
        };
        tokio::time::sleep(wait).await;
    }
}

/// The device; its driver may still be loading while we start.
async fn open() -> std::io::Result<File> {
    let mut wait = Duration::from_secs(1);
    loop {
        match File::open(DEVICE) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && wait <= LONGEST_WAIT => {
                tokio::time::sleep(wait).await;
                wait *= 2;
            }
            result => return result,
        }
    }
}

fn apply(clock: UnixClock, action: Action) -> std::io::Result<()> {
    match action {
        Action::Step(offset) => {
            log(&format!("the clock is stepped by {} ms", offset / 1_000_000));
            let seconds = offset.div_euclid(1_000_000_000);
            let nanos = u32::try_from(offset.rem_euclid(1_000_000_000)).unwrap_or_default();
            clock.step_clock(TimeOffset { seconds, nanos })?;
        }
        Action::Slew(parts_per_million) => {
            clock.set_frequency(parts_per_million)?;
        }
    }
    Ok(())
}

/// How far the host is ahead, in nanoseconds: the device is read between two readings of our clock.
fn offset(device: &File) -> std::io::Result<i64> {
    let mut best: Option<(i128, i128)> = None;
    for _ in 0..READINGS {
        let before = nanoseconds(clock_gettime(ClockId::Realtime));
        let host = nanoseconds(clock_gettime_dynamic(DynamicClockId::Dynamic(device.as_fd()))?);
        let after = nanoseconds(clock_gettime(ClockId::Realtime));
        let (took, offset) = (after - before, host - (before + after) / 2);
        if best.is_none_or(|(least, _)| took < least) {
            best = Some((took, offset));
        }
    }
    let (_, offset) = best.unwrap_or_default();
    Ok(i64::try_from(offset).unwrap_or(if offset < 0 { i64::MIN } else { i64::MAX }))
}

fn nanoseconds(time: Timespec) -> i128 {
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}

/// Waiting times of the servo are whole seconds; shorter ones would wake an idle machine for nothing.
const _: () = assert!(servo::SHORTEST_POLL.as_nanos() >= Duration::from_secs(1).as_nanos());
