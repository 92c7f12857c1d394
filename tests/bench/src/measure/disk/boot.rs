//! Kernel start to the workload's first instruction, and what the guest costs when idle. Emulated, so that every
//! machine can measure it.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use super::super::Setup;
use super::{beside, run};
use crate::report::{Row, quantile};

/// Ours divided by the reference.
const BOOT_GOAL: f64 = 1.3;
/// MiB on disk.
const SIZE_GOAL: f64 = 8.0;
/// MiB in memory, of all processes of the guest.
const MEMORY_GOAL: f64 = 4.0;
/// Percent of one processor.
const IDLE_GOAL: f64 = 0.2;
const RUNS: usize = 7;
const LIMIT: Duration = Duration::from_secs(180);

/// Prints the kernel's clock and waits. Static and without a C library's start: its first instruction is its own.
const MARK: &str = r#"
static long call(long n, long a, long b, long c) {
    long r; __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory"); return r;
}
void _start(void) {
    struct { long s, n; } t; char text[] = "MARK 000000 ms\n";
    call(228, 7, (long)&t, 0);
    long ms = t.s * 1000 + t.n / 1000000;
    for (int i = 10; i > 4; i--) { text[i] = '0' + ms % 10; ms /= 10; }
    int fd = call(2, (long)"/dev/console", 1, 0);
    call(1, fd, (long)text, 15);
    for (;;) call(34, 0, 0, 0);
}
"#;

/// Prints the guest's own memory and processor time, waits, and prints them again.
const WATCH: &str = "sleep 20; for turn in 1 2; do for p in /proc/[0-9]*; do \
    case $(readlink $p/exe) in */neonvm-guest) echo GUEST $turn $(awk '/^Pss:/ {print $2}' $p/smaps_rollup) $(cut -d' ' -f14,15 $p/stat) $(tr '\\0' ' ' < $p/cmdline);; esac; done; \
    echo TURN $turn; sleep 60; done; echo DONE; sleep 1000";

/// A VM's console.
fn console(command: &str, until: &str) -> anyhow::Result<Vec<String>> {
    let mut child = Command::new("sh")
        .args(["-c", &format!("exec {command}")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let stdout = child.stdout.take().context("no output")?;
    let deadline = Instant::now() + LIMIT;
    let mut lines = Vec::new();
    for line in BufReader::new(stdout).split(b'\n') {
        lines.push(String::from_utf8_lossy(&line?).trim_end().to_owned());
        if lines.last().is_some_and(|line| line.contains(until)) || Instant::now() > deadline {
            break;
        }
    }
    child.kill()?;
    child.wait()?;
    ensure!(
        lines.last().is_some_and(|line| line.contains(until)),
        "no {until:?} from {command}:\n{}",
        lines.join("\n")
    );
    Ok(lines)
}

struct Home {
    directory: tempfile::TempDir,
    neonctl: std::path::PathBuf,
}

impl Home {
    fn new(setup: &Setup) -> anyhow::Result<Self> {
        Ok(Self { directory: setup.directory()?, neonctl: beside("neonctl")? })
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn neonctl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(&self.neonctl);
        let command =
            command.args(arguments).env("HOME", self.directory.path()).current_dir(self.directory.path());
        run(command.env_remove("XDG_DATA_HOME").env_remove("XDG_CACHE_HOME"))
    }

    /// Two kernels if the tests have built one, otherwise one.
    fn kernels(&self) -> anyhow::Result<Vec<&'static str>> {
        self.neonctl(&["kernel", "fetch", "--kernel-name", "fetched", "--progress", "none"])?;
        let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/kernels/built");
        if !built.join("kernel.json").exists() {
            return Ok(vec!["fetched"]);
        }
        std::os::unix::fs::symlink(built.canonicalize()?, self.path(".local/share/neonvm/kernels/built"))?;
        Ok(vec!["fetched", "built"])
    }

    fn boot_command(&self, disk: &str, kernel: &str) -> anyhow::Result<String> {
        let path = self.path(disk).display().to_string();
        // Ports of this machine are not needed, and may be taken.
        let line = self.neonctl(&[
            "image",
            "inspect",
            &path,
            "--boot-command",
            "--accel",
            "tcg",
            "--kernel",
            kernel,
            "--forward",
            "1:1",
        ])?;
        Ok(line.trim().replace(",hostfwd=tcp:127.0.0.1:1-:1", ""))
    }
}

/// Boots ours and a bare one in turn, with every kernel there is.
pub(crate) fn boot(setup: &Setup) -> anyhow::Result<Vec<Row>> {
    let home = Home::new(setup)?;
    let root = home.path("root");
    std::fs::create_dir_all(root.join("bin"))?;
    let source = home.path("mark.c");
    std::fs::write(&source, MARK)?;
    let mut compile = Command::new("cc");
    compile.args(["-O1", "-static", "-nostdlib", "-ffreestanding", "-fno-stack-protector", "-o"]);
    run(compile.arg(root.join("bin/mark")).arg(&source))?;
    home.neonctl(&[
        "vm",
        "build",
        "--progress",
        "none",
        "--from",
        "./root",
        "-O",
        "mark.qcow2",
        "--",
        "/bin/mark",
    ])?;
    let mut rows = Vec::new();
    for kernel in home.kernels()? {
        let ours = home.boot_command("mark.qcow2", kernel)?;
        let bare = ours.replace("init=/neonvm/bin/init", "init=/bin/mark");
        ensure!(ours != bare, "the boot command names no init");
        let (mut own, mut other, mut ratios) = (vec![], vec![], vec![]);
        for _ in 0..RUNS {
            let (a, b) = (mark(&ours)?, mark(&bare)?);
            own.push(a);
            other.push(b);
            ratios.push(a / b);
        }
        let what = format!("{kernel} kernel: start → workload's first instruction ÷ bare init");
        rows.push(Row::at_most("boot", &what, quantile(&mut ratios, 0.5), "×", BOOT_GOAL).note(format!(
            "median of {RUNS}, in turn; {:.0} ms beside {:.0} ms",
            quantile(&mut own, 0.5),
            quantile(&mut other, 0.5)
        )));
    }
    Ok(rows)
}

/// Milliseconds of the kernel's clock at the mark.
fn mark(command: &str) -> anyhow::Result<f64> {
    let lines = console(command, "MARK ")?;
    let line = lines.last().map_or("", String::as_str);
    let number = line.split("MARK ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
    number.with_context(|| format!("no number in {line:?}"))
}

/// Size, memory and idle processor time of the guest.
pub(crate) fn idle(setup: &Setup) -> anyhow::Result<Vec<Row>> {
    let home = Home::new(setup)?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/busybox/make-root.sh");
    run(Command::new(script).arg(home.path("root")))?;
    home.neonctl(&[
        "vm",
        "build",
        "--progress",
        "none",
        "--from",
        "./root",
        "--owner",
        "root",
        "-O",
        "idle.qcow2",
        "--",
        "/bin/sh",
        "-c",
        WATCH,
    ])?;
    home.neonctl(&["kernel", "fetch", "--kernel-name", "fetched", "--progress", "none"])?;
    let lines = console(&home.boot_command("idle.qcow2", "fetched")?, "TURN 2")?;
    // Memory in KiB, processor time in ticks, and the memory of each process.
    let turn = |wanted: &str| -> (f64, f64, Vec<String>) {
        let mut sum = (0.0, 0.0, Vec::new());
        for line in &lines {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let ["GUEST", turn, memory, user, system, command @ ..] = words.as_slice()
                && *turn == wanted
            {
                let number = |text: &str| text.parse::<f64>().unwrap_or(0.0);
                sum.0 += number(memory);
                sum.1 += number(user) + number(system);
                sum.2.push(format!("{memory} KiB {}", command.join(" ")));
            }
        }
        sum
    };
    let ((_, before, _), (memory, after, parts)) = (turn("1"), turn("2"));
    if memory == 0.0 {
        bail!("the guest is not in:\n{}", lines.join("\n"));
    }
    let guest = beside("neonvm-guest-amd64")?.metadata()?.len() as f64 / 1024.0 / 1024.0;
    // A tick is 10 ms, a minute has 6,000 of them.
    let share = (after - before) / 6000.0 * 100.0;
    Ok(vec![
        Row::at_most("guest", "program on disk", guest, "MiB", SIZE_GOAL),
        Row::at_most("guest", "memory of all its processes, idle", memory / 1024.0, "MiB", MEMORY_GOAL)
            .note(format!("proportional share (PSS): {}", parts.join(", "))),
        Row::at_most("guest", "processor, idle for a minute, emulated", share, "%", IDLE_GOAL),
    ])
}
