//! Background tasks, which controllers do in a real cluster: namespaces, garbage collection, definitions.
//!
//! Changes queue tasks; the shell runs them right after, a few at a time, until none are left. A task reads the current
//! state when it runs, so a repeated or superfluous task does nothing.

pub(crate) mod collect;
mod expire;
mod namespace;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::admission::{Halt, Trail};
use crate::apply::{self, Manager, Operation};
use crate::context::{Context, User};
use crate::engine::Engine;
use crate::kinds::Kind;
use crate::object;
use crate::options::{DeleteOptions, FieldValidation, WriteOptions};
use crate::request::{Method, Request, Target};
use crate::store::key_of;
use crate::task::Task;
use crate::write::Write;

impl Engine {
    /// Runs up to `limit` background tasks; returns whether more are left.
    pub fn run_tasks(&mut self, context: &Context, limit: usize) -> bool {
        for _ in 0..limit {
            let Some(task) = self.tasks.pop_front() else { return false };
            self.run_task(&task, context);
        }
        !self.tasks.is_empty()
    }

    fn run_task(&mut self, task: &Task, context: &Context) {
        match task {
            Task::Namespace(name) => self.tend_namespace(name, context),
            Task::NamespaceContent(name) => self.finish_namespace(name, context),
            Task::Removed(uid) => self.release_dependents(uid, context),
            Task::Propagate(table, key) => {
                if let Some(kind) = self.kinds.of_table(table).cloned() {
                    self.propagate(&kind, key, context);
                }
            }
            Task::Dependent(uid) => self.finish_foreground(uid),
            Task::Owners(table, key) => self.check_owners(table, key, context),
            Task::Definition(name) => self.tend_definition(name, context),
            Task::Definitions(group) => self.rejudge_definitions(group, context),
        }
    }

    /// Queues the background tasks of namespaces and definitions, after a restart. Those of the garbage collector are queued when
    /// the objects are read.
    pub fn queue_all_tasks(&mut self) {
        for namespace in self.values("/namespaces") {
            self.tasks.push_back(Task::Namespace(object::name(&namespace).to_owned()));
        }
        for definition in self.values("apiextensions.k8s.io/customresourcedefinitions") {
            self.tasks.push_back(Task::Definition(object::name(&definition).to_owned()));
        }
    }

    /// Deletes an object as the system itself; refusals are left for the next look.
    pub(crate) fn delete_as_system(
        &mut self,
        kind: &Arc<Kind>,
        object: &Value,
        context: &Context,
        options: &DeleteOptions,
    ) {
        let user = system();
        let request = Request {
            method: Method::Delete,
            path: "",
            query: "",
            accept: "",
            content_type: "",
            user_agent: "kube-controller-manager",
            body: &[],
            user: &user,
        };
        let target = Target {
            group: kind.group.clone(),
            version: kind.version.clone(),
            namespace: object::namespace(object).to_owned(),
            resource: kind.plural.clone(),
            name: object::name(object).to_owned(),
            ..Target::default()
        };
        let write_options = WriteOptions {
            dry_run: false,
            manager: "kube-controller-manager".into(),
            manager_given: false,
            validation: FieldValidation::Ignore,
            force: false,
        };
        let mut warnings = Vec::new();
        let trail = Trail::default();
        let mut write = Write {
            request: &request,
            context,
            trail: &trail,
            kind: Arc::clone(kind),
            target,
            options: write_options,
            rehearsal: false,
            warnings: &mut warnings,
        };
        // The system's own clean-up does not call webhooks: no client waits for a response that they could change.
        let hooks = std::mem::take(&mut self.webhooks);
        let done = write.delete(self, options);
        self.webhooks = hooks;
        if let Err(Halt::Error(error)) = done {
            debug_assert!(error.code < 500, "{error}");
        }
    }

    /// Creates an object as the system itself, unless it exists.
    pub fn ensure(&mut self, group: &str, version: &str, plural: &str, mut object: Value, context: &Context) {
        let Some(kind) = self.kinds.resource(group, version, plural).cloned() else { return };
        let key = key_of(object::namespace(&object), object::name(&object));
        if self.store.read(&kind.table, &key).is_some() {
            return;
        }
        let mut entropy =
            Context { seed: context.seed ^ hash(&kind.table, &key), ..context.clone() }.entropy();
        crate::write::decode::default(&kind, &mut object);
        let status = object.get("status").cloned();
        crate::strategy::prepare_create(&kind, &mut object, context, &mut entropy);
        if let (Some(status), Some(map)) = (status, object.as_object_mut()) {
            map.insert("status".into(), status);
        }
        self.put(&kind, &key, object);
    }

    pub(crate) fn put_as_system(&mut self, kind: &Kind, object: Value) {
        let namespace = if kind.namespaced { object::namespace(&object) } else { "" };
        let key = key_of(namespace, object::name(&object));
        self.put(kind, &key, object);
    }

    fn tend_definition(&mut self, name: &str, context: &Context) {
        const TABLE: &str = "apiextensions.k8s.io/customresourcedefinitions";
        let Some(definition) = self.value(TABLE, &key_of("", name)) else { return };
        let Some(kind) =
            self.kinds.resource("apiextensions.k8s.io", "v1", "customresourcedefinitions").cloned()
        else {
            return;
        };
        if !object::is_deleting(&definition) {
            if let Some(judged) = self.judged(&kind, &definition, context) {
                self.put_as_system(&kind, judged);
            }
            return;
        }
        let group = object::text_at(&definition, "spec.group").to_owned();
        let plural = object::text_at(&definition, "spec.names.plural").to_owned();
        if let Some(custom) = self.kinds.any_version(&group, &plural).cloned() {
            for object in self.values(&custom.table) {
                if !object::is_deleting(&object) {
                    self.delete_as_system(&custom, &object, context, &DeleteOptions::default());
                }
            }
            if self.store.count(&custom.table) > 0 {
                return;
            }
        }
        let mut definition = definition;
        let rest: Vec<String> = object::finalizers(&definition)
            .into_iter()
            .filter(|f| *f != crate::crd::status::DEFINITION_CLEANUP)
            .map(str::to_owned)
            .collect();
        if rest.len() == object::finalizers(&definition).len() && !rest.is_empty() {
            return;
        }
        object::set_meta(
            &mut definition,
            "finalizers",
            if rest.is_empty() { Value::Null } else { json!(rest) },
        );
        if rest.is_empty() {
            self.remove(&kind, &key_of("", name), definition);
        } else {
            self.put_as_system(&kind, definition);
        }
    }

    /// A definition with its new status, if that differs; the status is this server's own.
    fn judged(&self, kind: &crate::kinds::Kind, definition: &Value, context: &Context) -> Option<Value> {
        let mut judged = definition.clone();
        self.judge_definition(&mut judged, context);
        if judged == *definition {
            return None;
        }
        let time = context.time();
        let manager = Manager {
            name: "kube-apiserver",
            operation: Operation::Update,
            api_version: "apiextensions.k8s.io/v1",
            subresource: "status",
            time: &time,
        };
        let reset = apply::reset_fields(kind.schema(), false, true, "status");
        apply::track_update(Some(definition), &mut judged, kind.schema(), &manager, &reset);
        Some(judged)
    }

    fn rejudge_definitions(&mut self, group: &str, context: &Context) {
        let Some(kind) =
            self.kinds.resource("apiextensions.k8s.io", "v1", "customresourcedefinitions").cloned()
        else {
            return;
        };
        for definition in self.values(&kind.table) {
            if object::text_at(&definition, "spec.group") != group {
                continue;
            }
            if let Some(judged) = self.judged(&kind, &definition, context) {
                self.put_as_system(&kind, judged);
            }
        }
    }
}

fn hash(table: &str, key: &str) -> u128 {
    table.bytes().chain(key.bytes()).fold(0xcbf2_9ce4_8422_2325_u128, |sum, byte| {
        (sum ^ u128::from(byte)).wrapping_mul(0x0000_0100_0000_01b3_0000_0000_0000_013b)
    })
}

pub(crate) fn system() -> User {
    User {
        name: "system:kube-controller-manager".into(),
        groups: vec!["system:masters".into(), "system:authenticated".into()],
        ..User::default()
    }
}
