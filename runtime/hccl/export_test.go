//go:build cgo && linux

package hccl

import (
	"fmt"
	"io"
	"net"
	"net/netip"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/runtime/hccl/comm"
	"github.com/kvferry/kvferry/runtime/plane/epochs"
	"github.com/kvferry/kvferry/runtime/plane/framing"
	"github.com/kvferry/kvferry/runtime/plane/liar"
	"github.com/kvferry/kvferry/runtime/secure"
)

// Steps are the steps of the protocol at which a lying peer can lie.
var Steps = map[uint8]liar.Step{
	uint8(kindHello): liar.Hello, uint8(kindWelcome): liar.Welcome, uint8(kindOffer): liar.Offer,
	uint8(kindAccept): liar.Accept, uint8(kindFenced): liar.Fenced, uint8(kindGone): liar.Gone,
}

// AssumePoolPages makes a plane assume that a peer's pool has this many pages, as if the peer had lied.
func (p *Plane) AssumePoolPages(link effects.Link, pages uint32) {
	p.outgoingLinks.FindLink(link).PeerPools[0].Pages = pages
}

// SendGone makes a plane report to the peer of a link that this end of an epoch is gone, although the end may still
// exist.
func (p *Plane) SendGone(link effects.Link, epoch uint64) {
	p.outgoingLinks.FindLink(link).Channel.Send(appendEpoch(nil, kindGone, epoch))
}

// RefusesLateBatch makes a link that is up submit a batch of one page after its deadline, past every earlier check of
// the clock, and reports whether the batch was refused.
func (p *Plane) RefusesLateBatch(link effects.Link, pair effects.Pair) bool {
	l := p.outgoingLinks.FindLink(link)
	how := make(chan communicator.Outcome)
	l.Push(func(now effects.Time) {
		there := l.PeerPools[0].Base + uintptr(uint64(pair.Remote.Index)*l.PeerPools[0].PageBytes)
		late := []epochs.Piece{{Local: p.pool.PageAddress(pair.Local), Remote: there, Bytes: uint64(pair.Local.Length)}}
		how <- l.Executor().SubmitBatch(false, late, communicator.Batch{NotAfter: now - 1})
	})
	return <-how == communicator.TooLate
}

// BetweenListAndAccept makes a plane call f once, between listing the revoked grants for an offered epoch and accepting
// the epoch.
func (p *Plane) BetweenListAndAccept(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.revokedGrants
	p.revokedGrants = func(peer effects.Incarnation) ([]effects.GrantID, bool) {
		p.mu.Lock()
		p.revokedGrants = list
		p.mu.Unlock()
		ids, more := list(peer)
		f()
		return ids, more
	}
}

// EpochFrame returns a frame about an epoch.
func EpochFrame(name string, epoch uint64) []byte {
	switch name {
	case "offer":
		return appendOffer(nil, epoch, nil)
	case "accept":
		return appendAccept(nil, accept{epoch: epoch})
	case "gone":
		return appendEpoch(nil, kindGone, epoch)
	}
	return appendEpoch(nil, kindFenced, epoch)
}

// CountAccepts reads frames up to the nth accept, and counts the accepts by code.
func CountAccepts(conn io.Reader, n int) (map[effects.Code]int, error) {
	codes := map[effects.Code]int{}
	for n > 0 {
		k, body, _, err := framing.ReadFrame(conn, nil, frameMax)
		if err != nil {
			return codes, err
		}
		if kind(k) != kindAccept {
			continue
		}
		a, err := parseAccept(body)
		if err != nil {
			return codes, err
		}
		codes[a.code]++
		n--
	}
	return codes, nil
}

// PerformHandshake completes a handshake as an initiator on a server.
func PerformHandshake(conn io.ReadWriter, key identity.Key, from, to effects.Incarnation, server string) error {
	return PerformHandshakeWithSession(conn, key, from, to, [16]byte(from), server)
}

// PerformHandshakeWithSession completes a handshake with a given session; an initiator may have several sessions.
func PerformHandshakeWithSession(
	conn io.ReadWriter, key identity.Key, from, to effects.Incarnation, session [16]byte, server string,
) error {
	h := hello{
		from: from, to: to, session: session, regions: 1,
		rank: comm.Rank{Server: server, Device: 9, Address: netip.MustParseAddr("192.168.9.9")},
	}
	var binding []byte
	if c, ok := conn.(net.Conn); ok {
		binding = secure.Binding(c)
	}
	h.proof = h.computeProof(key.Token(Name, from, to), binding)
	if _, err := conn.Write(appendHello(nil, h)); err != nil {
		return err
	}
	_, body, _, err := framing.ReadFrame(conn, nil, frameMax)
	if err != nil {
		return err
	}
	w, err := parseWelcome(body)
	if err == nil && w.code != effects.OK {
		err = fmt.Errorf("refused as %s", w.code)
	}
	return err
}
