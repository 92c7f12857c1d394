use proptest::prelude::*;

use super::*;

fn res(milli: u32, bytes: u64) -> Resources {
    Resources::new(MilliCpu::new(milli), Bytes::new(bytes))
}

fn any_resources() -> impl Strategy<Value = Resources> {
    (any::<u32>(), any::<u64>()).prop_map(|(milli, bytes)| res(milli, bytes))
}

#[test]
fn encodes_both_generations() {
    let json = |value: &Resources| serde_json::to_string(value).unwrap();
    assert_eq!(json(&res(250, 1 << 30)), r#"{"vCPUs":"250m","mem":"1Gi"}"#);
    assert_eq!(json(&Resources::default()), r#"{"vCPUs":0,"mem":0}"#);
    let slots = SlotResources::new(MilliCpu::new(250), 1);
    assert_eq!(serde_json::to_string(&slots).unwrap(), r#"{"vCPUs":"250m","mem":1}"#);
}

#[test]
fn errors_name_the_field() {
    for (json, start) in [
        (r#"{"vCPUs":-1,"mem":1}"#, "vCPUs: -1 is out of range"),
        (r#"{"vCPUs":1,"mem":"-1Gi"}"#, "mem: -1Gi is out of range"),
        (r#"{"vCPUs":true}"#, "vCPUs: invalid type: boolean"),
        (r#"{"mem":""}"#, "mem: a quantity is expected"),
    ] {
        let error = serde_json::from_str::<Resources>(json).unwrap_err().to_string();
        assert!(error.starts_with(start), "{error}");
    }
    for json in [r#"{"vCPUs":1,"mem":65536}"#, r#"{"vCPUs":1,"mem":-1}"#] {
        let error = serde_json::from_str::<SlotResources>(json).unwrap_err().to_string();
        assert!(error.starts_with("mem: invalid value: integer"), "{error}");
    }
}

#[test]
fn missing_and_null_fields_are_zero() {
    for json in ["{}", r#"{"vCPUs":null,"mem":null}"#] {
        assert_eq!(serde_json::from_str::<Resources>(json).unwrap(), Resources::default());
        assert_eq!(serde_json::from_str::<SlotResources>(json).unwrap(), SlotResources::default());
    }
}

#[test]
fn zero_fields_are_refused_by_name() {
    assert_eq!(res(0, 0).validate_non_zero(), Err(ResourcesError::ZeroCpu));
    assert_eq!(res(1, 0).validate_non_zero(), Err(ResourcesError::ZeroMemory));
    assert_eq!(res(1, 1).validate_non_zero(), Ok(()));
}

#[test]
fn greater_and_less_can_hold_at_once() {
    let (wide, tall) = (res(1000, 1), res(250, 2));
    assert!(wide.any_greater(tall) && wide.any_less(tall));
    assert!(!wide.any_greater(wide) && !wide.any_less(wide));
    assert_eq!(wide.increase_from(tall), MoreResources { cpu: true, memory: false });
}

#[test]
fn division_needs_exact_equal_quotients() {
    let unit = res(250, 1 << 30);
    assert_eq!(res(1000, 4 << 30).exact_quotient(unit), Some(4));
    assert_eq!(res(0, 0).exact_quotient(unit), Some(0));
    assert_eq!(res(1000, 3 << 30).exact_quotient(unit), None);
    assert_eq!(res(1001, 4 << 30).exact_quotient(unit), None);
    assert_eq!(res(1000, (4 << 30) + 1).exact_quotient(unit), None);
    assert_eq!(res(1000, 1).exact_quotient(res(0, 1)), None);
    assert_eq!(res(1000, 1).exact_quotient(res(1, 0)), None);
    assert_eq!(
        res(65_536, 65_536).exact_quotient(res(1, 1)),
        None,
        "a quotient over 16 bits is not truncated"
    );
}

#[test]
fn slots_convert_both_ways_without_truncation() {
    let gib = Bytes::gib(1);
    let slots = SlotResources::new(MilliCpu::new(500), 3);
    assert_eq!(slots.to_bytes(gib), Ok(res(500, 3 << 30)));
    assert_eq!(SlotResources::from_bytes(res(500, 3 << 30), gib), Some(slots));
    assert_eq!(SlotResources::from_bytes(res(1, 65_536 << 30), gib), None);
    assert_eq!(
        slots.to_bytes(Bytes::MAX),
        Err(ResourcesError::MemoryOverflow { slots: 3, slot_size: Bytes::MAX })
    );
    let (cpu, memory) = slots.to_quantities(gib).unwrap();
    assert_eq!((cpu.to_string(), memory.to_string()), ("500m".to_owned(), "3Gi".to_owned()));
}

#[test]
fn flags_combine() {
    let cpu = MoreResources { cpu: true, memory: false };
    assert_eq!(cpu.not(), MoreResources { cpu: false, memory: true });
    assert_eq!(cpu.and(cpu.not()), MoreResources::default());
    assert_eq!(serde_json::to_string(&cpu.not()).unwrap(), r#"{"cpu":false,"memory":true}"#);
}

proptest! {
    #[test]
    fn decoding_undoes_encoding(value in any_resources(), slots: u16) {
        let text = serde_json::to_string(&value).unwrap();
        prop_assert_eq!(serde_json::from_str::<Resources>(&text).unwrap(), value);
        prop_assert_eq!(value.to_annotation(), text);
        let slots = SlotResources::new(value.vcpus, slots);
        let text = serde_json::to_string(&slots).unwrap();
        prop_assert_eq!(serde_json::from_str::<SlotResources>(&text).unwrap(), slots);
    }

    #[test]
    fn a_product_divides_back(milli in 1u32..60_000, bytes in 1u64..1 << 40, factor: u16) {
        let unit = res(milli, bytes);
        prop_assert_eq!(unit.checked_mul(factor).and_then(|product| product.exact_quotient(unit)), Some(factor));
    }

    #[test]
    fn arithmetic_agrees_and_never_wraps(a in any_resources(), b in any_resources()) {
        prop_assert!(!a.saturating_add(b).any_less(a));
        prop_assert!(!a.saturating_sub(b).any_greater(a));
        prop_assert_eq!(a.abs_diff(b), b.abs_diff(a));
        prop_assert_eq!(a.min(b).saturating_add(a.abs_diff(b)), a.max(b));
        if let Some(sum) = a.checked_add(b) {
            prop_assert_eq!(sum, a.saturating_add(b));
            prop_assert_eq!(sum.saturating_sub(b), a);
        }
    }

    #[test]
    fn any_bytes_are_decoded_or_rejected(body: Vec<u8>) {
        let _ = serde_json::from_slice::<Resources>(&body);
        let _ = serde_json::from_slice::<SlotResources>(&body);
    }
}
