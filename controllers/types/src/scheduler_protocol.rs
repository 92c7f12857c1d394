//! Agent to scheduler: `POST /` with a request, answered with a permit. Versions v1.0 to v5.0.
//!
//! Before v4.0 memory is counted in slots ([`SlotAgentRequest`]), since then in bytes ([`AgentRequest`]).
//! [`decode_request`] reads either and checks all that depends on the request alone; the scheduler checks what needs
//! cluster state. All its errors mean HTTP status 400.

use serde::{Deserialize, Serialize, Serializer};

use crate::{
    Bytes, DecodeError, NamespacedName, Resources, SlotResources,
    decode::{self, field, go_float},
    resources::ResourcesError,
    version::{PluginProtoVersion, VersionRange},
};

/// Longest request body in bytes; upstream reads no more than this.
pub const MAX_REQUEST_BYTES: usize = 1024;
/// TCP port of the scheduler's request server.
pub const REQUEST_PORT: u16 = 10299;

/// Load of a VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// One-minute load average, in running tasks.
    #[serde(rename = "loadAvg1M", deserialize_with = "field::load_avg_1m", serialize_with = "go_float::f32")]
    pub load_avg_1m: f32,
    /// Five-minute load average; sent below v5.0.
    #[serde(
        rename = "loadAvg5M",
        default,
        deserialize_with = "field::load_avg_5m",
        serialize_with = "go_float::optional_f32",
        skip_serializing_if = "Option::is_none"
    )]
    pub load_avg_5m: Option<f32>,
    /// Memory in use, in bytes; sent by some versions below v5.0.
    #[serde(
        rename = "memoryUsageBytes",
        default,
        deserialize_with = "field::memory_usage_bytes",
        serialize_with = "go_float::optional_f32",
        skip_serializing_if = "Option::is_none"
    )]
    pub memory_usage_bytes: Option<f32>,
}

/// A request with memory in bytes: v4.0 and v5.0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentRequest {
    /// The version this message follows.
    #[serde(default, deserialize_with = "field::proto_version")]
    pub proto_version: PluginProtoVersion,
    /// The VM's pod.
    #[serde(default, deserialize_with = "field::pod")]
    pub pod: NamespacedName,
    /// The step in which the agent scales; no field is zero.
    #[serde(default, deserialize_with = "field::compute_unit")]
    pub compute_unit: Resources,
    /// What the agent wants for the VM.
    #[serde(default, deserialize_with = "field::resources")]
    pub resources: Resources,
    /// The last permit the agent holds; null before the first.
    #[serde(default, deserialize_with = "field::last_permit")]
    pub last_permit: Option<Resources>,
    /// Load; null before the first measurement.
    #[serde(default, deserialize_with = "field::metrics")]
    pub metrics: Option<Metrics>,
}

/// A request with memory in slots: v1.0 to v3.0. `lastPermit` is on the wire from v2.1.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SlotAgentRequest {
    /// The version this message follows.
    #[serde(default, deserialize_with = "field::proto_version")]
    pub proto_version: PluginProtoVersion,
    /// The VM's pod.
    #[serde(default, deserialize_with = "field::pod")]
    pub pod: NamespacedName,
    /// What the agent wants for the VM.
    #[serde(default, deserialize_with = "field::resources")]
    pub resources: SlotResources,
    /// The last permit the agent holds; null before the first, absent before v2.1.
    #[serde(default, deserialize_with = "field::last_permit")]
    pub last_permit: Option<SlotResources>,
    /// Load; null before the first measurement (from v1.1).
    #[serde(default, deserialize_with = "field::metrics")]
    pub metrics: Option<Metrics>,
}

impl Serialize for SlotAgentRequest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Wire<'a> {
            proto_version: PluginProtoVersion,
            pod: &'a NamespacedName,
            resources: SlotResources,
            #[serde(skip_serializing_if = "Option::is_none")]
            last_permit: Option<Option<SlotResources>>,
            metrics: Option<Metrics>,
        }
        let wire = Wire {
            proto_version: self.proto_version,
            pod: &self.pod,
            resources: self.resources,
            last_permit: self.proto_version.has_last_permit().then_some(self.last_permit),
            metrics: self.metrics,
        };
        wire.serialize(serializer)
    }
}

impl SlotAgentRequest {
    /// The same request with memory in bytes. Old agents do not name a compute unit, so the node's is put in.
    /// `lastPermit` is converted too; upstream forgets it, which makes old agents unusable.
    ///
    /// # Errors
    /// When slots times slot size need more than 64 bits.
    pub fn to_bytes(
        &self,
        slot_size: Bytes,
        compute_unit: Resources,
    ) -> Result<AgentRequest, ResourcesError> {
        Ok(AgentRequest {
            proto_version: self.proto_version,
            pod: self.pod.clone(),
            compute_unit,
            resources: self.resources.to_bytes(slot_size)?,
            last_permit: self.last_permit.map(|permit| permit.to_bytes(slot_size)).transpose()?,
            metrics: self.metrics,
        })
    }
}

/// A request of any version.
#[derive(Clone, Debug, PartialEq)]
pub enum SchedulerRequest {
    /// v4.0 and later.
    Bytes(AgentRequest),
    /// Before v4.0.
    Slots(SlotAgentRequest),
}

/// Why a request is answered with 400.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RequestError {
    /// The body, without white space at its end, is longer than [`MAX_REQUEST_BYTES`].
    #[error("request of {0} bytes is longer than {MAX_REQUEST_BYTES}")]
    TooLong(usize),
    /// The body is not the JSON document it should be.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// No shared version; zero is never shared.
    #[error("protoVersion {sent} is not supported; supported: {accepted}")]
    Version {
        /// What the agent speaks.
        sent: PluginProtoVersion,
        /// What the scheduler accepts.
        accepted: VersionRange<PluginProtoVersion>,
    },
    /// A field of `computeUnit` is zero.
    #[error("computeUnit: {0}")]
    ComputeUnit(ResourcesError),
    /// Metrics are null in a version that needs them.
    #[error("metrics must not be null in {0}")]
    MissingMetrics(PluginProtoVersion),
    /// An extended metric is missing or superfluous.
    #[error("metrics: {field} must be {} in {version}", if *.required { "present" } else { "absent" })]
    Metrics {
        /// JSON name of the field.
        field: &'static str,
        /// Whether it must be present.
        required: bool,
        /// The version of the message.
        version: PluginProtoVersion,
    },
    /// A fraction of a CPU in a version that has whole CPUs only.
    #[error("{field}: vCPUs must be a whole number in {version}")]
    FractionalCpu {
        /// The field it is in.
        field: &'static str,
        /// The version of the message.
        version: PluginProtoVersion,
    },
}

/// Decodes and checks a request of any version in `accepted`.
///
/// # Errors
/// Each means HTTP status 400; the text is for the agent's log and names the field.
pub fn decode_request(
    body: &[u8],
    accepted: VersionRange<PluginProtoVersion>,
) -> Result<SchedulerRequest, RequestError> {
    #[derive(Deserialize)]
    struct Peek {
        #[serde(rename = "protoVersion", default, deserialize_with = "field::proto_version")]
        proto_version: PluginProtoVersion,
    }

    const WHAT: &str = "scheduler request";
    // Upstream stops reading at the end of the document.
    let body = body.trim_ascii_end();
    if body.len() > MAX_REQUEST_BYTES {
        return Err(RequestError::TooLong(body.len()));
    }
    let sent = decode::from_slice::<Peek>(WHAT, body)?.proto_version;
    if VersionRange::only(sent).highest_shared(&accepted).is_none() {
        return Err(RequestError::Version { sent, accepted });
    }
    if sent.memory_is_bytes() {
        let request: AgentRequest = decode::from_slice(WHAT, body)?;
        request.compute_unit.validate_non_zero().map_err(RequestError::ComputeUnit)?;
        check_metrics(sent, request.metrics)?;
        return Ok(SchedulerRequest::Bytes(request));
    }
    let request: SlotAgentRequest = decode::from_slice(WHAT, body)?;
    check_metrics(sent, request.metrics)?;
    let permit_whole = request.last_permit.is_none_or(|permit| permit.vcpus.is_whole());
    for (field, whole) in [("resources", request.resources.vcpus.is_whole()), ("lastPermit", permit_whole)] {
        if !whole && !sent.supports_fractional_cpu() {
            return Err(RequestError::FractionalCpu { field, version: sent });
        }
    }
    Ok(SchedulerRequest::Slots(request))
}

fn check_metrics(version: PluginProtoVersion, metrics: Option<Metrics>) -> Result<(), RequestError> {
    let Some(metrics) = metrics else {
        return if version.allows_nil_metrics() {
            Ok(())
        } else {
            Err(RequestError::MissingMetrics(version))
        };
    };
    let required = version.includes_extended_metrics();
    if metrics.load_avg_5m.is_some() != required {
        return Err(RequestError::Metrics { field: "loadAvg5M", required, version });
    }
    // With memory in slots, `memoryUsageBytes` came late and depends on the release, so it is optional there.
    if version.memory_is_bytes() && metrics.memory_usage_bytes.is_some() != required {
        return Err(RequestError::Metrics { field: "memoryUsageBytes", required, version });
    }
    Ok(())
}

/// Present in a response when the VM is being migrated to another node; JSON `{}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Migrate {}

/// The scheduler's answer. `R` is [`SlotResources`] for versions before v4.0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "R: Deserialize<'de> + Default"))]
pub struct PluginResponse<R = Resources> {
    /// What the VM may use; never more than requested.
    #[serde(default, deserialize_with = "field::permit")]
    pub permit: R,
    /// Present when the VM is being migrated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migrate: Option<Migrate>,
    /// The compute unit; present before v3.0 only.
    #[serde(default, deserialize_with = "field::resource_unit", skip_serializing_if = "Option::is_none")]
    pub resource_unit: Option<R>,
}

impl<R> PluginResponse<R> {
    /// A permit without a migration.
    #[must_use]
    pub const fn permit(permit: R) -> Self {
        Self { permit, migrate: None, resource_unit: None }
    }
}

impl PluginResponse {
    /// Decodes the answer to an [`AgentRequest`].
    ///
    /// # Errors
    /// Names the field at fault.
    pub fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        decode::from_slice("scheduler response", body)
    }
}

#[cfg(test)]
mod tests;
