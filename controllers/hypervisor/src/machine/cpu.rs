//! CPUs of a running machine.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, timeout_at};

use super::{Machine, MachineEvent};
use crate::accelerator::Accelerator;
use crate::plan::CpuMode;
use crate::qmp::QmpError;

/// How long a guest may take to give CPUs back.
const UNPLUG: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VcpuThread {
    pub cpu: u32,
    pub thread: i32,
}

/// Why CPUs cannot be plugged or unplugged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuError {
    /// The machine was made for CPUs that the guest takes on and off line.
    #[error("this machine has all its CPUs from the start: the guest takes them on and off line")]
    Sysfs,
    /// The machine was not made for it.
    #[error("{wanted} CPUs are not within {least} to {most}")]
    Range {
        /// The requested number.
        wanted: u32,
        /// Least there can be: those the machine booted with.
        least: u32,
        /// Most there can be.
        most: u32,
    },
    /// QEMU's translator does not survive it.
    #[error(
        "CPUs cannot be unplugged without KVM: QEMU's translator frees memory twice and crashes when the next one is \
         plugged; use SysfsScaling"
    )]
    UnplugUnderTcg,
    /// The guest did not give all back in time.
    #[error("the guest has {now} CPUs plugged and did not come to {wanted} within {} s", UNPLUG.as_secs())]
    Incomplete {
        /// How many are plugged.
        now: u32,
        /// The requested number.
        wanted: u32,
    },
    /// QEMU did not do it.
    #[error(transparent)]
    Qmp(#[from] QmpError),
}

#[derive(Clone, Debug, PartialEq)]
struct Slot {
    core: u64,
    /// Driver and properties to plug one.
    driver: String,
    props: Value,
    /// Where the CPU is that sits in it.
    path: Option<String>,
}

/// Reads the answer to `query-hotpluggable-cpus`, lowest core first.
fn slots(answer: &Value) -> Vec<Slot> {
    let mut slots: Vec<Slot> =
        answer.as_array().map(Vec::as_slice).unwrap_or_default().iter().map(slot).collect();
    slots.sort_by_key(|slot| slot.core);
    slots
}

fn slot(value: &Value) -> Slot {
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let props = value.get("props").cloned().unwrap_or_default();
    let number = |key: &str| props.get(key).and_then(Value::as_u64).unwrap_or(0);
    Slot {
        core: (number("socket-id") << 16) | number("core-id"),
        driver: text("type").unwrap_or_default(),
        path: text("qom-path"),
        props,
    }
}

impl Slot {
    fn is_plugged(&self) -> bool {
        self.path.is_some()
    }

    /// Those the machine booted with have no name and stay.
    fn name(&self) -> Option<&str> {
        self.path.as_deref()?.strip_prefix("/machine/peripheral/")
    }

    fn addition(&self) -> Value {
        let mut arguments = json!({"driver": self.driver, "id": format!("cpu{}", self.core)});
        if let (Some(map), Some(props)) = (arguments.as_object_mut(), self.props.as_object()) {
            for (key, value) in props {
                // Its place in NUMA follows from the rest.
                if key != "node-id" {
                    map.insert(key.clone(), value.clone());
                }
            }
        }
        arguments
    }
}

fn plugged(slots: &[Slot]) -> u32 {
    u32::try_from(slots.iter().filter(|slot| slot.is_plugged()).count()).unwrap_or(u32::MAX)
}

impl Machine {
    /// The threads of the vCPUs there are now.
    ///
    /// # Errors
    /// See [`QmpError`].
    pub async fn vcpu_threads(&self) -> Result<Vec<VcpuThread>, QmpError> {
        let answer = self.session.execute("query-cpus-fast", Value::Null).await?;
        let cpus = answer.as_array().map(Vec::as_slice).unwrap_or_default();
        let thread = |cpu: &Value| {
            let number = |key: &str| cpu.get(key).and_then(Value::as_i64);
            Some(VcpuThread {
                cpu: u32::try_from(number("cpu-index")?).ok()?,
                thread: i32::try_from(number("thread-id")?).ok()?,
            })
        };
        Ok(cpus.iter().filter_map(thread).collect())
    }

    async fn slots(&self) -> Result<Vec<Slot>, QmpError> {
        Ok(slots(&self.session.execute("query-hotpluggable-cpus", Value::Null).await?))
    }

    /// CPUs that are plugged now, in [`CpuMode::Qmp`]; those on line are fewer until the guest has taken them.
    ///
    /// # Errors
    /// See [`QmpError`].
    pub async fn plugged_cpus(&self) -> Result<u32, QmpError> {
        Ok(plugged(&self.slots().await?))
    }

    /// Plugs or unplugs CPUs, all at once, until there are `wanted`; the guest has given back what was unplugged.
    /// Threads of new CPUs are to be queried afterwards.
    ///
    /// # Errors
    /// If the machine cannot, QEMU refuses, or the guest does not give back.
    pub async fn set_cpus(&self, wanted: u32) -> Result<(), CpuError> {
        let cpu = self.plan.cpu;
        if cpu.mode == CpuMode::Sysfs {
            return Err(CpuError::Sysfs);
        }
        let (least, most) = (cpu.boot, cpu.max);
        if !(least..=most).contains(&wanted) {
            return Err(CpuError::Range { wanted, least, most });
        }
        let slots = self.slots().await?;
        let now = plugged(&slots);
        if wanted >= now {
            for slot in slots.iter().filter(|slot| !slot.is_plugged()).take(count(wanted - now)) {
                self.session.execute("device_add", slot.addition()).await?;
            }
            return Ok(());
        }
        if self.plan.accelerator == Accelerator::Tcg {
            return Err(CpuError::UnplugUnderTcg);
        }
        let mut events = self.events();
        for name in slots.iter().rev().filter_map(Slot::name).take(count(now - wanted)) {
            self.session.execute("device_del", json!({"id": name})).await?;
        }
        let until = Instant::now() + UNPLUG;
        loop {
            let now = self.plugged_cpus().await?;
            if now <= wanted {
                return Ok(());
            }
            loop {
                match timeout_at(until, events.recv()).await {
                    Ok(Ok(MachineEvent::DevicesChanged) | Err(RecvError::Lagged(_))) => break,
                    Ok(Ok(_)) => {}
                    Ok(Err(RecvError::Closed)) | Err(_) => return Err(CpuError::Incomplete { now, wanted }),
                }
            }
        }
    }
}

fn count(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_read_lowest_first() {
        let answer = json!([
            {"props": {"core-id": 1, "thread-id": 0, "node-id": 0, "socket-id": 0}, "vcpus-count": 1, "type": "host-x86_64-cpu"},
            {"props": {"core-id": 0, "thread-id": 0, "socket-id": 0}, "vcpus-count": 1, "type": "host-x86_64-cpu", "qom-path": "/machine/unattached/device[0]"},
        ]);
        let slots = slots(&answer);
        assert_eq!(plugged(&slots), 1);
        assert_eq!(slots[0].name(), None);
        assert_eq!(
            slots[1].addition(),
            json!({"driver": "host-x86_64-cpu", "id": "cpu1", "core-id": 1, "thread-id": 0, "socket-id": 0})
        );
        let named = Slot { path: Some("/machine/peripheral/cpu3".into()), ..slots[1].clone() };
        assert_eq!(named.name(), Some("cpu3"));
        assert!(super::slots(&json!({})).is_empty());
    }
}
