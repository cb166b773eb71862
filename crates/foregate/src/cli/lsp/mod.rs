//! `foregate lsp`: a language server for configurations in KDL, over the standard input and output.
//!
//! Errors are those of `foregate check`, with the texts of the editor in place of the files; completion and hover read
//! the table of keys.

mod answers;
mod files;
mod places;
mod report;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use clap::Args;
use foregate_module::Pipeline;
use lsp_server::{Connection, ErrorCode, Message, Notification, Request, RequestId, Response};
use lsp_types::{
    DidChangeTextDocumentParams, DidCloseTextDocumentParams, DidOpenTextDocumentParams, InitializeParams, Uri,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use self::files::{Encoding, path_of, uri_of};
use self::report::{CheckReport, Checks, NamedPlace};
use super::output::{Outcome, complain};
use crate::config::blocks::BlockKeys;

/// The files are checked after nothing was typed for this time.
const CHECK_AFTER: Duration = Duration::from_millis(150);
/// The time between two looks for the result of a running check.
const LOOK_EVERY: Duration = Duration::from_millis(10);

#[derive(Debug, Args)]
pub(super) struct Lsp {
    /// For editors that pass it; the standard input and output are always used
    #[arg(long, hide = true)]
    stdio: bool,
}

type ServerError = Box<dyn std::error::Error + Send + Sync>;

impl Lsp {
    pub(super) fn run(&self, pipeline: &Arc<Pipeline>) -> Outcome {
        let (connection, threads) = Connection::stdio();
        let served = serve(&connection, pipeline);
        // The writing thread ends once the connection is dropped.
        drop(connection);
        match served.and_then(|()| threads.join().map_err(Into::into)) {
            Ok(()) => Outcome::Fine,
            Err(error) => {
                complain(&format!("error: {error}"));
                Outcome::Wrong
            }
        }
    }
}

fn serve(connection: &Connection, pipeline: &Arc<Pipeline>) -> Result<(), ServerError> {
    let (id, params) = connection.initialize_start()?;
    let params: InitializeParams = serde_json::from_value(params)?;
    let mut session = Session::new(&params, pipeline);
    connection.initialize_finish(id, session.capabilities())?;
    loop {
        let message = match session.pause() {
            None => connection.receiver.recv().ok(),
            Some(pause) => match connection.receiver.recv_timeout(pause) {
                Ok(message) => Some(message),
                Err(error) if error.is_timeout() => {
                    session.proceed(connection)?;
                    continue;
                }
                Err(_) => None,
            },
        };
        match message {
            // The editor is gone.
            None => return Ok(()),
            Some(Message::Request(request)) => {
                if connection.handle_shutdown(&request)? {
                    return Ok(());
                }
                connection.sender.send(session.answer(request).into())?;
            }
            Some(Message::Notification(notification)) => session.note(notification),
            Some(Message::Response(_)) => {}
        }
        session.proceed(connection)?;
    }
}

/// A file that the editor has open.
struct OpenFile {
    /// The file's URI, as the editor wrote it.
    uri: Uri,
    text: String,
}

/// The state of the server.
struct Session {
    pipeline: Arc<Pipeline>,
    keys: BlockKeys,
    encoding: Encoding,
    /// The main configuration file, if the editor's settings name one.
    main: Option<PathBuf>,
    /// The open files, by canonical path.
    open: HashMap<PathBuf, OpenFile>,
    /// When the next check begins; `None` if no check is needed.
    due: Option<Instant>,
    running: Option<mpsc::Receiver<CheckReport>>,
    /// The URIs of the files for which the editor shows messages.
    published: HashSet<String>,
    /// The definitions that the last check found.
    named: Vec<NamedPlace>,
}

impl Session {
    fn new(params: &InitializeParams, pipeline: &Arc<Pipeline>) -> Self {
        let encodings =
            params.capabilities.general.as_ref().and_then(|general| general.position_encodings.as_ref());
        let named = params.initialization_options.as_ref().and_then(|options| options.get("configuration"));
        let folder = params.workspace_folders.iter().flatten().find_map(|folder| path_of(&folder.uri));
        let main = named.and_then(Value::as_str).map(|name| folder.unwrap_or_default().join(name));
        Self {
            pipeline: Arc::clone(pipeline),
            keys: BlockKeys::new(pipeline),
            encoding: Encoding::of(encodings),
            main,
            open: HashMap::new(),
            due: None,
            running: None,
            published: HashSet::new(),
            named: Vec::new(),
        }
    }

    fn capabilities(&self) -> Value {
        json!({
            "capabilities": {
                "positionEncoding": self.encoding.name(),
                "textDocumentSync": { "openClose": true, "change": 1, "save": true },
                "completionProvider": { "triggerCharacters": ["\"", "=", " "] },
                "hoverProvider": true,
                "definitionProvider": true,
                "documentSymbolProvider": true,
                "documentFormattingProvider": true,
                "codeActionProvider": { "codeActionKinds": ["quickfix"] },
            },
            "serverInfo": { "name": "foregate", "version": env!("CARGO_PKG_VERSION") },
        })
    }

    /// The time to wait for the next message; `None`, without limit, if there is no other work.
    fn pause(&self) -> Option<Duration> {
        if self.running.is_some() {
            return Some(LOOK_EVERY);
        }
        self.due.map(|due| due.saturating_duration_since(Instant::now()))
    }

    /// Publishes the result of a check that has ended, and starts the next check if it is due.
    fn proceed(&mut self, connection: &Connection) -> Result<(), ServerError> {
        match self.running.as_ref().map(mpsc::Receiver::try_recv) {
            Some(Ok(report)) => {
                self.running = None;
                self.publish(connection, report)?;
            }
            Some(Err(mpsc::TryRecvError::Disconnected)) => self.running = None,
            Some(Err(mpsc::TryRecvError::Empty)) | None => {}
        }
        let is_due = self.due.is_some_and(|due| due <= Instant::now());
        if self.running.is_none() && is_due {
            self.due = None;
            let open = self.open.iter().map(|(path, file)| (path.clone(), file.text.clone())).collect();
            let checks = Checks { open, main: self.main.clone(), encoding: self.encoding };
            let pipeline = Arc::clone(&self.pipeline);
            let (sender, receiver) = mpsc::channel();
            self.running = Some(receiver);
            // The check has its own thread, so that requests of the editor are answered meanwhile.
            std::thread::Builder::new().name("check".to_owned()).spawn(move || {
                let _ = sender.send(checks.run(&pipeline));
            })?;
        }
        Ok(())
    }

    /// Sends the messages of a check to the editor, and clears them for files that have none any more.
    fn publish(&mut self, connection: &Connection, report: CheckReport) -> Result<(), ServerError> {
        let mut shown = HashSet::new();
        let send = |uri: &str, messages: &[Value]| {
            let params = json!({ "uri": uri, "diagnostics": messages });
            let notification = Notification::new("textDocument/publishDiagnostics".to_owned(), params);
            connection.sender.send(notification.into())
        };
        for (path, messages) in &report.messages {
            let uri = self.open.get(path).map_or_else(|| uri_of(path), |file| file.uri.as_str().to_owned());
            send(&uri, messages)?;
            shown.insert(uri);
        }
        for uri in self.published.difference(&shown) {
            send(uri, &[])?;
        }
        self.published = shown;
        if !report.named.is_empty() || !report.is_refused {
            self.named = report.named;
        }
        Ok(())
    }

    fn note(&mut self, notification: Notification) {
        let method = notification.method.clone();
        match &*method {
            "textDocument/didOpen" => {
                let Some(params) = read::<DidOpenTextDocumentParams>(notification.params) else { return };
                let document = params.text_document;
                self.set(document.uri, document.text);
            }
            "textDocument/didChange" => {
                let Some(params) = read::<DidChangeTextDocumentParams>(notification.params) else { return };
                // Each change carries the whole text, so only the last one matters.
                if let Some(change) = params.content_changes.into_iter().next_back() {
                    self.set(params.text_document.uri, change.text);
                }
            }
            "textDocument/didClose" => {
                let Some(params) = read::<DidCloseTextDocumentParams>(notification.params) else { return };
                if let Some(path) = path_of(&params.text_document.uri) {
                    self.open.remove(&path);
                    self.due = Some(Instant::now());
                }
            }
            // Files that are not open may have changed as well.
            "textDocument/didSave" | "workspace/didChangeWatchedFiles" => self.due = Some(Instant::now()),
            _ => {}
        }
    }

    fn set(&mut self, uri: Uri, text: String) {
        if let Some(path) = path_of(&uri) {
            self.open.insert(path, OpenFile { uri, text });
            self.due = Some(Instant::now() + CHECK_AFTER);
        }
    }

    fn answer(&self, request: Request) -> Response {
        let Request { id, method, params } = request;
        let result = match &*method {
            "textDocument/completion" => self.completion(&params),
            "textDocument/hover" => self.hover(&params),
            "textDocument/definition" => self.definition(&params),
            "textDocument/documentSymbol" => self.symbols(&params),
            "textDocument/formatting" => self.formatted(&params),
            "textDocument/codeAction" => Some(report::fixes(&params)),
            _ => return unknown(id, &method),
        };
        Response::new_ok(id, result.unwrap_or(Value::Null))
    }

    /// The file that the parameters of a request name.
    fn file(&self, params: &Value) -> Option<(PathBuf, &OpenFile)> {
        let uri: Uri = params.pointer("/textDocument/uri")?.as_str()?.parse().ok()?;
        let path = path_of(&uri)?;
        let file = self.open.get(&path)?;
        Some((path, file))
    }
}

fn unknown(id: RequestId, method: &str) -> Response {
    Response::new_err(id, ErrorCode::MethodNotFound as i32, format!("`{method}` is not known"))
}

fn read<T: DeserializeOwned>(params: Value) -> Option<T> {
    serde_json::from_value(params).ok()
}
