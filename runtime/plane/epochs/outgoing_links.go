package epochs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/runtime/internal/loglimit"
	"github.com/kvferry/kvferry/runtime/plane"
)

// OutgoingConfig configures the links that a plane opens.
type OutgoingConfig struct {
	Env           plane.Env // with a Leased pool
	Log           *slog.Logger
	LimitedLog    *loglimit.Log
	Context       context.Context // ends attempts to import
	Goroutines    *sync.WaitGroup // waits for each goroutine
	Rules         communicator.Rules
	BatchLimit    BatchLimit
	MaxLinks      int    // limit of links and attempts to open a link
	Remedy        string // what to do if MaxLinks is too small
	MaxFrameBytes int    // limit of the bytes of a frame
	// NewExecutor makes the executor of a new link.
	NewExecutor func(*OutgoingLink) Executor
}

// OutgoingLinks are the links that a plane has opened in order to push and to read. The type implements Import, Drop,
// Transfer and Cancel of plane.Plane.
type OutgoingLinks struct {
	cfg OutgoingConfig

	mu          sync.Mutex
	closed      bool
	links       map[*OutgoingLink]struct{} // including attempts to open a link; at most MaxLinks
	openLinks   map[effects.Link]*OutgoingLink
	transfers   map[effects.Corr]*OutgoingLink // transfers without a TransferDone; at most Bounds.Transfers
	unprovenErr error                          // names the peers whose last epoch is not proven over
}

// NewOutgoingLinks returns an empty set of links.
func NewOutgoingLinks(c OutgoingConfig) *OutgoingLinks {
	return &OutgoingLinks{cfg: c, links: map[*OutgoingLink]struct{}{}, openLinks: map[effects.Link]*OutgoingLink{},
		transfers: map[effects.Corr]*OutgoingLink{}}
}

// Import implements plane.Plane.
func (s *OutgoingLinks) Import(e *effects.Import) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		s.cfg.Env.Sink.Post(&effects.Imported{Corr: e.Corr, Code: effects.Closed})
	case len(s.links) >= s.cfg.MaxLinks:
		s.cfg.LimitedLog.Warn("cannot open a link to a peer: too many links", "", "links", s.cfg.MaxLinks, "remedy", s.cfg.Remedy)
		s.cfg.Env.Sink.Post(&effects.Imported{Corr: e.Corr, Code: effects.TooMany})
	default:
		l := newOutgoingLink(s, e)
		s.links[l] = struct{}{}
		blob := slices.Clone(e.Blob)
		s.cfg.Goroutines.Go(func() { l.openAndRun(blob) })
	}
}

// Drop implements plane.Plane.
func (s *OutgoingLinks) Drop(link effects.Link) {
	if l := s.FindLink(link); l != nil {
		l.PostEvent(communicator.Event{Kind: communicator.Drop})
	}
}

// FindLink returns a link that is up, or nil.
func (s *OutgoingLinks) FindLink(link effects.Link) *OutgoingLink {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.openLinks[link]
}

// LinkCount returns the number of links that are up.
func (s *OutgoingLinks) LinkCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.openLinks)
}

// ListLinks implements plane.LinkLister.
func (s *OutgoingLinks) ListLinks() (all []plane.LinkState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, l := range s.openLinks {
		x := l.shown.get()
		x.Link = id
		all = append(all, x)
	}
	return all
}

// Transfer implements plane.Plane.
func (s *OutgoingLinks) Transfer(e *effects.Transfer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.openLinks[e.Link]
	if code := s.checkTransfer(l, e); code != effects.OK {
		s.cfg.Env.Sink.Post(&effects.TransferDone{Corr: e.Corr, Code: code, Settled: true, At: plane.Now()})
		return
	}
	j := &job{read: e.Read, batches: SplitIntoBatches(e.Pairs, &e.Gather, s.cfg.Env.Leased.PageAddress, l.remoteAddress, s.cfg.BatchLimit)}
	if e.Read {
		j.sums = s.cfg.Env.Leased.ReadSums(e.Pairs)
	}
	event := communicator.Event{
		Kind: communicator.Transfer, Corr: e.Corr, Grant: e.Grant, Since: e.Since, NotAfter: e.NotAfter,
		Batches: len(j.batches),
	}
	s.transfers[e.Corr] = l
	l.Push(func(now effects.Time) {
		l.jobs[event.Corr] = j
		l.StepMachine(now, event)
	})
}

// checkTransfer returns the reason for which a transfer cannot use the link. Whether a grant covers the pages was
// decided by the machine; the peer has no means to check the grant.
func (s *OutgoingLinks) checkTransfer(l *OutgoingLink, e *effects.Transfer) effects.Code {
	switch {
	case s.closed:
		return effects.Closed
	case l == nil:
		return effects.PeerLost
	case e.Peer != l.Peer:
		return effects.Stale
	case len(s.transfers) >= s.cfg.Env.Bounds.Transfers:
		return effects.TooMany
	case max(len(e.Pairs), len(e.Gather.Pages)) > s.cfg.Env.Bounds.PagesPerBatch:
		return effects.TooLarge
	case len(e.Pairs) == 0, !e.Gather.Fits(e.Pairs), e.Gather.Layers > 0 && e.Read:
		return effects.Invalid
	}
	pool := s.cfg.Env.Leased
	for _, page := range e.Gather.Pages {
		if !pool.Has(page) {
			return effects.Invalid
		}
	}
	for _, pair := range e.Pairs {
		switch peerPool := l.findPool(pair.Remote.Buffer); {
		case peerPool == nil:
			return effects.Stale
		case pair.Remote.Index >= peerPool.Pages, e.Gather.Layers == 0 && !pool.Has(pair.Local):
			return effects.Invalid
		case uint64(pair.Local.Length) > peerPool.PageBytes:
			return effects.TooLarge
		}
	}
	return effects.OK
}

// Cancel implements plane.Plane.
func (s *OutgoingLinks) Cancel(corr effects.Corr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.transfers[corr]; l != nil {
		l.PostEvent(communicator.Event{Kind: communicator.Cancel, Corr: corr})
	}
}

// Close asks all links to end, without waiting, and opens no more links.
func (s *OutgoingLinks) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for l := range s.links {
		l.PostEvent(communicator.Event{Kind: communicator.Close})
	}
}

// CheckProven returns an error that names the peers for which there is no proof that transfers to and from that peer
// are over (M4). It is called after all links have ended.
func (s *OutgoingLinks) CheckProven() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unprovenErr
}

// recordUnproven records that the last epoch of a link is not proven over. The link's channel stays open, because the
// peer would take the end of the channel for proof (M4).
func (s *OutgoingLinks) recordUnproven(l *OutgoingLink) {
	l.Channel.KeepOpen()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unprovenErr = errors.Join(s.unprovenErr, fmt.Errorf(
		"there is no proof that the last transfers to peer %x are over: the pool's memory stays mapped until this process ends",
		l.Peer[:4]))
}

// reportEvent reports an event of a link to the rank's machine.
func (s *OutgoingLinks) reportEvent(l *OutgoingLink, ev effects.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := ev.(type) {
	case *effects.Imported:
		if e.Code == effects.OK {
			s.openLinks[e.Link] = l
		}
	case *effects.Dropped:
		delete(s.openLinks, e.Link)
	case *effects.TransferDone:
		delete(s.transfers, e.Corr)
	default:
	}
	s.cfg.Env.Sink.Post(ev)
}

func (s *OutgoingLinks) removeLink(l *OutgoingLink) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.links, l)
}
