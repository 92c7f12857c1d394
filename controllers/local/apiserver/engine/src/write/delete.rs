//! Deleting: preconditions, grace, finalizers, propagation; one object or a collection.

use serde_json::{Value, json};

use super::Write;
use crate::admission::Halt;
use crate::background::collect::{FOREGROUND, ORPHAN, is_propagation};
use crate::engine::Engine;
use crate::object::{self, is_deleting, set_meta};
use crate::options::DeleteOptions;
use crate::status::{ApiError, Subject};

pub(crate) enum Deleted {
    Gone(Value),
    /// The object has a deletion timestamp and waits for finalizers, its content or its grace period.
    Marked(Value),
}

impl Write<'_> {
    pub(crate) fn delete(&mut self, engine: &mut Engine, options: &DeleteOptions) -> Result<Deleted, Halt> {
        let live = self.live(engine)?;
        self.check_preconditions(options, &live)?;
        self.admit_delete(engine, &live)?;
        self.validate_by_webhooks(engine, "DELETE", Some(&live), &live)?;
        let mut object = live.clone();
        let grace = self.grace(options, &live);
        if super::decode::is_definition(&self.kind) && !is_deleting(&live) {
            crate::crd::status::start_definition_end(&mut object, &self.context.time());
        }
        set_propagation(&mut object, options, false);
        let waits = grace > 0 || !object::finalizers(&object).is_empty() || !self.holds_nothing(&object);
        if !is_deleting(&live) {
            // An object that is removed at once gets no deletion timestamp, except pods.
            if waits || self.is_pod() {
                self.mark(&mut object, grace);
            }
        } else if let Some(now) = shortened(&live, grace) {
            set_meta(&mut object, "deletionGracePeriodSeconds", json!(now));
        }
        if !waits {
            self.mark_gone(&mut object);
            if self.options.dry_run || self.rehearsal {
                return Ok(Deleted::Gone(object));
            }
            if self.is_pod() && !crate::strategy::same(&object, &live) {
                // Watchers of pods see the mark before the end.
                engine.put(&self.kind, &self.key(), object.clone());
            }
            return Ok(Deleted::Gone(engine.remove(&self.kind, &self.key(), object)));
        }
        if self.options.dry_run || self.rehearsal || crate::strategy::same(&object, &live) {
            return Ok(Deleted::Marked(object));
        }
        let (shown, _) = engine.put(&self.kind, &self.key(), object);
        Ok(Deleted::Marked(shown))
    }

    pub(super) fn check_preconditions(&self, options: &DeleteOptions, live: &Value) -> Result<(), ApiError> {
        let subject = Subject { group: &self.kind.group, resource: &self.kind.kind, name: &self.target.name };
        let check = |what: &str, wanted: &Option<String>, current: &str, so: &str| match wanted {
            Some(wanted) if wanted != current => Err(ApiError::conflict(
                subject,
                &format!(
                    "the {what} in the precondition ({wanted}) does not match the {what} in record ({current}). The object might have been {so}"
                ),
            )),
            _ => Ok(()),
        };
        check("UID", &options.uid, object::uid(live), "deleted and then recreated")?;
        check("ResourceVersion", &options.revision, object::resource_version(live), "modified")
    }

    /// Grace period in seconds. Only pods that run on a node have one.
    fn grace(&self, options: &DeleteOptions, live: &Value) -> i64 {
        if !self.is_pod() {
            return 0;
        }
        let ended = matches!(object::text_at(live, "status.phase"), "Failed" | "Succeeded");
        if object::text_at(live, "spec.nodeName").is_empty() || ended {
            return 0;
        }
        let own =
            object::at(live, "spec.terminationGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(30);
        match options.grace.unwrap_or(own) {
            i64::MIN..0 => 1,
            seconds => seconds,
        }
    }

    fn mark(&self, object: &mut Value, grace: i64) {
        let at =
            self.context.now.checked_add(jiff::SignedDuration::from_secs(grace)).unwrap_or(self.context.now);
        set_meta(object, "deletionTimestamp", json!(crate::context::time_text(at)));
        // Namespaces and definitions end by the hand of their controllers, without grace.
        if self.is_namespace() || super::decode::is_definition(&self.kind) {
            if self.is_namespace() {
                object::child_mut(object, "status").insert("phase".into(), json!("Terminating"));
            }
            return;
        }
        set_meta(object, "deletionGracePeriodSeconds", json!(grace));
        if let Some(generation) = object::meta(object).get("generation").and_then(Value::as_i64) {
            set_meta(object, "generation", json!(generation + 1));
        }
    }

    fn mark_gone(&self, object: &mut Value) {
        if !self.is_namespace() && is_deleting(object) {
            set_meta(object, "deletionGracePeriodSeconds", json!(0));
        }
    }

    fn is_pod(&self) -> bool {
        self.kind.kind == "Pod" && self.kind.is_builtin()
    }

    pub(crate) fn is_namespace(&self) -> bool {
        self.kind.kind == "Namespace" && self.kind.group.is_empty()
    }

    /// Whether nothing but `metadata.finalizers` could hold the object back: namespaces have their own list.
    pub(crate) fn holds_nothing(&self, object: &Value) -> bool {
        !self.is_namespace()
            || object::at(object, "spec.finalizers").and_then(Value::as_array).is_none_or(Vec::is_empty)
    }

    pub(crate) fn deleted_answer(&self, done: Deleted) -> Value {
        const SHOWN: &str = "Pod Namespace Service ServiceAccount PersistentVolume PersistentVolumeClaim \
            ResourceQuota StorageClass";
        match done {
            Deleted::Marked(object) => object,
            Deleted::Gone(object) if self.kind.is_builtin() && object::is_word(SHOWN, &self.kind.kind) => {
                object
            }
            Deleted::Gone(object) => {
                let mut details = json!({ "name": object::name(&object), "kind": self.kind.plural,
                    "uid": object::uid(&object) });
                if !self.kind.group.is_empty() {
                    object::set(&mut details, "group", json!(self.kind.group));
                }
                json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details })
            }
        }
    }
}

/// The new grace period, if it is shorter than the current one; it cannot be lengthened.
fn shortened(live: &Value, grace: i64) -> Option<i64> {
    let running = object::meta(live).get("deletionGracePeriodSeconds").and_then(Value::as_i64)?;
    (grace < running).then_some(grace)
}

/// Turns the propagation policy into finalizers, as the garbage collector reads them.
fn set_propagation(object: &mut Value, options: &DeleteOptions, orphans: bool) {
    let mut finalizers: Vec<String> = object::finalizers(object).into_iter().map(str::to_owned).collect();
    let policy = match options.policy.as_str() {
        "" if orphans => "Orphan",
        given => given,
    };
    let wanted = match policy {
        "Orphan" => Some(ORPHAN),
        "Foreground" => Some(FOREGROUND),
        "" => return,
        _ => None,
    };
    finalizers.retain(|f| !is_propagation(f) || Some(f.as_str()) == wanted);
    if let Some(wanted) = wanted
        && !finalizers.iter().any(|f| f == wanted)
    {
        finalizers.push(wanted.to_owned());
    }
    let value = if finalizers.is_empty() { Value::Null } else { json!(finalizers) };
    set_meta(object, "finalizers", value);
}
