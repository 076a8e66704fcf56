package liar

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"io"
	"net"
	"os"
	"strings"
	"sync"

	"github.com/kvferry/kvferry/runtime/plane/internal/link"
)

const (
	frameHeadBytes = 4 + 1     // length and kind
	pageHeadBytes  = 8 + 4 + 4 // transfer, pair, length
	maxUnitBytes   = 64 << 20
)

// A Liar relays between a target plane, given by its blob, and initiators that use the Liar's own blob. A Liar lies
// once.
type Liar struct {
	lie      Lie
	kinds    map[uint8]Step // by the kinds of frames
	network  string         // of both sides
	target   string
	listener net.Listener
	wg       sync.WaitGroup
	secret   []byte
	closed   chan struct{} // closed by Close
	once     sync.Once
	lieDone  chan struct{} // closed when the lie has been told

	mu              sync.Mutex
	conns           []net.Conn
	sawSecret       bool
	filesToTruncate []*os.File // memory to be truncated before the next frame is passed on
}

// New starts a Liar in front of the plane of a blob: the shm plane if the blob's address is a socket of this host, and
// the tcp plane otherwise. The results are the Liar and its blob. The Liar looks for secret in everything that the
// initiator sends; see [Liar.SawSecret].
func New(blob []byte, lie Lie, secret []byte) (*Liar, []byte, error) {
	return NewWithKinds(blob, lie, secret, stepsByKind)
}

// stepsByKind are the steps of the frames of the tcp and the shm plane.
var stepsByKind = map[uint8]Step{
	uint8(link.KindHello): Hello, uint8(link.KindWelcome): Welcome, uint8(link.KindPush): Push,
	uint8(link.KindRead): Read, uint8(link.KindCancel): Cancel, uint8(link.KindDone): Done,
	uint8(link.KindJoin): Join, uint8(link.KindJoined): Joined,
}

// NewWithKinds is like New, for a plane with different kinds of frames.
func NewWithKinds(blob []byte, lie Lie, secret []byte, kinds map[uint8]Step) (*Liar, []byte, error) {
	const before = 1 + 2 // version, length of the address
	if len(blob) < before {
		return nil, nil, io.ErrUnexpectedEOF
	}
	address, token := blob[before:], []byte(nil)
	if n := int(binary.LittleEndian.Uint16(blob[1:])); n <= len(address) {
		address, token = address[:n], address[n:]
	}
	l := &Liar{lie: lie, kinds: kinds, network: "tcp", target: string(address), secret: secret, closed: make(chan struct{}),
		lieDone: make(chan struct{})}
	at, prefix := "127.0.0.1:0", ""
	if boot, socket, ofHost := strings.Cut(l.target, " "); ofHost {
		l.network, l.target, at, prefix = "unix", socket, socket+rand.Text(), boot+" "
	}
	var err error
	if l.listener, err = net.Listen(l.network, at); err != nil {
		return nil, nil, err
	}
	l.wg.Go(l.acceptConns)
	ours := prefix + l.listener.Addr().String()
	b := binary.LittleEndian.AppendUint16(append([]byte(nil), blob[:before-2]...), uint16(len(ours)))
	return l, append(append(b, ours...), token...), nil
}

// LieDone returns a channel that is closed when the lie has been told.
func (l *Liar) LieDone() <-chan struct{} { return l.lieDone }

// SawSecret reports whether the initiator has sent the secret.
func (l *Liar) SawSecret() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sawSecret
}

// Close ends all connections and goroutines.
func (l *Liar) Close() {
	_ = l.listener.Close()
	l.mu.Lock()
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.mu.Unlock()
	l.wg.Wait()
	l.truncateFiles(nil)
}

func (l *Liar) acceptConns() {
	for {
		from, err := l.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial(l.network, l.target)
		if err != nil {
			_ = from.Close()
			continue
		}
		l.mu.Lock()
		l.conns = append(l.conns, from, to)
		select {
		case <-l.closed:
			_, _ = from.Close(), to.Close()
		default:
		}
		l.mu.Unlock()
		l.wg.Go(func() { l.relayConn(from, to) })
	}
}

// A relayedConn is a relayed connection. The first frame tells whether the connection is a stream.
type relayedConn struct {
	from, to *endpoint
	mu       sync.Mutex // held during a write to from
	stream   bool
}

func (l *Liar) relayConn(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	w := &relayedConn{from: &endpoint{Conn: from}, to: &endpoint{Conn: to}}
	defer w.from.closeFiles()
	defer w.to.closeFiles()
	in := bufio.NewReader(w.from)
	first, err := readFrame(in)
	if err != nil {
		return
	}
	w.stream = l.kinds[first[4]] == Join
	var back sync.WaitGroup
	back.Go(func() {
		l.relayDirection(w, bufio.NewReader(w.to), false, nil)
		_ = from.Close()
	})
	l.relayDirection(w, in, true, first)
	_ = to.Close()
	back.Wait()
}

// relayDirection relays frames or pages in one direction until the connection ends.
func (l *Liar) relayDirection(w *relayedConn, r io.Reader, out bool, unit []byte) {
	var heldUnit []byte // passed on after the next unit
	for {
		first := unit != nil
		if !first {
			var err error
			if w.stream {
				unit, err = readPage(r)
			} else {
				unit, err = readFrame(r)
			}
			if err != nil {
				return
			}
		}
		l.truncateFiles(nil)
		if out && len(l.secret) > 0 && bytes.Contains(unit, l.secret) {
			l.mu.Lock()
			l.sawSecret = true
			l.mu.Unlock()
		}
		head, endsConn, freezes, lied := frameHeadBytes, false, false, false
		if w.stream && !first {
			head = 0
		}
		b, files := unit, w.takeFiles(out)
		if l.stepOf(unit, w.stream && !first, out) == l.lie.Step {
			l.once.Do(func() {
				if l.lie.Way == Late {
					heldUnit, b = unit, nil
				} else {
					b, endsConn, freezes = deviateUnit(l.lie.Way, unit, head)
				}
				if l.lie.Way == Early {
					l.writeUnit(w, false, doneFrame(unit[frameHeadBytes:]), nil)
				}
				files = replaceFiles(l.lie.Way, files)
				lied = true
				close(l.lieDone)
			})
		} else if heldUnit != nil {
			b, heldUnit = append(append([]byte(nil), b...), heldUnit...), nil
		}
		sent := l.writeUnit(w, out, b, files)
		if lied && l.lie.Way == Unsealed {
			l.truncateFiles(files)
			files = nil
		}
		for _, file := range files {
			_ = file.Close()
		}
		if !sent || endsConn {
			return
		}
		if freezes {
			<-l.closed
			return
		}
		unit = nil
	}
}

// truncateFiles truncates the files that are due, and makes next due for the following call.
func (l *Liar) truncateFiles(next []*os.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, file := range l.filesToTruncate {
		_ = file.Truncate(0)
		_ = file.Close()
	}
	l.filesToTruncate = next
}

// takeFiles returns the files that came with the last read in a direction.
func (w *relayedConn) takeFiles(out bool) []*os.File {
	if out {
		return w.from.takeFiles()
	}
	return w.to.takeFiles()
}

func (l *Liar) writeUnit(w *relayedConn, out bool, b []byte, files []*os.File) bool {
	if out {
		return w.to.sendBytes(b, files)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.from.sendBytes(b, files)
}

// stepOf returns the step of a frame or page.
func (l *Liar) stepOf(unit []byte, ofStream, out bool) Step {
	switch {
	case ofStream && out:
		return PageOut
	case ofStream:
		return PageIn
	}
	return l.kinds[unit[4]]
}

// readFrame reads a frame, header included.
func readFrame(r io.Reader) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	return readRest(r, head, int(binary.LittleEndian.Uint32(head)))
}

// readPage reads a page of a stream, header included.
func readPage(r io.Reader) ([]byte, error) {
	head := make([]byte, pageHeadBytes)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	return readRest(r, head, int(binary.LittleEndian.Uint32(head[pageHeadBytes-4:])))
}

func readRest(r io.Reader, head []byte, n int) ([]byte, error) {
	if n < 1 || n > maxUnitBytes {
		return nil, io.ErrUnexpectedEOF // Honest ends send nothing of this length.
	}
	unit := append(head, make([]byte, n)...)
	_, err := io.ReadFull(r, unit[len(head):])
	return unit, err
}

// doneFrame returns the frame that reports the success of a requested transfer.
func doneFrame(ask []byte) []byte {
	b := append(binary.LittleEndian.AppendUint32(nil, 1+8+1), byte(link.KindDone))
	return append(append(b, ask[:8]...), 0)
}
