//go:build cgo && linux

package main

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"
)

// noTarget is the target of moves within one process.
type noTarget struct{}

func newNoTarget(Setup) (target, error) { return noTarget{}, nil }

func (noTarget) connectInfo() (json.RawMessage, error) { return json.RawMessage("{}"), nil }
func (noTarget) takeMoves(Work) error                  { return nil }

// A copier copies chunks within the process, with two goroutines that copy whole chunks.
type copier struct {
	from, into []byte
	bytes      int
}

func newCopier(s Setup, _ json.RawMessage) (initiator, error) {
	from, err1 := mapMemory()
	into, err2 := mapMemory()
	return &copier{from, into, s.Bytes}, errors.Join(err1, err2)
}

func (*copier) pickChunks(int) {}

func (c *copier) moveChunks(chunks int) error {
	from, into := drawFirst(c.bytes, chunks)*c.bytes, drawFirst(c.bytes, chunks)*c.bytes
	var both sync.WaitGroup
	for half := range 2 {
		both.Go(func() {
			for i := half; i < chunks; i += 2 {
				at := i * c.bytes
				copy(c.into[into+at:][:c.bytes], c.from[from+at:])
			}
		})
	}
	both.Wait()
	return nil
}

// A streamTarget reads moves from several connections. Each connection carries a part of every move, and the target
// answers a part with a byte on the same connection.
type streamTarget struct {
	listener net.Listener
	count    int
	bytes    int
	into     []byte
	conns    []net.Conn
}

func newStreamTarget(count int) func(Setup) (target, error) {
	return func(s Setup) (target, error) {
		l, err1 := net.Listen("tcp", "127.0.0.1:0")
		into, err2 := mapMemory()
		return &streamTarget{listener: l, count: count, bytes: s.Bytes, into: into}, errors.Join(err1, err2)
	}
}

func (t *streamTarget) connectInfo() (json.RawMessage, error) {
	return json.Marshal(t.listener.Addr().String())
}

func (t *streamTarget) takeMoves(w Work) error {
	for len(t.conns) < t.count {
		conn, err := t.listener.Accept()
		if err != nil {
			return err
		}
		t.conns = append(t.conns, conn)
	}
	return forEachConn(t.conns, func(n int, conn net.Conn) error {
		for range w.Moves {
			for i := n; i < w.Chunks; i += t.count {
				if _, err := io.ReadFull(conn, t.into[i*t.bytes%(total-t.bytes+1):][:t.bytes]); err != nil {
					return err
				}
			}
			if _, err := conn.Write([]byte{1}); err != nil {
				return err
			}
		}
		return nil
	})
}

func forEachConn(conns []net.Conn, do func(int, net.Conn) error) error {
	ended := make(chan error, len(conns))
	for n, conn := range conns {
		go func() { ended <- do(n, conn) }()
	}
	var errs []error
	for range conns {
		errs = append(errs, <-ended)
	}
	return errors.Join(errs...)
}

type streamInitiator struct {
	conns []net.Conn
	bytes int
	from  []byte
}

func newStreamInitiator(count int) func(Setup, json.RawMessage) (initiator, error) {
	return func(s Setup, connectInfo json.RawMessage) (initiator, error) {
		var address string
		if err := json.Unmarshal(connectInfo, &address); err != nil {
			return nil, err
		}
		from, err := mapMemory()
		x := &streamInitiator{bytes: s.Bytes, from: from}
		for range count {
			conn, dialed := net.Dial("tcp", address)
			err = errors.Join(err, dialed)
			x.conns = append(x.conns, conn)
		}
		return x, err
	}
}

func (*streamInitiator) pickChunks(int) {}

func (x *streamInitiator) moveChunks(chunks int) error {
	from := drawFirst(x.bytes, chunks) * x.bytes
	return forEachConn(x.conns, func(n int, conn net.Conn) error {
		for i := n; i < chunks; i += len(x.conns) {
			if _, err := conn.Write(x.from[from+i*x.bytes:][:x.bytes]); err != nil {
				return err
			}
		}
		_, err := io.ReadFull(conn, make([]byte, 1))
		return err
	})
}

// A tripTarget answers round trips of 64 bytes over TCP. No exchange between two Go processes is faster.
type tripTarget struct{ *streamTarget }

func newTripTarget(Setup) (target, error) {
	t, err := newStreamTarget(1)(Setup{Bytes: 64})
	if err != nil {
		return nil, err
	}
	return tripTarget{t.(*streamTarget)}, nil //nolint:forcetypeassert // The type follows from the call above.
}

func newTripInitiator(_ Setup, connectInfo json.RawMessage) (initiator, error) {
	i, err := newStreamInitiator(1)(Setup{Bytes: 64}, connectInfo)
	if err != nil {
		return nil, err
	}
	return tripInitiator{i.(*streamInitiator).conns[0]}, nil //nolint:forcetypeassert // The type follows from the call.
}

type tripInitiator struct{ net.Conn }

func (tripInitiator) pickChunks(int) {}

func (t tripInitiator) moveChunks(int) error {
	var b [64]byte
	if _, err := t.Write(b[:]); err != nil {
		return err
	}
	_, err := io.ReadFull(t, b[:1])
	return err
}
