//! A stand-in for the proxy in the runner's own tests: passes bytes on, understands nothing of HTTP.
//!
//! `relay run -c FILE` listens where the first `listen` line says and connects to the first `server`.
//! SIGQUIT ends it. A `panic` line in the file makes it complain like a panicking proxy.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "this stands in for a command-line tool")]

use std::io;
use std::process::ExitCode;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["run", "-c", file] => match relay(file).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        },
        ["say", word] => {
            println!("{word}");
            ExitCode::SUCCESS
        }
        _ => ExitCode::from(2),
    }
}

async fn relay(file: &str) -> io::Result<()> {
    let config = std::fs::read_to_string(file)?;
    if config.contains("panic") {
        eprintln!("thread 'worker' panicked at nothing");
    }
    let quoted = |word: &str| {
        let line = config.lines().find_map(|line| line.trim_start().strip_prefix(word));
        line.and_then(|rest| rest.split('"').nth(1)).map(str::to_owned).ok_or(io::ErrorKind::InvalidInput)
    };
    let server = quoted("server ")?;
    let listener = TcpListener::bind(quoted("listen ")?).await?;
    let mut quit = signal(SignalKind::quit())?;
    loop {
        tokio::select! {
            _ = quit.recv() => return Ok(()),
            accepted = listener.accept() => {
                let (mut down, _) = accepted?;
                let server = server.clone();
                tokio::spawn(async move {
                    if let Ok(mut up) = TcpStream::connect(server).await {
                        drop(copy_bidirectional(&mut down, &mut up).await);
                    }
                });
            }
        }
    }
}
