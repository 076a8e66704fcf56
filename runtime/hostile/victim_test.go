//go:build cgo && linux

package hostile_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/internal/logtest"
)

// A victim is the node under attack as its test sees it.
type victim struct {
	t     testing.TB
	setup setup
	cmd   *exec.Cmd
	log   logtest.Lines
	peer  runtime.Peer

	mu    sync.Mutex // for one order at a time
	in    io.WriteCloser
	out   *json.Decoder
	files int // at most seen
}

// startVictim starts one; through a program that starts it, if one is given.
func startVictim(t testing.TB, s setup, stderr io.Writer, through ...string) *victim {
	t.Helper()
	if s.Files == 0 {
		s.Files = 256
	}
	through = append(through, os.Args[0], "-test.run=^$")
	v := &victim{t: t, setup: s, cmd: exec.Command(through[0], through[1:]...)}
	// Under the race detector it would wait a second at its end for races that are not to come any more.
	v.cmd.Env = append(os.Environ(), s.env(), "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	var err error
	if v.cmd.Stderr = stderr; stderr == nil {
		v.cmd.Stderr = &v.log
	}
	if v.in, err = v.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	v.out = json.NewDecoder(out)
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(5*time.Minute, func() { _ = v.cmd.Process.Kill() })
	t.Cleanup(func() {
		_ = v.in.Close()
		if err := v.cmd.Wait(); err != nil {
			t.Errorf("the victim ended: %v", err)
		}
		late.Stop()
	})
	v.peer = v.says("").Peer
	return v
}

func (v *victim) initAddr() string { return net.JoinHostPort(v.peer.Host, fmt.Sprint(v.peer.InitPort)) }

// says gives the victim an order and returns its answer. It may be called from any goroutine.
func (v *victim) says(order string) (a answer) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, err := fmt.Fprintln(v.in, order); err != nil {
		v.t.Errorf("the victim takes no order any more: %v", err)
	} else if err := v.out.Decode(&a); err != nil {
		v.t.Errorf("the victim says nothing any more: %v", err)
	}
	v.files = max(v.files, a.Files)
	return a
}
