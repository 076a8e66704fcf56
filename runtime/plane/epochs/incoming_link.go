package epochs

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/runtime/internal/door"
	"github.com/kvferry/kvferry/runtime/plane/framing"
	"github.com/kvferry/kvferry/runtime/plane/internal/guarded"
	"github.com/kvferry/kvferry/runtime/secure"
)

// A TargetExecutor carries out, with a plane's library, the decisions of the machine about a link that a peer opened.
type TargetExecutor interface {
	// ParseHello parses a hello.
	ParseHello(body []byte) (Hello, error)
	// VerifyHello reports whether the token proves the hello.
	VerifyHello(token identity.Token) bool
	// AdmitPeer may refuse a peer after the hello is proven. mapped reports that the peer's process may have our
	// memory mapped, so that only a message or the death of that process proves that the process does not reach the
	// memory any more (M4).
	AdmitPeer() (mapped bool, code effects.Code, err error)
	// BuildWelcome returns the frame that answers the hello. If token is not nil, the token proves the welcome.
	BuildWelcome(code effects.Code, token *identity.Token) []byte
	// HandleFrame processes a frame of the peer.
	HandleFrame(kind uint8, body []byte) error
	// AwaitMargin is called when the peer has reported that its part of an epoch is gone, and waits until all bytes
	// that were still in flight then have had time to arrive. It runs on a separate goroutine.
	AwaitMargin(end Endpoint)
	// HangUp ends the connection, without blocking.
	HangUp()
}

// An Endpoint is this process's part of an epoch.
type Endpoint interface {
	// StartClose asks the endpoint to close; the owner of the endpoint calls IncomingLink.OnEndpointClosed afterwards.
	// StartClose is called once and does not block.
	StartClose()
}

// A Hello is the part of an initiator's first message that this package needs.
type Hello struct {
	From, To      effects.Incarnation
	Session, Boot [16]byte
}

// An IncomingLink is a link that a peer opened. The epochs outlast the connection as long as there is no proof that the
// epochs are over (M4).
type IncomingLink struct {
	Hello
	Channel    *Channel
	ReaderDone chan struct{} // closed when the channel's reader has ended
	SameHost   bool          // the peer is on this host
	Log        *slog.Logger

	links    *IncomingLinks
	executor TargetExecutor
	address  netip.Prefix // the address of the peer

	// The fields below are guarded by the mutex of the IncomingLinks.
	endpoints map[uint64]Endpoint // by epoch: endpoints that may still reach the pool or are not gone yet; at most maxEpochs
	ends      int                 // endpoints that are not proven gone
	refused   bool                // the guard does not accept the peer any more
}

// serveLink serves an admitted connection until the connection ends.
func (s *IncomingLinks) serveLink(accepted *door.Conn) error {
	in, err := s.acceptLink(accepted)
	if err != nil {
		return err
	}
	go in.Channel.WriteFrames(in.failLink)
	err = in.Channel.ReadFrames(in.executor.HandleFrame)
	in.failLink(err)
	// The peer's messages are ignored from here on, but the way in which the connection ends still matters as proof.
	in.onConnEnd(in.Channel.AwaitEnd())
	close(in.ReaderDone)
	in.Channel.FlushAndClose(in.ReaderDone)
	return nil
}

// acceptLink authenticates the peer of a connection, and reads and answers its hello.
func (s *IncomingLinks) acceptLink(accepted *door.Conn) (*IncomingLink, error) {
	if err := accepted.SetDeadline(time.Now().Add(s.cfg.Env.Bounds.HandshakeTimeout)); err != nil {
		return nil, err
	}
	conn, err := guarded.Accept(s.cfg.Env.Guard, accepted.Conn)
	if err != nil {
		return nil, err
	}
	in, err := s.acceptHello(accepted, conn)
	if err != nil {
		_ = conn.Close() // No epoch exists; the guard keeps a connection until then.
		return nil, err
	}
	return in, nil
}

// acceptHello reads and answers a hello. An admitted peer is no longer a stranger to the door. The channel owns the
// connection and closes each half.
func (s *IncomingLinks) acceptHello(accepted *door.Conn, conn net.Conn) (*IncomingLink, error) {
	c := &s.cfg
	body, err := s.readHello(conn)
	if err != nil {
		return nil, err
	}
	in := &IncomingLink{
		Channel: NewChannel(conn, c.Env.Bounds.StallTimeout, c.MaxFrameBytes), ReaderDone: make(chan struct{}), links: s,
		address: accepted.Address, endpoints: map[uint64]Endpoint{},
	}
	in.executor = c.NewExecutor(in)
	if in.Hello, err = in.executor.ParseHello(body); err != nil {
		return nil, err
	}
	in.SameHost, in.Log = in.Boot == c.Boot, c.Log.With("peer", fmt.Sprintf("%x", in.From[:4]))
	if secured, ok := conn.(*secure.Conn); ok && !secured.OnRefused(in.refusePeer) {
		return nil, net.ErrClosed
	}
	token := c.Env.Key.Token(c.Name, in.From, in.To)
	code, err := in.admitPeer(token)
	answer := in.executor.BuildWelcome(code, nil)
	if code == effects.OK {
		accepted.MarkKnown()
		accepted.AddWork(1) // The door never closes this connection in favour of a new connection.
		answer = in.executor.BuildWelcome(code, &token)
	}
	_, writing := conn.Write(answer)
	if code != effects.OK {
		return nil, fmt.Errorf("link refused as %s: %w", code, err)
	}
	if err := errors.Join(writing, conn.SetDeadline(time.Time{})); err != nil {
		in.postEvent(communicator.TargetEvent{Kind: communicator.WelcomeFailed}, nil)
		return nil, err
	}
	return in, nil
}

// readHello returns the body of the first frame, which must be a hello.
func (s *IncomingLinks) readHello(conn net.Conn) (body []byte, err error) {
	err = guarded.ReadFirstFrame(conn, func(r io.Reader) error {
		var k uint8
		var err error
		k, body, _, err = framing.ReadFrame(r, nil, s.cfg.MaxFrameBytes)
		if err == nil && k != s.cfg.Hello {
			err = fmt.Errorf("%w: frame of kind %d instead of a hello", framing.ErrMalformed, k)
		}
		return err
	})
	return body, err
}

// refusePeer ends the link because the guard does not accept the peer any more. The connection stays open: only the
// peer's end of it proves that the peer's part of the epochs is over, and if it does not come, the epochs count as
// running (M4). The peer is told by the end of our direction, as soon as our own ends are gone.
func (in *IncomingLink) refusePeer(reason error) {
	in.Channel.Interrupt(reason)
	s := in.links
	s.mu.Lock()
	defer s.mu.Unlock()
	in.refused = true
	s.stepMachine(communicator.TargetEvent{Kind: communicator.LinkFailed, Session: in.Session}, reason)
	in.hangUpIfRefused()
}

// hangUpIfRefused ends our direction of a refused peer's connection when no end of ours is left. It must not happen
// earlier: an initiator may take the end of our direction for the proof that our ends are gone (M4). The caller holds the
// mutex.
func (in *IncomingLink) hangUpIfRefused() {
	if in.refused && in.ends == 0 && in.links.links[in.Session] == in {
		in.links.cfg.Goroutines.Go(func() { _ = in.Channel.FlushAndCloseWrite() })
	}
}

// admitPeer admits a peer or returns the reason for refusing it.
func (in *IncomingLink) admitPeer(token identity.Token) (effects.Code, error) {
	incarnation := in.links.cfg.Env.Incarnation
	if !identity.SameIncarnation(in.To, incarnation) {
		return effects.Stale, fmt.Errorf("the hello addresses incarnation %x...; this is incarnation %x", in.To[:4], incarnation[:4])
	}
	if !in.executor.VerifyHello(token) {
		return effects.Refused, fmt.Errorf("the peer that names itself %x... does not prove its identity; the peer must "+
			"first complete a handshake on the control plane", in.From[:4])
	}
	mapped, code, err := in.executor.AdmitPeer()
	if code != effects.OK {
		return code, err
	}
	in.links.mu.Lock()
	defer in.links.mu.Unlock()
	return in.admitLink(communicator.TargetEvent{
		Kind: communicator.LinkArrived, Session: in.Session, Peer: in.From, MemoryMapped: mapped,
		From: communicator.Address{Net: in.address.Addr().As16(), Bits: uint8(in.address.Bits())},
	})
}

// admitLink asks the machine to admit a link, and returns the reason if the machine refuses. The caller holds the
// mutex.
func (in *IncomingLink) admitLink(event communicator.TargetEvent) (effects.Code, error) {
	s := in.links
	s.stepMachine(event, errLinkReplaced)
	n := s.decisions.LinkCount
	switch s.decisions.Admission {
	case communicator.Admitted:
		s.links[in.Session] = in
		return effects.OK, nil
	case communicator.PlaneClosed:
		return effects.Closed, net.ErrClosed
	case communicator.SessionUsed:
		return effects.Refused, fmt.Errorf("session %x is in use", in.Session)
	case communicator.PeerRenewed:
		return effects.TooMany, fmt.Errorf("%w: this peer has %d links already; the oldest link is closed, and the peer can "+
			"try again", errLinkReplaced, n)
	case communicator.PeerFull:
		return effects.TooMany, fmt.Errorf("this peer has %d links that may still reach the pool", n)
	case communicator.TableFull:
		return effects.TooMany, fmt.Errorf("%d links are open or may still reach the pool, which is the limit; %s", n, s.cfg.Remedy)
	case communicator.AddressFull:
		return effects.TooMany, fmt.Errorf("%d links of address %v are open or may still reach the pool, which is the limit "+
			"for an address; %s", n,
			in.address, s.cfg.Remedy)
	}
	panic("BUG: the machine has neither admitted nor refused a link")
}

// errLinkReplaced ends the oldest link of a peer that opens a link beyond the limit for a single peer.
var errLinkReplaced = errors.New("replaced by a new link of the same peer, which has reached its limit of links")

// postEvent makes the machine process an event of this link. If the event ends the link, cause says why.
func (in *IncomingLink) postEvent(ev communicator.TargetEvent, cause error) {
	in.links.mu.Lock()
	defer in.links.mu.Unlock()
	ev.Session = in.Session
	in.links.stepMachine(ev, cause)
}

// HandleFenced processes the peer's message that the peer's end of an epoch submits nothing any more.
func (in *IncomingLink) HandleFenced(epoch uint64) {
	in.postEvent(communicator.TargetEvent{Kind: communicator.InitiatorFenced, Epoch: epoch}, nil)
}

// HandleGone processes the peer's message that the peer's end of an epoch does not exist any more.
func (in *IncomingLink) HandleGone(epoch uint64) {
	in.postEvent(communicator.TargetEvent{Kind: communicator.InitiatorGone, Epoch: epoch}, nil)
}

// HandleOffer begins an epoch that the peer offers, unless the machine refuses the offer. The function accept makes the
// answer, given the grants of the peer that were revoked so far. A later revocation finds the epoch and fences that
// epoch, after the answer; so no revocation is missed (M4). If the epoch has not begun, the caller keeps end. If the
// epoch has begun, OnEndpointClosed must follow, even if an error is returned.
func (in *IncomingLink) HandleOffer(epoch uint64, end Endpoint,
	accept func(code effects.Code, revoked []effects.GrantID, more bool) []byte) (begun bool, err error) {
	s := in.links
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stepMachine(communicator.TargetEvent{Kind: communicator.EpochOffered, Session: in.Session, Epoch: epoch}, nil)
	if before := s.decisions.NewerEpoch; before != 0 {
		return false, fmt.Errorf("%w: offer of epoch %d after epoch %d; epochs must increase", framing.ErrMalformed, epoch, before)
	}
	code, begun := s.decisions.Code, s.decisions.MakeEnd
	var revoked []effects.GrantID
	more := false
	if begun {
		revoked, more = s.cfg.RevokedGrants(in.From)
		in.endpoints[epoch] = end
		in.ends++
	}
	if !in.Channel.Send(accept(code, revoked, more)) {
		return begun, ErrStalled
	}
	return begun, nil
}

// FindEndpoint returns our endpoint of an epoch, or nil if there is none.
func (in *IncomingLink) FindEndpoint(epoch uint64) Endpoint {
	in.links.mu.Lock()
	defer in.links.mu.Unlock()
	return in.endpoints[epoch]
}

// OnEndpointClosed reports that our endpoint of an epoch has closed: whether the endpoint failed, and whether the
// endpoint is proven gone.
func (in *IncomingLink) OnEndpointClosed(epoch uint64, failed, gone bool) {
	s := in.links
	s.mu.Lock()
	defer s.mu.Unlock()
	if gone {
		in.ends--
	}
	s.stepMachine(communicator.TargetEvent{Kind: communicator.EndFinished, Session: in.Session, Epoch: epoch, Failed: failed,
		Gone: gone}, nil)
	in.hangUpIfRefused()
}

// failLink ends the link: no further message of its connection is processed.
func (in *IncomingLink) failLink(err error) {
	in.postEvent(communicator.TargetEvent{Kind: communicator.LinkFailed}, err)
}

// onConnEnd reports to the machine how the connection ended.
func (in *IncomingLink) onConnEnd(err error) {
	s := in.links
	s.mu.Lock()
	defer s.mu.Unlock()
	proof := ProvesEnd(err, in.SameHost)
	if !proof && len(in.endpoints) > 0 {
		in.Log.Warn("the connection to a peer has ended, without proof that the peer has closed it or is dead", "err", err,
			"epochs", len(in.endpoints))
	}
	s.stepMachine(communicator.TargetEvent{Kind: communicator.ChannelEnded, Session: in.Session, ProvesGone: proof}, nil)
}
