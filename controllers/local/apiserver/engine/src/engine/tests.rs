use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::admission::Trail;
use crate::answer::Reply;
use crate::context::Context;
use crate::context::User;
use crate::media;
use crate::options::ListOptions;
use crate::request::Request;
use crate::request::{Method, Query};
use crate::watch::Watch;

/// An engine with a namespace, and a client of it.
struct World {
    engine: Engine,
    seed: u128,
    admin: User,
}

impl World {
    fn new() -> Self {
        let admin = User { name: "admin".into(), groups: vec!["system:masters".into()], ..User::default() };
        let mut world = Self { engine: Engine::new(Store::new(100)), seed: 7, admin };
        world.post("/api/v1/namespaces", &json!({ "metadata": { "name": "ns" } }));
        world
    }

    fn context(&mut self) -> Context {
        self.seed += 2;
        Context { now: Timestamp::from_second(1_700_000_000).unwrap(), seed: self.seed << 64 }
    }

    fn call(&mut self, method: Method, path: &str, media: &str, body: &[u8]) -> (u16, Value) {
        let context = self.context();
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let admin = self.admin.clone();
        let request = Request {
            method,
            path,
            query,
            accept: "",
            content_type: media,
            user_agent: "test/1",
            body,
            user: &admin,
        };
        let reply = if Engine::is_read(&request) {
            self.engine.read(&request, &context)
        } else {
            self.engine.write(&request, &context, &Trail::default())
        };
        let Reply::Answer(answer) = reply else { panic!("{method:?} {path}: {reply:?}") };
        (answer.code, serde_json::from_slice(&answer.body).unwrap_or_default())
    }

    fn post(&mut self, path: &str, body: &Value) -> Value {
        let (code, value) = self.call(Method::Post, path, "", body.to_string().as_bytes());
        assert_eq!(code, 201, "{value}");
        self.settle();
        value
    }

    fn get(&mut self, path: &str) -> Option<Value> {
        let (code, value) = self.call(Method::Get, path, "", b"");
        (code == 200).then_some(value)
    }

    fn patch(&mut self, path: &str, body: &Value) -> (u16, Value) {
        let done =
            self.call(Method::Patch, path, "application/merge-patch+json", body.to_string().as_bytes());
        self.settle();
        done
    }

    fn delete(&mut self, path: &str) -> u16 {
        let (code, _) = self.call(Method::Delete, path, "", b"");
        self.settle();
        code
    }

    fn settle(&mut self) {
        let context = self.context();
        while self.engine.run_tasks(&context, 100) {}
    }

    /// The engine starts again, from what is on disk.
    fn restart(&mut self) {
        let mut left = BTreeMap::new();
        for change in self.engine.take_changes() {
            let place = (change.table, change.key);
            if change.deleted { drop(left.remove(&place)) } else { drop(left.insert(place, change.after)) }
        }
        let mut store = Store::new(self.engine.store().revision());
        for ((table, key), stored) in left {
            store.restore(&table, &key, stored);
        }
        self.engine = Engine::new(store);
    }

    fn map(&mut self, name: &str, owner: Option<&Value>) -> Value {
        let references: Vec<Value> = owner
            .map(|owner| {
                json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"],
                    "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true })
            })
            .into_iter()
            .collect();
        self.post(MAPS, &json!({ "metadata": { "name": name, "ownerReferences": references } }))
    }
}

const MAPS: &str = "/api/v1/namespaces/ns/configmaps";

#[test]
fn a_write_without_a_change_makes_no_revision() {
    let mut world = World::new();
    world.map("a", None);
    let (_, first) = world.patch(&format!("{MAPS}/a"), &json!({ "data": { "k": "v" } }));
    let before = world.engine.store().revision();
    let (code, second) = world.patch(&format!("{MAPS}/a"), &json!({ "data": { "k": "v" } }));
    assert_eq!((code, world.engine.store().revision()), (200, before));
    assert_eq!(first["metadata"]["resourceVersion"], second["metadata"]["resourceVersion"]);
}

#[test]
fn dry_runs_change_nothing() {
    let mut world = World::new();
    world.map("a", None);
    let before = world.engine.store().revision();
    let body = json!({ "metadata": { "name": "b" } }).to_string();
    assert_eq!(world.call(Method::Post, &format!("{MAPS}?dryRun=All"), "", body.as_bytes()).0, 201);
    assert_eq!(world.call(Method::Delete, &format!("{MAPS}/a?dryRun=All"), "", b"").0, 200);
    assert_eq!(world.engine.store().revision(), before);
    assert!(world.engine.take_changes().iter().all(|change| change.revision <= before));
}

#[test]
fn the_same_request_with_the_same_context_gives_the_same_object() {
    let make = || {
        let mut world = World::new();
        world.post(MAPS, &json!({ "metadata": { "generateName": "g-" } }))
    };
    assert_eq!(make(), make());
}

#[test]
fn dependents_go_with_their_owner() {
    let mut world = World::new();
    let owner = world.map("owner", None);
    let middle = world.map("middle", Some(&owner));
    world.map("leaf", Some(&middle));
    assert_eq!(world.delete(&format!("{MAPS}/owner")), 200);
    for name in ["owner", "middle", "leaf"] {
        assert!(world.get(&format!("{MAPS}/{name}")).is_none(), "{name}");
    }
}

#[test]
fn orphans_stay_and_forget_their_owner() {
    let mut world = World::new();
    let owner = world.map("owner", None);
    world.map("child", Some(&owner));
    assert_eq!(world.delete(&format!("{MAPS}/owner?propagationPolicy=Orphan")), 200);
    assert!(world.get(&format!("{MAPS}/owner")).is_none());
    let child = world.get(&format!("{MAPS}/child")).unwrap();
    assert!(child["metadata"].get("ownerReferences").is_none());
}

#[test]
fn a_foreground_deletion_waits_for_its_dependents() {
    let mut world = World::new();
    let owner = world.map("owner", None);
    world.map("child", Some(&owner));
    let held = json!({ "metadata": { "finalizers": ["example.dev/hold"] } });
    world.patch(&format!("{MAPS}/child"), &held);
    assert_eq!(world.delete(&format!("{MAPS}/owner?propagationPolicy=Foreground")), 200);
    assert!(world.get(&format!("{MAPS}/owner")).is_some(), "the child is still held");
    world.patch(&format!("{MAPS}/child"), &json!({ "metadata": { "finalizers": null } }));
    assert!(world.get(&format!("{MAPS}/child")).is_none());
    assert!(world.get(&format!("{MAPS}/owner")).is_none());
}

#[test]
fn an_object_whose_owner_never_existed_goes() {
    let mut world = World::new();
    let ghost = json!({ "metadata": { "name": "ghost", "uid": "11111111-2222-4333-8444-555555555555" } });
    world.map("child", Some(&ghost));
    assert!(world.get(&format!("{MAPS}/child")).is_none());
}

#[test]
fn a_namespace_takes_its_content_along_and_waits_for_finalizers() {
    let mut world = World::new();
    world.map("plain", None);
    world.map("held", None);
    world.patch(&format!("{MAPS}/held"), &json!({ "metadata": { "finalizers": ["example.dev/hold"] } }));
    assert_eq!(world.delete("/api/v1/namespaces/ns"), 200);
    assert!(world.get(&format!("{MAPS}/plain")).is_none());
    assert_eq!(world.get("/api/v1/namespaces/ns").unwrap()["status"]["phase"], "Terminating");
    world.patch(&format!("{MAPS}/held"), &json!({ "metadata": { "finalizers": null } }));
    assert!(world.get("/api/v1/namespaces/ns").is_none());
    assert_eq!(world.engine.store().range("/serviceaccounts", "ns/", None).count(), 0);
}

#[test]
fn events_expire_after_an_hour() {
    let mut world = World::new();
    let event = json!({ "metadata": { "name": "e" }, "involvedObject": { "namespace": "ns" }, "reason": "R",
        "lastTimestamp": "2023-11-14T22:13:20Z" });
    world.post("/api/v1/namespaces/ns/events", &event);
    let mut context = world.context();
    assert_eq!(world.engine.expire(&context), Some(3600));
    context.now = Timestamp::from_second(1_700_003_600).unwrap();
    assert_eq!(world.engine.expire(&context), None);
    assert!(world.get("/api/v1/namespaces/ns/events/e").is_none());
}

#[test]
fn a_restart_finds_everything_again() {
    let mut world = World::new();
    let owner = world.map("owner", None);
    world.map("child", Some(&owner));
    let crd = json!({ "metadata": { "name": "things.example.dev" }, "spec": { "group": "example.dev", "scope": "Namespaced",
        "names": { "plural": "things", "kind": "Thing" }, "versions": [{ "name": "v1", "served": true, "storage": true,
            "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } } }] } });
    world.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd);
    world.post("/apis/example.dev/v1/namespaces/ns/things", &json!({ "metadata": { "name": "t" } }));
    let revision = world.engine.store().revision();
    world.restart();
    assert_eq!(world.engine.store().revision(), revision);
    assert!(world.get("/apis/example.dev/v1/namespaces/ns/things/t").is_some());
    world.delete(&format!("{MAPS}/owner"));
    assert!(world.get(&format!("{MAPS}/child")).is_none(), "owner references are known again");
}

#[test]
fn a_foreground_deletion_ends_after_a_restart() {
    let mut world = World::new();
    let owner = world.map("owner", None);
    world.map("child", Some(&owner));
    world.patch(&format!("{MAPS}/child"), &json!({ "metadata": { "finalizers": ["example.dev/hold"] } }));
    let foreground = format!("{MAPS}/owner?propagationPolicy=Foreground");
    assert_eq!(world.call(Method::Delete, &foreground, "", b"").0, 200);
    // It stops before its tasks have run: the child is not marked yet.
    world.restart();
    world.settle();
    let child = world.get(&format!("{MAPS}/child")).unwrap();
    assert!(child["metadata"]["deletionTimestamp"].is_string(), "{child}");
    world.restart();
    world.patch(&format!("{MAPS}/child"), &json!({ "metadata": { "finalizers": null } }));
    assert!(world.get(&format!("{MAPS}/child")).is_none());
    assert!(world.get(&format!("{MAPS}/owner")).is_none());
}

#[test]
fn dependents_of_what_is_gone_go_after_a_restart_and_no_others_are_read() {
    let mut world = World::new();
    let (gone, kept) = (world.map("gone", None), world.map("kept", None));
    world.map("child-of-gone", Some(&gone));
    world.map("child-of-kept", Some(&kept));
    assert_eq!(world.call(Method::Delete, &format!("{MAPS}/gone"), "", b"").0, 200);
    world.restart();
    let due = Task::Owners("/configmaps".into(), "ns/child-of-gone".into());
    assert_eq!(world.engine.tasks, [due]);
    world.settle();
    assert!(world.get(&format!("{MAPS}/child-of-gone")).is_none());
    assert!(world.get(&format!("{MAPS}/child-of-kept")).is_some());
    world.restart();
    assert_eq!(world.engine.tasks, []);
}

#[test]
fn a_definition_that_ends_takes_nothing_new_also_after_a_restart() {
    let mut world = World::new();
    let crd = json!({ "metadata": { "name": "things.example.dev" }, "spec": { "group": "example.dev", "scope": "Namespaced",
        "names": { "plural": "things", "kind": "Thing" }, "versions": [{ "name": "v1", "served": true, "storage": true,
            "schema": { "openAPIV3Schema": { "type": "object" } } }] } });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let things = "/apis/example.dev/v1/namespaces/ns/things";
    world.post(definitions, &crd);
    world.post(things, &json!({ "metadata": { "name": "held", "finalizers": ["example.dev/hold"] } }));
    assert_eq!(world.delete(&format!("{definitions}/things.example.dev")), 200);
    let late = json!({ "metadata": { "name": "late" } }).to_string();
    assert_eq!(world.call(Method::Post, things, "", late.as_bytes()).0, 403);
    world.engine.reload();
    assert_eq!(world.call(Method::Post, things, "", late.as_bytes()).0, 403);
    world.patch(&format!("{things}/held"), &json!({ "metadata": { "finalizers": null } }));
    assert!(world.get(&format!("{definitions}/things.example.dev")).is_none());
    world.post(definitions, &crd);
    world.post(things, &json!({ "metadata": { "name": "again" } }));
}

#[test]
fn a_watch_that_falls_behind_the_window_expires() {
    let mut world = World::new();
    let kind = Arc::clone(world.engine.kinds.resource("", "v1", "configmaps").unwrap());
    let revision = world.engine.store().revision().to_string();
    let options = ListOptions::parse(&Query::parse(&format!("resourceVersion={revision}")), true).unwrap();
    let mut watch = Watch::open(&world.engine.store, &kind, media::PLAIN, "", ("ns", ""), options).unwrap();
    world.engine.store_mut().set_window(2);
    for number in 0..5 {
        world.map(&format!("m{number}"), None);
    }
    let batch = watch.next(world.engine.store(), world.engine.store().revision(), Timestamp::UNIX_EPOCH);
    assert!(batch.ended);
    let line: Value = serde_json::from_slice(&batch.lines).unwrap();
    assert_eq!((&line["type"], &line["object"]["code"]), (&json!("ERROR"), &json!(410)));
}

fn arbitrary_path() -> impl Strategy<Value = String> {
    let segment = prop_oneof![
        Just("api".to_owned()),
        Just("apis".into()),
        Just("v1".into()),
        Just("namespaces".into()),
        Just("ns".into()),
        Just("configmaps".into()),
        Just("pods".into()),
        Just("status".into()),
        Just("scale".into()),
        Just("binding".into()),
        Just("apps".into()),
        Just("deployments".into()),
        Just("a".into()),
        Just("nodes".into()),
        "[ -~]{0,8}"
    ];
    prop::collection::vec(segment, 0..8).prop_map(|parts| format!("/{}", parts.join("/")))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_request_makes_it_panic(
        method in prop_oneof![Just(Method::Get), Just(Method::Post), Just(Method::Put), Just(Method::Patch), Just(Method::Delete)],
        path in arbitrary_path(),
        query in "[ -~]{0,40}",
        media in prop_oneof![Just(""), Just("application/json"), Just("application/json-patch+json"),
            Just("application/merge-patch+json"), Just("application/strategic-merge-patch+json"), Just("application/apply-patch+yaml")],
        body in prop_oneof![prop::collection::vec(any::<u8>(), 0..60), crate::schema::tests::arbitrary_json().prop_map(|v| v.to_string().into_bytes())],
    ) {
        let mut world = World::new();
        let context = world.context();
        let admin = world.admin.clone();
        let request = Request { method, path: &path, query: &query, accept: "", content_type: media, user_agent: "", body: &body, user: &admin };
        if Engine::is_read(&request) {
            let _ = world.engine.read(&request, &context);
        } else {
            let _ = world.engine.write(&request, &context, &Trail::default());
            world.settle();
        }
    }

    #[test]
    fn selectors_and_paths_never_panic(text in "\\PC{0,60}") {
        let _ = crate::selector::LabelSelector::parse(&text);
        let _ = crate::selector::FieldSelector::parse(&text);
        let _ = neonvm_types::jsonpath::JsonPath::parse(&text).map(|path| path.find(&json!({ "a": [1, { "b": 2 }] })).len());
        let _ = crate::request::Target::parse(&text);
        let _ = Query::parse(&text);
        let _ = media::negotiate(&text);
    }
}

#[test]
fn a_binding_names_the_pod_that_it_is_about() {
    let mut world = World::new();
    let spec = json!({ "containers": [{ "name": "c", "image": "i" }] });
    let pods = "/api/v1/namespaces/ns/pods";
    let pod = world.post(pods, &json!({ "metadata": { "name": "p" }, "spec": spec }));
    let (uid, version) = (pod["metadata"]["uid"].clone(), pod["metadata"]["resourceVersion"].clone());
    let mut bind = |metadata: Value, target: Value| {
        let body = json!({ "metadata": metadata, "target": target }).to_string();
        let (code, answer) = world.call(Method::Post, &format!("{pods}/p/binding"), "", body.as_bytes());
        (code, answer["message"].as_str().unwrap_or_default().to_owned())
    };
    let node = json!({ "kind": "Node", "name": "n" });
    let conflict = "Operation cannot be fulfilled on pods \"p\": StorageError: invalid object, Code: 4, Key: \
        /registry/pods/ns/p, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: ";
    let (code, message) = bind(json!({ "name": "p", "uid": "other" }), node.clone());
    assert!(
        code == 409 && message.starts_with(&format!("{conflict}UID in precondition: other, ")),
        "{message}"
    );
    let (code, message) = bind(json!({ "name": "p", "resourceVersion": "1" }), node.clone());
    assert!(code == 409 && message.starts_with(&format!("{conflict}ResourceVersion in precondition: 1, ")));
    assert_eq!(
        bind(json!({ "name": "q" }), node.clone()),
        (400, "name in URL does not match name in Binding object".to_owned())
    );
    assert_eq!(
        bind(json!({ "name": "p" }), json!({ "kind": "Pod" })),
        (
            500,
            "[target.kind: Unsupported value: \"Pod\": supported values: \"Node\", \"<empty>\", target.name: Required value]"
                .to_owned()
        )
    );
    let metadata = json!({ "name": "p", "uid": uid, "resourceVersion": version, "labels": { "zone": "a" }, "annotations": { "b": "c" } });
    assert_eq!(bind(metadata, node).0, 201);
    let bound = world.get(&format!("{pods}/p")).unwrap();
    assert_eq!(bound["spec"]["nodeName"], "n");
    assert_eq!(bound["metadata"]["labels"], json!({ "zone": "a" }));
    assert_eq!(bound["metadata"]["annotations"], json!({ "b": "c" }));
}

#[test]
fn a_pod_is_bound_once_and_not_while_it_goes() {
    let mut world = World::new();
    let pods = "/api/v1/namespaces/ns/pods";
    let spec = json!({ "containers": [{ "name": "c", "image": "i" }] });
    for (name, gates) in [("p", json!([])), ("gated", json!([{ "name": "g" }]))] {
        let mut spec = spec.clone();
        spec["schedulingGates"] = gates;
        world.post(pods, &json!({ "metadata": { "name": name, "finalizers": ["a/b"] }, "spec": spec }));
    }
    let bind = |world: &mut World, pod: &str| {
        let body = json!({ "metadata": { "name": pod }, "target": { "name": "n" } }).to_string();
        let (code, answer) = world.call(Method::Post, &format!("{pods}/{pod}/binding"), "", body.as_bytes());
        (code, answer["message"].as_str().unwrap_or_default().to_owned())
    };
    let refused = |pod: &str, why: &str| {
        (409, format!("Operation cannot be fulfilled on pods/binding \"{pod}\": {why}"))
    };
    assert_eq!(bind(&mut world, "gated"), refused("gated", "pod gated has non-empty .spec.schedulingGates"));
    assert_eq!(bind(&mut world, "p").0, 201);
    assert_eq!(bind(&mut world, "p"), refused("p", "pod p is already assigned to node \"n\""));
    world.delete(&format!("{pods}/p"));
    assert_eq!(bind(&mut world, "p"), refused("p", "pod p is being deleted, cannot be assigned to a host"));
}

#[test]
fn the_uid_in_a_put_is_that_of_the_object() {
    let mut world = World::new();
    world.map("a", None);
    world.post("/api/v1/nodes", &json!({ "metadata": { "name": "n" } }));
    for (path, kind, folder) in [(MAPS, "configmaps", "configmaps/ns"), ("/api/v1/nodes", "nodes", "minions")]
    {
        let name = if kind == "nodes" { "n" } else { "a" };
        let body = json!({ "metadata": { "name": name, "uid": "other" } }).to_string();
        let (code, answer) = world.call(Method::Put, &format!("{path}/{name}"), "", body.as_bytes());
        let message = answer["message"].as_str().unwrap_or_default();
        let want = format!(
            "Operation cannot be fulfilled on {kind} \"{name}\": StorageError: invalid object, Code: 4, Key: \
             /registry/{folder}/{name}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in \
             precondition: other, UID in object meta: "
        );
        assert!(code == 409 && message.starts_with(&want), "{message}");
    }
}

#[test]
fn a_pod_with_gates_reports_that_it_waits_for_them() {
    let mut world = World::new();
    let spec = json!({ "containers": [{ "name": "c", "image": "i" }], "schedulingGates": [{ "name": "g" }] });
    let pod =
        world.post("/api/v1/namespaces/ns/pods", &json!({ "metadata": { "name": "gated" }, "spec": spec }));
    let condition = &pod["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("PodScheduled"), &json!("False")));
    assert_eq!(condition["reason"], "SchedulingGated");
    assert_eq!(condition["lastProbeTime"], Value::Null);
    assert_eq!(condition["lastTransitionTime"], pod["metadata"]["creationTimestamp"]);
}

#[test]
fn many_faults_and_many_items_are_not_many_words() {
    let mut world = World::new();
    world.post("/api/v1/namespaces/ns/configmaps", &json!({ "metadata": { "name": "c" } }));
    let path = "/api/v1/namespaces/ns/configmaps/c";
    let labels: serde_json::Map<_, _> = (0..5000).map(|n| (n.to_string(), json!("--"))).collect();
    let (code, status) = world.patch(path, &json!({ "metadata": { "labels": labels } }));
    assert_eq!((code, status["details"]["causes"].as_array().unwrap().len()), (422, 200));
    assert!(status["message"].as_str().unwrap().ends_with(" more]"), "{}", status["message"]);
    let owner = json!({ "uid": "u", "name": "n", "kind": "K", "apiVersion": "a/v1" });
    let (code, status) = world.patch(path, &json!({ "metadata": { "ownerReferences": vec![owner; 5000] } }));
    assert!(
        code == 422 && status["message"].to_string().contains("limit is 4096 objects in a list"),
        "{code}"
    );
    let (code, status) = world.patch(path, &json!({ "data": { "a": vec![0; 300_000] } }));
    assert!(
        code == 413 && status["message"].to_string().contains("limit is 250000 values"),
        "{code} {status}"
    );
}
