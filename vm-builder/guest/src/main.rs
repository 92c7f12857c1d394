//! `neonvm-guest`: one program, many roles, by the name it is called with or the first argument.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use neonvm_guest::{
    boot, console, daemon, init, log, monitor, mount, network, report, shell, ssh, system, toolbox, tools,
};

/// The role when it is not the first argument but the name the program was called with. Further names are in [`toolbox`].
const BY_NAME: [&str; 8] =
    ["resize-swap", "set-disk-quota", "poweroff", "reboot", "halt", "neonvmd", "init", "neonvm-shell"];

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned());
    let called = arguments.next().unwrap_or_default();
    let arguments: Vec<String> = arguments.collect();
    if rustix::process::getpid().as_raw_nonzero().get() == 1
        && arguments.first().is_none_or(|word| word != "probe")
    {
        if Path::new(boot::MARKER).exists() {
            return ExitCode::from(boot::run());
        }
        init::run();
    }
    let name = called.rsplit('/').next().unwrap_or_default().trim_start_matches('-');
    if !BY_NAME.contains(&name)
        && let Some(status) = toolbox::run(name, &arguments)
    {
        return ExitCode::from(status);
    }
    let (role, arguments) = match BY_NAME.contains(&name) {
        true => (name, arguments.as_slice()),
        false => match arguments.split_first() {
            Some((role, rest)) => (role.as_str(), rest),
            None => ("", arguments.as_slice()),
        },
    };
    ExitCode::from(play(role, arguments))
}

fn play(role: &str, arguments: &[String]) -> u8 {
    match role {
        "probe" => {
            let _ = writeln!(std::io::stdout(), "neonvm-guest {}", env!("CARGO_PKG_VERSION"));
            0
        }
        "daemon" | "neonvmd" => status("daemon", serve(arguments)),
        "monitor" => {
            status("monitor", monitor::Options::parse(arguments).and_then(|options| monitor::run(&options)))
        }
        "ssh" => status("ssh", ssh::run(arguments)),
        "shell" | "neonvm-shell" => shell::run(arguments),
        "log" => status("log", log::forwarder::run(arguments)),
        "dhcp" => status("dhcp", network::dhcp::run(arguments)),
        "modules" => boot::modules::run(arguments),
        "grow" => mount::grow::run(arguments),
        "thaw" => mount::freeze::run(),
        "console" => console::run(arguments),
        "resize-swap" => tools::resize_swap(arguments),
        "set-disk-quota" => tools::set_disk_quota(arguments),
        "poweroff" => tools::signal_init(libc::SIGUSR2),
        "reboot" => tools::signal_init(libc::SIGTERM),
        "halt" => tools::signal_init(libc::SIGUSR1),
        "init" => system::refuse("init: must be process 1"),
        "" => system::refuse("usage: neonvm-guest <role> [argument…]; `probe` prints the version"),
        role => system::refuse(&format!("neonvm-guest: unknown role {role:?}")),
    }
}

fn serve(arguments: &[String]) -> Result<(), daemon::Error> {
    let options = daemon::Options::parse(arguments.iter().cloned())?;
    if std::env::var_os(init::CHILD_MARKER).is_some() {
        report::announce_ready(options.address);
    }
    daemon::run(&options)
}

fn status<E: std::fmt::Display>(role: &str, result: Result<(), E>) -> u8 {
    match result {
        Ok(()) => 0,
        Err(error) => system::refuse(&format!("neonvm-guest {role}: {error}")),
    }
}
