//! Writes the examples of every target as files, `DIR/NAME/0` and so on, and prints the names of the targets.

use std::io::Write as _;
use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let Some(directory) = std::env::args_os().nth(1).map(PathBuf::from) else {
        return Err(std::io::Error::other("usage: neonvm-fuzz DIRECTORY"));
    };
    for target in neonvm_fuzz::targets() {
        let of_target = directory.join(target.name);
        std::fs::create_dir_all(&of_target)?;
        for (number, example) in target.examples.iter().enumerate() {
            std::fs::write(of_target.join(number.to_string()), example)?;
        }
        writeln!(std::io::stdout(), "{}", target.name)?;
    }
    Ok(())
}
