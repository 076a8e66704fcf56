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
	"github.com/kvferry/kvferry/runtime/secure"
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

// IncomingConfig configures the links that peers open to a plane.
type IncomingConfig struct {
	Name       string    // the plane's name
	Env        plane.Env // with a Leased pool
	Log        *slog.Logger
	Boot       [16]byte        // this boot of this host (BootID)
	Context    context.Context // done when the plane closes
	Goroutines *sync.WaitGroup // waits for each goroutine
	MaxLinks   int             // limit of links
	Remedy     string          // what to do if MaxLinks is too small
	// FilesPerLink limits the links to the number of files that the process may open, divided by FilesPerLink.
	FilesPerLink  int
	MaxFrameBytes int   // limit of the bytes of a frame
	Hello         uint8 // the kind of a hello
	// FencedFrame makes the frame that reports a fenced epoch.
	FencedFrame func(epoch uint64) []byte
	// RevokedGrants lists the revoked grants of a peer; more reports that there were further revoked grants.
	RevokedGrants func(peer effects.Incarnation) (ids []effects.GrantID, more bool)
	// NewExecutor makes the executor of a new link.
	NewExecutor func(*IncomingLink) TargetExecutor
}

// IncomingLinks are the links that peers have opened in order to push to us and to read from us. A single machine
// decides for all links, under a single mutex. The type is the plane.Expeller of the pool that the plane serves.
type IncomingLinks struct {
	cfg  IncomingConfig
	door *door.Door // admits the connections of initiators

	mu             sync.Mutex
	closed         bool
	conns          map[net.Conn]struct{} // admitted connections, for Close; at most 2 × MaxLinks
	machine        communicator.Target
	decisions      communicator.TargetEffects               // the decisions of the machine's last step
	links          map[communicator.SessionID]*IncomingLink // at most MaxLinks
	revokeCount    uint64                                   // number of revocations requested so far
	pendingRevokes map[uint64]func()                        // called when the revocation is proven; at most as many as grants
	expelledEpochs uint64                                   // epochs of peers that were fenced to revoke a grant
}

var _ plane.Expeller = (*IncomingLinks)(nil)

// NewIncomingLinks returns an empty set of links.
func NewIncomingLinks(c IncomingConfig) *IncomingLinks {
	limits := communicator.Limits{
		Sessions: c.MaxLinks, PerPeer: maxLinksPerPeer, Reserved: addressReserve, Epochs: maxEpochs, Revocations: maxRevokes,
	}
	s := &IncomingLinks{
		cfg: c, conns: map[net.Conn]struct{}{}, links: map[communicator.SessionID]*IncomingLink{},
		pendingRevokes: map[uint64]func(){}, machine: communicator.NewTarget(limits, rand.Uint64()),
	}
	s.door = door.New(s.doorConfig())
	return s
}

// Serve accepts peers on a listener until Close.
func (s *IncomingLinks) Serve(listener net.Listener) {
	if s.cfg.Env.Guard.Mode() != secure.Off {
		s.cfg.Log.Warn("peers of this plane are authenticated on its channel, and the library moves the pages without encryption",
			"remedy", "isolate the network of the library, or use the tcp plane")
	}
	s.door.Serve(listener, "plane "+s.cfg.Name, s.serveConn)
}

// doorConfig limits the connections of initiators. At most MaxLinks connections are admitted peers', and these are
// never closed in favour of a new connection, because their end is a proof (M4). There is room for as many strangers.
func (s *IncomingLinks) doorConfig() door.Config {
	limit, _, err := door.FileLimit()
	if err != nil {
		s.cfg.Log.Warn("cannot read the limit of open files; assuming 1024", "err", err)
		limit = 1024
	}
	return s.cfg.doorConfigFor(limit)
}

// doorConfigFor returns the limits for a process that may open so many files.
func (c *IncomingConfig) doorConfigFor(limit int) door.Config {
	links := c.MaxLinks
	if fewLinks := max(limit/c.FilesPerLink, 1); links > fewLinks {
		c.Log.Warn("this process may open few files, which limits the links of initiators",
			"files_max", limit, "links_wanted", links, "links_max", fewLinks,
			"remedy", "raise the limit of open files (ulimit -n, LimitNOFILE)")
		links = fewLinks
	}
	return door.Config{
		MaxTotal: 2 * links, MaxPerAddress: 2 * links, MaxStrangers: min(c.Env.Bounds.Strangers, links),
		HandshakeTimeout: c.Env.Bounds.HandshakeTimeout, Log: c.Log,
	}
}

// serveConn serves a connection, unless the plane is closed.
func (s *IncomingLinks) serveConn(accepted *door.Conn) error {
	if !s.trackConn(accepted.Conn) {
		return nil
	}
	defer s.cfg.Goroutines.Done()
	defer s.untrackConn(accepted.Conn)
	if err := s.serveLink(accepted); s.cfg.Context.Err() == nil {
		return err
	}
	return nil
}

// trackConn registers a connection, so that Close knows of the connection and waits until it is served.
func (s *IncomingLinks) trackConn(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.cfg.Goroutines.Add(1)
	s.conns[conn] = struct{}{}
	return true
}

func (s *IncomingLinks) untrackConn(conn net.Conn) {
	_ = conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
}

// Expel implements plane.Expeller. The peer may offer a new epoch at once, and is then told which grants were revoked.
func (s *IncomingLinks) Expel(peer effects.Incarnation, gone func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revokeCount++
	s.pendingRevokes[s.revokeCount] = gone
	s.stepMachine(communicator.TargetEvent{Kind: communicator.GrantRevoked, Revocation: s.revokeCount, Peer: peer}, nil)
}

// stepMachine makes the target's machine process an event and carries out the decisions; cause says why a link ends by
// the event. Nothing of that blocks or calls back into IncomingLinks. The caller holds the mutex, so that every grant
// revoked before is reported to an epoch that begins (M4).
func (s *IncomingLinks) stepMachine(ev communicator.TargetEvent, cause error) {
	out := &s.decisions
	out.Reset()
	s.machine.Step(&ev, out)
	for _, name := range out.FencedToRevoke {
		s.expelledEpochs++
		s.links[name.Session].Log.Info("the epoch of a peer is fenced, because a grant to the peer is revoked", "epoch", name.Epoch)
	}
	for _, name := range out.SendFenced {
		s.links[name.Session].Channel.Send(s.cfg.FencedFrame(name.Epoch))
	}
	for _, name := range out.RemoveEnds {
		s.links[name.Session].endpoints[name.Epoch].StartClose()
	}
	for _, session := range out.LostLinks {
		in := s.links[session]
		in.Log.Info("a peer's link ended", "err", cause)
		s.cfg.Env.Sink.Post(&effects.LinkLost{Peer: in.From})
	}
	for _, name := range out.StartMargins {
		in := s.links[name.Session]
		end := in.endpoints[name.Epoch]
		s.cfg.Goroutines.Go(func() {
			in.executor.AwaitMargin(end)
			in.postEvent(communicator.TargetEvent{Kind: communicator.MarginPassed, Epoch: name.Epoch}, nil)
		})
	}
	for _, name := range out.OverEpochs {
		delete(s.links[name.Session].endpoints, name.Epoch)
	}
	for _, n := range out.DoneRevocations {
		s.pendingRevokes[n]()
		delete(s.pendingRevokes, n)
	}
	for _, session := range out.CloseConns {
		s.links[session].executor.HangUp()
	}
	for _, session := range out.EndedSessions {
		delete(s.links, session)
	}
}

// LinkCounts returns the number of links, and the number of epochs of peers that were ever fenced to revoke a grant.
func (s *IncomingLinks) LinkCounts() (links int, expelled uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.links), s.expelledEpochs
}

// ForEachEndpoint calls f with each of our endpoints that may still reach the pool, or is not gone yet.
func (s *IncomingLinks) ForEachEndpoint(f func(Endpoint)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, in := range s.links {
		for _, end := range in.endpoints {
			f(end)
		}
	}
}

// Close asks all links to end, without waiting, and admits no more links.
func (s *IncomingLinks) Close() {
	s.mu.Lock()
	s.closed = true
	served := map[net.Conn]bool{}
	for _, in := range s.links {
		served[secure.Beneath(in.Channel.Conn())] = true
	}
	s.stepMachine(communicator.TargetEvent{Kind: communicator.PlaneClosing}, nil)
	for conn := range s.conns {
		if !served[conn] {
			_ = conn.Close()
		}
	}
	s.mu.Unlock()
	_ = s.door.StopAccepting() // Not Close, which would end the connections that were admitted.
}

// CheckProven returns an error that names the peers for which there is no proof, and will be none, that the peer cannot
// reach the pool any more (M4). It is called after everything that ends has ended.
func (s *IncomingLinks) CheckProven() (err error) {
	_ = s.door.Close(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, in := range s.links {
		if len(in.endpoints) > 0 {
			err = errors.Join(err, fmt.Errorf("there is no proof that peer %x cannot reach the pool any more: the pool's "+
				"memory stays mapped until this process ends", in.From[:4]))
		}
	}
	return err
}
