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

// A TargetHands carries out, with a plane's library, the decisions of the machine about a link that a peer opened.
type TargetHands interface {
	// Parse parses a hello.
	Parse(body []byte) (Hello, error)
	// VerifyHello reports whether the token proves the hello.
	Proves(token identity.Token) bool
	// AdmitPeer may refuse a peer after the hello is proven. Mapped reports that the peer's process may have our
	// memory mapped, so that only a message or the death of that process proves that the process does not reach the
	// memory any more (M4).
	Admit() (mapped bool, code effects.Code, err error)
	// Welcome returns the frame that answers the hello. If token is not nil, the token proves the welcome.
	Welcome(code effects.Code, token *identity.Token) []byte
	// HandleFrame processes a frame of the peer.
	Take(kind uint8, body []byte) error
	// Margin is called when the peer has reported that its part of an epoch is gone, and waits until all bytes that
	// were still in flight then have had time to arrive. It runs on a separate goroutine.
	Margin(end End)
	// HangUp ends the connection, without blocking.
	HangUp()
}

// An Endpoint is this process's part of an epoch.
type End interface {
	// StartClose asks the endpoint to close; the owner of the endpoint calls IncomingLink.OnEndpointClosed afterwards.
	// StartClose is called once and does not block.
	Leave()
}

// A Hello is the part of an initiator's first message that this package needs.
type Hello struct {
	From, To      effects.Incarnation
	Session, Boot [16]byte
}

// An Arrival is a link that a peer opened. The epochs outlast the connection as long as there is no proof that the
// epochs are over (M4).
type Arrival struct {
	Hello
	Channel *Channel
	Reader  chan struct{} // closed when the channel's reader has ended
	Near    bool          // the peer is on this host
	Log     *slog.Logger

	arrivals *Arrivals
	hands    TargetHands
	address  netip.Prefix // the address of the peer

	// endpoints is guarded by the mutex of the IncomingLinks.
	ends map[uint64]End // by epoch: endpoints that may still reach the pool or are not gone yet; at most maxEpochs
}

// handle serves an admitted connection until the connection ends.
func (s *Arrivals) handle(accepted *door.Conn) error {
	in, err := s.handshake(accepted)
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
		// The peer's messages are ignored from here on, but the way in which the connection ends still matters as
		// proof.
		err = errors.Join(err, in.Channel.Drain())
	}
	in.end(err)
	close(in.Reader)
	in.Channel.Finish(in.Reader)
	return nil
}

// handshake reads and answers a hello. An admitted peer is no longer a stranger to the door.
func (s *Arrivals) handshake(accepted *door.Conn) (*Arrival, error) {
	c := &s.cfg
	conn := accepted.Conn // The channel owns the connection and closes each half.
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
		address: accepted.Address, ends: map[uint64]End{},
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
		accepted.MarkKnown()
		accepted.AddWork(1) // The door never closes this connection in favour of a new connection.
		answer = in.hands.Welcome(code, &token)
	}
	_, writing := conn.Write(answer)
	if code != effects.OK {
		return nil, fmt.Errorf("link refused as %s: %w", code, err)
	}
	if err := errors.Join(writing, conn.SetDeadline(time.Time{})); err != nil {
		in.postEvent(communicator.TargetEvent{Kind: communicator.TurnsAway}, nil)
		return nil, err
	}
	return in, nil
}

// arrive admits a peer or returns the reason for refusing it.
func (in *Arrival) arrive(token identity.Token) (effects.Code, error) {
	us := in.arrivals.cfg.Env.Incarnation
	if !identity.OneLife(in.To, us) {
		return effects.Stale, fmt.Errorf("meant for incarnation %x...; this is %x", in.To[:4], us[:4])
	}
	if !in.hands.Proves(token) {
		return effects.Refused, fmt.Errorf("the peer that calls itself %x... does not prove it; it must shake hands on the "+
			"control plane first", in.From[:4])
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

// letIn asks the machine to admit a link, and returns the reason if the machine refuses. The caller holds the mutex.
func (in *Arrival) letIn(arrives communicator.TargetEvent) (effects.Code, error) {
	s := in.arrivals
	s.feed(arrives, errRenewed)
	n := s.decided.Links
	switch s.decided.Entry {
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

// errRenewed ends the oldest link of a peer that opens a link beyond the limit for a single peer.
var errRenewed = errors.New("its peer opens another link, and has the most that it may have")

// postEvent makes the machine process an event of this link. If the event ends the link, cause says why.
func (in *Arrival) postEvent(ev communicator.TargetEvent, why error) {
	in.arrivals.mu.Lock()
	defer in.arrivals.mu.Unlock()
	ev.Session = in.Session
	in.arrivals.feed(ev, why)
}

// HandleFenced processes the peer's message that the peer's end of an epoch submits nothing any more.
func (in *Arrival) Fenced(epoch uint64) {
	in.postEvent(communicator.TargetEvent{Kind: communicator.SaysFenced, Epoch: epoch}, nil)
}

// Gone processes the peer's message that the peer's end of an epoch does not exist any more.
func (in *Arrival) Gone(epoch uint64) {
	in.postEvent(communicator.TargetEvent{Kind: communicator.SaysGone, Epoch: epoch}, nil)
}

// Offered begins an epoch that the peer offers, unless the machine refuses the offer. The function accept makes the
// answer, given the grants of the peer that were revoked so far. A later revocation finds the epoch and fences that
// epoch, after the answer; so no revocation is missed (M4). If the epoch has not begun, the caller keeps end. If the
// epoch has begun, OnEndpointClosed must follow, even if an error is returned.
func (in *Arrival) Offered(epoch uint64, end End,
	accept func(code effects.Code, revoked []effects.GrantID, more bool) []byte) (begun bool, err error) {
	s := in.arrivals
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feed(communicator.TargetEvent{Kind: communicator.Offers, Session: in.Session, Epoch: epoch}, nil)
	if before := s.decided.Stale; before != 0 {
		return false, fmt.Errorf("%w: offer of epoch %d after %d", framing.ErrMalformed, epoch, before)
	}
	code, begun := s.decided.Code, s.decided.Begun
	var revoked []effects.GrantID
	more := false
	if begun {
		revoked, more = s.cfg.Revoked(in.From)
		in.ends[epoch] = end
	}
	if !in.Channel.Send(accept(code, revoked, more)) {
		return begun, ErrStalled
	}
	return begun, nil
}

// FindEndpoint returns our endpoint of an epoch, or nil if there is none.
func (in *Arrival) End(epoch uint64) End {
	in.arrivals.mu.Lock()
	defer in.arrivals.mu.Unlock()
	return in.ends[epoch]
}

// EndFinished reports that our endpoint of an epoch has closed: whether the endpoint failed, and whether the endpoint
// is proven gone.
func (in *Arrival) EndFinished(epoch uint64, failed, gone bool) {
	in.postEvent(communicator.TargetEvent{Kind: communicator.EndLed, Epoch: epoch, Failed: failed, Gone: gone}, nil)
}

// fail ends the link: no further message of its connection is processed.
func (in *Arrival) fail(err error) {
	in.postEvent(communicator.TargetEvent{Kind: communicator.LinkFails}, err)
}

// end reports to the machine how the connection ended.
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
