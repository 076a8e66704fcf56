package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/sim"
)

// TestSimContinue checks that a campaign continues after the seeds of the previous campaign, separately for each
// profile, and that the campaigns together equal a single campaign.
func TestSimContinue(t *testing.T) {
	book := filepath.Join(t.TempDir(), "campaign.json")
	report := func(args ...string) (r campaignReport) {
		t.Helper()
		var out, errs bytes.Buffer
		args = append([]string{"sim", "run", "--workers", "2", "--json"}, args...)
		if code := run(t.Context(), args, nil, &out, &errs); code != exitOK {
			t.Fatalf("%v: exit code %d\n%s%s", args, code, out.String(), errs.String())
		}
		if err := json.Unmarshal(out.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := report("--continue", book, "--start", "500", "--seeds", "7", "--profile", "crash")
	report("--continue", book, "--seeds", "3", "--profile", "pull")
	second := report("--continue", book, "--start", "500", "--seeds", "4", "--profile", "crash")
	whole := report("--start", "500", "--seeds", "11", "--profile", "crash")
	if got := first.Hash + second.Hash; got != whole.Hash || second.Seeds != 4 {
		t.Errorf("both together are %016x, one campaign would have been %016x", uint64(got), uint64(whole.Hash))
	}
	if c := second.Continued; c == nil || c.Next != 511 || c.Seeds != 11 || c.Steps != whole.Steps {
		t.Errorf("after both: %+v", c)
	}
}

func TestSimContinueRefused(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.json")
	if err := os.WriteFile(bad, []byte(`{"version": 9}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"version is 9":         {"--continue", bad},
		"--shard leaves some":  {"--continue", bad, "--shard", "0/2"},
		"give off, warn or fa": {"--rare", "sometimes"},
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), append([]string{"sim", "run", "--seeds", "1"}, args...), nil, &out,
			&errs); code != exitUsage || !strings.Contains(errs.String(), want) {
			t.Errorf("%v: exit code %d, %s; want %q", args, code, errs.String(), want)
		}
	}
}

// TestSimRare checks that a campaign that is too short to meet rare conjunctions reports them, and fails with --rare
// fail.
func TestSimRare(t *testing.T) {
	for rare, want := range map[string]int{"off": exitOK, "warn": exitOK, "fail": exitFinding} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), []string{"sim", "run", "--seeds", "1", "--profile", "pull", "--rare", rare}, nil, &out,
			&errs); code != want {
			t.Errorf("%s: exit code %d, want %d", rare, code, want)
		}
		if said := strings.Contains(errs.String(), "never occurred"); said != (rare != "off") {
			t.Errorf("%s: said %q", rare, errs.String())
		}
		if !strings.Contains(out.String(), "never     ") {
			t.Errorf("%s: what never occurred is not in the summary", rare)
		}
	}
}

// TestNightly checks that the nightly job runs every profile and continues after the last night.
func TestNightly(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"sim", "run", "--profile", "list"}, nil, &out, &errs); code != exitOK {
		t.Fatal(errs.String())
	}
	if got := strings.Fields(out.String()); strings.Join(got, " ") != strings.Join(sim.Profiles(), " ") {
		t.Errorf("listed %v", got)
	}
	script, err := os.ReadFile("../../.ci/nightly")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"for profile in $(bin/kvferry-nightly sim run --profile list); do",
		`--profile "$profile"`, `--continue "$campaign"`} {
		if !strings.Contains(string(script), want) {
			t.Errorf("the nightly run has no %q", want)
		}
	}
}
