package rank

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/protocol"
)

// What machines do for a chunk does not depend on how many chunks go with it. Work is counted, in statements that were
// executed in the machines and codecs, and not timed: a nested loop over a batch shows on any machine.

// few and many are the sizes compared. A loop over a batch within a loop over it costs four times as much for each
// chunk.
const few, many = 256, 2048

// workMost is how much more a chunk of many may cost than one of few: the logarithm in the heap of deadlines.
const workMost = 1.2

type worldOfWork struct {
	name string
	move func(t *testing.T, w *workers, n int)
}

var worldsOfWork = append([]worldOfWork{
	{"push", func(t *testing.T, w *workers, n int) {
		w.put(n, w.keys[:n], true)
		w.getChunks(t, n, 0)
	}},
	{"push of each key twice", func(t *testing.T, w *workers, n int) {
		w.put(n, append(append([][]byte{}, w.keys[:n/2]...), w.keys[:n/2]...), true)
		w.getChunks(t, n/2, 0)
	}},
	{"get that waits for chunk after chunk", func(t *testing.T, w *workers, n int) {
		w.engine(1, &engine.Get{Keys: w.keys[:n], Wait: effects.Second})
		for i := range n {
			w.put(1, w.keys[i:i+1], true)
		}
		w.wantAll(t, n)
	}},
	{"pull", func(t *testing.T, w *workers, n int) {
		w.put(n, w.keys[:n], true)
		w.getChunks(t, n, 0)
	}},
	{"delayed pull, offered at once", func(t *testing.T, w *workers, n int) {
		w.put(n, w.keys[:n], true)
		w.engine(1, &engine.Fetch{Keys: w.keys[:n]})
		w.wantAll(t, n)
	}},
	{"delayed pull, offered chunk by chunk to a fetch that waits", func(t *testing.T, w *workers, n int) {
		w.engine(1, &engine.Fetch{Keys: w.keys[:n]})
		for i := range n {
			w.put(1, w.keys[i:i+1], false)
		}
		w.wantAll(t, n)
	}},
}, crowdsOfWork...)

// TestWorkIsLinear runs itself with as many chunks as it is told, counts what that executes, and compares.
func TestWorkIsLinear(t *testing.T) {
	if n, err := strconv.Atoi(os.Getenv("KVFERRY_TEST_CHUNKS")); err == nil {
		for _, s := range worldsOfWork {
			t.Run(s.name, func(t *testing.T) { s.move(t, newWorkers(t, s.name, n), n) })
		}
		return
	}
	if testing.Short() {
		t.Skip("builds the machines anew, with counters")
	}
	dir := t.TempDir()
	exe := filepath.Join(dir, "counted")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-o", exe, "-covermode=count",
		"-gcflags=github.com/kvferry/kvferry/...=-N -l", // It counts, so the compiler need not make it fast.
		"-coverpkg=../...,../../effects,../../protocol", ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, s := range worldsOfWork {
		t.Run(s.name, func(t *testing.T) {
			a, b := executed(t, exe, s.name, few), executed(t, exe, s.name, many)
			t.Logf("%.0f statements a chunk of %d, %.0f of %d", a/few, few, b/many, many)
			if b/many > workMost*a/few {
				t.Errorf("%.0f statements a chunk of %d, and %.0f of %d: not linear", a/few, few, b/many, many)
			}
		})
	}
}

// executed counts the statements that a move of n chunks executes.
func executed(t *testing.T, exe, name string, n int) (statements float64) {
	profile := filepath.Join(t.TempDir(), "profile")
	run := exec.CommandContext(t.Context(), exe, "-test.run=^TestWorkIsLinear$/^"+strings.ReplaceAll(name, " ", "_")+"$",
		"-test.coverprofile="+profile)
	run.Env = append(os.Environ(), fmt.Sprintf("KVFERRY_TEST_CHUNKS=%d", n))
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := os.Open(profile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if at := strings.Fields(lines.Text()); len(at) == 3 { // file:from,to statements count
			size, err1 := strconv.ParseFloat(at[1], 64)
			times, err2 := strconv.ParseFloat(at[2], 64)
			if err1 != nil || err2 != nil {
				t.Fatalf("not a line of counts: %q", lines.Text())
			}
			statements += size * times
		}
	}
	if statements == 0 {
		t.Fatal("nothing was counted")
	}
	return statements
}

// workers are a sender and a receiver, joined by a driver for which everything goes well and at once.
type workers struct {
	t             *testing.T
	ranks         [2]*Rank // the sender, the receiver
	keys          [][]byte
	pages         []effects.Page
	now           effects.Time
	ticket        effects.Ticket
	requestCount  uint64            // of peers that are no machines
	holdImports   bool              // the receiver's imports take long
	heldImports   []effects.Corr    // those
	holdOpens     bool              // connections take long to open
	holdReplies   bool              // and answers on alloc lanes to come
	heldCorrs     []effects.Corr    // those
	channels      []effects.Channel // by Conn-1
	sendCorrs     []effects.Corr    // by Request-1
	queue         []event
	last          [2]effects.Deliver // outcomes of each
	outcomes      [2]int
	sent          int  // on alloc lanes
	holdTransfers bool // transfers do not end
	marked        int
	got           effects.Ticket
	onReply       func(*protocol.AllocResponse) // to peers that are no machines
}

type event struct {
	to int
	ev effects.Event
}

func newWorkers(t *testing.T, name string, n int, change ...func(*Config)) *workers {
	w := &workers{t: t, now: 1}
	cfg := Config{
		Planes:   []Plane{{Name: "shm", Blob: []byte("b")}},
		Common:   Common{Layout: layout},
		Memory:   Memory{Pages: uint32(2 * n), GrantsMax: uint32(2 * n)},
		Peers:    Peers{LocalID: "x"},
		Engine:   Engine{PutsMax: uint32(2 * n), GetsMax: uint32(2 * n)},
		Deferred: Deferred{OffersMax: uint32(2 * n)},
		Pipeline: Pipeline{StagingPages: 16},
		Offering: Offering{
			DoneAddr: effects.Addr{Host: "s", Port: 3}, ReservePPM: ReserveNone,
			Pull: strings.Contains(name, "pull"),
		},
	}
	for i := range w.ranks {
		if cfg.Role = RoleSender; i == 1 {
			cfg.Role, cfg.Delay = RoleReceiver, strings.Contains(name, "delayed")
		}
		for _, f := range change {
			f(&cfg)
		}
		r, err := New(cfg, uint64(i+1), 0)
		if err != nil {
			t.Fatal(err)
		}
		w.ranks[i] = r
	}
	for i := range n {
		w.keys = append(w.keys, fmt.Appendf(nil, "m@1@0@%x@half", i+1))
	}
	for len(w.pages) < n {
		w.engine(0, &engine.Reserve{Count: min(uint32(n-len(w.pages)), w.ranks[0].cfg.BatchMax)})
		w.pages = append(w.pages, w.last[0].Pages...)
	}
	for i := range w.pages {
		w.pages[i].Length = 32
	}
	return w
}

// put puts so many chunks, and says that it wants them to have come to their end.
func (w *workers) put(n int, keys [][]byte, ends bool) {
	w.engine(0, &engine.Put{
		Peer: engine.Peer{Host: "r", InitPort: 1, AllocPort: 2}, Keys: keys[:n], Pages: w.pages[:n], Layout: layout,
		LastChunkTokens: 4,
	})
	if ends && w.last[0].Code != effects.OK {
		w.t.Fatalf("put ended as %v", w.last[0].Code)
	}
}

func (w *workers) getChunks(t *testing.T, n int, wait effects.Duration) {
	w.engine(1, &engine.Get{Keys: w.keys[:n], Wait: wait})
	w.wantAll(t, n)
	w.engine(1, &engine.Unpin{Got: w.ticket})
}

func (w *workers) wantAll(t *testing.T, n int) {
	t.Helper()
	if d := w.last[1]; d.Code != effects.OK || int(d.Hits) != n {
		t.Fatalf("%v with %d of %d chunks", d.Code, d.Hits, n)
	}
}

func (w *workers) engine(to int, body effects.CommandBody) {
	w.ticket++
	w.push(to, &effects.Command{Ticket: w.ticket, Body: body})
	w.run()
}

func (w *workers) run() {
	for len(w.queue) > 0 {
		first := w.queue[0]
		w.queue = w.queue[1:]
		w.step(first.to, first.ev)
	}
}

func (w *workers) push(to int, ev effects.Event) { w.queue = append(w.queue, event{to, ev}) }

func (w *workers) step(rank int, ev effects.Event) {
	var out effects.Effects
	w.ranks[rank].Step(w.now, ev, &out)
	for i := range out.Len() {
		switch e := out.At(i).(type) {
		case *effects.Open:
			if w.holdOpens {
				w.heldCorrs = append(w.heldCorrs, e.Corr)
				break
			}
			w.channels = append(w.channels, e.Channel)
			w.push(rank, &effects.Opened{Corr: e.Corr, Conn: effects.Conn(len(w.channels))})
		case *effects.Send:
			if w.channels[e.Conn-1] == effects.ChannelAlloc {
				w.sent++
			}
			if w.holdReplies && w.channels[e.Conn-1] == effects.ChannelAlloc {
				w.heldCorrs = append(w.heldCorrs, e.Corr)
				break
			}
			w.sendCorrs = append(w.sendCorrs, e.Corr)
			w.push(1, &effects.Received{Conn: 99, Channel: w.channels[e.Conn-1], Request: effects.Request(len(w.sendCorrs)),
				Body: e.Body})
		case *effects.Reply:
			if e.Request >= stranger {
				if limits := protocol.DefaultLimits(); w.onReply != nil && len(e.Body) > 0 {
					var m protocol.AllocResponse
					if err := m.Decode(e.Body, &limits); err != nil {
						w.t.Fatal(err)
					}
					w.onReply(&m)
				}
				break
			}
			w.push(0, &effects.Replied{Corr: w.sendCorrs[e.Request-1], Body: e.Body})
		case *effects.Post:
			w.push(0, &effects.Received{Conn: 98, Channel: w.channels[e.Conn-1], Body: e.Body})
			w.push(1, &effects.SendDone{Corr: e.Corr})
		case *effects.Import:
			if w.holdImports && rank == 1 {
				w.heldImports = append(w.heldImports, e.Corr)
				break
			}
			w.push(rank, &effects.Imported{Corr: e.Corr, Link: effects.Link(rank + 1)})
		case *effects.Transfer:
			if w.holdTransfers {
				break
			}
			if !e.Read {
				landed := effects.Landed{Landing: 1, Grant: e.Grant, Peer: nameFor(w.ranks[0], "", w.ranks[1], "r"), Complete: true}
				for _, p := range e.Pairs {
					landed.Pages = append(landed.Pages, effects.Page{Index: p.Remote.Index, Generation: p.Remote.Generation,
						Length: p.Local.Length})
				}
				w.push(1, &landed)
			}
			w.push(rank, &effects.TransferDone{Corr: e.Corr, Settled: true})
		case *effects.Scatter:
			w.push(rank, &effects.Scattered{Corr: e.Corr})
		case *effects.Revoke:
			w.push(rank, &effects.Revoked{Grant: e.Grant})
		case *effects.Deliver:
			w.last[rank] = *e
			w.outcomes[rank]++
		}
	}
}
