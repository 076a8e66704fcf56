package runtime_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/plane/shm"
)

// bothConfig is a node that is prefill and decode, and listens where the system likes.
func bothConfig(tb testing.TB, channel, mode string) *config.Config {
	cfg := parse(tb, "both", channel, 8, "pd_skip_proxy_notification: true\npd_peer_host: 127.0.0.1\n"+
		"pd_peer_init_port: 1\npd_peer_alloc_port: 2\n"+mode)
	for _, ports := range [][]uint16{cfg.InitPorts, cfg.AllocPorts, cfg.Pull.DonePorts} {
		clear(ports)
	}
	return cfg
}

// Two nodes put to each other at the same time, each out of the pool into which the other one's chunks come.
func TestBothSidesOfEachNode(t *testing.T) {
	for mode, keys := range map[string]string{
		"push": "", "pull": "pd_pull_mode: true\n", "pull-delay": "pd_pull_mode: true\npd_delay_pull: true\n",
	} {
		for _, channel := range []string{"shm", "tcp"} {
			t.Run(mode+" over "+channel, func(t *testing.T) {
				a, b := open(t, bothConfig(t, channel, keys)), open(t, bothConfig(t, channel, keys))
				var both sync.WaitGroup
				both.Go(func() { putAndTake(t, a, b, "to b", mode) })
				both.Go(func() { putAndTake(t, b, a, "to a", mode) })
				both.Wait()
				wantNothingHeld(t, a)
				wantNothingHeld(t, b)
				mustClose(t, a)
				mustClose(t, b)
			})
		}
	}
}

// putAndTake puts two chunks from one node to another, whose engine takes them as its mode has it.
func putAndTake(t *testing.T, from, to *runtime.Node, request, mode string) {
	keys := keysOf(request, 2)
	pages, err := from.Sender().Reserve(within(t), 2)
	if err != nil {
		t.Error(err)
		return
	}
	fill(t, pages, keys)
	res, err := from.Sender().Put(within(t), runtime.Put{Peer: peerOf(to), Request: request, Keys: keys, Pages: pages,
		Last: true})
	if err != nil {
		t.Error(err)
		return
	}
	if mode == "pull-delay" {
		n, err := to.Receiver().Fetch(within(t), runtime.Fetch{Request: request, Keys: keys,
			Scatter: func(_ context.Context, first int, chunks [][]byte) error {
				for i, chunk := range chunks {
					if !isContent(chunk, keys[first+i]) {
						t.Errorf("%s: chunk %d is another's", request, first+i)
					}
				}
				return nil
			}})
		if err != nil || n != 2 {
			t.Errorf("%s: fetched %d, %v", request, n, err)
		}
	} else {
		got, err := to.Receiver().Get(within(t), runtime.Get{Request: request, Keys: keys, Timeout: 10 * time.Second})
		if err != nil {
			t.Error(err)
			return
		}
		wantContent(t, got, keys, pageBytes)
		mustRelease(t, got)
	}
	<-res.Returned()
	mustRelease(t, pages)
}

// Two nodes put to each other and read what the other one shares, at the same time and out of one pool each. What was
// put to one is the cache's too: whoever put it gets it back.
func TestBothSidesAndSharing(t *testing.T) {
	for _, channel := range []string{"shm", "tcp"} {
		t.Run(channel, func(t *testing.T) {
			_, at := startDirectory(t)
			a, b := open(t, allConfig(t, channel, "a", at)), open(t, allConfig(t, channel, "b", at))
			ofA, ofB := keysOf("of a", 3), keysOf("of b", 3)
			mustStore(t, a, ofA)
			mustStore(t, b, ofB)
			awaitLocations(t, a, ofB, len(ofB))
			awaitLocations(t, b, ofA, len(ofA))
			var all sync.WaitGroup
			all.Go(func() { putAndTake(t, a, b, "to b", "push") })
			all.Go(func() { putAndTake(t, b, a, "to a", "push") })
			all.Go(func() { mustGetShared(t, a, ofB) })
			all.Go(func() { mustGetShared(t, b, ofA) })
			all.Wait()
			for n, request := range map[*runtime.Node]string{a: "to b", b: "to a"} {
				keys := keysOf(request, 2)
				awaitLocations(t, n, keys, len(keys))
				mustGetShared(t, n, keys)
			}
			for _, n := range []*runtime.Node{a, b} {
				waitFor(t, n, "the end of all reads", isQuiet)
				wantNothingHeld(t, n)
				mustClose(t, n)
			}
		})
	}
}

// allConfig is a node of prefill and decode that shares as well, and tells the directory at these ports.
func allConfig(t *testing.T, channel, instance string, at config.MonitorPorts) *config.Config {
	cfg := parse(t, "both", channel, 16, "pd_skip_proxy_notification: true\npd_peer_host: 127.0.0.1\n"+
		"pd_peer_init_port: 1\npd_peer_alloc_port: 2\nenable_p2p: true\np2p_host: 127.0.0.1\np2p_init_ports: [1]\n"+
		"p2p_lookup_ports: [3]\n"+directoryKeys(instance, at))
	for _, ports := range [][]uint16{cfg.InitPorts, cfg.AllocPorts, cfg.Share.LookupPorts} {
		clear(ports)
	}
	return cfg
}

// mustGetShared gets all of these chunks from whoever has them, and checks each byte.
func mustGetShared(t *testing.T, n *runtime.Node, keys []string) {
	got, err := n.Sharing().Get(within(t), runtime.SharedGet{Request: "shared", Keys: keys})
	if err != nil {
		t.Error(err)
	}
	for i := range got.Len() {
		if b, err := got.Bytes(i); err != nil || len(b) != pageBytes || !isContent(b, keys[i]) {
			t.Errorf("chunk %d is another's: %v", i, err)
		}
	}
	mustRelease(t, got)
}

// A Close drains both sides at once, and counts what either engine still has.
func TestCloseOfBothSides(t *testing.T) {
	cfg := bothConfig(t, "shm", "")
	cfg.DrainTimeout = 50 * time.Millisecond
	a, b := open(t, cfg), open(t, bothConfig(t, "shm", ""))
	keys := keysOf("close", 1)
	pages := mustReserve(t, b, 1)
	fill(t, pages, keys)
	put := runtime.Put{Peer: peerOf(a), Request: "r", Keys: keys, Pages: pages, Last: true}
	if _, err := b.Sender().Put(within(t), put); err != nil {
		t.Fatal(err)
	}
	got, err := a.Receiver().Get(within(t), runtime.Get{Request: "r", Keys: keys, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	mine := mustReserve(t, a, 1)
	err = a.Close(within(t))
	wantCode(t, err, effects.Invalid)
	_, err = a.Sender().Reserve(within(t), 1)
	wantCode(t, err, effects.Draining)
	_, err = a.Receiver().Get(within(t), runtime.Get{Keys: keys})
	wantCode(t, err, effects.Draining)
	mustRelease(t, got)
	mustRelease(t, mine)
	mustRelease(t, pages)
	mustClose(t, a)
	mustClose(t, b)
}

// What the engine can never have is said at once, whole: its share of the pool, however small the parts.
func TestReserveBeyondTheShare(t *testing.T) {
	cfg := bothConfig(t, "shm", "")
	cfg.Machine.EngineSharePct, cfg.Limits.ArrayLen = 25, 2 // 2 of 8 pages
	n := open(t, cfg)
	_, err := n.Sender().Reserve(within(t), 4)
	wantCode(t, err, effects.TooLarge)
	mustRelease(t, mustReserve(t, n, 2))
	mustClose(t, n)
}

// A node of both sides is opened as either; one of a single side has not the other.
func TestSidesOfANode(t *testing.T) {
	opts := []runtime.Option{runtime.WithControl(zmq.Config{}.Opener()), runtime.WithPlane(shm.Name, shm.Open)}
	s, err := runtime.NewSender(t.Context(), bothConfig(t, "shm", ""), opts...)
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, s.Node())
	r, err := runtime.NewReceiver(t.Context(), bothConfig(t, "shm", ""), opts...)
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, r.Node())
	_, err = runtime.NewReceiver(t.Context(), senderConfig(t, "shm", effects.Addr{}), opts...)
	wantCode(t, err, effects.Invalid)
	n := open(t, senderConfig(t, "shm", effects.Addr{}))
	_, err = n.Receiver().Get(within(t), runtime.Get{Keys: keysOf("none", 1)})
	wantCode(t, err, effects.Unsupported)
	mustClose(t, n)
}
