//go:build cgo && linux

package hostile_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/control/zmq"
)

// An answer is what a victim says of itself.
type answer struct {
	Peer     runtime.Peer
	RSS      int // KiB, the most so far
	Files    int
	Held     int // pages that are not free
	CPU      time.Duration
	Wrong    int // bytes of chunks that arrived and are not their keys'
	Hits     int
	Failed   int // puts of a batch
	Problems string
	Code     effects.Code
	Remedy   string
	// Of puts to who is asked: how many there were, and how many ended well.
	Asked, Answered int
}

func TestMain(m *testing.M) {
	if os.Getenv(victimSetup) == "" {
		os.Exit(m.Run())
	}
	if err := beVictim(); err != nil {
		fmt.Fprintln(os.Stderr, "victim:", err)
		os.Exit(1)
	}
}

func beVictim() error {
	var s setup
	if err := json.Unmarshal([]byte(os.Getenv(victimSetup)), &s); err != nil {
		return err
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: s.Files, Max: s.Files}); err != nil {
		return err
	}
	n, err := s.open(zmq.Config{MaxMessage: 1 << 20, MaxConns: 16, Handshake: 2 * time.Second}, os.Stderr)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	// As long as there are files.
	own, err := os.Open("/proc/self/fd")
	if err != nil {
		return err
	}
	status, err := os.Open("/proc/self/status")
	if err != nil {
		return err
	}
	var taken []*os.File
	var asks *asker
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var a answer
		for _, s := range n.Servers() {
			switch a.Peer.Host = s.Addr.Host; s.Channel {
			case effects.ChannelInit:
				a.Peer.InitPort = s.Addr.Port
			case effects.ChannelAlloc:
				a.Peer.AllocPort = s.Addr.Port
			default:
			}
		}
		switch order := in.Text(); order {
		case "":
		case takeFiles:
			var f *os.File
			for err = nil; err == nil; taken = append(taken, f) {
				f, err = os.Open(os.DevNull)
			}
			a.Problems = err.Error()
		case giveFiles:
			for _, f := range taken {
				_ = f.Close() // The last one is none.
			}
			taken = nil
		case askNobody:
			a.Asked, a.Answered, err = asks.end()
			if err != nil {
				a.Problems = err.Error()
			}
		default:
			if shortage, ok := strings.CutPrefix(order, openMore); ok {
				a.open(shortage)
			} else if batch, ok := strings.CutPrefix(order, putMany); ok {
				a.put(n, batch)
			} else if port, ok := strings.CutPrefix(order, askSome); ok {
				if asks, err = askOf(port); err != nil {
					a.Problems = err.Error()
				}
			} else if key, ok := strings.CutPrefix(order, getNow); ok {
				a.get(n, key, time.Millisecond)
			} else {
				a.get(n, order, 9*time.Second)
			}
		}
		a.look(n, own, status)
		if err := out.Encode(a); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return n.Close(ctx)
}

func (a *answer) look(n *runtime.Node, own, status *os.File) {
	s := n.Stats()
	a.Held = s.PagesTotal - s.PagesFree - s.Entries
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	a.CPU = time.Duration(u.Utime.Nano() + u.Stime.Nano())
	text := make([]byte, 4096)
	count, _ := status.ReadAt(text, 0)
	for line := range strings.Lines(string(text[:count])) {
		_, _ = fmt.Sscanf(line, "VmHWM: %d kB", &a.RSS)
	}
	_, _ = own.Seek(0, io.SeekStart)
	names, err := own.Readdirnames(-1)
	if a.Files = len(names) - 1; err != nil {
		a.Problems = err.Error()
	}
}

func (a *answer) get(n *runtime.Node, key string, patience time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	request := key[:strings.IndexByte(key, '@')]
	got, err := n.Receiver().Get(ctx, runtime.Get{Request: request, Keys: []string{key}, Timeout: patience})
	if err != nil {
		a.Problems = err.Error()
		return
	}
	for i := range got.Len() {
		b, err := got.Bytes(i)
		if err != nil {
			a.Problems = err.Error()
			continue
		}
		a.Hits++
		want := content(key, len(b))
		for j := range b {
			if b[j] != want[j] {
				a.Wrong++
			}
		}
	}
	if err := got.Release(ctx); err != nil {
		a.Problems = err.Error()
	}
}

// put puts a batch and counts what failed.
func (a *answer) put(n *runtime.Node, order string) {
	var b batch
	if err := json.Unmarshal([]byte(order), &b); err != nil {
		a.Problems = err.Error()
		return
	}
	for i := range b.Count {
		key := b.key(i)
		if err := putOne(n, b.To, key, time.Second); err != nil {
			a.Failed++
			a.Problems = err.Error()
		}
	}
}

// putOne puts one chunk whose bytes follow from its key.
func putOne(n *runtime.Node, to runtime.Peer, key string, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pages, err := n.Sender().Reserve(ctx, 1)
	if err != nil {
		return err
	}
	b, err := pages.Bytes(0)
	if err == nil {
		copy(b, content(key, len(b)))
		_, err = n.Sender().Put(ctx, runtime.Put{Peer: to, Request: key[:strings.IndexByte(key, '@')], Keys: []string{key},
			Pages: pages, Last: true, Timeout: patience})
	}
	return errors.Join(err, pages.Release(ctx))
}
