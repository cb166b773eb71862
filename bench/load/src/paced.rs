//! Requests at a steady pace, whatever answers take: each is timed from when it was due, so that one that was kept waiting
//! by others counts.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::exchange::Exchange;
use crate::h1::{Answer, Fed};
use crate::tally::Tally;

/// An answer that takes longer is a fault.
const PATIENCE: Duration = Duration::from_secs(10);

/// The requests to send.
pub struct Plan {
    pub target: SocketAddr,
    /// Requests a second.
    pub rate: f64,
    /// At most so many are on their way at a time; the others are late, which counts.
    pub connections: usize,
    pub run: Duration,
    /// In turn.
    pub exchanges: Vec<Exchange>,
}

/// Sends for as long as planned and gives the counts of each class of exchanges.
pub fn run(plan: &Plan) -> Value {
    let (next, tallies) = (AtomicUsize::new(0), Mutex::new(BTreeMap::<&str, Tally>::new()));
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..plan.connections {
            scope.spawn(|| {
                let mut kept = None;
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let after = Duration::from_secs_f64(number as f64 / plan.rate);
                    // Where answers take too long for the pace, the rest is never sent.
                    if after >= plan.run || start.elapsed() >= plan.run {
                        return;
                    }
                    let due = start + after;
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    let exchange = &plan.exchanges[number % plan.exchanges.len()];
                    let outcome = ask(plan.target, &mut kept, exchange);
                    if outcome.is_err() {
                        kept = None;
                    }
                    let mut tallies = tallies.lock().expect("no thread has panicked");
                    let tally = tallies.entry(&exchange.class).or_default();
                    match outcome {
                        Ok(length) => tally.answered(length, due, Instant::now()),
                        Err(kind) => tally.fault(kind),
                    }
                }
            });
        }
    });
    let seconds = start.elapsed().as_secs_f64();
    let tallies = tallies.into_inner().expect("no thread has panicked");
    let classes: BTreeMap<_, _> = tallies.iter().map(|(class, tally)| (*class, tally.to_json())).collect();
    let answered: u64 = tallies.values().map(|tally| tally.requests + tally.faulty()).sum();
    let due = (plan.rate * plan.run.as_secs_f64()).ceil();
    json!({ "seconds": seconds, "classes": classes, "unsent": (due - answered as f64).max(0.0) })
}

/// One exchange; the length of the response's body, or the error.
fn ask(target: SocketAddr, kept: &mut Option<TcpStream>, exchange: &Exchange) -> Result<usize, &'static str> {
    let mut stream = match kept.take() {
        Some(stream) => stream,
        None => {
            let stream = TcpStream::connect(target).map_err(|_| "no connection")?;
            let set = stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(PATIENCE)));
            set.map_err(|_| "no connection")?;
            stream
        }
    };
    stream.write_all(&exchange.request).map_err(|_| "connection cut")?;
    let mut answer = Answer::default();
    let mut buffer = [0; 16 * 1024];
    loop {
        let count = stream.read(&mut buffer).map_err(|_| "no answer in time")?;
        if count == 0 {
            return Err("connection cut");
        }
        match answer.feed(&buffer[..count], &exchange.expected) {
            Fed::More => {}
            Fed::Wrong(kind) => return Err(kind),
            Fed::Done { close, length } => {
                *kept = (!close).then_some(stream);
                return Ok(length);
            }
        }
    }
}
