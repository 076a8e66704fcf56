//go:build cgo && linux

package nixl

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/libnixl/libnixltest"
	"github.com/kvferry/kvferry/runtime/libnixl/nixlproc"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/framing"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

// The import of a target that passes the handshake and then sends nonsense about an epoch ends, and nothing of it
// remains.
func TestLyingTargets(t *testing.T) {
	for _, c := range []struct {
		name string
		say  func(p *Plane) [][]byte
		want []effects.Code
	}{
		{"metadata of nothing", func(*Plane) [][]byte {
			return [][]byte{appendAccept(nil, accept{epoch: 1, metadata: []byte("nonsense")})}
		}, []effects.Code{effects.Faulted, effects.Unreachable}},
		{"metadata of another agent", func(p *Plane) [][]byte {
			e, err := p.newEndpoint("another", p.pool.Regions(), nil)
			if err != nil {
				t.Fatal(err)
			}
			metadata, err := e.agent.Metadata()
			if err := errors.Join(err, e.close()); err != nil {
				t.Fatal(err)
			}
			return [][]byte{appendAccept(nil, accept{epoch: 1, metadata: metadata})}
		}, []effects.Code{effects.Faulted, effects.Unreachable}},
		{"another epoch", func(*Plane) [][]byte {
			return [][]byte{appendAccept(nil, accept{epoch: 7, metadata: []byte("m")})}
		}, []effects.Code{effects.Unreachable}},
		{"a refusal", func(*Plane) [][]byte {
			return [][]byte{appendAccept(nil, accept{epoch: 1, code: effects.TooMany})}
		}, []effects.Code{effects.TooMany}},
		{"an initiator's word", func(*Plane) [][]byte { return [][]byte{appendEpoch(nil, kindOffer, 1)} },
			[]effects.Code{effects.Refused}},
		{"no frame", func(*Plane) [][]byte { return [][]byte{{255, 255, 255, 255, 255}} },
			[]effects.Code{effects.Refused}},
		{"nothing", func(*Plane) [][]byte { return nil }, []effects.Code{effects.Unreachable}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := planetest.OpenLeased(t, newHastyNode, 1, 4, 4096)
			peer := effects.Incarnation{9}
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			said := c.say(n.Plane.(*Plane))
			go func() { ended <- serveLie(listener, peer, said) }()
			got := n.TryImport(t, peer, framing.AppendBlob(nil, listener.Addr().String())).Code
			if !slices.Contains(c.want, got) {
				t.Errorf("the import ended as %s; want one of %v", got, c.want)
			}
			if err := errors.Join(listener.Close(), <-ended); err != nil {
				t.Error(err)
			}
		})
	}
}

// A peer whose metadata end the process that loads them ends the process of our agents, and not this one. The links to
// other peers get new agents.
func TestDeadlyMetadata(t *testing.T) {
	newNode := func(tb testing.TB, id byte, pages uint32, pageBytes uint64, sink plane.Sink) planetest.LeasedEnd {
		return newNodeWithin(tb, 3*time.Second, id, pages, pageBytes, sink)
	}
	p := planetest.NewLeasedPair(t, newNode, 4, 4096)
	push := p.NewPush(t, 0, 4)
	p.WantEnd(t, push, effects.OK)
	a, b := p.A.Plane.(*Plane), p.B.Plane.(*Plane)
	e, err := b.newEndpoint("another", b.pool.Regions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	metadata, err := e.agent.Metadata()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	formed, children := a.Stats().FormedEpochs, libnixltest.Children(t, os.Getpid())
	ended := make(chan error, 1)
	peer := effects.Incarnation{9}
	said := [][]byte{appendAccept(nil, accept{epoch: 1, metadata: libnixltest.DeadlyMetadata(t, metadata)})}
	go func() { ended <- serveLie(listener, peer, said) }()
	got := p.A.TryImport(t, peer, framing.AppendBlob(nil, listener.Addr().String())).Code
	if got != effects.Faulted && got != effects.Unreachable {
		t.Errorf("the import ended as %s", got)
	}
	for end := time.Now().Add(10 * time.Second); a.Stats().FormedEpochs == formed; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the other link gets no new agents")
		}
	}
	if now := libnixltest.Children(t, os.Getpid()); len(now) != len(children) || slices.Equal(now, children) {
		t.Errorf("the processes were %v and are %v: this peer does no harm", children, now)
	}
	again := p.NewPush(t, 0, 4)
	p.WantEnd(t, again, effects.OK)
	p.WantArrived(t, again)
	if err := errors.Join(listener.Close(), <-ended, e.close()); err != nil {
		t.Error(err)
	}
}

// serveLie accepts one initiator, sends the given frames and reads until the initiator has closed.
func serveLie(l net.Listener, us effects.Incarnation, said [][]byte) error {
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	_, body, _, err := framing.ReadFrame(conn, nil, maxFrame)
	if err != nil {
		return err
	}
	h, err := parseHello(body)
	if err != nil {
		return err
	}
	w := welcome{from: us, base: 1 << 20, probe: 1 << 20, buffer: effects.Buffer{Pages: 4, PageBytes: 4096}}
	w.proof = w.computeProof(h, planetest.Key.Token(Name, h.from, h.to), nil)
	for _, frame := range append([][]byte{appendWelcome(nil, w)}, said...) {
		if _, err := conn.Write(frame); err != nil {
			return err
		}
	}
	for err == nil {
		_, _, _, err = framing.ReadFrame(conn, nil, maxFrame)
	}
	return nil
}

// newHastyNode makes nodes with short timeouts.
func newHastyNode(tb testing.TB, id byte, pages uint32, pageBytes uint64, sink plane.Sink) planetest.LeasedEnd {
	tb.Helper()
	return newNodeWithin(tb, 300*time.Millisecond, id, pages, pageBytes, sink)
}

// newNodeWithin makes nodes with timeouts.
func newNodeWithin(tb testing.TB, limit time.Duration, id byte, pages uint32, pageBytes uint64, sink plane.Sink) planetest.LeasedEnd {
	tb.Helper()
	libnixltest.LoadLibrary(tb)
	c := Config{Agents: nixlproc.Options{}.Open, PrepareTimeout: limit, RebuildTries: 2}
	file, m := libnixltest.AllocShared(tb, int(uint64(pages)*pageBytes))
	pool, err := plane.NewLeasedPool(plane.LeasedPoolConfig{
		Buffer: [16]byte{id}, Pages: pages, PageBytes: pageBytes, Sink: sink,
		Region: plane.Region{Host: true, Base: uintptr(unsafe.Pointer(unsafe.SliceData(m))), Bytes: uint64(len(m)), File: file},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return planetest.LeasedEnd{Pool: pool, Memory: poolBytes(m), Open: func(ctx context.Context, env plane.Env) (plane.Plane, error) {
		env.Bounds.HandshakeTimeout = limit
		return c.Open(ctx, env)
	}}
}

// A poolBytes is the memory of a pool.
type poolBytes []byte

func (m poolBytes) base() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(m))) }

// Store implements planetest.Memory.
func (m poolBytes) Store(at uintptr, b []byte) error {
	copy(m[at-m.base():], b)
	return nil
}

// Load implements planetest.Memory.
func (m poolBytes) Load(at uintptr, b []byte) error {
	copy(b, m[at-m.base():])
	return nil
}
