//! Rules of GKE for Slices. Where its pages disagree the stricter rule holds.

use slicegate_tpu::{SuperSlice, Topology};

use super::{FindingKind, Findings};
use crate::path::Path;
use crate::slice::{LONGEST_NAME, Slice};

/// The accelerators of which slices are formed.
const TYPES: &[&str] = &["tpu7x", "v6e"];

/// Lower case letters, digits and `-`, a letter first and no `-` last.
fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && !text.ends_with('-')
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

pub(super) fn check(slice: &Slice, out: &mut Findings) {
    let name = slice.metadata.name.as_deref().unwrap_or_default();
    let metadata = Path::ROOT.field("metadata");
    let path = metadata.field("name");
    if name.len() > LONGEST_NAME {
        let detail = format!("has {} characters; GKE takes at most {LONGEST_NAME} for a Slice", name.len());
        out.add(path, FindingKind::TooLong, detail);
    } else if !name.is_empty() && !is_name(name) {
        let detail = format!("{name:?}: use lower case letters, digits and '-', with a letter first and no '-' last");
        out.invalid(path, detail);
    }
    let spec = Path::ROOT.field("spec");
    if slice.spec.type_.is_empty() {
        out.required(spec.field("type"), "must be set, such as tpu7x");
    }
    out.word(spec.field("type"), Some(&slice.spec.type_), TYPES);
    let ids = &slice.spec.partition_ids;
    let path = spec.field("partitionIds");
    if ids.is_empty() {
        out.required(path, "must name at least one partition");
    }
    for (i, id) in ids.iter().enumerate() {
        if ids.iter().take(i).any(|other| other == id) {
            out.duplicate(path.index(i), id);
        }
    }
    let path = spec.field("topology");
    if slice.spec.topology.is_empty() {
        out.required(path, "must be set, such as 4x4x4");
        return;
    }
    let topology = match slice.spec.topology.parse::<Topology>() {
        Ok(topology) => topology,
        Err(error) => return out.invalid(path, error.to_string()),
    };
    // What shapes other accelerators take is not said anywhere.
    if slice.spec.type_ != "tpu7x" {
        return;
    }
    match SuperSlice::partitions_of(topology) {
        Ok((shape, count)) => {
            let found = ids.len();
            if found != 0 && u32::try_from(found) != Ok(count) {
                let detail = format!("has {found} entries, but {topology} is {count} x {shape}: name {count}");
                out.invalid(spec.field("partitionIds"), detail);
            }
        }
        Err(error) => out.invalid(path, error.to_string()),
    }
}

/// What is said about old and new together.
pub(super) fn transition(old: &Slice, new: &Slice, out: &mut Findings) {
    let spec = Path::ROOT.field("spec");
    let fields = [
        ("type", old.spec.type_ != new.spec.type_),
        ("topology", old.spec.topology != new.spec.topology),
        ("partitionIds", old.spec.partition_ids != new.spec.partition_ids),
    ];
    for (field, changed) in fields {
        if changed {
            out.immutable(spec.field(field));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::validation::{Rules, validate, validate_update};
    use crate::{Kind, Object};

    fn slice(name: &str, spec: &Value) -> Object {
        Kind::Slice.read(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    }

    fn findings(name: &str, spec: &Value) -> Vec<String> {
        validate(&slice(name, spec), &Rules::default()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_are_short_and_begin_with_a_letter() {
        let spec = json!({"type": "tpu7x", "topology": "4x4x4", "partitionIds": ["a"]});
        assert!(findings(&"a".repeat(49), &spec).is_empty());
        assert!(findings(&"a".repeat(50), &spec)[0].starts_with("metadata.name: has 50 characters"));
        for name in ["1a", "a-", "a.b", "A"] {
            assert!(findings(name, &spec)[0].starts_with("metadata.name: "), "{name}");
        }
    }

    #[test]
    fn a_slice_is_made_of_as_many_partitions_as_its_shape_says() {
        let spec = |topology: &str, ids: &[&str]| json!({"type": "tpu7x", "topology": topology, "partitionIds": ids});
        assert!(findings("a", &spec("4x4x8", &["a", "b"])).is_empty());
        assert!(findings("a", &spec("2x4x4", &["a"])).is_empty());
        assert_eq!(
            findings("a", &spec("4x4x8", &["a"])),
            ["spec.partitionIds: has 1 entries, but 4x4x8 is 2 x 4x4x4: name 2"]
        );
        assert_eq!(findings("a", &spec("4x4x8", &["a", "a"])), ["spec.partitionIds[1]: \"a\" is here twice"]);
        assert!(findings("a", &spec("2x2x2", &["a", "b"]))[0].starts_with("spec.partitionIds: has 2 entries"));
        assert!(findings("a", &spec("8x4x4", &["a", "b"]))[0].ends_with("did you mean 4x4x8?"));
        assert!(findings("a", &spec("4by4", &["a"]))[0].starts_with("spec.topology: \"4by4\" is not a topology"));
        assert_eq!(findings("a", &json!({})).len(), 3);
        assert!(
            findings("a", &json!({"type": "v4", "topology": "4x4x4", "partitionIds": ["a"]}))[0].contains("spec.type")
        );
    }

    #[test]
    fn nothing_of_it_changes() {
        let old = slice("a", &json!({"type": "tpu7x", "topology": "4x4x4", "partitionIds": ["a"]}));
        let new = slice("a", &json!({"type": "v6e", "topology": "2x4x4", "partitionIds": ["b"]}));
        let paths: Vec<String> =
            validate_update(&old, &new, &Rules::default(), false).into_iter().map(|finding| finding.path).collect();
        assert_eq!(paths, ["spec.type", "spec.topology", "spec.partitionIds"]);
        assert!(validate_update(&old, &old, &Rules::default(), false).is_empty());
    }
}
