//go:build cgo && linux

package nixl

import (
	"errors"
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
)

// outgoing implements epochs.Hands for a link that we opened in order to push and to read. The link's goroutine polls
// the agent of the epoch that is up.
type outgoing struct {
	*epochs.Link
	plane   *Plane
	session [16]byte
	near    bool   // the peer is on this host
	probe   uint64 // an address of the peer at which a byte may be read and written at any time
	target  *targetState
	fenced  atomic.Uint64 // the newest epoch that the target has fenced
	met     atomic.Uint64 // the newest epoch in which the target's agent has received our notice

	// The fields below belong to the link's goroutine.
	metadata []byte // of the target's agent of the newest epoch
	end      *end   // of the epoch that is up
	busy     bool   // the target was told that this node waits for the target's agent
	pauses   pauses // between two polls of our agent
}

// Greet implements epochs.Hands.
func (o *outgoing) Greet(conn net.Conn, token identity.Token) error {
	if host, _, err := net.SplitHostPort(conn.RemoteAddr().String()); err == nil {
		if err := libnixl.CheckReach(host, o.plane.cfg.TrustedNetwork); err != nil {
			return epochs.Refuse(effects.Unsupported, "the peer: %w", err)
		}
	}
	o.session = uuid.New()
	h := hello{from: o.Us, to: o.Peer, session: o.session, boot: o.plane.boot}
	h.proof = h.prove(token)
	if _, err := conn.Write(appendHello(nil, h)); err != nil {
		return err
	}
	body, err := o.Answer(conn, uint8(kindWelcome))
	if err != nil {
		return err
	}
	w, err := parseWelcome(body)
	if err != nil {
		return epochs.Refuse(effects.Malformed, "%w", err)
	}
	o.Serves = []epochs.Served{{Buffer: w.buffer, Base: uintptr(w.base)}}
	o.probe, o.near = w.probe, w.boot == o.plane.boot
	return o.CheckWelcome(w.code, w.from, identity.Same(w.proof, w.prove(h, token)))
}

func (o *outgoing) inFlight() bool { return o.end != nil && len(o.end.flights) > 0 }

// Pause implements epochs.Hands.
func (o *outgoing) Pause() time.Duration {
	if o.inFlight() {
		return o.pauses.next()
	}
	return epochs.ForLong
}

// Listen implements epochs.Hands. After a malformed frame the end of the connection is still awaited, because that is
// a proof (M4).
func (o *outgoing) Listen() {
	err := o.Channel.Read(o.take)
	o.target.update(func() { o.target.deaf = true })
	o.Lost(err)
	if errors.Is(err, framing.ErrMalformed) {
		err = errors.Join(err, o.Channel.Drain())
	}
	proof := epochs.Proves(err, o.near)
	o.target.update(func() { o.target.ended, o.target.proven = true, proof })
}

func (o *outgoing) take(what uint8, body []byte) error {
	switch kind(what) {
	case kindAccept:
		a, err := parseAccept(body)
		if err != nil {
			return err
		}
		a.metadata = slices.Clone(a.metadata)
		return o.PushFromPeer(func(now effects.Time) {
			o.metadata = a.metadata
			o.Feed(now, communicator.Event{
				Kind: communicator.Accepted, Epoch: a.epoch, Code: a.code, Revoked: a.revoked, More: a.more,
			})
		})
	case kindFenced:
		epoch, err := parseEpoch(body)
		if err != nil {
			return err
		}
		err = o.PushFromPeer(func(now effects.Time) {
			o.Feed(now, communicator.Event{Kind: communicator.PeerFenced, Epoch: epoch})
		})
		// Stored after the machine's event was pushed, so that a goroutine that reads the value pushes further events
		// behind that event.
		o.fenced.Store(epoch)
		return err
	case kindGone:
		epoch, err := parseEpoch(body)
		if err == nil {
			o.target.update(func() { o.target.gone = max(o.target.gone, epoch) })
		}
		return err
	case kindMet:
		epoch, err := parseEpoch(body)
		o.met.Store(epoch)
		return err
	case kindHello, kindWelcome, kindOffer, kindBusy, kindIdle:
	}
	return fmt.Errorf("%w: kind %d of a target", framing.ErrMalformed, what)
}
