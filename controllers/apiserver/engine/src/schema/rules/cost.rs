//! An upper bound of the work of an expression, computed before it runs.
//!
//! A step is one node of the expression; what copies or compares values costs a step for each value, and calls cost more
//! the longer the strings they may read. A loop multiplies the
//! cost of its body by the greatest length its range can have: that of a literal list, of the largest list or map in
//! `self` and `oldSelf`, or, for what a function returns, a product of the lengths that went in.

use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use serde_json::Value;

/// Most steps one rule may take.
pub const RULE_BUDGET: u64 = 2_000_000;
/// Most steps all rules of one object may take together.
pub const OBJECT_BUDGET: u64 = 10_000_000;
/// Deepest nesting of an expression, macros expanded.
pub(super) const MAX_AST_DEPTH: usize = 200;

/// The sizes of the values that an expression reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Length of the longest list, map or (for functions that split) a part of it.
    items: u64,
    /// Bytes of the longest string.
    text: u64,
    /// Values in all, through all levels.
    values: u64,
    /// Values in the largest part of it.
    part: u64,
}

impl Sizes {
    pub(super) fn from_value(value: &Value) -> Self {
        let mut sizes = Self::default();
        sizes.values = sizes.add(value, 0);
        sizes
    }

    pub(super) fn max(self, other: Self) -> Self {
        Self {
            items: self.items.max(other.items),
            text: self.text.max(other.text),
            values: self.values.max(other.values),
            part: self.part.max(other.part),
        }
    }

    /// Takes a value in; returns how many values it holds, itself included.
    fn add(&mut self, value: &Value, depth: usize) -> u64 {
        let mut held = 1;
        match value {
            Value::String(text) => self.text = self.text.max(length(text.len())),
            Value::Array(items) => {
                self.items = self.items.max(length(items.len()));
                held += items.iter().map(|item| self.add(item, depth + 1)).sum::<u64>();
            }
            Value::Object(fields) => {
                self.items = self.items.max(length(fields.len()));
                for (key, value) in fields {
                    self.text = self.text.max(length(key.len()));
                    held += self.add(value, depth + 1);
                }
            }
            _ => {}
        }
        if depth > 0 {
            self.part = self.part.max(held);
        }
        held
    }
}

fn length(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// The children of a node, in no particular order; comprehensions are treated by the callers.
pub(super) fn children(expression: &IdedExpr) -> Vec<&IdedExpr> {
    match &expression.expr {
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::Comprehension(loops) => {
            vec![&loops.iter_range, &loops.accu_init, &loops.loop_cond, &loops.loop_step, &loops.result]
        }
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map.entries.iter().flat_map(|entry| entry_parts(&entry.expr)).collect(),
        Expr::Struct(object) => object.entries.iter().flat_map(|entry| entry_parts(&entry.expr)).collect(),
        Expr::Select(select) => vec![&select.operand],
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => Vec::new(),
    }
}

fn entry_parts(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}

/// How deep an expression is nested. Works without recursion, for it decides whether recursion is safe.
pub(super) fn depth(expression: &IdedExpr) -> usize {
    let mut deepest = 0;
    let mut open = vec![(expression, 1_usize)];
    while let Some((node, level)) = open.pop() {
        deepest = deepest.max(level);
        open.extend(children(node).into_iter().map(|child| (child, level + 1)));
    }
    deepest
}

/// Upper bound of the steps to evaluate an expression that is no deeper than [`MAX_AST_DEPTH`].
pub(super) fn estimate(expression: &IdedExpr, sizes: Sizes) -> u64 {
    if let Expr::Comprehension(loops) = &expression.expr {
        let body = estimate(&loops.loop_cond, sizes)
            .saturating_add(estimate(&loops.loop_step, sizes))
            .saturating_add(2);
        let around = estimate(&loops.iter_range, sizes)
            .saturating_add(estimate(&loops.accu_init, sizes))
            .saturating_add(estimate(&loops.result, sizes));
        return around.saturating_add(body.saturating_mul(bound(&loops.iter_range, sizes)));
    }
    let parts = children(expression);
    let own = match &expression.expr {
        Expr::Call(call) => match call.func_name.as_str() {
            "_==_" | "_!=_" => parts.iter().map(|part| weight(part, sizes)).min().unwrap_or(1),
            "_+_" if !collects(&parts) => copies(&parts, sizes).saturating_add(sizes.text / 256),
            name if is_cheap(name) => 1,
            // Arguments are copied, and texts read.
            _ => copies(&parts, sizes).saturating_add(sizes.text / 64),
        },
        Expr::List(_) | Expr::Map(_) | Expr::Struct(_) => copies(&parts, sizes),
        _ => 1,
    };
    parts.into_iter().fold(own.max(1), |sum, part| sum.saturating_add(estimate(part, sizes)))
}

/// Whether a sum appends to what a loop collects, which copies nothing.
fn collects(parts: &[&IdedExpr]) -> bool {
    matches!(parts.first().map(|part| &part.expr), Some(Expr::Ident(name)) if name.starts_with('@'))
}

/// Operators that neither copy nor walk their operands.
fn is_cheap(function: &str) -> bool {
    matches!(
        function,
        "_&&_"
            | "_||_"
            | "!_"
            | "_?_:_"
            | "_<_"
            | "_<=_"
            | "_>_"
            | "_>=_"
            | "_-_"
            | "_+_"
            | "_*_"
            | "_/_"
            | "_%_"
            | "-_"
            | "_[_]"
            | "_?._"
            | "_[?_]"
            | "@not_strictly_false"
            | "size"
    )
}

fn copies(parts: &[&IdedExpr], sizes: Sizes) -> u64 {
    parts.iter().fold(0, |sum, part| sum.saturating_add(weight(part, sizes)))
}

/// Upper bound of the number of values in what an expression yields, counted through all levels.
fn weight(expression: &IdedExpr, sizes: Sizes) -> u64 {
    let parts = children(expression);
    match &expression.expr {
        Expr::Literal(_) | Expr::Unspecified => 1,
        Expr::Ident(name) if matches!(name.as_str(), "self" | "oldSelf") => sizes.values.max(1),
        Expr::Ident(_) | Expr::Select(_) => sizes.part.max(1),
        Expr::List(_) | Expr::Map(_) | Expr::Struct(_) => copies(&parts, sizes).saturating_add(1),
        Expr::Call(call) => match call.func_name.as_str() {
            "_+_" | "_?_:_" => copies(&parts, sizes),
            "_[_]" | "_?._" | "_[?_]" => sizes.part.max(1),
            name if is_cheap(name) || matches!(name, "_==_" | "_!=_" | "@in") => 1,
            _ => copies(&parts, sizes).saturating_add(bound(expression, sizes)),
        },
        Expr::Comprehension(loops) => match &loops.loop_step.expr {
            // Only loops that collect yield more than a yes or a no.
            Expr::Call(call) if matches!(call.func_name.as_str(), "_&&_" | "_||_") => 1,
            _ => bound(&loops.iter_range, sizes).saturating_mul(weight(&loops.loop_step, sizes)),
        },
    }
}

/// Greatest length of what an expression yields, if that is a list, a map or a string.
fn bound(expression: &IdedExpr, sizes: Sizes) -> u64 {
    match &expression.expr {
        Expr::List(list) => length(list.elements.len()),
        Expr::Map(map) => length(map.entries.len()),
        Expr::Comprehension(loops) => bound(&loops.iter_range, sizes),
        Expr::Call(call) => {
            let base = sizes.items.max(sizes.text).max(16);
            let parts = children(expression);
            let factors = parts.iter().map(|part| bound(part, sizes).max(1));
            match call.func_name.as_str() {
                "_[_]" | "_?._" | "_[?_]" => sizes.items.max(1),
                "_?_:_" => factors.max().unwrap_or(1),
                "_+_" => factors.fold(0, u64::saturating_add),
                "lists.range" => MAX_RANGE,
                // The text of one value.
                "string" => sizes.text.max(32),
                // A single value, whatever goes in.
                "quantity" | "compareTo" | "isInteger" | "asInteger" | "asApproximateFloat" => 1,
                _ => factors.fold(base, u64::saturating_mul),
            }
        }
        Expr::Literal(_) => 1,
        _ => sizes.items.max(1),
    }
}

/// The number of items that `lists.range` yields is not known before; assume the maximum that the library allows.
const MAX_RANGE: u64 = 1_000_000;
