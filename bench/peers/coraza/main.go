// A reverse proxy with Coraza, for the macro benchmark.
//
//	bench-coraza LISTEN ORIGIN [RULES]
//
// RULES is a file of SecLang; without it there is no firewall.
package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"runtime"

	"github.com/corazawaf/coraza/v3"
	coraza_http "github.com/corazawaf/coraza/v3/http"
	"github.com/corazawaf/coraza/v3/types"
)

func main() {
	if err := serve(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench-coraza:", err)
		os.Exit(1)
	}
}

func serve(arguments []string) error {
	if len(arguments) < 2 {
		return fmt.Errorf("usage: bench-coraza LISTEN ORIGIN [RULES]")
	}
	// As all proxies of the benchmark: one thread that does the work.
	runtime.GOMAXPROCS(1)
	origin := &url.URL{Scheme: "http", Host: arguments[1]}
	proxy := httputil.NewSingleHostReverseProxy(origin)
	proxy.Transport = &http.Transport{MaxIdleConns: 256, MaxIdleConnsPerHost: 256, DisableCompression: true}
	var handler http.Handler = proxy
	if len(arguments) > 2 {
		config := coraza.NewWAFConfig().
			WithDirectivesFromFile(arguments[2]).
			// Matches are formatted and thrown away, as logging costs each engine something else.
			WithErrorCallback(func(match types.MatchedRule) { _ = match.ErrorLog() })
		waf, err := coraza.NewWAF(config)
		if err != nil {
			return err
		}
		handler = coraza_http.WrapHandler(waf, proxy)
	}
	listener, err := net.Listen("tcp", arguments[0])
	if err != nil {
		return err
	}
	return http.Serve(listener, handler)
}
