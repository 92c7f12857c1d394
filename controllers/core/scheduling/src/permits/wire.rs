//! Requests and answers of every version.

use std::time::Duration;

use neonvm_types::scheduler_protocol::{Migrate, PluginResponse, SchedulerRequest};
use neonvm_types::version::PluginProtoVersion;
use neonvm_types::{Bytes, MilliCpu, Resources, SlotResources};
use serde::Serialize;

use super::request::whole_slots;
use super::{Refusal, Request, State};

/// The answer in the form that the agent's version has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum WireResponse {
    /// v4.0 and later.
    Bytes(PluginResponse),
    /// Before.
    Slots(PluginResponse<SlotResources>),
}

impl State {
    /// Answers a request as it came.
    ///
    /// # Errors
    /// As [`State::request`], and if its amounts do not fit the VM's slots.
    pub fn answer(&mut self, now: Duration, request: &SchedulerRequest) -> Result<WireResponse, Refusal> {
        match request {
            SchedulerRequest::Bytes(message) => {
                let asked = Request {
                    version: message.proto_version,
                    unit: message.compute_unit,
                    resources: message.resources,
                    last_permit: message.last_permit,
                    load: message.metrics.map(|metrics| metrics.load_avg_1m),
                };
                let reply = self.request(now, &message.pod, &asked)?;
                let migrate = reply.migrate.then_some(Migrate {});
                Ok(WireResponse::Bytes(PluginResponse { permit: reply.permit, migrate, resource_unit: None }))
            }
            SchedulerRequest::Slots(message) => {
                let slot = self.slot_size(&message.pod).inspect_err(|_| self.counters.refusals += 1)?;
                let version = message.proto_version;
                let unit = whole_slots(unit(self.settings.compute_unit, version), slot);
                let refuse = |field, reason: String| Refusal::Field { field, reason };
                let bytes = message.to_bytes(slot, unit);
                let message = bytes.map_err(|error| refuse("resources", error.to_string()))?;
                let asked = Request {
                    version,
                    unit,
                    resources: message.resources,
                    last_permit: message.last_permit,
                    load: message.metrics.map(|metrics| metrics.load_avg_1m),
                };
                let reply = self.request(now, &message.pod, &asked)?;
                let mut permit = in_slots(reply.permit, slot)?;
                if !version.supports_fractional_cpu() {
                    permit.vcpus = MilliCpu::new(permit.vcpus.milli() / 1000 * 1000);
                }
                let resource_unit =
                    if version.scheduler_sends_compute_unit() { Some(in_slots(unit, slot)?) } else { None };
                let migrate = reply.migrate.then_some(Migrate {});
                Ok(WireResponse::Slots(PluginResponse { permit, migrate, resource_unit }))
            }
        }
    }
}

/// The compute unit of an agent that does not name one: for agents without fractions of CPUs so many of them that they make
/// whole CPUs.
fn unit(configured: Resources, version: PluginProtoVersion) -> Resources {
    if version.supports_fractional_cpu() {
        return configured;
    }
    let milli = configured.vcpus.milli().max(1);
    // The least number of units that is whole CPUs: 1000 / gcd(milli, 1000).
    let (mut a, mut b) = (milli, 1000);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    let times = u16::try_from(1000 / a.max(1)).unwrap_or(1);
    configured.saturating_mul(times)
}

fn in_slots(resources: Resources, slot: Bytes) -> Result<SlotResources, Refusal> {
    SlotResources::from_bytes(resources, slot).ok_or_else(|| Refusal::Field {
        field: "resources",
        reason: format!("{} needs too many slots of {slot}", resources.mem),
    })
}
