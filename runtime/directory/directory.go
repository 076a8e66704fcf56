// Package directory runs a directory: a server that knows which worker has which chunk. The directory listens where
// the workers of LMCache and of kvferry look for their controller, and answers lookups. A directory knows only hints
// that workers report again, so nothing is kept on disk: after a restart the directory asks each worker for a full
// sync.
//
// Several directories that name the same log exchange their reports through the log, so that each directory knows the
// workers of all.
//
//	d, err := directory.Open(cfg, zmq.Config{}.Opener(), slog.Default())
//	...
//	figures, ok := d.Figures() // how many workers and chunks it knows
//	err = d.Close(ctx)
//
// A caller may rely on the following, beside what packages fsm/directory and fsm/directory/serve promise. Messages of
// workers are read only as fast as the machine takes messages. A worker that is silent or slow, or reports falsehoods,
// costs the remaining workers no more than a share of the tables. Close ends within the transport's bounds.
package directory

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"net/netip"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/fsm/directory/serve"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/internal/asynclog"
	"github.com/kvferry/kvferry/runtime/internal/loglimit"
	"github.com/kvferry/kvferry/runtime/secure"
)

// A Directory is a running directory. All methods are safe for concurrent use.
type Directory struct {
	host      *runtime.Host
	machine   *serve.Machine // of the loop; read between its steps
	ports     []config.MonitorPorts
	heartbeat string
	lines     *loglimit.Log
	log       *asynclog.Handler // of lines that are on their way to cfg's handler
	guard     *secure.Guard     // nil: connections are plain
}

// Figures counts the entries of the directory's tables.
type Figures = directory.Figures

// Open starts a directory and returns when the directory serves. open makes the transport; log may be nil. The error
// is a *runtime.Error.
func Open(cfg *config.Directory, open control.Opener, log *slog.Logger) (*Directory, error) {
	if log == nil {
		log = slog.Default()
	}
	d := &Directory{log: asynclog.New(log.Handler())}
	d.lines = loglimit.New(slog.New(d.log))
	if err := cfg.Security.CheckExposed(); err != nil {
		return nil, &runtime.Error{Op: "open", Code: effects.Invalid, Cause: err,
			Remedy: "set security.mode, or declare the network trusted by security.allow_off"}
	}
	guard, err := cfg.Security.Open(slog.New(d.log))
	if err != nil {
		return nil, &runtime.Error{Op: "open", Code: effects.Invalid, Cause: err, Remedy: "correct the file or the key that is named"}
	}
	d.guard = guard
	host, err := runtime.OpenHost(runtime.HostConfig{
		Guard:   guard,
		Servers: monitorServers(cfg), Control: open, Log: log, QueuedMax: int(cfg.Bounds.Mailbox), OnObserve: d.logEvent,
		QueuedBytesMax: 4 * cfg.Limits.MessageBytes,
		NewMachine: func(_ effects.Time, listens []control.Server) (effects.Machine, error) {
			d.ports = boundPorts(cfg.Monitors, listens)
			d.heartbeat = heartbeatAddr(cfg, d.ports)
			var err error
			d.machine, err = serve.New(machineConfig(cfg, d.heartbeat))
			return d.machine, err
		},
	})
	if err != nil {
		guard.Close()
		return nil, err
	}
	d.host = host
	return d, nil
}

// Ports returns the ports that were really bound, in the order of the configuration.
func (d *Directory) Ports() []config.MonitorPorts { return d.ports }

// Heartbeat returns the address to which workers are told to send heartbeats, as host:port. The address is empty if
// workers are told to send no heartbeats.
func (d *Directory) Heartbeat() string { return d.heartbeat }

// Figures returns the current counts. ok is false if the directory has ended.
func (d *Directory) Figures() (f Figures, ok bool) {
	ok = d.host.RunBetweenSteps(func() { f = d.machine.Figures() })
	return f, ok
}

// Replicated returns how many workers are known only through the log that directories share, and whether that log is
// down.
func (d *Directory) Replicated() (workers int, down bool) {
	d.host.RunBetweenSteps(func() { workers, down = d.machine.ReplicationStatus() })
	return workers, down
}

// A Snapshot is what a directory knows at one moment.
type Snapshot struct {
	Figures
	FromReplicas int  // workers that are known only through the log that directories share
	LogDown      bool // that log cannot be reached
}

// Snapshot returns what the directory knows. It reports false if the directory has ended, or does not answer until ctx
// ends.
func (d *Directory) Snapshot(ctx context.Context) (Snapshot, bool) {
	var s Snapshot // written by the loop, perhaps after this call has returned
	if !d.host.RunBetweenStepsUntil(ctx, func() {
		s.Figures = d.machine.Figures()
		s.FromReplicas, s.LogDown = d.machine.ReplicationStatus()
	}) {
		return Snapshot{}, false
	}
	return s, true
}

// Guard returns what authenticates the peers; nil if nothing does.
func (d *Directory) Guard() *secure.Guard { return d.guard }

// Close ends the directory. Workers notice that by themselves.
func (d *Directory) Close(ctx context.Context) error {
	err := d.host.Close(ctx)
	d.guard.Close()
	d.lines.FlushSkipped()
	d.log.Flush(flushTimeout)
	return err
}

// ReloadSecurity makes the directory look at its certificate files now.
func (d *Directory) ReloadSecurity() { d.guard.Reload() }

// flushTimeout limits the time for writing the last lines of the log.
const flushTimeout = time.Second

// monitorServers returns the sockets of each monitor, in order: feed, requests and, if configured, heartbeats.
func monitorServers(cfg *config.Directory) (all []control.Server) {
	add := func(ch effects.Channel, port uint16) {
		all = append(all, control.Server{Channel: ch, Addr: effects.Addr{Host: cfg.Host, Port: port}, ReportLost: true})
	}
	for _, m := range cfg.Monitors {
		add(effects.ChannelFeed, m.Pull)
		add(effects.ChannelDirectory, m.Reply)
		if m.HasHeartbeat {
			add(effects.ChannelHeartbeat, m.Heartbeat)
		}
	}
	return all
}

// boundPorts returns the ports of the sockets that servers made.
func boundPorts(configured []config.MonitorPorts, listens []control.Server) []config.MonitorPorts {
	all := make([]config.MonitorPorts, len(configured))
	for i, m := range configured {
		all[i] = config.MonitorPorts{Pull: listens[0].Addr.Port, Reply: listens[1].Addr.Port, HasHeartbeat: m.HasHeartbeat}
		if listens = listens[2:]; m.HasHeartbeat {
			all[i].Heartbeat, listens = listens[0].Addr.Port, listens[1:]
		}
	}
	return all
}

// heartbeatAddr returns where workers send heartbeats: the first heartbeat port. If the directory is bound to every
// interface and no address is advertised, the host is this machine's first reachable address.
func heartbeatAddr(cfg *config.Directory, ports []config.MonitorPorts) string {
	for _, p := range ports {
		if !p.HasHeartbeat {
			continue
		}
		host := cfg.Advertise
		if host == "" {
			host = cfg.Host
		}
		if at, err := netip.ParseAddr(host); host == "" || err == nil && at.IsUnspecified() {
			host = localAddress()
		}
		return protocol.Endpoint{Host: host, Port: p.Heartbeat}.String()
	}
	return ""
}

// machineConfig returns the configuration of the machine.
func machineConfig(cfg *config.Directory, heartbeat string) serve.Config {
	c, t := serve.Default(), &cfg.Tables
	c.Wire, c.Heartbeat = cfg.Limits, heartbeat
	var logSeed [8]byte
	_, _ = rand.Read(logSeed[:]) // it never fails
	c.Log.Addr, c.Log.LogBytes = effects.Addr(cfg.Shared.Addr), int(cfg.Shared.Bytes)
	c.Log.Incarnation = binary.LittleEndian.Uint64(logSeed[:]) | 1
	k := &c.Directory
	var seed [8]byte
	_, _ = rand.Read(seed[:]) // it never fails
	k.Seed = binary.LittleEndian.Uint64(seed[:])
	k.Instances, k.Workers, k.WorkersPerInstance = int(t.Instances), int(t.Workers), int(t.WorkersPerInstance)
	k.Holders, k.Chunks, k.HashesPerLookup, k.PeersPerLookup = int(t.Holders), int(t.Chunks), int(t.Prefix), int(t.Peers)
	k.HashesPerBatch, k.Syncs, k.SyncTimeout = int(t.BatchHashes), int(t.Syncs), effects.Duration(t.SyncTimeout)
	k.Silence, k.Disconnected, k.HeartbeatersOnly = effects.Duration(cfg.WorkerTimeout), effects.Duration(cfg.WorkerTimeout),
		cfg.OnlyHeartbeats
	k.Fade = effects.Duration(t.StaleLocationTTL)
	return c
}
