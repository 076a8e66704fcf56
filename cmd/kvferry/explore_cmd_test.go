package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func explore(t *testing.T, args ...string) (int, string) {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(t.Context(), append([]string{"sim", "explore"}, args...), nil, &out, &errs)
	return code, out.String() + errs.String()
}

func TestSimExplore(t *testing.T) {
	code, text := explore(t, "--scope", "push", "--json")
	if code != exitOK {
		t.Fatalf("exit code %d\n%s", code, text)
	}
	var r exploreReport
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err)
	}
	if !r.Complete || r.States < 20 || r.Ends == 0 || r.Outcomes["put ok"] == 0 || r.Violation != nil {
		t.Fatalf("not a whole exploration: %+v", r)
	}
}

func TestSimExploreLimits(t *testing.T) {
	for flag, want := range map[string]string{"--depth": "incomplete, stopped at depth 9:", "--states": "incomplete, stopped at 9 states:"} {
		if code, text := explore(t, "--scope", "push", flag, "9"); code != exitOK || !strings.Contains(text, want) {
			t.Errorf("%s 9: exit code %d\n%s", flag, code, text)
		}
	}
}

func TestSimExplorePath(t *testing.T) {
	code, text := explore(t, "--scope", "push", "--path", "0.0.0.0")
	if code != exitOK || !strings.Contains(text, "4. n1: request-arrives") || !strings.Contains(text, "Open corr=") {
		t.Fatalf("exit code %d\n%s", code, text)
	}
}

func TestSimExploreUsage(t *testing.T) {
	if code, text := explore(t, "--scope", "list"); code != exitOK || !strings.Contains(text, "push-crash-sender") {
		t.Fatalf("exit code %d\n%s", code, text)
	}
	for _, args := range [][]string{{}, {"--scope", "ocean"}, {"--scope", "push", "--depth", "-1"},
		{"--scope", "push", "--states", "0"},
		{"--scope", "push", "--path", "0.x"}} {
		if code, text := explore(t, args...); code != exitUsage {
			t.Errorf("%v: exit code %d\n%s", args, code, text)
		}
	}
}
