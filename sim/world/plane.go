package world

import (
	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// Parts is the number of stamps in a page: a stamp for each token of a chunk. A copy moves half of the stamps at a
// time, so that torn pages become visible.
const Parts = 4

// Stamp identifies the content of a part of a page: the key, the fill that stored it, and the number of the part.
type Stamp uint64

// MakeStamp returns the stamp of a part.
func MakeStamp(key, fill uint32, part int) Stamp {
	return Stamp(uint64(key)<<36 | uint64(fill)<<4 | uint64(part) + 1)
}

func (s Stamp) Key() uint32  { return uint32(s >> 36) }
func (s Stamp) Fill() uint32 { return uint32(s >> 4) }
func (s Stamp) Part() int    { return int(s&15) - 1 }

// Page is the memory of a page, together with what the oracles record about its use.
type Page struct {
	Stamps     [Parts]Stamp
	Generation effects.Generation // published to peers

	Granted  effects.GrantID     // the grant under which stores are allowed (M1); 0: none
	By       effects.Incarnation `snap:"skip"` // the peer of the latest grant, where peers have shares
	Since    effects.Generation  // the generation of that grant
	Last     effects.Generation  // the highest generation ever granted or delivered
	Writers  int                 // number of transfers' accesses that may still store here
	Readers  int                 // number of transfers' accesses that may still read here
	Scatters int                 // number of scatters that read the page
	Chunk    effects.Generation  // the generation in which the page was taken for a chunk
	Trusted  effects.GrantID     // the bearer grant because of which the content is trusted
	Whole    effects.GrantID     // the bearer grant under which the whole page was stored
	Reserved effects.Ticket      // the Reserve by which the engine holds the page
	Pins     int                 // number of Gets by which the engine holds the page
	held     bool                `snap:"skip"` // counted as in use
	Fill     fillState           // state of the read that filled the page
}

// Pool is the memory of an incarnation of a node. Transfers keep a pointer to the pool, because memory that a peer has
// mapped outlives its owner.
type Pool struct {
	Node      *Node `snap:"skip"`
	Life      uint32
	PageBytes uint32
	Leased    bool
	writes    effects.Duration // duration of a write grant
	reads     effects.Duration // duration of a read lease
	Pages     []Page
	Held      int                        `snap:"skip"` // number of pages in use
	Lent      []*Grant                   // read leases that are in force as far as is known
	after     afterlife                  // of a rank that has failed alone
	Back      bool                       // of a rank that has failed alone: the engine has its pages back
	second    effects.BufferID           `snap:"skip"` // id of the second pool, if there are two
	from      uint32                     `snap:"skip"` // the first page of the second pool
	past      map[effects.GrantID]*Grant `snap:"bag"`  // grants of an ended incarnation; readers may refer to them
}

// newPool returns the memory of a new incarnation.
func (n *Node) newPool(w *World, m *Pools, pages uint32) *Pool {
	return w.Stock.pools.One(Pool{Node: n, Life: n.Life, PageBytes: m.PageBytes, Leased: m.Leased,
		writes: m.Writes, reads: m.Reads,
		Pages: w.Stock.pages.Take(int(pages))})
}

// At returns the number of the page that peers address by a buffer and an index. If the buffer has no such page, the
// number is beyond the pool. Within a node, drivers and machines number the pages of both pools consecutively.
func (p *Pool) At(buffer effects.BufferID, index uint32) uint32 {
	switch none := uint32(len(p.Pages)); {
	case p.from == none || p.second == (effects.BufferID{}):
		return index
	case buffer != p.second && index < p.from:
		return index
	case buffer == p.second && index < none-p.from:
		return p.from + index
	default:
		return none
	}
}

// Alive reports whether the process that owns p still runs.
func (p *Pool) Alive() bool { return p.Node.Up && p.Node.Life == p.Life }

// PartsOf returns the number of parts that a length covers.
func (p *Pool) PartsOf(length uint32) int { return int(length * Parts / p.PageBytes) }

// Link is an imported peer.
type Link struct {
	ID       uint64 `snap:"link"`
	From     int32
	FromLife uint32
	To       int32
	Peer     effects.Incarnation
	Us       effects.Incarnation // the name by which that peer knows the importing node
	Target   *Pool
	Dropped  bool // the importing node has dropped the link
	Lost     bool // the link is lost, and the importing node was notified or will be
	Given    bool // the machine was notified of the import
	Told     bool // the machine was notified of the loss, and must only drop the link from then on
	Comm     *commLink
	draws    uint64 `snap:"skip"` // number of draws for its communicators
}

// landingState is the progress of the report about a push at the receiver.
type landingState uint8

const (
	landingNone landingState = iota
	landingQueued
	landingReported
	landingConfirmed
)

// Transfer is a batch in flight: a push, or a read.
type Transfer struct {
	ID        uint64       `snap:"skip"`
	Name      plan.Subject // in draws
	Corr      effects.Corr `snap:"skip"`
	Link      *Link
	Initiator effects.Incarnation
	Grant     effects.GrantID
	Pairs     []effects.Pair
	Gather    effects.Gather // of a push: the layers from which each page is put together
	NotAfter  effects.Time
	Since     effects.Time // the grant is no older, according to the machine
	Read      bool         // loads the remote pages into the local pages
	Local     *Pool        // the initiator's
	Remote    *Pool        // the pool of the node that granted the pages
	Asked     bool         // the copying thread has begun
	submitted bool         // has left the queue of the initiator's driver
	Ended     bool         // no further access will be made
	stop      effects.Code
	Writing   []int // leased: pairs that the hardware may still store
	Flying    int   // leased: number of accesses that are submitted and not done
	stored    int   // leased pushes, and all reads: number of complete pages
	Landed    []effects.Page
	landing   landingState
	holding   *Grant
	Under     *Grant // of a read: the lease, as long as a record of the lease exists
	served    bool   // the owner sends the bytes of the read; otherwise the reader copies by itself
	copying   bool   // a read that is in the middle of a page
	Reported  bool   // TransferDone was queued
	// Early: the transfer's permit was withdrawn, and the transfer was reported as settled, while the owner may still
	// read. Invariant: what is read from then on cannot be delivered (M3).
	Early   bool
	Settled bool // TransferDone or Settled has reported the transfer as settled
	Reading bool // until the initiator is notified of the end: nothing else may use the local pages
}

// importPeer carries out an [effects.Import].
func (n *Node) importPeer(w *World, e *effects.Import) {
	d := n.draw(w, draw.Import)
	takes := d.Heavy(w.Setting.Net)
	if late, yes := w.Strikes(plan.FaultDelay, n.Subject(), n.ordinals[draw.Import]); yes {
		takes += late.Span(0, effects.Second)
	}
	refuse := func(code effects.Code) {
		n.inOrder(w, takes, Delivery{Kind: KindImported, A: uint64(e.Corr), B: uint64(code)})
	}
	if w.Setting.Leased && e.Peer == (effects.Incarnation{}) && len(e.Blob) == 0 {
		l := w.System.OutsiderLink(n)
		w.Links, n.Links = append(w.Links, l), append(n.Links, l)
		n.inOrder(w, takes, Delivery{Kind: KindImported, A: uint64(e.Corr), B: uint64(effects.OK), C: l.ID})
		return
	}
	if e.Plane != "sim" || len(e.Blob) != 2+len(identity.Token{}) || int(e.Blob[0]) >= len(w.Nodes) {
		w.Fail("contract", "node %d imports plane %q with a blob that nobody offered", n.It(), e.Plane)
		return
	}
	peer := w.Nodes[e.Blob[0]]
	OnImporting.Report(&w.Panel, n.ID, Importing{n, e})
	switch {
	case !peer.Pool.served():
		refuse(effects.Unreachable)
	case !w.System.IsName(peer, e.Peer):
		refuse(effects.Stale)
	case !w.System.Invited(peer, e.Us, e.Peer, e.Blob[2:]):
		w.Fail("contract", "node %d imports node %d with a token that was not given to it", n.It(), peer.It())
		return
	case w.Struck(plan.FaultImport, n.Subject(), n.ordinals[draw.Import]):
		refuse(refusal(contract.Importing, d.Again()))
	default:
		l := w.Stock.Links.One(Link{ID: uint64(len(w.Links) + 1), From: n.ID, FromLife: n.Life, To: peer.ID, Peer: e.Peer,
			Us: e.Us, Target: peer.Pool})
		w.Links = append(w.Links, l)
		n.Links = append(n.Links, l)
		if w.Setting.Communicators {
			l.commImport(w, n, e.Corr)
			return
		}
		n.inOrder(w, takes, Delivery{Kind: KindImported, A: uint64(e.Corr), B: uint64(effects.OK), C: l.ID})
	}
}

// drop carries out an [effects.Drop].
func (n *Node) drop(w *World, e *effects.Drop) {
	l := n.linkOf(w, e.Link)
	if l == nil || l.Dropped {
		w.Fail("contract", "node %d drops link %d, which it does not have", n.It(), oracle.Link(e.Link))
		return
	}
	l.Dropped = true
	if l.Comm != nil {
		l.commDrop(w)
		return
	}
	w.EndLink(n, l, n.draw(w, draw.Import), false)
	n.inOrder(w, n.draw(w, draw.Import).Heavy(w.Setting.Net), Delivery{Kind: KindDropped, A: l.ID})
}

// linkOf returns a link of the present incarnation of n, or nil.
func (n *Node) linkOf(w *World, id effects.Link) *Link {
	if id == 0 || uint64(id) > uint64(len(w.Links)) {
		return nil
	}
	if l := w.Links[id-1]; l.From == n.ID && l.FromLife == n.Life {
		return l
	}
	return nil
}

// EndLink ends a link from its owner's side. The link's transfers complete, the owner is notified if notify is set, and
// the peer will notice.
func (w *World) EndLink(n *Node, l *Link, d draw.Of, tell bool) {
	if l.Comm != nil {
		l.commCut(w)
		return
	}
	if l.Lost {
		return
	}
	l.Lost = true
	after := d.Heavy(w.Setting.Net)
	for _, t := range w.Going.Transfers.Some {
		if t.Link == l && !t.Reported {
			if t.stop == effects.OK {
				t.stop = effects.PeerLost
			}
			if t.Read && !w.Setting.Leased {
				t.stopRead(w, draw.Hash(w.Seed, draw.Ack, uint64(t.Name), 4), after)
				continue
			}
			if !t.Asked && t.Flying == 0 || !t.Remote.served() && !w.Setting.Leased {
				t.Ended = true
			}
			if t.Ended && t.submitted && !w.Setting.Leased {
				t.failed(w, effects.PeerLost, draw.Hash(w.Seed, draw.Ack, uint64(t.Name), 4))
				continue
			}
			t.report(w, effects.PeerLost, t.Ended, after)
		}
	}
	if !l.Target.served() {
		l.settleDead(w)
	}
	if tell {
		n.inOrder(w, after, Delivery{Kind: KindLinkLost, A: l.ID})
	}
	if l.Target.served() {
		w.ForNode(l.Target.Node, d.Again().Heavy(4*w.Setting.Net),
			Delivery{Kind: kindSever, A: uint64(l.From), B: uint64(l.FromLife)})
	}
}

// sever is called when n notices that a peer that imported n is gone.
func (n *Node) sever(w *World, peer int32, life uint32) {
	for _, l := range w.Links {
		if l.From == peer && l.FromLife == life && l.Target == n.Pool && !l.Lost {
			return // Another link of the same incarnation still exists.
		}
	}
	for _, t := range w.Going.Transfers.Some {
		if t.Asked && !t.Ended && t.Remote == n.Pool && t.Local.Node.ID == peer && t.Local.Life == life {
			t.stop = effects.PeerLost
			switch {
			case t.holding != nil:
			case t.Read && t.served:
				t.endRead(w)
			case !t.Read:
				t.endPush(w)
			}
		}
	}
	n.inOrder(w, 0, Delivery{Kind: KindLinkLost, B: uint64(peer), C: uint64(life)})
}

// transfer carries out an [effects.Transfer].
func (n *Node) transfer(w *World, e *effects.Transfer) {
	l := n.linkOf(w, e.Link)
	if l == nil {
		w.Fail("contract", "node %d transfers on link %d, which it does not have", n.It(), oracle.Link(e.Link))
		return
	}
	t := w.Stock.transfers.One(Transfer{ID: uint64(len(w.Transfers) + 1), Corr: e.Corr, Link: l, Initiator: l.Us,
		Grant: e.Grant,
		Pairs: w.Stock.pairs.Keep(e.Pairs), NotAfter: e.NotAfter, Read: e.Read, Local: n.Pool})
	for i := range t.Pairs {
		r := &t.Pairs[i].Remote
		r.Index = l.Target.At(r.Buffer, r.Index)
	}
	t.Gather = e.Gather
	t.Gather.Pages = w.Stock.Spans.Keep(e.Gather.Pages)
	if e.Read {
		t.Under = l.Target.Loan(e.Grant)
	} else if w.Setting.Leased {
		t.Writing = w.Stock.ints.Take(len(e.Pairs))[:0]
	} else {
		t.Landed = w.Stock.Spans.Take(len(e.Pairs))[:0]
	}
	t.Remote = l.Target
	n.transfers++
	t.Name = plan.AboutTransfer(n.ID, n.Life, n.transfers)
	w.Transfers = append(w.Transfers, t)
	w.Going.Transfers.Add(t)
	w.Result.Transfers++
	OnTransferring.Report(&w.Panel, n.ID, Transferring{n, t, e})
	if w.Failure != nil {
		return
	}
	d := draw.Hash(w.Seed, draw.Submit, uint64(t.Name), 0)
	switch {
	case l.Dropped || l.Lost:
		t.Ended = true
		if w.Setting.Leased {
			t.report(w, effects.PeerLost, true, d.Heavy(w.Setting.Net))
		} else {
			t.failed(w, effects.PeerLost, d)
		}
	case l.Peer != e.Peer || t.strays(w):
		t.Ended = true
		t.report(w, effects.Stale, true, d.Heavy(w.Setting.Net))
	case l.Comm != nil:
		t.commTransfer(w, l, e.Since)
	default:
		w.ForNode(n, d.Heavy(w.Setting.Net/4), Delivery{Kind: KindSubmit, A: t.ID})
	}
}

// submitNext takes a transfer from the driver's queue, and reads the clock again, as a driver must do before passing
// anything to a device (M4, NotAfter).
func (t *Transfer) submit(w *World, pair int) {
	n := t.Local.Node
	if t.Reported || t.stop != effects.OK {
		if !t.Reported {
			t.giveUp(w, t.stop)
		}
		return
	}
	if w.Clock(n) > t.NotAfter {
		t.giveUp(w, effects.Expired)
		return
	}
	OnSubmitted.Report(&w.Panel, n.ID, Submitted{n, t})
	t.submitted = true
	w.Journal.Note(w.Now, KindSubmit, n.ID, t.ID, uint64(pair), 0)
	switch {
	case w.Setting.Leased && t.Read:
		t.submitLoad(w, pair)
		return
	case w.Setting.Leased:
		t.submitStore(w, pair)
		return
	case t.Read:
		t.beginRead(w)
		return
	}
	if t.Remote.served() {
		after := draw.Hash(w.Seed, draw.Ask, uint64(t.Name), 0).Heavy(w.Setting.Net) + w.held(n.ID, t.Remote.Node.ID)
		w.ForNode(t.Remote.Node, after, Delivery{Kind: KindAsk, A: t.ID})
	}
}

// giveUp ends a transfer of which nothing more will be submitted.
func (t *Transfer) giveUp(w *World, code effects.Code) {
	if t.Flying == 0 && !t.Asked {
		t.Ended = true
	}
	if t.stop == effects.OK {
		t.stop = code
	}
	if t.Read && t.submitted && !w.Setting.Leased {
		t.stopRead(w, draw.Hash(w.Seed, draw.Ack, uint64(t.Name), 3), 0)
		return
	}
	if t.Ended && t.submitted && !w.Setting.Leased {
		t.failed(w, code, draw.Hash(w.Seed, draw.Ack, uint64(t.Name), 3))
		return
	}
	t.report(w, code, t.Ended, 0)
}

// report completes t towards its initiator. Settled states whether nothing can touch the pages of t any more.
func (t *Transfer) report(w *World, code effects.Code, settled bool, after effects.Duration) {
	if t.Reported {
		return
	}
	t.Reported = true
	if !t.Local.Alive() {
		return
	}
	settled = settled || t.settledEarly(w)
	c := uint64(0)
	if settled {
		c = 1
	}
	t.Settled = settled
	t.Local.Node.inOrder(w, after, Delivery{Kind: KindTransferDone, A: t.ID, B: uint64(code), C: c})
}

// settle sends the Settled that is owed after an unsettled completion.
func (t *Transfer) settle(w *World, code effects.Code, after effects.Duration) {
	if !t.Reported || t.Settled || !t.Local.Alive() {
		return
	}
	t.Settled = true
	t.Local.Node.inOrder(w, after, Delivery{Kind: KindSettled, A: t.ID, B: uint64(code)})
}

// cancel carries out an [effects.Cancel] of a transfer.
func (n *Node) cancel(w *World, e *effects.Cancel) {
	for _, t := range w.Transfers {
		if t.Corr != e.Corr || t.Local != n.Pool {
			continue
		}
		OnCancelling.Report(&w.Panel, n.ID, Cancelling{n, t})
		if t.Link.Comm != nil {
			t.commCancel(w)
			return
		}
		if t.Reported || t.stop != effects.OK {
			continue
		}
		if w.Setting.Leased {
			t.stop = effects.Cancelled // The device finishes what it has; the next submission finds this.
		} else {
			t.giveUp(w, effects.Cancelled) // At once, even if only the Confirm is missing.
		}
		return
	}
}

// InUse reports whether the page is in use, as drivers see it.
func (pg *Page) InUse(leased bool) bool {
	return pg.Writers > 0 || pg.Readers > 0 || pg.Reserved != 0 || pg.Pins > 0 || pg.Scatters > 0 || pg.Granted != 0 &&
		!leased
}

// Touch updates the number of pages in use after a change of a page.
func (p *Pool) Touch(index uint32) {
	pg := &p.Pages[index]
	if use := pg.InUse(p.Leased); use != pg.held {
		pg.held = use
		if use {
			p.Held++
		} else {
			p.Held--
		}
	}
}

// A fillState is the state of the read that fills a page.
type fillState uint8

const (
	FillNone fillState = iota // no read fills the page
	FillOpen                  // the read has not ended successfully
	FillLate                  // the read was successful but cannot be trusted, because its lease had ended
	FillWell
)

// Staging reports whether a page is a staging page, into which fetches read repeatedly: the page has held a read in its
// present generation and was never taken for a chunk in it.
func (n *Node) Staging(pg *Page) bool {
	return n.Delays && pg.Fill != FillNone && pg.Last == pg.Generation && pg.Chunk != pg.Generation
}
