//! Any text: reading it does not panic, and what was read is read again, from its JSON, as the same.
#![cfg_attr(fuzzing, no_main)]

use std::collections::BTreeMap;

use slicegate_manifest::{Body, Options, Source, load};

slicegate_fuzz::fuzz!(|data| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let env = BTreeMap::from([("A".to_owned(), "a: b".to_owned())]);
    let loaded = load(&[Source { name: "first".into(), text: text.to_owned(), env }], &Options::default());
    for diagnostic in &loaded.diagnostics {
        let _ = diagnostic.render(true);
    }
    for document in &loaded.documents {
        let Body::Object(object) = &document.body else { continue };
        let json = object.to_json().unwrap_or_else(|why| panic!("{}: {why}", document.title())).to_string();
        // What is written as `${NAME}` would be filled in once more.
        if json.contains("${") {
            continue;
        }
        let again =
            load(&[Source { name: "again".into(), text: json.clone(), ..Source::default() }], &Options::default());
        assert!(!again.has_errors(), "{}: {:?}\n{json}", document.title(), again.diagnostics);
        let [one] = again.documents.as_slice() else { panic!("{} is read as {:?}", document.title(), again.documents) };
        assert_eq!(one.body, document.body, "{json}");
    }
});
