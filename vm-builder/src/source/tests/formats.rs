//! Files of other kinds, archives in every packing, and names that are none.

use super::*;
use crate::layer::writer::Writer;

/// The error of building from a path, as it is recognised and as a tar; and its hint.
fn refused(path: &Path, cache: &Path) -> Vec<(String, String)> {
    let options = sample::options(cache);
    let recognised = Source::parse(path.to_str().unwrap()).and_then(|source| loaded(&source, &options));
    let as_tar = loaded(&Source::RootTar(path.to_owned()), &options);
    [recognised, as_tar]
        .into_iter()
        .map(|outcome| {
            let error = outcome.err().unwrap_or_else(|| panic!("{} is taken", path.display()));
            (error.to_string(), error.hint().unwrap_or_default())
        })
        .collect()
}

/// Bytes at an offset of zeros.
fn with(offset: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = vec![0; 80 << 10];
    file[offset..offset + bytes.len()].copy_from_slice(bytes);
    file
}

#[test]
fn files_of_other_kinds_are_named_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("cache");
    let nothing = Writer::default().end();
    let only_settings = Writer::default().pax(&[("comment", b"x")]).end();
    let exported = Writer::default().file("vm.ovf", b"<xml>").file("vm-disk1.vmdk", b"KDMV").end();
    let contained = Writer::default().file("disk.raw", &[0; 512]).end();
    for (content, name, remedy) in [
        (with(0, b"QFI\xfb\0\0\0\x03"), "a qcow2 disk", "virt-tar-out"),
        (with(0, b"KDMV"), "a VMDK disk", "virt-tar-out"),
        (with(0, b"vhdxfile"), "a VHDX disk", "virt-tar-out"),
        (with(510, b"\x55\xaa"), "partition table (MBR)", "virt-tar-out"),
        (with(512, b"EFI PART"), "partition table (GPT)", "virt-tar-out"),
        (with(0, b"hsqs"), "a squashfs", "unsquashfs"),
        (with(1024, b"\xe2\xe1\xf5\xe0"), "an EROFS", "fsck.erofs"),
        (with(32769, b"CD001"), "an ISO 9660 image", "installation medium"),
        (with(1080, b"\x53\xef"), "ext4", "mount"),
        (b"PK\x03\x04".to_vec(), "a zip archive", "dir:"),
        (b"070701".to_vec(), "a cpio archive", "cpio -idm"),
        (b"\x04\x22\x4d\x18\x64".to_vec(), "compressed with lz4", "decompress"),
        (b"\x7fELF\x02".to_vec(), "a program", "dir:"),
        (Vec::new(), "an empty file", "write it again"),
        (vec![0; 10240], "full of zeros", "write it again"),
        (vec![0; 200 << 10], "full of zeros", "write it again"),
        (b"<!doctype html><title>404".to_vec(), "an HTML page", "download the file again"),
        (b"{\"schemaVersion\": 2}".to_vec(), "a JSON document", "oci:"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n".to_vec(), "Git LFS", "git lfs pull"),
        (b"hello\n".to_vec(), "a text", "dockerfile:"),
        (vec![1; 2000], "of an unknown format", "tar of a root"),
        (only_settings, "without any file", "write it again"),
        (exported, "an archive of a VM", "virt-tar-out"),
        (contained, "an archive of a VM", "virt-tar-out"),
        (nothing, "full of zeros", "write it again"),
    ] {
        for form in Form::ALL {
            let path = directory.path().join("file.bin");
            std::fs::write(&path, sample::compressed(form, &content)).unwrap();
            for (error, hint) in refused(&path, &cache) {
                assert!(error.contains(name) && error.contains("file.bin"), "{form:?} {name}: {error}");
                assert!(hint.contains(remedy), "{form:?} {name}: {hint}");
                assert!(!hint.contains("hostile"), "{hint}");
            }
        }
    }
}

#[test]
fn damaged_archives_are_called_damaged() {
    let directory = tempfile::tempdir().unwrap();
    let tar = Writer::default().file("etc/x", &sample::noise(5000, 3)).file("etc/y", b"2").end();
    for form in Form::ALL {
        let packed = sample::compressed(form, &tar);
        let path = directory.path().join("cut");
        std::fs::write(&path, &packed[..packed.len() / 2]).unwrap();
        let source = Source::RootTar(path);
        let error = loaded(&source, &sample::options(&directory.path().join("cache"))).unwrap_err();
        assert!(error.hint().unwrap().contains("damaged"), "{form:?}: {error}");
    }
}

#[test]
fn packed_archives_of_images_are_images() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    layout(&at("layout"), Form::Gzip);
    need!(run(Command::new("tar").arg("-C").arg(at("layout")).arg("-cf").arg(at("oci.tar")).arg(".")));
    let tar = std::fs::read(at("oci.tar")).unwrap();
    for form in Form::ALL {
        let path = at(&format!("{form:?}"));
        std::fs::write(&path, sample::compressed(form, &tar)).unwrap();
        let options = sample::options(&at(&format!("cache {form:?}")));
        let found = loaded(&Source::parse(path.to_str().unwrap()).unwrap(), &options).unwrap();
        assert_eq!(sample::listed(&found), sample::expected(), "{form:?}");
        assert_eq!(found.settings.process.user, "1:2");
    }
}

#[test]
fn what_is_no_image_is_not_called_hostile() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root.tar");
    std::fs::write(&root, Writer::default().file("etc/x", b"1").end()).unwrap();
    std::fs::create_dir(directory.path().join("root")).unwrap();
    let options = sample::options(&directory.path().join("cache"));
    for (source, missing) in [
        (Source::OciArchive { path: root.clone(), name: None }, "index.json"),
        (Source::DockerArchive { path: root, name: None }, "manifest.json"),
        (Source::OciLayout { path: directory.path().join("root"), name: None }, "index.json"),
    ] {
        let error = loaded(&source, &options).unwrap_err();
        assert!(error.to_string().ends_with(&format!("is no image: it has no {missing}")), "{error}");
        assert!(error.hint().unwrap().contains("tar:FILE"));
    }
    let error = loaded(&Source::RootTree(directory.path().join("root")), &options).unwrap_err();
    assert!(error.to_string().contains("without any file"), "{error}");
}

#[test]
fn mistyped_files_are_not_sought_in_registries() {
    for text in [
        "nosuch.qcow2",
        "./x",
        "/x",
        "~/x",
        "root.tar",
        "root.TAR.GZ",
        "a/b.tar.xz",
        "disk.img",
        "x.iso",
        "Dockerfile",
        "web/Dockerfile",
        "web.dockerfile",
        "-",
        "x.vmdk",
        "x.tgz",
    ] {
        let error = Source::parse(text).unwrap_err();
        assert!(matches!(error, Error::SourceMissing(_)), "{text}: {error}");
    }
    for text in ["https://example.com/x.tar", "docker-daemon:x:1", "containers-storage:x", "file:///x"] {
        let error = Source::parse(text).unwrap_err().to_string();
        assert!(error.contains("is not read: "), "{text}: {error}");
    }
    for text in ["postgres", "postgres:16.tar", "ghcr.io/a/b.c:1", "docker://root.tar", "localhost:5000/x.y"]
    {
        assert!(matches!(Source::parse(text), Ok(Source::Registry(_))), "{text}");
    }
}
