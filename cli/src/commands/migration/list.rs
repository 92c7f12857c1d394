//! `migration list`, `migration get`

use kube::api::{Api, ListParams};
use kube::runtime::watcher;
use neonvm_api::VirtualMachineMigration;

use super::{api, find, is_over, name_of, table};
use crate::args::Output;
use crate::args::migration::{Get, List};
use crate::args::vm::NamespaceArgs;
use crate::commands::vm::machines::Machines;
use crate::commands::watching::{self, Lines};
use crate::connect::block_on;
use crate::error::Result;
use crate::report::Report;
use crate::settings::Settings;

/// Moves of a namespace, or of all.
pub(in crate::commands) fn list(settings: &Settings, args: &List) -> Result<Report> {
    let (active, vm) = (args.active, args.vm.clone());
    let wanted = move |migration: &VirtualMachineMigration| {
        (!active || !is_over(migration)) && vm.as_ref().is_none_or(|vm| *vm == migration.spec.vm_name)
    };
    if args.watch {
        let mut config = watcher::Config::default();
        config.label_selector.clone_from(&args.selector);
        return follow(settings, &args.place, config, &args.output, args.all_namespaces, wanted);
    }
    block_on(async {
        let machines = Machines::open(settings, &args.place).await?;
        let api: Api<VirtualMachineMigration> =
            if args.all_namespaces { Api::all(machines.connection.client()) } else { api(&machines) };
        let mut parameters = ListParams::default();
        parameters.label_selector.clone_from(&args.selector);
        let list = machines.connection.within("cannot list migrations", api.list(&parameters)).await?;
        let mut found: Vec<VirtualMachineMigration> = list.items.into_iter().filter(wanted).collect();
        if args.last {
            let newest = found.into_iter().max_by_key(|migration| {
                let made = migration.metadata.creation_timestamp.as_ref();
                (made.map(|time| time.0.as_second()), name_of(migration).to_owned())
            });
            found = newest.into_iter().collect();
        }
        let mut document = table::document(&found, args.all_namespaces, true);
        if let Some(field) = &args.sort_by {
            crate::render::sort(&mut document, field)?;
        }
        let report = Report::document(document);
        if !found.is_empty() {
            return Ok(report);
        }
        Ok(report.note("no migrations; start one: neonctl vm migrate NAME"))
    })
}

/// Shows migrations by name.
pub(in crate::commands) fn get(settings: &Settings, args: &Get) -> Result<Report> {
    let found = block_on(async {
        let machines = Machines::open(settings, &args.place).await?;
        let mut found = Vec::new();
        for name in &args.names {
            found.push(find(&machines, name).await?);
        }
        Ok(found)
    })?;
    if !args.watch {
        return Ok(Report::document(table::document(&found, false, false)));
    }
    let names = args.names.clone();
    let wanted =
        move |migration: &VirtualMachineMigration| names.iter().any(|name| name == name_of(migration));
    follow(settings, &args.place, watcher::Config::default(), &args.output, false, wanted)
}

/// A line for each move now, and for each change.
fn follow(
    settings: &Settings,
    place: &NamespaceArgs,
    config: watcher::Config,
    output: &Output,
    namespaces: bool,
    wanted: impl Fn(&VirtualMachineMigration) -> bool + Send + 'static,
) -> Result<Report> {
    let (settings, place) = (settings.clone(), place.clone());
    let open = async move || {
        let machines = Machines::open(&settings, &place).await?;
        Ok(if namespaces { Api::all(machines.connection.client()) } else { api(&machines) })
    };
    let shape = Lines {
        columns: table::columns(namespaces),
        widths: if namespaces {
            &[12, 16, 12, 6, 6, 9, 8, 8, 6, 12, 6]
        } else {
            &[16, 12, 6, 6, 9, 8, 8, 6, 12, 6]
        },
        row: Box::new(move |migration| table::row(migration, namespaces)),
        wanted: Box::new(wanted),
    };
    watching::follow(open, config, output, shape)
}
