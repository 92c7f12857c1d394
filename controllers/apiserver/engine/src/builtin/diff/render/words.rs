//! Texts: in quotes, and long ones in pieces.

use super::super::layout::{Count, Record, Sign, Text, leave_out};
use crate::schema::go;

/// Bytes of a piece.
const PIECE: usize = 64;
/// Shortest text that is shown in pieces.
const LONG: usize = 32;

/// In the quotes that take fewer escapes.
pub(super) fn quoted(text: &str) -> String {
    let quoted = go::quoted(text);
    let raw = |c: char| c == '\t' || !(c == '`' || c.is_control());
    if quoted.len() == text.len() + 2 || !text.chars().all(raw) { quoted } else { format!("`{text}`") }
}

/// The beginning of a text, of at most so many bytes, and the rest.
pub(super) fn cut(text: &str, most: usize) -> (&str, &str) {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.split_at_checked(end).unwrap_or((text, ""))
}

/// Two long texts as pieces, with what they have in common at their ends once.
pub(super) fn split(old: &str, new: &str) -> Option<Text> {
    if old.len() < LONG || new.len() < LONG {
        return None;
    }
    let start: usize = common(old.chars(), new.chars());
    let (head, old, new) = (old.get(..start)?, old.get(start..)?, new.get(start..)?);
    let end = common(old.chars().rev(), new.chars().rev());
    let (old, tail) = old.split_at_checked(old.len() - end)?;
    let new = new.get(..new.len() - end)?;
    let mut list = Vec::new();
    equal(head, false, &mut list);
    pieces(old, Sign::Removed, &mut list);
    pieces(new, Sign::Inserted, &mut list);
    equal(tail, true, &mut list);
    Some(Text::wrapped("strings.Join({", Text::List(list), "}, \"\")"))
}

/// Bytes of the characters that are the same.
fn common(one: impl Iterator<Item = char>, other: impl Iterator<Item = char>) -> usize {
    one.zip(other).take_while(|(one, other)| one == other).map(|(one, _)| one.len_utf8()).sum()
}

/// What is equal at one end: the part beside the change, and the number of other bytes.
fn equal(text: &str, behind: bool, list: &mut Vec<Record>) {
    let near = 2 * PIECE;
    if text.len() <= near + PIECE {
        return pieces(text, Sign::None, list);
    }
    let hidden = Count { name: "byte", same: text.len() - near, ..Count::default() };
    if behind {
        pieces(cut(text, near).0, Sign::None, list);
        leave_out(list, Some(hidden));
    } else {
        leave_out(list, Some(hidden));
        pieces(cut(text, text.len() - near).1, Sign::None, list);
    }
}

fn pieces(mut text: &str, sign: Sign, list: &mut Vec<Record>) {
    while !text.is_empty() {
        let (piece, rest) = cut(text, PIECE);
        list.push(Record::new(sign, String::new(), Text::Line(quoted(piece))));
        text = rest;
    }
}
