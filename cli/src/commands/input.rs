//! Files that people name on the command line, and the objects in them.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::{Code, Error, Result, reason};

/// Extensions of the files of a directory that have objects.
const EXTENSIONS: [&str; 3] = ["json", "yaml", "yml"];
/// Longest text, in bytes; an API server takes no object that long.
const LONGEST: u64 = 64 << 20;
/// Lists in lists do not occur; the limit keeps the work finite.
const MAX_DEPTH: usize = 8;

/// The text of a file, or with `-` of standard input; and its name for messages.
pub(super) fn read(file: &str) -> Result<(String, String)> {
    if file.starts_with("https://") || file.starts_with("http://") {
        return Err(Error::new(Code::Usage, format!("{file} is an address, not a file"))
            .hint(format!("download it: curl -sSfL {file} | neonctl … -f -")));
    }
    let (source, read) = match file {
        "-" => ("standard input", text_of(std::io::stdin())),
        _ => (file, std::fs::File::open(file).and_then(text_of)),
    };
    let text = read.map_err(|error| match file {
        "-" => Error::new(Code::Failed, "cannot read standard input").cause(reason(&error)),
        _ => Error::file("read", Path::new(file), &error),
    })?;
    Ok((text, source.to_owned()))
}

fn text_of(from: impl std::io::Read) -> std::io::Result<String> {
    let mut text = String::new();
    from.take(LONGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LONGEST {
        return Err(std::io::Error::other(format!("it is longer than {} MiB", LONGEST >> 20)));
    }
    Ok(text)
}

/// All objects in a file, in standard input with `-`, or in the files of a directory; and its name for messages.
///
/// # Errors
/// What [`read`] and [`objects`] return.
pub(super) fn read_objects(file: &str) -> Result<(Vec<Value>, String)> {
    let path = Path::new(file);
    if !path.is_dir() {
        let (text, source) = read(file)?;
        return Ok((objects(&text, &source)?, source));
    }
    let failed = |error: std::io::Error| Error::file("read", path, &error);
    let entries = std::fs::read_dir(path).map_err(failed)?;
    let mut files: Vec<PathBuf> =
        entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>().map_err(failed)?;
    files.retain(|file| {
        file.is_file() && file.extension().is_some_and(|end| EXTENSIONS.iter().any(|known| end == *known))
    });
    files.sort();
    let mut all = Vec::new();
    for file in &files {
        let (text, source) = read(&file.display().to_string())?;
        all.extend(objects(&text, &source)?);
    }
    Ok((all, file.to_owned()))
}

/// The objects in a text: YAML or JSON, one or several documents, lists as a server prints them. Documents without content are
/// skipped. `source` is for messages.
///
/// # Errors
/// If the text is neither YAML nor JSON, or a document is no object with a kind.
pub(super) fn objects(text: &str, source: &str) -> Result<Vec<Value>> {
    let text = text.trim_start_matches('\u{feff}');
    let documents = documents(text).map_err(|error| {
        Error::new(Code::Usage, format!("{source} is neither YAML nor JSON")).cause(error.to_string())
    })?;
    let mut all = Vec::new();
    for (index, document) in documents.into_iter().enumerate() {
        if !flatten(document, 0, &mut all) {
            let which = format!("document {} of {source} is not a Kubernetes object", index + 1);
            return Err(Error::new(Code::Usage, which).hint("each needs a kind"));
        }
    }
    Ok(all)
}

/// The documents of a text, whatever they are. JSON is tried first: texts that programs print are JSON, and their keys may be indented by tabs.
pub(super) fn documents(text: &str) -> std::result::Result<Vec<Value>, serde_saphyr::Error> {
    if text.trim_start().starts_with(['{', '['])
        && let Ok(all) = serde_json::Deserializer::from_str(text).into_iter().collect()
    {
        return Ok(all);
    }
    // As kubectl reads it: 0400 is a number to the base of 8.
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    serde_saphyr::from_multiple_with_options(text, options)
}

/// Adds the objects of a document; false if one of them is none.
fn flatten(document: Value, depth: usize, all: &mut Vec<Value>) -> bool {
    let mut fields = match document {
        Value::Null => return true,
        Value::Object(fields) if depth < MAX_DEPTH => fields,
        _ => return false,
    };
    let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, version) = (text("kind"), text("apiVersion"));
    if kind.is_empty() {
        return false;
    }
    let Some(of) = kind.strip_suffix("List").filter(|_| fields.get("items").is_some_and(Value::is_array))
    else {
        all.push(Value::Object(fields));
        return true;
    };
    let Some(Value::Array(items)) = fields.remove("items") else { return false };
    items.into_iter().all(|mut item| {
        // Items of a list of one kind need not repeat it.
        if let (false, Some(item)) = (of.is_empty(), item.as_object_mut()) {
            item.entry("kind").or_insert_with(|| of.into());
            item.entry("apiVersion").or_insert_with(|| version.clone().into());
        }
        flatten(item, depth + 1, all)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn kinds(text: &str) -> String {
        let all = objects(text, "f").unwrap();
        all.iter().map(|object| object["kind"].as_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_people_have_is_read() {
        for (text, expected) in [
            ("", ""),
            ("# nothing\n", ""),
            ("---\n---\n# a\n---\n", ""),
            ("apiVersion: v1\nkind: A\n---\napiVersion: v1\nkind: B\n", "A B"),
            ("# top\n---\n# one\napiVersion: v1\nkind: A # end\n---\n---\n# last\n", "A"),
            ("\u{feff}apiVersion: v1\r\nkind: A\r\n---\r\napiVersion: v1\r\nkind: B\r\n", "A B"),
            ("%YAML 1.2\n---\napiVersion: v1\nkind: A\n...\n", "A"),
            ("{\"apiVersion\": \"v1\", \"kind\": \"A\"}", "A"),
            (
                "{\n\t\"apiVersion\": \"v1\",\n\t\"kind\": \"A\"\n}\n{\"apiVersion\": \"v1\", \"kind\": \"B\"}",
                "A B",
            ),
            ("{apiVersion: v1, kind: A}", "A"),
            (
                "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: A}\n- {apiVersion: v1, kind: List, items: []}\n",
                "A",
            ),
            (
                "apiVersion: g/v1\nkind: AList\nmetadata: {resourceVersion: \"1\"}\nitems:\n- metadata: {name: x}\n",
                "A",
            ),
            ("apiVersion: v1\nkind: AList\n", "AList"),
        ] {
            assert_eq!(kinds(text), expected, "{text:?}");
        }
        let object = &objects(
            "apiVersion: v1\nkind: A\nm: 0400\nn: 10\nb: yes\nbase: &b {x: 1}\nc: {<<: *b, y: 2}\n",
            "f",
        )
        .unwrap()[0];
        assert_eq!(
            (&object["m"], &object["n"], &object["b"], &object["c"]),
            (&json!(256), &json!(10), &json!(true), &json!({"x": 1, "y": 2})),
            "as kubectl reads it"
        );
    }

    #[test]
    fn what_is_no_object_is_named_without_the_library() {
        for (text, part) in [
            ("apiVersion: v1\nkind: A\n---\n- 1\n", "document 2 of f is not a Kubernetes object"),
            ("<html></html>", "document 1 of f"),
            ("[]", "document 1 of f"),
            ("apiVersion: v1\nkind: AList\nitems: [1]\n", "document 1 of f"),
            ("a: [\n", "f is neither YAML nor JSON"),
            ("a: b: c\n", "f is neither YAML nor JSON"),
        ] {
            let error = objects(text, "f").unwrap_err();
            assert!(error.message.contains(part), "{text:?}: {error:?}");
            let shown = format!("{error:?}");
            assert!(!shown.contains("from_multiple") && !shown.contains("from_str"), "{shown}");
        }
        assert!(read("https://example.com/vm.yaml").unwrap_err().hint.unwrap().contains("curl"));
    }

    #[test]
    fn files_of_a_directory_are_read_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("b.yaml", "apiVersion: v1\nkind: B\n"),
            ("a.json", "{\"apiVersion\": \"v1\", \"kind\": \"A\"}"),
            ("c.yml", ""),
            ("README.md", "# not YAML: ["),
        ] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let (all, _) = read_objects(folder.path().to_str().unwrap()).unwrap();
        assert_eq!(all, [json!({"apiVersion": "v1", "kind": "A"}), json!({"apiVersion": "v1", "kind": "B"})]);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,200}", lines in proptest::collection::vec("[-{}\\[\\]:#&*<|>%!\"' a-c0-9\t]{0,12}", 0..20)) {
            let _ = objects(&text, "f");
            let _ = objects(&lines.join("\n"), "f");
        }
    }
}
