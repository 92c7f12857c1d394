//! What may be chosen, and what is refused.

use neonvm_deploy::{Choice, Component, Error, Values};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::chosen;

fn refused(set: &str) -> String {
    let mut choice = Choice::default();
    let error = choice.set(set).and_then(|()| choice.values().map(drop)).unwrap_err();
    error.to_string()
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_one() {
    assert_eq!(refused("image.registy=a"), "there is no value image.registy; did you mean image.registry?");
    assert_eq!(
        refused("agent.nodeselector={}"),
        "there is no value agent.nodeselector; did you mean agent.nodeSelector?"
    );
    assert_eq!(refused("zzzzzz=1"), "there is no value zzzzzz");
    let mut choice = Choice::default();
    let error = choice.file("vmController:\n  resources:\n    request: {cpu: 1}\n").unwrap_err();
    let text =
        "there is no value vmController.resources.request; did you mean vmController.resources.requests?";
    assert_eq!(error.to_string(), text);
    let error = choice.file("agent: {tolerations: [{ky: a}]}").unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no value agent.tolerations.0.ky; did you mean agent.tolerations.0.key?"
    );
}

#[test]
fn what_cannot_be_used_is_refused_with_its_path() {
    for (set, text) in [
        ("namespace=kube-system", "namespace: kube-system is shared with others"),
        ("namespace=A", "namespace: use lower-case letters"),
        ("image.version=", "image.version: \"\" is not the tag"),
        ("image.registry=https://a", "image.registry: leave out the scheme"),
        ("image.registry=a/", "image.registry: \"a/\" is not the name"),
        ("vmController.replicas=0", "vmController.replicas: choose 1 to 9"),
        ("vmController.replicas=many", "vmController.replicas: invalid type"),
        ("components=[agent]", "components: agent needs vm-controller"),
        ("components=[]", "components: name one at least"),
        ("components=[agents]", "components[0]: unknown variant `agents`"),
        ("overlay.encryption=wireguard", "overlay.encryption: there is no overlay to encrypt"),
        ("overlay.network=flannel", "overlay.network: unknown variant `flannel`"),
        ("image", "--set: \"image\" is not KEY=VALUE"),
    ] {
        assert!(refused(set).starts_with(text), "{set}: {}", refused(set));
    }
    assert!(matches!(Choice::default().file("- a"), Err(Error::Yaml(_))));
    assert!(matches!(Choice::default().file("a: [b"), Err(Error::Yaml(_))));
    assert!(Choice::default().file("# nothing\n").is_ok());
}

#[test]
fn later_layers_win_and_null_takes_back() {
    let mut choice = Choice::default();
    choice.file("image: {registry: a, version: '1.10'}\nvmController: {replicas: 5}").unwrap();
    choice.set("image.registry=b").unwrap();
    choice.set("vmController.replicas=null").unwrap();
    let values = choice.values().unwrap();
    assert_eq!((values.image.registry.as_str(), values.image.version.as_str()), ("b", "1.10"));
    assert_eq!(values.vm_controller.replicas, None);
    // A choice that is written and read again is the same.
    let mut again = Choice::default();
    again.file(&choice.yaml()).unwrap();
    assert_eq!(again.values().unwrap(), values);
    assert_eq!(Choice::default().yaml(), "");
}

#[test]
fn a_text_stays_one() {
    assert_eq!(chosen(&["image.version=1.10"]).values().unwrap().image.version, "1.10");
    let values = chosen(&["agent.resources.requests.cpu=1"]).values().unwrap();
    assert_eq!(values.agent.resources.unwrap().requests["cpu"], "1");
}

#[test]
fn what_is_built_in_is_all_of_it() {
    let values = Choice::default().values().unwrap();
    assert_eq!(values, Values::default());
    assert_eq!(values.components, Component::ALL);
}

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z:/{}$ -]{0,12}".prop_map(Value::from)
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let key = prop_oneof![
            Just("image".to_owned()),
            Just("agent".to_owned()),
            Just("resources".to_owned()),
            Just("tolerations".to_owned()),
            Just("components".to_owned()),
            "[a-zA-Z.]{0,8}"
        ];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(key, inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Whatever is given is taken or refused.
    #[test]
    fn nothing_panics(file in anything(), text in "\\PC{0,40}", path in "[a-zA-Z.]{0,20}") {
        let mut choice = Choice::default();
        let _ = choice.file(&file.to_string());
        let _ = choice.file(&text);
        let _ = choice.set(&text);
        let _ = choice.put(&path, file);
        let _ = choice.values();
    }
}
