//! One VM: why it has the size it has, its last minutes, and the last decisions of its agent.

use neonvm_types::Resources;
use neonvm_types::agent_inspect::{Decision, VmInspect};

use super::Theme;
use super::canvas::{self, Line, wrapped};
use crate::live::input::Key;
use crate::live::model::{Fleet, Vm};
use crate::live::series::Point;
use crate::live::size::{self, cores, short};
use crate::render::bytes;

const LABEL: usize = 11;

pub(super) fn lines(fleet: &Fleet, key: &Key, width: usize, theme: Theme) -> Vec<Line> {
    let Key { namespace, name } = key;
    let Some(vm) = fleet.vms.get(key) else {
        return vec![Line::new(
            format!(" {namespace}/{name} does not exist any more; Esc goes back"),
            theme.warning(),
        )];
    };
    let mut page = Page { lines: Vec::new(), width, theme };
    page.heading(&format!("VM {namespace}/{name}"));
    for (label, text) in facts(fleet, key, vm) {
        page.value(label, &text);
    }
    page.heading("LAST 5 MINUTES");
    page.minutes(vm);
    page.heading("LAST DECISIONS");
    match &vm.why {
        Some(why) => why.decisions.iter().rev().for_each(|one| page.value(&time(one), &decision(one))),
        None if vm.facts.scaled => page.text("its agent does not respond; see: neonctl status"),
        None => page.text(&format!(
            "none: scaling is off; turn it on: neonctl vm scale {name} -n {namespace} --auto on"
        )),
    }
    page.lines
}

fn time(decision: &Decision) -> String {
    decision.at.split('T').nth(1).unwrap_or(&decision.at).trim_end_matches('Z').to_owned()
}

fn decision(decision: &Decision) -> String {
    match &decision.reason {
        Some(reason) => format!("{} ({reason})", decision.text),
        None => decision.text.clone(),
    }
}

pub(crate) fn facts(fleet: &Fleet, key: &Key, vm: &Vm) -> Vec<(&'static str, String)> {
    let facts = &vm.facts;
    let place = if facts.node.is_empty() { "no node yet".to_owned() } else { format!("on {}", facts.node) };
    let pod = if facts.pod.is_empty() { String::new() } else { format!(", pod {}", facts.pod) };
    let mut all =
        vec![("Phase", format!("{} {place}{pod}", facts.phase)), ("Size", sizes(vm)), ("Load", load(vm))];
    if !facts.limited.is_empty() {
        all.push(("Disks", facts.limited.clone()));
    }
    if let Some(facts) = fleet.move_of(key) {
        all.push(("Migration", format!("to {}: {}", facts.target, facts.text)));
    }
    if let Some(why) = &vm.why {
        all.extend(agent(vm, why));
    }
    all
}

fn sizes(vm: &Vm) -> String {
    let (unit, facts) = (vm.unit(), &vm.facts);
    let show = |size: Resources| match size.exact_quotient(unit) {
        Some(units) if units > 0 => format!("{units} CU = {} CPU, {}", cores(size.vcpus), size.mem),
        _ => format!("{} CPU, {}", cores(size.vcpus), size.mem),
    };
    let now = if size::known(facts.size) { show(facts.size) } else { "not known".to_owned() };
    let requested = if facts.requested == facts.size {
        String::new()
    } else {
        format!("; requested {}", show(facts.requested))
    };
    format!("{now}{requested}; range {}", size::range(facts.min, facts.max, unit))
}

fn load(vm: &Vm) -> String {
    if let Some(trouble) = &vm.trouble {
        return format!("unknown: {trouble}");
    }
    let percent =
        |share: Option<f64>| share.map_or_else(|| "?".to_owned(), |share| format!("{:.0}%", share * 100.0));
    let cpu = vm.load.cpu.map_or_else(|| "?".to_owned(), |used| format!("{used:.2}"));
    let memory = vm.load.memory.map_or_else(|| "?".to_owned(), bytes);
    let mut text = format!(
        "{cpu} CPU ({}), {memory} of memory ({})",
        percent(vm.cpu_share()),
        percent(vm.memory_share())
    );
    for (share, what) in
        [(vm.load.steal, "stolen by others on the host"), (vm.load.throttled, "withheld by its limit")]
    {
        if let Some(share) = share.filter(|share| *share >= 0.005) {
            text.push_str(&format!(", {:.0}% {what}", share * 100.0));
        }
    }
    text
}

fn agent(vm: &Vm, why: &VmInspect) -> Vec<(&'static str, String)> {
    let show =
        |size: Option<Resources>| size.map_or_else(|| "-".to_owned(), |size| size::units(size, vm.unit()));
    let mut all = vec![(
        "Goal",
        format!(
            "{}{}; permitted {}; guest consented to {}",
            show(why.goal),
            parts(why),
            show(why.permit),
            show(why.approved)
        ),
    )];
    all.push(("Metrics", metrics(why)));
    all.push(("State", why.state.clone()));
    let more = [("Limit", &why.limit), ("Stuck", &why.stuck)];
    all.extend(more.into_iter().filter_map(|(label, text)| Some((label, text.clone()?))));
    if let Some(hold) = &why.hold {
        all.push(("Hold", format!("at {} for {:.0}s", show(Some(hold.size)), hold.remaining_seconds)));
    }
    all
}

fn parts(why: &VmInspect) -> String {
    let Some(parts) = &why.goal_parts else { return String::new() };
    let known = [("cpu", parts.cpu), ("memory", parts.mem), ("file cache", parts.lfc)];
    let shown: Vec<String> =
        known.into_iter().filter_map(|(name, part)| Some(format!("{name} {}", short(part?)))).collect();
    if shown.is_empty() { String::new() } else { format!(" ({})", shown.join(", ")) }
}

fn metrics(why: &VmInspect) -> String {
    let mut shown = Vec::new();
    shown.extend(why.load1.map(|load| format!("load average {load:.2}")));
    shown.extend(why.memory_used_bytes.map(|used| format!("memory {}", bytes(used))));
    shown.extend(why.cache_working_set_bytes.map(|set| format!("cache working set {}", bytes(set))));
    shown.extend(why.metrics_age_seconds.map(|age| format!("{age:.0}s old")));
    shown.extend(why.guest_protocol.clone());
    if shown.is_empty() { "none yet".to_owned() } else { shown.join(", ") }
}

struct Page {
    lines: Vec<Line>,
    width: usize,
    theme: Theme,
}

impl Page {
    fn heading(&mut self, text: &str) {
        self.lines.push(Line::new(format!(" {text}"), self.theme.heading()));
    }

    fn text(&mut self, text: &str) {
        self.lines.extend(wrapped(&format!(" {text}"), self.width, 1, self.theme.plain()));
    }

    fn value(&mut self, label: &str, text: &str) {
        let line = format!(" {label:<LABEL$}{}{text}", if label.len() >= LABEL { " " } else { "" });
        self.lines.extend(wrapped(&line, self.width, LABEL + 1, self.theme.plain()));
    }

    /// Lines of values, those of a resource at the same scale.
    fn minutes(&mut self, vm: &Vm) {
        let cpu = |point: &Point| point.cpu;
        let memory = |point: &Point| point.memory;
        self.levels(vm, ("CPU", ""), cpu);
        self.levels(vm, ("memory", "Gi"), memory);
    }

    fn levels(
        &mut self,
        vm: &Vm,
        (what, unit): (&str, &str),
        of: impl Fn(&Point) -> crate::live::series::Level,
    ) {
        let series = &vm.series;
        let most = series.most(|point| of(point).size).max(series.most(|point| of(point).load));
        let most = most.max(series.most(|point| of(point).goal));
        let theme = self.theme;
        let width = u16::try_from(self.width.saturating_sub(20)).unwrap_or(u16::MAX).min(150);
        let rows = [
            ("load", canvas::spark(series, width, most, theme, |point| of(point).load)),
            ("goal", canvas::spark(series, width, most, theme, |point| of(point).goal)),
            ("permit", canvas::spark(series, width, most, theme, |point| of(point).permit)),
            ("size", canvas::spark(series, width, most, theme, |point| of(point).size)),
        ];
        let scale = format!("0..{}{unit}", short((f64::from(most) * 100.0).round() / 100.0));
        for ((name, line), note) in rows.into_iter().zip([what, scale.as_str(), "", ""]) {
            if !line.trim().is_empty() {
                self.lines.push(Line::new(format!(" {note:<10}{name:<7}{line}"), theme.plain()));
            }
        }
    }
}
