//! `vm wait`

use neonvm_api::VirtualMachine;
use neonvm_types::{Bytes, MilliCpu};

use super::waiting::until;
use crate::args::vm::Wait;
use crate::commands::flags::duration;
use crate::commands::resource::client::NamespaceClient;
use crate::commands::resource::predicate::{self, Comparison};
use crate::commands::resource::wait;
use crate::commands::vm::size;
use crate::commands::vm::table::observed;
use crate::connect::block_on;
use crate::error::{Code, Error, Result};
use crate::report::Report;
use crate::settings::Settings;

/// Waits until a predicate is true.
pub(in crate::commands) fn run(settings: &Settings, args: &Wait) -> Result<Report> {
    let predicate = Predicate::parse(&args.predicate)?;
    let limit = duration("timeout", &args.timeout)?;
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        client.find::<VirtualMachine>(&args.name).await?;
        let name = &args.name;
        let look = |vm: Option<&VirtualMachine>| wait::seen(name, vm, |vm| predicate.holds(vm));
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
        let (key, comparison, value) = predicate::split(text).ok_or_else(bad)?;
        Ok(match key {
            "cpu" => Self::Cpu(comparison, size::cpu("for", value)?),
            "memory" => Self::Memory(comparison, size::memory("for", value)?),
            "cu" => Self::Units(comparison, value.parse().map_err(|_| bad())?),
            _ => return Err(bad()),
        })
    }

    fn holds(&self, machine: &VirtualMachine) -> bool {
        let (cpu, memory) = observed(machine);
        match self {
            Self::Cpu(comparison, wanted) => cpu > MilliCpu::ZERO && comparison.holds(&cpu, wanted),
            Self::Memory(comparison, wanted) => memory > Bytes::ZERO && comparison.holds(&memory, wanted),
            Self::Units(comparison, wanted) => {
                let units = cpu.milli() / size::UNIT_CPU.milli();
                let by_memory = memory.get() / size::UNIT_MEMORY.get();
                units > 0 && comparison.holds(&u64::from(units).min(by_memory), &u64::from(*wanted))
            }
        }
    }
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
    fn what_cannot_be_waited_for_is_refused() {
        for text in ["", "up", "phase=Running", "cpu", "cpu=", "cpu=fast", "cu>=x", "colour=red", "ü>"] {
            assert_eq!(Predicate::parse(text).unwrap_err().code, Code::Usage, "{text}");
        }
    }
}
