package sim

import (
	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// parts is how many stamps a page holds: one for each token of a chunk. A copy
// moves half of them at a time, so that torn pages show.
const parts = 4

// stamp says which part of which fill of which key a piece of memory holds.
type stamp uint64

func makeStamp(key, fill uint32, part int) stamp {
	return stamp(uint64(key)<<36 | uint64(fill)<<4 | uint64(part) + 1)
}

func (s stamp) key() uint32  { return uint32(s >> 36) }
func (s stamp) fill() uint32 { return uint32(s >> 4) }
func (s stamp) part() int    { return int(s&15) - 1 }

// page is the memory of one page and what the ledger knows of its use.
type page struct {
	stamps     [parts]stamp
	generation effects.Generation // published

	granted  effects.GrantID     // to whom stores are allowed; 0 is nobody
	by       effects.Incarnation `snap:"skip"` // to whom it was granted last, where peers have shares
	since    effects.Generation  // the generation of that grant
	last     effects.Generation  // highest ever granted or delivered
	writers  int                 // accesses of transfers that may still store here
	readers  int                 // accesses of transfers that may still read here
	scatters int                 // by which its engine's device code has it
	chunk    effects.Generation  // the life in which it was taken for a chunk
	trusted  effects.GrantID     // the bearer grant by which its content is believed
	whole    effects.GrantID     // the bearer grant under which all of it was stored
	reserved effects.Ticket      // the Reserve that the engine holds it by
	pins     int                 // Gets that the engine holds it by
	held     bool                `snap:"skip"` // counted as in use
	fill     fillState           // of the read that filled it
	owner    effects.Ticket      // of a host pool: the put whose chunk was copied to it last
	origin   effects.Page        // and from where
}

// pool is the memory of one life of one node. Transfers keep a pointer to it: what a
// peer has mapped outlives its owner.
type pool struct {
	node      *node `snap:"skip"`
	number    effects.PoolID
	life      uint32
	pageBytes uint32
	leased    bool
	writes    effects.Duration // how long a grant of it stands
	reads     effects.Duration // and a loan
	pages     []page
	held      int                        `snap:"skip"` // pages that somebody has
	lent      []*grant                   // to read, that stand as far as anybody knows
	after     afterlife                  // of a rank that has failed alone
	back      bool                       // likewise: its pages are its engine's again
	engines   *pool                      // what its engine fills, if that is another
	past      map[effects.GrantID]*grant `snap:"bag"` // all of a life that is over: readers may still speak of them
}

func (w *world) newPool(n *node, m *pools, pages uint32) *pool {
	return w.stock.pools.one(pool{node: n, life: n.life, pageBytes: m.pageBytes, leased: m.leased,
		writes: m.writes, reads: m.reads,
		pages: w.stock.pages.take(int(pages))})
}

// alive says whether the process that owns p still runs.
func (p *pool) alive() bool { return p.node.up && p.node.life == p.life }

// partsOf says how many parts a length covers.
func (p *pool) partsOf(length uint32) int { return int(length * parts / p.pageBytes) }

// link is an imported peer.
type link struct {
	id       uint64 `snap:"link"`
	from     int32
	fromLife uint32
	to       int32
	peer     effects.Incarnation
	us       effects.Incarnation // what that peer knows its owner by
	target   *pool
	dropped  bool // by its owner
	lost     bool // and the owner was, or will be, told
	given    bool // its machine was told that it is there
	told     bool // its machine was: it may not use it again, and owes the Drop
	comm     *commLink
	draws    uint64 `snap:"skip"` // of its communicators
}

type landingState uint8

const (
	landingNone landingState = iota
	landingQueued
	landingReported
	landingConfirmed
)

// transfer is one batch on its way.
type transfer struct {
	id        uint64       `snap:"skip"`
	name      plan.Subject // in draws
	corr      effects.Corr `snap:"skip"`
	link      *link
	initiator effects.Incarnation
	grant     effects.GrantID
	pairs     []effects.Pair
	notAfter  effects.Time
	since     effects.Time // its grant was given no earlier, as far as its machine says
	read      bool         // it loads the remote pages into the local ones
	local     *pool        // the initiator's
	remote    *pool        // of whoever granted
	asked     bool         // the owner of the pages has begun
	submitted bool         // something left the initiator's driver
	ended     bool         // no further access will be made
	stop      effects.Code
	writing   []int // leased: pairs whose stores the hardware has and may still make
	flying    int   // leased: stores submitted and not done
	stored    int   // leased, and every read: pages stored whole
	landed    []effects.Page
	landing   landingState
	holding   *grant
	under     *grant // a read's, as long as anybody can look at it
	served    bool   // a read whose bytes its owner sends, instead of being looked at
	copying   bool   // a read that has half a page
	reported  bool   // TransferDone was queued
	early     bool   // its permit was withdrawn and it was told settled while the owner may still read: what is read cannot be delivered
	settled   bool   // and it, or Settled, said so
	reading   bool   // until its initiator heard that: its local pages are nobody else's
}

func (w *world) importPeer(n *node, e *effects.Import) {
	d := w.draw(draw.Import, n)
	refuse := func(code effects.Code) {
		w.inOrder(n, d.Heavy(w.plan.Net), delivery{kind: kindImported, a: uint64(e.Corr), b: uint64(code)})
	}
	if w.plan.Leased && e.Peer == (effects.Incarnation{}) && len(e.Blob) == 0 {
		l := w.system.outsider.link(w, n)
		w.links, n.links = append(w.links, l), append(n.links, l)
		w.inOrder(n, d.Heavy(w.plan.Net), delivery{kind: kindImported, a: uint64(e.Corr), b: uint64(effects.OK), c: l.id})
		return
	}
	if e.Plane != "sim" || len(e.Blob) != 2+len(identity.Token{}) || int(e.Blob[0]) >= len(w.nodes) {
		w.fail("contract", "node %d imports plane %q with a blob that nobody offered", n.it(), e.Plane)
		return
	}
	peer := w.nodes[e.Blob[0]]
	w.oracles.onImport(n, e)
	switch {
	case !peer.pool.served():
		refuse(effects.Unreachable)
	case !peer.is(e.Peer):
		refuse(effects.Stale)
	case !peer.invited(e.Us, e.Peer, e.Blob[2:]):
		w.fail("contract", "node %d imports node %d with a token that was not given to it", n.it(), peer.it())
		return
	case w.struck(plan.FaultImport, n.subject(), n.ordinals[draw.Import]):
		refuse(refusal(contract.Importing, d.Again()))
	default:
		l := w.stock.links.one(link{id: uint64(len(w.links) + 1), from: n.id, fromLife: n.life, to: peer.id, peer: e.Peer, us: e.Us, target: peer.pool})
		w.links = append(w.links, l)
		n.links = append(n.links, l)
		if w.plan.Communicators {
			w.commImport(n, l, e.Corr)
			return
		}
		w.inOrder(n, d.Heavy(w.plan.Net), delivery{kind: kindImported, a: uint64(e.Corr), b: uint64(effects.OK), c: l.id})
	}
}

func (w *world) drop(n *node, e *effects.Drop) {
	l := w.linkOf(n, e.Link)
	if l == nil || l.dropped {
		w.fail("contract", "node %d drops link %d, which it does not have", n.it(), oracle.Link(e.Link))
		return
	}
	l.dropped = true
	if l.comm != nil {
		w.commDrop(l)
		return
	}
	w.endLink(n, l, w.draw(draw.Import, n), false)
	w.inOrder(n, w.draw(draw.Import, n).Heavy(w.plan.Net), delivery{kind: kindDropped, a: l.id})
}

func (w *world) linkOf(n *node, id effects.Link) *link {
	if id == 0 || uint64(id) > uint64(len(w.links)) {
		return nil
	}
	if l := w.links[id-1]; l.from == n.id && l.fromLife == n.life {
		return l
	}
	return nil
}

// endLink ends a link from its owner's side: its transfers complete, the owner is told
// if tell is set, and the peer will notice.
func (w *world) endLink(n *node, l *link, d draw.Of, tell bool) {
	if l.comm != nil {
		w.commCut(l)
		return
	}
	if l.lost {
		return
	}
	l.lost = true
	after := d.Heavy(w.plan.Net)
	for _, t := range w.going.transfers.some {
		if t.link == l && !t.reported {
			if t.stop == effects.OK {
				t.stop = effects.PeerLost
			}
			if t.read && !w.plan.Leased {
				w.stopRead(t, draw.Hash(w.seed, draw.Ack, uint64(t.name), 4), after)
				continue
			}
			if !t.asked && t.flying == 0 || !t.remote.served() && !w.plan.Leased {
				t.ended = true
			}
			if t.ended && t.submitted && !w.plan.Leased {
				w.failed(t, effects.PeerLost, draw.Hash(w.seed, draw.Ack, uint64(t.name), 4))
				continue
			}
			w.report(t, effects.PeerLost, t.ended, after)
		}
	}
	if !l.target.served() {
		w.settleDead(l)
	}
	if tell {
		w.inOrder(n, after, delivery{kind: kindLinkLost, a: l.id})
	}
	if l.target.served() {
		w.forNode(l.target.node, d.Again().Heavy(4*w.plan.Net),
			delivery{kind: kindSever, a: uint64(l.from), b: uint64(l.fromLife)})
	}
}

// sever is the moment at which n notices that a peer which imported it is gone.
func (w *world) sever(n *node, peer int32, life uint32) {
	for _, l := range w.links {
		if l.from == peer && l.fromLife == life && l.target == n.pool && !l.lost {
			return // Another connection of the same life stands.
		}
	}
	for _, t := range w.going.transfers.some {
		if t.asked && !t.ended && t.remote == n.pool && t.local.node.id == peer && t.local.life == life {
			t.stop = effects.PeerLost
			switch {
			case t.holding != nil:
			case t.read && t.served:
				w.endRead(t)
			case !t.read:
				w.endPush(t)
			}
		}
	}
	w.inOrder(n, 0, delivery{kind: kindLinkLost, b: uint64(peer), c: uint64(life)})
}

func (w *world) transfer(n *node, e *effects.Transfer) {
	l := w.linkOf(n, e.Link)
	if l == nil {
		w.fail("contract", "node %d transfers on link %d, which it does not have", n.it(), oracle.Link(e.Link))
		return
	}
	t := w.stock.transfers.one(transfer{id: uint64(len(w.transfers) + 1), corr: e.Corr, link: l, initiator: l.us, grant: e.Grant,
		pairs: w.stock.pairs.keep(e.Pairs), notAfter: e.NotAfter, read: e.Read, local: n.pool})
	if e.Read {
		t.under = l.target.loan(e.Grant)
	} else if w.plan.Leased {
		t.writing = w.stock.ints.take(len(e.Pairs))[:0]
	} else {
		t.landed = w.stock.spans.take(len(e.Pairs))[:0]
	}
	t.remote = l.target
	n.transfers++
	t.name = plan.AboutTransfer(n.id, n.life, n.transfers)
	w.transfers = append(w.transfers, t)
	w.going.transfers.add(t)
	w.result.Transfers++
	w.oracles.onTransfer(n, t, e)
	if w.failure != nil {
		return
	}
	d := draw.Hash(w.seed, draw.Submit, uint64(t.name), 0)
	switch {
	case l.dropped || l.lost:
		t.ended = true
		if w.plan.Leased {
			w.report(t, effects.PeerLost, true, d.Heavy(w.plan.Net))
		} else {
			w.failed(t, effects.PeerLost, d)
		}
	case l.peer != e.Peer || t.strays(w):
		t.ended = true
		w.report(t, effects.Stale, true, d.Heavy(w.plan.Net))
	case l.comm != nil:
		w.commTransfer(l, t, e.Since)
	default:
		w.forNode(n, d.Heavy(w.plan.Net/4), delivery{kind: kindSubmit, a: t.id})
	}
}

// submit re-reads the clock, as a driver must before it gives anything to a device.
func (w *world) submit(t *transfer, pair int) {
	n := t.local.node
	if t.reported || t.stop != effects.OK {
		if !t.reported {
			w.giveUp(t, t.stop)
		}
		return
	}
	if w.clock(n) > t.notAfter {
		w.giveUp(t, effects.Expired)
		return
	}
	w.oracles.onSubmit(n, t)
	t.submitted = true
	w.journal.note(w.now, kindSubmit, n.id, t.id, uint64(pair), 0)
	switch {
	case w.plan.Leased && t.read:
		w.submitLoad(t, pair)
		return
	case w.plan.Leased:
		w.submitStore(t, pair)
		return
	case t.read:
		w.beginRead(t)
		return
	}
	if t.remote.served() {
		after := draw.Hash(w.seed, draw.Ask, uint64(t.name), 0).Heavy(w.plan.Net) + w.held(n.id, t.remote.node.id)
		w.forNode(t.remote.node, after, delivery{kind: kindAsk, a: t.id})
	}
}

// giveUp ends a transfer of which nothing more will be submitted.
func (w *world) giveUp(t *transfer, code effects.Code) {
	if t.flying == 0 && !t.asked {
		t.ended = true
	}
	if t.stop == effects.OK {
		t.stop = code
	}
	if t.read && t.submitted && !w.plan.Leased {
		w.stopRead(t, draw.Hash(w.seed, draw.Ack, uint64(t.name), 3), 0)
		return
	}
	if t.ended && t.submitted && !w.plan.Leased {
		w.failed(t, code, draw.Hash(w.seed, draw.Ack, uint64(t.name), 3))
		return
	}
	w.report(t, code, t.ended, 0)
}

// report completes t towards its initiator, and if nothing can touch its pages any
// more but the initiator was told otherwise, settles it.
func (w *world) report(t *transfer, code effects.Code, settled bool, after effects.Duration) {
	if t.reported {
		return
	}
	t.reported = true
	if !t.local.alive() {
		return
	}
	settled = settled || w.settledEarly(t)
	c := uint64(0)
	if settled {
		c = 1
	}
	t.settled = settled
	w.inOrder(t.local.node, after, delivery{kind: kindTransferDone, a: t.id, b: uint64(code), c: c})
}

// settle sends the Settled that an unsettled completion owes.
func (w *world) settle(t *transfer, code effects.Code, after effects.Duration) {
	if !t.reported || t.settled || !t.local.alive() {
		return
	}
	t.settled = true
	w.inOrder(t.local.node, after, delivery{kind: kindSettled, a: t.id, b: uint64(code)})
}

func (w *world) cancel(n *node, e *effects.Cancel) {
	for _, t := range w.transfers {
		if t.corr != e.Corr || t.local != n.pool {
			continue
		}
		w.oracles.onCancel(n, t)
		if t.link.comm != nil {
			w.commCancel(t)
			return
		}
		if t.reported || t.stop != effects.OK {
			continue
		}
		if w.plan.Leased {
			t.stop = effects.Cancelled // What the device has goes on; the next submission finds this.
		} else {
			w.giveUp(t, effects.Cancelled) // At once, even if everything is there and only the Confirm is not.
		}
		return
	}
}
