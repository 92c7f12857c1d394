//! The state as upstream's agent dumps it: `GET /` with any JSON document as body, over plain HTTP. Keys are upstream's, but for
//! `executorState`, which is the document of `neonctl agent inspect`: the state machine is another one.

use neonvm_api::VmInfo;
use neonvm_types::Timestamp;
use serde_json::{Value, json};

use crate::fleet::Cared;
use crate::vm::Panic;

pub(crate) fn document(stopped: bool, vms: &[Cared], now: Option<Timestamp>) -> Value {
    json!({
        "stopped": stopped,
        "buildInfo": { "gitInfo": env!("CARGO_PKG_VERSION") },
        "pods": vms.iter().map(|vm| pod(vm, now)).collect::<Vec<_>>(),
    })
}

fn end(panic: &Panic) -> Value {
    json!({ "exitKind": "panicked", "error": panic.text, "time": panic.at })
}

fn pod(cared: &Cared, now: Option<Timestamp>) -> Value {
    let Cared { vm, view, .. } = cared;
    let status = vm.status.as_ref();
    let name = status.map_or("", |status| status.pod_name.as_str());
    let ip = status.map_or("", |status| status.pod_ip.as_str());
    // Moments are kept as times that have passed.
    let ago = |seconds: f64| {
        #[expect(clippy::cast_possible_truncation, reason = "a cast of floats saturates")]
        let seconds = seconds as i64;
        now.and_then(|now| Timestamp::from_unix(now.unix().saturating_sub(seconds)))
    };
    let endpoint = cared.endpoint.as_ref();
    json!({
        "podName": { "namespace": view.namespace, "name": name },
        "status": {
            "startTime": cared.since,
            "endState": cared.ended.as_ref().map(end),
            "previousEndStates": cared.ends.iter().map(end).collect::<Vec<_>>(),
            "lastSuccessfulMonitorComm": view.monitor_served_seconds_ago.and_then(ago),
            "failedMonitorRequestCounter": view.failed_requests.monitor,
            "failedNeonVMRequestCounter": view.failed_requests.patch,
            "failedSchedulerRequestCounter": view.failed_requests.scheduler,
            "vmInfo": VmInfo::from_vm(vm).ok(),
            "endpointID": endpoint.map_or("", |(id, _)| id.as_str()),
            "endpointAssignedAt": endpoint.and_then(|(_, at)| *at),
            "state": cared.state,
            // Derived when it is read.
            "stateUpdatedAt": now,
        },
        "runner": {
            "podIP": ip,
            "executorState": view,
            "monitor": view.monitor_waiting.map(|count| json!({ "waitersSize": count })),
            "backgroundWorkerCount": view.background_tasks,
        },
    })
}

#[cfg(test)]
mod tests {
    use neonvm_api::virtual_machine::{CpuBounds, Guest, MemorySlots};
    use neonvm_api::{VirtualMachine, VirtualMachineSpec};
    use neonvm_types::MilliCpu;
    use neonvm_types::agent_inspect::{FailedRequests, VmInspect};

    use super::*;

    #[test]
    fn a_vm_has_upstream_s_keys() {
        let at = |unix| Timestamp::from_unix(unix);
        let panic = Panic { text: "oops".into(), at: at(50) };
        let view = VmInspect {
            namespace: "default".into(),
            name: "v".into(),
            failed_requests: FailedRequests { scheduler: 1, monitor: 2, patch: 3 },
            monitor_served_seconds_ago: Some(4.5),
            background_tasks: 2,
            monitor_waiting: Some(1),
            ..VmInspect::default()
        };
        let cpus = CpuBounds { min: MilliCpu::new(250), max: MilliCpu::new(1000), r#use: MilliCpu::new(500) };
        let slots = MemorySlots { min: 1, max: 4, r#use: 2 };
        let cared = Cared {
            vm: VirtualMachine::new("v", VirtualMachineSpec::new(Guest::new(cpus, slots, "img"))),
            view,
            state: "panicked",
            since: at(10),
            ended: Some(panic.clone()),
            ends: vec![panic],
            endpoint: Some(("ep-x".into(), at(20))),
        };
        let document = document(true, &[cared], at(100));
        assert_eq!(document["stopped"], true);
        let pod = &document["pods"][0];
        for (pointer, value) in [
            ("/podName/namespace", json!("default")),
            ("/status/startTime", json!("1970-01-01T00:00:10Z")),
            ("/status/endState/exitKind", json!("panicked")),
            ("/status/endState/error", json!("oops")),
            ("/status/previousEndStates/0/time", json!("1970-01-01T00:00:50Z")),
            ("/status/lastSuccessfulMonitorComm", json!("1970-01-01T00:01:36Z")),
            ("/status/failedMonitorRequestCounter", json!(2)),
            ("/status/failedNeonVMRequestCounter", json!(3)),
            ("/status/failedSchedulerRequestCounter", json!(1)),
            ("/status/endpointID", json!("ep-x")),
            ("/status/endpointAssignedAt", json!("1970-01-01T00:00:20Z")),
            ("/status/state", json!("panicked")),
            ("/status/stateUpdatedAt", json!("1970-01-01T00:01:40Z")),
            ("/runner/monitor/waitersSize", json!(1)),
            ("/runner/backgroundWorkerCount", json!(2)),
        ] {
            assert_eq!(pod.pointer(pointer), Some(&value), "{pointer}: {pod}");
        }
    }
}
