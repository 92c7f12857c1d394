//! `doctor --local`: what this machine has and lacks. Only what `local up` needs today is required.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use serde_json::{Value, json};

use crate::args::local::Root;
use crate::env::Env;
use crate::error::{Code, Result, reason};
use crate::instance;
use crate::report::{API_VERSION, Document, Report, left};
use crate::settings::Settings;

/// Free space below which a cluster soon stands still, in bytes.
const LITTLE_SPACE: u64 = 1 << 30;
/// Free space without which it cannot start, in bytes.
const NO_SPACE: u64 = 64 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

struct Check {
    name: &'static str,
    verdict: Verdict,
    detail: String,
    remedy: &'static str,
}

fn ok(name: &'static str, detail: impl Into<String>) -> Check {
    Check { name, verdict: Verdict::Ok, detail: detail.into(), remedy: "" }
}

fn warn(name: &'static str, detail: impl Into<String>, remedy: &'static str) -> Check {
    Check { name, verdict: Verdict::Warn, detail: detail.into(), remedy }
}

fn fail(name: &'static str, detail: impl Into<String>, remedy: &'static str) -> Check {
    Check { name, verdict: Verdict::Fail, detail: detail.into(), remedy }
}

/// Probes this machine.
pub(super) fn run(env: &Env, settings: &Settings) -> Result<Report> {
    let root = instance::root(env, settings, &Root::default())?;
    let mut checks = vec![neond(env, settings), disk(&root), ports()];
    checks.push(kvm());
    for (program, remedy) in [
        ("qemu-system-x86_64", "apt-get install qemu-system-x86"),
        ("qemu-img", "apt-get install qemu-utils"),
        ("ip", "apt-get install iproute2"),
        ("nft", "apt-get install nftables"),
    ] {
        checks.push(match env.program(program) {
            Some(path) => ok(program, path.display().to_string()),
            None => warn(program, "not found; machines will need it", remedy),
        });
    }
    checks.push(privileges());
    checks.push(cgroup());
    Ok(report(&checks))
}

fn report(checks: &[Check]) -> Report {
    let good = checks.iter().all(|check| check.verdict != Verdict::Fail);
    let word = |check: &Check| match check.verdict {
        Verdict::Ok => "ok",
        Verdict::Warn => "warn",
        Verdict::Fail => "fail",
    };
    let dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let items: Vec<Value> = checks
        .iter()
        .map(|check| json!({ "name": check.name, "result": word(check), "detail": check.detail, "remedy": check.remedy }))
        .collect();
    let document = Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "Diagnosis", "ready": good, "items": items }),
        names: checks.iter().map(|check| format!("check/{}", check.name)).collect(),
        text: None,
        columns: vec![left("CHECK"), left("RESULT"), left("DETAIL"), left("REMEDY")],
        rows: checks
            .iter()
            .map(|check| {
                vec![check.name.to_owned(), word(check).to_owned(), dash(&check.detail), dash(check.remedy)]
            })
            .collect(),
    };
    let verdict = if good {
        "this machine can run local clusters"
    } else {
        "this machine cannot run local clusters yet"
    };
    let mut report = Report::document(document).note(verdict);
    report.code = if good { 0 } else { Code::Unhealthy.number() };
    report
}

fn neond(env: &Env, settings: &Settings) -> Check {
    match super::local::neond(env, settings) {
        Ok(path) => ok("neond", path.display().to_string()),
        Err(error) => {
            fail("neond", error.message, "put neond beside neonctl or into PATH, or set NEONCTL_NEOND")
        }
    }
}

fn disk(root: &Path) -> Check {
    // The directory may not exist yet; what counts is where it will be.
    let place = root.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    match rustix::fs::statvfs(place) {
        Ok(space) => {
            let free = space.f_bavail.saturating_mul(space.f_frsize);
            let detail = format!("{} MiB free at {}", free >> 20, place.display());
            if free < NO_SPACE {
                fail("disk", detail, "free some space or choose another --data-dir")
            } else if free < LITTLE_SPACE {
                warn("disk", detail, "free some space or choose another --data-dir")
            } else {
                ok("disk", detail)
            }
        }
        Err(error) => fail(
            "disk",
            format!("cannot look at {}: {}", place.display(), reason(&error.into())),
            "choose another --data-dir",
        ),
    }
}

fn ports() -> Check {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, 0)) {
        Ok(_) => ok("ports", "127.0.0.1 has free ports"),
        Err(error) => fail("ports", reason(&error), "bring up the loopback interface: ip link set lo up"),
    }
}

/// Only whether the device is there and opens; whether it runs a guest is another question.
fn kvm() -> Check {
    let path = Path::new("/dev/kvm");
    if !path.exists() {
        return warn(
            "kvm",
            "/dev/kvm is not there; machines will be emulated",
            "enable virtualisation, or accept slower machines",
        );
    }
    match std::fs::File::options().read(true).write(true).open(path) {
        Ok(_) => ok("kvm", "/dev/kvm opens; whether it runs guests is not probed yet"),
        Err(error) => warn(
            "kvm",
            format!("/dev/kvm does not open: {}", reason(&error)),
            "add yourself to the group kvm",
        ),
    }
}

fn privileges() -> Check {
    if rustix::process::geteuid().is_root() {
        return ok("privileges", "root");
    }
    ok("privileges", "not root; none are needed yet")
}

fn cgroup() -> Check {
    if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        return ok("cgroup", "version 2");
    }
    if Path::new("/sys/fs/cgroup/cpu").exists() {
        return ok("cgroup", "version 1, or both");
    }
    warn(
        "cgroup",
        "no CPU controller is mounted; machines will need one",
        "mount -t cgroup2 none /sys/fs/cgroup",
    )
}
