use neonvm_test_support::{need, needs};

use super::*;

const USER: u32 = 2_000_000_123;

/// The output of a shell in the root of a pod with some files.
fn sh(script: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    for name in ["exec", "etc", "pod/vm", "pod/mnt", "volumes/keys/..data", "volumes/images", "volumes/run"] {
        fs::create_dir_all(path(name)).unwrap();
    }
    fs::write(path("volumes/keys/..data/id_ed25519"), "key\n").unwrap();
    symlink("..data/id_ed25519", path("volumes/keys/id_ed25519")).unwrap();
    fs::set_permissions(path("volumes/keys"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(path("volumes/images"), fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(path("volumes/images/disk"), "disk\n").unwrap();
    symlink(path("volumes/keys"), path("pod/mnt/ssh")).unwrap();
    symlink(path("volumes/images"), path("pod/vm/images")).unwrap();
    // The sockets of the runner.
    symlink(path("volumes/run"), path("pod/vm/run")).unwrap();
    fs::write(path("pod/ready"), "yes\n").unwrap();
    fs::write(path("etc/hosts"), "10.0.0.1 pod\n").unwrap();
    fs::write(path("secret"), "of the host\n").unwrap();
    let root = Root { base: path("exec"), pod: path("pod"), etc: path("etc"), user: USER };
    let script = script.replace("HOST", directory.path().to_str().unwrap());
    let inside = move || {
        root.enter().unwrap();
        let mut keeper = root.keeper().spawn().unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &script]).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        sys::place(
            &mut command,
            ProcessPlacement { directory: c"/".to_owned(), user: Some(USER), ..ProcessPlacement::default() },
        );
        let output = command.output().unwrap();
        drop(keeper.stdin.take());
        keeper.wait().unwrap();
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr)
    };
    let text = std::thread::spawn(inside).join().unwrap();
    // Nothing of it was seen outside.
    assert_eq!(fs::read_dir(path("exec")).unwrap().count(), 0);
    text
}

#[test]
fn a_command_is_an_unprivileged_user() {
    need!(needs::network_namespaces());
    let text = sh("id -u; id -G; id -un; grep -E '^(Cap|NoNew)' /proc/self/status; echo err > /dev/stderr");
    let lines: Vec<String> =
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let none = "0000000000000000";
    let caps = ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"].map(|set| format!("{set} {none}"));
    let user = USER.to_string();
    let expected: Vec<&str> = [user.as_str(), &user, "neonvm"]
        .into_iter()
        .chain(caps.iter().map(String::as_str))
        .chain(["NoNewPrivs: 1", "err"])
        .collect();
    assert_eq!(lines, expected, "{text}");
}

#[test]
fn a_command_sees_the_pod_and_nothing_of_the_host() {
    need!(needs::network_namespaces());
    let text = sh(
        "cat /ready /vm/images/disk /etc/hosts /mnt/ssh/id_ed25519; ls /; ls -A /vm; stat -c '%a %u' /mnt/ssh/id_ed25519; pwd",
    );
    assert!(text.starts_with("yes\ndisk\n10.0.0.1 pod\nkey\n"), "{text}");
    let rest = text.strip_prefix("yes\ndisk\n10.0.0.1 pod\nkey\n").unwrap();
    let (names, rest) = rest.split_once("vm\n").unwrap();
    let known = SYSTEM.iter().chain(&["dev", "etc", "mnt", "proc", "ready", "tmp"]);
    let known: Vec<&&str> = known.collect();
    assert!(names.lines().all(|name| known.iter().any(|known| **known == name)), "{names}");
    assert_eq!(rest, format!("images\n400 {USER}\n/\n"));
    for path in
        ["HOST/secret", "/proc/1/root/HOST/secret", "/proc/self/root/HOST/secret", "../../../HOST/secret"]
    {
        let text = sh(&format!("cat {path}"));
        let refused = ["No such file or directory", "Permission denied"].iter().any(|why| text.contains(why));
        assert!(refused && !text.contains("of the host"), "{path}: {text}");
    }
    for path in ["/root", "/home", "/var", "/run", "/sys", "/boot", "/etc/shadow", "/etc/ssl/private"] {
        assert!(sh(&format!("ls {path}")).contains("No such file or directory"), "{path}");
    }
}

/// What leads out of a root that was only changed.
#[test]
fn there_is_no_way_out() {
    need!(needs::network_namespaces());
    let text = sh("ls -d /proc/[0-9]*; cat /proc/1/comm; cat /proc/self/mountinfo");
    assert!(text.contains("\ncat\n"), "{text}");
    assert!(text.lines().filter(|line| line.starts_with("/proc/")).count() <= 5, "only its own: {text}");
    let mounts: Vec<&str> = text.lines().filter(|line| line.contains(" - ")).collect();
    for mount in &mounts {
        let words: Vec<&str> = mount.split(' ').collect();
        let (at, options) = (words[4], words[5]);
        let written = at == "/tmp" || at == "/proc" || at.starts_with("/dev/");
        assert!(written || options.starts_with("ro,"), "{mount}");
        assert!(options.contains("nosuid"), "{mount}");
    }
    for attempt in [
        "touch /x",
        "touch /vm/images/x",
        "rm /vm/images/disk",
        "touch /usr/x",
        "mknod /tmp/sda b 8 0",
        "chroot / true",
        "mount -t tmpfs none /tmp",
        "mount -o remount,rw /",
        "umount /vm/images",
        "echo 1 > /proc/sys/kernel/panic",
        "nsenter -t 1 -m true",
    ] {
        let text = sh(&format!("{{ {attempt}; }} 2>/dev/null && echo done || echo refused"));
        assert_eq!(text.lines().last(), Some("refused"), "{attempt}: {text}");
    }
    assert_eq!(sh("echo more > /tmp/x && cat /tmp/x"), "more\n");
    // Signals are as ever, and nothing is left behind.
    assert_eq!(sh("echo before; kill -TERM $$; echo after"), "before\n");
    assert_eq!(sh("sleep 1000 >/dev/null 2>&1 & echo $$"), "2\n");
}
