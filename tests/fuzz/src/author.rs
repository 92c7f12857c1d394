//! What an author of objects, or any client, sends to the API server and to the webhooks, and what people type.

use std::cell::RefCell;

use jiff::Timestamp;
use neonvm_api::virtual_machine::VirtualMachine;
use neonvm_api::{GoDuration, GuestPath, admit};
use neonvm_apiserver_engine::admission::Trail;
use neonvm_apiserver_engine::context::{Context, User};
use neonvm_apiserver_engine::engine::Engine;
use neonvm_apiserver_engine::request::{Method, Request};
use neonvm_apiserver_engine::schema::rules;
use neonvm_apiserver_engine::store::Store;
use neonvm_core_overlay::{Net, Settings as Overlay};
use neonvm_core_pod_autoscaler::exposition::Query;
use neonvm_core_vm_lifecycle::{Settings, pod};
use neonvm_types::jsonpath::JsonPath;
use neonvm_types::{Bytes, MilliCpu, Quantity, selector};
use serde_json::{Value, json};

use crate::{Target, split, text};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub(crate) const TARGETS: &[Target] = &[
    Target {
        name: "api-request",
        from: "client",
        examples: &[
            b"/api/v1/namespaces/default/configmaps?labelSelector=a%3Db,c%20in%20(d)&fieldSelector=metadata.name!%3Dx&limit=2\n",
            b"/apis/apps/v1/namespaces/default/deployments/x/status?watch=1&timeoutSeconds=1\n",
        ],
        run: |bytes| {
            let (path, body) = split(bytes);
            for method in [Method::Get, Method::Delete] {
                call(method, &path, "application/json", body);
            }
        },
    },
    Target {
        name: "api-object",
        from: "client",
        examples: &[
            br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"b":"c"},"managedFields":[{"manager":"m","operation":"Apply","fieldsType":"FieldsV1","fieldsV1":{"f:data":{}}}]},"data":{"x":"y"}}"#,
            b"k8s\x00\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x05\x0a\x03\x0a\x01a\x1a\x00\x22\x00",
        ],
        run: |bytes| {
            for media in ["application/json", "application/vnd.kubernetes.protobuf"] {
                call(Method::Post, CONFIG_MAPS, media, bytes);
            }
            let applied = format!("{CONFIG_MAPS}/b?fieldManager=m");
            call(Method::Patch, &applied, "application/apply-patch+yaml", bytes);
        },
    },
    Target {
        name: "api-patch",
        from: "client",
        examples: &[
            br#"[{"op":"add","path":"/data/a~1b","value":"c"},{"op":"test","path":"/metadata/name","value":"fixed"}]"#,
            br#"{"data":{"x":null},"metadata":{"$patch":"merge","labels":{"$retainKeys":["a"]}}}"#,
        ],
        run: |bytes| {
            for kind in ["json-patch", "merge-patch", "strategic-merge-patch"] {
                let media = format!("application/{kind}+json");
                call(Method::Patch, &format!("{CONFIG_MAPS}/fixed"), &media, bytes);
            }
        },
    },
    Target {
        name: "api-rule",
        from: "author of a definition",
        examples: &[b"self.a.all(x, x > 1) && has(self.b) && self.c.matches('^a+$')", b"quantity('1Gi').isGreaterThan(quantity('1M'))"],
        run: |bytes| {
            let object = json!({ "a": [1, 2], "b": "x", "c": "aaa" });
            let _ = rules::condition(&text(bytes), &[("self", object)]);
        },
    },
    Target {
        name: "vm-object",
        from: "author of a VM",
        examples: &[
            br#"{"apiVersion":"vm.neon.tech/v1","kind":"VirtualMachine","metadata":{"name":"a","namespace":"b","uid":"c"},"spec":{"guest":{"rootDisk":{"image":"x:1","size":"1Gi"},"cpus":{"min":0.25,"max":4,"use":1},"memorySlotSize":"128Mi","memorySlots":{"min":1,"max":8,"use":2},"env":[{"name":"A","value":"b"}]},"disks":[{"name":"d","mountPath":"/d","emptyDisk":{"size":"1Gi"}}],"extraNetwork":{"enable":true}}}"#,
        ],
        run: vm,
    },
    Target {
        name: "other-objects",
        from: "author of other objects",
        examples: &[
            br#"{"kind":"PodAutoscaler","spec":{"scaleTargetRef":{"kind":"Deployment","name":"x"},"minReplicas":1,"maxReplicas":3,"scalingStrategy":"KPA","metricsSources":[{"metricSourceType":"pod","protocolType":"http","port":"80","path":"/metrics","targetMetric":"a","targetValue":"1"}]}}"#,
            br#"{"kind":"VirtualMachineMigration","spec":{"vmName":"a"}}"#,
            br#"{"kind":"MigrationPolicy","spec":{"maxBandwidth":"1Gi"}}"#,
        ],
        run: |bytes| {
            let Ok(object) = serde_json::from_slice::<Value>(bytes) else { return };
            for kind in ["PodAutoscaler", "VirtualMachineMigration", "MigrationPolicy", "IPPool"] {
                admit(kind, &mut object.clone(), None);
            }
        },
    },
    Target {
        name: "webhook-review",
        from: "client",
        examples: &[br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"x","kind":{"kind":"VirtualMachine"},"operation":"CREATE","object":{}}}"#],
        run: |bytes| {
            let _ = neonvm_kit::webhook::Review::read(bytes);
        },
    },
    Target {
        name: "values",
        from: "author of a VM",
        examples: &[b"1.5Gi", b"250m", b"1h2m3.5s", b"/var/lib/x", b"10.0.0.0/8", b"a in (b,c),!d", b"{.items[0].a[?(@.b==\"c\")]}", b"http_requests{a=\"b\",c!=\"d\"}"],
        run: |bytes| {
            let text = text(bytes);
            let _ = (text.parse::<Quantity>(), text.parse::<Bytes>(), text.parse::<MilliCpu>());
            let _ = (text.parse::<GoDuration>(), text.parse::<GuestPath>(), text.parse::<Net>());
            let _ = (text.parse::<neonvm_types::Timestamp>(), selector::parse(&text), JsonPath::parse(&text));
            let _ = (Query::parse(&text), Overlay::parse(&text));
        },
    },
];

thread_local! {
    static SERVER: RefCell<Option<Engine>> = const { RefCell::new(None) };
}

/// One request to an API server with one object; what it writes is forgotten.
fn call(method: Method, target: &str, media: &str, body: &[u8]) {
    SERVER.with_borrow_mut(|server| {
        let engine = server.take().unwrap_or_else(engine);
        let before = engine.store().revision();
        let engine = send(engine, method, target, media, body);
        // A server that was changed is replaced for the next input.
        *server = Some(engine).filter(|engine| engine.store().revision() == before);
    });
}

fn engine() -> Engine {
    let engine = Engine::new(Store::new(100));
    [("/api/v1/namespaces", "default"), (CONFIG_MAPS, "fixed")].into_iter().fold(
        engine,
        |engine, (path, name)| {
            let body = json!({ "metadata": { "name": name }, "data": {} }).to_string();
            send(engine, Method::Post, path, "application/json", body.as_bytes())
        },
    )
}

fn send(mut engine: Engine, method: Method, target: &str, content_type: &str, body: &[u8]) -> Engine {
    let user = User { name: "admin".into(), groups: vec!["system:masters".into()], ..User::default() };
    let context = Context { now: Timestamp::UNIX_EPOCH, seed: 7 << 64 };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let request =
        Request { method, path, query, accept: "", content_type, user_agent: "fuzz", body, user: &user };
    if Engine::is_read(&request) {
        engine.read(&request, &context);
    } else {
        engine.write(&request, &context, &Trail::default());
    }
    engine
}

/// The way of a VM: admission, reading, the plan of its pod and of its runner.
fn vm(bytes: &[u8]) {
    let Ok(mut object) = serde_json::from_slice::<Value>(bytes) else { return };
    if !admit("VirtualMachine", &mut object, None).errors.is_empty() {
        return;
    }
    let Ok(vm) = serde_json::from_value::<VirtualMachine>(object) else { return };
    let settings = Settings::default();
    let _ = (pod::plan(&vm, "pod", &settings), pod::config(&vm, "pod", &settings));
}
