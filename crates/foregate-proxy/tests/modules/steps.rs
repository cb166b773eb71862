//! The steps of the tests.

use std::ops::ControlFlow;
use std::thread;
use std::time::{Duration, Instant};

use foregate_module::{
    Abort, Bail, Body, BodyFilter, EditRequest, EditResponse, Edits, Emit, Fetch, FetchKey, FetchRequest,
    Fetched, Filter, FilterRequestBody, FilterResponseBody, Filtered, HoldResponseBody, Load, LogId, LogLine,
    Never, Note, Notes, Outcome, Path, Read as ReadValue, ReceivedRequest, Replace, Respond, Response,
    ResponseBody, Sink, Status, Step, Tally, UpstreamId, Weight, WhenFull, WriteLog, phase, pipeline,
};

macro_rules! step {
    ($name:ident, $at:ident, $field:literal, $in:ty, $out:ty, $stop:ty, |$input:pat_param| $run:expr $(, $more:item)*) => {
        #[derive(Default)]
        pub struct $name;
        impl Step for $name {
            type At = phase::$at;
            type Settings = ();
            type In<'r> = $in;
            type Out = $out;
            type Stop = $stop;
            const NAME: &'static str = stringify!($name);
            const ABOUT: &'static str = "A step of this test.";
            const FILTERS: &'static [Filter] = &[Filter::RequestField($field)];
            $($more)*
            fn run(&self, (): &(), $input: Self::In<'_>) -> ControlFlow<$stop, $out> {
                $run
            }
        }
    };
}

fn edit(name: &'static str, value: impl Into<foregate_module::Text>) -> EditRequest {
    EditRequest(Edits::new().set(name, value))
}

step!(Panics, RequestEarly, "x-panic", (), (), Never, |()| panic!("as asked"));
step!(
    Stumbles,
    RequestEarly,
    "x-stumble",
    (),
    (),
    Never,
    |()| panic!("as asked"),
    const OPTIONAL: bool = true;
);
step!(Refuses, RequestSecurity, "x-refuse", (), (), Respond, |()| ControlFlow::Break(Respond(
    Response::new(403).body("text/plain", "no\n")
)));
step!(Aborts, RequestSecurity, "x-abort", (), (), Abort, |()| ControlFlow::Break(Abort));
step!(
    Spins,
    RequestSecurity,
    "x-spin",
    (),
    (EditRequest,),
    Never,
    |()| {
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(300) {}
        ControlFlow::Continue((edit("x-thread", thread::current().name().unwrap_or_default().to_owned()),))
    },
    const WEIGHT: Weight = Weight::Heavy(WhenFull::Error);
);

step!(Drags, RequestSecurity, "x-drag", (), (EditRequest,), Never, |()| {
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(100) {}
    ControlFlow::Continue((edit("x-thread", thread::current().name().unwrap_or_default().to_owned()),))
});

pub struct Asked;
impl FetchKey for Asked {
    const NAME: &'static str = "asked.request";
    const ANSWER: &'static str = "asked.answer";
}
step!(Asks, RequestIdentity, "x-ask", (Path<'r>,), (Emit<Fetch<Asked>>,), Never, |(Path(path),)| {
    let upstream = if path.starts_with(b"/silent") { 1 } else { 0 };
    let ask = FetchRequest {
        timeout: Duration::from_millis(500),
        ..FetchRequest::get(UpstreamId(upstream), "/asked")
    };
    ControlFlow::Continue((Emit(Some(ask)),))
});
step!(Hears, RequestSecurity, "x-ask", (ReadValue<'r, Fetched<Asked>>,), (EditRequest,), Never, |(
    ReadValue(answer),
)| {
    let said = match answer {
        Some(Ok(answer)) => format!("{} {}", answer.status, String::from_utf8_lossy(&answer.body[..9])),
        Some(Err(error)) => format!("{error:?}"),
        None => "nothing".to_owned(),
    };
    ControlFlow::Continue((edit("x-heard", said),))
});
step!(
    Looks,
    RequestBody,
    "x-look",
    (Body<'r>,),
    (EditRequest,),
    Never,
    |(body,)| ControlFlow::Continue((edit("x-looked", format!("{} {}", body.bytes.len(), body.whole)),)),
    fn body((): &()) -> usize {
        8
    }
);

/// Writes every byte twice, in upper case; the text behind a tilde passes.
#[derive(Default)]
struct Louder(bool);
impl BodyFilter for Louder {
    fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
        let end = piece.iter().position(|byte| *byte == b'~').filter(|_| !self.0);
        let (loud, rest) = piece.split_at(end.unwrap_or(if self.0 { 0 } else { piece.len() }));
        let louder: Vec<u8> = loud.iter().flat_map(|byte| [byte.to_ascii_uppercase(); 2]).collect();
        self.0 |= end.is_some();
        out.write(&louder);
        out.write(rest);
        Ok(())
    }
    fn is_over(&self) -> bool {
        self.0
    }
    fn end(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
        Ok(())
    }
    fn bail(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
        Ok(())
    }

    fn held(&self) -> usize {
        0
    }
}
/// Panics when it sees an exclamation mark.
struct Shy;
impl BodyFilter for Shy {
    fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
        assert!(!piece.contains(&b'!'), "as asked");
        out.write(piece);
        Ok(())
    }
    fn end(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
        Ok(())
    }
    fn bail(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
        Ok(())
    }

    fn held(&self) -> usize {
        0
    }
}
step!(ShiesOut, RequestRewrite, "x-shy-out", (), (FilterRequestBody, FilterRequestBody), Never, |()| {
    let shy = FilterRequestBody(Some(Filtered::new("ShiesOut", Shy)));
    ControlFlow::Continue((FilterRequestBody(Some(Filtered::new("ShoutsOut", Louder::default()))), shy))
});
step!(ShoutsOut, RequestRewrite, "x-shout-out", (), (FilterRequestBody,), Never, |()| {
    ControlFlow::Continue((FilterRequestBody(Some(Filtered::new("ShoutsOut", Louder::default()))),))
});
step!(Signs, ResponseHeaders, "x-sign", (Status,), (EditResponse,), Never, |(Status(status),)| {
    ControlFlow::Continue((EditResponse(Edits::new().set("x-signed", status.to_string())),))
});
step!(Pages, ResponseErrorPage, "x-page", (Status,), (), Replace, |(Status(status),)| match status {
    500.. => ControlFlow::Break(Replace(Response::new(status).body("text/html", "<p>sorry\n"))),
    _ => ControlFlow::Continue(()),
});
step!(ShoutsBack, ResponseBody, "x-shout-back", (), (FilterResponseBody,), Never, |()| {
    ControlFlow::Continue((FilterResponseBody(Some(Filtered::new("ShoutsBack", Louder::default()))),))
});
step!(Tells, Log, "x-tell", (Status, Outcome), (Notes,), Never, |(Status(status), Outcome(summary))| {
    let value = format!("{status} {}", summary.bytes_out);
    ControlFlow::Continue((Notes(vec![Note { name: "told".into(), value: value.into() }]),))
});

step!(Strips, RequestEarly, "x-seen", (), (EditRequest,), Never, |()| ControlFlow::Continue((EditRequest(
    Edits::new().remove("x-seen").set("x-seen", "2")
),)));
step!(Sees, RequestSecurity, "x-seen", (ReceivedRequest<'r>,), (EditRequest,), Never, |(
    ReceivedRequest(received),
)| {
    let fields: Vec<_> = received
        .fields
        .iter()
        .map(|(name, value)| format!("{}={}", String::from_utf8_lossy(name), String::from_utf8_lossy(value)))
        .collect();
    let (client, server) = (received.client.unwrap(), received.server.unwrap());
    let ports = client.port() != 0 && server.port() != 0 && client != server;
    ControlFlow::Continue((edit("x-saw", format!("{received:?} {} {ports}", fields.join("|"))),))
});
step!(
    Sways,
    RequestSecurity,
    "x-sway",
    (Path<'r>,),
    (EditRequest,),
    Never,
    |_| ControlFlow::Continue((edit("x-thread", thread::current().name().unwrap_or_default().to_owned()),)),
    const WEIGHT: Weight = Weight::Varies;,
    fn load(&self, (): &(), (Path(path),): &(Path<'_>,)) -> Load {
        match *path {
            b"/heavy" => Load::Heavy { when_full: WhenFull::Error, wait: Duration::from_secs(5) },
            b"/soon" => Load::Heavy { when_full: WhenFull::Inline, wait: Duration::from_millis(50) },
            _ => Load::Light,
        }
    }
);
step!(Holds, ResponseHeaders, "x-hold", (Status,), (HoldResponseBody,), Never, |_| ControlFlow::Continue((
    HoldResponseBody(Some(16)),
)));
step!(Searches, ResponseBody, "x-hold", (ResponseBody<'r>,), (EditResponse,), Replace, |(body,)| {
    if body.bytes.starts_with(b"GET /secret") {
        return ControlFlow::Break(Replace(Response::new(403).body("text/plain", "kept\n")));
    }
    let held = format!("{} {}", body.bytes.len(), body.whole);
    ControlFlow::Continue((EditResponse(Edits::new().set("x-held", held)),))
});
step!(Writes, Log, "x-write", (Path<'r>,), (WriteLog, Tally), Never, |(Path(path),)| {
    let line = LogLine { log: LogId(0), line: path.to_vec().into() };
    ControlFlow::Continue((WriteLog(vec![line]), Tally(vec![("path", path.len().to_string().into())])))
});

/// Tells of requests that were refused.
#[derive(Default)]
pub struct Witness;
impl Step for Witness {
    type At = phase::Log;
    type Settings = ();
    type In<'r> = (ReceivedRequest<'r>,);
    type Out = (WriteLog,);
    type Stop = Never;
    const NAME: &'static str = "witness";
    const ABOUT: &'static str = "A step of this test.";
    const FILTERS: &'static [Filter] = &[];
    const WEIGHT: Weight = Weight::Varies;
    fn load(&self, (): &(), _: &Self::In<'_>) -> Load {
        Load::Heavy { when_full: WhenFull::Inline, wait: Duration::from_secs(5) }
    }
    fn run(&self, (): &(), (ReceivedRequest(received),): Self::In<'_>) -> ControlFlow<Never, (WriteLog,)> {
        let line = received.refusal.map(|refusal| {
            let first = received.fields.field(0).unwrap_or_default();
            let text = format!(
                "{}: {received:?} {:?} {}",
                refusal.kind,
                String::from_utf8_lossy(first.0),
                String::from_utf8_lossy(refusal.head).len()
            );
            LogLine { log: LogId(0), line: text.into() }
        });
        ControlFlow::Continue((WriteLog(line.into_iter().collect()),))
    }
}

pipeline! {
    pub fn steps {
        Panics, Stumbles, Strips, Asks, Refuses, Aborts, Spins, Drags, Hears, Sees, Sways, Looks, ShiesOut, ShoutsOut, Signs,
        Holds, Pages, Searches, ShoutsBack, Tells, Writes, Witness,
    }
}
