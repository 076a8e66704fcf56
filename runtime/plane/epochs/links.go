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

// LinksConfig configures the links that a plane opens.
type LinksConfig struct {
	Env        plane.Env // with a Leased pool
	Log        *slog.Logger
	LimitedLog *loglimit.Log
	Opening    context.Context // ends attempts to import
	Going      *sync.WaitGroup // waits for each goroutine
	Rules      communicator.Rules
	Batch      Limit
	Max        int    // limit of links and attempts to open a link
	Remedy     string // what to do if MaxLinks is too small
	Frame      int    // limit of the bytes of a frame
	// NewExecutor makes the executor of a new link.
	Hands func(*Link) Hands
}

// OutgoingLinks are the links that a plane has opened in order to push and to read. The type implements Import, Drop,
// Transfer and Cancel of plane.Plane.
type Links struct {
	cfg LinksConfig

	mu        sync.Mutex
	closed    bool
	all       map[*Link]struct{} // including attempts to open a link; at most MaxLinks
	up        map[effects.Link]*Link
	transfers map[effects.Corr]*Link // transfers without a TransferDone; at most Bounds.Transfers
	unproven  error                  // names the peers whose last epoch is not proven over
}

// NewLinks returns an empty set of links.
func NewLinks(c LinksConfig) *Links {
	return &Links{cfg: c, all: map[*Link]struct{}{}, up: map[effects.Link]*Link{},
		transfers: map[effects.Corr]*Link{}}
}

// Import implements plane.Plane.
func (s *Links) Import(e *effects.Import) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		s.cfg.Env.Sink.Post(&effects.Imported{Corr: e.Corr, Code: effects.Closed})
	case len(s.all) >= s.cfg.Max:
		s.cfg.LimitedLog.Warn("a peer cannot be linked to: too many peers", "", "links", s.cfg.Max, "remedy", s.cfg.Remedy)
		s.cfg.Env.Sink.Post(&effects.Imported{Corr: e.Corr, Code: effects.TooMany})
	default:
		l := newLink(s, e)
		s.all[l] = struct{}{}
		blob := slices.Clone(e.Blob)
		s.cfg.Going.Go(func() { l.serve(blob) })
	}
}

// Drop implements plane.Plane.
func (s *Links) Drop(link effects.Link) {
	if l := s.Link(link); l != nil {
		l.PostEvent(communicator.Event{Kind: communicator.Drop})
	}
}

// FindLink returns a link that is up, or nil.
func (s *Links) Link(link effects.Link) *Link {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.up[link]
}

// LinkCount returns the number of links that are up.
func (s *Links) LinkCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.up)
}

// Transfer implements plane.Plane.
func (s *Links) Transfer(e *effects.Transfer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.up[e.Link]
	if code := s.admit(l, e); code != effects.OK {
		s.cfg.Env.Sink.Post(&effects.TransferDone{Corr: e.Corr, Code: code, Settled: true, At: plane.Now()})
		return
	}
	j := &job{read: e.Read, batches: Batches(e.Pairs, &e.Gather, s.cfg.Env.Leased.Address, l.address, s.cfg.Batch)}
	wanted := communicator.Event{
		Kind: communicator.Transfer, Corr: e.Corr, Grant: e.Grant, Since: e.Since, NotAfter: e.NotAfter,
		Batches: len(j.batches),
	}
	s.transfers[e.Corr] = l
	l.Push(func(now effects.Time) {
		l.jobs[wanted.Corr] = j
		l.Feed(now, wanted)
	})
}

// admit returns the reason for which a transfer cannot use the link. Whether a grant covers the pages was decided by
// the machine; the peer has no means to check the grant.
func (s *Links) admit(l *Link, e *effects.Transfer) effects.Code {
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
		switch of := l.serves(pair.Remote.Buffer); {
		case of == nil:
			return effects.Stale
		case pair.Remote.Index >= of.Pages, e.Gather.Layers == 0 && !pool.Has(pair.Local):
			return effects.Invalid
		case uint64(pair.Local.Length) > of.PageBytes:
			return effects.TooLarge
		}
	}
	return effects.OK
}

// Cancel implements plane.Plane.
func (s *Links) Cancel(corr effects.Corr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.transfers[corr]; l != nil {
		l.PostEvent(communicator.Event{Kind: communicator.Cancel, Corr: corr})
	}
}

// Close asks all links to end, without waiting, and opens no more links.
func (s *Links) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for l := range s.all {
		l.PostEvent(communicator.Event{Kind: communicator.Close})
	}
}

// Unproven returns an error that names the peers for which there is no proof that transfers to and from that peer are
// over (M4). It is called after all links have ended.
func (s *Links) Unproven() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unproven
}

// recordUnproven records that the last epoch of a link is not proven over. The link's channel stays open, because the
// peer would take the end of the channel for proof (M4).
func (s *Links) recordUnproven(l *Link) {
	l.Channel.Keep()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unproven = errors.Join(s.unproven, fmt.Errorf(
		"there is no proof that the last transfers to %x are over: the pool's memory stays until this process ends",
		l.Peer[:4]))
}

// post reports an event of a link to the rank's machine.
func (s *Links) post(l *Link, ev effects.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := ev.(type) {
	case *effects.Imported:
		if e.Code == effects.OK {
			s.up[e.Link] = l
		}
	case *effects.Dropped:
		delete(s.up, e.Link)
	case *effects.TransferDone:
		delete(s.transfers, e.Corr)
	default:
	}
	s.cfg.Env.Sink.Post(ev)
}

func (s *Links) remove(l *Link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, l)
}
