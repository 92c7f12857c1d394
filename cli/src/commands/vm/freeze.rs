//! `vm freeze` and `vm thaw`: the runner of the VM orders it of the guest, which keeps the bound.

use std::time::Duration;

use neonvm_api::VirtualMachine;
use neonvm_types::guest::{Frozen, MOST_FREEZE_SECONDS, ROOT, Thawed};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::disk::usage::earlier;
use super::exec;
use crate::args::vm::{Freeze, Thaw};
use crate::commands::flags::seconds;
use crate::commands::resource::NamespaceClient;
use crate::connect::block_on;
use crate::error::{Code, Error, Result};
use crate::report::{API_VERSION, Document, Report};
use crate::settings::Settings;

pub(super) fn run(settings: &Settings, args: &Freeze) -> Result<Report> {
    let bound = bound("for", &args.bound)?;
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let machine: VirtualMachine = client.find(&args.name).await?;
        let frozen = freeze(&client, &machine, bound, args.root_disk).await?;
        let name = &args.name;
        let text = format!(
            "virtualmachine/{name} frozen: {}, for {}s at most; to end it: neonctl vm thaw {name}",
            named(&frozen.disks),
            frozen.seconds
        );
        let value = json!({ "apiVersion": API_VERSION, "kind": "Freeze", "vm": name, "disks": frozen.disks, "seconds": frozen.seconds });
        Ok(report(name, value, text))
    })
}

pub(super) fn end(settings: &Settings, args: &Thaw) -> Result<Report> {
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let machine: VirtualMachine = client.find(&args.name).await?;
        let thawed = thaw(&client, &machine).await?;
        let name = &args.name;
        let text = if thawed.disks.is_empty() {
            format!("virtualmachine/{name}: nothing is frozen")
        } else {
            format!("virtualmachine/{name} thawed: {}, after {}", named(&thawed.disks), waited(&thawed))
        };
        let value = json!({ "apiVersion": API_VERSION, "kind": "Thaw", "vm": name, "disks": thawed.disks, "frozenMs": thawed.frozen_ms });
        Ok(report(name, value, text))
    })
}

fn report(name: &str, value: serde_json::Value, text: String) -> Report {
    let names = vec![format!("virtualmachine/{name}")];
    Report::document(Document { value, names, text: Some(text), ..Document::default() })
}

/// The bound of a freeze in whole seconds.
pub(super) fn bound(flag: &str, text: &str) -> Result<u32> {
    let bound = u32::try_from(seconds(flag, text)?).unwrap_or(u32::MAX);
    if (1..=MOST_FREEZE_SECONDS).contains(&bound) {
        return Ok(bound);
    }
    Err(Error::new(
        Code::Usage,
        format!("--{flag}: {text} is not between 1s and {}m", MOST_FREEZE_SECONDS / 60),
    )
    .hint("programs that write wait so long; take the time that a copy needs, such as 30s"))
}

/// How long writes waited, as `1.3s`.
pub(super) fn waited(thawed: &Thawed) -> String {
    format!("{:.1}s", Duration::from_millis(thawed.frozen_ms).as_secs_f64())
}

/// Names of disks for people.
fn named(disks: &[String]) -> String {
    let name = |disk: &String| if disk == ROOT { "the root file system".to_owned() } else { disk.clone() };
    disks.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// Freezes the file systems on claims of a running VM.
pub(super) async fn freeze(
    client: &NamespaceClient,
    machine: &VirtualMachine,
    bound: u32,
    root: bool,
) -> Result<Frozen> {
    let bound = bound.to_string();
    let mut order = vec!["freeze", "--seconds", &bound];
    order.extend(root.then_some("--root-disk"));
    send(client, machine, "cannot freeze", &order).await
}

/// Ends a freeze.
///
/// # Errors
/// Also if the guest had ended it before.
pub(super) async fn thaw(client: &NamespaceClient, machine: &VirtualMachine) -> Result<Thawed> {
    send(client, machine, "cannot thaw", &["thaw"]).await
}

async fn send<T: DeserializeOwned>(
    client: &NamespaceClient,
    machine: &VirtualMachine,
    attempt: &str,
    order: &[&str],
) -> Result<T> {
    let name = machine.metadata.name.as_deref().unwrap_or_default();
    let pod = exec::pod_of(client, machine)?;
    let failed = |error: Error| {
        let error = earlier(error);
        let causes = [vec![error.message], error.causes].concat();
        Error { message: format!("{attempt} {name}"), causes, ..error }
    };
    let text = exec::output(client, &pod, order).await.map_err(failed)?;
    serde_json::from_str(&text).map_err(|error| failed(Error::new(Code::Failed, error.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freeze_is_bounded_by_flags_as_well() {
        assert_eq!(bound("for", "30s").unwrap(), 30);
        assert_eq!(bound("for", "5m").unwrap(), 300);
        for bad in ["0s", "301s", "1h", "500ms", "x"] {
            let error = bound("for", bad).unwrap_err();
            assert!(error.message.starts_with("--for: "), "{}", error.message);
        }
    }

    #[test]
    fn the_root_has_no_name_of_a_disk() {
        assert_eq!(named(&["data".into(), ROOT.into()]), "data, the root file system");
    }
}
