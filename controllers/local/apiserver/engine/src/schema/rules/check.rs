//! The type of an expression, and an upper bound of what it costs to evaluate on the largest values that its schema allows.
//!
//! Costs are those of a real server: a step for a name, a field, an operator or a call; for what reads a text, a step for ten
//! of its bytes. A loop costs its body for each item that there can be.

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr};

use super::super::{JsonType, Schema};
use super::{convert, cost};

/// Largest body of a request, in bytes: no value is larger.
const LARGEST: u64 = 3 << 20;

#[derive(Clone, Debug)]
pub(super) enum Of<'a> {
    Any,
    Scalar(&'static str),
    List(Box<Of<'a>>),
    Map(Box<Of<'a>>),
    /// An object or list of this schema; `true` for a whole object.
    Node(&'a Schema, bool),
    Metadata,
}

/// A value: its type, the greatest length it can have, and the cost to get it.
#[derive(Clone, Debug)]
pub(super) struct Found<'a> {
    pub(super) of: Of<'a>,
    pub(super) size: u64,
    pub(super) cost: u64,
}

const BOOL: Of<'static> = Of::Scalar("bool");
const INT: Of<'static> = Of::Scalar("int");
const TEXT: Of<'static> = Of::Scalar("string");

impl<'a> Of<'a> {
    pub(super) fn of_schema(schema: &'a Schema, is_whole: bool) -> Self {
        let format = schema.constraints.as_ref().and_then(|all| all.format.as_deref());
        match schema.json_type {
            _ if schema.int_or_string => Self::Any,
            JsonType::Any => Self::Any,
            JsonType::Object | JsonType::Array => Self::Node(schema, is_whole),
            JsonType::String => Self::Scalar(match format {
                Some("date-time" | "date") => "timestamp",
                Some("duration") => "duration",
                Some("byte") => "bytes",
                _ => "string",
            }),
            JsonType::Integer => INT,
            JsonType::Number => Self::Scalar("double"),
            JsonType::Boolean => BOOL,
        }
    }

    /// The name of the type; `dyn` for what is known when it is there.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Any => "dyn",
            Self::Scalar(name) => name,
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Node(schema, _) if schema.json_type == JsonType::Array => "list",
            Self::Node(schema, false) if schema.additional.is_some() => "map",
            Self::Node(..) | Self::Metadata => "object",
        }
    }

    fn is(&self, names: &[&str]) -> bool {
        let name = self.name();
        name == "dyn" || names.contains(&name)
    }

    fn element(&self) -> Self {
        match self {
            Self::List(item) | Self::Map(item) => (**item).clone(),
            Self::Node(schema, _) => {
                let child = if self.name() == "list" { &schema.items } else { &schema.additional };
                child.as_deref().map_or(Self::Any, |child| Self::of_schema(child, false))
            }
            _ => Self::Any,
        }
    }

    fn meets(&self, other: &Self) -> bool {
        match (self.name(), other.name()) {
            ("dyn", _) | (_, "dyn") => true,
            (one, other_name) if one != other_name => false,
            ("list" | "map", _) => self.element().meets(&other.element()),
            _ => true,
        }
    }
}

/// The greatest length of a value: bytes of a text, items of a list or map.
fn greatest(schema: &Schema) -> u64 {
    let limits = schema.constraints.as_deref();
    let room = |least: u64| (LARGEST - 2) / (least + 1);
    match schema.json_type {
        // As the longest text.
        _ if schema.int_or_string => limits
            .and_then(|limits| limits.max_length)
            .map_or(LARGEST - 2, |longest| longest.saturating_mul(4)),
        JsonType::Array => limits
            .and_then(|limits| limits.max_items)
            .unwrap_or_else(|| room(schema.items.as_deref().map_or(1, least))),
        JsonType::Object => limits
            .and_then(|limits| limits.max_properties)
            .unwrap_or_else(|| room(schema.additional.as_deref().map_or(1, least) + 5)),
        JsonType::String => {
            let values = limits.and_then(|limits| limits.enumeration.as_ref());
            let longest =
                values.map(|all| all.iter().filter_map(|one| Some(one.as_str()?.len())).max().unwrap_or(0));
            let longest = longest.and_then(|longest| u64::try_from(longest).ok());
            longest.or_else(|| Some(limits?.max_length?.saturating_mul(4))).unwrap_or(LARGEST - 2)
        }
        _ => 1,
    }
}

/// The fewest bytes that a value takes.
fn least(schema: &Schema) -> u64 {
    match schema.json_type {
        JsonType::Boolean => 4,
        JsonType::Object => {
            let needed = schema
                .properties
                .iter()
                .filter(|(name, child)| schema.required.contains(name) && child.default.is_none());
            needed.map(|(name, child)| least(child) + u64::try_from(name.len()).unwrap_or(0) + 3).sum::<u64>()
                + 2
        }
        JsonType::Array | JsonType::String => 2,
        _ => 1,
    }
}

/// How many values of a schema fit into one request.
pub(crate) fn most_of(schema: &Schema) -> u64 {
    LARGEST / (least(schema) + 1)
}

impl<'a> Found<'a> {
    pub(super) fn of_schema(schema: &'a Schema, is_whole: bool) -> Self {
        Self { of: Of::of_schema(schema, is_whole), size: greatest(schema), cost: 1 }
    }

    fn new(of: Of<'a>, size: u64, cost: u64) -> Self {
        Self { of, size, cost }
    }

    /// What a loop over it, or an index, yields.
    fn element(&self) -> Self {
        let size = match &self.of {
            Of::Node(schema, _) => {
                let child = if self.of.name() == "list" { &schema.items } else { &schema.additional };
                child.as_deref().map_or(1, greatest)
            }
            _ => self.size,
        };
        Self::new(self.of.element(), size, 1)
    }
}

/// Names that stand for types and function namespaces.
const NAMES: &str =
    "int uint double bool string bytes list map null_type type dyn optional optional_type google kubernetes";

const NUMBERS: [&str; 3] = ["int", "uint", "double"];

/// Other functions of a real server, members and globals.
const FUNCTIONS: &str = "add allowed asApproximateFloat asInteger bind charAt check cidr compareTo contains containsCIDR containsIP dyn \
    equivalent errored family fieldSelector find findAll format getDate getDayOfMonth getDayOfWeek getDayOfYear \
    getEscapedPath getFullYear getHost getHostname getHours getMilliseconds getMinutes getMonth getPort getQuery getScheme \
    getSeconds group hasValue indexOf intersects ip isCIDR isCanonical isGreaterThan isIP isInteger isLessThan \
    isLinkLocalUnicast isLoopback isSemver isSorted isURL isUnspecified join labelSelector lastIndexOf lowerAscii major \
    masked max min minor name namespace or orValue path prefixLength reason replace resource semver serviceAccount sign \
    split subresource sub substring sum trim upperAscii url validate value of";

/// Walks an expression over named values.
pub(super) struct Checker<'a> {
    pub(super) names: Vec<(String, Found<'a>)>,
}

impl<'a> Checker<'a> {
    pub(super) fn infer(&mut self, expression: &IdedExpr) -> Result<Found<'a>, String> {
        match &expression.expr {
            Expr::Ident(name) => self.name(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(loops) => self.comprehension(loops),
            Expr::Literal(value) => Ok(literal(value)),
            Expr::List(list) => {
                let mut item: Option<Found<'a>> = None;
                let mut cost = 10;
                for element in &list.elements {
                    let next = self.infer(element)?;
                    cost = next.cost.saturating_add(cost);
                    if item.as_ref().is_some_and(|item| !item.of.meets(&next.of)) {
                        return Err("expected the items of a list to have one type".to_owned());
                    }
                    item = item.or(Some(next));
                }
                let of = item.map_or(Of::Any, |item| item.of);
                Ok(Found::new(Of::List(Box::new(of)), length(list.elements.len()), cost))
            }
            Expr::Map(map) => {
                let mut cost = 30;
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        for part in [&entry.key, &entry.value] {
                            cost = self.infer(part)?.cost.saturating_add(cost);
                        }
                    }
                }
                Ok(Found::new(Of::Map(Box::new(Of::Any)), length(map.entries.len()), cost))
            }
            _ => {
                let mut cost = 1;
                for part in cost::children(expression) {
                    cost = self.infer(part)?.cost.saturating_add(cost);
                }
                Ok(Found::new(Of::Any, 1, cost))
            }
        }
    }

    fn name(&self, name: &str) -> Result<Found<'a>, String> {
        match self.names.iter().rev().find(|(known, _)| known == name) {
            Some((_, found)) => Ok(found.clone()),
            None if NAMES.split(' ').any(|known| known == name) => Ok(Found::new(Of::Scalar("type"), 1, 1)),
            None if name.starts_with(['@', '#']) => Ok(Found::new(Of::Any, 1, 1)),
            None => Err(format!("undeclared reference to '{name}' (in container '')")),
        }
    }

    fn select(&mut self, select: &SelectExpr) -> Result<Found<'a>, String> {
        let operand = self.infer(&select.operand)?;
        let cost = operand.cost.saturating_add(1);
        let mut found = field_of(&operand, &select.field)?;
        found.cost = cost;
        if select.test {
            found = Found::new(BOOL, 1, cost);
        }
        Ok(found)
    }

    fn call(&mut self, call: &CallExpr) -> Result<Found<'a>, String> {
        let mut args = Vec::new();
        for part in call.target.as_deref().into_iter().chain(&call.args) {
            args.push(self.infer(part)?);
        }
        let paid = args.iter().fold(0, |sum: u64, arg| sum.saturating_add(arg.cost));
        let (of, size, own) = result(call.func_name.as_str(), call, Args(&args)).ok_or_else(|| {
            let types: Vec<&str> = args.iter().map(|arg| arg.of.name()).collect();
            format!("found no matching overload for '{}' applied to '({})'", call.func_name, types.join(", "))
        })?;
        Ok(Found::new(of, size, paid.saturating_add(own)))
    }

    fn comprehension(&mut self, loops: &ComprehensionExpr) -> Result<Found<'a>, String> {
        let range = self.infer(&loops.iter_range)?;
        if !range.of.is(&["list", "map"]) {
            return Err(format!(
                "expression of type '{}' cannot be range of a comprehension",
                range.of.name()
            ));
        }
        let start = self.infer(&loops.accu_init)?;
        let before = self.names.len();
        let key = Found::new(if range.of.name() == "map" { TEXT } else { INT }, 1, 1);
        match &loops.iter_var2 {
            Some(second) => {
                self.names.push((loops.iter_var.clone(), key));
                self.names.push((second.clone(), range.element()));
            }
            None => {
                let one = if range.of.name() == "map" { key } else { range.element() };
                self.names.push((loops.iter_var.clone(), one));
            }
        }
        // What a loop collects has the type that its steps have, which may be known after the first only.
        let collected = match &start.of {
            Of::List(_) => Of::Any,
            of => of.clone(),
        };
        self.names.push((loops.accu_var.clone(), Found::new(collected, 1, 1)));
        let condition = self.infer(&loops.loop_cond)?;
        let step = self.infer(&loops.loop_step)?;
        let result = self.infer(&loops.result);
        self.names.truncate(before);
        let result = result?;
        let body = condition.cost.saturating_add(step.cost).saturating_mul(range.size);
        let cost =
            [start.cost, body, result.cost].iter().fold(range.cost, |sum, one| sum.saturating_add(*one));
        let (of, size) = match (&start.of, result.of) {
            (Of::List(_), _) => (Of::List(Box::new(step.of.element())), range.size),
            (_, of) => (of, 1),
        };
        Ok(Found::new(of, size, cost))
    }
}

fn length(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

fn literal(value: &LiteralValue) -> Found<'static> {
    let (name, size) = match value {
        LiteralValue::Boolean(_) => ("bool", 1),
        LiteralValue::Bytes(bytes) => ("bytes", length(bytes.inner().len())),
        LiteralValue::Double(_) => ("double", 1),
        LiteralValue::Int(_) => ("int", 1),
        LiteralValue::Null => ("null", 1),
        LiteralValue::String(text) => ("string", length(text.inner().len())),
        LiteralValue::UInt(_) => ("uint", 1),
    };
    Found::new(Of::Scalar(name), size, 0)
}

/// A step reads so many bytes.
fn read(bytes: u64) -> u64 {
    bytes.div_ceil(10)
}

/// The values that a function is called with.
#[derive(Clone, Copy)]
struct Args<'b, 'a>(&'b [Found<'a>]);

impl<'a> Args<'_, 'a> {
    fn is(self, at: usize, names: &[&str]) -> bool {
        self.0.get(at).is_none_or(|arg| arg.of.is(names))
    }

    fn all(self, names: &[&str]) -> bool {
        self.0.iter().all(|arg| arg.of.is(names))
    }

    fn size(self, at: usize) -> u64 {
        self.0.get(at).map_or(1, |arg| arg.size)
    }

    fn alike(self) -> bool {
        self.0.first().zip(self.0.get(1)).is_none_or(|(left, right)| left.of.meets(&right.of))
    }

    fn texts(self, names: &[&str]) -> bool {
        self.all(names) && self.0.iter().any(|arg| matches!(arg.of.name(), "string" | "bytes"))
    }

    fn of(self) -> Of<'a> {
        self.0.first().map_or(Of::Any, |arg| arg.of.clone())
    }
}

/// Type and size of what a function yields, and its own cost; `None` if it does not take such values.
fn result<'a>(function: &str, call: &CallExpr, args: Args<'_, 'a>) -> Option<(Of<'a>, u64, u64)> {
    if function.starts_with(['_', '@', '-', '!']) {
        operator(function, args)
    } else {
        named(function, call, args)
    }
}

fn operator<'a>(function: &str, args: Args<'_, 'a>) -> Option<(Of<'a>, u64, u64)> {
    Some(match function {
        "_&&_" | "_||_" | "!_" if args.all(&["bool"]) => (BOOL, 1, u64::from(function == "!_")),
        "_?_:_" if args.is(0, &["bool"]) => {
            let (left, right) = (args.0.get(1)?, args.0.get(2)?);
            let of = if left.of.name() == "dyn" { right } else { left };
            left.of.meets(&right.of).then(|| (of.of.clone(), left.size.max(right.size), 0))?
        }
        "_<_" | "_<=_" | "_>_" | "_>=_" => {
            let ordered = ["bool", "string", "bytes", "duration", "timestamp"];
            let fits = args.all(&NUMBERS) || args.all(&ordered) && args.alike();
            let cost = if args.texts(&ordered) { read(args.size(0).min(args.size(1))) } else { 1 };
            fits.then_some((BOOL, 1, cost))?
        }
        "_==_" | "_!=_" if args.alike() => {
            let plain = args.all(&["bool", "int", "uint", "double", "null", "duration", "timestamp", "type"]);
            (BOOL, 1, if plain { 1 } else { read(args.size(0).min(args.size(1))).max(1) })
        }
        "_+_" => {
            let times = ["timestamp", "duration"];
            let fits = args.all(&times)
                || args.alike() && args.all(&["int", "uint", "double", "string", "bytes", "list"]);
            let cost = if args.texts(&["string", "bytes"]) {
                read(args.size(0).saturating_add(args.size(1)))
            } else {
                1
            };
            fits.then(|| (args.of(), args.size(0).saturating_add(args.size(1)), cost))?
        }
        "_-_" if args.all(&["timestamp", "duration"]) || args.alike() && args.all(&NUMBERS) => {
            (args.of(), 1, 1)
        }
        "_*_" | "_/_" if args.alike() && args.all(&NUMBERS) => (args.of(), 1, 1),
        "_%_" if args.alike() && args.all(&["int", "uint"]) => (args.of(), 1, 1),
        "-_" if args.all(&["int", "double"]) => (args.of(), 1, 1),
        "_[_]" => {
            let of = args.0.first()?;
            let fits = match of.of.name() {
                "list" => args.is(1, &["int"]),
                "map" => args.is(1, &["string"]),
                name => name == "dyn",
            };
            let element = of.element();
            // A real server does not know the lengths of the values of a map either.
            fits.then(|| (element.of, if of.of.name() == "map" { 1 } else { element.size }, 1))?
        }
        "@in" if args.is(1, &["list", "map"]) => {
            let element = args.0.get(1)?.of.element();
            let is_map = args.0.get(1)?.of.name() == "map";
            let fits = is_map || args.0.first()?.of.meets(&element);
            fits.then(|| (BOOL, 1, if is_map { 1 } else { args.size(1) }))?
        }
        "@not_strictly_false" => (BOOL, 1, 1),
        "_&&_" | "_||_" | "!_" | "_?_:_" | "_==_" | "_!=_" | "_-_" | "_*_" | "_/_" | "_%_" | "-_" | "@in" => {
            return None;
        }
        _ => (Of::Any, args.size(0), read(args.size(0)).max(1)),
    })
}

fn named<'a>(function: &str, call: &CallExpr, args: Args<'_, 'a>) -> Option<(Of<'a>, u64, u64)> {
    Some(match function {
        "size" if args.0.len() == 1 && args.all(&["string", "bytes", "list", "map"]) => (INT, 1, 1),
        "startsWith" | "endsWith" if args.0.len() == 2 && args.all(&["string"]) => {
            (BOOL, 1, read(args.size(1)))
        }
        "contains" if args.0.len() == 2 && args.all(&["string"]) => {
            (BOOL, 1, read(args.size(0)).saturating_mul(read(args.size(1))).max(1))
        }
        "matches" if args.0.len() == 2 && args.all(&["string"]) => {
            let pattern = call.args.last().map(|arg| &arg.expr);
            if let Some(Expr::Literal(LiteralValue::String(text))) = pattern {
                crate::schema::compile_pattern(text.inner()).ok()?;
            }
            (BOOL, 1, read(args.size(0)).saturating_mul(args.size(1).div_ceil(4)))
        }
        "quantity" | "isQuantity" if args.0.len() == 1 && args.all(&["string"]) => {
            let of = if function == "quantity" { Of::Scalar("quantity") } else { BOOL };
            (of, 1, read(args.size(0)))
        }
        "duration" | "timestamp"
            if args.0.len() == 1 && args.is(0, &["string", "int", "duration", "timestamp"]) =>
        {
            (Of::Scalar(if function == "duration" { "duration" } else { "timestamp" }), 1, 1)
        }
        "int" | "uint" | "double" | "bytes" | "bool" if args.0.len() == 1 => {
            let name =
                ["int", "uint", "double", "bytes", "bool"].into_iter().find(|name| *name == function)?;
            (Of::Scalar(name), args.size(0), 1)
        }
        "string" if args.0.len() == 1 => (TEXT, args.size(0).max(32), read(args.size(0)).max(1)),
        "type" => (Of::Scalar("type"), 1, 1),
        "size" | "startsWith" | "endsWith" | "contains" | "matches" | "quantity" | "isQuantity"
        | "duration" | "timestamp" => return None,
        name if FUNCTIONS.split(' ').any(|known| known == name) => {
            (Of::Any, args.size(0), read(args.size(0)).max(1))
        }
        _ => return None,
    })
}

fn field_of<'a>(operand: &Found<'a>, field: &str) -> Result<Found<'a>, String> {
    let (schema, is_whole) = match &operand.of {
        Of::Any => return Ok(Found::new(Of::Any, 1, 1)),
        Of::Map(value) => return Ok(Found::new((**value).clone(), operand.size, 1)),
        Of::Metadata if matches!(field, "name" | "generateName") => return Ok(Found::new(TEXT, 253, 1)),
        Of::Metadata => return Err(format!("undefined field '{field}'")),
        Of::Node(schema, is_whole) => (*schema, *is_whole),
        other => return Err(format!("type '{}' does not support field selection", other.name())),
    };
    if is_whole && field == "metadata" {
        return Ok(Found::new(Of::Metadata, 1, 1));
    }
    let named = schema.properties.iter().find(|(name, _)| convert::escape(name).as_deref() == Some(field));
    match named.map(|(_, child)| child).or(schema.additional.as_ref()) {
        Some(child) => Ok(Found::of_schema(child, false)),
        None if operand.of.name() == "list" => Err("type 'list' does not support field selection".to_owned()),
        None => Err(format!("undefined field '{field}'")),
    }
}
