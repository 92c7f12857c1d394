//! How full the disks of a running VM are: its runner asks the guest, when a client requests it.

use std::time::Duration;

use neonvm_api::VirtualMachine;
use neonvm_api::virtual_machine::Phase;
use neonvm_types::guest::{DiskReport, DiskUse};

use crate::commands::resource::NamespaceClient;
use crate::commands::vm::exec;
use crate::error::Error;
use crate::render;

/// Time for the answer.
const ANSWER: Duration = Duration::from_secs(5);

/// What the guest reports, or why that is not known; `None`: the VM does not run.
pub(crate) async fn of_vm(
    client: &NamespaceClient,
    machine: &VirtualMachine,
) -> Option<Result<DiskReport, String>> {
    let status = machine.status.as_ref()?;
    let runs = status.phase.is_some_and(Phase::is_alive) && !status.pod_name.is_empty();
    if !runs {
        return None;
    }
    if machine.spec.is_paused() {
        return Some(Err("the VM is paused".to_owned()));
    }
    let asked = tokio::time::timeout(ANSWER, exec::output(client, &status.pod_name, &["disks"])).await;
    Some(match asked {
        Ok(Ok(text)) => serde_json::from_str(&text).map_err(|_| "invalid answer of its runner".to_owned()),
        Ok(Err(error)) => Err(reason(error)),
        Err(_) => Err(format!("its runner has not answered within {ANSWER:?}")),
    })
}

fn reason(error: Error) -> String {
    let error = earlier(error);
    [vec![error.message], error.causes].concat().join(": ")
}

/// A runner of an earlier version does not have the command, and prints how to use it.
pub(crate) fn earlier(error: Error) -> Error {
    if error.message.contains("--help") {
        return Error { message: "its runner is of an earlier version: restart the VM".to_owned(), ..error };
    }
    error
}

/// Of bytes and of inodes, as people read it: `61%`.
pub(crate) fn shares(disk: &DiskUse) -> [String; 2] {
    let percent = |share: Option<u64>| share.map_or_else(|| "-".to_owned(), |share| format!("{share}%"));
    [percent(disk.percent()), percent(disk.inodes_percent())]
}

/// One line: `1.2Gi of 2Gi used (61%), 3% of inodes`.
pub(crate) fn line(disk: &DiskUse) -> String {
    let [bytes, inodes] = shares(disk);
    let of_inodes = if disk.inodes > 0 { format!(", {inodes} of inodes") } else { String::new() };
    format!("{} of {} used ({bytes}){of_inodes}", render::bytes(disk.used), render::bytes(disk.total))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    #[test]
    fn use_is_a_line() {
        let disk = DiskUse {
            used: 600 << 20,
            available: 400 << 20,
            total: 1 << 30,
            inodes: 100,
            inodes_used: 3,
            ..DiskUse::default()
        };
        assert_eq!(line(&disk), "600Mi of 1Gi used (60%), 3% of inodes");
        assert_eq!(line(&DiskUse { inodes: 0, ..disk }), "600Mi of 1Gi used (60%)");
    }

    #[test]
    fn a_runner_of_an_earlier_version_is_named() {
        let error = Error::new(Code::Failed, "For more information, try '--help'.");
        assert_eq!(reason(error), "its runner is of an earlier version: restart the VM");
        assert_eq!(reason(Error::new(Code::Failed, "x").cause("y")), "x: y");
    }
}
