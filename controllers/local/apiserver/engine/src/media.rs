//! Content negotiation: which form an answer takes, and how a body is read.

use crate::proto::MEDIA_TYPE;
use crate::status::ApiError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Whole,
    Metadata,
    MetadataList,
    Table(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    pub shape: Shape,
    pub aggregated: bool,
}

pub const PLAIN: Accepted = Accepted { shape: Shape::Whole, aggregated: false };

/// Reads an `Accept` header.
///
/// # Errors
/// 406 if the server supports none of the requested types.
pub fn negotiate(accept: &str) -> Result<Accepted, ApiError> {
    if matches!(accept, "" | "*/*" | "application/json") {
        return Ok(PLAIN);
    }
    let mut clauses: Vec<(f32, Clause<'_>)> = accept.split(',').map(Clause::parse).collect();
    clauses.sort_by(|a, b| b.0.total_cmp(&a.0));
    clauses.iter().find_map(|(_, clause)| clause.accepted()).ok_or_else(not_acceptable)
}

/// An `Accept` header without the tables that it requests, for objects that are not shown as one.
///
/// # Errors
/// 406 if it requests nothing else.
pub fn without_tables(accept: &str) -> Result<String, ApiError> {
    let others: Vec<&str> =
        accept.split(',').filter(|clause| !Clause::parse(clause).1.form.starts_with("Table")).collect();
    if others.is_empty() { Err(not_acceptable()) } else { Ok(others.join(",")) }
}

pub fn not_acceptable() -> ApiError {
    ApiError::plain(
        406,
        "NotAcceptable",
        "only the following media types are accepted: application/json, application/json;as=Table;v=v1;g=meta.k8s.io, application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    )
}

struct Clause<'a> {
    media: &'a str,
    form: &'a str,
    group: &'a str,
    version: &'a str,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> (f32, Self) {
        let mut parts = text.split(';').map(str::trim);
        let mut clause = Self { media: parts.next().unwrap_or(""), form: "", group: "", version: "" };
        let mut quality = 1.0;
        for part in parts {
            match part.split_once('=') {
                Some(("as", value)) => clause.form = value,
                Some(("g", value)) => clause.group = value,
                Some(("v", value)) => clause.version = value,
                Some(("q", value)) => quality = value.parse().unwrap_or(0.0),
                _ => {}
            }
        }
        (quality, clause)
    }

    fn accepted(&self) -> Option<Accepted> {
        if !matches!(self.media, "application/json" | "*/*" | "application/*") {
            return None;
        }
        let shape = match (self.form, self.group, self.version) {
            ("", ..) => Shape::Whole,
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => {
                return Some(Accepted { shape: Shape::Whole, aggregated: true });
            }
            ("Table", "meta.k8s.io", "v1") => Shape::Table("v1"),
            ("Table", "meta.k8s.io", "v1beta1") => Shape::Table("v1beta1"),
            ("PartialObjectMetadata", "meta.k8s.io", "v1") => Shape::Metadata,
            ("PartialObjectMetadataList", "meta.k8s.io", "v1") => Shape::MetadataList,
            _ => return None,
        };
        Some(Accepted { shape, aggregated: false })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFormat {
    Json,
    Protobuf,
}

/// Reads the `Content-Type` of a create, update or delete; only built-in types have a protobuf form.
///
/// # Errors
/// 415 for anything else.
pub fn body_format(content_type: &str, builtin: bool) -> Result<BodyFormat, ApiError> {
    match content_type.split(';').next().unwrap_or("").trim() {
        "" | "application/json" => Ok(BodyFormat::Json),
        MEDIA_TYPE if builtin => Ok(BodyFormat::Protobuf),
        other if builtin => Err(unsupported(&["application/json", MEDIA_TYPE], other)),
        other => Err(unsupported(&["application/json"], other)),
    }
}

pub fn unsupported(accepted: &[&str], _given: &str) -> ApiError {
    ApiError::plain(
        415,
        "UnsupportedMediaType",
        format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        ),
    )
}
