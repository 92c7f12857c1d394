use proptest::prelude::*;

use super::{MonitorProtoVersion as V, *};

fn agent_examples() -> Vec<(AgentMessage, u64, &'static str)> {
    vec![
        (
            AgentMessage::UpscaleNotification { granted: Allocation { cpu: 0.5, mem: 2 << 30 } },
            2,
            r#"{"content":{"granted":{"cpu":0.5,"mem":2147483648}},"type":"UpscaleNotification","id":2}"#,
        ),
        (
            AgentMessage::DownscaleRequest { target: Allocation { cpu: 0.25, mem: 1 << 30 } },
            4,
            r#"{"content":{"target":{"cpu":0.25,"mem":1073741824}},"type":"DownscaleRequest","id":4}"#,
        ),
        (AgentMessage::HealthCheck, 6, r#"{"content":{},"type":"HealthCheck","id":6}"#),
        (
            AgentMessage::InvalidMessage { error: "text".into() },
            3,
            r#"{"content":{"error":"text"},"type":"InvalidMessage","id":3}"#,
        ),
        (
            AgentMessage::InternalError { error: "text".into() },
            3,
            r#"{"content":{"error":"text"},"type":"InternalError","id":3}"#,
        ),
    ]
}

fn monitor_examples() -> Vec<(MonitorMessage, u64, &'static str)> {
    vec![
        (MonitorMessage::UpscaleRequest { wants: None }, 3, r#"{"type":"UpscaleRequest","id":3}"#),
        (MonitorMessage::UpscaleConfirmation, 2, r#"{"type":"UpscaleConfirmation","id":2}"#),
        (
            MonitorMessage::DownscaleResult { ok: true, status: "text".into() },
            4,
            r#"{"type":"DownscaleResult","Ok":true,"Status":"text","id":4}"#,
        ),
        (MonitorMessage::HealthCheck, 6, r#"{"type":"HealthCheck","id":6}"#),
        (
            MonitorMessage::InternalError { error: "text".into() },
            4,
            r#"{"type":"InternalError","error":"text","id":4}"#,
        ),
        (
            MonitorMessage::InvalidMessage { error: "text".into() },
            4,
            r#"{"type":"InvalidMessage","error":"text","id":4}"#,
        ),
    ]
}

#[test]
fn from_v2_on_an_upscale_request_has_amounts() {
    let wants = Wants { cpu: Some(MilliCpu::new(1500)), mem: None, reason: "3 runnable tasks".into() };
    let message = MonitorMessage::UpscaleRequest { wants: Some(wants) };
    let json = r#"{"type":"UpscaleRequest","wants":{"cpu":"1500m","reason":"3 runnable tasks"},"id":5}"#;
    assert_eq!(message.encode(5).unwrap(), json);
    assert_eq!(MonitorMessage::decode(json.as_bytes()), Ok((5, message)));
    let error =
        MonitorMessage::decode(br#"{"type":"UpscaleRequest","wants":{"cpu":[]},"id":5}"#).unwrap_err();
    assert_eq!(error.id, Some(5));
}

#[test]
fn agent_messages_are_wrapped() {
    for (message, id, json) in agent_examples() {
        assert_eq!(message.encode(id).unwrap(), json);
        assert_eq!(AgentMessage::decode(json.as_bytes()), Ok((id, message)));
    }
}

#[test]
fn monitor_messages_are_flat() {
    for (message, id, json) in monitor_examples() {
        assert_eq!(message.encode(id).unwrap(), json);
        assert_eq!(MonitorMessage::decode(json.as_bytes()), Ok((id, message)));
    }
}

#[test]
fn key_order_does_not_matter_and_unknown_keys_are_skipped() {
    let json =
        br#"{"id":4,"new":{"x":[1]},"type":"DownscaleRequest","content":{"y":1,"target":{"mem":1,"cpu":1}}}"#;
    let target = Allocation { cpu: 1.0, mem: 1 };
    assert_eq!(AgentMessage::decode(json), Ok((4, AgentMessage::DownscaleRequest { target })));
    let json = br#"{"id":4,"Status":"s","Ok":false,"type":"DownscaleResult"}"#;
    let message = MonitorMessage::DownscaleResult { ok: false, status: "s".into() };
    assert_eq!(MonitorMessage::decode(json), Ok((4, message)));
}

#[test]
fn a_wrong_message_is_an_error_with_its_number() {
    for (json, id, reason) in [
        (r#"{"type":"HealthCheck","id":6}"#, Some(6), "HealthCheck: content is missing"),
        (
            r#"{"content":{},"type":"DownscaleRequest","id":8}"#,
            Some(8),
            "DownscaleRequest: content.target is missing",
        ),
        (r#"{"content":{},"type":"Dance","id":8}"#, Some(8), "type \"Dance\" is not known"),
        (
            r#"{"content":{"granted":{"cpu":1,"mem":-1}},"type":"UpscaleNotification","id":2}"#,
            Some(2),
            "granted: mem: ",
        ),
        (r#"{"content":{},"type":"HealthCheck","id":-1}"#, None, "invalid value: integer `-1`"),
        (r#"{"content":{},"type":"HealthCheck"}"#, None, "missing field `id`"),
        ("nonsense", None, "expected ident"),
    ] {
        let error = AgentMessage::decode(json.as_bytes()).unwrap_err();
        assert_eq!(error.id, id, "{json}");
        assert!(error.reason.contains(reason), "{json}: {error}");
    }
}

/// Upstream reads ids as floats, which loses the low bit here.
#[test]
fn ids_above_two_to_the_53_are_exact() {
    let id = (1 << 53) + 1;
    let json = MonitorMessage::HealthCheck.encode(id).unwrap();
    assert_eq!(MonitorMessage::decode(json.as_bytes()), Ok((id, MonitorMessage::HealthCheck)));
}

#[test]
fn an_answer_must_be_of_the_kind_asked_for() {
    let (agent, monitor) = (agent_examples(), monitor_examples());
    let answered_by = |request: usize| -> Vec<usize> {
        (0..monitor.len()).filter(|answer| monitor[*answer].0.answers(&agent[request].0)).collect()
    };
    assert_eq!(answered_by(0), [1, 4, 5]);
    assert_eq!(answered_by(1), [2, 4, 5]);
    assert_eq!(answered_by(2), [3, 4, 5]);
}

#[test]
fn handshake() {
    let offer = br#"{"min":1,"max":2}"#;
    assert_eq!(decode_offer(offer), Ok(SUPPORTED));
    assert_eq!(serde_json::to_vec(&SUPPORTED).unwrap(), offer);
    let reply = HandshakeReply::to_offer(SUPPORTED, SUPPORTED);
    assert_eq!(serde_json::to_string(&reply).unwrap(), r#"{"version":2}"#);
    // An agent that speaks v1.0 only, as all others do.
    let old = decode_offer(br#"{"min":1,"max":1}"#).unwrap();
    assert_eq!(HandshakeReply::to_offer(old, SUPPORTED), HandshakeReply::Version(V::V1_0));
    let newer = VersionRange::new(V(3), V(4));
    let reply = HandshakeReply::to_offer(newer, SUPPORTED);
    let json = serde_json::to_string(&reply).unwrap();
    assert!(json.starts_with(r#"{"error":"no shared version: agent speaks "#), "{json}");
    assert_eq!(HandshakeReply::accept(br#"{"version":1}"#, SUPPORTED), Ok(V::V1_0));
    let refused = HandshakeReply::accept(br#"{"error":"no"}"#, SUPPORTED);
    assert_eq!(refused, Err(HandshakeError::Refused("no".into())));
}

#[test]
fn a_version_that_was_not_offered_is_refused() {
    for json in ["{\"version\":3}", "{\"version\":0}"] {
        let error = HandshakeReply::accept(json.as_bytes(), SUPPORTED).unwrap_err();
        assert!(matches!(error, HandshakeError::NotOffered { .. }), "{json}: {error}");
    }
    for json in ["{}", r#"{"version":1,"error":"x"}"#, r#"{"version":-1}"#] {
        let error = HandshakeReply::accept(json.as_bytes(), SUPPORTED).unwrap_err();
        assert!(matches!(error, HandshakeError::Decode(_)), "{json}: {error}");
    }
}

#[test]
fn numbers_of_both_sides_never_meet() {
    let (mut agent, mut monitor) = (MessageIds::AGENT, MessageIds::MONITOR);
    assert_eq!([agent.advance(), agent.advance(), agent.advance()], [2, 4, 6]);
    assert_eq!([monitor.advance(), monitor.advance(), monitor.advance()], [3, 5, 7]);
}

#[test]
fn allocations_convert_to_exact_units() {
    let resources = Resources::new(MilliCpu::new(333), Bytes::gib(1));
    let allocation = Allocation::from(resources);
    assert_eq!(serde_json::to_string(&allocation).unwrap(), r#"{"cpu":0.333,"mem":1073741824}"#);
    assert_eq!(allocation.to_resources(), Some(resources));
    for cpu in [f64::NAN, f64::INFINITY, -1.0, 1e300, 4_294_968.0] {
        assert_eq!(Allocation { cpu, mem: 1 }.to_resources(), None, "{cpu}");
    }
    assert!(
        AgentMessage::UpscaleNotification { granted: Allocation { cpu: f64::NAN, mem: 0 } }
            .encode(2)
            .is_err()
    );
}

proptest! {
    #[test]
    fn every_size_survives_the_wire(milli: u32, mem: u64, id: u64) {
        let resources = Resources::new(MilliCpu::new(milli), Bytes::new(mem));
        let message = AgentMessage::DownscaleRequest { target: resources.into() };
        let (decoded_id, decoded) = AgentMessage::decode(message.encode(id).unwrap().as_bytes()).unwrap();
        prop_assert_eq!(decoded_id, id);
        let AgentMessage::DownscaleRequest { target } = decoded else { panic!("another kind") };
        prop_assert_eq!(target.to_resources(), Some(resources));
    }

    #[test]
    fn any_text_survives_the_wire(text: String, ok: bool, id: u64) {
        let message = MonitorMessage::DownscaleResult { ok, status: text.clone() };
        prop_assert_eq!(MonitorMessage::decode(message.encode(id).unwrap().as_bytes()), Ok((id, message)));
        let message = AgentMessage::InvalidMessage { error: text };
        prop_assert_eq!(AgentMessage::decode(message.encode(id).unwrap().as_bytes()), Ok((id, message)));
    }

    #[test]
    fn any_bytes_are_decoded_or_rejected(body: Vec<u8>) {
        let _ = AgentMessage::decode(&body);
        let _ = MonitorMessage::decode(&body);
        let _ = HandshakeReply::decode(&body);
        let _ = decode_offer(&body);
    }
}

/// Bytes of other monitors: a field that is missing, or null, has Go's zero value, and any whole number is a number.
#[test]
fn what_upstream_reads_is_read() {
    let result = |ok, status: &str| MonitorMessage::DownscaleResult { ok, status: status.into() };
    for (json, id, message) in [
        (r#"{"type":"DownscaleResult","Ok":true,"id":4}"#, 4, result(true, "")),
        (r#"{"type":"DownscaleResult","Ok":true,"Status":null,"id":4}"#, 4, result(true, "")),
        (r#"{"type":"DownscaleResult","Status":"no","id":4}"#, 4, result(false, "no")),
        (r#"{"type":"DownscaleResult","id":4.0,"Ok":true,"Status":"s"}"#, 4, result(true, "s")),
        (r#"{"type":"HealthCheck","id":6e0}"#, 6, MonitorMessage::HealthCheck),
        (r#"{"type":"InternalError","id":6}"#, 6, MonitorMessage::InternalError { error: String::new() }),
    ] {
        assert_eq!(MonitorMessage::decode(json.as_bytes()), Ok((id, message)), "{json}");
    }
    for wrong in ["2.5", "-2.0", "1e300", "\"2\"", "true"] {
        let json = format!(r#"{{"type":"HealthCheck","id":{wrong}}}"#);
        assert_eq!(MonitorMessage::decode(json.as_bytes()).unwrap_err().id, None, "{json}");
    }
    let json = br#"{"content":{},"type":"HealthCheck","id":2.0}"#;
    assert_eq!(AgentMessage::decode(json), Ok((2, AgentMessage::HealthCheck)));
}
