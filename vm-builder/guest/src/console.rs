//! The role `console <device> [command…]`: after Enter was pressed, a program on a terminal. Without a command: a login
//! shell as root, the image's own or ours.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::OFlags;
use rustix::termios::{ControlModes, OptionalActions, tcgetattr, tcsetattr};

/// Login shells of images.
const SHELLS: [&str; 2] = ["/bin/bash", "/bin/sh"];

/// Waits for Enter, then becomes the program. Returns a status only when that is not possible.
pub fn run(arguments: &[String]) -> u8 {
    let Some((device, command)) = arguments.split_first() else {
        return crate::system::refuse("usage: console <device> [command…]");
    };
    match attend(device, command) {
        Ok(()) => 0,
        Err(error) => crate::system::refuse(&format!("console {device}: {error}")),
    }
}

fn attend(device: &str, command: &[String]) -> io::Result<()> {
    let mut terminal = open(device)?;
    let what = command.first().map_or("a shell", String::as_str);
    writeln!(terminal, "\r\nPress Enter to start {what} on {device}.\r")?;
    if !wait_for_enter(&mut terminal)? {
        return Ok(());
    }
    crate::limits::join_sessions();
    rustix::stdio::dup2_stdin(&terminal)?;
    rustix::stdio::dup2_stdout(&terminal)?;
    rustix::stdio::dup2_stderr(&terminal)?;
    drop(terminal);
    Err(program(command).exec())
}

fn open(device: &str) -> io::Result<File> {
    // Not blocking: a line without carrier would keep `open` waiting for ever.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let path = Path::new("/dev").join(device.trim_start_matches("/dev/"));
    let terminal = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    if let Ok(mut attributes) = tcgetattr(&terminal) {
        attributes.control_modes |= ControlModes::CLOCAL | ControlModes::CREAD;
        let _ = tcsetattr(&terminal, OptionalActions::Now, &attributes);
    }
    let flags = rustix::fs::fcntl_getfl(&terminal)?;
    rustix::fs::fcntl_setfl(&terminal, flags - OFlags::NONBLOCK)?;
    // Init made us leader of a session; with a controlling terminal, Ctrl-C works.
    let _ = rustix::process::ioctl_tiocsctty(&terminal);
    Ok(terminal)
}

/// False at the end of input.
fn wait_for_enter(terminal: &mut File) -> io::Result<bool> {
    let mut buffer = [0; 256];
    loop {
        match terminal.read(&mut buffer) {
            Ok(0) => return Ok(false),
            Ok(count) => {
                if buffer.get(..count).unwrap_or_default().iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
                    return Ok(true);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn program(command: &[String]) -> Command {
    if let Some((program, arguments)) = command.split_first() {
        let mut command = Command::new(program);
        command.args(arguments);
        return command;
    }
    let mut command = match SHELLS.iter().find(|shell| Path::new(shell).exists()) {
        Some(shell) => {
            let mut command = Command::new(shell);
            command.arg("-l");
            command
        }
        None => {
            let mut command = Command::new("/proc/self/exe");
            command.arg("shell");
            command
        }
    };
    command.env("TERM", "vt220");
    command
}
