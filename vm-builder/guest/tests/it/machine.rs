//! One virtual machine: its disks, its files, and the end of its process.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use neonvm_types::guest::{ImageConfig, Report, ReportKind};

use crate::lab::{Lab, run};

/// Slow machines under load take long; a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) struct Machine {
    qemu: Child,
    directory: tempfile::TempDir,
}

/// What a machine is made of.
#[derive(Default)]
pub(crate) struct Plan<'a> {
    pub(crate) image: ImageConfig,
    pub(crate) command_line: &'a str,
    /// Files of the disk beside those every disk has: path and content.
    pub(crate) files: Vec<(&'a str, &'a str)>,
    /// Files of the runtime volume; none: there is no volume.
    pub(crate) runtime: Vec<(&'a str, Vec<u8>)>,
    /// The host listens on no port.
    pub(crate) without_ports: bool,
    /// Bytes the disk is larger than its file system.
    pub(crate) slack: u64,
}

impl Machine {
    pub(crate) fn start(lab: &Lab, plan: &Plan<'_>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        make_root(lab, plan, &path("tree"), &path("root.raw"));
        let mut command = Command::new("qemu-system-x86_64");
        command.args([
            "-M",
            "q35",
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "max",
            "-m",
            "512",
            "-nodefaults",
            "-no-reboot",
        ]);
        command.args(["-display", "none"]);
        command.arg("-kernel").arg(&lab.kernel).arg("-initrd").arg(&lab.initramfs);
        let line = format!("console=ttyS0 panic=-1 root=/dev/vda {}", plan.command_line);
        command.args(["-append", &line]);
        command.arg("-serial").arg(format!("file:{}", path("console").display()));
        command.arg("-qmp").arg(format!("unix:{},server=on,wait=off", path("qmp").display()));
        drive(&mut command, &path("root.raw"));
        if !plan.runtime.is_empty() {
            make_volume(&path("runtime"), &path("runtime.raw"), "vmruntime", &plan.runtime);
            drive(&mut command, &path("runtime.raw"));
        }
        command.args(["-netdev", "user,id=n", "-device", "virtio-net-pci,netdev=n,romfile="]);
        command.args(["-device", "virtio-rng-pci", "-device", "virtio-serial-pci"]);
        if !plan.without_ports {
            for name in ["log", "report"] {
                command.arg("-chardev").arg(format!("file,id={name},path={}", path(name).display()));
                command.arg("-device").arg(format!("virtserialport,chardev={name},name=tech.neon.{name}.0"));
            }
        }
        let qemu =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().unwrap();
        Self { qemu, directory }
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read(self.directory.path().join(name))
            .map(|bytes| String::from_utf8_lossy(&bytes).replace('\r', ""))
            .unwrap_or_default()
    }

    pub(crate) fn reports(&self) -> Vec<Report> {
        self.read("report").lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Waits until the reports fulfil something.
    pub(crate) fn wait_report(&mut self, what: &str, is_it: impl Fn(&ReportKind) -> bool) -> Report {
        self.wait(what, |machine| machine.reports().into_iter().find(|report| is_it(&report.kind)))
    }

    /// Waits until a text is in one of the machine's files.
    pub(crate) fn wait_text(&mut self, file: &str, text: &str) {
        self.wait(&format!("{text:?} in {file}"), |machine| machine.read(file).contains(text).then_some(()));
    }

    /// Waits until QEMU has ended by itself.
    pub(crate) fn wait_end(mut self) -> (String, Vec<Report>, String) {
        let status = self.wait("the end of the machine", |machine| machine.qemu.try_wait().unwrap());
        assert!(status.success(), "{status}");
        (self.read("log"), self.reports(), self.read("console"))
    }

    fn wait<T>(&mut self, what: &str, look: impl Fn(&mut Self) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let ended = self.qemu.try_wait().unwrap().is_some();
            if let Some(found) = look(self) {
                return found;
            }
            if ended || Instant::now() > deadline {
                let (log, reports, console) = (self.read("log"), self.read("report"), self.read("console"));
                panic!("{what} did not come; log:\n{log}\nreports:\n{reports}\nconsole:\n{console}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Presses the power button.
    pub(crate) fn press_power(&self) {
        let mut stream = UnixStream::connect(self.directory.path().join("qmp")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut answers = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        for command in ["qmp_capabilities", "system_powerdown"] {
            writeln!(stream, "{{\"execute\":\"{command}\"}}").unwrap();
            answers.read_line(&mut line).unwrap();
        }
        assert!(!line.contains("error"), "{line}");
    }

    /// The root disk after the end.
    #[allow(dead_code, reason = "for tests that look into the disk")]
    pub(crate) fn root(&self) -> PathBuf {
        self.directory.path().join("root.raw")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

fn drive(command: &mut Command, path: &Path) {
    command.arg("-drive").arg(format!("file={},if=virtio,format=raw", path.display()));
}

fn make_root(lab: &Lab, plan: &Plan<'_>, tree: &Path, disk: &Path) {
    let bin = tree.join("neonvm/bin");
    fs::create_dir_all(&bin).unwrap();
    for directory in ["dev", "proc", "sys", "run", "tmp", "etc", "neonvm/runtime"] {
        fs::create_dir_all(tree.join(directory)).unwrap();
    }
    fs::copy(&lab.guest, bin.join("neonvm-guest")).unwrap();
    std::os::unix::fs::symlink("neonvm-guest", bin.join("init")).unwrap();
    fs::copy(&lab.workload, tree.join("workload")).unwrap();
    fs::write(tree.join("neonvm/config.json"), serde_json::to_vec(&plan.image).unwrap()).unwrap();
    for (path, content) in &plan.files {
        fs::write(tree.join(path), content).unwrap();
    }
    mke2fs(tree, disk, "vmroot", "48M");
    let file = fs::OpenOptions::new().write(true).open(disk).unwrap();
    file.set_len(file.metadata().unwrap().len() + plan.slack).unwrap();
    fs::remove_dir_all(tree).unwrap();
}

fn make_volume(tree: &Path, disk: &Path, label: &str, files: &[(&str, Vec<u8>)]) {
    fs::create_dir_all(tree).unwrap();
    for (name, content) in files {
        fs::write(tree.join(name), content).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(tree.join(name), mode).unwrap();
    }
    mke2fs(tree, disk, label, "16M");
}

fn mke2fs(tree: &Path, disk: &Path, label: &str, size: &str) {
    let mut command = Command::new("/sbin/mke2fs");
    command.args(["-q", "-t", "ext4", "-L", label, "-d"]).arg(tree).arg(disk).arg(size);
    run(&mut command).unwrap();
}
