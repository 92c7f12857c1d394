//! Which object scales a target that several claim.

use neonvm_api::PodAutoscaler;
use neonvm_core_pod_autoscaler::claim::{Claim, Foreign, Target, Verdict, resolve};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::world::{merge, object};

fn claimant(name: &str, minute: u32, patch: &Value) -> PodAutoscaler {
    let mut object = serde_json::to_value(object(&json!({"scalingStrategy": "KPA"}))).unwrap();
    object["metadata"]["name"] = json!(name);
    object["metadata"]["uid"] = json!(format!("u-{name}"));
    object["metadata"]["creationTimestamp"] = json!(format!("2026-08-03T12:{minute:02}:00Z"));
    merge(&mut object, patch);
    serde_json::from_value(object).unwrap()
}

fn role(name: &str) -> Value {
    json!({"spec": {"subTargetSelector": {"roleName": name}, "scaleTargetRef": {"kind": "StormService"}}})
}

fn owners(objects: &[PodAutoscaler], foreign: &[Foreign]) -> Vec<String> {
    let claims: Vec<Claim> = objects.iter().map(Claim::from_object).collect();
    let verdicts = resolve(&claims, foreign);
    verdicts.into_iter().filter(|(_, verdict)| verdict.is_owner()).map(|((_, name), _)| name).collect()
}

#[test]
fn the_oldest_has_it_and_then_the_first_by_name() {
    let objects = [claimant("b", 1, &json!({})), claimant("a", 2, &json!({})), claimant("c", 1, &json!({}))];
    assert_eq!(owners(&objects, &[]), ["b"]);
    // When it goes, the next one has it.
    assert_eq!(owners(&objects[1..], &[]), ["c"]);
    let claims: Vec<Claim> = objects.iter().map(Claim::from_object).collect();
    let verdict = &resolve(&claims, &[])[&("ns".to_owned(), "a".to_owned())];
    let expected = "Deployment d is scaled by the older PodAutoscaler ns/b; delete one of the two";
    assert_eq!(verdict.message(&claims[1]), expected);
}

#[test]
fn another_version_of_the_api_is_the_same_target_and_another_namespace_is_not() {
    let beta = json!({"spec": {"scaleTargetRef": {"apiVersion": "apps/v1beta1"}}});
    assert_eq!(owners(&[claimant("a", 1, &json!({})), claimant("b", 2, &beta)], &[]), ["a"]);
    let elsewhere = json!({"metadata": {"namespace": "other"}});
    assert_eq!(owners(&[claimant("a", 1, &json!({})), claimant("b", 2, &elsewhere)], &[]), ["a", "b"]);
}

#[test]
fn roles_are_apart_and_the_whole_overlaps_each_of_them() {
    let (prefill, decode) = (claimant("p", 2, &role("prefill")), claimant("d", 3, &role("decode")));
    assert_eq!(owners(&[prefill.clone(), decode.clone()], &[]), ["d", "p"]);
    assert_eq!(owners(&[prefill.clone(), claimant("q", 4, &role("prefill"))], &[]), ["p"]);
    let whole = json!({"spec": {"scaleTargetRef": {"kind": "StormService"}}});
    assert_eq!(owners(&[prefill.clone(), decode.clone(), claimant("w", 1, &whole)], &[]), ["w"]);
    assert_eq!(owners(&[prefill, decode, claimant("w", 9, &whole)], &[]), ["d", "p"]);
    // In mode `replica` both write the replicas of the whole, whatever their roles.
    let mode = |name: &str| {
        let mut patch = role(name);
        patch["metadata"] = json!({"annotations": {"autoscaling.aibrix.ai/storm-service-mode": "replica"}});
        patch
    };
    assert_eq!(owners(&[claimant("x", 1, &mode("a")), claimant("y", 2, &mode("b"))], &[]), ["x"]);
}

#[test]
fn a_foreign_autoscaler_comes_first_and_our_own_does_not_count() {
    let objects = [claimant("a", 1, &json!({})), claimant("b", 2, &json!({}))];
    let hpa = |controller: Option<&str>| Foreign {
        name: "theirs".to_owned(),
        controller: controller.map(str::to_owned),
        target: Target::new("ns", "apps/v1", "Deployment", "d"),
    };
    assert!(owners(&objects, &[hpa(None)]).is_empty());
    assert!(owners(&objects, &[hpa(Some("u-other"))]).is_empty());
    assert_eq!(owners(&objects, &[hpa(Some("u-a"))]), ["a"]);
    let elsewhere = Foreign { target: Target::new("ns", "apps/v1", "Deployment", "e"), ..hpa(None) };
    assert_eq!(owners(&objects, &[elsewhere]), ["a"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// The order in which objects are observed does not affect the result, owners never overlap, and every object that
    /// lost a claim lost it to an owner.
    #[test]
    fn the_answer_is_in_the_objects(claims in prop::collection::vec((0u32..4, 0u8..4), 1..8), shuffle in any::<u64>()) {
        let all: Vec<Claim> = claims
            .iter()
            .enumerate()
            .map(|(index, (minute, part))| {
                let patch = match part {
                    0 => json!({"spec": {"scaleTargetRef": {"kind": "StormService"}}}),
                    part => role(&format!("r{part}")),
                };
                Claim::from_object(&claimant(&format!("n{index}"), *minute, &patch))
            })
            .collect();
        let mut other = all.clone();
        other.rotate_left(usize::try_from(shuffle % 7).unwrap() % all.len());
        let verdicts = resolve(&all, &[]);
        prop_assert_eq!(&verdicts, &resolve(&other, &[]));
        let owners: Vec<&Claim> = all.iter().filter(|claim| verdicts[&claim.owner].is_owner()).collect();
        for (index, owner) in owners.iter().enumerate() {
            prop_assert!(owners.iter().skip(index + 1).all(|other| !owner.overlaps(other)));
        }
        for claim in &all {
            if let Verdict::Taken { by, .. } = &verdicts[&claim.owner] {
                prop_assert!(verdicts[by].is_owner());
            }
        }
    }
}
