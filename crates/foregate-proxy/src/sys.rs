//! The calls into the system and the allocator that need unsafe code, and nothing else.
#![allow(unsafe_code)]

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::thread::{
    disable_transparent_huge_pages, sched_getaffinity, sched_setaffinity, transparent_huge_pages_are_disabled,
};

/// The first descriptor that a service manager passes (sd_listen_fds(3)).
const FIRST: RawFd = 3;
/// The most descriptors that are taken; a service manager passes fewer.
const MOST: usize = 1024;

/// The sockets that the process was started with: `LISTEN_FDS` of them, if `LISTEN_PID` is this
/// process.
///
/// Call this once, before anything else opens descriptors, because it takes them over.
pub fn inherited_sockets() -> Vec<OwnedFd> {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<usize>().ok());
    if number("LISTEN_PID") != usize::try_from(std::process::id()).ok() {
        return Vec::new();
    }
    let count = number("LISTEN_FDS").unwrap_or(0).min(MOST);
    (FIRST..)
        .take(count)
        .filter_map(|fd| {
            // SAFETY: by the protocol of sd_listen_fds(3) these descriptors are open and belong to
            // this process alone; the caller calls this once and first, so nothing else owns them.
            let owned = unsafe { OwnedFd::from_raw_fd(fd) };
            // Programs that this process starts do not inherit it.
            rustix::io::fcntl_setfd(&owned, rustix::io::FdFlags::CLOEXEC).ok().map(|()| owned)
        })
        .collect()
}

/// Replaces the program of this process, with `stdin` as its standard input. The calling thread has to be the only one
/// of the process. `arguments` begin with the program's name. All signals are blocked in the new program, so that none
/// can end it before it handles them; it has to call [`unblock_signals`]. Descriptors that are close-on-exec are
/// closed.
///
/// Returns only on failure, with everything as before.
pub fn replace_program(
    program: &OsStr,
    arguments: &[OsString],
    environment: &[(OsString, OsString)],
    stdin: OwnedFd,
) -> io::Error {
    let text = |text: Vec<u8>| CString::new(text).map_err(io::Error::from);
    let variable =
        |(name, value): &(OsString, OsString)| text([name.as_bytes(), b"=", value.as_bytes()].concat());
    let texts = || -> io::Result<(CString, Vec<CString>, Vec<CString>)> {
        let arguments = arguments.iter().map(|argument| text(argument.as_bytes().to_vec()));
        let environment = environment.iter().map(variable);
        Ok((
            text(program.as_bytes().to_vec())?,
            arguments.collect::<Result<_, _>>()?,
            environment.collect::<Result<_, _>>()?,
        ))
    };
    let (program, arguments, environment) = match texts() {
        Ok(texts) => texts,
        Err(error) => return error,
    };
    let pointers = |texts: &[CString]| -> Vec<*const libc::c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
    };
    let (argv, envp) = (pointers(&arguments), pointers(&environment));
    let before = match rustix::io::fcntl_dupfd_cloexec(io::stdin(), FIRST) {
        Ok(before) => before,
        Err(error) => return error.into(),
    };
    // SAFETY: `dup2` closes descriptor 0, of which `before` is a copy. Nothing owns descriptor 0, because `Stdin` only
    // borrows it. The first calls on the sets of signals initialise them. The texts end with a zero byte, and the lists of
    // pointers with a null pointer; all of them live until after `execve`.
    unsafe {
        if libc::dup2(stdin.as_raw_fd(), 0) < 0 {
            return io::Error::last_os_error();
        }
        let (mut all, mut old) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), old.as_mut_ptr());
        libc::execve(program.as_ptr(), argv.as_ptr(), envp.as_ptr());
        let error = io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, old.as_ptr(), ptr::null_mut());
        libc::dup2(before.as_raw_fd(), 0);
        error
    }
}

/// Unblocks all signals for this thread, also those that [`replace_program`] has blocked.
pub fn unblock_signals() {
    let mut none = MaybeUninit::uninit();
    // SAFETY: the set is initialised by the first call; a mask of signals has no other preconditions.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
    }
}

/// Makes the allocator return the pages that this thread does not need any more to the system.
///
/// The `foregate` binary allocates with mimalloc; in another program this does nothing.
pub fn collect_memory() {
    // SAFETY: mi_collect(3) has no preconditions; it only uses mimalloc's data of the calling
    // thread.
    unsafe { libmimalloc_sys::mi_collect(true) }
}

/// Returns the whole pages of a buffer to the system. The buffer's content is undefined afterwards. To be called before
/// freeing a buffer with pages that the allocator would keep.
pub fn discard(buffer: &mut [u8]) {
    // SAFETY: sysconf(3) has no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let Some(page) = usize::try_from(page).ok().filter(|page| page.is_power_of_two()) else { return };
    let skipped = buffer.as_ptr().align_offset(page);
    let Some(rest) = buffer.get_mut(skipped..) else { return };
    let length = rest.len() - rest.len() % page;
    if length > 0 {
        // SAFETY: the range is within a buffer that nobody else reads or writes. Its pages come from the allocator, which maps
        // anonymous private memory, so they read as zeros afterwards, which are valid bytes. A refusal changes nothing.
        unsafe { libc::madvise(rest.as_mut_ptr().cast(), length, libc::MADV_DONTNEED) };
    }
}

/// The lowest priority that there is, in the steps of `nice`.
const LOWEST: i32 = 19;

/// Lowers the priority of this thread, and of threads that it starts, by this many steps of `nice`. Also lets the
/// thread run on all cores of the process, even if the worker that started it is bound to one. If the system refuses,
/// nothing changes.
pub fn yield_to_workers(steps: i32) {
    run_on_all_cores();
    // On other systems than Linux, this call applies to the whole process.
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::getpriority_process(None)
        .and_then(|now| rustix::process::setpriority_process(None, (now + steps).min(LOWEST)))
    {
        tracing::debug!(%error, "a thread has the priority of workers");
    }
}

/// Lets this thread run on all cores of the process: a thread inherits the core of a worker that
/// starts it.
pub fn run_on_all_cores() {
    // The main thread is never bound.
    let main = Some(rustix::process::getpid());
    // If the system refuses, the thread is only slower.
    let _ = sched_getaffinity(main).and_then(|cores| sched_setaffinity(None, &cores));
}

/// The size and the alignment of a huge page, bytes.
const HUGE: usize = 2 << 20;

/// Values in a memory mapping of their own, in huge pages if the system has some. A random access to a
/// huge page needs no page table walk.
///
/// Huge pages are disabled for the process, because the allocator would retain freed ones. They are
/// only enabled while the mapping is filled.
#[derive(Debug)]
pub struct Pages<T> {
    map: NonNull<u8>,
    map_bytes: usize,
    start: NonNull<T>,
    len: usize,
}

// SAFETY: a `Pages` owns its values as a `Box<[T]>` does, and nothing else refers to its memory.
unsafe impl<T: Send> Send for Pages<T> {}
// SAFETY: as above; a shared reference gives shared references to values only.
unsafe impl<T: Sync> Sync for Pages<T> {}

impl<T: Copy> Pages<T> {
    /// Copies the values. Returns `None` if the system provides no memory.
    pub fn new(values: &[T]) -> Option<Self> {
        const { assert!(align_of::<T>() <= HUGE) };
        let bytes = size_of_val(values);
        // The mapping has extra room for aligning the start.
        let map_bytes = bytes.checked_add(HUGE)?;
        // SAFETY: without an address, the system chooses one at which nothing is mapped.
        let map = unsafe {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            mmap_anonymous(ptr::null_mut(), map_bytes, ProtFlags::READ | ProtFlags::WRITE, flags)
        };
        let map = NonNull::new(map.ok()?.cast::<u8>())?;
        let offset = map.align_offset(HUGE);
        if offset >= HUGE {
            return None;
        }
        // SAFETY: `offset` is less than `HUGE`, and `map_bytes` is `HUGE` more than `bytes`, so `start` is
        // within the mapping.
        let start = unsafe { map.add(offset) }.cast::<T>();
        let pages = Self { map, map_bytes, start, len: values.len() };
        let were_disabled = transparent_huge_pages_are_disabled().unwrap_or(false);
        if were_disabled {
            // If this fails, pages stay small.
            let _ = disable_transparent_huge_pages(false);
        }
        // SAFETY: this advises the system about a mapping that only we use, and does not change its
        // content.
        let _ = unsafe { madvise(map.as_ptr().cast(), map_bytes, Advice::LinuxHugepage) };
        // SAFETY: `start` is aligned to more than `T` needs, and has room for `bytes` bytes that
        // nothing refers to; `T` is `Copy`, so its values may be copied as bytes.
        unsafe { start.as_ptr().copy_from_nonoverlapping(values.as_ptr(), values.len()) };
        if were_disabled {
            let _ = disable_transparent_huge_pages(true);
        }
        Some(pages)
    }
}

impl<T> Deref for Pages<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `start` is aligned, and `len` values were written there when `self` was made; they
        // live as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Pages<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `deref`, and the borrow of `self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for Pages<T> {
    fn drop(&mut self) {
        // SAFETY: this value has made the mapping, and nothing else uses it. `T` was `Copy` when the value was made, so there
        // is nothing to drop in it.
        let _ = unsafe { munmap(self.map.as_ptr().cast(), self.map_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_hold_what_they_were_given_and_can_be_changed() {
        for len in [0_u32, 1, 100_000, 1_500_000] {
            let values: Vec<u64> = (0..len).map(u64::from).collect();
            let mut pages = Pages::new(&values).unwrap();
            assert_eq!(&*pages, &*values);
            if let Some(last) = pages.last_mut() {
                *last = 7;
                assert_eq!(pages.last(), Some(&7));
            }
            assert_eq!(pages.as_ptr().align_offset(HUGE), 0);
        }
    }

    #[test]
    fn huge_pages_are_as_they_were() {
        let before = transparent_huge_pages_are_disabled().unwrap();
        disable_transparent_huge_pages(true).unwrap();
        drop(Pages::new(&[0_u8; 10]).unwrap());
        assert!(transparent_huge_pages_are_disabled().unwrap());
        disable_transparent_huge_pages(before).unwrap();
    }
}
