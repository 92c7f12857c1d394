//! Many objects at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kube::api::{Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use serde_json::Value;
use tokio::task::JoinSet;

/// Requests to the API server at the same time.
const AT_ONCE: usize = 64;

/// Creates `count` of them; what stands in `status` is taken over.
pub(super) async fn create<K>(
    client: &Client,
    namespaced: bool,
    count: usize,
    make: fn(usize) -> Value,
) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()>,
{
    let next = Arc::new(AtomicUsize::new(0));
    let mut running = JoinSet::new();
    for _ in 0..AT_ONCE {
        let url = K::url_path(&(), namespaced.then_some("default"));
        let (client, next) = (client.clone(), Arc::clone(&next));
        running.spawn(async move {
            let request = kube::core::Request::new(url);
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return anyhow::Ok(());
                }
                let object = make(number);
                let body = serde_json::to_vec(&object)?;
                let made: Value = client.request(request.create(&PostParams::default(), body)?).await?;
                // Servers of a kind with a status of its own drop what is given at first.
                if let Some(status) = object.get("status")
                    && made.get("status") != Some(status)
                    && let Some(name) = object.pointer("/metadata/name").and_then(Value::as_str)
                {
                    let status = Patch::Merge(serde_json::json!({ "status": status }));
                    let patch =
                        request.patch_subresource("status", name, &PatchParams::default(), &status)?;
                    client.request::<Value>(patch).await?;
                }
            }
        });
    }
    while let Some(done) = running.join_next().await {
        done??;
    }
    Ok(())
}
