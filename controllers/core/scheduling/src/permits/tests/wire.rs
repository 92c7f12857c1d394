//! Every version of the protocol.

use neonvm_types::scheduler_protocol::decode_request;
use neonvm_types::version::{PluginProtoVersion, VersionRange};
use serde_json::{Value, json};

use super::*;

fn answer(state: &mut State, body: &Value) -> Result<String, (u16, String)> {
    let accepted = VersionRange { min: PluginProtoVersion::V1_0, max: PluginProtoVersion::V5_0 };
    let request = decode_request(body.to_string().as_bytes(), accepted).unwrap();
    let answer = state.answer(at(1), &request).map_err(|error| (error.status(), error.to_string()))?;
    Ok(serde_json::to_string(&answer).unwrap())
}

fn small(pod: &str) -> PodSeen {
    let mut pod = vm(pod, "n", 0, 0);
    pod.vm.as_mut().unwrap().max = Some(Resources::new(MilliCpu::from_cpus(4), Bytes::gib(16)));
    pod.usage = Pair::new(1000, 4 * GI);
    pod
}

/// Defect 20: v3.0 works, and its last permit is converted; so do all others.
#[test]
fn d20_all_versions_are_answered_in_their_own_words() {
    for version in 1..=7 {
        // Three CPUs and twelve gibibytes of four.
        let mut state = state(Pair::new(3000, 12 * GI));
        state.step(at(0), seen(small("p")));
        let pod = json!({ "namespace": "d", "name": "p" });
        let mut body = json!({ "protoVersion": version, "pod": pod, "metrics": { "loadAvg1M": 0.5 } });
        let slots = version < 6;
        body["resources"] =
            if slots { json!({ "vCPUs": 4, "mem": 16 }) } else { json!({ "vCPUs": 4, "mem": "16Gi" }) };
        if version < 7 {
            body["metrics"]["loadAvg5M"] = json!(0.5);
        }
        match version {
            4 | 5 => body["lastPermit"] = json!({ "vCPUs": 1, "mem": 4 }),
            6 | 7 => {
                body["lastPermit"] = json!({ "vCPUs": 1, "mem": "4Gi" });
                body["computeUnit"] = json!({ "vCPUs": "250m", "mem": "1Gi" });
            }
            _ => {}
        }
        if version == 6 {
            body["metrics"]["memoryUsageBytes"] = json!(1.0);
        }
        let expected = match version {
            // Whole CPUs only: so is the unit.
            1 | 2 => r#"{"permit":{"vCPUs":3,"mem":12},"resourceUnit":{"vCPUs":1,"mem":4}}"#,
            3 | 4 => r#"{"permit":{"vCPUs":3,"mem":12},"resourceUnit":{"vCPUs":"250m","mem":1}}"#,
            5 => r#"{"permit":{"vCPUs":3,"mem":12}}"#,
            _ => r#"{"permit":{"vCPUs":3,"mem":"12Gi"}}"#,
        };
        assert_eq!(answer(&mut state, &body).unwrap(), expected, "version {version}");
        assert_eq!(state.inspect().nodes[0].pods[0].load, Some(0.5));
        if version >= 2 {
            // #909, #910: no metrics are no reason to crash.
            body["metrics"] = Value::Null;
            assert_eq!(answer(&mut state, &body).unwrap(), expected);
        }
    }
}

/// A unit of 1536Mi on slots of 1Gi: parts are granted in units of one slot, and old agents learn that unit.
#[test]
fn a_unit_that_does_not_fit_the_slots_is_whole_slots() {
    let unit = Resources::new(MilliCpu::new(250), Bytes::mib(1536));
    let settings = Settings { compute_unit: unit, ..Settings::default() };
    let mut state = State::new(settings);
    state.step(at(0), node("n", Pair::new(3100, 13 * GI + GI / 2)));
    state.step(at(0), Event::Listed);
    state.step(at(0), seen(small("p")));
    let pod = json!({ "namespace": "d", "name": "p" });
    let body = json!({ "protoVersion": 4, "pod": pod, "resources": { "vCPUs": 4, "mem": 16 },
        "lastPermit": { "vCPUs": 1, "mem": 4 }, "metrics": { "loadAvg1M": 0.5, "loadAvg5M": 0.5 } });
    let expected = r#"{"permit":{"vCPUs":3,"mem":12},"resourceUnit":{"vCPUs":"250m","mem":1}}"#;
    assert_eq!(answer(&mut state, &body).unwrap(), expected);
    let body = json!({ "protoVersion": 7, "pod": pod, "resources": { "vCPUs": 4, "mem": "16Gi" },
        "lastPermit": null, "computeUnit": unit, "metrics": { "loadAvg1M": 0.5 } });
    assert_eq!(answer(&mut state, &body).unwrap(), r#"{"permit":{"vCPUs":3,"mem":"12Gi"}}"#);
}
