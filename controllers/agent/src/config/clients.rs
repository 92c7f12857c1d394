//! Where events go.

use serde::{Deserialize, Serialize};

/// Where events go; each may be absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Clients {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpClient>,
    /// A store that speaks S3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Client>,
    /// Writes events to a directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileClient>,
    /// Not supported; read so that it can be refused with a remedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub azure_blob: Option<serde_json::Value>,
}

/// How events are put together and sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Push {
    /// A batch is closed after this without being full.
    pub push_every_seconds: u64,
    pub push_request_timeout_seconds: u64,
    /// Most events of a batch.
    pub max_batch_size: u64,
}

/// A client's keys, with those of [`Push`] among them: flattened ones would let unknown keys pass, and not be named when
/// they are wrong.
macro_rules! client {
    ($(#[$about:meta])* $name:ident { $($(#[$field_about:meta])* $field:ident: $kind:ty,)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub struct $name {
            $($(#[$field_about])* pub $field: $kind,)*
            /// A batch is closed after this without being full.
            pub push_every_seconds: u64,
            pub push_request_timeout_seconds: u64,
            /// Most events of a batch.
            pub max_batch_size: u64,
        }

        impl $name {
            /// When events are sent.
            #[must_use]
            pub const fn push(&self) -> Push {
                Push {
                    push_every_seconds: self.push_every_seconds,
                    push_request_timeout_seconds: self.push_request_timeout_seconds,
                    max_batch_size: self.max_batch_size,
                }
            }
        }
    };
}

client! {
    /// Events to an HTTP server: `POST {url}/usage_events`.
    HttpClient {
        url: String,
    }
}

client! {
    /// Events as compressed lines of JSON in a store that speaks S3. Keys come from `AWS_ACCESS_KEY_ID` and
    /// `AWS_SECRET_ACCESS_KEY`.
    S3Client {
        bucket: String,
        region: String,
        /// URL of the store; absent: Amazon's of the region.
        #[serde(default)]
        endpoint: String,
        /// In front of each key.
        #[serde(default)]
        prefix_in_bucket: String,
    }
}

client! {
    /// Events as compressed lines of JSON in files, under the same names as in a bucket.
    FileClient {
        /// Directory for the event files.
        directory: std::path::PathBuf,
    }
}
