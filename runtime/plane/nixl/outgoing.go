//go:build cgo && linux

package nixl

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/epochs"
	"github.com/kvferry/kvferry/runtime/plane/framing"
)

// An outgoing is a link that we opened in order to push and to read: one goroutine that feeds the link's machine with
// what happens, carries out what it decides, and asks the agent of the epoch that is up.
type outgoing struct {
	plane   *Plane
	id      effects.Link
	corr    effects.Corr // of the Import
	peer    effects.Incarnation
	us      effects.Incarnation // what it knows us by
	log     *slog.Logger
	session [16]byte
	near    bool // the peer is on this host
	welcome welcome
	ch      *epochs.Channel
	reader  chan struct{} // closed when the channel's reader has ended
	partner *partner
	fenced  atomic.Uint64 // the newest epoch that the target has fenced
	met     atomic.Uint64 // and that in which its agent has heard ours

	epochs.Inbox

	// Of the serving goroutine.
	m        communicator.Initiator
	out      communicator.Out
	jobs     map[effects.Corr]*job // what the machine has not been told the end of
	metadata []byte                // of the target's agent of the newest epoch
	end      *end                  // of the epoch that is up
	busy     bool                  // the target was told that its agent is waited for
	pauses   pauses                // between two looks at our agent
}

// A job is what a transfer moves, cut into batches.
type job struct {
	read    bool
	batches [][]epochs.Piece
}

func newOutgoing(p *Plane, corr effects.Corr, peer, us effects.Incarnation) *outgoing {
	return &outgoing{
		plane: p, id: p.env.IDs.NextLink(), corr: corr, peer: peer, us: us, log: p.log, reader: make(chan struct{}),
		partner: newPartner(), Inbox: epochs.NewInbox(), m: communicator.NewInitiator(p.cfg.rules(p.env.Bounds)),
		jobs: map[effects.Corr]*job{},
	}
}

// address is where a page of the peer's begins, there.
func (o *outgoing) address(page effects.RemotePage) uintptr {
	return uintptr(o.welcome.base + uint64(page.Index)*o.welcome.buffer.PageBytes)
}

// serve imports the peer and runs the link to its end.
func (o *outgoing) serve(blob []byte) {
	p := o.plane
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.outgoing, o)
	}()
	if err := o.connect(blob); err != nil {
		code := effects.Unreachable
		if r := (*refusal)(nil); errors.As(err, &r) {
			code = r.code
		}
		if p.opening.Err() != nil {
			code = effects.Closed
		}
		if code != effects.Closed {
			_, address, _ := framing.ParseBlob(blob)
			p.seldom.Warn("a peer cannot be linked to: "+code.String(), fmt.Sprintf("%x", o.peer[:4]), "address", address,
				"err", err)
		}
		o.post(&effects.Imported{Corr: o.corr, Code: code})
		return
	}
	o.run()
}

// A refusal is an error with the code that Imported shall carry.
type refusal struct {
	code effects.Code
	err  error
}

func (r *refusal) Error() string { return fmt.Sprintf("%s: %v", r.code, r.err) }
func (r *refusal) Unwrap() error { return r.err }

func refuse(code effects.Code, format string, args ...any) error {
	return &refusal{code, fmt.Errorf(format, args...)}
}

// connect dials the peer and shakes hands, within the bound of a handshake.
func (o *outgoing) connect(blob []byte) error {
	token, address, err := framing.ParseBlob(blob)
	if err != nil {
		return refuse(effects.Malformed, "%w", err)
	}
	ctx, cancel := context.WithTimeout(o.plane.opening, o.plane.env.Bounds.Handshake)
	defer cancel()
	conn, err := framing.Dial(ctx, address)
	if err != nil {
		return err
	}
	interrupted := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err = o.shakeHands(conn, token)
	if !interrupted() && err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = conn.Close() // Nothing was made that could reach memory.
		return err
	}
	o.ch = epochs.NewChannel(conn, o.plane.env.Bounds.Stall, frameMax)
	o.log = o.plane.log.With("link", o.id, "peer", fmt.Sprintf("%x", o.peer[:4]))
	return nil
}

func (o *outgoing) shakeHands(conn net.Conn, token identity.Token) error {
	rand.Read(o.session[:])
	h := hello{from: o.us, to: o.peer, session: o.session, boot: o.plane.boot}
	h.proof = h.prove(token)
	if _, err := conn.Write(appendHello(nil, h)); err != nil {
		return err
	}
	k, body, _, err := framing.Read(conn, nil, frameMax)
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("the peer closed instead of a welcome; if it runs, its log says why: it may be of another "+
			"version: %w", err)
	case errors.Is(err, framing.ErrMalformed):
		return refuse(effects.Malformed, "%w", err)
	case err != nil:
		return err
	case kind(k) != kindWelcome:
		return refuse(effects.Malformed, "%w: kind %d where a welcome belongs", framing.ErrMalformed, k)
	}
	w, err := parseWelcome(body)
	switch {
	case err != nil:
		return refuse(effects.Malformed, "%w", err)
	case w.code != effects.OK:
		return refuse(communicator.Importing(w.code), "the peer refused the link; see its log")
	case w.from != o.peer:
		return refuse(effects.Stale, "incarnation %x... answered where %x... was expected", w.from[:4], o.peer[:4])
	case !identity.Same(w.proof, w.prove(h, token)):
		return refuse(effects.Refused, "who answered as %x... does not prove it", w.from[:4])
	}
	o.welcome, o.near = w, w.boot == o.plane.boot
	return nil
}

// run is the link's goroutine.
func (o *outgoing) run() {
	var readers sync.WaitGroup
	readers.Go(o.read)
	go o.ch.Write(func(err error) { o.lost(err) })
	o.feed(plane.Now(), communicator.Event{Kind: communicator.Begin})
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	open := true
	for !o.m.Finished() {
		o.step()
		if open && o.m.Over() {
			open = false
			o.ch.Finish(o.reader)
		}
		if o.m.Finished() {
			break
		}
		wait := time.Hour
		if at, ok := o.m.Deadline(); ok {
			wait = time.Duration(max(at.Sub(plane.Now()), 0))
		}
		if o.flying() {
			wait = min(wait, o.pauses.next())
		}
		timer.Reset(wait)
		select {
		case <-o.Wake():
		case <-timer.C:
		}
	}
	if o.m.Unproven() {
		o.plane.unprove(o)
	}
	if open {
		o.ch.Finish(o.reader)
	}
	readers.Wait()
}

func (o *outgoing) flying() bool { return o.end != nil && len(o.end.flights) > 0 }

// step takes all that has happened, and submits what may be.
func (o *outgoing) step() {
	for _, f := range o.Happened() {
		f(plane.Now())
	}
	o.feed(plane.Now(), communicator.Event{Kind: communicator.Tick})
	o.look()
	for b, ok := o.m.Next(); ok; b, ok = o.m.Next() {
		how := o.submit(o.jobs[b.Corr], b)
		o.feed(plane.Now(), communicator.Event{Kind: communicator.Submitted, How: how})
		o.look()
	}
}

// read takes what the peer says, and after something that makes no sense, how its connection ends.
func (o *outgoing) read() {
	defer close(o.reader)
	err := o.ch.Read(o.take)
	o.partner.move(func() { o.partner.deaf = true })
	o.lost(err)
	if errors.Is(err, framing.ErrMalformed) {
		err = errors.Join(err, o.ch.Drain())
	}
	proof := epochs.Proves(err, o.near)
	o.partner.move(func() { o.partner.ended, o.partner.proven = true, proof })
}

func (o *outgoing) take(what uint8, body []byte) error {
	switch kind(what) {
	case kindAccept:
		a, err := parseAccept(body)
		if err != nil {
			return err
		}
		a.metadata = slices.Clone(a.metadata)
		return o.Hear(func(now effects.Time) {
			o.metadata = a.metadata
			o.feed(now, communicator.Event{
				Kind: communicator.Accepted, Epoch: a.epoch, Code: a.code, Revoked: a.revoked, More: a.more,
			})
		})
	case kindFenced:
		epoch, err := parseEpoch(body)
		if err != nil {
			return err
		}
		err = o.Hear(func(now effects.Time) {
			o.feed(now, communicator.Event{Kind: communicator.PeerFenced, Epoch: epoch})
		})
		o.fenced.Store(epoch) // After the machine's event: who looks at this tells the machine something behind it.
		return err
	case kindGone:
		epoch, err := parseEpoch(body)
		if err == nil {
			o.partner.move(func() { o.partner.gone = max(o.partner.gone, epoch) })
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

// lost says that the channel has ended.
func (o *outgoing) lost(err error) {
	o.Push(func(now effects.Time) {
		if !o.m.Final() {
			o.log.Warn("link lost", "err", err)
		}
		o.feed(now, communicator.Event{Kind: communicator.ChannelLost})
	})
}
