//! `neonctl podautoscaler` against a real API server. What the service would write is made by the core that it uses.

use neonvm_test_support::{Running, eventually, eventually_blocking};
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use jiff::Timestamp;
use kube::Resource as _;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use neonvm_api::PodAutoscaler;
use neonvm_core_pod_autoscaler::status::{Applied, Pass, after};
use neonvm_core_pod_autoscaler::{Memory, Missing, MissingReason, Observation, Observed, Settings, decide};
use neonvm_test_cluster::ApiServer;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

struct Cluster {
    runtime: Runtime,
    server: ApiServer,
    home: tempfile::TempDir,
}

impl Cluster {
    fn start() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let home = tempfile::tempdir().unwrap();
        let server = runtime.block_on(ApiServer::start());
        Self { runtime, server, home }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        super::command(&self.server.kubeconfig(), self.home.path(), arguments)
    }

    /// Exit code, standard output, standard error.
    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        super::ended(&self.command(arguments).output().unwrap())
    }

    /// Standard output of what must work.
    fn works(&self, arguments: &[&str]) -> String {
        let (code, out, error) = self.run(arguments);
        assert_eq!(code, 0, "{arguments:?}: {out}{error}");
        out
    }

    fn begin(&self, arguments: &[&str]) -> Running {
        let mut command = self.command(arguments);
        Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    fn api(&self) -> Api<PodAutoscaler> {
        Api::namespaced(self.server.client.clone(), "default")
    }

    fn get(&self, name: &str) -> PodAutoscaler {
        self.runtime.block_on(self.api().get(name)).unwrap()
    }

    fn define(&self) {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
        ));
        let api: Api<DynamicObject> = Api::all_with(self.server.client.clone(), &kind);
        for crd in neonvm_api::crds() {
            let crd: DynamicObject = serde_json::from_value(crd).unwrap();
            self.runtime.block_on(api.create(&PostParams::default(), &crd)).unwrap();
        }
        let is_served = async || self.api().list(&Default::default()).await;
        self.runtime.block_on(eventually("the definition", is_served));
    }

    fn create(&self, name: &str, max: i32) {
        let object: PodAutoscaler = serde_json::from_value(json!({
            "apiVersion": "autoscaling.aibrix.ai/v1alpha1", "kind": "PodAutoscaler", "metadata": { "name": name },
            "spec": { "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": name },
                "minReplicas": 1, "maxReplicas": max, "scalingStrategy": "APA", "observeWindowSeconds": 60,
                "metricsSources": [{ "metricSourceType": "external", "protocolType": "http", "endpoint": "queue.default",
                    "path": "/metrics", "port": "8080", "targetMetric": "queue_length", "targetValue": "10" }] } }))
        .unwrap();
        self.runtime.block_on(self.api().create(&PostParams::default(), &object)).unwrap();
    }

    /// One turn of the service: a load is seen (none: it cannot be read), and what follows is written.
    fn turn(&self, name: &str, current: i32, load: Option<f64>) {
        let object = self.get(name);
        let now = Timestamp::now();
        let old = object.status.clone().unwrap_or_default();
        let status = match Settings::from_object(&object) {
            Err(faults) => after(&old, &Pass::Invalid(&faults), object.metadata.generation, now),
            Ok((settings, _)) => {
                let missing =
                    || Observed::Missing(Missing::new(MissingReason::TimedOut, "no answer within 2 s"));
                let metrics = vec![load.map_or_else(missing, Observed::total)];
                let observation = Observation { current, ready: Some(current), metrics };
                let decision = decide(&settings, &mut Memory::default(), &observation, now);
                let applied = if decision.scales() { Applied::Done } else { Applied::NotNeeded };
                let pass = Pass::Decided { decision: &decision, settings: &settings, applied: &applied };
                after(&old, &pass, object.metadata.generation, now)
            }
        };
        let patch = Patch::Merge(json!({ "status": status }));
        self.runtime.block_on(self.api().patch_status(name, &PatchParams::default(), &patch)).unwrap();
    }

    fn event(&self, name: &str, reason: &str, message: &str) {
        let object = self.get(name).object_ref(&());
        let event = serde_json::from_value(
            json!({ "metadata": { "name": format!("{name}.{}", reason.to_lowercase()) },
            "type": "Warning", "reason": reason, "message": message, "involvedObject": object,
            "lastTimestamp": Timestamp::now().to_string() }),
        );
        let api: Api<k8s_openapi::api::core::v1::Event> =
            Api::namespaced(self.server.client.clone(), "default");
        self.runtime.block_on(api.create(&PostParams::default(), &event.unwrap())).unwrap();
    }
}

/// Words, with one space between them.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn from_nothing_to_scaled() {
    let cluster = Cluster::start();
    let (code, _, error) = cluster.run(&["podautoscaler", "list"]);
    assert!(code == 3 && error.contains("no definition of podautoscalers"), "{code} {error}");
    cluster.define();
    let (code, out, error) = cluster.run(&["podautoscaler", "list"]);
    assert_eq!((code, out.as_str()), (0, ""));
    assert!(error.contains("no pod autoscalers in namespace default"), "{error}");

    cluster.create("web", 8);
    let listed = flat(&cluster.works(&["pa", "list", "--no-headers"]));
    assert!(listed.starts_with("web deployment/web APA - 1..8 - New - "), "{listed}");
    let explained = cluster.works(&["podautoscalers", "explain", "web"]);
    assert!(explained.contains("not reconciled yet; is pod-autoscaler running?"), "{explained}");
    let (code, _, error) = cluster.run(&["podautoscaler", "get", "wbe"]);
    assert!(code == 3 && error.contains("did you mean \"web\"?"), "{code} {error}");
    let (code, _, error) = cluster.run(&["podautoscaler", "history", "web"]);
    assert!(code == 0 && error.contains("nothing has been scaled yet"), "{code} {error}");

    cluster.turn("web", 2, Some(35.0));
    let listed = flat(&cluster.works(&["podautoscaler", "list", "-A", "--no-headers"]));
    let row = "default web deployment/web APA 2->4 1..8 queue_length 17.5/10 Scaling ";
    let ages = listed.strip_prefix(row).unwrap_or_else(|| panic!("{listed}"));
    // The turn was a moment ago, on a slow machine a longer one.
    assert!(ages.split(' ').next().is_some_and(|last| last.ends_with('s') && last != "-"), "{listed}");
    assert_eq!(cluster.works(&["podautoscaler", "get", "web", "-o", "name"]).trim(), "podautoscaler/web");
    let path = "jsonpath={.status.desiredScale}";
    assert_eq!(cluster.works(&["podautoscaler", "get", "web", "-o", path]), "4");
    let explained = cluster.works(&["podautoscaler", "explain", "web"]);
    assert!(explained.lines().all(|line| line.chars().count() <= 80), "{explained}");
    let words = flat(&explained);
    for part in [
        "metric 17.5 per pod, target 10; 35 in total window load 35 over 60 s recommendation 4 replicas: asks for 4",
        "result 4: a metric is above its target",
        "more queue_length above 22 in total: 3, averaged over 60 s; at most 4 in one step",
        "fewer queue_length at most 10 in total, averaged over 60 s: 1; at least 1 in one step",
        "bounds 1..8 by the spec",
    ] {
        assert!(words.contains(part), "{part}\n{explained}");
    }
    let described = flat(&cluster.works(&["podautoscaler", "describe", "web"]));
    assert!(described.contains("Status Scaling: 4 replicas wanted, 2 there"), "{described}");
    cluster.event("web", "FailedGetScale", "deployments.apps \"web\" not found");
    let rows = flat(&cluster.works(&["podautoscaler", "history", "web", "--no-headers"]));
    assert!(
        rows.contains("2->4 done AboveTarget -") && rows.contains("- Warning FailedGetScale deployments"),
        "{rows}"
    );
    let value: Value =
        serde_json::from_str(&cluster.works(&["podautoscaler", "explain", "web", "-o", "json"])).unwrap();
    assert_eq!(
        (&value["kind"], &value["metrics"][0]["moreAbove"]["load"]),
        (&json!("PodAutoscalerExplanation"), &json!(22.0))
    );
    let value: Value =
        serde_json::from_str(&cluster.works(&["status", "-o", "json"]).replace('\n', " ")).unwrap();
    assert_eq!(
        (&value["podAutoscaler"]["working"], &value["podAutoscaler"]["total"]),
        (&json!(true), &json!(1))
    );
}

#[test]
fn waiting_and_watching() {
    let cluster = Cluster::start();
    cluster.define();
    cluster.create("web", 8);
    cluster.turn("web", 2, Some(20.0));
    cluster.works(&["podautoscaler", "wait", "web", "--for", "ready"]);
    let (code, _, error) =
        cluster.run(&["podautoscaler", "wait", "web", "--for", "replicas=5", "--timeout", "200ms"]);
    assert!(code == 6 && error.contains("it is Ready, 2 replicas"), "{code} {error}");
    let (code, _, _) = cluster.run(&["podautoscaler", "wait", "web", "--for", "luck"]);
    assert_eq!(code, 2);

    let mut watching = cluster.begin(&["podautoscaler", "explain", "web", "-w"]);
    let mut pages =
        BufReader::new(watching.0.stdout.take().unwrap()).lines().map_while(std::result::Result::ok);
    let mut until =
        |what: &str| pages.find(|line| line.contains(what)).unwrap_or_else(|| panic!("no {what}"));
    until("2 replicas");
    let mut waiting =
        cluster.begin(&["podautoscaler", "wait", "web", "--for", "replicas>=4", "--timeout", "60s"]);
    cluster.turn("web", 4, None);
    until("4 replicas");
    until("no value");
    assert!(waiting.0.wait().unwrap().success());
    drop(watching);
    let row = || flat(&cluster.works(&["podautoscaler", "get", "web", "--no-headers"]));
    eventually_blocking(row, || row().contains(" queue_length ?/10 Blind "));

    let mut waiting =
        cluster.begin(&["podautoscaler", "wait", "web", "--for", "replicas=9", "--timeout", "60s"]);
    cluster.runtime.block_on(cluster.api().delete("web", &Default::default())).unwrap();
    assert_eq!(waiting.0.wait().unwrap().code(), Some(3), "what was deleted is not waited for");
}

#[test]
fn pausing_and_resuming() {
    let cluster = Cluster::start();
    cluster.define();
    cluster.create("web", 8);
    cluster.create("api", 8);
    let (code, _, error) = cluster.run(&["podautoscaler", "pause", "web", "missing"]);
    assert!(code == 3 && error.contains("missing"), "{code} {error}");
    assert_eq!(cluster.get("web").spec.paused, None, "nothing is changed if one is not there");
    for place in ["client", "server"] {
        let out = cluster.works(&["podautoscaler", "pause", "web", "--dry-run", place, "-o", "json"]);
        let value: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(
            (&value["spec"]["paused"], cluster.get("web").spec.paused),
            (&json!(true), None),
            "{place}"
        );
    }
    let out = cluster.works(&["podautoscaler", "pause", "web", "api"]);
    assert_eq!(
        out,
        "podautoscaler/web paused; deployment/web keeps its replicas\npodautoscaler/api paused; deployment/api keeps its replicas\n"
    );
    assert_eq!(cluster.works(&["podautoscaler", "pause", "web"]), "podautoscaler/web is already paused\n");
    cluster.turn("web", 2, Some(35.0));
    let listed = flat(&cluster.works(&["podautoscaler", "get", "web", "-o", "wide", "--no-headers"]));
    assert!(listed.contains(" 2 1..8 queue_length 17.5/10 Paused "), "{listed}");
    assert!(listed.contains("the target is not scaled; 4 replicas recommended"), "{listed}");
    let out = cluster.works(&["podautoscaler", "resume", "web"]);
    assert_eq!(out, "podautoscaler/web resumed; last recommendation 4 replicas, deployment/web has 2\n");
    assert_eq!(cluster.get("web").spec.paused, None);
    assert_eq!(cluster.works(&["podautoscaler", "resume", "web"]), "podautoscaler/web is not paused\n");
}
