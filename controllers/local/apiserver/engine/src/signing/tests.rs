use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::admission::Trail;
use crate::answer::Reply;
use crate::context::{Context, User};
use crate::engine::Engine;
use crate::request::{Method, Request};
use crate::store::Store;

const ALL: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const SIGNER: &str = "example.com/internal";

struct World {
    engine: Engine,
    seed: u128,
    now: i64,
}

fn user(name: &str, groups: &[&str]) -> User {
    User {
        name: name.into(),
        uid: format!("uid-{name}"),
        groups: groups.iter().map(|&group| group.into()).collect(),
        extra: vec![("authentication.kubernetes.io/node-name".into(), vec!["n1".into()])],
    }
}

fn pem(kind: &str) -> String {
    STANDARD.encode(format!("-----BEGIN {kind}-----\nAAAA\n-----END {kind}-----\n"))
}

fn body(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "request": pem("CERTIFICATE REQUEST"), "signerName": SIGNER,
        "usages": ["client auth"], "username": "another-user", "groups": ["system:masters"] } })
}

impl World {
    /// With `ann`, a user that may request, and `bob`, a user that may approve and sign for one signer.
    fn new() -> Self {
        let mut world = Self { engine: Engine::new(Store::new(100)), seed: 7, now: 1_700_000_000 };
        let rule = |groups: &str, resources: &[&str], verbs: &[&str]| json!({ "apiGroups": [groups], "resources": resources, "verbs": verbs });
        let requests = ["certificatesigningrequests"];
        let halves = ["certificatesigningrequests/approval", "certificatesigningrequests/status"];
        let mut signers = rule("certificates.k8s.io", &["signers"], &["approve", "sign"]);
        signers["resourceNames"] = json!([SIGNER]);
        let all = rule("certificates.k8s.io", &requests, &["create", "get", "update", "patch"]);
        let update = rule("certificates.k8s.io", &halves, &["update", "patch"]);
        for (name, rules) in [("ann", json!([all, update])), ("bob", json!([all, update, signers]))] {
            let role = json!({ "metadata": { "name": name }, "rules": rules });
            let binding = json!({ "metadata": { "name": name },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
                "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name }] });
            let base = "/apis/rbac.authorization.k8s.io/v1";
            assert_eq!(world.admin(Method::Post, &format!("{base}/clusterroles"), &role).0, 201);
            assert_eq!(world.admin(Method::Post, &format!("{base}/clusterrolebindings"), &binding).0, 201);
        }
        world
    }

    fn admin(&mut self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        self.call(&user("admin", &["system:masters"]), method, path, body)
    }

    fn call(&mut self, user: &User, method: Method, path: &str, body: &Value) -> (u16, Value) {
        self.seed += 2;
        let now = Timestamp::from_second(self.now).unwrap();
        let context = Context { now, seed: self.seed << 64 };
        let body = body.to_string();
        let content_type =
            if method == Method::Patch { "application/merge-patch+json" } else { "application/json" };
        let request = Request {
            method,
            path,
            query: "",
            accept: "",
            content_type,
            user_agent: "test/1",
            body: body.as_bytes(),
            user,
        };
        let reply = if Engine::is_read(&request) {
            self.engine.read(&request, &context)
        } else {
            self.engine.write(&request, &context, &Trail::default())
        };
        let Reply::Answer(answer) = reply else { panic!("{method:?} {path}: {reply:?}") };
        (answer.code, serde_json::from_slice(&answer.body).unwrap_or_default())
    }

    fn condition(&mut self, who: &User, path: &str, kind: &str) -> (u16, Value) {
        let conditions = json!([{ "type": kind, "status": "True", "reason": "Test", "message": "why" }]);
        self.call(who, Method::Patch, path, &json!({ "status": { "conditions": conditions } }))
    }
}

fn message(answer: &(u16, Value)) -> &str {
    answer.1["message"].as_str().unwrap_or_default()
}

#[test]
fn a_request_records_its_user_and_keeps_it() {
    let mut world = World::new();
    let ann = user("ann", &["people"]);
    let mut asked = body("one");
    asked["status"] = json!({ "conditions": [{ "type": "Approved", "status": "True" }] });
    let (code, made) = world.call(&ann, Method::Post, ALL, &asked);
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["spec"]["username"], "ann");
    assert_eq!(made["spec"]["uid"], "uid-ann");
    assert_eq!(made["spec"]["groups"], json!(["people"]));
    assert_eq!(made["spec"]["extra"]["authentication.kubernetes.io/node-name"], json!(["n1"]));
    assert!(made["status"]["conditions"].is_null(), "{made}");
    let change =
        json!({ "spec": { "username": "bob", "usages": ["server auth"] }, "status": { "certificate": "" } });
    let (code, same) = world.call(&ann, Method::Patch, &format!("{ALL}/one"), &change);
    assert_eq!((code, &same["spec"]), (200, &made["spec"]));
}

#[test]
fn approving_and_signing_take_rights_for_the_signer() {
    let mut world = World::new();
    let (ann, bob) = (user("ann", &[]), user("bob", &[]));
    world.call(&ann, Method::Post, ALL, &body("one"));
    let (approval, status) = (format!("{ALL}/one/approval"), format!("{ALL}/one/status"));
    let refused = world.condition(&ann, &approval, "Approved");
    assert_eq!(refused.0, 403);
    assert!(message(&refused).contains("not permitted to approve requests with signerName"), "{refused:?}");
    let certificate = json!({ "status": { "certificate": pem("CERTIFICATE") } });
    assert_eq!(world.call(&ann, Method::Patch, &status, &certificate).0, 403);
    // The status does not decide.
    assert_eq!(world.condition(&bob, &status, "Approved").0, 422);
    let approved = world.condition(&bob, &approval, "Approved");
    assert_eq!(approved.0, 200, "{approved:?}");
    let condition = &approved.1["status"]["conditions"][0];
    assert_eq!(condition["lastUpdateTime"], "2023-11-14T22:13:20Z");
    // An approval does not sign.
    let both = json!({ "status": { "certificate": pem("CERTIFICATE") } });
    assert!(world.call(&bob, Method::Patch, &approval, &both).1["status"]["certificate"].is_null());
    let (code, signed) = world.call(&bob, Method::Patch, &status, &certificate);
    assert_eq!((code, &signed["status"]["certificate"]), (200, &json!(pem("CERTIFICATE"))));
    assert_eq!(&signed["status"]["conditions"][0], condition);
    // What is decided and signed stays.
    assert_eq!(world.call(&bob, Method::Patch, &approval, &json!({ "status": { "conditions": [] } })).0, 422);
    assert_eq!(world.condition(&bob, &approval, "Denied").0, 422);
    let other = json!({ "status": { "certificate": STANDARD.encode("-----BEGIN CERTIFICATE-----\nB\n") } });
    assert_eq!(world.call(&bob, Method::Patch, &status, &other).0, 422);
}

#[test]
fn other_signers_are_not_bobs() {
    let mut world = World::new();
    let mut asked = body("one");
    asked["spec"]["signerName"] = json!("example.com/other");
    assert_eq!(world.call(&user("ann", &[]), Method::Post, ALL, &asked).0, 201);
    assert_eq!(world.condition(&user("bob", &[]), &format!("{ALL}/one/approval"), "Approved").0, 403);
}

#[test]
fn faults_are_named() {
    let mut world = World::new();
    let ann = user("ann", &[]);
    let mut bad = |change: &dyn Fn(&mut Value)| {
        let mut asked = body("bad");
        change(&mut asked["spec"]);
        let answer = world.call(&ann, Method::Post, ALL, &asked);
        assert_eq!(answer.0, 422, "{answer:?}");
        message(&answer).to_owned()
    };
    assert!(bad(&|spec| spec["usages"] = json!([])).contains("usages must be provided"));
    assert!(bad(&|spec| spec["usages"] = json!(["fun"])).contains("spec.usages[0]: Unsupported value"));
    assert!(bad(&|spec| spec["request"] = json!(pem("CERTIFICATE"))).contains("PEM block type"));
    assert!(bad(&|spec| spec["signerName"] = json!("internal")).contains("fully qualified domain"));
    assert!(bad(&|spec| spec["expirationSeconds"] = json!(599)).contains("600 seconds"));
}

#[test]
fn requests_go_an_hour_after_they_were_decided() {
    let mut world = World::new();
    let (ann, bob) = (user("ann", &[]), user("bob", &[]));
    world.call(&ann, Method::Post, ALL, &body("open"));
    world.call(&ann, Method::Post, ALL, &body("denied"));
    world.condition(&bob, &format!("{ALL}/denied/approval"), "Denied");
    let mut left = |seconds: i64| {
        world.now += seconds;
        let context = Context { now: Timestamp::from_second(world.now).unwrap(), seed: 1 };
        let next = world.engine.expire(&context);
        let known = |name: &str| {
            world.engine.object("certificates.k8s.io", "certificatesigningrequests", "", name).is_some()
        };
        (next, known("open"), known("denied"))
    };
    assert_eq!(left(0), (Some(3600), true, true));
    assert_eq!(left(3600), (Some(86_400 - 3600), true, false));
    assert_eq!(left(86_400), (None, false, false));
}
