//! Answers of upstream's agent at its commit a4bce09e, recorded from its own code with drawn inputs on and off the grid of the
//! compute unit. Sizes are thousandths of a CPU and mebibytes, times are milliseconds.

use std::time::Duration;

use neonvm_api::ScalingConfig;
use neonvm_api::VmInfo;
use neonvm_api::vm_info::{VmConfig, VmCpuInfo, VmMemInfo};
use neonvm_core_vertical_scaling::agent::{
    ActionSet, Event, LfcMetrics, PluginAnswer, Settings, SystemMetrics, Verdict, Vm,
    evidence::Coupling,
    goal::{self, Inputs},
    monitor_peer::Kind,
    usage::CpuNeed,
};
use neonvm_types::version::MonitorProtoVersion;
use neonvm_types::{Bytes, MilliCpu, Resources};
use serde::Deserialize;

use crate::dsl::{Play, secs, settings};

type Size = (u32, u64);

fn size((cpu, mib): Size) -> Resources {
    Resources::new(MilliCpu::new(cpu), Bytes::new(mib << 20))
}

fn of(size: Resources) -> Size {
    assert!(size.mem.is_multiple_of(Bytes::mib(1)));
    (size.vcpus.milli(), size.mem.get() >> 20)
}

#[derive(Deserialize)]
struct Shape {
    unit: Size,
    slot: u64,
    min: Size,
    max: Size,
    using: Size,
}

impl Shape {
    fn vm(&self) -> Vm {
        let slots = |size: Size| u16::try_from(size.1 / self.slot).unwrap();
        let cpu = |size: Size| MilliCpu::new(size.0);
        let info = VmInfo {
            name: "vm".into(),
            namespace: "default".into(),
            cpu: VmCpuInfo { min: cpu(self.min), max: cpu(self.max), r#use: cpu(self.using) },
            mem: VmMemInfo {
                min: slots(self.min),
                max: slots(self.max),
                r#use: slots(self.using),
                slot_size: Bytes::new(self.slot << 20),
            },
            config: VmConfig { scaling_enabled: true, ..VmConfig::default() },
            current_revision: None,
        };
        Vm { observed: Some(size(self.using)), ..Vm::new(info) }
    }

    fn play(&self, defaults: ScalingConfig) -> Play {
        // Upstream never takes metrics for too old.
        let of_unit =
            Settings { compute_unit: size(self.unit), metrics_stale_after: secs(1e6), ..settings() };
        Play::new(self.vm(), Settings { defaults, ..of_unit })
    }
}

#[derive(Deserialize)]
struct GoalRow {
    #[serde(flatten)]
    shape: Shape,
    config: ScalingConfig,
    /// Load of one and of five minutes, memory in use and cached.
    system: Option<(f64, f64, f64, f64)>,
    lfc: Option<Vec<f64>>,
    result: GoalResult,
}

#[derive(Deserialize)]
struct GoalResult {
    units: u32,
    complete: bool,
    cpu: Option<f64>,
    mem: Option<f64>,
    lfc: Option<f64>,
    size: Size,
}

#[test]
fn goals_are_those_of_upstream() {
    let rows: Vec<GoalRow> = serde_json::from_str(include_str!("upstream/goals.json")).unwrap();
    assert_eq!(rows.len(), 160);
    for (index, row) in rows.iter().enumerate() {
        let system = row.system.map(|(load1, load5, used, cached)| SystemMetrics {
            load1,
            load5,
            memory_usage_bytes: used,
            memory_cached_bytes: cached,
            ..SystemMetrics::default()
        });
        let lfc = row.lfc.clone().map(|windows| LfcMetrics { windows, ..LfcMetrics::default() });
        let mut play = row.shape.play(row.config);
        let inputs = Inputs {
            system: system.as_ref(),
            lfc: lfc.as_ref(),
            user: None,
            usage: CpuNeed::Unknown,
            coupling: Coupling::Units,
            asked: size(row.shape.using),
            min: size(row.shape.min),
        };
        let settings = Settings { defaults: row.config, ..settings() };
        let got = goal::goal(inputs, &settings.config_for(&row.shape.vm()), size(row.shape.unit));
        let (want, parts) = (&row.result, got.parts);
        assert_eq!((got.units, got.complete), (want.units, want.complete), "row {index}");
        for (part, got, want) in
            [("cpu", parts.cpu, want.cpu), ("mem", parts.mem, want.mem), ("lfc", parts.lfc, want.lfc)]
        {
            let same = match (got, want) {
                (Some(got), Some(want)) => (got - want).abs() <= want.abs() * 1e-9,
                (got, want) => got.is_none() && want.is_none(),
            };
            assert!(same, "row {index}, {part}: {got:?}, not {want:?}");
        }
        let events = system.map(Event::SystemMetrics).into_iter().chain(lfc.map(Event::LfcMetrics));
        events.for_each(|event| drop(play.event(event)));
        let _ = play.next();
        assert_eq!(of(play.state.view(play.now).goal), want.size, "row {index}: the size");
    }
}

#[derive(Deserialize)]
struct Flow {
    #[serde(flatten)]
    shape: Shape,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    at: u64,
    /// Load and memory in use.
    metrics: Option<(f64, f64)>,
    /// Whether the monitor requests more memory.
    #[serde(default)]
    requested: bool,
    due: Due,
    /// What the peers answer, 100 ms later, to what upstream has sent.
    answers: Option<Answers>,
}

#[derive(Deserialize)]
struct Answers {
    permit: Option<Size>,
    agrees: Option<bool>,
}

/// What is due: the targets of requests, and how long to wait.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
struct Due {
    plugin: Option<Size>,
    patch: Option<Size>,
    down: Option<Size>,
    up: Option<Size>,
    wait: Option<u64>,
}

impl Due {
    fn from_set(set: &ActionSet) -> Self {
        Self {
            plugin: set.plugin.map(|request| of(request.target)),
            patch: set.neonvm.map(|change| of(change.target)),
            down: set.monitor_downscale.map(|change| of(change.target)),
            up: set.monitor_upscale.map(|change| of(change.target)),
            wait: set.wait.map(|wait| u64::try_from(wait.as_millis()).unwrap()),
        }
    }
}

/// A step in which this agent does something else.
#[derive(Debug)]
struct Differs {
    step: usize,
    upstream: Due,
    ours: Due,
}

/// Replays a flow up to the first step that differs; the number of equal steps.
fn replay(flow: &Flow) -> (usize, Option<Differs>) {
    let mut play = flow.shape.play(settings().defaults);
    play.event(Event::MonitorConnected { version: MonitorProtoVersion::V1_0 });
    for (index, step) in flow.steps.iter().enumerate() {
        play.now = Duration::from_millis(step.at);
        if let Some((load, used)) = step.metrics {
            let memory_usage_bytes = used;
            play.metrics(SystemMetrics {
                load1: load,
                load5: load,
                memory_usage_bytes,
                ..SystemMetrics::default()
            });
        }
        if step.requested {
            play.request_upscale();
        }
        let set = play.next();
        let ours = Due::from_set(&set);
        if ours != step.due {
            return (index, Some(Differs { step: index, upstream: step.due.clone(), ours }));
        }
        if let Some(answers) = &step.answers {
            answer(&mut play, &set, answers);
        }
    }
    (flow.steps.len(), None)
}

/// Sends what is due and answers it.
fn answer(play: &mut Play, set: &ActionSet, answers: &Answers) {
    let now = play.now;
    let plugin = set.plugin.as_ref().map(|request| play.state.start_plugin(now, request));
    let patch = set.neonvm.as_ref().map(|change| (play.state.start_neonvm(now, change), change.target));
    let down = set.monitor_downscale.as_ref().map(|c| play.state.start_monitor(now, Kind::Downscale, c));
    let up = set.monitor_upscale.as_ref().map(|change| play.state.start_monitor(now, Kind::Upscale, change));
    play.after(0.1);
    if let Some(id) = plugin {
        let permit = size(answers.permit.unwrap());
        play.event(Event::PluginReply { id, result: Ok(PluginAnswer { permit, migrate: false }) });
    }
    if let Some((id, target)) = patch {
        play.event(Event::PatchReply { id, result: Ok(None) });
        play.vm.info.set_using(target).unwrap();
        play.vm.observed = Some(target);
        play.see();
    }
    let status = String::new();
    if let Some(id) = down {
        let agrees = answers.agrees.unwrap();
        let verdict = if agrees { Verdict::Agreed { status } } else { Verdict::Denied { status } };
        play.event(Event::MonitorReply { id, result: Ok(verdict) });
    } else if let Some(id) = up {
        play.event(Event::MonitorReply { id, result: Ok(Verdict::Confirmed) });
    }
}

/// Why a step is another one (COMPATIBILITY.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// Waits grow while the answer stays the same.
    GrowingWait,
    /// A permit that is not used yet is not given back by the periodic request; it is used at once.
    KeepsPermit,
    /// What the guest may have taken of a growth is not taken from it before it agrees, although it was not notified.
    AsksFirst,
    /// Of a permit that ends between two multiples, the same number of units of both is used.
    EqualUnits,
}

impl Rule {
    /// Whether a difference follows from this rule.
    fn explains(self, Differs { upstream, ours, .. }: &Differs) -> bool {
        let without_wait = |due: &Due| Due { wait: None, ..due.clone() };
        match self {
            Self::GrowingWait => without_wait(ours) == without_wait(upstream) && ours.wait > upstream.wait,
            Self::KeepsPermit => {
                upstream.patch.is_none() && ours.patch.is_some() && ours.plugin > upstream.plugin
            }
            Self::AsksFirst => upstream.patch.is_some() && ours.patch.is_none() && ours.down > upstream.down,
            Self::EqualUnits => upstream.patch.is_some() && *ours == Due { patch: None, ..upstream.clone() },
        }
    }
}

/// The flows that differ, and the first step in which they do. What follows is another story.
const DIFFERENT: [(usize, usize, Rule); 11] = [
    (0, 2, Rule::KeepsPermit),
    (2, 6, Rule::GrowingWait),
    (3, 12, Rule::AsksFirst),
    (5, 2, Rule::KeepsPermit),
    (9, 2, Rule::KeepsPermit),
    (11, 15, Rule::GrowingWait),
    (18, 17, Rule::EqualUnits),
    (21, 2, Rule::KeepsPermit),
    (25, 2, Rule::KeepsPermit),
    (26, 2, Rule::KeepsPermit),
    (29, 14, Rule::AsksFirst),
];

#[test]
fn steps_are_those_of_upstream_but_for_the_documented_ones() {
    let flows: Vec<Flow> = serde_json::from_str(include_str!("upstream/flows.json")).unwrap();
    assert_eq!(flows.len(), 32);
    let mut equal = 0;
    for (index, flow) in flows.iter().enumerate() {
        let (steps, differs) = replay(flow);
        equal += steps;
        let documented = DIFFERENT.iter().find(|(flow, ..)| *flow == index);
        match (differs, documented) {
            (None, None) => {}
            (Some(differs), Some((_, step, rule))) => {
                assert_eq!(differs.step, *step, "flow {index}");
                assert!(rule.explains(&differs), "flow {index}, {rule:?}: {differs:?}");
            }
            (differs, documented) => panic!("flow {index}: {differs:?}, documented {documented:?}"),
        }
    }
    assert_eq!(equal, 496);
}
