package directory

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
)

// A book is what an oracle knows: what workers have in truth, which is what their engines told them, and what each
// directory was told, which is what came to it. It never asks the machine.
type book struct {
	has    map[string][]uint64 // by the name of a worker's node, in order
	left   map[string]bool     // whose engine wants it to be known no more
	healed effects.Time        // when faults end, in true time; 0: nobody has said
	did    effects.Time        // when somebody did something last
	of     map[string]*volume  // by the name of a directory's node
	lives  lives
}

// A volume is about one directory.
type volume struct {
	entries []*entry // whom it was told of in this life of its
	asked   map[effects.Request]asked
	first   map[string]int // by instance, since one of its workers registered last: the turn in which it was named first
	turn    int
	clock   clock
	spoke   map[who]spoken
}

// volume is that of the node that a call is about; nil: it is no directory.
func (b *book) volume(c *oracle.Call) *volume {
	name := c.NodeName()
	if !slices.Contains(sharing, name) {
		return nil
	}
	if b.of == nil {
		b.of = map[string]*volume{}
	}
	if b.of[name] == nil {
		b.of[name] = &volume{asked: map[effects.Request]asked{}}
	}
	return b.of[name]
}

// asked is a question to the directory.
type asked struct {
	by     who
	hashes []uint64
	sync   *protocol.FullSyncStartMsg
}

// judge is what an oracle says of an answer to a lookup.
type judge func(b *book, x *volume, c *oracle.Call, q *asked, m *protocol.BatchedP2PLookupRetMsg)

// keeps has an oracle keep a book and judge each answer.
func keeps(says judge) func(l *oracle.Listen[book]) {
	return func(l *oracle.Listen[book]) {
		ticks(l)
		oracle.On(l, func(b *book, c *oracle.Call, e *effects.Command) { b.commanded(c, e) })
		oracle.On(l, func(b *book, c *oracle.Call, e *effects.Observe) {
			if e.Fact == factSettled {
				b.healed = effects.Time(e.ID)
				b.lives.endless = e.Count == firstStays
			}
		})
		oracle.On(l, func(b *book, c *oracle.Call, e *effects.Send) { b.lives.sent(c.NodeName(), e.Body) })
		oracle.On(l, func(b *book, c *oracle.Call, e *effects.Received) {
			b.lives.came(e.Body)
			if x := b.volume(c); x != nil {
				x.received(c, e)
			}
		})
		oracle.On(l, func(b *book, c *oracle.Call, e *effects.Reply) {
			if x := b.volume(c); x != nil {
				b.answers(x, c, e, says)
			}
		})
		oracle.On(l, func(b *book, c *oracle.Call, _ oracle.Down) { b.down(c) })
	}
}

func (b *book) down(c *oracle.Call) {
	delete(b.of, c.NodeName())
	delete(b.has, c.NodeName())
	delete(b.left, c.NodeName())
	b.did = c.Now()
}

func (b *book) commanded(c *oracle.Call, e *effects.Command) {
	if b.has == nil {
		b.has, b.left = map[string][]uint64{}, map[string]bool{}
	}
	has := b.has[c.NodeName()]
	switch x := e.Body.(type) {
	case *admit:
		for _, k := range x.chunks {
			has = with(has, k)
		}
		b.did = c.Now()
	case *evict:
		for _, k := range x.chunks {
			has = without(has, k)
		}
		b.did = c.Now()
	case *leave:
		b.left[c.NodeName()] = true
		b.did = c.Now()
	}
	b.has[c.NodeName()] = has
}

func with(chunks []uint64, k uint64) []uint64 {
	if at, has := slices.BinarySearch(chunks, k); !has {
		return slices.Insert(chunks, at, k)
	}
	return chunks
}

func without(chunks []uint64, k uint64) []uint64 {
	if at, has := slices.BinarySearch(chunks, k); has {
		return slices.Delete(chunks, at, at+1)
	}
	return chunks
}

// prefix is how many of the first of these chunks are there.
func prefix(chunks, wanted []uint64) (n int) {
	for n < len(wanted) {
		if _, has := slices.BinarySearch(chunks, wanted[n]); !has {
			break
		}
		n++
	}
	return n
}

// received follows what comes to the directory.
func (b *volume) received(c *oracle.Call, e *effects.Received) {
	now := b.clock.now()
	b.entries = slices.DeleteFunc(b.entries, func(t *entry) bool { return now.Sub(t.heard) >= silence })
	for _, t := range b.entries {
		t.fade(now)
		if t.sync != nil && now.Sub(t.sync.went) >= stuck {
			t.sync = nil
		}
	}
	tag, err := protocol.PeekControllerTag(e.Body, nil)
	if err != nil {
		return
	}
	m := protocol.NewMessage(tag)
	if m.Decode(e.Body, nil) != nil {
		return
	}
	switch x := m.(type) {
	case *protocol.RegisterMsg:
		if e.Channel == effects.ChannelDirectory {
			b.registers(now, x, false)
		}
	case *protocol.HeartbeatMsg:
		if e.Channel != effects.ChannelFeed {
			b.registers(now, (*protocol.RegisterMsg)(x), true)
		}
	case *protocol.BatchedKVOperationMsg:
		if t := b.heard(now, x.Worker, x.Incarnation); t != nil && e.Channel == effects.ChannelFeed {
			t.operates(now, x.Operations)
		}
	case *protocol.KVAdmitMsg:
		if t := b.heard(now, x.Worker, protocol.UUID{}); t != nil && e.Channel == effects.ChannelFeed {
			t.does(x.Key.Bits, false)
		}
	case *protocol.KVEvictMsg:
		if t := b.heard(now, x.Worker, protocol.UUID{}); t != nil && e.Channel == effects.ChannelFeed {
			t.does(x.Key.Bits, true)
		}
	case *protocol.DeRegisterMsg:
		if t := b.at(whoIs(x.Worker)); t != nil && t.is == x.Incarnation && e.Channel == effects.ChannelFeed {
			b.entries = slices.DeleteFunc(b.entries, func(o *entry) bool { return o == t })
		}
	case *protocol.FullSyncStartMsg:
		if b.heard(now, x.Worker, x.Incarnation) != nil {
			b.asked[e.Request] = asked{by: whoIs(x.Worker), sync: x}
		}
	case *protocol.FullSyncBatchMsg:
		if t := b.heard(now, x.Worker, x.Incarnation); t != nil && e.Channel == effects.ChannelFeed {
			t.batch(now, x)
		}
	case *protocol.FullSyncEndMsg:
		if t := b.heard(now, x.Worker, x.Incarnation); t != nil && e.Channel == effects.ChannelFeed && t.syncs(x.SyncID) {
			t.sync.ended = true
			t.sync.goesOn(now)
			t.taken()
		}
	case *protocol.FullSyncStatusMsg:
		b.heard(now, x.Worker, protocol.UUID{})
	case *protocol.BatchedP2PLookupMsg:
		b.heard(now, x.Worker, protocol.UUID{})
		b.asked[e.Request] = asked{by: whoIs(x.Worker), hashes: numbers(x.Hashes)}
	}
}

func whoIs(w protocol.Worker) who { return who{instance: string(w.InstanceID), rank: w.WorkerID} }

func numbers(hashes []protocol.ChunkHash) (all []uint64) {
	for _, h := range hashes {
		all = append(all, h.Bits)
	}
	return all
}

// heard is the entry of who speaks, if it is believed.
func (b *volume) heard(now effects.Time, w protocol.Worker, is protocol.UUID) *entry {
	t := b.at(whoIs(w))
	if t == nil || t.is != is {
		return nil
	}
	b.hears(t, now)
	return t
}

// hears notes that the directory hears of a worker.
func (b *volume) hears(t *entry, now effects.Time) {
	t.heard = now
	if b.spoke == nil {
		b.spoke = map[who]spoken{}
	}
	b.spoke[t.who] = b.spoke[t.who].again(&b.clock)
}

// at is the entry of a worker, or nil.
func (b *volume) at(w who) *entry {
	for _, t := range b.entries {
		if t.who == w {
			return t
		}
	}
	return nil
}

// addressOf is where a worker takes a controller's requests and its peers', by which one without an incarnation is known:
// a heartbeat of a former process of it may come late, and says others.
func addressOf(m *protocol.RegisterMsg) string {
	return fmt.Sprintf("%s:%d %s", m.IP, m.Port, m.PeerInitURL)
}

// registers is somebody who is there, by a registration or a heartbeat.
func (b *volume) registers(now effects.Time, m *protocol.RegisterMsg, beat bool) {
	t, plain := b.at(whoIs(m.Worker)), m.Incarnation == protocol.UUID{}
	switch {
	case t != nil && !plain && t.was == m.Incarnation: // It comes no more.
	case t != nil && t.is == m.Incarnation && !plain, t != nil && t.is == m.Incarnation && beat && t.at == addressOf(m):
		b.hears(t, now)
	case t != nil && plain && beat: // It is at another address, or of a release that says more.
	default:
		delete(b.first, string(m.InstanceID))
		next := &entry{who: whoIs(m.Worker), is: m.Incarnation, url: string(m.PeerInitURL), at: addressOf(m),
			begun: beat}
		if !beat {
			next.sure = &account{}
		}
		if t != nil {
			next.was = t.is
			*t, next = *next, t
		} else {
			b.entries = append(b.entries, next)
		}
		b.hears(next, now)
	}
}

// answers follows what the directory says.
func (b *book) answers(x *volume, c *oracle.Call, e *effects.Reply, says judge) {
	q, was := x.asked[e.Request]
	if !was {
		return
	}
	delete(x.asked, e.Request)
	if q.sync != nil {
		x.begins(x.clock.now(), &q, e.Body)
		return
	}
	var m protocol.BatchedP2PLookupRetMsg
	if m.Decode(e.Body, nil) != nil {
		c.Fail("the directory answers the lookup of %s by what is no answer to one", q.by.instance)
		return
	}
	says(b, x, c, &q, &m)
}

// begins is a sync that the directory lets begin.
func (b *volume) begins(now effects.Time, q *asked, body []byte) {
	var m protocol.FullSyncStartRetMsg
	t := b.at(q.by)
	if m.Decode(body, nil) != nil || !m.Accepted || t == nil || t.syncs(q.sync.SyncID) {
		return
	}
	t.sync = &syncing{id: string(q.sync.SyncID), began: now, went: now, seen: make([]bool, q.sync.BatchCount)}
	if q.sync.Numbered {
		t.sync.account = &account{next: q.sync.Next}
		// A sync takes a number, so one that says the next but one leaves out no operation. What was told before stays
		// until the sync is whole.
		switch {
		case t.sure == nil:
		case q.sync.Next == t.sure.next, q.sync.Next == t.sure.next+1:
			t.sure.next = q.sync.Next
		default:
			t.sure = nil
		}
	}
	t.begun, t.counts = true, q.sync.Numbered
	t.next = q.sync.Next
}
