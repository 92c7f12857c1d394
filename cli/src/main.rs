//! `neonctl`.

fn main() -> std::process::ExitCode {
    neonvm_cli::main()
}
