#![allow(clippy::needless_pass_by_value, reason = "`json!` literals are passed as they are")]

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::patch::strategic_json;
use crate::schema::{SchemaRef, builtin::builtin, parse};

fn by(name: &str, operation: Operation) -> Manager<'_> {
    Manager { name, operation, api_version: "v1", subresource: "", time: "2024-05-01T10:00:00Z" }
}

fn applies<'a>(name: &'a str) -> Manager<'a> {
    by(name, Operation::Apply)
}

fn none() -> FieldSet {
    FieldSet::default()
}

fn config_map(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

/// The set of a manager, or null.
fn owned(object: &Value, manager: &str) -> Value {
    let list = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    list.into_iter()
        .find(|entry| entry["manager"] == manager)
        .map_or(Value::Null, |entry| entry["fieldsV1"].clone())
}

fn apply_cm(live: Option<&Value>, data: Value, manager: &str, force: bool) -> Result<Value, ApiError> {
    apply(live, &config_map(data), &builtin::<ConfigMap>(), &applies(manager), &none(), force)
}

#[test]
fn appliers_share_take_over_and_give_up() {
    let schema = builtin::<ConfigMap>();
    let mut first = config_map(json!({"x": "1", "y": "1"}));
    first["metadata"]["labels"] = json!({"l": "1"});
    let made = apply(None, &first, &schema, &applies("one"), &none(), false).unwrap();
    let of_one = json!({"f:data": {"f:x": {}, "f:y": {}}, "f:metadata": {"f:labels": {"f:l": {}}}});
    assert_eq!(owned(&made, "one"), of_one);
    let later = Manager { time: "2024-05-01T11:00:00Z", ..applies("one") };
    assert_eq!(apply(Some(&made), &first, &schema, &later, &none(), false).unwrap(), made, "nothing new");

    let shared = apply_cm(Some(&made), json!({"z": "1", "x": "1"}), "two", false).unwrap();
    assert_eq!(owned(&shared, "one"), of_one);
    assert_eq!(owned(&shared, "two"), json!({"f:data": {"f:x": {}, "f:z": {}}}));

    let refused = apply_cm(Some(&shared), json!({"z": "1", "x": "2"}), "two", false).unwrap_err();
    assert_eq!(refused.message, "Apply failed with 1 conflict: conflict with \"one\": .data.x");
    let mut many = config_map(json!({"x": "2", "y": "2"}));
    many["metadata"]["labels"] = json!({"l": "2"});
    let refused = apply(Some(&shared), &many, &schema, &applies("three"), &none(), false).unwrap_err();
    assert_eq!(
        refused.message,
        "Apply failed with 4 conflicts: conflicts with \"one\":\n- .data.x\n- .data.y\n- .metadata.labels.l\n\
         conflicts with \"two\":\n- .data.x"
    );
    assert_eq!((refused.code, refused.reason), (409, "Conflict"));

    let forced = apply_cm(Some(&shared), json!({"z": "1", "x": "2"}), "two", true).unwrap();
    assert_eq!(
        owned(&forced, "one"),
        json!({"f:data": {"f:y": {}}, "f:metadata": {"f:labels": {"f:l": {}}}})
    );
    let less = apply_cm(Some(&forced), json!({"x": "2"}), "two", false).unwrap();
    assert_eq!(less["data"], json!({"x": "2", "y": "1"}));

    let mut plain = less.clone();
    plain["data"] = json!({"x": "2", "y": "9", "p": "1"});
    track_update(Some(&less), &mut plain, &schema, &by("plain", Operation::Update), &none());
    assert_eq!(owned(&plain, "plain"), json!({"f:data": {"f:p": {}, "f:y": {}}}));
    assert_eq!(owned(&plain, "one"), json!({"f:metadata": {"f:labels": {"f:l": {}}}}));
    let refused = apply_cm(Some(&plain), json!({"y": "1"}), "one", false).unwrap_err();
    assert_eq!(refused.message, "Apply failed with 1 conflict: conflict with \"plain\" using v1: .data.y");

    let bare = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let given_up = apply(Some(&plain), &bare, &schema, &applies("one"), &none(), false).unwrap();
    assert_eq!(given_up["metadata"].get("labels"), None);
    assert_eq!(given_up["data"], plain["data"]);
    assert_eq!(owned(&given_up, "one"), Value::Null);
}

#[test]
fn what_was_there_before_the_first_apply_gets_an_owner() {
    let live = config_map(json!({"k": "v"}));
    let made = apply_cm(Some(&live), json!({"n": "1"}), "yam", false).unwrap();
    assert_eq!(owned(&made, "before-first-apply"), json!({"f:data": {".": {}, "f:k": {}}}));
    assert_eq!(owned(&made, "yam"), json!({"f:data": {"f:n": {}}}));
}

#[test]
fn plain_writes_are_tracked() {
    let schema = builtin::<ConfigMap>();
    let update = |live: Option<&Value>, mut new: Value, name: &str| {
        track_update(live, &mut new, &schema, &by(name, Operation::Update), &none());
        new
    };
    let with = |data: Value| {
        let mut object = config_map(data);
        object["metadata"]["annotations"] = json!({"n": "1"});
        object
    };
    let made = update(None, with(json!({"x": "1"})), "maker");
    let annotations = json!({"f:annotations": {".": {}, "f:n": {}}});
    assert_eq!(owned(&made, "maker"), json!({"f:data": {".": {}, "f:x": {}}, "f:metadata": annotations}));
    let changed = update(Some(&made), with(json!({"x": "2", "y": "1"})), "changer");
    assert_eq!(owned(&changed, "changer"), json!({"f:data": {"f:x": {}, "f:y": {}}}));
    assert_eq!(owned(&changed, "maker"), json!({"f:data": {}, "f:metadata": annotations}));

    let bare = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let gone = update(Some(&changed), bare, "third");
    assert_eq!(gone["metadata"].get("managedFields"), None);
    let late = update(Some(&gone), config_map(json!({"k": "v"})), "late");
    assert_eq!(late["metadata"].get("managedFields"), None, "no ownership, none begun");

    let mut reset = made.clone();
    reset["metadata"]["managedFields"] = json!([{}]);
    assert_eq!(update(Some(&made), reset, "x")["metadata"].get("managedFields"), None);
    let mut empty = made.clone();
    empty["metadata"]["managedFields"] = json!([]);
    assert_eq!(update(Some(&made), empty, "x"), made, "an empty list does not clear");
}

#[test]
fn finalizers_are_a_set_and_owners_a_map() {
    let schema = builtin::<ConfigMap>();
    let mut live = config_map(json!({}));
    track_update(None, &mut live, &schema, &by("a", Operation::Update), &none());
    let mut new = live.clone();
    new["metadata"]["finalizers"] = json!(["example.dev/x"]);
    new["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}]);
    track_update(Some(&live), &mut new, &schema, &by("fin", Operation::Update), &none());
    let wanted = json!({"f:metadata": {
        "f:finalizers": {".": {}, "v:\"example.dev/x\"": {}},
        "f:ownerReferences": {".": {}, "k:{\"uid\":\"u\"}": {}},
    }});
    assert_eq!(owned(&new, "fin"), wanted);
}

#[test]
fn a_status_write_owns_status_only() {
    let schema = builtin::<Namespace>();
    let mut live = json!({"metadata": {"name": "n"}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}});
    track_update(
        None,
        &mut live,
        &schema,
        &by("a", Operation::Update),
        &reset_fields(&schema, false, true, ""),
    );
    let mut new = live.clone();
    new["status"]["conditions"] = json!([{"type": "T", "status": "True", "lastTransitionTime": null}]);
    let manager = Manager { subresource: "status", ..by("stat", Operation::Update) };
    track_update(Some(&live), &mut new, &schema, &manager, &reset_fields(&schema, false, true, "status"));
    let condition = json!({".": {}, "f:lastTransitionTime": {}, "f:status": {}, "f:type": {}});
    let wanted = json!({"f:status": {"f:conditions": {".": {}, "k:{\"type\":\"T\"}": condition}}});
    assert_eq!(owned(&new, "stat"), wanted);
}

#[test]
fn pods_merge_by_container_and_port() {
    let schema = builtin::<Pod>();
    let pod = |containers: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers}});
    let config = pod(json!([
        {"name": "one", "image": "img:1", "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "1"}]},
        {"name": "two", "image": "img:1"},
    ]));
    let reset = reset_fields(&schema, false, true, "");
    let made = apply(None, &config, &schema, &applies("one"), &reset, false).unwrap();
    let wanted = json!({"f:spec": {"f:containers": {
        "k:{\"name\":\"one\"}": {
            ".": {},
            "f:env": {"k:{\"name\":\"A\"}": {".": {}, "f:name": {}, "f:value": {}}},
            "f:image": {}, "f:name": {},
            "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
        },
        "k:{\"name\":\"two\"}": {".": {}, "f:image": {}, "f:name": {}},
    }}});
    assert_eq!(owned(&made, "one"), wanted);
    let two = pod(json!([{"name": "two", "image": "img:2"}]));
    let refused = apply(Some(&made), &two, &schema, &applies("three"), &reset, false).unwrap_err();
    assert_eq!(
        refused.message,
        "Apply failed with 1 conflict: conflict with \"one\": .spec.containers[name=\"two\"].image"
    );
    let twice = pod(json!([{"name": "one"}, {"name": "one"}]));
    let refused = apply(None, &twice, &schema, &applies("one"), &reset, false).unwrap_err();
    assert!(refused.message.contains("duplicate entries for key [name=\"one\"]"), "{}", refused.message);
    let mut cheat = pod(json!([]));
    cheat["status"] = json!({"phase": "Failed"});
    let same = apply(Some(&made), &cheat, &schema, &applies("cheat"), &reset, false).unwrap();
    assert_eq!(owned(&same, "cheat"), Value::Null);
}

fn thing() -> SchemaRef {
    parse::custom(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "size": {"type": "integer"},
            "items": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
                "items": {"type": "object", "required": ["id"],
                    "properties": {"id": {"type": "string"}, "n": {"type": "integer"}}},
            },
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "plain": {"type": "array", "items": {"type": "string"}},
            "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }},
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
    }}))
    .unwrap()
}

fn thing_with(spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": spec})
}

#[test]
fn custom_lists_and_maps_follow_their_schema() {
    let schema = thing();
    let go = |live: Option<&Value>, spec: Value, name: &str| {
        apply(live, &thing_with(spec), &schema, &applies(name), &none(), false)
    };
    let spec = json!({"items": [{"id": "a", "n": 1}], "tags": ["x"], "plain": ["p"], "whole": {"k": "v"}, "free": {"a": [1]}});
    let made = go(None, spec, "one").unwrap();
    let wanted = json!({"f:spec": {
        "f:items": {"k:{\"id\":\"a\"}": {".": {}, "f:id": {}, "f:n": {}}},
        "f:plain": {}, "f:tags": {"v:\"x\"": {}}, "f:whole": {}, "f:free": {"f:a": {}},
    }});
    assert_eq!(owned(&made, "one"), wanted);
    let more = go(Some(&made), json!({"items": [{"id": "b", "n": 2}], "tags": ["y"]}), "two").unwrap();
    assert_eq!(more["spec"]["items"], json!([{"id": "a", "n": 1}, {"id": "b", "n": 2}]));
    assert_eq!(more["spec"]["tags"], json!(["x", "y"]));
    for (spec, path) in [
        (json!({"plain": ["q"]}), ".spec.plain"),
        (json!({"whole": {"k2": "v"}}), ".spec.whole"),
        (json!({"items": [{"id": "a", "n": 5}]}), ".spec.items[id=\"a\"].n"),
        (json!({"free": {"a": [2]}}), ".spec.free.a"),
    ] {
        let refused = go(Some(&more), spec, "two").unwrap_err();
        assert_eq!(refused.message, format!("Apply failed with 1 conflict: conflict with \"one\": {path}"));
    }
    let less = go(Some(&more), json!({"tags": ["y"]}), "two").unwrap();
    assert_eq!(less["spec"]["items"], json!([{"id": "a", "n": 1}]));
    for (spec, text) in [
        (json!({"odd": 1}), ".spec.odd: field not declared in schema"),
        (json!({"size": "big"}), ".spec.size: expected numeric (int or float), got string"),
        (json!({"items": [{"id": "z"}, {"id": "z"}]}), ".spec.items: duplicate entries for key [id=\"z\"]"),
    ] {
        let refused = go(Some(&more), spec, "two").unwrap_err();
        assert_eq!(
            refused.message,
            format!("failed to create typed patch object (/t; /v1, Kind=Thing): {text}")
        );
        assert_eq!((refused.code, refused.reason), (500, ""));
    }
}

#[test]
fn kubectl_takes_over_what_it_set_by_annotation() {
    let schema = builtin::<ConfigMap>();
    let mut live = config_map(json!({"x": "1"}));
    let last = config_map(json!({"x": "1"})).to_string();
    live["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": last});
    track_update(None, &mut live, &schema, &by("kubectl-client-side-apply", Operation::Update), &none());
    assert_eq!(apply_cm(Some(&live), json!({"x": "2"}), "other", false).unwrap_err().code, 409);
    let moved = apply_cm(Some(&live), json!({"x": "2"}), "kubectl", false).unwrap();
    assert_eq!(moved["data"], json!({"x": "2"}));
    let text = moved["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"]
        .as_str()
        .unwrap();
    assert!(text.contains("\"x\":\"2\""), "{text}");
}

#[test]
fn old_update_entries_are_folded() {
    let schema = builtin::<ConfigMap>();
    let mut live = config_map(json!({"0": "0"}));
    track_update(None, &mut live, &schema, &by("m0", Operation::Update), &none());
    for at in 1..15 {
        let mut new = live.clone();
        new["data"][at.to_string()] = json!("1");
        let time = format!("2024-05-01T10:00:{at:02}Z");
        let name = format!("m{at}");
        track_update(
            Some(&live),
            &mut new,
            &schema,
            &Manager { time: &time, ..by(&name, Operation::Update) },
            &none(),
        );
        live = new;
    }
    let list = live["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(list.len(), 10);
    assert_eq!(list[0]["manager"], "ancient-changes");
    assert_eq!(list[0]["fieldsV1"]["f:data"].as_object().unwrap().len(), 7, "six fields and the map itself");
}

#[test]
fn tracking_a_lease_renewal_is_quick() {
    let schema = builtin::<Lease>();
    let lease = |renew: &str| {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "l", "namespace": "n", "uid": "u", "resourceVersion": "1"},
            "spec": {"holderIdentity": "one", "leaseDurationSeconds": 15, "acquireTime": "2024-05-01T10:00:00.000000Z",
                "renewTime": renew, "leaseTransitions": 0}})
    };
    let manager = by("holder", Operation::Update);
    let mut live = lease("a");
    track_update(None, &mut live, &schema, &manager, &none());
    let spec = json!({"f:acquireTime": {}, "f:holderIdentity": {}, "f:leaseDurationSeconds": {},
        "f:leaseTransitions": {}, "f:renewTime": {}});
    assert_eq!(owned(&live, "holder"), json!({"f:spec": spec}));
    let mut new = lease("b");
    track_update(Some(&live), &mut new, &schema, &manager, &none());
    assert_eq!(new["metadata"]["managedFields"], live["metadata"]["managedFields"]);
}

fn schemas() -> impl Strategy<Value = SchemaRef> {
    prop_oneof![
        Just(thing()),
        Just(builtin::<Pod>()),
        Just(builtin::<ConfigMap>()),
        Just(SchemaRef::new(Schema::any())),
    ]
}

fn specs() -> impl Strategy<Value = Value> {
    let item = ("[abc]", prop::option::of(0i64..3)).prop_map(|(id, n)| match n {
        Some(n) => json!({"id": id, "n": n}),
        None => json!({"id": id}),
    });
    let items = prop::collection::vec(item, 0..4).prop_map(|mut items| {
        let mut seen = Vec::new();
        items.retain(|item| {
            !seen.contains(&item["id"]) && {
                seen.push(item["id"].clone());
                true
            }
        });
        items
    });
    let tags = prop::collection::btree_set("[abc]", 0..3);
    let free = prop::collection::btree_map("[ab]", 0i64..3, 0..3);
    let size = prop::option::of(0i64..3);
    (items, tags, free, size).prop_map(|(items, tags, free, size)| {
        let items_empty = items.is_empty();
        // An empty list owns nothing, on the real server too: applied twice it comes and goes.
        let mut spec = json!({"items": items, "tags": tags, "free": free});
        for (key, empty) in [("items", items_empty), ("tags", tags.is_empty())] {
            if empty {
                spec.as_object_mut().unwrap().remove(key);
            }
        }
        if let Some(size) = size {
            spec["size"] = json!(size);
        }
        spec
    })
}

fn sets() -> impl Strategy<Value = FieldSet> {
    let path = prop::collection::vec("(f:[ab]|k:\\{\"a\":1\\}|v:\"x\"|i:0)", 1..4);
    prop::collection::vec(path, 0..6).prop_map(|paths| {
        let mut set = FieldSet::default();
        for path in paths {
            let end = path.into_iter().fold(&mut set, |at, element| at.children.entry(element).or_default());
            end.owned = true;
        }
        set
    })
}

proptest! {
    #[test]
    fn sets_survive_the_wire(set in sets()) {
        prop_assert_eq!(FieldSet::decode(&set.encode()).unwrap(), set);
    }

    #[test]
    fn set_algebra_holds(a in sets(), b in sets(), c in sets()) {
        let union = |x: &FieldSet, y: &FieldSet| { let mut x = x.clone(); x.union_with(y); x };
        let minus = |x: &FieldSet, y: &FieldSet| { let mut x = x.clone(); x.subtract(y); x };
        prop_assert_eq!(union(&a, &b), union(&b, &a));
        prop_assert_eq!(union(&union(&a, &b), &c), union(&a, &union(&b, &c)));
        prop_assert_eq!(a.intersection(&b), b.intersection(&a));
        prop_assert_eq!(a.intersection(&union(&b, &c)), union(&a.intersection(&b), &a.intersection(&c)));
        prop_assert_eq!(union(&minus(&a, &b), &a.intersection(&b)), a.clone());
        prop_assert!(minus(&a, &a).is_empty());
        prop_assert!(!minus(&a, &b).meets(&b));
        prop_assert!(union(&a, &b).contains_all(&a));
        prop_assert_eq!(a.meets(&b), !a.intersection(&b).is_empty());
    }

    #[test]
    fn apply_is_idempotent_and_wins_with_force(before in specs(), other in specs(), spec in specs()) {
        let schema = thing();
        let live = apply(None, &thing_with(before), &schema, &applies("one"), &none(), false).unwrap();
        let live = apply(Some(&live), &thing_with(other), &schema, &applies("two"), &none(), true).unwrap();
        let config = thing_with(spec.clone());
        let once = apply(Some(&live), &config, &schema, &applies("one"), &none(), true).unwrap();
        let again = apply(Some(&once), &config, &schema, &applies("one"), &none(), false).unwrap();
        prop_assert_eq!(&again, &once);
        if let Some(size) = spec.get("size") {
            prop_assert_eq!(&once["spec"]["size"], size);
        }
        for tag in spec.get("tags").and_then(Value::as_array).into_iter().flatten() {
            prop_assert!(once["spec"]["tags"].as_array().unwrap().contains(tag));
        }
    }

    #[test]
    fn giving_up_everything_leaves_what_others_own(mine in specs(), other in specs()) {
        let schema = thing();
        let alone = apply(None, &thing_with(other.clone()), &schema, &applies("two"), &none(), false).unwrap();
        if let Ok(both) = apply(Some(&alone), &thing_with(mine), &schema, &applies("one"), &none(), false) {
            let empty = json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "t"}});
            let left = apply(Some(&both), &empty, &schema, &applies("one"), &none(), false).unwrap();
            prop_assert_eq!(owned(&left, "one"), Value::Null);
            prop_assert_eq!(owned(&left, "two"), owned(&alone, "two"));
        }
    }

    #[test]
    fn arbitrary_json_never_panics(schema in schemas(), live in strategic_json(), config in strategic_json()) {
        let object = |spec: Value| json!({"apiVersion": "v1", "metadata": {"name": "x"}, "spec": spec, "data": 1});
        let (live, config) = (object(live), object(config));
        let mut new = config.clone();
        track_update(Some(&live), &mut new, &schema, &by("a", Operation::Update), &none());
        track_update(None, &mut new, &schema, &by("a", Operation::Update), &none());
        if let Ok(made) = apply(Some(&new), &config, &schema, &applies("b"), &none(), true) {
            let _ = apply(Some(&made), &live, &schema, &applies("b"), &none(), true);
        }
        let merged = merge::merge(&schema, Some(&live), Some(&config), 0);
        let _ = prune(&schema, &merged, &[], &FieldSet::default(), &collect(&schema, &live, 0));
        let _ = FieldSet::decode(&config);
    }
}
