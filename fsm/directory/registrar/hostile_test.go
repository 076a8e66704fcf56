package registrar

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/protocol"
)

// A hostileDirectory answers each question by bytes of its own.
type hostileDirectory struct {
	*rig
	next   effects.Conn
	events []effects.Event
}

// hears has the worker hear an event, and all that comes of it; each question is answered by the same bytes.
func (l *hostileDirectory) hears(ev effects.Event, body []byte) {
	l.events = append(l.events, ev)
	for n := 0; len(l.events) > 0 && n < 50; n++ {
		ev, l.events = l.events[0], l.events[1:]
		l.step(ev)
		for i := range l.out.Len() {
			switch e := l.out.At(i).(type) {
			case *effects.Open:
				l.next++
				l.events = append(l.events, &effects.Opened{Corr: e.Corr, Conn: l.next})
			case *effects.Send:
				l.events = append(l.events, &effects.Replied{Corr: e.Corr, Body: body})
			case *effects.Post:
				l.events = append(l.events, &effects.SendDone{Corr: e.Corr})
			default: // It closes connections.
			}
		}
		l.Lookups.ClearResults()
	}
}

// hostileBodies are answers of all kinds, and what is none.
func hostileBodies() [][]byte {
	all := [][]byte{nil, {0xc1}, []byte("{"), []byte(`{"type": "RegisterRetMsg"}`), {0x81, 0xa4}}
	for _, m := range []protocol.Message{
		&protocol.RegisterRetMsg{ExtraConfig: protocol.ExtraConfig{HeartbeatURL: []byte("d0:3")}},
		&protocol.RegisterRetMsg{ExtraConfig: protocol.ExtraConfig{HeartbeatURL: []byte("nowhere")}},
		&protocol.HeartbeatRetMsg{Commands: []protocol.Command{{Type: protocol.CommandFullSync}, {}}},
		&protocol.ErrorMsg{Error: []byte("no")},
		&protocol.FullSyncStartRetMsg{Accepted: true, SyncID: []byte("x")},
		&protocol.FullSyncStatusRetMsg{SyncID: []byte("x"), MissingBatches: []int64{-1, 1 << 40}},
		&protocol.BatchedP2PLookupRetMsg{Holders: []protocol.Holder{{
			InstanceID: []byte("b"), Location: []byte("cpu"), HitChunks: 1 << 31, PeerInitURL: []byte("b0:7000"),
		}}},
	} {
		all = append(all, m.Append(nil))
	}
	return all
}

// A directory that lies costs itself what it does not know, and no work beyond what time brings: the worker says no
// more to it than it would to any other.
func checkHostileReply(t failer, body []byte) {
	l := &hostileDirectory{rig: newRig(t, 100, nil)}
	l.admit(1)
	for range 8 {
		v := l.env()
		l.Lookups.StartLookup(&v, kernel.Ref{}, [][]byte{keyOf(1)})
		l.hears(&effects.Tick{}, body)
		if len(l.events) > 0 {
			t.Fatalf("%q: there is no end to what the worker says", body)
		}
		if n := l.corrs.Len(); n > connCount+int(l.Lookups.cfg.Window) {
			t.Fatalf("%q: %d effects are outstanding", body, n)
		}
		if at, ok := l.Deadline(); ok && at <= l.now {
			t.Fatalf("%q: it has a deadline at %v, and does nothing", body, at)
		} else if ok {
			l.now = at
		}
	}
}

// Bytes of anybody harm nobody.
func TestHostileAnswers(t *testing.T) {
	from := hostileBodies()
	rapid.Check(t, func(t *rapid.T) {
		body := append([]byte(nil), rapid.SampledFrom(from).Draw(t, "body")...)
		for range rapid.IntRange(0, 3).Draw(t, "changes") {
			if at := rapid.IntRange(0, len(body)).Draw(t, "at"); rapid.Bool().Draw(t, "cut") || at == len(body) {
				body = body[:at]
			} else {
				body[at] = rapid.Byte().Draw(t, "byte")
			}
		}
		checkHostileReply(t, body)
	})
}

// FuzzAnswers is the same with bytes that grow out of what they reach.
func FuzzAnswers(f *testing.F) {
	for _, b := range hostileBodies() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, body []byte) { checkHostileReply(t, body) })
}

// A configuration that nothing can work with is refused by what is wrong with it.
func TestConfigIsChecked(t *testing.T) {
	for want, change := range map[string]func(c *Config){
		"registrar: instance has 0 bytes":                func(c *Config) { c.Worker.Instance = "" },
		"registrar: rank is 70000":                       func(c *Config) { c.Worker.Rank = 70_000 },
		"registrar: location is empty":                   func(c *Config) { c.Worker.Location = "" },
		"registrar: directories are 0":                   func(c *Config) { c.Directories = nil },
		`registrar: url: endpoint "h"`:                   func(c *Config) { c.Worker.URL = "h" },
		"registrar: directory 0 listens at d0:1 and d:0": func(c *Config) { c.Directories[0].FeedAddr = effects.Addr{Host: "d"} },
		"registrar: operations of a report: 0":           func(c *Config) { c.ReportOperations = 0 },
		"registrar: patience is 0ns":                     func(c *Config) { c.RequestTimeout = 0 },
		"registrar: the most backoff is 1ns":             func(c *Config) { c.BackoffMax = 1 },
		"registrar: the most time between syncs is 1ns":  func(c *Config) { c.SyncEveryMax = 1 },
		"registrar: times are 10ms, -1ns":                func(c *Config) { c.SyncPause = -1 },
	} {
		c := newRig(t, 0, nil).Registrar.cfg
		c.Directories = append([]Directory(nil), c.Directories...)
		change(&c)
		if err := c.Check(); err == nil || len(err.Error()) < len(want) || err.Error()[:len(want)] != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
