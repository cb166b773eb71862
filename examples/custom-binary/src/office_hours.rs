//! `office-hours`: answers with 503 outside of certain hours of the day, UTC.
//!
//! ```kdl
//! office-hours from=9 to=17
//! ```

use std::ops::ControlFlow;

use foregate_module::settings::{Context, FromNode, Key, Node, Problem, Prop};
use foregate_module::{Filter, Respond, Response, Step, Time, phase};

/// The hours in which requests are answered, 0 to 24.
#[derive(Debug, PartialEq)]
pub struct Hours {
    from: u64,
    to: u64,
}

static KEY: Key = Key::one(
    "office-hours",
    "from=HOUR to=HOUR",
    "office-hours from=9 to=17",
    "Answers with 503 outside of these hours of the day, UTC.",
)
.args(0, 0)
.props(&[
    Prop { name: "from", usage: "HOUR", required: true, default: "", about: "The first hour, 0 to 23." },
    Prop { name: "to", usage: "HOUR", required: true, default: "", about: "The end, 1 to 24." },
]);

impl FromNode for Hours {
    const KEY: Option<&'static Key> = Some(&KEY);

    fn from_nodes(nodes: &[Node], _: &mut dyn Context) -> Result<Self, Problem> {
        // The key may stand once, so there is one node: the innermost.
        let mut hours = Self { from: 0, to: 24 };
        for node in nodes {
            if let Some(from) = node.prop("from") {
                hours.from = from.number(0..=23)?;
            }
            if let Some(to) = node.prop("to") {
                hours.to = to.number(1..=24)?;
            }
            if hours.from >= hours.to {
                return Err(node.wrong("the hours end before they begin"));
            }
        }
        Ok(hours)
    }
}

/// The step.
#[derive(Debug, Default)]
pub struct OfficeHours;

impl Step for OfficeHours {
    type At = phase::RequestSecurity;
    type Settings = Hours;
    type In<'r> = (Time,);
    type Out = ();
    type Stop = Respond;
    const NAME: &'static str = "office-hours";
    const ABOUT: &'static str = "Answers with 503 outside of certain hours of the day.";
    const FILTERS: &'static [Filter] = &[];

    fn run(&self, hours: &Hours, (Time(now),): (Time,)) -> ControlFlow<Respond> {
        let hour = now.unix_seconds() / 3600 % 24;
        if (hours.from..hours.to).contains(&hour) {
            return ControlFlow::Continue(());
        }
        let closed = Response::new(503).body("text/plain; charset=utf-8", "we are closed\n");
        ControlFlow::Break(Respond(closed))
    }
}

#[cfg(test)]
mod tests {
    use foregate_module::testing::{node, settings};
    use foregate_module::{Action, Now, Verdict, testing::Sample};

    use super::*;

    fn at_hour(hour: u64) -> Verdict {
        let mut sample = Sample::get("/");
        sample.now = Now { unix_ms: hour * 3_600_000, ..sample.now };
        sample.run(&OfficeHours, &Hours { from: 9, to: 17 })
    }

    #[test]
    fn requests_are_answered_in_office_hours() {
        assert_eq!(at_hour(9), Verdict::Continue);
        assert_eq!(at_hour(16), Verdict::Continue);
        for closed in [8, 17, 24] {
            let Verdict::Stop(Action::Respond(response)) = at_hour(closed) else { panic!("{closed}") };
            assert_eq!(response.status, 503);
        }
    }

    #[test]
    fn hours_are_checked() {
        let hours = |from: u64, to: u64| {
            let node = node("office-hours").prop_literal("from", from).prop_literal("to", to);
            settings::<Hours>(&[node]).map_err(|problem| problem.message)
        };
        assert_eq!(hours(9, 17), Ok(Hours { from: 9, to: 17 }));
        assert_eq!(hours(17, 9), Err("the hours end before they begin".to_owned()));
        assert_eq!(hours(9, 25), Err("expected a whole number from 1 to 24".to_owned()));
    }
}
