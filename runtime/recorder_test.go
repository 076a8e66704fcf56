package runtime_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
	"github.com/kvferry/kvferry/runtime/recording"
)

// withRecorder returns a configuration whose recordings are in a folder of their own.
func withRecorder(tb testing.TB, cfg *config.Config) *config.Config {
	tb.Helper()
	cfg.Recorder = config.Recorder{Dir: filepath.Join(tb.TempDir(), "recordings"), Bytes: 1 << 30}
	return cfg
}

// onlyRecording returns the recording of the only node of a configuration.
func onlyRecording(tb testing.TB, cfg *config.Config) string {
	tb.Helper()
	names := recordingsIn(tb, cfg.Recorder.Dir)
	if len(names) != 1 {
		tb.Fatalf("recordings %q, want one", names)
	}
	return names[0]
}

// A sender and a receiver are replayed from their recordings: while they run, which is what a killed process leaves, and
// after Close.
func TestRecordings(t *testing.T) {
	for _, carries := range []uint32{0, 1 << 20} {
		rc, sc := withRecorder(t, receiverConfig(t, "shm", nil)), withRecorder(t, senderConfig(t, "shm", effects.Addr{}))
		rc.Machine.Carries, sc.Machine.Carries = carries, carries
		r, s := open(t, rc), open(t, sc)
		pages := mustReserve(t, s, 4)
		for round := range 3 {
			keys := keysOf("recorded-"+string(rune('a'+round)), 4)
			fill(t, pages, keys)
			if _, err := s.Sender().Put(within(t), runtime.Put{Peer: peerOf(r), Request: keys[0], Keys: keys, Pages: pages,
				Last: true}); err != nil {
				t.Fatal(err)
			}
			got, err := r.Receiver().Get(within(t), runtime.Get{Request: keys[0], Keys: keys})
			if err != nil {
				t.Fatal(err)
			}
			wantContent(t, got, keys, pageBytes)
			mustRelease(t, got)
		}
		mustRelease(t, pages)

		t.Log("# what a node has written while it runs is what a killed process leaves")
		for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
			if got := wantSameEffects(t, onlyRecording(t, rc)); got.Steps > 10 && strings.Contains(got.End, "killed") {
				break
			} else if time.Since(begin) > limit {
				t.Fatalf("after %v: %+v", limit, got)
			}
		}
		mustClose(t, s)
		mustClose(t, r)
		for n, cfg := range map[*runtime.Node]*config.Config{s: sc, r: rc} {
			status, on := n.Recording()
			got := wantSameEffects(t, onlyRecording(t, cfg))
			if !on || got.Steps == 0 || got.Steps != status.Steps || got.End != recording.EndClosed || got.Role != n.Role() {
				t.Errorf("%+v, and the recorder has %+v", got, status)
			}
			if carries > 0 {
				continue
			}
			text, err := os.ReadFile(status.File)
			if err != nil || uint64(len(text)) != status.Bytes {
				t.Errorf("%d bytes, %v; the recorder has %+v", len(text), err, status)
			}
		}
	}
}

// The recording of a rank that failed has the event at which it failed, and the machine fails there again if the defect is
// in the machine or in its events.
func TestRecordingOfAFailure(t *testing.T) {
	cfg := withRecorder(t, senderConfig(t, "shm", effects.Addr{}))
	n, d := openAlone(t, cfg, "", t.Output())
	d.completesTwice()
	<-n.Failed()
	if err := n.Close(within(t)); runtime.CodeOf(err) != effects.Failed {
		t.Error(err)
	}
	names := recordingsIn(t, cfg.Recorder.Dir) // The ring has one file, and the failure has saved one.
	if len(names) != 2 || !strings.Contains(names[1], "-failure-") {
		t.Fatalf("recordings %q", names)
	}
	r := wantSameEffects(t, names[1])
	if r.Failed == "" || !strings.Contains(n.Err().Error(), r.Failed) || !strings.Contains(r.Trace[len(r.Trace)-1], "SendDone") {
		t.Errorf("the node failed: %v; its replay: %+v", n.Err(), r)
	}
}

// A folder that cannot be written to is an error of Open, and a node without a recorder has no recording.
func TestRecorderThatCannotBegin(t *testing.T) {
	cfg := senderConfig(t, "shm", effects.Addr{})
	cfg.Recorder.Dir = "/dev/null/recordings"
	if n, err := tryOpenRank(t, cfg, 0); err == nil || !strings.Contains(err.Error(), "recorder.dir") {
		t.Errorf("%v, %v", n, err)
	}
}

// recorderPushes is the number of pushes of one turn.
const recorderPushes = 50

// BenchmarkRecorder takes turns between pushes, each from the engine's Put to the chunks in the hands of the receiver's
// engine, with and without recorders at both ends. It reports the median time of a push, the CPU time of the process, and
// what a push adds to the two files.
func BenchmarkRecorder(b *testing.B) {
	for _, chunks := range []int{1, 8} {
		b.Run(fmt.Sprintf("chunks=%d", chunks), func(b *testing.B) {
			var pairs []planetest.Alternative
			var files []func() recording.Status
			for _, name := range []string{"on", "off"} {
				rc, sc := receiverConfig(b, "shm", nil), senderConfig(b, "shm", effects.Addr{})
				if name == "on" {
					rc, sc = withRecorder(b, rc), withRecorder(b, sc)
				}
				r, s := open(b, rc), open(b, sc)
				pages := mustReserve(b, s, chunks)
				b.Cleanup(func() {
					mustRelease(b, pages)
					mustClose(b, s)
					mustClose(b, r)
				})
				if name == "on" {
					files = append(files, func() recording.Status { at, _ := r.Recording(); return at },
						func() recording.Status { at, _ := s.Recording(); return at })
				}
				round := 0
				pairs = append(pairs, planetest.Alternative{Name: name, Move: func(*rand.Rand) time.Duration {
					times := make([]time.Duration, recorderPushes)
					for i := range times {
						round++
						times[i] = pushAndGet(b, s, r, pages, keysOf(fmt.Sprintf("recorder-%d", round), chunks))
					}
					slices.Sort(times)
					return times[recorderPushes/2]
				}})
			}
			sum := func() (bytes, steps float64) {
				time.Sleep(1500 * time.Millisecond) // Files are written each second.
				for _, f := range files {
					bytes, steps = bytes+float64(f().Bytes), steps+float64(f().Steps)
				}
				return bytes, steps
			}
			pushes := 0
			on := pairs[0].Move
			pairs[0].Move = func(rng *rand.Rand) time.Duration { pushes += recorderPushes; return on(rng) }
			bytesBefore, stepsBefore := sum()
			t := planetest.TimeAlternatives(b, pairs)
			bytes, steps := sum()
			for _, name := range []string{"off", "on"} {
				b.ReportMetric(t.Median(name)*1e6, name+"-µs")
				b.ReportMetric(t.CPU(name)*1e6/recorderPushes, name+"-cpu-µs")
			}
			b.ReportMetric((bytes-bytesBefore)/float64(pushes), "bytes/push")
			b.ReportMetric((steps-stepsBefore)/float64(pushes), "steps/push")
		})
	}
}

// pushAndGet pushes chunks, gets and releases them, and returns the time until the receiver's engine had them.
func pushAndGet(b *testing.B, s, r *runtime.Node, pages *runtime.Pages, keys []string) time.Duration {
	begin := time.Now()
	res, err := s.Sender().Put(b.Context(), runtime.Put{Peer: peerOf(r), Request: keys[0], Keys: keys, Pages: pages, Last: true})
	if err != nil {
		b.Fatal(err)
	}
	got, err := r.Receiver().Get(b.Context(), runtime.Get{Request: keys[0], Keys: keys})
	taken := time.Since(begin)
	if err != nil || got.Len() != len(keys) {
		b.Fatalf("%v, %v", got, err)
	}
	if err := got.Release(b.Context()); err != nil {
		b.Fatal(err)
	}
	wantReturned(b, res)
	return taken
}

// A node saves its recording when it is asked to, and when an operation is in progress for too long; other operations do
// not make it save another one.
func TestSavedRecordings(t *testing.T) {
	cfg := withRecorder(t, receiverConfig(t, "shm", nil))
	cfg.Recorder.Saved, cfg.Recorder.StuckAfter = 4, 200*time.Millisecond
	n := open(t, cfg)
	name, err := n.SaveRecording(recording.OnSignal)
	if err != nil || !strings.Contains(name, "-signal-") {
		t.Fatalf("%q, %v", name, err)
	}
	wantSameEffects(t, name)
	got := make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // A get of a chunk that never comes.
		_, err := n.Receiver().Get(ctx, runtime.Get{Request: "stuck", Keys: keysOf("stuck", 1), Timeout: limit})
		got <- err
	}()
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		status, _ := n.Recording()
		if len(status.Saved) == 2 {
			if r := wantSameEffects(t, status.Saved[1]); !strings.Contains(status.Saved[1], "-stuck-") || r.Steps == 0 {
				t.Errorf("%+v", r)
			}
			break
		} else if time.Since(begin) > limit {
			t.Fatalf("after %v: %+v", limit, status)
		}
	}
	cancel()
	<-got
	mustClose(t, n)
}
