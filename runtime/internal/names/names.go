// Package names resolves host names of peers, so that no other part of a process has to wait for a name server, which
// may be silent.
//
// A lookup has a deadline, and a bounded number of lookups run at a time. All callers that ask for the same name at
// the same time share a lookup. Addresses are cached for a while, and failures for a shorter while. A numeric address
// resolves to itself.
//
//	r := names.New(ctx, names.Config{})
//	addrs, err := r.Resolve(ctx, "decode-3.example", false)
//	// After no address in addrs could be connected to:
//	r.Forget("decode-3.example")
package names

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Config has the limits of a Resolver. Zero fields take the defaults.
type Config struct {
	Timeout    time.Duration // of a lookup; default 3 s
	TTL        time.Duration // how long addresses are cached; default 30 s
	FailureTTL time.Duration // how long failures are cached; default 1 s
	MaxLookups int           // lookups at a time; default 16
	MaxNames   int           // cached names; default 4096
	// Lookup queries the system's resolver; default net.DefaultResolver.
	Lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// A Resolver is safe for concurrent use.
type Resolver struct {
	config      Config
	ctx         context.Context
	lookupSlots chan struct{}
	lookups     sync.WaitGroup

	mu      sync.Mutex
	entries map[string]*nameEntry
}

// A nameEntry is a cached name. When done is closed, addrs and err may be read. The resolver's mutex guards until.
type nameEntry struct {
	done  chan struct{}
	until time.Time // zero while the name is being looked up
	addrs []netip.Addr
	err   error
}

// New returns a resolver with an empty cache. All lookups end when ctx ends.
func New(ctx context.Context, c Config) *Resolver {
	if c.Timeout == 0 {
		c.Timeout = 3 * time.Second
	}
	if c.TTL == 0 {
		c.TTL = 30 * time.Second
	}
	if c.FailureTTL == 0 {
		c.FailureTTL = time.Second
	}
	if c.MaxLookups == 0 {
		c.MaxLookups = 16
	}
	if c.MaxNames == 0 {
		c.MaxNames = 4096
	}
	if c.Lookup == nil {
		c.Lookup = net.DefaultResolver.LookupNetIP
	}
	return &Resolver{config: c, ctx: ctx, lookupSlots: make(chan struct{}, c.MaxLookups), entries: map[string]*nameEntry{}}
}

// ErrUnknown is wrapped by the error for a name without addresses.
var ErrUnknown = errors.New("no address for this name")

// Resolve returns the addresses of host. If ipv6 is false, these are IPv4 addresses; otherwise IPv6 addresses come
// first.
func (r *Resolver) Resolve(ctx context.Context, host string, ipv6 bool) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr.Unmap()}, nil
	}
	if host == localhost {
		return loopbackAddrs(ipv6), nil
	}
	e := r.findOrLookUp(host, ipv6)
	select {
	case <-e.done:
		return e.addrs, e.err
	case <-ctx.Done():
		return nil, fmt.Errorf("look up %q: %w", host, ctx.Err())
	}
}

// localhost is not looked up, because a name server may return any address for this name (RFC 6761, 6.3).
const localhost = "localhost"

func loopbackAddrs(ipv6 bool) []netip.Addr {
	v4 := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if ipv6 {
		return []netip.Addr{netip.IPv6Loopback(), v4}
	}
	return []netip.Addr{v4}
}

// Wait returns when no lookup is running, which is soon after the end of the resolver's context. Resolve must not be
// called meanwhile.
func (r *Resolver) Wait() { r.lookups.Wait() }

// Forget makes the next Resolve look host up again. Callers use it when no peer could be reached at the cached
// addresses.
func (r *Resolver) Forget(host string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, network := range []string{"ip ", "ip4 "} {
		if e := r.entries[network+host]; e != nil && !e.until.IsZero() {
			delete(r.entries, network+host)
		}
	}
}

func (r *Resolver) findOrLookUp(host string, ipv6 bool) *nameEntry {
	network := "ip4"
	if ipv6 {
		network = "ip"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	key := network + " " + host
	now := time.Now()
	if e := r.entries[key]; e != nil && (e.until.IsZero() || now.Before(e.until)) {
		return e
	}
	if len(r.entries) >= r.config.MaxNames {
		r.makeRoom(now)
	}
	e := &nameEntry{done: make(chan struct{})}
	r.entries[key] = e
	r.lookups.Go(func() { r.lookUp(e, network, host) })
	return e
}

// makeRoom removes expired names, or else any name that is not being looked up.
func (r *Resolver) makeRoom(now time.Time) {
	for key, e := range r.entries {
		if !e.until.IsZero() && !now.Before(e.until) {
			delete(r.entries, key)
		}
	}
	for key, e := range r.entries {
		if len(r.entries) < r.config.MaxNames {
			return
		}
		if !e.until.IsZero() {
			delete(r.entries, key)
		}
	}
}

func (r *Resolver) lookUp(e *nameEntry, network, host string) {
	// Waiting for a turn counts against the same deadline, so that the times of many silent names do not add up.
	ctx, cancel := context.WithTimeout(r.ctx, r.config.Timeout)
	defer cancel()
	var addrs []netip.Addr
	err := error(nil)
	select {
	case r.lookupSlots <- struct{}{}:
		addrs, err = r.config.Lookup(ctx, network, host)
		<-r.lookupSlots
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err == nil && len(addrs) == 0 {
		err = ErrUnknown
	}
	if err != nil {
		e.err = fmt.Errorf("look up %q: %w", host, err)
	}
	for _, a := range addrs {
		e.addrs = append(e.addrs, a.Unmap())
	}
	slices.SortStableFunc(e.addrs, func(a, b netip.Addr) int { return addressBits(b) - addressBits(a) })
	ttl := r.config.TTL
	if err != nil {
		ttl = r.config.FailureTTL
	}
	r.mu.Lock()
	e.until = time.Now().Add(ttl)
	r.mu.Unlock()
	close(e.done)
}

func addressBits(a netip.Addr) int { return a.BitLen() }
