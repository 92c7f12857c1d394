//! Prometheus' own program on the generated files.

use std::path::Path;
use std::process::Command;

use neonvm_deploy::monitoring;
use neonvm_test_support::needs;
use serde_json::{Value, json};

fn promtool(arguments: &[&str]) {
    let Ok(program) = needs::program("promtool") else { return };
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(program).args(arguments).current_dir(directory).output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "promtool {arguments:?}\n{}", String::from_utf8_lossy(&printed));
}

#[test]
fn rules_can_be_loaded() {
    promtool(&["check", "rules", "monitoring/rules.prometheus.yaml"]);
}

/// But for the discovery, which the program of some distributions is built without.
#[test]
fn the_configuration_can_be_loaded() {
    let text = std::fs::read_to_string("monitoring/scrape.prometheus.yaml").unwrap();
    let mut config: Value = serde_saphyr::from_str(&text).unwrap();
    for job in config["scrape_configs"].as_array_mut().unwrap() {
        let job = job.as_object_mut().unwrap();
        let discovery = job.remove("kubernetes_sd_configs").unwrap();
        assert_eq!(discovery[0]["role"], "pod");
        job.insert("static_configs".to_owned(), json!([{"targets": ["127.0.0.1:1"]}]));
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), config.to_string()).unwrap();
    promtool(&["check", "config", file.path().to_str().unwrap()]);
}

#[test]
fn alerts_fire_when_they_should() {
    promtool(&["test", "rules", "tests/it/monitoring/alerts.yaml"]);
}

/// Queries of dashboards, with values in place of Grafana's variables.
#[test]
fn queries_of_dashboards_can_be_parsed() {
    let source = monitoring::source().unwrap();
    let expressions = super::expressions(&source).into_iter().enumerate();
    let rules = expressions.map(|(number, (_, expression))| {
        let expression = expression.replace("$__rate_interval", "5m");
        json!({"record": format!("neonvm:query:{number}"), "expr": expression})
    });
    let rules: Vec<Value> = rules.collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    let groups = json!({"groups": [{"name": "queries", "rules": rules}]});
    std::fs::write(file.path(), groups.to_string()).unwrap();
    promtool(&["check", "rules", file.path().to_str().unwrap()]);
}
