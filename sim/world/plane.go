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

	Granted         effects.GrantID     // the grant under which stores are allowed (M1); 0: none
	GrantedTo       effects.Incarnation `snap:"skip"` // the peer of the latest grant, where peers have shares
	GrantGeneration effects.Generation  // the generation of that grant
	LastGeneration  effects.Generation  // the highest generation ever granted or delivered
	Writers         int                 // number of transfers' accesses that may still store here
	Readers         int                 // number of transfers' accesses that may still read here
	Scatters        int                 // number of scatters that read the page
	Verifies        int                 // number of comparisons with a checksum that read the page
	ChunkGeneration effects.Generation  // the generation in which the page was taken for a chunk
	TrustedGrant    effects.GrantID     // the bearer grant because of which the content is trusted
	WholeGrant      effects.GrantID     // the bearer grant under which the whole page was stored
	Reserved        effects.Ticket      // the Reserve by which the engine holds the page
	Pins            int                 // number of Gets by which the engine holds the page
	counted         bool                `snap:"skip"` // counted as in use
	FillState       fillState           // state of the read that filled the page
	FlippedIn       effects.Generation  // the generation in which a bit of the content was changed at rest
	flip            flip                // the change
	StoredFlipped   effects.Generation  // the generation in which a peer stored content with a changed bit
}

// Pool is the memory of an incarnation of a node. Transfers keep a pointer to the pool, because memory that a peer has
// mapped outlives its owner.
type Pool struct {
	Node         *Node `snap:"skip"`
	Incarnation  uint32
	PageBytes    uint32
	Leased       bool
	writeTime    effects.Duration // duration of a write grant
	readTime     effects.Duration // duration of a read lease
	Pages        []Page
	InUseCount   int                        `snap:"skip"` // number of pages in use
	ReadLeases   []*Grant                   // read leases that are in force as far as is known
	state        poolState                  // of a rank that has failed alone
	Returned     bool                       // of a rank that has failed alone: the engine has its pages back
	secondBuffer effects.BufferID           `snap:"skip"` // id of the second pool, if there are two
	secondFirst  uint32                     `snap:"skip"` // the first page of the second pool
	pastGrants   map[effects.GrantID]*Grant `snap:"bag"`  // grants of an ended incarnation; readers may refer to them
}

// newPool returns the memory of a new incarnation.
func (n *Node) newPool(w *World, m *Pools, pages uint32) *Pool {
	return w.Arenas.pools.AllocCopy(Pool{Node: n, Incarnation: n.Incarnation, PageBytes: m.PageBytes, Leased: m.Leased,
		writeTime: m.WriteTime, readTime: m.ReadTime,
		Pages: w.Arenas.pages.Alloc(int(pages))})
}

// PageNumber returns the number of the page that peers address by a buffer and an index. If the buffer has no such
// page, the number is beyond the pool. Within a node, drivers and machines number the pages of both pools
// consecutively.
func (p *Pool) PageNumber(buffer effects.BufferID, index uint32) uint32 {
	switch none := uint32(len(p.Pages)); {
	case p.secondFirst == none || p.secondBuffer == (effects.BufferID{}):
		return index
	case buffer != p.secondBuffer && index < p.secondFirst:
		return index
	case buffer == p.secondBuffer && index < none-p.secondFirst:
		return p.secondFirst + index
	default:
		return none
	}
}

// IsAlive reports whether the process that owns p still runs.
func (p *Pool) IsAlive() bool { return p.Node.Up && p.Node.Incarnation == p.Incarnation }

// PartCount returns the number of parts that a length covers.
func (p *Pool) PartCount(length uint32) int { return int(length * Parts / p.PageBytes) }

// Link is an imported peer.
type Link struct {
	ID              uint64 `snap:"link"`
	From            int32
	FromIncarnation uint32
	To              int32
	Peer            effects.Incarnation
	ImporterName    effects.Incarnation // the name by which that peer knows the importing node
	Target          *Pool
	Dropped         bool // the importing node has dropped the link
	Lost            bool // the link is lost, and the importing node was notified or will be
	ImportReported  bool // the machine was notified of the import
	LossReported    bool // the machine was notified of the loss, and must only drop the link from then on
	Comm            *commLink
	drawCount       uint64     `snap:"skip"` // number of draws for its communicators
	queue           planeQueue `snap:"skip"` // of the reports to the importing node
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
	ID          uint64       `snap:"skip"`
	Name        plan.Subject // in draws
	Corr        effects.Corr `snap:"skip"`
	Link        *Link
	Initiator   effects.Incarnation
	Grant       effects.GrantID
	Pairs       []effects.Pair
	Gather      effects.Gather // of a push: the layers from which each page is put together
	NotAfter    effects.Time
	Since       effects.Time // the grant is no older, according to the machine
	Read        bool         // loads the remote pages into the local pages
	Local       *Pool        // the initiator's
	Remote      *Pool        // the pool of the node that granted the pages
	CopyStarted bool         // the copying thread has begun
	submitted   bool         // has left the queue of the initiator's driver
	Ended       bool         // no further access will be made
	stopCode    effects.Code
	StoresLeft  []int // leased: pairs that the hardware may still store
	InFlight    int   // leased: number of accesses that are submitted and not done
	doneCount   int   // leased pushes, and all reads: number of complete pages
	Landed      []effects.Page
	landing     landingState
	heldGrant   *Grant
	Lease       *Grant // of a read: the lease, as long as a record of the lease exists
	ownerSends  bool   // the owner sends the bytes of the read; otherwise the reader copies by itself
	inPage      bool   // a read that is in the middle of a page
	Reported    bool   // TransferDone was queued
	// SettledEarly: the transfer's permit was withdrawn, and the transfer was reported as settled, while the owner may
	// still read. Invariant: what is read from then on cannot be delivered (M3).
	SettledEarly bool
	Settled      bool // TransferDone or Settled has reported the transfer as settled
	LocalInUse   bool // until the initiator is notified of the end: nothing else may use the local pages

	flipped bool   // a bit of a page was changed on the way, or at the source
	corrupt uint32 // pages of a push that did not have the checksum of the grant
}

// importPeer carries out an [effects.Import].
func (n *Node) importPeer(w *World, e *effects.Import) {
	d := n.nextDraw(w, draw.Import)
	delay := d.HeavyTail(w.Conditions.MessageTime)
	if more, yes := w.DrawStrike(plan.FaultMessageDelayed, n.Subject(), n.drawCounts[draw.Import]); yes {
		delay += more.Duration(0, effects.Second)
	}
	refuse := func(code effects.Code) {
		w.QueueForNode(n, delay, Delivery{Kind: KindImported, A: uint64(e.Corr), B: uint64(code)})
	}
	if w.Conditions.Leased && e.Peer == (effects.Incarnation{}) && len(e.Blob) == 0 {
		l := w.System.NewOutsiderLink(n)
		w.Links, n.Links = append(w.Links, l), append(n.Links, l)
		n.queueInOrder(w, &l.queue, delay, Delivery{Kind: KindImported, A: uint64(e.Corr), B: uint64(effects.OK), C: l.ID})
		return
	}
	if e.Plane != "sim" || len(e.Blob) != 2+len(identity.Token{}) || int(e.Blob[0]) >= len(w.Nodes) {
		w.Fail("contract", "node %d imports plane %q with a blob that no node offered", n.AsSubject(), e.Plane)
		return
	}
	peer := w.Nodes[e.Blob[0]]
	OnImportingPeer.Report(&w.Panel, n.ID, ImportingPeer{n, e})
	switch {
	case !peer.Pool.isServed():
		refuse(effects.Unreachable)
	case !w.System.IsIncarnation(peer, e.Peer):
		refuse(effects.Stale)
	case !w.System.IsInvited(peer, e.Us, e.Peer, e.Blob[2:]):
		w.Fail("contract", "node %d imports node %d with a token that was given to another node", n.AsSubject(), peer.AsSubject())
		return
	case w.IsStruck(plan.FaultImportFailed, n.Subject(), n.drawCounts[draw.Import]):
		refuse(drawRefusal(contract.Importing, d.Rehash()))
	default:
		l := w.Arenas.Links.AllocCopy(Link{ID: uint64(len(w.Links) + 1), From: n.ID, FromIncarnation: n.Incarnation, To: peer.ID, Peer: e.Peer,
			ImporterName: e.Us, Target: peer.Pool})
		w.Links = append(w.Links, l)
		n.Links = append(n.Links, l)
		if w.Conditions.Communicators {
			l.importComm(w, n, e.Corr)
			return
		}
		n.queueInOrder(w, &l.queue, delay, Delivery{Kind: KindImported, A: uint64(e.Corr), B: uint64(effects.OK), C: l.ID})
	}
}

// dropLink carries out an [effects.Drop].
func (n *Node) dropLink(w *World, e *effects.Drop) {
	l := n.linkOf(w, e.Link)
	if l == nil || l.Dropped {
		w.Fail("contract", "node %d drops link %d, which it does not have", n.AsSubject(), oracle.Link(e.Link))
		return
	}
	l.Dropped = true
	if l.Comm != nil {
		l.dropComm(w)
		return
	}
	w.EndLink(n, l, n.nextDraw(w, draw.Import), false)
	n.queueInOrder(w, &l.queue, n.nextDraw(w, draw.Import).HeavyTail(w.Conditions.MessageTime), Delivery{Kind: KindDropped, A: l.ID})
}

// linkOf returns a link of the present incarnation of n, or nil.
func (n *Node) linkOf(w *World, id effects.Link) *Link {
	if id == 0 || uint64(id) > uint64(len(w.Links)) {
		return nil
	}
	if l := w.Links[id-1]; l.From == n.ID && l.FromIncarnation == n.Incarnation {
		return l
	}
	return nil
}

// EndLink ends a link from its owner's side. The link's transfers complete, the owner is notified if notify is set, and
// the peer will notice.
func (w *World) EndLink(n *Node, l *Link, d draw.Value, notify bool) {
	if l.Comm != nil {
		l.cutComm(w)
		return
	}
	if l.Lost {
		return
	}
	l.Lost = true
	after := d.HeavyTail(w.Conditions.MessageTime)
	for _, t := range w.Active.Transfers.Items {
		if t.Link == l && !t.Reported {
			if t.stopCode == effects.OK {
				t.stopCode = effects.PeerLost
			}
			if t.Read && !w.Conditions.Leased {
				t.stopRead(w, draw.Hash(w.Seed, draw.Ack, uint64(t.Name), 4), after)
				continue
			}
			if !t.CopyStarted && t.InFlight == 0 || !t.Remote.isServed() && !w.Conditions.Leased {
				t.Ended = true
			}
			if t.Ended && t.submitted && !w.Conditions.Leased {
				t.failPush(w, effects.PeerLost, draw.Hash(w.Seed, draw.Ack, uint64(t.Name), 4))
				continue
			}
			t.reportDone(w, effects.PeerLost, t.Ended, after)
		}
	}
	if !l.Target.isServed() {
		l.settleAfterDeath(w)
	}
	if notify {
		n.queueInOrder(w, &l.queue, after, Delivery{Kind: KindLinkLost, A: l.ID})
	}
	if l.Target.isServed() {
		w.QueueForNode(l.Target.Node, d.Rehash().HeavyTail(4*w.Conditions.MessageTime),
			Delivery{Kind: kindPeerLinkLost, A: uint64(l.From), B: uint64(l.FromIncarnation)})
	}
}

// handlePeerLoss is called when n notices that a peer that imported n is gone.
func (n *Node) handlePeerLoss(w *World, peer int32, life uint32) {
	for _, l := range w.Links {
		if l.From == peer && l.FromIncarnation == life && l.Target == n.Pool && !l.Lost {
			return // Another link of the same incarnation still exists.
		}
	}
	for _, t := range w.Active.Transfers.Items {
		if t.CopyStarted && !t.Ended && t.Remote == n.Pool && t.Local.Node.ID == peer && t.Local.Incarnation == life {
			t.stopCode = effects.PeerLost
			switch {
			case t.heldGrant != nil:
			case t.Read && t.ownerSends:
				t.endRead(w)
			case !t.Read:
				t.endPush(w)
			}
		}
	}
	n.queueInOrder(w, &n.poolQueue, 0, Delivery{Kind: KindLinkLost, B: uint64(peer), C: uint64(life)})
}

// startTransfer carries out an [effects.Transfer].
func (n *Node) startTransfer(w *World, e *effects.Transfer) {
	l := n.linkOf(w, e.Link)
	if l == nil {
		w.Fail("contract", "node %d transfers on link %d, which it does not have", n.AsSubject(), oracle.Link(e.Link))
		return
	}
	t := w.Arenas.transfers.AllocCopy(Transfer{ID: uint64(len(w.Transfers) + 1), Corr: e.Corr, Link: l, Initiator: l.ImporterName,
		Grant: e.Grant,
		Pairs: w.Arenas.pairs.CopySlice(e.Pairs), NotAfter: e.NotAfter, Read: e.Read, Local: n.Pool})
	for i := range t.Pairs {
		r := &t.Pairs[i].Remote
		r.Index = l.Target.PageNumber(r.Buffer, r.Index)
	}
	t.Gather = e.Gather
	t.Gather.Pages = w.Arenas.EffectPages.CopySlice(e.Gather.Pages)
	if e.Read {
		t.Lease = l.Target.FindReadLease(e.Grant)
	} else if w.Conditions.Leased {
		t.StoresLeft = w.Arenas.ints.Alloc(len(e.Pairs))[:0]
	} else {
		t.Landed = w.Arenas.EffectPages.Alloc(len(e.Pairs))[:0]
	}
	t.Remote = l.Target
	n.transferCount++
	t.Name = plan.AboutTransfer(n.ID, n.Incarnation, n.transferCount)
	w.Transfers = append(w.Transfers, t)
	w.Active.Transfers.Add(t)
	w.Result.Transfers++
	OnStartingTransfer.Report(&w.Panel, n.ID, StartingTransfer{n, t, e})
	if w.Failure != nil {
		return
	}
	d := draw.Hash(w.Seed, draw.Submit, uint64(t.Name), 0)
	switch {
	case l.Dropped || l.Lost:
		t.Ended = true
		if w.Conditions.Leased {
			t.reportDone(w, effects.PeerLost, true, d.HeavyTail(w.Conditions.MessageTime))
		} else {
			t.failPush(w, effects.PeerLost, d)
		}
	case l.Peer != e.Peer || t.namesForeignBuffer(w):
		t.Ended = true
		t.reportDone(w, effects.Stale, true, d.HeavyTail(w.Conditions.MessageTime))
	case l.Comm != nil:
		t.startOnComm(w, l, e.Since)
	default:
		w.QueueForNode(n, d.HeavyTail(w.Conditions.MessageTime/4), Delivery{Kind: KindSubmit, A: t.ID})
	}
}

// submitNext takes a transfer from the driver's queue, and reads the clock again, as a driver must do before passing
// anything to a device (M4, NotAfter).
func (t *Transfer) submitNext(w *World, pair int) {
	n := t.Local.Node
	if t.Reported || t.stopCode != effects.OK {
		if !t.Reported {
			t.stopEarly(w, t.stopCode)
		}
		return
	}
	if w.ReadClock(n) > t.NotAfter {
		t.stopEarly(w, effects.Expired)
		return
	}
	OnTransferSubmitted.Report(&w.Panel, n.ID, TransferSubmitted{n, t})
	t.submitted = true
	w.Journal.AddLine(w.Now, KindSubmit, n.ID, t.ID, uint64(pair), 0)
	switch {
	case w.Conditions.Leased && t.Read:
		t.submitLoad(w, pair)
		return
	case w.Conditions.Leased:
		t.submitStore(w, pair)
		return
	case t.Read:
		t.beginRead(w)
		return
	}
	if t.Remote.isServed() {
		after := draw.Hash(w.Seed, draw.Ask, uint64(t.Name), 0).HeavyTail(w.Conditions.MessageTime) + w.blockedTime(n.ID, t.Remote.Node.ID)
		w.QueueForNode(t.Remote.Node, after, Delivery{Kind: KindTransferRequest, A: t.ID})
	}
}

// stopEarly ends a transfer of which nothing more will be submitted.
func (t *Transfer) stopEarly(w *World, code effects.Code) {
	if t.InFlight == 0 && !t.CopyStarted {
		t.Ended = true
	}
	if t.stopCode == effects.OK {
		t.stopCode = code
	}
	if t.Read && t.submitted && !w.Conditions.Leased {
		t.stopRead(w, draw.Hash(w.Seed, draw.Ack, uint64(t.Name), 3), 0)
		return
	}
	if t.Ended && t.submitted && !w.Conditions.Leased {
		t.failPush(w, code, draw.Hash(w.Seed, draw.Ack, uint64(t.Name), 3))
		return
	}
	t.reportDone(w, code, t.Ended, 0)
}

// reportDone completes t towards its initiator. Settled states whether nothing can touch the pages of t any more.
func (t *Transfer) reportDone(w *World, code effects.Code, settled bool, after effects.Duration) {
	if t.Reported {
		return
	}
	t.Reported = true
	if !t.Local.IsAlive() {
		return
	}
	if w.Conditions.Leased && t.Read && code == effects.OK && !t.haveSums(w) {
		code = effects.Corrupt
	}
	settled = settled || t.drawSettledEarly(w)
	c := uint64(0)
	if settled {
		c = 1
	}
	t.Settled = settled
	t.Local.Node.queueEnd(w, &t.Link.queue, after, draw.Hash(w.Seed, draw.Mailbox, uint64(t.Name), 0),
		Delivery{Kind: KindTransferDone, A: t.ID, B: uint64(code), C: c})
}

// reportSettled sends the Settled that is owed after an unsettled completion.
func (t *Transfer) reportSettled(w *World, code effects.Code, after effects.Duration) {
	if !t.Reported || t.Settled || !t.Local.IsAlive() {
		return
	}
	t.Settled = true
	t.Local.Node.queueInOrder(w, &t.Link.queue, after, Delivery{Kind: KindSettled, A: t.ID, B: uint64(code)})
}

// cancelTransfer carries out an [effects.Cancel] of a transfer.
func (n *Node) cancelTransfer(w *World, e *effects.Cancel) {
	for _, t := range w.Transfers {
		if t.Corr != e.Corr || t.Local != n.Pool {
			continue
		}
		OnCancellingTransfer.Report(&w.Panel, n.ID, CancellingTransfer{n, t})
		if t.Link.Comm != nil {
			t.cancelOnComm(w)
			return
		}
		if t.Reported || t.stopCode != effects.OK {
			continue
		}
		if w.Conditions.Leased {
			t.stopCode = effects.Cancelled // The device finishes what it has; the next submission finds this.
		} else {
			t.stopEarly(w, effects.Cancelled) // At once, even if only the Confirm is missing.
		}
		return
	}
}

// InUse reports whether the page is in use, as drivers see it.
func (pg *Page) InUse(leased bool) bool {
	return pg.Writers > 0 || pg.Readers > 0 || pg.Reserved != 0 || pg.Pins > 0 || pg.Scatters > 0 || pg.Verifies > 0 ||
		pg.Granted != 0 && !leased
}

// UpdateInUse updates the number of pages in use after a change of a page.
func (p *Pool) UpdateInUse(index uint32) {
	pg := &p.Pages[index]
	if inUse := pg.InUse(p.Leased); inUse != pg.counted {
		pg.counted = inUse
		if inUse {
			p.InUseCount++
		} else {
			p.InUseCount--
		}
	}
}

// A fillState is the state of the read that fills a page.
type fillState uint8

const (
	FillNone fillState = iota // no read fills the page
	FillOpen                  // the read has not ended successfully
	FillLate                  // the read was successful but cannot be trusted, because its lease had ended
	FillOK
)

// IsStaging reports whether a page is a staging page, into which fetches read repeatedly: the page has held a read in
// its present generation and was never taken for a chunk in it.
func (n *Node) IsStaging(pg *Page) bool {
	return n.KeepsOffers && pg.FillState != FillNone && pg.LastGeneration == pg.Generation && pg.ChunkGeneration != pg.Generation
}
