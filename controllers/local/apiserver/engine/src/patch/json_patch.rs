//! JSON patch (RFC 6902) with the habits of the API server's library: `replace` of a missing key of an object adds it,
//! list indices may be negative, and a `test` for null holds where nothing is.

use serde_json::Value;

use super::{MAX_DEPTH, unprocessable};
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
    let Value::Array(operations) = patch else {
        let found = go_type(patch);
        return Err(ApiError::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {found} into Go value of type jsonpatch.Patch"
        )));
    };
    if let Some(odd) = operations.iter().find(|item| !item.is_object()) {
        let found = go_type(odd);
        return Err(ApiError::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {found} into Go value of type jsonpatch.Operation"
        )));
    }
    if operations.len() > MAX_OPERATIONS {
        return Err(ApiError::plain(
            413,
            "RequestEntityTooLarge",
            format!(
                "Request entity is too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, \
                 got {}",
                operations.len()
            ),
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

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
        Value::Null => "null",
    }
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "`json!` literals are passed as they are")]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn patched(document: Value, patch: Value) -> Result<Value, u16> {
        apply_json_patch(&document, &patch).map_err(|error| error.code)
    }

    #[test]
    fn operations_do_what_the_recorded_server_does() {
        let base = json!({"data": {"x": "1", "y": "2"}, "l": ["a", "b"]});
        for (patch, wanted) in [
            (json!([{"op": "replace", "path": "/data/none", "value": "1"}]), "/data/none"),
            (json!([{"op": "add", "path": "/l/-", "value": "c"}]), "/l/2"),
            (
                json!([{"op": "add", "path": "/l/0", "value": "c"}, {"op": "test", "path": "/l/2", "value": "b"}]),
                "/l/2",
            ),
            (
                json!([{"op": "copy", "from": "/data/x", "path": "/c"}, {"op": "move", "from": "/c", "path": "/d"}]),
                "/d",
            ),
            (json!([{"op": "add", "path": "/a~1b", "value": 1}]), "/a~1b"),
            (
                json!([{"op": "remove", "path": "/l/-1"}, {"op": "test", "path": "/l", "value": ["a"]}]),
                "/l/0",
            ),
            (json!([{"op": "test", "path": "/none", "value": null}]), "/data"),
        ] {
            let result = patched(base.clone(), patch.clone());
            assert!(
                result.as_ref().is_ok_and(|value| value.pointer(wanted).is_some()),
                "{patch}: {result:?}"
            );
        }
        for patch in [
            json!([{"op": "test", "path": "/data/x", "value": "9"}]),
            json!([{"op": "test", "path": "/data/none", "value": "1"}]),
            json!([{"op": "remove", "path": "/data/none"}]),
            json!([{"op": "replace", "path": "/none/k", "value": "1"}]),
            json!([{"op": "add", "path": "/none/k", "value": "1"}]),
            json!([{"op": "replace", "path": "/l/2", "value": "1"}]),
            json!([{"op": "bend", "path": "/data/x"}]),
            json!([{"path": "/data/x"}]),
            json!([{"op": "add", "path": "data", "value": 1}]),
        ] {
            assert_eq!(patched(base.clone(), patch.clone()), Err(422), "{patch}");
        }
        assert_eq!(patched(base.clone(), json!({"op": "add"})), Err(400));
        assert_eq!(patched(base.clone(), json!([1])), Err(400));
        assert_eq!(patched(base.clone(), json!([])), Ok(base));
    }

    #[test]
    fn a_patch_can_neither_be_endless_nor_blow_up() {
        let operation = json!({"op": "add", "path": "/a", "value": 1});
        assert_eq!(patched(json!({}), Value::Array(vec![operation.clone(); 10_001])), Err(413));
        assert!(patched(json!({}), Value::Array(vec![operation; 10_000])).is_ok());
        let doubling = json!({"op": "copy", "from": "", "path": "/a"});
        assert_eq!(patched(json!({"x": "y"}), Value::Array(vec![doubling; 1000])), Err(422));
        let wide = json!({"op": "copy", "from": "/l", "path": "/l/-"});
        assert_eq!(patched(json!({"l": ["x".repeat(1000)]}), Value::Array(vec![wide; 100])), Err(422));
    }

    /// Values of a document.
    fn count(value: &Value) -> usize {
        match value {
            Value::Array(list) => 1 + list.iter().map(count).sum::<usize>(),
            Value::Object(map) => 1 + map.values().map(count).sum::<usize>(),
            _ => 1,
        }
    }

    #[test]
    fn a_patch_of_few_bytes_makes_and_moves_few_values() {
        // As the review found: each operation doubles the annotations.
        let document = json!({ "metadata": { "annotations": {} } });
        let doubling: Vec<Value> = (0..40)
            .map(|n| json!({"op": "copy", "from": "/metadata/annotations", "path": format!("/metadata/annotations/a{n}")}))
            .collect();
        let mut budget = Budget { bytes: MAX_COPIED, copied: MAX_COPIED_VALUES, moved: MAX_MOVED };
        let mut result = document;
        let ended = doubling.iter().try_for_each(|operation| apply_one(&mut result, operation, &mut budget));
        assert!(ended.is_err() && count(&result) <= MAX_COPIED_VALUES + 3, "{}", count(&result));
        // Large values there and back, and the ends of long lists.
        let wide = json!({ "a": vec![json!([]); 100_000], "l": vec![json!([]); 100_000] });
        let moves = |n: u32| {
            let (from, path) = if n.is_multiple_of(2) { ("/a", "/b") } else { ("/b", "/a") };
            json!({"op": "move", "from": from, "path": path})
        };
        assert_eq!(patched(wide.clone(), (0..10_000).map(moves).collect()), Err(422));
        for operation in
            [json!({"op": "add", "path": "/l/0", "value": 1}), json!({"op": "remove", "path": "/l/0"})]
        {
            assert_eq!(patched(wide.clone(), vec![operation; 10_000].into()), Err(422));
        }
        // What people write is far from that.
        let list = json!({ "l": vec![json!({"name": "x", "value": "y"}); 500] });
        let front = json!({"op": "move", "from": "/l/-1", "path": "/l/0"});
        assert!(patched(list, vec![front; 500].into()).is_ok());
    }

    proptest! {
        #[test]
        fn any_operation_on_any_document_returns(
            document in crate::patch::strategic_json(),
            op in "(add|replace|remove|move|copy|test)",
            path in "(/[ab01-]){0,3}",
            from in "(/[ab01-]){0,3}",
            value in crate::patch::strategic_json(),
        ) {
            let patch = json!([{"op": op, "path": path, "from": from, "value": value}]);
            let _ = apply_json_patch(&document, &patch);
        }

        #[test]
        fn what_was_added_can_be_tested_and_removed(key in "[a-z~/]{1,6}", value in crate::patch::strategic_json()) {
            let path = format!("/{}", key.replace('~', "~0").replace('/', "~1"));
            let patch = json!([
                {"op": "add", "path": path, "value": value},
                {"op": "test", "path": path, "value": value},
                {"op": "remove", "path": path},
            ]);
            prop_assert_eq!(apply_json_patch(&json!({}), &patch).unwrap(), json!({}));
        }
    }
}
