//! A case as data, parsed from its text.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::dns::Record;
use crate::text::Text;

/// One text case.
#[derive(Debug)]
pub struct Case {
    /// The path below the folder of cases, without the extension: `http1-in/both-lengths`.
    pub name: String,
    /// Where the text stands.
    pub path: PathBuf,
    /// The first comment: the purpose of the case.
    pub title: String,
    /// The parts of the configuration in the case.
    pub config: ConfigParts,
    /// The start options of the proxy.
    pub start: Start,
    /// The certificates to make before the start, in the order of the file.
    pub certificates: Vec<Certificate>,
    /// Further files to write into the folder of the case.
    pub files: Vec<CaseFile>,
    /// The scripted nameservers: the name and the records of each.
    pub nameservers: Vec<(String, Vec<Record>)>,
    /// The scripted origins.
    pub origins: Vec<Origin>,
    /// The scripted clients; all of them start together.
    pub clients: Vec<Client>,
    /// Commands to run instead of the proxy, one after the other.
    pub commands: Vec<Command>,
}

/// Something to make in the folder of the case before the start.
#[derive(Debug)]
pub struct CaseFile {
    /// The path below that folder; folders on the way are made.
    pub name: String,
    /// What it is.
    pub kind: CaseFileKind,
}

/// What is made in the folder of a case.
#[derive(Debug)]
pub enum CaseFileKind {
    /// A file.
    File {
        /// Its text.
        content: Text,
        /// The time of its last change, seconds since 1970; now when absent.
        modified: Option<u64>,
        /// Its size, bytes, where that is more than the text; the rest is a hole.
        size: Option<u64>,
    },
    /// A folder.
    Folder,
    /// A symbolic link to this path.
    Link(Text),
    /// A named pipe.
    Pipe,
}

/// What the proxy is started with, besides its configuration.
#[derive(Debug, Default)]
pub struct Start {
    /// The limit on its descriptors; otherwise that of the runner.
    pub descriptors: Option<u32>,
    /// The address of a listening socket that it inherits by `LISTEN_FDS`.
    pub inherit: Option<Text>,
}

/// The configuration: a whole one, or additions to the default one.
#[derive(Debug, Default)]
pub struct ConfigParts {
    /// `config`: the whole file.
    pub whole: Option<Text>,
    /// `config top`: nodes beside `listen`, `upstream` and `site`.
    pub top: Text,
    /// `config listen`: inside `listen`.
    pub listen: Text,
    /// `config upstream`: inside `upstream "app"`.
    pub upstream: Text,
    /// `config server`: instead of the one `server` line of `upstream "app"`.
    pub server: Option<Text>,
    /// `config site`: inside `site "*"`, before its route.
    pub site: Text,
    /// `config route`: inside `route "/**"`, before `proxy "app"`.
    pub route: Text,
}

/// A certificate and key to make: `NAME.pem`, `NAME.key`.
#[derive(Debug)]
pub struct Certificate {
    /// The name of its files.
    pub name: String,
    /// DNS names and addresses it is for.
    pub hosts: Vec<String>,
    /// Signed by an authority that nobody knows, instead of `ca.pem`.
    pub stranger: bool,
    /// Its time is over.
    pub expired: bool,
    /// Its time has not come.
    pub future: bool,
}

/// How a scripted origin behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OriginMode {
    /// The script takes the connections one after the other with `accept`; the first is implicit.
    Script,
    /// The script runs again for every request on every connection, however many.
    Each,
    /// Nobody listens.
    Down,
    /// Connecting gets no answer: the kernel's queue is full.
    Full,
    /// Connections are taken, but not one byte may arrive.
    Untouched,
    /// Connections are taken and read, but no request may arrive whole.
    Incomplete,
}

/// A scripted origin.
#[derive(Debug)]
pub struct Origin {
    /// Its name in reports and its variable: `${NAME}` is the address.
    pub name: String,
    /// The line of its first word.
    pub line: usize,
    /// How it takes connections.
    pub mode: OriginMode,
    /// Speaks HTTP/2.
    pub h2: bool,
    /// Speaks HTTP/1.1 on connections of TLS that do not offer HTTP/2.
    pub either: bool,
    /// Speaks TLS, with this certificate.
    pub tls: Option<String>,
    /// Asks for a client certificate signed by `ca.pem`.
    pub wants_certificate: bool,
    /// Listens on a Unix socket.
    pub unix: bool,
    /// Listens on `::1`.
    pub ipv6: bool,
    /// Its steps.
    pub steps: Vec<Step>,
}

/// A scripted client.
#[derive(Debug)]
pub struct Client {
    /// Its name in reports.
    pub name: String,
    /// The line of its first word.
    pub line: usize,
    /// How it connects at first.
    pub connect: Connect,
    /// Its steps.
    pub steps: Vec<Step>,
}

/// How to connect to the proxy.
#[derive(Debug, Clone)]
pub struct Connect {
    /// Where to; `${listen}` when absent.
    pub to: Option<Text>,
    /// From which address, if that matters.
    pub from: Option<IpAddr>,
    /// Speaks HTTP/2, preface and SETTINGS sent at once.
    pub h2: bool,
    /// HTTP/2 without sending anything at first.
    pub bare: bool,
    /// HTTP/2 without giving any window back.
    pub keep_window: bool,
    /// HTTP/2 without answering any PING.
    pub keep_pings: bool,
    /// Takes little at a time, and seldom.
    pub slow: bool,
    /// Speaks TLS.
    pub tls: Option<ClientTls>,
    /// Does not connect until a `connect` step.
    pub idle: bool,
}

/// The TLS of a client.
#[derive(Debug, Clone)]
pub struct ClientTls {
    /// The name asked for.
    pub server_name: String,
    /// The protocols offered; by default `h2` or `http/1.1`, as the client speaks.
    pub alpn: Option<Vec<String>>,
    /// Its own certificate.
    pub certificate: Option<String>,
    /// `1.2` or `1.3` alone.
    pub version: Option<String>,
}

/// A command to run to its end.
#[derive(Debug)]
pub struct Command {
    /// The line of its first word.
    pub line: usize,
    /// The verb and its arguments.
    pub arguments: Vec<Text>,
    /// The exit code; 0 when the case says nothing.
    pub exit: i32,
    /// Texts that must or must not stand in standard output and standard error.
    pub output: Vec<OutputCheck>,
}

/// A text that must (or must not) stand in an output.
#[derive(Debug)]
pub struct OutputCheck {
    /// The line of the check.
    pub line: usize,
    /// Standard error instead of standard output.
    pub stderr: bool,
    /// Set if it must be present.
    pub present: bool,
    /// The text.
    pub text: Text,
}

/// One step of a script.
#[derive(Debug, Clone)]
pub struct Step {
    /// Its line.
    pub line: usize,
    /// Its text, for reports.
    pub source: String,
    /// The action.
    pub action: Action,
}

/// When something has to happen.
#[derive(Debug, Clone, Copy)]
pub struct Time {
    /// Not before.
    pub after: Option<Duration>,
    /// Not later.
    pub within: Duration,
}

/// The action of a step.
#[derive(Debug, Clone)]
pub enum Action {
    /// Takes the next connection.
    Accept(Time),
    /// Opens a new connection, as the block says or otherwise.
    Connect(Option<Box<Connect>>),
    /// The connection (or its TLS handshake) must be refused.
    Refused(Option<Box<Connect>>),
    /// Writes raw bytes.
    Send(Send),
    /// Writes a request.
    Request(Request),
    /// Writes a response.
    Respond(Respond),
    /// Reads from the peer.
    Receive(Receive),
    /// Looks at the message read last.
    Expect(Expect),
    /// The peer closes without another byte.
    Closed(Time, CloseKind),
    /// Nothing arrives for so long, and the connection stays open.
    Quiet(Duration),
    /// Closes the connection.
    Close,
    /// Closes the sending side.
    Shutdown(Goodbye),
    /// Resets the connection.
    Reset,
    /// Nobody can connect to the origin any more.
    Leave,
    /// Waits.
    Pause(Duration),
    /// Tells the other scripts that this point is reached.
    Mark(String),
    /// Waits for a mark.
    Await(String),
    /// Runs steps several times.
    Repeat(usize, Vec<Step>),
    /// Runs steps again and again until they succeed.
    Eventually(Time, Vec<Step>),
    /// Speaks to the proxy's process.
    Proxy(ProxyAction),
    /// The nameserver answers by this record for its name.
    Records(String, Record),
    /// The nameserver was asked for a name so often.
    Asked {
        /// Which nameserver.
        at: String,
        /// The name.
        name: String,
        /// `=`, `>=` or `<=`.
        compare: String,
        /// How often.
        count: usize,
        /// When.
        time: Time,
    },
    /// Writes HTTP/2 frames.
    Frames(usize, FrameOut),
    /// Unread input is ignored from here on.
    Ignore,
}

/// Set if an end is announced in TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goodbye {
    /// By close_notify.
    Said,
    /// The connection alone ends.
    Unsaid,
}

/// How a connection has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseKind {
    /// Either way.
    Any,
    /// By an orderly end.
    Cleanly,
    /// By a reset.
    Reset,
}

/// Raw bytes to write.
#[derive(Debug, Clone)]
pub struct Send {
    /// The bytes.
    pub text: Text,
    /// How often.
    pub times: usize,
    /// A pause after each piece.
    pub drip: Option<Duration>,
    /// The size of a piece; 1 with `drip`.
    pub piece: Option<usize>,
    /// The peer has to stop reading before everything is written.
    pub stalls: bool,
}

/// A request to write, in the protocol of the connection.
#[derive(Debug, Clone)]
pub struct Request {
    /// The method.
    pub method: Text,
    /// The target.
    pub target: Text,
    /// Further lines of the head.
    pub fields: Vec<Text>,
    /// The body.
    pub body: Option<Text>,
    /// HTTP/2: do not end the stream.
    pub open: bool,
    /// The host; `example.com` when absent.
    pub host: Option<Text>,
    /// HTTP/2: the stream; the next one when absent.
    pub stream: Option<u32>,
}

/// A response to write, in the protocol of the connection.
#[derive(Debug, Clone)]
pub struct Respond {
    /// The status.
    pub status: u16,
    /// Further lines of the head.
    pub fields: Vec<Text>,
    /// The body.
    pub body: Option<Text>,
    /// The body this many times over.
    pub times: usize,
    /// Only the head, without a length; in HTTP/2 without the end of the stream.
    pub open: bool,
    /// HTTP/2: the stream; that of the last request when absent.
    pub stream: Option<u32>,
}

/// The input to read.
#[derive(Debug, Clone)]
pub struct Receive {
    /// The kind.
    pub what: Wanted,
    /// When.
    pub time: Time,
    /// HTTP/2: the stream; the last one in use when absent.
    pub stream: Option<u32>,
}

/// The kinds of things to read.
#[derive(Debug, Clone)]
pub enum Wanted {
    /// A message: as much of it as `extent` says, with these words in its start line.
    Message {
        /// Status; or method and target.
        start: Vec<Text>,
        /// How much of it.
        extent: Extent,
        /// It has no body, regardless of its head (the response to HEAD).
        no_body: bool,
    },
    /// The rest of the body of the message read last.
    Body,
    /// Exactly this text as the next part of the decoded body.
    Data(Text),
    /// Exactly these raw bytes.
    Bytes(Text),
    /// Anything up to and with this text.
    Until(Text),
    /// HTTP/2: the stream is reset, with one of these codes.
    Rst(Vec<u32>),
    /// HTTP/2: the connection is ended, with one of these codes.
    Goaway(Vec<u32>),
    /// HTTP/2: the stream is reset, or answered with 400 to 499, or the connection is ended.
    Refusal,
    /// HTTP/2: an acknowledged PING.
    Pong,
    /// HTTP/2: the peer's SETTINGS.
    Settings,
    /// HTTP/2: our SETTINGS acknowledged.
    SettingsAck,
}

/// How much of a message to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All of it.
    Whole,
    /// Its head.
    Head,
    /// As much as comes, and it must break off before its end.
    Cut,
}

/// The part of the last message to check.
#[derive(Debug, Clone)]
pub enum Expect {
    /// The status code, one of these.
    Status(Vec<u16>),
    /// A word of the start line or a pseudo-field.
    Start(StartPart, Text),
    /// All values of a field, in order.
    Field(Text, Vec<Text>),
    /// A field that is there, whatever it says.
    FieldPresent(Text),
    /// A value of a field holds this text.
    FieldContains(Text, Text),
    /// A field that is not there.
    NoField(Text),
    /// All values of a trailer field.
    Trailer(Text, Vec<Text>),
    /// A trailer field that is not there.
    NoTrailer(Text),
    /// The whole body.
    Body(Text),
    /// A part of the body.
    BodyContains(Text),
    /// The size of the body.
    BodySize(usize),
    /// How the body is delimited.
    Framing(Text),
    /// Raw bytes of the message.
    Wire(Text, bool),
    /// HTTP/2: a parameter of the peer's SETTINGS.
    Setting(u16, u32),
    /// TLS: the protocol agreed on.
    Alpn(Text),
    /// TLS: the certificate shown is this one.
    Certificate(String),
}

/// Parts of a start line.
#[derive(Debug, Clone, Copy)]
pub enum StartPart {
    /// The method.
    Method,
    /// The target.
    Target,
    /// The version of a request or response.
    Version,
    /// The reason of a response.
    Reason,
}

/// Parts of the output of a command.
#[derive(Debug, Clone)]
pub struct RunOutput {
    /// A part of standard output.
    pub stdout: Option<Text>,
    /// A part of standard error.
    pub stderr: Option<Text>,
}

/// Steps that concern the proxy's process.
#[derive(Debug, Clone)]
pub enum ProxyAction {
    /// Sends a signal.
    Signal(String),
    /// Replaces the configuration file.
    Config(Text),
    /// Writes another file into the case's folder.
    File(Text, Text),
    /// Copies a file of the case's folder over another, in one step.
    Copy(Text, Text),
    /// Gives a file of the case's folder another name.
    Move(Text, Text),
    /// Cuts a file of the case's folder off after so many bytes.
    Truncate(Text, u64),
    /// Runs the binary with these arguments; its exit code, and parts of its output.
    Run(Vec<Text>, i32, RunOutput),
    /// Waits until standard error holds a text.
    Stderr(Text, Time),
    /// Waits until a file holds a text.
    Log(Text, Text, Time),
    /// Fails if a file holds a text, or is not there.
    NoLog(Text, Text),
    /// Waits until the process ends, with this code.
    Exits(i32, Time),
    /// Waits until a metric compares so with a number.
    Metric {
        /// The beginning of the series' names and labels that are summed.
        series: Text,
        /// `=`, `>=` or `<=`.
        compare: String,
        /// The number.
        value: f64,
        /// When.
        time: Time,
    },
    /// The resident memory is at most so many bytes.
    Memory(u64),
    /// The process still runs.
    Alive,
    /// Kills the process, or ends it gracefully, and starts it again with the configuration file that there is.
    Restart {
        /// By SIGKILL.
        kill: bool,
    },
}

/// HTTP/2 frames to write.
#[derive(Debug, Clone)]
pub enum FrameOut {
    /// HEADERS, with CONTINUATION when needed or (without the end of the block) when said.
    Headers {
        /// The fields, as `name: value`.
        fields: Vec<Text>,
        /// The stream; the next one when absent.
        stream: Option<u32>,
        /// END_STREAM.
        end: bool,
        /// Without END_HEADERS.
        open_block: bool,
        /// CONTINUATION instead.
        continuation: bool,
    },
    /// DATA.
    Data {
        /// The bytes.
        text: Text,
        /// The stream; the last one in use when absent.
        stream: Option<u32>,
        /// END_STREAM.
        end: bool,
        /// Without regard to the window.
        force: bool,
        /// The window has to be exhausted before everything is written.
        stalls: bool,
    },
    /// RST_STREAM.
    Rst(Option<u32>, u32),
    /// SETTINGS.
    Settings(Vec<(u16, u32)>),
    /// PING.
    Ping,
    /// WINDOW_UPDATE.
    Window(u32, u32),
    /// GOAWAY.
    Goaway(u32),
    /// The client's preface.
    Preface,
    /// Any frame: type, flags, stream (the last one in use when absent), payload.
    Raw(u8, u8, Option<u32>, Text),
}
