//! The informant's side of the protocol of agents up to v0.17 of upstream: which agent is the current one, what is requested of
//! agents, and how their requests are answered.
//!
//! Agents register; the newest is made the current one: the one before is suspended, then the new one is resumed. Only the
//! current agent may change the VM's size. An agent that does not answer is removed. To the policy the current agent is a
//! connection like that of a monitor, of the oldest version.

mod agent;
mod request;

use std::time::Duration;

use neonvm_types::Resources;
use neonvm_types::informant_protocol::{AgentId, AgentIdentificationMessage};
use neonvm_types::version::InformantProtoVersion;

use agent::Agent;
pub use request::Request;

/// Time between two requests to `/id` of each agent.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Failed requests to `/id` in a row after which an agent is removed.
pub const MOST_FAILURES: u32 = 2;
/// Agents that may be registered at once. There are two for a moment while one replaces the other.
pub const MOST_AGENTS: usize = 8;
/// Shortest time between two requests for memory that no `/upscale` has answered.
pub const REQUEST_AGAIN: Duration = Duration::from_secs(5);

/// A request to an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// `/id`.
    Id,
    /// `/suspend`.
    Suspend,
    /// `/resume`.
    Resume,
    /// `/try-upscale`, for memory.
    TryUpscale,
}

impl What {
    /// Time for the answer. `/suspend` is answered only when what the agent had begun has ended.
    #[must_use]
    pub const fn within(self) -> Duration {
        match self {
            Self::Id => Duration::from_millis(250),
            Self::Suspend => Duration::from_secs(5),
            Self::Resume => Duration::from_millis(100),
            Self::TryUpscale => Duration::from_millis(400),
        }
    }
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Answer the request of an agent with this token.
    Answer {
        /// Of the request.
        token: u64,
        status: u16,
        /// A JSON document with status 200, else a reason in words.
        body: String,
    },
    /// Send a request to an agent, and report the answer by [`Agents::called`].
    Call {
        /// Number of the request.
        call: u64,
        agent: AgentId,
        /// Where it serves: `host:port` or `host:port/path`.
        address: String,
        /// The request.
        what: What,
    },
    /// Another agent, or none, is the current one.
    Current(Option<InformantProtoVersion>),
    /// The current agent changes the VM's size; answered by the caller.
    Resize {
        /// Of the request.
        token: u64,
        /// Whether it asks for consent to less.
        down: bool,
        size: Resources,
    },
}

/// What is wanted of the current agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Wants {
    #[default]
    Nothing,
    /// Memory, not requested yet.
    Memory,
    /// Memory, requested at this time.
    Requested(Duration),
}

/// All agents of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agents {
    /// In the order of registration.
    agents: Vec<Agent>,
    current: Option<AgentId>,
    wants: Wants,
    calls: u64,
    metrics_port: u16,
}

impl Agents {
    /// None yet; each is given this TCP port as that of the guest's metrics.
    #[must_use]
    pub fn new(metrics_port: u16) -> Self {
        Self { agents: Vec::new(), current: None, wants: Wants::Nothing, calls: 0, metrics_port }
    }

    #[must_use]
    pub const fn current(&self) -> Option<AgentId> {
        self.current
    }

    /// Takes a request of an agent.
    pub fn request(&mut self, now: Duration, token: u64, request: &Request) -> Vec<Action> {
        let mut actions = Vec::new();
        self.answer(token, request, &mut actions);
        self.go_on(now, &mut actions);
        actions
    }

    /// The answer to [`Action::Call`], or why there is none.
    pub fn called(
        &mut self,
        now: Duration,
        call: u64,
        answer: Result<AgentIdentificationMessage, String>,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        let caller = self.agents.iter_mut().find(|agent| agent.call.is_some_and(|(own, _)| own == call));
        // An agent that was removed meanwhile is not known any more.
        if let Some(agent) = caller {
            let (id, what) = (agent.id, agent.call.take().map_or(What::Id, |(_, what)| what));
            let answer = answer.and_then(|message| agent.identify(&message));
            self.take(now, id, what, answer, &mut actions);
        }
        self.go_on(now, &mut actions);
        actions
    }

    /// The guest needs memory: the current agent is asked, or the next one.
    pub fn want_memory(&mut self, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        if let Wants::Nothing = self.wants {
            self.wants = Wants::Memory;
        } else if let Wants::Requested(at) = self.wants
            && now.saturating_sub(at) >= REQUEST_AGAIN
        {
            self.wants = Wants::Memory;
        }
        self.go_on(now, &mut actions);
        actions
    }

    /// Checks which agents are still there.
    pub fn tick(&mut self, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        self.go_on(now, &mut actions);
        actions
    }

    /// When [`Agents::tick`] is due.
    #[must_use]
    pub fn wake_at(&self) -> Option<Duration> {
        self.agents.iter().filter(|agent| agent.call.is_none()).map(|agent| agent.check_at).min()
    }

    /// An agent with the monitor's protocol is there: it is the only one. Pending registrations are refused.
    pub fn displace(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some(id) = self.agents.first().map(|agent| agent.id) {
            self.remove(id, "an agent with the monitor's protocol is connected", &mut actions);
        }
        self.wants = Wants::Nothing;
        actions
    }

    fn find(&mut self, id: AgentId) -> Option<&mut Agent> {
        self.agents.iter_mut().find(|agent| agent.id == id)
    }

    /// What follows from an agent's answer.
    fn take(
        &mut self,
        now: Duration,
        id: AgentId,
        what: What,
        answer: Result<(), String>,
        actions: &mut Vec<Action>,
    ) {
        let Some(agent) = self.find(id) else { return };
        if let Err(reason) = answer {
            agent.failures += 1;
            // One request that came late is no reason to lose an agent; the others change its state.
            let keep = what == What::TryUpscale
                || what == What::Id && agent.registering.is_none() && agent.failures < MOST_FAILURES;
            if keep {
                agent.check_at = now + CHECK_INTERVAL;
                if what == What::TryUpscale {
                    self.wants = Wants::Requested(now);
                }
            } else {
                self.remove(id, &reason, actions);
            }
            return;
        }
        (agent.failures, agent.check_at) = (0, now + CHECK_INTERVAL);
        let version = agent.version;
        let registering = if what == What::Id { agent.registering.take() } else { None };
        match what {
            What::Id => {
                if let Some(token) = registering {
                    let body = request::registered(version, self.metrics_port);
                    actions.push(Action::Answer { token, status: 200, body });
                }
            }
            What::Suspend => self.set_current(None, actions),
            What::Resume => {
                self.set_current(Some((id, version)), actions);
                if let Wants::Requested(_) = self.wants {
                    self.wants = Wants::Memory;
                }
            }
            What::TryUpscale => {
                if self.wants == Wants::Memory {
                    self.wants = Wants::Requested(now);
                }
            }
        }
    }

    fn set_current(&mut self, new: Option<(AgentId, InformantProtoVersion)>, actions: &mut Vec<Action>) {
        let id = new.map(|(id, _)| id);
        if self.current != id {
            self.current = id;
            actions.push(Action::Current(new.map(|(_, version)| version)));
        }
    }

    /// Removes an agent; whether it was the current one.
    fn remove(&mut self, id: AgentId, reason: &str, actions: &mut Vec<Action>) -> bool {
        let Some(place) = self.agents.iter().position(|agent| agent.id == id) else { return false };
        let agent = self.agents.remove(place);
        if let Some(token) = agent.registering {
            let body = format!("agent {id} at {}: {reason}", agent.address);
            actions.push(Action::Answer { token, status: 400, body });
        }
        let was_current = self.current == Some(id);
        if was_current {
            self.set_current(None, actions);
        }
        was_current
    }

    /// Starts every request to an agent that is due: one at a time for each.
    fn go_on(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let newest = self.agents.iter().rfind(|agent| agent.registering.is_none()).map(|agent| agent.id);
        if self.current != newest {
            match self.current {
                Some(old) => self.call(old, What::Suspend, actions),
                None => newest.into_iter().for_each(|new| self.call(new, What::Resume, actions)),
            }
        } else if let (Some(current), Wants::Memory) = (self.current, self.wants) {
            self.call(current, What::TryUpscale, actions);
        }
        let due = |agent: &&Agent| agent.registering.is_some() || agent.check_at <= now;
        let checked: Vec<AgentId> = self.agents.iter().filter(due).map(|agent| agent.id).collect();
        for id in checked {
            self.call(id, What::Id, actions);
        }
    }

    fn call(&mut self, id: AgentId, what: What, actions: &mut Vec<Action>) {
        let call = self.calls + 1;
        let Some(agent) = self.find(id).filter(|agent| agent.call.is_none()) else { return };
        if what == What::TryUpscale && !agent.version.has_try_upscale() {
            return;
        }
        agent.call = Some((call, what));
        actions.push(Action::Call { call, agent: id, address: agent.address.clone(), what });
        self.calls = call;
    }
}

#[cfg(test)]
mod tests;
