//! The helper commands in `/neonvm/bin` that programs in images call, and signals to init.

use std::path::Path;

use crate::config::load::runtime_directory;
use crate::config::mount_script::Step;
use crate::config::{Settings, load};
use crate::device::block;
use crate::mount::SWAP_LABEL;
use crate::mount::{quota, swap};
use crate::system::refuse;

/// `resize-swap [--once] <bytes>`: 0 turns swap off. With `--once` the command removes itself after success.
pub fn resize_swap(arguments: &[String]) -> u8 {
    let (once, bytes) = match arguments {
        [flag, bytes] if flag == "--once" => (true, bytes),
        [bytes] => (false, bytes),
        _ => return refuse("usage: resize-swap [--once] <bytes>"),
    };
    let Ok(bytes) = bytes.parse::<u64>() else {
        return refuse(&format!("resize-swap: {bytes:?} is not a number of bytes"));
    };
    let settings = load(Path::new("/"), &runtime_directory());
    if !is_swap_enabled(&settings) {
        return refuse("resize-swap: this VM has no swap (spec.guest.settings.swap or swapInfo)");
    }
    let label = swap_label(&settings);
    let devices = block::scan();
    let Some(device) = block::find(&devices, label) else {
        return refuse(&format!("resize-swap: no disk {label:?}; there are: {}", block::describe(&devices)));
    };
    let node = device.node().to_string_lossy().into_owned();
    if let Err(error) = swap::resize(&node, label, bytes, device.size) {
        return refuse(&format!("resize-swap: {node}: {error}"));
    }
    if once && let Err(error) = std::fs::remove_file("/neonvm/bin/resize-swap") {
        return refuse(&format!("resize-swap: remove /neonvm/bin/resize-swap: {error}"));
    }
    0
}

fn is_swap_enabled(settings: &Settings) -> bool {
    settings.runtime.swap.is_some()
        || settings.steps.iter().any(|step| matches!(step, Step::Swap(_)))
        || runtime_directory().join("resize-swap-internal.sh").exists()
}

/// Label or serial of the disk that holds swap.
pub fn swap_label(settings: &Settings) -> &str {
    settings.runtime.swap.as_ref().map_or(SWAP_LABEL, |swap| &swap.label)
}

/// `set-disk-quota <KiB> <mount point>`; 0: no limit.
pub fn set_disk_quota(arguments: &[String]) -> u8 {
    let [size, directory] = arguments else {
        return refuse("usage: set-disk-quota <KiB> <mount point>");
    };
    let Ok(kibibytes) = size.parse::<u64>() else {
        return refuse(&format!("set-disk-quota: {size:?} is not a number of KiB"));
    };
    match quota::limit(Path::new(directory), kibibytes) {
        Ok(()) => 0,
        Err(error) => refuse(&format!("set-disk-quota: {error}")),
    }
}

/// Sends a signal to init: `poweroff`, `reboot`, `halt`.
pub fn signal_init(number: i32) -> u8 {
    let result = crate::system::signal(number)
        .zip(rustix::process::Pid::from_raw(1))
        .map(|(signal, init)| rustix::process::kill_process(init, signal));
    match result {
        Some(Ok(())) => 0,
        Some(Err(error)) => refuse(&format!("signal init: {}", std::io::Error::from(error))),
        None => refuse("signal init: no such signal"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_arguments_change_nothing_and_fail() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        for arguments in [&[][..], &["x"], &["--twice", "1"], &["1", "2", "3"], &["-1"]] {
            assert_eq!(resize_swap(&words(arguments)), 1, "{arguments:?}");
        }
        for arguments in [&[][..], &["1"], &["x", "/"], &["1", "/nonexistent"]] {
            assert_eq!(set_disk_quota(&words(arguments)), 1, "{arguments:?}");
        }
    }
}
