//! Runs a session: gives the commands, and compares what comes of each with the model.

use std::fmt;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::generate::Session;
use super::model::{Model, Verdict};
use super::object::text;
use super::step::Step;
use crate::client::{KubeClient, Resource};

/// Pause between two looks at the VMs.
const PAUSE: Duration = Duration::from_millis(50);
/// Longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(400);
/// How long a node is drained that cannot be emptied.
const BLOCKED: Duration = Duration::from_secs(2);

/// What makes a command of `neonctl` from its words.
pub type Neonctl<'a> = Box<dyn Fn(&[String]) -> Command + Send + Sync + 'a>;

/// Where sessions are run. No other VMs may be in the namespace.
pub struct Player<'a> {
    /// The command line.
    pub neonctl: Neonctl<'a>,
    /// A client of the same cluster and namespace.
    pub client: KubeClient,
    /// Time for anything that is to happen.
    pub patience: Duration,
    /// A VM without load is at its lower bounds within that time.
    pub idle: bool,
    /// A workload that ends at once ends before its VM counts as running.
    pub ends_in_boot: bool,
}

impl fmt::Debug for Player<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Player").field("client", &self.client).finish_non_exhaustive()
    }
}

/// What was not as it must be.
#[derive(Clone, Debug)]
pub struct Failure {
    session: Session,
    /// How many commands were given; the last of them led to this.
    given: usize,
    /// What is wrong.
    faults: Vec<String>,
    /// The VM that it is about.
    vm: Option<String>,
    /// The VMs as they are.
    objects: Vec<Value>,
    /// What the agent shows of that VM.
    agent: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "session {} fails after {} commands:", self.session.seed, self.given)?;
        for fault in &self.faults {
            writeln!(f, "  {fault}")?;
        }
        writeln!(f, "commands:")?;
        for step in self.session.steps.iter().take(self.given) {
            writeln!(f, "  {step}")?;
        }
        for object in self.objects.iter().filter(|object| self.is_about(object)) {
            let name = text(object, "/metadata/name");
            let mut shown = object.clone();
            if let Some(metadata) = shown.pointer_mut("/metadata").and_then(Value::as_object_mut) {
                metadata.remove("managedFields");
            }
            writeln!(f, "{name}: {shown:#}")?;
        }
        writeln!(f, "agent: {}", self.agent)
    }
}

impl Failure {
    fn is_about(&self, object: &Value) -> bool {
        self.vm.as_ref().is_none_or(|vm| text(object, "/metadata/name") == *vm)
    }
}

impl Player<'_> {
    /// Runs a session, and removes its VMs; then nothing of them may be left.
    ///
    /// # Errors
    /// If something is not as it must be. The commands of that VM alone are tried too: if they fail by themselves, that failure is
    /// returned.
    pub fn play(&self, session: &Session) -> Result<(), Box<Failure>> {
        let Err(failure) = self.once(session) else { return Ok(()) };
        let shorter = failure.vm.as_ref().map(|vm| session.about(vm, failure.given));
        let Some(shorter) = shorter.filter(|shorter| shorter.steps.len() < failure.given) else {
            return Err(failure);
        };
        let again = self.clear().and_then(|()| self.once(&shorter));
        Err(again.err().filter(|again| again.vm == failure.vm).unwrap_or(failure))
    }

    fn once(&self, session: &Session) -> Result<(), Box<Failure>> {
        let mut model = Model::default();
        for (index, step) in session.steps.iter().enumerate() {
            let verdict = model.verdict(step);
            let before = model.clone();
            model.apply(step);
            let failed = |faults: Vec<String>| {
                let named = model
                    .names()
                    .chain(before.names())
                    .find(|name| faults.first().is_some_and(|fault| fault.starts_with(&format!("{name}: "))));
                let vm = named.map(str::to_owned).or_else(|| Some(step.vm().to_owned()));
                let objects = self.client.list(Resource::VM).unwrap_or_default();
                let agent = self.agent(vm.as_deref());
                Box::new(Failure { session: session.clone(), given: index + 1, faults, vm, objects, agent })
            };
            self.give(&before, step, verdict).map_err(|fault| failed(vec![fault]))?;
            let objects = self.settle(&model).map_err(failed)?;
            model.observe(&objects);
        }
        let failed = |fault| {
            let (session, given) = (session.clone(), session.steps.len());
            Box::new(Failure {
                session,
                given,
                faults: vec![fault],
                vm: None,
                objects: Vec::new(),
                agent: String::new(),
            })
        };
        self.removed(&model).map_err(failed)
    }

    /// What the agent shows of a VM.
    fn agent(&self, vm: Option<&str>) -> String {
        let words = ["agent", "inspect", "--vm", vm.unwrap_or_default()].map(str::to_owned);
        shown(&self.run(&words))
    }

    /// Waits until the VMs are as the model has them.
    fn settle(&self, model: &Model) -> Result<Vec<Value>, Vec<String>> {
        self.wait(|| {
            let objects = self.client.list(Resource::VM).map_err(|error| vec![error.to_string()])?;
            let faults = model.faults(&objects, self.idle);
            if faults.is_empty() { Ok(objects) } else { Err(faults) }
        })
    }

    fn wait<T, E>(&self, mut look: impl FnMut() -> Result<T, E>) -> Result<T, E> {
        let deadline = Instant::now() + self.patience;
        let mut pause = PAUSE;
        loop {
            let found = look();
            if found.is_ok() || Instant::now() >= deadline {
                return found;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Gives a command; what is wrong with its answer.
    fn give(&self, before: &Model, step: &Step, verdict: Verdict) -> Result<(), String> {
        let wait = matches!(verdict, Verdict::Accepted { wait: true });
        match step {
            Step::Drain(_) if verdict == Verdict::Refused => Ok(()),
            Step::Drain(vm) => self.drain(before, vm),
            _ => {
                let answer = self.run(&self.with_timeout(step.words(wait)));
                check(step, verdict, &answer)?;
                if self.ends_in_boot && matches!(step, Step::Create(creation) if creation.ends()) {
                    let shown = String::from_utf8_lossy(&answer.stdout).into_owned();
                    if shown.contains("Running") {
                        return Err(format!("{}: {step}: the VM never ran: {shown}", step.vm()));
                    }
                }
                match step {
                    Step::Cancel(_) if verdict != Verdict::Refused => self.cancel(&answer),
                    _ => Ok(()),
                }
            }
        }
    }

    /// The limit of commands that wait.
    fn with_timeout(&self, mut words: Vec<String>) -> Vec<String> {
        let waits = words.first().is_some_and(|noun| noun == "vm" || noun == "migration");
        if waits {
            let limit = ["--timeout".to_owned(), format!("{}s", self.patience.as_secs())];
            words.splice(2..2, limit);
        }
        words
    }

    fn run(&self, words: &[String]) -> Output {
        let failed = |error: std::io::Error| Output {
            status: std::process::ExitStatus::default(),
            stdout: Vec::new(),
            stderr: error.to_string().into_bytes(),
        };
        (self.neonctl)(words).output().unwrap_or_else(failed)
    }

    /// Cancels the migration that was just made. It may be too late for that.
    fn cancel(&self, made: &Output) -> Result<(), String> {
        let text = String::from_utf8_lossy(&made.stdout).into_owned();
        let name = text.strip_prefix("migration/").and_then(|rest| rest.split_whitespace().next());
        let name = name.ok_or_else(|| format!("no name of a migration: {text}"))?.to_owned();
        let words = self.with_timeout(["migration", "cancel", &name].map(str::to_owned).to_vec());
        let answer = self.run(&words);
        match answer.status.code() {
            Some(0 | 5) => Ok(()),
            _ => Err(format!("neonctl migration cancel {name}: {}", shown(&answer))),
        }
    }

    /// Drains the node of a VM, and opens it again.
    fn drain(&self, before: &Model, vm: &str) -> Result<(), String> {
        let blocked = before.blocks_drain(vm);
        let node = before.node_of(vm).unwrap_or_default();
        let limit = if blocked { BLOCKED } else { self.patience };
        let drained =
            self.client.drain(node, limit).map_err(|error| format!("{vm}: drain of {node}: {error}"));
        // While it is cordoned, nothing comes back that was just taken away.
        let emptied = drained.and_then(|drain| match drain.is_empty != blocked {
            true => Ok(()),
            false => Err(format!("{vm}: drain of {node}, with a paused VM on it: {blocked}: {drain:?}")),
        });
        self.client.uncordon(node).map_err(|error| format!("{vm}: uncordon of {node}: {error}"))?;
        emptied
    }

    /// Deletes all VMs of a model; then nothing may be left.
    fn removed(&self, model: &Model) -> Result<(), String> {
        let words: Vec<String> =
            ["vm", "delete", "--yes"].into_iter().chain(model.names()).map(str::to_owned).collect();
        if words.len() > 3 {
            let answer = self.run(&self.with_timeout(words));
            if !answer.status.success() {
                return Err(format!("neonctl vm delete: {}", shown(&answer)));
            }
        }
        self.wait(|| {
            let mut left = Vec::new();
            for resource in [Resource::VM, Resource::POD, Resource::SECRET] {
                let found = self.client.list(resource).map_err(|error| error.to_string())?;
                left.extend(found.iter().map(|object| text(object, "/metadata/name")));
            }
            if left.is_empty() { Ok(()) } else { Err(format!("left of deleted VMs: {left:?}")) }
        })
    }

    /// Deletes whatever VMs there are.
    fn clear(&self) -> Result<(), Box<Failure>> {
        for object in self.client.list(Resource::VM).unwrap_or_default() {
            let _ = self.client.delete(Resource::VM, &text(&object, "/metadata/name"), None);
        }
        let failed = |fault| {
            let session = Session { seed: 0, steps: Vec::new() };
            let (vm, objects, agent) = (None, Vec::new(), String::new());
            Box::new(Failure { session, given: 0, faults: vec![fault], vm, objects, agent })
        };
        self.removed(&Model::default()).map_err(failed)
    }
}

fn shown(answer: &Output) -> String {
    let read = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    format!("{}: {} {}", answer.status, read(&answer.stdout), read(&answer.stderr))
}

/// Whether a command has ended as it must.
fn check(step: &Step, verdict: Verdict, answer: &Output) -> Result<(), String> {
    let good = match (verdict, answer.status.code()) {
        (Verdict::Accepted { .. }, Some(0)) | (Verdict::Fails, Some(5)) => true,
        // Usage, or a conflict with what is.
        (Verdict::Refused, Some(2 | 5)) => String::from_utf8_lossy(&answer.stderr).starts_with("error: "),
        _ => false,
    };
    if good {
        Ok(())
    } else {
        Err(format!("{}: {step}: must be {verdict:?}, ends with {}", step.vm(), shown(answer)))
    }
}
