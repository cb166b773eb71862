//! `foregate waf install-crs`.

mod archive;
mod fetch;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use sha2::{Digest, Sha256};

use super::super::output::{Outcome, complain, print};
use super::files;

/// The release that is installed unless another is named.
const VERSION: &str = "4.25.0";

/// The largest release, in bytes.
const MAX_RELEASE: usize = 32 << 20;

#[derive(Debug, Args)]
pub(in super::super) struct Install {
    /// The folder to be made; it must not be there, or be empty
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The SHA-256 of the release, 64 hexadecimal digits; it must be there. Foregate has no digest built in, not even of the
    /// default version. Get it in three steps: download the tarball and its `.asc` from the release's page on GitHub;
    /// `gpg --verify FILE.asc FILE` with the key of the project (`https://coreruleset.org/security.asc`); `sha256sum FILE`
    #[arg(long, value_name = "DIGEST")]
    sha256: Option<String>,
    /// The release
    #[arg(long, value_name = "VERSION", default_value = VERSION)]
    version: String,
    /// A tarball on this machine, or an `https:` URL, in place of the official one
    #[arg(long, value_name = "FILE")]
    from: Option<String>,
    /// PEM file with the authorities to trust in place of the system's
    #[arg(long, value_name = "FILE")]
    authorities: Option<PathBuf>,
}

impl Install {
    pub(super) fn run(&self) -> Outcome {
        let Some(sha256) = &self.sha256 else {
            complain(&self.without_digest());
            return Outcome::Usage;
        };
        match self.install(sha256) {
            Ok(told) => {
                print(&told);
                Outcome::Fine
            }
            Err(reason) => {
                complain(&format!("error: {reason}"));
                Outcome::Wrong
            }
        }
    }

    /// The text that explains how to get the digest, if none was given.
    fn without_digest(&self) -> String {
        let (version, folder) = (&self.version, self.folder.display());
        let tarball = tarball(version);
        format!(
            "error: `--sha256` is missing: Foregate has no digest of the Core Rule Set built in, so you say which file is right\n  \
               help: download {tarball} and {tarball}.asc from\n        \
                     https://github.com/coreruleset/coreruleset/releases/tag/v{version}, then\n          \
                       curl https://coreruleset.org/security.asc | gpg --import\n          \
                       gpg --verify {tarball}.asc {tarball}\n          \
                       sha256sum {tarball}\n          \
                       foregate waf install-crs {folder} --from {tarball} --sha256 DIGEST"
        )
    }

    fn install(&self, sha256: &str) -> Result<String, String> {
        let wanted = digest(sha256)?;
        free(&self.folder)?;
        let release = self.release()?;
        let found = Sha256::digest(&release);
        if found[..] != wanted {
            let found: String = found.iter().map(|byte| format!("{byte:02x}")).collect();
            return Err(format!(
                "the release has the SHA-256 {found}, and not the one that was given: nothing is installed"
            ));
        }
        let files = archive::files(&release)?;
        if !files.iter().any(|(path, _)| path == Path::new(SETUP)) {
            return Err(format!("the archive has no {SETUP}: it is no release of the Core Rule Set"));
        }
        write(&self.folder, &files)?;
        let folder = self.folder.display();
        Ok(format!(
            "installed {} files in {folder}\n\
             check them with: foregate waf check {folder}/{RECOMMENDED} {folder}/{COPY} '{folder}/rules/*.conf'\n\
             and put this into a site, to see what they would refuse:\n\n\
             waf mode=\"detect\" log=\"waf.log\" {{\n    \
                 rules \"{folder}/{RECOMMENDED}\" \"{folder}/{COPY}\" \"{folder}/rules/*.conf\"\n\
             }}\n",
            files.len() + 2
        ))
    }

    fn release(&self) -> Result<Vec<u8>, String> {
        if !self.version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return Err(format!("`{}` is no version", self.version));
        }
        let version = &self.version;
        let official = format!(
            "https://github.com/coreruleset/coreruleset/releases/download/v{version}/{}",
            tarball(version)
        );
        match &self.from {
            Some(from) if from.starts_with("http://") => {
                Err(format!("{from}: releases are fetched over HTTPS alone"))
            }
            Some(from) if !from.starts_with("https://") => {
                files::read(Path::new(from), MAX_RELEASE).map_err(|error| format!("{from}: {error}"))
            }
            from => fetch::fetch(from.as_ref().unwrap_or(&official), self.authorities.clone(), MAX_RELEASE),
        }
    }
}

/// The file name of a release's tarball.
fn tarball(version: &str) -> String {
    format!("coreruleset-{version}-minimal.tar.gz")
}

/// The names of the settings file: in a release, and after the installation.
const SETUP: &str = "crs-setup.conf.example";
const COPY: &str = "crs-setup.conf";
/// The file with the directives for bodies.
const RECOMMENDED: &str = "recommended.conf";

fn digest(text: &str) -> Result<[u8; 32], String> {
    let wrong = || format!("`{text}` is no SHA-256: it has 64 hexadecimal digits");
    if text.len() != 64 || !text.is_ascii() {
        return Err(wrong());
    }
    let mut digest = [0; 32];
    for (byte, digits) in digest.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
    }
    Ok(digest)
}

/// Checks that the folder can be created.
fn free(folder: &Path) -> Result<(), String> {
    match fs::read_dir(folder).map(|mut entries| entries.next().is_none()) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(format!("{}: {error}", folder.display())),
        Ok(true) => Ok(()),
        Ok(false) => Err(format!("{} is not empty: existing files are not overwritten", folder.display())),
    }
}

/// Writes the files to a temporary folder and renames it, so that no other program sees a partial installation.
fn write(folder: &Path, files: &[(PathBuf, Vec<u8>)]) -> Result<(), String> {
    let mut name = folder.file_name().ok_or("the folder has no name")?.to_owned();
    name.push(format!(".partial-{}", std::process::id()));
    let partial = folder.with_file_name(name);
    let written = write_into(&partial, files).and_then(|()| fs::rename(&partial, folder));
    written.map_err(|error| {
        // A partial installation is useless.
        let _ = fs::remove_dir_all(&partial);
        format!("{}: {error}", folder.display())
    })
}

fn write_into(partial: &Path, files: &[(PathBuf, Vec<u8>)]) -> std::io::Result<()> {
    for (path, content) in files {
        let path = partial.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, content)?;
    }
    fs::write(partial.join(RECOMMENDED), foregate_waf::RECOMMENDED)?;
    fs::copy(partial.join(SETUP), partial.join(COPY)).map(|_| ())
}
