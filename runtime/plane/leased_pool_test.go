package plane

import (
	"errors"
	"slices"
	"testing"

	"github.com/kvferry/kvferry/effects"
)

// fakeExpeller is a plane for which the test gives the proof.
type fakeExpeller struct {
	expelled []effects.Incarnation
	gone     []func()
	asked    func()
}

func (g *fakeExpeller) Expel(peer effects.Incarnation, gone func()) {
	g.expelled, g.gone = append(g.expelled, peer), append(g.gone, gone)
	if g.asked != nil {
		g.asked()
	}
}

type leasedSink struct{ revoked []effects.GrantID }

func (s *leasedSink) Post(ev effects.Event) {
	s.revoked = append(s.revoked, ev.(*effects.Revoked).Grant)
}

func newLeasedPool(t *testing.T) (*LeasedPool, *leasedSink) {
	t.Helper()
	sink := &leasedSink{}
	l, err := NewLeasedPool(LeasedPoolConfig{ID: 1, Buffer: effects.BufferID{7}, Pages: 4, PageBytes: 100, Sink: sink,
		Region: Region{Base: 0x1000, Bytes: 4096}})
	if err != nil {
		t.Fatal(err)
	}
	return l, sink
}

func TestLeasedPoolRevokesWhenEveryPlaneHasProof(t *testing.T) {
	l, sink := newLeasedPool(t)
	a, b := &fakeExpeller{}, &fakeExpeller{}
	l.AddExpeller(a)
	l.AddExpeller(b)
	peer := effects.Incarnation{1}
	const grant = 5<<16 | 3
	a.asked = func() {
		if ids, _ := l.RevokedGrants(peer); !slices.Equal(ids, []effects.GrantID{grant}) {
			t.Errorf("while the peer is expelled its revoked grants are %v", ids)
		}
	}
	l.Grant(&effects.Grant{ID: grant, Peer: peer})
	l.Revoke(grant)
	if !slices.Equal(a.expelled, []effects.Incarnation{peer}) || !slices.Equal(b.expelled, a.expelled) {
		t.Fatalf("expelled %v and %v", a.expelled, b.expelled)
	}
	b.gone[0]()
	if len(sink.revoked) != 0 {
		t.Fatal("revoked on the proof of one of two planes")
	}
	a.gone[0]()
	if !slices.Equal(sink.revoked, []effects.GrantID{grant}) {
		t.Fatalf("revoked %v", sink.revoked)
	}
}

func TestLeasedPoolRevokesWithoutLinks(t *testing.T) {
	l, sink := newLeasedPool(t)
	g := &fakeExpeller{}
	l.AddExpeller(g)
	l.Grant(&effects.Grant{ID: 1<<16 | 1})                               // without a peer
	l.Grant(&effects.Grant{ID: 2<<16 | 2, Peer: effects.Incarnation{1}}) // ended by its holder, and
	l.Grant(&effects.Grant{ID: 3<<16 | 2, Peer: effects.Incarnation{2}}) // its low bits reused by another grant
	for _, id := range []effects.GrantID{1<<16 | 1, 2<<16 | 2, 9<<16 | 9} {
		l.Revoke(id)
	}
	if len(g.expelled) != 0 || len(sink.revoked) != 3 {
		t.Fatalf("expelled %v, revoked %v", g.expelled, sink.revoked)
	}
	l.Revoke(3<<16 | 2)
	if len(g.expelled) != 1 || g.expelled[0] != (effects.Incarnation{2}) {
		t.Fatalf("expelled %v", g.expelled)
	}
}

func TestLeasedPoolDropsOldRevocationsSafely(t *testing.T) {
	l, _ := newLeasedPool(t)
	peer, other := effects.Incarnation{1}, effects.Incarnation{2}
	for n := range effects.GrantID(MaxRevoked + 10) {
		who := peer
		if n%2 == 1 {
			who = other
		}
		id := (n+1)<<16 | n%8
		l.Grant(&effects.Grant{ID: id, Peer: who})
		l.Revoke(id)
	}
	if ids, more := l.RevokedGrants(peer); len(ids) != MaxRevoked/2 || !more {
		t.Fatalf("%d remembered, and others: %v", len(ids), more)
	}
	if ids, more := l.RevokedGrants(effects.Incarnation{3}); len(ids) != 0 || more {
		t.Fatalf("of a peer of whom nothing was taken back %d are remembered, and others: %v", len(ids), more)
	}
	for n := range MaxRevoked + 1 { // one peer each, whose revoked grant is dropped from the list
		l.dropRevoked(effects.Incarnation{9, byte(n), byte(n >> 8)})
	}
	if _, more := l.RevokedGrants(effects.Incarnation{3}); !more || len(l.droppedPeers) > 0 {
		t.Fatalf("%d peers are remembered as those of whom something is not; others: %v", len(l.droppedPeers), more)
	}
}

func TestLeasedAddresses(t *testing.T) {
	l, _ := newLeasedPool(t)
	if at := l.PageAddress(effects.Page{Pool: 1, Index: 3, Length: 100}); at != 0x1000+300 {
		t.Fatalf("page 3 is at %#x", at)
	}
	if l.Has(effects.Page{Pool: 1, Index: 4}) || l.Has(effects.Page{Index: 0}) ||
		l.Has(effects.Page{Pool: 1, Length: 101}) {
		t.Fatal("a page that it has not")
	}
	if r := l.Regions(); len(r) != 1 || r[0] != l.FirstRegion() {
		t.Fatalf("regions %v", r)
	}
	for _, bad := range []LeasedPoolConfig{
		{Pages: 4, PageBytes: 100, Region: Region{Bytes: 4096}},
		{Pages: 41, PageBytes: 100, Region: Region{Bytes: 4096}, Sink: &leasedSink{}},
		{PageBytes: 100, Region: Region{Bytes: 4096}, Sink: &leasedSink{}},
	} {
		if _, err := NewLeasedPool(bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// The pages of a second pool are numbered after those of the first, and lie in memory of their own. Peers know that
// pool by another name.
func TestLeasedSecondPool(t *testing.T) {
	c := LeasedPoolConfig{ID: 1, Buffer: effects.BufferID{7}, Pages: 4, PageBytes: 100, Sink: &leasedSink{},
		Region:     Region{Host: true, Base: 0x1000, Bytes: 400},
		SecondPool: SecondPool{Buffer: effects.BufferID{8}, Pages: 2, Region: Region{Base: 0x8000, Bytes: 200}}}
	l, err := NewLeasedPool(c)
	if err != nil {
		t.Fatal(err)
	}
	for index, want := range []uintptr{3: 0x1000 + 300, 4: 0x8000, 5: 0x8000 + 100} {
		if page := (effects.Page{Pool: 1, Index: uint32(index)}); want != 0 && (!l.Has(page) || l.PageAddress(page) != want) {
			t.Errorf("page %d is not at %#x", index, want)
		}
	}
	if l.Has(effects.Page{Pool: 1, Index: 6}) {
		t.Error("a page behind both pools")
	}
	all := l.Pools()
	if len(all) != 2 || all[0].ID != c.Buffer || all[0].Region != c.Region || all[1].ID != c.SecondPool.Buffer ||
		all[1].Region != c.SecondPool.Region || all[1].Pages != 2 || all[1].PageBytes != 100 {
		t.Errorf("peers reach %+v", all)
	}
	if r := l.Regions(); !slices.Equal(r, []Region{c.Region, c.SecondPool.Region}) {
		t.Errorf("planes register %v", r)
	}
	short, twin := c, c
	short.SecondPool.Region.Bytes = 199
	twin.SecondPool.Buffer = c.Buffer
	for _, bad := range []LeasedPoolConfig{short, twin} {
		if _, err := NewLeasedPool(bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", bad.SecondPool, err)
		}
	}
}
