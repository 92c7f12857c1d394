//! Draws the fleet into a buffer of cells. Pure: the same fleet, state and theme give the same cells.
//!
//! Every sign has a meaning without its colour; colours repeat it. Nothing that steers a terminal reaches a cell.

mod canvas;
mod detail;
mod help;
mod moves;
mod nodes;
mod stream;
mod theme;
mod vms;

pub(crate) use detail::facts;
pub(crate) use theme::Theme;

use ratatui::buffer::Buffer;
#[cfg(test)]
use ratatui::layout::Rect;

use super::input::Millis;
use super::model::Fleet;
use super::{Page, Ui};
use canvas::Canvas;

/// Least columns and rows in which something can be shown.
const LEAST: (u16, u16) = (40, 10);

/// Draws everything; the scroll position is limited to the text that there is.
pub(crate) fn draw(buffer: &mut Buffer, fleet: &Fleet, ui: &mut Ui, theme: Theme) {
    let area = buffer.area;
    let mut canvas = Canvas::new(buffer, area);
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let (columns, rows) = LEAST;
        canvas.text(0, 0, &format!("enlarge to {columns}x{rows}"), theme.plain());
        return;
    }
    canvas.row(0, theme.bar());
    title(&mut canvas, fleet, theme);
    let trouble = trouble_line(fleet);
    let lines = area.height - 2 - u16::from(trouble.is_some());
    match ui.page.clone() {
        Page::Overview => overview(&mut canvas.rows(1, lines), fleet, ui, theme),
        Page::Vm(key) => {
            let text = detail::lines(fleet, &key, usize::from(area.width), theme);
            canvas::show(&mut canvas.rows(1, lines), &text, &mut ui.scroll);
        }
        Page::Stream => {
            let text = stream::page(fleet, usize::from(area.width), theme);
            canvas::show(&mut canvas.rows(1, lines), &text, &mut ui.scroll);
        }
        Page::Help => {
            let text = help::lines(fleet, usize::from(area.width), theme);
            canvas::show(&mut canvas.rows(1, lines), &text, &mut ui.scroll);
        }
    }
    if let Some(trouble) = trouble {
        canvas.text(1, area.height - 2, &trouble, theme.warning());
    }
    canvas.row(area.height - 1, theme.bar());
    canvas.text(1, area.height - 1, &footer(ui), theme.bar());
}

fn title(canvas: &mut Canvas<'_>, fleet: &Fleet, theme: Theme) {
    let counted = |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
    let place = match &fleet.namespace {
        Some(namespace) => format!("namespace {namespace}"),
        None => "all namespaces".to_owned(),
    };
    let active = fleet.moves.values().filter(|facts| facts.ended.is_none()).count();
    let parts = [
        fleet.cluster.clone(),
        place,
        counted(fleet.nodes.len(), "node"),
        counted(fleet.vms.len(), "VM"),
        counted(active, "migration"),
    ];
    canvas.text(1, 0, &parts.join("  "), theme.bar());
    let time = format!(" {} UTC ", clock(fleet.now));
    canvas.right(0, &time, theme.bar());
}

/// What cannot be read, in one line.
fn trouble_line(fleet: &Fleet) -> Option<String> {
    let (origin, text) = fleet.troubles.first_key_value()?;
    let more = match fleet.troubles.len() - 1 {
        0 => String::new(),
        more => format!(" ({more} more: press ?)"),
    };
    Some(format!("! {} unknown{more}: {text}", origin.what()))
}

fn footer(ui: &Ui) -> String {
    if ui.editing {
        return format!("filter: {}_   Enter keep  Esc clear", ui.filter);
    }
    match ui.page {
        Page::Overview => {
            let reversed = if ui.reversed { ", reversed" } else { "" };
            let filter =
                if ui.filter.is_empty() { String::new() } else { format!("  filter: {:?}", ui.filter) };
            let sort = ui.sort.word();
            format!(
                "Enter why  s sort: {sort}{reversed}  r reverse  / filter  d events  ? help  q quit{filter}"
            )
        }
        Page::Vm(_) | Page::Stream | Page::Help => "Up/Down scroll  Esc back  ? help  Ctrl-C quit".to_owned(),
    }
}

struct Plan {
    nodes: u16,
    vms: u16,
    moves: u16,
    stream: u16,
}

/// Each part has a heading. VMs get what others leave, and what they do not need is for the stream.
fn plan(height: u16, nodes: usize, vms: usize, moves: usize) -> Plan {
    let rows = |count: usize, most: u16| u16::try_from(count).unwrap_or(u16::MAX).clamp(1, most.max(1)) + 1;
    let nodes = rows(nodes, (height / 4).max(2));
    let moves = if moves == 0 { 0 } else { rows(moves, height / 7) };
    let stream = (height / 5).max(2) + 1;
    let most = height.saturating_sub(nodes + moves + stream).max(2);
    let vms = rows(vms.max(5), most.saturating_sub(1)).min(most);
    Plan { nodes, vms, moves, stream: height.saturating_sub(nodes + moves + vms) }
}

fn overview(canvas: &mut Canvas<'_>, fleet: &Fleet, ui: &Ui, theme: Theme) {
    let plan = plan(canvas.height(), fleet.nodes.len(), fleet.vms.len(), fleet.shown_moves().len());
    nodes::draw(&mut canvas.rows(0, plan.nodes), fleet, theme);
    vms::draw(&mut canvas.rows(plan.nodes, plan.vms), fleet, ui, theme);
    moves::draw(&mut canvas.rows(plan.nodes + plan.vms, plan.moves), fleet, theme);
    stream::draw(&mut canvas.rows(plan.nodes + plan.vms + plan.moves, plan.stream), fleet, theme);
}

fn clock(at: Millis) -> String {
    let seconds = at.div_euclid(1000).rem_euclid(86_400);
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
pub(crate) fn area(columns: u16, rows: u16) -> Rect {
    Rect::new(0, 0, columns, rows)
}
