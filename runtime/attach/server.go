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

// Config has the parameters of a Server.
type Config struct {
	// Node must be opened with runtime.WithAttachable. The caller closes the Server first, and then Node.
	Node *runtime.Node
	// Path is the path of the socket. The lock file, which marks the socket as served, is at Path + Lock. Only this
	// user may be able to write to their directory. A socket that no agent serves any more is replaced.
	Path string
	// Engines is the maximum number of engines that are attached at the same time, at most 4,096; 0: 64. A process may
	// have at most a quarter of this number of sessions, but at least four.
	Engines int
	// Window is the maximum number of open calls of an engine, at most 65,536; 0: 256.
	Window int
	// Holdings is the maximum number of handles that an engine may hold, at most 2²⁰; 0: 4096.
	Holdings int
	// CallBytes is the maximum size in bytes of the open calls of an engine, as session.CallCost counts them: about 600
	// bytes for each key. The range is 1 MiB to 64 GiB; 0: 128 MiB.
	CallBytes int
	// Keys is the maximum number of keys in a call, at most 65,536; 0: 65,536. The node splits a call with more than
	// limits.keys_per_batch keys into parts.
	Keys int
	// Limits are the limits of keys and texts that the node uses for messages to peers; nil: protocol.DefaultLimits.
	Limits *protocol.Limits
	// MessageBytes is the maximum size in bytes of a message of an engine, at most 64 MiB; 0: 16 MiB, which is enough
	// for the maximum number of keys with 200 bytes each.
	MessageBytes int
	// Handshake is the time within which the first message of a connection must arrive; 0: 5 s.
	Handshake time.Duration
	// Poll limits the time for which the server polls for the next call of an engine after each answer before the
	// server sleeps. The server polls only on connections where the next call tends to arrive in time. 0: the server
	// sleeps immediately.
	Poll time.Duration
	// Log receives the server's log; nil: slog.Default().
	Log *slog.Logger
}

// orDefault returns v, or the default if v is zero.
func orDefault[T int | time.Duration](v, byDefault T) T {
	if v == 0 {
		return byDefault
	}
	return v
}

// checkBounds returns an error if a number is out of bounds. The upper bounds exist because the server may allocate
// memory in proportion to each number.
func (c *Config) checkBounds() error {
	for _, x := range []struct {
		name            string
		value, min, max int
	}{
		{"Engines", c.Engines, 1, 4096}, {"Window", c.Window, 1, 1 << 16}, {"Holdings", c.Holdings, 1, 1 << 20},
		{"CallBytes", c.CallBytes, 1 << 20, 64 << 30}, {"Keys", c.Keys, 1, 1 << 16},
		{"MessageBytes", c.MessageBytes, 1, 64 << 20},
	} {
		if x.value < x.min || x.value > x.max {
			return fmt.Errorf("attach: %s is %d; set it to %d to %d, or to 0 for the default", x.name, x.value, x.min, x.max)
		}
	}
	return nil
}

// A Server accepts the connections of engines and carries out the engines' calls on one node. All methods are safe for
// concurrent use.
type Server struct {
	cfg     Config
	log     *slog.Logger
	node    *runtime.Node
	mapping runtime.Mapping
	wire    protocol.Limits
	door    *door.Door
	ctx     context.Context // the context of all calls; cancel ends them
	cancel  context.CancelFunc
	tasks   sync.WaitGroup
	closing sync.Once
	closed  chan struct{}

	mu          sync.Mutex
	machine     *session.Machine
	out         session.Effects
	lastProcess session.Process
	conns       map[session.Conn]*engineConn
	processes   map[int]*process // the processes that have a session, by process number
	engines     map[uint64]*engine
	idle        chan struct{} // closed when no engine is left; nil: no Drain is waiting
}

// An engine is the server's record of one session.
type engine struct {
	process *process
	name    string
	calls   map[uint64]*call
	handles map[uint64]*handle
	// Results of puts that have ended, until the machine drops the records of their calls.
	puts       map[uint64]*runtime.PutResult
	device     int32       // number of the admitted process on the device, for RemoveProcess; 0: none was admitted
	quickCalls chan func() // quick calls, in the order in which they are carried out
}

// Serve listens on a socket and lets engines attach, until Close is called. It fails if a number of cfg is out of
// bounds, if the node cannot be mapped, or if the socket cannot be created.
func Serve(cfg Config) (*Server, error) {
	cfg.Engines, cfg.Window = orDefault(cfg.Engines, 64), orDefault(cfg.Window, 256)
	cfg.Holdings, cfg.Keys = orDefault(cfg.Holdings, 4096), orDefault(cfg.Keys, 1<<16)
	cfg.CallBytes = orDefault(cfg.CallBytes, 128<<20)
	cfg.MessageBytes, cfg.Handshake = orDefault(cfg.MessageBytes, 16<<20), orDefault(cfg.Handshake, 5*time.Second)
	if err := cfg.checkBounds(); err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	mapping, err := cfg.Node.Mapping()
	if err != nil {
		return nil, err
	}
	listener, err := listenUnix(cfg.Path, cfg.Poll)
	if err != nil {
		return nil, fmt.Errorf("attach: socket %q: %w", cfg.Path, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{cfg: cfg, log: cfg.Log.With("socket", cfg.Path), node: cfg.Node, mapping: mapping, ctx: ctx,
		cancel: cancel, closed: make(chan struct{}), conns: map[session.Conn]*engineConn{}, processes: map[int]*process{},
		engines: map[uint64]*engine{}, wire: protocol.DefaultLimits()}
	if cfg.Limits != nil {
		s.wire = *cfg.Limits
	}
	s.wire.MessageBytes, s.wire.ArrayLen = cfg.MessageBytes, max(cfg.Keys, cfg.Window)
	s.machine = session.New(session.Config{Response: s.attachResponse(), SessionsMax: cfg.Engines,
		ProcessMax: min(cfg.Engines, max(4, cfg.Engines/4)), HoldingsMax: cfg.Holdings, CallBytesMax: cfg.CallBytes,
		Wire: s.wire})
	// Only processes of the same user reach the socket, so a "stranger" in the sense of package door is a connection
	// that has not sent a first message yet.
	total := 2*cfg.Engines + 8
	s.door = door.New(door.Config{MaxTotal: total, MaxPerAddress: total, MaxStrangers: 8 + cfg.Engines, HandshakeTimeout: cfg.Handshake,
		Log: s.log})
	s.door.Serve(listener, "attach", s.serveConn)
	return s, nil
}

// attachResponse returns the reply that an engine receives in answer to the attach request: the node's layout and
// limits, and how to map the pool.
func (s *Server) attachResponse() protocol.AttachResponse {
	layout := s.node.Layout()
	m := protocol.AttachResponse{
		Version: protocol.AttachVersion, Incarnation: protocol.UUID(s.node.Incarnation()), Offset: uint64(s.mapping.Offset),
		PageBytes: uint64(s.mapping.PageBytes), Pages: uint32(s.mapping.Pages), Layers: uint32(s.node.Layers()),
		Window: uint32(s.cfg.Window), Keys: uint32(s.cfg.Keys), Bytes: uint32(s.cfg.MessageBytes),
		Tenants: s.node.LimitsTenants(), Format: layout.Format, Shape: layout.Shape, Dtype: layout.Dtype,
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
		m.Producer = []byte(s.producerAddr())
	}
	return m
}

// producerAddr returns the address at which the node accepts registrations, in the form that engines on remote hosts
// use.
func (s *Server) producerAddr() string {
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

// Path returns the path of the socket, absolute if the working directory is known.
func (s *Server) Path() string {
	if path, err := filepath.Abs(s.cfg.Path); err == nil {
		return path
	}
	return s.cfg.Path
}

// Counts has the number of attached engines, and the total numbers of their open calls and handles.
type Counts struct {
	Engines  int `json:"engines"`
	Calls    int `json:"calls"`
	Holdings int `json:"holdings"`
}

// Counts returns the current counts.
func (s *Server) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls, holdings := s.machine.Totals()
	return Counts{s.machine.CountSessions(), calls, holdings}
}

// stepMachine calls f with the session machine and carries out the effects that the machine requests. The caller holds
// the server's mutex.
func (s *Server) stepMachine(f func(m *session.Machine, out *session.Effects)) {
	out := &s.out
	out.Reset()
	f(s.machine, out)
	for _, x := range out.Sends {
		if c := s.conns[x.Conn]; c != nil {
			c.sendMessage(x.Body, x.WithMemory)
		}
	}
	for _, x := range out.Begins {
		s.beginCall(x)
	}
	for _, x := range out.Aborts {
		s.engines[x.Session].calls[x.ID].abortCall()
	}
	for _, x := range out.ShowResults {
		s.engines[x.Session].calls[x.ID].reportShown(x.Code)
	}
	for _, x := range out.Frees {
		s.freeHandle(x)
	}
	for _, x := range out.Closes {
		if c := s.conns[x.Conn]; c != nil {
			c.closeAfterFlush(x.Why)
		}
	}
	for _, x := range out.Drops {
		s.dropPutResult(x)
	}
	for _, id := range out.EndedSessions {
		s.log.Debug("an engine has left", "session", id, "engine", s.engines[id].name)
		close(s.engines[id].quickCalls)
		s.node.RemoveProcess(s.engines[id].device)
		s.engines[id].process.removeSession(s)
		delete(s.engines, id)
	}
	if len(s.engines) == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

// lockAndStep is step for a caller that does not hold the server's mutex.
func (s *Server) lockAndStep(f func(m *session.Machine, out *session.Effects)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stepMachine(f)
}

// Drain refuses new engines, ends the session of each attached engine as soon as the engine has no open call and holds
// no handle, and waits until no engine is left. If ctx ends first, Drain returns an error with the number of engines
// that were attached when Drain was called.
func (s *Server) Drain(ctx context.Context) error {
	s.mu.Lock()
	s.stepMachine(func(m *session.Machine, out *session.Effects) { m.Drain(out) })
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
		return fmt.Errorf("attach: %d engines are still attached: %w; they keep their handles until they detach or end",
			left, ctx.Err())
	}
}

// Close ends the server: it closes the connections, aborts the open calls, and waits until the calls have ended. The
// handles of engines are not given back, so if engines have not detached, the node keeps the memory until this process
// ends. If ctx ends first, Close returns an error while the server continues to close; Close may be called again to
// wait for the end.
func (s *Server) Close(ctx context.Context) error {
	s.closing.Do(func() {
		s.mu.Lock()
		s.stepMachine(func(m *session.Machine, out *session.Effects) { m.Drain(out) })
		for _, c := range s.conns {
			c.closeAfterFlush("the agent ends")
		}
		s.mu.Unlock()
		s.cancel()
		go func() {
			_ = s.door.Close(context.Background()) // It fails only for a listener that is closed already.
			s.tasks.Wait()
			close(s.closed)
		}()
	})
	select {
	case <-s.closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("attach: calls of engines are still ending: %w", ctx.Err())
	}
}
