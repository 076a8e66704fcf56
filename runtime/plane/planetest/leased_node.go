package planetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"

	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// Memory gives tests access to the memory of a leased pool by addresses, on the host or on a device.
type Memory interface {
	Store(at uintptr, b []byte) error
	Load(at uintptr, b []byte) error
}

// LeasedEnd has the pool and the memory that a leased plane serves, and the opener of the plane.
type LeasedEnd struct {
	Pool   *plane.LeasedPool
	Memory Memory
	Open   plane.Opener
}

// A LeasedMaker makes the memory and the opener of a node. All results must stay valid until the end of the test.
type LeasedMaker func(tb testing.TB, id byte, pages uint32, pageBytes uint64, sink plane.Sink) LeasedEnd

// A LeasedNode is one end of a leased plane, with the events that the plane posted. Package contract checks these
// events.
type LeasedNode struct {
	LeasedEnd
	inbox
	Plane plane.Plane
	Inc   effects.Incarnation

	pages          uint32
	pageBytes      uint64
	checker        *contract.Checker
	breach         error // the driver's first breach of the contract
	corr           effects.Corr
	grants         effects.GrantID
	lastGeneration effects.Generation
	log            *slog.Logger
}

// OpenLeased opens a node with a number of pages of pageBytes bytes. At the end of the test the node is closed, and
// must not owe any completion.
func OpenLeased(tb testing.TB, open LeasedMaker, id byte, pages uint32, pageBytes uint64) *LeasedNode {
	tb.Helper()
	n, err := NewLeasedNode(tb, open, id, pages, pageBytes)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		n.Close(tb)
		n.CheckContract(tb)
	})
	return n
}

// NewLeasedNode opens a node that the caller closes.
func NewLeasedNode(tb testing.TB, open LeasedMaker, id byte, pages uint32, pageBytes uint64) (*LeasedNode, error) {
	n := &LeasedNode{inbox: newInbox(), Inc: effects.Incarnation{0: id, 15: id}, pages: pages, pageBytes: pageBytes,
		checker: contract.New(false)}
	n.LeasedEnd = open(tb, id, pages, pageBytes, n)
	n.log = slog.New(slog.NewTextHandler(io.Discard, nil))
	if testing.Verbose() {
		n.log = slog.New(slog.NewTextHandler(testWriter{tb}, nil)).With("node", id)
	}
	var err error
	n.Plane, err = n.Open(context.Background(), plane.Env{Leased: n.Pool, Sink: n, IDs: &plane.IDs{}, Incarnation: n.Inc,
		Key: Key, Bounds: bounds, Log: n.log})
	return n, err
}

// Close closes the plane.
func (n *LeasedNode) Close(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), eventTimeout)
	defer cancel()
	if err := n.Plane.Close(ctx); err != nil {
		tb.Error(err)
	}
}

// CheckContract fails if the plane has broken the contract of drivers, or owes a completion.
func (n *LeasedNode) CheckContract(tb testing.TB) {
	tb.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.breach != nil {
		tb.Error(n.breach)
	}
	if err := n.checker.CheckCompleted(); err != nil {
		tb.Error(err)
	}
}

// Post implements plane.Sink.
func (n *LeasedNode) Post(ev effects.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.recordBreach(n.checker.CheckEvent(ev))
	n.addEvent(ev)
}

// recordBreach records a breach by the driver. Breaches by the test are ignored: the test plays the machine, and may
// cross with an event in ways that a machine never does.
func (n *LeasedNode) recordBreach(err error) {
	if b := (*contract.Breach)(nil); n.breach == nil && errors.As(err, &b) && b.Side == contract.Driver {
		n.breach = err
	}
}

// Do makes the plane and the pool carry out an effect.
func (n *LeasedNode) Do(e effects.Effect) {
	n.mu.Lock()
	n.recordBreach(n.checker.CheckEffect(e))
	n.mu.Unlock()
	switch e := e.(type) {
	case *effects.Import:
		n.Plane.Import(e)
	case *effects.Drop:
		n.Plane.Drop(e.Link)
	case *effects.Publish:
		n.Pool.Publish(e.Pages)
	case *effects.Grant:
		n.Pool.Grant(e)
	case *effects.Revoke:
		n.Pool.Revoke(e.Grant)
	case *effects.Transfer:
		n.Plane.Transfer(e)
		clear(e.Pairs) // Slices in effects are borrowed.
	case *effects.Cancel:
		n.Plane.Cancel(e.Corr)
	default:
		panic("no effect of a leased plane")
	}
}

// TryImport imports a peer and returns the completion of the import.
func (n *LeasedNode) TryImport(tb testing.TB, peer effects.Incarnation, blob []byte) *effects.Imported {
	tb.Helper()
	return n.ImportAs(tb, n.Inc, peer, NewInvitation(n.Plane.Name(), blob, n.Inc, peer))
}

// ImportAs imports a peer under any identity and with any invitation, and returns the completion of the import.
func (n *LeasedNode) ImportAs(tb testing.TB, us, peer effects.Incarnation, invitation []byte) *effects.Imported {
	tb.Helper()
	n.corr++
	corr := n.corr
	n.Do(&effects.Import{Corr: corr, Peer: peer, Us: us, Plane: n.Plane.Name(), Blob: invitation})
	return AwaitEvent(tb, n, func(e *effects.Imported) bool { return e.Corr == corr })
}

// Import imports a peer. The test fails if that does not succeed.
func (n *LeasedNode) Import(tb testing.TB, peer effects.Incarnation, blob []byte) effects.Link {
	tb.Helper()
	e := n.TryImport(tb, peer, blob)
	if e.Code != effects.OK {
		tb.Fatalf("import ended as %s", e.Code)
	}
	return e.Link
}

// PublishFilled publishes new generations of the pages first, first+1, ... and fills each page with different bytes.
func (n *LeasedNode) PublishFilled(tb testing.TB, first, count int) []effects.Page {
	tb.Helper()
	pages := n.newPages(first, count)
	n.Do(&effects.Publish{Pages: pages})
	for _, page := range pages {
		n.FillPage(tb, page)
	}
	return pages
}

func (n *LeasedNode) newPages(first, count int) []effects.Page {
	pages := make([]effects.Page, count)
	for i := range pages {
		n.lastGeneration++
		pages[i] = effects.Page{Pool: n.Pool.ID(), Index: uint32(first + i), Length: uint32(n.pageBytes), Generation: n.lastGeneration}
	}
	return pages
}

// GrantWrite grants new generations of pages to a peer, to store into.
func (n *LeasedNode) GrantWrite(peer effects.Incarnation, first, count int) (effects.GrantID, []effects.Page) {
	pages := n.newPages(first, count)
	n.grants++
	n.Do(&effects.Grant{ID: n.grants, Peer: peer, Pages: pages})
	return n.grants, pages
}

// GrantRead grants a read lease on pages to a peer.
func (n *LeasedNode) GrantRead(peer effects.Incarnation, pages []effects.Page) effects.GrantID {
	n.grants++
	n.Do(&effects.Grant{ID: n.grants, Peer: peer, Read: true, Pages: pages})
	return n.grants
}

// FillPage stores bytes that depend on the node, the page and the generation.
func (n *LeasedNode) FillPage(tb testing.TB, page effects.Page) {
	tb.Helper()
	if err := n.Memory.Store(n.Pool.PageAddress(page), n.contentOf(page)); err != nil {
		tb.Fatal(err)
	}
}

// PageContent returns the bytes with which a node of that incarnation fills a page.
func PageContent(of effects.Incarnation, page effects.Page) []byte {
	b := make([]byte, page.Length)
	fillPattern(b, uint64(of[0])<<56|uint64(page.Index)<<32|uint64(page.Generation))
	return b
}

func (n *LeasedNode) contentOf(page effects.Page) []byte { return PageContent(n.Inc, page) }

// ReadPage returns the content of a page.
func (n *LeasedNode) ReadPage(tb testing.TB, page effects.Page) []byte {
	tb.Helper()
	b := make([]byte, page.Length)
	if err := n.Memory.Load(n.Pool.PageAddress(page), b); err != nil {
		tb.Fatal(err)
	}
	return b
}

// WantContent fails unless each page has the content with which the corresponding page of the given node was filled.
func (n *LeasedNode) WantContent(tb testing.TB, pages []effects.Page, other *LeasedNode, of []effects.Page) {
	tb.Helper()
	for i, page := range pages {
		if !bytes.Equal(n.ReadPage(tb, page), other.contentOf(of[i])) {
			tb.Fatalf("page %d does not hold what page %d of the other node was filled with", page.Index, of[i].Index)
		}
	}
}

// A Move describes a transfer: a push from Local to Remote, or with Read a read from Remote to Local.
type Move struct {
	To            effects.Incarnation
	Link          effects.Link
	Grant         effects.GrantID
	Read          bool
	Local, Remote []effects.Page
	Buffer        effects.BufferID
	Since         effects.Time // the grant was given no earlier than this; zero if unknown
	NotAfter      effects.Time // zero: long from now
}

// StartTransfer starts a transfer.
func (n *LeasedNode) StartTransfer(m Move) effects.Corr {
	n.corr++
	e := &effects.Transfer{Corr: n.corr, Link: m.Link, Peer: m.To, Grant: m.Grant, Read: m.Read, Since: m.Since,
		NotAfter: m.NotAfter}
	if e.NotAfter == 0 {
		e.NotAfter = plane.Now().Add(effects.Duration(2 * eventTimeout))
	}
	for i, local := range m.Local {
		e.Pairs = append(e.Pairs, effects.Pair{Local: local,
			Remote: effects.RemotePage{Buffer: m.Buffer, Index: m.Remote[i].Index, Generation: m.Remote[i].Generation}})
	}
	n.Do(e)
	return e.Corr
}

// AwaitDone waits for the end of a transfer, and for the Settled if that is owed.
func (n *LeasedNode) AwaitDone(tb testing.TB, corr effects.Corr) *effects.TransferDone {
	tb.Helper()
	done := AwaitEvent(tb, n, func(e *effects.TransferDone) bool { return e.Corr == corr })
	if !done.Settled {
		n.AwaitSettled(tb, corr)
	}
	return done
}

// AwaitSettled waits for the Settled of a transfer that was not settled when it ended.
func (n *LeasedNode) AwaitSettled(tb testing.TB, corr effects.Corr) *effects.Settled {
	tb.Helper()
	return AwaitEvent(tb, n, func(e *effects.Settled) bool { return e.Corr == corr })
}

// RevokeGrant revokes a grant and waits for the proof.
func (n *LeasedNode) RevokeGrant(tb testing.TB, grant effects.GrantID) {
	tb.Helper()
	n.Do(&effects.Revoke{Grant: grant})
	n.AwaitRevoked(tb, grant)
}

// AwaitRevoked waits for the proof that a grant's peer cannot reach the pages.
func (n *LeasedNode) AwaitRevoked(tb testing.TB, grant effects.GrantID) {
	tb.Helper()
	AwaitEvent(tb, n, func(e *effects.Revoked) bool { return e.Grant == grant })
}

// DropLink drops a link and waits until the link has ended.
func (n *LeasedNode) DropLink(tb testing.TB, link effects.Link) {
	tb.Helper()
	n.Do(&effects.Drop{Link: link})
	AwaitEvent(tb, n, func(e *effects.Dropped) bool { return e.Link == link })
}

// A LeasedPair is two nodes with a link from A to B.
type LeasedPair struct {
	A, B *LeasedNode
	Link effects.Link
}

// NewLeasedPair opens and links two nodes.
func NewLeasedPair(tb testing.TB, open LeasedMaker, pages uint32, pageBytes uint64) *LeasedPair {
	tb.Helper()
	p := &LeasedPair{A: OpenLeased(tb, open, 1, pages, pageBytes), B: OpenLeased(tb, open, 2, pages, pageBytes)}
	p.Link = p.A.Import(tb, p.B.Inc, p.B.Plane.Blob())
	return p
}

// NewPush prepares a push of count pages of A, beginning at page first, to the same pages of B.
func (p *LeasedPair) NewPush(tb testing.TB, first, count int) Move {
	tb.Helper()
	m := Move{To: p.B.Inc, Link: p.Link, Since: plane.Now(), Buffer: p.B.Pool.Buffer().ID,
		Local: p.A.PublishFilled(tb, first, count)}
	m.Grant, m.Remote = p.B.GrantWrite(p.A.Inc, first, count)
	return m
}

// NewRead prepares a read of count pages of B, beginning at page first, into the same pages of A.
func (p *LeasedPair) NewRead(tb testing.TB, first, count int) Move {
	tb.Helper()
	m := Move{To: p.B.Inc, Link: p.Link, Since: plane.Now(), Buffer: p.B.Pool.Buffer().ID, Read: true,
		Remote: p.B.PublishFilled(tb, first, count)}
	m.Grant = p.B.GrantRead(p.A.Inc, m.Remote)
	m.Local = p.A.newPages(first, count)
	p.A.Do(&effects.Publish{Pages: m.Local})
	return m
}

// WantArrived fails unless the moved pages have the expected content.
func (p *LeasedPair) WantArrived(tb testing.TB, m Move) {
	tb.Helper()
	if m.Read {
		p.A.WantContent(tb, m.Local, p.B, m.Remote)
		return
	}
	p.B.WantContent(tb, m.Remote, p.A, m.Local)
}

// WantEnd runs a transfer that must end with code, and returns the completion.
func (p *LeasedPair) WantEnd(tb testing.TB, m Move, code effects.Code) *effects.TransferDone {
	tb.Helper()
	done := p.A.AwaitDone(tb, p.A.StartTransfer(m))
	if done.Code != code || code == effects.OK && !done.Settled || done.At == 0 {
		tb.Fatalf("a transfer ended as %s, settled %v, at %d; want %s", done.Code, done.Settled, done.At, code)
	}
	return done
}

// A testWriter passes log lines to t.Log.
type testWriter struct{ testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.Logf("%s", bytes.TrimSpace(b))
	return len(b), nil
}
