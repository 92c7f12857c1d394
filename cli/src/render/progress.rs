//! Progress of long work on standard error: bars on a terminal, otherwise a line for each change, or JSON, or nothing.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde_json::json;

use super::clean;
use super::out::{Shown, errors};
use crate::env::Env;

/// How it is shown.
enum Mode {
    Bars(MultiProgress),
    Plain,
    Json,
    Silent,
}

#[derive(Default)]
struct State {
    step: Option<(String, Instant)>,
    line: Option<ProgressBar>,
    tasks: BTreeMap<String, ProgressBar>,
    /// What the step was last shown to wait for, and since when.
    waits: Option<(String, Instant)>,
}

/// Shortest time between two lines about what a step waits for.
const BETWEEN: Duration = Duration::from_secs(1);

/// Shows progress. One for each command.
pub(crate) struct Reporter {
    mode: Mode,
    state: Mutex<State>,
}

impl Reporter {
    /// `how` is the value of `--progress`.
    pub(crate) fn new(env: &Env, how: &str, quiet: bool) -> Self {
        let mode = match how {
            _ if quiet => Mode::Silent,
            "none" => Mode::Silent,
            "json" => Mode::Json,
            "auto" if env.stderr_terminal && env.var("TERM") != Some("dumb") => {
                Mode::Bars(MultiProgress::new())
            }
            _ => Mode::Plain,
        };
        Self { mode, state: Mutex::default() }
    }

    /// Single lines, for commands without `--progress`.
    pub(crate) fn lines(quiet: bool) -> Self {
        Self { mode: if quiet { Mode::Silent } else { Mode::Plain }, state: Mutex::default() }
    }

    /// Shows one line that is of use only while the command runs.
    pub(crate) fn show(&self, line: &str) {
        match &self.mode {
            Mode::Bars(bars) => above(bars, line),
            Mode::Plain => print_line(line),
            Mode::Json => print_json("line", "", line),
            Mode::Silent => {}
        }
    }

    /// Shows what the step waits for: beside it on a terminal, otherwise as a line when it has changed and a second has passed.
    pub(crate) fn waits(&self, text: &str) {
        let mut state = self.state();
        let Some((step, begun)) = &state.step else { return };
        let (last, at) = state.waits.as_ref().map_or(("", begun), |(last, at)| (last, at));
        let is_due = last != text && at.elapsed() >= BETWEEN;
        match &self.mode {
            Mode::Plain if is_due => print_line(&format!("{:<10} {text}", "")),
            Mode::Json if is_due => print_json("waits", step, text),
            _ => {}
        }
        if is_due {
            state.waits = Some((text.to_owned(), Instant::now()));
        }
        drop(state);
        self.show_tool_line(text);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin_step(&self, step: &str, detail: &str) {
        let mut state = self.state();
        state.step = Some((step.to_owned(), Instant::now()));
        state.waits = None;
        match &self.mode {
            Mode::Bars(bars) => {
                let bar = bars.add(
                    ProgressBar::new_spinner().with_style(style("{spinner} {prefix:<10} {msg} {elapsed}")),
                );
                bar.set_prefix(clean::line(step).into_owned());
                bar.set_message(clean::line(detail).into_owned());
                bar.enable_steady_tick(Duration::from_millis(100));
                state.line = Some(bar);
            }
            Mode::Plain => print_line(&format!("{step:<10} {detail}")),
            Mode::Json => print_json("begin", step, detail),
            Mode::Silent => {}
        }
    }

    fn end_step(&self, detail: &str) {
        let mut state = self.state();
        let Some((step, begun)) = state.step.take() else { return };
        let line = format!("{step:<10} {detail}  {:.1}s", begun.elapsed().as_secs_f64());
        for (_, bar) in std::mem::take(&mut state.tasks) {
            bar.finish_and_clear();
        }
        match (&self.mode, state.line.take()) {
            (Mode::Bars(bars), Some(bar)) => {
                bar.finish_and_clear();
                above(bars, &line);
            }
            (Mode::Plain, _) => print_line(&line),
            (Mode::Json, _) => print_json("end", &step, detail),
            _ => {}
        }
    }

    fn show_note(&self, text: &str) {
        match &self.mode {
            Mode::Bars(bars) => above(bars, &format!("note: {text}")),
            Mode::Plain => print_line(&format!("note: {text}")),
            Mode::Json => print_json("note", "", text),
            Mode::Silent => {}
        }
    }

    /// A line of another program: the newest is shown beside the step.
    fn show_tool_line(&self, line: &str) {
        if let (Mode::Bars(_), Some(bar)) = (&self.mode, &self.state().line) {
            bar.set_message(clean::line(line).chars().take(70).collect::<String>());
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

/// A line above the bars, which the library writes.
fn above(bars: &MultiProgress, line: &str) {
    let _ = bars.println(clean::line(line));
}

fn print_line(line: &str) {
    let mut shown = Shown::line(line.trim_end());
    shown.push(&Shown::text("\n"));
    errors(&shown);
}

fn print_json(event: &str, step: &str, detail: &str) {
    print_line(&super::json_line(&json!({ "event": event, "step": step, "detail": detail })));
}

impl neonvm_builder::source::Progress for Reporter {
    fn started(&self, task: &str, total: Option<u64>) {
        match &self.mode {
            Mode::Bars(bars) => {
                let template = if total.is_some() {
                    "  {prefix:<24} {bar:30} {bytes}/{total_bytes} {bytes_per_sec}"
                } else {
                    "  {prefix:<24} {bytes} {bytes_per_sec}"
                };
                let bar = bars.add(ProgressBar::new(total.unwrap_or(0)).with_style(style(template)));
                bar.set_prefix(clean::line(task).into_owned());
                self.state().tasks.insert(task.to_owned(), bar);
            }
            Mode::Json => print_json("started", task, ""),
            Mode::Plain | Mode::Silent => {}
        }
    }

    fn advanced(&self, task: &str, bytes: u64) {
        if let Some(bar) = self.state().tasks.get(task) {
            bar.inc(bytes);
        }
    }

    fn finished(&self, task: &str) {
        if let Some(bar) = self.state().tasks.remove(task) {
            bar.finish_and_clear();
        }
        if matches!(self.mode, Mode::Json) {
            print_json("finished", task, "");
        }
    }

    fn note(&self, text: &str) {
        self.show_note(text);
    }

    fn line(&self, text: &str) {
        self.show_tool_line(text);
    }
}

impl neonvm_builder::engine::Reporter for Reporter {
    fn begin(&self, step: neonvm_builder::engine::Step, detail: &str) {
        self.begin_step(step.name(), detail);
    }

    fn end(&self, _: neonvm_builder::engine::Step, detail: &str) {
        self.end_step(detail);
    }
}

impl neonvm_kernel::Progress for Reporter {
    fn begin(&self, step: &str, detail: &str) {
        self.begin_step(step, detail);
    }

    fn line(&self, line: &str) {
        self.show_tool_line(line);
    }

    fn end(&self, detail: &str) {
        self.end_step(detail);
    }

    fn note(&self, text: &str) {
        self.show_note(text);
    }
}
