// Package directory runs a directory for real: it listens where LMCache's workers, and ours, look for their controller,
// and answers who has which chunk. What it knows are hints that workers tell again, so nothing of it is kept on disk:
// one that was restarted asks each worker for all that it has.
//
// Several that name the same log tell each other what they hear, so each knows what any of them does.
//
// A caller may rely on this, beside what packages fsm/directory and fsm/directory/serve say: what workers send is read
// as fast as the machine takes it, and no faster; a worker that is silent, slow or lies costs nobody else more than its
// share of the tables; Close ends within the transport's bounds.
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
)

// A Directory is one that serves. All methods are safe for concurrent use.
type Directory struct {
	host      *runtime.Host
	machine   *serve.Machine // the loop's; looked at between its steps
	ports     []config.MonitorPorts
	heartbeat string
	lines     *loglimit.Log
	log       *asynclog.Handler // of those, on their way
}

// Figures are how much it knows.
type Figures = directory.Figures

// Open starts a directory and returns when it serves. open makes its sockets; log may be nil. The error is a
// *runtime.Error.
func Open(cfg *config.Directory, open control.Opener, log *slog.Logger) (*Directory, error) {
	if log == nil {
		log = slog.Default()
	}
	d := &Directory{log: asynclog.New(log.Handler())}
	d.lines = loglimit.New(slog.New(d.log))
	host, err := runtime.OpenHost(runtime.HostConfig{
		Servers: servers(cfg), Control: open, Log: log, Waiting: int(cfg.Bounds.Mailbox), Observed: d.observed,
		WaitingBytes: 4 * cfg.Limits.MessageBytes,
		Machine: func(_ effects.Time, listens []control.Server) (effects.Machine, error) {
			d.ports = bound(cfg.Monitors, listens)
			d.heartbeat = heartbeat(cfg, d.ports)
			var err error
			d.machine, err = serve.New(machine(cfg, d.heartbeat))
			return d.machine, err
		},
	})
	if err != nil {
		return nil, err
	}
	d.host = host
	return d, nil
}

// Ports are those that are really bound, in the order of the configuration.
func (d *Directory) Ports() []config.MonitorPorts { return d.ports }

// Heartbeat is where workers are told to send heartbeats, host:port; empty: nowhere.
func (d *Directory) Heartbeat() string { return d.heartbeat }

// Figures counts what it knows; false: it has ended.
func (d *Directory) Figures() (f Figures, ok bool) {
	ok = d.host.Between(func() { f = d.machine.Figures() })
	return f, ok
}

// Told is how many workers it knows by what other directories tell alone, and whether the log by which they do is down.
func (d *Directory) Told() (workers int, down bool) {
	d.host.Between(func() { workers, down = d.machine.Told() })
	return workers, down
}

// Close ends it. Workers find that out by themselves.
func (d *Directory) Close(ctx context.Context) error {
	err := d.host.Close(ctx)
	d.lines.End()
	d.log.Flush(flushPatience)
	return err
}

// flushPatience is how long the last lines of the log may take to be written.
const flushPatience = time.Second

// servers are the sockets of each set, in its order.
func servers(cfg *config.Directory) (all []control.Server) {
	add := func(ch effects.Channel, port uint16) {
		all = append(all, control.Server{Channel: ch, Addr: effects.Addr{Host: cfg.Host, Port: port}, TellLost: true})
	}
	for _, m := range cfg.Monitors {
		add(effects.ChannelFeed, m.Pull)
		add(effects.ChannelDirectory, m.Reply)
		if m.Beats {
			add(effects.ChannelHeartbeat, m.Heartbeat)
		}
	}
	return all
}

// bound are the ports of sockets that servers made.
func bound(asked []config.MonitorPorts, listens []control.Server) []config.MonitorPorts {
	all := make([]config.MonitorPorts, len(asked))
	for i, m := range asked {
		all[i] = config.MonitorPorts{Pull: listens[0].Addr.Port, Reply: listens[1].Addr.Port, Beats: m.Beats}
		if listens = listens[2:]; m.Beats {
			all[i].Heartbeat, listens = listens[0].Addr.Port, listens[1:]
		}
	}
	return all
}

// heartbeat is where workers send theirs: the first port for them. Where a directory is bound to every interface and
// nothing says under which address it is reached, that is the machine's first one.
func heartbeat(cfg *config.Directory, ports []config.MonitorPorts) string {
	for _, p := range ports {
		if !p.Beats {
			continue
		}
		host := cfg.Advertise
		if host == "" {
			host = cfg.Host
		}
		if at, err := netip.ParseAddr(host); host == "" || err == nil && at.IsUnspecified() {
			host = reachable()
		}
		return protocol.Endpoint{Host: host, Port: p.Heartbeat}.String()
	}
	return ""
}

// machine is the configuration of the machine.
func machine(cfg *config.Directory, heartbeat string) serve.Config {
	c, t := serve.Default(), &cfg.Tables
	c.Wire, c.Heartbeat = cfg.Limits, heartbeat
	var life [8]byte
	_, _ = rand.Read(life[:]) // It never fails.
	c.Log.Addr, c.Log.Bytes = effects.Addr(cfg.Shared.At), int(cfg.Shared.Bytes)
	c.Log.Life = binary.LittleEndian.Uint64(life[:]) | 1
	k := &c.Directory
	var seed [8]byte
	_, _ = rand.Read(seed[:]) // It never fails.
	k.Seed = binary.LittleEndian.Uint64(seed[:])
	k.Instances, k.Workers, k.OfOne = int(t.Instances), int(t.Workers), int(t.WorkersOfOne)
	k.Holders, k.Chunks, k.Prefix, k.Peers = int(t.Holders), int(t.Chunks), int(t.Prefix), int(t.Peers)
	k.Hashes, k.Syncs, k.Patience = int(t.BatchHashes), int(t.Syncs), effects.Duration(t.SyncPatience)
	k.Silence, k.Parted, k.OnlyBeats = effects.Duration(cfg.Silence), effects.Duration(cfg.Silence), cfg.OnlyBeats
	k.Fade = effects.Duration(t.Fade)
	return c
}
