//! What has been shown to clients, and what is there.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, ObjectMeta};

/// The object that marks the start of a round for the follower.
pub(super) const MARKER: &str = "marker";
const ANNOTATION: &str = "example.com/token";

/// One version of one object, as some client has seen it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Observation {
    pub(super) name: String,
    pub(super) version: u64,
    /// What the write carried.
    pub(super) token: u64,
    pub(super) deleted: bool,
}

/// Every version shown so far; each belongs to one write only.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    shown: BTreeMap<u64, Observation>,
}

impl Ledger {
    /// The highest version shown.
    pub(super) fn highest(&self) -> u64 {
        self.shown.last_key_value().map_or(0, |(version, _)| *version)
    }

    /// Records an observation; an error if its version has been shown for something else.
    pub(super) fn note(&mut self, observation: Observation) -> anyhow::Result<()> {
        if let Some(known) = self.shown.get(&observation.version) {
            ensure!(
                *known == observation,
                "version {} was given twice: {known:?}, {observation:?}",
                observation.version
            );
        }
        self.shown.insert(observation.version, observation);
        Ok(())
    }
}

/// Reads an object; an error if it is not whole.
pub(super) fn observe(object: &ConfigMap, deleted: bool) -> anyhow::Result<Observation> {
    let name = object.metadata.name.clone().context("an object without a name")?;
    let version = object.metadata.resource_version.as_deref().unwrap_or("").parse();
    let version = version.with_context(|| format!("the version of {name}"))?;
    let data = object.data.as_ref().with_context(|| format!("{name} has no data"))?;
    let text = data.get("token").with_context(|| format!("{name} has no token"))?;
    let token: u64 = text.parse()?;
    let noted = object.metadata.annotations.as_ref().and_then(|all| all.get(ANNOTATION));
    ensure!(noted == Some(text), "{name} is half written: token {text}, annotation {noted:?}");
    ensure!(
        data.get("filler") == Some(&filler(token)),
        "{name} is half written: the filler is not that of {token}"
    );
    Ok(Observation { name, version, token, deleted })
}

/// Up to 2 KiB that only this token has.
fn filler(token: u64) -> String {
    let times = usize::try_from(token % 128).unwrap_or(0);
    format!("{token:016x}").repeat(times)
}

/// The object that a write with this token leaves.
pub(super) fn object(name: &str, token: u64) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            annotations: Some([(ANNOTATION.to_owned(), token.to_string())].into()),
            ..ObjectMeta::default()
        },
        data: Some([("token".to_owned(), token.to_string()), ("filler".to_owned(), filler(token))].into()),
        ..ConfigMap::default()
    }
}

#[derive(Debug)]
pub(super) struct Listed {
    pub(super) version: u64,
    /// Name to version and token, without the marker.
    pub(super) objects: BTreeMap<String, (u64, u64)>,
}

impl Listed {
    pub(super) fn observations(&self) -> impl Iterator<Item = Observation> + '_ {
        self.objects.iter().map(|(name, (version, token))| Observation {
            name: name.clone(),
            version: *version,
            token: *token,
            deleted: false,
        })
    }
}

pub(super) fn ours(object: &ConfigMap) -> bool {
    object.metadata.name.as_deref().is_some_and(|name| name.starts_with("write-"))
}

/// Lists; an error if an object is not whole.
pub(super) async fn list(api: &Api<ConfigMap>) -> anyhow::Result<Listed> {
    let list = api.list(&ListParams::default()).await?;
    let version = list.metadata.resource_version.as_deref().unwrap_or("").parse()?;
    let mut objects = BTreeMap::new();
    for object in list.items.iter().filter(|object| ours(object)) {
        let seen = observe(object, false)?;
        ensure!(seen.version <= version, "{seen:?} is newer than its list, {version}");
        if objects.insert(seen.name.clone(), (seen.version, seen.token)).is_some() {
            bail!("{} is listed twice", seen.name);
        }
    }
    Ok(Listed { version, objects })
}
