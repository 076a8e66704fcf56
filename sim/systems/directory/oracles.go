package directory

import (
	"fmt"
	"slices"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
)

// named checks that a directory only names workers that it was told of.
var named = oracle.Of("named",
	"a directory names workers of the asker's rank that it was told of, have not been silent "+
		"for too long and can be reached, each instance once, those with more first, and never the asker",
	keeps(func(_ *book, x *volume, c *oracle.Call, q *asked, m *protocol.BatchedP2PLookupRetMsg) {
		seen, most := map[string]bool{}, len(q.hashes)
		for i := range m.Holders {
			h := &m.Holders[i]
			name, hits := string(h.InstanceID), int(h.HitChunks)
			switch t := x.at(who{instance: name, rank: q.by.rank}); {
			case t == nil:
				c.Fail("it names %s for rank %d, of which it knows nothing", name, q.by.rank)
			case t.url != string(h.PeerInitURL):
				c.Fail("it names %s at %s, which is at %s", name, h.PeerInitURL, t.url)
			case name == q.by.instance:
				c.Fail("it names %s, which asks", name)
			case seen[name]:
				c.Fail("it names %s twice", name)
			case hits > most:
				c.Fail("it names %s with %d chunks behind or beyond %d", name, hits, most)
			}
			seen[name], most = true, hits
		}
	}))

// toldSo checks that a directory invents no chunks and forgets none.
var toldSo = oracle.Of("told",
	"of a worker a directory believes what that told it since it registered, no chunk more, and "+
		"where nothing is missing none less, before, in and after a full sync",
	keeps(func(_ *book, x *volume, c *oracle.Call, q *asked, m *protocol.BatchedP2PLookupRetMsg) {
		says := hitsOf(m)
		for _, t := range x.entries {
			hits := says[t.who.instance]
			if t.who.rank != q.by.rank || t.who.instance == q.by.instance {
				continue
			}
			if told := prefix(t.told, q.hashes); hits > told {
				c.Fail("it says that %s has %d chunks, and was told of %d", t.who.instance, hits, told)
			}
			if t.sure == nil {
				continue
			}
			if sure := prefix(t.sure.chunks, q.hashes); hits < sure {
				c.Fail("it says that %s has %d chunks, and was told of %d, of which nothing is missing", t.who.instance, hits, sure)
			}
		}
	}))

// converges checks that the directories know the truth some time after the last fault.
var converges = oracle.Of("converges",
	"a while after the last fault a directory knows of each worker what that has, and "+
		"nothing of one that has left",
	keeps(knows(workers, rests)))

// knows returns a check that a directory knows the chunks of the given workers once the given time has passed since
// the last fault and the last change.
func knows(workers []hand, rests time.Duration) judge {
	return func(b *book, _ *volume, c *oracle.Call, q *asked, m *protocol.BatchedP2PLookupRetMsg) {
		if b.healed == 0 || c.Now().Sub(max(b.healed, b.did)) < effects.Duration(rests) {
			return
		}
		if wrong := differs(workers, b, q, m); wrong != "" {
			c.Fail("%s says that %s", c.NodeName(), wrong)
		}
	}
}

// differs describes a difference between a reply and the true chunks of the given workers. The result is empty if the
// reply is right.
func differs(workers []hand, b *book, q *asked, m *protocol.BatchedP2PLookupRetMsg) string {
	says := hitsOf(m)
	for _, x := range workers {
		if x.who.plain || x.who.rank != q.by.rank || x.who.instance == q.by.instance {
			continue // A worker without an incarnation may be confused with its earlier process.
		}
		if b.lives.lost(x.who) {
			continue
		}
		has, hits := prefix(b.has[x.name], q.hashes), says[x.who.instance]
		if b.left[x.name] {
			has = 0
		}
		if hits != has {
			return fmt.Sprintf("%s has %d chunks, which has %d", x.name, hits, has)
		}
	}
	return ""
}

// hitsOf returns the number of chunks of each instance that a reply states.
func hitsOf(m *protocol.BatchedP2PLookupRetMsg) map[string]int {
	says := map[string]int{}
	for i := range m.Holders {
		says[string(m.Holders[i].InstanceID)] = int(m.Holders[i].HitChunks)
	}
	return says
}

// honest checks that workers report only chunks that they have, or had at some time in their present incarnation.
var honest = oracle.Of("honest",
	"a worker tells that a chunk came only if it did, and in a full sync of no chunk that is "+
		"not there",
	func(l *oracle.Listen[truth]) {
		oracle.On(l, func(b *truth, c *oracle.Call, e *effects.Command) {
			b.commanded(c, e)
			for _, k := range b.has[c.NodeName()] {
				b.had(c)[k] = true
			}
		})
		oracle.On(l, func(b *truth, c *oracle.Call, e *effects.Post) { b.posts(c, e) })
		oracle.On(l, func(b *truth, c *oracle.Call, _ oracle.Down) {
			b.down(c)
			delete(b.ever, c.NodeName())
		})
	})

type truth struct {
	book
	ever map[string]map[uint64]bool
}

func (b *truth) had(c *oracle.Call) map[uint64]bool {
	if b.ever == nil {
		b.ever = map[string]map[uint64]bool{}
	}
	if b.ever[c.NodeName()] == nil {
		b.ever[c.NodeName()] = map[uint64]bool{}
	}
	return b.ever[c.NodeName()]
}

func (b *truth) posts(c *oracle.Call, e *effects.Post) {
	if c.NodeName() == crowdName {
		return // The crowd invents its reports.
	}
	var ops protocol.BatchedKVOperationMsg
	var batch protocol.FullSyncBatchMsg
	switch {
	case ops.Decode(e.Body, nil) == nil:
		for i := range ops.Operations {
			if op := &ops.Operations[i]; op.Type == protocol.OpAdmit && !b.had(c)[op.Key.Bits] {
				c.Fail("%s tells that chunk %x came, which never did", c.NodeName(), op.Key.Bits)
			}
		}
	case batch.Decode(e.Body, nil) == nil:
		for _, k := range batch.Keys {
			if _, has := slices.BinarySearch(b.has[c.NodeName()], k.Bits); !has {
				c.Fail("%s tells in a full sync of chunk %x, which is not there", c.NodeName(), k.Bits)
			}
		}
	}
}

// answered checks that directories reply at once, so that no request times out.
var answered = oracle.Of("answered", "each question to a directory is answered in the step that hears it",
	func(l *oracle.Listen[awaiting]) {
		oracle.On(l, func(b *awaiting, c *oracle.Call, e *effects.Received) {
			if was := b.open[c.NodeName()]; was != 0 {
				c.Fail("request %d to %s has no answer", was, c.NodeName())
			}
			if e.Channel != effects.ChannelLog {
				b.set(c, e.Request)
			}
		})
		oracle.On(l, func(b *awaiting, c *oracle.Call, e *effects.Reply) { b.set(c, 0) })
		oracle.On(l, func(b *awaiting, c *oracle.Call, _ oracle.Down) { b.set(c, 0) })
	})

type awaiting struct{ open map[string]effects.Request }

func (b *awaiting) set(c *oracle.Call, r effects.Request) {
	if b.open == nil {
		b.open = map[string]effects.Request{}
	}
	if b.open[c.NodeName()] = r; r == 0 {
		delete(b.open, c.NodeName())
	}
}

// parted checks that no message of a worker can arrive after its deregistration and make the worker known again.
var parted = oracle.Of("parted",
	"a worker that leaves tells a directory so once nothing is under way there that makes it "+
		"known, and says nothing there any more",
	func(l *oracle.Listen[calls]) {
		oracle.On(l, func(b *calls, c *oracle.Call, e *effects.Open) { b.at(c).opening[e.Corr] = e.Addr.Host })
		oracle.On(l, func(b *calls, c *oracle.Call,
			e *effects.Opened) {
			b.at(c).conns[e.Conn] = b.at(c).opening[e.Corr]
		})
		oracle.On(l, func(b *calls, c *oracle.Call, e *effects.Replied) { delete(b.at(c).asked, e.Corr) })
		oracle.On(l, func(b *calls, c *oracle.Call, e *effects.Unanswered) { delete(b.at(c).asked, e.Corr) })
		oracle.On(l, func(b *calls, c *oracle.Call, e *effects.Send) {
			n, to := b.at(c), b.at(c).conns[e.Conn]
			switch tag, _ := protocol.PeekControllerTag(e.Body, nil); {
			case tag != protocol.TagRegisterMsg && tag != protocol.TagHeartbeatMsg:
			case n.left[to]:
				c.Fail("%s makes itself known again", c.NodeName())
			default:
				n.asked[e.Corr] = to
			}
		})
		oracle.On(l, func(b *calls, c *oracle.Call, e *effects.Post) { b.posts(c, e) })
		oracle.On(l, func(b *calls, c *oracle.Call, _ oracle.Down) { delete(b.of, c.NodeName()) })
	})

type calls struct{ of map[string]*called }

// called holds the connections and the pending requests of a worker, with the directory of each.
type called struct {
	opening map[effects.Corr]string
	conns   map[effects.Conn]string
	asked   map[effects.Corr]string // pending registrations and heartbeats
	left    map[string]bool         // directories at which the worker has deregistered
}

func (b *calls) at(c *oracle.Call) *called {
	if b.of == nil {
		b.of = map[string]*called{}
	}
	if b.of[c.NodeName()] == nil {
		b.of[c.NodeName()] = &called{
			opening: map[effects.Corr]string{}, conns: map[effects.Conn]string{}, asked: map[effects.Corr]string{},
			left: map[string]bool{},
		}
	}
	return b.of[c.NodeName()]
}

func (b *calls) posts(c *oracle.Call, e *effects.Post) {
	n, to := b.at(c), b.at(c).conns[e.Conn]
	tag, _ := protocol.PeekControllerTag(e.Body, nil)
	switch {
	case tag != protocol.TagDeRegisterMsg && n.left[to]:
		c.Fail("%s has something to tell, and has left", c.NodeName())
	case tag != protocol.TagDeRegisterMsg:
	default:
		for _, at := range n.asked {
			if at == to {
				c.Fail("%s leaves, and what makes it known is on its way", c.NodeName())
			}
		}
		n.left[to] = true
	}
}
