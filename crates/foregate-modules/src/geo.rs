//! The country of the client, from a file in the format of MaxMind DB.
//!
//! ```kdl
//! geoip database="GeoLite2-Country.mmdb"
//! geoip database="country.mmdb" field="country_code"
//! ```
//!
//! Writes the value `geo.country`, two letters. Expressions read it as `ip.geoip.country`, `access` as `country:XX`.
//! The address that is looked up is the client's; with `trusted-proxies`, the one that these proxies report.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use core::ops::ControlFlow;

use foregate_module::settings::{Argument, Prop, together};
use foregate_module::{
    ClientAddress, Context, Emit, Filter, FromNode, Key, Kind, Never, Node, Problem, Shown, Step, Value,
    phase,
};
use maxminddb::{PathElement, Reader};

/// The largest database, bytes.
const DATABASE_LIMIT: usize = 1 << 30;

/// The most networks of a database that are searched for a country. If none of them has a country, the database is
/// refused.
const PROBED: usize = 10_000;

const KEY: Key = Key {
    usage: "database=FILE field=PATH",
    ..Key::one(
        "geoip",
        "",
        "geoip database=\"GeoLite2-Country.mmdb\"",
        "Looks up the client's country in a database file in MaxMind DB format, for `access`, expressions and logs.",
    )
}
.args(0, 1)
.otherwise("the country is unknown")
.props(&[
    Prop {
        name: "database",
        usage: "FILE",
        required: true,
        default: "",
        about: "The database file. It is kept in memory, and read again when it changes.",
    },
    Prop {
        name: "field",
        usage: "PATH",
        required: false,
        default: "\"country.iso_code\"",
        about: "The path to the country's code of two letters in a record of the database: names joined by dots.",
    },
]);

/// Two upper case letters of ISO 3166-1, such as `DE`. Codes that only databases use, such as `XK`, are allowed, too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CountryCode([u8; 2]);

impl CountryCode {
    /// The letters.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl core::str::FromStr for CountryCode {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text.as_bytes() {
            [a, b] if a.is_ascii_alphabetic() && b.is_ascii_alphabetic() => {
                Ok(Self([a.to_ascii_uppercase(), b.to_ascii_uppercase()]))
            }
            _ => Err(()),
        }
    }
}

impl fmt::Debug for CountryCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", String::from_utf8_lossy(&self.0))
    }
}

/// The client's country.
#[derive(Debug)]
pub enum Country {}

impl Value for Country {
    type Data = CountryCode;
    const NAME: &'static str = "geo.country";
    const ABOUT: &'static str = "The client's country: two upper case letters.";
    const SHOWS: Option<Kind> = Some(Kind::Bytes);
    fn show(country: &CountryCode) -> Option<Shown<'_>> {
        Some(Shown::Bytes(country.as_bytes()))
    }
}

/// The settings: a database that has been checked.
#[derive(Debug)]
pub struct Geoip {
    reader: Option<Reader<Arc<[u8]>>>,
    path: Vec<String>,
}

impl FromNode for Geoip {
    const KEY: Option<&'static Key> = Some(&KEY);

    fn from_nodes(nodes: &[Node], context: &mut dyn Context) -> Result<Self, Problem> {
        let [node] = nodes else { return Ok(Self { reader: None, path: Vec::new() }) };
        if let Some(argument) = node.args().first() {
            return Err(argument.wrong("`geoip` takes no value").help("write database=\"FILE\""));
        }
        let Some(file) = node.prop("database") else {
            return Err(node.wrong("`geoip` needs database=\"FILE\""));
        };
        let reader = context.file(file, DATABASE_LIMIT).and_then(|bytes| {
            Reader::from_source(bytes)
                .map_err(|error| file.wrong(format!("this is not a database of MaxMind's format: {error}")))
        });
        let path = node.prop("field").map_or(Ok(["country", "iso_code"].map(String::from).into()), read_path);
        let (reader, path) = together((reader, path))?;
        let settings = Self { reader: Some(reader), path };
        if !settings.has_countries() {
            let kind = settings.reader.as_ref().map_or("", |reader| &reader.metadata().database_type);
            return Err(file
                .wrong(format!("this database (`{kind}`) has no countries at `{}`", settings.path.join(".")))
                .help(
                    "take a database of countries or cities, or say with field=\"PATH\" where it has them",
                ));
        }
        Ok(settings)
    }
}

fn read_path(field: &Argument) -> Result<Vec<String>, Problem> {
    let path: Vec<String> = field.text()?.split('.').map(String::from).collect();
    if path.iter().any(String::is_empty) {
        return Err(field.wrong("expected names joined by dots, such as country.iso_code"));
    }
    Ok(path)
}

impl Geoip {
    fn country(&self, address: IpAddr) -> Option<CountryCode> {
        self.read(&self.reader.as_ref()?.lookup(address.to_canonical()).ok()?)
    }

    fn read(&self, found: &maxminddb::LookupResult<'_, Arc<[u8]>>) -> Option<CountryCode> {
        let text: &str = match &*self.path {
            [one] => found.decode_path(&[PathElement::Key(one)]),
            [one, two] => found.decode_path(&[PathElement::Key(one), PathElement::Key(two)]),
            path => {
                let path: Vec<_> = path.iter().map(|name| PathElement::Key(name)).collect();
                found.decode_path(&path)
            }
        }
        .ok()??;
        text.parse().ok()
    }

    /// Returns true if one of the first networks has a country. A database of another kind has none.
    fn has_countries(&self) -> bool {
        let Some(Ok(networks)) = self.reader.as_ref().map(|reader| reader.networks(Default::default()))
        else {
            return false;
        };
        networks.take(PROBED).flatten().any(|found| self.read(&found).is_some())
    }
}

/// Looks up the client's country.
#[derive(Debug, Default)]
pub struct Lookup;

impl Step for Lookup {
    type At = phase::RequestIdentity;
    type Settings = Geoip;
    type In<'r> = (ClientAddress,);
    type Out = (Emit<Country>,);
    type Stop = Never;
    const NAME: &'static str = "geoip";
    const ABOUT: &'static str = "Looks up the client's country.";
    const FILTERS: &'static [Filter] = &[];

    fn run(
        &self,
        settings: &Geoip,
        (ClientAddress(client),): (ClientAddress,),
    ) -> ControlFlow<Never, Self::Out> {
        ControlFlow::Continue((Emit(client.and_then(|client| settings.country(client))),))
    }
}

#[cfg(test)]
mod tests;
