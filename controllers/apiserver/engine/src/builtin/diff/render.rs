//! From matched values to text: what of them is shown, and how much of it.

use super::layout::{Count, Record, Sign, Text, leave_out};
use super::tree::{Below, Node};
use crate::builtin::internal::{self, Held};

mod quantity;
mod words;

/// Unchanged records that are shown beside a changed one.
const CONTEXT: usize = 2;
/// How often values are shown in more detail, if they differ and look the same.
const MORE: u32 = 6;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Both,
    Same,
    Old,
    New,
}

/// When the type stands before a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Typed {
    Always,
    Never,
    /// Before structures, lists and maps that changed.
    Composite,
}

#[derive(Clone, Copy)]
struct Style {
    mode: Mode,
    typed: Typed,
    /// How much is shown.
    level: u32,
}

type Named<'a> = (String, Node<'a>);

/// The text of two values that differ.
pub(super) fn whole(node: &Node<'_>) -> Text {
    let style = Style { mode: Mode::Both, typed: Typed::Always, level: 0 };
    style.node(node).unwrap_or_else(Text::dots)
}

impl Style {
    fn power(self) -> usize {
        1 << self.level.min(16)
    }

    /// Items of a value of which no more are shown.
    fn most_items(self) -> usize {
        (self.power() >> 1) << 2
    }

    fn deeper(self, typed: Typed) -> Self {
        Self { typed, level: self.level.saturating_sub(1), ..self }
    }

    /// Two values; nothing if the one to be shown is missing.
    fn node(mut self, node: &Node<'_>) -> Option<Text> {
        self.level = if self.mode == Mode::Same { 1 } else { self.level.max(3) };
        if let Some(split) = self.split(node) {
            return Some(split);
        }
        match &node.below {
            Below::Inner(inner) => Some(Text::wrapped("&", self.node(inner)?, "")),
            Below::Records(records) if node.depth > 0 => {
                let (value, name) = match node.old.or(node.new)? {
                    Held::Struct(name, _) => ("field", internal::full_name(name)),
                    Held::List(name, _) => ("element", name.clone()),
                    Held::Map(name, ..) => ("entry", (*name).to_owned()),
                    _ => return None,
                };
                let printed = matches!(node.old, Some(Held::Map(_, _, true)));
                Some(self.named(&name, self.records(records, value, printed)))
            }
            _ => self.leaf(node),
        }
    }

    fn leaf(self, node: &Node<'_>) -> Option<Text> {
        match self.mode {
            Mode::Old => node.old.map(|value| self.value(value)),
            Mode::New => node.new.map(|value| self.value(value)),
            Mode::Both | Mode::Same => node.new.or(node.old).map(|value| self.value(value)),
        }
    }

    /// Two texts that differ and are long, in pieces.
    fn split(self, node: &Node<'_>) -> Option<Text> {
        match (self.mode, node.old, node.new) {
            (Mode::Both, Some(Held::Text(old)), Some(Held::Text(new))) if old != new => {
                words::split(old, new)
            }
            _ => None,
        }
    }

    /// A value behind its type.
    fn named(self, name: &str, value: Text) -> Text {
        match self.typed {
            Typed::Never => value,
            Typed::Composite if self.mode == Mode::Same => value,
            _ => Text::wrapped(name, value, ""),
        }
    }

    fn records(self, records: &[Named<'_>], name: &'static str, printed: bool) -> Text {
        let most = if self.mode == Mode::Same { self.most_items() } else { self.power() << 1 };
        let style = self.deeper(if name == "field" { Typed::Composite } else { Typed::Never });
        let key = |own: &str| match name {
            "field" => own.to_owned(),
            "entry" if printed => format!("s{}", words::quoted(own)),
            "entry" => words::quoted(own),
            _ => String::new(),
        };
        let list = if self.mode == Mode::Both {
            style.changes(records, name, most, &key)
        } else {
            style.side(records, name, most, &key)
        };
        Text::wrapped("{", Text::List(list), "}")
    }

    /// The records of one side, without zeros of a structure.
    fn side(
        self,
        records: &[Named<'_>],
        name: &str,
        most: usize,
        key: &dyn Fn(&str) -> String,
    ) -> Vec<Record> {
        let mut list = Vec::new();
        for (own, node) in records {
            if list.len() == most {
                leave_out(&mut list, None);
                break;
            }
            let shown = if self.mode == Mode::New { node.new } else { node.old };
            if name == "field" && shown.is_some_and(Held::is_zero) {
                continue;
            }
            list.extend(self.node(node).map(|value| Record::new(Sign::None, key(own), value)));
        }
        list
    }

    /// The records of both sides: what changed, and what stands beside it.
    fn changes(
        self,
        records: &[Named<'_>],
        name: &'static str,
        most: usize,
        key: &dyn Fn(&str) -> String,
    ) -> Vec<Record> {
        let groups = groups(records, name);
        let (mut list, mut shown, mut rest) = (Vec::new(), 0, records);
        let mut left = Count { name, ..Count::default() };
        for (at, group) in groups.iter().enumerate() {
            let (own, later) = rest.split_at((group.same + group.different()).min(rest.len()));
            rest = later;
            if shown >= most {
                left.add(group);
            } else if group.different() == 0 {
                self.unchanged(own, (at > 0, at + 1 < groups.len()), name, key, &mut list);
            } else {
                for (own, node) in own {
                    self.changed(node, &key(own), &mut list);
                }
                shown += own.len();
            }
        }
        if !left.is_zero() {
            leave_out(&mut list, Some(left));
        }
        list
    }

    /// A run of equal records, the inner ones of which are left out; whether changed ones stand before and behind it.
    fn unchanged(
        self,
        run: &[Named<'_>],
        beside: (bool, bool),
        name: &'static str,
        key: &dyn Fn(&str) -> String,
        list: &mut Vec<Record>,
    ) {
        let style = Self { mode: Mode::Same, ..self };
        let first = if beside.0 { CONTEXT.min(run.len()) } else { 0 };
        let mut last = if beside.1 { CONTEXT.min(run.len() - first) } else { 0 };
        if run.len() - first - last == 1 {
            last += 1;
        }
        let show = |list: &mut Vec<Record>, (own, node): &Named<'_>| {
            list.extend(style.node(node).map(|value| Record::new(Sign::None, key(own), value)));
        };
        let hidden = run.len() - first - last;
        run.iter().take(first).for_each(|record| show(list, record));
        if hidden > 0 {
            leave_out(list, Some(Count { name, same: hidden, ..Count::default() }));
        }
        run.iter().skip(first + hidden).for_each(|record| show(list, record));
    }

    /// A record that changed: in two lines, or in parts.
    fn changed(self, node: &Node<'_>, key: &str, list: &mut Vec<Record>) {
        let level = self.level.max(3);
        if let Some(split) = (Self { level, ..self }).split(node) {
            list.push(Record::new(Sign::None, key.to_owned(), split));
            return;
        }
        if !node.is_chain() {
            list.extend(self.node(node).map(|value| Record::new(Sign::None, key.to_owned(), value)));
            return;
        }
        let side = |mode: Mode, more: u32| Self { mode, level: self.level + 2 * more, ..self }.node(node);
        let (mut old, mut new) = (side(Mode::Old, 0), side(Mode::New, 0));
        for more in 1..=MORE {
            if old.is_some() && old == new {
                (old, new) = (side(Mode::Old, more), side(Mode::New, more));
            }
        }
        list.extend(old.map(|value| Record::new(Sign::Removed, key.to_owned(), value)));
        list.extend(new.map(|value| Record::new(Sign::Inserted, key.to_owned(), value)));
    }

    /// One value.
    fn value(self, value: &Held) -> Text {
        match value {
            Held::Nil => Text::line("nil"),
            Held::Text(text) => Text::Line(self.text("", text)),
            Held::Printed(text) => Text::Line(self.text("s", text)),
            Held::Flag(flag) => Text::line(flag.to_string()),
            Held::Number(number) => Text::line(number.to_string()),
            Held::Quantity(text) => self.structure("resource.Quantity", &quantity::fields(text)),
            Held::Pointer(value) => Text::wrapped("&", self.value(value), ""),
            Held::Struct(name, fields) => self.structure(name, fields),
            Held::List(name, items) => {
                let style = self.deeper(Typed::Never);
                let items = items.iter().map(|item| (String::new(), style.value(item)));
                self.composite(name, items)
            }
            Held::Map(name, entries, printed) => {
                let style = self.deeper(Typed::Never);
                let mark = if *printed { "s" } else { "" };
                let entries = entries
                    .iter()
                    .map(|(key, value)| (format!("{mark}{}", words::quoted(key)), style.value(value)));
                self.composite(name, entries)
            }
        }
    }

    fn structure(self, name: &str, fields: &[(&'static str, Held)]) -> Text {
        let style = self.deeper(Typed::Composite);
        let fields = fields.iter().filter(|(_, value)| !value.is_zero());
        let fields = fields.map(|(name, value)| ((*name).to_owned(), style.value(value)));
        self.composite(&internal::full_name(name), fields)
    }

    fn composite(self, name: &str, parts: impl Iterator<Item = (String, Text)>) -> Text {
        let mut list = Vec::new();
        for (key, value) in parts {
            if list.len() == self.most_items() {
                leave_out(&mut list, None);
                break;
            }
            list.push(Record::new(Sign::None, key, value));
        }
        self.named(name, Text::wrapped("{", Text::List(list), "}"))
    }

    fn text(self, mark: &str, text: &str) -> String {
        let most = self.power() << 5;
        if text.len() > most + 3 {
            return format!("{mark}{}...", words::quoted(words::cut(text, most).0));
        }
        format!("{mark}{}", words::quoted(text))
    }
}

/// Runs of records that are equal, and of those that are not.
fn groups(records: &[Named<'_>], name: &'static str) -> Vec<Count> {
    let mut groups: Vec<Count> = Vec::new();
    for (_, node) in records {
        let equal = node.different == 0;
        if groups.last().is_none_or(|last| (last.different() == 0) != equal) {
            groups.push(Count { name, ..Count::default() });
        }
        let Some(group) = groups.last_mut() else { continue };
        match (equal, node.old, node.new) {
            (true, ..) => group.same += 1,
            (_, _, None) => group.removed += 1,
            (_, None, _) => group.inserted += 1,
            _ => group.modified += 1,
        }
    }
    groups
}
