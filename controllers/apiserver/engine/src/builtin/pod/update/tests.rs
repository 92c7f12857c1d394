#![allow(clippy::needless_pass_by_value, reason = "`json!` literals are passed as they are")]

use serde_json::{Value, json};

/// What is wrong with a change of a spec.
fn changes(new: Value, old: Value) -> Vec<String> {
    let pod = |more: &Value| {
        let spec = json!({ "containers": [{ "name": "c", "image": "i" }] });
        json!({ "spec": crate::patch::apply_merge_patch(&spec, more).unwrap() })
    };
    let errors = super::validate_update("", &pod(&new), &pod(&old));
    errors.iter().map(ToString::to_string).collect()
}

/// What is wrong with a change of a status, with `status.` left out.
fn reports(spec: Value, new: Value, old: Value) -> Vec<String> {
    let pod = |status: Value| json!({ "spec": spec, "status": status });
    let mut errors = Vec::new();
    super::validate_status(&pod(new), &pod(old), &mut errors);
    errors.iter().map(|error| error.to_string().replacen("status.", "", 1)).collect()
}

#[test]
fn gates_of_a_pod_may_only_go() {
    let pod = |gates: Value| json!({ "spec": { "containers": [], "schedulingGates": gates } });
    let live = pod(json!([{ "name": "a" }, { "name": "b" }]));
    let changed = |gates: Value| {
        let errors = super::validate_update("", &pod(gates), &live);
        let texts =
            errors.iter().map(ToString::to_string).filter(|text| text.starts_with("spec.schedulingGates"));
        texts.collect::<Vec<_>>()
    };
    assert_eq!(changed(json!([{ "name": "b" }])), Vec::<String>::new());
    assert_eq!(
        changed(json!([{ "name": "c" }])),
        [
            "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'c'"
        ]
    );
}

#[test]
fn a_pod_that_is_held_back_may_choose_fewer_nodes() {
    let terms = |expressions: Value| {
        json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution":
            { "nodeSelectorTerms": [{ "matchExpressions": expressions }] } } })
    };
    let (a, b) = (json!({ "key": "a", "operator": "Exists" }), json!({ "key": "b", "operator": "Exists" }));
    let gated = |selector: Value, affinity: Value| json!({ "schedulingGates": [{ "name": "g" }], "nodeSelector": selector, "affinity": affinity });
    let old = gated(json!({ "a": "b" }), terms(json!([a])));
    let grown = gated(json!({ "a": "b", "c": "d" }), terms(json!([a, b])));
    assert_eq!(changes(grown, old.clone()), Vec::<String>::new());
    assert_eq!(
        changes(gated(json!({ "a": "x" }), terms(json!([b]))), old),
        [
            "spec.nodeSelector: Invalid value: {\"a\":\"x\"}: only additions to spec.nodeSelector are allowed (no mutations or deletions)",
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]: Invalid value: {\"MatchExpressions\":[{\"Key\":\"b\",\"Operator\":\"Exists\",\"Values\":null}],\"MatchFields\":null}: only additions are allowed (no mutations or deletions)",
        ]
    );
    let free = changes(json!({ "nodeSelector": { "a": "b" } }), json!({}));
    assert!(
        free.iter().any(|text| text.starts_with("spec: Forbidden: pod updates may not change")),
        "{free:?}"
    );
}

#[test]
fn a_refused_change_is_shown() {
    let found = changes(
        json!({ "restartPolicy": "Never", "priority": 7, "tolerations": [{ "key": "a" }] }),
        json!({ "restartPolicy": "Always", "priority": 7 }),
    );
    let [only] = found.as_slice() else { panic!("{found:?}") };
    let (rule, change) = only.split_once('\n').unwrap();
    assert!(rule.ends_with("(allow it to be set to 1 if it was previously negative)"), "{rule}");
    let lines: Vec<&str> = change.lines().collect();
    assert_eq!(
        lines,
        [
            "@@ -35,7 +35,7 @@",
            "   }",
            "  ],",
            "  \"EphemeralContainers\": null,",
            "- \"RestartPolicy\": \"Always\",",
            "+ \"RestartPolicy\": \"Never\",",
            "  \"TerminationGracePeriodSeconds\": null,",
            "  \"ActiveDeadlineSeconds\": null,",
            "  \"DNSPolicy\": \"\",",
        ]
    );
}

#[test]
fn a_container_that_was_put_into_a_pod_stays_as_it_is() {
    let pod = |image: &str| json!({ "spec": { "containers": [{ "name": "c", "image": "i" }], "ephemeralContainers": [{ "name": "e", "image": image }] } });
    let errors = super::validate_update("ephemeralcontainers", &pod("b"), &pod("a"));
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"e\" may not be changed\n@@ -1,6 +1,6 @@\n {\n  \"Name\": \"e\",\n- \"Image\": \"a\",\n+ \"Image\": \"b\",\n  \"Command\": null,\n  \"Args\": null,\n  \"WorkingDir\": \"\",\n"
        ]
    );
}

#[test]
fn a_deadline_comes_nearer() {
    let of = |seconds: Value| json!({ "activeDeadlineSeconds": seconds });
    assert_eq!(
        changes(of(json!(9)), of(json!(5))),
        ["spec.activeDeadlineSeconds: Invalid value: 9: must be less than or equal to previous value"]
    );
    assert_eq!(changes(of(json!(3)), of(json!(5))), Vec::<String>::new());
}

#[test]
fn a_container_that_ended_runs_again_only_if_it_restarts() {
    let ended = |code: u8| json!({ "containerStatuses": [{ "name": "c", "state": { "terminated": { "exitCode": code } } }] });
    let runs = json!({ "containerStatuses": [{ "name": "c", "state": { "running": {} } }] });
    let refused = ["containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"];
    let rules =
        |action: &str| json!([{ "action": action, "exitCodes": { "operator": "In", "values": [7] } }]);
    for (policy, own, code, want) in [
        ("Always", json!({}), 0, &[][..]),
        ("OnFailure", json!({}), 1, &[]),
        ("OnFailure", json!({}), 0, &refused),
        ("Never", json!({}), 1, &refused),
        ("Never", json!({ "restartPolicy": "Always" }), 1, &[]),
        ("Never", json!({ "restartPolicy": "Never", "restartPolicyRules": rules("Restart") }), 7, &[]),
        ("Never", json!({ "restartPolicy": "Never", "restartPolicyRules": rules("Restart") }), 8, &refused),
        (
            "Never",
            json!({ "restartPolicy": "Never", "restartPolicyRules": rules("RestartAllContainers") }),
            8,
            &[],
        ),
    ] {
        let container = crate::patch::apply_merge_patch(&json!({ "name": "c" }), &own).unwrap();
        let spec = json!({ "restartPolicy": policy, "containers": [container] });
        assert_eq!(reports(spec, runs.clone(), ended(code)), want, "{policy} {own} {code}");
    }
}

#[test]
fn faults_of_a_status_stand_in_the_order_of_its_checks() {
    let new = json!({
        "conditions": [{ "type": "Ready", "observedGeneration": -1 }],
        "hostIP": "10.0.0.2",
        "hostIPs": [{ "ip": "10.0.0.1" }],
        "nominatedNodeName": "n",
        "podIPs": [{ "ip": "10.0.0.3" }, { "ip": "10.0.0.4" }],
        "qosClass": "Guaranteed",
    });
    let old = json!({ "qosClass": "BestEffort" });
    assert_eq!(
        reports(json!({ "nodeName": "here" }), new, old),
        [
            "conditions[0].observedGeneration: Invalid value: -1: must be a non-negative integer",
            "nominatedNodeName: Forbidden: may not be set on pods that are already bound to a node",
            "qosClass: Invalid value: \"Guaranteed\": field is immutable",
            "podIPs: Invalid value: [{\"IP\":\"10.0.0.3\"},{\"IP\":\"10.0.0.4\"}]: may specify no more than one IP for each IP family",
            "hostIPs[0].ip: Invalid value: \"10.0.0.1\": must be equal to `hostIP`",
        ]
    );
}
