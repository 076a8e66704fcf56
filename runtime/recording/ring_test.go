package recording

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/snapshot"
)

// ringBytes is the size of the ring in these tests.
const ringBytes = 512 << 10

// fillRing lets the machine work until the ring has removed a few files, and returns the files that it has then.
func fillRing(t *testing.T, g *rig, removed int) []string {
	t.Helper()
	for {
		g.serve(200)
		g.recorder.Flush(time.Minute)
		s := g.recorder.Status()
		if s.Ended != "" || s.Bytes > 4*g.recorder.options.BytesMax {
			t.Fatalf("the recording has ended, or its files have far more bytes than they may: %+v", s)
		}
		_, number, ok := parseSegmentName(s.File)
		if !ok {
			t.Fatalf("%q is no name of a file of the ring", s.File)
		}
		if number-s.Files >= removed {
			return filesIn(t, g)
		}
	}
}

func filesIn(t *testing.T, g *rig) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(g.recorder.options.Dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// When the files have reached their size, the oldest one is removed. At least half of the size can be replayed at any
// time, from each file on, and the machine has the recorded state at each checkpoint.
func TestRing(t *testing.T) {
	g := newRig(t, Options{BytesMax: ringBytes, Interval: time.Hour})
	names := fillRing(t, g, 3)
	s := g.recorder.Status()
	if s.Bytes > ringBytes+frameBytes || s.Bytes < ringBytes/2 || s.Files < segmentsMin-1 || len(names) != s.Files || s.FirstStep == 0 {
		t.Errorf("%+v, and the folder has %q", s, names)
	}
	for i, name := range names {
		r := mustReplay(t, name)
		if r.Diverged != nil || r.Broken != "" || r.Before == 0 || r.Before+r.Steps != s.Steps || r.Files != len(names)-i ||
			r.Checkpoints != len(names)-i-1 || i == 0 && r.Before != s.FirstStep {
			t.Errorf("file %d of %d: %+v, %+v; the recorder has %+v", i, len(names), r, r.Diverged, s)
		}
	}
	g.recorder.Close(time.Minute)
	if r := mustReplay(t, names[0]); r.End != EndClosed {
		t.Errorf("%+v", r)
	}
	// Without the file that follows, the replay ends where its own ends.
	if err := os.Remove(names[1]); err != nil {
		t.Fatal(err)
	}
	if r := mustReplay(t, names[0]); r.Files != 1 || r.Steps == 0 || !strings.Contains(r.End, "continues in the next file") {
		t.Errorf("%+v", r)
	}
}

// A saved recording has all that the ring had, stays when the ring goes on, and is one of a limited number. Files that
// the recorder has not made stay.
func TestSave(t *testing.T) {
	g := newRig(t, Options{BytesMax: ringBytes, SavedMax: 2, Interval: time.Hour})
	fillRing(t, g, 1)
	foreign := filepath.Join(g.recorder.options.Dir, "kvferry-20010101T000000.000000000-01020304-request-x.kvrec")
	if err := os.WriteFile(foreign, []byte("not ours"), 0o600); err != nil {
		t.Fatal(err)
	}
	var saved []string
	for _, why := range []Trigger{OnSignal, OnRequest, OnStuck} {
		g.serve(10)
		name, err := g.recorder.Save(why, time.Minute)
		if err != nil || !strings.Contains(name, "-"+string(why)+"-") {
			t.Fatalf("%q, %v", name, err)
		}
		saved = append(saved, name)
		s := g.recorder.Status()
		r := mustReplay(t, name)
		if r.Diverged != nil || r.Before != s.FirstStep || r.Before+r.Steps != s.Steps || r.Files != 1 || r.Checkpoints != s.Files-1 ||
			!strings.Contains(r.End, "still runs") {
			t.Errorf("%+v, %+v; the recorder has %+v", r, r.Diverged, s)
		}
		if info, err := os.Stat(name); err != nil || info.Mode() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
	}
	if s := g.recorder.Status(); !slices.Equal(s.Saved, saved[1:]) {
		t.Errorf("saved are %q of %q", s.Saved, saved)
	}
	g.serve(1)
	g.recorder.Close(time.Minute)
	last, err := g.recorder.Save(OnFailure, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if r := mustReplay(t, last); r.End != EndClosed || r.Before+r.Steps != g.recorder.Status().Steps {
		t.Errorf("%+v", r)
	}
	names := filesIn(t, g)
	for name, want := range map[string]bool{saved[0]: false, saved[1]: false, saved[2]: true, last: true, foreign: true} {
		if slices.Contains(names, name) != want {
			t.Errorf("%s is there: %v; the folder has %q", name, !want, names)
		}
	}
	if slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, ".tmp") }) {
		t.Errorf("the folder has %q", names)
	}
}

// Only one recording is saved at a time.
func TestSaveTwice(t *testing.T) {
	g := newRig(t, Options{})
	g.recorder.saving <- struct{}{}
	if _, err := g.recorder.Save(OnSignal, time.Minute); !errors.Is(err, ErrBusy) {
		t.Error(err)
	}
	<-g.recorder.saving
	if _, err := g.recorder.Save(OnSignal, time.Minute); err != nil {
		t.Error(err)
	}
}

// changeCheckpoint returns a file like the named one, with another checkpoint.
func changeCheckpoint(t *testing.T, name string, preamble func(p *preamble), change func(state []byte) []byte) string {
	t.Helper()
	return rewrite(t, name, preamble, func(b []byte) []byte {
		if b[0] != recordCheckpoint {
			return b
		}
		_, n := binary.Uvarint(b[1:])
		_, m := binary.Varint(b[1+n:])
		at := 1 + n + m
		return append(bytes.Clone(b[:at]), change(bytes.Clone(b[at:]))...)
	})
}

// A checkpoint of another layout, and one that is damaged or false, is refused or found.
func TestWrongCheckpoints(t *testing.T) {
	g := newRig(t, Options{BytesMax: ringBytes, Interval: time.Hour})
	names := fillRing(t, g, 1)
	g.recorder.Close(time.Minute)
	begin := names[len(names)-1]
	if _, err := Replay(changeCheckpoint(t, begin, func(*preamble) {}, same), ReplayOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		preamble func(p *preamble)
		change   func(state []byte) []byte
		said     string
	}{
		{"another layout", func(p *preamble) { p.State++ }, same, "has other fields"},
		{"an end that is missing", func(*preamble) {}, func(b []byte) []byte { return b[:len(b)-1] }, "the checkpoint is damaged"},
		{"bytes behind the end", func(*preamble) {}, func(b []byte) []byte { return append(b, 0) }, "the checkpoint is damaged"},
		{"another node", func(*preamble) {}, func(b []byte) []byte { b[0]++; return b }, "of another node"},
	} {
		_, err := Replay(changeCheckpoint(t, begin, c.preamble, c.change), ReplayOptions{AnyBuild: true})
		if err == nil || !strings.Contains(err.Error(), c.said) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	// Within a recording, a state that differs is a divergence, although no effect differs.
	whole, err := g.recorder.Save(OnRequest, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	other := changeCheckpoint(t, whole, func(*preamble) {}, func(b []byte) []byte {
		if count++; count == 2 {
			b[len(b)-1]++
		}
		return b
	})
	if r := mustReplay(t, other); r.Diverged == nil || r.Diverged.State == "" || r.Checkpoints != 0 {
		t.Errorf("%+v", r)
	}
}

// FuzzCheckpoint decodes bytes from anywhere as the state of a rank. What is accepted is encoded as the same bytes again.
func FuzzCheckpoint(f *testing.F) {
	cfg := testConfig()
	m, err := rank.New(cfg, testSeed, 1)
	if err != nil {
		f.Fatal(err)
	}
	w := newStateWalker()
	f.Add(snapshot.Encode(w, nil, m))
	var out effects.Effects
	m.Step(2, &effects.Received{Conn: 1, Channel: effects.ChannelAlloc, Request: 1, Body: []byte("nonsense")}, &out)
	f.Add(snapshot.Encode(w, nil, m))
	f.Fuzz(func(t *testing.T, b []byte) {
		into, err := rank.New(cfg, testSeed, 1)
		if err != nil {
			t.Fatal(err)
		}
		if snapshot.Decode(w, into, b, stateMemoryMax(len(b))) == nil && !bytes.Equal(snapshot.Encode(w, nil, into), b) {
			t.Error("bytes were accepted that no state has")
		}
	})
}
