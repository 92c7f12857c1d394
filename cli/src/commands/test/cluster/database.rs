//! Resizes the VM while a database in it works, if its image has one: no transaction may fail.

use tokio::time::Instant;

use super::guest::Guest;
use super::scale::{LARGE, SMALL, resize};
use super::step::Outcome;
use super::trial::Trial;
use crate::error::{Code, Error, Result};

/// Prints the directory of pgbench, or nothing.
const FIND: &str = "for d in /usr/lib/postgresql/*/bin /usr/local/bin /usr/bin; do \
                    if [ -x $d/pgbench ]; then echo $d; exit 0; fi; done; exit 0";
/// Until the database takes connections, for a minute.
const WAIT: &str = "for i in $(seq 60); do pg_isready -q && break; sleep 1; done";
/// Seconds of load.
const SECONDS: u32 = 20;
/// Times that the size is changed under load, up and down.
const ROUNDS: u32 = 2;

pub(super) async fn run(trial: &mut Trial<'_>) -> Result<Outcome> {
    let Some(guest) = trial.guest()? else {
        return Ok(Outcome::NotRun("ssh is not installed here: apt-get install openssh-client".to_owned()));
    };
    let found = guest.run(FIND, trial.limit).await?;
    let Some(directory) = found.lines().map(str::trim).find(|line| line.starts_with('/')) else {
        return Ok(Outcome::NotRun("the image has no pgbench; use one with PostgreSQL: --image".to_owned()));
    };
    resize(trial, SMALL).await?;
    let begin = format!("{WAIT}; pgbench -i -q -s 1 postgres");
    guest
        .run(&as_postgres(directory, &begin), trial.limit)
        .await
        .map_err(|error| Error { message: "pgbench cannot create its tables".to_owned(), ..error })?;
    let begun = Instant::now();
    let output = under_load(trial, &guest, directory).await?;
    verdict(&output).map(|rate| {
        Outcome::Passed(format!(
            "{} sizes in {:.1} s, no failed transaction, {rate}",
            ROUNDS * 2,
            begun.elapsed().as_secs_f64()
        ))
    })
}

fn as_postgres(directory: &str, command: &str) -> String {
    format!("su postgres -c 'cd /; PATH={directory}:$PATH; {command}' 2>&1")
}

async fn under_load(trial: &Trial<'_>, guest: &Guest, directory: &str) -> Result<String> {
    let script = as_postgres(directory, &format!("pgbench -n -c 2 -T {SECONDS} postgres"));
    let bench = guest.run(&script, trial.limit);
    let resizing = async {
        for _ in 0..ROUNDS {
            resize(trial, LARGE).await?;
            resize(trial, SMALL).await?;
        }
        Ok(())
    };
    let (output, resized) = tokio::join!(bench, resizing);
    let output = output.map_err(|error| Error { message: "pgbench failed".to_owned(), ..error })?;
    resized.map(|()| output)
}

/// The rate, if no transaction failed.
fn verdict(output: &str) -> Result<String> {
    let value = |key: &str| {
        let line = output.lines().find_map(|line| line.trim().strip_prefix(key))?;
        Some(line.trim_start_matches([':', '=', ' ']).split([' ', '(']).next().unwrap_or_default().to_owned())
    };
    let failed = value("number of failed transactions");
    match (failed.as_deref(), value("tps")) {
        // Older ones print no number: they end with an error at the first failure.
        (None | Some("0"), Some(rate)) => {
            let whole = rate.split('.').next().unwrap_or_default();
            Ok(format!("{whole} transactions per second"))
        }
        (Some(count), _) if count != "0" => {
            Err(Error::new(Code::Failed, format!("{count} transactions failed while the size changed")))
        }
        _ => Err(Error::new(Code::Failed, "pgbench reported no result")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_transaction_fails_the_step() {
        let output = |failed: &str| {
            format!(
                "number of transactions actually processed: 9\nnumber of failed transactions: {failed}\n\
                     latency average = 2.1 ms\ntps = 951.213 (without initial connection time)\n"
            )
        };
        assert_eq!(verdict(&output("0 (0.000%)")).unwrap(), "951 transactions per second");
        let error = verdict(&output("3 (0.1%)")).unwrap_err();
        assert_eq!(error.message, "3 transactions failed while the size changed");
        assert!(verdict("").is_err());
        assert_eq!(verdict("tps = 7.5 (including connections)").unwrap(), "7 transactions per second");
    }
}
