package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
)

// Real nodes are killed, stopped and short of files while they work.
func TestDemoUnderStrikes(t *testing.T) {
	if testing.Short() {
		t.Skip("a round with several strikes")
	}
	var out, stderr bytes.Buffer
	code := run(context.Background(), []string{"demo", "--chaos", "1ms", "--mode", "push", "--plane", "tcp", "--layers", "1", "--json"},
		strings.NewReader(""), &out, &stderr)
	var all chaosSummary
	if err := json.Unmarshal(out.Bytes(), &all); err != nil || code != exitOK {
		t.Fatalf("exit code %d, %v:\n%s%s", code, err, &out, &stderr)
	}
	if all.Rounds != 1 || all.Completed < roundRequestsMin || all.BytesVerified == 0 || sum(all.Strikes) == 0 {
		t.Errorf("one round did not do what it is for:\n%s", &out)
	}
}
