//! Flags of leases.

use std::time::Duration;

use neonvm_kit::lease::Times;

/// How fast a lease is renewed, given up and taken over.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct LeaseArgs {
    /// Lease duration in seconds: after the last renewal by the leader another replica may take over
    #[arg(long, value_name = "SECONDS", default_value_t = default(Times::default().duration), value_parser = seconds())]
    leader_elect_lease_duration: u16,
    /// Seconds for which the leader retries to renew its lease before it stops leading; less than the lease duration
    #[arg(long, value_name = "SECONDS", default_value_t = default(Times::default().renew_deadline), value_parser = seconds())]
    leader_elect_renew_deadline: u16,
    /// Seconds between two attempts; another replica leads at the latest after the lease duration and two of these
    #[arg(long, value_name = "SECONDS", default_value_t = default(Times::default().retry), value_parser = seconds())]
    leader_elect_retry_period: u16,
}

fn default(time: Duration) -> u16 {
    u16::try_from(time.as_secs()).unwrap_or(u16::MAX)
}

fn seconds() -> clap::builder::RangedI64ValueParser<u16> {
    clap::value_parser!(u16).range(1..=3600)
}

impl LeaseArgs {
    /// The times, if they are consistent.
    pub(crate) fn times(&self) -> anyhow::Result<Times> {
        let seconds = |seconds: u16| Duration::from_secs(seconds.into());
        let times = Times {
            duration: seconds(self.leader_elect_lease_duration),
            renew_deadline: seconds(self.leader_elect_renew_deadline),
            retry: seconds(self.leader_elect_retry_period),
        };
        times.check()?;
        Ok(times)
    }
}
