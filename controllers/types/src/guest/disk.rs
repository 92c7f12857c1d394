//! File systems that grow while they are mounted.

use serde::{Deserialize, Serialize};

/// Path of the daemon (POST, without a body) that grows the file systems on the VM's disks to their disks. The answer is the list of all
/// [`FileSystem`]s afterwards. Daemons of earlier versions have no such path: 404.
pub const GROW_PATH: &str = "/disks/grow";

/// A mounted file system on a disk of the VM, as the guest has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FileSystem {
    /// Serial number of the disk: the first 20 bytes of its name.
    pub serial: String,
    /// Bytes of the disk that the guest's kernel knows of. QEMU notifies it of a larger one, which takes a moment.
    pub disk: u64,
    /// Bytes of the file system.
    pub size: u64,
    /// Why it did not grow; empty: it has all of the disk that it can use.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub problem: String,
}
