//! Compiled rules and what they are run on.

use std::sync::{Arc, OnceLock};

use cel::objects::OptionalValue;
use cel::{Context, Env, Program as Expression, Value as Cel};
use serde_json::Value;

use super::super::{Rule, Schema};
use super::{convert, cost, library};

/// Longest expression that is compiled, in bytes.
const MAX_SOURCE: usize = 16 << 10;

/// The functions rules may call, built once.
pub(super) fn env() -> &'static Arc<Env> {
    static ENV: OnceLock<Arc<Env>> = OnceLock::new();
    ENV.get_or_init(|| Arc::new(library::environment()))
}

/// Deepest nesting of brackets, and most `?` in one expression: the parser recurses over both.
const MAX_NESTING: usize = 48;
/// Most operators at one level of brackets, between commas: the parser nests a chain of them.
const MAX_CHAIN: usize = 500;

/// Whether the parser can take an expression without running out of stack.
fn is_flat_enough(source: &str) -> bool {
    let (mut ternaries, mut quote, mut escaped) = (0, None, false);
    let mut chains = vec![0_usize];
    for c in source.chars() {
        if let Some(end) = quote {
            if escaped || c == '\\' {
                escaped = !escaped;
            } else if c == end {
                quote = None;
            }
            continue;
        }
        match c {
            '"' | '\'' => quote = Some(c),
            '(' | '[' | '{' => {
                if let Some(chain) = chains.last_mut() {
                    *chain += 1;
                }
                chains.push(0);
            }
            ')' | ']' | '}' if chains.len() > 1 => {
                chains.pop();
            }
            '?' => ternaries += 1,
            '+' | '-' | '*' | '/' | '%' | '<' | '>' | '=' | '&' | '|' | '!' | '.' => {
                if let Some(chain) = chains.last_mut() {
                    *chain += 1;
                }
            }
            ',' => {
                if let Some(chain) = chains.last_mut() {
                    *chain = 0;
                }
            }
            _ => {}
        }
        if chains.len() > MAX_NESTING
            || ternaries > MAX_NESTING
            || chains.last().is_some_and(|c| *c > MAX_CHAIN)
        {
            return false;
        }
    }
    true
}

/// Compiles an expression.
///
/// # Errors
/// The parser's message.
pub(super) fn compile(source: &str) -> Result<Expression, String> {
    if source.len() > MAX_SOURCE {
        return Err(format!("compilation failed: expression exceeds {MAX_SOURCE} bytes"));
    }
    if !is_flat_enough(source) {
        return Err("compilation failed: expression is nested too deeply".to_owned());
    }
    let program = env().compile(source).map_err(|error| format!("compilation failed: {error}"))?;
    if cost::depth(program.expression()) > cost::MAX_AST_DEPTH {
        return Err("compilation failed: expression is nested too deeply".to_owned());
    }
    Ok(program)
}

#[derive(Debug)]
pub(crate) struct Program {
    rule: Expression,
    message: Option<Expression>,
    needs_old: bool,
}

impl Program {
    /// Compiles a rule and its message expression; a message expression that does not compile is left out.
    pub(crate) fn new(rule: &Rule) -> Result<Self, String> {
        let program = compile(&rule.rule)?;
        let needs_old = program.references().has_variable("oldSelf");
        let message = rule.message_expression.as_deref().and_then(|source| compile(source).ok());
        Ok(Self { rule: program, message, needs_old })
    }

    pub(crate) fn needs_old(&self) -> bool {
        self.needs_old
    }

    pub(super) fn cost(&self, inputs: &Inputs<'_>) -> u64 {
        let message = self.message.as_ref().map_or(0, |m| cost::estimate(m.expression(), inputs.sizes));
        cost::estimate(self.rule.expression(), inputs.sizes).saturating_add(message)
    }

    pub(super) fn holds(&self, inputs: &mut Inputs<'_>, optional_old: bool) -> Result<bool, String> {
        match inputs.run(&self.rule, optional_old)? {
            Cel::Bool(outcome) => Ok(outcome),
            _ => Err("rule result was not a boolean".to_owned()),
        }
    }

    /// The message that the rule's message expression yields: one line of text, or nothing.
    pub(super) fn message(&self, inputs: &mut Inputs<'_>, optional_old: bool) -> Option<String> {
        let outcome = inputs.run(self.message.as_ref()?, optional_old).ok()?;
        let Cel::String(text) = outcome else { return None };
        let text = text.trim();
        if text.is_empty() || text.contains('\n') || text.len() > 5 << 10 {
            None
        } else {
            Some(text.to_owned())
        }
    }
}

/// `self` and `oldSelf` of one node, converted at first use and shared by its rules.
pub(crate) struct Inputs<'a> {
    schema: &'a Schema,
    value: &'a Value,
    old: Option<&'a Value>,
    is_root: bool,
    pub(super) sizes: cost::Sizes,
    converted: Option<(Cel, Option<Cel>)>,
}

impl<'a> Inputs<'a> {
    pub(super) fn new(schema: &'a Schema, value: &'a Value, old: Option<&'a Value>, is_root: bool) -> Self {
        let sizes = old
            .map_or_else(cost::Sizes::default, cost::Sizes::from_value)
            .max(cost::Sizes::from_value(value));
        Self { schema, value, old, is_root, sizes, converted: None }
    }

    pub(super) fn has_old(&self) -> bool {
        self.old.is_some()
    }

    fn run(&mut self, program: &Expression, optional_old: bool) -> Result<Cel, String> {
        let (schema, is_root) = (self.schema, self.is_root);
        let (value, old) = (self.value, self.old);
        let (value, old) = self.converted.get_or_insert_with(|| {
            (convert::to_cel(schema, value, is_root), old.map(|old| convert::to_cel(schema, old, is_root)))
        });
        let mut context = Context::with_env(Arc::clone(env()));
        context.add_variable_from_value("self", value.clone());
        match (optional_old, old) {
            (false, Some(old)) => context.add_variable_from_value("oldSelf", old.clone()),
            (false, None) => {}
            (true, old) => {
                let old = old.clone().map_or_else(OptionalValue::none, OptionalValue::of);
                context.add_variable_from_value("oldSelf", Cel::Opaque(Arc::new(old)));
            }
        }
        program.execute(&context).map_err(|error| worded(&error))
    }
}

/// The words of the real server where they are known.
fn worded(error: &cel::ExecutionError) -> String {
    match error {
        cel::ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        cel::ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        cel::ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        cel::ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        cel::ExecutionError::NoSuchOverload(_) => "no such overload".to_owned(),
        cel::ExecutionError::FunctionError { message, .. } => message.clone(),
        other => {
            let text = other.to_string();
            text.chars().take(200).collect()
        }
    }
}

/// Evaluates an expression over named JSON values, untyped: the match conditions of webhooks.
///
/// # Errors
/// When it does not compile, is too expensive for these values, fails, or yields no boolean.
pub(super) fn condition(source: &str, variables: &[(&str, Value)]) -> Result<bool, String> {
    let expression = compile(source)?;
    let sizes = variables
        .iter()
        .fold(cost::Sizes::default(), |sizes, (_, value)| sizes.max(cost::Sizes::from_value(value)));
    if cost::estimate(expression.expression(), sizes) > cost::RULE_BUDGET {
        return Err("evaluation is too expensive for values of this size".to_owned());
    }
    let any = Schema::any();
    let mut context = Context::with_env(Arc::clone(env()));
    for (name, value) in variables {
        context.add_variable_from_value(*name, convert::to_cel(&any, value, false));
    }
    match expression.execute(&context).map_err(|error| worded(&error))? {
        Cel::Bool(outcome) => Ok(outcome),
        _ => Err("the expression yields no boolean".to_owned()),
    }
}
