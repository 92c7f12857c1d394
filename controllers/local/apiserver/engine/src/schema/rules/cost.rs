//! An upper bound of the work of an expression, computed before it runs.
//!
//! A step is one node of the expression. What copies, compares or reads values costs a step for each value in them. A loop
//! multiplies the cost of its body by the greatest length that its range can have: no function here makes a list that is
//! longer than its parts.

use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use serde_json::Value;

use crate::object::is_word;

/// Most steps one rule may take.
pub const RULE_BUDGET: u64 = 2_000_000;
/// Most steps all rules of one object may take together.
pub const OBJECT_BUDGET: u64 = 10_000_000;
/// Deepest nesting of an expression, macros expanded.
pub(super) const MAX_AST_DEPTH: usize = 200;

/// The sizes of the values that an expression reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Length of the longest list or map.
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
        let all = |parts: &[&IdedExpr]| {
            parts.iter().fold(2, |sum: u64, part| sum.saturating_add(estimate(part, sizes)))
        };
        let body = all(&[&loops.loop_cond, &loops.loop_step]);
        let around = all(&[&loops.iter_range, &loops.accu_init, &loops.result]);
        return around.saturating_add(body.saturating_mul(items_of(&loops.iter_range, sizes)));
    }
    let parts = children(expression);
    let own = match &expression.expr {
        Expr::Call(call) if is_cheap(&call.func_name, &parts) => 1,
        Expr::Call(call) if matches!(call.func_name.as_str(), "_==_" | "_!=_") => {
            parts.iter().map(|part| weight(part, sizes)).min().unwrap_or(1)
        }
        Expr::Call(_) => weights(&parts, sizes).saturating_add(sizes.text / 64),
        Expr::List(_) | Expr::Map(_) | Expr::Struct(_) => weights(&parts, sizes),
        _ => 1,
    };
    parts.into_iter().fold(own.max(1), |sum, part| sum.saturating_add(estimate(part, sizes)))
}

/// Whether a call neither copies nor walks what it gets.
fn is_cheap(function: &str, parts: &[&IdedExpr]) -> bool {
    const CHEAP: &str = "_&&_ _||_ !_ _?_:_ _<_ _<=_ _>_ _>=_ _-_ _*_ _/_ _%_ -_ _[_] _?._ _[?_] \
        @not_strictly_false size quantity compareTo";
    // A sum that appends to what a loop collects copies nothing.
    let collects =
        || matches!(parts.first().map(|part| &part.expr), Some(Expr::Ident(name)) if name.starts_with('@'));
    match function {
        "_+_" => collects(),
        name => is_word(CHEAP, name),
    }
}

fn weights(parts: &[&IdedExpr], sizes: Sizes) -> u64 {
    parts.iter().fold(0, |sum, part| sum.saturating_add(weight(part, sizes)))
}

/// Upper bound of the number of values in what an expression yields, counted through all levels.
fn weight(expression: &IdedExpr, sizes: Sizes) -> u64 {
    let parts = children(expression);
    match &expression.expr {
        Expr::Literal(_) | Expr::Unspecified => 1,
        Expr::Ident(name) if matches!(name.as_str(), "self" | "oldSelf") => sizes.values.max(1),
        Expr::Ident(_) | Expr::Select(_) => sizes.part.max(1),
        Expr::List(_) | Expr::Map(_) | Expr::Struct(_) => weights(&parts, sizes).saturating_add(1),
        Expr::Call(call) => match call.func_name.as_str() {
            "_+_" | "_?_:_" => weights(&parts, sizes),
            "_[_]" | "_?._" | "_[?_]" => sizes.part.max(1),
            _ => 1,
        },
        Expr::Comprehension(loops) => {
            items_of(&loops.iter_range, sizes).saturating_mul(weight(&loops.loop_step, sizes))
        }
    }
}

/// Upper bound of the number of items of a list or map.
fn items_of(expression: &IdedExpr, sizes: Sizes) -> u64 {
    let parts = children(expression);
    let sum = |parts: &[&IdedExpr]| {
        parts.iter().fold(0, |sum: u64, part| sum.saturating_add(items_of(part, sizes)))
    };
    match &expression.expr {
        Expr::List(list) => length(list.elements.len()),
        Expr::Map(map) => length(map.entries.len()),
        Expr::Call(call) if matches!(call.func_name.as_str(), "_+_" | "_?_:_") => sum(&parts),
        Expr::Comprehension(loops) => {
            items_of(&loops.iter_range, sizes).max(items_of(&loops.accu_init, sizes))
        }
        _ => sizes.items.max(1),
    }
}
