//! Commands of the shell itself.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use rustix::thread::{NanosleepRelativeResult, Timespec};

use super::{Shell, change, inspect, usage};

const HELP: &str = "\
cat [FILE…]  cd [DIR]  chown UID[:GID] PATH…  cp FROM TO  df  dmesg  echo [-n] [WORD…]  env  exit [STATUS]
export NAME=VALUE…  free  help  hostname  ip  kill [-SIGNAL] PID…  ls [-la] [PATH…]  mount  mv FROM TO  ps  pwd
sleep SECONDS  sysctl [-w] NAME[=VALUE]…  uname [-a]  unset NAME…
also: 'quotes' \"quotes\" $NAME ; && || < > >> and programs by path or PATH\n";

/// Runs a command of the shell; none if there is none of that name.
pub(super) fn run(
    shell: &mut Shell,
    name: &str,
    arguments: &[String],
    input: Option<&File>,
    output: &mut dyn Write,
) -> Option<io::Result<u8>> {
    let first = arguments.first().map(String::as_str);
    let done = match name {
        "cat" => cat(arguments, input, output),
        "cd" => enter(shell, first),
        "chown" => change::owner(arguments),
        "cp" | "mv" => change::transfer(name, arguments),
        "df" => inspect::df(output),
        "dmesg" => inspect::dmesg(output),
        "echo" => echo(arguments, output),
        "env" => shell.environment().iter().try_for_each(|(name, value)| writeln!(output, "{name}={value}")),
        "exit" => {
            shell.over = true;
            return Some(Ok(first.map_or(shell.status, |status| status.parse().unwrap_or(super::USAGE))));
        }
        "export" | "unset" => variables(shell, name, arguments),
        "free" => inspect::free(output),
        "help" => output.write_all(HELP.as_bytes()),
        "hostname" => writeln!(output, "{}", rustix::system::uname().nodename().to_string_lossy()),
        "ip" => inspect::addresses(output),
        "kill" => kill(arguments),
        "ls" => list(arguments, output),
        "mount" if arguments.is_empty() => cat(&["/proc/mounts".to_owned()], None, output),
        "ps" => inspect::ps(output),
        "pwd" => std::env::current_dir().and_then(|place| writeln!(output, "{}", place.display())),
        "sleep" => sleep(first),
        "sysctl" => change::sysctl(arguments, output),
        "uname" => uname(first, output),
        _ => return None,
    };
    Some(done.and_then(|()| output.flush()).map(|()| 0))
}

fn cat(files: &[String], input: Option<&File>, output: &mut dyn Write) -> io::Result<()> {
    for file in files {
        let mut opened = File::open(file).map_err(|error| usage(&format!("{file}: {error}")))?;
        io::copy(&mut opened, output)?;
    }
    if let (true, Some(mut input)) = (files.is_empty(), input) {
        io::copy(&mut input, output)?;
    } else if files.is_empty() {
        io::copy(&mut io::stdin().lock(), output)?;
    }
    Ok(())
}

fn enter(shell: &Shell, directory: Option<&str>) -> io::Result<()> {
    let home = || shell.variable("HOME").unwrap_or_else(|| "/".into());
    std::env::set_current_dir(directory.map_or_else(home, str::to_owned))
}

fn echo(words: &[String], output: &mut dyn Write) -> io::Result<()> {
    let (words, end) = match words.split_first() {
        Some((flag, rest)) if flag == "-n" => (rest, ""),
        _ => (words, "\n"),
    };
    write!(output, "{}{end}", words.join(" "))
}

fn variables(shell: &mut Shell, command: &str, arguments: &[String]) -> io::Result<()> {
    for argument in arguments {
        let (name, value) = argument.split_once('=').unwrap_or((argument, ""));
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || !name.bytes().all(plain) {
            return Err(usage("expected NAME=VALUE"));
        }
        match command {
            "unset" => shell.variables.insert(name.to_owned(), None),
            _ if argument.contains('=') => shell.variables.insert(name.to_owned(), Some(value.to_owned())),
            _ => None,
        };
    }
    Ok(())
}

fn kill(arguments: &[String]) -> io::Result<()> {
    let (signal, pids) = match arguments.split_first() {
        Some((flag, rest)) if flag.len() > 1 && flag.starts_with('-') => {
            (signal(flag.trim_start_matches('-')).ok_or_else(|| usage("unknown signal"))?, rest)
        }
        _ => (Signal::TERM, arguments),
    };
    for pid in pids {
        let pid = pid.parse().ok().filter(|pid| *pid > 0).and_then(Pid::from_raw);
        rustix::process::kill_process(pid.ok_or_else(|| usage("expected a process number"))?, signal)?;
    }
    Ok(())
}

fn signal(name: &str) -> Option<Signal> {
    Some(match name.strip_prefix("SIG").unwrap_or(name) {
        "1" | "HUP" => Signal::HUP,
        "2" | "INT" => Signal::INT,
        "3" | "QUIT" => Signal::QUIT,
        "9" | "KILL" => Signal::KILL,
        "10" | "USR1" => Signal::USR1,
        "12" | "USR2" => Signal::USR2,
        "15" | "TERM" => Signal::TERM,
        "18" | "CONT" => Signal::CONT,
        "19" | "STOP" => Signal::STOP,
        _ => return None,
    })
}

fn list(arguments: &[String], output: &mut dyn Write) -> io::Result<()> {
    let (flags, mut paths): (Vec<_>, Vec<_>) =
        arguments.iter().map(String::as_str).partition(|argument| argument.starts_with('-'));
    let flag = |letter| flags.iter().any(|flag| flag.contains(letter));
    if paths.is_empty() {
        paths.push(".");
    }
    for path in paths {
        let path = Path::new(path);
        let metadata =
            fs::symlink_metadata(path).map_err(|error| usage(&format!("{}: {error}", path.display())))?;
        if !metadata.is_dir() {
            entry(path, &path.display().to_string(), flag('l'), output)?;
            continue;
        }
        let mut names: Vec<_> = fs::read_dir(path)?.flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        for name in names {
            let shown = name.to_string_lossy();
            if flag('a') || !shown.starts_with('.') {
                entry(&path.join(&name), &shown, flag('l'), output)?;
            }
        }
    }
    Ok(())
}

fn entry(path: &Path, name: &str, long: bool, output: &mut dyn Write) -> io::Result<()> {
    let Some(metadata) = fs::symlink_metadata(path).ok().filter(|_| long) else {
        return writeln!(output, "{name}");
    };
    let kind = metadata.file_type();
    let letter = match () {
        () if kind.is_dir() => 'd',
        () if kind.is_symlink() => 'l',
        () if kind.is_block_device() => 'b',
        () if kind.is_char_device() => 'c',
        () if kind.is_socket() => 's',
        () if kind.is_fifo() => 'p',
        () => '-',
    };
    let (mode, uid, gid, size) = (metadata.mode() & 0o7777, metadata.uid(), metadata.gid(), metadata.len());
    let target = fs::read_link(path).map(|target| format!(" -> {}", target.display())).unwrap_or_default();
    writeln!(output, "{letter} {mode:04o} {uid:>5} {gid:>5} {size:>12} {name}{target}")
}

fn sleep(seconds: Option<&str>) -> io::Result<()> {
    let seconds = seconds.and_then(|seconds| seconds.parse().ok());
    let duration = seconds.and_then(|seconds: f64| Duration::try_from_secs_f64(seconds).ok());
    let duration = duration.ok_or_else(|| usage("expected a number of seconds"))?;
    let wanted = Timespec::try_from(duration).map_err(|_| usage("too long"))?;
    // The library's sleep would continue after an interrupt.
    match rustix::thread::nanosleep(&wanted) {
        NanosleepRelativeResult::Interrupted(_) => Err(io::Error::other("interrupted")),
        _ => Ok(()),
    }
}

fn uname(flag: Option<&str>, output: &mut dyn Write) -> io::Result<()> {
    let name = rustix::system::uname();
    let parts = [name.sysname(), name.nodename(), name.release(), name.version(), name.machine()];
    let parts = parts.map(|part| part.to_string_lossy().into_owned());
    match flag {
        Some("-a") => writeln!(output, "{}", parts.join(" ")),
        Some("-r") => writeln!(output, "{}", name.release().to_string_lossy()),
        Some("-m") => writeln!(output, "{}", name.machine().to_string_lossy()),
        _ => writeln!(output, "{}", name.sysname().to_string_lossy()),
    }
}
