//! `xtask bare`: proves that `make test` and `make demo` install what they need. A minimal Debian is made in
//! `<target>/bare`; the repository is cloned into it; both commands run there with mounts and process numbers of its own, with
//! Rust as the only thing of this computer, and with `CI=true`, so that nothing that the Makefile installs may be skipped.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use crate::package::target;
use crate::process::{self, installed, is_root};

/// The releases of Debian that it can be.
const RELEASES: [&str; 2] = ["bookworm", "trixie"];
/// Packages besides Debian's minimal set: `make` starts everything, certificates are needed to reach registries.
const PACKAGES: &str = "--include=make,ca-certificates";
/// Where the clone is in the system.
const SOURCE: &str = "src/neonvm";
/// Longest time for one of the commands.
const LIMIT: Duration = Duration::from_secs(90 * 60);
/// Files and directories of this computer without which its system could not reach package registries, if they exist.
const SHARED: [&str; 4] =
    ["/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs", "/usr/local/share/ca-certificates"];
/// Variables with certificates and proxies, for the same reason.
const VARIABLES: [&str; 8] = [
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
];
/// Enters the system in `$1` with the toolchain in `$2` and runs `$3` there: mounts and processes end with it.
const ENTER: &str = r#"set -eu
system=$1 rust=$2 command=$3
mount --make-rprivate /
# A mount of its own becomes the root of the namespace. After a mere chroot, a process that enters a mount namespace that was made
# there (`exec` into a pod) finds this computer's root.
mount --bind "$system" "$system"
mount -t proc proc "$system/proc"
mount --rbind /sys "$system/sys"
mount --rbind /dev "$system/dev"
mount -t tmpfs tmpfs "$system/run"
mkdir -p "$system/opt/rust" "$system/home/test" "$system/run/lock"
mount --bind "$rust" "$system/opt/rust"
shift 3
for shared; do
    [ -e "$shared" ] || continue
    if [ -d "$shared" ]; then mkdir -p "$system$shared"; else mkdir -p "$(dirname "$system$shared")"; : >> "$system$shared"; fi
    mount --bind "$shared" "$system$shared"
done
cd "$system"
pivot_root . mnt
umount -l /mnt
cd /src/neonvm
# The shell stays as process 1, because it reaps orphans, which not every command does.
/bin/sh -c "$command"
exit $?
"#;

/// Makes a system of each release, or of that which `--suite` names, and runs both commands; true if all succeeded. With `--keep` the
/// system stays for a look.
pub(crate) fn run(root: &Path, arguments: &[String]) -> anyhow::Result<bool> {
    let (mut keep, mut chosen) = (false, RELEASES.to_vec());
    let mut rest = arguments.iter().map(String::as_str);
    while let Some(argument) = rest.next() {
        match argument {
            "--keep" => keep = true,
            "--suite" => {
                let suite = rest.next().unwrap_or_default();
                chosen.retain(|release| *release == suite);
                ensure!(!chosen.is_empty(), "--suite must be bookworm or trixie, not {suite:?}");
            }
            other => bail!("{other:?} is not --suite SUITE or --keep"),
        }
    }
    ensure!(is_root(), "a Debian system can be made and entered by root only");
    for (program, package) in
        [("debootstrap", "debootstrap"), ("unshare", "util-linux"), ("setpriv", "util-linux"), ("git", "git")]
    {
        ensure!(installed(program), "{program} is missing: apt-get install {package}");
    }
    let mut all_good = true;
    for release in chosen {
        all_good &= on(root, release, keep)?;
    }
    Ok(all_good)
}

fn on(root: &Path, release: &str, keep: bool) -> anyhow::Result<bool> {
    let system = System::make(root, release, keep)?;
    let tested = system.run("make test")?;
    let demonstrated = system.run("make demo")?;
    println!("\nbare: Debian {release}: make test: {}; make demo: {}", word(tested.0), word(demonstrated.0));
    if let Some(line) = tested.1 {
        println!("{line}");
    }
    Ok(tested.0 && demonstrated.0)
}

fn word(good: bool) -> &'static str {
    if good { "good" } else { "FAILED" }
}

/// The minimal system; removed when dropped, unless it is kept.
struct System {
    path: PathBuf,
    toolchain: PathBuf,
    keep: bool,
}

impl Drop for System {
    fn drop(&mut self) {
        if self.keep {
            println!("bare: kept in {}", self.path.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

impl System {
    fn make(root: &Path, release: &str, keep: bool) -> anyhow::Result<Self> {
        let path = target(root)?.join("bare");
        if path.exists() {
            std::fs::remove_dir_all(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
        std::fs::create_dir_all(&path)?;
        let system = Self { path, toolchain: toolchain(root)?, keep };
        println!("bare: a minimal Debian {release} in {}", system.path.display());
        process::debootstrap(&system.path, release, PACKAGES)?;
        let clone = system.path.join(SOURCE);
        let cloned = Command::new("git")
            .args(["clone", "--quiet", "--no-hardlinks"])
            .arg(root)
            .arg(&clone)
            .status()?;
        ensure!(cloned.success(), "the repository cannot be cloned");
        Ok(system)
    }

    /// Runs a command in the clone; whether it succeeded, and its closing line.
    fn run(&self, command: &str) -> anyhow::Result<(bool, Option<String>)> {
        println!("\nbare: {command}");
        let started = Instant::now();
        let (system, rust) = (self.path.to_string_lossy(), self.toolchain.to_string_lossy());
        // All of it ends with this program, also when that is killed.
        let enter = [
            &["setpriv", "--pdeathsig", "KILL"][..],
            &["unshare", "--mount", "--pid", "--fork", "--kill-child", "env", "-i"],
        ]
        .concat();
        let mut variables = vec![
            "HOME=/home/test".to_owned(),
            "PATH=/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
            "CI=true".to_owned(),
            "CARGO_INCREMENTAL=0".to_owned(),
            "DEBIAN_FRONTEND=noninteractive".to_owned(),
        ];
        let of_this =
            VARIABLES.iter().filter_map(|name| Some(format!("{name}={}", std::env::var(name).ok()?)));
        variables.extend(of_this);
        let mut words: Vec<&str> = enter;
        words.extend(variables.iter().map(String::as_str));
        words.extend(["sh", "-c", ENTER, "sh", &system, &rust, command]);
        words.extend(SHARED);
        let ended = process::run(&self.path, &self.path, &words, &[], LIMIT)?;
        println!("bare: {command}: {} in {:.0} s", word(ended.good), started.elapsed().as_secs_f64());
        Ok((ended.good, ended.lines.into_iter().rev().find(|line| line.contains(" passed, "))))
    }
}

/// The directory of the Rust toolchain in use.
fn toolchain(root: &Path) -> anyhow::Result<PathBuf> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).current_dir(root).output();
    let output = output.context("cannot run rustc")?;
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    ensure!(path.join("bin/cargo").is_file(), "no Rust toolchain in {}", path.display());
    Ok(path)
}
