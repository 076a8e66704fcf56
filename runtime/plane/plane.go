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
)

// A Plane moves pages to peers. Nothing blocks but Close. Spans in effects are borrowed: a plane
// copies what it keeps. All methods are safe for concurrent use.
type Plane interface {
	// Name is the plane's name in handshakes: "shm", "tcp".
	Name() string
	// Blob is what every peer's plane of the same name needs in order to Import this one, with the token behind it that
	// the machine makes for that peer (identity.Key.Token). The caller must not change it.
	Blob() []byte
	// Import connects to a peer; one Imported answers.
	Import(e *effects.Import)
	// Drop ends a link of this plane; one Dropped answers, after the link's transfers were
	// completed. Unknown links are ignored.
	Drop(link effects.Link)
	// Transfer pushes pages, or reads them; one TransferDone answers, and one Settled if that was not settled. A
	// link that is not this plane's completes as PeerLost.
	Transfer(e *effects.Transfer)
	// Cancel hastens the end of a transfer of this plane; unknown ones are ignored.
	Cancel(corr effects.Corr)
	// Confirm answers one Landed of this plane; unknown ones are ignored.
	Confirm(landing effects.Landing, code effects.Code)
	// Close completes all that is outstanding as Closed, joins every goroutine and unmaps what
	// peers lent. It returns the context's error if that took too long; it goes on in the background.
	Close(ctx context.Context) error
}

// An Opener starts a plane in env. The context bounds the opening only.
type Opener func(ctx context.Context, env Env) (Plane, error)

// A Sink takes completions from any goroutine and never blocks. It may be a stepper.Stepper, too: then the goroutine that
// ended something small has the machine take it.
type Sink interface{ Post(ev effects.Event) }

// IDs numbers the links and landings of all planes of one node. The zero value is ready.
type IDs struct{ last atomic.Uint64 }

// NextLink returns a link number that was never given before.
func (i *IDs) NextLink() effects.Link { return effects.Link(i.last.Add(1)) }

// NextLanding returns a landing number that was never given before.
func (i *IDs) NextLanding() effects.Landing { return effects.Landing(i.last.Add(1)) }

// Env is what all planes of one node share. Fenced planes have a Pool to serve, leased ones a Leased.
type Env struct {
	Pool        *Pool
	Leased      *Leased
	Sink        Sink
	IDs         *IDs
	Incarnation effects.Incarnation // this node's
	Key         identity.Key        // of this life of the node, as its machine has it
	Bounds      Bounds
	Log         *slog.Logger // nil: slog.Default()
}

// Bounds limits a plane. Zero fields take the defaults.
type Bounds struct {
	Links         int // peers in each direction; 1024
	Transfers     int // pushes and reads in progress, by us and by each peer; 1024
	PagesPerBatch int // pages of one transfer; 4096
	// connections of one address that have not said who they are; 256, at most half of those that there may be
	Strangers int
	Handshake time.Duration // longest time that a handshake takes; 5 s
	Stall     time.Duration // longest time that one write to a peer, of a page at most, makes no end; 10 s
}

// ErrInvalid is wrapped by errors that say what is wrong with an Env or a plane's configuration.
var ErrInvalid = errors.New("invalid data plane configuration")

// Complete checks the env of a fenced plane and fills in the defaults.
func (e Env) Complete() (Env, error) {
	if e.Pool == nil && e.Leased != nil {
		return e, fmt.Errorf("%w: this plane moves memory of the process, and the pool is a device's; use transfer_channel: "+
			"hccl, or pd_buffer_device: cpu", ErrInvalid)
	}
	if e.Pool == nil {
		return e, fmt.Errorf("%w: the pool is missing", ErrInvalid)
	}
	return e.complete()
}

// CompleteLeased checks the env of a leased plane and fills in the defaults.
func (e Env) CompleteLeased() (Env, error) {
	if e.Leased == nil && e.Pool != nil {
		return e, fmt.Errorf("%w: this plane is leased, and the pool is the process's and fenced; use "+
			"transfer_channel: nixl, or pd_buffer_device: npu, or another plane", ErrInvalid)
	}
	if e.Leased == nil {
		return e, fmt.Errorf("%w: the pool is missing", ErrInvalid)
	}
	return e.complete()
}

func (e Env) complete() (Env, error) {
	switch {
	case e.Sink == nil, e.IDs == nil:
		return e, fmt.Errorf("%w: sink or ids missing; set both", ErrInvalid)
	case e.Incarnation == effects.Incarnation{}:
		return e, fmt.Errorf("%w: incarnation is zero; give the rank's", ErrInvalid)
	case e.Key == identity.Key{}:
		return e, fmt.Errorf("%w: key is zero, which everybody knows; give the rank's", ErrInvalid)
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
		{"handshake", &b.Handshake, 5 * time.Second},
		{"stall", &b.Stall, 10 * time.Second},
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
