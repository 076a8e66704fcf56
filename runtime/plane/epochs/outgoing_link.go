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
	"github.com/kvferry/kvferry/runtime/plane/internal/guarded"
	"github.com/kvferry/kvferry/runtime/secure"
)

// An Executor carries out, with a plane's library, the decisions of a link's machine. All methods but ReadFrames are
// called on the link's goroutine.
type Executor interface {
	// PerformHandshake performs the handshake on a new connection, and sets OutgoingLink.PeerPools to the pools that
	// the peer serves. The proofs of the handshake contain secure.Binding of the connection. The caller sets the
	// connection's deadline.
	PerformHandshake(conn net.Conn, token identity.Token) error
	// ReadFrames processes the peer's frames until Channel.ReadFrames returns, calls OutgoingLink.OnChannelEnd, and
	// returns when the connection has ended (Channel.AwaitEnd). It runs on a separate goroutine.
	ReadFrames()
	// SendMessage sends the peer a message that the machine has decided to send.
	SendMessage(s communicator.Message)
	// FormEpoch makes our end of an epoch, without blocking. The event Formed follows.
	FormEpoch(epoch uint64)
	// SubmitBatch begins a batch, unless its deadline has passed.
	SubmitBatch(read bool, batch []Piece, b communicator.Batch) communicator.Outcome
	// NextPause returns how long the library need not be polled while nothing happens, or MaxPause if the library need
	// not be polled at all. Poll polls the library: whenever something was done, and when a pause has passed without
	// any event (idle).
	NextPause() time.Duration
	Poll(idle bool)
	// TearDown ends our end of an epoch, without blocking. The event TornDown or NoProof follows.
	TearDown(d communicator.TearDown)
}

// MaxPause is longer than any pause needs to be.
const MaxPause = time.Hour

// An OutgoingLink is a link that this node has opened in order to push and to read. A single goroutine feeds the
// link's machine with events, and makes the executor carry out the machine's decisions.
type OutgoingLink struct {
	links    *OutgoingLinks
	executor Executor
	corr     effects.Corr // of the Import

	Peer, OwnIncarnation effects.Incarnation // the peer, and the incarnation by which the peer knows us
	Log                  *slog.Logger
	Channel              *Channel
	ReaderDone           chan struct{} // closed when the channel's reader has ended

	// PeerPools are the peer's pools. PerformHandshake sets the list.
	PeerPools []PeerPool

	Inbox
	shown shownState

	// The fields below belong to the link's goroutine.
	id      effects.Link
	machine communicator.Initiator
	output  communicator.Effects
	jobs    map[effects.Corr]*job // the transfers whose end was not reported to the machine
}

// A job is a transfer, cut into batches.
type job struct {
	read    bool
	batches [][]Piece
	sums    []effects.Page // of a read: the pages that are compared with checksums when all is read
}

func newOutgoingLink(s *OutgoingLinks, e *effects.Import) *OutgoingLink {
	l := &OutgoingLink{
		links: s, id: s.cfg.Env.IDs.NextLink(), corr: e.Corr, Peer: e.Peer, OwnIncarnation: e.Us, Log: s.cfg.Log,
		ReaderDone: make(chan struct{}), Inbox: NewInbox(), machine: communicator.NewInitiator(s.cfg.Rules),
		jobs: map[effects.Corr]*job{},
	}
	l.executor = s.cfg.NewExecutor(l)
	return l
}

// Epoch returns the epoch that is up, or the last epoch.
func (l *OutgoingLink) Epoch() uint64 { return l.machine.Epoch() }

// InFlight returns the number of the epoch's batches in flight.
func (l *OutgoingLink) InFlight() int { return l.machine.CountInFlight() }

// Executor returns the executor of the link.
func (l *OutgoingLink) Executor() Executor { return l.executor }

// A PeerPool is a pool of the peer, with the address in the peer's memory.
type PeerPool struct {
	effects.Buffer
	Base uintptr
}

// findPool returns the peer's pool with that id, or nil.
func (l *OutgoingLink) findPool(id effects.BufferID) *PeerPool {
	for i := range l.PeerPools {
		if l.PeerPools[i].ID == id {
			return &l.PeerPools[i]
		}
	}
	return nil
}

// remoteAddress returns the address of a page in the peer's memory. The peer must serve the page's pool.
func (l *OutgoingLink) remoteAddress(page effects.RemotePage) uintptr {
	pool := l.findPool(page.Buffer)
	return pool.Base + uintptr(uint64(page.Index)*pool.PageBytes)
}

// openAndRun imports the peer and runs the link until the link ends.
func (l *OutgoingLink) openAndRun(blob []byte) {
	s := l.links
	defer s.removeLink(l)
	if err := l.connectPeer(blob); err != nil {
		code := effects.Unreachable
		if r := (*refusal)(nil); errors.As(err, &r) {
			code = r.code
		}
		if s.cfg.Context.Err() != nil {
			code = effects.Closed
		}
		if code != effects.Closed {
			_, address, _ := framing.ParseBlob(blob)
			s.cfg.LimitedLog.Warn("cannot open a link to a peer: "+code.String(), fmt.Sprintf("%x", l.Peer[:4]),
				"address", address, "err", err)
		}
		s.reportEvent(l, &effects.Imported{Corr: l.corr, Code: code})
		return
	}
	l.runLoop()
}

// A refusal is an error with the code that Imported is to carry.
type refusal struct {
	code effects.Code
	err  error
}

func (r *refusal) Error() string { return fmt.Sprintf("%s: %v", r.code, r.err) }
func (r *refusal) Unwrap() error { return r.err }

// NewRefusal returns the error of a handshake that makes Imported carry code. Any other error counts as Unreachable.
func NewRefusal(code effects.Code, format string, args ...any) error {
	return &refusal{code, fmt.Errorf(format, args...)}
}

// connectPeer dials the peer and performs the handshake within Bounds.HandshakeTimeout.
func (l *OutgoingLink) connectPeer(blob []byte) error {
	s := l.links
	token, address, err := framing.ParseBlob(blob)
	if err != nil {
		return NewRefusal(effects.Malformed, "%w", err)
	}
	ctx, cancel := context.WithTimeout(s.cfg.Context, s.cfg.Env.Bounds.HandshakeTimeout)
	defer cancel()
	conn, err := guarded.Dial(ctx, s.cfg.Env.Guard, address)
	if err != nil {
		return err
	}
	l.Log = s.cfg.Log.With("link", l.id, "peer", fmt.Sprintf("%x", l.Peer[:4]))
	interrupted := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err = l.executor.PerformHandshake(conn, token)
	if !interrupted() && err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err == nil {
		l.Channel = NewChannel(conn, s.cfg.Env.Bounds.StallTimeout, s.cfg.MaxFrameBytes)
		// The target takes the end of the connection for the proof that our part is over (M4). So the guard must not close
		// it: the link ends, and closes the connection when our part is over.
		if secured, ok := conn.(*secure.Conn); ok && !secured.OnRefused(l.Channel.Interrupt) {
			err = net.ErrClosed
		}
	}
	if err != nil {
		_ = conn.Close() // Nothing exists yet that could reach memory.
		return err
	}
	return nil
}

// ReadWelcome reads the answer to our hello, which must be a frame of the kind of a welcome.
func (l *OutgoingLink) ReadWelcome(conn net.Conn, welcome uint8) ([]byte, error) {
	k, body, _, err := framing.ReadFrame(conn, nil, l.links.cfg.MaxFrameBytes)
	switch {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("the peer closed the connection instead of sending a welcome; see its log: it may be "+
			"of another version: %w", err)
	case errors.Is(err, framing.ErrMalformed):
		return nil, NewRefusal(effects.Malformed, "%w", err)
	case err != nil:
		return nil, err
	case k != welcome:
		return nil, NewRefusal(effects.Malformed, "%w: frame of kind %d instead of a welcome", framing.ErrMalformed, k)
	}
	return body, nil
}

// CheckWelcome returns the reason for which a welcome cannot be accepted: the code, the sender, or the missing proof
// (M2).
func (l *OutgoingLink) CheckWelcome(code effects.Code, from effects.Incarnation, proven bool) error {
	switch {
	case code != effects.OK:
		return NewRefusal(communicator.ImportCode(code), "the peer refused the link; see its log")
	case from != l.Peer:
		return NewRefusal(effects.Stale, "incarnation %x... answered where %x... was expected", from[:4], l.Peer[:4])
	case !proven:
		return NewRefusal(effects.Refused, "the peer that answered as %x... does not prove its identity", from[:4])
	}
	return nil
}

// runLoop is the link's goroutine.
func (l *OutgoingLink) runLoop() {
	var readers sync.WaitGroup
	readers.Go(func() {
		defer close(l.ReaderDone)
		l.executor.ReadFrames()
	})
	go l.Channel.WriteFrames(l.OnChannelEnd)
	l.StepMachine(plane.Now(), communicator.Event{Kind: communicator.Begin})
	timer := time.NewTimer(MaxPause)
	defer timer.Stop()
	open := true
	for !l.machine.IsFinished() {
		l.processPending()
		if open && l.machine.IsOver() {
			open = false
			l.Channel.FlushAndClose(l.ReaderDone)
		}
		if l.machine.IsFinished() {
			break
		}
		wait := l.executor.NextPause()
		if at, ok := l.machine.Deadline(); ok {
			wait = min(wait, time.Duration(max(at.Sub(plane.Now()), 0)))
		}
		timer.Reset(wait)
		select {
		case <-l.Wake():
		case <-timer.C:
			l.executor.Poll(true)
		}
	}
	if l.machine.IsUnproven() {
		l.links.recordUnproven(l)
	}
	if open {
		l.Channel.FlushAndClose(l.ReaderDone)
	}
	readers.Wait()
}

// processPending processes all pending events, and submits the batches that may be submitted.
func (l *OutgoingLink) processPending() {
	for _, f := range l.TakeAll() {
		f(plane.Now())
	}
	l.StepMachine(plane.Now(), communicator.Event{Kind: communicator.Tick})
	l.executor.Poll(false)
	for b, ok := l.machine.Next(); ok; b, ok = l.machine.Next() {
		j := l.jobs[b.Corr]
		how := l.executor.SubmitBatch(j.read, j.batches[b.Index], b)
		l.StepMachine(plane.Now(), communicator.Event{Kind: communicator.Submitted, Outcome: how})
		l.executor.Poll(false)
	}
}

// PostEvent makes the link's goroutine process an event.
func (l *OutgoingLink) PostEvent(ev communicator.Event) {
	l.Push(func(now effects.Time) { l.StepMachine(now, ev) })
}

// StepMachine makes the machine process an event, and carries out the machine's decisions. It must be called on the
// link's goroutine.
func (l *OutgoingLink) StepMachine(now effects.Time, ev communicator.Event) {
	l.machine.Step(now, &ev, &l.output)
	out := &l.output
	for _, p := range out.Posts {
		l.postCompletion(p)
	}
	for _, s := range out.Messages {
		l.executor.SendMessage(s)
	}
	if out.FormEpoch != 0 {
		l.executor.FormEpoch(out.FormEpoch)
	}
	if out.TearDown.Epoch != 0 {
		l.executor.TearDown(out.TearDown)
	}
	out.Reset()
	l.shown.update(now, &l.machine)
}

// A shownState is what operators see of a link. The link's goroutine updates it after each step.
type shownState struct {
	mu    sync.Mutex
	state plane.LinkState
}

func (x *shownState) update(now effects.Time, m *communicator.Initiator) {
	name, until := m.State()
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := &x.state; s.State != name || s.Epoch != m.Epoch() {
		s.State, s.Epoch, s.Since = name, m.Epoch(), now
	}
	x.state.Until, x.state.InFlight = until, m.CountInFlight()
}

func (x *shownState) get() plane.LinkState {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.state
}

// postCompletion reports a completion to the rank's machine.
func (l *OutgoingLink) postCompletion(p communicator.Post) {
	switch p.Kind {
	case communicator.PostImported:
		e := &effects.Imported{Corr: l.corr, Code: p.Code}
		if p.Code == effects.OK {
			e.Link = l.id
		}
		l.links.reportEvent(l, e)
	case communicator.PostTransferDone:
		code := p.Code
		// The pages are compared on the link's goroutine, so that the events of the link keep their order. At stays the
		// time at which the read was over.
		if j := l.jobs[p.Corr]; j != nil && code == effects.OK && !l.links.cfg.Env.Leased.VerifyRead(j.sums) {
			code = effects.Corrupt
		}
		delete(l.jobs, p.Corr)
		l.links.reportEvent(l, &effects.TransferDone{Corr: p.Corr, Code: code, Settled: p.Settled, At: p.At})
	case communicator.PostSettled:
		l.links.reportEvent(l, &effects.Settled{Corr: p.Corr, Code: p.Code})
	case communicator.PostLinkLost:
		l.links.reportEvent(l, &effects.LinkLost{Link: l.id, Peer: l.Peer})
	case communicator.PostDropped:
		l.links.reportEvent(l, &effects.Dropped{Link: l.id})
	}
}

// SendFrame sends the peer a frame, or ends the link if the peer does not read any more.
func (l *OutgoingLink) SendFrame(frame []byte) {
	if !l.Channel.Send(frame) {
		l.OnChannelEnd(ErrStalled)
	}
}

// ErrStalled ends a link if the peer does not read.
var ErrStalled = errors.New("the peer does not read our messages any more")

// OnChannelEnd reports that the channel has ended, and never blocks.
func (l *OutgoingLink) OnChannelEnd(err error) {
	l.Push(func(now effects.Time) {
		if !l.machine.IsFinal() {
			l.Log.Warn("link lost", "err", err)
		}
		l.StepMachine(now, communicator.Event{Kind: communicator.ChannelLost})
	})
}

// LogTearDown logs that an epoch is torn down before the end of the link, or with batches in flight. The result is
// false if neither holds; then the link ends in the normal way.
func (l *OutgoingLink) LogTearDown(what string, d communicator.TearDown) bool {
	if d.InFlight == 0 && d.Last {
		return false
	}
	level := slog.LevelWarn
	if d.InFlight == 0 || d.ByPeer {
		level = slog.LevelInfo // Revocations do this in normal operation.
	}
	l.Log.Log(l.links.cfg.Context, level, what+" is fenced", "epoch", d.Epoch, "in_flight", d.InFlight, "by_peer", d.ByPeer)
	return true
}
