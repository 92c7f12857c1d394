//! Static checks of a rule: unknown fields and names, and the target of its `fieldPath`.

use cel::common::ast::{ComprehensionExpr, Expr, IdedExpr};

use super::super::validate::lists;
use super::super::{JsonType, Rule, Schema};
use super::{convert, cost, program};

/// Why a rule cannot be accepted, or `None`. `is_root` is set for the rules of a whole object.
pub fn compile_error(rule: &Rule, schema: &Schema, is_root: bool) -> Option<String> {
    for source in std::iter::once(&rule.rule).chain(&rule.message_expression) {
        let program = match program::compile(source) {
            Ok(program) => program,
            Err(message) => return Some(message),
        };
        // The names bound by enclosing loops come and go while the expression is walked.
        let mut checker =
            Checker { schema, is_root, optional_old: rule.optional_old_self, locals: Vec::new() };
        if let Err(message) = checker.infer(program.expression()) {
            return Some(format!("compilation failed: ERROR: <input>:1:1: {message}"));
        }
    }
    None
}

/// Static information on the value of an expression.
#[derive(Clone, Copy)]
enum Known<'a> {
    /// A value of this node; `true` for a whole object.
    Node(&'a Schema, bool),
    /// The `metadata` of a whole object.
    Metadata,
    /// Nothing.
    Nothing,
}

/// Names that stand for types and function namespaces.
const NAMES: [&str; 15] = [
    "int",
    "uint",
    "double",
    "bool",
    "string",
    "bytes",
    "list",
    "map",
    "null_type",
    "type",
    "dyn",
    "optional",
    "optional_type",
    "google",
    "kubernetes",
];

struct Checker<'a> {
    schema: &'a Schema,
    is_root: bool,
    optional_old: bool,
    locals: Vec<(String, Known<'a>)>,
}

impl<'a> Checker<'a> {
    fn infer(&mut self, expression: &IdedExpr) -> Result<Known<'a>, String> {
        match &expression.expr {
            Expr::Ident(name) => self.ident(name),
            Expr::Select(select) => {
                let operand = self.infer(&select.operand)?;
                field_of(operand, &select.field)
            }
            Expr::Call(call) if call.func_name == "_[_]" => {
                let mut of = Known::Nothing;
                for (position, part) in call.args.iter().enumerate() {
                    let known = self.infer(part)?;
                    if position == 0 {
                        of = known;
                    }
                }
                Ok(element_of(of))
            }
            Expr::Comprehension(loops) => self.comprehension(loops),
            _ => {
                for part in cost::children(expression) {
                    self.infer(part)?;
                }
                Ok(Known::Nothing)
            }
        }
    }

    fn ident(&self, name: &str) -> Result<Known<'a>, String> {
        if let Some((_, known)) = self.locals.iter().rev().find(|(local, _)| local == name) {
            return Ok(*known);
        }
        match name {
            "self" => Ok(Known::Node(self.schema, self.is_root)),
            "oldSelf" if self.optional_old => Ok(Known::Nothing),
            "oldSelf" => Ok(Known::Node(self.schema, self.is_root)),
            _ if NAMES.contains(&name) || name.starts_with(['@', '#']) => Ok(Known::Nothing),
            _ => Err(format!("undeclared reference to '{name}' (in container '')")),
        }
    }

    fn comprehension(&mut self, loops: &ComprehensionExpr) -> Result<Known<'a>, String> {
        let range = self.infer(&loops.iter_range)?;
        self.infer(&loops.accu_init)?;
        let before = self.locals.len();
        let over_list = matches!(range, Known::Node(schema, _) if schema.json_type == JsonType::Array);
        let element = element_of(range);
        match &loops.iter_var2 {
            Some(second) => {
                self.locals.push((loops.iter_var.clone(), Known::Nothing));
                self.locals.push((second.clone(), element));
            }
            None => {
                let known = if over_list { element } else { Known::Nothing };
                self.locals.push((loops.iter_var.clone(), known));
            }
        }
        self.locals.push((loops.accu_var.clone(), Known::Nothing));
        for part in [&loops.loop_cond, &loops.loop_step, &loops.result] {
            self.infer(part)?;
        }
        self.locals.truncate(before);
        Ok(Known::Nothing)
    }
}

fn field_of<'a>(operand: Known<'a>, field: &str) -> Result<Known<'a>, String> {
    let (schema, whole) = match operand {
        Known::Nothing => return Ok(Known::Nothing),
        Known::Metadata if matches!(field, "name" | "generateName") => return Ok(Known::Nothing),
        Known::Metadata => return Err(format!("undefined field '{field}'")),
        Known::Node(schema, whole) => (schema, whole),
    };
    if whole && field == "metadata" {
        return Ok(Known::Metadata);
    }
    let named = schema.properties.iter().find(|(name, _)| convert::escape(name).as_deref() == Some(field));
    if let Some(child) = named.map(|(_, child)| child).or(schema.additional.as_ref()) {
        return Ok(Known::Node(child, false));
    }
    match schema.json_type {
        _ if schema.int_or_string || schema.preserve_unknown => Ok(Known::Nothing),
        JsonType::Any => Ok(Known::Nothing),
        JsonType::Object => Err(format!("undefined field '{field}'")),
        JsonType::Array => Err("type 'list' does not support field selection".to_owned()),
        JsonType::String => Err("type 'string' does not support field selection".to_owned()),
        JsonType::Integer => Err("type 'int' does not support field selection".to_owned()),
        JsonType::Number => Err("type 'double' does not support field selection".to_owned()),
        JsonType::Boolean => Err("type 'bool' does not support field selection".to_owned()),
    }
}

fn element_of(of: Known<'_>) -> Known<'_> {
    let Known::Node(schema, _) = of else { return Known::Nothing };
    let child = match schema.json_type {
        JsonType::Array => schema.items.as_ref(),
        _ => schema.additional.as_ref(),
    };
    child.map_or(Known::Nothing, |child| Known::Node(child, false))
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
