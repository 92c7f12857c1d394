//! What is known of one agent.

use std::time::Duration;

use neonvm_types::informant_protocol::{AgentId, AgentIdentificationMessage};
use neonvm_types::version::InformantProtoVersion;

use super::What;

/// A registered agent, or one whose identity is being verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Agent {
    pub(super) id: AgentId,
    pub(super) address: String,
    pub(super) version: InformantProtoVersion,
    /// The `/register` that is answered once `/id` was.
    pub(super) registering: Option<u64>,
    /// The request under way, with its number.
    pub(super) call: Option<(u64, What)>,
    /// When its identity is verified next.
    pub(super) check_at: Duration,
    /// Requests to it that failed in a row.
    pub(super) failures: u32,
    /// The largest number of its changes of size: one that is not larger is a repetition.
    pub(super) changes: u64,
}

impl Agent {
    /// Whether an answer is from this agent.
    pub(super) fn identify(&self, message: &AgentIdentificationMessage) -> Result<(), String> {
        if message.sequence_number == 0 {
            return Err("its sequenceNumber is 0".to_owned());
        }
        let other = message.data.agent_id;
        if other == self.id { Ok(()) } else { Err(format!("the agent there is {other}")) }
    }
}
