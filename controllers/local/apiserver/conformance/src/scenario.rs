//! Carrying out the steps of one scenario.

mod check;

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hasher as _};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use http::HeaderMap;
use http_body_util::BodyExt as _;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::body;
use crate::client::{Cluster, Outgoing};
use crate::kubectl::Kubectl;
use crate::normal::Scope;
use crate::path::lookup;
use crate::report::Report;
use crate::value::{ABSENT, contains, equal};
use crate::watch::Watch;
use crate::webhook::Webhook;

/// Response headers that are compared.
const KEPT_HEADERS: [&str; 5] = ["Content-Type", "Warning", "Retry-After", "Allow", "Location"];
/// Time between two looks at something that is to become true.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Time for the body of an answer.
const BODY: Duration = Duration::from_secs(40);

/// Time for events that must come; far more than they take.
const EVENTS: Duration = Duration::from_secs(60);
/// Time for what is to become true; far more than it takes.
const TRUE: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) kubectl: Option<&'a Kubectl>,
    pub(crate) kubeconfig: &'a Path,
}

struct Scenario<'a> {
    data: &'a Value,
    setting: &'a Setting<'a>,
    folder: TempDir,
    scope: Scope,
    watches: BTreeMap<String, Watch>,
    hook: Option<Webhook>,
}

type Step = Map<String, Value>;

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Step> {
    value.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object)
}

fn text<'a>(step: &'a Step, key: &str) -> &'a str {
    step.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn flag(step: &Step, key: &str) -> bool {
    step.get(key).and_then(Value::as_bool).unwrap_or(false)
}

fn seconds(step: &Step, key: &str, otherwise: f64) -> Duration {
    Duration::from_secs_f64(step.get(key).and_then(Value::as_f64).unwrap_or(otherwise).clamp(0.0, 3600.0))
}

/// Runs all steps; what differs goes into the report.
pub(crate) async fn run(
    label: &str,
    data: &Value,
    setting: &Setting<'_>,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut scenario = Scenario::new(data, setting)?;
    if let Err(error) = scenario.set_up().await {
        for step in list(data, "steps").filter(|step| !step.contains_key("sleep")) {
            report.step(text(step, "name"), &format!("setup failed: {error:#}"));
        }
    } else {
        for step in list(data, "steps") {
            let name = text(step, "name");
            let older = setting.kubectl.filter(|_| step.contains_key("kubectl"));
            if let Some(why) = older.and_then(|kubectl| kubectl.words_differ(label, name)) {
                // What it does to the cluster is still needed by later steps.
                let _ = scenario.perform(step).await;
                report.skip(1, &why);
                continue;
            }
            match scenario.perform(step).await {
                Ok(None) => {}
                Ok(Some(got)) => match scenario.check(step, &got) {
                    Ok(problem) => report.step(name, &problem),
                    Err(error) => report.step(name, &format!("{error:#}")),
                },
                Err(error) => report.step(name, &format!("{error:#}")),
            }
        }
    }
    scenario.clean_up().await;
    Ok(())
}

/// Six characters that no other run has: a letter, then letters and digits.
fn random_name() -> String {
    let mut bits = std::collections::hash_map::RandomState::new().build_hasher().finish();
    let mut pick = |from: &[u8]| {
        let count = from.len() as u64;
        let index = usize::try_from(bits % count).unwrap_or(0);
        bits /= count;
        from.get(index).map_or('b', |&byte| char::from(byte))
    };
    let mut name = String::from(pick(b"bcdfghjkmn"));
    name.extend((0..5).map(|_| pick(b"abcdefghijklmnopqrstuvwxyz0123456789")));
    name
}

impl<'a> Scenario<'a> {
    fn new(data: &'a Value, setting: &'a Setting<'a>) -> anyhow::Result<Self> {
        let mut scope = Scope::new()?;
        scope.set("server", json!(setting.cluster.server));
        scope.set("run", json!(random_name()));
        Ok(Self {
            data,
            setting,
            folder: tempfile::Builder::new().prefix("kube-conformance-").tempdir()?,
            scope,
            watches: BTreeMap::new(),
            hook: None,
        })
    }

    async fn set_up(&mut self) -> anyhow::Result<()> {
        // A variable may use another one, whatever their order in the file.
        let vars: Vec<(&String, &Value)> =
            self.data.get("vars").and_then(Value::as_object).into_iter().flatten().collect();
        let mut left = vars;
        while !left.is_empty() {
            let before = left.len();
            left.retain(|(name, value)| match self.scope.fill(value) {
                Ok(filled) => {
                    self.scope.set(name, filled);
                    false
                }
                Err(_) => true,
            });
            if left.len() == before {
                bail!("variables refer to unknown ones");
            }
        }
        if let Some(answers) = self.data.get("webhook").and_then(Value::as_object) {
            let hook = Webhook::start(answers.clone()).await?;
            self.scope.set("webhook.url", json!(hook.url));
            self.scope.set("webhook.bundle", json!(hook.bundle));
            self.hook = Some(hook);
        }
        for step in list(self.data, "setup") {
            let got = self.perform(step).await?.unwrap_or_default();
            let status = got.get("status").and_then(Value::as_u64).unwrap_or(200);
            if !(200..300).contains(&status) {
                bail!("{}: {status} {}", text(step, "path"), got.get("raw").unwrap_or(&Value::Null));
            }
        }
        Ok(())
    }

    async fn clean_up(&mut self) {
        for step in list(self.data, "cleanup") {
            let step: Step = step
                .iter()
                .filter(|(key, _)| *key != "expect")
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
            if let Ok(Value::Object(step)) = self.scope.fill(&Value::Object(step)) {
                // Cleaning up is not what is tested.
                let _ = self.send(&step).await;
            }
        }
    }

    /// Carries out a step, again and again until `until` holds if it has one; returns what was seen.
    async fn perform(&mut self, step: &Step) -> anyhow::Result<Option<Value>> {
        let asked =
            step.iter().filter(|(key, _)| !matches!(key.as_str(), "expect" | "pick" | "ignore" | body::TEXT));
        let asked = Value::Object(asked.map(|(key, value)| (key.clone(), value.clone())).collect());
        let Value::Object(mut filled) = self.scope.fill(&asked)? else { bail!("a step is an object") };
        if let Some(text) = step.get(body::TEXT).and_then(Value::as_str) {
            filled.insert(body::TEXT.to_owned(), Value::String(self.scope.fill_json(text)?));
        }
        let step = filled;
        if step.contains_key("sleep") {
            tokio::time::sleep(seconds(&step, "sleep", 0.0)).await;
            return Ok(None);
        }
        let until = step.get("until").and_then(Value::as_object);
        let deadline =
            Instant::now() + until.map_or(Duration::ZERO, |until| seconds(until, "seconds", 30.0).max(TRUE));
        let got = loop {
            let got = self.act(&step).await?;
            let Some(until) = until else { break got };
            if came_true(until, &got)? {
                break got;
            }
            if Instant::now() > deadline {
                bail!("never came to {}; last seen:\n{}", Value::Object(until.clone()), shown(&got));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        };
        for (name, path) in step.get("capture").and_then(Value::as_object).into_iter().flatten() {
            let path = path.as_str().unwrap_or_default();
            let value = lookup(got.get("body").unwrap_or(&got), path)?;
            if value == ABSENT {
                bail!("nothing at {path} to capture as {name}:\n{}", shown(&got));
            }
            self.scope.set(name, value);
        }
        Ok(Some(got))
    }

    async fn act(&mut self, step: &Step) -> anyhow::Result<Value> {
        if step.contains_key("events") {
            return self.collect(step).await;
        }
        if step.contains_key("calls") {
            let hook = self.hook.as_ref().context("the scenario has no webhook")?;
            return Ok(json!({ "events": hook.take(text(step, "calls")) }));
        }
        if step.contains_key("kubectl") {
            let kubectl = self.setting.kubectl.context("there is no kubectl")?;
            return kubectl.call(step, self.setting.kubeconfig, self.folder.path()).await;
        }
        self.send(step).await
    }

    async fn send(&mut self, step: &Step) -> anyhow::Result<Value> {
        let in_order = step.get(body::TEXT).or_else(|| step.get("raw")).and_then(Value::as_str);
        let body = in_order.map(str::to_owned).or_else(|| step.get("body").map(Value::to_string));
        let outgoing = Outgoing {
            method: if step.contains_key("watch") { "GET" } else { text(step, "method") },
            path: text(step, "path"),
            headers: step.get("headers").and_then(Value::as_object),
            body,
            token: step.get("token").and_then(Value::as_str),
        };
        let (parts, body) = self.setting.cluster.send(&outgoing).await?.into_parts();
        let mut got = Map::from_iter([
            ("status".to_owned(), json!(parts.status.as_u16())),
            ("headers".to_owned(), kept(&parts.headers)),
        ]);
        if step.contains_key("watch") && parts.status == 200 {
            self.watches.insert(text(step, "watch").to_owned(), Watch::new(body, flag(step, "bookmarks")));
            return Ok(Value::Object(got));
        }
        let raw =
            tokio::time::timeout(BODY, body.collect()).await.context("the answer does not end")??.to_bytes();
        let raw = String::from_utf8_lossy(&raw).into_owned();
        if raw.starts_with('{')
            && let Ok(body) = serde_json::from_str::<Value>(&raw)
        {
            got.insert("body".into(), body);
        }
        got.insert("raw".into(), Value::String(raw));
        Ok(Value::Object(got))
    }

    async fn collect(&mut self, step: &Step) -> anyhow::Result<Value> {
        let name = text(step, "events");
        let watch = self.watches.get(name).with_context(|| format!("watch {name} is not open"))?;
        let to_the_end = flag(step, "to_the_end");
        let count = step
            .get("count")
            .and_then(Value::as_u64)
            .and_then(|count| usize::try_from(count).ok())
            .unwrap_or(0);
        let limit = seconds(step, "seconds", 5.0);
        // An expected event is waited for; the scenario sets how long no event may come.
        let limit = if count > 0 || to_the_end { limit.max(EVENTS) } else { limit };
        let mut events = watch.take(count, limit, to_the_end).await;
        if flag(step, "sort") {
            let name = |event: &Value| {
                event.pointer("/object/metadata/name").and_then(Value::as_str).unwrap_or(ABSENT).to_owned()
            };
            events.sort_by_key(name);
        }
        let mut got = Map::from_iter([("events".to_owned(), Value::Array(events))]);
        if to_the_end {
            got.insert("ended".into(), Value::Bool(watch.ended()));
        }
        if flag(step, "close") {
            watch.close();
        }
        Ok(Value::Object(got))
    }
}

fn kept(headers: &HeaderMap) -> Value {
    let mut out = Map::new();
    for name in KEPT_HEADERS {
        let mut values =
            headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let Some(first) = values.next() else { continue };
        let all = || std::iter::once(first.clone()).chain(values).map(Value::String).collect();
        out.insert(
            name.to_owned(),
            if name == "Warning" { Value::Array(all()) } else { Value::String(first) },
        );
    }
    Value::Object(out)
}

/// Whether `got` contains what `until` wants, and equals it at the paths under `equals`.
fn came_true(until: &Step, got: &Value) -> anyhow::Result<bool> {
    let wanted = until.iter().filter(|(key, _)| !matches!(key.as_str(), "seconds" | "equals"));
    let wanted = Value::Object(wanted.map(|(key, value)| (key.clone(), value.clone())).collect());
    if !contains(got, &wanted) {
        return Ok(false);
    }
    let body = got.get("body").unwrap_or(&Value::Null);
    for (path, item) in until.get("equals").and_then(Value::as_object).into_iter().flatten() {
        if !equal(&lookup(body, path)?, item) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn shown(got: &Value) -> String {
    let mut got = got.clone();
    if let Some(fields) = got.as_object_mut()
        && fields.contains_key("body")
    {
        fields.remove("raw");
    }
    serde_json::to_string_pretty(&got).unwrap_or_default()
}
