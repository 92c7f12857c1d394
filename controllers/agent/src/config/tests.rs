use super::*;

/// The file that upstream ships (v0.49), key by key; also the example for `local up --agent-config`.
const SHIPPED: &str = include_str!("../../../../examples/agent/config.json");

fn changed(pointer: &str, value: serde_json::Value) -> String {
    let mut all: serde_json::Value = serde_json::from_str(SHIPPED).unwrap();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    all.pointer_mut(parent).unwrap().as_object_mut().unwrap().insert(key.to_owned(), value);
    all.to_string()
}

#[test]
fn the_shipped_file_is_accepted_and_is_the_default() {
    let config = AgentConfig::parse(SHIPPED, "config.json").unwrap();
    let bare = AgentConfig { billing: None, scaling_events: None, dump_state: None, ..config };
    assert_eq!(bare, AgentConfig::default());
}

#[test]
fn every_wrong_value_is_named_and_none_hides_another() {
    for (pointer, value, part) in [
        ("/scaling/computeUnit", serde_json::json!({"vCPUs": 0, "mem": "1Gi"}), "scaling.computeUnit.vCPUs"),
        ("/monitor/serverPort", 0.into(), "monitor.serverPort is 0"),
        ("/metrics/lfc/secondsBetweenRequests", 0.into(), "metrics.lfc.secondsBetweenRequests is 0"),
        ("/scheduler/schedulerName", "".into(), "scheduler.schedulerName is empty"),
        ("/scheduler/retryDeniedUpscaleSeconds", 90_000.into(), "between 1 and 86400"),
        (
            "/neonvm/maxFailedRequestRate/intervalSeconds",
            0.into(),
            "neonvm.maxFailedRequestRate.intervalSeconds",
        ),
        ("/scalingEvents/cuMultiplier", 0.into(), "scalingEvents.cuMultiplier is 0"),
        ("/billing/clients/azureBlob", serde_json::json!({}), "billing.clients.azureBlob is not supported"),
        (
            "/billing/clients/http",
            serde_json::json!({"url": "ftp://x", "pushEverySeconds": 1, "pushRequestTimeoutSeconds": 1, "maxBatchSize": 0}),
            "billing.clients.http.url is \"ftp://x\"",
        ),
        ("/scaling/defaultConfig/loadAverageFractionTarget", 0.into(), "loadAverageFractionTarget"),
    ] {
        let error = AgentConfig::parse(&changed(pointer, value), "config.json").unwrap_err().to_string();
        assert!(error.starts_with("config.json: ") && error.contains(part), "{pointer}: {error}");
    }
    let mut both: serde_json::Value = serde_json::from_str(SHIPPED).unwrap();
    both["monitor"]["serverPort"] = 0.into();
    both["scheduler"]["requestPort"] = 0.into();
    let error = AgentConfig::parse(&both.to_string(), "c").unwrap_err().to_string();
    assert!(error.contains("monitor.serverPort") && error.contains("scheduler.requestPort"), "{error}");
}

#[test]
fn a_list_is_no_object() {
    for (text, key) in [
        (r#"{"scaling":{"computeUnit":[0.25,"1Gi"]}}"#, "scaling.computeUnit: "),
        (r#"{"billing":{"clients":{"http":["http://b"]}}}"#, "billing.clients.http: "),
        (r#"{"monitor":[1]}"#, "monitor: must be an object"),
    ] {
        let error = AgentConfig::parse(text, "f").unwrap_err().to_string();
        assert!(error.contains(key), "{text}: {error}");
    }
}

#[test]
fn unknown_and_missing_keys_are_named() {
    let error = AgentConfig::parse(&changed("/monitor/colour", 1.into()), "c").unwrap_err().to_string();
    assert!(error.contains("monitor.colour: unknown key"), "{error}");
    let error = AgentConfig::parse(r#"{"billing":{}}"#, "c").unwrap_err().to_string();
    assert!(error.contains("billing: missing field `cpuMetricName`"), "{error}");
    assert_eq!(AgentConfig::parse("{}", "c").unwrap(), AgentConfig::default());
    assert!(AgentConfig::read(Path::new("/nonexistent/agent.json")).is_err());
}

/// What a fault of an earlier version's file is called there.
#[test]
fn a_fault_names_the_key_of_the_file() {
    let error = AgentConfig::parse(r#"{"metrics":{"loadMetricPrefix":"x","requestTimeoutSeconds":0}}"#, "c");
    let error = error.unwrap_err().to_string();
    let part =
        "metrics.requestTimeoutSeconds is used as metrics.system.requestTimeoutSeconds is 0; it must be";
    assert!(error.contains(part), "{error}");
}
