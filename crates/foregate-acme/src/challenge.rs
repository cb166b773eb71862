//! Answers to challenges, published for as long as an authority looks for them.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use foregate_proxy::settings::automatic::{
    Automatic, ChallengeKind, DnsHook, DnsUpdate, alpn_challenge, http_challenge,
};
use instant_acme::{ChallengeType, KeyAuthorization};
use rcgen::{CustomExtension, KeyPair};
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use crate::certificate::{joined, parameters};
use crate::failure::{Failure, FailureKind};
use crate::storage::replace;
use crate::update::{self, RecordChange};

/// The longest time for the hook of DNS-01.
const HOOK: Duration = Duration::from_secs(120);
/// A message shows at most this many bytes of the hook's output.
const HOOK_SHOWN: usize = 400;
/// The validity of a certificate that answers a challenge.
const VALIDITY: time::Duration = time::Duration::days(2);

/// The ACME name of a kind of challenge.
pub(crate) fn acme_type(kind: ChallengeKind) -> ChallengeType {
    match kind {
        ChallengeKind::Http => ChallengeType::Http01,
        ChallengeKind::TlsAlpn => ChallengeType::TlsAlpn01,
        ChallengeKind::Dns => ChallengeType::Dns01,
    }
}

/// A published answer to a challenge. [`PublishedAnswer::withdraw`] removes it. Dropping the value removes a
/// file, but not a TXT record.
#[derive(Debug)]
pub(crate) struct PublishedAnswer {
    file: Option<PathBuf>,
    record: Option<PublishedRecord>,
}

/// A TXT record that answers a DNS-01 challenge.
#[derive(Debug)]
struct PublishedRecord {
    publisher: RecordPublisher,
    name: String,
    value: String,
}

/// The way in which records of a zone are changed.
#[derive(Debug, Clone)]
enum RecordPublisher {
    Hook(DnsHook),
    Update(DnsUpdate),
}

impl RecordPublisher {
    async fn change(&self, change: RecordChange, record: &str, value: &str) -> Result<(), Failure> {
        match self {
            Self::Update(update) => update::change(update, change, record, value).await,
            Self::Hook(hook) => {
                let verb = if change == RecordChange::Add { "present" } else { "cleanup" };
                run(hook, verb, record, value).await
            }
        }
    }

    fn wait(&self) -> Duration {
        match self {
            Self::Hook(hook) => hook.wait,
            Self::Update(update) => update.wait,
        }
    }
}

/// Publishes the answer to a challenge for a name (without `*.`).
pub(crate) async fn publish(
    automatic: &Automatic,
    kind: ChallengeKind,
    name: &str,
    token: &str,
    answer: &KeyAuthorization,
) -> Result<PublishedAnswer, Failure> {
    let folder = automatic.challenge_folder();
    let (file, content) = match kind {
        ChallengeKind::Http => (http_challenge(&folder, token.as_bytes()), answer.as_str().to_owned()),
        ChallengeKind::TlsAlpn => {
            let certificate = answering_certificate(name, answer.digest().as_ref());
            let content = certificate
                .map_err(|error| Failure::new(FailureKind::Local, error.to_string(), "it is tried again"))?;
            (alpn_challenge(&folder, name), content)
        }
        ChallengeKind::Dns => return publish_record(automatic, name, answer.dns_value()).await,
    };
    let file = file.ok_or_else(|| {
        Failure::new(FailureKind::Refused, "the authority's token is none", "take another authority")
    })?;
    replace(&file, content.as_bytes())
        .map_err(|error| Failure::of_file("the answer to a challenge", &error))?;
    Ok(PublishedAnswer { file: Some(file), record: None })
}

/// The certificate that answers a TLS-ALPN-01 challenge (RFC 8737, section 3).
fn answering_certificate(name: &str, digest: &[u8]) -> Result<String, rcgen::Error> {
    let mut parameters = parameters(name, VALIDITY)?;
    parameters.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate()?;
    Ok(joined(&key.serialize_pem(), &parameters.self_signed(&key)?.pem()))
}

async fn publish_record(
    automatic: &Automatic,
    name: &str,
    value: String,
) -> Result<PublishedAnswer, Failure> {
    let publisher = match (automatic.dns_update(name), &automatic.dns_hook) {
        (Some(update), _) => RecordPublisher::Update(update.clone()),
        (None, Some(hook)) => RecordPublisher::Hook(hook.clone()),
        (None, None) => {
            let message = format!("no record for DNS-01 can be published for {name}");
            return Err(Failure::new(
                FailureKind::Local,
                message,
                "add a `dns-update` for its zone, or a `dns-hook`",
            ));
        }
    };
    let record = format!("_acme-challenge.{name}");
    publisher.change(RecordChange::Add, &record, &value).await?;
    let wait = publisher.wait();
    let published =
        PublishedAnswer { file: None, record: Some(PublishedRecord { publisher, name: record, value }) };
    sleep(wait).await;
    Ok(published)
}

impl PublishedAnswer {
    /// Removes the answer.
    pub(crate) async fn withdraw(mut self) {
        let Some(PublishedRecord { publisher, name, value }) = self.record.take() else { return };
        if let Err(failure) = publisher.change(RecordChange::Remove, &name, &value).await {
            tracing::warn!(record = name, "the record of a challenge stays: {failure}");
        }
    }
}

impl Drop for PublishedAnswer {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            // A failure does no harm: the file answers a challenge that the authority no longer looks for.
            let _ = fs::remove_file(file);
        }
    }
}

async fn run(hook: &DnsHook, verb: &str, record: &str, value: &str) -> Result<(), Failure> {
    const REMEDY: &str = "run the hook by hand: COMMAND present NAME VALUE, then COMMAND cleanup NAME VALUE";
    let shown = hook.command.first().map_or("", String::as_str);
    let failed =
        |why: String| Failure::new(FailureKind::Local, format!("dns-hook `{shown} {verb}`: {why}"), REMEDY);
    let (program, arguments) = hook.command.split_first().ok_or_else(|| failed("no command".to_owned()))?;
    let mut command = Command::new(program);
    command.args(arguments).args([verb, record, value]).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let output = timeout(HOOK, command.output()).await;
    let output = output.map_err(|_| failed(format!("not done within {} s", HOOK.as_secs())))?;
    let output = output.map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said: String = said.trim().chars().filter(|c| !c.is_control()).take(HOOK_SHOWN).collect();
    Err(failed(format!("{}: {said}", output.status)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(command: &[&str]) -> DnsHook {
        DnsHook { command: command.iter().map(|word| (*word).to_owned()).collect(), wait: Duration::ZERO }
    }

    #[tokio::test]
    async fn a_hook_that_fails_is_told_with_its_words() {
        run(&hook(&["sh", "-c", "test \"$1 $2 $3\" = \"present a b\"", "hook"]), "present", "a", "b")
            .await
            .unwrap();
        let failure =
            run(&hook(&["sh", "-c", "echo no zone >&2; exit 3"]), "present", "a", "b").await.unwrap_err();
        assert!(failure.to_string().contains("no zone"), "{failure}");
        let failure = run(&hook(&["/no/such/hook"]), "present", "a", "b").await.unwrap_err();
        assert!(failure.to_string().contains("run the hook by hand"), "{failure}");
    }

    #[test]
    fn the_answering_certificate_is_one() {
        let pem = answering_certificate("a.example", &[7; 32]).unwrap();
        let facts = crate::certificate::Facts::read(pem.as_bytes()).unwrap();
        assert!(!facts.is_temporary);
    }
}
