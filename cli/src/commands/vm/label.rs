//! `vm label`

use kube::api::{Patch, PatchParams};
use neonvm_api::VirtualMachine;
use serde_json::{Map, Value, json};

use crate::args::vm::Label;
use crate::commands::resource::client::NamespaceClient;
use crate::commands::resource::document;
use crate::connect::block_on;
use crate::error::{Code, Error, Result};
use crate::report::{Document, Report};
use crate::settings::Settings;

/// Sets and removes labels.
pub(super) fn run(settings: &Settings, args: &Label) -> Result<Report> {
    let labels = parse(&args.labels)?;
    block_on(async {
        let client = NamespaceClient::open(settings, &args.place).await?;
        let machine: VirtualMachine = client.find(&args.name).await?;
        check(&machine, &labels, args.overwrite)?;
        let patch = Patch::Merge(json!({ "metadata": { "labels": labels } }));
        let (api, parameters) = (client.api::<VirtualMachine>(), PatchParams::default());
        let attempt = format!("cannot label {}", args.name);
        let shown = client.connection.within(&attempt, api.patch(&args.name, &parameters, &patch)).await?;
        let text = format!("virtualmachine/{} labeled", args.name);
        Ok(Report::document(Document { text: Some(text), ..document(&[shown]) }))
    })
}

/// A merge patch of labels: null removes one.
fn parse(texts: &[String]) -> Result<Map<String, Value>> {
    let mut labels = Map::new();
    for text in texts {
        let (key, value) = match (text.split_once('='), text.strip_suffix('-')) {
            (Some((key, value)), _) if !key.is_empty() => (key, json!(value)),
            (None, Some(key)) if !key.is_empty() => (key, Value::Null),
            _ => {
                return Err(Error::new(Code::Usage, format!("{text:?} is not a label"))
                    .hint("write KEY=VALUE to set a label, KEY- to remove it"));
            }
        };
        if labels.insert(key.to_owned(), value).is_some() {
            return Err(Error::new(Code::Usage, format!("the label {key} is given twice")));
        }
    }
    Ok(labels)
}

/// A value is replaced only if that is allowed.
fn check(machine: &VirtualMachine, labels: &Map<String, Value>, overwrite: bool) -> Result<()> {
    let present = machine.metadata.labels.clone().unwrap_or_default();
    let changed = labels.iter().find_map(|(key, value)| {
        let before = present.get(key)?;
        (value.as_str().is_some_and(|value| value != before)).then_some((key, before))
    });
    match changed {
        Some((key, before)) if !overwrite => {
            Err(Error::new(Code::Conflict, format!("the label {key} has the value {before:?}"))
                .hint("add --overwrite to replace it"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_as_kubectl_takes_them() {
        let parse = |texts: &[&str]| parse(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        assert_eq!(
            Value::Object(parse(&["a=b", "c-", "d="]).unwrap()),
            json!({ "a": "b", "c": null, "d": "" })
        );
        for wrong in [&["a"][..], &["=b"], &["-"], &["a=b", "a=c"]] {
            assert_eq!(parse(wrong).unwrap_err().code, Code::Usage, "{wrong:?}");
        }
    }
}
