//! Words, quotes and variables. Pure.

/// Deepest `${A:-${B:-…}}`.
const DEEPEST: usize = 16;
/// Longest text that variables may become, in bytes: variables can double with each line.
const LONGEST: usize = 1 << 20;

/// The words of a text; quotes and escapes stay in them.
pub(super) fn split(text: &str, escape: char) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote: Option<char> = None;
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        if c.is_whitespace() && quote.is_none() {
            if !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
            continue;
        }
        word.push(c);
        match quote {
            _ if c == escape && quote != Some('\'') => word.extend(characters.next()),
            Some(end) if c == end => quote = None,
            None if c == '\'' || c == '"' => quote = Some(c),
            _ => {}
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// A text with its variables replaced, without quotes and escapes.
///
/// # Errors
/// What is wrong with the quotes or variables, in words.
pub(super) fn expand(
    text: &str,
    escape: char,
    value: &dyn Fn(&str) -> Option<String>,
) -> Result<String, String> {
    Expansion { escape, value }.run(text, 0)
}

struct Expansion<'a> {
    escape: char,
    value: &'a dyn Fn(&str) -> Option<String>,
}

impl Expansion<'_> {
    fn run(&self, text: &str, depth: usize) -> Result<String, String> {
        let mut out = String::new();
        let mut is_quoted = false;
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            rest = rest.get(c.len_utf8()..).unwrap_or_default();
            match c {
                '\'' if !is_quoted => {
                    let (inner, after) =
                        rest.split_once('\'').ok_or_else(|| format!("a quote is not closed in {text:?}"))?;
                    out.push_str(inner);
                    rest = after;
                }
                '"' => is_quoted = !is_quoted,
                '$' => rest = self.variable(rest, &mut out, depth)?,
                c if c == self.escape => rest = self.escaped(rest, is_quoted, &mut out),
                c => out.push(c),
            }
            if out.len() > LONGEST {
                return Err(format!(
                    "a text has more than {LONGEST} bytes after its variables were replaced"
                ));
            }
        }
        if is_quoted { Err(format!("a quote is not closed in {text:?}")) } else { Ok(out) }
    }

    fn escaped<'t>(&self, rest: &'t str, is_quoted: bool, out: &mut String) -> &'t str {
        let Some(next) = rest.chars().next() else {
            out.push(self.escape);
            return rest;
        };
        // Within quotes only these lose their meaning.
        if is_quoted && !matches!(next, '"' | '$') && next != self.escape {
            out.push(self.escape);
        }
        out.push(next);
        rest.get(next.len_utf8()..).unwrap_or_default()
    }

    /// What stands behind `$`; returns what is left.
    fn variable<'t>(&self, rest: &'t str, out: &mut String, depth: usize) -> Result<&'t str, String> {
        let Some(inner) = rest.strip_prefix('{') else {
            let (name, after) = name(rest);
            if name.is_empty() {
                out.push('$');
            } else {
                out.push_str(&(self.value)(name).unwrap_or_default());
            }
            return Ok(after);
        };
        let (name, after) = name(inner);
        let end = closing(after).ok_or_else(|| format!("${{{name} is not closed by }}"))?;
        let (modifier, tail) = after.split_at_checked(end).unwrap_or((after, ""));
        let left = tail.get(1..).unwrap_or_default();
        let value = (self.value)(name);
        let set = value.clone().filter(|value| !value.is_empty());
        let forms: [(&str, bool, Option<String>); 4] = [
            (":-", false, set.clone()),
            (":+", true, set),
            ("-", false, value.clone()),
            ("+", true, value.clone()),
        ];
        if name.is_empty() {
            return Err("${ must be followed by the name of a variable".to_owned());
        }
        if modifier.is_empty() {
            out.push_str(&value.unwrap_or_default());
            return Ok(left);
        }
        let found =
            forms.iter().find_map(|(sign, other, value)| Some((modifier.strip_prefix(sign)?, *other, value)));
        let Some((word, is_alternative, value)) = found else {
            return Err(format!(
                "${{{name}{modifier}}} is none of ${{{name}}}, ${{{name}:-WORD}} and ${{{name}:+WORD}}"
            ));
        };
        if value.is_some() == is_alternative {
            if depth >= DEEPEST {
                return Err(format!("variables are nested more than {DEEPEST} deep"));
            }
            out.push_str(&self.run(word, depth + 1)?);
        } else if let (Some(value), false) = (value, is_alternative) {
            out.push_str(value);
        }
        Ok(left)
    }
}

/// The name at the beginning, and the rest.
fn name(text: &str) -> (&str, &str) {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let end = text.find(|c: char| !is_part(c)).unwrap_or(text.len());
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return ("", text);
    }
    text.split_at_checked(end).unwrap_or((text, ""))
}

/// Where the brace is that closes, with braces between that open and close.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => return Some(at),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}
