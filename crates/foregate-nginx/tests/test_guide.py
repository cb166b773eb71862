"""What the guide says about moving from NGINX is what happens."""

import os
import re
import subprocess
import unittest

from harness import Case, MODULE, MODULES, NGINX, response

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..")


def snippets(kind):
    with open(os.path.join(ROOT, "docs/guide/moving-from-nginx.md")) as file:
        return re.findall(rf"^```{kind}\n(.*?)^```$", file.read(), re.M | re.S)


class Guide(Case):
    def test_the_configuration_is_taken(self):
        whole = [text for text in snippets("nginx") if "load_module" in text]
        self.assertEqual(len(whole), 1)
        route = next(text for text in snippets("kdl nginx") if "redirect" in text)
        nginx = self.nginx("", {"shop.kdl": route, "api.kdl": route})
        text = whole[0].replace("modules/ngx_http_foregate_module.so", MODULE)
        nginx.write("nginx.conf", f"pid nginx.pid; error_log error.log;\n{text}")
        checked = nginx.check()
        self.assertEqual(checked.returncode, 0, checked.stderr)

    def test_the_route_does_what_it_says(self):
        route = next(text for text in snippets("kdl nginx") if "redirect" in text)
        origin = self.origin(lambda head: response(head.encode()))
        nginx = self.start("server { listen 127.0.0.1:PORT; server_name shop.example.com; foregate shop.kdl; location / { proxy_pass http://ORIGIN; } }",
                           {"shop.kdl": route}, origin=origin)
        got = nginx.get("/old/a")
        self.assertEqual((got.status, got.get("location")), (301, "/new/a"))
        self.assertEqual(nginx.get("/x/.git/config").status, 404)
        got = nginx.get("/a", headers=[("X-Debug", "1")])
        self.assertEqual((got.status, got.get("x-frame-options"), got.get("server")), (200, "deny", None))
        self.assertNotIn("x-debug", got.body.decode().lower())

    def test_compressed_bodies(self):
        fragments = [text for text in snippets("nginx") if "load_module" not in text]  # not those of `nginx asking`
        self.assertEqual(len(fragments), 2)
        route = next(text for text in snippets("kdl nginx") if "decompress" in text)
        origin = self.origin(lambda head: response(b"x"))
        nginx = self.start(f"server {{ listen 127.0.0.1:PORT; foregate route.kdl; location / {{ proxy_pass http://ORIGIN; {''.join(fragments)} }} }}",
                           {"route.kdl": route}, origin=origin)
        self.assertEqual(nginx.get("/", headers=[("Accept-Encoding", "gzip")]).status, 200)
        self.assertNotIn("accept-encoding", origin.requests[0].lower())

    def test_others_are_asked(self):
        (asking,) = snippets("nginx asking")
        route = next(text for text in snippets("kdl nginx") if "forward-auth" in text)
        auth = self.origin(lambda head: response(b"gone away" if "/pages/404.html" in head else b"", fields=[("X-User", "anna")]))
        origin = self.origin(lambda head: response(head.encode(), status="404 Not Found" if "/nothing" in head else "200 OK"))
        nginx = self.start(f"""upstream app {{ server 127.0.0.1:{auth.port}; }}
            server {{ listen 127.0.0.1:PORT; foregate route.kdl; {asking} location / {{ proxy_pass http://ORIGIN; }} }}""",
            {"route.kdl": route}, origin=origin)
        self.assertIn(b"X-User: anna".lower(), nginx.get("/a").body.lower())
        self.assertTrue(auth.requests[0].startswith("GET /verify HTTP"))
        self.assertIn("\r\nHost: example.com\r\n", auth.requests[0])
        self.assertEqual(nginx.get("/nothing").body, b"gone away")

    def test_commands_are_targets(self):
        with open(os.path.join(ROOT, "Makefile")) as file:
            makefile = file.read()
        for text in snippets("sh"):
            for target in re.findall(r"^make (\S+)", text, re.M):
                self.assertIn(f"\n{target}:", makefile)

    @unittest.skipUnless(os.path.exists(os.path.join(MODULES, "ngx_http_lua_module.so")) and not os.environ.get("NO_LUA"),
                         "NGINX has no Lua here")
    def test_lua_switches(self):
        (code,) = snippets("lua")
        nginx = self.start(f"""
            lua_package_path "/usr/share/lua/5.1/?.lua;;";
            server {{ listen 127.0.0.1:PORT; foregate route.kdl off=security-headers;
                location / {{ access_by_lua_block {{ {code} ngx.header["x-on"] = on }} content_by_lua_block {{ ngx.say("x") }} }}
                location /off {{ content_by_lua_block {{ ngx.say("x") }} }} }}""",
            {"route.kdl": "security-headers\n"}, extra_modules=["ndk_http_module.so", "ngx_http_lua_module.so"])
        got = nginx.get("/")
        self.assertEqual((got.get("x-on"), got.get("x-content-type-options")), ("1", "nosniff"), nginx.log())
        self.assertEqual(nginx.get("/off").get("x-content-type-options"), None)
