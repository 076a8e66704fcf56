//go:build cgo && linux

package nixl

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/libnixl"
	"github.com/kvferry/kvferry/runtime/libnixl/nixlproc"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/epochs"
)

// agentName returns the name of an agent of an epoch. The session is random and each epoch number is used once, so no
// two agents have the same name.
func agentName(session [16]byte, epoch uint64, side string) string {
	return fmt.Sprintf("kvf-%x-%d-%s", session, epoch, side)
}

const (
	sideInitiator = "i"
	sideTarget    = "t"
)

// An endpoint is our agent of an epoch. There is a single owner at a time, which may pass the agent on.
type endpoint struct {
	agent  nixlproc.Agent
	memory nixlproc.Memory
	peer   string // the name of the target's agent; set at the initiator
	// posted are the batches that were posted and are not known to have ended, in order.
	posted          []*postedBatch
	failedTransfers []nixlproc.Transfer // failed transfers, which still hold resources of the library
	closed          chan struct{}       // closed by close; nil: nobody waits for that
	failed          bool                // a batch has failed; the batches behind it are not reported any more
}

// A postedBatch is a batch in flight.
type postedBatch struct {
	transfer nixlproc.Transfer
	done     bool
}

// newEndpoint makes an agent and registers the regions. The connection, if not nil, does not end before the agent. After
// an error nothing remains.
func (p *Plane) newEndpoint(name string, regions []plane.Region, held net.Conn) (*endpoint, error) {
	agent, err := p.host.NewAgent(libnixl.AgentOptions{Name: name, Params: p.cfg.backendParams()}, held)
	if err != nil {
		return nil, err
	}
	ranges := []libnixl.Range{p.scratch.addressRange()}
	for _, r := range regions {
		ranges = append(ranges, libnixl.Range{Address: uint64(r.Base), Bytes: r.Bytes})
	}
	e := &endpoint{agent: agent}
	if e.memory, err = agent.RegisterMemory(ranges...); err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

// close destroys the agent. If the error is nil, this node takes no part any more in any transfer of the agent.
func (e *endpoint) close() error {
	var err error
	if e.closed != nil {
		close(e.closed)
		e.closed = nil
	}
	for _, f := range e.posted {
		err = errors.Join(err, f.transfer.Close())
	}
	for _, t := range e.failedTransfers {
		err = errors.Join(err, t.Close())
	}
	e.posted, e.failedTransfers = nil, nil
	if e.memory != nil {
		err = errors.Join(err, e.memory.Close())
	}
	if err != nil {
		// The library would not destroy the agent.
		return err
	}
	return e.agent.Close()
}

// postBatch submits a batch, unless the time is after notAfter right before.
func (e *endpoint) postBatch(read bool, batch []epochs.Piece, notAfter effects.Time) (posted bool, err error) {
	o := libnixl.TransferOptions{Operation: libnixl.Write, Peer: e.peer, Pairs: make([]libnixl.Pair, 0, len(batch))}
	if read {
		o.Operation = libnixl.Read
	}
	for _, piece := range batch {
		o.Pairs = append(o.Pairs,
			libnixl.Pair{Local: uint64(piece.Local), Remote: uint64(piece.Remote), Bytes: piece.Bytes})
	}
	t, err := e.agent.NewTransfer(o)
	if err != nil {
		return false, err
	}
	done, err := t.Post(timeUntil(notAfter))
	if errors.Is(err, nixlproc.ErrLate) {
		return false, t.Close()
	}
	if err != nil {
		e.failedTransfers = append(e.failedTransfers, t)
		return false, err
	}
	e.posted = append(e.posted, &postedBatch{transfer: t, done: done})
	return true, nil
}

// noLimit is the time in which a transfer may start that no grant limits.
const noLimit = time.Duration(math.MaxInt64)

// timeUntil returns how long it is until an instant, and never overflows.
func timeUntil(at effects.Time) time.Duration {
	now := plane.Now()
	if at > now && at-now < 0 {
		return noLimit
	}
	return time.Duration(at - now)
}

// pollOldest reports whether the oldest batch has ended, and removes an ended batch. The error is nil if the batch
// succeeded.
func (e *endpoint) pollOldest() (ended bool, err error) {
	f := e.posted[0]
	done := f.done
	if !done {
		done, err = f.transfer.Check()
	}
	if !done && err == nil {
		return false, nil
	}
	e.posted = e.posted[1:]
	if err == nil {
		err = f.transfer.Close()
	}
	if err != nil {
		e.failed = true
		e.failedTransfers = append(e.failedTransfers, f.transfer)
	}
	return true, err
}

// errPeerEnded says that the peer has ended, or does not want the epoch any more.
var errPeerEnded = errors.New("the peer ended while the agents connected")

// A connectParams is what an initiator's agent needs to connect to the target's agent, so completely that nothing of
// the connecting is left for which the target's agent would have to be polled.
type connectParams struct {
	metadata       []byte          // of the target's agent
	peerName       string          // name of the target's agent
	probe          libnixl.Pair    // a byte at each end
	noticeReceived func() bool     // the target has received our notice
	isFenced       func() bool     // the epoch will not be used
	targetDone     <-chan struct{} // closed when the target has ended
}

// connectAgents loads the metadata of the target's agent and connects the two agents, in three steps: read a byte; send
// a notice, which takes the path of all messages and which the target confirms; write a byte, which waits until
// everything that belongs to the notice is done. If the epoch will not be used, connectAgents returns early and
// without an error.
func (e *endpoint) connectAgents(ctx context.Context, m *connectParams) error {
	name, err := e.agent.LoadMetadata(m.metadata)
	if err != nil {
		return err
	}
	if name != m.peerName {
		return fmt.Errorf("the name of the target's agent is %q; %q is expected", name, m.peerName)
	}
	e.peer = name
	if err := e.moveProbe(ctx, m, libnixl.Read); err != nil {
		return err
	}
	if err := e.agent.SendNotice(e.peer, []byte(greeting)); err != nil {
		return err
	}
	err = e.pollUntil(ctx, m, func() (bool, error) {
		_, err := e.agent.PollNotices()
		return m.noticeReceived(), err
	})
	if err != nil {
		return err
	}
	return e.moveProbe(ctx, m, libnixl.Write)
}

// greeting is the notice by which an initiator's agent introduces itself.
const greeting = "here I am"

// moveProbe moves the byte of the meeting.
func (e *endpoint) moveProbe(ctx context.Context, m *connectParams, op libnixl.Operation) error {
	o := libnixl.TransferOptions{Operation: op, Peer: e.peer, Pairs: []libnixl.Pair{m.probe}}
	t, err := e.agent.NewTransfer(o)
	if err != nil {
		return err
	}
	e.failedTransfers = append(e.failedTransfers, t)
	if done, err := t.Post(noLimit); done || err != nil {
		return err
	}
	return e.pollUntil(ctx, m, t.Check)
}

func (e *endpoint) pollUntil(ctx context.Context, m *connectParams, check func() (bool, error)) error {
	for pause := (pollBackoff{}); ; {
		if done, err := check(); done || err != nil || m.isFenced() {
			return err
		}
		select {
		case <-time.After(pause.nextPause()):
		case <-m.targetDone:
			return errPeerEnded
		case <-ctx.Done():
			return fmt.Errorf("the target's agent was not reached in time; check whether UCX can reach it (UCX_TLS, "+
				"UCX_NET_DEVICES, firewalls): %w", context.Cause(ctx))
		}
	}
}

// A pollBackoff determines the pauses between two polls of an agent: none at first, because a small transfer takes
// microseconds and the shortest pause takes a thousand times as long; then pauses that grow from 20 µs to half a
// millisecond.
type pollBackoff struct {
	polls     int
	lastPause time.Duration
}

// fastPolls is the number of polls that follow each other without a pause, for a tenth of a millisecond or two.
const fastPolls = 200

func (p *pollBackoff) nextPause() time.Duration {
	if p.polls++; p.polls <= fastPolls {
		return 0
	}
	p.lastPause = min(max(2*p.lastPause, 20*time.Microsecond), 500*time.Microsecond)
	return p.lastPause
}
