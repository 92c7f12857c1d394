//! `neond runner`: the VM of a pod, and commands to be run beside it in the same container.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use neonvm_api::runner_pod::{AUTHORITIES_VARIABLE, CONFIG_DIGEST_VARIABLE, LOG_FORMAT_VARIABLE, Seal};
use neonvm_runner::client::{self, Question, Target};
use neonvm_runner::logs::{self, Bounded, Format};
use neonvm_runner::options::{Accelerator, NetworkMode, Options};
use neonvm_types::guest::{FREEZE_SECONDS, FreezeRequest, MOST_FREEZE_SECONDS, Thawed};
use neonvm_types::node_protocol::{SOCKET, SOCKET_DIRECTORY};

/// Flags.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Root of the container's paths
    #[arg(long, env = "NEONVM_ROOT", default_value = "/", global = true)]
    root: PathBuf,
    /// SHA-256 of the configuration with which the pod was made
    #[arg(long, env = CONFIG_DIGEST_VARIABLE, default_value = "", hide = true)]
    config_sha256: String,
    /// SHA-256 of the certificates of trusted authorities, comma separated
    #[arg(long, env = AUTHORITIES_VARIABLE, value_delimiter = ',', hide = true)]
    authorities_sha256: Vec<String>,
    /// Kernel of VMs without their own
    #[arg(long, env = "NEONVM_KERNEL", default_value = "/vm/kernel/vmlinuz")]
    kernel: PathBuf,
    /// Its initramfs
    #[arg(long, env = "NEONVM_INITRAMFS")]
    initramfs: Option<PathBuf>,
    /// Guest program that replaces an older one on the disk
    #[arg(long, env = "NEONVM_GUEST")]
    guest: Option<PathBuf>,
    /// Network of the guest: tap or user
    #[arg(long, env = "NEONVM_NETWORK", default_value = "tap")]
    network: NetworkMode,
    /// Accelerator: auto, kvm or tcg
    #[arg(long, env = "NEONVM_ACCEL", default_value = "auto")]
    accel: Accelerator,
    /// Parent of the cgroup of the vCPU threads [default: the cgroup of this process]
    #[arg(long, env = "NEONVM_CGROUP")]
    cgroup: Option<String>,
    /// File for the termination message
    #[arg(long, env = "NEONVM_TERMINATION_LOG", default_value = "/dev/termination-log")]
    termination_log: PathBuf,
    /// Seconds between SIGTERM and the kill of the guest [default: the grace period of the VM]
    #[arg(long, env = "NEONVM_GRACE_SECONDS")]
    grace_seconds: Option<u64>,
    /// Form of the log: plain or cri
    #[arg(long, env = "NEONVM_LOG_FORMAT", default_value = "plain", value_parser = ["plain", "cri"])]
    log_format: String,
    /// Form of the lines of the runner itself, which follow `runner|`
    #[arg(long, env = LOG_FORMAT_VARIABLE, value_enum, default_value_t)]
    own_lines: crate::log::Format,
    /// File of the output, which the runner rotates [default: the container runtime rotates it]
    #[arg(long, env = "NEONVM_LOG_FILE")]
    log_file: Option<PathBuf>,
    /// Addresses of the pod to listen on, comma separated [default: all]
    #[arg(long, env = "K8S_POD_IPS", value_delimiter = ',')]
    pod_ips: Vec<IpAddr>,
    /// Name of the node, whose agent may reach ports of the guest
    #[arg(long, env = "K8S_NODE_NAME")]
    node_name: Option<String>,
    /// Directory where the result of the KVM probe is kept until the next boot
    #[arg(long, env = "NEONVM_PROBE_DIR")]
    probe_dir: Option<PathBuf>,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Connect standard input and output to the serial console
    Console,
    /// Connect standard input and output to a TCP port of the guest
    Connect {
        /// Port number
        #[arg(value_parser = clap::value_parser!(u16).range(1..))]
        port: u16,
    },
    /// Print the status as JSON
    Status,
    /// Print the counters as JSON
    Statistics,
    /// Print how full the disks are as JSON
    Disks,
    /// Freeze the file systems of disks on claims, for backups; the guest thaws them when the time is over
    Freeze {
        /// Most seconds
        #[arg(long, default_value_t = FREEZE_SECONDS, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_FREEZE_SECONDS)))]
        seconds: u32,
        /// Freeze the root file system as well
        #[arg(long)]
        root_disk: bool,
    },
    /// End a freeze; fails if its time was over before
    Thaw,
    /// Print what this host offers to VMs as a line of JSON
    #[command(hide = true)]
    HostFacts,
    /// Press the power button
    PowerOff,
    /// Wake the VM if it is suspended
    Wake,
    /// Copy a file as a sparse file, and compare both
    #[command(hide = true)]
    Copy {
        /// Source
        from: PathBuf,
        /// Destination; it appears complete or not at all
        to: PathBuf,
    },
}

/// Runs the VM, or a command beside it.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.command {
        None => machine(args),
        Some(Command::Console) => beside(client::join(&args.root, Target::Console)),
        Some(Command::Connect { port }) => beside(client::join(&args.root, Target::Port(*port))),
        Some(Command::Status) => ask(args, Question::Status),
        Some(Command::Statistics) => ask(args, Question::Statistics),
        Some(Command::Disks) => ask(args, Question::Disks),
        Some(Command::Freeze { seconds, root_disk }) => {
            let request = FreezeRequest { disks: Vec::new(), root: *root_disk, seconds: *seconds };
            freeze(&args.root, Some(&request)).map(drop)
        }
        Some(Command::Thaw) => thaw(&args.root),
        Some(Command::HostFacts) => host_facts(args),
        Some(Command::PowerOff) => ask(args, Question::PowerOff),
        Some(Command::Wake) => ask(args, Question::Wake),
        Some(Command::Copy { from, to }) => copy(from, to),
    }
}

fn small_runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    neonvm_runner::runtime().context("cannot start")
}

#[expect(clippy::exit, reason = "threads that read and write must not keep the process")]
fn machine(args: &Args) -> anyhow::Result<()> {
    // It needs none, also if root has started it; nor do QEMU and a script of the VM's author get any by a program with the set-user-ID bit.
    neonvm_hypervisor::rights::give_up().context("cannot give up capabilities")?;
    let format = if args.log_format == "cri" { Format::Cri } else { Format::Plain };
    let log = match args.log_file.as_deref().and_then(Bounded::standard) {
        Some(bounded) => logs::start(format, bounded),
        None => logs::start(format, std::io::stdout()),
    };
    let log = log.context("cannot start the log")?;
    let own = log.clone();
    crate::log::to(args.own_lines, move || own.own());
    let options = options(args)?;
    let runtime = small_runtime()?;
    let exit = runtime.block_on(neonvm_runner::run(&options, &log));
    runtime.shutdown_timeout(Duration::from_millis(100));
    let code = if exit.is_success() { 0 } else { 1 };
    log.drain();
    std::process::exit(code)
}

fn options(args: &Args) -> anyhow::Result<Options> {
    let probe = std::env::current_exe().context("cannot find this program")?;
    Ok(Options {
        root: args.root.clone(),
        seal: Seal { config: args.config_sha256.clone(), authorities: args.authorities_sha256.clone() },
        kernel: args.kernel.clone(),
        initramfs: args.initramfs.clone(),
        guest_program: args.guest.clone(),
        network: args.network,
        node_socket: Path::new(SOCKET_DIRECTORY).join(SOCKET),
        accelerator: args.accel,
        probe: vec![probe.into(), "kvm-probe".into()],
        probe_kept: args.probe_dir.clone(),
        cgroup: args.cgroup.clone(),
        termination_log: args.termination_log.clone(),
        grace: args.grace_seconds.map(Duration::from_secs),
        addresses: args.pod_ips.clone(),
        node: args.node_name.clone(),
    })
}

fn host_facts(args: &Args) -> anyhow::Result<()> {
    use std::io::Write as _;
    let facts = small_runtime()?.block_on(neonvm_runner::host_facts(&options(args)?));
    Ok(writeln!(std::io::stdout(), "{}", serde_json::to_string(&facts)?)?)
}

fn beside(work: impl Future<Output = Result<(), client::Error>>) -> anyhow::Result<()> {
    let runtime = small_runtime()?;
    let ended = runtime.block_on(work);
    // A blocking read of standard input must not keep the process.
    runtime.shutdown_background();
    Ok(ended?)
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    use std::io::Write as _;
    let copied = neonvm_runner::copy::file(from, to)
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    let (to, length, written) = (to.display(), copied.length, copied.written);
    Ok(writeln!(std::io::stdout(), "{to}: {length} bytes, of which {written} were written; compared")?)
}

fn ask(args: &Args, question: Question) -> anyhow::Result<()> {
    use std::io::Write as _;
    let answer = small_runtime()?.block_on(client::ask(&args.root, question))?;
    Ok(writeln!(std::io::stdout(), "{answer}")?)
}

/// Prints the answer.
fn freeze(root: &Path, request: Option<&FreezeRequest>) -> anyhow::Result<String> {
    use std::io::Write as _;
    let answer = small_runtime()?.block_on(client::freeze(root, request))?;
    writeln!(std::io::stdout(), "{answer}")?;
    Ok(answer)
}

fn thaw(root: &Path) -> anyhow::Result<()> {
    let thawed: Thawed = serde_json::from_str(&freeze(root, None)?).context("cannot read the answer")?;
    let why = "the freeze was over before: what was copied since may not be consistent";
    anyhow::ensure!(!thawed.expired, "{why}");
    Ok(())
}

/// Probe whether KVM runs guest code; prints a line of JSON.
pub(crate) fn probe() -> anyhow::Result<()> {
    use std::io::Write as _;
    let result = neonvm_hypervisor::accelerator::probe::run_in_this_process();
    Ok(writeln!(std::io::stdout(), "{}", result.to_line())?)
}
