//! Agent to monitor: JSON documents in websocket text frames.
//!
//! v1.0 is the only version elsewhere: the monitor requests memory only, without an amount. From v2.0 on its request
//! has amounts of memory and CPU. Both sides speak both; the older one decides.
//!
//! The shape depends on the direction: what the agent sends is wrapped (`content` beside `type` and `id`), what the
//! monitor sends is flat (fields beside `type` and `id`). Receivers must not depend on the order of keys.

use serde::{Deserialize, Serialize, Serializer};

use crate::{
    Bytes, DecodeError, MilliCpu, Resources,
    decode::{self, field, go_float},
    version::{MonitorProtoVersion, VersionRange},
};

mod message;

pub use message::{AgentMessage, MessageError, MonitorMessage, Wants};

/// TCP port of the monitor in the guest.
pub const MONITOR_PORT: u16 = 10301;
/// Path of the monitor's websocket.
pub const MONITOR_PATH: &str = "/monitor";
/// Versions this build speaks.
pub const SUPPORTED: VersionRange<MonitorProtoVersion> =
    VersionRange::new(MonitorProtoVersion::V1_0, MonitorProtoVersion::V2_0);

/// An amount as the monitor sees it; JSON `{"cpu":0.333,"mem":1073741824}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Allocation {
    /// CPUs.
    #[serde(default, deserialize_with = "field::cpu", serialize_with = "go_float::f64")]
    pub cpu: f64,
    /// Memory in bytes.
    #[serde(default, deserialize_with = "field::mem")]
    pub mem: u64,
}

impl From<Resources> for Allocation {
    fn from(resources: Resources) -> Self {
        Self { cpu: resources.vcpus.as_f64(), mem: resources.mem.get() }
    }
}

impl Allocation {
    /// The amount in exact units, to the nearest thousandth of a CPU; `None` if `cpu` is negative, not finite or too
    /// large.
    #[must_use]
    pub fn to_resources(self) -> Option<Resources> {
        let milli = (self.cpu * 1000.0).round();
        // Printing is exact for whole numbers; it turns NaN, infinities and negatives into texts that do not parse.
        let vcpus = format!("{:.0}", milli.abs()).parse().ok().map(MilliCpu::new)?;
        (self.cpu >= 0.0).then_some(Resources { vcpus, mem: Bytes::new(self.mem) })
    }
}

/// The monitor's half of the handshake; JSON `{"version":1}` or `{"error":"…"}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandshakeReply {
    /// The version chosen out of the agent's range.
    Version(MonitorProtoVersion),
    /// Why none was.
    Error(String),
}

/// Why the handshake failed at the agent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// Not the document it should be.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The monitor refused.
    #[error("monitor refused the connection: {0}")]
    Refused(String),
    /// The monitor chose a version that was not offered. Upstream does not check this.
    #[error("monitor chose version {chosen}, which was not offered; offered: {offered}")]
    NotOffered {
        /// What the monitor chose.
        chosen: MonitorProtoVersion,
        /// What the agent offered.
        offered: VersionRange<MonitorProtoVersion>,
    },
}

impl HandshakeReply {
    /// The monitor's answer to the range an agent offers.
    #[must_use]
    pub fn to_offer(
        offered: VersionRange<MonitorProtoVersion>,
        supported: VersionRange<MonitorProtoVersion>,
    ) -> Self {
        match supported.highest_shared(&offered) {
            Some(version) => Self::Version(version),
            None => Self::Error(format!("no shared version: agent speaks {offered}, monitor {supported}")),
        }
    }

    /// Reads the monitor's answer and checks it against the range that was offered.
    ///
    /// # Errors
    /// When the answer has neither or both keys, is a refusal, or names a version that was not offered.
    pub fn accept(
        body: &[u8],
        offered: VersionRange<MonitorProtoVersion>,
    ) -> Result<MonitorProtoVersion, HandshakeError> {
        match Self::decode(body)? {
            Self::Error(reason) => Err(HandshakeError::Refused(reason)),
            Self::Version(chosen) if VersionRange::only(chosen).highest_shared(&offered).is_some() => {
                Ok(chosen)
            }
            Self::Version(chosen) => Err(HandshakeError::NotOffered { chosen, offered }),
        }
    }

    /// Reads the monitor's answer.
    ///
    /// # Errors
    /// When it has neither or both keys; upstream takes neither for version 0.
    pub fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        #[derive(Deserialize)]
        struct Wire {
            version: Option<MonitorProtoVersion>,
            error: Option<String>,
        }

        const WHAT: &str = "monitor handshake";
        match decode::from_slice::<Wire>(WHAT, body)? {
            Wire { version: Some(version), error: None } => Ok(Self::Version(version)),
            Wire { version: None, error: Some(error) } => Ok(Self::Error(error)),
            _ => Err(DecodeError::new(WHAT, "exactly one of version and error must be present")),
        }
    }
}

impl Serialize for HandshakeReply {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "lowercase")]
        enum Wire<'a> {
            Version(MonitorProtoVersion),
            Error(&'a str),
        }
        match self {
            Self::Version(version) => Wire::Version(*version).serialize(serializer),
            Self::Error(error) => Wire::Error(error).serialize(serializer),
        }
    }
}

/// Reads the range of versions an agent offers; JSON `{"min":1,"max":1}`.
///
/// # Errors
/// When it is not that document.
pub fn decode_offer(body: &[u8]) -> Result<VersionRange<MonitorProtoVersion>, DecodeError> {
    decode::from_slice("monitor handshake", body)
}

/// Numbers for new messages: even ones for the agent, odd ones for the monitor, so that they never meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageIds(u64);

impl MessageIds {
    /// 2, 4, 6, …
    pub const AGENT: Self = Self(0);
    /// 3, 5, 7, …
    pub const MONITOR: Self = Self(1);
}

impl MessageIds {
    /// The next number. Wraps after 2^63 messages, keeping even and odd apart.
    #[must_use = "the number is used up"]
    pub fn advance(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(2);
        self.0
    }
}

#[cfg(test)]
mod tests;
