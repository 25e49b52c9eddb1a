//! What a misspelt name most likely meant.

/// The longest name, in bytes, for which a suggestion is looked for. Every name of this crate is far shorter.
const MAX_LEN: usize = 64;

/// The candidate nearest to `name` by edit distance, if it is near enough to be a misspelling: at most a third of the
/// name's length, as compilers do it. The first of several equally near ones. Case does not count.
pub(crate) fn nearest<T: Copy>(name: &str, candidates: impl IntoIterator<Item = (T, &'static str)>) -> Option<T> {
    let limit = name.len().max(3) / 3;
    let mut best: Option<(usize, T)> = None;
    for (candidate, spelling) in candidates {
        let Some(distance) = distance(name, spelling) else { continue };
        if distance <= limit && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Edits (insert, delete, replace, swap neighbours) that turn one name into the other; `None` if one is too long.
fn distance(left: &str, right: &str) -> Option<usize> {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    if left.len() > MAX_LEN || right.len() > MAX_LEN {
        return None;
    }
    let mut before = [0usize; MAX_LEN + 1];
    let mut previous = [0usize; MAX_LEN + 1];
    let mut current = [0usize; MAX_LEN + 1];
    for (j, cell) in previous.iter_mut().enumerate() {
        *cell = j;
    }
    for (i, a) in left.iter().enumerate() {
        current[0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let replace = previous[j] + usize::from(!a.eq_ignore_ascii_case(b));
            let mut cost = replace.min(previous[j + 1] + 1).min(current[j] + 1);
            let swapped = i > 0
                && j > 0
                && a.eq_ignore_ascii_case(&right[j - 1])
                && left[i - 1].eq_ignore_ascii_case(b)
                && !a.eq_ignore_ascii_case(b);
            if swapped {
                cost = cost.min(before[j - 1] + 1);
            }
            current[j + 1] = cost;
        }
        before = previous;
        previous = current;
    }
    Some(previous[right.len()])
}

/// The start of a text, short enough for an error message.
pub(crate) fn excerpt(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Optimal string alignment by its definition.
    fn slow_distance(left: &[u8], right: &[u8]) -> usize {
        match (left, right) {
            ([], rest) | (rest, []) => rest.len(),
            ([left_rest @ .., a], [right_rest @ .., b]) => {
                let mut least = (slow_distance(left_rest, right_rest) + usize::from(a != b))
                    .min(slow_distance(left_rest, right) + 1)
                    .min(slow_distance(left, right_rest) + 1);
                if let ([l @ .., a1], [r @ .., b1]) = (left_rest, right_rest)
                    && a == b1
                    && a1 == b
                {
                    least = least.min(slow_distance(l, r) + 1);
                }
                least
            }
        }
    }

    #[test]
    fn far_names_get_no_suggestion() {
        let names = [(1, "ct5lp-hightpu-4t"), (2, "ct6e-standard-4t")];
        assert_eq!(nearest("ct5lp-highptu-4t", names), Some(1));
        assert_eq!(nearest("CT6E-STANDARD-4", names), Some(2));
        assert_eq!(nearest("n2-standard-16", names), None);
        assert_eq!(nearest("", names), None);
    }

    #[test]
    fn the_first_of_equally_near_names_wins() {
        assert_eq!(nearest("tpu-v_", [(1, "tpu-v3"), (2, "tpu-v4")]), Some(1));
    }

    proptest! {
        #[test]
        fn distance_follows_its_definition(left in "[abc]{0,5}", right in "[abc]{0,5}") {
            prop_assert_eq!(distance(&left, &right), Some(slow_distance(left.as_bytes(), right.as_bytes())));
        }

        #[test]
        fn any_text_is_harmless(text in "\\PC{0,90}") {
            let _ = nearest(&text, [((), "tpu7x-standard-4t")]);
            prop_assert!(excerpt(&text).chars().count() <= 64);
        }
    }
}
