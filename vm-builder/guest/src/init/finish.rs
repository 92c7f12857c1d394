//! The end of the VM.

use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use neonvm_types::guest::Start;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{WaitOptions, wait};
use rustix::system::{RebootCommand, reboot};

use super::shutdown::Target;
use super::unit::{Role, State, Unit};
use super::{Init, setup};
use crate::mount::table;
use crate::process::Cgroup;
use crate::process::cgroup::signal_process;
use crate::report;

/// How long the forwarder may take to pass on what was printed last.
const LAST_LINES: Duration = Duration::from_secs(2);
/// How long killed processes may take to be gone before the file systems are unmounted.
const GONE: Duration = Duration::from_secs(1);

/// Requests everything but the forwarder to end. Shells at a terminal heed only a hang-up.
pub(super) fn terminate(units: &[Unit]) {
    for group in groups(units) {
        group.signal(libc::SIGTERM);
        group.signal(libc::SIGHUP);
        group.signal(libc::SIGCONT);
    }
    for unit in units.iter().filter(|unit| unit.role != Role::Forwarder) {
        if let State::Running { process, .. } = unit.state {
            signal_process(process, libc::SIGTERM);
        }
    }
}

/// Kills everything but the forwarder.
pub(super) fn kill(units: &[Unit]) {
    for group in groups(units) {
        group.kill();
    }
    for unit in units.iter().filter(|unit| unit.role != Role::Forwarder) {
        if let State::Running { process, .. } = unit.state {
            signal_process(process, libc::SIGKILL);
        }
    }
}

fn groups(units: &[Unit]) -> Vec<Cgroup> {
    let mut names: Vec<&str> =
        units.iter().filter(|unit| unit.role != Role::Forwarder).map(|unit| unit.cgroup.as_str()).collect();
    names.push(crate::limits::SESSIONS);
    names.sort_unstable();
    names.dedup();
    names.into_iter().filter_map(|name| Cgroup::make(name).ok()).collect()
}

impl Init {
    /// Ends the VM. Returns only if the kernel refuses every way to end.
    pub(super) fn finish(&mut self, target: Target) {
        self.end_forwarder();
        crate::system::signal_all_processes(libc::SIGKILL);
        self.reap_until(Instant::now() + GONE, |_| false);
        for problem in table::unmount_all() {
            report::console(&problem);
        }
        self.reporter.flush();
        let command = match target {
            Target::PowerOff => RebootCommand::PowerOff,
            Target::Reboot => RebootCommand::Restart,
            Target::Halt => RebootCommand::Halt,
            Target::Restart => {
                self.restart();
                RebootCommand::Restart
            }
        };
        for command in [command, RebootCommand::PowerOff, RebootCommand::Halt] {
            if let Err(error) = reboot(command) {
                report::console(&format!("end the VM: {}", std::io::Error::from(error)));
            }
        }
    }

    fn end_forwarder(&mut self) {
        let forwarder = self.units.iter().find(|unit| unit.role == Role::Forwarder).map(|unit| unit.state);
        if let Some(State::Running { process, .. }) = forwarder {
            signal_process(process, libc::SIGTERM);
            self.reap_until(Instant::now() + LAST_LINES, |ended| ended == process);
        }
    }

    /// Reaps until a process is seen, no child is left, or the deadline.
    fn reap_until(&self, deadline: Instant, is_last: impl Fn(i32) -> bool) {
        loop {
            loop {
                match wait(WaitOptions::NOHANG) {
                    Ok(Some((process, _))) if is_last(process.as_raw_nonzero().get()) => return,
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(_) => return,
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let mut waited = [PollFd::new(&self.signals, PollFlags::IN)];
            let _ = poll(&mut waited, Timespec::try_from(left).ok().as_ref());
            let mut buffer = [0; 1024];
            while rustix::io::read(self.signals.as_fd(), &mut buffer[..]).is_ok_and(|count| count > 0) {}
        }
    }

    /// Executes the `restart` entry of the image in place of init, or init itself again.
    fn restart(&self) {
        let _ = rustix::mount::mount_remount("/", rustix::mount::MountFlags::empty(), c"");
        let entry = self.units.iter().find(|unit| unit.role == Role::Service(Start::Restart));
        let command = entry.map_or_else(|| vec![setup::own_program()], |unit| unit.command.clone());
        if let Some((program, arguments)) = command.split_first() {
            let error = Command::new(program).args(arguments).env_clear().exec();
            report::console(&format!("restart as {program}: {error}"));
        }
    }
}
