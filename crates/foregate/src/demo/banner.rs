//! The text that the quickstart prints. It fits a terminal of 24 lines, together with the `make` command that starts
//! the quickstart and the three lines that the proxy prints at its start.

use std::{
    env,
    ffi::OsStr,
    fmt::Write as _,
    path::{Path, PathBuf},
};

use super::{Addresses, FileOrigin, Quickstart};

/// The remarks on the tour's commands are aligned. A command longer than this has its remark after it, not aligned.
const ALIGNED: usize = 64;

impl Quickstart {
    /// The text: the addresses of this start, and commands to try with them.
    pub(super) fn banner(&self) -> String {
        let Addresses { http, https, origin, .. } = self.addresses;
        let note = match &self.origin_of_file {
            FileOrigin::Shipped => String::new(),
            FileOrigin::Edited => {
                "You edited quickstart.kdl: some results may differ; `--reset` starts with the original.\n"
                    .to_owned()
            }
            FileOrigin::Reset(kept) => format!("Your edited file is kept as {}.\n", kept.display()),
        };
        let mut text = format!(
            "Foregate on http://{http} and https://{https}, before a demo origin (port {}).\n{note}\
             Open http://{http}/ in a browser, or try in another terminal (README.md has more):\n\n",
            origin.port()
        );
        let program = env::current_exe().unwrap_or_else(|_| "foregate".into());
        let home = env::var_os("HOME").map(PathBuf::from);
        let folder = self.configuration.parent().unwrap_or(Path::new("."));
        // Writing to a String cannot fail.
        let _ = write!(text, "  cd {}", for_shell(folder, home.as_deref()));
        if !is_command(&program, env::var_os("PATH").as_deref()) {
            let _ = write!(text, "; alias foregate={}", for_shell(&program, home.as_deref()));
        }
        text.push('\n');
        let tour = self.tour();
        let width = tour.iter().map(|(command, _)| command.len()).filter(|&length| length <= ALIGNED).max();
        for (command, effect) in &tour {
            let _ = writeln!(text, "  {command:width$}  # {effect}", width = width.unwrap_or(0));
        }
        text.push_str(
            "\nThe access log follows. Ctrl-C stops the proxy; `foregate init` makes a file for your own origin.\n",
        );
        text
    }

    /// The tour: commands, typed in the folder of the configuration, each with its effect.
    fn tour(&self) -> [(String, &'static str); 13] {
        let Addresses { http, https, metrics, .. } = self.addresses;
        [
            (format!("curl -i http://{http}/api/echo"), "the request at the origin"),
            (format!("curl -i --cacert localhost.pem https://{https}/api/time"), "TLS and HTTP/2"),
            (format!("curl -i --http2-prior-knowledge http://{http}/hello"), "answered by the proxy"),
            (format!("curl -N 'http://{http}/events?count=3'"), "also /large /slow /upload /ws"),
            (format!("curl -i http://{http}/.git/config"), "refused by a rule"),
            (format!("curl -i 'http://{http}/search?q=%3Cscript%3E'"), "refused by the firewall"),
            (format!("curl -s 'http://{http}/limited?[1-6]'"), "rate limit: the sixth gets 429"),
            (format!("curl -i http://{http}/shop/boots"), "rewritten; /compressed: zstd"),
            (format!("curl -i http://{http}/no-such-page"), "an error page of your own"),
            (format!("curl -s http://{metrics}/metrics"), "the metrics"),
            ("foregate top -c quickstart.kdl".to_owned(), "live; also status, upstreams"),
            (format!("foregate explain -c quickstart.kdl http://{http}/"), "the route of a URL, and why"),
            ("foregate reload -c quickstart.kdl".to_owned(), "after an edit; see also: check"),
        ]
    }
}

/// A path as it is typed in a shell: quoted if necessary, and with `~` for the home folder.
fn for_shell(path: &Path, home: Option<&Path>) -> String {
    let below = home.filter(|home| home.is_absolute()).and_then(|home| path.strip_prefix(home).ok());
    let (start, rest) = match below {
        Some(rest) if rest.as_os_str().is_empty() => return "~".to_owned(),
        Some(rest) => ("~/", rest.to_string_lossy()),
        None => ("", path.to_string_lossy()),
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,@%".contains(c);
    if rest.chars().all(is_plain) {
        return format!("{start}{rest}");
    }
    format!("{start}'{}'", rest.replace('\'', "'\\''"))
}

/// Returns true if a shell finds this program by its name.
fn is_command(program: &Path, path: Option<&OsStr>) -> bool {
    let Some((name, path)) = program.file_name().zip(path) else { return false };
    let found = env::split_paths(path).map(|folder| folder.join(name)).find(|file| file.is_file());
    name == "foregate" && found.and_then(|file| file.canonicalize().ok()).as_deref() == Some(program)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::demo::{
        loopback, prepare,
        tests::{Folder, PORTS},
    };

    #[test]
    fn the_banner_fits_one_screen_in_every_state() {
        let _ports = PORTS.lock();
        let folder = Folder::new();
        let mut quickstart = prepare(folder.path(), false).unwrap();
        let longest = loopback(65535);
        quickstart.addresses = Addresses { http: longest, https: longest, metrics: longest, origin: longest };
        for origin_of_file in
            [FileOrigin::Shipped, FileOrigin::Edited, FileOrigin::Reset("quickstart.kdl.old".into())]
        {
            quickstart.origin_of_file = origin_of_file;
            let banner = quickstart.banner();
            // Above it: the command of `make`, and a line for each of three listeners.
            assert!(banner.lines().count() <= 24 - 4, "{banner}");
            // The folders are those of the machine.
            for line in banner.lines().filter(|line| !line.starts_with("  cd ")) {
                assert!(line.len() <= 100, "{line}");
            }
        }
    }

    #[test]
    fn paths_are_written_for_a_shell() {
        let written = |path: &str, home: &str| for_shell(Path::new(path), Some(Path::new(home)));
        assert_eq!(written("/home/me/.local/state/foregate", "/home/me"), "~/.local/state/foregate");
        assert_eq!(written("/home/me", "/home/me"), "~");
        assert_eq!(written("/home/meg/x", "/home/me"), "/home/meg/x");
        assert_eq!(written("/home/me/a b", "/home/me"), "~/'a b'");
        assert_eq!(written("/tmp/it's", ""), r"'/tmp/it'\''s'");
        assert_eq!(for_shell(Path::new("/opt/foregate"), None), "/opt/foregate");
    }

    #[test]
    fn an_alias_is_for_programs_that_the_shell_does_not_find() {
        let folder = Folder::new();
        let [bin, other] = ["bin", "other"].map(|name| folder.path().join(name));
        for place in [&bin, &other] {
            fs::create_dir(place).unwrap();
            fs::write(place.join("foregate"), "").unwrap();
        }
        let program = bin.canonicalize().unwrap().join("foregate");
        let path = |folders: &[&PathBuf]| env::join_paths(folders).unwrap();
        assert!(is_command(&program, Some(&path(&[&bin, &other]))));
        assert!(!is_command(&program, Some(&path(&[&other, &bin]))));
        assert!(!is_command(&program, Some(&path(&[]))));
        assert!(!is_command(&program, None));
    }
}
