//! A fake shell: the test starts and answers each action, in the steps of the specification's flows.

use std::time::Duration;

use neonvm_api::vm_info::{VmConfig, VmCpuInfo, VmMemInfo};
use neonvm_api::{ScalingConfig, VmInfo};
use neonvm_core_vertical_scaling::agent::{
    ActionSet, Event, PatchError, Settings, State, SystemMetrics, Verdict, Vm, Warning,
    action::{Latency, LatencyOf, Outcome},
    monitor_peer::Kind,
};
use neonvm_types::{
    Bytes, MilliCpu, Resources, Revision, RevisionFlags, RevisionWithTime, version::MonitorProtoVersion,
};

pub const CU: Resources = Resources::new(MilliCpu::new(250), Bytes::gib(1));
pub const UP: RevisionFlags = RevisionFlags::UPSCALE;
pub const DOWN: RevisionFlags = RevisionFlags::DOWNSCALE;

pub fn cu(count: u16) -> Resources {
    CU.saturating_mul(count)
}

pub fn res(milli: u32, gib: u32) -> Resources {
    Resources::new(MilliCpu::new(milli), Bytes::gib(gib))
}

/// The configuration of the specification's core tests.
pub fn settings() -> Settings {
    Settings {
        compute_unit: CU,
        defaults: ScalingConfig {
            load_average_fraction_target: Some(0.5),
            memory_usage_fraction_target: Some(0.5),
            memory_total_fraction_target: Some(0.9),
            enable_lfc_metrics: Some(false),
            lfc_use_largest_window: Some(false),
            lfc_to_memory_ratio: Some(0.75),
            lfc_window_size_minutes: Some(5),
            lfc_min_wait_before_downscale_minutes: Some(15),
            cpu_stable_zone_ratio: Some(0.0),
            cpu_mixed_zone_ratio: Some(0.0),
        },
        neonvm_retry_wait: secs(5.0),
        plugin_request_tick: secs(5.0),
        plugin_retry_wait: secs(3.0),
        plugin_denied_retry_wait: secs(2.0),
        monitor_denied_downscale_cooldown: secs(5.0),
        monitor_requested_upscale_valid_period: secs(10.0),
        monitor_retry_wait: secs(3.0),
        // Monitors here send no signs of life.
        monitor_unhealthy: secs(1e6),
        ..Settings::SHIPPED
    }
}

pub fn secs(seconds: f64) -> Duration {
    Duration::from_millis((seconds * 1000.0).round() as u64)
}

pub fn vm(min: Resources, max: Resources, using: Resources) -> Vm {
    let slot_size = Bytes::gib(1);
    let slots = |size: Resources| u16::try_from(size.mem.slots(slot_size).unwrap()).unwrap();
    let info = VmInfo {
        name: "vm".into(),
        namespace: "default".into(),
        cpu: VmCpuInfo { min: min.vcpus, max: max.vcpus, r#use: using.vcpus },
        mem: VmMemInfo { min: slots(min), max: slots(max), r#use: slots(using), slot_size },
        config: VmConfig { scaling_enabled: true, ..VmConfig::default() },
        current_revision: None,
    };
    Vm { observed: Some(using), ..Vm::new(info) }
}

pub fn load(load1: f64) -> SystemMetrics {
    SystemMetrics { load1, load5: 0.0, ..SystemMetrics::default() }
}

/// One VM and the clock.
pub struct Play {
    pub state: State,
    pub vm: Vm,
    pub now: Duration,
    pub latencies: Vec<Latency>,
    plugin_id: u64,
    patch_id: u64,
    monitor_id: u64,
}

impl Play {
    pub fn new(vm: Vm, settings: Settings) -> Self {
        let state = State::new(vm.clone(), settings, Duration::ZERO);
        let (plugin_id, patch_id, monitor_id) = (0, 0, 0);
        Self { state, vm, now: Duration::ZERO, latencies: Vec::new(), plugin_id, patch_id, monitor_id }
    }

    pub fn cus(min: u16, max: u16, using: u16, settings: Settings) -> Self {
        Self::new(vm(cu(min), cu(max), cu(using)), settings)
    }

    /// Monitor active, first request answered at 0.1 s.
    #[must_use]
    pub fn ready(mut self) -> Self {
        self.connect(MonitorProtoVersion::V1_0);
        self.first_request();
        self
    }

    pub fn first_request(&mut self) {
        let set = self.next();
        let request = set.plugin.expect("the first request");
        assert_eq!((request.last_permit, request.revision.value), (None, 0));
        assert_eq!(request.target, self.vm.info.using());
        assert!(set.neonvm.is_none() && set.monitor_downscale.is_none() && set.monitor_upscale.is_none());
        assert!(set.wait.is_none());
        self.ask();
        self.after(0.1);
        self.permit(request.target);
    }

    pub fn connect(&mut self, version: MonitorProtoVersion) {
        self.event(Event::MonitorConnected { version });
        // A monitor that requests amounts is notified of the size when nothing else is due.
        if self.next().monitor_upscale.is_some_and(|change| change.current == change.target) {
            self.notify_up();
            self.confirms();
        }
    }

    pub fn event(&mut self, event: Event) -> Outcome {
        let outcome = self.state.absorb(self.now, event);
        self.latencies.extend(outcome.latencies.clone());
        outcome
    }

    pub fn after(&mut self, seconds: f64) -> &mut Self {
        self.now += secs(seconds);
        self
    }

    pub fn next(&mut self) -> ActionSet {
        self.state.next_actions(self.now)
    }

    pub fn metrics(&mut self, metrics: SystemMetrics) {
        self.event(Event::SystemMetrics(metrics));
    }

    pub fn request_upscale(&mut self) {
        self.event(Event::UpscaleRequested { wants: None });
    }

    // Starting what is due.

    pub fn ask(&mut self) {
        let request = self.next().plugin.expect("a request to the scheduler");
        self.plugin_id = self.state.start_plugin(self.now, &request);
    }

    pub fn patch(&mut self) {
        let change = self.next().neonvm.expect("a patch");
        self.patch_id = self.state.start_neonvm(self.now, &change);
    }

    pub fn ask_down(&mut self) {
        let change = self.next().monitor_downscale.expect("a question to the monitor");
        self.monitor_id = self.state.start_monitor(self.now, Kind::Downscale, &change);
    }

    pub fn notify_up(&mut self) {
        let change = self.next().monitor_upscale.expect("news for the monitor");
        self.monitor_id = self.state.start_monitor(self.now, Kind::Upscale, &change);
    }

    // Answering it.

    pub fn permit(&mut self, permit: Resources) {
        self.event(Event::PluginReply { id: self.plugin_id, result: Ok(permit.into()) });
    }

    pub fn plugin_fails(&mut self) {
        self.event(Event::PluginReply { id: self.plugin_id, result: Err("down".into()) });
    }

    /// The patch is made; nothing is seen of it yet.
    pub fn patched(&mut self) {
        self.event(Event::PatchReply { id: self.patch_id, result: Ok(None) });
    }

    /// The patch is made and the VM shows it: what upstream calls success.
    pub fn patched_and_seen(&mut self, size: Resources) {
        self.patched();
        self.vm.info.set_using(size).unwrap();
        self.vm.observed = Some(size);
        self.see();
    }

    pub fn patch_fails(&mut self) {
        let result = Err(PatchError::Failed("500".into()));
        self.event(Event::PatchReply { id: self.patch_id, result });
    }

    pub fn agrees(&mut self) {
        let result = Ok(Verdict::Agreed { status: String::new() });
        self.event(Event::MonitorReply { id: self.monitor_id, result });
    }

    pub fn denies(&mut self) {
        let result = Ok(Verdict::Denied { status: "in use".into() });
        self.event(Event::MonitorReply { id: self.monitor_id, result });
    }

    pub fn confirms(&mut self) {
        self.event(Event::MonitorReply { id: self.monitor_id, result: Ok(Verdict::Confirmed) });
    }

    pub fn see(&mut self) {
        let vm = self.vm.clone();
        self.event(Event::Vm(vm));
    }

    pub fn bounds(&mut self, min: u16, max: u16) {
        self.vm.info.cpu.min = cu(min).vcpus;
        self.vm.info.cpu.max = cu(max).vcpus;
        (self.vm.info.mem.min, self.vm.info.mem.max) = (min, max);
        self.see();
    }

    /// The VM shows a revision, and the scaling latency is `took`.
    pub fn reports(&mut self, value: i64, flags: RevisionFlags, took: f64) {
        self.latencies.clear();
        let revision = Revision { value, flags };
        self.vm.info.current_revision = Some(RevisionWithTime { revision, updated_at: None });
        self.see();
        self.latency(LatencyOf::Scaling, flags, took);
    }

    pub fn latency(&mut self, of: LatencyOf, flags: RevisionFlags, took: f64) {
        let expected = Latency { of, flags, took: secs(took) };
        assert!(self.latencies.contains(&expected), "{expected:?} not in {:?}", self.latencies);
    }

    // Expectations.

    /// The action set in the notation of the specification: `W4.9 N1>2`, with `P1>2`, `M-2>1`, `M+1>2`; sizes in units.
    #[track_caller]
    pub fn due(&mut self, expected: &str) {
        let now = self.now;
        assert_eq!(shown(&self.next()), expected, "at {now:?}");
        // Computing it again gives the same.
        assert_eq!(shown(&self.next()), expected, "again, at {now:?}");
    }

    #[track_caller]
    pub fn warns(&mut self, warning: &Warning) {
        let set = self.next();
        assert!(set.warnings.contains(warning), "{warning:?} not in {:?}", set.warnings);
    }

    /// The revision of the actions that are due.
    #[track_caller]
    pub fn revision(&mut self, value: i64, flags: RevisionFlags) {
        let set = self.next();
        let expected = Revision { value, flags };
        let changes = [set.neonvm, set.monitor_downscale, set.monitor_upscale];
        let mut all: Vec<_> = changes.into_iter().flatten().map(|change| change.revision).collect();
        all.extend(set.plugin.map(|request| request.revision));
        assert!(!all.is_empty() && all.iter().all(|revision| *revision == expected), "{all:?}");
    }
}

fn size(amount: Resources) -> String {
    neonvm_core_vertical_scaling::agent::units::Size::from_amount(amount, CU).to_string()
}

pub fn shown(set: &ActionSet) -> String {
    let mut parts = Vec::new();
    parts.extend(set.wait.map(|wait| format!("W{:.1}", wait.as_secs_f64())));
    parts.extend(
        set.plugin.map(|p| format!("P{}>{}", p.last_permit.map_or("none".into(), size), size(p.target))),
    );
    parts.extend(set.neonvm.map(|c| format!("N{}>{}", size(c.current), size(c.target))));
    parts.extend(set.monitor_downscale.map(|c| format!("M-{}>{}", size(c.current), size(c.target))));
    parts.extend(set.monitor_upscale.map(|c| format!("M+{}>{}", size(c.current), size(c.target))));
    parts.join(" ")
}
