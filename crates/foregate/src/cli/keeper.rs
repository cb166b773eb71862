//! The certificates that the proxy obtains itself, as the configuration in effect demands.

use std::sync::Arc;

use foregate_acme::Keeper;
use foregate_proxy::configuration::Settings;
use foregate_proxy::server::{EffectiveConfiguration, SettingsSource};
use foregate_proxy::settings::automatic::Automatic;
use foregate_proxy::settings::{CertificateFiles, ListenAddress};
use foregate_proxy::tls::CertificateKeeper;
use parking_lot::Mutex;

/// A source of configurations, together with the keeper that obtains their certificates.
pub(super) struct WithKeeper {
    source: Arc<dyn SettingsSource>,
    keeper: Arc<Keeper>,
    /// The certificates in the configuration that was read last.
    read: Mutex<KeptCertificates>,
}

/// The certificates that the keeper has to do with.
#[derive(Clone, Default)]
struct KeptCertificates {
    automatic: Option<Arc<Automatic>>,
    /// The certificates in files for which OCSP responses are fetched.
    stapled: Vec<CertificateFiles>,
}

impl KeptCertificates {
    fn of(settings: &Settings) -> Self {
        let of_listeners = settings.listeners.iter().filter_map(|listen| listen.tls.as_ref());
        let of_sites = settings.sites.sites().iter().filter_map(|site| site.options.tls.as_ref());
        let all =
            of_listeners.flat_map(|tls| &tls.certificates).chain(of_sites.flat_map(|tls| &tls.certificates));
        let stapled = all.filter(|files| files.staple.is_some()).cloned().collect();
        Self { automatic: settings.automatic.clone(), stapled }
    }
}

impl WithKeeper {
    /// # Errors
    ///
    /// Certificates cannot be stored.
    pub(super) fn new(source: Arc<dyn SettingsSource>, settings: &Settings) -> Result<Self, String> {
        let this = Self { source, keeper: Arc::new(Keeper::new()), read: Mutex::default() };
        this.prepare(settings)?;
        Ok(this)
    }

    /// Makes the files that the settings name, so that they exist before the settings are used.
    fn prepare(&self, settings: &Settings) -> Result<(), String> {
        let kept = KeptCertificates::of(settings);
        if let Some(automatic) = &kept.automatic {
            Keeper::prepare(automatic)?;
        }
        Keeper::prepare_stapled(&kept.stapled)?;
        *self.read.lock() = kept;
        Ok(())
    }

    fn follow(&self) {
        let KeptCertificates { automatic, stapled } = self.read.lock().clone();
        self.keeper.follow(automatic, &stapled);
    }
}

impl SettingsSource for WithKeeper {
    fn read(&self) -> Result<Settings, String> {
        let settings = self.source.read()?;
        self.prepare(&settings)?;
        Ok(settings)
    }

    fn refresh(&self) -> Result<Settings, String> {
        let settings = self.source.refresh()?;
        self.prepare(&settings)?;
        Ok(settings)
    }

    fn read_given(&self, text: String, is_json: bool) -> Result<Settings, String> {
        let settings = self.source.read_given(text, is_json)?;
        self.prepare(&settings)?;
        Ok(settings)
    }

    fn effective(&self) -> Option<EffectiveConfiguration> {
        self.source.effective()
    }

    fn place_of(&self, key: &str, address: &ListenAddress) -> Option<String> {
        self.source.place_of(key, address)
    }

    fn log_filter(&self) -> Option<String> {
        self.source.log_filter()
    }

    fn set_log_filter(&self, filter: &str) -> Result<(), String> {
        self.source.set_log_filter(filter)
    }

    fn took_effect(&self) {
        self.source.took_effect();
        self.follow();
    }

    fn take_texts(&self, limit: usize) -> Option<Vec<u8>> {
        self.source.take_texts(limit)
    }

    fn started(&self) {
        self.source.started();
        self.follow();
    }

    fn handed_over(&self) {
        self.source.handed_over();
        self.keeper.follow(None, &[]);
    }

    fn keeper(&self) -> Option<Arc<dyn CertificateKeeper>> {
        Some(Arc::clone(&self.keeper) as _)
    }
}
