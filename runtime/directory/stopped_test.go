//go:build cgo && linux

package directory_test

import (
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/internal/proctest"
)

// A directory process that was stopped for longer than the silence timeout of its workers still knows their reports
// once it continues: it received nothing because it did not run. Otherwise its first step after SIGCONT would drop
// everything.
func TestStoppedDirectoryKeepsWorkers(t *testing.T) {
	const silence = 3 * time.Second
	file := freePorts(t, 1) + "lmcache_worker_timeout: 3\nhealth_check_interval: 1\n"
	cfg, err := config.ParseDirectory("f", []byte(file), nil)
	if err != nil {
		t.Fatal(err)
	}
	p := proctest.Start(t, proctest.SelfCommand(fileOfChild+"="+file))
	if line, ok := p.NextLine(nil); !ok || string(line) != "serving" {
		t.Fatalf("the directory says %q", line)
	}
	w, asks := newWorker(t, cfg.Monitors[0], "a", 0), newWorker(t, cfg.Monitors[0], "b", 0)
	w.register()
	// The machine that runs this test may be as slow as it likes: where the directory was awake for so long that it
	// might have forgotten the worker for that alone, nothing is said and it is tried again.
	for range 10 {
		began := time.Now()
		w.beat()
		w.tell(w.operations("admit", 0, 7))
		asks.finds("a", 1, 7)
		p.Freeze()
		stopped := time.Now()
		<-time.After(silence + silence/2)
		woken := time.Now()
		p.Resume()
		got, _, hits := asks.holder(7)
		switch awake := stopped.Sub(began) + time.Since(woken); {
		case got == "a" && hits == 1:
			return
		case awake < silence/2:
			t.Fatalf("%d chunks at %q after %v of being stopped, in all of which it was awake for %v", hits, got,
				woken.Sub(stopped), awake)
		}
		w.register()
	}
	t.Skip("this machine is too slow to tell")
}
