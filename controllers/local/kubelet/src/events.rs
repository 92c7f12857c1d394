//! Events about pods. They are sent in the background; those that cannot be sent are lost.

use k8s_openapi::api::core::v1::Pod;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource as _};
use tokio::sync::mpsc;

/// Events that wait to be sent; more are dropped.
const WAITING: usize = 256;

type Item = (k8s_openapi::api::core::v1::ObjectReference, Event);

/// Where events go.
#[derive(Clone, Debug)]
pub(crate) struct Events(mpsc::Sender<Item>);

impl Events {
    /// Sends events until all senders are gone.
    pub(crate) fn start(client: Client, node: &str) -> Self {
        let (sender, mut waiting) = mpsc::channel::<Item>(WAITING);
        let reporter = Reporter { controller: "neonvm-kubelet".into(), instance: Some(node.to_owned()) };
        let recorder = Recorder::new(client, reporter);
        tokio::spawn(async move {
            while let Some((about, event)) = waiting.recv().await {
                let sent = tokio::time::timeout(
                    std::time::Duration::from_secs(10),
                    recorder.publish(&event, &about),
                );
                if let Ok(Err(error)) = sent.await {
                    tracing::debug!(%error, "an event is lost");
                }
            }
        });
        Self(sender)
    }

    /// Something that happens as it should.
    pub(crate) fn normal(&self, pod: &Pod, reason: &str, note: impl AsRef<str>) {
        self.send(pod, EventType::Normal, reason, note.as_ref());
    }

    /// Something that went wrong.
    pub(crate) fn warning(&self, pod: &Pod, reason: &str, note: impl AsRef<str>) {
        self.send(pod, EventType::Warning, reason, note.as_ref());
    }

    fn send(&self, pod: &Pod, type_: EventType, reason: &str, note: &str) {
        // Notes have at most 1024 bytes.
        let note = note.chars().take(1000).collect();
        let event =
            Event { type_, reason: reason.into(), note: Some(note), action: reason.into(), secondary: None };
        let _ = self.0.try_send((pod.object_ref(&()), event));
    }
}
