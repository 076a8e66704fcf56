package epochs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/runtime/internal/door"
	"github.com/kvferry/kvferry/runtime/plane"
)

const (
	// linksOfPeer is how many links one peer may have: one, and those of which it alone knows yet that they have ended.
	linksOfPeer = 4
	// reserved is the part of the places that one address leaves to others, one in so many: names cost nothing, and each
	// has a token.
	reserved = 8
	// epochsMax bounds epochs of a link that are not over: one, and those whose forming was given up by the peer and not
	// yet here.
	epochsMax = 8
	// revokesMax is how many grants can be in force at a time, by the low bits of their ids.
	revokesMax = 1 << 16
)

// An ArrivalsConfig is what a plane says of the links that peers open to it.
type ArrivalsConfig struct {
	Name    string    // the plane's
	Env     plane.Env // with a Leased pool
	Log     *slog.Logger
	Boot    [16]byte        // this run of this host's kernel (BootID)
	Opening context.Context // done when the plane closes
	Going   *sync.WaitGroup // knows of each goroutine
	Links   int             // at most
	Remedy  string          // where these are too few
	// Files is the part of the files that the process may open which Links take at most, one in so many of each.
	Files int
	Frame int   // bytes of a frame at most
	Hello uint8 // the kind of one
	// Fenced makes the word that an epoch is fenced.
	Fenced func(epoch uint64) []byte
	// Revoked lists the grants of a peer that were taken back; more says that there were others.
	Revoked func(peer effects.Incarnation) (ids []effects.GrantID, more bool)
	// Hands are those of a new link.
	Hands func(*Arrival) TargetHands
}

// Arrivals are the links that peers opened in order to push to us and to read from us. What all of them decide is one
// machine, under one mutex. They are the guard of the pool that the plane serves.
type Arrivals struct {
	cfg  ArrivalsConfig
	door *door.Door // by which initiators come in

	mu       sync.Mutex
	closed   bool
	conns    map[net.Conn]struct{} // admitted, for Close; at most 2 Links
	target   communicator.Target
	said     communicator.TargetOut              // what its last step wanted done
	incoming map[communicator.SessionID]*Arrival // at most Links
	revokes  uint64                              // that ever were asked for
	revoking map[uint64]func()                   // told when they are proven; as many as grants at most
	expelled uint64                              // epochs of peers that were fenced to revoke a grant
}

var _ plane.Guard = (*Arrivals)(nil)

// NewArrivals makes them; there is none yet.
func NewArrivals(c ArrivalsConfig) *Arrivals {
	limits := communicator.Limits{
		Sessions: c.Links, OfPeer: linksOfPeer, Reserved: reserved, Epochs: epochsMax, Revokes: revokesMax,
	}
	s := &Arrivals{
		cfg: c, conns: map[net.Conn]struct{}{}, incoming: map[communicator.SessionID]*Arrival{},
		revoking: map[uint64]func(){}, target: communicator.NewTarget(limits, rand.Uint64()),
	}
	s.door = door.New(s.admission())
	return s
}

// Serve lets peers in by a listener, until Close.
func (s *Arrivals) Serve(listener net.Listener) { s.door.Serve(listener, "plane "+s.cfg.Name, s.visit) }

// admission bounds the connections of initiators. Those that were let in are as many as links, and never closed for
// another one: how such a connection ends is proof of something. There is room for as many strangers, who may be.
func (s *Arrivals) admission() door.Config {
	limit, _, err := door.Room()
	if err != nil {
		s.cfg.Log.Warn("the limit of open files is not known", "err", err)
		limit = 1024
	}
	return s.cfg.doorFor(limit)
}

// doorFor is admission for a process that may open so many files.
func (c *ArrivalsConfig) doorFor(limit int) door.Config {
	links := c.Links
	if few := max(limit/c.Files, 1); links > few {
		c.Log.Warn("this process may open few files: fewer initiators find a place than links are allowed",
			"files_max", limit, "links_wanted", links, "links_max", few,
			"remedy", "raise the limit of open files (ulimit -n, LimitNOFILE)")
		links = few
	}
	return door.Config{
		Total: 2 * links, PerAddress: 2 * links, Strangers: min(c.Env.Bounds.Strangers, links),
		Patience: c.Env.Bounds.Handshake, Log: c.Log,
	}
}

// visit serves one connection, unless the plane is closed.
func (s *Arrivals) visit(guest *door.Guest) error {
	if !s.track(guest.Conn) {
		return nil
	}
	defer s.cfg.Going.Done()
	defer s.untrack(guest.Conn)
	if err := s.handle(guest); s.cfg.Opening.Err() == nil {
		return err
	}
	return nil
}

// track has Close know of a connection and wait for it.
func (s *Arrivals) track(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.cfg.Going.Add(1)
	s.conns[conn] = struct{}{}
	return true
}

func (s *Arrivals) untrack(conn net.Conn) {
	_ = conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
}

// Expel implements plane.Guard. The peer may offer another epoch at once: it is told then what was taken back.
func (s *Arrivals) Expel(peer effects.Incarnation, gone func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revokes++
	s.revoking[s.revokes] = gone
	s.feed(communicator.TargetEvent{Kind: communicator.Expels, Revoke: s.revokes, Peer: peer}, nil)
}

// feed has the target's machine take an event and carries out what comes of it; why is the cause where a link ends by
// it. Nothing of that blocks or comes back here. With the mutex held, and so at one with what is said of grants that
// were taken back.
func (s *Arrivals) feed(ev communicator.TargetEvent, why error) {
	out := &s.said
	out.Reset()
	s.target.Step(&ev, out)
	for _, name := range out.Expelled {
		s.expelled++
		s.incoming[name.Session].Log.Info("a peer's epoch is fenced, to revoke what it was granted", "epoch", name.Epoch)
	}
	for _, name := range out.Fences {
		s.incoming[name.Session].Channel.Say(s.cfg.Fenced(name.Epoch))
	}
	for _, name := range out.Leaves {
		s.incoming[name.Session].ends[name.Epoch].Leave()
	}
	for _, session := range out.Lost {
		in := s.incoming[session]
		in.Log.Info("a peer's link ended", "err", why)
		s.cfg.Env.Sink.Post(&effects.LinkLost{Peer: in.From})
	}
	for _, name := range out.Margins {
		in := s.incoming[name.Session]
		end := in.ends[name.Epoch]
		s.cfg.Going.Go(func() {
			in.hands.Margin(end)
			in.says(communicator.TargetEvent{Kind: communicator.MarginOver, Epoch: name.Epoch}, nil)
		})
	}
	for _, name := range out.Over {
		delete(s.incoming[name.Session].ends, name.Epoch)
	}
	for _, n := range out.Revoked {
		s.revoking[n]()
		delete(s.revoking, n)
	}
	for _, session := range out.HangUps {
		s.incoming[session].hands.HangUp()
	}
	for _, session := range out.Forgotten {
		delete(s.incoming, session)
	}
}

// Counts are how many links there are, and how many epochs of peers were ever fenced to revoke a grant.
func (s *Arrivals) Counts() (links int, expelled uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.incoming), s.expelled
}

// Ends calls f with each of our ends that may still reach the pool, or is not gone.
func (s *Arrivals) Ends(f func(End)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, in := range s.incoming {
		for _, end := range in.ends {
			f(end)
		}
	}
}

// Close has all links end, and lets nobody in any more. It does not wait.
func (s *Arrivals) Close() {
	s.mu.Lock()
	s.closed = true
	served := map[net.Conn]bool{}
	for _, in := range s.incoming {
		served[in.Channel.Conn()] = true
	}
	s.feed(communicator.TargetEvent{Kind: communicator.Closes}, nil)
	for conn := range s.conns {
		if !served[conn] {
			_ = conn.Close()
		}
	}
	s.mu.Unlock()
	_ = s.door.Shut() // Not Close: that would end the connections of who was let in.
}

// Reachable names, after all that goes has ended, the peers of which there is no proof, nor will be, that they cannot
// reach the pool any more.
func (s *Arrivals) Reachable() (err error) {
	_ = s.door.Close(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, in := range s.incoming {
		if len(in.ends) > 0 {
			err = errors.Join(err, fmt.Errorf("there is no proof that %x cannot reach the pool any more: its memory stays "+
				"until this process ends", in.From[:4]))
		}
	}
	return err
}
