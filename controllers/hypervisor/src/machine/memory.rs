//! Memory of a running machine.

use neonvm_types::Bytes;
use serde_json::{Value, json};

use super::Machine;
use crate::plan::{MEMORY_BLOCK, MEMORY_DEVICE};
use crate::qmp::QmpError;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryState {
    /// What is always there.
    pub base: Bytes,
    /// What was requested from the guest beyond that.
    pub requested: Bytes,
    /// What it has beyond that.
    pub plugged: Bytes,
    /// Most it can have beyond that.
    pub most: Bytes,
}

impl MemoryState {
    /// What the guest has in all.
    #[must_use]
    pub const fn total(&self) -> Bytes {
        self.base.saturating_add(self.plugged)
    }

    /// The requested size in all.
    #[must_use]
    pub const fn target(&self) -> Bytes {
        self.base.saturating_add(self.requested)
    }

    /// Whether the guest has reached the requested size.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.plugged == self.requested
    }
}

/// Why memory cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// The machine was not made for it.
    #[error("memory of {} bytes is not within {} to {}", wanted.get(), least.get(), most.get())]
    Range {
        /// The requested size.
        wanted: Bytes,
        /// Least it can be.
        least: Bytes,
        /// Most it can be.
        most: Bytes,
    },
    /// Not whole blocks.
    #[error("memory of {} bytes is not a multiple of {} bytes", .0.get(), MEMORY_BLOCK.get())]
    Block(Bytes),
    /// QEMU did not do it.
    #[error(transparent)]
    Qmp(#[from] QmpError),
}

impl Machine {
    /// Requests that the guest has this much memory in all. The guest takes its time, and may give back less:
    /// [`super::MachineEvent::MemoryChanged`] reports the progress. The same request again wakes a guest that stopped
    /// before it reached the size.
    ///
    /// # Errors
    /// If the machine was not made for it or QEMU refuses.
    pub async fn set_memory_target(&self, wanted: Bytes) -> Result<(), MemoryError> {
        let (least, most) = (self.plan.memory.min, self.plan.memory.max);
        if wanted < least || wanted > most {
            return Err(MemoryError::Range { wanted, least, most });
        }
        let more = wanted.saturating_sub(least);
        if !more.is_multiple_of(MEMORY_BLOCK) {
            return Err(MemoryError::Block(wanted));
        }
        if least == most {
            return Ok(());
        }
        let arguments = json!({"path": MEMORY_DEVICE, "property": "requested-size", "value": more.get()});
        self.session.execute("qom-set", arguments).await?;
        Ok(())
    }

    /// Memory as QEMU sees it.
    ///
    /// # Errors
    /// See [`QmpError`].
    pub async fn memory(&self) -> Result<MemoryState, QmpError> {
        let base = self.plan.memory.min;
        if base == self.plan.memory.max {
            return Ok(MemoryState { base, ..MemoryState::default() });
        }
        let answer = self.session.execute("query-memory-devices", Value::Null).await?;
        let device = answer.as_array().and_then(|devices| {
            devices.iter().find(|device| device.pointer("/data/id") == Some(&json!("vm0")))
        });
        let number = |name: &str| {
            let value = device.and_then(|device| device.get("data")?.get(name)?.as_u64());
            value.map(Bytes::new).ok_or_else(|| QmpError::Garbage(format!("no {name} of the memory device")))
        };
        Ok(MemoryState {
            base,
            requested: number("requested-size")?,
            plugged: number("size")?,
            most: number("max-size")?,
        })
    }
}
