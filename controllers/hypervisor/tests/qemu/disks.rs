//! Files behind disks.

use neonvm_test_support::{Missing, Need, need, needs};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use neonvm_hypervisor::disks::{
    DiskError, EmptyDisk, VolumeFile, empty, file_size, inspect, overlay, swap, volume,
};
use neonvm_hypervisor::machine::{GrowError, Machine, MachineEvent, RunState, StartError};
use neonvm_hypervisor::plan::{BaseFormat, DiskImage, DiskPlan, MachinePlan};
use neonvm_types::Bytes;

use crate::lab::{Console, Lab, PATIENCE, event, lab, resources, start, until};

/// Output of a program, which must succeed.
fn run(name: &str, arguments: &[&str]) -> String {
    let program = needs::find_program(name).unwrap();
    let output = Command::new(program).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {arguments:?}: {text}{errors}");
    text
}

#[test]
fn overlays_are_what_qemus_tools_expect() {
    need!(needs::program("qemu-img"));
    let directory = tempfile::tempdir().unwrap();
    let raw = directory.path().join("base.raw");
    std::fs::write(&raw, vec![7; 3 << 20]).unwrap();
    let base = inspect(&raw).unwrap();
    assert_eq!((base.format, base.size), (BaseFormat::Raw, Bytes::mib(3)));
    let file = directory.path().join("deep/overlay.qcow2");
    assert_eq!(overlay(&file, &base, Some(Bytes::gib(40))).unwrap(), Bytes::gib(40));
    let text = file.to_str().unwrap();
    let info = run("qemu-img", &["info", "--output=json", text]);
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    assert_eq!(info["virtual-size"], 40u64 << 30);
    assert_eq!(info["backing-filename"], raw.to_str().unwrap());
    assert_eq!(info["backing-filename-format"], "raw");
    run("qemu-img", &["check", text]);
    run(
        "qemu-img",
        &["compare", "-s", "-f", "raw", "-F", "raw", raw.to_str().unwrap(), raw.to_str().unwrap()],
    );
    let flat = directory.path().join("flat");
    run("qemu-img", &["convert", "-O", "raw", text, flat.to_str().unwrap()]);
    let start = std::fs::File::open(flat).unwrap();
    let mut bytes = vec![0; (3 << 20) + 4096];
    std::os::unix::fs::FileExt::read_exact_at(&start, &mut bytes, 0).unwrap();
    assert!(bytes[..3 << 20].iter().all(|byte| *byte == 7) && bytes[3 << 20..].iter().all(|byte| *byte == 0));
    // As large as QEMU's largest, and no larger.
    for (name, size, good) in [("large", 2u64 << 50, true), ("too-large", (2 << 50) + 1, false)] {
        let path = directory.path().join(name);
        assert_eq!(overlay(&path, &base, Some(Bytes::new(size))).is_ok(), good, "{name}");
        if good {
            run("qemu-img", &["check", path.to_str().unwrap()]);
        }
    }
    // Never smaller than the base; what is there is used.
    let small = directory.path().join("small.qcow2");
    assert_eq!(overlay(&small, &base, Some(Bytes::mib(1))).unwrap(), Bytes::mib(3));
    let before = std::fs::metadata(&file).unwrap().ino();
    assert_eq!(overlay(&file, &base, None).unwrap(), Bytes::gib(40));
    assert_eq!(std::fs::metadata(&file).unwrap().ino(), before);
    // An overlay is no base for another machine's overlay of the same name.
    let other = directory.path().join("other.raw");
    std::fs::write(&other, vec![1; 1 << 20]).unwrap();
    let error = overlay(&file, &inspect(&other).unwrap(), None).unwrap_err();
    assert!(error.to_string().contains("its base is "), "{error}");
    assert_eq!(std::fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
}

#[test]
fn images_that_cannot_be_used_are_named_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let missing = inspect(&path("none")).unwrap_err();
    assert!(matches!(missing, DiskError::Missing(_)));
    assert!(missing.to_string().ends_with("/none"), "{missing}");
    std::fs::write(path("odd"), b"not a disk").unwrap();
    std::fs::write(path("empty"), b"").unwrap();
    std::fs::write(path("cut"), [b"QFI\xfb\0\0\0\x03".as_slice(), &[0; 20]].concat()).unwrap();
    std::fs::write(path("wild"), [b"QFI\xfb\0\0\0\x03".as_slice(), &[0xFF; 1024]].concat()).unwrap();
    for (name, part) in [
        ("odd", "no whole sectors"),
        ("empty", "no whole sectors"),
        ("cut", "the file ends within it"),
        ("wild", "/wild cannot be used: "),
        (".", "not a regular file"),
    ] {
        let error = inspect(&path(name)).unwrap_err();
        assert!(matches!(error, DiskError::Image { .. }) && error.to_string().contains(part), "{error}");
    }
}

#[tokio::test]
async fn empty_disks_are_sound_and_take_no_room() {
    need!(needs::programs(&["mkfs.ext4", "e2fsck", "dumpe2fs", "blkid"]));
    let directory = tempfile::tempdir().unwrap();
    for (name, quotas) in [("plain", false), ("quotas", true)] {
        let path = directory.path().join(name);
        let disk = EmptyDisk { size: Bytes::gib(20), label: name, quotas };
        empty(&path, disk.clone()).await.unwrap();
        let metadata = std::fs::metadata(&path).unwrap();
        assert_eq!(metadata.len(), 20 << 30);
        assert!(metadata.blocks() * 512 < 64 << 20, "{}", metadata.blocks());
        let text = path.to_str().unwrap();
        run("e2fsck", &["-fn", text]);
        let info = run("dumpe2fs", &["-h", text]);
        assert!(info.contains(&format!("Filesystem volume name:   {name}")), "{info}");
        assert_eq!(info.contains(" project"), quotas, "{info}");
        empty(&path, disk).await.unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().ino(), metadata.ino(), "it is used again");
    }
    let path = directory.path().join("long");
    let disk = EmptyDisk { size: Bytes::gib(1), label: "a label that is too long", quotas: false };
    assert!(matches!(empty(&path, disk).await, Err(DiskError::Content { .. })));
    swap(&directory.path().join("swap"), Bytes::gib(2), "swapdisk").unwrap();
    let info = run("blkid", &["-p", "-o", "export", directory.path().join("swap").to_str().unwrap()]);
    assert!(info.contains("LABEL=swapdisk") && info.contains("TYPE=swap"), "{info}");
    assert!(!path.exists());
}

#[test]
fn volumes_keep_names_modes_and_directories() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("volume.iso");
    let file =
        |path: &str, mode, content: &str| VolumeFile { path: path.into(), mode, content: content.into() };
    let files = [
        file("My.Config.YAML", 0o640, "a: 1\n"),
        file("deep/er/Long name, with a comma and ünïcode.txt", 0o755, "x"),
        file("empty", 0o444, ""),
    ];
    volume(&path, "settings", &files).unwrap();
    let first = std::fs::read(&path).unwrap();
    volume(&path, "settings", &files).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), first);
    for wrong in ["../up", "a/../../b", "", "dir/", "nul\0"] {
        let error = volume(&path, "x", &[file(wrong, 0o644, "")]).unwrap_err();
        assert!(matches!(error, DiskError::Content { .. }), "{wrong:?}");
    }
    assert!(volume(&path, "x", &[file("a", 0o644, ""), file("a/b", 0o644, "")]).is_err());
    assert!(volume(&path, "x", &[file("a/b", 0o644, ""), file("a", 0o644, "")]).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), first, "failures leave what was there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_writes_to_its_overlay_and_never_to_the_base() {
    let lab = need!(lab());
    need!(needs::program("qemu-img"));
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().join("base.raw");
    std::fs::write(&base, vec![0; 4 << 20]).unwrap();
    let file = directory.path().join("root.qcow2");
    overlay(&file, &inspect(&base).unwrap(), Some(Bytes::mib(64))).unwrap();
    let second = directory.path().join("data, with a comma.raw");
    empty(&second, EmptyDisk { size: Bytes::mib(64), label: "data", quotas: false }).await.unwrap();
    let iso = directory.path().join("files.iso");
    let small = |path: &str, mode| VolumeFile { path: path.into(), mode, content: b"1".to_vec() };
    volume(&iso, "files", &[small("My.Config.YAML", 0o640), small("deep/er/a, b ü.txt", 0o755)]).unwrap();
    let image = DiskImage::Overlay { file: file.clone(), base: base.clone(), base_format: BaseFormat::Raw };
    let disk = |name: &str, image, read_only| DiskPlan { name: name.into(), image, read_only, discard: true };
    for direct_io in [false, true] {
        let mut plan = lab.plan("write");
        plan.direct_io = direct_io;
        plan.disks =
            vec![disk("root", image.clone(), false), disk("files", DiskImage::Raw(iso.clone()), true)];
        // More than a slot holds.
        for index in 0..8 {
            let copy = directory.path().join(format!("disk{index}"));
            std::fs::copy(&second, &copy).unwrap();
            plan.disks.push(disk(&format!("a,b={index}"), DiskImage::Raw(copy), false));
        }
        let (machine, mut console) = start(plan).await;
        console.ready().await;
        let text = console.text();
        for part in ["vdj", "FILE 640 1 /files/My.Config.YAML", "FILE 755 1 /files/deep/er/a, b ü.txt"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        machine.power_button().await.unwrap();
        assert!(machine.wait_for(PATIENCE).await.unwrap().is_power_off());
    }
    assert!(std::fs::read(&base).unwrap().iter().all(|byte| *byte == 0), "the base was written");
    let flat = directory.path().join("flat");
    run("qemu-img", &["convert", "-O", "raw", file.to_str().unwrap(), flat.to_str().unwrap()]);
    let bytes = std::fs::read(flat).unwrap();
    assert_eq!(bytes.len(), 64 << 20);
    assert!(bytes[1 << 20..2 << 20].iter().all(|byte| *byte == 7));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_missing_or_corrupt_is_named() {
    let lab = need!(lab());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("root.qcow2");
    let mut plan = lab.plan("wait");
    let disk = DiskPlan {
        name: "root".into(),
        image: DiskImage::Qcow2(file.clone()),
        read_only: false,
        discard: false,
    };
    plan.disks = vec![disk];
    let error = Machine::start(plan.clone(), resources().await).await.unwrap_err();
    assert!(matches!(&error, StartError::File { path, .. } if *path == file), "{error:?}");
    std::fs::write(&file, "not an image").unwrap();
    let error = Machine::start(plan, resources().await).await.unwrap_err();
    assert!(error.to_string().contains("Image is not in qcow2 format"), "{error}");
}

/// A plan with a root disk in this directory, and a volume as the second disk.
fn with_volume(lab: &Lab, directory: &Path, path: &Path, device: bool) -> MachinePlan {
    let root = directory.join("root.raw");
    std::fs::write(&root, vec![0; 1 << 20]).unwrap();
    let disk = |name: &str, image| DiskPlan { name: name.into(), image, read_only: false, discard: true };
    let volume = DiskImage::Volume { path: path.to_owned(), device, shared: false };
    let mut plan = lab.plan("wait");
    plan.disks = vec![disk("root", DiskImage::Raw(root)), disk("data", volume)];
    plan
}

/// The file grows with the volume's size, the guest's kernel takes note, and nothing shrinks.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_on_a_volume_grows_while_the_guest_runs() {
    let lab = need!(lab());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    let length = || Bytes::new(std::fs::metadata(&path).unwrap().len());
    std::fs::File::create(&path).unwrap().set_len(file_size(Bytes::mib(64)).get()).unwrap();
    let plan = with_volume(lab, directory.path(), &path, false);
    let (machine, mut console) = start(plan).await;
    console.ready().await;
    assert_eq!(machine.used_volume(1, Bytes::mib(64)).await.unwrap(), Bytes::mib(64));
    assert_eq!(
        machine.used_volume(1, Bytes::mib(96)).await.unwrap(),
        file_size(Bytes::mib(64)),
        "it has room"
    );
    for _ in 0..2 {
        let size = machine.grow_disk(1, Bytes::mib(128)).await.unwrap();
        assert_eq!((size, length()), (file_size(Bytes::mib(128)), size));
    }
    until("the guest takes note of the disk's size", async || console.text().contains("[vdb] new size"))
        .await;
    assert_eq!(machine.grow_disk(1, Bytes::mib(64)).await.unwrap(), length(), "it does not shrink");
    assert_eq!(length(), file_size(Bytes::mib(128)));
    for index in [0, 2] {
        let error = machine.grow_disk(index, Bytes::mib(256)).await.unwrap_err();
        assert!(matches!(error, GrowError::Disk(other) if other == index), "{error}");
    }
}

/// A block device over a file, as long as it is held.
struct Device(PathBuf);

impl Device {
    fn new(file: &Path) -> Need<Self> {
        needs::root()?;
        needs::program("losetup")?;
        let made = Command::new("losetup").args(["--find", "--show"]).arg(file).output();
        match made {
            Ok(output) if output.status.success() => {
                Ok(Self(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())))
            }
            other => Err(Missing::unavailable(format!("there is no loop device: {other:?}"))),
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// A device grows by itself; then QEMU and the guest's kernel take note.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_on_a_device_grows_while_the_guest_runs() {
    let lab = need!(lab());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("volume");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(64 << 20).unwrap();
    let device = need!(Device::new(&path));
    let (machine, mut console) = start(with_volume(lab, directory.path(), &device.0, true)).await;
    console.ready().await;
    assert_eq!(machine.used_volume(1, Bytes::mib(64)).await.unwrap(), Bytes::mib(64));
    let early = machine.grow_disk(1, Bytes::mib(128)).await;
    assert!(early.is_err(), "the device has 64 MiB: {early:?}");
    file.set_len(128 << 20).unwrap();
    run("losetup", &["--set-capacity", device.0.to_str().unwrap()]);
    for _ in 0..2 {
        assert_eq!(machine.grow_disk(1, Bytes::mib(128)).await.unwrap(), Bytes::mib(128));
    }
    until("the guest takes note of the device's size", async || console.text().contains("[vdb] new size"))
        .await;
    assert_eq!(machine.grow_disk(1, Bytes::mib(64)).await.unwrap(), Bytes::mib(128), "it does not shrink");
}

/// A file system of 512 KiB, as long as it is held.
struct Small(tempfile::TempDir);

impl Small {
    fn new() -> Need<Self> {
        needs::root()?;
        let directory = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=512k", "small"])
            .arg(directory.path())
            .output();
        match mounted {
            Ok(output) if output.status.success() => Ok(Self(directory)),
            other => Err(Missing::unavailable(format!("no tmpfs can be mounted: {other:?}"))),
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_of_the_host_stops_the_guest_until_there_is_room() {
    let lab = need!(lab());
    let small = need!(Small::new());
    let path = small.0.path().join("disk.raw");
    std::fs::File::create(&path).unwrap().set_len(8 << 20).unwrap();
    let mut plan = lab.plan("write");
    plan.disks =
        vec![DiskPlan { name: "data".into(), image: DiskImage::Raw(path), read_only: false, discard: true }];
    let machine = Machine::start(plan, resources().await).await.unwrap();
    let mut events = machine.events();
    let mut console = Console::follow(&machine);
    machine.continue_().await.unwrap();
    let failed =
        event(&mut events, "the failure", |event| matches!(event, MachineEvent::DiskFailed { .. })).await;
    let MachineEvent::DiskFailed { disk, write, full, stopped, reason } = failed else {
        panic!("{failed:?}")
    };
    assert_eq!((disk.as_str(), write, full, stopped), ("data", true, true, true), "{reason}");
    event(&mut events, "the stop", |event| *event == MachineEvent::Stopped(RunState::IoError)).await;
    assert_eq!(machine.status().await, Ok(RunState::IoError));
    let more = Command::new("mount").args(["-o", "remount,size=16m"]).arg(small.0.path()).status().unwrap();
    assert!(more.success());
    machine.continue_().await.unwrap();
    console.ready().await;
}
