//! Colours and signs, with or without colour and with or without Unicode.

use ratatui::style::{Color, Modifier, Style};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Theme {
    pub(crate) color: bool,
    /// Whether the terminal shows characters beyond ASCII.
    pub(crate) unicode: bool,
}

impl Theme {
    fn painted(self, color: Color) -> Style {
        if self.color { Style::new().fg(color) } else { Style::new() }
    }

    pub(super) const fn plain(self) -> Style {
        Style::new()
    }

    pub(super) const fn bar(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(super) fn heading(self) -> Style {
        self.painted(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    pub(super) const fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// What is of less importance.
    pub(super) const fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub(super) fn used(self) -> Style {
        self.painted(Color::Green)
    }

    pub(super) fn permitted(self) -> Style {
        self.painted(Color::Blue)
    }

    /// What a person should look at.
    pub(super) fn warning(self) -> Style {
        self.painted(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    pub(super) fn bad(self) -> Style {
        self.painted(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// Style of a share in use: none, warning from 80 %, bad from 95 %.
    pub(super) fn share(self, share: Option<f64>) -> Style {
        match share {
            Some(share) if share >= 0.95 => self.bad(),
            Some(share) if share >= 0.8 => self.warning(),
            _ => self.plain(),
        }
    }

    fn sign(self, unicode: char, ascii: char) -> char {
        if self.unicode { unicode } else { ascii }
    }

    pub(super) fn full(self) -> char {
        self.sign('█', '#')
    }

    /// Part of a bar that is permitted and not in use.
    pub(super) fn half(self) -> char {
        self.sign('▒', '=')
    }

    /// Part of a bar that is free.
    pub(super) fn free(self) -> char {
        self.sign('·', '.')
    }

    pub(super) fn mark(self) -> char {
        self.sign('│', '|')
    }

    pub(super) fn arrow(self) -> &'static str {
        if self.unicode { "→" } else { "->" }
    }

    /// Height of a value in a line of values, 0 to 1.
    pub(super) fn spark(self, share: f32) -> char {
        const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        const ASCII: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];
        let levels = if self.unicode { BLOCKS } else { ASCII };
        let index = super::canvas::cells(f64::from(share), 7);
        levels.get(index).copied().unwrap_or(' ')
    }
}
