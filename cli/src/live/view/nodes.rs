//! Nodes: a bar for CPU and one for memory.

use super::Theme;
use super::canvas::{self, Canvas};
use crate::live::model::{Fleet, Node, Share};
use crate::live::size::short;

/// Columns of the numbers behind a bar.
const NUMBERS: u16 = 14;
/// Bytes of a GiB.
const GIB: f64 = 1_073_741_824.0;

/// Draws a heading and a row for each node; those with the least room first, if not all fit.
pub(super) fn draw(canvas: &mut Canvas<'_>, fleet: &Fleet, theme: Theme) {
    let name = if canvas.width() >= 110 { 20 } else { 12 };
    let half = (canvas.width() - name - 2) / 2;
    heading(canvas, name, half, theme);
    let mut nodes: Vec<(&String, &Node, (Share, Share))> =
        fleet.nodes.iter().map(|(name, node)| (name, node, fleet.shares(name, node))).collect();
    let room = usize::from(canvas.height().saturating_sub(1));
    if nodes.len() > room {
        nodes.sort_by(|one, other| fullness(&other.2).total_cmp(&fullness(&one.2)));
        let hidden = nodes.len() - room;
        canvas.right(0, &format!("({hidden} more)"), theme.dim());
    }
    for ((key, node, shares), y) in nodes.iter().take(room).zip(1..) {
        row(canvas, y, (key, node), shares, (name, half, theme));
    }
    if nodes.is_empty() {
        canvas.text(1, 1, "no nodes have been read", theme.dim());
    }
}

fn heading(canvas: &mut Canvas<'_>, name: u16, half: u16, theme: Theme) {
    let (full, permitted, mark) = (theme.full(), theme.half(), theme.mark());
    canvas.text(1, 0, "NODE", theme.heading());
    canvas.cell(name + 1, 0, half, &format!("CPU {full} used {permitted} permitted"), theme.heading());
    let memory = format!("MEMORY ! pressure {mark} watermark");
    canvas.cell(name + 1 + half, 0, half, &memory, theme.heading());
}

/// The larger share that is taken or missing.
fn fullness((cpu, memory): &(Share, Share)) -> f64 {
    let of = |share: &Share| (share.permitted + share.pressure) / share.total.max(1.0);
    of(cpu).max(of(memory))
}

fn row(
    canvas: &mut Canvas<'_>,
    y: u16,
    (key, node): (&str, &Node),
    (cpu, memory): &(Share, Share),
    (name, half, theme): (u16, u16, Theme),
) {
    let closed = node.facts.closed.is_some();
    let style = if closed { theme.warning() } else { theme.plain() };
    // A node that takes no pods is marked by more than its colour.
    let mark = if closed { "x" } else { " " };
    canvas.text(0, y, mark, style);
    canvas.cell(1, y, name - 1, key, style);
    let width = half.saturating_sub(NUMBERS + 2);
    canvas::bar(canvas, (name + 1, y), width, cpu, theme);
    let numbers = numbers(cpu, 1000.0, "");
    canvas.cell(name + 2 + width, y, NUMBERS, &numbers, theme.plain());
    canvas::bar(canvas, (name + 1 + half, y), width, memory, theme);
    let numbers = self::numbers(memory, GIB, "Gi");
    canvas.cell(name + 2 + half + width, y, NUMBERS, &numbers, theme.plain());
}

/// Used, permitted and total, such as `0.98/2/4`.
fn numbers(share: &Share, one: f64, unit: &str) -> String {
    let tenths = |value: f64| short((value / one * 10.0).round() / 10.0);
    format!("{}/{}/{}{unit}", tenths(share.used), tenths(share.permitted), tenths(share.total))
}
