//! Maintenance: a page replaces the site, except for its operators.
//!
//! ```kdl
//! maintenance retry-after="10m" page="down.html" {
//!     allow "192.0.2.0/24" "2001:db8::/32"
//! }
//! ```

#[cfg(test)]
mod tests;

use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::{ControlFlow, RangeInclusive};
use core::time::Duration;

use foregate_module::settings::{
    ANY, Argument, Block, Context, FromNode, Key, Node, Problem, Prop, each, together,
};
use foregate_module::{
    ClientAddress, Condition, Filter, Note, Noted, PhaseId, Respond, Response, Step, View, phase,
};

use crate::ranges::{Network, NetworkError, Ranges};

/// The largest page, bytes.
const PAGE_MOST: usize = 1 << 20;
/// The most networks.
const NETWORKS_MOST: usize = 10_000;
const RETRIES: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(30 * 86_400);

static KEY: Key = Key {
    args: (0, 1),
    props: &PROPS,
    block: Some(&Block { keys: &CHILDREN, later: &[] }),
    otherwise: "the site is open",
    ..Key::one(
        "maintenance",
        "[#true|#false] { ... }",
        "maintenance retry-after=\"10m\"",
        "Answers every request with 503 and a page, except those of allowed clients.",
    )
};

static PROPS: [Prop; 5] = [
    Prop {
        name: "page",
        usage: "FILE",
        required: false,
        default: "",
        about: "A file with the page, at most 1 MiB.",
    },
    Prop {
        name: "body",
        usage: "TEXT",
        required: false,
        default: "\"Down for maintenance\\n\"",
        about: "The text of the page, if there is no file.",
    },
    Prop {
        name: "type",
        usage: "TEXT",
        required: false,
        default: "",
        about: "The content type. Without it: HTML for `page`, plain text for `body`.",
    },
    Prop {
        name: "status",
        usage: "STATUS",
        required: false,
        default: "503",
        about: "The status, 200 or 400 to 599.",
    },
    Prop {
        name: "retry-after",
        usage: "DURATION",
        required: false,
        default: "",
        about: "The value of `Retry-After`, 1s to 30d. Without it: the field is not sent.",
    },
];

static CHILDREN: [Key; 2] = [
    Key::one(
        "allow",
        "NETWORK ...",
        "allow \"192.0.2.0/24\"",
        "Clients that get the site instead of the page: addresses, or networks as ADDRESS/BITS.",
    )
    .args(1, ANY)
    .many(),
    Key::one(
        "unless",
        "EXPRESSION",
        "unless \"http.request.uri.path eq \\\"/healthz\\\"\"",
        "Requests for which this expression is true get the site instead of the page.",
    ),
];

/// The page, and the clients that are exempt.
pub struct MaintenanceSettings {
    response: Response,
    allow: Ranges,
    unless: Option<Arc<dyn Condition>>,
}

impl FromNode for MaintenanceSettings {
    const KEY: Option<&'static Key> = Some(&KEY);

    fn from_nodes(nodes: &[Node], context: &mut dyn Context) -> Result<Self, Problem> {
        let Some(node) = nodes.first() else {
            return Err(Problem::new(Default::default(), "`maintenance` has no settings"));
        };
        if let Some(argument) = node.args().first()
            && !argument.flag()?
        {
            return Err(argument.wrong("`maintenance #false` takes no properties and no block"));
        }
        let networks: Vec<_> = node.children_named("allow").flat_map(Node::args).collect();
        if let Some(argument) = networks.get(NETWORKS_MOST) {
            return Err(argument.wrong(alloc::format!("there are more than {NETWORKS_MOST} networks")));
        }
        let unless = node.child("unless").map(|unless| {
            unless.arg(0).and_then(|unless| context.condition(unless, PhaseId::RequestIdentity))
        });
        let (response, allow, unless) = together((
            read_response(node, context),
            each::<_, Vec<_>>(networks.into_iter().map(read_network)),
            unless.transpose(),
        ))?;
        let allow = Ranges::new(allow.into_iter().map(|network| (network, 0)));
        Ok(Self { response, allow, unless })
    }
}

fn read_network(argument: &Argument) -> Result<Network, Problem> {
    argument.text()?.parse().map_err(|error: NetworkError| {
        argument.wrong(error.to_string()).help("write something like \"192.0.2.0/24\" or \"2001:db8::1\"")
    })
}

fn read_status(status: &Argument) -> Result<u16, Problem> {
    match status.number(200..=599)? as u16 {
        number @ (200 | 400..) => Ok(number),
        _ => Err(status.wrong("expected 200, or a status from 400 to 599")),
    }
}

fn read_response(node: &Node, context: &mut dyn Context) -> Result<Response, Problem> {
    let (page, content_type) = match (node.prop("page"), node.prop("body")) {
        (Some(_), Some(body)) => (Err(body.wrong("a page is a file or a text, not both")), ""),
        (Some(file), None) => (context.file(file, PAGE_MOST), "text/html; charset=utf-8"),
        (None, body) => {
            let body = body.map_or(Ok("Down for maintenance\n"), Argument::text);
            (body.map(|body| body.as_bytes().into()), "text/plain; charset=utf-8")
        }
    };
    let (page, content_type, status, retry) = together((
        page,
        node.prop("type").map_or(Ok(content_type), crate::content_type),
        node.prop("status").map_or(Ok(503), read_status),
        node.prop("retry-after").map(|retry| retry.duration(RETRIES)).transpose(),
    ))?;
    let response = Response::new(status)
        .body(Arc::<[u8]>::from(content_type.as_bytes()), page)
        .field("cache-control", "no-store");
    let response = match retry {
        None => response,
        Some(retry) => response.field("retry-after", retry.as_secs().to_string()),
    };
    let is_given = node.prop("page").or(node.prop("body")).is_some();
    Ok(if is_given { response.meant() } else { response })
}

/// Answers with the page.
#[derive(Debug, Default)]
pub struct Maintenance;

impl Step for Maintenance {
    // The step runs before authentication, because the authentication servers may be down as well.
    type At = phase::RequestIdentity;
    type Settings = MaintenanceSettings;
    type In<'r> = (ClientAddress, View<'r>);
    type Out = ();
    type Stop = Noted<Respond>;
    const NAME: &'static str = "maintenance";
    const ABOUT: &'static str = "Answers with a page while a site is worked on.";
    const FILTERS: &'static [Filter] = &[];

    fn run(&self, settings: &MaintenanceSettings, input: Self::In<'_>) -> ControlFlow<Self::Stop, ()> {
        let (ClientAddress(client), view) = input;
        let allowed = client.is_some_and(|client| settings.allow.get(client).is_some());
        if allowed || settings.unless.as_ref().is_some_and(|unless| unless.holds(&view)) {
            return ControlFlow::Continue(());
        }
        let notes = Vec::from([Note { name: "maintenance".into(), value: "answered".into() }]);
        ControlFlow::Break(Noted { stop: Respond(settings.response.clone()), notes })
    }
}
