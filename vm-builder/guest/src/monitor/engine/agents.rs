//! What the policy and the agents have for each other, whichever protocol the current one has.

use std::time::Duration;

use neonvm_core_vertical_scaling::monitor::Event;
use neonvm_core_vertical_scaling::monitor::informant::Action;
use neonvm_types::monitor_protocol::{AgentMessage, MonitorMessage};

use tokio::sync::mpsc::error::TrySendError;

use super::Engine;
use crate::monitor::informant::Informant;
use crate::monitor::log;
use crate::monitor::traffic::Outgoing;

impl Engine {
    /// Does what follows from something that happened to the informant's agents.
    pub(super) fn with_agents(&mut self, happened: impl FnOnce(&mut Informant, Duration) -> Vec<Action>) {
        let now = self.start.elapsed();
        let Some(informant) = &mut self.informant else { return };
        for action in happened(informant, now) {
            match action {
                Action::Answer { token, status, body } => {
                    if let Some(informant) = &mut self.informant {
                        informant.answer(token, status, body);
                    }
                }
                Action::Call { .. } => {
                    if let Some(informant) = &self.informant {
                        informant.call(action);
                    }
                }
                Action::Current(None) => {
                    log("informant: no agent is the current one");
                    self.step(Event::Disconnected);
                }
                Action::Current(Some(version)) => {
                    log(&format!("informant: an agent is the current one, protocol {version}"));
                    let total = self.sampler.total().unwrap_or_default();
                    self.step(Event::Registered { total });
                }
                Action::Resize { token, down, size } => {
                    let message = if down {
                        AgentMessage::DownscaleRequest { target: size.into() }
                    } else {
                        AgentMessage::UpscaleNotification { granted: size.into() }
                    };
                    self.step(Event::Message { id: token, message });
                }
            }
        }
    }

    /// What the policy has for the agent that counts; whether that has room for it.
    pub(super) fn send(&mut self, id: u64, message: MonitorMessage) -> Result<(), &'static str> {
        if let Some(agent) = &self.agent {
            let Ok(text) = message.encode(id) else { return Ok(()) };
            return agent.outgoing.try_send(Outgoing::Text(text)).map_err(|error| unsent(&error));
        }
        if let MonitorMessage::UpscaleRequest { .. } = message {
            self.with_agents(|informant, now| informant.agents.want_memory(now));
        } else if let Some(informant) = &mut self.informant {
            informant.send(id, message);
        }
        Ok(())
    }
}

/// Why a message cannot be sent. The session of an agent that has closed its connection ends before the engine knows of it.
fn unsent(error: &TrySendError<Outgoing>) -> &'static str {
    match error {
        TrySendError::Full(_) => "the agent does not read what it asks for",
        TrySendError::Closed(_) => "the agent is gone",
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    /// An answer to an agent that has closed its connection meanwhile is no fault of the agent.
    #[test]
    fn an_agent_that_is_gone_is_not_called_deaf() {
        let (sender, mut receiver) = mpsc::channel(1);
        let text = || Outgoing::Text(String::new());
        sender.try_send(text()).unwrap();
        assert!(unsent(&sender.try_send(text()).unwrap_err()).contains("does not read"));
        receiver.close();
        assert_eq!(unsent(&sender.try_send(text()).unwrap_err()), "the agent is gone");
    }
}
