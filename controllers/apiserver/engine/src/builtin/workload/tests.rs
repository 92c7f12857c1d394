#![allow(clippy::needless_pass_by_value, reason = "`json!` literals are passed as they are")]

use serde_json::{Value, json};

use crate::kinds::Kinds;

/// What is wrong with a new object, with `spec.` left out. Its spec is merged into a fine one.
fn faults(api_version: &str, kind: &str, spec: Value) -> Vec<String> {
    let kinds = Kinds::builtin();
    let kind = kinds.by_kind(api_version, kind).unwrap();
    let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let mut fine = json!({ "template": template });
    if kind.group == "apps" {
        fine["selector"] = json!({ "matchLabels": { "a": "b" } });
    }
    let fine = crate::patch::apply_merge_patch(&fine, &spec).unwrap();
    let mut object = json!({ "metadata": { "name": "w", "uid": "u" }, "spec": fine });
    crate::schema::decode::decode_builtin(&mut object, kind.schema(), &[]).unwrap();
    crate::builtin::default(&kind.group, &kind.version, &kind.kind, &mut object);
    crate::builtin::job::own::select(kind, &mut object);
    let errors = crate::builtin::validate_create(&kind.group, &kind.kind, &object);
    errors.iter().map(|error| error.to_string().replacen("spec.", "", 1)).collect()
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table: one row per case")]
fn sets_of_pods_are_refused_as_by_a_real_server() {
    for (kind, spec, want) in [
        ("Deployment", json!({}), vec![]),
        (
            "Deployment",
            json!({ "selector": null }),
            vec![
                "selector: Required value",
                "template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`",
            ],
        ),
        (
            "DaemonSet",
            json!({ "selector": null }),
            vec![
                "template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`",
            ],
        ),
        (
            "StatefulSet",
            json!({ "selector": { "matchLabels": null } }),
            vec!["selector: Invalid value: {}: empty selector is invalid for statefulset"],
        ),
        (
            "ReplicaSet",
            json!({ "selector": { "matchExpressions": [{ "key": "k", "operator": "In" }] }, "template": { "spec": { "containers": [] } } }),
            vec![
                "selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
                "selector: Invalid value: {\"matchLabels\":{\"a\":\"b\"},\"matchExpressions\":[{\"key\":\"k\",\"operator\":\"In\"}]}: invalid label selector",
            ],
        ),
        (
            "Deployment",
            json!({ "strategy": { "type": "X" } }),
            vec![
                "strategy: Unsupported value: {\"Type\":\"X\",\"RollingUpdate\":null}: supported values: \"Recreate\", \"RollingUpdate\"",
            ],
        ),
        (
            "Deployment",
            json!({ "strategy": { "rollingUpdate": { "maxUnavailable": "101%" } }, "minReadySeconds": 600 }),
            vec![
                "strategy.rollingUpdate.maxUnavailable: Invalid value: \"101%\": must not be greater than 100%",
                "progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds",
            ],
        ),
        (
            "DaemonSet",
            json!({ "updateStrategy": { "rollingUpdate": { "maxUnavailable": 0, "maxSurge": 0 } } }),
            vec![
                "updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0",
            ],
        ),
        (
            "StatefulSet",
            json!({ "podManagementPolicy": "X", "updateStrategy": { "type": "OnDelete", "rollingUpdate": { "partition": 1 } } }),
            vec![
                "podManagementPolicy: Invalid value: \"X\": must be 'OrderedReady' or 'Parallel'",
                "updateStrategy.rollingUpdate: Invalid value: {\"Partition\":1,\"MaxUnavailable\":null}: only allowed for updateStrategy 'RollingUpdate'",
            ],
        ),
        (
            "StatefulSet",
            json!({ "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": { "accessModes": ["ReadWriteOnce"],
                    "resources": { "requests": { "storage": "1Gi" } } } }],
                "template": { "spec": { "containers": [{ "name": "c", "image": "i", "volumeMounts": [{ "name": "data", "mountPath": "/d" }] }] } } }),
            vec![],
        ),
        (
            "Deployment",
            json!({ "template": { "metadata": { "labels": { "a": "b", "x/y/z": "1" } }, "spec": { "restartPolicy": "Never", "activeDeadlineSeconds": 5 } } }),
            vec![
                "template.labels: Invalid value: \"x/y/z\": a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                "template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
                "template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported",
            ],
        ),
    ] {
        assert_eq!(faults("apps/v1", kind, spec.clone()), want, "{kind} {spec}");
    }
}

#[test]
fn jobs_are_refused_as_by_a_real_server() {
    let never = json!({ "spec": { "restartPolicy": "Never" } });
    for (spec, want) in [
        (json!({ "template": never }), vec![]),
        (
            json!({}),
            vec!["template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\""],
        ),
        (
            json!({ "template": never, "completionMode": "Indexed", "parallelism": 1 }),
            vec!["completions: Required value: when completion mode is Indexed"],
        ),
        (
            json!({ "template": never, "maxFailedIndexes": 1 }),
            vec![
                "backoffLimitPerIndex: Required value: when maxFailedIndexes is specified",
                "maxFailedIndexes: Invalid value: 1: requires indexed completion mode",
            ],
        ),
        (
            json!({ "template": { "spec": { "restartPolicy": "Odd" } } }),
            vec![
                "template.spec.restartPolicy: Unsupported value: \"Odd\": supported values: \"Always\", \"OnFailure\", \"Never\"",
                "template.spec.restartPolicy: Unsupported value: \"Odd\": supported values: \"OnFailure\", \"Never\"",
            ],
        ),
    ] {
        assert_eq!(faults("batch/v1", "Job", spec.clone()), want, "{spec}");
    }
}

#[test]
fn counts_of_a_status_fit_together() {
    let found = |kind: &str, status: Value| {
        let mut errors = Vec::new();
        super::status::validate(kind, &json!({ "status": status }), &mut errors);
        errors.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        found("Deployment", json!({ "replicas": 2, "readyReplicas": 2, "availableReplicas": 1 })),
        Vec::<String>::new()
    );
    assert_eq!(
        found("ReplicaSet", json!({ "replicas": 1, "readyReplicas": 0, "availableReplicas": 2 })),
        [
            "status.availableReplicas: Invalid value: 2: cannot be greater than status.replicas",
            "status.availableReplicas: Invalid value: 2: cannot be greater than readyReplicas",
        ]
    );
}
