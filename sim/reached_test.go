package sim

import (
	"bufio"
	"bytes"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/sim/condense"
	"github.com/kvferry/kvferry/sim/systems"
)

// expectation is the rule of testdata/coverage.txt for a point.
type expectation struct {
	never, rare bool
	why         string
}

// TestCoverage: a bounded campaign reaches everything that can be reached, and nothing that is declared impossible. The
// test fails if the simulator no longer injects some fault, or if no run takes an unusual path of a machine any more.
func TestCoverage(t *testing.T) {
	if testing.Short() {
		t.Skip("a campaign over all profiles")
	}
	var ranks Coverage
	all := newSummary(MixedProfile)
	for _, profile := range Profiles() {
		s, err := Campaign(t.Context(), CampaignOptions{Seeds: coverageSeeds(profile), Workers: 2, Profile: profile})
		if err != nil {
			t.Fatal(err)
		}
		if s.First != nil {
			t.Fatal(s.First)
		}
		checkActivity(t, profile, &s.Coverage)
		all.Merge(&s)
		if slices.Contains(systems.Profiles(), profile) {
			ranks.Merge(&s.Coverage)
		}
	}
	expected := expectations(t)
	reached := ranks.Counts("")
	for _, name := range CoveragePoints() {
		switch e := expected[name]; {
		case e.rare:
		case e.never && reached[name] > 0:
			t.Errorf("%q was reached %d times, and testdata/coverage.txt says that it cannot be: %s", name, reached[name], e.why)
		case !e.never && reached[name] == 0:
			t.Errorf("%q was not reached: is something broken? If it cannot happen, say why in testdata/coverage.txt", name)
		}
	}
	for _, v := range all.VoidObligations() {
		t.Errorf("%s: %q (%s) judged in no profile, so nothing looks at that side of the setting", v.Field, v.Check, v.Side)
	}
}

// coverageSeeds returns a number of seeds that takes about the same time in each profile.
func coverageSeeds(profile string) uint64 {
	switch {
	case profile == "fleet":
		return 1
	case profile == condense.Profile:
		return 3000
	case slices.Contains(expensiveProfiles, profile):
		return 30
	}
	return 300
}

// expectations reads testdata/coverage.txt.
func expectations(t *testing.T) map[string]expectation {
	t.Helper()
	text, err := os.ReadFile("testdata/coverage.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]expectation{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		rule, why, reasoned := strings.Cut(line, " -- ")
		word, what, ok := strings.Cut(rule, " ")
		if !ok || !reasoned || why == "" {
			t.Fatalf("testdata/coverage.txt: %q: want never, only or rare, what it is about, and -- why", line)
		}
		covered, unknown := applyRule(all, word, what, why)
		if covered == 0 || len(unknown) > 0 {
			t.Errorf("testdata/coverage.txt: %q is about something that is not counted %q", line, unknown)
		}
	}
	return all
}

// applyRule applies a rule. It returns the number of points that the rule covers, and the names in the rule that are no
// points.
func applyRule(all map[string]expectation, word, what, why string) (covered int, unknown []string) {
	section, possible := "", []string(nil)
	if word == "only" {
		before, list, _ := strings.Cut(what, ":")
		section, possible = before, strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
	}
	for i := range possible {
		possible[i] = strings.TrimSpace(possible[i])
	}
	unknown = slices.Clone(possible)
	for _, name := range CoveragePoints() {
		e := all[name]
		switch word {
		case "only":
			rest, inside := strings.CutPrefix(name, section+" ")
			if !inside {
				continue
			}
			rest = strings.TrimPrefix(rest, "× ")
			e.never, e.why = !slices.Contains(possible, rest), why
			unknown = slices.DeleteFunc(unknown, func(s string) bool { return s == rest })
		case "never":
			if ok, err := path.Match(what, name); name != what && (err != nil || !ok) {
				continue
			}
			e.never, e.why = true, why
		case "rare":
			if ok, err := path.Match(what, name); err != nil || !ok {
				continue
			}
			e.rare = true
		default:
			return 0, nil
		}
		covered++
		all[name] = e
	}
	return covered, unknown
}
