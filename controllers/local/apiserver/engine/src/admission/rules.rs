//! Which requests a webhook sees, and what its answer does.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::review::{denied, failed, response, review};
use super::{Call, Client, Halt, Round};
use crate::kinds::Kind;
use crate::object::{self, strings, text_at};
use crate::patch;
use crate::schema::rules::condition;
use crate::selector::LabelSelector;
use crate::status::ApiError;

#[derive(Debug)]
pub(super) struct Webhook {
    name: String,
    client: Client,
    rules: Vec<Rule>,
    namespaces: LabelSelector,
    objects: LabelSelector,
    conditions: Vec<(String, String)>,
    equivalent: bool,
    ignore_failure: bool,
    side_effects: bool,
    timeout: u32,
    pub(super) reinvoked: bool,
}

#[derive(Debug)]
struct Rule {
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    operations: Vec<String>,
    scope: String,
}

pub(super) fn read(configurations: &[Value]) -> Vec<Webhook> {
    configurations
        .iter()
        .flat_map(|c| c.get("webhooks").and_then(Value::as_array).into_iter().flatten())
        .map(Webhook::read)
        .collect()
}

fn owned(list: Option<&Value>) -> Vec<String> {
    strings(list).into_iter().map(str::to_owned).collect()
}

impl Webhook {
    fn read(webhook: &Value) -> Self {
        let config = webhook.get("clientConfig").cloned().unwrap_or_default();
        let service = config.get("service").map(|service| {
            let port = service.get("port").and_then(Value::as_u64).and_then(|p| u16::try_from(p).ok());
            let text = |key| text_at(service, key).to_owned();
            (text("namespace"), text("name"), text("path"), port.unwrap_or(443))
        });
        let timeout = webhook.get("timeoutSeconds").and_then(Value::as_u64).unwrap_or(10);
        let conditions = webhook.get("matchConditions").and_then(Value::as_array).into_iter().flatten();
        let selector = |key: &str| webhook.get(key).map(LabelSelector::from_object).unwrap_or_default();
        Self {
            name: text_at(webhook, "name").to_owned(),
            client: Client {
                url: text_at(&config, "url").to_owned(),
                service,
                ca_bundle: STANDARD.decode(text_at(&config, "caBundle")).unwrap_or_default(),
            },
            rules: webhook
                .get("rules")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .map(Rule::read)
                .collect(),
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
            conditions: conditions
                .map(|c| (text_at(c, "name").to_owned(), text_at(c, "expression").to_owned()))
                .collect(),
            equivalent: text_at(webhook, "matchPolicy") != "Exact",
            ignore_failure: text_at(webhook, "failurePolicy") == "Ignore",
            side_effects: !matches!(text_at(webhook, "sideEffects"), "None" | "NoneOnDryRun"),
            timeout: u32::try_from(timeout.clamp(1, 30)).unwrap_or(10),
            reinvoked: text_at(webhook, "reinvocationPolicy") == "IfNeeded",
        }
    }

    /// Calls the webhook, and applies the patch of the answer; returns whether the webhook was called at all.
    pub(super) fn mutate(&self, round: &mut Round<'_>, object: &mut Value) -> Result<bool, Halt> {
        let Some(answer) = self.ask(round, Some(object))? else { return Ok(false) };
        let Some(encoded) = answer.get("patch").and_then(Value::as_str) else { return Ok(true) };
        let decoded = STANDARD.decode(encoded).ok();
        let patch: Option<Value> = decoded.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let Some(patch) = patch else {
            return self.failure("the patch of the answer is not a base64 JSON document").map(|()| true);
        };
        match patch::apply_json_patch(object, &patch) {
            Ok(patched) => *object = patched,
            Err(error) => return Err(Halt::Error(ApiError::internal(error.message))),
        }
        Ok(true)
    }

    /// Calls the webhook, and stops the request if the answer is no.
    pub(super) fn validate(&self, round: &mut Round<'_>, object: &Value) -> Result<(), Halt> {
        let shown = (round.change.operation != "DELETE").then_some(object);
        self.ask(round, shown).map(drop)
    }

    fn failure(&self, why: &str) -> Result<(), Halt> {
        if self.ignore_failure { Ok(()) } else { Err(Halt::Error(failed(&self.name, why))) }
    }

    fn ask(&self, round: &mut Round<'_>, object: Option<&Value>) -> Result<Option<Value>, Halt> {
        let Some(shown) = self.matched(round) else { return Ok(None) };
        let review = review(&round.change, &shown, object);
        if !self.selects(round, object, &review)? {
            return Ok(None);
        }
        if round.change.dry_run && self.side_effects {
            let why = format!("admission webhook {:?} does not support dry run", self.name);
            return Err(Halt::Error(ApiError::bad_request(why)));
        }
        let Some(answer) = round.trail.find(&self.name, &review) else {
            return Err(Halt::Ask(Box::new(Call {
                webhook: self.name.clone(),
                client: self.client.clone(),
                review,
                timeout: self.timeout,
            })));
        };
        let response = match response(answer, &review) {
            Ok(response) => response,
            Err(why) => return self.failure(&why).map(|()| None),
        };
        round.warnings.extend(strings(response.get("warnings")).into_iter().map(str::to_owned));
        if response.get("allowed") != Some(&json!(true)) {
            return Err(denied(&self.name, response));
        }
        Ok(Some(response.clone()))
    }

    /// The kind under which a rule matches: the request's own, or an equivalent one.
    fn matched(&self, round: &Round<'_>) -> Option<Arc<Kind>> {
        let change = &round.change;
        // Webhook configurations themselves are never shown to webhooks: a bad one could not be mended.
        if change.kind.group == "admissionregistration.k8s.io" {
            return None;
        }
        let fits = |kind: &Kind| {
            self.rules
                .iter()
                .any(|rule| rule.matches(kind, change.subresource, change.operation, change.namespace))
        };
        if fits(change.kind) {
            return Some(Arc::clone(change.kind));
        }
        if !self.equivalent {
            return None;
        }
        round.cluster.equivalents(change.kind).into_iter().find(|kind| fits(kind))
    }

    fn selects(&self, round: &Round<'_>, object: Option<&Value>, review: &Value) -> Result<bool, Halt> {
        let change = &round.change;
        if !self.namespaces.is_empty() {
            let of_namespace = change.kind.group.is_empty() && change.kind.kind == "Namespace";
            let found = match object.or(change.old).filter(|_| of_namespace) {
                Some(object) => Some(object.clone()),
                None if change.namespace.is_empty() => None,
                None => round.cluster.namespace(change.namespace),
            };
            // Cluster-scoped objects are never left out by a namespace selector.
            if found.is_some_and(|namespace| !self.namespaces.matches(&namespace)) {
                return Ok(false);
            }
        }
        if !self.objects.is_empty() {
            let matches = |value: Option<&Value>| value.is_some_and(|v| self.objects.matches(v));
            if !matches(object) && !matches(change.old) {
                return Ok(false);
            }
        }
        for (name, expression) in &self.conditions {
            let request = review.get("request").cloned().unwrap_or_default();
            let variables = [
                ("object", request.get("object").cloned().unwrap_or_default()),
                ("oldObject", request.get("oldObject").cloned().unwrap_or_default()),
                ("request", request),
            ];
            match condition(expression, &variables) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(why) => {
                    return self.failure(&format!("match condition {name:?}: {why}")).map(|()| false);
                }
            }
        }
        Ok(true)
    }
}

impl Rule {
    fn read(rule: &Value) -> Self {
        Self {
            groups: owned(rule.get("apiGroups")),
            versions: owned(rule.get("apiVersions")),
            resources: owned(rule.get("resources")),
            operations: owned(rule.get("operations")),
            scope: object::text_at(rule, "scope").to_owned(),
        }
    }

    fn matches(&self, kind: &Kind, subresource: &str, operation: &str, namespace: &str) -> bool {
        let any = |list: &[String], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
        let scope = match self.scope.as_str() {
            "Namespaced" => !namespace.is_empty() && kind.namespaced,
            "Cluster" => !kind.namespaced,
            _ => true,
        };
        scope
            && any(&self.groups, &kind.group)
            && any(&self.versions, &kind.version)
            && any(&self.operations, operation)
            && self.resources.iter().any(|pattern| {
                let (resource, sub) = pattern.split_once('/').unwrap_or((pattern, ""));
                (resource == "*" || resource == kind.plural)
                    && (sub == subresource || (sub == "*") || (pattern == "*" && subresource.is_empty()))
            })
    }
}
