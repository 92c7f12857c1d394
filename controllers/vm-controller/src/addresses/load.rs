//! Reading the settings and the pools, and giving back what belongs to no VM.

use std::collections::BTreeMap;
use std::net::IpAddr;

use futures_util::{StreamExt as _, TryStreamExt as _};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, Client};
use neonvm_api::{IPPool, VirtualMachine};
use neonvm_core_overlay::{Book, Settings, Shared};
use neonvm_types::NamespacedName;

use super::{AddressConfig, AddressSource};
use crate::cache::Cache;
use crate::clock::now;
use crate::request::{is_missing, within};

/// Objects in one answer.
const PAGE: u32 = 500;
/// VMs that are requested at the same time.
const ASKED: usize = 16;

/// Reads everything. The error is the reason.
pub(super) async fn load(
    client: &Client,
    config: &AddressConfig,
    namespace: &str,
    cache: &Cache,
) -> Result<Book, String> {
    let settings = settings(client, &config.source).await?;
    let rest = i64::try_from(config.quarantine.as_secs()).unwrap_or(i64::MAX);
    let mut book = Book::new(settings, rest);
    let pools: Api<IPPool> = Api::namespaced(client.clone(), namespace);
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let list = within(pools.list(&page))
            .await
            .map_err(|error| describe("the address pools cannot be read", &error))?;
        for pool in &list.items {
            book.read(pool);
        }
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => break,
        }
    }
    let alive = sweep(client, &mut book, cache).await?;
    report(&book.restore(now().unix(), &alive));
    Ok(book)
}

/// All VMs with the addresses in their status.
pub(super) fn vms(cache: &Cache) -> BTreeMap<String, Option<IpAddr>> {
    cache.all_vms().iter().map(|vm| (id_of(vm), address_of(vm))).collect()
}

/// How many addresses more than one VM has.
pub(crate) fn shared(cache: &Cache) -> usize {
    let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for address in vms(cache).into_values().flatten() {
        *counts.entry(address).or_default() += 1;
    }
    counts.into_values().filter(|count| *count > 1).count()
}

/// Logs addresses that several VMs have.
pub(super) fn report(shared: &[Shared]) {
    for Shared { address, vms } in shared {
        let vms = vms.join(", ");
        tracing::error!(%address, vms, "several VMs have the same address on the overlay network; the first one keeps it");
    }
}

fn describe(what: &str, error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{what}: {}", status.message),
        _ => format!("{what}: the API server cannot be reached"),
    }
}

async fn settings(client: &Client, source: &AddressSource) -> Result<Settings, String> {
    let text = match source {
        AddressSource::Settings(settings) => return Ok(settings.as_ref().clone()),
        AddressSource::File(path) => {
            let read = tokio::fs::read_to_string(path).await;
            read.map_err(|error| format!("{}: {error}", path.display()))?
        }
        AddressSource::Attachment { namespace, name } => {
            let gvk = GroupVersionKind::gvk("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition");
            let kind = ApiResource::from_gvk_with_plural(&gvk, "network-attachment-definitions");
            let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind);
            let what = format!("network attachment {namespace}/{name}");
            let object = within(api.get(name)).await.map_err(|error| describe(&what, &error))?;
            let config = object.data.pointer("/spec/config").and_then(|config| config.as_str());
            config.ok_or_else(|| format!("{what} has no spec.config"))?.to_owned()
        }
    };
    Settings::parse(&text).map_err(|error| error.to_string())
}

/// Releases addresses of VMs that do not exist. The cache may be outdated, so each VM missing in it is looked up first. All VMs, with the
/// addresses in their status.
async fn sweep(
    client: &Client,
    book: &mut Book,
    cache: &Cache,
) -> Result<BTreeMap<String, Option<IpAddr>>, String> {
    let mut alive = vms(cache);
    let missing: Vec<String> = book.ids().filter(|id| !alive.contains_key(*id)).map(str::to_owned).collect();
    let asked = missing.into_iter().map(|id| {
        let client = client.clone();
        async move {
            let Some((namespace, name)) = id.split_once('/') else { return Ok(None) };
            let api: Api<VirtualMachine> = Api::namespaced(client, namespace);
            match within(api.get_opt(name)).await {
                Ok(vm) => Ok(vm.map(|vm| (id_of(&vm), address_of(&vm)))),
                Err(error) if is_missing(&error) => Ok(None),
                Err(error) => Err(describe(&format!("machine {id} cannot be looked for"), &error)),
            }
        }
    });
    let found: Vec<Option<(String, Option<IpAddr>)>> =
        futures_util::stream::iter(asked).buffer_unordered(ASKED).try_collect().await?;
    alive.extend(found.into_iter().flatten());
    let count = book.sweep(now().unix(), &alive);
    if count > 0 {
        tracing::info!(count, "addresses of VMs that are gone are given back");
    }
    Ok(alive)
}

fn id_of(vm: &VirtualMachine) -> String {
    let meta = &vm.metadata;
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    NamespacedName::new(part(&meta.namespace), part(&meta.name)).to_string()
}

fn address_of(vm: &VirtualMachine) -> Option<IpAddr> {
    vm.status.as_ref().and_then(|status| status.extra_net_ip.parse().ok())
}
