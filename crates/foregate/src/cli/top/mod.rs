//! `foregate top`.

mod moment;
mod terminal;
mod view;

use std::collections::VecDeque;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use self::moment::Moments;
use self::terminal::{Terminal, TerminalKey};
use self::view::{TopView, frame};
use super::admin::{AdminEvents, ResourceRequest, events, reason};
use super::arguments::{ConfigFile, Json};
use super::output::{Outcome, complain, print, print_json};
use super::reload::{cannot_ask, find_admin};

/// The time within which the proxy must send the next figures.
const PATIENCE: Duration = Duration::from_secs(10);
/// The number of seconds over which rates and percentiles are computed.
const SPAN: usize = 10;
/// The width of the output in columns, if there is no terminal.
const COLUMNS: usize = 80;

#[derive(Debug, Args)]
pub(super) struct Top {
    #[command(flatten)]
    file: ConfigFile,
    /// The admin socket [default: the one that the configuration names]
    #[arg(long, value_name = "PATH")]
    admin: Option<PathBuf>,
    /// Print the figures of one second and exit, as without a terminal
    #[arg(long)]
    once: bool,
    /// Show only sites, routes, servers, requests and steps that contain this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    #[command(flatten)]
    output: Json,
}

impl Top {
    pub(super) fn run(&self) -> Outcome {
        let request = ResourceRequest::get("/v1/events");
        let admin = match find_admin(&self.file, self.admin.as_deref(), &request, self.output.json) {
            Ok(admin) => admin,
            Err(outcome) => return outcome,
        };
        let asked = events(&admin, &request, PATIENCE).and_then(|asked| match asked {
            AdminEvents::Stream(mut events) => self.watch(move || Ok(events.next()?.map(|event| event.data))),
            AdminEvents::Refused(answer) => {
                complain(reason(&answer));
                Ok(Outcome::Wrong)
            }
        });
        match asked {
            Ok(outcome) => outcome,
            Err(error) => cannot_ask(&admin, &error),
        }
    }

    fn watch(
        &self,
        mut next: impl FnMut() -> io::Result<Option<Value>> + Send + 'static,
    ) -> io::Result<Outcome> {
        let is_live =
            !self.once && !self.output.json && io::stdout().is_terminal() && io::stdin().is_terminal();
        let mut moments = Moments(VecDeque::with_capacity(SPAN + 1));
        let Some(first) = next()? else { return Err(io::ErrorKind::UnexpectedEof.into()) };
        moments.push(first, SPAN);
        if is_live {
            return self.live(moments, next);
        }
        // A rate needs two samples.
        if let Some(second) = next()? {
            moments.push(second, SPAN);
        }
        match self.output.json {
            true => print_json(moments.now()),
            false => {
                let view = TopView { filter: self.filter.clone(), ..TopView::default() };
                print(&format!("{}\n", frame(&view, &moments, COLUMNS, None).join("\n")));
            }
        }
        Ok(Outcome::Fine)
    }

    /// Shows the figures until the operator quits.
    fn live(
        &self,
        mut moments: Moments,
        mut next: impl FnMut() -> io::Result<Option<Value>> + Send + 'static,
    ) -> io::Result<Outcome> {
        let mut terminal = Terminal::open()?;
        let mut view = TopView {
            filter: self.filter.clone(),
            colour: std::env::var_os("NO_COLOR").is_none(),
            ..TopView::default()
        };
        let (tell, told) = mpsc::channel();
        // The thread ends with this process, or with the process that it asks.
        thread::Builder::new().name("figures".to_owned()).spawn(move || {
            loop {
                let figures =
                    next().and_then(|figures| figures.ok_or_else(|| io::ErrorKind::UnexpectedEof.into()));
                let is_over = figures.is_err();
                if tell.send(figures).is_err() || is_over {
                    return;
                }
            }
        })?;
        loop {
            while let Ok(figures) = told.try_recv() {
                match figures {
                    Ok(figures) if !view.paused => moments.push(figures, SPAN),
                    Ok(_) => {}
                    Err(error) => view.lost = Some(error.to_string()),
                }
            }
            let (columns, rows) = terminal.size();
            terminal.draw(&frame(&view, &moments, columns, Some(rows)))?;
            match terminal.key(Duration::from_millis(250))? {
                Some(key) if view.lost.is_some() && key != TerminalKey::Quit => return Ok(Outcome::Wrong),
                Some(key) if !view.press(key) => return Ok(Outcome::Fine),
                _ => {}
            }
        }
    }
}
