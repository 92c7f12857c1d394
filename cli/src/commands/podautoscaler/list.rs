//! `podautoscaler list`, `podautoscaler get`

use kube::api::{Api, ListParams};
use kube::runtime::watcher;
use neonvm_api::PodAutoscaler;

use super::{api, find, name_of, table, undefined};
use crate::args::Output;
use crate::args::podautoscaler::{Get, List};
use crate::args::vm::NamespaceArgs;
use crate::commands::vm::machines::Machines;
use crate::commands::watching::{self, Lines};
use crate::connect::block_on;
use crate::error::Result;
use crate::report::Report;
use crate::settings::Settings;

/// Lists the pod autoscalers of one namespace or of all.
pub(in crate::commands) fn list(settings: &Settings, args: &List) -> Result<Report> {
    if args.watch {
        let mut config = watcher::Config::default();
        config.label_selector.clone_from(&args.selector);
        return follow(settings, &args.place, config, &args.output, args.all_namespaces, |_| true);
    }
    block_on(async {
        let place = Machines::open(settings, &args.place).await?;
        let api: Api<PodAutoscaler> =
            if args.all_namespaces { Api::all(place.connection.client()) } else { api(&place) };
        let mut parameters = ListParams::default();
        parameters.label_selector.clone_from(&args.selector);
        let attempt = "cannot list pod autoscalers";
        let list = place.connection.within(attempt, api.list(&parameters)).await;
        let found = list.map_err(|error| undefined(error, attempt))?.items;
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
            format!("namespace {}", place.namespace)
        };
        Ok(report.note(format!("no pod autoscalers in {place}; create one: kubectl apply -f FILE")))
    })
}

/// Shows pod autoscalers by name.
pub(in crate::commands) fn get(settings: &Settings, args: &Get) -> Result<Report> {
    let found = block_on(async {
        let place = Machines::open(settings, &args.place).await?;
        let mut found = Vec::new();
        for name in &args.names {
            found.push(find(&place, name).await?);
        }
        Ok(found)
    })?;
    if !args.watch {
        return Ok(Report::document(table::document(&found, false, false)));
    }
    let names = args.names.clone();
    let wanted = move |object: &PodAutoscaler| names.iter().any(|name| name == name_of(object));
    follow(settings, &args.place, watcher::Config::default(), &args.output, false, wanted)
}

/// A line for each pod autoscaler now, and for each change.
fn follow(
    settings: &Settings,
    place: &NamespaceArgs,
    config: watcher::Config,
    output: &Output,
    namespaces: bool,
    wanted: impl Fn(&PodAutoscaler) -> bool + Send + 'static,
) -> Result<Report> {
    let (settings, place) = (settings.clone(), place.clone());
    let open = async move || {
        let place = Machines::open(&settings, &place).await?;
        Ok(if namespaces { Api::all(place.connection.client()) } else { api(&place) })
    };
    let shape = Lines {
        columns: table::columns(namespaces),
        widths: if namespaces {
            &[12, 16, 20, 8, 8, 8, 24, 9, 10, 6]
        } else {
            &[16, 20, 8, 8, 8, 24, 9, 10, 6]
        },
        row: Box::new(move |object| table::row(object, namespaces)),
        wanted: Box::new(wanted),
    };
    watching::follow(open, config, output, shape)
}
