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

// Config configures the plane of one NPU. What has no default must be set; zero means the default.
type Config struct {
	// Context is where the pool's memory and the plane's streams are. It stays the caller's, longer than the plane.
	Context *acl.Context
	// Library is HCCL, and SoC the chip that acl.Info names. They stay the caller's as well.
	Library *comm.Library
	SoC     string
	// Rank is this NPU in rank tables.
	Rank comm.Rank
	// RootInfo lets the ends meet by root info instead of a rank table. Older libraries only, and both ends alike.
	RootInfo bool
	// TrafficClass and ServiceLevel mark RoCE packets; nil leaves them to HCCL.
	TrafficClass, ServiceLevel *uint32

	// Host is where the channel listens and what peers are told to dial; 127.0.0.1 if empty. Port is chosen by the system
	// if zero.
	Host string
	Port uint16

	// TransferTimeout is the longest time in which a batch must end; by default a little longer than NICs try, and 3 s at
	// least.
	TransferTimeout time.Duration
	// CancelGrace is how long a batch of a cancelled transfer is waited for before its communicator is given up for it;
	// 200 ms.
	CancelGrace time.Duration
	// PrepareTimeout bounds each of the three phases in which communicators meet, in whole seconds; 10 s.
	PrepareTimeout time.Duration
	// DestroyTimeout bounds one try to destroy a communicator that is busy; 5 s. There are twenty.
	DestroyTimeout time.Duration
	// RebuildTries is how many communicators in a row may fail before a link is lost; 3.
	RebuildTries int
	// Window is how many batches of a link are in flight; 2. A batch has at most Descriptors descriptors (as many as the
	// library takes), and BatchBytes bytes (256 MiB) if it has more than one.
	Window      int
	Descriptors int
	BatchBytes  uint64
	// Links bounds peers in each direction; what Bounds has, but 64 at most.
	Links int

	// Filled is told of every read, on the context's thread, when it has been put into a stream and nothing was put there
	// behind it: what other streams that use the memory have to wait for. Its error is the batch's. nil: nobody asks. It
	// keeps nothing of the list.
	Filled func(t *acl.Thread, s *acl.Stream, memory []plane.Region) error
}

const (
	windowMax       = 64
	linksDefault    = 64
	transferAtLeast = 3 * time.Second
)

// complete checks the configuration and fills in the defaults.
func (c Config) complete(bounds plane.Bounds) (Config, error) {
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
	// A rank that no table takes is better refused here than at the first peer.
	other := comm.Rank{Server: c.Rank.Server, Device: c.Rank.Device + 1, Address: c.Rank.Address, Port: c.Rank.Port + 1,
		Pod: c.Rank.Pod}
	if _, _, _, err := comm.Table(c.Rank, other); err != nil {
		return c, fmt.Errorf("%w: %w", plane.ErrInvalid, err)
	}
	return c, nil
}

// residual is R of the NICs, as the library was told.
func (c *Config) residual(hccs bool) time.Duration {
	info := c.Library.Info()
	return residual(hccs, info.RDMATimeout.Value, info.RDMARetries.Value)
}

func (c *Config) transferTimeout() time.Duration {
	r := c.residual(false)
	return max(transferAtLeast, r+r/4)
}

// Open is a plane.Opener. It registers the pool's memory, and listens.
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
	return listener, framing.Advertised(listener), nil
}

// rules are what each link is bound by.
func (c *Config) rules(bounds plane.Bounds) communicator.Rules {
	return communicator.Rules{
		Window: c.Window, Tries: c.RebuildTries, Transfers: bounds.Transfers, Answer: effects.Duration(bounds.Handshake),
		Patience: effects.Duration(min(c.TransferTimeout, math.MaxInt64/2)), Grace: effects.Duration(c.CancelGrace),
	}
}
