//! `foregate init`: a commented configuration, from flags or from the answers to three questions.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use foregate_acme::{Obstacle, obstacle};
use foregate_module::Pipeline;

use super::output::{Outcome, complain, print};
use crate::config::{self, origin};

#[derive(Debug, Args)]
pub(super) struct Init {
    /// Send requests to this origin. Repeat it for several servers
    #[arg(long, value_name = "URL")]
    to: Vec<String>,
    /// Serve the files of this folder. With --to, the origin gets the requests without a file
    #[arg(long, value_name = "FOLDER")]
    files: Option<PathBuf>,
    /// Serve this name over HTTPS with a certificate that is obtained and renewed by itself. Repeat it for several names
    #[arg(long, value_name = "NAME")]
    domain: Vec<String>,
    /// The mail address of the account at the certificate authority
    #[arg(long, value_name = "ADDRESS")]
    email: Option<String>,
    /// Where to accept HTTP [default: :8080, with --domain :80]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// The file to write; `-` is the standard output
    #[arg(short, long, value_name = "FILE", default_value = "foregate.kdl")]
    output: PathBuf,
    /// Replace a file that is there
    #[arg(long)]
    force: bool,
}

/// The settings that are written to the file.
#[derive(Debug, Default)]
struct Choices {
    to: Vec<String>,
    files: Option<PathBuf>,
    domain: Vec<String>,
    email: Option<String>,
    listen: Option<String>,
}

impl Init {
    pub(super) fn run(self, pipeline: &Arc<Pipeline>) -> Outcome {
        let is_file = self.output != Path::new("-");
        if is_file && !self.force && self.output.exists() {
            complain(&format!("{} is there already", self.output.display()));
            complain("  help: `--force` replaces it, `--output FILE` writes another one");
            return Outcome::Wrong;
        }
        let (output, is_answered) = (self.output, !self.to.is_empty() || self.files.is_some());
        let flags = Choices {
            to: self.to.into_iter().map(with_scheme).collect(),
            files: self.files,
            domain: self.domain,
            email: self.email,
            listen: self.listen,
        };
        let choices = if is_answered { Ok(flags) } else { ask(flags, &mut io::stdin().lock()) };
        let text = match choices.and_then(|choices| choices.text()) {
            Ok(text) => text,
            Err(wrong) => {
                complain(&format!("error: {wrong}"));
                return Outcome::Usage;
            }
        };
        // The texts come from people, so the file is checked like any other, as if it were at its later place.
        let path = if is_file { output.clone() } else { PathBuf::from("foregate.kdl") };
        if let Err(refused) = config::load_text(&path, text.clone(), pipeline) {
            complain(&refused.plain());
            complain("no file was written");
            return Outcome::Wrong;
        }
        if !is_file {
            print(&text);
            return Outcome::Fine;
        }
        match write(&output, &text, self.force) {
            Ok(()) => {
                print(&next_steps(&output));
                // Show warnings, for example about a wildcard: its certificate needs a DNS hook.
                if let Ok((_, warnings)) = config::load_and_warn(&output, pipeline)
                    && !warnings.plain().is_empty()
                {
                    complain(&warnings.plain());
                }
                Outcome::Fine
            }
            Err(error) => {
                complain(&format!("cannot write {}: {error}", output.display()));
                Outcome::Wrong
            }
        }
    }
}

fn write(path: &Path, text: &str, force: bool) -> io::Result<()> {
    let mut file = std::fs::OpenOptions::new();
    file.write(true);
    // `create_new` fails if another process has made the file in the meantime.
    if force {
        file.create(true).truncate(true)
    } else {
        file.create_new(true)
    };
    file.open(path)?.write_all(text.as_bytes())
}

fn next_steps(path: &Path) -> String {
    let shown = path.display();
    let file = if path == Path::new("foregate.kdl") { String::new() } else { format!(" -c {shown}") };
    format!(
        "{shown} is written.\n  foregate check{file}    checks it\n  foregate run{file}      serves\n  foregate doctor{file}   looks at \
         limits, rights and names of this machine\n"
    )
}

/// Asks for the choices that the flags do not make.
fn ask(mut choices: Choices, answers: &mut impl BufRead) -> Result<Choices, String> {
    let to = question(
        "1/3  Where does the application listen? A port, HOST:PORT or URL; or a folder with files",
        "3000",
        answers,
    )?;
    if to.starts_with(['/', '.', '~']) {
        choices.files = Some(to.into());
    } else {
        choices.to.push(as_url(&to));
    }
    if choices.domain.is_empty() {
        let names = question(
            "2/3  Which names do clients use, such as example.com? None: every name, without HTTPS",
            "",
            answers,
        )?;
        choices.domain = names.split([' ', ',']).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    }
    let rest = "3/3  ";
    if !choices.domain.is_empty() && choices.email.is_none() {
        let mail = question(
            &format!("{rest}The mail address for the certificate authority? None: without one"),
            "",
            answers,
        )?;
        choices.email = Some(mail).filter(|mail| !mail.is_empty());
    } else if choices.domain.is_empty() && choices.listen.is_none() {
        choices.listen =
            Some(question(&format!("{rest}On which address are clients accepted?"), ":8080", answers)?);
    }
    Ok(choices)
}

fn question(text: &str, default: &str, answers: &mut impl BufRead) -> Result<String, String> {
    let shown = if default.is_empty() { String::new() } else { format!(" [{default}]") };
    print(&format!("{text}{shown}: "));
    let mut line = String::new();
    let read = answers.read_line(&mut line).map_err(|error| format!("no answer: {error}"))?;
    if read == 0 {
        print("\n");
        return Err(
            "there is no answer on the standard input; `--to URL` or `--files FOLDER` needs none".into()
        );
    }
    if !io::stdin().is_terminal() {
        print("\n");
    }
    let answer = line.trim();
    Ok(if answer.is_empty() { default } else { answer }.to_owned())
}

/// Adds the scheme to an address with a port, as the question for the origin does.
fn with_scheme(to: String) -> String {
    let has_port =
        to.rsplit_once(':').is_some_and(|(host, port)| !host.contains('/') && port.parse::<u16>().is_ok());
    if has_port { as_url(&to) } else { to }
}

fn as_url(text: &str) -> String {
    match text {
        url if url.contains("://") => url.to_owned(),
        port if port.parse::<u16>().is_ok() => format!("http://127.0.0.1:{port}"),
        address => format!("http://{address}"),
    }
}

impl Choices {
    /// The text of the file.
    fn text(&self) -> Result<String, String> {
        let mut text = String::from(
            "// Foregate. `foregate check` validates this file; `foregate reload` applies a change without cutting a connection.\n\
             // All keys: `foregate man foregate.kdl`.\n\n",
        );
        text.push_str(&self.listeners());
        text.push_str(
            "\n// Metrics for Prometheus at /metrics, and the socket for `foregate reload`, `foregate upstreams` and others.\n\
             metrics \"127.0.0.1:9145\"\nadmin \"foregate.sock\"\n\n\
             // A line for each request:\n// access-log \"access.log\" { rotate size=\"100MiB\" keep=7 }\n",
        );
        text.push_str(&self.upstream()?);
        text.push_str(&self.site());
        Ok(text)
    }

    fn listeners(&self) -> String {
        if self.domain.is_empty() {
            let listen = quoted(self.listen.as_deref().unwrap_or(":8080"));
            return format!(
                "// HTTP/1.1 and HTTP/2, in the clear. With `tls \"auto\"` in a block and a name in `site`, it is HTTPS.\nlisten {listen}\n"
            );
        }
        let listen = quoted(self.listen.as_deref().unwrap_or(":80"));
        if self.domain.iter().all(|name| is_local(name)) {
            return format!(
                "// Port 80 redirects to HTTPS.\nlisten {listen}\n\n// No public authority issues certificates for names of the own network. The internal one does: \
                 `foregate\n// certificates root` prints the root that clients must trust.\nlisten \":443\" {{ tls \"internal\" }}\n"
            );
        }
        let acme = match &self.email {
            Some(email) => format!("acme {{ email {} }}\n", quoted(email)),
            None => "// acme { email \"you@example.com\" }\n".to_owned(),
        };
        format!(
            "// Port 80 redirects to HTTPS and answers the challenges of the certificate authority.\nlisten {listen}\n\
             listen \":443\" {{ tls \"auto\" }}\n\n// The account at the authority, Let's Encrypt unless `directory` names another.\n{acme}"
        )
    }

    fn upstream(&self) -> Result<String, String> {
        if self.to.is_empty() {
            return Ok(String::new());
        }
        let mut block = String::new();
        let mut schemes = Vec::new();
        for url in &self.to {
            let (scheme, address) = origin(url).map_err(|error| error.to_string())?;
            block.push_str(&format!("    server {}\n", quoted(&address.to_string())));
            schemes.push(scheme);
        }
        if schemes.windows(2).any(|pair| pair[0] != pair[1]) {
            return Err("all origins must have the same scheme".into());
        }
        match schemes.first().copied() {
            Some("https") => block.push_str("    tls\n"),
            Some("h2c") => block.push_str("    http \"2\"\n"),
            _ => {}
        }
        Ok(format!(
            "\n// The application. Several servers share its requests.\nupstream \"app\" {{\n{block}    // Takes a server out that does not \
             answer this path well:\n    // health \"/healthz\" every=\"5s\"\n}}\n"
        ))
    }

    fn site(&self) -> String {
        let names = match self.domain.is_empty() {
            true => "\"*\"".to_owned(),
            false => self.domain.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(" "),
        };
        let redirect = if self.domain.is_empty() { "" } else { "    redirect-https\n" };
        let mut action = String::new();
        if let Some(folder) = &self.files {
            action.push_str(&format!("        files {}\n", quoted(&folder.display().to_string())));
        }
        if !self.to.is_empty() {
            action.push_str("        proxy \"app\"\n");
        }
        format!(
            "\nsite {names} {{\n{redirect}    // Compresses responses for clients that accept it.\n    compress\n    // At most 20 requests a \
             second for each client:\n    // rate-limit 20 per=\"1s\"\n    route \"/**\" {{\n{action}    }}\n}}\n"
        )
    }
}

/// Returns true for a name or address for which no public authority issues a certificate.
fn is_local(name: &str) -> bool {
    matches!(obstacle(&name.to_ascii_lowercase(), false), Some(Obstacle::Local | Obstacle::Address))
}

/// The text as a KDL string.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    // `${` would start a reference, which would be replaced by its value.
    for letter in text.replace("${", "$${").chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() => quoted.push_str(&format!("\\u{{{:x}}}", u32::from(letter))),
            letter => quoted.push(letter),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_become_choices() {
        let choices = ask(Choices::default(), &mut &b"4000\na.example, b.example\n\n"[..]).unwrap();
        assert_eq!(choices.to, ["http://127.0.0.1:4000"]);
        assert_eq!((choices.domain.len(), choices.email), (2, None));
        let choices = ask(Choices::default(), &mut &b"./public\n\n\n"[..]).unwrap();
        assert_eq!((choices.files, choices.listen.as_deref()), (Some("./public".into()), Some(":8080")));
        assert!(ask(Choices::default(), &mut &b"3000\n"[..]).unwrap_err().contains("--to"));
    }
}
