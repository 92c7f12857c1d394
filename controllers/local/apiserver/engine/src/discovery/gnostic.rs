//! The little of OpenAPI version 2 that kubectl reads although there is version 3: before it applies a `List`, it looks whether
//! namespaces can be validated by the server. It requests the protobuf form (`openapi.v2.Document` of gnostic) only.

use bytes::Bytes;

use crate::proto::wire::Writer;

pub(super) const MEDIA_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
const PARAMETERS: [&str; 2] = ["dryRun", "fieldValidation"];

/// The document: the patch of a namespace.
pub(super) fn document() -> Bytes {
    let mut out = Writer::default();
    out.bytes(1, b"2.0");
    out.message(8, |paths| named(paths, 2, "/api/v1/namespaces/{name}", |item| item.message(8, patch)));
    Bytes::from(out.finish())
}

fn named(out: &mut Writer, field: u32, name: &str, fill: impl FnOnce(&mut Writer)) {
    out.message(field, |pair| {
        pair.bytes(1, name.as_bytes());
        pair.message(2, fill);
    });
}

fn patch(operation: &mut Writer) {
    for parameter in PARAMETERS {
        // `ParametersItem{parameter: Parameter{non_body_parameter: {query_parameter_sub_schema}}}`
        operation.message(8, |item| {
            item.message(1, |out| {
                out.message(2, |out| {
                    out.message(3, |out| {
                        out.bytes(2, b"query");
                        out.bytes(4, parameter.as_bytes());
                        out.bytes(6, b"string");
                    });
                });
            });
        });
    }
    named(operation, 13, "x-kubernetes-group-version-kind", |any| {
        any.bytes(2, br#"{"group":"","version":"v1","kind":"Namespace"}"#);
    });
}
