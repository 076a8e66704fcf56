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
			a, b := newNode(t, "a", c.config, size, 1), newNode(t, "b", c.config, size, 2)
			peer := a.knows(t, metadata(t, b))
			if peer != "b" {
				t.Fatalf("the peer is %q", peer)
			}
			if err := a.Connect(peer); err != nil {
				t.Fatal(err)
			}
			write := a.transfer(t, libnixl.Write, peer, addressOf(b.bytes), "written")
			var notices []libnixl.Notice
			done, err := write.Post()
			for (!done || len(notices) == 0) && err == nil {
				var more []libnixl.Notice
				if more, err = b.Notices(); err == nil && !done {
					done, err = write.Check()
				}
				notices = append(notices, more...)
				if _, idle := a.Notices(); idle != nil {
					t.Fatal(idle)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			if n := notices[0]; n.Peer != "a" || string(n.Bytes) != "written" || len(notices) != 1 {
				t.Errorf("notices %v", notices)
			}
			if err := all(b.bytes, 1); err != nil {
				t.Error(err)
			}
			fill(b.bytes, 3)
			read := a.transfer(t, libnixl.Read, peer, addressOf(b.bytes), "")
			await(t, read, b)
			if err := all(a.bytes, 3); err != nil {
				t.Error(err)
			}
			fill(a.bytes, 4)
			await(t, write, b) // A transfer may be posted again.
			if err := all(b.bytes, 4); err != nil {
				t.Error(err)
			}
			if err := a.Notify(peer, []byte("alone\x00")); err != nil {
				t.Fatal(err)
			}
			for notices = nil; len(notices) < 2; { // The second notice is the notice of the write.
				more, err := b.Notices()
				if err != nil {
					t.Fatal(err)
				}
				notices = append(notices, more...)
				if _, err := a.Notices(); err != nil {
					t.Fatal(err)
				}
			}
			if got := string(notices[0].Bytes) + string(notices[1].Bytes); !strings.Contains(got, "alone\x00") {
				t.Errorf("notices %v", notices)
			}
			if err := errors.Join(write.Close(), read.Close(), a.Forget(peer)); err != nil {
				t.Error(err)
			}
			a.end(t)
			b.end(t)
		})
	}
}

// A use of a closed object, a close of a busy object and an invalid argument are refused with different errors, and no
// object is lost.
func TestRefusals(t *testing.T) {
	a, b := newNode(t, "a", "", size, 1), newNode(t, "b", "", size, 2)
	peer := a.knows(t, metadata(t, b))
	write := a.transfer(t, libnixl.Write, peer, addressOf(b.bytes), "")
	if err := a.Close(); !errors.Is(err, libnixl.ErrBusy) {
		t.Errorf("closing an agent with memory: %v", err)
	}
	_, empty := a.NewTransfer(libnixl.TransferOptions{Peer: peer})
	_, nobody := a.NewTransfer(libnixl.TransferOptions{Pairs: []libnixl.Pair{{Local: 1, Remote: 1, Bytes: 1}}})
	_, nowhere := a.Register(libnixl.Host, libnixl.Range{Bytes: 1})
	_, nothing := a.Register(libnixl.Host)
	_, nameless := libnixltest.Library(t).NewAgent(libnixl.AgentOptions{Name: "a\x00b"})
	_, blank := a.Load(nil)
	_, vast := a.Load(make([]byte, libnixl.MetadataMax+1))
	for i, err := range []error{empty, nobody, nowhere, nothing, nameless, blank, vast, a.Notify("", nil)} {
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
	_, nonsense := a.Load([]byte("nonsense"))
	_, unknown := libnixltest.Library(t).NewAgent(libnixl.AgentOptions{Name: "c", Plugin: "NONE"})
	for _, c := range []struct {
		err  error
		call string
	}{
		{stranger, "nixl_capi_create_xfer_req"}, {outside, "nixl_capi_create_xfer_req"},
		{nonsense, "nixl_capi_load_remote_md"}, {unknown, "nixl_capi_create_backend"},
		{a.Notify("nobody", []byte("x")), "nixl_capi_gen_notif"}, {a.Forget("nobody"), "nixl_capi_invalidate_remote_md"},
	} {
		failed := (*libnixl.Error)(nil)
		if !errors.As(c.err, &failed) || failed.Call != c.call || failed.Status >= 0 {
			t.Errorf("%s: got %v", c.call, c.err)
		}
	}
	await(t, write, b)
	if err := write.Close(); err != nil {
		t.Error(err)
	}
	a.end(t)
	b.end(t)
	_, posting := write.Post()
	_, noticing := a.Notices()
	for i, err := range []error{posting, noticing, write.Close(), a.memory.Close(), a.Close()} {
		if !errors.Is(err, libnixl.ErrClosed) {
			t.Errorf("after Close, call %d: %v", i, err)
		}
	}
}

// An agent is in a single call at a time: a concurrent call is refused, and has no effect.
func TestOneOwner(t *testing.T) {
	a, b := newNode(t, "a", "TLS=tcp", size, 1), newNode(t, "b", "TLS=tcp", size, 2)
	a.knows(t, metadata(t, b))
	const callers, calls = 4, 2000
	var wg sync.WaitGroup
	counts := make([]int, callers)
	for i := range callers {
		wg.Go(func() {
			for range calls {
				switch _, err := a.Notices(); {
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
	a.end(t)
	b.end(t)
}

// Agents leave neither files nor threads behind, nor memory beyond what the library keeps for good.
func TestAgentsLeaveNothing(t *testing.T) {
	round := func() {
		a, b := newNode(t, "a", "", size, 1), newNode(t, "b", "", size, 2)
		peer := a.knows(t, metadata(t, b))
		write := a.transfer(t, libnixl.Write, peer, addressOf(b.bytes), "notice")
		await(t, write, b)
		if err := write.Close(); err != nil {
			t.Error(err)
		}
		a.end(t)
		b.end(t)
	}
	round() // In the first round the library opens files that it keeps open.
	files, threads := count(t, "/proc/self/fd"), count(t, "/proc/self/task")
	for range 10 {
		round()
	}
	if n := count(t, "/proc/self/fd"); n > files {
		t.Errorf("%d files are open; %d were", n, files)
	}
	if n := count(t, "/proc/self/task"); n > threads+4 { // Go's runtime may start a few.
		t.Errorf("%d threads run; %d did", n, threads)
	}
}

func count(tb testing.TB, folder string) int {
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
	l := libnixltest.Library(t)
	a := newNode(t, "a", "", size, 1)
	defer a.end(t)
	if s := l.Info().Signals; len(s) != 0 {
		t.Errorf("loading took the signals %v", s)
	}
	again, err := libnixl.Open(libnixl.Options{Library: l.Info().Library})
	if err != nil || len(again.Info().Signals) != 0 {
		t.Errorf("signals %v, %v", again.Info().Signals, err)
	}
}
