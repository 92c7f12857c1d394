//! Against programs: what `tar` packs is what we read, and what `umoci` unpacks is what we apply.

use neonvm_test_support::{need, needs};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use super::*;

/// A small tree with what real ones have.
fn make(root: &Path) {
    let write = |path: &str, bytes: &[u8]| {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    write("etc/passwd", b"root:x:0:0::/root:/bin/sh\n");
    write("usr/bin/tool", &[7; 5000]);
    write(&format!("usr/share/{}/{}", "long".repeat(30), "name".repeat(40)), b"long");
    write("empty", b"");
    std::os::unix::fs::symlink("usr/bin", root.join("bin")).unwrap();
    std::os::unix::fs::symlink("/nowhere", root.join("dangling")).unwrap();
    std::fs::hard_link(root.join("usr/bin/tool"), root.join("usr/bin/other")).unwrap();
    std::fs::set_permissions(root.join("usr/bin/tool"), std::fs::Permissions::from_mode(0o4755)).unwrap();
    let sparse = std::fs::File::create(root.join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"middle", 1 << 20).unwrap();
    sparse.set_len(4 << 20).unwrap();
}

fn pack(root: &Path, options: &[&str]) -> Option<Vec<u8>> {
    let output =
        Command::new("tar").arg("-C").arg(root).args(options).args(["-cf", "-", "."]).output().ok()?;
    output.status.success().then_some(output.stdout)
}

/// Compares a tree with a directory of the host.
fn same(tree: &Tree, layers: &[Vec<u8>], root: &Path) -> usize {
    let mut ahead = vec![(root.to_path_buf(), tree.root())];
    let mut inodes = std::collections::HashMap::new();
    let mut count = 0;
    while let Some((path, id)) = ahead.pop() {
        count += 1;
        let (inode, host) = (tree.get(id).unwrap(), std::fs::symlink_metadata(&path).unwrap());
        let at = path.display();
        assert_eq!(*inodes.entry(host.ino()).or_insert(id), id, "hard links of {at}");
        if !host.is_symlink() {
            assert_eq!(u32::from(inode.metadata.mode), host.mode() & 0o7777, "mode of {at}");
        }
        assert_eq!((inode.metadata.uid, inode.metadata.gid), (host.uid(), host.gid()), "owner of {at}");
        match &inode.kind {
            Kind::Directory(names) => {
                let mut found: Vec<_> = std::fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().file_name().into_encoded_bytes())
                    .collect();
                found.sort();
                assert_eq!(found, names.keys().cloned().collect::<Vec<_>>(), "names in {at}");
                for (name, child) in names {
                    ahead.push((path.join(String::from_utf8(name.clone()).unwrap()), *child));
                }
            }
            Kind::File(_) => {
                assert_eq!(inode.metadata.modified.seconds, host.mtime(), "time of {at}");
                assert!(content(tree, id, layers) == std::fs::read(&path).unwrap(), "content of {at}");
            }
            Kind::Symlink(target) => {
                assert_eq!(target, std::fs::read_link(&path).unwrap().as_os_str().as_encoded_bytes());
            }
            other => panic!("{other:?}"),
        }
    }
    count
}

#[test]
fn archives_of_tar_are_read_in_all_its_formats() {
    need!(needs::program("tar"));
    let directory = tempfile::tempdir().unwrap();
    make(directory.path());
    for options in [
        &["--format=gnu"][..],
        &["--format=posix"],
        &["--format=gnu", "--sparse"],
        &["--format=posix", "--sparse", "--sparse-version=0.0"],
        &["--format=posix", "--sparse", "--sparse-version=0.1"],
        &["--format=posix", "--sparse", "--sparse-version=1.0"],
    ] {
        let bytes = pack(directory.path(), options).unwrap();
        if options.contains(&"--sparse") {
            assert!(bytes.len() < 1 << 20, "{options:?} is not sparse");
        }
        let layers = [bytes];
        let tree = applied(&layers).unwrap_or_else(|error| panic!("{options:?}: {error}"));
        assert_eq!(same(&tree, &layers, directory.path()), 14, "{options:?}");
    }
}
