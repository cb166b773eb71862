//! Sizes of types: one that does too much, or is spread over too many files, is several.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::source::Source;
use super::{name, packages};

/// The most methods and associated functions of a type, without those of traits.
const METHODS: usize = 40;
/// The most files with implementations of a type, without those of traits.
const FILES: usize = 4;

/// Types beyond these, with their crate, files and methods. The numbers may only shrink, and no type may be added: give a part of
/// the type's fields, with the functions that use them, a type of its own.
const LARGE: &[(&str, &str, usize, usize)] = &[];

#[test]
fn types_are_small_and_in_few_files() {
    let mut wrong = Vec::new();
    let mut all = 0;
    for package in &packages() {
        let folder = Path::new(package["manifest_path"].as_str().unwrap()).with_file_name("src");
        if !fs::exists(&folder).unwrap() {
            continue;
        }
        let krate = name(package);
        let mut types: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for source in Source::all(&folder) {
            let mut of_file: BTreeMap<&str, usize> = BTreeMap::new();
            for (of, methods) in &source.methods {
                *of_file.entry(of).or_default() += methods;
            }
            for (of, methods) in of_file {
                let (files, sum) = types.entry(of.to_owned()).or_default();
                *files += 1;
                *sum += methods;
            }
        }
        all += types.len();
        for (of, (files, methods)) in &types {
            let allowed = LARGE.iter().find(|(in_crate, name, ..)| *in_crate == krate && name == of);
            let most = allowed.map_or((FILES, METHODS), |(_, _, files, methods)| (*files, *methods));
            if *files > most.0 || *methods > most.1 {
                wrong.push(format!(
                    "{krate} has {of} with {methods} methods in {files} files, of at most {} in {}",
                    most.1, most.0
                ));
            } else if allowed.is_some() && (*files, *methods) != most {
                wrong.push(format!(
                    "{krate} has {of} with {methods} methods in {files} files: say so in the list"
                ));
            }
        }
        let stale =
            LARGE.iter().filter(|(in_crate, name, ..)| *in_crate == krate && !types.contains_key(*name));
        wrong.extend(stale.map(|(_, name, ..)| format!("{krate} has no {name}: take it out of the list")));
    }
    assert!(all > 500, "only {all} types were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
