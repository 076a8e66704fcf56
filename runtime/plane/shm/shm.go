// Package shm is the data plane between processes of one host.
//
// Each end's pool travels once, as a sealed memfd over a unix socket, and the other maps it read-only. A push is a
// request: the target's copy threads copy page by page into the target's own pool, at the cost of a copy. A read needs
// no request: the reader's copy threads copy out of the owner's pool, and the owner's process may be frozen. Each
// page's generation and its permit, the transfer's in a push and the grant's in a read, are compared before and after
// the copy, so a page that its owner took back, be it only from this transfer or grant, is never taken for the one that
// was meant. Therefore a push is settled as soon as it ended, and a grant to read is Revoked at once, whatever the peer
// does.
//
// Both ends are of one user, or root's; others use another plane.
//
// A mapping shows no sign when its owner dies, and copies from it simply go on. Therefore completions are messages, and
// the end of the socket ends all transfers of both sides.
package shm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"

	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/internal/link"
	"github.com/kvferry/kvferry/runtime/plane/internal/nontemporal"
)

// Name is the plane's name in handshakes.
const Name = "shm"

const (
	// copiersDefault gave 1.2 to 1.8 of what one copier gave; the measure is in the project's book.
	copiersDefault = 2
	// nonTemporalDefault is near where copies around the caches become the faster ones of bytes that
	// the caches hold (BenchmarkHot of package nontemporal: between 4 and 16 MiB). Below it, whoever reads
	// the pages next may still find them there.
	nonTemporalDefault = 4 << 20
)

// Config configures the plane. The zero value is usable.
type Config struct {
	// Dir is where a private folder for the socket is made; it must be the same at both ends. If empty, the
	// socket has an abstract name, which reaches all processes of one network namespace: containers
	// with a network of their own need a folder that they share. Paths of unix sockets are short: at most
	// 107 bytes in all.
	Dir string
	// Copiers is the number of copy threads; two if zero, where there are two cores. One does not
	// fill what a core's share of the memory gives, and more than two would take cores from the engine.
	Copiers int
	// NonTemporalBytes is the size of a batch from which on its pages are copied around the caches, where that has proved
	// to be faster; 4 MiB if zero.
	NonTemporalBytes uint64
}

// Open is a plane.Opener with the default configuration.
func Open(ctx context.Context, env plane.Env) (plane.Plane, error) { return Config{}.Open(ctx, env) }

// Open is a plane.Opener.
func (c Config) Open(ctx context.Context, env plane.Env) (plane.Plane, error) {
	return c.open(ctx, env, plane.Move, nontemporal.Copy)
}

func (c Config) open(ctx context.Context, env plane.Env, small, large plane.Mover) (plane.Plane, error) {
	if err := ordered(processor); err != nil {
		return nil, err
	}
	env, err := env.Complete()
	if err != nil {
		return nil, err
	}
	if c.Copiers == 0 {
		c.Copiers = min(copiersDefault, runtime.NumCPU())
	}
	if c.NonTemporalBytes == 0 {
		c.NonTemporalBytes = nonTemporalDefault
	}
	if most := 4 * runtime.NumCPU(); c.Copiers < 0 || c.Copiers > most {
		return nil, fmt.Errorf("%w: shm has %d copiers; give 1 to %d", plane.ErrInvalid, c.Copiers, most)
	}
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	permits, err := plane.NewPermits(env.Bounds.Transfers)
	if err != nil {
		return nil, err
	}
	listener, folder, err := listen(ctx, c.Dir)
	if err != nil {
		_ = permits.Close()
		return nil, err
	}
	m := &medium{boot: boot, dir: c.Dir, folder: folder, permits: permits, copiers: startCopiers(c.Copiers),
		movers: &movers{by: [ways]plane.Mover{small, large}, largeBytes: c.NonTemporalBytes}}
	p, err := link.Open(link.Config{Name: Name, Env: env, Medium: m, Listener: listener,
		Address: boot + " " + listener.Addr().String()})
	if err != nil {
		_ = listener.Close()
		m.Close()
		return nil, err
	}
	return p, nil
}

// processor is what this runs on; tests say another.
var processor = runtime.GOARCH

// ordered refuses processors for which nobody has argued that a torn or late copy never passes: plane.Copy compares
// words around plain loads, and what orders these is each processor's own affair (see runtime/plane/generation.go).
func ordered(arch string) error {
	switch arch {
	case "amd64", "arm64":
		return nil
	}
	return fmt.Errorf("%w: shm compares words around copies out of a peer's memory, and what that proves was argued for "+
		"amd64 and arm64, not for %s; set transfer_channel: tcp", plane.ErrInvalid, arch)
}

// bootID names this boot of this host: the same for all its processes and for nobody else.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("boot id of this host: %w; the shm plane needs /proc", err)
	}
	return string(bytes.TrimSpace(b)), nil
}
