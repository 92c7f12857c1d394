//! `vm connect`

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::exec;
use super::machines::Machines;
use crate::args::vm::Connect;
use crate::connect::block_on;
use crate::error::{Code, Error, Result};
use crate::report::Report;
use crate::settings::Settings;

/// Joins standard input and output with a port of the guest.
pub(in crate::commands) fn run(settings: &Settings, args: &Connect) -> Result<Report> {
    block_on(async {
        let machines = Machines::open(settings, &args.place).await?;
        let machine = machines.get(&args.name).await?;
        let pod = machines.pod(&machine)?;
        let port = args.port.to_string();
        let mut process = exec::start(&machines, &pod, &["connect", &port], true).await?;
        let broken = || Error::new(Code::Failed, "the connection was not set up");
        let mut to = process.stdin().ok_or_else(broken)?;
        let mut from = process.stdout().ok_or_else(broken)?;
        let stderr = process.stderr();
        // A read of standard input cannot be taken back; the process ends with its main task.
        tokio::spawn(async move {
            let mut input = tokio::io::stdin();
            let _ = tokio::io::copy(&mut input, &mut to).await;
            let _ = to.shutdown().await;
        });
        let errors = tokio::spawn(exec::read(stderr));
        let (mut output, mut buffer) = (tokio::io::stdout(), vec![0; 16 << 10]);
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            let written = output.write_all(buffer.get(..count).unwrap_or_default()).await;
            if written.is_err() || output.flush().await.is_err() {
                break;
            }
        }
        let errors = errors.await.unwrap_or_default();
        exec::ended(&mut process, errors).await?;
        Ok(Report::text(String::new()))
    })
}
