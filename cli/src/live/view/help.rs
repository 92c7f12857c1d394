//! Keys, signs, and what cannot be read.

use super::Theme;
use super::canvas::{Line, wrapped};
use crate::live::model::Fleet;

const KEYS: [(&str, &str); 9] = [
    ("Up Down PgUp PgDn Home End", "select a VM, or scroll"),
    ("Enter", "why the selected VM has the size it has"),
    ("s", "sort by the next: cpu, memory, size, name, node"),
    ("r", "reverse the order"),
    ("/", "filter by words of name, node, phase and state"),
    ("d", "decisions and events on the whole screen"),
    ("Esc", "back; in the overview: clear the filter"),
    ("?", "this help"),
    ("q, Ctrl-C", "quit"),
];

pub(super) fn lines(fleet: &Fleet, width: usize, theme: Theme) -> Vec<Line> {
    let mut lines = vec![Line::new(" KEYS", theme.heading())];
    lines.extend(KEYS.map(|(key, what)| Line::new(format!(" {key:<27} {what}"), theme.plain())));
    lines.push(Line::new(" SIGNS", theme.heading()));
    let signs = [
        format!(
            " {} used by the VMs shown   {} permitted by the scheduler   {} free",
            theme.full(),
            theme.half(),
            theme.free()
        ),
        format!(
            " ! pressure: requested and not available   {} watermark: above it VMs migrate",
            theme.mark()
        ),
        " Numbers of nodes: used/permitted/total. x: takes no pods.".to_owned(),
        " VMs: > migrates, ! stuck. CU: size in compute units, and the goal if it differs.".to_owned(),
        " CPU and MEMORY: used/size. CPU 5 MIN: load, in relation to the largest size.".to_owned(),
        " Times are UTC.".to_owned(),
    ];
    for sign in signs {
        lines.extend(wrapped(&sign, width, 1, theme.plain()));
    }
    let closed = fleet.nodes.iter().filter_map(|(name, node)| Some((name, node.facts.closed.as_ref()?)));
    let closed: Vec<String> = closed.map(|(name, why)| format!(" {name} takes no pods: {why}")).collect();
    let notes =
        fleet.nodes.iter().filter_map(|(name, node)| Some((name, node.account.as_ref()?.note.as_ref()?)));
    let notes: Vec<String> = notes.map(|(name, note)| format!(" {name}: {note}")).collect();
    section(&mut lines, " NODES", closed.into_iter().chain(notes), width, theme);
    let troubles = fleet.troubles.iter().map(|(origin, text)| format!(" {} unknown: {text}", origin.what()));
    section(&mut lines, " PROBLEMS", troubles, width, theme);
    let missing = fleet.vms.iter().filter_map(|(key, vm)| {
        Some(format!(" {}/{}: load unknown: {}", key.namespace, key.name, vm.trouble.as_ref()?))
    });
    section(&mut lines, " VMS WITHOUT LOAD", missing, width, theme);
    lines
}

fn section(
    lines: &mut Vec<Line>,
    heading: &str,
    texts: impl Iterator<Item = String>,
    width: usize,
    theme: Theme,
) {
    let mut texts = texts.peekable();
    if texts.peek().is_some() {
        lines.push(Line::new(heading, theme.heading()));
    }
    for text in texts {
        lines.extend(wrapped(&text, width, 3, theme.plain()));
    }
}
