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
mod invoked;
mod live;
mod plot;
pub mod render;
pub mod report;
pub mod settings;
mod trace;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::FromArgMatches as _;

pub use env::Env;
pub use error::{Code, Error};
use invoked::Invoked;
pub use report::Report;
pub use settings::Verbosity;

pub fn main() -> ExitCode {
    let env = Env::of_process();
    let typed: Vec<OsString> = std::env::args_os().collect();
    if Invoked::of(&typed) == Invoked::Completer {
        let words = typed.get(1..).unwrap_or_default();
        let answer = complete::answer(words, std::env::current_dir().ok().as_deref());
        return ExitCode::from(render::report(&env, &render::Style::default(), Report::text(answer)));
    }
    match complete::answered(&typed) {
        Ok(false) => ExitCode::from(run(&env, &typed)),
        Ok(true) => ExitCode::SUCCESS,
        Err(error) => ExitCode::from(usage(&env, &typed, &error)),
    }
}

pub fn run(env: &Env, arguments: &[OsString]) -> u8 {
    let invoked = Invoked::of(arguments);
    let args = match parse(invoked, arguments) {
        Ok(args) => args,
        Err(error) => return usage(env, arguments, &error),
    };
    let early = render::Style::for_errors(render::wants_json(arguments));
    let settings = match settings::Settings::load(env) {
        Ok(settings) => settings.with_flags(&args.global),
        Err(error) => return fail(env, &early, &invoked.error(error)),
    };
    let style = match render::Style::resolve(env, &settings, &args) {
        Ok(style) => style,
        Err(error) => return fail(env, &early, &invoked.error(error)),
    };
    match commands::run(env, &settings, &args) {
        Ok(report) => render::report(env, &style, invoked.report(report)),
        Err(error) => fail(env, &style, &invoked.error(error)),
    }
}

impl render::Style {
    /// From flags, settings and environment.
    ///
    /// # Errors
    /// If one of them is not valid.
    pub fn resolve(env: &Env, settings: &settings::Settings, args: &args::Args) -> error::Result<Self> {
        let format = match (&args.global.output, args.command.has_formats()) {
            // A history has two forms of its own.
            (Some(text), _) if args.command.draws(text) => render::Format::Table,
            (Some(text), true) => render::Format::parse(text)?,
            (Some(_), false) => {
                return Err(
                    Error::new(Code::Usage, "this command has no output formats").hint("omit --output")
                );
            }
            // A configured form does not concern commands that have none.
            (None, true) => render::Format::parse(&settings.find("output")?.0)?,
            (None, false) => render::Format::Table,
        };
        let color = settings.value("color", args.global.color.as_deref())?.unwrap_or_default();
        let flag = args.global.color.is_some();
        let quiet = args.global.quiet || settings.find("quiet")?.0 == "true";
        Ok(Self {
            json_errors: format == render::Format::Json,
            format,
            no_headers: args.global.no_headers,
            quiet,
            color_stdout: colored(env, &color, flag, env.stdout_terminal),
            color_stderr: colored(env, &color, flag, env.stderr_terminal),
            terminal: env.stdout_terminal,
        })
    }
}

/// The flag wins over everything; `NO_COLOR` and a dumb terminal over `auto`; `CLICOLOR_FORCE` over no terminal.
fn colored(env: &Env, setting: &str, flag: bool, terminal: bool) -> bool {
    match setting {
        "always" if flag => true,
        "never" => false,
        _ if env.var("NO_COLOR").is_some() || env.var("TERM") == Some("dumb") => false,
        "always" => true,
        _ => terminal || env.var("CLICOLOR_FORCE").is_some_and(|force| force != "0"),
    }
}

fn parse(invoked: Invoked, arguments: &[OsString]) -> clap::error::Result<args::Args> {
    let mut command = invoked.command();
    let mut matches = command.try_get_matches_from_mut(arguments)?;
    args::Args::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

fn fail(env: &Env, style: &render::Style, error: &Error) -> u8 {
    render::error(env, style, error);
    error.code.number()
}

/// What there is instead of a terminal of a container engine.
const NO_TERMINAL: &str = "-t is --tag: vm run has no terminal for the workload; the serial console is one (neonctl vm run --console), \
                           and a shell beside the workload has one (neonctl vm run --detach, then neonctl vm ssh)";

/// Whether `vm run` is called as container engines are for a terminal, such as `-it`.
fn wants_terminal(arguments: &[OsString]) -> bool {
    let words: Vec<&str> =
        arguments.iter().map_while(|word| word.to_str()).take_while(|word| *word != "--").collect();
    let is_run = words.windows(2).any(|pair| matches!(pair, ["vm", "run"]));
    is_run && words.iter().any(|word| matches!(*word, "-it" | "-ti" | "--tty"))
}

fn usage(env: &Env, arguments: &[OsString], error: &clap::Error) -> u8 {
    if !error.use_stderr() {
        return render::report(env, &render::Style::default(), Report::text(error.render().to_string()));
    }
    let style = render::Style::for_errors(render::wants_json(arguments));
    let mut text = error.render().to_string();
    let hint = wants_terminal(arguments).then_some(NO_TERMINAL);
    if style.json_errors {
        let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        let error = Error::new(Code::Usage, first);
        return fail(env, &style, &hint.map_or(error.clone(), |hint| error.hint(hint)));
    }
    if let Some(hint) = hint {
        text += &format!("\n  hint: {hint}\n");
    }
    render::errors(&render::Shown::text(&text));
    Code::Usage.number()
}
