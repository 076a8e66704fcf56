//go:build cgo && linux

package hostile_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime/control/zmq/zmtp"
)

// An attack goes on beside the honest puts: it is done so often at least, at a steady rate, and then until they have
// ended.
type attack struct {
	t      testing.TB
	v      *victim
	h      *honest
	from   net.Dialer
	amount int64
	turn   <-chan time.Time // nil: there is always a next strike
	done   atomic.Int64
	over   chan struct{}
	ended  chan error
	// What a fault itself finds, once it has ended.
	wrong int           // bytes
	again time.Duration // until its victim worked again
}

func begin(f *fault, v *victim, h *honest, amount int) *attack {
	x := &attack{t: h.t, v: v, h: h, amount: int64(amount), over: make(chan struct{}), ended: make(chan error, 1)}
	if !f.near {
		x.from.LocalAddr = &net.TCPAddr{IP: net.ParseIP(elsewhere)}
	}
	var turns *time.Ticker
	if rate := f.rate * *striking; rate > 0 && *inFull { // A short run is to be over.
		turns = time.NewTicker(time.Duration(float64(time.Second) / rate))
		x.turn = turns.C
	}
	go func() {
		err := f.strike(x)
		if turns != nil {
			turns.Stop()
		}
		x.done.Store(max(x.done.Load(), x.amount)) // After an error nobody waits for it.
		x.ended <- err
	}()
	return x
}

func (x *attack) enough() bool { return x.done.Load() >= x.amount }

func (x *attack) end() error {
	close(x.over)
	return <-x.ended
}

// more says whether to strike once more, when it is time to.
func (x *attack) more() bool {
	if x.turn != nil {
		select {
		case <-x.turn:
		case <-x.over:
		}
	}
	select {
	case <-x.over:
		return !x.enough()
	default:
		return true
	}
}

func (x *attack) dial(word []byte) (net.Conn, error) {
	c, err := x.from.Dial("tcp4", x.v.initAddr())
	if err == nil {
		_, _ = c.Write(word) // It may be closed already.
	}
	return c, err
}

func hello() []byte { return zmtp.AppendReady(zmtp.AppendGreeting(nil), "REQ") }

// endless sends MiB after MiB of one message, and begins anew when it is cut off.
func endless(x *attack) error {
	frame := zmtp.AppendFrame(nil, make([]byte, 64<<10), true)
	for x.more() {
		c, err := x.dial(hello())
		if err != nil {
			return err
		}
		drained := make(chan struct{})
		go func() { _, _ = io.Copy(io.Discard, c); close(drained) }()
		for err == nil && x.more() {
			for sent := 0; err == nil && sent < 1<<20; sent += len(frame) {
				_, err = c.Write(frame)
			}
			x.done.Add(1)
		}
		_ = c.Close()
		<-drained
	}
	return nil
}

// crowd keeps as many connections as it may, and opens new ones.
func crowd(x *attack, word []byte) error {
	var all []net.Conn
	defer func() {
		for _, c := range all {
			_ = c.Close()
		}
	}()
	for x.more() {
		c, err := x.dial(word)
		if err != nil {
			return err
		}
		x.done.Add(1)
		if all = append(all, c); len(all) > 500 { // Our own files are bounded, too.
			_ = all[0].Close()
			all = all[1:]
		}
	}
	return nil
}

func silent(x *attack) error { return crowd(x, nil) }

func half(x *attack) error { return crowd(x, hello()[:40]) }

func idle(x *attack) error { return crowd(x, hello()) }

func comeAndGo(x *attack) error {
	for x.more() {
		c, err := x.dial(hello())
		if err != nil {
			return err
		}
		_, _ = io.ReadFull(c, make([]byte, zmtp.GreetingBytes))
		_ = c.Close()
		x.done.Add(1)
	}
	return nil
}

// noFile has the victim's process use up its files. Who comes then is told no, and does not wait for nothing.
func noFile(x *attack) error {
	if a := x.v.says(takeFiles); a.Problems == "" {
		return errors.New("the victim could open files without end")
	}
	defer x.v.says(giveFiles)
	for x.more() {
		c, err := x.dial(nil)
		if err != nil {
			return err
		}
		n, err := c.Read(make([]byte, 1)) // Not a moment is waited for: whoever is left alone hangs the test.
		_ = c.Close()
		if n != 0 || !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			return fmt.Errorf("who came when no file was left read %d bytes, %w", n, err)
		}
		x.done.Add(1)
	}
	return nil
}
