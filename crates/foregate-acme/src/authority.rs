//! Accounts at authorities.

use foregate_proxy::settings::automatic::Authority;
use instant_acme::{Account, AccountCredentials, Error as AcmeError, ExternalAccountKey, NewAccount};
use sha2::{Digest as _, Sha256};

use crate::failure::{Failure, FailureKind};
use crate::http::Client;
use crate::storage::Storage;

/// Returns the stored account at an authority. Without a stored account, registers one and stores it.
pub(crate) async fn account(
    storage: &Storage,
    authority: &Authority,
    email: Option<&str>,
) -> Result<Account, Failure> {
    let directory = &authority.directory;
    let key = account_key(authority);
    if let Some(stored) = storage.account(&key)
        && let Ok(credentials) = serde_json::from_slice::<AccountCredentials>(&stored)
    {
        let builder = Account::builder_with_http(Box::new(client(authority)?));
        let account = builder.from_credentials(credentials).await;
        return account.map_err(|error| Failure::of_authority(directory, &error));
    }
    // With the lock, two processes create only one account.
    let Some(_lock) = storage.lock(&key).map_err(|error| Failure::of_file("the account", &error))? else {
        return Err(Failure::new(
            FailureKind::Busy,
            "another process registers the account",
            "it is tried again",
        ));
    };
    let external =
        authority.external.as_ref().map(|given| ExternalAccountKey::new(given.id.clone(), &given.key));
    let contact = email.map(|email| format!("mailto:{email}"));
    let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
    let new = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
    let mut tries = NONCE_TRIES;
    let (account, credentials) = loop {
        let builder = Account::builder_with_http(Box::new(client(authority)?));
        match builder.create(&new, directory.clone(), external.as_ref()).await {
            Ok(made) => break made,
            Err(error) if tries > 0 && Failure::is_nonce(&error) => tries -= 1,
            Err(error) => return Err(Failure::of_authority(directory, &error)),
        }
    };
    let text = serde_json::to_vec_pretty(&credentials)
        .map_err(|error| Failure::of_file("the account", &error.into()))?;
    storage.put_account(&key, &text).map_err(|error| Failure::of_file("the account", &error))?;
    tracing::info!(%directory, account = account.id(), "registered with the authority");
    Ok(account)
}

/// How often we repeat a request after the authority has refused its nonce. Before each of these tries, the
/// client library itself has repeated the request three times.
pub(crate) const NONCE_TRIES: u32 = 5;

/// Removes the stored account if the error says that the authority does not know the account. The next order
/// then registers a new account.
pub(crate) fn forget_if_unknown(storage: &Storage, authority: &Authority, error: &AcmeError) {
    if let AcmeError::Api(problem) = error
        && problem.r#type.as_deref().is_some_and(|word| word.ends_with(":accountDoesNotExist"))
    {
        storage.forget_account(&account_key(authority));
    }
}

fn client(authority: &Authority) -> Result<Client, Failure> {
    Client::new(authority.roots.as_deref()).map_err(|error| {
        Failure::new(
            FailureKind::Local,
            format!("{}: {}{}", authority.directory, error.file_shown(), error.problem),
            error.fix,
        )
    })
}

/// The name of an account's file. It depends on the authority's directory and, if the authority requires
/// an external account (RFC 8555, section 7.3.4), on the id of that account.
fn account_key(authority: &Authority) -> String {
    let mut hash = Sha256::new();
    hash.update(authority.directory.as_bytes());
    if let Some(external) = &authority.external {
        hash.update([0]);
        hash.update(external.id.as_bytes());
    }
    let host = authority.directory.split("://").nth(1).unwrap_or_default();
    let host: String =
        host.chars().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.')).collect();
    let digest: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{digest}", host.trim_start_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use foregate_proxy::settings::automatic::ExternalAccount;

    #[test]
    fn accounts_of_two_directories_are_apart() {
        let one = Authority::new("https://ca.test:14000/dir");
        let other = Authority::new("https://ca.test:14000/staging");
        let external =
            Authority { external: Some(ExternalAccount { id: "a".into(), key: Vec::new() }), ..one.clone() };
        assert!(account_key(&one).starts_with("ca.test-"));
        assert_ne!(account_key(&one), account_key(&other));
        assert_ne!(account_key(&one), account_key(&external));
        assert!(!account_key(&Authority::new("https://../x")).starts_with('.'));
    }
}
