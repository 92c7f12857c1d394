use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use neonvm_types::{Revision, RevisionFlags};

use super::*;
use crate::{
    VirtualMachineSpec, VirtualMachineStatus,
    virtual_machine::{CpuBounds, Guest, MemorySlots},
};

const JSON: &str = concat!(
    r#"{"name":"vm","namespace":"default","cpu":{"min":"250m","max":1,"use":"500m"},"#,
    r#""mem":{"min":1,"max":4,"use":2,"slotSize":"1Gi"},"#,
    r#""config":{"autoMigrationEnabled":false,"alwaysMigrate":false,"scalingEnabled":true,"#,
    r#""scalingConfig":{"enableLFCMetrics":true}},"#,
    r#""currentRevision":{"revision":{"value":3,"flags":1},"updatedAt":"2024-07-01T11:00:00Z"}}"#
);

fn map(entries: &[(&str, &str)]) -> Option<Map> {
    Some(entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
}

fn vm(annotations: &[(&str, &str)]) -> VirtualMachine {
    let cpus = CpuBounds { min: MilliCpu::new(250), max: MilliCpu::new(1000), r#use: MilliCpu::new(500) };
    let slots = MemorySlots { min: 1, max: 4, r#use: 2 };
    let mut vm = VirtualMachine::new("vm", VirtualMachineSpec::new(Guest::new(cpus, slots, "img")));
    vm.metadata.namespace = Some("default".into());
    vm.metadata.labels = map(&[(label::SCALING_ENABLED, "true"), (label::ALWAYS_MIGRATE, "yes")]);
    vm.metadata.annotations = map(annotations);
    vm.status = Some(VirtualMachineStatus {
        current_revision: Some(RevisionWithTime {
            revision: Revision { value: 3, flags: RevisionFlags::UPSCALE },
            updated_at: "2024-07-01T11:00:00Z".parse().ok(),
        }),
        ..VirtualMachineStatus::default()
    });
    vm
}

/// The pod that the controller would make, name apart.
fn pod(vm: &VirtualMachine) -> Pod {
    let mut labels = vm.metadata.labels.clone().unwrap_or_default();
    labels.insert(label::VM_NAME.into(), "vm".into());
    let mut annotations = vm.metadata.annotations.clone().unwrap_or_default();
    let resources = serde_json::to_string(&PodResources::from_spec(&vm.spec)).unwrap();
    annotations.insert(annotation::RESOURCES.into(), resources);
    let metadata = ObjectMeta {
        name: Some("vm-abcde".into()),
        namespace: Some("default".into()),
        labels: Some(labels),
        annotations: Some(annotations),
        ..ObjectMeta::default()
    };
    Pod { metadata, ..Pod::default() }
}

const CONFIG: (&str, &str) = (annotation::CONFIG, r#"{"enableLFCMetrics":true,"unknown":[]}"#);

#[test]
fn json_is_as_specified() {
    let info = VmInfo::from_vm(&vm(&[CONFIG])).unwrap();
    assert_eq!(serde_json::to_string(&info).unwrap(), JSON);
    assert_eq!(serde_json::from_str::<VmInfo>(JSON).unwrap(), info);
}

#[test]
fn a_pod_gives_the_same_but_for_the_revision() {
    let vm = vm(&[CONFIG]);
    let mut expected = VmInfo::from_vm(&vm).unwrap();
    expected.current_revision = None;
    assert_eq!(VmInfo::from_pod(&pod(&vm)), Ok(expected));
}

/// Upstream dereferences nothing here.
#[test]
fn a_pod_without_its_annotation_is_an_error() {
    let mut pod = pod(&vm(&[]));
    pod.metadata.annotations = None;
    assert_eq!(VmInfo::from_pod(&pod), Err(VmInfoError::MissingKey("vm.neon.tech/resources")));
    pod.metadata.labels = None;
    assert_eq!(VmInfo::from_pod(&pod), Err(VmInfoError::MissingKey("vm.neon.tech/name")));
    pod.metadata.namespace = None;
    assert_eq!(VmInfo::from_pod(&pod), Err(VmInfoError::MissingMetadata("namespace")));
}

#[test]
fn bounds_replace_those_of_the_spec() {
    let bounds = r#"{"min":{"cpu":1,"mem":"2Gi"},"max":{"cpu":"2","mem":8589934592}}"#;
    let mut info = VmInfo::from_vm(&vm(&[(annotation::BOUNDS, bounds)])).unwrap();
    assert_eq!(info.min(), Resources::new(MilliCpu::from_cpus(1), Bytes::gib(2)));
    assert_eq!(info.max(), Resources::new(MilliCpu::from_cpus(2), Bytes::gib(8)));
    assert_eq!(info.using(), Resources::new(MilliCpu::new(500), Bytes::gib(2)));
    assert!(info.is_out_of_bounds());
    assert_eq!(info.set_using(Resources::new(MilliCpu::from_cpus(2), Bytes::mib(3500))), Some(()));
    assert_eq!(info.using(), Resources::new(MilliCpu::from_cpus(2), Bytes::gib(3)));
    assert!(!info.is_out_of_bounds());
    assert_eq!(info.set_using(Resources::new(MilliCpu::from_cpus(1), Bytes::gib(65_536))), None);
    assert_eq!(info.using().mem, Bytes::gib(3));
}

#[test]
fn every_amount_of_cpu_is_a_bound() {
    let bounds = r#"{"min":{"cpu":"1m","mem":"1Gi"},"max":{"cpu":513,"mem":"4Gi"}}"#;
    let info = VmInfo::from_vm(&vm(&[(annotation::BOUNDS, bounds)])).unwrap();
    assert_eq!((info.min().vcpus, info.max().vcpus), (MilliCpu::new(1), MilliCpu::from_cpus(513)));
}

#[test]
fn errors_name_the_annotation_and_the_field() {
    for (key, value, text) in [
        (annotation::BOUNDS, "{", "annotation autoscaling.neon.tech/bounds: EOF while parsing"),
        (
            annotation::BOUNDS,
            r#"{"min":{"cpu":1,"mem":"1500Mi"},"max":{"cpu":2,"mem":"4Gi"}}"#,
            concat!(
                "annotation autoscaling.neon.tech/bounds: ",
                "min.mem: 1500Mi must be a multiple of the memory slot size 1Gi"
            ),
        ),
        (
            annotation::BOUNDS,
            r#"{"min":{"cpu":3,"mem":"1Gi"},"max":{"cpu":2,"mem":"4Gi"}}"#,
            "cpu: min 3 is above max 2",
        ),
        (
            annotation::BOUNDS,
            r#"{"min":{"cpu":1,"mem":"5Gi"},"max":{"cpu":2,"mem":"4Gi"}}"#,
            "mem: min 5Gi is above max 4Gi",
        ),
        (
            annotation::CONFIG,
            r#"{"memoryUsageFractionTarget":1}"#,
            "annotation autoscaling.neon.tech/config: memoryUsageFractionTarget: 1 must be above 0 and below 1",
        ),
    ] {
        let error = VmInfo::from_vm(&vm(&[(key, value)])).unwrap_err().to_string();
        assert!(error.starts_with(text), "{error}");
    }
}

/// The derived readers would take a list for the fields in their order.
#[test]
fn a_list_is_no_object() {
    for (key, value) in [
        (annotation::CONFIG, "[]"),
        (annotation::CONFIG, "[0.7]"),
        (annotation::BOUNDS, r#"[["1","1Gi"],["2","4Gi"]]"#),
        (annotation::BOUNDS, r#"{"min":["1","1Gi"],"max":{"cpu":2,"mem":"4Gi"}}"#),
        (annotation::HOLD, r#"[{"vCPUs":1,"mem":"4Gi"},"2026-01-01T00:00:00Z"]"#),
        (annotation::HOLD, r#"{"size":[1,"4Gi"],"until":"2026-01-01T00:00:00Z"}"#),
        (annotation::METRIC, r#"["queue_depth",8]"#),
    ] {
        let machine = vm(&[(key, value)]);
        let error = VmInfo::from_vm(&machine).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("annotation {key}: invalid type: sequence, expected struct")),
            "{error}"
        );
        let mut object = serde_json::to_value(&machine).unwrap();
        let warnings = crate::admit("VirtualMachine", &mut object, None).warnings;
        assert!(warnings.iter().any(|warning| warning.message.contains("expected struct")), "{warnings:?}");
    }
}

#[test]
fn a_slot_size_of_zero_is_an_error() {
    let mut vm = vm(&[]);
    vm.spec.guest.memory_slot_size = Quantity::default();
    assert_eq!(VmInfo::from_vm(&vm), Err(VmInfoError::ZeroSlotSize));
    vm.spec.guest.memory_slot_size = "-1".parse().unwrap();
    assert!(matches!(VmInfo::from_vm(&vm), Err(VmInfoError::SlotSize(_))));
}

#[test]
fn labels_count_only_when_exactly_true() {
    for (value, on) in [("true", true), ("True", false), ("1", false), ("", false)] {
        let mut vm = vm(&[]);
        vm.metadata.labels = map(&[(label::AUTO_MIGRATION_ENABLED, value)]);
        assert_eq!(VmInfo::from_vm(&vm).unwrap().config.auto_migration_enabled, on, "{value}");
    }
}
