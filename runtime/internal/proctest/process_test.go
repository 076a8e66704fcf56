//go:build unix

package proctest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

const role = "KVFERRY_PROCTEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(role) == "" {
		goleak.VerifyTestMain(m)
		return
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		switch lines.Text() {
		case `"freeze"`:
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		case `"fail"`:
			TB{}.Fatalf("as %s", "told")
		}
		fmt.Println("this is no JSON")
		_ = json.NewEncoder(os.Stdout).Encode(lines.Text())
	}
}

// A process replies, freezes by itself and on request, continues where it was, and ends by itself, by a failure and
// by a signal. Its parent observes each of these.
func TestProcess(t *testing.T) {
	p := Start(t, SelfCommand(role+"=1"))
	hears := func(want string) {
		t.Helper()
		var got string
		if p.ReceiveJSON(&got); got != want {
			t.Fatalf("heard %s, want %s", got, want)
		}
	}
	p.SendJSON("first")
	hears(`"first"`)
	p.SendJSON("freeze")
	p.AwaitFrozen()
	<-p.FrozenOnce()
	p.SendJSON("after")
	p.Resume()
	hears(`"freeze"`)
	hears(`"after"`)
	for range 3 {
		p.Freeze()
		p.WriteLine("x")
		p.Resume()
		hears("x")
	}
	p.WriteLine("last")
	p.CloseInput()
	if s := p.ExitStatus(); !s.Exited() || s.ExitStatus() != 0 {
		t.Errorf("ended with %#x", s)
	}
	hears("last") // including what it wrote right before its end
	if _, ok := p.NextLine(nil); ok {
		t.Error("it speaks on")
	}
	p.SendJSON("to nobody")
	p.Resume()
	p.Kill()

	p = Start(t, SelfCommand(role+"=1"))
	p.SendJSON("fail")
	if s := p.ExitStatus(); !s.Exited() || s.ExitStatus() != 1 {
		t.Errorf("a failure ended it with %#x", s)
	}
	p = Start(t, SelfCommand(role+"=1"))
	p.Freeze()
	p.Kill()
	if s := p.ExitStatus(); s.Signal() != syscall.SIGKILL {
		t.Errorf("a signal ended it with %#x", s)
	}
}
