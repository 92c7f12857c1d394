//! What files a volume of the API's objects holds.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{
    ConfigMap, DownwardAPIVolumeFile, KeyToPath, ServiceAccount, ServiceAccountTokenProjection, Volume,
};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use super::atomic::{Payload, is_proper};
use super::{Held, VolumeSources};
use crate::downward::Self_;
use crate::objects::{Data, Kind};
use crate::problem::Problem;

/// Mode of files for which none is given.
const MODE: i32 = 0o644;
/// The config map with the cluster's certificate authority that every namespace has.
const ROOT_CA: &str = "kube-root-ca.crt";
/// How long a request for a token may take.
const DEADLINE: Duration = Duration::from_secs(10);

fn mode(of_item: Option<i32>, default: i32) -> u32 {
    u32::try_from(of_item.unwrap_or(default)).unwrap_or(0) & 0o777
}

/// A volume's files are being gathered.
pub(super) struct Gathering<'a> {
    pub(super) context: &'a VolumeSources,
    pub(super) own: Self_<'a>,
    pub(super) volume: &'a str,
    pub(super) payload: Payload,
    pub(super) held: &'a mut Held,
}

impl Gathering<'_> {
    fn wrong(&self, why: impl std::fmt::Display) -> Problem {
        Problem::mount(self.volume, why)
    }

    fn add(&mut self, path: &str, content: Vec<u8>, mode: u32) -> Result<(), Problem> {
        if !is_proper(path) {
            return Err(self.wrong(format_args!("{path:?} is no path within a volume")));
        }
        self.payload.insert(path.to_owned(), (content, mode));
        Ok(())
    }

    fn entries(
        &mut self,
        data: &Data,
        items: Option<&[KeyToPath]>,
        default: i32,
        optional: bool,
        title: &str,
    ) -> Result<(), Problem> {
        let Some(items) = items.filter(|items| !items.is_empty()) else {
            for (key, content) in data {
                self.add(key, content.clone(), mode(None, default))?;
            }
            return Ok(());
        };
        for item in items {
            match data.get(&item.key) {
                Some(content) => self.add(&item.path, content.clone(), mode(item.mode, default))?,
                None if optional => {}
                None => return Err(self.wrong(format_args!("{title} has no key {:?}", item.key))),
            }
        }
        Ok(())
    }

    async fn object(
        &mut self,
        kind: Kind,
        name: &str,
        items: Option<&[KeyToPath]>,
        default: i32,
        optional: Option<bool>,
    ) -> Result<(), Problem> {
        let namespace = self.context.namespace.clone();
        let seen = self.held.hold(&self.context.objects, kind, &namespace, name).get().await;
        let mut seen = seen.map_err(|error| self.wrong(error))?;
        if seen.is_none() && kind == Kind::ConfigMap && name == ROOT_CA {
            seen = Some(Arc::new(self.publish_authority().await?));
        }
        let optional = optional.unwrap_or(false);
        let title = format!("{} {name:?}", if kind == Kind::Secret { "secret" } else { "configmap" });
        match seen {
            Some(data) => self.entries(&data, items, default, optional, &title),
            None if optional => Ok(()),
            None => Err(self.wrong(format_args!("{title} not found"))),
        }
    }

    /// Publishes the cluster's authority in a namespace where it is not published yet.
    async fn publish_authority(&self) -> Result<Data, Problem> {
        let text = self.context.authority.clone();
        let object = json!({ "metadata": { "name": ROOT_CA }, "data": { "ca.crt": text } });
        let object: ConfigMap = serde_json::from_value(object).map_err(|error| self.wrong(error))?;
        let api: Api<ConfigMap> = Api::namespaced(self.context.client.clone(), &self.context.namespace);
        match api.create(&PostParams::default(), &object).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(self.wrong(error)),
            Ok(_) => {}
        }
        Ok([("ca.crt".to_owned(), text.into_bytes())].into())
    }

    fn downward(&mut self, items: &[DownwardAPIVolumeFile], default: i32) -> Result<(), Problem> {
        for item in items {
            let text = match (&item.field_ref, &item.resource_field_ref) {
                (Some(field), _) => self.own.field(field),
                (None, Some(resource)) => self.own.resource(resource, None),
                (None, None) => None,
            };
            let text = text.ok_or_else(|| self.wrong(format_args!("{:?} has no source", item.path)))?;
            self.add(&item.path, text.into_bytes(), mode(item.mode, default))?;
        }
        Ok(())
    }

    async fn token(&mut self, source: &ServiceAccountTokenProjection) -> Result<(), Problem> {
        let pod = self.own.pod;
        let account =
            pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref()).unwrap_or("default");
        let seconds = source.expiration_seconds.unwrap_or(3600);
        let key = (source.audience.clone().unwrap_or_default(), seconds);
        let token = match self.held.token(&key) {
            Some(token) => token,
            None => {
                let bound = BoundObjectReference {
                    api_version: Some("v1".into()),
                    kind: Some("Pod".into()),
                    name: pod.metadata.name.clone(),
                    uid: pod.metadata.uid.clone(),
                };
                let request = TokenRequest {
                    spec: Some(TokenRequestSpec {
                        audiences: source.audience.clone().map(|audience| vec![audience]),
                        expiration_seconds: Some(seconds),
                        bound_object_ref: Some(bound),
                    }),
                    ..TokenRequest::default()
                };
                let api: Api<ServiceAccount> =
                    Api::namespaced(self.context.client.clone(), &self.context.namespace);
                let parameters = PostParams::default();
                let asked =
                    api.create_subresource::<_, TokenRequest>("token", account, &parameters, &request);
                let answer = tokio::time::timeout(DEADLINE, asked).await;
                let answer =
                    answer.map_err(|_| self.wrong("no token within 10 s"))?.map_err(|e| self.wrong(e))?;
                let token = answer.status.map(|status| status.token.unwrap_or_default()).unwrap_or_default();
                self.held.keep_token(key, token.clone(), u64::try_from(seconds).unwrap_or(3600));
                token
            }
        };
        self.add(&source.path, token.into_bytes(), 0o600)
    }

    /// Gathers the files of a volume. False: it is another kind of volume.
    pub(super) async fn gather(&mut self, volume: &Volume) -> Result<bool, Problem> {
        if let Some(source) = &volume.config_map {
            let default = source.default_mode.unwrap_or(MODE);
            self.object(Kind::ConfigMap, &source.name, source.items.as_deref(), default, source.optional)
                .await?;
        } else if let Some(source) = &volume.secret {
            let (default, name) =
                (source.default_mode.unwrap_or(MODE), source.secret_name.as_deref().unwrap_or(""));
            self.object(Kind::Secret, name, source.items.as_deref(), default, source.optional).await?;
        } else if let Some(source) = &volume.downward_api {
            self.downward(source.items.as_deref().unwrap_or_default(), source.default_mode.unwrap_or(MODE))?;
        } else if let Some(all) = &volume.projected {
            let default = all.default_mode.unwrap_or(MODE);
            for source in all.sources.iter().flatten() {
                if let Some(map) = &source.config_map {
                    self.object(Kind::ConfigMap, &map.name, map.items.as_deref(), default, map.optional)
                        .await?;
                } else if let Some(secret) = &source.secret {
                    self.object(
                        Kind::Secret,
                        &secret.name,
                        secret.items.as_deref(),
                        default,
                        secret.optional,
                    )
                    .await?;
                } else if let Some(own) = &source.downward_api {
                    self.downward(own.items.as_deref().unwrap_or_default(), default)?;
                } else if let Some(token) = &source.service_account_token {
                    self.token(token).await?;
                } else {
                    return Err(Problem::last(
                        "UnsupportedVolume",
                        self.wrong("its source is not known here").message,
                    ));
                }
            }
        } else {
            return Ok(false);
        }
        Ok(true)
    }
}

/// Whether a volume holds something that only root may read.
pub(super) fn is_secret(volume: &Volume) -> bool {
    let projected = volume.projected.iter().flat_map(|all| all.sources.iter().flatten());
    let mut secret =
        projected.filter(|source| source.secret.is_some() || source.service_account_token.is_some());
    volume.secret.is_some() || secret.next().is_some()
}
