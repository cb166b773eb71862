//! Objects with recognisable bodies, and a tier to keep them.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use foregate_cache::{
    AnsweredRequest, Body, CacheTime, Demands, Floors, Key, KeyParts, KeyText, Moment, Object, Policy,
    Response, Secret, Uri, store,
};
use foregate_disk::{DirectorySettings, Disk, DiskLookup, OpenError, Stat};
use foregate_io::{EngineChoice, wait};
use foregate_wire::{HeaderList, Scheme};

pub const SIZE: u64 = 16 << 20;

/// A small generator of numbers that look random.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Both engines. A kernel that refuses the ring fails the tests.
const ENGINES: [EngineChoice; 2] = [EngineChoice::Threads, EngineChoice::IoUring];

thread_local! {
    static ENGINE: Cell<EngineChoice> = const { Cell::new(EngineChoice::Auto) };
}

/// Runs a test with each engine.
pub fn by_each_engine(test: impl Fn()) {
    for engine in ENGINES {
        ENGINE.set(engine);
        test();
    }
}

/// A directory with the engine of the test.
pub fn directory(path: impl Into<PathBuf>, size: u64) -> DirectorySettings {
    DirectorySettings { engine: ENGINE.get(), ..DirectorySettings::new(path, size) }
}

pub struct Scene {
    pub disk: Disk,
    pub floors: Arc<Floors>,
}

impl Scene {
    pub fn open(path: &Path) -> Self {
        Self::with(vec![directory(path, SIZE)]).unwrap()
    }

    pub fn with(directories: Vec<DirectorySettings>) -> Result<Self, OpenError> {
        let floors = Arc::new(Floors::default());
        // No two stores have the same numbers.
        static STORES: AtomicU64 = AtomicU64::new(1);
        let mut random =
            Random(u64::from(std::process::id()) << 32 | STORES.fetch_add(1, Ordering::Relaxed) << 8);
        let disk = Disk::open(directories, &floors, || std::array::from_fn(|_| random.below(256) as u8))?;
        Ok(Self { disk, floors })
    }

    /// Waits for the contents of the process before.
    pub fn recovered(self) -> Self {
        let start = Instant::now();
        while self.disk.stat().iter().any(|(_, stat)| stat.recovering) {
            assert!(start.elapsed() < Duration::from_secs(60), "the recovery does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
        self
    }

    /// Writes everything and closes. The next scene may open the same folder.
    pub fn close(self) {
        self.flush();
        let paths: Vec<_> = self.disk.stat().into_iter().map(|(path, _)| path).collect();
        drop(self);
        // The writer's thread ends on its own.
        for path in paths {
            let start = Instant::now();
            while let Ok(file) = std::fs::File::open(path.join("lock"))
                && rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err()
            {
                assert!(start.elapsed() < Duration::from_secs(20), "the directory stays locked");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    pub fn flush(&self) {
        assert!(self.disk.flush(Duration::from_secs(60)), "nothing is written");
    }

    pub fn secret(&self) -> Secret {
        self.disk.secret()
    }

    pub fn stat(&self) -> Stat {
        self.disk.stat()[0].1.clone()
    }

    /// Makes an object with a body that tells number, version and length.
    pub fn object(&self, number: u64, version: u64, length: usize, language: Option<&str>) -> Arc<Object> {
        let pieces = if length == 0 { Vec::new() } else { vec![Bytes::from(body(number, version, length))] };
        Arc::new(self.head(number, version, language).with_body(Body::new(pieces)))
    }

    pub fn head(&self, number: u64, version: u64, language: Option<&str>) -> Object {
        let mut headers = HeaderList::new();
        headers.push(b"Cache-Control", b"max-age=3600");
        headers.push(b"ETag", format!("\"{number}-{version}\"").as_bytes());
        headers.push(b"Cache-Tag", format!("t{}", number % 10).as_bytes());
        if language.is_some() {
            headers.push(b"Vary", b"Accept-Language");
        }
        let request = request(language);
        let at = Moment { wall: 1_795_867_200, cache: CacheTime(5) };
        let asked = AnsweredRequest { demands: &Demands::default(), headers: &request, path: b"/" };
        let response = Response { status: 200, headers: &headers, sent: at, received: at };
        let head = store(&asked, &response, &Policy::default(), &self.secret()).unwrap();
        let (key, text) = self.key(number);
        Object::new(head, Body::default(), key, &text, self.floors.begin())
    }

    pub fn key(&self, number: u64) -> (Key, KeyText) {
        let path = format!("/{number}");
        let uri =
            Uri { scheme: Scheme::Http, host: "example.com", port: None, path: path.as_bytes(), query: None };
        let mut text = KeyText::new();
        text.write(&uri, &KeyParts::default());
        (text.key(&self.secret()), text)
    }

    pub fn put(&self, number: u64, version: u64, length: usize) -> bool {
        self.disk.put(&self.object(number, version, length, None))
    }

    /// Writes an object into a file of its own.
    pub fn fill(&self, number: u64, version: u64, length: usize) -> bool {
        let Some(mut fill) = self.disk.fill(self.key(number).0, None) else { return false };
        wait(async {
            for piece in body(number, version, length).chunks(50_000) {
                if fill.push(piece).await.is_err() {
                    return false;
                }
            }
            fill.finish(&self.head(number, version, None)).await.is_ok()
        })
    }

    /// The version and length that are found. A wrong byte stops the test.
    pub fn get(&self, number: u64, language: Option<&str>) -> Option<(u64, usize)> {
        let (key, text) = self.key(number);
        let (object, bytes) = match wait(self.disk.get(key, &text, &request(language))) {
            DiskLookup::Object { object, .. } => {
                let bytes = object.body.pieces().concat();
                (object, bytes)
            }
            DiskLookup::File { object, body, .. } => {
                let mut bytes = Vec::new();
                while (bytes.len() as u64) < body.len() {
                    // A body that breaks off is visible to the client.
                    bytes.extend_from_slice(&wait(body.read(bytes.len() as u64)).ok()?);
                }
                (object, bytes)
            }
            DiskLookup::Nothing { .. } | DiskLookup::Unavailable => return None,
        };
        assert_eq!(object.text(), text.as_bytes());
        let version = check(number, &bytes);
        let etag = object.head.headers.get(foregate_wire::NameId::Etag).unwrap();
        if let Some(version) = version {
            assert_eq!(etag, format!("\"{number}-{version}\"").as_bytes(), "head and body of two responses");
        }
        Some((version.unwrap_or(0), bytes.len()))
    }
}

fn request(language: Option<&str>) -> HeaderList {
    let mut headers = HeaderList::new();
    if let Some(language) = language {
        headers.push(b"Accept-Language", language.as_bytes());
    }
    headers
}

/// A body that begins with its number, version and length, and goes on with bytes that follow from them.
pub fn body(number: u64, version: u64, length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length + 8);
    for value in [number, version, length as u64] {
        bytes.extend_from_slice(&value.to_le_bytes());
    }
    let mut random = Random(number ^ version << 32 ^ length as u64);
    while bytes.len() < length {
        bytes.extend_from_slice(&random.below(1 << 31).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Stops the test unless the bytes are a body of this number. The result is its version.
pub fn check(number: u64, bytes: &[u8]) -> Option<u64> {
    if bytes.len() < 24 {
        assert!(bytes == &body(number, 0, bytes.len())[..], "a wrong short body");
        return None;
    }
    let version = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
    assert!(bytes == &body(number, version, bytes.len())[..], "wrong bytes for {number}, version {version}");
    Some(version)
}
