//! A Dockerfile as a source of images.

use std::path::{Path, PathBuf};

use neonvm_disk::tree::{SourceId, Sources, Tree};

use super::context::{Context, Pattern};
use super::copy::{self, CONTEXT_SOURCES, Ids, Job};
use super::evaluate::{self, Action, Copy, Given};
use super::{Fault, LONGEST, parse};
use crate::accounts::Accounts;
use crate::cache::read_limited;
use crate::layer::LayerSources;
use crate::reference::Digest;
use crate::source::{self, Error, ImageSettings, Loaded, Options, Progress, Source};

/// Contents of the base image, and of the context.
struct Both {
    base: Box<dyn Sources + Send>,
    context: LayerSources,
}

impl Sources for Both {
    fn read_exact_at(&self, source: SourceId, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        match source.0.checked_sub(CONTEXT_SOURCES) {
            Some(own) => self.context.read_exact_at(SourceId(own), offset, into),
            None => self.base.read_exact_at(source, offset, into),
        }
    }
}

/// Loads the base image and carries out the instructions. `arguments`: `NAME=VALUE`.
///
/// # Errors
/// With the line of the Dockerfile; and those of the base image.
pub(crate) async fn load(
    file: &Path,
    arguments: &[String],
    options: &Options,
    progress: &dyn Progress,
) -> Result<Loaded, Error> {
    let bytes = read_limited(file, LONGEST).map_err(|error| Error::io("read", file, error))?;
    let at = |fault: Fault| fault.at(file);
    let parsed = parse::parse(&bytes).map_err(at)?;
    let given = given(arguments, options);
    let directory = file.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let context = Context::open(directory)?;
    let (line, image) = evaluate::base(&parsed, &given).map_err(at)?;
    let mut loaded = match base_source(&context, line, &image).map_err(at)? {
        None => empty(options),
        Some(source) => Box::pin(source::load(&source, options, progress)).await?,
    };
    let (process, labels) = (loaded.settings.process.clone(), loaded.settings.labels.clone());
    let outcome = evaluate::evaluate(&parsed, &given, process, labels).map_err(at)?;
    for note in &outcome.notes {
        progress.note(&format!("{}: {note}", file.display()));
    }
    let mut jobs: Vec<(&Copy, Vec<Pattern>)> = Vec::new();
    for action in &outcome.actions {
        if let Action::Copy(copy) = action {
            jobs.push((copy, context.patterns(copy).map_err(at)?));
        }
    }
    let patterns: Vec<Pattern> = jobs.iter().flat_map(|(_, patterns)| patterns.clone()).collect();
    let (files, sources) = if patterns.is_empty() {
        (Tree::new(), LayerSources::of_files(Vec::new()))
    } else {
        context.read(&patterns, options)?
    };
    let added = source::tree_digest(&files, &sources)?;
    apply(&outcome.actions, &jobs, &files, &mut loaded).map_err(at)?;
    let actions: Vec<Action> = outcome.actions.iter().cloned().map(Action::without_line).collect();
    let settings = format!("{:?} {:?} {actions:?}", outcome.process, outcome.labels);
    loaded.digest = Digest::from_bytes(format!("dockerfile {} {added} {settings}", loaded.digest).as_bytes());
    loaded.reference = format!("dockerfile:{} from {}", file.display(), loaded.reference);
    loaded.settings.process = outcome.process;
    loaded.settings.labels = outcome.labels;
    loaded.sources = Box::new(Both { base: loaded.sources, context: sources });
    Ok(loaded)
}

fn given(arguments: &[String], options: &Options) -> Given {
    let pair = |text: &String| text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    Given {
        arguments: arguments.iter().filter_map(pair).collect(),
        os: options.platform.os.clone(),
        architecture: options.platform.architecture.clone(),
    }
}

/// What `FROM` names: a reference; with the prefixes of `--from`, an archive or a directory of the context. `None`: `scratch`.
fn base_source(context: &Context, line: usize, image: &str) -> Result<Option<Source>, Fault> {
    if image == "scratch" {
        return Ok(None);
    }
    let forms = ["oci-archive:", "docker-archive:", "oci:", "dir:", "tar:"];
    for form in forms {
        let Some(rest) = image.strip_prefix(form) else { continue };
        let (path, name) = match rest.split_once(':') {
            Some((path, name)) => (path, Some(name.to_owned())),
            None => (rest, None),
        };
        let path = context.resolve(line, "the image of FROM", path)?;
        return Ok(Some(match form {
            "oci-archive:" => Source::OciArchive { path, name },
            "docker-archive:" => Source::DockerArchive { path, name },
            "oci:" => Source::OciLayout { path, name },
            "dir:" => Source::RootTree(path),
            _ => Source::RootTar(path),
        }));
    }
    let reference = image.strip_prefix("docker://").unwrap_or(image).parse().map_err(|error| {
        Fault::new(line, format!("FROM: {error}"))
            .remedy("write an image reference, scratch, or oci:, oci-archive:, docker-archive:, dir: or tar: with a path in the context")
    })?;
    Ok(Some(Source::Registry(reference)))
}

/// The image `scratch`.
fn empty(options: &Options) -> Loaded {
    Loaded {
        tree: Tree::new(),
        sources: Box::new(neonvm_disk::tree::NoSources),
        settings: ImageSettings {
            architecture: options.platform.architecture.clone(),
            os: options.platform.os.clone(),
            ..ImageSettings::default()
        },
        digest: Digest::from_bytes(b""),
        reference: "scratch".to_owned(),
        layers: Vec::new(),
    }
}

fn apply(
    actions: &[Action],
    jobs: &[(&Copy, Vec<Pattern>)],
    files: &Tree,
    loaded: &mut Loaded,
) -> Result<(), Fault> {
    let mut jobs = jobs.iter();
    for action in actions {
        match action {
            Action::Directory { line, path } => {
                copy::make_directory(&mut loaded.tree, path)
                    .map_err(|problem| Fault::new(*line, format!("WORKDIR: {problem}")))?;
            }
            Action::Copy(copy) => {
                let Some((_, patterns)) = jobs.next() else { continue };
                let owner = owner(copy, loaded)?;
                let job = Job { copy, patterns, owner };
                copy::carry_out(&job, files, &mut loaded.tree)
                    .map_err(|problem| Fault::new(copy.line, format!("COPY: {problem}")))?;
            }
        }
    }
    Ok(())
}

/// The numbers of `--chown`; root without it. As with docker, a user without a group has the group of the same number, or its own
/// group in `/etc/passwd`.
fn owner(copy: &Copy, loaded: &Loaded) -> Result<Ids, Fault> {
    let Some(text) = &copy.owner else { return Ok((0, 0)) };
    let (user, group) =
        text.split_once(':').map_or((text.as_str(), None), |(user, group)| (user, Some(group)));
    let accounts = Accounts::of(&loaded.tree, &*loaded.sources);
    let unknown = |kind: &str, name: &str, path: &str| {
        Fault::new(copy.line, format!("--chown: {path} of the image has no {kind} {name:?}"))
            .remedy("write numbers, such as --chown=1000:1000")
    };
    let (uid, own) = match user.parse::<u32>() {
        Ok(uid) => (uid, uid),
        Err(_) => accounts.user(user).ok_or_else(|| unknown("user", user, "/etc/passwd"))?,
    };
    let gid = match group.filter(|group| !group.is_empty()) {
        None => own,
        Some(group) => match group.parse::<u32>() {
            Ok(gid) => gid,
            Err(_) => accounts.group(group).ok_or_else(|| unknown("group", group, "/etc/group"))?,
        },
    };
    Ok((uid, gid))
}

/// Where a Dockerfile is: the file itself, or that of a directory.
pub(crate) fn file_at(path: PathBuf) -> Result<PathBuf, Error> {
    if path.is_dir() {
        return super::of_directory(&path).ok_or_else(|| Error::SourceMissing(path.join("Dockerfile")));
    }
    if path.exists() { Ok(path) } else { Err(Error::SourceMissing(path)) }
}
