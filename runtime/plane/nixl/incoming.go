//go:build cgo && linux

package nixl

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
	"github.com/kvferry/kvferry/runtime/internal/door"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/epochs"
	"github.com/kvferry/kvferry/runtime/plane/framing"
)

// An incoming is a link that a peer opened in order to push to us and to read from us. Its epochs outlast its
// connection where there is no proof yet that they are over.
type incoming struct {
	plane   *Plane
	ch      *epochs.Channel
	reader  chan struct{} // closed when the channel's reader has ended
	address netip.Prefix  // that it comes from
	hello   hello
	near    bool // the peer is on this host
	log     *slog.Logger

	// Under the plane's mutex.
	ends map[uint64]*ourEnd // by epoch: that may still reach the pool, or whose agent is not gone; at most epochsMax
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
	close(in.reader)
	in.ch.Finish(in.reader)
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
		plane: p, ch: epochs.NewChannel(conn, p.env.Bounds.Stall, frameMax), reader: make(chan struct{}),
		address: guest.Address, hello: h, near: h.boot == p.boot,
		log: p.log.With("peer", fmt.Sprintf("%x", h.from[:4])), ends: map[uint64]*ourEnd{},
	}
	w := welcome{from: p.env.Incarnation, boot: p.boot, buffer: p.pool.Buffer(), base: uint64(p.pool.Served().Base),
		probe: p.scratch.at().Address}
	if w.code, err = p.arrive(in); w.code == effects.OK {
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
func (p *Plane) arrive(in *incoming) (effects.Code, error) {
	h := in.hello
	if !identity.OneLife(h.to, p.env.Incarnation) {
		return effects.Stale, fmt.Errorf("meant for incarnation %x...; this is %x", h.to[:4], p.env.Incarnation[:4])
	}
	if !identity.Same(h.proof, h.prove(p.token(h))) {
		return effects.Refused, fmt.Errorf("who says to be %x... does not prove it; it must shake hands on the control "+
			"plane first", h.from[:4])
	}
	from := in.address.Addr().As16()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.letIn(in, communicator.TargetEvent{
		Kind: communicator.Arrives, Session: h.session, Peer: h.from, Mapped: in.near && p.cfg.attaches(),
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
		return effects.TooMany, fmt.Errorf("%d peers are linked, or may still reach the pool; raise its Links", n)
	case communicator.AddressFull:
		return effects.TooMany, fmt.Errorf("%d peers of address %v are linked, or may still reach the pool; raise its Links",
			n, in.address)
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
	number, err := uint64(0), error(nil)
	switch k {
	case kindOffer, kindFenced, kindGone, kindBusy, kindIdle:
		number, err = parseEpoch(body)
	case kindHello, kindWelcome, kindAccept, kindMet:
		err = fmt.Errorf("%w: kind %d of an initiator", framing.ErrMalformed, k)
	default:
		err = fmt.Errorf("%w: kind %d", framing.ErrMalformed, k)
	}
	if err != nil {
		return err
	}
	if k == kindOffer {
		return in.offered(number)
	}
	in.plane.mu.Lock()
	defer in.plane.mu.Unlock()
	says := communicator.TargetEvent{Kind: communicator.SaysFenced, Session: in.session(), Epoch: number}
	if k == kindBusy || k == kindIdle {
		if l := in.ends[number]; l != nil {
			l.wanted(k == kindBusy)
		}
		return nil
	}
	if k == kindGone {
		says.Kind = communicator.SaysGone
	}
	in.plane.feed(says, nil)
	return nil
}

// offered makes our agent of an epoch, begins the epoch, and tells the peer which of its grants were taken back so far.
// What comes after the agent is under the plane's mutex, as is Expel: a revocation either is in the list, or finds the
// epoch and fences it, after the accept. Only the reader of this link waits for the agent.
func (in *incoming) offered(number uint64) error {
	p := in.plane
	l := &ourEnd{in: in, number: number, leave: make(chan struct{}), done: make(chan struct{}),
		orders: make(chan struct{}, 1)}
	metadata, err := l.make()
	if err != nil {
		in.log.Warn("an agent could not be made for a peer", "epoch", number, "err", err)
		return in.answer(accept{epoch: number, code: effects.Faulted})
	}
	p.mu.Lock()
	p.feed(communicator.TargetEvent{Kind: communicator.Offers, Session: in.session(), Epoch: number}, nil)
	if before := p.said.Stale; before != 0 {
		err = fmt.Errorf("%w: offer of epoch %d after %d", framing.ErrMalformed, number, before)
	}
	if err != nil || !p.said.Begun {
		code := p.said.Code
		p.mu.Unlock()
		if closing := l.end.close(); closing != nil {
			in.log.Warn("an agent that nobody knows could not be destroyed", "err", closing)
		}
		if err != nil {
			return err
		}
		return in.answer(accept{epoch: number, code: code})
	}
	defer p.mu.Unlock()
	answer := accept{epoch: number, code: effects.OK, metadata: metadata}
	answer.revoked, answer.more = p.pool.Revoked(in.hello.from)
	in.ends[number] = l
	l.wanted(true) // The peer's agent is going to meet it.
	p.wg.Go(l.lead)
	return in.answer(answer)
}

func (in *incoming) answer(a accept) error {
	if !in.ch.Say(appendAccept(nil, a)) {
		return epochs.ErrStalled
	}
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

var _ plane.Plane = (*Plane)(nil)
