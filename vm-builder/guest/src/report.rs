//! Reports of events to the host and on the console.
//!
//! Children of init report by lines on their standard output ([`from_child`]): the port can be opened only once.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use neonvm_types::guest::{REPORT_PORT, Report, ReportKind};
use rustix::fs::OFlags;
use rustix::time::{ClockId, clock_gettime};

use crate::device::port;

/// Reports kept while the host does not listen; older ones are dropped.
const KEPT: usize = 256;

/// Time since the kernel started.
pub fn uptime() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

/// Writes a line to the console, if there is one and it takes it at once.
pub fn console(text: &str) {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC).bits().cast_signed();
    if let Ok(mut console) = OpenOptions::new().write(true).custom_flags(flags).open("/dev/console") {
        let line = format!("neonvm: {text}\n");
        // A console without a reader must not hold up the boot.
        let _ = console.write_all(line.as_bytes());
    }
}

/// The line a child of init prints to have something reported.
pub fn from_child(kind: &ReportKind) -> String {
    serde_json::to_string(kind).unwrap_or_default()
}

/// Has init report a failure of this process. To be called by children of init only.
pub fn fail(message: &str) {
    let line = from_child(&ReportKind::Failure { message: message.to_owned(), workload: false });
    let mut output = std::io::stdout();
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}

/// How long readiness waits for the first interface to get its address: without one the host could not use the news.
const ADDRESS: Duration = Duration::from_secs(5);

/// Whether the first interface has a route, which comes with its address; also true if there is no such interface.
fn has_address() -> bool {
    let first = crate::network::FIRST;
    if !crate::network::exists(first) {
        return true;
    }
    let routes = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
    routes.lines().skip(1).any(|line| line.split_whitespace().next() == Some(first))
}

/// Has init report [`ReportKind::Ready`] as soon as this address answers, and the host can reach it. To be called by the
/// daemon only.
pub fn announce_ready(address: std::net::SocketAddr) {
    let mut target = address;
    if target.ip().is_unspecified() {
        target.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    }
    let connect = move || {
        let mut pause = Duration::from_millis(5);
        while std::net::TcpStream::connect_timeout(&target, Duration::from_secs(1)).is_err() {
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_secs(1));
        }
        let overdue = std::time::Instant::now() + ADDRESS;
        while !has_address() && std::time::Instant::now() < overdue {
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut output = std::io::stdout();
        let _ = writeln!(output, "{}", from_child(&ReportKind::Ready)).and_then(|()| output.flush());
    };
    // Without a thread the host still finds out by querying the daemon.
    let _ = std::thread::Builder::new().name("ready".into()).stack_size(64 << 10).spawn(connect);
}

/// A short text of a report.
pub fn describe(kind: &ReportKind) -> String {
    match kind {
        ReportKind::Booted { version } => format!("init {version}"),
        ReportKind::Ready => "daemon ready".into(),
        ReportKind::WorkloadStarted { pid, restarts: 0 } => format!("workload started, process {pid}"),
        ReportKind::WorkloadStarted { pid, restarts } => {
            format!("workload started, process {pid}, restart {restarts}")
        }
        ReportKind::WorkloadExited { code, signal, out_of_memory } => {
            let memory = if *out_of_memory { ", out of memory" } else { "" };
            match (code, signal) {
                (_, Some(signal)) => {
                    format!(
                        "workload ended by signal {signal} (status {}){memory}",
                        signal.saturating_add(128)
                    )
                }
                (code, None) => format!("workload ended with status {}{memory}", code.unwrap_or_default()),
            }
        }
        ReportKind::Failure { message, .. } => format!("failure: {message}"),
        ReportKind::FreezeExpired { frozen_ms, .. } => {
            format!("file systems thawed after {frozen_ms} ms: no client did")
        }
        ReportKind::ShuttingDown { reason } => format!("shutting down: {reason}"),
    }
}

/// Reports on their way to the host.
#[derive(Debug, Default)]
pub struct Reporter {
    port: Option<File>,
    waiting: VecDeque<Vec<u8>>,
}

impl Reporter {
    /// Reports to the host and on the console.
    pub fn report(&mut self, kind: ReportKind) {
        console(&describe(&kind));
        let uptime_ms = u64::try_from(uptime().as_millis()).unwrap_or(u64::MAX);
        let Ok(mut line) = serde_json::to_vec(&Report { uptime_ms, kind }) else { return };
        line.push(b'\n');
        if self.waiting.len() >= KEPT {
            self.waiting.pop_front();
        }
        self.waiting.push_back(line);
        self.flush();
    }

    /// Reports a failure; the boot continues.
    pub fn failure(&mut self, message: impl Into<String>) {
        self.report(ReportKind::Failure { message: message.into(), workload: false });
    }

    /// Opens the port if it has appeared. True when it was opened now.
    pub fn open_port(&mut self) -> bool {
        if self.port.is_some() {
            return false;
        }
        let flags = (OFlags::NONBLOCK | OFlags::CLOEXEC).bits().cast_signed();
        self.port = port::find(REPORT_PORT)
            .and_then(|node| OpenOptions::new().read(true).write(true).custom_flags(flags).open(node).ok());
        self.flush();
        self.port.is_some()
    }

    /// The open port, to be waited on.
    pub fn port(&self) -> Option<&File> {
        self.port.as_ref()
    }

    /// Writes what the port takes.
    pub fn flush(&mut self) {
        let Some(port) = &mut self.port else { return };
        while let Some(line) = self.waiting.front_mut() {
            match port.write(line) {
                Ok(count) if count >= line.len() => {
                    self.waiting.pop_front();
                }
                // The rest of the line goes next; what was begun is never dropped as a whole.
                Ok(count) => {
                    line.drain(..count);
                }
                Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_reported_as_shells_do() {
        let kind = ReportKind::WorkloadExited { code: None, signal: Some(9), out_of_memory: true };
        assert_eq!(describe(&kind), "workload ended by signal 9 (status 137), out of memory");
    }

    #[test]
    fn reports_without_a_host_are_bounded() {
        let mut reporter = Reporter::default();
        for number in 0..KEPT + 10 {
            reporter.report(ReportKind::Failure { message: number.to_string(), workload: false });
        }
        assert_eq!(reporter.waiting.len(), KEPT);
        assert!(String::from_utf8_lossy(&reporter.waiting[0]).contains("\"10\""));
    }

    #[test]
    fn what_a_child_prints_is_read_back() {
        let kind = ReportKind::Failure { message: "a\nb".into(), workload: false };
        let line = from_child(&kind);
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<ReportKind>(&line).unwrap(), kind);
    }
}
