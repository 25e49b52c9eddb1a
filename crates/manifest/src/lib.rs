//! Manifests as people write them, read into typed objects that know where each of their fields is written.
//!
//! YAML is read as kubectl reads it (YAML 1.1 scalars, merge keys, several documents, lists), JSON as gcloud prints it. A
//! manifest is never half read: [`load`] reports everything that is wrong with all sources at once, each with its file, line
//! and column, and leaves objects with errors out.
//!
//! ```
//! use slicegate_manifest::{Options, Source, load};
//!
//! let text = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata:\n  name: v5e\nspec:\n  nodeLabel: {}\n";
//! let source = Source { name: "flavors.yaml".into(), text: text.into(), ..Source::default() };
//! let loaded = load(&[source], &Options::default());
//! assert!(loaded.diagnostics[0].to_string().contains("flavors.yaml:6:3"));
//! ```

mod diagnostic;
mod fill;
mod json;
mod known;
mod load;
mod position;
mod read;
mod scalar;
mod source;
mod tree;
mod wording;
mod yaml;

pub use diagnostic::{Code, Diagnostic, Severity};
pub use known::{is_slip, nearest};
pub use load::{Body, Document, Loaded, Options, Texts, load};
pub use position::{Position, Positions};
pub use source::{PathSpec, Source, SourceError, sources_from_paths};
