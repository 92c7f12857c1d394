use serde_json::json;

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
    document(&style, &list()).unwrap()
}

#[test]
fn every_form() {
    assert_eq!(shown("table"), "NAME   N\nb     10\na      9\n");
    assert_eq!(shown("wide"), "NAME   N  MORE\nb     10  x\na      9  y\n");
    assert_eq!(shown("name"), "thing/b\nthing/a\n");
    assert_eq!(shown("jsonpath={.items[*].n}"), "10 9");
    assert_eq!(shown("custom-columns=WHO:.name,X:.x"), "WHO  X\nb    <none>\na    <none>\n");
    assert_eq!(serde_json::from_str::<Value>(&shown("json")).unwrap(), list().value);
    assert_eq!(serde_saphyr::from_str::<Value>(&shown("yaml")).unwrap(), list().value);
    assert_eq!(Format::parse("xml").unwrap_err().code, Code::Usage);
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
    assert_eq!(plain_error(&error, false), text);
    assert!(plain_error(&error, true).starts_with("\u{1b}[31merror:\u{1b}[0m port"));
}

#[test]
fn who_decides_on_colours() {
    let env = |vars: &[(&str, &str)]| Env {
        vars: vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        ..Env::default()
    };
    assert!(colored(&env(&[]), "auto", false, true));
    assert!(!colored(&env(&[]), "auto", false, false));
    assert!(!colored(&env(&[("NO_COLOR", "1")]), "auto", false, true));
    assert!(colored(&env(&[("NO_COLOR", "")]), "auto", false, true));
    assert!(!colored(&env(&[("TERM", "dumb")]), "auto", false, true));
    assert!(colored(&env(&[("CLICOLOR_FORCE", "1")]), "auto", false, false));
    assert!(colored(&env(&[("NO_COLOR", "1")]), "always", true, false));
    assert!(!colored(&env(&[("CLICOLOR_FORCE", "1")]), "never", true, true));
}
