use neonvm_test_support::{need, needs};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use neonvm_types::Bytes;
use neonvm_types::guest::{Mount, Swap};
use proptest::prelude::*;

use super::*;

/// The reading side, in the guest: the sources themselves, because its crate is none of the runner's.
#[expect(unreachable_pub, reason = "it is public where it belongs")]
#[path = "../../../../../vm-builder/guest/src/config/mount_script.rs"]
mod mount_script;
#[expect(unreachable_pub, reason = "it is public where it belongs")]
#[path = "../../../../../vm-builder/guest/src/config/shell_words.rs"]
mod shell_words;

use mount_script::{MountStep, Step};

fn shell(arguments: &[&str], environment: &[(&str, &Path)]) -> Output {
    let mut command = Command::new("/bin/sh");
    command.args(arguments).env_clear().env("PATH", "/usr/bin:/bin").envs(environment.iter().copied());
    command.output().unwrap()
}

/// What a shell makes of a script, which must succeed, at each NUL byte.
fn output_of(script: &str) -> Vec<String> {
    let output = shell(&["-c", script], &[]);
    assert!(output.status.success(), "{script:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_terminator('\0').map(str::to_owned).collect()
}

fn without_nul(text: &str) -> String {
    text.replace('\0', "")
}

/// Text with much in it that means something to a shell.
fn nasty() -> impl Strategy<Value = String> {
    let odd = prop::sample::select(vec![
        "'",
        "\"",
        "$",
        "`",
        "\\",
        " ",
        "\n",
        "\t",
        "*",
        "~",
        "#",
        ";",
        "&",
        "|",
        ">",
        "(",
        ")",
        "$(reboot)",
        "-n",
        "%s",
        "!",
        "{a,b}",
        "é",
        "\r",
        "\0",
        "=",
    ]);
    let part = prop_oneof![3 => odd.prop_map(str::to_owned), 1 => any::<String>(), 2 => "[a-z]{1,5}"];
    prop::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

/// Paths as the validation lets them through, and worse, but absolute, on one line, and not climbing.
fn path() -> impl Strategy<Value = String> {
    nasty().prop_map(|text| {
        let text = text.replace(['\0', '\n', '\r'], "").replace("..", "");
        format!("/{text}")
    })
}

fn label() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z]([a-z0-9-]{0,14}[a-z0-9])?", "[a-z $'\"*]{1,16}"]
}

fn mount() -> impl Strategy<Value = Mount> {
    let kind = prop_oneof![
        Just(MountKind::Directory),
        label().prop_map(|label| MountKind::Files { label }),
        (label(), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
            |(label, discard, quota, persistent)| MountKind::Disk { label, discard, quota, persistent }
        ),
        (1_u64..1 << 40).prop_map(|size| MountKind::Tmpfs { size: Bytes::new(size) }),
    ];
    (path(), kind, any::<bool>()).prop_map(|(path, kind, read_only)| Mount { path, kind, read_only })
}

fn config() -> impl Strategy<Value = RuntimeConfig> {
    let sizes = prop::option::of(0_u64..1 << 40);
    (prop::collection::vec(mount(), 0..6), sizes.clone(), sizes).prop_map(|(mounts, swap, shared)| {
        RuntimeConfig {
            mounts,
            swap: swap.map(|size| Swap {
                label: SWAP_LABEL.into(),
                size: Bytes::new(size),
                skip_swapon: false,
            }),
            shared_memory: shared.map(Bytes::new),
            ..RuntimeConfig::default()
        }
    })
}

/// What a guest is to do, computed a second time.
fn wanted(config: &RuntimeConfig, keys: bool) -> Vec<Step> {
    let files = |label: &str, path: &str| {
        let (label, target, kind) = (Some(label.to_owned()), path.to_owned(), Some("iso9660".to_owned()));
        Step::Mount(MountStep { label, target, kind, read_only: true, options: "mode=0644".into() })
    };
    let mut steps = Vec::new();
    if keys {
        steps.extend([Step::MakeDirectory(SSH_PATH.into()), files(SSH_LABEL, SSH_PATH)]);
    }
    steps.extend(config.swap.as_ref().map(|swap| Step::Swap(swap.size.get())));
    for Mount { path, kind, read_only } in &config.mounts {
        let (target, read_only) = (path.clone(), *read_only);
        let open = Step::Mode(target.clone(), 0o777);
        steps.push(Step::MakeDirectory(target.clone()));
        match kind {
            MountKind::Directory => {}
            MountKind::Files { label } => steps.push(files(label, path)),
            MountKind::Disk { label, discard, quota, persistent } => {
                steps.extend(quota.then(|| Step::ProjectQuota(label.clone())));
                let options = if *discard { "discard" } else { "" }.to_owned();
                steps.push(Step::Mount(MountStep {
                    label: Some(label.clone()),
                    target,
                    kind: None,
                    read_only,
                    options,
                }));
                steps.extend((!read_only && !persistent).then_some(open));
            }
            MountKind::Tmpfs { size } => {
                let (kind, options) = (Some("tmpfs".into()), format!("size={}", size.get()));
                steps
                    .extend([open, Step::Mount(MountStep { label: None, target, kind, read_only, options })]);
            }
        }
    }
    steps.extend(config.shared_memory.map(|size| Step::SharedMemory(size.get())));
    steps
}

/// A program that any user may run. A shell writes it: programs that this process starts meanwhile would inherit the open
/// file, and a file that is open for writing cannot be executed.
fn put_program(path: &Path, text: &str) {
    let script = "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\"";
    let output = shell(&["-c", script, path.to_str().unwrap(), text], &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A directory of programs that only write down how they were called. Those with the word in `$FAIL` among their
/// arguments fail; `blkid` finds every device as `/dev/found`.
struct Stubs(tempfile::TempDir);

impl Stubs {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let stub = "#!/bin/sh\nn=${0##*/}\nprintf '%s\\0' \"$n\" \"$@\" >> \"$LOG\"; printf '\\n' >> \"$LOG\"\n\
                    [ \"$n\" != blkid ] || echo /dev/found\ncase \"$*\" in *broken*) exit 1 ;; esac\n";
        for name in ["blkid", "mkdir", "mount", "chmod", "tune2fs", "sh", "swapoff", "mkswap", "swapon"] {
            put_program(&directory.path().join(name), stub);
        }
        Self(directory)
    }

    fn prefix(&self) -> String {
        format!("{}/", self.0.path().display())
    }

    /// Runs a script; its exit code, and the calls in order but for those of `blkid`.
    fn run(&self, script: &str, arguments: &[&str]) -> (i32, Vec<Vec<String>>) {
        let (file, log) = (self.0.path().join("script"), self.0.path().join("log"));
        std::fs::write(&file, script).unwrap();
        let _ = std::fs::remove_file(&log);
        let all: Vec<&str> = [file.to_str().unwrap()].into_iter().chain(arguments.iter().copied()).collect();
        let search = PathBuf::from(format!("{}:/usr/bin:/bin", self.0.path().display()));
        let output = shell(&all, &[("LOG", &log), ("PATH", &search)]);
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let calls = text.split_terminator("\0\n").map(|call| call.split('\0').map(str::to_owned).collect());
        let calls = calls.filter(|call: &Vec<String>| call[0] != "blkid").collect();
        (output.status.code().unwrap(), calls)
    }
}

fn owned(calls: &[&[&str]]) -> Vec<Vec<String>> {
    calls.iter().map(|call| call.iter().map(|&word| word.to_owned()).collect()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_shell_gets_every_word_as_it_is(words in prop::collection::vec(nasty(), 1..6)) {
        let expected: Vec<String> = words.iter().map(|word| without_nul(word)).collect();
        prop_assert_eq!(output_of(&format!("printf '%s\\0' {}", command(&words))), expected.clone());
        prop_assert_eq!(shell_words::words(&command(&words)).unwrap(), expected);
    }

    #[test]
    fn a_shell_gets_every_variable_as_it_is(
        all in prop::collection::vec(("[A-Za-z_][A-Za-z0-9_]{0,6}|[^=\0]{0,5}", nasty()), 0..6),
    ) {
        // A shell keeps a few variables for itself.
        let all: Vec<(String, String)> = all.into_iter().map(|(name, value)| (format!("V{name}"), value)).collect();
        let lines: Vec<String> = all.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let script = format!("{}exec env -0", environment(&lines));
        let seen: BTreeMap<String, String> = output_of(&script)
            .iter()
            .filter(|line| line.starts_with('V'))
            .map(|line| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())).unwrap())
            .collect();
        let known = all.iter().filter(|(name, _)| is_name(name));
        let expected: BTreeMap<String, String> =
            known.clone().map(|(name, value)| (name.clone(), without_nul(value))).collect();
        prop_assert_eq!(seen, expected);
        // The guest reads by lines, and takes a line that ends as those of other systems do for its own kind.
        if !lines.iter().any(|line| line.contains('\r')) {
            let expected: Vec<String> =
                known.map(|(name, value)| format!("{name}={}", without_nul(value))).collect();
            prop_assert_eq!(shell_words::exports(&environment(&lines)).unwrap(), expected);
        }
    }

    #[test]
    fn the_guest_reads_every_step(config in config(), keys in any::<bool>()) {
        let text = mounts(&config, keys, PROGRAMS, RUNTIME);
        let steps: Vec<Step> = mount_script::parse(&text).collect::<Result<_, _>>().map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        prop_assert_eq!(steps, wanted(&config, keys));
        prop_assert!(shell(&["-n", "-c", &text], &[]).status.success(), "{}", text);
    }
}

#[test]
fn names_that_are_none_do_not_stop_the_rest() {
    let lines: Vec<String> = ["a-b=1", "=2", "3=4", "none", "x.y=5", "GOOD=a b"].map(Into::into).into();
    assert_eq!(environment(&lines), "export GOOD='a b'\n");
}

#[test]
fn only_what_is_set_is_written() {
    let names = |config: &RuntimeConfig| -> Vec<String> {
        files(config, true).into_iter().map(|file| file.path).collect()
    };
    assert_eq!(names(&RuntimeConfig::default()), ["sysctl.conf", "mounts.sh"]);
    let all = RuntimeConfig {
        command: Some(vec!["a b".into()]),
        args: Some(vec![]),
        env: vec!["A=1".into()],
        sysctl: vec!["vm.x=1".into(), "vm.y=2".into()],
        swap: Some(Swap { label: SWAP_LABEL.into(), size: Bytes::gib(1), skip_swapon: false }),
        ..RuntimeConfig::default()
    };
    assert_eq!(
        names(&all),
        ["sysctl.conf", "command.sh", "args.sh", "env.sh", "mounts.sh", "resize-swap-internal.sh"]
    );
    let written = files(&all, true);
    assert_eq!(written[0].content, b"vm.x=1\nvm.y=2\n");
    assert_eq!(written[1].content, b"'a b'", "without an end of the line");
    assert_eq!(written[2].content, b"");
}

/// A disk with special characters in every text, one that cannot be mounted, and what comes after it.
#[test]
fn a_step_that_fails_does_not_stop_the_rest() {
    let disk =
        |label: &str| MountKind::Disk { label: label.into(), discard: true, quota: true, persistent: false };
    let mount = |path: &str, kind, read_only| Mount { path: path.into(), kind, read_only };
    let config = RuntimeConfig {
        swap: Some(Swap { label: SWAP_LABEL.into(), size: Bytes::mib(1), skip_swapon: false }),
        shared_memory: Some(Bytes::mib(2)),
        mounts: vec![
            mount("/it's $HOME; `x`", disk("data"), false),
            mount("/broken", disk("other"), false),
            mount("/conf", MountKind::Files { label: "conf".into() }, true),
            mount("/live", MountKind::Directory, false),
            mount("/tmp", MountKind::Tmpfs { size: Bytes::new(4096) }, true),
        ],
        ..RuntimeConfig::default()
    };
    let stubs = Stubs::new();
    let (_, calls) = stubs.run(&mounts(&config, true, &stubs.prefix(), RUNTIME), &[]);
    let found = "/dev/found";
    let quotas: [&[&str]; 2] =
        [&["tune2fs", "-Q", "prjquota", found], &["tune2fs", "-E", "mount_opts=prjquota", found]];
    let odd = "/it's $HOME; `x`";
    let expected: [&[&str]; 20] = [
        &["mkdir", "-p", "/mnt/ssh"],
        &["mount", "-t", "iso9660", "-o", "ro,mode=0644", found, "/mnt/ssh"],
        &["sh", "/neonvm/runtime/resize-swap-internal.sh", "1048576"],
        &["mkdir", "-p", odd],
        quotas[0],
        quotas[1],
        &["mount", "-o", "discard", found, odd],
        &["chmod", "0777", odd],
        &["mkdir", "-p", "/broken"],
        quotas[0],
        quotas[1],
        &["mount", "-o", "discard", found, "/broken"],
        &["chmod", "0777", "/broken"],
        &["mkdir", "-p", "/conf"],
        &["mount", "-t", "iso9660", "-o", "ro,mode=0644", found, "/conf"],
        &["mkdir", "-p", "/live"],
        &["mkdir", "-p", "/tmp"],
        &["chmod", "0777", "/tmp"],
        &["mount", "-t", "tmpfs", "-o", "ro,size=4096", "tmpfs", "/tmp"],
        &["mount", "-o", "remount,size=2097152", "/dev/shm"],
    ];
    assert_eq!(calls, owned(&expected));
}

#[test]
fn swap_is_made_again_in_the_requested_size() {
    let stubs = Stubs::new();
    let script = resize_swap(&stubs.prefix());
    assert!(shell(&["-n", "-c", &script], &[]).status.success());
    let off: &[&str] = &["swapoff", "/dev/found"];
    let made: &[&[&str]] =
        &[off, &["mkswap", "-L", "swapdisk", "/dev/found", "1024"], &["swapon", "-d", "/dev/found"]];
    assert_eq!(stubs.run(&script, &["1048576"]), (0, owned(made)));
    assert_eq!(stubs.run(&script, &["0"]), (0, owned(&[off])));
    for bad in [&[][..], &["1G"], &[""], &["-1"], &["$(reboot)"]] {
        assert_eq!(stubs.run(&script, bad), (2, Vec::new()), "{bad:?}");
    }
    // Not in use yet is no reason to stop.
    put_program(&stubs.0.path().join("swapoff"), "#!/bin/sh\nexit 1\n");
    assert_eq!(stubs.run(&script, &["1048576"]), (0, owned(&made[1..])));
}

/// Names of the files in the first directory of a volume as plain ISO 9660 has them (ECMA-119 §8.4, §9.1), without the
/// version, as kernels show them.
fn plain_names(image: &[u8]) -> Vec<String> {
    let number =
        |at: usize| usize::try_from(u32::from_le_bytes(image[at..at + 4].try_into().unwrap())).unwrap();
    let root = 16 * 2048 + 156;
    let (mut at, end) = (number(root + 2) * 2048, number(root + 2) * 2048 + number(root + 10));
    let mut names = Vec::new();
    while at < end {
        let length = usize::from(image[at]);
        if length == 0 {
            at = (at / 2048 + 1) * 2048;
            continue;
        }
        let name = &image[at + 33..at + 33 + usize::from(image[at + 32])];
        if name.len() > 1 {
            names.push(String::from_utf8(name.to_vec()).unwrap().trim_end_matches(";1").to_owned());
        }
        at += length;
    }
    names
}

#[test]
fn plain_names_of_the_volume_are_those_that_guests_know() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runtime.iso");
    let config = RuntimeConfig {
        command: Some(vec!["c".into()]),
        args: Some(vec!["a".into()]),
        env: vec!["A=1".into()],
        swap: Some(Swap { label: SWAP_LABEL.into(), size: Bytes::gib(1), skip_swapon: false }),
        ..RuntimeConfig::default()
    };
    let all = super::super::runtime_files(&config, true, Some(vec![1]));
    neonvm_hypervisor::disks::volume(&path, super::super::RUNTIME_LABEL, &all).unwrap();
    let names = plain_names(&std::fs::read(&path).unwrap());
    let mut expected: Vec<&str> = all.iter().map(|file| file.path.as_str()).collect();
    expected.sort_unstable();
    assert_eq!(names, expected, "all of them are plain already");
}

/// Older guests turn quotas on in a file system that was made with them.
#[tokio::test]
async fn quotas_may_be_turned_on_twice() {
    need!(needs::programs(&["mkfs.ext4", "tune2fs", "e2fsck"]));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let disk = neonvm_hypervisor::disks::EmptyDisk { size: Bytes::mib(64), label: "data", quotas: true };
    neonvm_hypervisor::disks::empty(&path, disk).await.unwrap();
    for arguments in
        [["tune2fs", "-Q", "prjquota"], ["tune2fs", "-E", "mount_opts=prjquota"], ["e2fsck", "-f", "-n"]]
    {
        // Without its second flag for e2fsck; empty words are none.
        let [program, rest @ ..] = arguments;
        let program = needs::find_program(program).unwrap();
        let output = Command::new(program).args(rest).arg(&path).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stdout));
    }
}
