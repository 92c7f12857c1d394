//! `vm list`

use kube::api::{Api, ListParams};
use kube::runtime::watcher;
use neonvm_api::VirtualMachine;

use super::machines::Machines;
use super::table;
use crate::args::Output;
use crate::args::vm::{List, NamespaceArgs};
use crate::commands::watching::{self, Lines};
use crate::connect::block_on;
use crate::error::Result;
use crate::report::Report;
use crate::settings::Settings;

/// Machines of a namespace, or of all.
pub(in crate::commands) fn run(settings: &Settings, args: &List) -> Result<Report> {
    block_on(async {
        let machines = Machines::open(settings, &args.place).await?;
        let api: Api<VirtualMachine> =
            if args.all_namespaces { Api::all(machines.connection.client()) } else { machines.api() };
        let (pending, migrating, node) = (args.pending, args.migrating, args.node.clone());
        let wanted = move |vm: &VirtualMachine| {
            let on = vm.status.as_ref().map(|status| status.node.as_str()).unwrap_or_default();
            let moves = vm.status.as_ref().is_some_and(|status| status.migration.is_some());
            (!pending || on.is_empty())
                && (!migrating || moves)
                && node.as_ref().is_none_or(|node| node == on)
        };
        if args.watch {
            let mut config = watcher::Config::default();
            config.label_selector.clone_from(&args.selector);
            return follow(settings, &args.place, config, &args.output, args.all_namespaces, wanted);
        }
        let mut parameters = ListParams::default();
        parameters.label_selector.clone_from(&args.selector);
        let list = machines.connection.within("cannot list VMs", api.list(&parameters)).await?;
        let found: Vec<VirtualMachine> = list.items.into_iter().filter(|vm| wanted(vm)).collect();
        let mut document = table::document(&found, args.all_namespaces, true);
        if let Some(field) = &args.sort_by {
            crate::render::sort(&mut document, field)?;
        }
        let report = Report::document(document);
        if !found.is_empty() {
            return Ok(report);
        }
        let place = if args.all_namespaces {
            "any namespace".to_owned()
        } else {
            format!("namespace {}", machines.namespace)
        };
        Ok(report.note(format!("no VMs in {place}; create one: neonctl vm create NAME --image IMAGE")))
    })
}

/// A line for each machine now, and for each change, until the user stops it.
pub(super) fn follow(
    settings: &Settings,
    place: &NamespaceArgs,
    config: watcher::Config,
    output: &Output,
    namespaces: bool,
    wanted: impl Fn(&VirtualMachine) -> bool + Send + 'static,
) -> Result<Report> {
    let (settings, place) = (settings.clone(), place.clone());
    let open = async move || {
        let machines = Machines::open(&settings, &place).await?;
        Ok(if namespaces { Api::all(machines.connection.client()) } else { machines.api() })
    };
    let shape = Lines {
        columns: table::columns(namespaces),
        widths: if namespaces {
            &[12, 16, 12, 4, 8, 6, 7, 8, 15, 8, 6]
        } else {
            &[16, 12, 4, 8, 6, 7, 8, 15, 8, 6]
        },
        row: Box::new(move |machine| table::row(machine, namespaces)),
        wanted: Box::new(wanted),
    };
    watching::follow(open, config, output, shape)
}
