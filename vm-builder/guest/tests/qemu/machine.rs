//! One virtual machine: its disks, its files, and the end of its process.

use std::fs;
use std::io::{BufRead, BufReader, Read as _, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use neonvm_kit::port::Reserved;
use neonvm_types::guest::{ImageConfig, Report, ReportKind};

use crate::lab::{Lab, run};
use crate::plain;

/// Slow machines under load take long; a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(180);

pub(crate) struct Machine {
    qemu: Child,
    ports: Vec<(u16, Reserved)>,
    directory: tempfile::TempDir,
}

#[derive(Default)]
pub(crate) struct Plan<'a> {
    pub(crate) image: ImageConfig,
    pub(crate) command_line: &'a str,
    /// Files of the disk beside those every disk has: path and content.
    pub(crate) files: Vec<(&'a str, &'a str)>,
    /// Owner and mode of paths of the disk.
    pub(crate) owners: Vec<(&'a str, u32, u32)>,
    /// Files of the runtime volume; none: there is no volume.
    pub(crate) runtime: Vec<(&'a str, Vec<u8>)>,
    /// The host listens on no port.
    pub(crate) without_ports: bool,
    /// Bytes the disk is larger than its file system.
    pub(crate) slack: u64,
    /// Further disks; with no runtime volume above, the first of them is `vdb`.
    pub(crate) disks: Vec<Disk>,
    /// Processors; 0: one.
    pub(crate) processors: u32,
    /// A network interface without addresses beside the usual one.
    pub(crate) second_interface: bool,
    /// Memory that can be plugged in beside the 512 MiB at boot, in bytes.
    pub(crate) pluggable: u64,
    /// Ports of the guest that are reached from here.
    pub(crate) ports: Vec<u16>,
}

pub(crate) enum Disk {
    /// A volume of files, as older runners make them: label and files.
    Files(&'static str, Vec<(&'static str, Vec<u8>)>),
    /// An empty ext4 file system of this label, made with these further flags of mke2fs.
    Empty(&'static str, &'static [&'static str]),
    /// Nothing but a serial number, 32 MiB.
    Blank(&'static str),
    Swap(&'static str),
}

impl Machine {
    pub(crate) fn start(lab: &Lab, plan: &Plan<'_>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        make_root(lab, plan, &path("tree"), &path("root.raw"));
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-nodefaults", "-no-reboot"]);
        command.args(["-display", "none"]);
        memory(&mut command, plan.pluggable);
        command.arg("-kernel").arg(&lab.kernel);
        let init = match &lab.initramfs {
            Some(initramfs) => {
                command.arg("-initrd").arg(initramfs);
                ""
            }
            None => "init=/neonvm/bin/init ",
        };
        let line = format!("console=ttyS0 panic=-1 root=/dev/vda {init}{}", plan.command_line);
        command.args(["-append", &line]);
        command.arg("-serial").arg(format!("file:{}", path("console").display()));
        command.arg("-qmp").arg(format!("unix:{},server=on,wait=off", path("qmp").display()));
        drive(&mut command, &path("root.raw"), "");
        if !plan.runtime.is_empty() {
            make_volume(&path("runtime"), &path("runtime.raw"), "vmruntime", &plan.runtime);
            drive(&mut command, &path("runtime.raw"), "");
        }
        for (number, disk) in plan.disks.iter().enumerate() {
            attach(&mut command, disk, &path(&format!("disk{number}")));
        }
        if plan.processors > 0 {
            command.args(["-smp", &plan.processors.to_string()]);
        }
        command.arg("-serial").arg(format!("unix:{},server=on,wait=off", path("terminal").display()));
        let own = || Reserved::loopback().unwrap();
        let ports: Vec<(u16, Reserved)> = plan.ports.iter().map(|port| (*port, own())).collect();
        let forward: String =
            ports.iter().map(|(port, here)| format!(",hostfwd=tcp:{}-:{port}", here.address())).collect();
        command.arg("-netdev").arg(format!("user,id=n{forward}"));
        command.args(["-device", "virtio-net-pci,netdev=n,romfile="]);
        if plan.second_interface {
            command.args(["-netdev", "user,id=m,restrict=on", "-device", "virtio-net-pci,netdev=m,romfile="]);
        }
        command.args(["-device", "virtio-rng-pci", "-device", "virtio-serial-pci"]);
        if !plan.without_ports {
            for name in ["log", "report"] {
                command.arg("-chardev").arg(format!("file,id={name},path={}", path(name).display()));
                command.arg("-device").arg(format!("virtserialport,chardev={name},name=tech.neon.{name}.0"));
            }
        }
        let qemu =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().unwrap();
        Self { qemu, ports, directory }
    }

    /// Where a port of the guest is reached.
    pub(crate) fn address(&self, port: u16) -> SocketAddr {
        let (_, here) = self.ports.iter().find(|(guest, _)| *guest == port).unwrap();
        here.address()
    }

    /// Status and body of an answer of the daemon, once it answers.
    pub(crate) fn http(&mut self, method: &str, path: &str, body: &str) -> (u16, String) {
        let address = self.address(25183);
        self.wait("an answer of the daemon", |_| {
            let mut stream = TcpStream::connect(address).ok()?;
            stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
            let length = body.len();
            write!(
                stream,
                "{method} {path} HTTP/1.1\r\nHost: vm\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
            )
            .ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).ok()?;
            let (head, body) = answer.split_once("\r\n\r\n")?;
            Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
        })
    }

    fn ssh_command(&self, key: &Path, text: &str) -> Command {
        let port = self.address(22).port().to_string();
        let mut command = Command::new("ssh");
        command.args(["-F", "/dev/null", "-p", &port, "-i"]).arg(key);
        for option in [
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "IdentitiesOnly=yes",
            "BatchMode=yes",
            "ConnectTimeout=30",
            "LogLevel=ERROR",
        ] {
            command.args(["-o", option]);
        }
        command.args(["root@127.0.0.1", text]).env_remove("SSH_AUTH_SOCK").stdin(Stdio::null());
        command
    }

    /// Runs a command by SSH that ends the VM, and with it the connection.
    pub(crate) fn ssh_to_end(&self, key: &Path, text: &str) {
        let _ = self.ssh_command(key, text).output().unwrap();
    }

    /// Runs a command by SSH as root; its output and status. Repeated until the server answers.
    pub(crate) fn ssh(&mut self, key: &Path, text: &str) -> (String, i32) {
        let mut command = self.ssh_command(key, text);
        self.wait("an answer of SSH", |_| {
            let output = command.output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
            assert!(!text.contains("Permission denied (publickey"), "{text}");
            // 255: there was no connection.
            let status = output.status.code().filter(|status| *status != 255)?;
            Some((text.into_owned(), status))
        })
    }

    /// Types at the second serial line until a text comes back: what is typed before the guest reads may be lost.
    pub(crate) fn type_until(&mut self, typed: &str, expected: &str) {
        let mut stream = UnixStream::connect(self.directory.path().join("terminal")).unwrap();
        stream.set_nonblocking(true).unwrap();
        let (mut seen, mut again) = (String::new(), Instant::now());
        self.wait(&format!("{expected:?} on the terminal"), |_| {
            if Instant::now() >= again {
                stream.write_all(typed.as_bytes()).unwrap();
                again = Instant::now() + Duration::from_secs(5);
            }
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
            seen.contains(expected).then_some(())
        });
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

    /// Waits until a text is in one of the VM's files.
    pub(crate) fn wait_text(&mut self, file: &str, text: &str) {
        self.wait(&format!("{text:?} in {file}"), |machine| machine.read(file).contains(text).then_some(()));
    }

    /// Waits until QEMU has ended by itself.
    pub(crate) fn wait_end(mut self) -> (String, Vec<Report>, String) {
        let status = self.wait("the end of the VM", |machine| machine.qemu.try_wait().unwrap());
        assert!(status.success(), "{status}");
        (self.read("log"), self.reports(), self.read("console"))
    }

    pub(crate) fn wait<T>(&mut self, what: &str, mut look: impl FnMut(&mut Self) -> Option<T>) -> T {
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

    pub(crate) fn press_power(&self) {
        self.qmp(r#"{"execute":"system_powerdown"}"#);
    }

    /// Has QEMU plug in or take away memory beside the 512 MiB at boot, until so many bytes are requested.
    pub(crate) fn request_memory(&self, bytes: u64) {
        self.qmp(&format!(
            r#"{{"execute":"qom-set","arguments":{{"path":"vm0","property":"requested-size","value":{bytes}}}}}"#
        ));
    }

    /// Bytes that the guest has taken of what was requested.
    pub(crate) fn plugged_memory(&self) -> u64 {
        let answer = self.qmp(r#"{"execute":"qom-get","arguments":{"path":"vm0","property":"size"}}"#);
        serde_json::from_str::<serde_json::Value>(&answer).unwrap()["return"].as_u64().unwrap()
    }

    /// QEMU's answer to a command.
    fn qmp(&self, command: &str) -> String {
        let mut stream = UnixStream::connect(self.directory.path().join("qmp")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
        lines.next().unwrap();
        let mut last = String::new();
        for command in [r#"{"execute":"qmp_capabilities"}"#, command] {
            writeln!(stream, "{command}").unwrap();
            // Events come in between, and a client that disconnects before the answer may take the command back.
            last = lines.find(|line| !line.contains("\"event\"")).unwrap();
            assert!(last.contains("\"return\""), "{last}");
        }
        last
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// The memory at boot, and what can be plugged in beside it.
fn memory(command: &mut Command, pluggable: u64) {
    if pluggable == 0 {
        command.args(["-m", "512"]);
        return;
    }
    command.args(["-m", &format!("512M,maxmem={}M", 512 + (pluggable >> 20))]);
    command.args(["-object", &format!("memory-backend-ram,id=vmem0,size={pluggable}")]);
    command.args(["-device", "virtio-mem-pci,id=vm0,memdev=vmem0,block-size=2M,requested-size=0"]);
}

/// The order of the devices is that of their names in the guest.
fn drive(command: &mut Command, path: &Path, serial: &str) {
    let name = path.file_stem().unwrap().to_str().unwrap();
    command.arg("-drive").arg(format!("id={name},if=none,format=raw,file={}", path.display()));
    let serial = if serial.is_empty() { String::new() } else { format!(",serial={serial}") };
    command.arg("-device").arg(format!("virtio-blk-pci,drive={name}{serial}"));
}

fn attach(command: &mut Command, disk: &Disk, path: &Path) {
    let size = |bytes| fs::File::create(path).unwrap().set_len(bytes).unwrap();
    let mut serial = "";
    match disk {
        Disk::Files(label, files) => fs::write(path, plain::volume(label, files)).unwrap(),
        Disk::Empty(label, flags) => {
            let mut make = Command::new("/sbin/mke2fs");
            make.args(["-q", "-t", "ext4", "-b", "4096", "-L", label]).args(*flags).arg(path).arg("64M");
            run(&mut make).unwrap();
        }
        Disk::Blank(name) => {
            size(32 << 20);
            serial = name;
        }
        Disk::Swap(label) => {
            size(32 << 20);
            run(Command::new("/sbin/mkswap").args(["-L", label]).arg(path)).unwrap();
        }
    }
    drive(command, path, serial);
}

fn make_root(lab: &Lab, plan: &Plan<'_>, tree: &Path, disk: &Path) {
    let bin = tree.join("neonvm/bin");
    fs::create_dir_all(&bin).unwrap();
    for directory in ["dev", "proc", "sys", "run", "tmp", "etc", "neonvm/runtime"] {
        fs::create_dir_all(tree.join(directory)).unwrap();
    }
    fs::copy(&lab.guest, bin.join("neonvm-guest")).unwrap();
    for name in ["init", "neonvm-shell", "poweroff", "reboot", "resize-swap", "set-disk-quota"] {
        std::os::unix::fs::symlink("neonvm-guest", bin.join(name)).unwrap();
    }
    fs::copy(&lab.workload, tree.join("workload")).unwrap();
    fs::write(tree.join("neonvm/config.json"), serde_json::to_vec(&plan.image).unwrap()).unwrap();
    for (path, content) in &plan.files {
        fs::create_dir_all(tree.join(path).parent().unwrap()).unwrap();
        fs::write(tree.join(path), content).unwrap();
    }
    for (path, owner, mode) in &plan.owners {
        std::os::unix::fs::chown(tree.join(path), Some(*owner), Some(*owner)).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(*mode);
        fs::set_permissions(tree.join(path), mode).unwrap();
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
