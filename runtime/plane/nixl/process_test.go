//go:build cgo && linux

package nixl_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/internal/proctest"
	"github.com/kvferry/kvferry/runtime/libnixl/libnixltest"
	"github.com/kvferry/kvferry/runtime/libnixl/nixlproc"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/nixl"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

// childRole makes the test binary the second process of a test: a target that grants pages and waits, or an initiator
// that pushes into them again and again. overTransports selects the transports.
const (
	childRole      = "KVFERRY_NIXL_CHILD"
	overTransports = "KVFERRY_NIXL_TRANSPORTS"
)

// A push of all pages takes milliseconds, and there are many pushes, so that whatever happens to a process happens in
// the middle of one.
const (
	pages     = 32
	pageBytes = 1 << 20
	pushes    = 64
)

func TestMain(m *testing.M) {
	if nixlproc.IsChild() {
		nixlproc.Main()
	}
	if role := os.Getenv(childRole); role != "" {
		flag.Parse()
		child(proctest.TB{}, role)
		libnixltest.ExitProcess(0)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(libnixltest.ExitProcess))
}

// A line is what the two processes exchange over pipes.
type line struct {
	Inc    effects.Incarnation
	Blob   []byte
	Buffer effects.BufferID
	Grant  effects.GrantID
	Pages  []effects.Page
	Codes  map[string]int
	Same   bool
}

// A peer is the second process.
type peer struct{ *proctest.Process }

func startPeer(t *testing.T, role, transports string) *peer {
	t.Helper()
	libnixltest.LoadLibrary(t)
	env := []string{childRole + "=" + role, overTransports + "=" + transports}
	return &peer{proctest.Start(t, proctest.SelfCommand(env...))}
}

// read waits for the next line of the peer.
func (p *peer) read() (l line) {
	p.ReceiveJSON(&l)
	return l
}

// child runs the second process.
func child(t testing.TB, role string) {
	id := byte(2)
	if role == "initiator" {
		id = 1
	}
	n, err := planetest.NewLeasedNode(t, maker(os.Getenv(overTransports)), id, pages, pageBytes)
	if err != nil {
		t.Fatal(err)
	}
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	say := func(l line) {
		if err := out.Encode(l); err != nil {
			t.Fatal(err)
		}
	}
	say(line{Inc: n.Inc, Blob: n.Plane.Blob(), Buffer: n.Pool.Buffer().ID})
	var parent line
	if err := in.Decode(&parent); err != nil {
		t.Fatal(err)
	}
	if role == "target" {
		l := line{}
		l.Grant, l.Pages = n.GrantWrite(parent.Inc, 0, pages)
		say(l)
		// The parent asks what the pages hold: its own content, in the generations that it names.
		for in.Decode(&parent) == nil {
			same := true
			for i, page := range l.Pages {
				same = same && string(n.ReadPage(t, page)) == string(planetest.PageContent(parent.Inc, parent.Pages[i]))
			}
			say(line{Same: same})
		}
		return
	}
	link := n.Import(t, parent.Inc, parent.Blob)
	for {
		var l line
		if in.Decode(&l) != nil {
			return
		}
		var corrs []effects.Corr
		local := n.PublishFilled(t, 0, len(l.Pages))
		for range pushes {
			corrs = append(corrs, n.StartTransfer(planetest.Move{To: parent.Inc, Link: link, Grant: l.Grant, Local: local,
				Remote: l.Pages, Buffer: parent.Buffer}))
		}
		n.AwaitDone(t, corrs[0])
		say(line{}) // The pushes go on.
		ends := line{Codes: map[string]int{}}
		for _, corr := range corrs[1:] {
			ends.Codes[n.AwaitDone(t, corr).Code.String()]++
		}
		say(ends)
	}
}

// startPushing is a node with pages granted to an initiator in another process, which is pushing into them.
func startPushing(t *testing.T, transports string) (b *planetest.LeasedNode, p *peer, grant effects.GrantID) {
	t.Helper()
	p = startPeer(t, "initiator", transports)
	b = planetest.OpenLeased(t, maker(transports), 2, pages, pageBytes)
	a := p.read()
	p.SendJSON(line{Inc: b.Inc, Blob: b.Plane.Blob(), Buffer: b.Pool.Buffer().ID})
	grant, into := b.GrantWrite(a.Inc, 0, pages)
	p.SendJSON(line{Grant: grant, Pages: into})
	p.read() // The initiator is in the middle of its pushes.
	return b, p, grant
}

// An initiator that is frozen in the middle of its pushes cannot destroy its agent. If our agent stores what it
// sends, the end of our agent is enough. If it reaches into our process, nothing is revoked before it reports the end
// of its agent. After it is resumed it stores nothing into revoked pages.
func TestInitiatorIsFrozen(t *testing.T) {
	for _, c := range transports {
		t.Run(c.name, func(t *testing.T) {
			b, p, grant := startPushing(t, c.transports)
			p.Freeze()
			b.Do(&effects.Revoke{Grant: grant})
			if c.attaches {
				time.Sleep(250 * time.Millisecond) // A false proof would have arrived by then.
				if planetest.CountEvents(b, func(e *effects.Revoked) bool { return true }) != 0 {
					t.Fatal("revoked while the peer may reach into this process")
				}
				p.Resume()
			}
			b.AwaitRevoked(t, grant)
			holds := b.FillOwnPages(t, 0, pages)
			if !c.attaches {
				p.Resume()
			}
			ends := p.read().Codes
			if n := ends[effects.OK.String()] + ends[effects.Withdrawn.String()]; n != pushes-1 {
				t.Fatalf("its pushes ended as %v", ends)
			}
			if ends[effects.Withdrawn.String()] == 0 {
				t.Log("all pushes had ended before the freeze")
			}
			holds()
		})
	}
}

// The death of an initiator is proof, whatever transport it used, and whether it was frozen or not.
func TestInitiatorIsKilled(t *testing.T) {
	for _, c := range transports {
		for _, frozen := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, frozen=%v", c.name, frozen), func(t *testing.T) {
				b, p, grant := startPushing(t, c.transports)
				if frozen {
					p.Freeze()
					b.Do(&effects.Revoke{Grant: grant})
				}
				p.Kill()
				planetest.AwaitEvent(t, b, func(e *effects.LinkLost) bool {
					return e.Peer == effects.Incarnation{0: 1, 15: 1} && e.Link == 0
				})
				if !frozen {
					b.Do(&effects.Revoke{Grant: grant})
				}
				b.AwaitRevoked(t, grant)
				holds := b.FillOwnPages(t, 0, pages)
				again := planetest.OpenLeased(t, maker(c.transports), 3, pages, pageBytes)
				back := &planetest.LeasedPair{A: again, B: b, Link: again.Import(t, b.Inc, b.Plane.Blob())}
				holds()
				push := back.NewPush(t, 0, pages)
				back.WantEnd(t, push, effects.OK)
				back.WantArrived(t, push)
			})
		}
	}
}

// A frozen target takes no part in a push that reaches into its process, and gets the push whole. Otherwise the push
// waits; when it is cancelled it ends at once, and is settled when the target reports that its agent is gone.
func TestTargetIsFrozen(t *testing.T) {
	for _, c := range transports {
		t.Run(c.name, func(t *testing.T) {
			p := startPeer(t, "target", c.transports)
			hasty := maker(c.transports, func(c *nixl.Config) { c.CancelGrace = time.Millisecond })
			a := planetest.OpenLeased(t, hasty, 1, pages, pageBytes)
			b := p.read()
			p.SendJSON(line{Inc: a.Inc})
			granted := p.read()
			link := a.Import(t, b.Inc, b.Blob)
			move := planetest.Move{To: b.Inc, Link: link, Grant: granted.Grant, Since: plane.Now(),
				Local: a.PublishFilled(t, 0, pages), Remote: granted.Pages, Buffer: b.Buffer}
			p.Freeze()
			corr := a.StartTransfer(move)
			if !c.attaches {
				for a.Plane.(*nixl.Plane).Stats().Batches == 0 {
					time.Sleep(time.Millisecond)
				}
				a.Do(&effects.Cancel{Corr: corr})
				done := planetest.AwaitEvent(t, a, func(e *effects.TransferDone) bool { return e.Corr == corr })
				if done.Code != effects.Cancelled || done.Settled {
					t.Fatalf("ended as %s, settled %v", done.Code, done.Settled)
				}
				time.Sleep(100 * time.Millisecond) // A false proof would have arrived by then.
				if planetest.CountEvents(a, func(e *effects.Settled) bool { return e.Corr == corr }) != 0 {
					t.Fatal("settled while the target's agent may store")
				}
				p.Resume()
				a.AwaitSettled(t, corr)
				corr = a.StartTransfer(move) // The link keeps working.
			}
			if done := a.AwaitDone(t, corr); done.Code != effects.OK {
				t.Fatalf("ended as %s", done.Code)
			}
			if c.attaches {
				p.Resume()
			}
			p.SendJSON(line{Inc: a.Inc, Pages: move.Local})
			if !p.read().Same {
				t.Fatal("the target does not hold what was pushed")
			}
		})
	}
}

// A push to a target that dies ends as PeerLost, settled, and the next target is reached.
func TestTargetIsKilled(t *testing.T) {
	for _, c := range transports {
		t.Run(c.name, func(t *testing.T) {
			libnixltest.LoadLibrary(t)
			a := planetest.OpenLeased(t, maker(c.transports), 1, pages, pageBytes)
			for range 2 {
				p := startPeer(t, "target", c.transports)
				b := p.read()
				p.SendJSON(line{Inc: a.Inc})
				granted := p.read()
				link := a.Import(t, b.Inc, b.Blob)
				local := a.PublishFilled(t, 0, pages)
				var corrs []effects.Corr
				for range pushes {
					corrs = append(corrs, a.StartTransfer(planetest.Move{To: b.Inc, Link: link, Grant: granted.Grant, Local: local,
						Remote: granted.Pages, Buffer: b.Buffer}))
				}
				a.AwaitDone(t, corrs[0])
				p.Kill()
				for _, corr := range corrs[1:] {
					if done := a.AwaitDone(t, corr); done.Code != effects.PeerLost && done.Code != effects.OK &&
						done.Code != effects.Faulted {
						t.Fatalf("ended as %s", done.Code)
					}
				}
				planetest.AwaitEvent(t, a, func(e *effects.LinkLost) bool { return e.Link == link && e.Peer == b.Inc })
				a.DropLink(t, link)
			}
		})
	}
}
