//! `dashboard`.

use std::net::SocketAddr;

use foregate_config::value::{self, Value, Wrong};
use foregate_config::{Decoder, Item, Problem};
use foregate_modules::basic_auth::Hash;
use foregate_proxy::settings::{DashboardPassword, DashboardSettings, ListenAddress};

use super::sockets::{socket_address, socket_path};
use super::writable;
use crate::config::schema::DASHBOARD;

/// Reads `dashboard`; `None` if a problem was found.
pub(super) fn decode(decoder: &mut Decoder<'_>, item: Item<'_>, inspect: bool) -> Option<DashboardSettings> {
    let address = decoder.read(item, 0, |value| address(value, item));
    let (mut password, mut allow_changes, mut is_wrong) = (None, false, false);
    for (key, item) in decoder.block(item, &DASHBOARD) {
        match key.name {
            "password" => {
                password = decoder.read_secret(item, key, 0, read_password);
                is_wrong |= password.is_none();
            }
            "allow-changes" => allow_changes = decoder.flag(item),
            name => debug_assert!(false, "{name} is not read"),
        }
    }
    let address = address?;
    if password.is_none() && !is_wrong && DashboardSettings::is_public(&address) {
        let message = "a dashboard that other machines can reach needs a password";
        decoder.push(Problem::new(Some(item.place()), message).help(
            "add `{ password \"HASH\" }` with a hash of `htpasswd -nB ''`, or write \"127.0.0.1:PORT\" and use `ssh -L`",
        ));
        return None;
    }
    if let ListenAddress::Unix(path) = &address
        && inspect
    {
        writable::socket(decoder, path, item.place());
    }
    Some(DashboardSettings { address, password, allow_changes })
}

fn address(value: &Value<'_>, item: Item<'_>) -> Result<ListenAddress, Wrong> {
    match value.text.strip_prefix("unix:") {
        Some("") => Err(Wrong::new("expected a path after `unix:`")),
        Some(path) => Ok(ListenAddress::Unix(socket_path(item.base(), path)?)),
        None if value.text.starts_with('/') => {
            Err(Wrong::new("expected IP:PORT or unix:PATH").help(format!("write \"unix:{}\"", value.text)))
        }
        None => socket_address(value).map(|address: SocketAddr| ListenAddress::Tcp(address)),
    }
}

fn read_password(value: &Value<'_>) -> Result<DashboardPassword, Wrong> {
    let hash = Hash::read(value::string(value)?).map_err(|problem| {
        Wrong::new(problem).help("`htpasswd -nB ''` asks for a password and prints its hash")
    })?;
    Ok(DashboardPassword::new(move |password| hash.fits(password)))
}
