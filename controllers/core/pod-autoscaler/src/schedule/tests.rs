use super::*;

fn schedule(name: &str, zone: &str, days: Option<&[&str]>, from: &str, to: &str) -> Schedule {
    Schedule {
        name: name.to_owned(),
        timezone: zone.to_owned(),
        days_of_week: days.map(|days| days.iter().map(|day| (*day).to_owned()).collect()),
        start_time: from.to_owned(),
        end_time: to.to_owned(),
        min_replicas: Some(3),
        max_replicas: Some(12),
    }
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn minutes(from: &str, schedules: &Schedules) -> Option<i64> {
    let next = schedules.next_transition(at(from))?;
    Some(next.duration_since(at(from)).as_secs() / 60)
}

#[test]
fn office_hours_in_shanghai() {
    let days = ["mon", "TUE", "Wed"];
    let all = Schedules::read(&[schedule("office", "Asia/Shanghai", Some(&days), "09:00", "18:00")]).unwrap();
    let bounds = all.bounds(at("2026-08-03T02:00:00Z"), 1, 10);
    assert_eq!(
        (bounds.min, bounds.max, bounds.schedule.as_deref(), bounds.explicit_min),
        (3, 12, Some("office"), true)
    );
    // The end is not part of it.
    let bounds = all.bounds(at("2026-08-03T10:00:00Z"), 1, 10);
    assert_eq!((bounds.min, bounds.max, bounds.schedule), (1, 10, None));
    assert_eq!(all.bounds(at("2026-08-06T02:00:00Z"), 1, 10).schedule, None);
}

#[test]
fn utc_every_day_and_what_is_left_out_comes_from_the_object() {
    let mut window = schedule("morning", "", None, "09:00", "10:00");
    (window.min_replicas, window.max_replicas) = (Some(2), None);
    let all = Schedules::read(&[window]).unwrap();
    let bounds = all.bounds(at("2026-08-01T09:30:00Z"), 1, 10);
    assert_eq!((bounds.min, bounds.max), (2, 10));
    assert_eq!(all.bounds(at("2026-08-01T09:00:00Z"), 1, 10).min, 2);
    assert_eq!(all.bounds(at("2026-08-01T10:00:00Z"), 1, 10).min, 1);
}

#[test]
fn the_next_transition_is_found() {
    let all = Schedules::read(&[schedule("a", "", None, "09:00", "18:00")]).unwrap();
    assert_eq!(minutes("2026-08-01T08:30:00Z", &all), Some(30));
    assert_eq!(minutes("2026-08-01T09:30:00Z", &all), Some(8 * 60 + 30));
    let sunday = Schedules::read(&[schedule("a", "", Some(&["sun"]), "09:00", "18:00")]).unwrap();
    // From a Sunday evening to the next Sunday morning.
    assert_eq!(minutes("2026-08-02T18:00:00Z", &sunday), Some((6 * 24 + 15) * 60));
    assert_eq!(Schedules::default().next_transition(at("2026-08-02T18:00:00Z")), None);
    // Windows that touch: another one comes into force, not none.
    let both = [schedule("a", "", None, "09:00", "10:00"), schedule("b", "", None, "10:00", "11:00")];
    let all = Schedules::read(&both).unwrap();
    assert_eq!(minutes("2026-08-01T09:30:00Z", &all), Some(30));
    assert_eq!(minutes("2026-08-01T10:30:00Z", &all), Some(30));
}

/// On 29 March 2026 clocks in Berlin go from 02:00 to 03:00, on 25 October from 03:00 back to 02:00.
#[test]
fn days_on_which_clocks_change() {
    let berlin = |from, to| Schedules::read(&[schedule("a", "Europe/Berlin", None, from, to)]).unwrap();
    let day = berlin("01:00", "09:00");
    // An hour less: 01:00 is 00:00Z, 09:00 is 07:00Z.
    assert_eq!(minutes("2026-03-29T00:30:00Z", &day), Some(6 * 60 + 30));
    assert_eq!(minutes("2026-03-28T00:30:00Z", &day), Some(7 * 60 + 30));
    // An hour more.
    assert_eq!(minutes("2026-10-25T00:30:00Z", &day), Some(7 * 60 + 30));
    // A window within the hour that is left out is never active; one that begins in it begins when clocks are set.
    let gap = berlin("02:15", "02:45");
    assert_eq!(gap.next_transition(at("2026-03-29T00:30:00Z")), Some(at("2026-03-30T00:15:00Z")));
    let begins = berlin("02:30", "05:00");
    assert_eq!(begins.next_transition(at("2026-03-29T00:30:00Z")), Some(at("2026-03-29T01:00:00Z")));
    // A window within the hour that is shown twice is active twice.
    let twice = berlin("02:15", "02:45");
    let mut now = at("2026-10-24T23:59:00Z");
    let mut seen = Vec::new();
    for _ in 0..4 {
        now = twice.next_transition(now).unwrap();
        seen.push(now.to_string());
    }
    let expected =
        ["2026-10-25T00:15:00Z", "2026-10-25T00:45:00Z", "2026-10-25T01:15:00Z", "2026-10-25T01:45:00Z"];
    assert_eq!(seen, expected);
}

#[test]
fn a_window_over_midnight_belongs_to_the_day_it_starts_on() {
    let friday = Schedules::read(&[schedule("night", "", Some(&["fri"]), "22:00", "06:00")]).unwrap();
    let active = |text: &str| friday.bounds(at(text), 1, 10).schedule.is_some();
    // 31 July 2026 is a Friday.
    for (time, wanted) in [
        ("2026-07-31T05:59:00Z", false),
        ("2026-07-31T21:59:59Z", false),
        ("2026-07-31T22:00:00Z", true),
        ("2026-08-01T00:00:00Z", true),
        ("2026-08-01T05:59:59Z", true),
        ("2026-08-01T06:00:00Z", false),
        ("2026-08-01T22:00:00Z", false),
    ] {
        assert_eq!(active(time), wanted, "{time}");
    }
    assert_eq!(minutes("2026-07-31T21:30:00Z", &friday), Some(30));
    assert_eq!(minutes("2026-07-31T23:00:00Z", &friday), Some(7 * 60));
    assert_eq!(minutes("2026-08-01T06:00:00Z", &friday), Some((6 * 24 + 16) * 60));
    // From Sunday into Monday, and to the very end of a day.
    let sunday = Schedules::read(&[schedule("a", "", Some(&["sun"]), "22:00", "00:30")]).unwrap();
    assert_eq!(sunday.bounds(at("2026-08-03T00:29:00Z"), 1, 10).schedule.as_deref(), Some("a"));
    assert_eq!(sunday.bounds(at("2026-08-02T00:29:00Z"), 1, 10).schedule, None);
    let late = Schedules::read(&[schedule("a", "", None, "22:00", "00:00")]).unwrap();
    assert_eq!(minutes("2026-08-01T22:30:00Z", &late), Some(90));
    assert_eq!(late.bounds(at("2026-08-01T00:00:00Z"), 1, 10).schedule, None);
}

#[test]
fn nights_in_which_clocks_change() {
    let berlin = |from, to| Schedules::read(&[schedule("a", "Europe/Berlin", None, from, to)]).unwrap();
    let night = berlin("22:00", "06:00");
    // The night to 29 March has seven hours, the one to 25 October nine.
    assert_eq!(minutes("2026-03-28T21:00:00Z", &night), Some(7 * 60));
    assert_eq!(minutes("2026-10-24T20:00:00Z", &night), Some(9 * 60));
    assert_eq!(minutes("2026-08-01T20:00:00Z", &night), Some(8 * 60));
    // One that ends in the hour that is left out ends when clocks are set; in the hour that is shown twice it ends twice.
    let gap = berlin("22:00", "02:30");
    assert_eq!(gap.next_transition(at("2026-03-28T21:00:00Z")), Some(at("2026-03-29T01:00:00Z")));
    let mut now = at("2026-10-24T20:00:00Z");
    let mut seen = Vec::new();
    for _ in 0..3 {
        now = gap.next_transition(now).unwrap();
        seen.push(now.to_string());
    }
    assert_eq!(seen, ["2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z"]);
}

#[test]
fn zones_must_exist() {
    let faults = Schedules::read(&[schedule("a", "Europe/Atlantis", None, "09:00", "18:00")]).unwrap_err();
    assert_eq!(faults[0].path, "spec.schedules[0].timezone");
    assert!(Schedules::read(&[schedule("a", "America/Argentina/Ushuaia", None, "09:00", "18:00")]).is_ok());
}
