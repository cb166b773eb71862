//! The messages of `foregate check` for files with mistakes, word for word: tests/ui/NAME.stderr. With `UPDATE_UI=1` these
//! files are written.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops at what it did not expect")]

use std::path::Path;
use std::process::{Command, Output};

fn check(folder: &Path, file: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_foregate"))
        .args(["check", "-c", file])
        .current_dir(folder)
        .env_remove("FOREGATE_TEST_NOT_SET")
        .output()
        .unwrap()
}

#[test]
fn messages_are_as_written_down() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui");
    let mut count = 0;
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if !path.extension().is_some_and(|extension| extension == "kdl" || extension == "json") {
            continue;
        }
        let name = path.file_name().unwrap().to_str().unwrap();
        let output = check(&folder, name);
        assert_eq!(output.status.code(), Some(1), "{name}");
        assert!(output.stdout.is_empty(), "{name}");
        let message = String::from_utf8(output.stderr).unwrap();
        let expected = folder.join(format!("{name}.stderr"));
        if std::env::var_os("UPDATE_UI").is_some() {
            std::fs::write(&expected, &message).unwrap();
        } else if std::fs::read_to_string(&expected).unwrap_or_default() != message {
            wrong.push(format!("{name}:\n{message}"));
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 10);
}
