//! The objects of the examples: each is read, decided, and explained.

use std::{fs, path::Path};

use neonvm_api::{PodAutoscaler, apply_defaults, normalise, pod_autoscaler::ScalingStrategy};
use neonvm_core_pod_autoscaler::{
    Memory, Observation, Observed, Settings, claim::Claim, decide, explain::explain, exposition::Query,
    hpa_object,
};

use crate::world::start;

fn all() -> Vec<(String, PodAutoscaler)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/podautoscaler");
    let folders = [folder.join("hpa"), folder];
    let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files
        .into_iter()
        .map(|file| {
            let mut object: serde_json::Value =
                serde_saphyr::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
            assert_eq!(normalise("PodAutoscaler", &mut object), [], "{file:?}");
            apply_defaults("PodAutoscaler", &mut object);
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            (name, serde_json::from_value(object).unwrap())
        })
        .collect()
}

#[test]
fn each_is_read_decided_and_explained() {
    let mut strategies = Vec::new();
    let mut sources = Vec::new();
    for (file, object) in all() {
        let (settings, warnings) =
            Settings::from_object(&object).unwrap_or_else(|faults| panic!("{file}: {faults:?}"));
        strategies.push(format!("{:?}", settings.strategy));
        sources.extend(
            object.spec.metrics_sources.iter().map(|source| format!("{:?}", source.metric_source_type)),
        );
        // Only the one with an older annotation has a warning.
        assert_eq!(warnings.len(), usize::from(file == "domain-optimizer.yaml"), "{file}: {warnings:?}");
        for source in &object.spec.metrics_sources {
            for engine in ["vllm", "sglang", "trtllm", "xllm", "other"] {
                assert!(Query::from_source(source, engine).is_ok(), "{file}");
            }
        }
        let metrics: Vec<Observed> = object
            .spec
            .metrics_sources
            .iter()
            .map(
                |source| {
                    if source.is_external() { Observed::total(60.0) } else { Observed::pods(&[1.0, 1.0]) }
                },
            )
            .collect();
        let observation = Observation { current: 2, ready: Some(2), metrics };
        let decision = decide(&settings, &mut Memory::default(), &observation, start());
        assert!(decision.desired >= 2, "{file}");
        assert!(explain(&decision, &settings).len() > settings.metrics.len(), "{file}");
        let wraps = hpa_object::build(&object, start()).is_ok();
        assert!(wraps || object.spec.scaling_strategy != ScalingStrategy::Hpa, "{file}");
    }
    for wanted in ["Hpa", "Kpa", "Apa"] {
        assert!(strategies.iter().any(|strategy| strategy == wanted), "{wanted}");
    }
    for wanted in ["Pod", "Resource", "Custom", "External", "Domain"] {
        assert!(sources.iter().any(|source| source == wanted), "{wanted}");
    }
}

/// Two roles of one `StormService` are two targets, and do not conflict.
#[test]
fn roles_of_one_target_do_not_overlap() {
    let claims: Vec<Claim> = all()
        .iter()
        .filter(|(file, _)| file == "storm-prefill.yaml" || file == "storm-decode.yaml")
        .map(|(_, object)| Claim::from_object(object))
        .collect();
    assert_eq!(claims[0].target, claims[1].target);
    assert!(!claims[0].overlaps(&claims[1]));
}
