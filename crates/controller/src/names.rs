//! Names of the objects that Slicegate makes.

use std::fmt::Write as _;

use sha1::{Digest, Sha1};

/// The longest name of an object.
const LONGEST: usize = 253;
/// The longest where names are to fit into a label.
const LONGEST_LABEL: usize = 63;
/// Characters of the hash.
const HASH: usize = 5;

/// Where the name of a Workload comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Owner<'a> {
    /// The kind of the job.
    pub kind: &'a str,
    /// Its API group.
    pub group: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its uid; `None` for names as they were before Kueue 0.7.
    pub uid: Option<&'a str>,
    /// The generation of an elastic job.
    pub extra: Option<&'a str>,
    /// Whether the name must fit into a label.
    pub short: bool,
}

/// The name of the Workload of a job.
pub fn workload(owner: Owner<'_>) -> String {
    let mut text = format!("{}\n{}\n{}", owner.kind, owner.group, owner.name);
    for part in [owner.uid, owner.extra.filter(|e| !e.is_empty())].into_iter().flatten() {
        text.push('\n');
        text.push_str(part);
    }
    let longest = if owner.short { LONGEST_LABEL } else { LONGEST };
    let prefix = format!("{}-{}", owner.kind.to_lowercase(), owner.name);
    format!("{}-{}", cut(&prefix, longest - HASH - 1), hash(&text))
}

/// The name of the variant of a Workload for one flavor, where admission to several flavors is tried at once.
pub fn variant(workload: &str, flavor: &str, owner: Owner<'_>) -> String {
    let mut text = format!("{}\n{}\n{workload}", owner.kind, owner.group);
    for part in [owner.uid, Some(flavor)].into_iter().flatten() {
        text.push('\n');
        text.push_str(part);
    }
    let longest = if owner.short { LONGEST_LABEL } else { LONGEST };
    // The hash at the end of the name gives way to the new one.
    let base = workload.len().checked_sub(HASH + 1).and_then(|end| workload.get(..end)).unwrap_or_default();
    let prefix = format!("{base}-variant-{flavor}");
    format!("{}-{}", cut(&prefix, longest - HASH - 1), hash(&text))
}

/// The name of the ProvisioningRequest for a workload and a check, by attempt.
pub fn provisioning_request(workload: &str, check: &str, attempt: i32) -> String {
    limited(format!("{workload}-{check}-{attempt}"))
}

/// The name of the PodTemplate of a pod set in a ProvisioningRequest.
pub fn pod_template(request: &str, pod_set: &str) -> String {
    limited(format!("ppt-{request}-{pod_set}"))
}

fn limited(name: String) -> String {
    let longest = LONGEST - HASH - 1;
    if name.len() <= longest { name } else { format!("{}-{}", cut(&name, longest), hash(&name)) }
}

fn cut(text: &str, longest: usize) -> &str {
    let mut end = longest.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn hash(text: &str) -> String {
    let mut hex = String::new();
    for byte in Sha1::digest(text.as_bytes()).iter().take(3) {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex.truncate(HASH);
    hex
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobset(name: &str) -> Owner<'_> {
        Owner { kind: "JobSet", group: "jobset.x-k8s.io", name, ..Owner::default() }
    }

    #[test]
    fn names_before_uids_are_those_of_the_tutorial() {
        assert_eq!(workload(jobset("multislice-1slice")), "jobset-multislice-1slice-2530a");
        assert_eq!(workload(jobset("multislice-2slice")), "jobset-multislice-2slice-ffb02");
        assert_eq!(workload(jobset("multislice-3slice")), "jobset-multislice-3slice-8c695");
    }

    #[test]
    fn uid_and_extra_change_the_hash() {
        let uid = Some("11111111-2222-3333-4444-555555555555");
        assert_eq!(workload(Owner { uid, ..jobset("multislice-1slice") }), "jobset-multislice-1slice-212f9");
        let ray = Owner { kind: "RayJob", group: "ray.io", name: "rayjob-tpu-v6e-dws-1", uid, ..Owner::default() };
        assert_eq!(workload(ray), "rayjob-rayjob-tpu-v6e-dws-1-72408");
        assert_eq!(workload(Owner { extra: Some("1"), ..ray }), "rayjob-rayjob-tpu-v6e-dws-1-1f83e");
    }

    #[test]
    fn long_names_are_cut_and_hashed() {
        let long = "x".repeat(300);
        assert_eq!(provisioning_request(&long, "check", 1).len(), 253);
        assert_eq!(pod_template("pr", "slice"), "ppt-pr-slice");
        assert_eq!(workload(Owner { short: true, ..jobset(&long) }).len(), 63);
    }
}
