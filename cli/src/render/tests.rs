use proptest::prelude::*;
use serde_json::json;

use super::clean::tests::hostile;
use super::*;
use crate::report::{left, right, wide};

fn list() -> Document {
    Document {
        value: json!({"apiVersion": API_VERSION, "kind": "ThingList", "items": [{"name": "b", "n": 10}, {"name": "a", "n": 9}]}),
        names: vec!["thing/b".into(), "thing/a".into()],
        text: None,
        columns: vec![left("NAME"), right("N"), wide("MORE")],
        rows: vec![vec!["b".into(), "10".into(), "x".into()], vec!["a".into(), "9".into(), "y".into()]],
    }
}

fn shown(format: &str) -> String {
    let style = Style { format: Format::parse(format).unwrap(), ..Style::default() };
    document(&style, &list()).unwrap().as_str().to_owned()
}

#[test]
fn every_form() {
    assert_eq!(shown("table"), "NAME   N\nb     10\na      9\n");
    assert_eq!(shown("wide"), "NAME   N  MORE\nb     10  x\na      9  y\n");
    assert_eq!(shown("name"), "thing/b\nthing/a\n");
    assert_eq!(shown("jsonpath={.items[*].n}"), "10 9");
    assert_eq!(shown("custom-columns=WHO:.name,X:.x"), "WHO  X\nb    <none>\na    <none>\n");
    let mut expected = list().value;
    for (item, name) in expected["items"].as_array_mut().unwrap().iter_mut().zip(["b", "a"]) {
        item["metadata"] = json!({ "name": name });
    }
    assert_eq!(serde_json::from_str::<Value>(&shown("json")).unwrap(), expected);
    assert_eq!(serde_saphyr::from_str::<Value>(&shown("yaml")).unwrap(), expected);
    assert_eq!(Format::parse("xml").unwrap_err().code, Code::Usage);
}

#[test]
fn items_of_our_lists_have_names_where_scripts_look_for_them() {
    let names = |item: Value, name: &str| {
        let value = json!({ "apiVersion": API_VERSION, "kind": "ThingList", "items": [item] });
        let list = Document { value, names: vec![name.to_owned()], ..Document::default() };
        let style =
            Style { format: Format::parse("jsonpath={.items[*].metadata}").unwrap(), ..Style::default() };
        document(&style, &list).unwrap().as_str().to_owned()
    };
    assert_eq!(names(json!({ "name": "a" }), "thing/x"), r#"{"name":"a"}"#);
    assert_eq!(
        names(json!({ "reference": "r:1", "digest": "sha256:0" }), "image/sha256:0"),
        r#"{"name":"r:1"}"#
    );
    assert_eq!(names(json!({ "reference": null }), "image/sha256:0"), r#"{"name":"sha256:0"}"#);
    assert_eq!(names(json!({ "name": "a", "namespace": "n" }), "x"), r#"{"name":"a","namespace":"n"}"#);
    assert_eq!(names(json!({ "metadata": { "uid": 1 } }), "thing/a"), r#"{"uid":1}"#);
    assert_eq!(names(json!("text"), "thing/a"), "");
}

#[test]
fn sorting_moves_rows_names_and_items_together() {
    for field in ["n", ".n"] {
        let mut list = list();
        sort(&mut list, field).unwrap();
        assert_eq!(list.names, ["thing/a", "thing/b"]);
        assert_eq!(list.value["items"][0]["name"], "a");
        assert_eq!(list.rows[0][0], "a");
    }
    assert_eq!(sort(&mut list(), "colour").unwrap_err().code, Code::Usage);
}

#[test]
fn an_error_in_words() {
    let error =
        Error::new(Code::Conflict, "port 1 is in use").cause("outer").cause("inner").hint("use another");
    let text = "error: port 1 is in use\n  caused by: outer\n  caused by: inner\n  hint: use another\n";
    assert_eq!(plain_error(&error, false).as_str(), text);
    assert!(plain_error(&error, true).as_str().starts_with("\u{1b}[31merror:\u{1b}[0m port"));
}

#[test]
fn who_decides_on_colours() {
    let env = |vars: &[(&str, &str)]| Env {
        vars: vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        ..Env::default()
    };
    assert!(crate::colored(&env(&[]), "auto", false, true));
    assert!(!crate::colored(&env(&[]), "auto", false, false));
    assert!(!crate::colored(&env(&[("NO_COLOR", "1")]), "auto", false, true));
    assert!(crate::colored(&env(&[("NO_COLOR", "")]), "auto", false, true));
    assert!(!crate::colored(&env(&[("TERM", "dumb")]), "auto", false, true));
    assert!(crate::colored(&env(&[("CLICOLOR_FORCE", "1")]), "auto", false, false));
    assert!(crate::colored(&env(&[("NO_COLOR", "1")]), "always", true, false));
    assert!(!crate::colored(&env(&[("CLICOLOR_FORCE", "1")]), "never", true, true));
}

/// What of a text may steer a terminal.
fn unclean(shown: &Shown) -> Option<char> {
    shown.as_str().chars().find(|c| clean::steers(*c) && !matches!(c, '\n' | '\t'))
}

#[test]
fn jsonpath_is_exact_unless_a_terminal_shows_it() {
    let hostile = Document { value: json!({ "a": "x\u{1b}[2J\ny" }), ..Document::default() };
    let shown = |terminal| {
        let format = Format::parse("jsonpath={.a}").unwrap();
        document(&Style { format, terminal, ..Style::default() }, &hostile).unwrap()
    };
    assert_eq!(shown(false).as_str(), "x\u{1b}[2J\ny");
    assert_eq!(shown(true).as_str(), "x\\x1b[2J\ny");
}

#[test]
fn colours_stay_and_those_of_others_do_not() {
    let columns = vec![left("STATE")];
    let rows = vec![vec!["running".to_owned()], vec!["\u{1b}[32mrunning".to_owned()]];
    let table = table::render(&Document { columns, rows, ..Document::default() }, false, false, true);
    assert_eq!(table.as_str(), "\u{1b}[32mrunning\u{1b}[0m\n\\x1b[32mrunning");
}

#[test]
fn cells_are_aligned_and_a_row_is_a_line_however_long_they_are() {
    let columns = vec![left("NAME"), right("N"), left("STATE")];
    let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
    let rows = vec![row(["a", "10", "ok"]), row(["b c", "9", "-"])];
    let shown = |rows| {
        table::render(&Document { columns: columns.clone(), rows, ..Document::default() }, false, true, true)
    };
    assert_eq!(shown(rows.clone()).as_str(), "NAME   N  STATE\na     10  \u{1b}[32mok\u{1b}[0m\nb c    9  -");
    let long = vec![row([&"x".repeat(70_000), "1", "-"]), row(["y", "2", "-"])];
    assert_eq!(shown(long).as_str().lines().count(), 3);
}

#[test]
fn lines_from_outside_do_not_look_like_ours() {
    let error = Error::new(Code::Failed, "no\n  hint: run this").cause("a\nerror: b");
    let text = "error: no\n        hint: run this\n  caused by: a\n      error: b\n";
    assert_eq!(plain_error(&error, false).as_str(), text);
}

#[test]
fn yaml_keeps_the_line_ends_of_its_last_text() {
    for last in ["\n", "a\n\n", " ", "a "] {
        let list = Document { value: json!({ "name": "x", "z": last }), ..Document::default() };
        let style = Style { format: Format::Yaml, ..Style::default() };
        let shown = document(&style, &list).unwrap();
        assert_eq!(serde_saphyr::from_str::<Value>(shown.as_str()).unwrap(), list.value, "{shown:?}");
    }
}

#[test]
fn ages_are_sorted_by_their_length() {
    let ages = ["2d1h", "59m", "3s", "1h0m", "-", "10d0h"];
    let mut list = Document {
        columns: vec![left("AGE")],
        rows: ages.map(|age| vec![age.to_owned()]).to_vec(),
        ..Document::default()
    };
    sort(&mut list, "age").unwrap();
    assert_eq!(list.rows.concat(), ["3s", "59m", "1h0m", "2d1h", "10d0h", "-"]);
    for (text, wanted) in
        [("3d4h", Some(273_600)), ("", None), ("4x", None), ("1.5Gi", None), ("9999999999999999d", None)]
    {
        assert_eq!(seconds(text), wanted, "{text}");
    }
}

proptest! {
    #[test]
    fn nothing_that_steers_a_terminal_is_shown(texts in prop::collection::vec(hostile(), 6), color in any::<bool>()) {
        let [name, cell, field, key, text, hint] = <[String; 6]>::try_from(texts).unwrap();
        let value = json!({ "items": [{ "name": name, "more": { key.clone(): [field] } }, { "name": cell }] });
        let both = vec![vec![name.clone(), cell.clone(), text.clone()], vec![cell, name.clone(), key]];
        let list = Document {
            value: value.clone(),
            names: vec![format!("thing/{name}"), text.clone()],
            text: Some(text.clone()),
            columns: vec![left("NAME"), right("N"), wide("MORE")],
            rows: both,
        };
        for form in ["table", "wide", "json", "yaml", "name", "jsonpath={.items[*].name}", "custom-columns=A:.name,B:.more"] {
            let style = Style { format: Format::parse(form).unwrap(), color_stdout: false, terminal: true, ..Style::default() };
            let shown = document(&style, &list).unwrap();
            prop_assert_eq!(unclean(&shown), None, "{}: {:?}", form, shown);
            match form {
                "json" => prop_assert_eq!(&serde_json::from_str::<Value>(shown.as_str()).unwrap(), &value),
                "yaml" => prop_assert_eq!(&serde_saphyr::from_str::<Value>(shown.as_str()).unwrap(), &value),
                // A row is a line whatever its cells hold.
                "wide" => prop_assert_eq!(shown.as_str().lines().count(), 3),
                _ => {}
            }
        }
        let error = Error::new(Code::Failed, name).cause(text).hint(hint);
        let shown = plain_error(&error, false);
        prop_assert_eq!(unclean(&shown), None, "{:?}", shown);
        // In colour nothing else is there than the colour of one word.
        let painted = plain_error(&error, color).as_str().replace("\u{1b}[31merror:\u{1b}[0m", "error:");
        prop_assert_eq!(painted, shown.as_str());
    }
}

#[test]
fn sizes_for_people() {
    for (number, text) in [
        (0, "0"),
        (1023, "1023"),
        (1024, "1Ki"),
        (171_000_000, "163Mi"),
        (9_663_676_416, "9Gi"),
        (9_250_000_000, "8.6Gi"),
        (17_179_869_184, "16Gi"),
        (u64::MAX, "16777215.9Ti"),
    ] {
        assert_eq!(bytes(number), text);
    }
}
