//! Agent to informant, v1.0 to v2.0: HTTP both ways. Guests up to v0.17 of upstream speak it; later ones have the monitor's
//! websocket. The agent uses it where no monitor answers, the guest program serves it if it is configured to.
//!
//! The informant in the guest serves `/register`, `/health-check`, `/downscale`, `/upscale` and `/unregister`; the agent
//! serves `/id`, `/resume`, `/suspend` and `/try-upscale`. A body that does not parse is answered with 400.

use serde::{Deserialize, Serialize};

use crate::{
    DecodeError, MoreResources, Quantity, Resources,
    decode::{self, field},
    version::{InformantProtoVersion, VersionRange},
};

mod agent_id;

pub use agent_id::{AgentId, AgentIdError};

/// TCP port of the informant in the guest.
pub const INFORMANT_PORT: u16 = 10301;
/// TCP port on which agents since v0.15 serve [`agent_path`], for all VMs of their node.
pub const CALLBACK_PORT: u16 = 10302;
/// Versions this build speaks, on both sides.
pub const SUPPORTED: VersionRange<InformantProtoVersion> =
    VersionRange::new(InformantProtoVersion::V1_0, InformantProtoVersion::V2_0);

/// Paths that the informant serves.
pub mod informant_path {
    /// POST [`AgentDesc`](super::AgentDesc), answered with [`InformantDesc`](super::InformantDesc).
    pub const REGISTER: &str = "/register";
    /// PUT [`AgentIdentification`](super::AgentIdentification), answered with [`Empty`](super::Empty); from v1.2.
    pub const HEALTH_CHECK: &str = "/health-check";
    /// PUT, see [`decode_resources`](super::decode_resources); answered with [`DownscaleResult`](super::DownscaleResult).
    pub const DOWNSCALE: &str = "/downscale";
    /// PUT, see [`decode_resources`](super::decode_resources); answered with [`Empty`](super::Empty).
    pub const UPSCALE: &str = "/upscale";
    /// DELETE [`AgentDesc`](super::AgentDesc), answered with [`UnregisterAgent`](super::UnregisterAgent).
    pub const UNREGISTER: &str = "/unregister";
}

/// Paths that the agent serves; all answer with [`AgentIdentificationMessage`].
pub mod agent_path {
    /// GET [`Empty`](super::Empty).
    pub const ID: &str = "/id";
    /// POST [`ExpectedAgent`](super::ExpectedAgent).
    pub const RESUME: &str = "/resume";
    /// POST [`ExpectedAgent`](super::ExpectedAgent).
    pub const SUSPEND: &str = "/suspend";
    /// POST [`MoreResourcesRequest`](super::MoreResourcesRequest); from v1.1.
    pub const TRY_UPSCALE: &str = "/try-upscale";
}

/// How an agent introduces itself (`/register`, `/unregister`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentDesc {
    /// The agent's identity, new for each registration.
    #[serde(rename = "agentID", deserialize_with = "field::agent_id")]
    pub agent_id: AgentId,
    /// Where the agent serves: `host:port`, or `host:port/path`.
    #[serde(deserialize_with = "field::agent_serve_addr")]
    pub agent_serve_addr: String,
    /// The oldest version the agent speaks.
    #[serde(default, deserialize_with = "field::min_proto_version")]
    pub min_proto_version: InformantProtoVersion,
    /// The newest version the agent speaks.
    #[serde(default, deserialize_with = "field::max_proto_version")]
    pub max_proto_version: InformantProtoVersion,
}

impl AgentDesc {
    /// The versions the agent speaks.
    #[must_use]
    pub const fn versions(&self) -> VersionRange<InformantProtoVersion> {
        VersionRange::new(self.min_proto_version, self.max_proto_version)
    }
}

/// Answer to `/register`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InformantDesc {
    /// The version chosen.
    #[serde(default, deserialize_with = "field::proto_version")]
    pub proto_version: InformantProtoVersion,
    /// How metrics are read.
    #[serde(default, deserialize_with = "field::metrics_method")]
    pub metrics_method: MetricsMethod,
}

/// How metrics are read; at most one is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricsMethod {
    /// From a Prometheus endpoint in the guest.
    #[serde(default, deserialize_with = "field::prometheus", skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<MetricsMethodPrometheus>,
}

/// A Prometheus endpoint in the guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricsMethodPrometheus {
    /// Its TCP port.
    #[serde(default, deserialize_with = "field::port")]
    pub port: u16,
}

/// Identity of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentIdentification {
    /// The identity given at registration.
    #[serde(rename = "agentID", deserialize_with = "field::agent_id")]
    pub agent_id: AgentId,
}

/// A message with its place in the agent's sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "T: Deserialize<'de> + Default"))]
pub struct AgentMessage<T> {
    /// The message itself.
    #[serde(deserialize_with = "field::data")]
    pub data: T,
    /// Its place, from 1; 0 is invalid.
    #[serde(default, deserialize_with = "field::sequence_number")]
    pub sequence_number: u64,
}

/// The agent's answer to every call of the informant.
pub type AgentIdentificationMessage = AgentMessage<AgentIdentification>;
/// A change of size, from v2.0.
pub type AgentResourceMessage = AgentMessage<ResourceMessage>;

/// CPU and memory as quantities; either may be null. The body of `/upscale` and `/downscale` before v2.0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawResources {
    /// CPU.
    #[serde(default, deserialize_with = "field::cpu")]
    pub cpu: Option<Quantity>,
    /// Memory.
    #[serde(default, deserialize_with = "field::memory")]
    pub memory: Option<Quantity>,
}

impl From<Resources> for RawResources {
    fn from(resources: Resources) -> Self {
        Self { cpu: Some(resources.vcpus.to_quantity()), memory: Some(resources.mem.to_quantity()) }
    }
}

/// [`RawResources`] signed by the agent: the two fields and `id` side by side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceMessage {
    /// CPU.
    #[serde(default, deserialize_with = "field::cpu")]
    pub cpu: Option<Quantity>,
    /// Memory.
    #[serde(default, deserialize_with = "field::memory")]
    pub memory: Option<Quantity>,
    /// Agent that sends the request.
    #[serde(deserialize_with = "field::id")]
    pub id: AgentIdentification,
}

/// Answer to `/downscale`; JSON `{"Ok":true,"Status":"…"}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DownscaleResult {
    /// Whether the VM may shrink.
    #[serde(rename = "Ok", alias = "ok")]
    pub ok: bool,
    /// Why, for people.
    #[serde(rename = "Status", alias = "status", default)]
    pub status: String,
}

/// Body of `/try-upscale`: [`MoreResources`] and `expectedID` side by side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoreResourcesRequest {
    /// More CPU.
    #[serde(default, deserialize_with = "field::cpu")]
    pub cpu: bool,
    /// More memory.
    #[serde(default, deserialize_with = "field::memory")]
    pub memory: bool,
    /// The agent meant.
    #[serde(rename = "expectedID", deserialize_with = "field::expected_id")]
    pub expected_id: AgentId,
}

impl MoreResourcesRequest {
    /// What is wanted.
    #[must_use]
    pub const fn more(&self) -> MoreResources {
        MoreResources { cpu: self.cpu, memory: self.memory }
    }
}

/// Body of `/suspend` and `/resume`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedAgent {
    /// The agent meant.
    #[serde(rename = "expectedID", deserialize_with = "field::expected_id")]
    pub expected_id: AgentId,
}

/// Answer to `/unregister`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnregisterAgent {
    /// Whether the agent was the current one.
    #[serde(default)]
    pub was_active: bool,
}

/// An empty document, `{}`: the answer to `/upscale` and `/health-check`, the body of `/id`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Empty {}

/// Reads a change of size in the shape of the version agreed on. Before v2.0 it carries no identity.
///
/// # Errors
/// Names the field at fault; a sequence number of 0 is one.
pub fn decode_resources(
    body: &[u8],
    version: InformantProtoVersion,
) -> Result<(RawResources, Option<(AgentId, u64)>), DecodeError> {
    const WHAT: &str = "informant resources";
    if !version.signs_resource_updates() {
        return Ok((decode::from_slice(WHAT, body)?, None));
    }
    let message: AgentResourceMessage = decode::from_slice(WHAT, body)?;
    if message.sequence_number == 0 {
        return Err(DecodeError::new(WHAT, "sequenceNumber must not be 0"));
    }
    let ResourceMessage { cpu, memory, id } = message.data;
    Ok((RawResources { cpu, memory }, Some((id.agent_id, message.sequence_number))))
}

#[cfg(test)]
mod tests;
