//! From the text of a case to a [`Case`]: its blocks. The steps inside them are read by [`crate::steps`].

use std::fmt;
use std::path::{Path, PathBuf};

use crate::case::{
    Action, Case, CaseFile, CaseFileKind, Certificate, Client, ClientTls, Command, ConfigParts, Connect,
    Origin, OriginMode, OutputCheck, Start, Step,
};
use crate::dns::Record;
use crate::steps;
use crate::text::Text;
use crate::words::Words;

/// An error in the text of a case.
#[derive(Debug)]
pub struct ParseError {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// The error.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path.display(), self.line, self.message)
    }
}

impl std::error::Error for ParseError {}

/// An error at a line, before the file is known.
pub(crate) type LineError = (usize, String);

/// A block: its first line and the lines below it, with their numbers.
struct Block<'a> {
    line: usize,
    head: &'a str,
    body: Vec<(usize, &'a str)>,
}

/// Reads the text of a case.
///
/// # Errors
///
/// The first thing that is not understood, with its line.
pub fn parse(name: &str, path: &Path, source: &str) -> Result<Case, ParseError> {
    read(name, path, source).map_err(|(line, message)| ParseError { path: path.to_owned(), line, message })
}

fn read(name: &str, path: &Path, source: &str) -> Result<Case, LineError> {
    let title = source.lines().next().and_then(|line| line.strip_prefix('#'));
    let title =
        title.ok_or((1, "the first line must be a comment that says what the case shows".to_owned()))?;
    let mut case = Case {
        name: name.to_owned(),
        path: path.to_owned(),
        title: title.trim().to_owned(),
        config: ConfigParts::default(),
        start: Start::default(),
        certificates: Vec::new(),
        files: Vec::new(),
        nameservers: Vec::new(),
        origins: Vec::new(),
        clients: Vec::new(),
        commands: Vec::new(),
    };
    for block in blocks(source)? {
        read_block(&mut case, &block)?;
    }
    if case.clients.is_empty() && case.commands.is_empty() {
        return Err((1, "a case needs a client or a command".to_owned()));
    }
    Ok(case)
}

fn blocks(source: &str) -> Result<Vec<Block<'_>>, LineError> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    for (place, text) in source.lines().enumerate() {
        let line = place + 1;
        if text.trim().is_empty() || text.starts_with('#') {
            continue;
        }
        if !text.starts_with(' ') {
            blocks.push(Block { line, head: text, body: Vec::new() });
        } else {
            let block = blocks.last_mut().ok_or((line, "this line stands in no block".to_owned()))?;
            block.body.push((line, text));
        }
    }
    Ok(blocks)
}

fn read_block(case: &mut Case, block: &Block<'_>) -> Result<(), LineError> {
    let at = |message: String| (block.line, message);
    let mut words = Words::cut(block.head).map_err(at)?;
    let kind = words.word("the kind of block").map_err(at)?;
    match kind.as_str() {
        "config" => read_config(&mut case.config, &mut words, block)?,
        "origin" => case.origins.push(read_origin(&mut words, block)?),
        "client" => case.clients.push(read_client(&mut words, block)?),
        "command" => case.commands.push(read_command(&mut words, block)?),
        "start" => {
            if let Some(descriptors) = words.option("descriptors") {
                let number = descriptors.parse().map_err(|_| at(format!("`{descriptors}` is no number")))?;
                case.start.descriptors = Some(number);
            }
            case.start.inherit = words.text_option("inherit").map_err(at)?;
        }
        "certificate" => {
            let name = words.word("the name").map_err(at)?;
            let (stranger, expired) = (words.flag("stranger"), words.flag("expired"));
            let future = words.flag("future");
            let hosts = std::iter::from_fn(|| words.next_if(|_| true)).collect();
            case.certificates.push(Certificate { name, hosts, stranger, expired, future });
        }
        "dns" => {
            let name = words.next_if(|_| true).unwrap_or_else(|| "dns".to_owned());
            case.nameservers.push((name, read_records(block)?));
        }
        "file" => {
            let name = words.word("the name").map_err(at)?;
            let modified = words.number_option("modified").map_err(at)?;
            let size = words.number_option("size").map_err(at)?;
            let content = raw_lines(block)?;
            case.files.push(CaseFile { name, kind: CaseFileKind::File { content, modified, size } });
        }
        "folder" | "pipe" => {
            let name = words.word("the name").map_err(at)?;
            let made = if kind == "pipe" { CaseFileKind::Pipe } else { CaseFileKind::Folder };
            case.files.push(CaseFile { name, kind: made });
        }
        "link" => {
            let name = words.word("the name").map_err(at)?;
            let target = words.text("where it leads").map_err(at)?;
            case.files.push(CaseFile { name, kind: CaseFileKind::Link(target) });
        }
        _ => {
            return Err(at(format!(
                "no block `{kind}`: config, start, origin, client, dns, command, certificate, file, folder, link, pipe"
            )));
        }
    }
    words.finish().map_err(at)
}

fn read_config(config: &mut ConfigParts, words: &mut Words, block: &Block<'_>) -> Result<(), LineError> {
    let text = raw_lines(block)?;
    match words.next_if(|_| true).as_deref() {
        None => config.whole = Some(text),
        Some("top") => config.top.append(text),
        Some("listen") => config.listen.append(text),
        Some("upstream") => config.upstream.append(text),
        Some("server") => config.server = Some(text),
        Some("site") => config.site.append(text),
        Some("route") => config.route.append(text),
        Some(part) => {
            let message = format!("no part `{part}`: top, listen, upstream, server, site, route");
            return Err((block.line, message));
        }
    }
    Ok(())
}

/// The lines of a block as the text of a file, without their common indentation.
fn raw_lines(block: &Block<'_>) -> Result<Text, LineError> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let common = block.body.iter().map(|(_, line)| indent(line)).min().unwrap_or(0);
    let mut text = Text::default();
    for (line, source) in &block.body {
        let part =
            Text::parse_raw(&format!("{}\n", &source[common..])).map_err(|message| (*line, message))?;
        text.append(part);
    }
    Ok(text)
}

fn read_records(block: &Block<'_>) -> Result<Vec<Record>, LineError> {
    let read = |&(line, source): &(usize, &str)| {
        let mut words = Words::cut(source).map_err(|message| (line, message))?;
        let record = Record::read(&mut words).map_err(|message| (line, message))?;
        words.finish().map_err(|message| (line, message))?;
        Ok(record)
    };
    block.body.iter().map(read).collect()
}

fn read_origin(words: &mut Words, block: &Block<'_>) -> Result<Origin, LineError> {
    let mut origin = Origin {
        name: "origin".to_owned(),
        line: block.line,
        mode: OriginMode::Script,
        h2: false,
        either: false,
        tls: None,
        wants_certificate: false,
        unix: false,
        ipv6: false,
        steps: Vec::new(),
    };
    while let Some(word) = words.next_if(|_| true) {
        match word.as_str() {
            "h2" => origin.h2 = true,
            "either" => (origin.h2, origin.either) = (true, true),
            "tls" => origin.tls = Some("origin".to_owned()),
            "mutual" => origin.wants_certificate = true,
            "unix" => origin.unix = true,
            "ipv6" => origin.ipv6 = true,
            "each" => origin.mode = OriginMode::Each,
            "down" => origin.mode = OriginMode::Down,
            "full" => origin.mode = OriginMode::Full,
            "untouched" => origin.mode = OriginMode::Untouched,
            "incomplete" => origin.mode = OriginMode::Incomplete,
            _ => origin.name = word,
        }
    }
    if let Some(certificate) = words.option("certificate") {
        origin.tls = Some(certificate);
    }
    origin.steps = read_steps(block)?;
    if !matches!(origin.mode, OriginMode::Script | OriginMode::Each) && !origin.steps.is_empty() {
        return Err((
            block.line,
            "an origin that is down, full, untouched or incomplete has no steps".to_owned(),
        ));
    }
    Ok(origin)
}

fn read_client(words: &mut Words, block: &Block<'_>) -> Result<Client, LineError> {
    let mut name = "client".to_owned();
    let connect = read_connect(words, Some(&mut name)).map_err(|message| (block.line, message))?;
    Ok(Client { name, line: block.line, connect, steps: read_steps(block)? })
}

/// Reads the words that say how a client connects; an unknown word is its name, where it may have one.
pub(crate) fn read_connect(words: &mut Words, mut name: Option<&mut String>) -> Result<Connect, String> {
    let mut connect = Connect {
        to: words.text_option("to")?,
        from: match words.option("from") {
            Some(from) => Some(from.parse().map_err(|error| format!("{from}: {error}"))?),
            None => None,
        },
        h2: false,
        bare: false,
        keep_window: false,
        keep_pings: false,
        slow: false,
        tls: None,
        idle: false,
    };
    let mut wants_tls = false;
    while let Some(word) = words.next_if(|_| true) {
        match (word.as_str(), &mut name) {
            ("h2", _) => connect.h2 = true,
            ("tls", _) => wants_tls = true,
            ("bare", _) => (connect.h2, connect.bare) = (true, true),
            ("keep-window", _) => connect.keep_window = true,
            ("keep-pings", _) => connect.keep_pings = true,
            ("slow", _) => connect.slow = true,
            ("idle", _) => connect.idle = true,
            (_, Some(name)) => **name = word,
            (_, None) => return Err(format!("`{word}` is one word too many")),
        }
    }
    if wants_tls {
        connect.tls = Some(ClientTls {
            server_name: words.option("name").unwrap_or_else(|| "example.com".to_owned()),
            alpn: words.option("alpn").map(|list| list.split(',').map(str::to_owned).collect()),
            certificate: words.option("certificate"),
            version: words.option("version"),
        });
    }
    Ok(connect)
}

fn read_command(words: &mut Words, block: &Block<'_>) -> Result<Command, LineError> {
    let arguments = words.rest().map_err(|message| (block.line, message))?;
    let mut command = Command { line: block.line, arguments, exit: 0, output: Vec::new() };
    for &(line, source) in &block.body {
        let mut words = Words::cut(source).map_err(|message| (line, message))?;
        read_command_line(&mut command, line, &mut words).map_err(|message| (line, message))?;
        words.finish().map_err(|message| (line, message))?;
    }
    Ok(command)
}

fn read_command_line(command: &mut Command, line: usize, words: &mut Words) -> Result<(), String> {
    let word = words.word("a check")?;
    let (word, present) = if word == "no" { (words.word("stdout or stderr")?, false) } else { (word, true) };
    let stderr = match word.as_str() {
        "exit" => {
            command.exit = words.number("an exit code")?;
            return Ok(());
        }
        "stdout" => false,
        "stderr" => true,
        _ => {
            return Err(format!("no check `{word}`: exit, stdout, stderr, no stdout, no stderr"));
        }
    };
    let text = words.text("the text")?;
    command.output.push(OutputCheck { line, stderr, present, text });
    Ok(())
}

/// Reads the steps of a block; `repeat N` and `eventually` nest, each with its `end`.
fn read_steps(block: &Block<'_>) -> Result<Vec<Step>, LineError> {
    let mut lines = block.body.iter().copied().peekable();
    let mut open: Vec<(Step, usize)> = Vec::new();
    let mut stack: Vec<Vec<Step>> = vec![Vec::new()];
    while let Some((line, source)) = lines.next() {
        let trimmed = source.trim();
        if trimmed.starts_with('#') {
            continue;
        }
        let mut words = Words::cut(trimmed).map_err(|message| (line, message))?;
        while let Some((_, text)) = lines.next_if(|(_, text)| text.trim_start().starts_with('|')) {
            let text = &text.trim_start()[1..];
            words.lines.push(text.strip_prefix(' ').unwrap_or(text).to_owned());
        }
        if trimmed == "end" {
            let (mut step, _) =
                open.pop().ok_or((line, "`end` without `repeat` or `eventually`".to_owned()))?;
            if let Action::Repeat(_, steps) | Action::Eventually(_, steps) = &mut step.action {
                *steps = stack.pop().unwrap_or_default();
            }
            stack.last_mut().ok_or((line, "`end` without `repeat` or `eventually`".to_owned()))?.push(step);
            continue;
        }
        let action = steps::read(&mut words).map_err(|message| (line, message))?;
        words.finish().map_err(|message| (line, message))?;
        let step = Step { line, source: trimmed.to_owned(), action };
        if let Action::Repeat(..) | Action::Eventually(..) = step.action {
            open.push((step, line));
            stack.push(Vec::new());
        } else if let Some(steps) = stack.last_mut() {
            steps.push(step);
        }
    }
    match open.last() {
        Some((_, line)) => Err((*line, "`repeat` or `eventually` without `end`".to_owned())),
        None => Ok(stack.pop().unwrap_or_default()),
    }
}
