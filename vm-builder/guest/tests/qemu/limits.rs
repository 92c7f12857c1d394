//! A workload that takes memory faster than the VM gets it, with limits and without; and who thaws what is frozen.

use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use neonvm_test_support::need;
use neonvm_types::guest::{ImageConfig, MemoryLimits, Monitor, Process, ReportKind};
use neonvm_types::monitor_protocol::{AgentMessage, Allocation, MONITOR_PORT, MonitorMessage};
use tokio_tungstenite::tungstenite::{Message, WebSocket};

use crate::lab::lab;
use crate::machine::{Machine, Plan};
use crate::monitor::agent;
use crate::runner::{key, ok};

const MIB: u64 = 1 << 20;
/// What the agent grants at a time.
const STEP: u64 = 256 * MIB;
/// A request is granted when it was repeated so often: requests are a second apart, and a scheduler may take so long.
const PATIENT: usize = 3;

fn plan(mode: &[&str], limits: MemoryLimits) -> Plan<'static> {
    let cmd = std::iter::once("/workload").chain(mode.iter().copied()).map(str::to_owned).collect();
    let process = Process { cmd, stop_signal: "SIGINT".into(), ..Process::default() };
    let monitor = Some(Monitor { limits, ..Monitor::default() });
    Plan {
        image: ImageConfig { process, monitor, ..ImageConfig::default() },
        command_line: "rw quiet memhp_default_state=online",
        processors: 2,
        pluggable: 1024 * MIB,
        ports: vec![MONITOR_PORT],
        ..Plan::default()
    }
}

/// Grants memory after so many requests each time, until the workload has all or was killed; what was granted in all.
fn grant(machine: &mut Machine, agent: &mut WebSocket<TcpStream>, done: &str, after: usize) -> (u64, bool) {
    let (mut granted, mut requests) = (0, 0);
    agent.get_ref().set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let killed = machine.wait("the workload's end or all its memory", |machine| {
        if let Ok(Message::Text(text)) = agent.read()
            && let Ok((_, MonitorMessage::UpscaleRequest { .. })) = MonitorMessage::decode(text.as_bytes())
        {
            requests += 1;
            if requests == after && granted < 1024 * MIB {
                (granted, requests) = (granted + STEP, 0);
                machine.request_memory(granted);
                machine.wait("the memory", |machine| (machine.plugged_memory() == granted).then_some(()));
                let granted = Allocation { cpu: 2.0, mem: 512 * MIB + granted };
                let message = AgentMessage::UpscaleNotification { granted };
                agent.send(Message::text(message.encode(2).unwrap())).unwrap();
            }
        }
        let killed =
            |kind: &ReportKind| matches!(kind, ReportKind::WorkloadExited { out_of_memory: true, .. });
        let is_killed = machine.reports().iter().any(|report| killed(&report.kind));
        (is_killed || machine.read("log").contains(done)).then_some(is_killed)
    });
    (granted, killed)
}

#[test]
fn limits_keep_a_fast_workload_alive_until_its_memory_is_there() {
    let lab = need!(lab());
    for limits in [MemoryLimits::HighAndMax, MemoryLimits::High] {
        let mut machine = Machine::start(lab, &plan(&["take", "1000"], limits));
        let mut agent = agent(&mut machine);
        let (granted, killed) = grant(&mut machine, &mut agent, "took 1000 MiB", PATIENT);
        assert!(!killed, "{}: killed after a grant of {} MiB", limits.name(), granted / MIB);
        assert!(granted >= 2 * STEP);
    }
}

/// No memory is granted, because on a host without time for the guest even late memory would be there before it is needed.
#[test]
fn without_limits_the_kernel_kills_before_the_memory_is_there() {
    let lab = need!(lab());
    let mut machine = Machine::start(lab, &plan(&["take", "1000"], MemoryLimits::Off));
    let mut agent = agent(&mut machine);
    let (granted, killed) = grant(&mut machine, &mut agent, "took 1000 MiB", usize::MAX);
    assert!(killed && granted == 0, "the workload took more memory than there is");
}

/// What a monitor leaves that hangs or dies in the middle of a freeze.
#[test]
fn process_1_thaws_what_the_monitor_cannot() {
    let lab = need!(lab());
    let directory = tempfile::tempdir().unwrap();
    let (key, public) = need!(key(directory.path()));
    let document = serde_json::json!({ "sshAuthorizedKeys": [public] });
    let mut plan = plan(&["serve"], MemoryLimits::High);
    plan.runtime = vec![("neonvm.json", serde_json::to_vec(&document).unwrap())];
    plan.ports.push(22);
    let mut machine = Machine::start(lab, &plan);
    machine.wait_text("log", "workload serves");
    agent(&mut machine);
    let high = |machine: &mut Machine| ok(machine, &key, "cat /sys/fs/cgroup/workload/memory.high");
    machine.wait("the limit", |machine| high(machine).trim().parse::<u64>().ok());
    let pid = monitor(&mut machine, &key);
    // The monitor stands still, and its announcement is all that process 1 has.
    let hang = format!(
        "kill -STOP {pid}; echo freezes workload > /proc/{pid}/fd/1; echo 1 > /sys/fs/cgroup/workload/cgroup.freeze"
    );
    ok(&mut machine, &key, &hang);
    thawed(&mut machine, &key);
    // It dies.
    ok(
        &mut machine,
        &key,
        &format!(
            "echo freezes workload > /proc/{pid}/fd/1; echo 1 > /sys/fs/cgroup/workload/cgroup.freeze; kill -KILL {pid}"
        ),
    );
    thawed(&mut machine, &key);
    machine.wait("another monitor", |machine| (monitor(machine, &key) != pid).then_some(()));
    machine.press_power();
    let (log, ..) = machine.wait_end();
    assert!(log.contains("workload stops"), "{log}");
}

fn monitor(machine: &mut Machine, key: &Path) -> String {
    machine.wait("the monitor", |machine| {
        let list = ok(machine, key, "ps");
        let line = list.lines().find(|line| line.contains("monitor"))?;
        line.split_whitespace().find(|word| word.parse::<u32>().is_ok()).map(str::to_owned)
    })
}

fn thawed(machine: &mut Machine, key: &Path) {
    machine.wait("the thaw", |machine| {
        (ok(machine, key, "cat /sys/fs/cgroup/workload/cgroup.freeze") == "0\n").then_some(())
    });
}
