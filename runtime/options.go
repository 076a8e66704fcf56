package runtime

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/metrics"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/device"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/secure"
	"github.com/kvferry/kvferry/runtime/span"
)

// An Option changes how Open opens a node.
type Option func(*options)

type options struct {
	rank        int
	control     control.Opener
	planes      []namedPlane
	device      device.Opener
	log         *slog.Logger
	gateway     Gateway             // nil: there is no gateway
	containment *FailureContainment // nil: a panic of the machine ends the process
	watcher     *observedDriver     // nil: nothing watches the machine

	attachable   bool
	commandTimer CommandTimer // nil: nobody measures the time of commands
	reports      []ReportListener
	metrics      []MetricListener
	tracer       span.Tracer // nil: there are no traces
}

// A CountingGateway is a gateway that counts its work, for metrics. The methods may be called from any goroutine.
type CountingGateway interface {
	Gateway
	// VisitCounts visits how many operations of each kind succeeded, and how many failed.
	VisitCounts(visit func(operation string, ok, failed uint64))
	// CountEngines returns the engines that write to this node, the engines that this node writes to, and the agents of the
	// gateway, each at present.
	CountEngines() (producers, consumers, agents int)
}

type namedPlane struct {
	name string
	open plane.Opener
}

// WithControl sets the transport of control messages. A node needs exactly one control transport.
func WithControl(open control.Opener) Option { return func(o *options) { o.control = open } }

// WithPlane adds a data plane, which moves the bytes of pages. Planes are preferred in the order of the options: a
// transfer uses the first plane that both ends have. If the configuration's transfer_channel names a plane, only that
// plane is kept.
func WithPlane(name string, open plane.Opener) Option {
	return func(o *options) { o.planes = append(o.planes, namedPlane{name, open}) }
}

// A Gateway connects the node with peers that are not kvferry nodes. A gateway wraps the control transport and is a
// data plane itself. Package runtime/gateway provides the gateway to vLLM engines.
type Gateway interface {
	Name() string // name of the data plane
	WrapControl(inner control.Opener) control.Opener
	Open(ctx context.Context, env plane.Env) (plane.Plane, error)
}

// WithGateway adds a gateway. The node owns and closes the gateway. A gateway needs a node that registers blocks over
// leased planes.
func WithGateway(g Gateway) Option { return func(o *options) { o.gateway = g } }

// WithDevice gives the node memory of an accelerator. All planes of a node with a device are leased planes.
func WithDevice(open device.Opener) Option { return func(o *options) { o.device = open } }

// WithAttachable lets an engine in another process work in the node's memory: see Node.Mapping. A process that is
// given that file may store into every page at any time, and may give the memory behind pages back to the system, so
// the process must be trusted with chunks as much as an engine in this process. The process cannot change the size of
// the pool, nor the records from which the node and its peers know the owner and the chunk of a page. Peers on this
// host never get a file that is writable. None of this stops a hostile process of the same user, because that process
// may debug this process.
func WithAttachable() Option { return func(o *options) { o.attachable = true } }

// WithCommandTimer sets a function that is called with the time of each command.
func WithCommandTimer(f CommandTimer) Option { return func(o *options) { o.commandTimer = f } }

// A ReportListener is called with each fact that has a report: which operation of the machine has ended, and how its time
// was spent. It is called by the goroutine that steps the machine, so it must not block, and it must copy what it keeps.
type ReportListener func(*effects.Observe)

// WithReports adds a listener for reports. The option may be given several times.
func WithReports(f ReportListener) Option {
	return func(o *options) { o.reports = append(o.reports, f) }
}

// A MetricListener is called with each value of a histogram of the node. It is called by the goroutine that steps the
// machine, so it must not block, and it must copy what it keeps.
type MetricListener func(*metrics.Observation)

// WithMetrics adds a listener for the values of histograms. The option may be given several times.
func WithMetrics(f MetricListener) Option {
	return func(o *options) { o.metrics = append(o.metrics, f) }
}

// WithTracer sets where the spans of traced calls go. Package runtime/tracing has a tracer for OpenTelemetry.
func WithTracer(t span.Tracer) Option {
	return func(o *options) {
		o.tracer = t
		o.reports = append(o.reports, t.RecordReport)
	}
}

// WithRank sets the tensor-parallel rank of the configuration that this node is. The default is 0.
func WithRank(rank int) Option { return func(o *options) { o.rank = rank } }

// WithLogger sets the logger of the node. The default is slog.Default. One goroutine calls the logger's handler,
// and no work waits for that goroutine: a handler that blocks loses lines (Node.DroppedLogLines), and Close gives the
// handler one second for the last lines.
func WithLogger(log *slog.Logger) Option { return func(o *options) { o.log = log } }

// validate returns an error for options and a configuration that cannot work together, before anything is opened. It
// also removes the planes that transfer_channel excludes, and installs the gateway.
func (o *options) validate(cfg *config.Config) error {
	switch {
	case cfg == nil:
		return argumentError("open", "cfg", "nil", "a configuration", "pass the result of config.Parse")
	case cfg.Pages == 0:
		return argumentError("open", "the layout", "missing", "a layout", "set extra_config.kvferry.layout, or call SetLayout")
	case cfg.PageBytes > 1<<32-1:
		return argumentError("open", "a page", fmt.Sprintf("%d bytes", cfg.PageBytes), "less than 4 GiB", "lower chunk_size")
	case cfg.NeedsNPU() && o.device == nil:
		return argumentError("open", "WithDevice", "missing", "an NPU", fmt.Sprintf("pd_buffer_device is %v and transfer_channel "+
			"%v, so an NPU serves the pages; add WithDevice, or set pd_buffer_device: cpu and transfer_channel: auto",
			cfg.Device, cfg.Channel))
	case cfg.Security.CheckExposed() != nil:
		return &Error{Op: "open", Code: effects.Invalid, Cause: cfg.Security.CheckExposed(),
			Remedy: "set security.mode, or declare the network trusted by security.allow_off"}
	case o.control == nil:
		return argumentError("open", "WithControl", "missing", "a control transport", "add WithControl")
	case o.rank < 0:
		return argumentError("open", "WithRank", strconv.Itoa(o.rank), "0 or more", "ranks count from 0")
	case o.log == nil:
		return argumentError("open", "WithLogger", "nil", "a logger", "omit WithLogger to use slog.Default")
	}
	if o.containment != nil {
		alone, err := o.containment.withDefaults()
		if err != nil {
			return err
		}
		o.containment = &alone
	}
	names := make([]string, len(o.planes))
	for i, p := range o.planes {
		if p.open == nil {
			return argumentError("open", "WithPlane", strconv.Quote(p.name)+" without an opener", "both",
				"pass the plane's Open function")
		}
		if slices.Contains(names, p.name) {
			return argumentError("open", "WithPlane", strconv.Quote(p.name)+" twice",
				"each plane once", "remove one of the two")
		}
		names[i] = p.name
	}
	if want := cfg.Channel; want != config.ChannelAuto {
		instead := ", or use auto"
		if want == config.ChannelHCCL {
			instead = ", or set pd_buffer_device: cpu and transfer_channel: auto"
		}
		o.planes = slices.DeleteFunc(o.planes, func(p namedPlane) bool { return p.name != want.String() })
		if len(o.planes) == 0 {
			return argumentError("open", "WithPlane", fmt.Sprintf("%q", names), "a plane "+strconv.Quote(want.String()),
				fmt.Sprintf("transfer_channel is %v: add its plane%s", want, instead))
		}
	}
	if len(o.planes) == 0 {
		return argumentError("open", "WithPlane", "missing", "a data plane", "add WithPlane")
	}
	if g := o.gateway; g != nil {
		if !cfg.Register.Enabled || !cfg.HasLeasedPlane() {
			return argumentError("open", "WithGateway", strconv.Quote(g.Name()), "a node that registers blocks over leased planes",
				"set register.engine_id and transfer_channel: nixl, or omit the gateway")
		}
		if cfg.Security.Mode == secure.Strict {
			return argumentError("open", "WithGateway", strconv.Quote(g.Name()), "no gateway with security.mode: strict",
				"engines of vLLM connect to the gateway without TLS; set security.mode: permissive, or omit the gateway")
		}
		o.planes = append(o.planes, namedPlane{g.Name(), g.Open})
		o.control = g.WrapControl(o.control)
	}
	return nil
}
