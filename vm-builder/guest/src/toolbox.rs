//! Programs that images call in `/neonvm/bin`, by their names there.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use neonvm_types::guest::toolbox::{is_busybox_tool, replacement};

use crate::config::merge::DEFAULT_PATH;
use crate::device::block;
use crate::process::Cgroup;
use crate::process::cgroup;
use crate::system::refuse;
use crate::{shell, tools};

mod cgexec;
mod su_exec;

/// Status when there is no such program.
const NOT_FOUND: u8 = 127;
/// Status when the program cannot be run.
const NOT_EXECUTABLE: u8 = 126;

/// Does what is expected under this name. `None`: it is no name of the toolbox.
pub fn run(name: &str, arguments: &[String]) -> Option<u8> {
    Some(match name {
        "cgexec" => cgexec::run(arguments),
        "su-exec" => su_exec::run(arguments),
        "setquota" => set_quota(arguments),
        "udevadm" => device_manager(arguments),
        "blkid" => find_device(arguments),
        _ if is_busybox_tool(name) || replacement(name).is_some() => other(name, arguments),
        _ => return None,
    })
}

/// The image's program of this name, the shell's command, or what there is instead.
fn other(name: &str, arguments: &[String]) -> u8 {
    if let Some(program) = find(name, DEFAULT_PATH) {
        return become_program(with(&program, arguments));
    }
    if matches!(name, "sh" | "ash") {
        return shell::run(arguments);
    }
    if let Some(status) = shell::command(name, arguments) {
        return status;
    }
    unavailable(name, replacement(name).unwrap_or("the image has none; install it there, or BusyBox"))
}

/// The first program of this name in the directories of `path` that is not the guest program itself.
fn find(name: &str, path: &str) -> Option<PathBuf> {
    // Without /proc this program cannot be recognised: it would execute itself again and again.
    let own = std::fs::canonicalize("/proc/self/exe").ok()?;
    path.split(':').map(|directory| Path::new(directory).join(name)).find(|candidate| {
        let real = std::fs::canonicalize(candidate).ok();
        real.is_some_and(|real| real.is_file() && real != own)
    })
}

/// Executes a program in place of this one. Returns a status only if that is not possible.
fn become_program(mut command: Command) -> u8 {
    let error = command.exec();
    let missing = error.kind() == std::io::ErrorKind::NotFound;
    let _ = refuse(&format!("{}: {error}", Path::new(command.get_program()).display()));
    if missing { NOT_FOUND } else { NOT_EXECUTABLE }
}

fn with(program: &Path, arguments: &[String]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// `setquota -P <project 0> <soft KiB> <hard KiB> <inodes> <inodes> <mount point>`, as older runners call it.
fn set_quota(arguments: &[String]) -> u8 {
    match arguments {
        [flag, project, _, hard, _, _, directory] if flag == "-P" && project == "0" => {
            tools::set_disk_quota(&[hard.clone(), directory.clone()])
        }
        _ => refuse(
            "usage: setquota -P 0 <KiB> <KiB> 0 0 <mount point>; only quotas of project 0 are supported",
        ),
    }
}

/// Links in `/dev` are there when a device is: nothing to trigger, nothing to wait for.
fn device_manager(arguments: &[String]) -> u8 {
    match arguments.first().map(String::as_str) {
        Some("trigger" | "settle" | "control") => 0,
        _ => unavailable(
            "udevadm",
            "the guest program makes the links in /dev itself; trigger and settle do nothing",
        ),
    }
}

fn unavailable(name: &str, instead: &str) -> u8 {
    let _ = writeln!(std::io::stderr(), "/neonvm/bin/{name}: {instead}");
    NOT_FOUND
}

/// `blkid -L <label>`: the device with the label. Everything else is for the image's program.
fn find_device(arguments: &[String]) -> u8 {
    let [flag, label] = arguments else { return with_other_arguments(arguments) };
    if flag != "-L" {
        return with_other_arguments(arguments);
    }
    let devices = block::scan();
    match block::find(&devices, label) {
        Some(device) => {
            let _ = writeln!(std::io::stdout(), "{}", device.node().display());
            0
        }
        // The status of blkid when nothing is found.
        None => 2,
    }
}

fn with_other_arguments(arguments: &[String]) -> u8 {
    match find("blkid", DEFAULT_PATH) {
        Some(program) => become_program(with(&program, arguments)),
        None => unavailable(
            "blkid",
            "only `blkid -L <label>` is supported; install util-linux in the image for more",
        ),
    }
}

#[cfg(test)]
mod tests {
    use neonvm_types::guest::toolbox::{OWN_TOOLS, ROLES, tools};

    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn every_name_has_a_meaning() {
        for name in tools().filter(|name| !ROLES.contains(name)) {
            let known = is_busybox_tool(name) || replacement(name).is_some() || OWN_TOOLS.contains(&name);
            assert!(known, "{name}");
        }
        for name in OWN_TOOLS {
            // Each refuses these arguments, so that none becomes another program.
            assert!(run(name, &words("-L no-such-label-here")).is_some(), "{name}");
        }
        assert_eq!(run("no-such-tool", &[]), None);
    }

    #[test]
    fn superfluous_programs_name_what_there_is_instead() {
        // None of these is installed where tests run.
        for name in ["vmstart", "udhcpc.script", "vmshutdown"] {
            assert_eq!(run(name, &[]), Some(NOT_FOUND), "{name}");
        }
        assert_eq!(run("udevadm", &words("settle")), Some(0));
        assert_eq!(run("udevadm", &words("info")), Some(NOT_FOUND));
        assert_eq!(run("setquota", &words("-u 0 1 1 0 0 /")), Some(1));
        assert_eq!(run("blkid", &words("-L no-such-label-here")), Some(2));
    }

    #[test]
    fn the_programs_of_the_image_are_found_and_this_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::os::unix::fs::symlink("/proc/self/exe", path("own")).unwrap();
        std::fs::write(path("other"), "").unwrap();
        std::os::unix::fs::symlink("missing", path("broken")).unwrap();
        let search = directory.path().display().to_string();
        // The link resolves to this test program.
        assert_eq!(find("own", &search), None);
        assert_eq!(find("broken", &search), None);
        assert_eq!(find("other", &format!("/nowhere:{search}")), Some(path("other")));
    }
}
