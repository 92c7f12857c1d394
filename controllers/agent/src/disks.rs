//! How full the disks of the node's VMs are, by the last readings of their guests. Nothing of it is written to the API.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use neonvm_types::NamespacedName;
use neonvm_types::guest::{DiskUse, disks_in_use};
use tokio::time::Instant;

/// What is older is not shown.
const FRESH: Duration = Duration::from_secs(120);

type Known = BTreeMap<NamespacedName, (Instant, Vec<DiskUse>)>;

/// The last readings.
#[derive(Debug, Default)]
pub(crate) struct DiskUses(Mutex<Known>);

impl DiskUses {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in the page of a guest. Only disks of the VM's spec are kept, whatever the guest mounts.
    pub(crate) fn read(&self, vm: &NamespacedName, page: &[u8], disks: &[(String, String)]) {
        if let Ok(page) = std::str::from_utf8(page) {
            self.known().insert(vm.clone(), (Instant::now(), disks_in_use(page, disks)));
        }
    }

    pub(crate) fn of(&self, vm: &NamespacedName) -> Vec<DiskUse> {
        let known = self.known();
        let fresh = known.get(vm).filter(|(at, _)| at.elapsed() < FRESH);
        fresh.map(|(_, disks)| disks.clone()).unwrap_or_default()
    }

    pub(crate) fn forget(&self, vm: &NamespacedName) {
        self.known().remove(vm);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_disks_of_the_vm_are_kept() {
        let (uses, vm) = (DiskUses::default(), NamespacedName::new("d", "pg"));
        let page = b"host_filesystem_total_bytes{device=\"/dev/vdc\",mountpoint=\"/data\"} 10\n\
            host_filesystem_total_bytes{device=\"/dev/loop0\",mountpoint=\"/forged\"} 10\n";
        let disks = [("data".to_owned(), "/data".to_owned())];
        uses.read(&vm, page, &disks);
        assert_eq!(uses.of(&vm).iter().map(|disk| disk.name.as_str()).collect::<Vec<_>>(), ["data"]);
        uses.read(&vm, b"\xff", &disks);
        assert_eq!(uses.of(&vm).len(), 1, "no text: what was known stays until it is old");
        uses.forget(&vm);
        assert_eq!(uses.of(&vm), []);
    }
}
