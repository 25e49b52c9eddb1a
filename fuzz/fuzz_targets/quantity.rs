//! Any text: parsing does not panic, and what parses prints as something that parses to the same.
#![cfg_attr(fuzzing, no_main)]

use slicegate_quota::Quantity;

slicegate_fuzz::fuzz!(|data| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(quantity) = text.parse::<Quantity>() else { return };
    let printed = quantity.to_string();
    let again: Quantity = printed.parse().unwrap_or_else(|why| panic!("{text:?} printed as {printed:?}: {why}"));
    assert_eq!(again, quantity, "{text:?} printed as {printed:?}");
    // Bytes that are no multiple of 1024 lose their binary suffix, as in Kubernetes; after that nothing changes any more.
    let settled = again.to_string();
    let last: Quantity = settled.parse().unwrap_or_else(|why| panic!("{text:?} settled as {settled:?}: {why}"));
    assert_eq!((last, last.to_string()), (quantity, settled), "{text:?}");
});
