//! Memory that comes and goes.

use neonvm_hypervisor::machine::{MachineEvent, MemoryError};
use neonvm_hypervisor::plan::MemoryPlan;
use neonvm_test_support::need;
use neonvm_types::Bytes;

use crate::lab::{Lab, event, lab, lab_of_debian_13, start};

#[tokio::test(flavor = "multi_thread")]
async fn memory_grows_and_shrinks() {
    grows_and_shrinks(need!(lab())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_grows_and_shrinks_with_the_kernel_of_debian_13() {
    grows_and_shrinks(&need!(lab_of_debian_13())).await;
}

async fn grows_and_shrinks(lab: &Lab) {
    let mut plan = lab.plan("wait");
    plan.memory =
        MemoryPlan { min: Bytes::mib(192), start: Bytes::mib(256), max: Bytes::mib(704), exact: false };
    let (machine, mut console) = start(plan).await;
    let mut events = machine.events();
    console.ready().await;
    let plugged =
        |mib: u32| move |event: &MachineEvent| *event == MachineEvent::MemoryChanged(Bytes::mib(mib));
    // It boots at its size.
    if machine.memory().await.unwrap().plugged != Bytes::mib(64) {
        event(&mut events, "memory of the start", plugged(64)).await;
    }
    for total in [704, 320, 448, 192] {
        machine.set_memory_target(Bytes::mib(total)).await.unwrap();
        event(&mut events, &format!("{total} MiB"), plugged(total - 192)).await;
        let state = machine.memory().await.unwrap();
        assert!(state.is_settled() && state.total() == Bytes::mib(total), "{state:?}");
        assert_eq!((state.base, state.most), (Bytes::mib(192), Bytes::mib(512)));
    }
    let error = machine.set_memory_target(Bytes::mib(1024)).await.unwrap_err();
    assert!(matches!(error, MemoryError::Range { .. }), "{error}");
    let odd = machine.set_memory_target(Bytes::mib(193)).await.unwrap_err();
    assert_eq!(odd, MemoryError::Block(Bytes::mib(193)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_of_one_size_has_no_device_for_it() {
    let lab = need!(lab());
    let (machine, _console) = start(lab.plan("wait")).await;
    assert_eq!(machine.memory().await.unwrap().total(), Bytes::mib(192));
    machine.set_memory_target(Bytes::mib(192)).await.unwrap();
}

/// Bounds that are no whole blocks of the guest's kernel: all of the upper one is reached, and what is above it never comes.
#[tokio::test(flavor = "multi_thread")]
async fn sizes_off_the_blocks_of_the_kernel_are_reached() {
    let lab = need!(lab());
    let mut plan = lab.plan("wait");
    plan.memory =
        MemoryPlan { min: Bytes::mib(200), start: Bytes::mib(200), max: Bytes::mib(670), exact: false };
    let (machine, mut console) = start(plan).await;
    let mut events = machine.events();
    console.ready().await;
    for total in [670, 534, 202, 330, 668, 200] {
        machine.set_memory_target(Bytes::mib(total)).await.unwrap();
        let more = Bytes::mib(total - 200);
        event(&mut events, &format!("{total} MiB"), |event| *event == MachineEvent::MemoryChanged(more))
            .await;
        assert_eq!(machine.memory().await.unwrap().total(), Bytes::mib(total));
    }
    let error = machine.set_memory_target(Bytes::mib(672)).await.unwrap_err();
    assert!(matches!(error, MemoryError::Range { .. }), "{error}");
}
