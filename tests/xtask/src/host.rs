//! `xtask host`: the product on a computer with KVM, cgroup v2, systemd and vhost-net. Such a computer is emulated: a Debian system boots
//! under QEMU of Debian 13 on a processor with nested virtualisation, and the checks run in it over ssh. All of it comes from Debian
//! packages, and is kept in `<target>/host`.
//!
//! Everything there is slow, so no time is measured, and [`FACTOR`] makes the product's deadlines longer. The emulation has defects of its
//! own: a host whose kernel panicked is booted again, and its check repeated; that is counted apart.

pub(crate) mod changed;
mod checks;
mod emulator;
mod system;

use std::path::Path;
use std::time::Instant;

use anyhow::{bail, ensure};

use self::checks::{CHECKS, Check};
use self::emulator::{Host, Reply};
use self::system::System;
use crate::package::target;
use crate::process::{installed, is_root, run_cargo};

/// By what the product's deadlines are longer in the host.
const FACTOR: u32 = 30;
/// How often a host that panicked is booted again.
const REPEATS: u32 = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed(String),
    Skipped(String),
}

#[derive(Clone, Debug)]
struct Choice {
    suites: Vec<String>,
    is_short: bool,
    keep: bool,
    only: Option<String>,
}

impl Choice {
    fn read(arguments: &[String]) -> anyhow::Result<Self> {
        let mut choice = Self { suites: Vec::new(), is_short: false, keep: false, only: None };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--short" => choice.is_short = true,
                "--keep" => choice.keep = true,
                "--suite" => match rest.next().map(String::as_str) {
                    Some(suite @ ("bookworm" | "trixie")) => choice.suites.push(suite.to_owned()),
                    other => bail!("--suite must be bookworm or trixie, not {other:?}"),
                },
                "--only" => choice.only = rest.next().cloned(),
                other => bail!("{other:?} is not --suite SUITE, --short, --only CHECK or --keep"),
            }
        }
        if choice.suites.is_empty() {
            let all: &[&str] = if choice.is_short { &["trixie"] } else { &["bookworm", "trixie"] };
            choice.suites = all.iter().map(|suite| (*suite).to_owned()).collect();
        }
        Ok(choice)
    }

    fn has(&self, check: &Check) -> bool {
        let named = self.only.as_ref().is_none_or(|only| check.name.contains(only.as_str()) || check.needed);
        named && (check.short || !self.is_short)
    }
}

/// Boots each host and runs the checks in it; true if none failed.
pub(crate) fn run(root: &Path, arguments: &[String]) -> anyhow::Result<bool> {
    let choice = Choice::read(arguments)?;
    ensure!(is_root(), "a Debian system can be made by root only");
    for (program, package) in [
        ("debootstrap", "debootstrap"),
        ("mke2fs", "e2fsprogs"),
        ("ssh", "openssh-client"),
        ("ssh-keygen", "openssh-client"),
        ("setpriv", "util-linux"),
    ] {
        ensure!(installed(program), "{program} is missing: apt-get install {package}");
    }
    ensure!(crate::guest::run(root)?, "the guest program does not build");
    let programs = ["-p", "neonvm-neond", "-p", "neonvm-runner", "-p", "neonvm-cli"];
    ensure!(
        run_cargo(root, &[&["build", "--locked", "--quiet", "--profile", "quick"][..], &programs].concat())?,
        "the programs do not build"
    );
    let target = target(root)?;
    let mut all = Vec::new();
    for suite in &choice.suites {
        let system = System::make(&target, suite)?;
        all.extend(on_host(&system, &choice)?.into_iter().map(|(name, verdict)| {
            let name = format!("{suite} {name}");
            (name, verdict)
        }));
    }
    let good = summary(&all);
    if good && choice.only.is_none() {
        changed::passed(root)?;
    }
    Ok(good)
}

/// Runs the checks on one host, in their order.
fn on_host(system: &System, choice: &Choice) -> anyhow::Result<Vec<(&'static str, Verdict)>> {
    let mut host = Host::boot(system, choice.keep)?;
    let mut done: Vec<(&'static str, Verdict)> = Vec::new();
    let (mut repeats, mut broken) = (0, None);
    for check in CHECKS.iter().filter(|check| choice.has(check)) {
        if let Some(needed) = broken {
            done.push((check.name, Verdict::Skipped(format!("{needed} failed"))));
            continue;
        }
        let started = Instant::now();
        let verdict = loop {
            match host.run(&checks::script(check))? {
                Reply::Ended { good: true, .. } => break Verdict::Passed,
                Reply::Ended { last, .. } => break Verdict::Failed(last),
                Reply::HostLost(reason) if repeats < REPEATS => {
                    repeats += 1;
                    println!("REPEAT {}: {reason}", check.name);
                    drop(host);
                    host = Host::boot(system, choice.keep)?;
                    for before in CHECKS.iter().filter(|before| before.needed && before.name != check.name) {
                        host.run(&checks::script(before))?;
                    }
                }
                Reply::HostLost(reason) => {
                    break Verdict::Skipped(format!("the emulated host fails: {reason}"));
                }
            }
        };
        if check.needed && verdict != Verdict::Passed {
            broken = Some(check.name);
        }
        println!("{} {} {:.0} s", word(&verdict), check.name, started.elapsed().as_secs_f64());
        done.push((check.name, verdict));
    }
    if choice.keep {
        host.keep();
    }
    println!("{}: {repeats} boots because the emulated host failed", system.suite());
    Ok(done)
}

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Passed => "pass",
        Verdict::Failed(_) => "FAIL",
        Verdict::Skipped(_) => "skip",
    }
}

/// Prints what did not pass, and the closing line.
fn summary(all: &[(String, Verdict)]) -> bool {
    let count = |kind: &str| all.iter().filter(|(_, verdict)| word(verdict) == kind).count();
    for (name, verdict) in all {
        match verdict {
            Verdict::Passed => {}
            Verdict::Failed(why) => println!("FAIL {name}:\n{why}"),
            Verdict::Skipped(why) => println!("skip {name}: 1 checks, {why}"),
        }
    }
    println!("{} passed, {} failed, {} skipped", count("pass"), count("FAIL"), count("skip"));
    count("FAIL") == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str]) -> anyhow::Result<Choice> {
        Choice::read(&arguments.iter().map(|&argument| argument.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn both_suites_are_the_default_and_one_is_enough_for_the_short_form() {
        assert_eq!(read(&[]).unwrap().suites, ["bookworm", "trixie"]);
        assert_eq!(read(&["--short"]).unwrap().suites, ["trixie"]);
        assert_eq!(read(&["--short", "--suite", "bookworm"]).unwrap().suites, ["bookworm"]);
        for wrong in [&["--suite", "sid"][..], &["--suite"], &["all"]] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_short_form_has_what_the_others_need() {
        let short = read(&["--short"]).unwrap();
        assert!(CHECKS.iter().filter(|check| check.needed).all(|check| short.has(check)));
        assert!(CHECKS.iter().any(|check| !short.has(check)));
    }
}
