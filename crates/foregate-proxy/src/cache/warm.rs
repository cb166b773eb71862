//! Moves the stored responses in memory to the next process over a connected socket. Responses that were used come
//! first.
//!
//! The receiver asks for one batch at a time. Before it asks, it makes sure that all its own purges have arrived at
//! the sender, which leaves out purged responses. The receiver itself applies later purges to the responses of the
//! batch when it receives them. So no purged response comes back.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use foregate_cache::{Adoption, Body, Key, Object, RECORD_FORMAT, Sequence, Usefulness};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader, BufWriter};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::Cache;

/// The most bytes of bodies, and the most objects, in one batch. Each object costs some hundred bytes more than its
/// body.
const BATCH: u64 = 8 << 20;
const BATCH_OBJECTS: u64 = 8192;
/// The longest head, key and tags included, and the longest body that are taken.
const HEAD_MOST: u32 = 1 << 20;
const BODY_MOST: u64 = 16 << 20;
/// Bytes of a body that are read at a time.
const PIECE: usize = 64 << 10;
const BUFFER: usize = 64 << 10;

/// The first bytes of messages: the receiver asks with `MORE`, the sender answers with the others.
const MORE: u8 = b'm';
const OBJECT: u8 = b'o';
const USED_OBJECT: u8 = b'u';
const BATCH_END: u8 = b'b';
const END: u8 = b'e';

/// Responses that were moved.
#[derive(Debug, Clone, Copy, Default)]
pub struct MovedResponses {
    /// Their number.
    pub responses: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
}

/// The sender. Its memory stores no new responses any more.
#[derive(Debug)]
pub struct CacheGiver {
    cache: Arc<Cache>,
    from: OwnedReadHalf,
    to: BufWriter<OwnedWriteHalf>,
    usefulness: Usefulness,
    part: usize,
    places: std::vec::IntoIter<Key>,
    /// Gives the pages of a buffer back to the system.
    discard: fn(&mut [u8]),
    /// The responses that were moved so far.
    pub moved: MovedResponses,
}

impl CacheGiver {
    /// A sender of stored responses to the process at the other end of `stream`. It passes the memory of each sent body to
    /// `discard`. `None` if both processes share their folders: then the next process finds all responses there.
    pub fn new(cache: &Arc<Cache>, stream: UnixStream, discard: fn(&mut [u8])) -> Option<Self> {
        if cache.shares_folders() {
            return None;
        }
        cache.store.memory().stop();
        let (from, to) = stream.into_split();
        Some(Self {
            cache: Arc::clone(cache),
            from,
            to: BufWriter::with_capacity(BUFFER, to),
            usefulness: Usefulness::Used,
            part: 0,
            places: Vec::new().into_iter(),
            discard,
            moved: MovedResponses::default(),
        })
    }

    /// Sends one batch once the receiver asks for it. `false` if there are no responses left.
    ///
    /// # Errors
    /// The receiver has closed the socket, or does not follow the protocol.
    pub async fn give_some(&mut self) -> io::Result<bool> {
        if self.from.read_u8().await? != MORE {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if self.moved.responses == 0 {
            self.to.write_u32_le(RECORD_FORMAT).await?;
        }
        let before = self.moved;
        let is_full = |moved: MovedResponses| {
            moved.bytes - before.bytes >= BATCH || moved.responses - before.responses >= BATCH_OBJECTS
        };
        let mut goes_on = true;
        while goes_on && !is_full(self.moved) {
            match self.next_object() {
                Some(object) => {
                    self.send(&object).await?;
                    give_back(object, self.discard);
                }
                None => goes_on = false,
            }
        }
        self.to.write_u8(if goes_on { BATCH_END } else { END }).await?;
        self.to.flush().await?;
        Ok(goes_on)
    }

    fn next_object(&mut self) -> Option<Arc<Object>> {
        let memory = self.cache.store.memory();
        loop {
            if let Some(place) = self.places.next() {
                match memory.take_out(place, self.cache.time()) {
                    Some(object) => return Some(object),
                    None => continue,
                }
            }
            match memory.places(self.part, self.usefulness) {
                Some(places) => {
                    self.places = places.into_iter();
                    self.part += 1;
                }
                None if self.usefulness == Usefulness::Used => {
                    (self.usefulness, self.part) = (Usefulness::Unused, 0);
                }
                None => return None,
            }
        }
    }

    async fn send(&mut self, object: &Object) -> io::Result<()> {
        let mut head = Vec::new();
        object.write_head(&mut head);
        let Some(length) = u32::try_from(head.len()).ok().filter(|length| *length <= HEAD_MOST) else {
            return Ok(());
        };
        let used = self.usefulness == Usefulness::Used;
        self.to.write_u8(if used { USED_OBJECT } else { OBJECT }).await?;
        self.to.write_u32_le(length).await?;
        self.to.write_u64_le(object.body.len()).await?;
        self.to.write_all(&head).await?;
        for piece in object.body.pieces() {
            self.to.write_all(piece).await?;
        }
        self.moved.responses += 1;
        self.moved.bytes += object.body.len();
        Ok(())
    }
}

/// Gives the memory of a response back to the system, unless a client still reads it. The allocator itself frees a page only after the last response
/// on it, and responses leave in another order than they came.
fn give_back(object: Arc<Object>, discard: fn(&mut [u8])) {
    let pieces = Arc::into_inner(object).map(|object| object.body.into_pieces()).unwrap_or_default();
    for mut piece in pieces.into_iter().filter_map(|piece| piece.try_into_mut().ok()) {
        discard(&mut piece);
    }
}

/// Receives the responses of the previous process, until it has none left or there is no more room.
///
/// # Errors
/// The sender has closed the socket, or uses another format or secret. Responses that have arrived stay stored.
pub async fn take(cache: &Arc<Cache>, stream: UnixStream, moved: &mut MovedResponses) -> io::Result<()> {
    if cache.shares_folders() {
        return Ok(());
    }
    let taken = take_all(cache, stream, moved).await;
    cache.store.floors().keep_none();
    taken
}

async fn take_all(cache: &Arc<Cache>, stream: UnixStream, moved: &mut MovedResponses) -> io::Result<()> {
    let (from, mut to) = stream.into_split();
    let mut from = BufReader::with_capacity(BUFFER, from);
    let mut is_first = true;
    loop {
        // The number is read before `settle`, so the sender knows all purges up to the number before it sends.
        let sequence = cache.store.floors().begin();
        // A sweep must not forget purges that concern responses on their way.
        cache.store.floors().keep_above(sequence);
        let settled = cache.generations.settle().ok_or(io::ErrorKind::NotConnected)?;
        settled.await.map_err(io::Error::other)?;
        to.write_u8(MORE).await?;
        if std::mem::take(&mut is_first) && from.read_u32_le().await? != RECORD_FORMAT {
            return Err(io::Error::other("it has another format of stored responses"));
        }
        if !take_batch(cache, &mut from, sequence, moved).await? {
            return Ok(());
        }
    }
}

/// Receives one batch. `false` if the sender has no more responses, or there is no room for them.
async fn take_batch(
    cache: &Arc<Cache>,
    from: &mut BufReader<OwnedReadHalf>,
    sequence: Sequence,
    moved: &mut MovedResponses,
) -> io::Result<bool> {
    loop {
        let usefulness = match from.read_u8().await? {
            USED_OBJECT => Usefulness::Used,
            OBJECT => Usefulness::Unused,
            BATCH_END => return Ok(true),
            END => return Ok(false),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        let Some(object) = read_object(from).await? else { continue };
        if !object.is_of(&cache.secret) {
            return Err(io::Error::other("its keys have another secret"));
        }
        let object = Arc::new(object.current_from(sequence));
        let length = object.body.len();
        match cache.store.memory().adopt(object, usefulness, cache.time()) {
            Adoption::Stored => {
                moved.responses += 1;
                moved.bytes += length;
            }
            Adoption::Refused => {}
            Adoption::Full => return Ok(false),
        }
    }
}

/// Reads one object. `None` if its head cannot be parsed.
async fn read_object(from: &mut BufReader<OwnedReadHalf>) -> io::Result<Option<Object>> {
    let (head, body) = (from.read_u32_le().await?, from.read_u64_le().await?);
    if head > HEAD_MOST || body > BODY_MOST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; head as usize];
    from.read_exact(&mut bytes).await?;
    let (mut pieces, mut left) = (Vec::new(), usize::try_from(body).unwrap_or(usize::MAX));
    while left > 0 {
        let mut piece = vec![0; left.min(PIECE)];
        from.read_exact(&mut piece).await?;
        left -= piece.len();
        pieces.push(Bytes::from(piece));
    }
    Ok(Object::read(&bytes, Body::new(pieces)))
}
