package postmortem

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/identity"
)

// The JSON of a state contains nothing that could be used to forge a name or to predict one.
func TestSecretsAreLeftOut(t *testing.T) {
	state := struct {
		key     identity.Key
		token   identity.Token
		source  prng.Source
		seed    uint64
		code    effects.Code
		ordinal uint64
	}{identity.Key{7, 7}, identity.Token{9, 9}, prng.New(0xdeadbeef), 0xdeadbeef, effects.PeerLost, 5}
	got := string(toJSON(&state, 1<<20))
	const out = `"left out"`
	want := `{"key":` + out + `,"token":` + out + `,"source":` + out + `,"seed":` + out +
		`,"code":"peer_lost","ordinal":5}`
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// A trace has the last entries, and the report shows them by name.
func TestTrace(t *testing.T) {
	trace := NewTrace(4)
	for i := range 5 {
		trace.RecordEvent(effects.Time(i+1), &effects.Command{Ticket: effects.Ticket(i)})
	}
	trace.RecordEffect(&effects.Deliver{Ticket: 4, Held: true, Code: effects.PeerLost, Pages: make([]effects.Page, 2)})
	kept, before := trace.lastEntries()
	var said []string
	for i := range kept {
		said = append(said, string(kept[i].renderEntry()))
	}
	want := `{"event":"Command","at":3,"ticket":2} {"event":"Command","at":4,"ticket":3} ` +
		`{"event":"Command","at":5,"ticket":4} ` +
		`{"effect":"Deliver","ticket":4,"left":0,"pages":2,"held":true,"code":"peer_lost"}`
	if got := strings.Join(said, " "); before != 2 || got != want {
		t.Errorf("%d before %s, want %s", before, got, want)
	}
	for k := kind(0); k < kindCount; k++ {
		if e := (entry{kind: k}); !json.Valid(e.renderEntry()) || forms[k].name == "" {
			t.Errorf("kind %d is said as %s", k, e.renderEntry())
		}
	}
}

// A directory keeps the newest reports, as many as configured. Files that are not reports are not touched.
func TestReportsAreBounded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	var names []string
	for i := range 5 {
		name, err := WriteReport(dir, 3, time.Unix(int64(i), 0), &Failure{Machine: &struct{}{}})
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
		if i == 0 {
			// Unfinished reports are removed with the reports. Files whose names only begin alike belong to
			// somebody else.
			for _, other := range []string{"notes.txt", name[len(dir)+1:] + partialSuffix, reportPrefix + "to-keep.json"} {
				if err := os.WriteFile(filepath.Join(dir, other), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Mkdir(filepath.Join(dir, filepath.Base(strings.Replace(name, "1970", "1969", 1))), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 6 || !entries[0].IsDir() || entries[5].Name() != "notes.txt" ||
		entries[4].Name() != reportPrefix+"to-keep.json" || entries[3].Name() != filepath.Base(names[4]) ||
		entries[1].Name() != filepath.Base(names[2]) {
		t.Errorf("%v, %v", entries, err)
	}
	if _, err := WriteReport("/dev/null/x", 3, time.Unix(9, 0), &Failure{}); err == nil {
		t.Error("a directory that cannot be is written to")
	}
}

// The cost that a trace adds to a step: one event and two effects.
func BenchmarkTrace(b *testing.B) {
	trace := NewTrace(1024)
	ev, e1, e2 := &effects.Received{Conn: 1, Body: make([]byte, 100)}, &effects.Grant{ID: 4}, &effects.Reply{Request: 4}
	for b.Loop() {
		trace.RecordEvent(7, ev)
		trace.RecordEffect(e1)
		trace.RecordEffect(e2)
	}
}
