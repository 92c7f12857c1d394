use clap::Parser as _;
use serde_json::json;

use super::*;
use crate::args::vm::Command as Vm;
use crate::args::{Args, Command};

fn args(line: &str) -> Migrate {
    let words = ["neonctl", "vm", "migrate"].into_iter().chain(line.split_whitespace());
    match Args::try_parse_from(words).unwrap().command {
        Command::Vm(Vm::Migrate(args)) => *args,
        _ => unreachable!(),
    }
}

#[test]
fn flags_become_fields() {
    let spec = spec(&args(
        "pg --max-downtime 100ms --bandwidth 512Mi --no-auto-converge --postcopy on-timeout --completion-timeout 10m \
         --on-timeout post-copy --policy db --priority -3 --to n3 --avoid n2",
    ))
    .unwrap();
    let json = serde_json::to_value(&spec).unwrap();
    assert_eq!(
        json,
        json!({"vmName": "pg", "preventMigrationToSameHost": true, "completionTimeout": 600, "incremental": true,
            "allowPostCopy": false, "autoConverge": false, "maxBandwidth": "512Mi", "priority": -3, "policy": "db",
            "downtimeLimitMs": 100, "postCopy": "on-timeout", "onTimeout": "post-copy",
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [
                {"key": "metadata.name", "operator": "In", "values": ["n3"]},
                {"key": "metadata.name", "operator": "NotIn", "values": ["n2"]}]}]}}})
    );
    assert_eq!(super::spec(&args("pg")).unwrap(), VirtualMachineMigrationSpec::new("pg"));
}

#[test]
fn invalid_requests_fail_before_anything_is_made() {
    for (line, part) in [
        ("pg --channels 4 --postcopy after-first-pass", "spec.channels: more than one"),
        ("pg --max-downtime 0s", "spec.downtimeLimitMs: 0"),
        ("pg --bandwidth x", "--bandwidth"),
        ("pg --completion-timeout 10", "--completion-timeout"),
    ] {
        let error = spec(&args(line)).unwrap_err();
        assert!(error.code == Code::Usage && error.message.contains(part), "{line}: {error:?}");
    }
}

#[test]
fn machines_that_cannot_move() {
    let machine = |status: serde_json::Value| -> VirtualMachine {
        serde_json::from_value(json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
            "metadata": { "name": "pg" }, "status": status,
            "spec": { "guest": { "cpus": { "min": 1, "max": 1, "use": 1 }, "rootDisk": { "image": "i" },
                "memorySlots": { "min": 1, "max": 1, "use": 1 } } } }))
        .unwrap()
    };
    let error = |status, line| check(&machine(status), &args(line)).unwrap_err();
    let running = json!({ "phase": "Running", "node": "n1" });
    assert_eq!(error(running.clone(), "pg --to n1").message, "pg already runs on n1");
    assert!(check(&machine(running.clone()), &args("pg --to n2")).is_ok());
    assert!(check(&machine(running), &args("pg --to n1 --to n2")).is_ok());
    assert!(error(json!({ "phase": "Failed" }), "pg").message.contains("it is Failed"));
    let reach = |line: &str, nodes: &[&str]| {
        let nodes: Vec<String> = nodes.iter().map(|node| (*node).to_owned()).collect();
        let machine = machine(json!({ "phase": "Running", "node": "n1" }));
        reachable(&machine, &args(line), &nodes).map_err(|error| (error.code, error.message))
    };
    let one = Err((Code::Conflict, "cannot migrate pg: n1 is the only node".to_owned()));
    assert_eq!(reach("pg", &["n1"]), one);
    let missing = Err((Code::NotFound, "cannot migrate pg: there is no node \"n9\"".to_owned()));
    assert_eq!(reach("pg --to n9", &["n1", "n2"]), missing);
    assert!(reach("pg --avoid n2", &["n1", "n2"]).unwrap_err().1.contains("leave no other node"));
    for (line, nodes) in [
        ("pg", vec!["n1", "n2"]),
        ("pg --to n2", vec!["n1", "n2"]),
        ("pg --avoid n2", vec!["n1", "n2", "n3"]),
        ("pg", vec![]),
    ] {
        assert_eq!(reach(line, &nodes), Ok(()), "{line}");
    }
    let moving =
        json!({ "phase": "Migrating", "migration": { "name": "pg-1", "uid": "u", "targetPodName": "p" } });
    let error = error(moving, "pg");
    assert_eq!(error.message, "pg is already being migrated, by migration pg-1");
    assert!(error.code == Code::Conflict && error.hint.is_some());
}
