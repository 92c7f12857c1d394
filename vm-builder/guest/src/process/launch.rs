//! Starting a program with its user, group, directory and limits.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Gid, Pid, Resource, Uid, setsid};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};

use super::cgroup::Cgroup;
use crate::config::Account;
use crate::limits;
use crate::system::Signals;

/// Where what a program prints goes.
#[derive(Debug)]
pub enum Output<'a> {
    Console,
    Pipe(&'a OwnedFd),
    /// Each stream to a pipe of its own, from which a client reads.
    Attached(&'a Ends),
    /// Standard output into this pipe, standard error to the console: our own helpers.
    Reports(&'a OwnedFd),
}

/// Standard streams of a program that a client is attached to.
#[derive(Debug)]
pub struct Ends {
    /// Standard input; none: `/dev/null`.
    pub input: Option<OwnedFd>,
    pub output: OwnedFd,
    pub errors: OwnedFd,
}

#[derive(Debug)]
pub struct Launch<'a> {
    pub command: &'a [String],
    /// `NAME=value` each; nothing else is in its environment.
    pub environment: &'a [String],
    /// The user and groups that it runs as.
    pub account: &'a Account,
    /// Working directory; made if missing.
    pub directory: &'a str,
    /// The group it is put into, before its first instruction.
    pub cgroup: Option<&'a Cgroup>,
    pub output: Output<'a>,
    /// Descriptors it keeps, under the same numbers.
    pub keep: &'a [RawFd],
    pub signals: Signals,
    /// Its limits, soft and hard; `None`: none.
    pub limits: &'a [(Resource, Option<u64>)],
    /// Whether the kernel spares it when memory is short: the guest program's own processes.
    pub spared: bool,
}

/// Why a program could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("the command is empty")]
    Empty,
    #[error("make working directory {path}: {source}")]
    Directory { path: String, source: io::Error },
    #[error("start {program}: {source}{hint}")]
    Start {
        program: String,
        source: io::Error,
        /// What may help, or nothing.
        hint: &'static str,
    },
}

impl LaunchError {
    /// The status that shells and container engines report: 127 for what is not there, 126 for what cannot be executed.
    pub fn status(&self) -> i32 {
        match self {
            Self::Start { source, .. } if source.kind() != io::ErrorKind::NotFound => 126,
            _ => 127,
        }
    }
}

/// Starts it in a separate session. Returns its process number; the process that reaps it observes its end.
///
/// # Errors
/// When it could not be started; nothing is left behind.
pub fn spawn(launch: &Launch<'_>) -> Result<Pid, LaunchError> {
    let (program, arguments) = launch.command.split_first().ok_or(LaunchError::Empty)?;
    let path = Path::new(launch.directory);
    if !path.is_dir() {
        let failed = |source| LaunchError::Directory { path: launch.directory.to_owned(), source };
        fs::create_dir_all(path).map_err(failed)?;
    }
    let start = |source: io::Error| LaunchError::Start {
        program: program.clone(),
        hint: hint(program, &source),
        source,
    };
    let mut command = Command::new(program);
    command.args(arguments).env_clear().current_dir(path);
    for entry in launch.environment {
        if let Some((name, value)) = entry.split_once('=') {
            command.env(name, value);
        }
    }
    if !has(launch.environment, "HOME") {
        command.env("HOME", &launch.account.home);
    }
    let (output, errors) = outputs(&launch.output).map_err(start)?;
    command.stdin(input(&launch.output).map_err(start)?).stdout(output).stderr(errors);
    // A missing group costs the grouping, not the program.
    let door = launch.cgroup.and_then(|group| OpenOptions::new().write(true).open(group.door()).ok());
    prepare(&mut command, launch, door);
    let child = command.spawn().map_err(start)?;
    let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    process.ok_or_else(|| start(io::Error::from(io::ErrorKind::InvalidData)))
}

fn prepare(command: &mut Command, launch: &Launch<'_>, door: Option<File>) {
    let account = launch.account;
    let (uid, gid) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
    let mut groups: Vec<Gid> = account.groups.iter().copied().map(Gid::from_raw).collect();
    if !groups.contains(&gid) {
        groups.push(gid);
    }
    let keep = launch.keep.to_vec();
    let limits = launch.limits.to_vec();
    // As engines do: a program that opens /dev/stdout opens the pipe again, for which it must be its owner.
    let owns: &[fn() -> BorrowedFd<'static>] = match launch.output {
        Output::Pipe(_) => &[rustix::stdio::stdout],
        Output::Attached(Ends { input: None, .. }) => &[rustix::stdio::stdout, rustix::stdio::stderr],
        Output::Attached(_) => &[rustix::stdio::stdin, rustix::stdio::stdout, rustix::stdio::stderr],
        Output::Console | Output::Reports(_) => &[],
    };
    let spared = launch.spared;
    crate::system::before_exec(command, launch.signals, move || {
        setsid()?;
        if let Some(door) = &door {
            rustix::io::write(door, b"0")?;
        }
        limits::take(&limits);
        if spared {
            limits::spare();
        }
        for stream in owns {
            let _ = rustix::fs::fchown(stream(), Some(uid), Some(gid));
        }
        for number in &keep {
            keep_open(*number)?;
        }
        set_thread_groups(&groups)?;
        set_thread_gid(gid)?;
        set_thread_uid(uid)?;
        Ok(())
    });
}

fn keep_open(number: RawFd) -> io::Result<()> {
    let descriptor = crate::system::borrow(number).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(fcntl_setfd(descriptor, FdFlags::empty())?)
}

fn input(output: &Output<'_>) -> io::Result<Stdio> {
    Ok(match output {
        Output::Attached(Ends { input: Some(pipe), .. }) => Stdio::from(pipe.try_clone()?),
        _ => Stdio::null(),
    })
}

fn outputs(output: &Output<'_>) -> io::Result<(Stdio, Stdio)> {
    Ok(match output {
        Output::Console => (console(), console()),
        Output::Pipe(pipe) => (Stdio::from(pipe.try_clone()?), Stdio::from(pipe.try_clone()?)),
        Output::Attached(ends) => {
            (Stdio::from(ends.output.try_clone()?), Stdio::from(ends.errors.try_clone()?))
        }
        Output::Reports(pipe) => (Stdio::from(pipe.try_clone()?), console()),
    })
}

fn console() -> Stdio {
    let flags = rustix::fs::OFlags::NOCTTY.bits().cast_signed();
    let mut options = OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::custom_flags(options.write(true), flags);
    options.open("/dev/console").map_or_else(|_| Stdio::null(), Stdio::from)
}

fn has(environment: &[String], name: &str) -> bool {
    environment.iter().any(|entry| entry.split_once('=').is_some_and(|(key, _)| key == name))
}

fn hint(program: &str, error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound if program.contains('/') && Path::new(program).exists() => {
            " (the interpreter or loader it names is not in the image)"
        }
        io::ErrorKind::NotFound if !program.contains('/') => " (not in any directory of PATH)",
        _ => "",
    }
}

/// The number of a descriptor, to be kept over exec.
pub fn number(descriptor: &OwnedFd) -> RawFd {
    descriptor.as_raw_fd()
}

#[cfg(test)]
mod tests {
    use neonvm_test_support::{need, needs};

    use std::io::Read;

    use super::*;
    use crate::process::Exit;

    fn run(command: &[&str], environment: &[&str], directory: &str) -> (String, Exit) {
        let owned = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let account = own_account();
        let process = spawn(&Launch {
            command: &owned(command),
            environment: &owned(environment),
            account: &account,
            directory,
            cgroup: None,
            output: Output::Pipe(&writer),
            keep: &[],
            signals: Signals::Unblocked,
            limits: &[],
            spared: false,
        })
        .unwrap();
        drop(writer);
        let mut text = String::new();
        File::from(reader).read_to_string(&mut text).unwrap();
        let status = rustix::process::waitpid(Some(process), rustix::process::WaitOptions::empty());
        let status = status.unwrap().unwrap().1;
        (text, Exit::Code(status.exit_status().unwrap_or(-1)))
    }

    fn own_account() -> Account {
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        Account { uid, gid, home: "/home/test".into(), ..Account::default() }
    }

    fn is_root() -> bool {
        rustix::process::getuid().is_root()
    }

    #[test]
    fn environment_and_directory_are_just_as_configured() {
        // Supplementary groups can be set by root only.
        need!(needs::root());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("made");
        let (text, exit) = run(&["env"], &["PATH=/usr/bin:/bin", "A=x y"], path.to_str().unwrap());
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["A=x y", "HOME=/home/test", "PATH=/usr/bin:/bin"]);
        assert_eq!(exit, Exit::Code(0));
        assert!(path.is_dir());
    }

    /// What an image links its log to.
    #[test]
    fn the_user_owns_the_standard_streams() {
        need!(needs::root());
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let account = Account { uid: 65_534, gid: 65_534, home: "/".into(), ..Account::default() };
        let text = "echo out > /dev/stdout && echo err > /dev/stderr && cat < /dev/stdin && ulimit -n";
        let limits = [(Resource::Nofile, Some(1000))];
        spawn(&Launch {
            command: &["sh", "-c", text].map(str::to_owned),
            environment: &["PATH=/usr/bin:/bin".to_owned()],
            account: &account,
            directory: "/",
            cgroup: None,
            output: Output::Pipe(&writer),
            keep: &[],
            signals: Signals::Unblocked,
            limits: &limits,
            spared: false,
        })
        .unwrap();
        drop(writer);
        let mut text = String::new();
        File::from(reader).read_to_string(&mut text).unwrap();
        assert_eq!(text, "out\nerr\n1000\n");
        let _ = rustix::process::wait(rustix::process::WaitOptions::empty());
    }

    #[test]
    fn a_missing_program_is_named_with_a_hint() {
        let account = own_account();
        let command = ["no-such-program".to_owned()];
        let error = spawn(&Launch {
            command: &command,
            environment: &["PATH=/bin".to_owned()],
            account: &account,
            directory: "/",
            cgroup: None,
            output: Output::Console,
            keep: &[],
            signals: Signals::Unblocked,
            limits: &[],
            spared: false,
        })
        .unwrap_err();
        assert!(error.to_string().starts_with("start no-such-program: "), "{error}");
        assert!(error.to_string().contains("PATH") || !is_root(), "{error}");
    }
}
