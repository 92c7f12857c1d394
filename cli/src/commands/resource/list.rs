//! `list` and `get` of every resource.

use kube::api::ListParams;
use kube::runtime::watcher;

use super::{NamespaceClient, Resource, columns, document, name_of, row, table, undefined};
use crate::args::ListArgs;
use crate::commands::watching::{self, Follow, Lines};
use crate::connect::block_on;
use crate::error::Result;
use crate::report::{Report, list_of};
use crate::settings::Settings;

/// Lists the objects that `filter` accepts, or follows them with `--watch`. `choose` reduces what was found.
pub(crate) fn list<K: Resource>(
    settings: &Settings,
    args: &ListArgs,
    filter: impl Fn(&K) -> bool + Send + 'static,
    choose: impl FnOnce(Vec<K>) -> Vec<K>,
) -> Result<Report> {
    let all = settings.place().all_namespaces;
    if args.watch {
        let mut config = watcher::Config::default();
        config.label_selector.clone_from(&args.selector);
        return follow(settings, config, all, filter);
    }
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let mut parameters = ListParams::default();
        parameters.label_selector.clone_from(&args.selector);
        let attempt = format!("cannot list {}", K::MANY);
        let api = client.api_of::<K>(all);
        let list = client.connection.within(&attempt, api.list(&parameters)).await;
        let found = list.map_err(|error| undefined::<K>(error, &attempt))?.items;
        let found = choose(found.into_iter().filter(|object| filter(object)).collect());
        let is_empty = found.is_empty();
        let mut table = table(&found, all);
        let report = match &args.sort_by {
            Some(field) => {
                table.value = list_of(&found);
                crate::render::sort(&mut table, field)?;
                Report::document(table)
            }
            None => Report::table(table, move || list_of(&found)),
        };
        if !is_empty {
            return Ok(report);
        }
        let place = if all { "any namespace".to_owned() } else { format!("namespace {}", client.namespace) };
        Ok(report.note(format!("no {} in {place}; {}", K::MANY, K::CREATE)))
    })
}

/// Shows objects by name, or follows them with `--watch`.
pub(crate) fn get<K: Resource>(settings: &Settings, names: &[String], watch: bool) -> Result<Report> {
    let found: Vec<K> = block_on(async { NamespaceClient::open(settings).await?.find_all(names).await })?;
    if !watch {
        return Ok(Report::document(document(&found)));
    }
    let names = names.to_vec();
    let filter = move |object: &K| names.iter().any(|name| name == name_of(object));
    follow(settings, watcher::Config::default(), false, filter)
}

/// A line for each object now, and for each change, until the user stops it.
fn follow<K: Resource>(
    settings: &Settings,
    config: watcher::Config,
    namespaces: bool,
    filter: impl Fn(&K) -> bool + Send + 'static,
) -> Result<Report> {
    let format = Follow::from_settings(settings)?;
    let settings = settings.clone();
    let open = async move || Ok(NamespaceClient::open(&settings).await?.api_of::<K>(namespaces));
    let first = namespaces.then_some(12);
    let shape = Lines {
        columns: columns::<K>(namespaces),
        widths: first.into_iter().chain(K::WIDTHS.iter().copied()).collect(),
        row: Box::new(move |object| row(object, namespaces)),
        wanted: Box::new(filter),
    };
    watching::follow(open, config, format, shape)
}
