//go:build cgo && linux

package nixlproc

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/runtime/libnixl"
)

// An isolatedAgent is an agent in a child. Like every agent it belongs to one goroutine at a time.
type isolatedAgent struct {
	child  *child
	name   string
	socket *net.UnixConn
	busy   atomic.Bool
	closed bool
	buf    []byte // of the last answer
}

// NewAgent implements Host.
func (p *isolatedHost) NewAgent(o libnixl.AgentOptions, held net.Conn) (Agent, error) {
	if o.Name == "" || len(o.Name) > nameMax || strings.IndexByte(o.Name, 0) >= 0 {
		return nil, fmt.Errorf("%w: name of an agent %q; give 1 to %d bytes without NUL", libnixl.ErrInvalid, o.Name, nameMax)
	}
	c, err := p.currentChild()
	if err != nil {
		return nil, err
	}
	ours, theirs, err := socketPair(unix.SOCK_STREAM)
	if err != nil {
		return nil, err
	}
	a := &isolatedAgent{child: c, name: o.Name, socket: ours}
	files := []int{theirs}
	send := func() error { return sendControl(c.control, &controlMessage{Name: o.Name, Params: o.Params}, files...) }
	switch held := held.(type) {
	case nil:
		err = send()
	case *net.TCPConn:
		raw, rawErr := held.SyscallConn()
		if err = rawErr; err != nil {
			break
		}
		var sendErr error
		err = raw.Control(func(file uintptr) {
			files = append(files, int(file))
			sendErr = send()
		})
		if err == nil {
			err = sendErr
		}
	default:
		err = fmt.Errorf("%w: a %T cannot be held", libnixl.ErrInvalid, held)
	}
	_ = unix.Close(theirs)
	if err != nil {
		select {
		case <-c.exited:
			err = fmt.Errorf("%w: %w", ErrEnded, err)
		default:
		}
		_ = ours.Close() // The child ends if the agent was made nevertheless.
		return nil, err
	}
	if err = ours.SetDeadline(time.Now().Add(c.host.options.CallTimeout)); err == nil {
		_, err = a.readAnswer()
	}
	if err != nil {
		_ = ours.Close()
		return nil, err
	}
	return a, nil
}

// A patientReader reads once more after the deadline. If this process was frozen and not the child, the answer is there.
type patientReader struct {
	socket *net.UnixConn
	grace  time.Duration
}

func (r *patientReader) Read(b []byte) (int, error) {
	n, err := r.socket.Read(b)
	if n > 0 || r.grace == 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	if err := r.socket.SetReadDeadline(time.Now().Add(r.grace)); err != nil {
		return 0, err
	}
	r.grace = 0
	return r.socket.Read(b)
}

// readAnswer reads the answer to a call, which the next call overwrites. If there is none, the child has exited.
func (a *isolatedAgent) readAnswer() ([]byte, error) {
	first, body, grown, err := readFrame(&patientReader{a.socket, a.child.host.options.CallTimeout / 8}, a.buf)
	if a.buf = grown; cap(grown) > keptBuffer {
		a.buf = nil
	}
	if err != nil {
		return nil, a.endChild(err)
	}
	return body, a.outcomeError(first, body)
}

// outcomeError returns the error that an answer reports.
func (a *isolatedAgent) outcomeError(first uint8, body []byte) error {
	text := strings.ToValidUTF8(string(body[:min(len(body), errorMax)]), "?")
	switch first {
	case outcomeOK:
		return nil
	case outcomeFailed:
		return fmt.Errorf("agent %s: %s", a.name, text)
	case outcomeInvalid:
		return fmt.Errorf("%w: agent %s: %s", libnixl.ErrInvalid, a.name, text)
	case outcomeLate:
		return ErrLate
	}
	return a.endChild(fmt.Errorf("%w: outcome %d", errMalformed, first))
}

// endChild ends a child that does not answer as it should, and waits for its exit: until then its threads may store.
func (a *isolatedAgent) endChild(cause error) error {
	if errors.Is(cause, os.ErrDeadlineExceeded) {
		cause = fmt.Errorf("there is no answer within %v: %w", a.child.host.options.CallTimeout, cause)
	}
	a.child.kill(fmt.Errorf("a call of agent %s: %w", a.name, cause))
	<-a.child.exited
	return fmt.Errorf("%w: agent %s: %w", ErrEnded, a.name, cause)
}

// makeCall makes a call. Its result is overwritten by the next one.
func (a *isolatedAgent) makeCall(request []byte) ([]byte, error) {
	if !a.busy.CompareAndSwap(false, true) {
		return nil, fmt.Errorf("%w: %s", libnixl.ErrShared, a.name)
	}
	defer a.busy.Store(false)
	if a.closed {
		return nil, fmt.Errorf("%w: agent %s", libnixl.ErrClosed, a.name)
	}
	if len(request)-4 > frameMax {
		return nil, fmt.Errorf("%w: a call of %d bytes; at most %d are possible: use smaller batches", libnixl.ErrInvalid,
			len(request)-4, frameMax)
	}
	err := a.socket.SetDeadline(time.Now().Add(a.child.host.options.CallTimeout))
	if err == nil {
		err = writeFrame(a.socket, request)
	}
	if err != nil {
		return nil, a.endChild(err)
	}
	return a.readAnswer()
}

// decodeAnswer reads an answer. A malformed one ends the child.
func (a *isolatedAgent) decodeAnswer(answer []byte, read func(*decoder)) error {
	d := decoder{rest: answer}
	read(&d)
	if err := d.checkEnd(); err != nil {
		return a.endChild(err)
	}
	return nil
}

// callForNumber makes a call that returns a number.
func (a *isolatedAgent) callForNumber(request []byte) (n uint64, err error) {
	answer, err := a.makeCall(request)
	if err != nil {
		return 0, err
	}
	err = a.decodeAnswer(answer, func(d *decoder) { n = d.readNumber() })
	return n, err
}

// Ended implements Agent.
func (a *isolatedAgent) Ended() <-chan struct{} { return a.child.exited }

// RegisterMemory implements Agent.
func (a *isolatedAgent) RegisterMemory(ranges ...libnixl.Range) (Memory, error) {
	there := slices.Clone(ranges)
	for i, r := range ranges {
		at, ok := a.child.host.translate(r.Address, r.Bytes)
		if !ok || r.Bytes == 0 {
			return nil, fmt.Errorf("%w: the range of %d bytes at %#x is not in the memory that the host was opened with",
				libnixl.ErrInvalid, r.Bytes, r.Address)
		}
		there[i].Address = at
	}
	if len(there) == 0 || len(there) > rangesMax {
		return nil, fmt.Errorf("%w: %d ranges; give 1 to %d", libnixl.ErrInvalid, len(there), rangesMax)
	}
	number, err := a.callForNumber(appendRanges(beginFrame(uint8(opRegister)), there))
	if err != nil {
		return nil, err
	}
	return &isolatedMemory{a, number}, nil
}

type isolatedMemory struct {
	agent  *isolatedAgent
	number uint64
}

// Close implements Memory. Memory of a process that has exited is not registered any more.
func (m *isolatedMemory) Close() error {
	return m.agent.makeEndCall(appendNumber(beginFrame(uint8(opDeregister)), m.number))
}

// makeEndCall makes a call that ends something in the child. The end of the child is the end of everything in it.
func (a *isolatedAgent) makeEndCall(request []byte) error {
	select {
	case <-a.child.exited:
		return nil
	default:
	}
	if _, err := a.makeCall(request); err != nil {
		select {
		case <-a.child.exited:
			return nil
		default:
			return err
		}
	}
	return nil
}

// Metadata implements Agent.
func (a *isolatedAgent) Metadata() ([]byte, error) {
	answer, err := a.makeCall(beginFrame(uint8(opMetadata)))
	if err != nil {
		return nil, err
	}
	if len(answer) == 0 || len(answer) > libnixl.MetadataMax {
		return nil, a.endChild(fmt.Errorf("%w: metadata of %d bytes", errMalformed, len(answer)))
	}
	return slices.Clone(answer), nil
}

// LoadMetadata implements Agent.
func (a *isolatedAgent) LoadMetadata(metadata []byte) (peer string, err error) {
	if len(metadata) == 0 || len(metadata) > libnixl.MetadataMax {
		return "", fmt.Errorf("%w: metadata of %d bytes; give 1 to %d", libnixl.ErrInvalid, len(metadata), libnixl.MetadataMax)
	}
	answer, err := a.makeCall(append(beginFrame(uint8(opLoad)), metadata...))
	if err != nil {
		return "", err
	}
	return string(answer[:min(len(answer), nameMax+1)]), nil
}

// ConnectPeer implements Agent.
func (a *isolatedAgent) ConnectPeer(peer string) error {
	_, err := a.makeCall(append(beginFrame(uint8(opConnect)), peer...))
	return err
}

// SendNotice implements Agent.
func (a *isolatedAgent) SendNotice(peer string, notice []byte) error {
	_, err := a.makeCall(appendBytes(appendBytes(beginFrame(uint8(opNotify)), peer), notice))
	return err
}

// PollNotices implements Agent.
func (a *isolatedAgent) PollNotices() (list []libnixl.Notice, err error) {
	answer, err := a.makeCall(beginFrame(uint8(opNotices)))
	if err != nil {
		return nil, err
	}
	err = a.decodeAnswer(answer, func(d *decoder) { list = d.readNotices() })
	return list, err
}

// Close implements Agent. If the library does not destroy the agent, the process is killed, so that a nil error always
// follows; it comes when the agent is destroyed or the process has exited.
func (a *isolatedAgent) Close() error {
	if a.closed {
		return fmt.Errorf("%w: agent %s", libnixl.ErrClosed, a.name)
	}
	if err := a.makeEndCall(beginFrame(uint8(opClose))); err != nil {
		_ = a.endChild(fmt.Errorf("the agent is not destroyed: %w", err))
	}
	a.closed = true
	_ = a.socket.Close()
	return nil
}

// An isolatedTransfer is made by Post in the child, so that a transfer takes one call.
type isolatedTransfer struct {
	agent   *isolatedAgent
	options libnixl.TransferOptions
	number  uint64 // 0: the child has nothing of it
	done    bool
	closed  bool
}

// NewTransfer implements Agent.
func (a *isolatedAgent) NewTransfer(o libnixl.TransferOptions) (Transfer, error) {
	if len(o.Pairs) == 0 || len(o.Pairs) > pairsMax {
		return nil, fmt.Errorf("%w: the transfer has %d pairs; give 1 to %d", libnixl.ErrInvalid, len(o.Pairs), pairsMax)
	}
	t := &isolatedTransfer{agent: a, options: o}
	t.options.Pairs = slices.Clone(o.Pairs)
	for i := range t.options.Pairs {
		pair := &t.options.Pairs[i]
		at, ok := a.child.host.translate(pair.Local, pair.Bytes)
		if !ok {
			return nil, fmt.Errorf("%w: %d bytes at %#x are not in the memory that the host was opened with", libnixl.ErrInvalid,
				pair.Bytes, pair.Local)
		}
		pair.Local = at
	}
	return t, nil
}

// Post implements Transfer.
func (t *isolatedTransfer) Post(within time.Duration) (done bool, err error) {
	if t.closed || t.options.Pairs == nil {
		return false, fmt.Errorf("%w: transfer", libnixl.ErrClosed)
	}
	if within < 0 {
		return false, ErrLate
	}
	p := postRequest{TransferOptions: t.options, sent: bootClock(), within: int64(within)}
	t.options.Pairs = nil
	t.number, err = t.agent.callForNumber(p.appendTo(beginFrame(uint8(opPost))))
	if err != nil {
		return false, err
	}
	t.done = t.number == 0
	return t.done, nil
}

// Check implements Transfer.
func (t *isolatedTransfer) Check() (done bool, err error) {
	switch {
	case t.closed:
		return false, fmt.Errorf("%w: transfer", libnixl.ErrClosed)
	case t.done:
		return true, nil
	}
	n, err := t.agent.callForNumber(appendNumber(beginFrame(uint8(opCheck)), t.number))
	if err != nil {
		return false, err
	}
	if n > 1 {
		return false, t.agent.endChild(fmt.Errorf("%w: a transfer is in state %d", errMalformed, n))
	}
	if t.done = n == 1; t.done {
		t.number = 0
	}
	return t.done, nil
}

// Close implements Transfer.
func (t *isolatedTransfer) Close() error {
	if t.closed {
		return fmt.Errorf("%w: transfer", libnixl.ErrClosed)
	}
	if t.number != 0 {
		if err := t.agent.makeEndCall(appendNumber(beginFrame(uint8(opRelease)), t.number)); err != nil {
			return err
		}
	}
	t.closed = true
	return nil
}

var (
	_ Host  = (*isolatedHost)(nil)
	_ Agent = (*isolatedAgent)(nil)
)
