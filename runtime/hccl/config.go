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

// Config configures the plane of one NPU. A field without a default in the comment must be set.
type Config struct {
	// Context is the device context of the pool's memory and of the plane's streams. The caller owns the context and
	// closes it after the plane.
	Context *acl.Context
	// Library is HCCL, and SoC the chip that acl.Info names. The caller owns the library as well.
	Library *comm.Library
	SoC     string
	// Rank describes this NPU in rank tables.
	Rank comm.Rank
	// UseRootInfo makes the ends meet by root info instead of a rank table. Set this field only for older libraries,
	// and at both ends alike.
	UseRootInfo bool
	// TrafficClass and ServiceLevel mark RoCE packets; nil leaves the marks to HCCL.
	TrafficClass, ServiceLevel *uint32

	// Host is the address at which the channel listens and which peers dial; 127.0.0.1 if empty. Port zero lets the
	// system choose.
	Host string
	Port uint16

	// TransferTimeout is the longest time that a batch may take. Default: a little longer than NICs retry, at least 3
	// s.
	TransferTimeout time.Duration
	// CancelGrace bounds the wait for a batch of a canceled transfer, after which the communicator is fenced; default
	// 200 ms.
	CancelGrace time.Duration
	// PrepareTimeout bounds each of the three phases in which the ends of a communicator meet, in whole seconds;
	// default 10 s.
	PrepareTimeout time.Duration
	// DestroyTimeout bounds each of the twenty attempts to destroy a busy communicator; default 5 s.
	DestroyTimeout time.Duration
	// RebuildTries is the number of communicators in a row that may fail before a link is lost; default 3.
	RebuildTries int
	// Window bounds the batches of a link that are in flight; default 2. A batch has at most Config.BatchDescriptors
	// descriptors (default: as many as the library accepts). A batch with more than a single descriptor has at most
	// BatchBytes bytes (default 256 MiB).
	Window           int
	BatchDescriptors int
	BatchBytes       uint64
	// MaxLinks bounds the peers in each direction; default: the node's bound, at most 64.
	MaxLinks int

	// OnReadQueued, if set, is called for every read, on the context's thread, right after the read was put into a
	// stream. The callback records an event, so that streams that use the memory afterwards can wait for the read. An
	// error fails the batch. The callback must not keep the list.
	OnReadQueued func(t *acl.Thread, s *acl.Stream, memory []plane.Region) error
}

const (
	windowMax          = 64
	linksDefault       = 64
	minTransferTimeout = 3 * time.Second
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
		{"descriptors", &c.BatchDescriptors, descriptors, comm.DescMax},
		{"links", &c.MaxLinks, min(linksDefault, bounds.Links), bounds.Links},
	} {
		*f.value = cmp.Or(*f.value, f.def)
		if *f.value < 1 || *f.value > f.max {
			return c, fmt.Errorf("%w: %s of hccl is %d; give 1 to %d", plane.ErrInvalid, f.name, *f.value, f.max)
		}
	}
	c.BatchDescriptors = min(c.BatchDescriptors, descriptors)
	for _, f := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"transfer timeout", &c.TransferTimeout, c.defaultTransferTimeout()},
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
	// Refuse a rank that no rank table can hold now, and not only when the first peer connects.
	peer := comm.Rank{Server: c.Rank.Server, Device: c.Rank.Device + 1, Address: c.Rank.Address, Port: c.Rank.Port + 1,
		Pod: c.Rank.Pod}
	if _, _, _, err := comm.NewRankTable(c.Rank, peer); err != nil {
		return c, fmt.Errorf("%w: %w", plane.ErrInvalid, err)
	}
	return c, nil
}

// residualTime returns R by the library's configuration: over HCCS, or else over RoCE.
func (c *Config) residualTime(hccs bool) time.Duration {
	info := c.Library.Info()
	return residualAfterAbort(hccs, info.RDMATimeout.Value, info.RDMARetries.Value)
}

// defaultTransferTimeout returns the default of TransferTimeout.
func (c *Config) defaultTransferTimeout() time.Duration {
	r := c.residualTime(false)
	return max(minTransferTimeout, r+r/4)
}

// Open is a plane.Opener: a function that registers the pool's memory and starts to listen.
func (c Config) Open(ctx context.Context, env plane.Env) (plane.Plane, error) {
	p, err := Open(ctx, c, env)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// openListener opens the listener of the channel.
func (c *Config) openListener(ctx context.Context) (net.Listener, string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))))
	if err != nil {
		return nil, "", fmt.Errorf("listen for the hccl plane on %s port %d: %w", c.Host, c.Port, err)
	}
	return listener, framing.AdvertisedAddress(listener), nil
}

// machineRules returns the bounds of each link's machine.
func (c *Config) machineRules(bounds plane.Bounds) communicator.Rules {
	return communicator.Rules{
		Window: c.Window, Tries: c.RebuildTries, Transfers: bounds.Transfers, AnswerTimeout: effects.Duration(bounds.HandshakeTimeout),
		ProgressTimeout: effects.Duration(min(c.TransferTimeout, math.MaxInt64/2)), Grace: effects.Duration(c.CancelGrace),
	}
}
