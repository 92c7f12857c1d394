//! `top`

mod ask;
mod bars;
mod live;
mod nodes;
mod order;
mod screen;
mod vms;

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::flags::duration;
use crate::args::Args;
use crate::args::top::{Command, Repeat, Top};
use crate::connect::block_on;
use crate::env::Env;
use crate::error::{Code, Error, Result, reason};
use crate::render::{self, Shown, Style};
use crate::report::{Body, Document, Report};
use crate::settings::Settings;
use screen::Screen;

pub(super) use ask::ask as counters_of;
pub(super) use vms::rates;

/// What is shown at a time.
struct Frame {
    document: Document,
    notes: Vec<String>,
}

/// Where the numbers come from.
enum Source {
    Vms(Box<ask::Source>),
    Nodes(Box<nodes::Source>),
}

impl Source {
    async fn open(settings: &Settings, command: &Command) -> Result<Self> {
        Ok(match command {
            Command::Vms(args) => Self::Vms(Box::new(ask::Source::open(settings, args).await?)),
            Command::Nodes(args) => Self::Nodes(Box::new(nodes::Source::open(settings, args).await?)),
        })
    }

    async fn frame(&mut self) -> Result<Frame> {
        match self {
            Self::Vms(source) => source.frame().await,
            Self::Nodes(source) => source.frame().await,
        }
    }
}

/// The live view, or one of the tables.
pub(super) fn run(env: &Env, settings: &Settings, args: &Args, top: &Top) -> Result<Report> {
    match &top.command {
        None => live::run(env, settings, args, &top.live),
        Some(command) => table(env, settings, args, command),
    }
}

/// Looks once, or again and again.
fn table(env: &Env, settings: &Settings, args: &Args, command: &Command) -> Result<Report> {
    let repeat = match command {
        Command::Vms(args) => &args.repeat,
        Command::Nodes(args) => &args.repeat,
    };
    let interval = duration("interval", &repeat.interval)?.max(Duration::from_millis(100));
    if repeat.once {
        let frame = block_on(async { Source::open(settings, command).await?.frame().await })?;
        let report = Report::document(frame.document);
        return Ok(frame.notes.into_iter().fold(report, Report::note));
    }
    let show = Show::new(env, settings, args, repeat)?;
    let (frames, mut shown) = channel::<Result<Shown>>(1);
    let (settings, command) = (settings.clone(), command.clone());
    std::thread::spawn(move || {
        block_on(async {
            go_on(show, &settings, &command, interval, &frames).await;
            Ok(())
        })
    });
    // What fails at once is an error as elsewhere.
    let first = shown.blocking_recv().unwrap_or_else(|| Ok(Shown::default()))?;
    let frames = std::iter::once(first).chain(rest(shown));
    Ok(Report { body: Body::Frames(Box::new(frames)), ..Report::text(String::new()) })
}

/// Frames after the first.
fn rest(mut shown: Receiver<Result<Shown>>) -> impl Iterator<Item = Shown> {
    std::iter::from_fn(move || shown.blocking_recv()?.ok())
}

/// A frame for each interval, until Ctrl-C or until the output is closed.
async fn go_on(
    mut show: Show,
    settings: &Settings,
    command: &Command,
    interval: Duration,
    frames: &Sender<Result<Shown>>,
) {
    let ended = tokio::select! {
        ended = looks(&mut show, settings, command, interval, frames) => ended,
        stopped = stop() => stopped,
    };
    // A closed output is no error.
    match ended {
        Err(error) => drop(frames.send(Err(error)).await),
        Ok(()) if show.screen.as_ref().is_some_and(Screen::is_drawn) => {
            drop(frames.send(Ok(Shown::control(screen::RESTORE))).await);
        }
        Ok(()) => {}
    }
}

/// Until the process is interrupted or terminated.
pub(super) async fn stop() -> Result<()> {
    let on = |kind| -> Result<Signal> {
        signal(kind).map_err(|error| Error::new(Code::Failed, "cannot wait").cause(reason(&error)))
    };
    let (mut interrupt, mut terminate) = (on(SignalKind::interrupt())?, on(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

async fn looks(
    show: &mut Show,
    settings: &Settings,
    command: &Command,
    interval: Duration,
    frames: &Sender<Result<Shown>>,
) -> Result<()> {
    let mut source = Source::open(settings, command).await?;
    let mut last = source.frame().await?;
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        if frames.send(Ok(show.render(&last)?)).await.is_err() {
            return Ok(());
        }
        ticks.tick().await;
        match source.frame().await {
            Ok(frame) => last = frame,
            // The last numbers stay, with the reason why they do; it may pass.
            Err(error) => last.notes = vec![format!("showing the last values: {}", error.message)],
        }
    }
}

/// How frames are shown.
struct Show {
    style: Style,
    /// On a terminal.
    screen: Option<Screen>,
    json: bool,
    first: bool,
}

impl Show {
    fn new(env: &Env, settings: &Settings, args: &Args, repeat: &Repeat) -> Result<Self> {
        let style = Style::resolve(env, settings, args)?;
        let form = settings.value("output", repeat.output.output.as_deref())?.unwrap_or_default();
        let table = matches!(form.as_str(), "table" | "wide");
        let dumb = env.var("TERM").is_none_or(|term| term == "dumb");
        let screen = (table && env.stdout_terminal && !dumb).then(Screen::default);
        Ok(Self { style, screen, json: form == "json", first: true })
    }

    /// A frame without its last line end.
    fn render(&mut self, frame: &Frame) -> Result<Shown> {
        if self.json {
            return Ok(Shown::text(&render::json_line(&frame.document.value)));
        }
        let text = match &self.screen {
            Some(_) => render::document(&self.style, &bars::with_bars(&frame.document))?,
            None => render::document(&self.style, &frame.document)?,
        };
        let text = text.trim_end();
        let first = std::mem::replace(&mut self.first, false);
        let Some(screen) = &mut self.screen else {
            // An empty line between two blocks.
            return Ok(if first { text } else { Shown::join(&[Shown::default(), text], &Shown::text("\n")) });
        };
        let notes = frame.notes.iter().map(|note| Shown::line(note));
        let all: Vec<Shown> = std::iter::once(text).chain(notes).collect();
        Ok(screen.draw(&Shown::join(&all, &Shown::text("\n")).trim(), size()))
    }
}

/// Columns and rows of the terminal.
fn size() -> (usize, usize) {
    let size = render::size();
    let or = |value: Option<u16>, other: u16| usize::from(value.filter(|value| *value > 0).unwrap_or(other));
    (or(size.map(|size| size.0), 80), or(size.map(|size| size.1), 24))
}
