//! The terminal: full screen, without line editing, and as it was before when dropped, on a panic, too.

use std::io::{BufWriter, Stdout, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::Terminal as Screen;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::style::force_color_output;
use ratatui::crossterm::{cursor, execute, terminal};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::error::{Code, Error, Result, reason};
use crate::live::Ui;
use crate::live::keys::Press;
use crate::live::model::Fleet;
use crate::live::view::{self, Theme};
use crate::render::full_screen;

/// Whether a thread of this process has panicked: the terminal is as before then, and nothing more is drawn.
static PANICKED: AtomicBool = AtomicBool::new(false);

/// What the person did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pressed {
    Key(Press),
    Resized,
}

/// The full screen, until dropped.
pub(super) struct Terminal {
    screen: Screen<CrosstermBackend<BufWriter<Stdout>>>,
}

fn failed(error: &std::io::Error) -> Error {
    Error::new(Code::Failed, "cannot use the terminal")
        .cause(reason(error))
        .hint("print tables instead: neonctl top vms")
}

impl Terminal {
    /// Takes the whole screen; returns the keys that are pressed.
    pub(super) fn open(color: bool) -> Result<(Self, Receiver<Pressed>)> {
        force_color_output(color);
        restore_on_panic();
        terminal::enable_raw_mode().map_err(|error| failed(&error))?;
        let opened = execute!(full_screen(), terminal::EnterAlternateScreen, cursor::Hide);
        // From here on it is restored when dropped.
        let screen = opened.and_then(|()| Screen::new(CrosstermBackend::new(full_screen())));
        let screen = screen.map_err(|error| {
            restore();
            failed(&error)
        })?;
        Ok((Self { screen }, keys()))
    }

    /// Writes the cells that differ from those of the last frame.
    pub(super) fn draw(&mut self, fleet: &Fleet, ui: &mut Ui, theme: Theme) -> Result<()> {
        if PANICKED.load(Ordering::SeqCst) {
            return Err(Error::new(Code::Failed, "an internal error ended the view")
                .hint("print tables instead: neonctl top vms"));
        }
        let drawn = self.screen.draw(|frame| view::draw(frame.buffer_mut(), fleet, ui, theme));
        drawn.map(drop).map_err(|error| failed(&error))
    }

    /// Makes the next frame a whole one.
    pub(super) fn clear(&mut self) -> Result<()> {
        self.screen.clear().map_err(|error| failed(&error))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if !PANICKED.load(Ordering::SeqCst) {
            restore();
        }
    }
}

/// The terminal as it was before. Errors are ignored: there is nothing else to be done.
fn restore() {
    let mut out = full_screen();
    let _ = execute!(out, terminal::LeaveAlternateScreen, cursor::Show);
    let _ = out.flush();
    let _ = terminal::disable_raw_mode();
}

/// A panic's message is printed on the screen of before.
fn restore_on_panic() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !PANICKED.swap(true, Ordering::SeqCst) {
            restore();
        }
        before(info);
    }));
}

/// Keys, from a thread that waits for them and ends with the process.
fn keys() -> Receiver<Pressed> {
    let (sender, receiver) = channel(64);
    std::thread::spawn(move || read(&sender));
    receiver
}

fn read(sender: &Sender<Pressed>) {
    while let Ok(event) = event::read() {
        let pressed = match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => press(key).map(Pressed::Key),
            Event::Resize(..) => Some(Pressed::Resized),
            _ => None,
        };
        if pressed.is_some_and(|pressed| sender.blocking_send(pressed).is_err()) {
            return;
        }
    }
}

/// A key as the view takes it; none if it has no meaning.
fn press(key: KeyEvent) -> Option<Press> {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char('c') if control => Press::Interrupt,
        KeyCode::Char('l') if control => Press::Char('\u{c}'),
        KeyCode::Char(_) if control => return None,
        KeyCode::Char(character) => Press::Char(character),
        KeyCode::Enter => Press::Enter,
        KeyCode::Esc => Press::Escape,
        KeyCode::Backspace => Press::Backspace,
        KeyCode::Up => Press::Line(false),
        KeyCode::Down => Press::Line(true),
        KeyCode::PageUp => Press::Page(false),
        KeyCode::PageDown => Press::Page(true),
        KeyCode::Home => Press::End(false),
        KeyCode::End => Press::End(true),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_keys_are_no_letters() {
        let key = |code, modifiers| press(KeyEvent::new(code, modifiers));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Press::Interrupt));
        assert_eq!(key(KeyCode::Char('q'), KeyModifiers::CONTROL), None);
        assert_eq!(key(KeyCode::Char('q'), KeyModifiers::NONE), Some(Press::Char('q')));
        assert_eq!(key(KeyCode::F(1), KeyModifiers::NONE), None);
    }
}
