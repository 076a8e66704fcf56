package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
	"github.com/kvferry/kvferry/cmd/kvferry/internal/nixlnode"
	"github.com/kvferry/kvferry/cmd/kvferry/internal/npunode"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/buildinfo"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/operator"
	"github.com/kvferry/kvferry/runtime/plane/shm"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
	"github.com/kvferry/kvferry/runtime/tracing"
)

// A node is a serving rank together with the NPU or the library that the rank uses.
type node struct {
	agent.Node
	npu    *npunode.NPU // nil if the pages are in the process's memory
	face   operatorFace
	tracer *tracing.Tracer // nil if there are no traces
}

// openNode assembles a node from its parts. It supplies the parts that package runtime does not import.
func openNode(ctx context.Context, cfg *config.Config, rank int, log *slog.Logger, extra ...runtime.Option,
) (*node, error) {
	face, err := newOperatorFace(&cfg.Operator, &cfg.Security, rank, log)
	if err != nil {
		return nil, err
	}
	options := append(extra, runtime.WithRank(rank), runtime.WithLogger(log),
		runtime.WithControl(controlOpener(cfg)))
	if face.timer != nil {
		options = append(options, face.timer.Options()...)
	}
	tracer, err := tracing.Open(tracing.Config{Endpoint: cfg.Trace.Endpoint, Ratio: cfg.Trace.Ratio, Service: "kvferry-" + cfg.Role.String(),
		Version: buildinfo.Current().Version, Log: log})
	if err != nil {
		return nil, usageError{err}
	}
	if tracer != nil {
		options = append(options, runtime.WithTracer(tracer))
	}
	n, err := openWithPlanes(ctx, cfg, rank, log, options)
	if err != nil {
		return nil, errors.Join(err, closeTracer(ctx, tracer))
	}
	n.face, n.tracer = face, tracer
	return n, nil
}

// serveOperators serves the interface for operators, if the configuration has one. The first result ends it.
func (n *node) serveOperators(others ...operator.Source) (stop func(), at net.Addr, err error) {
	if n.tracer != nil {
		others = append(others, operator.Traces(n.tracer.Counts))
	}
	return n.face.serve(n.Guard(), append([]operator.Source{operator.Node(n.Node.Node, n.face.timer)}, others...)...)
}

// openWithPlanes opens a node over the memory and the planes that the configuration selects.
func openWithPlanes(ctx context.Context, cfg *config.Config, rank int, log *slog.Logger, options []runtime.Option) (*node, error) {
	if cfg.NeedsNPU() {
		return openOnNPU(ctx, cfg, rank, log, options)
	}
	if cfg.Channel == config.ChannelNIXL {
		return openOverNIXL(ctx, cfg, rank, log, options)
	}
	tcpAddr, ok := cfg.TCPEndpoint(rank)
	if !ok {
		return nil, usagef("data.tcp_port has no port for rank %d; add a port", rank)
	}
	n, err := runtime.Open(ctx, cfg, append(options,
		runtime.WithPlane(shm.Name, shm.Config{Dir: cfg.Data.SHMDir, Copiers: int(cfg.Data.CopyThreads),
			NonTemporalBytes: cfg.Data.NonTemporalBytes}.Open),
		runtime.WithPlane(tcp.Name, tcp.Config{Host: tcpAddr.Host, Port: tcpAddr.Port,
			Streams: int(cfg.Data.TCPStreams)}.Open),
	)...)
	if err != nil {
		return nil, err
	}
	return &node{Node: agent.Node{Node: n, Engine: agent.InProcess{}}}, nil
}

func openOnNPU(ctx context.Context, cfg *config.Config, rank int, log *slog.Logger, options []runtime.Option) (*node,
	error) {
	npu, err := npunode.Open(cfg, rank, log)
	if errors.Is(err, npunode.ErrSetting) {
		return nil, usageError{err}
	}
	if err != nil {
		return nil, err
	}
	engine, err := npu.Engine()
	if err != nil {
		return nil, errors.Join(err, npu.Close())
	}
	n, err := runtime.Open(ctx, cfg, append(options, npu.Options()...)...)
	if err != nil {
		return nil, errors.Join(err, npu.Close())
	}
	return &node{Node: agent.Node{Node: n, Engine: engine, Links: npu.Links}, npu: npu}, nil
}

func openOverNIXL(ctx context.Context, cfg *config.Config, rank int, log *slog.Logger, options []runtime.Option) (*node,
	error) {
	nixl, err := nixlnode.Open(cfg, rank, log)
	if errors.Is(err, nixlnode.ErrSetting) {
		return nil, usageError{err}
	}
	if err != nil {
		return nil, err
	}
	n, err := runtime.Open(ctx, cfg, append(options, nixl.Options()...)...)
	if err != nil {
		return nil, err
	}
	return &node{Node: agent.Node{Node: n, Engine: agent.InProcess{}, Links: nixl.Links}}, nil
}

// closeWithNPU closes the node first and then the NPU.
func (n *node) closeWithNPU(ctx context.Context) error {
	err := n.Close(ctx)
	if n.npu != nil {
		err = errors.Join(err, n.npu.Close())
	}
	return errors.Join(err, closeTracer(ctx, n.tracer))
}

// traceCloseTime is how long the last spans have to reach the collector.
const traceCloseTime = 5 * time.Second

// closeTracer exports the last spans. A collector that does not take them is no failure of the process.
func closeTracer(ctx context.Context, t *tracing.Tracer) error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), traceCloseTime)
	defer cancel()
	if err := t.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// controlOpener returns the opener of the control transport that the configuration selects.
func controlOpener(cfg *config.Config) control.Opener {
	if cfg.Control == config.ControlLibZMQ {
		return libzmqOpener(cfg)
	}
	return zmqConfig(cfg).Opener()
}

func zmqConfig(cfg *config.Config) zmq.Config {
	return zmq.Config{
		MaxConns:     int(cfg.Bounds.Conns),
		MaxMessage:   cfg.Limits.MessageBytes,
		Reconnect:    time.Duration(cfg.Machine.BackoffMin),
		ReconnectMax: time.Duration(cfg.Machine.BackoffMax),

		MaxInbound:            int(cfg.Bounds.Inbound),
		InboundPerAddress:     int(cfg.Bounds.InboundPerAddress),
		HandshakingPerAddress: int(cfg.Bounds.PendingHandshakes),
		Handshake:             cfg.Link.HandshakeTimeout,
		MessageTimeout:        cfg.Link.MessageTimeout,
		Poll:                  cfg.Poll,
		NameTimeout:           cfg.Link.NameTimeout,
		NameTTL:               cfg.Link.NameTTL,
		NameNegativeTTL:       cfg.Link.NameNegativeTTL,
	}
}
