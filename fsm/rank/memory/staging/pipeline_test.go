package staging

import (
	"slices"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/table"
)

const patience = 30 * effects.Second

// open1 opens a fetch that must be taken.
func (r *rig) open1(items string) *fetchModel {
	r.t.Helper()
	f, code := r.open(items, patience)
	if code != effects.OK {
		r.t.Fatalf("a fetch of %s: %v", items, code)
	}
	return f
}

func TestDepthOf(t *testing.T) {
	for _, c := range []struct {
		pool, page uint64
		want       uint32
	}{{64, 8, 4}, {63, 8, 3}, {8, 8, 1}, {0, 8, 1}, {1 << 60, 1, 1 << 31}, {8, 0, 4}} {
		if got := DepthOf(c.pool, c.page); got != c.want {
			t.Errorf("DepthOf(%d, %d) = %d, want %d", c.pool, c.page, got, c.want)
		}
	}
}

func TestInvalidFetches(t *testing.T) {
	local := func(f *fetchModel) *Item { return &f.Items[0] }
	for name, c := range map[string]struct {
		change func(f *fetchModel)
		want   effects.Code
	}{
		"nothing":              {func(f *fetchModel) { f.Items = f.Items[1:1] }, effects.Invalid},
		"too many items":       {func(f *fetchModel) { f.Items = append(f.Items, make([]Item, 31)...) }, effects.TooLarge},
		"too many sources":     {func(f *fetchModel) { f.Sources = append(f.Sources, make([]Source, 4)...) }, effects.TooLarge},
		"no time":              {func(f *fetchModel) { f.Deadline = effects.Time(effects.Second) }, effects.Expired},
		"empty local item":     {func(f *fetchModel) { local(f).Local.Length = 0 }, effects.Invalid},
		"an earlier life":      {func(f *fetchModel) { local(f).Local.Generation += 7 }, effects.Invalid},
		"empty remote item":    {func(f *fetchModel) { f.Items[1].Length = 0 }, effects.Invalid},
		"longer than a page":   {func(f *fetchModel) { f.Items[1].Length = pageBytes + 1 }, effects.Invalid},
		"a source of no entry": {func(f *fetchModel) { f.Items[1].Source = 1 }, effects.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 8, Config{Settings: Settings{StagingPages: 4}, Depth: 2})
			f := &fetchModel{Fetch: Fetch{Ticket: 1, Deadline: r.now.Add(patience), Sources: []Source{{ID: 1}},
				Items: []Item{{Local: r.pool.TakePages(1, nil)[0]}, {Length: 1}}}}
			local(f).Local.Length = 1
			kept := local(f).Local
			c.change(f)
			if code, _ := r.p.checkFetch(&env.Env{Now: r.now, Pools: &r.pools, Pool: r.pool}, &f.Fetch); code != c.want {
				t.Errorf("%v, want %v", code, c.want)
			}
			if kept.Length = 1; !r.pool.IsLive(kept) {
				t.Error("a refused fetch took the local page with it")
			}
		})
	}
}

func TestBounds(t *testing.T) {
	r := newRig(t, 8, Config{Settings: Settings{StagingPages: 4}, Depth: 2})
	for range 4 {
		r.open1("00")
	}
	if _, code := r.open("0", patience); code != effects.TooMany {
		t.Errorf("one fetch more than the table has: %v", code)
	}
	r.run()
	r.drain()
	if _, code := r.open("0", patience); code != effects.Draining {
		t.Errorf("a fetch after the drain: %v", code)
	}
	r.wantNothingLeft()
}

// The engine is given a chunk at a time where one page is all the memory there is: nothing
// overlaps, and nothing hangs (defect 39).
func TestOnePage(t *testing.T) {
	r := newRig(t, 1, Config{Settings: Settings{StagingPages: 8}, Depth: 4})
	f := r.open1("00000")
	for len(r.reads)+len(r.scatters) > 0 {
		if len(r.reads)+len(r.scatters) != 1 {
			t.Fatalf("%d reads and %d scatters with one page", len(r.reads), len(r.scatters))
		}
		if len(r.reads) > 0 {
			r.readEnds(r.reads[0], effects.OK, true, r.now)
		} else {
			r.scatterEnds(r.scatters[0], effects.OK)
		}
	}
	r.wantOutcome(f, effects.OK, false)
	r.wantNothingLeft()
}

// A fetch that has as many pages as it can still use is short of none, though it began with fewer: so whoever looks at
// those that are short looks at no more than there are pages to give.
func TestShortOfNothing(t *testing.T) {
	r := newRig(t, 10, Config{Settings: Settings{StagingPages: 8}, Depth: 4})
	r.pool.TakePages(9, nil)
	r.open1("00")
	if r.p.StagedPages() != 1 || r.p.CountShort() != 1 {
		t.Fatalf("%d pages staged, %d fetches short, with one free page for two chunks", r.p.StagedPages(), r.p.CountShort())
	}
	r.readEnds(r.reads[0], effects.OK, true, r.now)
	r.scatterEnds(r.scatters[0], effects.OK)
	if r.p.StagedPages() != 1 || r.p.CountShort() != 0 {
		t.Fatalf("%d pages staged, %d fetches short, with one chunk to read", r.p.StagedPages(), r.p.CountShort())
	}
}

// A fetch begins with the pages that are free and takes more as they come, the oldest
// fetch first; one of local items alone waits for none.
func TestShortOfPages(t *testing.T) {
	r := newRig(t, 10, Config{Settings: Settings{StagingPages: 8}, Depth: 4})
	others := r.pool.TakePages(8, nil)
	first, second := r.open1("00000000"), r.open1("000")
	if len(r.reads) != 1 || r.reads[0].fetch != first || len(r.reads[0].e.Pairs) != 1 {
		t.Fatalf("%d reads with two free pages: %+v", len(r.reads), r.reads)
	}
	if local := r.open1("0"); local.outcome != nil {
		t.Fatal("a third fetch passed two that wait")
	}
	for _, page := range others[:3] {
		r.pool.DropRef(page)
	}
	r.step(func(*env.Env) {})
	if r.p.StagedPages() != 5 || r.p.CountShort() != 3 {
		t.Fatalf("%d pages staged, %d fetches short", r.p.StagedPages(), r.p.CountShort())
	}
	r.readEnds(r.reads[0], effects.OK, true, r.now)
	if got := len(r.reads[0].e.Pairs); got != 2 {
		t.Errorf("the next batch has %d items; five pages are enough for two", got)
	}
	for _, page := range others[3:] {
		r.pool.DropRef(page)
	}
	r.step(func(*env.Env) {})
	r.run()
	for _, f := range []*fetchModel{first, second} {
		r.wantOutcome(f, effects.OK, false)
	}
	r.wantNothingLeft()
}

// Leading local items are scattered although there is no staging page for the others.
func TestLocalItemsDoNotWait(t *testing.T) {
	r := newRig(t, 2, Config{Settings: Settings{StagingPages: 2}, Depth: 1})
	f := r.open1("LL0")
	if len(r.scatters) != 1 || len(r.scatters[0].e.Pages) != 2 || len(r.reads) != 0 {
		t.Fatalf("%d scatters, %d reads", len(r.scatters), len(r.reads))
	}
	r.scatterEnds(r.scatters[0], effects.OK)
	if len(f.pins) != 2 || len(r.reads) != 1 {
		t.Fatalf("%d locals released, %d reads: their pages are what the read waited for", len(f.pins), len(r.reads))
	}
	r.run()
	r.wantOutcome(f, effects.OK, false)
	r.wantNothingLeft()
}

// Whatever fails first is the fetch's outcome, the fetch of somebody else goes on, and
// memory comes back when nothing touches it (rule M8, defects 35 and 36).
func TestFailures(t *testing.T) {
	for name, c := range map[string]struct {
		fail func(r *rig, f *fetchModel)
		want effects.Code
		held bool
	}{
		"read fails": {func(r *rig, _ *fetchModel) { r.readEnds(r.reads[0], effects.Faulted, true, r.now) }, effects.Faulted,
			true},
		"read unsettled": {func(r *rig, _ *fetchModel) { r.readEnds(r.reads[0], effects.PeerLost, false, r.now) },
			effects.PeerLost, true},
		"read too late": {func(r *rig,
			f *fetchModel) {
			r.readEnds(r.reads[0], effects.OK, true, r.ReadDeadline(f.Sources[0].ID)+1)
		}, effects.Expired, true},
		"scatter fails":   {func(r *rig, _ *fetchModel) { r.scatterEnds(r.scatters[0], effects.Faulted) }, effects.Faulted, false},
		"deadline passes": {func(r *rig, _ *fetchModel) { r.advance(patience) }, effects.Expired, true},
		"aborted": {func(r *rig, f *fetchModel) {
			r.step(func(v *env.Env) {
				if !r.p.AbortFetch(v, f.Ticket) || r.p.AbortFetch(v, f.Ticket) {
					r.t.Fatalf("an abort ends a fetch once")
				}
			})
		}, effects.Cancelled, true},
		"grant withdrawn": {func(r *rig, f *fetchModel) {
			r.step(func(v *env.Env) { r.withdraw(v, f.Sources[0].ID) })
		}, effects.Withdrawn, true},
		"link lost": {func(r *rig, f *fetchModel) {
			r.lose(f.Sources[0].Link)
		}, effects.PeerLost, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 16, Config{Settings: Settings{StagingPages: 8}, Depth: 2})
			f := r.open1("L0000000L")
			f2 := &fetchModel{Fetch: Fetch{Ticket: 50, Deadline: never, Items: []Item{{Length: 1}, {Length: 1}, {Length: 1}},
				Sources: []Source{{ID: 500, Link: 9, Grant: 500}}}}
			r.readEnds(r.reads[0], effects.OK, true, r.now)
			r.scatterEnds(r.scatters[0], effects.OK)
			// One batch is scattered and one read; nothing else is due.
			r.openFetch(f2)
			began := slices.Clone(r.reads)
			c.fail(r, f)
			r.wantOutcome(f, c.want, c.held)
			if code := f2.outcome; name != "deadline passes" && code != nil {
				t.Fatalf("another fetch ended as well: %+v", code)
			}
			for _, rd := range r.reads {
				if rd.fetch == f && !rd.completed && !slices.Contains(r.cancels, rd.e.Corr) {
					t.Errorf("read %d goes on and was not cancelled", rd.e.Corr)
				}
				if !slices.Contains(began, rd) && rd.fetch == f {
					t.Errorf("read %d began after the failure", rd.e.Corr)
				}
			}
			if len(f.released) == 1 && slices.ContainsFunc(r.reads, func(rd *readModel) bool { return rd.fetch == f }) {
				t.Error("its source was released while it is read")
			}
			r.run()
			r.wantNothingLeft()
		})
	}
}

// A lease that is over before a batch's turn is not read under; one that was renewed is.
func TestLeases(t *testing.T) {
	r := newRig(t, 8, Config{Settings: Settings{StagingPages: 8}, Depth: 1})
	var fetches []*fetchModel
	for n := range 2 {
		f := &fetchModel{Fetch: Fetch{Ticket: effects.Ticket(n + 1), Deadline: r.now.Add(patience),
			Items:   []Item{{Length: 1}, {Length: 2}},
			Sources: []Source{{ID: table.Handle(n + 1), Link: 1, Grant: effects.GrantID(n + 1)}}}}
		r.until[table.Handle(n+1)] = r.now + 10
		fetches = append(fetches, f)
		r.openFetch(f)
	}
	r.until[2] = r.now + 100
	r.now += 20
	r.readEnds(r.reads[1], effects.OK, true, r.now)
	r.readEnds(r.reads[0], effects.OK, true, r.now-15)
	r.wantOutcome(fetches[0], effects.Expired, false)
	r.run()
	r.wantOutcome(fetches[1], effects.OK, false)
	r.wantNothingLeft()
}

// A source that the fetch has read to its end is released long before the fetch's own end,
// and its loss hurts nobody then.
func TestSourcesAreReleasedEarly(t *testing.T) {
	r := newRig(t, 8, Config{Settings: Settings{StagingPages: 4}, Depth: 2})
	f := r.open1("0011")
	r.readEnds(r.reads[0], effects.OK, true, r.now)
	if !slices.Equal(f.released, []table.Handle{f.Sources[0].ID}) {
		t.Fatalf("released: %v", f.released)
	}
	r.step(func(v *env.Env) { r.withdraw(v, f.Sources[0].ID) })
	r.lose(f.Sources[0].Link)
	r.run()
	r.wantOutcome(f, effects.OK, false)
	r.wantNothingLeft()
}

// Two fetches may read from one source: its loss ends both, and each reports on it.
func TestSourceOfTwoFetches(t *testing.T) {
	r := newRig(t, 8, Config{Settings: Settings{StagingPages: 8}, Depth: 1})
	for n := range 2 {
		r.openFetch(&fetchModel{Fetch: Fetch{Ticket: effects.Ticket(n + 1), Deadline: never, Items: []Item{{Length: 1}, {Length: 2}},
			Sources: []Source{{ID: 7, Link: 1, Grant: effects.GrantID(n + 1)}}}})
	}
	r.step(func(v *env.Env) { r.withdraw(v, 7) })
	for _, f := range r.fetches {
		r.wantOutcome(f, effects.Withdrawn, false)
		if len(f.released) != 0 {
			t.Errorf("ticket %d released its source while it is read", f.Ticket)
		}
	}
	r.run()
	r.wantNothingLeft()
}

// A batch with items of several peers is read from each of them (defect 38).
func TestSourcesMixed(t *testing.T) {
	r := newRig(t, 8, Config{Settings: Settings{StagingPages: 8}, Depth: 4})
	f := r.open1("01L0")
	if len(r.reads) != 2 || len(r.reads[0].e.Pairs) != 2 || r.reads[0].e.Link == r.reads[1].e.Link {
		t.Fatalf("reads: %+v", r.reads)
	}
	r.readEnds(r.reads[0], effects.OK, true, r.now)
	if len(r.scatters) != 0 {
		t.Fatal("scattered before all of the batch was read")
	}
	if got := r.p.SourceOf(corrsRef(r)).Link; got != r.reads[0].e.Link {
		t.Errorf("the read goes over link %d, it says %d", r.reads[0].e.Link, got)
	}
	r.run()
	r.wantOutcome(f, effects.OK, false)
	r.wantNothingLeft()
}
