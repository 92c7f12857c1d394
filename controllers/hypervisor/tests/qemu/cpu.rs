//! CPUs: plugged, and held to their size.

use neonvm_test_support::{Missing, need};
use std::path::Path;
use std::time::Duration;

use neonvm_hypervisor::cgroup::{DEFAULT_ROOT, Hierarchy};
use neonvm_hypervisor::machine::CpuError;
use neonvm_hypervisor::plan::{CpuMode, CpuPlan, MachinePlan};
use neonvm_types::MilliCpu;

use crate::lab::{Console, Lab, PATIENCE, lab, lab_of_debian_13, start, until};

#[tokio::test(flavor = "multi_thread")]
async fn cpus_are_plugged_at_once_and_not_unplugged_under_tcg() {
    let lab = need!(lab());
    let mut plan = lab.plan("wait");
    plan.cpu = CpuPlan { mode: CpuMode::Qmp, boot: 1, max: 4 };
    let (machine, mut console) = start(plan).await;
    console.ready().await;
    assert_eq!(machine.plugged_cpus().await, Ok(1));
    machine.set_cpus(3).await.unwrap();
    assert_eq!(machine.plugged_cpus().await, Ok(3));
    assert_eq!(machine.vcpu_threads().await.unwrap().len(), 3);
    machine.set_cpus(3).await.unwrap();
    assert_eq!(machine.set_cpus(2).await, Err(CpuError::UnplugUnderTcg));
    assert_eq!(machine.set_cpus(5).await, Err(CpuError::Range { wanted: 5, least: 1, most: 4 }));
    machine.power_button().await.unwrap();
    assert!(machine.wait_for(PATIENCE).await.unwrap().is_power_off());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_takes_plugged_cpus() {
    takes_plugged_cpus(need!(lab())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_takes_plugged_cpus_with_the_kernel_of_debian_13() {
    takes_plugged_cpus(&need!(lab_of_debian_13())).await;
}

/// A VM of one CPU whose guest takes CPUs on line that are plugged, up to four.
pub(crate) fn plan_to_plug(lab: &Lab) -> MachinePlan {
    let mut plan = lab.plan("plug");
    plan.cpu = CpuPlan { mode: CpuMode::Qmp, boot: 1, max: 4 };
    let words = plan.cpu.kernel_words(plan.architecture, plan.accelerator);
    plan.command_line = plan.command_line.replace("maxcpus=1", &words.unwrap_or_default());
    plan
}

/// No more than those of the start are on line before, and the table that lists all has what QEMU's own has.
async fn takes_plugged_cpus(lab: &Lab) {
    let (machine, mut console) = start(plan_to_plug(lab)).await;
    console.ready().await;
    tables_differ_in_nothing_but_the_cpus(&console.text());
    takes(&mut console, 1, "0").await;
    machine.set_cpus(3).await.unwrap();
    takes(&mut console, 3, "0-2").await;
    machine.set_cpus(4).await.unwrap();
    takes(&mut console, 4, "0-3").await;
    machine.kill();
}

/// The guest has so many on line after a request: it is repeated, because a guest may find them a little later.
pub(crate) async fn takes(console: &mut Console, wanted: u32, list: &str) {
    let line = format!("LAB ONLINE {list}\r\n");
    until(&format!("{wanted} CPUs on line"), async || {
        console.write(&wanted.to_string()).await;
        console.text().contains(&line)
    })
    .await;
}

fn tables_differ_in_nothing_but_the_cpus(text: &str) {
    let table = |name: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(&format!("TABLE {name} ")));
        found.unwrap_or_else(|| panic!("no table {name}:\n{text}")).trim().to_owned()
    };
    let (mut own, ours) = (table("APIC1"), table("APIC2"));
    for number in 1..4 {
        let cpu = |flags| format!("0008{number:02x}{number:02x}{flags}000000");
        assert!(own.contains(&cpu("00")) && ours.contains(&cpu("01")), "{own}\n{ours}");
        own = own.replace(&cpu("00"), &cpu("01"));
    }
    assert_eq!(own, ours);
}

#[tokio::test(flavor = "multi_thread")]
async fn cpus_that_the_guest_rules_are_there_from_the_start() {
    let lab = need!(lab());
    let mut plan = lab.plan("wait");
    plan.cpu = CpuPlan { mode: CpuMode::Sysfs, boot: 1, max: 3 };
    let (machine, _console) = start(plan).await;
    assert_eq!(machine.vcpu_threads().await.unwrap().len(), 3);
    assert_eq!(machine.set_cpus(2).await, Err(CpuError::Sysfs));
}

/// Judged by numbers of the kernel: in each period the quota is spent, and no more than the quota.
#[tokio::test(flavor = "multi_thread")]
async fn vcpu_threads_are_held_to_their_size() {
    let lab = need!(lab());
    let hierarchy = Hierarchy::find(Path::new(DEFAULT_ROOT)).map_err(|error| {
        Missing::unavailable(format!("no cgroup hierarchy with the cpu controller: {error}"))
    });
    let hierarchy = need!(hierarchy);
    let parent = hierarchy.own_group().unwrap();
    let name = format!("neonvm-test-{}", std::process::id());
    let group = hierarchy
        .create(&parent, &name)
        .map_err(|error| Missing::unavailable(format!("no cgroup can be made: {error}")));
    let group = need!(group);
    // Limited once it is up: with so little CPU a kernel finds its clocks broken, panics, and nothing is left to limit.
    let (machine, mut console) = start(lab.plan("spin")).await;
    console.ready().await;
    // So little that a busy host has it to spare: a process that gets less than the limit is not throttled by it.
    group.set_limit(Some(MilliCpu::new(50))).unwrap();
    let threads: Vec<i32> = machine.vcpu_threads().await.unwrap().iter().map(|cpu| cpu.thread).collect();
    for thread in &threads {
        group.add_thread(*thread).unwrap();
    }
    until("a limit that is felt", async || group.throttling().unwrap().throttled >= 20).await;
    let (before, usage) = (group.throttling().unwrap(), machine.usage(&threads).unwrap());
    until("more of it", async || group.throttling().unwrap().throttled >= before.throttled + 20).await;
    let ran = machine.usage(&threads).unwrap().threads - usage.threads;
    let periods = group.throttling().unwrap().periods - before.periods + 1;
    let allowed = Duration::from_millis(5) * u32::try_from(periods).unwrap();
    // Ticks of the host are some milliseconds.
    assert!(ran <= allowed * 3, "ran {ran:?} in {periods} periods");
    group.set_limit(None).unwrap();
    // A thread that has gone is no error.
    group.add_thread(i32::MAX - 1).unwrap();
    let path = group.path().unwrap().to_owned();
    machine.kill();
    group.remove(PATIENCE).await.unwrap();
    assert!(!path.exists());
}
