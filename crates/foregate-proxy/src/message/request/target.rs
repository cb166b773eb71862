//! Path and query of a request, and how steps and upstreams change them.

use foregate_wire::{Slashes, Target, TargetForm, normalize_path, normalize_query};

use crate::error::Error;
use crate::settings::NewPath;

/// The part of a path that [`CanonicalTarget::strip_prefix`] has removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StrippedPart {
    /// Nothing of the path.
    #[default]
    Nothing,
    /// The start of the path, before a slash.
    Start,
    /// The whole path: the slash that remains is the first one of the prefix.
    All,
}

/// Path and query in their normal form.
#[derive(Debug, Default)]
pub struct CanonicalTarget {
    bytes: Vec<u8>,
    path_len: usize,
    /// The client's path, if a step has replaced it.
    rewritten_from: Option<Vec<u8>>,
    stripped: StrippedPart,
}

impl CanonicalTarget {
    /// Path and query.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The path; `*` for a server-wide OPTIONS, empty for CONNECT.
    #[inline]
    pub fn path(&self) -> &[u8] {
        &self.bytes[..self.path_len]
    }

    /// The query, without `?`.
    #[inline]
    pub fn query(&self) -> Option<&[u8]> {
        self.bytes.get(self.path_len + 1..).filter(|_| self.bytes.len() > self.path_len)
    }

    /// Returns true if a step has replaced the client's path.
    pub fn is_rewritten(&self) -> bool {
        self.rewritten_from.is_some()
    }

    /// The path that the client asked for.
    pub fn client_path(&self) -> &[u8] {
        self.rewritten_from.as_deref().unwrap_or_else(|| self.path())
    }

    /// Changes the path or query to another one, which is normalised. An empty query is removed.
    ///
    /// # Errors
    ///
    /// The path has no normal form, or the request has no path. Nothing has changed then.
    pub fn rewrite(
        &mut self,
        path: Option<&[u8]>,
        query: Option<&[u8]>,
        slashes: Slashes,
    ) -> Result<(), Error> {
        if !self.path().starts_with(b"/") {
            return Err(Error::Internal);
        }
        let mut target = Vec::with_capacity(self.bytes.len());
        match path {
            Some(path) if !path.starts_with(b"/") => return Err(Error::Internal),
            Some(path) => normalize_path(path, slashes, &mut target).map_err(Error::Target)?,
            None => target.extend_from_slice(self.path()),
        }
        let path_len = target.len();
        match query {
            Some(b"") => {}
            Some(query) => {
                target.push(b'?');
                normalize_query(query, &mut target);
            }
            None => target.extend_from_slice(&self.bytes[self.path_len..]),
        }
        if target.iter().any(|byte| !byte.is_ascii_graphic()) {
            return Err(Error::Internal);
        }
        if path.is_some() && self.rewritten_from.is_none() {
            self.rewritten_from = Some(self.path().to_vec());
        }
        self.bytes = target;
        self.path_len = path_len;
        Ok(())
    }

    /// Removes `prefix` from the start of the path, if the path ends after it or goes on with a slash.
    /// With the prefix `/api`, `/api/users` becomes `/users`, and `/api` becomes `/`.
    pub fn strip_prefix(&mut self, prefix: Option<&str>) {
        let Some(prefix) = prefix else { return };
        let Some(rest) = self.path().strip_prefix(prefix.as_bytes()) else { return };
        if rest.is_empty() {
            // The first slash of the prefix stays.
            self.bytes.drain(1..prefix.len());
            self.path_len = 1;
            self.stripped = StrippedPart::All;
        } else if rest.starts_with(b"/") {
            self.bytes.drain(..prefix.len());
            self.path_len -= prefix.len();
            self.stripped = StrippedPart::Start;
        }
    }

    /// The part of the path that [`Self::strip_prefix`] has removed.
    pub fn stripped(&self) -> StrippedPart {
        self.stripped
    }

    /// Changes the path for an upstream. A target without a path stays without one.
    pub(super) fn replace(&mut self, by: &NewPath) {
        let (path, rest) = match by {
            NewPath::Whole(path) => (path, self.path_len),
            NewPath::Before(path) => (path, 0),
        };
        if self.path().starts_with(b"/") {
            self.bytes.splice(..rest, path.bytes());
            self.path_len = self.path_len - rest + path.len();
        }
    }

    /// Becomes the normal form of a target; `authority` is that of CONNECT.
    ///
    /// # Errors
    ///
    /// The path has no normal form.
    pub(super) fn read(
        &mut self,
        target: &Target<'_>,
        slashes: Slashes,
        authority: &str,
    ) -> Result<(), Error> {
        self.bytes.clear();
        self.path_len = 0;
        match target.form {
            TargetForm::Authority { .. } => {
                self.bytes.extend_from_slice(authority.as_bytes());
                return Ok(());
            }
            _ if target.path == b"*" => self.bytes.push(b'*'),
            _ => normalize_path(target.path, slashes, &mut self.bytes).map_err(Error::Target)?,
        }
        self.path_len = self.bytes.len();
        if let Some(query) = target.query {
            self.bytes.push(b'?');
            normalize_query(query, &mut self.bytes);
        }
        Ok(())
    }

    /// Takes path and query of another target. The path that the client asked for stays.
    pub(super) fn copy_from(&mut self, other: &Self) {
        self.bytes.clone_from(&other.bytes);
        self.path_len = other.path_len;
    }

    /// Empties the target, and keeps its memory.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.path_len = 0;
        self.rewritten_from = None;
        self.stripped = StrippedPart::Nothing;
    }

    /// Gives back memory beyond `kept` bytes.
    pub(super) fn shrink_to(&mut self, kept: usize) {
        self.bytes.shrink_to(kept);
    }
}
