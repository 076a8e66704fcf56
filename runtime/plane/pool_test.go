package plane

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane/backing"
)

type events []effects.Event

func (e *events) Post(ev effects.Event) { *e = append(*e, ev) }

func (e *events) countRevoked(id effects.GrantID) (n int) {
	for _, ev := range *e {
		if r, ok := ev.(*effects.Revoked); ok && r.Grant == id {
			n++
		}
	}
	return n
}

func testPool(t interface {
	Helper()
	Fatal(...any)
}, sink Sink, pages uint32, pageBytes uint64) *Pool {
	t.Helper()
	p, err := NewPool(PoolConfig{Buffer: effects.BufferID{1}, Pages: pages, PageBytes: pageBytes, Sink: sink})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var alice, bob = effects.Incarnation{1}, effects.Incarnation{2}

func TestRevokeWaitsForTheLastHolder(t *testing.T) {
	var sink events
	p := testPool(t, &sink, 4, 100)
	defer p.Close()
	pages := []effects.Page{{Index: 1, Length: 100, Generation: 1}, {Index: 2, Length: 100, Generation: 2}}
	p.Grant(&effects.Grant{ID: 1<<48 - 1, Peer: alice, Pages: pages})
	claim, code := p.ClaimWrite(alice, 1<<48-1, pages)
	if code != effects.OK {
		t.Fatal(code)
	}
	for _, i := range []int{0, 0, 1} {
		if claim.Hold(i) == nil {
			t.Fatal("a hold under a grant in force failed")
		}
	}
	p.Revoke(1<<48 - 1)
	for i, leave := range []int{0, 1, 0} {
		if n := sink.countRevoked(1<<48 - 1); n != 0 {
			t.Fatalf("revoked with %d holders inside", 3-i)
		}
		if claim.Hold(leave) != nil {
			t.Fatal("a hold succeeded after Revoke")
		}
		claim.Release(leave)
	}
	if n := sink.countRevoked(1<<48 - 1); n != 1 {
		t.Fatalf("revoked %d times after the last holder left", n)
	}
	if claim.Land(1, []bool{true, true}) {
		t.Fatal("pages landed after their grant was revoked")
	}
}

func TestLandedPageIsClosed(t *testing.T) {
	var sink events
	p := testPool(t, &sink, 2, 100)
	defer p.Close()
	pages := []effects.Page{{Index: 0, Length: 100, Generation: 1}, {Index: 1, Length: 100, Generation: 2}}
	p.Grant(&effects.Grant{ID: 5, Peer: alice, Pages: pages})
	claim, _ := p.ClaimWrite(alice, 5, pages)
	if _, code := p.ClaimWrite(alice, 5, pages[1:]); code != effects.Refused {
		t.Fatalf("a second push to the same page: %s", code)
	}
	if claim.Land(1, []bool{true, false}) {
		t.Fatal("complete with one page missing")
	}
	if claim.Hold(0) != nil {
		t.Fatal("a landed page took a store")
	}
	if _, code := p.ClaimWrite(bob, 5, pages[1:]); code != effects.Refused {
		t.Fatalf("another peer's push: %s", code)
	}
	again, code := p.ClaimWrite(alice, 5, pages[1:])
	if code != effects.OK {
		t.Fatalf("the page that did not land: %s", code)
	}
	if !again.Land(2, []bool{true}) || len(p.grants) != 0 {
		t.Fatalf("%d grants are kept after all pages landed", len(p.grants))
	}
	p.Grant(&effects.Grant{ID: 6, Peer: bob, Pages: pages}) // Page and fence are free again.
}

// Grants, claims, holds and revocations interleave in any order: no page is held after its grant was reported as
// revoked, each Revoke is answered once, and a page lands at most once under each grant.
func TestPoolAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var sink events
		const n = 4
		p := testPool(rt, &sink, n, 16)
		defer p.Close()
		type held struct {
			claim *WriteClaim
			i     int
			grant effects.GrantID
		}
		var (
			id      effects.GrantID
			life    effects.Generation
			open    = map[effects.GrantID][]effects.Page{}
			revoked = map[effects.GrantID]bool{}
			busy    [n]effects.GrantID // granted, and neither revoked nor landed
			claims  []held             // claims without a hold
			holds   []held
		)
		inside := func(g effects.GrantID) (c int) {
			for _, h := range holds {
				if h.grant == g {
					c++
				}
			}
			return c
		}
		check := func() {
			for g := range revoked {
				if got := sink.countRevoked(g); (inside(g) > 0 && got != 0) || (inside(g) == 0 && got != 1) {
					rt.Fatalf("grant %d: %d holders inside, revoked %d times", g, inside(g), got)
				}
				if sink.countRevoked(g) == 1 {
					for i, owner := range busy {
						if owner == g {
							busy[i] = 0
						}
					}
				}
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { check() },
			"grant": func(rt *rapid.T) {
				i := rapid.IntRange(0, n-1).Draw(rt, "page")
				if busy[i] != 0 {
					return
				}
				id, life = id+1, life+1
				pages := []effects.Page{{Index: uint32(i), Length: 16, Generation: life}}
				p.Grant(&effects.Grant{ID: id, Peer: alice, Pages: pages})
				open[id], busy[i] = pages, id
			},
			"claim": func(rt *rapid.T) {
				g := effects.GrantID(rapid.Uint64Range(1, uint64(id)+1).Draw(rt, "grant"))
				c, code := p.ClaimWrite(alice, g, open[g])
				if code == effects.OK {
					if revoked[g] || len(open[g]) == 0 {
						rt.Fatalf("claim of grant %d succeeded", g)
					}
					claims = append(claims, held{c, 0, g})
				}
			},
			"hold": func(*rapid.T) {
				for _, h := range claims {
					if b := h.claim.Hold(0); (b != nil) == revoked[h.grant] {
						rt.Fatalf("hold under grant %d: got bytes %v, revoked %v", h.grant, b != nil, revoked[h.grant])
					} else if b != nil {
						holds = append(holds, h)
					}
				}
			},
			"unhold": func(*rapid.T) {
				if len(holds) > 0 {
					h := holds[0]
					holds = holds[1:]
					h.claim.Release(h.i)
				}
			},
			"land": func(*rapid.T) {
				var kept []held
				for _, h := range claims {
					g := h.grant
					if inside(g) > 0 {
						kept = append(kept, h)
						continue
					}
					if h.claim.Land(1, []bool{true}) == revoked[g] {
						rt.Fatalf("landing under grant %d, revoked %v", g, revoked[g])
					}
					if !revoked[g] {
						busy[open[g][0].Index] = 0
						delete(open, g)
					}
				}
				claims = kept
			},
			"revoke": func(rt *rapid.T) {
				if id == 0 {
					return
				}
				g := effects.GrantID(rapid.Uint64Range(1, uint64(id)).Draw(rt, "grant"))
				if !revoked[g] && len(open[g]) > 0 {
					revoked[g] = true
					p.Revoke(g)
				}
			},
		})
	})
}

func TestRevokeWithoutOpenGrant(t *testing.T) {
	var sink events
	p := testPool(t, &sink, 1, 100)
	defer p.Close()
	p.Grant(&effects.Grant{ID: 3, Pages: []effects.Page{{Length: 100, Generation: 9}}})
	if _, code := p.ClaimWrite(effects.Incarnation{}, 3,
		[]effects.Page{{Length: 100, Generation: 9}}); code != effects.Withdrawn {
		t.Fatalf("a bearer grant was claimed: %s", code)
	}
	p.Revoke(3)
	if sink.countRevoked(3) != 1 {
		t.Fatal("no answer to Revoke")
	}
}

// requireSealed requires that a file cannot be truncated, and that only its creator stores into it.
func requireSealed(t *testing.T, what string, file *os.File) {
	t.Helper()
	if err := file.Truncate(1); err == nil {
		t.Errorf("%s could be cut off", what)
	}
	fd := int(file.Fd())
	if _, err := syscall.Mmap(fd, 0, 64, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED); err == nil {
		t.Errorf("%s could be mapped for writing", what)
	}
	if _, err := syscall.Pwrite(fd, []byte{1}, 0); err == nil {
		t.Errorf("%s could be written as a file", what)
	}
}

func TestSealsHold(t *testing.T) {
	var sink events
	p := testPool(t, &sink, 8, 5000)
	defer p.Close()
	requireSealed(t, "the pool's memory", p.PagesFile())
	requireSealed(t, "the generations", p.GenerationsFile())
	requireSealed(t, "the permits to read", p.ReadPermitsFile())
	if p.Attachable() != nil {
		t.Error("the pool gives its memory away")
	}
	m, err := MapPool(p.PagesFile().Fd(), p.GenerationsFile().Fd(), 8, 5000)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Unmap()
	page := effects.Page{Index: 7, Length: 5000, Generation: 3}
	p.Publish([]effects.Page{page})
	copy(p.Bytes(page), "bytes of the seventh")
	got := make([]byte, 20)
	_, permit := testPermit(t, 1)
	if code := m.CopyPage(got, 7, 3, permit, Move); code != effects.OK || string(got) != "bytes of the seventh" {
		t.Errorf("read %q, %s", got, code)
	}
	if one, two := m.CopyPage(got, 7, 2, permit, Move), m.CopyPage(got, 6, 3, permit, Move); one != effects.Stale ||
		two != effects.Stale {
		t.Errorf("copies of another life ended as %s and %s", one, two)
	}
}

// An attached process stores into pages, and peers read what it stored. It cannot reach the pool's bookkeeping, and
// peers cannot do more with its pages than with those of other pools.
func TestAttachedStoresIntoPagesAlone(t *testing.T) {
	const pages, pageBytes = 3, 5000
	p, err := NewPool(PoolConfig{Pages: pages, PageBytes: pageBytes, Sink: new(events), Attachable: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	requireSealed(t, "what peers get", p.PagesFile())
	requireSealed(t, "the generations", p.GenerationsFile())
	requireSealed(t, "the permits to read", p.ReadPermitsFile())
	if err := p.Attachable().Truncate(1 << 20); err == nil {
		t.Error("who attaches can change the pool's size")
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(int(p.Attachable().Fd()), &st); err != nil || st.Size != pages*pageBytes {
		t.Errorf("the file of the pages has %d bytes, %v: it has something besides them", st.Size, err)
	}
	theirs, err := syscall.Mmap(int(p.Attachable().Fd()), 0, pages*pageBytes, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(theirs)
	m, err := MapPool(p.PagesFile().Fd(), p.GenerationsFile().Fd(), pages, pageBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Unmap()
	page := effects.Page{Index: 2, Length: 4000, Generation: 9}
	p.Publish([]effects.Page{page})
	for i := range theirs {
		theirs[i] = byte(i / pageBytes)
	}
	if got := p.Bytes(page); got[0] != 2 || got[3999] != 2 {
		t.Errorf("the pool has %d to %d; want what was stored", got[0], got[3999])
	}
	got := make([]byte, 4000)
	_, permit := testPermit(t, 1)
	if code := m.CopyPage(got, 2, 9, permit, Move); code != effects.OK || got[0] != 2 || got[3999] != 2 {
		t.Errorf("a peer read %d to %d, %s", got[0], got[3999], code)
	}
}

func TestMapDemandsSealsAndSize(t *testing.T) {
	var sink events
	p := testPool(t, &sink, 2, 4096)
	defer p.Close()
	if _, err := MapPool(p.PagesFile().Fd(), p.GenerationsFile().Fd(), 3, 4096); err == nil {
		t.Error("mapped more pages than the file has")
	}
	if _, err := MapPool(p.PagesFile().Fd(), p.GenerationsFile().Fd(), 1, 4096); err == nil {
		t.Error("mapped generations of more pages than there are")
	}
	for _, bad := range []struct {
		pages uint32
		bytes uint64
	}{{0, 4096}, {1, 0}, {1, 1 << 33}, {1<<32 - 1, 1 << 31}} {
		if _, err := MapPool(p.PagesFile().Fd(), p.GenerationsFile().Fd(), bad.pages, bad.bytes); err == nil {
			t.Errorf("mapped %d pages of %d bytes", bad.pages, bad.bytes)
		}
	}
	plain, err := os.CreateTemp(t.TempDir(), "plain")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if err := plain.Truncate(1 << 20); err != nil {
		t.Fatal(err)
	}
	if _, err := MapPool(plain.Fd(), p.GenerationsFile().Fd(), 1, 4096); err == nil {
		t.Error("mapped a file that its owner can cut off")
	}
	if _, err := MapPool(p.PagesFile().Fd(), plain.Fd(), 2, 4096); err == nil {
		t.Error("mapped generations that their owner can cut off")
	}
}

// A pool has all of its memory from the start, or NewPool fails.
func TestPoolsHaveTheirMemory(t *testing.T) {
	blocks := func(overcommit bool) int64 {
		p, err := NewPool(PoolConfig{Pages: 16, PageBytes: 1 << 20, Sink: new(events), Overcommit: overcommit})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		var st syscall.Stat_t
		if err := syscall.Fstat(int(p.PagesFile().Fd()), &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512
	}
	if n := blocks(false); n < 16<<20 {
		t.Errorf("%d bytes are there", n)
	}
	if n := blocks(true); n >= 16<<20 {
		t.Errorf("with overcommit %d bytes are there", n)
	}
	large := PoolConfig{Pages: 1 << 10, PageBytes: PageBytesMax, Sink: new(events)}
	var short *backing.Shortage
	if _, err := NewPool(large); !errors.As(err, &short) || short.RequestedBytes < 4<<40-1<<20 {
		t.Errorf("a pool of 4 TiB: %v", err)
	}
}
