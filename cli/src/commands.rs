//! One file for each leaf: a function from typed arguments and [`Env`] to a [`Report`]. Nothing here prints.

mod agent;
mod checks;
mod completion;
mod config;
mod dashboard;
mod debug;
mod doctor;
mod finals;
mod flags;
mod image;
mod input;
mod install;
mod job;
mod kernel;
mod live;
mod local;
mod migration;
mod object;
pub(crate) mod place;
mod podautoscaler;
mod poll;
mod registry;
mod resource;
mod rights;
mod scheduler;
mod services;
mod status;
mod test;
mod top;
mod uninstall;
mod upgrade;
mod version;
mod vm;
mod watching;

use crate::args::cluster::{Agent, Debug, Scheduler, Test};
use crate::args::config::Command as Config;
use crate::args::image::Command as Image;
use crate::args::kernel::Command as Kernel;
use crate::args::local::Command as Local;
use crate::args::migration::Command as Migration;
use crate::args::podautoscaler::Command as Podautoscaler;
use crate::args::{Args, Command};
use crate::env::Env;
use crate::error::Result;
use crate::report::Report;
use crate::settings::Settings;

pub(crate) fn run(env: &Env, settings: &Settings, args: &Args) -> Result<Report> {
    let quiet = args.global.quiet || settings.find("quiet")?.0 == "true";
    match &args.command {
        Command::Install(args) => install::run(env, settings, args, quiet),
        Command::Upgrade(args) => upgrade::run(env, settings, args, quiet),
        Command::Uninstall(args) => uninstall::run(env, settings, args, quiet),
        Command::Vm(command) => vm::run(env, settings, command, quiet),
        Command::Migration(command) => match &**command {
            Migration::List(args) => migration::list(settings, args),
            Migration::Get(args) => migration::get(settings, args),
            Migration::Describe(args) => migration::describe::run(settings, args),
            Migration::Cancel(args) => migration::cancel(settings, args),
            Migration::Wait(args) => migration::wait(settings, args),
        },
        Command::Podautoscaler(command) => podautoscaler(settings, command),
        Command::Image(Image::List(args)) => image::list(env, settings, args),
        Command::Image(Image::Inspect(args)) => image::inspect::run(env, settings, args),
        Command::Image(Image::Export(args)) => image::export(env, args, quiet),
        Command::Image(Image::Push(args)) => image::push(env, args, quiet),
        Command::Image(Image::Remove(args)) => image::remove(env, settings, args),
        Command::Image(Image::Prune(args)) => image::prune(env, settings, args),
        Command::Image(Image::Pull(args)) => image::pull(env, args, quiet),
        Command::Image(Image::Release(command)) => image::release::run(env, command, quiet),
        Command::Kernel(Kernel::Fetch(args)) => kernel::fetch(env, settings, args, quiet),
        Command::Kernel(Kernel::Build(args)) => kernel::build(env, args, quiet),
        Command::Kernel(Kernel::Image(args)) => kernel::image(env, args),
        Command::Kernel(Kernel::List(args)) => kernel::list(env, args),
        Command::Kernel(Kernel::Remove(args)) => kernel::remove(env, args),
        Command::Local(Local::Up(args)) => local::up::run(env, settings, args),
        Command::Local(Local::Down(args)) => local::down::run(env, settings, args, quiet),
        Command::Local(Local::List(args)) => local::show::list(env, settings, args),
        Command::Local(Local::Logs(args)) => local::logs::run(env, settings, args),
        Command::Local(Local::Status(args)) => local::show::status(env, settings, args),
        Command::Local(Local::Check(args)) => local::keep::check(env, settings, args),
        Command::Local(Local::Backup(args)) => local::keep::backup(env, settings, args, quiet),
        Command::Local(Local::Restore(args)) => local::keep::restore(env, settings, args, quiet),
        Command::Local(Local::Kubeconfig(args)) => local::show::kubeconfig(env, settings, args),
        Command::Status(args) => status::status(settings, args),
        Command::Doctor(args) => doctor::run(env, settings, args),
        Command::Test(Test::Cluster(args)) => test::cluster::run(env, settings, args, quiet),
        Command::Top(top) => top::run(env, settings, args, top),
        Command::Dashboard(args) => dashboard::run(settings, args),
        Command::Agent(Agent::Inspect(args)) => agent::inspect(settings, args),
        Command::Scheduler(Scheduler::Inspect(args)) => scheduler::inspect(settings, args),
        Command::Debug(Debug::NodePressure(args)) => debug::node_pressure::run(settings, args),
        Command::Version(args) => version::run(settings, args),
        Command::Completion(args) => completion::run(args.shell),
        Command::Man(args) => completion::man(args),
        Command::Config(Config::View(args)) => config::view(settings, args),
        Command::Config(Config::Set(args)) => config::set(settings, args),
        Command::Config(Config::Unset(args)) => config::unset(settings, args),
        Command::Config(Config::Path) => Ok(config::path(settings)),
        Command::Config(Config::Convert(args)) => config::convert(args),
        Command::Config(Config::Explain(args)) => config::explain(args),
    }
}

fn podautoscaler(settings: &Settings, command: &Podautoscaler) -> Result<Report> {
    match command {
        Podautoscaler::List(args) => podautoscaler::list(settings, args),
        Podautoscaler::Get(args) => podautoscaler::get(settings, args),
        Podautoscaler::Describe(args) => podautoscaler::describe::run(settings, args),
        Podautoscaler::Explain(args) => podautoscaler::explain::run(settings, args),
        Podautoscaler::History(args) => podautoscaler::events::history(settings, args),
        Podautoscaler::Wait(args) => podautoscaler::wait::run(settings, args),
        Podautoscaler::Pause(args) => podautoscaler::run(settings, args, true),
        Podautoscaler::Resume(args) => podautoscaler::run(settings, args, false),
    }
}
