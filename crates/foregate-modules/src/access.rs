//! Access control by address and country.
//!
//! ```kdl
//! access {
//!     allow "10.0.0.0/8" "2001:db8::/32"
//!     deny "country:XX" "192.0.2.7"
//!     deny file="blocked.txt"
//!     allow "all"
//! }
//! ```
//!
//! The rules are tried in their order, and the first rule that matches decides. A client that matches no rule is
//! allowed. A request costs one binary search, regardless of the number of networks.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::ops::ControlFlow;

use foregate_module::settings::{ANY, Argument, Block, Mistakes, Prop};
use foregate_module::{
    ClientAddress, Context, Filter, FromNode, Key, Node, Note, Noted, Problem, Read, Respond, Response, Step,
    phase,
};

use crate::geo::{Country, CountryCode};
use crate::ranges::{self, Network, Ranges};

/// The most nodes of `allow` and `deny`.
const RULES_LIMIT: usize = 10_000;

const FILE: &[Prop] = &[Prop {
    name: "file",
    usage: "FILE",
    required: false,
    default: "",
    about: "A file with more networks, one per line; `#` begins a comment.",
}];

const RULES: Block = Block {
    keys: &[
        Key {
            usage: "WHO... file=FILE",
            ..Key::one(
                "allow",
                "",
                "allow \"10.0.0.0/8\" \"country:DE\"",
                "Allows matching clients: an address, a network, `country:XX` (with `geoip`), `country:unknown`, `unix`, or `all`.",
            )
        }
        .args(0, ANY)
        .props(FILE)
        .many(),
        Key {
            usage: "WHO... file=FILE",
            ..Key::one("deny", "", "deny \"all\"", "Refuses matching clients, written as for `allow`.")
        }
        .args(0, ANY)
        .props(FILE)
        .many(),
    ],
    later: &[],
};

const KEY: Key = Key {
    usage: "status=STATUS { allow ...; deny ... }",
    ..Key::one(
        "access",
        "",
        "access { allow \"10.0.0.0/8\"; deny \"all\" }",
        "Allows or refuses clients by address and country. The first matching rule decides; a client that matches no rule passes.",
    )
}
.args(0, 1)
.with(&RULES)
.otherwise("all clients pass")
.props(&[Prop {
    name: "status",
    usage: "STATUS",
    required: false,
    default: "403",
    about: "The status for refused clients, 400 to 599.",
}]);

/// The settings: the rules, sorted by their criteria. Each rule has a number; of several rules that match, the one with
/// the least number decides.
#[derive(Debug, Default)]
pub struct Access {
    networks: Ranges,
    countries: BTreeMap<CountryCode, u32>,
    unknown_country: Option<u32>,
    unix: Option<u32>,
    all: Option<u32>,
    /// For each rule, by its number: true for `allow`, false for `deny`.
    allows: Vec<bool>,
    status: u16,
}

impl FromNode for Access {
    const KEY: Option<&'static Key> = Some(&KEY);

    fn from_nodes(nodes: &[Node], context: &mut dyn Context) -> Result<Self, Problem> {
        let [node] = nodes else { return Ok(Self::default()) };
        if let Some(argument) = node.args().first() {
            return Err(argument
                .wrong("`access` takes a block")
                .help("write access { deny \"192.0.2.0/24\" }"));
        }
        if node.children().is_empty() {
            return Err(node.wrong("`access` needs a rule").help("write allow or deny in its block"));
        }
        if node.children().len() > RULES_LIMIT {
            return Err(node.wrong(format!("more than {RULES_LIMIT} rules")));
        }
        let mut mistakes = Mistakes::default();
        let status = node.prop("status").map_or(Ok(403), |status| status.number(400..=599));
        let status = mistakes.kept(status).unwrap_or_default() as u16;
        let mut access = Self { status, ..Self::default() };
        let mut networks = Vec::new();
        for (number, rule) in (0..).zip(node.children()) {
            access.allows.push(rule.name() == "allow");
            if rule.args().is_empty() && rule.prop("file").is_none() {
                mistakes.add(rule.wrong(format!("`{}` needs somebody, or file=FILE", rule.name())));
            }
            for who in rule.args() {
                let network = mistakes.kept(access.add(who, number)).flatten();
                networks.extend(network.map(|network| (network, number)));
            }
            if let Some(path) = rule.prop("file") {
                let lines = mistakes.kept(ranges::of_file(path, context)).unwrap_or_default();
                networks.extend(lines.into_iter().map(|network| (network, number)));
            }
        }
        let behind_all = access.all.and_then(|all| node.children().get(all as usize + 1..));
        if let Some(argument) = behind_all.and_then(|rules| rules.iter().find_map(|rule| rule.args().first()))
        {
            mistakes.add(argument.wrong("this rule is never reached: the one before matches everybody"));
        }
        mistakes.none()?;
        if access.allows.iter().all(|allows| *allows) {
            let problem = node.wrong("without `deny` it refuses nobody");
            context.warn(problem.help("who matches no rule is let in; end it with `deny \"all\"`"));
        }
        access.networks = Ranges::new(networks);
        Ok(access)
    }
}

impl Access {
    /// Adds a criterion other than a network.
    fn add(&mut self, who: &Argument, number: u32) -> Result<Option<Network>, Problem> {
        match who.text()? {
            "all" => _ = self.all.get_or_insert(number),
            "unix" => _ = self.unix.get_or_insert(number),
            text => {
                let Some(country) = text.strip_prefix("country:") else {
                    return text.parse().map(Some).map_err(|error| {
                        who.wrong(format!("{error}"))
                            .help("or `country:XX`, `country:unknown`, `unix`, `all`")
                    });
                };
                match country.parse() {
                    Ok(code) => _ = self.countries.entry(code).or_insert(number),
                    Err(()) if country == "unknown" => _ = self.unknown_country.get_or_insert(number),
                    Err(()) => {
                        return Err(who.wrong("expected `country:` and two letters, such as country:DE"));
                    }
                }
            }
        }
        Ok(None)
    }

    /// The number of the rule that refuses a client; `None` if the client is allowed.
    fn refuses(&self, client: Option<IpAddr>, country: Option<CountryCode>) -> Option<u32> {
        let by_address = match client {
            Some(client) => self.networks.get(client),
            None => self.unix,
        };
        let by_country = match country {
            Some(country) => self.countries.get(&country).copied(),
            None => self.unknown_country,
        };
        let first = [by_address, by_country, self.all].into_iter().flatten().min();
        first.filter(|number| self.allows.get(*number as usize) == Some(&false))
    }
}

/// Refuses clients without access.
#[derive(Debug, Default)]
pub struct Judge;

impl Step for Judge {
    type At = phase::RequestIdentity;
    type Settings = Access;
    type In<'r> = (ClientAddress, Read<'r, Country>);
    type Out = ();
    type Stop = Noted<Respond>;
    const NAME: &'static str = "access";
    const ABOUT: &'static str = "Refuses clients by address and country.";
    const FILTERS: &'static [Filter] = &[];

    fn run(
        &self,
        settings: &Access,
        (ClientAddress(client), Read(country)): Self::In<'_>,
    ) -> ControlFlow<Noted<Respond>, ()> {
        let Some(number) = settings.refuses(client, country.copied()) else {
            return ControlFlow::Continue(());
        };
        let refusal = Response::new(settings.status).body("text/plain; charset=utf-8", "access denied\n");
        let why = format!("refused by rule {}", number + 1);
        let notes = Vec::from([Note { name: "access".into(), value: why.into() }]);
        ControlFlow::Break(Noted { stop: Respond(refusal), notes })
    }
}

#[cfg(test)]
mod tests;
