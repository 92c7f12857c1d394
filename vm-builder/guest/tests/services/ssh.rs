//! OpenSSH's client against our server.

use neonvm_test_support::{Need, eventually_blocking, need, needs};
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal};
use rustix::termios::Winsize;

use crate::process::{Daemon, PROGRAM, connect, wait_until};

/// A server with one key that may log in.
pub(crate) struct Server {
    daemon: Daemon,
    directory: tempfile::TempDir,
    user: String,
}

impl Server {
    /// A server with `options` before the key in its file of keys, and what a client needs.
    pub(crate) fn start(options: &str) -> Need<Self> {
        needs::programs(&["ssh", "ssh-keygen"])?;
        let directory = tempfile::tempdir().unwrap();
        for name in ["key", "other"] {
            let path = directory.path().join(name);
            let made =
                Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path).status();
            assert!(made.unwrap().success());
        }
        let public = fs::read_to_string(directory.path().join("key.pub")).unwrap();
        let keys = directory.path().join("authorized_keys");
        fs::write(&keys, format!("# keys\n{options} {public}")).unwrap();
        fs::set_permissions(&keys, fs::Permissions::from_mode(0o644)).unwrap();
        let host_key = directory.path().join("host/key");
        let daemon = Daemon::start(
            Path::new("/"),
            &[
                format!("--authorized-keys={}", keys.display()),
                format!("--host-key={}", host_key.display()),
                "--verbose=on".into(),
            ],
        );
        let user = Command::new("id").arg("-un").output().unwrap().stdout;
        Ok(Self { daemon, directory, user: String::from_utf8(user).unwrap().trim().to_owned() })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn options(&self, key: &str) -> Vec<String> {
        let known = self.path("known");
        let mut options =
            vec!["-F".into(), "/dev/null".into(), "-i".into(), self.path(key).display().to_string()];
        for option in [
            "StrictHostKeyChecking=accept-new".into(),
            format!("UserKnownHostsFile={}", known.display()),
            "GlobalKnownHostsFile=/dev/null".into(),
            "IdentitiesOnly=yes".into(),
            "BatchMode=yes".into(),
            "ConnectTimeout=30".into(),
            "LogLevel=ERROR".into(),
        ] {
            options.extend(["-o".into(), option]);
        }
        options
    }

    pub(crate) fn ssh(&self, extra: &[&str], words: &[&str]) -> Command {
        let mut command = Command::new("ssh");
        command.args(self.options("key")).args(["-p", &self.daemon.ssh.port().to_string()]).args(extra);
        command.arg(format!("{}@127.0.0.1", self.user)).args(words).env_remove("SSH_AUTH_SOCK");
        command.stdin(Stdio::null());
        command
    }

    fn run(&self, text: &str) -> Output {
        self.ssh(&[], &[text]).output().unwrap()
    }

    /// Output of a command that is given this input.
    fn through(&self, text: &str, input: &[u8]) -> Vec<u8> {
        through(self.ssh(&[], &[text]), input)
    }
}

pub(crate) fn through(mut command: Command, input: &[u8]) -> Vec<u8> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let mut output = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut output).unwrap();
    assert!(child.wait().unwrap().success());
    writer.join().unwrap().unwrap();
    output
}

/// Ten megabytes that do not repeat.
pub(crate) fn numbers() -> Vec<u8> {
    (0..1_400_000u32).flat_map(|number| format!("{number}\n").into_bytes()).collect()
}

#[test]
fn commands_run_and_report_how_they_ended() {
    let server = need!(Server::start(""));
    let output = server.run("echo out; echo err >&2; exit 7");
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!((&*output.stdout, &*output.stderr), (&b"out\n"[..], &b"err\n"[..]));
    // A signal has no exit status; the client exits with 255 then.
    assert_eq!(server.run("kill -TERM $$").status.code(), Some(255));
    let output = server.run("echo $USER:$HOME:$SSH_CLIENT; pwd; id -u; test -t 0 || echo no terminal");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with(&format!("{}:/", server.user)) && text.contains(":127.0.0.1 "), "{text}");
    assert!(text.ends_with("no terminal\n"), "{text}");
    // A login shell reads commands from standard input.
    assert_eq!(through(server.ssh(&[], &[]), b"echo $((6*7)); exit\n"), b"42\n");
    let mut language = server.ssh(&["-o", "SendEnv=LC_TEST PATH_TEST"], &["echo $LC_TEST-$PATH_TEST"]);
    assert_eq!(language.env("LC_TEST", "x").env("PATH_TEST", "y").output().unwrap().stdout, b"x-\n");
}

#[test]
fn much_data_goes_both_ways() {
    let server = need!(Server::start(""));
    let data = numbers();
    assert!(server.through("cat", &data) == data, "10 MiB there and back");
    assert!(server.through("seq 0 1399999", b"") == data, "10 MiB from there");
    assert_eq!(server.through("wc -c", &data), format!("{}\n", data.len()).as_bytes());
    let part = &data[..2 << 20];
    let mut local = Command::new("od");
    local.arg("-v");
    assert!(server.through("od -v", part) == through(local, part), "more comes back than goes there");
    assert_eq!(server.through("head -c 5", &data[..100]), &data[..5]);
}

#[test]
fn only_the_right_key_logs_in() {
    let server = need!(Server::start(""));
    let attempt = |options: Vec<String>, user: &str| {
        let mut command = Command::new("ssh");
        command.args(options).args(["-p", &server.daemon.ssh.port().to_string()]);
        let output =
            command.arg(format!("{user}@127.0.0.1")).arg("true").env_remove("SSH_AUTH_SOCK").output();
        let output = output.unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (status, error) = attempt(server.options("other"), &server.user);
    assert_eq!(status, Some(255));
    assert!(error.contains("Permission denied (publickey)"), "{error}");
    let mut password = server.options("key");
    password.extend(["-o".into(), "PreferredAuthentications=password,keyboard-interactive".into()]);
    let (status, error) = attempt(password, &server.user);
    assert!(status == Some(255) && error.contains("Permission denied (publickey)"), "{error}");
    assert_eq!(attempt(server.options("key"), "no-such-user").0, Some(255));
    let known = fs::read_to_string(server.path("known")).unwrap();
    assert_eq!(known.lines().count(), 1, "every connection shows the same host key: {known}");
    assert_eq!(attempt(server.options("key"), &server.user).0, Some(0));
}

#[test]
fn options_of_a_key_bind() {
    let server = need!(Server::start(r#"restrict,command="echo forced $SSH_ORIGINAL_COMMAND""#));
    assert_eq!(server.run("echo mine").stdout, b"forced echo mine\n");
    let refused = server.ssh(&["-tt"], &["true"]).output().unwrap();
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("PTY allocation request failed"),
        "{refused:?}"
    );
    let server = need!(Server::start(r#"from="10.0.0.1""#));
    assert_eq!(server.run("true").status.code(), Some(255), "an option we do not know refuses the key");
}

/// Both ends of a terminal.
fn terminal() -> (OwnedFd, OwnedFd) {
    let master =
        rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY).unwrap();
    rustix::pty::grantpt(&master).unwrap();
    rustix::pty::unlockpt(&master).unwrap();
    let path = rustix::pty::ptsname(&master, Vec::new()).unwrap();
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
    let line = rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).unwrap();
    (master, line)
}

/// Reads from a terminal until the text comes.
fn expect(master: &OwnedFd, seen: &mut String, text: &str) {
    let mut buffer = [0; 1024];
    while !seen.contains(text) {
        let mut polled = [rustix::event::PollFd::new(master, rustix::event::PollFlags::IN)];
        let deadline = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
        assert_eq!(
            rustix::event::poll(&mut polled, Some(&deadline)),
            Ok(1),
            "waited for {text:?} after {seen:?}"
        );
        let read = rustix::io::read(master, &mut buffer).unwrap_or(0);
        assert!(read > 0, "ended before {text:?}: {seen:?}");
        seen.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
}

/// What can be read at once.
fn read_now(master: &OwnedFd) -> String {
    let mut polled = [rustix::event::PollFd::new(master, rustix::event::PollFlags::IN)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut buffer = [0; 1024];
    let ready = rustix::event::poll(&mut polled, Some(&now)) == Ok(1);
    let read = if ready { rustix::io::read(master, &mut buffer).unwrap_or(0) } else { 0 };
    String::from_utf8_lossy(&buffer[..read]).into_owned()
}

#[test]
fn terminals_have_size_and_type() {
    let server = need!(Server::start(""));
    let (master, line) = terminal();
    let size = |rows, columns| {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&master, size).unwrap();
    };
    size(31, 97);
    let script = "echo $TERM on $(tty | cut -c1-9); stty size; trap 'stty size' WINCH; \
                  echo waiting; while :; do sleep 0.05; done";
    let mut command = server.ssh(&["-tt"], &[script]);
    let mut child = command
        .env("TERM", "vt220")
        .stdin(line.try_clone().unwrap())
        .stdout(line.try_clone().unwrap())
        .stderr(line)
        .spawn()
        .unwrap();
    drop(command);
    let mut seen = String::new();
    expect(&master, &mut seen, "vt220 on /dev/pts/");
    expect(&master, &mut seen, "31 97");
    expect(&master, &mut seen, "waiting");
    size(40, 120);
    let client = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
    rustix::process::kill_process(client, Signal::WINCH).unwrap();
    expect(&master, &mut seen, "40 120");
    // The client's terminal is raw: the byte of Ctrl-C goes to the other side, and the terminal there makes it a
    // signal. Pressed until it takes effect: bash continues if it is interrupted while the program that it waits for
    // ends normally. The output is read, so that no process blocks on a full pipe; and shown with all processes if the
    // session does not end.
    let mut shown = String::new();
    let ended = || {
        let _ = rustix::io::write(&master, &[3]);
        shown.push_str(&read_now(&master));
        if child.try_wait().unwrap().is_some() { Ok(()) } else { Err(shown.clone()) }
    };
    let processes = || Command::new("ps").args(["-eo", "pid,ppid,pgid,stat,wchan:20,args"]).output().unwrap();
    let what = || format!("the end of the session: {}", String::from_utf8_lossy(&processes().stdout));
    eventually_blocking(what, ended);
}

#[test]
fn the_small_shell_survives_interrupts() {
    let server = need!(Server::start(""));
    let (master, line) = terminal();
    let mut command = server.ssh(&["-tt"], &[&format!("exec {PROGRAM} shell")]);
    let copy = || line.try_clone().unwrap();
    let mut child = command.stdin(copy()).stdout(copy()).stderr(copy()).spawn().unwrap();
    drop((command, line));
    let mut seen = String::new();
    expect(&master, &mut seen, " # ");
    rustix::io::write(&master, b"echo be''gin; sleep 1000; echo al''ive\n").unwrap();
    expect(&master, &mut seen, "begin");
    // An interrupt that comes before the sleep is lost; the next one is not.
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let keys = master.try_clone().unwrap();
    let presses = std::thread::spawn(move || {
        while stopped.recv_timeout(std::time::Duration::from_millis(200)).is_err() {
            rustix::io::write(&keys, &[3]).unwrap();
        }
    });
    expect(&master, &mut seen, "alive");
    stop.send(()).unwrap();
    presses.join().unwrap();
    rustix::io::write(&master, b"exit 5\n").unwrap();
    wait_until("the end of the shell", || {
        child.try_wait().unwrap().is_some_and(|status| status.code() == Some(5))
    });
}

#[test]
fn programs_end_when_the_client_vanishes() {
    let server = need!(Server::start(""));
    let mut client = server.ssh(&[], &["echo $$; exec sleep 1000"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = client.stdout.take().unwrap();
    let mut number = String::new();
    while !number.ends_with('\n') {
        let mut byte = [0];
        assert_eq!(stdout.read(&mut byte).unwrap(), 1);
        number.push(char::from(byte[0]));
    }
    let process = Path::new("/proc").join(number.trim());
    assert!(process.exists());
    client.kill().unwrap();
    client.wait().unwrap();
    wait_until("the program's end", || !process.exists());
}

#[test]
fn strangers_are_limited() {
    let server = need!(Server::start(""));
    let banner = |stream: &mut std::net::TcpStream| {
        let mut start = [0; 4];
        stream.read_exact(&mut start).is_ok_and(|()| &start == b"SSH-")
    };
    let mut strangers: Vec<_> = (0..10).map(|_| connect(server.daemon.ssh)).collect();
    assert!(strangers.iter_mut().all(banner));
    assert!(!banner(&mut connect(server.daemon.ssh)), "the eleventh is turned away");
    drop(strangers);
    wait_until("room for others", || server.run("true").status.success());
}

#[test]
fn files_are_copied() {
    let server = need!(Server::start(""));
    need!(needs::program("sftp"));
    let (data, copy, back) = (server.path("data"), server.path("copy"), server.path("back"));
    let content = numbers();
    fs::write(&data, &content).unwrap();
    let script = format!(
        "put {} {copy}\nchmod 600 {copy}\nget {copy} {}\nmkdir {dir}\nrename {copy} {dir}/moved\nls -l {dir}\n\
         ln -s moved {dir}/link\nrm {dir}/link\nrm {dir}/moved\nrmdir {dir}\n",
        data.display(),
        back.display(),
        copy = copy.display(),
        dir = server.path("dir").display(),
    );
    let batch = server.path("batch");
    fs::write(&batch, script).unwrap();
    let mut command = Command::new("sftp");
    command.args(server.options("key")).args(["-P", &server.daemon.ssh.port().to_string()]);
    command.arg("-b").arg(&batch).arg(format!("{}@127.0.0.1", server.user));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("moved"), "{output:?}");
    assert!(fs::read(&back).unwrap() == content);
    assert!(!copy.exists() && !server.path("dir").exists());
}
