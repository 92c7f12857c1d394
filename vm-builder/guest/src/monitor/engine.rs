//! The policy with its clock, its samples and the agent's connection.

mod agents;

use std::path::Path;
use std::time::{Duration, Instant};

use neonvm_core_vertical_scaling::monitor::{Action, Event, Policy, Settings, is_similar};
use neonvm_types::monitor_protocol::AgentMessage;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::sleep_until;

use super::group::{self, Group};
use super::informant::Informant;
use super::postgres::{self, Target};
use super::traffic::{Input, Outgoing};
use super::{Options, Sampler, log};
use crate::init::CHILD_MARKER;

/// How long PostgreSQL may take; the policy stops waiting a second later.
const FILE_CACHE: Duration = Duration::from_secs(3);
/// How often the same need is logged while memory in use hardly changes.
const NOTE_INTERVAL: Duration = Duration::from_secs(60);

/// A time that does not come.
const NEVER: Duration = Duration::from_secs(u32::MAX as u64);

/// The agent that counts, if it has the monitor's protocol.
#[derive(Debug)]
struct Agent {
    session: u64,
    outgoing: mpsc::Sender<Outgoing>,
}

#[derive(Debug)]
pub(super) struct Engine {
    policy: Policy,
    sampler: Sampler,
    /// The control group that may have limits.
    group: Option<Group>,
    postgres: Option<Target>,
    start: Instant,
    wake_at: Duration,
    thaw_at: Option<Duration>,
    agent: Option<Agent>,
    /// Agents with the informant's protocol, if they are served.
    informant: Option<Informant>,
    inputs: mpsc::Sender<Input>,
    file_cache: Option<AbortHandle>,
    /// When a need was last logged, with the memory in use then.
    noted: Option<(Duration, u64)>,
}

impl Engine {
    pub(super) fn new(options: &Options, inputs: mpsc::Sender<Input>) -> Self {
        let mut sampler = Sampler::new(&options.root, options.cgroup.as_deref());
        let settings = Settings {
            file_cache: options.postgres.is_some(),
            measures: sampler.total().is_some(),
            most_cpus: most_cpus(&options.root),
            limits: options.limits,
        };
        Self {
            policy: Policy::new(settings),
            sampler,
            group: options.limits_groups().then(|| group(options)),
            postgres: options.postgres.clone(),
            start: Instant::now(),
            wake_at: Duration::ZERO,
            thaw_at: None,
            agent: None,
            informant: options.informant.then(|| Informant::new(inputs.clone(), options.metrics_port)),
            inputs,
            file_cache: None,
            noted: None,
        }
    }

    /// Runs until nothing can send inputs any more. The end of a freeze and a sample that is due go before whatever peers have.
    pub(super) async fn run(mut self, mut inputs: mpsc::Receiver<Input>) {
        loop {
            let instant = |at: Duration| tokio::time::Instant::from_std(self.start + at);
            let check_at = self.informant.as_ref().and_then(|informant| informant.agents.wake_at());
            let (wake_at, thaw_at, check_at) =
                (instant(self.wake_at), self.thaw_at.map(instant), instant(check_at.unwrap_or(NEVER)));
            tokio::select! {
                biased;
                () = sleep_until(thaw_at.unwrap_or(wake_at)), if thaw_at.is_some() => self.step(Event::Elapsed),
                () = sleep_until(wake_at) => self.sample(),
                () = changed(self.group.as_ref()) => self.refresh_group(),
                () = sleep_until(check_at) => self.with_agents(|informant, now| informant.agents.tick(now)),
                input = inputs.recv() => match input {
                    Some(input) => self.take(input),
                    None => return,
                },
            }
        }
    }

    fn sample(&mut self) {
        let mut sample = self.sampler.sample();
        if let (Some(sample), Some(group)) = (&mut sample, &self.group) {
            sample.current = group.current();
        }
        self.step(Event::Sample(sample));
        self.refresh_group();
    }

    fn refresh_group(&mut self) {
        if self.group.as_mut().is_some_and(Group::refresh) {
            self.step(Event::MemoryHigh);
        }
    }

    fn take(&mut self, input: Input) {
        let current = self.agent.as_ref().map(|agent| agent.session);
        match input {
            Input::Connected { session, version, outgoing } => {
                if let Some(old) = self.agent.replace(Agent { session, outgoing }) {
                    let _ = old.outgoing.try_send(Outgoing::Close("a newer connection took over".to_owned()));
                }
                self.with_agents(|informant, _| informant.agents.displace());
                log(&format!("an agent is connected, protocol {version}"));
                let total = self.sampler.total().unwrap_or_default();
                self.step(Event::Connected { version, total });
            }
            Input::Text { session, text } if current == Some(session) => {
                let event = match AgentMessage::decode(text.as_bytes()) {
                    Ok((id, message)) => {
                        complaint(&message);
                        Event::Message { id, message }
                    }
                    Err(error) => Event::Undecodable { id: error.id, reason: error.reason },
                };
                self.step(event);
            }
            Input::Gone { session } if current == Some(session) => self.lost("the agent is gone"),
            Input::Request { request, answer } => {
                let occupied = self.agent.is_some();
                self.with_agents(|informant, now| informant.take(now, &request, answer, occupied));
            }
            Input::Called { call, result } => {
                self.with_agents(|informant, now| informant.agents.called(now, call, result));
            }
            // Of a connection that was replaced.
            Input::Text { .. } | Input::Gone { .. } => {}
            Input::FileCacheSet { token, result } => {
                if let Err(error) = &result {
                    log(&format!("file cache: {error}"));
                }
                self.step(Event::FileCacheSet { token, result });
            }
        }
    }

    fn with_group(&mut self, act: impl FnOnce(&mut Group)) {
        if let Some(group) = &mut self.group {
            act(group);
        }
    }

    fn lost(&mut self, why: &str) {
        self.agent = None;
        log(why);
        self.step(Event::Disconnected);
    }

    fn step(&mut self, event: Event) {
        let now = self.start.elapsed();
        let outcome = self.policy.step(now, event);
        (self.wake_at, self.thaw_at) = (outcome.wake_at, outcome.thaw_at);
        if let Some(note) = outcome.note {
            self.note(now, &note);
        }
        let mut unsent = None;
        for action in outcome.actions {
            match action {
                Action::Send { id, message } => {
                    if let Err(why) = self.send(id, message) {
                        unsent = Some(why);
                    }
                }
                Action::SetLimits(values) => self.with_group(|group| group.limit(values)),
                Action::Freeze => self.with_group(Group::freeze),
                Action::Thaw => self.with_group(Group::thaw),
                Action::SetFileCache { token, size } => self.set_file_cache(token, size),
            }
        }
        if let Some(why) = unsent {
            self.lost(why);
        }
    }

    fn set_file_cache(&mut self, token: u64, size: u64) {
        let Some(target) = self.postgres.clone() else { return };
        if let Some(earlier) = self.file_cache.take() {
            earlier.abort();
        }
        let inputs = self.inputs.clone();
        let task = tokio::task::spawn_local(async move {
            let result = match tokio::time::timeout(FILE_CACHE, postgres::set_file_cache(&target, size)).await
            {
                Ok(result) => result.map_err(|error| error.to_string()),
                Err(_) => Err("PostgreSQL did not answer in time".to_owned()),
            };
            let _ = inputs.send(Input::FileCacheSet { token, result }).await;
        });
        self.file_cache = Some(task.abort_handle());
    }

    fn note(&mut self, now: Duration, note: &str) {
        let used = self.policy.in_use();
        let noted_before = self
            .noted
            .is_some_and(|(at, then)| now.saturating_sub(at) < NOTE_INTERVAL && is_similar(then, used));
        if !noted_before {
            self.noted = Some((now, used));
            log(&format!("asked for more: {note}"));
        }
    }
}

/// The control group that may have limits.
fn group(options: &Options) -> Group {
    let name = options.cgroup.as_deref().unwrap_or(group::WORKLOAD);
    let supervised = std::env::var_os(CHILD_MARKER).is_some();
    let mut group = Group::new(&options.root.join("sys/fs/cgroup"), name, supervised);
    if options.limits.is_off() {
        // A monitor before this one may have left some of the informant's.
        group.limit(None);
    }
    group
}

/// Waits until the control group may have changed; without one it never returns.
async fn changed(group: Option<&Group>) {
    match group {
        Some(group) => group.changed().await,
        None => std::future::pending().await,
    }
}

fn complaint(message: &AgentMessage) {
    if let AgentMessage::InvalidMessage { error } | AgentMessage::InternalError { error } = message {
        let shown: String = error.chars().filter(|character| !character.is_control()).take(200).collect();
        log(&format!("the agent answers: {shown}"));
    }
}

/// Processors the VM can have, whether they are there or not. 0 if unknown.
fn most_cpus(root: &Path) -> u32 {
    let text = crate::metrics::read(&root.join("sys/devices/system/cpu/possible"));
    crate::cpu::parse(&text).map_or(0, |list| u32::try_from(list.len()).unwrap_or(u32::MAX))
}
