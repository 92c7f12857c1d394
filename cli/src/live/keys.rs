//! Keys: each changes what is shown, and nothing else.

use super::model::Fleet;
use super::{Page, Ui};

/// Longest filter, in characters.
const LONGEST: usize = 60;
const PAGE: isize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Press {
    Char(char),
    Enter,
    Escape,
    Backspace,
    Line(bool),
    Page(bool),
    /// To the first or the last line.
    End(bool),
    Interrupt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Continue,
    Quit,
}

pub(crate) fn press(ui: &mut Ui, fleet: &Fleet, key: Press) -> Next {
    if key == Press::Interrupt {
        return Next::Quit;
    }
    if ui.editing {
        edit(ui, key);
        return Next::Continue;
    }
    match (&ui.page, key) {
        (Page::Overview, Press::Char('q')) => return Next::Quit,
        (Page::Overview, Press::Escape) => ui.filter.clear(),
        (_, Press::Char('q') | Press::Escape) => open(ui, Page::Overview),
        (Page::Help, Press::Char('?')) | (Page::Stream, Press::Char('d')) => open(ui, Page::Overview),
        (_, Press::Char('?')) => open(ui, Page::Help),
        (_, Press::Char('d')) => open(ui, Page::Stream),
        (Page::Overview, Press::Enter) => enter(ui, fleet),
        (Page::Vm(_), Press::Enter) => open(ui, Page::Overview),
        (Page::Overview, Press::Char('s')) => (ui.sort, ui.reversed) = (ui.sort.next(), false),
        (Page::Overview, Press::Char('r')) => ui.reversed = !ui.reversed,
        (Page::Overview, Press::Char('/')) => ui.editing = true,
        _ => travel(ui, fleet, key),
    }
    Next::Continue
}

fn open(ui: &mut Ui, page: Page) {
    (ui.page, ui.scroll) = (page, 0);
}

fn edit(ui: &mut Ui, key: Press) {
    match key {
        Press::Enter => ui.editing = false,
        Press::Escape => {
            ui.filter.clear();
            ui.editing = false;
        }
        Press::Backspace => drop(ui.filter.pop()),
        Press::Char(c) if ui.filter.chars().count() < LONGEST && !c.is_control() => ui.filter.push(c),
        _ => {}
    }
}

fn enter(ui: &mut Ui, fleet: &Fleet) {
    let rows = ui.rows(fleet);
    let key = rows.get(ui.position(&rows)).map(|(key, _)| (*key).clone());
    if let Some(key) = key {
        ui.selected = Some(key.clone());
        open(ui, Page::Vm(key));
    }
}

fn travel(ui: &mut Ui, fleet: &Fleet, key: Press) {
    let by = |down: bool, lines: isize| if down { lines } else { -lines };
    let step = match key {
        Press::Line(down) => by(down, 1),
        Press::Char('j') => 1,
        Press::Char('k') => -1,
        Press::Page(down) => by(down, PAGE),
        Press::End(down) => by(down, isize::MAX),
        _ => return,
    };
    if ui.page != Page::Overview {
        // The end of the text is known where it is drawn.
        ui.scroll = ui.scroll.saturating_add_signed(step).min(10_000);
        return;
    }
    let rows = ui.rows(fleet);
    let to = ui.position(&rows).saturating_add_signed(step).min(rows.len().saturating_sub(1));
    let key = rows.get(to).map(|(key, _)| (*key).clone());
    ui.selected = key;
}
