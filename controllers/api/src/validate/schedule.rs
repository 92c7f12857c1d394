//! Daily windows of a pod autoscaler: sound each, and free of overlaps.

use std::collections::BTreeSet;

use crate::{
    field_error::Faults,
    pod_autoscaler::{DEFAULT_MIN_REPLICAS, PodAutoscalerSpec, Schedule},
    validate::is_dns_label,
};

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// Minutes since midnight of a strict `HH:MM`.
fn minute(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let part = |text: &str, limit: u16| {
        let digits = text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<u16>().ok().filter(|value| digits && *value < limit)
    };
    Some(part(hour, 24)? * 60 + part(minute, 60)?)
}

/// Minutes of a day.
const DAY: u16 = 24 * 60;

/// What a window is of one day: its days as bits, its first minute and the first after it.
struct Part<'a> {
    name: &'a str,
    days: u8,
    start: u16,
    end: u16,
}

impl<'a> Part<'a> {
    /// A window that ends before it starts ends on the next day, where it is a second part.
    fn from_name(name: &'a str, days: u8, start: u16, end: u16) -> Vec<Self> {
        if start < end {
            return vec![Self { name, days, start, end }];
        }
        let next = (days << 1 | days >> 6) & 0x7f;
        vec![Self { name, days, start, end: DAY }, Self { name, days: next, start: 0, end }]
    }

    fn overlaps(&self, other: &Self) -> bool {
        other.days & self.days != 0 && other.start < self.end && self.start < other.end
    }
}

pub(super) fn schedules(spec: &PodAutoscalerSpec, faults: &mut Faults) {
    let Some(schedules) = &spec.schedules else { return };
    faults.require(!schedules.is_empty(), "spec.schedules", "must not be empty; leave it out instead");
    let (mut names, mut parts) = (BTreeSet::new(), Vec::<Part<'_>>::new());
    let zone = |schedule: &Schedule| match schedule.timezone.as_str() {
        "" => "UTC".to_owned(),
        zone => zone.to_owned(),
    };
    let first_zone = schedules.first().map(zone).unwrap_or_default();
    for (index, schedule) in schedules.iter().enumerate() {
        let field = |name: &str| format!("spec.schedules[{index}].{name}");
        let name = &schedule.name;
        faults.require(
            is_dns_label(name),
            field("name"),
            format!("{name:?} must be lower-case letters, digits and inner hyphens"),
        );
        faults.require(names.insert(name), field("name"), format!("{name} is there twice; rename one"));
        faults.require(
            zone(schedule) == first_zone,
            field("timezone"),
            format!("{} differs from {first_zone} of the first window; use one time zone", zone(schedule)),
        );
        faults.require(
            is_zone(&zone(schedule)),
            field("timezone"),
            "must be an IANA time zone such as Europe/Berlin",
        );
        bounds(spec, schedule, index, faults);
        let days = days(schedule, index, faults);
        let (start, end) = (minute(&schedule.start_time), minute(&schedule.end_time));
        for (name, value, text) in
            [("startTime", start, &schedule.start_time), ("endTime", end, &schedule.end_time)]
        {
            faults.require(
                value.is_some(),
                field(name),
                format!("{text:?} must be HH:MM, from 00:00 to 23:59"),
            );
        }
        let (Some(start), Some(end)) = (start, end) else { continue };
        if start == end {
            let text = "must differ from startTime; a window that ends before it starts ends on the next day";
            faults.push(field("endTime"), text);
            continue;
        }
        let own = Part::from_name(name, days, start, end);
        if let Some(other) = parts.iter().find(|other| own.iter().any(|part| part.overlaps(other))) {
            faults.push(
                format!("spec.schedules[{index}]"),
                format!("overlaps {}; windows may touch but not overlap", other.name),
            );
        }
        parts.extend(own);
    }
}

/// The database of zones is not here; this refuses what cannot be a name in it. `Local` would mean the host's zone.
fn is_zone(zone: &str) -> bool {
    zone != "Local"
        && !zone.starts_with('/')
        && zone.chars().all(|c| c.is_ascii_alphanumeric() || "/_+-".contains(c))
}

fn bounds(spec: &PodAutoscalerSpec, schedule: &Schedule, index: usize, faults: &mut Faults) {
    let path = format!("spec.schedules[{index}]");
    faults.require(
        schedule.min_replicas.is_some() || schedule.max_replicas.is_some(),
        &path,
        "must set minReplicas, maxReplicas or both",
    );
    let min = schedule.min_replicas.or(spec.min_replicas).unwrap_or(DEFAULT_MIN_REPLICAS);
    let max = schedule.max_replicas.unwrap_or(spec.max_replicas);
    faults.require(min >= 0, format!("{path}.minReplicas"), format!("{min} must not be negative"));
    faults.require(max > 0, format!("{path}.maxReplicas"), format!("{max} must be above 0"));
    faults.require(
        min <= max,
        &path,
        format!("minReplicas {min} is above maxReplicas {max}; what a window leaves out comes from the spec"),
    );
}

/// The days as bits; all without a list.
fn days(schedule: &Schedule, index: usize, faults: &mut Faults) -> u8 {
    let Some(days) = &schedule.days_of_week else { return 0x7f };
    let path = format!("spec.schedules[{index}].daysOfWeek");
    faults.require(!days.is_empty(), &path, "must not be empty; leave it out for every day");
    let mut bits = 0;
    for day in days {
        match DAYS.iter().position(|name| name.eq_ignore_ascii_case(day)) {
            Some(position) => bits |= 1 << position,
            None => faults.push(&path, format!("{day:?} must be one of Mon, Tue, Wed, Thu, Fri, Sat, Sun")),
        }
    }
    bits
}
