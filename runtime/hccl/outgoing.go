//go:build cgo && linux

package hccl

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/hccl/comm"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/epochs"
	"github.com/kvferry/kvferry/runtime/plane/framing"
)

// An outgoing is a link that we opened in order to push and to read: one goroutine that feeds the link's machine with
// what happens and carries out what it decides.
type outgoing struct {
	plane   *Plane
	id      effects.Link
	corr    effects.Corr // of the Import
	peer    effects.Incarnation
	us      effects.Incarnation // what it knows us by
	log     *slog.Logger
	pair    pair
	welcome welcome
	ch      *epochs.Channel
	reader  chan struct{} // closed when the channel's reader has ended

	epochs.Inbox

	// Of the serving goroutine.
	m     communicator.Initiator
	out   communicator.Out
	jobs  map[effects.Corr]*job // what the machine has not been told the end of
	root  []byte                // root info of the newest epoch, if the ends use it
	end   *end                  // of the epoch that is up
	descs []comm.Desc
}

// A job is what a transfer moves, cut into batches.
type job struct {
	read    bool
	batches [][]epochs.Piece
}

func newOutgoing(p *Plane, corr effects.Corr, peer, us effects.Incarnation) *outgoing {
	return &outgoing{
		plane: p, id: p.env.IDs.NextLink(), corr: corr, peer: peer, us: us, log: p.log, reader: make(chan struct{}),
		Inbox: epochs.NewInbox(), m: communicator.NewInitiator(p.cfg.rules(p.env.Bounds)), jobs: map[effects.Corr]*job{},
	}
}

// address is where a page of the peer's begins, there.
func (o *outgoing) address(page effects.RemotePage) uintptr {
	return o.welcome.served.Base + uintptr(uint64(page.Index)*o.welcome.buffer.PageBytes)
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
	o.log = o.plane.log.With("link", o.id, "peer", fmt.Sprintf("%x", o.peer[:4]), "by", o.welcome.link)
	return nil
}

func (o *outgoing) shakeHands(conn net.Conn, token identity.Token) error {
	p := o.plane
	rand.Read(o.pair.session[:])
	h := hello{from: o.us, to: o.peer, session: o.pair.session, boot: p.boot, rank: p.cfg.Rank,
		regions: uint8(len(p.regions))}
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
	o.welcome = w
	o.pair.regions = int(w.regions)
	o.pair.hccs = w.link == comm.HCCS
	if link := p.linkTo(w.rank, w.boot == p.boot); link != w.link {
		return refuse(effects.Refused,
			"the peer reckons with %v and this node with %v; set HCCL_INTRA_ROCE_ENABLE alike on both", w.link, link)
	}
	o.pair.table, o.pair.rank, _, err = comm.Table(p.cfg.Rank, w.rank)
	if err != nil {
		return refuse(effects.Refused, "%w", err)
	}
	return nil
}

// linkTo is what carries the bytes between this NPU and a peer's. By root info HCCL tells hosts apart itself, whatever
// the ranks call them; then near counts, which says that the peer is on this host.
func (p *Plane) linkTo(rank comm.Rank, near bool) comm.Link {
	mine := p.cfg.Rank
	if p.cfg.RootInfo {
		mine.Server, rank.Server = "here", "there"
		if near {
			rank.Server = mine.Server
		}
	}
	return comm.LinkOf(p.cfg.SoC, mine, rank, p.lib.Info().IntraRoCE)
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
		flying := o.m.Flying() > 0
		if flying {
			wait = min(wait, lookEvery)
		}
		timer.Reset(wait)
		select {
		case <-o.Wake():
		case <-timer.C:
			if flying {
				o.look()
			}
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

// lookEvery is how often a communicator is asked for a failure that its stream says nothing of, while nothing ends.
const lookEvery = 250 * time.Millisecond

// look asks.
func (o *outgoing) look() {
	err := o.plane.ctx.Do(func(t *acl.Thread) error { return o.end.comm.AsyncError(t) })
	if failed := (*comm.Error)(nil); errors.As(err, &failed) && !errors.Is(err, acl.Unsupported) {
		o.log.Warn("a communicator has failed", "epoch", o.m.Epoch(), "err", err)
		o.feed(plane.Now(), communicator.Event{Kind: communicator.BatchEnded, Epoch: o.m.Epoch()})
	}
}

// step takes all that has happened, and submits what may be.
func (o *outgoing) step() {
	for _, f := range o.Happened() {
		f(plane.Now())
	}
	o.feed(plane.Now(), communicator.Event{Kind: communicator.Tick})
	for b, ok := o.m.Next(); ok; b, ok = o.m.Next() {
		how := o.submit(o.jobs[b.Corr], b)
		o.feed(plane.Now(), communicator.Event{Kind: communicator.Submitted, How: how})
	}
}

// read takes what the peer says.
func (o *outgoing) read() {
	defer close(o.reader)
	o.lost(o.ch.Read(o.take))
}

func (o *outgoing) take(what uint8, body []byte) error {
	k := kind(what)
	switch k {
	case kindAccept:
		a, err := parseAccept(body)
		if err != nil {
			return err
		}
		a.root = append([]byte(nil), a.root...)
		return o.Hear(func(now effects.Time) {
			if len(a.root) > 0 {
				o.root = a.root
			}
			o.feed(now, communicator.Event{
				Kind: communicator.Accepted, Epoch: a.epoch, Code: a.code, Revoked: a.revoked, More: a.more,
			})
		})
	case kindFenced:
		epoch, err := parseEpoch(body)
		if err != nil {
			return err
		}
		return o.Hear(func(now effects.Time) {
			o.feed(now, communicator.Event{Kind: communicator.PeerFenced, Epoch: epoch})
		})
	case kindHello, kindWelcome, kindOffer, kindGone:
	}
	return fmt.Errorf("%w: kind %d of a target", framing.ErrMalformed, k)
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
