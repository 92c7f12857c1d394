//! A separate network for runners: loopback and nothing else, with rules that disturb it.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use neonvm_test_support::{Missing, Need, needs};
use neonvm_types::runner_protocol::MIGRATION_PORT;

/// A network namespace. It has no name, so it is gone with its last process.
#[derive(Clone, Debug)]
pub(crate) struct Network(Arc<Holder>);

/// The process that is in it for as long as the test needs it.
#[derive(Debug)]
struct Holder(Mutex<Child>, u32);

impl Drop for Holder {
    fn drop(&mut self) {
        let mut child = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Network {
    /// Loopback is up.
    pub(crate) fn new() -> Need<Self> {
        needs::network_namespaces()?;
        // It ends with its input, and so with the test, however that ends.
        let script = "ip link set lo up && nft add table inet faults && echo up && exec cat";
        let mut command = Command::new("unshare");
        command.args(["--net", "--", "sh", "-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        if let Some(output) = child.stdout.as_mut() {
            let _ = std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line);
        }
        let number = child.id();
        let holder = Holder(Mutex::new(child), number);
        if line.trim() != "up" {
            return Err(Missing::unavailable("no network namespace with nftables can be made"));
        }
        Ok(Self(Arc::new(holder)))
    }

    /// A program that runs in it, in place of this command's process; as another user, if one is named.
    pub(crate) fn command(&self, program: &Path, user: Option<u32>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.0.1));
        if let Some(user) = user {
            command.args([format!("--setuid={user}"), format!("--setgid={user}")]);
        }
        command.arg("--").arg(program);
        command
    }

    /// A network with a kernel that supports these statements, which is checked before anything is started.
    pub(crate) fn that_knows(statements: &[&str]) -> Need<Self> {
        let network = Self::new()?;
        for statement in statements {
            network.spoil(Some(statement)).map_err(Missing::unavailable)?;
        }
        network.spoil(None).unwrap();
        Ok(network)
    }

    /// What happens to the packets of migrations, in both directions; `None`: nothing any more. Errors are those of nft: the
    /// kernel may lack something.
    pub(crate) fn spoil(&self, statement: Option<&str>) -> Result<(), String> {
        let mut rules = String::from("flush table inet faults\n");
        if let Some(statement) = statement {
            rules.push_str("table inet faults {\nchain arriving {\ntype filter hook input priority 0\n");
            for port in ["dport", "sport"] {
                rules.push_str(&format!("tcp {port} {MIGRATION_PORT} {statement}\n"));
            }
            rules.push_str("}\n}\n");
        }
        let mut command = self.command(Path::new("nft"), None);
        command.args(["-f", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("nft: {error}"))?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(rules.as_bytes()).map_err(|error| format!("nft: {error}"))?;
        }
        let output = child.wait_with_output().map_err(|error| format!("nft: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("nft: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }
}
