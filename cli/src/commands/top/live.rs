//! `top` without a subcommand: the live view. Keys and inputs change the state, and what differs from the last frame is written.

mod terminal;

use std::io::IsTerminal as _;
use std::time::Duration;

use neonvm_api::VirtualMachine;
use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, MissedTickBehavior};

use crate::args::top::Live;
use crate::args::{Args, ListArgs};
use crate::commands::flags::duration;
use crate::commands::job::Stop;
use crate::commands::live::{Feed, now};
use crate::commands::resource::list;
use crate::connect::block_on;
use crate::env::Env;
use crate::error::Result;
use crate::live::Ui;
use crate::live::input::Input;
use crate::live::keys::{self, Next, Press};
use crate::live::model::Fleet;
use crate::live::view::Theme;
use crate::render::Style;
use crate::report::Report;
use crate::settings::Settings;
use terminal::{Pressed, Terminal};

/// Least time between two frames, unless a key was pressed.
const PACE: Duration = Duration::from_millis(250);
/// Time between two looks at the clock.
const CLOCK: Duration = Duration::from_secs(1);

/// Shows the view until the user ends it; without a terminal, lines of changes.
pub(super) fn run(env: &Env, settings: &Settings, args: &Args, live: &Live) -> Result<Report> {
    duration("interval", &live.interval)?;
    let dumb = env.var("TERM").is_none_or(|term| term == "dumb");
    if !env.stdout_terminal || dumb || !std::io::stdin().is_terminal() {
        return lines(settings);
    }
    // Lines on standard error would stand in the view.
    let settings = &settings.clone().with_verbosity(crate::Verbosity::Off);
    let theme = Theme { color: Style::resolve(env, settings, args)?.colors(), unicode: unicode(env) };
    block_on(async {
        let (feed, fleet) = Feed::open(settings, live).await?;
        let (terminal, pressed) = Terminal::open(theme.color)?;
        let mut view = View { feed, fleet, ui: Ui::default(), theme, terminal };
        view.repeat(pressed).await
    })?;
    Ok(Report::text(String::new()))
}

/// What `vm list -w` prints.
fn lines(settings: &Settings) -> Result<Report> {
    let args = ListArgs { selector: None, sort_by: None, watch: true };
    list::list::<VirtualMachine>(settings, &args, |_| true, |found| found)
}

fn unicode(env: &Env) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(|name| env.var(name));
    locale.is_some_and(|locale| locale.to_ascii_lowercase().replace('-', "").contains("utf8"))
}

struct View {
    feed: Feed,
    fleet: Fleet,
    ui: Ui,
    theme: Theme,
    terminal: Terminal,
}

#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
enum Event {
    Key(Option<Pressed>),
    Input(Option<Input>),
    Clock,
    Due,
    Stop,
}

impl View {
    async fn repeat(&mut self, mut pressed: Receiver<Pressed>) -> Result<()> {
        let mut stop = Stop::listen()?;
        let mut clock = tokio::time::interval(CLOCK);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut drawn, mut changed) = (Instant::now(), false);
        self.draw()?;
        loop {
            let event = tokio::select! {
                biased;
                () = stop.requested() => Event::Stop,
                key = pressed.recv() => Event::Key(key),
                () = tokio::time::sleep_until(drawn + PACE), if changed => Event::Due,
                input = self.feed.next() => Event::Input(input),
                _ = clock.tick() => Event::Clock,
            };
            let draw = match event {
                Event::Stop | Event::Key(None) | Event::Input(None) => return Ok(()),
                Event::Key(Some(key)) => {
                    if self.key(key)? == Next::Quit {
                        return Ok(());
                    }
                    true
                }
                Event::Input(Some(input)) => {
                    self.feed.apply(&mut self.fleet, input);
                    changed = true;
                    false
                }
                Event::Clock => {
                    self.fleet.tick(now());
                    changed = true;
                    false
                }
                Event::Due => true,
            };
            if draw {
                self.draw()?;
                (drawn, changed) = (Instant::now(), false);
            }
        }
    }

    fn key(&mut self, pressed: Pressed) -> Result<Next> {
        match pressed {
            Pressed::Key(Press::Char('\u{c}')) | Pressed::Resized => {
                self.terminal.clear()?;
                Ok(Next::Continue)
            }
            Pressed::Key(key) => Ok(keys::press(&mut self.ui, &self.fleet, key)),
        }
    }

    fn draw(&mut self) -> Result<()> {
        self.terminal.draw(&self.fleet, &mut self.ui, self.theme)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_variable_of_the_locale_decides() {
        let with = |vars: &[(&str, &str)]| {
            let vars = vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            unicode(&Env { vars, ..Env::default() })
        };
        assert!(with(&[("LANG", "C.UTF-8")]) && with(&[("LC_CTYPE", "de_DE.utf8"), ("LANG", "C")]));
        assert!(!with(&[]) && !with(&[("LC_ALL", "C"), ("LANG", "C.UTF-8")]));
    }
}
