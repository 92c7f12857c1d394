//! `top`: the live view, or a table of VMs or nodes.

mod live;
mod nodes;
mod order;
mod vms;

use crate::args::Args;
use crate::args::top::{Command, Top};
use crate::env::Env;
use crate::error::Result;
use crate::report::Report;
use crate::settings::Settings;

/// The live view, or one of the tables.
pub(super) fn run(env: &Env, settings: &Settings, args: &Args, top: &Top) -> Result<Report> {
    match &top.command {
        None => live::run(env, settings, args, &top.live),
        Some(Command::Vms(args)) => vms::run(settings, args),
        Some(Command::Nodes(args)) => nodes::run(settings, args),
    }
}
