//! `neonctl`, in three layers: `args` (what was typed), `commands` (typed arguments and [`Env`] to a [`Report`]) and
//! `render` (a report to a table, JSON, YAML, …). A command never prints.
//!
//! For: people and scripts. Owns: words, exit codes and output forms. May not: link a service; `local up` starts
//! `neond` as a process. Tested by the transcripts in `cli/tests` and the end-to-end lane.

pub mod args;
mod commands;
mod complete;
mod connect;
pub mod env;
pub mod error;
mod history;
mod instance;
mod live;
mod plot;
pub mod render;
pub mod report;
pub mod settings;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser as _;

pub use env::Env;
pub use error::{Code, Error};
pub use report::Report;

/// Runs the process's own command line.
pub fn main() -> ExitCode {
    // Answers a shell that asks for completions, and ends; otherwise does nothing.
    clap_complete::CompleteEnv::with_factory(complete::command).complete();
    let env = Env::of_process();
    let typed: Vec<OsString> = std::env::args_os().collect();
    let arguments = args::order::sorted(&typed);
    ExitCode::from(run(&env, &arguments))
}

/// Runs a command line; returns the exit code.
pub fn run(env: &Env, arguments: &[OsString]) -> u8 {
    let args = match args::Args::try_parse_from(arguments) {
        Ok(args) => args,
        Err(error) => return usage(env, arguments, &error),
    };
    let early = render::Style::for_errors(render::wants_json(arguments));
    let settings = match settings::Settings::load(env) {
        Ok(settings) => settings,
        Err(error) => return fail(env, &early, &error),
    };
    let style = match render::Style::resolve(env, &settings, &args) {
        Ok(style) => style,
        Err(error) => return fail(env, &early, &error),
    };
    match commands::run(env, &settings, &args) {
        Ok(report) => render::report(env, &style, report),
        Err(error) => fail(env, &style, &error),
    }
}

fn fail(env: &Env, style: &render::Style, error: &Error) -> u8 {
    render::error(env, style, error);
    error.code.number()
}

/// Help, version, or what is wrong with the arguments.
fn usage(env: &Env, arguments: &[OsString], error: &clap::Error) -> u8 {
    if !error.use_stderr() {
        return render::report(env, &render::Style::default(), Report::text(error.render().to_string()));
    }
    let style = render::Style::for_errors(render::wants_json(arguments));
    let text = error.render().to_string();
    if style.json_errors {
        let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        return fail(env, &style, &Error::new(Code::Usage, first));
    }
    render::errors(&render::Shown::text(&text));
    Code::Usage.number()
}
