#![allow(clippy::needless_pass_by_value, reason = "`json!` literals are passed as they are")]

use serde_json::{Value, json};

use super::{Held, TABLE, held, held_spec, table};

fn shown(kind: &'static str, value: Value) -> String {
    held(kind, Some(&value)).shown()
}

#[test]
fn values_are_shown_with_all_fields_of_their_type() {
    assert_eq!(
        shown("SuccessPolicy", json!({ "rules": [{ "succeededIndexes": "0,2" }, { "succeededCount": 1 }] })),
        r#"{"Rules":[{"SucceededIndexes":"0,2","SucceededCount":null},{"SucceededIndexes":null,"SucceededCount":1}]}"#
    );
    assert_eq!(
        shown("HTTPGetAction", json!({ "path": "/a", "port": "http" })),
        r#"{"Path":"/a","Port":"http","Host":"","Scheme":"","HTTPHeaders":null}"#
    );
    assert_eq!(shown("EmptyDirVolumeSource", json!({})), r#"{"Medium":"","SizeLimit":null}"#);
    // Embedded types have no field of their own, and selectors the names of the API.
    assert_eq!(
        shown("SecretKeySelector", json!({ "name": "n", "key": "k" })),
        r#"{"Name":"n","Key":"k","Optional":null}"#
    );
    assert_eq!(
        shown("ClusterTrustBundleProjection", json!({ "labelSelector": { "matchLabels": { "a": "b" } } })),
        r#"{"Name":null,"SignerName":null,"LabelSelector":{"matchLabels":{"a":"b"}},"Optional":null,"Path":""}"#
    );
}

#[test]
fn what_a_pod_shares_with_its_host_is_in_its_security_context() {
    let Held::Struct("PodSpec", fields) = held_spec(&json!({ "hostPID": true, "hostUsers": false })) else {
        panic!("not a pod")
    };
    let context = fields.iter().find(|(name, _)| *name == "SecurityContext").map(|(_, value)| value.shown());
    let context = context.unwrap();
    assert!(context.starts_with(
        r#"{"HostNetwork":false,"HostPID":true,"HostIPC":false,"ShareProcessNamespace":null,"HostUsers":false,"#
    ));
}

#[test]
fn every_type_of_the_table_is_known() {
    const SIMPLE: [&str; 7] = ["s", "b", "i", "Q", "I", "R", "{}s"];
    assert_eq!(table().len(), TABLE.lines().filter(|line| !line.starts_with('#')).count());
    for (name, kind) in table() {
        for field in &kind.fields {
            let inner = field.kind.trim_start_matches(['*', '[', ']']);
            let known = SIMPLE.contains(&inner) || table().contains_key(inner);
            assert!(known, "{name} {field:?}");
        }
    }
}
