//! `vm edit`

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use neonvm_api::VirtualMachine;
use neonvm_api::merge_patch::difference;
use neonvm_api::names::annotation::AT_NEXT_START;
use serde_json::{Map, Value, json};

use super::change::{Change, base};
use crate::args::vm::Edit;
use crate::commands::input;
use crate::commands::resource::client::NamespaceClient;
use crate::connect::block_on;
use crate::env::Env;
use crate::error::{Code, Error, Result, reason};
use crate::report::Report;
use crate::settings::Settings;

/// Edits the object until it is accepted, or left as it was.
pub(super) fn run(env: &Env, settings: &Settings, args: &Edit, quiet: bool) -> Result<Report> {
    let editor = editor(env)?;
    block_on(async {
        let client = NamespaceClient::open(settings, &args.applying.place).await?;
        let machine: VirtualMachine = client.find(&args.name).await?;
        let before = editable(&machine)?;
        let mut text = yaml(&before)?;
        let mut complaint: Option<Error> = None;
        loop {
            let shown = format!("{}{text}", header(&args.name, complaint.as_ref()));
            let edited = without_comments(&edit(&editor, &args.name, &shown)?);
            let unchanged = edited == text;
            if unchanged && let Some(error) = complaint {
                return Err(error.hint("the text was not changed again; nothing was written"));
            }
            text = edited;
            if text.trim().is_empty() {
                return Err(Error::new(Code::Interrupted, "the text is empty; nothing was written"));
            }
            match attempt(&client, args, (&machine, &before), &text, quiet).await {
                // What another text can mend is edited again; on no terminal an editor is a script.
                Err(error) if error.code == Code::Usage && std::io::stdin().is_terminal() => {
                    complaint = Some(error);
                }
                ended => return ended,
            }
        }
    })
}

/// Writes what was edited.
async fn attempt(
    client: &NamespaceClient,
    args: &Edit,
    (machine, before): (&VirtualMachine, &Value),
    text: &str,
    quiet: bool,
) -> Result<Report> {
    let documents = input::documents(text)
        .map_err(|error| Error::new(Code::Usage, "this is not YAML of an object").cause(error.to_string()))?;
    let [edited] = documents.as_slice() else {
        return Err(
            Error::new(Code::Usage, format!("these are {} objects", documents.len())).hint("leave one")
        );
    };
    let target = edited.get("spec").cloned().unwrap_or_default();
    let mut change = Change::to(machine.clone(), &target);
    change.metadata = metadata(before, edited)?;
    if change.is_empty(args.applying.restart_now) {
        return Ok(Report::text(format!("virtualmachine/{} unchanged\n", args.name)));
    }
    let restart = args.applying.restart_now
        || (!args.applying.dry_run && change.needs_restart() && confirmed(&args.name)?);
    change.apply(client, &args.applying, restart, quiet).await
}

/// What people may change: the spec of the next start, labels and annotations.
fn editable(machine: &VirtualMachine) -> Result<Value> {
    let meta = &machine.metadata;
    let mut annotations = meta.annotations.clone().unwrap_or_default();
    annotations.remove(AT_NEXT_START);
    Ok(json!({
        "metadata": { "name": meta.name, "labels": meta.labels.clone().unwrap_or_default(), "annotations": annotations },
        "spec": base(machine)?,
    }))
}

/// The merge patch of labels and annotations.
fn metadata(before: &Value, edited: &Value) -> Result<Map<String, Value>> {
    let part = |object: &Value, name: &str| {
        object.pointer(&format!("/metadata/{name}")).cloned().unwrap_or_else(|| json!({}))
    };
    if part(before, "name") != part(edited, "name") {
        return Err(Error::new(Code::Usage, "metadata.name cannot change").hint(
            "put the old name back; to copy a VM use neonctl vm get -o yaml and neonctl vm create -f",
        ));
    }
    let mut patch = Map::new();
    for name in ["labels", "annotations"] {
        if let Some(change) = difference(&part(before, name), &part(edited, name)) {
            patch.insert(name.to_owned(), change);
        }
    }
    Ok(patch)
}

fn yaml(object: &Value) -> Result<String> {
    serde_saphyr::to_string(object)
        .map(|text| text.trim_end().to_owned() + "\n")
        .map_err(|error| Error::new(Code::Failed, "cannot write YAML").cause(error.to_string()))
}

fn header(name: &str, complaint: Option<&Error>) -> String {
    let mut lines = vec![
        format!(
            "# Virtual machine {name}. Lines that begin with # are ignored; an empty text leaves it as it is."
        ),
        "# What cannot change while the VM runs changes at its next start.".to_owned(),
    ];
    if let Some(error) = complaint {
        let texts = std::iter::once(&error.message).chain(&error.causes).chain(&error.hint);
        lines.extend(texts.flat_map(|text| text.lines()).map(|line| format!("# refused: {line}")));
    }
    lines.push("#".to_owned());
    lines.join("\n") + "\n"
}

/// The text without the lines that begin with `#`. Those within the object would be lost as well, as with every other client.
fn without_comments(text: &str) -> String {
    text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect()
}

/// The program and its arguments.
fn editor(env: &Env) -> Result<Vec<String>> {
    let named = ["NEONCTL_EDITOR", "VISUAL", "EDITOR"].iter().find_map(|name| env.var(name)).unwrap_or("vi");
    let words: Vec<String> = named.split_whitespace().map(str::to_owned).collect();
    let found = words.first().is_some_and(|program| program.contains('/') || env.program(program).is_some());
    if found {
        return Ok(words);
    }
    Err(Error::new(Code::Failed, format!("the editor {named:?} is not installed"))
        .hint("name one: EDITOR=nano neonctl vm edit NAME; or change single fields with neonctl vm set"))
}

/// Lets a person edit the text in a private file.
fn edit(editor: &[String], name: &str, text: &str) -> Result<String> {
    let failed = |error: std::io::Error| Error::new(Code::Failed, "cannot edit").cause(reason(&error));
    let mut file =
        tempfile::Builder::new().prefix(&format!("{name}-")).suffix(".yaml").tempfile().map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    let Some((program, rest)) = editor.split_first() else { return Ok(text.to_owned()) };
    let status = std::process::Command::new(program).args(rest).arg(file.path()).status();
    let status = status
        .map_err(|error| Error::new(Code::Failed, format!("cannot run {program}")).cause(reason(&error)))?;
    if !status.success() {
        return Err(Error::new(Code::Failed, format!("{program} ended with {status}; nothing was written")));
    }
    // Editors may replace the file.
    std::fs::read_to_string(file.path()).map_err(failed)
}

/// Whether a person wants the restart now; without a terminal there is no question.
fn confirmed(name: &str) -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Ok(false);
    }
    crate::render::question(&format!("this change needs a restart of {name}; restart it now? [y/N] "));
    let mut answer = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(|error| Error::new(Code::Failed, "cannot read the answer").cause(reason(&error)))?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_annotations_are_changed_the_name_is_not() {
        let before =
            json!({ "metadata": { "name": "a", "labels": { "x": "1", "y": "2" }, "annotations": {} } });
        let mut edited = before.clone();
        edited["metadata"]["labels"] = json!({ "x": "3" });
        assert_eq!(
            Value::Object(metadata(&before, &edited).unwrap()),
            json!({ "labels": { "x": "3", "y": null } })
        );
        edited["metadata"]["name"] = json!("b");
        assert_eq!(metadata(&before, &edited).unwrap_err().code, Code::Usage);
    }

    #[test]
    fn an_editor_that_fails_leaves_the_object_and_is_named_with_its_status() {
        let edit = |script: &str| {
            let words = ["sh", "-c", script].map(str::to_owned);
            edit(&words, "pg", "a: 1\n")
        };
        let error = edit("exit 3").unwrap_err();
        assert_eq!(
            (error.code.number(), error.message.as_str()),
            (1, "sh ended with exit status: 3; nothing was written")
        );
        let error = edit("kill -9 $$").unwrap_err();
        assert!(error.code == Code::Failed && error.message.contains("signal: 9"), "{error:?}");
        assert_eq!(edit("echo 'a: 2' > $0").unwrap(), "a: 2\n");
        let error = super::edit(&["/no/editor".to_owned()], "pg", "").unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (Code::Failed, "cannot run /no/editor"));
    }

    #[test]
    fn the_reason_of_a_refusal_stands_above_the_text() {
        let error = Error::new(Code::Usage, "cannot change a").cause("spec.guest: two\nlines");
        let text = format!("{}spec: {{}}\n", header("a", Some(&error)));
        assert!(text.contains("# refused: spec.guest: two\n# refused: lines\n"), "{text}");
        assert_eq!(without_comments(&text), "spec: {}\n");
    }
}
