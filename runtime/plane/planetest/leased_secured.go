package planetest

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/secure"
)

// A SecuredSuite describes a leased plane whose channel a guard authenticates.
type SecuredSuite struct {
	Open LeasedMaker // makes nodes with certificates (LeasedMaker.WithCertificates)
	// PushTimes is the number of times that a push is made where pushes are to be under way; the pages are the same, which
	// not all hardware allows. SlowDown, if set, makes pushes slow until the end of the test.
	PushTimes int
	SlowDown  func(*testing.T)
}

// RunSecured runs the suite.
func RunSecured(t *testing.T, suite *SecuredSuite) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, *SecuredSuite)
	}{
		{"modes of two nodes", securedModes},
		{"strangers are refused by name", securedStrangers},
		{"a proof is not passed on", securedProof},
		{"the target refuses its peer", securedTargetRefuses},
		{"the initiator refuses its peer", securedInitiatorRefuses},
		{"a certificate ends", securedCertificateEnds},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, suite) })
	}
}

// Which modes of two nodes have a link between them, and whether a push over it arrives.
func securedModes(t *testing.T, s *SecuredSuite) {
	for _, c := range []struct {
		from, to secure.Mode
		linked   bool
		refusal  string // in the target's log
	}{
		{secure.Off, secure.Permissive, true, ""},
		{secure.Off, secure.Strict, false, "the connection is not encrypted"},
		{secure.Permissive, secure.Off, true, "the peer speaks TLS"},
		{secure.Permissive, secure.Permissive, true, ""},
		{secure.Permissive, secure.Strict, true, ""},
		{secure.Strict, secure.Off, false, "the peer speaks TLS"},
		{secure.Strict, secure.Permissive, true, ""},
		{secure.Strict, secure.Strict, true, ""},
	} {
		t.Run(c.from.String()+" to "+c.to.String(), func(t *testing.T) {
			f := UseFleet(t)
			f.SetMode(1, c.from)
			f.SetMode(2, c.to)
			p := &LeasedPair{A: OpenLeased(t, s.Open, 1, 4, leasedPageBytes), B: OpenLeased(t, s.Open, 2, 4, leasedPageBytes)}
			imported := p.A.TryImport(t, p.B.Inc, p.B.Plane.Blob())
			if linked := imported.Code == effects.OK; linked != c.linked {
				t.Fatalf("the link is %s:\n%s%s", imported.Code, f.Log(1), f.Log(2))
			}
			if c.refusal != "" {
				f.wantRefused(t, 2, c.refusal)
			}
			if !c.linked {
				return
			}
			p.Link = imported.Link
			push := p.NewPush(t, 0, 4)
			p.WantEnd(t, push, effects.OK)
			p.WantArrived(t, push)
			read := p.NewRead(t, 0, 4)
			p.WantEnd(t, read, effects.OK)
			p.WantArrived(t, read)
		})
	}
}

// dialChannel connects to the channel of a node.
func (n *LeasedNode) dialChannel(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", string(n.Plane.Blob()[3:]))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(eventTimeout)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// wantRefused waits until the node's log has a line with all texts.
func (f *Fleet) wantRefused(t *testing.T, node byte, texts ...string) {
	t.Helper()
	for deadline := time.Now().Add(eventTimeout); ; time.Sleep(time.Millisecond) {
		for line := range strings.Lines(f.Log(node).String()) {
			found := true
			for _, text := range texts {
				found = found && strings.Contains(line, text)
			}
			if found {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("no line with %q:\n%s", texts, f.Log(node))
		}
	}
}

// A process without a certificate, or with another role, gets no link, and the log names its address or its identity. Each
// case has a node of its own, because the rate of log lines about one address is limited.
func securedStrangers(t *testing.T, s *SecuredSuite) {
	f := UseFleet(t)
	greetWith := func(conn net.Conn, err error) error {
		if err == nil {
			_, err = conn.Write([]byte("hello"))
		}
		if err == nil {
			_, err = conn.Read(make([]byte, 1))
		}
		return err
	}
	as := func(identity string) func(net.Conn) error {
		return func(conn net.Conn) error {
			secured, _, err := f.Guard(t, identity).Connect(t.Context(), conn, secure.FaceData, effects.AllRoles)
			return greetWith(secured, err)
		}
	}
	for _, c := range []struct {
		name, identity string
		greet          func(net.Conn) error
		cause          string
	}{
		{"without TLS", "", func(conn net.Conn) error { return greetWith(conn, nil) }, "not encrypted"},
		{"without a certificate", "", func(conn net.Conn) error {
			return greetWith(tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"kvferry-data"}}), nil)
		}, "certificate"},
		{"a proxy", "spiffe://fleet/proxy/1", as("spiffe://fleet/proxy/1"), "pages are only for"},
		{"without a role", "spiffe://fleet/unknown/1", as("spiffe://fleet/unknown/1"), "no role"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := OpenLeased(t, s.Open, 2, 4, leasedPageBytes)
			conn := b.dialChannel(t)
			if err := c.greet(conn); err == nil {
				t.Error("the plane answers")
			}
			f.wantRefused(t, 2, conn.LocalAddr().String(), c.identity, c.cause)
		})
	}
}

// A member of the fleet that is between two nodes cannot pass the proof of one of them on to the other.
func securedProof(t *testing.T, s *SecuredSuite) {
	f := UseFleet(t)
	a, b := OpenLeased(t, s.Open, 1, 4, leasedPageBytes), OpenLeased(t, s.Open, 2, 4, leasedPageBytes)
	between := f.Guard(t, memberName(3))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var relay sync.WaitGroup
	relay.Go(func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		fromA, _, err := between.Accept(conn, secure.FaceData, effects.AllRoles)
		if err != nil {
			t.Error(err)
			return
		}
		defer fromA.Close()
		toB, _, err := between.Connect(context.Background(), b.dialChannel(t), secure.FaceData, effects.AllRoles)
		if err != nil {
			t.Error(err)
			return
		}
		defer toB.Close()
		relay.Go(func() { _, _ = io.Copy(toB, fromA) })
		_, _ = io.Copy(fromA, toB)
	})
	defer relay.Wait()
	defer listener.Close()
	address := listener.Addr().String()
	blob := append([]byte{b.Plane.Blob()[0], byte(len(address)), 0}, address...)
	if imported := a.TryImport(t, b.Inc, blob); imported.Code != effects.Refused {
		t.Errorf("the import ended as %s", imported.Code)
	}
	f.wantRefused(t, 2, "does not prove its identity")
}

// A refusedPair is a pair with pushes under way, one end of which is going to refuse the other.
type refusedPair struct {
	*LeasedPair
	pushes []Move
	corrs  []effects.Corr // of the pushes that may not have ended
}

func newRefusedPair(t *testing.T, s *SecuredSuite) *refusedPair {
	t.Helper()
	const count = 4
	p := &refusedPair{LeasedPair: leasedPair(t, s.Open)}
	for first := 0; first < leasedPages; first += count {
		p.pushes = append(p.pushes, p.NewPush(t, first, count))
	}
	if s.SlowDown != nil {
		s.SlowDown(t)
	}
	for range s.PushTimes {
		for _, push := range p.pushes {
			p.corrs = append(p.corrs, p.A.StartTransfer(push))
		}
	}
	p.A.AwaitDone(t, p.corrs[0])
	p.corrs = p.corrs[1:]
	return p
}

// wantOver checks the end of the link: its transfers end, all of them settled; the grants are revoked, after which
// nothing is stored into their pages; and no new link is made.
func (p *refusedPair) wantOver(t *testing.T) {
	t.Helper()
	AwaitEvent(t, p.B, func(e *effects.LinkLost) bool { return e.Peer == p.A.Inc && e.Link == 0 })
	for _, push := range p.pushes {
		p.B.Do(&effects.Revoke{Grant: push.Grant})
	}
	for _, push := range p.pushes {
		p.B.AwaitRevoked(t, push.Grant)
	}
	holds := p.B.FillOwnPages(t, 0, leasedPages)
	AwaitEvent(t, p.A, func(e *effects.LinkLost) bool { return e.Link == p.Link })
	ends := map[effects.Code]int{}
	for _, corr := range p.corrs {
		ends[p.A.AwaitDone(t, corr).Code]++
	}
	t.Logf("the pushes ended as %v", ends)
	if ends[effects.OK]+ends[effects.PeerLost]+ends[effects.Withdrawn] != len(p.corrs) {
		t.Errorf("the pushes ended as %v", ends)
	}
	p.A.DropLink(t, p.Link)
	holds()
	if imported := p.A.TryImport(t, p.B.Inc, p.B.Plane.Blob()); imported.Code == effects.OK {
		t.Error("a new link was made")
	}
}

// The target's policy has the initiator no more: the link ends, and a link of another peer goes on.
func securedTargetRefuses(t *testing.T, s *SecuredSuite) {
	f := UseFleet(t)
	p := newRefusedPair(t, s)
	other := &LeasedPair{A: OpenLeased(t, s.Open, 3, 4, leasedPageBytes), B: p.B}
	other.Link = other.A.Import(t, p.B.Inc, p.B.Plane.Blob())
	f.Revoke(t, 2, 1)
	p.wantOver(t)
	f.wantRefused(t, 2, "a connection is closed", memberName(1))
	again := other.NewPush(t, 0, 4)
	other.WantEnd(t, again, effects.OK)
	other.WantArrived(t, again)
}

// The initiator's policy has the target no more. The initiator's connection must not end before its pushes are over,
// because the target takes its end for the proof of that (M4).
func securedInitiatorRefuses(t *testing.T, s *SecuredSuite) {
	f := UseFleet(t)
	p := newRefusedPair(t, s)
	f.Revoke(t, 1, 2)
	p.wantOver(t)
	f.wantRefused(t, 1, "a connection is closed", memberName(2))
}

// All certificates end while pushes are under way.
func securedCertificateEnds(t *testing.T, s *SecuredSuite) {
	f := UseFleet(t)
	p := newRefusedPair(t, s)
	f.EndCertificates()
	p.wantOver(t)
	if f.Log(1).CountText("the peer showed has ended")+f.Log(2).CountText("the peer showed has ended") == 0 {
		t.Errorf("neither log says why:\n%s%s", f.Log(1), f.Log(2))
	}
}
