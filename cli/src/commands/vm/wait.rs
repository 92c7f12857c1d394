//! `vm wait`

mod predicate;

use super::machines::{Machines, duration};
use super::table;
use super::waiting::{self, Seen, until};
use crate::args::vm::Wait;
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
        let machines = Machines::open(settings, &args.place).await?;
        if predicate != Predicate::Deleted {
            machines.get(&args.name).await?;
        }
        let name = &args.name;
        let waited = until(&machines, name, limit, &args.predicate, |machine| match (machine, &predicate) {
            (None, Predicate::Deleted) => Seen::Done,
            (None, _) => Seen::Never(Error::new(Code::NotFound, format!("{name} was deleted"))),
            (Some(machine), predicate) if predicate.holds(machine) => Seen::Done,
            (Some(_), _) => Seen::NotYet,
        });
        let waited = waited.await?;
        let text = format!("virtualmachine/{name} {} ({})", args.predicate, waiting::seconds(waited.took));
        let document = match waited.object {
            Some(machine) => table::document(&[machine], false, false),
            None => Document {
                value: serde_json::json!({ "apiVersion": API_VERSION, "kind": "Deleted", "names": [name] }),
                names: vec![format!("virtualmachine/{name}")],
                ..Document::default()
            },
        };
        Ok(Report::document(Document { text: Some(text), ..document }))
    })
}
