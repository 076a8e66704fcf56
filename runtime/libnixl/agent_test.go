//go:build cgo && linux

package libnixl_test

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/kvferry/kvferry/runtime/libnixl"
	"github.com/kvferry/kvferry/runtime/libnixl/libnixltest"
)

const size = 1 << 20

// Bytes are written and read whole, and notices come, with their transfer and alone.
func TestWriteReadNotify(t *testing.T) {
	for _, c := range transports {
		t.Run(c.name, func(t *testing.T) {
			a, b := newTestAgent(t, "a", c.config, size, 1), newTestAgent(t, "b", c.config, size, 2)
			peer := a.loadPeer(t, metadataOf(t, b))
			if peer != "b" {
				t.Fatalf("the peer is %q", peer)
			}
			if err := a.ConnectPeer(peer); err != nil {
				t.Fatal(err)
			}
			write := a.newTransfer(t, libnixl.Write, peer, addressOf(b.bytes), "written")
			var notices []libnixl.Notice
			done, err := write.Post()
			for (!done || len(notices) == 0) && err == nil {
				var more []libnixl.Notice
				if more, err = b.PollNotices(); err == nil && !done {
					done, err = write.Check()
				}
				notices = append(notices, more...)
				if _, idle := a.PollNotices(); idle != nil {
					t.Fatal(idle)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			if n := notices[0]; n.Peer != "a" || string(n.Bytes) != "written" || len(notices) != 1 {
				t.Errorf("notices %v", notices)
			}
			if err := wantAll(b.bytes, 1); err != nil {
				t.Error(err)
			}
			fillBytes(b.bytes, 3)
			read := a.newTransfer(t, libnixl.Read, peer, addressOf(b.bytes), "")
			awaitTransfer(t, read, b)
			if err := wantAll(a.bytes, 3); err != nil {
				t.Error(err)
			}
			fillBytes(a.bytes, 4)
			awaitTransfer(t, write, b) // A transfer may be posted again.
			if err := wantAll(b.bytes, 4); err != nil {
				t.Error(err)
			}
			if err := a.SendNotice(peer, []byte("alone\x00")); err != nil {
				t.Fatal(err)
			}
			for notices = nil; len(notices) < 2; { // The second notice is the notice of the write.
				more, err := b.PollNotices()
				if err != nil {
					t.Fatal(err)
				}
				notices = append(notices, more...)
				if _, err := a.PollNotices(); err != nil {
					t.Fatal(err)
				}
			}
			if got := string(notices[0].Bytes) + string(notices[1].Bytes); !strings.Contains(got, "alone\x00") {
				t.Errorf("notices %v", notices)
			}
			if err := errors.Join(write.Close(), read.Close(), a.ForgetPeer(peer)); err != nil {
				t.Error(err)
			}
			a.closeAll(t)
			b.closeAll(t)
		})
	}
}

// A use of a closed object, a close of a busy object and an invalid argument are refused with different errors, and no
// object is lost.
func TestRefusals(t *testing.T) {
	a, b := newTestAgent(t, "a", "", size, 1), newTestAgent(t, "b", "", size, 2)
	peer := a.loadPeer(t, metadataOf(t, b))
	write := a.newTransfer(t, libnixl.Write, peer, addressOf(b.bytes), "")
	if err := a.Close(); !errors.Is(err, libnixl.ErrBusy) {
		t.Errorf("closing an agent with memory: %v", err)
	}
	_, empty := a.NewTransfer(libnixl.TransferOptions{Peer: peer})
	_, nobody := a.NewTransfer(libnixl.TransferOptions{Pairs: []libnixl.Pair{{Local: 1, Remote: 1, Bytes: 1}}})
	_, nowhere := a.RegisterMemory(libnixl.Host, libnixl.Range{Bytes: 1})
	_, nothing := a.RegisterMemory(libnixl.Host)
	_, nameless := libnixltest.LoadLibrary(t).NewAgent(libnixl.AgentOptions{Name: "a\x00b"})
	_, blank := a.LoadMetadata(nil)
	_, vast := a.LoadMetadata(make([]byte, libnixl.MetadataMax+1))
	for i, err := range []error{empty, nobody, nowhere, nothing, nameless, blank, vast, a.SendNotice("", nil)} {
		if !errors.Is(err, libnixl.ErrInvalid) {
			t.Errorf("refusal %d is %v", i, err)
		}
	}
	_, stranger := a.NewTransfer(libnixl.TransferOptions{
		Peer: "nobody", Pairs: []libnixl.Pair{{Local: addressOf(a.bytes), Remote: addressOf(b.bytes), Bytes: 1}},
	})
	_, outside := a.NewTransfer(libnixl.TransferOptions{
		Peer: peer, Pairs: []libnixl.Pair{{Local: addressOf(a.bytes), Remote: addressOf(b.bytes) + size, Bytes: 1}},
	})
	_, nonsense := a.LoadMetadata([]byte("nonsense"))
	_, unknown := libnixltest.LoadLibrary(t).NewAgent(libnixl.AgentOptions{Name: "c", Plugin: "NONE"})
	for _, c := range []struct {
		err  error
		call string
	}{
		{stranger, "nixl_capi_create_xfer_req"}, {outside, "nixl_capi_create_xfer_req"},
		{nonsense, "nixl_capi_load_remote_md"}, {unknown, "nixl_capi_create_backend"},
		{a.SendNotice("nobody", []byte("x")), "nixl_capi_gen_notif"}, {a.ForgetPeer("nobody"), "nixl_capi_invalidate_remote_md"},
	} {
		failed := (*libnixl.Error)(nil)
		if !errors.As(c.err, &failed) || failed.Call != c.call || failed.Status >= 0 {
			t.Errorf("%s: got %v", c.call, c.err)
		}
	}
	awaitTransfer(t, write, b)
	if err := write.Close(); err != nil {
		t.Error(err)
	}
	a.closeAll(t)
	b.closeAll(t)
	_, posting := write.Post()
	_, noticing := a.PollNotices()
	for i, err := range []error{posting, noticing, write.Close(), a.memory.Close(), a.Close()} {
		if !errors.Is(err, libnixl.ErrClosed) {
			t.Errorf("after Close, call %d: %v", i, err)
		}
	}
}

// An agent is in a single call at a time: a concurrent call is refused, and has no effect.
func TestOneOwner(t *testing.T) {
	a, b := newTestAgent(t, "a", "TLS=tcp", size, 1), newTestAgent(t, "b", "TLS=tcp", size, 2)
	a.loadPeer(t, metadataOf(t, b))
	const callers, calls = 4, 2000
	var wg sync.WaitGroup
	counts := make([]int, callers)
	for i := range callers {
		wg.Go(func() {
			for range calls {
				switch _, err := a.PollNotices(); {
				case errors.Is(err, libnixl.ErrShared):
					counts[i]++
				case err != nil:
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("refused of %d calls each: %v", calls, counts)
	a.closeAll(t)
	b.closeAll(t)
}

// Agents leave neither files nor threads behind, nor memory beyond what the library keeps for good.
func TestAgentsLeaveNothing(t *testing.T) {
	round := func() {
		a, b := newTestAgent(t, "a", "", size, 1), newTestAgent(t, "b", "", size, 2)
		peer := a.loadPeer(t, metadataOf(t, b))
		write := a.newTransfer(t, libnixl.Write, peer, addressOf(b.bytes), "notice")
		awaitTransfer(t, write, b)
		if err := write.Close(); err != nil {
			t.Error(err)
		}
		a.closeAll(t)
		b.closeAll(t)
	}
	round() // In the first round the library opens files that it keeps open.
	files, threads := countEntries(t, "/proc/self/fd"), countEntries(t, "/proc/self/task")
	for range 10 {
		round()
	}
	if n := countEntries(t, "/proc/self/fd"); n > files {
		t.Errorf("%d files are open; %d were", n, files)
	}
	if n := countEntries(t, "/proc/self/task"); n > threads+4 { // Go's runtime may start a few.
		t.Errorf("%d threads run; %d did", n, threads)
	}
}

func countEntries(tb testing.TB, folder string) int {
	tb.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		tb.Fatal(err)
	}
	return len(entries)
}

// A Go program works with the library: nothing that was loaded for an agent has installed a signal handler that a Go
// program cannot run.
func TestSignals(t *testing.T) {
	l := libnixltest.LoadLibrary(t)
	a := newTestAgent(t, "a", "", size, 1)
	defer a.closeAll(t)
	if s := l.Info().Signals; len(s) != 0 {
		t.Errorf("loading took the signals %v", s)
	}
	again, err := libnixl.Open(libnixl.Options{Library: l.Info().Library})
	if err != nil || len(again.Info().Signals) != 0 {
		t.Errorf("signals %v, %v", again.Info().Signals, err)
	}
}
