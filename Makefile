# `make help` explains every target.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

# Built files live outside of the checkout, so that several checkouts can be cleaned apart and a
# checkout can be copied.
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/foregate
export CARGO_TARGET_DIR ?= $(CACHE)/target

# Programs that the checks need and that are not there otherwise.
TOOLS := $(CACHE)/tools

BINARY := $(CARGO_TARGET_DIR)/release/foregate
CARGO_DENY_VERSION := 0.20.2
# The target of `make static`.
STATIC_TARGET := $(shell uname -m)-unknown-linux-musl

# Seconds for each fuzz target in `make fuzz`.
FUZZ_SECONDS ?= 60
# The length of `make soak`.
SOAK_SECONDS ?= 60
# Arguments passed on by `make run`, `make cases`, `make test-waf`, `make fuzz`, `make bench`,
# `make bench-waf`, `make bench-firewall`, `make bench-html` and `make bench-calm`.
ARGS ?=

##@ Use

.PHONY: run
run: release ## Build and start the quickstart: proxy, HTTP/2, TLS and a demo origin (needs Rust, a C compiler, make)
	$(BINARY) quickstart $(ARGS)

.PHONY: release
release: toolchain ## Build the optimised binary
	cargo build --locked --release -p foregate

.PHONY: static
static: toolchain ## Build the same as a static binary, with musl instead of the system's C library, and print where it is (installs musl-tools)
	@scripts/install-packages musl-gcc:musl-tools
	@rustup target list --installed | grep -qx $(STATIC_TARGET) || rustup target add $(STATIC_TARGET)
	cargo build --locked --release --target $(STATIC_TARGET) -p foregate
	@echo $(CARGO_TARGET_DIR)/$(STATIC_TARGET)/release/foregate

.PHONY: install
install: release ## Install the binary into PREFIX/bin (default /usr/local), its symbols into PREFIX/bin/.debug
	scripts/install $(BINARY) $(DESTDIR)$(or $(PREFIX),/usr/local)/bin

.PHONY: deb
deb: release ## Build a Debian package: binary, units, manual pages, completions, a configuration (FOLDER, default the build's)
	scripts/deb $(BINARY) $(or $(FOLDER),$(CARGO_TARGET_DIR)/debian)

##@ Check

.PHONY: test
test: ## Everything that has to pass before a merge, counted; installs what is missing
	@$(MAKE) packages toolchain
	@MAKE="$(MAKE)" scripts/test fmt-check deny lint unit test-names harness cases \
		check-install --lanes 3 nginx upgrades test-acme test-browser test-shield test-admin test-reserve test-traces test-fallback \
		test-editors test-waf test-systemd test-alerts

.PHONY: check-deb
check-deb: release ## Install, start, reload, upgrade, remove and purge the Debian package in a clean root (needs root)
	scripts/check-deb $(BINARY) $(CACHE)/debian

.PHONY: check-install
check-install: release ## Check that the installed binary is small, runs, and leads to its symbols
	scripts/check-install $(BINARY)

.PHONY: fmt-check
fmt-check: ## Check the formatting
	cargo fmt --all --check
	cargo fmt --manifest-path bench/Cargo.toml --all --check
	cargo fmt --manifest-path bench/misbehaving/Cargo.toml --check
	cargo fmt --manifest-path bench/slowdisk/Cargo.toml --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check

.PHONY: fmt
fmt: ## Format the code
	cargo fmt --all
	cargo fmt --manifest-path bench/Cargo.toml --all
	cargo fmt --manifest-path bench/misbehaving/Cargo.toml
	cargo fmt --manifest-path bench/slowdisk/Cargo.toml
	cargo fmt --manifest-path fuzz/Cargo.toml

.PHONY: lint
lint: toolchain ## Clippy and rustdoc; a warning is an error
	cargo clippy --locked --workspace --all-targets --features foregate-nginx/probe -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --locked --workspace --no-deps --document-private-items --quiet

.PHONY: deny
deny: cargo-deny ## Check licenses, sources and banned crates (deny.toml)
	@# cargo-deny reads the sources of every platform; once they are here this asks nobody.
	cargo fetch --locked --quiet
	PATH="$(TOOLS)/bin:$$PATH" cargo deny --offline --locked check bans licenses sources

.PHONY: audit
audit: cargo-deny ## Compare the dependencies with the advisory database (needs network)
	PATH="$(TOOLS)/bin:$$PATH" cargo deny --locked check advisories

.PHONY: unit
unit: toolchain ## Unit tests, properties, fuzz corpora, documentation snippets, rules of the house
	cargo test --locked --workspace --no-fail-fast

.PHONY: test-names
test-names: toolchain ## Resolve names by nameservers of others (installs dnsmasq and Knot DNS)
	@scripts/install-packages dnsmasq:dnsmasq-base knotd:knot
	cargo test --locked --workspace --lib -- --ignored a_nameserver_of_others

.PHONY: harness
harness: toolchain ## Tests of the benchmark's own programs, which measure nothing
	python3 -B -m unittest discover -s bench/tests
	cargo test --locked --manifest-path bench/Cargo.toml

.PHONY: snippets
snippets: toolchain ## Run the snippets of README and docs/ only
	cargo test --locked --workspace --test documentation --test reference

.PHONY: disk-faults
disk-faults: toolchain ## The disk tier of the cache: 1,000 kills, 10,000 flipped bits, a million objects
	FOREGATE_KILLS=1000 FOREGATE_FLIPS=10000 FOREGATE_OBJECTS=1000000 cargo test --locked --release -p foregate-disk -- --nocapture

.PHONY: cases
cases: release ## Text cases against the release binary (ARGS: parts of their names)
	@# With the tests' choice of crates: alone it would build its dependencies again with other features.
	cargo build --locked --quiet --workspace --bins --tests
	$(CARGO_TARGET_DIR)/debug/foregate-cases --binary $(BINARY) $(ARGS)

.PHONY: case
case: toolchain ## The same for the short loop: a build without link-time optimisation, in seconds (ARGS: parts of names)
	cargo build --locked --quiet --profile cases -p foregate -p foregate-cases
	$(CARGO_TARGET_DIR)/cases/foregate-cases --binary $(CARGO_TARGET_DIR)/cases/foregate $(ARGS)

.PHONY: test-acme
test-acme: release ## Certificates by ACME, from a real authority: Pebble (ARGS: names of tests; installs Go, Pebble, Knot DNS and openssl)
	@scripts/install-packages go:golang-go knotd:knot openssl python3
	CACHE=$(CACHE) BINARY=$(BINARY) tests/acme/run $(ARGS)

.PHONY: test-admin
test-admin: release ## The admin interface against its OpenAPI document, by schemathesis (EXAMPLES: requests for each operation; pip fetches it)
	@python3 -c 'import ensurepip' 2>/dev/null || scripts/install-packages /no/ensurepip:python3-venv
	CACHE=$(CACHE) BINARY=$(BINARY) tests/admin/run $(ARGS)

.PHONY: test-browser
test-browser: release ## The dashboard and the quickstart's page in a headless Chromium: figures, orders, accessibility by axe-core (installs Chromium, Node and two packages)
	@scripts/install-packages chromium node:nodejs npm openssl
	CACHE=$(CACHE) tests/dashboard/run $(BINARY) $(ARGS)

.PHONY: test-editors
test-editors: release ## The JSON Schema against a validator, and the language server as an editor talks to it (ARGS: names of tests; pip fetches the validator)
	@python3 -c 'import ensurepip' 2>/dev/null || scripts/install-packages /no/ensurepip:python3-venv
	CACHE=$(CACHE) BINARY=$(BINARY) tests/editors/run $(ARGS)

.PHONY: test-fallback
test-fallback: release ## Everything falls back to a real NGINX: addresses, uploads, WebSocket, TLS, shares; comparing by a tap; the chapter "Leaving NGINX" (installs NGINX, curl, openssl)
	@scripts/install-packages nginx python3 curl openssl
	tests/fallback/run $(BINARY)
	tests/fallback/tap $(BINARY)
	tests/fallback/odd $(BINARY)
	tests/fallback/walk $(BINARY)

.PHONY: test-traces
test-traces: release ## Spans as a receiver decodes them with the messages of OpenTelemetry (ARGS: names of tests; pip fetches these)
	@python3 -c 'import ensurepip' 2>/dev/null || scripts/install-packages /no/ensurepip:python3-venv
	CACHE=$(CACHE) BINARY=$(BINARY) tests/traces/run $(ARGS)

.PHONY: test-reserve
test-reserve: release ## The reserve of the cache in a real object storage: versitygw (ARGS: names of tests; installs Go and versitygw)
	@scripts/install-packages go:golang-go python3
	CACHE=$(CACHE) BINARY=$(BINARY) tests/reserve/run $(ARGS)

.PHONY: test-shield
test-shield: release ## The shield of the cache: three proxies and one origin; kills, hangs, loops, purges, strangers (ARGS: names of tests)
	@scripts/install-packages python3
	BINARY=$(BINARY) tests/shield/run $(ARGS)

.PHONY: test-alerts
test-alerts: ## Run the alerts of examples/ over made-up series (installs promtool)
	@scripts/install-packages promtool:prometheus
	promtool check rules examples/prometheus-alerts.yml
	promtool test rules tests/alerts/alerts.yml

.PHONY: test-waf
test-waf: release ## The regression files of the OWASP Core Rule Set, over sockets (ARGS: 942100 or 942100-3; installs Go)
	@scripts/install-packages go:golang-go
	crs="$$(scripts/crs)" && $(BINARY) waf test --rules "$$crs/rules/@coraza.conf-recommended" \
		--rules "$$crs/rules/@crs-setup.conf.example" --rules tests/crs/setup.conf --rules "$$crs/rules/@owasp_crs/*.conf" \
		--overrides tests/crs/overrides.yaml $(addprefix --only=,$(ARGS)) "$$crs/tests"

.PHONY: test-upgrades
test-upgrades: toolchain ## Upgrades, crashes and bad new versions under load (ARGS: --upgrades N, --tunnels N, --reloads N, --only PART; some ten minutes)
	@scripts/install-packages python3 openssl
	cargo build --locked --quiet --profile cases -p foregate --features faults
	cp $(CARGO_TARGET_DIR)/cases/foregate $(CARGO_TARGET_DIR)/cases/foregate-faulty
	cargo build --locked --quiet --profile cases -p foregate
	tests/upgrades/run $(CARGO_TARGET_DIR)/cases/foregate $(CARGO_TARGET_DIR)/cases/foregate-faulty $(ARGS)

.PHONY: soak
soak: toolchain ## Mixed load while an origin restarts and the file is reloaded: nothing fails or grows (SOAK_SECONDS, default 60; 1200 for all)
	@scripts/install-packages python3 openssl curl
	cargo build --locked --quiet --profile cases -p foregate
	tests/soak/run $(CARGO_TARGET_DIR)/cases/foregate --seconds $(SOAK_SECONDS) $(ARGS)
.PHONY: upgrades
upgrades: release ## The short part of these tests, as `make test` runs it: three upgrades with 60 tunnels, state, broken files, the supervisor, 30 gradual reloads
	@scripts/install-packages python3 openssl
	tests/upgrades/run $(BINARY) --upgrades 3 --tunnels 60 --only in_a_row --only pinned_core --only many_gradual --only inherited --only kept --only succession

.PHONY: test-reloads
test-reloads: release ## 1,000 gradual reloads under load: no request fails, nothing grows (some 25 minutes; ARGS: --reloads N)
	@scripts/install-packages python3 openssl
	tests/upgrades/run $(BINARY) --only many_gradual --reloads 1000 $(ARGS)

.PHONY: test-systemd
test-systemd: release ## The shipped units under a real systemd, in namespaces of its own (needs root; installs systemd)
	@scripts/install-packages python3 systemd-analyze:systemd /lib/systemd/systemd:systemd unshare:util-linux ip:iproute2 strip:binutils
	tests/systemd/run $(BINARY)

.PHONY: test-html
test-html: toolchain ## Rewrite the inputs that html5lib tests tokenizers with, split anywhere (pip fetches them; some minutes)
	HTML5LIB="$$(CACHE=$(CACHE) scripts/html5lib)" cargo test --locked -p foregate-html --test html5lib -- --include-ignored --nocapture

.PHONY: conformance
conformance: release ## h2spec, gRPC interop, a TLS scan and go-ftw (installs Go programs and a Python package into the cache)
	@scripts/install-packages go:golang-go python3 curl openssl
	@python3 -c 'import ensurepip' 2>/dev/null || scripts/install-packages /no/ensurepip:python3-venv
	CACHE=$(CACHE) BINARY=$(BINARY) conformance/run

.PHONY: test-cache-suite
test-cache-suite: release ## The suite of cache-tests.fyi, over sockets (installs Node; npm fetches the suite from GitHub)
	@scripts/install-packages node:nodejs npm
	CACHE=$(CACHE) BINARY=$(BINARY) conformance/cache-tests

.PHONY: fuzz
fuzz: toolchain ## Fuzz each target for FUZZ_SECONDS (default 60; ARGS: names of targets); installs cargo-fuzz
	@scripts/install-packages c++:g++
	CACHE=$(CACHE) scripts/fuzz $(FUZZ_SECONDS) $(ARGS)

.PHONY: bench
bench: release ## Compare with NGINX (also with Lua), HAProxy and Pingora; prints CPU per request and ratios (takes a while)
	@scripts/install-packages nginx /usr/lib/nginx/modules/ngx_http_lua_module.so:libnginx-mod-http-lua \
		/usr/share/lua/5.1/resty/core.lua:lua-resty-core haproxy openssl python3 pkg-config /usr/include/openssl/ssl.h:libssl-dev
	@$(MAKE) nginx-packages
	FOREGATE=$(BINARY) FOREGATE_NGINX_MODULE=$$(scripts/nginx-module) bench/run $(ARGS)

.PHONY: bench-waf
bench-waf: release ## Compare the firewall with ModSecurity in NGINX, Coraza and zentinel-modsec: what each adds to a request (takes a while)
	@scripts/install-packages nginx /usr/lib/nginx/modules/ngx_http_modsecurity_module.so:libnginx-mod-http-modsecurity \
		openssl python3 go:golang-go
	CRS="$$(scripts/crs)" FOREGATE=$(BINARY) bench/run --only 'waf-*' $(ARGS)

.PHONY: bench-firewall
bench-firewall: release ## What the firewall does to other requests: start, reloads, heavy requests among plain ones (installs Go)
	@scripts/install-packages python3 go:golang-go
	CRS="$$(scripts/crs)" FOREGATE=$(BINARY) bench/firewall $(ARGS)

.PHONY: bench-calm
bench-calm: release ## Attack the proxy while it serves others: latency, failures, memory (some three minutes)
	FOREGATE=$(BINARY) bench/calm $(ARGS)

.PHONY: bench-upgrade
bench-upgrade: release ## Upgrade Foregate, NGINX and HAProxy under the same load: memory, failed requests, tunnels (three minutes; ARGS: --sites N)
	@scripts/install-packages nginx haproxy openssl python3
	FOREGATE=$(BINARY) bench/upgrade $(ARGS)

.PHONY: bench-compare
bench-compare: release ## What fallback and comparison cost, a shadow that stalls, sets of requests, beside a real NGINX (three minutes; ARGS: --only PART)
	@scripts/install-packages nginx python3
	FOREGATE=$(BINARY) bench/compare $(ARGS)

.PHONY: bench-cache
bench-cache: release ## CPU for hits of the cache and static files, beside NGINX and Varnish; a slow disk (for root, some fifteen minutes; installs both; ARGS: --only ram-1k)
	@scripts/install-packages nginx varnishd:varnish
	FOREGATE=$(BINARY) bench/cache $(ARGS)

.PHONY: bench-html
bench-html: release ## Rewrite HTML in Foregate and in NGINX: memory, time to first byte, CPU (some four minutes; ARGS: --full, --only soak)
	@scripts/install-packages python3
	@$(MAKE) nginx-packages
	FOREGATE=$(BINARY) FOREGATE_NGINX_MODULE=$$(scripts/nginx-module) bench/html $(ARGS)

##@ NGINX

.PHONY: nginx-module
nginx-module: nginx-packages ## Build the module for the installed NGINX, or for VERSION=1.28.3, and print where it is
	@scripts/nginx-module $(VERSION)

.PHONY: nginx
nginx: nginx-packages ## Test the module in the installed NGINX, as `make test` does (two minutes; ARGS: names of tests)
	PARTS=installed RELOADS=100 scripts/test-nginx $(ARGS)

.PHONY: test-nginx
test-nginx: nginx-packages ## Test the module in the installed NGINX and in 1.28.3, then under memcheck (some ten minutes; ARGS: names of tests)
	scripts/test-nginx $(ARGS)

##@ Other

.PHONY: docs
docs: toolchain ## Build the API documentation of our crates
	cargo doc --locked --workspace --no-deps --document-private-items

.PHONY: packages
packages: ## Install the Debian packages that the tests use, when missing
	@scripts/install-packages cc:gcc /usr/include/stdio.h:libc6-dev curl openssl python3

.PHONY: clean
clean: ## Remove what was built
	cargo clean

.PHONY: help
help: ## Explain the targets
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: toolchain
toolchain:
	@scripts/need-toolchain
	@scripts/claim-target

.PHONY: nginx-packages
nginx-packages: toolchain
	@scripts/install-packages nginx python3 /usr/share/nginx/src/configure:nginx-dev make cc:gcc

.PHONY: cargo-deny
cargo-deny:
	@PATH="$(TOOLS)/bin:$$PATH" command -v cargo-deny >/dev/null 2>&1 || \
	  cargo install --quiet --locked --root $(TOOLS) --version $(CARGO_DENY_VERSION) cargo-deny
