//! VMs: a row each, with range, size, load and the last minutes.

use ratatui::style::Style;

use super::Theme;
use super::canvas::{self, Canvas};
use crate::live::input::Key;
use crate::live::model::{Fleet, Vm};
use crate::live::{Ui, size};

struct Columns {
    name: u16,
    node: u16,
    range: u16,
    size: u16,
    cpu: u16,
    memory: u16,
    spark: u16,
    minutes: u16,
    state: u16,
}

impl Columns {
    fn new(width: u16, namespaces: bool) -> Self {
        let wide = width >= 110;
        let name = 1;
        let node = name + if wide { 22 } else { 14 } + if namespaces && wide { 10 } else { 0 };
        let range = node + if wide { 16 } else { 11 };
        let size = range + 8;
        let cpu = size + 7;
        let memory = cpu + 10;
        let spark = memory + 11;
        let rest = width.saturating_sub(spark);
        let minutes = if wide { rest / 2 } else { rest };
        Self { name, node, range, size, cpu, memory, spark, minutes, state: rest - minutes }
    }
}

pub(super) fn draw(canvas: &mut Canvas<'_>, fleet: &Fleet, ui: &Ui, theme: Theme) {
    let columns = Columns::new(canvas.width(), fleet.namespace.is_none());
    heading(canvas, &columns, theme);
    let rows = ui.rows(fleet);
    let selected = ui.position(&rows);
    let room = usize::from(canvas.height().saturating_sub(1));
    let first = selected.saturating_sub(room / 2).min(rows.len().saturating_sub(room));
    for ((index, (key, vm)), y) in rows.iter().enumerate().skip(first).take(room).zip(1..) {
        let row = Row { fleet, key, vm, theme };
        row.draw(canvas, y, &columns);
        if index == selected {
            canvas.row(y, theme.selected());
        }
    }
    if rows.is_empty() {
        let why = if !fleet.listed {
            "reading"
        } else if fleet.vms.is_empty() {
            "no VMs; create one: neonctl vm create NAME --image IMAGE"
        } else {
            "no VM fits the filter; Esc clears it"
        };
        canvas.text(1, 1, why, theme.dim());
    } else if rows.len() > room {
        let shown = format!("({}-{} of {})", first + 1, (first + room).min(rows.len()), rows.len());
        canvas.right(0, &shown, theme.dim());
    }
}

fn heading(canvas: &mut Canvas<'_>, columns: &Columns, theme: Theme) {
    let all = [
        (columns.name, "VM"),
        (columns.node, "NODE"),
        (columns.range, "RANGE"),
        (columns.size, "CU"),
        (columns.cpu, "CPU"),
        (columns.memory, "MEMORY"),
        (columns.spark, "CPU 5 MIN"),
    ];
    for (x, text) in all {
        canvas.text(x, 0, text, theme.heading());
    }
    if columns.state > 0 {
        canvas.text(columns.spark + columns.minutes + 1, 0, "STATE", theme.heading());
    }
}

struct Row<'a> {
    fleet: &'a Fleet,
    key: &'a Key,
    vm: &'a Vm,
    theme: Theme,
}

impl Row<'_> {
    fn draw(&self, canvas: &mut Canvas<'_>, y: u16, columns: &Columns) {
        let (vm, theme, facts) = (self.vm, self.theme, &self.vm.facts);
        let quiet = if facts.running { theme.plain() } else { theme.dim() };
        canvas.text(0, y, self.mark(), theme.warning());
        let mut cell = |from: u16, to: u16, text: &str, style: Style| {
            canvas.cell(from, y, (to - from).saturating_sub(1), text, style);
        };
        cell(columns.name, columns.node, &self.name(), quiet);
        cell(columns.node, columns.range, &self.node(), quiet);
        let range = size::range(facts.min, facts.max, vm.unit());
        cell(columns.range, columns.size, &range, quiet);
        cell(columns.size, columns.cpu, &self.size(), quiet);
        cell(columns.cpu, columns.memory, &self.cpu(), theme.share(vm.cpu_share()));
        cell(columns.memory, columns.spark, &self.memory(), theme.share(vm.memory_share()));
        let end = columns.spark + columns.minutes;
        if !facts.running {
            cell(columns.spark, end + 1, &facts.phase, theme.dim());
            return;
        }
        let most = vm.series.most(|point| point.cpu.size).max(vm.series.most(|point| point.cpu.load));
        let spark = canvas::spark(&vm.series, columns.minutes, most, theme, |point| point.cpu.load);
        cell(columns.spark, end + 1, &spark, theme.used());
        if columns.state > 0 {
            cell(end + 1, end + 1 + columns.state, &vm.state(), theme.plain());
        }
    }

    /// A sign for what a person should look at.
    fn mark(&self) -> &'static str {
        let why = self.vm.why.as_ref();
        if why.is_some_and(|why| why.stuck.is_some()) {
            "!"
        } else if self.fleet.move_of(self.key).is_some() {
            ">"
        } else {
            " "
        }
    }

    fn name(&self) -> String {
        match self.fleet.namespace {
            Some(_) => self.key.name.clone(),
            None => format!("{}/{}", self.key.namespace, self.key.name),
        }
    }

    fn node(&self) -> String {
        let node = &self.vm.facts.node;
        match self.fleet.move_of(self.key) {
            Some(facts) if !facts.target.is_empty() => {
                format!("{node}{}{}", self.theme.arrow(), facts.target)
            }
            _ if node.is_empty() => "-".to_owned(),
            _ => node.clone(),
        }
    }

    /// The size, and the goal if it differs.
    fn size(&self) -> String {
        let (unit, now) = (self.vm.unit(), self.vm.facts.size);
        // Memory has a column of its own.
        let shown = |size: neonvm_types::Resources| match size.exact_quotient(unit) {
            Some(units) if units > 0 => units.to_string(),
            _ if size::known(size) => format!("{}cpu", size::short(size.vcpus.as_f64())),
            _ => "-".to_owned(),
        };
        match self.vm.goal().filter(|goal| *goal != now) {
            Some(goal) => format!("{}{}{}", shown(now), self.theme.arrow(), shown(goal)),
            None => shown(now),
        }
    }

    fn cpu(&self) -> String {
        let size = self.vm.facts.size;
        if !size::known(size) {
            return "-".to_owned();
        }
        let used = self.vm.load.cpu.map_or_else(|| "?".to_owned(), |used| format!("{used:.2}"));
        format!("{used}/{}", size::short(size.vcpus.as_f64()))
    }

    fn memory(&self) -> String {
        let size = self.vm.facts.size;
        if !size::known(size) {
            return "-".to_owned();
        }
        let used = self.vm.load.memory.map_or_else(|| "?".to_owned(), crate::render::bytes);
        let whole = crate::render::bytes(size.mem.get());
        // One unit is enough if both have the same.
        let same = ["Gi", "Mi"].iter().find(|unit| whole.ends_with(**unit));
        let used = same.and_then(|unit| used.strip_suffix(unit)).map_or(used.clone(), str::to_owned);
        format!("{used}/{whole}")
    }
}
