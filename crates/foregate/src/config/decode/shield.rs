//! `shield`, and the keys that name it.

use std::ops::RangeInclusive;
use std::time::Duration;

use foregate_config::schema::Key;
use foregate_config::value::{self, Value, Wrong};
use foregate_config::{Decoder, Item, Place, Problem};
use foregate_proxy::address::ServerAddress;
use foregate_proxy::settings::{Listen, ServerSettings, ShieldNode, ShieldSettings, UpstreamSettings};
use foregate_rules::nearest;

use crate::config::schema::SHIELD;

/// The allowed length of a secret, in characters. A shorter one could be guessed.
const SECRET: RangeInclusive<usize> = 16..=256;
/// The most nodes in a group.
const MOST_NODES: usize = 32;
/// The time limit for connecting to another node. It is short, because the origin can be asked
/// instead.
const CONNECT: Duration = Duration::from_secs(1);

/// The shield, as read from the file.
#[derive(Default)]
pub(super) struct ReadShield {
    /// The name of the shield, by which other keys refer to it, and its place.
    name: Option<(Box<str>, Place)>,
    settings: Option<ShieldSettings>,
    /// Set if an included file is missing; it may define the shield.
    incomplete: bool,
}

impl ReadShield {
    pub(super) fn decode(decoder: &mut Decoder<'_>, found: Option<(&'static Key, Item<'_>)>) -> Self {
        let incomplete = decoder.misses_files();
        let Some((key, item)) = found else { return Self { incomplete, ..Self::default() } };
        let name = decoder.read(item, 0, name);
        let own = decoder.prop(item, "self", self::name);
        let secret = decoder.prop_secret(item, key, "secret", secret);
        let mut nodes: Vec<(ShieldNode, Place)> = Vec::new();
        for (_, item) in decoder.block(item, &SHIELD) {
            let (name, address) = (decoder.read(item, 0, self::name), decoder.read(item, 1, address));
            let (Some(name), Some(address)) = (name, address) else { continue };
            let twin = nodes.iter().find(|(node, _)| node.name == name || node.address == address);
            if let Some((_, first)) = twin {
                let problem =
                    Problem::new(Some(item.place()), "a node has this name or this address already");
                decoder.push(problem.also(*first, "the first one"));
                continue;
            }
            nodes.push((ShieldNode { name, address }, item.place()));
        }
        if nodes.len() > MOST_NODES {
            let message = format!("a shield has at most {MOST_NODES} nodes");
            decoder.push(Problem::new(Some(item.place()), message));
        }
        let nodes: Vec<_> = nodes.into_iter().map(|(node, _)| node).collect();
        let place = own.as_ref().map(|own| nodes.iter().position(|node| node.name == *own));
        if let (Some(None), Some(own)) = (place, &own) {
            let problem =
                Problem::new(Some(item.place()), format!("no node of this shield is named \"{own}\""));
            let help = match nearest(own, nodes.iter().map(|node| &*node.name)) {
                Some(near) => format!("did you mean `self=\"{near}\"`?"),
                None => format!("add `node \"{own}\" \"HOST:PORT\"`, with the address of this machine"),
            };
            decoder.push(problem.help(help));
        }
        let settings = name.clone().zip(place.flatten()).zip(secret);
        let settings = settings.map(|((name, own), secret)| ShieldSettings { name, nodes, own, secret });
        Self { name: name.map(|name| (name, item.place())), settings, incomplete }
    }

    /// Reads the name of the shield in another key. Returns true if it is the name of the file's
    /// shield.
    pub(super) fn named(&self, decoder: &mut Decoder<'_>, item: Item<'_>) -> bool {
        let named = decoder.read(item, 0, |value| {
            let text = value::string(value)?;
            match &self.name {
                Some((name, _)) if **name == *text => Ok(()),
                _ if self.incomplete => Ok(()),
                Some((name, _)) => Err(Wrong::new("there is no shield of this name")
                    .help(format!("the shield of this file is \"{name}\""))),
                None => Err(Wrong::new("there is no shield of this name").help(format!(
                    "add `shield \"{text}\" self=\"NODE\" secret=\"...\" {{ node \"NODE\" \"HOST:PORT\"; ... }}` at the top of the file"
                ))),
            }
        });
        named.is_some()
    }

    /// Returns the settings, and the upstreams that lead to the other nodes.
    pub(super) fn finish(
        self,
        decoder: &mut Decoder<'_>,
        listeners: &[Listen],
    ) -> Option<(ShieldSettings, Vec<UpstreamSettings>)> {
        let (_, place) = self.name?;
        let settings = self.settings?;
        if settings.nodes.len() > 1 && !listeners.iter().any(|listen| listen.shield) {
            let problem =
                Problem::new(Some(place), "the other nodes cannot reach this one: no listener is for them");
            let own =
                settings.nodes.get(settings.own).map(|node| node.address.to_string()).unwrap_or_default();
            decoder.warn(problem.help(format!("add `listen \"{own}\" {{ shield \"{}\"; }}`", settings.name)));
        }
        let others = settings.nodes.iter().enumerate().filter(|(number, _)| *number != settings.own);
        let upstreams = others.map(|(number, node)| {
            let servers = vec![ServerSettings::new(node.address.clone())];
            let mut upstream = UpstreamSettings::new(&settings.upstream_name(number), servers);
            upstream.connect_timeout = CONNECT;
            upstream
        });
        let upstreams = upstreams.collect();
        Some((settings, upstreams))
    }
}

/// The name of a group or a node.
fn name(value: &Value<'_>) -> Result<Box<str>, Wrong> {
    let text = value::string(value)?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_name = !text.is_empty() && text.len() <= 64 && text.bytes().all(is_plain);
    let wrong = || Wrong::new("expected a name of up to 64 letters, digits, `-`, `_` and `.`");
    is_name.then(|| text.into()).ok_or_else(wrong)
}

/// Reads an address, `HOST:PORT`.
fn address(value: &Value<'_>) -> Result<ServerAddress, Wrong> {
    let wrong = || Wrong::new("expected the address of a node, HOST:PORT").help("write \"10.0.0.1:7070\"");
    match value::string(value)?.parse() {
        Ok(address @ (ServerAddress::Ip(_) | ServerAddress::Name { .. })) => Ok(address),
        _ => Err(wrong()),
    }
}

fn secret(value: &Value<'_>) -> Result<Box<[u8]>, Wrong> {
    let text = value::string(value)?;
    if !SECRET.contains(&text.len()) {
        return Err(Wrong::new("expected a secret of 16 to 256 characters").help(
            "make one, such as by `openssl rand -hex 32`, and read it from a file: \"${file:shield.secret}\"",
        ));
    }
    Ok(text.as_bytes().into())
}
