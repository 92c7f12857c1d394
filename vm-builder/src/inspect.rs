//! Reading a disk's metadata, and the command that boots it in plain QEMU.

use std::fs::File;
use std::path::{Path, PathBuf};

use neonvm_disk::image::Image;
use neonvm_disk::{files, qcow2, raw};
use neonvm_types::guest::{IMAGE_CONFIG_PATH, ImageConfig, METRICS_PORT, SSH_PORT};

use crate::record::{self, Record};

/// No settings or record is larger, in bytes.
const LARGEST: u64 = 16 << 20;

/// Why a disk cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} is not a usable disk: {reason}", path.display())]
    Damaged { path: PathBuf, reason: String },
}

/// What a disk file is and holds.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// `qcow2` or `raw`.
    pub format: &'static str,
    pub detail: String,
    /// Size as the VM sees it, in bytes.
    pub size: u64,
    /// Size as it is stored, in bytes.
    pub stored: u64,
    /// How it was made; none if the disk was made by another tool.
    pub record: Option<Record>,
    /// The guest's configuration; none if the disk was made by another tool.
    pub config: Option<ImageConfig>,
    /// Whether the file system could be read at all.
    pub readable: bool,
}

/// Reads the metadata of a disk file.
pub fn inspect(path: &Path) -> Result<Inspection, Error> {
    use std::os::unix::fs::MetadataExt as _;
    let unreadable = |source| Error::Read { path: path.to_owned(), source };
    let file = File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    let stored = metadata.len().min(metadata.blocks() * 512);
    if is_qcow2(&file).map_err(unreadable)? {
        let file = raw::Reader::open(file).map_err(unreadable)?;
        let reader = qcow2::Reader::open(file).map_err(|error| damaged(path, &error))?;
        let detail = format!("v{}, {} KiB clusters", reader.version(), reader.cluster_size() >> 10);
        return Ok(look("qcow2", detail, stored, reader));
    }
    let reader = raw::Reader::open(file).map_err(unreadable)?;
    Ok(look("raw", String::new(), stored, reader))
}

/// Walks all tables of a qcow2 file, and reads the file system's description.
pub fn verify(path: &Path) -> Result<(), Error> {
    let unreadable = |source| Error::Read { path: path.to_owned(), source };
    let file = File::open(path).map_err(unreadable)?;
    if is_qcow2(&file).map_err(unreadable)? {
        let file = raw::Reader::open(file).map_err(unreadable)?;
        let reader = qcow2::Reader::open(file).map_err(|error| damaged(path, &error))?;
        reader.check().map_err(|error| damaged(path, &error))?;
        files::FileSystem::open(reader).map_err(|error| damaged(path, &error))?;
    } else {
        let reader = raw::Reader::open(file).map_err(unreadable)?;
        files::FileSystem::open(reader).map_err(|error| damaged(path, &error))?;
    }
    Ok(())
}

fn damaged(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::Damaged { path: path.to_owned(), reason: error.to_string() }
}

fn is_qcow2(file: &File) -> std::io::Result<bool> {
    use std::os::unix::fs::FileExt as _;
    let mut magic = [0; 4];
    Ok(file.read_at(&mut magic, 0)? == 4 && magic == *b"QFI\xfb")
}

fn look(format: &'static str, detail: String, stored: u64, image: impl Image + 'static) -> Inspection {
    let size = image.length();
    let files = files::FileSystem::open(image).ok();
    let text = |path: &str| files.as_ref()?.read(path.as_bytes(), LARGEST).ok();
    let record = text(record::PATH).and_then(|text| serde_json::from_slice(&text).ok());
    let config = text(IMAGE_CONFIG_PATH).and_then(|text| serde_json::from_slice(&text).ok());
    Inspection { format, detail, size, stored, record, config, readable: files.is_some() }
}

/// How a disk is booted in plain QEMU.
#[derive(Clone, Debug)]
pub struct Boot<'a> {
    pub disk: &'a Path,
    /// `qcow2` or `raw`.
    pub format: &'a str,
    /// What `-kernel` gets.
    pub kernel: &'a Path,
    /// What `-initrd` gets.
    pub initramfs: Option<&'a Path>,
    /// `kvm` or `tcg`.
    pub accelerator: &'a str,
    /// Port on 127.0.0.1 and port in the VM, each.
    pub forward: &'a [(u16, u16)],
}

/// Ports that are forwarded by default: SSH and the metrics, each to a free-looking port on this machine.
pub const USUAL_PORTS: [(u16, u16); 2] = [(2222, SSH_PORT), (19100, METRICS_PORT)];

impl Boot<'_> {
    /// Program and arguments. The disk itself is not changed: writes go to a temporary overlay.
    pub fn command(&self) -> Vec<String> {
        let mut command: Vec<String> =
            ["qemu-system-x86_64", "-M", "q35", "-bios", "qboot.rom"].map(str::to_owned).into();
        let mut push = |name: &str, value: String| command.extend([name.to_owned(), value]);
        if self.accelerator == "kvm" {
            push("-accel", "kvm".to_owned());
            push("-cpu", "host".to_owned());
        } else {
            push("-accel", "tcg,thread=multi".to_owned());
            push("-cpu", "max".to_owned());
        }
        push("-smp", "2".to_owned());
        push("-m", "1G".to_owned());
        push("-kernel", self.kernel.display().to_string());
        if let Some(initramfs) = self.initramfs {
            push("-initrd", initramfs.display().to_string());
        }
        let mut line = "console=ttyS0 root=/dev/vda rw init=/neonvm/bin/init panic=-1 loglevel=4".to_owned();
        if self.accelerator != "kvm" {
            // On a busy host the guest cannot measure how fast an emulated processor counts, and its clock would run wild.
            line.push_str(" clocksource=acpi_pm no_timer_check lpj=10000000 mitigations=off");
        }
        push("-append", line);
        // A comma divides options; doubled it is a comma.
        let disk = self.disk.display().to_string().replace(',', ",,");
        push("-drive", format!("file={disk},format={},if=virtio,snapshot=on", self.format));
        push("-device", "virtio-rng-pci".to_owned());
        let forwards: String = self
            .forward
            .iter()
            .map(|(host, guest)| format!(",hostfwd=tcp:127.0.0.1:{host}-:{guest}"))
            .collect();
        push("-netdev", format!("user,id=net0{forwards}"));
        push("-device", "virtio-net-pci,netdev=net0".to_owned());
        command.extend(
            ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "mon:stdio"]
                .map(str::to_owned),
        );
        command
    }
}

pub fn shell_line(command: &[String]) -> String {
    let plain = |word: &str| {
        let safe = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
        !word.is_empty() && word.chars().all(safe)
    };
    let quoted =
        |word: &String| if plain(word) { word.clone() } else { format!("'{}'", word.replace('\'', r"'\''")) };
    command.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_command_is_one_line_that_a_shell_reads_back() {
        let disk = Path::new("/tmp/it's a, disk.qcow2");
        let boot = Boot {
            disk,
            format: "qcow2",
            kernel: Path::new("/k/vmlinux"),
            initramfs: Some(Path::new("/k/i.cpio")),
            accelerator: "tcg",
            forward: &[(2222, 22)],
        };
        let command = boot.command();
        let line = shell_line(&command);
        let script = format!("set -- {line}; printf '%s\\n' \"$@\"");
        let output = std::process::Command::new("sh").arg("-c").arg(script).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap().lines().collect::<Vec<_>>(), command);
        assert!(line.contains("it'\\''s a,, disk.qcow2,format=qcow2"), "{line}");
        assert!(line.contains("hostfwd=tcp:127.0.0.1:2222-:22"));
    }

    #[test]
    fn a_file_that_is_no_disk_is_reported_as_such() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.qcow2");
        std::fs::write(&path, b"QFI\xfbgarbage").unwrap();
        assert!(inspect(&path).unwrap_err().to_string().contains("is not a usable disk"));
        std::fs::write(&path, b"").unwrap();
        assert!(!inspect(&path).unwrap().readable);
        assert!(matches!(verify(&path), Err(Error::Damaged { .. })));
        assert!(matches!(inspect(Path::new("/nowhere")), Err(Error::Read { .. })));
    }
}
