"""What the guide says about moving from NGINX is what happens."""

import gzip
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

    def test_who_answers_is_chosen(self):
        (choosing,) = snippets("nginx choosing")
        route = next(text for text in snippets("kdl nginx") if "canary" in text)
        origins = {name: self.origin(lambda head, name=name: response(name.encode())) for name in ["app", "app-v2"]}
        http = choosing.replace("127.0.0.1:8080", "127.0.0.1:PORT")
        for server, name in [("127.0.0.1:3000", "app"), ("127.0.0.1:3001", "app-v2")]:
            http = http.replace(server, f"127.0.0.1:{origins[name].port}")
        nginx = self.start(http, {"shop.kdl": route})
        self.assertEqual(nginx.get("/beta/a").body, b"app-v2", nginx.log())
        self.assertEqual(nginx.get("/a", headers=[("Cookie", "canary=never")]).body, b"app")
        self.assertEqual(nginx.get("/a", headers=[("Cookie", "canary=always")]).body, b"app-v2")

    def test_passwords_are_verified_on_threads(self):
        (threads,) = snippets("nginx threads")
        main, http = re.match(r"(thread_pool .*;)\n\nhttp \{(.*)\}\n$", threads, re.S).groups()
        route = next(text for text in snippets("kdl nginx") if "basic-auth" in text)
        origin = self.origin(lambda head: response(head.encode()))
        nginx = self.start(http + "server { listen 127.0.0.1:PORT; foregate route.kdl; location / { proxy_pass http://ORIGIN; } }",
                           {"route.kdl": route}, origin=origin, main=main)
        self.assertEqual(nginx.get("/a").status, 401)
        self.assertEqual(nginx.get("/a", headers=[("Authorization", "Basic YWRhOndyb25n")]).status, 401)

    def test_bodies_of_requests(self):
        route = next(text for text in snippets("kdl nginx") if "decompress { requests" in text)
        bodies = []
        origin = self.origin(lambda head: bodies.append(re.search("(?i)content-length: ([0-9]+)", head).group(1)) or response(b"taken"))
        nginx = self.start("server { listen 127.0.0.1:PORT; foregate route.kdl; location / { proxy_pass http://ORIGIN; } }",
                           {"route.kdl": route}, origin=origin)
        for body in [b"x" * 100, b"".join(b"%d\n" % number for number in range(150_000))]:
            got = nginx.get("/a", "POST", headers=[("Content-Encoding", "gzip")], body=gzip.compress(body))
            self.assertEqual((got.body, bodies[-1]), (b"taken", str(len(body))))

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
