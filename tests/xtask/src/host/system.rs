//! The disk of a host: Debian by debootstrap, the programs of this repository, kernels for its guests.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::process::{debootstrap, path_with_sbin};

/// The release whose QEMU emulates hosts: older ones restore the wrong state of a nested guest at times.
const EMULATOR: &str = "trixie";
/// Packages of a host besides Debian's minimal set.
const PACKAGES: &str = "--include=linux-image-cloud-amd64,systemd,systemd-sysv,dbus,libpam-systemd,udev,openssh-server,openssh-client,\
qemu-system-x86,e2fsprogs,iproute2,nftables,procps,kmod,iputils-ping,busybox-static";
/// Size of a host's disk; the file is sparse.
const DISK: &str = "12G";
/// Units that would only take the processor.
const MASKED: [&str; 6] = [
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "fstrim.timer",
    "systemd-timesyncd.service",
];
/// Directories of a root that no check needs.
const UNUSED: [&str; 5] =
    ["usr/share/doc", "usr/share/locale", "usr/share/man", "var/cache/apt/archives", "var/lib/apt/lists"];

/// A host that is not running.
#[derive(Debug)]
pub(super) struct System {
    suite: String,
    kept: PathBuf,
}

impl System {
    /// Makes the disk, from a root that is made once.
    pub(super) fn make(target: &Path, suite: &str) -> anyhow::Result<Self> {
        let system = Self { suite: suite.to_owned(), kept: target.join("host") };
        fs::create_dir_all(&system.kept)?;
        for release in [suite, EMULATOR] {
            bootstrap(&system.kept.join(release), release)?;
        }
        system.key()?;
        system.fill(target)?;
        let disk = system.disk();
        let _ = fs::remove_file(&disk);
        let made = Command::new("mke2fs")
            .args(["-q", "-t", "ext4", "-L", "host", "-d"])
            .arg(system.staging())
            .arg(&disk)
            .arg(DISK)
            .env("PATH", path_with_sbin())
            .status()?;
        ensure!(made.success(), "mke2fs failed for {}", disk.display());
        fs::remove_dir_all(system.staging())?;
        Ok(system)
    }

    pub(super) fn suite(&self) -> &str {
        &self.suite
    }

    pub(super) fn disk(&self) -> PathBuf {
        self.kept.join(format!("{}.raw", self.suite))
    }

    /// The root of the system that emulates hosts.
    pub(super) fn emulator(&self) -> PathBuf {
        self.kept.join(EMULATOR)
    }

    pub(super) fn private_key(&self) -> PathBuf {
        self.kept.join("key")
    }

    /// What the host's console printed.
    pub(super) fn console(&self) -> PathBuf {
        self.kept.join(format!("{}.console", self.suite))
    }

    /// The host's kernel and its initramfs.
    pub(super) fn kernel(&self) -> anyhow::Result<[PathBuf; 2]> {
        let boot = self.kept.join(&self.suite).join("boot");
        let find = |prefix: &str| -> anyhow::Result<PathBuf> {
            let files = fs::read_dir(&boot)?.flatten().map(|entry| entry.path());
            let named = |path: &PathBuf| {
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
            };
            files.into_iter().find(named).with_context(|| format!("no {prefix} in {}", boot.display()))
        };
        Ok([find("vmlinuz-")?, find("initrd.img-")?])
    }

    fn staging(&self) -> PathBuf {
        self.kept.join(format!("{}.staging", self.suite))
    }

    fn key(&self) -> anyhow::Result<()> {
        let key = self.private_key();
        if !key.exists() {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(&key)
                .status()?;
            ensure!(made.success(), "ssh-keygen failed");
        }
        Ok(())
    }

    /// The root with what makes it a host of the product.
    fn fill(&self, target: &Path) -> anyhow::Result<()> {
        let staging = self.staging();
        let _ = fs::remove_dir_all(&staging);
        copy(&self.kept.join(&self.suite), &staging)?;
        for unused in UNUSED {
            let _ = fs::remove_dir_all(staging.join(unused));
        }
        let etc = staging.join("etc");
        fs::write(etc.join("hostname"), "host\n")?;
        fs::write(etc.join("hosts"), "127.0.0.1 localhost\n127.0.1.1 host\n")?;
        fs::write(etc.join("fstab"), "/dev/vda / ext4 noatime 0 0\n")?;
        let _ = fs::remove_file(etc.join("resolv.conf"));
        fs::write(etc.join("resolv.conf"), "nameserver 10.0.2.3\n")?;
        fs::create_dir_all(etc.join("systemd/network"))?;
        fs::write(etc.join("systemd/network/host.network"), "[Match]\nName=e*\n[Network]\nDHCP=yes\n")?;
        let wanted = etc.join("systemd/system/multi-user.target.wants");
        fs::create_dir_all(&wanted)?;
        link("/lib/systemd/system/systemd-networkd.service", &wanted.join("systemd-networkd.service"))?;
        for unit in MASKED {
            link("/dev/null", &etc.join("systemd/system").join(unit))?;
        }
        let keys = staging.join("root/.ssh");
        fs::create_dir_all(&keys)?;
        fs::copy(self.private_key().with_extension("pub"), keys.join("authorized_keys"))?;
        let programs = staging.join("opt/neonvm");
        fs::create_dir_all(&programs)?;
        for program in ["neond", "neonctl", "neonvm-runner", "neonvm-guest-amd64"] {
            fs::copy(target.join("quick").join(program), programs.join(program)).context(program)?;
        }
        let kernels = staging.join("root/.local/share/neonvm/kernels");
        fs::create_dir_all(&kernels)?;
        let kernel = if self.suite == EMULATOR { "debian13" } else { "fetched" };
        let kernel = target.join("kernels").join(kernel);
        ensure!(kernel.join("vmlinux").exists(), "no kernel for guests: run cargo xtask kernel --fetch");
        copy(&kernel, &kernels.join("default"))
    }
}

/// Debian's minimal system with the packages of a host, unless it is there.
fn bootstrap(to: &Path, release: &str) -> anyhow::Result<()> {
    if to.join("boot").exists() && !to.join("debootstrap").exists() {
        return Ok(());
    }
    println!("host: Debian {release} in {}", to.display());
    let _ = fs::remove_dir_all(to);
    debootstrap(to, release, PACKAGES)
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let done = Command::new("cp").arg("-a").arg(from).arg(to).status()?;
    ensure!(done.success(), "cannot copy {} to {}", from.display(), to.display());
    Ok(())
}

fn link(to: &str, at: &Path) -> anyhow::Result<()> {
    let _ = fs::remove_file(at);
    symlink(to, at).with_context(|| format!("cannot make {}", at.display()))
}
