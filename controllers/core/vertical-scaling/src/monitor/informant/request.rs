//! Requests of agents.

use std::time::Duration;

use neonvm_types::informant_protocol::{
    AgentDesc, AgentId, AgentIdentification, Empty, InformantDesc, MetricsMethod, MetricsMethodPrometheus,
    RawResources, SUPPORTED, UnregisterAgent, decode_resources,
};
use neonvm_types::version::InformantProtoVersion;
use neonvm_types::{Bytes, MilliCpu, Resources};
use serde::Serialize;

use super::agent::Agent;
use super::{Action, Agents, MOST_AGENTS, Wants};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// `POST /register`.
    Register(AgentDesc),
    /// `PUT /health-check`.
    HealthCheck(AgentIdentification),
    /// `PUT /downscale` or `/upscale`. The shape of the body depends on the version of the current agent.
    Change {
        /// Whether it asks for consent to less.
        down: bool,
        body: Vec<u8>,
    },
    /// `DELETE /unregister`.
    Unregister(AgentDesc),
}

type Refused = (u16, String);

/// The answer to `/register`.
pub(super) fn registered(version: InformantProtoVersion, port: u16) -> String {
    let prometheus = Some(MetricsMethodPrometheus { port });
    let metrics_method = MetricsMethod { prometheus };
    json(&InformantDesc { proto_version: version, metrics_method })
}

fn json(document: &impl Serialize) -> String {
    serde_json::to_string(document).unwrap_or_default()
}

impl Agents {
    pub(super) fn answer(&mut self, token: u64, request: &Request, actions: &mut Vec<Action>) {
        let answered = match request {
            // Answered when the identity was verified.
            Request::Register(agent) => self.register(token, agent, actions).map(|()| None),
            Request::HealthCheck(agent) => self.health_check(agent.agent_id).map(Some),
            Request::Change { down, body } => self.change(body).map(|size| {
                if !down {
                    self.wants = Wants::Nothing;
                }
                actions.push(Action::Resize { token, down: *down, size });
                None
            }),
            Request::Unregister(agent) => self.unregister(agent, actions).map(Some),
        };
        match answered {
            Ok(None) => {}
            Ok(Some(body)) => actions.push(Action::Answer { token, status: 200, body }),
            Err((status, body)) => actions.push(Action::Answer { token, status, body }),
        }
    }

    fn register(&mut self, token: u64, agent: &AgentDesc, actions: &mut Vec<Action>) -> Result<(), Refused> {
        let offered = agent.versions();
        let Some(version) = SUPPORTED.highest_shared(&offered) else {
            return Err((400, format!("no shared version: agent speaks {offered}, informant {SUPPORTED}")));
        };
        if self.find(agent.agent_id).is_some() {
            return Err((409, format!("agent {} is registered already", agent.agent_id)));
        }
        self.make_room(actions)?;
        self.agents.push(Agent {
            id: agent.agent_id,
            address: agent.agent_serve_addr.clone(),
            version,
            registering: Some(token),
            call: None,
            check_at: Duration::ZERO,
            failures: 0,
            changes: 0,
        });
        Ok(())
    }

    /// The oldest agent that waits for nothing gives its place to a new one.
    fn make_room(&mut self, actions: &mut Vec<Action>) -> Result<(), Refused> {
        if self.agents.len() < MOST_AGENTS {
            return Ok(());
        }
        let current = self.current;
        let idle = |agent: &&Agent| Some(agent.id) != current && agent.registering.is_none();
        let Some(oldest) = self.agents.iter().find(idle).map(|agent| agent.id) else {
            return Err((503, format!("{MOST_AGENTS} agents register at this moment; try again")));
        };
        self.remove(oldest, "too many agents", actions);
        Ok(())
    }

    fn health_check(&mut self, id: AgentId) -> Result<String, Refused> {
        let agent = self.find(id).filter(|agent| agent.registering.is_none());
        let version = agent.map(|agent| agent.version).ok_or_else(|| unknown(id))?;
        if version.allows_health_check() {
            Ok(json(&Empty {}))
        } else {
            Err((400, format!("protocol {version} has no /health-check")))
        }
    }

    /// The size that the current agent names.
    fn change(&mut self, body: &[u8]) -> Result<Resources, Refused> {
        let none = || (400, "there is no current agent; register first".to_owned());
        let current = self.current.ok_or_else(none)?;
        let agent = self.find(current).ok_or_else(none)?;
        let (raw, signature) =
            decode_resources(body, agent.version).map_err(|error| (400, error.to_string()))?;
        if let Some((id, sequence)) = signature {
            if id != current {
                return Err((400, format!("agent {id} is not the current one")));
            }
            if sequence <= agent.changes {
                let last = agent.changes;
                return Err((400, format!("sequenceNumber {sequence} does not follow {last}")));
            }
            agent.changes = sequence;
        }
        size(raw)
    }

    fn unregister(&mut self, agent: &AgentDesc, actions: &mut Vec<Action>) -> Result<String, Refused> {
        let id = agent.agent_id;
        let known = self.find(id).ok_or_else(|| unknown(id))?;
        if known.address != agent.agent_serve_addr {
            return Err((
                400,
                format!("agentServeAddr {:?} is not that of agent {id}", agent.agent_serve_addr),
            ));
        }
        let was_active = self.remove(id, "it was unregistered", actions);
        Ok(json(&UnregisterAgent { was_active }))
    }
}

fn unknown(id: AgentId) -> Refused {
    (404, format!("agent {id} is not registered"))
}

/// Both amounts must be there.
fn size(raw: RawResources) -> Result<Resources, Refused> {
    let missing = |field: &str| (400, format!("{field} is missing or null; a quantity is required"));
    let wrong = |field: &str, error: &dyn std::fmt::Display| (400, format!("{field}: {error}"));
    let cpu = raw.cpu.ok_or_else(|| missing("cpu"))?;
    let memory = raw.memory.ok_or_else(|| missing("memory"))?;
    let vcpus = MilliCpu::try_from(cpu).map_err(|error| wrong("cpu", &error))?;
    let mem = Bytes::try_from(memory).map_err(|error| wrong("memory", &error))?;
    Ok(Resources::new(vcpus, mem))
}
