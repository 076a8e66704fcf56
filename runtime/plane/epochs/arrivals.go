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
	// maxLinksPerPeer is the number of links that a peer may have: the current link, and some links that have ended
	// without our noticing yet.
	maxLinksPerPeer = 4
	// addressReserve is the divisor for the part of the links that a single address leaves free for the rest. Limits
	// by peer are not enough, because a host can create any number of peers, each with its own token.
	addressReserve = 8
	// maxEpochs bounds the epochs of a link that are not over: the current epoch, and some epochs that the peer has
	// given up forming and this node has not given up yet.
	maxEpochs = 8
	// maxRevokes is the number of grants that can be in force at a time, as the ids of grants in force differ in the
	// low 16 bits.
	maxRevokes = 1 << 16
)

// ArrivalsConfig configures the links that peers open to a plane.
type ArrivalsConfig struct {
	Name    string    // the plane's name
	Env     plane.Env // with a Leased pool
	Log     *slog.Logger
	Boot    [16]byte        // this boot of this host (BootID)
	Opening context.Context // done when the plane closes
	Going   *sync.WaitGroup // waits for each goroutine
	Links   int             // limit of links
	Remedy  string          // what to do if MaxLinks is too small
	// Files limits the links to the number of files that the process may open, divided by FilesPerLink.
	Files int
	Frame int   // limit of the bytes of a frame
	Hello uint8 // the kind of a hello
	// FencedFrame makes the frame that reports a fenced epoch.
	Fenced func(epoch uint64) []byte
	// Revoked lists the revoked grants of a peer; more reports that there were further revoked grants.
	Revoked func(peer effects.Incarnation) (ids []effects.GrantID, more bool)
	// NewExecutor makes the executor of a new link.
	Hands func(*Arrival) TargetHands
}

// IncomingLinks are the links that peers have opened in order to push to us and to read from us. A single machine
// decides for all links, under a single mutex. The type is the plane.Expeller of the pool that the plane serves.
type Arrivals struct {
	cfg  ArrivalsConfig
	door *door.Door // admits the connections of initiators

	mu       sync.Mutex
	closed   bool
	conns    map[net.Conn]struct{} // admitted connections, for Close; at most 2 × MaxLinks
	target   communicator.Target
	decided  communicator.TargetOut              // the decisions of the machine's last step
	incoming map[communicator.SessionID]*Arrival // at most MaxLinks
	revokes  uint64                              // number of revocations requested so far
	revoking map[uint64]func()                   // called when the revocation is proven; at most as many as grants
	expelled uint64                              // epochs of peers that were fenced to revoke a grant
}

var _ plane.Expeller = (*Arrivals)(nil)

// NewArrivals returns an empty set of links.
func NewArrivals(c ArrivalsConfig) *Arrivals {
	limits := communicator.Limits{
		Sessions: c.Links, OfPeer: maxLinksPerPeer, Reserved: addressReserve, Epochs: maxEpochs, Revokes: maxRevokes,
	}
	s := &Arrivals{
		cfg: c, conns: map[net.Conn]struct{}{}, incoming: map[communicator.SessionID]*Arrival{},
		revoking: map[uint64]func(){}, target: communicator.NewTarget(limits, rand.Uint64()),
	}
	s.door = door.New(s.admission())
	return s
}

// Serve accepts peers on a listener until Close.
func (s *Arrivals) Serve(listener net.Listener) { s.door.Serve(listener, "plane "+s.cfg.Name, s.visit) }

// admission limits the connections of initiators. At most MaxLinks connections are admitted peers', and these are
// never closed in favour of a new connection, because their end is a proof (M4). There is room for as many strangers.
func (s *Arrivals) admission() door.Config {
	limit, _, err := door.FileLimit()
	if err != nil {
		s.cfg.Log.Warn("the limit of open files is not known", "err", err)
		limit = 1024
	}
	return s.cfg.doorFor(limit)
}

// doorFor returns the limits for a process that may open so many files.
func (c *ArrivalsConfig) doorFor(limit int) door.Config {
	links := c.Links
	if few := max(limit/c.Files, 1); links > few {
		c.Log.Warn("this process may open few files, which limits the links of initiators",
			"files_max", limit, "links_wanted", links, "links_max", few,
			"remedy", "raise the limit of open files (ulimit -n, LimitNOFILE)")
		links = few
	}
	return door.Config{
		Total: 2 * links, PerAddress: 2 * links, Strangers: min(c.Env.Bounds.Strangers, links),
		Patience: c.Env.Bounds.Handshake, Log: c.Log,
	}
}

// visit serves a connection, unless the plane is closed.
func (s *Arrivals) visit(accepted *door.Conn) error {
	if !s.track(accepted.Conn) {
		return nil
	}
	defer s.cfg.Going.Done()
	defer s.untrack(accepted.Conn)
	if err := s.handle(accepted); s.cfg.Opening.Err() == nil {
		return err
	}
	return nil
}

// track registers a connection, so that Close knows of the connection and waits until it is served.
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

// Expel implements plane.Expeller. The peer may offer a new epoch at once, and is then told which grants were revoked.
func (s *Arrivals) Expel(peer effects.Incarnation, gone func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revokes++
	s.revoking[s.revokes] = gone
	s.feed(communicator.TargetEvent{Kind: communicator.Expels, Revoke: s.revokes, Peer: peer}, nil)
}

// feed makes the target's machine process an event and carries out the decisions; cause says why a link ends by the
// event. Nothing of that blocks or calls back into IncomingLinks. The caller holds the mutex, so that every grant
// revoked before is reported to an epoch that begins (M4).
func (s *Arrivals) feed(ev communicator.TargetEvent, why error) {
	out := &s.decided
	out.Reset()
	s.target.Step(&ev, out)
	for _, name := range out.Expelled {
		s.expelled++
		s.incoming[name.Session].Log.Info("a peer's epoch is fenced, to revoke what it was granted", "epoch", name.Epoch)
	}
	for _, name := range out.Fences {
		s.incoming[name.Session].Channel.Send(s.cfg.Fenced(name.Epoch))
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
			in.postEvent(communicator.TargetEvent{Kind: communicator.MarginOver, Epoch: name.Epoch}, nil)
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

// Counts returns the number of links, and the number of epochs of peers that were ever fenced to revoke a grant.
func (s *Arrivals) Counts() (links int, expelled uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.incoming), s.expelled
}

// Ends calls f with each of our endpoints that may still reach the pool, or is not gone yet.
func (s *Arrivals) Ends(f func(End)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, in := range s.incoming {
		for _, end := range in.ends {
			f(end)
		}
	}
}

// Close asks all links to end, without waiting, and admits no more links.
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
	_ = s.door.Shut() // Not Close, which would end the connections that were admitted.
}

// Reachable returns an error that names the peers for which there is no proof, and will be none, that the peer cannot
// reach the pool any more (M4). It is called after everything that ends has ended.
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
