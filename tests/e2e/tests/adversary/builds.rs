//! Sources that expand to a full disk, outputs that are no plain files, and builds that are killed.

use std::os::unix::fs::{FileTypeExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use neonvm_test_support::eventually_blocking;

use crate::home::Home;

/// A root directory with a tar of zeros beside it, which expands to so many MiB.
fn home(mebibytes: u32) -> Home {
    neonvm_e2e::guest().unwrap();
    let home = Home::new();
    std::fs::create_dir_all(home.path().join("root/bin")).unwrap();
    let script = format!(
        "cd {} && truncate -s {mebibytes}M zeros && tar --format=gnu -c zeros | gzip -1 > bomb.tar.gz && rm zeros && mkfifo pipe",
        home.path().display()
    );
    assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
    home
}

/// Files below a directory.
fn files(directory: &Path) -> Vec<String> {
    let found = Command::new("find").arg(directory).args(["-type", "f"]).output().unwrap();
    String::from_utf8(found.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn a_bomb_is_refused_by_each_limit_and_leaves_nothing() {
    let home = home(1200);
    for (limit, why) in [
        ("--max-bytes 64Mi", "exceeds the limit of 67108864 bytes"),
        ("--max-ratio 2", "expansion exceeds the limit of 2 times its compressed size"),
        ("--min-free 1000Ti", "would be left free in"),
        ("--max-entries 0", "number of entries exceeds the limit of 0"),
    ] {
        // The last limit is met when the layer is there.
        let rest = if limit.contains("entries") { "--max-ratio 100000" } else { "" };
        let refused = home.bad(&format!("vm build --from tar:bomb.tar.gz -O disk.qcow2 {limit} {rest}"), 1);
        let flag = limit.split(' ').next().unwrap();
        assert!(refused.contains(why) && refused.contains(flag), "{limit}: {refused}");
        assert!(!home.path().join("disk.qcow2").exists());
        let left = files(&home.path().join(".cache"));
        assert!(limit.contains("entries") || left.is_empty(), "{limit}: {left:?}");
    }
}

#[test]
fn a_build_that_is_killed_leaves_nothing() {
    let home = home(1000);
    let script =
        "exec \"$0\" vm build --from tar:bomb.tar.gz -O disk.qcow2 --progress plain --max-ratio 100000";
    let mut build = home.shell_command(script).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let files_open = || {
        let all = std::fs::read_dir(format!("/proc/{}/fd", build.id())).into_iter().flatten().flatten();
        all.filter_map(|file| std::fs::read_link(file.path()).ok())
            .any(|to| to.to_string_lossy().contains(".cache"))
    };
    eventually_blocking(|| "a layer that is being unpacked".to_owned(), || files_open().then_some(()));
    build.kill().unwrap();
    build.wait().unwrap();
    assert_eq!(files(&home.path().join(".cache")), Vec::<String>::new());
    assert!(files(home.path()).iter().all(|file| file.ends_with("bomb.tar.gz")), "{:?}", files(home.path()));
}

#[test]
fn an_output_is_written_into_or_refused_and_never_replaced_by_another_kind() {
    let home = home(1);
    let at = |name: &str| home.path().join(name);
    std::fs::write(at("disk"), "old").unwrap();
    symlink("disk", at("link")).unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    let build = "vm build --from dir:root --owner root";
    let reader = std::thread::spawn({
        let pipe = at("pipe");
        move || std::fs::read(pipe).unwrap()
    });
    home.good(&format!("{build} -O pipe -- /bin/none"));
    assert!(reader.join().unwrap().starts_with(b"QFI\xfb"));
    home.good(&format!("{build} -O link --sbom /dev/null -- /bin/none"));
    assert!(std::fs::read(at("disk")).unwrap().starts_with(b"QFI\xfb"));
    let refused = home.bad(&format!("{build} -O dangling -- /bin/none"), 1);
    assert!(refused.contains("link to nowhere, which does not exist"), "{refused}");
    let kind = |name: &str| std::fs::symlink_metadata(at(name)).unwrap().file_type();
    assert!(kind("pipe").is_fifo() && kind("link").is_symlink() && kind("dangling").is_symlink());
    assert!(std::fs::metadata("/dev/null").unwrap().file_type().is_char_device());
}
