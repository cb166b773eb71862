//! Files that stay open for the next requests, with the fields of their responses and, if they are
//! short, their content.
//!
//! A name is resolved again after [`KEPT`], because a link or a folder in its path may have changed. A change of the
//! file itself, including its removal or its replacement by a rename, is noticed at once from the open descriptor.
//! On file systems where that check may block a worker, it is left out, and a change is noticed when the name is
//! resolved again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use foregate_coding::ContentCoding;
use foregate_files::{Document, Rules, Stat};
use foregate_io::{File, Kind};
use foregate_wire::HeaderList;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::sleep;

use super::find::seconds_now;
use crate::limits::descriptors::DescriptorPlace;

/// How long a name leads to the same open file.
const KEPT: Duration = Duration::from_secs(1);
/// A file that has changed less than this many seconds ago is not kept open. It may change again within the same
/// tick of the clock, and its entity tag becomes strong only later.
const SETTLED_AFTER: i64 = 2;
/// The most content that all open files together keep in memory, bytes. Other content is read for each request.
const CONTENT_LIMIT: usize = 16 << 20;

/// The content that open files keep in memory now, bytes.
static CONTENT: AtomicUsize = AtomicUsize::new(0);

/// An open file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    /// The file itself.
    pub file: File,
    /// The facts that its validators depend on.
    pub stat: Stat,
    /// The time until which the file's name leads to it.
    until: Instant,
    /// The place of the descriptor; `None` if the file is not kept open.
    place: Option<DescriptorPlace>,
    content: OnceLock<KeptContent>,
    /// The fields of a response with the whole file: first as an ordinary file, then as the variant of another file.
    whole: [OnceLock<Option<HeaderList>>; 2],
    /// The codings in which the file has no variant, one bit each.
    without: AtomicU8,
}

/// The content of a short file, counted in [`CONTENT`].
#[derive(Debug)]
struct KeptContent(Bytes);

impl KeptContent {
    fn new(bytes: &Bytes) -> Option<Self> {
        let more = |held: usize| held.checked_add(bytes.len()).filter(|all| *all <= CONTENT_LIMIT);
        CONTENT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Self(bytes.clone()))
    }
}

impl Drop for KeptContent {
    fn drop(&mut self) {
        CONTENT.fetch_sub(self.0.len(), Ordering::Relaxed);
    }
}

impl OpenFile {
    pub fn new(file: File, now: Instant) -> Self {
        let stat = stat_of(&file);
        let place = may_be_kept(&file).then(DescriptorPlace::take_for_open_file).flatten();
        Self {
            file,
            stat,
            until: now + KEPT,
            place,
            content: OnceLock::new(),
            whole: Default::default(),
            without: AtomicU8::new(0),
        }
    }

    /// Returns true if the file's name still leads to it, and the file has not changed.
    fn is_current(&self, now: Instant) -> bool {
        now < self.until && self.file.has_changed() != Some(true)
    }

    /// The whole content of the file, if it is in memory.
    pub fn content(&self) -> Option<&Bytes> {
        self.content.get().map(|kept| &kept.0)
    }

    /// Keeps all of its content for the next requests, if there is room.
    pub fn keep_content(&self, content: &Bytes) {
        if self.place.is_some()
            && self.content.get().is_none()
            && let Some(kept) = KeptContent::new(content)
        {
            // This fails if another request has stored the content first.
            let _ = self.content.set(kept);
        }
    }

    /// The fields of a response with the whole file. `None` if they change with time, or if the file is not kept open.
    pub fn whole(&self, rules: &Rules, name: &[u8], coding: Option<ContentCoding>) -> Option<&HeaderList> {
        self.place.as_ref()?;
        let [plain, variant] = &self.whole;
        let kept = if coding.is_some() { variant } else { plain };
        let document = Document { name, stat: self.stat, coding };
        kept.get_or_init(|| rules.whole(&document, seconds_now())).as_ref()
    }

    /// Returns true if a variant in this coding was looked for, and there was none.
    pub fn is_without(&self, coding: ContentCoding) -> bool {
        self.without.load(Ordering::Relaxed) & bit(coding) != 0
    }

    /// Notes that there is no variant in this coding.
    pub fn has_no(&self, coding: ContentCoding) {
        self.without.fetch_or(bit(coding), Ordering::Relaxed);
    }
}

fn bit(coding: ContentCoding) -> u8 {
    match coding {
        ContentCoding::Gzip => 1,
        ContentCoding::Deflate => 2,
        ContentCoding::Brotli => 4,
        ContentCoding::Zstd => 8,
    }
}

fn stat_of(file: &File) -> Stat {
    let metadata = file.metadata();
    let stat =
        Stat { size: metadata.length, modified: metadata.modified, changed: (0, 0), inode: metadata.inode };
    if stat.is_pinned() { Stat { changed: metadata.changed, ..stat } } else { stat }
}

fn may_be_kept(file: &File) -> bool {
    let metadata = file.metadata();
    let settled = i64::try_from(seconds_now()).unwrap_or(i64::MAX) - SETTLED_AFTER;
    metadata.kind == Kind::File && metadata.changed.0 <= settled && metadata.modified.0 <= settled
}

/// The open files of a folder by their names.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles(Mutex<OpenFileTable>);

#[derive(Debug, Default)]
struct OpenFileTable {
    files: HashMap<Box<[u8]>, Arc<OpenFile>, foldhash::fast::RandomState>,
    /// How often all files were dropped from the table.
    forgotten: u64,
    /// True while a task drops files that are no longer used.
    is_swept: bool,
}

impl OpenFiles {
    /// The file of this name, if it is open and has not changed.
    pub fn get(&self, name: &[u8], now: Instant) -> Option<Arc<OpenFile>> {
        let file = Arc::clone(self.0.lock().files.get(name)?);
        if file.is_current(now) {
            return Some(file);
        }
        let mut table = self.0.lock();
        if table.files.get(name).is_some_and(|kept| Arc::ptr_eq(kept, &file)) {
            table.files.remove(name);
        }
        None
    }

    /// A number to pass to [`Self::keep`]. Read it before the file is opened.
    pub fn forgotten(&self) -> u64 {
        self.0.lock().forgotten
    }

    /// Keeps a file open under this name, unless [`Self::forget`] was called since `forgotten` was read.
    pub fn keep(self: &Arc<Self>, name: &[u8], file: &Arc<OpenFile>, forgotten: u64) {
        let Ok(runtime) = Handle::try_current() else { return };
        if file.place.is_none() {
            return;
        }
        let mut table = self.0.lock();
        if table.forgotten != forgotten {
            return;
        }
        let replaced = table.files.insert(name.into(), Arc::clone(file));
        let is_swept = std::mem::replace(&mut table.is_swept, true);
        drop(table);
        drop(replaced);
        if !is_swept {
            let sweeper = Sweeper(Arc::downgrade(self));
            runtime.spawn(sweeper.run());
        }
    }

    /// Resolves all names anew from now on.
    pub fn forget(&self) {
        let mut table = self.0.lock();
        table.forgotten += 1;
        let files = std::mem::take(&mut table.files);
        drop(table);
        drop(files);
    }

    /// Drops the expired files. Returns true if none are left.
    fn sweep(&self, now: Instant) -> bool {
        let mut table = self.0.lock();
        let old: Vec<_> = table.files.extract_if(|_, file| file.until <= now).collect();
        let is_empty = table.files.is_empty();
        if is_empty {
            table.is_swept = false;
        }
        drop(table);
        drop(old);
        is_empty
    }
}

/// The task that closes files which are no longer requested, so that the disk space of removed files becomes free.
struct Sweeper(Weak<OpenFiles>);

impl Sweeper {
    async fn run(self) {
        loop {
            sleep(KEPT).await;
            if self.0.upgrade().is_none_or(|files| files.sweep(Instant::now())) {
                return;
            }
        }
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        // A worker may end and drop this task: then the next file starts another one.
        if let Some(files) = self.0.upgrade() {
            files.0.lock().is_swept = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use foregate_io::{Directory, EngineChoice, Limits, OpenHow, wait};

    use super::*;

    /// A file as if it had not been changed just now.
    fn open(folder: &Path, name: &str) -> Arc<OpenFile> {
        std::fs::write(folder.join(name), name).unwrap();
        let directory = Directory::open_root(folder, Limits::default(), EngineChoice::default()).unwrap();
        let file = wait(directory.open(Path::new(name), OpenHow::read())).unwrap();
        let mut open = OpenFile::new(file, Instant::now());
        assert!(open.place.is_none(), "it was changed just now");
        open.place = DescriptorPlace::take_for_open_file();
        Arc::new(open)
    }

    #[tokio::test]
    async fn a_name_leads_to_its_file_for_a_time() {
        let (folder, files) = (tempfile::tempdir().unwrap(), Arc::new(OpenFiles::default()));
        let file = open(folder.path(), "a");
        let begun = files.forgotten();
        files.keep(b"a", &file, begun);
        let now = Instant::now();
        assert!(files.get(b"a", now).is_some_and(|kept| Arc::ptr_eq(&kept, &file)));
        assert!(files.get(b"b", now).is_none());
        assert!(!files.sweep(now));
        assert!(files.get(b"a", now + KEPT).is_none(), "its name is resolved anew");
        files.keep(b"a", &file, begun);
        assert!(files.sweep(now + KEPT));
        assert_eq!(Arc::strong_count(&file), 1);
        files.forget();
        files.keep(b"a", &file, begun);
        assert!(files.get(b"a", now).is_none(), "it was opened before all were forgotten");
    }

    #[tokio::test]
    async fn a_file_that_may_change_within_a_tick_is_not_kept() {
        let (folder, files) = (tempfile::tempdir().unwrap(), Arc::new(OpenFiles::default()));
        std::fs::write(folder.path().join("a"), "a").unwrap();
        let directory =
            Directory::open_root(folder.path(), Limits::default(), EngineChoice::default()).unwrap();
        let file = wait(directory.open(Path::new("a"), OpenHow::read())).unwrap();
        let file = Arc::new(OpenFile::new(file, Instant::now()));
        files.keep(b"a", &file, files.forgotten());
        assert!(files.get(b"a", Instant::now()).is_none());
        file.keep_content(&Bytes::from_static(b"a"));
        assert_eq!(file.content(), None);
        assert!(file.whole(&Rules::default(), b"a", None).is_none());
    }

    #[test]
    fn the_content_of_all_files_has_a_limit() {
        let piece = Bytes::from(vec![0; 64 * 1024]);
        let mut kept = Vec::new();
        while let Some(content) = KeptContent::new(&piece) {
            kept.push(content);
            assert!(kept.len() * piece.len() <= CONTENT_LIMIT);
        }
        kept.pop();
        assert!(KeptContent::new(&piece).is_some(), "there is room again");
    }
}
