package contract

import "github.com/kvferry/kvferry/effects"

// AllBusy returns the scenarios in which a large batch occupies all threads of a driver and has more pages than there
// are threads, when a batch of another peer arrives: the driver must begin the second batch before the first batch is
// finished. shared says that all links of a node share two threads; otherwise each link has two threads. Stages without
// the methods of a HoldStage play the scenarios without stopping threads.
func AllBusy(shared bool) []Scenario[DataStage] {
	done := may(Transferring, effects.OK)
	return []Scenario[DataStage]{
		{Name: "a push comes while another has all threads", May: done, run: func(p *play, stage DataStage) Ending {
			b := newBusy(p, stage, B)
			large, into := b.push(0, b.pages-2)
			b.h.stand()
			small, second := b.push(b.pages-2, 1)
			b.received(second)
			b.turns(shared, landedUnder(into), landedUnder(second))
			b.wants(b.h.ends(small), effects.OK)
			return b.h.ends(large)
		}},
		{Name: "a read comes while another has all threads", May: done, run: func(p *play, stage DataStage) Ending {
			b := newBusy(p, stage, A)
			large := b.read(0, b.pages-2)
			b.h.stand()
			b.link = b.second
			small := b.read(b.pages-2, 1)
			b.turns(shared, endOf(large), endOf(small))
			b.wants(b.h.ends(small), effects.OK)
			return b.h.ends(large)
		}},
	}
}

// busy is two links from A to B.
type busy struct {
	aLink
	h      *holders
	second effects.Link
	pages  uint32
}

func newBusy(p *play, stage DataStage, at End) *busy {
	b := &busy{aLink: linked(p, stage)}
	b.second = b.imports(b.b.Incarnation).Link
	b.pages = min(b.a.Pages, b.b.Pages)
	b.h = hold(b.aLink, at)
	return b
}

// push starts a push over the first link, or over the second link if first is not 0.
func (b *busy) push(first, n uint32) (effects.Corr, effects.GrantID) {
	s := &aPush{aLink: b.aLink, from: b.fills(A, first, n)}
	s.grant, s.into = b.grants(b.a.Incarnation, first, n, b.b.PageBytes)
	if first > 0 {
		s.link = b.second
	}
	return s.start(), s.grant
}

// awaitReceived waits until B has received the newest push on the second link, and issues another push that B must
// refuse: B handles a link's messages in order, so B has then received the earlier push.
func (b *busy) received(grant effects.GrantID) {
	from := b.fills(A, b.pages-1, 1)
	e := &effects.Transfer{Corr: b.corr(A), Link: b.second, Peer: b.b.Incarnation, Grant: grant + 100,
		NotAfter: b.stage.Now(A).Add(60 * effects.Second), Pairs: []effects.Pair{{Local: from[0],
			Remote: effects.RemotePage{Buffer: b.b.Buffer, Generation: 1}}}}
	b.do(A, e)
	eventually(b.play, A, isDone(e.Corr))
}

func (b *busy) read(first, n uint32) effects.Corr {
	grant, from := lends(b.aLink, first, n)
	return reads(b.aLink, grant, from, first)
}

// landedUnder fits a Landed under a grant.
func landedUnder(id effects.GrantID) func(effects.Event) bool {
	return func(ev effects.Event) bool { e, is := ev.(*effects.Landed); return is && e.Grant == id }
}

// endOf fits the TransferDone of a transfer.
func endOf(corr effects.Corr) func(effects.Event) bool {
	return func(ev effects.Event) bool { e, is := ev.(*effects.TransferDone); return is && e.Corr == corr }
}

// turns lets the accesses continue page by page, and checks that the small batch is finished before the large one.
func (b *busy) turns(shared bool, large, small func(effects.Event) bool) {
	stage, at := b.h.stage, b.h.at
	if stage == nil || b.err != nil {
		return
	}
	if shared {
		for left := b.pages - 2; left > 2 && !stage.Told(at, small); left-- {
			stage.Leaves(at)
			stage.Stands(at, 2) // The thread that left its page has reported it.
		}
		if stage.Told(at, large) || !stage.Told(at, small) {
			b.fail("a batch of one page waits for all of a large one that came before it")
		}
	} else {
		stage.Stands(at, 3) // Two threads of the first link and one of the second.
	}
	stage.Frees(at)
}
