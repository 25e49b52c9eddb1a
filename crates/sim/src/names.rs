//! Names, uids and keys that are random in a cluster and here follow from what they name.

use std::fmt::Write as _;

use sha1::{Digest, Sha1};

/// The characters Kubernetes makes random suffixes of: no vowels, no digits that look like letters.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

fn digest(parts: &[&str]) -> [u8; 20] {
    let mut sha = Sha1::new();
    for part in parts {
        sha.update(part.as_bytes());
        sha.update([0]);
    }
    sha.finalize().into()
}

/// Five characters, as Kubernetes adds them to generated names.
pub(crate) fn suffix(parts: &[&str]) -> String {
    let digest = digest(parts);
    digest.iter().take(5).map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()])).collect()
}

/// A uid in the form of a random UUID.
pub(crate) fn uid(parts: &[&str]) -> String {
    let mut bytes = digest(parts);
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let mut text = String::with_capacity(36);
    for (i, byte) in bytes.iter().take(16).enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The `jobset.sigs.k8s.io/job-key` of a Job: SHA-1 of `namespace/name` in hex.
pub(crate) fn job_key(namespace: &str, name: &str) -> String {
    let bytes: [u8; 20] = Sha1::digest(format!("{namespace}/{name}").as_bytes()).into();
    bytes.iter().fold(String::with_capacity(40), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_key_is_that_of_the_jobset_controller() {
        assert_eq!(job_key("default", "multislice-1slice-slice-0"), "4225df9df0673a7284353808812517bfd38d64d7");
    }

    #[test]
    fn suffixes_and_uids_follow_from_what_they_name() {
        assert_eq!(suffix(&["a", "b"]), suffix(&["a", "b"]));
        assert_ne!(suffix(&["a", "b"]), suffix(&["ab"]));
        assert_eq!(suffix(&["x"]).len(), 5);
        let uid = uid(&["Job", "default", "x"]);
        assert_eq!(uid.len(), 36);
        assert_eq!(uid.as_bytes()[14], b'4');
    }
}
