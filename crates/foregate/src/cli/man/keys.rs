//! The page of the configuration file.

use foregate_module::Pipeline;

use super::Page;
use super::roff::Roff;
use crate::config::schema::{self, Key};

const EXAMPLE: &str = r#"listen ":8080"
upstream "app" { server "127.0.0.1:3000" }
site "example.com" {
    route "/static/**" { files "/srv/www" }
    route "/**" { proxy "app" }
}
"#;

/// The page with all keys, including those of modules.
pub(super) fn page(pipeline: &Pipeline) -> Page {
    let mut roff = Roff::page("foregate.kdl", 5);
    roff.section("NAME");
    roff.line("foregate.kdl - configuration of the reverse proxy foregate");
    roff.section("DESCRIPTION");
    roff.paragraph(
        "The configuration is a tree of nodes in KDL 2, or the same tree in JSON where the name of the file ends with `.json`. An unknown \
         key is an error. `foregate check` reports all errors with their lines, and `foregate check --show-defaults` prints all \
         defaults. A duration is text such as `\"5s\"`, a size such as `\"64KiB\"`. `${env:NAME}` and `${file:PATH}` in a value stand \
         for an environment variable and for the content of a file.",
    );
    roff.section("EXAMPLE");
    roff.example(EXAMPLE);
    roff.section("KEYS");
    section(&mut roff, "At the top of the file", schema::ROOT.keys.iter());
    let mut blocks = Vec::new();
    schema::walk(&mut |path, key| {
        if let Some(block) = key.block {
            blocks.push((path.clone(), block));
        }
    });
    for (path, block) in blocks {
        let name = path.join(" ");
        section(&mut roff, &name, block.keys.iter());
    }
    roff.section("KEYS OF MODULES");
    roff.paragraph("These stand at the top of the file, in a site, or in a route. `KEY #false` turns off the keys of outer blocks.");
    let mut keys: Vec<&'static Key> = pipeline.keys().into_iter().map(|(key, _)| key).collect();
    keys.sort_by_key(|key| key.name);
    for key in keys {
        roff.subsection(key.name);
        schema::walk_keys([key], &mut |path, key| term(&mut roff, &path[..path.len() - 1], key));
    }
    roff.section("SEE ALSO");
    roff.line("foregate(1), foregate-check(1), foregate-explain(1), foregate-fmt(1)");
    Page { name: "foregate.kdl".to_owned(), section: 5, text: roff.finish() }
}

fn section<'k>(roff: &mut Roff, title: &str, keys: impl Iterator<Item = &'k Key>) {
    roff.subsection(title);
    for key in keys {
        term(roff, &[], key);
    }
}

fn term(roff: &mut Roff, outer: &[&str], key: &Key) {
    let name = [outer, &[key.name]].concat().join(" ");
    let usage = if key.usage.is_empty() { name } else { format!("{name} {}", key.usage) };
    let mut about = key.about.to_owned();
    if key.many {
        about.push_str(" Several are allowed.");
    }
    match (key.default, key.otherwise) {
        ("", "") => {}
        ("", words) => about.push_str(&format!(" Default: {words}.")),
        (default, _) => about.push_str(&format!(" Default: `{default}`.")),
    }
    roff.term(&usage, &about);
    for prop in key.props {
        let default = match prop.default {
            "" => String::new(),
            default => format!(" Default: `{default}`."),
        };
        roff.term(&format!("{}={}", prop.name, prop.usage), &format!("{}{default}", prop.about));
    }
}
