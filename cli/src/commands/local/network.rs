//! How the nodes of a cluster are connected: in network namespaces where this process may make them, else over loopback addresses.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::thread::CapabilitySet;

use crate::args::local::Up;
use crate::env::Env;
use crate::error::reason;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    Namespaces,
    /// One node, user-mode networking; with the reason.
    User(String),
}

impl Network {
    /// What this process may do, unless the flag decides.
    pub(super) fn of(env: &Env, args: &Up) -> Self {
        if args.user_network {
            return Self::User("as requested with --user-network".to_owned());
        }
        match permitted(env) {
            Ok(()) => Self::Namespaces,
            Err(why) => Self::User(format!("because {why}")),
        }
    }

    pub(super) fn is_user(&self) -> bool {
        matches!(self, Self::User(_))
    }
}

/// Whether namespaces with their links can be made here: they are, and removed.
fn permitted(env: &Env) -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("the command does not run as root".to_owned());
    }
    let all = rustix::thread::capabilities(None).map(|sets| sets.effective).unwrap_or(CapabilitySet::empty());
    for (capability, name) in
        [(CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"), (CapabilitySet::SYS_ADMIN, "CAP_SYS_ADMIN")]
    {
        if !all.contains(capability) {
            return Err(format!("this root lacks {name}, as in a container without privileges"));
        }
    }
    let ip = env.program("ip").ok_or("the program ip is not installed")?;
    let name = format!("neonvm-up-{}", std::process::id());
    let made = batch(&ip, &[], &format!("netns add {name}\n")).and_then(|()| {
        let links = "link add probe0 type bridge\nlink add probe1 type veth peer name probe2\n";
        batch(&ip, &["-n", &name], links)
    });
    let removed = batch(&ip, &[], &format!("netns del {name}\n"));
    made.map_err(|why| format!("network namespaces with bridges cannot be created: {why}"))?;
    removed.map_err(|why| format!("network namespaces cannot be removed: {why}"))?;
    if has_tun(Path::new("/dev/net/tun"), &std::fs::read_to_string("/proc/misc").unwrap_or_default()) {
        Ok(())
    } else {
        Err("/dev/net/tun cannot be used".to_owned())
    }
}

/// Whether VMs can have a network device: the file opens, or the kernel has it and runners make the file.
fn has_tun(path: &Path, misc: &str) -> bool {
    match std::fs::File::options().read(true).write(true).open(path) {
        Ok(_) => true,
        Err(error) => {
            error.kind() == std::io::ErrorKind::NotFound && misc.split_whitespace().any(|word| word == "tun")
        }
    }
}

/// Runs lines of `ip -batch`; the error is its first complaint.
fn batch(ip: &Path, arguments: &[&str], lines: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| reason(&error);
    let mut command = Command::new(ip);
    command.args(arguments).args(["-batch", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // It may end before it has read everything; its exit code gives the reason.
        let _ = stdin.write_all(lines.as_bytes());
    }
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(text.lines().next().unwrap_or("ip failed").trim().to_owned())
}

#[cfg(test)]
mod tests {
    use neonvm_test_support::{need, needs};

    use super::*;

    #[test]
    fn root_may_use_namespaces_where_they_can_be_made() {
        need!(needs::network_namespaces());
        let path = std::env::var("PATH").unwrap();
        let env = Env { vars: [("PATH".to_owned(), path)].into(), ..Env::default() };
        assert_eq!(permitted(&env), Ok(()));
    }

    #[test]
    fn a_device_file_is_made_where_the_kernel_has_the_device() {
        let missing = Path::new("/no/such/device");
        assert!(has_tun(missing, "200 tun\n"));
        assert!(!has_tun(missing, "183 hw_random\n"));
        assert!(has_tun(Path::new("/dev/null"), ""));
    }
}
