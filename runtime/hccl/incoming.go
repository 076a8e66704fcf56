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
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/runtime/hccl/comm"
	"github.com/kvferry/kvferry/runtime/internal/door"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/framing"
)

// An incoming is a link that a peer opened in order to push to us and to read from us. Its lives outlast its connection
// where there is no proof yet that they are over.
type incoming struct {
	plane   *Plane
	ch      *channel
	address netip.Prefix // that it comes from
	hello   hello
	pair    pair
	near    bool // the peer is on this host
	log     *slog.Logger

	// Under the plane's mutex.
	number uint64           // of those that came in
	last   uint64           // number of the newest life
	lives  map[uint64]*life // that may still reach the pool, or whose end is not gone; at most livesMax
	lost   bool             // the connection has ended, or says nothing that can be believed
	ended  bool             // the connection has ended
}

// livesMax bounds lives that are not over: one, and those whose forming was given up by the peer and not yet here.
const livesMax = 8

// handle serves one admitted connection until it ends.
func (p *Plane) handle(guest *door.Guest) error {
	in, err := p.greet(guest)
	if err != nil {
		return err
	}
	go in.ch.write(func(err error) { in.fail(err) })
	var refused error
	err = in.ch.read(func(k kind, body []byte) error {
		refused = in.take(k, body)
		return refused
	})
	in.fail(err)
	if refused != nil {
		// What it says is not listened to any more, but how its connection ends is.
		err = errors.Join(refused, in.ch.drain())
	}
	in.end(err)
	closed := make(chan struct{})
	close(closed)
	in.ch.finish(closed)
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
		plane: p, ch: newChannel(conn, p.env.Bounds.Stall), address: guest.Address, hello: h, near: h.boot == p.boot,
		lives: map[uint64]*life{},
	}
	w := welcome{
		from: p.env.Incarnation, boot: p.boot, link: p.linkTo(h.rank, in.near), rank: p.cfg.Rank, buffer: p.pool.Buffer(), served: p.pool.Served(),
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
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.incoming, h.session)
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
		return effects.Refused, fmt.Errorf("who says to be %x... does not prove it; it must shake hands on the control plane first", h.from[:4])
	}
	if link == comm.HCCS && p.pool.Served().Host {
		return effects.Unsupported, errors.New("the pool is in host memory, which nobody reaches over HCCS; set HCCL_INTRA_ROCE_ENABLE=1 on both nodes (on A2 with HCCL_INTRA_PCIE_ENABLE=0), or keep the pool on the NPU")
	}
	table, rank, _, err := comm.Table(p.cfg.Rank, h.rank)
	if err != nil {
		return effects.Refused, err
	}
	in.pair = pair{session: h.session, table: table, rank: rank, regions: int(h.regions), hccs: link == comm.HCCS}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return effects.Closed, net.ErrClosed
	case p.incoming[h.session] != nil:
		return effects.Refused, fmt.Errorf("session %x is in use", h.session)
	}
	if err := p.crowded(in); err != nil {
		return effects.TooMany, err
	}
	p.arrived++
	in.number = p.arrived
	p.incoming[h.session] = in
	return effects.OK, nil
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
	case kindCondemned, kindGone:
		number, err := parseLife(body)
		if err != nil {
			return err
		}
		in.plane.mu.Lock()
		defer in.plane.mu.Unlock()
		if l := in.lives[number]; l != nil {
			l.leave()
			if k == kindGone {
				l.release()
			}
		}
		return nil
	case kindHello, kindWelcome, kindAccept:
	}
	return fmt.Errorf("%w: kind %d of an initiator", framing.ErrMalformed, k)
}

// offered begins a life, and tells the peer which of its grants were taken back so far. Under the plane's mutex, as is
// Expel: a revocation either is in the list, or finds the life and condemns it.
func (in *incoming) offered(number uint64, root []byte) error {
	p := in.plane
	own, err := p.rootInfo(&in.pair)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if number <= in.last {
		return fmt.Errorf("%w: offer of life %d after %d", framing.ErrMalformed, number, in.last)
	}
	in.last = number
	// Whoever offers the next life has settled all before it.
	for _, l := range in.lives {
		l.leave()
		l.release()
	}
	answer := accept{life: number, code: effects.OK, root: own}
	switch {
	case p.closed || in.lost:
		answer.code = effects.Closed
	case len(in.lives) >= livesMax:
		answer.code = effects.TooMany
	default:
		answer.revoked, answer.more = p.revoked(in.hello.from)
	}
	if !in.ch.say(appendAccept(nil, answer)) {
		return errStalled
	}
	if answer.code == effects.OK {
		if own != nil {
			root = own
		}
		l := &life{in: in, number: number, condemned: make(chan struct{})}
		in.lives[number] = l
		p.wg.Go(func() { l.lead(root) })
	}
	return nil
}

// fail ends the link: nothing more is believed that is said on its connection.
func (in *incoming) fail(err error) {
	in.plane.mu.Lock()
	defer in.plane.mu.Unlock()
	in.lose(err)
}

// lose is fail with the plane's mutex held.
func (in *incoming) lose(err error) {
	p := in.plane
	if in.lost {
		return
	}
	in.lost = true
	if !p.closed {
		in.log.Info("a peer's link ended", "err", err)
		p.env.Sink.Post(&effects.LinkLost{Peer: in.hello.from})
	}
	in.condemnAll()
	in.rest()
}

// end says how the connection ended.
func (in *incoming) end(err error) {
	p := in.plane
	p.mu.Lock()
	defer p.mu.Unlock()
	in.ended = true
	if proves(err, in.near) {
		for _, l := range in.lives {
			l.release()
		}
	} else if len(in.lives) > 0 {
		in.log.Warn("the connection of a peer ended without proof that it has", "err", err, "lives", len(in.lives))
	}
	in.rest()
}

func (in *incoming) link() comm.Link {
	if in.pair.hccs {
		return comm.HCCS
	}
	return comm.RoCE
}

func (in *incoming) condemnAll() {
	for _, l := range in.lives {
		l.condemn()
	}
}

// rest forgets the link where nothing of it is left, and closes a connection that is good for nothing any more.
func (in *incoming) rest() {
	if len(in.lives) > 0 || !in.lost && !in.plane.closed {
		return
	}
	if in.ended {
		delete(in.plane.incoming, in.hello.session)
		return
	}
	_ = in.ch.conn.Close()
}

var _ plane.Guard = (*Plane)(nil)
