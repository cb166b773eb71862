//! `files` of a route.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use foregate_config::value::{self, Value, Wrong};
use foregate_config::{Decoder, Item};
use foregate_files::{Expires, Pattern, Rules, Template, TemplateError, relative};
use foregate_modules::coding::ContentCoding;
use foregate_proxy::settings::{Files, FollowLinks};
use rustix::fs::{Access, access};

use crate::config::schema::FILES;

const LINKS: &[(&str, FollowLinks)] =
    &[("inside", FollowLinks::Inside), ("anywhere", FollowLinks::Anywhere), ("never", FollowLinks::Never)];

const CODINGS: &[(&str, ContentCoding)] =
    &[("br", ContentCoding::Brotli), ("zstd", ContentCoding::Zstd), ("gzip", ContentCoding::Gzip)];

/// The longest lifetime in a cache: ten years, which is within the range of RFC 9111, section 1.2.2.
const LONGEST: Duration = Duration::from_hours(24 * 365 * 10);

/// Reads `files`. With `inspect`, the folder must exist.
pub(super) fn decode(decoder: &mut Decoder<'_>, item: Item<'_>, inspect: bool) -> Option<Arc<Files>> {
    let folder = decoder.read(item, 0, |value| folder(value, item.base(), inspect));
    let mut rules = Rules::default();
    let mut links = FollowLinks::default();
    for (key, item) in decoder.block(item, &FILES) {
        match key.name {
            "index" => {
                rules.index = decoder.read_all(item, index);
            }
            "try" => rules.places = decoder.read_all(item, place),
            "precompressed" => {
                rules.precompressed = decoder.read_all(item, |value| value::choose(value, CODINGS));
            }
            "listing" => rules.listing = decoder.flag(item),
            "dotfiles" => rules.dotfiles = decoder.flag(item),
            "expires" => rules.expires.extend(expires(decoder, item)),
            "follow-links" => links = decoder.choice(item, 0, LINKS).unwrap_or_default(),
            name => debug_assert!(false, "{name} is not read"),
        }
    }
    Some(Arc::new(Files { folder: folder?, rules, links }))
}

fn folder(value: &Value<'_>, base: &Path, inspect: bool) -> Result<PathBuf, Wrong> {
    let text = value::string(value)?;
    if text.is_empty() {
        return Err(Wrong::new("expected the path of a folder"));
    }
    let path = base.join(text);
    if inspect {
        look(&path)?;
    }
    Ok(path)
}

/// Checks that a folder exists and can be read.
pub(in crate::config) fn look(path: &Path) -> Result<(), Wrong> {
    match std::fs::metadata(path) {
        Ok(found) if !found.is_dir() => Err(Wrong::new(format!("{} is not a folder", path.display()))
            .help("`files` serves a folder; for a single file write `files \"FOLDER\" { try \"/NAME\" }`")),
        Ok(_) => access(path, Access::READ_OK | Access::EXEC_OK).map_err(|error| {
            let error = std::io::Error::from(error);
            Wrong::new(format!("cannot read the folder {}: {error}", path.display()))
                .help("let the user of the proxy read it")
        }),
        Err(error) => Err(Wrong::new(format!("cannot read the folder {}: {error}", path.display()))
            .help("a relative path starts at the folder of the configuration file")),
    }
}

fn index(value: &Value<'_>) -> Result<Box<str>, Wrong> {
    match value::string(value)? {
        name if relative(name) => Ok(name.into()),
        _ => Err(Wrong::new("expected the name of a file").help("write it as `index \"index.html\"`")),
    }
}

fn place(value: &Value<'_>) -> Result<Template, Wrong> {
    let text = value::string(value)?;
    Template::parse(text).map_err(|error| match error {
        TemplateError::Variable if text.starts_with("$uri") => {
            let meant = text.replace("$uri", "$path");
            Wrong::new("the only variable is `$path`")
                .help(format!("write \"{}\"; it also stands for a folder with an index", meant.trim_end_matches('/')))
        }
        TemplateError::Variable => Wrong::new("the only variable is `$path`, once in a place"),
        TemplateError::Segments => Wrong::new("a place has no empty parts and no `..`, and does not end in a slash")
            .help("`$path` also stands for a folder with an index"),
        TemplateError::Relative if text.starts_with('=') => Wrong::new("a place is a path, not a status")
            .help("leave it out: without a file the answer is 404, with a page of `error-pages` if there is one"),
        TemplateError::Relative if text.starts_with('@') => Wrong::new("a place is a path")
            .help("leave it out, and write `proxy \"UPSTREAM\"` beside `files`: it answers where there is no file"),
        TemplateError::Relative => {
            Wrong::new("a place begins with `$path` or with `/`").help(format!("write \"/{text}\""))
        }
    })
}

fn expires(decoder: &mut Decoder<'_>, item: Item<'_>) -> Option<Expires> {
    let lifetime = decoder.read(item, 0, |value| value::duration(value, Duration::ZERO..=LONGEST));
    let on = decoder.prop(item, "on", |value| {
        Pattern::parse(value::string(value)?)
            .map(Some)
            .map_err(|_| Wrong::new("expected a pattern").help("write it as `on=\"*.css *.js\"`"))
    });
    let immutable = decoder.prop(item, "immutable", value::boolean).unwrap_or_default();
    let lifetime = lifetime?;
    let seconds = lifetime.as_secs() + u64::from(lifetime.subsec_nanos() > 0);
    Some(Expires { seconds, immutable, on: on.flatten() })
}
