//! Static checks of a rule: its type and cost, and the target of its `fieldPath`.

use super::super::validate::lists;
use super::super::{Rule, Schema};
use super::check::{Checker, Found, Of};
use super::program;

/// Highest cost of one rule, and of all rules of a definition together, as a real server estimates them.
pub(crate) const MOST_OF_RULE: u64 = 10_000_000;
pub(crate) const MOST_OF_ALL: u64 = 100_000_000;

/// Checks an expression of a rule: what it costs to evaluate once, or why it cannot be accepted. `is_root` is set for the
/// rules of a whole object; `yields` is the type that it must have.
///
/// # Errors
/// As the compiler words it.
pub fn judge(source: &str, rule: &Rule, schema: &Schema, is_root: bool, yields: &str) -> Result<u64, String> {
    let value = Found::of_schema(schema, is_root);
    let old = if rule.optional_old_self { Found { of: Of::Any, ..value.clone() } } else { value.clone() };
    infer(source, vec![("self".to_owned(), value), ("oldSelf".to_owned(), old)], yields)
}

/// Why a condition over named values cannot be accepted, or `None`.
pub fn condition_error(source: &str, variables: &[(&str, Schema)]) -> Option<String> {
    let named = variables.iter().map(|(name, schema)| ((*name).to_owned(), Found::of_schema(schema, false)));
    infer(source, named.collect(), "bool").err()
}

fn infer<'a>(source: &str, names: Vec<(String, Found<'a>)>, yields: &str) -> Result<u64, String> {
    let program = program::compile(source)?;
    let wrong = |message: String| format!("compilation failed: ERROR: <input>:1:1: {message}");
    let found = Checker { names }.infer(program.expression()).map_err(wrong)?;
    match found.of.name() {
        name if name == yields || name == "dyn" => Ok(found.cost),
        name => Err(format!("must evaluate to a {yields}, not to {name}")),
    }
}

/// The segments of a relative path such as `.a.b` or `.a['b.c']`; `None` for what is none.
pub(crate) fn segments(path: &str) -> Option<Vec<String>> {
    let mut found = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix("['") {
            let end = quoted.find("']")?;
            found.push(quoted.get(..end)?.replace("\\'", "'"));
            rest = quoted.get(end + 2..)?;
        } else {
            let plain = rest.strip_prefix('.')?;
            let end = plain.find(['.', '[']).unwrap_or(plain.len());
            let (name, tail) = plain.split_at_checked(end)?;
            if name.is_empty() {
                return None;
            }
            found.push(name.to_owned());
            rest = tail;
        }
    }
    (!found.is_empty()).then_some(found)
}

/// Appends a rule's `fieldPath` to the path of its node.
pub(super) fn append_field_path(field: &mut String, schema: &Schema, path: &str) {
    let mut node = Some(schema);
    for name in segments(path).unwrap_or_default() {
        match node {
            Some(schema) => lists::push(field, schema, &name),
            None => field.push_str(&format!(".{name}")),
        }
        node = node.and_then(|schema| schema.child(&name)).map(super::super::SchemaRef::as_schema);
    }
}

/// Whether a rule only compares with what was before.
pub(crate) fn is_transition(rule: &Rule) -> bool {
    !rule.optional_old_self
        && program::compile(&rule.rule).is_ok_and(|program| program.references().has_variable("oldSelf"))
}
