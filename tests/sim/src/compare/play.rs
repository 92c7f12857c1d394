//! One trial: the guest, its monitor and its agent, event by event.

mod agent;

use neonvm_core_vertical_scaling::agent::{
    Event as Input, PluginAnswer, Settings, State, SystemMetrics, Verdict, Vm, units,
};
use neonvm_core_vertical_scaling::monitor::{
    Action as Reply, Event as Seen, Policy, Sample, Settings as PolicySettings,
};
use neonvm_types::guest::MemoryLimits;
use neonvm_types::monitor_protocol::{AgentMessage, MonitorMessage, Wants};
use neonvm_types::version::MonitorProtoVersion;
use neonvm_types::{Resources, Revision};

use super::account::{Account, Trial};
use super::processor::Processor;
use super::{Load, Rules, Setup};
use crate::queue::{MILLI, Queue, SECOND, Time};
use crate::rng::Rng;
use crate::world::{duration, micros};

const UNIT: Resources = Settings::SHIPPED.compute_unit;
/// Time between two reads of the metrics.
const SCRAPE: Time = 5 * SECOND;
/// Time between two updates of the kernel's load averages.
const LOAD_AVERAGE: Time = 5 * SECOND + 4 * MILLI;
/// Time of a message between guest and agent.
const MESSAGE: Time = MILLI;
/// Memory in use, in bytes: so little that it does not decide.
const MEMORY: u64 = 300 << 20;
/// What the kernel keeps for itself, in bytes.
const KERNEL: u64 = 64 << 20;

#[derive(Debug)]
enum Event {
    Sample,
    Scrape,
    LoadAverage,
    Wanted(Option<Wants>),
    Permit { id: u64, size: Resources },
    Patch { id: u64, size: Resources, revision: Revision },
    Changed { size: Resources, generation: i64, revision: Revision },
    Question { id: u64, size: Resources, down: bool },
    Verdict { id: u64, result: Result<Verdict, String> },
    Wake(Time),
}

struct Play {
    now: Time,
    queue: Queue<Event>,
    processor: Processor,
    policy: Policy,
    version: MonitorProtoVersion,
    agent: State,
    vm: Vm,
    generation: i64,
    has: Resources,
    load1: f64,
    load5: f64,
    wake: Option<Time>,
    sample_at: Time,
    account: Account,
}

/// Runs a load under some rules.
pub fn trial(load: Load, rules: Rules, setup: &Setup) -> Trial {
    let (min, max) = (setup.min.max(1), setup.max.max(setup.min.max(1)));
    let mut play = Play::new(load, rules, (min, max));
    let (mut arrivals, mut host) = (Rng::new(setup.seed, 21), Rng::new(setup.seed, 22));
    play.start();
    let length = micros(setup.length.unwrap_or_else(|| load.length()));
    while play.now < length {
        let now = play.now;
        if let Some(work) = load.arrival(now, &mut arrivals) {
            play.processor.arrive(now, work);
        }
        play.processor.spin(load.spinning(now));
        let account = &mut play.account;
        play.processor.tick(now, &mut host, |took| account.done(took));
        account.tick(now);
        play.now += MILLI;
        play.catch_up();
    }
    play.account.close(rules)
}

impl Play {
    fn new(load: Load, rules: Rules, bounds: (u32, u32)) -> Self {
        let (min, max) = (units::times(UNIT, bounds.0), units::times(UNIT, bounds.1));
        let vm = Vm { observed: Some(min), generation: Some(1), ..Vm::new(agent::info(min, max)) };
        let version = match rules {
            Rules::Ours => MonitorProtoVersion::V2_0,
            Rules::Upstream => MonitorProtoVersion::V1_0,
        };
        Self {
            now: 0,
            queue: Queue::new(),
            processor: Processor::new(u64::from(min.vcpus.milli()), load.taken()),
            policy: Policy::new(PolicySettings {
                file_cache: false,
                measures: true,
                most_cpus: max.vcpus.cpus_rounded_up(),
                limits: MemoryLimits::Off,
            }),
            version,
            agent: State::new(vm.clone(), Settings::SHIPPED, duration(0)),
            vm,
            generation: 1,
            has: min,
            load1: 0.0,
            load5: 0.0,
            wake: None,
            sample_at: 0,
            account: Account::new(load, bounds, bounds.0),
        }
    }

    fn after(&mut self, wait: Time, event: Event) {
        self.queue.push(self.now + wait, event);
    }

    fn start(&mut self) {
        let (version, total) = (self.version, self.has.mem.get().saturating_sub(KERNEL));
        self.guest_step(Seen::Connected { version, total });
        self.agent_step(Input::MonitorConnected { version });
        self.after(SCRAPE / 2, Event::Scrape);
        self.after(LOAD_AVERAGE, Event::LoadAverage);
        self.schedule_sample(MILLI);
    }

    /// Everything that is due.
    fn catch_up(&mut self) {
        let end = self.now;
        while let Some((at, event)) = self.queue.pop() {
            if at > end {
                self.queue.push(at, event);
                break;
            }
            self.now = at;
            self.happen(event);
        }
        self.now = end;
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Sample => self.sample(),
            Event::Scrape => {
                let metrics = self.metrics();
                self.agent_step(Input::SystemMetrics(metrics));
                self.agent_step(Input::MonitorAlive);
                self.after(SCRAPE, Event::Scrape);
            }
            Event::LoadAverage => {
                let runnable = f64::from(self.processor.runnable());
                let (fast, slow) = ((-5.0_f64 / 60.0).exp(), (-5.0_f64 / 300.0).exp());
                self.load1 = self.load1 * fast + runnable * (1.0 - fast);
                self.load5 = self.load5 * slow + runnable * (1.0 - slow);
                self.after(LOAD_AVERAGE, Event::LoadAverage);
            }
            Event::Wanted(wants) => self.agent_step(Input::UpscaleRequested { wants }),
            Event::Permit { id, size } => {
                self.agent_step(Input::PluginReply { id, result: Ok(PluginAnswer::from(size)) });
            }
            Event::Patch { id, size, revision } => self.patch(id, size, revision),
            Event::Changed { size, generation, revision } => self.changed(size, generation, revision),
            Event::Question { id, size, down } => self.question(id, size, down),
            Event::Verdict { id, result } => self.agent_step(Input::MonitorReply { id, result }),
            Event::Wake(at) => {
                if self.wake.take_if(|wake| *wake == at).is_some() {
                    self.agent_step(Input::Timer);
                }
            }
        }
    }

    fn metrics(&self) -> SystemMetrics {
        SystemMetrics {
            load1: self.load1,
            load5: self.load5,
            memory_usage_bytes: MEMORY as f64,
            busy_seconds: Some(self.processor.busy().as_secs_f64()),
            ..SystemMetrics::default()
        }
    }

    fn sampled(&self) -> Sample {
        let total = self.has.mem.get().saturating_sub(KERNEL);
        Sample {
            anonymous: MEMORY,
            total,
            available: total.saturating_sub(MEMORY),
            runnable: self.processor.runnable(),
            online: self.processor.online(),
            idle: Some(self.processor.idle()),
            cpu_pressure: Some(self.processor.pressure()),
            ..Sample::default()
        }
    }

    fn schedule_sample(&mut self, wait: Time) {
        self.sample_at = self.now + wait;
        self.after(wait, Event::Sample);
    }

    fn sample(&mut self) {
        if self.now < self.sample_at {
            return;
        }
        let sample = self.sampled();
        let wake_at = self.guest_step(Seen::Sample(Some(sample)));
        self.schedule_sample(wake_at.saturating_sub(self.now).max(MILLI));
    }

    /// The monitor takes something in; what it sends is on its way. When its next sample is due.
    fn guest_step(&mut self, event: Seen) -> Time {
        let outcome = self.policy.step(duration(self.now), event);
        for action in outcome.actions {
            if let Reply::Send { message: MonitorMessage::UpscaleRequest { wants }, .. } = action {
                self.after(MESSAGE, Event::Wanted(wants));
            }
        }
        micros(outcome.wake_at)
    }

    fn question(&mut self, id: u64, size: Resources, down: bool) {
        let message = if down {
            AgentMessage::DownscaleRequest { target: size.into() }
        } else {
            AgentMessage::UpscaleNotification { granted: size.into() }
        };
        let outcome = self.policy.step(duration(self.now), Seen::Message { id, message });
        let reply = outcome.actions.into_iter().find_map(|action| match action {
            Reply::Send { id: to, message } if to == id => Some(message),
            _ => None,
        });
        let result = match reply {
            Some(MonitorMessage::UpscaleConfirmation) => Ok(Verdict::Confirmed),
            Some(MonitorMessage::DownscaleResult { ok: true, status }) => Ok(Verdict::Agreed { status }),
            Some(MonitorMessage::DownscaleResult { ok: false, status }) => Ok(Verdict::Denied { status }),
            other => Err(format!("{other:?}")),
        };
        self.after(MESSAGE, Event::Verdict { id, result });
    }
}
