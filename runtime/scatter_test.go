package runtime

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/plane"
)

// A fetching machine scatters two pages for each command, and delivers how that ended; or at once with early, and
// then returns the memory when the scatter has ended.
type fetching struct {
	echo
	pages []effects.Page
	early effects.Code
}

func (m *fetching) Step(_ effects.Time, ev effects.Event, out *effects.Effects) {
	switch ev := ev.(type) {
	case *effects.Command:
		out.Publish(m.pages)
		out.Scatter(effects.Scatter{Corr: 1, Ticket: ev.Ticket, First: 0, Pages: m.pages})
		if m.early != effects.OK {
			out.Deliver(effects.Deliver{Ticket: 1, Code: m.early, Held: true})
		}
	case *effects.Scattered:
		if m.early != effects.OK {
			out.Return(1)
			return
		}
		out.Deliver(effects.Deliver{Ticket: 1, Code: ev.Code})
	}
}

// fetchingNode is a receiver around such a machine.
func fetchingNode(t *testing.T, m *fetching) *Node {
	t.Helper()
	box := newMailbox(8, 1<<10)
	pool, err := plane.NewPool(plane.PoolConfig{Pages: 4, PageBytes: 4096, Sink: box})
	if err != nil {
		t.Fatal(err)
	}
	m.pages = []effects.Page{{Index: 2, Length: 3, Generation: 1}, {Index: 0, Length: 4096, Generation: 2}}
	copy(pool.Bytes(m.pages[0]), "abc")
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	w := &rankDriver{baseDriver: baseDriver{tickets: newTicketTable(8), log: log}, memory: &processMemory{pool: pool}, mailbox: box,
		scatterCalls: newScatterCalls(box)}
	n := &Node{role: config.Receiver, keyBytesMax: 64, tickets: w.tickets, driver: w, loop: newLoop(m, box, w),
		inProcess: true, keysPerBatch: 2, cfg: rank.Config{Deferred: rank.Deferred{FetchTimeout: 60 * effects.Second}}}
	go n.loop.run()
	t.Cleanup(func() {
		if err := w.scatterCalls.close(context.Background()); err != nil {
			t.Error(err)
		}
		select {
		case <-n.loop.ended:
		default:
			n.loop.shutDown()
		}
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func twoKeys(run Scatter) Fetch {
	return Fetch{Keys: []string{"m@1@0@a@bfloat16", "m@1@0@b@bfloat16"}, Scatter: run}
}

// The engine's function gets the valid bytes of the machine's pages, on the goroutine of the fetch.
func TestScatterThroughTheLoop(t *testing.T) {
	type named struct{}
	ctx := context.WithValue(t.Context(), named{}, "of the caller")
	var calls int // Of this goroutine alone: the race detector watches.
	taken, err := fetchingNode(t, &fetching{}).Receiver().Fetch(ctx, twoKeys(func(ctx context.Context, first int,
		chunks [][]byte) error {
		calls++
		if first != 0 || len(chunks) != 2 || string(chunks[0]) != "abc" || len(chunks[1]) != 4096 ||
			ctx.Value(named{}) != "of the caller" {
			t.Errorf("the engine was given chunks from %d on: %d, %q", first, len(chunks), chunks[0])
		}
		return nil
	}))
	if err != nil || taken != 2 || calls != 1 {
		t.Errorf("%d chunks in %d calls, %v", taken, calls, err)
	}
}

func TestScatterEndings(t *testing.T) {
	broken := errors.New("the device is on fire")
	for name, c := range map[string]struct {
		gives error
		taken int
		want  effects.Code
	}{
		"well":  {nil, 2, effects.OK},
		"badly": {broken, 0, effects.Faulted},
		// The engine's own time limit, not the fetch's.
		"too slow": {context.DeadlineExceeded, 0, effects.Faulted},
	} {
		t.Run(name, func(t *testing.T) {
			taken, err := fetchingNode(t, &fetching{}).Receiver().Fetch(t.Context(),
				twoKeys(func(context.Context, int, [][]byte) error { return c.gives }))
			if CodeOf(err) != c.want || taken != c.taken || !errors.Is(err, c.gives) {
				t.Errorf("%d chunks, %v; want %d, %v", taken, err, c.taken, c.want)
			}
		})
	}
}

// A bare command has nobody who would take its chunks.
func TestScatterOfABareCommand(t *testing.T) {
	n := fetchingNode(t, &fetching{})
	ticket, err := n.Receiver().Submit(nil)
	if err != nil {
		t.Fatal(err)
	}
	if out := <-ticket.Done(); out.Code != effects.Unsupported {
		t.Errorf("it ended as %v", out.Code)
	}
}

// A fetch that has failed ends its call's context, and waits for the call.
func TestScatterOfAFailedFetch(t *testing.T) {
	running := false
	taken, err := fetchingNode(t, &fetching{early: effects.PeerLost}).Receiver().Fetch(t.Context(),
		twoKeys(func(ctx context.Context, _ int, _ [][]byte) error {
			running = true
			<-ctx.Done()
			running = false
			return ctx.Err()
		}))
	// Whether the call began before the outcome came is not ours to choose.
	if CodeOf(err) != effects.PeerLost || taken != 0 || running {
		t.Errorf("%d chunks, %v; the call still runs: %t", taken, err, running)
	}
}

// A call that panics, or ends its goroutine, ends its fetch like one that fails.
func TestScatterThatPanics(t *testing.T) {
	n := fetchingNode(t, &fetching{})
	func() {
		defer func() {
			if got := recover(); got != "on fire" {
				t.Errorf("the engine's panic became %v", got)
			}
		}()
		_, _ = n.Receiver().Fetch(t.Context(), twoKeys(func(context.Context, int, [][]byte) error { panic("on fire") }))
	}()
	if err := n.driver.scatterCalls.close(t.Context()); err != nil {
		t.Errorf("the call is still counted: %v", err)
	}
}

// The end of the node ends the calls, and none begins any more.
func TestScattersAtTheEnd(t *testing.T) {
	n := fetchingNode(t, &fetching{})
	began, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := n.Receiver().Fetch(context.Background(), twoKeys(func(ctx context.Context, _ int, _ [][]byte) error {
			close(began)
			<-ctx.Done()
			return ctx.Err()
		}))
		ended <- err
	}()
	<-began
	if err := n.driver.scatterCalls.close(t.Context()); err != nil {
		t.Error(err)
	}
	wantCode(t, <-ended, effects.Closed)
	if n.driver.scatterCalls.beginCall() {
		t.Error("a call began after the end")
	}
}

// A call that does not return is waited for as long as the caller likes, and told of. What the machine gives up
// meanwhile, its fetch does not.
func TestScatterThatDoesNotReturn(t *testing.T) {
	n := fetchingNode(t, &fetching{})
	began, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := n.Receiver().Fetch(context.Background(), twoKeys(func(context.Context, int, [][]byte) error {
			close(began)
			<-goOn
			return nil
		}))
		ended <- err
	}()
	<-began
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.driver.scatterCalls.close(ctx); CodeOf(err) != effects.Cancelled || !errors.Is(err, context.Canceled) {
		t.Errorf("%v; want it taken back", err)
	}
	n.loop.shutDown()
	n.tickets.endAll(true)
	select {
	case err := <-ended:
		t.Errorf("the fetch ended beside its call: %v", err)
	default:
	}
	close(goOn)
	wantCode(t, <-ended, effects.Closed)
}

func TestFetchesThatCannotBegin(t *testing.T) {
	n := fetchingNode(t, &fetching{})
	_, err := n.Receiver().Fetch(t.Context(), Fetch{Keys: []string{"m@1@0@a@bfloat16"}})
	wantCode(t, err, effects.Invalid)
	_, err = n.Receiver().Fetch(t.Context(), Fetch{Scatter: func(context.Context, int, [][]byte) error { return nil }})
	wantCode(t, err, effects.Invalid)
	n.tickets.refuseNew(effects.Draining)
	_, err = n.Receiver().Fetch(t.Context(), twoKeys(func(context.Context, int, [][]byte) error { return nil }))
	wantCode(t, err, effects.Draining)
}
