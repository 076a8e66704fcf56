package runtime

import (
	"log/slog"
	"slices"

	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/device"
	"github.com/kvferry/kvferry/runtime/plane"
)

// An Option changes how Open opens a node.
type Option func(*options)

type options struct {
	rank    int
	control control.Opener
	planes  []namedPlane
	device  device.Opener
	log     *slog.Logger
	alone   *FailAlone // nil: a panic goes on
}

type namedPlane struct {
	name string
	open plane.Opener
}

// WithControl says how messages travel. There is exactly one control transport.
func WithControl(open control.Opener) Option { return func(o *options) { o.control = open } }

// WithPlane adds a way for pages to travel; the first that both ends have is used. The configuration's
// transfer_channel leaves only the plane it names.
func WithPlane(name string, open plane.Opener) Option {
	return func(o *options) { o.planes = append(o.planes, namedPlane{name, open}) }
}

// WithDevice gives the node memory of an accelerator. Its planes are leased ones, all of them.
func WithDevice(open device.Opener) Option { return func(o *options) { o.device = open } }

// WithRank says which tensor-parallel rank of the configuration this node is; 0 without it.
func WithRank(rank int) Option { return func(o *options) { o.rank = rank } }

// WithLogger says where the node logs; slog.Default without it. Its handler is called by one goroutine, which nothing waits for: a log that blocks
// loses lines (Node.LinesDropped), and Close gives it one second.
func WithLogger(log *slog.Logger) Option { return func(o *options) { o.log = log } }

// check says what cannot work, before anything is opened.
func (o *options) check(cfg *config.Config) error {
	switch {
	case cfg == nil:
		return invalid("open", "no configuration; give what config.Parse returned")
	case cfg.Pages == 0:
		return invalid("open", "the configuration has no layout: name it in extra_config.kvferry.layout, or call SetLayout")
	case cfg.PageBytes > 1<<32-1:
		return invalid("open", "a chunk has %d bytes; a page holds less than 4 GiB: lower chunk_size", cfg.PageBytes)
	case cfg.Push.PeerShareBP%100 != 0 || cfg.Push.PeerShareBP == 0:
		return invalid("open", "peer_share_pct is %d.%02d; give a whole percentage from 1 to 100",
			cfg.Push.PeerShareBP/100, cfg.Push.PeerShareBP%100)
	case cfg.NeedsNPU() && o.device == nil:
		return invalid("open", "pd_buffer_device is %v and transfer_channel %v, so an NPU serves the pages; add WithDevice, or set pd_buffer_device: cpu and transfer_channel: auto", cfg.Device, cfg.Channel)
	case o.control == nil:
		return invalid("open", "no control transport; add WithControl")
	case o.rank < 0:
		return invalid("open", "WithRank(%d); ranks count from 0", o.rank)
	case o.log == nil:
		return invalid("open", "WithLogger(nil); leave it out for slog.Default")
	}
	if o.alone != nil {
		alone, err := o.alone.complete()
		if err != nil {
			return err
		}
		o.alone = &alone
	}
	names := make([]string, len(o.planes))
	for i, p := range o.planes {
		if slices.Contains(names, p.name) {
			return invalid("open", "plane %q was given twice", p.name)
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
			return invalid("open", "transfer_channel is %v and the planes of this program are %q; add it with WithPlane%s", want, names, instead)
		}
	}
	if len(o.planes) == 0 {
		return invalid("open", "no data plane; add WithPlane")
	}
	return nil
}
