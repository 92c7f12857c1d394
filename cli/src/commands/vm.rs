//! `vm`

mod attach;
mod build;
mod change;
mod console;
mod cp;
mod create;
pub(super) mod decisions;
mod delete;
mod describe;
pub(crate) mod disk;
pub(crate) mod events;
pub(crate) mod exec;
mod freeze;
mod history;
mod logs;
mod port_forward;
mod power;
mod run;
pub(crate) mod scale;
mod set;
pub(crate) mod size;
mod snapshot;
mod ssh;
mod ssh_config;
pub(crate) mod table;
mod wait;
pub(crate) mod waiting;

use crate::args::vm::Command;
use crate::env::Env;
use crate::error::Result;
use crate::report::Report;
use crate::settings::Settings;

pub(super) fn run(env: &Env, settings: &Settings, command: &Command, quiet: bool) -> Result<Report> {
    match command {
        Command::Build(args) => build::run(env, settings, args, quiet),
        Command::Run(args) => run::run(env, settings, args, quiet),
        Command::Create(args) => create::run(settings, args, quiet),
        Command::List(args) => table::list(settings, args),
        Command::Get(args) => table::get(settings, args),
        Command::Describe(args) => describe::run(settings, args),
        Command::Scale(args) => scale::run(settings, args, quiet),
        Command::Set(args) => set::run(settings, args, quiet),
        Command::Stop(args) => power::run(settings, args, power::Order::Stop, quiet),
        Command::Start(args) => power::run(settings, args, power::Order::Start, quiet),
        Command::Restart(args) => power::run(settings, args, power::Order::Restart, quiet),
        Command::Suspend(args) => power::run(settings, args, power::Order::Suspend, quiet),
        Command::Pause(args) => power::run(settings, args, power::Order::Pause, quiet),
        Command::Resume(args) => power::run(settings, args, power::Order::Resume, quiet),
        Command::Disk(command) => disk::run(settings, command, quiet),
        Command::Freeze(args) => freeze::run(settings, args),
        Command::Thaw(args) => freeze::end(settings, args),
        Command::Snapshot(command) => snapshot::run(settings, command),
        Command::Migrate(args) => super::migration::begin::run(env, settings, args, quiet),
        Command::Delete(args) => delete::run(settings, args, quiet),
        Command::Console(args) => console::run(settings, args, quiet),
        Command::Ssh(args) => ssh::run(env, settings, args),
        Command::Cp(args) => cp::run(env, settings, args),
        Command::PortForward(args) => port_forward::run(settings, args, quiet),
        Command::SshConfig(args) => ssh_config::run(env, settings, args),
        Command::Connect(args) => port_forward::connect(settings, args),
        Command::Logs(args) => logs::run(settings, args),
        Command::History(args) => history::run(settings, args),
        Command::Wait(args) => wait::run(settings, args),
    }
}
