//! The source of the settings, which reads them again for reloads.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::admin::{ConfigurationRefusal, EffectiveConfiguration, GivenConfiguration, ProcessControls};
use crate::configuration::Settings;
use crate::settings::ListenAddress;
use crate::tls::CertificateKeeper;

/// A source of settings. Its methods are called on a thread that may block.
pub trait SettingsSource: Send + Sync {
    /// Reads and validates the configuration again.
    ///
    /// # Errors
    ///
    /// The configuration is invalid, or cannot be read; the text says why.
    fn read(&self) -> Result<Settings, String>;

    /// Rereads the files that the present configuration refers to ([`Settings::watched`]). The files of
    /// the configuration itself are not read again, because an operator may be editing them: the
    /// configuration is the one that took effect last.
    ///
    /// # Errors
    ///
    /// A file is invalid, or cannot be read; the text says why.
    fn refresh(&self) -> Result<Settings, String>;

    /// Reads a configuration that came in a request, as if it stood in the file, in KDL or in JSON.
    ///
    /// # Errors
    ///
    /// The configuration is invalid, or cannot be read; the text says why.
    fn read_given(&self, _text: String, _is_json: bool) -> Result<Settings, String> {
        Err("the proxy was started without a configuration file".to_owned())
    }

    /// The configuration in effect; `None` if it does not come from files.
    fn effective(&self) -> Option<EffectiveConfiguration> {
        None
    }

    /// The place in the files, `FILE:LINE:COLUMN`, where `key` names this address, for messages; `None` if no file
    /// has it.
    fn place_of(&self, _key: &str, _address: &ListenAddress) -> Option<String> {
        None
    }

    /// The level of the log of the process; `None` if it cannot be changed.
    fn log_filter(&self) -> Option<String> {
        None
    }

    /// Changes the level of the log of the process.
    ///
    /// # Errors
    ///
    /// `filter` is invalid; the text says why.
    fn set_log_filter(&self, _filter: &str) -> Result<(), String> {
        Err("the level of this process cannot be changed".to_owned())
    }

    /// Called when the configuration read last has taken effect.
    fn took_effect(&self);

    /// The texts of the configuration that has taken effect, for the process that follows a crash
    /// ([`Supervised::kept_configuration`](super::Supervised::kept_configuration)); no bytes if they are longer than `limit`.
    /// `None` if this configuration was asked for already, or does not come from files.
    fn take_texts(&self, _limit: usize) -> Option<Vec<u8>> {
        None
    }

    /// Called when the first configuration has taken effect: all its addresses are bound, and this process
    /// serves them.
    fn started(&self) {}

    /// Called when another process serves from now on.
    fn handed_over(&self) {}

    /// The component that obtains certificates, if there is one.
    fn keeper(&self) -> Option<Arc<dyn CertificateKeeper>> {
        None
    }
}

/// A source without configuration files.
impl<F: Fn() -> Result<Settings, String> + Send + Sync> SettingsSource for F {
    fn read(&self) -> Result<Settings, String> {
        self()
    }

    fn refresh(&self) -> Result<Settings, String> {
        self()
    }

    fn took_effect(&self) {}
}

/// Why settings are read again.
#[derive(Debug, Clone)]
pub(super) enum ReloadCause {
    /// A caller asked for it.
    Asked,
    /// An operator has sent another configuration.
    Given(GivenConfiguration),
    /// A file that the configuration refers to has changed.
    Changed,
}

/// The caller that waits for the result of a reload. It may have stopped waiting.
pub(super) enum ReloadAnswer {
    Nobody,
    Reload(oneshot::Sender<Result<(), String>>),
    Configure(oneshot::Sender<Result<(), ConfigurationRefusal>>),
}

impl ReloadAnswer {
    pub(super) fn send(self, result: Result<(), String>) {
        match self {
            Self::Nobody => {}
            Self::Reload(answer) => drop(answer.send(result)),
            Self::Configure(answer) => drop(answer.send(result.map_err(ConfigurationRefusal::Wrong))),
        }
    }
}

/// Makes the controls that the source of the configuration provides available to the admin interface.
pub(super) struct SourceControls(pub(super) Arc<dyn SettingsSource>);

impl ProcessControls for SourceControls {
    fn effective(&self) -> Option<EffectiveConfiguration> {
        self.0.effective()
    }

    fn log_filter(&self) -> Option<String> {
        self.0.log_filter()
    }

    fn set_log_filter(&self, filter: &str) -> Result<(), String> {
        self.0.set_log_filter(filter)
    }
}
