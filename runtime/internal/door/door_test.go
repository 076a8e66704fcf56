package door

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvferry/kvferry/runtime/internal/logtest"
)

// A testDoor is a door whose connections a test admits and inspects.
type testDoor struct {
	*Door
	t      *testing.T
	l      *listener
	guests chan *Conn
	log    logtest.Lines
}

func open(t *testing.T, c Config) *testDoor {
	h := &testDoor{t: t, l: newListener(), guests: make(chan *Conn, 100)}
	c.Log = h.log.Logger()
	h.Door = New(c)
	h.Serve(h.l, "test", func(g *Conn) error {
		h.guests <- g
		<-g.Conn.(*conn).closed
		return nil
	})
	return h
}

// enter admits a connection, or returns nil if it is turned away.
func (h *testDoor) enter(ip string) *Conn {
	c := connFrom(ip)
	h.l.comes <- func() (net.Conn, error) { return c, nil }
	select {
	case g := <-h.guests:
		return g
	case <-c.closed:
		return nil
	}
}

func (h *testDoor) end() {
	if err := h.Close(h.t.Context()); err != nil {
		h.t.Error(err)
	}
	if n := h.Stats().Open; n != 0 {
		h.t.Errorf("%d guests are left", n)
	}
}

func isClosed(g *Conn) bool { return g.Conn.(*conn).isClosed() }

// The normal end of a connection is not logged, a fault is.
func TestOrdinaryEndsAreNotLogged(t *testing.T) {
	for err, lines := range map[error]int{
		nil: 0, io.EOF: 0, fmt.Errorf("welcome: %w", syscall.EPIPE): 0, fmt.Errorf("hello: %w", syscall.ECONNRESET): 0,
		io.ErrUnexpectedEOF: 0, net.ErrClosed: 0, errors.New("frame of kind 7 instead of a hello"): 1, os.ErrDeadlineExceeded: 1,
	} {
		synctest.Test(t, func(t *testing.T) {
			h := &testDoor{t: t, l: newListener()}
			h.Door = New(Config{MaxTotal: 1, MaxPerAddress: 1, MaxStrangers: 1, HandshakeTimeout: time.Hour, Log: h.log.Logger()})
			h.Serve(h.l, "test", func(*Conn) error { return err })
			c := connFrom("10.0.0.1")
			h.l.comes <- func() (net.Conn, error) { return c, nil }
			<-c.closed
			h.end()
			if n := h.log.CountText("a connection failed"); n != lines {
				t.Errorf("%v: %d lines instead of %d", err, n, lines)
			}
		})
	}
}

// While accepting fails the door waits, longer and longer up to a limit, and logs it once.
func TestPausesWhileNothingCanBeAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, Config{MaxTotal: 1, MaxPerAddress: 1, MaxStrangers: 1, HandshakeTimeout: time.Hour})
		fail := func() (net.Conn, error) { return nil, syscall.EMFILE }
		last := time.Now()
		for i, want := range []time.Duration{0, 5, 10, 20, 40, 80, 160, 320, 500, 500} {
			h.l.comes <- fail
			if got := time.Since(last); got != want*time.Millisecond {
				t.Errorf("attempt %d came after %v instead of %d ms", i, got, want)
			}
			last = time.Now()
		}
		if h.enter("10.0.0.1") == nil { // Accepting works again, and pauses are short again.
			t.Error("turned away")
		}
		h.l.comes <- fail
		last = time.Now()
		h.l.comes <- fail
		if got := time.Since(last); got != minPause {
			t.Errorf("after it worked, the first pause is %v", got)
		}
		if n := h.Stats().FailedAccepts; n != 12 {
			t.Errorf("%d attempts failed, of 12", n)
		}
		if n := h.log.CountText("no connection can be accepted"); n != 1 {
			t.Errorf("%d lines", n)
		}
		h.end() // In the middle of a pause, which it ends.
	})
}

func TestStrangersExpireAndKnownConnectionsDoNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, Config{MaxTotal: 8, MaxPerAddress: 8, MaxStrangers: 4, HandshakeTimeout: time.Minute})
		stranger, known := h.enter("10.0.0.1"), h.enter("10.0.0.1")
		known.MarkKnown()
		time.Sleep(time.Hour) // of the bubble's clock
		synctest.Wait()
		if !isClosed(stranger) || isClosed(known) {
			t.Errorf("the stranger is gone: %t, the known one: %t", isClosed(stranger), isClosed(known))
		}
		if s := h.Stats(); s.Expired != 1 || s.Open != 1 {
			t.Errorf("%+v", s)
		}
		h.end()
	})
}

// A flood of handshakes closes no connection that ever had work, and one that is at work is never closed.
func TestConnectionsWithWorkStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, Config{MaxTotal: 100, MaxPerAddress: 6, MaxStrangers: 3, HandshakeTimeout: time.Minute})
		spoke, working := h.enter("10.0.0.1"), h.enter("10.0.0.1")
		for _, g := range []*Conn{spoke, working} {
			g.MarkKnown()
			g.AddWork(1)
		}
		spoke.AddWork(-1)
		for range 50 {
			g := h.enter("10.0.0.1")
			if g == nil {
				t.Fatal("turned away, although others are idle")
			}
			g.MarkKnown()
		}
		if isClosed(spoke) || isClosed(working) {
			t.Errorf("gone: %t, %t", isClosed(spoke), isClosed(working))
		}
		// Among the connections that had work, the idle connection is evicted.
		for range 5 {
			g := h.enter("10.0.0.1")
			g.MarkKnown()
			g.AddWork(1)
		}
		if h.enter("10.0.0.1") != nil {
			t.Error("all are at work, and one more was let in")
		}
		if !isClosed(spoke) || isClosed(working) {
			t.Errorf("gone: %t, %t", isClosed(spoke), isClosed(working))
		}
		if s := h.Stats(); s.Refused == 0 || s.Open != 6 {
			t.Errorf("%+v", s)
		}
		h.end()
	})
}

// At the total limit only connections of the address with the most connections are evicted.
func TestOneAddressTakesNothingFromOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, Config{MaxTotal: 12, MaxPerAddress: 10, MaxStrangers: 10, HandshakeTimeout: time.Hour})
		honest := []*Conn{h.enter("10.0.0.1"), h.enter("10.0.0.2"), h.enter("2001:db8::1")}
		for i := range 60 {
			g := h.enter(fmt.Sprintf("2001:db8:1::%x", i+1)) // one host
			if i%2 == 0 {
				g.MarkKnown()
			}
		}
		for _, g := range honest {
			if isClosed(g) {
				t.Errorf("%v had to go", g.Address)
			}
		}
		if s := h.Stats(); s.Open > 12 || s.Admitted != 63 {
			t.Errorf("%+v", s)
		}
		if n := h.log.CountText("\n"); n > 3 {
			t.Errorf("%d lines", n)
		}
		h.end()
	})
}

// Many addresses with one connection each do not displace an address with several connections that had work.
func TestManyAddressesDoNotDisplaceOneWithWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, Config{MaxTotal: 12, MaxPerAddress: 10, MaxStrangers: 10, HandshakeTimeout: time.Hour})
		var honest []*Conn
		for range 3 {
			g := h.enter("10.0.0.1")
			g.MarkKnown()
			g.AddWork(1)
			g.AddWork(-1)
			honest = append(honest, g)
		}
		var last *Conn
		for i := range 60 {
			g := h.enter(fmt.Sprintf("2001:db8:1:%x::1", i+1)) // as many addresses as it likes
			if g == nil || last != nil && isClosed(last) {
				t.Fatal("who came last has to go, and not who waits longest")
			}
			if last = g; i%2 == 0 {
				g.MarkKnown()
			}
		}
		for i, g := range honest {
			if isClosed(g) {
				t.Errorf("connection %d of one who spoke had to go", i)
			}
		}
		h.end()
	})
}

func TestByteBudget(t *testing.T) {
	p := NewByteBudget(100)
	a, b, c := netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("10.0.0.2/32"),
		netip.MustParsePrefix("10.0.0.3/32")
	if !p.Reserve(a, 50) || p.Reserve(a, 1) {
		t.Error("one address has half, and no more")
	}
	if !p.Reserve(b, 40) || p.Reserve(c, 11) || !p.Reserve(c, 10) {
		t.Error("all have the whole, and no more")
	}
	p.Release(a, 50)
	if !p.Reserve(c, 40) || p.Reserve(c, 1) {
		t.Error("what was given back can be had")
	}
	p.Release(b, 40)
	p.Release(c, 50)
	if p.reserved != 0 || len(p.byAddress) != 0 {
		t.Errorf("all was given back, and %d are spent by %d", p.reserved, len(p.byAddress))
	}
}
