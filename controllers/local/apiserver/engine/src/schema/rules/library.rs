//! The functions that rules may call: the standard library and quantities.

use std::sync::OnceLock;

use cel::common::types::DYN_TYPE;
use cel::{Context, DeclarationError, Env, Program, Value as Cel};

use super::quantities;

/// Wraps a function over plain values as an overload.
macro_rules! plain {
    ($function:path) => {{
        fn call<'b, 'v>(
            args: Vec<cel::common::value::CowVal<'b, 'v>>,
        ) -> Result<cel::common::value::CowVal<'b, 'v>, cel::ExecutionError> {
            let mut values = Vec::with_capacity(args.len());
            for arg in &args {
                values.push(cel::Value::try_from(arg.as_ref())?);
            }
            Ok(cel::common::value::CowVal::Owned($function(&values)?.try_into()?))
        }
        call
    }};
}

type Overload = cel::common::functions::Function;

/// The environment of all rules. A part that cannot be declared is left out; a test sees to it that none is.
pub(super) fn environment() -> Env {
    let mut env = Env::stdlib();
    let _ = extend(&mut env);
    env
}

fn extend(env: &mut Env) -> Result<(), DeclarationError> {
    for (name, arity, function) in members() {
        let args = (0..arity).map(|_| DYN_TYPE).collect();
        env.add_member_overload(name, &format!("rules.{name}"), DYN_TYPE, args, function)?;
    }
    for (name, function) in globals() {
        env.add_overload(name, &format!("rules.{name}()"), vec![DYN_TYPE], function)?;
    }
    Ok(())
}

fn members() -> Vec<(&'static str, usize, Overload)> {
    vec![
        ("sign", 0, plain!(quantities::sign)),
        ("isInteger", 0, plain!(quantities::is_integer)),
        ("asInteger", 0, plain!(quantities::as_integer)),
        ("asApproximateFloat", 0, plain!(quantities::as_float)),
        ("add", 1, plain!(quantities::add)),
        ("sub", 1, plain!(quantities::sub)),
        ("isGreaterThan", 1, plain!(quantities::is_greater)),
        ("isLessThan", 1, plain!(quantities::is_less)),
        ("compareTo", 1, plain!(quantities::compare)),
    ]
}

fn globals() -> Vec<(&'static str, Overload)> {
    vec![("isQuantity", plain!(quantities::is_quantity)), ("quantity", plain!(quantities::quantity))]
}

/// A CEL duration of so many nanoseconds.
pub(super) fn duration(nanoseconds: i64) -> Cel {
    static PROGRAM: OnceLock<Option<Program>> = OnceLock::new();
    let seconds = nanoseconds / 1_000_000_000;
    let rest = (nanoseconds % 1_000_000_000).unsigned_abs();
    let sign = if nanoseconds < 0 && seconds == 0 { "-" } else { "" };
    built(&PROGRAM, "duration(x)", &format!("{sign}{seconds}.{rest:09}s")).unwrap_or(Cel::Null)
}

pub(super) fn timestamp(text: &str) -> Option<Cel> {
    static PROGRAM: OnceLock<Option<Program>> = OnceLock::new();
    built(&PROGRAM, "timestamp(x)", text)
}

fn built(program: &'static OnceLock<Option<Program>>, source: &str, text: &str) -> Option<Cel> {
    static STANDARD: OnceLock<std::sync::Arc<Env>> = OnceLock::new();
    let program = program.get_or_init(|| Program::compile(source).ok()).as_ref()?;
    let env = STANDARD.get_or_init(|| std::sync::Arc::new(Env::stdlib()));
    let mut context = Context::with_env(std::sync::Arc::clone(env));
    context.add_variable_from_value("x", text);
    program.execute(&context).ok()
}

#[cfg(test)]
mod tests {
    use cel::Env;

    #[test]
    fn every_function_can_be_declared() {
        assert_eq!(super::extend(&mut Env::stdlib()), Ok(()));
    }
}
