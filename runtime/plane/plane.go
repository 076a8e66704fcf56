package plane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/runtime/secure"
)

// A Plane moves pages to and from peers. Only the method Close blocks. Slices in effects are borrowed: a plane copies
// the slices that it keeps. All methods are safe for concurrent use.
type Plane interface {
	// Name returns the plane's name in handshakes, such as "shm" or "tcp".
	Name() string
	// Blob returns the bytes that a peer's plane of the same name needs to Import this plane. For each peer the
	// machine appends the token that was made for that peer (identity.Key.Token). The caller must not change the
	// bytes.
	Blob() []byte
	// Import connects to a peer. The completion is an Imported.
	Import(e *effects.Import)
	// Drop ends a link of this plane. The completion is a Dropped, after all transfers of the link have completed.
	// Unknown links are ignored.
	Drop(link effects.Link)
	// Transfer pushes or reads pages. The completion is a TransferDone, followed by a Settled if the transfer was not
	// settled yet. A transfer over a link of another plane completes as PeerLost.
	Transfer(e *effects.Transfer)
	// Cancel asks a transfer of this plane to end early. Unknown transfers are ignored.
	Cancel(corr effects.Corr)
	// Confirm answers a Landed of this plane. Unknown landings are ignored.
	Confirm(landing effects.Landing, code effects.Code)
	// Close completes all outstanding operations as Closed, waits for every goroutine and unmaps the memory of peers.
	// If the context ends first, Close returns the context's error, and the work continues in the background.
	Close(ctx context.Context) error
}

// An Opener starts a plane in env. The context bounds the opening only; the plane may outlive the context.
type Opener func(ctx context.Context, env Env) (Plane, error)

// A Sink receives completions from any goroutine and never blocks. If the sink is also a stepper.Stepper, the
// goroutine that completed a small operation has the machine process the event at once.
type Sink interface{ Post(ev effects.Event) }

// IDs numbers the links and landings of all planes of a node. The zero value is ready to use.
type IDs struct{ last atomic.Uint64 }

// NextLink returns a link number that was never returned before.
func (i *IDs) NextLink() effects.Link { return effects.Link(i.last.Add(1)) }

// NextLanding returns a landing number that was never returned before.
func (i *IDs) NextLanding() effects.Landing { return effects.Landing(i.last.Add(1)) }

// A LinkLister is a plane whose links have a state of their own beside those of the rank's machine: on leased planes a
// communicator, which is formed again when a transfer breaks it or the peer revokes a grant.
type LinkLister interface {
	// ListLinks returns the states of the links that this node has opened, in any order. It may be called on any goroutine.
	ListLinks() []LinkState
}

// A LinkState is the state of a link's communicator, for operators.
type LinkState struct {
	Link     effects.Link
	State    string // "offered", "forming", "up", "tearing down", "unproven" or "over"
	Epoch    uint64 // number of the communicator, from 1
	Since    effects.Time
	Until    effects.Time // when the plane gives up waiting in this state; zero: it waits for nothing, or without limit
	InFlight int          // batches
}

// Env has the parts of a node that all of its planes share. A fenced plane needs Pool, a leased plane needs Leased.
type Env struct {
	Pool        *Pool
	Leased      *LeasedPool
	Sink        Sink
	IDs         *IDs
	Incarnation effects.Incarnation // of this node
	Key         identity.Key        // of this incarnation of the node; the machine has the same key
	Bounds      Bounds
	Log         *slog.Logger // nil: slog.Default()
	// Guard authenticates peers on connections between hosts; nil: connections are plain. It outlives the plane.
	Guard *secure.Guard
}

// Bounds limits what a plane holds for its peers. Zero fields take the defaults.
type Bounds struct {
	Links         int // peers in each direction; default 1024
	Transfers     int // pushes and reads in flight: in total for our own, and for each peer; default 1024
	PagesPerBatch int // pages of a transfer; default 4096
	// Strangers limits the connections from an address on which the peer has not proven an identity yet. The default
	// is 256. At most half of all connections that the plane accepts are strangers.
	Strangers        int
	HandshakeTimeout time.Duration // how long a handshake may take; default 5 s
	StallTimeout     time.Duration // how long a write to a peer (of at most a page) may make no progress; default 10 s
}

// ErrInvalid is wrapped by errors about an Env or a plane's configuration.
var ErrInvalid = errors.New("invalid data plane configuration")

// CompleteFenced checks the Env of a fenced plane and fills in the defaults.
func (e Env) CompleteFenced() (Env, error) {
	if e.Pool == nil && e.Leased != nil {
		return e, fmt.Errorf("%w: this plane moves memory of the process, but the pool is in device memory; use "+
			"transfer_channel: hccl, or pd_buffer_device: cpu", ErrInvalid)
	}
	if e.Pool == nil {
		return e, fmt.Errorf("%w: the pool is missing", ErrInvalid)
	}
	return e.withDefaults()
}

// CompleteLeased checks the Env of a leased plane and fills in the defaults.
func (e Env) CompleteLeased() (Env, error) {
	if e.Leased == nil && e.Pool != nil {
		return e, fmt.Errorf("%w: this plane is leased, but the pool is a fenced pool in memory of the process; use "+
			"transfer_channel: nixl, or pd_buffer_device: npu, or another plane", ErrInvalid)
	}
	if e.Leased == nil {
		return e, fmt.Errorf("%w: the pool is missing", ErrInvalid)
	}
	return e.withDefaults()
}

func (e Env) withDefaults() (Env, error) {
	switch {
	case e.Sink == nil, e.IDs == nil:
		return e, fmt.Errorf("%w: Env.Sink or Env.IDs is missing; set both", ErrInvalid)
	case e.Incarnation == effects.Incarnation{}:
		return e, fmt.Errorf("%w: Env.Incarnation is zero; set the incarnation of the rank", ErrInvalid)
	case e.Key == identity.Key{}:
		return e, fmt.Errorf("%w: Env.Key is zero, which is no secret; set the key of the rank", ErrInvalid)
	}
	b := &e.Bounds
	for _, f := range []struct {
		name     string
		value    *int
		def, max int
	}{
		{"links", &b.Links, 1024, 1 << 16},
		{"transfers", &b.Transfers, 1024, 1 << 20},
		{"pages per batch", &b.PagesPerBatch, 4096, 1 << 20},
		{"strangers", &b.Strangers, 256, 1 << 16},
	} {
		if *f.value == 0 {
			*f.value = f.def
		}
		if *f.value < 0 || *f.value > f.max {
			return e, fmt.Errorf("%w: %s is %d; give 1 to %d", ErrInvalid, f.name, *f.value, f.max)
		}
	}
	for _, f := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"handshake", &b.HandshakeTimeout, 5 * time.Second},
		{"stall", &b.StallTimeout, 10 * time.Second},
	} {
		if *f.value == 0 {
			*f.value = f.def
		}
		if *f.value < 0 {
			return e, fmt.Errorf("%w: %s is %v; give a positive time", ErrInvalid, f.name, *f.value)
		}
	}
	if e.Log == nil {
		e.Log = slog.Default()
	}
	return e, nil
}
