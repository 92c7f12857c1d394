//! What init starts: the workload, services, our own helpers.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use neonvm_types::guest::{Command, Monitor, ReportKind, Start};

use super::attached::Attached;
use super::{CHILD_MARKER, Init, setup};
use crate::boot::modules;
use crate::config::merge::{DEFAULT_PATH, merge_environment};
use crate::config::{Account, Settings, merge};
use crate::network::{self, dhcp, resolver};
use crate::process::{Backoff, Cgroup};
use crate::report;

/// Name of the unit that serves the host.
pub(super) const DAEMON: &str = "daemon";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Workload,
    Service(Start),
    Forwarder,
    /// A server of ours that is always there.
    Daemon,
    Dhcp,
    Modules,
    Console,
    Grow,
    Hook,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    // Something else must happen first.
    Idle,
    Waiting(Duration),
    Running { process: i32, since: Duration },
    // It ended and is not started again.
    Ended,
}

/// Something init starts.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    pub(super) name: String,
    pub(super) role: Role,
    pub(super) command: Vec<String>,
    pub(super) environment: Vec<String>,
    pub(super) account: Result<Account, String>,
    pub(super) directory: String,
    pub(super) cgroup: String,
    pub(super) state: State,
    pub(super) backoff: Backoff,
    pub(super) starts: u32,
}

impl Unit {
    pub(super) fn helper(name: &str, role: Role, arguments: &[&str], cgroup: &str) -> Self {
        let mut command = vec![setup::own_program()];
        command.extend(arguments.iter().map(|word| (*word).to_owned()));
        Self {
            name: name.to_owned(),
            role,
            command,
            environment: vec![format!("PATH={DEFAULT_PATH}:/neonvm/bin"), format!("{CHILD_MARKER}=1")],
            account: Ok(root()),
            directory: "/".into(),
            cgroup: cgroup.to_owned(),
            state: State::Idle,
            backoff: Backoff::default(),
            starts: 0,
        }
    }

    pub(super) fn wake_at(&self) -> Option<Duration> {
        match self.state {
            State::Waiting(at) => Some(at),
            _ => None,
        }
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    /// To be started, unless it runs.
    pub(super) fn start_at(&mut self, at: Duration) {
        if !self.is_running() {
            self.state = State::Waiting(at);
        }
    }

    /// Whether it is started again whenever it ends. The workload has a separate policy.
    pub(super) fn respawns(&self) -> bool {
        match self.role {
            Role::Forwarder | Role::Daemon | Role::Dhcp | Role::Console => true,
            Role::Service(start) => matches!(start, Start::Respawn | Start::Askfirst),
            Role::Workload | Role::Modules | Role::Grow | Role::Hook => false,
        }
    }

    /// Whether it starts beside the workload, after the services boot waits for.
    pub(super) fn starts_with_the_rest(&self) -> bool {
        match self.role {
            Role::Service(start) => matches!(start, Start::Once | Start::Respawn | Start::Askfirst),
            Role::Workload | Role::Forwarder | Role::Daemon | Role::Modules | Role::Console => true,
            // DHCP waits for its interface.
            Role::Dhcp => network::exists(network::FIRST),
            // Boot waits for file systems that grow.
            Role::Hook | Role::Grow => false,
        }
    }
}

fn root() -> Account {
    Account { home: "/root".into(), name: Some("root".into()), ..Account::default() }
}

/// Arguments of the monitor; None if the image brings its own.
fn monitor(settings: Option<&Monitor>, peers: &[IpAddr]) -> Option<Vec<String>> {
    let mut arguments = vec!["monitor".to_owned()];
    arguments.extend(peers.iter().map(|peer| format!("--peer={peer}")));
    let Some(settings) = settings else { return Some(arguments) };
    let flags = [("--cgroup", &settings.cgroup), ("--pgconnstr", &settings.postgres)];
    let given = flags.into_iter().filter_map(|(flag, value)| Some(format!("{flag}={}", value.as_ref()?)));
    arguments.extend(given);
    arguments.extend(settings.informant.then(|| "--informant".to_owned()));
    if !settings.limits.is_off() {
        arguments.push(format!("--limits={}", settings.limits.name()));
    }
    settings.enabled.then_some(arguments)
}

/// The shell of the image, else ours.
fn shell(text: &str) -> Vec<String> {
    let mut command = if Path::new("/bin/sh").exists() {
        vec!["/bin/sh".to_owned()]
    } else {
        vec![setup::own_program(), "shell".to_owned()]
    };
    command.extend(["-c".to_owned(), text.to_owned()]);
    command
}

impl Init {
    /// Makes all units, the workload first, and queues the services boot waits for.
    pub(super) fn make_units(&mut self, settings: &Settings, boot: &setup::Boot) {
        self.make_workload(settings, boot);
        self.make_services(settings);
        // After those of the services: what they print before the workload starts is then read first.
        self.prepare_pipe("workload");
        if let Some(attach) = settings.runtime.attach {
            match Attached::open(attach, &mut self.pipes) {
                Ok(attached) => self.attached = Some(attached),
                Err(error) => self.reporter.failure(format!("make the pipes of the workload: {error}")),
            }
        }
        if Path::new(modules::LATER).exists() {
            self.units.push(Unit::helper("modules", Role::Modules, &["modules", modules::LATER], "system"));
        }
        let peers = settings.runtime.peers.iter().map(|peer| format!("--peer={peer}"));
        let arguments: Vec<String> = std::iter::once(DAEMON.to_owned()).chain(peers).collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.units.push(Unit::helper(DAEMON, Role::Daemon, &arguments, "system"));
        if let Some(name) = settings.image.monitor.as_ref().and_then(|monitor| monitor.cgroup.as_ref()) {
            match Cgroup::make_open(name) {
                Ok(_) => self.limits.bound(name),
                Err(error) => self.reporter.failure(format!("make control group {name:?}: {error}")),
            }
        }
        if let Some(arguments) = monitor(settings.image.monitor.as_ref(), &settings.runtime.monitor_peers) {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            self.units.push(Unit::helper("monitor", Role::Daemon, &arguments, "system"));
        }
        if network::wants_dhcp(&self.line) {
            let mut arguments = vec!["dhcp", network::FIRST];
            if self.line.hostname.is_none() {
                arguments.push("--hostname");
            }
            let given = settings.runtime.network.as_ref();
            let known = given.and_then(|network| resolver::text(&network.search, &network.name_servers));
            let known = known.map(|text| format!("{}{text}", dhcp::RESOLVER));
            arguments.extend(known.as_deref());
            self.units.push(Unit::helper("dhcp", Role::Dhcp, &arguments, "system"));
        }
        let readers: Vec<String> = self.pipes.reader_numbers().iter().map(ToString::to_string).collect();
        let arguments: Vec<&str> = std::iter::once("log").chain(readers.iter().map(String::as_str)).collect();
        self.units.push(Unit::helper("log", Role::Forwarder, &arguments, "log"));
        // Services that boot waits for may print more than a pipe holds.
        if !self.queue.is_empty()
            && let Some(forwarder) = self.units.last_mut()
        {
            forwarder.start_at(report::uptime());
        }
        if let Some(console) = &settings.image.console {
            let device = console.device.trim_start_matches("/dev/");
            if Path::new("/dev").join(device).exists() {
                self.units.push(Unit::helper("console", Role::Console, &["console", device], "system"));
            }
        }
        if !boot.growable().is_empty() {
            let mut arguments = vec!["grow"];
            arguments.extend(boot.growable().iter().map(String::as_str));
            // Before anything that may need the room, services as well.
            self.queue.push_front(self.units.len());
            self.units.push(Unit::helper("grow", Role::Grow, &arguments, "system"));
        }
    }

    /// Without a workload that can be started the VM serves those who find out why, or ends if its policy allows that.
    fn make_workload(&mut self, settings: &Settings, boot: &setup::Boot) {
        let made = boot.missing().map_or_else(|| self.workload(settings), Err);
        match made {
            Ok(unit) => self.units.push(unit),
            Err(message) => {
                self.reporter.report(ReportKind::Failure { message, workload: true });
                if self.policy != neonvm_types::guest::RestartPolicy::Always {
                    self.ask_shutdown(super::shutdown::Target::PowerOff, "there is no workload");
                }
            }
        }
    }

    fn workload(&mut self, settings: &Settings) -> Result<Unit, String> {
        let workload =
            merge(&settings.image.process, &settings.runtime).map_err(|error| error.to_string())?;
        let account = self.accounts.resolve(&workload.user).map_err(|error| format!("workload: {error}"))?;
        self.stop_signal = workload.stop_signal;
        Ok(Unit {
            command: workload.command,
            environment: workload.environment,
            account: Ok(account),
            directory: workload.directory,
            ..Unit::helper("workload", Role::Workload, &[], "workload")
        })
    }

    fn make_services(&mut self, settings: &Settings) {
        let environment = merge_environment(&[&settings.image.process.env]);
        let hook = settings.image.shutdown_hook.as_deref();
        for service in &settings.image.services {
            let account = self.accounts.resolve(&service.user).map_err(|error| error.to_string());
            let mut command = match &service.command {
                Command::Shell(text) => shell(text),
                Command::Exec(command) => command.clone(),
            };
            if service.start == Start::Askfirst {
                let terminal = [setup::own_program(), "console".to_owned(), "console".to_owned()];
                command.splice(0..0, terminal);
            }
            self.prepare_pipe(&service.name);
            self.units.push(Unit {
                command,
                environment: environment.clone(),
                account,
                ..Unit::helper(
                    &service.name,
                    Role::Service(service.start),
                    &[],
                    &format!("services/{}", service.name.replace('/', "-")),
                )
            });
        }
        if let Some(hook) = hook {
            self.prepare_pipe("shutdown-hook");
            self.units.push(Unit {
                command: shell(hook),
                environment,
                ..Unit::helper("shutdown-hook", Role::Hook, &[], "services/shutdown-hook")
            });
        }
        self.enqueue(&[Start::Sysinit, Start::Wait]);
    }

    fn prepare_pipe(&mut self, name: &str) {
        if let Err(error) = self.pipes.writer(name) {
            self.reporter.failure(format!("make the log pipe of {name}: {error}"));
        }
    }

    /// Queues services of these kinds, in this order.
    pub(super) fn enqueue(&mut self, kinds: &[Start]) {
        for kind in kinds {
            let indices = self.units.iter().enumerate().filter(|(_, unit)| unit.role == Role::Service(*kind));
            self.queue.extend(indices.map(|(index, _)| index));
        }
    }

    /// Has the start of the workload checked again, if it waits.
    pub(super) fn retry_workload(&mut self) {
        for unit in &mut self.units {
            if unit.role == Role::Workload && matches!(unit.state, State::Waiting(_)) {
                unit.state = State::Waiting(report::uptime());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use neonvm_types::guest::MemoryLimits;

    use super::*;

    #[test]
    fn the_monitor_runs_unless_the_image_has_its_own() {
        assert_eq!(monitor(None, &[]), Some(vec!["monitor".to_owned()]));
        assert_eq!(monitor(None, &[[10, 0, 2, 2].into()]).unwrap()[1..], ["--peer=10.0.2.2"]);
        let settings = Monitor { postgres: Some("host=/run user=u".into()), ..Monitor::default() };
        assert_eq!(monitor(Some(&settings), &[]).unwrap()[1..], ["--pgconnstr=host=/run user=u"]);
        let old = Monitor { informant: true, ..Monitor::default() };
        assert_eq!(monitor(Some(&old), &[]).unwrap()[1..], ["--informant"]);
        let settings = Monitor { limits: MemoryLimits::HighAndMax, ..settings };
        assert_eq!(monitor(Some(&settings), &[]).unwrap()[2..], ["--limits=high-and-max"]);
        assert_eq!(monitor(Some(&Monitor { enabled: false, ..settings }), &[]), None);
    }
}
