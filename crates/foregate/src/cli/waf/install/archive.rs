//! The files of a release in a compressed tar archive (POSIX pax, with GNU's long names).

use std::io::Read;
use std::path::{Component, Path, PathBuf};

use flate2::read::GzDecoder;

/// The largest archive, in bytes after decompression.
const MAX_ARCHIVE: usize = 128 << 20;

/// The most files in an archive.
const MAX_FILES: usize = 20_000;

const BLOCK: usize = 512;

/// The parts of a release that are installed, by their names in the release's folder.
const WANTED: &[&str] = &["crs-setup.conf.example", "LICENSE", "rules", "plugins"];

/// The files that are installed, and their contents.
pub(super) fn files(compressed: &[u8]) -> Result<Vec<(PathBuf, Vec<u8>)>, String> {
    let mut archive = Vec::new();
    let limit = MAX_ARCHIVE as u64 + 1;
    let unpacked = GzDecoder::new(compressed).take(limit).read_to_end(&mut archive);
    unpacked.map_err(|error| format!("the archive cannot be unpacked: {error}"))?;
    if archive.len() > MAX_ARCHIVE {
        return Err(format!("the archive has more than {MAX_ARCHIVE} bytes"));
    }
    let mut rest = &archive[..];
    let mut files = Vec::new();
    let mut long_name = None;
    let mut count = 0;
    while let Some(entry) = entry(&mut rest)? {
        count += 1;
        if count > MAX_FILES {
            return Err(format!("the archive has more than {MAX_FILES} entries"));
        }
        match entry.kind {
            b'x' => long_name = pax_path(entry.content).or(long_name),
            b'L' => long_name = Some(text(entry.content)),
            // Skip global headers, which hold the time and the author, and folders, which are created for their files.
            b'g' | b'5' => {}
            b'0' | 0 => {
                let name = long_name.take().unwrap_or(entry.name);
                if let Some(path) = installed(&name)? {
                    files.push((path, entry.content.to_vec()));
                }
            }
            _ => return Err(format!("`{}` in the archive is neither a file nor a folder", entry.name)),
        }
        if matches!(entry.kind, b'5') {
            long_name = None;
        }
    }
    Ok(files)
}

struct Entry<'a> {
    name: String,
    kind: u8,
    content: &'a [u8],
}

/// The next entry; `None` at the end.
fn entry<'a>(rest: &mut &'a [u8]) -> Result<Option<Entry<'a>>, String> {
    const CUT: &str = "the archive is cut off";
    let Some((header, after)) = rest.split_at_checked(BLOCK) else {
        return if rest.is_empty() { Ok(None) } else { Err(CUT.into()) };
    };
    if header.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    // The checksum is computed with blanks in place of the checksum field itself.
    let sum: u64 = (0..)
        .zip(header)
        .map(|(at, byte)| u64::from(if (148..156).contains(&at) { b' ' } else { *byte }))
        .sum();
    if octal(&header[148..156]) != Some(sum) {
        return Err("the archive is damaged: the checksum of an entry is wrong".into());
    }
    let size = octal(&header[124..136]).and_then(|size| usize::try_from(size).ok());
    let size = size.filter(|size| *size <= after.len()).ok_or(CUT)?;
    let prefix = if &header[257..262] == b"ustar" { text(&header[345..500]) } else { String::new() };
    let name = text(&header[..100]);
    let name = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
    let (content, padded) = after.split_at(size);
    *rest = padded.get(size.next_multiple_of(BLOCK) - size..).unwrap_or_default();
    Ok(Some(Entry { name, kind: header[156], content }))
}

/// Text up to the first zero byte.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

fn octal(bytes: &[u8]) -> Option<u64> {
    u64::from_str_radix(text(bytes).trim(), 8).ok()
}

/// The `path` among the records of an extended header: each is `LENGTH KEY=VALUE` and a line feed.
fn pax_path(mut records: &[u8]) -> Option<String> {
    let mut path = None;
    while let Some(space) = records.iter().position(|byte| *byte == b' ') {
        let length: usize = std::str::from_utf8(&records[..space]).ok()?.parse().ok()?;
        let record = records.get(space + 1..length)?;
        if let Some(value) = record.strip_prefix(b"path=") {
            path = Some(text(value).trim_end_matches('\n').to_owned());
        }
        records = records.get(length..)?;
    }
    path
}

/// The path at which a file of the archive is installed, without the release's folder; `None` if it is not installed. A
/// path that leads out of the folder is an error.
fn installed(name: &str) -> Result<Option<PathBuf>, String> {
    let mut parts = Vec::new();
    for component in Path::new(name).components() {
        match component {
            Component::Normal(part) => parts.push(part),
            Component::CurDir => {}
            _ => return Err(format!("`{name}` in the archive leads out of its folder")),
        }
    }
    let path: PathBuf = parts.iter().skip(1).collect();
    let wanted = parts.get(1).is_some_and(|first| WANTED.iter().any(|wanted| first == wanted));
    Ok(wanted.then_some(path))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn block(name: &str, kind: u8, content: &[u8]) -> Vec<u8> {
        let mut header = vec![0; BLOCK];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        header[156] = kind;
        header[257..262].copy_from_slice(b"ustar");
        header[148..156].fill(b' ');
        let sum: u64 = header.iter().map(|byte| u64::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        header.extend_from_slice(content);
        header.resize(header.len().next_multiple_of(BLOCK), 0);
        header
    }

    fn packed(entries: &[(&str, u8, &[u8])]) -> Vec<u8> {
        let mut archive: Vec<u8> =
            entries.iter().flat_map(|(name, kind, content)| block(name, *kind, content)).collect();
        archive.resize(archive.len() + 2 * BLOCK, 0);
        compressed(&archive)
    }

    fn compressed(archive: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(archive).unwrap();
        encoder.finish().unwrap()
    }

    fn names(entries: &[(&str, u8, &[u8])]) -> Result<Vec<String>, String> {
        let files = files(&packed(entries))?;
        Ok(files.iter().map(|(path, content)| format!("{} {}", path.display(), content.len())).collect())
    }

    #[test]
    fn what_belongs_to_rules_is_taken() {
        let long = format!("crs/rules/{}.conf", "a".repeat(150));
        let record = |path: &str| {
            let rest = format!(" path={path}\n");
            let length = rest.len() + 3;
            format!("{length}{rest}")
        };
        let taken = names(&[
            ("pax_global_header", b'g', b"52 comment=0\n"),
            ("crs/", b'5', b""),
            ("crs/crs-setup.conf.example", b'0', b"setup"),
            ("./crs/rules/a.conf", 0, &[b'a'; 600]),
            ("crs/tests/b.yaml", b'0', b"b"),
            ("crs/README.md", b'0', b"b"),
            ("x", b'x', record(&long).as_bytes()),
            ("short", b'0', b"c"),
            ("y", b'L', b"crs/rules/d.data\0"),
            ("short", b'0', b"dd"),
            ("crs/plugins/e.conf", b'0', b""),
        ]);
        let long = format!("{} 1", &long[4..]);
        assert_eq!(
            taken.unwrap(),
            ["crs-setup.conf.example 5", "rules/a.conf 600", &long, "rules/d.data 2", "plugins/e.conf 0"]
        );
    }

    #[test]
    fn what_leads_elsewhere_is_refused() {
        for name in ["../rules/a", "crs/rules/../../../a", "/etc/rules/a"] {
            assert!(names(&[(name, b'0', b"")]).unwrap_err().contains("leads out"), "{name}");
        }
        assert!(names(&[("crs/rules/a", b'2', b"")]).unwrap_err().contains("neither a file nor a folder"));
    }

    #[test]
    fn what_is_damaged_is_refused() {
        assert!(files(b"not compressed").unwrap_err().contains("cannot be unpacked"));
        let archive = block("crs/rules/a", b'0', &[1; 1000]);
        for length in 1..archive.len() {
            assert_eq!(files(&compressed(&archive[..length])).is_ok(), length >= BLOCK + 1000, "{length}");
        }
        // The last byte of the checksum is not part of its number.
        for at in (0..BLOCK).filter(|at| *at != 155) {
            let mut other = archive.clone();
            other[at] ^= 1;
            assert!(files(&compressed(&other)).is_err(), "{at}");
        }
    }
}
