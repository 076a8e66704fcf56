//go:build cgo && linux

package hccl

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net"
	"strconv"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/hccl/comm"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/framing"
)

// Name is the plane's name in handshakes.
const Name = "hccl"

// Config configures the plane of one NPU. A field whose comment names no default must be set.
type Config struct {
	// Context is the device context of the pool's memory and of the plane's streams. The caller owns it and closes it
	// after the plane.
	Context *acl.Context
	// Library is HCCL, and SoC the chip that acl.Info names. The caller owns the library as well.
	Library *comm.Library
	SoC     string
	// Rank describes this NPU in rank tables.
	Rank comm.Rank
	// RootInfo makes the ends meet by root info instead of a rank table. Only older libraries need it, and both ends
	// must have the same setting.
	RootInfo bool
	// TrafficClass and ServiceLevel mark RoCE packets; nil leaves them to HCCL.
	TrafficClass, ServiceLevel *uint32

	// Host is where the channel listens and the host that peers dial; 127.0.0.1 if empty. Port zero lets the system
	// choose.
	Host string
	Port uint16

	// TransferTimeout is the longest time that a batch may take. Default: a little longer than NICs retry, at least 3
	// s.
	TransferTimeout time.Duration
	// CancelGrace is how long a batch of a canceled transfer is awaited before its communicator is given up; default
	// 200 ms.
	CancelGrace time.Duration
	// PrepareTimeout bounds each of the three phases in which the ends of a communicator meet, in whole seconds;
	// default 10 s.
	PrepareTimeout time.Duration
	// DestroyTimeout bounds one attempt to destroy a busy communicator; default 5 s. There are twenty attempts.
	DestroyTimeout time.Duration
	// RebuildTries is how many communicators in a row may fail before a link is lost; default 3.
	RebuildTries int
	// Window is how many batches of a link are in flight; default 2. A batch has at most Descriptors descriptors
	// (default: as many as the library accepts), and at most BatchBytes bytes (256 MiB) if it has more than one.
	Window      int
	Descriptors int
	BatchBytes  uint64
	// Links bounds the peers in each direction; default: the node's bound, at most 64.
	Links int

	// Filled, if set, is called for every read, on the context's thread, right after the read was put into a stream: it
	// orders other streams that use the memory behind the read. Its error fails the batch. It must not keep the list.
	Filled func(t *acl.Thread, s *acl.Stream, memory []plane.Region) error
}

const (
	windowMax       = 64
	linksDefault    = 64
	transferAtLeast = 3 * time.Second
)

// withDefaults checks the configuration and fills in the defaults.
func (c Config) withDefaults(bounds plane.Bounds) (Config, error) {
	if c.Context == nil || c.Library == nil {
		return c, fmt.Errorf("%w: hccl needs a context of AscendCL and HCCL's library", plane.ErrInvalid)
	}
	descriptors := c.Library.DescMax()
	for _, f := range []struct {
		name     string
		value    *int
		def, max int
	}{
		{"rebuild tries", &c.RebuildTries, 3, 100},
		{"window", &c.Window, 2, windowMax},
		{"descriptors", &c.Descriptors, descriptors, comm.DescMax},
		{"links", &c.Links, min(linksDefault, bounds.Links), bounds.Links},
	} {
		*f.value = cmp.Or(*f.value, f.def)
		if *f.value < 1 || *f.value > f.max {
			return c, fmt.Errorf("%w: %s of hccl is %d; give 1 to %d", plane.ErrInvalid, f.name, *f.value, f.max)
		}
	}
	c.Descriptors = min(c.Descriptors, descriptors)
	for _, f := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"transfer timeout", &c.TransferTimeout, c.transferTimeout()},
		{"cancel grace", &c.CancelGrace, 200 * time.Millisecond},
		{"prepare timeout", &c.PrepareTimeout, 10 * time.Second},
		{"destroy timeout", &c.DestroyTimeout, 5 * time.Second},
	} {
		*f.value = cmp.Or(*f.value, f.def)
		if *f.value < 0 {
			return c, fmt.Errorf("%w: %s of hccl is %v; give a positive time", plane.ErrInvalid, f.name, *f.value)
		}
	}
	c.BatchBytes = cmp.Or(c.BatchBytes, 256<<20)
	c.Host = cmp.Or(c.Host, "127.0.0.1")
	// A rank that no rank table can hold is refused here, and not only when the first peer connects.
	other := comm.Rank{Server: c.Rank.Server, Device: c.Rank.Device + 1, Address: c.Rank.Address, Port: c.Rank.Port + 1,
		Pod: c.Rank.Pod}
	if _, _, _, err := comm.Table(c.Rank, other); err != nil {
		return c, fmt.Errorf("%w: %w", plane.ErrInvalid, err)
	}
	return c, nil
}

// residual returns R of the NICs, by the library's configuration.
func (c *Config) residual(hccs bool) time.Duration {
	info := c.Library.Info()
	return residual(hccs, info.RDMATimeout.Value, info.RDMARetries.Value)
}

// transferTimeout returns the default of TransferTimeout.
func (c *Config) transferTimeout() time.Duration {
	r := c.residual(false)
	return max(transferAtLeast, r+r/4)
}

// Open is a plane.Opener. It registers the pool's memory and starts to listen.
func (c Config) Open(ctx context.Context, env plane.Env) (plane.Plane, error) {
	p, err := Open(ctx, c, env)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// listen opens the listener of the channel.
func (c *Config) listen(ctx context.Context) (net.Listener, string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))))
	if err != nil {
		return nil, "", fmt.Errorf("listen for the hccl plane on %s port %d: %w", c.Host, c.Port, err)
	}
	return listener, framing.AdvertisedAddress(listener), nil
}

// rules returns the bounds of each link's machine.
func (c *Config) rules(bounds plane.Bounds) communicator.Rules {
	return communicator.Rules{
		Window: c.Window, Tries: c.RebuildTries, Transfers: bounds.Transfers, AnswerTimeout: effects.Duration(bounds.HandshakeTimeout),
		ProgressTimeout: effects.Duration(min(c.TransferTimeout, math.MaxInt64/2)), Grace: effects.Duration(c.CancelGrace),
	}
}
