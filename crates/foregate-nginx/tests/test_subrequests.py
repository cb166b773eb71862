"""Subrequests of NGINX whose own location has a route."""

from harness import Case, response

SERVER = """
    log_format told "$http_x_kept|$http_x_part|$http_cookie";
    server {
        listen 127.0.0.1:PORT; server_name example.com; root html; access_log told.log told;
        location /page { ssi on; ssi_types text/plain; }
        location /part/ { foregate part.kdl; proxy_pass http://ORIGIN; proxy_set_header Accept-Encoding ""; }
        location /plain/ { proxy_pass http://ORIGIN; }
        location /guarded/ { auth_request /part/check; proxy_pass http://ORIGIN; }
    }
"""
PART = 'headers { request { set "x-part" "1"; set "x-kept" "changed"; remove "x-gone" "cookie"; add "x-more" "2"; } }\n'
SENT = [("X-Kept", "1"), ("X-Gone", "1"), ("Cookie", "a=b"), ("Cookie", "c=d"), ("X-More", "1"), ("X-Forwarded-For", "192.0.2.1")]
LOGGED = "1|-|a=b; c=d"


class Fields(Case):
    def start_site(self):
        self.site = self.origin(lambda head: response(head.split()[1].encode()))
        page = b'[<!--# include virtual="/part/1" wait="yes" -->|<!--# include virtual="/part/2" wait="yes" -->|<!--# include virtual="/plain/3" -->]'
        return self.start(SERVER, {"part.kdl": PART, "html/page.txt": page}, origin=self.site)

    def sent(self, path):
        """The fields that the origin got with a request."""
        (head,) = [head for head in self.site.requests if head.split()[1] == path]
        fields = [line.split(": ", 1) for line in head.split("\r\n")[1:] if line]
        return [(name.lower(), value) for name, value in fields]

    def changed(self, path):
        fields = self.sent(path)
        for field in [("x-part", "1"), ("x-kept", "changed"), ("x-more", "1"), ("x-more", "2"), ("x-forwarded-for", "192.0.2.1")]:
            self.assertEqual(fields.count(field), 1, f"{field} of {path}: {fields}")
        for name in ["x-gone", "cookie"]:
            self.assertNotIn(name, [found for found, _ in fields], path)

    def untouched(self, path):
        fields = self.sent(path)
        for name, value in SENT:
            self.assertEqual(fields.count((name.lower(), value)), 1, f"{name} of {path}: {fields}")
        self.assertEqual([value for name, value in fields if name in ["x-part", "x-more"]], ["1"], path)

    def test_steps_change_the_fields_of_an_include_alone(self):
        nginx = self.start_site()
        got = nginx.get("/page.txt", headers=SENT)
        self.assertEqual((got.status, got.body), (200, b"[/part/1|/part/2|/plain/3]"), nginx.log())
        self.changed("/part/1")
        self.changed("/part/2")
        self.untouched("/plain/3")
        self.assertEqual(nginx.lines("told.log", 1), [LOGGED])

    def test_steps_change_the_fields_of_an_authentication_alone(self):
        nginx = self.start_site()
        self.assertEqual(nginx.get("/guarded/x", headers=SENT).body, b"/guarded/x", nginx.log())
        self.changed("/part/check")
        self.untouched("/guarded/x")
        self.assertEqual(nginx.lines("told.log", 1), [LOGGED])

    def test_many_fields_are_all_handed_on(self):
        """More than fit one part of NGINX's list."""
        nginx = self.start_site()
        many = [(f"X-Field-{number}", str(number)) for number in range(60)]
        self.assertEqual(nginx.get("/guarded/x", headers=many).body, b"/guarded/x")
        for path in ["/part/check", "/guarded/x"]:
            for name, value in many:
                self.assertEqual(self.sent(path).count((name.lower(), value)), 1, f"{name} of {path}")
