package world

import (
	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// Parts is how many stamps a page holds: one for each token of a chunk. A copy moves half of them at a time, so that
// torn pages show.
const Parts = 4

// Stamp says which part of which fill of which key a piece of memory holds.
type Stamp uint64

func MakeStamp(key, fill uint32, part int) Stamp {
	return Stamp(uint64(key)<<36 | uint64(fill)<<4 | uint64(part) + 1)
}

func (s Stamp) Key() uint32  { return uint32(s >> 36) }
func (s Stamp) Fill() uint32 { return uint32(s >> 4) }
func (s Stamp) Part() int    { return int(s&15) - 1 }

// Page is the memory of one page and what the ledger knows of its use.
type Page struct {
	Stamps     [Parts]Stamp
	Generation effects.Generation // published

	Granted  effects.GrantID     // to whom stores are allowed; 0 is nobody
	By       effects.Incarnation `snap:"skip"` // to whom it was granted last, where peers have shares
	Since    effects.Generation  // the generation of that grant
	Last     effects.Generation  // highest ever granted or delivered
	Writers  int                 // accesses of transfers that may still store here
	Readers  int                 // accesses of transfers that may still read here
	Scatters int                 // by which its engine's device code has it
	Chunk    effects.Generation  // the life in which it was taken for a chunk
	Trusted  effects.GrantID     // the bearer grant by which its content is believed
	Whole    effects.GrantID     // the bearer grant under which all of it was stored
	Reserved effects.Ticket      // the Reserve that the engine holds it by
	Pins     int                 // Gets that the engine holds it by
	held     bool                `snap:"skip"` // counted as in use
	Fill     fillState           // of the read that filled it
}

// Pool is the memory of one life of one node. Transfers keep a pointer to it: what a peer has mapped outlives its
// owner.
type Pool struct {
	Node      *Node `snap:"skip"`
	Life      uint32
	PageBytes uint32
	Leased    bool
	writes    effects.Duration // how long a grant of it stands
	reads     effects.Duration // and a loan
	Pages     []Page
	Held      int                        `snap:"skip"` // pages that somebody has
	Lent      []*Grant                   // to read, that stand as far as anybody knows
	after     afterlife                  // of a rank that has failed alone
	Back      bool                       // likewise: its pages are its engine's again
	second    effects.BufferID           `snap:"skip"` // what peers call its pages from one on, where there are two pools
	from      uint32                     `snap:"skip"` // which that is
	past      map[effects.GrantID]*Grant `snap:"bag"`  // all of a life that is over: readers may still speak of them
}

func (n *Node) newPool(w *World, m *Pools, pages uint32) *Pool {
	return w.Stock.pools.One(Pool{Node: n, Life: n.Life, PageBytes: m.PageBytes, Leased: m.Leased,
		writes: m.Writes, reads: m.Reads,
		Pages: w.Stock.pages.Take(int(pages))})
}

// At is the number of a page that peers know by a buffer and its place there; one that the pool does not have if the
// buffer has no such place. Drivers and machines of one node number all pages through, whichever pool they are of.
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

// Alive says whether the process that owns p still runs.
func (p *Pool) Alive() bool { return p.Node.Up && p.Node.Life == p.Life }

// PartsOf says how many parts a length covers.
func (p *Pool) PartsOf(length uint32) int { return int(length * Parts / p.PageBytes) }

// Link is an imported peer.
type Link struct {
	ID       uint64 `snap:"link"`
	From     int32
	FromLife uint32
	To       int32
	Peer     effects.Incarnation
	Us       effects.Incarnation // what that peer knows its owner by
	Target   *Pool
	Dropped  bool // by its owner
	Lost     bool // and the owner was, or will be, told
	Given    bool // its machine was told that it is there
	Told     bool // its machine was: it may not use it again, and owes the Drop
	Comm     *commLink
	draws    uint64 `snap:"skip"` // of its communicators
}

type landingState uint8

const (
	landingNone landingState = iota
	landingQueued
	landingReported
	landingConfirmed
)

// Transfer is one batch on its way.
type Transfer struct {
	ID        uint64       `snap:"skip"`
	Name      plan.Subject // in draws
	Corr      effects.Corr `snap:"skip"`
	Link      *Link
	Initiator effects.Incarnation
	Grant     effects.GrantID
	Pairs     []effects.Pair
	Gather    effects.Gather // of a push: of which pages each is put together
	NotAfter  effects.Time
	Since     effects.Time // its grant was given no earlier, as far as its machine says
	Read      bool         // it loads the remote pages into the local ones
	Local     *Pool        // the initiator's
	Remote    *Pool        // of whoever granted
	Asked     bool         // the owner of the pages has begun
	submitted bool         // something left the initiator's driver
	Ended     bool         // no further access will be made
	stop      effects.Code
	Writing   []int // leased: pairs whose stores the hardware has and may still make
	Flying    int   // leased: stores submitted and not done
	stored    int   // leased, and every read: pages stored whole
	Landed    []effects.Page
	landing   landingState
	holding   *Grant
	Under     *Grant // a read's, as long as anybody can look at it
	served    bool   // a read whose bytes its owner sends, instead of being looked at
	copying   bool   // a read that has half a page
	Reported  bool   // TransferDone was queued
	// its permit was withdrawn and it was told settled while the owner may still read: what is read cannot be delivered
	Early   bool
	Settled bool // and it, or Settled, said so
	Reading bool // until its initiator heard that: its local pages are nobody else's
}

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
		l := w.System.Outsider.Link(w, n)
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
	case !w.System.Calls(peer, e.Peer):
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

func (n *Node) linkOf(w *World, id effects.Link) *Link {
	if id == 0 || uint64(id) > uint64(len(w.Links)) {
		return nil
	}
	if l := w.Links[id-1]; l.From == n.ID && l.FromLife == n.Life {
		return l
	}
	return nil
}

// EndLink ends a link from its owner's side: its transfers complete, the owner is told if tell is set, and the peer
// will notice.
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

// sever is the moment at which n notices that a peer which imported it is gone.
func (n *Node) sever(w *World, peer int32, life uint32) {
	for _, l := range w.Links {
		if l.From == peer && l.FromLife == life && l.Target == n.Pool && !l.Lost {
			return // Another connection of the same life stands.
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

// submit re-reads the clock, as a driver must before it gives anything to a device.
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

// report completes t towards its initiator, and if nothing can touch its pages any
// more but the initiator was told otherwise, settles it.
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

// settle sends the Settled that an unsettled completion owes.
func (t *Transfer) settle(w *World, code effects.Code, after effects.Duration) {
	if !t.Reported || t.Settled || !t.Local.Alive() {
		return
	}
	t.Settled = true
	t.Local.Node.inOrder(w, after, Delivery{Kind: KindSettled, A: t.ID, B: uint64(code)})
}

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
			t.stop = effects.Cancelled // What the device has goes on; the next submission finds this.
		} else {
			t.giveUp(w, effects.Cancelled) // At once, even if everything is there and only the Confirm is not.
		}
		return
	}
}

// InUse says whether somebody has a page, as drivers saw it.
func (pg *Page) InUse(leased bool) bool {
	return pg.Writers > 0 || pg.Readers > 0 || pg.Reserved != 0 || pg.Pins > 0 || pg.Scatters > 0 || pg.Granted != 0 &&
		!leased
}

// Touch follows a change of one page in the number of those in use.
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

// A fillState says what is known of the read that fills a page.
type fillState uint8

const (
	FillNone fillState = iota // no read does
	FillOpen                  // it has not ended well
	FillLate                  // it has, but nobody may believe it: its lease had ended
	FillWell
)

// Staging says whether a page is one that fetches read into, again and again: it has held a read in this life, and
// never a chunk of its own.
func (n *Node) Staging(pg *Page) bool {
	return n.Delays && pg.Fill != FillNone && pg.Last == pg.Generation && pg.Chunk != pg.Generation
}
