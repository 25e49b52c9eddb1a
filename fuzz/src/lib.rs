//! What the fuzz targets share: the same program is a libFuzzer target when built with `--cfg fuzzing`, and otherwise replays
//! the files and folders named on its command line.

/// The random events of the engine's property tests.
#[path = "../../tests/src/drive.rs"]
pub mod drive;

/// Defines the program: `fuzz!(|data| { ... })`.
#[macro_export]
macro_rules! fuzz {
    (|$data:ident| $body:block) => {
        #[cfg(fuzzing)]
        libfuzzer_sys::fuzz_target!(|$data: &[u8]| $body);

        #[cfg(not(fuzzing))]
        fn main() {
            $crate::replay(|$data: &[u8]| $body);
        }
    };
}

/// Runs `target` on every file that the arguments name; folders stand for their files.
///
/// # Panics
/// If one cannot be read, or there is none: nothing would have been tried.
pub fn replay(target: impl Fn(&[u8])) {
    let mut todo: Vec<std::path::PathBuf> = std::env::args_os().skip(1).map(Into::into).collect();
    let mut count = 0;
    while let Some(path) = todo.pop() {
        let unreadable = |why: std::io::Error| -> ! { panic!("{}: {why}", path.display()) };
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).unwrap_or_else(|why| unreadable(why));
            todo.extend(entries.map(|entry| entry.unwrap_or_else(|why| unreadable(why)).path()));
        } else {
            target(&std::fs::read(&path).unwrap_or_else(|why| unreadable(why)));
            count += 1;
        }
    }
    assert!(count > 0, "there is nothing to replay: name files or folders");
    println!("replayed {count} inputs");
}
