//! The texts that people and scripts see.

/// The longest message of a condition.
const CONDITION_LIMIT: usize = 32 * 1024;
/// The longest note of an event.
const NOTE_LIMIT: usize = 1024;

/// What a workload is told that would fit, had nothing been decided before it.
pub(crate) const NO_LONGER_FITS: &str = "Workload no longer fits after processing another workload";

/// Cuts a message of a condition to what the API takes.
pub(crate) fn condition(text: &str) -> Box<str> {
    cut(text, CONDITION_LIMIT)
}

/// Cuts the note of an event to what the API takes.
pub(crate) fn note(text: &str) -> Box<str> {
    cut(text, NOTE_LIMIT)
}

fn cut(text: &str, limit: usize) -> Box<str> {
    const SUFFIX: &str = " ...";
    if text.len() <= limit {
        return text.into();
    }
    let mut end = limit.saturating_sub(SUFFIX.len());
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    format!("{}{SUFFIX}", &text[..end]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        let long = "é".repeat(600);
        let cut = note(&long);
        assert!(cut.len() <= 1024);
        assert!(cut.ends_with(" ..."));
        assert_eq!(&*condition("short"), "short");
    }
}
