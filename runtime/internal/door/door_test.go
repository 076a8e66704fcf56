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

// A hall is a door with guests that a test lets in and looks at.
type hall struct {
	*Door
	t      *testing.T
	l      *listener
	guests chan *Guest
	log    logtest.Lines
}

func open(t *testing.T, c Config) *hall {
	h := &hall{t: t, l: newListener(), guests: make(chan *Guest, 100)}
	c.Log = h.log.Logger()
	h.Door = New(c)
	h.Serve(h.l, "test", func(g *Guest) error {
		h.guests <- g
		<-g.Conn.(*conn).closed
		return nil
	})
	return h
}

// enter lets one in; nil if it is turned away.
func (h *hall) enter(ip string) *Guest {
	c := connFrom(ip)
	h.l.comes <- func() (net.Conn, error) { return c, nil }
	select {
	case g := <-h.guests:
		return g
	case <-c.closed:
		return nil
	}
}

func (h *hall) end() {
	if err := h.Close(h.t.Context()); err != nil {
		h.t.Error(err)
	}
	if n := h.Stats().Guests; n != 0 {
		h.t.Errorf("%d guests are left", n)
	}
}

func gone(g *Guest) bool { return g.Conn.(*conn).gone() }

// A connection that its peer ends is told at no point, one that ends for a fault is.
func TestWhoHangsUpIsNotTold(t *testing.T) {
	for err, lines := range map[error]int{
		nil: 0, io.EOF: 0, fmt.Errorf("welcome: %w", syscall.EPIPE): 0, fmt.Errorf("hello: %w", syscall.ECONNRESET): 0,
		io.ErrUnexpectedEOF: 0, net.ErrClosed: 0, errors.New("kind 7 where a hello belongs"): 1, os.ErrDeadlineExceeded: 1,
	} {
		synctest.Test(t, func(t *testing.T) {
			h := &hall{t: t, l: newListener()}
			h.Door = New(Config{Total: 1, PerAddress: 1, Strangers: 1, Patience: time.Hour, Log: h.log.Logger()})
			h.Serve(h.l, "test", func(*Guest) error { return err })
			c := connFrom("10.0.0.1")
			h.l.comes <- func() (net.Conn, error) { return c, nil }
			<-c.closed
			h.end()
			if n := h.log.Count("a connection is ended"); n != lines {
				t.Errorf("%v: %d lines instead of %d", err, n, lines)
			}
		})
	}
}

// While nothing can be accepted the door waits, longer and longer to a bound, and says so once.
func TestPausesWhileNothingCanBeAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, Config{Total: 1, PerAddress: 1, Strangers: 1, Patience: time.Hour})
		fail := func() (net.Conn, error) { return nil, syscall.EMFILE }
		last := time.Now()
		for i, want := range []time.Duration{0, 5, 10, 20, 40, 80, 160, 320, 500, 500} {
			h.l.comes <- fail
			if got := time.Since(last); got != want*time.Millisecond {
				t.Errorf("attempt %d came after %v instead of %d ms", i, got, want)
			}
			last = time.Now()
		}
		if h.enter("10.0.0.1") == nil { // It works again, and pauses are short again.
			t.Error("turned away")
		}
		h.l.comes <- fail
		last = time.Now()
		h.l.comes <- fail
		if got := time.Since(last); got != pauseMin {
			t.Errorf("after it worked, the first pause is %v", got)
		}
		if n := h.Stats().NoFiles; n != 12 {
			t.Errorf("%d attempts failed, of 12", n)
		}
		if n := h.log.Count("no connection can be accepted"); n != 1 {
			t.Errorf("%d lines", n)
		}
		h.end() // In the middle of a pause, which it ends.
	})
}

func TestStrangersExpireAndTheKnownDoNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, Config{Total: 8, PerAddress: 8, Strangers: 4, Patience: time.Minute})
		stranger, known := h.enter("10.0.0.1"), h.enter("10.0.0.1")
		known.Known()
		time.Sleep(time.Hour) // Of the bubble's clock.
		synctest.Wait()
		if !gone(stranger) || gone(known) {
			t.Errorf("the stranger is gone: %t, the known one: %t", gone(stranger), gone(known))
		}
		if s := h.Stats(); s.Expired != 1 || s.Guests != 1 {
			t.Errorf("%+v", s)
		}
		h.end()
	})
}

// A flood of handshakes closes none that has ever asked for something, and one that is at work never.
func TestWhoSpokeStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, Config{Total: 100, PerAddress: 6, Strangers: 3, Patience: time.Minute})
		spoke, working := h.enter("10.0.0.1"), h.enter("10.0.0.1")
		for _, g := range []*Guest{spoke, working} {
			g.Known()
			g.Work(1)
		}
		spoke.Work(-1)
		for range 50 {
			g := h.enter("10.0.0.1")
			if g == nil {
				t.Fatal("turned away, although others are idle")
			}
			g.Known()
		}
		if gone(spoke) || gone(working) {
			t.Errorf("gone: %t, %t", gone(spoke), gone(working))
		}
		// Among those who spoke the idle one gives way.
		for range 5 {
			g := h.enter("10.0.0.1")
			g.Known()
			g.Work(1)
		}
		if h.enter("10.0.0.1") != nil {
			t.Error("all are at work, and one more was let in")
		}
		if !gone(spoke) || gone(working) {
			t.Errorf("gone: %t, %t", gone(spoke), gone(working))
		}
		if s := h.Stats(); s.Refused == 0 || s.Guests != 6 {
			t.Errorf("%+v", s)
		}
		h.end()
	})
}

// At the bound of all, the address that has most gives way, and no other.
func TestOneAddressTakesNothingFromOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, Config{Total: 12, PerAddress: 10, Strangers: 10, Patience: time.Hour})
		honest := []*Guest{h.enter("10.0.0.1"), h.enter("10.0.0.2"), h.enter("2001:db8::1")}
		for i := range 60 {
			g := h.enter(fmt.Sprintf("2001:db8:1::%x", i+1)) // One host.
			if i%2 == 0 {
				g.Known()
			}
		}
		for _, g := range honest {
			if gone(g) {
				t.Errorf("%v had to go", g.Address)
			}
		}
		if s := h.Stats(); s.Guests > 12 || s.Admitted != 63 {
			t.Errorf("%+v", s)
		}
		if n := h.log.Count("\n"); n > 3 {
			t.Errorf("%d lines", n)
		}
		h.end()
	})
}

// Nor do many addresses that have one connection each: who has more than one, and has spoken, is not the first to go.
func TestManyAddressesTakeNothingFromOneThatSpoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, Config{Total: 12, PerAddress: 10, Strangers: 10, Patience: time.Hour})
		var honest []*Guest
		for range 3 {
			g := h.enter("10.0.0.1")
			g.Known()
			g.Work(1)
			g.Work(-1)
			honest = append(honest, g)
		}
		var last *Guest
		for i := range 60 {
			g := h.enter(fmt.Sprintf("2001:db8:1:%x::1", i+1)) // As many addresses as it likes.
			if g == nil || last != nil && gone(last) {
				t.Fatal("who came last has to go, and not who waits longest")
			}
			if last = g; i%2 == 0 {
				g.Known()
			}
		}
		for i, g := range honest {
			if gone(g) {
				t.Errorf("connection %d of one who spoke had to go", i)
			}
		}
		h.end()
	})
}

func TestPurse(t *testing.T) {
	p := NewPurse(100)
	a, b, c := netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("10.0.0.2/32"),
		netip.MustParsePrefix("10.0.0.3/32")
	if !p.Take(a, 50) || p.Take(a, 1) {
		t.Error("one address has half, and no more")
	}
	if !p.Take(b, 40) || p.Take(c, 11) || !p.Take(c, 10) {
		t.Error("all have the whole, and no more")
	}
	p.Give(a, 50)
	if !p.Take(c, 40) || p.Take(c, 1) {
		t.Error("what was given back can be had")
	}
	p.Give(b, 40)
	p.Give(c, 50)
	if p.spent != 0 || len(p.of) != 0 {
		t.Errorf("all was given back, and %d are spent by %d", p.spent, len(p.of))
	}
}
