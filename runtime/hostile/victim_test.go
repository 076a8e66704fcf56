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
	"github.com/kvferry/kvferry/runtime/internal/proctest"
)

// A victim is the node under attack as its test sees it.
type victim struct {
	*proctest.Process
	t     testing.TB
	setup setup
	log   logtest.Lines
	peer  runtime.Peer

	mu    sync.Mutex // for one order at a time
	files int        // at most seen
}

// startVictim starts one; through a program that starts it, if one is given.
func startVictim(t testing.TB, s setup, stderr io.Writer, through ...string) *victim {
	t.Helper()
	if s.Files == 0 {
		s.Files = 256
	}
	// Under the race detector it would wait a second at its end for races that are not to come any more.
	cmd := proctest.SelfCommand(s.env(), "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	if len(through) > 0 {
		env := cmd.Env
		cmd = exec.Command(through[0], append(through[1:], cmd.Args...)...)
		cmd.Env = env
	}
	v := &victim{t: t, setup: s}
	if cmd.Stderr = stderr; stderr == nil {
		cmd.Stderr = &v.log
	}
	v.Process = proctest.Start(t, cmd)
	late := time.AfterFunc(5*time.Minute, v.Kill)
	t.Cleanup(func() {
		v.CloseInput()
		if s := v.ExitStatus(); !s.Exited() || s.ExitStatus() != 0 {
			t.Errorf("the victim ended with %#x", s)
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
	v.WriteLine(order)
	if line, ok := v.NextLine(nil); !ok {
		v.t.Error("the victim says nothing any more")
	} else if err := json.Unmarshal(line, &a); err != nil {
		v.t.Errorf("the victim says %q: %v", line, err)
	}
	v.files = max(v.files, a.Files)
	return a
}
