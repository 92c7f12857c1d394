//! Whole packages, made here.

use neonvm_test_support::need;
use neonvm_test_support::needs::{self, Missing, Need};

use super::*;
use crate::Silent;
use crate::package::made;
use crate::packing::{FORMS, Packing, pack};

/// A kernel's package: its modules are in one form, the package in another. `without` names a module that is missing.
fn package(form: (&str, Packing), modules: (&str, Packing), without: &str) -> Vec<u8> {
    let config: String = REQUIRED.iter().map(|option| format!("{option}=m\n")).collect();
    let mut image = vec![0; 1024];
    image[0x1f1] = 1;
    image[0x202..0x206].copy_from_slice(b"HdrS");
    let elf = b"\x7fELF kernel";
    image[0x24c..0x250].copy_from_slice(&u32::try_from(elf.len()).unwrap().to_le_bytes());
    image.extend(elf);
    let mut files = vec![
        ("boot/config-6.12.1-test".to_owned(), config.into_bytes()),
        ("boot/vmlinuz-6.12.1-test".to_owned(), image),
        ("usr/lib/modules/6.12.1-test/modules.builtin".to_owned(), b"kernel/fs/isofs/isofs.ko\n".to_vec()),
    ];
    for name in NEEDED.into_iter().chain(["virtio", "virtio_mem"]) {
        if name == without || name == "isofs" {
            continue;
        }
        let depends = if name.starts_with("virtio_") { "virtio" } else { "" };
        let text = format!("\x7fELF\0depends={depends}\0name={name}\0");
        let path = format!("usr/lib/modules/6.12.1-test/kernel/{name}.ko{}", modules.0);
        files.push((path, pack(modules.1, text.as_bytes())));
    }
    made(&files, form)
}

/// Fetches a package; the store is otherwise empty and stays so after an error.
fn fetched(bytes: &[u8], modules: &[&str], sha256: Option<&str>) -> Result<Vec<u8>, Error> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("linux-image.deb");
    std::fs::write(&path, bytes).unwrap();
    let guest = directory.path().join("guest");
    std::fs::write(&guest, "program").unwrap();
    let kernels = directory.path().join("kernels");
    let options = Options {
        guest: &guest,
        source: Source::File { path, sha256: sha256.map(str::to_owned) },
        modules: modules.iter().map(|&name| name.to_owned()).collect(),
        name: None,
        default: true,
    };
    match fetch(&options, &Store::new(kernels.clone()), &Silent) {
        Ok(kernel) => {
            assert_eq!((kernel.manifest.name.as_str(), kernel.manifest.built), ("6.12.1-test", false));
            assert_eq!(std::fs::read_dir(&kernels).unwrap().count(), 2, "the kernel and the link to it");
            Ok(std::fs::read(kernel.initramfs().unwrap()).unwrap())
        }
        Err(error) => {
            assert_eq!(std::fs::read_dir(&kernels).unwrap().count(), 0, "nothing stays: {error}");
            Err(error)
        }
    }
}

#[test]
fn modules_of_every_form_come_uncompressed_into_the_initramfs() {
    let mut all = Vec::new();
    for (number, modules) in FORMS.into_iter().enumerate() {
        let form = FORMS[(number + 1) % FORMS.len()];
        all.push(fetched(&package(form, modules, ""), &[], None).unwrap());
    }
    let first = &all[0];
    assert!(all.iter().all(|initramfs| initramfs == first), "the form of the modules makes no difference");
    let holds = |part: &str| first.windows(part.len()).any(|found| found == part.as_bytes());
    assert!(holds("virtio.ko\nvirtio_pci.ko\nvirtio_blk.ko\next4.ko\nvirtio_net.ko\n"));
    assert!(holds("modules/virtio_mem.ko\0") && holds("depends=virtio\0name=virtio_mem\0"));
}

#[test]
fn a_package_that_lacks_something_leaves_nothing_behind() {
    let message = |bytes: &[u8], modules: &[&str]| fetched(bytes, modules, None).unwrap_err().to_string();
    let form = FORMS[2];
    assert_eq!(message(&package(form, form, "virtio_blk"), &[]), "this kernel has no module virtio_blk");
    assert_eq!(message(&package(form, form, "virtio"), &[]), "this kernel has no module virtio");
    assert_eq!(message(&package(form, form, ""), &["nothing"]), "this kernel has no module nothing");
    assert!(message(b"no package", &[]).starts_with("package linux-image.deb is not usable: "));
    let other = made(&[("boot/config-1".to_owned(), vec![])], form);
    assert_eq!(message(&other, &[]), "the package is not usable: it holds no kernel image");
    let other = made(&[("etc/x".to_owned(), vec![])], form);
    assert!(message(&other, &[]).ends_with("it holds no /boot: it is not a kernel image"));
    let whole = package(form, form, "");
    assert!(message(&whole[..whole.len() / 2], &[]).contains("cut short or damaged"));
    let damaged = package(form, (".xz", Packing::Plain), "");
    let error = message(&damaged, &[]);
    assert!(error.starts_with("module ") && error.contains(".ko.xz is not usable: "), "{error}");
}

#[test]
fn a_package_on_disk_is_compared_with_its_hash() {
    let bytes = package(FORMS[0], FORMS[0], "");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.deb");
    std::fs::write(&path, &bytes).unwrap();
    let hash = store::sha256(&path).unwrap();
    fetched(&bytes, &[], Some(&hash.to_uppercase())).unwrap();
    let error = fetched(&bytes, &[], Some(&"0".repeat(64))).unwrap_err();
    assert!(matches!(error, Error::Hash { .. }) && error.hint().is_some(), "{error}");
}

#[test]
fn a_kernel_that_cannot_run_vms_is_refused_with_what_it_lacks() {
    let good: String = REQUIRED.iter().map(|option| format!("{option}=m\n")).collect();
    check(&good).unwrap();
    let error = check(&good.replace("CONFIG_VIRTIO_MEM=m", "# CONFIG_VIRTIO_MEM is not set")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "1 of the requested kernel options did not come out as asked: CONFIG_VIRTIO_MEM=n (wanted y, needed by every VM)"
    );
}

/// The file of a pinned kernel, downloaded by apt with this host's own settings, once.
fn downloaded(pinned: &Pinned) -> Need<PathBuf> {
    let directory = needs::target_directory().join("tmp/kernel-packages");
    let path = directory.join(pinned.file());
    if mirror::check("", &path, pinned.sha256).is_ok() {
        return Ok(path);
    }
    std::fs::create_dir_all(&directory).unwrap();
    let aside = tempfile::tempdir_in(&directory).unwrap();
    let file = aside.path().join("package.deb");
    let url = format!("{}/{}", mirror::DEFAULT, pinned.path);
    let helper = Command::new("/usr/lib/apt/apt-helper")
        .args([
            "-o",
            "APT::Sandbox::User=root",
            "-o",
            "Acquire::Retries=0",
            "-o",
            "Acquire::http::Timeout=10",
        ])
        .args(["download-file", &url, &file.display().to_string(), &format!("SHA256:{}", pinned.sha256)])
        .output();
    match helper {
        Ok(output) if output.status.success() => {
            std::fs::rename(&file, &path).unwrap();
            Ok(path)
        }
        Ok(_) => Err(Missing::unavailable(format!("apt cannot download {}", pinned.file()))),
        Err(_) => Err(Missing::unavailable("there is no apt")),
    }
}

fn becomes_a_kernel(version: &str, path: PathBuf, sha256: &str) {
    let directory = tempfile::tempdir().unwrap();
    let guest = directory.path().join("guest");
    std::fs::write(&guest, "program").unwrap();
    let source = Source::File { path, sha256: Some(sha256.to_owned()) };
    let options = Options { guest: &guest, source, modules: vec![], name: None, default: false };
    let kernel = fetch(&options, &Store::new(directory.path().join("kernels")), &Silent).unwrap();
    assert!(kernel.image().ends_with(store::VMLINUX), "it has a PVH entry");
    assert!(kernel.manifest.version.starts_with(version), "{}", kernel.manifest.version);
    let initramfs = std::fs::read(kernel.initramfs().unwrap()).unwrap();
    let holds = |part: &str| initramfs.windows(part.len()).any(|found| found == part.as_bytes());
    assert!(holds("modules/virtio_blk.ko\0") && holds("virtio_mem.ko\n"));
    assert!(!holds(".ko.xz"), "all are uncompressed");
}

#[test]
fn the_kernel_of_debian_12() {
    let pinned = Pinned::of_version(Some("6.1")).unwrap();
    let path = need!(downloaded(&pinned));
    becomes_a_kernel("6.1.", path, pinned.sha256);
}

/// Its modules are compressed with xz.
#[test]
fn the_kernel_of_debian_13() {
    let pinned = Pinned::of_version(Some("6.12")).unwrap();
    let path = need!(downloaded(&pinned));
    becomes_a_kernel("6.12.", path, pinned.sha256);
}
