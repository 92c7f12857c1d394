//! `local logs`

use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _};
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;

use crate::args::local::Logs;
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::instance;
use crate::report::{Body, Report};
use crate::settings::{Settings, duration};

/// Time between two looks at a log that is followed.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What a cluster has logged.
pub(crate) fn run(env: &Env, settings: &Settings, args: &Logs) -> Result<Report> {
    let instance = instance::named(env, settings, &args.which)?;
    instance.demand()?;
    let since = match args.since.as_deref() {
        None => None,
        Some(text) => {
            let back = duration(text)
                .ok_or_else(|| Error::new(Code::Usage, format!("{text:?} is not a duration for --since")))?;
            Some(Timestamp::now() - back)
        }
    };
    let path = instance.log();
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Report::text(String::new())
                .note("nothing was logged; it runs in the foreground or never started"));
        }
        Err(error) => return Err(Error::file("read", &path, &error)),
    };
    let mut tail = Tail { path, reader: BufReader::new(file), partial: Vec::new() };
    let mut lines: Vec<String> = std::iter::from_fn(|| tail.line()).collect();
    if let Some(since) = since {
        // Lines without a time belong to the one above them.
        let first =
            lines.iter().position(|line| time(line).is_some_and(|time| time >= since)).unwrap_or(lines.len());
        lines.drain(..first);
    }
    if let Some(count) = args.tail {
        lines.drain(..lines.len().saturating_sub(count));
    }
    let mut report = Report::text(String::new());
    report.body = Body::Lines(if args.follow {
        Box::new(lines.into_iter().chain(tail))
    } else {
        Box::new(lines.into_iter())
    });
    Ok(report)
}

fn time(line: &str) -> Option<Timestamp> {
    line.split_whitespace().next()?.parse().ok()
}

/// A log file, followed for ever; when it is cut it is read from its beginning.
struct Tail {
    path: PathBuf,
    reader: BufReader<File>,
    partial: Vec<u8>,
}

impl Tail {
    /// The next whole line, if there is one now.
    fn line(&mut self) -> Option<String> {
        if self.reader.read_until(b'\n', &mut self.partial).unwrap_or(0) == 0
            || !self.partial.ends_with(b"\n")
        {
            return None;
        }
        let line = String::from_utf8_lossy(&self.partial).trim_end_matches('\n').to_owned();
        self.partial.clear();
        Some(line)
    }
}

impl Iterator for Tail {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        loop {
            if let Some(line) = self.line() {
                return Some(line);
            }
            let size = std::fs::metadata(&self.path).ok()?.len();
            if self.reader.stream_position().ok()? > size {
                self.reader = BufReader::new(File::open(&self.path).ok()?);
                self.partial.clear();
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}
