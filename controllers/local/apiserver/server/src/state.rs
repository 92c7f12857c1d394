//! The engine under its lock, and the rule that nothing leaves before it is on disk.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use neonvm_apiserver_engine::admission::Trail;
use neonvm_apiserver_engine::answer::{Reply, refusal};
use neonvm_apiserver_engine::context::{Context, User};
use neonvm_apiserver_engine::engine::Engine;
use neonvm_apiserver_engine::request::{Method, Request};
use neonvm_apiserver_engine::status::ApiError;
use neonvm_kit::certificate::Shown;
use parking_lot::RwLock;
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::disk::{Disk, Failed};
use crate::{webhook, when_full};

/// Background tasks run with a request, under its lock; the rest follows in the background.
const TASKS_PER_REQUEST: usize = 32;
const TASKS_PER_TURN: usize = 200;
/// Webhook calls one request may lead to.
const MAX_CALLS: usize = 64;

#[derive(Clone, Debug)]
pub struct Incoming {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub accept: String,
    pub content_type: String,
    pub user_agent: String,
    pub body: bytes::Bytes,
    pub user: Arc<User>,
}

impl Incoming {
    pub fn as_request(&self) -> Request<'_> {
        Request {
            method: self.method,
            path: &self.path,
            query: &self.query,
            accept: &self.accept,
            content_type: &self.content_type,
            user_agent: &self.user_agent,
            body: &self.body,
            user: &self.user,
        }
    }
}

#[derive(Debug)]
pub struct State {
    engine: RwLock<Engine>,
    disk: Disk,
    random: SystemRandom,
    more_tasks: tokio::sync::Notify,
    /// The certificate shown to webhooks, by which they identify the server.
    caller: std::sync::OnceLock<Arc<Shown>>,
}

impl State {
    pub fn new(engine: Engine, disk: Disk) -> Self {
        Self {
            engine: RwLock::new(engine),
            disk,
            random: SystemRandom::new(),
            more_tasks: tokio::sync::Notify::new(),
            caller: std::sync::OnceLock::new(),
        }
    }

    /// From now on this is shown to webhooks; only the first one counts.
    pub fn show_to_webhooks(&self, shown: Arc<Shown>) {
        let _ = self.caller.set(shown);
    }

    pub(crate) fn caller(&self) -> Option<&Arc<Shown>> {
        self.caller.get()
    }

    pub fn context(&self) -> Context {
        let mut seed = [0; 16];
        if self.random.fill(&mut seed).is_err() {
            // Names would only be easier to guess; uniqueness still comes from the time.
            seed = Timestamp::now().as_nanosecond().to_be_bytes();
        }
        Context { now: Timestamp::now(), seed: u128::from_be_bytes(seed) }
    }

    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    pub fn with<T>(&self, look: impl FnOnce(&Engine) -> T) -> T {
        look(&self.engine.read())
    }

    /// Changes the engine; what changed goes to the disk.
    pub fn change<T>(&self, change: impl FnOnce(&mut Engine) -> T) -> T {
        let mut engine = self.engine.write();
        let result = change(&mut engine);
        // Under the lock, so that the disk sees changes in the order of their revisions.
        self.disk.push(engine.take_changes());
        result
    }

    /// Runs a request to its reply. What the reply shows is on disk when this returns.
    pub async fn run(&self, incoming: &Incoming) -> Reply {
        let request = incoming.as_request();
        let context = self.context();
        let is_read = Engine::is_read(&request);
        if let (false, Err(failed)) = (is_read, self.disk.check()) {
            return refused(&failed);
        }
        if let (false, Some(full)) = (is_read, self.disk.full())
            && !(full.has_reserve && self.is_served_when_full(incoming))
        {
            return Reply::Answer(refusal(&when_full::refusal(&full), Vec::new()));
        }
        let (reply, newest) = if is_read {
            self.with(|engine| (engine.read(&request, &context), engine.store().revision()))
        } else {
            self.write(&request, &context).await
        };
        let shown = match &reply {
            Reply::Answer(answer) if answer.code < 400 => self.disk.wait(answer.revision).await,
            // A refusal reveals the state as well: that an object exists, is gone, or has another version.
            Reply::Answer(_) => self.disk.wait(newest).await,
            // Nothing would ever come.
            Reply::Watch(..) => self.disk.check(),
            _ => Ok(()),
        };
        shown.map_or_else(|failed| refused(&failed), |()| reply)
    }

    /// Whether a write is one of those that a full disk does not stop.
    fn is_served_when_full(&self, incoming: &Incoming) -> bool {
        when_full::is_served(incoming.method, &incoming.path, &incoming.query, |target| {
            // Its path names a namespace twice.
            let namespace = if target.resource == "namespaces" { "" } else { &target.namespace };
            let object =
                self.with(|engine| engine.object(&target.group, &target.resource, namespace, &target.name));
            object.is_some_and(|object| object.pointer("/metadata/deletionTimestamp").is_some())
        })
    }

    /// The reply, and the newest revision it can reveal.
    async fn write(&self, request: &Request<'_>, context: &Context) -> (Reply, u64) {
        let mut trail = Trail::default();
        for _ in 0..MAX_CALLS {
            let (reply, newest, more) = self.change(|engine| {
                let reply = engine.write(request, context, &trail);
                let newest = engine.store().revision();
                let more = engine.run_tasks(context, TASKS_PER_REQUEST);
                (reply, newest, more)
            });
            if more {
                self.more_tasks.notify_one();
            }
            let Reply::Ask(call) = reply else { return (reply, newest) };
            let service = call.client.service.as_ref().and_then(|(namespace, name, ..)| {
                self.with(|engine| engine.object("", "services", namespace, name))
            });
            let answer = webhook::call(&call, service.as_ref(), self.caller()).await;
            trail.add(*call, answer);
        }
        let error = ApiError::internal("too many admission webhook calls");
        (Reply::Answer(refusal(&error, Vec::new())), 0)
    }

    /// Runs background tasks that requests left over, and removes what is old; never returns.
    pub async fn tend(&self) {
        let mut next_expiry = Duration::from_secs(60);
        loop {
            tokio::select! {
                () = self.more_tasks.notified() => {}
                () = tokio::time::sleep(next_expiry) => {
                    let context = self.context();
                    let due = self.change(|engine| engine.expire(&context));
                    let seconds = due.and_then(|s| u64::try_from(s).ok()).unwrap_or(600);
                    next_expiry = Duration::from_secs(seconds.clamp(1, 600));
                }
            }
            loop {
                let context = self.context();
                if !self.change(|engine| engine.run_tasks(&context, TASKS_PER_TURN)) {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
    }
}

/// The error of a client with a write, or a view of one, that will never be on disk.
pub(crate) fn unwritten(failed: &Failed) -> ApiError {
    ApiError::internal(failed.to_string())
}

fn refused(failed: &Failed) -> Reply {
    Reply::Answer(refusal(&unwritten(failed), Vec::new()))
}
