// Package planetest is the contract suite of data planes: the tests that every plane must pass, however the plane
// moves bytes. A fenced plane's tests run it like this:
//
//	func TestMain(m *testing.M) { planetest.Main(m, shm.Open) }
//	func TestContract(t *testing.T) { planetest.Run(t, shm.Open) }
//
// Main also turns the test binary into the second process of tests that kill or freeze a peer. [RunLeased] is the
// suite for leased planes; a [LeasedMaker] provides the memory. Further suites apply to some planes only: [RunHeld]
// and [RunHeldReads] if a process copies out of the peer's memory, [RunHolders] if accesses can be held up, [RunLies]
// against peers that deviate from the protocol, and the Bench functions for speed.
//
// A test typically opens two nodes, links the nodes and moves pages:
//
//	a, b := planetest.OpenNode(t, open, 1, 64, 4096), planetest.OpenNode(t, open, 2, 64, 4096)
//	link := a.Import(t, b.Inc, b.Plane.Blob())
//	done := a.Done(t, a.Start(planetest.NewWholePush(a, b, link, 0, 2, 4096)))
package planetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/runtime/plane"
)

// eventTimeout is the time that a test waits for an event that must come. A longer wait is always a failure, however
// busy the machine is.
const eventTimeout = time.Minute

// bounds has timeouts so long that no timeout ends anything before a test does: a plane with threads that get no CPU
// time has no defect.
var bounds = plane.Bounds{HandshakeTimeout: eventTimeout, StallTimeout: eventTimeout}

// Key is the identity key of all nodes of these tests.
var Key = identity.KeyFromSeed(1)

// NewInvitation returns the bytes that owner's machine would send to peer about a plane: the blob, followed by the
// token made for this peer.
func NewInvitation(plane string, blob []byte, peer, owner effects.Incarnation) []byte {
	token := Key.Token(plane, peer, owner)
	return append(bytes.Clone(blob), token[:]...)
}

// A Node is one end of a test: a pool, a plane, and the events that both have posted.
type Node struct {
	Pool  *plane.Pool
	Plane plane.Plane
	Inc   effects.Incarnation

	inbox
	// confirm decides at once how each Landed is confirmed, or returns false to leave the Landed unconfirmed. If
	// confirm is nil, the test confirms.
	confirm func(*effects.Landed) (effects.Code, bool)

	corr           effects.Corr
	grants         effects.GrantID
	lastGeneration effects.Generation
}

// ConfirmLanding confirms every landing as the machine would: with OK if the landing is complete.
func ConfirmLanding(l *effects.Landed) (effects.Code, bool) {
	if l.Complete {
		return effects.OK, true
	}
	return effects.Faulted, true
}

// OpenNode opens a node with a number of pages of pageBytes bytes. The node is closed at the end of the test.
func OpenNode(tb testing.TB, open plane.Opener, id byte, pages uint32, pageBytes uint64) *Node {
	tb.Helper()
	n, err := newNode(open, id, pages, pageBytes)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		n.closePlane(tb)
		if err := n.Pool.Close(); err != nil {
			tb.Error(err)
		}
	})
	return n
}

func newNode(open plane.Opener, id byte, pages uint32, pageBytes uint64) (*Node, error) {
	n := &Node{Inc: effects.Incarnation{0: id, 15: id}, inbox: newInbox(), confirm: ConfirmLanding}
	var err error
	n.Pool, err = plane.NewPool(plane.PoolConfig{Buffer: effects.BufferID{0: id, 1: 0xb}, Pages: pages,
		PageBytes: pageBytes, Sink: n, Verifier: new(plane.Verifier)})
	if err != nil {
		return nil, err
	}
	n.Plane, err = open(context.Background(), plane.Env{
		Pool: n.Pool, Sink: n, IDs: &plane.IDs{}, Incarnation: n.Inc, Key: Key, Bounds: bounds,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	return n, err
}

func (n *Node) closePlane(tb testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), eventTimeout)
	defer cancel()
	if err := n.Plane.Close(ctx); err != nil {
		tb.Error(err)
	}
}

// Post implements plane.Sink.
func (n *Node) Post(ev effects.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l, ok := ev.(*effects.Landed); ok && n.confirm != nil {
		if code, answer := n.confirm(l); answer {
			// Planes post with their locks held, as the mailbox allows, so the confirmation must come from another
			// goroutine.
			go n.Plane.Confirm(l.Landing, code)
		}
	}
	n.addEvent(ev)
}

// OnLanded replaces the function that confirms landings. If the function is nil, the test confirms.
func (n *Node) OnLanded(confirm func(*effects.Landed) (effects.Code, bool)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.confirm = confirm
}

// TryImport imports a peer with the blob of the peer's plane, which is the same for everybody, and adds the token that
// proves our identity. The result is the completion of the import.
func (n *Node) TryImport(tb testing.TB, peer effects.Incarnation, blob []byte) *effects.Imported {
	tb.Helper()
	return n.ImportAs(tb, n.Inc, peer, NewInvitation(n.Plane.Name(), blob, n.Inc, peer))
}

// ImportAs imports a peer under any identity and with any invitation, and returns the completion of the import.
func (n *Node) ImportAs(tb testing.TB, us, peer effects.Incarnation, invitation []byte) *effects.Imported {
	tb.Helper()
	n.corr++
	corr := n.corr
	n.Plane.Import(&effects.Import{Corr: corr, Peer: peer, Us: us, Plane: n.Plane.Name(), Blob: invitation})
	return AwaitEvent(tb, n, func(e *effects.Imported) bool { return e.Corr == corr })
}

// Import imports a peer. The test fails if that does not succeed.
func (n *Node) Import(tb testing.TB, peer effects.Incarnation, blob []byte) effects.Link {
	tb.Helper()
	e := n.TryImport(tb, peer, blob)
	if e.Code != effects.OK {
		tb.Fatalf("import ended as %s", e.Code)
	}
	return e.Link
}

// PublishPages publishes new generations of the pages first, first+1, ... and returns the pages.
func (n *Node) PublishPages(first, count int, length uint32) []effects.Page {
	pages := make([]effects.Page, count)
	for i := range pages {
		n.lastGeneration++
		pages[i] = effects.Page{Index: uint32(first + i), Length: length, Generation: n.lastGeneration}
	}
	n.Pool.Publish(pages)
	return pages
}

// GrantWrite grants new generations of pages to a peer, to store into.
func (n *Node) GrantWrite(peer effects.Incarnation, first, count int, length uint32) (effects.GrantID, []effects.Page) {
	pages := n.PublishPages(first, count, length)
	n.grants++
	n.Pool.Grant(&effects.Grant{ID: n.grants, Peer: peer, Pages: pages})
	return n.grants, pages
}

// A Push describes a push: From[i] is stored into page Into[i] of the peer's Buffer.
type Push struct {
	To         effects.Incarnation
	Link       effects.Link
	Grant      effects.GrantID
	From, Into []effects.Page
	Buffer     effects.BufferID
	Gather     effects.Gather
}

// StartPush starts a push.
func (n *Node) StartPush(p Push) effects.Corr {
	n.corr++
	e := &effects.Transfer{Corr: n.corr, Link: p.Link, Peer: p.To, Grant: p.Grant, Gather: p.Gather,
		NotAfter: plane.Now().Add(effects.Duration(2 * eventTimeout))}
	for i, from := range p.From {
		e.Pairs = append(e.Pairs, effects.Pair{Local: from, Remote: effects.RemotePage{
			Buffer: p.Buffer, Index: p.Into[i].Index, Generation: p.Into[i].Generation}})
	}
	e.Gather.Pages = slices.Clone(p.Gather.Pages)
	n.Plane.Transfer(e)
	clear(e.Pairs) // Slices in effects are borrowed.
	clear(e.Gather.Pages)
	return e.Corr
}

// AwaitDone waits for the end of a transfer.
func (n *Node) AwaitDone(tb testing.TB, corr effects.Corr) *effects.TransferDone {
	tb.Helper()
	return AwaitEvent(tb, n, func(e *effects.TransferDone) bool { return e.Corr == corr })
}

// fillPattern writes a pattern that depends on seed and on the position in b.
func fillPattern(b []byte, seed uint64) {
	x := seed*0x9e3779b97f4a7c15 + 1
	for len(b) >= 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(b, x)
		b = b[8:]
	}
	for i := range b {
		b[i] = byte(x >> (8 * i))
	}
}
