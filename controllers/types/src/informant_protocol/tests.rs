use std::fmt::Debug;

use proptest::prelude::*;
use serde::de::DeserializeOwned;

use super::{InformantProtoVersion as V, *};
use crate::{Bytes, MilliCpu};

const ID: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";

fn id() -> AgentId {
    ID.parse().unwrap()
}

/// Checks one example both ways; `ID` stands for the identity.
fn example<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T, json: &str) {
    let json = json
        .replace("ID", ID)
        .replace(&format!("agent{ID}"), "agentID")
        .replace(&format!("expected{ID}"), "expectedID");
    assert_eq!(serde_json::to_string(value).unwrap(), json);
    assert_eq!(&serde_json::from_str::<T>(&json).unwrap(), value);
}

#[test]
fn registration() {
    let agent = AgentDesc {
        agent_id: id(),
        agent_serve_addr: "10.244.1.5:36591".into(),
        min_proto_version: V::V1_0,
        max_proto_version: V::V2_0,
    };
    example(
        &agent,
        r#"{"agentID":"ID","agentServeAddr":"10.244.1.5:36591","minProtoVersion":1,"maxProtoVersion":4}"#,
    );
    assert_eq!(agent.versions().highest_shared(&VersionRange::only(V::V2_0)), Some(V::V2_0));
    let mut informant = InformantDesc {
        proto_version: V::V2_0,
        metrics_method: MetricsMethod { prometheus: Some(MetricsMethodPrometheus { port: 9100 }) },
    };
    example(&informant, r#"{"protoVersion":4,"metricsMethod":{"prometheus":{"port":9100}}}"#);
    informant.metrics_method.prometheus = None;
    example(&informant, r#"{"protoVersion":4,"metricsMethod":{}}"#);
    example(&UnregisterAgent { was_active: true }, r#"{"wasActive":true}"#);
}

#[test]
fn calls() {
    let identity = AgentIdentification { agent_id: id() };
    example(&identity, r#"{"agentID":"ID"}"#);
    example(
        &AgentIdentificationMessage { data: identity, sequence_number: 1 },
        r#"{"data":{"agentID":"ID"},"sequenceNumber":1}"#,
    );
    example(
        &MoreResourcesRequest { cpu: false, memory: true, expected_id: id() },
        r#"{"cpu":false,"memory":true,"expectedID":"ID"}"#,
    );
    example(&ExpectedAgent { expected_id: id() }, r#"{"expectedID":"ID"}"#);
    example(&DownscaleResult { ok: true, status: "...".into() }, r#"{"Ok":true,"Status":"..."}"#);
    example(&Empty {}, "{}");
    let request = MoreResourcesRequest { cpu: true, memory: false, expected_id: id() };
    assert_eq!(request.more(), MoreResources { cpu: true, memory: false });
}

#[test]
fn changes_of_size() {
    let resources = Resources::new(MilliCpu::new(250), Bytes::gib(1));
    let raw = RawResources::from(resources);
    example(&raw, r#"{"cpu":"250m","memory":"1Gi"}"#);
    example(&RawResources::default(), r#"{"cpu":null,"memory":null}"#);
    let RawResources { cpu, memory } = raw;
    let data = ResourceMessage { cpu, memory, id: AgentIdentification { agent_id: id() } };
    let message = AgentResourceMessage { data, sequence_number: 3 };
    example(&message, r#"{"data":{"cpu":"250m","memory":"1Gi","id":{"agentID":"ID"}},"sequenceNumber":3}"#);
    let body = serde_json::to_vec(&message).unwrap();
    assert_eq!(decode_resources(&body, V::V2_0), Ok((raw, Some((id(), 3)))));
    let body = serde_json::to_vec(&raw).unwrap();
    assert_eq!(decode_resources(&body, V::V1_2), Ok((raw, None)));
}

#[test]
fn errors_name_the_field() {
    let signed = |json: &str| {
        decode_resources(json.replace("ID", ID).replace(&format!("agent{ID}"), "agentID").as_bytes(), V::V2_0)
    };
    for (json, part) in [
        (
            r#"{"data":{"cpu":"x","id":{"agentID":"ID"}},"sequenceNumber":1}"#,
            "data: cpu: \"x\" is not a quantity",
        ),
        (r#"{"data":{"id":{"agentID":"me"}},"sequenceNumber":1}"#, "data: id: agentID: \"me\" is not a UUID"),
        (r#"{"data":{"id":{"agentID":"ID"}},"sequenceNumber":0}"#, "sequenceNumber must not be 0"),
        (r#"{"data":{"id":{"agentID":"ID"}},"sequenceNumber":-2}"#, "sequenceNumber: invalid value"),
        (r#"{"sequenceNumber":1}"#, "missing field `data`"),
    ] {
        let error = signed(json).unwrap_err().to_string();
        assert!(error.contains(part), "{json}: {error}");
    }
}

#[test]
fn identities_are_lower_case() {
    assert_eq!(ID.to_uppercase().parse::<AgentId>().unwrap().to_string(), ID);
    assert_eq!(AgentId::default().to_string(), "00000000-0000-0000-0000-000000000000");
    for text in
        ["", "67e5504410b1426f9247bb680e5fe0c8", &ID[1..], &ID.replace('6', "g"), &ID.replace('6', "é")]
    {
        assert!(text.parse::<AgentId>().is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn decoding_undoes_encoding(bits: u128, sequence_number in 1u64.., milli: Option<u32>, mem: Option<u64>) {
        let data = ResourceMessage {
            cpu: milli.map(|milli| MilliCpu::new(milli).to_quantity()),
            memory: mem.map(|mem| Bytes::new(mem).to_quantity()),
            id: AgentIdentification { agent_id: AgentId::new(bits) },
        };
        let message = AgentMessage { data, sequence_number };
        let json = serde_json::to_string(&message).unwrap();
        prop_assert_eq!(serde_json::from_str::<AgentResourceMessage>(&json).unwrap(), message);
    }

    #[test]
    fn any_bytes_are_decoded_or_rejected(body: Vec<u8>) {
        let _ = decode_resources(&body, V::V2_0);
        let _ = decode_resources(&body, V::V1_0);
        let _ = serde_json::from_slice::<AgentDesc>(&body);
        let _ = serde_json::from_slice::<MoreResourcesRequest>(&body);
    }
}
