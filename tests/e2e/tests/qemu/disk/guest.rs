//! A VM in plain QEMU, started with the command that `image inspect --boot-command` prints.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use neonvm_kit::port::Reserved;
use neonvm_test_support::eventually_blocking_within;

use crate::machine::Machine;

/// Time for anything that is to happen; emulated on a busy host it may be slow.
pub(crate) const LIMIT: Duration = Duration::from_secs(240);

/// A port of 127.0.0.1 for one who listens there.
pub(crate) fn own_port() -> Reserved {
    Reserved::loopback().unwrap()
}

/// The lines of the console, and whether it was closed.
type Lines = Arc<Mutex<(Vec<String>, bool)>>;

/// A running VM; ended when it goes out of scope.
pub(crate) struct Guest {
    child: Child,
    lines: Lines,
    monitor: PathBuf,
    ports: Vec<(Reserved, u16)>,
}

impl Guest {
    /// Boots a disk with ports of the VM forwarded.
    pub(crate) fn boot(machine: &Machine, disk: &str, kernel: &str, ports: &[u16], more: &[&str]) -> Self {
        // Without any, the command would forward its usual ones, which may be taken.
        let ports = if ports.is_empty() { &[22] } else { ports };
        let ports: Vec<(Reserved, u16)> = ports.iter().map(|&port| (own_port(), port)).collect();
        let forwards: Vec<String> =
            ports.iter().map(|(host, guest)| format!("{}:{guest}", host.address().port())).collect();
        let mut arguments =
            vec!["image", "inspect", disk, "--boot-command", "--accel", "tcg", "--kernel", kernel];
        for forward in &forwards {
            arguments.extend(["--forward", forward]);
        }
        let line = machine.good(&arguments);
        // Short: the address of a socket has 108 bytes.
        let monitor = std::env::temp_dir().join(format!(
            "neonvm-{}-{}.qmp",
            std::process::id(),
            ports[0].0.address().port()
        ));
        let script =
            format!("exec {} -qmp unix:{},server=on,wait=off \"$@\"", line.trim(), monitor.display());
        let mut command = Command::new("sh");
        command.args(["-c", &script, "qemu"]).args(more).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::inherit()).spawn().unwrap();
        let lines: Lines = Arc::default();
        let (stdout, received) = (child.stdout.take().unwrap(), Arc::clone(&lines));
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                received.lock().unwrap().0.push(line);
            }
            received.lock().unwrap().1 = true;
        });
        Self { child, lines, monitor, ports }
    }

    /// Port on this host for a port of the VM.
    pub(crate) fn port(&self, guest: u16) -> u16 {
        self.ports.iter().find(|(_, port)| *port == guest).unwrap().0.address().port()
    }

    /// Waits until the console has a line with a text.
    pub(crate) fn prints(&self, text: &str) {
        let has_it = || {
            let state = self.lines.lock().unwrap();
            let found = state.0.iter().any(|line| line.contains(text));
            assert!(found || !state.1, "no {text:?} on the console that was closed:\n{}", state.0.join("\n"));
            found.then_some(())
        };
        eventually_blocking_within(LIMIT, || format!("{text:?} in\n{}", self.console()), has_it);
    }

    /// The whole output of the console.
    pub(crate) fn console(&self) -> String {
        self.lines.lock().unwrap().0.join("\n")
    }

    /// Tries until something works.
    pub(crate) fn until<T>(&self, what: &str, mut attempt: impl FnMut() -> Result<T, String>) -> T {
        let last = std::cell::RefCell::new(String::new());
        eventually_blocking_within(
            LIMIT,
            || format!("{what}: {}\n{}", last.borrow(), self.console()),
            || {
                let ended = self.lines.lock().unwrap().1;
                let result = attempt();
                assert!(result.is_ok() || !ended, "{what}: QEMU has ended\n{}", self.console());
                result.map_err(|error| *last.borrow_mut() = error).ok()
            },
        )
    }

    /// The body of an HTTP answer.
    pub(crate) fn http(&self, guest_port: u16, path: &str) -> Result<String, String> {
        let attempt = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port(guest_port)))?;
            stream.set_read_timeout(Some(Duration::from_secs(20)))?;
            write!(stream, "GET {path} HTTP/1.1\r\nHost: vm\r\nConnection: close\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        };
        let text = attempt().map_err(|error| error.to_string())?;
        match text.split_once("\r\n\r\n") {
            Some((head, body)) if head.starts_with("HTTP/1.1 200") => Ok(body.to_owned()),
            _ => Err(format!("answer {text:?}")),
        }
    }

    /// Presses the power button.
    pub(crate) fn press_power_button(&self) {
        let mut stream = UnixStream::connect(&self.monitor).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut answers = BufReader::new(stream.try_clone().unwrap()).lines();
        answers.next().unwrap().unwrap();
        for command in ["qmp_capabilities", "system_powerdown"] {
            writeln!(stream, "{{\"execute\":\"{command}\"}}").unwrap();
            let answer =
                answers.find(|line| line.as_ref().is_ok_and(|line| line.contains("return"))).unwrap();
            answer.unwrap();
        }
    }

    /// Waits until QEMU has ended by itself; returns the output of the console.
    pub(crate) fn ends(mut self) -> String {
        let closed = || self.lines.lock().unwrap().1.then_some(());
        eventually_blocking_within(LIMIT, || format!("the end of\n{}", self.console()), closed);
        let text = self.console();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}\n{text}");
        text
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.monitor);
    }
}
