//! The functions rules may call: the standard library, the string, list and math extensions, and Kubernetes' own.

use std::sync::OnceLock;

use cel::common::types::{DYN_TYPE, LIST_TYPE, STRING_TYPE, Type};
use cel::{Context, DeclarationError, Env, Program, Value as Cel, extensions};

use super::functions::{lists, sets, text};
use super::{net, quantities};

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
    env.add_extension(extensions::strings)?;
    env.add_extension(extensions::lists)?;
    env.add_extension(extensions::math)?;
    for (name, function) in members() {
        let (target, args) = signature(name);
        env.add_member_overload(bare(name), &format!("rules.{name}"), target, args, function)?;
    }
    for (name, arity, function) in globals() {
        let args = (0..arity).map(|_| DYN_TYPE).collect();
        env.add_overload(name, &format!("rules.{name}({arity})"), args, function)?;
    }
    Ok(())
}

/// Names are written `<target>.<function>/<arity>`.
fn bare(name: &str) -> &str {
    let name = name.split_once('.').map_or(name, |(_, rest)| rest);
    name.split_once('/').map_or(name, |(rest, _)| rest)
}

fn signature(name: &str) -> (Type, Vec<Type>) {
    let target = match name.split_once('.').map(|(target, _)| target) {
        Some("list") => LIST_TYPE,
        Some("string") => STRING_TYPE,
        _ => DYN_TYPE,
    };
    let arity = name.rsplit_once('/').and_then(|(_, arity)| arity.parse().ok()).unwrap_or(0);
    (target, (0..arity).map(|_| DYN_TYPE).collect())
}

fn members() -> Vec<(&'static str, Overload)> {
    vec![
        ("list.isSorted/0", plain!(lists::is_sorted)),
        ("list.sum/0", plain!(lists::sum)),
        ("list.min/0", plain!(lists::min)),
        ("list.max/0", plain!(lists::max)),
        ("list.indexOf/1", plain!(lists::index_of)),
        ("list.lastIndexOf/1", plain!(lists::last_index_of)),
        ("string.find/1", plain!(text::find)),
        ("string.findAll/1", plain!(text::find_all)),
        ("string.findAll/2", plain!(text::find_all)),
        ("any.sign/0", plain!(quantities::sign)),
        ("any.isInteger/0", plain!(quantities::is_integer)),
        ("any.asInteger/0", plain!(quantities::as_integer)),
        ("any.asApproximateFloat/0", plain!(quantities::as_float)),
        ("any.add/1", plain!(quantities::add)),
        ("any.sub/1", plain!(quantities::sub)),
        ("any.isGreaterThan/1", plain!(quantities::is_greater)),
        ("any.isLessThan/1", plain!(quantities::is_less)),
        ("any.compareTo/1", plain!(quantities::compare)),
        ("any.family/0", plain!(net::family)),
        ("any.isUnspecified/0", plain!(net::is_unspecified)),
        ("any.isLoopback/0", plain!(net::is_loopback)),
        ("any.isLinkLocalMulticast/0", plain!(net::is_link_local_multicast)),
        ("any.isLinkLocalUnicast/0", plain!(net::is_link_local_unicast)),
        ("any.isGlobalUnicast/0", plain!(net::is_global_unicast)),
        ("any.containsIP/1", plain!(net::contains_ip)),
        ("any.containsCIDR/1", plain!(net::contains_cidr)),
        ("any.ip/0", plain!(net::cidr_ip)),
        ("any.masked/0", plain!(net::masked)),
        ("any.prefixLength/0", plain!(net::prefix_length)),
        ("any.getScheme/0", plain!(net::url_scheme)),
        ("any.getHost/0", plain!(net::url_host)),
        ("any.getHostname/0", plain!(net::url_hostname)),
        ("any.getPort/0", plain!(net::url_port)),
        ("any.getEscapedPath/0", plain!(net::url_path)),
    ]
}

fn globals() -> Vec<(&'static str, usize, Overload)> {
    vec![
        ("sets.contains", 2, plain!(sets::contains)),
        ("sets.equivalent", 2, plain!(sets::equivalent)),
        ("sets.intersects", 2, plain!(sets::intersects)),
        ("isQuantity", 1, plain!(quantities::is_quantity)),
        ("quantity", 1, plain!(quantities::quantity)),
        ("isIP", 1, plain!(net::is_ip)),
        ("ip", 1, plain!(net::ip)),
        ("ip.isCanonical", 1, plain!(net::is_canonical)),
        ("isCIDR", 1, plain!(net::is_cidr)),
        ("cidr", 1, plain!(net::cidr)),
        ("isURL", 1, plain!(net::is_url)),
        ("url", 1, plain!(net::url)),
    ]
}

/// A CEL duration of so many nanoseconds.
pub(super) fn duration(nanoseconds: i64) -> Cel {
    static PROGRAM: OnceLock<Option<Program>> = OnceLock::new();
    let seconds = nanoseconds / 1_000_000_000;
    let rest = (nanoseconds % 1_000_000_000).unsigned_abs();
    let sign = if nanoseconds < 0 && seconds == 0 { "-" } else { "" };
    built(&PROGRAM, "duration(x)", &format!("{sign}{seconds}.{rest:09}s")).unwrap_or(Cel::Null)
}

/// A CEL timestamp.
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
