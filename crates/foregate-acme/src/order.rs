//! One order at one authority.

use std::time::Duration;

use foregate_proxy::settings::automatic::{Authority, Automatic, ChallengeKind};
use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeStatus, Error as AcmeError, Identifier,
    NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::KeyPair;

use crate::authority::{NONCE_TRIES, account, forget_if_unknown};
use crate::certificate::{joined, parameters};
use crate::challenge::{PublishedAnswer, acme_type, publish};
use crate::failure::{Failure, FailureKind};
use crate::storage::Storage;

/// The time limits for polling an order while the authority verifies the answers to its challenges and issues
/// the certificate.
const POLL: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(250))
    .backoff(1.5)
    .timeout(Duration::from_secs(90));

/// An issued certificate with its key.
#[derive(Debug)]
pub(crate) struct IssuedCertificate {
    /// Key and chain in PEM.
    pub(crate) pem: String,
    /// The start and the end of the renewal window that the authority suggests, seconds since 1970.
    pub(crate) window: Option<(i64, i64)>,
}

/// Orders a certificate for a name. `replaces` is the old certificate, if this is a renewal.
pub(crate) async fn order(
    storage: &Storage,
    automatic: &Automatic,
    authority: &Authority,
    kind: ChallengeKind,
    name: &str,
    replaces: Option<&CertificateIdentifier<'static>>,
) -> Result<IssuedCertificate, Failure> {
    let account = account(storage, authority, automatic.email.as_deref()).await?;
    let mut tries = NONCE_TRIES;
    loop {
        let attempt = Attempt { automatic, authority, kind, name, account: &account };
        match attempt.run(replaces).await {
            Ok(issued) => return Ok(issued),
            Err(OrderEnd::Acme(error)) if tries > 0 && Failure::is_nonce(&error) => tries -= 1,
            Err(OrderEnd::Acme(error)) => {
                forget_if_unknown(storage, authority, &error);
                return Err(Failure::of_authority(&authority.directory, &error));
            }
            Err(OrderEnd::Failed(failure)) => return Err(failure),
        }
    }
}

struct Attempt<'a> {
    automatic: &'a Automatic,
    authority: &'a Authority,
    kind: ChallengeKind,
    name: &'a str,
    account: &'a Account,
}

enum OrderEnd {
    Acme(AcmeError),
    Failed(Failure),
}

impl From<AcmeError> for OrderEnd {
    fn from(error: AcmeError) -> Self {
        Self::Acme(error)
    }
}

impl From<Failure> for OrderEnd {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Attempt<'_> {
    async fn run(
        &self,
        replaces: Option<&CertificateIdentifier<'static>>,
    ) -> Result<IssuedCertificate, OrderEnd> {
        let mut order = self.begin(replaces).await?;
        let mut published = Vec::new();
        let validated = self.validate(&mut order, &mut published).await;
        for answer in published {
            answer.withdraw().await;
        }
        validated?;
        let made = self.request();
        let (key, request) =
            made.map_err(|error| Failure::new(FailureKind::Local, error.to_string(), "it is tried again"))?;
        order.finalize_csr(&request).await?;
        let chain = order.poll_certificate(&POLL).await?;
        let pem = joined(&key, &chain);
        let window = window(self.account, &pem).await;
        Ok(IssuedCertificate { pem, window })
    }

    async fn begin(&self, replaces: Option<&CertificateIdentifier<'static>>) -> Result<Order, AcmeError> {
        let identifiers = [Identifier::Dns(self.name.to_owned())];
        let new = || {
            let order = NewOrder::new(&identifiers);
            match &self.authority.profile {
                Some(profile) => order.profile(profile),
                None => order,
            }
        };
        if let Some(replaces) = replaces {
            match self.account.new_order(&new().replaces(replaces.clone())).await {
                Ok(order) => return Ok(order),
                // The old certificate was already replaced, or the authority does not know it, or the
                // authority has no renewal information. Order without `replaces`.
                Err(error) => {
                    tracing::debug!(%error, name = self.name, "the order does not say what it replaces");
                }
            }
        }
        self.account.new_order(&new()).await
    }

    /// Answers all challenges, and waits until the authority has verified the answers.
    async fn validate(
        &self,
        order: &mut Order,
        published: &mut Vec<PublishedAnswer>,
    ) -> Result<(), OrderEnd> {
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            match authorization.status {
                AuthorizationStatus::Valid => continue,
                AuthorizationStatus::Pending => {}
                other => {
                    let message = format!("{}: an authorization is {other:?}", self.authority.directory);
                    return Err(Failure::new(FailureKind::Refused, message, "it is tried again").into());
                }
            }
            let Some(mut challenge) = authorization.challenge(acme_type(self.kind)) else {
                let message =
                    format!("{} offers no {:?} challenge", self.authority.directory, acme_type(self.kind));
                return Err(
                    Failure::new(FailureKind::Refused, message, "allow others in `challenges`").into()
                );
            };
            let name = self.name.strip_prefix("*.").unwrap_or(self.name);
            let answer = challenge.key_authorization();
            published.push(publish(self.automatic, self.kind, name, &challenge.token, &answer).await?);
            challenge.set_ready().await?;
        }
        match order.poll_ready(&POLL).await {
            Ok(OrderStatus::Invalid) => Err(self.reason(order).await.into()),
            Ok(_) => Ok(()),
            // An error in the state of the order names the reason of the failure.
            Err(AcmeError::Api(problem)) if !Failure::is_nonce(&AcmeError::Api(problem.clone())) => {
                Err(Failure::of_problem(&self.authority.directory, &problem, Some(self.kind)).into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The reason why an order has become invalid.
    async fn reason(&self, order: &mut Order) -> Failure {
        let mut authorizations = order.authorizations();
        while let Some(Ok(mut authorization)) = authorizations.next().await {
            let Ok(state) = authorization.refresh().await else { continue };
            let failed =
                state.challenges.iter().filter(|challenge| challenge.status == ChallengeStatus::Invalid);
            if let Some(problem) = failed.into_iter().find_map(|challenge| challenge.error.as_ref()) {
                return Failure::of_problem(&self.authority.directory, problem, Some(self.kind));
            }
        }
        let message = format!("{}: the order was refused without a reason", self.authority.directory);
        Failure::new(FailureKind::Refused, message, "it is tried again")
    }

    /// Generates a key. The result is the key in PEM, and the certificate signing request.
    fn request(&self) -> Result<(String, Vec<u8>), rcgen::Error> {
        let key = KeyPair::generate()?;
        // The authority chooses the validity itself, so this duration has no effect.
        let parameters = parameters(self.name, time::Duration::days(1))?;
        let request = parameters.serialize_request(&key)?;
        Ok((key.serialize_pem(), request.der().to_vec()))
    }
}

/// Asks for the renewal window of a new certificate (RFC 9773). `None` if the authority suggests no window.
async fn window(account: &Account, pem: &str) -> Option<(i64, i64)> {
    let id = crate::certificate::Facts::read(pem.as_bytes())?.id?;
    let (info, _) = account.renewal_info(&id).await.ok()?;
    let window = info.suggested_window;
    Some((window.start.unix_timestamp(), window.end.unix_timestamp()))
}

/// Asks for the renewal window of a certificate that was issued some time ago. An authority that has to
/// revoke certificates moves their windows to an earlier time.
pub(crate) async fn renewal_window(
    storage: &Storage,
    automatic: &Automatic,
    authority: &Authority,
    id: &CertificateIdentifier<'static>,
) -> Option<(i64, i64)> {
    let account = account(storage, authority, automatic.email.as_deref()).await.ok()?;
    let (info, _) = account.renewal_info(id).await.ok()?;
    Some((info.suggested_window.start.unix_timestamp(), info.suggested_window.end.unix_timestamp()))
}
