//! The VM before anything runs: mounts, kernel settings, names, the runtime volume.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use neonvm_types::Bytes;
use neonvm_types::guest::GUEST_PROGRAM_FILE;

use super::REPLACED;
use crate::config::load::runtime_directory;
use crate::config::{CommandLine, Settings, load};
use crate::device::{BlockDevice, block, links};
use crate::limits::Limits;
use crate::mount::{MountFlags, apply, base, grow, mount};
use crate::process::cgroup;
use crate::{network, report, ssh, tools};

/// Label of the runtime volume, and the device that has always held it.
const RUNTIME_LABEL: &str = "vmruntime";
const RUNTIME_DEVICE: &str = "vdb";
/// How long a newer program may take to report that it runs.
const PROBE: Duration = Duration::from_secs(5);
/// Name of a host without a configured name, and the kernel's default name.
const HOST_NAME: &str = "vm";
const UNNAMED: &str = "(none)";

/// Mounts what every system has. Comes first: nothing can be printed before there is a console.
pub(super) fn mounts() -> Vec<String> {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let mut problems = base::mount_all();
    let filled = base::fill();
    let what = "copy what the image has in directories that are mounted over";
    problems.extend(filled.err().map(|error| format!("{what}: {error}")));
    cgroup::prepare(Path::new(cgroup::ROOT));
    problems
}

/// What the set-up found.
#[derive(Debug, Default)]
pub(super) struct Boot {
    pub(super) line: CommandLine,
    devices: Vec<BlockDevice>,
    problems: Vec<String>,
    /// What of the VM's configuration the workload cannot do without and is not there.
    missing: Vec<String>,
    growable: Vec<String>,
}

impl Boot {
    pub(super) fn new(problems: Vec<String>) -> Self {
        let text = fs::read_to_string("/proc/cmdline").unwrap_or_default();
        Self { line: CommandLine::parse(&text), problems, ..Self::default() }
    }

    pub(super) fn problem(&mut self, problem: String) {
        self.problems.push(problem);
    }

    pub(super) fn take_problems(&mut self) -> Vec<String> {
        std::mem::take(&mut self.problems)
    }

    /// Why the workload is not to be started, if that is so.
    pub(super) fn missing(&self) -> Option<String> {
        (!self.missing.is_empty()).then(|| self.missing.join("; "))
    }

    /// Directories whose file systems can grow.
    pub(super) fn growable(&self) -> &[String] {
        &self.growable
    }

    fn note<T>(&mut self, what: &str, result: io::Result<T>) {
        if let Err(error) = result {
            self.problems.push(format!("{what}: {error}"));
        }
    }

    /// Kernel messages, names, disks, loopback and the addresses that are configured already.
    pub(super) fn machine(&mut self) {
        if !self.line.kernel_log_chosen {
            let _ = fs::write("/proc/sys/kernel/printk", "7");
        }
        self.name();
        self.note(network::hosts::HOSTS, network::hosts::write(None));
        self.problems.extend(network::set_up(&self.line));
        self.devices = block::scan();
        for device in &self.devices {
            links::make(device);
        }
        if grow::root_is_smaller(&self.devices) {
            self.growable.push("/".into());
        }
        // Of the disk, not of the image. One with lost files in it stays, as does that of a read-only root.
        let _ = fs::remove_dir("/lost+found");
    }

    /// The name of the command line, of the image, or a generic one. The kernel may have one from `ip=`.
    fn name(&mut self) {
        let known = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let known = Some(known.trim().to_owned()).filter(|name| !name.is_empty() && name != UNNAMED);
        let image = || host_name(&fs::read_to_string("/etc/hostname").unwrap_or_default());
        let name =
            self.line.hostname.clone().or(known).or_else(image).unwrap_or_else(|| HOST_NAME.to_owned());
        self.note("host name", rustix::system::sethostname(name.as_bytes()).map_err(Into::into));
    }

    /// Mounts the runtime volume, lets a newer program on it take over, and reads the settings.
    pub(super) fn settings(&mut self) -> Settings {
        let directory = runtime_directory();
        if let Err(problem) = self.mount_runtime(&directory) {
            self.problems.push(problem);
        }
        if let Err(problem) = replace(&directory.join(GUEST_PROGRAM_FILE)) {
            self.problems.push(problem);
        }
        let mut settings = load(Path::new("/"), &directory);
        self.problems.append(&mut settings.problems);
        settings
    }

    fn mount_runtime(&self, directory: &Path) -> Result<(), String> {
        let labelled = |device: &&BlockDevice| device.label() == RUNTIME_LABEL;
        let usual = self.devices.iter().filter(labelled).find(|device| device.name == RUNTIME_DEVICE);
        let Some(device) = usual.or_else(|| self.devices.iter().find(labelled)) else {
            // Booted without a runner.
            return Ok(());
        };
        if base::is_mount_point(directory) {
            return Ok(());
        }
        let failed = |error: io::Error| format!("mount the runtime volume {}: {error}", device.name);
        fs::create_dir_all(directory).map_err(failed)?;
        let kind = device.content.as_ref().map_or("iso9660", |content| content.kind);
        // The volume carries no permissions; a program on it must be executable.
        let options = if kind == "iso9660" { "mode=0755" } else { "" };
        mount(&device.node(), directory, kind, MountFlags::RDONLY | MountFlags::NODEV, options)
            .map_err(failed)
    }

    /// Applies the settings before anything is started. Returns the limits for what is.
    pub(super) fn apply(&mut self, settings: &Settings) -> Limits {
        let parameters = settings.runtime.sysctl.iter().filter_map(|line| {
            let (key, _) = line.strip_prefix('-').unwrap_or(line).split_once('=')?;
            parameter_path(key.trim())
        });
        let limits = Limits::new(settings.runtime.maximum_memory.map(Bytes::get), parameters.collect());
        self.problems.extend(limits.set());
        if let Some(network) = settings.runtime.network.as_ref().filter(|_| network::wants_dhcp(&self.line)) {
            self.problems.extend(network::apply(network));
        }
        for line in &settings.runtime.sysctl {
            if let Err(problem) = set_kernel_parameter(line) {
                self.problems.push(problem);
            }
        }
        let keys = &settings.runtime.ssh_authorized_keys;
        if !keys.is_empty() {
            let text: String = keys.iter().map(|key| format!("{}\n", key.trim())).collect();
            let path = Path::new(ssh::RUNTIME_KEYS);
            let written =
                path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(path, text));
            self.note("keys for SSH", written);
        }
        let applied = apply::apply(&settings.steps, &self.devices, tools::swap_label(settings));
        self.problems.extend(applied.problems);
        self.missing.extend(applied.missing);
        self.growable.extend(applied.growable.iter().map(|path| path.to_string_lossy().into_owned()));
        limits
    }
}

/// The name in an `/etc/hostname`: its first word that is no comment, if it can be a name.
fn host_name(text: &str) -> Option<String> {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'))?;
    let fits = (1..=64).contains(&line.len())
        && line.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'));
    fits.then(|| line.to_owned())
}

/// `key=value`; a leading minus makes a failure none.
fn set_kernel_parameter(line: &str) -> Result<(), String> {
    let (optional, line) = line.strip_prefix('-').map_or((false, line), |line| (true, line));
    let (key, value) = line.split_once('=').ok_or_else(|| format!("sysctl {line:?}: expected key=value"))?;
    let path = parameter_path(key.trim()).ok_or_else(|| format!("sysctl {line:?}: no such name"))?;
    match fs::write(path, value.trim()) {
        Err(error) if !optional => Err(format!("sysctl {}: {error}", key.trim())),
        _ => Ok(()),
    }
}

/// Dots or slashes part the name, whichever comes first; the other one then stands for itself.
fn parameter_path(key: &str) -> Option<PathBuf> {
    let path: String = match key.find(['.', '/']).and_then(|at| key.get(at..)?.chars().next()) {
        Some('.') => key
            .chars()
            .map(|c| {
                if c == '.' {
                    '/'
                } else if c == '/' {
                    '.'
                } else {
                    c
                }
            })
            .collect(),
        _ => key.to_owned(),
    };
    let safe =
        !path.is_empty() && path.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    safe.then(|| Path::new("/proc/sys").join(path))
}

/// Path of this very program, for children.
pub(super) fn own_program() -> String {
    let link = "/proc/self/exe";
    let path = fs::read_link(link).ok().and_then(|path| path.into_os_string().into_string().ok());
    path.filter(|path| Path::new(path).exists()).unwrap_or_else(|| link.to_owned())
}

/// Becomes the program on the runtime volume if it is another one and runs. Returns when it is not there or is the same.
fn replace(path: &Path) -> Result<(), String> {
    if std::env::var_os(REPLACED).is_some() || !path.exists() {
        return Ok(());
    }
    let failed =
        |what: &str| format!("the program on the runtime volume {what}; the one of the disk goes on");
    if is_same(path, Path::new("/proc/self/exe")).unwrap_or(false) {
        return Ok(());
    }
    if !runs(path) {
        return Err(failed("does not run"));
    }
    report::console("the program of the runtime volume takes over");
    // The signals stay blocked over exec, which is what the next one wants.
    let error = Command::new(path).arg0("init").env_clear().env(REPLACED, "1").exec();
    Err(failed(&format!("could not take over: {error}")))
}

fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut a, mut b) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        let count = one.read(&mut a)?;
        let (Some(a), Some(b)) = (a.get(..count), b.get_mut(..count)) else { return Ok(false) };
        other.read_exact(b)?;
        if a != b {
            return Ok(false);
        }
        if count == 0 {
            return Ok(true);
        }
    }
}

fn runs(path: &Path) -> bool {
    let mut command = Command::new(path);
    command.arg("probe").env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    crate::system::before_exec(&mut command, crate::system::Signals::Unblocked, || Ok(()));
    let Ok(mut child) = command.spawn() else { return false };
    let deadline = Instant::now() + PROBE;
    while Instant::now() < deadline {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => std::thread::sleep(Duration::from_millis(2)),
            Err(_) => return false,
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parameters_stay_below_their_directory() {
        let path = |key: &str| parameter_path(key).map(|path| path.to_string_lossy().into_owned());
        assert_eq!(path("vm.swappiness").as_deref(), Some("/proc/sys/vm/swappiness"));
        assert_eq!(
            path("net/ipv4/conf/eth0.1/rp_filter").as_deref(),
            Some("/proc/sys/net/ipv4/conf/eth0.1/rp_filter")
        );
        assert_eq!(
            path("net.ipv4.conf.eth0/1.rp_filter").as_deref(),
            Some("/proc/sys/net/ipv4/conf/eth0.1/rp_filter")
        );
        for key in ["", "../etc/x", "a..b", "/etc/passwd", "a/../b"] {
            assert_eq!(path(key), None, "{key}");
        }
        assert!(set_kernel_parameter("nonsense").is_err());
        assert!(set_kernel_parameter("-no.such.thing=1").is_ok());
    }

    #[test]
    fn the_name_of_an_image_is_one_word() {
        assert_eq!(host_name("# of the image\n\n db-1.example \n"), Some("db-1.example".into()));
        for text in ["", "\n#x\n", "two words", "a/b", &"x".repeat(65)] {
            assert_eq!(host_name(text), None, "{text:?}");
        }
    }

    #[test]
    fn programs_are_compared_byte_by_byte_and_tried() {
        let directory = tempfile::tempdir().unwrap();
        let (one, other) = (directory.path().join("1"), directory.path().join("2"));
        fs::write(&one, vec![1; 100_000]).unwrap();
        fs::write(&other, vec![1; 100_000]).unwrap();
        assert!(is_same(&one, &other).unwrap());
        let mut bytes = vec![1; 100_000];
        bytes[99_999] = 2;
        fs::write(&other, bytes).unwrap();
        assert!(!is_same(&one, &other).unwrap());
        assert!(runs(Path::new("/bin/true")) && !runs(Path::new("/bin/false")) && !runs(&one));
    }
}
