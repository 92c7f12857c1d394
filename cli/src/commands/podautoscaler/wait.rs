//! `podautoscaler wait`

mod predicate;

use crate::commands::resource::wait::{self, Messages};
use neonvm_api::PodAutoscaler;

use super::show::{self, Word};
use crate::args::podautoscaler::Wait;
use crate::commands::flags::duration;
use crate::commands::resource::client::NamespaceClient;
use crate::commands::watching::WaitProgress;
use crate::connect::block_on;
use crate::error::{Code, Error, Result};
use crate::report::Report;
use crate::settings::Settings;
use predicate::Predicate;

/// Waits until a predicate is true.
pub(in crate::commands) fn run(settings: &Settings, args: &Wait) -> Result<Report> {
    let predicate = Predicate::parse(&args.predicate)?;
    let limit = duration("timeout", &args.timeout)?;
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let (name, what) = (&args.name, &args.predicate);
        let known = Some(client.find(name).await?);
        let messages = Messages {
            what,
            continues: "scaling",
            again: &format!("neonctl podautoscaler wait {name} --for '{what}'"),
            why: &format!("neonctl podautoscaler explain {name} -n {}", client.namespace),
        };
        let look = |object: Option<&PodAutoscaler>| match object {
            Some(object) if predicate == Predicate::Ready && is_hopeless(object) => WaitProgress::Never(
                Error::new(Code::Failed, format!("{name} will not be ready: {}", show::message(object)))
                    .hint("correct the object: kubectl edit podautoscaler"),
            ),
            object => wait::seen(name, object, |object| predicate.holds(object)),
        };
        let waited = wait::until(&client, (name, known), limit, &messages, state, look).await?;
        Ok(wait::report(name, what, waited))
    })
}

/// What only another spec can make right.
fn is_hopeless(object: &PodAutoscaler) -> bool {
    Word::from_object(object) == Word::Invalid && !show::is_stale(object)
}

/// Where it is, in a few words.
fn state(object: &PodAutoscaler) -> String {
    let word = Word::from_object(object);
    let replicas = if word == Word::New { String::new() } else { format!(", {}", show::replicas(object)) };
    match show::message(object) {
        message if message.is_empty() => format!("it is {}{replicas} replicas", word.text()),
        message if word == Word::New => message,
        message => format!("it is {}{replicas} replicas: {message}", word.text()),
    }
}
