//go:build cgo && linux

package hccl_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/hccl/hccltest"
	"github.com/kvferry/kvferry/runtime/internal/proctest"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

// childRole turns the test binary into a peer: a target, which grants pages and waits, or an initiator, which pushes to
// the pages in the parent's message.
const childRole = "KVFERRY_HCCL_CHILD"

// overHCCS says whether HCCS connects the peer to its parent.
const overHCCS = "KVFERRY_HCCL_HCCS"

func TestMain(m *testing.M) {
	for name, value := range map[string]string{"CANNEMU_DEVICES": "2", "CANNEMU_DEVICE_MEMORY": "67108864",
		"CANNEMU_HOST_MEMORY": "67108864"} {
		os.Setenv(name, value)
	}
	if role := os.Getenv(childRole); role != "" {
		flag.Parse()
		if !runChild(role) {
			os.Exit(1)
		}
		os.Exit(0)
	}
	dir, err := os.MkdirTemp("", "kvferry-hccl")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv("CANNEMU_DIR", dir) // Where this process and its children meet.
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// line is a message between the processes on pipes.
type line struct {
	Inc    effects.Incarnation
	Blob   []byte
	Buffer effects.BufferID
	Grant  effects.GrantID
	Pages  []effects.Page
	Code   effects.Code
	Same   bool
}

// A peer is the child process.
type peer struct {
	*proctest.Process
	// arriving is the number of pieces that seemed to be moving before the process was started: those of processes that were
	// killed in earlier tests while their hardware moved one.
	arriving int64
}

func startPeer(t *testing.T, role string, hccs bool, env ...string) *peer {
	t.Helper()
	env = append([]string{childRole + "=" + role, fmt.Sprintf("%s=%v", overHCCS, hccs)}, env...)
	arriving := hccltest.LoadRig(t).ReadStat(t, "arriving")
	return &peer{proctest.Start(t, proctest.SelfCommand(env...)), arriving}
}

// readLine waits for the peer's next message.
func (p *peer) readLine(t *testing.T) (l line) {
	t.Helper()
	p.ReceiveJSON(&l)
	return l
}

// freezeBetweenWrites freezes the process while its hardware is not moving a piece. Because a NIC does not freeze with
// its process, a frozen process has no writes on their way.
func (p *peer) freezeBetweenWrites(t *testing.T) {
	t.Helper()
	r := hccltest.LoadRig(t)
	for p.Freeze(); r.ReadStat(t, "arriving") != p.arriving; p.Freeze() {
		p.Resume()
		time.Sleep(time.Millisecond)
	}
}

// runChild starts the other process.
func runChild(role string) bool {
	t := proctest.TB{}
	if alone := map[string]func(testing.TB){"hopeless": runWithoutProof, "undestroyed": runUndestroyed,
		"stays": runStuckTarget}[role]; alone != nil {
		alone(t)
		return json.NewEncoder(os.Stdout).Encode(line{Same: true}) == nil
	}
	open := hccltest.LoadRig(t).NodeMaker(hccltest.Options{HCCS: os.Getenv(overHCCS) == "true"})
	id := byte(2)
	if role == "initiator" {
		id = 1
	}
	n, err := planetest.NewLeasedNode(t, open, id, pages, pageBytes)
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
		for in.Decode(&parent) == nil { // The parent asks for the content of pages, by generation.
			same := true
			for i, page := range l.Pages {
				same = same && string(n.ReadPage(t, page)) == string(planetest.PageContent(parent.Inc, parent.Pages[i]))
			}
			say(line{Same: same})
		}
		return true
	}
	link := n.Import(t, parent.Inc, parent.Blob)
	for {
		var l line
		if in.Decode(&l) != nil {
			return true
		}
		corr := n.StartTransfer(planetest.Move{To: parent.Inc, Link: link, Grant: l.Grant, Local: n.PublishFilled(t, 0, len(l.Pages)),
			Remote: l.Pages, Buffer: parent.Buffer})
		say(line{})
		say(line{Code: n.AwaitDone(t, corr).Code})
	}
}

// startPushing opens a node with pages granted to an initiator in another process, which is slowly pushing to these
// pages.
func startPushing(t *testing.T, hccs bool, faults string) (b *planetest.LeasedNode, p *peer, grant effects.GrantID) {
	t.Helper()
	b = planetest.OpenLeased(t, hccltest.StartRig(t).NodeMaker(hccltest.Options{HCCS: hccs}), 2, pages, pageBytes)
	p = startPeer(t, "initiator", hccs, "CANNEMU_FAULTS="+faults)
	a := p.readLine(t)
	p.SendJSON(line{Inc: b.Inc, Blob: b.Plane.Blob(), Buffer: b.Pool.Buffer().ID})
	grant, into := b.GrantWrite(a.Inc, 0, pages)
	p.SendJSON(line{Grant: grant, Pages: into})
	p.readLine(t) // The push has begun.
	return b, p, grant
}

var links = []struct {
	name string
	hccs bool
}{{"roce", false}, {"hccs", true}}

// An initiator that is frozen during a push cannot destroy its end. Over RoCE our end is enough. Over HCCS nothing is
// revoked while the initiator's mapping may exist. After the thaw the initiator stores nothing into revoked pages.
func TestInitiatorIsFrozen(t *testing.T) {
	for _, c := range links {
		for _, faults := range []string{"done:hang=1", "done:hang=1;late:ms=20", "done:delay=50000"} {
			t.Run(c.name+", "+faults, func(t *testing.T) {
				b, p, grant := startPushing(t, c.hccs, faults)
				p.freezeBetweenWrites(t)
				b.Do(&effects.Revoke{Grant: grant})
				if c.hccs {
					time.Sleep(250 * time.Millisecond) // A wrong proof would have arrived by then.
					if planetest.CountEvents(b, func(e *effects.Revoked) bool { return true }) != 0 {
						t.Fatal("revoked while the peer has the memory mapped")
					}
					p.Resume()
				}
				b.AwaitRevoked(t, grant)
				holds := b.FillOwnPages(t, 0, pages)
				if !c.hccs {
					p.Resume()
				}
				// A push that is only slow may have ended before the freeze.
				if end := p.readLine(t); end.Code != effects.Withdrawn && (end.Code != effects.OK || strings.Contains(faults, "hang")) {
					t.Fatalf("its push ended as %s", end.Code)
				}
				holds()
			})
		}
	}
}

// The death of an initiator is proof, over RoCE and over HCCS, frozen or not.
func TestInitiatorIsKilled(t *testing.T) {
	for _, c := range links {
		for _, frozen := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, frozen=%v", c.name, frozen), func(t *testing.T) {
				b, p, grant := startPushing(t, c.hccs, "done:delay=300000")
				if frozen {
					p.Freeze()
					b.Do(&effects.Revoke{Grant: grant})
				}
				p.Kill()
				planetest.AwaitEvent(t, b, func(e *effects.LinkLost) bool {
					return e.Peer == effects.Incarnation{0: 1, 15: 1} &&
						e.Link == 0
				})
				if !frozen {
					b.Do(&effects.Revoke{Grant: grant})
				}
				b.AwaitRevoked(t, grant)
				b.FillOwnPages(t, 0, pages)()
			})
		}
	}
}

// A target takes no part in a push: a frozen target receives the push completely.
func TestTargetIsFrozen(t *testing.T) {
	for _, c := range links {
		t.Run(c.name, func(t *testing.T) {
			a := planetest.OpenLeased(t, hccltest.StartRig(t).NodeMaker(hccltest.Options{HCCS: c.hccs}), 1, pages, pageBytes)
			p := startPeer(t, "target", c.hccs)
			b := p.readLine(t)
			p.SendJSON(line{Inc: a.Inc})
			granted := p.readLine(t)
			link := a.Import(t, b.Inc, b.Blob)
			p.Freeze()
			local := a.PublishFilled(t, 0, pages)
			done := a.AwaitDone(t, a.StartTransfer(planetest.Move{To: b.Inc, Link: link, Grant: granted.Grant, Local: local,
				Remote: granted.Pages, Buffer: b.Buffer}))
			if done.Code != effects.OK {
				t.Fatalf("ended as %s", done.Code)
			}
			p.Resume()
			p.SendJSON(line{Inc: a.Inc, Pages: local})
			if !p.readLine(t).Same {
				t.Fatal("the target does not hold what was pushed")
			}
		})
	}
}

// A push to a target that dies ends as lost peer, whatever the library reports, and the next target can be reached.
func TestTargetIsKilled(t *testing.T) {
	for _, c := range links {
		for _, gone := range []string{"error", "hang", "silent"} {
			t.Run(c.name+", "+gone, func(t *testing.T) {
				r := hccltest.StartRig(t)
				r.RunCommand(t, "set gone="+gone)
				t.Cleanup(func() { r.RunCommand(t, "set gone=error") })
				a := planetest.OpenLeased(t, r.NodeMaker(hccltest.Options{HCCS: c.hccs}), 1, pages, pageBytes)
				for range 2 {
					p := startPeer(t, "target", c.hccs)
					b := p.readLine(t)
					p.SendJSON(line{Inc: a.Inc})
					granted := p.readLine(t)
					link := a.Import(t, b.Inc, b.Blob)
					r.AddFaults(t, "done:delay=50000")
					corr := a.StartTransfer(planetest.Move{To: b.Inc, Link: link, Grant: granted.Grant, Local: a.PublishFilled(t, 0, pages),
						Remote: granted.Pages, Buffer: b.Buffer})
					p.Kill()
					if done := a.AwaitDone(t, corr); done.Code != effects.PeerLost && done.Code != effects.OK {
						t.Fatalf("ended as %s", done.Code)
					}
					planetest.AwaitEvent(t, a, func(e *effects.LinkLost) bool { return e.Link == link && e.Peer == b.Inc })
					a.DropLink(t, link)
					r.ClearFaults(t)
				}
			})
		}
	}
}
