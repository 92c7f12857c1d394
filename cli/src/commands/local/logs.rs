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
use crate::report::Report;
use crate::settings::{Settings, duration};

/// Time between two looks at a log that is followed.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

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
    let chosen = match args.service.as_deref() {
        Some("supervisor") => vec!["local".to_owned()],
        Some(service) if instance.log_of(service).exists() => vec![service.to_owned()],
        Some(service) => {
            let text = format!("local cluster {:?} has no logs of service {service:?}", instance.name);
            let names = instance.logged().join(", ").replace("local", "supervisor");
            return Err(Error::new(Code::NotFound, text).hint(format!("services with logs: {names}")));
        }
        None => instance.logged(),
    };
    let named = chosen.len() > 1;
    let mut tails = Vec::new();
    for service in chosen {
        let path = instance.log_of(&service);
        let file = File::open(&path).map_err(|error| Error::file("read", &path, &error))?;
        let label = if named { format!("{service:<13} ") } else { String::new() };
        tails.push(Tail { path, label, reader: BufReader::new(file), partial: Vec::new() });
    }
    if tails.is_empty() {
        let note = "there are no logs; the cluster runs in the foreground or has never started";
        return Ok(Report::text(String::new()).note(note));
    }
    let mut timed: Vec<(Option<Timestamp>, String)> = Vec::new();
    for tail in &mut tails {
        // Lines without a time belong to the one above them.
        let mut last = None;
        while let Some(line) = tail.line() {
            last = time(&line).or(last);
            timed.push((last, format!("{}{line}", tail.label)));
        }
    }
    timed.sort_by_key(|(time, _)| *time);
    if let Some(since) = since {
        timed.retain(|(time, _)| time.is_some_and(|time| time >= since));
    }
    let mut lines: Vec<String> = timed.into_iter().map(|(_, line)| line).collect();
    if let Some(count) = args.tail {
        lines.drain(..lines.len().saturating_sub(count));
    }
    let lines = lines.into_iter();
    Ok(if args.follow {
        Report::log(lines.chain(Tails(tails)), args.raw)
    } else {
        Report::log(lines, args.raw)
    })
}

fn time(line: &str) -> Option<Timestamp> {
    line.split_whitespace().next()?.parse().ok()
}

/// A log file, followed for ever; when it is cut it is read from its beginning.
struct Tail {
    path: PathBuf,
    label: String,
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

struct Tails(Vec<Tail>);

impl Iterator for Tails {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        loop {
            for tail in &mut self.0 {
                if let Some(line) = tail.line() {
                    return Some(format!("{}{line}", tail.label));
                }
                let size = std::fs::metadata(&tail.path).map_or(0, |file| file.len());
                if tail.reader.stream_position().ok()? > size
                    && let Ok(file) = File::open(&tail.path)
                {
                    tail.reader = BufReader::new(file);
                    tail.partial.clear();
                }
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}
