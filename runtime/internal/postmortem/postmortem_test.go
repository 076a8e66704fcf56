package postmortem

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
)

type odd struct {
	Name   []byte
	Secret [16]byte
	Body   []byte
	code   effects.Code
	loop   *odd
	live   bool
	many   []odd
	seed   uint64
	m      map[int]int
	f      func()
	long   string
	any    any
}

// Whatever is dumped is JSON, ends, and tells what is text and how the rest begins.
func TestDump(t *testing.T) {
	o := odd{Name: []byte("a key"), Secret: [16]byte{1, 2, 3, 4, 5, 6}, Body: []byte{0x82, 1, 2, 3, 9, 9},
		code: effects.PeerLost, live: true, seed: 0xdeadbeef,
		m: map[int]int{1: 1}, f: func() {}, long: strings.Repeat("x", 1000), any: 7}
	o.loop = &o
	o.many = []odd{{}, {long: "dead"}, {long: "lives", live: true}}
	got := dumped(&o, 1<<20)
	if !json.Valid(got) {
		t.Fatalf("%s", got)
	}
	text := string(got)
	for _, want := range []string{`"Name":"a key"`, `"Secret":"01020304.. (16 bytes)"`,
		`"Body":"82010203.. (6 bytes)"`, `"code":"peer_lost"`, `"lives"`, `"seed":"left out"`, `(1000 bytes)`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in %.600s", want, text)
		}
	}
	for _, not := range []string{"dead", "3735928559"} {
		if strings.Contains(text, not) {
			t.Errorf("%s is told", not)
		}
	}
	var large []odd
	for range 3 * elementsMax {
		large = append(large, odd{live: true, Name: []byte("name")})
	}
	if b := dumped(large, 1000); !json.Valid(b) || len(b) > 2000 {
		t.Errorf("%d bytes for 1000: %.200s", len(b), b)
	}
}

// What is remembered is the last, and said in words.
func TestTrace(t *testing.T) {
	trace := NewTrace(4)
	for i := range 5 {
		trace.Event(effects.Time(i+1), &effects.Command{Ticket: effects.Ticket(i)})
	}
	trace.Effect(&effects.Deliver{Ticket: 4, Held: true, Code: effects.PeerLost, Pages: make([]effects.Page, 2)})
	kept, before := trace.last()
	var said []string
	for i := range kept {
		said = append(said, string(kept[i].render()))
	}
	want := `{"event":"Command","at":3,"ticket":2} {"event":"Command","at":4,"ticket":3} ` +
		`{"event":"Command","at":5,"ticket":4} ` +
		`{"effect":"Deliver","ticket":4,"left":0,"pages":2,"held":true,"code":"peer_lost"}`
	if got := strings.Join(said, " "); before != 2 || got != want {
		t.Errorf("%d before %s, want %s", before, got, want)
	}
	for k := kind(0); k < kinds; k++ {
		if e := (entry{kind: k}); !json.Valid(e.render()) || forms[k].name == "" {
			t.Errorf("kind %d is said as %s", k, e.render())
		}
	}
}

// A directory has no more reports than it is to have, the newest; what is not a report is left alone.
func TestReportsAreBounded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	var names []string
	for i := range 5 {
		name, err := Write(dir, 3, time.Unix(int64(i), 0), &Case{Machine: &odd{}})
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
		if i == 0 {
			for _, other := range []string{"notes.txt", prefix + "0.json.partial"} {
				if err := os.WriteFile(filepath.Join(dir, other), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 4 || entries[3].Name() != "notes.txt" ||
		entries[2].Name() != filepath.Base(names[4]) || entries[0].Name() != filepath.Base(names[2]) {
		t.Errorf("%v, %v", entries, err)
	}
	if _, err := Write("/dev/null/x", 3, time.Unix(9, 0), &Case{}); err == nil {
		t.Error("a directory that cannot be is written to")
	}
}

// What a step costs more with a trace: an event and two effects of it.
func BenchmarkTrace(b *testing.B) {
	trace := NewTrace(1024)
	ev, e1, e2 := &effects.Received{Conn: 1, Body: make([]byte, 100)}, &effects.Grant{ID: 4}, &effects.Reply{Request: 4}
	for b.Loop() {
		trace.Event(7, ev)
		trace.Effect(e1)
		trace.Effect(e2)
	}
}
