//! Drawing in place on a terminal: what is there is overwritten, never cleared first, so that nothing flickers. Pure.

/// Hides the cursor.
const HIDE: &str = "\u{1b}[?25l";
/// Shows it again, without the `^C` that the terminal wrote; one line up, because a line end follows.
pub(super) const RESTORE: &str = "\r\u{1b}[K\u{1b}[A\u{1b}[?25h";

/// What is on the screen.
#[derive(Debug, Default)]
pub(super) struct Screen {
    /// Lines above the cursor that are ours.
    drawn: usize,
    /// Columns and rows at that time.
    size: (usize, usize),
}

impl Screen {
    /// Whether there is anything to leave behind.
    pub(super) fn is_drawn(&self) -> bool {
        self.drawn > 0
    }

    /// What to write, before a line end, so that the screen shows the text; `size` is in columns and rows.
    pub(super) fn draw(&mut self, text: &str, size: (usize, usize)) -> String {
        let (columns, rows) = size;
        // The line end after the last line needs a row too.
        let room = rows.saturating_sub(1).max(1);
        let all: Vec<&str> = text.lines().collect();
        let mut lines: Vec<String> = if all.len() <= room {
            all.iter().map(|line| cut(line, columns)).collect()
        } else {
            let shown = room.saturating_sub(1);
            let mut lines: Vec<String> = all.iter().take(shown).map(|line| cut(line, columns)).collect();
            lines.push(cut(&format!("({} more)", all.len() - shown), columns));
            lines
        };
        if lines.is_empty() {
            lines.push(String::new());
        }
        let start = match self.drawn {
            0 => HIDE.to_owned(),
            // What was drawn may be wrapped otherwise now.
            _ if self.size != size => "\u{1b}[H\u{1b}[2J".to_owned(),
            drawn => format!("\u{1b}[{drawn}A\r"),
        };
        (self.drawn, self.size) = (lines.len(), size);
        format!("{start}{}\u{1b}[K\u{1b}[J", lines.join("\u{1b}[K\n"))
    }
}

/// At most so many characters; sequences for colours do not count, and stay.
fn cut(line: &str, columns: usize) -> String {
    let mut shown = 0;
    let mut sequence = false;
    let mut out = String::with_capacity(line.len());
    for character in line.chars() {
        if character == '\u{1b}' {
            sequence = true;
        } else if sequence {
            sequence = !character.is_ascii_alphabetic();
        } else if character.is_control() {
            continue;
        } else {
            shown += 1;
            if shown > columns {
                continue;
            }
        }
        out.push(character);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_drawing_overwrites_the_first() {
        let mut screen = Screen::default();
        assert_eq!(screen.draw("a\nb", (80, 24)), "\u{1b}[?25la\u{1b}[K\nb\u{1b}[K\u{1b}[J");
        assert_eq!(screen.draw("c", (80, 24)), "\u{1b}[2A\rc\u{1b}[K\u{1b}[J");
        assert_eq!(screen.draw("d", (80, 24)), "\u{1b}[1A\rd\u{1b}[K\u{1b}[J");
        assert!(screen.draw("d", (40, 24)).starts_with("\u{1b}[H\u{1b}[2J"), "another size");
    }

    #[test]
    fn nothing_wraps_or_scrolls() {
        let mut screen = Screen::default();
        let text: Vec<String> = (0..100).map(|n| format!("row {n} {}", "x".repeat(200))).collect();
        let drawn = screen.draw(&text.join("\n"), (20, 10));
        let lines: Vec<&str> = drawn.lines().collect();
        assert_eq!(lines.len(), 9);
        assert!(lines[8].starts_with("(92 more)"), "{drawn:?}");
        assert!(lines[1].starts_with("row 1 ") && lines[1].len() == 20 + "\u{1b}[K".len());
        for size in [(0, 0), (1, 1), (1, 2)] {
            assert!(Screen::default().draw("abc\ndef", size).lines().count() <= 1);
        }
    }

    #[test]
    fn colours_do_not_count() {
        assert_eq!(cut("\u{1b}[32mrunning\u{1b}[0m x", 7), "\u{1b}[32mrunning\u{1b}[0m");
        assert_eq!(cut("a\tb\u{7}c", 9), "abc");
    }
}
