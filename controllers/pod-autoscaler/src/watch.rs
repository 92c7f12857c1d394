//! Watches of autoscalers, of `HorizontalPodAutoscaler`s and of pods: each change updates the cache.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::Api;
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use neonvm_api::PodAutoscaler;
use neonvm_kit::watch::{Listed, each};

use crate::cache::{Key, foreign, key_of};
use crate::context::Context;
use crate::pods::PodView;

/// How many watches there are.
pub(crate) const WATCHES: usize = 3;

/// Watches autoscalers; never returns.
pub(crate) async fn autoscalers(context: Arc<Context>, listed: Arc<Listed>) {
    let api: Api<DeserializeGuard<PodAutoscaler>> = Api::all(context.client.clone());
    let mut seen: HashSet<Key> = HashSet::new();
    let wake = |keys: Vec<Key>| keys.iter().for_each(|key| context.queue.add(key));
    each("autoscalers", api, watcher::Config::default(), (&listed, false), |event| match event {
        watcher::Event::Init => seen.clear(),
        watcher::Event::InitApply(object) => {
            let (key, object) = readable(object);
            if let Some(object) = object
                && context.cache.put_listed(&key, object)
            {
                wake(vec![key.clone()]);
            }
            seen.insert(key);
        }
        watcher::Event::Apply(object) => {
            let (key, object) = readable(object);
            // An object that cannot be parsed stays as it was: that is no reason to stop scaling its target.
            if let Some(object) = object {
                wake(context.cache.put(&key, Some(object)));
            }
        }
        watcher::Event::InitDone => {
            wake(context.cache.retain(&seen));
            seen = HashSet::new();
        }
        watcher::Event::Delete(object) => {
            let (key, _) = readable(object);
            wake(context.cache.put(&key, None));
            context.queue.add(&key);
        }
    })
    .await;
}

fn readable(object: DeserializeGuard<PodAutoscaler>) -> (Key, Option<PodAutoscaler>) {
    match object.0 {
        Ok(object) => (key_of(&object), Some(object)),
        Err(invalid) => {
            let (namespace, name) = (
                invalid.metadata.namespace.clone().unwrap_or_default(),
                invalid.metadata.name.clone().unwrap_or_default(),
            );
            tracing::error!(namespace, name, error = %invalid.error, "an autoscaler cannot be read; it is left alone");
            ((namespace, name), None)
        }
    }
}

/// Watches `HorizontalPodAutoscaler`s; never returns.
pub(crate) async fn wrappers(context: Arc<Context>, listed: Arc<Listed>) {
    let api: Api<HorizontalPodAutoscaler> = Api::all(context.client.clone());
    let mut seen: HashSet<Key> = HashSet::new();
    let wake = |keys: Vec<Key>| keys.iter().for_each(|key| context.queue.add(key));
    // A change of one of ours goes into the status of its object.
    let owner = |hpa: &HorizontalPodAutoscaler| {
        let owner = hpa.owner_references().iter().find(|owner| owner.controller == Some(true));
        owner.and_then(|owner| context.cache.controlled_by(&owner.uid)).into_iter().collect::<Vec<Key>>()
    };
    each("HorizontalPodAutoscalers", api, watcher::Config::default(), (&listed, true), |event| match event {
        watcher::Event::Init => seen.clear(),
        watcher::Event::InitApply(hpa) | watcher::Event::Apply(hpa) => {
            let key = key_of(&hpa);
            wake(context.cache.put_wrapper(&key, foreign(&hpa)));
            wake(owner(&hpa));
            seen.insert(key);
        }
        watcher::Event::InitDone => {
            wake(context.cache.retain_wrappers(&seen));
            seen = HashSet::new();
        }
        watcher::Event::Delete(hpa) => {
            wake(context.cache.put_wrapper(&key_of(&hpa), None));
            wake(owner(&hpa));
        }
    })
    .await;
}

/// Watches pods; never returns. They wake no worker: the next reconcile of their autoscaler reads them.
pub(crate) async fn pods(context: Arc<Context>, listed: Arc<Listed>) {
    let api: Api<Pod> = Api::all(context.client.clone());
    let mut coming: Vec<(String, PodView)> = Vec::new();
    each("pods", api, watcher::Config::default(), (&listed, false), |event| match event {
        watcher::Event::Init => coming.clear(),
        watcher::Event::InitApply(pod) => {
            coming.extend(PodView::from_pod(&pod).map(|view| (pod.namespace().unwrap_or_default(), view)));
        }
        watcher::Event::InitDone => context.pods.replace(std::mem::take(&mut coming)),
        watcher::Event::Apply(pod) => {
            context.pods.put(&pod.namespace().unwrap_or_default(), &pod.name_any(), PodView::from_pod(&pod));
        }
        watcher::Event::Delete(pod) => {
            context.pods.put(&pod.namespace().unwrap_or_default(), &pod.name_any(), None);
        }
    })
    .await;
}
