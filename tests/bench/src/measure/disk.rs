//! Disks: a whole build from cached layers beside `mke2fs -d` and `qemu-img convert` of the same unpacked tree; and a
//! boot of that disk's workload beside a bare one of the same kernel.

mod boot;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::Setup;
use crate::report::{Row, quantile};

/// Ours divided by the reference.
const BUILD_GOAL: f64 = 1.5;
/// MiB.
const MEMORY_GOAL: f64 = 128.0;
const RUNS: usize = 5;
/// How often the memory of a process is looked at.
const LOOK: Duration = Duration::from_millis(2);

pub(super) use boot::{boot, idle};

/// A build of PostgreSQL's image from the cache.
pub(super) fn build(setup: &Setup) -> anyhow::Result<Vec<Row>> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let tree = match postgres(&repository)? {
        Some(tree) => tree,
        None => {
            return Ok(vec![
                Row::plain("disk", "build", 0.0, "").note("skipped: needs root and debootstrap"),
            ]);
        }
    };
    let work = setup.directory()?;
    let layout = work.path().join("layout");
    let neonctl = beside("neonctl")?;
    // An image of one compressed layer, made by tools that are not ours, and one build that fills the cache.
    let script = repository.join("tests/bench/layout.sh");
    run(Command::new("sh").arg(&script).arg(&tree).arg(&layout))?;
    let cache = work.path().join("cache");
    let source = format!("oci:{}", layout.display());
    let ours = || {
        let mut command = Command::new(&neonctl);
        command.args([
            "vm",
            "build",
            "--progress",
            "none",
            "--from",
            &source,
            "--size",
            "2Gi",
            "--cache-dir",
        ]);
        command.arg(&cache).arg("-O").arg(work.path().join("ours.qcow2"));
        command
    };
    run(&mut ours())?;
    let reference = format!(
        "rm -f raw; mke2fs -q -t ext4 -d {} raw 2G && qemu-img convert -c -W -m 16 -O qcow2 -o compression_type=zstd raw reference.qcow2",
        tree.display()
    );
    let (mut own, mut other, mut ratios, mut memory) = (vec![], vec![], vec![], vec![]);
    for _ in 0..RUNS {
        let (seconds, peak) = watched(&mut ours())?;
        let begun = Instant::now();
        run(Command::new("sh").args(["-c", &reference]).current_dir(work.path()))?;
        let beside = begun.elapsed().as_secs_f64();
        ratios.push(seconds / beside);
        own.push(seconds);
        other.push(beside);
        memory.push(peak);
    }
    let mib = |name: &str| work.path().join(name).metadata().map_or(0, |metadata| metadata.len() >> 20);
    let sizes = format!("{} MiB beside {} MiB", mib("ours.qcow2"), mib("reference.qcow2"));
    Ok(vec![
        Row::at_most(
            "disk",
            "build from cached layers ÷ mke2fs -d + qemu-img convert",
            quantile(&mut ratios, 0.5),
            "×",
            BUILD_GOAL,
        )
        .note(format!("median of {RUNS}, in turn; {sizes}")),
        Row::plain("disk", "build from cached layers", quantile(&mut own, 0.5), "s"),
        Row::plain("disk", "mke2fs -d + qemu-img convert", quantile(&mut other, 0.5), "s"),
        Row::at_most("disk", "build, peak memory", quantile(&mut memory, 1.0), "MiB", MEMORY_GOAL),
    ])
}

/// The root directory of `examples/postgres`, kept beside the tests' fixtures.
fn postgres(repository: &Path) -> anyhow::Result<Option<PathBuf>> {
    let kept = repository.join("target/tmp/disk/postgres-17");
    if kept.exists() {
        return Ok(Some(kept));
    }
    let root = Command::new("id").arg("-u").output()?.stdout == b"0\n";
    let there = Command::new("debootstrap").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !root || !there {
        return Ok(None);
    }
    let making = repository.join("target/tmp/disk/making-for-bench");
    run(Command::new(repository.join("examples/postgres/make-root.sh")).arg(&making))?;
    std::fs::rename(&making, &kept)?;
    Ok(Some(kept))
}

pub(super) fn beside(name: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    ensure!(path.exists(), "{} is missing: make bench builds it", path.display());
    Ok(path)
}

/// Runs a command; its output is shown only if it fails.
pub(super) fn run(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Seconds and peak resident memory in MiB of a command.
fn watched(command: &mut Command) -> anyhow::Result<(f64, f64)> {
    let begun = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let status = format!("/proc/{}/status", child.id());
    let mut peak: u64 = 0;
    let ended = loop {
        // The high-water mark only rises; the last look before the end is off by what 2 ms can add.
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let mark = text
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
        peak = peak.max(mark.unwrap_or(0));
        if let Some(ended) = child.try_wait()? {
            break ended;
        }
        std::thread::sleep(LOOK);
    };
    ensure!(ended.success(), "{command:?} failed");
    Ok((begun.elapsed().as_secs_f64(), peak as f64 / 1024.0))
}
