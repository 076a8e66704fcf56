//go:build cgo && linux

package nixl

import (
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/runtime/libnixl"
	"github.com/kvferry/kvferry/runtime/plane/epochs"
	"github.com/kvferry/kvferry/runtime/plane/framing"
	"github.com/kvferry/kvferry/runtime/secure"
)

// initiatorExecutor implements epochs.Executor for a link that we opened in order to push and to read. The link's
// goroutine polls the agent of the epoch that is up.
type initiatorExecutor struct {
	*epochs.OutgoingLink
	plane        *Plane
	session      [16]byte
	sameHost     bool   // the peer is on this host
	probeAddress uint64 // an address of the peer at which a byte may be read and written at any time
	target       *targetState
	fencedEpoch  atomic.Uint64 // the newest epoch that the target has fenced
	greetedEpoch atomic.Uint64 // the newest epoch in which the target's agent has received our notice

	// The fields below belong to the link's goroutine.
	metadata   []byte      // of the target's agent of the newest epoch
	endpoint   *endpoint   // of the epoch that is up
	targetBusy bool        // the target was told that this node waits for the target's agent
	backoff    pollBackoff // between two polls of our agent
}

// PerformHandshake implements epochs.Executor.
func (o *initiatorExecutor) PerformHandshake(conn net.Conn, token identity.Token) error {
	if host, _, err := net.SplitHostPort(conn.RemoteAddr().String()); err == nil {
		if err := libnixl.CheckTrusted(host, o.plane.cfg.TrustedNetwork); err != nil {
			return epochs.NewRefusal(effects.Unsupported, "the peer: %w", err)
		}
	}
	o.session = uuid.New()
	h := hello{from: o.OwnIncarnation, to: o.Peer, session: o.session, boot: o.plane.boot}
	binding := secure.Binding(conn)
	h.proof = h.computeProof(token, binding)
	if _, err := conn.Write(appendHello(nil, h)); err != nil {
		return err
	}
	body, err := o.ReadWelcome(conn, uint8(kindWelcome))
	if err != nil {
		return err
	}
	w, err := parseWelcome(body)
	if err != nil {
		return epochs.NewRefusal(effects.Malformed, "%w", err)
	}
	o.PeerPools = []epochs.PeerPool{{Buffer: w.buffer, Base: uintptr(w.base)}}
	o.probeAddress, o.sameHost = w.probe, w.boot == o.plane.boot
	return o.CheckWelcome(w.code, w.from, identity.EqualSecrets(w.proof, w.computeProof(h, token, binding)))
}

func (o *initiatorExecutor) hasInFlight() bool {
	return o.endpoint != nil && len(o.endpoint.posted) > 0
}

// NextPause implements epochs.Executor.
func (o *initiatorExecutor) NextPause() time.Duration {
	if o.hasInFlight() {
		return o.backoff.nextPause()
	}
	return epochs.MaxPause
}

// ReadFrames implements epochs.Executor. After a malformed frame, or when the guard does not accept the target any more,
// the end of the connection is still awaited, because that is a proof (M4).
func (o *initiatorExecutor) ReadFrames() {
	err := o.Channel.ReadFrames(o.handleFrame)
	o.target.updateState(func() { o.target.messagesEnded = true })
	o.OnChannelEnd(err)
	proof := epochs.ProvesEnd(o.Channel.AwaitEnd(), o.sameHost)
	o.target.updateState(func() { o.target.connEnded, o.target.provenGone = true, proof })
}

func (o *initiatorExecutor) handleFrame(what uint8, body []byte) error {
	switch kind(what) {
	case kindAccept:
		a, err := parseAccept(body)
		if err != nil {
			return err
		}
		a.metadata = slices.Clone(a.metadata)
		return o.PushFromPeer(func(now effects.Time) {
			o.metadata = a.metadata
			o.StepMachine(now, communicator.Event{
				Kind: communicator.Accepted, Epoch: a.epoch, Code: a.code, Revoked: a.revoked, MoreRevoked: a.more,
			})
		})
	case kindFenced:
		epoch, err := parseEpoch(body)
		if err != nil {
			return err
		}
		err = o.PushFromPeer(func(now effects.Time) {
			o.StepMachine(now, communicator.Event{Kind: communicator.TargetFenced, Epoch: epoch})
		})
		// Stored after the machine's event was pushed, so that a goroutine that reads the value pushes further events
		// behind that event.
		o.fencedEpoch.Store(epoch)
		return err
	case kindGone:
		epoch, err := parseEpoch(body)
		if err == nil {
			o.target.updateState(func() { o.target.goneEpoch = max(o.target.goneEpoch, epoch) })
		}
		return err
	case kindMet:
		epoch, err := parseEpoch(body)
		o.greetedEpoch.Store(epoch)
		return err
	case kindHello, kindWelcome, kindOffer, kindBusy, kindIdle:
	}
	return fmt.Errorf("%w: a target sent a frame of kind %d", framing.ErrMalformed, what)
}
