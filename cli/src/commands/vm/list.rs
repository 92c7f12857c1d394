//! `vm list`

use futures_util::{StreamExt as _, TryStreamExt as _};
use kube::api::{Api, ListParams};
use kube::runtime::watcher;
use neonvm_api::VirtualMachine;

use super::machines::Machines;
use super::table;
use crate::args::Output;
use crate::args::vm::{List, Place};
use crate::connect::block_on;
use crate::error::{Code, Error, Result};
use crate::report::{Body, Report};
use crate::settings::Settings;

/// Machines of a namespace, or of all.
pub(in crate::commands) fn run(settings: &Settings, args: &List) -> Result<Report> {
    block_on(async {
        let machines = Machines::open(settings, &args.place).await?;
        let api: Api<VirtualMachine> =
            if args.all_namespaces { Api::all(machines.connection.client()) } else { machines.api() };
        let (pending, node) = (args.pending, args.node.clone());
        let wanted = move |vm: &VirtualMachine| {
            let on = vm.status.as_ref().map(|status| status.node.as_str()).unwrap_or_default();
            (!pending || on.is_empty()) && node.as_ref().is_none_or(|node| node == on)
        };
        if args.watch {
            let mut config = watcher::Config::default();
            config.label_selector.clone_from(&args.selector);
            return follow(settings, &args.place, config, &args.output, args.all_namespaces, wanted);
        }
        let mut parameters = ListParams::default();
        parameters.label_selector.clone_from(&args.selector);
        let list = machines.connection.within("cannot list virtual machines", api.list(&parameters)).await?;
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
        Ok(report
            .note(format!("no virtual machines in {place}; make one: neonctl vm create NAME --image IMAGE")))
    })
}

/// A line for each machine now, and for each change, until somebody has seen enough.
pub(super) fn follow(
    settings: &Settings,
    place: &Place,
    config: watcher::Config,
    output: &Output,
    namespaces: bool,
    wanted: impl Fn(&VirtualMachine) -> bool + Send + 'static,
) -> Result<Report> {
    let json = match output.output.as_deref() {
        None | Some("table") => false,
        Some("json") => true,
        Some(other) => {
            return Err(Error::new(Code::Usage, format!("-w cannot be combined with -o {other}"))
                .hint("use -o table or -o json"));
        }
    };
    let headers = !json && !output.no_headers;
    let (settings, place) = (settings.clone(), place.clone());
    let (lines, read) = std::sync::mpsc::sync_channel::<String>(64);
    std::thread::spawn(move || {
        let _ = block_on(async {
            if headers {
                let names: Vec<String> = table::columns(namespaces)
                    .iter()
                    .filter(|c| !c.wide)
                    .map(|c| c.name.to_owned())
                    .collect();
                let _ = lines.send(fixed(&names));
            }
            let machines = Machines::open(&settings, &place).await?;
            let api = if namespaces { Api::all(machines.connection.client()) } else { machines.api() };
            let mut stream = watcher(api, config).boxed();
            loop {
                let machine = match stream.try_next().await {
                    Ok(Some(
                        watcher::Event::Apply(vm)
                        | watcher::Event::InitApply(vm)
                        | watcher::Event::Delete(vm),
                    )) => vm,
                    Ok(Some(_)) => continue,
                    Ok(None) => return Ok(()),
                    Err(_) => {
                        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
                        continue;
                    }
                };
                if !wanted(&machine) {
                    continue;
                }
                let line = if json {
                    serde_json::to_string(&machine).unwrap_or_default()
                } else {
                    let cells = table::row(&machine, namespaces);
                    let shown = table::columns(namespaces);
                    let cells: Vec<String> =
                        cells.into_iter().zip(shown).filter(|(_, c)| !c.wide).map(|(cell, _)| cell).collect();
                    fixed(&cells)
                };
                if lines.send(line).is_err() {
                    return Ok(());
                }
            }
        });
    });
    Ok(Report { body: Body::Lines(Box::new(read.into_iter())), notes: Vec::new(), code: 0, then: None })
}

/// Cells of rows that come one by one: of a width that most fit.
fn fixed(cells: &[String]) -> String {
    const WIDTHS: [usize; 11] = [16, 12, 4, 8, 6, 7, 8, 15, 8, 6, 8];
    let padded = cells.iter().enumerate().map(|(index, cell)| {
        let width = WIDTHS.get(index).copied().unwrap_or(8);
        format!("{cell:<width$}")
    });
    padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}
