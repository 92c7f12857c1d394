use proptest::prelude::*;

use super::*;

fn texts(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn good_bounds_pass() {
    let json = r#"{"min":{"cpu":"250m","mem":"1Gi"},"max":{"cpu":1,"mem":"4Gi"}}"#;
    let bounds: ScalingBounds = serde_json::from_str(json).unwrap();
    assert_eq!(bounds.validate(Bytes::gib(1)), []);
    let numbers = r#"{"min":{"cpu":0.25,"mem":1073741824},"max":{"cpu":"1","mem":4294967296}}"#;
    assert_eq!(serde_json::from_str::<ScalingBounds>(numbers).unwrap(), bounds);
}

#[test]
fn every_fault_of_the_bounds_is_reported() {
    let json = r#"{"min":{"cpu":-1,"mem":"1500Mi"},"max":{"mem":"-1Gi"}}"#;
    let bounds: ScalingBounds = serde_json::from_str(json).unwrap();
    assert_eq!(
        texts(&bounds.validate(Bytes::gib(1))),
        [
            "min.cpu: -1 is out of range; it must be between 0 and 4294967295m",
            "min.mem: 1500Mi must be a multiple of the memory slot size 1Gi",
            "max.cpu: must be above 0; write for example \"250m\"",
            "max.mem: -1Gi is out of range; it must be between 0 and 18446744073709551615",
        ]
    );
    assert_eq!(texts(&ScalingBounds::default().validate(Bytes::gib(1))).len(), 4);
    let wide: ScalingBounds =
        serde_json::from_str(r#"{"min":{"cpu":1,"mem":"1Gi"},"max":{"cpu":1,"mem":"65536Gi"}}"#).unwrap();
    assert_eq!(
        texts(&wide.validate(Bytes::gib(1))),
        ["max.mem: 64Ti needs more than 65535 slots of 1Gi; lower it"]
    );
}

#[test]
fn what_is_shipped_is_complete_and_in_range() {
    assert_eq!(ScalingConfig::SHIPPED.validate_complete(), []);
    assert_eq!(ScalingConfig::default().validate(), []);
    assert_eq!(ScalingConfig::default().validate_complete().len(), 10);
}

#[test]
fn values_out_of_range_are_named() {
    for (json, text) in [
        (r#"{"loadAverageFractionTarget":0}"#, "loadAverageFractionTarget: 0 must be above 0 and below 2"),
        (r#"{"loadAverageFractionTarget":2}"#, "loadAverageFractionTarget: 2 must be above 0 and below 2"),
        (r#"{"memoryUsageFractionTarget":1}"#, "memoryUsageFractionTarget: 1 must be above 0 and below 1"),
        (
            r#"{"memoryTotalFractionTarget":-0.5}"#,
            "memoryTotalFractionTarget: -0.5 must be above 0 and below 1",
        ),
        (r#"{"lfcToMemoryRatio":0}"#, "lfcToMemoryRatio: 0 must be above 0"),
        (r#"{"lfcWindowSizeMinutes":1}"#, "lfcWindowSizeMinutes: 1 must be between 2 and 60"),
        (
            r#"{"lfcMinWaitBeforeDownscaleMinutes":61}"#,
            "lfcMinWaitBeforeDownscaleMinutes: 61 must be at most 60",
        ),
        (
            r#"{"lfcWindowSizeMinutes":9,"lfcMinWaitBeforeDownscaleMinutes":5}"#,
            "lfcMinWaitBeforeDownscaleMinutes: 5 must not be below lfcWindowSizeMinutes; raise it or shorten the window",
        ),
        (r#"{"cpuStableZoneRatio":-1}"#, "cpuStableZoneRatio: -1 must be 0 or more"),
        (r#"{"cpuMixedZoneRatio":-1}"#, "cpuMixedZoneRatio: -1 must be 0 or more"),
    ] {
        let config: ScalingConfig = serde_json::from_str(json).unwrap();
        assert_eq!(texts(&config.validate()), [text]);
    }
}

#[test]
fn overrides_win_field_by_field() {
    let overrides: ScalingConfig = serde_json::from_str(r#"{"enableLFCMetrics":true,"unknown":1}"#).unwrap();
    let merged = ScalingConfig::SHIPPED.with(overrides);
    assert_eq!(merged, ScalingConfig { enable_lfc_metrics: Some(true), ..ScalingConfig::SHIPPED });
    assert_eq!(serde_json::to_string(&overrides).unwrap(), r#"{"enableLFCMetrics":true}"#);
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_or_rejected(body: Vec<u8>) {
        let _ = serde_json::from_slice::<ScalingBounds>(&body).map(|bounds| bounds.validate(Bytes::gib(1)));
        let _ = serde_json::from_slice::<ScalingConfig>(&body).map(|config| config.validate_complete());
    }
}
