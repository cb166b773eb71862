//! A folder as a file system (FUSE) in which some opens and reads take long. See `bench/README.md`.
//!
//! `foregate-slowdisk FOLDER MOUNTPOINT SHARE`: of opens and reads, `SHARE` percent are slow, always the same ones. All other operations,
//! and files that are made, are fast. Slow operations delay nobody else. The kernel keeps no content, so every read arrives here.
//!
//! Lines on the standard input set the delay in milliseconds, at first 0. Each is answered by a line of JSON with the operations so far.
//! The end of the input ends the file system.

mod delays;
mod folder;

use std::io::{BufRead, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use fuser::{Config, Session};

use delays::Delays;
use folder::Folder;

/// Threads that answer the kernel.
const THREADS: usize = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let served = match &arguments[..] {
        [folder, mountpoint, share] => match share.parse() {
            Ok(share) => serve(Path::new(folder), Path::new(mountpoint), share),
            Err(error) => Err(std::io::Error::other(format!("{share:?} is no share: {error}"))),
        },
        _ => Err(std::io::Error::other("usage: foregate-slowdisk FOLDER MOUNTPOINT SHARE")),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("foregate-slowdisk: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(folder: &Path, mountpoint: &Path, share: f64) -> std::io::Result<()> {
    let delays = Arc::new(Delays::start(share)?);
    let mut config = Config::default();
    config.n_threads = Some(THREADS);
    let session = Session::new(Folder::new(folder, Arc::clone(&delays)), mountpoint, &config)?.spawn()?;
    let mut output = std::io::stdout();
    for line in std::io::stdin().lock().lines() {
        if let Ok(milliseconds) = line?.trim().parse() {
            delays.set(milliseconds);
        }
        writeln!(output, "{}", delays.counts())?;
        output.flush()?;
    }
    session.umount_and_join()
}
