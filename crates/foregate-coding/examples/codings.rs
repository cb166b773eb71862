//! Size, time and memory of every coding at every level, beside the programs `gzip`, `brotli` and `zstd`.
//!
//! ```sh
//! cargo run --release -p foregate-coding --example codings -- FILE...
//! ```
//!
//! For each level: the bytes that come of all files together, those of the program at the same level, our speed, and the most that an
//! encoder held. The programs run with their own defaults, so that `brotli` has windows of up to 16 MiB.

#![allow(clippy::print_stdout, reason = "a table for whoever runs it")]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use foregate_coding::{ContentCoding, encoder};
use foregate_module::Chain;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let files = names.iter().map(std::fs::read).collect::<Result<Vec<_>, _>>()?;
    let all: usize = files.iter().map(Vec::len).sum();
    println!("{} files, {all} bytes", files.len());
    println!("| coding | level | bytes | of the program | MB/s | memory |\n|---|---|---|---|---|---|");
    for coding in [ContentCoding::Gzip, ContentCoding::Brotli, ContentCoding::Zstd] {
        let (least, most) = coding.levels();
        for level in least..=most {
            let (mut bytes, mut took, mut held) = (0, Duration::ZERO, 0);
            for file in &files {
                let one = encoded(coding, level, file)?;
                bytes += one.0;
                took += one.1;
                held = held.max(one.2);
            }
            let mut others = 0;
            for name in &names {
                others += reference(coding, level, name)?;
            }
            let speed = all as f64 / took.as_secs_f64() / 1e6;
            println!(
                "| `{}` | {level} | {bytes} | {others} | {speed:.0} | {} KiB |",
                coding.token(),
                held >> 10
            );
        }
    }
    Ok(())
}

/// The length of an encoded body that arrives in pieces, the time, and the encoder's memory.
fn encoded(coding: ContentCoding, level: u32, body: &[u8]) -> Result<(usize, Duration, usize), &'static str> {
    let begun = Instant::now();
    let mut chain = Chain::new(vec![encoder("encode", coding, level, Some(body.len() as u64))]);
    let (mut out, mut held) = (Vec::new(), 0);
    for (number, piece) in body.chunks(Chain::PIECE).enumerate() {
        chain.write(piece, &mut out).map_err(|_| "the encoder failed")?;
        // Before, it is only estimated.
        if number >= 32 {
            held = held.max(chain.held());
        }
    }
    chain.end(&mut out).map_err(|_| "the encoder failed")?;
    Ok((out.len(), begun.elapsed(), held))
}

/// How long a file becomes by the program that goes with the coding.
fn reference(coding: ContentCoding, level: u32, name: &str) -> std::io::Result<usize> {
    let (program, level) = match coding {
        ContentCoding::Gzip | ContentCoding::Deflate => ("gzip", format!("-{level}")),
        ContentCoding::Brotli => ("brotli", format!("--quality={level}")),
        ContentCoding::Zstd => ("zstd", format!("-{level}")),
    };
    let output = Command::new(program).args([&level, "-c", name]).stderr(Stdio::null()).output()?;
    Ok(output.stdout.len())
}
