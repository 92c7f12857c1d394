//! The guest's name in the pod.

use std::io::Write as _;

use neonvm_types::node_protocol::GUEST;

/// Name of the guest in the pod.
const GUEST_NAME: &str = "guest-vm";

/// Gives the guest its name in a container's own `/etc/hosts`, for people and scripts inside it.
pub(crate) fn name_guest() {
    let path = "/etc/hosts";
    if std::fs::read_to_string(path).unwrap_or_default().contains(GUEST_NAME) {
        return;
    }
    let file = std::fs::OpenOptions::new().append(true).open(path);
    if let Err(error) = file.and_then(|mut file| writeln!(file, "{GUEST} {GUEST_NAME}")) {
        tracing::warn!(%error, "{GUEST_NAME} has no entry in {path}");
    }
}
