//! `xtask fuzz`: every target of `tests/fuzz` under libFuzzer, by cargo-fuzz (<https://rust-fuzz.github.io/book/>), which is installed
//! into `<target>/tools` when it is missing. What a target has found interesting is kept in `<target>/fuzz/corpus` for the next run.
//!
//! Ends with `N passed, N failed, N skipped`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::package::{cargo, target};
use crate::process::installed;
use crate::tally::Tally;
use crate::tool::Tool;

const CARGO_FUZZ: Tool = Tool { name: "cargo-fuzz", version: "0.13.2" };
/// Where the programs are built: the triple that cargo-fuzz always names.
const BUILT: &str = "x86_64-unknown-linux-gnu/debug";
const USAGE: &str = "usage: cargo xtask fuzz [--seconds N] [TARGET...]";

/// Runs the targets that are named, or all, for so many seconds each; false if one has a fault.
pub(crate) fn run(root: &Path, arguments: &[String]) -> anyhow::Result<bool> {
    let (seconds, named) = match arguments {
        [flag, seconds, named @ ..] if flag == "--seconds" => (seconds.parse::<u32>().context(USAGE)?, named),
        named => (20, named),
    };
    ensure!(named.iter().all(|name| !name.starts_with('-')), "{USAGE}");
    let mut tally = Tally::default();
    let build = target(root)?.join("fuzz");
    let names = examples(root, &build.join("corpus"))?;
    if let Some(unknown) = named.iter().find(|name| !names.contains(name)) {
        anyhow::bail!("there is no target {unknown}; there are {}", names.join(", "));
    }
    let chosen: Vec<&String> = names.iter().filter(|name| named.is_empty() || named.contains(name)).collect();
    match missing(root, &build)? {
        Some(reason) => {
            println!("skip fuzz: {} targets, {reason}", chosen.len());
            tally.skipped = u64::try_from(chosen.len())?;
        }
        None => {
            for name in chosen {
                let good = fuzz(&build, name, seconds)?;
                println!("{} {name}", if good { "ok  " } else { "FAIL" });
                *(if good { &mut tally.passed } else { &mut tally.failed }) += 1;
            }
        }
    }
    println!("{tally}");
    Ok(tally.failed == 0)
}

/// Writes the examples; the names of all targets.
fn examples(root: &Path, corpus: &Path) -> anyhow::Result<Vec<String>> {
    let mut write = cargo();
    write.args(["run", "--quiet", "--locked", "-p", "neonvm-fuzz", "--"]).arg(corpus).current_dir(root);
    let output = write.output().context("cannot run cargo")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

/// Builds the programs; why that cannot be done here.
fn missing(root: &Path, build: &Path) -> anyhow::Result<Option<&'static str>> {
    if !installed("c++") {
        return Ok(Some("there is no C++ compiler, which libFuzzer needs: install g++"));
    }
    let Some(program) = CARGO_FUZZ.installed(root)? else {
        return Ok(Some("cargo-fuzz cannot be installed: no registry answers"));
    };
    let programs = root.join("tests/fuzz/libfuzzer");
    // The same versions of all packages as the product's.
    std::fs::copy(root.join("Cargo.lock"), programs.join("Cargo.lock"))?;
    let mut command = Command::new(program);
    command.args(["build", "--dev", "--sanitizer", "none", "--fuzz-dir"]).arg(&programs);
    let status = command.arg("--target-dir").arg(build).current_dir(root).status();
    ensure!(status.context("cannot run cargo-fuzz")?.success(), "the targets cannot be built");
    Ok(None)
}

/// Bounds of one input: 10 s, 1 GiB, 64 KiB.
const BOUNDS: [&str; 3] = ["-timeout=10", "-rss_limit_mb=1024", "-max_len=65536"];

fn fuzz(build: &Path, name: &str, seconds: u32) -> anyhow::Result<bool> {
    let mut command = Command::new(build.join(BUILT).join(name));
    let artifacts = build.join("faults");
    std::fs::create_dir_all(&artifacts)?;
    command.args(BOUNDS).arg(format!("-max_total_time={seconds}"));
    command.arg(format!("-artifact_prefix={}/{name}-", artifacts.display()));
    let output =
        command.arg(build.join("corpus").join(name)).output().context(format!("cannot run {name}"))?;
    let good = output.status.success();
    if !good {
        println!("{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(good)
}
