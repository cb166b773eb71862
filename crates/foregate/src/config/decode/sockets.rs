//! Addresses and paths of sockets.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use foregate_config::value::{self, Wrong};

/// Reads the address of a socket.
pub(super) fn socket_address(value: &value::Value<'_>) -> Result<SocketAddr, Wrong> {
    // A port alone may lack its quotes.
    let text = &*value.text;
    let wrong = Wrong::new("expected IP:PORT or [IPV6]:PORT");
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let port = text
        .strip_prefix(':')
        .or_else(|| text.strip_prefix("localhost:"))
        .or_else(|| text.strip_prefix("*:"))
        .unwrap_or(text);
    if let Ok(port) = port.parse::<u16>() {
        return Err(wrong.help(format!(
            "write \"127.0.0.1:{port}\" for this machine alone, \"0.0.0.0:{port}\" or \"[::]:{port}\" for all networks"
        )));
    }
    value::string(value)?;
    if text.starts_with('/') {
        return Err(wrong.help("write an address, not a path, such as \"127.0.0.1:9145\""));
    }
    match text.parse::<IpAddr>() {
        Ok(address) => Err(wrong.help(format!("add a port, such as \"{}\"", SocketAddr::new(address, 9145)))),
        Err(_) => Err(wrong),
    }
}

/// The longest path of a Unix socket, in bytes. The system's structure has one byte more, for the zero at the end.
const SOCKET_PATH_MOST: usize = 107;

/// The path of a Unix socket; a relative one starts at the configuration file's folder.
pub(super) fn socket_path(base: &Path, path: &str) -> Result<PathBuf, Wrong> {
    let path = base.join(path);
    let Err(error) = std::os::unix::net::SocketAddr::from_pathname(&path) else { return Ok(path) };
    Err(match path.as_os_str().len() {
        length if length > SOCKET_PATH_MOST => Wrong::new(format!(
            "the path of a Unix socket has at most {SOCKET_PATH_MOST} bytes, this one {length}"
        )),
        _ => Wrong::new(format!("no path of a Unix socket: {error}")),
    })
}
