//! Drawing in place on a terminal: what is there is overwritten, never cleared first, so that nothing flickers. Pure.

use crate::render::Shown;

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
    pub(super) fn draw(&mut self, text: &Shown, size: (usize, usize)) -> Shown {
        let (columns, rows) = size;
        // The line end after the last line needs a row too.
        let room = rows.saturating_sub(1).max(1);
        let all: Vec<Shown> = text.lines().map(|line| line.cut(columns)).collect();
        let mut lines = all.clone();
        if all.len() > room {
            let shown = room.saturating_sub(1);
            lines.truncate(shown);
            lines.push(Shown::line(&format!("({} more)", all.len() - shown)).cut(columns));
        }
        if lines.is_empty() {
            lines.push(Shown::default());
        }
        let mut drawing = match self.drawn {
            0 => Shown::control(HIDE),
            // What was drawn may be wrapped otherwise now.
            _ if self.size != size => Shown::control("\u{1b}[H\u{1b}[2J"),
            drawn => Shown::up(drawn),
        };
        (self.drawn, self.size) = (lines.len(), size);
        drawing.push(&Shown::join(&lines, &Shown::control("\u{1b}[K\n")));
        drawing.push(&Shown::control("\u{1b}[K\u{1b}[J"));
        drawing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(screen: &mut Screen, text: &str, size: (usize, usize)) -> String {
        screen.draw(&Shown::text(text), size).as_str().to_owned()
    }

    #[test]
    fn the_second_drawing_overwrites_the_first() {
        let mut screen = Screen::default();
        assert_eq!(draw(&mut screen, "a\nb", (80, 24)), "\u{1b}[?25la\u{1b}[K\nb\u{1b}[K\u{1b}[J");
        assert_eq!(draw(&mut screen, "c", (80, 24)), "\u{1b}[2A\rc\u{1b}[K\u{1b}[J");
        assert_eq!(draw(&mut screen, "d", (80, 24)), "\u{1b}[1A\rd\u{1b}[K\u{1b}[J");
        assert!(draw(&mut screen, "d", (40, 24)).starts_with("\u{1b}[H\u{1b}[2J"), "another size");
    }

    #[test]
    fn nothing_wraps_or_scrolls() {
        let mut screen = Screen::default();
        let text: Vec<String> = (0..100).map(|n| format!("row {n} {}", "x".repeat(200))).collect();
        let drawn = draw(&mut screen, &text.join("\n"), (20, 10));
        let lines: Vec<&str> = drawn.lines().collect();
        assert_eq!(lines.len(), 9);
        assert!(lines[8].starts_with("(92 more)"), "{drawn:?}");
        assert!(lines[1].starts_with("row 1 ") && lines[1].len() == 20 + "\u{1b}[K".len());
        for size in [(0, 0), (1, 1), (1, 2)] {
            assert!(draw(&mut Screen::default(), "abc\ndef", size).lines().count() <= 1);
        }
    }
}
