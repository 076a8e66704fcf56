package runtime_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/recording"
)

// recorded returns a configuration with a recorder. When the test has ended, each recording is replayed, and must have the
// same effects: so every test of nodes is also a test that their machines are pure.
func recorded(t *testing.T, cfg *config.Config) *config.Config {
	t.Helper()
	if cfg.Recorder.Dir != "" {
		return cfg // The test has a recorder of its own.
	}
	own := *cfg
	own.Recorder = config.Recorder{Dir: t.TempDir(), Bytes: 1 << 30}
	t.Cleanup(func() {
		for _, name := range recordingsIn(t, own.Recorder.Dir) {
			wantSameEffects(t, name)
		}
	})
	return &own
}

// recordingsIn lists the recordings in a folder, oldest first.
func recordingsIn(tb testing.TB, dir string) []string {
	tb.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode() != 0o600 {
			tb.Errorf("%s has mode %v, %v", e.Name(), info.Mode(), err)
		}
		names = append(names, filepath.Join(dir, e.Name()))
	}
	return names
}

func wantSameEffects(tb testing.TB, name string) *recording.Result {
	tb.Helper()
	r, err := recording.Replay(name, recording.ReplayOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	if r.Diverged != nil {
		tb.Errorf("step %d has other effects in the replay: %+v\n%v", r.Diverged.Step, r.Diverged, r.Trace)
	}
	return r
}
