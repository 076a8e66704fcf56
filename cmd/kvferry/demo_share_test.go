package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/demo"
)

// Instances share the chunks that they have computed. An instance is killed while peers read from it, then a directory,
// then the log that the directories share. Every byte is correct and no page stays pinned, over both planes, and also
// if each instance is a prefill and a decode node.
func TestDemoOfSharing(t *testing.T) {
	for name, args := range map[string][]string{
		"shm":  {"--plane", "shm"},
		"both": {"--plane", "tcp", "--role", "both", "--directories", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			var all demo.Summary[*demo.SharingReport]
			out := playDemo(t, &all, append([]string{"--mode", "p2p", "--requests", "10"}, args...)...)
			if len(all.Modes) != 4 {
				t.Fatalf("not all modes were played:\n%s", out)
			}
			for _, r := range all.Modes {
				shares(t, r)
			}
		})
	}
}

// shares checks that the report of a mode shows chunks from peers and no defect.
func shares(t *testing.T, r *demo.SharingReport) {
	t.Helper()
	misses := int64(0)
	for _, n := range r.Misses {
		misses += n
	}
	if r.Completed != 10 || r.PeerHits == 0 || r.BytesSaved != r.PeerHits*int64(r.PageBytes) || misses != r.Computed ||
		r.LocalHits+r.PeerHits+r.Computed != r.Wanted || r.BytesVerified < r.BytesSaved {
		t.Errorf("it did not do what it is for, or its figures do not agree:\n%+v", r)
	}
	if r.RestartMillis["instance-2"] == 0 || r.RestartMillis["directory-0"] == 0 || r.RestartMillis["log"] == 0 ||
		r.WithoutLog == 0 {
		t.Errorf("killed and back were %v, want an instance, a directory and a log (make test-setup installs its server); "+
			"%d chunks came without it", r.RestartMillis, r.WithoutLog)
	}
}

// If no server for the log is installed, each instance reports to all directories, and the table says that no log is
// killed.
func TestDemoOfSharingText(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var out, stderr bytes.Buffer
	if code := run(context.Background(), []string{"demo", "--mode", "p2p-pull", "--requests", "4", "--no-crash"},
		strings.NewReader(""), &out, &stderr); code != exitOK {
		t.Fatalf("exit code %d\n%s%s", code, &out, &stderr)
	}
	for _, want := range []string{"p2p-pull", "directories: 2", "apt-get install redis-tools",
		"4 completed, 0 lost", "hit rate", "bytes saved",
		"nobody has it", "0 bytes were wrong", "every byte is right and nothing is pinned"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &out)
		}
	}
}
