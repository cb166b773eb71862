// Runs the regression files of the OWASP Core Rule Set with the runner of its project, go-ftw, against a proxy that
// listens here already. The program that go-ftw ships does the same; this one takes Foregate's own file of overrides, whose
// layout is another, and needs fewer modules.
//
// usage: ftw PORT LOG OVERRIDES TESTS
//
// Prints one line of JSON: how many cases ran, how many of those were skipped, and which failed.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	schema "github.com/coreruleset/ftw-tests-schema/v2/types"
	overrides "github.com/coreruleset/ftw-tests-schema/v2/types/overrides"
	"github.com/coreruleset/go-ftw/v2/config"
	"github.com/coreruleset/go-ftw/v2/output"
	"github.com/coreruleset/go-ftw/v2/runner"
	"github.com/coreruleset/go-ftw/v2/test"
	"github.com/rs/zerolog"
	"go.yaml.in/yaml/v4"
)

func main() {
	if len(os.Args) != 5 {
		fail(fmt.Errorf("usage: ftw PORT LOG OVERRIDES TESTS"))
	}
	port, err := strconv.Atoi(os.Args[1])
	if err != nil {
		fail(err)
	}
	known, err := readOverrides(os.Args[3])
	if err != nil {
		fail(fmt.Errorf("%s: %w", os.Args[3], err))
	}
	// It traces each byte otherwise.
	zerolog.SetGlobalLevel(zerolog.Disabled)
	tests, err := test.GetTestsFromFiles(filepath.Join(os.Args[4], "**", "*.y*ml"))
	if err != nil {
		fail(err)
	}
	settings := config.NewDefaultConfig()
	settings.LogFile = os.Args[2]
	address := "127.0.0.1"
	settings.TestOverride.Overrides = config.Overrides{Port: &port, DestAddr: &address}
	run := config.NewRunnerConfiguration(settings)
	run.PlatformOverrides.OverridesMap = known
	silent := output.NewOutput("quiet", io.Discard)
	done, err := runner.Run(run, tests, silent)
	if err != nil {
		fail(err)
	}
	skipped := len(done.Stats.Skipped) + len(done.Stats.Ignored) + len(done.Stats.ForcedPass)
	failed := append(append([]string{}, done.Stats.Failed...), done.Stats.ForcedFail...)
	json.NewEncoder(os.Stdout).Encode(map[string]any{
		"run": done.Stats.Run, "skipped": skipped, "failed": failed,
	})
}

// readOverrides reads the cases that end otherwise here than the files say, by the rule that they are about.
func readOverrides(path string) (map[uint][]*overrides.TestOverride, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Overrides []struct {
			Case   string
			Reason string
			Output schema.Output
		}
	}
	if err := yaml.Unmarshal(content, &file); err != nil {
		return nil, err
	}
	known := map[uint][]*overrides.TestOverride{}
	for _, one := range file.Overrides {
		rule, number, _ := strings.Cut(one.Case, "-")
		ruleID, err := strconv.ParseUint(rule, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("case %q: %w", one.Case, err)
		}
		testID, err := strconv.ParseUint(number, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("case %q: %w", one.Case, err)
		}
		known[uint(ruleID)] = append(known[uint(ruleID)], &overrides.TestOverride{
			RuleId: uint(ruleID), TestIds: []uint{uint(testID)}, Reason: one.Reason, Output: one.Output,
		})
	}
	return known, nil
}

func fail(err error) {
	fmt.Fprintf(os.Stderr, "ftw: %v\n", err)
	os.Exit(2)
}
