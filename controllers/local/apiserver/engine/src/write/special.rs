//! Subresources and kinds that are questions or commands rather than state.

use k8s_openapi::Resource;
use k8s_openapi::api::authentication::v1::TokenRequest as TokenRequestBody;
use schemars::JsonSchema;
use serde_json::{Value, json};

use super::{Write, decode};
use crate::access;
use crate::admission::Halt;
use crate::answer::{Reply, TokenRequest};
use crate::builtin;
use crate::engine::Engine;
use crate::field::FieldError;
use crate::object;
use crate::options::DeleteOptions;
use crate::request::Query;
use crate::schema;
use crate::status::{ApiError, Subject};

fn success(code: u16) -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code })
}

impl Write<'_> {
    /// The body as plain JSON; as protobuf it is of that type.
    pub(crate) fn plain_body(&self, type_name: &str) -> Result<Value, ApiError> {
        let format = crate::media::body_format(self.request.content_type, true)?;
        decode::body(self.request.body, format, Some(type_name)).map(|(body, _)| body)
    }

    /// `pods/binding` and `bindings`: puts a pod onto a node.
    pub(crate) fn bind(&mut self, engine: &mut Engine) -> Result<Value, Halt> {
        let binding = self.typed_body::<k8s_openapi::api::core::v1::Binding>("Binding", &["v1"])?;
        if self.target.name.is_empty() {
            self.target.name = object::name(&binding).to_owned();
        }
        if self.target.name != object::name(&binding) {
            return Err(ApiError::bad_request("name in URL does not match name in Binding object").into());
        }
        let node = check_target(&binding)?.to_owned();
        let live = self.live(engine)?;
        self.binds_to(&binding, &live)?;
        let name = self.target.name.clone();
        let refuse = |why: String| {
            let subject = Subject { group: "", resource: "pods/binding", name: &name };
            Err(Halt::Error(ApiError::conflict(subject, &why)))
        };
        if object::is_deleting(&live) {
            return refuse(format!("pod {name} is being deleted, cannot be assigned to a host"));
        }
        let current = object::text_at(&live, "spec.nodeName");
        if !current.is_empty() {
            return refuse(format!("pod {name} is already assigned to node {current:?}"));
        }
        let gates = object::at(&live, "spec.schedulingGates").and_then(Value::as_array);
        if gates.is_some_and(|gates| !gates.is_empty()) {
            return refuse(format!("pod {name} has non-empty .spec.schedulingGates"));
        }
        let mut pod = live.clone();
        object::child_mut(&mut pod, "spec").insert("nodeName".into(), json!(node));
        object::child_mut(&mut pod, "status").remove("nominatedNodeName");
        for key in ["annotations", "labels"] {
            let Some(given) = object::meta(&binding).get(key).and_then(Value::as_object).cloned() else {
                continue;
            };
            let own = object::meta_mut(&mut pod).entry(key).or_insert_with(|| json!({}));
            if let Some(own) = own.as_object_mut() {
                own.extend(given);
            }
        }
        let condition = json!({ "type": "PodScheduled", "status": "True", "lastProbeTime": null,
            "lastTransitionTime": self.context.time() });
        object::set_condition(&mut pod, condition);
        if !self.options.dry_run {
            engine.put(&self.kind, &self.key(), pod);
        }
        Ok(success(201))
    }

    /// The uid and version that a binding names must be those of the pod.
    fn binds_to(&self, binding: &Value, pod: &Value) -> Result<(), ApiError> {
        for (key, what) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
            let (given, current) = (object::meta_text(binding, key), object::meta_text(pod, key));
            if !given.is_empty() && given != current {
                return Err(self.unmet(what, given, current));
            }
        }
        Ok(())
    }

    /// `pods/eviction`: deletes a pod if the disruption budgets allow it.
    pub(crate) fn evict(&mut self, engine: &mut Engine) -> Result<Value, Halt> {
        let mut eviction = self.eviction()?;
        self.validate_by_webhooks(engine, "CREATE", None, &eviction)?;
        let options = object::child_mut(&mut eviction, "deleteOptions");
        options.remove("kind");
        options.remove("apiVersion");
        let body = Value::Object(options.clone());
        let mut options = DeleteOptions::parse(&Query::parse(""), Some(&body))?;
        options.dry_run |= self.options.dry_run;
        self.options.dry_run = options.dry_run;
        let pod = self.live(engine)?;
        self.spend_budget(engine, &pod)?;
        self.target.subresource.clear();
        self.check_preconditions(&options, &pod)?;
        if !options.dry_run {
            self.note_eviction(engine, pod);
            options.revision = None;
        }
        self.delete(engine, &options)?;
        Ok(success(201))
    }

    /// The body as the type of a kind, in one of these versions; it need not name them.
    fn typed_body<T: JsonSchema + Resource>(&self, kind: &str, versions: &[&str]) -> Result<Value, ApiError> {
        let mut body = self.plain_body(&builtin::type_name(T::GROUP, T::VERSION, kind))?;
        let (given, named) = (object::text_at(&body, "apiVersion"), object::text_at(&body, "kind"));
        let known = (given.is_empty() || versions.contains(&given)) && (named.is_empty() || named == kind);
        if !known || !body.is_object() {
            return Err(ApiError::bad_request(format!(
                "no kind {named:?} is registered for version {given:?}"
            )));
        }
        let decoded = schema::decode::decode_builtin(&mut body, &schema::builtin::builtin::<T>());
        decoded.map_err(|why| {
            ApiError::bad_request(schema::decode::cannot_be_handled(kind, T::VERSION, &why))
        })?;
        self.is_in_namespace(&body)?;
        Ok(body)
    }

    fn eviction(&self) -> Result<Value, ApiError> {
        let versions = ["policy/v1", "policy/v1beta1"];
        let mut eviction =
            self.typed_body::<k8s_openapi::api::policy::v1::Eviction>("Eviction", &versions)?;
        if object::name(&eviction) != self.target.name {
            return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
        }
        object::set_meta(&mut eviction, "namespace", json!(self.target.namespace));
        Ok(eviction)
    }

    fn note_eviction(&self, engine: &mut Engine, mut pod: Value) {
        let condition = json!({ "type": "DisruptionTarget", "status": "True", "lastProbeTime": null,
            "lastTransitionTime": self.context.time(), "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting" });
        if !object::condition_is(&pod, "DisruptionTarget", "True") {
            object::set_condition(&mut pod, condition);
            engine.put(&self.kind, &self.key(), pod);
        }
    }

    fn spend_budget(&mut self, engine: &mut Engine, pod: &Value) -> Result<(), Halt> {
        let ended = matches!(object::text_at(pod, "status.phase"), "Failed" | "Succeeded" | "Pending");
        if ended || object::is_deleting(pod) {
            return Ok(());
        }
        let Some(kind) = engine.kinds.resource("policy", "v1", "poddisruptionbudgets").cloned() else {
            return Ok(());
        };
        let prefix = format!("{}/", self.target.namespace);
        let budgets: Vec<Value> = engine
            .store
            .range(&kind.table, &prefix, None)
            .map(|(_, stored)| crate::render::parse(&stored.json))
            .filter(|budget| {
                let selector = object::at(budget, "spec.selector");
                selector.is_some_and(|s| crate::selector::LabelSelector::from_object(s).matches(pod))
            })
            .collect();
        let Some(budget) = budgets.first() else { return Ok(()) };
        if budgets.len() > 1 {
            let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(ApiError::internal(why).into());
        }
        let number = |path: &str| object::at(budget, path).and_then(Value::as_i64).unwrap_or(0);
        let healthy = number("status.currentHealthy") >= number("status.desiredHealthy").max(1);
        let always = object::text_at(budget, "spec.unhealthyPodEvictionPolicy") == "AlwaysAllow";
        // What is not ready does not count as healthy, and its end disrupts nothing more.
        if (healthy || always) && !object::condition_is(pod, "Ready", "True") {
            return Ok(());
        }
        let (allowed, name) = (number("status.disruptionsAllowed"), object::name(budget).to_owned());
        let observed = number("status.observedGeneration") >= number("metadata.generation");
        if observed && allowed < 0 {
            let subject = Subject { group: "policy", resource: "poddisruptionbudget", name: &name };
            return Err(ApiError::forbidden(subject, "pdb disruptions allowed is negative").into());
        }
        if !observed || allowed == 0 {
            return Err(too_many(&name, budget, observed).into());
        }
        if self.options.dry_run {
            return Ok(());
        }
        let mut spent = budget.clone();
        let status = object::child_mut(&mut spent, "status");
        status.insert("disruptionsAllowed".into(), json!(allowed - 1));
        let disrupted = status.entry("disruptedPods").or_insert_with(|| json!({}));
        if let Some(map) = disrupted.as_object_mut() {
            map.insert(self.target.name.clone(), json!(self.context.time()));
        }
        engine.put(&kind, &crate::store::key_of(&self.target.namespace, &name), spent);
        Ok(())
    }

    /// `namespaces/finalize`: the list of finalizers in `spec`.
    pub(crate) fn finalize(&mut self, engine: &mut Engine) -> Result<Value, Halt> {
        let mut given = self.decode(engine)?;
        self.place(&mut given)?;
        let live = self.live(engine)?;
        let mut object = live.clone();
        let finalizers = object::at(&given, "spec.finalizers").cloned().unwrap_or_else(|| json!([]));
        let spec = object::child_mut(&mut object, "spec");
        if finalizers.as_array().is_none_or(Vec::is_empty) {
            spec.remove("finalizers");
        } else {
            spec.insert("finalizers".into(), finalizers);
        }
        let mut errors = Vec::new();
        crate::builtin::meta::validate_namespace_finalizers(&object, &mut errors);
        // Here, and nowhere else, the one that is wrong is named.
        for error in errors.iter_mut().filter(|error| error.field == "spec.finalizers") {
            let all = object::strings(object::at(&object, "spec.finalizers"));
            let at = all.iter().position(|one| error.message.contains(&format!("{one:?}"))).unwrap_or(0);
            error.field = format!("spec.finalizers[{at}]");
        }
        if !errors.is_empty() {
            return Err(ApiError::invalid(self.subject_kind(&self.target.name), &errors).into());
        }
        crate::ownership::track(self, Some(&live), &mut object);
        self.finish(engine, object, &live)
    }

    pub(crate) fn token(&mut self, engine: &Engine) -> Result<Reply, Halt> {
        let account = self.live(engine)?;
        let versions = ["authentication.k8s.io/v1"];
        let mut body = self.typed_body::<TokenRequestBody>("TokenRequest", &versions)?;
        let given = object::name(&body);
        if !given.is_empty() && given != self.target.name {
            let detail = "must match the service account name if specified";
            let error = FieldError::invalid("metadata.name", &given, detail);
            let subject =
                Subject { group: "authentication.k8s.io", resource: "TokenRequest", name: &self.target.name };
            return Err(ApiError::invalid(subject, &[error]).into());
        }
        let spec = object::child_mut(&mut body, "spec");
        let seconds = spec.get("expirationSeconds").and_then(Value::as_i64).unwrap_or(3600);
        let mut errors = Vec::new();
        if seconds < 600 {
            errors.push(FieldError::invalid(
                "spec.expirationSeconds",
                &seconds,
                "may not specify a duration less than 10 minutes",
            ));
        }
        if seconds > 1 << 32 {
            errors.push(FieldError::invalid(
                "spec.expirationSeconds",
                &seconds,
                "may not specify a duration larger than 2^32 seconds",
            ));
        }
        if !errors.is_empty() {
            let subject = Subject { group: "authentication.k8s.io", resource: "TokenRequest", name: "" };
            return Err(ApiError::invalid(subject, &errors).into());
        }
        spec.insert("expirationSeconds".into(), json!(seconds));
        self.check_bound_object(engine, &body)?;
        Ok(Reply::Token(Box::new(TokenRequest { account, body })))
    }

    fn check_bound_object(&self, engine: &Engine, body: &Value) -> Result<(), ApiError> {
        let bound = |key: &str| object::text_at(body, &format!("spec.boundObjectRef.{key}")).to_owned();
        let (kind, name, uid) = (bound("kind"), bound("name"), bound("uid"));
        if kind.is_empty() {
            return Ok(());
        }
        let table = match kind.as_str() {
            _ if bound("apiVersion") != "v1" => {
                let why = format!("cannot bind token to object of type {}, Kind={kind}", bound("apiVersion"));
                return Err(ApiError::bad_request(why));
            }
            "Pod" => "/pods",
            "Secret" => "/secrets",
            "Node" => "/nodes",
            _ => {
                return Err(ApiError::bad_request(format!(
                    "cannot bind token for serviceaccount {:?} to object of type {kind:?}",
                    self.target.name
                )));
            }
        };
        let namespace = if kind == "Node" { "" } else { self.target.namespace.as_str() };
        let resource = table.trim_start_matches('/');
        let found = engine.value(table, &crate::store::key_of(namespace, &name));
        let found = found.ok_or_else(|| ApiError::not_found(Subject { group: "", resource, name: &name }))?;
        if !uid.is_empty() && uid != object::uid(&found) {
            let why = format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            );
            return Err(ApiError::conflict(Subject { group: "", resource, name: &name }, &why));
        }
        Ok(())
    }

    pub(crate) fn review(&mut self, engine: &Engine) -> Result<Value, Halt> {
        let body = self.decode(engine)?;
        let mut answer = access::review::answer(&self.kind.kind, &body, self.request.user, &engine.rules)?;
        match self.kind.kind.as_str() {
            "SelfSubjectReview" => {
                object::set_meta(&mut answer, "creationTimestamp", json!(self.context.time()));
            }
            "SelfSubjectRulesReview" => object::set(&mut answer, "spec", json!({})),
            _ => {}
        }
        Ok(answer)
    }
}

fn check_target(binding: &Value) -> Result<&str, ApiError> {
    let mut errors = Vec::new();
    let (kind, node) = (object::text_at(binding, "target.kind"), object::text_at(binding, "target.name"));
    if !matches!(kind, "" | "Node") {
        errors.push(FieldError::not_supported("target.kind", &kind, &["Node", "<empty>"]));
    }
    if node.is_empty() {
        errors.push(FieldError::required("target.name", ""));
    }
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    match texts.as_slice() {
        [] => Ok(node),
        [only] => Err(ApiError::plain(500, "", only.clone())),
        all => Err(ApiError::plain(500, "", format!("[{}]", all.join(", ")))),
    }
}

fn too_many(name: &str, budget: &Value, observed: bool) -> ApiError {
    let number = |path: &str| object::at(budget, path).and_then(Value::as_i64).unwrap_or(0);
    let conditions = object::at(budget, "status.conditions").and_then(Value::as_array);
    let mut refused = conditions.into_iter().flatten().filter(|condition| {
        let text = |key: &str| object::text_at(condition, key);
        text("type") == "DisruptionAllowed" && text("status") == "False" && !text("message").is_empty()
    });
    let (reason, why) = refused
        .next()
        .map_or(("", ""), |found| (object::text_at(found, "reason"), object::text_at(found, "message")));
    let (wanted, healthy) = (number("status.desiredHealthy"), number("status.currentHealthy"));
    let currently = format!("The disruption budget {name} does not allow evicting pods currently");
    let message = match (observed, reason) {
        (false, _) => format!("The disruption budget {name} is still being processed by the server."),
        (true, "SyncFailed") => format!("{currently} because it failed sync: {why}"),
        _ if healthy <= wanted => {
            format!("The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently")
        }
        (true, "") => currently,
        _ => format!("{currently} ({reason}): {why}"),
    };
    let mut error = ApiError::plain(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
    );
    let mut details = serde_json::Map::new();
    details.insert("causes".into(), json!([{ "reason": "DisruptionBudget", "message": message }]));
    error.details = Some(Box::new(details));
    if !observed {
        error.retry_after = Some(10);
    }
    error
}
