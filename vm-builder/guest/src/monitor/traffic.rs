//! What sessions and engine send each other.

use neonvm_core_vertical_scaling::monitor::informant::Request;
use neonvm_types::informant_protocol::AgentIdentificationMessage;
use neonvm_types::version::MonitorProtoVersion;
use tokio::sync::{mpsc, oneshot};
use tokio_tungstenite::tungstenite::Utf8Bytes;

#[derive(Debug)]
pub(super) enum Outgoing {
    Text(String),
    Close(String),
}

#[derive(Debug)]
pub(super) enum Input {
    Connected { session: u64, version: MonitorProtoVersion, outgoing: mpsc::Sender<Outgoing> },
    Text { session: u64, text: Utf8Bytes },
    Gone { session: u64 },
    // A request of an agent with the informant's protocol, and where its answer goes: status and body.
    Request { request: Request, answer: oneshot::Sender<(u16, String)> },
    // What came of a request to such an agent.
    Called { call: u64, result: Result<AgentIdentificationMessage, String> },
    // PostgreSQL carried out the request, or failed.
    FileCacheSet { token: u64, result: Result<u64, String> },
}
