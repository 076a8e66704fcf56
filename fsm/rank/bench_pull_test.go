package rank

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
)

// A pullBench carries whole eager pulls between two ranks, to measure the machines alone. One event of each kind is
// enough: nothing here overlaps.
type pullBench struct {
	tb             testing.TB
	ranks          [2]*Rank // the sender, the receiver
	out            [2]effects.Effects
	now            effects.Time
	steps          int
	channels       []effects.Channel // by Conn-1
	ticket         effects.Ticket
	deliveredPages []effects.Page
	code           effects.Code
	returned       bool

	queue [8]struct {
		to int
		ev effects.Event
	}
	waiting int

	command      effects.Command
	received     effects.Received
	doneReceived effects.Received
	opened       effects.Opened
	replied      effects.Replied
	imported     effects.Imported
	read         effects.TransferDone
	posted       effects.SendDone
	revoked      effects.Revoked

	put     engine.Put
	get     engine.Get
	release engine.Unpin
}

// newPullBench moves batches of so many chunks.
func newPullBench(tb testing.TB, chunks int) *pullBench {
	p := &pullBench{tb: tb}
	for i := range p.ranks {
		cfg := Config{
			Planes: []Plane{{Name: "shm", Blob: []byte("b")}}, Role: RoleSender,
			Common:   Common{Layout: layout},
			Memory:   Memory{Pages: uint32(2 * chunks)},
			Peers:    Peers{LocalID: "x"},
			Offering: Offering{Pull: true, DoneAddr: effects.Addr{Host: "s", Port: 3}},
		}
		if i == 1 {
			cfg.Role, cfg.Pull = RoleReceiver, false
		}
		r, err := New(cfg, uint64(i+1), 0)
		if err != nil {
			tb.Fatal(err)
		}
		p.ranks[i] = r
	}
	p.engine(0, &engine.Reserve{Count: uint32(chunks)})
	var names []string
	for i := range chunks {
		names = append(names, string([]byte{'a' + byte(i%6), 'a' + byte(i/6%6), 'a' + byte(i/36)}))
	}
	p.put = engine.Put{
		Peer: engine.Peer{Host: "r", InitPort: 1, AllocPort: 2}, Request: []byte("bench"), Keys: keys(names),
		Layout: layout, LastChunkTokens: 4,
		Pages: append([]effects.Page(nil), p.deliveredPages...),
	}
	for i := range p.put.Pages {
		p.put.Pages[i].Length = 32
	}
	p.get = engine.Get{Request: p.put.Request, Keys: p.put.Keys}
	return p
}

func (p *pullBench) push(to int, ev effects.Event) {
	p.queue[p.waiting].to, p.queue[p.waiting].ev = to, ev
	p.waiting++
}

// engine gives one command and lets everything that follows happen.
func (p *pullBench) engine(to int, body effects.CommandBody) {
	p.ticket++
	p.command = effects.Command{Ticket: p.ticket, Body: body}
	p.push(to, &p.command)
	for p.waiting > 0 {
		first := p.queue[0]
		copy(p.queue[:], p.queue[1:p.waiting])
		p.waiting--
		p.step(first.to, first.ev)
	}
}

func (p *pullBench) step(who int, ev effects.Event) {
	p.now++
	p.steps++
	out := &p.out[who]
	out.Reset()
	p.ranks[who].Step(p.now, ev, out)
	for i := range out.Len() {
		switch e := out.At(i).(type) {
		case *effects.Open:
			p.channels = append(p.channels, e.Channel)
			p.opened = effects.Opened{Corr: e.Corr, Conn: effects.Conn(len(p.channels))}
			p.push(who, &p.opened)
		case *effects.Send:
			p.received = effects.Received{Conn: 99, Channel: p.channels[e.Conn-1], Request: 1,
				Body: append(p.received.Body[:0], e.Body...)}
			p.replied.Corr = e.Corr
			p.push(1, &p.received)
		case *effects.Reply:
			p.replied.Body = append(p.replied.Body[:0], e.Body...)
			p.push(0, &p.replied)
		case *effects.Post:
			p.doneReceived = effects.Received{Conn: 98, Channel: effects.ChannelDone, Body: append(p.doneReceived.Body[:0], e.Body...)}
			p.posted = effects.SendDone{Corr: e.Corr}
			p.push(0, &p.doneReceived)
			p.push(1, &p.posted)
		case *effects.Import:
			p.imported = effects.Imported{Corr: e.Corr, Link: effects.Link(who + 1)}
			p.push(who, &p.imported)
		case *effects.Transfer:
			p.read = effects.TransferDone{Corr: e.Corr, Settled: true}
			p.push(who, &p.read)
		case *effects.Revoke:
			p.revoked = effects.Revoked{Grant: e.Grant}
			p.push(who, &p.revoked)
		case *effects.Deliver:
			p.code = e.Code
			p.deliveredPages = append(p.deliveredPages[:0], e.Pages...)
		case *effects.Return:
			p.returned = true
		}
	}
}

// pull moves one batch and reads it: Put, Get, Release.
func (p *pullBench) pull() {
	p.returned = false
	p.engine(0, &p.put)
	if p.code != effects.OK || !p.returned {
		p.tb.Fatalf("put ended as %v, its memory returned: %v", p.code, p.returned)
	}
	p.engine(1, &p.get)
	if p.code != effects.OK {
		p.tb.Fatalf("get ended as %v", p.code)
	}
	p.release.Got = p.ticket
	p.engine(1, &p.release)
}

// A whole pull allocates nothing once its tables have grown.
func TestPullAllocatesNothing(t *testing.T) {
	p := newPullBench(t, 8)
	for range 100 {
		p.pull()
	}
	if n := testing.AllocsPerRun(100, p.pull); n != 0 {
		t.Errorf("a pull of 8 chunks allocates %v times, want 0", n)
	}
}

func BenchmarkPull64(b *testing.B) { benchmarkPull(b, 64) }

func benchmarkPull(b *testing.B, chunks int) {
	p := newPullBench(b, chunks)
	for range 10 {
		p.pull()
	}
	p.steps = 0
	b.ReportAllocs()
	for b.Loop() {
		p.pull()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(p.steps), "ns/step")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*chunks), "ns/chunk")
}
