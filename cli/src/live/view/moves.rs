//! Migrations: a row each, with a bar of their progress.

use super::Theme;
use super::canvas::{self, Canvas};
use crate::live::input::{Key, MoveFacts};
use crate::live::model::Fleet;

const BAR: u16 = 12;

pub(super) fn draw(canvas: &mut Canvas<'_>, fleet: &Fleet, theme: Theme) {
    let moves = fleet.shown_moves();
    let room = usize::from(canvas.height().saturating_sub(1));
    canvas.text(1, 0, "MIGRATION", theme.heading());
    if moves.len() > room {
        canvas.right(0, &format!("({} more)", moves.len() - room), theme.dim());
    }
    for ((key, facts), y) in moves.into_iter().take(room).zip(1..) {
        row(canvas, y, (key, facts), fleet, theme);
    }
}

fn row(canvas: &mut Canvas<'_>, y: u16, (key, facts): (&Key, &MoveFacts), fleet: &Fleet, theme: Theme) {
    let style = if facts.failed { theme.bad() } else { theme.plain() };
    let name = match fleet.namespace {
        Some(_) => facts.vm.clone(),
        None => format!("{}/{}", key.namespace, facts.vm),
    };
    canvas.cell(1, y, 13, &name, style);
    let known = |node: &str| if node.is_empty() { "?".to_owned() } else { node.to_owned() };
    let way = format!("{}{}{}", known(&facts.source), theme.arrow(), known(&facts.target));
    canvas.cell(15, y, 14, &way, style);
    canvas.cell(30, y, BAR + 2, &progress(facts, theme), style);
    let took = facts.ended.unwrap_or(fleet.now) - facts.created;
    let took = crate::render::span(u64::try_from(took / 1000).unwrap_or(0));
    canvas.text(32 + BAR, y, &format!("{took:>5}  {}", facts.text), style);
}

/// The bar; without a share, the phase.
fn progress(facts: &MoveFacts, theme: Theme) -> String {
    let Some(percent) = facts.percent.filter(|_| !facts.failed) else { return facts.phase.clone() };
    #[expect(clippy::cast_precision_loss, reason = "at most 100")]
    let filled = canvas::cells(percent.min(100) as f64 / 100.0, BAR - 4);
    let full: String = std::iter::repeat_n(theme.full(), filled).collect();
    let free: String = std::iter::repeat_n(theme.free(), usize::from(BAR - 4) - filled).collect();
    format!("{full}{free} {percent:>3}%")
}
