//! Configurations of images: how they are run, and the digests of their uncompressed layers.

use std::collections::BTreeMap;

use neonvm_types::guest::Process;
use neonvm_types::objects;
use serde::Deserialize;

use crate::reference::Digest;
use crate::source::{Error, ImageSettings, Platform};

/// A configuration document. Docker writes `null` where OCI leaves out.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ImageConfig {
    #[serde(default)]
    architecture: Option<String>,
    #[serde(default)]
    os: Option<String>,
    #[serde(default)]
    variant: Option<String>,
    #[serde(default)]
    created: Option<String>,
    #[serde(default)]
    config: Option<Run>,
    rootfs: RootFs,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Run {
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    env: Option<Vec<String>>,
    user: Option<String>,
    working_dir: Option<String>,
    stop_signal: Option<String>,
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Debug, Deserialize)]
struct RootFs {
    #[serde(default)]
    diff_ids: Option<Vec<Digest>>,
}

impl ImageConfig {
    pub(crate) fn parse(bytes: &[u8], what: &str) -> Result<Self, Error> {
        objects::from_slice(bytes).map_err(|error| Error::no_document(what, bytes, &error))
    }

    /// Digests of the uncompressed layers, lowest first; as many as the manifest has layers.
    pub(crate) fn diff_ids(&self, layers: usize, what: &str) -> Result<&[Digest], Error> {
        let ids = self.rootfs.diff_ids.as_deref().unwrap_or_default();
        if ids.len() != layers {
            let problem = format!("it names {} layers, the manifest {layers}", ids.len());
            return Err(Error::Malformed { what: what.into(), problem });
        }
        Ok(ids)
    }

    /// Checks the platform that an image outside an index names in its own configuration.
    pub(crate) fn check_platform(&self, wanted: &Platform, image: &str) -> Result<(), Error> {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let own = Platform::normalised(&text(&self.os), &text(&self.architecture), self.variant.as_deref());
        if wanted.fit(&own).is_some() {
            return Ok(());
        }
        let available = vec![own.to_string()];
        Err(Error::WrongPlatform { image: image.into(), wanted: wanted.limit(), available })
    }

    pub(crate) fn settings(&self) -> ImageSettings {
        let run = self.config.clone().unwrap_or_default();
        let process = Process {
            entrypoint: run.entrypoint.unwrap_or_default(),
            cmd: run.cmd.unwrap_or_default(),
            env: run.env.unwrap_or_default(),
            user: run.user.unwrap_or_default(),
            working_dir: run.working_dir.unwrap_or_default(),
            stop_signal: run.stop_signal.unwrap_or_default(),
        };
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let own = Platform::normalised(&text(&self.os), &text(&self.architecture), None);
        ImageSettings {
            process,
            labels: run.labels.unwrap_or_default(),
            architecture: own.architecture,
            os: own.os,
            created: self.created.clone(),
        }
    }

    pub(crate) fn created(&self) -> Option<&str> {
        self.created.as_deref()
    }

    pub(crate) fn platform(&self) -> String {
        let unknown = || "unknown".to_owned();
        format!(
            "{}/{}",
            self.os.clone().unwrap_or_else(unknown),
            self.architecture.clone().unwrap_or_else(unknown)
        )
    }
}
