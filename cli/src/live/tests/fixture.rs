//! A fleet in which everything that the view shows happens.

use neonvm_types::agent_inspect::{Decision, GoalParts, VmInspect};
use neonvm_types::scheduler_inspect::ResourceView;
use neonvm_types::{Bytes, MilliCpu, Resources};

use crate::live::input::{
    Account, Change, Entry, Input, Key, Kind, Load, Millis, MoveFacts, NodeFacts, Origin, VmFacts,
};
use crate::live::model::Fleet;
use crate::live::series::STEP;

/// 2026-01-01T00:00:00Z.
pub(crate) const START: Millis = 1_767_225_600_000;

pub(crate) fn key(name: &str) -> Key {
    Key::new("default", name)
}

pub(crate) fn units(count: u16) -> Resources {
    Resources::new(MilliCpu::new(250), Bytes::gib(1)).saturating_mul(count)
}

pub(crate) fn vm(node: &str, size: u16) -> VmFacts {
    VmFacts {
        node: node.to_owned(),
        pod: format!("pod-{node}"),
        phase: "Running".to_owned(),
        running: true,
        scaled: true,
        size: units(size),
        requested: units(size),
        min: units(1),
        max: units(12),
        limited: String::new(),
    }
}

pub(crate) fn why(name: &str) -> VmInspect {
    VmInspect {
        name: name.to_owned(),
        namespace: "default".to_owned(),
        goal: Some(units(8)),
        permit: Some(units(5)),
        approved: Some(units(4)),
        compute_unit: units(1),
        min: units(1),
        max: units(12),
        load1: Some(1.02),
        memory_used_bytes: Some(940 << 20),
        cache_working_set_bytes: Some(310 << 20),
        metrics_age_seconds: Some(3.2),
        guest_protocol: Some("monitor v2.0".to_owned()),
        goal_parts: Some(GoalParts { cpu: Some(7.2), mem: Some(3.0), lfc: None }),
        state: "waiting: scheduler (next try 3.8s)".to_owned(),
        limit: Some("the scheduler permits 5 of 8 compute units: node n1 has no more CPU".to_owned()),
        decisions: vec![
            Decision {
                at: "2026-01-01T00:04:01.000Z".to_owned(),
                text: "goal 4, was 2".to_owned(),
                reason: None,
            },
            Decision {
                at: "2026-01-01T00:04:58.250Z".to_owned(),
                text: "requested 8, permitted 5".to_owned(),
                reason: Some("node full".to_owned()),
            },
        ],
        ..VmInspect::default()
    }
}

fn view(total: u64, watermark: u64, reserved: u64, capacity_pressure: u64) -> ResourceView {
    ResourceView { total, watermark, reserved, capacity_pressure, ..ResourceView::default() }
}

fn nodes(fleet: &mut Fleet) {
    let total = Resources::new(MilliCpu::new(4000), Bytes::gib(16));
    let node = |closed: Option<&str>| NodeFacts { total, closed: closed.map(str::to_owned) };
    let all = vec![
        ("n1".to_owned(), node(None)),
        ("n2".to_owned(), node(None)),
        ("n3".to_owned(), node(Some("cordoned"))),
    ];
    fleet.apply(START, Input::Nodes(Change::All(all)));
    let full = Account {
        cpu: view(4000, 3600, 3250, 750),
        memory: view(16 << 30, 14 << 30, 9 << 30, 0),
        note: Some(
            "0.75 CPU requested but not available; next: migrate pg to n2: it needs the most".to_owned(),
        ),
    };
    let half =
        Account { cpu: view(4000, 3600, 1500, 0), memory: view(16 << 30, 14 << 30, 6 << 30, 0), note: None };
    fleet.apply(START, Input::Accounts(vec![("n1".to_owned(), full), ("n2".to_owned(), half)]));
}

fn vms(fleet: &mut Fleet) {
    let stopped = VmFacts {
        running: false,
        phase: "Pending".to_owned(),
        node: String::new(),
        size: Resources::default(),
        ..vm("", 2)
    };
    let fixed =
        VmFacts { scaled: false, size: Resources::new(MilliCpu::new(500), Bytes::mib(512)), ..vm("n1", 2) };
    let all = [
        ("pg", vm("n1", 4)),
        ("web", vm("n2", 2)),
        ("cache", vm("n2", 3)),
        ("fixed", fixed),
        ("new", stopped),
    ];
    let all = all.map(|(name, facts)| (key(name), facts)).into();
    fleet.apply(START, Input::Vms(Change::All(all)));
}

/// Load of `pg` at a step: low, then rising, then all of its CPU.
fn load_at(step: u16) -> f64 {
    (f64::from(step) / 80.0 - 0.8).clamp(0.06, 0.98)
}

/// The fleet after five minutes.
pub(crate) fn fleet() -> Fleet {
    let mut fleet = Fleet::new("dev", Some("default".to_owned()));
    nodes(&mut fleet);
    vms(&mut fleet);
    let web = VmInspect {
        goal: Some(units(2)),
        state: "steady".to_owned(),
        limit: None,
        decisions: Vec::new(),
        ..why("web")
    };
    let stuck = VmInspect {
        goal: Some(units(3)),
        stuck: Some("monitor does not answer".to_owned()),
        decisions: Vec::new(),
        ..why("cache")
    };
    fleet.apply(START, Input::Agents(vec![why("pg"), web, stuck]));
    let mut now = START;
    for step in 0..150 {
        let load = |cpu: f64, memory: u64| {
            Ok(Load { cpu: Some(cpu), memory: Some(memory), steal: Some(0.0), throttled: Some(0.031) })
        };
        let loads = vec![
            (key("pg"), load(load_at(step), 3 << 30)),
            (key("web"), load(0.21, 700 << 20)),
            (key("cache"), load(0.05, 2900 << 20)),
            (key("fixed"), Err("cannot reach pod pod-n1: forbidden".to_owned())),
        ];
        now = START + Millis::from(step) * STEP;
        fleet.apply(now, Input::Loads(loads));
        fleet.tick(now);
    }
    happened(&mut fleet, now);
    fleet
}

fn happened(fleet: &mut Fleet, now: Millis) {
    let active = MoveFacts {
        vm: "web".to_owned(),
        source: "n2".to_owned(),
        target: "n3".to_owned(),
        phase: "Running".to_owned(),
        percent: Some(42),
        text: "iteration 3, 1.2Gi/s, dirty 80Mi/s".to_owned(),
        by: "scheduler".to_owned(),
        created: now - 4000,
        ..MoveFacts::default()
    };
    let ended = MoveFacts {
        vm: "cache".to_owned(),
        phase: "Failed".to_owned(),
        failed: true,
        text: "failed: the target had no room (NoRoom)".to_owned(),
        created: now - 90_000,
        ended: Some(now - 60_000),
        percent: Some(0),
        ..active.clone()
    };
    let long_ago = MoveFacts { ended: Some(now - 600_000), ..ended.clone() };
    let moves = vec![(key("web-1"), active), (key("cache-1"), ended), (key("cache-0"), long_ago)];
    fleet.apply(now, Input::Moves(Change::All(moves)));
    let entry = |at, id: &str, kind, vm: &str, text: &str| Entry {
        at,
        id: id.to_owned(),
        kind,
        vm: key(vm),
        text: text.to_owned(),
    };
    for one in [
        entry(now - 100_000, "a", Kind::Event, "web", "Created: created pod web-x7k2f"),
        entry(
            now - 20_000,
            "b",
            Kind::Warning,
            "cache",
            "MonitorSilent: the monitor has not answered for 30 s (x3)",
        ),
    ] {
        fleet.apply(now, Input::Event(one));
    }
    fleet.apply(
        now,
        Input::Trouble(
            Origin::Events,
            Some("events is forbidden; you need list and watch of events".to_owned()),
        ),
    );
}

/// A fleet with more of everything than fits.
pub(crate) fn many() -> Fleet {
    let mut fleet = fleet();
    for index in 0..195 {
        fleet.apply(
            START,
            Input::Vms(Change::Set(key(&format!("vm-{index}")), vm(&format!("node-{}", index % 20), 2))),
        );
    }
    for index in 0..20 {
        fleet.apply(START, Input::Nodes(Change::Set(format!("node-{index}"), NodeFacts::default())));
        let facts = MoveFacts { vm: format!("vm-{index}"), ..MoveFacts::default() };
        fleet.apply(START, Input::Moves(Change::Set(key(&format!("m{index}")), facts)));
    }
    fleet
}
