//! The quantity library: `quantity('1Gi').isGreaterThan(quantity('500Mi'))`.

use std::cmp::Ordering;
use std::sync::Arc;

use cel::objects::Opaque;
use cel::{ExecutionError, Value as Cel};
use neonvm_types::Quantity;
use neonvm_types::quantity::Format;

use super::super::decode::MALFORMED_QUANTITY;
type Outcome = Result<Cel, ExecutionError>;

/// An error for a function that was given something it does not take.
fn mismatch(function: &str) -> ExecutionError {
    ExecutionError::function_error(function, "no such overload")
}

fn string<'a>(args: &'a [Cel], at: usize, function: &str) -> Result<&'a str, ExecutionError> {
    match args.get(at) {
        Some(Cel::String(text)) => Ok(text),
        _ => Err(mismatch(function)),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CelQuantity(Quantity);

impl Opaque for CelQuantity {
    fn runtime_type_name(&self) -> &'static str {
        "kubernetes.Quantity"
    }
}

fn taken(args: &[Cel], at: usize, function: &str) -> Result<Quantity, ExecutionError> {
    match args.get(at) {
        Some(Cel::Opaque(value)) => {
            value.downcast_ref::<CelQuantity>().map(|quantity| quantity.0).ok_or_else(|| mismatch(function))
        }
        // Sums and differences take whole numbers, too.
        Some(Cel::Int(value)) if at == 1 => Ok(Quantity::from_units(*value, Format::DecimalSi)),
        _ => Err(mismatch(function)),
    }
}

fn given(quantity: Quantity) -> Outcome {
    Ok(Cel::Opaque(Arc::new(CelQuantity(quantity))))
}

pub(super) fn is_quantity(args: &[Cel]) -> Outcome {
    Ok(Cel::Bool(Quantity::parse_capped(string(args, 0, "isQuantity")?).is_some()))
}

pub(super) fn quantity(args: &[Cel]) -> Outcome {
    let parsed = Quantity::parse_capped(string(args, 0, "quantity")?);
    given(parsed.ok_or_else(|| ExecutionError::function_error("quantity", MALFORMED_QUANTITY))?)
}

pub(super) fn sign(args: &[Cel]) -> Outcome {
    Ok(Cel::Int(taken(args, 0, "sign")?.sign()))
}

pub(super) fn is_integer(args: &[Cel]) -> Outcome {
    Ok(Cel::Bool(taken(args, 0, "isInteger")?.as_int().is_some()))
}

pub(super) fn as_integer(args: &[Cel]) -> Outcome {
    let whole = taken(args, 0, "asInteger")?.as_int();
    let fraction = || ExecutionError::function_error("asInteger", "cannot convert value to integer");
    Ok(Cel::Int(whole.ok_or_else(fraction)?))
}

pub(super) fn as_float(args: &[Cel]) -> Outcome {
    Ok(Cel::Float(taken(args, 0, "asApproximateFloat")?.as_float()))
}

pub(super) fn add(args: &[Cel]) -> Outcome {
    given(taken(args, 0, "add")?.plus(taken(args, 1, "add")?))
}

pub(super) fn sub(args: &[Cel]) -> Outcome {
    given(taken(args, 0, "sub")?.minus(taken(args, 1, "sub")?))
}

fn ordering(args: &[Cel], function: &str) -> Result<Ordering, ExecutionError> {
    if matches!(args.get(1), Some(Cel::Int(_))) {
        return Err(mismatch(function));
    }
    Ok(taken(args, 0, function)?.cmp(&taken(args, 1, function)?))
}

pub(super) fn is_greater(args: &[Cel]) -> Outcome {
    Ok(Cel::Bool(ordering(args, "isGreaterThan")?.is_gt()))
}

pub(super) fn is_less(args: &[Cel]) -> Outcome {
    Ok(Cel::Bool(ordering(args, "isLessThan")?.is_lt()))
}

pub(super) fn compare(args: &[Cel]) -> Outcome {
    Ok(Cel::Int(match ordering(args, "compareTo")? {
        Ordering::Less => -1,
        Ordering::Equal => 0,
        Ordering::Greater => 1,
    }))
}
