#![allow(clippy::needless_pass_by_value, reason = "`json!` literals are passed as they are")]

use serde_json::{Value, json};

use crate::field::FieldError;

type Check = fn(&Value, &str, &mut Vec<FieldError>);

/// What a check finds in a pod with one container, with `spec.` left out.
fn faults(check: Check, spec: Value) -> Vec<String> {
    let mut errors = Vec::new();
    check(&spec, "spec.", &mut errors);
    errors.iter().map(|error| error.to_string().replacen("spec.", "", 1)).collect()
}

#[test]
fn a_pod_has_what_its_system_has() {
    let of = |spec: Value| faults(super::validate_system, spec);
    assert_eq!(of(json!({ "os": { "name": "" } })), ["os.name: Required value: cannot be empty"]);
    assert_eq!(
        of(json!({ "os": { "name": "beos" } })),
        ["os: Unsupported value: \"beos\": supported values: \"linux\", \"windows\""]
    );
    let options = json!({ "windowsOptions": {} });
    assert_eq!(
        of(json!({ "os": { "name": "linux" }, "securityContext": options,
            "containers": [{ "securityContext": options }], "initContainers": [{ "securityContext": options }] })),
        [
            "securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod",
            "initContainers[0].securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod",
            "containers[0].securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod",
        ]
    );
    assert_eq!(
        of(json!({ "os": { "name": "windows" }, "hostPID": true, "hostUsers": true,
            "securityContext": { "fsGroup": 1, "runAsUser": 1, "windowsOptions": {} },
            "containers": [{ "securityContext": { "privileged": false, "capabilities": {} } }] })),
        [
            "hostUsers: Forbidden: cannot be set for a windows pod",
            "hostPID: Forbidden: cannot be set for a windows pod",
            "securityContext.fsGroup: Forbidden: cannot be set for a windows pod",
            "securityContext.runAsUser: Forbidden: cannot be set for a windows pod",
            "containers[0].securityContext.capabilities: Forbidden: cannot be set for a windows pod",
            "containers[0].securityContext.privileged: Forbidden: cannot be set for a windows pod",
        ]
    );
}

#[test]
fn all_containers_are_processes_of_the_host_or_none_is() {
    let of = |spec: Value| faults(super::validate_host_processes, spec);
    let process = |on: bool| json!({ "securityContext": { "windowsOptions": { "hostProcess": on } } });
    let whole = process(true)["securityContext"].clone();
    assert_eq!(of(json!({ "containers": [{}] })), Vec::<String>::new());
    assert_eq!(
        of(json!({ "hostNetwork": true, "securityContext": whole, "containers": [{}, {}] })),
        Vec::<String>::new()
    );
    assert_eq!(
        of(json!({ "securityContext": whole, "containers": [process(false), {}] })),
        [
            "containers[0].securityContext.windowsOptions.hostProcess: Invalid value: false: pod hostProcess value must be identical if both are specified, was true",
            "spec: Invalid value: \"\": If pod contains any hostProcess containers then all containers must be HostProcess containers",
            "hostNetwork: Invalid value: false: hostNetwork must be true if pod contains any hostProcess containers",
        ]
    );
}

#[test]
fn users_of_windows_have_names_of_windows() {
    let of = |user: &str| {
        let mut errors = Vec::new();
        let context = json!({ "windowsOptions": { "runAsUserName": user } });
        super::validate_options(&context, "c", &mut errors);
        let texts = errors.iter().map(ToString::to_string);
        texts
            .map(|text| text.split_once(": ").unwrap().1.splitn(3, ": ").nth(2).unwrap().to_owned())
            .collect()
    };
    let none: Vec<String> = Vec::new();
    for fine in ["ContainerUser", "NT AUTHORITY\\NETWORK SERVICE", "example.com\\me"] {
        let found: Vec<String> = of(fine);
        assert_eq!(found, none, "{fine}");
    }
    for (user, want) in [
        ("", "runAsUserName cannot be an empty string"),
        ("a\u{7}", "runAsUserName cannot contain control characters"),
        ("a\\b\\c", "runAsUserName cannot contain more than one backslash"),
        (".a\\", "runAsUserName's Domain doesn't match the NetBios nor the DNS format"),
        ("a\\", "runAsUserName's User cannot be empty"),
        (". .", "runAsUserName's User cannot contain only periods or spaces"),
        ("a@b", "runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]"),
    ] {
        let found: Vec<String> = of(user);
        assert_eq!(found.first().map(String::as_str), Some(want), "{user}");
    }
}
