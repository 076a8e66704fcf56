package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/demo"
)

// The ranks of two engines write registered blocks, with more ranks on either side. Both engines abort requests, and a
// rank of each engine is killed and started again. Every received byte is correct, and no block stays claimed.
func TestDemoOfRegisteredBlocks(t *testing.T) {
	for name, args := range map[string][]string{
		"shm":         {"--plane", "shm"},
		"tcp, 1 to 2": {"--plane", "tcp", "--prefill-tp", "1", "--decode-tp", "2"},
	} {
		t.Run(name, func(t *testing.T) {
			var all demo.Summary[*demo.RegisteredReport]
			out := playDemo(t, &all, append([]string{"--mode", "push-reg", "--requests", "24"}, args...)...)
			if len(all.Modes) != 1 {
				t.Fatalf("not one mode was played:\n%s", out)
			}
			r := all.Modes[0]
			if r.Completed != 24 || r.Pages == 0 || r.BytesVerified == 0 || r.AbortedByPrefill == 0 ||
				r.AbortedByDecode == 0 || len(r.RestartMillis) != 2 {
				t.Errorf("it did not do what it is for:\n%+v", r)
			}
		})
	}
}

func TestDemoOfRegisteredBlocksText(t *testing.T) {
	var out, stderr bytes.Buffer
	if code := run(context.Background(), []string{"demo", "--mode", "push-reg", "--requests", "8", "--no-crash"},
		strings.NewReader(""), &out, &stderr); code != exitOK {
		t.Fatalf("exit code %d\n%s%s", code, &out, &stderr)
	}
	for _, want := range []string{"push-reg", "prefill: 2 ranks, decode: 1", "8 completed, 0 lost",
		"1 by the prefill, 1 by the decode", "0 bytes were wrong", "every byte is right and nothing is pinned"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &out)
		}
	}
}

// A flag that does not fit registered blocks is refused by name.
func TestDemoOfRegisteredBlocksRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"--prefill-tp is 3":     {"--mode", "push-reg", "--prefill-tp", "3"},
		"--decode-tp is 2":      {"--decode-tp", "2"},
		"--pages is 512":        {"--mode", "push-reg", "--pages", "512"},
		"--role is \"both\"":    {"--mode", "push-reg", "--role", "both"},
		"--bidirectional is of": {"--mode", "push-reg", "--bidirectional"},
		"--device is \"npu\"":   {"--mode", "push-reg", "--device", "npu"},
	} {
		var out, stderr bytes.Buffer
		if code := run(context.Background(), append([]string{"demo"}, args...), strings.NewReader(""), &out,
			&stderr); code != exitUsage || !strings.Contains(stderr.String(), want) {
			t.Errorf("%v: exit code %d, %s", args, code, &stderr)
		}
	}
}
