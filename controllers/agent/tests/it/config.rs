//! The configuration file: upstream's is accepted as it is, and each invalid value is refused by its name.

use neonvm_agent::AgentConfig;
use serde_json::{Value, json};

/// The file that upstream's deployments ship, with every client that is optional there and supported here.
fn shipped() -> Value {
    let rate = |threshold: u32| json!({ "intervalSeconds": 120, "threshold": threshold });
    let push = |more: Value| {
        let mut client =
            json!({ "pushEverySeconds": 60, "pushRequestTimeoutSeconds": 5, "maxBatchSize": 2000 });
        client.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        client
    };
    let s3 =
        push(json!({ "bucket": "b", "region": "r", "endpoint": "http://minio:9000", "prefixInBucket": "p" }));
    json!({
        "refereshStateIntervalSeconds": 5,
        "scaling": { "computeUnit": { "vCPUs": 0.25, "mem": "1Gi" }, "defaultConfig": {
            "loadAverageFractionTarget": 0.9, "memoryUsageFractionTarget": 0.75, "memoryTotalFractionTarget": 0.9,
            "enableLFCMetrics": false, "lfcUseLargestWindow": false, "lfcToMemoryRatio": 0.75,
            "lfcWindowSizeMinutes": 5, "lfcMinWaitBeforeDownscaleMinutes": 5,
            "cpuStableZoneRatio": 0, "cpuMixedZoneRatio": 0 } },
        "billing": { "cpuMetricName": "effective_compute_seconds", "activeTimeMetricName": "active_time_seconds",
            "collectEverySeconds": 4, "accumulateEverySeconds": 24,
            "clients": { "http": push(json!({ "url": "http://billing:1234" })), "s3": s3 } },
        "scalingEvents": { "cuMultiplier": 0.25, "rereportThreshold": 0.25, "regionName": "replaceme",
            "clients": { "s3": s3 } },
        "monitor": { "serverPort": 10301, "responseTimeoutSeconds": 5, "connectionTimeoutSeconds": 4,
            "connectionRetryMinWaitSeconds": 5, "unhealthyAfterSilenceDurationSeconds": 20,
            "unhealthyStartupGracePeriodSeconds": 20, "maxHealthCheckSequentialFailuresSeconds": 30,
            "retryDeniedDownscaleSeconds": 5, "requestedUpscaleValidSeconds": 10, "retryFailedRequestSeconds": 3,
            "maxFailedRequestRate": rate(2) },
        "metrics": { "system": { "port": 9100, "requestTimeoutSeconds": 2, "secondsBetweenRequests": 5 },
            "lfc": { "port": 9499, "requestTimeoutSeconds": 5, "secondsBetweenRequests": 15 } },
        "scheduler": { "schedulerName": "autoscale-scheduler", "requestTimeoutSeconds": 2,
            "requestAtLeastEverySeconds": 15, "retryFailedRequestSeconds": 3, "retryDeniedUpscaleSeconds": 2,
            "requestPort": 10299, "maxFailedRequestRate": rate(5) },
        "neonvm": { "requestTimeoutSeconds": 10, "retryFailedRequestSeconds": 5, "maxFailedRequestRate": rate(2) },
        "dumpState": { "port": 10300, "timeoutSeconds": 5 },
    })
}

/// Pointers to all values that are no objects.
fn leaves(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(all) => {
            all.iter().for_each(|(key, value)| leaves(value, &format!("{at}/{key}"), found));
        }
        _ => found.push(at.to_owned()),
    }
}

/// It is accepted, and changes nothing.
const IDLE: &str = "/refereshStateIntervalSeconds";

fn error(document: &Value) -> Option<String> {
    AgentConfig::parse(&document.to_string(), "agent.json").err().map(|error| error.to_string())
}

/// A pointer as people write it.
fn dotted(pointer: &str) -> String {
    pointer.trim_start_matches('/').replace('/', ".")
}

/// The last key, which is all that errors about what is missing can name.
fn last(pointer: &str) -> &str {
    pointer.rsplit('/').next().unwrap()
}

#[test]
fn the_shipped_file_is_accepted_and_keeps_its_values() {
    let config = AgentConfig::parse(&shipped().to_string(), "agent.json").unwrap();
    let again = serde_json::to_value(&config).unwrap();
    assert_eq!(AgentConfig::parse(&again.to_string(), "agent.json").unwrap(), config);
    let mut keys = Vec::new();
    leaves(&shipped(), "", &mut keys);
    for key in keys.into_iter().filter(|key| key != IDLE) {
        let (read, given) = (again.pointer(&key), shipped().pointer(&key).cloned());
        let same =
            read.is_some() && (read.cloned() == given || read.unwrap().as_f64() == given.unwrap().as_f64());
        // Amounts have several spellings.
        assert!(same || key.contains("computeUnit"), "{key}: {read:?}");
    }
}

/// Each value, replaced by each kind of nonsense: never accepted silently, and always named.
#[test]
fn every_value_of_the_wrong_kind_is_named() {
    let mut keys = Vec::new();
    leaves(&shipped(), "", &mut keys);
    assert!(keys.len() > 60, "{keys:?}");
    keys.retain(|key| key != IDLE);
    let nonsense = [json!(-1), json!("many"), json!([]), json!({}), json!(true), json!(1e300), json!(null)];
    for key in keys {
        let good = shipped().pointer(&key).cloned().unwrap();
        for wrong in &nonsense {
            // Texts may be any, switches may be on; null is the same as absent, which may have a default.
            let text = good.is_string() && wrong.is_string() && !key.contains("mem");
            let switch = good.is_boolean() && wrong.is_boolean();
            let mut document = shipped();
            *document.pointer_mut(&key).unwrap() = wrong.clone();
            match error(&document) {
                Some(error) => {
                    let name = if wrong.is_null() { last(&key) } else { &dotted(&key) };
                    assert!(error.contains(name), "{key} = {wrong}: {error}");
                    assert!(error.starts_with("agent.json: "), "{error}");
                }
                None => assert!(
                    text && !key.ends_with("url") && !key.ends_with("endpoint")
                        || switch
                        || wrong.is_null() && has_default(&key)
                        || is_wide(&key, wrong),
                    "{key} = {wrong} is accepted"
                ),
            }
        }
    }
}

/// Whether a file need not set a key.
fn has_default(key: &str) -> bool {
    serde_json::to_value(AgentConfig::default()).unwrap().pointer(key).is_some()
}

/// Values without an upper end.
fn is_wide(key: &str, wrong: &Value) -> bool {
    let wide =
        ["cuMultiplier", "rereportThreshold", "lfcToMemoryRatio", "cpuStableZoneRatio", "cpuMixedZoneRatio"];
    wide.contains(&last(key)) && *wrong == json!(1e300)
}

/// Zero where something has to be, and numbers of seconds that are meant to be milliseconds.
#[test]
fn zero_and_too_much_are_named() {
    let mut keys = Vec::new();
    leaves(&shipped(), "", &mut keys);
    let may_be_zero = [
        "unhealthyStartupGracePeriodSeconds",
        "threshold",
        "cpuStableZoneRatio",
        "cpuMixedZoneRatio",
        "lfcMinWaitBeforeDownscaleMinutes",
    ];
    for key in keys.into_iter().filter(|key| key != IDLE) {
        let Some(good) = shipped().pointer(&key).cloned().filter(Value::is_number) else { continue };
        let seconds = last(&key).contains("econds") && !key.contains("referesh");
        let wrong = [
            (json!(0), !may_be_zero.contains(&last(&key))),
            (json!(86_401), seconds),
            (json!(65_536), last(&key).to_lowercase().ends_with("port")),
        ];
        for (wrong, _) in wrong.iter().filter(|(_, applies)| *applies) {
            let mut document = shipped();
            *document.pointer_mut(&key).unwrap() = wrong.clone();
            let error =
                error(&document).unwrap_or_else(|| panic!("{key} = {wrong} instead of {good} is accepted"));
            assert!(error.contains(&dotted(&key)), "{key} = {wrong}: {error}");
        }
    }
}

/// Each key, missing and misspelt.
#[test]
fn missing_and_unknown_keys_are_named() {
    let mut keys = Vec::new();
    leaves(&shipped(), "", &mut keys);
    let optional = ["endpoint", "prefixInBucket", "refereshStateIntervalSeconds"];
    for key in keys {
        let (parent, name) = key.rsplit_once('/').unwrap();
        let mut missing = shipped();
        let object = missing.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        let value = object.remove(name).unwrap();
        match error(&missing) {
            Some(error) => assert!(error.contains(name), "{key}: {error}"),
            None => assert!(optional.contains(&name) || has_default(&key), "{key} may be absent"),
        }
        // Sizes and targets take unknown keys: they are those of annotations, which others write too.
        if !key.starts_with("/scaling/") {
            let mut misspelt = missing;
            let object = misspelt.pointer_mut(parent).unwrap().as_object_mut().unwrap();
            object.insert(format!("{name}s"), value);
            let error = error(&misspelt).unwrap_or_else(|| panic!("{key}s is accepted"));
            assert!(error.contains(&format!("{name}s")), "{key}: {error}");
        }
    }
}

#[test]
fn what_is_no_document_is_refused() {
    for text in ["", "{", "[]", "null", "7", "{\"scaling\": }", "\u{feff}{}", "{} trailing"] {
        let error = AgentConfig::parse(text, "agent.json").unwrap_err().to_string();
        assert!(error.starts_with("agent.json: "), "{text}: {error}");
    }
    let twice = shipped().to_string().replacen('{', "{\"neonvm\":{},", 1);
    assert!(AgentConfig::parse(&twice, "agent.json").is_err());
    let good = shipped().to_string();
    assert!(AgentConfig::parse(&format!("{good} {good}"), "agent.json").is_err());
    assert!(AgentConfig::parse(&format!(" {good}\n"), "agent.json").is_ok());
    let error = AgentConfig::read(std::path::Path::new("/nonexistent/agent.json")).unwrap_err().to_string();
    assert!(error.contains("/nonexistent/agent.json"), "{error}");
}

/// `[0.7]` is no object, at any depth.
#[test]
fn a_list_stands_for_no_object() {
    for (path, changed) in neonvm_test_support::lists::for_objects(&shipped()) {
        assert!(error(&changed).is_some(), "{path}");
    }
}
