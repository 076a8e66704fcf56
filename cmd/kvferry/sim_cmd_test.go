package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/sim"
)

func TestSimRun(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"sim", "run", "--seeds", "20", "--workers", "2", "--json"}, nil, &out,
		&errs); code != exitOK {
		t.Fatalf("exit code %d\n%s%s", code, out.String(), errs.String())
	}
	var r campaignReport
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if r.Seeds != 20 || r.Steps == 0 || r.Hash == 0 || r.Chunks == 0 || r.First != nil {
		t.Errorf("report %+v", r)
	}
}

func TestSimReplay(t *testing.T) {
	var out, again, errs bytes.Buffer
	args := []string{"sim", "replay", "--seed", "5", "--profile", "calm", "--log"}
	if code := run(t.Context(), args, nil, &out, &errs); code != exitOK {
		t.Fatalf("exit code %d\n%s%s", code, out.String(), errs.String())
	}
	if code := run(t.Context(), args, nil, &again, &errs); code != exitOK || again.String() != out.String() {
		t.Error("the same seed told another story")
	}
	for _, want := range []string{"Transfer", "every promise held", "log hash"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in the story", want)
		}
	}
}

func TestSimReplayWritesAPage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.html")
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"sim", "replay", "--seed", "5", "--html", file}, nil, &out,
		&errs); code != exitOK {
		t.Fatalf("exit code %d\n%s%s", code, out.String(), errs.String())
	}
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"every promise held", "kvferry sim replay --seed 5 --profile tiny", `id="trace"`} {
		if !bytes.Contains(page, []byte(want)) {
			t.Errorf("no %q in the page", want)
		}
	}
	if !strings.Contains(out.String(), "page written to "+file) {
		t.Errorf("the page is not named: %s", out.String())
	}
}

func TestSimUsage(t *testing.T) {
	for _, args := range [][]string{
		{"sim"}, {"sim", "run", "--seeds", "0"}, {"sim", "run", "--workers", "0"},
		{"sim", "run", "--profile", "sunny"}, {"sim", "replay"}, {"sim", "replay", "--seed", "1", "--profile", "sunny"},
		{"sim", "replay", "--seed", "1", "--plan", "x.yaml"}, {"sim", "replay", "--plan", "no-such-file.yaml"},
		{"sim", "replay", "--seed", "1", "--shrink"},
		{"sim", "run", "--shard", "3/3"}, {"sim", "run", "--shard", "3"}, {"sim", "run", "--time", "-1s"}, {"sim", "merge"},
		{"sim", "merge", "no-such-file.json"},
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), args, nil, &out, &errs); code != exitUsage {
			t.Errorf("%v: exit code %d, want %d", args, code, exitUsage)
		}
	}
}

// TestSimPlan checks that the plan of a seed can be written and read, and that its run is the same.
func TestSimPlan(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plan.yaml")
	story := func(args ...string) string {
		var out, errs bytes.Buffer
		if code := run(t.Context(), append([]string{"sim", "replay", "--log"}, args...), nil, &out, &errs); code != exitOK {
			t.Fatalf("%v: exit code %d\n%s%s", args, code, out.String(), errs.String())
		}
		return out.String()
	}
	seed := story("--seed", "3", "--write-plan", file)
	plan := regexp.MustCompile(`(?m)^stale: .*\n`).ReplaceAllString(story("--plan", file), "") // Only a run of a plan has such lines.
	if want := strings.Replace(seed, "plan written to "+file+"\n", "", 1); plan != want {
		t.Error("the plan tells another story than its seed")
	}
	if err := os.WriteFile(file, []byte("version: 1\nwhether: fine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"sim", "replay", "--plan", file}, nil, &out, &errs); code != exitUsage ||
		!strings.Contains(errs.String(), "whether") {
		t.Errorf("exit code %d, %q; want %d and the unknown field", code, errs.String(), exitUsage)
	}
}

// TestSimMerge checks that merged shards equal the whole campaign.
func TestSimMerge(t *testing.T) {
	report := func(args ...string) (r campaignReport) {
		var out, errs bytes.Buffer
		if code := run(t.Context(), append(args, "--json"), nil, &out, &errs); code != exitOK {
			t.Fatalf("%v: exit code %d\n%s%s", args, code, out.String(), errs.String())
		}
		if err := json.Unmarshal(out.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	folder := t.TempDir()
	args := []string{"sim", "merge"}
	for i := range 3 {
		part := report("sim", "run", "--seeds", "20", "--shard", fmt.Sprintf("%d/3", i))
		text, err := json.Marshal(part)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(folder, fmt.Sprintf("%d.json", i))
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, file)
	}
	whole, merged := report("sim", "run", "--seeds", "20"), report(args...)
	if !reflect.DeepEqual(whole.Summary, merged.Summary) {
		t.Errorf("the shards add up to\n%+v\ninstead of\n%+v", merged.Summary, whole.Summary)
	}
}

// TestSimMergeFailure checks that merging writes the plan that a shard on a different machine has found.
func TestSimMergeFailure(t *testing.T) {
	folder := t.TempDir()
	p := sim.NewPlan()
	p.Property = "S4"
	text, err := p.Text()
	if err != nil {
		t.Fatal(err)
	}
	found := campaignReport{Plan: "/elsewhere/S4-seed7.yaml", PlanText: string(text), Seconds: 1}
	found.Profile, found.Seeds, found.Failed = "calm", 5, 1
	found.First = &sim.Failure{Seed: 7, Profile: "calm", Property: "S4", Plan: found.Plan,
		Story: "a page is free too early"}
	clean := campaignReport{Seconds: 3}
	clean.Profile, clean.Seeds = "calm", 5
	args := []string{"sim", "merge", "--out", filepath.Join(folder, "found")}
	for i, r := range []campaignReport{clean, found} {
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(folder, fmt.Sprintf("%d.json", i))
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, file)
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), args, nil, &out, &errs); code != exitFinding {
		t.Fatalf("exit code %d\n%s%s", code, out.String(), errs.String())
	}
	plan := filepath.Join(folder, "found", "S4-seed7.yaml")
	for _, want := range []string{"10 seeds in 3.0 s", "1 of 10 seeds failed", "sim replay --plan " + plan} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if back, err := sim.ReadPlan(plan); err != nil || back.Property != "S4" {
		t.Errorf("the plan: %+v, %v", back, err)
	}
}
