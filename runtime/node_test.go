package runtime_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	accelerator "github.com/kvferry/kvferry/runtime/device"
	"github.com/kvferry/kvferry/runtime/plane/shm"
)

func wantCode(tb testing.TB, err error, want effects.Code) {
	tb.Helper()
	if got := runtime.CodeOf(err); got != want {
		tb.Errorf("got %v (%v), want %v", got, err, want)
	}
}

// wantNothingHeld checks the machine's own count of pages and tables once all handles were released.
func wantNothingHeld(tb testing.TB, n *runtime.Node) {
	tb.Helper()
	s := n.Stats()
	if s.PagesFree+s.DeviceFree+s.Entries != s.PagesTotal+s.DeviceTotal ||
		s.PagesGranted+s.PagesQuarantined+s.PagesLeased+s.Puts+s.Gets+s.Grants+s.PendingRequests+s.Reserves+s.Fills != 0 {
		tb.Errorf("something is still held: %+v", s)
	}
}

func TestPushOverEachPlane(t *testing.T) {
	for _, channel := range []string{"shm", "tcp", "auto"} {
		t.Run(channel, func(t *testing.T) {
			proxy := startProxy(t)
			r := open(t, receiverConfig(t, channel, nil))
			s := open(t, senderConfig(t, channel, proxy.addr))
			keys := keysOf("push", 4)
			pages := mustReserve(t, s, 4)
			fill(t, pages, keys)

			t.Log("# two batches of one request, the second with a partial last chunk")
			put := runtime.Put{Peer: peerOf(r), Request: "r1", Keys: keys[:2], Pages: pages}
			res, err := s.Sender().Put(within(t), put)
			if err != nil || res.Sent != 2 {
				t.Fatalf("first put: %+v, %v", res, err)
			}
			put.Keys, put.First, put.LastChunkTokens, put.Last = keys[2:], 2, 5, true
			if res, err = s.Sender().Put(within(t), put); err != nil || res.Sent != 2 {
				t.Fatalf("last put: %+v, %v", res, err)
			}
			if got := <-proxy.told; got != "r1" {
				t.Errorf("the proxy was told of %q", got)
			}

			t.Log("# the proxy was told, so all is there")
			if hits, err := r.Receiver().Contains(within(t), keys); err != nil || hits != 4 {
				t.Errorf("contains: %d, %v", hits, err)
			}
			got, err := r.Receiver().Get(within(t), runtime.Get{Request: "r1", Keys: keys})
			if err != nil {
				t.Fatal(err)
			}
			wantContent(t, got, keys, pageBytes*5/16)

			t.Log("# what the receiver has is not sent again")
			put = runtime.Put{Peer: peerOf(r), Request: "r2", Keys: keys[:2], Pages: pages, Last: true}
			if res, err = s.Sender().Put(within(t), put); err != nil || res.Skipped != 2 || res.Sent != 0 {
				t.Errorf("second request: %+v, %v", res, err)
			}
			if err := r.Receiver().Abandon("r2"); err != nil {
				t.Errorf("abandon: %v", err)
			}
			mustRelease(t, got)
			mustRelease(t, pages)
			wantNothingHeld(t, s)
			wantNothingHeld(t, r)
			mustClose(t, s)
			mustClose(t, r)
		})
	}
}

func TestGetWaitsForWhatIsComing(t *testing.T) {
	r, s := open(t, receiverConfig(t, "shm", nil)), open(t, senderConfig(t, "shm", effects.Addr{}))
	defer mustClose(t, r)
	defer mustClose(t, s)
	keys := keysOf("wait", 2)
	type got struct {
		pages *runtime.Pages
		err   error
	}
	early := make(chan got, 1)
	ctx := within(t)
	go func() {
		p, err := r.Receiver().Get(ctx, runtime.Get{Request: "r", Keys: keys, Timeout: limit})
		early <- got{p, err}
	}()
	pages := mustReserve(t, s, 2)
	fill(t, pages, keys)
	if _, err := s.Sender().Put(ctx, runtime.Put{Peer: peerOf(r), Request: "r", Keys: keys, Pages: pages,
		Last: true}); err != nil {
		t.Fatal(err)
	}
	g := <-early
	if g.err != nil {
		t.Fatal(g.err)
	}
	wantContent(t, g.pages, keys, pageBytes)
	mustRelease(t, g.pages)
	mustRelease(t, pages)
}

// Each request gets what was put for it, however often others read the same chunks.
func TestGetTakesWhatIsItsRequestsOnly(t *testing.T) {
	r, s := open(t, receiverConfig(t, "shm", nil)), open(t, senderConfig(t, "shm", effects.Addr{}))
	defer mustClose(t, r)
	defer mustClose(t, s)
	keys := keysOf("prefix", 2)
	pages := mustReserve(t, s, 2)
	fill(t, pages, keys)
	for _, request := range []string{"one", "two"} {
		if _, err := s.Sender().Put(within(t), runtime.Put{Peer: peerOf(r), Request: request, Keys: keys, Pages: pages,
			Last: true}); err != nil {
			t.Fatal(err)
		}
	}
	get := func(request string, want int) {
		t.Helper()
		got, err := r.Receiver().Get(within(t), runtime.Get{Request: request, Keys: keys})
		wanted := effects.OK
		if want < len(keys) {
			wanted = effects.NotFound
		}
		if runtime.CodeOf(err) != wanted || got.Len() != want {
			t.Fatalf("request %q gets %v, %v; want %d chunks", request, got, err, want)
		}
		mustRelease(t, got)
	}
	get("one", 2) // Consumes what is request one's.
	get("one", 2) // They are still here for request two.
	get("", 2)    // A look.
	get("three", 2)
	get("two", 2)
	get("two", 0) // Nobody has a claim on them any more.
	mustRelease(t, pages)
	wantNothingHeld(t, r)
}

func TestGetGivesTheUsablePrefix(t *testing.T) {
	r := open(t, receiverConfig(t, "shm", nil))
	defer mustClose(t, r)
	p, err := r.Receiver().Get(within(t), runtime.Get{Keys: keysOf("none", 2)})
	if runtime.CodeOf(err) != effects.NotFound || p.Len() != 0 || !strings.Contains(err.Error(),
		"chunk 0 of 2 is missing") {
		t.Fatalf("got %v, %v; want an empty prefix, and what is missing", p, err)
	}
	mustRelease(t, p) // An empty handle may be released like any other, and need not be.
}

// "No caller ever holds pages in flight": a cancelled Put has its outcome before it returns.
func TestCancelledPutEndsAndFreesItsPages(t *testing.T) {
	s := open(t, senderConfig(t, "shm", effects.Addr{}))
	defer mustClose(t, s)
	silent := newSilentPeer(t).Peer
	pages := mustReserve(t, s, 1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.Sender().Put(ctx, runtime.Put{Peer: silent, Request: "r", Keys: keysOf("nobody", 1),
			Pages: pages, Last: true})
		ended <- err
	}()
	cancel()
	err := <-ended
	if err == nil || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want one that is context.Canceled", err)
	}
	mustRelease(t, pages)
	wantNothingHeld(t, s)
}

func TestCancelledReserveTakesNothing(t *testing.T) {
	s := open(t, senderConfig(t, "shm", effects.Addr{}))
	defer mustClose(t, s)
	all := mustReserve(t, s, 8)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.Sender().Reserve(ctx, 1)
		ended <- err
	}()
	cancel()
	wantCode(t, <-ended, effects.Cancelled)
	mustRelease(t, all)
	mustRelease(t, mustReserve(t, s, 8))
}

func TestReserveOfAFullPoolExpires(t *testing.T) {
	s := open(t, senderConfig(t, "shm", effects.Addr{}))
	defer mustClose(t, s)
	all := mustReserve(t, s, 8)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := s.Sender().Reserve(ctx, 1); err == nil {
		t.Error("a page of a full pool was given")
	}
	mustRelease(t, all)
}

func TestPagesAfterRelease(t *testing.T) {
	s := open(t, senderConfig(t, "shm", effects.Addr{}))
	defer mustClose(t, s)
	p := mustReserve(t, s, 1)
	if _, err := p.Bytes(1); err == nil {
		t.Error("page 1 of 1 was given")
	}
	mustRelease(t, p)
	_, err := p.Bytes(0)
	wantCode(t, err, effects.Invalid)
	wantCode(t, p.Release(within(t)), effects.NotFound)
	_, err = s.Sender().Put(within(t), runtime.Put{Keys: keysOf("gone", 1), Pages: p, Request: "r"})
	wantCode(t, err, effects.Invalid)
}

// "The pool is unmapped only by a Close that found no handle out."
func TestCloseCountsPagesThatAreOut(t *testing.T) {
	cfg := senderConfig(t, "shm", effects.Addr{})
	cfg.DrainTimeout = 50 * time.Millisecond
	s := open(t, cfg)
	p, q := mustReserve(t, s, 1), mustReserve(t, s, 2)
	err := s.Close(within(t))
	wantCode(t, err, effects.Invalid)
	var e *runtime.Error
	if errors.As(err, &e) && e.Count != 2 {
		t.Errorf("%d handles are out, want 2", e.Count)
	}
	if b, err := p.Bytes(0); err != nil {
		t.Error(err)
	} else {
		b[0] = 1 // Still mapped.
	}
	_, err = s.Sender().Reserve(within(t), 1)
	wantCode(t, err, effects.Draining)
	mustRelease(t, p)
	mustRelease(t, q)
	mustClose(t, s)
	mustClose(t, s) // Again is nothing.
	_, err = s.Sender().Reserve(within(t), 1)
	wantCode(t, err, effects.Closed)
}

// L5: "After a restart of either side transfers succeed again, with no restart of the other."
func TestRestartedReceiverIsFoundAgain(t *testing.T) {
	for _, channel := range []string{"shm", "tcp"} {
		t.Run(channel, func(t *testing.T) {
			s := open(t, senderConfig(t, channel, effects.Addr{}))
			defer mustClose(t, s)
			peer := reservedPeer(t)
			r := open(t, receiverConfig(t, channel, &peer))
			keys := keysOf("restart", 2)
			pages := mustReserve(t, s, 2)
			defer mustRelease(t, pages)
			fill(t, pages, keys)
			put := runtime.Put{Peer: peer, Request: "before", Keys: keys, Pages: pages, Last: true}
			if _, err := s.Sender().Put(within(t), put); err != nil {
				t.Fatal(err)
			}
			mustClose(t, r)
			r = open(t, receiverConfig(t, channel, &peer))
			defer mustClose(t, r)
			t.Log("# the first try may meet the old link's end; a retry finds the new receiver")
			ctx := within(t)
			put.Request = "after"
			for {
				_, err := s.Sender().Put(ctx, put)
				if err == nil {
					break
				}
				if ctx.Err() != nil {
					t.Fatal(err)
				}
			}
			got, err := r.Receiver().Get(ctx, runtime.Get{Request: "after", Keys: keys})
			if err != nil {
				t.Fatal(err)
			}
			wantContent(t, got, keys, pageBytes)
			mustRelease(t, got)
		})
	}
}

func TestOpenRefusals(t *testing.T) {
	control := runtime.WithControl(zmq.Config{}.Opener())
	plane := runtime.WithPlane(shm.Name, shm.Open)
	good := func() *config.Config { return senderConfig(t, "auto", effects.Addr{}) }
	noLayout := good()
	noLayout.Pages = 0
	wrongRank := receiverConfig(t, "auto", nil)
	for name, c := range map[string]struct {
		cfg  *config.Config
		opts []runtime.Option
	}{
		"no configuration": {nil, []runtime.Option{control, plane}},
		"no layout":        {noLayout, []runtime.Option{control, plane}},
		"no control":       {good(), []runtime.Option{plane}},
		"no plane":         {good(), []runtime.Option{control}},
		"another plane":    {senderConfig(t, "tcp", effects.Addr{}), []runtime.Option{control, plane}},
		"a plane twice":    {good(), []runtime.Option{control, plane, plane}},
		"a wrong name":     {good(), []runtime.Option{control, runtime.WithPlane("tcp", shm.Open)}},
		"a wrong rank":     {wrongRank, []runtime.Option{control, plane, runtime.WithRank(3)}},
		"no logger":        {good(), []runtime.Option{control, plane, runtime.WithLogger(nil)}},
	} {
		if n, err := runtime.Open(t.Context(), c.cfg, c.opts...); err == nil {
			t.Errorf("%s: opened", name)
			mustClose(t, n)
		}
	}
}

// What a file asks of an NPU is never served from memory of the process, and the refusal says what is missing.
func TestOpenRefusesAnNPUThatIsNotThere(t *testing.T) {
	control := runtime.WithControl(zmq.Config{}.Opener())
	unopened := runtime.WithDevice(func(context.Context, accelerator.Env) (accelerator.Device, error) {
		t.Error("a device was opened for a node that cannot run")
		return nil, accelerator.ErrNoMemory
	})
	pool, channel := senderConfig(t, "auto", effects.Addr{}), senderConfig(t, "hccl", effects.Addr{})
	pool.Device, pool.Channel = config.Device{Kind: config.DeviceNPU, Index: 3}, config.ChannelHCCL
	for _, c := range []struct {
		cfg  *config.Config
		opts []runtime.Option
		want string
	}{
		{pool, nil, "pd_buffer_device is npu:3 and transfer_channel hccl, so an NPU serves the pages; add WithDevice, or"},
		{channel, nil, "pd_buffer_device is cpu and transfer_channel hccl, so an NPU serves the pages; add WithDevice, or"},
		{pool, []runtime.Option{unopened}, `transfer_channel is hccl: add its plane, or set pd_buffer_device: cpu`},
	} {
		_, err := runtime.Open(t.Context(), c.cfg, append(c.opts, control, runtime.WithPlane(shm.Name, shm.Open))...)
		if runtime.CodeOf(err) != effects.Invalid || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

// A port that is taken must not leave half a node behind: goleak watches.
func TestOpenTakesDownWhatItOpened(t *testing.T) {
	r := open(t, receiverConfig(t, "auto", nil))
	defer mustClose(t, r)
	peer := peerOf(r)
	_, err := runtime.Open(t.Context(), receiverConfig(t, "auto", &peer),
		runtime.WithControl(zmq.Config{}.Opener()), runtime.WithPlane(shm.Name, shm.Open))
	if err == nil {
		t.Error("a port was bound twice")
	}
}
