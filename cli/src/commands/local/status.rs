//! `local status`

use crate::args::local::One;
use crate::connect::{Connection, block_on};
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::instance::{self, State};
use crate::report::Report;
use crate::settings::Settings;

/// Health of one local cluster.
pub(crate) fn run(env: &Env, settings: &Settings, args: &One) -> Result<Report> {
    let instance = instance::named(env, settings, &args.which)?;
    instance.demand()?;
    let limit = settings.duration("request-timeout", args.request_timeout.as_deref())?;
    let name = &instance.name;
    let down = |text: String| {
        Error::new(Code::Unhealthy, text).hint(format!("start it: neonctl local up --name {name}"))
    };
    match instance.state() {
        State::Running(_) => {}
        State::Stopped => return Err(down(format!("local cluster {name:?} is stopped"))),
        State::Ended(process) => {
            return Err(down(format!(
                "local cluster {name:?} is not running: process {} ended without being stopped",
                process.pid
            )));
        }
    }
    block_on(async {
        let connection = Connection::local(settings, &instance.kubeconfig(), limit).await?;
        let report = crate::commands::health::report(&connection, name, None).await?;
        Ok(super::firewall(&instance).into_iter().fold(report, Report::note))
    })
}
