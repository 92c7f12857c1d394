//! Watches of one kind of objects.

use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use kube::api::Api;
use kube::runtime::watcher::{Config, Error, Event};
use kube::runtime::{WatchStreamExt as _, watcher};
use tokio::sync::mpsc::Sender;

use super::Wrap;
use crate::commands::watching::Watched;
use crate::live::input::{Change, Input, Origin};

/// Pause after an error, beside the pauses of the library.
const PAUSE: Duration = Duration::from_millis(200);

/// Sends the objects of a kind and their changes until the receiver is closed.
pub(super) async fn follow<O: Watched, K: Send, T: Send>(
    api: Api<O>,
    config: Config,
    origin: Origin,
    sender: Sender<Input>,
    convert: fn(&O) -> (K, T),
    wrap: Wrap<K, T>,
) {
    let mut listed: Vec<(K, T)> = Vec::new();
    observe(api, config, origin, sender, move |event| match event {
        Event::Init => {
            listed.clear();
            None
        }
        Event::InitApply(object) => {
            listed.push(convert(&object));
            None
        }
        Event::InitDone => wrap(Change::All(std::mem::take(&mut listed))),
        Event::Apply(object) => {
            let (key, facts) = convert(&object);
            wrap(Change::Set(key, facts))
        }
        Event::Delete(object) => wrap(Change::Gone(convert(&object).0)),
    })
    .await;
}

/// Sends what objects of a kind mean, one by one; deletions mean nothing.
pub(super) async fn each<O: Watched>(
    api: Api<O>,
    config: Config,
    origin: Origin,
    sender: Sender<Input>,
    convert: fn(O) -> Input,
) {
    observe(api, config, origin, sender, move |event| match event {
        Event::InitApply(object) | Event::Apply(object) => Some(convert(object)),
        Event::Init | Event::InitDone | Event::Delete(_) => None,
    })
    .await;
}

async fn observe<O: Watched>(
    api: Api<O>,
    config: Config,
    origin: Origin,
    sender: Sender<Input>,
    mut input: impl FnMut(Event<O>) -> Option<Input> + Send,
) {
    let mut stream = watcher(api, config).default_backoff().boxed();
    let mut failed = false;
    loop {
        match stream.try_next().await {
            Ok(None) => return,
            Ok(Some(event)) => {
                if std::mem::take(&mut failed) && sender.send(Input::Trouble(origin, None)).await.is_err() {
                    return;
                }
                if let Some(input) = input(event)
                    && sender.send(input).await.is_err()
                {
                    return;
                }
            }
            Err(error) => {
                failed = true;
                if sender.send(Input::Trouble(origin, Some(reason(origin, &error)))).await.is_err() {
                    return;
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Why a watch fails, and what helps.
fn reason(origin: Origin, error: &Error) -> String {
    let api = match error {
        Error::InitialListFailed(kube::Error::Api(status))
        | Error::WatchStartFailed(kube::Error::Api(status))
        | Error::WatchFailed(kube::Error::Api(status)) => Some(&**status),
        Error::WatchError(status) => Some(&**status),
        _ => None,
    };
    let what = origin.what();
    let text = match api {
        Some(status) if matches!(status.code, 401 | 403) => {
            format!("{}; you need list and watch of {what}", status.message)
        }
        Some(status) => format!("{}; trying again", status.message),
        None => "the API server does not respond; trying again. See: neonctl status".to_owned(),
    };
    crate::render::one_line(&text)
}
