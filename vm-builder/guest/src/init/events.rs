//! What wakes init: signals, devices, the power button, lines of its children.

use std::io::Read;
use std::os::fd::AsFd;

use neonvm_types::guest::{ReportKind, Start};
use rustix::event::epoll;

use super::shutdown::Target;
use super::{Init, unit};
use crate::cpu;
use crate::daemon::attach;
use crate::device::{BlockDevice, Uevent, links, port};
use crate::network;
use crate::process::freezer;
use crate::report;

pub(super) const SIGNALS: u64 = 0;
pub(super) const UEVENTS: u64 = 1;
pub(super) const REPORTS: u64 = 2;
pub(super) const PORT: u64 = 3;
pub(super) const SYNCHRONISED: u64 = 4;
pub(super) const FIRST_BUTTON: u64 = 16;
/// Longest line a child may send, in bytes; a longer one is cut.
const LONGEST_LINE: usize = 16 << 10;

impl Init {
    pub(super) fn handle(&mut self, source: u64) {
        match source {
            SIGNALS => self.read_signals(),
            UEVENTS => self.read_uevents(),
            REPORTS => self.read_reports(),
            PORT => self.reporter.flush(),
            SYNCHRONISED => {
                self.synchronised.drain();
                self.retry_workload();
            }
            button => self.read_button(button.saturating_sub(FIRST_BUTTON)),
        }
    }

    fn read_signals(&mut self) {
        let mut buffer = [0; 1024];
        while let Ok(count) = rustix::io::read(self.signals.as_fd(), &mut buffer[..]) {
            for signal in crate::system::signals_read(buffer.get(..count).unwrap_or_default()) {
                match signal {
                    libc::SIGTERM => self.ask_shutdown(Target::Reboot, "reboot requested"),
                    libc::SIGUSR1 => self.ask_shutdown(Target::Halt, "halt requested"),
                    libc::SIGUSR2 => self.ask_shutdown(Target::PowerOff, "power-off requested"),
                    libc::SIGPWR => self.ask_shutdown(Target::PowerOff, "power failure"),
                    libc::SIGQUIT => self.ask_shutdown(Target::Restart, "restart of init requested"),
                    libc::SIGINT => self.ctrl_alt_del(),
                    // SIGCHLD is handled after every iteration; SIGHUP has no table to reload.
                    _ => {}
                }
            }
        }
    }

    /// The image's own entries for it, else a reboot.
    fn ctrl_alt_del(&mut self) {
        let mut any = false;
        for unit in &mut self.units {
            if unit.role == unit::Role::Service(Start::Ctrlaltdel) {
                any = true;
                unit.start_at(report::uptime());
            }
        }
        if !any {
            self.ask_shutdown(Target::Reboot, "Ctrl-Alt-Del");
        }
    }

    fn read_button(&mut self, index: u64) {
        let Some(button) = usize::try_from(index).ok().and_then(|index| self.buttons.get_mut(index)) else {
            return;
        };
        let (pressed, there) = button.read();
        if !there {
            // Its place stays, so that the numbers of the others do.
            let _ = epoll::delete(&self.epoll, &button.file);
        }
        if pressed {
            self.ask_shutdown(Target::PowerOff, "power button");
        }
    }

    fn read_uevents(&mut self) {
        loop {
            let Some(listener) = &self.uevents else { return };
            match listener.next() {
                Ok(Some(event)) => self.device(&event),
                Ok(None) => return,
                Err(_) => {
                    // Some were lost: look for everything.
                    for device in crate::device::block::scan() {
                        links::make(&device);
                    }
                    port::link_all();
                    self.open_report_port();
                    self.open_buttons();
                    self.start_dhcp();
                }
            }
        }
    }

    fn device(&mut self, event: &Uevent) {
        match (event.subsystem.as_str(), event.action.as_str()) {
            ("cpu", "add") if !self.line.cpus_by_daemon => cpu::bring_online(&event.path),
            ("block", "add" | "change") => {
                if let Some(device) = BlockDevice::inspect(event.name()) {
                    links::make(&device);
                }
            }
            ("block", "remove") => links::sweep(),
            ("virtio-ports", _) => {
                port::link_all();
                self.open_report_port();
            }
            ("input", "add") => self.open_buttons(),
            ("memory", "add" | "remove") => self.limits.bound_tasks(),
            ("module", "add") => self.raise_limits(),
            ("net", "add") => {
                let given = self.network.as_ref().filter(|_| network::wants_dhcp(&self.line));
                let given = given.map_or_else(Vec::new, network::apply);
                for problem in network::set_up(&self.line).into_iter().chain(given) {
                    self.reporter.failure(problem);
                }
                self.start_dhcp();
            }
            _ => {}
        }
    }

    fn start_dhcp(&mut self) {
        if network::exists(network::FIRST) {
            let now = report::uptime();
            for unit in &mut self.units {
                if unit.role == unit::Role::Dhcp && unit.state == unit::State::Idle {
                    unit.start_at(now);
                }
            }
        }
    }

    fn read_reports(&mut self) {
        let mut buffer = [0; 4096];
        let mut lines = Vec::new();
        if let Some((reader, _)) = &self.reports {
            while let Ok(count @ 1..) = rustix::io::read(reader, &mut buffer[..]) {
                self.report_bytes.extend_from_slice(buffer.get(..count).unwrap_or_default());
                while let Some(end) = self.report_bytes.iter().position(|byte| *byte == b'\n') {
                    lines.push(self.report_bytes.drain(..=end).collect::<Vec<u8>>());
                }
                if self.report_bytes.len() > LONGEST_LINE {
                    lines.push(std::mem::take(&mut self.report_bytes));
                }
                if count < buffer.len() {
                    break;
                }
            }
        }
        for line in lines {
            if line.strip_suffix(b"\n") == Some(attach::ENDED.as_bytes()) {
                self.attached_ended();
                continue;
            }
            if let Some(group) = std::str::from_utf8(&line).ok().and_then(freezer::announced) {
                self.freezer.note(group, report::uptime());
                continue;
            }
            match serde_json::from_slice::<ReportKind>(&line) {
                Ok(kind) => self.reporter.report(kind),
                Err(_) => report::console(String::from_utf8_lossy(&line).trim_end()),
            }
        }
    }
}

/// Reads all that is there; for descriptors of which only the wake-up matters.
pub(super) fn drain(mut file: impl Read) {
    let mut buffer = [0; 4096];
    while file.read(&mut buffer).is_ok_and(|count| count > 0) {}
}
