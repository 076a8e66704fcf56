package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestSimRun(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"sim", "run", "--seeds", "20", "--workers", "2", "--json"}, nil, &out, &errs); code != exitOK {
		t.Fatalf("exit code %d\n%s%s", code, out.String(), errs.String())
	}
	var r simReport
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if r.Seeds != 20 || r.Steps == 0 || r.LogHash == "" || r.ChunksVerified == 0 || r.First != nil {
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

func TestSimUsage(t *testing.T) {
	for _, args := range [][]string{
		{"sim"}, {"sim", "run", "--seeds", "0"}, {"sim", "run", "--workers", "0"},
		{"sim", "run", "--profile", "sunny"}, {"sim", "replay"}, {"sim", "replay", "--seed", "1", "--profile", "sunny"},
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), args, nil, &out, &errs); code != exitUsage {
			t.Errorf("%v: exit code %d, want %d", args, code, exitUsage)
		}
	}
}
