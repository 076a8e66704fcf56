package planetest

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/internal/proctest"
	"github.com/kvferry/kvferry/runtime/plane"
)

// childRole is the environment variable that makes a test binary the second process of a test.
const childRole = "KVFERRY_PLANETEST_CHILD"

// Main runs the tests of a package, or the second process of a test, depending on the environment. It fails on leaked
// goroutines.
func Main(m *testing.M, open plane.Opener) {
	switch role := os.Getenv(childRole); role {
	case "":
		goleak.VerifyTestMain(m)
	case "target", "stopped", "initiator", "owner", "reader":
		if err := runChild(open, role); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		fmt.Fprintf(os.Stderr, "%s=%s: unknown role\n", childRole, role)
		os.Exit(2)
	}
}

// A line is a message that the two processes exchange over pipes.
type line struct {
	Inc      effects.Incarnation
	Blob     []byte
	Buffer   effects.BufferID
	Grant    effects.GrantID
	Pages    []effects.Page
	Contents [][]byte // the content of a stopped target's pages
	Code     effects.Code
}

// A peer is the second process.
type peer struct{ *proctest.Process }

func startPeer(t testing.TB, role string) *peer {
	t.Helper()
	return &peer{proctest.Start(t, proctest.SelfCommand(childRole+"="+role))}
}

// readLine waits for the next line of the peer.
func (p *peer) readLine(t testing.TB) (l line) {
	t.Helper()
	p.ReceiveJSON(&l)
	return l
}

// runChild runs the second process. A target never confirms; a stopped target reports the landed pages once the link is
// lost; an initiator pushes until killed; an owner leases pages; a reader reads until killed.
func runChild(open plane.Opener, role string) error {
	n, err := newNode(open, 7, pages, pageBytes)
	if err != nil {
		return err
	}
	n.OnLanded(nil)
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	if err := out.Encode(line{Inc: n.Inc, Blob: n.Plane.Blob(), Buffer: n.Pool.Buffer().ID}); err != nil {
		return err
	}
	t := proctest.TB{}
	var parent line
	if err := in.Decode(&parent); err != nil {
		return err
	}
	switch role {
	case "stopped":
		return runStoppedTarget(t, n, parent.Inc, out)
	case "owner":
		return runOwner(t, n, parent.Inc, in, out)
	case "reader":
		return runReader(t, n, parent, in, out)
	case "target":
		l := line{}
		l.Grant, l.Pages = n.GrantWrite(parent.Inc, 0, pages, pageBytes)
		if err := out.Encode(l); err != nil {
			return err
		}
		AwaitEvent(t, n, func(*effects.Landed) bool { return true })
		if err := out.Encode(line{}); err != nil { // The push has landed; the parent may kill this process now.
			return err
		}
		return in.Decode(&parent) // Waits to be killed.
	}
	link := n.Import(t, parent.Inc, parent.Blob)
	for {
		var l line
		if err := in.Decode(&l); err != nil {
			return err
		}
		from := n.PublishPages(0, len(l.Pages), pageBytes)
		for _, page := range from {
			fillPattern(n.Pool.Bytes(page), uint64(page.Index))
		}
		n.StartPush(Push{To: parent.Inc, Link: link, Grant: l.Grant, From: from, Into: l.Pages, Buffer: parent.Buffer})
	}
}

func targetKilled(t *testing.T, open plane.Opener) {
	t.Logf("the transfer had failed %v after the kill", killTarget(t, OpenNode(t, open, 1, pages, pageBytes)))
}

// killTarget kills a real process in the middle of a transfer into that process, and returns the time from the kill to
// the transfer's failure.
func killTarget(t testing.TB, a *Node) time.Duration {
	p := startPeer(t, "target")
	b := p.readLine(t)
	p.SendJSON(line{Inc: a.Inc})
	granted := p.readLine(t)
	link := a.Import(t, b.Inc, b.Blob)
	corr := a.StartPush(Push{To: b.Inc, Link: link, Grant: granted.Grant, From: a.PublishPages(0, pages, pageBytes),
		Into: granted.Pages, Buffer: b.Buffer})
	p.readLine(t)
	killed := plane.Now()
	p.Kill()
	done := a.AwaitDone(t, corr)
	if done.Code != effects.PeerLost || !done.Settled {
		t.Fatalf("ended as %s, settled %v", done.Code, done.Settled)
	}
	AwaitEvent(t, a, func(e *effects.LinkLost) bool { return e.Link == link && e.Peer == b.Inc })
	a.Plane.Drop(link)
	AwaitEvent(t, a, func(e *effects.Dropped) bool { return e.Link == link })
	return time.Duration(done.At - killed)
}

// BenchKilled reports the time from a target's SIGKILL to the failure of a transfer into the target. Each iteration
// takes a process.
func BenchKilled(b *testing.B, open plane.Opener) {
	a := OpenNode(b, open, 1, pages, pageBytes)
	var taken []float64
	for range b.N {
		taken = append(taken, killTarget(b, a).Seconds()*1e3)
	}
	b.ReportMetric(0, "ns/op")                   // The default would include the start of the process.
	b.ReportMetric(medianOf(taken), "median-ms") // median sorts taken.
	b.ReportMetric(taken[len(taken)-1], "longest-ms")
}

func initiatorKilled(t *testing.T, open plane.Opener) {
	b := OpenNode(t, open, 2, pages, pageBytes)
	p := startPeer(t, "initiator")
	a := p.readLine(t)
	p.SendJSON(line{Inc: b.Inc, Blob: b.Plane.Blob(), Buffer: b.Pool.Buffer().ID})
	for round := range 8 {
		grant, into := b.GrantWrite(a.Inc, 0, pages, pageBytes)
		p.SendJSON(line{Grant: grant, Pages: into})
		if round == 7 {
			p.Kill() // At an arbitrary point of the push, or before the push.
			AwaitEvent(t, b, func(e *effects.LinkLost) bool { return e.Peer == a.Inc })
		} else {
			l := AwaitEvent(t, b, func(e *effects.Landed) bool { return e.Grant == grant })
			if !l.Complete {
				t.Fatalf("round %d: %d pages landed", round, len(l.Pages))
			}
			want := make([]byte, pageBytes)
			for _, page := range l.Pages {
				if fillPattern(want, uint64(page.Index)); string(want) != string(b.Pool.Bytes(page)) {
					t.Fatalf("round %d: page %d differs", round, page.Index)
				}
			}
		}
		b.Pool.Revoke(grant) // Pages that have not landed come back, even though the peer died.
		AwaitEvent(t, b, func(e *effects.Revoked) bool { return e.Grant == grant })
	}
}
