//! From logical lines to instructions. Pure.

use super::Fault;
use super::lines::{Line, logical};
use super::words::split;

/// A whole Dockerfile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dockerfile {
    /// Escapes in words.
    pub(super) escape: char,
    /// In their order.
    pub(super) steps: Vec<Step>,
}

/// An instruction and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// From 1.
    pub(super) line: usize,
    pub(super) instruction: Instruction,
}

/// A program with its arguments, or text for a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Words {
    Exec(Vec<String>),
    Shell(String),
}

/// Name and value, with quotes and variables.
pub(super) type Pair = (String, String);

/// An instruction; its texts have quotes and variables as they were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Instruction {
    From(String),
    Arg(Vec<(String, Option<String>)>),
    Env(Vec<Pair>),
    Label(Vec<Pair>),
    Copy(Copy),
    Workdir(String),
    User(String),
    StopSignal(String),
    Entrypoint(Words),
    Cmd(Words),
    Shell(Vec<String>),
    Expose(Vec<String>),
    /// Without meaning for a VM; the keyword.
    Ignored(String),
}

/// `COPY`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Copy {
    pub(super) sources: Vec<String>,
    pub(super) target: String,
    pub(super) owner: Option<String>,
    pub(super) mode: Option<String>,
}

const BY_CONTAINER_TOOL: &str =
    "build the image with your container tool, such as docker or podman, then give it with --from IMAGE";

/// Reads a Dockerfile.
///
/// # Errors
/// The first fault, with its line.
pub(super) fn parse(bytes: &[u8]) -> Result<Dockerfile, Fault> {
    let (lines, escape) = logical(bytes)?;
    let mut steps: Vec<Step> = Vec::new();
    let mut has_base = false;
    for line in &lines {
        let instruction = instruction(line, escape)?;
        let is_from = matches!(instruction, Instruction::From(_));
        if is_from && has_base {
            return Err(Fault::new(line.number, "a second FROM: builds of several stages are not supported")
                .remedy(BY_CONTAINER_TOOL));
        }
        has_base |= is_from;
        if !has_base && !matches!(instruction, Instruction::Arg(_)) {
            return Err(
                Fault::new(line.number, "only ARG may stand before FROM").remedy("begin with FROM IMAGE")
            );
        }
        steps.push(Step { line: line.number, instruction });
    }
    if !has_base {
        return Err(Fault::new(lines.last().map_or(1, |line| line.number), "there is no FROM")
            .remedy("begin with FROM IMAGE, or FROM scratch for an empty root file system"));
    }
    Ok(Dockerfile { escape, steps })
}

fn instruction(line: &Line, escape: char) -> Result<Instruction, Fault> {
    let text = line.text.trim();
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let (keyword, rest) = (word.to_uppercase(), rest.trim());
    let fault = |problem: String| Fault::new(line.number, problem);
    if keyword == "RUN" {
        return Err(fault("RUN cannot be carried out: it needs a running container".to_owned())
            .remedy(BY_CONTAINER_TOOL));
    }
    if rest.is_empty() {
        return Err(match is_known(&keyword) {
            true => fault(format!("{keyword} has no arguments")),
            false => unknown(line.number, word),
        });
    }
    Ok(match keyword.as_str() {
        "FROM" => from(rest).map_err(|problem| {
            fault(problem).remedy("write FROM IMAGE; the architecture is chosen by --arch")
        })?,
        "ARG" => Instruction::Arg(split(rest, escape).iter().map(|word| optional(word)).collect()),
        "ENV" => Instruction::Env(pairs(rest, escape).map_err(|problem| fault(format!("ENV: {problem}")))?),
        "LABEL" => {
            Instruction::Label(pairs(rest, escape).map_err(|problem| fault(format!("LABEL: {problem}")))?)
        }
        "COPY" => Instruction::Copy(copy(rest, escape, line.number)?),
        "ADD" => {
            return Err(fault("ADD is not supported".to_owned())
                .remedy("use COPY for files and directories; download or unpack others before the build"));
        }
        "WORKDIR" => Instruction::Workdir(rest.to_owned()),
        "USER" => Instruction::User(rest.to_owned()),
        "STOPSIGNAL" => Instruction::StopSignal(rest.to_owned()),
        "ENTRYPOINT" => Instruction::Entrypoint(words(&keyword, rest, line.number)?),
        "CMD" => Instruction::Cmd(words(&keyword, rest, line.number)?),
        "SHELL" => match words(&keyword, rest, line.number)? {
            Words::Exec(shell) if !shell.is_empty() => Instruction::Shell(shell),
            _ => {
                return Err(fault("SHELL needs a JSON array".to_owned())
                    .remedy("write SHELL [\"/bin/bash\", \"-c\"]"));
            }
        },
        "EXPOSE" => Instruction::Expose(split(rest, escape)),
        "VOLUME" | "HEALTHCHECK" | "MAINTAINER" => Instruction::Ignored(keyword),
        "ONBUILD" => {
            return Err(fault("ONBUILD is not supported".to_owned()).remedy(BY_CONTAINER_TOOL));
        }
        _ => return Err(unknown(line.number, word)),
    })
}

const KNOWN: [&str; 17] = [
    "FROM",
    "ARG",
    "ENV",
    "LABEL",
    "COPY",
    "ADD",
    "WORKDIR",
    "USER",
    "STOPSIGNAL",
    "ENTRYPOINT",
    "CMD",
    "SHELL",
    "EXPOSE",
    "VOLUME",
    "HEALTHCHECK",
    "MAINTAINER",
    "ONBUILD",
];

fn is_known(keyword: &str) -> bool {
    KNOWN.contains(&keyword)
}

fn unknown(line: usize, word: &str) -> Fault {
    let shown: String = word.chars().take(40).collect();
    Fault::new(line, format!("there is no instruction {shown:?}")).remedy(
        "known are FROM, ARG, ENV, LABEL, COPY, WORKDIR, USER, ENTRYPOINT, CMD, SHELL, EXPOSE and STOPSIGNAL",
    )
}

/// `IMAGE [AS NAME]`
fn from(text: &str) -> Result<Instruction, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        [flag, ..] if flag.starts_with("--") => Err(format!("FROM has no flag {flag} here")),
        [image] => Ok(Instruction::From((*image).to_owned())),
        [image, by, _] if by.eq_ignore_ascii_case("as") => Ok(Instruction::From((*image).to_owned())),
        _ => Err("FROM takes one image".to_owned()),
    }
}

/// `NAME[=VALUE]`
fn optional(word: &str) -> (String, Option<String>) {
    match word.split_once('=') {
        Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
        None => (word.to_owned(), None),
    }
}

/// `NAME=VALUE …`, or the older `NAME VALUE`.
fn pairs(text: &str, escape: char) -> Result<Vec<Pair>, String> {
    let words = split(text, escape);
    let first = words.first().map(String::as_str).unwrap_or_default();
    if !first.contains('=') {
        let value = text.strip_prefix(first).unwrap_or_default().trim();
        if value.is_empty() {
            return Err(format!("{first:?} has no value; write {first}=VALUE"));
        }
        return Ok(vec![(first.to_owned(), value.to_owned())]);
    }
    let pair = |word: &String| match word.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("{word:?} is not of the form NAME=VALUE")),
    };
    words.iter().map(pair).collect()
}

fn copy(text: &str, escape: char, line: usize) -> Result<Copy, Fault> {
    let mut copy = Copy::default();
    let mut rest = text;
    while rest.starts_with("--") {
        let (flag, after) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        match flag.split_once('=').unwrap_or((flag, "")) {
            ("--chown", owner) => copy.owner = Some(owner.to_owned()),
            ("--chmod", mode) => copy.mode = Some(mode.to_owned()),
            // Decides about layers only.
            ("--link", _) => {}
            ("--from", _) => {
                return Err(Fault::new(
                    line,
                    "COPY --from: files of another image or stage cannot be copied",
                )
                .remedy(BY_CONTAINER_TOOL));
            }
            (other, _) => {
                return Err(Fault::new(line, format!("COPY has no flag {other} here"))
                    .remedy("use --chown and --chmod"));
            }
        }
        rest = after.trim_start();
    }
    let words = match json(rest, line)? {
        Some(words) => words,
        None => split(rest, escape),
    };
    if words.iter().any(|word| word.starts_with("<<")) {
        return Err(Fault::new(line, "here-documents are not supported")
            .remedy("put the text into a file of the context"));
    }
    match words.split_last() {
        Some((target, sources)) if !sources.is_empty() => {
            Ok(Copy { sources: sources.to_vec(), target: target.clone(), ..copy })
        }
        _ => Err(Fault::new(line, "COPY needs a source and a target").remedy("write COPY SOURCE… TARGET")),
    }
}

/// The JSON form or the shell form of a command.
fn words(keyword: &str, text: &str, line: usize) -> Result<Words, Fault> {
    match json(text, line)
        .map_err(|fault| Fault { problem: format!("{keyword}: {}", fault.problem), ..fault })?
    {
        Some(words) => Ok(Words::Exec(words)),
        None => Ok(Words::Shell(text.to_owned())),
    }
}

/// A JSON array of strings; `None` for another text. `[ -f x ]` is text for a shell, `['a']` is a mistake.
fn json(text: &str, line: usize) -> Result<Option<Vec<String>>, Fault> {
    if !text.starts_with('[') {
        return Ok(None);
    }
    match serde_json::from_str::<Vec<String>>(text) {
        Ok(words) if words.iter().any(|word| word.contains('\0')) => {
            Err(Fault::new(line, "a word contains a NUL"))
        }
        Ok(words) => Ok(Some(words)),
        Err(_) => {
            let inner = text.get(1..).unwrap_or_default().trim_start();
            if inner.starts_with(['"', '\'']) {
                return Err(Fault::new(line, "this is not a JSON array of strings")
                    .remedy("write [\"PROGRAM\", \"ARGUMENT\"] with double quotes"));
            }
            Ok(None)
        }
    }
}
