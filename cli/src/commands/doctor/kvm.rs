//! Whether KVM runs guests. A device that opens and runs none is common, so a guest is run, by `neonvm-runner kvm-probe`.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use super::programs::ask;
use crate::commands::checks::finding::{Finding, ok, warn};
use crate::error::reason;

/// How long the probe may take; it hangs in the kernel on some hosts.
const DEADLINE: Duration = Duration::from_secs(2);
const DEVICE: &str = "/dev/kvm";
const SLOWER: &str = "VMs will be emulated (TCG)";

/// The program that probes; it is installed beside `neond`.
const PROGRAM: &str = "neonvm-runner";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Probed {
    usable: bool,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    micros: u64,
}

/// KVM of this host; `neond` is where the services are, if they were found.
pub(super) fn kvm(neond: Option<&Path>) -> Finding {
    let device = Path::new(DEVICE);
    if !device.exists() {
        return warn(
            "kvm",
            format!("{DEVICE} does not exist; {SLOWER}"),
            "enable virtualisation and load the module: modprobe kvm_intel or kvm_amd; or accept slower VMs",
        );
    }
    if let Err(error) = std::fs::File::options().read(true).write(true).open(device) {
        return warn(
            "kvm",
            format!("{DEVICE} cannot be opened: {}; {SLOWER}", reason(&error)),
            "add yourself to its group: usermod -aG kvm $USER",
        );
    }
    let Some(runner) = neond.map(|neond| neond.with_file_name(PROGRAM)).filter(|runner| runner.is_file())
    else {
        let detail = format!("can be opened; without {PROGRAM} it cannot be tested with a guest");
        return warn("kvm", detail, format!("install {PROGRAM} beside neond"));
    };
    match ask(&runner, &["kvm-probe"], DEADLINE) {
        Ok(answer) => match serde_json::from_str::<Probed>(answer.text.trim()) {
            Ok(probed) => verdict(&probed),
            Err(_) => {
                let text = if answer.complaint.is_empty() { "nothing" } else { &answer.complaint };
                let detail = format!(
                    "can be opened, but was not tested: {} kvm-probe printed {text}",
                    runner.display()
                );
                warn("kvm", detail, format!("install the {PROGRAM} of this version"))
            }
        },
        Err(error) => runs_none(&format!("the test hung: {}", error.message)),
    }
}

fn verdict(probed: &Probed) -> Finding {
    if probed.usable {
        let how = if probed.reason.is_empty() { String::new() } else { format!("; {}", probed.reason) };
        return ok(
            "kvm",
            format!(
                "runs guests ({:.1} ms{how})",
                f64::from(u32::try_from(probed.micros).unwrap_or(u32::MAX)) / 1000.0
            ),
        );
    }
    runs_none(&probed.reason)
}

fn runs_none(why: &str) -> Finding {
    warn(
        "kvm",
        format!("can be opened but does not run guests: {why}; {SLOWER}"),
        "use a host with working (nested) virtualisation, or accept slower VMs",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::checks::finding::Verdict;

    #[test]
    fn the_line_of_the_probe() {
        let read = |text: &str| verdict(&serde_json::from_str(text).unwrap());
        let good = read(r#"{"usable":true,"reason":"","micros":1500,"newer":1}"#);
        assert_eq!((good.verdict, good.detail.as_str()), (Verdict::Ok, "runs guests (1.5 ms)"));
        let bad = read(r#"{"usable":false,"reason":"the guest made no progress","micros":300000}"#);
        assert_eq!(bad.verdict, Verdict::Warn);
        assert_eq!(
            bad.detail,
            "can be opened but does not run guests: the guest made no progress; VMs will be emulated (TCG)"
        );
        assert!(!bad.remedy.is_empty());
    }
}
