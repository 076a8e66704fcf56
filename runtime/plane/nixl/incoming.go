//go:build cgo && linux

package nixl

import (
	"fmt"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/epochs"
	"github.com/kvferry/kvferry/runtime/plane/framing"
)

// incoming implements epochs.TargetHands for a link that a peer opened.
type incoming struct {
	*epochs.Arrival
	plane *Plane
	hello hello
}

// Parse implements epochs.TargetHands.
func (in *incoming) Parse(body []byte) (epochs.Hello, error) {
	h, err := parseHello(body)
	in.hello = h
	return epochs.Hello{From: h.from, To: h.to, Session: h.session, Boot: h.boot}, err
}

// Proves implements epochs.TargetHands.
func (in *incoming) Proves(token identity.Token) bool {
	return identity.Same(in.hello.proof, in.hello.prove(token))
}

// Admit implements epochs.TargetHands.
func (in *incoming) Admit() (mapped bool, code effects.Code, err error) {
	return in.Near && in.plane.cfg.attaches(), effects.OK, nil
}

// Welcome implements epochs.TargetHands.
func (in *incoming) Welcome(code effects.Code, token *identity.Token) []byte {
	p := in.plane
	w := welcome{code: code, from: p.env.Incarnation, boot: p.boot, buffer: p.pool.Buffer(),
		base: uint64(p.pool.Served().Base), probe: p.scratch.at().Address}
	if token != nil {
		w.from = in.To
		w.proof = w.prove(in.hello, *token)
	}
	return appendWelcome(nil, w)
}

// Take implements epochs.TargetHands.
func (in *incoming) Take(what uint8, body []byte) error {
	switch kind(what) {
	case kindOffer, kindFenced, kindGone, kindBusy, kindIdle:
		number, err := parseEpoch(body)
		if err != nil {
			return err
		}
		return in.handleEpoch(kind(what), number)
	case kindHello, kindWelcome, kindAccept, kindMet:
	}
	return fmt.Errorf("%w: kind %d of an initiator", framing.ErrMalformed, what)
}

// handleEpoch processes a message about an epoch.
func (in *incoming) handleEpoch(k kind, number uint64) error {
	if k == kindOffer {
		return in.offered(number)
	}
	if k == kindFenced {
		in.Fenced(number)
	} else if k == kindGone {
		in.Gone(number)
	} else if l, _ := in.End(number).(*targetEnd); l != nil {
		l.setBusy(k == kindBusy)
	}
	return nil
}

// offered makes our agent of an epoch, and begins the epoch. Only the reader goroutine of this link waits for the
// agent.
func (in *incoming) offered(number uint64) error {
	l := &targetEnd{in: in, number: number, leave: make(chan struct{}), done: make(chan struct{}),
		// The agent is polled from the beginning, because the peer's agent is going to connect to it.
		orders: make(chan struct{}, 1), busy: true}
	metadata, err := l.make()
	if err != nil {
		in.Log.Warn("an agent could not be made for a peer", "epoch", number, "err", err)
		if !in.Channel.Send(appendAccept(nil, accept{epoch: number, code: effects.Faulted})) {
			return epochs.ErrStalled
		}
		return nil
	}
	begun, err := in.Offered(number, l, func(code effects.Code, revoked []effects.GrantID, more bool) []byte {
		a := accept{epoch: number, code: code, revoked: revoked, more: more}
		if code == effects.OK {
			a.metadata = metadata
		}
		return appendAccept(nil, a)
	})
	if begun {
		in.plane.wg.Go(l.lead)
	} else if closing := l.end.close(); closing != nil {
		in.Log.Warn("an agent without an epoch could not be destroyed", "err", closing)
	}
	return err
}

// networkMargin is the time to wait after the message or the death of a peer on another host, because bytes that the
// peer's hardware has sent are still in the network (M4). Our own agent is destroyed as well; the margin is for the
// case that this fails.
const networkMargin = 100 * time.Millisecond

// Margin implements epochs.TargetHands. The peer's message that its agent is destroyed counts only when our agent is
// not polled any more either, because our agent stores the bytes that the peer has sent.
func (in *incoming) Margin(end epochs.End) {
	<-end.(*targetEnd).done
	if !in.Near {
		<-time.After(networkMargin)
	}
}

// HangUp implements epochs.TargetHands. Queued frames prove the end of an epoch, and are written first.
func (in *incoming) HangUp() { in.plane.wg.Go(func() { in.Channel.Finish(in.Reader) }) }

var _ plane.Plane = (*Plane)(nil)
