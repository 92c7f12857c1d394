//! Functions over lists, sets and text.

use std::cmp::Ordering;

use cel::{ExecutionError, Value as Cel};

type Outcome = Result<Cel, ExecutionError>;

/// An error for a function that was given something it does not take.
pub(super) fn mismatch(function: &str) -> ExecutionError {
    ExecutionError::function_error(function, "no such overload")
}

fn list<'a>(args: &'a [Cel], at: usize, function: &str) -> Result<&'a [Cel], ExecutionError> {
    match args.get(at) {
        Some(Cel::List(items)) => Ok(items),
        _ => Err(mismatch(function)),
    }
}

/// The text at a position.
pub(super) fn string<'a>(args: &'a [Cel], at: usize, function: &str) -> Result<&'a str, ExecutionError> {
    match args.get(at) {
        Some(Cel::String(text)) => Ok(text),
        _ => Err(mismatch(function)),
    }
}

fn index(found: Option<usize>) -> Cel {
    Cel::Int(found.and_then(|at| i64::try_from(at).ok()).unwrap_or(-1))
}

pub(super) mod lists {
    use super::{Cel, ExecutionError, Ordering, Outcome, index, list, mismatch};

    pub(in super::super) fn is_sorted(args: &[Cel]) -> Outcome {
        let items = list(args, 0, "isSorted")?;
        Ok(Cel::Bool(
            items.is_sorted_by(|a, b| matches!(a.partial_cmp(b), Some(Ordering::Less | Ordering::Equal))),
        ))
    }

    pub(in super::super) fn sum(args: &[Cel]) -> Outcome {
        let items = list(args, 0, "sum")?;
        let overflow = || ExecutionError::function_error("sum", "integer overflow");
        items
            .iter()
            .try_fold(None, |total: Option<Cel>, item| {
                let next = match (total, item) {
                    (None, item @ (Cel::Int(_) | Cel::UInt(_) | Cel::Float(_))) => item.clone(),
                    (Some(Cel::Int(a)), Cel::Int(b)) => Cel::Int(a.checked_add(*b).ok_or_else(overflow)?),
                    (Some(Cel::UInt(a)), Cel::UInt(b)) => Cel::UInt(a.checked_add(*b).ok_or_else(overflow)?),
                    (Some(Cel::Float(a)), Cel::Float(b)) => Cel::Float(a + b),
                    _ => return Err(mismatch("sum")),
                };
                Ok(Some(next))
            })
            .map(|total| total.unwrap_or(Cel::Int(0)))
    }

    pub(in super::super) fn min(args: &[Cel]) -> Outcome {
        extreme(args, "min", Ordering::Less)
    }

    pub(in super::super) fn max(args: &[Cel]) -> Outcome {
        extreme(args, "max", Ordering::Greater)
    }

    fn extreme(args: &[Cel], function: &str, wanted: Ordering) -> Outcome {
        let items = list(args, 0, function)?;
        let mut best = items.first().ok_or_else(|| {
            ExecutionError::function_error(function, format!("{function} called on empty list"))
        })?;
        for item in items {
            match item.partial_cmp(best) {
                Some(order) if order == wanted => best = item,
                Some(_) => {}
                None => return Err(mismatch(function)),
            }
        }
        Ok(best.clone())
    }

    pub(in super::super) fn index_of(args: &[Cel]) -> Outcome {
        let items = list(args, 0, "indexOf")?;
        Ok(index(items.iter().position(|item| Some(item) == args.get(1))))
    }

    pub(in super::super) fn last_index_of(args: &[Cel]) -> Outcome {
        let items = list(args, 0, "lastIndexOf")?;
        Ok(index(items.iter().rposition(|item| Some(item) == args.get(1))))
    }
}

pub(super) mod sets {
    use super::{Cel, Outcome, list};

    pub(in super::super) fn contains(args: &[Cel]) -> Outcome {
        let (all, part) = (list(args, 0, "sets.contains")?, list(args, 1, "sets.contains")?);
        Ok(Cel::Bool(part.iter().all(|item| all.contains(item))))
    }

    pub(in super::super) fn equivalent(args: &[Cel]) -> Outcome {
        let (a, b) = (list(args, 0, "sets.equivalent")?, list(args, 1, "sets.equivalent")?);
        Ok(Cel::Bool(a.iter().all(|item| b.contains(item)) && b.iter().all(|item| a.contains(item))))
    }

    pub(in super::super) fn intersects(args: &[Cel]) -> Outcome {
        let (a, b) = (list(args, 0, "sets.intersects")?, list(args, 1, "sets.intersects")?);
        Ok(Cel::Bool(a.iter().any(|item| b.contains(item))))
    }
}

pub(super) mod text {
    use std::sync::Arc;

    use super::super::super::pattern;
    use super::{Cel, ExecutionError, Outcome, string};

    fn regex(args: &[Cel], function: &str) -> Result<regex::Regex, ExecutionError> {
        let source = string(args, 1, function)?;
        pattern::compile(source).map_err(|why| ExecutionError::function_error(function, why))
    }

    pub(in super::super) fn find(args: &[Cel]) -> Outcome {
        let regex = regex(args, "find")?;
        Ok(Cel::from(regex.find(string(args, 0, "find")?).map_or("", |found| found.as_str())))
    }

    pub(in super::super) fn find_all(args: &[Cel]) -> Outcome {
        let regex = regex(args, "findAll")?;
        let limit = match args.get(2) {
            Some(Cel::Int(limit)) => usize::try_from(*limit).unwrap_or(usize::MAX),
            _ => usize::MAX,
        };
        let text = string(args, 0, "findAll")?;
        let found = regex.find_iter(text).take(limit).map(|found| Cel::from(found.as_str()));
        Ok(Cel::List(Arc::new(found.collect())))
    }
}
