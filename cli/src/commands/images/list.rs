//! `images list`

use neonvm_images::release::{self, Packed};
use serde_json::json;

use super::{VERSION, open};
use crate::args::images::List;
use crate::commands::place;
use crate::env::Env;
use crate::error::Result;
use crate::report::{API_VERSION, Document, Report, left, right, wide};

/// The images of a release.
pub(crate) fn run(env: &Env, args: &List) -> Result<Report> {
    let (_, images) = open(env, &args.which)?;
    let problems = release::problems(&images, VERSION);
    let report = Report::document(document(&images, &problems));
    Ok(problems.iter().fold(report, |report, problem| report.note(format!("warning: {problem}"))))
}

fn document(images: &[Packed], problems: &[String]) -> Document {
    let item = |image: &Packed| {
        json!({ "name": image.name, "version": image.labels.version, "revision": image.labels.revision,
            "protocols": image.labels.protocols, "platform": image.platform, "size": image.size(),
            "digest": image.digest().to_string() })
    };
    let row = |image: &Packed| {
        let short: String = image.digest().hex().chars().take(12).collect();
        let labels = &image.labels;
        vec![
            image.name.clone(),
            labels.version.clone(),
            place::bytes(image.size()),
            image.platform.clone(),
            short,
            labels.revision.chars().take(12).collect(),
            labels.protocols.clone(),
        ]
    };
    Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "ReleaseImageList", "problems": problems,
            "items": images.iter().map(item).collect::<Vec<_>>() }),
        names: images.iter().map(|image| format!("image/{}", image.name)).collect(),
        text: None,
        columns: vec![
            left("NAME"),
            left("VERSION"),
            right("SIZE"),
            left("PLATFORM"),
            left("DIGEST"),
            wide("REVISION"),
            wide("PROTOCOLS"),
        ],
        rows: images.iter().map(row).collect(),
    }
}
