package runtime

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// hanging is far beyond what any step here takes; it only ends a test that hangs.
const hanging = time.Minute

func scattersOf(run Scatter) (*scatters, *mailbox) {
	box := newMailbox(8, 1<<10)
	return newScatters(run, box, slog.New(slog.NewTextHandler(io.Discard, nil))), box
}

// ended waits for the ends of n Scatters.
func ended(t *testing.T, box *mailbox, n int) map[effects.Corr]effects.Code {
	t.Helper()
	codes := map[effects.Corr]effects.Code{}
	for len(codes) < n {
		select {
		case <-box.wake:
		case <-time.After(hanging):
			t.Fatalf("%d of %d scatters ended", len(codes), n)
		}
		for _, ev := range box.take() {
			e := ev.(*effects.Scattered)
			if _, twice := codes[e.Corr]; twice {
				t.Fatalf("scatter %d ended twice", e.Corr)
			}
			codes[e.Corr] = e.Code
		}
	}
	return codes
}

func TestScatterEndings(t *testing.T) {
	broken := errors.New("the device is on fire")
	for name, c := range map[string]struct {
		run  Scatter
		want effects.Code
	}{
		"none":  {nil, effects.Unsupported},
		"well":  {func(context.Context, ScatterCall) error { return nil }, effects.OK},
		"badly": {func(context.Context, ScatterCall) error { return broken }, effects.Faulted},
		// The engine's own time limit, not the node's end.
		"too slow": {func(context.Context, ScatterCall) error { return context.DeadlineExceeded }, effects.Faulted},
	} {
		t.Run(name, func(t *testing.T) {
			s, box := scattersOf(c.run)
			s.start(&effects.Scatter{Corr: 7}, nil)
			if got := ended(t, box, 1)[7]; got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
			if err := s.close(t.Context(), hanging); err != nil {
				t.Error(err)
			}
		})
	}
}

// Calls run side by side, but never more than there are workers; who waits is taken in order.
func TestScattersAreBounded(t *testing.T) {
	const calls = 3 * scatterWorkers
	began, goOn := make(chan int, calls), make(chan struct{})
	s, box := scattersOf(func(_ context.Context, c ScatterCall) error {
		began <- c.First
		<-goOn
		return nil
	})
	for i := range calls {
		s.start(&effects.Scatter{Corr: effects.Corr(i + 1), First: uint32(i)}, nil)
	}
	seen := map[int]bool{}
	for range scatterWorkers {
		seen[<-began] = true
	}
	for i := range scatterWorkers {
		if !seen[i] {
			t.Errorf("of the first calls, %d did not begin: %v", i, seen)
		}
	}
	for next := scatterWorkers; next < calls; next++ {
		if len(began) > 0 {
			t.Fatalf("%d calls run, there are %d workers", scatterWorkers+len(began), scatterWorkers)
		}
		goOn <- struct{}{}
		if got := <-began; got != next {
			t.Errorf("call %d began; %d waited longer", got, next)
		}
	}
	close(goOn)
	ended(t, box, calls)
	if err := s.close(t.Context(), hanging); err != nil {
		t.Error(err)
	}
}

// The end of the node ends the calls' context, and what waited is not begun.
func TestScattersAtTheEnd(t *testing.T) {
	began := make(chan struct{}, scatterWorkers)
	s, box := scattersOf(func(ctx context.Context, _ ScatterCall) error {
		began <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	for i := range scatterWorkers + 2 {
		s.start(&effects.Scatter{Corr: effects.Corr(i + 1)}, nil)
	}
	for range scatterWorkers {
		<-began
	}
	if err := s.close(t.Context(), hanging); err != nil {
		t.Error(err)
	}
	s.start(&effects.Scatter{Corr: 100}, nil)
	for corr, code := range ended(t, box, scatterWorkers+3) {
		if code != effects.Closed {
			t.Errorf("scatter %d ended as %v", corr, code)
		}
	}
	if len(began) != 0 {
		t.Error("a call began after the end")
	}
}

// A call that does not return is waited for as long as the caller likes, and told of.
func TestScatterThatDoesNotReturn(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	s, box := scattersOf(func(context.Context, ScatterCall) error {
		close(began)
		<-goOn
		return nil
	})
	s.start(&effects.Scatter{Corr: 1}, nil)
	<-began
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.close(ctx, hanging); CodeOf(err) != effects.Expired || !errors.Is(err, context.Canceled) {
		t.Errorf("%v; want it to have expired", err)
	}
	close(goOn)
	if got := ended(t, box, 1)[1]; got != effects.OK {
		t.Errorf("it ended as %v", got)
	}
}

// A fetching machine scatters two pages for each command, and delivers how that ended.
type fetching struct {
	echo
	pages []effects.Page
}

func (m *fetching) Step(_ effects.Time, ev effects.Event, out *effects.Effects) {
	switch ev := ev.(type) {
	case *effects.Command:
		out.Publish(m.pages)
		out.Scatter(effects.Scatter{Corr: 1, Ticket: ev.Ticket, First: 3, Pages: m.pages})
	case *effects.Scattered:
		out.Deliver(effects.Deliver{Ticket: 1, Code: ev.Code})
	}
}

// The engine's function gets the valid bytes of the machine's pages.
func TestScatterThroughTheLoop(t *testing.T) {
	box := newMailbox(8, 1<<10)
	pool, err := plane.NewPool(plane.PoolConfig{Pages: 4, PageBytes: 4096, Sink: box})
	if err != nil {
		t.Fatal(err)
	}
	pages := []effects.Page{{Index: 2, Length: 3, Generation: 1}, {Index: 0, Length: 4096, Generation: 2}}
	copy(pool.Host(pages[0]), "abc")
	got := make(chan ScatterCall, 1)
	w := &world{pool: pool, mailbox: box, tickets: newRegister(8), log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	w.scatter = newScatters(func(_ context.Context, c ScatterCall) error {
		got <- ScatterCall{Ticket: c.Ticket, First: c.First, Chunks: [][]byte{append([]byte(nil), c.Chunks[0]...), c.Chunks[1][:0:len(c.Chunks[1])]}}
		return nil
	}, box, w.log)
	l := newLoop(&fetching{pages: pages}, box, w)
	go l.run()
	ticket, err := w.tickets.begin("fetch", work)
	if err != nil {
		t.Fatal(err)
	}
	box.Post(&effects.Command{Ticket: ticket.id})
	if c := <-got; c.Ticket != ticket.id || c.First != 3 || string(c.Chunks[0]) != "abc" || cap(c.Chunks[1]) != 4096 {
		t.Errorf("the engine was given %+v", c)
	}
	if out := <-ticket.Done(); out.Code != effects.OK {
		t.Errorf("delivered as %v", out.Code)
	}
	if err := w.scatter.close(t.Context(), hanging); err != nil {
		t.Error(err)
	}
	l.end()
	if err := pool.Close(); err != nil {
		t.Error(err)
	}
}
