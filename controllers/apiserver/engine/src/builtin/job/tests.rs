#![allow(clippy::needless_pass_by_value, reason = "`json!` literals are passed as they are")]

use serde_json::{Value, json};

use crate::kinds::Kinds;

/// A Job as a server stores it. Its spec is merged into a fine one.
fn job(spec: Value) -> Value {
    let kinds = Kinds::builtin();
    let kind = kinds.by_kind("batch/v1", "Job").unwrap();
    let template =
        json!({ "spec": { "containers": [{ "name": "c", "image": "i" }], "restartPolicy": "Never" } });
    let spec = crate::patch::apply_merge_patch(&json!({ "template": template }), &spec).unwrap();
    let mut object = json!({ "metadata": { "name": "j", "uid": "u" }, "spec": spec });
    crate::schema::decode::decode_builtin(&mut object, kind.schema(), &[]).unwrap();
    crate::builtin::default("batch", "v1", "Job", &mut object);
    super::own::select(kind, &mut object);
    object
}

fn texts(errors: Vec<crate::field::FieldError>) -> Vec<String> {
    errors.iter().map(|error| error.to_string().replacen("spec.", "", 1)).collect()
}

/// What is wrong with a new Job, with `spec.` left out.
fn faults(spec: Value) -> Vec<String> {
    texts(crate::builtin::validate_create("batch", "Job", &job(spec)))
}

#[test]
fn pods_of_a_job_have_its_labels_and_are_selected_by_them() {
    let found = job(json!({ "template": { "metadata": { "labels": { "a": "b" } } } }));
    let labels = json!({ "a": "b", "batch.kubernetes.io/controller-uid": "u", "batch.kubernetes.io/job-name": "j",
        "controller-uid": "u", "job-name": "j" });
    assert_eq!(found["spec"]["template"]["metadata"]["labels"], labels);
    assert_eq!(
        found["spec"]["selector"],
        json!({ "matchLabels": { "batch.kubernetes.io/controller-uid": "u" } })
    );
    assert_eq!(found["metadata"]["labels"], json!({ "a": "b" }));
    assert_eq!(faults(json!({})), Vec::<String>::new());
    assert_eq!(
        faults(json!({ "template": { "metadata": { "labels": { "job-name": "other" } } } })),
        [
            "template.metadata.labels[job-name]: Invalid value: {\"batch.kubernetes.io/controller-uid\":\"u\",\"batch.kubernetes.io/job-name\":\"j\",\"controller-uid\":\"u\",\"job-name\":\"other\"}: must be 'j'"
        ]
    );
    assert_eq!(
        faults(json!({ "selector": { "matchLabels": { "x": "y" } } })),
        [
            "selector: Invalid value: {\"matchLabels\":{\"batch.kubernetes.io/controller-uid\":\"u\",\"x\":\"y\"}}: `selector` not auto-generated",
            "template.metadata.labels: Invalid value: {\"batch.kubernetes.io/controller-uid\":\"u\",\"batch.kubernetes.io/job-name\":\"j\",\"controller-uid\":\"u\",\"job-name\":\"j\"}: `selector` does not match template `labels`",
        ]
    );
    assert_eq!(
        faults(json!({ "manualSelector": true })),
        [
            "selector: Required value",
            "template.metadata.labels: Invalid value: null: `selector` does not match template `labels`",
        ]
    );
}

#[test]
fn rules_of_failure_are_refused_as_by_a_real_server() {
    let rules = |rules: Value| faults(json!({ "podFailurePolicy": { "rules": rules } }));
    let codes = |codes: Value| {
        let found = rules(json!([{ "action": "FailJob", "onExitCodes": codes }]));
        found
            .iter()
            .map(|text| text.replacen("podFailurePolicy.rules[0].onExitCodes.", "", 1))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        codes(json!({ "containerName": "c", "operator": "In", "values": [1, 2] })),
        Vec::<String>::new()
    );
    assert_eq!(
        codes(json!({ "containerName": "x", "operator": "", "values": [] })),
        [
            "operator: Required value: valid values: [\"In\" \"NotIn\"]",
            "containerName: Invalid value: \"x\": must be one of the container or initContainer names in the pod template",
            "values: Invalid value: []: at least one value is required",
        ]
    );
    assert_eq!(
        codes(json!({ "operator": "In", "values": [3, 0, 3] })),
        [
            "values[1]: Invalid value: 0: must not be 0 for the In operator",
            "values[2]: Duplicate value: 3",
            "values: Invalid value: [3,0,3]: must be ordered",
        ]
    );
    assert_eq!(
        rules(
            json!([{ "action": "" }, { "action": "FailIndex", "onPodConditions": [{ "type": "a b", "status": "No" }],
            "onExitCodes": { "operator": "NotIn", "values": [0] } }, { "action": "Stop", "onPodConditions": [{ "type": "Ready" }] }])
        ),
        [
            "podFailurePolicy.rules[0].action: Required value: valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]",
            "podFailurePolicy.rules[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
            "podFailurePolicy.rules[1].action: Invalid value: \"FailIndex\": requires the backoffLimitPerIndex to be set",
            "podFailurePolicy.rules[1].onPodConditions[0].type: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            "podFailurePolicy.rules[1].onPodConditions[0].status: Unsupported value: \"No\": supported values: \"False\", \"True\", \"Unknown\"",
            "podFailurePolicy.rules[1]: Invalid value: specifying both OnExitCodes and OnPodConditions is not supported",
            "podFailurePolicy.rules[2].action: Unsupported value: \"Stop\": supported values: \"Count\", \"FailIndex\", \"FailJob\", \"Ignore\"",
        ]
    );
    let many = vec![json!({ "action": "Ignore", "onPodConditions": [{ "type": "Ready" }] }); 21];
    assert_eq!(rules(json!(many)), ["podFailurePolicy.rules: Too many: 21: must have at most 20 items"]);
    assert_eq!(
        faults(json!({ "podFailurePolicy": { "rules": [] }, "podReplacementPolicy": "TerminatingOrFailed" })),
        ["podReplacementPolicy: Unsupported value: \"TerminatingOrFailed\": supported values: \"Failed\""]
    );
    assert_eq!(
        faults(json!({ "podReplacementPolicy": "X" })),
        [
            "podReplacementPolicy: Unsupported value: \"X\": supported values: \"Failed\", \"TerminatingOrFailed\""
        ]
    );
}

#[test]
fn rules_of_success_are_refused_as_by_a_real_server() {
    assert_eq!(
        faults(json!({ "successPolicy": { "rules": [{ "succeededCount": 1 }] } })),
        [
            "successPolicy: Invalid value: {\"Rules\":[{\"SucceededIndexes\":null,\"SucceededCount\":1}]}: requires indexed completion mode"
        ]
    );
    let indexed = |rules: Value| {
        let found = faults(
            json!({ "completionMode": "Indexed", "completions": 5, "successPolicy": { "rules": rules } }),
        );
        found.iter().map(|text| text.replacen("successPolicy.rules", "", 1)).collect::<Vec<_>>()
    };
    assert_eq!(indexed(json!([{ "succeededIndexes": "0,2-4", "succeededCount": 4 }])), Vec::<String>::new());
    assert_eq!(
        indexed(json!([])),
        [": Required value: at least one rules must be specified when the successPolicy is specified"]
    );
    assert_eq!(
        indexed(
            json!([{}, { "succeededIndexes": "1,0" }, { "succeededIndexes": "5" }, { "succeededIndexes": "1-2-3" },
            { "succeededIndexes": "a" }, { "succeededIndexes": "3-2" }, { "succeededIndexes": "0-1", "succeededCount": 6 },
            { "succeededCount": -1 }])
        ),
        [
            "[0]: Required value: at least one of succeededCount or succeededIndexes must be specified",
            "[1].succeededIndexes: Invalid value: \"1,0\": error parsing succeededIndexes: non-increasing order, previous: 1, current: 0",
            "[2].succeededIndexes: Invalid value: \"5\": error parsing succeededIndexes: too large index: \"5\"",
            "[3].succeededIndexes: Invalid value: \"1-2-3\": error parsing succeededIndexes: the fragment \"1-2-3\" violates the requirement that an index interval can have at most two parts separated by '-'",
            "[4].succeededIndexes: Invalid value: \"a\": error parsing succeededIndexes: cannot convert string to integer for index: \"a\"",
            "[5].succeededIndexes: Invalid value: \"3-2\": error parsing succeededIndexes: non-increasing order, previous: 3, current: 2",
            "[6].succeededCount: Invalid value: 6: must be less than or equal to 5 (the number of specified completions)",
            "[6].succeededCount: Invalid value: 6: must be less than or equal to 2 (the number of indexes in the specified succeededIndexes field)",
            "[7].succeededCount: Invalid value: -1: must be greater than or equal to 0",
        ]
    );
}

#[test]
fn numbers_of_an_indexed_job_have_limits() {
    assert_eq!(
        faults(json!({ "completionMode": "Indexed", "completions": 100_001, "parallelism": 100_002,
            "backoffLimitPerIndex": 1, "maxFailedIndexes": 100_003 })),
        [
            "parallelism: Invalid value: 100002: must be less than or equal to 100000 when completion mode is Indexed",
            "maxFailedIndexes: Invalid value: 100003: must be less than or equal to completions",
            "maxFailedIndexes: Invalid value: 100003: must be less than or equal to 100000",
            "parallelism: Invalid value: 100002: must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index",
            "maxFailedIndexes: Invalid value: 100003: must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index",
        ]
    );
    assert_eq!(
        faults(
            json!({ "completionMode": "Indexed", "completions": 100_001, "parallelism": 1, "backoffLimitPerIndex": 1 })
        ),
        ["maxFailedIndexes: Required value: must be specified when completions is above 100000"]
    );
    let mut long = job(json!({ "completionMode": "Indexed", "completions": 10 }));
    long["metadata"]["name"] = json!("j".repeat(62));
    let errors = texts(crate::builtin::validate_create("batch", "Job", &long));
    let want = format!("will not able to create pod with invalid DNS label: {}-9", "j".repeat(62));
    assert!(errors.last().unwrap().ends_with(&want), "{errors:?}");
    assert_eq!(
        faults(json!({ "managedBy": "me" })),
        ["managedBy: Invalid value: \"me\": must be a domain-prefixed path (such as \"acme.io/foo\")"]
    );
    assert_eq!(
        faults(json!({ "managedBy": "example.com/a b" })),
        [
            "managedBy: Invalid value: \"a b\": Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')"
        ]
    );
    assert_eq!(faults(json!({ "managedBy": "kubernetes.io/job-controller" })), Vec::<String>::new());
}

#[test]
fn a_job_changes_in_few_ways() {
    let change = |old: Value, new: Value| {
        let (mut old, mut new) = (job(old), job(new));
        for object in [&mut old, &mut new] {
            object["spec"].as_object_mut().unwrap().remove("backoffLimit");
        }
        texts(crate::builtin::validate_update("batch", "Job", "", &new, &old))
    };
    let none: [&str; 0] = [];
    assert_eq!(change(json!({}), json!({ "parallelism": 3, "completions": 1 })), none);
    assert_eq!(
        change(json!({ "completions": 1 }), json!({ "completions": 2 })),
        ["completions: Invalid value: 2: field is immutable"]
    );
    let policy = |code: u8| json!({ "podFailurePolicy": { "rules": [{ "action": "FailJob", "onExitCodes": { "operator": "In", "values": [code] } }] } });
    assert_eq!(
        change(policy(1), policy(2)),
        [
            "podFailurePolicy: Invalid value: {\"Rules\":[{\"Action\":\"FailJob\",\"OnExitCodes\":{\"ContainerName\":null,\"Operator\":\"In\",\"Values\":[2]},\"OnPodConditions\":null}]}: field is immutable"
        ]
    );
    let with = |suspend: bool, spec: Value| json!({ "suspend": suspend, "template": { "spec": spec } });
    let placed = json!({ "nodeSelector": { "a": "b" } });
    assert_eq!(change(with(true, json!({})), with(false, placed.clone())), none);
    let refused = change(with(false, json!({})), with(false, placed));
    let labels = r#"{"batch.kubernetes.io/controller-uid":"u","batch.kubernetes.io/job-name":"j","controller-uid":"u","job-name":"j"}"#;
    let start = format!(
        r#"template: Invalid value: {{"labels":{labels},"Spec":{{"Volumes":null,"InitContainers":null,"Containers":[{{"Name":"c","Image":"i","Command":null,"#
    );
    assert!(refused.len() == 1 && refused[0].starts_with(&start), "{refused:?}");
    assert!(refused[0].contains(r#","NodeSelector":{"a":"b"},"ServiceAccountName":"","#), "{refused:?}");
    let named = json!({ "hostname": "h" });
    let refused = change(with(true, json!({})), with(true, named));
    assert!(refused.len() == 1 && refused[0].ends_with(": field is immutable"), "{refused:?}");
}

#[test]
fn schedules_have_their_zone_beside_them() {
    let faults = |spec: Value| {
        let template =
            json!({ "spec": { "containers": [{ "name": "c", "image": "i" }], "restartPolicy": "Never" } });
        let fine = json!({ "schedule": "* * * * *", "jobTemplate": { "spec": { "template": template } } });
        let mut object = json!({ "spec": crate::patch::apply_merge_patch(&fine, &spec).unwrap() });
        let kinds = Kinds::builtin();
        let _ = kinds.by_kind("batch/v1", "CronJob").unwrap().schema();
        crate::builtin::default("batch", "v1", "CronJob", &mut object);
        assert!(object["spec"]["jobTemplate"]["spec"].get("backoffLimit").is_none());
        texts(crate::builtin::validate_create("batch", "CronJob", &object))
    };
    assert_eq!(faults(json!({ "timeZone": "Europe/Berlin" })), Vec::<String>::new());
    assert_eq!(
        faults(json!({ "schedule": "TZ=UTC 0 * * * *", "timeZone": "Etc/GMT+1" })),
        [
            "schedule: Invalid value: \"TZ=UTC 0 * * * *\": cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        ]
    );
    assert_eq!(
        faults(json!({ "timeZone": "" })),
        ["timeZone: Invalid value: \"\": timeZone must be nil or non-empty string"]
    );
    assert_eq!(
        faults(json!({ "timeZone": "Europe//Berlin" })),
        ["timeZone: Invalid value: \"Europe//Berlin\": unknown time zone Europe//Berlin"]
    );
    assert_eq!(
        faults(json!({ "timeZone": "local" })),
        [
            "timeZone: Invalid value: \"local\": timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        ]
    );
    assert_eq!(
        faults(
            json!({ "jobTemplate": { "spec": { "manualSelector": true, "selector": { "matchLabels": { "a": "b" } } } } })
        ),
        [
            "jobTemplate.spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"b\"}}: `selector` will be auto-generated",
            "jobTemplate.spec.manualSelector: Unsupported value: true: supported values: \"nil\", \"false\"",
        ]
    );
}
