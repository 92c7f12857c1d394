//! The API server without its sockets: state, and what a request does to it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use crate::access::RuleIndex;
use crate::admission::{Call, Cluster, Halt, Trail, Webhooks};
use crate::background::Task;
use crate::context::Context;
use crate::kinds::{Kind, Kinds};
use crate::render;
use crate::request::Request;
use crate::route;
use crate::status::ApiError;
use crate::store::{Change, Store, Stored};
use crate::watch::Watch;

/// A finished answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status code.
    pub code: u16,
    /// `Content-Type`
    pub content_type: &'static str,
    /// Body.
    pub body: Bytes,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
    /// Seconds for `Retry-After`.
    pub retry_after: Option<u32>,
    /// The answer shows the state of this revision; it must be on disk before the answer leaves.
    pub revision: u64,
}

/// A pod request that the node answers (`log`, `exec`, …).
#[derive(Clone, Debug)]
pub struct NodeRequest {
    /// The pod as stored.
    pub pod: Value,
    /// `log`, `exec`, `attach`, `portforward` or `proxy`.
    pub subresource: String,
    /// What follows in the path.
    pub rest: String,
    /// Raw query.
    pub query: String,
}

/// A token to be signed.
#[derive(Clone, Debug)]
pub struct TokenRequest {
    /// The service account.
    pub account: Value,
    /// The `TokenRequest` body, defaulted.
    pub body: Value,
}

/// What the shell has to do for a request.
#[derive(Debug)]
pub enum Reply {
    /// Send this.
    Answer(Answer),
    /// Stream this, with these warnings.
    Watch(Box<Watch>, Vec<String>),
    /// Make this call, then run the request again.
    Ask(Box<Call>),
    /// Hand over to the node that runs the pod.
    Node(Box<NodeRequest>),
    /// Check the token in this `TokenReview` and answer with the outcome.
    TokenReview(Box<Value>),
    /// Sign a service account token and answer with it.
    Token(Box<TokenRequest>),
}

/// Table and key of an object.
pub(crate) type Place = (Arc<str>, Arc<str>);

/// All state.
#[derive(Debug)]
pub struct Engine {
    /// Objects and history.
    pub(crate) store: Store,
    /// Served kinds.
    pub(crate) kinds: Kinds,
    /// Access rules, rebuilt when they change.
    pub(crate) rules: RuleIndex,
    /// Whether access rules are enforced.
    pub(crate) enforce: bool,
    pub(crate) webhooks: Webhooks,
    /// Objects by the uid of an owner they name.
    pub(crate) owned: BTreeMap<String, BTreeSet<Place>>,
    /// Owners that wait for their dependents, by uid.
    pub(crate) foreground: BTreeMap<String, (Arc<Kind>, String)>,
    /// Names of definitions that are being deleted: kept here so that writes of their objects need not read one.
    pub(crate) ending: BTreeSet<String>,
    /// Admission of custom kinds.
    pub(crate) plugin: Option<crate::plugins::Plugin>,
    /// Background tasks that have not run yet.
    pub(crate) tasks: VecDeque<Task>,
    pub(crate) documents: crate::discovery::Documents,
}

impl Engine {
    /// An engine over a store, which may hold objects read from disk.
    pub fn new(store: Store) -> Self {
        let mut engine = Self {
            store,
            kinds: Kinds::builtin(),
            rules: RuleIndex::default(),
            enforce: true,
            webhooks: Webhooks::default(),
            owned: BTreeMap::new(),
            foreground: BTreeMap::new(),
            ending: BTreeSet::new(),
            plugin: None,
            tasks: VecDeque::new(),
            documents: crate::discovery::Documents::default(),
        };
        engine.reload();
        engine
    }

    /// Turns the enforcement of access rules off; for tests of other things.
    pub fn allow_everything(&mut self) {
        self.enforce = false;
    }

    /// The store, for the shell: floors, changes, revisions.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The store, for fault switches.
    pub fn store_mut(&mut self) -> &mut Store {
        &mut self.store
    }

    /// Whether a request only reads, so that a shared lock is enough.
    pub fn is_read(request: &Request<'_>) -> bool {
        route::is_read(request)
    }

    /// Answers a request that [`is_read`](Self::is_read).
    pub fn read(&self, request: &Request<'_>, context: &Context) -> Reply {
        route::read(self, request, context)
            .unwrap_or_else(|error| Reply::Answer(self.refuse(&error, Vec::new())))
    }

    /// Answers any other request.
    pub fn write(&mut self, request: &Request<'_>, context: &Context, trail: &Trail) -> Reply {
        let mut warnings = Vec::new();
        match route::write(self, request, context, trail, &mut warnings) {
            Ok(Reply::Answer(mut answer)) => {
                answer.warnings = warnings;
                answer.revision = self.store.revision();
                Reply::Answer(answer)
            }
            Ok(reply) => reply,
            Err(Halt::Ask(call)) => Reply::Ask(call),
            Err(Halt::Error(error)) => Reply::Answer(self.refuse(&error, warnings)),
        }
    }

    /// A refusal shows the present, too: that something is gone, or taken.
    fn refuse(&self, error: &ApiError, warnings: Vec<String>) -> Answer {
        Answer { revision: self.store.revision(), ..refusal(error, warnings) }
    }

    /// The changes since the last call, for the disk.
    pub fn take_changes(&mut self) -> Vec<Change> {
        self.store.take_fresh()
    }

    /// Reads an object as a value in its stored version.
    pub(crate) fn value(&self, table: &str, key: &str) -> Option<Value> {
        self.store.read(table, key).map(|stored| render::parse(&stored.json))
    }

    /// Stores an object: gives it its revision, and lets everything derived follow.
    pub(crate) fn put(&mut self, kind: &Kind, key: &str, mut object: Value) -> (Value, Stored) {
        let before = self.store.read(&kind.table, key).cloned();
        self.to_storage(&mut object, kind);
        let revision = self.store.next_revision();
        crate::object::set_meta(&mut object, "resourceVersion", Value::String(revision.to_string()));
        let json = render::to_bytes(&object);
        self.store.put(&kind.table, key, json.clone());
        self.follow(kind, key, before.as_ref(), Some((&object, &json)));
        let stored = Stored { revision, json };
        let shown = if kind.storage == kind.api_version() { object } else { render::value_in(kind, &stored) };
        (shown, stored)
    }

    /// Brings an object of a served version into the stored one. Custom objects lose what the stored version does
    /// not have.
    fn to_storage(&self, object: &mut Value, kind: &Kind) {
        if kind.api_version() == kind.storage {
            return;
        }
        crate::convert::to_storage(object, kind);
        if kind.custom.is_some()
            && let Some(stored) = self.kinds.of_table(&kind.table)
        {
            crate::convert::fit(object, stored);
        }
    }

    /// Removes an object whose last state is `object`; returns that state at its final revision.
    pub(crate) fn remove(&mut self, kind: &Kind, key: &str, mut object: Value) -> Value {
        let before = self.store.read(&kind.table, key).cloned();
        self.to_storage(&mut object, kind);
        let revision = self.store.next_revision();
        crate::object::set_meta(&mut object, "resourceVersion", Value::String(revision.to_string()));
        let json = render::to_bytes(&object);
        self.store.remove(&kind.table, key, json.clone());
        self.follow(kind, key, before.as_ref(), None);
        if self.is_ending(kind) {
            self.tasks.push_back(Task::Definition(kind.qualified()));
        }
        self.tasks.push_back(Task::Removed(crate::object::uid(&object).to_owned()));
        if !crate::object::namespace(&object).is_empty() {
            let namespace = crate::object::namespace(&object).to_owned();
            self.tasks.push_back(Task::NamespaceContent(namespace));
        }
        render::value_in(kind, &Stored { revision, json })
    }

    /// Whether the definition behind a custom kind is being deleted.
    pub(crate) fn is_ending(&self, kind: &Kind) -> bool {
        kind.custom.is_some() && self.ending.contains(&kind.qualified())
    }

    /// Answer for a value, in the form the request accepts.
    pub(crate) fn answer(
        request: &Request<'_>,
        context: &Context,
        kind: &Kind,
        code: u16,
        value: &Value,
    ) -> Result<Answer, ApiError> {
        let accepted = crate::media::negotiate(request.accept)?;
        let query = crate::request::Query::parse(request.query);
        let form = render::Form { kind, accepted, include: query.text("includeObject"), now: context.now };
        let body = render::one_value(&form, value)?;
        Ok(answer(code, accepted.encoding.media_type(), body))
    }

    /// Answer with a body that is no object of a served kind (`Status`, `Scale`, reviews).
    pub(crate) fn plain(request: &Request<'_>, code: u16, value: &Value) -> Result<Answer, ApiError> {
        let accepted = crate::media::negotiate(request.accept).unwrap_or(crate::media::PLAIN);
        let body = match accepted.encoding {
            crate::media::Encoding::Json => render::to_bytes(value),
            crate::media::Encoding::Yaml => crate::yaml::from_json(value)?.into(),
        };
        Ok(answer(code, accepted.encoding.media_type(), body))
    }
}

/// An answer without warnings.
pub(crate) fn answer(code: u16, content_type: &'static str, body: Bytes) -> Answer {
    Answer { code, content_type, body, warnings: Vec::new(), retry_after: None, revision: 0 }
}

/// The answer of an error.
pub fn refusal(error: &ApiError, warnings: Vec<String>) -> Answer {
    if error.reason == crate::status::NO_SUCH_PATH {
        let text = Bytes::from(format!("{}\n", error.message));
        return answer(error.code, "text/plain; charset=utf-8", text);
    }
    Answer {
        code: error.code,
        content_type: "application/json",
        body: render::to_bytes(&error.to_status()),
        warnings,
        retry_after: error.retry_after,
        revision: 0,
    }
}

impl Cluster for Engine {
    fn namespace(&self, name: &str) -> Option<Value> {
        self.value("/namespaces", &crate::store::key_of("", name))
    }

    fn equivalents(&self, kind: &Kind) -> Vec<Arc<Kind>> {
        let same =
            |other: &&Arc<Kind>| other.table == kind.table && other.api_version() != kind.api_version();
        self.kinds.all().filter(same).cloned().collect()
    }
}

#[cfg(test)]
mod tests;
