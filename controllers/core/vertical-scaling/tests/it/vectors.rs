//! The numbers of §7.1 to §7.3.

use neonvm_api::{ScalingConfig, UserMetric};
use neonvm_core_vertical_scaling::agent::{
    Event, LfcMetrics, Settings, SystemMetrics, Warning,
    evidence::Coupling,
    goal::{self, Goal, Inputs},
    lfc,
    settings::Config,
    units,
    usage::CpuNeed,
};
use neonvm_types::Resources;

use crate::dsl::{CU, Play, cu, load, res, settings, vm};

const SERIES: [f64; 20] = [
    0.0, 15000.0, 30000.0, 40000.0, 50000.0, 150_000.0, 175_000.0, 180_000.0, 185_000.0, 190_000.0,
    250_000.0, 300_000.0, 350_000.0, 375_000.0, 400_000.0, 415_000.0, 425_000.0, 430_000.0, 435_000.0,
    435_000.0,
];

fn with_lfc() -> Settings {
    let mut settings = settings();
    settings.defaults.enable_lfc_metrics = Some(true);
    settings.defaults.lfc_min_wait_before_downscale_minutes = Some(5);
    settings
}

fn lfc_series() -> Event {
    Event::LfcMetrics(LfcMetrics { windows: SERIES.to_vec(), ..LfcMetrics::default() })
}

/// A VM with limits of 1 to 4 units whose current size the scheduler has permitted.
fn at(using: Resources, settings: Settings) -> Play {
    let mut play = Play::new(vm(cu(1), cu(4), using), settings);
    play.connect(neonvm_types::version::MonitorProtoVersion::V1_0);
    play.ask();
    play.permit(using);
    play
}

fn goal_of(play: &mut Play) -> Resources {
    let _ = play.next();
    play.state.view(play.now).goal
}

#[test]
fn desired_resources() {
    let mut play = at(cu(1), settings());
    play.metrics(load(0.3));
    assert_eq!(goal_of(&mut play), cu(2), "basic scale-up");

    for (lfc, system, warn, want) in [(true, true, false, 3), (false, true, true, 2), (true, false, true, 3)]
    {
        let mut play = at(cu(1), with_lfc());
        if lfc {
            play.event(lfc_series());
        }
        if system {
            play.metrics(load(if lfc { 0.0 } else { 0.3 }));
        }
        assert_eq!(goal_of(&mut play), cu(want), "lfc {lfc}, system {system}");
        assert_eq!(play.next().warnings.contains(&Warning::IncompleteMetrics), warn);
    }

    let mut play = at(res(750, 5), with_lfc());
    play.metrics(load(0.3));
    assert_eq!(goal_of(&mut play), res(750, 4), "bounds hold without metrics");
    play.warns(&Warning::IncompleteMetrics);
}

#[test]
fn mismatched_sizes_after_a_denial() {
    let mut play = at(res(250, 2), settings());
    play.metrics(load(0.0));
    play.due("W5.0 M-250m/2Gi>1");
    play.ask_down();
    play.denies();
    assert_eq!(goal_of(&mut play), res(500, 2), "no scale-down, and whole units");
    assert!(!play.next().warnings.contains(&Warning::AboveMaximumByDenial));

    // A v2.0 monitor, so that the first question goes below the maximum.
    let mut play = at(res(1000, 5), settings());
    play.metrics(load(1.0));
    play.ask_down();
    play.denies();
    assert_eq!(goal_of(&mut play), res(1000, 5), "history #512, #515: above the maximum by denial");
    play.warns(&Warning::AboveMaximumByDenial);
}

#[test]
fn largest_window() {
    let mut settings = with_lfc();
    settings.defaults.lfc_use_largest_window = Some(true);
    let mut play = Play::cus(1, 8, 1, settings);
    play.metrics(load(0.0));
    play.event(lfc_series());
    assert_eq!(goal_of(&mut play), cu(5));
}

fn config(change: impl Fn(&mut ScalingConfig)) -> Config {
    let mut settings = settings();
    change(&mut settings.defaults);
    settings.config_for(&vm(cu(1), cu(4), cu(1)))
}

#[test]
fn cpu_part() {
    for (load1, load5, target, stable, mixed, units) in [
        (0.2, 0.0, 1.0, 0.0, 0.0, 0.8),
        (1.0, 0.0, 1.0, 0.0, 0.0, 4.0),
        (0.7, 0.0, 1.0, 0.5, 0.0, 2.8),
        (1.0, 0.7, 1.0, 0.5, 0.0, 2.8),
        (1.75, 1.0, 1.0, 0.5, 0.5, 5.499_997_000_006),
        (0.3, 0.0, 0.5, 0.0, 0.0, 2.4),
        (0.3375, 0.0, 0.9, 0.0, 0.0, 1.5),
        (2.0, 1.0, 0.9, 0.25, 0.15, 8.8889),
        (1.3, 1.0, 0.9, 0.25, 0.15, 4.88889),
        (1.2, 1.0, 0.9, 0.25, 0.15, 4.4444),
    ] {
        let config = config(|c| {
            c.load_average_fraction_target = Some(target);
            c.cpu_stable_zone_ratio = Some(stable);
            c.cpu_mixed_zone_ratio = Some(mixed);
        });
        let got = goal::cpu_units(load1, load5, &config, CU);
        assert!((got - units).abs() < 1e-4, "load1 {load1}, load5 {load5}: {got}, not {units}");
    }
}

/// Inputs without any metric, for a guest without amounts.
fn inputs<'a>() -> Inputs<'a> {
    Inputs {
        system: None,
        lfc: None,
        user: None,
        usage: CpuNeed::Unknown,
        coupling: Coupling::Units,
        asked: CU,
        min: CU,
    }
}

fn goal_from(system: SystemMetrics, config: &Config) -> Goal {
    goal::goal(Inputs { system: Some(&system), ..inputs() }, config, CU)
}

/// History #421: the load target was off by the factor of CPUs to units.
#[test]
fn issue_421_cpu_part_is_rounded_to_units_of_a_quarter_cpu() {
    for (load1, target, units) in [(0.3, 0.5, 2), (0.3375, 0.9, 2), (1.0, 1.0, 4), (4.0, 1.0, 16)] {
        let config = config(|c| c.load_average_fraction_target = Some(target));
        assert_eq!(goal_from(load(load1), &config).units, units, "load {load1}");
    }
}

#[test]
fn memory_part() {
    let mib = 1_048_576.0;
    for (usage, target, units, ceil) in [
        (12_345_678.0, 0.5, 0.0230, 1),
        (150_589_570.0, 0.5, 0.2805, 1),
        (768.0 * mib, 0.75, 1.0, 1),
        (768.0 * mib + 1.0, 0.75, 1.0, 2),
    ] {
        let config = config(|c| c.memory_usage_fraction_target = Some(target));
        let goal = goal_from(SystemMetrics { memory_usage_bytes: usage, ..load(0.0) }, &config);
        assert!((goal.parts.mem.unwrap() - units).abs() < 1e-4, "{usage}: {:?}", goal.parts.mem);
        assert_eq!(goal.units, ceil, "{usage}");
    }
    for (cached, units) in [(3.0, 3.8889), (0.5, 2.2222)] {
        let gib = 1024.0 * mib;
        let system =
            SystemMetrics { memory_usage_bytes: 1.5 * gib, memory_cached_bytes: cached * gib, ..load(0.0) };
        let got = goal::mem_units(
            &system,
            Some(2.0 * gib),
            &config(|c| c.memory_usage_fraction_target = Some(0.9)),
            CU,
        );
        assert!((got - units).abs() < 1e-4, "{got}, not {units}");
        assert_eq!(units::ceil_units(got), units::ceil_units(units));
    }
}

#[test]
fn missing_parts_are_missing() {
    let on = config(|c| c.enable_lfc_metrics = Some(true));
    let nothing = goal::goal(inputs(), &on, CU);
    assert_eq!((nothing.units, nothing.complete), (0, false));
    let system = goal_from(load(0.3), &on);
    assert!(system.parts.cpu.is_some() && system.parts.mem.is_some() && system.parts.lfc.is_none());
    assert!(!system.complete);
}

#[test]
fn working_set_estimate() {
    let tenths = |range: std::ops::RangeInclusive<u32>| range.map(|v| f64::from(v) / 10.0);
    let flat: Vec<f64> = tenths(1..=10).chain([1.0; 5]).chain(tenths(11..=20)).collect();
    assert_eq!(lfc::estimate(&flat, 2.0, 9, 5), Some(1.0));
    let early: Vec<f64> = [0.1, 0.2, 0.3, 0.3, 0.3, 0.3].into_iter().chain(tenths(3..=11)).collect();
    assert_eq!(lfc::estimate(&early, 2.0, 9, 5), Some(1.1));
}

#[test]
fn working_set_projection() {
    for (series, factor, projected) in [
        (vec![0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0], 0.5, 1.05),
        (vec![0.0, 0.3, 0.5, 0.6], 2.0, 0.9),
        (vec![0.0, 1.0, 3.0, 4.0, 5.0], 3.0, 9.0),
    ] {
        let got = lfc::project(&series, factor);
        assert!((got - projected).abs() < 1e-9, "{series:?}: {got}");
    }
}

#[test]
fn working_set_of_the_whole_series() {
    let config = config(|c| c.lfc_min_wait_before_downscale_minutes = Some(5));
    let bytes = lfc::working_set_bytes(&SERIES, &config).unwrap();
    assert!((bytes - 200_000.0 * 8192.0).abs() < 1e-6);
    assert_eq!(lfc::working_set_bytes(&SERIES[..8], &config), None, "one value too few");
}

#[test]
fn user_metric() {
    let config = config(|_| {});
    let metric = UserMetric { name: "queue".into(), target: 8.0 };
    for (value, units, complete) in [(Some(0.0), 0, true), (Some(17.0), 3, true), (None, 0, false)] {
        let system = SystemMetrics { user: value, ..load(0.0) };
        let goal = goal::goal(Inputs { system: Some(&system), user: Some(&metric), ..inputs() }, &config, CU);
        assert_eq!((goal.units, goal.complete), (units, complete), "{value:?}");
    }
}
