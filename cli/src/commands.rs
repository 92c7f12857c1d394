//! One file for each leaf: a function from typed arguments and [`Env`] to a [`Report`]. Nothing here prints.

mod completion;
mod config;
mod doctor;
mod health;
mod local;
mod status;
mod version;

use crate::args::Command;
use crate::args::config::Command as Config;
use crate::args::local::Command as Local;
use crate::env::Env;
use crate::error::Result;
use crate::report::Report;
use crate::settings::Settings;

/// Carries out a command.
pub(crate) fn run(env: &Env, settings: &Settings, command: &Command) -> Result<Report> {
    match command {
        Command::Local(Local::Up(args)) => local::up::run(env, settings, args),
        Command::Local(Local::Down(args)) => local::down::run(env, settings, args),
        Command::Local(Local::List(args)) => local::list::run(env, settings, args),
        Command::Local(Local::Logs(args)) => local::logs::run(env, settings, args),
        Command::Local(Local::Status(args)) => local::status::run(env, settings, args),
        Command::Local(Local::Kubeconfig(args)) => local::kubeconfig::run(env, settings, args),
        Command::Status(args) => status::run(settings, args),
        Command::Doctor(_) => doctor::run(env, settings),
        Command::Version(_) => Ok(version::run()),
        Command::Completion(args) => completion::run(args.shell),
        Command::Config(Config::View(args)) => config::view::run(settings, args),
        Command::Config(Config::Set(args)) => config::set::run(settings, args),
        Command::Config(Config::Path(_)) => Ok(config::path::run(settings)),
    }
}
