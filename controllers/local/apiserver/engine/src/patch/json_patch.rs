//! JSON patch (RFC 6902) with the habits of the API server's library: `replace` of a missing key of an object adds it,
//! list indices may be negative, and a `test` for null holds where nothing is.

use serde_json::Value;

use super::{MAX_DEPTH, unprocessable};
use crate::schema::json::kind_of;
use crate::status::ApiError;

/// More operations than this are refused before the first is read.
const MAX_OPERATIONS: usize = 10_000;

/// Bytes that all `copy` operations of one patch may duplicate, so that a patch cannot grow exponentially.
const MAX_COPIED: usize = 3 << 20;

/// Values that they may duplicate: each takes memory and time of its own, however few bytes it has.
const MAX_COPIED_VALUES: usize = 10_000;

/// Values that all operations of one patch may move: checked for their depth, or shifted in a list.
const MAX_MOVED: usize = 2_000_000;

type Step<T> = Result<T, ApiError>;

/// Applies the list of operations `patch` to `document`.
///
/// # Errors
/// 400 if `patch` is not a list of objects, 413 beyond 10,000 operations, 422 if an operation cannot be carried out.
pub fn apply_json_patch(document: &Value, patch: &Value) -> Result<Value, ApiError> {
    let refuse = |found: &Value, wanted: &str| {
        let found = kind_of(found);
        ApiError::bad_request(format!("error decoding patch: {found} is no {wanted}"))
    };
    let Value::Array(operations) = patch else { return Err(refuse(patch, "list of operations")) };
    if let Some(odd) = operations.iter().find(|item| !item.is_object()) {
        return Err(refuse(odd, "operation"));
    }
    if operations.len() > MAX_OPERATIONS {
        let what = format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        );
        return Err(ApiError::plain(
            413,
            "RequestEntityTooLarge",
            format!("Request entity is too large: {what}"),
        ));
    }
    let mut result = document.clone();
    let mut budget = Budget { bytes: MAX_COPIED, copied: MAX_COPIED_VALUES, moved: MAX_MOVED };
    for operation in operations {
        apply_one(&mut result, operation, &mut budget)?;
    }
    Ok(result)
}

/// What a patch may still do beyond what its own bytes bound.
struct Budget {
    bytes: usize,
    copied: usize,
    moved: usize,
}

impl Budget {
    /// Charges a copy, before it is made: stops at the first value that is too much.
    fn copy(&mut self, value: &Value) -> Step<()> {
        charge(&mut self.copied, 1)?;
        let keys = match value {
            Value::String(text) => text.len() + 2,
            Value::Object(map) => 2 + map.keys().map(|key| key.len() + 4).sum::<usize>(),
            Value::Array(list) => 2 + list.len(),
            _ => 4,
        };
        charge(&mut self.bytes, keys)?;
        match value {
            Value::Array(list) => list.iter().try_for_each(|item| self.copy(item)),
            Value::Object(map) => map.values().try_for_each(|item| self.copy(item)),
            _ => Ok(()),
        }
    }

    /// Charges a value that is put into a place at this depth. It must not nest too deeply there.
    fn put(&mut self, value: &Value, depth: usize) -> Step<()> {
        charge(&mut self.moved, 1)?;
        let inner = || depth.checked_add(1).filter(|inner| *inner <= MAX_DEPTH).ok_or_else(unprocessable);
        match value {
            Value::Array(list) => {
                inner().and_then(|depth| list.iter().try_for_each(|item| self.put(item, depth)))
            }
            Value::Object(map) => {
                inner().and_then(|depth| map.values().try_for_each(|item| self.put(item, depth)))
            }
            _ => Ok(()),
        }
    }
}

fn charge(left: &mut usize, amount: usize) -> Step<()> {
    *left = left.checked_sub(amount).ok_or_else(unprocessable)?;
    Ok(())
}

fn apply_one(document: &mut Value, operation: &Value, budget: &mut Budget) -> Step<()> {
    let text = |key: &str| operation.get(key).and_then(Value::as_str);
    let path = Pointer::parse(text("path").ok_or_else(unprocessable)?)?;
    let from = || Pointer::parse(text("from").ok_or_else(unprocessable)?);
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    match text("op") {
        Some("add") => path.add(document, value(), budget),
        Some("replace") => path.replace(document, value(), budget),
        Some("remove") => path.remove(document, budget).map(drop),
        Some("move") => {
            let taken = from()?.remove(document, budget)?;
            path.add(document, taken, budget)
        }
        Some("copy") => {
            let from = from()?;
            let source = from.find(document).ok_or_else(unprocessable)?;
            budget.copy(source)?;
            let source = source.clone();
            path.add(document, source, budget)
        }
        Some("test") => {
            let wanted = operation.get("value").unwrap_or(&Value::Null);
            match path.find(document) {
                Some(found) if found == wanted => Ok(()),
                // Nothing there counts as null, as long as the parent exists.
                None if wanted.is_null() && path.parent_exists(document) => Ok(()),
                _ => Err(unprocessable()),
            }
        }
        _ => Err(unprocessable()),
    }
}

struct Pointer(Vec<String>);

impl Pointer {
    fn parse(text: &str) -> Step<Self> {
        if text.is_empty() {
            return Ok(Self(Vec::new()));
        }
        let rest = text.strip_prefix('/').ok_or_else(unprocessable)?;
        let tokens: Vec<String> =
            rest.split('/').map(|token| token.replace("~1", "/").replace("~0", "~")).collect();
        if tokens.len() > MAX_DEPTH { Err(unprocessable()) } else { Ok(Self(tokens)) }
    }

    fn find<'a>(&self, document: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(document, |at, token| child(at, token))
    }

    fn parent_exists(&self, document: &Value) -> bool {
        let Some((_, parents)) = self.0.split_last() else { return true };
        parents
            .iter()
            .try_fold(document, |at, token| child(at, token))
            .is_some_and(|parent| parent.is_object())
    }

    /// The container that holds the last token, and that token; `None` stands for the whole document.
    fn target<'a, 'p>(&'p self, document: &'a mut Value) -> Step<Option<(&'a mut Value, &'p str)>> {
        let Some((last, parents)) = self.0.split_last() else { return Ok(None) };
        let mut at = document;
        for token in parents {
            at = child_mut(at, token).ok_or_else(unprocessable)?;
        }
        Ok(Some((at, last)))
    }

    fn add(&self, document: &mut Value, value: Value, budget: &mut Budget) -> Step<()> {
        budget.put(&value, self.0.len())?;
        match self.target(document)? {
            None => *document = value,
            Some((Value::Object(map), key)) => {
                map.insert(key.to_owned(), value);
            }
            Some((Value::Array(list), "-")) => list.push(value),
            Some((Value::Array(list), token)) => {
                let at = index(token, list.len() + 1).ok_or_else(unprocessable)?;
                charge(&mut budget.moved, list.len() - at)?;
                list.insert(at, value);
            }
            Some(_) => return Err(unprocessable()),
        }
        Ok(())
    }

    fn replace(&self, document: &mut Value, value: Value, budget: &mut Budget) -> Step<()> {
        budget.put(&value, self.0.len())?;
        match self.target(document)? {
            None => *document = value,
            Some((Value::Object(map), key)) => {
                map.insert(key.to_owned(), value);
            }
            Some((Value::Array(list), token)) => {
                let slot =
                    index(token, list.len()).and_then(|at| list.get_mut(at)).ok_or_else(unprocessable)?;
                *slot = value;
            }
            Some(_) => return Err(unprocessable()),
        }
        Ok(())
    }

    fn remove(&self, document: &mut Value, budget: &mut Budget) -> Step<Value> {
        match self.target(document)? {
            Some((Value::Object(map), key)) => map.remove(key).ok_or_else(unprocessable),
            Some((Value::Array(list), token)) => {
                let at = index(token, list.len()).ok_or_else(unprocessable)?;
                charge(&mut budget.moved, list.len() - at)?;
                Ok(list.remove(at))
            }
            _ => Err(unprocessable()),
        }
    }
}

fn child<'a>(at: &'a Value, token: &str) -> Option<&'a Value> {
    match at {
        Value::Object(map) => map.get(token),
        Value::Array(list) => list.get(index(token, list.len())?),
        _ => None,
    }
}

fn child_mut<'a>(at: &'a mut Value, token: &str) -> Option<&'a mut Value> {
    match at {
        Value::Object(map) => map.get_mut(token),
        Value::Array(list) => {
            let at = index(token, list.len())?;
            list.get_mut(at)
        }
        _ => None,
    }
}

/// A list index below `len`; negative ones count from the end.
fn index(token: &str, len: usize) -> Option<usize> {
    let number: i64 = token.parse().ok()?;
    let at = if number < 0 { i64::try_from(len).ok()?.checked_add(number)? } else { number };
    usize::try_from(at).ok().filter(|at| *at < len)
}

#[cfg(test)]
mod tests;
