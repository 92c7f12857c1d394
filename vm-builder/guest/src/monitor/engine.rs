//! The policy with its clock, its samples and the agent's connection.

use std::path::Path;
use std::time::{Duration, Instant};

use neonvm_core_vertical_scaling::monitor::{Action, Event, Policy, Settings, is_similar};
use neonvm_types::monitor_protocol::AgentMessage;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::sleep_until;

use super::postgres::{self, Target};
use super::traffic::{Input, Outgoing};
use super::{Options, Sampler, log};

/// How long PostgreSQL may take; the policy stops waiting a second later.
const FILE_CACHE: Duration = Duration::from_secs(3);
/// How often the same need is logged while memory in use hardly changes.
const NOTE_INTERVAL: Duration = Duration::from_secs(60);

/// The agent that counts.
#[derive(Debug)]
struct Agent {
    session: u64,
    outgoing: mpsc::Sender<Outgoing>,
}

#[derive(Debug)]
pub(super) struct Engine {
    policy: Policy,
    sampler: Sampler,
    postgres: Option<Target>,
    start: Instant,
    wake_at: Duration,
    agent: Option<Agent>,
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
        };
        Self {
            policy: Policy::new(settings),
            sampler,
            postgres: options.postgres.clone(),
            start: Instant::now(),
            wake_at: Duration::ZERO,
            agent: None,
            inputs,
            file_cache: None,
            noted: None,
        }
    }

    /// Runs for ever. A sample that is due goes before whatever peers have.
    pub(super) async fn run(mut self, mut inputs: mpsc::Receiver<Input>) {
        loop {
            let wake_at = tokio::time::Instant::from_std(self.start + self.wake_at);
            tokio::select! {
                biased;
                () = sleep_until(wake_at) => {
                    let sample = self.sampler.sample();
                    self.step(Event::Sample(sample));
                }
                input = inputs.recv() => match input {
                    Some(input) => self.take(input),
                    None => return,
                },
            }
        }
    }

    fn take(&mut self, input: Input) {
        let current = self.agent.as_ref().map(|agent| agent.session);
        match input {
            Input::Connected { session, version, outgoing } => {
                if let Some(old) = self.agent.replace(Agent { session, outgoing }) {
                    let _ = old.outgoing.try_send(Outgoing::Close("a newer connection took over".to_owned()));
                }
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

    fn lost(&mut self, why: &str) {
        self.agent = None;
        log(why);
        self.step(Event::Disconnected);
    }

    fn step(&mut self, event: Event) {
        let now = self.start.elapsed();
        let outcome = self.policy.step(now, event);
        self.wake_at = outcome.wake_at;
        if let Some(note) = outcome.note {
            self.note(now, &note);
        }
        for action in outcome.actions {
            match action {
                Action::Send { id, message } => {
                    let Ok(text) = message.encode(id) else { continue };
                    let Some(agent) = &self.agent else { continue };
                    if agent.outgoing.try_send(Outgoing::Text(text)).is_err() {
                        return self.lost("the agent does not read what it asks for");
                    }
                }
                Action::SetFileCache { token, size } => self.set_file_cache(token, size),
            }
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

fn complaint(message: &AgentMessage) {
    if let AgentMessage::InvalidMessage { error } | AgentMessage::InternalError { error } = message {
        let shown: String = error.chars().filter(|character| !character.is_control()).take(200).collect();
        log(&format!("the agent answers: {shown}"));
    }
}

/// Processors the machine can have, whether they are there or not. 0 if unknown.
fn most_cpus(root: &Path) -> u32 {
    let text = crate::metrics::read(&root.join("sys/devices/system/cpu/possible"));
    crate::cpu::list::parse(&text).map_or(0, |list| u32::try_from(list.len()).unwrap_or(u32::MAX))
}
