//go:build cgo && linux

package hccl

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/runtime/hccl/comm"
	"github.com/kvferry/kvferry/runtime/internal/door"
	"github.com/kvferry/kvferry/runtime/plane/epochs"
	"github.com/kvferry/kvferry/runtime/plane/framing"
)

// An incoming is a link that a peer opened in order to push to us and to read from us. Its epochs outlast its
// connection where there is no proof yet that they are over.
type incoming struct {
	plane   *Plane
	ch      *epochs.Channel
	address netip.Prefix // that it comes from
	hello   hello
	pair    pair
	near    bool // the peer is on this host
	log     *slog.Logger

	// Under the plane's mutex.
	ends map[uint64]*ourEnd // by epoch: that may still reach the pool, or whose end is not gone; at most epochsMax
}

func (in *incoming) session() communicator.SessionID { return in.hello.session }

// handle serves one admitted connection until it ends.
func (p *Plane) handle(guest *door.Guest) error {
	in, err := p.greet(guest)
	if err != nil {
		return err
	}
	go in.ch.Write(func(err error) { in.fail(err) })
	var refused error
	err = in.ch.Read(func(k uint8, body []byte) error {
		refused = in.take(kind(k), body)
		return refused
	})
	in.fail(err)
	if refused != nil || errors.Is(err, framing.ErrMalformed) {
		// What it says is not listened to any more, but how its connection ends is.
		err = errors.Join(err, in.ch.Drain())
	}
	in.end(err)
	closed := make(chan struct{})
	close(closed)
	in.ch.Finish(closed)
	return nil
}

// greet hears a hello and answers it. Whoever is let in is no stranger from then on.
func (p *Plane) greet(guest *door.Guest) (*incoming, error) {
	conn := guest.Conn // The channel's, which it closes in halves.
	if err := conn.SetDeadline(time.Now().Add(p.env.Bounds.Handshake)); err != nil {
		return nil, err
	}
	k, body, _, err := framing.Read(conn, nil, frameMax)
	if err != nil {
		return nil, err
	}
	if kind(k) != kindHello {
		return nil, fmt.Errorf("%w: kind %d where a hello belongs", framing.ErrMalformed, k)
	}
	h, err := parseHello(body)
	if err != nil {
		return nil, err
	}
	in := &incoming{
		plane: p, ch: epochs.NewChannel(conn, p.env.Bounds.Stall, frameMax), address: guest.Address, hello: h,
		near: h.boot == p.boot,
		ends: map[uint64]*ourEnd{},
	}
	w := welcome{
		from: p.env.Incarnation, boot: p.boot, link: p.linkTo(h.rank, in.near), rank: p.cfg.Rank, buffer: p.pool.Buffer(),
		served:  p.pool.Served(),
		regions: uint8(len(p.regions)),
	}
	in.log = p.log.With("peer", fmt.Sprintf("%x", h.from[:4]), "by", w.link)
	if w.code, err = p.arrive(in, w.link); w.code == effects.OK {
		guest.Known()
		guest.Work(1) // For good: the door closes it for nobody.
		w.from = h.to
		w.proof = w.prove(h, p.token(h))
	}
	_, writing := conn.Write(appendWelcome(nil, w))
	if w.code != effects.OK {
		return nil, fmt.Errorf("link refused as %s: %w", w.code, err)
	}
	if err := errors.Join(writing, conn.SetDeadline(time.Time{})); err != nil {
		in.happens(communicator.TurnsAway, nil)
		return nil, err
	}
	return in, nil
}

func (p *Plane) token(h hello) identity.Token { return p.env.Key.Token(Name, h.from, h.to) }

// arrive lets a peer in, or says why not.
func (p *Plane) arrive(in *incoming, link comm.Link) (effects.Code, error) {
	h := in.hello
	if !identity.OneLife(h.to, p.env.Incarnation) {
		return effects.Stale, fmt.Errorf("meant for incarnation %x...; this is %x", h.to[:4], p.env.Incarnation[:4])
	}
	if !identity.Same(h.proof, h.prove(p.token(h))) {
		return effects.Refused, fmt.Errorf("who says to be %x... does not prove it; it must shake hands on the control "+
			"plane first", h.from[:4])
	}
	if link == comm.HCCS && p.pool.Served().Host {
		return effects.Unsupported, errors.New("the pool is in host memory, which nobody reaches over HCCS; set " +
			"HCCL_INTRA_ROCE_ENABLE=1 on both nodes (on A2 with HCCL_INTRA_PCIE_ENABLE=0), or keep the pool on the NPU")
	}
	table, rank, _, err := comm.Table(p.cfg.Rank, h.rank)
	if err != nil {
		return effects.Refused, err
	}
	in.pair = pair{session: h.session, table: table, rank: rank, regions: int(h.regions), hccs: link == comm.HCCS}
	from := in.address.Addr().As16()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.letIn(in, communicator.TargetEvent{
		Kind: communicator.Arrives, Session: h.session, Peer: h.from, Mapped: in.pair.hccs,
		From: communicator.Address{Net: from, Bits: uint8(in.address.Bits())},
	})
}

// letIn has the machine let a link in, or says why it does not. With the plane's mutex held.
func (p *Plane) letIn(in *incoming, arrives communicator.TargetEvent) (effects.Code, error) {
	p.feed(arrives, errRenewed)
	n := p.said.Links
	switch p.said.Entry {
	case communicator.Open:
		p.incoming[in.session()] = in
		return effects.OK, nil
	case communicator.PlaneClosed:
		return effects.Closed, net.ErrClosed
	case communicator.SessionUsed:
		return effects.Refused, fmt.Errorf("session %x is in use", in.hello.session)
	case communicator.PeerRenewed:
		return effects.TooMany, fmt.Errorf("%w: this peer has %d links already; the oldest is ended", errRenewed, n)
	case communicator.PeerFull:
		return effects.TooMany, fmt.Errorf("this peer has %d links that may still reach the pool", n)
	case communicator.AllFull:
		return effects.TooMany,
			fmt.Errorf("%d peers are linked, or may still reach the pool; raise hccl.links", n)
	case communicator.AddressFull:
		return effects.TooMany, fmt.Errorf(
			"%d peers of address %v are linked, or may still reach the pool; raise hccl.links", n, in.address)
	}
	panic("BUG: a link is neither let in nor refused")
}

// errRenewed ends the oldest link of a peer that opens one more than it may have.
var errRenewed = errors.New("its peer opens another link, and has as many as it may")

// happens has the machine take an event of this link.
func (in *incoming) happens(kind communicator.TargetKind, why error) {
	in.plane.mu.Lock()
	defer in.plane.mu.Unlock()
	in.plane.feed(communicator.TargetEvent{Kind: kind, Session: in.session()}, why)
}

// take is told what the peer says.
func (in *incoming) take(k kind, body []byte) error {
	switch k {
	case kindOffer:
		number, root, err := parseOffer(body)
		if err != nil {
			return err
		}
		return in.offered(number, append([]byte(nil), root...))
	case kindFenced, kindGone:
		number, err := parseEpoch(body)
		if err != nil {
			return err
		}
		says := communicator.TargetEvent{Kind: communicator.SaysFenced, Session: in.session(), Epoch: number}
		if k == kindGone {
			says.Kind = communicator.SaysGone
		}
		in.plane.mu.Lock()
		defer in.plane.mu.Unlock()
		in.plane.feed(says, nil)
		return nil
	case kindHello, kindWelcome, kindAccept:
	}
	return fmt.Errorf("%w: kind %d of an initiator", framing.ErrMalformed, k)
}

// offered begins an epoch, and tells the peer which of its grants were taken back so far. Under the plane's mutex, as
// is Expel: a revocation either is in the list, or finds the epoch and fences it.
func (in *incoming) offered(number uint64, root []byte) error {
	p := in.plane
	own, err := p.rootInfo(&in.pair)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	offers := communicator.TargetEvent{Kind: communicator.Offers, Session: in.session(), Epoch: number}
	p.feed(offers, nil)
	if before := p.said.Stale; before != 0 {
		return fmt.Errorf("%w: offer of epoch %d after %d", framing.ErrMalformed, number, before)
	}
	answer := accept{epoch: number, code: p.said.Code, root: own}
	if !p.said.Begun {
		if !in.ch.Say(appendAccept(nil, answer)) {
			return epochs.ErrStalled
		}
		return nil
	}
	if own != nil {
		root = own
	}
	answer.revoked, answer.more = p.revoked(in.hello.from)
	l := &ourEnd{in: in, number: number, leave: make(chan struct{})}
	in.ends[number] = l
	if !in.ch.Say(appendAccept(nil, answer)) {
		p.wg.Go(func() { l.led(true, true) }) // Nothing was made.
		return epochs.ErrStalled
	}
	p.wg.Go(func() { l.lead(root) })
	return nil
}

// fail ends the link: nothing more is believed that is said on its connection.
func (in *incoming) fail(err error) { in.happens(communicator.LinkFails, err) }

// end says how the connection ended.
func (in *incoming) end(err error) {
	p := in.plane
	p.mu.Lock()
	defer p.mu.Unlock()
	proof := epochs.Proves(err, in.near)
	if !proof && len(in.ends) > 0 {
		in.log.Warn("the connection of a peer ended without proof that it has", "err", err, "epochs", len(in.ends))
	}
	ends := communicator.TargetEvent{Kind: communicator.ChannelEnds, Session: in.session(), Proves: proof}
	p.feed(ends, nil)
}

func (in *incoming) link() comm.Link {
	if in.pair.hccs {
		return comm.HCCS
	}
	return comm.RoCE
}
