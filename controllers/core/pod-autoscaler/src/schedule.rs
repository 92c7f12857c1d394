//! Bounds by the time of day, in a time zone.
//!
//! A window is active while clocks in its zone show a time in it. So on the day that an hour is shown twice, a window
//! within that hour is active twice, and on the day that an hour is left out it may not be active at all. One that ends
//! before it starts ends on the next day, and belongs to the day on which it starts.

use jiff::{
    Timestamp, ToSpan,
    civil::{DateTime, Time},
    tz::{TimeZone, TimeZoneDatabase},
};
use neonvm_api::{FieldError, pod_autoscaler::Schedule};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bounds {
    /// Fewest replicas.
    pub min: i32,
    /// Most replicas.
    pub max: i32,
    /// The window they come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// Whether that window sets the lower bound itself; then a workload at zero is woken.
    pub explicit_min: bool,
}

impl Bounds {
    /// A number of replicas pushed into the bounds. The upper one wins if they cross.
    #[must_use]
    pub fn clamp(&self, replicas: i32) -> i32 {
        replicas.max(self.min).min(self.max)
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Window {
    name: String,
    /// Monday is the lowest bit.
    days: u8,
    start: Time,
    end: Time,
    min: Option<i32>,
    max: Option<i32>,
}

impl Window {
    /// Whether it is active when clocks show this time on this day of the week, which is 0 on a Monday.
    fn covers(&self, day: u32, time: Time) -> bool {
        let is_of = |day: u32| (u32::from(self.days) >> (day % 7)) & 1 == 1;
        let (begun, over) = (self.start <= time, self.end <= time);
        if self.start <= self.end {
            is_of(day) && begun && !over
        } else {
            // Since this day, or still since the day before.
            (is_of(day) && begun) || (is_of(day + 6) && !over)
        }
    }
}

/// Windows of the day with separate bounds, all in one zone.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedules {
    zone: TimeZone,
    windows: Vec<Window>,
}

impl Default for Schedules {
    fn default() -> Self {
        Self { zone: TimeZone::UTC, windows: Vec::new() }
    }
}

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// A strict `HH:MM`.
fn time(text: &str) -> Option<Time> {
    let (hour, minute) = text.split_once(':')?;
    let part = |text: &str| {
        let digits = text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<i8>().ok().filter(|_| digits)
    };
    Time::new(part(hour)?, part(minute)?, 0, 0).ok()
}

fn days(names: Option<&[String]>) -> Option<u8> {
    let Some(names) = names else { return Some(0x7f) };
    names.iter().try_fold(0u8, |bits, name| {
        let day = DAYS.iter().position(|day| day.eq_ignore_ascii_case(name))?;
        Some(bits | 1u8.checked_shl(u32::try_from(day).ok()?)?)
    })
}

impl Schedules {
    /// Reads the windows of an object that is valid otherwise. The database of zones is part of the program.
    ///
    /// # Errors
    /// Zones that are not in the database, and windows that cannot be read.
    pub fn read(schedules: &[Schedule]) -> Result<Self, Vec<FieldError>> {
        let mut all = Self::default();
        let mut faults = Vec::new();
        for (index, schedule) in schedules.iter().enumerate() {
            let fault = |field: &str, message: String| FieldError {
                path: format!("spec.schedules[{index}]{field}"),
                message,
            };
            if !schedule.timezone.is_empty() && schedule.timezone != "UTC" {
                match TimeZoneDatabase::bundled().get(&schedule.timezone) {
                    Ok(zone) => all.zone = zone,
                    Err(_) => {
                        let text = format!(
                            "{:?} is not an IANA time zone; write for example Europe/Berlin",
                            schedule.timezone
                        );
                        faults.push(fault(".timezone", text));
                    }
                }
            }
            let parts = (
                time(&schedule.start_time),
                time(&schedule.end_time),
                days(schedule.days_of_week.as_deref()),
            );
            let (Some(start), Some(end), Some(days)) = parts else {
                faults.push(fault("", "days or times cannot be read".to_owned()));
                continue;
            };
            let (name, min, max) = (schedule.name.clone(), schedule.min_replicas, schedule.max_replicas);
            all.windows.push(Window { name, days, start, end, min, max });
        }
        if faults.is_empty() { Ok(all) } else { Err(faults) }
    }

    fn active(&self, now: Timestamp) -> Option<&Window> {
        let local = now.to_zoned(self.zone.clone());
        let day = u32::try_from(local.weekday().to_monday_zero_offset()).ok()?;
        self.windows.iter().find(|window| window.covers(day, local.time()))
    }

    /// The bounds in force: those of the active window, and `min` and `max` for what it leaves open.
    #[must_use]
    pub fn bounds(&self, now: Timestamp, min: i32, max: i32) -> Bounds {
        let Some(window) = self.active(now) else {
            return Bounds { min, max, schedule: None, explicit_min: false };
        };
        Bounds {
            min: window.min.unwrap_or(min),
            max: window.max.unwrap_or(max),
            schedule: Some(window.name.clone()),
            explicit_min: window.min.is_some(),
        }
    }

    /// When another window, or none, comes into force; `None` if that is never within eight days.
    #[must_use]
    pub fn next_transition(&self, now: Timestamp) -> Option<Timestamp> {
        if self.windows.is_empty() {
            return None;
        }
        let today = now.to_zoned(self.zone.clone()).date();
        let mut candidates: Vec<Timestamp> = Vec::new();
        for ahead in 0..=8i64 {
            let Ok(date) = today.checked_add(ahead.days()) else { break };
            for window in &self.windows {
                for time in [window.start, window.end] {
                    self.instants(date.to_datetime(time), &mut candidates);
                }
            }
        }
        // Where clocks are set, a window may begin or end without its time being shown.
        if let Some(shift) = self.zone.following(now).next() {
            candidates.push(shift.timestamp());
        }
        let current = self.active(now).map(|window| &window.name);
        candidates.retain(|at| *at > now && self.active(*at).map(|window| &window.name) != current);
        candidates.into_iter().min()
    }

    /// The one or two moments at which clocks show this time.
    fn instants(&self, at: DateTime, found: &mut Vec<Timestamp>) {
        let moment = self.zone.to_ambiguous_timestamp(at);
        found.extend(moment.earlier());
        found.extend(moment.later());
    }
}

#[cfg(test)]
mod tests;
