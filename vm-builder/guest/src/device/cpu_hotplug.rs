//! CPUs that ACPI adds come up offline; this module brings them online.

use std::fs;
use std::path::Path;

/// Switches a CPU on, by its path below `/sys` as announced. One that is on already stays so.
pub fn bring_online(path: &str) {
    let switch = Path::new("/sys").join(path.trim_start_matches('/')).join("online");
    if fs::read(&switch).is_ok_and(|state| state.starts_with(b"0")) {
        let _ = fs::write(&switch, "1");
    }
}
