//! Whole files, for fragments of documents.

use std::borrow::Cow;

use foregate_files::content_type;

use super::{Folder, FolderError, FolderTarget};

/// The result of reading a whole file.
pub(crate) enum Whole {
    /// Its content and its type.
    File(Vec<u8>, Cow<'static, str>),
    /// The file is longer than allowed.
    TooLarge,
    /// There is none.
    Nothing,
}

impl Folder {
    /// Reads the plain file of a path, if it has at most this many bytes.
    ///
    /// # Errors
    ///
    /// A file exists, but cannot be read.
    pub(crate) async fn whole(&self, path: &[u8], limit: usize) -> Result<Whole, FolderError> {
        let candidates = self.settings.rules.candidates(path);
        let FolderTarget::File(found) = self.find(&candidates, &[]).await? else { return Ok(Whole::Nothing) };
        let length = match usize::try_from(found.open.stat.size) {
            Ok(length) if length <= limit => length,
            _ => return Ok(Whole::TooLarge),
        };
        let content = match length {
            0 => Vec::new(),
            _ => found.open.file.read(0, length).await.map_err(FolderError::of_read)?,
        };
        Ok(Whole::File(content, content_type(&found.name)))
    }
}
