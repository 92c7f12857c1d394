#![allow(clippy::needless_pass_by_value, reason = "`json!` literals are passed as they are")]

use serde_json::{Value, json};

use crate::builtin::internal::{held, held_spec};

/// The difference of two pod specs, in which `>` stands for a tab.
fn of_specs(old: Value, new: Value) -> String {
    super::between(&held_spec(&old), &held_spec(&new)).replace('\t', ">")
}

/// The difference of two containers, without the line before and the one behind.
fn of_containers(old: Value, new: Value) -> Vec<String> {
    let text = super::between(&held("Container", Some(&old)), &held("Container", Some(&new)));
    let lines: Vec<String> = text.lines().map(|line| line.replace('\t', ">")).collect();
    assert_eq!(
        (lines.first().unwrap().as_str(), lines.last().unwrap().as_str()),
        ("  core.Container{", "  }")
    );
    lines[1..lines.len() - 1].to_vec()
}

#[test]
fn what_changed_is_shown_with_what_stands_beside_it() {
    let container = |value: &str| {
        json!({ "image": "i", "env": [{ "name": "env1", "value": value }],
            "resources": { "requests": { "cpu": "500m", "memory": "8Mi", "pods": "100" } } })
    };
    let toleration = json!({ "key": "default-toleration", "value": "default-value", "effect": "NoSchedule" });
    let old = json!({ "containers": [container("val1")], "tolerations": [toleration] });
    let more = json!({ "key": "test", "value": "value", "effect": "NoExecute" });
    let new = json!({ "containers": [container("val1-diff")], "tolerations": [toleration, more],
        "terminationGracePeriodSeconds": 30, "activeDeadlineSeconds": 30, "nodeName": "node1" });
    let want = r#"  core.PodSpec{
  >Volumes:        nil,
  >InitContainers: nil,
  >Containers: []core.Container{
  >>{
  >>>... // 5 identical fields
  >>>Ports:   nil,
  >>>EnvFrom: nil,
  >>>Env: []core.EnvVar{
  >>>>{
  >>>>>Name:      "env1",
- >>>>>Value:     "val1",
+ >>>>>Value:     "val1-diff",
  >>>>>ValueFrom: nil,
  >>>>},
  >>>},
  >>>Resources:    {Requests: {s"cpu": {i: {...}, s: "500m", Format: "DecimalSI"}, s"memory": {i: {...}, Format: "BinarySI"}, s"pods": {i: {...}, s: "100", Format: "DecimalSI"}}},
  >>>ResizePolicy: nil,
  >>>... // 15 identical fields
  >>},
  >},
  >EphemeralContainers:           nil,
  >RestartPolicy:                 "",
- >TerminationGracePeriodSeconds: nil,
+ >TerminationGracePeriodSeconds: &30,
- >ActiveDeadlineSeconds:         nil,
+ >ActiveDeadlineSeconds:         &30,
  >DNSPolicy:                     "",
  >NodeSelector:                  nil,
  >ServiceAccountName:            "",
  >AutomountServiceAccountToken:  nil,
- >NodeName:                      "",
+ >NodeName:                      "node1",
  >SecurityContext:               &{},
  >ImagePullSecrets:              nil,
  >... // 3 identical fields
  >Affinity:      nil,
  >SchedulerName: "",
  >Tolerations: []core.Toleration{
  >>{Key: "default-toleration", Value: "default-value", Effect: "NoSchedule"},
+ >>{Key: "test", Value: "value", Effect: "NoExecute"},
  >},
  >HostAliases:       nil,
  >PriorityClassName: "",
  >... // 14 identical fields
  }
"#;
    assert_eq!(of_specs(old, new), want);
}

#[test]
fn amounts_are_shown_by_their_parts() {
    let resources = |cpu: &str| json!({ "resources": { "requests": { "cpu": cpu } } });
    assert_eq!(
        of_containers(resources("100m"), resources("130m")),
        [
            "  >... // 6 identical fields",
            "  >EnvFrom: nil,",
            "  >Env:     nil,",
            "  >Resources: core.ResourceRequirements{",
            "  >>Limits: nil,",
            "- >>Requests: core.ResourceList{",
            r#"- >>>s"cpu": {i: resource.int64Amount{value: 100, scale: -3}, s: "100m", Format: "DecimalSI"},"#,
            "- >>},",
            "+ >>Requests: core.ResourceList{",
            r#"+ >>>s"cpu": {i: resource.int64Amount{value: 130, scale: -3}, s: "130m", Format: "DecimalSI"},"#,
            "+ >>},",
            "  >>Claims: nil,",
            "  >},",
            "  >ResizePolicy:  nil,",
            "  >RestartPolicy: nil,",
            "  >... // 14 identical fields",
        ]
    );
    let memory = |amount: &str| json!({ "resources": { "limits": { "memory": amount }, "requests": { "memory": "1Gi" } } });
    let found = of_containers(memory("64Mi"), memory("200Ti"));
    let amounts: Vec<&str> =
        found.iter().filter_map(|line| line.split_once("s\"memory\": ")).map(|(_, rest)| rest).collect();
    assert_eq!(
        amounts,
        [
            "{i: resource.int64Amount{value: 67108864}, Format: \"BinarySI\"}},",
            "{d: s\"219902325555200\", Format: \"BinarySI\"}},",
            "{i: {...}, s: \"1Gi\", Format: \"BinarySI\"}},",
        ]
    );
}

#[test]
fn lists_and_maps_are_matched_by_what_is_equal() {
    let command = |words: &[&str]| json!({ "command": words });
    let found = of_containers(command(&["sleep", "1"]), command(&["sleep", "2"]));
    assert_eq!(
        found,
        [
            "  >Name:  \"\",",
            "  >Image: \"\",",
            "  >Command: []string{",
            "  >>\"sleep\",",
            "- >>\"1\",",
            "+ >>\"2\",",
            "  >},",
            "  >Args:       nil,",
            "  >WorkingDir: \"\",",
            "  >... // 20 identical fields",
        ]
    );
    let found = of_containers(command(&["a", "b", "c", "d", "e"]), command(&["a", "b", "c", "d"]));
    assert_eq!(
        found[2..8],
        [
            "  >Command: []string{",
            "  >>... // 2 identical elements",
            "  >>\"c\",",
            "  >>\"d\",",
            "- >>\"e\",",
            "  >},"
        ]
    );
    let selector = |pairs: Value| json!({ "nodeSelector": pairs });
    let found = of_specs(selector(json!({ "a": "1", "b": "2" })), selector(json!({ "a": "1", "c": "3" })));
    assert!(
        found.contains(
            "NodeSelector: map[string]string{\n  >>\"a\": \"1\",\n- >>\"b\": \"2\",\n+ >>\"c\": \"3\",\n  >},"
        ),
        "{found}"
    );
    let found = of_specs(selector(json!({ "a": "1" })), selector(json!({ "a": "2" })));
    let line = format!("- >NodeSelector:{}map[string]string{{\"a\": \"1\"}},\n", " ".repeat(17));
    assert!(found.contains(&line), "{found}");
}

#[test]
fn what_is_new_is_shown_with_its_types() {
    let probe = json!({ "livenessProbe": { "httpGet": { "path": "/", "port": 80, "scheme": "HTTP" }, "periodSeconds": 10 } });
    let found = of_containers(json!({}), probe);
    let changed: Vec<&str> =
        found.iter().filter(|line| !line.starts_with("  ")).map(String::as_str).collect();
    assert_eq!(
        changed,
        [
            "- >LivenessProbe: nil,",
            "+ >LivenessProbe: &core.Probe{",
            "+ >>ProbeHandler: core.ProbeHandler{",
            "+ >>>HTTPGet: &core.HTTPGetAction{Path: \"/\", Port: intstr.IntOrString{...}, Scheme: \"HTTP\"},",
            "+ >>},",
            "+ >>PeriodSeconds: 10,",
            "+ >},",
        ]
    );
    let context = |user: i64| json!({ "securityContext": { "runAsUser": user } });
    let found = of_containers(context(1), context(2));
    assert!(found.contains(&"  >SecurityContext: &core.SecurityContext{".to_owned()), "{found:#?}");
    assert!(found.contains(&"- >>RunAsUser:      &1,".to_owned()), "{found:#?}");
}

#[test]
fn long_texts_are_shown_in_pieces() {
    let argument = |end: &str| json!({ "workingDir": format!("/a/directory/with/a/long/name/{end}/below") });
    let found = of_containers(argument("one"), argument("other"));
    let from = found.iter().position(|line| line.contains("strings.Join")).unwrap();
    assert_eq!(
        found[from..from + 6],
        [
            "  >WorkingDir: strings.Join({",
            "  >>\"/a/directory/with/a/long/name/o\",",
            "- >>\"ne\",",
            "+ >>\"ther\",",
            "  >>\"/below\",",
            "  >}, \"\"),",
        ]
    );
    let script = |end: &str| json!({ "workingDir": "x".repeat(300) + end });
    let found = of_containers(script("1"), script("2"));
    assert!(found.contains(&"  >>... // 172 identical bytes".to_owned()), "{found:#?}");
    assert_eq!(found.iter().filter(|line| line.contains(&"x".repeat(64))).count(), 2);
    let long = json!({ "env": [{ "name": "A", "value": "y".repeat(300) }] });
    let found = of_containers(json!({}), long).join("\n");
    assert!(found.contains(&format!("Value: \"{}\"...,", "y".repeat(64))), "{found}");
}

#[test]
fn nothing_changed_gives_no_text() {
    assert_eq!(of_specs(json!({ "nodeName": "n" }), json!({ "nodeName": "n" })), "");
}

#[test]
fn equal_items_are_found_between_others() {
    let command = |words: &[&str]| json!({ "command": words });
    let found = of_containers(command(&["a", "x", "b", "1"]), command(&["c", "x", "d", "b", "2"]));
    assert_eq!(
        found[2..11],
        [
            "  >Command: []string{",
            "- >>\"a\",",
            "+ >>\"c\",",
            "  >>\"x\",",
            "+ >>\"d\",",
            "  >>\"b\",",
            "- >>\"1\",",
            "+ >>\"2\",",
            "  >},",
        ]
    );
}
