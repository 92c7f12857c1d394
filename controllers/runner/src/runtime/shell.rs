//! The runtime volume as older guests read it: files of shell text, beside the settings for the guest program. Pure.
//!
//! Older guests run `mounts.sh` before their workload, join `env.sh`, `command.sh` and `args.sh` into the script that
//! starts it, and run `resize-swap-internal.sh` when the size of swap is to change. Whatever names, paths and values hold
//! is data here: nothing of it is ever read by the shell as anything else than itself.

use std::fmt::Write as _;

use neonvm_hypervisor::disks::VolumeFile;
use neonvm_types::guest::{MountKind, RuntimeConfig};

use super::{SSH_LABEL, SWAP_LABEL};

const PROGRAMS: &str = "/neonvm/bin/";
/// Where the runtime volume is mounted.
const RUNTIME: &str = "/neonvm/runtime/";
/// Where the keys that may log in are mounted.
const SSH_PATH: &str = "/mnt/ssh";

/// The files for older guests. `keys`: whether there is a volume with keys that may log in.
pub(super) fn files(config: &RuntimeConfig, keys: bool) -> Vec<VolumeFile> {
    let file = |path: &str, mode, text: String| VolumeFile {
        path: path.to_owned(),
        mode,
        content: text.into_bytes(),
    };
    let mut all = vec![file("sysctl.conf", 0o444, lines(&config.sysctl))];
    all.extend(config.command.as_ref().map(|words| file("command.sh", 0o400, command(words))));
    all.extend(config.args.as_ref().map(|words| file("args.sh", 0o400, command(words))));
    let variables = environment(&config.env);
    all.extend((!variables.is_empty()).then(|| file("env.sh", 0o400, variables)));
    all.push(file("mounts.sh", 0o555, mounts(config, keys, PROGRAMS, RUNTIME)));
    if config.swap.is_some() {
        all.push(file("resize-swap-internal.sh", 0o555, resize_swap(PROGRAMS)));
    }
    all
}

/// One word for a POSIX shell, whatever it holds. No program can be given a NUL byte; it is left out.
fn quoted(text: &str) -> String {
    let mut word = String::with_capacity(text.len().saturating_add(2));
    word.push('\'');
    for character in text.chars() {
        match character {
            '\0' => {}
            '\'' => word.push_str(r"'\''"),
            other => word.push(other),
        }
    }
    word.push('\'');
    word
}

fn lines(all: &[String]) -> String {
    all.iter().fold(String::new(), |text, line| text + line + "\n")
}

/// Words on one line, without an end of the line: the guest writes the arguments behind the command.
fn command(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// One export for each variable. A shell stops at a name that is none to it, and the workload would never start, so such
/// variables are left out; older guests have no other way to set one.
fn environment(variables: &[String]) -> String {
    let mut text = String::new();
    for (name, value) in variables.iter().filter_map(|variable| variable.split_once('=')) {
        if is_name(name) {
            // Writing into a string does not fail.
            let _ = writeln!(text, "export {name}={}", quoted(value));
        }
    }
    text
}

/// Whether a shell has variables of that name (POSIX.1-2017, 3.235).
fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first == b'_' || first.is_ascii_alphabetic())
        && bytes.all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
}

/// Mounts in order, one step a line. A line that fails does not keep the next one from being tried: a VM without one
/// of its disks is of more use than one without those that come after it too.
fn mounts(config: &RuntimeConfig, keys: bool, programs: &str, runtime: &str) -> String {
    let mut text = "set -u\n".to_owned();
    let device = |label: &str| format!("$({programs}blkid -L {})", quoted(label));
    let mut add = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    let make = |path: &str| format!("{programs}mkdir -p {}", quoted(path));
    let files = |label: &str, path: &str| {
        // The mode is for kernels that do not support the modes of the volume itself.
        let device = device(label);
        format!("{programs}mount -t iso9660 -o ro,mode=0644 {device} {}", quoted(path))
    };
    let open = |path: &str| format!("{programs}chmod 0777 {}", quoted(path));
    if keys {
        add(make(SSH_PATH));
        add(files(SSH_LABEL, SSH_PATH));
    }
    if let Some(swap) = config.swap.as_ref().filter(|swap| !swap.skip_swapon) {
        add(format!("{programs}sh {runtime}resize-swap-internal.sh {}", swap.size.get()));
    }
    for mount in &config.mounts {
        let path = quoted(&mount.path);
        add(make(&mount.path));
        match &mount.kind {
            MountKind::Directory => {}
            MountKind::Disk { label, discard, quota, persistent } => {
                let device = device(label);
                if *quota {
                    add(format!("tune2fs -Q prjquota {device}"));
                    add(format!("tune2fs -E mount_opts=prjquota {device}"));
                }
                let chosen = [("ro", mount.read_only), ("discard", *discard)];
                let options: Vec<&str> = chosen.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect();
                let options =
                    if options.is_empty() { String::new() } else { format!("-o {} ", options.join(",")) };
                add(format!("{programs}mount {options}{device} {path}"));
                // The workload may have given the root of a disk that stays another mode.
                if !mount.read_only && !persistent {
                    add(open(&mount.path));
                }
            }
            MountKind::Files { label } => add(files(label, &mount.path)),
            MountKind::Tmpfs { size } => {
                let read_only = if mount.read_only { "ro," } else { "" };
                add(open(&mount.path));
                let size = size.get();
                add(format!("{programs}mount -t tmpfs -o {read_only}size={size} tmpfs {path}"));
            }
        }
    }
    if let Some(size) = config.shared_memory {
        add(format!("{programs}mount -o remount,size={} /dev/shm", size.get()));
    }
    text
}

/// Makes swap of the bytes in its only argument; 0: none.
fn resize_swap(programs: &str) -> String {
    let label = quoted(SWAP_LABEL);
    format!(
        "set -eu\n\
         case \"${{1-}}\" in ''|*[!0-9]*) echo \"usage: resize-swap-internal.sh BYTES\" >&2; exit 2 ;; esac\n\
         device=$({programs}blkid -L {label})\n\
         # Off already is as good.\n\
         {programs}swapoff \"$device\" || true\n\
         if [ \"$1\" -eq 0 ]; then exit 0; fi\n\
         {programs}mkswap -L {label} \"$device\" $(($1 / 1024))\n\
         {programs}swapon -d \"$device\"\n"
    )
}

#[cfg(test)]
mod tests;
