//! `podautoscaler wait`

mod predicate;

use neonvm_api::PodAutoscaler;

use super::show::{self, Word};
use super::{api, find, table};
use crate::args::podautoscaler::Wait;
use crate::commands::vm::machines::{Machines, duration};
use crate::commands::watching::{self, Seen};
use crate::connect::block_on;
use crate::error::{Code, Error, Result};
use crate::report::{API_VERSION, Document, Report};
use crate::settings::Settings;
use predicate::Predicate;

/// Waits until a predicate is true.
pub(in crate::commands) fn run(settings: &Settings, args: &Wait) -> Result<Report> {
    let predicate = Predicate::parse(&args.predicate)?;
    let limit = duration("timeout", &args.timeout)?;
    block_on(async {
        let place = Machines::open(settings, &args.place).await?;
        let (name, what) = (&args.name, &args.predicate);
        let known = match predicate {
            Predicate::Deleted => None,
            _ => Some(find(&place, name).await?),
        };
        let see = format!("see why: neonctl podautoscaler explain {name} -n {}", place.namespace);
        let detached = || {
            Error::new(Code::Interrupted, format!("stopped waiting for {name}")).hint(format!(
                "scaling continues; to wait again: neonctl podautoscaler wait {name} --for '{what}'"
            ))
        };
        let late = |last: Option<&PodAutoscaler>| {
            let now = last.map_or_else(|| "it does not exist".to_owned(), state);
            let text = format!("timed out after {limit:?} waiting for {name} to be {what}: {now}");
            Error::new(Code::Timeout, text).hint(format!("scaling continues; {see}"))
        };
        let look = |object: Option<&PodAutoscaler>| match (object, &predicate) {
            (None, Predicate::Deleted) => Seen::Done,
            (None, _) => Seen::Never(Error::new(Code::NotFound, format!("{name} was deleted"))),
            (Some(object), predicate) if predicate.holds(object) => Seen::Done,
            (Some(object), Predicate::Ready) if is_hopeless(object) => Seen::Never(
                Error::new(Code::Failed, format!("{name} will not be ready: {}", show::message(object)))
                    .hint("correct the object: kubectl edit podautoscaler"),
            ),
            (Some(_), _) => Seen::NotYet,
        };
        let waited = watching::until(api(&place), (name, known), limit, detached, late, look).await?;
        let text = format!("podautoscaler/{name} {what} ({:.1}s)", waited.took.as_secs_f64());
        let document = match waited.object {
            Some(object) => table::document(&[object], false, false),
            None => Document {
                value: serde_json::json!({ "apiVersion": API_VERSION, "kind": "Deleted", "names": [name] }),
                names: vec![format!("podautoscaler/{name}")],
                ..Document::default()
            },
        };
        Ok(Report::document(Document { text: Some(text), ..document }))
    })
}

/// What only another spec can make right.
fn is_hopeless(object: &PodAutoscaler) -> bool {
    Word::of(object) == Word::Invalid && !show::is_stale(object)
}

/// Where it is, in a few words.
fn state(object: &PodAutoscaler) -> String {
    let word = Word::of(object);
    let replicas = if word == Word::New { String::new() } else { format!(", {}", show::replicas(object)) };
    match show::message(object) {
        message if message.is_empty() => format!("it is {}{replicas} replicas", word.text()),
        message if word == Word::New => message,
        message => format!("it is {}{replicas} replicas: {message}", word.text()),
    }
}
