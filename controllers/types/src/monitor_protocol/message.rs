//! The messages after the handshake, and their two shapes.

use serde::{Deserialize, Serialize};

use super::Allocation;
use crate::{
    Bytes, MilliCpu,
    decode::{self, field},
};

/// What a guest that is short of something wants, from v2.0 on; JSON `{"cpu":2,"mem":"1Gi","reason":"…"}`. A missing
/// field requests nothing. Amounts are of the whole VM, not what is to be added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wants {
    /// CPU that its runnable tasks could use now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<MilliCpu>,
    /// Memory it needs now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mem: Option<Bytes>,
    /// Why, for people.
    #[serde(default)]
    pub reason: String,
}

/// What the agent sends; on the wire `{"content":{…},"type":"…","id":2}`.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentMessage {
    /// The VM has grown to this. Answer: [`MonitorMessage::UpscaleConfirmation`].
    UpscaleNotification {
        /// The new size.
        granted: Allocation,
    },
    /// May the VM shrink to this? Answer: [`MonitorMessage::DownscaleResult`].
    DownscaleRequest {
        /// The size wanted.
        target: Allocation,
    },
    /// Are you there? Answer: [`MonitorMessage::HealthCheck`].
    HealthCheck,
    /// The message with this id that you sent is invalid. No answer.
    InvalidMessage {
        /// What was wrong.
        error: String,
    },
    /// Your message with this id could not be served. No answer.
    InternalError {
        /// What went wrong.
        error: String,
    },
}

/// What the monitor sends; on the wire `{"type":"…",…,"id":3}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MonitorMessage {
    /// More is needed now: memory by a compute unit (v1.0), or the amounts in `wants` (from v2.0 on; repeated while
    /// they are still wanted). Answered later, by an upscale notification with another id.
    UpscaleRequest {
        /// Absent in v1.0.
        wants: Option<Wants>,
    },
    /// The new size is in use.
    UpscaleConfirmation,
    /// Whether the VM may shrink.
    DownscaleResult {
        /// Whether it may.
        ok: bool,
        /// Why, for people.
        status: String,
    },
    /// I am here.
    HealthCheck,
    /// Your message with this id could not be served.
    InternalError {
        /// What went wrong.
        error: String,
    },
    /// The message with this id that you sent is invalid.
    InvalidMessage {
        /// What was wrong.
        error: String,
    },
}

/// A message that cannot be used. With an id, it should be answered with `InvalidMessage`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct MessageError {
    /// The message's number, if that much could be read.
    pub id: Option<u64>,
    /// What is wrong.
    pub reason: String,
}

fn missing(id: u64, kind: &str, field: &str) -> MessageError {
    MessageError { id: Some(id), reason: format!("{kind}: {field} is missing") }
}

/// `content` of all agent messages together.
#[derive(Default, Serialize, Deserialize)]
struct Content {
    #[serde(default, deserialize_with = "field::granted", skip_serializing_if = "Option::is_none")]
    granted: Option<Allocation>,
    #[serde(default, deserialize_with = "field::target", skip_serializing_if = "Option::is_none")]
    target: Option<Allocation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Wrapped {
    #[serde(default, deserialize_with = "field::content")]
    content: Option<Content>,
    #[serde(rename = "type")]
    kind: String,
    #[serde(deserialize_with = "decode::whole_number")]
    id: u64,
}

/// All monitor messages together.
#[derive(Default, Serialize, Deserialize)]
struct Flat {
    #[serde(rename = "type")]
    kind: String,
    #[serde(rename = "Ok", alias = "ok", skip_serializing_if = "Option::is_none")]
    ok: Option<bool>,
    #[serde(rename = "Status", alias = "status", skip_serializing_if = "Option::is_none")]
    status: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wants: Option<Wants>,
    #[serde(deserialize_with = "decode::whole_number")]
    id: u64,
}

/// Reads just the number, for answering a message that is otherwise wrong.
fn peek_id(body: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Peek {
        #[serde(deserialize_with = "decode::whole_number")]
        id: u64,
    }
    serde_json::from_slice::<Peek>(body).ok().map(|peek| peek.id)
}

fn parse<'de, T: Deserialize<'de>>(what: &'static str, body: &'de [u8]) -> Result<T, MessageError> {
    decode::from_slice(what, body)
        .map_err(|error| MessageError { id: peek_id(body), reason: error.to_string() })
}

impl AgentMessage {
    /// The value of `type`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::UpscaleNotification { .. } => "UpscaleNotification",
            Self::DownscaleRequest { .. } => "DownscaleRequest",
            Self::HealthCheck => "HealthCheck",
            Self::InvalidMessage { .. } => "InvalidMessage",
            Self::InternalError { .. } => "InternalError",
        }
    }

    /// The message as a JSON document with number `id`.
    ///
    /// # Errors
    /// When an allocation's `cpu` is not finite.
    pub fn encode(&self, id: u64) -> Result<String, MessageError> {
        let mut content = Content::default();
        match self {
            Self::UpscaleNotification { granted } => content.granted = Some(*granted),
            Self::DownscaleRequest { target } => content.target = Some(*target),
            Self::HealthCheck => {}
            Self::InvalidMessage { error } | Self::InternalError { error } => {
                content.error = Some(error.clone());
            }
        }
        encode(id, &Wrapped { content: Some(content), kind: self.kind().to_owned(), id })
    }

    /// Reads a message and its number.
    ///
    /// # Errors
    /// When the document, its type or its content is wrong; the error carries the number if there is one.
    pub fn decode(body: &[u8]) -> Result<(u64, Self), MessageError> {
        let Wrapped { content, kind, id } = parse("agent message", body)?;
        let content = content.ok_or_else(|| missing(id, &kind, "content"))?;
        let error = content.error.ok_or_else(|| missing(id, &kind, "content.error"));
        let message = match kind.as_str() {
            "UpscaleNotification" => Self::UpscaleNotification {
                granted: content.granted.ok_or_else(|| missing(id, &kind, "content.granted"))?,
            },
            "DownscaleRequest" => Self::DownscaleRequest {
                target: content.target.ok_or_else(|| missing(id, &kind, "content.target"))?,
            },
            "HealthCheck" => Self::HealthCheck,
            "InvalidMessage" => Self::InvalidMessage { error: error? },
            "InternalError" => Self::InternalError { error: error? },
            _ => return Err(unknown(id, &kind)),
        };
        Ok((id, message))
    }
}

impl MonitorMessage {
    /// The value of `type`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::UpscaleRequest { .. } => "UpscaleRequest",
            Self::UpscaleConfirmation => "UpscaleConfirmation",
            Self::DownscaleResult { .. } => "DownscaleResult",
            Self::HealthCheck => "HealthCheck",
            Self::InternalError { .. } => "InternalError",
            Self::InvalidMessage { .. } => "InvalidMessage",
        }
    }

    /// The message as a JSON document with number `id`.
    ///
    /// # Errors
    /// None in practice; the signature mirrors [`AgentMessage::encode`].
    pub fn encode(&self, id: u64) -> Result<String, MessageError> {
        let mut flat = Flat { kind: self.kind().to_owned(), id, ..Flat::default() };
        match self {
            Self::UpscaleRequest { wants } => flat.wants.clone_from(wants),
            Self::UpscaleConfirmation | Self::HealthCheck => {}
            Self::DownscaleResult { ok, status } => {
                flat.ok = Some(*ok);
                flat.status = Some(status.clone());
            }
            Self::InternalError { error } | Self::InvalidMessage { error } => {
                flat.error = Some(error.clone());
            }
        }
        encode(id, &flat)
    }

    /// Reads a message and its number. A field that is missing has its zero value, as upstream's agent reads it: a
    /// `DownscaleResult` without `Ok` denies.
    ///
    /// # Errors
    /// When the document, its type or a field is wrong; the error carries the number if there is one.
    pub fn decode(body: &[u8]) -> Result<(u64, Self), MessageError> {
        let Flat { kind, ok, status, error, wants, id } = parse("monitor message", body)?;
        let error = error.unwrap_or_default();
        let message = match kind.as_str() {
            "UpscaleRequest" => Self::UpscaleRequest { wants },
            "UpscaleConfirmation" => Self::UpscaleConfirmation,
            "DownscaleResult" => {
                Self::DownscaleResult { ok: ok.unwrap_or_default(), status: status.unwrap_or_default() }
            }
            "HealthCheck" => Self::HealthCheck,
            "InternalError" => Self::InternalError { error },
            "InvalidMessage" => Self::InvalidMessage { error },
            _ => return Err(unknown(id, &kind)),
        };
        Ok((id, message))
    }

    /// Whether this is a failure instead of an answer to what was requested.
    #[must_use]
    pub const fn is_error(&self) -> bool {
        matches!(self, Self::InternalError { .. } | Self::InvalidMessage { .. })
    }

    /// Whether this answers `request`. Upstream does not compare and fails on an answer of another kind.
    /// Errors answer everything.
    #[must_use]
    pub const fn answers(&self, request: &AgentMessage) -> bool {
        matches!(
            (request, self),
            (AgentMessage::UpscaleNotification { .. }, Self::UpscaleConfirmation)
                | (AgentMessage::DownscaleRequest { .. }, Self::DownscaleResult { .. })
                | (AgentMessage::HealthCheck, Self::HealthCheck)
                | (_, Self::InternalError { .. } | Self::InvalidMessage { .. })
        )
    }
}

fn unknown(id: u64, kind: &str) -> MessageError {
    let shown: String = kind.chars().take(40).collect();
    MessageError { id: Some(id), reason: format!("type {shown:?} is not known") }
}

fn encode(id: u64, message: &impl Serialize) -> Result<String, MessageError> {
    serde_json::to_string(message).map_err(|error| MessageError { id: Some(id), reason: error.to_string() })
}
