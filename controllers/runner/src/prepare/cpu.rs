//! The CPU that the guest gets: a model with a name, or all that the accelerator can; for a VM that comes from another
//! host the one that it had there.

use neonvm_api::runner_pod::RunnerConfig;
use neonvm_hypervisor::accelerator::Accelerator;
use neonvm_hypervisor::cpu_model::{self, CpuModel, CpuModelError};
use neonvm_hypervisor::installation::Installation;
use neonvm_types::runner_protocol::facts;

use super::Error;

#[derive(Debug)]
pub(super) struct Cpu {
    /// Name of its model; `None`: all that the accelerator can.
    pub(super) model: Option<String>,
    /// What the model has on this host.
    pub(super) here: CpuModel,
    /// Features of the model that are hidden, because the guest did not have them where it came from.
    pub(super) off: Vec<String>,
    /// What the guest's CPU has; empty if it is not known.
    pub(super) facts: CpuModel,
    /// Why nothing is known.
    pub(super) note: Option<String>,
}

/// The name of the model. A VM that is received keeps its own, whatever the object has by now.
fn model(config: &RunnerConfig, accelerator: Accelerator) -> Option<String> {
    let own = [config.spec.cpu_model.as_str(), config.settings.cpu_model.as_str()];
    let name = match &config.receive {
        Some(receive) => receive.machine.cpu_model.as_str(),
        None => own.into_iter().find(|name| !name.is_empty()).unwrap_or_default(),
    };
    // Names for all that a processor, or the emulation, can do.
    let is_all = matches!(name, "" | "host" | "max") || name == accelerator.cpu_model();
    (!is_all).then(|| name.to_owned())
}

/// Finds out about the CPU. If QEMU does not list features, nothing is known and nothing is refused because of it.
///
/// # Errors
/// If QEMU does not know the model.
pub(super) async fn find(
    config: &RunnerConfig,
    installation: &Installation,
    accelerator: Accelerator,
) -> Result<Cpu, Error> {
    let model = model(config, accelerator);
    let (here, note) = match cpu_model::query(installation, accelerator, model.as_deref()).await {
        Ok(here) => (here, None),
        Err(error @ CpuModelError::Unknown { .. }) => return Err(Error::CpuModel(error.to_string())),
        Err(error @ CpuModelError::Unanswered(_)) => (CpuModel::default(), Some(error.to_string())),
    };
    Ok(choose(config, model, here, note))
}

fn choose(config: &RunnerConfig, model: Option<String>, here: CpuModel, note: Option<String>) -> Cpu {
    let machine = config.receive.as_ref().map(|receive| &receive.machine);
    let surplus = machine.and_then(|machine| facts::surplus(machine, &here.features));
    let off: Vec<String> = surplus.into_iter().flatten().map(str::to_owned).collect();
    let mut facts = here.clone();
    facts.features.retain(|feature| !off.contains(feature));
    if let (Some(machine), true) = (machine, facts.features.is_empty()) {
        facts.vendor.clone_from(&machine.cpu_vendor);
        facts.features.clone_from(&machine.cpu_features);
    }
    Cpu { model, here, off, facts, note }
}

impl Cpu {
    /// Refuses a model with a name that this host's processor does not have in full: under KVM such a VM would have
    /// another CPU than on other hosts. Emulation lacks features of most models, on every host the same.
    pub(super) fn check(&self, accelerator: Accelerator) -> Result<(), Error> {
        let Some(name) = self.model.as_deref().filter(|_| accelerator == Accelerator::Kvm) else {
            return Ok(());
        };
        if self.here.missing.is_empty() {
            return Ok(());
        }
        let missing: Vec<&str> = self.here.missing.iter().map(String::as_str).collect();
        let missing = missing.join(", ");
        Err(Error::CpuModel(format!("this host lacks features of {name}: {missing}; choose an older model")))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use neonvm_types::runner_protocol::MachineInfo;
    use serde_json::json;

    use super::*;

    fn config(spec: &str, settings: &str, machine: Option<MachineInfo>) -> RunnerConfig {
        let receive = machine.map(|machine| {
            json!({"migration": "m", "source": "s", "machine": machine, "size": {"cpu": 1, "memory": "1Gi"}, "cpus": 1})
        });
        let mut config = json!({"namespace": "n", "name": "v", "uid": "u", "pod": "p", "cpuScalingMode": "SysfsScaling",
            "settings": {"cpuModel": settings},
            "spec": {"cpuModel": spec, "guest": {"cpus": {"min": 1, "max": 1, "use": 1},
                "memorySlots": {"min": 1, "max": 1, "use": 1}, "rootDisk": {"image": "i"}}}});
        if let Some(receive) = receive {
            config["receive"] = receive;
        }
        serde_json::from_value(config).unwrap()
    }

    fn had(model: &str, features: &[&str]) -> MachineInfo {
        MachineInfo { cpu_model: model.into(), cpu_features: set(features), ..MachineInfo::default() }
    }

    fn set(words: &[&str]) -> BTreeSet<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn the_name_is_that_of_the_vm_or_of_the_installation() {
        let of = |spec, settings, machine| model(&config(spec, settings, machine), Accelerator::Kvm);
        assert_eq!(of("", "", None), None);
        assert_eq!(of("", "EPYC-v1", None).as_deref(), Some("EPYC-v1"));
        assert_eq!(of("Haswell", "EPYC-v1", None).as_deref(), Some("Haswell"));
        assert_eq!(
            of("host", "EPYC-v1", None),
            None,
            "all that the processor has, although others have less"
        );
        // A VM that runs keeps its CPU, whatever was set since.
        assert_eq!(of("Haswell", "EPYC-v1", Some(had("host", &[]))), None);
        assert_eq!(of("", "", Some(had("EPYC-v1", &[]))).as_deref(), Some("EPYC-v1"));
        assert_eq!(of("", "EPYC-v1", Some(had("", &[]))), None);
    }

    #[test]
    fn what_the_guest_did_not_have_is_hidden() {
        let here = CpuModel { vendor: "v".into(), features: set(&["avx", "avx2"]), ..CpuModel::default() };
        let new = choose(&config("", "", None), None, here.clone(), None);
        assert_eq!((new.off.as_slice(), &new.facts), ([].as_slice(), &here));
        let came = choose(&config("", "", Some(had("host", &["avx"]))), None, here.clone(), None);
        assert_eq!((came.off, came.facts.features), (vec!["avx2".to_owned()], set(&["avx"])));
        // A runner up to 0.2.0 reports no features: it had what the processor has.
        let old = choose(&config("", "", Some(had("host", &[]))), None, here.clone(), None);
        assert_eq!((old.off.as_slice(), &old.facts), ([].as_slice(), &here));
        // QEMU listed nothing here: the guest still has what it had.
        let blind = choose(&config("", "", Some(had("host", &["avx"]))), None, CpuModel::default(), None);
        assert_eq!((blind.off.as_slice(), blind.facts.features), ([].as_slice(), set(&["avx"])));
    }

    #[test]
    fn a_model_is_there_in_full_or_not_at_all() {
        let cpu = |model: Option<&str>| Cpu {
            model: model.map(str::to_owned),
            here: CpuModel { missing: set(&["hle", "rtm"]), ..CpuModel::default() },
            off: Vec::new(),
            facts: CpuModel::default(),
            note: None,
        };
        let error = cpu(Some("Haswell")).check(Accelerator::Kvm).unwrap_err().to_string();
        assert_eq!(
            error,
            "spec.cpuModel: this host lacks features of Haswell: hle, rtm; choose an older model"
        );
        assert!(cpu(Some("Haswell")).check(Accelerator::Tcg).is_ok());
        assert!(cpu(None).check(Accelerator::Kvm).is_ok());
    }
}
