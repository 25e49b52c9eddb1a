//! Any text: parsing does not panic, and what parses prints as something that parses to the same.
#![cfg_attr(fuzzing, no_main)]

use slicegate_quota::Quantity;

slicegate_fuzz::fuzz!(|data| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(quantity) = text.parse::<Quantity>() else { return };
    let printed = quantity.to_string();
    let again: Quantity = printed.parse().unwrap_or_else(|why| panic!("{text:?} printed as {printed:?}: {why}"));
    assert_eq!(again, quantity, "{text:?} printed as {printed:?}");
    assert_eq!(again.to_string(), printed, "{text:?}");
});
