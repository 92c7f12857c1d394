//! The runner's image without a container engine: QEMU and the other programs run from its root, so that a library or a firmware
//! file that is missing there is found.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use neonvm_builder::store::{BlobContent, Store};
use neonvm_images::apt::Apt;
use neonvm_images::build::{Inputs, LIST, build};
use neonvm_images::recipe::{Architecture, Debian, Recipe};
use neonvm_images::release::Labels;
use neonvm_test_support::{need, needs};

/// How long a kernel may take to its first program, emulated on a busy computer.
const BOOT: Duration = Duration::from_secs(180);

/// A kernel of the tests, under the names that images have.
fn take_kernel(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for (name, new) in [("vmlinux", "vmlinuz"), ("vmlinuz", "bzImage"), ("initramfs.cpio", "initramfs")] {
        if from.join(name).is_file() {
            std::fs::copy(from.join(name), to.join(new)).unwrap();
        }
    }
}

/// Makes the image, but for our own programs, and unpacks it.
fn root(kernel: &Path, work: &Path) -> PathBuf {
    let recipes = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut recipe = Recipe::read(&recipes.join("runner.yaml")).unwrap();
    recipe.layers.retain(|layer| layer.own.is_empty());
    let debian = Debian::read(&recipes.join("debian.yaml")).unwrap();
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("images-of-tests");
    let apt = Apt::open(&debian, Architecture::Amd64, &kept, true).unwrap();
    take_kernel(kernel, &work.join("kernel"));
    let inputs = Inputs {
        architecture: Architecture::Amd64,
        release: debian.release,
        programs: BTreeMap::new(),
        contents: BTreeMap::new(),
        kernel: Some(work.join("kernel")),
        work: kept,
        created: "1970-01-01T00:00:00Z".into(),
        labels: Labels { version: "1.2.3".into(), ..Labels::default() },
    };
    let store = Store::open(&work.join("store")).unwrap();
    let built = build(&recipe, &inputs, &apt, &store, &|_| {}).unwrap();
    assert!(built.compressed < 150_000_000, "{}", built.compressed);
    let image = store.get(&built.digest.to_string()).unwrap();
    let root = work.join("root");
    for layer in &image.layers {
        let bytes = match &layer.content {
            BlobContent::File(path) => std::fs::read(path).unwrap(),
            BlobContent::Bytes(bytes) => bytes.clone(),
        };
        let file = flate2::read::GzDecoder::new(bytes.as_slice());
        let mut tar = tar::Archive::new(file);
        tar.set_preserve_permissions(true);
        tar.unpack(&root).unwrap();
    }
    if work.join("kernel/bzImage").is_file() {
        std::fs::copy(work.join("kernel/bzImage"), root.join("vm/kernel/bzImage")).unwrap();
    }
    root
}

/// What kernels with and without an initramfs print when they have started.
const ENDS: [&str; 2] = ["Run /init as init process", "Unable to mount root fs"];

/// A command in the root, with `/proc` and `/dev` as container runtimes give them, in a mount namespace of its own.
fn inside(root: &Path, arguments: &[&str]) -> Command {
    const ENTER: &str = "root=$1; shift; mkdir -p \"$root/proc\" \"$root/dev\" && mount -t proc proc \"$root/proc\" \
        && mount --rbind /dev \"$root/dev\" && exec env -i PATH=/usr/sbin:/usr/bin chroot \"$root\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", ENTER, "sh"]).arg(root).args(arguments);
    command.stdin(Stdio::null());
    command
}

fn prints(root: &Path, arguments: &[&str], text: &str) {
    let output = inside(root, arguments).output().unwrap();
    let printed =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && printed.contains(text), "{arguments:?}: {printed}");
}

/// Starts a kernel with the devices of a VM, until it looks for the guest program.
fn boots(root: &Path, firmware: &[&str], kernel: &str) {
    let fixed = [
        "qemu-system-x86_64",
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
        "-machine",
        "pc-q35-7.2,vmport=off",
        "-accel",
        "tcg",
        "-cpu",
        "max",
        "-m",
        "size=256m,slots=1,maxmem=1g",
        "-sandbox",
        "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
        "-object",
        "memory-backend-ram,id=vmem0,size=256m,reserve=off",
        "-device",
        "virtio-mem-pci,id=vm0,memdev=vmem0,block-size=2M,requested-size=0",
        "-object",
        "rng-random,id=rng0,filename=/dev/urandom",
        "-device",
        "virtio-rng-pci,rng=rng0",
        "-device",
        "pvpanic-pci",
        "-device",
        "virtio-serial-pci",
        "-netdev",
        "user,id=net0",
        "-device",
        "virtio-net-pci,netdev=net0,romfile=",
        "-chardev",
        "stdio,id=console",
        "-serial",
        "chardev:console",
        "-append",
        "console=ttyS0 panic=-1 tsc=reliable no_timer_check lpj=10000000 mitigations=off",
        "-kernel",
        kernel,
    ];
    let initrd: &[&str] =
        if root.join("vm/kernel/initramfs").is_file() { &["-initrd", "/vm/kernel/initramfs"] } else { &[] };
    let mut command = inside(root, &[&fixed[..], firmware, initrd].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (send, lines) = mpsc::channel();
    let outputs: [Box<dyn std::io::Read + Send>; 2] =
        [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
    for output in outputs {
        let send = send.clone();
        std::thread::spawn(move || {
            let lines = BufReader::new(output).split(b'\n').map_while(Result::ok);
            lines.map(|line| String::from_utf8_lossy(&line).into_owned()).try_for_each(|line| send.send(line))
        });
    }
    drop(send);
    let deadline = Instant::now() + BOOT;
    let mut console = Vec::new();
    let runs = loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) if ENDS.iter().any(|end| line.contains(end)) => break true,
            Ok(line) => console.push(line),
            Err(_) => break false,
        }
    };
    let _ = child.kill();
    let _ = child.wait();
    assert!(runs, "{firmware:?} {kernel}: {}", console.join("\n"));
}

#[test]
fn qemu_boots_a_kernel_from_the_runners_image() {
    need!(needs::root());
    need!(needs::programs(&["apt-get", "dpkg-deb", "chroot", "unshare"]));
    let kernel = need!(needs::kernel());
    let work = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let root = root(&kernel, work.path());
    prints(&root, &["nft", "--version"], "nftables");
    prints(&root, &["ip", "-Version"], "iproute2");
    prints(&root, &["mkfs.ext4", "-V"], "mke2fs");
    prints(&root, &["sh", "-c", "test -x /bin/sh && id -u && cat /etc/passwd"], "64055");
    prints(&root, &["cat", LIST], "SPDX-2.3");
    boots(&root, &["-bios", "qboot.rom"], "/vm/kernel/vmlinuz");
    if root.join("vm/kernel/bzImage").is_file() {
        boots(&root, &[], "/vm/kernel/bzImage");
    }
}
