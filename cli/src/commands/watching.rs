//! Changes of objects: from a watch, never by polling.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, TryStreamExt as _};
use kube::api::Api;
use kube::runtime::watcher;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::signal::unix::{SignalKind, signal};

use crate::connect::block_on;
use crate::error::{Code, Error, Result};
use crate::render::{json_line, one_line};
use crate::report::{Body, Column, Report};
use crate::settings::Settings;

pub(super) trait Watched:
    kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Serialize + Send + 'static
{
}

impl<K> Watched for K where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Serialize + Send + 'static
{
}

pub(super) enum WaitProgress {
    NotYet,
    Done,
    Never(Error),
}

pub(super) struct Waited<K> {
    pub(super) object: Option<K>,
    pub(super) took: Duration,
}

/// Waits until `look` accepts the object, or its absence. `last`: its last observed state. Ctrl-C detaches with `detached`: the
/// work continues.
pub(super) async fn until<K: Watched>(
    api: Api<K>,
    (name, mut last): (&str, Option<K>),
    limit: Duration,
    detached: impl FnOnce() -> Error,
    timed_out: impl FnOnce(Option<&K>) -> Error,
    mut look: impl FnMut(Option<&K>) -> WaitProgress,
) -> Result<Waited<K>> {
    let start = Instant::now();
    let mut interrupt = signal(SignalKind::interrupt())
        .map_err(|error| Error::new(Code::Failed, "cannot wait").cause(crate::error::reason(&error)))?;
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut stream = watcher(api, config).boxed();
    let deadline = tokio::time::sleep(limit);
    tokio::pin!(deadline);
    let mut initial = None;
    loop {
        let event = tokio::select! {
            event = stream.try_next() => event,
            () = &mut deadline => return Err(timed_out(last.as_ref())),
            _ = interrupt.recv() => return Err(detached()),
        };
        last = match event {
            Ok(Some(watcher::Event::Apply(object))) => Some(object),
            Ok(Some(watcher::Event::InitApply(object))) => {
                initial = Some(object);
                continue;
            }
            Ok(Some(watcher::Event::Init)) => continue,
            Ok(Some(watcher::Event::InitDone)) => initial.take(),
            Ok(Some(watcher::Event::Delete(_))) => None,
            Ok(None) => return Err(Error::new(Code::Failed, "the watch ended")),
            // The watcher goes on by itself, with pauses; the deadline ends it.
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        match look(last.as_ref()) {
            WaitProgress::Done => return Ok(Waited { object: last, took: start.elapsed() }),
            WaitProgress::Never(error) => return Err(error),
            WaitProgress::NotYet => {}
        }
    }
}

/// The cells of an object, one for each column.
type Row<K> = dyn Fn(&K) -> Vec<String> + Send;

pub(super) struct Lines<K> {
    /// The columns; wide ones are left out.
    pub(super) columns: Vec<Column>,
    /// Width of each column that is shown.
    pub(super) widths: Vec<usize>,
    /// What is shown of an object.
    pub(super) row: Box<Row<K>>,
    /// Whether an object is shown at all.
    pub(super) wanted: Box<dyn Fn(&K) -> bool + Send>,
}

/// The output format of what is followed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Follow {
    pub(super) json: bool,
    headers: bool,
}

impl Follow {
    /// # Errors
    /// If the format has an end.
    pub(super) fn from_settings(settings: &Settings) -> Result<Self> {
        let json = match settings.output() {
            None | Some("table") => false,
            Some("json") => true,
            Some(other) => {
                return Err(Error::new(Code::Usage, format!("-w cannot be combined with -o {other}"))
                    .hint("use -o table or -o json"));
            }
        };
        Ok(Self { json, headers: !json && !settings.omits_headers() })
    }
}

/// A line for each object now, and for each change, until the user stops it.
pub(super) fn follow<K: Watched>(
    open: impl AsyncFnOnce() -> Result<Api<K>> + Send + 'static,
    config: watcher::Config,
    Follow { json, headers }: Follow,
    shape: Lines<K>,
) -> Result<Report> {
    let names = shape.columns.iter().map(|column| column.name.to_owned()).collect();
    let head = headers.then(|| shape.fixed(names));
    pages(open, config, head, move |object| {
        let shown = (shape.wanted)(object);
        shown.then(|| if json { json_line(object) } else { shape.fixed((shape.row)(object)) })
    })
}

/// A text for each object now, and for each change that `page` has one for, until the user stops it. `open` makes
/// the API in the thread that uses it.
pub(super) fn pages<K: Watched>(
    open: impl AsyncFnOnce() -> Result<Api<K>> + Send + 'static,
    config: watcher::Config,
    head: Option<String>,
    mut page: impl FnMut(&K) -> Option<String> + Send + 'static,
) -> Result<Report> {
    let (lines, read) = std::sync::mpsc::sync_channel::<String>(64);
    std::thread::spawn(move || {
        let _ = block_on(async {
            if let Some(head) = head {
                let _ = lines.send(head);
            }
            let mut stream = watcher(open().await?, config).boxed();
            loop {
                let object = match stream.try_next().await {
                    Ok(Some(
                        watcher::Event::Apply(object)
                        | watcher::Event::InitApply(object)
                        | watcher::Event::Delete(object),
                    )) => object,
                    Ok(Some(_)) => continue,
                    Ok(None) => return Ok(()),
                    Err(_) => {
                        tokio::time::sleep(Duration::from_millis(500)).await;
                        continue;
                    }
                };
                if let Some(text) = page(&object)
                    && lines.send(text).is_err()
                {
                    return Ok(());
                }
            }
        });
    });
    Ok(Report { body: Body::Lines(Box::new(read.into_iter())), notes: Vec::new(), code: 0, then: None })
}

impl<K> Lines<K> {
    /// Cells of rows that come one by one: of a width that most fit.
    fn fixed(&self, cells: Vec<String>) -> String {
        let shown = cells.into_iter().zip(&self.columns).filter(|(_, column)| !column.wide);
        let padded = shown.enumerate().map(|(index, (cell, _))| {
            let width = self.widths.get(index).copied().unwrap_or(8);
            format!("{:<width$}", one_line(&cell))
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    }
}
