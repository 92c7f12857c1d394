//! Logs of containers. Processes write them to files themselves; inotify notifies readers of new lines.

mod format;
mod rotate;

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use rustix::fs::inotify;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

use super::body::{Query, Response, text};
use crate::pod::Handle;
use format::Filter;
pub(crate) use rotate::keep_short;

/// Chunks that wait for a slow reader.
const WAITING: usize = 8;
const CHUNK: usize = 64 << 10;

#[derive(Clone, Debug, Default)]
struct LogRequest {
    follow: bool,
    previous: bool,
    tail: Option<u64>,
    filter: Filter,
    /// Most bytes of the answer.
    limit: Option<u64>,
}

fn wanted(query: &Query) -> Result<LogRequest, String> {
    let since = match (
        query.number::<i64>("sinceSeconds")?,
        query.get("sinceTime").filter(|text| !text.is_empty()),
    ) {
        (Some(seconds), _) => Some(jiff::Timestamp::now() - jiff::SignedDuration::from_secs(seconds)),
        (None, Some(text)) => {
            Some(text.parse().map_err(|_| format!("sinceTime must be a time, not {text:?}"))?)
        }
        (None, None) => None,
    };
    Ok(LogRequest {
        follow: query.is_on("follow"),
        previous: query.is_on("previous"),
        tail: query.number("tailLines")?,
        filter: Filter { since, timestamps: query.is_on("timestamps") },
        limit: query.number("limitBytes")?,
    })
}

/// `/containerLogs/…`
pub(super) async fn serve(handle: &Arc<Handle>, container: &str, query: &Query) -> Response {
    let wanted = match wanted(query) {
        Ok(wanted) => wanted,
        Err(why) => return text(StatusCode::BAD_REQUEST, why),
    };
    let name = container.to_owned();
    let seen = handle.view.borrow().containers.get(container).cloned();
    let restarts = match seen {
        None => {
            return text(StatusCode::BAD_REQUEST, format!("container {container} is not valid for this pod"));
        }
        Some(view) if wanted.previous => match view.restarts.checked_sub(1) {
            Some(previous) => previous,
            None => {
                let why = format!("previous terminated container {container:?} not found");
                return text(StatusCode::BAD_REQUEST, why);
            }
        },
        Some(view) => view.restarts,
    };
    let path = handle.directory.log(&name, restarts);
    if !path.exists() && !wanted.follow {
        let why = format!("container {container:?} is waiting to start");
        return text(StatusCode::BAD_REQUEST, why);
    }
    let (chunks, receiver) = mpsc::channel(WAITING);
    let handle = Arc::clone(handle);
    tokio::spawn(async move {
        let reader = Reader { handle, container: name, restarts, path };
        if let Err(error) = reader.run(&wanted, &chunks).await {
            let _ = chunks.send(Err(error)).await;
        }
    });
    let frames = futures_util::stream::unfold(receiver, async |mut receiver| {
        let chunk: io::Result<Bytes> = receiver.recv().await?;
        Some((chunk.map(Frame::data), receiver))
    });
    let mut response = text(StatusCode::OK, "");
    *response.body_mut() = StreamBody::new(frames).boxed_unsync();
    response
}

/// The output of a container from now on.
pub(super) fn follow(handle: &Arc<Handle>, container: &str) -> mpsc::Receiver<io::Result<Bytes>> {
    let restarts = handle.view.borrow().containers.get(container).map_or(0, |view| view.restarts);
    let path = handle.directory.log(container, restarts);
    let reader = Reader { handle: Arc::clone(handle), container: container.to_owned(), restarts, path };
    let (chunks, receiver) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        let wanted = LogRequest { follow: true, tail: Some(0), ..LogRequest::default() };
        if let Err(error) = reader.run(&wanted, &chunks).await {
            let _ = chunks.send(Err(error)).await;
        }
    });
    receiver
}

struct Reader {
    handle: Arc<Handle>,
    container: String,
    restarts: u32,
    path: PathBuf,
}

type Chunks = mpsc::Sender<io::Result<Bytes>>;

impl Reader {
    /// Whether nothing more will be written.
    fn is_over(&self) -> bool {
        let view = self.handle.view.borrow();
        view.containers.get(&self.container).is_none_or(|container| {
            container.restarts != self.restarts || container.process.is_none() && container.is_over
        })
    }

    async fn run(&self, wanted: &LogRequest, chunks: &Chunks) -> io::Result<()> {
        let mut views = self.handle.view.subscribe();
        while !self.path.exists() {
            if self.is_over() {
                return Ok(());
            }
            tokio::select! {
                changed = views.changed() => if changed.is_err() { return Ok(()) },
                () = chunks.closed() => return Ok(()),
            }
        }
        // Watched before it is read: what is written in between is not missed.
        let mut news = if wanted.follow { Some(News::from_path(&self.path)?) } else { None };
        let mut file = open(&self.path)?;
        let start = match wanted.tail {
            Some(lines) => tail_start(&mut file, lines)?,
            None => 0,
        };
        let mut position = file.seek(SeekFrom::Start(start))?;
        let mut left = wanted.limit.unwrap_or(u64::MAX);
        let mut lines = format::Lines::default();
        let mut buffer = vec![0; CHUNK];
        let mut next = None;
        loop {
            let over = self.is_over();
            loop {
                let count = file.read(&mut buffer)?;
                position += count as u64;
                let mut text = lines.take(buffer.get(..count).unwrap_or_default(), &wanted.filter);
                if count == 0 && (news.is_none() || over) {
                    text = lines.rest(&wanted.filter);
                }
                text.truncate(usize::try_from(left).unwrap_or(usize::MAX));
                left -= text.len() as u64;
                if !text.is_empty() && chunks.send(Ok(text.into())).await.is_err() {
                    return Ok(());
                }
                if left == 0 {
                    return Ok(());
                }
                if count == 0 {
                    break;
                }
            }
            let Some(watcher) = &news else { return Ok(()) };
            // A log that grew too long was renamed; it continues in a new file, once the rest of the old one is read.
            if let Some(next) = next.take() {
                news = Some(News::from_path(&self.path)?);
                (file, position) = (next, 0);
                continue;
            }
            next = moved(&file, &self.path)?;
            if next.is_some() {
                continue;
            }
            if over {
                return Ok(());
            }
            tokio::select! {
                ready = watcher.wait() => ready?,
                changed = views.changed() => if changed.is_err() { return Ok(()) },
                () = chunks.closed() => return Ok(()),
            }
            // Or it was cut; what is in it now is new.
            if file.metadata()?.len() < position {
                position = file.seek(SeekFrom::Start(0))?;
            }
        }
    }
}

/// The runner may write to the directory of its log.
fn open(path: &Path) -> io::Result<File> {
    crate::files::open_foreign(path, File::options().read(true))
}

/// The file that has the name of one that was renamed.
fn moved(file: &File, path: &Path) -> io::Result<Option<File>> {
    use std::os::unix::fs::MetadataExt as _;
    let same = |a: &std::fs::Metadata, b: &std::fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    match open(path) {
        Ok(next) => Ok((!same(&file.metadata()?, &next.metadata()?)).then_some(next)),
        // The pod is being removed.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Where the last lines of a file begin.
fn tail_start(file: &mut File, lines: u64) -> io::Result<u64> {
    let mut end = file.metadata()?.len();
    let length = end;
    let mut found = 0;
    let mut buffer = vec![0; CHUNK];
    while end > 0 {
        let start = end.saturating_sub(CHUNK as u64);
        let size = usize::try_from(end - start).unwrap_or(0);
        let part = buffer.get_mut(..size).unwrap_or_default();
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(part)?;
        for (index, byte) in part.iter().enumerate().rev() {
            let at = start + index as u64;
            // The end of the last line is no beginning.
            if *byte == b'\n' && at + 1 < length {
                found += 1;
                if found == lines {
                    return Ok(at + 1);
                }
            }
        }
        end = start;
    }
    Ok(if lines == 0 { length } else { 0 })
}

/// Notifies when a file is written to, or loses its name.
struct News(AsyncFd<std::os::fd::OwnedFd>);

impl News {
    fn from_path(path: &Path) -> io::Result<Self> {
        let fd = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)?;
        inotify::add_watch(
            &fd,
            path,
            inotify::WatchFlags::MODIFY | inotify::WatchFlags::ATTRIB | inotify::WatchFlags::DONT_FOLLOW,
        )?;
        Ok(Self(crate::sys::watched(fd)?))
    }

    async fn wait(&self) -> io::Result<()> {
        let mut ready = self.0.readable().await?;
        let mut buffer = [0; 4096];
        // The events are dropped; only their arrival counts.
        while rustix::io::read(self.0.get_ref(), &mut buffer).is_ok_and(|count| count > 0) {}
        ready.clear_ready();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let long = "x".repeat(CHUNK);
        std::fs::write(&path, format!("a\n{long}\nb\nc\n")).unwrap();
        let mut file = File::open(&path).unwrap();
        let mut tail = |lines| {
            let start = tail_start(&mut file, lines).unwrap();
            std::fs::read_to_string(&path).unwrap().split_off(usize::try_from(start).unwrap())
        };
        assert_eq!((tail(0).as_str(), tail(1).as_str(), tail(2).as_str()), ("", "c\n", "b\nc\n"));
        assert_eq!((tail(3).len(), tail(4).len(), tail(9).len()), (CHUNK + 5, CHUNK + 7, CHUNK + 7));
    }

    #[test]
    fn a_log_that_was_moved_aside_goes_on_in_the_new_file() {
        let directory = tempfile::tempdir().unwrap();
        let (path, aside, next) =
            (directory.path().join("0.log"), directory.path().join("0.log.1"), directory.path().join("next"));
        std::fs::write(&path, "old\n").unwrap();
        let file = File::open(&path).unwrap();
        assert!(moved(&file, &path).unwrap().is_none());
        // As the runner does it.
        std::fs::hard_link(&path, &aside).unwrap();
        std::fs::write(&next, "new\n").unwrap();
        std::fs::rename(&next, &path).unwrap();
        let next = moved(&file, &path).unwrap().unwrap();
        assert_eq!(io::read_to_string(next).unwrap(), "new\n");
        std::fs::remove_file(&path).unwrap();
        assert!(moved(&file, &path).unwrap().is_none());
    }
}
