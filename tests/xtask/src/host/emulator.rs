//! A host that runs: QEMU of the emulating system, and ssh into the host.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::FACTOR;
use super::system::System;
use crate::process;

/// How long a host may take until ssh answers.
const BOOT: Duration = Duration::from_secs(300);
/// How long one check may take.
const LIMIT: Duration = Duration::from_secs(20 * 60);
/// Words on the console of a host that is lost.
const PANICS: [&str; 4] = ["Kernel panic", "corrupted stack end", "stack guard page", "Oops:"];
/// Lines of a failed check that are shown.
const LAST: usize = 30;
/// Lets QEMU see its own files and those of the host in a mount namespace of its own. `$1` is the emulating system, `$2` the directory
/// with the host's disk, which is at `/mnt` there.
const ENTER: &str = r#"set -eu
mount --make-rprivate /
mount --bind "$2" "$1/mnt"
mount --bind /dev "$1/dev"
root=$1
shift 2
exec chroot "$root" "$@"
"#;

/// What came of a script in the host.
#[derive(Debug)]
pub(super) enum Reply {
    Ended {
        /// With status 0.
        good: bool,
        last: String,
    },
    HostLost(String),
}

/// A host that runs; ended when dropped.
#[derive(Debug)]
pub(super) struct Host<'a> {
    system: &'a System,
    child: Child,
    port: u16,
    keep: bool,
}

impl Drop for Host<'_> {
    fn drop(&mut self) {
        if self.keep {
            let key = self.system.private_key();
            println!("host: kept; ssh -i {} -p {} root@127.0.0.1", key.display(), self.port);
            return;
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl<'a> Host<'a> {
    /// Boots it and waits until ssh answers.
    pub(super) fn boot(system: &'a System, keep: bool) -> anyhow::Result<Self> {
        let port = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?.local_addr()?.port();
        let _ = fs::remove_file(system.console());
        let child = Command::new("unshare")
            .args(["--mount", "setpriv", "--pdeathsig", if keep { "clear" } else { "KILL" }])
            .args(["sh", "-c", ENTER, "sh"])
            .arg(system.emulator())
            .arg(system.disk().parent().context("no directory of hosts")?)
            .args(qemu(system, port)?)
            .stdin(Stdio::null())
            .spawn()
            .context("cannot run unshare")?;
        let mut host = Self { system, child, port, keep: false };
        let until = Instant::now() + BOOT;
        while !host.ssh(&["true"]).stderr(Stdio::null()).status()?.success() {
            ensure!(host.child.try_wait()?.is_none(), "QEMU of the host has ended");
            ensure!(Instant::now() < until, "the host does not answer; see {}", system.console().display());
            std::thread::sleep(Duration::from_secs(1));
        }
        println!("host: Debian {} runs", system.suite());
        Ok(host)
    }

    /// Leaves it running when dropped.
    pub(super) fn keep(&mut self) {
        self.keep = true;
    }

    /// Runs a script in a session of its own.
    pub(super) fn run(&self, script: &str) -> anyhow::Result<Reply> {
        let ssh = self.ssh(&["env", &format!("NEONVM_DEADLINE_FACTOR={FACTOR}"), "bash", "-c"]);
        let quoted = format!("'{}'", script.replace('\'', r"'\''"));
        let program = ssh.get_program().to_string_lossy().into_owned();
        let arguments: Vec<String> = ssh.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        let mut words: Vec<&str> = vec![&program];
        words.extend(arguments.iter().map(String::as_str));
        words.push(&quoted);
        let ended = process::run(Path::new("/"), Path::new("/"), &words, &[], LIMIT)?;
        if !ended.good
            && let Some(reason) = self.lost()
        {
            return Ok(Reply::HostLost(reason));
        }
        let skip = ended.lines.len().saturating_sub(LAST);
        Ok(Reply::Ended {
            good: ended.good,
            last: ended.lines.into_iter().skip(skip).collect::<Vec<_>>().join("\n"),
        })
    }

    /// The line on its console that shows that its kernel failed.
    fn lost(&self) -> Option<String> {
        let console = fs::read(self.system.console()).unwrap_or_default();
        let console = String::from_utf8_lossy(&console);
        let panic = console.lines().find(|line| PANICS.iter().any(|word| line.contains(word)));
        panic.map(|line| line.trim().to_owned())
    }

    fn ssh(&self, words: &[&str]) -> Command {
        let mut ssh = Command::new("ssh");
        ssh.arg("-i").arg(self.system.private_key());
        for option in [
            "BatchMode=yes",
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "LogLevel=ERROR",
            "ConnectTimeout=20",
            "ServerAliveInterval=30",
            "ServerAliveCountMax=10",
        ] {
            ssh.args(["-o", option]);
        }
        ssh.args(["-p", &self.port.to_string(), "root@127.0.0.1"]).args(words).stdin(Stdio::null());
        ssh
    }
}

/// One processor: with two, guests of guests make the host's kernel fail now and then.
const MACHINE: &str = "qemu-system-x86_64 -name neonvm-test-host -nodefaults -display none -machine q35 \
    -accel tcg,thread=multi,tb-size=1024 -cpu EPYC-Rome,+svm,+npt -smp 1 -m 8G \
    -device virtio-net-pci,netdev=net -device virtio-rng-pci";
/// Arguments of the host's kernel.
const APPEND: &str = "root=/dev/vda rw console=ttyS0 quiet tsc=reliable mitigations=off no_timer_check init_on_alloc=0 \
    systemd.unified_cgroup_hierarchy=1";

/// QEMU's words.
fn qemu(system: &System, port: u16) -> anyhow::Result<Vec<String>> {
    let inside = |path: &Path| -> anyhow::Result<String> {
        let of_host = path.strip_prefix(system.disk().parent().context("no directory of hosts")?)?;
        Ok(format!("/mnt/{}", of_host.display()))
    };
    let [kernel, initramfs] = system.kernel()?;
    let mut words: Vec<String> = MACHINE.split_whitespace().map(str::to_owned).collect();
    words.extend([
        "-kernel".to_owned(),
        inside(&kernel)?,
        "-initrd".to_owned(),
        inside(&initramfs)?,
        "-append".to_owned(),
        APPEND.to_owned(),
        "-drive".to_owned(),
        format!("file={},format=raw,if=virtio,cache=unsafe", inside(&system.disk())?),
        "-netdev".to_owned(),
        format!("user,id=net,hostfwd=tcp:127.0.0.1:{port}-:22"),
        "-serial".to_owned(),
        format!("file:{}", inside(&system.console())?),
    ]);
    Ok(words)
}
