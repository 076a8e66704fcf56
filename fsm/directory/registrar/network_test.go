package registrar

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory/serve"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A network is a worker and directories, with a network that loses what it is told to.
type network struct {
	*rig
	t      *rapid.T
	towers []*serve.Machine
	conns  map[effects.Conn]*wire
	last   effects.Conn
	events []effects.Event // on their way to the worker
	posts  []post          // messages on feeds, of which a copy may come late
	lossy  bool
	mute   bool // directories do not say after what silence they forget a worker
	down   map[int]bool
	hears  func(a *LookupResult)
}

type wire struct {
	to     int
	ch     effects.Channel
	closed bool
	owed   []effects.Corr
}

// A post is a message on the feed of a directory.
type post struct {
	to   wire
	body []byte
}

// A tower is at host d0, d1 and so on, and its channels at their numbers.
func towerAt(i int, ch effects.Channel) effects.Addr {
	return effects.Addr{Host: "d" + string(rune('0'+i)), Port: uint16(ch)}
}

func newTown(t *rapid.T, directories, journal int) *network {
	w := &network{t: t, conns: map[effects.Conn]*wire{}, down: map[int]bool{}}
	w.rig = newRig(t, journal, func(c *Config) {
		c.Directories = nil
		for i := range directories {
			c.Directories = append(c.Directories,
				Directory{RequestAddr: towerAt(i, effects.ChannelDirectory), FeedAddr: towerAt(i, effects.ChannelFeed)})
		}
		c.ReportOperations, c.RequestTimeout = 3, effects.Second
		c.BackoffMax, c.HeartbeatEvery, c.SyncEvery, c.SyncEveryMax = effects.Second, effects.Second, effects.Second, 4*effects.Second
		c.SyncPoll = effects.Second
	})
	for i := range directories {
		w.towers = append(w.towers, newTower(t, i))
	}
	return w
}

func newTower(t failer, i int) *serve.Machine {
	c := serve.Default()
	c.Directory.Silence, c.Directory.SyncTimeout = 20*effects.Second, 5*effects.Second
	c.Heartbeat = protocol.Endpoint(towerAt(i, effects.ChannelHeartbeat)).String()
	m, err := serve.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// goes lets the worker hear something.
func (w *network) goes(ev effects.Event) {
	w.step(ev)
	w.carry()
}

// carry carries out what the worker wants.
func (w *network) carry() {
	if n, most := w.corrs.Len(), (connCount+int(w.Lookups.cfg.Window))*len(w.towers); n > most {
		w.t.Fatalf("%d effects are outstanding, of %d", n, most)
	}
	for i := range w.Lookups.Results() {
		w.hears(&w.Lookups.Results()[i])
	}
	w.Lookups.ClearResults()
	for i := range w.out.Len() {
		switch e := w.out.At(i).(type) {
		case *effects.Open:
			to := int(e.Addr.Host[1] - '0')
			if w.down[to] || w.loses("open") {
				w.events = append(w.events, &effects.Opened{Corr: e.Corr, Code: effects.Unreachable})
				continue
			}
			w.last++
			w.conns[w.last] = &wire{to: to, ch: e.Channel}
			w.events = append(w.events, &effects.Opened{Corr: e.Corr, Conn: w.last})
		case *effects.Close:
			c := w.conns[e.Conn]
			if c.closed {
				w.t.Fatalf("connection %d is closed twice", e.Conn)
			}
			c.closed = true
			for _, corr := range c.owed {
				w.events = append(w.events, &effects.Unanswered{Corr: corr, Code: effects.Closed})
			}
		case *effects.Send:
			c := w.conns[e.Conn]

			if body := w.asks(c, e.Body); body != nil && !w.loses("answer") {
				w.events = append(w.events, &effects.Replied{Corr: e.Corr, Body: body})
			} else {
				c.owed = append(c.owed, e.Corr)
			}
		case *effects.Post:
			code := effects.OK
			w.posts = append(w.posts, post{*w.conns[e.Conn], append([]byte(nil), e.Body...)})
			if w.loses("post") {
				code = effects.Refused
			} else if c := w.conns[e.Conn]; !w.loses("feed") {
				w.asks(c, e.Body)
			}
			w.events = append(w.events, &effects.SendDone{Corr: e.Corr, Code: code})
		default:
			w.t.Fatalf("the worker wants %T", e)
		}
	}
}

// copies has a copy of a message come late, as where a transport sends it again on another connection.
func (w *network) copies(n int) {
	to := w.posts[n].to
	to.closed = false
	w.asks(&to, w.posts[n].body)
}

func (w *network) loses(what string) bool {
	return w.lossy && rapid.IntRange(0, 9).Draw(w.t, what) == 0
}

// asks gives a message to a directory, and its answer.
func (w *network) asks(c *wire, body []byte) []byte {
	if c.closed {
		w.t.Fatalf("something is said on a connection that is closed")
	}
	if w.down[c.to] || w.loses("question") {
		return nil
	}
	var out effects.Effects
	x := effects.Received{Conn: 1, Channel: c.ch, Body: body}
	if c.ch.HasReplies() {
		x.Request = 1
	}
	w.towers[c.to].Step(w.now, &x, &out)
	for i := range out.Len() {
		if e, ok := out.At(i).(*effects.Reply); ok {
			return w.muted(append([]byte(nil), e.Body...))
		}
	}
	return nil
}

// muted is an answer without the time after which a worker is forgotten, if directories do not say it.
func (w *network) muted(body []byte) []byte {
	var r protocol.RegisterRetMsg
	var h protocol.HeartbeatRetMsg
	switch {
	case !w.mute:
	case r.Decode(body, nil) == nil:
		r.SilenceNS = 0
		return r.Append(nil)
	case h.Decode(body, nil) == nil:
		h.SilenceNS = 0
		return h.Append(nil)
	}
	return body
}

// until lets time pass.
func (w *network) until(at effects.Time) {
	for n := 0; ; n++ {
		if n > 100_000 {
			w.t.Fatalf("there is no end to it at %v", w.now)
		}
		if len(w.events) > 0 {
			ev := w.events[0]
			w.events = w.events[1:]
			w.goes(ev)
			continue
		}
		due, ok := w.Deadline()
		if !ok || due > at {
			break
		}
		w.now = max(w.now, due)
		w.goes(&effects.Tick{})
	}
	w.now = at
	for _, m := range w.towers {
		m.Step(w.now, &effects.Tick{}, &effects.Effects{})
	}
}

// knows says whether a directory says that the worker has a chunk.
func (w *network) knows(i, n int) bool {
	m := protocol.BatchedP2PLookupMsg{
		Worker: protocol.Worker{InstanceID: []byte("other")}, Hashes: []protocol.ChunkHash{{Bits: hashOf(n)}},
	}
	var a protocol.BatchedP2PLookupRetMsg
	if err := a.Decode(w.asks(&wire{to: i, ch: effects.ChannelDirectory}, m.Append(nil)), nil); err != nil {
		w.t.Fatal(err)
	}
	return len(a.Holders) > 0
}

// heals is how long after the last fault directories know what is so: what is lost is noticed by two heartbeats, a sync
// that lost its end is given up in 5 s, and may have to be begun again.
const heals = 30 * effects.Second

// Whatever is lost on the way, and however often directories begin anew: when nothing is lost any more each of them
// knows what there is, soon; and when the worker has left, none of them knows anything.
func TestDirectoriesConverge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const chunks = 12
		w := newTown(t, rapid.IntRange(1, 2).Draw(t, "directories"), rapid.SampledFrom([]int{1, 4, 200}).Draw(t, "journal"))
		w.lossy = true
		tower := func() int { return rapid.IntRange(0, len(w.towers)-1).Draw(t, "directory") }
		t.Repeat(map[string]func(*rapid.T){
			"admit": func(t *rapid.T) { w.admit(rapid.IntRange(0, chunks-1).Draw(t, "chunk")) },
			"evict": func(t *rapid.T) { w.evict(rapid.IntRange(0, chunks-1).Draw(t, "chunk")) },
			"wait": func(t *rapid.T) {
				w.goes(&effects.Tick{})
				w.until(w.now.Add(effects.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * effects.Millisecond))
			},
			"restart": func(t *rapid.T) { i := tower(); w.towers[i] = newTower(t, i) },
			"down":    func(t *rapid.T) { i := tower(); w.down[i] = !w.down[i] },
			"copy": func(t *rapid.T) {
				if len(w.posts) > 0 {
					w.copies(rapid.IntRange(0, len(w.posts)-1).Draw(t, "post"))
				}
			},
			"cut": func(t *rapid.T) {
				for id := effects.Conn(1); id <= w.last; id++ {
					if c := w.conns[id]; !c.closed && rapid.Bool().Draw(t, "lost") {
						w.events = append(w.events, &effects.ConnLost{Conn: id})
						w.until(w.now)
						return
					}
				}
			},
		})
		w.lossy = false
		clear(w.down)
		w.until(w.now.Add(heals))
		for i := range w.towers {
			for n := range chunks {
				if _, has := w.has[n]; w.knows(i, n) != has {
					t.Fatalf("directory %d knows chunk %d: %v; it is there: %v; %+v", i, n, !has, has,
						w.Registrar.Status(&w.store, i))
				}
			}
			if x := w.Registrar.Status(&w.store, i); !x.Known || x.Syncing || x.Behind != 0 {
				t.Fatalf("directory %d stands at %+v", i, x)
			}
		}
		w.out.Reset()
		w.leaves()
		for i := range w.towers {
			if n := w.towers[i].Figures().Workers; n != 0 {
				t.Fatalf("directory %d knows %d workers after they left", i, n)
			}
		}
	})
}

// leaves has the worker go, and nothing be left of it.
func (w *network) leaves() {
	v := w.env()
	w.Registrar.Leave(&v, &w.store)
	w.carry()
	w.until(w.now.Add(w.Registrar.cfg.LeaveTimeout))
	if w.Registrar.CountActive() != 0 {
		w.t.Fatalf("it has not left %d directories", w.Registrar.CountActive())
	}
	w.VisitTables(func(name string, n int, _ table.Rest) {
		if n != 0 {
			w.t.Fatalf("%d %s are left", n, name)
		}
	})
}

// Where heartbeats are rarer than a directory's patience, its directory says so and gets them more often; and one that
// does not say, as it is of another release, is told all again after each heartbeat by which it knows the worker again,
// however often that was for nothing.
func TestHeartbeatsRarerThanPatience(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		says := rapid.Bool().Draw(t, "says")
		w := newTown(t, 1, 200)
		c := serve.Default()
		c.Directory.Silence, w.mute = effects.Duration(rapid.IntRange(2, 4).Draw(t, "silence"))*effects.Second, !says
		m, err := serve.New(c)
		if err != nil {
			t.Fatal(err)
		}
		w.towers[0] = m
		cfg := &w.Registrar.cfg
		cfg.HeartbeatEvery, cfg.SyncEvery, cfg.SyncEveryMax = 10*effects.Second, 2*effects.Second, 300*effects.Second
		cfg.SyncPoll = 5 * effects.Second
		w.admit(0)
		w.goes(&effects.Tick{})
		w.until(w.now.Add(effects.Second))
		for beat := range 30 {
			found := false
			for range 40 {
				w.until(w.now.Add(effects.Second / 4))
				knows := w.knows(0, 0)
				if found = found || knows; says && !knows {
					t.Fatalf("it is not found %v after it registered", w.now)
				}
			}
			if !found {
				t.Fatalf("after heartbeat %d it is not found: %+v", beat, w.Registrar.Status(&w.store, 0))
			}
		}
	})
}
