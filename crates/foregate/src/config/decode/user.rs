//! The user that the process changes to.

use std::fs;

use foregate_config::value::{self, Wrong};
use foregate_config::{Decoder, Item};
use foregate_proxy::settings::ProcessUser;
use foregate_rules::nearest;

const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

/// Reads `user NAME group=NAME`.
pub(super) fn decode(decoder: &mut Decoder<'_>, item: Item<'_>) -> Option<ProcessUser> {
    let users = fs::read_to_string(USERS).unwrap_or_default();
    let groups = fs::read_to_string(GROUPS).unwrap_or_default();
    let user = decoder.read(item, 0, |value| find_user(&users, &groups, value::string(value)?))?;
    let group = decoder.prop(item, "group", |value| find_group(&groups, value::string(value)?));
    Some(match group {
        Some(gid) => ProcessUser { gid, ..user },
        None => user,
    })
}

/// Finds a user in the text of `/etc/passwd`. The lines are NAME:PASSWORD:UID:GID:...
fn find_user(users: &str, groups: &str, name: &str) -> Result<ProcessUser, Wrong> {
    let rows = || users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let found = rows().find_map(|row| match *row.as_slice() {
        [found, _, uid, gid, ..] if found == name => Some((id(uid)?, id(gid)?)),
        _ => None,
    });
    let Some((uid, gid)) = found else {
        let wrong = Wrong::new(format!("{USERS} has no user of this name"));
        let names: Vec<&str> = users.lines().filter_map(|line| line.split(':').next()).collect();
        return Err(match nearest(name, names.into_iter()) {
            Some(near) => wrong.help(format!("did you mean \"{near}\"?")),
            None => wrong.help(format!("`useradd --system --shell /usr/sbin/nologin {name}` makes it")),
        });
    };
    let is_member =
        |row: &[&str]| row.get(3).is_some_and(|members| members.split(',').any(|member| member == name));
    let further = groups.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let further = further.filter(|row| is_member(row)).filter_map(|row| id(row.get(2)?));
    let mut all: Vec<u32> = std::iter::once(gid).chain(further).collect();
    all.sort_unstable();
    all.dedup();
    Ok(ProcessUser { name: name.into(), uid, gid, groups: all.into() })
}

/// Finds a group in the text of `/etc/group`. The lines are NAME:PASSWORD:GID:MEMBERS.
fn find_group(groups: &str, name: &str) -> Result<u32, Wrong> {
    let found =
        groups.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|row| row.first() == Some(&name));
    let gid = found.and_then(|row| id(row.get(2)?));
    gid.ok_or_else(|| Wrong::new(format!("{GROUPS} has no group of this name")))
}

/// Parses the id of a user or group. The largest number is refused, because it means "no change" in system calls.
fn id(text: &str) -> Option<u32> {
    text.parse().ok().filter(|id| *id != u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: &str = "root:x:0:\nweb:x:33:\ntls:x:44:bob,web\nother:x:45:bob\n";

    #[test]
    fn users_have_their_groups() {
        let users = "root:x:0:0:root:/root:/bin/sh\nweb:x:12:33::/:/usr/sbin/nologin\nbroken\n";
        let user = find_user(users, GROUP, "web").unwrap();
        assert_eq!((user.uid, user.gid, &*user.groups), (12, 33, &[33, 44][..]));
        assert!(
            find_user(users, GROUP, "wen").unwrap_err().help.is_some_and(|help| help.contains("\"web\""))
        );
        assert!(
            find_user(users, GROUP, "zzzzzz").unwrap_err().help.is_some_and(|help| help.contains("useradd"))
        );
        assert_eq!((find_group(GROUP, "other").ok(), find_group(GROUP, "none").ok()), (Some(45), None));
    }
}
