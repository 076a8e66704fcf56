package epochs

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
	"github.com/kvferry/kvferry/runtime/plane/framing"
)

// TargetHands do by a library what a link needs that a peer opened.
type TargetHands interface {
	// Parse reads a hello.
	Parse(body []byte) (Hello, error)
	// Proves reports whether the hello does, by the token.
	Proves(token identity.Token) bool
	// Admit says why a peer that proves itself is not let in all the same. Mapped says that it may have our memory mapped,
	// so that only its word or its death is proof.
	Admit() (mapped bool, code effects.Code, err error)
	// Welcome makes the frame that answers the hello, proven by the token; nil where the code refuses.
	Welcome(code effects.Code, token *identity.Token) []byte
	// Take is told what the peer says.
	Take(kind uint8, body []byte) error
	// Margin waits until what was under way of an epoch, when its peer said that it is gone, has had its time. It has a
	// goroutine of its own.
	Margin(end End)
	// HangUp ends the connection. It does not block.
	HangUp()
}

// An End is ours of an epoch.
type End interface {
	// Leave has it go away; Led follows. It is called once, and does not block.
	Leave()
}

// A Hello is what an initiator says of itself first.
type Hello struct {
	From, To      effects.Incarnation
	Session, Boot [16]byte
}

// An Arrival is a link that a peer opened. Its epochs outlast its connection where there is no proof yet that they are
// over.
type Arrival struct {
	Hello
	Channel *Channel
	Reader  chan struct{} // closed when the channel's reader has ended
	Near    bool          // the peer is on this host
	Log     *slog.Logger

	arrivals *Arrivals
	hands    TargetHands
	address  netip.Prefix // that it comes from

	// Under the mutex.
	ends map[uint64]End // by epoch: that may still reach the pool, or whose end is not gone; at most epochsMax
}

// handle serves one admitted connection until it ends.
func (s *Arrivals) handle(guest *door.Guest) error {
	in, err := s.greet(guest)
	if err != nil {
		return err
	}
	go in.Channel.Write(in.fail)
	var refused error
	err = in.Channel.Read(func(k uint8, body []byte) error {
		refused = in.hands.Take(k, body)
		return refused
	})
	in.fail(err)
	if refused != nil || errors.Is(err, framing.ErrMalformed) {
		// What it says is not listened to any more, but how its connection ends is.
		err = errors.Join(err, in.Channel.Drain())
	}
	in.end(err)
	close(in.Reader)
	in.Channel.Finish(in.Reader)
	return nil
}

// greet hears a hello and answers it. Whoever is let in is no stranger from then on.
func (s *Arrivals) greet(guest *door.Guest) (*Arrival, error) {
	c := &s.cfg
	conn := guest.Conn // The channel's, which it closes in halves.
	if err := conn.SetDeadline(time.Now().Add(c.Env.Bounds.Handshake)); err != nil {
		return nil, err
	}
	k, body, _, err := framing.Read(conn, nil, c.Frame)
	if err != nil {
		return nil, err
	}
	if k != c.Hello {
		return nil, fmt.Errorf("%w: kind %d where a hello belongs", framing.ErrMalformed, k)
	}
	in := &Arrival{
		Channel: NewChannel(conn, c.Env.Bounds.Stall, c.Frame), Reader: make(chan struct{}), arrivals: s,
		address: guest.Address, ends: map[uint64]End{},
	}
	in.hands = c.Hands(in)
	if in.Hello, err = in.hands.Parse(body); err != nil {
		return nil, err
	}
	in.Near, in.Log = in.Boot == c.Boot, c.Log.With("peer", fmt.Sprintf("%x", in.From[:4]))
	token := c.Env.Key.Token(c.Name, in.From, in.To)
	code, err := in.arrive(token)
	answer := in.hands.Welcome(code, nil)
	if code == effects.OK {
		guest.Known()
		guest.Work(1) // For good: the door closes it for nobody.
		answer = in.hands.Welcome(code, &token)
	}
	_, writing := conn.Write(answer)
	if code != effects.OK {
		return nil, fmt.Errorf("link refused as %s: %w", code, err)
	}
	if err := errors.Join(writing, conn.SetDeadline(time.Time{})); err != nil {
		in.says(communicator.TargetEvent{Kind: communicator.TurnsAway}, nil)
		return nil, err
	}
	return in, nil
}

// arrive lets a peer in, or says why not.
func (in *Arrival) arrive(token identity.Token) (effects.Code, error) {
	us := in.arrivals.cfg.Env.Incarnation
	if !identity.OneLife(in.To, us) {
		return effects.Stale, fmt.Errorf("meant for incarnation %x...; this is %x", in.To[:4], us[:4])
	}
	if !in.hands.Proves(token) {
		return effects.Refused, fmt.Errorf("who says to be %x... does not prove it; it must shake hands on the control "+
			"plane first", in.From[:4])
	}
	mapped, code, err := in.hands.Admit()
	if code != effects.OK {
		return code, err
	}
	in.arrivals.mu.Lock()
	defer in.arrivals.mu.Unlock()
	return in.letIn(communicator.TargetEvent{
		Kind: communicator.Arrives, Session: in.Session, Peer: in.From, Mapped: mapped,
		From: communicator.Address{Net: in.address.Addr().As16(), Bits: uint8(in.address.Bits())},
	})
}

// letIn has the machine let a link in, or says why it does not. With the mutex held.
func (in *Arrival) letIn(arrives communicator.TargetEvent) (effects.Code, error) {
	s := in.arrivals
	s.feed(arrives, errRenewed)
	n := s.said.Links
	switch s.said.Entry {
	case communicator.Open:
		s.incoming[in.Session] = in
		return effects.OK, nil
	case communicator.PlaneClosed:
		return effects.Closed, net.ErrClosed
	case communicator.SessionUsed:
		return effects.Refused, fmt.Errorf("session %x is in use", in.Session)
	case communicator.PeerRenewed:
		return effects.TooMany, fmt.Errorf("%w: this peer has %d links already; the oldest is ended", errRenewed, n)
	case communicator.PeerFull:
		return effects.TooMany, fmt.Errorf("this peer has %d links that may still reach the pool", n)
	case communicator.AllFull:
		return effects.TooMany, fmt.Errorf("%d peers are linked, or may still reach the pool; %s", n, s.cfg.Remedy)
	case communicator.AddressFull:
		return effects.TooMany, fmt.Errorf("%d peers of address %v are linked, or may still reach the pool; %s", n,
			in.address, s.cfg.Remedy)
	}
	panic("BUG: a link is neither let in nor refused")
}

// errRenewed ends the oldest link of a peer that opens one more than it may have.
var errRenewed = errors.New("its peer opens another link, and has as many as it may")

// says has the machine take an event of this link; why is the cause where the link ends by it.
func (in *Arrival) says(ev communicator.TargetEvent, why error) {
	in.arrivals.mu.Lock()
	defer in.arrivals.mu.Unlock()
	ev.Session = in.Session
	in.arrivals.feed(ev, why)
}

// Fenced and Gone are the peer's word that its end of an epoch submits nothing any more, and that it is no more.
func (in *Arrival) Fenced(epoch uint64) {
	in.says(communicator.TargetEvent{Kind: communicator.SaysFenced, Epoch: epoch}, nil)
}

func (in *Arrival) Gone(epoch uint64) {
	in.says(communicator.TargetEvent{Kind: communicator.SaysGone, Epoch: epoch}, nil)
}

// Offered begins an epoch that the peer offers, unless the machine refuses it, and answers with what accept makes: it
// is told which of the peer's grants were taken back so far. A revocation either is in that list, or finds the epoch
// and fences it, after the answer. Where it has not begun the end is nobody's; where it has, Led must follow, also with
// an error.
func (in *Arrival) Offered(epoch uint64, end End,
	accept func(code effects.Code, revoked []effects.GrantID, more bool) []byte) (begun bool, err error) {
	s := in.arrivals
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feed(communicator.TargetEvent{Kind: communicator.Offers, Session: in.Session, Epoch: epoch}, nil)
	if before := s.said.Stale; before != 0 {
		return false, fmt.Errorf("%w: offer of epoch %d after %d", framing.ErrMalformed, epoch, before)
	}
	code, begun := s.said.Code, s.said.Begun
	var revoked []effects.GrantID
	more := false
	if begun {
		revoked, more = s.cfg.Revoked(in.From)
		in.ends[epoch] = end
	}
	if !in.Channel.Say(accept(code, revoked, more)) {
		return begun, ErrStalled
	}
	return begun, nil
}

// End is ours of an epoch; nil if there is none.
func (in *Arrival) End(epoch uint64) End {
	in.arrivals.mu.Lock()
	defer in.arrivals.mu.Unlock()
	return in.ends[epoch]
}

// Led says that our end of an epoch is not worked at any more: whether it failed, and whether it is proven gone.
func (in *Arrival) Led(epoch uint64, failed, gone bool) {
	in.says(communicator.TargetEvent{Kind: communicator.EndLed, Epoch: epoch, Failed: failed, Gone: gone}, nil)
}

// fail ends the link: nothing more is believed that is said on its connection.
func (in *Arrival) fail(err error) {
	in.says(communicator.TargetEvent{Kind: communicator.LinkFails}, err)
}

// end says how the connection ended.
func (in *Arrival) end(err error) {
	s := in.arrivals
	s.mu.Lock()
	defer s.mu.Unlock()
	proof := Proves(err, in.Near)
	if !proof && len(in.ends) > 0 {
		in.Log.Warn("the connection of a peer ended without proof that it has", "err", err, "epochs", len(in.ends))
	}
	s.feed(communicator.TargetEvent{Kind: communicator.ChannelEnds, Session: in.Session, Proves: proof}, nil)
}
