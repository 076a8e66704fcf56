package attach

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/session"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/internal/door"
)

// Config is what a Server must know.
type Config struct {
	// Node is opened with runtime.WithAttachable. It stays the caller's to close, after the Server.
	Node *runtime.Node
	// Path is where the socket is, and the file whose lock says that it is served (Lock). Their directory must be the
	// user's alone to write; a socket that nobody serves any more is replaced.
	Path string
	// Engines is how many may be attached at a time, at most 4,096; 0: 64. One process has at most a quarter of the
	// places, but at least four.
	Engines int
	// Window is how many calls of one engine may be open at a time, at most 65,536; 0: 256.
	Window int
	// Holdings is how many handles one engine may hold at a time, at most 2²⁰; 0: 4096.
	Holdings int
	// CallBytes is what the open calls of one engine may take, as session.Cost counts it, about 600 bytes for each key;
	// from 1 MiB to 64 GiB; 0: 128 MiB.
	CallBytes int
	// Keys is how many keys one call may name, at most 65,536; 0: 65,536. The node does what is beyond
	// limits.keys_per_batch in parts.
	Keys int
	// Limits are those of the node's own messages, for keys and texts; nil: protocol.DefaultLimits.
	Limits *protocol.Limits
	// MessageBytes bounds a message of an engine, at most 64 MiB; 0: 16 MiB, so many keys of 200 bytes each.
	MessageBytes int
	// Handshake is how long a connection may take for its first message; 0: 5 s.
	Handshake time.Duration
	// Poll is for how long the server polls for an engine's next call after each answer, where that tends to come in time,
	// before it sleeps; 0: it sleeps at once.
	Poll time.Duration
	// Log is where the server logs; nil: slog.Default().
	Log *slog.Logger
}

func orElse[T int | time.Duration](v, standard T) T {
	if v == 0 {
		return standard
	}
	return v
}

// within says which number is out of its bounds: of each as much may be made room for.
func (c *Config) within() error {
	for _, x := range []struct {
		name               string
		value, least, most int
	}{
		{"Engines", c.Engines, 1, 4096}, {"Window", c.Window, 1, 1 << 16}, {"Holdings", c.Holdings, 1, 1 << 20},
		{"CallBytes", c.CallBytes, 1 << 20, 64 << 30}, {"Keys", c.Keys, 1, 1 << 16},
		{"MessageBytes", c.MessageBytes, 1, 64 << 20},
	} {
		if x.value < x.least || x.value > x.most {
			return fmt.Errorf("attach: %s is %d; give %d to %d, or 0 for what is usual", x.name, x.value, x.least, x.most)
		}
	}
	return nil
}

// A Server is a node's door for engines. All methods are safe for concurrent use.
type Server struct {
	cfg     Config
	log     *slog.Logger
	node    *runtime.Node
	mapping runtime.Mapping
	wire    protocol.Limits
	door    *door.Door
	ctx     context.Context // ends all calls
	cancel  context.CancelFunc
	tasks   sync.WaitGroup
	closing sync.Once
	joined  chan struct{}

	mu          sync.Mutex
	machine     *session.Machine
	out         session.Out
	lastProcess session.Process
	conns       map[session.Conn]*conn
	processes   map[int]*process // by their numbers, those that have a session
	engines     map[uint64]*engine
	idle        chan struct{} // closed when no engine is left; nil: nobody waits for that
}

// An engine is what the server has of one session.
type engine struct {
	process *process
	name    string
	calls   map[uint64]*work
	holds   map[uint64]*held
	puts    map[uint64]*runtime.PutResult // that have ended, until their calls are forgotten
	device  int32                         // its process as the device's driver knows it, to depart; 0: none was admitted
	swift   chan func()                   // calls that do not wait, to be carried out in their order
}

// Serve begins to let engines attach. Close ends it.
func Serve(cfg Config) (*Server, error) {
	cfg.Engines, cfg.Window = orElse(cfg.Engines, 64), orElse(cfg.Window, 256)
	cfg.Holdings, cfg.Keys = orElse(cfg.Holdings, 4096), orElse(cfg.Keys, 1<<16)
	cfg.CallBytes = orElse(cfg.CallBytes, 128<<20)
	cfg.MessageBytes, cfg.Handshake = orElse(cfg.MessageBytes, 16<<20), orElse(cfg.Handshake, 5*time.Second)
	if err := cfg.within(); err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	mapping, err := cfg.Node.Mapping()
	if err != nil {
		return nil, err
	}
	listener, err := listen(cfg.Path, cfg.Poll)
	if err != nil {
		return nil, fmt.Errorf("attach: socket %q: %w", cfg.Path, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{cfg: cfg, log: cfg.Log.With("socket", cfg.Path), node: cfg.Node, mapping: mapping, ctx: ctx,
		cancel: cancel, joined: make(chan struct{}), conns: map[session.Conn]*conn{}, processes: map[int]*process{},
		engines: map[uint64]*engine{}, wire: protocol.DefaultLimits()}
	if cfg.Limits != nil {
		s.wire = *cfg.Limits
	}
	s.wire.MessageBytes, s.wire.ArrayLen = cfg.MessageBytes, max(cfg.Keys, cfg.Window)
	s.machine = session.New(session.Config{Told: s.told(), SessionsMax: cfg.Engines,
		ProcessMax: min(cfg.Engines, max(4, cfg.Engines/4)), HoldingsMax: cfg.Holdings, CallBytesMax: cfg.CallBytes,
		Wire: s.wire})
	// Nobody but the user's own processes gets here, so a stranger is one that has not said anything yet.
	total := 2*cfg.Engines + 8
	s.door = door.New(door.Config{Total: total, PerAddress: total, Strangers: 8 + cfg.Engines, Patience: cfg.Handshake,
		Log: s.log})
	s.door.Serve(listener, "attach", s.serve)
	return s, nil
}

// told is what each engine is told when it attaches.
func (s *Server) told() protocol.AttachResponse {
	layout := s.node.Layout()
	m := protocol.AttachResponse{
		Version: protocol.AttachVersion, Incarnation: protocol.UUID(s.node.Incarnation()), Offset: uint64(s.mapping.Offset),
		PageBytes: uint64(s.mapping.PageBytes), Pages: uint32(s.mapping.Pages), Layers: uint32(s.node.Layers()),
		Window: uint32(s.cfg.Window), Keys: uint32(s.cfg.Keys), Bytes: uint32(s.cfg.MessageBytes),
		Format: layout.Format, Shape: layout.Shape, Dtype: layout.Dtype,
	}
	if x := s.mapping.Export; x != nil {
		m.DeviceKey, m.Device, m.DeviceBytes = []byte(x.Key), uint32(x.Physical), x.Bytes
		if s.mapping.DevicePages > 0 {
			m.DevicePages, m.DeviceFrom, m.DeviceOffset = s.mapping.DevicePages, s.mapping.DeviceFrom, x.Offset
		} else {
			m.Offset = x.Offset
		}
	}
	for _, side := range s.node.Sides() {
		m.Sides = append(m.Sides, []byte(side))
	}
	if s.node.Geometry() != nil {
		m.Producer = []byte(s.producer())
	}
	return m
}

// producer is where the node takes registrations, as engines of other hosts name it.
func (s *Server) producer() string {
	var host string
	var init, port uint16
	for _, x := range s.node.Servers() {
		switch x.Channel { //nolint:exhaustive // The others are for chunks.
		case effects.ChannelInit:
			host, init = x.Addr.Host, x.Addr.Port
		case effects.ChannelRegister:
			port = x.Addr.Port
		}
	}
	return net.JoinHostPort(host, strconv.Itoa(int(init))) + ":" + strconv.Itoa(int(port))
}

// Path is where engines attach.
func (s *Server) Path() string {
	if path, err := filepath.Abs(s.cfg.Path); err == nil {
		return path
	}
	return s.cfg.Path
}

// Counts are how many engines are attached, and how many calls and handles of theirs are open.
type Counts struct {
	Engines  int `json:"engines"`
	Calls    int `json:"calls"`
	Holdings int `json:"holdings"`
}

// Counts returns those of now.
func (s *Server) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls, holdings := s.machine.Totals()
	return Counts{s.machine.Sessions(), calls, holdings}
}

// step lets the machine do something, and carries out what it wants. With the mutex held.
func (s *Server) step(f func(m *session.Machine, out *session.Out)) {
	out := &s.out
	out.Reset()
	f(s.machine, out)
	for _, x := range out.Sends {
		if c := s.conns[x.Conn]; c != nil {
			c.post(x.Body, x.Attached)
		}
	}
	for _, x := range out.Begins {
		s.begin(x)
	}
	for _, x := range out.Aborts {
		s.engines[x.Session].calls[x.ID].abort()
	}
	for _, x := range out.Showns {
		s.engines[x.Session].calls[x.ID].shown(x.Code)
	}
	for _, x := range out.Frees {
		s.free(x)
	}
	for _, x := range out.Closes {
		if c := s.conns[x.Conn]; c != nil {
			c.end(x.Why)
		}
	}
	for _, x := range out.Drops {
		s.drop(x)
	}
	for _, id := range out.Leaves {
		s.log.Debug("an engine has left", "session", id, "engine", s.engines[id].name)
		close(s.engines[id].swift)
		s.node.Depart(s.engines[id].device)
		s.engines[id].process.release(s)
		delete(s.engines, id)
	}
	if len(s.engines) == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

// do is step for who does not hold the mutex.
func (s *Server) do(f func(m *session.Machine, out *session.Out)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step(f)
}

// Drain refuses engines that are not attached, lets those that are go as soon as they have nothing open and hold
// nothing, and waits for that.
func (s *Server) Drain(ctx context.Context) error {
	s.mu.Lock()
	s.step(func(m *session.Machine, out *session.Out) { m.Drain(out) })
	if len(s.engines) == 0 {
		s.mu.Unlock()
		return nil
	}
	if s.idle == nil {
		s.idle = make(chan struct{})
	}
	idle, left := s.idle, len(s.engines)
	s.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("attach: %d engines are attached still: %w; what they hold is theirs until they detach or end",
			left, ctx.Err())
	}
}

// Close ends the server: connections are closed, and calls are aborted and end. What engines hold stays theirs, so a
// node whose engines have not detached keeps its memory until the process ends. If ctx is over before, it goes on by
// itself, and Close may be called again to wait for it.
func (s *Server) Close(ctx context.Context) error {
	s.closing.Do(func() {
		s.mu.Lock()
		s.step(func(m *session.Machine, out *session.Out) { m.Drain(out) })
		for _, c := range s.conns {
			c.end("the agent ends")
		}
		s.mu.Unlock()
		s.cancel()
		go func() {
			_ = s.door.Close(context.Background()) // It fails for no listener but one that is closed.
			s.tasks.Wait()
			close(s.joined)
		}()
	})
	select {
	case <-s.joined:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("attach: calls of engines are still ending: %w", ctx.Err())
	}
}
