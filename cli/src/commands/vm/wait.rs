//! `vm wait`

use neonvm_api::VirtualMachine;
use neonvm_types::{Bytes, MilliCpu};

use super::waiting::until;
use crate::args::vm::Wait;
use crate::commands::finals::{self, Awaited};
use crate::commands::flags::duration;
use crate::commands::resource::{self, Comparison, NamespaceClient, name_of, wait};
use crate::commands::vm::size;
use crate::commands::vm::table::observed;
use crate::commands::watching::WaitProgress;
use crate::connect::block_on;
use crate::error::{Code, Error, Result};
use crate::report::Report;
use crate::settings::Settings;

pub(crate) fn run(settings: &Settings, args: &Wait) -> Result<Report> {
    let predicate = Predicate::parse(&args.predicate)?;
    let limit = duration("timeout", &args.timeout)?;
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        client.find::<VirtualMachine>(&args.name).await?;
        let name = &args.name;
        let look = |vm: Option<&VirtualMachine>| match wait::seen(name, vm, |vm| predicate.holds(vm)) {
            WaitProgress::NotYet => vm.map_or(WaitProgress::NotYet, |vm| predicate.ending(vm)),
            ended => ended,
        };
        let waited = until(&client, name, limit, &args.predicate, look).await?;
        Ok(wait::report(name, &args.predicate, waited))
    })
}

#[derive(Clone, Debug, PartialEq)]
enum Predicate {
    Cpu(Comparison, MilliCpu),
    Memory(Comparison, Bytes),
    Units(Comparison, u32),
}

impl Predicate {
    fn parse(text: &str) -> Result<Self> {
        let bad = || {
            Error::new(Code::Usage, format!("--for: {text:?} is not a valid condition"))
                .hint("use cpu>=N, memory>=SIZE or cu>=N (also =, <=); for other conditions use kubectl wait")
        };
        let (key, comparison, value) = resource::split(text).ok_or_else(bad)?;
        Ok(match key {
            "cpu" => Self::Cpu(comparison, size::cpu("for", value)?),
            "memory" => Self::Memory(comparison, size::memory("for", value)?),
            "cu" => Self::Units(comparison, value.parse().map_err(|_| bad())?),
            _ => return Err(bad()),
        })
    }

    /// Whether it can become true: not beyond the bounds of the VM, and not as long as another command is needed first.
    fn ending(&self, machine: &VirtualMachine) -> WaitProgress {
        let guest = &machine.spec.guest;
        let slot = guest.slot_size().unwrap_or_default();
        let cpu = (guest.cpus.min, guest.cpus.max);
        let memory = (guest.memory_slots.min, guest.memory_slots.max);
        let memory = (slot.saturating_mul(u32::from(memory.0)), slot.saturating_mul(u32::from(memory.1)));
        let is_out = match self {
            Self::Cpu(comparison, wanted) => comparison.is_out_of(wanted, &cpu.0, &cpu.1),
            Self::Memory(comparison, wanted) => comparison.is_out_of(wanted, &memory.0, &memory.1),
            Self::Units(comparison, wanted) => {
                comparison.is_out_of(&u64::from(*wanted), &units(cpu.0, memory.0), &units(cpu.1, memory.1))
            }
        };
        if !is_out {
            return finals::of_vm(Awaited::Size, machine);
        }
        let name = name_of(machine);
        let error =
            Error::new(Code::Conflict, format!("{name} cannot have this size: it is beyond its bounds"))
                .cause(format!(
                    "{} to {} CPU, {} to {}",
                    size::cores(cpu.0),
                    size::cores(cpu.1),
                    memory.0,
                    memory.1
                ));
        WaitProgress::Never(error.hint(format!("change its bounds: neonctl vm set {name} --cpu MIN..MAX")))
    }

    fn holds(&self, machine: &VirtualMachine) -> bool {
        let (cpu, memory) = observed(machine);
        match self {
            Self::Cpu(comparison, wanted) => cpu > MilliCpu::ZERO && comparison.holds(&cpu, wanted),
            Self::Memory(comparison, wanted) => memory > Bytes::ZERO && comparison.holds(&memory, wanted),
            Self::Units(comparison, wanted) => {
                let units = units(cpu, memory);
                units > 0 && comparison.holds(&units, &u64::from(*wanted))
            }
        }
    }
}

/// Whole compute units of a size.
fn units(cpu: MilliCpu, memory: Bytes) -> u64 {
    u64::from(cpu.milli() / size::UNIT_CPU.milli()).min(memory.get() / size::UNIT_MEMORY.get())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn machine() -> VirtualMachine {
        serde_json::from_value(json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
            "metadata": { "name": "x" }, "spec": { "guest": { "cpus": { "min": 1, "max": 2, "use": 1 },
                "memorySlots": { "min": 1, "max": 4, "use": 1 }, "rootDisk": { "image": "i" } } },
            "status": { "phase": "Running", "cpus": 1, "memorySize": "4Gi" } }))
        .unwrap()
    }

    #[test]
    fn what_is_and_what_is_not() {
        for (text, expected) in [
            ("cpu>=1", true),
            ("cpu>=1.5", false),
            ("cpu<=2", true),
            ("memory=4Gi", true),
            ("cu>=4", true),
            ("cu>=5", false),
        ] {
            assert_eq!(Predicate::parse(text).unwrap().holds(&machine()), expected, "{text}");
        }
    }

    #[test]
    fn what_is_beyond_the_bounds_ends_the_wait() {
        for (text, is_final) in [
            ("cpu>=2", false),
            ("cpu>=2.25", true),
            ("cpu<=0.75", true),
            ("memory=5Gi", true),
            ("memory>=4Gi", false),
            ("cu>=4", false),
            ("cu=5", true),
        ] {
            let ending = Predicate::parse(text).unwrap().ending(&machine());
            assert_eq!(matches!(ending, WaitProgress::Never(_)), is_final, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_waited_for_is_refused() {
        for text in ["", "up", "phase=Running", "cpu", "cpu=", "cpu=fast", "cu>=x", "colour=red", "ü>"] {
            assert_eq!(Predicate::parse(text).unwrap_err().code, Code::Usage, "{text}");
        }
    }
}
