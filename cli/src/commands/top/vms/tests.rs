use super::*;

fn counters(uptime_ms: u64, cpu_us: u64) -> RunnerStatistics {
    RunnerStatistics { uptime_ms, cpu_us, ..RunnerStatistics::default() }
}

fn machine() -> VirtualMachine {
    serde_json::from_value(json!({
        "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": { "name": "pg", "namespace": "db" },
        "spec": { "guest": { "cpus": { "min": "250m", "max": 3, "use": 1 }, "rootDisk": { "image": "img" },
            "memorySlots": { "min": 1, "max": 12, "use": 11 } } },
        "status": { "phase": "Running", "cpus": "2750m", "memorySize": "11Gi", "node": "n1", "podName": "pg-x" } }))
    .unwrap()
}

#[test]
fn a_machine_in_columns() {
    let now = RunnerStatistics {
        guest_used: Some(Bytes::new(8_900 << 20)),
        steal_us: Some(8000),
        resident: Bytes::gib(11),
        ..counters(2000, 2_610_000)
    };
    let before = RunnerStatistics { steal_us: Some(0), ..counters(1000, 0) };
    let usage = Usage::from_machine(&machine()).with(Some(&before), &now);
    let cells = usage.row(true);
    assert_eq!(
        cells,
        ["db", "pg", "n1", "11", "2.61", "2.75", "95%", "8.6Gi", "11Gi", "79%", "0.3%", "0.0%", "-"]
    );
    assert_eq!(columns(true).len(), cells.len());
    assert_eq!(usage.keys(true).len(), cells.len());
    let value = usage.value();
    assert_eq!(value["cpu"]["used"], 2.61);
    assert_eq!(value["memory"]["usedBytes"], 8_900u64 << 20);
    assert!(value.get("error").is_none());
}

#[test]
fn the_host_reports_what_the_guest_does_not() {
    let now = RunnerStatistics { resident: Bytes::gib(1), ..counters(10, 10) };
    let usage = Usage::from_machine(&machine()).with(None, &now);
    assert_eq!(usage.row(false)[3..9], ["-", "2.75", "-", "1Gi", "11Gi", "9%"]);
}

#[test]
fn what_is_not_known_is_a_dash() {
    let mut machine = machine();
    machine.status = None;
    let usage = Usage { trouble: Some("no response".into()), ..Usage::from_machine(&machine) };
    assert_eq!(usage.row(false), ["pg", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "no response"]);
    assert_eq!(usage.value()["error"], "no response");
    assert!(usage.value()["cpu"].get("used").is_none());
}

#[test]
fn a_machine_that_has_ended_is_not_asked() {
    let mut machine = machine();
    machine.status.as_mut().unwrap().phase = Some(neonvm_api::virtual_machine::Phase::Failed);
    assert_eq!(Usage::from_machine(&machine).pod, "");
}
