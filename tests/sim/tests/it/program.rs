//! The program `neonsim`, as people start it.

use std::path::Path;
use std::process::{Command, Output};

const AUTOSCALER: &str = r#"{apiVersion: autoscaling.aibrix.ai/v1alpha1, kind: PodAutoscaler, metadata: {name: web},
spec: {scalingStrategy: APA, minReplicas: 1, maxReplicas: 9, observeWindowSeconds: 30, panicWindowSeconds: 10,
scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, metricsSources: [{metricSourceType: pod,
protocolType: http, port: "80", path: /metrics, targetMetric: queue, targetValue: "10"}]}}"#;

fn neonsim(directory: &Path, line: &str) -> Output {
    let words = line.split_whitespace();
    Command::new(env!("CARGO_BIN_EXE_neonsim")).args(words).current_dir(directory).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn fleets_are_simulated_under_several_seeds_and_drawn() {
    let directory = tempfile::tempdir().unwrap();
    let listed = text(&neonsim(directory.path(), "--list").stdout);
    assert!(listed.starts_with("NAME") && listed.contains("\nrush-hour "), "{listed}");
    let line = "quiet-fleet --seeds 2 --until 5m --check --plot plots --vms 2";
    let output = neonsim(directory.path(), line);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let table = text(&output.stdout);
    assert!(table.starts_with("INVARIANT") && table.contains("\na guest runs on one node "), "{table}");
    let notes = text(&output.stderr);
    assert!(
        notes.starts_with("2 seeds, ") && notes.contains("plot: plots/quiet-fleet-1-nodes.svg"),
        "{notes}"
    );
    let drawing = std::fs::read_to_string(directory.path().join("plots/quiet-fleet-1-vms.svg")).unwrap();
    assert!(drawing.trim_end().ends_with("</svg>"));
    let value = json(&neonsim(directory.path(), "quiet-fleet --seed 9 --until 1m -o json"));
    assert_eq!((&value["runs"][0]["seed"], &value["scenario"]), (&9.into(), &"quiet-fleet".into()));
}

#[test]
fn a_recorded_load_is_replayed() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("pa.yaml"), AUTOSCALER).unwrap();
    std::fs::write(directory.path().join("load.csv"), "seconds,load\n0,20\n60,60\n300,60\n").unwrap();
    let run = |more: &str| neonsim(directory.path(), &format!("replicas --trace load.csv -f pa.yaml {more}"));
    let output = run("--replicas 2 --startup 20s --outage 200-240 --check");
    let table = text(&output.stdout);
    assert!(output.status.success() && table.contains("no metric could be read"), "{output:?}");
    let value = json(&run("-o json"));
    assert_eq!((&value["summary"]["podSeconds"], &value["rules"][0]["checked"]), (&1490.into(), &30.into()));
}

#[test]
fn one_vm_is_compared_under_all_rules() {
    let directory = tempfile::tempdir().unwrap();
    let output = neonsim(directory.path(), "compare step --length 90s --plot plots");
    let table = text(&output.stdout);
    assert!(table.contains("\nstep  ours ") && table.contains("\nstep  upstream "), "{table}");
    assert!(directory.path().join("plots/compare-step-1.svg").is_file(), "{output:?}");
    let value = json(&neonsim(directory.path(), "compare idle --length 1m -o json"));
    assert_eq!((&value["items"][0]["grown"], &value["items"][0]["unitSeconds"]), (&0.into(), &60.0.into()));
}

#[test]
fn mistakes_are_named() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("load.csv"), "seconds,load\n0,20\n60,60\n").unwrap();
    for (line, code, word) in [
        ("rush-our", 1, "there is no scenario \"rush-our\""),
        ("load.csv", 1, "scenario load.csv is not valid"),
        ("rush-hour --faults crash,dely", 2, "there is no fault \"dely\""),
        ("rush-hour --until soon", 2, "use a duration"),
        ("rush-hour --seeds 0", 2, "--seeds"),
        ("replicas --trace load.csv -f load.csv", 1, "load.csv"),
        ("replicas --trace load.csv -f pa.yaml --outage 5m", 2, "use two times"),
        ("compare idle --length 0s", 2, "use a duration"),
        ("compare idle --min-cu 5", 1, "--min-cu 5 is above --max-cu 4"),
    ] {
        let output = neonsim(directory.path(), line);
        let error = text(&output.stderr);
        assert!(output.status.code() == Some(code) && error.contains(word), "{line}: {error}");
    }
}
