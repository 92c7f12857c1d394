//! Goals, permits and decisions: requests to the scheduler and to the agents, over connections that are kept.

use std::time::Duration;

use tokio::sync::mpsc::Sender;
use tokio::time::MissedTickBehavior;

use super::convert;
use crate::commands::services::{Kept, Services};
use crate::connect::Connection;
use crate::error::Error;
use crate::live::input::{Input, Origin};

/// Pause before the services are looked for again.
const PAUSE: Duration = Duration::from_secs(15);
/// Rounds in a row in which nothing responds, after which a new certificate is obtained.
const ROUNDS: u32 = 5;

struct Closed;

/// Sends what they report until the receiver is closed.
pub(super) async fn poll(
    connection: Connection,
    namespace: String,
    interval: Duration,
    sender: Sender<Input>,
) {
    loop {
        match Services::open(&connection, &namespace).await {
            Ok(services) => {
                if repeat(&services, interval, &sender).await.is_err() {
                    return;
                }
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => {
                let text = reason(&error);
                for origin in [Origin::Scheduler, Origin::Agents] {
                    if sender.send(Input::Trouble(origin, Some(text.clone()))).await.is_err() {
                        return;
                    }
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Rounds of requests, until nothing responds for long.
async fn repeat(services: &Services<'_>, interval: Duration, sender: &Sender<Input>) -> Result<(), Closed> {
    let mut kept = Kept::default();
    let mut failed = 0;
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while failed < ROUNDS {
        ticks.tick().await;
        if let Err(error) = services.find(&mut kept).await {
            failed += 1;
            trouble(sender, Origin::Scheduler, Some(&error)).await?;
            trouble(sender, Origin::Agents, Some(&error)).await?;
            continue;
        }
        let responded = round(services, &mut kept, sender).await?;
        failed = if responded { 0 } else { failed + 1 };
    }
    Ok(())
}

/// One request to each; whether one of them responded.
async fn round(services: &Services<'_>, kept: &mut Kept, sender: &Sender<Input>) -> Result<bool, Closed> {
    let (scheduler, agents) = services.inspect_kept(kept).await;
    let mut responded = scheduler.is_ok();
    match scheduler {
        Ok(inspect) => {
            send(sender, Input::Accounts(convert::accounts(inspect))).await?;
            trouble(sender, Origin::Scheduler, None).await?;
        }
        Err(error) => trouble(sender, Origin::Scheduler, Some(&error)).await?,
    }
    let (mut vms, mut failure) = (Vec::new(), None);
    for agent in agents {
        match agent {
            Ok(agent) => {
                responded = true;
                vms.extend(agent.vms.into_iter().map(convert::inspected));
            }
            Err(error) => failure = Some(error),
        }
    }
    send(sender, Input::Agents(vms)).await?;
    trouble(sender, Origin::Agents, failure.as_ref()).await?;
    Ok(responded)
}

async fn send(sender: &Sender<Input>, input: Input) -> Result<(), Closed> {
    sender.send(input).await.map_err(|_| Closed)
}

async fn trouble(sender: &Sender<Input>, origin: Origin, error: Option<&Error>) -> Result<(), Closed> {
    send(sender, Input::Trouble(origin, error.map(reason))).await
}

fn reason(error: &Error) -> String {
    let mut text = error.message.clone();
    for more in error.causes.last().into_iter().chain(&error.hint) {
        text.push_str("; ");
        text.push_str(more);
    }
    crate::render::one_line(&text)
}
