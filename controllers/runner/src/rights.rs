//! What others may do to the runner. It is a user without capabilities from its first instruction on, and so is its QEMU: [`hide`] keeps other
//! processes of that user out.

/// Keeps other processes of the same user, QEMU and commands in the container, out of the memory and the open files of this one
/// (`PR_SET_DUMPABLE`); nor is there a dump of it.
pub(crate) fn hide() -> Result<(), String> {
    let hidden = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    hidden.map_err(|error| format!("this process cannot be kept from others of its user: {error}"))
}
