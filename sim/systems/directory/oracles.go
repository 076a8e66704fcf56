package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
)

// named: a directory names nobody who is not there, as far as it was told.
var named = oracle.Of("named", "a directory names workers of the asker's rank that it was told of, have not been silent "+
	"for too long and can be reached, each instance once, those with more first, and never the asker",
	keeps(func(b *book, c *oracle.Call, q *asked, m *protocol.BatchedP2PLookupRetMsg) {
		seen, most := map[string]bool{}, len(q.hashes)
		for i := range m.Holders {
			h := &m.Holders[i]
			name, hits := string(h.InstanceID), int(h.HitChunks)
			switch t := b.of(who{instance: name, rank: q.by.rank}); {
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

// toldSo: nothing is made up, and nothing is forgotten.
var toldSo = oracle.Of("told", "of a worker a directory believes what that told it since it registered, no chunk more, and "+
	"where nothing is missing none less, before, in and after a full sync",
	keeps(func(b *book, c *oracle.Call, q *asked, m *protocol.BatchedP2PLookupRetMsg) {
		says := hitsOf(m)
		for _, t := range b.entries {
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

// converges: hints become what is so.
var converges = oracle.Of("converges", "a while after the last fault a directory knows of each worker what that has",
	keeps(func(b *book, c *oracle.Call, q *asked, m *protocol.BatchedP2PLookupRetMsg) {
		if b.healed == 0 || c.Now().Sub(max(b.healed, b.did)) < effects.Duration(rests) {
			return
		}
		says := hitsOf(m)
		for _, x := range workers {
			if x.who.plain || x.who.rank != q.by.rank || x.who.instance == q.by.instance {
				continue // One that names no incarnation may be mistaken for the one before it.
			}
			if has, hits := prefix(b.has[x.name], q.hashes), says[x.who.instance]; hits != has {
				c.Fail("it says that %s has %d chunks, which has %d", x.name, hits, has)
			}
		}
	}))

// hitsOf is how many chunks each instance has, as an answer says.
func hitsOf(m *protocol.BatchedP2PLookupRetMsg) map[string]int {
	says := map[string]int{}
	for i := range m.Holders {
		says[string(m.Holders[i].InstanceID)] = int(m.Holders[i].HitChunks)
	}
	return says
}
