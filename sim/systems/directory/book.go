package directory

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
)

// book is the state that most oracles of this package share: the chunks that each worker holds in truth, taken from the
// commands of the engines, and what each directory was told, taken from the messages that arrived there. The state of
// the machines is never read.
type book struct {
	has    map[string][]uint64 // sorted chunks, by the name of a worker's node
	left   map[string]bool     // worker nodes whose engine has told the worker to leave
	healed effects.Time        // when faults end, in true time; 0 if not known yet
	did    effects.Time        // time of the last change at any worker
	of     map[string]*volume  // by the name of a directory's node
	lives  lives
}

// volume is the part of a ledger about one directory.
type volume struct {
	entries []*entry // workers that the present incarnation was told of
	asked   map[effects.Request]asked
	first   map[string]int // by instance: the turn that last named it first; cleared by registrations
	turn    int
	clock   clock
	spoke   map[who]spoken
}

// volume returns the part about the node of a call, or nil if the node is not a directory.
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

// asked is a request to a directory that has no reply yet.
type asked struct {
	by     who
	hashes []uint64
	sync   *protocol.FullSyncStartMsg
}

// judge checks the reply to a lookup.
type judge func(b *book, x *volume, c *oracle.Call, q *asked, m *protocol.BatchedP2PLookupRetMsg)

// keeps makes an oracle maintain a ledger and check each reply to a lookup.
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

// prefix returns the number of leading chunks of wanted that are in the sorted list chunks.
func prefix(chunks, wanted []uint64) (n int) {
	for n < len(wanted) {
		if _, has := slices.BinarySearch(chunks, wanted[n]); !has {
			break
		}
		n++
	}
	return n
}

// received updates the ledger with a message that arrived at the directory.
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

// heard returns the entry of the worker that sent a message, and records the contact. The result is nil if the
// directory does not accept messages from this incarnation of the worker.
func (b *volume) heard(now effects.Time, w protocol.Worker, is protocol.UUID) *entry {
	t := b.at(whoIs(w))
	if t == nil || t.is != is {
		return nil
	}
	b.hears(t, now)
	return t
}

// hears records that the directory has received a message from a worker.
func (b *volume) hears(t *entry, now effects.Time) {
	t.heard = now
	if b.spoke == nil {
		b.spoke = map[who]spoken{}
	}
	b.spoke[t.who] = b.spoke[t.who].again(&b.clock)
}

// at returns the entry of a worker, or nil.
func (b *volume) at(w who) *entry {
	for _, t := range b.entries {
		if t.who == w {
			return t
		}
	}
	return nil
}

// addressOf returns the addresses of a worker, as text. The addresses identify a process of a worker that states no
// incarnation: a late heartbeat of an earlier process has different addresses.
func addressOf(m *protocol.RegisterMsg) string {
	return fmt.Sprintf("%s:%d %s", m.IP, m.Port, m.PeerInitURL)
}

// registers handles a registration or a heartbeat.
func (b *volume) registers(now effects.Time, m *protocol.RegisterMsg, beat bool) {
	t, plain := b.at(whoIs(m.Worker)), m.Incarnation == protocol.UUID{}
	switch {
	case t != nil && !plain && t.was == m.Incarnation: // The previous incarnation is not accepted again.
	case t != nil && t.is == m.Incarnation && !plain,
		t != nil && t.is == m.Incarnation && beat && t.at == addressOf(m):
		b.hears(t, now)
	case t != nil && plain && beat: // The worker has another address, or its release states an incarnation.
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

// answers handles a reply of the directory.
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

// begins records a full sync that the directory has accepted.
func (b *volume) begins(now effects.Time, q *asked, body []byte) {
	var m protocol.FullSyncStartRetMsg
	t := b.at(q.by)
	if m.Decode(body, nil) != nil || !m.Accepted || t == nil || t.syncs(q.sync.SyncID) {
		return
	}
	t.sync = &syncing{id: string(q.sync.SyncID), began: now, went: now, seen: make([]bool, q.sync.BatchCount)}
	if q.sync.Numbered {
		t.sync.account = &account{next: q.sync.Next}
		// A sync uses a sequence number itself, so a sync that states the number after the next does not skip an
		// operation. The earlier reports stay valid until the sync is complete.
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
