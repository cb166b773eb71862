//! CPU time of other processes, from the kernel's own accounting.

use std::fs;
use std::io;
use std::time::Duration;

/// CPU time that all threads of `pids` have used so far, user and system together.
///
/// From `/proc/PID/task/TID/schedstat`, which counts nanoseconds. A thread that
/// ends between two samples takes its time with it, so proxies that start threads
/// per request would look too cheap; none of those compared does.
pub fn used(pids: &[u32]) -> io::Result<Duration> {
    let mut nanoseconds = 0;
    for pid in pids {
        for task in fs::read_dir(format!("/proc/{pid}/task"))? {
            let path = task?.path().join("schedstat");
            let text = match fs::read_to_string(&path) {
                Ok(text) => text,
                // The thread ended after the folder was listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let on_cpu = text.split_whitespace().next().and_then(|field| field.parse::<u64>().ok());
            nanoseconds += on_cpu.ok_or_else(|| io::Error::other(format!("{}: {text:?}", path.display())))?;
        }
    }
    Ok(Duration::from_nanos(nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_process_uses_about_the_time_that_passes() {
        let pid = [std::process::id()];
        let before = used(&pid).unwrap();
        let start = std::time::Instant::now();
        while start.elapsed() < Duration::from_millis(50) {}
        let after = used(&pid).unwrap();
        assert!(after > before);
    }
}
