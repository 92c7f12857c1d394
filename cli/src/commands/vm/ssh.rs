//! `vm ssh`

pub(super) mod agent;
pub(super) mod session;
mod words;

use crate::args::vm::Ssh;
use crate::env::Env;
use crate::error::Result;
use crate::report::Report;
use crate::settings::Settings;
use session::{Client, Door};

pub(in crate::commands) fn run(env: &Env, settings: &Settings, args: &Ssh) -> Result<Report> {
    let door = Door { name: &args.name, port: args.port, identity: args.identity.as_deref() };
    let mut client = Client::open(env, settings, "ssh", &door)?;
    for forward in &args.local_forward {
        client.command.args(["-L", forward]);
    }
    let mut words = vec!["-l".to_owned(), args.login.clone(), args.name.clone()];
    words.extend(args.command.iter().cloned());
    Ok(client.report(words))
}
