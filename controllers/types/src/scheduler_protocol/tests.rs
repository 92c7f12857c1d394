use proptest::{option, prelude::*};

use super::{PluginProtoVersion as P, *};
use crate::MilliCpu;

const ALL: VersionRange<P> = VersionRange::new(P::V1_0, P::V5_0);

const REQUEST_V5: &str = concat!(
    r#"{"protoVersion":7,"pod":{"namespace":"default","name":"vm-abc-xyz"},"#,
    r#""computeUnit":{"vCPUs":"250m","mem":"1Gi"},"resources":{"vCPUs":"500m","mem":"2Gi"},"#,
    r#""lastPermit":{"vCPUs":"250m","mem":"1Gi"},"metrics":{"loadAvg1M":0.3}}"#
);

fn res(milli: u32, gib: u32) -> Resources {
    Resources::new(MilliCpu::new(milli), Bytes::gib(gib))
}

fn request_v5() -> AgentRequest {
    AgentRequest {
        proto_version: P::V5_0,
        pod: NamespacedName::new("default", "vm-abc-xyz"),
        compute_unit: res(250, 1),
        resources: res(500, 2),
        last_permit: Some(res(250, 1)),
        metrics: Some(Metrics { load_avg_1m: 0.3, ..Metrics::default() }),
    }
}

fn slot_request(version: P) -> SlotAgentRequest {
    SlotAgentRequest {
        proto_version: version,
        pod: NamespacedName::new("ns", "p"),
        resources: SlotResources::new(MilliCpu::new(250), 1),
        last_permit: None,
        metrics: None,
    }
}

#[test]
fn request_v5_is_byte_exact() {
    assert_eq!(serde_json::to_string(&request_v5()).unwrap(), REQUEST_V5);
    assert_eq!(decode_request(REQUEST_V5.as_bytes(), ALL), Ok(SchedulerRequest::Bytes(request_v5())));
}

#[test]
fn first_request_has_nulls() {
    let request = AgentRequest { last_permit: None, metrics: None, ..request_v5() };
    let json = serde_json::to_string(&request).unwrap();
    assert!(json.ends_with(r#""lastPermit":null,"metrics":null}"#), "{json}");
    assert_eq!(decode_request(json.as_bytes(), ALL), Ok(SchedulerRequest::Bytes(request)));
}

#[test]
fn slot_request_has_a_last_permit_from_v2_1() {
    let json = serde_json::to_string(&slot_request(P::V2_0)).unwrap();
    assert_eq!(
        json,
        r#"{"protoVersion":3,"pod":{"namespace":"ns","name":"p"},"resources":{"vCPUs":"250m","mem":1},"metrics":null}"#
    );
    assert_eq!(decode_request(json.as_bytes(), ALL), Ok(SchedulerRequest::Slots(slot_request(P::V2_0))));
    let json = serde_json::to_string(&slot_request(P::V2_1)).unwrap();
    assert!(json.contains(r#""lastPermit":null"#), "{json}");
}

#[test]
fn metrics_of_each_generation() {
    let old = Metrics { load_avg_1m: 0.1, load_avg_5m: Some(0.2), memory_usage_bytes: None };
    assert_eq!(serde_json::to_string(&old).unwrap(), r#"{"loadAvg1M":0.1,"loadAvg5M":0.2}"#);
    for (value, text) in [(0.3f32, "0.3"), (1.0 / 3.0, "0.33333334"), (1e-7, "1e-7"), (1.0, "1"), (0.0, "0")]
    {
        let metrics = Metrics { load_avg_1m: value, ..Metrics::default() };
        assert_eq!(serde_json::to_string(&metrics).unwrap(), format!("{{\"loadAvg1M\":{text}}}"));
    }
}

#[test]
fn a_metric_that_is_not_finite_is_not_sent() {
    for value in [f32::NAN, f32::INFINITY] {
        assert!(serde_json::to_string(&Metrics { load_avg_1m: value, ..Metrics::default() }).is_err());
    }
}

#[test]
fn responses_are_byte_exact() {
    let mut response = PluginResponse::permit(res(500, 2));
    assert_eq!(serde_json::to_string(&response).unwrap(), r#"{"permit":{"vCPUs":"500m","mem":"2Gi"}}"#);
    response.migrate = Some(Migrate {});
    let json = serde_json::to_string(&response).unwrap();
    assert_eq!(json, r#"{"permit":{"vCPUs":"500m","mem":"2Gi"},"migrate":{}}"#);
    assert_eq!(PluginResponse::decode(json.as_bytes()), Ok(response));
    let unit = SlotResources::new(MilliCpu::new(250), 1);
    let response = PluginResponse { permit: unit, migrate: None, resource_unit: Some(unit) };
    let json = serde_json::to_string(&response).unwrap();
    assert_eq!(json, r#"{"permit":{"vCPUs":"250m","mem":1},"resourceUnit":{"vCPUs":"250m","mem":1}}"#);
    assert_eq!(serde_json::from_str::<PluginResponse<SlotResources>>(&json).unwrap(), response);
}

#[test]
fn errors_name_the_fault() {
    let with = |from: &str, to: &str| decode_request(REQUEST_V5.replace(from, to).as_bytes(), ALL);
    let v5_only = VersionRange::only(P::V5_0);
    for (result, text) in [
        (with("{", "<"), "cannot decode scheduler request: expected value at line 1 column 1"),
        (with(":7", ":0"), "protoVersion <invalid: zero> is not supported; supported: v1.0 to v5.0"),
        (with(":7", ":8"), "protoVersion <unknown = v5.0 + 1> is not supported; supported: v1.0 to v5.0"),
        (
            decode_request(REQUEST_V5.replace(":7", ":6").as_bytes(), v5_only),
            "protoVersion v4.0 is not supported; supported: v5.0",
        ),
        (with(r#""computeUnit":{"vCPUs":"250m","#, r#""computeUnit":{"#), "computeUnit: vCPUs must not be 0"),
        (with(r#""computeUnit":{"vCPUs":"250m","mem":"1Gi"},"#, ""), "computeUnit: vCPUs must not be 0"),
        (with(":7", ":6"), "metrics: loadAvg5M must be present in v4.0"),
        (
            with(r#"{"loadAvg1M":0.3}"#, r#"{"loadAvg1M":1,"loadAvg5M":1}"#),
            "metrics: loadAvg5M must be absent in v5.0",
        ),
        (
            with(r#"{"loadAvg1M":0.3}"#, r#"{"loadAvg1M":1,"memoryUsageBytes":1}"#),
            "metrics: memoryUsageBytes must be absent in v5.0",
        ),
    ] {
        assert_eq!(result.unwrap_err().to_string(), text);
    }
    let mut request = slot_request(P::V1_0);
    let decode = |request: &SlotAgentRequest| decode_request(&serde_json::to_vec(request).unwrap(), ALL);
    assert_eq!(decode(&request), Err(RequestError::MissingMetrics(P::V1_0)));
    request.metrics = Some(Metrics { load_avg_5m: Some(0.5), ..Metrics::default() });
    let error = decode(&request).unwrap_err().to_string();
    assert_eq!(error, "resources: vCPUs must be a whole number in v1.0");
}

#[test]
fn a_long_path_to_the_field_is_named() {
    let body = REQUEST_V5.replace(r#""lastPermit":{"vCPUs":"250m""#, r#""lastPermit":{"vCPUs":-1"#);
    let error = decode_request(body.as_bytes(), ALL).unwrap_err().to_string();
    assert!(error.contains("lastPermit: vCPUs: -1 is out of range"), "{error}");
    let body = REQUEST_V5.replace(":7", ":-7");
    let error = decode_request(body.as_bytes(), ALL).unwrap_err().to_string();
    assert!(error.contains("protoVersion: invalid value: integer `-7`"), "{error}");
}

#[test]
fn a_body_over_the_limit_is_refused_before_it_is_read() {
    let body = vec![b'{'; MAX_REQUEST_BYTES + 1];
    assert_eq!(decode_request(&body, ALL), Err(RequestError::TooLong(1025)));
}

/// Upstream multiplies only `resources` and rejects the missing compute unit, which shut old agents out.
#[test]
fn slots_of_the_last_permit_are_converted_too() {
    let request = SlotAgentRequest {
        last_permit: Some(SlotResources::new(MilliCpu::new(500), 2)),
        ..slot_request(P::V3_0)
    };
    let body = serde_json::to_vec(&request).unwrap();
    let Ok(SchedulerRequest::Slots(decoded)) = decode_request(&body, ALL) else { panic!("not accepted") };
    let converted = decoded.to_bytes(Bytes::gib(1), res(250, 1)).unwrap();
    assert_eq!(converted.last_permit, Some(res(500, 2)));
    assert_eq!(converted.resources, res(250, 1));
    assert_eq!(converted.compute_unit, res(250, 1));
}

fn any_resources() -> impl Strategy<Value = Resources> {
    (1u32.., 1u64..).prop_map(|(milli, bytes)| Resources::new(MilliCpu::new(milli), Bytes::new(bytes)))
}

fn any_metrics(extended: bool) -> impl Strategy<Value = Metrics> {
    let float = || prop::num::f32::NORMAL;
    (float(), float(), float()).prop_map(move |(one, five, memory)| Metrics {
        load_avg_1m: one,
        load_avg_5m: extended.then_some(five),
        memory_usage_bytes: extended.then_some(memory),
    })
}

fn any_request() -> impl Strategy<Value = AgentRequest> {
    let version = prop::sample::select(vec![P::V4_0, P::V5_0]);
    version.prop_flat_map(|version| {
        let metrics = option::of(any_metrics(version.includes_extended_metrics()));
        let parts =
            (any_resources(), any_resources(), option::of(any_resources()), metrics, "[a-z0-9-]{0,63}");
        parts.prop_map(move |(compute_unit, resources, last_permit, metrics, name)| AgentRequest {
            proto_version: version,
            pod: NamespacedName::new("ns", name),
            compute_unit,
            resources,
            last_permit,
            metrics,
        })
    })
}

proptest! {
    #[test]
    fn decoding_undoes_encoding(request in any_request()) {
        let body = serde_json::to_vec(&request).unwrap();
        prop_assert_eq!(decode_request(&body, ALL), Ok(SchedulerRequest::Bytes(request)));
    }

    #[test]
    fn decoding_undoes_encoding_of_slots(version in 1u32..6, cpus: u16, mem: u16, permit: Option<(u16, u16)>) {
        let version = P(version);
        let request = SlotAgentRequest {
            resources: SlotResources::new(MilliCpu::from_cpus(cpus), mem),
            last_permit: permit
                .filter(|_| version.has_last_permit())
                .map(|(cpus, mem)| SlotResources::new(MilliCpu::from_cpus(cpus), mem)),
            metrics: Some(Metrics { load_avg_1m: 0.5, load_avg_5m: Some(0.25), memory_usage_bytes: None }),
            ..slot_request(version)
        };
        let body = serde_json::to_vec(&request).unwrap();
        prop_assert_eq!(decode_request(&body, ALL), Ok(SchedulerRequest::Slots(request)));
    }

    #[test]
    fn any_bytes_are_decoded_or_rejected(body: Vec<u8>) {
        let _ = decode_request(&body, ALL);
        let _ = PluginResponse::decode(&body);
    }

    #[test]
    fn a_damaged_request_is_decoded_or_rejected(at in 0..REQUEST_V5.len(), byte: u8) {
        let mut body = REQUEST_V5.as_bytes().to_vec();
        body[at] = byte;
        let _ = decode_request(&body, ALL);
    }
}
