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
	"github.com/kvferry/kvferry/runtime/secure"
)

// targetExecutor implements epochs.TargetExecutor for a link that a peer opened.
type targetExecutor struct {
	*epochs.IncomingLink
	plane *Plane
	hello hello
}

// ParseHello implements epochs.TargetExecutor.
func (in *targetExecutor) ParseHello(body []byte) (epochs.Hello, error) {
	h, err := parseHello(body)
	in.hello = h
	return epochs.Hello{From: h.from, To: h.to, Session: h.session, Boot: h.boot}, err
}

// VerifyHello implements epochs.TargetExecutor.
func (in *targetExecutor) VerifyHello(token identity.Token) bool {
	return identity.EqualSecrets(in.hello.proof, in.hello.computeProof(token, secure.Binding(in.Channel.Conn())))
}

// AdmitPeer implements epochs.TargetExecutor.
func (in *targetExecutor) AdmitPeer() (mapped bool, code effects.Code, err error) {
	return in.SameHost && in.plane.cfg.mayAttach(), effects.OK, nil
}

// BuildWelcome implements epochs.TargetExecutor.
func (in *targetExecutor) BuildWelcome(code effects.Code, token *identity.Token) []byte {
	p := in.plane
	w := welcome{code: code, from: p.env.Incarnation, boot: p.boot, buffer: p.pool.Buffer(),
		base:  p.host.PeerAddress(uint64(p.pool.FirstRegion().Base)),
		probe: p.host.PeerAddress(p.scratch.addressRange().Address)}
	if token != nil {
		w.from = in.To
		w.proof = w.computeProof(in.hello, *token, secure.Binding(in.Channel.Conn()))
	}
	return appendWelcome(nil, w)
}

// HandleFrame implements epochs.TargetExecutor.
func (in *targetExecutor) HandleFrame(what uint8, body []byte) error {
	switch kind(what) {
	case kindOffer, kindFenced, kindGone, kindBusy, kindIdle:
		number, err := parseEpoch(body)
		if err != nil {
			return err
		}
		return in.handleEpoch(kind(what), number)
	case kindHello, kindWelcome, kindAccept, kindMet:
	}
	return fmt.Errorf("%w: frame of kind %d, which an initiator never sends", framing.ErrMalformed, what)
}

// handleEpoch processes a message about an epoch.
func (in *targetExecutor) handleEpoch(k kind, number uint64) error {
	if k == kindOffer {
		return in.handleOffer(number)
	}
	if k == kindFenced {
		in.HandleFenced(number)
	} else if k == kindGone {
		in.HandleGone(number)
	} else if l, _ := in.FindEndpoint(number).(*targetEndpoint); l != nil {
		l.setBusy(k == kindBusy)
	}
	return nil
}

// handleOffer makes our agent of an epoch, and begins the epoch. Only the reader goroutine of this link waits for the
// agent.
func (in *targetExecutor) handleOffer(number uint64) error {
	l := &targetEndpoint{in: in, epoch: number, closeRequested: make(chan struct{}), pollingDone: make(chan struct{}),
		// The agent is polled from the beginning, because the peer's agent is going to connect to it.
		busyChanged: make(chan struct{}, 1), busy: true}
	metadata, err := l.makeAgent()
	if err != nil {
		in.Log.Warn("an agent could not be made for a peer", "epoch", number, "err", err)
		if !in.Channel.Send(appendAccept(nil, accept{epoch: number, code: effects.Faulted})) {
			return epochs.ErrStalled
		}
		return nil
	}
	begun, err := in.HandleOffer(number, l, func(code effects.Code, revoked []effects.GrantID, more bool) []byte {
		a := accept{epoch: number, code: code, revoked: revoked, more: more}
		if code == effects.OK {
			a.metadata = metadata
		}
		return appendAccept(nil, a)
	})
	if begun {
		in.plane.wg.Go(l.runAgent)
	} else if closing := l.endpoint.close(); closing != nil {
		in.Log.Warn("an agent without an epoch could not be destroyed", "err", closing)
	}
	return err
}

// networkMargin is the time to wait after the message or the death of a peer on another host, because bytes that the
// peer's hardware has sent are still in the network (M4). Our own agent is destroyed as well; the margin is for the
// case that this fails.
const networkMargin = 100 * time.Millisecond

// AwaitMargin implements epochs.TargetExecutor. The peer's message that its agent is destroyed counts only when our
// agent is not polled any more either, because our agent stores the bytes that the peer has sent.
func (in *targetExecutor) AwaitMargin(end epochs.Endpoint) {
	<-end.(*targetEndpoint).pollingDone
	if !in.SameHost {
		<-time.After(networkMargin)
	}
}

// HangUp implements epochs.TargetExecutor. Queued frames prove the end of an epoch, and are written first.
func (in *targetExecutor) HangUp() {
	in.plane.wg.Go(func() { in.Channel.FlushAndClose(in.ReaderDone) })
}

var _ plane.Plane = (*Plane)(nil)
