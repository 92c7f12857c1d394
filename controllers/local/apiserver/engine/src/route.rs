//! From a request to the code that answers it, by way of the access rules.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::access::Attributes;
use crate::admission::{Halt, Trail};
use crate::answer::{NodeRequest, Reply, answer};
use crate::context::Context;
use crate::discovery;
use crate::engine::Engine;
use crate::form::Form;
use crate::kinds::{Kind, Verbs};
use crate::media::{self, Shape};
use crate::object;
use crate::options::{DELETE_OPTIONS, DeleteOptions, ListOptions, WriteOptions};
use crate::query_list;
use crate::render;
use crate::request::{Method, Query, Request, Target};
use crate::status::{ApiError, Subject};
use crate::store::key_of;
use crate::watch::Watch;
use crate::write::{Write, decode, delete::Deleted, scale};

/// Subresources that the node of a pod answers.
const NODE_WORK: &[&str] = &["log", "exec", "attach", "portforward", "proxy"];

pub(crate) fn is_read(request: &Request<'_>) -> bool {
    request.method == Method::Get
}

/// 404 for a resource that its group version does not have.
fn unknown_resource() -> ApiError {
    ApiError::plain(404, "NotFound", "the server could not find the requested resource")
        .with_details(serde_json::Map::new())
}

/// 404 for a path that means nothing: plain text, as from any web server.
fn unknown_path() -> ApiError {
    ApiError::plain(404, crate::status::NO_SUCH_PATH, "404 page not found")
}

fn method_not_allowed() -> ApiError {
    ApiError::plain(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    )
    .with_details(serde_json::Map::new())
}

/// As the handler of custom kinds words it.
fn not_supported(kind: &Kind, verb: &str) -> ApiError {
    let message = format!("{verb} is not supported on resources of kind \"{}.{}\"", kind.plural, kind.group);
    let details = [("group".to_owned(), json!(kind.group)), ("kind".to_owned(), json!(kind.plural))];
    ApiError::plain(405, "MethodNotAllowed", message).with_details(serde_json::Map::from_iter(details))
}

fn missing(engine: &Engine, request: &Request<'_>) -> ApiError {
    if discovery::below_builtin(engine, request.path) { unknown_resource() } else { unknown_path() }
}

fn authorize(engine: &Engine, request: &Request<'_>, target: &Target, verb: &str) -> Result<(), ApiError> {
    let attributes = Attributes {
        user: request.user,
        verb,
        group: &target.group,
        resource: &target.resource,
        subresource: &target.subresource,
        name: &target.name,
        namespace: &target.namespace,
        path: "",
    };
    engine.rules.authorize(&attributes).map_err(|why| {
        let subject = Subject { group: &target.group, resource: &target.resource, name: &target.name };
        ApiError::forbidden(subject, &why)
    })
}

fn authorize_path(engine: &Engine, request: &Request<'_>) -> Result<(), ApiError> {
    let verb = match request.method {
        Method::Get => "get",
        Method::Post => "post",
        Method::Put => "put",
        Method::Patch => "patch",
        Method::Delete | Method::Other => "delete",
    };
    engine.authorize(&Attributes { verb, path: request.path, ..Attributes::from_user(request.user) })
}

pub(crate) fn read(engine: &Engine, request: &Request<'_>, context: &Context) -> Result<Reply, ApiError> {
    let Some(target) = Target::parse(request.path) else {
        authorize_path(engine, request)?;
        return discovery::answer(engine, request)
            .unwrap_or_else(|| Err(missing(engine, request)))
            .map(Reply::Answer);
    };
    let query = Query::parse(request.query);
    let watched = target.watch || target.name.is_empty() && query.flag("watch");
    authorize(engine, request, &target, target.verb(request.method, watched))?;
    let kind = find(engine, &target)?;
    if !target.subresource.is_empty() {
        return read_subresource(engine, request, context, &kind, &target);
    }
    if kind.verbs == Verbs::Create {
        return Err(method_not_allowed());
    }
    let accepted = media::negotiate(request.accept)?;
    let include = include_object(&query, accepted.shape)?;
    let form = Form { kind: &kind, accepted, include, now: context.now };
    let namespace = target.namespace_of(&kind);
    if !target.name.is_empty() && !watched {
        return read_one(engine, &form, &query, &target).map(Reply::Answer);
    }
    let options = ListOptions::parse(&query, watched)?;
    if watched {
        let watch =
            Watch::open(&engine.store, &kind, accepted, include, (&namespace, &target.name), options)?;
        return Ok(Reply::Watch(Box::new(watch), deprecation(&kind)));
    }
    let page = query_list::list(&engine.store, &kind, &namespace, &options)?;
    let body = render::list(&form, &page.items, &page.meta)?;
    let mut done = answer(200, "application/json", body);
    done.revision = engine.store.revision();
    done.warnings = deprecation(&kind);
    Ok(Reply::Answer(done))
}

fn deprecation(kind: &Kind) -> Vec<String> {
    kind.custom.as_ref().and_then(|version| version.deprecation_warning.clone()).into_iter().collect()
}

fn include_object<'q>(query: &'q Query<'_>, shape: Shape) -> Result<&'q str, ApiError> {
    match query.text("includeObject") {
        known @ ("" | "None" | "Metadata" | "Object") => Ok(known),
        other if matches!(shape, Shape::Table(_)) => Err(ApiError::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', \
                 'Object', 'None', or empty"
        ))),
        _ => Ok(""),
    }
}

fn read_one(
    engine: &Engine,
    form: &Form<'_>,
    query: &Query<'_>,
    target: &Target,
) -> Result<crate::answer::EngineResponse, ApiError> {
    match query.text("resourceVersion") {
        "" | "0" => {}
        text => {
            let revision = text.parse().map_err(|_| {
                ApiError::plain(500, "", format!("strconv.ParseUint: parsing {text:?}: invalid syntax"))
            })?;
            query_list::not_in_future(&engine.store, revision)?;
        }
    }
    let stored = query_list::read(&engine.store, form.kind, &target.namespace_of(form.kind), &target.name)?;
    let mut done = answer(200, "application/json", render::one(form, stored)?);
    done.revision = stored.revision;
    done.warnings = deprecation(form.kind);
    Ok(done)
}

fn read_subresource(
    engine: &Engine,
    request: &Request<'_>,
    context: &Context,
    kind: &Arc<Kind>,
    target: &Target,
) -> Result<Reply, ApiError> {
    let sub = subresource(kind, target)?;
    if !sub.verbs.contains(&"get") {
        return Err(method_not_allowed());
    }
    let stored = query_list::read(&engine.store, kind, &target.namespace_of(kind), &target.name)?;
    let value = render::value_in(kind, stored);
    if NODE_WORK.contains(&target.subresource.as_str()) {
        return Ok(to_node(value, target, request));
    }
    let mut done = match target.subresource.as_str() {
        "resize" => {
            let accept = media::without_tables(request.accept)?;
            Engine::answer(&Request { accept: &accept, ..*request }, context, kind, 200, &value)?
        }
        "scale" => Engine::plain(200, &scale::read(kind, &value)?),
        _ => Engine::answer(request, context, kind, 200, &value)?,
    };
    done.revision = stored.revision;
    Ok(Reply::Answer(done))
}

fn to_node(pod: Value, target: &Target, request: &Request<'_>) -> Reply {
    Reply::Node(Box::new(NodeRequest {
        pod,
        subresource: target.subresource.clone(),
        rest: target.rest.clone(),
        query: request.query.to_owned(),
    }))
}

fn find(engine: &Engine, target: &Target) -> Result<Arc<Kind>, ApiError> {
    let kind = engine.kinds.resource(&target.group, &target.version, &target.resource).cloned();
    let Some(kind) = kind else {
        let builtin = engine.kinds.all().any(|kind| kind.group == target.group && kind.is_builtin());
        return Err(if builtin { unknown_resource() } else { unknown_path() });
    };
    // A cluster-scoped resource has no path under a namespace, and an object in a namespace none without.
    let under_namespace = !target.namespace.is_empty();
    let itself = target.resource == "namespaces" && target.name == target.namespace && kind.is_builtin();
    let has_rest = !target.rest.is_empty() && target.subresource != "proxy";
    let misplaced = (!kind.namespaced && under_namespace && !itself)
        || (kind.namespaced && !under_namespace && !target.name.is_empty())
        || (kind.is_builtin() && (has_rest || kind.verbs == Verbs::Create && !target.name.is_empty()));
    match (misplaced, kind.is_builtin()) {
        (false, _) => Ok(kind),
        (true, true) => Err(unknown_resource()),
        (true, false) => Err(unknown_path()),
    }
}

pub(crate) fn write(
    engine: &mut Engine,
    request: &Request<'_>,
    context: &Context,
    trail: &Trail,
    warnings: &mut Vec<String>,
) -> Result<Reply, Halt> {
    let Some(target) = Target::parse(request.path) else {
        authorize_path(engine, request)?;
        let found = discovery::answer(engine, request).ok_or_else(|| missing(engine, request))?;
        // Most documents are the same for every method.
        let steps: Vec<&str> = request.path.trim_matches('/').split('/').collect();
        return match steps.as_slice() {
            ["api" | "version"] | ["api", _] | ["apis", _, _] => Err(method_not_allowed().into()),
            _ => Ok(Reply::Answer(found?)),
        };
    };
    authorize(engine, request, &target, target.verb(request.method, false))?;
    let kind = find(engine, &target)?;
    check_method(&kind, &target, request.method)?;
    // Negotiated before anything is done: a write must not happen and then fail to be shown.
    media::negotiate(request.accept)?;
    warnings.extend(deprecation(&kind));
    let query = Query::parse(request.query);
    let options_kind = match request.method {
        Method::Post => "CreateOptions",
        Method::Put => "UpdateOptions",
        _ => "PatchOptions",
    };
    let options = match request.method {
        Method::Delete => WriteOptions::parse(&Query::default(), options_kind, false, request.user_agent)?,
        _ => {
            let apply = request.content_type.starts_with("application/apply-patch");
            WriteOptions::parse(&query, options_kind, apply, request.user_agent)?
        }
    };
    let mut write = Write { request, context, trail, kind, target, options, rehearsal: false, warnings };
    match request.method {
        Method::Post => post(engine, &mut write),
        Method::Put => put(engine, &mut write),
        Method::Patch => patch(engine, &mut write),
        Method::Delete => delete(engine, &mut write, &query),
        Method::Get | Method::Other => Err(method_not_allowed().into()),
    }
}

fn subresource<'k>(kind: &'k Kind, target: &Target) -> Result<&'k crate::kinds::Subresource, ApiError> {
    kind.subresource(&target.subresource).ok_or_else(|| match kind.custom {
        // The handler of custom kinds looks for the object first.
        Some(_) => {
            ApiError::not_found(Subject { group: &kind.group, resource: &kind.plural, name: &target.name })
        }
        None => unknown_resource(),
    })
}

fn check_method(kind: &Kind, target: &Target, method: Method) -> Result<(), ApiError> {
    if !target.subresource.is_empty() {
        let sub = subresource(kind, target)?;
        let verb = match method {
            Method::Post => "create",
            Method::Put => "update",
            Method::Patch => "patch",
            Method::Delete => "delete",
            Method::Get | Method::Other => "get",
        };
        return match kind.custom {
            _ if sub.verbs.contains(&verb) => Ok(()),
            Some(_) => Err(not_supported(kind, verb)),
            None => Err(method_not_allowed()),
        };
    }
    let everywhere = kind.namespaced && target.namespace.is_empty();
    if everywhere && method == Method::Post && kind.custom.is_some() {
        return Err(unknown_path());
    }
    let allowed = match method {
        Method::Post => target.name.is_empty() && !everywhere,
        Method::Put | Method::Patch => !target.name.is_empty() && kind.verbs == Verbs::All,
        Method::Delete if target.name.is_empty() => {
            kind.verbs == Verbs::All && !everywhere && kind.deletes_collection
        }
        Method::Delete => kind.verbs == Verbs::All,
        Method::Get | Method::Other => false,
    };
    if allowed { Ok(()) } else { Err(method_not_allowed()) }
}

fn shown(write: &Write<'_>, code: u16, value: &Value) -> Result<Reply, Halt> {
    Ok(Reply::Answer(Engine::answer(write.request, write.context, &write.kind, code, value)?))
}

fn status(code: u16, value: &Value) -> Result<Reply, Halt> {
    Ok(Reply::Answer(Engine::plain(code, value)))
}

fn post(engine: &mut Engine, write: &mut Write<'_>) -> Result<Reply, Halt> {
    match write.target.subresource.as_str() {
        "" if write.kind.verbs == Verbs::Create && write.kind.kind == "Binding" => {
            write.kind = engine.kinds.resource("", "v1", "pods").cloned().ok_or_else(unknown_resource)?;
            status(201, &write.bind(engine)?)
        }
        "" if write.kind.kind == "TokenReview" => {
            let review = write.decode(engine)?;
            if object::text_at(&review, "spec.token").is_empty() {
                return Err(
                    ApiError::bad_request("token is required for TokenReview in authentication").into()
                );
            }
            Ok(Reply::TokenReview(Box::new(review)))
        }
        "" if write.kind.verbs == Verbs::Create => status(201, &write.review(engine)?),
        "" => {
            let object = write.decode(engine)?;
            let created = write.create(engine, object, false)?;
            shown(write, 201, &created)
        }
        "binding" => status(201, &write.bind(engine)?),
        "eviction" => status(201, &write.evict(engine)?),
        "token" => write.token(engine),
        name if NODE_WORK.contains(&name) => {
            let pod = write.live(engine)?;
            Ok(to_node(pod, &write.target, write.request))
        }
        _ => Err(method_not_allowed().into()),
    }
}

fn put(engine: &mut Engine, write: &mut Write<'_>) -> Result<Reply, Halt> {
    match write.target.subresource.as_str() {
        "scale" => status(200, &write.scale(engine, false)?),
        "finalize" => {
            let done = write.finalize(engine)?;
            shown(write, 200, &done)
        }
        name if NODE_WORK.contains(&name) => {
            let pod = write.live(engine)?;
            Ok(to_node(pod, &write.target, write.request))
        }
        _ => {
            let object = write.decode(engine)?;
            let (code, done) = write.replace(engine, object)?;
            shown(write, code, &done)
        }
    }
}

fn patch(engine: &mut Engine, write: &mut Write<'_>) -> Result<Reply, Halt> {
    if write.target.subresource == "scale" {
        let done = write.scale(engine, true)?;
        return status(200, &done);
    }
    let (code, done) = write.patch(engine)?;
    shown(write, code, &done)
}

fn delete(engine: &mut Engine, write: &mut Write<'_>, query: &Query<'_>) -> Result<Reply, Halt> {
    let body = if write.request.body.is_empty() {
        None
    } else {
        let format = media::body_format(write.request.content_type, true)?;
        Some(decode::body(write.request.body, format, Some(DELETE_OPTIONS))?.0)
    };
    let options = DeleteOptions::parse(query, body.as_ref().filter(|b| !b.is_null()))?;
    write.options.dry_run = options.dry_run;
    if !write.target.name.is_empty() {
        let done = write.delete(engine, &options)?;
        let answer = write.deleted_answer(done);
        return if answer.get("kind") == Some(&json!("Status")) {
            status(200, &answer)
        } else {
            shown(write, 200, &answer)
        };
    }
    delete_collection(engine, write, query, &options)
}

/// Deletes objects one by one; those that are gone already are passed over. Returns them as they were found.
fn delete_each(
    engine: &mut Engine,
    write: &mut Write<'_>,
    found: &[crate::store::Stored],
    options: &DeleteOptions,
) -> Result<Vec<Value>, Halt> {
    let mut items = Vec::new();
    for stored in found {
        let object = render::value_in(&write.kind, stored);
        object::name(&object).clone_into(&mut write.target.name);
        if write.kind.namespaced {
            object::namespace(&object).clone_into(&mut write.target.namespace);
        }
        match write.delete(engine, options) {
            Ok(Deleted::Gone(_) | Deleted::Marked(_)) => items.push(object),
            Err(Halt::Error(error)) if error.code == 404 => {}
            Err(halt) => return Err(halt),
        }
    }
    Ok(items)
}

fn delete_collection(
    engine: &mut Engine,
    write: &mut Write<'_>,
    query: &Query<'_>,
    options: &DeleteOptions,
) -> Result<Reply, Halt> {
    let selection = ListOptions::parse(query, false)?;
    let namespace = write.target.namespace_of(&write.kind);
    let page = query_list::list(&engine.store, &write.kind, &namespace, &selection)?;
    if !engine.webhooks.is_empty() {
        // One refusal, or one question to a webhook, and nothing is deleted.
        write.rehearsal = true;
        delete_each(engine, write, &page.items, options)?;
        write.rehearsal = false;
    }
    let items = delete_each(engine, write, &page.items, options)?;
    let items: Vec<crate::store::Stored> = items
        .iter()
        .map(|object| crate::store::Stored { revision: 0, json: render::to_bytes(object) })
        .collect();
    let accepted = media::negotiate(write.request.accept)?;
    let form =
        Form { kind: &write.kind, accepted, include: query.text("includeObject"), now: write.context.now };
    let meta = render::ListMeta { revision: engine.store.revision(), ..render::ListMeta::default() };
    let body = render::list(&form, &items, &meta)?;
    Ok(Reply::Answer(answer(200, "application/json", body)))
}

impl Engine {
    /// An object by its place, for the shell's own needs (tokens, nodes).
    pub fn object(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        self.value(&format!("{group}/{plural}"), &key_of(namespace, name))
    }

    /// Lets something pass or refuses it, for paths that the shell answers itself.
    ///
    /// # Errors
    /// 403 as the real server words it.
    pub fn authorize(&self, attributes: &Attributes<'_>) -> Result<(), ApiError> {
        self.rules.authorize(attributes).map_err(|why| {
            ApiError::plain(403, "Forbidden", format!("forbidden: {why}"))
                .with_details(serde_json::Map::new())
        })
    }

    pub fn counts(&self) -> Vec<(String, usize)> {
        let tables = self.store.tables();
        tables
            .map(|table| (table.trim_start_matches('/').to_owned(), self.store.count(table)))
            .filter(|(_, n)| *n > 0)
            .collect()
    }

    pub fn may(&self, attributes: &Attributes<'_>) -> bool {
        self.rules.authorize(attributes).is_ok()
    }
}
