use std::os::unix::fs::PermissionsExt as _;

use neonvm_test_support::{need, needs};

use super::*;

const USER: u32 = 2_000_000_123;

/// A pod with some files.
struct Pod {
    directory: tempfile::TempDir,
}

impl Pod {
    fn new() -> Self {
        let pod = Self { directory: tempfile::tempdir().unwrap() };
        for name in ["exec", "etc", "volumes/keys/..data", "volumes/images", "volumes/run", "volumes/base"] {
            fs::create_dir_all(pod.path(name)).unwrap();
        }
        fs::write(pod.path("volumes/keys/..data/id_ed25519"), "key\n").unwrap();
        symlink("..data/id_ed25519", pod.path("volumes/keys/id_ed25519")).unwrap();
        fs::set_permissions(pod.path("volumes/keys"), fs::Permissions::from_mode(0o700)).unwrap();
        for name in ["images", "run"] {
            let path = pod.path("volumes").join(name);
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        }
        fs::write(pod.path("volumes/images/disk"), "disk\n").unwrap();
        fs::write(pod.path("volumes/base/base"), "base\n").unwrap();
        fs::write(pod.path("etc/hosts"), "10.0.0.1 pod\n").unwrap();
        fs::write(pod.path("secret"), "of the host\n").unwrap();
        pod
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn root(&self, host: Option<Host>) -> Root {
        let mount = |at: &str, name: &str, writable| Mount::of_all(at, self.path(name), writable);
        let mounts = vec![
            mount("/mnt/ssh", "volumes/keys", false),
            mount("/vm/base", "volumes/base", false),
            mount("/vm/images", "volumes/images", true),
            // The sockets of the runner.
            mount("/vm/run", "volumes/run", true),
        ];
        Root { base: self.path("exec"), mounts, etc: self.path("etc"), user: USER, host }
    }

    /// The output of a shell in a command's root.
    fn sh(&self, script: &str) -> String {
        let root = self.root(None);
        let script = script.replace("HOST", self.directory.path().to_str().unwrap());
        let inside = move || {
            root.enter().unwrap();
            let mut keeper = root.keeper().spawn().unwrap();
            let output = shell(&script, false);
            drop(keeper.stdin.take());
            keeper.wait().unwrap();
            output
        };
        self.unseen(inside)
    }

    /// The output of a shell in the runner's place.
    fn runner(&self, script: &str) -> String {
        let machine = crate::MachineFiles { kernel: Some(self.path("kernel/vmlinuz")), ..Default::default() };
        fs::create_dir_all(self.path("spare")).unwrap();
        let service = self.path("service");
        let mut host = Host::new(Path::new("/bin/true"), &machine, &service, &self.path("spare")).unwrap();
        host.add(self.path("volumes/run"), LOG, true);
        let root = self.root(Some(host));
        let script = script.replace("HOST", self.directory.path().to_str().unwrap());
        let inside = move || {
            root.enter().unwrap();
            shell(&script, true)
        };
        self.unseen(inside)
    }

    /// On a thread that ends; nothing of the root is seen outside.
    fn unseen(&self, inside: impl FnOnce() -> String + Send + 'static) -> String {
        let text = std::thread::spawn(inside).join().unwrap();
        assert_eq!(fs::read_dir(self.path("exec")).unwrap().count(), 0);
        text
    }
}

fn shell(script: &str, is_first: bool) -> String {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let user =
        User { id: USER, groups: if is_first { vec![USER + 1] } else { vec![] }, most_processes: None };
    let place = ProcessPlacement {
        directory: c"/".to_owned(),
        user: Some(user),
        is_first,
        ..ProcessPlacement::default()
    };
    sys::place(&mut command, place);
    let output = command.output().unwrap();
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr)
}

/// The output of a shell in the root of a pod with some files.
fn sh(script: &str) -> String {
    Pod::new().sh(script)
}

/// The sets of capabilities of a process without any.
fn no_capabilities() -> Vec<String> {
    let none = "0000000000000000";
    ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"].map(|set| format!("{set} {none}")).to_vec()
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn a_command_is_an_unprivileged_user() {
    need!(needs::network_namespaces());
    let text = sh("id -u; id -G; id -un; grep -E '^(Cap|NoNew)' /proc/self/status; echo err > /dev/stderr");
    let mut expected = vec![USER.to_string(), USER.to_string(), "neonvm".to_owned()];
    expected.extend(no_capabilities());
    expected.extend(["NoNewPrivs: 1".to_owned(), "err".to_owned()]);
    assert_eq!(lines(&text), expected, "{text}");
}

#[test]
fn a_command_sees_the_pod_and_nothing_of_the_host() {
    need!(needs::network_namespaces());
    let text = sh(
        "cat /vm/images/disk /etc/hosts /mnt/ssh/id_ed25519; ls /; ls -A /vm; stat -c '%a %u' /mnt/ssh/id_ed25519; pwd",
    );
    assert!(text.starts_with("disk\n10.0.0.1 pod\nkey\n"), "{text}");
    let rest = text.strip_prefix("disk\n10.0.0.1 pod\nkey\n").unwrap();
    let (names, rest) = rest.split_once("vm\n").unwrap();
    let known = SYSTEM.iter().chain(&["dev", "etc", "mnt", "proc", "tmp"]);
    let known: Vec<&&str> = known.collect();
    assert!(names.lines().all(|name| known.iter().any(|known| **known == name)), "{names}");
    assert_eq!(rest, format!("base\nimages\n400 {USER}\n/\n"));
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

#[test]
fn a_runner_is_an_unprivileged_user_that_writes_to_its_own_volumes() {
    need!(needs::network_namespaces());
    let pod = Pod::new();
    fs::create_dir_all(pod.path("kernel")).unwrap();
    // As some distributions have kernels: every user needs to read it.
    fs::write(pod.path("kernel/vmlinuz"), "kernel\n").unwrap();
    fs::set_permissions(pod.path("kernel/vmlinuz"), fs::Permissions::from_mode(0o600)).unwrap();
    let text = pod.runner("id -u; id -G; echo $$; grep -E '^(Cap|NoNew)' /proc/self/status");
    let mut expected = vec![USER.to_string(), format!("{USER} {}", USER + 1), "1".to_owned()];
    expected.extend(no_capabilities());
    expected.push("NoNewPrivs: 1".to_owned());
    assert_eq!(lines(&text), expected, "{text}");
    let text = pod.runner("cat /run/neonvm/vmlinuz && /run/neonvm/neonvm-runner && echo new > /vm/images/new && cat /vm/images/new && ls /proc");
    assert!(text.starts_with("kernel\nnew\n1\n"), "{text}");
    assert_eq!(fs::read_to_string(pod.path("volumes/images/new")).unwrap(), "new\n");
    for attempt in [
        "touch /x",
        "touch /vm/base/x",
        "rm /vm/base/base",
        "touch /usr/x",
        "touch /run/neonvm/x",
        "cat HOST/secret",
        "cat /proc/1/root/HOST/secret",
        "mknod /tmp/sda b 8 0",
        "mount -t tmpfs none /tmp",
        "umount /vm/images",
        "unshare --user true",
        "ls /root",
    ] {
        let text = pod.runner(&format!("{{ {attempt}; }} 2>/dev/null && echo done || echo refused"));
        assert_eq!(text.lines().last(), Some("refused"), "{attempt}: {text}");
    }
    if Path::new("/dev/kvm").exists() {
        let text = pod.runner("stat -c '%a %u' /dev/kvm");
        assert_eq!(text, format!("600 {USER}\n"));
    }
}
