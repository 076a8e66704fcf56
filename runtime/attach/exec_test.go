package attach

import (
	"bufio"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/kvferry/kvferry/fsm/session"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime/internal/proctest"
)

// execProcess is an engine that holds pages, and then becomes another program of the same file: one that holds other
// pages of the same agent ("again"), or one that has nothing to do with it.
func execProcess(path string) {
	var t proctest.TB
	c := attach(t, path)
	fmt.Println(len(c.ok(protocol.CallReserve, protocol.EngineCall{Count: 3}).Pages))
	next, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	variable := "ATTACH_WAIT=1"
	if next == "again\n" {
		variable = "ATTACH_ENGINE=" + path
	}
	if err := os.Unsetenv("ATTACH_EXEC"); err != nil {
		t.Fatal(err)
	}
	t.Fatal(syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), variable)))
}

// What a program holds is given back when its process runs another one: nothing is mapped any more.
func TestAProgramThatIsReplacedLeavesNothing(t *testing.T) {
	r := newRig(t, "sender")
	p := proctest.Start(t, proctest.SelfCommand("ATTACH_EXEC="+r.s.Path()))
	var n int
	p.ReceiveJSON(&n)
	if s := r.node.Stats(); s.PagesTotal-s.PagesFree != 3 || n != 3 {
		t.Fatalf("%d pages are reserved, and the engine has %d", s.PagesTotal-s.PagesFree, n)
	}
	p.WriteLine("wait")
	p.ReceiveJSON(&n) // The other program runs.
	r.quiet()
}

// The same where that program attaches before it is known that it is another one.
func TestAProgramThatIsReplacedByAnEngine(t *testing.T) {
	r := newRig(t, "sender")
	p := proctest.Start(t, proctest.SelfCommand("ATTACH_EXEC="+r.s.Path()))
	var n int
	p.ReceiveJSON(&n)
	p.WriteLine("again")
	p.ReceiveJSON(&n)
	r.await(func() bool {
		s, c := r.node.Stats(), r.s.Counts()
		return s.PagesTotal-s.PagesFree == 3 && c.Engines == 1 && c.Holdings == 1
	})
	p.Kill()
	<-p.Exited()
	r.quiet()
}

// One process does not take the places of all.
func TestOneProcessHasAShareOfThePlaces(t *testing.T) {
	r := newRig(t, "sender")
	most := r.s.cfg.Engines / 4
	for range most {
		r.attach()
	}
	c := &client{t: t, path: r.s.Path()}
	c.connect(protocol.AttachRequest{Version: protocol.AttachVersion})
	c.close()
	if got := string(c.told.Reason); got != "this process has 16 engines attached, and one process may have 16 of "+
		"--engines=64; close clients that it does not use, or raise --engines" {
		t.Errorf("%d: %s", c.told.Code, got)
	}
	p := proctest.Start(t, proctest.SelfCommand("ATTACH_ENGINE="+r.s.Path())) // Another process has room.
	var n int
	p.ReceiveJSON(&n)
	p.Kill()
	<-p.Exited()
}

// The open calls of one engine are bounded by what they take, and what is refused says by what.
func TestOpenCallsTakeSoMuchAtMost(t *testing.T) {
	r := newRig(t, "receiver")
	c := r.attach()
	get := protocol.EngineCall{PatienceNS: patience, Request: []byte("r")}
	for i := range 4000 {
		get.Keys = append(get.Keys, fmt.Appendf(nil, "model@1@0@%016x@bfloat16", i))
	}
	fit := r.s.cfg.CallBytes / session.CallCost(&get)
	if fit < 8 || fit >= int(c.told.Window) {
		t.Fatalf("%d of these calls fit", fit)
	}
	var open []uint64
	for range fit {
		open = append(open, c.begin(protocol.CallGet, get))
	}
	a := c.call(protocol.CallGet, get)
	want := fmt.Sprintf("too_many: bytes of open calls is %d with this one, want at most %d; wait for calls that are "+
		"open, name fewer keys in one, or raise --call-bytes ", (fit+1)*session.CallCost(&get), r.s.cfg.CallBytes)
	if said(a) != want {
		t.Errorf("%q\ninstead of\n%q", said(a), want)
	}
	c.ok(protocol.CallAbort, protocol.EngineCall{Target: open[0], Done: c.done()}) // What ends something is always taken.
	c.answer(open[0])
	get.Done = c.done()
	open[0] = c.begin(protocol.CallGet, get)
	for _, id := range open {
		c.ok(protocol.CallAbort, protocol.EngineCall{Target: id, Done: c.done()})
		c.answer(id)
	}
}
