package epochs

import (
	"context"
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
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/framing"
)

// An Executor carries out, with a plane's library, the decisions of a link's machine. All methods but ReadFrames are
// called on the link's goroutine.
type Hands interface {
	// PerformHandshake performs the handshake on a new connection, and sets OutgoingLink.PeerPools to the pools that
	// the peer serves. The caller sets the connection's deadline.
	Greet(conn net.Conn, token identity.Token) error
	// ReadFrames processes the peer's frames until the connection ends, and then calls OutgoingLink.OnChannelEnd. It
	// runs on a separate goroutine.
	Listen()
	// Say sends the peer a message that the machine has decided to send.
	Say(s communicator.Say)
	// Form makes our end of an epoch, without blocking. The event Formed follows.
	Form(epoch uint64)
	// Submit begins a batch, unless its deadline has passed.
	Submit(read bool, batch []Piece, b communicator.Batch) communicator.Outcome
	// NextPause returns how long the library need not be polled while nothing happens, or MaxPause if the library need
	// not be polled at all. Poll polls the library: whenever something was done, and when a pause has passed without
	// any event (idle).
	Pause() time.Duration
	Look(idle bool)
	// TearDown ends our end of an epoch, without blocking. The event TornDown or NoProof follows.
	TearDown(d communicator.TearDown)
}

// ForLong is longer than any pause needs to be.
const ForLong = time.Hour

// An OutgoingLink is a link that this node has opened in order to push and to read. A single goroutine feeds the
// link's machine with events, and makes the executor carry out the machine's decisions.
type Link struct {
	links *Links
	hands Hands
	corr  effects.Corr // of the Import

	Peer, Us effects.Incarnation // the peer, and the incarnation by which the peer knows us
	Log      *slog.Logger
	Channel  *Channel
	Reader   chan struct{} // closed when the channel's reader has ended

	// PeerPools are the peer's pools. PerformHandshake sets the list.
	Serves []Served

	Inbox

	// The fields below belong to the link's goroutine.
	id   effects.Link
	m    communicator.Initiator
	out  communicator.Out
	jobs map[effects.Corr]*job // the transfers whose end was not reported to the machine
}

// A job is a transfer, cut into batches.
type job struct {
	read    bool
	batches [][]Piece
}

func newLink(s *Links, e *effects.Import) *Link {
	l := &Link{
		links: s, id: s.cfg.Env.IDs.NextLink(), corr: e.Corr, Peer: e.Peer, Us: e.Us, Log: s.cfg.Log,
		Reader: make(chan struct{}), Inbox: NewInbox(), m: communicator.NewInitiator(s.cfg.Rules),
		jobs: map[effects.Corr]*job{},
	}
	l.hands = s.cfg.Hands(l)
	return l
}

// Epoch returns the epoch that is up, or the last epoch.
func (l *Link) Epoch() uint64 { return l.m.Epoch() }

// Flying returns the number of the epoch's batches in flight.
func (l *Link) Flying() int { return l.m.Flying() }

// Executor returns the executor of the link.
func (l *Link) Hands() Hands { return l.hands }

// A Served is a pool of the peer, with the address in the peer's memory.
type Served struct {
	effects.Buffer
	Base uintptr
}

// serves returns the peer's pool with that id, or nil.
func (l *Link) serves(id effects.BufferID) *Served {
	for i := range l.Serves {
		if l.Serves[i].ID == id {
			return &l.Serves[i]
		}
	}
	return nil
}

// address returns the address of a page in the peer's memory. The peer must serve the page's pool.
func (l *Link) address(page effects.RemotePage) uintptr {
	of := l.serves(page.Buffer)
	return of.Base + uintptr(uint64(page.Index)*of.PageBytes)
}

// serve imports the peer and runs the link until the link ends.
func (l *Link) serve(blob []byte) {
	s := l.links
	defer s.remove(l)
	if err := l.connect(blob); err != nil {
		code := effects.Unreachable
		if r := (*refusal)(nil); errors.As(err, &r) {
			code = r.code
		}
		if s.cfg.Opening.Err() != nil {
			code = effects.Closed
		}
		if code != effects.Closed {
			_, address, _ := framing.ParseBlob(blob)
			s.cfg.LimitedLog.Warn("a peer cannot be linked to: "+code.String(), fmt.Sprintf("%x", l.Peer[:4]),
				"address", address, "err", err)
		}
		s.post(l, &effects.Imported{Corr: l.corr, Code: code})
		return
	}
	l.run()
}

// A refusal is an error with the code that Imported is to carry.
type refusal struct {
	code effects.Code
	err  error
}

func (r *refusal) Error() string { return fmt.Sprintf("%s: %v", r.code, r.err) }
func (r *refusal) Unwrap() error { return r.err }

// Refuse returns the error of a handshake that makes Imported carry code. Any other error counts as Unreachable.
func Refuse(code effects.Code, format string, args ...any) error {
	return &refusal{code, fmt.Errorf(format, args...)}
}

// connect dials the peer and performs the handshake within Bounds.Handshake.
func (l *Link) connect(blob []byte) error {
	s := l.links
	token, address, err := framing.ParseBlob(blob)
	if err != nil {
		return Refuse(effects.Malformed, "%w", err)
	}
	ctx, cancel := context.WithTimeout(s.cfg.Opening, s.cfg.Env.Bounds.Handshake)
	defer cancel()
	conn, err := framing.Dial(ctx, address)
	if err != nil {
		return err
	}
	l.Log = s.cfg.Log.With("link", l.id, "peer", fmt.Sprintf("%x", l.Peer[:4]))
	interrupted := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err = l.hands.Greet(conn, token)
	if !interrupted() && err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = conn.Close() // Nothing exists yet that could reach memory.
		return err
	}
	l.Channel = NewChannel(conn, s.cfg.Env.Bounds.Stall, s.cfg.Frame)
	return nil
}

// Answer reads the answer to our hello, which must be a frame of the kind of a welcome.
func (l *Link) Answer(conn net.Conn, welcome uint8) ([]byte, error) {
	k, body, _, err := framing.Read(conn, nil, l.links.cfg.Frame)
	switch {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("the peer closed the connection instead of sending a welcome; see its log: it may be "+
			"of another version: %w", err)
	case errors.Is(err, framing.ErrMalformed):
		return nil, Refuse(effects.Malformed, "%w", err)
	case err != nil:
		return nil, err
	case k != welcome:
		return nil, Refuse(effects.Malformed, "%w: kind %d where a welcome belongs", framing.ErrMalformed, k)
	}
	return body, nil
}

// CheckWelcome returns the reason for which a welcome cannot be accepted: the code, the sender, or the missing proof
// (M2).
func (l *Link) CheckWelcome(code effects.Code, from effects.Incarnation, proven bool) error {
	switch {
	case code != effects.OK:
		return Refuse(communicator.Importing(code), "the peer refused the link; see its log")
	case from != l.Peer:
		return Refuse(effects.Stale, "incarnation %x... answered where %x... was expected", from[:4], l.Peer[:4])
	case !proven:
		return Refuse(effects.Refused, "the peer that answered as %x... does not prove its identity", from[:4])
	}
	return nil
}

// run is the link's goroutine.
func (l *Link) run() {
	var readers sync.WaitGroup
	readers.Go(func() {
		defer close(l.Reader)
		l.hands.Listen()
	})
	go l.Channel.Write(l.Lost)
	l.Feed(plane.Now(), communicator.Event{Kind: communicator.Begin})
	timer := time.NewTimer(ForLong)
	defer timer.Stop()
	open := true
	for !l.m.Finished() {
		l.step()
		if open && l.m.Over() {
			open = false
			l.Channel.Finish(l.Reader)
		}
		if l.m.Finished() {
			break
		}
		wait := l.hands.Pause()
		if at, ok := l.m.Deadline(); ok {
			wait = min(wait, time.Duration(max(at.Sub(plane.Now()), 0)))
		}
		timer.Reset(wait)
		select {
		case <-l.Wake():
		case <-timer.C:
			l.hands.Look(true)
		}
	}
	if l.m.Unproven() {
		l.links.recordUnproven(l)
	}
	if open {
		l.Channel.Finish(l.Reader)
	}
	readers.Wait()
}

// step processes all pending events, and submits the batches that may be submitted.
func (l *Link) step() {
	for _, f := range l.Take() {
		f(plane.Now())
	}
	l.Feed(plane.Now(), communicator.Event{Kind: communicator.Tick})
	l.hands.Look(false)
	for b, ok := l.m.Next(); ok; b, ok = l.m.Next() {
		j := l.jobs[b.Corr]
		how := l.hands.Submit(j.read, j.batches[b.Index], b)
		l.Feed(plane.Now(), communicator.Event{Kind: communicator.Submitted, How: how})
		l.hands.Look(false)
	}
}

// PostEvent makes the link's goroutine process an event.
func (l *Link) PostEvent(ev communicator.Event) {
	l.Push(func(now effects.Time) { l.Feed(now, ev) })
}

// Feed makes the machine process an event, and carries out the machine's decisions. It must be called on the link's
// goroutine.
func (l *Link) Feed(now effects.Time, ev communicator.Event) {
	l.m.Step(now, &ev, &l.out)
	out := &l.out
	for _, p := range out.Posts {
		l.postCompletion(p)
	}
	for _, s := range out.Says {
		l.hands.Say(s)
	}
	if out.Form != 0 {
		l.hands.Form(out.Form)
	}
	if out.TearDown.Epoch != 0 {
		l.hands.TearDown(out.TearDown)
	}
	out.Reset()
}

// postCompletion reports a completion to the rank's machine.
func (l *Link) postCompletion(p communicator.Post) {
	switch p.Kind {
	case communicator.PostImported:
		e := &effects.Imported{Corr: l.corr, Code: p.Code}
		if p.Code == effects.OK {
			e.Link = l.id
		}
		l.links.post(l, e)
	case communicator.PostTransferDone:
		delete(l.jobs, p.Corr)
		l.links.post(l, &effects.TransferDone{Corr: p.Corr, Code: p.Code, Settled: p.Settled, At: p.At})
	case communicator.PostSettled:
		l.links.post(l, &effects.Settled{Corr: p.Corr, Code: p.Code})
	case communicator.PostLinkLost:
		l.links.post(l, &effects.LinkLost{Link: l.id, Peer: l.Peer})
	case communicator.PostDropped:
		l.links.post(l, &effects.Dropped{Link: l.id})
	}
}

// SendFrame sends the peer a frame, or ends the link if the peer does not read any more.
func (l *Link) SendFrame(frame []byte) {
	if !l.Channel.Send(frame) {
		l.Lost(ErrStalled)
	}
}

// ErrStalled ends a link if the peer does not read.
var ErrStalled = errors.New("the peer does not read messages any more")

// Lost reports that the channel has ended, and never blocks.
func (l *Link) Lost(err error) {
	l.Push(func(now effects.Time) {
		if !l.m.Final() {
			l.Log.Warn("link lost", "err", err)
		}
		l.Feed(now, communicator.Event{Kind: communicator.ChannelLost})
	})
}

// LogTearDown logs that an epoch is torn down before the end of the link, or with batches in flight. The result is
// false if neither holds; then the link ends in the normal way.
func (l *Link) Fenced(what string, d communicator.TearDown) bool {
	if d.Flying == 0 && d.Last {
		return false
	}
	level := slog.LevelWarn
	if d.Flying == 0 || d.ByPeer {
		level = slog.LevelInfo // Revocations do this in normal operation.
	}
	l.Log.Log(l.links.cfg.Opening, level, what+" is fenced", "epoch", d.Epoch, "in_flight", d.Flying, "by_peer", d.ByPeer)
	return true
}
