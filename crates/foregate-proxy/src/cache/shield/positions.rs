//! The file `shield` in a folder of the disk tier. For each other node it holds a position in the log of that node:
//! the purges up to this position are in the journals of the folders.

use std::collections::HashMap;
use std::fs;
use std::io::Read as _;
use std::path::PathBuf;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::LogPosition;
use crate::settings::ShieldSettings;

const NAME: &str = "shield";
/// The longest file that is read, bytes.
const LONGEST: u64 = 64 * 1024;

/// The file with the positions. There is none if the store does not outlive the process.
#[derive(Debug)]
pub(super) struct Positions {
    folder: Option<PathBuf>,
    written: Mutex<HashMap<String, LogPosition>>,
}

impl Positions {
    pub fn new(folder: Option<PathBuf>) -> Self {
        Self { folder, written: Mutex::default() }
    }

    /// The positions at the end of the previous process. If the file cannot be read, the positions of all nodes are
    /// unknown, and their purges count as missed.
    pub fn read(&self, settings: &ShieldSettings) -> HashMap<String, LogPosition> {
        let Some(folder) = &self.folder else { return HashMap::new() };
        let mut text = String::new();
        let file = crate::files::open_to_read(&folder.join(NAME));
        let read = file.and_then(|file| file.take(LONGEST).read_to_string(&mut text));
        read.ok().and_then(|_| parse(&text)).unwrap_or_else(|| {
            // Logs have random epochs, so no log has epoch 0.
            let nowhere = LogPosition { epoch: 0, number: 0 };
            settings.nodes.iter().map(|node| (node.name.to_string(), nowhere)).collect()
        })
    }

    /// Writes the positions. Call it once the purges up to them are in the journals. It blocks.
    pub fn write(&self, positions: &HashMap<String, LogPosition>) {
        let Some(folder) = &self.folder else { return };
        let mut written = self.written.lock();
        if *written == *positions {
            return;
        }
        let (file, new) = (folder.join(NAME), folder.join("shield.new"));
        let nodes: serde_json::Map<String, Value> = positions
            .iter()
            .map(|(name, position)| (name.clone(), json!([position.epoch, position.number])))
            .collect();
        match fs::write(&new, Value::Object(nodes).to_string()).and_then(|()| fs::rename(&new, &file)) {
            Ok(()) => written.clone_from(positions),
            // Then the next process purges more than it has to.
            Err(error) => tracing::debug!(%error, "{} cannot be written", file.display()),
        }
    }
}

fn parse(text: &str) -> Option<HashMap<String, LogPosition>> {
    let Ok(Value::Object(nodes)) = serde_json::from_str(text) else { return None };
    let nodes = nodes.into_iter().map(|(name, position)| {
        let position = LogPosition { epoch: position.get(0)?.as_u64()?, number: position.get(1)?.as_u64()? };
        Some((name, position))
    });
    nodes.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests stop at what they do not expect")]
    use super::*;
    use crate::settings::ShieldNode;

    #[test]
    fn positions_outlive_the_process_and_a_damaged_file_has_everything_missed() {
        let folder = tempfile::tempdir().unwrap();
        let node = |name: &str| ShieldNode { name: name.into(), address: "127.0.0.1:1".parse().unwrap() };
        let settings = ShieldSettings {
            name: "eu".into(),
            nodes: vec![node("one"), node("two")],
            own: 0,
            secret: Box::from(&b"secret"[..]),
        };
        let positions = Positions::new(Some(folder.path().to_owned()));
        let nowhere = LogPosition { epoch: 0, number: 0 };
        assert_eq!(positions.read(&settings).get("two"), Some(&nowhere));
        let known: HashMap<_, _> = [("two".to_owned(), LogPosition { epoch: u64::MAX, number: 7 })].into();
        positions.write(&known);
        assert_eq!(Positions::new(Some(folder.path().to_owned())).read(&settings), known);
        fs::write(folder.path().join(NAME), "{\"two\":[1]}").unwrap();
        assert_eq!(positions.read(&settings).get("two"), Some(&nowhere));
        assert!(Positions::new(None).read(&settings).is_empty());
    }
}
