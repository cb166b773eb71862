use foregate_module::FieldsMut;
use foregate_wire::connection;

use super::*;

fn request(names: &[&str]) -> Request {
    let mut request = Request::new();
    for name in names {
        request.head.headers.push(name.as_bytes(), b"theirs");
    }
    request.sent = request.head.headers.arena_len();
    request
}

fn fields(request: &Request) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let headers = request.head.headers.iter();
    headers.map(|field| format!("{}={}", text(field.name), text(field.value))).collect()
}

#[test]
fn no_spelling_of_a_name_that_is_set_stays() {
    let mut one = request(&["X_Team", "accept", "X-TEAM-A", "x_team-a"]);
    one.set(b"x-team", b"ours");
    assert_eq!(fields(&one), ["accept=theirs", "X-TEAM-A=theirs", "x_team-a=theirs", "x-team=ours"]);
    one.set(b"x-team-a", b"ours");
    assert_eq!(fields(&one), ["accept=theirs", "X-TEAM-A=ours", "x-team=ours"]);
    let mut one = request(&["X-Real-IP", "x_real_ip", "x-real_ip"]);
    one.set(b"x_real_ip", b"ours");
    assert_eq!(fields(&one), ["x_real_ip=ours"]);
}

#[test]
fn no_spelling_of_a_name_that_is_removed_stays() {
    let mut one = request(&["X_Team", "x-team", "X_Teams"]);
    one.remove(b"x-team");
    assert_eq!(fields(&one), ["X_Teams=theirs"]);
    let mut one = request(&["X-Real-IP", "x-real_ip"]);
    one.remove(b"x_real_ip");
    assert!(fields(&one).is_empty());
}

#[test]
fn no_spelling_of_what_origins_are_told_of_the_client_stays() {
    let mut one = request(&["X_Forwarded_For", "x-forwarded_proto", "x_other"]);
    one.append(b"x_forwarded_host", b"a module's");
    connection::drop_misspelt_names_before(&mut one.head.headers, one.sent);
    assert_eq!(fields(&one), ["x_other=theirs", "x_forwarded_host=a module's"]);
    let mut one = request(&["X_Forwarded_For"]);
    one.append(b"x-forwarded-for", b"ours");
    assert_eq!(fields(&one), ["x-forwarded-for=ours"]);
}
