//! `vm get`

use super::machines::Machines;
use super::table;
use crate::args::vm::Get;
use crate::connect::block_on;
use crate::error::Result;
use crate::report::Report;
use crate::settings::Settings;

/// Machines by name.
pub(in crate::commands) fn run(settings: &Settings, args: &Get) -> Result<Report> {
    block_on(async {
        let machines = Machines::open(settings, &args.place).await?;
        let mut found = Vec::new();
        for name in &args.names {
            found.push(machines.get(name).await?);
        }
        let report = Report::document(table::document(&found, false, false));
        if !args.watch {
            return Ok(report);
        }
        let names = args.names.clone();
        super::list::follow(
            settings,
            &args.place,
            kube::runtime::watcher::Config::default(),
            &args.output,
            false,
            move |vm| names.iter().any(|name| name == super::machines::name_of(vm)),
        )
    })
}
