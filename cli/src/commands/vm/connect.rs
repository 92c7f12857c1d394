//! `vm connect`

use tokio::io::AsyncWriteExt as _;

use super::exec;
use super::exec::Command;
use crate::args::vm::Connect;
use crate::commands::resource::NamespaceClient;
use crate::connect::block_on;
use crate::error::{Code, Error, Result};
use crate::report::Report;
use crate::settings::Settings;

pub(crate) fn run(settings: &Settings, args: &Connect) -> Result<Report> {
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let machine = client.find(&args.name).await?;
        let pod = exec::pod_of(&client, &machine)?;
        let port = args.port.to_string();
        let mut command = Command::start(&client, &pod, &["connect", &port], true).await?;
        let broken = || Error::new(Code::Failed, "the connection could not be established");
        let mut to = command.stdin.take().ok_or_else(broken)?;
        // A read of standard input cannot be taken back; the process ends with its main task.
        tokio::spawn(async move {
            let mut input = tokio::io::stdin();
            let _ = tokio::io::copy(&mut input, &mut to).await;
            let _ = to.shutdown().await;
        });
        let (_, errors) = tokio::join!(command.stdout.show(|_| ()), command.stderr.text());
        command.ended(&errors).await?;
        Ok(Report::text(String::new()))
    })
}
