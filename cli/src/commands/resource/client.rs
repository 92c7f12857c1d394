//! Access to the resources of one namespace.

use kube::api::{Api, ListParams};
use kube::core::NamespaceResourceScope;

use super::Resource;
use super::nearest::nearest;
use crate::connect::Connection;
use crate::error::{Code, Error, Result};
use crate::settings::Settings;

/// A connection, and the namespace of the objects that a command is about.
pub(in crate::commands) struct NamespaceClient {
    pub(in crate::commands) connection: Connection,
    pub(in crate::commands) namespace: String,
}

impl NamespaceClient {
    pub(in crate::commands) async fn open(settings: &Settings) -> Result<Self> {
        let connection = Connection::open(settings).await?;
        let namespace =
            settings.place().namespace.clone().unwrap_or_else(|| connection.namespace().to_owned());
        Ok(Self { connection, namespace })
    }

    /// The objects of the namespace.
    pub(in crate::commands) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.connection.client(), &self.namespace)
    }

    /// The objects of the namespace, or of all namespaces.
    pub(in crate::commands) fn api_of<K>(&self, all_namespaces: bool) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        if all_namespaces { Api::all(self.connection.client()) } else { self.api() }
    }

    /// The object of this name.
    ///
    /// # Errors
    ///
    /// [`Code::NotFound`], with the name that was probably meant, if there is none.
    pub(in crate::commands) async fn find<K: Resource>(&self, name: &str) -> Result<K> {
        let attempt = format!("cannot get {} {name:?}", K::ONE);
        match self.connection.within(&attempt, self.api::<K>().get_opt(name)).await? {
            Some(object) => Ok(object),
            None => Err(self.not_found::<K>(name).await),
        }
    }

    /// The objects of these names, in their order.
    ///
    /// # Errors
    ///
    /// As [`Self::find`].
    pub(in crate::commands) async fn find_all<K: Resource>(&self, names: &[String]) -> Result<Vec<K>> {
        let mut found = Vec::new();
        for name in names {
            found.push(self.find(name).await?);
        }
        Ok(found)
    }

    /// The error about an object that does not exist.
    pub(in crate::commands) async fn not_found<K: Resource>(&self, name: &str) -> Error {
        let namespace = &self.namespace;
        let error =
            Error::new(Code::NotFound, format!("{} {name:?} not found in namespace {namespace:?}", K::ONE));
        let names: Vec<String> =
            match self.connection.within("", self.api::<K>().list_metadata(&ListParams::default())).await {
                Ok(list) => list.items.into_iter().filter_map(|item| item.metadata.name).collect(),
                Err(error) if error.code == Code::NotFound => {
                    return undefined::<K>(error, &format!("cannot get {} {name:?}", K::ONE));
                }
                Err(_) => Vec::new(),
            };
        match nearest(name, &names) {
            Some(meant) => error.hint(format!("did you mean {meant:?}?")),
            None => error.hint(format!("list the {}: neonctl {} list -n {namespace}", K::MANY, K::NOUN)),
        }
    }
}

/// The error of a list whose custom resource definition does not exist; other errors as they are.
pub(super) fn undefined<K: Resource>(error: Error, attempt: &str) -> Error {
    if error.code != Code::NotFound {
        return error;
    }
    let definition = format!("{}.{}", K::plural(&()), K::group(&()));
    Error::new(Code::NotFound, attempt)
        .cause(format!("this cluster has no definition of {definition}"))
        .hint("see what else is missing: neonctl status")
}
