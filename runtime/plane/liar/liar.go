package liar

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"sync"

	"github.com/kvferry/kvferry/runtime/plane/internal/link"
)

const (
	frameHead = 4 + 1     // length and kind
	pageHead  = 8 + 4 + 4 // transfer, pair, length
	unitMax   = 64 << 20
)

// A Liar relays between initiators that were given its Blob and the plane whose blob it was given, and lies once.
type Liar struct {
	lie      Lie
	target   string
	listener net.Listener
	wg       sync.WaitGroup
	secret   []byte
	done     chan struct{} // closed by Close
	once     sync.Once
	lied     chan struct{} // closed when the lie has been told

	mu    sync.Mutex
	conns []net.Conn
	saw   bool
}

// New starts one. What a byte string of secret is must never go by; it is looked for in what the initiator sends.
func New(blob []byte, lie Lie, secret []byte) (*Liar, []byte, error) {
	const before = 1 + 2 // version, length of the address
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	l := &Liar{lie: lie, target: string(blob[before:]), listener: listener, secret: secret, done: make(chan struct{}), lied: make(chan struct{})}
	l.wg.Go(l.accept)
	address := listener.Addr().String()
	ours := binary.LittleEndian.AppendUint16(append([]byte(nil), blob[:before-2]...), uint16(len(address)))
	return l, append(ours, address...), nil
}

// Lied is closed when the lie has been told.
func (l *Liar) Lied() <-chan struct{} { return l.lied }

// Saw reports whether the secret went by.
func (l *Liar) Saw() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.saw
}

// Close ends all connections and goroutines.
func (l *Liar) Close() {
	_ = l.listener.Close()
	l.mu.Lock()
	select {
	case <-l.done:
	default:
		close(l.done)
	}
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.mu.Unlock()
	l.wg.Wait()
}

func (l *Liar) accept() {
	for {
		from, err := l.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", l.target)
		if err != nil {
			_ = from.Close()
			continue
		}
		l.mu.Lock()
		l.conns = append(l.conns, from, to)
		select {
		case <-l.done:
			_, _ = from.Close(), to.Close()
		default:
		}
		l.mu.Unlock()
		l.wg.Go(func() { l.relay(from, to) })
	}
}

// A wire is one connection; its first frame says of what kind.
type wire struct {
	from, to net.Conn
	mu       sync.Mutex // held for a write to from
	stream   bool
}

func (l *Liar) relay(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	w := &wire{from: from, to: to}
	in := bufio.NewReader(from)
	first, err := frame(in)
	if err != nil {
		return
	}
	w.stream = link.Kind(first[4]) == link.KindJoin
	var back sync.WaitGroup
	back.Go(func() {
		l.pass(w, bufio.NewReader(to), false, nil)
		_ = from.Close()
	})
	l.pass(w, in, true, first)
	_ = to.Close()
	back.Wait()
}

// pass passes units on in one direction until it ends.
func (l *Liar) pass(w *wire, r io.Reader, out bool, unit []byte) {
	var held []byte // told after the next
	joins := w.stream && !out
	for {
		first := unit != nil
		if !first {
			var err error
			if w.stream && !joins {
				unit, err = page(r)
			} else {
				unit, err = frame(r)
			}
			if err != nil {
				return
			}
			first, joins = joins, false // A stream begins with a frame each way.
		}
		if out && len(l.secret) > 0 && bytes.Contains(unit, l.secret) {
			l.mu.Lock()
			l.saw = true
			l.mu.Unlock()
		}
		head, over, still := frameHead, false, false
		if w.stream && !first {
			head = 0
		}
		b := unit
		if stepOf(unit, w.stream && !first, out) == l.lie.Step {
			l.once.Do(func() {
				if l.lie.Way == Late {
					held, b = unit, nil
				} else {
					b, over, still = told(l.lie.Way, unit, head)
				}
				if l.lie.Way == Early {
					l.write(w, false, done(unit[frameHead:]))
				}
				close(l.lied)
			})
		} else if held != nil {
			b, held = append(append([]byte(nil), b...), held...), nil
		}
		if !l.write(w, out, b) || over {
			return
		}
		if still {
			<-l.done
			return
		}
		unit = nil
	}
}

func (l *Liar) write(w *wire, out bool, b []byte) bool {
	if out {
		_, err := w.to.Write(b)
		return err == nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.from.Write(b)
	return err == nil
}

// stepOf names a unit.
func stepOf(unit []byte, ofStream, out bool) Step {
	switch {
	case ofStream && out:
		return PageOut
	case ofStream:
		return PageIn
	}
	switch link.Kind(unit[4]) {
	case link.KindHello:
		return Hello
	case link.KindWelcome:
		return Welcome
	case link.KindPush:
		return Push
	case link.KindRead:
		return Read
	case link.KindCancel:
		return Cancel
	case link.KindDone:
		return Done
	case link.KindJoin:
		return Join
	case link.KindJoined:
		return Joined
	}
	return ""
}

// frame reads one frame, head included.
func frame(r io.Reader) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	return rest(r, head, int(binary.LittleEndian.Uint32(head)))
}

// page reads one page of a stream, head included.
func page(r io.Reader) ([]byte, error) {
	head := make([]byte, pageHead)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	return rest(r, head, int(binary.LittleEndian.Uint32(head[pageHead-4:])))
}

func rest(r io.Reader, head []byte, n int) ([]byte, error) {
	if n < 1 || n > unitMax {
		return nil, io.ErrUnexpectedEOF // Honest ends say nothing of the kind.
	}
	unit := append(head, make([]byte, n)...)
	_, err := io.ReadFull(r, unit[len(head):])
	return unit, err
}

// done is the word that the transfer of an ask has ended well.
func done(ask []byte) []byte {
	b := append(binary.LittleEndian.AppendUint32(nil, 1+8+1), byte(link.KindDone))
	return append(append(b, ask[:8]...), 0)
}
